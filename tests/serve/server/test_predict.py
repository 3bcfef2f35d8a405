"""What the server decides is what the model decides, to the last bit."""

from __future__ import annotations

import copy
import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes, load
from fairdial.datasets import make_gaussian
from fairdial.serve.answers import extended, number_json
from fairdial.serve.deciding import Decider
from fairdial.serve.records import BadRowError

ALL = [
    "pipeline",
    "per group",
    "cross-fitted",
    "network",
    "modulated",
    "family",
    "table",
    "array",
]
TOLERANCES = (0.0, 0.02, 0.1, 0.5, 1.0)


def margins_of(case, rows, tolerance, confidence=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = None if case.groups[0] is None else case.groups[rows]
        take = case.X.iloc[rows] if hasattr(case.X, "iloc") else case.X[rows]
        return case.model.decision_function(
            take, sensitive_features=given, tolerance=tolerance, confidence=confidence
        )


def numbers(values):
    return np.array([float(value) for value in values])  # "Infinity" is a number for Python


@pytest.mark.parametrize("name", ALL)
def test_decisions_are_the_models_to_the_last_bit_at_every_tolerance(name, cases, client):
    case = cases(name)
    ask = client(case)
    rows = slice(0, 120)
    for tolerance in TOLERANCES:
        answer = ask.post("/v1/predict", json={"rows": case.rows(0, 120), "tolerance": tolerance})
        assert answer.status_code == 200, answer.text
        data = answer.json()
        want = margins_of(case, rows, tolerance)
        assert np.array_equal(numbers(r["margin"] for r in data["rows"]), want)
        labels = case.model.classes_[(want > 0).astype(int)].tolist()
        assert [r["decision"] for r in data["rows"]] == labels
        assert {r["tolerance"] for r in data["rows"]} == {tolerance}


@pytest.mark.parametrize("name", ALL)
def test_one_row_is_decided_as_the_model_decides_it_alone(name, cases, client):
    case = cases(name)
    ask = client(case)
    for i in range(20):
        answer = ask.post("/v1/predict", json={"rows": case.rows(i, i + 1), "tolerance": 0.1})
        want = margins_of(case, slice(i, i + 1), 0.1)
        assert float(answer.json()["rows"][0]["margin"]) == want[0]


@pytest.mark.parametrize("name", ["pipeline", "network", "family"])
def test_rows_may_have_tolerances_of_their_own(name, cases, client):
    case = cases(name)
    ask = client(case)
    tolerances = np.array(TOLERANCES)[np.arange(60) % len(TOLERANCES)]
    rows = case.rows(0, 60)
    for row, tolerance in zip(rows, tolerances.tolist(), strict=True):
        row["tolerance"] = tolerance
    data = ask.post("/v1/predict", json={"rows": rows}).json()
    want = margins_of(case, slice(0, 60), tolerances)
    assert np.array_equal(numbers(r["margin"] for r in data["rows"]), want)
    assert [r["tolerance"] for r in data["rows"]] == tolerances.tolist()
    assert [p["tolerance"] for p in data["positions"]] == sorted(TOLERANCES)


def test_rows_without_a_tolerance_take_the_requests_and_then_the_dials(cases, client):
    case = cases("pipeline")
    ask = client(case)
    rows = case.rows(0, 3)
    rows[1]["tolerance"] = 0.3
    data = ask.post("/v1/predict", json={"rows": rows, "tolerance": 0.2}).json()
    assert [r["tolerance"] for r in data["rows"]] == [0.2, 0.3, 0.2]
    data = ask.post("/v1/predict", json={"rows": rows}).json()
    assert [r["tolerance"] for r in data["rows"]] == [0.1, 0.3, 0.1]
    rows[1]["tolerance"] = None
    data = ask.post("/v1/predict", json={"rows": rows}).json()
    assert [r["tolerance"] for r in data["rows"]] == [0.1] * 3


def test_an_answer_says_what_it_depends_on(cases, client):
    case = cases("pipeline")
    data = client(case).post("/v1/predict", json={"rows": case.rows(0, 2)}).json()
    point = case.model.frontier_.at(0.1)
    (position,) = data["positions"]
    assert position["thresholds"] == case.model.thresholds(0.1)
    assert position["setting"] == point.setting
    assert (position["gap"], position["feasible"]) == (point.gap, True)
    assert data["model"] == case.model.model_hash_
    assert data["version"] == 1
    assert data["confidence"] is None


def test_a_family_has_a_setting_and_no_thresholds(cases, client):
    case = cases("family")
    data = client(case).post("/v1/predict", json={"rows": case.rows(0, 2)}).json()
    (position,) = data["positions"]
    assert position["thresholds"] is None
    assert position["setting"] == case.model.frontier_.at(case.model.tolerance).setting


def test_with_confidence_decisions_are_the_certified_ones(cases, client):
    case = cases("network")
    ask = client(case, tolerance=0.6, confidence=0.9)
    data = ask.post("/v1/predict", json={"rows": case.rows(0, 50)}).json()
    want = margins_of(case, slice(0, 50), 0.6, confidence=0.9)
    assert np.array_equal(numbers(r["margin"] for r in data["rows"]), want)
    assert data["confidence"] == 0.9
    assert data["positions"][0]["certified_gap"] == 0.6
    rows = [row | {"tolerance": 0.7} for row in case.rows(0, 20)]
    data = ask.post("/v1/predict", json={"rows": rows}).json()
    want = margins_of(case, slice(0, 20), np.full(20, 0.7), confidence=0.9)
    assert np.array_equal(numbers(r["margin"] for r in data["rows"]), want)


@pytest.fixture(scope="module")
def unequal(cases, tmp_path_factory):
    """A model of two groups far apart, whose declared statements are sharper than others."""
    sample = make_gaussian(6_000, random_state=0)
    X = sample.logits[:, None]
    model = FairBayes(LogisticRegression(), random_state=0)
    model.fit(X[100:], sample.y[100:], sensitive_features=sample.groups[100:])
    folder = tmp_path_factory.mktemp("unequal") / "model"
    model.save(folder)
    return type(cases("array"))(folder, load(folder), X[:100], sample.groups[:100])


def test_a_rows_decision_doesnt_depend_on_the_other_rows(unequal, client):
    """The dial's tolerance has its own certificate, others the simultaneous one."""
    case, dial, other = unequal, 0.16, 0.19
    ask = client(case, tolerance=dial, confidence=0.9)
    frontier = case.model.frontier_
    own = frontier.at(dial, confidence=0.9)
    others = frontier.at(np.array([other]), confidence=0.9, simultaneous=True)
    assert frontier.at(np.array([dial]), confidence=0.9, simultaneous=True)[0].gap < own.gap
    rows = case.rows(0, 60)
    at_dial = margins_of(case, slice(0, 60), dial, confidence=0.9)
    at_other = margins_of(case, slice(0, 60), np.full(60, other), confidence=0.9)
    for usual in (None, dial, other):
        for asked in ({}, {3: other}, {3: dial}, {3: dial, 5: other}):
            sent = [row | {"tolerance": asked.get(i)} for i, row in enumerate(rows)]
            data = ask.post("/v1/predict", json={"rows": sent, "tolerance": usual}).json()
            tolerances = [asked.get(i) or usual or dial for i in range(60)]
            want = np.where(np.array(tolerances) == dial, at_dial, at_other)
            assert np.array_equal(numbers(r["margin"] for r in data["rows"]), want)
            assert [r["tolerance"] for r in data["rows"]] == tolerances
            gaps = {dial: own.gap, other: others[0].gap}
            shown = [(p["tolerance"], p["gap"]) for p in data["positions"]]
            assert shown == [(tolerance, gaps[tolerance]) for tolerance in sorted(set(tolerances))]


def test_a_tolerance_that_cant_be_certified_is_refused(cases, client):
    case = cases("network")
    ask = client(case, tolerance=0.6, confidence=0.9)
    for body in (
        {"rows": case.rows(0, 1), "tolerance": 0.001},
        {"rows": [case.rows(0, 1)[0] | {"tolerance": 0.001}]},
    ):
        answer = ask.post("/v1/predict", json=body)
        assert answer.status_code == 422
        assert "`tolerance`" in answer.json()["detail"]
        assert "0.001" not in answer.text


def test_infinite_margins_are_named():
    assert [extended(v) for v in (math.inf, -math.inf, 1.5)] == ["Infinity", "-Infinity", 1.5]
    assert [json.loads(number_json(v)) for v in (math.inf, 1.5, None)] == ["Infinity", 1.5, None]
    assert float("-Infinity") == -math.inf


def test_a_single_group_needs_no_name(cases, client):
    case = cases("array")
    ask = client(case)
    rows = [{"features": row["features"]} for row in case.rows(0, 3)]
    data = ask.post("/v1/predict", json={"rows": rows}).json()
    assert np.array_equal(
        numbers(r["margin"] for r in data["rows"]), margins_of(case, slice(0, 3), 0.0)
    )


def test_groups_are_named_as_json_names_them(cases, client):
    case = cases("network")  # False and True
    ask = client(case)
    row = case.rows(0, 1)[0]["features"]
    for group, good in ((True, True), (False, True), (1, False), ("True", False), (None, False)):
        answer = ask.post("/v1/predict", json={"rows": [{"features": row, "group": group}]})
        assert (answer.status_code == 200) == good


def test_the_error_of_a_row_without_a_group_says_where_it_belongs(cases):
    model = copy.copy(cases("network").model)
    model.sensitive_column = "owner"
    decider = Decider(model)
    for features, misplaced in (
        ({"age": 3}, False),
        ({"age": 3, "owner": True}, True),
        ([3, "owner"], False),
        (None, False),
    ):
        with pytest.raises(BadRowError, match=r"^row 1 .*`group`") as refused:
            decider.codes([True, None], [{}, features])
        (hint,) = refused.value.hints
        assert "`features`" in hint
        assert ("'owner'" in hint) == misplaced
    for group in (None, "x"):
        with pytest.raises(BadRowError) as refused:
            decider.codes([group])
        assert (refused.value.argument, refused.value.hints) == ("group", ())


def test_a_group_that_is_a_number_is_that_number_and_nothing_that_equals_it(cases, client):
    case = cases("per group")  # 0 and 1
    ask = client(case)
    row = case.rows(0, 1)[0]["features"]
    for group in (0, 1, True, False, 1.0, 0.0, "1", [1]):
        answer = ask.post("/v1/predict", json={"rows": [{"features": row, "group": group}]})
        assert (answer.status_code == 200) == (type(group) is int)


def test_a_group_named_by_a_fraction_may_be_written_as_a_whole_number(cases):
    model = copy.copy(cases("per group").model)
    model.frontier_ = replace(model.frontier_, groups=(0.0, 1.5))
    decider = Decider(model)
    assert decider.codes([0.0, 0, 1.5]).tolist() == [0, 0, 1]
    for wrong in (False, 1, "0.0"):
        with pytest.raises(BadRowError, match="`group`"):
            decider.codes([wrong])


def test_the_order_of_features_makes_no_difference(cases, client):
    case = cases("table")
    ask = client(case)
    rows = case.rows(0, 5)
    turned = [
        {"features": dict(reversed(r["features"].items())), "group": r["group"]} for r in rows
    ]
    answers = [ask.post("/v1/predict", json={"rows": part}).json() for part in (rows, turned)]
    assert answers[0] == answers[1]


def test_points_are_cached_up_to_a_limit(cases, monkeypatch):
    monkeypatch.setattr("fairdial.serve.deciding.CACHE_SIZE", 3)
    points = Decider(cases("pipeline").model).points
    first = points.at(0.1, None)
    assert points.at(0.1, None) is first
    for tolerance in (0.2, 0.3, 0.4):
        points.at(tolerance, None)
    assert len(points._known) == 3
    assert points.at(0.1, None) is not first  # the oldest had to go
