"""The best ranks under any set of limits on group rates, by clip and branch.

A group's decision is a *rank*: the number of its steps of scores that are selected. A *box* is an
interval of ranks per group, and an interval of rates per limit whose rates aren't monotone. Inside
a box every group takes its best rank, whatever the others do. That is an upper bound, and if the
ranks meet all limits, it is the best of the box. Otherwise two groups are too far apart, and the
box is split in two: either the highest rates fall or the lowest rise. Both parts exclude the ranks
found, and together they hold every solution of the box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from fairdial._arrays import Floats, Indices, Mask
from fairdial.core.range_maxima import RangeMaxima
from fairdial.core.rank_rates import MARGIN, Array, RankRates, Spread

BATCH = 32  # boxes at a time
PARTS = 16  # of a box
PRECISION = 1e-12  # of the value, relative to its size
DOUBT = 1e-13  # rates closer than this to a limit are compared exactly


Parts = tuple[Indices, Indices, Floats, Floats]  # lo, hi, low, high of Boxes


@dataclass(frozen=True, eq=False)
class Limit:
    """A limit on one rate of all groups.

    Attributes
    ----------
    numerator : tuple of (m_a + 1,) arrays
        Numerator of each group's rate at each rank, int64 or float64.
    denominator : tuple of arrays
        Denominator of each group's rate: at each rank, or one number. Where it is 0, the group
        has no rate and isn't compared.
    spread : {"difference", "ratio", "minimum", "maximum"}
        What is limited.
    bound : Fraction
        The limit: ``max - min <= bound``, ``min >= bound * max``, ``min >= bound`` or
        ``max <= bound``.
    """

    numerator: tuple[Array, ...]
    denominator: tuple[Array, ...]
    spread: Spread
    bound: Fraction


@dataclass(frozen=True, eq=False)
class Solution:
    """The best ranks.

    Attributes
    ----------
    ranks : (K,) intp
        Rank of each group.
    value : float
        Sum of the groups' values.
    """

    ranks: Indices
    value: float


@dataclass(frozen=True, eq=False)
class Boxes:
    """A batch of boxes with their relaxed solutions."""

    lo: Indices  # (B, K) lowest rank
    hi: Indices  # (B, K) highest rank
    low: Floats  # (B, J') lowest rate of each limit that isn't monotone
    high: Floats  # (B, J') highest rate
    ranks: Indices  # (B, K) best ranks
    bound: Floats  # (B,) upper bound of the value

    def take(self, which: Indices | Mask | slice) -> Boxes:
        """Return some of the boxes."""
        return Boxes(*(part[which] for part in vars(self).values()))

    def pop(self) -> tuple[Boxes, Boxes]:
        """Return the next batch, of the largest bounds, and the others."""
        if len(self.bound) <= BATCH:
            return self, self.take(slice(0, 0))
        order = np.argpartition(-self.bound, BATCH)
        return self.take(order[:BATCH]), self.take(order[BATCH:])

    @staticmethod
    def join(batches: Sequence[Boxes]) -> Boxes:
        """Return the boxes of several batches."""
        return Boxes(*map(np.concatenate, zip(*(vars(b).values() for b in batches), strict=True)))


class GroupValues:
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
            return np.clip(self.peak, lo, hi)
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


class Searcher:
    """Searches with the same groups and rates and changing bounds.

    Parameters
    ----------
    values : sequence of (m_a + 1,) float64 arrays
        Value of each group at each rank.
    limits : sequence of Limit
        Limits on the rates.

    Examples
    --------
    Two groups of two rows, one positive each; equal selection rates.

    >>> import numpy as np
    >>> from fractions import Fraction
    >>> from fairdial.core.search import Limit, Searcher
    >>> values = [np.array([0.0, 0.3, 0.5]), np.array([0.0, 0.2, -0.1])]
    >>> ranks, size = np.arange(3), np.array(2)
    >>> limit = Limit((ranks, ranks), (size, size), "difference", Fraction(1, 2))
    >>> searcher = Searcher(values, [limit])
    >>> searcher.search().ranks, searcher.search([Fraction(0)]).ranks
    (array([2, 1]), array([1, 1]))
    """

    def __init__(self, values: Sequence[Floats], limits: Sequence[Limit]) -> None:
        self.values = [GroupValues(np.asarray(part, np.float64)) for part in values]
        self.spreads = [limit.spread for limit in limits]
        self.bounds = [limit.bound for limit in limits]
        known: dict[tuple[int, ...], RankRates] = {}
        self.rates: list[RankRates] = []
        for limit in limits:
            key = tuple(map(id, (*limit.numerator, *limit.denominator)))
            if key not in known:
                known[key] = RankRates(limit.numerator, limit.denominator)
            self.rates.append(known[key])
        self._coupled = [
            j
            for j, rates in enumerate(self.rates)
            if rates.direction and self.spreads[j] in ("difference", "ratio")
        ]
        if len(self._coupled) < 2:
            self._coupled = []
        # columns of Boxes.low and Boxes.high
        uneven = [j for j, rates in enumerate(self.rates) if not rates.direction]
        self._column = {j: column for column, j in enumerate(uneven)}
        self._last = np.array([len(group.values) - 1 for group in self.values], np.intp)
        self._precision = PRECISION * sum(
            abs(float(group.values[group.peak])) for group in self.values
        )

    def search(
        self,
        bounds: Sequence[Fraction] | None = None,
        *,
        lowest: Indices | None = None,
        highest: Indices | None = None,
        start: Indices | None = None,
    ) -> Solution | None:
        """Return the best ranks that meet all limits; None if there are none.

        Parameters
        ----------
        bounds : sequence of Fraction, optional
            Bounds of the limits, if other than their own.
        lowest, highest : (K,) intp, optional
            Limits on the ranks.
        start : (K,) intp, optional
            Ranks to beat, such as the solution at a neighboring tolerance.

        Returns
        -------
        Solution or None
        """
        limits = list(self.bounds if bounds is None else bounds)
        best: Solution | None = None
        boxes = self._first(limits, lowest, highest)
        if start is not None and self._meets(start, limits, boxes):
            best = Solution(np.array(start, np.intp), self._value(start))
            boxes = boxes.take(boxes.bound > best.value + self._precision)
        while len(boxes.bound):
            batch, boxes = boxes.pop()
            if len(batch.bound) < BATCH and self._coupled:
                batch = self._tighten(batch, limits)
            worst = self._most_violated(batch.ranks, limits)
            solved = np.flatnonzero(worst < 0)
            if len(solved):
                winner = solved[batch.bound[solved].argmax()]
                if best is None or batch.bound[winner] > best.value:
                    best = Solution(batch.ranks[winner].copy(), float(batch.bound[winner]))
            violated = [j for j in range(len(limits)) if (worst == j).any()]
            parts = [self._split(batch.take(worst == j), j, limits[j]) for j in violated]
            if parts:
                boxes = Boxes.join([boxes, self._relax(*map(np.concatenate, zip(*parts)))])
            if best is not None:
                boxes = boxes.take(boxes.bound > best.value + self._precision)
        return best

    def _value(self, ranks: Indices) -> float:
        return float(sum(g.values[rank] for g, rank in zip(self.values, ranks, strict=True)))

    def _meets(self, ranks: Indices, limits: Sequence[Fraction], first: Boxes) -> bool:
        """Return whether ranks meet the limits on ranks and on rates."""
        inside = len(first.lo) and (first.lo[0] <= ranks).all() and (ranks <= first.hi[0]).all()
        return bool(inside) and all(
            rates.hold(ranks, spread, bound)
            for rates, spread, bound in zip(self.rates, self.spreads, limits, strict=True)
        )

    def _first(
        self, limits: Sequence[Fraction], lowest: Indices | None, highest: Indices | None
    ) -> Boxes:
        """Return the box of all ranks, cut by minimum and maximum rates."""
        lo, hi = np.zeros_like(self._last), self._last.copy()
        if lowest is not None:
            np.maximum(lo, lowest, out=lo)
        if highest is not None:
            np.minimum(hi, highest, out=hi)
        low, high = np.full((2, 1, len(self._column)), [[[-np.inf]], [[np.inf]]])
        for j, (rates, spread, bound) in enumerate(
            zip(self.rates, self.spreads, limits, strict=True)
        ):
            if spread in ("difference", "ratio"):
                continue
            if rates.direction:
                rates.bound_ranks(spread, bound, lo, hi)
            else:  # a rounding error too wide; the search checks the ranks at the limit
                ends, away = (low, -np.inf) if spread == "minimum" else (high, np.inf)
                ends[0, self._column[j]] = np.nextafter(float(bound), away)
        return self._relax(lo[None], hi[None], low, high)

    def _relax(self, lo: Indices, hi: Indices, low: Floats, high: Floats) -> Boxes:
        """Return the boxes that aren't empty, with the best rank of each group."""
        kept = (lo <= hi).all(axis=1)
        lo, hi, low, high = lo[kept], hi[kept], low[kept], high[kept]
        ranks, bound = np.empty_like(lo), np.zeros(len(lo))
        for a, group in enumerate(self.values):
            if self._column:
                rates = [self.rates[j].keys[a] for j in self._column]
                ranks[:, a] = group.best_within(lo[:, a], hi[:, a], rates, low, high)
            else:
                ranks[:, a] = group.best(lo[:, a], hi[:, a])
            bound += group.values[ranks[:, a]]
        boxes = Boxes(lo, hi, low, high, ranks, bound)
        return boxes.take((ranks >= 0).all(axis=1)) if self._column else boxes

    def _tighten(self, boxes: Boxes, limits: Sequence[Fraction]) -> Boxes:
        """Cut rank intervals by what a limit on one rate implies for the others.

        No rate can be further than a limit allows from the smallest or largest that a group can
        still reach.
        """
        lo, hi = boxes.lo.copy(), boxes.hi.copy()
        for j in self._coupled:
            rates, width = self.rates[j], float(limits[j])
            ends = [np.minimum(lo, self._last), np.maximum(hi, 0)]  # boxes may be empty by now
            if rates.direction < 0:
                ends.reverse()
            floor = np.fmax.reduce(rates.at(ends[0]), axis=1)
            top = np.fmin.reduce(rates.at(ends[1]), axis=1)
            if self.spreads[j] == "ratio":
                floor, top = floor * width, top / width if width > 0 else np.full_like(top, np.inf)
            else:
                floor, top = floor - width, top + width
            for a in range(len(self.values)):
                rates.cut_above(a, top + MARGIN, lo[:, a], hi[:, a])
                rates.cut_below(a, floor - MARGIN, lo[:, a], hi[:, a])
        return self._relax(lo, hi, boxes.low, boxes.high)

    def _most_violated(self, ranks: Indices, limits: Sequence[Fraction]) -> Indices:
        """Return the most violated limit of each box, or -1 if its ranks meet all of them."""
        worst, most = np.full(len(ranks), -1), np.full(len(ranks), -np.inf)
        for j, (rates, spread, bound) in enumerate(
            zip(self.rates, self.spreads, limits, strict=True)
        ):
            if rates.direction and rates.cuts_exactly and spread in ("minimum", "maximum"):
                continue  # the first box is cut to it
            here = rates.at(ranks)
            lowest, highest = np.fmin.reduce(here, axis=1), np.fmax.reduce(here, axis=1)
            excess = _excess(lowest, highest, spread, float(bound))
            for row in np.flatnonzero(np.abs(excess) <= DOUBT):
                held = rates.hold(ranks[row], spread, bound)
                excess[row] = -np.inf if held else np.finfo(np.float64).tiny
            worse = (excess > 0) & (excess > most)  # NaN: no group has a rate
            worst[worse], most[worse] = j, excess[worse]
        return worst

    def _split(self, boxes: Boxes, j: int, bound: Fraction) -> Parts:
        """Split boxes whose ranks violate limit j into parts that hold all their solutions.

        With points x_1 < ... < x_{M-1} between the lowest rate and the highest minus the width,
        part i has its lowest rate between x_i and x_{i+1}, so that its highest is at most
        x_{i+1} plus the width. No part contains the ranks found.
        """
        rates, spread, width = self.rates[j], self.spreads[j], float(bound)
        here = rates.at(boxes.ranks)
        rows = np.arange(len(here))
        low_group, high_group = np.nanargmin(here, axis=1), np.nanargmax(here, axis=1)
        lowest, highest = here[rows, low_group, None], here[rows, high_group, None]
        end = width * highest if spread == "ratio" else highest - width
        points = lowest + (end - lowest) * (np.arange(1, PARTS) / PARTS)  # (B, M - 1)
        tops = points / width if spread == "ratio" else points + width
        tops = tops + (np.abs(tops) + width) * 2.0**-50  # rounded up
        lo, hi, low, high = (
            np.repeat(part[:, None], PARTS, axis=1)
            for part in (boxes.lo, boxes.hi, boxes.low, boxes.high)
        )  # (B, M, K), (B, M, J')
        if rates.direction:
            for a in range(len(self.values)):
                rates.cut_above(a, tops, lo[:, :-1, a], hi[:, :-1, a])
                rates.cut_below(a, points, lo[:, 1:, a], hi[:, 1:, a])
            ranks = boxes.ranks[:, None]
            inside = ((lo <= ranks) & (ranks <= hi)).all(axis=2)
        else:
            column = self._column[j]
            high[:, :-1, column] = np.minimum(high[:, :-1, column], tops)
            low[:, 1:, column] = np.maximum(low[:, 1:, column], points)
            inside = (low[:, :, column] <= lowest) & (high[:, :, column] >= highest)
        if spread in ("minimum", "maximum"):
            inside[:] = True
        for row in np.flatnonzero(inside.any(axis=1)):
            found = boxes.take(slice(row, row + 1))
            parts = self._separate(found, j, low_group[row], high_group[row])
            lo[row], hi[row] = 1, 0  # empty
            for i, part in enumerate(parts):
                lo[row, i], hi[row, i], low[row, i], high[row, i] = part
        return _flat(lo), _flat(hi), _flat(low), _flat(high)

    def _separate(self, box: Boxes, j: int, low_group: int, high_group: int) -> list[Parts]:
        """Split a box right at the rates found, where points between are lost to rounding.

        Either the lowest group's rate rises above its present one, or the highest group's falls.
        """
        rates, spread, parts = self.rates[j], self.spreads[j], []
        for group, above in ((low_group, True), (high_group, False)):
            if spread == ("maximum" if above else "minimum"):
                continue  # only the other group is at fault
            lo, hi, low, high = (
                part[0].copy() for part in (box.lo, box.hi, box.low, box.high)
            )
            rank = int(box.ranks[0, group])
            if rates.direction:
                first, last = rates.beyond(group, rank, above)
                lo[group], hi[group] = max(first, lo[group]), min(last, hi[group])
            elif above:
                low[self._column[j]] = np.nextafter(rates.keys[group][rank], np.inf)
            else:
                high[self._column[j]] = np.nextafter(rates.keys[group][rank], -np.inf)
            parts.append((lo, hi, low, high))
        return parts


def _flat(parts: Array) -> Array:
    """Return parts (B, M, K) as (B * M, K)."""
    return parts.reshape(len(parts) * parts.shape[1], parts.shape[2])


def _excess(lowest: Floats, highest: Floats, spread: Spread, bound: float) -> Floats:
    """Return by how much a limit is exceeded."""
    if spread == "difference":
        return highest - lowest - bound
    if spread == "ratio":
        return bound * highest - lowest
    return bound - lowest if spread == "minimum" else highest - bound


def search(
    values: Sequence[Floats],
    limits: Sequence[Limit],
    *,
    lowest: Indices | None = None,
    highest: Indices | None = None,
    start: Indices | None = None,
) -> Solution | None:
    """Return the ranks of the groups with the largest total value that meet all limits.

    The search is exact: None is a proof that no ranks meet the limits. For the same groups and
    other bounds, use a :class:`Searcher`.

    Parameters
    ----------
    values : sequence of (m_a + 1,) float64 arrays
        Value of each group at each rank.
    limits : sequence of Limit
        Limits on the rates.
    lowest, highest : (K,) intp, optional
        Limits on the ranks.
    start : (K,) intp, optional
        Ranks to beat, such as the solution at a neighboring tolerance.

    Returns
    -------
    Solution or None
    """
    return Searcher(values, limits).search(lowest=lowest, highest=highest, start=start)
