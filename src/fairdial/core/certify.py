"""Choose operating points whose gap on new rows is certified.

Which theorem of ``docs/confidence.md`` applies is decided by the kind of frontier alone, before any
row is counted (:func:`find_theorem`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fairdial._arrays import Counts, Floats, Indices
from fairdial._special import ndtri
from fairdial.core import certificates
from fairdial.core.bands import UNIFORM, largest_gap
from fairdial.core.criteria import Criterion
from fairdial.core.fixed_sequence import Failure, Rules, walk
from fairdial.core.nested import NestedPoints
from fairdial.core.operating_points import OperatingPoints, PointTable
from fairdial.core.price_points import PricePoints, PriceRules
from fairdial.core.problem import Problem
from fairdial.core.rule_sequences import (
    PATH_SHARE,
    Guide,
    GuidedRules,
    SplitRules,
    count_selected_by,
    path_rules,
    scored,
)
from fairdial.core.searched import SearchedPoints
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import CannotCertifyError, describe_enough

ROOM = 0.9  # share of a tolerance that the margin of theorem 2 may take
LUCK = 1.15  # times what theorem 5 is expected to certify, so that most rows certify it
GUIDED = 1 / 3  # rows that find rules, per row that tests them, inverted
BISECTIONS = 5  # of the inner tolerance of a simultaneous statement
MOST_ROWS = 1e9  # of a group that a refusal mentions
RESOLUTION = certificates.RESOLUTION


class Certified(NamedTuple):
    """Certified points: their table, the bound on each gap, and the theorem that says so."""

    table: PointTable
    bound: Floats
    theorem: int


def find_theorem(
    points: OperatingPoints, problem: Problem, n_groups: int, *, simultaneous: bool
) -> int:
    """Return the theorem that applies to these points: a rule that doesn't depend on counts.

    ``simultaneous`` asks for all tolerances at once, or says that the scores depend on the rows.
    """
    if points.n_declared is not None:
        return 3
    if isinstance(points, PricePoints):
        return 2 if simultaneous else 5
    if not simultaneous and n_groups == 2 and problem.uses_path:
        return 1
    has_scores = isinstance(points, (ThresholdPath, SearchedPoints, NestedPoints))
    if simultaneous or not has_scores or n_groups == 1:
        return 2
    return 5


def expected_margin(
    rows: Floats | Counts, n_groups: int, alpha: float, *, guided: bool, rate: float = 0.5
) -> float:
    """Return the gap that theorem 5 can be expected to certify with these smallest two groups.

    It adds up what the groups' rates vary between the rows that find the rules and those that test
    them, and the margin of the test.
    """
    inverse = 1.0 / np.maximum(np.asarray(rows, np.float64), 1.0)
    spread = math.sqrt(rate * (1.0 - rate))
    finding = (GUIDED if guided else 1.0 / PATH_SHARE) * inverse
    testing = inverse / (1.0 if guided else 1.0 - PATH_SHARE)
    typical = 2.0 * ndtri((n_groups - 0.375) / (n_groups + 0.25))  # range of normal variables
    found = typical * math.sqrt(float((finding + testing).mean()))
    return float(spread * (found - ndtri(alpha) * math.sqrt(float(testing.sum()))))


def simultaneous_margin(
    points: OperatingPoints, criterion: Criterion, cells: Counts, alpha: float
) -> float:
    """Return how far the population gap can exceed the measured one, for all points at once.

    The bounds of several demands share ``alpha``.
    """
    margins = []
    for demand in criterion.demands:
        if criterion.has_groupings:
            raise CannotCertifyError(
                "A margin for all points at once needs one threshold in each group, but the groups "
                "of single columns pool intersections with different ones."
            )
        if not demand.is_certifiable:
            raise CannotCertifyError(
                "A margin for all points at once needs demands on differences of rates whose "
                f"eligible rows don't depend on the decisions, got {demand.name}."
            )
        split = criterion.split(cells)
        counts = tuple(demand.parts(split, split)[1].tolist())
        margin = _margin(points, counts, alpha / len(criterion.demands))
        margins.append(margin / float(demand.scale))
    return max(margins)


def _margin(points: OperatingPoints, counts: tuple[int, ...], alpha: float) -> float:
    if points.n_declared is None:
        return certificates.uniform_margin(counts, alpha)
    if points.n_declared == 0:
        raise CannotCertifyError(
            "`confidence` needs settings that were fixed before looking at the calibration rows, "
            "got none. Calibrate on other rows than the settings were found on."
        )
    return certificates.finite_margin(counts, alpha, points.n_declared)


class Certifier:
    """What can be certified about the operating points of one frontier.

    Parameters
    ----------
    points : OperatingPoints
        The points.
    problem : Problem
        Criterion, objective and budget.
    cells : (C, K) int64
        All calibration rows by kind and group.
    groups : tuple
        Names of the groups.
    guide : Guide, optional
        Rules found on other rows.
    classes : bool
        Whether there are more than two classes, each of which counts all rows.
    """

    def __init__(
        self,
        points: OperatingPoints,
        problem: Problem,
        cells: Counts,
        groups: tuple[Hashable, ...],
        guide: Guide | None = None,
        *,
        classes: bool = False,
    ) -> None:
        self.guide = guide
        self.points, self.problem, self.cells, self.groups = points, problem, cells, groups
        self.criterion = problem.criterion
        self.n_rows = int(cells.sum()) // (problem.criterion.n_strata if classes else 1)
        self._smallest: dict[tuple[int, float], float] = {}

    def certify(self, tolerance: Floats, confidence: float, *, simultaneous: bool) -> Certified:
        """Return the point for each tolerance, (m,); raise if one can't be certified.

        The statements about all tolerances hold together.
        """
        theorem = find_theorem(
            self.points, self.problem, len(self.groups), simultaneous=simultaneous
        )
        alpha = 1.0 - confidence
        if isinstance(self.points, PricePoints):
            if theorem == 2:
                raise CannotCertifyError(
                    "`confidence` in a dial with prices covers tolerances that were chosen before "
                    "looking at the results, not those chosen after, and not one for each row."
                )
            if self.points.rules is None:
                raise CannotCertifyError(
                    "`confidence` in a dial with prices needs eligible rows of every group in each "
                    "of two parts of the calibration rows. Calibrate on more rows."
                )
        if theorem == 2:
            self._refuse_pooled()
            return self._by_bands(tolerance, confidence, alpha)
        if theorem == 3:
            return self._family(tolerance, confidence, alpha)
        level = alpha / max(len(np.unique(tolerance)), 1)
        is_priced = isinstance(self.points, PricePoints)
        lines = []
        for value in tolerance.tolist():
            if theorem == 1 and not isinstance(self.points, ThresholdPath):
                lines.append(self._by_inner_tolerance(value, confidence, level))
            elif theorem == 5 and not is_priced and self._prefers_bands(value, level):
                lines.append(self._by_bands(np.array([value]), confidence, level))
            else:
                lines.append(self._by_sequence(value, confidence, theorem, level))
        if len(lines) == 1:
            return lines[0]
        if is_priced:
            table = self._rules_table([line.table for line in lines])
        else:
            table = _join([line.table for line in lines], self.cells, len(self.groups))
        bound = np.array([float(line.bound[0]) for line in lines])
        return Certified(table, bound, max([line.theorem for line in lines], default=theorem))

    # ---- theorems 1 and 5: a fixed sequence ----------------------------------------------------

    @cached_property
    def _path(self) -> Rules:
        assert isinstance(self.points, ThresholdPath)
        return path_rules(self.points)

    @cached_property
    def _sequences(self) -> GuidedRules | SplitRules | PriceRules:
        if isinstance(self.points, PricePoints):
            assert self.points.rules is not None
            return self.points.rules
        if self.guide is not None:
            return GuidedRules(self.points, self.guide)
        return SplitRules(self.points, self.problem, self.groups)

    def _rules(self, tolerance: float, theorem: int) -> Rules | None:
        return self._path if theorem == 1 else self._sequences.at(tolerance)

    def _walk(
        self, rules: Rules | None, tolerance: float, theorem: int, level: float
    ) -> tuple[int, Failure | None]:
        """Return how many rules are certified, and what stopped the sequence."""
        if rules is None:
            return 0, None
        if theorem == 1:  # the disparity may have changed its sign in the population
            counts = self.criterion.eligible_counts(self.cells)
            level -= 2 * certificates.crossing(tuple(counts.tolist()), tolerance)
            if level <= 0:
                return 0, Failure(0, self.criterion.demands[0], (0, 1))
        return walk(rules, self.criterion, tolerance, level)

    def _by_sequence(
        self, tolerance: float, confidence: float, theorem: int, level: float
    ) -> Certified:
        rules = self._rules(tolerance, theorem)
        passed, failure = self._walk(rules, tolerance, theorem, level)
        if rules is None or not passed:
            raise self._refusal(tolerance, confidence, theorem, level, failure)
        last = slice(passed - 1, passed)
        table = self._tabulate(rules.setting[last], rules.thresholds[last])
        return Certified(table, np.array([tolerance]), theorem)

    def _by_inner_tolerance(self, tolerance: float, confidence: float, level: float) -> Certified:
        """Return the first point of a thinned path whose measured gap is small enough."""
        inner = np.array([self._inner(tolerance, level)])
        indices, feasible = self.points.find_certifiable(inner)
        if not feasible[0]:
            raise self._refusal(tolerance, confidence, 1, level, None)
        return Certified(self.points.tabulate(indices), np.array([tolerance]), 1)

    def _prefers_bands(self, tolerance: float, alpha: float) -> bool:
        """Return whether theorem 2 is used for a declared tolerance, from group sizes alone.

        It is if it surely certifies a small measured gap, and a sequence isn't expected to: its
        rules come from fewer rows, which matters with many groups.
        """
        demands = self.criterion.demands
        plain = all(d.is_certifiable for d in demands) and not self.criterion.has_groupings
        alike = len({d.rate.eligible is None for d in demands}) == 1  # sizes are given to all tests
        if not (plain and alike) or self._band_margin(alpha) > ROOM * tolerance:
            return False
        return self._expected_tolerance(alpha) > tolerance

    def _expected_tolerance(self, alpha: float, rate: float = 0.5) -> float:
        """Return what theorem 5 certifies for most rows, at rates about this large."""
        split, expected = self.criterion.split(self.cells), 0.0
        for demand in self.criterion.demands:
            rows = np.sort(demand.parts(split, split)[1])[:2]
            if demand.spread not in ("difference", "ratio") or not demand.scale or len(rows) < 2:
                continue
            guided = self.guide is not None
            margin = expected_margin(rows, len(self.groups), alpha, guided=guided, rate=rate)
            margin /= rate if demand.spread == "ratio" else 1.0
            expected = max(expected, margin / float(demand.scale))
        return LUCK * expected

    def _rules_table(self, tables: Sequence[PointTable]) -> PointTable:
        """Return the rules of a blind dial that are in several tables, together."""
        assert isinstance(self.points, PricePoints)
        assert self.points.rules is not None
        places = [table.indices for table in tables if table.indices is not None]
        return self.points.rules.table.tabulate(np.concatenate([np.empty(0, np.intp), *places]))

    def _tabulate(self, settings: Floats, thresholds: Floats) -> PointTable:
        """Return points with these thresholds, counted on all calibration rows."""
        if isinstance(self.points, PricePoints):
            assert self.points.rules is not None
            return self.points.rules.table.tabulate(settings.astype(np.intp))
        selected = count_selected_by(thresholds, scored(self.points).group_scores)
        gap = self.criterion.gap_of(selected, self.cells)
        return PointTable(settings, gap, np.ones(len(gap), np.bool_), thresholds, selected)

    # ---- theorem 2: bands around all rates -----------------------------------------------------

    def _refuse_pooled(self) -> None:
        """Raise for groups that pool intersections with thresholds of their own."""
        if self.criterion.has_groupings:
            raise CannotCertifyError(
                "`simultaneous=True` needs one threshold in each group, but the groups of single "
                "columns pool intersections with different ones. Declare one tolerance."
            )

    def _by_bands(self, tolerance: Floats, confidence: float, alpha: float) -> Certified:
        for demand in self.criterion.demands:
            if demand.rate.direction == 0:
                raise CannotCertifyError(
                    "`confidence` for all tolerances at once needs rates that rise or fall with "
                    f"the threshold, got {demand.name}."
                )
        low = np.maximum(tolerance - self._band_margin(alpha), 0.0)
        high = np.maximum(tolerance, low)
        table, feasible = self.points.choose(low)
        bound = self._bounds(table, alpha)
        good = feasible & (bound <= tolerance)
        if not good.all():
            raise self._refusal(float(tolerance[~good].min()), confidence, 2, alpha, None)
        for _ in range(BISECTIONS if len(tolerance) else 0):  # a less constrained point may do
            middle = low + (high - low) / 2
            tried, feasible = self.points.choose(middle)
            better = feasible & (self._bounds(tried, alpha) <= tolerance)
            low, high = np.where(better, middle, low), np.where(better, high, middle)
        table, _ = self.points.choose(low)
        return Certified(table, self._bounds(table, alpha), 2)

    def _band_margin(self, alpha: float) -> float:
        """Return how far a gap can exceed the measured one by the band of constant width."""
        split, margins = self.criterion.split(self.cells), [0.0]
        for demand in self.criterion.demands:
            counts = tuple(demand.parts(split, split)[1].tolist())
            share = UNIFORM * alpha / len(self.criterion.demands)
            if demand.spread == "difference" and demand.scale and len(counts) > 1:
                margins.append(certificates.uniform_margin(counts, share) / float(demand.scale))
        return max(margins)

    def _bounds(self, table: PointTable, alpha: float) -> Floats:
        """Bound the gaps of points in the population, (m,)."""
        selected = table.read(np.arange(len(table)))[1]
        split = self.criterion.split(selected), self.criterion.split(self.cells)
        share = alpha / len(self.criterion.demands)
        bounds = []
        for demand in self.criterion.demands:
            over, under = demand.parts(*split)
            bounds.append(largest_gap(demand, over, np.broadcast_to(under, over.shape), share))
        return np.asarray(np.max(bounds, axis=0))

    # ---- theorem 3: a family of models ---------------------------------------------------------

    def _family(self, tolerance: Floats, confidence: float, alpha: float) -> Certified:
        points = self.points
        margin = simultaneous_margin(points, self.criterion, self.cells, alpha)
        inner = tolerance - margin
        if self._has_exact_tails:
            exact = [self._inner(value, alpha) for value in tolerance.tolist()]
            inner = np.maximum(inner, np.array(exact))
        indices, feasible = points.find_certifiable(inner)
        table = points.tabulate(indices)
        if not feasible.all():
            raise self._refusal(float(tolerance[~feasible].min()), confidence, 3, alpha, None)
        return Certified(table, np.minimum(tolerance, table.gap + margin), 3)

    @property
    def _has_exact_tails(self) -> bool:
        return len(self.groups) == 2 and self.criterion.is_simple

    def _inner(self, tolerance: float, alpha: float) -> float:
        counts = tuple(self.criterion.eligible_counts(self.cells).tolist())
        return certificates.inner_tolerance(counts, tolerance, alpha, self.points.n_declared)

    # ---- refusals ------------------------------------------------------------------------------

    def smallest(self, theorem: int, alpha: float) -> float:
        """Return about the smallest tolerance that is certified at this level; inf if none is.

        It is rounded up to four digits.
        """
        key = theorem, alpha
        if key not in self._smallest:
            low, high = 0, round(1 / RESOLUTION)
            if not self._is_certified(1.0, theorem, alpha):
                self._smallest[key] = math.inf
                return math.inf
            while high - low > 1:
                middle = (low + high) // 2
                enough = self._is_certified(round(middle * RESOLUTION, 4), theorem, alpha)
                low, high = (low, middle) if enough else (middle, high)
            self._smallest[key] = round(high * RESOLUTION, 4)
        return self._smallest[key]

    def _is_certified(self, tolerance: float, theorem: int, alpha: float) -> bool:
        if theorem == 1 and not isinstance(self.points, ThresholdPath):
            inner = np.array([self._inner(tolerance, alpha)])
            return bool(self.points.find_certifiable(inner)[1][0])
        if theorem in (1, 5):
            rules = self._rules(tolerance, theorem)
            first = None if rules is None else rules.take(1)
            return self._walk(first, tolerance, theorem, alpha)[0] > 0
        if theorem == 2:
            inner = np.array([max(tolerance - self._band_margin(alpha), 0.0)])
            table, feasible = self.points.choose(inner)
            return bool(feasible[0] and self._bounds(table, alpha)[0] <= tolerance)
        margin = simultaneous_margin(self.points, self.criterion, self.cells, alpha)
        inner = np.array([tolerance - margin])
        if self._has_exact_tails:
            inner = np.maximum(inner, self._inner(tolerance, alpha))
        return bool(self.points.find_certifiable(inner)[1][0])

    def _refusal(
        self,
        tolerance: float,
        confidence: float,
        theorem: int,
        level: float,
        failure: Failure | None,
    ) -> CannotCertifyError:
        """Return an error that names the group that is too small, and what would be enough."""
        smallest = self.smallest(theorem, level)
        eligible = self.criterion.eligible_counts(self.cells)
        least = self._least_gap(theorem)
        limiting = np.argsort(eligible, kind="stable")[:2]
        grouping = None if failure is None else failure.demand.grouping
        if failure is not None and grouping is None:
            limiting = np.array(sorted(failure.groups, key=lambda a: int(eligible[a])))
        place = int(limiting[0])
        rows, n_rows = int(eligible[place]), self.n_rows
        group = self._name_of(place, rows)
        tied = theorem == 3 or least > 2.0 / max(float(eligible.min()), 1.0)
        room = tolerance - least if tied else tolerance
        power = 0.5 if theorem == 2 else 1.0
        found = [self._rows_needed(smallest - least, room, limiting, power)]
        if theorem == 5:  # these rows may have been lucky
            expected = self._expected_tolerance(level, self._most_equal_rate())
            found.append(self._rows_needed(expected, room, np.argsort(eligible)[:2], power))
        needed, of_group = (_most(figures) for figures in zip(*found, strict=True))
        more = f"for {tolerance:g}, {describe_enough(needed, of_group)}"
        if needed is None:
            fixed = "these settings" if theorem == 3 else "scores that tie so often"
            more = f"no sample size is enough for {tolerance:g}"
            more += f" with {fixed}, whose smallest gap is {least:.4g}" if tied else ""
        copies = int(self.cells.sum()) // max(n_rows, 1)
        kind = "rows" if rows * copies == int(self.cells.sum(axis=0)[place]) else "eligible rows"
        possible = f"the smallest tolerance that can be certified is {smallest:.4f}"
        if smallest >= 1:
            possible = "no tolerance can be certified"
        return CannotCertifyError(
            f"`tolerance={tolerance:g}` can't be certified with confidence {confidence:g}: group "
            f"{group!r} has only {rows:,} {kind} among the {n_rows:,} for calibration. With these, "
            f"{possible}; {more}.",
            smallest_tolerance=smallest if smallest < 1 else None,
            rows_needed=needed,
            group=group,
            group_rows=rows,
            group_rows_needed=of_group,
        )

    def _name_of(self, place: int, rows: int) -> Hashable:
        """Return the name of an intersection with so many rows, or of the column's group it is in.

        If only columns are compared, a group of one of them has these rows.
        """
        counted = self.criterion.eligible_by_demand(self.cells)
        found = [
            demand.grouping
            for demand, eligible in zip(self.criterion.demands, counted, strict=True)
            if int(eligible[place]) == rows
        ]
        grouping = None if None in found else next(filter(None, found), None)
        if grouping is None:
            return self.groups[place]
        return f"{grouping.column}: {grouping.names[grouping.members[place]]}"

    def _rows_needed(
        self, margin: float, room: float, limiting: Indices, power: float
    ) -> tuple[int | None, int | None]:
        """Return the rows that reduce a margin to ``room``: all of them, and of small groups."""
        n_rows = self.n_rows
        needed = certificates.rows_needed(n_rows, margin, room)
        if needed is None:
            return None, None
        eligible = self.criterion.eligible_counts(self.cells)
        return needed, rows_of_small_groups(eligible, limiting, needed / n_rows, power)

    def _most_equal_rate(self) -> float:
        """Return the rate of all groups together at the most equal point, away from 0 and 1."""
        place = np.array([int(np.argmin(self.points.gap))])
        selected = self.points.read(place)[1][0]
        demand = self.criterion.demands[0]
        over, under = demand.parts(self.criterion.split(selected), self.criterion.split(self.cells))
        return min(max(float(over.sum() / max(under.sum(), 1)), 0.02), 0.98)

    def _least_gap(self, theorem: int) -> float:
        if theorem == 3:
            return float(self.points.gap[self.points.certifiable].min(initial=1.0))
        return float(self.points.gap.min())


def rows_of_small_groups(
    eligible: Counts, limiting: Indices, times: float, power: float = 1.0
) -> int | None:
    """Return the rows that each group that has fewer needs; None if that's too many to say.

    Parameters
    ----------
    eligible : (K,) int64
        Eligible rows of the groups.
    limiting : (1,) or (2,) intp
        The groups whose test doesn't reject, the smaller one first.
    times : float
        How many times as many rows are enough if all groups grow alike.
    power : float
        The margin falls with the sum of the rows to minus this power: 1 for the variance of a
        difference, one half for the sum of two widths.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.certify import rows_of_small_groups
    >>> rows_of_small_groups(np.array([100, 9000, 8000]), np.array([0, 1]), 4.0)
    417
    >>> rows_of_small_groups(np.array([100, 150, 8000]), np.array([0, 2]), 4.0)
    791
    """
    terms = np.maximum(eligible.astype(np.float64), 1.0) ** -power
    wanted = float(terms[limiting].sum()) / times**power
    if len(limiting) == 2:
        second = float(np.delete(terms, limiting[0]).max())
        wanted = wanted - second if wanted >= 2.0 * second else wanted / 2.0  # alone, or with it
    needed = wanted ** (-1.0 / power)
    return math.ceil(needed) if needed <= MOST_ROWS else None


def _most(figures: tuple[int | None, ...]) -> int | None:
    """Return the largest number of rows; None if one of them is."""
    return None if None in figures else max(figure for figure in figures if figure is not None)


def _join(tables: Sequence[PointTable], cells: Counts, n_groups: int) -> PointTable:
    """Return the points of several tables."""
    read = [table.read(np.arange(len(table))) for table in tables]
    return PointTable(
        np.concatenate([np.empty(0), *(table.setting for table in tables)]),
        np.concatenate([np.empty(0), *(table.gap for table in tables)]),
        np.ones(sum(map(len, tables)), np.bool_),
        np.concatenate([np.empty((0, n_groups)), *(thresholds for thresholds, _ in read)]),
        np.concatenate([np.empty((0, *cells.shape), cells.dtype), *(s for _, s in read)]),
    )
