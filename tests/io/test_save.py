"""Whatever is saved comes back: the same decisions to the last bit, the same settings."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import textwrap
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from torch import nn

import fairdial
from fairdial import (
    EPO,
    GFB,
    YOTO,
    Budget,
    Costs,
    FairBayes,
    FairBiNN,
    FairdialWarning,
    InvalidInputError,
    ModelFileError,
    Network,
    TableEncoder,
    criterion,
    minimum,
)
from fairdial.core.criteria import Criterion
from fairdial.core.demands import Demand
from fairdial.core.rates import SELECTION, TRUE_POSITIVE, Rate
from fairdial.io import networks
from fairdial.io.manifest import digest_of

RNG = np.random.default_rng(0)
SIZE = 1500
GROUPS = RNG.choice(["ann", "bob"], SIZE, p=[0.55, 0.45])
NUMBERS = RNG.normal(size=(SIZE, 3)) + (GROUPS == "bob")[:, None] * 0.4
Y = (NUMBERS.sum(axis=1) + RNG.logistic(size=SIZE) > 1.0).astype(int)
TABLE = pd.DataFrame(NUMBERS, columns=["a", "b", "c"]).assign(
    job=pd.Categorical(RNG.choice(["cook", "nurse", "pilot"], SIZE)),
    text=RNG.choice(["x", "y"], SIZE),
    count=RNG.integers(0, 9, SIZE),
    group=GROUPS,
    sex=RNG.choice(["f", "m"], SIZE),
)
MIXED = TABLE.drop(columns=["group", "sex"])
WIDE = pd.DataFrame(np.random.default_rng(1).normal(size=(SIZE, 300))).add_prefix("x")
NEW = slice(1100, None)
TOLERANCES = (0.0, 0.03, 0.1, 1.0)


def quick(**settings: Any) -> Network:
    base: dict[str, Any] = {"members": 2, "hidden": (6, 5), "head": 4, "epochs": 2}
    return Network(**(base | {"batch_size": 64, "average": None} | settings))


class Trunk(nn.Module):
    """A module of the user's own, with a buffer and weights that are used twice."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, width), nn.BatchNorm1d(width)
        self.again = nn.Linear(width, width)
        self.tied = self.again
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(torch.relu(self.first(x)))
        return torch.relu(self.tied(self.again(x))) + self.mask[0]

    def spec(self) -> dict[str, Any]:
        return {"width": self.first.out_features}


def boosting() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        max_iter=8, categorical_features="from_dtype", random_state=0
    )


def pipeline() -> Any:
    columns = make_column_transformer(
        (StandardScaler(), ["a", "b", "c"]), (OneHotEncoder(), ["job", "text"])
    )
    return make_pipeline(columns, LogisticRegression())


NO_TEXT = MIXED.drop(columns="text")
LOGISTIC = LogisticRegression()
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    # name: estimator, rows, what else fit is given
    "logistic": (FairBayes(LOGISTIC), NUMBERS, {}),
    "pipeline": (FairBayes(pipeline(), criterion="equal_opportunity"), MIXED, {}),
    "boosting": (FairBayes(boosting(), tolerance=0.05), NO_TEXT, {}),
    "forests": (
        FairBayes(RandomForestClassifier(4, random_state=0), per_group=True),
        NUMBERS,
        {},
    ),
    "folds": (FairBayes(RandomForestClassifier(3, random_state=0), cv=2), NUMBERS, {}),
    "several": (FairBayes([boosting(), quick(), quick(members=1)]), NO_TEXT, {}),
    "several by group": (FairBayes([LOGISTIC, boosting()], per_group=True), NUMBERS, {}),
    "folds of several": (FairBayes([quick(members=1), LOGISTIC, quick()], cv=2), NUMBERS, {}),
    "folds of networks": (FairBayes(quick(encoder=StandardScaler()), cv=2), NUMBERS, {}),
    "folds by group": (FairBayes(LOGISTIC, cv=2, per_group=True), NUMBERS, {}),
    "prefit": (FairBayes(LogisticRegression().fit(NUMBERS, Y), prefit=True), NUMBERS, {}),
    "margins": (FairBayes(LOGISTIC, predict_method="decision_function"), NUMBERS, {}),
    "recalibrated": (FairBayes(LOGISTIC, recalibrate="group"), NUMBERS, {}),
    "criterion": (FairBayes(LOGISTIC, criterion=criterion("predictive_equality")), NUMBERS, {}),
    "generator": (FairBayes(LOGISTIC, random_state=np.random.RandomState(3)), NUMBERS, {}),
    "column": (
        FairBayes(boosting(), sensitive_column="group"),
        TABLE.drop(columns=["text", "sex"]),
        {"groups": None},
    ),
    "intersections": (
        FairBayes(pipeline(), min_count=10),
        MIXED,
        {"groups": TABLE[["group", "sex"]]},
    ),
    "columns": (
        FairBayes(pipeline(), sensitive_column=["group", "sex"], min_count=10),
        TABLE,
        {"groups": None},
    ),
    "network": (FairBayes(quick()), MIXED, {}),
    "default network": (
        FairBayes(min_count=5),
        MIXED[:150],
        {"y": Y[:150], "groups": GROUPS[:150]},
    ),
    "network by group": (FairBayes(quick(shared=False, norm=True, bare=True)), MIXED, {}),
    "recalibrated network": (GFB(network=quick(), recalibrate="group"), MIXED, {}),
    "numbers": (GFB(network=quick(encoder=None, dropout=0.1)), NUMBERS, {}),
    "tensors": (GFB(network=quick()), torch.tensor(NUMBERS), {}),
    "embeddings": (FairBayes(quick()), WIDE, {}),
    "embeddings with gaps": (GFB(network=quick()), WIDE.where(WIDE < 2.5), {}),
    "EPO on embeddings": (EPO(2, network=quick()), WIDE.to_numpy(), {}),
    "scaler": (GFB(network=quick(encoder=StandardScaler())), NUMBERS, {}),
    "encoder": (GFB(network=quick(encoder=TableEncoder(n_bins=4))), MIXED, {}),
    "blind": (FairBayes(quick(group_input="none")), MIXED, {}),
    "blind trunk": (GFB(network=quick(group_input="head")), MIXED, {}),
    "linear head": (GFB(network=quick(head=0, members=1)), MIXED, {}),
    "EPO": (EPO(3, network=quick()), MIXED, {}),
    "EPO by group": (EPO(2, network=quick(shared=False), criterion="equal_opportunity"), MIXED, {}),
    "FairBiNN": (FairBiNN(3, widen=1, network=quick()), MIXED, {}),
    "YOTO": (YOTO(network=quick(), film=(8, 2)), MIXED, {}),
    "YOTO raw": (YOTO(network=quick(shared=False), condition="raw", film=(4, 1)), NUMBERS, {}),
    "three groups": (FairBayes(quick(), min_count=10), MIXED, {"groups": TABLE["job"]}),
    "one group": (FairBayes(LOGISTIC), NUMBERS, {"groups": None}),
    "family of one group": (EPO(2, network=quick()), MIXED, {"groups": None}),
    "texts": (FairBayes(LOGISTIC), NUMBERS, {"y": np.array(["no", "yes"])[Y]}),
    "objects": (FairBayes(LOGISTIC), NUMBERS, {"y": np.array(["no", "yes"], object)[Y]}),
    "booleans": (FairBayes(LOGISTIC), NUMBERS, {"y": Y.astype(bool)}),
    "floats": (FairBayes(LOGISTIC), NUMBERS, {"y": np.array([-1.0, 2.0])[Y]}),
    "bytes": (FairBayes(LOGISTIC, pos_label=np.int8(0)), NUMBERS, {"y": Y.astype(np.int8)}),
    "whole groups": (FairBayes(LOGISTIC), NUMBERS, {"groups": (GROUPS == "ann") * 7 + 3}),
    "true groups": (FairBayes(LOGISTIC), NUMBERS, {"groups": GROUPS == "ann"}),
    "real groups": (FairBayes(LOGISTIC), NUMBERS, {"groups": (GROUPS == "ann") + 0.5}),
    "tuple groups": (
        FairBayes(LOGISTIC, per_group=True),
        NUMBERS,
        {"groups": pd.Series([(name, 1) for name in GROUPS])},
    ),
    "odd groups": (
        FairBayes(LOGISTIC),
        NUMBERS,
        {"groups": np.where(GROUPS == "ann", 'a|"\n\u2603', "")},
    ),
}
FITTED: dict[str, Any] = {}


def quietly(method: Any, *args: Any, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return method(*args, **settings)


def take(values: Any, rows: slice) -> Any:
    return values.iloc[rows] if hasattr(values, "iloc") else values[rows]


def parts(name: str, rows: slice = slice(None)) -> tuple[Any, Any, Any]:
    """Rows, labels and groups of a case."""
    _, X, given = CASES[name]
    groups = given.get("groups", GROUPS)
    return (
        take(X, rows),
        take(given.get("y", Y), rows),
        None if groups is None else take(groups, rows),
    )


def fitted(name: str) -> Any:
    if name not in FITTED:
        model = CASES[name][0]
        if model.random_state is None:
            model.set_params(random_state=0)
        X, y, groups = parts(name)
        FITTED[name] = quietly(model.fit, X, y, sensitive_features=groups)
    return FITTED[name]


def same_frame(one: pd.DataFrame | None, other: pd.DataFrame | None) -> None:
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        pd.testing.assert_frame_equal(one, other, check_exact=True)


def check_same(name: str, one: Any, other: Any) -> None:
    """Both are the same model, in everything that can be asked of it."""
    X, y, groups = parts(name, NEW if len(CASES[name][1]) == SIZE else slice(None))
    assert type(one) is type(other)
    assert one.classes_.dtype == other.classes_.dtype
    assert one.classes_.tolist() == other.classes_.tolist()
    for wish in TOLERANCES:
        asked = {"sensitive_features": groups, "tolerance": wish}
        before = quietly(one.decision_function, X, **asked)
        after = quietly(other.decision_function, X, **asked)
        assert before.tobytes() == after.tobytes()
        before, after = quietly(one.predict, X, **asked), quietly(other.predict, X, **asked)
        assert before.dtype == after.dtype
        assert before.tolist() == after.tolist()
        assert quietly(one.score, X, y, **asked) == quietly(other.score, X, y, **asked)
    flips = [quietly(m.flips, X, 0.2, 0.0, sensitive_features=groups) for m in (one, other)]
    assert flips[0].tolist() == flips[1].tolist()
    same_frame(one.frontier_.to_frame(), other.frontier_.to_frame())
    assert one.frontier_.groups == other.frontier_.groups
    assert list(map(type, one.frontier_.groups)) == list(map(type, other.frontier_.groups))
    assert one.frontier_.criterion == other.frontier_.criterion
    assert one.frontier_.certificate == other.frontier_.certificate
    for frame in ("history_", "spanned_", "search_"):
        assert hasattr(one, frame) == hasattr(other, frame)
        if hasattr(one, frame):
            same_frame(getattr(one, frame), getattr(other, frame))
    known = set(vars(one)) ^ set(vars(other))
    converted = {"plain_", "plain_error_"}
    assert known - converted <= {"model_hash_", "trained_groups_", "platt_", "validation_rows_"}
    for attribute in ("best_epoch_", "n_features_in_", "feature_dtypes_", "trained_groups_"):
        assert getattr(one, attribute, None) == getattr(other, attribute, None)
    if hasattr(one, "feature_names_in_"):
        assert one.feature_names_in_.tolist() == other.feature_names_in_.tolist()
        assert one.feature_names_in_.dtype == other.feature_names_in_.dtype


@pytest.mark.parametrize("name", CASES)
def test_a_model_comes_back_to_the_last_bit_and_so_does_what_came_back(name, tmp_path) -> None:
    model = fitted(name)
    first = model.save(tmp_path / "one")
    again = fairdial.load(tmp_path / "one")
    check_same(name, model, again)
    assert again.model_hash_ == first
    assert not hasattr(model, "model_hash_")
    if name not in ("generator", "scaler", "encoder"):
        assert repr(again) == repr(model)
    second = again.save(tmp_path / "two")
    if (tmp_path / "one" / "objects.skops").exists():  # skops names objects by their place
        check_same(name, model, fairdial.load(tmp_path / "two"))
    else:
        assert second == first


@pytest.mark.parametrize("name", ["boosting", "prefit", "tuple groups", "network", "EPO", "YOTO"])
def test_a_loaded_model_can_be_calibrated_and_is_another_then(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    fresh = fairdial.load(tmp_path / "model")
    X, y, groups = parts(name, slice(0, 500))
    quietly(again.calibrate, X, y, sensitive_features=groups)
    quietly(fresh.calibrate, X, y, sensitive_features=groups)
    check_same(name, again, fresh)
    assert again.frontier_.counts.sum() == 500
    assert not hasattr(again, "model_hash_")


@pytest.mark.parametrize("name", ["pipeline", "prefit", "network", "scaler", "EPO", "YOTO"])
def test_a_loaded_model_can_be_fitted_again_with_the_same_result(name, tmp_path) -> None:
    model = fitted(name)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    X, y, groups = parts(name)
    quietly(again.fit, X, y, sensitive_features=groups)
    assert not hasattr(again, "model_hash_")
    before = fairdial.load(tmp_path / "model")
    for each in (before, again):
        vars(each).pop("history_", None)  # tells the seconds
    check_same(name, before, again)


def test_a_warm_start_goes_on_from_loaded_weights(tmp_path) -> None:
    model = GFB(network=quick(), warm_start=True, random_state=0)
    quietly(model.fit, MIXED, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    for each in (model, again):
        quietly(each.fit, MIXED, Y, sensitive_features=GROUPS)
        del each.history_
    check_same("network", model, again)


@pytest.mark.parametrize("name", ["logistic", "recalibrated", "network", "EPO", "YOTO"])
def test_a_model_that_was_not_calibrated_yet_can_be_afterwards(name: str, tmp_path: Path) -> None:
    kind, X, _ = CASES[name]
    model = type(kind)(**kind.get_params(deep=False) | {"calibration": None, "random_state": 0})
    quietly(model.fit, take(X, slice(0, 600)), Y[:600], sensitive_features=GROUPS[:600])
    model.save(tmp_path / "model")
    assert not (tmp_path / "model" / "frontier.safetensors").exists()
    again = fairdial.load(tmp_path / "model")
    assert not hasattr(again, "frontier_")
    for each in (model, again):
        quietly(each.calibrate, take(X, NEW), Y[NEW], sensitive_features=GROUPS[NEW])
    check_same(name, model, again)


def test_a_fitted_estimator_is_saved_before_fit_was_called(tmp_path) -> None:
    model = FairBayes(LogisticRegression().fit(NUMBERS, Y), prefit=True)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    again.calibrate(NUMBERS, Y, sensitive_features=GROUPS)
    model.calibrate(NUMBERS, Y, sensitive_features=GROUPS)
    check_same("prefit", model, again)
    assert again.estimator is again.estimator_


def test_a_dial_without_labels_and_a_thinned_one_come_back(tmp_path) -> None:
    model = FairBayes(LOGISTIC, recalibrate="group", random_state=0)
    quietly(model.fit, NUMBERS, Y, sensitive_features=GROUPS)
    model.calibrate(NUMBERS, sensitive_features=GROUPS)
    model.save(tmp_path / "unlabelled")
    check_same("logistic", model, fairdial.load(tmp_path / "unlabelled"))
    assert fairdial.load(tmp_path / "unlabelled").frontier_.accuracy is None
    model.frontier_ = model.frontier_.thin(9)
    model.save(tmp_path / "thin")
    check_same("logistic", model, fairdial.load(tmp_path / "thin"))
    assert len(fairdial.load(tmp_path / "thin").frontier_) <= 10


@pytest.mark.parametrize("name", ["logistic", "network", "prefit", "folds"])
def test_what_is_known_of_the_training_comes_back(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    held = 0 if name == "folds" else model.frontier_.counts.sum()
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    expected = None if name == "prefit" else model.training_
    assert getattr(again, "training_", None) == expected
    if expected is not None:
        assert expected["rows"] + held == SIZE
    calibrated = quietly(again.calibrate, *parts(name)[:2], sensitive_features=GROUPS)
    assert getattr(calibrated, "training_", None) == expected


def test_settings_that_were_changed_after_the_fit_do_not_matter(tmp_path) -> None:
    model = FairBayes(LOGISTIC, per_group=True, random_state=0)
    quietly(model.fit, NUMBERS, Y, sensitive_features=GROUPS)
    model.set_params(per_group=False, cv=3, estimator=None)
    model.save(tmp_path / "one")
    check_same("logistic", model, fairdial.load(tmp_path / "one"))
    network = FairBayes(quick(), random_state=0)
    quietly(network.fit, MIXED, Y, sensitive_features=GROUPS)
    network.set_params(estimator=LOGISTIC, tolerance=0.3)
    network.save(tmp_path / "two")
    check_same("network", network, fairdial.load(tmp_path / "two"))


def test_a_column_of_a_type_that_is_not_known_here_is_an_object(tmp_path) -> None:
    model = FairBayes(LOGISTIC, random_state=0)
    quietly(model.fit, MIXED[["a", "b"]], Y, sensitive_features=GROUPS)
    model.feature_dtypes_["b"] = "geometry"
    model.save(tmp_path / "model")
    found = fairdial.load(tmp_path / "model").feature_dtypes_
    assert found == {"a": np.dtype(float), "b": np.dtype(object)}


def test_infinite_scores_come_back(tmp_path) -> None:
    forest = RandomForestClassifier(1, random_state=0)  # probabilities 0 and 1
    model = FairBayes(forest, random_state=0)
    quietly(model.fit, NUMBERS, Y, sensitive_features=GROUPS)
    assert np.isinf(model.frontier_.points.group_scores[0].lower).any()
    model.save(tmp_path / "model")
    check_same("logistic", model, fairdial.load(tmp_path / "model"))


# ---- trunks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FairBayes, GFB, EPO, YOTO])
@pytest.mark.parametrize("trunk", [Trunk, Trunk(5)], ids=["made", "copied"])
def test_a_custom_trunk_gets_its_weights_back(kind: Any, trunk: Any, tmp_path) -> None:
    network = quick(trunk=trunk, encoder=None, members=1)
    model = kind(network) if kind is FairBayes else kind(network=network)
    model.set_params(random_state=0, **({"n_settings": 2} if kind is EPO else {}))
    quietly(model.fit, NUMBERS, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model", trunk=Trunk)
    check_same("logistic", model, again)
    settings = again.estimator if kind is FairBayes else again.network
    assert settings.trunk is Trunk
    with pytest.raises(ModelFileError, match="Trunk"):
        fairdial.load(tmp_path / "model")
    with pytest.raises(ModelFileError, match="`trunk`"):
        fairdial.load(tmp_path / "model", trunk=partial(Trunk, 6))
    with pytest.raises(ModelFileError, match="`trunk`"):
        fairdial.load(tmp_path / "model", trunk=lambda: 1 / 0)
    with pytest.raises(ModelFileError, match="`trunk`"):
        fairdial.load(tmp_path / "model", trunk=lambda: "none")


def test_a_trunk_of_the_librarys_own_needs_no_help(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(networks.TRUNKS, "mine", Trunk)
    model = GFB(network=quick(trunk=partial(Trunk, width=7), encoder=None), random_state=0)
    quietly(model.fit, NUMBERS, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    check_same("logistic", model, again)
    assert again.network.trunk().spec() == {"width": 7}
    with pytest.raises(InvalidInputError) as caught:
        fairdial.load(tmp_path / "model", trunk=Trunk)
    assert caught.value.argument == "trunk"


def test_a_model_from_a_device_that_is_not_here_is_loaded_to_the_cpu(tmp_path) -> None:
    model = GFB(network=quick(), random_state=0)
    quietly(model.fit, MIXED, Y, sensitive_features=GROUPS)
    model.network.device = "cuda:9"
    model.save(tmp_path / "model")
    with pytest.warns(FairdialWarning, match="'cuda:9'"):
        again = fairdial.load(tmp_path / "model")
    check_same("network", model, again)


# ---- what can't be saved, what is left out -----------------------------------------------------


def test_which_rows_stopped_the_training_is_not_kept(tmp_path) -> None:
    model = FairBayes(quick(validation=np.arange(SIZE) % 9 == 0), random_state=0)
    quietly(model.fit, MIXED, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert again.estimator.validation == Network().validation
    assert again.thresholds(0.05) == model.thresholds(0.05)


def test_callbacks_and_checkpoints_are_left_out(tmp_path) -> None:
    class Watcher:
        def on_epoch_end(self, *_: Any) -> None: ...

    network = quick(callbacks=[Watcher()], checkpoint=tmp_path / "checkpoint")
    model = GFB(network=network, random_state=0)
    quietly(model.fit, MIXED, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert again.network.callbacks is None
    assert again.network.checkpoint is None
    assert str(tmp_path) not in (tmp_path / "model" / "manifest.json").read_text()


def test_rates_and_conditions_that_are_code_are_refused(tmp_path) -> None:
    def is_even(control: Any) -> Any:
        return control["number"] % 2 == 0

    rate = Rate("mine", None, SELECTION.link, SELECTION.slope, SELECTION.inverse, (-1.0, 1.0))
    control = pd.DataFrame({"number": np.arange(len(Y))})
    for own, argument in ((Criterion("mine", (rate,)), "criterion"),
                          (minimum("selection_rate", 0.1, where=is_even), "where")):  # fmt: skip
        model = FairBayes(LOGISTIC, criterion=own, random_state=0)
        more = {} if argument == "criterion" else {"control_features": control}
        quietly(model.fit, NUMBERS, Y, sensitive_features=GROUPS, **more)
        with pytest.raises(InvalidInputError, match=f"`{argument}`"):
            model.save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []


PROBLEMS: dict[str, dict[str, Any]] = {
    "text": {"criterion": "equalized_odds+true_positive_rate>=0.1"},
    "mapping": {"criterion": {"demographic_parity": 0.1, "equal_opportunity": 0.05}},
    "list": {"criterion": ["demographic_parity_ratio", minimum("true_positive_rate", 0.1)]},
    "demand": {"criterion": Demand(TRUE_POSITIVE, "ratio", 0.5), "nested": True},
    "costs": {"objective": Costs(1, 5), "rising": True},
    "budget": {"budget": Budget(0.3, exact=True), "criterion": Criterion("mine", (SELECTION,))},
    "rows": {"budget": 40, "objective": "f1"},
    "lottery": {"criterion": "equalized_odds", "randomize": "hash"},
    "tolerance": {"criterion": {"equal_opportunity": 0.1}, "tolerance": None},
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_any_problem_comes_back_to_the_last_bit(name: str, tmp_path) -> None:
    model = FairBayes(LOGISTIC, random_state=0, **PROBLEMS[name])
    quietly(model.fit, NUMBERS, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    for parameter in ("criterion", "objective", "budget", "nested", "rising", "randomize"):
        assert getattr(again, parameter) == getattr(model, parameter)
        assert type(getattr(again, parameter)) is type(getattr(model, parameter))
    assert again.default_tolerance == model.default_tolerance
    assert again.problem == model.problem
    assert again.frontier_.to_json() == model.frontier_.to_json()
    decide = (quietly(m.predict, NUMBERS, sensitive_features=GROUPS) for m in (model, again))
    assert np.array_equal(*decide)


def test_conditions_that_are_columns_come_back(tmp_path) -> None:
    kind = minimum("selection_rate", 0.1, where="old")
    model = FairBayes(LOGISTIC, criterion=[kind, "demographic_parity"], random_state=0)
    control = pd.DataFrame({"old": np.arange(len(Y)) % 2 == 0})
    quietly(model.fit, NUMBERS, Y, sensitive_features=GROUPS, control_features=control)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert again.criterion == model.criterion
    assert again.frontier_.criterion == model.frontier_.criterion


def test_models_of_version_2_lack_the_newer_parameters(tmp_path) -> None:
    model = quietly(FairBayes(LOGISTIC, random_state=0).fit, NUMBERS, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    place = tmp_path / "model" / "manifest.json"
    manifest = json.loads(place.read_text())
    for name in ("objective", "budget", "nested", "rising", "randomize"):
        del manifest["parameters"][name]

    def write(version: int) -> None:
        body = json.dumps(manifest | {"version": version}).encode()
        place.write_bytes(body)
        place.with_name("manifest.sha256").write_bytes(digest_of(body))

    write(2)
    assert fairdial.load(tmp_path / "model").objective == "accuracy"
    for version in (3, 4, 5):
        write(version)
        with pytest.raises(ModelFileError):
            fairdial.load(tmp_path / "model")


def test_an_unregistered_estimator_is_refused(tmp_path) -> None:
    class Mine(FairBayes):
        pass

    model = quietly(Mine(LOGISTIC).fit, NUMBERS, Y, sensitive_features=GROUPS)
    with pytest.raises(InvalidInputError, match="Mine"):
        model.save(tmp_path / "model")


def test_an_estimator_that_skops_cannot_save_is_refused(tmp_path) -> None:
    class Local:
        classes_ = np.array([0, 1])

        def __init__(self) -> None:
            self.code = (row for row in range(3))

        def predict(self, X: Any) -> Any:
            return np.zeros(len(X), int)

    model = FairBayes(Local(), prefit=True)
    with pytest.raises(InvalidInputError, match="`estimator`"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_loaded_is_not_saved(tmp_path) -> None:
    code = make_pipeline(FunctionTransformer(lambda X: X), LogisticRegression())
    files = make_pipeline(
        make_column_transformer((CountVectorizer(input="filename"), "text")), LogisticRegression()
    )
    model = quietly(FairBayes(code).fit, NUMBERS, Y, sensitive_features=GROUPS)
    with pytest.raises(InvalidInputError, match="`estimator`"):
        model.save(tmp_path / "model")
    texts = MIXED.assign(text=[__file__] * len(MIXED))
    model = quietly(FairBayes(files).fit, texts, Y, sensitive_features=GROUPS)
    with pytest.raises(InvalidInputError, match="CountVectorizer"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [pd.Timestamp("2020-01-01"), b"bytes", 1j])
def test_names_that_are_neither_text_nor_number_are_refused(name: Any, tmp_path: Path) -> None:
    groups = pd.Series([name if group == "ann" else "bob" for group in GROUPS], dtype=object)
    model = quietly(FairBayes(LOGISTIC).fit, NUMBERS, Y, sensitive_features=groups)
    with pytest.raises(InvalidInputError, match=re.escape(repr(name))):
        model.save(tmp_path / "model")


def test_what_was_not_fitted_is_not_saved(tmp_path) -> None:
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        GFB().save(tmp_path / "model")


def test_types_outside_the_list_are_named_and_can_be_allowed(tmp_path) -> None:
    model = FairBayes(KNeighborsClassifier(30), random_state=0)
    quietly(model.fit, NUMBERS, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="KDTree") as caught:
        fairdial.load(tmp_path / "model")
    names = ast.literal_eval(re.search(r"trusted=(\[.*?\])", str(caught.value))[1])
    check_same("logistic", model, fairdial.load(tmp_path / "model", trusted=names))
    with pytest.raises(ModelFileError, match=names[0]):
        fairdial.load(tmp_path / "model", trusted=names[1:])
    for wrong in ("sklearn", [KNeighborsClassifier]):
        with pytest.raises(InvalidInputError, match="`trusted`"):
            fairdial.load(tmp_path / "model", trusted=wrong)


# ---- what is needed ----------------------------------------------------------------------------


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_scikit_learn_needs_no_torch_networks_no_skops_and_nothing_is_unpickled(tmp_path) -> None:
    for name in ("boosting", "network"):
        fitted(name).save(tmp_path / name)
        for evil in ("evil.pkl", "objects.pkl", "model.joblib", "weights.pt"):
            (tmp_path / name / evil).write_bytes(b"cos\nabort\n(tR.")  # a pickle that ends us
    program = f"""
        import sys, fairdial
        fairdial.load  # with all that it imports
        assert "skops" not in sys.modules
        sys.modules["torch"] = None
        import skops.io  # which imports much, and some of that unpickles tables of its own

        opened = []
        def watch(event, args):
            if event.startswith("pickle."):
                raise SystemExit(f"unpickled {{args}}")
            if event == "open":
                opened.append(str(args[0]))
        sys.addaudithook(watch)
        print(type(fairdial.load({str(tmp_path / "boosting")!r})).__name__)
        del sys.modules["torch"]
        for name in [n for n in sys.modules if n.split(".")[0] == "skops"]:
            del sys.modules[name]
        sys.modules["skops"] = None
        print(type(fairdial.load({str(tmp_path / "network")!r})).__name__)
        print([name for name in opened if name.endswith((".pkl", ".joblib", ".pt"))])
    """
    assert run(program).split("\n") == ["FairBayes", "FairBayes", "[]"]


@pytest.mark.parametrize(
    ("name", "library", "extra"), [("network", "torch", "torch"), ("pipeline", "skops", "save")]
)
def test_a_missing_library_is_named_with_its_extra(name, library, extra, tmp_path) -> None:
    fitted(name).save(tmp_path / "model")
    program = f"""
        import sys, fairdial
        fairdial.load  # with all that it imports
        sys.modules[{library!r}] = None
        try:
            fairdial.load({str(tmp_path / "model")!r})
        except fairdial.MissingExtraError as error:
            print(error)
    """
    assert f".[{extra}]" in run(program)
