"""Decide by thresholds, and count what the decisions do."""

from __future__ import annotations

import numpy as np

from fairdial._arrays import Codes, Counts, Floats, Indices, Mask, Scores
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
    hits = np.add.reduce(selected[..., 1, :] - selected[..., 0, :], axis=-1)
    negatives, positives = np.add.reduce(counts, axis=1).tolist()
    return np.asarray((hits + negatives) / (negatives + positives))


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


def count_rows(codes: Codes, positive: Mask | None, n_groups: int) -> Counts:
    """Return the number of rows by label and group, (L, K); L is 1 without labels."""
    n_labels = 1 if positive is None else 2
    counts = np.bincount(_cells(codes, positive, n_groups), minlength=n_labels * n_groups)
    return counts.reshape(n_labels, n_groups).astype(np.int64, copy=False)


def count_selected(margins: Scores, codes: Codes, positive: Mask | None, n_groups: int) -> Counts:
    """Return how many rows each of S settings selects, (S, L, K), from margins (S, n)."""
    n_labels = 1 if positive is None else 2
    cells = 2 * _cells(codes, positive, n_groups)  # even: not selected, odd: selected
    counts = np.empty((len(margins), n_labels, n_groups), np.int64)
    for line, count in zip(margins, counts, strict=True):
        found = np.bincount(cells + select(line, 0.0), minlength=2 * count.size)
        count[:] = found[1::2].reshape(count.shape)
    return counts


def _cells(codes: Codes, positive: Mask | None, n_groups: int) -> Indices:
    """Return label and group of each row in one number, (n,)."""
    cells = codes.astype(np.intp)
    if positive is not None:
        cells += n_groups * positive.astype(np.intp)
    return cells
