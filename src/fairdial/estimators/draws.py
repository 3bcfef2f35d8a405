"""Draws for lotteries: a number in [0, 1) for each row that depends on its features only."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from fairdial._arrays import Floats
from fairdial.core.frontier import LOTTERY
from fairdial.core.lottery import hash_uniform


def draw_rows(X: Any, logits: Floats) -> Floats:
    """Return a draw for each row from a hash of its features, (n,).

    Equal rows have equal draws, in every process and on every platform: numbers are hashed as
    float64, everything else as text or as it is, and neither names of columns nor the index count.
    Rows that are no table (pictures, Datasets, sparse matrices) are drawn by their scores.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from fairdial.estimators.draws import draw_rows
    >>> table = pd.DataFrame({"age": [41, 30, 41], "job": ["nurse", "clerk", "nurse"]})
    >>> draws = draw_rows(table, np.zeros(3))
    >>> bool(draws[0] == draws[2]), bool(draws[0] == draws[1])
    (True, False)
    """
    torch = sys.modules.get("torch")  # X can only be torch's if torch has been imported
    if torch is not None and isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    if isinstance(X, (list, tuple)):
        X = np.asarray(X)
    if isinstance(X, np.ndarray):
        X = pd.DataFrame(X.reshape(len(X), -1)).infer_objects()
    if not isinstance(X, pd.DataFrame):
        return hash_uniform(np.asarray(logits, np.float64), LOTTERY)
    columns = {place: _plain(X.iloc[:, place]) for place in range(X.shape[1])}
    keys = pd.util.hash_pandas_object(pd.DataFrame(columns), index=False)
    return hash_uniform(keys.to_numpy(np.uint64), LOTTERY)


def _plain(column: pd.Series) -> Any:
    """Return a column in a form that doesn't depend on the other rows."""
    if is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype):
        numbers = column.to_numpy(np.float64, na_value=np.nan)
        return np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # one NaN, and no -0.0
    return column.astype(object).where(column.notna(), None).to_numpy(object)
