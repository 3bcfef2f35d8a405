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
    parity needs no labels: without the label column the dial is found, and accuracy is not told.
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
    from fairdial.cli.rows import group_meant, groups_of, inputs, label_of, read_rows
    from fairdial.cli.tables import need_columns

    if (out is None) != in_place:
        got = "both" if in_place else "neither"
        raise InvalidInputError(f"Either --out or --in-place must be given, got {got}.")
    if (scores is None) != (group is None):
        raise InvalidInputError("--scores and --group must be given together, got one of them.")
    if scores is not None and form != options.Form():
        raise InvalidInputError("--separator, --encoding and --decimal are for CSV, not --scores.")
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
        name = label_of(model) if label is None else label
        table = read_rows(model, data, name, form=form)
        if label is not None:
            need_columns(table, [label], "--label")
        labelled = name is not None and name in table
        if not labelled:
            refuse_without_labels(model, name)
            show.note("DATA has no labels: the dial is found without, and accuracy isn't known.")
        found = groups_of(model, table)
        check_groups(known, found, "DATA")
        try:
            model.calibrate(inputs(model, table), table[name] if labelled else None)
        except SmallGroupError as error:
            fresh = [group for group in found if known and group not in known]
            raise SmallGroupError(f"{error}{group_meant(fresh, known)}") from error
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


def refuse_without_labels(model: Any, name: str | None) -> None:
    """Criteria that count rows by label can't do without."""
    from fairdial.criteria import criterion

    kind = criterion(model.criterion)
    if kind.needs_labels:
        told = f"{name!r}, as in training" if name is not None else "--label"
        raise InvalidInputError(f"DATA must have labels for {kind.name}: in a column {told}.")
