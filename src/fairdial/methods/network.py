"""The network that every trained method shares: what is trained, and how. Needs no torch itself."""

from __future__ import annotations

import importlib
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from fairdial._validation import check_choice, check_count, check_fraction
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import (
    InterruptedWarning,
    InvalidInputError,
    MissingExtraError,
    say_install,
    warn,
)
from fairdial.methods.rows import FitRows, Rows, hold_out

if TYPE_CHECKING:
    from types import ModuleType

    from fairdial.methods.base import DialClassifier


class Network(BaseEstimator):  # type: ignore[misc]
    """Settings of a network: trunk and head, in an ensemble of members.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the trunk's layers (g in the paper).
    head : int
        Width of the head's hidden layer (z in the paper); 0 is a linear head.
    trunk : torch Module or callable, optional
        A module of your own instead of the layers: rows to features. A module is copied for every
        net, with its weights; a callable is called for each.
    shared : bool, optional
        Whether one trunk and head serve all groups and see the group as an input; else each group
        has its own, as in the paper. By default shared, but separate for a ``trunk`` of your own.
    group_input : {"trunk", "head", "none"}
        Where a shared network sees the group: from the first layer on, in the head alone, or
        nowhere; then scores are blind to the group, and thresholds alone tell groups apart.
    norm, bare : bool
        Layer normalisation after hidden layers; no activation after the trunk's last layer.
    dropout : "auto" or float
        Share of hidden units dropped while training, at least 0 and below 1. "auto" is .5 for
        embeddings and 0 otherwise. Embeddings are inputs of 256 numbers or more a row that were
        given as numbers, or that an encoder made of pictures; not what :class:`TableEncoder` or
        another encoder makes of a narrower table. A ``trunk`` of your own has none.
    members : int
        Networks that are trained together and whose logits are averaged.
    gamma : float
        Focusing exponent of the focal loss; 0 is cross-entropy.
    learning_rate : float
        Of Adam.
    weight_decay : float
        Of the head.
    batch_size : int
        Rows of each group in a batch.
    epochs, patience : int
        At most so many epochs; stop after so many without a better score on validation rows (None:
        never).
    score : {"dial", "hypervolume"}
        What chooses the epoch on validation rows: the area under the accuracy that the dial
        delivers from tolerance 0 to 1; or the paper's hypervolume.
    epoch : {"long", "short"}
        An epoch is one pass over the largest or over the smallest group.
    average : float or None
        Keep the bias-corrected moving average of the weights over about so many epochs.
    validation : float or array of bool
        Share of the training rows that early stopping looks at; or which of the rows given to
        ``fit`` those are: some of every group, but not all of them.
    encoder : "auto", None or Encoder
        Turns tables into features, fitted on training rows; "auto" is :class:`TableEncoder` for
        tables and nothing for tensors. Tables of 256 columns or more that are all numbers, without
        booleans, are taken for embeddings and are only scaled by "auto", missing ones filled with
        means and marked. None: the rows are numbers already.
    precision : {"float32", "bfloat16"}
        Arithmetic of a ``trunk`` of your own while it is trained: bfloat16 is faster where the
        processor has instructions for it (a ResNet-18 takes .6 of the time), and less exact.
        Weights, head, losses and all scores keep their precision.
    device : str
        "auto", "cpu", "cuda", ...
    verbose : bool
        Show a progress bar.
    callbacks : list, optional
        Objects with ``on_epoch_end(epoch, record, net)``; returning True ends the training. One
        with ``on_interrupt()`` is told of an interrupt (Ctrl-C), before the best weights so far are
        kept; it may raise instead.
    checkpoint : path, optional
        Folder in which the state is kept: a run that was killed goes on where it was. Of several
        networks (``cv``, a list), each has a place of its own in it.

    Examples
    --------
    >>> from fairdial import Network
    >>> Network(members=1, hidden=(128, 64)).members
    1
    """

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (64, 32),
        head: int = 32,
        trunk: Any = None,
        shared: bool | None = None,
        group_input: str = "trunk",
        norm: bool = False,
        bare: bool = False,
        dropout: float | str = "auto",
        members: int = 3,
        gamma: float = 0.0,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        batch_size: int = 256,
        epochs: int = 40,
        patience: int | None = 8,
        score: str = "dial",
        epoch: str = "long",
        average: float | None = 3.0,
        validation: Any = 0.1,
        encoder: Any = "auto",
        precision: str = "float32",
        device: str = "auto",
        verbose: bool = False,
        callbacks: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.hidden = hidden
        self.head = head
        self.trunk = trunk
        self.shared = shared
        self.group_input = group_input
        self.norm = norm
        self.bare = bare
        self.dropout = dropout
        self.members = members
        self.gamma = gamma
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.epochs = epochs
        self.patience = patience
        self.score = score
        self.epoch = epoch
        self.average = average
        self.validation = validation
        self.encoder = encoder
        self.precision = precision
        self.device = device
        self.verbose = verbose
        self.callbacks = callbacks
        self.checkpoint = checkpoint

    @property
    def is_shared(self) -> bool:
        """Whether one trunk and head serve all groups."""
        return self.trunk is None if self.shared is None else bool(self.shared)

    def check(self) -> None:
        """Raise where a setting is not what it must be."""
        for name, least in (("members", 1), ("batch_size", 1), ("epochs", 1), ("head", 0)):
            check_count(getattr(self, name), name, least=least)
        if self.patience is not None:
            check_count(self.patience, "patience")
        if self.trunk is None and (
            not isinstance(self.hidden, (tuple, list))
            or not self.hidden
            or not all(isinstance(w, Integral) and w > 0 for w in self.hidden)
        ):
            raise InvalidInputError(
                f"`hidden` must be a tuple of positive widths, got {self.hidden!r}."
            )
        check_choice(self.score, "score", ("dial", "hypervolume"))
        check_choice(self.group_input, "group_input", ("trunk", "head", "none"))
        if self.group_input != "trunk" and not self.is_shared:
            raise InvalidInputError(
                f"`group_input` must be 'trunk' where each group has a network of its own, got "
                f"{self.group_input!r}."
            )
        check_choice(self.epoch, "epoch", ("long", "short"))
        check_choice(self.precision, "precision", ("float32", "bfloat16"))
        if self.precision != "float32" and self.trunk is None:
            raise InvalidInputError(
                f"`precision` must be 'float32' without a `trunk` of your own, got "
                f"{self.precision!r}."
            )
        if np.ndim(self.validation) == 0:
            check_fraction(self.validation, "validation")
        for name in ("learning_rate", "gamma", "weight_decay", "dropout"):
            value = getattr(self, name)
            share, positive = name == "dropout", name == "learning_rate"
            if share and isinstance(value, str) and value == "auto":
                continue
            top = 1.0 if share else float("inf")
            good = isinstance(value, Real) and 0 <= float(value) < top
            if not good or (positive and value == 0):
                allowed = "'auto', or at least 0 and below 1" if share else "at least 0"
                raise InvalidInputError(
                    f"`{name}` must be {'positive' if positive else allowed}, got {value!r}."
                )
        if self.average is not None and not (
            isinstance(self.average, Real) and 0 < float(self.average) < float("inf")
        ):
            raise InvalidInputError(f"`average` must be positive or None, got {self.average!r}.")
        if self.trunk is not None and not callable(self.trunk):
            raise InvalidInputError(
                f"`trunk` must be a torch Module or make one, got {self.trunk!r}."
            )
        if self.callbacks is not None and not isinstance(self.callbacks, (list, tuple)):
            raise InvalidInputError(f"`callbacks` must be a list, got {self.callbacks!r}.")
        if not all(hasattr(call, "on_epoch_end") for call in self.callbacks or ()):
            raise InvalidInputError("`callbacks` must hold objects with on_epoch_end, got others.")
        if self.is_shared and self.trunk is not None:
            raise InvalidInputError("`shared` must be False with a `trunk` of your own, got True.")


def chosen_network(network: Any, default: Network) -> Network:
    """The network that an estimator was given, or its default."""
    if network is None:
        return default
    if not isinstance(network, Network):
        raise InvalidInputError(
            f"`network` must be a Network or None, got {type(network).__name__}."
        )
    return network


def prepare_fit(model: DialClassifier, network: Network, rows: FitRows) -> tuple[Any, int]:
    """Rows of a fit as a network's inputs, with validation rows held out; and the seed."""
    if issparse(rows.X):
        raise InvalidInputError("`X` must be dense: sparse input is not supported by networks.")
    fitting = torch_module("fitting")
    again = _goes_on(model)
    if network.checkpoint is not None:
        need("safetensors")
    several = torch_module("distributed").processes().size > 1
    for wish, asked, where in (
        ("`checkpoint`", network.checkpoint is not None, "held out again"),
        ("`warm_start`", again, "held out again"),
        ("a process group", several, "held out in every process"),
    ):
        if asked and not isinstance(model.random_state, Integral):
            raise InvalidInputError(
                f"`random_state` must be a whole number with {wish}, so that the same rows are "
                f"{where}, got {model.random_state!r}."
            )
    rng = check_random_state(model.random_state)
    seed = int(rng.randint(2**31 - 1))
    network.check()
    if np.ndim(network.validation) == 0:
        held = hold_out(rows.cells[rows.train], network.validation, rng)
    else:
        held = np.flatnonzero(_marked(network.validation, len(rows.codes))[rows.train])
        _check_parted(rows, held)
    data = fitting.TrainingRows(
        X=rows.X,
        positive=rows.positive,
        codes=rows.codes,
        train=np.delete(rows.train, held),
        validation=rows.train[held],
        n_groups=len(rows.names),
    )
    if again and model.trained_groups_ != rows.names:
        raise InvalidInputError(
            f"`sensitive_features` must hold the groups of the last fit where warm_start is set, "
            f"{model.trained_groups_}, got {rows.names}."
        )
    encoder = model.encoder_ if again else None
    return fitting.prepare(network, data, find_criterion(model.criterion), encoder), seed


def _marked(validation: Any, n_rows: int) -> NDArray[np.bool_]:
    """Which rows early stopping looks at, where they are named."""
    mask = np.asarray(validation)
    if mask.shape != (n_rows,) or mask.dtype != bool:
        raise InvalidInputError(
            f"`validation` must be a share, or true or false for each of the {n_rows} rows, got "
            f"shape {mask.shape} of {mask.dtype}."
        )
    return mask


def _check_parted(rows: FitRows, held: Rows) -> None:
    """Of every group, some training rows are named for validation, and some are not."""
    for places, must in (
        (rows.train[held], "name rows of every group"),
        (np.delete(rows.train, held), "leave training rows of every group"),
    ):
        there = np.bincount(rows.codes[places], minlength=len(rows.names)) > 0
        missing = [repr(name) for name, some in zip(rows.names, there, strict=True) if not some]
        if missing:
            raise InvalidInputError(
                f"`validation` must {must}, got none of {', '.join(missing)} (rows that are held "
                "out for calibration don't count)."
            )


class Trained(NamedTuple):
    """A network that was trained: what scores, and how training went."""

    scorer: Any
    net: Any
    history: pd.DataFrame
    best_epoch: int
    validation: Rows  # rows that early stopping looked at


def part_seed(seed: int, part: int) -> int:
    """The seed of one of several networks; the first has the seed itself.

    Examples
    --------
    >>> from fairdial.methods.network import part_seed
    >>> part_seed(7, 0), part_seed(7, 1) == part_seed(7, 2)
    (7, False)
    """
    if part == 0:
        return seed
    return int(np.random.SeedSequence([seed, part]).generate_state(1)[0] >> 1)


def train_network(
    model: DialClassifier,
    network: Network,
    rows: FitRows,
    make_step: Any,
    targets: Any = None,
    *,
    part: int = 0,
    fold: int = 0,
) -> Trained:
    """Train one network on the training rows of a fit.

    ``make_step(net, shares, steps_per_epoch)`` is the method; ``targets`` are probabilities to be
    learned instead of labels; ``part`` counts networks that are trained beside each other, each
    with weights and batches of its own, and ``fold`` times that the same one is trained, on other
    rows. Where there are several, all but the first have a folder of their own for checkpoints.
    """
    fitting, scoring = torch_module("fitting"), torch_module("scorer")
    prepared, seed = prepare_fit(model, network, rows)
    checkpoint = network.checkpoint
    if checkpoint is not None:
        places = [f"{what}-{n}" for what, n in (("fold", fold), ("part", part)) if n]
        checkpoint = Path(checkpoint, *places)
    fitted = fitting.fit_network(
        network,
        prepared,
        fitting.Recipe(
            make_step,
            partial(fitting.score_dial, by=network.score),
            told=describe(model),
            targets=targets,
        ),
        seed=part_seed(seed, part),
        start=model.net_ if _goes_on(model) else None,
        checkpoint=checkpoint,
    )
    tell_interruption(network, fitted)
    scorer = scoring.NetScorer(fitted.net, prepared.encode)
    held = prepared.data.validation
    return Trained(scorer, fitted.net, fitted.history, fitted.best_epoch[0], held)


def fit_scorer(
    model: DialClassifier, network: Network, rows: FitRows, make_step: Any, targets: Any = None
) -> None:
    """Train one network, and set what the estimator has learned."""
    trained = train_network(model, network, rows, make_step, targets)
    model.scorer_, model.net_ = trained.scorer, trained.net
    model.encoder_ = trained.scorer.encode.encoder
    model.history_, model.best_epoch_ = trained.history, trained.best_epoch
    model.validation_rows_ = trained.validation
    model.trained_groups_ = rows.names


def tell_interruption(network: Network, fitted: Any) -> None:
    """Say that a training was cut short: to callbacks that ask for it first, which may raise."""
    if not fitted.interrupted:
        return
    for call in network.callbacks or ():
        if hasattr(call, "on_interrupt"):
            call.on_interrupt()
    warn(
        f"training was interrupted after {len(fitted.history)} epochs; the best weights so far "
        "are kept",
        InterruptedWarning,
    )


def _goes_on(model: DialClassifier) -> bool:
    return bool(getattr(model, "warm_start", False)) and hasattr(model, "net_")


def describe(model: DialClassifier) -> str:
    """The method and its own settings, without what others tell: network, seed, the dial."""
    others = ("network", "estimator", "random_state", "tolerance", "recalibrate", "min_count")
    params = model.get_params(deep=False)
    return type(model).__name__ + repr(
        sorted((k, str(v)) for k, v in params.items() if k not in others)
    )


def torch_module(name: str) -> ModuleType:
    """A module of ``fairdial.nn``, or an error that says what to install."""
    return need(f"fairdial.nn.{name}")


def need(name: str) -> ModuleType:
    """A module, or an error that says what to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("torch", "safetensors"):
            raise MissingExtraError(
                f"networks need torch: {say_install('torch')} (or give FairBayes an estimator "
                "of scikit-learn)."
            ) from None
        raise
