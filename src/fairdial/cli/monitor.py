"""``fairdial monitor``: watch the gap in a log of decisions, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output

if TYPE_CHECKING:
    import pandas as pd

    from fairdial._arrays import Codes, Mask


@click.command()
@click.argument("data", metavar="LOG", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--sensitive", multiple=True, required=True, help="Group column; repeatable.")
@click.option("--decision", required=True, help="Column of the decisions.")
@click.option("--positive", help="Value of a positive decision. [default: the greater of two]")
@click.option(
    "--tolerance", type=options.Fraction(0, 1), required=True, help="Largest allowed gap."
)
@click.option(
    "--alpha",
    type=options.Fraction(0, 1, min_open=True, max_open=True),
    default=0.01,
    show_default=True,
    help="Probability of ever raising a false alarm.",
)
@click.option("--label", help="Label column: watch only rows with the label --eligible.")
@click.option("--eligible", help="Label of the rows to watch, for equal opportunity and the like.")
@click.option(
    "--time",
    "time_column",
    help="Column of numbers or dates to order the rows by. [default: as they are]",
)
@options.reading_csv
@options.reporting
def monitor(
    data: Path,
    sensitive: tuple[str, ...],
    decision: str,
    positive: str | None,
    tolerance: float,
    alpha: float,
    label: str | None,
    eligible: str | None,
    time_column: str | None,
    csv_format: options.CsvFormat,
    show: Output,
) -> None:
    """Watch the gap between groups in LOG, a CSV or Parquet file of decisions in order of time.

    The evidence may be looked at after every row: if the gap is always within the tolerance, the
    probability that it ever raises an alarm is at most --alpha. Labels aren't needed, except to
    watch rates of rows with one label. Exit code 1 if there is an alarm.
    """
    import click as terminal
    import numpy as np

    from fairdial._validation import encode_groups
    from fairdial.cli.reading import read_table, require_columns, split_names
    from fairdial.core.anytime import Watch

    rows = read_table(data, csv_format, groups=sensitive).rows.reset_index(drop=True)
    names = split_names(sensitive, rows.columns)
    wanted = [*names, decision]
    require_columns(rows, names, "sensitive")
    require_columns(rows, [decision], "decision")
    if time_column is not None:
        require_columns(rows, [time_column], "time")
        rows = _in_order(rows, time_column)
    if label is not None:
        rows = _keep_label(rows, label, eligible)
    known = rows[wanted].notna().all(axis=1)
    if not known.all():
        without = f"{int((~known).sum()):,} of {len(rows):,} rows without a group or a decision"
        show.note(f"{without} are left out.")
    rows = rows[known]
    columns = rows[names]
    codes, groups = encode_groups(columns if len(names) > 1 else columns.iloc[:, 0], "sensitive")
    value = _positive_value(rows[decision], positive)
    if positive is None:
        show.note(f"--positive was not given: {value!r} is taken for a positive decision.")
    selected = np.asarray(rows[decision].astype(str) == value, np.bool_)
    watch = Watch(len(groups), tolerance, alpha).update(codes, selected)
    found = _describe(watch, codes, selected, [str(group) for group in groups])
    found |= {"positive": value, "alarm_row": None, "alarm_time": None}
    if watch.alarm is not None:
        place = rows.index[watch.alarm - 1]
        found["alarm_row"] = int(place) + 1
        if time_column is not None:
            found["alarm_time"] = str(rows[time_column][place])
    show.result(found, _sentence(found), *_tables(found))
    if watch.alarm is not None:
        terminal.get_current_context().exit(1)


def _in_order(rows: pd.DataFrame, time_column: str) -> pd.DataFrame:
    """Return the rows in the order of a column of numbers or dates."""
    import warnings

    import pandas as pd

    from fairdial.errors import InvalidInputError

    times = rows[time_column]
    if not pd.api.types.is_numeric_dtype(times):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # dates without a common format
                times = pd.to_datetime(times.astype(object))
        except (ValueError, TypeError) as error:
            raise InvalidInputError(
                "time",
                "hold numbers or dates, which say the order of the rows",
                given=f"{time_column!r} ({error})",
            ) from error
    if times.isna().any():
        raise InvalidInputError(
            "time", "have a value in every row", given=f"{int(times.isna().sum())} missing"
        )
    return rows.loc[times.sort_values(kind="stable").index]


def _keep_label(rows: pd.DataFrame, label: str, eligible: str | None) -> pd.DataFrame:
    from fairdial.cli.reading import require_columns
    from fairdial.errors import InvalidInputError

    require_columns(rows, [label], "label")
    if eligible is None:
        raise InvalidInputError("eligible", "be given with `label`")
    kept = rows[rows[label].astype(str) == eligible]
    if kept.empty:
        raise InvalidInputError("eligible", f"be a value of {label!r}", given=eligible)
    return kept


def _positive_value(column: pd.Series, positive: str | None) -> str:
    """Return the value of a positive decision, as text."""
    from fairdial.errors import InvalidInputError

    values = [str(value) for value in sorted(column.unique().tolist(), key=str)]
    if positive is None and len(values) != 2:
        raise InvalidInputError(
            "decision", "have two values, or be used with `positive`", given=f"{len(values)} values"
        )
    if positive is not None and positive not in values:
        raise InvalidInputError("positive", f"be a value of {column.name!r}", given=positive)
    return values[1] if positive is None else positive


def _describe(watch: Any, codes: Codes, selected: Mask, groups: list[str]) -> dict[str, Any]:
    import numpy as np

    from fairdial.core.anytime import gap_sequence, rate_sequence

    rows = np.bincount(codes, minlength=len(groups))
    chosen = np.bincount(codes[selected], minlength=len(groups))
    level = 1.0 - watch.alpha
    low, high = gap_sequence(chosen.tolist(), rows.tolist(), level)
    ends = rate_sequence(chosen, rows, watch.alpha / len(groups))
    rates = chosen / rows
    return {
        "rows": watch.rows,
        "tolerance": watch.tolerance,
        "alpha": watch.alpha,
        "alarm": watch.alarm,
        "evidence": watch.evidence,
        "largest_evidence": watch.largest,
        "needed": 1.0 / watch.alpha,
        "gap": float(rates.max() - rates.min()),
        "gap_interval": [low, high],
        "groups": [
            {"group": g, "rows": int(n), "rate": float(r), "low": float(lo), "high": float(hi)}
            for g, n, r, lo, hi in zip(groups, rows, rates, *ends, strict=True)
        ],
        "pairs": [
            {"higher": groups[a], "lower": groups[b], "evidence": watch.evidence_of(a, b)}
            for a in range(len(groups))
            for b in range(len(groups))
            if a != b
        ],
    }


def _sentence(found: dict[str, Any]) -> str:
    low, high = found["gap_interval"]
    text = (
        f"{found['rows']:,} rows: gap {found['gap']:.4f} (confidence sequence {low:.4f} to "
        f"{high:.4f}), tolerance {found['tolerance']:g}. Evidence, at most so far: "
        f"{found['largest_evidence']:.3g}; an alarm needs {found['needed']:g}."
    )
    if found["alarm"] is None:
        return f"{text} No alarm."
    when = "" if found["alarm_time"] is None else f" ({found['alarm_time']})"
    row = f"ALARM at row {found['alarm_row']:,} of the file{when}"
    if found["alarm"] != found["alarm_row"]:
        row += f", the {found['alarm']:,}th that is watched"
    return f"{text} {row}: the gap is above the tolerance."


def _tables(found: dict[str, Any]) -> list[Any]:
    from fairdial.cli.output import table

    groups = [
        [g["group"], f"{g['rows']:,}", f"{g['rate']:.4f}", f"{g['low']:.4f} to {g['high']:.4f}"]
        for g in found["groups"]
    ]
    worst = sorted(found["pairs"], key=lambda pair: -pair["evidence"])[:10]
    pairs = [[p["higher"], p["lower"], f"{p['evidence']:.3g}"] for p in worst]
    return [
        table(["group", "rows", f"rate of {found['positive']}", "confidence sequence"], groups),
        table(["higher rate", "lower rate", "fortune now"], pairs),
    ]
