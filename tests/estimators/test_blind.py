"""FairBayes without the group at prediction time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier

import fairdial
from fairdial import CannotCertifyError, FairBayes, InvalidInputError
from fairdial.datasets import make_gaussian
from fairdial.io.card import model_card
from fairdial.metrics import gap


def rows(n, seed):
    """A table whose second column is a noisy sign of the group."""
    sample = make_gaussian(n, random_state=seed)
    member = sample.groups == "group 1"
    noise = np.random.default_rng(seed).normal(size=n)
    X = pd.DataFrame({"x": sample.X["x"], "sign": member + noise})
    return X, sample.y, sample.groups


TRAIN, NEW = rows(6000, 0), rows(4000, 1)


def make(**options):
    return FairBayes(LogisticRegression(), blind=True, random_state=0, **options)


@pytest.fixture(scope="module")
def model():
    return make().fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])


@pytest.mark.parametrize("criterion", ["demographic_parity", "equalized_odds"])
def test_tolerances_hold_on_calibration_rows_without_their_groups(criterion):
    model = make(criterion=criterion).fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    X, y, groups = NEW
    model.calibrate(X, y, sensitive_features=groups)
    for tolerance in (0.2, 0.1, 0.05):
        decided = model.predict(X, tolerance=tolerance)
        found = gap(y, decided, sensitive_features=groups, criterion=criterion)
        assert found <= tolerance
        assert found == pytest.approx(model.frontier_.at(tolerance).gap, abs=1e-12)


def test_groups_are_ignored_when_deciding(model):
    X, _, groups = NEW
    alone = model.predict(X, tolerance=0.05)
    assert np.array_equal(model.predict(X, tolerance=0.05, sensitive_features=groups), alone)
    assert np.array_equal(model.predict(X.iloc[7:8], tolerance=0.05), alone[7:8])
    moved = model.flips(X, 0.3, 0.05)
    assert np.array_equal(moved == 1, (alone == 1) & (model.predict(X, tolerance=0.3) == 0))
    each = np.where(np.arange(len(X)) % 2, 0.05, 0.3)
    assert np.array_equal(model.predict(X, tolerance=each)[1::2], alone[1::2])


@pytest.mark.parametrize("as_array", [False, True])
def test_the_group_column_may_be_there_or_not(as_array):
    X, y, groups = TRAIN
    codes = (groups == "group 1").astype(float)
    table = X.assign(group=codes)
    column = 2 if as_array else "group"
    given = (table.to_numpy(), X.to_numpy()) if as_array else (table, X)
    model = make(sensitive_column=column).fit(given[0], y)
    found = [model.predict(X, tolerance=0.1) for X in given]
    assert np.array_equal(*found)
    assert model.n_features_in_ == 2


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": HistGradientBoostingClassifier(max_iter=5)},
        {"estimator": [LogisticRegression(), LogisticRegression(C=0.1)]},
        {"estimator": RidgeClassifier(), "group_estimator": LogisticRegression()},
        {"criterion": {"demographic_parity": 0.1, "equal_opportunity": 0.05}},
    ],
)
def test_saved_models_decide_alike(tmp_path, options):
    model = make().set_params(**options)
    model.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    for tolerance in (0.3, 0.05):
        found = [m.decision_function(NEW[0], tolerance=tolerance) for m in (model, again)]
        assert np.array_equal(*found)
    again.calibrate(NEW[0], NEW[1], sensitive_features=NEW[2])
    assert again.frontier_.is_blind
    assert clone(again).blind
    assert again.frontier_.at(0.05).gap <= 0.05


def test_certified_decisions(model, tmp_path):
    point = model.frontier_.at(0.2, confidence=0.9)
    assert point.theorem == 5
    decided = model.predict(NEW[0], tolerance=0.2, confidence=0.9)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert np.array_equal(again.predict(NEW[0], tolerance=0.2, confidence=0.9), decided)
    with pytest.raises(CannotCertifyError):
        model.predict(NEW[0], tolerance=np.full(len(NEW[0]), 0.2), confidence=0.9)


@pytest.mark.filterwarnings("ignore::fairdial.BiasedScoresWarning")
def test_the_same_scores_also_make_a_dial_with_groups(model):
    X, y, groups = NEW
    aware = make().fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2]).set_params(blind=False)
    aware.calibrate(X, y, sensitive_features=groups)
    assert set(aware.thresholds(0.05)) == {"group 0", "group 1"}
    found = model.blindness(X, y, sensitive_features=groups, tolerances=[0.05, 0.2])
    assert found.costs.loc[0.05, "aware"] == aware.frontier_.at(0.05).accuracy
    blind = model.calibrate(X, y, sensitive_features=groups).frontier_
    assert found.costs.loc[0.05, "blind"] == blind.at(0.05).accuracy
    assert found.auc.between(0.7, 0.95).all()


def test_a_card_says_that_groups_are_not_needed(model):
    card = model_card(model)
    assert "Every prediction needs the row's group" not in card
    assert "prices" in card


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"prefit": True}, "prefit"),
        ({"per_group": True}, "per_group"),
        ({"cv": 3}, "cv"),
        ({"recalibrate": "group"}, "recalibrate"),
        ({"estimator": None}, "estimator"),
        ({"estimator": RidgeClassifier()}, "estimator"),
        ({"group_estimator": RidgeClassifier()}, "group_estimator"),
        ({"budget": 0.3}, "budget"),
        ({"rising": True}, "rising"),
        ({"criterion": "predictive_parity"}, "criterion"),
        ({"blind": "yes"}, "blind"),
    ],
)
def test_options_that_do_not_apply_are_refused(options, argument):
    with pytest.raises(InvalidInputError) as error:
        make().set_params(**options).fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    assert error.value.argument == argument


@pytest.mark.filterwarnings("ignore::fairdial.BiasedScoresWarning")
def test_what_needs_thresholds_or_groups_refuses(model, tmp_path):
    from fairdial.io.onnx import export_onnx

    for call in (
        lambda: model.thresholds(0.1),
        lambda: model.plot_logits(NEW[0]),
        lambda: model.calibrate_parquet(tmp_path),
        lambda: export_onnx(model, tmp_path / "model.onnx"),
    ):
        with pytest.raises(InvalidInputError):
            call()
    plain = FairBayes(LogisticRegression(), random_state=0)
    plain.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    with pytest.raises(InvalidInputError) as error:
        plain.set_params(blind=True).calibrate(*NEW[:2], sensitive_features=NEW[2])
    assert error.value.argument == "blind"


def test_weights_reach_both_classifiers_and_the_frontier():
    X, y, groups = TRAIN
    times = np.random.default_rng(0).integers(0, 3, len(y))
    model = make().fit(X, y, sensitive_features=groups, sample_weight=times)
    assert model.frontier_.certificate == "weighted"
    again = make(calibration=None).fit(X, y, sensitive_features=groups, sample_weight=times)
    repeated = np.repeat(np.arange(len(y)), times)
    other = make(calibration=None)
    other.fit(X.iloc[repeated], y[repeated], sensitive_features=groups[repeated])
    found = [m.scorer_.posterior(NEW[0]) for m in (again, other)]
    assert np.allclose(*found, atol=1e-4)


def test_small_groups_of_several_are_calibrated():
    X, y, _ = TRAIN
    groups = np.arange(len(y)) % 4
    model = make(calibration=0.1).fit(
        X.assign(sign=X["sign"] + groups), y, sensitive_features=groups
    )
    assert model.frontier_.eligible.min() < 200
    assert model.frontier_.at(0.2).gap <= 0.2


def hidden_groups(share, seed=99):
    """The training rows' groups, most of them missing."""
    groups = TRAIN[2].astype(object).copy()
    groups[np.random.default_rng(seed).random(len(groups)) > share] = None
    return groups


def test_groups_of_a_sample_are_enough_and_the_promise_says_so(tmp_path):
    X, y, _ = TRAIN
    given = hidden_groups(0.4)
    model = make(unknown="estimate").fit(X, y, sensitive_features=given)
    assert model.frontier_.at(0.2).promise.gap == "counted"
    assert model.frontier_.at(0.2).promise.unknown == 0  # only known rows are held out
    assert model.training_["rows"] > 5000  # the others train the labels
    new, labels, truth = NEW
    partly = truth.astype(object).copy()
    partly[::3] = None
    model.calibrate(new, labels, sensitive_features=partly)
    point = model.frontier_.at(0.1)
    decided = model.predict(new, tolerance=0.1)
    known = np.arange(len(new)) % 3 > 0
    exact = gap(labels[known], decided[known], sensitive_features=truth[known])
    assert exact == pytest.approx(point.gap, abs=1e-12)
    assert point.gap <= 0.1
    assert point.promise[:3] == ("counted", known.sum(), (~known).sum())
    everywhere = gap(labels, decided, sensitive_features=truth)
    assert point.promise.estimate == pytest.approx(everywhere, abs=0.05)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert again.frontier_.at(0.1).promise == point.promise
    assert again.unknown == "estimate"


@pytest.mark.parametrize(
    ("options", "groups", "argument"),
    [
        ({}, hidden_groups(0.5), "sensitive_features"),
        ({"unknown": "estimate", "blind": False}, hidden_groups(0.5), "unknown"),
        ({"unknown": "estimate"}, hidden_groups(0.0), "sensitive_features"),
        ({"unknown": "guess"}, TRAIN[2], "unknown"),
    ],
)
def test_missing_groups_are_refused_unless_they_can_be_estimated(options, groups, argument):
    model = make().set_params(**options)
    with pytest.raises(InvalidInputError) as error:
        model.fit(TRAIN[0], TRAIN[1], sensitive_features=groups)
    assert error.value.argument == argument
