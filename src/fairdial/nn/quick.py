"""Score a few rows at a time, for a server: bit for bit the network's scores, in fewer steps.

Going through modules, batches and slices of the stack takes longer than the arithmetic of one row.
Here the layers of each group's nets are sliced once.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar, cast

import numpy as np
import torch

from fairdial._arrays import Codes, Features, Floats
from fairdial.nn.data import InputEncoder
from fairdial.nn.layers import Layer
from fairdial.nn.nets import DialNet
from fairdial.nn.scorer import FilmScorer, NetScorer, RunsScorer
from fairdial.tables.encoder import Encoder

Rows = TypeVar("Rows", contravariant=True)
NetworkScorer = NetScorer | RunsScorer | FilmScorer


class Transformer(Protocol[Rows]):
    """Anything that turns rows into features."""

    def transform(self, X: Rows) -> Features:
        """Return the features of rows, (n, d)."""


def replace_encoder(
    scorer: NetworkScorer, encoder: Transformer[Rows]
) -> NetworkScorer | QuickScorer[Rows]:
    """Return a scorer of a network with another encoder, in its quick form if it has one."""
    if isinstance(scorer, NetScorer):
        net = scorer.net
        plans = [net.plan(group) for group in range(net.groups)]
        on_cpu = all(p.device.type == "cpu" for p in net.parameters())
        if on_cpu and net.runs == 1 and None not in plans:
            return QuickScorer(net, [plan for plan in plans if plan is not None], encoder)
    other, inputs = copy.copy(scorer), scorer.encode
    assert isinstance(inputs, InputEncoder)
    other.encode = replace(inputs, encoder=cast(Encoder, encoder))
    return other


class QuickScorer(Generic[Rows]):
    """Score rows as :class:`~fairdial.nn.scorer.NetScorer` does.

    Parameters
    ----------
    net : DialNet
        A network in float64.
    plans : sequence of list of Layer
        The layers of each group's nets.
    encoder : transformer
        Turns rows into features.
    """

    def __init__(
        self, net: DialNet, plans: Sequence[list[Layer]], encoder: Transformer[Rows]
    ) -> None:
        self._plans, self._encoder, self._members = plans, encoder, net.members
        self._marks = net.groups if net.shared else 0  # one-hot groups that are added to a row

    def logits(self, X: Rows, groups: Codes) -> Floats:
        """(n,) log-odds of the positive label."""
        features = np.asarray(self._encoder.transform(X), np.float32)  # as networks do
        if len(groups) == 1:
            return self._score(np.repeat(features, 2, axis=0), int(groups[0]))[:1]
        scores = np.empty(len(groups))
        for group in set(groups.tolist()):
            places = np.flatnonzero(groups == group)
            index = places if len(places) > 1 else np.repeat(places, 2)  # as batches do
            scores[places] = self._score(features[index], group)[: len(places)]
        return scores

    def _score(self, features: Features, group: int) -> Floats:
        n, width = features.shape
        rows = np.zeros((n, width + self._marks))
        rows[:, :width] = features
        if self._marks:
            rows[:, width + group] = 1.0
        x = torch.from_numpy(rows).unsqueeze(0).expand(self._members, -1, -1)
        for layer in self._plans[group]:
            x = layer.run(x)
        found: Floats = x.reshape(1, self._members, n).mean(dim=1)[0].numpy()
        return found
