"""Bands around a group's rates at all thresholds at once, tighter for rates near 0 and 1.

With ``x`` of ``m`` scores above a threshold, the rate in the population lies between the ``x``-th
and the ``x + 1``-th of ``m`` ordered uniform numbers, whatever the law of the scores (theorem 2 of
``docs/confidence.md``). Most of the error probability goes to the inequality of
Dvoretzky-Kiefer-Wolfowitz-Massart, whose width is the same at every rate. The rest goes to exact
intervals at ranks near both ends, fixed in advance, where counts vary less.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fairdial._arrays import Counts, Floats, Indices
from fairdial._special import betaincinv
from fairdial.core.demands import Demand

UNIFORM = 0.8  # share of the error probability for the band of constant width
SPACING = 0.25  # between ranks, in standard deviations of the variance-stabilized rate, halved
OUTER = 0.2  # rates below this, or above 1 minus this, have ranks of their own


def uniform_width(rows: int, alpha: float) -> float:
    """Return the half width of the band of constant width (Dvoretzky-Kiefer-Wolfowitz-Massart)."""
    return math.sqrt(math.log(2 / alpha) / (2 * rows))


def _ranks(rows: int) -> Indices:
    """Return ranks near both ends, which depend only on the number of rows; ascending."""
    angles = np.arange(0.0, math.asin(math.sqrt(OUTER)), SPACING / math.sqrt(rows))
    first = np.ceil(rows * np.sin(angles) ** 2).astype(np.intp)
    first = np.unique(first[(first > 0) & (first <= rows)])
    return np.union1d(first, rows + 1 - first)


@lru_cache(maxsize=256)
def rate_band(rows: int, alpha: float) -> tuple[Floats, Floats]:
    """Return bounds of the rate for each number of selected rows, both (rows + 1,).

    With probability at least ``1 - alpha`` they hold at all thresholds of one score at once.

    Examples
    --------
    >>> from fairdial.core.bands import rate_band
    >>> low, high = rate_band(1000, 0.05)
    >>> low[[0, 20, 500]].round(3), high[[0, 20, 500]].round(3)
    (array([0.   , 0.006, 0.456]), array([0.01 , 0.043, 0.544]))
    """
    counts = np.arange(rows + 1)
    width = uniform_width(rows, UNIFORM * alpha)
    low = np.maximum(counts / rows - width, 0.0)
    high = np.minimum(counts / rows + width, 1.0)
    ranks = _ranks(rows)
    level = (1 - UNIFORM) * alpha / (2 * len(ranks))
    least = betaincinv(ranks, rows + 1.0 - ranks, level)
    most = betaincinv(ranks, rows + 1.0 - ranks, 1.0 - level)
    below = np.searchsorted(ranks, counts, side="right") - 1  # the last rank up to x
    above = np.searchsorted(ranks, counts + 1, side="left")  # the first rank from x + 1
    low = np.maximum(low, np.where(below >= 0, least[np.maximum(below, 0)], 0.0))
    high = np.minimum(high, np.append(most, 1.0)[above])
    low.flags.writeable = high.flags.writeable = False
    return low, high


def largest_gap(demand: Demand, over: Counts, under: Counts, alpha: float) -> Floats:
    """Bound a demand's gap in the population, divided by its scale, at all points at once, (S,).

    Parameters
    ----------
    demand : Demand
        A demand on a rate that rises or falls with the threshold.
    over, under : (S, K) int64
        Numerators and denominators of the groups' rates at points of one score.
    alpha : float
        Probability that some bound doesn't hold.
    """
    n_groups = over.shape[1]
    low, high = np.empty(over.shape), np.empty(over.shape)
    for a in range(n_groups):
        rows = int(under[0, a])
        ends = rate_band(rows, alpha / n_groups) if rows else (np.zeros(1), np.ones(1))
        low[:, a], high[:, a] = (end[over[:, a]] for end in ends)
    scale = float(demand.scale) or 1.0
    if demand.spread == "minimum":
        gap = demand.level - low.min(axis=1)
    elif demand.spread == "maximum":
        gap = high.max(axis=1) - demand.level
    else:
        top, bottom = high[:, :, None], low[:, None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            pairs = top - bottom if demand.spread == "difference" else 1 - bottom / top
        pairs[:, np.arange(n_groups), np.arange(n_groups)] = 0.0
        gap = pairs.max(axis=(1, 2), initial=0.0)
    gap = np.maximum(gap, 0.0) / scale
    return np.asarray(gap if demand.scale else np.where(gap > 0, np.inf, 0.0))
