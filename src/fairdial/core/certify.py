"""Choose operating points whose gap on new rows is certified.

The statements are in ``certificates.py``; here they are applied to the points of a frontier.
"""

from __future__ import annotations

import math

import numpy as np

from fairdial._arrays import Counts, Floats, Indices
from fairdial.core import certificates
from fairdial.core.operating_points import OperatingPoints
from fairdial.errors import CannotCertifyError


def simultaneous_margin(points: OperatingPoints, eligible: Counts, alpha: float) -> float:
    """Return how far the population gap can exceed the measured one, for all points at once."""
    counts = tuple(eligible.tolist())
    if points.n_declared is None:
        return certificates.uniform_margin(counts, alpha)
    if points.n_declared == 0:
        raise CannotCertifyError(
            "`confidence` needs settings that were fixed before looking at the calibration rows, "
            "got none. Calibrate on other rows than the settings were found on."
        )
    return certificates.finite_margin(counts, alpha, points.n_declared)


def certify(
    points: OperatingPoints,
    counts: Counts,
    eligible: Counts,
    tolerance: Floats,
    confidence: float,
    *,
    declared: bool,
) -> tuple[Indices, Floats]:
    """Return the point for each tolerance, and the bound on its gap on new rows.

    Parameters
    ----------
    points : OperatingPoints
        The points.
    counts, eligible : (L, K) and (K,) int64
        All calibration rows by label and group, and the eligible ones by group.
    tolerance : (m,) float64
        The tolerances; the statements about them hold jointly.
    confidence : float
        Confidence of the bounds.
    declared : bool
        Whether the tolerances were fixed before looking at the rows (two groups, thresholds).
    """
    alpha = 1.0 - confidence
    margin = simultaneous_margin(points, eligible, alpha)
    level = None  # of the exact tails, which exist for two groups
    if declared:
        level = alpha / max(len(np.unique(tolerance)), 1)
    elif points.n_declared is not None and len(eligible) == 2:
        level = alpha
    inner = tolerance - margin
    if level is not None:
        pair = tuple(eligible.tolist())
        exact = np.array(
            [
                certificates.inner_tolerance(pair, value, level, points.n_declared)
                for value in tolerance.tolist()
            ]
        )
        inner = exact if declared else np.maximum(inner, exact)
    swept = level is None and points.n_declared is None
    indices, feasible = (points.find if swept else points.find_certifiable)(inner)
    if not feasible.all():
        smallest = float(tolerance[~feasible].min())
        raise _refusal(points, counts, eligible, smallest, confidence, level, margin)
    if declared:
        return indices, tolerance
    bound = points.gap[indices] + margin
    if points.n_declared is not None:  # theorem 3: both statements hold together
        bound = np.minimum(tolerance, bound)
    return indices, bound


def _refusal(
    points: OperatingPoints,
    counts: Counts,
    eligible: Counts,
    tolerance: float,
    confidence: float,
    level: float | None,
    margin: float,
) -> CannotCertifyError:
    """Return an error with the tolerance that can be certified, and the rows that are needed."""
    n_rows, n_declared = int(counts.sum()), points.n_declared
    certain = float(points.gap[points.certifiable].min(initial=1.0))
    least = float(points.gap.min()) if n_declared is None else certain
    smallest = math.inf
    if level is None or n_declared is not None:
        resolution = certificates.RESOLUTION
        smallest = math.ceil((least + margin) / resolution) * resolution
    if level is not None:
        pair = tuple(eligible.tolist())
        exact = certificates.smallest_tolerance(pair, level, certain, n_declared)
        smallest = min(smallest, exact)
        margin = smallest - certain
    is_family = n_declared is not None
    tied = is_family or least > 2.0 / float(eligible.min())  # more rows don't make it smaller
    room = tolerance - least if tied else tolerance
    needed = certificates.rows_needed(n_rows, margin, room)
    possible = f"tolerances down to {smallest:.4f}" if smallest <= 1 else "no tolerance"
    if needed is not None:
        more = f"about {needed:,} calibration rows like these are enough for {tolerance:g}"
    else:
        more = f"no sample size is enough for {tolerance:g}"
        if tied:
            more += " with these settings" if is_family else " with scores that have so many ties"
    return CannotCertifyError(
        f"`tolerance={tolerance:g}` can't be certified with confidence {confidence:g}: {n_rows:,} "
        f"calibration rows (smallest gap {least:.4g}) can certify {possible}; {more}.",
        smallest_tolerance=smallest if smallest <= 1 else None,
        rows_needed=needed,
    )
