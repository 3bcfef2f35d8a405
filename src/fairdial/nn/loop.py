"""The only training loop: epochs of paired batches, a score, the best weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairdial.nn.checkpoint import Checkpoint
from fairdial.nn.data import PairedBatches
from fairdial.nn.nets import DialNet, take_runs
from fairdial.nn.network import Callback
from fairdial.nn.steps import Optimizer, Step
from fairdial.progress import Reporter, Silent

RECORD_EVERY = 8  # batches
Record = dict[str, Any]  # figures of an epoch; lists, by run, if there are several runs


@dataclass
class Progress:
    """State of training, for all its runs.

    Each run of a stack stops on its own; runs that have stopped leave the stack.
    """

    runs: int = 1
    epoch: int = 0
    finished: bool = False
    interrupted: bool = False
    best_epoch: list[int] = field(default_factory=list)  # (R,), -1: none yet
    best_score: list[float] = field(default_factory=list)  # (R,)
    history: list[Record] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.best_epoch = self.best_epoch or [-1] * self.runs
        self.best_score = self.best_score or [-float("inf")] * self.runs

    def keep_best(self, net: DialNet, record: Record) -> None:
        """Keep the weights of every run whose score is its best so far."""
        scores = record["score"] if self.runs > 1 else [record["score"]]
        first = not _is_warm(record) and (self.best_epoch[0] < 0 or self._best_is_warm())
        better = [
            i
            for i, run in enumerate(net.kept)
            if scores[i] > self.best_score[run]
            or self.best_epoch[run] < 0
            or math.isnan(self.best_score[run])
            or first
        ]
        for i in better:
            run = net.kept[i]
            self.best_score[run], self.best_epoch[run] = scores[i], self.epoch
        if better:
            self._take(net, better)

    def _best_is_warm(self) -> bool:
        """Return whether the best epoch so far belongs to the warm start."""
        return _is_warm(self.history[self.best_epoch[0] - 1])

    def _take(self, net: DialNet, better: Sequence[int]) -> None:
        """Copy the weights of the runs at these places of the net."""
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

    Statistics of batch normalization are averaged with the weights that they belong to.
    """

    def __init__(self, net: nn.Module, horizon: float) -> None:
        both = [*net.parameters(), *net.buffers()]
        self._weights = [p for p in both if p.is_floating_point()]
        self._mean = [torch.zeros_like(p) for p in self._weights]
        self._rate = 1.0 / max(horizon, 1.0)
        self._steps = torch.zeros((), dtype=torch.float64)

    @torch.no_grad()
    def update(self) -> None:
        """Add the current weights to the average."""
        self._steps += 1
        torch._foreach_lerp_(self._mean, [p.detach() for p in self._weights], self._rate)

    @torch.no_grad()
    def swap(self) -> list[Tensor]:
        """Put the average into the net; return the weights, for :meth:`restore`."""
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
        """Keep some of the net's runs only."""
        self._mean = [take_runs(mean, runs, kept) for mean in self._mean]

    def tensors(self) -> dict[str, Tensor]:
        """Return the state, for checkpoints."""
        return {"steps": self._steps} | {f"mean{i}": m for i, m in enumerate(self._mean)}


def train(
    step: Step,
    batches: PairedBatches,
    score: Callable[[DialNet], Record],
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
        Updates ``step.net`` on a batch.
    batches : PairedBatches
        Source of the batches; ``batches.steps`` make an epoch.
    score : callable
        ``score(net)`` returns figures on validation rows, among them ``"score"``, the higher the
        better; without it the last epoch is the best. If there are several runs, lists.
    epochs : int
        Maximum number of epochs.
    patience : int, optional
        A run stops after this many epochs without a better score.
    average : float, optional
        Score and keep the moving average of the weights over about this many epochs.
    callbacks : sequence
        Called after every epoch.
    checkpoint : path, optional
        Folder for a checkpoint after every epoch. A run that finds one there resumes, with the
        same result as a run that never stopped.
    key : str
        Identifies this run; a checkpoint with another key is refused.
    reporter : Reporter, optional
        Shows progress.

    Raises
    ------
    DivergedError
        The state is no longer finite.
    """
    net, processes = step.net, step.processes
    state = Progress(runs=net.runs)
    averager = None if average is None else Averager(net, average * batches.steps)
    saved = None if checkpoint is None else Checkpoint(Path(checkpoint), key)
    if saved is not None and processes.on_main(saved.exists):
        state = _resume(saved, step, batches, averager)
    start = time.perf_counter() - (state.history[-1]["seconds"] if state.history else 0.0)
    try:
        with reporter or Silent() as shown:
            for record in state.history:
                shown.advance(_means(record))
            while not state.finished and state.epoch < epochs:
                record = _train_epoch(step, batches, averager, state.epoch + 1)
                kept = averager.swap() if averager is not None else None
                record |= score(net)
                state.epoch += 1
                record |= {"epoch": state.epoch, "seconds": time.perf_counter() - start}
                last = float(state.epoch)
                record.setdefault("score", last if state.runs == 1 else [last] * net.runs)
                if state.runs > 1:
                    record["run"] = list(net.kept)
                record = processes.on_main(partial(dict, record))
                state.history.append(record)
                state.keep_best(net, record)
                if averager is not None and kept is not None:
                    averager.restore(kept)
                stopped = processes.on_main(partial(_call_back, callbacks, record, net))
                _drop_finished(state, step, averager, patience, stopped=stopped)
                if saved is not None:
                    _save(saved, state, step, batches, averager)
                shown.advance(_means(record))
    except KeyboardInterrupt as stop:
        if not state.best or not processes.agreed_on(stop):
            raise
        state.interrupted = True
    processes.broadcast(state.best.values())
    net.put(state.best, state.runs)
    return state


@torch.no_grad()  # a graph that callbacks kept would hold the stack as it is now
def _call_back(callbacks: Sequence[Callback], record: Record, net: DialNet) -> bool:
    """Call all callbacks; return whether one asks to stop."""
    stop = [call.on_epoch_end(record["epoch"], dict(record), net) for call in callbacks]
    return any(stop)


def _drop_finished(
    state: Progress,
    step: Step,
    averager: Averager | None,
    patience: int | None,
    *,
    stopped: bool,
) -> None:
    """Take the runs that have run out of patience out of the stack."""
    kept = step.net.kept
    left = list(range(len(kept)))
    if patience is not None and not _is_warm(state.history[-1]):
        left = [i for i, run in enumerate(kept) if state.epoch - state.best_epoch[run] < patience]
    state.finished = stopped or not left
    if not state.finished and len(left) < len(kept):
        _keep_runs(step, averager, left)


def _keep_runs(step: Step, averager: Averager | None, kept: Sequence[int]) -> None:
    if averager is not None:
        averager.keep(step.net.runs, kept)
    step.keep(kept)


def _is_warm(record: Record) -> bool:
    """Return whether an epoch was part of the warm start, and is kept only until a later one."""
    return bool(record.get("warm", 0.0) == 1.0)


def _means(record: Record) -> Record:
    """Return figures for display: the mean over runs."""
    return {k: sum(v) / len(v) if isinstance(v, list) and v else v for k, v in record.items()}


def _train_epoch(
    step: Step, batches: PairedBatches, averager: Averager | None, epoch: int
) -> Record:
    """Train for one epoch; return its mean losses, sampled every few batches."""
    step.net.train()
    losses: list[dict[str, Tensor]] = []
    x, y = batches.next()
    for i in range(batches.steps):
        step.processes.start_batch(epoch, i)
        logits = step(x, y)
        if i % RECORD_EVERY == 0:
            losses.append(step.objective.losses(logits, y, step.net.runs))
        if averager is not None:
            averager.update()
        if i + 1 < batches.steps:
            x, y = batches.next()
    step.check()
    record = {k: torch.stack([loss[k] for loss in losses]).mean(dim=0).tolist() for k in losses[0]}
    return record | step.diagnose(x, y)


def _save(
    saved: Checkpoint,
    state: Progress,
    step: Step,
    batches: PairedBatches,
    averager: Averager | None,
) -> None:
    draws = step.processes.gather_objects(torch.get_rng_state())  # dropout: each process its own
    pieces = {
        "net": dict(step.net.state_dict()),
        "step": step.state(),
        "batches": batches.state(),
        "random": {_rng_name(rank): rng for rank, rng in enumerate(draws)},
        "best": state.best,
    }
    if averager is not None:
        pieces["average"] = averager.tensors()
    for name, optimizer in step.optimizers.items():
        pieces[f"optimizer-{name}"] = {
            f"{i}.{entry}": torch.as_tensor(value)
            for i, entries in optimizer.state_dict()["state"].items()
            for entry, value in entries.items()
        }
    progress = {
        "epoch": state.epoch,
        "best_epoch": state.best_epoch,
        "best_score": state.best_score,
        "kept": step.net.kept,
        "finished": state.finished,
        "history": state.history,
    }
    step.processes.on_main(partial(saved.write, pieces, progress))


def _resume(
    saved: Checkpoint, step: Step, batches: PairedBatches, averager: Averager | None
) -> Progress:
    pieces, progress = saved.read()
    if len(progress["kept"]) < step.net.runs:
        _keep_runs(step, averager, progress["kept"])
    step.net.load_state_dict(pieces["net"])
    step.restore(pieces.get("step", {}))
    batches.restore(pieces["batches"])
    rng = pieces["random"].get(_rng_name(step.processes.rank))
    if rng is not None:  # else there were fewer processes
        torch.set_rng_state(rng)
    if averager is not None:
        for entry, tensor in averager.tensors().items():
            tensor.copy_(pieces["average"][entry])
    for name, optimizer in step.optimizers.items():
        _restore_optimizer(optimizer, pieces.get(f"optimizer-{name}", {}))
    device = next(step.net.parameters()).device
    return Progress(
        runs=len(progress["best_epoch"]),
        epoch=progress["epoch"],
        best_epoch=progress["best_epoch"],
        best_score=progress["best_score"],
        history=progress["history"],
        best={name: tensor.to(device) for name, tensor in pieces["best"].items()},
        finished=progress["finished"],
    )


def _rng_name(rank: int) -> str:
    return f"state{rank}" if rank else "state"


def _restore_optimizer(optimizer: Optimizer, entries: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in entries.items():
        place, _, entry = name.partition(".")
        state.setdefault(int(place), {})[entry] = tensor
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
