"""Bootstrap of the frontier: how it varies with the calibration rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fairdial._arrays import Counts, Floats, Indices
from fairdial.core.decide import accuracy_of_counts, by_label
from fairdial.core.flat_groups import FlatGroups
from fairdial.core.group_scores import GroupScores, total_counts
from fairdial.core.searched import SearchedPoints
from fairdial.core.threshold_path import ThresholdPath

N_BINS = 256  # per group, so that the cost of a replicate doesn't grow with the rows
ALL_BINS, LEAST_BINS = 4096, 32  # of many groups together, but at least so many per group
ROWS_PER_CELL = 16  # up to which drawing rows is faster than drawing counts of cells


def resampled_accuracy(
    points: ThresholdPath | SearchedPoints,
    tolerances: Floats,
    replicates: int,
    rng: np.random.Generator,
    sizes: Counts | None = None,
) -> tuple[Floats, Floats]:
    """Return the accuracy at each tolerance on binned scores, (m,), and on resampled rows, (r, m).

    Rows are drawn with replacement within groups; each replicate has its own dial. A replicate in
    which a group has no eligible rows is NaN. With weights, rows are drawn in proportion to them,
    and ``sizes`` is how many of each group; by default, as many as their weights add up to.
    """
    n_bins = min(N_BINS, max(LEAST_BINS, ALL_BINS // len(points.group_scores)))
    coarse = [scores.coarsen(n_bins) for scores in points.group_scores]
    if sizes is None:
        sizes = np.maximum(np.rint(total_counts(points.group_scores).sum(axis=0)), 1)
    resampler = _Resampler(coarse, sizes.astype(np.intp))
    accuracy = np.full((replicates, len(tolerances)), np.nan)
    for line in accuracy:
        drawn = resampler.draw(rng)
        if points.criterion.eligible_counts(drawn.totals).all():
            if isinstance(points, ThresholdPath) and len(drawn) != 2:
                line[:] = _accuracy(points.rebuild(drawn), tolerances)
            else:
                line[:] = _accuracy(points.rebuild(drawn.split()), tolerances)
    return _accuracy(points.rebuild(coarse), tolerances), accuracy


def _accuracy(points: ThresholdPath | SearchedPoints, tolerances: Floats) -> Floats:
    if isinstance(points, ThresholdPath):  # bins are too coarse to search beyond its end
        _, selected = points.read(points.find(tolerances)[0])  # (m, C, K)
    else:
        table, _ = points.choose(tolerances)
        _, selected = table.read(np.arange(len(table)))
    totals = (
        points.counts if isinstance(points, ThresholdPath) else total_counts(points.group_scores)
    )
    return accuracy_of_counts(by_label(selected, 2), by_label(totals, 2))


class _Resampler:
    """Draws rows of each group with replacement, and gives them the weight of all."""

    def __init__(self, group_scores: Sequence[GroupScores], sizes: Indices) -> None:
        counts = [scores.counts for scores in group_scores]
        steps = [len(scores) for scores in group_scores]
        self._n_groups, self._n_kinds = len(steps), len(counts[0])
        self._lower = np.concatenate([scores.lower for scores in group_scores])
        self._upper = np.concatenate([scores.upper for scores in group_scores])
        self._group = np.repeat(np.arange(len(steps)), steps)
        totals = np.array([part.sum() for part in counts])
        self._weights = np.repeat(totals / sizes, steps) if (totals != sizes).any() else None
        self._rows, self._cells = None, []
        largest = max(float(sizes.sum()), float(totals.sum()))  # weights may be large
        if totals.dtype.kind == "i" and largest <= ROWS_PER_CELL * self._n_kinds * sum(steps):
            self._rows = _RowSampler(np.concatenate(counts, axis=1), self._group, totals, sizes)
        else:
            self._cells = [
                (size, part.ravel() / total)
                for size, part, total in zip(sizes.tolist(), counts, totals, strict=True)
            ]

    def draw(self, rng: np.random.Generator) -> FlatGroups:
        """Return the scores of rows drawn now."""
        if self._rows is not None:
            drawn = self._rows.draw(rng)
        else:
            parts = [rng.multinomial(size, cells) for size, cells in self._cells]
            drawn = np.concatenate([part.reshape(self._n_kinds, -1) for part in parts], axis=1)
        keep = drawn.any(axis=0)
        if self._weights is not None:
            drawn = drawn * self._weights
        return FlatGroups.from_counts(
            self._lower[keep], self._upper[keep], drawn[:, keep], self._group[keep], self._n_groups
        )


class _RowSampler:
    """Draws row by row, which is faster than by cells where groups are small."""

    def __init__(self, counts: Counts, group: Indices, totals: Counts, sizes: Indices) -> None:
        self._shape = counts.shape
        order = np.argsort(np.tile(group, len(counts)), kind="stable")  # cells group by group
        self._cell_of_row = np.repeat(order, counts.ravel()[order].astype(np.intp))
        self._first = np.repeat(np.cumsum(totals) - totals, sizes)
        self._totals = np.repeat(totals.astype(np.float64), sizes)

    def draw(self, rng: np.random.Generator) -> Counts:
        """Return how many rows of each kind and step are drawn."""
        rows = (rng.random(len(self._first)) * self._totals).astype(np.intp) + self._first
        cells = self._cell_of_row.take(rows)
        return np.bincount(cells, minlength=math.prod(self._shape)).reshape(self._shape)
