"""Values of users' columns as a model was trained on them: numbers, text, groups and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from fairdial.errors import InvalidInputError

KINDS = {  # of numpy's types; train stores truth values as whole numbers
    "b": "truth values (true, false)",
    "i": "numbers or truth values (true, false)",
}


def row_name(index: int) -> str:
    """Name a row as people count: from 1, without the header."""
    return f"data row {index + 1:,}"


def as_feature(column: pd.Series) -> pd.Series:
    """Return a column as numbers in a type of numpy's, or as text."""
    if types.is_bool_dtype(column.dtype) or types.is_numeric_dtype(column.dtype):
        return _finite(_numpy_numbers(column))
    if types.is_datetime64_any_dtype(column.dtype) or types.is_timedelta64_dtype(column.dtype):
        raise InvalidInputError(
            "data",
            f"hold numbers or text in {column.name!r}",
            given="dates or durations",
            hint=("Convert them to numbers.", f"Or leave the column out: `drop={column.name}`."),
        )
    kind = types.infer_dtype(column, skipna=True)
    if kind in ("boolean", "decimal", "integer", "floating", "mixed-integer-float"):
        return _finite(column.astype("float64"))
    return as_text(column)


def _numpy_numbers(column: pd.Series) -> pd.Series:
    kind = column.dtype.kind
    if isinstance(column.dtype, pd.api.extensions.ExtensionDtype):
        whole = kind != "f" and not column.isna().any()
        return column.astype("int64" if whole else "float64")
    return column.astype("int64") if kind == "b" else column


def _finite(column: pd.Series) -> pd.Series:
    infinite = np.isinf(column.to_numpy())
    if infinite.any():
        raise InvalidInputError(
            "data",
            f"hold finite numbers in {column.name!r}",
            given=f"an infinite one in {row_name(column.index[int(np.argmax(infinite))])}",
        )
    return column


def as_text(column: pd.Series) -> pd.Series:
    """Return values as text, with None where one is missing."""
    texts = column.astype(object)
    if types.infer_dtype(texts, skipna=True) != "string":
        texts = texts.map(str, na_action="ignore").astype(object)
    return texts.where(column.notna(), None)


def as_numbers(column: pd.Series, kind: str = "numbers") -> pd.Series:
    """Return values as numbers; the error names the first that is none, and the kind it needs."""
    try:
        return _finite(pd.to_numeric(as_feature(column)).astype("float64"))
    except InvalidInputError:
        raise
    except (ValueError, TypeError):
        numbers = pd.to_numeric(as_text(column), errors="coerce")
        wrong = column[numbers.isna() & column.notna()]
        raise InvalidInputError(
            "data",
            f"hold {kind} in {column.name!r}, as in training",
            given=f"{wrong.iloc[0]!r} in {row_name(wrong.index[0])}",
        ) from None


def is_text(dtype: np.dtype[np.generic] | pd.CategoricalDtype | None) -> bool:
    """Return whether a column was text in training."""
    categories = getattr(dtype, "categories", None)
    if categories is not None:
        return all(isinstance(value, str) for value in categories)
    return dtype is not None and getattr(dtype, "kind", "O") not in "biuf"


def as_trained(
    column: pd.Series, dtype: np.dtype[np.generic] | pd.CategoricalDtype | None
) -> pd.Series:
    """Return a column in the type that it had in training."""
    if dtype is None:
        return as_feature(column)
    values = as_text(column) if is_text(dtype) else column
    if hasattr(dtype, "categories"):
        return values.where(values.isin(dtype.categories)).astype(dtype)
    if isinstance(dtype, pd.StringDtype):
        return values.astype(dtype)
    return values if is_text(dtype) else as_numbers(column, KINDS.get(dtype.kind, "numbers"))


def fill_groups(table: pd.DataFrame, name: str | None) -> dict[str, pd.Series]:
    """Return group columns as text with ``name`` where a value is missing; nothing for None.

    They become text because a column can't hold both numbers and a name.
    """
    if name is None:
        return {}
    filled = {}
    for column in table:
        values = [
            name if missing else as_read(value)
            for value, missing in zip(table[column].tolist(), table[column].isna(), strict=True)
        ]
        filled[str(column)] = pd.Series(values, table.index, dtype=object, name=column)
    return filled


def merge_groups(columns: pd.DataFrame, merged: Mapping[str, Any] | None) -> dict[str, pd.Series]:
    """Return group columns as text in which merged groups have one name; nothing for None."""
    if merged is None:
        return {}
    texts = columns.map(as_read, na_action="ignore").astype(object)
    small = {tuple(values) for values in merged["values"]}
    inside = np.array([row in small for row in texts.itertuples(index=False, name=None)])
    return {str(name): texts[name].mask(inside, merged["name"]) for name in texts}


def as_read(value: object) -> str:
    """Return a value as text; pandas reads whole numbers as floats where one is missing."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def merge_labels(column: pd.Series, positive: str, others: Iterable[str]) -> pd.Series:
    """Return a label in which all other values that are known have the negative class's name."""
    texts = as_text(column)
    return texts.mask(texts.isin(list(others)), negative_name(positive))


def negative_name(positive: str) -> str:
    """Return the name of the negative class where it combines several labels."""
    return f"not {positive}"
