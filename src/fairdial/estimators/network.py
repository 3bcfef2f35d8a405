"""Training a network for an estimator: validation rows, seeds, checkpoints, learned attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.utils import check_random_state

from fairdial._arrays import Floats, Indices, Mask
from fairdial.core.problem import Problem
from fairdial.errors import (
    InterruptedWarning,
    InvalidInputError,
    TrainingWarning,
    require_torch,
    warn,
)
from fairdial.estimators.rows import Rows, hold_out
from fairdial.nn.monitor import ValidationRows, findings
from fairdial.nn.network import Network
from fairdial.nn.schedules import check_schedules

if TYPE_CHECKING:
    from fairdial.estimators.base import DialClassifier
    from fairdial.nn.data import TrainingData
    from fairdial.nn.fit import Fitted
    from fairdial.nn.nets import DialNet
    from fairdial.nn.scorer import NetScorer
    from fairdial.nn.steps import Step

    MakeStep = Callable[[DialNet, Floats, int], Step]


def chosen_network(network: Network | None, default: Network) -> Network:
    """Return the network that an estimator was given, or its default."""
    if network is None:
        return default
    if not isinstance(network, Network):
        raise InvalidInputError("network", "be a Network or None", given=type(network).__name__)
    return network


def prepare_data(model: DialClassifier, network: Network, rows: Rows) -> tuple[TrainingData, int]:
    """Return the rows of a fit as a network's training data, and the seed."""
    require_torch()
    from fairdial.datasets.pictures import Pictures
    from fairdial.nn.data import (
        InputEncoder,
        TrainingData,
        find_device,
        fit_encoder,
        may_be_embeddings,
    )
    from fairdial.nn.distributed import process_rank

    if issparse(rows.X):
        raise InvalidInputError(
            "X", "be dense", given="a sparse matrix", hint="Networks don't support sparse input."
        )
    resumes = _continues(model)
    for setting, is_set in (
        ("`checkpoint`", network.checkpoint is not None),
        ("`warm_start`", resumes),
        ("a process group", process_rank().size > 1),
    ):
        if is_set and not isinstance(model.random_state, Integral):
            raise InvalidInputError(
                "random_state",
                f"be a whole number with {setting}, so that the same rows are held out each time",
                given=repr(model.random_state),
            )
    network.check()
    rng = check_random_state(model.random_state)
    seed = int(rng.randint(2**31 - 1))
    if np.ndim(network.validation) == 0:
        held = hold_out(rows.cells[rows.train], float(network.validation), rng)
    else:
        held = np.flatnonzero(_check_mask(network.validation, len(rows.codes))[rows.train])
        _check_every_group(rows, held)
    if resumes and model.trained_groups_ != rows.groups:
        raise InvalidInputError(
            "sensitive_features",
            f"hold the groups of the last fit, {model.trained_groups_}, with `warm_start=True`",
            given=rows.groups,
        )
    train, device = np.delete(rows.train, held), find_device(network.device)
    encoder = model.encoder_ if resumes else fit_encoder(network.encoder, rows.X, train)
    if isinstance(rows.X, Pictures) and encoder is None and network.trunk is None:
        raise InvalidInputError(
            "network",
            "have a `trunk` for pictures, such as ResNet18, or an `encoder`, such as ResNetEncoder",
            given="neither",
        )
    encode = InputEncoder(encoder, device)
    inputs = encode(rows.X)
    data = TrainingData(
        inputs=inputs,
        y=rows.y if rows.classes is None else rows.classes,
        codes=rows.codes,
        n_groups=len(rows.groups),
        train=train,
        validation=rows.train[held],
        criterion=rows.criterion,
        encode=encode,
        unencoded=may_be_embeddings(rows.X, encoder, inputs),
        strata=rows.strata,
        weights=rows.weights,
        n_classes=rows.n_classes,
    )
    return data, seed


def check_several_classes(network: Network, n_classes: int) -> None:
    """Raise for settings of a network that need two classes, if there are more."""
    if n_classes == 2:
        return
    for name, allowed in (("gamma", 0.0), ("score", "dial")):
        given = getattr(network, name)
        if given != allowed:
            raise InvalidInputError(
                name, f"be {allowed!r} with more than two classes", given=repr(given)
            )


def _check_mask(validation: Any, n_rows: int) -> Mask:
    """Return the mask of validation rows, checked."""
    mask = np.asarray(validation)
    if mask.shape != (n_rows,) or mask.dtype != bool:
        raise InvalidInputError(
            "validation",
            f"be a share, or true or false for each of the {n_rows} rows",
            given=f"shape {mask.shape} of {mask.dtype}",
        )
    return mask


def _check_every_group(rows: Rows, held: Indices) -> None:
    """Raise if validation rows or training rows lack a group."""
    for places, allowed in (
        (rows.train[held], "name rows of every group"),
        (np.delete(rows.train, held), "leave training rows of every group"),
    ):
        there = np.bincount(rows.codes[places], minlength=len(rows.groups)) > 0
        missing = [repr(name) for name, some in zip(rows.groups, there, strict=True) if not some]
        if missing:
            raise InvalidInputError(
                "validation",
                allowed,
                given=f"none of {', '.join(missing)}",
                hint="Rows that are held out for calibration are not counted.",
            )


class Trained(NamedTuple):
    """A trained network: its scorer and its training history."""

    scorer: NetScorer
    net: DialNet
    history: pd.DataFrame
    best_epoch: int
    validation: Indices  # rows used for early stopping


def part_seed(seed: int, part: int) -> int:
    """Return the seed of one of several networks; the first has the seed itself.

    Examples
    --------
    >>> from fairdial.estimators.network import part_seed
    >>> part_seed(7, 0), part_seed(7, 1) == part_seed(7, 2)
    (7, False)
    """
    if part == 0:
        return seed
    return int(np.random.SeedSequence([seed, part]).generate_state(1)[0] >> 1)


def train_network(
    model: DialClassifier,
    network: Network,
    rows: Rows,
    make_step: MakeStep,
    *,
    part: int = 0,
    fold: int = 0,
) -> Trained:
    """Train one network on the training rows of a fit.

    Parameters
    ----------
    model : DialClassifier
        The estimator; its seed and criterion are used.
    network : Network
        Settings.
    rows : Rows
        Rows of the fit.
    make_step : callable
        ``make_step(net, shares, steps_per_epoch)`` is the method.
    part, fold : int
        Which of several networks, each with its own weights and batches, and which fold. All but
        the first have their own folder for checkpoints.
    """
    data, seed = prepare_data(model, network, rows)
    from fairdial.nn.class_selection import score_classes
    from fairdial.nn.fit import Method, fit_network
    from fairdial.nn.scorer import NetScorer
    from fairdial.nn.selection import score_dial

    checkpoint = None
    if network.checkpoint is not None:
        places = [f"{what}-{n}" for what, n in (("fold", fold), ("part", part)) if n]
        checkpoint = Path(network.checkpoint, *places)
    fitted = fit_network(
        network,
        data,
        Method(
            make_step,
            partial(score_dial, by=network.score) if data.n_classes == 2 else score_classes,
            description=describe(model),
            schedules=check_schedules(getattr(model, "schedules", None)),
        ),
        seed=part_seed(seed, part),
        start=model.net_ if _continues(model) else None,
        checkpoint=checkpoint,
    )
    report_interruption(network, fitted)
    report_training(model, network, data, fitted.history, fitted.best_epoch[0])
    scorer = NetScorer(fitted.net, data.encode)
    return Trained(scorer, fitted.net, fitted.history, fitted.best_epoch[0], data.validation)


def fit_scorer(model: DialClassifier, network: Network, rows: Rows, make_step: MakeStep) -> None:
    """Train one network and set the estimator's learned attributes."""
    trained = train_network(model, network, rows, make_step)
    model.scorer_, model.net_ = trained.scorer, trained.net
    model.encoder_ = trained.scorer.encode.encoder
    model.history_, model.best_epoch_ = trained.history, trained.best_epoch
    model.validation_rows_ = trained.validation
    model.trained_groups_ = rows.groups


def report_interruption(network: Network, fitted: Fitted) -> None:
    """Warn that training was interrupted, after calling callbacks, which may raise instead."""
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


def report_training(
    model: DialClassifier,
    network: Network,
    data: TrainingData,
    history: pd.DataFrame,
    best_epoch: int | list[int],
) -> None:
    """Warn of what the training monitor finds."""
    if len(data.validation) == 0:
        return
    weights = data.weights_of(data.validation)
    weights = np.ones(len(data.validation)) if weights is None else weights
    shares = np.bincount(np.asarray(data.y, np.int64)[data.validation], weights)
    equivalent = float(weights.sum() ** 2 / np.square(weights).sum())  # Kish's sample size
    rows = ValidationRows(equivalent, 1.0 - float(shares.max() / shares.sum()))
    settings = network.get_params(deep=False) | model.get_params(deep=False)
    for message in findings(history, best_epoch, settings, rows):
        warn(message, TrainingWarning)


def _continues(model: DialClassifier) -> bool:
    """Return whether a fit starts from the weights of the last one."""
    return bool(getattr(model, "warm_start", False)) and hasattr(model, "net_")


def describe(model: DialClassifier) -> str:
    """Return the method's own settings, without schedules, the network, the seed and the dial."""
    others = {
        "schedules",
        "network",
        "estimator",
        "random_state",
        "tolerance",
        "recalibrate",
        "min_count",
    }
    others |= {field.name for field in fields(Problem)} - {"criterion"}
    params = model.get_params(deep=False)
    return type(model).__name__ + repr(
        sorted((k, str(v)) for k, v in params.items() if k not in others)
    )
