"""Paired statistics over the splits of a study."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

from fairdial._arrays import Floats

NAN = float("nan")
LEVEL, POWER, MOST_SEEDS = 0.95, 0.80, 10_000
SPLIT_RATIO = 10 / 64.8  # test rows per training row of the paper's splits
RATIOS = {"paper": SPLIT_RATIO, "35/35/30": 30 / 35}  # by a plan's `split`


class Paired(NamedTuple):
    """A summary of differences by seed; NaN if there are too few seeds."""

    seeds: int = 0
    mean: float = NAN
    q1: float = NAN
    q2: float = NAN
    q3: float = NAN
    sd: float = NAN  # ddof 1
    error: float = NAN  # standard error of the mean, which the following use
    low: float = NAN  # ends of the 95% t interval
    high: float = NAN
    p: float = NAN  # two-sided paired t test
    needed: float = NAN  # seeds for 80% power at this mean and sd; inf: more than MOST_SEEDS
    detectable: float = NAN  # the difference that this many seeds detect with 80% power
    ratio: float = SPLIT_RATIO  # test rows per training row, for the corrected error


def paired(differences: ArrayLike, ratio: float = SPLIT_RATIO) -> Paired:
    """Return mean, quartiles (linear), standard error, t interval and power.

    Examples
    --------
    >>> from fairdial.bench.statistics import paired
    >>> found = paired([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> found.q1, found.q2, found.q3, found.needed
    (2.0, 3.0, 4.0, 5.0)
    """
    values = np.asarray(differences, np.float64)
    values = values[~np.isnan(values)]
    n = len(values)
    if n == 0:
        return Paired(ratio=ratio)
    mean = float(values.mean())
    q1, q2, q3 = np.percentile(values, [25, 50, 75]).tolist()
    if n == 1:
        return Paired(n, mean, q1, q2, q3, ratio=ratio)
    return corrected(Paired(n, mean, q1, q2, q3, float(values.std(ddof=1)), ratio=ratio), 0.0)


def corrected(found: Paired, ratio: float | None = None) -> Paired:
    """Return the summary with Nadeau and Bengio's (2003) error, for splits of the same rows.

    The plain standard error is multiplied by sqrt(1 + n * ratio), with n seeds and ``ratio`` test
    rows per training row, by default that of the splits. A ratio of 0 gives the plain error.

    Examples
    --------
    >>> from fairdial.bench.statistics import corrected, paired
    >>> plain = paired([1.0, 2.0, 3.0, 4.0])
    >>> round(corrected(plain, 0.75).error / plain.error, 6)
    2.0
    """
    n, mean, sd = found.seeds, found.mean, found.sd
    ratio = found.ratio if ratio is None else ratio
    if n < 2:
        return found
    error = sd / n**0.5 * (1 + n * ratio) ** 0.5
    half = float(student.ppf((1 + LEVEL) / 2, n - 1)) * error
    t = abs(mean) / error if error > 0 else (0.0 if mean == 0 else float("inf"))
    return found._replace(
        error=error,
        low=mean - half,
        high=mean + half,
        p=float(2 * student.sf(t, n - 1)),
        needed=seeds_needed(mean, sd, ratio),
        detectable=float(_factors(ratio)[min(n, MOST_SEEDS) - 2] * sd),
    )


def seeds_needed(mean: float, sd: float, ratio: float = 0.0) -> float:
    """Return about how many seeds a paired t test needs to detect a difference with 80% power.

    With a ratio above 0 the error stays above sqrt(ratio) standard deviations, so often no number
    of seeds is enough.
    """
    if mean == 0:
        return float("inf")
    if sd == 0:
        return 2.0
    enough = np.flatnonzero(_factors(ratio) <= abs(mean) / sd)
    return float(enough[0] + 2) if len(enough) else float("inf")


@cache
def _factors(ratio: float) -> Floats:
    """Return (t_0.975 + t_0.8) sqrt(1/n + ratio) for n = 2, 3, ...: the detectable effect sizes."""
    n = np.arange(2, MOST_SEEDS + 1)
    quantiles = student.ppf((1 + LEVEL) / 2, n - 1) + student.ppf(POWER, n - 1)
    return np.asarray(quantiles / np.sqrt(n) * np.sqrt(1 + n * ratio), np.float64)


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm's adjusted p values; NaN stays NaN and doesn't count.

    Examples
    --------
    >>> from fairdial.bench.statistics import holm
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted
