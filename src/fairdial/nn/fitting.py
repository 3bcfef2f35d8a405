"""From labelled rows and settings to a trained network."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from torch import Tensor, nn

from fairdial._version import __version__
from fairdial.criteria import Criterion
from fairdial.datasets.pictures import Pictures
from fairdial.encoders import WIDE, TableEncoder, is_wide, wide_steps
from fairdial.errors import InvalidInputError
from fairdial.frontier import Frontier
from fairdial.metrics import hypervolume
from fairdial.nn.distributed import joined
from fairdial.nn.nets import DialNet, Film, Head, MLPTrunk, ModuleStack
from fairdial.nn.rows import DatasetRows, PairedBatches, PictureRows, Rows, TensorRows
from fairdial.nn.scorer import score_rows
from fairdial.nn.steps import Step
from fairdial.nn.training import Progress, train
from fairdial.nn.world import ALONE, World
from fairdial.progress import Bar
from fairdial.sweeping import count_by_group, sweep_codes

LEAST_STEPS = 20  # of an epoch
DROPOUT = 0.5  # of embeddings, where it is "auto"
SAMPLE = 64  # rows of a torch Dataset by which one is told from another
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
class Prepared:
    """Rows as a network's inputs, where it is trained."""

    data: TrainingRows
    criterion: Criterion
    encoder: Any
    rows: Rows
    device: torch.device

    @property
    def encode(self) -> Inputs:
        """Makes other rows the network's inputs; doesn't hold these."""
        return Inputs(self.encoder, self.device)

    @property
    def parts(self) -> list[Indices]:
        """Training rows of each group."""
        train = self.data.train
        parts = [train[self.data.codes[train] == a] for a in range(self.data.n_groups)]
        if any(len(part) == 0 for part in parts):
            raise InvalidInputError("`sensitive_features` must leave training rows in every group.")
        return parts

    @property
    def shares(self) -> NDArray[np.float64]:
        """(K,) P(group, counted) of the training rows."""
        data, train = self.data, self.data.train
        counted = count_by_group(
            data.codes[train], data.positive[train], self.criterion, data.n_groups
        )
        return np.asarray(counted / len(train), np.float64)

    @property
    def held(self) -> Held:
        """The validation rows."""
        places = self.data.validation
        return Held(
            Part(self.rows, places),
            self.data.codes[places],
            self.data.positive[places],
            self.data.n_groups,
            self.criterion,
        )


@dataclass
class Inputs:
    """Makes rows a network's inputs."""

    encoder: Any
    device: torch.device

    def __call__(self, X: Any) -> Rows:
        """Rows that batches can be taken from."""
        return as_rows(X, self.encoder, self.device)


@dataclass
class Held:
    """Validation rows."""

    rows: Rows
    codes: NDArray[np.integer[Any]]
    positive: NDArray[np.bool_]
    n_groups: int
    criterion: Criterion
    world: World = ALONE


@dataclass
class Recipe:
    """What makes a training one method's.

    Attributes
    ----------
    make_step : callable
        ``make_step(net, shares, steps_per_epoch)``.
    score : callable
        ``score(net, held)``: figures on validation rows, ``"score"`` among them.
    runs : int
        Settings that are trained side by side, from the same initial weights.
    film : dict, optional
        Arguments of the hyper-networks, where the net is modulated.
    told : str
        The method's own settings, for the checkpoint's key.
    targets : (n,) array, optional
        Probabilities that the nets learn instead of the rows' labels.
    """

    make_step: Callable[[DialNet, NDArray[np.float64], int], Step]
    score: Callable[[DialNet, Held], dict[str, Any]]
    runs: int = 1
    film: dict[str, Any] | None = None
    told: str = ""
    targets: NDArray[np.float64] | None = None


@dataclass
class Fitted:
    """A trained network, and how training went."""

    net: DialNet
    history: pd.DataFrame
    best_epoch: list[int]
    interrupted: bool = False


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
    """Rows that batches can be taken from: encoded rows, pictures, tensors, torch Datasets."""
    if isinstance(X, torch.utils.data.Dataset):
        return DatasetRows(X, device)
    if isinstance(X, Pictures) and encoder is None:
        return PictureRows(X, device)
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
    auto = isinstance(choice, str) and choice == "auto"
    if isinstance(X, Pictures):
        return None if auto else clone(choice).fit(X[train])
    table = _table(X)
    if auto:
        choice = make_pipeline(*wide_steps()) if is_wide(table) else TableEncoder()
    return clone(choice).fit(table.iloc[train] if isinstance(X, pd.DataFrame) else table[train])


def are_embeddings(X: Any, encoder: Any, sample: Tensor) -> bool:
    """Whether a network's inputs are many numbers a row that weren't made of a table's columns.

    ``sample`` holds some of the inputs; the encoder made them of ``X``.
    """
    if sample.ndim != 2 or sample.shape[1] < WIDE or isinstance(encoder, TableEncoder):
        return False
    return encoder is None or isinstance(X, Pictures) or is_wide(_table(X))


def _table(X: Any) -> Any:
    return X if isinstance(X, pd.DataFrame) else np.asarray(X)


def build(
    network: Any,
    sample: Tensor,
    n_groups: int,
    seed: int,
    *,
    runs: int = 1,
    film: dict[str, Any] | None = None,
    embeddings: bool = False,
) -> DialNet:
    """A net with fresh weights; the same for the same settings and seed, whatever the method.

    All runs start with the same weights. Dropout that is "auto" depends on whether the inputs are
    embeddings.
    """
    generator = torch.Generator().manual_seed(seed)
    members = network.members
    nets = members * (1 if network.is_shared else n_groups)
    trunk: nn.Module
    if network.trunk is not None:
        trunk = ModuleStack.of(network.trunk, nets, network.precision == "bfloat16")
        with _refuse_points(trunk):
            width = _width(trunk.nets[0], sample)
    else:
        marks, seen = n_groups if network.is_shared else 0, network.group_input
        early, late = (marks if seen == place else 0 for place in ("trunk", "head"))
        dropout = network.dropout
        if isinstance(dropout, str):
            dropout = DROPOUT if embeddings else 0.0
        trunk = MLPTrunk(
            nets,
            (sample.shape[-1] + early, *network.hidden),
            generator,
            norm=network.norm,
            dropout=dropout,
            bare=network.bare,
            marks=marks - early,
            late=late > 0,
        )
        width = network.hidden[-1] + late
    head = Head(nets, width, network.head, generator)
    widths = [*getattr(trunk, "active_widths", []), *head.active_widths]
    if film is not None and not widths:
        raise InvalidInputError("`network` must have a hidden layer in its head, got head=0.")
    net = DialNet(
        trunk,
        head,
        members=members,
        groups=n_groups,
        shared=network.is_shared,
        film=None if film is None else Film(nets, widths, generator, **film),
    )
    if runs > 1:
        copies = {name: p.repeat(runs, *[1] * (p.ndim - 1)) for name, p in net.named_parameters()}
        net.put(copies, runs)
    return net


@contextlib.contextmanager
def _refuse_points(trunk: ModuleStack) -> Iterator[None]:
    """Raise where bfloat16 would be wrong: in strided convolutions of maps of one point.

    On processors, torch's gradients of their weights are left-overs of memory.
    """

    def look(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, nn.Conv2d)
        wide, strided = max(layer.kernel_size) > 1, max(layer.stride) > 1
        if wide and strided and min(inputs[0].shape[-2:]) == 1:
            raise InvalidInputError(
                "`precision` must be 'float32' for pictures so small that a strided convolution "
                f"sees a single point, got 'bfloat16' with {layer}."
            )

    layers = [part for part in trunk.nets[0].modules() if isinstance(part, nn.Conv2d)]
    hooks = [layer.register_forward_pre_hook(look) for layer in layers if trunk.reduced]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


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


def score_dial(net: DialNet, held: Held, by: str = "dial") -> dict[str, float]:
    """Score of a net's dial on validation rows."""
    return dial_figures(score_rows(net, held.rows, held.codes, world=held.world), held, by)


def dial_figures(logits: NDArray[Any], held: Held, by: str = "dial") -> dict[str, float]:
    """Score of the validation rows' frontier, and what the dial looks like on them.

    "hypervolume" is the paper's: 50 tolerances, reference (0, 1). It doesn't notice a net that is
    less accurate at loose tolerances than at strict ones; "dial", the area under the accuracy that
    the dial delivers at tolerances from 0 to 1, is the same where accuracy rises with the gap.
    """
    codes, positive = held.codes, held.positive
    names = tuple(range(held.n_groups))
    try:
        frontier = sweep_codes(logits, codes, positive, held.criterion, names, min_count=1)
    except InvalidInputError:  # too few rows for a frontier: accuracy alone
        accuracy = float(((logits > 0) == positive).mean())
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
    """Rows between 0 and the fairest thresholds, and what they are worth: eq:acc_dep at delta = 1.

    By thm:threshold_shift_error, for rules of the form eq:f_thm, of which the path's are
    (cor:applicability), that is what the strictest position of the dial costs.
    """
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


def prepare(
    network: Any, data: TrainingRows, criterion: Criterion, encoder: Any = None
) -> Prepared:
    """Rows as inputs of a network; the encoder is fitted on the training rows, or given."""
    network.check()
    device = find_device(network.device)
    if encoder is None:
        encoder = fit_encoder(network.encoder, data.X, data.train)
    if isinstance(data.X, Pictures) and encoder is None and network.trunk is None:
        raise InvalidInputError(
            "`network` must have a `trunk` for pictures, such as ResNet18, or an `encoder`, such "
            "as ResNetEncoder, got neither."
        )
    return Prepared(data, criterion, encoder, as_rows(data.X, encoder, device), device)


def fit_network(
    network: Any,
    prepared: Prepared,
    recipe: Recipe,
    *,
    seed: int,
    start: DialNet | None = None,
    checkpoint: Any = None,
) -> Fitted:
    """Train a network on the training rows, with early stopping on the validation rows.

    With a process group, all its processes train together and must call this with the same rows.

    Parameters
    ----------
    network : Network
        Settings.
    prepared : Prepared
        Rows, labels, groups.
    recipe : Recipe
        The method.
    seed : int
        Of initial weights and batch order: shared between methods.
    start : DialNet, optional
        Go on from this network.
    checkpoint : path, optional
        Folder in which the state is kept.
    """
    data, rows, device = prepared.data, prepared.rows, prepared.device
    learned = data.positive if recipe.targets is None else recipe.targets
    y = torch.as_tensor(learned, dtype=torch.float32, device=device)
    parts = prepared.parts
    one_thread = few_threads(network.trunk is None)
    with torch.random.fork_rng(devices=[]), one_thread, joined() as world:
        torch.manual_seed(seed)
        sample = rows.take(torch.as_tensor(data.train[:2]))
        net = build(
            network,
            sample,
            data.n_groups,
            seed,
            runs=recipe.runs,
            film=recipe.film,
            embeddings=are_embeddings(data.X, prepared.encoder, sample),
        ).to(device)
        if start is not None:
            try:
                net.load_state_dict(start.state_dict())
            except RuntimeError as error:
                raise InvalidInputError(
                    "`warm_start` must be False where the network or the features are not those "
                    "of the last fit."
                ) from error
        batches = PairedBatches(
            rows,
            y,
            parts,
            size=network.batch_size,
            seed=seed + 1,
            epoch=network.epoch,
            world=world,
        )
        if network.epoch == "long":  # few rows: epochs, patience and averages count in steps
            batches.steps = max(batches.steps, LEAST_STEPS)
        _refuse_wrapped(world, net)
        _refuse_differences(world, _told_of_rows(data, seed, net))
        world.spread(net.state_dict().values())  # a trunk may have been drawn in each process
        key = _key(network, prepared, seed, recipe.told, net)
        _refuse_differences(world, {"`X` or the parameters": key})
        if world.rank:  # dropout: not the main process's draws
            torch.manual_seed(seed + world.rank)
        step = recipe.make_step(net, prepared.shares, batches.steps)
        step.world = world
        held = replace(prepared.held, world=world)

        def score(net: DialNet) -> dict[str, Any]:
            return recipe.score(net, held) if len(held.rows) else {}

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
            if network.verbose and world.is_main
            else None,
        )
    return Fitted(net.eval(), history_frame(state), state.best_epoch, state.interrupted)


def history_frame(state: Progress) -> pd.DataFrame:
    """Figures by epoch; by run and epoch where there are several runs."""
    if state.runs == 1:
        return pd.DataFrame(state.history).set_index("epoch")
    lines = [
        {k: v[i] if isinstance(v, list) else v for k, v in record.items()}
        for record in state.history
        for i in range(len(record["run"]))
    ]
    return pd.DataFrame(lines).set_index(["run", "epoch"]).sort_index()


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


class Part:
    """Some rows of others, by position."""

    def __init__(self, rows: Rows, places: Indices) -> None:
        self._rows, self._places = rows, torch.as_tensor(places)

    def __len__(self) -> int:
        return len(self._places)

    def take(self, index: Tensor) -> Tensor:
        """(b, ...) the rows at these positions."""
        return self._rows.take(self._places[index])


def _refuse_wrapped(world: World, net: DialNet) -> None:
    """Raise for parts whose gradients or batch moments this library can't share out."""
    for part in net.modules() if world.size > 1 else ():
        if isinstance(part, (nn.parallel.DistributedDataParallel, torch.jit.ScriptModule)):
            raise InvalidInputError(
                f"`trunk` must be a plain torch Module with a process group, got a "
                f"{type(part).__name__}: the library shares the work out itself."
            )


def _told_of_rows(data: TrainingRows, seed: int, net: DialNet) -> dict[str, Any]:
    """What all processes must have alike before they can exchange anything."""
    return {
        "a number of rows": len(data.positive),
        "`y`": hashlib.sha256(data.positive.tobytes()).hexdigest(),
        "`sensitive_features`": hashlib.sha256(data.codes.tobytes()).hexdigest(),
        "`random_state`": seed,
        "shape of the network": {name: tuple(p.shape) for name, p in net.state_dict().items()},
    }


def _refuse_differences(world: World, told: dict[str, Any]) -> None:
    """Raise in all processes where they were not given the same."""
    of_all = world.collect(told)
    for name in told:
        if any(other[name] != of_all[0][name] for other in of_all):
            raise InvalidInputError(
                f"{name} must be the same in every process, got others in some: each process is "
                "given all rows, and takes its own part of every batch."
            )


def _key(network: Any, prepared: Prepared, seed: int, told: str, net: DialNet) -> str:
    """What makes a run different from others."""
    data, rows = prepared.data, prepared.rows
    quiet = ("verbose", "callbacks", "checkpoint", "trunk", "encoder", "device")
    params = {k: v for k, v in network.get_params(deep=False).items() if k not in quiet}
    params["dropout"] = getattr(net.trunk, "dropout", 0.0)  # "auto" depends on the encoder
    digest = hashlib.sha256()
    for part in (data.positive, data.codes, data.train, data.validation):
        digest.update(np.ascontiguousarray(part).tobytes())
    if isinstance(rows, TensorRows):
        digest.update(rows.features.cpu().numpy().tobytes())
    elif isinstance(rows, PictureRows):
        pictures = rows.pictures
        digest.update(repr((pictures.places_key(), pictures.mean, pictures.std)).encode())
    else:  # a torch Dataset: reading all of it would take long
        places = torch.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).long()
        digest.update(rows.take(places).cpu().numpy().tobytes())
    digest.update(repr(net).encode())
    for weights in net.state_dict().values():  # where it starts: trunk, seed, warm start
        digest.update(weights.cpu().numpy().tobytes())
    figures = [__version__, params, prepared.criterion.name, seed, told]
    return digest.hexdigest()[:16] + json.dumps(figures, default=str)
