"""Encoders: from tables to float32 features for neural networks.

An encoder learns from training rows and gives one row of numbers for each row of a table.
:class:`TableEncoder` is the default. Each column of the table has a rule of its own: a number is
scaled and also placed among quantiles of the training rows (piecewise-linear encoding), a category
has one output for each value that is frequent enough. Rows of very many numbers are taken for
embeddings, such as features of a pretrained network, and are only scaled. Trees get the codes of
frequent categories (:class:`FrequentEncoder`).
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from fairdial._validation import check_choice, check_count, check_fraction
from fairdial.columns import (
    Floats,
    Value,
    as_table,
    column_names,
    find_columns,
    is_numeric,
    keep_names,
    plain,
    read_categories,
    read_numbers,
    refuse_empty,
    take_column,
)
from fairdial.errors import InvalidInputError

Features = NDArray[np.float32]

FORMAT = 1  # version of the JSON text
CLIP = 10.0  # scaled numbers end here, so that an outlier cannot drown the other features
FREQUENT = 10  # rows that make a category frequent ...
FREQUENT_SHARE = 0.01  # ... or this share of the rows, where the table is small
WIDE = 256  # numbers a row: from here on they are taken for an embedding


class Encoder(Protocol):
    """Anything that learns from training rows how to turn a table into float32 features.

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
        """How many features a row has."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from training rows."""

    def transform(self, X: Any) -> Features:
        """Features, ``n_features_out_`` of each row."""


# ---- pure functions ----------------------------------------------------------------------------


def quantile_edges(values: Floats, n_bins: int) -> Floats:
    """Edges of at most ``n_bins`` bins with about equally many rows each.

    Where there are few distinct values, each is an edge. A value that fills a bin on its own is an
    edge, too, and the other rows share the edges that are left: a column that is mostly 0 keeps
    its resolution where it is not.

    Parameters
    ----------
    values : array of shape (n,)
        Finite numbers, at least one.
    n_bins : int
        How many bins, at least 1.

    Returns
    -------
    array of shape (m + 1,), m <= n_bins
        Rising values, all of them among those given; the first is the least, the last the largest.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.encoders import quantile_edges
    >>> quantile_edges(np.arange(101.0), 4)
    array([  0.,  25.,  50.,  75., 100.])
    >>> quantile_edges(np.array([0.0] * 900 + list(range(1, 101))), 4)
    array([  0.,   1.,  34.,  67., 100.])
    """
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= n_bins + 1:
        return distinct
    edge = np.zeros(len(distinct), np.bool_)
    left = n_bins  # bins for the rows that are not on an edge: at least one, always
    while (heavy := ~edge & (counts * left > counts[~edge].sum())).any():
        edge |= heavy
        left = n_bins - int(edge.sum())
    light = np.flatnonzero(~edge)
    reached = np.cumsum(counts[light])
    wanted = np.linspace(1, reached[-1], left + 1)  # which of these rows, counted from 1
    edge[light[np.searchsorted(reached, np.floor(wanted))]] = True
    return distinct[edge]


def piecewise_linear(values: Floats, edges: Floats) -> Features:
    """How far each value has come through each bin: 1 in bins below, 0 in bins above.

    The sum over the bins is the value's place among the edges, counted in bins; outside the edges
    it is 0 or the number of bins.

    Parameters
    ----------
    values : array of shape (n,)
        Finite numbers.
    edges : array of shape (m + 1,)
        Rising edges of m >= 1 bins.

    Returns
    -------
    array of shape (n, m)
        Numbers in [0, 1], float32.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.encoders import piecewise_linear
    >>> piecewise_linear(np.array([-5.0, 1.0, 12.0]), np.array([0.0, 2.0, 10.0, 20.0]))
    array([[0. , 0. , 0. ],
           [0.5, 0. , 0. ],
           [1. , 1. , 0.2]], dtype=float32)
    """
    n_bins = len(edges) - 1
    bin_of = np.searchsorted(edges[1:-1], values, side="right")  # (n,)
    with np.errstate(over="ignore"):  # a value far away from a narrow bin
        part = (values - edges[bin_of]) / np.diff(edges)[bin_of]
    full = np.tri(n_bins, n_bins, -1, dtype=np.float32)  # row b: b bins passed
    out: Features = full[bin_of]  # (n, m)
    out[np.arange(len(values)), bin_of] = np.clip(part, 0.0, 1.0)
    return out


# ---- one column --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numeric:
    """A column of numbers: scaled, placed among the edges, with a flag if training had gaps."""

    kind: ClassVar[str] = "numeric"
    name: Value
    centre: float
    scale: float
    edges: tuple[float, ...]  # empty: no piecewise-linear part
    missing: bool

    @classmethod
    def learn(cls, name: Value, values: Floats, n_bins: int) -> _Numeric:
        known = values[~np.isnan(values)]
        refuse_empty(known, name)
        low, centre, high = np.quantile(known, (0.25, 0.5, 0.75)).tolist()
        spread = float(np.std(known)) if known.min() < known.max() else 0.0
        edges = quantile_edges(known, n_bins) if n_bins else known[:0]
        if len(edges) < 3:  # one bin says what the scaled number says
            edges = known[:0]
        return cls(
            name=name,
            centre=centre,
            scale=(high - low) or spread or 1.0,
            edges=tuple(edges.tolist()),
            missing=len(known) < len(values),
        )

    @property
    def labels(self) -> list[str]:
        bins = [f"[{b}]" for b in range(len(self.edges) - 1)]
        return ["", *bins, *["=missing"] * self.missing]

    @property
    def width(self) -> int:
        return max(len(self.edges), 1) + self.missing

    def write(self, column: Any, out: NDArray[np.floating[Any]]) -> None:
        values = read_numbers(column, self.name)
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, self.centre, values)
        with np.errstate(over="ignore"):
            out[:, 0] = np.clip((values - self.centre) / self.scale, -CLIP, CLIP)
        if self.edges:
            out[:, 1 : len(self.edges)] = piecewise_linear(values, np.array(self.edges))
        if self.missing:
            out[:, -1] = missing

    @classmethod
    def read(cls, item: dict[str, Any]) -> _Numeric:
        centre, scale, *edges = (float(v) for v in (item["centre"], item["scale"], *item["edges"]))
        known = np.isfinite([centre, scale, *edges]).all()
        if not known or scale <= 0 or len(edges) in (1, 2) or (np.diff(edges) <= 0).any():
            raise ValueError(f"scale and edges of column {item['name']!r}")
        return cls(plain(item["name"]), centre, scale, tuple(edges), _flag(item["missing"]))


@dataclass(frozen=True)
class _Categorical:
    """A column of categories: one output for each, one for all others, one for gaps."""

    kind: ClassVar[str] = "categorical"
    name: Value
    categories: tuple[Value, ...]
    missing: bool

    @classmethod
    def learn(cls, name: Value, column: Any, at_least: int, at_most: int) -> _Categorical:
        codes, values = read_categories(column, name)
        known = codes[codes >= 0]
        refuse_empty(known, name)
        counts = np.bincount(known, minlength=len(values)).tolist()
        often = [(v, count) for v, count in zip(values, counts, strict=True) if count >= at_least]
        often.sort(key=lambda item: (-item[1], *_order(item[0])))
        kept = sorted((value for value, _ in often[:at_most]), key=_order)
        return cls(name, tuple(kept), len(known) < len(codes))

    @property
    def labels(self) -> list[str]:
        texts = [str(value) for value in self.categories]
        clear = [
            text if texts.count(text) == 1 and text not in ("other", "missing") else repr(value)
            for text, value in zip(texts, self.categories, strict=True)
        ]
        return [f"={text}" for text in (*clear, "other", *["missing"] * self.missing)]

    @property
    def width(self) -> int:
        return len(self.categories) + 1 + self.missing

    def write(self, column: Any, out: NDArray[np.floating[Any]]) -> None:
        codes, values = read_categories(column, self.name)
        other = len(self.categories)
        place = {value: i for i, value in enumerate(self.categories)}
        places = [place.get(value, other) for value in values]
        places.append(other + self.missing)  # code -1: missing
        out[np.arange(len(codes)), np.array(places)[codes]] = 1.0

    @classmethod
    def read(cls, item: dict[str, Any]) -> _Categorical:
        categories = tuple(plain(value) for value in item["categories"])
        if len(set(categories)) < len(categories):
            raise ValueError(f"repeated categories of column {item['name']!r}")
        return cls(plain(item["name"]), categories, _flag(item["missing"]))


KINDS: dict[str, type[_Numeric] | type[_Categorical]] = {
    kind.kind: kind for kind in (_Numeric, _Categorical)
}


# ---- the encoder -------------------------------------------------------------------------------


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn a table into features for a neural network, or any learner of numbers.

    *Numbers* (integers, floats, booleans; pandas' nullable types, too) become their distance from
    the median in units of the interquartile range (the standard deviation where that is 0), at most
    10 in size, and up to ``n_bins`` numbers in [0, 1] that say how far the value has come through
    each bin between quantiles of the training rows. Missing values become the median; if training
    rows had any, a further output marks them. Infinite values are an error.

    *Categories* (texts, pandas' category type) have one output for each value that is frequent
    enough, one for all other values, known or new, and one for missing values if training rows had
    any; otherwise a missing value counts as another value. Equal values are one category, whatever
    their type: 1, 1.0 and True.

    A column of objects that are all numbers is numeric; numbers written as text are categories.
    Dates, and columns without any value, are an error that names the column.

    Parameters
    ----------
    n_bins : int
        The most bins of a numeric column; 0 leaves the piecewise-linear part out.
    min_frequency : int, float or "auto"
        How many training rows make a category frequent: a number of rows, a share of the rows in
        (0, 1), or "auto": 10 rows, and 1% of the rows in tables of less than 1,000.
    max_categories : int
        The most categories of a column that have an output of their own: the most frequent ones.
    dtype : {"float32", "float64"}
        Of the features. Networks take float32; a linear classifier that scores in float32 gives a
        row that stands alone a score that differs in the seventh digit.

    Attributes
    ----------
    n_features_in_ : int
        How many columns the table has.
    n_features_out_ : int
        How many features a row has.
    feature_names_in_ : array of str
        The columns' names, if the table has names and all are texts.

    Notes
    -----
    Only :meth:`fit` learns: what :meth:`transform` gives for a row depends on the training rows and
    on this row, not on the rows beside it. A DataFrame's columns are found by name, in any order;
    columns that were not there at fit are ignored, one that is missing is an error.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdial.encoders import TableEncoder
    >>> X = pd.DataFrame({"age": [20, 30, 40, None], "job": ["cook", "cook", "nurse", "cook"]})
    >>> encoder = TableEncoder(n_bins=2).fit(X)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'age[0]', 'age[1]', 'age=missing', 'job=cook', 'job=nurse', 'job=other']
    >>> encoder.transform(pd.DataFrame({"job": ["pilot"], "age": [35]}))
    array([[0.5, 1. , 0.5, 0. , 0. , 0. , 1. ]], dtype=float32)
    """

    columns_: tuple[_Numeric | _Categorical, ...]
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def __init__(
        self,
        *,
        n_bins: int = 32,
        min_frequency: int | float | str = "auto",
        max_categories: int = 64,
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
            Labels are not looked at.
        """
        n_bins = check_count(self.n_bins, "n_bins", least=0)
        at_most = check_count(self.max_categories, "max_categories")
        check_choice(self.dtype, "dtype", ("float32", "float64"))
        table = as_table(X, self)
        at_least = _frequent_rows(self.min_frequency, len(table))
        rules: list[_Numeric | _Categorical] = []
        for i, name in enumerate(column_names(table)):
            column = take_column(table, i)
            if is_numeric(column, name):
                rules.append(_Numeric.learn(name, read_numbers(column, name), n_bins))
            else:
                rules.append(_Categorical.learn(name, column, at_least, at_most))
        return self._set(rules, named=isinstance(table, pd.DataFrame))

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Encode rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, d)
            Rows with the columns of the training rows.

        Returns
        -------
        array of shape (n, ``n_features_out_``)
            Finite numbers of type ``dtype``, row after row in memory.
        """
        check_is_fitted(self)
        table = as_table(X, self)
        columns = find_columns(table, self._names, self, named=self.named_)
        out = np.zeros((len(table), self.n_features_out_), self.dtype)
        start = 0
        for rule, i in zip(self.columns_, columns, strict=True):
            stop = start + rule.width
            rule.write(take_column(table, i), out[:, start:stop])
            start = stop
        return out

    @property
    def n_features_out_(self) -> int:
        """How many features a row has."""
        check_is_fitted(self)
        return sum(rule.width for rule in self.columns_)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """What each feature is.

        ``"age"`` is the scaled number, ``"age[3]"`` its way through the fourth bin,
        ``"age=missing"`` marks a gap; ``"job=cook"``, ``"job=other"`` and ``"job=missing"`` are
        categories. A category that is itself called other or missing is put in quotes.

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
            for head, rule in zip(heads, self.columns_, strict=True)
            for label in rule.labels
        ]
        return np.array(names, dtype=object)

    def to_json(self) -> str:
        """The fitted encoder as JSON text; :meth:`from_json` gives it back, equal to the last bit.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial.encoders import TableEncoder
        >>> X = np.random.default_rng(0).normal(size=(100, 3))
        >>> encoder = TableEncoder().fit(X)
        >>> again = TableEncoder.from_json(encoder.to_json())
        >>> np.array_equal(again.transform(X), encoder.transform(X))
        True
        """
        check_is_fitted(self)
        data = {
            "format": "fairdial.table_encoder",
            "version": FORMAT,
            "parameters": {name: plain(value) for name, value in self.get_params().items()},
            "named": self.named_,
            "columns": [{"kind": rule.kind, **vars(rule)} for rule in self.columns_],
        }
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> TableEncoder:
        """The encoder that :meth:`to_json` wrote."""
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
            if data["format"] != "fairdial.table_encoder":
                raise InvalidInputError(f"`text` must be a table encoder, got {data['format']!r}.")
            if data["version"] > FORMAT:
                raise InvalidInputError(
                    f"`text` has format version {data['version']}, this fairdial reads up to "
                    f"{FORMAT}; install a newer one."
                )
            rules = [KINDS[item["kind"]].read(item) for item in data["columns"]]
            if not rules or len({rule.name for rule in rules}) < len(rules):
                raise ValueError("no columns, or two with one name")
            return cls(**data["parameters"])._set(rules, named=_flag(data["named"]))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                "`text` must be what TableEncoder.to_json wrote, got something else "
                f"({type(error).__name__}: {error})."
            ) from error

    def _set(self, rules: Sequence[_Numeric | _Categorical], *, named: bool) -> Self:
        self.columns_ = tuple(rules)
        self.named_ = named
        keep_names(self, self._names, named=named)
        return self

    @property
    def _names(self) -> list[Value]:
        return [rule.name for rule in self.columns_]


# ---- categories for trees ----------------------------------------------------------------------


class FrequentEncoder(OrdinalEncoder):  # type: ignore[misc]
    """scikit-learn's codes of categories, of which it keeps those that at least ten rows have.

    Other values are unknown to it, those of training rows too: a saved model doesn't hold what only
    few rows have, such as names and addresses. Trees lose next to nothing by it: scikit-learn's
    never ask for a category of fewer rows.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from fairdial.encoders import FrequentEncoder
    >>> X = pd.DataFrame({"job": ["cook"] * 12 + ["nurse"] * 10 + ["Ann Smith"]})
    >>> encoder = FrequentEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    >>> encoder.fit_transform(X)[[0, 12, 22], 0]
    array([ 0.,  1., nan])
    >>> encoder.categories_[0].tolist()
    ['cook', 'nurse']
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the frequent values of every column."""
        super().fit(_as_objects(X).apply(_only_frequent))
        return self

    def transform(self, X: Any) -> Any:
        """Codes of rows."""
        return super().transform(_as_objects(X))


def _as_objects(X: Any) -> pd.DataFrame:
    """Columns of whatever type as plain values, which are compared as such."""
    return pd.DataFrame(X).astype(object)


def _only_frequent(column: pd.Series) -> pd.Series:
    """A column in which the most frequent value stands wherever there is no frequent one."""
    counts = column.value_counts()
    often = column.map(counts) >= FREQUENT
    return column.where(often, counts.index[0] if often.any() else np.nan)


# ---- embeddings --------------------------------------------------------------------------------


def is_wide(X: Any) -> bool:
    """Whether rows are many numbers each, such as features of a pretrained network.

    Booleans are no numbers here: they are answers or categories, and embeddings have none.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.encoders import is_wide
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
    return getattr(X.dtype, "kind", "f") in "iuf"  # types of tensors tell no kind


def wide_steps() -> list[Any]:
    """What many numbers a row go through: means for missing ones, which are marked; one scale.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from fairdial.encoders import wide_steps
    >>> make_pipeline(*wide_steps()).fit_transform(np.array([[1.0], [3.0], [np.nan]])).round(2)
    array([[-1.22, -0.71],
           [ 1.22, -0.71],
           [ 0.  ,  1.41]])
    """
    return [SimpleImputer(add_indicator=True, keep_empty_features=True), StandardScaler()]


# ---- small things ------------------------------------------------------------------------------


def _order(value: Value) -> tuple[bool, Value]:
    """Sorts numbers before texts."""
    return isinstance(value, str), value


def _frequent_rows(min_frequency: Any, n_rows: int) -> int:
    """How many rows make a category frequent."""
    if isinstance(min_frequency, str) and min_frequency == "auto":
        return min(FREQUENT, math.ceil(FREQUENT_SHARE * n_rows))
    if isinstance(min_frequency, numbers.Integral):
        return check_count(min_frequency, "min_frequency")
    if isinstance(min_frequency, numbers.Real):
        return math.ceil(check_fraction(min_frequency, "min_frequency") * n_rows)
    raise InvalidInputError(
        '`min_frequency` must be a number of rows, a share in (0, 1) or "auto", got '
        f"{min_frequency!r}."
    )


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")
