"""Choose operating points whose gap on new rows is certified.

The statements are in ``certificates.py``; here they are applied to the points of a frontier.
"""

from __future__ import annotations

import math

import numpy as np

from fairdial._arrays import Counts, Floats
from fairdial.core import certificates
from fairdial.core.criteria import Criterion
from fairdial.core.operating_points import OperatingPoints, PointTable
from fairdial.errors import CannotCertifyError


def simultaneous_margin(
    points: OperatingPoints, criterion: Criterion, cells: Counts, alpha: float
) -> float:
    """Return how far the population gap can exceed the measured one, for all points at once.

    The bounds of several demands share ``alpha``.
    """
    margins = []
    for demand in criterion.demands:
        if not demand.is_certifiable:
            raise CannotCertifyError(
                "`confidence` needs demands on differences of rates whose eligible rows don't "
                f"depend on the decisions, got {demand.name}."
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


def certify(
    points: OperatingPoints,
    criterion: Criterion,
    cells: Counts,
    tolerance: Floats,
    confidence: float,
    *,
    declared: bool,
) -> tuple[PointTable, Floats]:
    """Return the point for each tolerance, and the bound on its gap on new rows.

    Parameters
    ----------
    points : OperatingPoints
        The points.
    criterion : Criterion
        The criterion.
    cells : (C, K) int64
        All calibration rows by kind and group.
    tolerance : (m,) float64
        The tolerances; the statements about them hold jointly.
    confidence : float
        Confidence of the bounds.
    declared : bool
        Whether the tolerances were fixed before looking at the rows (two groups, thresholds).
    """
    alpha, eligible = 1.0 - confidence, criterion.eligible_counts(cells)
    margin = simultaneous_margin(points, criterion, cells, alpha)
    level = None  # of the exact tails, which exist for two groups
    if declared:
        level = alpha / max(len(np.unique(tolerance)), 1)
    elif points.n_declared is not None and len(eligible) == 2 and criterion.is_simple:
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
    if level is None and points.n_declared is None:
        reachable = inner >= 0
        table, feasible = points.choose(np.maximum(inner, 0.0))
        feasible &= reachable
    else:
        indices, feasible = points.find_certifiable(inner)
        table = points.tabulate(indices)
    if not feasible.all():
        smallest = float(tolerance[~feasible].min())
        raise _refusal(points, cells, eligible, smallest, confidence, level, margin)
    if declared:
        return table, tolerance
    bound = table.gap + margin
    if points.n_declared is not None:  # theorem 3: both statements hold together
        bound = np.minimum(tolerance, bound)
    return table, bound


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
