"""``fairdial train``: from a table to a saved model with a dial."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fairdial.cli import options
from fairdial.cli.groups import speaks_another
from fairdial.cli.learners import DEFAULT, METHODS, NETWORKS
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError, need_extra

if TYPE_CHECKING:
    from fairdial.cli.rows import TrainingRows

SMALL = 5_000  # training rows, below which other methods than the default are named
CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")


@click.command()
@options.DATA
@click.option("--label", required=True, metavar="COLUMN", help="Column of labels: two values.")
@click.option(
    "--sensitive",
    required=True,
    multiple=True,
    metavar="COLUMN[,COLUMN]",
    help="Column that tells the group; several stand for their intersections. It is "
    "needed to decide; boosting and logistic don't learn from it, networks see it.",
)
@click.option(
    "--criterion",
    type=options.Criterion(CRITERIA),
    default=CRITERIA[0],
    show_default=True,
    help="What is to be equal between the groups: the share of rows that is selected, of those "
    "with the positive label, or of those with the other one.",
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default=DEFAULT,
    show_default=True,
    help="What is trained. boosting: gradient boosting with small trees, logistic: logistic "
    "regression, each with the dial on top; blend: both, averaged. fairbayes: a network with the "
    "dial on top. gfb (for two groups), epo, fairbinn, yoto: networks of the paper. auto: tries "
    "boosting, logistic, blend, a network and gfb on validation rows within --budget, and takes "
    "the simplest of those that are about as good as the best. Networks need the extra torch.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the model.")
@click.option("--positive", metavar="VALUE", help="The label that selected means.")
@options.tolerance(told="Where the dial rests: the gap that predict keeps by default. [default: 0]")
@click.option(
    "--calibration",
    type=options.Share(0, 1, min_open=True, max_open=True),
    default=0.25,
    show_default=True,
    help="Share of the rows that is held out to find the dial.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Which rows are held out, and how training starts.",
)
@click.option("--drop", multiple=True, metavar="COLUMN", help="Column to leave out.")
@click.option(
    "--missing-group",
    metavar="NAME",
    help="The group of rows that don't tell theirs, such as 'not stated'; the model knows it, so "
    "that such rows can be decided on. With several --sensitive, the part that is missing.",
)
@click.option(
    "--drop-missing",
    is_flag=True,
    help="Leave out rows without a label, or without a group (unless --missing-group names it).",
)
@click.option(
    "--min-count",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Least number of counted held-out rows in each group.",
)
@click.option(
    "--budget",
    type=options.Number(min=0, min_open=True),
    help="Seconds for which auto tries candidates; the final training comes on top. [default: 60]",
)
@click.option("--epochs", type=click.IntRange(min=1), help="Of a network, at most.")
@click.option("--members", type=click.IntRange(min=1), help="Networks that are averaged.")
@click.option(
    "--recalibrate",
    is_flag=True,
    help="Correct each group's scores by a line first: for scores that are biased.",
)
@options.OVERWRITE
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sign the model with the key in this file: at least 16 bytes.",
)
@options.reads
@options.tells
def train(
    data: Path,
    label: str,
    sensitive: Sequence[str],
    criterion: str,
    method: str,
    out: Path,
    positive: str | None,
    tolerance: float | None,
    calibration: float,
    seed: int,
    drop: Sequence[str],
    missing_group: str | None,
    drop_missing: bool,
    min_count: int,
    budget: float | None,
    epochs: int | None,
    members: int | None,
    recalibrate: bool,
    overwrite: bool,
    key_file: Path | None,
    form: options.Form,
    show: Output,
) -> None:
    """Train a model with a dial on DATA, a CSV or Parquet file.

    Why boosting is the default, and when to take another method: docs/choosing.md has the figures.
    Which is best differs between tables: --method auto tries, and says why it took what it took.

    \b
    fairdial train people.csv --label income --positive ">50K" --sensitive sex \\
        --tolerance 0.05 --out model
    fairdial train people.csv --label income --positive ">50K" --sensitive race,sex \\
        --criterion equal_opportunity --drop id --tolerance 0.05 --out model

    Under torchrun a network is trained by all its processes together:
    torchrun --nproc-per-node 2 -m fairdial train ... --method gfb
    """
    from fairdial.cli.categories import cut_columns
    from fairdial.cli.learners import make_model
    from fairdial.cli.models import check_place
    from fairdial.cli.rows import check_held_out, check_two_groups, training_rows
    from fairdial.cli.tables import read_table
    from fairdial.methods.learners import limit_threads
    from fairdial.persistence.quick import import_skops

    check_place(out, overwrite, key_file)
    if method in NETWORKS:  # what is missing is said before the work is done
        need_extra("torch", f"--method {method}", "torch", f"; --method {DEFAULT} does without")
    else:
        import_skops()
    show.silent = speaks_another()
    rows = training_rows(
        read_table(data, form=form, named=sensitive),
        label,
        positive,
        sensitive,
        drop,
        missing_group,
        drop_missing,
        show.note,
    )
    if method == "gfb":
        check_two_groups(rows)
    with processes(method) as is_main:
        show.silent = not is_main
        model = make_model(
            method,
            texts=rows.texts,
            seed=seed,
            wide=rows.is_wide,
            epochs=epochs,
            members=members,
            budget=budget,
            recalibrate=recalibrate,
            progress=show.progress,
            criterion=criterion,
            tolerance=0.0 if tolerance is None else tolerance,
            pos_label=rows.positive,
            sensitive_column=rows.groups if len(rows.groups) > 1 else rows.groups[0],
            calibration=calibration,
            min_count=min_count,
        )
        check_held_out(rows, criterion, calibration, min_count)
        if method in NETWORKS:  # imported here: torch aborts if it is interrupted meanwhile
            from fairdial.methods.network import torch_module

            torch_module("fitting")
        show.note(
            f"Training {method} on {len(rows.X):,} rows, {calibration:.0%} of them held out to "
            f"find the dial, {len(rows.features)} features ..."
        )
        if _by_default("method") and len(rows.X) * (1 - calibration) < SMALL:
            show.note(
                "Small table: --method blend or auto may be better (on 2,000 rows of Adult blend "
                "was, by .35 points of accuracy)."
            )
        start = time.perf_counter()
        with limit_threads(method, len(rows.X)):
            model.fit(rows.X, rows.y)
        model.training_["asked"] = method
        if missing_group is not None:
            model.training_["missing_group"] = missing_group
        seconds = time.perf_counter() - start
        if not is_main:
            return
        if method in NETWORKS:
            (model.estimator if method == "fairbayes" else model.network).verbose = False
        found = model.save(out, overwrite=overwrite, key=key_file)
    told = {"model": str(out), "hash": found, "method": method, "seconds": round(seconds, 3)}
    if method == "auto":
        from fairdial.methods.trials import FAILED

        told |= {"chosen": model.chosen_, "why": model.why_}
        for name, note in model.trials_["note"].items():
            if note.startswith(FAILED):  # in full here, and only here: it may quote rows
                show.note(f"{name} {note}")
        show.note(f"Chosen: {model.chosen_}. {model.why_}")
    for line in cut_columns(model, rows.X[rows.texts]):
        show.note(line)
    _tell(model, rows, told, show)
    show.note(
        f"Trained in {seconds:.1f} s. The model is in {out}, its dial rests at {model.tolerance:g}."
    )
    if tolerance is None:
        show.note(
            "That is the strictest position, because no --tolerance was given: fairdial dial "
            f"{shlex.quote(str(out))} --tolerance T --set chooses another."
        )


def _by_default(name: str) -> bool:
    """Whether nobody has given this option."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.DEFAULT


def _tell(model: Any, rows: TrainingRows, told: dict[str, Any], show: Output) -> None:
    """What was trained, and what its dial does."""
    from fairdial.cli.figures import (
        caveat,
        frontier_parts,
        plain,
        point_data,
        positions,
        shown_tolerances,
        warn_if_constant,
    )

    frontier, resting = model.frontier_, model.tolerance
    points = positions(frontier, shown_tolerances(frontier, resting))
    warn_if_constant(points)
    negative, positive = model.classes_.tolist()
    show.result(
        told
        | {
            "criterion": frontier.criterion.name,
            "label": rows.y.name,
            "positive": plain(positive),
            "sensitive": rows.groups,
            "missing_group": model.training_.get("missing_group"),
            "features": rows.features,
            "rows": len(rows.X),
            "training_rows": model.training_["rows"],
            "calibration_rows": int(frontier.rows.sum()),
            "tolerance": resting,
            "frontier": [point_data(point) for point in points],
        },
        f"Selected means {rows.y.name} = {positive!r} (the other: {negative!r}). On "
        f"{frontier.rows.sum():,} rows that were held out from training, "
        f"{frontier.criterion.name.replace('_', ' ')}:",
        *frontier_parts(points, resting),
        caveat(frontier, told["model"]),
    )


@contextmanager
def processes(method: str) -> Iterator[bool]:
    """Whether this process tells and saves; torchrun starts several, of which one does."""
    from fairdial._validation import asked_processes

    if asked_processes() == 1:
        yield True
        return
    if method not in NETWORKS:
        raise InvalidInputError(
            f"--method must be a network ({', '.join(NETWORKS)}) under torchrun, got {method!r}."
        )
    from fairdial.methods.network import torch_module

    with torch_module("distributed").process_group() as started:
        yield started.is_main
