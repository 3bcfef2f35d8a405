"""Losses as functions of the logits, with their derivatives in closed form.

The derivatives of the focal loss and of the boundary distance are short formulas, which stay finite
where autograd gives NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from fairdial._arrays import Floats

SHARPNESS = 10.0  # k of the sigmoids that replace indicators


class Loss(NamedTuple):
    """Value, first and second derivative in the logit, row by row."""

    value: Tensor
    first: Tensor
    second: Tensor


def focal(logits: Tensor, y: Tensor, gamma: float = 0.0, *, value: bool = True) -> Loss:
    """Return the focal loss and its derivatives; ``gamma=0`` is cross-entropy.

    Parameters
    ----------
    logits : Tensor
        Any shape.
    y : Tensor
        Labels 0 and 1, of a shape that broadcasts to the logits'.
    gamma : float
        Focusing exponent.
    value : bool
        Whether the value is needed; if not, it may be anything.

    Examples
    --------
    >>> import torch
    >>> from fairdial.nn.losses import focal
    >>> loss = focal(torch.zeros(1), torch.ones(1), gamma=2.0)
    >>> round(float(loss.value), 6)  # 0.5 ** 2 * log 2
    0.173287
    """
    sign = 2.0 * y - 1.0
    margin = sign * logits
    q = torch.sigmoid(-margin)  # 1 - p_t
    if gamma == 0.0:
        loss = softplus(-margin) if value else q
        return Loss(loss, -sign * q, torch.addcmul(q, q, q, value=-1.0))
    s = softplus(-margin)  # -log p_t
    power = q**gamma
    a = gamma * (1.0 - q) * s + q
    second = power * (1.0 - q) * (gamma * a - q * (gamma * s - gamma - 1.0))
    return Loss(power * s, -sign * power * a, second)


class Distance(NamedTuple):
    """Smooth distance to the fairest threshold and its derivatives, row by row."""

    value: Floats
    by_logit: Floats
    by_threshold: Floats


def boundary_distance(logits: Floats, threshold: Floats, sharpness: float = SHARPNESS) -> Distance:
    """Return the smooth distance of logits between 0 and the fairest threshold to it (eq:dist).

    Only the end at 0 is smoothed, by a sigmoid; beyond the threshold the distance is exactly 0, and
    it is 0 everywhere if the threshold is 0. In NumPy, like the threshold.
    """
    side = np.sign(threshold)
    weight = 0.5 + 0.5 * np.tanh((side * sharpness / 2.0) * logits)  # sigmoid
    reach = np.maximum(side * (threshold - logits), 0.0)
    inside = side * weight * (reach > 0)
    value = weight * reach
    by_logit = side * sharpness * (1.0 - weight) * value - inside
    return Distance(value, by_logit, inside)
