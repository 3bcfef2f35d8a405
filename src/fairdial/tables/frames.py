"""Tables of other libraries, and pandas' other types, as DataFrames of numpy's types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fairdial.errors import InvalidInputError

CONVERTED = ("polars", "pyarrow")
ELSEWHERE = ("dask", "duckdb", "_duckdb", "pyspark", "ray")


def as_pandas(X: Any, argument: str = "X") -> Any:
    """Return a table of polars or pyarrow as a DataFrame, and nullable columns in numpy's types.

    Missing numbers become NaN. Anything that isn't a table stays as it is. Raise for tables that
    aren't in memory.

    Examples
    --------
    >>> import polars
    >>> from fairdial.tables.frames import as_pandas
    >>> as_pandas(polars.DataFrame({"age": [41, None]}))["age"].tolist()
    [41.0, nan]
    """
    if isinstance(X, pd.DataFrame):
        return _numpy_types(X)
    if isinstance(X, (np.ndarray, pd.Series)):
        return X
    library = type(X).__module__.partition(".")[0]
    if library in ELSEWHERE or (library == "polars" and hasattr(X, "collect")):
        raise InvalidInputError(
            argument,
            "be a table in memory",
            given=f"{type(X).__name__} of {library.strip('_')}",
            hint="fairdial.large.decide, calibrate and evaluate work where the rows are.",
        )
    if library in CONVERTED and hasattr(X, "to_pandas"):
        found = X.to_pandas()
        return _numpy_types(found) if isinstance(found, pd.DataFrame) else found
    return X


def _numpy_types(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose nullable and Arrow-backed numbers, truth values and texts are numpy's.

    Texts get the type that pandas gives them by default.
    """
    if not any(_is_nullable(dtype) for dtype in table.dtypes):
        return table
    columns = [
        _numpy_column(table.iloc[:, place]) if _is_nullable(dtype) else table.iloc[:, place]
        for place, dtype in enumerate(table.dtypes)
    ]
    return pd.concat(columns, axis=1).set_axis(table.columns, axis=1)


def _is_nullable(dtype: Any) -> bool:
    """Return whether missing values of a type are ``pd.NA``."""
    return isinstance(dtype, pd.api.extensions.ExtensionDtype) and dtype.na_value is pd.NA


def _numpy_column(column: pd.Series) -> pd.Series:
    missing, kind = bool(column.isna().any()), column.dtype.kind
    if kind in "iuf" and pd.api.types.is_numeric_dtype(column.dtype):
        if missing or kind == "f":
            return (
                column.astype("float64")
                if not missing
                else pd.Series(
                    column.to_numpy(np.float64, na_value=np.nan), column.index, name=column.name
                )
            )
        return column.astype("uint64" if kind == "u" else "int64")
    if pd.api.types.is_bool_dtype(column.dtype):
        return (
            column.astype(object).where(column.notna(), np.nan)
            if missing
            else (column.astype("bool"))
        )
    if pd.api.types.is_string_dtype(column.dtype):
        texts = column.astype(object).where(column.notna(), np.nan)
        default = pd.Series(["text"]).dtype
        return texts.astype(default) if isinstance(default, pd.StringDtype) else texts
    return column
