"""Networks as scorers: device, batches, evaluation mode, float64 logits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairdial.nn.nets import DialNet, ModuleStack
from fairdial.nn.rows import Rows, TensorRows
from fairdial.nn.world import ALONE, World

ROWS_AT_ONCE = 4096
PICTURES_AT_ONCE = 256  # rows of a trunk of one's own: their features may take much memory
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
Floats = NDArray[np.float64]


@torch.no_grad()
def score_runs(
    net: DialNet,
    rows: Rows,
    groups: NDArray[Any],
    *,
    run: int | None = None,
    condition: float | None = None,
    features: bool = False,
    at_once: int | None = None,
    world: World = ALONE,
) -> NDArray[np.floating[Any]]:
    """(R, n) mean logits of each run's members, each row by its group's net, evaluating.

    Parameters
    ----------
    net : DialNet
        What scores.
    rows : Rows
        Its inputs.
    groups : (n,) int array
        Group codes.
    run : int, optional
        This run alone; R is 1 then.
    condition : float, optional
        The number that modulates the net, where one does.
    features : bool
        The rows are features of the trunk already, as :func:`trunk_features` gives them.
    at_once : int, optional
        Rows of a batch.
    world : World
        The processes that share the batches, and all get the scores.
    """
    runs = net.runs if run is None else 1
    kind = np.float64 if net.head_dtype == torch.float64 else np.float32
    scores: NDArray[np.floating[Any]] = np.zeros((runs, len(groups)), kind)
    at_once = at_once or (ROWS_AT_ONCE if features else _at_once(net))
    at_once = max(min(at_once, -(-len(groups) // world.size)), 1)  # work for everybody
    with evaluating(net):
        for a, index in world.share_out(_batches(groups, net.groups, at_once)):
            if features:
                x = rows.take(torch.as_tensor(index)).to(net.head_dtype).transpose(0, 1)
            else:
                x = _inputs(net, rows, index)
            logits = net.of_group(x, a, run, condition, features=features)[:, : len(index)]
            scores[:, index] = logits.reshape(runs, -1, len(index)).mean(dim=1).cpu().numpy()
    (joint,) = world.sum([torch.from_numpy(scores)])
    found: NDArray[np.floating[Any]] = joint.numpy()
    return found


def score_rows(
    net: DialNet,
    rows: Rows,
    groups: NDArray[Any],
    *,
    at_once: int | None = None,
    world: World = ALONE,
) -> NDArray[np.floating[Any]]:
    """(n,) mean logits of the members, each row by its group's net, in evaluation mode."""
    scores = score_runs(net, rows, groups, at_once=at_once, world=world)
    return np.asarray(scores[0])


@torch.no_grad()
def trunk_features(net: DialNet, rows: Rows, groups: NDArray[Any]) -> TensorRows:
    """(n, M, f) features of a trunk that isn't modulated, so that it runs once."""
    parts: list[Tensor] = []
    places: list[NDArray[np.intp]] = []
    with evaluating(net):
        for a, index in _batches(groups, net.groups, _at_once(net)):
            found = net.features_of(_inputs(net, rows, index), a)[:, : len(index)]
            parts.append(found.transpose(0, 1))
            places.append(index)
    order = np.argsort(np.concatenate(places))
    return TensorRows(torch.cat(parts)[torch.as_tensor(order)])


def _at_once(net: DialNet) -> int:
    return PICTURES_AT_ONCE if isinstance(net.trunk, ModuleStack) else ROWS_AT_ONCE


def _inputs(net: DialNet, rows: Rows, index: NDArray[np.intp]) -> Tensor:
    """Rows in the trunk's precision; a single one twice.

    Convolutions round a batch of one differently from all others, whose rows don't depend on what
    else is in the batch.
    """
    if len(index) == 1:
        index = np.repeat(index, 2)
    return rows.take(torch.as_tensor(index)).to(next(net.parameters()).dtype)


class evaluating:  # noqa: N801
    """Evaluation mode for a while."""

    def __init__(self, net: DialNet) -> None:
        self.net, self.mode = net, net.training

    def __enter__(self) -> None:
        if self.mode:  # going through all modules takes longer than scoring a row
            self.net.eval()

    def __exit__(self, *_: object) -> None:
        if self.mode:
            self.net.train()


def _batches(
    groups: NDArray[Any], n_groups: int, at_once: int
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    for a in range(n_groups):
        places = np.flatnonzero(groups == a)
        for start in range(0, len(places), at_once):
            yield a, places[start : start + at_once]


def in_float64(net: DialNet) -> DialNet:
    """A copy that evaluates in float64; convolutions stay in float32, being four times slower."""
    fine = copy.deepcopy(net).double().eval()
    if any(isinstance(module, CONVOLUTIONS) for module in fine.trunk.modules()):
        fine.trunk.float()
    return fine


class NetScorer:
    """A trained network in float64: a row's score depends on its batch by rounding alone."""

    def __init__(self, net: DialNet, encode: Callable[[Any], Rows]) -> None:
        self.net, self.encode = in_float64(net), encode

    def logits(self, X: Any, groups: NDArray[Any]) -> Floats:
        """(n,) log-odds of the positive label."""
        return np.asarray(score_rows(self.net, self.encode(X), groups), np.float64)


class RunsScorer:
    """One trained net for each setting, in float64; only the asked settings' nets are run.

    Parameters
    ----------
    nets : sequence of DialNet
        Together they have a run for each setting, in order.
    settings : (S,) array
        What each run was trained for.
    encode : callable
        Makes rows of what a user gives.
    """

    def __init__(
        self, nets: Sequence[DialNet], settings: Floats, encode: Callable[[Any], Rows]
    ) -> None:
        self.nets = [in_float64(net) for net in nets]
        self.settings, self.encode = settings, encode
        self._places = [(net, run) for net in self.nets for run in range(net.runs)]

    def prepare(self, X: Any, groups: NDArray[Any]) -> Rows:  # noqa: ARG002
        """What all settings share."""
        return self.encode(X)

    def margins(self, rows: Rows, groups: NDArray[Any], setting: float) -> Floats:
        """(n,) margins of rows at a setting."""
        net, run = self._places[int(np.flatnonzero(self.settings == setting)[0])]
        return np.asarray(score_runs(net, rows, groups, run=run)[0], np.float64)


class FilmScorer:
    """One modulated net in float64, at any setting.

    Parameters
    ----------
    net : DialNet
        With ``film``.
    condition : callable
        The number that the net is given for a setting.
    encode : callable
        Makes rows of what a user gives.
    """

    def __init__(
        self,
        net: DialNet,
        condition: Callable[[float], float],
        encode: Callable[[Any], Rows],
    ) -> None:
        self.net, self.condition, self.encode = in_float64(net), condition, encode

    @property
    def _cached(self) -> bool:
        """Whether the trunk is the same at all settings."""
        return isinstance(self.net.trunk, ModuleStack)

    def prepare(self, X: Any, groups: NDArray[Any]) -> Rows:
        """What all settings share: inputs, or the features of a trunk that isn't modulated."""
        rows = self.encode(X)
        return trunk_features(self.net, rows, groups) if self._cached else rows

    def margins(self, rows: Rows, groups: NDArray[Any], setting: float) -> Floats:
        """(n,) margins of rows at a setting."""
        scores = score_runs(
            self.net,
            rows,
            groups,
            condition=self.condition(setting),
            features=self._cached,
        )
        return np.asarray(scores[0], np.float64)
