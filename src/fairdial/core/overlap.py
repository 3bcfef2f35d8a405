"""Operating points for overlapping groups: thresholds of intersections, demands on marginal groups.

A demand on the groups of one column limits sums over intersections, so the exact search, which
decides on each group by itself, doesn't apply. Prices do: an intersection pays the prices of all
groups that it is a part of, and that gives its threshold. Along a path of prices every set of
thresholds is counted exactly, so a point's gap is never an estimate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fairdial._arrays import Counts, Dtype, Floats, Indices
from fairdial.core.group_scores import GroupScores
from fairdial.core.price_path import SOLVED_ROWS, solve_knots
from fairdial.core.prices import Gains, Pricing, check_priceable, find_gains, load
from fairdial.core.problem import Problem
from fairdial.core.repair import Pool, repair
from fairdial.core.searched import SearchedPoints

N_PLACES = 1 << 10  # between two knots of a path that are counted
N_KEPT = 1 << 12  # states that are kept
FINE_STEPS = 0.0025 * np.arange(1, 40)  # tolerances that states are repaired for
COARSE_STEPS = 0.01 * np.arange(10, 100)
REACH = 1.5, 0.02  # gaps that are repaired: factor of the tolerance, and what is added
N_STARTS = 16  # states that are repaired for a tolerance
WHEN = "the groups of single columns are compared"


class _States(NamedTuple):
    """Thresholds that no others beat in both gap and value, the smallest gap first."""

    ranks: Indices  # (S, K)
    thresholds: Floats  # (S, K)
    gap: Floats  # (S,)
    value: Floats  # (S,)


class OverlapPoints(SearchedPoints):
    """The best thresholds of intersections, among those that prices lead to.

    Parameters
    ----------
    thresholds : (S, K) array, optional
        The thresholds to choose from, if they are known.
    """

    def __init__(
        self,
        group_scores: Sequence[GroupScores],
        problem: Problem,
        dtype: Dtype,
        n_labels: int,
        names: Sequence[Hashable] | None = None,
        *,
        thresholds: Floats | None = None,
    ) -> None:
        check_overlap_problem(problem)
        self._given = thresholds
        super().__init__(group_scores, problem, dtype, n_labels, names, constant=False)

    def rebuild(self, group_scores: Sequence[GroupScores]) -> OverlapPoints:
        """Return the points of other scores of the same groups."""
        return OverlapPoints(group_scores, self.problem, self.dtype, self.n_labels, self.names)

    def keeping(self, thresholds: Floats) -> OverlapPoints:
        """Return the points of the same scores with given thresholds, (S, K), to choose from."""
        given = self.group_scores, self.problem, self.dtype, self.n_labels, self.names
        return OverlapPoints(*given, thresholds=thresholds)

    @property
    def kept_thresholds(self) -> Floats:
        """(S, K) the thresholds that answers are chosen from, the smallest gap first."""
        return self._states.thresholds

    @property
    def least(self) -> Indices:
        """(K,) the ranks with the smallest gap."""
        first: Indices = self._states.ranks[0]
        return first

    def _best(
        self, tolerance: float | None, lowest: Indices | None, highest: Indices | None
    ) -> Indices | None:
        """Return the most valuable ranks of all states within a tolerance and between limits."""
        if tolerance is None:
            return np.array([values.argmax() for values in self._values()])
        states = self._states
        allowed = states.gap <= tolerance
        if lowest is not None:
            allowed &= (states.ranks >= lowest).all(axis=1)
        if highest is not None:
            allowed &= (states.ranks <= highest).all(axis=1)
        places = np.flatnonzero(allowed)
        return states.ranks[places[states.value[places].argmax()]] if len(places) else None

    def _targets(self, ranks: Indices) -> Floats:
        """Return the thresholds that prices gave, where ranks are those of a state."""
        targets = super()._targets(ranks)
        for i, line in enumerate(ranks):
            place = self._places.get(line.tobytes())
            if place is not None:
                targets[i] = self._states.thresholds[place]
        return targets

    @cached_property
    def _places(self) -> dict[bytes, int]:
        return {line.tobytes(): place for place, line in enumerate(self._states.ranks)}

    # ---- states --------------------------------------------------------------------------------

    @cached_property
    def _states(self) -> _States:
        """What the path visits, and what small moves make of it."""
        if self._given is not None:
            thresholds = self._given
        else:
            walked, free = self._walk(), self.unconstrained[None]
            ranks = np.concatenate([self._rank(walked), free])
            targets = np.concatenate([walked, super()._targets(free)])
            ranks, first = np.unique(ranks, axis=0, return_index=True)
            targets = targets[first]
            if not self.problem.nested:
                more, starts = self._repair(ranks)
                ranks = np.concatenate([ranks, more])
                ranks, first = np.unique(ranks, axis=0, return_index=True)
                targets = np.concatenate([targets, targets[starts]])[first]
            thresholds = self.place(ranks, targets)
        ranks = self._rank(thresholds)
        values = self._values()
        value = np.sum([part[ranks[:, a]] for a, part in enumerate(values)], axis=0)
        same = max(sum(float(part[end]) for part in values) for end in (0, -1))
        better = np.flatnonzero(value > same)  # than the same decision for everybody
        if len(better):
            ranks, thresholds, value = ranks[better], thresholds[better], value[better]
        gap = self.problem.criterion.gap_of(self._selected(ranks), self.cells)
        order = np.lexsort((-value, gap))
        best = np.maximum.accumulate(value[order])
        kept = order[np.concatenate(([True], best[1:] > best[:-1]))]
        if len(kept) > N_KEPT:
            kept = kept[np.linspace(0, len(kept) - 1, N_KEPT).round().astype(np.intp)]
        return _States(ranks[kept], thresholds[kept], gap[kept], value[kept])

    def _repair(self, ranks: Indices) -> tuple[Indices, Indices]:
        """Return ranks that small moves make of given ones, and the place of each start."""
        if not all(demand.rate.direction for demand in self.problem.criterion.demands):
            return ranks[:0], np.zeros(0, np.intp)
        gap = self.problem.criterion.gap_of(self._selected(ranks), self.cells)
        order, starts, tolerances = np.argsort(gap, kind="stable"), [], []
        for tolerance in np.concatenate([FINE_STEPS, COARSE_STEPS]).tolist():
            above = order[np.searchsorted(gap[order], tolerance, side="right") :]
            if len(above):
                reach = REACH[0] * tolerance + REACH[1]
                near = above[: max(int((gap[above] <= reach).sum()), N_STARTS)]
                chosen = near[np.linspace(0, len(near) - 1, N_STARTS).round().astype(np.intp)]
                starts.append(np.unique(chosen))
                tolerances.append(np.full(len(starts[-1]), tolerance))
        if not starts:
            return ranks[:0], np.zeros(0, np.intp)
        places = np.concatenate(starts)
        found = repair(ranks[places], np.concatenate(tolerances), self._pools, self.unconstrained)
        return found, places

    @property
    def _pools(self) -> list[Pool]:
        pools = []
        for demand, (over, under) in zip(self.demands, self._rates, strict=True):
            each = np.array([float(part.max()) for part in under])
            members = np.arange(len(each))
            if demand.grouping is not None:
                members = np.array(demand.grouping.members)
            rising: list[Counts] = list(over)
            if demand.rate.direction < 0:  # as many more are selected as fewer are rejected
                rising = [np.asarray(u - o) for o, u in zip(over, under, strict=True)]
            pools.append(Pool(rising, np.bincount(members, each), members, float(demand.scale)))
        return pools

    def _rank(self, thresholds: Floats) -> Indices:
        """Return the ranks of thresholds, (S, K)."""
        columns = [scores.rank(thresholds[:, a]) for a, scores in enumerate(self.group_scores)]
        return np.minimum(
            np.stack(columns, axis=1), [scores.last_rank for scores in self.group_scores]
        )

    def _walk(self) -> Floats:
        """Return the thresholds along a path of prices, (S, K)."""
        criterion, n_groups = self.problem.criterion, len(self.group_scores)
        places = criterion.places(n_groups)
        gains = find_gains(self.problem, *self._labels)
        gap = self.gap_at(self.unconstrained)
        if gap == 0.0:
            return np.zeros((0, n_groups))

        def count(prices: Floats) -> Counts:
            ranks = self._rank(self._price(prices[places][None], gains))
            return np.asarray(self._selected(ranks)[0])

        program = self._program(gains).pool(places, criterion.width(n_groups))
        knots = np.stack(solve_knots(program, count, criterion, self.cells, gap))
        if self.problem.nested:
            knots = knots[[0, -1]]
        steps = np.linspace(0.0, 1.0, N_PLACES)[:, None, None]
        path = knots[:-1] + steps * np.diff(knots, axis=0)
        return self._price(path.reshape(-1, knots.shape[1])[:, places], gains)

    @property
    def _labels(self) -> tuple[float, float]:
        """Numbers of negatives and positives, expected ones if labels are unknown."""
        if self.n_labels == 2:
            negatives, positives = self.cells.reshape(-1, 2, self.cells.shape[1]).sum(axis=(0, 2))
        else:
            positives = sum(float(true[-1]) for true, _ in self._hits)
            negatives = float(self.cells.sum()) - positives
        return float(negatives), float(positives)

    def _program(self, gains: Gains) -> Pricing:
        """Return the linear program of prices of intersections, on bins of their scores."""
        n_groups = len(self.group_scores)
        bins = [scores.coarsen(SOLVED_ROWS // n_groups) for scores in self.group_scores]
        rows = np.concatenate([part.counts.sum(axis=0) for part in bins])
        with np.errstate(invalid="ignore"):  # bins of infinite scores
            middles = np.concatenate([part.lower + (part.upper - part.lower) / 2 for part in bins])
        lower = np.concatenate([part.lower for part in bins])
        middles = np.where(np.isnan(middles), lower, middles)
        known = np.eye(n_groups).repeat([len(part) for part in bins], axis=0)
        return Pricing.make(middles, known, self.problem.criterion, gains, rows)

    def _price(self, prices: Floats, gains: Gains) -> Floats:
        """Return the thresholds of intersections at their prices, (S, J K), as logits (S, K).

        Utility minus price is a line in the probability of the positive label.
        """
        demands = self.criterion.demands
        by_demand = prices.reshape(len(prices), len(demands), -1)
        ends = np.zeros((len(prices), 2, by_demand.shape[2]))  # at probabilities 0 and 1
        ends += np.array([-gains.negative, gains.positive])[:, None]
        for j, demand in enumerate(demands):
            ends -= load(demand.rate, np.array([0.0, 1.0]))[:, None] * by_demand[:, j, None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(np.maximum(-ends[:, 0], 0.0)) - np.log(np.maximum(ends[:, 1], 0.0))
        found = np.where(np.isnan(found), 0.0, found)  # more selected where less is likely
        return np.asarray(found.astype(self.dtype).astype(np.float64))


def check_overlap_problem(problem: Problem) -> None:
    """Raise if the groups of single columns can't be compared in a problem."""
    check_priceable(problem, WHEN)


def search_points(
    group_scores: Sequence[GroupScores],
    problem: Problem,
    dtype: Dtype,
    n_labels: int,
    names: Sequence[Hashable] | None = None,
) -> SearchedPoints:
    """Return the points of a problem that has no threshold path."""
    demands = problem.criterion.demands
    whole = [demand for demand in demands if demand.grouping is None]
    implied = all(replace(demand, grouping=None) in whole for demand in demands)
    kind = SearchedPoints if implied else OverlapPoints
    return kind(group_scores, problem, dtype, n_labels, names)
