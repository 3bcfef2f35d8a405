"""Read tables: find columns, tell numbers from categories, and check their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from fairdial._arrays import Floats
from fairdial.errors import FairdialWarning, InvalidInputError, warn

if TYPE_CHECKING:  # deciding by plain models needs no scikit-learn
    from sklearn.base import BaseEstimator

Value = str | int | float | bool  # a category, or the name of a column
Table: TypeAlias = pd.DataFrame | NDArray[Any]
Column: TypeAlias = pd.Series | NDArray[Any]

FREQUENT = 10  # rows that make a category frequent
LARGEST = 1e100  # larger numbers count as infinite: their squares overflow
NUMBERS = {"integer", "floating", "mixed-integer-float", "boolean", "decimal"}  # in object columns
ADVICE = {
    "M": "Turn dates into numbers first, such as the year or the days since a fixed date.",
    "m": "Turn durations into numbers first, such as seconds.",
}


# ---- tables ------------------------------------------------------------------------------------


def as_table(X: Any, estimator: BaseEstimator) -> Table:
    """Return a DataFrame or a 2-D array with at least one row and one column."""
    if not isinstance(X, pd.DataFrame) and hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if not isinstance(X, pd.DataFrame):
        from sklearn.utils.validation import check_array

        if isinstance(X, list | tuple):
            X = np.array(X, dtype=object)  # numbers next to text stay numbers
        try:
            return np.asarray(
                check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator)
            )
        except (TypeError, ValueError) as error:
            raise InvalidInputError("X", "be a table", hint=str(error)) from error
    for size, what in zip(X.shape, ("row", "column"), strict=True):
        if size == 0:
            raise InvalidInputError("X", f"hold at least one {what}", given=f"0 {what}s")
    return X


def column_names(table: Table) -> list[Value]:
    """Return the names of the columns, or their positions where they have no names."""
    if not isinstance(table, pd.DataFrame):
        return list(range(table.shape[1]))
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()][0]
        raise InvalidInputError("X", "have different column names", given=f"{twice!r} twice")
    names = []
    for name in table.columns:
        try:
            names.append(to_builtin(name))
        except ValueError:
            allowed = "have text or numbers as column names"
            raise InvalidInputError("X", allowed, given=repr(name)) from None
    return names


def keep_names(estimator: BaseEstimator, names: Sequence[Value], *, named: bool) -> None:
    """Set scikit-learn's attributes of a fitted estimator: number and names of the columns."""
    estimator.n_features_in_ = len(names)
    if named and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def find_columns(
    table: Table, names: Sequence[Value], estimator: BaseEstimator, *, named: bool
) -> list[int]:
    """Return the positions of the training columns: by name if both have names."""
    if isinstance(table, pd.DataFrame) and named:
        lost = [repr(name) for name in names if name not in table.columns]
        if lost:
            raise InvalidInputError(
                "X",
                "have the columns of the training rows",
                given=f"none called {', '.join(lost)} among {', '.join(map(repr, table.columns))}",
            )
        where: list[int] = table.columns.get_indexer_for(list(names)).tolist()
        if len(where) > len(names):
            raise InvalidInputError(
                "X", "have different column names", given=table.columns.tolist()
            )
        return where
    if table.shape[1] != len(names):
        raise InvalidInputError(  # scikit-learn's checks look for its own sentence
            "X",
            "have the columns of the training rows",
            hint=f"X has {table.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{len(names)} features as input.",
        )
    if hasattr(estimator, "feature_names_in_"):
        warn(
            f"X does not have valid feature names, but {type(estimator).__name__} was fitted with "
            "feature names; its columns are matched by position.",
            FairdialWarning,
        )
    return list(range(len(names)))


def take_column(table: Table, i: int) -> Column:
    """Return the i-th column."""
    return table.iloc[:, i] if isinstance(table, pd.DataFrame) else table[:, i]


# ---- columns -----------------------------------------------------------------------------------


def refuse_empty(known: NDArray[Any], name: Value) -> None:
    """Raise if a column holds missing values only."""
    if len(known) == 0:
        raise InvalidInputError(
            "X",
            f"hold at least one value in column {name!r}",
            given="missing values only",
            hint="Drop the column.",
        )


def is_numeric(column: Column, name: Value) -> bool:
    """Return whether a training column holds numbers; raise for dates."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return False
    kind = getattr(dtype, "kind", "O")
    if kind in ADVICE or isinstance(dtype, pd.PeriodDtype):
        raise InvalidInputError(
            "X",
            f"hold numbers or categories in column {name!r}",
            given=dtype,
            hint=ADVICE.get(kind, ADVICE["M"]),
        )
    if kind == "O":
        return types.infer_dtype(column, skipna=True) in NUMBERS
    return bool(types.is_numeric_dtype(dtype))


def read_numbers(column: Column, name: Value) -> Floats:
    """Return a numeric column as float64, NaN where a value is missing."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if not is_numeric(column, name) and not np.all(pd.isna(column)):
        known = ~np.asarray(pd.isna(column))
        raise InvalidInputError(
            "X",
            f"hold numbers in column {name!r}, as the training rows did",
            given=f"values like {np.asarray(column, dtype=object)[known][0]!r}",
        )
    if getattr(column.dtype, "kind", "") == "c":
        raise InvalidInputError(
            "X", f"hold real numbers in column {name!r}", given="complex numbers"
        )
    if column.dtype == object or not isinstance(column.dtype, np.dtype):
        known = ~np.asarray(pd.isna(column))
        values = np.full(len(column), np.nan)
        try:
            values[known] = np.asarray(column[known], dtype=np.float64)
        except OverflowError:  # an integer that no float can hold
            values[known] = np.inf
    else:
        values = np.asarray(column, dtype=np.float64)
    beyond = np.abs(values) > LARGEST
    if beyond.any():
        row = int(np.argmax(beyond))
        where = ""
        if isinstance(column, pd.Series):  # the rows may be part of others: no position helps
            where = f" in the row with index {column.index[[row]].tolist()[0]!r}"
        raise InvalidInputError(
            "X",
            f"hold finite numbers of magnitude at most {LARGEST:g} in column {name!r}",
            given=f"{values[row]}{where}",
        )
    return values


def refuse_infinite(table: Table) -> None:
    """Raise if numbers of a table are infinite or too large for the encoders."""
    names = table.columns if isinstance(table, pd.DataFrame) else range(table.shape[1])
    for i, name in enumerate(names):
        column = take_column(table, i)
        if getattr(column.dtype, "kind", "O") in "fO" and is_numeric(column, name):
            read_numbers(column, name)


def read_categories(column: Column, name: Value) -> tuple[NDArray[np.integer[Any]], list[Value]]:
    """Return a code for each row, -1 where a value is missing, and the values of the codes."""
    allowed = f"hold text, finite numbers or booleans in column {name!r}"
    if isinstance(column, pd.Series) and isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        found = column.cat.categories.tolist()
    else:
        try:
            codes, uniques = pd.factorize(column)
        except TypeError as error:  # unhashable values
            raise InvalidInputError("X", allowed, given=error) from None
        found = uniques.tolist()
    values = []
    for value in found:
        try:
            values.append(to_builtin(value))
        except ValueError:
            hint = "Turn it into text or numbers first."
            raise InvalidInputError("X", allowed, given=repr(value), hint=hint) from None
    return codes, values


def to_builtin(value: Any) -> Value:
    """Return text, a finite number or a boolean as a built-in Python type."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{value!r} is neither text nor a finite number")
