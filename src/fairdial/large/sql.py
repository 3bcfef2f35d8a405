"""Summaries by SQL: the query that counts the rows, and the counts read from its result."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial._arrays import Counts, Dtype, Mask, exact_weights
from fairdial._sql import DIALECTS
from fairdial._validation import check_choice, check_labels, check_scores, encode_groups
from fairdial.core.histograms import REACH, Grid
from fairdial.core.serialization import DTYPES
from fairdial.errors import InvalidInputError
from fairdial.large.files import BITS, SummaryData, check_bits, check_size
from fairdial.large.rows import Names

COUNTING = tuple(name for name in DIALECTS if name != "sqlite")  # it may have no floor()
COLUMNS = ("group", "bin", "rows", "dtype", "bits")
NULLS = {
    "bin": "a null or NaN score",
    "group": "no group",
    "stratum": "no control value",
    "label": "no label",
}


def write_query(
    table: str,
    *,
    score: str,
    group: str,
    label: str | None,
    weight: str | None,
    control: str | None,
    grid: Grid,
    dialect: str,
) -> str:
    """Return a query: one line per group, stratum, label and non-empty bin."""
    sql = DIALECTS[check_choice(dialect, "dialect", COUNTING)]
    raw = sql.column(score, "score")
    z = f"CAST({raw} AS {sql.double})"  # exact for single precision too
    inside = f"least(greatest({z}, -{REACH:.0f}), {REACH:.0f})"  # avoids overflow
    bin_ = f"least(floor({inside} * -{grid.scale:.0f}), {grid.half - 1}) + {grid.half}"
    dtype = "'float64'"
    if sql.type_of:
        single = f"WHEN '{sql.single}' THEN 'float32'"
        dtype = f"max(CASE {sql.type_of.format(x=raw)} {single} ELSE 'float64' END)"
    keys = {
        "group": sql.column(group, "group"),
        **({} if control is None else {"stratum": sql.column(control, "control")}),
        **({} if label is None else {"label": sql.column(label, "label")}),
        "bin": f"CASE WHEN NOT ({sql.is_missing(z)}) THEN CAST({bin_} AS BIGINT) END",
    }
    sums = {"rows": "count(*)", "dtype": dtype, "bits": f"max({grid.bits})"}
    if weight is not None:
        w = f"CAST({sql.column(weight, 'weight')} AS {sql.double})"
        nan = f"CAST('NaN' AS {sql.double})"
        sums["rows"] = f"CAST(sum(CASE WHEN {w} = 0 THEN 0 ELSE 1 END) AS BIGINT)"
        sums["weight"] = f"sum(CASE WHEN {w} >= 0 THEN {w} ELSE {nan} END)"
    columns = {**keys, **sums}.items()
    selected = ",\n  ".join(f"{text} AS {sql.column(name, name)}" for name, text in columns)
    places = ", ".join(str(i + 1) for i in range(len(keys)))
    return f"SELECT\n  {selected}\nFROM {table}\nGROUP BY {places}"


def read_counts(frame: pd.DataFrame) -> SummaryData:
    """Return a summary's data from the result of the query."""
    columns = list(frame.columns) if isinstance(frame, pd.DataFrame) else []
    if not set(COLUMNS) <= set(columns):
        raise InvalidInputError(
            "frame",
            f"be a DataFrame with the columns {', '.join(COLUMNS)}",
            given=columns or type(frame).__name__,
        )
    if "weight" in columns:
        frame = frame[_has_weight(frame)]
    n_labels = 1 + ("label" in columns)
    if frame.empty:  # no rows at all
        return SummaryData(
            np.zeros((0, n_labels, Grid(BITS).size), np.int64), (), DTYPES["float64"]
        )
    if frame["bits"].nunique(dropna=False) > 1:
        raise InvalidInputError("bits", "be the same in every line", given=frame["bits"].unique())
    grid = check_bits(frame["bits"].iloc[0])
    rows = _integers(frame, "rows", None)
    _refuse_nulls(frame, rows)
    bins = _integers(frame, "bin", grid.size)
    codes, names = encode_groups(frame["group"], "group")
    kinds = np.zeros(len(frame), np.intp)
    strata: Names = ()
    if "stratum" in columns:
        stratum, strata = encode_groups(frame["stratum"], "stratum")
        kinds += stratum.astype(np.intp) * n_labels
    if "label" in columns:
        kinds += check_labels(frame["label"], "label")
    n_kinds = max(1, len(strata)) * n_labels
    check_size(len(names) * n_kinds, grid)
    dtype = np.result_type(*map(_dtype, frame["dtype"].unique()))
    sums: Counts = rows
    n_rows = None
    if "weight" in columns:
        sums = exact_weights(frame["weight"].to_numpy(np.float64))
        n_rows = np.zeros((n_kinds, len(names)), np.int64)
        np.add.at(n_rows, (kinds, codes), rows)
    counts = np.zeros((len(names), n_kinds, grid.size), sums.dtype)
    np.add.at(counts, (codes, kinds, bins), sums)
    return SummaryData(counts, names, dtype, strata, n_rows)


def _has_weight(frame: pd.DataFrame) -> Mask:
    """Return which lines have rows with a positive weight; raise on bad weights."""
    weight = check_scores(frame["weight"], "weight", nan=False) if len(frame) else np.zeros(0)
    if not ((weight >= 0) & (weight < np.inf)).all():
        raise InvalidInputError(
            "weight",
            "be finite numbers from 0 up",
            given="negative, infinite, NaN or null ones",
        )
    if len(frame) and not weight.any():
        raise InvalidInputError("weight", "have a positive sum", given="0 in every row")
    return np.asarray(weight > 0)


def _dtype(name: str) -> Dtype:
    if name not in DTYPES:
        raise InvalidInputError("dtype", f"be one of {', '.join(DTYPES)}", given=repr(name))
    return DTYPES[name]


def _refuse_nulls(frame: pd.DataFrame, rows: NDArray[np.int64]) -> None:
    for column, lack in NULLS.items():
        if column in frame.columns and frame[column].isna().any():
            bad = int(rows[frame[column].isna().to_numpy()].sum())
            raise InvalidInputError(
                column, "have no nulls", given=f"{bad:,} of {rows.sum():,} rows with {lack}"
            )


def _integers(frame: pd.DataFrame, column: str, below: int | None) -> NDArray[np.int64]:
    values = check_scores(frame[column], column)
    if (values % 1 != 0).any() or values.min() < 0 or (below is not None and values.max() >= below):
        limit = "" if below is None else f" below {below}"
        raise InvalidInputError(column, f"be non-negative integers{limit}")
    return values.astype(np.int64)
