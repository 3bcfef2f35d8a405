"""The fairest prices for more than two classes, as a function of class probabilities.

A rule for several classes takes the class with the largest probability after subtracting a price
for the row's group, ``argmax_k p_ik - u_ak``. With the smooth rates ``s_a = mean softmax((p_i -
u_a) / e)`` of the groups and their mean ``c`` over all rows, the fairest prices here solve

``u_a = stiffness * (s_a - c)``.

They minimize a strongly convex function, the smoothed value of the rule plus ``|u_a|^2 / (2
stiffness)``, both averaged over the rows, among prices that sum to 0 over the rows: the stiffer,
the smaller the gap. Two classes at ``e = 1 / (2 k)`` have sigmoids of sharpness k in the
probabilities' log-odds where these are near 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairdial._arrays import Floats
from fairdial.nn.implicit import ACCURATE

SMOOTHING = 0.05
STIFFNESS = 20.0
NEWTON_STEPS = 60
SHORTEST = 2.0**-20  # of a Newton step


class ClassPrices(NamedTuple):
    """The fairest prices of each net, with what their gradient needs."""

    prices: Floats  # (M, K, C)
    rates: Floats  # (M, K, C), smooth
    soft: Floats  # (M, K, n, C): softmax((p - u) / e)
    weights: Floats  # (K, n), of the rows in their group's rates
    inverse: Floats  # (M, K, C, C): of minus d rates_a / d u_a + I / stiffness
    shares: Floats  # (K,)
    smoothing: float

    @property
    def start(self) -> Floats:
        """Where the search in the next batch starts."""
        return self.prices

    def pull_back(self, by_price: Floats) -> Floats:
        """Return the gradient in the probabilities (M, K, n, C) from that in the prices."""
        own = np.einsum("mkcd,mkd->mkc", self.inverse, by_price / self.shares[:, None])
        total = np.einsum("k,mkcd->mcd", self.shares, self.inverse)
        common = _solve(total, np.einsum("k,mkc->mc", self.shares, own))
        adjoint = own - np.einsum("mkcd,md->mkc", self.inverse, common)
        adjoint *= self.shares[:, None]
        return through_softmax(
            self.soft, adjoint[:, :, None, :] * (self.weights[:, :, None] / self.smoothing)
        )


def through_softmax(soft: Floats, by_soft: Floats) -> Floats:
    """Return the gradient in the arguments of a softmax over the last axis from its own."""
    centered: Floats = by_soft - (soft * by_soft).sum(axis=-1, keepdims=True)
    return soft * centered


def softmax(values: Floats) -> Floats:
    """Return the softmax over the last axis."""
    e: Floats = np.exp(values - values.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    return e


def equalize_classes(
    probabilities: Floats,
    shares: Floats,
    weights: Floats | None = None,
    *,
    smoothing: float = SMOOTHING,
    stiffness: float = STIFFNESS,
    start: Floats | None = None,
    accuracy: float = ACCURATE,
) -> ClassPrices:
    """Return the prices at which the smooth rates of all classes are nearly equal in all groups.

    Parameters
    ----------
    probabilities : (M, K, n, C) float64
        Class probabilities that M nets give n rows of each group.
    shares : (K,) float64
        P(group).
    weights : (K, n) float64, optional
        Weights of the rows within their group, 0 for places without a row; equal by default.
    smoothing : float
        e, in units of probability.
    stiffness : float
        Price of a rate's distance from the mean rate.
    start : (M, K, C) float64, optional
        Where to start, such as the last batch's prices.
    accuracy : float
        Accuracy of the rates.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.nn.class_prices import equalize_classes
    >>> p = np.array([[[[0.5, 0.3, 0.2]], [[0.3, 0.5, 0.2]]]])  # one row in each of two groups
    >>> found = equalize_classes(p, np.full(2, 0.5), stiffness=1e6)
    >>> found.prices.round(3) + 0.0  # halfway: afterwards both rows have the same utilities
    array([[[ 0.1, -0.1,  0. ],
            [-0.1,  0.1,  0. ]]])
    """
    p = np.asarray(probabilities, np.float64)
    weights = np.ones(p.shape[1:3]) if weights is None else weights
    weights = weights / weights.sum(axis=1, keepdims=True)
    shares = shares / shares.sum()
    dual = _Dual(p, weights, shares, smoothing, stiffness)
    u = np.zeros(p.shape[:2] + p.shape[3:]) if start is None else start
    u = u - (shares[:, None] * u).sum(axis=1, keepdims=True)
    value, soft = dual.value(u)
    for _ in range(NEWTON_STEPS):
        rates, inverse = dual.curvature(soft)
        direction = _direction(u, rates, inverse, shares, stiffness)
        error = np.abs(u / stiffness - rates + (shares[:, None] * rates).sum(1, keepdims=True))
        active = error.max(axis=(1, 2)) >= accuracy
        if not active.any():
            break
        length = np.where(active, 1.0, 0.0)
        slope = _slope(u, rates, direction, shares, stiffness)  # negative
        while True:
            moved = u + length[:, None, None] * direction
            new, new_soft = dual.value(moved)
            worse = active & (length > 0.0) & (new > value + 1e-4 * length * slope + 1e-15)
            if not worse.any():
                break
            length = np.where(worse, np.where(length > SHORTEST, length / 2.0, 0.0), length)
        u, value, soft = moved, new, new_soft
        if not (length > 0.0).any():  # rounding errors: as near as it gets
            rates, inverse = dual.curvature(soft)
            break
    return ClassPrices(u, rates, soft, weights, inverse, shares, smoothing)


class _Dual:
    """The convex function that the prices minimize, for fixed probabilities."""

    def __init__(
        self, p: Floats, weights: Floats, shares: Floats, smoothing: float, stiffness: float
    ) -> None:
        self.p, self.weights, self.shares = p, weights, shares
        self.smoothing, self.stiffness = smoothing, stiffness

    def value(self, u: Floats) -> tuple[Floats, Floats]:
        """Return the values (M,) and softmax((p - u) / e)."""
        scaled = (self.p - u[:, :, None, :]) / self.smoothing
        top = scaled.max(axis=-1, keepdims=True)
        soft = np.exp(scaled - top)
        total = soft.sum(axis=-1, keepdims=True)
        soft = soft / total
        best = self.smoothing * (np.log(total) + top)[..., 0]  # (M, K, n)
        means = (best * self.weights).sum(axis=2) + (u * u).sum(axis=2) / (2.0 * self.stiffness)
        return means @ self.shares, soft

    def curvature(self, soft: Floats) -> tuple[Floats, Floats]:
        """Return the rates (M, K, C) and the inverse of each group's block of the Hessian."""
        weighted = soft * self.weights[:, :, None]
        rates: Floats = weighted.sum(axis=2)
        products = np.matmul(weighted.swapaxes(2, 3), soft)  # (M, K, C, C)
        blocks = -products / self.smoothing
        places = np.arange(rates.shape[-1])
        blocks[..., places, places] += rates / self.smoothing + 1.0 / self.stiffness
        return rates, np.linalg.inv(blocks)


def _direction(
    u: Floats, rates: Floats, inverse: Floats, shares: Floats, stiffness: float
) -> Floats:
    """Return Newton's step (M, K, C) among prices that sum to 0 over the rows."""
    own = np.einsum("mkcd,mkd->mkc", inverse, rates - u / stiffness)
    total = np.einsum("k,mkcd->mcd", shares, inverse)
    common = _solve(total, np.einsum("k,mkc->mc", shares, own))
    step: Floats = own - np.einsum("mkcd,md->mkc", inverse, common)
    return step


def _slope(u: Floats, rates: Floats, direction: Floats, shares: Floats, stiffness: float) -> Floats:
    """Return the derivative (M,) of the convex function along a direction."""
    gradient = (u / stiffness - rates) * shares[:, None]
    slope: Floats = (gradient * direction).sum(axis=(1, 2))
    return slope


def _solve(matrices: Floats, right: Floats) -> Floats:
    """Solve a system for each net."""
    return np.asarray(np.linalg.solve(matrices, right[:, :, None])[:, :, 0], np.float64)


class RuleDistance(NamedTuple):
    """Distance of rows to the fairest rule, with its derivatives."""

    value: Floats  # (M, K, n)
    by_probability: Floats  # (M, K, n, C), at fixed prices
    by_price: Floats  # (M, K, C), of the sum over a group's rows


def distance_to_rule(
    probabilities: Floats, prices: Floats, smoothing: float = SMOOTHING
) -> RuleDistance:
    """Return how far rows are from the class that they have without prices (as eq:dist).

    With prices, a row leaves class k if a class with a lower price has a larger utility ``p - u``.
    The distance is by how much, averaged over k with the weights ``softmax(p / e)``, the smooth
    class without prices. It is 0 for rows that keep a class although others have lower prices, and
    where all prices are equal. With two classes it is that of eq:dist, in probabilities instead of
    log-odds.
    """
    utility = probabilities - prices[:, :, None, :]
    free = softmax(probabilities / smoothing)
    size = prices.shape[-1]
    value: Floats = np.zeros(utility.shape[:3])
    by_margin = np.zeros_like(utility)  # d value / d utility
    by_free = np.zeros_like(utility)
    for k in range(size):
        lower = prices < prices[..., k : k + 1]  # (M, K, C)
        others = np.where(lower[:, :, None, :], utility, -np.inf)
        best = others.argmax(axis=-1)
        margin = np.take_along_axis(others, best[..., None], axis=-1)[..., 0] - utility[..., k]
        left = margin > 0.0
        margin = np.where(left, margin, 0.0)
        weight = np.where(left, free[..., k], 0.0)
        value += weight * margin
        by_free[..., k] = margin
        by_margin[..., k] -= weight
        taken = np.take_along_axis(by_margin, best[..., None], axis=-1)
        np.put_along_axis(by_margin, best[..., None], taken + weight[..., None], axis=-1)
    by_probability = by_margin + through_softmax(free, by_free / smoothing)
    return RuleDistance(value, by_probability, -by_margin.sum(axis=2))
