"""The Pareto front of (accuracy, gap) points."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Floats, Mask
from fairdial.errors import InvalidInputError


def check_points(points: ArrayLike) -> Floats:
    """Return points as an (n, 2) array; raise on anything else."""
    array = np.asarray(points, np.float64)
    if array.ndim != 2 or array.shape[1] != 2 or len(array) == 0:
        raise InvalidInputError(
            "points", "be (accuracy, gap) pairs, (n, 2)", given=f"shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise InvalidInputError("points", "be finite", given="NaN or infinity")
    return array


def pareto(points: ArrayLike) -> Mask:  # eq:tradeoff_optim
    """Return which (accuracy, gap) points are not dominated by another point, (n,).

    A point dominates another if its accuracy is at least as high and its gap at most as large, and
    one of the two is strictly better. Equal points don't dominate each other.

    Examples
    --------
    >>> from fairdial.metrics import pareto
    >>> pareto([(0.8, 0.1), (0.7, 0.1), (0.7, 0.0)]).tolist()
    [True, False, True]
    """
    array = check_points(points)
    accuracy, gaps = array.T
    order = np.lexsort((-accuracy, gaps))
    sorted_accuracy, sorted_gaps = accuracy[order], gaps[order]
    first = np.r_[True, sorted_gaps[1:] != sorted_gaps[:-1]]  # most accurate at its gap
    start = np.flatnonzero(first)[np.cumsum(first) - 1]
    before = np.r_[-np.inf, np.maximum.accumulate(sorted_accuracy)[:-1]]  # smaller gaps
    keep = (sorted_accuracy == sorted_accuracy[start]) & (sorted_accuracy > before[start])
    mask = np.empty(len(array), np.bool_)
    mask[order] = keep
    return mask
