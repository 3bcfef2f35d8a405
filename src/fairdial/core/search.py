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
from fairdial.core.rank_rates import Array, RankRates, Spread

BATCH = 256  # boxes at a time
PRECISION = 1e-12  # of the value, relative to its size
DOUBT = 1e-13  # rates closer than this to a limit are compared exactly


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

    def take(self, which: Indices | Mask) -> Boxes:
        """Return some of the boxes."""
        return Boxes(*(part[which] for part in vars(self).values()))

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
        while len(boxes.bound):
            if best is not None:
                boxes = boxes.take(boxes.bound > best.value + self._precision)
            batch = boxes
            if len(boxes.bound) > BATCH:
                order = np.argpartition(-boxes.bound, BATCH)
                batch, boxes = boxes.take(order[:BATCH]), boxes.take(order[BATCH:])
            else:
                boxes = boxes.take(slice(0, 0))
            worst = self._most_violated(batch.ranks, limits)
            solved = np.flatnonzero(worst < 0)
            if len(solved):
                winner = solved[batch.bound[solved].argmax()]
                if best is None or batch.bound[winner] > best.value:
                    best = Solution(batch.ranks[winner].copy(), float(batch.bound[winner]))
            parts = [
                self._relax(*part)
                for j in range(len(limits))
                for part in self._split(batch.take(worst == j), j, limits[j])
            ]
            boxes = Boxes.join([boxes, *parts])
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

    def _split(
        self, boxes: Boxes, j: int, bound: Fraction
    ) -> list[tuple[Indices, Indices, Floats, Floats]]:
        """Return two batches that hold every solution of boxes whose ranks violate limit j."""
        if not len(boxes.bound):
            return []
        rates, spread, width = self.rates[j], self.spreads[j], float(bound)
        here = rates.at(boxes.ranks)
        rows = np.arange(len(here))
        low_group, high_group = np.nanargmin(here, axis=1), np.nanargmax(here, axis=1)
        lowest, highest = here[rows, low_group], here[rows, high_group]
        if spread == "ratio":
            middle = (lowest + width * highest) / 2
            top = middle / width
        else:
            middle = (lowest + highest - width) / 2
            top = middle + width
        top = top + np.abs(top) * 2.0**-50 + np.spacing(1.0) * width  # rounded up
        falls, rises = boxes.take(rows), boxes.take(rows)  # copies
        if rates.direction:
            for a in range(len(self.values)):
                rates.cut_above(a, top, falls.lo[:, a], falls.hi[:, a])
                rates.cut_below(a, middle, rises.lo[:, a], rises.hi[:, a])
            stuck = _contains(falls, high_group) | _contains(rises, low_group)
        else:
            column = self._column[j]
            falls.high[:, column], rises.low[:, column] = top, middle
            stuck = (top >= highest) | (middle <= lowest)
        if spread in ("minimum", "maximum"):
            stuck[:] = True
        for row in np.flatnonzero(stuck):
            self._separate(boxes, falls, rises, row, j, (low_group[row], high_group[row]))
        kept = [rises] if spread == "minimum" else [falls] if spread == "maximum" else [falls, rises]
        return [(part.lo, part.hi, part.low, part.high) for part in kept]

    def _separate(
        self, boxes: Boxes, falls: Boxes, rises: Boxes, row: int, j: int, groups: tuple[int, int]
    ) -> None:
        """Split a box right at the rates found, where a middle is lost to rounding.

        Either the lowest group's rate rises above its present one, or the highest group's falls.
        """
        rates = self.rates[j]
        for part, group, above in ((rises, groups[0], True), (falls, groups[1], False)):
            for new, old in zip(vars(part).values(), vars(boxes).values(), strict=True):
                new[row] = old[row]
            rank = int(boxes.ranks[row, group])
            if rates.direction:
                first, last = rates.beyond(group, rank, above)
                part.lo[row, group] = max(first, part.lo[row, group])
                part.hi[row, group] = min(last, part.hi[row, group])
            elif above:
                part.low[row, self._column[j]] = np.nextafter(rates.keys[group][rank], np.inf)
            else:
                part.high[row, self._column[j]] = np.nextafter(rates.keys[group][rank], -np.inf)


def _contains(boxes: Boxes, groups: Indices) -> Mask:
    """Return whether the ranks found are still inside, for one group of each box."""
    rows = np.arange(len(groups))
    rank = boxes.ranks[rows, groups]
    return (boxes.lo[rows, groups] <= rank) & (rank <= boxes.hi[rows, groups])


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
