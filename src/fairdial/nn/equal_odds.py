"""The fairest thresholds for equalized odds, for any number of groups.

No threshold per group makes two rates equal in general; that takes a lottery. So the prices of the
rates are proportional to how far each group is from the mean: with the smooth rates r_ja of the
rows of label j, and their means c_j over all rows of the label,

``u_ja = stiffness * (r_ja - c_j)`` and ``threshold_a = log(1 + u_0a) - log(1 - u_1a)``.

These are the thresholds of the most accurate rule that also pays ``stiffness / 2`` times the mean
squared deviation of each label's rates: the stiffer, the smaller the gap. The links' multipliers
``t_ja = p_ja u_ja`` sum to 0 over the groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairdial._arrays import Floats, Mask
from fairdial.nn.implicit import ACCURATE
from fairdial.nn.losses import SHARPNESS

STIFFNESS = 20.0
EDGE = 0.1  # below, the logarithm of 1 + u or 1 - u continues as a line
NEWTON_STEPS = 30
SHORTEST = 2.0**-10  # of a Newton step
EASIER = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)  # stiffnesses on the way, relative


class EqualOdds(NamedTuple):
    """The thresholds of each net, with what their gradient needs."""

    thresholds: Floats  # (M, K)
    by_logit: Floats  # (M, 2, K, n): d rate_ja / dZ
    jacobian: _Jacobian
    by_rate: Floats  # (M, 2, K): minus d residual_a / d rate_ja
    shares: Floats  # (2, K), within labels
    solved: Mask  # (M,)

    @property
    def start(self) -> Floats:
        """Where the search in the next batch starts."""
        return self.thresholds

    def pull_back(self, by_threshold: Floats) -> Floats:
        """Return the gradient in the logits (M, K, n) from that in the thresholds (M, K)."""
        adjoint = self.jacobian.solve_transposed(by_threshold * self.solved[:, None])
        direct = adjoint[:, None] * self.by_rate  # (M, 2, K)
        by_rate = direct - self.shares * direct.sum(axis=2, keepdims=True)  # the mean moves too
        pulled: Floats = np.einsum("mjk,mjkn->mkn", by_rate, self.by_logit)
        return pulled


class _Jacobian(NamedTuple):
    """``diag(d) - left right'``, of rank two besides the diagonal: a 2 x 2 system inverts it."""

    diagonal: Floats  # (M, K)
    left: Floats  # (M, 2, K)
    right: Floats  # (M, 2, K)

    def solve(self, b: Floats) -> Floats:
        """Solve for a right-hand side (M, K)."""
        scaled = b / self.diagonal
        inner = np.einsum("mik,mjk->mij", self.right, self.left / self.diagonal[:, None])
        outer = np.einsum("mik,mk->mi", self.right, scaled)
        (a, c), (d, e) = np.moveaxis(np.eye(2) - inner, 0, -1)  # 2 x 2 of (M,)
        determinant = a * e - c * d
        determinant = np.where(np.abs(determinant) < 1e-12, 1e-12, determinant)
        x = (e * outer[:, 0] - c * outer[:, 1]) / determinant
        y = (a * outer[:, 1] - d * outer[:, 0]) / determinant
        change = x[:, None] * self.left[:, 0] + y[:, None] * self.left[:, 1]
        solution: Floats = scaled + change / self.diagonal
        return solution

    def solve_transposed(self, b: Floats) -> Floats:
        """Solve the transposed system."""
        return _Jacobian(self.diagonal, self.right, self.left).solve(b)


class _State(NamedTuple):
    """The equations at some thresholds."""

    residual: Floats  # (M, K): threshold minus what the rates ask for
    jacobian: _Jacobian
    by_rate: Floats  # (M, 2, K): minus d residual / d rate
    tanh: Floats  # (M, K, n)


class _Odds:
    """The equations for fixed logits."""

    def __init__(self, logits: Floats, positive: Mask, shares: Floats, k: float) -> None:
        self.logits, self.half_k = logits, k / 2.0
        rows = np.stack((~positive, positive)).astype(np.float64)  # (2, K, n)
        self.weights = rows / rows.sum(axis=-1, keepdims=True)
        self.shares: Floats = shares / shares.sum(axis=1, keepdims=True)

    def at(self, thresholds: Floats, stiffness: float) -> _State:
        tanh = self.logits - thresholds[:, :, None]
        tanh *= self.half_k
        np.tanh(tanh, out=tanh)
        rates = 0.5 + 0.5 * np.einsum("mkn,jkn->mjk", tanh, self.weights)
        squares = np.einsum("mkn,jkn->mjk", tanh * tanh, self.weights)
        steepness = (1.0 - squares) * (self.half_k / 2.0)  # minus d rate / d threshold
        level = (self.shares * rates).sum(axis=2, keepdims=True)
        u = stiffness * (rates - level)
        u[:, 1] *= -1.0
        value = _log1p(u)
        by_rate = stiffness / np.maximum(1.0 + u, EDGE)  # of log(1 + u0) and minus log(1 - u1)
        residual = thresholds - value[:, 0] + value[:, 1]
        diagonal = 1.0 + (by_rate * steepness).sum(axis=1)
        jacobian = _Jacobian(diagonal, by_rate, self.shares * steepness)
        return _State(residual, jacobian, by_rate, tanh)


def _log1p(u: Floats) -> Floats:
    """Return log(1 + u), continued as a line where 1 + u is below EDGE."""
    inside = np.maximum(1.0 + u, EDGE)
    value: Floats = np.log(inside) + (1.0 + u - inside) / EDGE
    return value


def equalize_odds(
    logits: Floats,
    positive: Mask,
    shares: Floats,
    *,
    sharpness: float = SHARPNESS,
    start: Floats | None = None,
    stiffness: float = STIFFNESS,
    accuracy: float = ACCURATE,
) -> EqualOdds:
    """Return thresholds at which both smooth rates are nearly equal in all groups.

    Small batches may have several solutions, so that the result depends on the start: with 12 rows
    per group, rarely. Where the search finds none, a net's thresholds are 0 and don't follow the
    logits, so the batch has no distance loss.

    Parameters
    ----------
    logits : (M, K, n) float64
        Logits of M nets on n rows of each group.
    positive : (K, n) bool
        Which rows have the positive label; each group has rows of both labels.
    shares : (2, K) float64
        P(group, label).
    sharpness : float
        k of the sigmoids.
    start : (M, K) float64, optional
        Where to start, such as the last batch's thresholds.
    stiffness : float
        Price of a rate's distance from the mean.
    accuracy : float
        Accuracy of the thresholds.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.nn.equal_odds import equalize_odds
    >>> z = np.array([[[-1.0, 1.0], [0.0, 2.0]]])  # the second group is shifted by 1
    >>> label, shares = np.array([[False, True]] * 2), np.full((2, 2), 0.25)
    >>> found = equalize_odds(z, label, shares, sharpness=2.0, stiffness=1000.0)
    >>> float(np.diff(found.thresholds[0])[0].round(2))
    1.0
    """
    odds = _Odds(np.asarray(logits, np.float64), positive, shares, sharpness)
    zeros = np.zeros(logits.shape[:2])
    first = zeros if start is None else start
    thresholds, state, solved = _newton(odds, first, stiffness, accuracy)
    if not solved.all():  # along a path from thresholds 0, the solution without a price
        path, reached = zeros, solved
        for part in EASIER:
            path, _, reached = _newton(odds, path, part * stiffness, accuracy)
        path = np.where(reached[:, None], path, 0.0)
        thresholds = np.where(solved[:, None], thresholds, path)
        state, solved = odds.at(thresholds, stiffness), solved | reached
    by_logit = (1.0 - state.tanh * state.tanh)[:, None] * odds.weights * (odds.half_k / 2.0)
    return EqualOdds(thresholds, by_logit, state.jacobian, state.by_rate, odds.shares, solved)


def _newton(
    odds: _Odds, thresholds: Floats, stiffness: float, accuracy: float
) -> tuple[Floats, _State, Mask]:
    """Return thresholds, the equations there, and which nets solve them: damped Newton steps."""
    state = odds.at(thresholds, stiffness)
    size = np.abs(state.residual).max(axis=1)
    active = size >= accuracy
    for _ in range(NEWTON_STEPS):
        if not active.any():
            break
        step = state.jacobian.solve(state.residual)
        length = np.where(active, 1.0, 0.0)
        while True:
            moved = thresholds - length[:, None] * step
            state = odds.at(moved, stiffness)
            now = np.abs(state.residual).max(axis=1)
            worse = active & (now > size * (1.0 - 1e-4 * length))
            if not (worse & (length > 0)).any():
                break
            length = np.where(worse, np.where(length > SHORTEST, length / 2.0, 0.0), length)
        thresholds, size = moved, now
        active = (size >= accuracy) & ~worse  # without progress: rounding errors, or no way down
    return thresholds, state, size < 10.0 * accuracy
