"""The best ranks under any set of limits on group rates, by clip and branch.

A group's decision is a *rank*: the number of its steps of scores that are selected. A *box* is an
interval of ranks per group, and an interval of rates per limit whose rates aren't monotone. Inside
a box every group takes its best rank, whatever the others do. That is an upper bound, and if the
ranks meet all limits, it is the best of the box. Otherwise two groups are too far apart, and the
box is split: either the highest rates fall or the lowest rise. The parts exclude the ranks found,
and together they hold every solution of the box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from fairdial._arrays import Floats, Indices, Mask
from fairdial.core.boxes import Boxes, Candidates
from fairdial.core.rank_rates import MARGIN, Array, RankRates, Spread
from fairdial.core.rank_totals import PricedValues, RankTotals, Total
from fairdial.core.rank_values import RankValues

__all__ = ["Limit", "Searcher", "Solution", "Total", "search"]

BATCH = 32  # boxes at a time
MAX_BATCHES = 3000  # then the search stops; a few are the rule
MAX_WAITING = 10_000  # boxes; likewise
# Where boxes are split: 0 is the lowest rate, 1 the highest minus the width. One point in between
# would do. More make the search shallow, and those outside help if solutions are rare.
POINTS = np.array([-4096, -64, -1, *(np.arange(1, 10) / 10), 2, 65, 4097])
PARTS = len(POINTS) + 1
PRICES = 4  # fixed prices at a time, for a total
PRICE_BATCHES = 8  # batches until another fixed price
PRECISION = 1e-12  # of the value, relative to its size
DOUBT = 1e-13  # rates closer than this to a limit are compared exactly
TINY = 1e-300  # excess of a limit that is exceeded by a rounding error


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
    members : tuple of int, optional
        Compare unions of groups, and not the groups: the place of each group's union. Denominators
        must be numbers. Only lotteries take such limits.
    """

    numerator: tuple[Array, ...]
    denominator: tuple[Array, ...]
    spread: Spread
    bound: Fraction
    members: tuple[int, ...] | None = None


class UndecidedError(Exception):
    """The search was stopped before it found ranks, or a proof that there are none."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The best ranks.

    Attributes
    ----------
    ranks : (K,) intp
        Rank of each group.
    value : float
        Sum of the groups' values.
    proved : bool
        Whether it is the largest; False if the search was stopped.
    """

    ranks: Indices
    value: float
    proved: bool = True


class Searcher:
    """Searches with the same groups and rates and changing bounds.

    Parameters
    ----------
    values : sequence of (m_a + 1,) float64 arrays
        Value of each group at each rank.
    limits : sequence of Limit
        Limits on the rates.
    total : Total, optional
        Limits on the number of selected rows over all groups.

    Examples
    --------
    Two groups of two rows, with selection rates that differ by at most 0.5, or not at all.

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

    def __init__(
        self, values: Sequence[Floats], limits: Sequence[Limit], total: Total | None = None
    ) -> None:
        self.values = [RankValues(np.asarray(part, np.float64)) for part in values]
        self.total = None if total is None else RankTotals(total, self.values)
        self.spreads: list[Spread] = [limit.spread for limit in limits]
        self.bounds = [limit.bound for limit in limits]
        self.rates: list[RankRates] = []
        known: dict[tuple[int, ...], RankRates] = {}
        for limit in limits:
            key = tuple(map(id, (*limit.numerator, *limit.denominator)))
            if key not in known:
                known[key] = RankRates(limit.numerator, limit.denominator)
            self.rates.append(known[key])
        self.last = np.array([len(group.values) - 1 for group in self.values], np.intp)
        size = sum(abs(float(group.values[group.peak])) for group in self.values)
        self.precision = PRECISION * size

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
        lo, hi = np.zeros_like(self.last), self.last.copy()
        if lowest is not None:
            np.maximum(lo, lowest, out=lo)
        if highest is not None:
            np.minimum(hi, highest, out=hi)
        run = _Search(self, self.bounds if bounds is None else bounds)
        if start is not None:
            run.offer(np.asarray(start, np.intp), lo, hi)
        return run.solve(lo, hi)


class _Search:
    """One search: the bounds, the best solution so far, and how to divide boxes."""

    def __init__(self, given: Searcher, bounds: Sequence[Fraction]) -> None:
        self.values, self.rates, self.total = given.values, given.rates, given.total
        self.spreads, self.bounds = given.spreads, list(bounds)
        self.last, self.precision = given.last, given.precision
        self.best: Solution | None = None
        self.priced: list[PricedValues] = []
        # columns of Boxes.low and Boxes.high
        uneven = [j for j, rates in enumerate(self.rates) if not rates.direction]
        self.column = {j: column for column, j in enumerate(uneven)}
        self.pairs = [  # limits that compare groups and cut rank intervals
            j
            for j, rates in enumerate(self.rates)
            if rates.direction and self.spreads[j] in ("difference", "ratio")
        ]

    def offer(self, ranks: Indices, lo: Indices, hi: Indices) -> None:
        """Start with ranks if they meet all limits."""
        if bool(((lo <= ranks) & (ranks <= hi)).all()) and all(
            rates.hold(ranks, spread, bound)
            for rates, spread, bound in zip(self.rates, self.spreads, self.bounds, strict=True)
        ):
            self._improve(ranks[None])

    def solve(self, lo: Indices, hi: Indices) -> Solution | None:
        """Return the best ranks within limits (K,) on ranks."""
        waiting: Candidates | None = self._relax(self._first(lo, hi))
        n_batches = 0
        while waiting is not None and len(waiting):
            if self.total is not None and n_batches % PRICE_BATCHES == 0:
                self._fix_price(self.total, waiting)
            n_batches += 1
            if n_batches > MAX_BATCHES or len(waiting) > MAX_WAITING:
                if self.best is None:
                    raise UndecidedError
                return replace(self.best, proved=False)
            batch, waiting = waiting.pop(BATCH)
            if len(batch) < BATCH and len(self.pairs) > 1:
                batch = self._relax(self._tighten(batch.boxes))
            worst = self._most_violated(batch.ranks)
            self._improve(batch.ranks[worst < 0])
            parts = self._divide(batch, worst)
            if parts:
                waiting = self._relax(Boxes.join(parts)).join(waiting)
            if waiting is not None:
                waiting = self._above(waiting)
        return self.best

    def _improve(self, ranks: Indices) -> None:
        """Replace the best solution by better ranks (B, K) that meet the limits on rates."""
        if self.total is not None:
            ranks = ranks[self.total.fit(ranks)]
        if not len(ranks):
            return
        values = np.zeros(len(ranks))
        for group, chosen in zip(self.values, ranks.T, strict=True):
            values += group.values[chosen]
        winner = values.argmax()
        if self.best is None or values[winner] > self.best.value:
            self.best = Solution(ranks[winner].copy(), float(values[winner]))

    def _above(self, found: Candidates) -> Candidates:
        """Return the boxes that may hold a better solution."""
        if self.best is None:
            return found
        kept = found.bound > self.best.value + self.precision
        return found if kept.all() else found.take(kept)

    def _first(self, lo: Indices, hi: Indices) -> Boxes:
        """Return the box of all ranks, cut by minimum and maximum rates."""
        low, high = np.full((1, len(self.column)), -np.inf), np.full((1, len(self.column)), np.inf)
        for j, (rates, spread) in enumerate(zip(self.rates, self.spreads, strict=True)):
            if spread in ("difference", "ratio"):
                continue
            if rates.direction:
                rates.bound_ranks(spread, self.bounds[j], lo, hi)
                continue
            limit = float(self.bounds[j])  # rounded outward; ranks at the limit are checked
            if spread == "minimum":
                low[0, self.column[j]] = np.nextafter(limit, -np.inf)
            else:
                high[0, self.column[j]] = np.nextafter(limit, np.inf)
        return Boxes(lo[None], hi[None], low, high)

    def _relax(self, boxes: Boxes) -> Candidates:
        """Return the boxes that may hold a better solution, with the best rank of each group."""
        kept: Mask = np.all(boxes.lo <= boxes.hi, axis=1)
        boxes = boxes.take(kept)
        ranks, bound = np.empty_like(boxes.lo), np.zeros(len(boxes))
        for a, group in enumerate(self.values):
            lo, hi = boxes.lo[:, a], boxes.hi[:, a]
            if self.column:
                rates = [self.rates[j].keys[a] for j in self.column]
                ranks[:, a] = group.best_within(lo, hi, rates, boxes.low, boxes.high)
            else:
                ranks[:, a] = group.best(lo, hi)
            bound += group.values[ranks[:, a]]
        none = np.full(len(boxes), -1)
        found = Candidates(boxes, ranks, bound, none, none.copy())
        if self.column:
            present: Mask = np.all(ranks >= 0, axis=1)
            found = found.take(present)
        found = self._above(found)
        return found if self.total is None else self._relax_total(self.total, found)

    def _relax_total(self, total: RankTotals, found: Candidates) -> Candidates:
        """Return boxes with ranks and bounds that take the total into account."""
        found = found.take(total.reachable(found.boxes.lo, found.boxes.hi))
        misfits = np.flatnonzero(~total.fit(found.ranks))
        if not len(misfits):
            return found
        boxes = found.boxes.take(misfits)
        ranks, bound, pivot, split = total.relax(boxes.lo, boxes.hi, self.priced)
        found.ranks[misfits], found.pivot[misfits], found.split[misfits] = ranks, pivot, split
        found.bound[misfits] = np.minimum(found.bound[misfits], bound)
        return self._above(found)

    def _fix_price(self, total: RankTotals, found: Candidates) -> None:
        """Add the price of the box with the largest bound to the fixed prices."""
        if not total.is_concave:
            top = found.boxes.take(np.array([found.bound.argmax()]))
            self.priced = [*self.priced[1 - PRICES :], total.fix_price(top.lo, top.hi)]

    def _tighten(self, boxes: Boxes) -> Boxes:
        """Cut rank intervals by what a limit on one rate implies for the others.

        No rate can be further than a limit allows from the smallest or largest that a group can
        still reach.
        """
        lo, hi = boxes.lo.copy(), boxes.hi.copy()
        for j in self.pairs:
            rates, width = self.rates[j], float(self.bounds[j])
            ends = [np.minimum(lo, self.last), np.maximum(hi, 0)]  # boxes may be empty by now
            if rates.direction < 0:
                ends.reverse()
            floor: Floats = np.fmax.reduce(rates.at(ends[0]), axis=1)
            top: Floats = np.fmin.reduce(rates.at(ends[1]), axis=1)
            if self.spreads[j] == "difference":
                floor, top = floor - width, top + width
            elif width > 0:
                floor, top = floor * width, top / width
            else:  # always holds
                continue
            for a in range(len(self.values)):
                rates.cut_above(a, top + MARGIN, lo[:, a], hi[:, a])
                rates.cut_below(a, floor - MARGIN, lo[:, a], hi[:, a])
        return Boxes(lo, hi, boxes.low, boxes.high)

    def _most_violated(self, ranks: Indices) -> Indices:
        """Return the limit that ranks (B, K) violate most, or -1 if they meet all limits."""
        worst, most = np.full(len(ranks), -1), np.zeros(len(ranks))
        for j, (rates, spread, bound) in enumerate(
            zip(self.rates, self.spreads, self.bounds, strict=True)
        ):
            if rates.direction and rates.cuts_exactly and spread in ("minimum", "maximum"):
                continue  # the first box is cut to it
            here = rates.at(ranks)
            lowest, highest = np.fmin.reduce(here, axis=1), np.fmax.reduce(here, axis=1)
            excess = _excess(lowest, highest, spread, float(bound))  # NaN: no group has a rate
            for row in np.flatnonzero(np.abs(excess) <= DOUBT):
                excess[row] = 0.0 if rates.hold(ranks[row], spread, bound) else TINY
            worse = excess > most
            worst[worse], most[worse] = j, excess[worse]
        return worst

    def _divide(self, batch: Candidates, worst: Indices) -> list[Boxes]:
        """Return parts of boxes that hold all their solutions, but not the ranks found."""
        parts: list[Boxes] = []
        if self.total is not None and self.column:
            stray = self._find_strays(batch)
            parts += [
                self._exclude(batch, row, stray[row]) for row in np.flatnonzero(stray >= 0).tolist()
            ]
            batch, worst = batch.take(stray < 0), worst[stray < 0]
        for j in range(len(self.bounds)):
            rows = np.flatnonzero(worst == j)
            if len(rows):
                parts.append(self._split_rates(batch.take(rows), j))
        rows = np.flatnonzero((worst < 0) & (batch.pivot >= 0))
        if len(rows):
            parts.append(_split_pivot(batch.take(rows)))
        return parts

    def _split_rates(self, found: Candidates, j: int) -> Boxes:
        """Split boxes whose ranks violate limit j.

        With points x_1 < ... < x_{M-1}, part i has its lowest rate between x_i and x_{i+1}, so
        that its highest is at most x_{i+1} plus the width. No part contains the ranks found,
        since points lie between their lowest rate and their highest minus the width.
        """
        rates, spread, width = self.rates[j], self.spreads[j], float(self.bounds[j])
        here = rates.at(found.ranks)
        rows = np.arange(len(found))
        low_group, high_group = np.nanargmin(here, axis=1), np.nanargmax(here, axis=1)
        lowest, highest = here[rows, low_group, None], here[rows, high_group, None]
        parts = found.boxes.repeat(PARTS)
        lo, hi = (part.reshape(len(found), PARTS, -1) for part in (parts.lo, parts.hi))
        stuck: Mask = np.ones(len(found), np.bool_)  # points are lost to rounding
        if spread in ("difference", "ratio"):
            end = width * highest if spread == "ratio" else highest - width
            points = lowest + (end - lowest) * POINTS  # (B, M - 1)
            tops = points / width if spread == "ratio" else points + width
            tops = tops + (np.abs(tops) + width) * MARGIN  # rounded up
            if rates.direction:
                for a in range(len(self.values)):
                    rates.cut_above(a, tops, lo[:, :-1, a], hi[:, :-1, a])
                    rates.cut_below(a, points, lo[:, 1:, a], hi[:, 1:, a])
                ranks = found.ranks[:, None]
                inside: Mask = np.all((lo <= ranks) & (ranks <= hi), axis=2)
            else:
                column = self.column[j]
                low = parts.low[:, column].reshape(len(found), PARTS)
                high = parts.high[:, column].reshape(len(found), PARTS)
                low[:, 1:] = np.maximum(low[:, 1:], points)
                high[:, :-1] = np.minimum(high[:, :-1], tops)
                parts.low[:, column], parts.high[:, column] = low.ravel(), high.ravel()
                inside = (low <= lowest) & (high >= highest)
            stuck = np.any(inside, axis=1)
        if not stuck.any():
            return parts
        separate = [
            self._separate(found, row, j, low_group[row], high_group[row])
            for row in np.flatnonzero(stuck).tolist()
        ]
        return Boxes.join([parts.take(~stuck.repeat(PARTS)), *separate])

    def _separate(
        self, found: Candidates, row: int, j: int, low_group: int, high_group: int
    ) -> Boxes:
        """Split a box right at the rates found.

        Either the lowest group's rate rises above its present one, or the highest group's falls.
        """
        rates, spread, parts = self.rates[j], self.spreads[j], []
        for group, above in ((low_group, True), (high_group, False)):
            if spread == ("maximum" if above else "minimum"):
                continue  # the other group is at fault
            part = found.boxes.take(np.array([row]))
            rank = int(found.ranks[row, group])
            if rates.direction:
                first, last = rates.beyond(group, rank, above)
                part.lo[0, group] = max(first, part.lo[0, group])
                part.hi[0, group] = min(last, part.hi[0, group])
            elif above:
                part.low[0, self.column[j]] = np.nextafter(rates.keys[group][rank], np.inf)
            else:
                part.high[0, self.column[j]] = np.nextafter(rates.keys[group][rank], -np.inf)
            parts.append(part)
        return Boxes.join(parts)

    def _find_strays(self, found: Candidates) -> Indices:
        """Return a group of each box whose rank is outside the box's rates, or -1.

        The ranks that a total suggests take no account of rates that aren't monotone.
        """
        outside = np.zeros(found.ranks.shape, np.bool_)
        for j, column in self.column.items():
            here = self.rates[j].at(found.ranks)
            outside |= here < found.boxes.low[:, column, None]
            outside |= here > found.boxes.high[:, column, None]
        return np.where(np.any(outside, axis=1), outside.argmax(axis=1), -1)

    def _exclude(self, found: Candidates, row: int, group: int) -> Boxes:
        """Split a box into the allowed ranks below and above a rank outside the box's rates."""
        parts = found.boxes.take(np.array([row, row]))
        first, last = parts.lo[0, group], parts.hi[0, group]
        allowed = np.ones(last - first + 1, np.bool_)
        for j, column in self.column.items():
            here = self.rates[j].keys[group][first : last + 1]
            allowed &= ~((here < parts.low[0, column]) | (here > parts.high[0, column]))
        ranks = np.flatnonzero(allowed) + first
        place = int(ranks.searchsorted(found.ranks[row, group]))
        for i, side in enumerate((ranks[:place], ranks[place:])):
            parts.lo[i, group], parts.hi[i, group] = (side[0], side[-1]) if len(side) else (1, 0)
        return parts


def _split_pivot(found: Candidates) -> Boxes:
    """Split boxes between two ranks of their pivots, or into equal parts."""
    rows, pivot, split = np.arange(len(found)), found.pivot, found.split
    first, last = found.boxes.lo[rows, pivot, None], found.boxes.hi[rows, pivot, None]
    n_parts = PARTS if (split < 0).any() else 2
    starts = first + (last + 1 - first) * np.arange(n_parts + 1) // n_parts  # (B, M + 1)
    starts[split >= 0, 1:] = last[split >= 0] + 1
    starts[split >= 0, 1] = split[split >= 0] + 1
    parts = found.boxes.repeat(n_parts)
    every = np.arange(len(parts)), pivot.repeat(n_parts)
    parts.lo[every], parts.hi[every] = starts[:, :-1].ravel(), starts[:, 1:].ravel() - 1
    return parts


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
    total: Total | None = None,
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
    total : Total, optional
        Limits on the number of selected rows over all groups.
    lowest, highest : (K,) intp, optional
        Limits on the ranks.
    start : (K,) intp, optional
        Ranks to beat, such as the solution at a neighboring tolerance.

    Returns
    -------
    Solution or None
    """
    return Searcher(values, limits, total).search(lowest=lowest, highest=highest, start=start)
