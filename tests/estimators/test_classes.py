"""FairBayes with more than two classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

from fairdial import (
    EPO,
    GFB,
    CannotCertifyError,
    FairBayes,
    InvalidInputError,
    Network,
    make_group_scorer,
)
from fairdial.metrics import gap, gaps, group_table

CRITERIA = ["demographic_parity", "equal_opportunity", "equalized_odds"]
NAMES = np.array(["high", "low", "middle"])


def draw(n: int, seed: int) -> tuple[pd.DataFrame, Any, Any]:
    rng = np.random.default_rng(seed)
    groups = rng.integers(2, size=n)
    X = rng.normal(size=(n, 3)) + 0.5 * groups[:, None]
    scores = np.column_stack([X[:, 0], X[:, 1], 0.5 + 0 * X[:, 2]])
    y = NAMES[(2 * scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]
    return pd.DataFrame(X, columns=["a", "b", "c"]), y, np.array(["f", "m"])[groups]


X, Y, GROUPS = draw(3000, 0)
NEW, NEW_Y, NEW_GROUPS = draw(2000, 1)


def test_only_what_takes_more_classes_says_so() -> None:
    """scikit-learn's checks of more than two classes are those of test_fairbayes.py."""

    def takes(model: Any) -> bool:
        return bool(model.__sklearn_tags__().classifier_tags.multi_class)

    assert takes(FairBayes(LogisticRegression()))
    assert takes(FairBayes())
    assert takes(GFB())
    assert not takes(FairBayes(LogisticRegression(), blind=True))
    assert not takes(EPO())


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("tolerance", [0.05, 0.15])
def test_the_tolerance_holds_on_calibration_rows(criterion: str, tolerance: float) -> None:
    model = FairBayes(LogisticRegression().fit(X, Y), criterion=criterion, prefit=True)
    model.calibrate(NEW, NEW_Y, sensitive_features=NEW_GROUPS)
    decided = model.predict(NEW, sensitive_features=NEW_GROUPS, tolerance=tolerance)
    point = model.frontier_.at(tolerance)
    rows = {"sensitive_features": NEW_GROUPS, "criterion": criterion}
    assert gap(NEW_Y, decided, **rows) == point.gap <= tolerance
    assert max(gaps(NEW_Y, decided, **rows).values()) == point.gap
    assert (decided == NEW_Y).mean() == pytest.approx(point.accuracy)
    assert model.score(
        NEW, NEW_Y, sensitive_features=NEW_GROUPS, tolerance=tolerance
    ) == pytest.approx(point.accuracy)


def test_a_group_table_has_a_line_for_each_class_and_group() -> None:
    decided = NAMES[np.random.default_rng(0).integers(3, size=len(Y))]
    table = group_table(Y, decided, sensitive_features=GROUPS, criterion="accuracy_parity")
    for name in NAMES:
        one = group_table(Y, decided, sensitive_features=GROUPS, pos_label=name)
        lines = table.loc[name]
        for column in ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy"):
            assert np.array_equal(lines[column], one[column])
        for group in ("f", "m"):
            assert lines.loc[group, "rows"] == ((name == Y) & (group == GROUPS)).sum()
            assert lines.loc[group, "decided"] == ((decided == name) & (group == GROUPS)).sum()
    assert table["rows"].sum() == table["decided"].sum() == len(Y)
    with pytest.raises(InvalidInputError, match="control_features"):
        group_table(Y, decided, sensitive_features=GROUPS, control_features=GROUPS)


@pytest.mark.parametrize(
    "labels",
    [
        [3, 1, 2],
        [0.0, 2.0, 1.0],
        ["b", "c", "a"],
        np.array(["x", "y", "z"], dtype=object),
        pd.Categorical(["u", "w", "v"]),
    ],
)
def test_labels_of_any_type(labels: Any) -> None:
    names = np.asarray(labels)
    y = names[np.searchsorted(NAMES, Y)]
    model = FairBayes(LogisticRegression(), random_state=0).fit(X, y, sensitive_features=GROUPS)
    assert model.classes_.tolist() == sorted(names.tolist())
    decided = model.predict(NEW, sensitive_features=NEW_GROUPS, tolerance=0.1)
    assert decided.dtype == names.dtype
    assert set(decided.tolist()) <= set(names.tolist())
    values = model.decision_function(NEW, sensitive_features=NEW_GROUPS, tolerance=0.1)
    assert np.array_equal(model.classes_[values.argmax(axis=1)], decided)


def test_a_tolerance_for_each_row() -> None:
    model = FairBayes(LogisticRegression(), random_state=0).fit(X, Y, sensitive_features=GROUPS)
    each = np.where(np.arange(len(NEW)) % 2, 0.3, 0.05)
    mixed = model.predict(NEW, sensitive_features=NEW_GROUPS, tolerance=each)
    for tolerance in (0.3, 0.05):
        one = model.predict(NEW, sensitive_features=NEW_GROUPS, tolerance=tolerance)
        assert np.array_equal(mixed[each == tolerance], one[each == tolerance])
    assert (mixed != model.predict(NEW, sensitive_features=NEW_GROUPS, tolerance=0.3)).any()


@pytest.mark.parametrize(
    "params",
    [
        {"per_group": True},
        {"cv": 3},
        {"estimator": [LogisticRegression(), GaussianNB()]},
        {"estimator": RandomForestClassifier(20, min_samples_leaf=5, random_state=0)},
        {"estimator": RidgeClassifier()},
        {"estimator": SVC(decision_function_shape="ovr"), "predict_method": "decision_function"},
        {"estimator": RidgeClassifier(), "predict_method": "predict"},
        {"nested": True, "limit_classes": ["low"]},
    ],
)
def test_every_way_to_score(params: dict[str, Any]) -> None:
    given = {"estimator": LogisticRegression(), "random_state": 0} | params
    model = FairBayes(given.pop("estimator"), **given)
    model.fit(X, Y, sensitive_features=GROUPS)
    point = model.frontier_.at(0.4)
    assert point.feasible
    assert point.gap <= 0.4
    assert model.logits(NEW, sensitive_features=NEW_GROUPS).shape == (len(NEW), 3)
    decided = model.predict(NEW, sensitive_features=NEW_GROUPS, tolerance=0.4)
    assert (decided == NEW_Y).mean() > 0.5


def test_weights_are_used_and_labels_can_be_missing() -> None:
    weights = np.where(Y == "low", 2, 1)
    model = FairBayes(LogisticRegression(), random_state=0)
    model.fit(X, Y, sensitive_features=GROUPS, sample_weight=weights)
    assert model.frontier_.counts.sum() > 0.2 * len(Y)
    with pytest.raises(CannotCertifyError):
        model.frontier_.at(0.3, confidence=0.9)
    model.calibrate(NEW, sensitive_features=NEW_GROUPS)
    assert model.frontier_.at(0.1).accuracy is None
    assert model.frontier_.at(0.1).gap <= 0.1
    model.set_params(criterion="equal_opportunity")
    with pytest.raises(InvalidInputError, match="y"):
        model.calibrate(NEW, sensitive_features=NEW_GROUPS)


def test_confidence() -> None:
    model = FairBayes(LogisticRegression(), calibration=0.5, random_state=0)
    model.fit(X, Y, sensitive_features=GROUPS)
    point = model.frontier_.at(0.25, confidence=0.9)
    assert point.theorem == 5
    decided = model.predict(NEW, sensitive_features=NEW_GROUPS, tolerance=0.25, confidence=0.9)
    assert gap(NEW_Y, decided, sensitive_features=NEW_GROUPS) < 0.25


def test_grid_search_scores_classes() -> None:
    model = FairBayes(LogisticRegression(), random_state=0).fit(X, Y, sensitive_features=GROUPS)
    scorer = make_group_scorer(gap, greater_is_better=False, tolerance=0.1)
    assert -0.25 < scorer(model, NEW, NEW_Y, sensitive_features=NEW_GROUPS) < 0


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"estimator": Network(gamma=2.0)}, "gamma"),
        ({"estimator": Network(score="hypervolume")}, "score"),
        ({"blind": True}, "y"),
        ({"recalibrate": "group"}, "y"),
        ({"pos_label": "low"}, "pos_label"),
        ({"objective": "balanced_accuracy"}, "objective"),
        ({"budget": 0.5}, "budget"),
        ({"criterion": "demographic_parity_ratio"}, "criterion"),
        ({"limit_classes": ["none"]}, "limit_classes"),
    ],
)
def test_what_needs_two_classes_is_refused(params: dict[str, Any], name: str) -> None:
    given = {"estimator": LogisticRegression()} | params
    with pytest.raises(InvalidInputError) as caught:
        FairBayes(given.pop("estimator"), **given).fit(X, Y, sensitive_features=GROUPS)
    assert caught.value.argument == name


def test_methods_that_need_two_classes_refuse() -> None:
    with pytest.raises(InvalidInputError, match="y"):
        EPO().fit(X, Y, sensitive_features=GROUPS)
    with pytest.raises(InvalidInputError, match="limit_classes"):
        FairBayes(LogisticRegression(), limit_classes=["low"]).fit(
            X[Y != "high"], Y[Y != "high"], sensitive_features=GROUPS[Y != "high"]
        )
    model = FairBayes(LogisticRegression(), random_state=0).fit(X, Y, sensitive_features=GROUPS)
    groups = {"sensitive_features": NEW_GROUPS}
    for use in (
        lambda: model.thresholds(0.1),
        lambda: model.flips(NEW, 0.3, 0.1, **groups),
        lambda: model.calibrate_parquet("rows.parquet"),
        lambda: model.calibrate(NEW, NEW_Y, control_features=NEW["a"] > 0, **groups),
        lambda: model.calibrate(NEW, np.where(NEW_Y == "low", "other", NEW_Y), **groups),
        lambda: model.blindness(NEW, NEW_Y, **groups),
    ):
        with pytest.raises(InvalidInputError):
            use()
