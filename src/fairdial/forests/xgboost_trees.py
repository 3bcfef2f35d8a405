"""Forests of XGBoost, read from its JSON format.

XGBoost compares and adds in float32. A number goes left if it is *below* the threshold; a category
goes right if its code is in the node's set.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np

from fairdial.forests.forest import CannotConvertError, Forest, Tree, make_forest

OBJECTIVES = ("binary:logistic", "reg:logistic")


def convert_xgboost(model: Any, positive: int, method: str) -> Forest:
    """Return the forest of an XGBClassifier, or a Booster, with a logistic objective."""
    is_booster = not hasattr(model, "get_booster")
    if method != "predict_proba":
        raise CannotConvertError(f"the method {method} of XGBoost")
    if not np.isnan(getattr(model, "missing", np.nan)):
        raise CannotConvertError(f"XGBoost's missing={model.missing}")
    booster = model if is_booster else model.get_booster()
    data = json.loads(bytes(booster.save_raw("json")))["learner"]
    objective = data["objective"]["name"]
    if objective not in OBJECTIVES:
        raise CannotConvertError(f"XGBoost's objective {objective!r}")
    facts, trees = data["learner_model_param"], data["gradient_booster"]
    if facts.get("num_target", "1") != "1" or facts["num_class"] not in ("0", "1"):
        raise CannotConvertError("several outputs, or more than two classes")
    if trees["name"] != "gbtree":
        raise CannotConvertError(f"XGBoost's booster {trees['name']!r}")
    content, ends = trees["model"], trees["model"].get("iteration_indptr")
    used = content["trees"]
    best = data["attributes"].get("best_iteration")
    if best is not None and ends is not None and not is_booster:  # which uses all its trees
        used = used[: ends[int(best) + 1]]
    if any(tree["tree_param"]["size_leaf_vector"] not in ("0", "1") for tree in used):
        raise CannotConvertError("several outputs")
    return make_forest(
        [_tree(tree) for tree in used],
        n_features=int(facts["num_feature"]),
        base=_base(facts["base_score"]),
        link="logistic",
        complement=positive == 0,
        round_inputs=True,
        round_sums=True,
    )


def objective_of(booster: Any) -> str:
    """Return the objective of a Booster."""
    return str(json.loads(booster.save_config())["learner"]["objective"]["name"])


def categories_of(model: Any) -> list[list[str | int] | None]:
    """Return the categories that the model itself keeps for each of its features."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    content = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]
    kept = content.get("cats", {}).get("enc", [])
    return [_values(item) for item in kept]


def _values(item: dict[str, list[int]]) -> list[str | int] | None:
    """Return the categories of a feature: numbers, or text as bytes and where each ends.

    XGBoost counts characters where it means bytes, so that it cuts text beyond ASCII.
    """
    if "offsets" not in item:
        return list(item["values"])
    ends, joined = item["offsets"], bytes(byte % 256 for byte in item["values"])
    if not joined.isascii():
        raise CannotConvertError("XGBoost's categories that aren't ASCII text")
    return [joined[a:b].decode() for a, b in itertools.pairwise(ends)] or None


def _base(text: str) -> float:
    """Return the base score as log-odds in float32; the file has a probability."""
    (number,) = np.atleast_1d(np.asarray(json.loads(text), np.float64))
    p = np.float32(number)
    if not 0 < p < 1:
        raise CannotConvertError(f"XGBoost's base_score {number}")
    odds = np.float32(1) / p - np.float32(1)
    return float(np.float32(-np.log(np.float64(odds))))


def _tree(data: dict[str, Any]) -> Tree:
    left, right = np.array(data["left_children"]), np.array(data["right_children"])
    leaf = left == -1
    condition = np.array(data["split_conditions"], np.float32)
    below = np.nextafter(condition, np.float32(-np.inf))  # x < t is x <= the number before t
    sets = _sets(data)
    swapped = np.zeros(len(leaf), np.bool_)
    swapped[list(sets)] = True  # our sets go left, XGBoost's go right
    default = np.array(data["default_left"]) != 0
    order = _order(left, right)
    new = np.empty(len(left), np.int64)
    new[order] = np.arange(len(order))
    here = np.arange(len(order))
    low, high = np.where(swapped, right, left)[order], np.where(swapped, left, right)[order]
    leaf = leaf[order]
    return Tree(
        feature=np.array(data["split_indices"])[order],
        threshold=below.astype(np.float64)[order],
        left=np.where(leaf, here, new[low]),
        right=np.where(leaf, here, new[high]),
        value=condition.astype(np.float64)[order],
        missing_left=np.where(swapped, ~default, default)[order],
        sets={int(new[node]): codes for node, codes in sets.items()},
    )


def _order(left: Any, right: Any) -> Any:
    """Return the nodes with parents before children, without deleted ones."""
    found, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if left[node] != -1:
            waiting += [int(right[node]), int(left[node])]
    return np.array(found)


def _sets(data: dict[str, Any]) -> dict[int, list[int]]:
    """Return the codes of each node that tests a category."""
    return {
        node: data["categories"][start : start + size]
        for node, start, size in zip(
            data["categories_nodes"],
            data["categories_segments"],
            data["categories_sizes"],
            strict=True,
        )
    }
