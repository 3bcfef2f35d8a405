"""Forests of LightGBM, read from its text format.

LightGBM compares numbers in float64. A category goes left if its code is in the node's set. Where a
node has no missing values, they count as 0.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fairdial.forests.forest import CannotConvertError, Forest, Tree, make_forest

CATEGORICAL, DEFAULT_LEFT = 1, 2  # bits of decision_type
NO_MISSING, ZERO_MISSING = 0, 1  # its next two bits
END = "end of trees"
OBJECTIVES = ("binary", "cross_entropy")


def convert_lightgbm(model: Any, positive: int, method: str) -> Forest:
    """Return the forest of an LGBMClassifier or a Booster with a binary objective."""
    if method != "predict_proba":
        raise CannotConvertError(f"the method {method} of LightGBM")
    booster = getattr(model, "booster_", model)
    best = booster.best_iteration
    text = booster.model_to_string(num_iteration=best if best > 0 else -1)
    head, *blocks = text.partition(END)[0].split("\nTree=")
    facts = _facts(head)
    objective = facts.get("objective", "a custom objective").split()
    if objective[0] not in OBJECTIVES:
        raise CannotConvertError(f"LightGBM's objective {' '.join(objective)!r}")
    if facts["num_tree_per_iteration"] != "1" or "average_output" in head.splitlines():
        raise CannotConvertError("LightGBM's random forests and models of several classes")
    sigmoid = float(
        dict(part.split(":") for part in objective[1:] if ":" in part).get("sigmoid", 1)
    )
    return make_forest(
        [_tree(_facts(block), sigmoid) for block in blocks],
        n_features=int(facts["max_feature_idx"]) + 1,
        link="logistic",
        complement=positive == 0,
    )


def objective_of(booster: Any) -> str:
    """Return the objective of a Booster; empty if it is a function."""
    head = booster.model_to_string(num_iteration=1).partition("\nTree=")[0]
    return _facts(head).get("objective", "").partition(" ")[0]


def pandas_categories(model: Any) -> list[list[Any]]:
    """Return the categories of the training columns of pandas' category type, in their order."""
    booster = getattr(model, "booster_", model)
    text = booster.model_to_string(num_iteration=1)
    place = text.rfind("pandas_categorical:")
    found = json.loads(text[place:].partition(":")[2].strip()) if place >= 0 else None
    return found or []


def _facts(block: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in block.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def _tree(facts: dict[str, str], scale: float) -> Tree:
    if facts.get("is_linear", "0") != "0":
        raise CannotConvertError("LightGBM's linear leaves (linear_tree=True)")
    value = scale * _numbers(facts, "leaf_value", np.float64)
    n_leaves = int(facts["num_leaves"])
    if n_leaves == 1:
        return Tree([0], [0.0], [0], [0], value)
    n_inner = n_leaves - 1
    kind = _numbers(facts, "decision_type", np.int64)
    is_set, missing = kind & CATEGORICAL, kind >> 2 & 3
    if np.any(missing == ZERO_MISSING):
        raise CannotConvertError("LightGBM's zero_as_missing=True")
    threshold = _numbers(facts, "threshold", np.float64)
    as_zero = (missing == NO_MISSING) & (threshold >= 0)
    default = (missing != NO_MISSING) & (kind & DEFAULT_LEFT != 0)
    leaves = n_inner + np.arange(n_leaves)
    return Tree(
        feature=_append(_numbers(facts, "split_feature", np.int64), n_leaves),
        threshold=_append(threshold, n_leaves),
        left=np.concatenate([_children(facts, "left_child", n_inner), leaves]),
        right=np.concatenate([_children(facts, "right_child", n_inner), leaves]),
        value=np.concatenate([np.zeros(n_inner), value]),
        missing_left=_append((is_set == 0) & (as_zero | default), n_leaves),
        sets=_sets(facts, np.flatnonzero(is_set), threshold),
    )


def _sets(facts: dict[str, str], nodes: Any, threshold: Any) -> dict[int, list[int]]:
    """Return the codes that go left; a node's threshold is the number of its set."""
    if not len(nodes):
        return {}
    bounds = _numbers(facts, "cat_boundaries", np.int64)
    words = _numbers(facts, "cat_threshold", np.int64)
    found = {}
    for node in nodes.tolist():
        place = int(threshold[node])
        own = words[bounds[place] : bounds[place + 1]]
        found[node] = [
            32 * i + bit
            for i, word in enumerate(own.tolist())
            for bit in range(32)
            if word >> bit & 1
        ]
    return found


def _children(facts: dict[str, str], name: str, n_inner: int) -> Any:
    """Return children as nodes; LightGBM writes leaf j as -j - 1."""
    found = _numbers(facts, name, np.int64)
    return np.where(found < 0, n_inner - found - 1, found)


def _numbers(facts: dict[str, str], name: str, dtype: type[np.generic]) -> Any:
    return np.array(facts[name].split(), dtype=dtype)


def _append(values: Any, n_leaves: int) -> Any:
    return np.concatenate([values, np.zeros(n_leaves, values.dtype)])
