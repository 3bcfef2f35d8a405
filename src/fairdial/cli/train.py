"""``fairdial train``: from a table to a saved model with a dial."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli import options
from fairdial.cli.learners import DEFAULT, METHODS, NETWORKS
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    from fairdial.cli.rows import TrainingRows

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
    type=click.Choice(CRITERIA),
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
    help="What is trained. boosting and logistic: scikit-learn's, with the dial on top; blend: "
    "both, averaged. fairbayes: a network with the dial on top. gfb, epo, fairbinn, yoto: networks "
    "of the paper. auto: the best of boosting, logistic, blend, a network and gfb on validation "
    "rows, within --budget. Networks need the extra torch.",
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
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--drop", multiple=True, metavar="COLUMN", help="Column to leave out.")
@click.option(
    "--min-count",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Least number of counted held-out rows in each group.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that auto may try for, before the final training. [default: 60]",
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
    min_count: int,
    budget: float | None,
    epochs: int | None,
    members: int | None,
    recalibrate: bool,
    overwrite: bool,
    key_file: Path | None,
    show: Output,
) -> None:
    """Train a model with a dial on DATA, a CSV or Parquet file.

    Why boosting is the default: over 20 splits of Adult, gradient boosting with the dial on top was
    more accurate at every gap than the networks, and it trains in seconds. Which is best differs
    between tables: --method auto tries, and says why it took what it took.

    \b
    fairdial train people.csv --label income --sensitive sex --out model
    fairdial train people.csv --label income --sensitive race,sex --criterion equal_opportunity \\
        --drop id --tolerance 0.05 --out model

    Under torchrun a network is trained by all its processes together:
    torchrun --nproc-per-node 2 -m fairdial train ... --method gfb
    """
    from fairdial.cli.learners import make_model
    from fairdial.cli.models import check_place
    from fairdial.cli.rows import check_held_out, training_rows
    from fairdial.cli.tables import read_table
    from fairdial.persistence.quick import import_skops

    check_place(out, overwrite, key_file)
    if method not in NETWORKS:
        import_skops()  # or say that it is missing before the work is done
    rows = training_rows(read_table(data), label, positive, sensitive, drop)
    with processes(method) as is_main:
        show.silent = not is_main
        model = make_model(
            method,
            texts=rows.texts,
            seed=seed,
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
        show.note(
            f"Training {method} on {len(rows.X):,} rows, {calibration:.0%} of them held out to "
            f"find the dial, {len(rows.features)} features ..."
        )
        start = time.perf_counter()
        model.fit(rows.X, rows.y)
        model.training_["asked"] = method
        seconds = time.perf_counter() - start
        if not is_main:
            return
        if method in NETWORKS:
            (model.estimator if method == "fairbayes" else model.network).verbose = False
        found = model.save(out, overwrite=overwrite, key=key_file)
    told = {"model": str(out), "hash": found, "method": method, "seconds": round(seconds, 3)}
    if method == "auto":
        told |= {"chosen": model.chosen_, "why": model.why_}
        show.note(f"Chosen: {model.chosen_}. {model.why_}")
    _tell(model, rows, told, show)
    show.note(
        f"Trained in {seconds:.1f} s. The model is in {out}, its dial rests at {model.tolerance:g}."
    )


def _tell(model: Any, rows: TrainingRows, told: dict[str, Any], show: Output) -> None:
    """What was trained, and what its dial does."""
    from fairdial.cli.figures import (
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
