"""The fairest setting t(Z) and its gradient (thm:ift_t).

``phi(Z, t)`` is the disparity of two groups with indicators replaced by sigmoids (eq:phi). It
falls strictly in ``t``, so ``phi(Z, t) = 0`` has one root, found here in float64 by Newton steps
within a bracket; its gradient is that of the implicit function theorem.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from fairdial.criteria import Rate
from fairdial.nn.losses import SHARPNESS

Floats = NDArray[np.float64]

CLAMP = 1e-4  # distance that t keeps from the ends of its domain
STEEPEST = -1e-4  # the slope of phi is never taken flatter: it underflows where logits saturate
ITERATIONS = 80
ACCURATE = 1e-13


class Fairest(NamedTuple):
    """The fairest setting of each net, its thresholds and its gradient."""

    t: Floats  # (M,)
    thresholds: Floats  # (M, 2)
    threshold_slopes: Floats  # (M, 2): d threshold / dt
    gradient: Floats  # (M, 2, n): dt / dZ; zero where the clamp holds t


def setting_domain(rate: Rate, shares: Floats) -> tuple[float, float]:
    """The open interval of t on which both groups' thresholds are finite."""
    (low, high), (p0, p1) = rate.domain, shares
    return float(max(p1 * low, -p0 * high)), float(min(p1 * high, -p0 * low))


def smooth_disparity(
    logits: Floats, thresholds: Floats, counted: Floats, sharpness: float
) -> tuple[Floats, Floats]:
    """Phi of each net (M,), and the sigmoids' slopes (M, 2, n) over the counted rows' numbers."""
    soft = expit(sharpness * (logits - thresholds[:, :, None]))  # (M, 2, n)
    share = counted / counted.sum(axis=-1, keepdims=True)  # (2, n)
    rates = np.einsum("mgn,gn->mg", soft, share)
    return rates[:, 1] - rates[:, 0], sharpness * soft * (1.0 - soft) * share


def hard_root(logits: Floats, rate: Rate, shares: Floats, rows: Floats) -> Floats:
    """(M,) the t of least size at which the disparity of hard decisions crosses 0.

    A row changes its decision at ``t = sign * p_a * inverse(z)``; the disparity is 1 minus the sum
    of the two groups' distribution functions of these values.
    """
    with np.errstate(over="ignore"):
        turns = np.array([-1.0, 1.0])[:, None] * shares[:, None] * rate.inverse(logits)
    weight = np.broadcast_to(rows / rows.sum(axis=-1, keepdims=True), turns.shape)
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
    counted: NDArray[Any] | None = None,
    *,
    sharpness: float = SHARPNESS,
    start: Floats | None = None,
    clamp: float = CLAMP,
    hard: bool = False,
) -> Fairest:
    """Root of phi for each net.

    Parameters
    ----------
    logits : (M, 2, n) float64
        Logits of M nets on as many rows of either group.
    rate : Rate
        Whose link gives the thresholds.
    shares : (2,) float64
        P(group, counted).
    counted : (2, n), optional
        Which rows count; all by default.
    sharpness : float
        k of the sigmoids.
    start : (M,) float64, optional
        Where to start, such as the last batch's root.
    clamp : float
        Distance kept from the ends of the domain; a root beyond has no gradient.
    hard : bool
        Take the root of the hard disparity (the authors' released rule); the gradient is still
        phi's, at that t.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.criteria import SELECTION
    >>> from fairdial.nn.implicit import find_fairest
    >>> z = np.array([[[0.0], [0.9]]])  # one row a group: t = p tanh(0.9 / 4)
    >>> found = find_fairest(z, SELECTION, np.array([0.5, 0.5]))
    >>> round(float(found.t[0]), 9)
    0.110639234
    """
    logits = np.asarray(logits, np.float64)
    rows = np.ones(logits.shape[1:]) if counted is None else np.asarray(counted, np.float64)
    sign_over_share = np.array([-1.0, 1.0]) / shares
    low, high = setting_domain(rate, shares)
    low, high = low + clamp, high - clamp
    bracket = np.tile([low, high], (len(logits), 1))
    t = np.zeros(len(logits)) if start is None else np.clip(start, low, high)
    if hard:
        t = np.clip(hard_root(logits, rate, shares, rows), low, high)
    for _ in range(1 if hard else ITERATIONS):
        u = t[:, None] * sign_over_share  # (M, 2)
        slopes = rate.slope(u) * sign_over_share
        phi, soft = smooth_disparity(logits, rate.link(u), rows, sharpness)
        pull = soft.sum(axis=-1)  # (M, 2)
        by_t = -pull[:, 1] * slopes[:, 1] + pull[:, 0] * slopes[:, 0]  # negative
        above = phi > 0  # the root lies above t
        bracket[above, 0], bracket[~above, 1] = t[above], t[~above]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = t - phi / by_t
        inside = (step > bracket[:, 0]) & (step < bracket[:, 1])
        step = np.where(inside, step, bracket.mean(axis=1))
        done = (np.abs(phi) < ACCURATE) | (np.abs(step - t) < 1e-15)
        if done.all():
            break
        t = np.where(done, t, step)
    held = (t - low < 1e-12) | (high - t < 1e-12)
    gradient = soft * np.array([-1.0, 1.0])[:, None] / -np.minimum(by_t, STEEPEST)[:, None, None]
    gradient[held] = 0.0
    return Fairest(t, np.asarray(rate.link(u)), slopes, gradient)


def fairest_setting(
    logits: Tensor,
    groups: Tensor,
    rate: Rate,
    shares: Floats,
    counted: Tensor | None = None,
    *,
    sharpness: float = SHARPNESS,
) -> Tensor:
    """t(Z) of one net as a differentiable number, for rows in any order.

    The value is the root; the gradient is that of thm:ift_t, by one detached Newton step.
    """
    values = logits.detach().double().cpu().numpy()
    codes = groups.cpu().numpy()
    use = np.ones(len(codes), bool) if counted is None else counted.cpu().numpy().astype(bool)
    parts = [np.flatnonzero((codes == a) & use) for a in (0, 1)]
    width = max(map(len, parts))
    padded, rows = np.zeros((1, 2, width)), np.zeros((2, width))
    for a, part in enumerate(parts):
        padded[0, a, : len(part)], rows[a, : len(part)] = values[part], 1.0
    found = find_fairest(padded, rate, shares, rows, sharpness=sharpness)
    gradient = np.zeros(len(codes))
    for a, part in enumerate(parts):
        gradient[part] = found.gradient[0, a, : len(part)]
    slope = torch.as_tensor(gradient, dtype=logits.dtype, device=logits.device)
    value = torch.as_tensor(found.t[0], dtype=logits.dtype, device=logits.device)
    return value + (slope * (logits - logits.detach())).sum()  # eq:nabla_t
