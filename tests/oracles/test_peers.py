"""Other libraries as oracles, on the answers that ``make_answers.py`` stored.

On the calibration rows and at the same demand, thresholds are never worse than OxonFair's, and the
bound of lotteries is the optimum of error-parity's linear program and never below the randomized
rules of fairlearn.
"""

from __future__ import annotations

import importlib.util
import json
import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

from fairdial import Costs, criterion, measure, sweep
from fairdial.core.demands import find_rate
from fairdial.core.objectives import objective as find_objective
from fairdial.errors import ConstantDecisionsWarning

HERE = Path(__file__).parent
SETS = json.loads((HERE / "answers.json").read_text())["sets"]
SLACK = 1e-6  # of their solvers

pytestmark = pytest.mark.parametrize("name", SETS)


def answers_of(name, peer):
    rows = np.array(SETS[name]["rows"])
    for answer in SETS[name][peer]:
        yield answer, np.array(answer["selected"]), rows


def solve(name, **problem):
    data = SETS[name]["data"]
    tolerance = problem.pop("tolerance")
    frontier = sweep(
        data["logits"], data["groups"], data["y"], value="labels", min_count=1, **problem
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantDecisionsWarning)  # others are errors
        return frontier.at(tolerance)


def test_thresholds_are_never_worse_than_oxonfairs(name):
    met = better = 0
    for answer, selected, rows in answers_of(name, "oxonfair"):
        demand, goal = criterion(answer["criterion"]), find_objective(answer["objective"])
        selected, rows = selected.astype(np.int64), rows.astype(np.int64)
        if demand.gap_of(selected, rows) > answer["tolerance"]:
            continue  # it found no thresholds that meet the demand
        point = solve(
            name, criterion=demand, objective=goal, nested=False, tolerance=answer["tolerance"]
        )
        ours, theirs = goal.value_of(point.selected, rows), goal.value_of(selected, rows)
        assert point.gap <= answer["tolerance"]
        assert ours >= theirs - 1e-12, answer
        met, better = met + 1, better + (ours > theirs + 1e-12)
    assert met > 30
    assert better > 3


def test_the_bound_of_lotteries_is_error_paritys_optimum(name):
    for answer, selected, rows in answers_of(name, "error-parity"):
        demand, goal = criterion(answer["criterion"]), Costs(1.0, answer["false_negative"])
        assert demand.gap_of(selected, rows) <= answer["tolerance"] + SLACK
        point = solve(
            name, criterion=demand, objective=goal, nested=False, tolerance=answer["tolerance"]
        )
        theirs = goal.value_of(selected, rows)
        assert point.bound == pytest.approx(theirs, abs=10 * SLACK), answer
        assert point.value <= point.bound + SLACK


def test_the_bound_of_lotteries_is_not_below_fairlearns_rules(name):
    for answer, selected, rows in answers_of(name, "fairlearn"):
        demand, goal = criterion(answer["criterion"]), find_objective(answer["objective"])
        gap = float(demand.gap_of(selected, rows))
        assert gap <= answer["tolerance"] + 0.01, answer
        point = solve(name, criterion=demand, objective=goal, nested=False, tolerance=gap + SLACK)
        assert goal.value_of(selected, rows) <= point.bound + SLACK, answer


def test_rates_are_those_of_a_metric_frame(name):
    data, theirs = SETS[name]["data"], SETS[name]["metrics"]
    selected, rows = np.array(theirs["selected"]), np.array(SETS[name]["rows"])
    for rate, by_group in theirs["by_group"].items():
        assert find_rate(rate).of(selected, rows) == pytest.approx(by_group, abs=1e-9)
    margins = [np.array(data["logits"]) - np.log(0.4 / 0.6)]  # the same decisions
    for kind, gap in theirs["gaps"].items():
        frontier = measure(margins, data["groups"], data["y"], criterion=kind, min_count=1)
        point = frontier.at(1.0)
        assert np.array_equal(point.selected, selected)
        assert point.gap == pytest.approx(gap, abs=1e-9)
        assert point.accuracy == pytest.approx(
            np.average(theirs["by_group"]["accuracy"], weights=rows.sum(axis=0)), abs=1e-9
        )


@pytest.mark.skipif(importlib.util.find_spec("oxonfair") is None, reason="peers not installed")
def test_the_answers_are_what_the_command_stores(name):
    made = runpy.run_path(str(HERE / "make_answers.py"))["make_answers"]()
    assert json.loads(json.dumps(made["sets"][name])) == SETS[name]
