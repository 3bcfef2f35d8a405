"""Sample weights and control features at the level of estimators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairdial import (
    GFB,
    YOTO,
    AutoDial,
    CannotCertifyError,
    Costs,
    FairBayes,
    InvalidInputError,
    Network,
    SmallGroupError,
    TrainingWarning,
    criterion,
    make_group_scorer,
    minimum,
    sweep,
)
from fairdial.core.criteria import CRITERIA
from fairdial.core.demands import Demand
from fairdial.core.rates import SELECTION
from fairdial.datasets import make_gaussian
from fairdial.estimators.fitting import weight_argument

pytestmark = pytest.mark.filterwarnings("ignore::fairdial.FairdialWarning")
SAMPLE = make_gaussian(1200, random_state=0)
TRAIN, HELD = SAMPLE.split(test_size=0.5, random_state=0)
SCORER = LogisticRegression().fit(TRAIN.X, TRAIN.y)
RNG = np.random.default_rng(0)
COUNTS = RNG.integers(0, 4, len(HELD.y))
REPEATED = np.repeat(np.arange(len(HELD.y)), COUNTS)
TOLERANCES = [0.0, 0.03, 0.1, 0.3, 1.0]
NAMES = [kind.name for kind in CRITERIA]
TINY = Network(members=1, hidden=(8,), epochs=2, batch_size=64)


def prefit(**params: Any) -> FairBayes:
    return FairBayes(SCORER, prefit=True, **({"min_count": 1} | params))


def weighted(model: Any, weights: Any = COUNTS, **more: Any) -> Any:
    return model.calibrate(
        HELD.X, HELD.y, sensitive_features=HELD.groups, sample_weight=weights, **more
    )


def repeated(model: Any, **more: Any) -> Any:
    more = {name: np.asarray(value)[REPEATED] for name, value in more.items()}
    rows = HELD.X.iloc[REPEATED]
    return model.calibrate(rows, HELD.y[REPEATED], sensitive_features=HELD.groups[REPEATED], **more)


def assert_same_dial(one: FairBayes, other: FairBayes) -> None:
    assert_array_equal(one.frontier_.cells, other.frontier_.cells)
    here, there = (model.frontier_.at(TOLERANCES) for model in (one, other))
    for what in ("thresholds", "gap", "feasible", "selected_cells", "setting"):
        assert_array_equal(getattr(here, what), getattr(there, what))


# ---- calibration: whole weights are repeated rows, bit for bit ---------------------------------


@pytest.mark.parametrize("name", [*NAMES, "demographic_parity_ratio", "equalized_odds_ratio"])
def test_whole_weights_are_repeated_rows_for_every_criterion(name: str) -> None:
    assert_same_dial(weighted(prefit(criterion=name)), repeated(prefit(criterion=name)))


@pytest.mark.parametrize(
    "params",
    [
        {"criterion": {"demographic_parity": 0.10, "equal_opportunity": 0.05}},
        {"criterion": ["demographic_parity", "true_positive_rate>=0.6"]},
        {"objective": Costs(false_positive=1, false_negative=4)},
        {"objective": "balanced_accuracy", "criterion": "equalized_odds"},
        {"objective": "f1"},
        {"budget": 0.2, "criterion": "equal_opportunity"},
        {"budget": 90},
        {"rising": True},
        {"nested": True, "criterion": "equalized_odds"},
        {"nested": False},
        {"recalibrate": "group"},
        {"recalibrate": "group", "criterion": "equalized_odds"},
    ],
    ids=str,
)
def test_whole_weights_are_repeated_rows_for_every_setting(params: dict[str, Any]) -> None:
    assert_same_dial(weighted(prefit(**params)), repeated(prefit(**params)))


@settings(max_examples=20, deadline=None)
@given(
    counts=st.lists(st.integers(0, 3), min_size=60, max_size=60),
    name=st.sampled_from([*NAMES[:5], "demographic_parity_ratio"]),
    dtype=st.sampled_from([np.int8, np.int64, np.float32, np.float64]),
)
def test_weights_of_any_type_are_repeated_rows(counts: list[int], name: str, dtype: Any) -> None:
    weights = np.array(counts)
    weights[:8] = 1  # every group and label has rows
    y = np.tile([0, 0, 1, 1], 15)
    groups = np.tile([0, 1], 30)
    rows = HELD.X.iloc[:60]
    some = np.repeat(np.arange(60), weights)
    one, other = (prefit(criterion=name) for _ in range(2))
    one.calibrate(rows, y, sensitive_features=groups, sample_weight=weights.astype(dtype))
    other.calibrate(rows.iloc[some], y[some], sensitive_features=groups[some])
    assert_same_dial(one, other)


def test_rows_without_weight_are_no_rows() -> None:
    weights = 0.5 + RNG.random(len(HELD.y))
    kept = RNG.random(len(HELD.y)) < 0.7
    model = weighted(prefit(), np.where(kept, weights, 0.0))
    other = prefit().calibrate(
        HELD.X[kept],
        HELD.y[kept],
        sensitive_features=HELD.groups[kept],
        sample_weight=weights[kept],
    )
    assert_same_dial(model, other)


@pytest.mark.parametrize("scale", [0.25, 8.0])
def test_the_scale_of_weights_does_not_matter(scale: float) -> None:
    weights = np.round(0.5 + RNG.random(len(HELD.y)), 2)
    one, other = weighted(prefit(), weights), weighted(prefit(), weights * scale)
    assert_array_equal(one.frontier_.at(0.05).thresholds, other.frontier_.at(0.05).thresholds)
    assert one.frontier_.at(0.05).gap == pytest.approx(other.frontier_.at(0.05).gap, abs=1e-12)


def test_the_dial_is_a_sweep_with_weights_and_strata() -> None:
    control = np.where(RNG.random(len(HELD.y)) < 0.5, "north", "south")
    model = weighted(prefit(criterion="equal_opportunity"), control_features=control)
    logits = model.logits(HELD.X, sensitive_features=HELD.groups)
    frontier = sweep(
        logits,
        HELD.groups,
        HELD.y,
        criterion="equal_opportunity",
        sample_weight=COUNTS,
        control_features=control,
        min_count=1,
    )
    for tolerance in (0.05, 0.2):
        here, there = model.frontier_.at(tolerance), frontier.at(tolerance)
        assert_array_equal(here.thresholds, there.thresholds)
        assert here.gaps == there.gaps
        assert all(gap <= tolerance for gap in here.gaps.values())
        assert len(here.gaps) == 2


def test_weights_support_no_confidence_statement() -> None:
    with pytest.raises(CannotCertifyError):
        weighted(prefit()).frontier_.at(0.2, confidence=0.9)


@pytest.mark.parametrize(
    "bad", [np.full(len(HELD.y), -1.0), np.zeros(len(HELD.y)), [1.0], [np.nan] * len(HELD.y)]
)
@pytest.mark.parametrize("method", ["fit", "calibrate"])
def test_bad_weights_are_refused_by_name(bad: Any, method: str) -> None:
    model = FairBayes(LogisticRegression(), min_count=1)
    if method == "calibrate":
        model.fit(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)
    with pytest.raises(InvalidInputError) as caught:
        getattr(model, method)(HELD.X, HELD.y, sensitive_features=HELD.groups, sample_weight=bad)
    assert caught.value.argument == "sample_weight"


def test_weights_in_another_order_are_noticed() -> None:
    weights = pd.Series(COUNTS, index=HELD.X.index).sort_values()
    with pytest.raises(InvalidInputError) as caught:
        weighted(prefit(), weights)
    assert caught.value.argument == "sample_weight"


# ---- training ----------------------------------------------------------------------------------


def fit(model: Any, weights: Any = None, data: Any = SAMPLE, **more: Any) -> Any:
    return model.fit(data.X, data.y, sensitive_features=data.groups, sample_weight=weights, **more)


def test_the_classifier_is_trained_with_weights() -> None:
    weights = 0.5 + np.random.default_rng(1).random(len(SAMPLE.y))
    model = fit(FairBayes(LogisticRegression(), calibration=None), weights)
    expected = LogisticRegression().fit(SAMPLE.X, SAMPLE.y, sample_weight=weights)
    assert_allclose(model.estimator_.coef_, expected.coef_, rtol=1e-9)
    piped = fit(FairBayes(make_pipeline(LogisticRegression()), calibration=None), weights)
    assert_allclose(piped.estimator_[-1].coef_, expected.coef_, rtol=1e-9)
    each = fit(FairBayes(LogisticRegression(), per_group=True, calibration=None), weights)
    for name, found in zip(each.trained_groups_, each.estimator_, strict=True):
        rows = SAMPLE.groups == name
        own = LogisticRegression().fit(SAMPLE.X[rows], SAMPLE.y[rows], weights[rows])
        assert_allclose(found.coef_, own.coef_, rtol=1e-9)


def test_a_row_without_weight_is_left_out_of_everything() -> None:
    weights = np.ones(len(SAMPLE.y))
    kept = np.random.default_rng(2).random(len(weights)) < 0.8
    weights[~kept] = 0.0
    for params in ({}, {"cv": 3}, {"recalibrate": "group"}):
        model = fit(FairBayes(LogisticRegression(), random_state=0, **params), weights)
        other = FairBayes(LogisticRegression(), random_state=0, **params).fit(
            SAMPLE.X[kept], SAMPLE.y[kept], sensitive_features=SAMPLE.groups[kept]
        )
        asked = {"sensitive_features": HELD.groups, "tolerance": 0.05}
        assert_array_equal(model.predict(HELD.X, **asked), other.predict(HELD.X, **asked))
        assert_array_equal(model.frontier_.cells, other.frontier_.cells)


def test_cross_fitting_and_held_out_rows_use_weights() -> None:
    weights = np.where(SAMPLE.y == 1, 3, 1)
    crossed = fit(FairBayes(LogisticRegression(), cv=3, random_state=0), weights)
    assert crossed.frontier_.counts.sum() == weights.sum()
    held = fit(FairBayes(LogisticRegression(), random_state=0), weights)
    plain = fit(FairBayes(LogisticRegression(), random_state=0))
    assert_array_equal(held.frontier_.counts, plain.frontier_.counts * [[1], [3]])


def test_a_classifier_that_takes_no_weights_draws_a_warning() -> None:
    weights = np.where(SAMPLE.y == 1, 3, 1)
    model = FairBayes(KNeighborsClassifier(20), random_state=0)
    with pytest.warns(TrainingWarning, match="KNeighborsClassifier"):
        fit(model, weights)
    assert model.frontier_.certificate == "weighted"
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainingWarning)
        fit(model)


def test_where_weights_go() -> None:
    piped = make_pipeline(StandardScaler(), make_pipeline(LogisticRegression()))
    assert weight_argument(piped) == "pipeline__logisticregression__sample_weight"
    assert weight_argument(make_pipeline(KNeighborsClassifier())) is None
    requested = LogisticRegression()
    with sklearn.config_context(enable_metadata_routing=True):
        requested.set_fit_request(sample_weight=True)
        assert weight_argument(make_pipeline(StandardScaler(), requested)) is not None
        search = GridSearchCV(requested, {"C": [1.0]})
        assert weight_argument(search) == "sample_weight"
    weights = np.where(SAMPLE.y == 1, 3, 1)
    model = fit(FairBayes(piped, calibration=None), weights)
    scaled = StandardScaler().fit_transform(SAMPLE.X)
    expected = LogisticRegression().fit(scaled, SAMPLE.y, sample_weight=weights)
    assert_allclose(model.estimator_[-1][-1].coef_, expected.coef_, rtol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        FairBayes(TINY, random_state=0),
        GFB(network=TINY, random_state=0),
        YOTO(network=TINY, targets=2, random_state=0),
        AutoDial(candidates=["logistic"], random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_method_takes_weights(model: Any) -> None:
    weights = np.where(SAMPLE.y == 1, 8, 1)
    fit(model, weights)
    assert model.frontier_.certificate == "weighted"
    margin = model.decision_function(HELD.X, sensitive_features=HELD.groups, tolerance=1.0)
    plain = fit(sklearn.clone(model))
    other = plain.decision_function(HELD.X, sensitive_features=HELD.groups, tolerance=1.0)
    assert np.mean(margin) > np.mean(other)  # positive labels count for more


def test_the_score_is_weighted() -> None:
    model = fit(FairBayes(LogisticRegression(), random_state=0, tolerance=0.1))
    decisions = model.predict(HELD.X, sensitive_features=HELD.groups)
    found = model.score(HELD.X, HELD.y, COUNTS, sensitive_features=HELD.groups)
    assert found == pytest.approx(np.average(decisions == HELD.y, weights=COUNTS))


# ---- metadata routing --------------------------------------------------------------------------


def test_weights_and_strata_are_routed_by_scikit_learn() -> None:
    weights = np.where(SAMPLE.y == 1, 3, 1)
    control = np.where(np.arange(len(SAMPLE.y)) % 2, "a", "b")
    given = {
        "sensitive_features": SAMPLE.groups,
        "sample_weight": weights,
        "control_features": control,
    }
    model = FairBayes(LogisticRegression(), random_state=0, tolerance=0.2, min_count=5)
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        piped = make_pipeline(scaler, model).fit(SAMPLE.X, SAMPLE.y, **given)
        inside = piped[-1]
        assert inside.frontier_.certificate == "weighted"
        assert inside.frontier_.criterion.n_strata == 2
        search = GridSearchCV(
            model,
            {"estimator__C": [0.1, 1.0]},
            cv=3,
            scoring=make_group_scorer(tolerance=0.2),
        ).fit(SAMPLE.X, SAMPLE.y, **given)
        assert search.best_estimator_.frontier_.criterion.n_strata == 2
        assert search.best_estimator_.frontier_.certificate == "weighted"
        found = cross_validate(model, SAMPLE.X, SAMPLE.y, cv=3, params=given)
        assert (found["test_score"] > 0.5).all()


# ---- control features --------------------------------------------------------------------------


def test_the_tolerance_holds_within_every_stratum() -> None:
    control = np.where(np.random.default_rng(3).random(len(SAMPLE.y)) < 0.4, "a", "b")
    model = fit(
        FairBayes(LogisticRegression(), random_state=0, calibration=0.5), control_features=control
    )
    point = model.frontier_.at(0.1)
    assert set(point.gaps) == {"selection_rate in a", "selection_rate in b"}
    assert max(point.gaps.values()) <= 0.1
    decisions = model.predict(HELD.X, sensitive_features=HELD.groups, tolerance=0.1)
    assert len(decisions) == len(HELD.y)  # without control features


def test_conditions_need_their_columns() -> None:
    kind = criterion(Demand(SELECTION, where="employed"))
    model = FairBayes(LogisticRegression(), criterion=kind, random_state=0)
    with pytest.raises(InvalidInputError) as caught:
        fit(model)
    assert caught.value.argument == "control_features"
    table = pd.DataFrame({"employed": np.arange(len(SAMPLE.y)) % 3 > 0}, index=SAMPLE.X.index)
    fit(model, control_features=table)
    assert list(model.frontier_.at(0.1).gaps) == ["selection_rate in employed"]
    asked = [minimum("selection_rate", 0.1, where="employed"), "demographic_parity"]
    fit(model.set_params(criterion=asked), control_features=table)
    assert len(model.frontier_.at(0.1).gaps) == 2


@pytest.mark.parametrize("method", ["fit", "calibrate"])
def test_small_strata_are_refused_before_training(method: str) -> None:
    control = np.array(["rare"] * 30 + ["common"] * (len(SAMPLE.y) - 30))
    model = FairBayes(LogisticRegression(), random_state=0)
    if method == "calibrate":
        fit(model)
    with pytest.raises(SmallGroupError, match="rare"):
        getattr(model, method)(
            SAMPLE.X, SAMPLE.y, sensitive_features=SAMPLE.groups, control_features=control
        )
    assert hasattr(model, "scorer_") == (method == "calibrate")


def test_control_features_have_a_row_each_in_the_same_order() -> None:
    for control in (["a"] * 5, pd.Series(["a", "b"] * 600, index=SAMPLE.X.index[::-1])):
        with pytest.raises(InvalidInputError) as caught:
            fit(FairBayes(LogisticRegression()), control_features=control)
        assert "control_features" in str(caught.value)


def test_a_family_takes_no_control_features() -> None:
    with pytest.raises(InvalidInputError) as caught:
        fit(YOTO(network=TINY), control_features=SAMPLE.groups)
    assert caught.value.argument == "control_features"
