"""From labelled rows and settings to a trained network."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn

from fairdial._version import __version__
from fairdial.criteria import Criterion
from fairdial.encoders import TableEncoder
from fairdial.errors import InvalidInputError
from fairdial.frontier import Frontier
from fairdial.metrics import hypervolume
from fairdial.nn.masoba import Objective
from fairdial.nn.nets import DialNet, Head, MLPTrunk, ModuleStack
from fairdial.nn.rows import DatasetRows, PairedBatches, Rows, TensorRows
from fairdial.nn.scorer import score_rows
from fairdial.nn.steps import Step
from fairdial.nn.training import train
from fairdial.progress import Bar
from fairdial.sweeping import sweep_codes

LEAST_STEPS = 20  # of an epoch
SAMPLE = 64  # rows of a torch Dataset that tell one from another
TOLERANCES = 50  # of the curve whose hypervolume chooses the epoch
WORST = (0.0, 1.0)  # its reference point
SHOWN = ("loss", "hypervolume", "aux_residual")
Indices = NDArray[np.intp]


@dataclass
class TrainingRows:
    """The rows of a fit: labels, groups, and which of them train and validate."""

    X: Any
    positive: NDArray[np.bool_]
    codes: NDArray[np.integer[Any]]
    train: Indices
    validation: Indices
    n_groups: int


@dataclass
class Fitted:
    """A trained network, how rows become its inputs, and how training went."""

    net: DialNet
    encoder: Any
    history: pd.DataFrame
    device: torch.device

    def rows(self, X: Any) -> Rows:
        """Rows as the network's inputs."""
        return as_rows(X, self.encoder, self.device)


def find_device(name: str) -> torch.device:
    """The device that is meant."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInputError(
            f"`device` must be one that torch has here, got {name!r} ({error})."
        ) from error
    return device


def as_rows(X: Any, encoder: Any, device: torch.device) -> Rows:
    """Rows that batches can be taken from: encoded tables, tensors, torch Datasets."""
    if isinstance(X, torch.utils.data.Dataset):
        return DatasetRows(X, device)
    if encoder is not None:
        features = torch.from_numpy(np.ascontiguousarray(encoder.transform(X), np.float32))
    elif isinstance(X, Tensor):
        features = X.detach().float()
    else:
        features = torch.from_numpy(np.ascontiguousarray(X, np.float32))
    if features.ndim < 2 or 0 in features.shape[1:]:
        raise InvalidInputError(
            f"`X` must have rows and features, got shape {tuple(features.shape)}: 0 feature(s) "
            f"(shape={tuple(features.shape)}) while a minimum of 1 is required. Reshape your data."
        )
    if not bool(torch.isfinite(features).all()):
        raise InvalidInputError("`X` must hold finite numbers, got NaN or infinity (inf).")
    return TensorRows(features.to(device))


def fit_encoder(choice: Any, X: Any, train: Indices) -> Any:
    """The encoder, fitted on the training rows alone; None where rows are inputs already."""
    if isinstance(X, (Tensor, torch.utils.data.Dataset)) or choice is None:
        return None
    if choice == "auto":
        choice = TableEncoder()
    part = X.iloc[train] if isinstance(X, pd.DataFrame) else np.asarray(X)[train]
    return clone(choice).fit(part)


def build(network: Any, sample: Tensor, n_groups: int, seed: int) -> DialNet:
    """A net with fresh weights; the same for the same settings and seed, whatever the method."""
    generator = torch.Generator().manual_seed(seed)
    members = network.members
    nets = members * (1 if network.is_shared else n_groups)
    trunk: nn.Module
    if network.trunk is not None:
        trunk = ModuleStack.of(network.trunk, nets)
        width = _width(trunk.nets[0], sample)
    else:
        n_in = sample.shape[-1] + (n_groups if network.is_shared else 0)
        trunk = MLPTrunk(
            nets,
            (n_in, *network.hidden),
            generator,
            norm=network.norm,
            dropout=network.dropout,
            bare=network.bare,
        )
        width = network.hidden[-1]
    head = Head(nets, width, network.head, generator)
    return DialNet(trunk, head, members=members, groups=n_groups, shared=network.is_shared)


@torch.no_grad()
def _width(module: nn.Module, sample: Tensor) -> int:
    mode = module.training
    features = module.eval().to(sample.device)(sample)
    module.train(mode)
    if features.shape[:1] != sample.shape[:1]:
        raise InvalidInputError(
            f"`trunk` must give one row of features for each row, got shape "
            f"{tuple(features.shape)} for {len(sample)} rows."
        )
    return int(features.flatten(1).shape[1])


def validation_figures(
    logits: NDArray[Any], data: TrainingRows, criterion: Criterion, by: str = "dial"
) -> dict[str, float]:
    """Score of the validation rows' frontier, and what the dial looks like on them.

    "hypervolume" is the paper's: 50 tolerances, reference (0, 1). It doesn't notice a net that is
    less accurate at loose tolerances than at strict ones; "dial", the area under the accuracy that
    the dial delivers at tolerances from 0 to 1, is the same where accuracy rises with the gap.
    """
    held = data.validation
    codes, positive = data.codes[held], data.positive[held]
    names = tuple(range(data.n_groups))
    try:
        frontier = sweep_codes(logits, codes, positive, criterion, names, min_count=1)
    except InvalidInputError:  # too few rows for a frontier: accuracy alone
        accuracy = float(((logits > 0) == positive).mean()) if len(held) else 0.0
        return {"score": accuracy, "accuracy": accuracy}
    gaps = np.linspace(0.0, frontier.gap[0], TOLERANCES)
    states, _ = frontier.states.first_within(gaps)
    thresholds, selected = frontier.states.read(states)
    accuracy_ = frontier._accuracy(selected)
    area = hypervolume(np.column_stack((accuracy_, frontier.gap[states])), WORST)
    dial = float(gaps[-1] * accuracy_.mean() + (1.0 - gaps[-1]) * accuracy_[-1])
    score = area if by == "hypervolume" else dial
    figures = {
        "score": score,
        "hypervolume": area,
        "accuracy": float(accuracy_[-1]),
        "gap": float(frontier.gap[0]),
    }
    return figures | interval_figures(logits, codes, thresholds[0], frontier)


def interval_figures(
    logits: NDArray[Any], codes: NDArray[Any], fairest: NDArray[Any], frontier: Frontier
) -> dict[str, float]:
    """Rows between 0 and the fairest thresholds, and what they are worth (eq:acc_dep)."""
    z, tau = logits.astype(np.float64), fairest[codes]
    inside = (z > np.minimum(0.0, tau)) & (z <= np.maximum(0.0, tau))
    worth = np.abs(np.tanh(z / 2.0))  # |2 eta - 1|
    told = {f"fairest_{a}": float(value) for a, value in enumerate(fairest)}
    return {
        "interval_share": float(inside.mean()),
        "acc_dep": float(np.where(inside, worth, 0.0).mean()),
        "fairest_gap": float(frontier.gap.min()),
        **told,
    }


def fit_network(
    network: Any,
    data: TrainingRows,
    criterion: Criterion,
    make_step: Callable[[DialNet, Objective, int], Step],
    objective: Callable[[NDArray[np.float64]], Objective],
    *,
    seed: int,
    start: Fitted | None = None,
    settings: str = "",
) -> Fitted:
    """Train a network on the training rows, with early stopping on the validation rows.

    Parameters
    ----------
    network : Network
        Settings.
    data : TrainingRows
        Rows, labels, groups.
    criterion : Criterion
        Whose frontier on the validation rows is scored.
    make_step : callable
        ``make_step(net, objective, steps_per_epoch)``.
    objective : callable
        ``objective(shares)``.
    seed : int
        Of initial weights and batch order: shared between methods.
    start : Fitted, optional
        Go on from this network.
    settings : str
        The method's own settings, for the checkpoint's key.
    """
    network.check()
    device = find_device(network.device)
    encoder = (
        start.encoder if start is not None else fit_encoder(network.encoder, data.X, data.train)
    )
    rows = as_rows(data.X, encoder, device)
    y = torch.as_tensor(data.positive, dtype=torch.float32, device=device)
    parts = [data.train[data.codes[data.train] == a] for a in range(data.n_groups)]
    if any(len(part) == 0 for part in parts):
        raise InvalidInputError("`sensitive_features` must leave training rows in every group.")
    label = criterion.rates[0].counted
    counted = np.ones(len(y), bool) if label is None else data.positive == bool(label)
    shares = np.array([counted[part].sum() for part in parts]) / len(data.train)
    with torch.random.fork_rng(devices=[]), few_threads(network.trunk is None):
        torch.manual_seed(seed)
        sample = rows.take(torch.as_tensor(data.train[:2]))
        net = build(network, sample, data.n_groups, seed).to(device)
        if start is not None:
            try:
                net.load_state_dict(start.net.state_dict())
            except RuntimeError as error:
                raise InvalidInputError(
                    "`warm_start` must be False where the network or the features are not those "
                    "of the last fit."
                ) from error
        batches = PairedBatches(
            rows, y, parts, size=network.batch_size, seed=seed + 1, epoch=network.epoch
        )
        if network.epoch == "long":  # few rows: epochs, patience and averages count in steps
            batches.steps = max(batches.steps, LEAST_STEPS)
        step = make_step(net, objective(shares), batches.steps)
        validation_rows = _Part(rows, data.validation)

        def score(net: DialNet) -> dict[str, Any]:
            if len(data.validation) == 0:
                return {}  # nothing to choose by: the last epoch is kept
            logits = score_rows(net, validation_rows, data.codes[data.validation])
            return validation_figures(logits, data, criterion, network.score)

        state = train(
            step,
            batches,
            score,
            epochs=network.epochs,
            patience=network.patience,
            average=network.average,
            callbacks=network.callbacks or (),
            checkpoint=network.checkpoint,
            key=_key(network, data, criterion, seed, settings, rows, net),
            reporter=Bar("training", network.epochs, SHOWN) if network.verbose else None,
        )
    history = pd.DataFrame(state.history).set_index("epoch")
    history.attrs["best_epoch"] = state.best_epoch
    return Fitted(net.eval(), encoder, history, device)


@contextlib.contextmanager
def few_threads(small: bool) -> Iterator[None]:
    """One thread for small products: more only wait for each other."""
    before = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Part:
    """Some rows of others, by position."""

    def __init__(self, rows: Rows, places: Indices) -> None:
        self._rows, self._places = rows, torch.as_tensor(places)

    def __len__(self) -> int:
        return len(self._places)

    def take(self, index: Tensor) -> Tensor:
        return self._rows.take(self._places[index])


def _key(
    network: Any,
    data: TrainingRows,
    criterion: Criterion,
    seed: int,
    settings: str,
    rows: Rows,
    net: DialNet,
) -> str:
    """What makes a run different from others."""
    quiet = ("verbose", "callbacks", "checkpoint", "trunk", "encoder", "device")
    params = {k: v for k, v in network.get_params(deep=False).items() if k not in quiet}
    digest = hashlib.sha256()
    for part in (data.positive, data.codes, data.train, data.validation):
        digest.update(np.ascontiguousarray(part).tobytes())
    if isinstance(rows, TensorRows):
        digest.update(rows.features.cpu().numpy().tobytes())
    else:  # reading all of it would take long
        places = torch.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).long()
        digest.update(rows.take(places).cpu().numpy().tobytes())
    digest.update(repr(net).encode())
    for weights in net.state_dict().values():  # where it starts: trunk, seed, warm start
        digest.update(weights.cpu().numpy().tobytes())
    told = [__version__, params, criterion.name, seed, settings]
    return digest.hexdigest()[:16] + json.dumps(told, default=str)
