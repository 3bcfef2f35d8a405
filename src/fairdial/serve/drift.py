"""Statistics of unlabeled scores: drift, and new thresholds.

Scores are stored as counts in bins that are closed above, so the number of scores above a bin edge
is exact, and no row is stored.

*Intervals of rates and of the gap*: :mod:`fairdial.core.anytime`. They hold at all times together.

*Drift*: the largest difference between the distribution of a group's scores and that of its
calibration rows is compared with a bound from the Dvoretzky-Kiefer-Wolfowitz-Massart inequality for
both samples. A group is tested when it has its first 100 rows, and again whenever their number has
doubled. Half of the error probability goes to the calibration rows; test k (from 0) spends
1 / ((k + 1) (k + 2)) of the other half, divided among the groups. So if nothing has changed and
rows are independent, the probability of a false alarm at *any* time is at most the stated one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fairdial._arrays import Codes, Counts, Floats, Indices
from fairdial.core.criteria import Criterion
from fairdial.core.frontier import Frontier
from fairdial.core.group_scores import GroupScores, total_counts
from fairdial.core.nested import NestedPoints
from fairdial.core.problem import Problem
from fairdial.core.searched import SearchedPoints
from fairdial.core.threshold_path import ThresholdPath

BINS = 4096
WIDTH = 2.0**-7  # of a bin, in logits: (-16, 16] in all; the outermost bins are unbounded
HALF = BINS // 2
FIRST_LOOK = 100  # rows
FALSE_ALARMS = 0.01
LEVEL = 0.95  # confidence of the gap's interval


def bin_scores(scores: Floats, codes: Codes, n_groups: int) -> Counts:
    """Return the number of rows by group and bin of their score, highest scores first."""
    places = codes.astype(np.intp) * BINS + _bin_of(scores)
    return np.bincount(places, minlength=n_groups * BINS).reshape(n_groups, BINS)  # (K, BINS)


def _bin_of(scores: Floats) -> Indices:
    """Return the bins of scores; a score on an edge is in the bin below the edge."""
    inside = np.clip(scores, -HALF * WIDTH, HALF * WIDTH)
    down = np.floor(inside / -WIDTH)  # exact: the width is a power of two
    return np.minimum(down, HALF - 1).astype(np.intp) + HALF


def calibration_bins(frontier: Frontier) -> Counts | None:
    """Return the calibration rows by group and bin of their score.

    Return None if the scores were not kept, or if cross-fitting or weights gave them another
    distribution than new rows have.
    """
    points = frontier.points
    if isinstance(points, NestedPoints):
        points = points.source
    if not isinstance(points, (ThresholdPath, SearchedPoints)):
        return None
    if frontier.certificate in ("none", "weighted"):
        return None
    counts = [
        np.bincount(_bin_of(group.upper), group.counts.sum(axis=0), minlength=BINS)
        for group in points.group_scores
    ]
    return np.array(counts).astype(np.int64)  # (K, BINS)


@dataclass(frozen=True)
class Look:
    """One test of a group's scores for drift.

    Attributes
    ----------
    number : int
        Number of the test, from 0.
    distance : float
        Largest difference between the two distribution functions.
    bound : float
        The largest distance that chance explains.
    """

    number: int
    distance: float
    bound: float

    @property
    def drift(self) -> bool:
        """Whether the distance is larger than chance explains."""
        return self.distance > self.bound


def look_number(rows: int) -> int:
    """Return the number of the last test due after so many rows, or -1 before the first."""
    return -1 if rows < FIRST_LOOK else int(rows // FIRST_LOOK).bit_length() - 1


def look(observed: Counts, calibration: Counts, n_groups: int) -> Look:
    """Compare a group's binned scores with those of its calibration rows, (BINS,) each."""
    n_observed, n_calibration = int(observed.sum()), int(calibration.sum())
    number = look_number(n_observed)
    share = FALSE_ALARMS / (2 * n_groups)
    spent = share / ((number + 1) * (number + 2))
    bound = math.sqrt(math.log(2 / share) / (2 * n_calibration)) + math.sqrt(
        math.log(2 / spent) / (2 * n_observed)
    )
    difference = np.cumsum(observed) / n_observed - np.cumsum(calibration) / n_calibration
    return Look(number, float(np.abs(difference).max()), bound)


def redial(counts: Counts, criterion: Criterion, names: tuple[str, ...]) -> Frontier:
    """Return the frontier of unlabeled scores from their counts in bins, (K, BINS).

    Its thresholds are bin edges: figures are exact, and each threshold is at most one bin away from
    the least constrained one.
    """
    group_scores = [_group_scores(line) for line in counts]
    path = ThresholdPath(group_scores, criterion, np.dtype(np.float64))
    return Frontier(path, Problem(criterion), names, total_counts(group_scores), "simultaneous")


def _group_scores(counts: Counts) -> GroupScores:
    bins = np.flatnonzero(counts)
    upper = (HALF - bins) * np.float64(WIDTH)
    lower = np.nextafter(upper - WIDTH, np.inf).astype(np.float64, copy=False)
    upper[bins == 0], lower[bins == BINS - 1] = np.inf, -np.inf
    return GroupScores.from_counts(lower, upper, counts[None, bins])
