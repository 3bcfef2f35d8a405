"""Other prediction losses for the plain step, which studies compare."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fairdial._arrays import Floats
from fairdial.nn.implicit import find_fairest
from fairdial.nn.masoba import Objective, _like

SOFTNESS = 4.0  # k of the sigmoid that replaces a wrong decision


@dataclass
class SoftObjective(Objective):
    """Cross-entropy to probabilities instead of labels, for a net that learns from others."""

    def prediction(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and second derivative in the logits (M, G, B)."""
        p, scale = torch.sigmoid(logits), 1.0 / y.numel()
        return (p - y).mul_(scale), (p * (1.0 - p)).mul_(scale)

    def losses(self, logits: Tensor, y: Tensor, runs: int = 1) -> dict[str, Tensor]:
        """Return the loss, for the record."""
        assert runs == 1
        target = y.expand_as(logits)
        return {"loss": binary_cross_entropy_with_logits(logits, target)}


@dataclass
class ShareObjective(Objective):
    """The prediction loss with groups weighted by their shares of the eligible rows.

    Batches have equally many rows of each group, so groups otherwise have equal weight.
    """

    def prediction(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and second derivative in the logits (M, G, B)."""
        weights = _like(_weights(self.shares), logits)
        first, second = super().prediction(logits, y)
        return first.mul_(weights), second.mul_(weights)


def _weights(shares: Floats) -> Floats:
    """Return the groups' shares as weights (1, G, 1) whose mean is 1."""
    weights: Floats = len(shares) * shares / shares.sum()
    return weights[None, :, None]


@dataclass
class WholeDialObjective(Objective):
    """Cross-entropy plus wrong decisions at the thresholds of several tolerances.

    Batches have equally many rows of each group; wrong decisions are weighted by the groups' shares
    of the eligible rows. For demographic parity these are all rows, as in the accuracy by which a
    dial is judged.

    Thresholds are functions of the logits: t_delta(Z) reduces the batch's smooth disparity to
    delta, with the gradient of the implicit function theorem; GFB uses delta = 0.

    Parameters
    ----------
    tolerances : tuple of float
        The deltas.
    share : float
        Weight of the wrong decisions (mean over the tolerances) relative to the cross-entropy.
    """

    tolerances: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2)
    share: float = 1.0
    starts: dict[float, Floats] = field(default_factory=dict, repr=False)

    def prediction(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives in the logits (M, G, B); the second is cross-entropy's."""
        first, second = super().prediction(logits, y)
        eligible = None
        if self._label is not None:
            eligible = (y == self._label).cpu().numpy()
            if not eligible.any(axis=1).all():  # no eligible row in a group: no threshold
                return first, second
        z = logits.detach().cpu().numpy().astype(np.float64)
        sign = 2.0 * y.cpu().numpy().astype(np.float64) - 1.0
        total = np.zeros_like(z)
        weights = _weights(self.shares)
        for tolerance in self.tolerances:
            found = find_fairest(
                z,
                self.rate,
                self.shares,
                eligible,
                sharpness=self.sharpness,
                start=self.starts.get(tolerance),
                clamp=self.clamp,
                accuracy=self.accuracy,
                gap=tolerance,
            )
            self.starts[tolerance] = found.t
            margin = sign * (z - found.thresholds[:, :, None])
            wrong = 0.5 - 0.5 * np.tanh(SOFTNESS / 2.0 * margin)
            by_logit = -SOFTNESS * weights * sign * wrong * (1.0 - wrong)
            by_t = (-by_logit.sum(axis=-1) * found.threshold_slopes).sum(axis=1)  # (M,)
            total += by_logit + by_t[:, None, None] * found.gradient
        scale = self.share / len(self.tolerances) / y.numel()
        return first.add_(_like(scale * total, logits)), second
