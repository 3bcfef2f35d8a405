"""Nested dials: each row changes its decision at most once, for any problem.

The best thresholds at two tolerances need not be nested: a row may gain a positive decision, lose
it and gain it again. A nested dial moves each group's threshold in one direction only.
"""

from __future__ import annotations

import numpy as np

from fairdial._arrays import Floats, Indices
from fairdial.core.operating_points import PointTable
from fairdial.core.searched import SearchedPoints

STEP = 0.0025  # between the tolerances of a nested dial
ANCHOR = 0.02  # the dial moves toward the best thresholds at this tolerance


class NestedPoints(PointTable):
    """Points of a nested dial, and what nesting costs."""

    def __init__(self, table: PointTable, lost: Floats, source: SearchedPoints) -> None:
        points = np.arange(len(table))
        super().__init__(table.setting, table.gap, table.certifiable, *table.read(points))
        self.lost, self.source = lost, source

    @property
    def loss(self) -> float:
        """The largest loss of the objective against the best thresholds at the same tolerance."""
        return float(self.lost.max())

    def bound(self, tolerance: float) -> float | None:
        """Return the best expected value of any rule within a tolerance."""
        return self.source.bound(tolerance)

    def expected_value(self, thresholds: Floats) -> float | None:
        """Return the objective at thresholds, as it is maximized."""
        return self.source.expected_value(thresholds)


def nest(points: SearchedPoints, tolerances: Floats | None = None) -> NestedPoints:
    """Return a dial on which each row changes its decision at most once.

    It moves from the least constrained thresholds to the best ones at the smallest of the
    tolerances (0.02 if none are given), and then on in the same directions as far as possible.
    """
    start, top = points.unconstrained, points.gap_at(points.unconstrained)
    if top > 1.0:  # minimum and maximum rates hold at every tolerance
        found, top = points.answer(1.0), 1.0
        start = start if found is None else found
    wanted = np.array([ANCHOR]) if tolerances is None else tolerances
    grid = np.append(np.arange(np.ceil(top / STEP)) * STEP, wanted)
    grid = np.unique(grid[grid < top])[::-1]
    anchor = float(wanted.min())
    goal = points.answer(anchor) if anchor < top else start
    goal = points.least if goal is None else goal
    lowest, highest = np.minimum(start, goal), np.maximum(start, goal)
    ranks, found_at, lost = [start], [top], [0.0]
    for tolerance in grid.tolist():
        if tolerance < anchor:  # on from the goal
            lowest, highest = _beyond(points, start, ranks[-1])
        found = points.solve(tolerance, lowest, highest)
        if found is None:
            break
        lowest = np.where(found > start, found, lowest)
        highest = np.where(found < start, found, highest)
        ranks.append(found)
        found_at.append(tolerance)
        best = points.answer(tolerance)
        lost.append(0.0 if best is None else points.value_at(best) - points.value_at(found))
    table = points.table(np.array(found_at), np.stack(ranks))
    return NestedPoints(table, np.maximum(lost, 0.0), points)


def _beyond(points: SearchedPoints, start: Indices, last: Indices) -> tuple[Indices, Indices]:
    """Return the lowest and highest ranks if no row may change back."""
    end = np.array([scores.last_rank for scores in points.group_scores], np.intp)
    return np.where(last > start, last, 0), np.where(last < start, last, end)
