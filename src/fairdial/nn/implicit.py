"""The fairest setting t(Z) and its gradient.

``phi(Z, t)`` is the disparity of two groups with indicators replaced by sigmoids. It decreases
strictly in ``t``, so ``phi(Z, t) = 0`` has one root, found here in float64 by Newton steps within a
bracket. Its gradient follows from the implicit function theorem.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Floats
from fairdial.core.rates import Rate
from fairdial.nn.losses import SHARPNESS

CLAMP = 1e-4  # distance that t keeps from the ends of its domain
FLATTEST = -1e-4  # limit of phi's slope, which underflows where logits saturate
TINY = 1e-300
AT_CLAMP = 1e-12  # a t this close to the clamp is at it
NEWTON_STEPS, ITERATIONS = 6, 80
SIGNS = np.array([-1.0, 1.0])  # 2a - 1
ACCURATE = 1e-13


class Fairest(NamedTuple):
    """The fairest setting of each net, with its thresholds and gradient."""

    t: Floats  # (M,)
    thresholds: Floats  # (M, 2)
    threshold_slopes: Floats  # (M, 2): d threshold / dt
    gradient: Floats  # (M, 2, n): dt / dZ; zero where t is clamped

    @property
    def start(self) -> Floats:
        """Where the search in the next batch starts."""
        return self.t

    def pull_back(self, by_threshold: Floats) -> Floats:
        """Return the gradient in the logits (M, 2, n) from that in the thresholds (M, 2)."""
        by_t = (by_threshold * self.threshold_slopes).sum(axis=1)  # (M,)
        pulled: Floats = by_t[:, None, None] * self.gradient
        return pulled


def setting_domain(rate: Rate, shares: Floats) -> tuple[float, float]:
    """Return the open interval of t on which both groups' thresholds are finite.

    Toward either end a threshold goes to plus or minus infinity and so separates the groups' rows:
    assum:separation.
    """
    (low, high), (p0, p1) = rate.domain, shares.tolist()
    return max(p1 * low, -p0 * high), min(p1 * high, -p0 * low)


class _Phi:
    """Phi and its slope in t for fixed logits (eq:phi), net by net.

    The sigmoid is ``psi(u) = (1 + tanh(k u / 2)) / 2``, which increases strictly (assum:psi): rates
    need the mean of the tanh, and slopes that of its square.
    """

    def __init__(
        self,
        logits: Floats,
        rate: Rate,
        shares: Floats,
        counts: Floats | None,
        k: float,
    ) -> None:
        self.logits, self.rate, self.counts, self.half_k = logits, rate, counts, k / 2.0
        self.sign_over_share = SIGNS / shares

    def at(self, t: Floats) -> tuple[Floats, Floats]:
        """Return phi (M,) and dphi/dt (M,), which is negative."""
        u = t[:, None] * self.sign_over_share  # (M, 2)
        self.thresholds: Floats = self.rate.link(u)
        self.slopes = self.rate.slope(u) * self.sign_over_share
        tanh = self.logits - self.thresholds[:, :, None]
        tanh *= self.half_k
        self.tanh = np.tanh(tanh, out=tanh)  # (M, 2, n)
        if self.counts is None:
            n = tanh.shape[-1]
            rates, squares = tanh.sum(axis=-1) / n, np.einsum("mgn,mgn->mg", tanh, tanh) / n
        else:
            rates = np.einsum("mgn,gn->mg", tanh, self.counts)
            squares = np.einsum("mgn,mgn,gn->mg", tanh, tanh, self.counts)
        slopes = (1.0 - squares) * self.slopes
        phi = (rates[:, 1] - rates[:, 0]) / 2.0
        return phi, (slopes[:, 0] - slopes[:, 1]) * (self.half_k / 2.0)

    def gradient(self, by_t: Floats) -> Floats:
        """Return dt/dZ (M, 2, n) at the last t: thm:ift_t, eq:nabla_t."""
        share = 1.0 / self.tanh.shape[-1] if self.counts is None else self.counts
        scale = SIGNS[:, None] * (self.half_k / 2.0) * share
        slope: Floats = 1.0 - self.tanh * self.tanh
        slope *= scale / -np.minimum(by_t, FLATTEST)[:, None, None]
        return slope


def hard_root(logits: Floats, rate: Rate, shares: Floats, counts: Floats | None) -> Floats:
    """Return the t (M,) nearest 0 at which the disparity of hard decisions crosses 0.

    A row's decision changes at ``t = sign * p_a * inverse(z)``; the disparity is 1 minus the sum of
    the two groups' distribution functions of these values.
    """
    with np.errstate(over="ignore"):
        turns = SIGNS[:, None] * shares[:, None] * rate.inverse(logits)
    each = np.array(1.0 / logits.shape[-1]) if counts is None else counts
    weight = np.broadcast_to(each, turns.shape)
    flat, share = turns.reshape(len(turns), -1), weight.reshape(len(turns), -1)
    order = np.argsort(flat, axis=1)
    flat, reached = np.take_along_axis(flat, order, 1), np.take_along_axis(share, order, 1)
    reached = np.cumsum(reached, axis=1)
    first = np.argmax(reached >= 1.0 - 1e-12, axis=1)[:, None]
    last = np.minimum(np.argmax(reached > 1.0 + 1e-12, axis=1)[:, None], flat.shape[1] - 1)
    low = np.take_along_axis(flat, first, 1)[:, 0]
    high = np.take_along_axis(flat, np.maximum(last, first), 1)[:, 0]
    return np.asarray(np.clip(0.0, low, high), np.float64)


def find_fairest(
    logits: Floats,
    rate: Rate,
    shares: Floats,
    eligible: NDArray[Any] | None = None,
    *,
    sharpness: float = SHARPNESS,
    start: Floats | None = None,
    clamp: float = CLAMP,
    hard: bool = False,
    accuracy: float = ACCURATE,
) -> Fairest:
    """Return the root of phi for each net: the t(Z) of thm:ift_t.

    The root exists and is unique (lem:t), because the three links satisfy the lemma's assumptions
    (cor:applicability_4.2): they are continuous (assum:continuity) and increasing, so group 1's
    threshold rises with t and group 0's falls (assum:monotonicity); :func:`setting_domain` and the
    sigmoid satisfy the others.

    Parameters
    ----------
    logits : (M, 2, n) float64
        Logits of M nets on n rows of each group.
    rate : Rate
        Its link gives the thresholds.
    shares : (2,) float64
        P(group, eligible).
    eligible : (2, n), optional
        Which rows are eligible; all by default.
    sharpness : float
        k of the sigmoids.
    start : (M,) float64, optional
        Where to start, such as the last batch's root.
    clamp : float
        Distance kept from the ends of the domain; a root beyond has no gradient.
    hard : bool
        Use the root of the hard disparity, as in the authors' code; the gradient is still that of
        phi at this t.
    accuracy : float
        Accuracy of phi at the root.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.rates import SELECTION
    >>> from fairdial.nn.implicit import find_fairest
    >>> z = np.array([[[0.0], [0.9]]])  # one row per group: t = p tanh(0.9 / 4)
    >>> found = find_fairest(z, SELECTION, np.array([0.5, 0.5]))
    >>> round(float(found.t[0]), 9)
    0.110639234
    """
    logits = np.asarray(logits, np.float64)
    counts = None
    if eligible is not None:
        rows = np.asarray(eligible, np.float64)
        counts = rows / rows.sum(axis=-1, keepdims=True)
    low, high = setting_domain(rate, shares)
    clamp = min(clamp, (high - low) / 10.0)  # the domain of a rare group is narrow
    low, high = low + clamp, high - clamp
    phi = _Phi(logits, rate, shares, counts, sharpness)
    if hard:
        t = np.minimum(np.maximum(hard_root(logits, rate, shares, counts), low), high)
        by_t = phi.at(t)[1]
    else:
        t, by_t = _solve(phi, low, high, start, accuracy)
        if start is not None and by_t.max() > FLATTEST:  # flat: t must not depend on the last batch
            t, by_t = _solve(phi, low, high, None, accuracy)
    gradient = phi.gradient(by_t)
    if not (t.min() - low > AT_CLAMP and high - t.max() > AT_CLAMP):  # some t is clamped
        gradient[(t - low < AT_CLAMP) | (high - t < AT_CLAMP)] = 0.0
    return Fairest(t, phi.thresholds, phi.slopes, gradient)


def _solve(
    phi: _Phi, low: float, high: float, start: Floats | None, accuracy: float
) -> tuple[Floats, Floats]:
    """Return root and slope, by a few Newton steps; if these fail, within a bracket."""
    n_nets = len(phi.logits)
    t = np.zeros(n_nets) if start is None else np.minimum(np.maximum(start, low), high)
    for _ in range(NEWTON_STEPS):
        value, by_t = phi.at(t)
        if np.abs(value).max() < accuracy:
            return t, by_t
        t = t - value / np.minimum(by_t, -TINY)
        if not (t.min() > low and t.max() < high):
            break
    t = np.minimum(np.maximum(np.nan_to_num(t), low), high)
    t = find_root(phi.at, t, np.full(n_nets, low), np.full(n_nets, high), accuracy)
    return t, phi.at(t)[1]


def find_root(
    function: Callable[[Floats], tuple[Floats, Floats]],
    t: Floats,
    left: Floats,
    right: Floats,
    accuracy: float,
) -> Floats:
    """Return roots of a decreasing function of each entry, by Newton steps within brackets.

    The function returns its values and slopes. Without a root in its bracket, an entry ends at the
    end where the function is closest to 0.
    """
    for _ in range(ITERATIONS):
        value, slope = function(t)
        above = value > 0  # the root lies above t
        left, right = np.where(above, t, left), np.where(above, right, t)
        step = t - value / np.minimum(slope, -TINY)
        step = np.where((step > left) & (step < right), step, (left + right) / 2)
        done = (np.abs(value) < accuracy) | (np.abs(step - t) < 1e-15)
        if done.all():
            break
        t = np.where(done, t, step)
    return t
