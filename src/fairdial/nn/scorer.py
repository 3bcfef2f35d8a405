"""Networks as scorers: device, batches, evaluation mode, float64 logits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairdial._arrays import Codes, Floats, Indices, Scores
from fairdial.nn.data import InputEncoder, Inputs, TensorInputs
from fairdial.nn.nets import DialNet, ModuleStack
from fairdial.nn.process_group import SINGLE_PROCESS, ProcessGroup
from fairdial.nn.taps import TapConv

BATCH_ROWS = 4096
BATCH_PICTURES = 256  # rows of a user's own trunk, whose features may take much memory
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, TapConv)


@torch.no_grad()
def score_runs(
    net: DialNet,
    inputs: Inputs,
    groups: Codes,
    *,
    positions: Indices | None = None,
    run: int | None = None,
    condition: float | None = None,
    features: bool = False,
    batch_rows: int | None = None,
    processes: ProcessGroup = SINGLE_PROCESS,
) -> Scores:
    """Return the mean logits of each run's members, each row by its group's net.

    They are (R, n), or (R, n, C) for several classes.

    Parameters
    ----------
    net : DialNet
        The net, which runs in evaluation mode.
    inputs : Inputs
        Its inputs.
    groups : (n,) int array
        Group codes.
    positions : (n,) int array, optional
        Which inputs to score; all by default.
    run : int, optional
        Score this run only; then R is 1.
    condition : float, optional
        The number that modulates the net, if it has ``film``.
    features : bool
        Whether the inputs are features of the trunk, from :func:`trunk_features`.
    batch_rows : int, optional
        Rows of a batch.
    processes : ProcessGroup
        The processes that share the batches; all get the scores.
    """
    runs = net.runs if run is None else 1
    dtype = np.float64 if net.head_dtype == torch.float64 else np.float32
    outputs = getattr(net.head, "outputs", 1)
    shape = (runs, len(groups)) if outputs == 1 else (runs, len(groups), outputs)
    scores: Scores = np.zeros(shape, dtype)
    size = batch_rows or (BATCH_ROWS if features else _batch_rows(net))
    size = max(min(size, -(-len(groups) // processes.size)), 1)  # work for every process
    with evaluating(net):
        for a, index in processes.share_work(_batches(groups, net.groups, size)):
            if features:
                x = inputs.take(torch.as_tensor(index)).to(net.head_dtype).transpose(0, 1)
            else:
                x = _take(net, inputs, index, positions)
            logits = net.of_group(x, a, run, condition, features=features)[:, : len(index)]
            by_run = logits.reshape(runs, -1, len(index), *shape[2:])
            scores[:, index] = by_run.mean(dim=1).cpu().numpy()
    (joint,) = processes.all_sum([torch.from_numpy(scores)])
    return np.asarray(joint.numpy())


def score_rows(net: DialNet, inputs: Inputs, groups: Codes) -> Scores:
    """Return the mean logits of the members, (n,) or (n, C), each row by its group's net."""
    return np.asarray(score_runs(net, inputs, groups)[0])


@torch.no_grad()
def trunk_features(
    net: DialNet, inputs: Inputs, groups: Codes, *, positions: Indices | None = None
) -> TensorInputs:
    """Return the features (n, M, f) of an unmodulated trunk, so that it runs only once."""
    parts: list[Tensor] = []
    places: list[Indices] = []
    with evaluating(net):
        for a, index in _batches(groups, net.groups, _batch_rows(net)):
            found = net.features_of(_take(net, inputs, index, positions), a)[:, : len(index)]
            parts.append(found.transpose(0, 1))
            places.append(index)
    order = np.argsort(np.concatenate(places))
    return TensorInputs(torch.cat(parts)[torch.as_tensor(order)])


def _batch_rows(net: DialNet) -> int:
    return BATCH_PICTURES if isinstance(net.trunk, ModuleStack) else BATCH_ROWS


def _take(net: DialNet, inputs: Inputs, index: Indices, positions: Indices | None) -> Tensor:
    """Return inputs in the trunk's precision; a single one twice.

    Convolutions round a batch of one differently; in larger batches, a row's result doesn't depend
    on the other rows.
    """
    if len(index) == 1:
        index = np.repeat(index, 2)
    where = index if positions is None else positions[index]
    return inputs.take(torch.as_tensor(where)).to(next(net.parameters()).dtype)


@contextmanager
def evaluating(net: DialNet) -> Iterator[None]:
    """Put the net in evaluation mode while the block runs."""
    training = net.training
    if training:  # going through all modules takes longer than scoring a row
        net.eval()
    try:
        yield
    finally:
        if training:
            net.train()


def _batches(groups: Codes, n_groups: int, size: int) -> Iterator[tuple[int, Indices]]:
    for a in range(n_groups):
        places = np.flatnonzero(groups == a)
        for start in range(0, len(places), size):
            yield a, places[start : start + size]


def in_float64(net: DialNet) -> DialNet:
    """Return a copy in float64, for evaluation; convolutions, four times slower, stay float32."""
    fine = copy.deepcopy(net).double().eval()
    if any(isinstance(module, CONVOLUTIONS) for module in fine.trunk.modules()):
        fine.trunk.float()
    return fine


class NetScorer:
    """A trained network in float64: a row's score depends on its batch only by rounding."""

    def __init__(self, net: DialNet, encode: InputEncoder) -> None:
        self.net, self.encode = in_float64(net), encode

    def logits(self, X: Any, groups: Codes) -> Floats:
        """Return the log-odds of the positive label (n,), or the logit of each class (n, C)."""
        return np.asarray(score_rows(self.net, self.encode(X), groups), np.float64)


class RunsScorer:
    """One trained net for each setting, in float64; only the requested settings' nets run.

    Parameters
    ----------
    nets : sequence of DialNet
        Nets whose runs, in order, belong to the settings.
    settings : (S,) array
        Setting of each run.
    encode : InputEncoder
        Turns rows into inputs.
    """

    def __init__(self, nets: Sequence[DialNet], settings: Floats, encode: InputEncoder) -> None:
        self.nets = [in_float64(net) for net in nets]
        self.settings, self.encode = settings, encode
        self._places = [(net, run) for net in self.nets for run in range(net.runs)]

    def prepare(self, X: Any, groups: Codes) -> Inputs:  # noqa: ARG002
        """Return what all settings share."""
        return self.encode(X)

    def margins(self, inputs: Inputs, groups: Codes, setting: float) -> Floats:
        """Return the margins of rows at a setting, (n,)."""
        net, run = self._places[int(np.flatnonzero(self.settings == setting)[0])]
        return np.asarray(score_runs(net, inputs, groups, run=run)[0], np.float64)


class FilmScorer:
    """One modulated net in float64, at any setting.

    Parameters
    ----------
    net : DialNet
        Net with ``film``.
    condition : callable
        Maps a setting to the number that modulates the net.
    encode : InputEncoder
        Turns rows into inputs.
    """

    def __init__(
        self, net: DialNet, condition: Callable[[float], float], encode: InputEncoder
    ) -> None:
        self.net, self.condition, self.encode = in_float64(net), condition, encode

    @property
    def _trunk_is_fixed(self) -> bool:
        return isinstance(self.net.trunk, ModuleStack)

    def prepare(self, X: Any, groups: Codes) -> Inputs:
        """Return what all settings share: inputs, or the features of an unmodulated trunk."""
        inputs = self.encode(X)
        return trunk_features(self.net, inputs, groups) if self._trunk_is_fixed else inputs

    def margins(self, inputs: Inputs, groups: Codes, setting: float) -> Floats:
        """Return the margins of rows at a setting, (n,)."""
        scores = score_runs(
            self.net,
            inputs,
            groups,
            condition=self.condition(setting),
            features=self._trunk_is_fixed,
        )
        return np.asarray(scores[0], np.float64)
