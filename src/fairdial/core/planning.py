"""Plan the calibration rows that a certified tolerance needs, before anything is trained."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from fairdial._arrays import Counts, Floats, Mask
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

SHARES = np.round(np.arange(0.1, 0.501, 0.05), 2)  # of the rows that can be held out
DISCRETE = 1.08  # what an exact test costs beyond the normal approximation
CROSSINGS = 3  # a change of sign must be rarer than this share of alpha, at any rates
MOST_ROWS = 10_000_000


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
    needed : (K,) int64
        Eligible calibration rows that each group needs, if no other group has fewer; -1 if no
        number is enough.
    share : float or None
        The smallest share of the rows to hold out; None if one half isn't enough.
    smallest : float
        About the smallest tolerance that is certified with ``share`` (one half if None).

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
    needed: Counts
    share: float | None
    smallest: float

    def __str__(self) -> str:
        lines = [
            f"{name}: {rows:,} eligible rows, "
            + ("no number is enough" if needed < 0 else f"about {needed:,} to hold out")
            for name, rows, needed in zip(
                self.groups, self.rows.tolist(), self.needed.tolist(), strict=True
            )
        ]
        if self.share is None:
            end = f"Half of these rows certify about {self.smallest:.3f}, not {self.tolerance:g}."
        else:
            end = f"Hold out {self.share:.0%} of the rows (`calibration={self.share:g}`)."
        return "\n".join([*lines, end])


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
        About what the groups' rates will be; rates near 0 or 1 need fewer rows. By default the
        share of positive labels for demographic parity, and one half otherwise.

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

    enough = [float(s) for s in SHARES if margin(np.floor(s * eligible)) <= tolerance]
    share = enough[0] if enough else None
    held = np.floor((share or float(SHARES[-1])) * eligible)
    needed = np.full(len(names), -1, np.int64)
    for a in range(len(names)):
        low, high = 1, MOST_ROWS
        others = held.copy()

        def is_enough(size: int, others: Floats = others, a: int = a) -> bool:
            sizes = others.copy()
            sizes[:, a] = size
            sizes = np.maximum(sizes, size)  # the group is the smallest
            return margin(sizes) <= tolerance

        if not is_enough(high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_enough(middle) else (middle, high)
        needed[a] = high
    return CalibrationPlan(tolerance, confidence, names, rows, needed, share, margin(held))


def _eligible(criterion: Criterion, counts: Counts) -> Counts:
    split = criterion.split(counts)
    found = []
    for demand in criterion.demands:
        kind = demand if demand.rate.fixed else replace(demand, rate=ALL)
        found.append(kind.parts(split, split)[1])
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
