"""Draws for lotteries: a number in [0, 1) for each row that depends on its features only."""

from __future__ import annotations

import sys
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from fairdial._arrays import Floats
from fairdial.core.frontier import LOTTERY
from fairdial.core.lottery import hash_uniform


def draw_rows(X: Any, logits: Floats) -> Floats:
    """Return a draw for each row from a hash of its features, (n,).

    Equal rows have equal draws, in every process and on every platform: numbers are hashed as
    float64 and everything else as text, and neither names of columns nor the index count.
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
    keys = [_hash(X.iloc[:, place]) for place in range(X.shape[1])]
    return hash_uniform(np.column_stack(keys), LOTTERY)


def _hash(column: pd.Series) -> NDArray[np.uint64]:
    """Return a hash of each cell, which doesn't depend on the column's type or the other cells."""
    if is_numeric_dtype(column.dtype):  # also booleans
        return _hash_numbers(column.to_numpy(np.float64, na_value=np.nan))
    cells = column.to_numpy(object, na_value=np.nan)
    numbers = np.array([isinstance(cell, (Real, np.bool_)) for cell in cells], np.bool_)
    keys = pd.util.hash_array(np.array([str(cell) for cell in cells], object))
    keys[numbers] = _hash_numbers(cells[numbers].astype(np.float64))
    return np.asarray(keys, np.uint64)


def _hash_numbers(numbers: Floats) -> NDArray[np.uint64]:
    same = np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # one NaN, and no -0.0
    return np.asarray(pd.util.hash_array(same), np.uint64)
