"""Columns of numbers in the page's document: histograms of scores, and packing to short text."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairdial._arrays import Counts, Floats
from fairdial.core.group_scores import GroupScores

FEWEST_BINS, BINS = 4, 60
TAIL = 0.002  # share of the rows on either side that may lie beyond the edges
PAYLOAD = 7  # bits of a number in each byte; the eighth says whether more bytes follow


def pack_floats(values: ArrayLike) -> str:
    """Return doubles in base64, little-endian.

    Examples
    --------
    >>> from fairdial.serve.page_columns import pack_floats
    >>> pack_floats([0.5])
    'AAAAAAAA4D8='
    """
    return _base64(np.asarray(values, "<f8").tobytes())


def pack_ints(values: ArrayLike) -> str:
    """Return integers, (n,) or (n, columns), as the changes down each column, in base64.

    Neighboring points of a dial differ by a row or two, so most changes take one byte. They are
    zigzag coded (0, -1, 1, -2, ... as 0, 1, 2, 3, ...), lowest seven bits first.

    Examples
    --------
    >>> import base64
    >>> from fairdial.serve.page_columns import pack_ints
    >>> list(base64.b64decode(pack_ints([300, 301, 300])))  # 600, 2, 1
    [216, 4, 2, 1]
    """
    table = np.asarray(values, np.int64)
    table = table.reshape(len(table), -1)
    changes = np.diff(table, axis=0, prepend=np.zeros((1, table.shape[1]), np.int64))
    return _base64(_varints(changes.T.reshape(-1)).tobytes())


def pack_counts(values: Counts) -> str | dict[str, str]:
    """Return counts, (n, columns), as :func:`pack_ints`; sums of weights as doubles.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.serve.page_columns import pack_counts
    >>> pack_counts(np.array([[0.5]]))
    {'floats': 'AAAAAAAA4D8='}
    """
    if values.dtype.kind == "f":
        return {"floats": pack_floats(values.T.reshape(-1))}
    return pack_ints(values)


def _varints(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return integers of either sign, each in as few bytes as it needs."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes, rest = np.ones(len(zigzag), np.intp), zigzag >> np.uint64(PAYLOAD)
    while rest.any():
        sizes += rest > 0
        rest = rest >> np.uint64(PAYLOAD)
    starts = np.cumsum(sizes) - sizes
    data = np.zeros(int(sizes.sum()), np.uint8)
    for i in range(int(sizes.max(initial=0))):
        longer = np.flatnonzero(sizes > i)
        bits = (zigzag[longer] >> np.uint64(PAYLOAD * i)) & np.uint64(0x7F)
        data[starts[longer] + i] = bits | (np.uint64(0x80) * (sizes[longer] > i + 1))
    return data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def histogram(group_scores: Sequence[GroupScores]) -> list[tuple[Floats, Counts]]:
    """Return each group's bin edges, and its number of rows by label and bin, (L, bins).

    Bins are equally wide and closed above, and 0 is an edge. Small groups have fewer and wider
    bins. Rows beyond the edges count in the outermost bins. Scores that are only known up to an
    interval count at its center.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.group_scores import sort_scores
    >>> from fairdial.serve.page_columns import histogram
    >>> scores = sort_scores(np.array([-1.0, 0.5, 2.0]), np.array([0, 0, 1]), None, 2)
    >>> [counts.sum(axis=1).tolist() for _, counts in histogram(scores)]
    [[2], [1]]
    """
    centers = [_centers(group) for group in group_scores]
    rows = [group.counts.sum(axis=0) for group in group_scores]
    low, high = _range(centers, rows)
    found = []
    for group, center in zip(group_scores, centers, strict=True):
        edges = _edges(low, high, len(center))
        found.append((edges, _count(edges, center, group.counts)))
    return found


def _centers(group: GroupScores) -> Floats:
    """Return the center of each distinct score, (m,); infinite ones are clipped."""
    most = np.finfo(np.float64).max / 4
    lower, upper = np.clip(group.lower, -most, most), np.clip(group.upper, -most, most)
    return np.asarray(lower + (upper - lower) / 2)


def _range(centers: Sequence[Floats], rows: Sequence[Counts]) -> tuple[float, float]:
    """Return the range of all scores but the tails, 0 included."""
    values, weights = np.concatenate(centers), np.concatenate(rows)
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(share, [TAIL, 1.0 - TAIL])
    low, high = values[order][np.minimum(places, len(order) - 1)].tolist()
    return min(low, 0.0), max(high, 0.0)


def _edges(low: float, high: float, n_scores: int) -> Floats:
    """Return evenly spaced edges, 0 among them; about ``2 n^(1/3)`` bins (Rice's rule)."""
    bins = min(max(round(2 * n_scores ** (1 / 3)), FEWEST_BINS), BINS)
    width = (high - low) / bins or 1.0 / bins
    first, last = np.floor(low / width), np.ceil(high / width)
    return np.asarray(np.arange(min(first, -1.0), max(last, 1.0) + 1) * width, np.float64)


def _count(edges: Floats, values: Floats, counts: Counts) -> Counts:
    """Return the number of rows in each bin, (L, bins)."""
    place = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)
    sums = [np.bincount(place, line, minlength=len(edges) - 1) for line in counts]
    return np.stack(sums).astype(counts.dtype)
