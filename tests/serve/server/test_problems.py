"""The server decides, describes and observes for every criterion, objective and budget."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fairdial import FairdialWarning, InvalidInputError
from fairdial.core.point import Point
from fairdial.core.problem import Problem

KINDS = ("equalized odds", "combined")


def point_at(case: Any, tolerance: float) -> Point:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return case.model.frontier_.at(tolerance)


def predicted(case: Any, tolerance: float) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        found = case.model.predict(case.X, sensitive_features=case.groups, tolerance=tolerance)
    return found.tolist()


def decided(answer: Any) -> list[Any]:
    assert answer.status_code == 200
    return [row["decision"] for row in answer.json()["rows"]]


@pytest.mark.parametrize("name", KINDS)
def test_decisions_follow_the_dial_and_the_tolerances_of_requests(cases, client, token, name):
    case = cases(name)
    ask = client(case)
    rows = case.rows()
    start = case.model.default_tolerance
    assert ask.get("/v1/dial").json()["tolerance"] == start
    assert decided(ask.post("/v1/predict", json={"rows": rows})) == predicted(case, start)
    for tolerance in (0.05, 0.3, 0.0321):
        body = {"rows": rows, "tolerance": tolerance}
        assert decided(ask.post("/v1/predict", json=body)) == predicted(case, tolerance)
    ask.put("/v1/dial", json={"tolerance": 0.15, "reason": "x"}, headers=token)
    assert decided(ask.post("/v1/predict", json={"rows": rows})) == predicted(case, 0.15)
    mixed = [row | {"tolerance": (0.05, 0.3)[i % 2]} for i, row in enumerate(rows)]
    both = [predicted(case, 0.05), predicted(case, 0.3)]
    expected = [both[i % 2][i] for i in range(len(rows))]
    assert decided(ask.post("/v1/predict", json={"rows": mixed})) == expected


@pytest.mark.parametrize("name", KINDS)
def test_the_dial_has_every_demand_the_objective_and_the_budget(cases, client, token, name):
    case = cases(name)
    ask = client(case)
    for tolerance in (0.05, 0.2):
        change = {"tolerance": tolerance, "reason": "x"}
        data, point = (
            ask.put("/v1/dial", json=change, headers=token).json(),
            point_at(case, tolerance),
        )
        assert {line["demand"]: line["gap"] for line in data["demands"]} == point.gaps
        rates = [list(line["rates"].values()) for line in data["demands"]]
        assert np.array_equal(rates, point.rates)
        assert data["gap"] == point.gap
        assert data["value"] == point.value
        assert data["objective"] == point.problem.objective.name
        assert data["nested"] == case.model.frontier_.nested
        assert (data["budget"] is None) == (point.problem.budget is None)
        for line in data["demands"]:
            assert not data["feasible"] or line["gap"] <= line["allowed"] + 1e-12


def test_many_tolerances_are_refused_where_each_is_a_search(cases, client):
    case = cases("equalized odds")
    rows = [row | {"tolerance": i / 1000} for i, row in enumerate(case.rows(0, 100))]
    answer = client(case).post("/v1/predict", json={"rows": rows})
    assert answer.status_code == 422
    assert "`tolerance`" in answer.json()["detail"]


def test_a_lottery_is_refused_at_the_start(cases, settings):
    with pytest.raises(InvalidInputError, match="`model`"):
        settings(cases("lottery"))


def test_observed_labels_give_the_gap_of_every_demand(cases, client, token):
    case = cases("equalized odds")
    ask = client(case)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    names = case.model.classes_.tolist()
    rows = [row | {"label": names[y]} for row, y in zip(case.rows(), labels, strict=True)]
    without = ask.post("/v1/observe", json={"rows": case.rows()}).json()
    assert all(line["gap"] is None for line in without["demands"])
    data = ask.post("/v1/observe", json={"rows": rows}).json()
    chosen = np.array(predicted(case, 0.1)) == names[1]
    codes = np.array([list(case.model.frontier_.groups).index(g) for g in case.groups])
    counts = np.array([[np.sum((labels == y) & (codes == a)) for a in (0, 1)] for y in (0, 1)])
    found = np.array(
        [[np.sum(chosen & (labels == y) & (codes == a)) for a in (0, 1)] for y in (0, 1)]
    )
    gaps = case.model.frontier_.criterion.gaps_of(found, counts)
    for line, gap in zip(data["demands"], gaps, strict=True):
        assert line["gap"] == gap
        assert line["low"] <= gap <= line["high"]
    assert sum(group["rows"] for group in data["groups"]) == 400
    assert data["proposal"] is None
    ask.put("/v1/dial", json={"tolerance": 0.2, "reason": "x"}, headers=token)
    assert all(line["rows"] == 0 for line in ask.get("/v1/observe").json()["demands"])


@pytest.mark.parametrize("bad", [["7131x"], [0, 1, 0], [True]])
def test_labels_that_the_model_does_not_have_are_refused(cases, client, bad):
    case = cases("equalized odds")
    body = {"scores": [0.5], "groups": [str(case.groups[0])], "labels": bad}
    answer = client(case).post("/v1/observe", json=body)
    assert answer.status_code == 422
    assert "7131" not in answer.text


def test_thresholds_are_proposed_only_for_what_needs_no_labels_and_no_search(cases, client):
    case = cases("combined")
    assert not case.model.frontier_.problem.uses_path
    assert Problem(case.model.frontier_.criterion).uses_path is False
    ask = client(case)
    assert ask.post("/v1/observe", json={"rows": case.rows()}).json()["proposal"] is None


@pytest.mark.parametrize("name", KINDS)
def test_the_page_of_the_server_has_the_demands(cases, client, name):
    case = cases(name)
    data = client(case).get("/v1/frontier").json()
    names = [demand["name"] for demand in data["criterion"]["demands"]]
    assert names == [demand.name for demand in case.model.frontier_.criterion.demands]
    assert data["deployed"]["tolerance"] == case.model.default_tolerance
