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
        told = answer.json()
        want = margins_of(case, rows, tolerance)
        assert np.array_equal(numbers(r["margin"] for r in told["rows"]), want)
        labels = case.model.classes_[(want > 0).astype(int)].tolist()
        assert [r["decision"] for r in told["rows"]] == labels
        assert {r["tolerance"] for r in told["rows"]} == {tolerance}


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
    wishes = np.array(TOLERANCES)[np.arange(60) % len(TOLERANCES)]
    rows = case.rows(0, 60)
    for row, wish in zip(rows, wishes.tolist(), strict=True):
        row["tolerance"] = wish
    told = ask.post("/v1/predict", json={"rows": rows}).json()
    want = margins_of(case, slice(0, 60), wishes)
    assert np.array_equal(numbers(r["margin"] for r in told["rows"]), want)
    assert [r["tolerance"] for r in told["rows"]] == wishes.tolist()
    assert [p["tolerance"] for p in told["positions"]] == sorted(TOLERANCES)


def test_rows_without_a_tolerance_take_the_requests_and_then_the_dials(cases, client):
    case = cases("pipeline")
    ask = client(case)
    rows = case.rows(0, 3)
    rows[1]["tolerance"] = 0.3
    told = ask.post("/v1/predict", json={"rows": rows, "tolerance": 0.2}).json()
    assert [r["tolerance"] for r in told["rows"]] == [0.2, 0.3, 0.2]
    told = ask.post("/v1/predict", json={"rows": rows}).json()
    assert [r["tolerance"] for r in told["rows"]] == [0.1, 0.3, 0.1]
    rows[1]["tolerance"] = None
    told = ask.post("/v1/predict", json={"rows": rows}).json()
    assert [r["tolerance"] for r in told["rows"]] == [0.1] * 3


def test_an_answer_says_what_it_follows_from(cases, client):
    case = cases("pipeline")
    told = client(case).post("/v1/predict", json={"rows": case.rows(0, 2)}).json()
    point = case.model.frontier_.at(0.1)
    (position,) = told["positions"]
    assert position["thresholds"] == case.model.thresholds(0.1)
    assert position["setting"] == point.setting
    assert (position["gap"], position["feasible"]) == (point.gap, True)
    assert told["model"] == case.model.model_hash_
    assert told["version"] == 1
    assert told["confidence"] is None


def test_a_family_has_a_setting_and_no_thresholds(cases, client):
    case = cases("family")
    told = client(case).post("/v1/predict", json={"rows": case.rows(0, 2)}).json()
    (position,) = told["positions"]
    assert position["thresholds"] is None
    assert position["setting"] == case.model.frontier_.at(case.model.tolerance).setting


def test_with_confidence_decisions_are_the_certified_ones(cases, client):
    case = cases("network")
    ask = client(case, tolerance=0.6, confidence=0.9)
    told = ask.post("/v1/predict", json={"rows": case.rows(0, 50)}).json()
    want = margins_of(case, slice(0, 50), 0.6, confidence=0.9)
    assert np.array_equal(numbers(r["margin"] for r in told["rows"]), want)
    assert told["confidence"] == 0.9
    assert told["positions"][0]["certified_gap"] == 0.6
    rows = [row | {"tolerance": 0.7} for row in case.rows(0, 20)]
    told = ask.post("/v1/predict", json={"rows": rows}).json()
    want = margins_of(case, slice(0, 20), np.full(20, 0.7), confidence=0.9)
    assert np.array_equal(numbers(r["margin"] for r in told["rows"]), want)


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


def test_a_rows_decision_doesnt_depend_on_what_other_rows_ask(unequal, client):
    """At the dial's tolerance its own position decides, at others that of the whole dial."""
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
            told = ask.post("/v1/predict", json={"rows": sent, "tolerance": usual}).json()
            wishes = [asked.get(i) or usual or dial for i in range(60)]
            want = np.where(np.array(wishes) == dial, at_dial, at_other)
            assert np.array_equal(numbers(r["margin"] for r in told["rows"]), want)
            assert [r["tolerance"] for r in told["rows"]] == wishes
            gaps = {dial: own.gap, other: others[0].gap}
            shown = [(p["tolerance"], p["gap"]) for p in told["positions"]]
            assert shown == [(wish, gaps[wish]) for wish in sorted(set(wishes))]


def test_a_tolerance_that_cant_be_certified_is_refused(cases, client):
    case = cases("network")
    ask = client(case, tolerance=0.6, confidence=0.9)
    for body in (
        {"rows": case.rows(0, 1), "tolerance": 0.001},
        {"rows": [case.rows(0, 1)[0] | {"tolerance": 0.001}]},
    ):
        answer = ask.post("/v1/predict", json=body)
        assert answer.status_code == 422
        assert "certify" in answer.json()["detail"]
        assert "0.001" not in answer.text


def test_infinite_margins_are_words_that_numbers_are_read_from():
    from fairdial.serve.service import _extended, _number

    assert [_extended(v) for v in (math.inf, -math.inf, 1.5)] == ["Infinity", "-Infinity", 1.5]
    assert [json.loads(_number(v)) for v in (math.inf, 1.5, None)] == ["Infinity", 1.5, None]
    assert float("-Infinity") == -math.inf


def test_a_single_group_needs_no_name(cases, client):
    case = cases("array")
    ask = client(case)
    rows = [{"features": row["features"]} for row in case.rows(0, 3)]
    told = ask.post("/v1/predict", json={"rows": rows}).json()
    assert np.array_equal(
        numbers(r["margin"] for r in told["rows"]), margins_of(case, slice(0, 3), 0.0)
    )


def test_groups_are_named_as_json_names_them(cases, client):
    case = cases("network")  # False and True
    ask = client(case)
    row = case.rows(0, 1)[0]["features"]
    for group, good in ((True, True), (False, True), (1, False), ("True", False), (None, False)):
        answer = ask.post("/v1/predict", json={"rows": [{"features": row, "group": group}]})
        assert (answer.status_code == 200) == good


def test_a_row_without_a_group_is_told_where_it_belongs(cases):
    model = copy.copy(cases("network").model)
    model.sensitive_column = "owner"
    decider, beside = Decider(model), "got nothing: it stands beside `features`"
    for features, told in (
        ({"age": 3}, f"{beside}."),
        ({"age": 3, "owner": True}, f"{beside}, not in them as 'owner'."),
        ([3, 4], f"{beside}."),
    ):
        with pytest.raises(
            BadRowError, match=r"^row 1 \(counted from 0\): `group` must"
        ) as refused:
            decider.codes([True, None], [{}, features])
        assert str(refused.value).endswith(told)
    for group, got in ((None, "nothing"), ("x", "another")):
        with pytest.raises(BadRowError, match=f"got {got}.$"):
            decider.codes([group])


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
        with pytest.raises(BadRowError, match="`group` must be one of"):
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


def test_positions_are_remembered_up_to_a_limit(cases, monkeypatch):
    monkeypatch.setattr("fairdial.serve.deciding.REMEMBERED", 3)
    positions = Decider(cases("pipeline").model).positions
    first = positions.at(0.1, None)
    assert positions.at(0.1, None) is first
    for tolerance in (0.2, 0.3, 0.4):
        positions.at(tolerance, None)
    assert len(positions._known) == 3
    assert positions.at(0.1, None) is not first  # the oldest had to go
