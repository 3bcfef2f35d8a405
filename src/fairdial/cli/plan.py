"""``fairdial plan``: how many calibration rows a certified tolerance needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from rich.table import Table

    from fairdial.core.planning import CalibrationPlan


@click.command()
@options.DATA
@click.option("--sensitive", multiple=True, required=True, help="Group column; repeatable.")
@click.option(
    "--tolerance", type=options.Fraction(0, 1, min_open=True), required=True, help="Largest gap."
)
@click.option(
    "--confidence",
    type=options.Fraction(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence of the certificate.",
)
@click.option("--label", help="Label column, for criteria that need labels, and to guess --rate.")
@click.option("--positive", help="Value of the positive class. [default: the greater of two]")
@click.option(
    "--criterion",
    "criteria",
    multiple=True,
    metavar="NAME[=TOLERANCE]",
    help="What will be equalized, as in train. [default: demographic_parity]",
)
@click.option(
    "--rate",
    type=options.Fraction(0, 1),
    help="About what the groups' rates will be; matters for more than two groups or several rates. "
    "[default: the share of positive labels for demographic parity, else 0.5]",
)
@options.reading_csv
@options.reporting
def plan(
    data: Path,
    sensitive: tuple[str, ...],
    tolerance: float,
    confidence: float,
    label: str | None,
    positive: str | None,
    criteria: tuple[str, ...],
    rate: float | None,
    csv_format: options.CsvFormat,
    show: Output,
) -> None:
    """Plan how many rows of DATA to hold out so that a tolerance is likely to be certified.

    Nothing is trained. The answer is the share for `train --calibration`, and how many eligible
    calibration rows are enough if every group has as many. It is cautious: the certificate itself
    often reaches a smaller tolerance.
    """
    from fairdial.cli.problem_options import join_criteria
    from fairdial.cli.reading import read_table, require_columns, split_names
    from fairdial.core.planning import plan_calibration

    rows = read_table(data, csv_format, groups=sensitive).rows
    names = split_names(sensitive, rows.columns)
    require_columns(rows, names, "sensitive")
    y = None
    if label is not None:
        require_columns(rows, [label], "label")
        y = _is_positive(rows[label], positive)
    known = rows[names].notna().all(axis=1)
    if not known.all():
        show.note(f"{int((~known).sum()):,} of {len(rows):,} rows without a group are left out.")
    columns = rows.loc[known, names]
    found = plan_calibration(
        columns if len(names) > 1 else columns.iloc[:, 0],
        None if y is None else y[known.to_numpy()],
        tolerance=tolerance,
        confidence=confidence,
        criterion=join_criteria(list(criteria) or ["demographic_parity"], ratio=False),
        rate=rate,
    )
    show.result(_as_json(found), _sentence(found), _table(found))


def _is_positive(column: pd.Series, positive: str | None) -> np.ndarray[Any, Any]:
    """Return 1 where a label is the positive one, and 0 elsewhere."""
    import numpy as np

    from fairdial.errors import InvalidInputError

    if positive is not None:
        found = column.astype(str) == positive
        if not found.any():
            raise InvalidInputError("positive", f"be a value of {column.name!r}", given=positive)
        return np.asarray(found, np.int64)
    values = sorted(column.dropna().unique().tolist(), key=str)
    if len(values) != 2:
        raise InvalidInputError(
            "label", "have two values, or be used with `positive`", given=f"{len(values)} values"
        )
    return np.asarray(column == values[1], np.int64)


def _as_json(found: CalibrationPlan) -> dict[str, object]:
    from fairdial.cli.points import json_value

    columns = zip(found.groups, found.rows.tolist(), found.held_out.tolist(), strict=True)
    return {
        "tolerance": found.tolerance,
        "confidence": found.confidence,
        "share": found.share,
        "needed": found.needed,
        "smallest_tolerance": found.smallest,
        "groups": [
            {"group": json_value(name), "rows": rows, "held_out": held}
            for name, rows, held in columns
        ],
    }


def _sentence(found: CalibrationPlan) -> str:
    what = f"{found.tolerance:g} with confidence {found.confidence:g}"
    if found.share is not None:
        return (
            f"To certify {what}, hold out {found.share:.0%} of the rows: "
            f"fairdial train ... --calibration {found.share:g}. If every group has about "
            f"{found.needed:,} eligible calibration rows, that is enough, too."
        )
    if found.needed is None:
        return f"A billion eligible calibration rows of each group are unlikely to certify {what}."
    scarce = ", ".join(map(str, found.scarce)) or "no group"
    return (
        f"These rows are unlikely to certify {what}; half of them are likely to certify "
        f"{found.smallest:.3f}. About {found.needed:,} eligible calibration rows of each group are "
        f"enough, which {scarce} can't have. Add rows of these groups, merge groups, or choose a "
        "larger tolerance."
    )


def _table(found: CalibrationPlan) -> Table:
    from fairdial.cli.output import table

    columns = zip(found.groups, found.rows.tolist(), found.held_out.tolist(), strict=True)
    lines = [[str(name), f"{rows:,}", f"{held:,}"] for name, rows, held in columns]
    return table(["group", "eligible rows", f"held out ({found.share or 0.5:.0%})"], lines)
