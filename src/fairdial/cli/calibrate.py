"""``fairdial calibrate``: recalibrate a model on new rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.cli.problem_options import CONTROL, WEIGHTS, ProblemOptions, stating_problem
from fairdial.errors import FairdialWarning, InvalidInputError, SmallGroupError, warn

if TYPE_CHECKING:
    from fairdial.estimators.base import DialClassifier


@click.command()
@options.MODEL
@click.argument("data", metavar="DATA", type=click.Path(exists=True, path_type=Path))
@options.LABEL
@click.option(
    "--no-labels",
    is_flag=True,
    help="Calibrate without labels, even if DATA has them; for demographic parity.",
)
@options.SENSITIVE
@stating_problem
@WEIGHTS
@CONTROL
@options.DROP_MISSING
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the calibrated model.")
@click.option("--in-place", is_flag=True, help="Replace MODEL itself.")
@click.option(
    "--scores",
    metavar="COLUMN",
    help="Column with this model's scores, which predict writes as logit. DATA is then a Parquet "
    "file or a folder of them, which is streamed and may be larger than memory.",
)
@click.option("--group", metavar="COLUMN", help="Group column, with --scores.")
@click.option(
    "--exact",
    multiple=True,
    type=options.Fraction(0, 1),
    metavar="TOLERANCE",
    help="Tolerance with an exact answer where DATA is streamed, which then reads it twice; "
    "repeatable.",
)
@options.OVERWRITE
@options.KEY
@options.reading_csv
@options.TRUST
@options.reporting
def calibrate(
    folder: Path,
    data: Path,
    label: str | None,
    no_labels: bool,
    sensitive: tuple[str, ...],
    problem: ProblemOptions,
    weights: str | None,
    control: tuple[str, ...],
    drop_missing: bool,
    out: Path | None,
    in_place: bool,
    scores: str | None,
    group: str | None,
    exact: tuple[float, ...],
    overwrite: bool,
    key_file: Path | None,
    trust: tuple[str, ...],
    csv_format: options.CsvFormat,
    show: Output,
) -> None:
    """Recalibrate MODEL on the rows of DATA, which it wasn't trained on.

    The scorer stays as it is; criterion, objective and budget stay too, unless options name others.
    --weights and --control aren't remembered from training. DATA must have rows of every group that
    the model knows. Demographic parity needs no labels: without a label column, or with
    --no-labels, the model is calibrated, but its accuracy is unknown. A signed model needs
    --key-file, which signs the new one too. A folder of Parquet files is read batch by batch, so it
    may be larger than memory; thresholds are then within the tolerance, and optimal at those
    tolerances that --exact names.

    \b
    fairdial calibrate model fresh.csv --in-place
    fairdial calibrate model fresh.csv --criterion equalized_odds --cost-fn 5 --out model2
    fairdial predict model fresh.csv --id sex --out scored.parquet
    fairdial calibrate model scored.parquet --scores logit --group sex --out model2
    """
    from fairdial.cli.model_rows import known_groups
    from fairdial.cli.models import check_model_path, check_stays_signed, open_model
    from fairdial.cli.points import json_number, summarize, warn_if_useless
    from fairdial.cli.problems import describe_problem, describe_rows, problem_data

    if (out is None) != in_place:
        given = "both" if in_place else "neither"
        raise InvalidInputError("out", "be given, or `in_place`, but not both", given=given)
    if label is not None and no_labels:
        raise InvalidInputError("label", "be left out with `no_labels`")
    if (scores is None) != (group is None):
        raise InvalidInputError("scores", "be given together with `group`", given="only one")
    if exact and scores is None and not data.is_dir():
        raise InvalidInputError("exact", "be used with `scores` or a folder", given=f"{data}")
    if scores is not None:
        _check_scores_options(scores, sensitive, drop_missing, csv_format)
    if out is not None:
        check_model_path(out, overwrite, key_file)
    check_stays_signed(folder, key_file)
    model = open_model(folder, key_file, trust, calibrated=False)
    known = known_groups(model)
    _warn_without_strata(model, control)
    problem.apply(model)
    declared = problem.declared_tolerance()
    if declared is not None:
        model.tolerance = declared
    columns = Columns(label, weights, control)
    if scores is not None and group is not None:
        _calibrate_scores(model, data, scores, group, columns, known, exact)
    elif data.is_dir():
        if drop_missing:
            raise InvalidInputError("drop_missing", "be used with a file", given="a folder")
        _calibrate_folder(
            model, data, columns, no_labels, sensitive, csv_format, known, exact, show
        )
    else:
        _calibrate_rows(
            model, data, columns, no_labels, sensitive, drop_missing, csv_format, known, show
        )
    target = folder if out is None else out
    saved = model.save(target, overwrite=overwrite or in_place, key=key_file)
    new = [repr(name) for name in model.frontier_.groups if known and name not in known]
    if new:
        warn(f"DATA has groups that the model didn't know: {', '.join(new)}", FairdialWarning)
    frontier, default = model.frontier_, model.default_tolerance
    lines, parts = summarize(frontier, default, target)
    warn_if_useless(frontier, default)
    show.result(
        {
            "model": str(target),
            "hash": saved,
            **problem_data(frontier),
            "tolerance": default,
            "calibration_rows": json_number(frontier.counts.sum()),
            "labels": frontier.has_labels,
            "frontier": lines,
        },
        f"On {describe_rows(frontier, 'new rows')}, {describe_problem(frontier)}:",
        *parts,
    )
    show.note(f"Saved in {target}; the default tolerance is {default:g}.")


class Columns(NamedTuple):
    """Columns of DATA beside features and groups."""

    label: str | None
    weights: str | None
    control: tuple[str, ...]


def _warn_without_strata(model: DialClassifier, control: Sequence[str]) -> None:
    """Warn if the model held its demands within strata, and these rows have none."""
    known = hasattr(model, "frontier_") and model.frontier_.classes is None
    strata = model.frontier_.criterion.n_strata if known else 1
    if strata > 1 and not control:
        warn(
            f"MODEL met its demands within each of {strata} strata; without `control`, they hold "
            "over all rows only",
            FairdialWarning,
        )


def _check_scores_options(
    scores: str, sensitive: Sequence[str], drop_missing: bool, csv_format: options.CsvFormat
) -> None:
    """Refuse options that don't go with --scores."""
    from fairdial.cli.predict import LOGIT, MARGIN

    for_rows = {"sensitive": sensitive, "drop_missing": drop_missing, **csv_format._asdict()}
    for name, value in for_rows.items():
        if value:
            raise InvalidInputError(name, "be left out with `scores`")
    if scores == MARGIN:
        raise InvalidInputError(
            "scores",
            "be a column that doesn't depend on the tolerance",
            given=f"{MARGIN!r}, which does",
            hint=f"predict writes the scores in {LOGIT!r}.",
        )


def _calibrate_scores(
    model: DialClassifier,
    data: Path,
    scores: str,
    group: str,
    given: Columns,
    known: Sequence[Hashable],
    exact: Sequence[float],
) -> None:
    from fairdial.estimators.thresholds import ThresholdClassifier

    if not isinstance(model, ThresholdClassifier):
        raise InvalidInputError(
            "scores",
            "be used with a method that has thresholds",
            given=type(model).__name__,
            hint="Give the rows themselves.",
        )
    if len(given.control) > 1:
        raise InvalidInputError("control", "be one column with `scores`", given=len(given.control))
    control = given.control[0] if given.control else None
    model.calibrate_parquet(
        data,
        score=scores,
        group=group,
        label=given.label,
        weight=given.weights,
        control=control,
        tolerances=list(exact) or None,
    )
    _check_all_groups(known, model.frontier_.groups, "group")


def _calibrate_folder(
    model: DialClassifier,
    data: Path,
    given: Columns,
    no_labels: bool,
    sensitive: Sequence[str],
    csv_format: options.CsvFormat,
    known: Sequence[Hashable],
    exact: Sequence[float],
    show: Output,
) -> None:
    from fairdial.cli.folders import check_model, find_label, group_names, open_folder
    from fairdial.cli.reading import split_names
    from fairdial.estimators.thresholds import ThresholdClassifier
    from fairdial.large.apply import calibrate as calibrate_table

    if not isinstance(model, ThresholdClassifier):
        raise InvalidInputError(
            "data", "be one file for a method without thresholds", given=type(model).__name__
        )
    check_model(model, calibrating=True)
    folder = open_folder(data, csv_format, show)
    calibrate_table(
        folder,
        model,
        label=find_label(model, folder, given.label, no_labels=no_labels),
        group=group_names(model, folder, sensitive),
        weight=given.weights,
        control=split_names(given.control, folder.columns) or None,
        tolerances=list(exact) or None,
    )
    _check_all_groups(known, model.frontier_.groups, "data")


def _calibrate_rows(
    model: DialClassifier,
    data: Path,
    given: Columns,
    no_labels: bool,
    sensitive: Sequence[str],
    drop_missing: bool,
    csv_format: options.CsvFormat,
    known: Sequence[Hashable],
    show: Output,
) -> None:
    from fairdial.cli.model_rows import read_labeled_rows, read_row_options, suggest_group

    rows, y = read_labeled_rows(
        model,
        data,
        csv_format,
        label=given.label,
        no_labels=no_labels,
        sensitive=sensitive,
        drop_missing=drop_missing,
        note=show.note,
    )
    options_of_rows = read_row_options(rows.table, given.weights, given.control)
    found = rows.group_codes[1]
    _check_all_groups(known, found, "data")
    try:
        model.calibrate(rows.X, y, sensitive_features=rows.sensitive_features, **options_of_rows)
    except SmallGroupError as error:
        suggestion = suggest_group((name for name in found if known and name not in known), known)
        if suggestion:
            error.add_note(suggestion)
        raise


def _check_all_groups(known: Sequence[Hashable], found: Sequence[Hashable], argument: str) -> None:
    """Refuse rows that lack a group of the model: it could no longer decide on that group."""
    missing = [repr(name) for name in known if name not in found]
    if missing:
        raise InvalidInputError(
            argument,
            "hold rows of every group that the model knows",
            given=f"none of {', '.join(missing)} (but of {', '.join(map(repr, found))})",
            hint="The model could no longer decide on them.",
        )
