"""The threshold path: every operating point from most accurate to most equal, for any K groups.

Under ``gap <= tolerance``, the most accurate group thresholds clip each group's unconstrained rate
(threshold 0) to a band ``[floor, ceiling]``. Holding the floor at level ``l`` costs ``G(l)``, the
sum over the groups below ``l`` of their price at that level; holding the ceiling at ``u`` costs
``H(u)`` likewise. At the optimum ``G(l) = H(u) = T``, the price of one unit of tolerance. With two
groups, ``T`` is the paper's ``|t|`` and the path is the paper's family ``f_t``.

As ``T`` increases from 0, the floor rises and the ceiling falls, one *move* at a time: one group
passes one step of its scores. Point ``j`` is the result of the first ``j`` moves. So the path is
nested (every row changes its decision at most once), it depends only on ranks, and gap and accuracy
of all points are running sums. It ends at the first point where floor and ceiling meet.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairdial._arrays import Counts, Dtype, Floats, Indices, Mask
from fairdial.core.criteria import Criterion
from fairdial.core.demands import EXACT
from fairdial.core.flat_groups import FlatGroups, FlatSteps
from fairdial.core.group_scores import GroupScores, place_thresholds, total_counts
from fairdial.core.operating_points import OperatingPoints, PointTable
from fairdial.core.problem import Problem
from fairdial.core.rates import MAX_PRICE, Rate
from fairdial.core.searched import SearchedPoints


@dataclass(frozen=True, eq=False)
class _Moves:
    """The moves of one side (floor or ceiling) in the order of their levels."""

    cost: Floats  # T at which each move is made; inf: never (scores of -inf can't be selected)
    level: Floats  # the rate that the moving group leaves
    reach: Floats  # the rate that it reaches
    group: Indices

    def __len__(self) -> int:
        return len(self.cost)


class _Steps:
    """One group's eligible steps: rates by rank, prices, and the unconstrained rank."""

    def __init__(self, scores: GroupScores, rate: Rate, share: float) -> None:
        self._rate, self._share, self._size = rate, share, len(scores)
        self.lower, self.upper, self._selected = scores.lower, scores.upper, scores.selected
        self.eligible = None  # every step
        if rate.eligible is not None:
            rows = scores.selected[int(rate.eligible)]
            self.eligible = np.flatnonzero(rows[1:] != rows[:-1])
            self.lower, self.upper = self.lower[self.eligible], self.upper[self.eligible]
        self.start = int(np.searchsorted(-self.lower, 0.0, side="left"))  # rank at threshold 0

    @cached_property
    def _borders(self) -> Indices:
        eligible = np.arange(self._size) if self.eligible is None else self.eligible
        return np.concatenate(([-1], eligible, [self._size]))

    @cached_property
    def rates(self) -> Floats:
        """(M + 1,) the rate at each rank; :meth:`release` lets go of it."""
        if self._rate.eligible is None:
            rows = self._selected.sum(axis=0)
        else:
            rows = self._selected[int(self._rate.eligible)].take(self._borders[:-1] + 1)
        return np.asarray(rows / rows[-1])

    def release(self) -> None:
        """Keep nothing that can be computed again: it is 8 bytes for each row."""
        del self.rates

    def rates_at(self, ranks: Indices) -> Floats:
        """Return the rates at some ranks."""
        if self._rate.eligible is None:
            both = self._selected.take(ranks, axis=1), self._selected[:, -1]
            return np.asarray(both[0].sum(axis=0) / both[1].sum())
        rows = self._selected[int(self._rate.eligible)]
        return np.asarray(rows.take(self.window(ranks)[0]) / rows[-1])

    def window(self, ranks: Indices) -> tuple[Indices, Indices]:
        """Return the first and last rank among all steps for ranks among the eligible steps."""
        if self.eligible is None:
            return ranks, ranks
        return self._borders[ranks] + 1, self._borders[ranks + 1]

    def _price(self, steps: slice, ends: Floats) -> Floats:
        return np.clip(self._rate.price(ends[steps], self._share), -MAX_PRICE, MAX_PRICE)

    def floor_moves(self, group: int, top: float) -> tuple[Floats, Floats, Floats, Indices]:
        """Return price, level, reach and group of the moves that raise this group.

        They start at rates below ``top``; the move after them is included.
        """
        stop = max(int(np.searchsorted(self.rates[:-1], top, side="left")), self.start)
        stop = min(stop + 1, len(self.lower))
        moves = slice(self.start, stop)
        prices = -self._price(moves, self.lower)
        prices[self.lower[moves] == -np.inf] = np.inf
        levels, reach = self.rates[moves], self.rates[self.start + 1 : stop + 1]
        return prices, levels, reach, np.full(len(prices), group, np.intp)

    def ceiling_moves(self, group: int, bottom: float) -> tuple[Floats, Floats, Floats, Indices]:
        """Return the moves that lower this group, from rates above ``bottom``, and one more."""
        first = min(int(np.searchsorted(self.rates[1:], bottom, side="right")), self.start)
        first = max(first - 1, 0)
        moves = slice(first, self.start)
        prices = self._price(moves, self.upper)[::-1]
        levels = self.rates[first + 1 : self.start + 1][::-1]
        return prices, levels, self.rates[moves][::-1], np.full(len(prices), group, np.intp)


def _add_prices(
    price: Floats, level: Floats, reach: Floats, group: Indices, *, rising: bool
) -> _Moves:
    """Return all groups' moves of one side, sorted by level, with the price of the whole side.

    They are given group by group, each group's in the order in which it makes them.
    """
    with np.errstate(invalid="ignore"):
        increments = np.diff(price, prepend=0.0)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    increments[first] = price[first]
    increments[np.isnan(increments)] = np.inf
    key = level if rising else -level
    order = np.argsort(key, kind="stable")
    cost, key = np.cumsum(increments[order]), key[order]
    last = np.flatnonzero(np.diff(key, append=np.nan))  # the same level: together
    cost = np.repeat(cost[last], np.diff(last, prepend=-1))
    return _Moves(cost, level[order], reach[order], group[order])


def _furthest(moves: _Moves, sign: int) -> Indices:
    """Return the group with the highest (lowest, if ``sign`` is -1) rate reached by each move."""
    reach = np.append(-np.inf, sign * moves.reach)
    is_record = reach == np.maximum.accumulate(reach)
    last = np.maximum.accumulate(np.where(is_record, np.arange(len(reach)), 0))
    return np.append(0, moves.group)[last]


class _ManyGroups:
    """What more than two groups do at points of a path, without a loop over the groups."""

    def __init__(
        self,
        flat: FlatGroups,
        steps: FlatSteps,
        rate: Rate,
        sides: tuple[tuple[Indices, Indices], tuple[Indices, Indices]],
    ) -> None:
        self._flat, self._steps, self._rate, self._sides = flat, steps, rate, sides
        self._starts = steps.start  # (K,) unconstrained ranks
        self._size = 1 + sum(len(moves) for moves, _ in sides)  # larger than the index of any move
        self._keys = [np.sort(group * self._size + moves) for moves, group in sides]
        groups = np.arange(len(flat)) * self._size
        self._first = [np.searchsorted(keys, groups) for keys in self._keys]
        self._groups = groups

    def ranks(self, points: Indices) -> Indices:
        """Return the ranks among each group's eligible steps, (s, K)."""
        moved = points[:, None] + self._groups
        up, down = (keys.searchsorted(moved) for keys in self._keys)
        up -= self._first[0]
        down -= self._first[1]
        return np.asarray(self._starts + up - down)

    def rates(self, points: Indices) -> Floats:
        """Return the rates of the criterion, (s, K)."""
        return self._steps.rates.take(self._steps.starts + self.ranks(points))

    def read(self, points: Indices) -> tuple[Floats, Floats, Floats, Counts]:
        """Return the targets, the scores around them, and the selected rows, (s, C, K)."""
        ranks = self.ranks(points)
        targets, places = self._place(np.arange(ranks.shape[1]), ranks)
        selected = self._flat.selected.take(places, axis=1).transpose(1, 0, 2)
        return targets, self._flat.above.take(places), self._flat.below.take(places), selected

    def _place(self, groups: Indices, ranks: Indices) -> tuple[Floats, Indices]:
        """Return targets and places of groups at ranks: the middle of each group's own interval."""
        ranked = self._steps.starts[groups] + ranks
        first = last = self._steps.first_place.take(ranked)
        if self._rate.eligible is not None:  # other rows may fall on either side
            last = self._steps.last_place.take(ranked)
        ends = np.stack((self._flat.above.take(first), self._flat.below.take(last)))
        unit = np.clip(self._rate.inverse(ends), -MAX_PRICE, MAX_PRICE)
        targets = self._rate.link((unit[0] + unit[1]) / 2)
        targets = np.where(ranks == self._starts[groups], 0.0, targets)
        return targets, first if first is last else self._flat.place(targets, first, last)

    def net_correct(self, n_points: int) -> Counts:
        """Return the selected positive rows minus the negative ones, (S,), by running sums."""
        moves = np.concatenate([moves for moves, _ in self._sides])
        groups = np.concatenate([group for _, group in self._sides])
        sign = np.repeat([1, -1], [len(moves) for moves, _ in self._sides])
        order = np.lexsort((moves, groups))
        moves, groups, sign = moves[order], groups[order], sign[order]
        ranks = np.cumsum(sign)
        counts = np.bincount(groups, minlength=len(self._starts))
        before = np.append(0, ranks)[np.cumsum(counts) - counts]
        ranks += (self._starts - before)[groups]
        net = self._flat.selected[1::2].sum(axis=0) - self._flat.selected[::2].sum(axis=0)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            after = net.take(self._place(groups, ranks)[1])
            start = net.take(self._place(groups, ranks - sign)[1])
            first = net.take(self._place(np.arange(len(counts)), self._starts)[1])
        change = np.zeros(n_points, net.dtype)
        change[1 + moves] = after - start
        change[0] = first.sum()
        return np.asarray(np.cumsum(change))


class ThresholdPath(OperatingPoints):
    """The operating points of the groups' scores for a criterion with one rate.

    With two groups they are the family f_t of eq:fairbayes, each at its interval of t; the first
    one within a tolerance is the rule of eq:fair-bayesoptimal-classifier. Finding it is
    alg:post-process.

    Attributes
    ----------
    counts : (L, K) int64 or float64
        Rows by label and group: the sums of their weights.
    eligible : (K,) int64 or float64
        Eligible rows.
    n_groups : int
        Number of groups, K.
    strict : bool
        Whether no search takes over where the path ends, so that the dial is nested.
    shares : (K,) float64
        P(group, eligible): line 1 of that algorithm.
    cost : (S,) float64
        The price T at which each point begins; 0 for the first.
    gap : (S,) float64
        Highest minus lowest rate.
    width : (S,) float64
        Ceiling minus floor: non-increasing and at most the gap.
    """

    def __init__(
        self,
        group_scores: Sequence[GroupScores] | FlatGroups,
        criterion: Criterion,
        dtype: Dtype,
        *,
        strict: bool = False,
    ) -> None:
        self.criterion, self.dtype, self.strict = criterion, dtype, strict
        self._rate, self.n_groups = criterion.rate, len(group_scores)
        if isinstance(group_scores, FlatGroups):
            self._flat, self.counts = group_scores, group_scores.totals
        else:
            self.group_scores, self.counts = group_scores, total_counts(group_scores)
        self.eligible = criterion.eligible_counts(self.counts)
        self.shares: Floats = self.eligible / self.counts.sum()
        self.sign = 1.0  # of t, two groups only
        if self.n_groups == 2:
            self._compare_two()
        else:
            steps = self._flat_steps
            start = steps.rates.take(steps.starts + steps.start)
            top, bottom = float(start.max()), float(start.min())
            floor = _add_prices(*steps.floor_moves(top), rising=True)
            ceiling = _add_prices(*steps.ceiling_moves(bottom), rising=False)
            self._merge(floor, ceiling, top, bottom)

    def _compare_two(self) -> None:
        """Merge the moves of two groups: only the lower one can rise, the higher one fall."""
        start = [steps.rates[steps.start] for steps in self._steps]
        low = int(start[1] < start[0])
        self.sign = -1.0 if low else 1.0
        # one group per side: its price is the price of the side
        floor = _Moves(*self._steps[low].floor_moves(low, max(start)))
        ceiling = _Moves(*self._steps[1 - low].ceiling_moves(1 - low, min(start)))
        self._merge(floor, ceiling, max(start), min(start))
        for steps in self._steps:
            steps.release()

    @cached_property
    def group_scores(self) -> Sequence[GroupScores]:
        """The groups' scores."""
        return self._flat.split()

    @cached_property
    def _flat(self) -> FlatGroups:
        return FlatGroups.join(self.group_scores)

    @cached_property
    def _flat_steps(self) -> FlatSteps:
        return FlatSteps(self._flat, self._rate, self.shares)

    @cached_property
    def _steps(self) -> list[_Steps]:
        return [
            _Steps(scores, self._rate, share)
            for scores, share in zip(self.group_scores, self.shares.tolist(), strict=True)
        ]

    def _merge(self, floor: _Moves, ceiling: _Moves, top: float, bottom: float) -> None:
        """Merge both sides' moves by T, the ceiling first at equal T, and compute all gaps.

        The gaps are the empirical ones of eq:ddp_general.
        """
        finite = int(np.searchsorted(floor.cost, np.inf, side="left"))
        at_floor = np.arange(finite) + np.searchsorted(ceiling.cost, floor.cost[:finite], "right")
        at_ceiling = np.arange(len(ceiling)) + np.searchsorted(
            floor.cost[:finite], ceiling.cost, "left"
        )
        n_moves = finite + len(ceiling)
        rises = np.zeros(n_moves, np.bool_)
        rises[at_floor] = True
        risen = np.concatenate(([0], np.cumsum(rises)))  # (S,) floor moves made
        fallen = np.arange(n_moves + 1) - risen
        lowest = np.append(floor.level, top)[risen]
        highest = np.append(ceiling.level, bottom)[fallen]
        width = highest - lowest
        met = np.flatnonzero(width <= 0)
        stop = int(met[0]) if met.size else n_moves  # the last point
        risen, fallen = risen[: stop + 1], fallen[: stop + 1]
        self._at_floor = at_floor[: risen[-1]].copy()  # a view would keep all moves
        self._at_ceiling = at_ceiling[: fallen[-1]].copy()
        if self.n_groups != 2:
            self._groups_moved = floor.group[: risen[-1]], ceiling.group[: fallen[-1]]
        cost = np.zeros(n_moves + 1)
        cost[1 + at_floor], cost[1 + at_ceiling] = floor.cost[:finite], ceiling.cost
        self.cost: Floats = cost[: stop + 1].copy()
        self._ends = stop == n_moves  # no move is left
        follows = not self._ends and self.n_groups == 2  # more groups: no single next move
        self.next_cost = float(cost[stop + follows])
        self.width: Floats = width[: stop + 1].copy()
        raised_to = np.maximum.accumulate(np.append(-np.inf, floor.reach))[risen]
        lowered_to = np.minimum.accumulate(np.append(np.inf, ceiling.reach))[fallen]
        highest, lowest = highest[: stop + 1], lowest[: stop + 1]
        self.gap: Floats = np.maximum(highest, raised_to) - np.minimum(lowest, lowered_to)
        last = self.rates(np.array([stop]))[0]
        self.gap[-1] = last.max() - last.min()
        self._same_sign = self.gap == self.width  # of the disparity; before the gap is rounded
        if self.eligible.dtype.kind != "i" or float(self.eligible.max()) >= EXACT**0.5:
            return
        pairs = np.asarray(self.eligible.prod(), np.float64)  # of both rates' denominators
        if self.n_groups == 2:
            self.width = np.rint(self.width * pairs) / pairs  # comparable with the gap
        else:
            start = self.rates(np.array([0]))[0]
            at_top = np.append(ceiling.group, start.argmin())[fallen]
            at_bottom = np.append(floor.group, start.argmax())[risen]
            high = np.where(highest >= raised_to, at_top, _furthest(floor, 1)[risen])
            low = np.where(lowest <= lowered_to, at_bottom, _furthest(ceiling, -1)[fallen])
            high[-1], low[-1] = last.argmax(), last.argmin()
            pairs = np.asarray(self.eligible[high] * self.eligible[low], np.float64)
        self.gap = np.rint(self.gap * pairs) / pairs  # the exact quotient, rounded once

    @cached_property
    def _moves_of(self) -> list[tuple[Indices, Indices]]:
        """For each of two groups, the indices of its floor and ceiling moves, ascending."""
        empty = self._at_floor[:0]
        pair = [(empty, self._at_ceiling), (empty, self._at_ceiling)]
        pair[int(self.sign < 0)] = (self._at_floor, empty)
        return pair

    @cached_property
    def _many(self) -> _ManyGroups:
        floor_group, ceiling_group = self._groups_moved
        sides = (self._at_floor, floor_group), (self._at_ceiling, ceiling_group)
        return _ManyGroups(self._flat, self._flat_steps, self._rate, sides)

    def _ranks(self, points: Indices) -> Indices:
        """Return the ranks among each group's eligible steps, (s, K)."""
        if self.n_groups != 2:
            return self._many.ranks(points)
        ranks = np.empty((len(points), self.n_groups), np.intp)
        for a, (up, down) in enumerate(self._moves_of):
            ranks[:, a] = self._steps[a].start
            if len(up):
                ranks[:, a] += up.searchsorted(points, side="left")
            if len(down):
                ranks[:, a] -= down.searchsorted(points, side="left")
        return ranks

    def rates(self, points: Indices) -> Floats:
        """Return the rates of the criterion, (s, K)."""
        if self.n_groups != 2:
            return self._many.rates(points)
        ranks = self._ranks(points)
        return np.stack([s.rates_at(ranks[:, a]) for a, s in enumerate(self._steps)], axis=1)

    @cached_property
    def setting(self) -> Floats:
        """(S,) the price in the middle of each point's interval; for two groups signed: t."""
        ends = np.append(self.cost[1:], self.next_cost)
        middle = self.cost + (ends - self.cost) / 2
        middle[0] = 0.0
        if self.sign < 0:
            middle[1:] *= -1.0
        return middle

    @cached_property
    def certifiable(self) -> Mask:
        """(S,) two groups: points on an interval of t where the disparity hasn't changed sign."""
        if self.n_groups != 2:
            return np.zeros(len(self), np.bool_)
        interval = np.append(self.cost[1:], self.next_cost) > self.cost
        interval[0] = True  # t = 0 is fixed in advance
        interval[-1] |= self._ends
        return np.asarray(interval & self._same_sign)

    def _targets(self, points: Indices) -> Floats:  # eq:thresh_new: both groups follow one t
        """Return the thresholds of two groups, (s, 2), before they are clipped to the ranks."""
        u = self.setting.take(points)[:, None] * self._per_share
        np.maximum(u, self._rate.domain[0], out=u)
        np.minimum(u, self._rate.domain[1], out=u)
        return np.asarray(self._rate.link(u))

    @cached_property
    def _per_share(self) -> Floats:
        """(2,) the paper's sign 2a - 1, divided by each group's share."""
        return np.array([-1.0, 1.0]) / self.shares

    def read(self, points: Indices) -> tuple[Floats, Counts]:
        """Return the thresholds, (s, K), and the rows that they select, (s, L, K).

        Thresholds are strictly between scores wherever a number fits.
        """
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            if self.n_groups == 2:
                targets, above, below, selected = self._read_two(points)
            else:
                targets, above, below, selected = self._many.read(points)
            thresholds = place_thresholds(targets, below, above, self.dtype)
        if not points.all():
            thresholds[points == 0] = 0.0
        return thresholds, selected

    def _read_two(self, points: Indices) -> tuple[Floats, Floats, Floats, Counts]:
        """Return the targets of two groups, the scores around them, and the selected rows."""
        ranks, targets = self._ranks(points), self._targets(points)
        above, below = np.empty(ranks.shape), np.empty(ranks.shape)
        selected = np.empty((len(points), *self.counts.shape), self.counts.dtype)
        for a, (scores, steps) in enumerate(zip(self.group_scores, self._steps, strict=True)):
            rank = ranks[:, a]
            if steps.eligible is not None:  # other rows may fall on either side
                first, last = steps.window(rank)
                rank = np.minimum(np.maximum(scores.rank(targets[:, a]), first), last)
            above[:, a], below[:, a] = scores.above.take(rank), scores.below.take(rank)
            selected[:, :, a] = scores.selected.take(rank, axis=1).T
        return targets, above, below, selected

    @cached_property
    def net_correct(self) -> Counts | None:
        """(S,) selected rows with a positive label, minus those with a negative one, of all points.

        They are running sums over the moves, each of which changes one group. With two groups, all
        thresholds move at once, and this is None.
        """
        return None if self.n_groups == 2 else self._many.net_correct(len(self))

    # ---- the dial ------------------------------------------------------------------------------

    def choose(self, tolerances: Floats) -> tuple[PointTable, Mask]:
        """Return the point for each tolerance, and whether it is within the tolerance.

        Where the path ends with a larger gap, a search over all thresholds takes over. The same
        decision for everybody has no gap, but is no answer.
        """
        points, feasible = self.find(tolerances)
        table = self.tabulate(points)
        beyond = np.flatnonzero(self.is_beyond(tolerances))
        if not len(beyond):
            return table, feasible
        found, feasible[beyond] = self.searched.choose(tolerances[beyond])
        better = np.flatnonzero(feasible[beyond] | (found.gap < table.gap[beyond]))
        return table.overwrite(beyond[better], found.tabulate(better)), feasible

    def rebuild(self, group_scores: Sequence[GroupScores] | FlatGroups) -> ThresholdPath:
        """Return the path of other scores of the same groups."""
        return ThresholdPath(group_scores, self.criterion, self.dtype, strict=self.strict)

    def is_beyond(self, tolerances: Floats) -> Mask:
        """Return which tolerances need a search, because the path ends with a larger gap."""
        return np.asarray((tolerances < -self._negative_best[-1]) & (not self.is_complete))

    @cached_property
    def is_complete(self) -> bool:
        """Whether the path ends within one row of the smallest group, or must not be left.

        Whether rates can be closer than one row is an accident of group sizes.
        """
        sizes = self.eligible
        if sizes.dtype.kind != "i":  # weights: distinct scores instead of rows
            sizes = np.array([len(steps.lower) for steps in self._steps])
        return self.strict or bool(self.gap.min() <= 1.0 / sizes.min())

    @property
    def unproved(self) -> Set[float]:
        """Tolerances whose search was stopped."""
        return self.searched.unproved if "searched" in self.__dict__ else frozenset()

    @cached_property
    def searched(self) -> SearchedPoints:
        """The same scores, searched over all thresholds."""
        problem = Problem(self.criterion, nested=False)
        n_labels = len(self.counts)
        return SearchedPoints(self.group_scores, problem, self.dtype, n_labels, constant=False)

    def bound(self, tolerance: float) -> float | None:
        """Return the best expected accuracy of any mixture of thresholds within a tolerance."""
        return self.searched.bound(tolerance)

    def expected_value(self, thresholds: Floats) -> float | None:
        """Return the accuracy that the scores predict at thresholds, (K,)."""
        return self.searched.expected_value(thresholds)

    def bins_between(self, before: Indices, after: Indices, margin: int) -> list[Indices]:
        """Return each group's bins that the points from ``before`` to ``after`` touch.

        If there are any, ``margin`` neighbors on either side are included.
        """
        start, stop = self._ranks(before), self._ranks(after)  # (s, K)
        found = []
        for a, (scores, steps) in enumerate(zip(self.group_scores, self._steps, strict=True)):
            first = np.minimum(start[:, a], stop[:, a]) - 1
            last = np.maximum(start[:, a], stop[:, a])
            first = steps.window(np.maximum(first, 0))[0]
            last = steps.window(np.minimum(last, len(steps.lower)))[1]
            touched = _covered(first, last, len(scores)) & scores.is_bin
            if touched.any():
                touched = _covered(first - margin, last + margin, len(scores)) & scores.is_bin
            found.append(np.flatnonzero(touched))
        return found


def _covered(first: Indices, last: Indices, size: int) -> Mask:
    """Return the places that lie in some interval [first, last], (size,)."""
    change = np.zeros(size + 1, np.int64)
    np.add.at(change, np.clip(first, 0, size), 1)
    np.add.at(change, np.clip(last + 1, 0, size), -1)
    return np.cumsum(change[:-1]) > 0
