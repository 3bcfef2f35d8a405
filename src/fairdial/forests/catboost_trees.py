"""Forests of CatBoost, read from its JSON format.

CatBoost compares in float32. Its trees are symmetric: all nodes of a level have one test, and a
number goes right if it is above the border. Symmetric trees become binary ones here.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

import numpy as np

from fairdial.forests.forest import CannotConvertError, Forest, Tree, make_forest

OBJECTIVES = ("Logloss", "CrossEntropy")
MOST_LEVELS = 16


def convert_catboost(model: Any, positive: int, method: str) -> Forest:
    """Return the forest of a CatBoostClassifier, or a CatBoost model, with a logistic loss."""
    if method != "predict_proba":
        raise CannotConvertError(f"the method {method} of CatBoost")
    loss = objective_of(model)
    if loss not in OBJECTIVES:
        raise CannotConvertError(f"CatBoost's loss {loss!r}")
    for kind in ("cat", "text", "embedding"):
        if getattr(model, f"get_{kind}_feature_indices")():
            raise CannotConvertError(f"CatBoost's {kind}_features")
    data = _dump(model)
    if "oblivious_trees" not in data:
        raise CannotConvertError("CatBoost's grow_policy (only symmetric trees are converted)")
    scale, bias = data["scale_and_bias"]
    numbers = data["features_info"]["float_features"]
    flat = [feature["flat_feature_index"] for feature in numbers]
    nan_right = [feature["nan_value_treatment"] == "AsTrue" for feature in numbers]
    trees = [_tree(tree, flat, nan_right, float(scale)) for tree in data["oblivious_trees"]]
    last = Tree([0], [0.0], [0], [0], [float(np.ravel(bias)[0])])  # added after all others
    return make_forest(
        [*trees, last],
        n_features=max(flat) + 1,
        link="logistic",
        complement=positive == 0,
        round_inputs=True,
    )


def objective_of(model: Any) -> str:
    """Return the name of the loss."""
    return str(model.get_all_params()["loss_function"]).partition(":")[0]


def _dump(model: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.json")
        model.save_model(path, format="json")
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    return found


def _tree(data: dict[str, Any], flat: list[int], nan_right: list[bool], scale: float) -> Tree:
    splits = data["splits"] or []
    if len(splits) > MOST_LEVELS:
        raise CannotConvertError(f"trees of more than {MOST_LEVELS} levels")
    for split in splits:
        if split["split_type"] != "FloatFeature":
            raise CannotConvertError(f"CatBoost's splits of type {split['split_type']}")
    depth = len(splits)
    values = scale * np.array(data["leaf_values"], np.float64)
    # a heap: level l has the nodes 2^l - 1 ... 2^(l+1) - 2; the first test is the lowest bit
    level = np.repeat(np.arange(depth), 2 ** np.arange(depth))
    n_inner = len(level)
    here = np.arange(n_inner + len(values))
    features = np.array([flat[s["float_feature_index"]] for s in splits], np.int64)
    borders = np.array([s["border"] for s in splits], np.float32).astype(np.float64)
    left_if_missing = np.array([not nan_right[s["float_feature_index"]] for s in splits], np.bool_)
    pad = np.zeros(len(values))
    return Tree(
        feature=np.concatenate([features[level], pad]),
        threshold=np.concatenate([borders[level], pad]),
        left=np.concatenate([2 * here[:n_inner] + 1, here[n_inner:]]),
        right=np.concatenate([2 * here[:n_inner] + 2, here[n_inner:]]),
        value=np.concatenate([np.zeros(n_inner), values[_reversed_bits(depth)]]),
        missing_left=np.concatenate([left_if_missing[level], pad]),
    )


def _reversed_bits(depth: int) -> Any:
    """Return the numbers below 2^depth with their bits in reverse order."""
    numbers = np.arange(2**depth)
    return sum(
        ((numbers >> bit & 1) << (depth - 1 - bit) for bit in range(depth)), np.zeros_like(numbers)
    )
