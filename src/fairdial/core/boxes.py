"""Boxes of ranks and rates, as the search divides them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairdial._arrays import Floats, Indices, Mask


@dataclass(frozen=True, eq=False)
class Boxes:
    """An interval of ranks per group, and of rates per limit whose rates aren't monotone."""

    lo: Indices  # (B, K) lowest rank
    hi: Indices  # (B, K) highest rank
    low: Floats  # (B, J') lowest rate
    high: Floats  # (B, J') highest rate

    def __len__(self) -> int:
        return len(self.lo)

    def take(self, which: Indices | Mask) -> Boxes:
        """Return a copy of some of the boxes."""
        return Boxes(self.lo[which], self.hi[which], self.low[which], self.high[which])

    def repeat(self, n_times: int) -> Boxes:
        """Return every box several times in a row."""
        return Boxes(
            self.lo.repeat(n_times, axis=0),
            self.hi.repeat(n_times, axis=0),
            self.low.repeat(n_times, axis=0),
            self.high.repeat(n_times, axis=0),
        )

    @staticmethod
    def join(batches: Sequence[Boxes]) -> Boxes:
        """Return the boxes of several batches."""
        if len(batches) == 1:
            return batches[0]
        return Boxes(
            np.concatenate([batch.lo for batch in batches]),
            np.concatenate([batch.hi for batch in batches]),
            np.concatenate([batch.low for batch in batches]),
            np.concatenate([batch.high for batch in batches]),
        )


@dataclass(frozen=True, eq=False)
class Candidates:
    """Boxes with an upper bound of their values, and ranks that are best or close to it."""

    boxes: Boxes
    ranks: Indices  # (B, K)
    bound: Floats  # (B,)
    pivot: Indices  # (B,) group to split because of a total; -1: the ranks have the bound's value
    split: Indices  # (B,) its highest rank in the first part; -1: equal parts

    def __len__(self) -> int:
        return len(self.bound)

    def take(self, which: Indices | Mask) -> Candidates:
        """Return a copy of some of the boxes."""
        return Candidates(
            self.boxes.take(which),
            self.ranks[which],
            self.bound[which],
            self.pivot[which],
            self.split[which],
        )

    def pop(self, n_boxes: int) -> tuple[Candidates, Candidates | None]:
        """Return the boxes with the largest bounds, and the others."""
        if len(self) <= n_boxes:
            return self, None
        order = np.argpartition(-self.bound, n_boxes)
        return self.take(order[:n_boxes]), self.take(order[n_boxes:])

    def join(self, other: Candidates | None) -> Candidates:
        """Return the boxes of both."""
        if other is None:
            return self
        return Candidates(
            Boxes.join([self.boxes, other.boxes]),
            np.concatenate((self.ranks, other.ranks)),
            np.concatenate((self.bound, other.bound)),
            np.concatenate((self.pivot, other.pivot)),
            np.concatenate((self.split, other.split)),
        )
