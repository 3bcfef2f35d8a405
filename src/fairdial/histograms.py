"""Scores in bins: rows counted by cell (a group and a label) and bin, and bins that open.

A bin is closed above. Its edges are multiples of a power of two and 0 is one of them, so scaling a
score to its bin is exact in the score's own dtype, and so are counts at the edges. The first and
the last bin are open-ended. Counts of disjoint rows add up; whoever can read the rows again opens
chosen bins into their distinct scores (:meth:`Binned.split`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._validation import raise_nan
from fairdial.ladders import Counts, Floats, Indices, Ladder, Scores, ladder_of

REACH = 16.0  # the first and the last edge stand within this
SPAN = 5  # log2 of what lies between -REACH and REACH
BITS = 14  # bins of rows in memory: 2^14 a cell, 2^-9 wide
CHUNK = 1 << 16


@dataclass(frozen=True)
class Grid:
    """2^bits bins over (-16, 16], the highest scores first; the end bins reach to infinity."""

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
        """Bins in a unit of score."""
        return 2.0 ** (self.bits - SPAN)

    @property
    def middles(self) -> Floats:
        """(size,) middles of the bins; the end bins count as wide as the others."""
        return np.asarray((np.arange(self.size) + (0.5 - self.half)) / -self.scale)

    def upper(self, bins: Indices) -> Floats:
        """Upper edges of bins."""
        return np.where(bins == 0, np.inf, (bins - self.half) / -self.scale)

    def with_upper(self, edges: Floats) -> Indices:
        """Bins that have these upper edges."""
        bins = np.clip(np.floor(edges * -self.scale), -self.half, self.half - 1)
        return bins.astype(np.intp) + self.half

    def write_keys(
        self, scores: Scores, cells: NDArray[np.integer[Any]], keys: NDArray[np.integer[Any]]
    ) -> bool:
        """Write ``cell * size + bin`` of each row, of a chunk; False where a score is NaN."""
        with np.errstate(over="ignore"):
            bins = np.multiply(scores, -self.scale)  # exact: a power of two
        np.floor(bins, out=bins)
        low, high = bins.min(), bins.max()
        if not (low >= -self.half and high < self.half):  # rare: most scores need no clipping
            if np.isnan(low):
                return False
            np.clip(bins, -self.half, self.half - 1, out=bins)
        bins += self.half
        np.copyto(keys, bins, casting="unsafe")
        shifted = cells.astype(keys.dtype)
        shifted <<= self.bits
        keys |= shifted
        return True

    def ladder(self, counts: Counts, dtype: np.dtype[Any]) -> Ladder:
        """The bins of one group that hold rows, of its rows by label and bin, as atoms."""
        bins = np.flatnonzero(counts.any(axis=0))
        edge = (bins + (1 - self.half)) / -self.scale  # the score itself belongs to the next bin
        lower = np.nextafter(edge.astype(dtype), np.inf).astype(np.float64)
        lower[bins == self.size - 1] = -np.inf
        return Ladder.of_counts(lower, self.upper(bins), counts[:, bins])


def count_rows_in(
    counts: Counts, grid: Grid, scores: Scores, cells: NDArray[np.integer[Any]]
) -> bool:
    """Add rows to counts of cells and bins, in one piece of memory; False where one is NaN."""
    flat = counts.reshape(-1)
    keys = np.empty(min(CHUNK, len(scores)), np.intp)
    for start in range(0, len(scores), CHUNK):
        piece = scores[start : start + CHUNK]
        found = keys[: len(piece)]
        if not grid.write_keys(piece, cells[start : start + CHUNK], found):
            return False
        np.add.at(flat, found, 1)
    return True


class Binned(ABC):
    """Ladders of bins that can be opened into the distinct scores of their rows.

    Parameters
    ----------
    counts : (K, L, 2^bits) int64
        Rows by group, label (L is 1 without labels) and bin.
    dtype : dtype
        Of the scores.
    """

    def __init__(self, counts: Counts, dtype: np.dtype[Any]) -> None:
        self.counts = counts
        self.grid = Grid(counts.shape[2].bit_length() - 1)
        self.ladders = [self.grid.ladder(group, dtype) for group in counts]

    @abstractmethod
    def _open(self, flags: NDArray[np.bool_], groups: Sequence[int]) -> Iterable[Ladder]:
        """The exact ladders of these groups' rows whose key is flagged."""

    def split(self, wanted: Sequence[Indices]) -> None:
        """Open the wide atoms at these positions of each ladder into their distinct scores."""
        flags = np.zeros(self.counts.shape, np.bool_)
        for group, (ladder, atoms) in enumerate(zip(self.ladders, wanted, strict=True)):
            flags[group][:, self.grid.with_upper(ladder.upper[atoms])] = True
        groups = [group for group, atoms in enumerate(wanted) if len(atoms)]
        for group, fine in zip(groups, self._open(flags.reshape(-1), groups), strict=True):
            self.ladders[group] = _replace(self.ladders[group], wanted[group], fine)


class Histogram(Binned):
    """Rows in memory: one pass counts, and each :meth:`split` is another.

    So the cost of an exact answer doesn't include sorting all rows.
    """

    def __init__(
        self,
        logits: Scores,
        codes: NDArray[Any],
        positive: NDArray[np.bool_] | None,
        n_groups: int,
    ) -> None:
        grid, n_labels = Grid(BITS), 1 if positive is None else 2
        size = n_groups * n_labels << BITS
        self._logits = logits
        self._keys: NDArray[np.integer[Any]]
        self._keys = np.empty(len(logits), np.uint16 if size <= 1 << 16 else np.int32)
        counts, counted = np.zeros(size, np.int64), 0
        for start in range(0, len(logits), CHUNK):
            rows = slice(start, start + CHUNK)
            keys = self._keys[rows]
            cells = codes[rows].astype(keys.dtype)
            if positive is not None:
                cells <<= 1
                cells |= positive[rows]
            if not grid.write_keys(logits[rows], cells, keys):
                raise_nan(logits, "logits")
            stop = start + len(keys)
            if stop - counted >= 4 * size or stop == len(logits):  # many more rows than bins
                counts += np.bincount(self._keys[counted:stop], minlength=size)
                counted = stop
        super().__init__(counts.reshape(n_groups, n_labels, grid.size), logits.dtype)

    def _open(self, flags: NDArray[np.bool_], groups: Sequence[int]) -> Iterable[Ladder]:
        open_rows = np.empty(len(self._keys), np.bool_)
        index = np.empty(min(CHUNK, len(self._keys)), np.intp)  # what take would convert at once
        for start in range(0, len(self._keys), CHUNK):
            keys = self._keys[start : start + CHUNK]
            index[: len(keys)] = keys
            into = open_rows[start : start + CHUNK]
            np.take(flags, index[: len(keys)], out=into, mode="clip")
        rows = np.flatnonzero(open_rows)
        logits, cells = self._logits.take(rows), self._keys.take(rows) >> self.grid.bits
        n_labels = self.counts.shape[1]
        for group in groups:
            own = range(group * n_labels, (group + 1) * n_labels)
            yield ladder_of([logits.take(np.flatnonzero(cells == cell)) for cell in own])


def _replace(ladder: Ladder, atoms: Indices, fine: Ladder) -> Ladder:
    """The ladder with some atoms replaced by finer ones that hold the same rows."""
    keep = np.ones(len(ladder), np.bool_)
    keep[atoms] = False
    lower = np.concatenate((ladder.lower[keep], fine.lower))
    upper = np.concatenate((ladder.upper[keep], fine.upper))
    counts = np.concatenate((ladder.counts[:, keep], fine.counts), axis=1)
    order = np.argsort(-upper, kind="stable")
    return Ladder.of_counts(lower[order], upper[order], counts[:, order])
