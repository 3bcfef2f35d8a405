"""How many bins a summary may have."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairdial._validation import check_count
from fairdial.errors import InvalidInputError
from fairdial.histograms import Grid

BITS = 16  # 2^16 bins of 2^-11 cost a tenth more to count than 2^14 of them, 2^20 twice as much
FEWEST_BITS, MOST_BITS = 8, 20
MOST_BINS = 1 << 27  # a gigabyte of counts
DTYPES = {name: np.dtype(name) for name in ("float32", "float64")}


def check_bits(bits: Any) -> Grid:
    """The grid of so many bits."""
    check_count(bits, "bits", least=FEWEST_BITS)
    if bits > MOST_BITS:
        raise InvalidInputError(f"`bits` must be at most {MOST_BITS}, got {bits}.")
    return Grid(int(bits))


def check_size(n_cells: int, grid: Grid) -> None:
    """Counts must be small: that is what they are for."""
    if n_cells * grid.size > MOST_BINS:
        raise InvalidInputError(
            f"`bits` must be smaller for so many groups: 2^{grid.bits} bins for each group and "
            f"label, {n_cells:,} times, got more than {MOST_BINS:,} in all. Does the group column "
            "hold groups?"
        )
