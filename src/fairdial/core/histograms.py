"""Scores in bins, and exact answers from the few bins on which they depend.

Rows are counted by cell (a group and a kind) and bin. A bin includes its upper edge. Edges are
multiples of a power of two, and 0 is one of them, so finding a score's bin is exact in the score's
own dtype, and so are counts at the edges. The first and the last bin extend to infinity. Counts of
disjoint rows add up. If the rows can be read again, chosen bins can be opened into their distinct
scores (:meth:`Binned.open_bins`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fairdial._arrays import (
    Codes,
    Counts,
    Dtype,
    Floats,
    Indices,
    Kinds,
    Mask,
    Scores,
    Weights,
    exact_weights,
)
from fairdial._validation import raise_nan
from fairdial.core.criteria import Criterion
from fairdial.core.decide import count_kinds, sum_by_cell
from fairdial.core.group_scores import GroupScores, sort_group
from fairdial.core.threshold_path import ThresholdPath

REACH = 16.0  # the inner bins lie between -REACH and REACH
SPAN = 5  # log2(2 * REACH)
BITS = 14  # of a Histogram: 2^14 bins per cell, 2^-9 wide
CHUNK = 1 << 16


@dataclass(frozen=True)
class Grid:
    """2^bits bins over (-16, 16], the highest scores first; the end bins extend to infinity."""

    bits: int

    @property
    def size(self) -> int:
        """Number of bins."""
        return 1 << self.bits

    @property
    def half(self) -> int:
        """The bin whose upper edge is 0."""
        return self.size >> 1

    @property
    def scale(self) -> float:
        """Number of bins per unit of score."""
        return 2.0 ** (self.bits - SPAN)

    @property
    def middles(self) -> Floats:
        """(size,) middles of the bins, as if the end bins were as wide as the others."""
        return np.asarray((np.arange(self.size) + (0.5 - self.half)) / -self.scale)

    def upper(self, bins: Indices) -> Floats:
        """Return the upper edges of bins."""
        return np.where(bins == 0, np.inf, (bins - self.half) / -self.scale)

    def with_upper(self, edges: Floats) -> Indices:
        """Return the bins that have these upper edges."""
        bins = np.clip(np.floor(edges * -self.scale), -self.half, self.half - 1)
        return bins.astype(np.intp) + self.half

    def write_keys(self, scores: Scores, cells: Codes, keys: Codes) -> bool:
        """Write the keys, ``cell * size + bin``, of a chunk of rows; return False on NaN."""
        with np.errstate(over="ignore"):
            bins = np.multiply(scores, -self.scale)  # exact: a power of two
        np.floor(bins, out=bins)
        low, high = bins.min(), bins.max()
        if not (low >= -self.half and high < self.half):  # most chunks need no clipping
            if np.isnan(low):
                return False
            np.clip(bins, -self.half, self.half - 1, out=bins)
        bins += self.half
        np.copyto(keys, bins, casting="unsafe")
        shifted = cells.astype(keys.dtype)
        shifted <<= self.bits
        keys |= shifted
        return True

    def group_scores(self, counts: Counts, dtype: Dtype) -> GroupScores:
        """Return one group's non-empty bins, from its counts by kind and bin, (C, size)."""
        bins = np.flatnonzero(counts.any(axis=0))
        edge = (bins + (1 - self.half)) / -self.scale  # this score is in the next bin
        lower = np.nextafter(edge.astype(dtype), np.inf).astype(np.float64)
        lower[bins == self.size - 1] = -np.inf
        return GroupScores.from_counts(lower, self.upper(bins), counts[:, bins])


def add_to_bins(
    counts: Counts, grid: Grid, scores: Scores, cells: Codes, weights: Weights | None = None
) -> bool:
    """Add rows to contiguous counts by cell and bin, in place; return False on NaN."""
    flat = counts.reshape(-1)
    buffer = np.empty(min(CHUNK, len(scores)), np.intp)
    for start in range(0, len(scores), CHUNK):
        chunk = scores[start : start + CHUNK]
        keys = buffer[: len(chunk)]
        if not grid.write_keys(chunk, cells[start : start + CHUNK], keys):
            return False
        np.add.at(flat, keys, 1 if weights is None else weights[start : start + CHUNK])
    return True


class Binned(ABC):
    """Groups' scores in bins that can be opened into their distinct scores.

    Parameters
    ----------
    counts : (K, C, 2^bits) int64 or float64
        Rows by group, kind and bin.
    dtype : dtype
        Dtype of the scores.
    """

    def __init__(self, counts: Counts, dtype: Dtype) -> None:
        self.counts = counts
        self.grid = Grid(counts.shape[2].bit_length() - 1)
        self.group_scores = [self.grid.group_scores(group, dtype) for group in counts]

    @abstractmethod
    def _distinct_scores(self, flags: Mask, groups: Sequence[int]) -> Iterable[GroupScores]:
        """Return the distinct scores of these groups' rows whose keys are flagged."""

    def open_bins(self, wanted: Sequence[Indices]) -> None:
        """Replace the bins at these positions of each group by their distinct scores."""
        flags = np.zeros(self.counts.shape, np.bool_)
        for group, (scores, bins) in enumerate(zip(self.group_scores, wanted, strict=True)):
            flags[group][:, self.grid.with_upper(scores.upper[bins])] = True
        groups = [group for group, bins in enumerate(wanted) if len(bins)]
        found = self._distinct_scores(flags.reshape(-1), groups)
        for group, distinct in zip(groups, found, strict=True):
            self.group_scores[group] = _replace(self.group_scores[group], wanted[group], distinct)


class Histogram(Binned):
    """Scores of rows in memory: binned in one pass, with another pass per :meth:`open_bins`.

    Exact answers to a few tolerances are then cheaper than sorting all rows. The parameters are
    those of :func:`fairdial.core.group_scores.sort_scores`.
    """

    def __init__(
        self,
        logits: Scores,
        codes: Codes,
        kinds: Kinds | None,
        n_groups: int,
        n_kinds: int | None = None,
        weights: Weights | None = None,
    ) -> None:
        n_kinds = count_kinds(kinds) if n_kinds is None else n_kinds
        grid, size = Grid(BITS), n_groups * n_kinds << BITS
        self._logits = logits
        self._weights = None if weights is None else exact_weights(weights)
        self._keys: Codes = np.empty(len(logits), np.uint16 if size <= 1 << 16 else np.int32)
        dtype = np.int64 if self._weights is None else self._weights.dtype
        counts, counted = np.zeros(size, dtype), 0
        for start in range(0, len(logits), CHUNK):
            rows = slice(start, start + CHUNK)
            keys = self._keys[rows]
            cells = codes[rows].astype(keys.dtype)
            if kinds is not None:
                cells *= n_kinds
                cells += kinds[rows].astype(keys.dtype, copy=False)
            if not grid.write_keys(logits[rows], cells, keys):
                raise_nan(logits, "logits")
            stop = start + len(keys)
            if stop - counted >= 4 * size or stop == len(logits):  # many more rows than bins
                own = None if self._weights is None else self._weights[counted:stop]
                counts += sum_by_cell(self._keys[counted:stop], size, own)
                counted = stop
        super().__init__(counts.reshape(n_groups, n_kinds, grid.size), logits.dtype)

    def _distinct_scores(self, flags: Mask, groups: Sequence[int]) -> Iterable[GroupScores]:
        flagged = np.empty(len(self._keys), np.bool_)
        index = np.empty(min(CHUNK, len(self._keys)), np.intp)  # take would convert all at once
        for start in range(0, len(self._keys), CHUNK):
            keys = self._keys[start : start + CHUNK]
            index[: len(keys)] = keys
            out = flagged[start : start + CHUNK]
            np.take(flags, index[: len(keys)], out=out, mode="clip")
        rows = np.flatnonzero(flagged)
        logits, cells = self._logits.take(rows), self._keys.take(rows) >> self.grid.bits
        weights = None if self._weights is None else self._weights.take(rows)
        n_kinds = self.counts.shape[1]
        of_group = cells // n_kinds
        for group in groups:
            own = np.flatnonzero(of_group == group)
            kinds = cells.take(own) - group * n_kinds
            yield sort_group(
                logits.take(own), kinds, n_kinds, None if weights is None else weights.take(own)
            )


def _replace(scores: GroupScores, bins: Indices, distinct: GroupScores) -> GroupScores:
    """Return the scores with some bins replaced by the distinct scores of the same rows."""
    keep = np.ones(len(scores), np.bool_)
    keep[bins] = False
    lower = np.concatenate((scores.lower[keep], distinct.lower))
    upper = np.concatenate((scores.upper[keep], distinct.upper))
    counts = np.concatenate((scores.counts[:, keep], distinct.counts), axis=1)
    order = np.argsort(-upper, kind="stable")
    return GroupScores.from_counts(lower[order], upper[order], counts[:, order])


def refine(
    binned: Binned,
    criterion: Criterion,
    dtype: Dtype,
    tolerances: Floats,
    *,
    margin: int = 0,
) -> ThresholdPath:
    """Return a path whose answers to ``tolerances`` are exact, opening only the bins they need.

    The answer to a tolerance depends only on the part of the path between the last point whose
    width is above the tolerance and the point that is chosen: the width never increases, so no
    earlier point can be within the tolerance. Where every step that this part touches is a single
    score, it equals the exact path.

    ``margin`` neighbors are opened with each bin, at least one for more than two groups, because
    their prices add up. A larger margin saves passes where opening bins is expensive.
    """
    if len(binned.group_scores) != 2:
        margin = max(margin, 1)
    while True:
        path = ThresholdPath(binned.group_scores, criterion, dtype)
        chosen, feasible = path.find(tolerances)
        depends = (chosen > 0) | ~feasible  # the first point's threshold, 0, is an edge
        chosen, feasible, wanted = chosen[depends], feasible[depends], tolerances[depends]
        reached = np.where(feasible, wanted, np.maximum(wanted, path.gap[chosen]))
        before = np.searchsorted(-path.width, -reached, side="left") - 1
        after = np.where(feasible, chosen, len(path) - 1)
        bins = path.bins_between(np.maximum(before, 0), after, margin)
        if not any(map(len, bins)):
            return path
        binned.open_bins(bins)
