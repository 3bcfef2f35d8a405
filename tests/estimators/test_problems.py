"""Criteria, objectives, budgets and lotteries at the level of estimators."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LogisticRegression

from fairdial import (
    EPO,
    GFB,
    YOTO,
    AutoDial,
    Budget,
    Costs,
    FairBayes,
    FairBiNN,
    InvalidInputError,
    Network,
    criterion,
    sweep,
)
from fairdial.core.criteria import CRITERIA
from fairdial.core.objectives import objective as find_objective
from fairdial.datasets import make_gaussian
from fairdial.estimators.draws import draw_rows
from fairdial.estimators.gfb import compared
from fairdial.estimators.trials import row_values
from fairdial.metrics import gap
from fairdial.registry import find

pytestmark = pytest.mark.filterwarnings("ignore::fairdial.FairdialWarning")
SAMPLE = make_gaussian(4000, random_state=0)
TRAIN, TEST = SAMPLE.split(test_size=0.5, random_state=0)
TINY = Network(members=1, hidden=(8,), epochs=2, batch_size=64)
NAMES = [kind.name for kind in CRITERIA]
PROBLEMS: list[dict[str, Any]] = [
    *({"criterion": name} for name in NAMES),
    {"criterion": "demographic_parity_ratio"},
    {"criterion": ["equalized_odds", "true_positive_rate>=0.5"]},
    {"criterion": {"demographic_parity": 0.1, "equal_opportunity": 0.05}},
    {"objective": Costs(false_positive=1, false_negative=5)},
    {"objective": "balanced_accuracy"},
    {"objective": "f1", "criterion": "equal_opportunity"},
    {"budget": 0.2},
    {"budget": 200, "criterion": "equalized_odds"},
    {"budget": Budget(0.3, exact=True)},
    {"rising": True},
    {"nested": True, "criterion": "equalized_odds"},
    {"nested": False},
    {"randomize": "hash", "criterion": "equalized_odds"},
]


def fit(model: Any, data: Any = TRAIN, **more: Any) -> Any:
    return model.fit(data.X, data.y, sensitive_features=data.groups, **more)


def calibrate(model: Any, data: Any = TEST, **more: Any) -> Any:
    return model.calibrate(data.X, data.y, sensitive_features=data.groups, **more)


TRAINED = fit(FairBayes(LogisticRegression(), per_group=True, random_state=0))


# ---- one trained model, any problem ------------------------------------------------------------


@pytest.mark.parametrize("params", PROBLEMS, ids=str)
def test_a_trained_model_switches_to_any_problem(params: dict[str, Any]) -> None:
    model = fit(FairBayes(LogisticRegression(), per_group=True, random_state=0))
    scorer = model.scorer_
    calibrate(model.set_params(**params))
    assert model.scorer_ is scorer
    expected = sweep(
        model.logits(TEST.X, sensitive_features=TEST.groups), TEST.groups, TEST.y, **params
    )
    assert model.frontier_.problem == expected.problem
    for tolerance in (0.05, 0.2):
        here, there = model.frontier_.at(tolerance), expected.at(tolerance)
        assert_array_equal(here.thresholds, there.thresholds)
        assert here.gaps == there.gaps
        assert here.gap <= tolerance


@pytest.mark.parametrize("params", PROBLEMS, ids=str)
def test_fitting_solves_the_same_problem_as_calibrating(params: dict[str, Any]) -> None:
    held = fit(FairBayes(LogisticRegression(), random_state=0, **params))
    switched = fit(FairBayes(LogisticRegression(), random_state=0))
    assert held.frontier_.problem.objective == held.problem.objective
    again = switched.set_params(**params)
    rows = np.random.default_rng(0).permutation(len(TEST.y))[:1000]
    for model in (held, again):
        model.calibrate(TEST.X.iloc[rows], TEST.y[rows], sensitive_features=TEST.groups[rows])
    here, there = (model.frontier_.at([0.05, 0.2]) for model in (held, again))
    assert_array_equal(here.thresholds, there.thresholds)


@pytest.mark.parametrize(
    ("params", "argument"),
    [
        ({"criterion": "parity"}, "criterion"),
        ({"objective": "profit"}, "objective"),
        ({"budget": 1.5}, "budget"),
        ({"budget": 10**6}, "budget"),
        ({"nested": "yes"}, "nested"),
        ({"rising": 2}, "rising"),
        ({"randomize": "dice"}, "randomize"),
        ({"randomize": "hash", "nested": True}, "randomize"),
        ({"randomize": "hash", "criterion": "predictive_parity"}, "randomize"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [FairBayes, GFB, AutoDial])
def test_wrong_settings_are_refused_before_training(
    kind: Any, params: dict[str, Any], argument: str
) -> None:
    model = kind(**params)
    with pytest.raises(InvalidInputError) as caught:
        fit(model)
    assert caught.value.argument == argument
    assert not hasattr(model, "scorer_")


def test_a_number_of_rows_refers_to_the_calibration_rows() -> None:
    model = fit(FairBayes(LogisticRegression(), budget=100, random_state=0))
    assert model.frontier_.cells.sum() < len(TRAIN.y)
    assert model.frontier_.at(0.1).selected.sum() <= 100
    assert model.problem.budget == model.frontier_.problem.budget
    calibrate(model)
    assert 90 < model.frontier_.at(0.1).selected.sum() <= 100
    assert model.problem.budget == Budget(100 / len(TEST.y))
    late = fit(FairBayes(LogisticRegression(), budget=100, calibration=None))
    assert calibrate(late).frontier_.at(0.1).selected.sum() <= 100


def test_the_dial_improves_its_own_objective() -> None:
    objectives: list[Any] = [Costs(1, 6), "balanced_accuracy", "f1", "accuracy"]
    for mine in objectives:
        best = calibrate(TRAINED.set_params(objective=mine, nested=False)).frontier_.at(0.1)
        for other in objectives:
            rule = calibrate(TRAINED.set_params(objective=other)).frontier_.at(0.1)
            value = best.source.expected_value(rule.thresholds)
            assert best.expected_value >= value - 1e-12
    TRAINED.set_params(objective="accuracy", nested=None)


# ---- the declared tolerance --------------------------------------------------------------------


def test_a_mapping_declares_the_tolerance_of_predict() -> None:
    kind = {"demographic_parity": 0.10, "equal_opportunity": 0.05}
    model = calibrate(fit(FairBayes(LogisticRegression(), criterion=kind, random_state=0)))
    asked = {"sensitive_features": TEST.groups}
    assert model.default_tolerance == 0.10
    assert_array_equal(
        model.predict(TEST.X, **asked), model.predict(TEST.X, **asked, tolerance=0.1)
    )
    decisions = model.predict(TEST.X, **asked)
    assert gap(TEST.y, decisions, sensitive_features=TEST.groups) <= 0.10
    held = gap(TEST.y, decisions, sensitive_features=TEST.groups, criterion="equal_opportunity")
    assert held <= 0.05
    assert model.thresholds() == model.thresholds(0.1)
    model.tolerance = 0.02
    assert model.default_tolerance == 0.02
    model.tolerance = None
    assert model.default_tolerance == 0.10
    assert FairBayes(tolerance=None).default_tolerance == 0.0


# ---- lotteries ---------------------------------------------------------------------------------


def lottery() -> FairBayes:
    params = {"criterion": "equalized_odds", "randomize": "hash", "random_state": 0}
    return calibrate(fit(FairBayes(LogisticRegression(), per_group=True, **params)))


def test_a_lottery_gives_equal_rows_equal_decisions() -> None:
    model, groups = lottery(), TEST.groups
    point = model.frontier_.at(0.01)
    assert point.lottery is not None
    mixed = point.lottery.probabilities.max(axis=1) < 1
    assert mixed.any()
    asked = {"tolerance": 0.01}
    decisions = model.predict(TEST.X, sensitive_features=groups, **asked)
    order = np.random.default_rng(0).permutation(len(decisions))
    shuffled = model.predict(TEST.X.iloc[order], sensitive_features=groups[order], **asked)
    assert_array_equal(shuffled, decisions[order])
    alone = [
        model.predict(TEST.X.iloc[[i]], sensitive_features=groups[[i]], **asked)[0]
        for i in range(20)
    ]
    assert_array_equal(alone, decisions[:20])
    margin = model.decision_function(TEST.X, sensitive_features=groups, **asked)
    assert_array_equal(margin > 0, decisions == 1)


def test_a_lottery_selects_the_expected_shares() -> None:
    model = lottery()
    point = model.frontier_.at(0.01)
    decisions = model.predict(TEST.X, sensitive_features=TEST.groups, tolerance=0.01)
    for a, name in enumerate(point.groups):
        rows = TEST.groups == name
        error = (0.25 / rows.sum()) ** 0.5
        assert abs((decisions[rows] == 1).mean() - point.selection_rate[a]) < 4 * error


def test_a_lottery_decides_for_one_tolerance_at_a_time() -> None:
    with pytest.raises(InvalidInputError) as caught:
        lottery().predict(
            TEST.X, sensitive_features=TEST.groups, tolerance=np.full(len(TEST.y), 0.01)
        )
    assert caught.value.argument == "tolerance"


def test_draws_depend_on_the_values_of_a_row_only() -> None:
    table = pd.DataFrame(
        {"age": [41, 30, 41], "job": ["nurse", None, "nurse"], "x": [0.5, 0.0, 0.5]}
    )
    draws, none = draw_rows(table, np.zeros(3)), np.zeros(3)
    assert draws[0] == draws[2] != draws[1]
    assert ((draws >= 0) & (draws < 1)).all()
    others = [
        table.set_index(pd.Index([7, 8, 9])),
        table.rename(columns=str.upper),
        table.astype({"age": "Int64"}),
        table.astype({"age": float}),
        table.astype({"job": "category"}),
        table.astype({"job": object}),
        table.assign(x=[0.5, -0.0, 0.5]),
    ]
    for other in others:
        assert_array_equal(draw_rows(other, none), draws)
    numbers = table[["age", "x"]]
    assert_array_equal(draw_rows(numbers.to_numpy(), none), draw_rows(numbers, none))
    assert_array_equal(draw_rows(numbers.to_numpy().tolist(), none), draw_rows(numbers, none))
    with_missing = pd.concat([numbers, pd.DataFrame({"age": [None], "x": [1.0]})])
    assert_array_equal(draw_rows(with_missing, np.zeros(4))[:3], draw_rows(numbers, none))
    many = draw_rows(np.arange(20_000.0)[:, None], np.zeros(20_000))
    assert np.histogram(many, 10, (0, 1))[0].min() > 1_800


def test_draws_are_the_same_in_another_process() -> None:
    code = """
        import numpy as np, pandas as pd
        from fairdial.estimators.draws import draw_rows
        table = pd.DataFrame({"age": [41, 30], "job": ["nurse", "clerk"]})
        print(draw_rows(table, np.zeros(2)).tolist())
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    table = pd.DataFrame({"age": [41, 30], "job": ["nurse", "clerk"]})
    assert found.stdout.strip() == str(draw_rows(table, np.zeros(2)).tolist())


# ---- networks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "equalized_odds+true_positive_rate>=0.3"])
def test_a_plain_network_is_trained_for_every_criterion(name: str) -> None:
    model = fit(FairBayes(TINY, criterion=name, random_state=0))
    assert model.frontier_.at(0.1).gap <= 0.1
    assert np.isfinite(model.history_["score"]).all()


def test_gfb_names_the_way_to_other_criteria_and_it_works() -> None:
    name = "equalized_odds+demographic_parity"
    model = GFB(criterion=name, network=TINY, random_state=0)
    with pytest.raises(InvalidInputError) as caught:
        fit(model)
    assert caught.value.argument == "criterion"
    assert f"set_params(criterion='{name}')" in str(caught.value)
    fit(model.set_params(criterion="equal_opportunity"))
    net = model.net_
    calibrate(model.set_params(criterion=name))
    assert model.net_ is net
    assert max(model.frontier_.at(0.05).gaps.values()) <= 0.05


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("demographic_parity", ["selection_rate"]),
        ("demographic_parity_ratio", ["selection_rate"]),
        ("false_negative_rate_parity", ["true_positive_rate"]),
        ("predictive_equality+true_positive_rate>=0.5", ["false_positive_rate"]),
        ("equalized_odds", ["true_positive_rate", "false_positive_rate"]),
        ("equal_odds_ratio", ["true_positive_rate", "false_positive_rate"]),
        (
            "predictive_equality+false_negative_rate_parity",
            ["true_positive_rate", "false_positive_rate"],
        ),
        (
            "equalized_odds+true_positive_rate>=0.3",
            ["true_positive_rate", "false_positive_rate"],
        ),
        ("equalized_odds+demographic_parity", []),
        ("accuracy_parity", []),
        ("predictive_parity", []),
        ("true_positive_rate>=0.5", []),
    ],
)
def test_gfb_trains_for_one_rate_or_equalized_odds(name: str, rates: list[str]) -> None:
    found = compared(criterion(name))
    found = found if isinstance(found, tuple) else () if found is None else (found,)
    assert [rate.name for rate in found] == rates
    if rates and name != "demographic_parity":
        assert fit(GFB(criterion=name, network=TINY, random_state=0)).frontier_.at(0.2).gap <= 0.2


@pytest.mark.parametrize("kind", [EPO, FairBiNN, YOTO])
@pytest.mark.parametrize("name", ["equalized_odds", "false_negative_rate_parity"])
def test_families_are_trained_and_measured_for_sums_of_gaps(kind: Any, name: str) -> None:
    own = {EPO: {"n_settings": 2}, FairBiNN: {"n_settings": 2, "widen": 0}, YOTO: {"targets": 2}}
    model = calibrate(fit(kind(**own[kind], criterion=name, network=TINY, random_state=0)))
    point = model.frontier_.at(1.0)
    decisions = model.predict(TEST.X, sensitive_features=TEST.groups, tolerance=1.0)
    expected = gap(TEST.y, decisions, sensitive_features=TEST.groups, criterion=name)
    assert point.gap == pytest.approx(expected)
    switched = calibrate(model.set_params(criterion="predictive_parity"))
    assert switched.frontier_.criterion.name == "predictive_parity"


@pytest.mark.parametrize("kind", [EPO, FairBiNN, YOTO])
@pytest.mark.parametrize(
    "name", ["demographic_parity_ratio", "predictive_parity", "true_positive_rate>=0.5"]
)
def test_families_refuse_what_they_can_not_be_trained_for(kind: Any, name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        fit(kind(criterion=name, network=TINY, random_state=0))
    assert caught.value.argument == "criterion"


# ---- AutoDial ----------------------------------------------------------------------------------


@pytest.mark.parametrize("params", PROBLEMS, ids=str)
def test_autodial_compares_candidates_on_its_problem(params: dict[str, Any]) -> None:
    model = fit(AutoDial(candidates=["logistic", "boosting"], random_state=0, **params))
    assert model.model_.frontier_ is model.frontier_
    assert model.frontier_.at(0.2).gap <= 0.2
    name = model.problem.objective.name
    assert np.isfinite(model.trials_[name]).all()
    for other, value in params.items():
        assert getattr(model.model_, other) == value


def test_gfb_is_no_candidate_for_other_rates() -> None:
    with pytest.raises(InvalidInputError) as caught:
        fit(AutoDial(candidates=["gfb", "logistic"], criterion="accuracy_parity"))
    assert caught.value.argument == "candidates"
    assert find("gfb").refuses(criterion("accuracy_parity"))
    assert not find("gfb").refuses(criterion("equalized_odds"))
    assert not find("boosting").refuses(criterion("accuracy_parity"))


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "f1", "costs"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_of_row_values_is_the_objective(name: str, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    positive, selected = rng.random(300) < 0.3, rng.random((4, 300)) < 0.4
    weights = rng.integers(1, 5, 300) if weighted else None
    kind = Costs(1, 5) if name == "costs" else find_objective(name)
    values = row_values(kind, selected, positive, weights)
    each = np.ones(300, np.int64) if weights is None else weights
    counts = np.array([[each[~positive].sum()], [each[positive].sum()]])
    for t in range(4):
        chosen = selected[t]
        cells = np.array([[each[chosen & ~positive].sum()], [each[chosen & positive].sum()]])
        assert values[t].mean() == pytest.approx(float(kind.value_of(cells, counts)), rel=1e-12)


def test_methods_without_thresholds_refuse_objectives() -> None:
    with pytest.raises(InvalidInputError) as caught:
        find("epo").make(budget=0.2)
    assert caught.value.argument == "budget"
    assert find("boosting").make(budget=0.2).budget == 0.2
    assert find("auto").make(objective="f1", time_limit=5.0).time_limit == 5.0
