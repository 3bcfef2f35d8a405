"""Piecewise-linear encoding of numbers: quantile bins, and how far a value reaches through them."""

from __future__ import annotations

from functools import cache

import numpy as np

from fairdial._arrays import Features, Floats


def quantile_edges(values: Floats, n_bins: int) -> Floats:
    """Return the edges of at most ``n_bins`` bins with about equally many rows each.

    If there are few distinct values, each is an edge. A value that fills a bin on its own is an
    edge, too, and the other rows share the remaining edges: a column that is mostly 0 keeps its
    resolution where it isn't.

    Parameters
    ----------
    values : array of shape (n,)
        Finite numbers, at least one.
    n_bins : int
        Number of bins, at least 1.

    Returns
    -------
    array of shape (m + 1,), m <= n_bins
        Increasing values, taken from those given, from the smallest to the largest.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.tables.piecewise import quantile_edges
    >>> quantile_edges(np.arange(101.0), 4)
    array([  0.,  25.,  50.,  75., 100.])
    >>> quantile_edges(np.array([0.0] * 900 + list(range(1, 101))), 4)
    array([  0.,   1.,  34.,  67., 100.])
    """
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= n_bins + 1:
        return distinct
    edge = np.zeros(len(distinct), np.bool_)
    left = n_bins  # bins for the rows that are not on an edge: always at least one
    while (heavy := ~edge & (counts * left > counts[~edge].sum())).any():
        edge |= heavy
        left = n_bins - int(edge.sum())
    light = np.flatnonzero(~edge)
    reached = np.cumsum(counts[light])
    wanted = np.linspace(1, reached[-1], left + 1)  # ranks of these rows, counted from 1
    edge[light[np.searchsorted(reached, np.floor(wanted))]] = True
    return distinct[edge]


def piecewise_linear(values: Floats, edges: Floats) -> Features:
    """Return how far each value reaches through each bin: 1 in bins below it, 0 in bins above.

    The sum over the bins is the value's position among the edges, counted in bins; outside the
    edges it is 0 or the number of bins.

    Parameters
    ----------
    values : array of shape (n,)
        Finite numbers.
    edges : array of shape (m + 1,)
        Increasing edges of m >= 1 bins.

    Returns
    -------
    array of shape (n, m)
        Numbers in [0, 1], float32.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.tables.piecewise import piecewise_linear
    >>> piecewise_linear(np.array([-5.0, 1.0, 12.0]), np.array([0.0, 2.0, 10.0, 20.0]))
    array([[0. , 0. , 0. ],
           [0.5, 0. , 0. ],
           [1. , 1. , 0.2]], dtype=float32)
    """
    bins = edges[1:-1].searchsorted(values, side="right")  # (n,)
    low = edges[bins]
    with np.errstate(over="ignore"):  # a value far away from a narrow bin
        part = (values - low) / (edges[bins + 1] - low)
    out = _passed(len(edges) - 1)[bins]  # (n, m)
    out[np.arange(len(values)), bins] = part.clip(0.0, 1.0)
    return out


@cache
def _passed(n_bins: int) -> Features:
    """Return a matrix whose row b has 1 in the first b bins."""
    return np.tri(n_bins, n_bins, -1, dtype=np.float32)
