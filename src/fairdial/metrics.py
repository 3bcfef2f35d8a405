"""Metrics of decisions, and of sets of (accuracy, gap) points."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Mask
from fairdial._validation import as_vector, check_labels, check_same_length, encode_groups
from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_rows, group_accuracy
from fairdial.core.pareto import check_points
from fairdial.core.pareto import pareto as pareto
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd


def group_table(
    y_true: ArrayLike, y_pred: ArrayLike, *, sensitive_features: Any, pos_label: Hashable = None
) -> pd.DataFrame:
    """Return rows, selection rate, true and false positive rate and accuracy of each group.

    Parameters
    ----------
    y_true, y_pred : array-like
        Labels and decisions.
    sensitive_features : array-like, Series or DataFrame
        Group of each row; several columns are combined into their intersections.
    pos_label : label, optional
        The positive label; by default 1, or the greater of two other labels.

    Examples
    --------
    >>> from fairdial.metrics import group_table
    >>> table = group_table([1, 0, 1, 0], [1, 1, 0, 0], sensitive_features=["a", "a", "b", "b"])
    >>> table.selection_rate.tolist()
    [1.0, 0.0]
    """
    import pandas as pd

    selected, counts, names = _count(y_true, y_pred, sensitive_features, pos_label)
    rows = counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        by_label = selected / counts  # (2, K), NaN where a group has no such label
    return pd.DataFrame(
        {
            "rows": rows,
            "selection_rate": selected.sum(axis=0) / rows,
            "true_positive_rate": by_label[1],
            "false_positive_rate": by_label[0],
            "accuracy": group_accuracy(selected, counts),
        },
        index=pd.Index(list(names), name="group"),
    )


def gap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    criterion: str | Criterion = "demographic_parity",
    pos_label: Hashable = None,
) -> float:
    """Return the highest minus the lowest rate of the criterion over the groups.

    Examples
    --------
    >>> from fairdial.metrics import gap
    >>> gap([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=["a", "a", "b", "b"])
    0.5
    """
    kind = find_criterion(criterion)
    selected, counts, names = _count(y_true, y_pred, sensitive_features, pos_label)
    empty = [name for name, n in zip(names, kind.eligible_counts(counts), strict=True) if n == 0]
    if empty:
        raise InvalidInputError(
            "y_true",
            f"have rows with label {kind.rate.eligible} in every group for {kind.name}",
            given=f"none in {', '.join(map(repr, empty))}",
        )
    return float(kind.gap_of(selected, counts))


def _count(
    y_true: ArrayLike, y_pred: ArrayLike, sensitive_features: Any, pos_label: Hashable
) -> tuple[Counts, Counts, tuple[Hashable, ...]]:
    """Return selected and all rows by label and group, (2, K), and the names of the groups."""
    truth, decision = _decisions(y_true, y_pred, pos_label)
    codes, names = encode_groups(sensitive_features, "sensitive_features")
    check_same_length(truth, codes, ("y_true", "sensitive_features"))
    selected = count_rows(codes[decision], truth[decision], len(names))
    return selected, count_rows(codes, truth, len(names)), names


def _decisions(y_true: ArrayLike, y_pred: ArrayLike, pos_label: Hashable) -> tuple[Mask, Mask]:
    """Return which labels and decisions are positive: 1, or the greater of two other labels."""
    truth, decision = as_vector(y_true, "y_true"), as_vector(y_pred, "y_pred")
    check_same_length(truth, decision, ("y_true", "y_pred"))
    if pos_label is None and truth.dtype.kind in "biuf":
        return check_labels(truth, "y_true"), check_labels(decision, "y_pred")
    classes = sorted(set(truth.tolist()) | set(decision.tolist()), key=str)
    positive = classes[-1] if pos_label is None else pos_label
    if len(classes) > 2 or positive not in classes:
        raise InvalidInputError(
            "y_true",
            f"have two labels together with `y_pred`, {positive!r} among them",
            given=classes,
        )
    return np.asarray(truth == positive), np.asarray(decision == positive)


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:  # eq:hv
    """Return the exact area that (accuracy, gap) points dominate, up to a reference point.

    Higher accuracy and a smaller gap are better. Points that aren't better than the reference in
    both add nothing. The inverted measure, the area between the points and a reference that is
    *better* than all of them, is ``hypervolume(-points, -reference)``.

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
    array = check_points(points)
    worst = np.asarray(reference, np.float64)
    if worst.shape != (2,) or not np.isfinite(worst).all():
        raise InvalidInputError("reference", "be a finite (accuracy, gap)", given=repr(reference))
    if np.all(array[:, 0] < worst[0]) and np.all(array[:, 1] > worst[1]):
        raise InvalidInputError(
            "reference",
            "be worse than the points",
            given=f"{reference!r}, which is better than all of them",
            hint="For the inverted measure, negate both arguments.",
        )
    array = array[(array[:, 0] > worst[0]) & (array[:, 1] < worst[1])]
    array = array[np.lexsort((array[:, 1], -array[:, 0]))]  # most accurate first
    gaps = np.r_[worst[1], np.minimum.accumulate(array[:, 1])]
    return float(np.sum((array[:, 0] - worst[0]) * -np.diff(gaps)))
