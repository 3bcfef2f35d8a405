"""Limits on the number of selected rows over all groups, by a price per row.

A price turns a limit on the total into a change of values: every group maximizes its value minus
the price times its selected rows. At the price where the total crosses the limit, this is an upper
bound of the value of all ranks that keep the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, floor
from typing import Literal

import numpy as np

from fairdial._arrays import Floats, Indices, Mask
from fairdial.core.rank_rates import Array
from fairdial.core.rank_values import RankValues

Side = Literal["left", "right"]


@dataclass(frozen=True, eq=False)
class Total:
    """Limits on the number of selected rows over all groups (a budget).

    Attributes
    ----------
    selected : tuple of (m_a + 1,) arrays
        Selected rows of each group at each rank, int64 or float64; non-decreasing.
    most, least : Fraction
        Largest and smallest sum over the groups.
    """

    selected: tuple[Array, ...]
    most: Fraction
    least: Fraction = Fraction(0)


@dataclass(frozen=True, eq=False)
class PricedValues:
    """Values minus a fixed price per selected row, of all groups."""

    values: list[RankValues]
    refund: float  # price times limit

    def best(self, lo: Indices, hi: Indices) -> tuple[Indices, Floats]:
        """Return the best ranks in intervals (B, K), and an upper bound of the value (B,)."""
        ranks, bound = np.empty_like(lo), np.full(len(lo), self.refund)
        for a, group in enumerate(self.values):
            ranks[:, a] = group.best(lo[:, a], hi[:, a])
            bound += group.values[ranks[:, a]]
        return ranks, bound


class RankTotals:
    """A total prepared for searches.

    Every box has its own price. For this, values that aren't concave in the number of selected
    rows are replaced by their least concave majorant. The bound is then too large in small boxes,
    so that values at a few fixed prices are used as well.
    """

    def __init__(self, total: Total, values: Sequence[RankValues]) -> None:
        self.selected = [np.asarray(part) for part in total.selected]
        self.values = values
        whole = all(np.issubdtype(part.dtype, np.integer) for part in self.selected)
        self.most = floor(total.most) if whole else float(total.most)
        self.least = ceil(total.least) if whole else float(total.least)
        self._dtype = np.int64 if whole else np.float64

    @cached_property
    def _concave(self) -> list[tuple[Floats, Floats]]:
        """Concave values of each group, and minus their slopes, ascending."""
        return [
            concave_majorant(part, group.values)
            for part, group in zip(self.selected, self.values, strict=True)
        ]

    @cached_property
    def _prices(self) -> Floats:
        """All prices at which a group changes its rank, ascending, and 0."""
        return np.sort(np.concatenate([[0.0], *(-slopes for _, slopes in self._concave)]))

    @cached_property
    def is_concave(self) -> bool:
        """Whether all values are concave in the number of selected rows, but for rounding."""
        pairs = zip(self._concave, self.values, strict=True)
        gap = sum(float((concave - group.values).max()) for (concave, _), group in pairs)
        return gap <= 1e-13 * sum(float(np.abs(group.values).max()) for group in self.values)

    def fix_price(self, lo: Indices, hi: Indices) -> PricedValues:
        """Return the values at the price of one box (1, K)."""
        side: Side = "left" if self._is_over(lo, hi)[0] else "right"
        limit = self.most if side == "left" else self.least
        price = float(self._find_price(lo, hi, side)[0])
        values = [
            RankValues(group.values - price * part)
            for part, group in zip(self.selected, self.values, strict=True)
        ]
        return PricedValues(values, price * limit)

    def sum(self, ranks: Indices) -> Array:
        """Return the number of selected rows at ranks (B, K)."""
        total = np.zeros(len(ranks), self._dtype)
        for part, chosen in zip(self.selected, ranks.T, strict=True):
            total += part[chosen]
        return total

    def fit(self, ranks: Indices) -> Mask:
        """Return whether ranks (B, K) keep the limits."""
        total = self.sum(ranks)
        return (self.least <= total) & (total <= self.most)

    def reachable(self, lo: Indices, hi: Indices) -> Mask:
        """Return whether rank intervals may hold ranks that keep the limits."""
        return (self.sum(lo) <= self.most) & (self.sum(hi) >= self.least)

    def _is_over(self, lo: Indices, hi: Indices) -> Mask:
        """Return whether the upper limit binds: even the fewest best ranks exceed it."""
        return self.sum(self._best_at(np.zeros(len(lo)), lo, hi, "left")) > self.most

    def relax(
        self, lo: Indices, hi: Indices, priced: Sequence[PricedValues] = ()
    ) -> tuple[Indices, Floats, Indices, Indices]:
        """Return ranks, an upper bound of the value, and where to split each box.

        The ranks keep the limit that binds, if possible with no more than one group, the *pivot*,
        short of the bound. A box is split between two ranks of this group. Values at fixed prices
        (``priced``) lower the bound.

        Returns
        -------
        ranks : (B, K)
        bound : (B,)
        pivot : (B,)
            The group to split.
        split : (B,)
            Highest rank of the pivot in the first part; -1 for equal parts.
        """
        ranks, bound = np.empty_like(lo), np.empty(len(lo))
        pivot, split = np.full((2, len(lo)), -1)
        over = self._is_over(lo, hi)
        sides: tuple[Side, Side] = ("left", "right")
        for side in sides:
            rows = np.flatnonzero(over if side == "left" else ~over)
            if not len(rows):
                continue
            limit = self.most if side == "left" else self.least
            low, high = lo[rows], hi[rows]
            price = self._find_price(low, high, side)
            few = self._best_at(price, low, high, "left")
            many = self._best_at(price, low, high, "right")
            begin, end = (few, many) if side == "left" else (many, few)
            total = self.sum(begin)
            bound[rows] = price * (limit - total)
            for (concave, _), chosen in zip(self._concave, begin.T, strict=True):
                bound[rows] += concave[chosen]
            ranks[rows], pivot[rows] = self._fill(begin, end, limit - total)
            split[rows] = ranks[rows, pivot[rows]] - (side == "right")
        for prices in priced:
            found, fixed = prices.best(lo, hi)
            bound = np.minimum(bound, fixed)
            fits = self.fit(found)
            ranks[fits], pivot[:] = found[fits], -1
        # Without a pivot, split the widest interval.
        split[pivot < 0] = -1
        pivot = np.where(pivot < 0, (hi - lo).argmax(axis=1), pivot)
        return ranks, bound, pivot, split

    def _best_at(self, price: Floats, lo: Indices, hi: Indices, side: Side) -> Indices:
        """Return the fewest ("left") or most ("right") ranks that are best at a price per row."""
        ranks = np.empty_like(lo)
        for group, (_, falling) in enumerate(self._concave):
            chosen = falling.searchsorted(-price, side)  # slopes above, or not below, the price
            ranks[:, group] = np.clip(chosen, lo[:, group], hi[:, group])
        return ranks

    def _find_price(self, lo: Indices, hi: Indices, side: Side) -> Floats:
        """Return the price closest to 0 at which a limit is kept, of those that matter."""
        zero = int(self._prices.searchsorted(0.0))
        if side == "left":  # the first price from 0 up at which the total is small enough
            bad, good = np.full(len(lo), zero - 1), np.full(len(lo), len(self._prices) - 1)
        else:  # the last price from 0 down at which it is large enough
            bad, good = np.full(len(lo), zero + 1), np.zeros(len(lo), np.intp)
        while True:
            wide: Mask = np.abs(good - bad) > 1
            if not wide.any():
                break
            middle = (good + bad) // 2
            total = self.sum(self._best_at(self._prices[middle], lo, hi, side))
            kept = total <= self.most if side == "left" else total >= self.least
            good, bad = np.where(wide & kept, middle, good), np.where(wide & ~kept, middle, bad)
        prices: Floats = self._prices[good]
        return prices

    def _fill(self, begin: Indices, end: Indices, room: Array) -> tuple[Indices, Indices]:
        """Move ranks from begin toward end, group by group, until a limit is reached.

        Returns the ranks, and the group that couldn't move all the way.
        """
        ranks, pivot = begin.copy(), np.full(len(begin), -1)
        for group, selected in enumerate(self.selected):
            first, last = begin[:, group], end[:, group]
            goal = selected[first] + room
            chosen = np.where(
                last >= first,
                np.clip(selected.searchsorted(goal, "right") - 1, first, np.maximum(first, last)),
                np.clip(selected.searchsorted(goal, "left"), np.minimum(first, last), first),
            )
            room = room - (selected[chosen] - selected[first])
            ranks[:, group] = chosen
            pivot = np.where((pivot < 0) & (chosen != last), group, pivot)
        return ranks, pivot


def concave_majorant(selected: Array, values: Floats) -> tuple[Floats, Floats]:
    """Return the least concave majorant by rank, and minus its slopes between ranks, ascending.

    Returns ``values`` itself if it is concave.
    """
    widths, rises = np.diff(selected), np.diff(values)
    if (widths > 0).all():
        slopes = rises / widths
        if (slopes[1:] <= slopes[:-1]).all():
            return values, -slopes
    first = np.flatnonzero(np.append(True, widths > 0))  # one point for each number of rows
    points = np.maximum.reduceat(values, first)
    widths = np.diff(selected[first]).astype(np.float64)
    slopes = np.diff(points) / widths
    if len(slopes):
        from sklearn.isotonic import isotonic_regression

        slopes = isotonic_regression(slopes, sample_weight=widths, increasing=False)
    majorant = points[0] + np.append(0.0, np.cumsum(slopes * widths))
    majorant = np.maximum(majorant, points)  # rounding
    step = np.cumsum(np.append(True, np.diff(selected) > 0)) - 1  # (m + 1,) point of each rank
    if not len(slopes):
        return majorant[step], np.zeros(len(values) - 1)
    return majorant[step], -slopes[np.maximum(step[1:] - 1, 0)]
