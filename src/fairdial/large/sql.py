"""Summaries by SQL: the query that counts the rows, and the counts read from its result."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd

from fairdial._arrays import Counts, Dtype
from fairdial._validation import check_labels, check_scores, encode_groups
from fairdial.core.histograms import REACH, Grid
from fairdial.core.serialization import DTYPES
from fairdial.errors import InvalidInputError
from fairdial.large.files import BITS, check_bits, check_size

COLUMNS = ("group", "bin", "rows", "dtype", "bits")
NULLS = {"bin": "a null or NaN score", "group": "no group", "label": "no label"}


def write_query(table: str, *, score: str, group: str, label: str | None, grid: Grid) -> str:
    """Return a query for DuckDB: one line per group, label and non-empty bin."""
    z = f"CAST({_quoted(score)} AS DOUBLE)"  # exact for single precision too
    inside = f"least(greatest({z}, -{REACH:.0f}), {REACH:.0f})"  # avoids overflow
    bin_ = f"least(floor({inside} * -{grid.scale:.0f}), {grid.half - 1}) + {grid.half}"
    columns = {
        "group": _quoted(group),
        **({} if label is None else {"label": _quoted(label)}),
        "bin": f"CASE WHEN NOT isnan({z}) THEN CAST({bin_} AS BIGINT) END",
        "dtype": f"CASE typeof({_quoted(score)}) WHEN 'FLOAT' THEN 'float32' ELSE 'float64' END",
        "bits": str(grid.bits),
    }
    selected = ",\n  ".join(f'{text} AS "{name}"' for name, text in columns.items())
    keys = ", ".join(str(i + 1) for i in range(len(columns)))
    return f'SELECT\n  {selected},\n  count(*) AS "rows"\nFROM {table}\nGROUP BY {keys}'


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def read_counts(frame: pd.DataFrame) -> tuple[Counts, tuple[Hashable, ...], Dtype]:
    """Return counts, groups and dtype from the result of the query."""
    columns = list(frame.columns) if isinstance(frame, pd.DataFrame) else []
    if not set(COLUMNS) <= set(columns):
        raise InvalidInputError(
            "frame",
            f"be a DataFrame with the columns {', '.join(COLUMNS)}",
            given=columns or type(frame).__name__,
        )
    if frame.empty:  # no rows at all
        n_labels = 1 + ("label" in columns)
        return np.zeros((0, n_labels, Grid(BITS).size), np.int64), (), DTYPES["float64"]
    if frame["bits"].nunique(dropna=False) > 1:
        raise InvalidInputError("bits", "be the same in every line", given=frame["bits"].unique())
    grid = check_bits(frame["bits"].iloc[0])
    rows = _integers(frame, "rows", None)
    _refuse_nulls(frame, rows)
    bins = _integers(frame, "bin", grid.size)
    codes, names = encode_groups(frame["group"], "group")
    labels, n_labels = np.zeros(len(frame), np.intp), 1
    if "label" in columns:
        labels, n_labels = check_labels(frame["label"], "label").astype(np.intp), 2
    check_size(len(names) * n_labels, grid)
    counts = np.zeros((len(names), n_labels, grid.size), np.int64)
    np.add.at(counts, (codes, labels, bins), rows)
    return counts, names, np.result_type(*map(_dtype, frame["dtype"].unique()))


def _dtype(name: str) -> Dtype:
    if name not in DTYPES:
        raise InvalidInputError("dtype", f"be one of {', '.join(DTYPES)}", given=repr(name))
    return DTYPES[name]


def _refuse_nulls(frame: pd.DataFrame, rows: Counts) -> None:
    for column, lack in NULLS.items():
        if column in frame.columns and frame[column].isna().any():
            bad = int(rows[frame[column].isna().to_numpy()].sum())
            raise InvalidInputError(
                column, "have no nulls", given=f"{bad:,} of {rows.sum():,} rows with {lack}"
            )


def _integers(frame: pd.DataFrame, column: str, below: int | None) -> Counts:
    values = check_scores(frame[column], column)
    if (values % 1 != 0).any() or values.min() < 0 or (below is not None and values.max() >= below):
        limit = "" if below is None else f" below {below}"
        raise InvalidInputError(column, f"be non-negative integers{limit}")
    return values.astype(np.int64)
