"""The path of the dial: every state between "most accurate" and "most equal", for any K.

Under ``gap <= tolerance`` the most accurate group thresholds clip each group's free rate (threshold
0) into a band ``[floor, ceiling]``. Holding the floor at level ``l`` costs ``G(l)``, the sum over
the groups below ``l`` of their price at that level; holding the ceiling at ``u`` costs ``H(u)``
likewise. At the optimum ``G(l) = H(u) = T``, the price of one unit of tolerance. With two groups
``T`` is the paper's ``|t|`` and the path is the paper's family ``f_t``.

As ``T`` rises from 0 the floor rises and the ceiling falls, one *move* at a time: one group passes
one atom of its ladder. State ``j`` is what the first ``j`` moves have done. So the path is nested
(every row changes its decision at most once), it is decided in rank space, and gap and accuracy of
every state are running sums. It ends with the first state in which floor and ceiling meet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fairdial.criteria import Criterion, Rate
from fairdial.ladders import Counts, Floats, Indices, Ladder

LARGEST_PRICE = 1e300  # finite stand-in where exp overflows: differences of prices stay numbers


def count_rows(ladders: Sequence[Ladder]) -> Counts:
    """(L, K) rows by label and group."""
    return np.stack([ladder.rows for ladder in ladders], axis=1)


def count_for(criterion: Criterion, rows: Counts) -> Counts:
    """(..., K) rows that count for the criterion, of rows by label and group, (..., L, K)."""
    label = criterion.rates[0].counted
    return np.asarray(rows.sum(axis=-2) if label is None else rows[..., label, :])


def share_right(selected: Counts, negatives: int, total: int) -> Floats:
    """(s,) accuracy of states by the rows that they select, (s, 2, K): eq:acc."""
    return np.asarray(((selected[:, 1] - selected[:, 0]).sum(axis=1) + negatives) / total)


@dataclass(frozen=True, eq=False)
class _Moves:
    """Moves of one side (floor or ceiling) in the order in which their levels are met."""

    cost: Floats  # T at which each move is made; inf: never (scores of -inf can't be selected)
    level: Floats  # the rate that the moving group leaves
    reach: Floats  # the rate that it reaches
    group: Indices

    def __len__(self) -> int:
        return len(self.cost)


class _Steps:
    """One group's counted atoms: rates by rank, prices, and where the free state stands."""

    def __init__(self, ladder: Ladder, rate: Rate, share: float) -> None:
        self._rate, self._share, self._size = rate, share, len(ladder)
        self.lower, self.upper = ladder.lower, ladder.upper
        if rate.counted is None:
            self.atoms = None  # every atom counts
            rows = ladder.selected.sum(axis=0)
        else:
            rows = ladder.selected[rate.counted]
            self.atoms = np.flatnonzero(rows[1:] != rows[:-1])
            self.lower, self.upper = self.lower[self.atoms], self.upper[self.atoms]
            rows = np.concatenate((rows[:1], rows[self.atoms + 1]))
        self.rates: Floats = rows / rows[-1]  # (M + 1,)
        self.free = int(np.searchsorted(-self.lower, 0.0, side="left"))  # rank at threshold 0

    @cached_property
    def _borders(self) -> Indices:
        atoms = np.arange(self._size) if self.atoms is None else self.atoms
        return np.concatenate(([-1], atoms, [self._size]))

    def window(self, ranks: Indices) -> tuple[Indices, Indices]:
        """First and last rank on the whole ladder at each rank among the counted atoms."""
        if self.atoms is None:
            return ranks, ranks
        return self._borders[ranks] + 1, self._borders[ranks + 1]

    def price(self, atoms: slice, ends: Floats) -> Floats:
        return np.clip(self._rate.price(ends[atoms], self._share), -LARGEST_PRICE, LARGEST_PRICE)

    def floor_moves(self, group: int, top: float) -> tuple[Floats, Floats, Floats, Indices]:
        """Moves that raise this group from below ``top``, and the one after them.

        Price, level, reach, group.
        """
        stop = max(int(np.searchsorted(self.rates[:-1], top, side="left")), self.free)
        stop = min(stop + 1, len(self.lower))
        moves = slice(self.free, stop)
        prices = -self.price(moves, self.lower)
        prices[self.lower[moves] == -np.inf] = np.inf
        levels, reach = self.rates[moves], self.rates[self.free + 1 : stop + 1]
        return prices, levels, reach, np.full(len(prices), group, np.intp)

    def ceiling_moves(self, group: int, bottom: float) -> tuple[Floats, Floats, Floats, Indices]:
        """Moves that lower this group from above ``bottom``, and the one after them."""
        start = min(int(np.searchsorted(self.rates[1:], bottom, side="right")), self.free)
        start = max(start - 1, 0)
        moves = slice(start, self.free)
        prices = self.price(moves, self.upper)[::-1]
        levels = self.rates[start + 1 : self.free + 1][::-1]
        return prices, levels, self.rates[moves][::-1], np.full(len(prices), group, np.intp)


def _gather(
    parts: Sequence[tuple[Floats, Floats, Floats, Indices]], *, rising: bool, two_groups: bool
) -> _Moves:
    """All groups' moves of one side, sorted by level, with the price of the whole side."""
    price, level, reach, group = (np.concatenate(column) for column in zip(*parts, strict=True))
    if two_groups:  # one group on each side: its own price is the price of the side
        return _Moves(price, level, reach, group)
    increments = np.concatenate([np.diff(part[0], prepend=0.0) for part in parts])
    increments[np.isnan(increments)] = np.inf
    order = np.argsort(level if rising else -level, kind="stable")
    cost, level = np.cumsum(increments[order]), level[order]
    key = level if rising else -level
    cost = cost[np.searchsorted(key, key, side="right") - 1]  # groups at one level move together
    return _Moves(cost, level, reach[order], group[order])


class States(ABC):
    """States of a dial, least constrained first.

    Attributes
    ----------
    gap : (S,) float64
        Highest minus lowest rate.
    family : int or None
        Settings that were fixed beforehand, of a measured family; None: thresholds of one score.
    """

    gap: Floats
    family: int | None = None

    def __len__(self) -> int:
        return len(self.gap)

    @property
    @abstractmethod
    def setting(self) -> Floats:
        """(S,) what was set: t for two groups, the price T for more; or a family's setting."""

    @property
    @abstractmethod
    def certifiable(self) -> NDArray[np.bool_]:
        """(S,) the states that theorems 1 and 3 of ``docs/confidence.md`` speak of."""

    @abstractmethod
    def read(self, states: Indices) -> tuple[Floats, Counts]:
        """Thresholds (s, K), and the rows that they select by label and group (s, L, K)."""

    def take(self, states: Indices) -> States:
        """Some of the states, written out."""
        thresholds, selected = self.read(states)
        columns = self.setting[states], self.gap[states], self.certifiable[states]
        return Table(*columns, thresholds, selected)

    @cached_property
    def _negative_best(self) -> Floats:
        """(S,) minus the smallest gap so far: ascending, for searches."""
        return -np.minimum.accumulate(self.gap)

    @property
    def dialled(self) -> NDArray[np.bool_]:
        """(S,) the states that some tolerance leads to: each has a smaller gap than all before."""
        best = self._negative_best
        return np.concatenate(([True], best[1:] > best[:-1]))

    def first_within(self, tolerances: Floats) -> tuple[Indices, NDArray[np.bool_]]:
        """First state within each tolerance; where none is, the one with the smallest gap.

        The first state is the one with the least |t|: eq:t, eq:t_approx.
        """
        best = self._negative_best
        states = best.searchsorted(-tolerances, side="left")
        feasible = states < len(best)
        if not feasible.all():
            states = np.where(feasible, states, best.searchsorted(best[-1], side="left"))
        return states, feasible

    @cached_property
    def _certifiable(self) -> tuple[Indices, Floats]:
        """The certifiable states, and minus the smallest gap so far among them."""
        states = np.flatnonzero(self.certifiable)
        return states, -np.minimum.accumulate(self.gap[states])

    def first_certifiable(self, tolerances: Floats) -> tuple[Indices, NDArray[np.bool_]]:
        """As :meth:`first_within`, among the certifiable states."""
        states, best = self._certifiable
        found = best.searchsorted(-tolerances, side="left")
        feasible = found < len(states)
        return np.append(states, len(self) - 1)[found], feasible


class Table(States):
    """Some states of a path, written out."""

    def __init__(
        self,
        setting: Floats,
        gap: Floats,
        certifiable: NDArray[np.bool_],
        thresholds: Floats,
        selected: Counts,
    ) -> None:
        self.gap = gap
        self._columns = setting, certifiable, thresholds, selected

    @property
    def setting(self) -> Floats:
        """(S,) what was set."""
        return self._columns[0]

    @property
    def certifiable(self) -> NDArray[np.bool_]:
        """(S,) the states that a declared tolerance can be certified with."""
        return self._columns[1]

    def read(self, states: Indices) -> tuple[Floats, Counts]:
        """Thresholds (s, K), and the rows that they select by label and group (s, L, K)."""
        return self._columns[2][states], self._columns[3][states]


class Measured(States):
    """Settings of a family, each with decisions of its own: the most accurate first.

    Settings that are equally accurate stand by their gap, the smaller first, and then as they were
    given. So the first one within a tolerance is the most accurate one within it. Without labels
    all stand as they were given: the least constrained is to be given first.

    Parameters
    ----------
    setting : (S,) float64
        What distinguishes the settings.
    selected : (S, L, K) int64
        Rows that each selects, by label (L is 1 without labels) and group.
    rows : (L, K) int64
        All rows by label and group.
    criterion : Criterion
        Which rate is meant.
    declared : (S,) bool
        The settings that were fixed before the rows were looked at: only these are certified.
    family : int, optional
        How many were, where some have been left out since: leaving out after looking doesn't
        make the choice smaller.
    """

    family: int

    def __init__(
        self,
        setting: Floats,
        selected: Counts,
        rows: Counts,
        criterion: Criterion,
        declared: NDArray[np.bool_],
        family: int | None = None,
    ) -> None:
        gap = criterion.gap(count_for(criterion, selected) / count_for(criterion, rows))
        order = np.arange(len(gap))
        if len(rows) == 2:
            right = (selected[:, 1] - selected[:, 0]).sum(axis=1)  # but for a constant
            order = np.lexsort((gap, -right))  # stable
        self.gap = gap[order]
        self._columns = setting[order], declared[order], selected[order]
        self._rows, self._criterion = rows, criterion
        self.family = int(declared.sum()) if family is None else family

    @property
    def setting(self) -> Floats:
        """(S,) what was set."""
        return self._columns[0]

    @property
    def certifiable(self) -> NDArray[np.bool_]:
        """(S,) the settings that were fixed before the rows were looked at."""
        return self._columns[1]

    def read(self, states: Indices) -> tuple[Floats, Counts]:
        """Thresholds (s, K), all 0 on the setting's own margins, and the rows they select."""
        selected = self._columns[2][states]
        return np.zeros((len(selected), selected.shape[2])), selected

    def take(self, states: Indices) -> Measured:
        """Some of the settings, of a family as large as before."""
        setting, declared, selected = self._columns
        return Measured(
            setting[states],
            selected[states],
            self._rows,
            self._criterion,
            declared[states],
            self.family,
        )


class Path(States):
    """States of the dial for the groups' ladders and one rate.

    With two groups they are the family f_t of eq:fairbayes, each at its interval of t; the first
    one within a tolerance is the rule of eq:fair-bayesoptimal-classifier. Finding it is
    alg:post-process.

    Attributes
    ----------
    rows : (L, K) int64
        Rows by label and group.
    counted : (K,) int64
        Rows that count for the criterion.
    shares : (K,) float64
        P(group, counted): line 1 of that algorithm.
    cost : (S,) float64
        The price T at which each state begins; 0 for the first.
    gap : (S,) float64
        Highest minus lowest rate.
    width : (S,) float64
        Ceiling minus floor: never above the gap, non-increasing.
    """

    def __init__(
        self,
        ladders: Sequence[Ladder],
        criterion: Criterion,
        dtype: np.dtype[Any],
    ) -> None:
        rate = criterion.rates[0]
        self.ladders, self.criterion, self.dtype, self._rate = ladders, criterion, dtype, rate
        self.rows = count_rows(ladders)
        self.counted = count_for(criterion, self.rows)
        self.shares: Floats = self.counted / self.rows.sum()
        self._steps = [
            _Steps(ladder, rate, share)
            for ladder, share in zip(ladders, self.shares.tolist(), strict=True)
        ]
        free = np.array([steps.rates[steps.free] for steps in self._steps])  # (K,)
        top, bottom = free.max(), free.min()
        two = len(ladders) == 2
        self.sign = -1.0 if two and free[1] < free[0] else 1.0  # of t, two groups only
        if two:  # only the lower group can rise, only the higher one can fall
            low = int(free[1] < free[0])
            raised, lowered = [low], [1 - low]
        else:
            raised = lowered = list(range(len(ladders)))
        floor = _gather(
            [self._steps[a].floor_moves(a, top) for a in raised], rising=True, two_groups=two
        )
        ceiling = _gather(
            [self._steps[a].ceiling_moves(a, bottom) for a in lowered], rising=False, two_groups=two
        )
        self._merge(floor, ceiling, top, bottom)

    def _merge(self, floor: _Moves, ceiling: _Moves, top: float, bottom: float) -> None:
        """Both sides' moves in the order of T; the ceiling moves first at equal T.

        With them every state's gap, counted on the rows: the size of eq:ddp_general.
        """
        legal = int(np.searchsorted(floor.cost, np.inf, side="left"))
        at_floor = np.arange(legal) + np.searchsorted(ceiling.cost, floor.cost[:legal], "right")
        at_ceiling = np.arange(len(ceiling)) + np.searchsorted(
            floor.cost[:legal], ceiling.cost, "left"
        )
        n_moves = legal + len(ceiling)
        rises = np.zeros(n_moves, np.bool_)
        rises[at_floor] = True
        risen = np.concatenate(([0], np.cumsum(rises)))  # (S,) floor moves made
        fallen = np.arange(n_moves + 1) - risen
        lowest = np.append(floor.level, top)[risen]
        highest = np.append(ceiling.level, bottom)[fallen]
        width = highest - lowest
        met = np.flatnonzero(width <= 0)
        stop = int(met[0]) if met.size else n_moves  # the last state
        self._floor, self._ceiling = floor, ceiling
        risen, fallen = risen[: stop + 1], fallen[: stop + 1]
        self._at_floor = at_floor[: risen[-1]]
        self._at_ceiling = at_ceiling[: fallen[-1]]
        cost = np.zeros(n_moves + 1)
        cost[1 + at_floor], cost[1 + at_ceiling] = floor.cost[:legal], ceiling.cost
        self.cost: Floats = cost[: stop + 1]
        self._ends = stop == n_moves  # nothing moves after the last state
        follows = not self._ends and self.n_groups == 2  # more groups: no single next move
        self.next_cost = float(cost[stop + follows])
        self.width: Floats = width[: stop + 1]
        raised_to = np.maximum.accumulate(np.append(-np.inf, floor.reach))[risen]
        lowered_to = np.minimum.accumulate(np.append(np.inf, ceiling.reach))[fallen]
        self.gap: Floats = np.maximum(highest[: stop + 1], raised_to) - np.minimum(
            lowest[: stop + 1], lowered_to
        )
        self.gap[-1] = self.criterion.gap(self.rates(np.array([stop])))[0]

    @property
    def n_groups(self) -> int:
        """Number of groups, K."""
        return len(self.ladders)

    @cached_property
    def _moves_of(self) -> list[tuple[Indices, Indices]]:
        """For each group the indices of its floor and of its ceiling moves, ascending."""
        floor_group = self._floor.group[: len(self._at_floor)]
        ceiling_group = self._ceiling.group[: len(self._at_ceiling)]
        if self.n_groups == 2:
            empty = self._at_floor[:0]
            low = int(self.sign < 0)
            pair = [(empty, self._at_ceiling), (empty, self._at_ceiling)]
            pair[low] = (self._at_floor, empty)
            return pair
        return [
            (self._at_floor[floor_group == a], self._at_ceiling[ceiling_group == a])
            for a in range(self.n_groups)
        ]

    def counted_ranks(self, states: Indices) -> Indices:
        """(s, K) ranks among each group's counted atoms."""
        ranks = np.empty((len(states), self.n_groups), np.intp)
        for a, (up, down) in enumerate(self._moves_of):
            ranks[:, a] = self._steps[a].free
            if len(up):
                ranks[:, a] += up.searchsorted(states, side="left")
            if len(down):
                ranks[:, a] -= down.searchsorted(states, side="left")
        return ranks

    def rates(self, states: Indices) -> Floats:
        """(s, K) rates of the criterion."""
        ranks = self.counted_ranks(states)
        return np.stack([s.rates[ranks[:, a]] for a, s in enumerate(self._steps)], axis=1)

    @cached_property
    def setting(self) -> Floats:
        """(S,) the price in the middle of each state's step; signed for two groups: t."""
        ends = np.append(self.cost[1:], self.next_cost)
        middle = self.cost + (ends - self.cost) / 2
        middle[0] = 0.0
        if self.sign < 0:
            middle[1:] *= -1.0
        return middle

    @cached_property
    def certifiable(self) -> NDArray[np.bool_]:
        """(S,) two groups: states on an interval of t where the disparity hasn't changed sign."""
        if self.n_groups != 2:
            return np.zeros(len(self), np.bool_)
        interval = np.append(self.cost[1:], self.next_cost) > self.cost
        interval[0] = True  # t = 0 is a point that was fixed beforehand
        interval[-1] |= self._ends
        return np.asarray(interval & (self.gap == self.width))

    def _targets(self, states: Indices, ranks: Indices) -> Floats:
        """(s, K) where the thresholds want to stand, before ranks have their say."""
        if self.n_groups == 2:  # eq:thresh_new: both groups follow one t
            u = self.setting.take(states)[:, None] * self._per_share
            np.maximum(u, self._rate.domain[0], out=u)
            np.minimum(u, self._rate.domain[1], out=u)
            return np.asarray(self._rate.link(u))
        targets = np.zeros(ranks.shape)
        for a, steps in enumerate(self._steps):  # the middle of the group's own step
            moved = np.flatnonzero(ranks[:, a] != steps.free)
            first, last = steps.window(ranks[moved, a])
            ends = np.stack((self.ladders[a].above[first], self.ladders[a].below[last]))
            unit = np.clip(self._rate.inverse(ends), -LARGEST_PRICE, LARGEST_PRICE)
            targets[moved, a] = self._rate.link(unit.mean(axis=0))
        return targets

    @cached_property
    def _per_share(self) -> Floats:
        """(2,) the paper's sign 2a - 1 over each group's share."""
        return np.array([-1.0, 1.0]) / self.shares

    def read(self, states: Indices) -> tuple[Floats, Counts]:
        """Thresholds (s, K), strictly between scores wherever a number fits, and their counts."""
        counted = self.counted_ranks(states)
        above, below = np.empty(counted.shape), np.empty(counted.shape)
        selected = np.empty((len(states), len(self.rows), self.n_groups), np.int64)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            targets = self._targets(states, counted)
            for a, (ladder, steps) in enumerate(zip(self.ladders, self._steps, strict=True)):
                rank = counted[:, a]
                if steps.atoms is not None:  # rows that don't count may fall on either side
                    first, last = steps.window(rank)
                    rank = np.minimum(np.maximum(ladder.rank(targets[:, a]), first), last)
                above[:, a], below[:, a] = ladder.above.take(rank), ladder.below.take(rank)
                selected[:, :, a] = ladder.selected.take(rank, axis=1).T
            thresholds = _place(targets, below, above, self.dtype)
        if not states.all():
            thresholds[states == 0] = 0.0
        return thresholds, selected

    def wide_atoms(self, before: Indices, after: Indices, margin: int) -> list[Indices]:
        """For each group the wide atoms that the states from ``before`` to ``after`` touch.

        If there are any, ``margin`` neighbours on either side come with them.
        """
        start, stop = self.counted_ranks(before), self.counted_ranks(after)  # (s, K)
        wanted = []
        for a, (ladder, steps) in enumerate(zip(self.ladders, self._steps, strict=True)):
            first = np.minimum(start[:, a], stop[:, a]) - 1
            last = np.maximum(start[:, a], stop[:, a])
            first = steps.window(np.maximum(first, 0))[0]
            last = steps.window(np.minimum(last, len(steps.lower)))[1]
            needed = _covered(first, last, len(ladder)) & ladder.wide
            if needed.any():
                needed = _covered(first - margin, last + margin, len(ladder)) & ladder.wide
            wanted.append(np.flatnonzero(needed))
        return wanted


def _place(targets: Floats, below: Floats, above: Floats, dtype: np.dtype[Any]) -> Floats:
    """Numbers of ``dtype`` with ``below <= number < above``: the target if it lies strictly inside.

    Else the middle; if no number fits between, ``below`` itself (a decision is strictly ``>``).
    """
    placed = targets if dtype == np.float64 else targets.astype(dtype).astype(np.float64)
    inside = (placed > below) & (placed < above)
    if inside.all():
        return placed
    high = np.where(np.isposinf(above), np.where(np.isneginf(below), 1.0, below + 2.0), above)
    low = np.where(np.isneginf(below), high - 2.0, below)
    middle = (low + (high - low) / 2).astype(dtype).astype(np.float64)
    middle = np.where((middle > below) & (middle < above), middle, below)
    return np.where(inside, placed, middle)


def _covered(first: Indices, last: Indices, size: int) -> NDArray[np.bool_]:
    """(size,) the places that lie in some interval [first, last]."""
    change = np.zeros(size + 1, np.int64)
    np.add.at(change, np.clip(first, 0, size), 1)
    np.add.at(change, np.clip(last + 1, 0, size), -1)
    return np.cumsum(change[:-1]) > 0


class Splitter(Protocol):
    """Ladders whose wide atoms can be opened into their distinct scores."""

    ladders: list[Ladder]

    def split(self, wanted: Sequence[Indices]) -> None:
        """Open the atoms at these positions of each ladder."""


def refine(
    scores: Splitter,
    criterion: Criterion,
    dtype: np.dtype[Any],
    tolerances: Floats,
    *,
    margin: int = 0,
) -> Path:
    """The path on wide atoms, opened wherever the answers to ``tolerances`` depend on it.

    The answer to a tolerance is settled by the part of the path between the last state whose width
    is above it and the state that is chosen: the width never rises, so nothing before can be within
    it. Where every atom that this part touches is a single score, the part is the exact path's.

    ``margin`` neighbours are opened with an atom; at least one where there are more than two
    groups, because their prices add up. More cost less where a split does: reading a file.
    """
    if len(scores.ladders) != 2:
        margin = max(margin, 1)
    while True:
        path = Path(scores.ladders, criterion, dtype)
        states, feasible = path.first_within(tolerances)
        asked = (states > 0) | ~feasible  # the first state is at exactly 0: an edge
        states, feasible, wishes = states[asked], feasible[asked], tolerances[asked]
        reached = np.where(feasible, wishes, np.maximum(wishes, path.gap[states]))
        before = np.searchsorted(-path.width, -reached, side="left") - 1
        after = np.where(feasible, states, len(path) - 1)
        wanted = path.wide_atoms(np.maximum(before, 0), after, margin)
        if not any(map(len, wanted)):
            return path
        scores.split(wanted)
