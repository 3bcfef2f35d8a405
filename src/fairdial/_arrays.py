"""Array types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Codes = NDArray[np.integer[Any]]  # group codes, 0 to K - 1
Scores = NDArray[np.floating[Any]]  # float32 or float64
Features = NDArray[np.floating[Any]]  # (n, d), float32 or float64
Dtype = np.dtype[Any]
