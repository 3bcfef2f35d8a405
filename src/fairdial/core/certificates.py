"""Finite-sample statements about the gap on new rows, from the gap on calibration rows.

All statements are conditional on the numbers of eligible rows in the groups. Within a group, the
eligible rows are independent draws, and neither the scorer nor the path has seen them. The theorems
and their proofs are in ``docs/confidence.md``.

- *One tolerance, declared in advance, two groups* (theorem 1): choose the point for a smaller
  ``inner`` tolerance; the population gap then exceeds the declared one with probability at most
  :func:`exceedance`. No union bound is needed, because the disparity is monotone along the path.
- *The whole dial at once, any number of groups* (theorem 2): all rates of all points are within
  :func:`uniform_margin` of the population's, so the tolerance may be chosen after looking.
- *A family of fixed models* (theorem 3): each model gets a share of the error probability. The
  tolerance may be chosen after looking: with two groups by :func:`exceedance` of the family, and
  for any number by :func:`finite_margin`.
- *Decisions that were fixed before looking at the rows* (theorem 4): :func:`gap_interval`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations

import numpy as np

from fairdial._arrays import Floats
from fairdial._special import betaincinv, xlog1py, xlogy
from fairdial._special import gammaln as log_gamma

WINDOW = 7.0  # standard deviations of a binomial that are summed; the rest is below 1e-11
UNEQUAL = 8.0  # a group is small if it has fewer than UNEQUAL * sqrt(rows of the other)
MAX_GRID = 4000  # base rates that are tried for a small group
COARSE, FINE = 65, 7  # base rates that are tried: first over all, then twice around the worst
ROUNDS = 3  # of solving for the inner tolerance at a fixed base rate
FIRST_STEP = 1e-5  # first step back from there
NEGLIGIBLE = 1e-9  # tails that Hoeffding's inequality puts below this aren't computed exactly
SMALL_CROSSING = 1e-4  # Hoeffding's bound is enough below this
LIKELY = 0.3  # a crossing with a larger probability at one base rate isn't computed further
INTERVALS, PARTS = 256, 32  # of the base rate, and of the tolerance, for a crossing
RESOLUTION = 1e-4  # of the smallest certifiable tolerance
ROUNDING = 1e-9  # of counts and gaps: ties at the inner tolerance count as exceeding it
MAX_SHRINKAGE = 1e6  # of a margin, for which rows_needed still returns a number


def _binomial_pmf(k: Floats, n: int, p: Floats) -> Floats:
    log_choose = log_gamma(n + 1) - log_gamma(k + 1) - log_gamma(n - k + 1)
    return np.asarray(np.exp(log_choose + xlogy(k, p) + xlog1py(n - k, -p)))


def _window(n: int, p: Floats) -> tuple[Floats, Floats]:
    """Return counts around the mean of Bin(n, p), (s, window), and their probabilities."""
    spread = int(WINDOW * math.sqrt(n) / 2) + 8
    k = np.floor(n * p) + np.arange(-spread, spread + 1.0)
    inside = (k >= 0) & (k <= n)
    return k, np.where(inside, _binomial_pmf(np.clip(k, 0.0, n), n, p), 0.0)


def _cdf(k: Floats, n: int, p: Floats) -> Floats:
    """Return P(Bin(n, p) <= k), with one p per line, (s, window)."""
    counts, weight = _window(n, p)
    sums = np.cumsum(weight, axis=1)
    place = k - counts[:, :1]
    inside = np.clip(place, 0, counts.shape[1] - 1).astype(np.intp)
    return np.where(place < 0, 0.0, np.minimum(np.take_along_axis(sums, inside, axis=1), 1.0))


def _missed(n_high: int, n_low: int, gap: float, observed: float, base: Floats) -> Floats:
    """Return P(sample gap <= ``observed``) for the rates ``base + gap`` and ``base``, (s,)."""
    low = np.asarray(base, np.float64)[:, None]
    high = np.minimum(low + gap, 1.0)
    if n_low <= n_high:  # sum over the smaller group, a tail of the larger one
        k, weight = _window(n_low, low)
        tail = _cdf(np.floor(n_high * (observed + k / n_low) + ROUNDING), n_high, high)
    else:
        k, weight = _window(n_high, high)
        tail = 1.0 - _cdf(np.ceil(n_low * (k / n_high - observed) - ROUNDING) - 1.0, n_low, low)
    return np.asarray((weight * tail).sum(axis=1))


def _worst_base(n_high: int, n_low: int, gap: float, observed: float) -> tuple[float, float]:
    """Return the base rate at which a gap is missed most often, and how often."""
    low, high = 0.0, 1.0 - gap
    hoeffding = math.exp(-2 * max(gap - observed, 0.0) ** 2 / (1 / n_high + 1 / n_low))
    if hoeffding < NEGLIGIBLE:
        return high / 2, hoeffding
    best, worst = 0.0, -1.0
    small, large = sorted((n_high, n_low))
    unequal = small < UNEQUAL * math.sqrt(large)  # then the small group's steps matter
    first = min(16 * small, MAX_GRID) + COARSE if unequal else COARSE
    for points in (first, FINE, FINE):
        grid = np.linspace(low, high, points)
        missed = _missed(n_high, n_low, gap, observed, grid)
        i = int(np.argmax(missed))
        if missed[i] > worst:
            best, worst = float(grid[i]), float(missed[i])
        step = (high - low) / (points - 1)
        low, high = max(0.0, best - step), min(1.0 - gap, best + step)
    return best, max(worst, NEGLIGIBLE)  # the precision of the sums


@lru_cache(maxsize=4096)
def crossing(counts: tuple[int, int], tolerance: float) -> float:
    """Bound the probability that a population gap above the tolerance has the other sign on rows.

    On each of many intervals of the base rate, the tail is largest if the higher rate is the
    interval's smallest and the lower rate its largest, so this is a bound and not an estimate.

    Examples
    --------
    >>> from fairdial.core.certificates import crossing
    >>> crossing((500, 500), 0.05) > 0.05 > crossing((500, 500), 0.1) > 0
    True
    """
    if tolerance <= 0 or tolerance >= 1:
        return float(tolerance <= 0)
    rows = max(counts), min(counts)
    hoeffding = math.exp(-2 * tolerance**2 / (1 / rows[0] + 1 / rows[1]))
    if hoeffding < SMALL_CROSSING:
        return hoeffding
    if _missed(*rows, tolerance, 0.0, np.array([(1.0 - tolerance) / 2]))[0] > LIKELY:
        return 1.0
    width = min((1.0 - tolerance) / INTERVALS, tolerance / PARTS)
    ends = np.linspace(0.0, 1.0 - tolerance, math.ceil((1.0 - tolerance) / width) + 1)[1:]
    step = float(ends[0])
    missed = [
        _missed(*rows, tolerance - step, 0.0, block).max()
        for block in np.array_split(ends, math.ceil(len(ends) / INTERVALS))
    ]
    return min(float(max(missed)) + NEGLIGIBLE, hoeffding)


@lru_cache(maxsize=4096)
def _crossed(n_high: int, n_low: int, tolerance: float) -> float:
    """Bound the probability of a gap beyond the tolerance with the other sign."""
    return _worst_base(n_high, n_low, tolerance, 0.0)[1]


def exceedance(
    counts: tuple[int, int], tolerance: float, inner: float, family: int | None = None
) -> float:
    """Bound P(population gap > tolerance) for a point that was chosen for ``inner``.

    Parameters
    ----------
    counts : (int, int)
        Eligible rows of the two groups.
    tolerance : float
        The declared tolerance.
    inner : float
        The tolerance that the point satisfies on the calibration rows.
    family : int, optional
        Number of models, fixed in advance, among which the point was chosen; None for a path.

    Examples
    --------
    >>> from fairdial.core.certificates import exceedance
    >>> exceedance((5000, 5000), 0.05, 0.05) > 0.4
    True
    >>> exceedance((5000, 5000), 0.05, 0.03) < 0.03
    True
    """
    if inner > tolerance:
        return 1.0
    rows = max(counts), min(counts)  # it doesn't matter which group is higher
    missed = _worst_base(*rows, tolerance, inner)[1]
    if family is not None:  # theorem 3
        return min(1.0, family * missed)
    return min(1.0, missed + _crossed(*rows, tolerance))


@lru_cache(maxsize=4096)
def inner_tolerance(
    counts: tuple[int, int], tolerance: float, alpha: float, family: int | None = None
) -> float:
    """Return the largest inner tolerance with :func:`exceedance` <= ``alpha``; -1 if none.

    Examples
    --------
    >>> from fairdial.core.certificates import inner_tolerance
    >>> round(0.1 - inner_tolerance((5000, 5000), 0.1, 0.05), 3)
    0.016
    """
    if exceedance(counts, tolerance, 0.0, family) > alpha:
        return -1.0
    rows = max(counts), min(counts)
    level = alpha - _crossed(*rows, tolerance) if family is None else alpha / family
    near = max(tolerance - _hoeffding_margin(counts, level), 0.0)
    low, high = 0.0, tolerance
    for _ in range(ROUNDS):  # the worst base rate hardly changes: solve for it, then check
        base = np.array([_worst_base(*rows, tolerance, near)[0]])
        near, outside = low, high
        for _ in range(30):
            middle = (near + outside) / 2
            enough = _missed(*rows, tolerance, middle, base)[0] <= level
            near, outside = (middle, outside) if enough else (near, middle)
        if exceedance(counts, tolerance, near, family) <= alpha:
            return max(near - ROUNDING, 0.0)  # below the next gap that counts can have
        high = near
    step = FIRST_STEP  # it changes: step back from a value that is just too large
    while high - step > low and exceedance(counts, tolerance, high - step, family) > alpha:
        high, step = high - step, 2 * step
    low = max(low, high - step)
    while high - low > 0.5 / (rows[0] * rows[1]):  # finer than the gaps that counts can have
        middle = (low + high) / 2
        enough = exceedance(counts, tolerance, middle, family) <= alpha
        low, high = (middle, high) if enough else (low, middle)
    return max(low - ROUNDING, 0.0)


def uniform_margin(counts: tuple[int, ...], alpha: float) -> float:
    """Return how far the population gap can exceed the one on the rows, for all points at once.

    This is the Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant for each group, with
    ``alpha`` split equally. The gap's error is at most the sum of the two largest margins.

    Examples
    --------
    >>> from fairdial.core.certificates import uniform_margin
    >>> round(uniform_margin((5000, 5000), 0.05), 3)
    0.042
    """
    if len(counts) < 2:
        return 0.0
    margins = sorted(math.sqrt(math.log(2 * len(counts) / alpha) / (2 * m)) for m in counts)
    return margins[-1] + margins[-2]


def finite_margin(counts: tuple[int, ...], alpha: float, family: int) -> float:
    """Return how far the population gap can exceed the one on the rows, for a family of models.

    This is Hoeffding's inequality for the two groups that are farthest apart in the population,
    with ``alpha`` split equally over the models. The two smallest groups bound every pair.

    Examples
    --------
    >>> from fairdial.core.certificates import finite_margin
    >>> round(finite_margin((5000, 5000), 0.05, 20), 3)
    0.035
    """
    return _hoeffding_margin(counts, alpha / family)


def _hoeffding_margin(counts: tuple[int, ...], level: float) -> float:
    """Return the one-sided error of a difference of two rates at this error probability."""
    smallest = sorted(counts)[:2]
    if len(smallest) < 2:
        return 0.0
    return math.sqrt(sum(1 / m for m in smallest) * math.log(1 / level) / 2)


@lru_cache(maxsize=4096)
def smallest_tolerance(
    counts: tuple[int, int], alpha: float, inner: float, family: int | None = None
) -> float:
    """Return the smallest tolerance, to four digits, that a gap ``inner`` certifies; inf if none.

    Examples
    --------
    >>> from fairdial.core.certificates import smallest_tolerance
    >>> smallest_tolerance((5000, 5000), 0.05, 0.02)
    0.0366
    """
    low, most = math.floor(inner / RESOLUTION), round(1 / RESOLUTION)
    high = most
    if exceedance(counts, 1.0, inner, family) > alpha:
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        enough = exceedance(counts, middle * RESOLUTION, inner, family) <= alpha
        low, high = (low, middle) if enough else (middle, high)
    while high <= most and inner_tolerance(counts, high * RESOLUTION, alpha, family) < inner:
        high += 1  # rounding
    return high * RESOLUTION if high <= most else math.inf


def rows_needed(rows: int, margin: float, room: float) -> int | None:
    """Return about how many rows reduce a margin to ``room``; None if no sample size does.

    The margin decreases with the square root of the number of rows.

    Examples
    --------
    >>> from fairdial.core.certificates import rows_needed
    >>> rows_needed(1000, margin=0.06, room=0.03)
    4200
    """
    if not (room > 0 and math.isfinite(margin)) or margin / room > MAX_SHRINKAGE:
        return None
    return math.ceil(1.05 * rows * (margin / room) ** 2)


# ---- decisions that were fixed in advance ------------------------------------------------------


def rate_interval(selected: int, rows: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval for a rate (Clopper and Pearson).

    Examples
    --------
    >>> from fairdial.core.certificates import rate_interval
    >>> [round(end, 4) for end in rate_interval(50, 100)]
    [0.3983, 0.6017]
    >>> rate_interval(0, 0)
    (0.0, 1.0)
    """
    tail = (1.0 - confidence) / 2
    low = 0.0 if selected == 0 else float(betaincinv(selected, rows - selected + 1, tail))
    high = 1.0
    if selected < rows:
        high = float(betaincinv(selected + 1, rows - selected, 1.0 - tail))
    return low, high


def gap_interval(
    selected: Sequence[int], rows: Sequence[int], confidence: float = 0.95
) -> tuple[float, float]:
    """Return an interval for the population gap of decisions fixed before looking at the rows.

    It contains the gaps of all rates in simultaneous exact intervals (theorem 4). It is valid for
    any number of groups and rows, and conservative.

    Parameters
    ----------
    selected, rows : sequence of int
        Eligible rows of each group: the selected ones, and all.
    confidence : float
        The interval contains the population gap with at least this probability.

    Examples
    --------
    >>> from fairdial.core.certificates import gap_interval
    >>> [round(end, 3) for end in gap_interval([500, 600], [1000, 1000])]
    [0.029, 0.171]
    """
    if len(rows) < 2:
        return 0.0, 0.0
    level = 1.0 - (1.0 - confidence) / len(rows)
    ends = [rate_interval(k, n, level) for k, n in zip(selected, rows, strict=True)]
    lows, highs = zip(*ends, strict=True)
    widest = max(high - low for (_, high), (low, _) in permutations(ends, 2))
    return max(0.0, max(lows) - min(highs)), widest
