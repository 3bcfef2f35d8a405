"""Figures about decisions, and about sets of (accuracy, gap) points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fairdial._validation import as_vector, check_labels, check_same_length, encode_groups
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError


def _decisions(
    y_true: Any, y_pred: Any, pos_label: Any
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which labels and decisions are positive; labels other than 0 and 1: the greater of two."""
    truth, decision = as_vector(y_true, "y_true"), as_vector(y_pred, "y_pred")
    check_same_length(truth, decision, ("y_true", "y_pred"))
    if pos_label is None and truth.dtype.kind in "biuf":
        return check_labels(truth, "y_true"), check_labels(decision, "y_pred")
    classes = sorted(set(truth.tolist()) | set(decision.tolist()), key=str)
    positive = classes[-1] if pos_label is None else pos_label
    if len(classes) > 2 or positive not in classes:
        raise InvalidInputError(
            f"`y_true` and `y_pred` must hold two labels, {positive!r} among them, got {classes}."
        )
    return np.asarray(truth == positive), np.asarray(decision == positive)


def group_table(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, pos_label: Any = None
) -> pd.DataFrame:
    """Rows, selection rate, true and false positive rate, accuracy: one line a group.

    Parameters
    ----------
    y_true, y_pred : array-like
        Labels and decisions.
    pos_label : label, optional
        Which of two labels is positive; by default 1, or the greater of others.
    sensitive_features : array-like, Series or DataFrame
        Group of each row; several columns stand for their intersections.

    Examples
    --------
    >>> from fairdial.metrics import group_table
    >>> table = group_table([1, 0, 1, 0], [1, 1, 0, 0], sensitive_features=["a", "a", "b", "b"])
    >>> table.selection_rate.tolist()
    [1.0, 0.0]
    """
    truth, decision = _decisions(y_true, y_pred, pos_label)
    codes, names = encode_groups(sensitive_features, "sensitive_features")
    check_same_length(truth, codes, ("y_true", "sensitive_features"))
    cell = codes.astype(np.intp) * 4 + truth * 2 + decision
    cells = np.bincount(cell, minlength=4 * len(names))
    cells = cells.reshape(len(names), 2, 2).astype(np.float64)  # (K, label, decision)
    rows = cells.sum(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        by_label = cells[:, :, 1] / cells.sum(axis=2)  # NaN where a group has no such label
    return pd.DataFrame(
        {
            "rows": rows.astype(np.int64),
            "selection_rate": cells[:, :, 1].sum(axis=1) / rows,
            "true_positive_rate": by_label[:, 1],
            "false_positive_rate": by_label[:, 0],
            "accuracy": (cells[:, 0, 0] + cells[:, 1, 1]) / rows,
        },
        index=pd.Index(list(names), name="group"),
    )


def gap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    criterion: str | Criterion = "demographic_parity",
    pos_label: Any = None,
) -> float:
    """Highest minus lowest rate of the criterion over the groups.

    Examples
    --------
    >>> from fairdial.metrics import gap
    >>> gap([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=["a", "a", "b", "b"])
    0.5
    """
    kind = find_criterion(criterion)
    table = group_table(y_true, y_pred, sensitive_features=sensitive_features, pos_label=pos_label)
    rates = table[kind.rates[0].name].to_numpy()
    if np.isnan(rates).any():
        missing = ", ".join(repr(name) for name in table.index[np.isnan(rates)])
        raise InvalidInputError(
            f"`y_true`: {missing} must have rows that count for {kind.name}, got none with "
            f"label {kind.rates[0].counted}."
        )
    return float(kind.gap(rates))


def _points(points: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(points, np.float64)
    if array.ndim != 2 or array.shape[1] != 2 or len(array) == 0:
        raise InvalidInputError(
            f"`points` must hold (accuracy, gap) pairs in two columns, got shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise InvalidInputError("`points` must be finite, got NaN or infinity.")
    return array


def pareto(points: ArrayLike) -> NDArray[np.bool_]:  # eq:tradeoff_optim
    """Which (accuracy, gap) points no other point beats.

    A point is beaten by one with at least its accuracy and at most its gap, one of them strictly.
    Equal points don't beat each other.

    Examples
    --------
    >>> from fairdial.metrics import pareto
    >>> pareto([(0.8, 0.1), (0.7, 0.1), (0.7, 0.0)]).tolist()
    [True, False, True]
    """
    array = _points(points)
    accuracy, gaps = array.T
    order = np.lexsort((-accuracy, gaps))
    sorted_accuracy, sorted_gaps = accuracy[order], gaps[order]
    first = np.r_[True, sorted_gaps[1:] != sorted_gaps[:-1]]  # most accurate at its gap
    start = np.flatnonzero(first)[np.cumsum(first) - 1]
    before = np.r_[-np.inf, np.maximum.accumulate(sorted_accuracy)[:-1]]  # at smaller gaps
    keep = (sorted_accuracy == sorted_accuracy[start]) & (sorted_accuracy > before[start])
    mask = np.empty(len(array), np.bool_)
    mask[order] = keep
    return mask


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:  # eq:hv
    """Exact area between (accuracy, gap) points and a reference that is worse than they are.

    Accuracy is better when higher, gap when lower. Points that aren't better than the reference in
    both count nothing. The inverted measure, the area between the points and a reference that is
    *better* than they are, is the same function with both negated:
    ``hypervolume(-points, -reference)``.

    Parameters
    ----------
    points : (n, 2) array-like
        Accuracy and gap of each point.
    reference : (2,) array-like
        Accuracy and gap of the reference.

    Examples
    --------
    >>> from fairdial.metrics import hypervolume
    >>> hypervolume([(1.0, 0.0)], (-1 / 9, 1 + 1 / 9))
    1.234567901234568
    """
    array = _points(points)
    worst = np.asarray(reference, np.float64)
    if worst.shape != (2,) or not np.isfinite(worst).all():
        raise InvalidInputError(f"`reference` must be a finite (accuracy, gap), got {reference!r}.")
    if np.all(array[:, 0] < worst[0]) and np.all(array[:, 1] > worst[1]):
        raise InvalidInputError(
            f"`reference` must be worse than the points, got {reference!r}, which is better than "
            "all of them; for the inverted measure negate both arguments."
        )
    array = array[(array[:, 0] > worst[0]) & (array[:, 1] < worst[1])]
    array = array[np.lexsort((array[:, 1], -array[:, 0]))]  # most accurate first
    gaps = np.r_[worst[1], np.minimum.accumulate(array[:, 1])]
    return float(np.sum((array[:, 0] - worst[0]) * -np.diff(gaps)))
