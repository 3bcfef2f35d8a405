"""From training rows and a network's settings to a trained net."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from fairdial._arrays import Floats
from fairdial._version import __version__
from fairdial.errors import InvalidInputError
from fairdial.nn.build import FilmSettings, build_net
from fairdial.nn.data import PictureInputs, TensorInputs, TrainingData
from fairdial.nn.distributed import training_processes
from fairdial.nn.loop import Progress, Record, train
from fairdial.nn.nets import DialNet
from fairdial.nn.network import Network
from fairdial.nn.process_group import ProcessGroup
from fairdial.nn.schedules import Factor, factor_at
from fairdial.nn.steps import Step
from fairdial.progress import Bar

SAMPLE_ROWS = 64  # rows of a torch Dataset that identify it
SHOWN = ("loss", "hypervolume", "aux_residual")


@dataclass
class Method:
    """What distinguishes the training of one method.

    Attributes
    ----------
    make_step : callable
        ``make_step(net, shares, steps_per_epoch)``.
    score : callable
        ``score(net, data, processes)`` returns figures on validation rows, among them ``"score"``.
    runs : int
        Settings that are trained side by side, from the same initial weights.
    film : dict, optional
        Arguments of the hyper-networks, if the net is modulated.
    description : str
        The method's own settings, for the checkpoint's key.
    schedules : mapping
        Its schedules, which the key holds by their factors at the start of each epoch.
    """

    make_step: Callable[[DialNet, Floats, int], Step]
    score: Callable[[DialNet, TrainingData, ProcessGroup], Record]
    runs: int = 1
    film: FilmSettings | None = None
    description: str = ""
    schedules: Mapping[str, str | Factor] = field(default_factory=dict)


@dataclass
class Fitted:
    """A trained net and its training history."""

    net: DialNet
    history: pd.DataFrame
    best_epoch: list[int]
    interrupted: bool = False


def fit_network(
    network: Network,
    data: TrainingData,
    method: Method,
    *,
    seed: int,
    start: DialNet | None = None,
    checkpoint: Path | None = None,
) -> Fitted:
    """Train a network on the training rows, with early stopping on the validation rows.

    With a process group, all its processes train together and must call this with the same rows.

    Parameters
    ----------
    network : Network
        Settings.
    data : TrainingData
        Rows.
    method : Method
        The method.
    seed : int
        Seed of initial weights and batch order, shared between methods.
    start : DialNet, optional
        Continue from this net's weights.
    checkpoint : path, optional
        Folder for checkpoints.
    """
    device = data.encode.device
    one_thread = single_thread(network.trunk is None)
    with torch.random.fork_rng(devices=[]), one_thread, training_processes() as processes:
        torch.manual_seed(seed)
        sample = data.inputs.take(torch.as_tensor(data.train[:2]))
        net = build_net(
            network,
            sample,
            data.n_groups,
            seed,
            runs=method.runs,
            film=method.film,
            embeddings=data.is_embedded(sample),
            outputs=data.outputs,
        ).to(device)
        if start is not None:
            _load(net, start)
        batches = data.batches(
            size=network.batch_size,
            seed=seed + 1,
            epoch=network.epoch,
            processes=processes,
        )
        _refuse_wrapped(processes, net)
        _refuse_differences(processes, _identity(data, seed, net))
        processes.broadcast(net.state_dict().values())  # each process may have drawn its own trunk
        key = ""
        if checkpoint is not None or processes.size > 1:
            key = _run_key(network, data, seed, method, net, batches.steps)
        _refuse_differences(processes, {"`X` or the parameters": key})
        if processes.rank:  # dropout differs between processes
            torch.manual_seed(seed + processes.rank)
        step = method.make_step(net, data.shares(), batches.steps)
        step.processes = processes

        def score(net: DialNet) -> Record:
            return method.score(net, data, processes) if len(data.validation) else {}

        state = train(
            step,
            batches,
            score,
            epochs=network.epochs,
            patience=network.patience,
            average=network.average,
            callbacks=network.callbacks or (),
            checkpoint=checkpoint,
            key=key,
            reporter=Bar("training", network.epochs, SHOWN)
            if network.verbose and processes.is_main
            else None,
        )
    return Fitted(net.eval(), history_frame(state), state.best_epoch, state.interrupted)


def history_frame(state: Progress) -> pd.DataFrame:
    """Return figures by epoch; by run and epoch if there are several runs."""
    if state.runs == 1:
        return pd.DataFrame(state.history).set_index("epoch")
    lines = [
        {k: v[i] if isinstance(v, list) else v for k, v in record.items()}
        for record in state.history
        for i in range(len(record["run"]))
    ]
    return pd.DataFrame(lines).set_index(["run", "epoch"]).sort_index()


@contextlib.contextmanager
def single_thread(small: bool) -> Iterator[None]:
    """Use one thread for small products, where more only wait for each other."""
    before = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _load(net: DialNet, start: DialNet) -> None:
    try:
        net.load_state_dict(start.state_dict())
    except RuntimeError as error:
        raise InvalidInputError(
            "warm_start",
            "be False where the network or the features differ from those of the last fit",
        ) from error


# ---- several processes -------------------------------------------------------------------------


def _refuse_wrapped(processes: ProcessGroup, net: DialNet) -> None:
    """Raise for modules whose gradients or batch moments can't be shared between processes."""
    for part in net.modules() if processes.size > 1 else ():
        if isinstance(part, (nn.parallel.DistributedDataParallel, torch.jit.ScriptModule)):
            raise InvalidInputError(
                "trunk",
                "be a plain torch Module with a process group",
                given=f"a {type(part).__name__}",
                hint="fairdial shares the work between the processes itself.",
            )


def _identity(data: TrainingData, seed: int, net: DialNet) -> dict[str, Any]:
    """Return what must be the same in all processes before they can exchange anything."""
    return {
        "the number of rows": len(data.y),
        "`y`": hashlib.sha256(data.y.tobytes()).hexdigest(),
        "`sensitive_features`": hashlib.sha256(data.codes.tobytes()).hexdigest(),
        "`sample_weight`": None
        if data.weights is None
        else hashlib.sha256(data.weights.tobytes()).hexdigest(),
        "`random_state`": seed,
        "the shape of the network": {name: tuple(p.shape) for name, p in net.state_dict().items()},
    }


def _refuse_differences(processes: ProcessGroup, identity: dict[str, Any]) -> None:
    """Raise in all processes if their arguments differ."""
    everywhere = processes.gather_objects(identity)
    for name in identity:
        if any(other[name] != everywhere[0][name] for other in everywhere):
            raise InvalidInputError(
                name.strip("`") if name.count("`") == 2 else "X",
                "be the same in every process",
                hint=f"Some processes differ in {name}. Give each process all rows; it takes its "
                "own part of every batch.",
            )


def _run_key(
    network: Network, data: TrainingData, seed: int, method: Method, net: DialNet, steps: int
) -> str:
    """Return a key that differs between different runs; an epoch has ``steps`` steps."""
    inputs = data.inputs
    irrelevant = ("verbose", "callbacks", "checkpoint", "trunk", "encoder", "device")
    params = {k: v for k, v in network.get_params(deep=False).items() if k not in irrelevant}
    params["dropout"] = getattr(net.trunk, "dropout", 0.0)  # "auto" depends on the encoder
    digest = hashlib.sha256()
    for part in (data.y, data.codes, data.train, data.validation, data.strata, data.weights):
        if part is not None:
            digest.update(np.ascontiguousarray(part).tobytes())
    if isinstance(inputs, TensorInputs):
        digest.update(inputs.features.cpu().numpy().tobytes())
    elif isinstance(inputs, PictureInputs):
        pictures = inputs.pictures
        digest.update(repr((pictures.places_key(), pictures.mean, pictures.std)).encode())
    else:  # a torch Dataset: reading all of it would take long
        places = torch.linspace(0, len(inputs) - 1, min(SAMPLE_ROWS, len(inputs))).long()
        digest.update(inputs.take(places).cpu().numpy().tobytes())
    digest.update(repr(net).encode())
    for weights in net.state_dict().values():  # initial weights: trunk, seed, warm start
        digest.update(weights.cpu().numpy().tobytes())
    starts = range(0, network.epochs * steps, steps)
    factors = {  # a function's text holds its address, and two functions may have the same name
        name: [factor_at(given, step, network.epochs * steps) for step in starts]
        for name, given in sorted(method.schedules.items())
    }
    settings = [__version__, params, data.criterion.name, seed, method.description, factors]
    return digest.hexdigest()[:16] + json.dumps(settings, default=str)
