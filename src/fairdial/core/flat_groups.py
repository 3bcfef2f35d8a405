"""All groups' scores in flat arrays, so that many groups are read at once.

With a hundred groups, a hundred small reads would take most of the time of one answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Counts, Floats, Indices
from fairdial.core.group_scores import GroupScores
from fairdial.core.rates import MAX_PRICE, Rate


def starts_of(parts: Sequence[NDArray[np.generic]]) -> Indices:
    """Return where each part begins once they are joined."""
    sizes = [part.shape[-1] for part in parts]
    return np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.intp)


class FlatGroups:
    """The groups' scores one after the other, at each rank.

    A group and a rank are one *place*: ``starts[group] + rank``.

    Attributes
    ----------
    starts : (K,) intp
        Where each group begins.
    above, below : (N,) float64
        Smallest selected score, and largest score that isn't selected.
    selected : (C, N) int64 or float64
        Rows above the threshold, by kind.
    """

    def __init__(self, starts: Indices, above: Floats, below: Floats, selected: Counts) -> None:
        self.starts, self.above, self.below, self.selected = starts, above, below, selected

    @classmethod
    def join(cls, group_scores: Sequence[GroupScores]) -> FlatGroups:
        """Put the scores of groups one after the other."""
        highest, lowest = np.array([np.inf]), np.array([-np.inf])
        above = [part for scores in group_scores for part in (highest, scores.lower)]
        below = [part for scores in group_scores for part in (scores.upper, lowest)]
        selected = [scores.selected for scores in group_scores]
        return cls(
            starts_of(selected),
            np.concatenate(above),
            np.concatenate(below),
            np.concatenate(selected, axis=1),
        )

    @classmethod
    def from_counts(
        cls, lower: Floats, upper: Floats, counts: Counts, group: Indices, n_groups: int
    ) -> FlatGroups:
        """Join groups from the rows of all their steps by kind, (C, M), and each step's group."""
        before = np.arange(len(group)) + group  # the place before each step
        size = len(group) + n_groups
        starts = np.searchsorted(group, np.arange(n_groups)) + np.arange(n_groups)
        above, below = np.full(size, np.inf), np.full(size, -np.inf)
        above[before + 1], below[before] = lower, upper
        selected = np.zeros((len(counts), size), counts.dtype)
        selected[:, before + 1] = counts
        np.cumsum(selected, axis=1, out=selected)
        selected -= np.repeat(selected[:, starts], np.diff(np.append(starts, size)), axis=1)
        return cls(starts, above, below, selected)

    def __len__(self) -> int:
        return len(self.starts)

    def split(self) -> list[GroupScores]:
        """Return the scores of each group."""
        return [
            GroupScores(
                self.above[start + 1 : last + 1],
                self.below[start:last],
                self.selected[:, start : last + 1],
            )
            for start, last in zip(self.starts.tolist(), self.last.tolist(), strict=True)
        ]

    @cached_property
    def last(self) -> Indices:
        """(K,) the last place of each group."""
        return np.append(self.starts[1:], self.selected.shape[1]) - 1

    @property
    def totals(self) -> Counts:
        """(C, K) rows by kind and group."""
        return self.selected[:, self.last]

    def place(self, thresholds: Floats, first: Indices, last: Indices) -> Indices:
        """Return the place of each threshold, clipped to the places from ``first`` to ``last``."""
        low, high = first, last
        while (low < high).any():
            middle = (low + high) >> 1
            # what the next place selects is above the threshold; NaN is below all scores
            over = ~(self.above.take(np.minimum(middle + 1, last)) <= thresholds) & (low < high)
            low, high = np.where(over, middle + 1, low), np.where(over, high, middle)
        return low


class FlatSteps:
    """The eligible steps of all groups, one group after the other: rates, prices and moves.

    Attributes
    ----------
    start : (K,) intp
        The unconstrained rank among each group's eligible steps.
    starts : (K,) intp
        Where each group begins in what follows.
    rates : (M + K,) float64
        The rate at each rank.
    first_place, last_place : (M + K,) intp
        The places between which thresholds have this rate.
    """

    def __init__(self, flat: FlatGroups, rate: Rate, shares: Floats) -> None:
        self._rate, self._shares = rate, shares
        of = rate.eligible
        rows = flat.selected.sum(axis=0) if of is None else flat.selected[int(of)]
        n_groups, n_places = len(flat), len(rows)
        group = np.repeat(np.arange(n_groups), np.diff(np.append(flat.starts, n_places)))
        rates = rows / rows[flat.last][group]
        is_step = np.ones(n_places, np.bool_)  # from a place to the next one
        is_step[flat.last] = False
        if of is not None:
            is_step[:-1] &= rows[1:] != rows[:-1]
        before = np.flatnonzero(is_step)
        self._group = group[before]
        self._lower, self._upper = flat.above[before + 1], flat.below[before]
        self._from, self._to = rates[before], rates[before + 1]
        self._first = np.searchsorted(self._group, np.arange(n_groups))
        self._end = np.append(self._first[1:], len(before))
        self._zero = self._first + self._count(self._lower > 0)  # the first step below threshold 0
        self.start = self._zero - self._first
        self.starts = self._first + np.arange(n_groups)
        begins = np.zeros(n_places, np.bool_)
        begins[flat.starts] = begins[before + 1] = True
        self.first_place = np.flatnonzero(begins)
        self.last_place = np.append(self.first_place[1:], n_places) - 1
        self.rates: Floats = rates[self.first_place]

    def _count(self, which: NDArray[np.bool_]) -> Indices:
        """Return the number of such steps in each group."""
        return np.bincount(self._group[which], minlength=len(self._shares)).astype(np.intp)

    def _price(self, steps: Indices, ends: Floats) -> Floats:
        shares = self._shares[self._group[steps]]
        return np.clip(self._rate.price(ends[steps], shares), -MAX_PRICE, MAX_PRICE)

    def floor_moves(self, top: float) -> tuple[Floats, Floats, Floats, Indices]:
        """Return price, level, reach and group of the moves that raise each group.

        They start at rates below ``top``; each group's move after them is included.
        """
        stop = np.maximum(self._first + self._count(self._from < top), self._zero)
        stop = np.minimum(stop + 1, self._end)
        steps = self._between(self._zero, stop)
        prices = -self._price(steps, self._lower)
        prices[self._lower[steps] == -np.inf] = np.inf
        return prices, self._from[steps], self._to[steps], self._group[steps]

    def ceiling_moves(self, bottom: float) -> tuple[Floats, Floats, Floats, Indices]:
        """Return the moves that lower each group, from rates above ``bottom``, and one more."""
        begin = np.minimum(self._first + self._count(self._to <= bottom), self._zero) - 1
        begin = np.maximum(begin, self._first)
        steps = self._between(begin, self._zero)
        steps = (begin + self._zero - 1)[self._group[steps]] - steps  # descending in each group
        prices = self._price(steps, self._upper)
        return prices, self._to[steps], self._from[steps], self._group[steps]

    def _between(self, begin: Indices, end: Indices) -> Indices:
        """Return the steps of each group from ``begin`` to before ``end``."""
        steps = np.arange(len(self._group))
        group = self._group
        return np.flatnonzero((steps >= begin[group]) & (steps < end[group]))
