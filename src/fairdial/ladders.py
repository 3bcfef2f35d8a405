"""Scores as ladders: each group's scores from the highest down, in atoms with label counts.

A threshold stands between two atoms; what it selects depends on its *rank* alone, the number of
atoms above it. Ties are one atom. Two ways lead here:

- :func:`sort_scores`: every distinct score is an atom;
- :class:`Histogram`: an atom is a bin, closed above, with edges at multiples of a power of two
  (0 is one of them), so that counts at the edges are exact; :meth:`Histogram.split` opens the bins
  that matter into their distinct scores.
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

BITS = 14  # bins a group and label: 2^14, 2^-9 wide, over (-16, 16]
SCALE = 2.0 ** (BITS - 5)
CHUNK = 1 << 16


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


def _ladder(scores: Sequence[Scores]) -> Ladder:
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
    return [_ladder(runs) for runs in _split_runs(logits, codes, positive, n_groups)]


class Histogram:
    """Counts by group, label and bin, with the rows at hand to open bins exactly.

    One pass counts; each :meth:`split` is another pass that collects the rows of the bins asked
    for, so that the cost of an exact answer doesn't include sorting all rows.
    """

    def __init__(
        self,
        logits: Scores,
        codes: NDArray[Any],
        positive: NDArray[np.bool_] | None,
        n_groups: int,
    ) -> None:
        self._logits = logits
        n_labels = 1 if positive is None else 2
        cells = n_groups * n_labels
        size = cells << BITS
        kind = np.dtype(np.uint16 if size <= 1 << 16 else np.int32)
        # cell * 2^BITS + bin, bins descending
        self._keys: NDArray[np.integer[Any]] = np.empty(len(logits), kind)
        counts = np.zeros(size, np.int64)
        half = 1 << (BITS - 1)
        scratch = np.empty(min(CHUNK, len(logits)), logits.dtype)
        counted = 0
        for start in range(0, len(logits), CHUNK):
            rows = slice(start, start + CHUNK)
            bins, keys = scratch[: len(logits[rows])], self._keys[rows]
            with np.errstate(over="ignore"):
                np.multiply(logits[rows], -SCALE, out=bins)  # exact: a power of two
            np.floor(bins, out=bins)
            low, high = bins.min(), bins.max()
            if not (low >= -half and high < half):  # rare: most scores need no clipping
                if np.isnan(low):
                    raise_nan(logits, "logits")
                np.clip(bins, -half, half - 1, out=bins)
            bins += half
            np.copyto(keys, bins, casting="unsafe")
            cell = codes[rows].astype(keys.dtype)
            if positive is not None:
                cell <<= 1
                cell |= positive[rows]
            cell <<= BITS
            keys |= cell
            stop = start + len(keys)
            if stop - counted >= 4 * size or stop == len(logits):  # many more rows than bins
                counts += np.bincount(self._keys[counted:stop], minlength=size)
                counted = stop
        self.counts = counts.reshape(n_groups, n_labels, 1 << BITS)
        self.ladders = [self._bins(counts) for counts in self.counts]

    def _bins(self, counts: Counts) -> Ladder:
        """Bins of one group that hold rows, as atoms (edge, next edge]."""
        bins = np.flatnonzero(counts.any(axis=0))
        upper = (bins - (1 << (BITS - 1))) / -SCALE
        lower = np.nextafter((upper - 1 / SCALE).astype(self._logits.dtype), np.inf)
        lower = lower.astype(np.float64)
        upper[bins == 0], lower[bins == (1 << BITS) - 1] = np.inf, -np.inf
        return Ladder.of_counts(lower, upper, counts[:, bins])

    def split(self, wanted: Sequence[Indices]) -> None:
        """Open the wide atoms at these positions of each ladder into their distinct scores."""
        n_labels = self.counts.shape[1]
        flags = np.zeros(self.counts.size, np.bool_)
        cells = flags.reshape(self.counts.shape)
        for group, (ladder, atoms) in enumerate(zip(self.ladders, wanted, strict=True)):
            cells[group][:, _bin_of(ladder.upper[atoms])] = True
        open_rows = np.empty(len(self._keys), np.bool_)
        index = np.empty(min(CHUNK, len(self._keys)), np.intp)  # what take would convert at once
        for start in range(0, len(self._keys), CHUNK):
            keys = self._keys[start : start + CHUNK]
            index[: len(keys)] = keys
            into = open_rows[start : start + CHUNK]
            np.take(flags, index[: len(keys)], out=into, mode="clip")
        rows = np.flatnonzero(open_rows)
        logits = self._logits.take(rows)
        cell = self._keys.take(rows) >> BITS
        for group, atoms in enumerate(wanted):
            if len(atoms) == 0:
                continue
            runs = [
                logits.take(np.flatnonzero(cell == group * n_labels + label))
                for label in range(n_labels)
            ]
            self.ladders[group] = _replace(self.ladders[group], atoms, _ladder(runs))


def _bin_of(upper: Floats) -> Indices:
    """Bin whose upper edge this is."""
    half = 1 << (BITS - 1)
    return np.clip(np.floor(upper * -SCALE), -half, half - 1).astype(np.intp) + half


def _replace(ladder: Ladder, atoms: Indices, fine: Ladder) -> Ladder:
    """The ladder with some atoms replaced by finer ones that hold the same rows."""
    keep = np.ones(len(ladder), np.bool_)
    keep[atoms] = False
    lower = np.concatenate((ladder.lower[keep], fine.lower))
    upper = np.concatenate((ladder.upper[keep], fine.upper))
    counts = np.concatenate((ladder.counts[:, keep], fine.counts), axis=1)
    order = np.argsort(-upper, kind="stable")
    return Ladder.of_counts(lower[order], upper[order], counts[:, order])
