"""Estimators as plain data and files: the writing side of saved models.

``load.py`` is the other side. Code is never written: neither callbacks nor your own trunk.
"""

from __future__ import annotations

import copy
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from fairdial._version import __version__
from fairdial.core.criteria import Criterion
from fairdial.core.demands import Demand
from fairdial.core.objectives import Objective
from fairdial.core.problem import Budget, criterion_to_json, demand_to_json, objective_to_json
from fairdial.errors import InvalidInputError, ModelFileError, require_torch
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.blind import BlindScorer
from fairdial.estimators.plain import PlainScorer, convert_scorer
from fairdial.estimators.scorers import AveragedScorer, SklearnScorer
from fairdial.forests.forest import CannotConvertError
from fairdial.io.card import model_card
from fairdial.io.card_metadata import card_metadata
from fairdial.io.folder import write_folder
from fairdial.io.frontiers import FRONTIER, frontier_to_arrays
from fairdial.io.manifest import OBJECTS, Key, sees_group
from fairdial.io.objects import read_objects, write_objects
from fairdial.io.plain import PlainFiles
from fairdial.io.settings import describe_estimator
from fairdial.io.values import Json, pack, pack_features, pack_platt, pack_table, write_json
from fairdial.nn.network import Network
from fairdial.registry import Method, method_of
from fairdial.tables.encoder import TableEncoder

if TYPE_CHECKING:
    from fairdial.nn.nets import DialNet

WEIGHTS = "weights.safetensors"
ENCODER, TABLES = "encoder.json", "tables.json"
PICTURES = "encoder.safetensors"
CARD = "MODEL_CARD.md"
NETS = {"NetScorer": "net", "RunsScorer": "runs", "FilmScorer": "film"}
FRAMES = ("history_", "spanned_", "search_")
UNSAVED = ("trunk", "callbacks", "checkpoint")  # of a network: code, and paths on this machine
LIBRARIES = ("numpy", "pandas", "safetensors", "scikit-learn", "scipy", "skops", "torch")


def save_model(
    model: DialClassifier,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    key: Key = None,
) -> str:
    """Write a fitted estimator to a folder; return the model's hash."""
    manifest, files = describe_model(model)
    card = model_card(model, sees_group=sees_group(manifest["scorer"]))
    files[CARD] = f"{card_metadata(model)}\n\n{card}".encode(errors="backslashreplace")
    return write_folder(folder, manifest, files, overwrite=overwrite, key=key)


def describe_model(model: DialClassifier) -> tuple[dict[str, Json], dict[str, bytes]]:
    """Return the manifest of an estimator, and its files."""
    method = method_of(type(model))
    if method is None or method.kind == "auto":
        raise InvalidInputError(
            "method",
            "be registered to be saved",
            given=type(model).__name__,
            hint="Register it by fairdial.registry.register.",
        )
    model._check_scorer()
    writer = _Writer(method, plain_of(model))
    manifest = {
        "method": method.estimator,
        "libraries": _versions(),
        "parameters": {
            name: pack(value, writer.pack_estimator if name == "estimator" else writer.pack)
            for name, value in model.get_params(deep=False).items()
        },
        "classes": pack(model.classes_),
        "label": getattr(model, "label_name_", None),
        "training": getattr(model, "training_", None),
        "features": pack_features(model),
        "groups": pack(getattr(model, "trained_groups_", None)),
        "scorer": writer.scorer(model),
        "platt": pack_platt(getattr(model, "platt_", None)),
        "frontier": writer.frontier(model),
    }
    writer.tables(model)
    writer.files |= writer.plain_files.files()
    untrusted = writer.objects_file(getattr(model, "plain_error_", None))
    return manifest | {"untrusted_types": untrusted}, writer.files


def plain_of(model: Any) -> PlainScorer | AveragedScorer | None:
    """Return the scorer of a model as plain data; None if it can't be converted."""
    if getattr(model, "plain_error_", None) is not None:
        return None
    known: PlainScorer | AveragedScorer | None = getattr(model, "plain_", None)
    if known is not None or not isinstance(model.scorer_, (SklearnScorer, AveragedScorer)):
        return known
    try:
        return convert_scorer(model.scorer_, model)  # not calibrated yet, or saved by version 0.2
    except CannotConvertError:
        return None


def type_names(method: Method) -> list[str]:
    """Return the names of the types that a method's saved models may consist of."""
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in method.types]


class _Writer:
    """Collects the files of a model, and the objects that skops saves."""

    def __init__(self, method: Method, plain: PlainScorer | AveragedScorer | None) -> None:
        self.method, self.plain = method, plain
        self.plain_files = PlainFiles()
        self.files: dict[str, bytes] = {}
        self.objects: dict[str, object] = {}

    def pack(self, value: Any) -> Json:
        """Pack a parameter that isn't plain."""
        if isinstance(value, Criterion):
            return {"$criterion": criterion_to_json(value)}
        if isinstance(value, Demand):
            return {"$demand": demand_to_json(value)}
        if isinstance(value, Objective):
            return {"$objective": objective_to_json(value)}
        if isinstance(value, Budget):
            return {"$budget": [float(value.share), bool(value.exact)]}
        if isinstance(value, Mapping):  # criteria with their tolerances, schedules by name
            if any(callable(item) for item in value.values()):
                raise InvalidInputError(
                    "schedules",
                    "hold names, not functions, to be saved",
                    hint="Call set_params(schedules=None) first: predictions don't need them.",
                )
            return {"$mapping": [[pack(k, self.pack), pack(value[k])] for k in value]}
        if type(value) is Network:
            params = value.get_params(deep=False)
            params |= dict.fromkeys(UNSAVED)
            if np.ndim(params["validation"]):  # a mask of rows means nothing elsewhere
                params["validation"] = Network().validation
            return {"$network": {name: pack(v, self.pack) for name, v in params.items()}}
        if type(value) is TableEncoder:
            return {"$table_encoder": {k: pack(v) for k, v in value.get_params().items()}}
        if _is_resnet(value):
            params = value.get_params() | {"weights": _path(value.weights), "cache": False}
            return {"$resnet_encoder": {k: pack(v) for k, v in params.items()}}
        name = f"parameter{len(self.objects)}"
        self.objects[name] = value
        return {"$object": name}

    def pack_estimator(self, value: Any) -> Json:
        """Pack an estimator that isn't fitted; with a plain scorer, as a description if it can."""
        settings = describe_estimator(value) if self.plain is not None else None
        return self.pack(value) if settings is None else settings.data

    def scorer(self, model: Any) -> dict[str, Json]:
        """Describe the scorer, and collect its files."""
        scorer = model.scorer_ if self.plain is None else self.plain
        if isinstance(scorer, BlindScorer):
            self.objects["groups"] = scorer.groups
            labels: Any = scorer.labels
            scorers = labels.scorers if isinstance(labels, AveragedScorer) else [labels]
            described = [self.part(one, f"part{i}-") for i, one in enumerate(scorers)]
            return {"kind": "blind", "parts": described}
        if isinstance(scorer, AveragedScorer):
            parts = [self.part(part, f"part{i}-") for i, part in enumerate(scorer.scorers)]
            return {"kind": "averaged", "parts": parts}
        if isinstance(scorer, (SklearnScorer, PlainScorer)):
            return self.part(scorer, "")
        kind = NETS.get(type(scorer).__name__)
        if kind is None:  # of a method of your own
            self.objects["scorer"] = scorer
            return {"kind": "object"}
        nets = model.nets_ if kind == "runs" else [model.net_]
        found = self.nets(kind, nets, model.encoder_, "")
        found["best_epoch"] = pack(model.best_epoch_)
        if kind == "runs":
            found["settings"] = pack(model.settings_)
        if kind == "film":
            found["condition"] = vars(scorer.condition)
        return found

    def part(self, scorer: Any, prefix: str) -> dict[str, Json]:
        """Describe one of several scorers: a classifier, one classifier per group, or a network."""
        if isinstance(scorer, PlainScorer):
            return self.plain_files.add(scorer, prefix)
        if not isinstance(scorer, SklearnScorer):
            trained = copy.deepcopy(scorer.net).float()  # as trained; it scores in float64
            return self.nets("net", [trained], scorer.encode.encoder, prefix)
        self.objects[f"{prefix}fitted"] = scorer.estimators
        several = len(scorer.estimators) > 1
        return {"kind": "estimators", "method": scorer.method, "per_group": several}

    def nets(
        self, kind: str, nets: Sequence[DialNet], encoder: object, prefix: str
    ) -> dict[str, Json]:
        """Describe networks and their encoder."""
        require_torch()
        from fairdial.io.networks import nets_to_arrays

        data, self.files[prefix + WEIGHTS] = nets_to_arrays(nets)
        return {"kind": kind, "nets": data, "encoder": self.encoder(encoder, prefix)}

    def encoder(self, encoder: Any, prefix: str) -> str | None:
        """Collect the encoder; return its kind."""
        if encoder is None:
            return None
        if type(encoder) is TableEncoder:
            self.files[prefix + ENCODER] = encoder.to_json().encode()
            return "table"
        if _is_resnet(encoder):
            self.files[prefix + PICTURES] = encoder.to_bytes()
            return "pictures"
        self.objects[f"{prefix}encoder"] = encoder
        return "object"

    def frontier(self, model: DialClassifier) -> dict[str, Json] | None:
        """Describe the frontier, if the model is calibrated."""
        if not hasattr(model, "frontier_"):
            return None
        data, self.files[FRONTIER] = frontier_to_arrays(model.frontier_)
        return data

    def tables(self, model: DialClassifier) -> None:
        """Collect the tables on training."""
        found = {name: getattr(model, name) for name in FRAMES if hasattr(model, name)}
        if found:
            packed = {k: None if v is None else pack_table(v) for k, v in found.items()}
            self.files[TABLES] = write_json(packed)

    def objects_file(self, reason: str | None) -> list[str]:
        """Write the objects; return the types that users must allow when they load."""
        if not self.objects:
            return []
        trusted = type_names(self.method)
        body, untrusted = write_objects(self.objects, OBJECTS, trusted)
        try:
            read_objects(body, OBJECTS, [*trusted, *untrusted])
        except ModelFileError as error:
            raise InvalidInputError(
                "estimator",
                "be something that can be loaded again",
                given=str(error),
                hint="" if reason is None else f"It can't be converted: {reason}.",
            ) from error
        self.files[OBJECTS] = body
        return untrusted


def _is_resnet(value: object) -> bool:
    """Return whether it is the library's encoder of pictures, without importing torch."""
    return type(value).__module__ == "fairdial.nn.features"


def _path(weights: object) -> str | None:
    """Return the path of weights, if they came from a file."""
    return os.fspath(weights) if isinstance(weights, (str, os.PathLike)) else None


def _versions() -> dict[str, str]:
    found = {"fairdial": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
