"""Encode tables as features of neural networks.

:class:`TableEncoder` is the default: it learns from training rows what to do with each column
(:mod:`fairdial.tables.plan`). Rows of very many numbers are treated as embeddings, such as features
of a pretrained network, and only scaled.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from fairdial._arrays import Features
from fairdial._validation import check_choice, check_count, check_fraction
from fairdial.core.serialization import refuse_constant
from fairdial.errors import InvalidInputError
from fairdial.tables.columns import (
    FREQUENT,
    Value,
    as_table,
    column_names,
    find_columns,
    is_numeric,
    keep_names,
    read_numbers,
    take_column,
    to_builtin,
)
from fairdial.tables.plan import KINDS, MOST_INDICATORS, Block, Categorical, Numeric, read_flag

FORMAT, VERSION = "fairdial.table_encoder", 1  # of the JSON text
FREQUENT_SHARE = 0.01  # of the rows make a category frequent in a small table
WIDE = 256  # columns of numbers that make a row an embedding


class Encoder(Protocol):
    """Learn from training rows how to turn a table into float32 features.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import Network
    >>> class Squares:
    ...     def fit(self, X, y=None):
    ...         self.n_features_out_ = X.shape[1]
    ...         return self
    ...
    ...     def transform(self, X):
    ...         return np.square(np.asarray(X, np.float32))
    >>> network = Network(encoder=Squares())
    """

    @property
    def n_features_out_(self) -> int:
        """Number of features."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from training rows."""

    def transform(self, X: Any) -> Features:
        """Return the features of rows, (n, ``n_features_out_``)."""


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn a table into features for a neural network, or for any model that takes numbers.

    *Numbers* (integers, floats, booleans; pandas' nullable types, too) become their distance from
    the median in units of the interquartile range (the standard deviation where that is 0),
    clipped at 10, and up to ``n_bins`` numbers in [0, 1] that say how far the value reaches through
    each bin between quantiles of the training rows. Missing values become the median; if training
    rows had any, another feature marks them. Infinite values are an error.

    *Categories* (text, pandas' category type) have one feature for each value that is frequent
    enough, one for all other values, known or new, and one for missing values if training rows had
    any; otherwise a missing value counts as another value. Equal values are one category, whatever
    their type: 1, 1.0 and True.

    A column of objects that are all numbers is numeric; numbers written as text are categories.
    Dates, and columns without any value, are an error that names the column.

    Parameters
    ----------
    n_bins : int
        Maximum number of bins of a numeric column; 0 omits the piecewise-linear part.
    min_frequency : int, float or "auto"
        How many training rows make a category frequent: a number of rows, a share of the rows in
        (0, 1), or "auto": 10 rows, or 1% of the rows in tables of fewer than 1,000.
    max_categories : int
        Maximum number of categories per column with their own feature: the most frequent ones.
    dtype : {"float32", "float64"}
        Type of the features. Networks use float32; the scores of a linear classifier in float32
        depend on the other rows of a batch, in the seventh digit.

    Attributes
    ----------
    columns_ : tuple
        The fitted plan: a block of features for each column (:mod:`fairdial.tables.plan`).
    n_features_in_ : int
        Number of columns of the table.
    n_features_out_ : int
        Number of features.
    feature_names_in_ : array of str
        Names of the columns, if the table has names and all are text.

    Notes
    -----
    Only :meth:`fit` learns: the features of a row depend on the training rows and on this row, not
    on the rows next to it. The columns of a DataFrame are found by name, in any order; columns that
    were not there at fit are ignored; a missing one is an error.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdial.tables.encoder import TableEncoder
    >>> X = pd.DataFrame({"age": [20, 30, 40, None], "job": ["cook", "cook", "nurse", "cook"]})
    >>> encoder = TableEncoder(n_bins=2).fit(X)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'age[0]', 'age[1]', 'age=missing', 'job=cook', 'job=nurse', 'job=other']
    >>> encoder.transform(pd.DataFrame({"job": ["pilot"], "age": [35]}))
    array([[0.5, 1. , 0.5, 0. , 0. , 0. , 1. ]], dtype=float32)
    """

    columns_: tuple[Block, ...]
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        *,
        n_bins: int = 32,
        min_frequency: int | float | str = "auto",
        max_categories: int = MOST_INDICATORS,
        dtype: str = "float32",
    ) -> None:
        self.n_bins = n_bins
        self.min_frequency = min_frequency
        self.max_categories = max_categories
        self.dtype = dtype

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []  # always its own
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn medians, scales, edges and categories from training rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Training rows.
        y : ignored
            Not used.
        """
        n_bins = check_count(self.n_bins, "n_bins", least=0)
        at_most = check_count(self.max_categories, "max_categories")
        check_choice(self.dtype, "dtype", ("float32", "float64"))
        table = as_table(X, self)
        at_least = self._least_rows(len(table))
        blocks: list[Block] = []
        for i, name in enumerate(column_names(table)):
            column = take_column(table, i)
            if is_numeric(column, name):
                blocks.append(Numeric.fit(name, read_numbers(column, name), n_bins))
            else:
                blocks.append(Categorical.fit(name, column, at_least, at_most))
        return self._set(blocks, named=isinstance(table, pd.DataFrame))

    def transform(self, X: Any) -> Features:
        """Encode rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Rows with the columns of the training rows.

        Returns
        -------
        array of shape (n, ``n_features_out_``)
            Finite numbers of type ``dtype``, C-contiguous.
        """
        check_is_fitted(self)
        table = as_table(X, self)
        columns = find_columns(table, self._names, self, named=self.named_)
        out = np.zeros((len(table), self.n_features_out_), self.dtype)
        start = 0
        for block, i in zip(self.columns_, columns, strict=True):
            stop = start + block.width
            block.write_column(take_column(table, i), out[:, start:stop])
            start = stop
        return out

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        check_is_fitted(self)
        return sum(block.width for block in self.columns_)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Return the names of the features.

        ``"age"`` is the scaled number, ``"age[3]"`` its part of the fourth bin, ``"age=missing"``
        marks a missing value; ``"job=cook"``, ``"job=other"`` and ``"job=missing"`` are categories.
        A category that is itself called other or missing is quoted.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns, where the training rows had none.
        """
        check_is_fitted(self)
        heads: Sequence[Any] = self._names
        if input_features is not None or not self.named_ or hasattr(self, "feature_names_in_"):
            heads = _check_feature_names_in(self, input_features)
        names = [
            f"{head}{label}"
            for head, block in zip(heads, self.columns_, strict=True)
            for label in block.labels
        ]
        return np.array(names, dtype=object)

    def to_json(self) -> str:
        """Return the fitted encoder as JSON; :meth:`from_json` restores it to the last bit.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial.tables.encoder import TableEncoder
        >>> X = np.random.default_rng(0).normal(size=(100, 3))
        >>> encoder = TableEncoder().fit(X)
        >>> again = TableEncoder.from_json(encoder.to_json())
        >>> np.array_equal(again.transform(X), encoder.transform(X))
        True
        """
        check_is_fitted(self)
        data = {
            "format": FORMAT,
            "version": VERSION,
            "parameters": {name: to_builtin(value) for name, value in self.get_params().items()},
            "named": self.named_,
            "columns": [{"kind": block.kind, **vars(block)} for block in self.columns_],
        }
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> TableEncoder:
        """Return the encoder that :meth:`to_json` wrote."""
        try:
            data = json.loads(text, parse_constant=refuse_constant)
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']!r}")
            if data["version"] > VERSION:
                raise InvalidInputError(
                    "text",
                    f"have format version {VERSION} or lower",
                    given=data["version"],
                    hint="Install a newer fairdial.",
                )
            blocks = [KINDS[item["kind"]].from_json(item) for item in data["columns"]]
            if not blocks or len({block.name for block in blocks}) < len(blocks):
                raise ValueError("no columns, or two with one name")
            return cls(**data["parameters"])._set(blocks, named=read_flag(data["named"]))
        except InvalidInputError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InvalidInputError(
                "text",
                "be the output of TableEncoder.to_json",
                given=f"something else ({type(error).__name__}: {error})",
            ) from error

    def _set(self, blocks: Sequence[Block], *, named: bool) -> Self:
        self.columns_ = tuple(blocks)
        self.named_ = named
        keep_names(self, self._names, named=named)
        return self

    @property
    def _names(self) -> list[Value]:
        return [block.name for block in self.columns_]

    def _least_rows(self, n_rows: int) -> int:
        """Return how many of the training rows make a category frequent."""
        least = self.min_frequency
        if isinstance(least, str) and least == "auto":
            return min(FREQUENT, math.ceil(FREQUENT_SHARE * n_rows))
        if isinstance(least, numbers.Integral):
            return check_count(least, "min_frequency")
        if isinstance(least, numbers.Real):
            return math.ceil(check_fraction(least, "min_frequency") * n_rows)
        raise InvalidInputError(
            "min_frequency",
            'be a number of rows, a share in (0, 1) or "auto"',
            given=repr(least),
        )


# ---- embeddings --------------------------------------------------------------------------------


def is_wide(X: Any) -> bool:
    """Return whether rows are embeddings: very many numbers each, and no booleans.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.tables.encoder import is_wide
    >>> is_wide(np.zeros((9, 256))), is_wide(np.zeros((9, 255))), is_wide(np.zeros((9, 16, 16)))
    (True, False, False)
    """
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) != 2 or shape[1] < WIDE or issparse(X):
        return False
    if isinstance(X, pd.DataFrame):
        return all(d.kind in "iuf" and not isinstance(d, pd.SparseDtype) for d in X.dtypes)
    if not hasattr(X, "dtype"):
        return False
    return getattr(X.dtype, "kind", "f") in "iuf"  # dtypes of tensors have no kind


def wide_steps() -> list[Any]:
    """Return the steps that embeddings go through: impute (and mark) missing values, scale.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from fairdial.tables.encoder import wide_steps
    >>> make_pipeline(*wide_steps()).fit_transform(np.array([[1.0], [3.0], [np.nan]])).round(2)
    array([[-1.22, -0.71],
           [ 1.22, -0.71],
           [ 0.  ,  1.41]])
    """
    return [SimpleImputer(add_indicator=True, keep_empty_features=True), StandardScaler()]
