"""``fairdial train``: train a model on a table and save it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from fairdial.cli import options
from fairdial.cli.errors import is_secondary_process
from fairdial.cli.output import Output
from fairdial.cli.problem_options import (
    CONTROL,
    WEIGHTS,
    ProblemOptions,
    join_criteria,
    stating_problem,
)
from fairdial.errors import InvalidInputError, require_extra, require_torch
from fairdial.registry import Method, find, methods, names

if TYPE_CHECKING:
    from fairdial.cli.points import Json
    from fairdial.cli.training_rows import TrainingRows
    from fairdial.estimators.base import DialClassifier

DEFAULT = "boosting"
SMALL = 5_000  # training rows, below which other methods than the default are suggested


class MethodChoice(click.Choice):  # type: ignore[type-arg]  # generic from click 8.2 on
    """The name of a registered method, also of one that a plugin registers."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        self.choices = names()
        return str(super().convert(value, param, ctx))


@click.command()
@options.DATA
@click.option(
    "--label", required=True, metavar="COLUMN", help="Label column: two values, or classes."
)
@click.option(
    "--sensitive",
    required=True,
    multiple=True,
    metavar="COLUMN[,COLUMN]",
    help="Group column; several columns are combined into their intersections. Decisions need it "
    "(unless --blind is given); boosting, logistic and the boosting libraries don't learn from it, "
    "networks do.",
)
@stating_problem
@WEIGHTS
@CONTROL
@click.option(
    "--method",
    type=MethodChoice(names()),
    default=DEFAULT,
    show_default=True,
    help=" ".join(f"{method.name}: {method.description}" for method in methods())
    + " Networks need the extra torch.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the model.")
@click.option(
    "--positive",
    metavar="VALUE",
    help="Value of the positive class; several other values are combined.",
)
@click.option(
    "--tolerance",
    type=options.Fraction(0, 1),
    help="Default tolerance of the model: the largest gap between groups that predict allows "
    "by default. [default: that of --criterion NAME=TOLERANCE, else 0]",
)
@click.option(
    "--calibration",
    type=options.Share(0, 1, min_open=True, max_open=True),
    default=0.25,
    show_default=True,
    help="Share of the rows to hold out for calibration; auto: what certifying --tolerance with "
    "confidence 0.95 is likely to need (see fairdial plan).",
)
@click.option(
    "--seed",
    type=options.Integer(min=0),
    default=0,
    show_default=True,
    help="Random seed of the split and of training.",
)
@click.option("--drop", multiple=True, metavar="COLUMN", help="Column to leave out; repeatable.")
@click.option(
    "--missing-group",
    metavar="NAME",
    help="Name of the group for rows without one, such as 'not stated'. The model remembers it, so "
    "it can decide on such rows. With several group columns, the name of the missing part.",
)
@click.option(
    "--drop-missing",
    is_flag=True,
    help="Leave out rows without a label, or without a group (unless --missing-group is given).",
)
@click.option(
    "--merge-small",
    type=options.Integer(min=1),
    metavar="N",
    help="Merge groups of fewer than N rows into one, 'Other'. The model remembers which.",
)
@click.option(
    "--min-count",
    type=options.Integer(min=1),
    default=30,
    show_default=True,
    help="Minimum number of eligible held-out rows in each group.",
)
@click.option(
    "--time-limit",
    type=options.Number(min=0, min_open=True),
    help="Seconds for everything that auto does: comparing methods, and training the chosen one "
    "again on all rows. The first method always runs. [default: 120]",
)
@click.option("--epochs", type=options.Integer(min=1), help="Maximum number of epochs.")
@click.option("--members", type=options.Integer(min=1), help="Number of networks to average.")
@click.option(
    "--recalibrate",
    is_flag=True,
    help="Correct biased scores first, with a linear map per group.",
)
@click.option(
    "--groups",
    "overlap",
    type=click.Choice(("intersection", "marginal", "both")),
    help="With several --sensitive columns, compare their intersections, the groups of each column "
    "(marginal), or both. [default: intersection]",
)
@click.option(
    "--blind",
    is_flag=True,
    help="Decide without the group, which predict then doesn't need: training learns how likely "
    "each group is, and calibration uses the true groups.",
)
@options.OVERWRITE
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sign the model with the key in this file: at least 16 bytes.",
)
@options.reading_csv
@options.reporting
def train(
    data: Path,
    label: str,
    sensitive: Sequence[str],
    problem: ProblemOptions,
    weights: str | None,
    control: Sequence[str],
    method: str,
    out: Path,
    positive: str | None,
    tolerance: float | None,
    calibration: float | Literal["auto"],
    seed: int,
    drop: Sequence[str],
    missing_group: str | None,
    drop_missing: bool,
    merge_small: int | None,
    min_count: int,
    time_limit: float | None,
    epochs: int | None,
    members: int | None,
    recalibrate: bool,
    overlap: str | None,
    blind: bool,
    overwrite: bool,
    key_file: Path | None,
    csv_format: options.CsvFormat,
    show: Output,
) -> None:
    """Train a model on DATA, a CSV or Parquet file, and save it.

    docs/choosing.md says why boosting is the default, and when to use another method. The best one
    differs between tables: --method auto compares several and explains its choice.

    \b
    fairdial train people.csv --label income --positive ">50K" --sensitive sex \\
        --tolerance 0.05 --out model
    fairdial train people.csv --label income --positive ">50K" --sensitive race,sex \\
        --criterion equal_opportunity --drop id --tolerance 0.05 --out model
    fairdial train people.csv --label income --positive ">50K" --sensitive sex \\
        --criterion equalized_odds --criterion "true_positive_rate>=0.6" \\
        --cost-fn 5 --budget 0.3 --tolerance 0.05 --out model

    Under torchrun, all processes train a network together:

    \b
    torchrun --nproc-per-node 2 -m fairdial train ... --method gfb
    """
    from fairdial.cli.categories import describe_cut_columns
    from fairdial.cli.info import describe_proxies
    from fairdial.cli.models import check_model_path
    from fairdial.cli.reading import read_table
    from fairdial.cli.training_rows import check_labels_left, find_leaks, training_rows
    from fairdial.estimators.learners import limit_threads

    check_model_path(out, overwrite, key_file)
    chosen = find(method)
    if chosen.needs_torch:  # say what is missing before the work is done
        require_extra("torch", f"--method {method}", "torch", f"; --method {DEFAULT} does without")
    if chosen.library is not None:
        what = f"--method {method}"
        require_extra(chosen.library, what, chosen.library, f"; --method {DEFAULT} does without")
    show.silent = is_secondary_process()
    rows = training_rows(
        read_table(data, csv_format, groups=sensitive).rows,
        label=label,
        positive=positive,
        sensitive=sensitive,
        drop=drop,
        weights=weights,
        control=control,
        missing_group=missing_group,
        drop_missing=drop_missing,
        merge_small=merge_small,
        two_labels=_why_two_labels(chosen, blind=blind, recalibrate=recalibrate),
        note=show.note,
    )
    classes = len(rows.y.unique()) > 2
    if classes and calibration == "auto":
        raise InvalidInputError(
            "calibration", "be a share with more than two classes", given="auto"
        )
    declared = problem.declared_tolerance()
    default = tolerance if tolerance is not None else declared or 0.0
    criterion = problem.criterion or join_criteria(["demographic_parity"], problem.ratio)
    if calibration == "auto":
        calibration = _planned_share(rows, criterion, default, show.note)
    check_labels_left(rows, calibration)
    with _processes(method) as is_main:
        show.silent = not is_main
        model = chosen.make(
            texts=rows.texts,
            seed=seed,
            wide=rows.is_wide,
            epochs=epochs,
            members=members,
            time_limit=time_limit,
            recalibrate=recalibrate,
            network={"verbose": show.progress},
            criterion=criterion,
            tolerance=default,
            pos_label=rows.positive,
            sensitive_column=rows.groups if len(rows.groups) > 1 else rows.groups[0],
            calibration=calibration,
            min_count=min_count,
            **problem.parameters,
            **({"blind": True} if blind else {}),
            **({} if overlap is None else {"groups": overlap}),
        )
        if chosen.needs_torch:  # imported here: torch aborts if it is interrupted meanwhile
            require_torch()
            import fairdial.nn.fit  # noqa: F401
        show.note(
            f"Training {method} on {len(rows.X):,} rows ({calibration:.0%} of them held out for "
            f"calibration) with {len(rows.features)} features ..."
        )
        if _by_default("method") and len(rows.X) * (1 - calibration) < SMALL:
            show.note(
                "This is a small table: --method blend or auto may be better (on 2,000 rows of "
                "Adult, blend was better by 0.35 points of accuracy)."
            )
        proxies = find_leaks(rows, seed) if is_main else None
        start = time.perf_counter()
        with limit_threads(len(rows.X), trees=chosen.trees):
            model.fit(rows.X, rows.y, **rows.row_options)
        seconds = time.perf_counter() - start
        if "merged_groups" in rows.merged:
            model.training_["merged_groups"] = rows.merged["merged_groups"]
        if "merged_labels" in rows.merged:
            model.training_["merged_labels"] = rows.merged["merged_labels"]
        model.training_["asked"] = method
        if missing_group is not None:
            model.training_["missing_group"] = missing_group
        if proxies is not None:
            model.training_["proxies"] = proxies
        if not is_main:
            return
        if chosen.needs_torch:
            (model.estimator if method == "fairbayes" else model.network).verbose = False
        saved = model.save(out, overwrite=overwrite, key=key_file)
    result = {"model": str(out), "hash": saved, "method": method, "seconds": round(seconds, 3)}
    if method == "auto":
        from fairdial.estimators.trials import FAILED

        result |= {"chosen": model.chosen_, "why": model.why_}
        for name, note in model.trials_["note"].items():
            if note.startswith(FAILED):  # in full here, and only here: it may quote rows
                show.note(f"{name} {note}")
        show.note(f"Chosen: {model.chosen_}. {model.why_}")
    if proxies is not None:
        show.note(f"Features predict the group with {describe_proxies(proxies)}.")
    for line in describe_cut_columns(model, rows.X[rows.texts]):
        show.note(line)
    _report(model, rows, result, declared if tolerance is None else tolerance, default, show)
    show.note(f"Trained in {seconds:.1f} s. Saved in {out}; the default tolerance is {default:g}.")
    if tolerance is None and declared is None:
        show.note(
            "That is the strictest one, because no --tolerance was given; to change it: fairdial "
            f"dial {shlex.quote(str(out))} --tolerance T --set"
        )


def _why_two_labels(method: Method, *, blind: bool, recalibrate: bool) -> str:
    """Return why a label has two values; nothing if it may have more."""
    if blind or recalibrate:
        return f"with --{'blind' if blind else 'recalibrate'}"
    return "" if method.kind == "learner" else f"for --method {method.name}"


def _planned_share(
    rows: TrainingRows, criterion: Any, tolerance: float, note: Callable[[str], None]
) -> float:
    """Return the share of the rows that certifying the tolerance is likely to need."""
    import numpy as np

    from fairdial.core.planning import SHARES, plan_calibration

    if not tolerance:
        raise InvalidInputError("calibration", "be a share unless `tolerance` is set", given="auto")
    codes, names = rows.group_codes
    y = np.asarray(rows.y == sorted(rows.y.unique().tolist(), key=str)[-1])
    if rows.positive is not None:
        y = np.asarray(rows.y == rows.positive)
    groups = np.array(names, dtype=object)[codes]
    found = plan_calibration(groups, y.astype(int), tolerance=tolerance, criterion=criterion)
    if found.share is None:
        note(
            f"Half of the rows are held out, but they are likely to certify only about "
            f"{found.smallest:.3f}: group {found.groups[int(found.rows.argmin())]} is too small."
        )
        return float(SHARES[-1])
    return found.share


def _by_default(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.DEFAULT


def _report(
    model: DialClassifier,
    rows: TrainingRows,
    result: Json,
    tolerance: float | None,
    default: float,
    show: Output,
) -> None:
    """Print what was trained, and what its tolerances do."""
    from fairdial.cli.points import (
        json_number,
        json_value,
        summarize,
        warn_if_unreachable,
        warn_if_useless,
    )
    from fairdial.cli.problems import describe_problem, describe_rows, problem_data

    frontier = model.frontier_
    lines, parts = summarize(frontier, default, str(result["model"]))
    if tolerance is not None:
        warn_if_unreachable(frontier, tolerance, "and predict uses that one")
    warn_if_useless(frontier, default)
    labels = model.classes_.tolist()
    negative, positive = labels[0], labels[1] if len(labels) == 2 else None
    what = f"Positive class: {rows.y.name} = {positive!r} (negative: {negative!r})."
    if positive is None:
        what = f"Classes of {rows.y.name}: {', '.join(map(repr, labels))}."
    show.result(
        result
        | {
            **problem_data(frontier),
            "label": rows.y.name,
            "positive": json_value(positive),
            **({"classes": [json_value(label) for label in labels]} if positive is None else {}),
            "sensitive": rows.groups,
            "missing_group": model.training_.get("missing_group"),
            "merged_groups": model.training_.get("merged_groups"),
            "merged_labels": model.training_.get("merged_labels"),
            "proxies": model.training_.get("proxies"),
            "features": rows.features,
            "rows": len(rows.X),
            "training_rows": model.training_["rows"],
            "weights": None if rows.weights is None else rows.weights.name,
            "control": rows.control,
            "calibration_rows": json_number(frontier.counts.sum()),
            "tolerance": default,
            "frontier": lines,
        },
        f"{what} On {describe_rows(frontier, 'rows')} held out from training, "
        f"{describe_problem(frontier)}:",
        *parts,
    )


@contextmanager
def _processes(method: str) -> Iterator[bool]:
    """Join the processes that torchrun started; yields whether this one reports and saves."""
    from fairdial._validation import requested_processes

    if requested_processes() == 1:
        yield True
        return
    if not find(method).needs_torch:
        networks = ", ".join(known.name for known in methods() if known.needs_torch)
        raise InvalidInputError(
            "method", f"be a network ({networks}) under torchrun", given=repr(method)
        )
    require_torch()
    from fairdial.nn.distributed import process_group

    with process_group() as started:
        yield started.is_main
