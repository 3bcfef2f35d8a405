"""Laws of the general dial: weights, nesting, monotonicity, bounds and files."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fairdial import Budget, Costs, Demand, Frontier, criterion, minimum, sweep
from fairdial.core.criteria import CRITERIA, name_to_save
from fairdial.core.problem import problem_to_dict
from fairdial.core.rates import RATES
from fairdial.errors import ConstantDecisionsWarning, InfeasibleToleranceWarning

NAMES = tuple(kind.name for kind in CRITERIA)
COMBINED = (
    *NAMES,
    "demographic_parity_ratio",
    "equalized_odds_ratio",
    "equalized_odds+true_positive_rate>=0.3",
    "demographic_parity=0.1+equal_opportunity=0.05",
    "false_positive_rate<=0.4",
)
OBJECTIVES = ("accuracy", "balanced_accuracy", "f1", Costs(1, 5))
TOLERANCES = [0.0, 0.03, 0.1, 0.25, 0.6]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        warnings.simplefilter("ignore", ConstantDecisionsWarning)
        yield


def draw(seed, n=80, n_groups=2):
    """Rows of a few distinct scores, in which each group has rows with both labels."""
    rng = np.random.default_rng(seed)
    groups = np.append(np.repeat(np.arange(n_groups), 2), rng.integers(0, n_groups, n))
    logits = np.round(rng.normal(0.7 * groups - 0.5, 1.2), 1)
    y = np.append(np.tile([0, 1], n_groups), rng.random(n) < 1 / (1 + np.exp(-logits[-n:])))
    return logits, groups, y.astype(int), rng


def same(one, two):
    for column in ("gap", "feasible", "thresholds", "selected_cells", "cells"):
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column), err_msg=column)


# ---- weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [*OBJECTIVES, "utility"], ids=str)
@pytest.mark.parametrize("kind", COMBINED)
def test_whole_weights_are_repeated_rows_to_the_last_bit(kind, objective):
    logits, groups, y, rng = draw(len(kind), 40)
    weights = rng.integers(0, 4, len(y))
    weights[:4] = 1  # keep both labels in each group
    repeated = np.repeat(np.arange(len(y)), weights)
    options = {"criterion": kind, "min_count": 1}
    if objective == "utility":
        utility = rng.normal(size=len(y))
        one = sweep(logits, groups, y, sample_weight=weights, utility=utility, **options)
        options["utility"] = utility[repeated]
    else:
        options["objective"] = objective
        one = sweep(logits, groups, y, sample_weight=weights.astype(float), **options)
    two = sweep(logits[repeated], groups[repeated], y[repeated], **options)
    first, second = one.at(TOLERANCES), two.at(TOLERANCES)
    same(first, second)
    assert [p.expected_value for p in first] == [p.expected_value for p in second]


# ---- nested dials ------------------------------------------------------------------------------


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("kind", COMBINED)
def test_on_a_nested_dial_each_row_changes_at_most_once(kind, n_groups):
    logits, groups, y, _ = draw(2 * len(kind) + n_groups, n_groups=n_groups)
    options = {"criterion": kind, "min_count": 1}
    frontier = sweep(logits, groups, y, nested=True, **options)
    assert frontier.nested
    thresholds, _ = frontier.points.read(np.arange(len(frontier)))
    decisions = logits > thresholds[:, groups]  # (S, n)
    assert np.abs(np.diff(decisions.astype(int), axis=0)).sum(axis=0).max() <= 1
    best = sweep(logits, groups, y, nested=False, **options)
    for tolerance in TOLERANCES:
        point = frontier.at(tolerance)
        if point.feasible:
            assert point.gap <= tolerance
            assert best.at(tolerance).expected_value >= point.expected_value - 1e-12


@pytest.mark.parametrize("kind", ["equalized_odds", "demographic_parity_ratio", "accuracy_parity"])
def test_the_loss_of_nesting_is_the_largest_difference_of_values(kind):
    logits, groups, y, _ = draw(7)
    options = {"criterion": kind, "min_count": 1}
    nested = sweep(logits, groups, y, nested=True, **options)
    best = sweep(logits, groups, y, nested=False, **options)
    thresholds, _ = nested.points.read(np.arange(len(nested)))
    pairs = zip(nested.setting.tolist(), thresholds, strict=True)
    lost = [
        best.at(t).expected_value - nested.points.expected_value(rule)
        for t, rule in pairs
        if t < nested.setting[0]
    ]
    assert nested.nested_loss == pytest.approx(max([0.0, *lost]), abs=1e-12)


# ---- monotonicity, bounds and rising thresholds ------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("kind", COMBINED)
def test_a_tighter_tolerance_is_never_worth_more_and_the_bound_is_above(kind, objective):
    logits, groups, y, _ = draw(3 * len(kind), n_groups=3)
    frontier = sweep(
        logits, groups, y, criterion=kind, objective=objective, nested=False, min_count=1
    )
    points = [p for p in frontier.at(np.linspace(1, 0, 11)) if p.feasible]
    values = [p.expected_value for p in points]
    assert (np.diff(values) <= 1e-12).all()
    for point in points[::3]:
        assert point.bound is None or point.bound >= point.expected_value - 1e-12
        assert (point.bound is None) == (
            objective == "f1" or not all(rate.fixed for rate in criterion(kind).rates)
        )


@pytest.mark.parametrize("budget", [None, 0.7, Budget(0.6, exact=True)], ids=str)
@pytest.mark.parametrize(
    "kind", ["demographic_parity", "equalized_odds", "equal_opportunity_ratio"]
)
def test_rising_thresholds_never_take_a_positive_decision_away(kind, budget):
    logits, groups, y, _ = draw(11, n_groups=3)
    options = {"criterion": kind, "budget": budget, "min_count": 1}
    frontier = sweep(logits, groups, y, rising=True, **options)
    plain = sweep(logits, groups, y, nested=False, **options)
    before = plain.decide(logits, groups, 1.0)
    for tolerance in TOLERANCES:
        point = frontier.at(tolerance)
        assert (frontier.decide(logits, groups, tolerance) >= before).all()
        if budget is not None:
            share = budget if isinstance(budget, float) else budget.share
            assert point.selected.sum() <= share * len(y)


# ---- files and names ---------------------------------------------------------------------------

PROBLEMS = [
    *({"criterion": kind} for kind in COMBINED),
    {"criterion": "equalized_odds", "objective": "f1"},
    {"criterion": "equalized_odds", "objective": Costs(2, 3), "value": "labels"},
    {"criterion": "equalized_odds", "budget": Budget(0.3, exact=True)},
    {"criterion": "demographic_parity", "budget": 0.2, "rising": True},
    {"criterion": "equalized_odds", "nested": True},
    {"criterion": "demographic_parity", "nested": False},
    {"criterion": "equalized_odds", "randomize": "hash"},
    {"criterion": "demographic_parity", "weights": True},
    {"criterion": "equalized_odds", "weights": True, "strata": True},
    {"criterion": "accuracy_parity", "utility": True},
]


@pytest.mark.parametrize("options", PROBLEMS, ids=str)
def test_a_file_gives_every_kind_of_dial_back_to_the_last_bit(options):
    logits, groups, y, rng = draw(5, 300)
    options = dict(options)
    if options.pop("weights", False):
        options["sample_weight"] = rng.uniform(0.1, 2, len(y))
    if options.pop("strata", False):
        options["control_features"] = np.array(["a", "b"])[rng.integers(0, 2, len(y))]
    if options.pop("utility", False):
        options["utility"] = rng.normal(size=len(y))
    frontier = sweep(logits, groups, y, min_count=1, **options)
    again = Frontier.from_json(frontier.to_json())
    assert problem_to_dict(again.problem) == problem_to_dict(frontier.problem)
    assert (again.groups, again.certificate) == (frontier.groups, frontier.certificate)
    same(frontier.at(TOLERANCES), again.at(TOLERANCES))
    assert again.to_json() == frontier.to_json()


@pytest.mark.parametrize("kind", [*COMBINED, "equal_opportunity=0.05"])
def test_a_saved_name_is_read_as_the_same_criterion(kind):
    given = criterion(kind)
    assert criterion(name_to_save(given)) == given


def test_lists_mappings_and_texts_mean_the_same():
    parts = ["equalized_odds", "demographic_parity_ratio", "true_positive_rate>=0.3"]
    assert criterion(parts) == criterion("+".join(parts))
    mapping = {"demographic_parity": 0.1, "equal_opportunity": 0.05}
    assert criterion(mapping) == criterion("demographic_parity=0.1+equal_opportunity=0.05")
    assert criterion(mapping).declared == 0.1
    assert criterion(minimum("accuracy", 0.5)) == criterion("accuracy>=0.5")


# ---- conditions --------------------------------------------------------------------------------


def adults(columns):
    return columns["age"] >= 18


@pytest.mark.parametrize("where", ["adult", adults], ids=["column", "callable"])
@pytest.mark.parametrize("rate", [rate for rate in RATES if rate.fixed], ids=lambda rate: rate.name)
def test_a_condition_limits_the_rate_of_its_rows_only(where, rate):
    import pandas as pd

    logits, groups, y, rng = draw(13, 400)
    age = rng.integers(10, 30, len(y))
    columns = pd.DataFrame({"age": age, "adult": age >= 18})
    frontier = sweep(
        logits,
        groups,
        y,
        criterion=Demand(rate, where=where),
        control_features=columns,
        min_count=1,
    )
    point = frontier.at(0.02)
    decisions = frontier.decide(logits, groups, 0.02)
    inside = (age >= 18) & rate.eligible_rows(y == 1)
    event = {"selected": decisions, "rejected": ~decisions, "correct": decisions == (y == 1)}
    rates = [event[rate.event][inside & (groups == a)].mean() for a in (0, 1)]
    assert abs(rates[1] - rates[0]) == pytest.approx(point.gap, abs=1e-15)
    assert point.gap <= 0.02
