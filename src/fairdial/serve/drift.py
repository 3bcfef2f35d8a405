"""What unlabelled scores tell: rates with intervals, drift, thresholds anew. Counts only.

Scores are kept as counts in bins, closed above, so that what a threshold at an edge selects is
exact, and no row is kept.

*Interval of the gap*: :func:`fairdial.confidence.gap_interval`, from exact (Clopper-Pearson)
intervals of the groups' selection rates that share the doubt (:func:`rate_intervals`). It covers
the gap of the population that the rows were drawn from with at least the confidence, for one look
at rows whose number was not chosen by looking.

*Drift*: the largest distance between a group's distribution of scores and that of its calibration
rows is compared with what chance allows, by the inequality of Dvoretzky, Kiefer, Wolfowitz and
Massart for both samples. It is looked at when a group has its first 100 rows, and again whenever
their number has doubled; look k (from 0) spends 1 / ((k + 1) (k + 2)) of the groups' share of half
the doubt, the calibration rows spend the other half. So if nothing has changed, and rows come
independently, a false alarm *ever* happens with at most the stated probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial.confidence import rate_interval
from fairdial.criteria import Criterion
from fairdial.frontier import Frontier
from fairdial.ladders import Ladder
from fairdial.paths import Path, count_rows

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

BINS = 4096
WIDTH = 2.0**-7  # of a bin, in logits: all of them over (-16, 16], the outermost without end
HALF = BINS // 2
FIRST_LOOK = 100  # rows
FALSE_ALARMS = 0.01
LEVEL = 0.95  # of the gap's interval


def bin_scores(scores: Floats, codes: NDArray[Any], n_groups: int) -> Counts:
    """(K, BINS) rows by group and bin of their score, highest scores first."""
    places = codes.astype(np.intp) * BINS + _bin_of(scores)
    return np.bincount(places, minlength=n_groups * BINS).reshape(n_groups, BINS)


def _bin_of(scores: Floats) -> NDArray[np.intp]:
    """Bins descend; a score on an edge lies in the bin below it."""
    inside = np.clip(scores, -HALF * WIDTH, HALF * WIDTH)
    down = np.floor(inside / -WIDTH)  # exact: a power of two
    return np.minimum(down, HALF - 1).astype(np.intp) + HALF


def calibration_bins(frontier: Frontier) -> Counts | None:
    """The calibration rows' scores in the same bins.

    None where they are not kept, or don't follow the law of new rows' scores (cross-fitting).
    """
    states = frontier.states
    if not isinstance(states, Path) or frontier.certificate == "none":
        return None
    lines = [
        np.bincount(_bin_of(ladder.upper), ladder.counts.sum(axis=0), minlength=BINS)
        for ladder in states.ladders
    ]
    return np.array(lines).astype(np.int64)


def rate_intervals(selected: Counts, rows: Counts, confidence: float) -> tuple[Floats, Floats]:
    """Exact intervals of the groups' rates that hold together: lowest and highest, (K,) each.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.serve.drift import rate_intervals
    >>> low, high = rate_intervals(np.array([0, 30]), np.array([10, 100]), 0.9)
    >>> low.round(3), high.round(3)
    (array([0.   , 0.212]), array([0.308, 0.4  ]))
    """
    level = 1.0 - (1.0 - confidence) / len(rows)
    counts = zip(selected.tolist(), rows.tolist(), strict=True)
    low, high = np.array([rate_interval(k, n, level) for k, n in counts]).T
    return low, high


@dataclass(frozen=True)
class Look:
    """One look at a group's scores.

    Attributes
    ----------
    number : int
        Which look, from 0.
    distance : float
        Largest difference of the two distributions.
    bound : float
        What chance allows.
    """

    number: int
    distance: float
    bound: float

    @property
    def drift(self) -> bool:
        """Whether chance doesn't explain the distance."""
        return self.distance > self.bound


def look_number(rows: int) -> int:
    """The last look that is due at so many rows; -1: none yet."""
    return -1 if rows < FIRST_LOOK else int(rows // FIRST_LOOK).bit_length() - 1


def look(observed: Counts, calibration: Counts, n_groups: int) -> Look:
    """Compare one group's scores, (BINS,) counts, with those of its calibration rows."""
    rows, before = int(observed.sum()), int(calibration.sum())
    number = look_number(rows)
    share = FALSE_ALARMS / (2 * n_groups)
    spent = share / ((number + 1) * (number + 2))
    bound = math.sqrt(math.log(2 / share) / (2 * before)) + math.sqrt(
        math.log(2 / spent) / (2 * rows)
    )
    shares = np.cumsum(observed) / rows - np.cumsum(calibration) / before
    return Look(number, float(np.abs(shares).max()), bound)


def redial(counts: Counts, criterion: Criterion, names: tuple[Any, ...]) -> Frontier:
    """The frontier of unlabelled scores by their bins, (K, BINS); thresholds stand at edges.

    Within a tolerance with exact figures, and up to a bin from the least constrained thresholds.
    """
    ladders = [_ladder(line) for line in counts]
    path = Path(ladders, criterion, np.dtype(np.float64))
    return Frontier(path, criterion, names, count_rows(ladders), "simultaneous")


def _ladder(counts: Counts) -> Ladder:
    bins = np.flatnonzero(counts)
    upper = (HALF - bins) * np.float64(WIDTH)
    lower = np.nextafter(upper - WIDTH, np.inf).astype(np.float64, copy=False)
    upper[bins == 0], lower[bins == BINS - 1] = np.inf, -np.inf
    return Ladder.of_counts(lower, upper, counts[None, bins])
