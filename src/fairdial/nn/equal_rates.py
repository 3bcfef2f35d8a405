"""The fairest setting for any number of groups: one t per group, with sum 0.

The thresholds ``link(t_a / p_a)`` make the smooth rates of all groups equal to one level c. A
group's rate falls with its t, so each level has one t per group, whose sum falls with the level:
there is one solution. With two groups it is that of :mod:`fairdial.nn.implicit`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairdial._arrays import Floats, Mask
from fairdial.core.rates import Rate
from fairdial.nn.implicit import ACCURATE, AT_CLAMP, CLAMP, TINY, find_root
from fairdial.nn.losses import SHARPNESS

FLATTEST = 1e-4  # least slope of a rate in t, which underflows where logits saturate
NEWTON_STEPS = 10
LEVELS = 150  # at most, in a search within brackets


class EqualRates(NamedTuple):
    """The fairest setting of each net, one t per group, with what its gradient needs."""

    t: Floats  # (M, K): sum 0
    thresholds: Floats  # (M, K)
    by_logit: Floats  # (M, K, n): d threshold_a / dZ at a fixed level of the rate
    by_level: Floats  # (M, K): minus d t_a / d level; 0 where t is clamped
    threshold_slopes: Floats  # (M, K): d threshold_a / d t_a

    @property
    def start(self) -> Floats:
        """Where the search in the next batch starts."""
        return self.t

    def pull_back(self, by_threshold: Floats) -> Floats:
        """Return the gradient in the logits (M, K, n) from that in the thresholds (M, K).

        A change of group a's logits moves t_a, and the level that keeps the sum of t at 0. For two
        groups, this is eq:nabla_t.
        """
        by_t = by_threshold * self.threshold_slopes
        total = self.by_level.sum(axis=1)
        mean = (by_t * self.by_level).sum(axis=1) / np.maximum(total, TINY)  # (M,)
        by_own = by_threshold - mean[:, None] / self.threshold_slopes
        pulled: Floats = by_own[:, :, None] * self.by_logit
        return pulled


class _Rates:
    """The groups' smooth rates as functions of t, for fixed logits, as in eq:phi."""

    def __init__(
        self, logits: Floats, rate: Rate, shares: Floats, eligible: Mask | None, k: float
    ) -> None:
        self.logits, self.rate, self.shares, self.half_k = logits, rate, shares, k / 2.0
        rows = np.ones(logits.shape[1:]) if eligible is None else np.asarray(eligible, np.float64)
        self.weights = rows / rows.sum(axis=-1, keepdims=True)  # (K, n)

    def at(self, t: Floats) -> tuple[Floats, Floats]:
        """Return rates and their slopes in t, which are negative; both (M, K)."""
        u = t / self.shares
        self.thresholds: Floats = self.rate.link(u)
        self.slopes: Floats = self.rate.slope(u) / self.shares
        tanh = self.logits - self.thresholds[:, :, None]
        tanh *= self.half_k
        self.tanh = np.tanh(tanh, out=tanh)  # (M, K, n)
        weighted = self.tanh * self.weights
        rates = 0.5 + 0.5 * weighted.sum(axis=-1)
        squares = np.einsum("mkn,mkn->mk", weighted, self.tanh)
        return rates, (squares - 1.0) * (self.half_k / 2.0) * self.slopes


def setting_box(rate: Rate, shares: Floats, clamp: float = CLAMP) -> tuple[Floats, Floats]:
    """Return the least and largest t (K,) with finite thresholds and sum 0, clamped."""
    low, high = rate.domain
    others = shares.sum() - shares
    left = np.maximum(shares * low, -others * high)
    right = np.minimum(shares * high, -others * low)
    return left + np.minimum(clamp, -left / 10.0), right - np.minimum(clamp, right / 10.0)


def equalize_rate(
    logits: Floats,
    rate: Rate,
    shares: Floats,
    eligible: Mask | None = None,
    *,
    sharpness: float = SHARPNESS,
    start: Floats | None = None,
    clamp: float = CLAMP,
    accuracy: float = ACCURATE,
) -> EqualRates:
    """Return the setting at which the smooth rates of all groups are equal: thm:ift_t.

    There is one, as for two groups (lem:t).

    Parameters
    ----------
    logits : (M, K, n) float64
        Logits of M nets on n rows of each group.
    rate : Rate
        Its link gives the thresholds.
    shares : (K,) float64
        P(group, eligible).
    eligible : (K, n), optional
        Which rows are eligible, at least one in each group; all by default.
    sharpness : float
        k of the sigmoids.
    start : (M, K) float64, optional
        Where to start, such as the last batch's setting.
    clamp : float
        Distance kept from the ends of the domain; a group there doesn't follow the logits.
    accuracy : float
        Accuracy of the rates.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.rates import SELECTION
    >>> from fairdial.nn.equal_rates import equalize_rate
    >>> z = np.array([[[-0.9], [0.0], [0.9]]])  # one row per group: thresholds differ by 0.9
    >>> found = equalize_rate(z, SELECTION, np.full(3, 1 / 3))
    >>> found.thresholds.round(6) + 0.0
    array([[-0.9,  0. ,  0.9]])
    """
    low, high = setting_box(rate, shares, clamp)
    rates = _Rates(np.asarray(logits, np.float64), rate, shares, eligible, sharpness)
    t, slopes = _solve(rates, low, high, start, accuracy)
    if start is not None and slopes.max() > -FLATTEST:  # flat: t must not depend on the last batch
        t, slopes = _solve(rates, low, high, None, accuracy)
    free = (t - low > AT_CLAMP) & (high - t > AT_CLAMP)
    steepness = np.maximum(-slopes, FLATTEST)
    by_logit: Floats = rates.tanh * rates.tanh
    np.subtract(1.0, by_logit, out=by_logit)
    by_logit *= rates.weights
    by_logit *= (free * rates.slopes / steepness * (rates.half_k / 2.0))[:, :, None]
    return EqualRates(t, rates.thresholds, by_logit, free / steepness, rates.slopes)


def _solve(
    rates: _Rates, low: Floats, high: Floats, start: Floats | None, accuracy: float
) -> tuple[Floats, Floats]:
    """Return t and the rates' slopes, by a few Newton steps; if these fail, within brackets."""
    t = np.zeros(rates.logits.shape[:2]) if start is None else start
    for _ in range(NEWTON_STEPS):
        values, slopes = rates.at(t)
        if (values.max(axis=1) - values.min(axis=1)).max() < accuracy:
            return t, slopes
        inverse = 1.0 / np.minimum(slopes, -TINY)
        level = (values * inverse).sum(axis=1) / inverse.sum(axis=1)
        t = t - (values - level[:, None]) * inverse
        t -= t.mean(axis=1, keepdims=True)  # no rounding errors add up
        if not ((t > low).all() and (t < high).all()):
            break
    return _bracket(rates, low, high, accuracy)


def _bracket(rates: _Rates, low: Floats, high: Floats, accuracy: float) -> tuple[Floats, Floats]:
    """Return t and slopes by a search for the level, and within it for t at each level.

    In the end, t is between those of the two levels that enclose the root. So the sum is 0 even
    where a rate is flat and many t have the same level.
    """
    shape = rates.logits.shape[:2]
    above, below = np.broadcast_to(high, shape), np.broadcast_to(low, shape)
    least, most = np.zeros(shape[0]), np.ones(shape[0])  # levels of ``above`` and ``below``
    least_rates, most_rates = rates.at(above)[0], rates.at(below)[0]
    level, t = (least + most) / 2.0, (above + below) / 2.0
    for i in range(LEVELS):
        aim = level[:, None]
        left = np.where(aim >= most_rates, low, np.where(aim <= least_rates, high, below))
        right = np.where(aim >= most_rates, low, np.where(aim <= least_rates, high, above))

        def beyond(t: Floats, aim: Floats = aim) -> tuple[Floats, Floats]:
            values, slopes = rates.at(t)
            return values - aim, slopes

        t = find_root(beyond, np.minimum(np.maximum(t, left), right), left, right, accuracy / 4.0)
        inverse = np.where(left < right, 1.0 / np.minimum(rates.at(t)[1], -TINY), 0.0)
        total, by_level = t.sum(axis=1), inverse.sum(axis=1)
        rises = total > 0  # the level must rise
        least, most = np.where(rises, level, least), np.where(rises, most, level)
        above, below = np.where(rises[:, None], t, above), np.where(rises[:, None], below, t)
        if ((np.abs(total) < accuracy) | (most - least < accuracy / 4.0)).all():
            break
        step = level - total / np.minimum(by_level, -TINY)
        inside = (step > least) & (step < most) & (i % 3 < 2)  # every third time, halve
        step = np.where(inside, step, (least + most) / 2.0)
        t, level = t + (step - level)[:, None] * inverse, step
    over, under = above.sum(axis=1), below.sum(axis=1)
    part = (over / np.maximum(over - under, TINY))[:, None]
    t = above + part * (below - above)
    return t, rates.at(t)[1]
