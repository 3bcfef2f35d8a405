"""Rows of whatever kind, as the estimators need them: groups, parts, held-out sets."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing

from fairdial._validation import check_same_length, did_you_mean, encode_groups, match_groups
from fairdial.errors import InvalidInputError

Codes = NDArray[np.integer[Any]]
Rows = NDArray[np.intp]


@dataclass
class FitRows:
    """The rows of a fit, checked, with those that are held out for calibration."""

    X: Any
    labels: NDArray[Any]
    positive: NDArray[np.bool_]
    codes: Codes
    names: tuple[Hashable, ...]
    train: Rows
    held: Rows

    @property
    def cells(self) -> Rows:
        """(n,) group and label of each row as one number."""
        return self.codes.astype(np.intp) * 2 + self.positive


def hold_out(cells: Rows, share: float, rng: np.random.RandomState) -> Rows:
    """A share of every group and label, rounded up; one row of each stays.

    Rows are drawn one by one: copies of a row (``clusters`` of a data set) may be parted here.
    """
    held = [np.zeros(0, np.intp)]
    for cell in np.unique(cells):
        places = rng.permutation(np.flatnonzero(cells == cell))
        held.append(places[: min(math.ceil(share * len(places)), len(places) - 1)])
    return np.sort(np.concatenate(held))


def take_rows(X: Any, places: Rows) -> Any:
    """Rows at these positions, of whatever holds rows."""
    torch = sys.modules.get("torch")  # X can only be torch's if it has been imported
    if torch is not None and isinstance(X, torch.utils.data.Dataset):
        return torch.utils.data.Subset(X, places.tolist())
    if torch is not None and isinstance(X, torch.Tensor):
        return X[torch.as_tensor(places, device=X.device)]
    return _safe_indexing(X, places)


def split_column(X: Any, column: Any) -> tuple[Any, Any]:
    """Features without the sensitive column(s), and that column (or a frame of them)."""
    many = isinstance(column, (list, tuple))
    names = list(column) if many else [column]
    if isinstance(X, pd.DataFrame):
        places = [name for name in names if name in X.columns]
        if len(places) == len(names):
            return X.drop(columns=names), X[names] if many else X[column]
        if not all(isinstance(name, (int, np.integer)) for name in names):
            missing = [name for name in names if name not in X.columns]
            raise InvalidInputError(
                f"`sensitive_column` must be among the columns {list(X.columns)}, got {missing}."
                + did_you_mean(missing[0], X.columns)
            )
    width = X.shape[1] if getattr(X, "ndim", 1) == 2 else np.asarray(X).shape[-1]
    if not all(isinstance(n, (int, np.integer)) and -width <= n < width for n in names):
        raise InvalidInputError(
            f"`sensitive_column` must be a column index below {width}, got {column!r}."
        )
    if isinstance(X, pd.DataFrame):
        chosen = X.iloc[:, names] if many else X.iloc[:, column]
        return X.drop(columns=X.columns[names]), chosen
    array: Any = X if hasattr(X, "shape") else np.asarray(X)
    keep = np.delete(np.arange(width), names)
    if issparse(array):
        array = array.tocsr()
        chosen = array[:, names].toarray()
        return array[:, keep], chosen if many else chosen[:, 0]
    return array[:, keep], array[:, names] if many else array[:, column]


def encode_rows(
    sensitive: Any, n_rows: int, known: tuple[Hashable, ...] | None
) -> tuple[Codes, tuple[Hashable, ...]]:
    """Codes and names of calibration rows; where training fixed the groups, they must be those."""
    if sensitive is None:
        return np.zeros(n_rows, np.intp), ("all",)
    if known is not None:
        codes, names = match_groups(sensitive, known, "sensitive_features"), known
    else:
        codes, names = encode_groups(sensitive, "sensitive_features")
    check_same_length(range(n_rows), codes, ("X", "sensitive_features"))
    return codes, names
