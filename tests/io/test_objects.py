"""scikit-learn objects: only allowed types, and only trees with valid indices, are loaded."""

from __future__ import annotations

import copy
import functools
import io
import json
import os
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomTreesEmbedding,
)
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeRegressor
from sklearn.utils import Bunch
from sklearn.utils.validation import check_array

from fairdial import InvalidInputError, ModelFileError
from fairdial.io.objects import read_objects, write_objects

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
X[:, 2] = RNG.integers(0, 4, 200)
Y = (X[:, 0] + RNG.normal(size=200) > 0).astype(int)
LOGISTIC = LogisticRegression().fit(X, Y)
BODY, _ = write_objects({"fitted": LOGISTIC}, "file")


def boosting() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=3, categorical_features=[2]).fit(X, Y)


def refused(objects: dict[str, Any]) -> None:
    body, types = write_objects(objects, "file")
    with pytest.raises(ModelFileError, match="`file`"):
        read_objects(body, "file", types)


@pytest.mark.parametrize(
    "estimator",
    [
        LOGISTIC,
        DecisionTreeClassifier().fit(X, Y),
        RandomForestClassifier(3).fit(X, Y),
        GradientBoostingClassifier(n_estimators=3).fit(X, Y),
        boosting(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_allowed_types_need_no_trust(estimator: Any) -> None:
    body, types = write_objects({"a": estimator, "b": [estimator]}, "file")
    assert types == []
    found = read_objects(body, "file")
    assert found["a"] is found["b"][0]
    assert found["a"].predict_proba(X).tobytes() == estimator.predict_proba(X).tobytes()


def test_other_types_are_named_and_allowed_one_by_one() -> None:
    neighbors = KNeighborsClassifier(algorithm="kd_tree").fit(X, Y)
    body, types = write_objects({"fitted": neighbors}, "some.skops")
    assert "sklearn.neighbors._kd_tree.KDTree" in types
    with pytest.raises(ModelFileError, match=r"`some\.skops`"):
        read_objects(body, "some.skops")
    found = read_objects(body, "some.skops", types)["fitted"]
    assert np.array_equal(found.predict(X), neighbors.predict(X))


def test_functions_and_code_are_not_allowed() -> None:
    for bad in (os.system, eval, print, zipfile.ZipFile, copy.deepcopy):
        body, types = write_objects({"fitted": [bad]}, "file")
        assert types
        with pytest.raises(ModelFileError, match=bad.__name__):
            read_objects(body, "file")


def test_a_forged_type_is_not_even_imported(tmp_path, monkeypatch) -> None:
    (tmp_path / "evil_module.py").write_text("raise SystemExit('run')")
    monkeypatch.syspath_prepend(tmp_path)
    body = change(lambda schema: schema.update(__module__="evil_module", __class__="Evil"))
    with pytest.raises(ModelFileError, match=r"evil_module\.Evil"):
        read_objects(body, "file")


def change(edit: Any, compression: int = zipfile.ZIP_STORED) -> bytes:
    """The logistic regression's file with another schema."""
    new = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(BODY)) as old,
        zipfile.ZipFile(new, "w", compression) as archive,
    ):
        for name in old.namelist():
            data = old.read(name)
            if name == "schema.json":
                schema = json.loads(data)
                edit(schema["content"]["fitted"])
                data = json.dumps(schema).encode()
            archive.writestr(name, data)
    return new.getvalue()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"PK\x05\x06" + b"\0" * 18,  # an empty archive
        pickle.dumps({"fitted": 1}),
        b"cos\nabort\n(tR.",
        BODY[:-100],
        BODY[100:],
        change(lambda schema: schema.clear()),
        change(lambda schema: schema.update(__loader__="NoSuchNode")),
        change(lambda schema: schema["content"].clear()),
        change(lambda _: None, zipfile.ZIP_DEFLATED),
    ],
)
def test_files_that_skops_did_not_write_are_refused_by_name(body: bytes) -> None:
    with pytest.raises(ModelFileError, match="`file`"):
        read_objects(body, "file")


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_an_altered_file_is_read_or_refused_and_nothing_else(place: int, flip: int) -> None:
    altered = bytearray(BODY)
    altered[place] ^= flip
    try:
        found = read_objects(bytes(altered), "file")
    except ModelFileError:
        return
    assert isinstance(found, dict)


def test_what_skops_cannot_write_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="generator"):
        write_objects({"fitted": (i for i in range(3))}, "file")


# ---- what no file may do -----------------------------------------------------------------------


def test_a_stand_in_for_an_estimator_is_refused() -> None:
    """Otherwise native code adds the values of trees past the end of a one-row array."""
    forged = GradientBoostingClassifier(n_estimators=3).fit(X, Y)
    answer = functools.partial(check_array, np.full((1, 2), 0.5))
    forged.init_ = Bunch(predict_proba=answer)
    body, types = write_objects({"fitted": forged}, "file")
    assert types == ["sklearn.utils._bunch.Bunch"]
    with pytest.raises(ModelFileError, match="Bunch"):
        read_objects(body, "file")
    refused({"fitted": forged})  # even if somebody trusts the type
    forged.init_ = LogisticRegression().fit(X, Y)
    refused({"fitted": forged})


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(check_array, X),
        functools.partial(check_array, dtype=[np.float64], estimator=LOGISTIC),
        functools.partial(np.save, "file"),
    ],
)
def test_partial_functions_are_refused(function: Any) -> None:
    refused({"fitted": [function]})


@pytest.mark.parametrize("flag", ["is_categorical", "is_leaf"])
def test_flags_other_than_0_and_1_are_refused(flag: str) -> None:
    """Native code takes 2 for true, and would read a set of categories outside the array."""
    forged = boosting()
    nodes = forged._predictors[0][0].nodes
    nodes[flag][0] = 2
    nodes["bitset_idx"][0] = 0xFFFFFF0
    refused({"fitted": forged})


def test_vectorizers_that_read_files_are_refused() -> None:
    for kind in (CountVectorizer, TfidfVectorizer, HashingVectorizer):
        refused({"fitted": kind(input="filename")})
    refused({"fitted": Pipeline([("last", LOGISTIC)], memory="folder")})


# ---- trees -------------------------------------------------------------------------------------


def forged_tree(field: str, value: int, node: int = 0) -> DecisionTreeClassifier:
    tree = DecisionTreeClassifier(max_depth=3).fit(X, Y)
    state = copy.deepcopy(tree.tree_.__getstate__())
    state["nodes"][field][node] = value
    kind, arguments, _ = tree.tree_.__reduce__()
    tree.tree_ = kind(*arguments)
    tree.tree_.__setstate__(state)
    return tree


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left_child", 10**6),
        ("left_child", 0),
        ("left_child", -7),
        ("right_child", 10**6),
        ("right_child", 0),
        ("right_child", -1),
        ("feature", 3),
        ("feature", -2),
        ("feature", 2**40),
    ],
)
def test_a_tree_with_wrong_indices_is_refused(field: str, value: int) -> None:
    refused({"fitted": [forged_tree(field, value)]})


def test_a_tree_for_other_features_is_refused() -> None:
    tree = DecisionTreeClassifier().fit(X, Y)
    tree.n_features_in_ = 2
    refused({"fitted": tree})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left", 10**6),
        ("left", 0),
        ("right", 10**6),
        ("feature_idx", 3),
        ("feature_idx", -1),
        ("bitset_idx", 10**6),
    ],
)
def test_a_boosted_tree_with_wrong_indices_is_refused(field: str, value: int) -> None:
    model = boosting()
    nodes = [tree.nodes for row in model._predictors for tree in row]
    inner = "is_categorical" if field == "bitset_idx" else "is_leaf"
    wanted = 1 if field == "bitset_idx" else 0
    tree = next(n for n in nodes if (n[inner] == wanted).any())
    tree[field][np.flatnonzero(tree[inner] == wanted)[0]] = value
    refused({"fitted": {"inside": (model,)}})


def test_a_boosted_tree_without_nodes_is_refused() -> None:
    model = boosting()
    model._predictors[0][0].nodes = model._predictors[0][0].nodes[:0]
    refused({"fitted": model})


WIDE = np.zeros((20, 50))
WIDE[:, 49] = np.arange(20)


@pytest.mark.parametrize(
    "forest",
    [
        RandomForestClassifier(3).fit(X, Y),
        ExtraTreesClassifier(3).fit(X, Y),
        RandomTreesEmbedding(3).fit(X),
        IsolationForest(n_estimators=3, max_features=2).fit(X),
        GradientBoostingClassifier(n_estimators=3).fit(X, Y),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_tree_of_an_ensemble_is_for_the_ensembles_features(forest: Any) -> None:
    body, types = write_objects({"fitted": forest}, "file")
    read_objects(body, "file", types)
    forged = copy.deepcopy(forest)
    trees = forged.estimators_
    kind = {RandomTreesEmbedding: ExtraTreeRegressor, IsolationForest: ExtraTreeRegressor}
    wide = DecisionTreeClassifier().fit(WIDE, np.arange(20) % 2)
    if type(forest) in kind:
        wide = kind[type(forest)]().fit(WIDE, np.arange(20.0))
    if isinstance(trees, np.ndarray):
        wide = DecisionTreeRegressor().fit(WIDE, np.arange(20.0))
        trees[1, 0] = wide
    else:
        trees[1] = wide
    refused({"fitted": forged})
    if isinstance(trees, np.ndarray):
        trees[1, 0] = LOGISTIC
    else:
        trees[1] = LOGISTIC
    refused({"fitted": forged})


def test_steps_of_boosting_have_one_tree_with_one_value_a_leaf() -> None:
    model = GradientBoostingClassifier(n_estimators=2).fit(X, Y)
    forged = copy.deepcopy(model)
    forged.estimators_ = np.tile(model.estimators_, (1, 60))
    refused({"fitted": forged})
    forged = copy.deepcopy(model)
    forged.n_trees_per_iteration_ = 0
    refused({"fitted": forged})
    forged = copy.deepcopy(model)
    forged.estimators_[1, 0] = DecisionTreeRegressor().fit(X, np.c_[Y, Y])
    refused({"fitted": forged})


def test_an_ensemble_without_a_number_of_features_is_refused() -> None:
    for number in ("3", np.array([3])):
        forged = RandomForestClassifier(2).fit(X, Y)
        forged.n_features_in_ = number
        refused({"fitted": forged})
    forged = RandomForestClassifier(2).fit(X, Y)
    del forged.n_features_in_
    refused({"fitted": forged})


def test_boosting_on_histograms_prepares_its_own_features() -> None:
    model = boosting()
    first = model._preprocessor.transformers_[0]
    forged = copy.deepcopy(model)
    forged._preprocessor.transformers_[0] = (*first[:2], np.zeros(3, bool))
    refused({"fitted": forged})
    forged._preprocessor.transformers_[0] = ("encoder", "drop", first[2])
    refused({"fitted": forged})
    forged._preprocessor.transformers_[0] = ("encoder", RandomTreesEmbedding(), first[2])
    refused({"fitted": forged})
    forged._preprocessor = LOGISTIC
    refused({"fitted": forged})
    forged = copy.deepcopy(model)
    forged._bin_mapper.is_categorical_ = np.zeros(3, np.uint8)
    refused({"fitted": forged})
    forged._bin_mapper.is_categorical_ = np.zeros(2, np.uint8)
    refused({"fitted": forged})


def test_an_object_with_methods_of_its_own_is_refused() -> None:
    tree = DecisionTreeClassifier().fit(X, Y)
    tree._validate_X_predict = functools.partial(check_array)
    refused({"fitted": tree})
