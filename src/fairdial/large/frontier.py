"""The frontier of a summary: from its bins, or exact by reading the rows again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairdial._arrays import Floats
from fairdial.core.frontier import Certificate, Frontier
from fairdial.core.group_scores import total_counts
from fairdial.core.histograms import Grid, refine
from fairdial.core.problem import Problem
from fairdial.core.strata import apply_strata
from fairdial.core.sweep import ENOUGH_ROWS, check_group_sizes, find_points, require_labels
from fairdial.errors import FairdialWarning, InvalidInputError, warn
from fairdial.large.second_pass import Read, RereadBins

if TYPE_CHECKING:
    from fairdial.large.summary import ScoreSummary

MARGIN = 4  # neighbors opened with a bin: then a second pass is nearly always enough


def find_frontier(
    summary: ScoreSummary,
    problem: Problem,
    *,
    min_count: int,
    tolerances: Floats | None = None,
    read: Read | None = None,
    argument: str = "groups",
    source: str = "refine",
) -> Frontier:
    """Return the frontier of a summary.

    Where the threshold path applies, and ``read`` returns checked rows with their cells, answers to
    the tolerances are exact. ``argument`` named the groups, and ``source`` the rows that are read
    again.
    """
    if not summary.groups:
        raise InvalidInputError(argument, "have at least one row", given="0 rows")
    if problem.criterion.has_conditions:
        raise InvalidInputError(
            "criterion",
            "have no conditions: the strata of a summary are fixed when rows are counted",
            given=problem.criterion.name,
        )
    if summary.strata:
        problem = replace(problem, criterion=apply_strata(problem.criterion, summary.strata))
    criterion = problem.criterion
    require_labels(problem, summary.labeled)
    check_group_sizes(
        criterion, summary.rows_by_kind, summary.groups, min_count=min_count, argument=argument
    )
    if _look_like_probabilities(summary):
        warn(
            "All scores are in [0, 1] and look like probabilities; proba_to_logits (for Parquet "
            "files, `probabilities=True`) converts them to logits.",
            FairdialWarning,
        )
    certificate: Certificate = "simultaneous" if summary.n_rows is None else "weighted"
    if problem.uses_path and tolerances is not None and read is not None:
        bins = RereadBins(summary.counts, summary.dtype, summary.groups, read, source)
        path = refine(bins, criterion, summary.dtype, tolerances, margin=MARGIN)
        return Frontier(path, problem, summary.groups, path.counts, certificate)
    grid = Grid(summary.bits)
    group_scores = [grid.group_scores(counts, summary.dtype) for counts in summary.counts]
    points = find_points(group_scores, problem, summary.dtype, summary.n_labels, tolerances)
    return Frontier(points, problem, summary.groups, total_counts(group_scores), certificate)


def _look_like_probabilities(summary: ScoreSummary) -> bool:
    """Whether scores fill much of [0, 1], and nothing else, as far as the bins show."""
    if summary.rows.sum() < ENOUGH_ROWS:
        return False
    bins = np.flatnonzero(summary.counts.any(axis=(0, 1)))[[0, -1]]
    high, low = Grid(summary.bits).upper(bins).tolist()
    return bool(0.0 <= low < 0.3 and 0.7 < high <= 1.0)
