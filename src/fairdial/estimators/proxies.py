"""How well the features tell the groups apart, together and one by one.

A scorer that doesn't see the group may still see a column that gives it away. All figures are
balanced accuracies on rows that the rule wasn't learned from: the mean over the classes of the
share that is recognized, so guessing gets one over their number, however unequal they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from sklearn.metrics import recall_score

from fairdial._arrays import Codes, Floats, Indices
from fairdial.estimators.learners import boosting, limit_threads, text_columns
from fairdial.tables.encoder import is_wide
from fairdial.tables.piecewise import quantile_edges

BINS = 32  # of a column of numbers
MOST_ROWS = 10_000  # more hardly change the figures
TREES: Mapping[str, object] = {"max_iter": 30, "max_leaf_nodes": 15, "class_weight": "balanced"}


@dataclass(frozen=True)
class Proxies:
    """How well features tell classes apart, as balanced accuracies.

    Attributes
    ----------
    together : float
        Of gradient boosting on all features.
    columns : dict of str to float
        Of each column alone, the best first.
    chance : float
        Of guessing.
    """

    together: float
    columns: dict[str, float]
    chance: float


def find_proxies(X: pd.DataFrame, codes: Codes, seed: int = 0) -> Proxies | None:
    """Return how well the features of a table tell classes apart.

    Returns None for a table with very many columns of numbers, such as the features of a
    pretrained network.

    Parameters
    ----------
    X : DataFrame
        Numbers and text.
    codes : array of int
        The class of each row.
    seed : int
        Draws the rows, if there are very many.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from fairdial.estimators.proxies import find_proxies
    >>> codes = np.arange(400) % 2
    >>> X = pd.DataFrame({"noise": np.arange(400) // 2 % 7, "copy": np.array(["a", "b"])[codes]})
    >>> found = find_proxies(X, codes)
    >>> round(found.together, 2), round(found.columns["copy"], 2), found.chance
    (1.0, 1.0, 0.5)
    """
    if is_wide(X):
        return None
    together = _together(X, codes, _halves(codes, seed), seed)
    return Proxies(together, column_accuracies(X, codes, seed), 1 / (int(codes.max()) + 1))


def column_accuracies(X: pd.DataFrame, codes: Codes, seed: int = 0) -> dict[str, float]:
    """Return the balanced accuracy of each column alone, the best first."""
    halves = _halves(codes, seed)
    alone = {str(name): _cross_fitted(X[name], codes, halves) for name in X}
    return dict(sorted(alone.items(), key=lambda item: -item[1]))


def _halves(codes: Codes, seed: int) -> tuple[Indices, Indices]:
    """Return two halves of a sample of the rows, each with about half of every class."""
    rows = np.random.default_rng(seed).permutation(len(codes))[:MOST_ROWS]
    rows = rows[np.argsort(codes[rows], kind="stable")]
    return rows[::2], rows[1::2]


def _cross_fitted(column: pd.Series, codes: Codes, halves: tuple[Indices, Indices]) -> float:
    """Return the balanced accuracy of the likeliest class by value or by bin."""
    n_classes = int(codes.max()) + 1
    both = np.concatenate(halves)
    values = _bins(column.iloc[both])
    shares: list[Floats] = []  # of each value within each class: (B, C)
    for part in np.split(np.arange(len(both)), [len(halves[0])]):
        cells = values[part] * n_classes + codes[both[part]]
        counts = np.bincount(cells, minlength=n_classes * (values.max() + 1))
        table = counts.reshape(-1, n_classes).astype(np.float64)
        shares.append(table / np.maximum(table.sum(axis=0), 1))
    found = 0.0
    for learned, seen in (shares, shares[::-1]):
        found += float(seen[np.arange(len(seen)), learned.argmax(axis=1)].sum()) / n_classes / 2
    return found


def _bins(column: pd.Series) -> Codes:
    """Return the number of each row's value, or of its bin."""
    if is_numeric_dtype(column.dtype):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        known = np.isfinite(numbers)
        if not known.any():
            return np.zeros(len(column), np.intp)
        edges = quantile_edges(numbers[known], BINS)
        return np.where(known, np.searchsorted(edges, numbers, side="right") + 1, 0)
    return np.asarray(pd.factorize(column)[0] + 1)


def _together(X: pd.DataFrame, codes: Codes, halves: tuple[Indices, Indices], seed: int) -> float:
    train, look = (X.iloc[rows] for rows in halves)
    known = train.columns[train.notna().any()]  # trees can't be grown on an empty column
    if not len(known) or len(np.unique(codes[halves[0]])) < 2:
        return 1 / (int(codes.max()) + 1)
    model: Any = boosting(text_columns(train[known]), seed, trees=TREES)
    with limit_threads(len(train), trees=True):
        model.fit(train[known], codes[halves[0]])
        guessed = model.predict(look[known])
    return float(recall_score(codes[halves[1]], guessed, average="macro", zero_division=0.0))
