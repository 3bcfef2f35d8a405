"""Plain models in a folder: JSON and safetensors, without skops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as write_arrays

from fairdial.errors import ModelFileError
from fairdial.estimators.plain import PlainScorer
from fairdial.forests.plain import PlainModel
from fairdial.io.values import Json, claim, read_json, write_json

PLAIN, ARRAYS = "plain.json", "plain.safetensors"


class PlainFiles:
    """Collects plain models; all are written to two files."""

    def __init__(self) -> None:
        self._data: dict[str, Json] = {}
        self._arrays: dict[str, NDArray[Any]] = {}

    def add(self, scorer: PlainScorer, prefix: str) -> dict[str, Json]:
        """Add the models of a scorer; return its entry in the manifest."""
        for i, model in enumerate(scorer.models):
            data, arrays = model.to_data()
            self._data[f"{prefix}{i}"] = data
            self._arrays |= {f"{prefix}{i}.{name}": array for name, array in arrays.items()}
        return {"kind": "plain", "per_group": len(scorer.models) > 1}

    def files(self) -> dict[str, bytes]:
        """Return the files, if there is something to write."""
        if not self._data:
            return {}
        return {PLAIN: write_json(self._data), ARRAYS: write_arrays(self._arrays)}


def read_plain(files: Mapping[str, bytes]) -> dict[str, PlainModel]:
    """Return the plain models in the files by name; raise ModelFileError if they can't be right."""
    data = read_json(files[PLAIN], PLAIN)
    try:
        arrays = read_arrays(files[ARRAYS])
        by_model: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in arrays.items():
            owner, _, own = name.rpartition(".")
            by_model.setdefault(owner, {})[own] = np.ascontiguousarray(array)
        claim(set(by_model) == set(data), "arrays for each model")
        return {name: PlainModel.from_data(data[name], by_model[name]) for name in data}
    except (
        SafetensorError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise ModelFileError(
            f"`{ARRAYS}` must hold the plain models of `{PLAIN}` ({type(error).__name__}: {error})."
        ) from error


def plain_scorer(
    models: Mapping[str, PlainModel], entry: Mapping[str, Json], prefix: str, n_groups: int | None
) -> PlainScorer:
    """Return the scorer of an entry of the manifest."""
    claim(type(entry["per_group"]) is bool, "one model, or one for each group")
    count = (n_groups or 0) if entry["per_group"] else 1
    own = [models[f"{prefix}{i}"] for i in range(count)]
    claim(own and f"{prefix}{count}" not in models, "one model, or one for each group")
    return PlainScorer(own)
