r"""Exact tests about the rates of one or two groups, from counts.

:func:`rejects_pair` tests the null hypothesis ``slope * r_a - r_b >= limit`` about two independent
binomial rates. ``slope=1`` is a difference, ``limit=0`` with ``slope < 1`` a ratio. Its level is
at most ``alpha`` for all numbers of rows and all rates: the unknown rate is eliminated by a
supremum whose numerical error is bounded, not estimated. :func:`rejects_floor` and
:func:`rejects_ceiling` are about one rate.

The lemmas and their proofs are in ``docs/confidence.md``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fairdial._arrays import Counts, Floats, Indices, Mask
from fairdial._special import betainc, betaincinv
from fairdial._special import gammaln as log_gamma

NUISANCE = 0.02  # share of alpha that pays for the confidence interval of the unknown rate
TAIL = 1e-8  # probability of binomial counts that are left out of a sum, for each group
OMITTED = 11 * TAIL  # what two groups' tails can add, magnified by interpolation (lemma 3)
N_NODES = 32  # rates at which a tail is computed, at first
MAX_NODES = 1024
FINER = 16  # points per node at which the interpolant is evaluated
PRECISION = 0.002  # of the supremum, as a share of alpha
ELLIPSES = np.exp(np.linspace(0.05, 3.0, 60))  # parameters of Bernstein ellipses that are tried
LEAST, EPSILON = 1e-300, 2.0**-53  # rates whose logarithms are finite
ROUNDING = 1e-9  # counts so close to the border of a region are inside


class Pair(NamedTuple):
    """Counts of two groups, and the hypothesis ``slope * r_a - r_b >= limit``."""

    x_a: int
    m_a: int
    x_b: int
    m_b: int
    limit: float
    slope: float = 1.0


# ---- one rate ----------------------------------------------------------------------------------


def rejects_floor(selected: Counts, rows: Counts, level: float, alpha: float) -> Mask:
    """Return whether the counts show that a rate is at least ``level``.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.pairwise import rejects_floor
    >>> rejects_floor(np.array([85, 95]), np.array([100, 100]), 0.8, 0.05)
    array([False,  True])
    """
    tail = betainc(np.maximum(selected, 1), rows - selected + 1.0, min(max(level, 0.0), 1.0))
    return np.asarray(np.where(selected > 0, tail, 1.0) <= alpha) | (level <= 0)


def rejects_ceiling(selected: Counts, rows: Counts, level: float, alpha: float) -> Mask:
    """Return whether the counts show that a rate is at most ``level``."""
    return rejects_floor(np.asarray(rows - selected, np.int64), rows, 1.0 - level, alpha)


def clopper_pearson(selected: Counts, rows: Counts, alpha: float) -> tuple[Floats, Floats]:
    """Return the ends of exact two-sided intervals of rates, each with error ``alpha``.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.pairwise import clopper_pearson
    >>> [end.round(4) for end in clopper_pearson(np.array([50, 0]), np.array([100, 0]), 0.05)]
    [array([0.3983, 0.    ]), array([0.6017, 1.    ])]
    """
    rest = rows - selected
    low = betaincinv(np.maximum(selected, 1), rest + 1.0, alpha / 2)
    high = betaincinv(selected + 1.0, np.maximum(rest, 1), 1.0 - alpha / 2)
    return np.where(selected > 0, low, 0.0), np.where(rest > 0, high, 1.0)


# ---- two rates ---------------------------------------------------------------------------------


def _variance(rate: Floats, pair: Pair) -> Floats:
    """Return the variance of the estimated difference if ``r_a = rate`` is on the border."""
    other = pair.slope * rate - pair.limit
    spread = pair.slope**2 * rate * (1 - rate) / pair.m_a + other * (1 - other) / pair.m_b
    return np.asarray(np.maximum(spread, 0.0))


def _domain(pair: Pair) -> tuple[float, float]:
    """Return the rates of group a on the border of the hypothesis."""
    return pair.limit / pair.slope, 1.0


def _statistic(i: Floats, j: Floats, pair: Pair) -> tuple[Floats, Floats]:
    """Return the estimated difference minus its limit, and the estimated standard deviation."""
    difference = pair.slope * i / pair.m_a - j / pair.m_b - pair.limit
    rate = (i + j + pair.m_b * pair.limit) / (pair.m_a + pair.slope * pair.m_b)
    return difference, np.sqrt(_variance(np.clip(rate, *_domain(pair)), pair))


def _fewest(pair: Pair) -> float:
    return min(pair.m_b, pair.m_a / pair.slope)


def _extremity(pair: Pair) -> float:
    """Return the largest z for which the counts are in the region of :func:`_border`."""
    difference, deviation = _statistic(np.array(pair.x_a), np.array(pair.x_b), pair)
    below = max(-float(difference), 0.0)
    smooth = math.sqrt(2 * _fewest(pair) * below)
    return min(below / float(deviation), smooth) if deviation > 0 else smooth


def _border(j: Floats, low: int, high: int, z: float, pair: Pair) -> Indices:
    """Return the largest count of group a in the region at each count of group b.

    The region holds counts with ``difference <= -max(z * deviation, z**2 / (2 * fewest))``. It is
    monotone (lemma 1). Results below ``low`` or above ``high`` are cut to ``low - 1`` and ``high``.
    """
    flat = z * z / (2 * _fewest(pair))
    inside, outside = np.full(j.shape, low - 1.0), np.full(j.shape, high + 1.0)
    for _ in range(math.ceil(math.log2(max(high - low + 2, 2)))):
        middle = np.floor((inside + outside) / 2)
        difference, deviation = _statistic(middle, j, pair)
        enough = difference <= ROUNDING - np.maximum(z * deviation, flat)
        enough &= middle > inside
        inside, outside = np.where(enough, middle, inside), np.where(enough, outside, middle)
    return inside.astype(np.intp)


def _counts_around(rows: int, low: float, high: float) -> tuple[int, int]:
    """Return the first and last count that binomials with rates in [low, high] need.

    By Bernstein's inequality, others have probability at most ``TAIL``.
    """
    ends = []
    log = math.log(2 / TAIL)
    middle = min(max(0.5, low), high)
    deviation = math.sqrt(log**2 / 9 + 2 * log * rows * middle * (1 - middle))
    for rate, sign in ((low, -1), (high, 1)):
        ends.append(rows * rate + sign * (log / 3 + deviation))
    return max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), rows)


def _pmf(k: Floats, rows: int, rates: Floats) -> Floats:
    """Return binomial probabilities, (rates, counts)."""
    choose = log_gamma(rows + 1) - log_gamma(k + 1) - log_gamma(rows - k + 1)
    rates = np.clip(rates, LEAST, 1.0 - EPSILON)
    powers = np.outer(np.log(rates), k) + np.outer(np.log1p(-rates), rows - k)
    powers += choose
    return np.asarray(np.exp(powers, out=powers))


def _tails(rates: Floats, z: float, pair: Pair) -> Floats:
    """Return the probability of the region at rates of group a on the border, (rates,)."""
    others = np.clip(pair.slope * rates - pair.limit, 0.0, 1.0)
    first, last = _counts_around(pair.m_b, float(others.min()), float(others.max()))
    j = np.arange(first, last + 1.0)
    low, high = _counts_around(pair.m_a, float(rates.min()), float(rates.max()))
    border = _border(j, low, high, z, pair)
    sums = np.zeros((len(rates), high - low + 2))
    np.cumsum(_pmf(np.arange(low, high + 1.0), pair.m_a, rates), axis=1, out=sums[:, 1:])
    weights = _pmf(j, pair.m_b, others)
    return np.asarray((weights * sums.take(border - (low - 1), axis=1)).sum(axis=1))


@lru_cache(maxsize=8)
def _nodes(n: int) -> tuple[Floats, Floats]:
    """Return Chebyshev nodes in [-1, 1], and the interpolant at finer points, (FINER n, n)."""
    angles = (np.arange(n) + 0.5) * np.pi / n
    finer = (np.arange(FINER * n) + 0.5) * np.pi / (FINER * n)
    degrees = np.arange(n)
    scale = np.where(degrees == 0, 1.0, 2.0) / n
    matrix = np.cos(np.outer(finer, degrees)) @ (scale[:, None] * np.cos(np.outer(degrees, angles)))
    return np.cos(angles), matrix


def _interpolation_error(low: float, high: float, n: int, pair: Pair) -> float:
    """Bound the error of interpolating the tail at ``n`` Chebyshev nodes (lemma 3)."""
    center, radius = (low + high) / 2, (high - low) / 2
    wide = radius * (ELLIPSES + 1 / ELLIPSES) / 2
    tall = radius * (ELLIPSES - 1 / ELLIPSES) / 2
    total = np.zeros(len(ELLIPSES))
    maps = ((pair.m_a, 1.0, 0.0), (pair.m_b, pair.slope, pair.limit))
    for rows, slope, limit in maps:
        corners = [slope * (center + side * wide + 1j * tall) - limit for side in (-1, 1)]
        sizes = [np.abs(corner) + np.abs(1 - corner) for corner in corners]
        total += rows * np.log(np.maximum(*sizes))
    bounds = math.log(4.0) + total - (n - 1) * np.log(ELLIPSES) - np.log(ELLIPSES - 1)
    return float(np.exp(min(bounds.min(), 0.0)))


def _largest_tail(low: float, high: float, z: float, pair: Pair, alpha: float) -> float:
    """Bound the probability of the region for all rates of group a in [low, high]."""
    n = N_NODES
    while (error := _interpolation_error(low, high, n, pair)) > PRECISION * alpha:
        if n >= MAX_NODES:
            return 1.0
        n *= 2
    nodes, matrix = _nodes(n)
    values = _tails((low + high) / 2 + (high - low) / 2 * nodes, z, pair)
    most = float(np.abs(matrix @ values).max()) / math.cos((n - 1) * math.pi / (2 * FINER * n))
    return most + error + OMITTED


def rejects_pair(pair: Pair, alpha: float) -> bool:
    """Return whether the counts reject ``slope * r_a - r_b >= limit`` at level ``alpha``.

    Examples
    --------
    >>> from fairdial.core.pairwise import Pair, rejects_pair
    >>> rejects_pair(Pair(1000, 5000, 1000, 5000, 0.014), 0.05)  # 0.2 - 0.2 < 0.014
    True
    >>> rejects_pair(Pair(1000, 5000, 1000, 5000, 0.012), 0.05)
    False
    """
    if not pair.m_a or not pair.m_b:
        return False
    low, high = _nuisance(pair, alpha)
    z = _extremity(pair)
    if low > high:
        return True
    if z <= 0:
        return False
    return NUISANCE * alpha + _largest_tail(low, high, z, pair, alpha) <= alpha


def _nuisance(pair: Pair, alpha: float) -> tuple[float, float]:
    """Return an interval of group a's rate on the border, from the larger group (lemma 2)."""
    if pair.m_a >= pair.m_b:
        low, high = clopper_pearson(np.array(pair.x_a), np.array(pair.m_a), NUISANCE * alpha)
    else:
        low, high = clopper_pearson(np.array(pair.x_b), np.array(pair.m_b), NUISANCE * alpha)
        low, high = (low + pair.limit) / pair.slope, (high + pair.limit) / pair.slope
    least, most = _domain(pair)
    return max(float(low), least), min(float(high), most)


# ---- many pairs at once ------------------------------------------------------------------------


def surely_rejects(x: Counts, m: Counts, limit: float, slope: float, alpha: float) -> Mask:
    """Return pairs that :func:`rejects_pair` need not be asked about, (S, K, K).

    Entry (s, a, b) is True only if a closed-form bound of the test's p-value is at most ``alpha``
    (lemma 4), so it is about ``slope * r_a - r_b >= limit`` at point s.

    Parameters
    ----------
    x, m : (S, K) int64
        Selected and eligible rows of each group at each point.
    limit, slope : float
        The hypothesis.
    alpha : float
        Level of the test.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.pairwise import surely_rejects
    >>> sure = surely_rejects(np.array([[100, 105]]), np.array([[500, 500]]), 0.2, 1.0, 0.05)
    >>> bool(sure[0, 1, 0])
    True
    """
    share = NUISANCE * alpha
    n = np.maximum(m, 1).astype(np.float64)
    rate = x / n
    log = math.log(2 / share)
    width = 4 * log / 3 + np.sqrt((4 * log / 3) ** 2 + 2 * log * n * rate * (1 - rate))
    low, high = rate - width / n, rate + width / n  # they contain the Clopper-Pearson intervals
    m_a, m_b = n[:, :, None], n[:, None, :]
    least = limit / slope
    larger = m_a >= m_b
    low = np.where(larger, low[:, :, None], (low[:, None, :] + limit) / slope)
    high = np.where(larger, high[:, :, None], (high[:, None, :] + limit) / slope)
    low, high = np.clip(low, least, 1.0), np.clip(high, least, 1.0)
    total = m_a + slope * m_b
    reach = np.sqrt(log * (m_a + m_b) / 2) / total  # of the estimated rate around the true one

    def variance(r: Floats) -> Floats:
        other = slope * r - limit
        found = slope**2 * r * (1 - r) / m_a + other * (1 - other) / m_b
        return np.asarray(np.maximum(found, 0.0))

    ends = np.clip(low - reach, least, 1.0), np.clip(high + reach, least, 1.0)
    smallest = np.sqrt(np.minimum(variance(ends[0]), variance(ends[1])))  # variances are concave
    top = (slope / m_a + (1 + 2 * limit) / m_b) / (2 * (slope / m_a + slope / m_b))
    largest = variance(np.clip(top, low, high))
    difference = slope * rate[:, :, None] - rate[:, None, :] - limit
    pooled = (x[:, :, None] + x[:, None, :] + m_b * limit) / total
    deviation = np.sqrt(variance(np.clip(pooled, least, 1.0)))
    fewest = np.minimum(m_b, m_a / slope)
    below = np.maximum(-difference, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.fmin(below / deviation, np.sqrt(2 * fewest * below))
        needed = np.maximum(z * smallest, z * z / (2 * fewest))
        tail = np.exp(-(needed**2) / (2 * (largest + needed / (3 * fewest))))
    known = (m[:, :, None] > 0) & (m[:, None, :] > 0)
    return np.asarray(known & (2 * share + np.where(below > 0, tail, 1.0) <= alpha))
