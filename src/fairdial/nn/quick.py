"""Perceptrons that score a few rows at once, for a server: the same bits in fewer steps.

Going through modules, batches and slices of the stack costs more than the arithmetic of one row.
Here the weights of each group's nets are cut out once; the operations on them are those of
:class:`fairdial.nn.nets.DialNet`, in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairdial.nn.nets import DialNet, Head, MLPTrunk, StackedLinear
from fairdial.nn.scorer import NetScorer

Floats = NDArray[np.float64]
Layer = tuple[Tensor, Tensor, bool]  # bias, weight, and whether an activation follows


def quick_scorer(scorer: Any) -> QuickScorer | None:
    """The quick form of a scorer; None where there is none."""
    if type(scorer) is not NetScorer or not _plain(scorer.net):
        return None
    return QuickScorer(scorer.net)


def _plain(net: DialNet) -> bool:
    trunk = net.trunk
    return (
        type(trunk) is MLPTrunk
        and trunk.norms is None
        and not trunk.marks
        and type(net.head) is Head
        and net.film is None
        and net.runs == 1
        and all(p.device.type == "cpu" for p in net.parameters())
    )


class QuickScorer:
    """Scores features of rows, as :class:`~fairdial.nn.scorer.NetScorer` does.

    Parameters
    ----------
    net : DialNet
        Perceptrons in float64, without modulation, of one setting.
    """

    def __init__(self, net: DialNet) -> None:
        self._groups = net.groups if net.shared else 0  # marks that are added to a row
        self._layers: list[list[Layer]] = []
        self._count = 0
        for group in range(net.groups):
            nets, self._count = net._nets(group, None)
            self._layers.append(_layers(net, nets))

    def logits(self, features: NDArray[Any], groups: NDArray[Any]) -> Floats:
        """(n,) log-odds of the positive label."""
        if len(groups) == 1:
            return self._score(np.repeat(features, 2, axis=0), int(groups[0]))[:1]
        scores = np.empty(len(groups))
        for group in set(groups.tolist()):
            places = np.flatnonzero(groups == group)
            index = places if len(places) > 1 else np.repeat(places, 2)  # as batches do
            scores[places] = self._score(features[index], group)[: len(places)]
        return scores

    def _score(self, features: NDArray[Any], group: int) -> Floats:
        rows = np.zeros((len(features), features.shape[1] + self._groups))
        rows[:, : features.shape[1]] = features
        if self._groups:
            rows[:, features.shape[1] + group] = 1.0
        x = torch.from_numpy(rows).unsqueeze(0).expand(self._count, -1, -1)
        for bias, weight, active in self._layers[group]:
            x = torch.baddbmm(bias, x, weight)
            if active:
                x.relu_()
        found: Floats = x.reshape(1, self._count, len(rows)).mean(dim=1)[0].numpy()
        return found


def _layers(net: DialNet, nets: slice) -> list[Layer]:
    """The layers of some nets, one after the other."""
    trunk, head = net.trunk, net.head
    assert isinstance(trunk, MLPTrunk)
    assert isinstance(head, Head)
    found = []
    for part, bare in ((trunk, trunk.bare), (head, True)):
        for i, layer in enumerate(part.layers):
            assert isinstance(layer, StackedLinear)
            active = not (bare and i == len(part.layers) - 1)
            found.append((layer.bias[nets].detach(), layer.weight[nets].detach(), active))
    return found
