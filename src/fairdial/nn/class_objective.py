"""The two objectives of GFB for more than two classes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fairdial._arrays import Floats
from fairdial.nn.class_prices import (
    SMOOTHING,
    STIFFNESS,
    distance_to_rule,
    equalize_classes,
    softmax,
    through_softmax,
)
from fairdial.nn.masoba import Cotangents, like


@dataclass
class ClassObjective:
    """Cross-entropy and the distance to the fairest rule as functions of the logits.

    Parameters
    ----------
    shares : (K,) array
        P(group) of the training rows.
    weight : float
        lambda of eq:l_gen; 1 is plain prediction loss.
    smoothing, stiffness : float
        As in :func:`~fairdial.nn.class_prices.equalize_classes`.
    accuracy : float
        Accuracy of the smooth rates.
    """

    shares: Floats
    weight: float = 0.95
    smoothing: float = SMOOTHING
    stiffness: float = STIFFNESS
    accuracy: float = 1e-8  # far below the noise of a batch
    t: Floats | None = field(default=None, repr=False)  # the last prices: the next start

    def plain(self) -> ClassObjective:
        """Return the objective of plain training."""
        return replace(self, weight=1.0)

    def prediction(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivative of L_pred in the logits (M, G, C, B), and its curvature."""
        p = torch.softmax(logits, dim=2)
        first = p.scatter_add(2, _classes(y, logits), -torch.ones_like(p[:, :, :1]))
        scale = 1.0 / y.numel()  # mean of a group, then over groups
        return first.mul_(scale), p.mul_(scale)

    def losses(self, logits: Tensor, y: Tensor, runs: int = 1) -> dict[str, Tensor]:
        """Return L_pred and L_dist of one run, for the record."""
        assert runs == 1
        logs = torch.log_softmax(logits, dim=2).gather(2, _classes(y, logits))
        losses = {"loss": -logs.mean()}
        if self.weight < 1.0:
            losses["distance"] = torch.as_tensor(self._distance(logits)[0].mean())
        return losses

    def __call__(self, logits: Tensor, y: Tensor) -> Cotangents:
        """Return the derivatives, with those of L_gen (eq:l_gen), at logits (M, G, C, B)."""
        u, c = self.prediction(logits, y)
        if self.weight == 1.0:
            none = torch.zeros(len(u), dtype=torch.bool, device=u.device)
            return Cotangents(u, c, u, torch.zeros_like(u), none)
        part = like((1.0 - self.weight) * self._distance(logits)[1], logits)
        distant = part.flatten(1).any(dim=1)
        return Cotangents(u, c, torch.add(part, u, alpha=self.weight), part, distant)

    def _distance(self, logits: Tensor) -> tuple[Floats, Floats]:
        """Return L_dist (M,) and its derivative in the logits, through the prices too."""
        z = logits.cpu().numpy().astype(np.float64).swapaxes(2, 3)  # (M, G, B, C)
        p = softmax(z)
        found = equalize_classes(
            p,
            self.shares,
            smoothing=self.smoothing,
            stiffness=self.stiffness,
            start=self.t,
            accuracy=self.accuracy,
        )
        self.t = found.start
        d = distance_to_rule(p, found.prices, self.smoothing)
        by_probability = d.by_probability + found.pull_back(d.by_price)
        scale = 1.0 / d.value[0].size  # mean of a group, then over groups
        by_logit = through_softmax(p, scale * by_probability).swapaxes(2, 3)
        return d.value.mean(axis=(1, 2)), np.ascontiguousarray(by_logit)


def _classes(y: Tensor, logits: Tensor) -> Tensor:
    """Return the labels (G, B) as indices into the logits' class axis, (M, G, 1, B)."""
    return y.long()[None, :, None, :].expand(len(logits), -1, 1, -1)
