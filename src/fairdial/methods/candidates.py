"""The trainings that AutoDial tries: which there are, and which can be trained on some rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fairdial.columns import refuse_infinite
from fairdial.datasets.pictures import Pictures
from fairdial.encoders import WIDE, is_wide
from fairdial.errors import InvalidInputError, MissingExtraError
from fairdial.methods.fairbayes import FairBayes
from fairdial.methods.gfb import GFB
from fairdial.methods.learners import TREES, blend, boosting, logistic, texts_of
from fairdial.methods.network import Network, need
from fairdial.methods.rows import FitRows

NETWORKS = ("network", "gfb")
ORDER_OF_SIMPLICITY = ("logistic", "boosting", "blend", *NETWORKS)  # for ties
ORDER_OF_TRYING = ("boosting", "logistic", "blend", *NETWORKS)  # cheap and promising ones first


def check_names(given: Any) -> list[str]:
    """Names of candidates, each once.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.methods.candidates import check_names
    >>> check_names(np.array(["boosting", "logistic"]))
    ['boosting', 'logistic']
    """
    allowed = ", ".join(map(repr, ORDER_OF_SIMPLICITY))
    names = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(names, (list, tuple)):
        raise InvalidInputError(f"`candidates` must be a list of some of {allowed}, got {given!r}.")
    if not names:
        raise InvalidInputError("`candidates` must hold at least one name, got none.")
    for name in names:
        if not isinstance(name, str) or name not in ORDER_OF_SIMPLICITY:
            raise InvalidInputError(f"`candidates` must hold some of {allowed}, got {name!r}.")
    if len(set(names)) < len(names):
        raise InvalidInputError(f"`candidates` must be different names, got {list(names)}.")
    return list(names)


def refuse_impossible(names: Sequence[str], rows: FitRows) -> None:
    """Raise for candidates that were named and can't be trained, before any is."""
    check_cells(rows)
    if "gfb" in names and len(rows.names) > 2:
        raise InvalidInputError(
            f"`candidates` must not name 'gfb' where there are more than two groups, got "
            f"{len(rows.names)}: GFB takes two, the others any number."
        )
    if set(NETWORKS) & set(names):
        need("torch")


def find_hindrances(rows: FitRows) -> dict[str, str]:
    """Candidates that are not for these rows, in the order of trying, and why."""
    check_cells(rows)
    found, X = dict[str, str](), _as_array(rows.X)
    if not isinstance(X, (pd.DataFrame, np.ndarray)):
        found |= dict.fromkeys(TREES, f"its trees take tables and arrays, got {type(X).__name__}")
    elif is_wide(X):  # trees are slow on embeddings
        told = f"its trees take fewer than {WIDE} columns of numbers, got {X.shape[1]}"
        found |= dict.fromkeys(TREES, told)
    try:
        need("torch")
    except MissingExtraError:
        found |= dict.fromkeys(NETWORKS, "it needs torch")
    if len(rows.names) != 2:
        found.setdefault("gfb", f"it takes two groups, got {len(rows.names)}")
    return found


def _as_array(X: Any) -> Any:
    """Rows to be looked at: lists are seen as arrays, everything else as it is."""
    if not isinstance(X, (list, tuple)):
        return X
    try:
        return np.asarray(X)
    except ValueError:
        raise InvalidInputError("`X` must be a table, got rows of different lengths.") from None


def check_cells(rows: FitRows) -> None:
    """Candidates are for tables, without infinite numbers: some would fail, others learn them."""
    if isinstance(rows.X, Pictures):
        raise InvalidInputError(
            "`X` must be a table for AutoDial, got Pictures: give it features of "
            "ResNetEncoder, or FairBayes a network with a trunk."
        )
    X = _as_array(rows.X)
    if isinstance(X, (pd.DataFrame, np.ndarray)) and X.ndim == 2:
        refuse_infinite(X)


class Deadline:
    """Ends a network's training after the epoch in which the time is over, or by Ctrl-C at all."""

    def __init__(self, end: float) -> None:
        self.end = end  # by time.perf_counter
        self.epoch: int | None = None  # after which it stopped a training

    def on_epoch_end(self, epoch: int, record: dict[str, Any], net: Any) -> bool:  # noqa: ARG002
        """Whether to stop."""
        if time.perf_counter() < self.end:
            return False
        self.epoch = epoch
        return True

    def on_interrupt(self) -> None:
        """A half-trained network is nothing to compare: whoever interrupts it wants all to end."""
        raise KeyboardInterrupt


def make_candidate(
    name: str, X: Any, seed: int, *, deadline: Deadline | None = None, **common: Any
) -> FairBayes | GFB:
    """A candidate for these rows, not trained yet.

    Parameters
    ----------
    name : str
        One of ``ORDER_OF_SIMPLICITY``.
    X : table or array
        The rows, which tell how they are encoded.
    seed : int
        Of what the candidate draws.
    deadline : Deadline, optional
        Stops networks.
    common
        Arguments that both estimators take.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.methods.candidates import make_candidate
    >>> type(make_candidate("logistic", np.zeros((9, 2)), 0, tolerance=0.1)).__name__
    'FairBayes'
    """
    if name in NETWORKS:
        network = Network(callbacks=None if deadline is None else [deadline])
        if name == "gfb":
            return GFB(network=network, **common)
        return FairBayes(network, **common)
    wide = is_wide(_as_array(X))
    if name == "logistic":
        return FairBayes(logistic(wide=wide), **common)
    if name == "boosting":
        return FairBayes(boosting(texts_of(X), seed), **common)
    return FairBayes(blend(texts_of(X), seed, wide=wide), **common)
