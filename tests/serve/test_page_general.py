"""The page's functions agree with Python for every kind of criterion, objective and budget."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fairdial import (
    Budget,
    Costs,
    FairdialWarning,
    Frontier,
    minimum,
    sweep,
)
from fairdial.core.point import Point
from fairdial.core.rising import rising_frontier
from fairdial.datasets import make_gaussian
from fairdial.serve.page_data import page_data

SAMPLE = make_gaussian(1_200, random_state=3)
THREE = make_gaussian(
    1_500, shares=(0.5, 0.3, 0.2), base_rates=(0.3, 0.5, 0.6), separations=(1.2, 1.5, 1.3),
    random_state=4,
)  # fmt: skip
REGION = np.where(np.arange(1_200) % 3 == 0, "north", "south")
WEIGHTS = np.random.default_rng(0).uniform(0.5, 2.0, 1_200)
OPTIONS: dict[str, dict[str, Any]] = {
    "equalized odds": {"criterion": "equalized_odds"},
    "several": {"criterion": {"demographic_parity": 0.2, "equal_opportunity": 0.05}},
    "nested": {"criterion": "equalized_odds", "nested": True},
    "ratio": {"criterion": "demographic_parity_ratio"},
    "minimum": {"criterion": ["equalized_odds", minimum("true_positive_rate", 0.6)]},
    "false negatives": {"criterion": "false_negative_rate_parity"},
    "accuracy": {"criterion": "accuracy_parity"},
    "costs": {"criterion": "equal_opportunity", "objective": Costs(1, 3)},
    "balanced": {"objective": "balanced_accuracy"},
    "f1": {"objective": "f1", "criterion": "equalized_odds"},
    "budget": {"budget": Budget(0.2, exact=True)},
    "weights": {"criterion": "equalized_odds", "sample_weight": WEIGHTS},
    "strata": {"criterion": "equalized_odds", "control_features": REGION},
    "lottery": {"criterion": "equalized_odds", "randomize": "hash"},
}


def at(frontier: Frontier, tolerance: float) -> Point:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return frontier.at(tolerance)


@pytest.fixture(scope="module", params=[*OPTIONS, "three groups"])
def frontier(request: pytest.FixtureRequest) -> Frontier:
    if request.param == "three groups":
        return sweep(THREE.logits, THREE.groups, THREE.y, criterion="equalized_odds")
    return sweep(SAMPLE.logits, SAMPLE.groups, SAMPLE.y, **OPTIONS[request.param])


@pytest.fixture(scope="module")
def document(frontier: Frontier) -> dict[str, Any]:
    return page_data(frontier, tolerance=0.0321)


@pytest.fixture
def opened(node: Any, document: dict[str, Any]) -> Any:
    node("open", document)
    return node


def near(frontier: Frontier) -> Any:
    """Whole counts agree to the last bit; sums of weights and of expected rows up to rounding."""
    exact = frontier.cells.dtype.kind == "i" and frontier.problem.randomize is None
    return (lambda value: value) if exact else (lambda value: pytest.approx(value, abs=1e-12))


def tolerances(opened: Any, document: dict[str, Any]) -> list[float]:
    slider = document["slider"]
    stops = [i / 10 ** slider["digits"] for i in range(0, slider["stops"] + 1, 7)]
    found = opened("many", "snap", *([stop, False] for stop in [*stops, 0.0321, 1.0]))
    assert all(0 <= snapped <= stop for snapped, stop in zip(found, stops, strict=False))
    return list(dict.fromkeys(found))


def test_every_limit_gives_the_point_of_the_frontier(opened, frontier, document):
    same = near(frontier)
    for tolerance in tolerances(opened, document):
        point, shown = at(frontier, tolerance), opened("dial", "at", tolerance)
        assert shown["selected"] == same(point.selected.ravel().tolist())
        assert shown["cells"] == same(point.selected_cells.ravel().tolist())
        assert shown["gap"] == point.gap
        assert shown["feasible"] == point.feasible
        assert shown["accuracy"] == same(point.accuracy)
        assert opened("dial", "valueOf", shown["selected"]) == same(point.value)


def test_every_demand_has_its_rates_and_its_gap(opened, frontier, document):
    same = near(frontier)
    for tolerance in tolerances(opened, document)[::5]:
        point, shown = at(frontier, tolerance), opened("dial", "at", tolerance)
        found = opened("dial", "demandsOf", shown["cells"])
        rates = point.rates.reshape(len(found), -1)
        for line, (name, gap), expected in zip(found, point.gaps.items(), rates, strict=True):
            assert line["demand"]["name"] == name
            assert line["gap"] == same(gap)
            assert [over / under for over, under in line["parts"]] == same(expected.tolist())


def test_nobody_loses_beside_the_plain_answer(opened, frontier, document):
    rising = rising_frontier(frontier)
    assert (document["rising"] is None) == (rising is None)
    if rising is None:
        assert opened("dial", "risingAt", 0.05) is None
        return
    free, same = opened("dial", "unconstrained")["selected"], near(frontier)
    for tolerance in tolerances(opened, document)[::5]:
        point, shown = at(rising, tolerance), opened("dial", "risingAt", tolerance)
        assert shown["feasible"] == point.feasible
        assert (shown["gap"] <= tolerance) == shown["feasible"]
        if shown["gap"] == point.gap:  # otherwise another answer is as good
            assert shown["selected"] == same(point.selected.ravel().tolist())
            assert shown["accuracy"] == same(point.accuracy)
        assert all(after >= before for after, before in zip(shown["selected"], free, strict=True))
        assert opened("say", "leveling", opened("dial", "at", tolerance), shown)


def test_the_page_says_whether_people_may_change_back(opened, frontier, document):
    assert document["nested"] == frontier.nested
    assert ("at most once" in opened("say", "movement")) == frontier.nested


def test_sentences_have_the_rates_of_every_demand(opened, frontier):
    text = opened("say", "sentence", opened("dial", "at", 0.05))
    point = at(frontier, opened("dial", "snap", 0.05, False))
    if frontier.criterion.is_simple or len(frontier.groups) > 2:
        return
    for line in point.rates.reshape(len(frontier.criterion.demands), -1):
        assert all(f"{100 * rate:.1f}%" in text for rate in line)


def test_below_the_end_of_the_path_the_search_takes_over(node):
    logits = [2, 1, -1, -2, 2, 1, -1, 2, 1, -2]
    groups, y = [0] * 4 + [1] * 3 + [2] * 3, [1, 0, 1, 0, 1, 1, 0, 1, 0, 0]
    frontier = sweep(logits, groups, y, criterion="equal_opportunity", min_count=1)
    node("open", page_data(frontier))
    for number in range(0, 500, 5):
        tolerance = node("dial", "snap", number / 1000, False)
        point, shown = at(frontier, tolerance), node("dial", "at", tolerance)
        assert shown["selected"] == point.selected.ravel().tolist()
        assert shown["gap"] == point.gap
        assert shown["feasible"] == point.feasible


def test_the_criterion_is_described_in_plain_words():
    found = page_data(
        sweep(SAMPLE.logits, SAMPLE.groups, SAMPLE.y, criterion="equalized_odds"),
        labels=("default", "repaid"),
    )["criterion"]
    assert not found["simple"]
    assert "“repaid”" in found["meaning"]
    assert "_" not in found["title"]


@pytest.mark.parametrize(
    "demands", [["equalized_odds", minimum("true_positive_rate", 0.6)], "true_positive_rate>=0.6"]
)
def test_a_level_is_a_percentage_in_the_title(demands):
    frontier = sweep(SAMPLE.logits, SAMPLE.groups, SAMPLE.y, criterion=demands)
    title = page_data(frontier)["criterion"]["title"]
    assert "60%" in title
    assert "=" not in title
