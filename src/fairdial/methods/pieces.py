"""Pieces of an estimator as plain data, and back: the columns that it expects, recalibration."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.errors import InvalidInputError
from fairdial.persistence.facts import claim
from fairdial.persistence.values import pack, unpack
from fairdial.scorers import PlattMap

# ---- columns -----------------------------------------------------------------------------------


def features_to_data(model: Any) -> dict[str, Any]:
    """Number, names and types of the columns that a model expects; None: not known."""
    names = getattr(model, "feature_names_in_", None)
    types = getattr(model, "feature_dtypes_", None)
    return {
        "count": getattr(model, "n_features_in_", None),
        "names": None if names is None else [str(name) for name in names],
        "dtypes": None if types is None else [[pack(n), _tell(t)] for n, t in types.items()],
    }


def features_from_data(told: dict[str, Any]) -> dict[str, Any]:
    """The attributes that :func:`features_to_data` read."""
    found: dict[str, Any] = {}
    if told["count"] is not None:
        claim(type(told["count"]) is int and told["count"] > 0, "a number of features")
        found["n_features_in_"] = told["count"]
    if told["names"] is not None:
        names = told["names"]
        claim(len(names) == told["count"] and all(type(n) is str for n in names), "names")
        found["feature_names_in_"] = np.array(names, dtype=object)
    if told["dtypes"] is not None:
        found["feature_dtypes_"] = {unpack(name): _dtype(kind) for name, kind in told["dtypes"]}
    return found


def _tell(kind: Any) -> Any:
    """A column's type: its name, or its categories where they are plain."""
    if isinstance(kind, pd.CategoricalDtype):
        with contextlib.suppress(InvalidInputError):
            values = [pack(value) for value in kind.categories.tolist()]
            return {"categories": values, "ordered": bool(kind.ordered)}
    return str(kind)


def _dtype(told: Any) -> Any:
    if isinstance(told, dict):
        return pd.CategoricalDtype([unpack(v) for v in told["categories"]], told["ordered"])
    try:
        return pd.api.types.pandas_dtype(told)
    except (ImportError, TypeError):  # a type of a library that isn't here
        return np.dtype(object)


# ---- recalibration -----------------------------------------------------------------------------


def platt_to_data(platt: PlattMap | None) -> dict[str, Any] | None:
    """Each group's line."""
    if platt is None:
        return None
    return {
        "slope": pack(platt.slope),
        "intercept": pack(platt.intercept),
        "groups": pack(platt.names),
    }


def platt_from_data(told: dict[str, Any]) -> PlattMap:
    """What :func:`platt_to_data` was given, checked."""
    slope: NDArray[np.float64] = unpack(told["slope"])
    intercept: NDArray[np.float64] = unpack(told["intercept"])
    groups = unpack(told["groups"])
    claim(slope.shape == intercept.shape == (len(groups),), "a line for each group")
    claim(np.isfinite([slope, intercept]).all() and (slope > 0).all(), "rising lines")
    return PlattMap(slope, intercept, groups)
