"""``fairdial calibrate``: the dial anew, on fresh rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError


@click.command()
@options.MODEL
@click.argument("data", metavar="DATA", type=click.Path(exists=True, path_type=Path))
@click.option("--label", metavar="COLUMN", help="Column of labels. [default: that of training]")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the calibrated model.")
@click.option("--in-place", is_flag=True, help="Replace the dial in MODEL itself.")
@click.option(
    "--scores",
    metavar="COLUMN",
    help="DATA is Parquet, a file or a folder, that holds scores already in this column, as "
    "log-odds: it is streamed, and may be larger than memory.",
)
@click.option("--group", metavar="COLUMN", help="With --scores: column that tells the group.")
@options.OVERWRITE
@options.KEY
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
    show: Output,
) -> None:
    """Find the dial of MODEL anew on the rows of DATA, which it hasn't learned from.

    The scorer stays as it is. Demographic parity needs no labels: without the label column the
    dial is found, and accuracy is not told.

    \b
    fairdial calibrate model fresh.csv --in-place
    fairdial calibrate model scored.parquet --scores logit --group sex --label income --out model2
    """
    from fairdial.cli.figures import frontier_parts, point_data, positions, shown_tolerances
    from fairdial.cli.models import check_place, open_model, refuse_unsigned
    from fairdial.cli.rows import inputs, label_of, read_rows
    from fairdial.cli.tables import need_columns

    if (out is None) != in_place:
        raise InvalidInputError("Either --out or --in-place must be given, got both or neither.")
    if (scores is None) != (group is None):
        raise InvalidInputError("--scores and --group must be given together, got one of them.")
    if out is not None:
        check_place(out, overwrite, key_file)
    else:
        refuse_unsigned(folder, key_file)
    model = open_model(folder, key_file, trust, calibrated=False)
    if scores is not None:
        model.calibrate_parquet(data, score=scores, group=group, label=label)
    else:
        name = label_of(model) if label is None else label
        table = read_rows(model, data, name)
        if label is not None:
            need_columns(table, [label], "--label")
        labelled = name is not None and name in table
        if not labelled:
            refuse_without_labels(model, name)
            show.note("DATA has no labels: the dial is found without, and accuracy isn't known.")
        model.calibrate(inputs(model, table), table[name] if labelled else None)
    target = folder if out is None else out
    found = model.save(target, overwrite=overwrite or in_place, key=key_file)
    frontier, resting = model.frontier_, model.tolerance
    points = positions(frontier, shown_tolerances(frontier, resting))
    told: dict[str, Any] = {
        "model": str(target),
        "hash": found,
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
    )
    show.note(f"The calibrated model is in {target}, its dial rests at {resting:g}.")


def refuse_without_labels(model: Any, name: str | None) -> None:
    """Criteria that count rows by label can't do without."""
    from fairdial.criteria import criterion

    kind = criterion(model.criterion)
    if kind.needs_labels:
        told = f"{name!r}, as in training" if name is not None else "--label"
        raise InvalidInputError(f"DATA must have labels for {kind.name}: in a column {told}.")
