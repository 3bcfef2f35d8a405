"""The scores of each group, sorted in descending order, with cumulative counts by label.

A group's scores are a sequence of *steps*, each a distinct score or a bin of scores. What a
threshold between two steps selects depends only on its *rank*, the number of steps above it.
:func:`sort_scores` makes a step of every distinct score; ``histograms.py`` makes steps of bins and
opens those that matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Codes, Counts, Floats, Indices, Mask, Scores
from fairdial._validation import raise_nan


@dataclass(frozen=True, eq=False)
class GroupScores:
    """One group's scores in descending steps.

    Attributes
    ----------
    lower, upper : (m,) float64
        Smallest and largest score of each step; the same array if every step is one score.
    selected : (L, m + 1) int64
        Rows above the threshold at each rank, by label; L is 1 without labels.
    """

    lower: Floats
    upper: Floats
    selected: Counts

    @classmethod
    def from_counts(cls, lower: Floats, upper: Floats, counts: Counts) -> GroupScores:
        """Make group scores from the rows of each step by label, (L, m)."""
        selected = np.zeros((len(counts), len(lower) + 1), np.int64)
        np.cumsum(counts, axis=1, out=selected[:, 1:])
        return cls(lower, upper, selected)

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def counts(self) -> Counts:
        """(L, m) rows of each step by label."""
        return np.diff(self.selected, axis=1)

    @property
    def totals(self) -> Counts:
        """(L,) rows by label."""
        return self.selected[:, -1]

    @cached_property
    def is_bin(self) -> Mask:
        """(m,) whether a step is a bin rather than a single score."""
        return self.lower < self.upper

    @cached_property
    def above(self) -> Floats:
        """(m + 1,) smallest selected score at each rank."""
        return np.concatenate(([np.inf], self.lower))

    @cached_property
    def below(self) -> Floats:
        """(m + 1,) largest score that isn't selected at each rank."""
        return np.concatenate((self.upper, [-np.inf]))

    @cached_property
    def _ascending(self) -> Floats:
        """(m,) negated lower ends, for searches."""
        return -self.lower

    def rank(self, thresholds: ArrayLike) -> Indices:
        """Return the number of steps above each threshold."""
        wanted: Floats = np.negative(thresholds)
        return self._ascending.searchsorted(wanted, side="left")

    def coarsen(self, n_bins: int) -> GroupScores:
        """Merge the steps into about ``n_bins`` bins with equally many rows; 0 stays an edge."""
        if len(self) <= n_bins:
            return self
        rows = self.selected.sum(axis=0)
        cuts = np.searchsorted(rows, np.linspace(0, rows[-1], n_bins + 1)[:-1])
        edges = self.rank([np.finfo(np.float64).max, 0.0, -np.inf])  # keep infinite scores apart
        cuts = np.unique(np.concatenate((cuts, edges)))
        cuts = cuts[cuts < len(self)]
        ends = np.append(cuts[1:], len(self))
        selected = self.selected[:, np.append(cuts, len(self))]
        return GroupScores(self.lower[ends - 1], self.upper[cuts], selected)


def total_counts(group_scores: Sequence[GroupScores]) -> Counts:
    """Return the number of rows by label and group, (L, K)."""
    return np.stack([group.totals for group in group_scores], axis=1)


def sort_group(scores: Sequence[Scores]) -> GroupScores:
    """Return one group's distinct scores, from its scores by label."""
    runs = [np.sort(run.astype(np.float64, copy=False)) for run in scores]
    merged, labels = runs[0], None
    if len(runs) > 1:
        merged = np.concatenate(runs)
        order = np.argsort(merged, kind="stable")  # merges the sorted runs
        merged, labels = merged.take(order), order >= len(runs[0])
    merged += 0.0  # -0.0 equals 0.0
    ends = np.ones(len(merged), np.bool_)
    np.not_equal(merged[1:], merged[:-1], out=ends[:-1])
    last = np.flatnonzero(ends)  # last row of each distinct score, ascending
    below = np.zeros((len(runs), len(last) + 1), np.int64)  # rows of the lowest scores
    below[0, 1:] = last + 1
    if labels is not None:
        below[1, 1:] = np.cumsum(labels, dtype=np.int64).take(last)
        below[0] -= below[1]
    values = merged.take(last)[::-1].copy()
    return GroupScores(values, values, below[:, -1:] - below[:, ::-1])


def sort_scores(
    logits: Scores, codes: Codes, positive: Mask | None, n_groups: int
) -> list[GroupScores]:
    """Return the distinct scores of every group; raise on NaN."""
    if np.isnan(logits.max()):
        raise_nan(logits, "logits")
    return [sort_group(runs) for runs in _split(logits, codes, positive, n_groups)]


def _split(
    logits: Scores, codes: Codes, positive: Mask | None, n_groups: int
) -> list[list[Scores]]:
    """Return the scores by group and label."""
    n_labels = 1 if positive is None else 2
    n_cells = n_groups * n_labels
    cells = codes.astype(np.min_scalar_type(n_cells))
    if positive is not None:
        cells *= 2
        cells += positive
    if n_cells <= 4:  # taking by position is faster than by mask
        runs = [logits.take(np.flatnonzero(cells == cell)) for cell in range(n_cells)]
    else:
        order = np.argsort(cells, kind="stable")  # radix sort
        sizes = np.bincount(cells, minlength=n_cells)
        runs = np.split(logits.take(order), np.cumsum(sizes)[:-1])
    return [runs[i : i + n_labels] for i in range(0, n_cells, n_labels)]
