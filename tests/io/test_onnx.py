"""One ONNX graph decides as the model does, at every tolerance."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from fairdial import EPO, GFB, Costs, FairBayes, Network, load  # noqa: E402
from fairdial.datasets import load_adult  # noqa: E402
from fairdial.errors import InvalidInputError  # noqa: E402
from fairdial.io.onnx import export_onnx  # noqa: E402

ADULT = load_adult()
DEFAULTS = {"objective": "accuracy", "budget": None, "nested": None}
TOLERANCES = np.linspace(0.0, 0.2, 20)
KINDS = {"tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(string)": object}


class Runner:
    """The graph on one table, at any thresholds."""

    def __init__(self, path, X, groups):
        self.session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.feed = {}
        for asked in self.session.get_inputs():
            kind = KINDS[asked.type]
            if asked.name == "group":
                self.feed["group"] = np.array(groups, kind)
            elif asked.name != "thresholds":
                column = X[asked.name]
                values = column
                if kind is not np.float64:
                    missing = "" if kind is object else -(2**63)
                    values = column.astype(object).where(column.notna(), missing)
                self.feed[asked.name] = values.to_numpy(kind)[:, None]

    def __call__(self, thresholds):
        limits = {"thresholds": np.asarray(thresholds, np.float64)}
        return self.session.run(["logit", "decision"], self.feed | limits)


def check_equal(model, path, X, groups, tolerances=TOLERANCES):
    names = model.frontier_.groups
    codes = groups if isinstance(names[0], str) else [names.index(g) for g in groups]
    graph = Runner(path, X, codes)
    known = dict(zip(names, range(len(names)), strict=True))
    asked = [np.asarray(tolerance) for tolerance in tolerances]
    rows = np.array([known[g] for g in groups])
    expected = model._margins(X, rows, asked, None)  # scored once
    for tolerance, margin in zip(tolerances, expected, strict=True):
        logits, decisions = graph(model.frontier_.at(float(tolerance)).thresholds)
        assert np.array_equal(decisions, margin > 0)
    np.testing.assert_allclose(
        logits, model.logits(X, sensitive_features=groups), rtol=0, atol=1e-9
    )


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
def test_decisions_are_the_models_on_every_row_of_adult_at_20_tolerances(tmp_path):
    train, _ = ADULT.split(test_size=0.7, random_state=0)
    model = GFB(network=Network(epochs=2), warm_epochs=1, random_state=0)
    model.fit(train.X, train.y, sensitive_features=train.groups)
    path = export_onnx(model, tmp_path / "adult.onnx")
    check_equal(model, path, ADULT.X, ADULT.groups)


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
def test_thresholds_of_any_problem_decide_as_the_model_does(tmp_path):
    X, y, groups = table()
    problems = (
        {"criterion": "equalized_odds"},
        {"criterion": "equal_opportunity", "objective": Costs(1, 5)},
        {"criterion": "equalized_odds", "nested": True},
        {"budget": 0.2},
    )
    model = FairBayes(Network(members=1, epochs=2), random_state=0)
    model.fit(X, y, sensitive_features=groups)
    for number, problem in enumerate(problems):
        model.set_params(**({"criterion": "demographic_parity", **DEFAULTS} | problem))
        model.calibrate(X, y, sensitive_features=groups)
        path = export_onnx(model, tmp_path / f"{number}.onnx")
        check_equal(model, path, X, groups, tolerances=(0.02, 0.1, 0.5))


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
def test_a_lottery_is_refused(tmp_path):
    X, y, groups = table()
    model = FairBayes(Network(members=1, epochs=1), min_count=5, random_state=0)
    model.set_params(criterion="equalized_odds", randomize="hash")
    model.fit(X, y, sensitive_features=groups)
    with pytest.raises(InvalidInputError, match="`model`"):
        export_onnx(model, tmp_path / "lottery.onnx")


def table(n: int = 600) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, n)
    age = rng.normal(size=n) + group
    X = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, age),
            "job": pd.Series(rng.choice(["cook", "nurse", "pilot"], n)).where(rng.random(n) < 0.9),
            "town": pd.Series(rng.integers(0, 4, n)).astype("category"),
            "flag": rng.random(n) < 0.5,
        }
    )
    y = (rng.random(n) < 1 / (1 + np.exp(-age))).astype(int)
    return X, y, group


@pytest.mark.filterwarnings("ignore::fairdial.errors.FairdialWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"shared": True, "members": 2},
        {"shared": False, "members": 2, "norm": True, "bare": True, "hidden": (8, 6, 5)},
        {"shared": False, "members": 1, "head": 0},
    ],
)
@pytest.mark.parametrize("recalibrate", [None, "group"])
@pytest.mark.parametrize("named", [True, False])
def test_all_kinds_of_columns_networks_and_groups_are_exported(
    tmp_path, options, recalibrate, named
):
    X, y, codes = table()
    groups = np.array(["a", "b", "c"])[codes] if named else codes + 5
    network = Network(**({"hidden": (8,), "head": 4, "epochs": 2} | options))
    model = FairBayes(network, recalibrate=recalibrate, min_count=1, random_state=0)
    model.fit(X, y, sensitive_features=groups)
    path = export_onnx(model, tmp_path / "model.onnx")
    new = X.copy()
    new.loc[:50, "job"] = "never seen"
    new.loc[::7, "town"] = None
    check_equal(model, path, new, groups.tolist(), [0.0, 0.05, 0.5])


@pytest.fixture(scope="module")
def small():
    X, y, codes = table()
    groups = np.array(["a", "b", "c"])[codes]
    model = FairBayes(Network(hidden=(4,), head=0, epochs=1), random_state=0)
    return model.fit(X, y, sensitive_features=groups), X, groups


def renamed(model, names):
    """Return the same model with other names of columns."""
    other, encoder = copy.copy(model), copy.copy(model.encoder_)
    blocks = zip(encoder.columns_, names, strict=True)
    encoder.columns_ = tuple(replace(block, name=name) for block, name in blocks)
    other.encoder_ = encoder
    return other


LIKE_INNER = st.from_regex(r"(fairdial/*)?[vc]?[0-9]{0,2}", fullmatch=True)
OF_THE_GRAPH = st.sampled_from(["group", "thresholds", "logit", "decision", "", "n"])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | LIKE_INNER | OF_THE_GRAPH


@settings(max_examples=60, deadline=None)
@given(names=st.lists(NAMES, min_size=4, max_size=4))
def test_whatever_columns_are_called_decisions_are_the_models_or_it_is_refused(
    tmp_path_factory, small, names
):
    model, X, groups = small
    X, groups = X[:50], groups[:50]
    path = tmp_path_factory.mktemp("named") / "model.onnx"
    reserved = {"", "group", "thresholds", "logit", "decision"}
    if len(set(names)) < len(names) or reserved & set(names):
        with pytest.raises(InvalidInputError, match="names") as refused:
            export_onnx(renamed(model, names), path)
        assert refused.value.argument == "model"
        return
    export_onnx(renamed(model, names), path)
    limits = model.frontier_.at(0.1).thresholds
    logits, decisions = Runner(path, X.set_axis(names, axis=1), groups)(limits)
    np.testing.assert_allclose(
        logits, model.logits(X, sensitive_features=groups), rtol=0, atol=1e-9
    )
    expected = model.predict(X, sensitive_features=groups, tolerance=0.1)
    assert np.array_equal(decisions, expected == 1)


@pytest.mark.parametrize("gaps", [True, False])
def test_a_missing_integer_is_given_as_the_smallest_int64(tmp_path, gaps):
    X, y, codes = table()
    town = X["town"].astype(object)
    X["town"] = town.where(np.arange(len(X)) % 9 > 0).astype("category") if gaps else X["town"]
    model = FairBayes(Network(hidden=(4,), head=0, epochs=1), min_count=1, random_state=0)
    model.fit(X, y, sensitive_features=codes)
    path = export_onnx(model, tmp_path / "model.onnx")
    new = X.copy()
    new.loc[::7, "town"] = None
    check_equal(model, path, new, codes.tolist(), [0.2, 0.5])


def test_a_category_that_means_missing_is_refused(tmp_path, small):
    model, _, _ = small
    for number in (-(2**63), 2**63):
        other, encoder = copy.copy(model), copy.copy(model.encoder_)
        encoder.columns_ = [
            replace(block, categories=(0, 1, 2, number)) if block.name == "town" else block
            for block in encoder.columns_
        ]
        other.encoder_ = encoder
        with pytest.raises(InvalidInputError, match=f"{number} in column 'town'"):
            export_onnx(other, tmp_path / "no.onnx")


def test_an_unknown_group_is_nan_and_never_selected(tmp_path, small):
    model, X, _ = small
    path = export_onnx(model, tmp_path / "model.onnx")
    logits, decisions = Runner(path, X[:3], ["a", "nobody", "c"])([-np.inf] * 3)
    assert np.isnan(logits).tolist() == [False, True, False]
    assert decisions.tolist() == [True, False, True]


def test_the_file_names_groups_labels_and_criterion(tmp_path, small):
    model, _, _ = small
    path = export_onnx(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["groups"]) == ["a", "b", "c"]
    assert json.loads(metadata["labels"]) == [0, 1]
    assert metadata["criterion"] == "demographic_parity"
    assert "model_hash" not in metadata
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {found.name for found in tmp_path.iterdir()} == {"model.onnx", "plain"}


def test_the_file_names_the_model_that_was_loaded_and_replaces_another(tmp_path, small):
    model, _, _ = small
    saved = model.save(tmp_path / "model")
    path = export_onnx(model, tmp_path / "model.onnx")
    export_onnx(load(tmp_path / "model"), path)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map["model_hash"] == saved


def test_what_cannot_be_exported_is_refused(tmp_path, small):
    _, X, groups = small
    y = np.arange(len(X)) % 2
    wide = FairBayes(Network(hidden=(4,), epochs=1), min_count=1, random_state=0)
    wide.fit(np.random.default_rng(0).normal(size=(len(X), 300)), y, sensitive_features=groups)
    empty = FairBayes(Network(hidden=(4,), epochs=1), min_count=1, random_state=0)
    empty.fit(X.assign(job=X["job"].fillna("")), y, sensitive_features=groups)
    for refused, what in (
        (wide, "another scorer"),
        (EPO(), "EPO"),
        (FairBayes(), "FairBayes"),
        (None, "NoneType"),
        (empty, "'' in column 'job'"),
    ):
        with pytest.raises(InvalidInputError) as error:
            export_onnx(refused, tmp_path / "no.onnx")
        assert (error.value.argument, error.value.given) == ("model", what)
    assert not list(tmp_path.iterdir())
