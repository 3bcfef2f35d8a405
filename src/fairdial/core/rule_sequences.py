"""Sequences of rules, found on rows that are independent of the testing rows.

With two groups and one rate the rules have a closed form, which needs only the groups' shares. All
other problems are solved on other rows (a :class:`Guide`), or on a part of the calibration rows,
and the rest tests the solutions.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import ceil, sqrt

import numpy as np

from fairdial._arrays import Counts, Floats
from fairdial._special import logit
from fairdial.core.criteria import ALL
from fairdial.core.fixed_sequence import Rules
from fairdial.core.group_scores import GroupScores, total_counts
from fairdial.core.nested import NestedPoints, nest
from fairdial.core.operating_points import OperatingPoints
from fairdial.core.overlap import search_points
from fairdial.core.problem import Problem
from fairdial.core.searched import SearchedPoints
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import InvalidInputError

PATH_SHARE = 0.3  # of the calibration rows, which find the sequence; the others test it
SALT = b"fairdial split"
PER_ROOT = 64  # rules of a path on each side, per square root of the larger group's rows
MAX_RULES = 1 << 14
N_PATH = 26  # rules of a sequence from a path
SEARCHED: Floats = 0.002 * 1.1 ** np.arange(66.0)  # tolerances that are searched for
FIRST_SEARCHED = 0.25  # of the tolerance: searches for less are slow
N_GUIDE = 129  # rules of a guide
CAUTION = (1.5, 0.75, 0.0)  # standard deviations by which minimum and maximum rates are tightened


def split_scores(
    group_scores: Sequence[GroupScores],
) -> tuple[list[GroupScores], list[GroupScores]]:
    """Split rows at random: those that find a sequence, and those that test it.

    Each row is drawn on its own, by a generator whose seed is a hash of all rows together: the same
    rows are always split the same way, whatever their order, but other rows in another way. (With
    one seed for all, some splits would be unlucky for every set of rows of these sizes. With a hash
    of each row, rows that tie would all be on one side.)
    """
    rng = np.random.default_rng(_hash_scores(group_scores))
    found, rest = [], []
    for scores in group_scores:
        counts = scores.counts.astype(np.int64)  # (C, m); rows with weights have no certificate
        places = np.repeat(np.arange(counts.size), counts.ravel())
        drawn = places[rng.random(len(places)) < PATH_SHARE]
        part = np.bincount(drawn, minlength=counts.size).reshape(counts.shape)
        found.append(_keep(scores, part))
        rest.append(_keep(scores, np.asarray(counts - part, np.int64)))
    return found, rest


def _hash_scores(group_scores: Sequence[GroupScores]) -> int:
    digest = sha256(SALT)
    for scores in group_scores:
        for array in (scores.lower, scores.counts.astype(np.int64)):
            digest.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(digest.digest()[:16], "little")


def _keep(scores: GroupScores, counts: Counts) -> GroupScores:
    """Return the scores of some of the rows; their utilities are in proportion."""
    steps = np.flatnonzero(counts.any(axis=0))
    kept = GroupScores.from_counts(scores.lower[steps], scores.upper[steps], counts[:, steps])
    if scores.gain is None:
        return kept
    share = counts.sum(axis=0) / scores.counts.sum(axis=0)
    gain = np.concatenate(([0.0], np.cumsum((np.diff(scores.gain) * share)[steps])))
    return replace(kept, gain=gain)


def count_selected_by(thresholds: Floats, group_scores: Sequence[GroupScores]) -> Counts:
    """Return the rows that thresholds, (S, K), select, by kind and group, (S, C, K)."""
    columns = [
        scores.selected.take(scores.rank(thresholds[:, a]), axis=1).T
        for a, scores in enumerate(group_scores)
    ]
    return np.stack(columns, axis=2)


def path_rules(path: ThresholdPath) -> Rules:
    """Return the rules of two groups at fixed values of t, most equal first (theorem 1).

    They depend on the rows only through the groups' shares. The first one is the last whose
    disparity on the rows hasn't changed its sign.
    """
    rate, shares = path.criterion.rate, path.shares
    size = min(ceil(PER_ROOT * sqrt(float(path.eligible.max()))), MAX_RULES)
    rising = logit(0.5 + 0.5 * np.arange(size) / size)  # thresholds of the group that falls
    prices = [np.abs(rate.price(path.sign * (2 * a - 1) * rising, shares[a])) for a in (0, 1)]
    t = np.unique(np.concatenate(prices))
    t = path.sign * t[np.isfinite(t)]
    u = np.clip(t[:, None] * np.array([-1.0, 1.0]) / shares, *rate.domain)
    with np.errstate(divide="ignore"):
        thresholds = np.asarray(rate.link(u), np.float64).astype(path.dtype).astype(np.float64)
    selected = count_selected_by(thresholds, path.group_scores)
    demand = path.criterion.demands[0]
    split = path.criterion.split(selected), path.criterion.split(path.counts)
    over, under = demand.parts(*split)
    disparity = path.sign * (over[:, 1] * under[0] - over[:, 0] * under[1])
    last = int(np.flatnonzero(disparity >= 0)[-1])
    kept = slice(last, None, -1)
    return Rules(t[kept], thresholds[kept], selected[kept], path.counts)


def make_rules(setting: Floats, thresholds: Floats, testing: Sequence[GroupScores]) -> Rules:
    """Return different rules with their counts on the testing rows."""
    new = np.ones(len(setting), np.bool_)
    new[:-1] = (thresholds[1:] != thresholds[:-1]).any(axis=1)  # keep the last of equal ones
    setting, thresholds = setting[new], thresholds[new]
    selected = count_selected_by(thresholds, testing)
    return Rules(setting, thresholds, selected, total_counts(testing))


@dataclass(frozen=True, eq=False)
class Guide:
    """Rules that were found on rows that are independent of the calibration rows.

    Attributes
    ----------
    gap : (S,) float64
        Gaps on the rows that the rules were found on, ascending.
    thresholds : (S, K) float64
        Thresholds of the rules.
    """

    gap: Floats
    thresholds: Floats

    @classmethod
    def from_points(cls, points: OperatingPoints) -> Guide:
        """Return rules of a frontier, evenly spaced in gap."""
        places = np.arange(len(points))
        if isinstance(points, ThresholdPath):
            places = np.unique(points.find(np.linspace(0.0, points.gap[0], N_GUIDE))[0])
        order = places[np.argsort(points.gap[places], kind="stable")]
        return cls(points.gap[order], points.read(order)[0])


class GuidedRules:
    """Sequences of rules from a guide, tested on all calibration rows (theorem 5)."""

    def __init__(self, points: OperatingPoints, guide: Guide) -> None:
        self.testing, self._guide = scored(points).group_scores, guide

    def at(self, tolerance: float) -> Rules | None:
        """Return the sequence for a tolerance, most equal rule first; None if there is none."""
        last = int(np.searchsorted(self._guide.gap, tolerance, side="right"))
        if not last:
            return None
        inner = np.linspace(self._guide.gap[0], self._guide.gap[last - 1], N_PATH)
        places = np.unique(np.searchsorted(self._guide.gap, inner, side="right") - 1)
        places = places[places >= 0]
        return make_rules(self._guide.gap[places], self._guide.thresholds[places], self.testing)


def scored(points: OperatingPoints) -> ThresholdPath | SearchedPoints:
    """Return the points that hold the scores of a dial."""
    source = points.source if isinstance(points, NestedPoints) else points
    assert isinstance(source, (ThresholdPath, SearchedPoints))
    return source


class SplitRules:
    """Sequences of rules from a part of the calibration rows; the others test them (theorem 5).

    Parameters
    ----------
    points : ThresholdPath, SearchedPoints or NestedPoints
        The operating points of all calibration rows.
    problem : Problem
        What they solve.
    names : sequence of hashable
        Names of the groups.

    Attributes
    ----------
    testing : list of GroupScores
        Scores of the testing rows.
    cells : (C, K) int64
        Testing rows by kind and group.
    """

    def __init__(
        self, points: OperatingPoints, problem: Problem, names: Sequence[Hashable]
    ) -> None:
        source = scored(points)
        self.problem, self._names, self._dtype = problem, names, source.dtype
        part, self.testing = split_scores(source.group_scores)
        self.cells = total_counts(self.testing)
        self._points = self._solve(part)
        self._kept: dict[float, Rules] = {}

    def _solve(self, part: Sequence[GroupScores]) -> OperatingPoints | None:
        """Return the operating points of a part of the rows; None if it has none."""
        criterion = self.problem.criterion
        if not criterion.eligible_counts(total_counts(part)).all():
            return None
        if self.problem.uses_path:
            strict = self.problem.nested is True
            return ThresholdPath(part, criterion, self._dtype, strict=strict)
        n_labels = len(self.cells) // criterion.n_strata
        for caution in CAUTION:
            problem = self._tighten(caution, total_counts(part))
            try:
                searched = search_points(part, problem, self._dtype, n_labels, self._names)
            except InvalidInputError:  # no thresholds meet the tightened demands
                continue
            return nest(searched) if problem.nested else searched
        return None

    def _tighten(self, caution: float, cells: Counts) -> Problem:
        """Return the problem with minimum and maximum rates tightened, so that tests can pass.

        How far depends on the rows that find the rules, (C, K), and not on those that test them.
        """
        criterion, demands = self.problem.criterion, []
        split = criterion.split(cells)
        for demand in criterion.demands:
            sign = {"minimum": 1, "maximum": -1}.get(demand.spread, 0)
            if sign:
                fixed = demand if demand.rate.fixed else replace(demand, rate=ALL)
                rows = max(float(fixed.parts(split, split)[1].min()), 1.0)
                rows *= (1.0 - PATH_SHARE) / PATH_SHARE
                spread = sqrt(max(demand.level * (1 - demand.level), 1 / rows) / rows)
                level = min(max(demand.level + sign * caution * spread, 0.0), 1.0)
                demands.append(replace(demand, level=level))
            else:
                demands.append(demand)
        return replace(self.problem, criterion=replace(criterion, demands=tuple(demands)))

    def at(self, tolerance: float) -> Rules | None:
        """Return the sequence for a tolerance, most equal rule first; None if there is none."""
        if self._points is None:
            return None
        if tolerance not in self._kept:
            if isinstance(self._points, ThresholdPath):
                inner = np.linspace(0.0, tolerance, N_PATH, dtype=np.float64)
                table = self._points.tabulate(self._points.find(inner)[0])
            else:
                inner = SEARCHED[(FIRST_SEARCHED * tolerance <= SEARCHED) & (tolerance >= SEARCHED)]
                inner = inner if len(inner) else np.array([tolerance])
                table = self._points.choose(inner)[0]
            thresholds = table.read(np.arange(len(table)))[0]
            self._kept[tolerance] = make_rules(inner, thresholds, self.testing)
        return self._kept[tolerance]
