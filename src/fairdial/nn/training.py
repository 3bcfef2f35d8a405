"""The only training loop: epochs of paired batches, a score, best weights, checkpoints."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fairdial.errors import CheckpointError
from fairdial.nn.nets import DialNet, take_runs
from fairdial.nn.rows import PairedBatches
from fairdial.nn.steps import Step
from fairdial.progress import Reporter, Silent

CHECKPOINT = "checkpoint.safetensors"
FORMAT = 2
TOLD_EVERY = 8  # batches


class Callback(Protocol):
    """Is told of every epoch.

    Examples
    --------
    >>> from fairdial import FairBayes, Network
    >>> from fairdial.datasets import make_gaussian
    >>> class Stop:
    ...     def on_epoch_end(self, epoch, record, net):
    ...         return record["loss"] < 10  # True ends the training
    >>> rows = make_gaussian(2_000, random_state=0)
    >>> network = Network(members=1, callbacks=[Stop()])
    >>> model = FairBayes(network, recalibrate="group", random_state=0)
    >>> len(model.fit(rows.X, rows.y, sensitive_features=rows.groups).history_)
    1
    """

    def on_epoch_end(self, epoch: int, record: dict[str, Any], net: nn.Module) -> bool | None:
        """Look at the epoch; True ends the training."""


@dataclass
class Progress:
    """Where a training stands, with all its runs.

    The runs of a stack stop each by itself; those that have stopped leave the stack.
    """

    runs: int = 1
    epoch: int = 0
    finished: bool = False
    interrupted: bool = False
    best_epoch: list[int] = field(default_factory=list)  # (R,) -1: none yet
    best_score: list[float] = field(default_factory=list)  # (R,)
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.best_epoch = self.best_epoch or [-1] * self.runs
        self.best_score = self.best_score or [-float("inf")] * self.runs

    def take(self, net: DialNet, better: Sequence[int]) -> None:
        """Keep the weights of the runs at these places of the net."""
        weights = net.state_dict()
        if self.runs == 1 or not self.best:
            self.best = {name: tensor.detach().clone() for name, tensor in weights.items()}
            return
        runs = [net.kept[i] for i in better]
        for name, tensor in weights.items():
            kept = self.best[name].view(self.runs, -1, *tensor.shape[1:])
            fresh = tensor.detach().view(net.runs, -1, *tensor.shape[1:])
            kept[runs] = fresh[list(better)]


class Averager:
    """Bias-corrected moving average of a net's weights over the last epochs.

    Statistics of batch normalisation are averaged with the weights that they belong to.
    """

    def __init__(self, net: nn.Module, horizon: float) -> None:
        both = [*net.parameters(), *net.buffers()]
        self._weights = [p for p in both if p.is_floating_point()]
        self._mean = [torch.zeros_like(p) for p in self._weights]
        self._rate = 1.0 / max(horizon, 1.0)
        self._steps = torch.zeros((), dtype=torch.float64)

    @torch.no_grad()
    def update(self) -> None:
        """Take the current weights in."""
        self._steps += 1
        torch._foreach_lerp_(self._mean, [p.detach() for p in self._weights], self._rate)

    @torch.no_grad()
    def swap(self) -> list[Tensor]:
        """Put the average into the net; gives back what was there, for :meth:`restore`."""
        kept = [p.detach().clone() for p in self._weights]
        correction = 1.0 - (1.0 - self._rate) ** float(self._steps)
        for p, mean in zip(self._weights, self._mean, strict=True):
            p.copy_(mean / correction)
        return kept

    @torch.no_grad()
    def restore(self, kept: Sequence[Tensor]) -> None:
        """Put the weights back."""
        for p, value in zip(self._weights, kept, strict=True):
            p.copy_(value)

    def keep(self, runs: int, kept: Sequence[int]) -> None:
        """Go on with some of the net's runs only."""
        self._mean = [take_runs(mean, runs, kept) for mean in self._mean]

    def tensors(self) -> dict[str, Tensor]:
        """For checkpoints."""
        return {"steps": self._steps} | {f"mean{i}": m for i, m in enumerate(self._mean)}


def train(
    step: Step,
    batches: PairedBatches,
    score: Callable[[DialNet], dict[str, Any]],
    *,
    epochs: int,
    patience: int | None = None,
    average: float | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | Path | None = None,
    key: str = "",
    reporter: Reporter | None = None,
) -> Progress:
    """Train a net and leave its best weights in it.

    Parameters
    ----------
    step : Step
        Changes ``step.net`` by a batch.
    batches : PairedBatches
        Where batches come from; ``batches.steps`` make an epoch.
    score : callable
        ``score(net)``: figures on validation rows, ``"score"`` among them, the higher the better;
        without one the last epoch is the best. Lists, one figure a run, where there are several.
    epochs : int
        At most so many.
    patience : int, optional
        A run stops after so many epochs without a better score.
    average : float, optional
        Score and keep the moving average of the weights over about so many epochs.
    callbacks : sequence
        Told of every epoch.
    checkpoint : path, optional
        Folder in which the state is kept after every epoch; a run that finds it there goes on, with
        the same result as one that was never stopped.
    key : str
        What makes this run different from others; a checkpoint with another key is refused.
    reporter : Reporter, optional
        Shows progress.

    Raises
    ------
    DivergedError
        The state stopped being finite.
    """
    net, world = step.net, step.world
    state = Progress(runs=net.runs)
    averager = None if average is None else Averager(net, average * batches.steps)
    file = None if checkpoint is None else Path(checkpoint) / CHECKPOINT
    if file is not None and world.lead(file.exists):
        state = _restore(file, key, step, batches, averager)
    start = time.perf_counter() - (state.history[-1]["seconds"] if state.history else 0.0)
    try:
        with reporter or Silent() as shown:
            for record in state.history:
                shown.advance(_means(record))
            while not state.finished and state.epoch < epochs:
                record = _epoch(step, batches, averager, state.epoch + 1)
                kept = averager.swap() if averager is not None else None
                record |= score(net)
                state.epoch += 1
                record |= {"epoch": state.epoch, "seconds": time.perf_counter() - start}
                last = float(state.epoch)
                record.setdefault("score", last if state.runs == 1 else [last] * net.runs)
                if state.runs > 1:
                    record["run"] = list(net.kept)
                record = world.lead(partial(dict, record))
                state.history.append(record)
                _keep_best(state, net, record)
                if averager is not None and kept is not None:
                    averager.restore(kept)
                stopped = world.lead(partial(_tell, callbacks, record, net))
                _drop_finished(state, step, averager, patience, stopped=stopped)
                if file is not None:
                    _save(file, key, state, step, batches, averager)
                shown.advance(_means(record))
    except KeyboardInterrupt as stop:
        if not state.best or not world.allows(stop):
            raise
        state.interrupted = True
    world.spread(state.best.values())
    net.put(state.best, state.runs)
    return state


@torch.no_grad()  # a graph that they kept would hold the stack as it is now
def _tell(callbacks: Sequence[Callback], record: dict[str, Any], net: DialNet) -> bool:
    """Whether one of the callbacks wants to stop."""
    stop = [call.on_epoch_end(record["epoch"], dict(record), net) for call in callbacks]
    return any(stop)


def _keep_best(state: Progress, net: DialNet, record: dict[str, Any]) -> None:
    """Keep the weights of every run whose score is its best."""
    scores = record["score"] if state.runs > 1 else [record["score"]]
    first = not _is_warm(record) and (state.best_epoch[0] < 0 or was_warm(state))
    better = [
        i
        for i, run in enumerate(net.kept)
        if scores[i] > state.best_score[run]
        or state.best_epoch[run] < 0
        or math.isnan(state.best_score[run])
        or first
    ]
    for i in better:
        run = net.kept[i]
        state.best_score[run], state.best_epoch[run] = scores[i], state.epoch
    if better:
        state.take(net, better)


def _drop_finished(
    state: Progress,
    step: Step,
    averager: Averager | None,
    patience: int | None,
    *,
    stopped: bool,
) -> None:
    """Take the runs that have waited long enough out of the stack."""
    kept = step.net.kept
    left = list(range(len(kept)))
    if patience is not None and not _is_warm(state.history[-1]):
        left = [i for i, run in enumerate(kept) if state.epoch - state.best_epoch[run] < patience]
    state.finished = stopped or not left
    if not state.finished and len(left) < len(kept):
        _reduce(step, averager, left)


def _reduce(step: Step, averager: Averager | None, kept: Sequence[int]) -> None:
    if averager is not None:
        averager.keep(step.net.runs, kept)
    step.keep(kept)


def _is_warm(record: dict[str, Any]) -> bool:
    """Whether an epoch was not yet the method: kept only for want of better."""
    return bool(record.get("warm", 0.0) == 1.0)


def _means(record: dict[str, Any]) -> dict[str, Any]:
    """Figures of all runs as their mean, to be shown."""
    return {k: sum(v) / len(v) if isinstance(v, list) and v else v for k, v in record.items()}


def was_warm(state: Progress) -> bool:
    """Whether the best epoch so far belongs to the warm start."""
    return _is_warm(state.history[state.best_epoch[0] - 1])


def _epoch(
    step: Step, batches: PairedBatches, averager: Averager | None, epoch: int
) -> dict[str, Any]:
    """One epoch; its losses are the mean over every few batches, at the weights they met."""
    step.net.train()
    told: list[dict[str, Tensor]] = []
    x, y = batches.next()
    for i in range(batches.steps):
        step.world.begin(epoch, i)
        logits = step(x, y)
        if i % TOLD_EVERY == 0:
            told.append(step.objective.losses(logits, y, step.net.runs))
        if averager is not None:
            averager.update()
        if i + 1 < batches.steps:
            x, y = batches.next()
    step.check()
    record = {name: torch.stack([t[name] for t in told]).mean(dim=0).tolist() for name in told[0]}
    return record | step.diagnose(x, y)


# ---- checkpoints -------------------------------------------------------------------------------


def _pieces(
    step: Step,
    batches: PairedBatches,
    averager: Averager | None,
    state: Progress,
    random: Sequence[Tensor],
) -> dict[str, dict[str, Tensor]]:
    pieces = {
        "net": dict(step.net.state_dict()),
        "step": step.state(),
        "batches": batches.state(),
        "random": {_random_name(rank): draws for rank, draws in enumerate(random)},
        "best": state.best,
    }
    if averager is not None:
        pieces["average"] = averager.tensors()
    for name, optimizer in step.optimizers().items():
        pieces[f"optimizer-{name}"] = {
            f"{i}.{entry}": torch.as_tensor(value)
            for i, entries in optimizer.state_dict()["state"].items()
            for entry, value in entries.items()
        }
    return pieces


def _save(
    file: Path,
    key: str,
    state: Progress,
    step: Step,
    batches: PairedBatches,
    averager: Averager | None,
) -> None:
    random = step.world.collect(torch.get_rng_state())  # dropout: each process has its own
    step.world.lead(partial(_write, file, key, state, step, batches, averager, random))


def _random_name(rank: int) -> str:
    return f"state{rank}" if rank else "state"


def _write(
    file: Path,
    key: str,
    state: Progress,
    step: Step,
    batches: PairedBatches,
    averager: Averager | None,
    random: Sequence[Tensor],
) -> None:
    from safetensors.torch import save_file

    tensors = {
        f"{piece}/{name}": tensor.detach().contiguous().clone()
        for piece, entries in _pieces(step, batches, averager, state, random).items()
        for name, tensor in entries.items()
    }
    told = {
        "format": FORMAT,
        "key": key,
        "epoch": state.epoch,
        "best_epoch": state.best_epoch,
        "best_score": state.best_score,
        "kept": step.net.kept,
        "finished": state.finished,
        "history": state.history,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".part")
    save_file(tensors, half, metadata={"fairdial": json.dumps(told)})
    os.replace(half, file)


def _restore(
    file: Path, key: str, step: Step, batches: PairedBatches, averager: Averager | None
) -> Progress:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as stored:
            told = json.loads((stored.metadata() or {})["fairdial"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise CheckpointError(
            f"`checkpoint` must hold what an earlier run wrote, got {file.name} that can't be "
            f"read ({error}). Delete it to start anew."
        ) from error
    if told["format"] != FORMAT or told["key"] != key:
        raise CheckpointError(
            "`checkpoint` belongs to another run (other rows, parameters or library version). "
            "Name another folder, or delete it to start anew."
        )
    pieces: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        piece, _, entry = name.partition("/")
        pieces.setdefault(piece, {})[entry] = tensor
    if len(told["kept"]) < step.net.runs:
        _reduce(step, averager, told["kept"])
    step.net.load_state_dict(pieces["net"])
    step.restore(pieces.get("step", {}))
    batches.restore(pieces["batches"])
    draws = pieces["random"].get(_random_name(step.world.rank))
    if draws is not None:  # else there were fewer processes
        torch.set_rng_state(draws)
    if averager is not None:
        for entry, tensor in averager.tensors().items():
            tensor.copy_(pieces["average"][entry])
    for name, optimizer in step.optimizers().items():
        _restore_optimizer(optimizer, pieces.get(f"optimizer-{name}", {}))
    device = next(step.net.parameters()).device
    return Progress(
        runs=len(told["best_epoch"]),
        epoch=told["epoch"],
        best_epoch=told["best_epoch"],
        best_score=told["best_score"],
        history=told["history"],
        best={name: tensor.to(device) for name, tensor in pieces["best"].items()},
        finished=told["finished"],
    )


def _restore_optimizer(optimizer: torch.optim.Optimizer, entries: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in entries.items():
        place, _, entry = name.partition(".")
        state.setdefault(int(place), {})[entry] = tensor
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
