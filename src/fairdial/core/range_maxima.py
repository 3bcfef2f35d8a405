"""Positions of the largest value in ranges of an array."""

from __future__ import annotations

import numpy as np

from fairdial._arrays import Floats, Indices

BLOCK = 32


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
