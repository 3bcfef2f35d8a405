"""Scores as ladders: each group's scores from the highest down, in atoms with label counts.

A threshold stands between two atoms; what it selects depends on its *rank* alone, the number of
atoms above it. Ties are one atom. Two ways lead here: :func:`sort_scores` makes every distinct
score an atom, and ``histograms.py`` makes bins atoms and opens those that matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._validation import raise_nan

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Indices = NDArray[np.intp]
Scores = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Ladder:
    """One group's scores in descending atoms.

    Attributes
    ----------
    lower, upper : (m,) float64
        Smallest and largest score of each atom; one array where every atom is one score.
    selected : (L, m + 1) int64
        Rows above the threshold at each rank, by label; L is 1 where labels are unknown.
    """

    lower: Floats
    upper: Floats
    selected: Counts

    @classmethod
    def of_counts(cls, lower: Floats, upper: Floats, counts: Counts) -> Ladder:
        """From the rows of each atom by label, (L, m)."""
        selected = np.zeros((len(counts), len(lower) + 1), np.int64)
        np.cumsum(counts, axis=1, out=selected[:, 1:])
        return cls(lower, upper, selected)

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def counts(self) -> Counts:
        """(L, m) rows of each atom by label."""
        return np.diff(self.selected, axis=1)

    @property
    def rows(self) -> Counts:
        """(L,) rows by label."""
        return self.selected[:, -1]

    @cached_property
    def wide(self) -> NDArray[np.bool_]:
        """(m,) which atoms are more than one score."""
        return self.lower < self.upper

    @cached_property
    def above(self) -> Floats:
        """(m + 1,) the smallest selected score at each rank."""
        return np.concatenate(([np.inf], self.lower))

    @cached_property
    def below(self) -> Floats:
        """(m + 1,) the largest score that is not selected at each rank."""
        return np.concatenate((self.upper, [-np.inf]))

    @cached_property
    def descending(self) -> Floats:
        """(m,) negated lower ends: ascending, for searches."""
        return -self.lower

    def rank(self, thresholds: Any) -> Indices:
        """How many atoms lie above each threshold."""
        wanted: Floats = np.negative(thresholds)
        return self.descending.searchsorted(wanted, side="left")

    def coarsen(self, atoms: int) -> Ladder:
        """About ``atoms`` wide atoms with equal numbers of rows; 0 stays an edge."""
        if len(self) <= atoms:
            return self
        rows = self.selected.sum(axis=0)
        cuts = np.searchsorted(rows, np.linspace(0, rows[-1], atoms + 1)[:-1])
        borders = self.rank([np.finfo(np.float64).max, 0.0, -np.inf])  # infinite scores stay apart
        cuts = np.unique(np.concatenate((cuts, borders)))
        cuts = cuts[cuts < len(self)]
        ends = np.append(cuts[1:], len(self))
        selected = self.selected[:, np.append(cuts, len(self))]
        return Ladder(self.lower[ends - 1], self.upper[cuts], selected)


def ladder_of(scores: Sequence[Scores]) -> Ladder:
    """Ladder of one group from its scores by label."""
    runs = [np.sort(run.astype(np.float64, copy=False)) for run in scores]
    merged, labels = runs[0], None
    if len(runs) > 1:
        merged = np.concatenate(runs)
        order = np.argsort(merged, kind="stable")  # merges the sorted runs
        merged, labels = merged.take(order), order >= len(runs[0])
    merged += 0.0  # -0.0 and 0.0 are one score
    ends = np.ones(len(merged), np.bool_)
    np.not_equal(merged[1:], merged[:-1], out=ends[:-1])
    last = np.flatnonzero(ends)  # row of each atom, ascending
    below = np.zeros((len(runs), len(last) + 1), np.int64)  # rows of the first atoms
    below[0, 1:] = last + 1
    if labels is not None:
        below[1, 1:] = np.cumsum(labels, dtype=np.int64).take(last)
        below[0] -= below[1]
    values = merged.take(last)[::-1].copy()
    return Ladder(values, values, below[:, -1:] - below[:, ::-1])


def _split_runs(
    logits: Scores, codes: NDArray[Any], positive: NDArray[np.bool_] | None, n_groups: int
) -> list[list[Scores]]:
    """Scores by group and label."""
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


def sort_scores(
    logits: Scores, codes: NDArray[Any], positive: NDArray[np.bool_] | None, n_groups: int
) -> list[Ladder]:
    """Exact ladders, one a group; NaN is refused."""
    if np.isnan(logits.max()):
        raise_nan(logits, "logits")
    return [ladder_of(runs) for runs in _split_runs(logits, codes, positive, n_groups)]
