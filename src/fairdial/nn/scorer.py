"""Networks as scorers: device, batches, evaluation mode, float64 logits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairdial.nn.nets import DialNet, ModuleStack
from fairdial.nn.rows import Rows, TensorRows
from fairdial.nn.world import ALONE, World

ROWS_AT_ONCE = 4096
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
    at_once: int = ROWS_AT_ONCE,
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
        The rows are features of the trunk already.
    at_once : int
        Rows of a batch.
    world : World
        The processes that share the batches, and all get the scores.
    """
    runs = net.runs if run is None else 1
    dtype = next(net.parameters()).dtype
    kind = np.float64 if dtype == torch.float64 else np.float32
    scores: NDArray[np.floating[Any]] = np.zeros((runs, len(groups)), kind)
    at_once = max(min(at_once, -(-len(groups) // world.size)), 1)  # work for everybody
    with evaluating(net):
        for a, index in world.share_out(_batches(groups, net.groups, at_once)):
            x = rows.take(torch.as_tensor(index)).to(dtype)
            if features:
                x = x.transpose(0, 1)  # (M, b, f)
            logits = net.of_group(x, a, run, condition, features=features)
            scores[:, index] = logits.view(runs, -1, len(index)).mean(dim=1).cpu().numpy()
    (joint,) = world.sum([torch.from_numpy(scores)])
    found: NDArray[np.floating[Any]] = joint.numpy()
    return found


def score_rows(
    net: DialNet,
    rows: Rows,
    groups: NDArray[Any],
    *,
    at_once: int = ROWS_AT_ONCE,
    world: World = ALONE,
) -> NDArray[np.floating[Any]]:
    """(n,) mean logits of the members, each row by its group's net, in evaluation mode."""
    scores = score_runs(net, rows, groups, at_once=at_once, world=world)
    return np.asarray(scores[0])


class evaluating:  # noqa: N801
    """Evaluation mode for a while."""

    def __init__(self, net: DialNet) -> None:
        self.net, self.mode = net, net.training

    def __enter__(self) -> None:
        self.net.eval()

    def __exit__(self, *_: object) -> None:
        self.net.train(self.mode)


def _batches(
    groups: NDArray[Any], n_groups: int, at_once: int
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    for a in range(n_groups):
        places = np.flatnonzero(groups == a)
        for start in range(0, len(places), at_once):
            yield a, places[start : start + at_once]


def _in_float64(net: DialNet) -> DialNet:
    return copy.deepcopy(net).double().eval()


class NetScorer:
    """A trained network in float64: a row's score depends on its batch by rounding alone."""

    def __init__(self, net: DialNet, encode: Callable[[Any], Rows]) -> None:
        self.net, self.encode = _in_float64(net), encode

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
        self.nets = [_in_float64(net) for net in nets]
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
        self.net, self.condition, self.encode = _in_float64(net), condition, encode

    @property
    def _cached(self) -> bool:
        """Whether the trunk is the same at all settings."""
        return isinstance(self.net.trunk, ModuleStack)

    @torch.no_grad()
    def prepare(self, X: Any, groups: NDArray[Any]) -> Rows:
        """What all settings share: inputs, or the features of a trunk that isn't modulated."""
        rows = self.encode(X)
        if not self._cached:
            return rows
        parts: list[Tensor] = []
        places: list[NDArray[np.intp]] = []
        with evaluating(self.net):
            for a, index in _batches(groups, self.net.groups, ROWS_AT_ONCE // 16):
                x = rows.take(torch.as_tensor(index)).double()
                parts.append(self.net.features_of(x, a).transpose(0, 1))  # (b, M, f)
                places.append(index)
        order = np.argsort(np.concatenate(places))
        return TensorRows(torch.cat(parts)[torch.as_tensor(order)])

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
