"""What an estimator is, as plain data and files: the writing side of saved models.

``loading.py`` is the other side. Code is never written: not callbacks, not a trunk of one's own.
"""

from __future__ import annotations

import copy
import os
import platform
from importlib import metadata
from typing import Any

import numpy as np

from fairdial._version import __version__
from fairdial.criteria import Criterion
from fairdial.encoders import TableEncoder
from fairdial.errors import InvalidInputError
from fairdial.methods.card import model_card
from fairdial.methods.network import Network, torch_module
from fairdial.methods.pieces import features_to_data, platt_to_data
from fairdial.persistence.folder import write_folder
from fairdial.persistence.frontiers import FRONTIER, criterion_name, frontier_to_arrays
from fairdial.persistence.manifest import Key
from fairdial.persistence.objects import write_objects
from fairdial.persistence.values import pack, pack_table, write_json
from fairdial.scorers import AveragedScorer, SklearnScorer

WEIGHTS = "weights.safetensors"
ENCODER, TABLES = "encoder.json", "tables.json"
PICTURES = "encoder.safetensors"
OBJECTS, CARD = "objects.skops", "MODEL_CARD.md"
KINDS = {"NetScorer": "net", "RunsScorer": "runs", "FilmScorer": "film"}
FRAMES = ("history_", "spanned_", "search_")
UNSAVED = ("trunk", "callbacks", "checkpoint")  # of a network: code, and places on this machine
LIBRARIES = ("numpy", "pandas", "safetensors", "scikit-learn", "scipy", "skops", "torch")


def save_model(model: Any, folder: Any, *, overwrite: bool = False, key: Key = None) -> str:
    """Write a fitted estimator to a folder; gives the model's hash."""
    manifest, files = describe_model(model)
    files[CARD] = model_card(model).encode(errors="backslashreplace")
    return write_folder(folder, manifest, files, overwrite=overwrite, key=key)


def describe_model(model: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest of an estimator, and its files."""
    method = type(model).__name__
    if not type(model).__module__.startswith("fairdial.methods."):
        raise InvalidInputError(
            f"`save` must be called on one of the library's own estimators, got {method}."
        )
    model._check_scorer()
    parcel = _Parcel()
    manifest = {
        "method": method,
        "libraries": _versions(),
        "parameters": {
            name: pack(value, parcel.pack) for name, value in model.get_params(deep=False).items()
        },
        "classes": pack(model.classes_),
        "label": getattr(model, "label_name_", None),
        "training": getattr(model, "training_", None),
        "features": features_to_data(model),
        "groups": pack(getattr(model, "trained_groups_", None)),
        "scorer": parcel.scorer(model),
        "platt": platt_to_data(getattr(model, "platt_", None)),
        "frontier": parcel.frontier(model),
    }
    parcel.tables(model)
    return manifest | {"untrusted_types": parcel.close()}, parcel.files


class _Parcel:
    """Files that are being collected, and the objects that go to skops."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.objects: dict[str, Any] = {}

    def pack(self, value: Any) -> Any:
        """Parameters that aren't plain."""
        if isinstance(value, Criterion):
            return {"$criterion": criterion_name(value)}
        if type(value) is Network:
            params = value.get_params(deep=False)
            params |= dict.fromkeys(UNSAVED)
            if np.ndim(params["validation"]):  # which rows they were says nothing elsewhere
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

    def scorer(self, model: Any) -> dict[str, Any]:
        """What scores."""
        scorer = model.scorer_
        if isinstance(scorer, AveragedScorer):
            parts = [self.part(part, f"part{i}-") for i, part in enumerate(scorer.scorers)]
            return {"kind": "averaged", "parts": parts}
        if isinstance(scorer, SklearnScorer):
            return self.part(scorer, "")
        kind = KINDS[type(scorer).__name__]
        nets = model.nets_ if kind == "runs" else [model.net_]
        found = self.nets(kind, nets, model.encoder_, "")
        found["best_epoch"] = pack(model.best_epoch_)
        if kind == "runs":
            found["settings"] = pack(model.settings_)
        if kind == "film":
            found["condition"] = vars(scorer.condition)
        return found

    def part(self, scorer: Any, prefix: str) -> dict[str, Any]:
        """One of several scorers: classifiers, one or one for each group; or a network."""
        if not isinstance(scorer, SklearnScorer):
            trained = copy.deepcopy(scorer.net).float()  # it was, and scores in double precision
            return self.nets("net", [trained], scorer.encode.encoder, prefix)
        self.objects[f"{prefix}fitted"] = scorer.estimators
        several = len(scorer.estimators) > 1
        return {"kind": "estimators", "method": scorer.method, "per_group": several}

    def nets(self, kind: str, nets: list[Any], encoder: Any, prefix: str) -> dict[str, Any]:
        """Networks and their encoder."""
        told, self.files[prefix + WEIGHTS] = torch_module("saving").nets_to_arrays(nets)
        return {"kind": kind, "nets": told, "encoder": self.encoder(encoder, prefix)}

    def encoder(self, encoder: Any, prefix: str) -> str | None:
        """How rows become inputs."""
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

    def frontier(self, model: Any) -> dict[str, Any] | None:
        """The frontier, if the model was calibrated."""
        if not hasattr(model, "frontier_"):
            return None
        told, self.files[FRONTIER] = frontier_to_arrays(model.frontier_)
        return told

    def tables(self, model: Any) -> None:
        """How training went."""
        found = {name: getattr(model, name) for name in FRAMES if hasattr(model, name)}
        if found:
            packed = {k: None if v is None else pack_table(v) for k, v in found.items()}
            self.files[TABLES] = write_json(packed)

    def close(self) -> list[str]:
        """Write the objects; gives the types that loading must be told to allow."""
        if not self.objects:
            return []
        self.files[OBJECTS], strangers = write_objects(self.objects, OBJECTS)
        return strangers


def _is_resnet(value: Any) -> bool:
    """Whether it is the library's encoder of pictures; without importing torch."""
    return type(value).__module__ == "fairdial.nn.features"


def _path(weights: Any) -> str | None:
    """Where weights came from, if they came from a file."""
    return os.fspath(weights) if isinstance(weights, (str, os.PathLike)) else None


def _versions() -> dict[str, str]:
    found = {"fairdial": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
