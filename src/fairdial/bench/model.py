"""Build the rows and the estimator of a trial."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from fairdial.bench.estimators import ESTIMATORS, own_method
from fairdial.bench.sources import SIDE, Parts, data_folder, find_weights, split
from fairdial.bench.store import Config
from fairdial.core.objectives import Costs
from fairdial.datasets import Dataset, Pictures
from fairdial.datasets.picture_cache import cache_folder
from fairdial.datasets.registry import DATASETS
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.learners import SMALL_TREES, boosting, logistic, text_columns
from fairdial.nn.network import Network
from fairdial.paper.family import NetworkFamily
from fairdial.paper.presets import as_tuples, paper_settings, with_values
from fairdial.paper.tarte import TarteEncoder
from fairdial.paper.tarte.files import find_files, read_config
from fairdial.tables.encoder import TableEncoder

if TYPE_CHECKING:
    from fairdial.nn.features import ResNetEncoder

INIT_STEP = 100_003  # between the seeds of a split's initializations
FOLDS = 5  # of cross-fitting
TRAINED = ("none", "layer4", "all")  # layers of ResNet-18
TARTE = "tarte"  # encoder of tables, from files in the data folder
GROUP_COLUMN = "the group"  # added for scorers that see the group
TREES: dict[str, dict[str, Any]] = {"gradient boosting": {}, "small trees": SMALL_TREES}


def parameters(kind: type) -> set[str]:
    """Return the names of a class's constructor arguments."""
    return set(inspect.signature(kind).parameters)


# ---- rows --------------------------------------------------------------------------------------


def read_parts(config: Config) -> Parts:
    """Return the rows of a trial, in the form that its method takes."""
    parts = split(
        config["dataset"],
        config["seed"],
        config["rows"],
        train_rows=config.get("train_rows"),
        evaluate=config.get("evaluate", "test"),
        size=config.get("size", SIDE),
        shares=config.get("split", "paper"),
    )
    if isinstance(parts.fit.X, Pictures):
        trained = config["method"]["trained"]
        if trained == "none":
            return encode_pictures(parts)
        return compute_maps(parts) if trained == "layer4" else parts
    return show_group(parts) if config["method"].get("sees_group") else parts


def show_group(parts: Parts) -> Parts:
    """Add the group as a column, for scorers that only see the table."""

    def show(rows: Dataset) -> Dataset:
        groups = pd.Categorical(rows.groups.astype(str))
        table = pd.DataFrame(rows.X).assign(**{GROUP_COLUMN: groups})
        return Dataset(table, rows.y, rows.groups, name=rows.name)

    return parts._replace(
        fit=show(parts.fit), calibration=show(parts.calibration), test=parts.test.then(show)
    )


def encode_pictures(parts: Parts) -> Parts:
    """Replace pictures by features of a ResNet-18 adapted to the training pictures alone.

    All methods share a split's features through the cache; computing them isn't timed.
    """
    from fairdial.nn.features import ResNetEncoder

    encoder = ResNetEncoder(find_weights())
    encoder.fit(parts.fit.X[np.flatnonzero(~parts.validation)])

    def encode(rows: Dataset) -> Dataset:
        return Dataset(pd.DataFrame(encoder.transform(rows.X)), rows.y, rows.groups, name=rows.name)

    return Parts(
        encode(parts.fit),
        parts.validation,
        encode(parts.calibration),
        parts.test.then(encode),
        key=f"{parts.key}-{encoder.key_[:16]}",
        encoded=True,
    )


def compute_maps(parts: Parts) -> Parts:
    """Fill the cache with the maps that enter the trained layers; computing them isn't timed."""
    encoder = _frozen_layers().fit(parts.fit.X[np.flatnonzero(~parts.validation)])
    for rows in (parts.fit, parts.calibration):
        encoder.transform(rows.X)
    return parts._replace(key=f"{parts.key}-{encoder.key_[:16]}")


def _frozen_layers() -> ResNetEncoder:
    """Return the layers before ResNet-18's last stage."""
    from fairdial.nn.features import ResNetEncoder

    return ResNetEncoder(find_weights(), stages=(3,), maps=True)


# ---- the estimator -----------------------------------------------------------------------------


def make_model(config: Config, parts: Parts) -> DialClassifier:
    """Return the estimator of a trial; methods of a seed share rows, weights and batch order."""
    method = config["method"]
    kind = ESTIMATORS[method["estimator"]]
    accepted = parameters(kind)
    seed = config["seed"] + method["seed_offset"] + INIT_STEP * config.get("init", 0)
    arguments: dict[str, Any] = {}
    own = own_method(method["estimator"])
    if own is not None:
        pass  # it builds its own scorer
    elif method["scorer"] is not None:
        arguments["estimator"] = _scorers(method, seed, parts)
    elif place := next((name for name in ("network", "estimator") if name in accepted), None):
        network = kind()._network() if issubclass(kind, NetworkFamily) else Network()
        if method["settings"] != "default":
            dataset = DATASETS[config["dataset"]].settings_of
            assert dataset is not None  # the plan refuses others
            inputs = _n_inputs(method, parts)
            arguments = paper_settings(
                method["estimator"].lower(), dataset, inputs=inputs, source="release"
            )
            if "tuned" in method:
                arguments = with_values(arguments, method["tuned"])
            network = arguments[place]
        arguments[place] = _prepare(network, method, parts)
    if method.get("calibration") == "crossed":
        arguments["cv"] = FOLDS
        for part in _networks(arguments["estimator"]):  # each fold draws its own validation rows
            part.set_params(validation=float(parts.validation.mean()))
    for name in ("n_settings", "targets"):  # of methods that train or search for each setting
        if name in accepted:
            arguments[name] = config["settings"]
    arguments |= as_tuples(method["arguments"])
    arguments |= {"criterion": config["criterion"], "calibration": None}
    if "objective" in config:
        given = config["objective"]
        arguments["objective"] = given if isinstance(given, str) else Costs(*given)
    if own is None:
        model: DialClassifier = kind(random_state=seed, **arguments)
        return model
    settings = {"validation": parts.validation} | as_tuples(method["network"])
    return own.make(
        seed=seed,
        texts=text_columns(parts.fit.X),
        wide=parts.encoded,
        network=settings if own.needs_torch else None,
        **arguments,
    )


def _networks(estimator: BaseEstimator | list[BaseEstimator]) -> list[Network]:
    parts = estimator if isinstance(estimator, list) else [estimator]
    return [part for part in parts if isinstance(part, Network)]


def _n_inputs(method: dict[str, Any], parts: Parts) -> int | None:
    """Return the number of a network's inputs; None for pictures."""
    if isinstance(parts.fit.X, Pictures):
        return None
    if parts.encoded:
        return int(parts.fit.X.shape[1])
    if method.get("encoder") == TARTE:
        return int(read_config(find_files(data_folder())["config"])["dim_transformer"])
    return TableEncoder().fit(parts.fit.X).n_features_out_


def _prepare(network: Network, method: dict[str, Any], parts: Parts) -> Network:
    """Return the network with the plan's settings."""
    if isinstance(parts.fit.X, Pictures):
        from fairdial.nn.resnet import LastStage, ResNet18

        if method["trained"] == "all":
            network.set_params(trunk=ResNet18(find_weights()))
        else:
            network.set_params(trunk=LastStage(find_weights()), encoder=_frozen_layers())
    elif parts.encoded:
        network.set_params(encoder=None)
    elif method.get("encoder") == TARTE:
        found = find_files(data_folder())
        paths = found["weights"], found["config"], found["fasttext"]
        network.set_params(encoder=TarteEncoder(*paths, cache=cache_folder(None) / TARTE))
    elif method.get("encoder"):
        network.set_params(encoder=TableEncoder(**method["encoder"]))
    network.set_params(validation=parts.validation, **as_tuples(method["network"]))
    return network


def _scorers(
    method: dict[str, Any], seed: int, parts: Parts
) -> BaseEstimator | list[BaseEstimator]:
    """Return the scorer of a method, or the list of scorers that are averaged."""
    names = method["scorer"]
    if isinstance(names, str):
        return _scorer(names, method, seed, parts)
    return [_scorer(name, method, seed, parts) for name in names]


def _scorer(name: str, method: dict[str, Any], seed: int, parts: Parts) -> BaseEstimator:
    if name == "network":
        return _prepare(Network(), method, parts)
    if name in TREES:
        return boosting(text_columns(parts.fit.X), seed, trees=TREES[name])
    encoder = {} if parts.encoded else method.get("encoder", {})  # features need no encoder
    settings = {f"tableencoder__{key}": value for key, value in encoder.items()}
    return logistic(wide=parts.encoded).set_params(**settings)
