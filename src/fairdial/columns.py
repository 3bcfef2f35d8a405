"""Reading tables: what their columns are called, where they stand and what they hold.

What every encoder of tables shares. Messages name the column, what was got and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types
from sklearn.utils.validation import check_array

from fairdial.errors import FairdialWarning, InvalidInputError, warn

Floats = NDArray[np.float64]
Value = str | int | float | bool  # what a category or the name of a column can be
Table: TypeAlias = pd.DataFrame | NDArray[Any]

LARGEST = 1e100  # numbers beyond are taken for infinite: their squares overflow
NUMBERS = {"integer", "floating", "mixed-integer-float", "boolean", "decimal"}  # in object columns
ADVICE = {
    "M": "Turn dates into numbers first, such as the year or the days since a fixed date.",
    "m": "Turn durations into numbers first, such as seconds.",
}


def as_table(X: Any, estimator: Any) -> Table:
    """A DataFrame, or an array with two dimensions; at least one row and one column."""
    if not isinstance(X, pd.DataFrame) and hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if not isinstance(X, pd.DataFrame):
        if isinstance(X, list | tuple):
            X = np.array(X, dtype=object)  # numbers beside texts stay numbers
        try:
            return np.asarray(
                check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator)
            )
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"`X` must be a table: {error}") from error
    for size, what in zip(X.shape, ("row", "column"), strict=True):
        if size == 0:
            raise InvalidInputError(f"`X` must hold at least one {what}, got 0 {what}s.")
    return X


def column_names(table: Table) -> list[Value]:
    """The columns' names, all different; their places where the table has none."""
    if not isinstance(table, pd.DataFrame):
        return list(range(table.shape[1]))
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()][0]
        raise InvalidInputError(f"`X` must name every column differently, got {twice!r} twice.")
    return [_column_name(name) for name in table.columns]


def keep_names(estimator: Any, names: Sequence[Value], *, named: bool) -> None:
    """Set what scikit-learn asks of a fitted estimator: how many columns, and their names."""
    estimator.n_features_in_ = len(names)
    if named and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def find_columns(table: Table, names: Sequence[Value], estimator: Any, *, named: bool) -> list[int]:
    """Where the table has the columns of fit: by name if both have names, or by position."""
    if isinstance(table, pd.DataFrame) and named:
        lost = [repr(name) for name in names if name not in table.columns]
        if lost:
            raise InvalidInputError(
                f"`X` must have the columns of the training rows, got none called "
                f"{', '.join(lost)}; there are {', '.join(map(repr, table.columns))}."
            )
        where: list[int] = table.columns.get_indexer_for(list(names)).tolist()
        if len(where) > len(names):
            raise InvalidInputError(
                f"`X` must name every column differently, got {table.columns.tolist()}."
            )
        return where
    if table.shape[1] != len(names):
        raise InvalidInputError(
            f"X has {table.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{len(names)} features as input."
        )
    if hasattr(estimator, "feature_names_in_"):
        warn(
            f"X does not have valid feature names, but {type(estimator).__name__} was fitted with "
            "feature names; its columns are taken by position.",
            FairdialWarning,
        )
    return list(range(len(names)))


def take_column(table: Table, i: int) -> Any:
    """The i-th column."""
    return table.iloc[:, i] if isinstance(table, pd.DataFrame) else table[:, i]


def refuse_empty(known: NDArray[Any], name: Value) -> None:
    """A column in which every value is missing says nothing."""
    if len(known) == 0:
        raise InvalidInputError(
            f"`X`: column {name!r} must hold at least one value, got missing values only. Drop "
            "the column."
        )


def is_numeric(column: Any, name: Value) -> bool:
    """Whether the training rows of a column hold numbers; dates are refused."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return False
    kind = getattr(dtype, "kind", "O")
    if kind in ADVICE or isinstance(dtype, pd.PeriodDtype):
        raise InvalidInputError(
            f"`X`: column {name!r} must hold numbers or categories, got {dtype}. "
            + ADVICE.get(kind, ADVICE["M"])
        )
    if kind == "O":
        return types.infer_dtype(column, skipna=True) in NUMBERS
    return bool(types.is_numeric_dtype(dtype))


def read_numbers(column: Any, name: Value) -> Floats:
    """A numeric column as float64, NaN where a value is missing."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if not is_numeric(column, name) and not np.all(pd.isna(column)):
        raise InvalidInputError(
            f"`X`: column {name!r} must hold numbers, as the training rows did, got values like "
            f"{_first(column)!r}."
        )
    if getattr(column.dtype, "kind", "") == "c":
        raise InvalidInputError(f"`X`: column {name!r} must hold real numbers, got complex ones.")
    if column.dtype == object or not isinstance(column.dtype, np.dtype):
        known = ~np.asarray(pd.isna(column))
        values = np.full(len(column), np.nan)
        try:
            values[known] = np.asarray(column[known], dtype=np.float64)
        except OverflowError:  # a whole number that no float can hold
            values[known] = np.inf
    else:
        values = np.asarray(column, dtype=np.float64)
    beyond = np.abs(values) > LARGEST
    if beyond.any():
        row = int(np.argmax(beyond))
        raise InvalidInputError(
            f"`X`: column {name!r} must hold finite numbers of at most {LARGEST:g} in size, got "
            f"{values[row]}{_say_row(column, row)}."
        )
    return values


def refuse_infinite(table: Table) -> None:
    """Raise for numbers of a table that encoders take for infinite."""
    names = table.columns if isinstance(table, pd.DataFrame) else range(table.shape[1])
    for i, name in enumerate(names):
        column = take_column(table, i)
        if getattr(column.dtype, "kind", "O") in "fO" and is_numeric(column, name):
            read_numbers(column, name)


def read_categories(column: Any, name: Value) -> tuple[NDArray[np.integer[Any]], list[Value]]:
    """Codes of the rows, -1 where a value is missing, and the values that they stand for."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        found = column.cat.categories.tolist()
    else:
        try:
            codes, uniques = pd.factorize(column)
        except TypeError as error:  # values without a hash
            raise InvalidInputError(
                f"`X`: column {name!r} must hold texts, numbers or booleans: {error}."
            ) from None
        found = uniques.tolist()
    values = []
    for value in found:
        try:
            values.append(plain(value))
        except ValueError:
            raise InvalidInputError(
                f"`X`: column {name!r} must hold texts, finite numbers or booleans, got "
                f"{value!r}. Turn it into texts or numbers first."
            ) from None
    return codes, values


def _say_row(column: Any, place: int) -> str:
    """Which row it is, where its index tells: rows may be a part of others, so places don't."""
    if not isinstance(column, pd.Series):
        return ""
    return f" in the row with index {column.index[[place]].tolist()[0]!r}"


def _first(column: Any) -> Any:
    """The first value that is not missing."""
    return np.asarray(column, dtype=object)[~np.asarray(pd.isna(column))][0]


def plain(value: Any) -> Value:
    """A text, a finite number or a boolean as Python's own type."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{value!r} is neither a text nor a finite number")


def _column_name(name: Any) -> Value:
    try:
        return plain(name)
    except ValueError:
        raise InvalidInputError(
            f"`X` must name its columns by texts or numbers, got {name!r}."
        ) from None
