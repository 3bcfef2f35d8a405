"""Plan the calibration rows that a certified tolerance needs, before anything is trained."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Floats, Mask
from fairdial._special import ndtri
from fairdial._validation import (
    check_confidence,
    check_labels,
    check_one_tolerance,
    check_same_length,
    encode_groups,
)
from fairdial.core import certificates
from fairdial.core.bands import UNIFORM
from fairdial.core.certify import LUCK, expected_margin
from fairdial.core.criteria import ALL, Criterion, Given
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_rows
from fairdial.core.problem import Problem
from fairdial.core.strata import find_strata
from fairdial.core.sweep import require_labels
from fairdial.errors import InvalidInputError

SHARES = np.round(np.arange(0.1, 0.501, 0.05), 2)  # of the rows that can be held out
DISCRETE = 1.08  # what an exact test costs beyond the normal approximation
CROSSINGS = 3  # a change of sign must be rarer than this share of alpha, at any rates
MOST_ROWS = 1_000_000_000  # of a group that a plan mentions


@dataclass(frozen=True)
class CalibrationPlan:
    """How many calibration rows a certificate is likely to need.

    Attributes
    ----------
    tolerance, confidence : float
        What is to be certified.
    groups : tuple
        Names of the groups.
    rows : (K,) int64
        Eligible rows of each group; with several demands, the fewest.
    needed : int or None
        Eligible calibration rows that are enough if every group has as many: a group may have fewer
        if others have more. None if a billion is too few.
    share : float or None
        The smallest share of the rows to hold out; None if one half isn't enough.
    smallest : float
        A tolerance that is likely to be certified with ``share`` (one half if None); often a
        smaller one is, too.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import plan_calibration
    >>> plan = plan_calibration(np.repeat(["a", "b"], 5_000), tolerance=0.05, rate=0.2)
    >>> plan.share, plan.smallest <= 0.05
    (0.2, True)
    """

    tolerance: float
    confidence: float
    groups: tuple[Hashable, ...]
    rows: Counts
    needed: int | None
    share: float | None
    smallest: float

    @property
    def held_out(self) -> Counts:
        """(K,) eligible calibration rows of each group with ``share`` (one half if None)."""
        return _held_out(self.rows, self.share).astype(np.int64)

    @property
    def scarce(self) -> tuple[Hashable, ...]:
        """The groups that have fewer rows than ``needed``, even if one half is held out."""
        most = _held_out(self.rows, None)
        few = [self.needed is None or held < self.needed for held in most.tolist()]
        return tuple(name for name, short in zip(self.groups, few, strict=True) if short)

    def __str__(self) -> str:
        if self.needed is None:
            enough = f"A billion rows of each group don't certify {self.tolerance:g}."
        else:
            enough = f"About {self.needed:,} eligible calibration rows of each group are enough."
        if self.share is None:
            end = f"Half of these rows certify about {self.smallest:.3f}, not {self.tolerance:g}."
        else:
            end = f"Hold out {self.share:.0%} of the rows (`calibration={self.share:g}`)."
        return f"{enough} {end}"


def plan_calibration(
    groups: Any,
    y: ArrayLike | None = None,
    *,
    tolerance: float,
    confidence: float = 0.95,
    criterion: Given = "demographic_parity",
    rate: float | None = None,
) -> CalibrationPlan:
    """Plan how many rows to hold out so that a tolerance is likely to be certified.

    The plan is an approximation: it is about a typical draw of rows, and the certificate itself is
    exact.

    Parameters
    ----------
    groups : (n,) array-like, Series or DataFrame
        Group of each row that there is to train and to calibrate.
    y : (n,) array-like of 0 and 1, optional
        Labels, for criteria that need them.
    tolerance : float
        The tolerance that will be declared.
    confidence : float
        Confidence of the certificate.
    criterion : str, Criterion, list or mapping
        The criterion.
    rate : float, optional
        About what the groups' rates will be, by default the share of positive labels for
        demographic parity, and one half otherwise. Rates near 0 or 1 need fewer rows if there are
        more than two groups or several rates; for two groups and one rate it doesn't matter.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import plan_calibration
    >>> groups = np.repeat(["a", "b", "c"], [20_000, 8_000, 500])
    >>> plan = plan_calibration(groups, tolerance=0.10, rate=0.2)
    >>> plan.share is None, plan.groups[int(np.argmin(plan.rows))]
    (True, 'c')
    >>> plan_calibration(groups, tolerance=0.2, rate=0.2).share
    0.25
    """
    kind, _ = find_strata(find_criterion(criterion), None, 0)
    codes, names = encode_groups(groups)
    if len(names) < 2:
        raise InvalidInputError("groups", "have two or more groups", given=list(names))
    positive = None
    if y is not None:
        positive = check_labels(y)
        check_same_length(codes, positive, ("groups", "y"))
    require_labels(Problem(kind), positive is not None)
    counts = count_rows(codes, positive, len(names), 1 if positive is None else 2)
    if rate is None:
        rate = guess_rate(kind, positive)
    level = check_confidence(confidence)
    return plan_counts(kind, counts, names, check_one_tolerance(tolerance), level, rate)


def guess_rate(criterion: Criterion, positive: Mask | None) -> float:
    """Return about what the groups' rates will be, from the labels, (n,)."""
    if positive is None or not criterion.is_simple or criterion.rate.eligible is not None:
        return 0.5
    return float(positive.mean())


def plan_counts(
    criterion: Criterion,
    counts: Counts,
    names: tuple[Hashable, ...],
    tolerance: float,
    confidence: float,
    rate: float,
) -> CalibrationPlan:
    """Return the plan for rows by kind and group, (C, K)."""
    rate = min(max(rate, 0.02), 0.98)
    alpha = 1.0 - confidence
    eligible = _eligible(criterion, counts)  # (J, K)
    rows = eligible.min(axis=0)

    def margin(sizes: Floats) -> float:
        return predicted_tolerance(criterion, sizes, alpha, rate)

    def is_enough(size: int) -> bool:
        return margin(np.full(eligible.shape, size)) <= tolerance

    enough = [float(s) for s in SHARES if margin(_held_out(eligible, float(s))) <= tolerance]
    share = enough[0] if enough else None
    needed = None
    if is_enough(MOST_ROWS):
        low, needed = 1, MOST_ROWS
        while needed - low > 1:
            middle = (low + needed) // 2
            low, needed = (low, middle) if is_enough(middle) else (middle, needed)
    smallest = margin(_held_out(eligible, share))
    return CalibrationPlan(tolerance, confidence, names, rows, needed, share, smallest)


def _held_out(rows: Counts, share: float | None) -> Floats:
    """Return the calibration rows if a share is held out; the largest share if None."""
    return np.asarray(np.floor((share or float(SHARES[-1])) * rows))


def _eligible(criterion: Criterion, counts: Counts) -> Counts:
    split = criterion.split(counts)
    found = []
    for demand in criterion.demands:
        kind = demand if demand.rate.fixed else replace(demand, rate=ALL)
        rows = kind.parts(split, split)[1]
        found.append(rows if demand.grouping is None else demand.grouping.spread(rows))
    return np.stack(found)


def predicted_tolerance(criterion: Criterion, eligible: Floats, alpha: float, rate: float) -> float:
    """Return about the smallest tolerance that these calibration rows certify.

    Parameters
    ----------
    criterion : Criterion
        The criterion.
    eligible : (J, K) float64
        Eligible calibration rows by demand and group.
    alpha : float
        One minus the confidence.
    rate : float
        About what the rates will be.
    """
    largest, n_groups = 0.0, eligible.shape[1]
    if n_groups < 2:
        return 0.0
    for demand, sizes in zip(criterion.demands, eligible, strict=True):
        rows = np.maximum(np.sort(sizes)[:2], 1.0)
        if criterion.is_simple and n_groups == 2:
            spread = float(np.sqrt((1.0 / rows).sum()))
            margin = -float(ndtri(alpha)) * DISCRETE * float(np.sqrt(rate * (1.0 - rate))) * spread
            margin = max(margin, -0.5 * float(ndtri(alpha / CROSSINGS)) * spread)
        else:
            margin = LUCK * expected_margin(rows, n_groups, alpha, guided=False, rate=rate)
            pair = tuple(int(r) for r in rows)
            share = UNIFORM * alpha / len(criterion.demands)
            bands = certificates.uniform_margin((*pair, *([pair[1]] * (n_groups - 2))), share)
            margin = min(margin, bands / 0.9)
        if demand.spread == "ratio":
            margin /= max(rate, 0.05)
        largest = max(largest, margin / (float(demand.scale) or 1.0))
    return largest
