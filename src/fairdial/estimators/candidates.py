"""AutoDial's candidates: which methods can be trained on which rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from fairdial.datasets.pictures import Pictures
from fairdial.errors import InvalidInputError, MissingExtraError, require_extra, require_torch
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.learners import text_columns
from fairdial.estimators.rows import Rows
from fairdial.registry import Method, candidates  # points up: AutoDial is a method, too
from fairdial.tables.columns import refuse_infinite
from fairdial.tables.encoder import WIDE, is_wide

VARIANTS: dict[str, dict[str, Any]] = {  # other settings of trees, by the name of the candidate
    f"boosting ({', '.join(f'{k}={v}' for k, v in settings.items())})": settings
    for settings in (
        {"max_leaf_nodes": 31},
        {"learning_rate": 0.03, "max_iter": 800},
        {"max_leaf_nodes": 7, "learning_rate": 0.1},
        {"max_features": 0.5},
        {"max_leaf_nodes": 31, "min_samples_leaf": 100},
        {"l2_regularization": 10.0},
    )
}


def add_variants(names: Sequence[str]) -> list[str]:
    """Return candidates with those of other settings after the one that they vary.

    Examples
    --------
    >>> from fairdial.estimators.candidates import add_variants
    >>> add_variants(["boosting", "logistic"])[:2]
    ['boosting', 'boosting (max_leaf_nodes=31)']
    """
    return [
        variant
        for name in names
        for variant in (name, *(v for v in VARIANTS if v.partition(" (")[0] == name))
    ]


def method_of_variant(name: str) -> Method:
    """Return the method of a candidate, whatever its settings."""
    return candidates()[name.partition(" (")[0]]


def installed_libraries() -> list[str]:
    """Return the candidates whose library is installed."""
    libraries = [(name, method.library) for name, method in candidates().items()]
    return [name for name, library in libraries if library is not None and find_spec(library)]


def check_names(given: Any) -> list[str]:
    """Return the names of candidates, each once.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.estimators.candidates import check_names
    >>> check_names(np.array(["boosting", "logistic"]))
    ['boosting', 'logistic']
    """
    allowed = f"be a list of some of {', '.join(map(repr, candidates()))}"
    names = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(names, (list, tuple)):
        raise InvalidInputError("candidates", allowed, given=repr(given))
    if not names:
        raise InvalidInputError("candidates", "hold at least one name", given="none")
    for name in names:
        if not isinstance(name, str) or name not in candidates():
            raise InvalidInputError("candidates", allowed, given=repr(name))
    if len(set(names)) < len(names):
        raise InvalidInputError("candidates", "be different names", given=list(names))
    return list(names)


def check_possible(names: Sequence[str], rows: Rows) -> None:
    """Raise if a candidate that was named can't be trained, before any is."""
    check_cells(rows)
    for name in names:
        method = candidates()[name]
        if method.needs_torch:
            require_torch()
        if method.library is not None:
            require_extra(method.library, f"the candidate {name!r}", method.library)
        if method.refuses(rows.criterion):
            raise InvalidInputError(
                "candidates",
                f"leave out {name!r}, which can't be trained for this criterion",
                given=rows.criterion.name,
            )


def default_names() -> list[str]:
    """Return the candidates that are tried by default: the same, whatever is installed."""
    return [name for name, method in candidates().items() if method.library is None]


def find_obstacles(rows: Rows) -> dict[str, str]:
    """Return the candidates that can't be trained on these rows, and why."""
    check_cells(rows)
    reasons = {name: _obstacle(candidates()[name], rows) for name in default_names()}
    return {name: reason for name, reason in reasons.items() if reason}


def _obstacle(method: Method, rows: Rows) -> str:
    X = _as_array(rows.X)
    if method.trees and not isinstance(X, (pd.DataFrame, np.ndarray)):
        return f"its trees take tables and arrays, got {type(X).__name__}"
    if method.trees and is_wide(X):  # trees are slow on embeddings
        return f"its trees take fewer than {WIDE} columns of numbers, got {X.shape[1]}"
    if method.needs_torch:
        try:
            require_torch()
        except MissingExtraError:
            return "it needs torch"
    if method.equalizes and len(rows.groups) == 1:
        return "it compares groups, got one"
    if method.refuses(rows.criterion):
        return f"it can't be trained for {rows.criterion.name}"
    return ""


def _as_array(X: Any) -> Any:
    """Return lists as arrays, and everything else as it is."""
    if not isinstance(X, (list, tuple)):
        return X
    try:
        return np.asarray(X)
    except ValueError:
        raise InvalidInputError("X", "be a table", given="rows of different lengths") from None


def check_cells(rows: Rows) -> None:
    """Raise unless rows are a table without infinite numbers, which some candidates accept."""
    if isinstance(rows.X, Pictures):
        raise InvalidInputError(
            "X",
            "be a table for AutoDial",
            given="Pictures",
            hint="Pass features of ResNetEncoder, or use FairBayes and a network with a trunk.",
        )
    X = _as_array(rows.X)
    if isinstance(X, (pd.DataFrame, np.ndarray)) and X.ndim == 2:
        refuse_infinite(X)


class Deadline:
    """Ends a network's training after the epoch in which time runs out; Ctrl-C ends everything."""

    def __init__(self, end: float) -> None:
        self.end = end  # by time.perf_counter
        self.epoch: int | None = None  # after which it stopped a training

    def on_epoch_end(self, epoch: int, record: dict[str, Any], net: object) -> bool:  # noqa: ARG002
        """Return whether to stop."""
        if time.perf_counter() < self.end:
            return False
        self.epoch = epoch
        return True

    def on_interrupt(self) -> None:
        """Pass the interrupt on: a half-trained network can't be compared with others."""
        raise KeyboardInterrupt


def make_candidate(
    name: str, X: Any, seed: int, *, deadline: Deadline | None = None, **common: Any
) -> DialClassifier:
    """Return a candidate for these rows, not trained yet.

    Parameters
    ----------
    name : str
        Name of a candidate.
    X : table or array
        The rows, which decide how they are encoded.
    seed : int
        Seed of whatever the candidate draws.
    deadline : Deadline, optional
        Stops networks.
    **common
        Arguments of the estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.estimators.candidates import make_candidate
    >>> type(make_candidate("logistic", np.zeros((9, 2)), 0, tolerance=0.1)).__name__
    'FairBayes'
    """
    model = method_of_variant(name).make(
        seed=seed,
        texts=text_columns(X),
        wide=is_wide(_as_array(X)),
        network={} if deadline is None else {"callbacks": [deadline]},
        **common,
    )
    if name in VARIANTS:
        estimator: Any = model.get_params(deep=False)["estimator"]
        trees = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        trees.set_params(**VARIANTS[name])
    return model
