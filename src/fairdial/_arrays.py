"""Array types, and weights whose sums are exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64 | np.float64]  # float64 if rows have weights that aren't whole numbers
Weights = NDArray[np.int64 | np.float64]  # of rows; int64 if they are whole numbers
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Codes = NDArray[np.integer[Any]]  # group codes, 0 to K - 1
Kinds = Codes | Mask  # kind of each row: stratum * n_labels + label
Scores = NDArray[np.floating[Any]]  # float32 or float64
Features = NDArray[np.floating[Any]]  # (n, d), float32 or float64
Dtype = np.dtype[Any]

EXACT = 2.0**53  # integers up to this are exact in float64


def exact_weights(weights: NDArray[Any]) -> Weights:
    """Return weights whose sums are exact, and so don't depend on the order of the rows.

    Whole numbers become int64: a weight of 3 is the same as three rows. Other weights are rounded
    to multiples of a power of two, about 2^-52 of the total; positive ones stay positive.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial._arrays import exact_weights
    >>> exact_weights(np.array([2.0, 1.0])), exact_weights(np.array([0.1, 0.2, 0.3]))
    (array([2, 1]), array([0.1, 0.2, 0.3]))
    """
    total = float(weights.sum(dtype=np.float64))
    if total < EXACT:
        if weights.dtype.kind in "biu":
            return weights.astype(np.int64, copy=False)
        if (weights == np.floor(weights)).all():
            return weights.astype(np.int64)
    values = weights.astype(np.float64, copy=False)
    unit = summable_unit(total)
    units = np.rint(values / unit)
    return np.asarray(np.maximum(units, values > 0) * unit)


def summable_unit(total: float) -> float:
    """Return a power of two whose multiples have exact sums, if their sizes add up to ``total``."""
    exponent = math.frexp(1.01 * total)[1]  # the total has rounding errors
    return math.ldexp(1.0, max(exponent - 52, -1074))
