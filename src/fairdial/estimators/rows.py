"""The rows of a fit: checked features, labels and groups, and how they are divided."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypedDict, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing

from fairdial._arrays import Codes, Counts, Indices, Kinds, Mask, Weights
from fairdial._validation import (
    GROUP_COLUMNS,
    check_same_length,
    did_you_mean,
    encode_groups,
    has_named_columns,
    match_groups,
    order_columns,
)
from fairdial.core.blind import take_known
from fairdial.core.class_path import ClassCounter
from fairdial.core.criteria import Criterion
from fairdial.core.decide import count_rows
from fairdial.core.frontier import Certificate
from fairdial.core.sweep import find_kinds
from fairdial.errors import InvalidInputError
from fairdial.tables.frames import as_pandas

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class RowOptions(TypedDict, total=False):
    """What else ``fit`` and ``calibrate`` may be given for each row."""

    sample_weight: object
    control_features: object


@dataclass(frozen=True)
class Sample:
    """What is known of calibration rows besides their features.

    Attributes
    ----------
    codes : (n,) int array
        Group of each row, as a position in ``groups``.
    groups : tuple
        Names of the groups.
    positive : (n,) bool array, optional
        Which rows have the positive label.
    criterion : Criterion
        The criterion, with its conditions applied to these rows.
    strata : (n,) int array, optional
        Stratum of each row.
    weights : (n,) array, optional
        Weights of the rows, above 0.
    certificate : str
        What ``confidence=`` may assume of the rows.
    n_classes : int
        Number of classes.
    classes : (n,) int array, optional
        Class of each row, if there are more than two; ``positive`` is then None.
    known : (n,) bool array, optional
        Rows whose group is known, if some aren't.
    """

    codes: Codes
    groups: tuple[Hashable, ...]
    positive: Mask | None
    criterion: Criterion
    strata: Codes | None = None
    weights: Weights | None = None
    certificate: Certificate = "declared"
    n_classes: int = 2
    classes: Codes | None = None
    known: Mask | None = None

    @property
    def is_labeled(self) -> bool:
        """Whether the rows have labels."""
        return self.positive is not None or self.classes is not None

    @property
    def n_rows(self) -> float:
        """Number of rows, or the sum of their weights."""
        return float(len(self.codes) if self.weights is None else self.weights.sum())

    @property
    def n_kinds(self) -> int:
        """Number of kinds: strata times labels."""
        return self.criterion.n_strata * (1 if self.positive is None else 2)

    @property
    def kinds(self) -> Kinds | None:
        """(n,) stratum and label of each row as one number."""
        return find_kinds(self.positive, self.strata)

    def counts(self) -> Counts:
        """Return the number of rows by kind and group, (C, K), each counted once."""
        if self.n_classes > 2:
            n_groups = len(self.groups)
            return ClassCounter(self.codes, self.classes, self.n_classes, n_groups).total()
        codes, kinds = self.codes, self.kinds
        if self.known is not None:
            codes, kinds = codes[self.known], None if kinds is None else kinds[self.known]
        return count_rows(codes, kinds, len(self.groups), self.n_kinds)


@dataclass
class Rows:
    """Checked rows of a fit.

    Attributes
    ----------
    X : table, array, sparse matrix, Tensor, torch Dataset or Pictures
        Features of all rows.
    y : (n,) bool array
        Which rows have the positive label.
    labels : (n,) array
        Labels as they were given.
    codes : (n,) int array
        Group of each row, as a position in ``groups``.
    groups : tuple
        Names of the groups.
    train, held : int arrays
        Rows to train on, and rows held out for calibration; none of them has weight 0.
    criterion : Criterion
        The criterion, with its conditions applied to these rows.
    strata : (n,) int array, optional
        Stratum of each row.
    weights : (n,) array, optional
        Weights of the rows.
    n_classes : int
        Number of classes.
    classes : (n,) int array, optional
        Class of each row, if there are more than two; ``y`` then says nothing.
    known : (n,) bool array, optional
        Rows whose group is known, if some aren't; only these are held out.
    compared : Criterion, optional
        What calibration compares, if groups overlap; the criterion by default.
    """

    X: Any
    y: Mask
    labels: NDArray[Any]
    codes: Codes
    groups: tuple[Hashable, ...]
    train: Indices
    held: Indices
    criterion: Criterion
    strata: Codes | None = None
    weights: Weights | None = None
    n_classes: int = 2
    classes: Codes | None = None
    compared: Criterion | None = None
    known: Mask | None = None

    @property
    def cells(self) -> Indices:
        """(n,) stratum, group and label of each row as one number."""
        labels = self.y if self.classes is None else self.classes
        cells = self.codes.astype(np.intp) * self.n_classes + labels
        return cells if self.strata is None else cells + self.strata * (2 * len(self.groups))

    def weights_of(self, places: Indices) -> Weights | None:
        """Return the weights of some rows."""
        return None if self.weights is None else self.weights[places]

    def sample(self, places: Indices, certificate: Certificate = "declared") -> Sample:
        """Return some of the rows, to calibrate on."""
        return Sample(
            self.codes[places],
            self.groups,
            self.y[places] if self.classes is None else None,
            self.compared or self.criterion,
            None if self.strata is None else self.strata[places],
            self.weights_of(places),
            certificate,
            self.n_classes,
            None if self.classes is None else self.classes[places],
        )


def hold_out(
    cells: Indices, share: float, rng: np.random.RandomState, *, pooled: bool = False
) -> Indices:
    """Draw a share of every group and label, rounded up; at least one row of each stays.

    Where rates pool many cells, such as those of overlapping groups or of all but one class, small
    cells would be drawn too often. With ``pooled``, every row is drawn with the same probability:
    the rows are sorted by cell, and one of so many is drawn, from a random start.

    Rows are drawn one by one, so copies of a row (``clusters`` of a data set) may be separated.
    """
    if pooled:
        order = rng.permutation(len(cells))
        order = order[np.argsort(cells[order], kind="stable")]
        drawn = (np.arange(math.ceil(share * len(cells))) + rng.random_sample()) / share
        return np.sort(order[drawn[drawn < len(cells)].astype(np.intp)])
    held = [np.zeros(0, np.intp)]
    for cell in np.unique(cells):
        places = rng.permutation(np.flatnonzero(cells == cell))
        held.append(places[: min(math.ceil(share * len(places)), len(places) - 1)])
    return np.sort(np.concatenate(held))


def take_rows(X: Any, places: Indices) -> Any:
    """Return the rows at these positions, whatever kind of container holds them."""
    torch = sys.modules.get("torch")  # X can only be torch's if torch has been imported
    if torch is not None and isinstance(X, torch.utils.data.Dataset):
        return torch.utils.data.Subset(X, places.tolist())
    if torch is not None and isinstance(X, torch.Tensor):
        return X[torch.as_tensor(places, device=X.device)]
    return _safe_indexing(X, places)


def split_column(X: Any, column: Any) -> tuple[Any, Any]:
    """Return the features without the sensitive column(s), and the column (or a frame of them)."""
    many = isinstance(column, (list, tuple))
    names = list(column) if many else [column]
    if isinstance(X, pd.DataFrame):
        missing = [name for name in names if name not in X.columns]
        if not missing:
            return X.drop(columns=names), X[names] if many else X[column]
        if not all(isinstance(name, (int, np.integer)) for name in names):
            raise InvalidInputError(
                "sensitive_column",
                f"be among the columns {list(X.columns)}",
                given=missing,
                hint=did_you_mean(missing[0], X.columns).strip(),
            )
    width = X.shape[1] if getattr(X, "ndim", 1) == 2 else np.asarray(X).shape[-1]
    if not all(isinstance(n, (int, np.integer)) and -width <= n < width for n in names):
        raise InvalidInputError(
            "sensitive_column", f"be a column index below {width}", given=repr(column)
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


def name_columns(sensitive: Any) -> tuple[Hashable, ...] | None:
    """Return the names of several sensitive columns; None if there is one, or no names."""
    if not has_named_columns(sensitive) or not sensitive.columns.is_unique:
        return None
    return tuple(sensitive.columns) if sensitive.shape[1] > 1 else None


def order_groups(
    sensitive: Any,
    names: Sequence[Hashable] | None,
    argument: str = "sensitive_features",
) -> Any:
    """Return sensitive columns in the order that the groups' names were made of; raise on others.

    ``names`` are those that :func:`name_columns` returned, or None. Arrays, and a single column of
    whole names such as "Black & Female", stay as they are.
    """
    if names is None or getattr(sensitive, "ndim", 1) != 2 or sensitive.shape[1] == 1:
        return sensitive
    return order_columns(sensitive, names, argument, GROUP_COLUMNS)


def drop_column(model: Any, X: Any) -> Any:
    """Return rows to decide on without the sensitive column(s), if they have any."""
    X = as_pandas(X)
    column, width = model.sensitive_column, getattr(model, "n_features_in_", None)
    if column is None:
        return X
    if isinstance(X, pd.DataFrame):
        names = column if isinstance(column, (list, tuple)) else [column]
        known = [name for name in names if name in X.columns]
        if known or X.shape[1] == width:
            return X.drop(columns=known)
    elif np.shape(X)[1:] == (width,):
        return X
    return split_column(X, column)[0]


def encode_rows(
    sensitive: Any, n_rows: int, known: tuple[Hashable, ...] | None
) -> tuple[Codes, tuple[Hashable, ...]]:
    """Return group codes and names; if training fixed the groups, rows must be of those."""
    if sensitive is None:
        return np.zeros(n_rows, np.intp), ("all",)
    if known is not None:
        codes, names = match_groups(sensitive, known, "sensitive_features"), known
    else:
        codes, names = encode_groups(sensitive, "sensitive_features")
    check_same_length(range(n_rows), codes, ("X", "sensitive_features"))
    return codes, names


def encode_known(
    sensitive: Any, n_rows: int, known: tuple[Hashable, ...] | None, unknown: str
) -> tuple[Mask | None, Codes, tuple[Hashable, ...], Any]:
    """Return which rows have a group (None: all), group codes and names, and their groups."""
    missing = np.zeros(n_rows, np.bool_)
    if unknown == "estimate" and sensitive is not None:
        check_same_length(range(n_rows), range(len(sensitive)), ("X", "sensitive_features"))
        table = np.asarray(sensitive, dtype=object).reshape(n_rows, -1)
        missing = np.asarray(pd.isna(table).any(axis=1), np.bool_)
    if not missing.any():
        return None, *encode_rows(sensitive, n_rows, known), sensitive
    if missing.all():
        raise InvalidInputError(
            "sensitive_features", "have a group in some rows", given="missing values alone"
        )
    some, codes = take_known(sensitive, ~missing), np.zeros(n_rows, np.intp)
    codes[~missing], names = encode_rows(some, int((~missing).sum()), known)
    return ~missing, codes, names, some


def groups_by_name(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Explain in the error that groups are passed by keyword, if they were passed by position."""
    kinds = [p.kind for p in inspect.signature(method).parameters.values()]
    most = kinds.index(inspect.Parameter.KEYWORD_ONLY)

    @wraps(method)
    def call(*args: Parameters.args, **named: Parameters.kwargs) -> Result:
        if len(args) > most:
            name, takes = method.__name__, "X" if most == 2 else "X, y"
            raise TypeError(
                f"`{name}` takes {takes} by position, got {len(args) - most} more. Pass the groups "
                f"by name: {name}({takes}, sensitive_features=...)."
            )
        return method(*args, **named)

    return call
