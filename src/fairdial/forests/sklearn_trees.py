"""Forests of scikit-learn: histogram and classic gradient boosting, random forests, single trees.

Boosting on histograms compares in float64, all other trees in float32. Leaves are added in
scikit-learn's order, so the sums have the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from fairdial.forests.forest import CannotConvertError, Forest, Link, Tree, make_forest, unpack_sets

AVERAGED = (RandomForestClassifier, ExtraTreesClassifier)
SINGLE = (DecisionTreeClassifier, ExtraTreeClassifier)
KINDS = (HistGradientBoostingClassifier, GradientBoostingClassifier, *AVERAGED, *SINGLE)


def convert_sklearn(model: Any, positive: int, method: str) -> Forest:
    """Return the forest of a fitted classifier; ``positive`` is the label's place in classes_."""
    if type(model) is HistGradientBoostingClassifier:
        return _histogram_boosting(model, positive, _link(method))
    if type(model) is GradientBoostingClassifier:
        return _boosting(model, positive, _link(method))
    if method != "predict_proba":
        raise CannotConvertError(f"the method {method} of {type(model).__name__}")
    return _averaged(model, positive)


def _link(method: str) -> Link:
    if method == "predict":
        raise CannotConvertError("scores by predict")
    return "raw" if method == "decision_function" else "logistic"


def _histogram_boosting(model: Any, positive: int, link: Link) -> Forest:
    if model.n_trees_per_iteration_ != 1:
        raise CannotConvertError("more than two classes")
    return make_forest(
        [_histogram_tree(tree) for (tree,) in model._predictors],
        n_features=int(model.n_features_in_),
        base=float(np.ravel(model._baseline_prediction)[0]),
        link=link,
        complement=positive == 0,
    )


def _histogram_tree(tree: Any) -> Tree:
    nodes, here = tree.nodes, np.arange(len(tree.nodes))
    leaf = nodes["is_leaf"] != 0
    chosen = np.flatnonzero(~leaf & (nodes["is_categorical"] != 0))
    sets = {}
    if len(chosen):
        members = unpack_sets(tree.raw_left_cat_bitsets[nodes["bitset_idx"][chosen]])
        sets = {
            node: np.flatnonzero(inside).tolist()
            for node, inside in zip(chosen.tolist(), members, strict=True)
        }
    return Tree(
        feature=nodes["feature_idx"],
        threshold=nodes["num_threshold"],
        left=np.where(leaf, here, nodes["left"]),
        right=np.where(leaf, here, nodes["right"]),
        value=nodes["value"],
        missing_left=nodes["missing_go_to_left"],
        sets=sets,
    )


def _boosting(model: Any, positive: int, link: Link) -> Forest:
    if model.n_trees_per_iteration_ != 1:
        raise CannotConvertError("more than two classes")
    if link == "logistic" and model.loss != "log_loss":
        raise CannotConvertError(f"the loss {model.loss!r} of GradientBoostingClassifier")
    if model.init_ != "zero" and type(model.init_) is not DummyClassifier:
        raise CannotConvertError("`init` of GradientBoostingClassifier")
    row = np.zeros((1, model.n_features_in_), np.float32)
    scale = float(model.learning_rate)
    return make_forest(
        [_tree(tree.tree_, scale * tree.tree_.value[:, 0, 0]) for tree in model.estimators_[:, 0]],
        n_features=int(model.n_features_in_),
        base=float(model._raw_predict_init(row)[0, 0]),
        link=link,
        complement=positive == 0,
        round_inputs=True,
    )


def _averaged(model: Any, positive: int) -> Forest:
    trees = model.estimators_ if isinstance(model, AVERAGED) else [model]
    if model.n_outputs_ != 1 or len(model.classes_) != 2:
        raise CannotConvertError("several outputs, or more than two classes")
    return make_forest(
        [_tree(tree.tree_, tree.tree_.value[:, 0, positive]) for tree in trees],
        n_features=int(model.n_features_in_),
        link="proba",
        divisor=float(len(trees)),
        round_inputs=True,
    )


def _tree(tree: Any, value: Any) -> Tree:
    here = np.arange(tree.node_count)
    leaf = tree.children_left == -1
    return Tree(
        feature=tree.feature,
        threshold=tree.threshold,
        left=np.where(leaf, here, tree.children_left),
        right=np.where(leaf, here, tree.children_right),
        value=value,
        missing_left=tree.missing_go_to_left,
    )
