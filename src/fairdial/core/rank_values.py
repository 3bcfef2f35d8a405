"""The value of a group by rank, and its best rank in an interval."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fairdial._arrays import Floats, Indices
from fairdial.core.rank_rates import Array

BLOCK = 32


class RankValues:
    """The values of one group by rank, prepared for "best rank in an interval"."""

    def __init__(self, values: Floats) -> None:
        self.values = values
        self.peak = int(values.argmax())
        rising, falling = values[: self.peak + 1], values[self.peak :]
        self.unimodal = bool(
            (rising[1:] >= rising[:-1]).all() and (falling[1:] <= falling[:-1]).all()
        )

    @cached_property
    def _maxima(self) -> RangeMaxima:
        return RangeMaxima(self.values)

    @cached_property
    def by_value(self) -> Indices:
        """Ranks in the order of their values, best first."""
        return np.argsort(-self.values, kind="stable")

    def best(self, lo: Indices, hi: Indices) -> Indices:
        """Return the best rank in each interval."""
        if self.unimodal:
            return np.minimum(np.maximum(lo, self.peak), hi)
        return self._maxima.best(lo, hi)

    def best_within(
        self, lo: Indices, hi: Indices, rates: Sequence[Array], low: Floats, high: Floats
    ) -> Indices:
        """Return the best rank in each interval whose rates are within limits (B, J'), or -1."""
        found = np.full(len(lo), -1)
        waiting, start, size = np.arange(len(lo)), 0, 64
        while len(waiting) and start < len(self.values):
            ranks = self.by_value[start : start + size]
            allowed = (ranks >= lo[waiting, None]) & (ranks <= hi[waiting, None])
            for j, rate in enumerate(rates):
                chosen = rate[ranks]
                allowed &= ~(  # NaN is always allowed
                    (chosen < low[waiting, j, None]) | (chosen > high[waiting, j, None])
                )
            first = allowed.argmax(axis=1)
            done = allowed[np.arange(len(waiting)), first]
            found[waiting[done]] = ranks[first[done]]
            waiting, start = waiting[~done], start + size
            size = min(2 * size, max(64, 2**22 // max(1, len(waiting))))
        return found


class RangeMaxima:
    """Answers "where is the largest value between two positions?" for many ranges at once.

    The ends of a range are scanned; whole blocks are looked up in a sparse table. The table takes
    n / 32 log(n / 32) positions.
    """

    def __init__(self, values: Floats) -> None:
        self.values = values
        n_blocks = len(values) // BLOCK  # an incomplete last block is only ever scanned
        inside = values[: n_blocks * BLOCK].reshape(n_blocks, BLOCK)
        table = [inside.argmax(axis=1) + np.arange(n_blocks) * BLOCK]
        width = 1
        while 2 * width <= n_blocks:
            left, right = table[-1], table[-1].copy()
            right[:-width] = left[width:]
            table.append(np.where(values[right] > values[left], right, left))
            width *= 2
        self._table: Indices = np.stack(table)  # (levels, blocks)

    def best(self, first: Indices, last: Indices) -> Indices:
        """Return the position of the largest value in each range, ends included."""
        steps = np.arange(BLOCK)
        left = np.minimum(first[:, None] + steps, last[:, None])
        right = np.maximum(last[:, None] - steps, first[:, None])
        rows = np.arange(len(first))
        found = left[rows, self.values[left].argmax(axis=1)]
        found = self._better(found, right[rows, self.values[right].argmax(axis=1)])
        start, stop = -(-first // BLOCK), (last + 1) // BLOCK  # whole blocks inside
        wide = np.flatnonzero(stop > start)
        if len(wide):
            start, stop = start[wide], stop[wide]
            level = np.frexp(stop - start)[1] - 1  # floor of log2
            middle = self._better(
                self._table[level, start], self._table[level, stop - (1 << level)]
            )
            found[wide] = self._better(found[wide], middle)
        return found

    def _better(self, first: Indices, second: Indices) -> Indices:
        return np.where(self.values[second] > self.values[first], second, first)
