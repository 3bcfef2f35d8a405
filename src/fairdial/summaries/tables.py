"""Summaries as tables of counts: the query that makes one, and the counts read from it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from fairdial._validation import check_labels, check_scores, encode_groups
from fairdial.errors import InvalidInputError
from fairdial.histograms import REACH, Grid
from fairdial.ladders import Counts
from fairdial.summaries.limits import BITS, DTYPES, check_bits, check_size

NEEDED = ("group", "bin", "rows", "dtype", "bits")
NULLS = {"bin": "scores that are null or NaN", "group": "no group", "label": "no label"}


def write_query(table: str, *, score: str, group: str, label: str | None, grid: Grid) -> str:
    """A query for DuckDB: one line for each group, label and bin that holds rows."""
    z = f"CAST({_quoted(score)} AS DOUBLE)"  # exact: single precision, too
    inside = f"least(greatest({z}, -{REACH:.0f}), {REACH:.0f})"  # so that nothing overflows
    place = f"least(floor({inside} * -{grid.scale:.0f}), {grid.half - 1}) + {grid.half}"
    columns = {
        "group": _quoted(group),
        **({} if label is None else {"label": _quoted(label)}),
        "bin": f"CASE WHEN NOT isnan({z}) THEN CAST({place} AS BIGINT) END",
        "dtype": f"CASE typeof({_quoted(score)}) WHEN 'FLOAT' THEN 'float32' ELSE 'float64' END",
        "bits": str(grid.bits),
    }
    asked = ",\n  ".join(f'{text} AS "{name}"' for name, text in columns.items())
    keys = ", ".join(str(place + 1) for place in range(len(columns)))
    return f'SELECT\n  {asked},\n  count(*) AS "rows"\nFROM {table}\nGROUP BY {keys}'


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def read_counts(frame: pd.DataFrame) -> tuple[Counts, tuple[Hashable, ...], np.dtype[Any]]:
    """Counts, groups and dtype from the lines of a table."""
    columns = list(frame.columns) if isinstance(frame, pd.DataFrame) else []
    if not set(NEEDED) <= set(columns):
        raise InvalidInputError(
            f"`frame` must be a DataFrame with the columns {', '.join(NEEDED)}, got "
            f"{columns or type(frame).__name__}."
        )
    if frame.empty:  # no rows at all
        n_labels = 1 + ("label" in columns)
        return np.zeros((0, n_labels, Grid(BITS).size), np.int64), (), DTYPES["float64"]
    if frame["bits"].nunique(dropna=False) > 1:
        raise InvalidInputError(f"`bits` must be one number, got {frame['bits'].unique()}.")
    grid = check_bits(frame["bits"].iloc[0])
    rows = _whole_numbers(frame, "rows", None)
    _refuse_nulls(frame, rows)
    bins = _whole_numbers(frame, "bin", grid.size)
    codes, names = encode_groups(frame["group"], "group")
    labels, n_labels = np.zeros(len(frame), np.intp), 1
    if "label" in columns:
        labels, n_labels = check_labels(frame["label"], "label").astype(np.intp), 2
    check_size(len(names) * n_labels, grid)
    counts = np.zeros((len(names), n_labels, grid.size), np.int64)
    np.add.at(counts, (codes, labels, bins), rows)
    return counts, names, np.result_type(*map(_precision, frame["dtype"].unique()))


def _precision(name: Any) -> np.dtype[Any]:
    if name not in DTYPES:
        raise InvalidInputError(f"`dtype` must be one of {', '.join(DTYPES)}, got {name!r}.")
    return DTYPES[name]


def _refuse_nulls(frame: pd.DataFrame, rows: Counts) -> None:
    for column, what in NULLS.items():
        if column in frame.columns and frame[column].isna().any():
            bad = int(rows[frame[column].isna().to_numpy()].sum())
            raise InvalidInputError(
                f"`{column}` must be there for every row, got {bad:,} of {rows.sum():,} rows with "
                f"{what}."
            )


def _whole_numbers(frame: pd.DataFrame, column: str, below: int | None) -> Counts:
    values = check_scores(frame[column], column)
    if (values % 1 != 0).any() or values.min() < 0 or (below is not None and values.max() >= below):
        limit = "" if below is None else f" below {below}"
        raise InvalidInputError(f"`{column}` must hold whole numbers from 0{limit}, got others.")
    return values.astype(np.int64)
