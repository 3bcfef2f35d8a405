"""Columns of numbers as short text that a browser reads back to the last bit."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import ArrayLike, NDArray

SEVEN = 7  # bits of a whole number that a byte carries; the eighth says that more follow


def pack_floats(values: ArrayLike) -> str:
    """Doubles, little-endian, in base64.

    Examples
    --------
    >>> from fairdial.serve.packing import pack_floats
    >>> pack_floats([0.5])
    'AAAAAAAA4D8='
    """
    return _text(np.asarray(values, "<f8").tobytes())


def pack_ints(values: ArrayLike) -> str:
    """Whole numbers, (n,) or (n, columns), column after column, as what changes down a column.

    Neighbouring states of a dial differ by a row or two, so most numbers take one byte: a change
    is zigzag coded (0, -1, 1, -2, ... as 0, 1, 2, 3, ...), lowest seven bits first.

    Examples
    --------
    >>> import base64
    >>> from fairdial.serve.packing import pack_ints
    >>> list(base64.b64decode(pack_ints([300, 301, 300])))  # 600, 2, 1
    [216, 4, 2, 1]
    """
    table = np.asarray(values, np.int64)
    table = table.reshape(len(table), -1)
    changes = np.diff(table, axis=0, prepend=np.zeros((1, table.shape[1]), np.int64))
    return _text(_varints(changes.T.reshape(-1)).tobytes())


def _varints(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Whole numbers of any sign, in as few bytes as each needs."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes, rest = np.ones(len(zigzag), np.intp), zigzag >> np.uint64(SEVEN)
    while rest.any():
        sizes += rest > 0
        rest = rest >> np.uint64(SEVEN)
    starts = np.cumsum(sizes) - sizes
    data = np.zeros(int(sizes.sum()), np.uint8)
    for i in range(int(sizes.max(initial=0))):
        there = np.flatnonzero(sizes > i)
        bits = (zigzag[there] >> np.uint64(SEVEN * i)) & np.uint64(0x7F)
        data[starts[there] + i] = bits | (np.uint64(0x80) * (sizes[there] > i + 1))
    return data


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
