"""Forests in ONNX graphs: the operator TreeEnsemble of ai.onnx.ml 5, with sets of categories."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairdial._arrays import Indices
from fairdial._onnx import Graph
from fairdial.errors import InvalidInputError
from fairdial.forests.forest import Forest, unpack_sets

AT_MOST, MEMBER = 0, 6  # modes of nodes
SUM = 1  # aggregate function


def add_forest(graph: Graph, forest: Forest, rows: str) -> str:
    """Add a forest on (n, d) float64 rows; return (n,) log-odds."""
    dtype: type[np.floating[Any]] = np.float32 if forest.round_sums else np.float64
    if forest.round_inputs:
        rows = graph.cast(rows, "FLOAT")
        if not forest.round_sums:
            rows = graph.cast(rows, "DOUBLE")
    inner = np.flatnonzero(forest.is_inner)
    if not len(inner):
        raise InvalidInputError("model", "have at least one tree with a split to be exported")
    score = _ensemble(graph, forest, rows, inner, dtype)
    if forest.divisor != 1.0:
        score = graph.op("Div", score, graph.constant(forest.divisor, dtype))
    return add_logits(graph, score, forest.link, forest.complement, dtype)


def _ensemble(
    graph: Graph, forest: Forest, rows: str, inner: Indices, dtype: type[np.floating[Any]]
) -> str:
    """Return (n,) sums of the leaves' values and the base.

    In double precision the operator adds the trees; the first one's leaves contain the base, so
    that rows with nearly the same score get the same sums as elsewhere. In single precision more
    would show, so the operator returns each tree's value, and the graph adds them in order.
    """
    is_inner = forest.is_inner
    node_place = np.cumsum(is_inner) - 1  # places among inner nodes, and among leaves
    leaf_place = np.cumsum(~is_inner) - 1
    splits = forest.threshold[inner].astype(dtype)
    left, right = forest.left[inner], forest.right[inner]
    members = unpack_sets(forest.sets)
    by_set = forest.set_index[inner] >= 0
    empty = by_set.copy()  # sets that only missing values pass, which the operator doesn't take
    empty[by_set] = ~members[forest.set_index[inner][by_set]].any(axis=1)
    by_set &= ~empty
    splits[empty] = np.finfo(dtype).min
    roots = forest.offsets[:-1]
    grows = is_inner[roots]
    values = forest.value[~is_inner]
    # the base, and trees that are a single leaf, which the operator doesn't take
    fixed = np.append(forest.base, np.where(grows, 0.0, forest.value[roots])).astype(dtype)
    trees = np.repeat(np.arange(forest.n_trees), np.diff(forest.offsets))[~is_inner]
    if not forest.round_sums and grows[0]:
        values = np.where(trees == 0, forest.base + values, values)
        fixed[0] = 0.0
    attributes: dict[str, object] = {
        "n_targets": len(fixed) if forest.round_sums else 1,
        "aggregate_function": SUM,
        "post_transform": 0,
        "tree_roots": node_place[roots[grows]].tolist(),
        "nodes_featureids": forest.feature[inner].tolist(),
        "nodes_splits": graph.tensor(splits),
        "nodes_modes": graph.tensor(np.where(by_set, MEMBER, AT_MOST).astype(np.uint8)),
        "nodes_missing_value_tracks_true": forest.missing_left[inner].astype(int).tolist(),
        "leaf_targetids": (trees + 1 if forest.round_sums else 0 * trees).tolist(),
        "leaf_weights": graph.tensor(values.astype(dtype)),
    }
    for name, child in (("true", left), ("false", right)):
        leaf = ~is_inner[child]
        place = np.where(leaf, leaf_place[child], node_place[child])
        attributes[f"nodes_{name}nodeids"] = place.tolist()
        attributes[f"nodes_{name}leafs"] = leaf.astype(int).tolist()
    if by_set.any():
        chosen = forest.set_index[inner][by_set]
        parts = [np.append(np.flatnonzero(members[i]), np.nan) for i in chosen]  # NaN ends a set
        attributes["membership_values"] = graph.tensor(np.concatenate(parts).astype(dtype))
    found = graph.op("TreeEnsemble", rows, domain="ai.onnx.ml", **attributes)
    if not forest.round_sums:
        extra = np.add.accumulate(fixed)[-1]
        return graph.op("Add", graph.squeeze(found, 1), graph.constant(extra, dtype))
    terms = graph.op("Add", found, graph.constant(fixed[None], dtype))  # (n, 1 + T)
    sums = graph.op("CumSum", terms, graph.integers(1))
    return graph.op("Gather", sums, graph.integers(forest.n_trees), axis=1)


def add_logits(
    graph: Graph,
    score: str,
    link: str,
    complement: bool,
    dtype: type[np.floating[Any]] = np.float64,
) -> str:
    """Turn (n,) scores into log-odds as the model does: through a probability."""
    if link == "raw":
        return graph.op("Neg", score) if complement else score
    if link == "logistic":
        one = graph.constant(1.0, dtype)
        wide = graph.cast(graph.op("Neg", score), "DOUBLE")
        exponent = graph.op("Exp", wide)
        if dtype is np.float32:
            exponent = graph.cast(exponent, "FLOAT")
        score = graph.op("Div", one, graph.op("Add", one, exponent))
    if complement:
        score = graph.op("Sub", graph.constant(1.0, dtype), score)
    p = graph.cast(score, "DOUBLE")
    rest = graph.op("Sub", graph.constant(1.0), p)
    return graph.op("Log", graph.op("Div", p, rest))
