"""Shares of positive labels by category, for columns with very many categories."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.model_selection import KFold

from fairdial._arrays import Codes, Features, Floats
from fairdial._validation import check_count
from fairdial.errors import InvalidInputError
from fairdial.tables.columns import FREQUENT, Value, read_categories, take_column
from fairdial.tables.inputs import Code
from fairdial.tables.plan import MOST_INDICATORS

PRIOR_ROWS = 10.0  # rows with the overall share that are added to each category


class MeanEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode columns with many categories by the share of positive labels in each category.

    A column has many categories if more than 64 of its values are frequent, which means that at
    least ten training rows have them; other columns are left out. Each share is drawn towards that
    of all rows, as if ten more rows with the latter belonged to the category. All other values have
    the share of all rows, so a saved model doesn't contain values that only a few rows have.

    :meth:`fit_transform` cross-fits: the share that a training row gets comes from rows of other
    folds, never from its own label. With more than two labels no column is encoded.

    Parameters
    ----------
    cv : int
        Number of folds.
    random_state : int or None
        Decides which rows are in which fold.

    Attributes
    ----------
    blocks_ : tuple of Code
        What encodes each column that has many categories.
    places_ : tuple of int
        Positions of these columns.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from fairdial.tables.means import MeanEncoder
    >>> X = pd.DataFrame({"job": [f"job {i % 100}" for i in range(4_000)], "shift": "night"})
    >>> y = (np.arange(4_000) % 100 < 30).astype(int)  # all labels of a job are equal
    >>> encoder = MeanEncoder().fit(X, y)
    >>> new = pd.DataFrame({"job": ["job 3", "job 80", "job 200"], "shift": "night"})
    >>> encoder.transform(new).tolist()
    [[0.86], [0.06], [0.3]]
    """

    blocks_: tuple[Code, ...]
    places_: tuple[int, ...]

    def __init__(self, *, cv: int = 5, random_state: int | None = None) -> None:
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the shares from all rows."""
        self._learn(pd.DataFrame(X), y)
        return self

    def fit_transform(self, X: Any, y: Any) -> Features:
        """Learn the shares, and return those that each row gets from other rows, (n, d)."""
        check_count(self.cv, "cv", least=2)
        labels, columns = self._learn(pd.DataFrame(X), y)
        out = np.empty((len(labels), len(columns)))
        if not columns:
            return out
        if len(labels) < self.cv:
            allowed = f"be at most the number of rows, {len(labels)}"
            raise InvalidInputError("cv", allowed, given=self.cv)
        folds = KFold(self.cv, shuffle=True, random_state=self.random_state)
        for rest, fold in folds.split(labels):
            for i, (codes, n_values) in enumerate(columns):
                shares, _ = _shares(codes[rest], labels[rest], n_values)
                out[fold, i] = shares[codes[fold]]
        return out

    def transform(self, X: Any) -> Features:
        """Return the shares of all training rows in the rows' categories, (n, d)."""
        table = pd.DataFrame(X)
        out = np.empty((len(table), len(self.blocks_)))
        for i, (block, place) in enumerate(zip(self.blocks_, self.places_, strict=True)):
            block.write_column(take_column(table, place), out[:, i : i + 1])
        return out

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the names of the features."""
        return np.array([f"{block.name}=mean" for block in self.blocks_], dtype=object)

    def _learn(self, table: pd.DataFrame, y: Any) -> tuple[Floats, list[tuple[Codes, int]]]:
        """Learn; return labels 0 and 1, and the codes and number of values of each column.

        Without labels, or with more than two, no column has means.
        """
        given = np.zeros(len(table)) if y is None else np.asarray(y)
        classes, places = np.unique(given, return_inverse=True)
        labels = places.astype(np.float64)
        blocks, found, columns = [], [], []
        for i, name in enumerate(table.columns if y is not None and len(classes) <= 2 else ()):
            try:
                codes, values = read_categories(table.iloc[:, i], name)
            except InvalidInputError:  # dates, for instance
                continue
            codes = codes.astype(np.intp)
            shares, frequent = _shares(codes, labels, len(values))
            if frequent[:-1].sum() > MOST_INDICATORS:
                blocks.append(_as_block(name, values, shares, frequent, float(labels.mean())))
                columns.append((codes, len(values)))
                found.append(i)
        self.blocks_, self.places_ = tuple(blocks), tuple(found)
        return labels, columns


def _shares(codes: Codes, labels: Floats, n_values: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the share of each value and of missing ones, which are last, and which are frequent.

    Values that aren't frequent have the share of all rows.
    """
    share = float(labels.mean())
    slots = codes % (n_values + 1)  # -1, a missing value, becomes the last slot
    rows = np.bincount(slots, minlength=n_values + 1)
    positive = np.bincount(slots, weights=labels, minlength=n_values + 1)
    frequent = rows >= FREQUENT
    shares = (positive + PRIOR_ROWS * share) / (rows + PRIOR_ROWS)
    return np.where(frequent, shares, share), frequent


def _as_block(
    name: Value, values: list[Value], shares: Floats, frequent: NDArray[np.bool_], share: float
) -> Code:
    """Return the shares of frequent values as a table, with the overall share for all others."""
    pairs = [
        (value, code)
        for value, code, kept in zip(values, shares[:-1].tolist(), frequent[:-1], strict=True)
        if kept
    ]
    kept, codes = zip(*pairs, strict=True)
    return Code(name, kept, codes, missing=float(shares[-1]), unknown=share)
