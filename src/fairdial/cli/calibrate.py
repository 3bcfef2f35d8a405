"""``fairdial calibrate``: the dial anew, on fresh rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import FairdialWarning, InvalidInputError, SmallGroupError, warn


@click.command()
@options.MODEL
@click.argument("data", metavar="DATA", type=click.Path(exists=True, path_type=Path))
@click.option("--label", metavar="COLUMN", help="Column of labels. [default: that of training]")
@click.option(
    "--no-labels",
    is_flag=True,
    help="Find the dial without labels, also where DATA has them: for demographic parity.",
)
@options.SENSITIVE
@options.DROP_MISSING
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the calibrated model.")
@click.option("--in-place", is_flag=True, help="Replace the dial in MODEL itself.")
@click.option(
    "--scores",
    metavar="COLUMN",
    help="DATA is Parquet, a file or a folder, that holds this model's scores already in this "
    "column, as predict writes them in logit: it is streamed, and may be larger than memory.",
)
@click.option("--group", metavar="COLUMN", help="With --scores: column that tells the group.")
@options.OVERWRITE
@options.KEY
@options.reads
@options.TRUST
@options.tells
def calibrate(
    folder: Path,
    data: Path,
    label: str | None,
    no_labels: bool,
    sensitive: tuple[str, ...],
    drop_missing: bool,
    out: Path | None,
    in_place: bool,
    scores: str | None,
    group: str | None,
    overwrite: bool,
    key_file: Path | None,
    trust: tuple[str, ...],
    form: options.Form,
    show: Output,
) -> None:
    """Find the dial of MODEL anew on the rows of DATA, which it hasn't learned from.

    The scorer stays as it is. DATA must have rows of every group that the dial knows. Demographic
    parity needs no labels: without the label column, or with --no-labels, the dial is found, and
    accuracy is not told.
    A signed model needs --key-file, which signs the new one, too.

    \b
    fairdial calibrate model fresh.csv --in-place
    fairdial predict model fresh.csv --id sex --out scored.parquet
    fairdial calibrate model scored.parquet --scores logit --group sex --out model2
    """
    from fairdial.cli.figures import (
        caveat,
        frontier_parts,
        point_data,
        positions,
        shown_tolerances,
        warn_if_constant,
    )
    from fairdial.cli.models import check_place, open_model, refuse_unsigned
    from fairdial.cli.predict import MARGIN

    if (out is None) != in_place:
        got = "both" if in_place else "neither"
        raise InvalidInputError(f"Either --out or --in-place must be given, got {got}.")
    if (scores is None) != (group is None):
        raise InvalidInputError("--scores and --group must be given together, got one of them.")
    if label is not None and no_labels:
        raise InvalidInputError("--label or --no-labels must be left out, got both.")
    if scores is not None and form != options.Form():
        raise InvalidInputError("--separator, --encoding and --decimal are for CSV, not --scores.")
    if scores is not None and (sensitive or drop_missing):
        name = "--sensitive" if sensitive else "--drop-missing"
        raise InvalidInputError(f"{name} must be left out with --scores and --group, got it.")
    if scores == MARGIN:
        raise InvalidInputError(
            "--scores must be scores that don't depend on the dial, got 'margin', which does: "
            "predict writes them in the column 'logit'."
        )
    if out is not None:
        check_place(out, overwrite, key_file)
    refuse_unsigned(folder, key_file)
    model = open_model(folder, key_file, trust, calibrated=False)
    known = model.frontier_.groups if hasattr(model, "frontier_") else ()
    if scores is not None:
        if not hasattr(model, "calibrate_parquet"):
            raise InvalidInputError(
                f"--scores is for methods with thresholds, got {type(model).__name__}: give the "
                "rows themselves."
            )
        model.calibrate_parquet(data, score=scores, group=group, label=label)
        check_groups(known, model.frontier_.groups, "--group")
    else:
        _by_rows(model, data, label, no_labels, sensitive, drop_missing, form, known, show)
    target = folder if out is None else out
    saved = model.save(target, overwrite=overwrite or in_place, key=key_file)
    warn_of_fresh(known, model.frontier_.groups)
    frontier, resting = model.frontier_, model.tolerance
    points = positions(frontier, shown_tolerances(frontier, resting))
    warn_if_constant(points)
    told: dict[str, Any] = {
        "model": str(target),
        "hash": saved,
        "criterion": frontier.criterion.name,
        "tolerance": resting,
        "calibration_rows": int(frontier.rows.sum()),
        "labels": len(frontier.rows) == 2,
        "frontier": [point_data(point) for point in points],
    }
    show.result(
        told,
        f"On {told['calibration_rows']:,} fresh rows, {told['criterion'].replace('_', ' ')}:",
        *frontier_parts(points, resting),
        caveat(frontier, target),
    )
    show.note(f"The calibrated model is in {target}, its dial rests at {resting:g}.")


def _by_rows(
    model: Any,
    data: Path,
    label: str | None,
    no_labels: bool,
    sensitive: Sequence[str],
    drop_missing: bool,
    form: options.Form,
    known: Sequence[Hashable],
    show: Output,
) -> None:
    """Find the dial of a model on the rows of a file."""
    from fairdial.cli.assessing import take_truth
    from fairdial.cli.model_rows import group_meant, label_of, read_rows
    from fairdial.cli.tables import need_columns
    from fairdial.criteria import criterion

    name = label_of(model) if label is None else label
    used = None if no_labels else name
    rows = read_rows(model, data, used, show.note, form, sensitive, drop_missing)
    if label is not None:
        need_columns(rows.table, [label], "--label")
    y = rows.table[used] if used is not None and used in rows.table else None
    if y is None:
        refuse_without_labels(model, name, no_labels)
        why = "--no-labels" if no_labels else say_unlabelled(name)
        show.note(f"{why}: the dial is found without labels, and accuracy isn't known.")
    else:
        needed = criterion(model.criterion).needs_labels
        take_truth(model, y, "" if needed else ", --no-labels does without labels")
    found = rows.group_names
    check_groups(known, found, "DATA")
    try:
        model.calibrate(rows.X, y, sensitive_features=rows.apart)
    except SmallGroupError as error:
        fresh = [group for group in found if known and group not in known]
        raise SmallGroupError(f"{error}{group_meant(fresh, known)}") from error


def check_groups(known: Sequence[Hashable], found: Sequence[Hashable], argument: str) -> None:
    """Rows of every group that the dial knew; a dial that lacks one can't decide for its rows."""
    missing = [repr(name) for name in known if name not in found]
    if missing:
        raise InvalidInputError(
            f"{argument} must hold rows of every group that the dial knows, got none of "
            f"{', '.join(missing)} (but of {', '.join(map(repr, found))}): the model could no "
            "longer decide for them."
        )


def warn_of_fresh(known: Sequence[Hashable], found: Sequence[Hashable]) -> None:
    """Say which groups a dial knows from now on."""
    fresh = [repr(name) for name in found if known and name not in known]
    if fresh:
        warn(
            f"DATA has groups that the dial didn't know: {', '.join(fresh)}. From now on it does",
            FairdialWarning,
        )


def refuse_without_labels(model: Any, name: str | None, asked: bool = False) -> None:
    """Criteria that count rows by label can't do without."""
    from fairdial.criteria import criterion

    kind = criterion(model.criterion)
    if kind.needs_labels and asked:
        raise InvalidInputError(
            f"--no-labels is for demographic_parity, got a model for {kind.name}, which counts "
            "rows by label."
        )
    if kind.needs_labels:
        told = f"{name!r}, as in training" if name is not None else "--label"
        raise InvalidInputError(f"DATA must have labels for {kind.name}: in a column {told}.")


def say_unlabelled(name: str | None) -> str:
    """Why there are no labels, where none are needed."""
    if name is None:
        return "MODEL doesn't know the column of labels, which --label would name"
    return f"DATA has no labels (no column {name!r})"
