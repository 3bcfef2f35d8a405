"""Codes of frequent categories, for trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.preprocessing import OrdinalEncoder

from fairdial._arrays import Codes, Floats
from fairdial.tables.columns import FREQUENT

MANY = 1_000  # rows, from which finding the distinct values pays


class FrequentEncoder(OrdinalEncoder):  # type: ignore[misc]
    """Encode categories as integers, as scikit-learn does, but keep only frequent ones.

    A category is frequent if at least ten training rows have it. Other values are treated as
    unknown, even those of training rows: a saved model doesn't contain values that only a few rows
    have, such as names and addresses. Trees lose almost nothing, as those of scikit-learn never
    split on a category with fewer rows. ``min_frequency`` has no effect.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from fairdial.tables.frequent import FrequentEncoder
    >>> X = pd.DataFrame({"job": ["cook"] * 12 + ["nurse"] * 10 + ["Ann Smith"]})
    >>> encoder = FrequentEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    >>> encoder.fit_transform(X)[[0, 12, 22], 0]
    array([ 0.,  1., nan])
    >>> encoder.categories_[0].tolist()
    ['cook', 'nurse']
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the frequent values of every column."""
        table = pd.DataFrame(X)
        columns = [_frequent_values(table.iloc[:, i]) for i in range(table.shape[1])]
        super().fit(_pad(columns, table.columns))
        return self

    def transform(self, X: Any) -> Floats:
        """Return the codes of rows, (n, d)."""
        table = pd.DataFrame(X)
        if len(table) < MANY:
            return np.asarray(super().transform(table.astype(object)))
        # scikit-learn looks up every row's value in Python: pass each value once
        columns = [_distinct(table.iloc[:, i]) for i in range(table.shape[1])]
        codes = np.asarray(super().transform(_pad([v for _, v in columns], table.columns)))
        return np.column_stack([codes[rows, i] for i, (rows, _) in enumerate(columns)])

    def code_tables(self) -> list[dict[Any, float]]:
        """Return the code of each known value, by column."""
        names = getattr(self, "feature_names_in_", None)
        codes = np.asarray(super().transform(_pad(self.categories_, names)))
        return [
            dict(zip(values.tolist(), codes[:, i].tolist(), strict=False))
            for i, values in enumerate(self.categories_)
        ]


def _pad(columns: Sequence[NDArray[np.object_]], names: Any) -> pd.DataFrame:
    """Return columns as a table, the shorter ones filled up with their first value."""
    table = np.empty((max(map(len, columns)), len(columns)), dtype=object)
    for i, values in enumerate(columns):
        table[: len(values), i], table[len(values) :, i] = values, values[0]
    return pd.DataFrame(table, columns=names)


def _distinct(column: pd.Series) -> tuple[Codes, NDArray[np.object_]]:
    """Return the distinct values of a column, with None for missing ones, and each row's place."""
    codes, found = pd.factorize(column)
    values = np.asarray(found, dtype=object)
    missing = codes < 0
    if not missing.any():
        return codes, values
    return np.where(missing, len(values), codes), np.append(values, [None])


def _frequent_values(column: pd.Series) -> NDArray[np.object_]:
    """Return the frequent values, the most frequent first, in numbers that rise with their counts.

    scikit-learn counts values in Python, but only their order matters to ``max_categories``: a
    value with the r-th smallest count occurs r times here.
    """
    codes, found = pd.factorize(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(found))
    often = np.flatnonzero(counts >= FREQUENT)
    if not len(often):
        return np.array([np.nan], dtype=object)
    often = often[np.argsort(-counts[often], kind="stable")]
    ranks = np.unique(counts[often], return_inverse=True)[1] + 1
    return np.repeat(np.asarray(found, dtype=object)[often], ranks)
