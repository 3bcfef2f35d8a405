"""Network: what is trained, and how. Needs no torch itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from fairdial._arrays import Mask
from fairdial._validation import check_choice, check_count, check_fraction
from fairdial.errors import InvalidInputError
from fairdial.tables.encoder import Encoder

if TYPE_CHECKING:
    from torch import nn

    Trunk = nn.Module | Callable[[], nn.Module]


class Callback(Protocol):
    """Object that is called after every epoch.

    Examples
    --------
    >>> from fairdial import FairBayes, Network
    >>> from fairdial.datasets import make_gaussian
    >>> class Stop:
    ...     def on_epoch_end(self, epoch, record, net):
    ...         return record["loss"] < 10  # True ends training
    >>> rows = make_gaussian(2_000, random_state=0)
    >>> network = Network(members=1, callbacks=[Stop()])
    >>> model = FairBayes(network, recalibrate="group", random_state=0)
    >>> len(model.fit(rows.X, rows.y, sensitive_features=rows.groups).history_)
    1
    """

    def on_epoch_end(self, epoch: int, record: dict[str, Any], net: nn.Module) -> bool | None:
        """Look at the epoch's record; return True to end training."""


class Network(BaseEstimator):  # type: ignore[misc]
    """Settings of a network: trunk and head, in an ensemble of members.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the trunk's layers (g in the paper).
    head : int
        Width of the head's hidden layer (z in the paper); 0 is a linear head.
    trunk : torch Module or callable, optional
        Your own module instead of the layers: rows to features. A module is copied for every net,
        with its weights; a callable is called once for each net.
    shared : bool, optional
        Whether one trunk and head serve all groups and see the group as an input; otherwise each
        group has its own, as in the paper. By default shared, but separate for your own ``trunk``.
    group_input : {"trunk", "head", "none"}
        Where a shared network sees the group: from the first layer on, in the head only, or
        nowhere; with "none", scores are blind to the group and only thresholds depend on it.
    norm, bare : bool
        Layer normalization after hidden layers; no activation after the trunk's last layer.
    dropout : "auto" or float
        Share of hidden units dropped during training, at least 0 and below 1. "auto" is 0.5 for
        embeddings and 0 otherwise. Embeddings are rows of at least 256 numbers that were given as
        numbers or that an encoder made from pictures, not what :class:`TableEncoder` or another
        encoder makes from a narrower table. Your own ``trunk`` gets no dropout.
    members : int
        Networks that are trained together; their logits are averaged.
    gamma : float
        Focusing exponent of the focal loss; 0 is cross-entropy.
    learning_rate : float
        Learning rate of Adam.
    weight_decay : float
        Weight decay of the head.
    batch_size : int
        Rows of each group in a batch.
    epochs, patience : int
        Maximum number of epochs; stop after ``patience`` epochs without a better score on
        validation rows (None: never).
    score : {"dial", "hypervolume"}
        What selects the epoch on validation rows: the area under the accuracy that the dial
        delivers at tolerances from 0 to 1, or the paper's hypervolume.
    epoch : {"long", "short"}
        Whether an epoch is one pass over the largest or over the smallest group.
    average : float or None
        Keep the bias-corrected moving average of the weights over about this many epochs.
    validation : float or array of bool
        Share of the training rows used for early stopping; or a mask of the rows given to ``fit``,
        with some but not all rows of every group.
    encoder : "auto", None or Encoder
        Turns tables into features, fitted on training rows. "auto" is :class:`TableEncoder` for
        tables and nothing for tensors. "auto" takes tables of at least 256 columns that are all
        numbers, without booleans, for embeddings: it only scales them, fills missing values with
        means and marks them. None: the rows are already numeric.
    precision : {"float32", "bfloat16"}
        Arithmetic of your own ``trunk`` during training: bfloat16 is less exact, but faster where
        the processor supports it (a ResNet-18 takes 60% of the time). Weights, head, losses and
        all scores keep their precision.
    device : str
        "auto", "cpu", "cuda", ...
    verbose : bool
        Show a progress bar.
    callbacks : list, optional
        Objects with ``on_epoch_end(epoch, record, net)``; returning True ends training. If one has
        ``on_interrupt()``, it is called on an interrupt (Ctrl-C) before the best weights so far
        are kept; it may raise instead.
    checkpoint : path, optional
        Folder for checkpoints: an interrupted run resumes where it stopped. If there are several
        networks (``cv``, a list), each has its own subfolder.

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
        trunk: Trunk | None = None,
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
        validation: float | Mask = 0.1,
        encoder: Encoder | str | None = "auto",
        precision: str = "float32",
        device: str = "auto",
        verbose: bool = False,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
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
        """Raise if a setting is not allowed."""
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
                "hidden", "be a tuple of positive widths", given=repr(self.hidden)
            )
        check_choice(self.score, "score", ("dial", "hypervolume"))
        check_choice(self.group_input, "group_input", ("trunk", "head", "none"))
        if self.group_input != "trunk" and not self.is_shared:
            raise InvalidInputError(
                "group_input",
                "be 'trunk' where each group has its own network",
                given=repr(self.group_input),
            )
        check_choice(self.epoch, "epoch", ("long", "short"))
        check_choice(self.precision, "precision", ("float32", "bfloat16"))
        if self.precision != "float32" and self.trunk is None:
            raise InvalidInputError(
                "precision", "be 'float32' without your own `trunk`", given=repr(self.precision)
            )
        if np.ndim(self.validation) == 0:
            check_fraction(self.validation, "validation")
        self._check_numbers()
        if self.trunk is not None and not callable(self.trunk):
            raise InvalidInputError(
                "trunk", "be a torch Module or a callable that makes one", given=repr(self.trunk)
            )
        if self.callbacks is not None and not isinstance(self.callbacks, (list, tuple)):
            raise InvalidInputError("callbacks", "be a list", given=repr(self.callbacks))
        if not all(hasattr(call, "on_epoch_end") for call in self.callbacks or ()):
            raise InvalidInputError("callbacks", "hold objects with on_epoch_end")
        if self.is_shared and self.trunk is not None:
            raise InvalidInputError("shared", "be False with your own `trunk`", given="True")

    def _check_numbers(self) -> None:
        for name, allowed, top in (
            ("learning_rate", "be positive", np.inf),
            ("gamma", "be at least 0", np.inf),
            ("weight_decay", "be at least 0", np.inf),
            ("dropout", "be 'auto', or at least 0 and below 1", 1.0),
            ("average", "be positive or None", np.inf),
        ):
            value = getattr(self, name)
            auto = name == "dropout" and isinstance(value, str) and value == "auto"
            if auto or (name == "average" and value is None):
                continue
            least = np.nextafter(0.0, 1.0) if allowed.startswith("be positive") else 0.0
            if not isinstance(value, Real) or not least <= float(value) < top:
                raise InvalidInputError(name, allowed, given=repr(value))
