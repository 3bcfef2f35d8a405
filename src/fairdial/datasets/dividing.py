"""Split rows at random, stratified by group and label, and keep clusters whole."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial._arrays import Indices
from fairdial.errors import InvalidInputError


def divide(
    y: NDArray[np.int64],
    groups: NDArray[np.str_],
    shares: Sequence[float],
    rng: np.random.Generator,
    *,
    clusters: NDArray[np.int64] | None = None,
) -> list[Indices]:
    """Cut off one part after the other, each a share of the rest; the last part is what is left.

    A cluster counts with all its rows for the group and the label of its first row. The clusters
    of a group and label are shuffled and laid end to end, and each goes to the part in which its
    first row lies, so the size of a part is off by less than one cluster. Every part gets at least
    one cluster. Without clusters, each row is its own.

    Parameters
    ----------
    y : (n,) int array
        Labels 0 and 1.
    groups : (n,) array
        Names of groups.
    shares : sequence of float
        The share of the remaining rows, for each part but the last.
    rng : numpy.random.Generator
        Shuffles the rows.
    clusters : (n,) int array, optional
        Rows with the same number stay together.

    Returns
    -------
    list of (n_part,) int arrays
        The rows of each part, ascending.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.datasets.dividing import divide
    >>> rng = np.random.default_rng(0)
    >>> divide(np.zeros(6, int), np.array(["a"] * 6), [0.5], rng, clusters=[0, 0, 1, 1, 2, 2])
    [array([0, 1, 4, 5]), array([2, 3])]
    """
    cluster, first = _first_rows(len(y), clusters)
    weights = np.bincount(cluster)
    group, label = groups[first], y[first]  # of each cluster
    part = np.zeros(len(first), np.intp)
    small = []
    for name in np.unique(group).tolist():
        cells = [np.flatnonzero((group == name) & (label == value)) for value in (0, 1)]
        counts = [int(weights[cell].sum()) for cell in cells]
        sizes = _part_sizes(counts, shares)
        if sizes is None or any(0 < len(cell) <= len(shares) for cell in cells):
            small.append(f"{name!r} ({counts[0]} and {counts[1]})")
            continue
        for cell, cuts in zip(cells, np.cumsum(sizes, axis=0).T, strict=True):
            order = rng.permutation(cell)
            part[order] = _part_of_each(weights[order], cuts)
    if small:
        raise InvalidInputError(
            "groups",
            "have enough rows"
            + (" and clusters" if clusters is not None else "")
            + " of each label for every part",
            given=f"too few with label 0 and 1 in {', '.join(small)}",
            hint="Merge small groups, or leave them out with subset().",
        )
    return [np.flatnonzero(part[cluster] == k) for k in range(len(shares) + 1)]


def _part_of_each(weights: Indices, cuts: Indices) -> Indices:
    """Return the part (c,) of each cluster when they are laid end to end and cut after ``cuts``."""
    size, parts = len(weights), len(cuts) + 1
    if size == 0:
        return np.zeros(0, np.intp)
    ends = np.searchsorted(np.cumsum(weights) - weights, cuts)  # clusters up to each cut
    least = np.arange(1, parts)
    ends = np.maximum.accumulate(ends - least) + least  # each part has a cluster,
    ends = np.clip(ends, least, size - parts + least)  # the first and the last too
    return np.searchsorted(ends, np.arange(size), side="right")


def _first_rows(n_rows: int, clusters: NDArray[np.int64] | None) -> tuple[Indices, Indices]:
    """Return the cluster (n,) of each row, numbered as they appear, and the first row of each."""
    if clusters is None:
        return np.arange(n_rows), np.arange(n_rows)
    cluster = pd.factorize(np.asarray(clusters))[0].astype(np.intp)
    return cluster, np.unique(cluster, return_index=True)[1]


def _part_sizes(counts: list[int], shares: Sequence[float]) -> list[list[int]] | None:
    """Return how many rows with label 0 and 1 each part takes from a group with these counts.

    A part's total is a share of the rest, rounded up. Every part, and what is left, keeps the
    group's proportion of ones to within one row, and has each label that the group has. None if
    that is impossible.
    """
    total = sum(counts)
    has = [min(count, 1) for count in counts]
    zeros, ones = counts  # what is left
    sizes = []
    for share in shares:
        size = math.ceil(round(share * (zeros + ones), 9))  # 0.07 * 100 is 7, not a little more
        fewest = max(has[1], size - zeros + has[0])
        most = min(ones - has[1], size - has[0])
        if fewest > most:
            return None
        left = zeros + ones - size
        wanted = ones - (2 * left * counts[1] + total) // (2 * total)  # the nearest whole number
        taken = min(max(wanted, fewest), most)
        sizes.append([size - taken, taken])
        zeros, ones = left - (ones - taken), ones - taken
    return sizes
