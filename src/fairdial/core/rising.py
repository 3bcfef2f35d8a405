"""Leveling up: the same scores, solved so that no row loses a positive decision."""

from __future__ import annotations

from dataclasses import replace

from fairdial.core.frontier import Frontier
from fairdial.core.nested import NestedPoints
from fairdial.core.searched import SearchedPoints
from fairdial.core.sweep import find_points
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import InvalidInputError


def rising_frontier(frontier: Frontier) -> Frontier | None:
    """Return the dial that only lowers thresholds, from the same scores.

    None if there is none: for model families, lotteries, frontiers whose scores weren't kept, one
    group, and maximum rates that the unconstrained thresholds exceed.

    Examples
    --------
    >>> from fairdial import sweep
    >>> from fairdial.core.rising import rising_frontier
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(2_000, random_state=0)
    >>> frontier = sweep(rows.logits, rows.groups, rows.y)
    >>> rising = rising_frontier(frontier)
    >>> bool((rising.at(0.05).thresholds <= 0).all())
    True
    """
    points = frontier.points
    if isinstance(points, NestedPoints):
        points = points.source
    if not isinstance(points, (ThresholdPath, SearchedPoints)) or len(frontier.groups) == 1:
        return None
    if frontier.problem.randomize is not None:
        return None
    problem = replace(frontier.problem, rising=True, nested=False)
    try:
        found = find_points(points.group_scores, problem, points.dtype, len(frontier.counts))
    except InvalidInputError:  # no lower thresholds meet the minimum and maximum rates
        return None
    return replace(frontier, points=found, problem=problem)
