"""Checks of scikit-learn's trees, whose indices native code follows without checking.

Children must be later nodes that exist, and features must be columns of the model's rows. Ensembles
check the number of columns once and pass rows on to their trees unchecked, so each tree must have
that number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import IsolationForest
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder
from sklearn.tree import BaseDecisionTree, DecisionTreeRegressor
from sklearn.tree._tree import Tree
from sklearn.utils.validation import check_array

from fairdial._arrays import Indices

BITSET = 8  # 32-bit integers of a set of categories


def check_trees(item: Any) -> None:
    """Raise ValueError if an object is a tree, or an ensemble of trees, that is unsafe to use."""
    if isinstance(item, Tree):
        inner = np.flatnonzero(item.children_left != -1)
        children = item.children_left[inner], item.children_right[inner]
        _check_places(inner, children, item.node_count, item.feature[inner], item.n_features)
    elif isinstance(item, TreePredictor):
        _check_predictor(item)
    elif isinstance(item, BaseDecisionTree) and hasattr(item, "tree_"):
        _check_features(item, _columns(item))
    elif isinstance(item, BaseHistGradientBoosting) and hasattr(item, "_predictors"):
        _check_histogram_boosting(item)
    elif isinstance(item, BaseGradientBoosting) and hasattr(item, "estimators_"):
        _check_boosting(item)
    elif isinstance(item, IsolationForest) and hasattr(item, "estimators_"):
        for tree, chosen in zip(item.estimators_, item.estimators_features_, strict=True):
            _check_features(tree, len(chosen))
    elif isinstance(item, BaseForest) and hasattr(item, "estimators_"):
        for tree in item.estimators_:
            _check_features(tree, _columns(item))


def _columns(model: Any) -> int:
    """Return the number of columns that a model requires and checks itself."""
    if not isinstance(model.n_features_in_, (int, np.integer)):
        raise ValueError("a model without a number of features")
    return int(model.n_features_in_)


def _check_features(tree: Any, columns: int) -> None:
    """Raise unless it is a tree for rows with this many columns."""
    if not isinstance(tree, BaseDecisionTree) or not isinstance(tree.tree_, Tree):
        raise ValueError("an ensemble of other things than trees")
    if not tree.tree_.n_features == _columns(tree) == columns:
        raise ValueError("a tree for another number of features")


def _check_boosting(model: Any) -> None:
    """Raise unless there is one tree per step, as for two labels: sums are not bounds-checked."""
    trees = model.estimators_
    if trees.ndim != 2 or trees.shape[1] != 1 or model.n_trees_per_iteration_ != 1:
        raise ValueError("several trees per step, where two labels have one")
    first = model.init_
    if not (isinstance(first, str) and first == "zero"):
        prior = np.shape(getattr(first, "class_prior_", ()))
        if type(first) is not DummyClassifier or prior != (2,):
            raise ValueError("an initial classifier other than DummyClassifier")
    for tree in trees.ravel():
        _check_features(tree, _columns(model))
        if not isinstance(tree, DecisionTreeRegressor) or tree.tree_.value.shape[1:] != (1, 1):
            raise ValueError("a boosted tree with several values per leaf")


# ---- boosting on histograms --------------------------------------------------------------------


def _check_predictor(tree: Any) -> None:
    nodes = tree.nodes
    for flag in ("is_leaf", "is_categorical"):  # native code takes any other number for 1
        if np.any(nodes[flag] > 1):
            raise ValueError("a tree with flags that aren't 0 or 1")
    inner = np.flatnonzero(nodes["is_leaf"] == 0)
    children = nodes["left"][inner], nodes["right"][inner]
    _check_places(inner, children, len(nodes), nodes["feature_idx"][inner], None)
    chosen = nodes["bitset_idx"][nodes["is_categorical"] == 1]
    known = tree.raw_left_cat_bitsets
    if known.shape[1:] != (BITSET,) or (len(chosen) and chosen.max() >= len(known)):
        raise ValueError("a tree with categories that don't exist")


def _check_histogram_boosting(model: Any) -> None:
    """Raise unless trees use the model's columns, and categories only where there are some."""
    columns = _columns(model)
    if model._preprocessor is not None and _width(model._preprocessor) != columns:
        raise ValueError("a model that prepares another number of features")
    found = model._bin_mapper.is_categorical_
    categorical = np.zeros(columns, np.bool_) if found is None else np.asarray(found, np.bool_)
    if categorical.shape != (columns,):
        raise ValueError("categories of another number of features")
    for tree in (tree for row in model._predictors for tree in row):
        if not isinstance(tree, TreePredictor):
            raise ValueError("an ensemble of other things than trees")
        nodes = tree.nodes
        if int(nodes["feature_idx"].max(initial=0)) >= columns:
            raise ValueError("a tree for another number of features")
        asked = nodes["feature_idx"][(nodes["is_categorical"] == 1) & (nodes["is_leaf"] == 0)]
        if not categorical[asked].all():
            raise ValueError("a tree with categories that don't exist")


def _width(preprocessor: Any) -> int:
    """Return the number of columns after categories are moved to the front."""
    if type(preprocessor) is not ColumnTransformer:
        raise ValueError("an unknown preprocessor")
    width = 0
    for _, part, chosen in preprocessor.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        checks = type(part) is FunctionTransformer and part.func.func is check_array
        if not (checks or type(part) is OrdinalEncoder) or np.asarray(chosen).dtype != np.bool_:
            raise ValueError("an unknown preprocessor")
        width += int(np.count_nonzero(chosen))
    return width


def _check_places(
    inner: Indices,
    children: tuple[NDArray[Any], NDArray[Any]],
    nodes: int,
    features: NDArray[Any],
    n_features: int | None,
) -> None:
    """Raise unless children are later nodes, and features are columns."""
    if nodes < 1:
        raise ValueError("a tree without nodes")
    for child in children:
        if np.any(child.astype(np.int64) <= inner) or np.any(child.astype(np.int64) >= nodes):
            raise ValueError("a tree whose children don't exist")
    signed = features.astype(np.int64)
    if np.any(signed < 0) or (n_features is not None and np.any(signed >= n_features)):
        raise ValueError("a tree for another number of features")
