"""Bad input of the general dial: each error names the argument, the group and the way out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairdial import Budget, Costs, Criterion, Demand, criterion, maximum, minimum, sweep
from fairdial.core.rates import PRECISION, SELECTION, TRUE_POSITIVE
from fairdial.errors import (
    CannotCertifyError,
    ConstantDecisionsWarning,
    InfeasibleToleranceWarning,
    InvalidInputError,
    SmallGroupError,
)

N = 200
RNG = np.random.default_rng(0)
GROUPS = np.array(["ann", "bob"])[np.arange(N) % 2]
LOGITS = RNG.normal(0.5 * (GROUPS == "bob"), 1)
Y = (RNG.random(N) < 1 / (1 + np.exp(-LOGITS))).astype(int)


def refused(*arguments, error=InvalidInputError, **options):
    with pytest.raises(error) as caught:
        sweep(*(arguments or (LOGITS, GROUPS, Y)), **options)
    return caught.value


# ---- rows that a criterion lacks ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("equal_opportunity", 1),
        ("false_negative_rate_parity", 1),
        ("predictive_equality", 0),
        ("equalized_odds", 0),
        ("equalized_odds", 1),
        ("true_positive_rate>=0.5", 1),
    ],
)
def test_a_group_without_eligible_rows_is_named(kind, label):
    y = np.where(GROUPS == "bob", 1 - label, Y)
    error = refused(LOGITS, GROUPS, y, criterion=kind)
    assert error.argument == "groups"
    assert "'bob'" in error.given
    assert "'ann'" not in error.given
    assert f"label {label}" in error.allowed


def test_a_small_group_and_the_ways_out_are_named():
    few = np.flatnonzero((GROUPS == "ann") | (np.arange(N) < 40))
    error = refused(
        LOGITS[few], GROUPS[few], Y[few], criterion="equalized_odds", error=SmallGroupError
    )
    assert error.argument == "groups"
    assert error.groups == ("bob",)
    assert any("min_count" in hint for hint in error.hints)


def test_a_small_stratum_is_named_with_its_group():
    strata = np.where((GROUPS == "ann") & (np.arange(N) > 20), "north", "south")
    strata[GROUPS == "bob"] = np.where(np.arange(N // 2) % 2, "north", "south")
    error = refused(control_features=strata, error=SmallGroupError)
    assert (error.argument, error.groups) == ("groups", ("ann",))
    assert "south" in error.allowed


def test_a_stratum_that_a_group_lacks_is_named():
    strata = np.where(GROUPS == "ann", "north", np.where(np.arange(N) < 100, "north", "south"))
    error = refused(control_features=strata)
    assert error.argument == "groups"
    assert "'ann'" in error.given
    assert "south" in error.allowed


@pytest.mark.parametrize("kind", ["equalized_odds", "accuracy_parity", "precision>=0.5"])
def test_labels_are_asked_for(kind):
    assert refused(LOGITS, GROUPS, criterion=kind).argument == "y"
    assert refused(LOGITS, GROUPS, value="labels").argument == "y"


# ---- demands that can't be met -----------------------------------------------------------------


def test_a_ratio_of_nothing_to_nothing_is_one_and_warned_about():
    frontier = sweep([2.0, 2, 1, 1, 1], [0, 0, 1, 1, 1], min_count=1, budget=0.0)
    with pytest.warns(ConstantDecisionsWarning):
        point = frontier.at(0.1)
    assert point.selected.sum() == 0
    ratio = sweep(
        [2.0, 2, 1, 1], [0, 0, 1, 1], criterion="demographic_parity_ratio", min_count=1, budget=0.4
    )
    with pytest.warns(ConstantDecisionsWarning):
        point = ratio.at(0.2)
    assert point.gap == 0.0
    assert point.feasible
    assert point.gaps == {"selection_rate_ratio": 0.0}


def test_an_unreachable_minimum_is_refused():
    logits = np.append(LOGITS, [-np.inf] * 10)  # never selected
    groups, y = np.append(GROUPS, ["bob"] * 10), np.append(Y, [1] * 10)
    error = refused(logits, groups, y, criterion="true_positive_rate>=0.99")
    assert error.argument == "criterion"
    assert "true_positive_rate>=0.99" in error.given
    assert "'bob'" in error.given
    assert error.hints


def test_contradictory_demands_are_refused_with_the_group():
    kind = [minimum("true_positive_rate", 0.9), maximum("selection_rate", 0.1)]
    error = refused(criterion=kind)
    assert error.argument == "criterion"
    assert "true_positive_rate>=0.9" in error.given
    assert "selection_rate<=0.1" in error.given
    assert "'ann'" in error.given
    assert error.hints


def test_a_minimum_beyond_the_budget_is_refused():
    error = refused(criterion="selection_rate>=0.5", budget=0.3)
    assert error.argument == "criterion"
    assert "budget" in error.given


def test_out_of_reach_at_every_tolerance_is_warned_about():
    kind = {"demographic_parity": 1.0, "accuracy_parity": 0.01}
    rows = [-1.0, -1, -1, 1, 2], [0, 0, 0, 1, 1], [1, 0, 0, 0, 1]
    frontier = sweep(*rows, criterion=kind, min_count=1)
    with pytest.warns(InfeasibleToleranceWarning):
        point = frontier.at(1.0)
    assert not point.feasible
    assert point.gaps["accuracy"] == 1 / 6


# ---- weights and budgets -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [np.full(N, -1.0), np.full(N, np.nan), np.full(N, np.inf), np.zeros(N), np.ones(3), ["a"] * N],
    ids=["negative", "NaN", "infinite", "zero", "too few", "text"],
)
def test_bad_weights_are_refused(weights):
    assert "sample_weight" in str(refused(sample_weight=weights))


def test_a_group_whose_weights_are_all_zero_is_named():
    error = refused(sample_weight=(GROUPS == "ann").astype(float))
    assert "'bob'" in error.given


def test_weighted_rows_certify_nothing():
    frontier = sweep(LOGITS, GROUPS, Y, sample_weight=np.full(N, 0.5))
    with pytest.raises(CannotCertifyError, match="sample_weight"):
        frontier.at(0.3, confidence=0.9)


@pytest.mark.parametrize("budget", [-0.1, 1.5, N + 1, np.nan, "half", True])
def test_a_budget_outside_its_range_is_refused(budget):
    assert refused(budget=budget).argument == "budget"


@pytest.mark.parametrize("share", [-0.1, 1.5, np.nan, "half", True])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(InvalidInputError) as caught:
        Budget(share, exact=True)
    assert caught.value.argument == "budget"


@pytest.mark.parametrize("utility", [np.full(N, np.nan), np.ones(3), ["a"] * N])
def test_bad_utilities_are_refused(utility):
    assert "utility" in str(refused(utility=utility))


@pytest.mark.parametrize(
    ("costs", "argument"),
    [((-1, 1), "false_positive"), ((1, np.inf), "false_negative"), ((0, 0), "false_negative")],
)
def test_bad_costs_are_refused(costs, argument):
    with pytest.raises(InvalidInputError) as caught:
        Costs(*costs)
    assert caught.value.argument == argument


# ---- names, combinations and conditions --------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "argument", "hint"),
    [
        ({"criterion": "equalised odds"}, "criterion", "equalised_odds"),
        ({"criterion": "demographic_parity_ratios"}, "criterion", None),
        ({"criterion": "true_positive_rat>=0.5"}, "rate", "true_positive_rate"),
        ({"criterion": "equal_opportunity=2"}, "criterion", None),
        ({"criterion": "true_positive_rate>=1.5"}, "level", None),
        ({"criterion": []}, "criterion", None),
        ({"criterion": {"equal_opportunity": -0.1}}, "criterion", None),
        ({"criterion": "equal_opportunity=0.1+equalized_odds"}, "criterion", None),
        ({"objective": "f_1"}, "objective", "f1"),
        ({"objective": "profit"}, "objective", None),
        ({"value": "label"}, "value", None),
        ({"nested": "yes"}, "nested", None),
        ({"randomize": "dice"}, "randomize", None),
        ({"criterion": "predictive_parity", "randomize": "hash"}, "randomize", None),
        ({"rising": True, "randomize": "hash"}, "randomize", None),
        ({"nested": True, "randomize": "hash"}, "randomize", None),
    ],
    ids=str,
)
def test_an_argument_that_makes_no_sense_is_named(options, argument, hint):
    error = refused(**options)
    assert error.argument == argument
    assert hint is None or any(hint in text for text in error.hints)


def test_a_demand_checks_its_own_numbers():
    for options, argument in (
        ({"spread": "quotient"}, "spread"),
        ({"scale": -1}, "scale"),
        ({"level": 2.0}, "level"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            Demand(SELECTION, **options)
        assert caught.value.argument == argument
    with pytest.raises(InvalidInputError) as caught:
        Criterion("empty", ())
    assert caught.value.argument == "demands"


COLUMNS = pd.DataFrame({"age": np.arange(N), "never": False})


@pytest.mark.parametrize(
    ("where", "columns", "argument"),
    [
        ("income", COLUMNS, "control_features"),
        ("age", None, "control_features"),
        ("never", COLUMNS, "control_features"),
        ("age", COLUMNS[:5], "control_features"),
        (lambda columns: columns["age"], COLUMNS, "where"),
    ],
    ids=["missing column", "no columns", "no rows", "too few rows", "not boolean"],
)
def test_a_condition_that_cannot_be_applied_is_refused(where, columns, argument):
    error = refused(criterion=Demand(TRUE_POSITIVE, where=where), control_features=columns)
    assert f"`{argument}`" in str(error)


def test_a_criterion_of_your_own_is_not_saved():
    own = Criterion("mine", (Demand(PRECISION, "ratio"),))
    frontier = sweep(LOGITS, GROUPS, Y, criterion=own)
    with pytest.raises(InvalidInputError) as caught:
        frontier.to_json()
    assert caught.value.argument == "criterion"
    assert criterion(own) is own
