"""Decide by thresholds, and count what the decisions do."""

from __future__ import annotations

import numpy as np

from fairdial._arrays import (
    Codes,
    Counts,
    Floats,
    Indices,
    Kinds,
    Mask,
    Scores,
    Weights,
    exact_weights,
)
from fairdial._validation import raise_nan

CHUNK = 1 << 15  # rows whose intermediate results stay in the cache


def select(scores: Scores, thresholds: Floats | float) -> Mask:  # eq:f_erm
    """Return which rows are selected: those whose score is strictly above the threshold.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.decide import select
    >>> select(np.array([-1.0, 0.0, 1.0]), 0.0)
    array([False, False,  True])
    """
    return np.asarray(scores > thresholds)


def select_by_group(scores: Scores, codes: Codes, thresholds: Floats) -> Mask:
    """Return ``select(scores, thresholds[codes])`` in chunks that fit the cache; raise on NaN."""
    selected = np.empty(len(scores), np.bool_)
    with np.errstate(over="ignore"):
        limits = thresholds.astype(scores.dtype)
    above = limits > thresholds  # the scores may be coarser than the thresholds: round down
    limits[above] = np.nextafter(limits[above], -np.inf, dtype=scores.dtype)
    for start in range(0, len(scores), CHUNK):
        rows = slice(start, start + CHUNK)
        chunk, group, out = scores[rows], codes[rows], selected[rows]
        if len(limits) == 2:
            np.greater(chunk, limits[0], out=out)
            other = np.greater(chunk, limits[1])
            other ^= out
            other &= group.astype(np.bool_)
            out ^= other
        else:
            np.greater(chunk, limits[group], out=out)
        if np.isnan(chunk.min()):
            raise_nan(scores, "logits")
    return selected


def accuracy_of_counts(selected: Counts, counts: Counts) -> Floats:  # eq:acc
    """Return the accuracy, (...), from selected and all rows by label and group, (..., 2, K).

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.decide import accuracy_of_counts
    >>> accuracy_of_counts(np.array([[1, 0], [3, 4]]), np.array([[5, 5], [5, 5]]))
    array(0.8)
    """
    return accuracy_of_net(
        np.add.reduce(selected[..., 1, :] - selected[..., 0, :], axis=-1), counts
    )


def accuracy_of_net(net: Counts, counts: Counts) -> Floats:
    """Return the accuracy, (...), from selected positive rows minus negative ones, (...)."""
    negatives, positives = np.add.reduce(counts, axis=1).tolist()
    return np.asarray((net + negatives) / (negatives + positives))


def group_accuracy(selected: Counts, counts: Counts) -> Floats:
    """Return the accuracy in each group, (..., K), from selected and all rows, (..., 2, K).

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.decide import group_accuracy
    >>> group_accuracy(np.array([[1, 0], [3, 4]]), np.array([[5, 5], [5, 5]]))
    array([0.7, 0.9])
    """
    correct = selected[..., 1, :] + counts[0] - selected[..., 0, :]
    return np.asarray(correct / counts.sum(axis=0))


def by_label(counts: Counts, n_labels: int) -> Counts:
    """Return counts by label, (..., L, K), from those by kind, (..., C, K): sums over strata.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.decide import by_label
    >>> by_label(np.array([[1], [2], [30], [40]]), 2).tolist()
    [[31], [42]]
    """
    if counts.shape[-2] == n_labels:
        return counts
    *leading, n_kinds, n_groups = counts.shape
    shape = (*leading, n_kinds // n_labels, n_labels, n_groups)
    return np.asarray(counts.reshape(shape).sum(axis=-3))


def decided_counts(selected: Counts, n_classes: int) -> Counts:
    """Return rows by decided class, (..., C, K), from those by class and label, (..., C L, K).

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.decide import decided_counts
    >>> decided_counts(np.array([[1], [2], [30], [40]]), 2).tolist()
    [[3], [70]]
    """
    shape = (*selected.shape[:-2], n_classes, -1, selected.shape[-1])
    return np.asarray(selected.reshape(shape).sum(axis=-2))


def rows_by_class(cells: Counts, n_classes: int) -> Counts:
    """Return rows by class and group, (C, K), from counts in which each class counts every row.

    Without labels it is (1, K).
    """
    n_labels = len(cells) // n_classes
    return np.asarray(cells[1::2] if n_labels == 2 else cells[:1])


def class_accuracy(selected: Counts, counts: Counts) -> Floats:
    """Return the accuracy, (...), from rows by decided class and label, and rows by class.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.decide import class_accuracy
    >>> selected = np.array([[1], [3], [0], [2], [2], [2]])  # for each class: others, its own
    >>> float(class_accuracy(selected, np.array([[4], [3], [3]])))
    0.7
    """
    return np.asarray(selected[..., 1::2, :].sum(axis=(-2, -1)) / counts.sum())


def count_kinds(kinds: Kinds | None) -> int:
    """Return the number of kinds where it isn't given: kinds are labels, or there is one."""
    return 1 if kinds is None else 2


def count_rows(
    codes: Codes,
    kinds: Kinds | None,
    n_groups: int,
    n_kinds: int | None = None,
    weights: Weights | None = None,
) -> Counts:
    """Return the number of rows, or the sum of their weights, by kind and group, (C, K)."""
    n_kinds = count_kinds(kinds) if n_kinds is None else n_kinds
    weights = None if weights is None else exact_weights(weights)
    cells = _cells(codes, kinds, n_groups)
    return sum_by_cell(cells, n_kinds * n_groups, weights).reshape(n_kinds, n_groups)


def count_selected(
    margins: Scores,
    codes: Codes,
    kinds: Kinds | None,
    n_groups: int,
    n_kinds: int | None = None,
    weights: Weights | None = None,
) -> Counts:
    """Return how many rows each of S settings selects, (S, C, K), from margins (S, n)."""
    n_kinds = count_kinds(kinds) if n_kinds is None else n_kinds
    weights = None if weights is None else exact_weights(weights)
    cells = 2 * _cells(codes, kinds, n_groups)  # even: not selected, odd: selected
    size = 2 * n_kinds * n_groups
    found = [sum_by_cell(cells + select(line, 0.0), size, weights)[1::2] for line in margins]
    return np.stack(found).reshape(len(margins), n_kinds, n_groups)


def sum_by_cell(cells: Codes, n_cells: int, weights: Weights | None) -> Counts:
    """Return the number of rows in each cell, or the sum of their exact weights."""
    sums = np.bincount(cells, weights, n_cells)
    if weights is not None and weights.dtype.kind == "f":
        return sums
    return sums.astype(np.int64, copy=False)


def _cells(codes: Codes, kinds: Kinds | None, n_groups: int) -> Indices:
    """Return kind and group of each row in one number, (n,)."""
    cells = codes.astype(np.intp)
    if kinds is not None:
        cells += n_groups * kinds.astype(np.intp)
    return cells
