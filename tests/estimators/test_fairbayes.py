from __future__ import annotations

import contextlib
import inspect
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from scipy.special import expit
from scipy.stats import norm
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairdial import (
    GFB,
    YOTO,
    BiasedScoresWarning,
    CannotCertifyError,
    FairBayes,
    FairdialWarning,
    InfeasibleToleranceWarning,
    InvalidInputError,
    Network,
    SeenRowsWarning,
    SmallGroupError,
    UnknownGroupError,
    load,
    make_group_scorer,
    sweep,
)
from fairdial.datasets import load_adult, load_compas, make_gaussian
from fairdial.estimators.learners import boosting, logistic
from fairdial.metrics import gap

pytestmark = pytest.mark.filterwarnings(  # most scorers here don't see the group
    "ignore::fairdial.BiasedScoresWarning"
)

CRITERIA = ["demographic_parity", "equal_opportunity", "predictive_equality"]
# rows are held out one by one: copies of a row may be separated, a row with a weight is not
HELD_OUT = dict.fromkeys(
    [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")],
    "rows are held out one by one",
)
SAMPLE = make_gaussian(6000, random_state=3)
TRAIN, TEST = SAMPLE.split(test_size=0.3, random_state=0)


def fitted(**params: Any) -> FairBayes:
    params = {"random_state": 0, "tolerance": 0.05} | params
    estimator = params.pop("estimator", LogisticRegression())
    return FairBayes(estimator, **params).fit(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)


@parametrize_with_checks(
    [
        FairBayes(LogisticRegression(), random_state=0),
        FairBayes(LogisticRegression(), per_group=True, random_state=0),
        FairBayes(GaussianNB(), cv=2, random_state=0),
        FairBayes(RidgeClassifier(), recalibrate="group", random_state=0),
    ],
    expected_failed_checks=lambda _: HELD_OUT,
)
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks provoke the wrapped estimators' warnings
        check(estimator)


# ---- the dial ----------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("tolerance", [0.02, 0.1, 0.2])
def test_the_tolerance_holds_on_the_calibration_rows(criterion: str, tolerance: float) -> None:
    dial = FairBayes(LogisticRegression().fit(TRAIN.X, TRAIN.y), criterion=criterion, prefit=True)
    dial.calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)
    decisions = dial.predict(TEST.X, sensitive_features=TEST.groups, tolerance=tolerance)
    point = dial.frontier_.at(tolerance)
    eligible = gap(TEST.y, decisions, sensitive_features=TEST.groups, criterion=criterion)
    assert eligible <= tolerance
    assert eligible == pytest.approx(point.gap, abs=1e-15)
    assert (decisions == TEST.y).mean() == point.accuracy


def test_turning_the_dial_trains_nothing_again() -> None:
    dial = fitted()
    before = pickle.dumps(dial.estimator_)
    for tolerance in (0.01, 0.1, 0.3):
        dial.predict(TEST.X, sensitive_features=TEST.groups, tolerance=tolerance)
    assert pickle.dumps(dial.estimator_) == before


def test_calibration_rows_are_not_training_rows() -> None:
    class Remembers(LogisticRegression):
        def fit(self, X: Any, y: Any) -> Any:
            self.seen_ = set(X.index)
            return super().fit(X, y)

        def predict_proba(self, X: Any) -> Any:
            assert not self.seen_ & set(X.index)
            return super().predict_proba(X)

    dial = fitted(estimator=Remembers(), calibration=0.25)
    assert len(dial.estimator_.seen_) + dial.frontier_.counts.sum() == len(TRAIN)
    assert dial.frontier_.counts.sum() == pytest.approx(0.25 * len(TRAIN), abs=4)


def test_one_tolerance_a_row_is_row_by_row() -> None:
    dial = fitted()
    wishes = np.linspace(0.01, 0.4, len(TEST))
    at_once = dial.predict(TEST.X, sensitive_features=TEST.groups, tolerance=wishes)
    for i in range(0, len(TEST), 97):
        row = dial.predict(
            TEST.X.iloc[[i]], sensitive_features=TEST.groups[[i]], tolerance=wishes[i]
        )
        assert row[0] == at_once[i]


@pytest.mark.parametrize("per_group", [False, True])
def test_a_table_has_the_decisions_at_each_tolerance_and_scores_rows_once(per_group: bool) -> None:
    class Counts(LogisticRegression):
        scored = 0

        def decision_function(self, X: Any) -> Any:
            Counts.scored += len(X)
            return super().decision_function(X)

    dial = fitted(estimator=Counts(), predict_method="decision_function", per_group=per_group)
    X, groups = TEST.X.set_axis(np.arange(len(TEST))[::-1]), TEST.groups
    wanted = [0.2, 0.02, 0.1, 0.02]
    Counts.scored = 0
    table = dial.predict(X, sensitive_features=groups, tolerances=wanted)
    assert Counts.scored == len(TEST)
    assert table.columns.tolist() == wanted
    assert table.index.equals(X.index)
    for i, tolerance in enumerate(wanted):
        decisions = dial.predict(X, sensitive_features=groups, tolerance=tolerance)
        assert np.array_equal(table.iloc[:, i], decisions)
    certain = dial.predict(X, sensitive_features=groups, tolerances=[0.2], confidence=0.9)
    options: dict[str, Any] = {"sensitive_features": groups, "confidence": 0.9}
    assert np.array_equal(certain[0.2], dial.predict(X, tolerance=0.2, **options))
    with pytest.raises(InvalidInputError, match="tolerances"):
        dial.predict(X, sensitive_features=groups, tolerances=wanted, tolerance=0.1)
    with pytest.raises(InvalidInputError, match="tolerances"):
        dial.predict(X, sensitive_features=groups, tolerances=[0.1, 2.0])


def test_a_rows_decision_does_not_depend_on_who_else_is_asked() -> None:
    dial = fitted(estimator=HistGradientBoostingClassifier(max_iter=20))
    everybody = dial.predict(TEST.X, sensitive_features=TEST.groups)
    some = np.arange(0, len(TEST), 7)
    alone = dial.predict(TEST.X.iloc[some], sensitive_features=TEST.groups[some])
    assert np.array_equal(everybody[some], alone)


def test_the_margin_is_positive_exactly_where_the_positive_label_is_given() -> None:
    dial = fitted(estimator=HistGradientBoostingClassifier(max_iter=20))
    for tolerance in (0.0, 0.1, 1.0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InfeasibleToleranceWarning)
            options = {"sensitive_features": TEST.groups, "tolerance": tolerance}
            margin = dial.decision_function(TEST.X, **options)
            decisions = dial.predict(TEST.X, **options)
        assert np.array_equal(margin > 0, decisions == 1)


def test_at_tolerance_one_the_estimator_decides_alone() -> None:
    dial = fitted()
    free = dial.predict(TEST.X, sensitive_features=TEST.groups, tolerance=1.0)
    assert np.array_equal(free, dial.estimator_.predict(TEST.X))
    assert dial.thresholds(1.0) == {"group 0": 0.0, "group 1": 0.0}


def test_thresholds_and_scores_follow_the_tolerance() -> None:
    dial = fitted()
    assert dial.thresholds() == dial.thresholds(0.05)
    low, high = dial.thresholds(0.05).values()
    assert low < 0 < high  # group 1 is selected more often
    score = dial.score(TEST.X, TEST.y, sensitive_features=TEST.groups, tolerance=0.3)
    free = dial.predict(TEST.X, sensitive_features=TEST.groups, tolerance=0.3)
    assert score == (free == TEST.y).mean()


def test_decisions_with_confidence_are_those_of_the_certified_point() -> None:
    dial = fitted()
    options = {"sensitive_features": TEST.groups, "tolerance": 0.2}
    point = dial.frontier_.at(0.2, confidence=0.9)
    assert dial.thresholds(0.2, confidence=0.9) == dict(
        zip(point.groups, point.thresholds, strict=True)
    )
    sure = dial.predict(TEST.X, **options, confidence=0.9)
    limits = point.thresholds[(TEST.groups == "group 1").astype(int)]
    free = dial.decision_function(TEST.X, sensitive_features=TEST.groups, tolerance=1.0)
    assert np.array_equal(sure == 1, free > limits)
    assert (sure != dial.predict(TEST.X, **options)).any()
    with pytest.raises(CannotCertifyError, match="rows like these"):
        dial.predict(TEST.X, sensitive_features=TEST.groups, tolerance=0.001, confidence=0.9)


def test_the_dial_equals_a_sweep_of_precomputed_scores() -> None:
    model = LogisticRegression().fit(TRAIN.X, TRAIN.y)
    dial = FairBayes(model, prefit=True, predict_method="decision_function", tolerance=0.07)
    dial.calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)
    logits = model.decision_function(TEST.X)
    frontier = sweep(logits, TEST.groups, TEST.y)
    assert np.array_equal(
        frontier.decide(logits, TEST.groups, 0.07),
        dial.predict(TEST.X, sensitive_features=TEST.groups) == 1,
    )


def test_true_logits_lie_on_the_exact_frontier_within_sampling_error() -> None:
    from fairdial.datasets import GaussianLaw

    law = GaussianLaw()
    sample = law.sample(200_000, random_state=1)
    for criterion in CRITERIA:
        frontier = sweep(sample.logits, sample.groups, sample.y, criterion=criterion)
        for tolerance in (0.05, 0.15):
            exact, point = law.at(criterion, tolerance), frontier.at(tolerance)
            assert point.setting == pytest.approx(exact.t, abs=0.01)
            assert point.accuracy == pytest.approx(exact.accuracy, abs=0.005)
            assert np.allclose(point.thresholds, exact.thresholds, atol=0.06)


# ---- ways of fitting ---------------------------------------------------------------------------


def test_labels_may_be_of_any_type() -> None:
    for labels in (np.array(["no", "yes"]), np.array([False, True]), np.array([-1, 1])):
        dial = FairBayes(LogisticRegression(), random_state=0, tolerance=0.05)
        dial.fit(TRAIN.X, labels[TRAIN.y], sensitive_features=TRAIN.groups)
        decisions = dial.predict(TEST.X, sensitive_features=TEST.groups)
        assert set(decisions) <= set(labels.tolist())
        plain = fitted().predict(TEST.X, sensitive_features=TEST.groups)
        assert np.array_equal(decisions, labels[plain])


LARGE = [
    f"{race} & {sex}" for race in ("African-American", "Caucasian") for sex in ("Female", "Male")
]


def test_groups_may_be_columns_of_a_frame() -> None:
    data = load_compas(sensitive=["race", "sex"])
    data = data.subset(np.isin(data.groups, LARGE))
    frame = pd.DataFrame({"text": data.groups})
    two = frame["text"].str.split(" & ", expand=True)
    numbers = data.X.select_dtypes("number")
    dial = FairBayes(LogisticRegression(max_iter=500), random_state=0, tolerance=0.1)
    by_text = clone(dial).fit(numbers, data.y, sensitive_features=data.groups)
    by_columns = clone(dial).fit(numbers, data.y, sensitive_features=two)
    assert by_text.frontier_.groups == by_columns.frontier_.groups
    assert list(by_text.frontier_.groups) == LARGE
    assert np.array_equal(by_text.frontier_.gap, by_columns.frontier_.gap)


def test_a_model_for_each_group_is_trained_on_that_group() -> None:
    dial = fitted(per_group=True, calibration=0.2)
    assert len(dial.estimator_) == 2
    assert dial.estimator_[0].coef_ != dial.estimator_[1].coef_
    with pytest.raises(UnknownGroupError, match="'group 2'"):
        dial.calibrate(TEST.X, TEST.y, sensitive_features=np.full(len(TEST), "group 2"))


def test_cross_fitting_uses_all_rows_and_supports_no_confidence_statement() -> None:
    dial = fitted(cv=4)
    assert dial.frontier_.counts.sum() == len(TRAIN)
    assert len(dial.estimator_) == 4
    with pytest.raises(CannotCertifyError, match="cross"):
        dial.frontier_.at(0.1, confidence=0.95)
    dial.calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)  # held-out rows: it does
    assert dial.frontier_.at(0.2, confidence=0.9).certified_gap == 0.2


def test_calibrating_again_keeps_the_model_and_needs_no_labels_for_parity() -> None:
    dial = fitted()
    model = dial.estimator_
    dial.calibrate(TEST.X, sensitive_features=TEST.groups)
    assert dial.estimator_ is model
    assert dial.frontier_.accuracy is None
    decisions = dial.predict(TEST.X, sensitive_features=TEST.groups, tolerance=0.03)
    assert gap(TEST.y, decisions, sensitive_features=TEST.groups) <= 0.03
    with pytest.raises(InvalidInputError, match="`y`"):
        fitted(criterion="equal_opportunity").calibrate(TEST.X, sensitive_features=TEST.groups)


def test_a_fitted_model_can_be_calibrated_at_once() -> None:
    model = LogisticRegression().fit(TRAIN.X, TRAIN.y)
    dial = FairBayes(model, prefit=True).calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)
    assert dial.frontier_.at(0.1).gap <= 0.1
    with pytest.raises(InvalidInputError, match="`estimator`"):
        FairBayes(LogisticRegression(), prefit=True).fit(
            TEST.X, TEST.y, sensitive_features=TEST.groups
        )


def test_a_plain_object_with_scores_is_enough_for_prefit() -> None:
    class Scores:
        def decision_function(self, X: Any) -> Any:
            return X["x"].to_numpy() * 2.0

    dial = FairBayes(Scores(), prefit=True, tolerance=0.1)
    dial.calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)
    assert dial.predict(TEST.X, sensitive_features=TEST.groups).mean() > 0


class Biased:
    """Right scores, less an intercept in one group."""

    classes_ = np.array([0, 1])

    def decision_function(self, X: Any) -> Any:
        return X["z"].to_numpy() - 1.5 * X["high"].to_numpy()


def biased_rows(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    high = rng.integers(0, 2, n)
    z = rng.normal(size=n) * 1.5 + 0.8 * high
    return pd.DataFrame({"z": z, "high": high}), (rng.random(n) < expit(z)).astype(int), high


def test_biased_scores_are_noticed_and_recalibration_repairs_them() -> None:
    X, y, groups = biased_rows(20_000, 0)
    X_new, y_new, groups_new = biased_rows(20_000, 1)
    dial = FairBayes(Biased(), prefit=True, tolerance=0.1)
    with pytest.warns(BiasedScoresWarning, match="recalibrate"):
        plain = clone_prefit(dial).calibrate(X, y, sensitive_features=groups)
    mended = clone_prefit(dial, recalibrate="group").calibrate(X, y, sensitive_features=groups)
    better = mended.score(X_new, y_new, sensitive_features=groups_new)
    assert better > plain.score(X_new, y_new, sensitive_features=groups_new) + 0.005
    assert mended.frontier_.at(0.1).gap <= 0.1
    assert mended.frontier_.certificate == "simultaneous"


def clone_prefit(dial: FairBayes, **params: Any) -> FairBayes:
    return FairBayes(dial.estimator, **({"prefit": True, "tolerance": dial.tolerance} | params))


def test_recalibration_without_labels_keeps_the_lines_found_before() -> None:
    X, y, groups = biased_rows(5000, 0)
    dial = FairBayes(Biased(), prefit=True, recalibrate="group", tolerance=0.1)
    with pytest.raises(InvalidInputError, match="`y`"):
        dial.calibrate(X, sensitive_features=groups)
    dial.calibrate(X, y, sensitive_features=groups)
    lines = dial.platt_
    dial.calibrate(X, sensitive_features=groups)
    assert np.array_equal(dial.platt_.slope, lines.slope)
    assert np.array_equal(dial.platt_.intercept, lines.intercept)
    assert dial.frontier_.certificate == "declared"


# ---- scikit-learn's tools ----------------------------------------------------------------------


def test_it_works_as_the_last_step_of_a_pipeline() -> None:
    pipe = make_pipeline(StandardScaler(), FairBayes(LogisticRegression(), random_state=0))
    pipe.fit(TRAIN.X, TRAIN.y, fairbayes__sensitive_features=TRAIN.groups)
    decisions = pipe.predict(TEST.X, sensitive_features=TEST.groups, tolerance=0.1)
    assert decisions.shape == TEST.y.shape


def test_it_wraps_a_pipeline_over_a_table_of_text_and_numbers() -> None:
    data = load_adult().subset(np.arange(4000))
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=200))
    dial = FairBayes(model, random_state=0, tolerance=0.05)
    dial.fit(data.X, data.y, sensitive_features=data.groups)
    assert dial.predict(data.X, sensitive_features=data.groups).mean() > 0.05


def test_the_sensitive_column_gives_the_groups_and_is_not_a_feature() -> None:
    frame = TRAIN.X.assign(group=TRAIN.groups)
    dial = FairBayes(LogisticRegression(), sensitive_column="group", random_state=0, tolerance=0.05)
    dial.fit(frame, TRAIN.y)
    new = TEST.X.assign(group=TEST.groups)
    assert np.array_equal(
        dial.predict(new), fitted().predict(TEST.X, sensitive_features=TEST.groups)
    )
    by_place = clone(dial).set_params(sensitive_column=1)
    array = np.column_stack([TRAIN.X.to_numpy(), TRAIN.groups == "group 1"])
    by_place.fit(array, TRAIN.y)
    assert by_place.frontier_.groups == (0.0, 1.0)
    for given, hints in (("sex", 0), ("Group", 1)):  # 'group' is near
        with pytest.raises(InvalidInputError, match=given) as error:
            clone(dial).set_params(sensitive_column=given).fit(frame, TRAIN.y)
        assert (error.value.argument, len(error.value.hints)) == ("sensitive_column", hints)
    with pytest.raises(InvalidInputError, match="`sensitive_features`"):
        dial.predict(new, sensitive_features=TEST.groups)


def test_model_selection_works_without_routing() -> None:
    frame = SAMPLE.X.assign(group=SAMPLE.groups)
    dial = FairBayes(LogisticRegression(), sensitive_column="group", random_state=0)
    search = GridSearchCV(
        dial,
        {"tolerance": [0.05, 0.3], "estimator__C": [0.1, 1.0]},
        scoring={
            "accuracy": make_group_scorer(),
            "gap": make_group_scorer(gap, greater_is_better=False),
        },
        refit="accuracy",
        cv=3,
    ).fit(frame, SAMPLE.y)
    assert search.best_params_["tolerance"] == 0.3
    gaps = -search.cv_results_["mean_test_gap"]
    wide = search.cv_results_["param_tolerance"].astype(float) == 0.3
    assert gaps[wide].min() > gaps[~wide].max()
    plain = cross_val_score(dial.set_params(tolerance=0.2), frame, SAMPLE.y, cv=3)
    assert plain.min() > 0.6


def test_model_selection_works_with_routing() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        results = cross_validate(
            FairBayes(LogisticRegression(), random_state=0, tolerance=0.1),
            SAMPLE.X,
            SAMPLE.y,
            params={"sensitive_features": SAMPLE.groups},
            scoring={
                "own": make_group_scorer(gap, greater_is_better=False, criterion=CRITERIA[0]),
                "accuracy": make_group_scorer(tolerance=0.3),
            },
            cv=3,
        )
        assert results["test_own"].min() > -0.25
        scores = cross_val_score(
            FairBayes(LogisticRegression(), random_state=0, tolerance=0.1),
            SAMPLE.X,
            SAMPLE.y,
            params={"sensitive_features": SAMPLE.groups},
            cv=3,
        )
        assert scores.min() > 0.6
        pipe = make_pipeline(StandardScaler(), FairBayes(LogisticRegression(), tolerance=0.1))
        pipe.fit(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)
        pipe.predict(TEST.X, sensitive_features=TEST.groups, tolerance=0.2)


def test_clones_and_pickles_decide_the_same() -> None:
    dial = fitted(criterion="equal_opportunity")
    again = pickle.loads(pickle.dumps(dial))
    anew = clone(dial).fit(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)
    for other in (again, anew):
        assert np.array_equal(
            other.predict(TEST.X, sensitive_features=TEST.groups),
            dial.predict(TEST.X, sensitive_features=TEST.groups),
        )


def test_sparse_features_are_fine_where_the_estimator_takes_them() -> None:
    X = sparse.coo_matrix(TRAIN.X.to_numpy())
    dial = FairBayes(LogisticRegression(), random_state=0, tolerance=0.1)
    dial.fit(X, TRAIN.y, sensitive_features=TRAIN.groups)
    assert dial.predict(X, sensitive_features=TRAIN.groups).shape == TRAIN.y.shape


# ---- bad input ---------------------------------------------------------------------------------

ONE_CLASS = np.zeros(len(TRAIN), int)
SMALL = np.where(np.arange(len(TRAIN)) < 20, "tiny", TRAIN.groups)


@pytest.mark.parametrize(
    ("params", "rows", "argument"),
    [
        ({}, {"y": ONE_CLASS}, "y"),
        ({"blind": True}, {"y": np.arange(len(TRAIN)) % 3}, "y"),
        ({}, {"y": TRAIN.y[:-1]}, "y"),
        ({}, {"groups": TRAIN.groups[:-1]}, "sensitive_features"),
        ({}, {"groups": SMALL}, "sensitive_features"),
        ({"cv": 3, "min_count": 40}, {"groups": SMALL}, "sensitive_features"),
        ({}, {"groups": np.where(SMALL == "tiny", None, SMALL)}, "sensitive_features"),
        ({"calibration": 0}, {}, "calibration"),
        ({"cv": 1}, {}, "cv"),
        ({"cv": 2000}, {}, "cv"),
        ({"criterion": "fairness"}, {}, "criterion"),
        ({"recalibrate": "all"}, {}, "recalibrate"),
        ({"predict_method": "guess"}, {}, "predict_method"),
        ({"min_count": 0}, {}, "min_count"),
        ({"prefit": True, "cv": 3}, {}, "prefit"),
    ],
)
def test_fit_names_the_argument_that_it_refuses(
    params: dict[str, Any], rows: dict[str, Any], argument: str
) -> None:
    dial = FairBayes(LogisticRegression(), random_state=0, **params)
    with pytest.raises(InvalidInputError, match=f"`{argument}`"):
        dial.fit(
            TRAIN.X, rows.get("y", TRAIN.y), sensitive_features=rows.get("groups", TRAIN.groups)
        )
    assert not hasattr(dial, "frontier_")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"sensitive_features": None}, "`sensitive_features`"),
        ({"tolerance": 1.3}, "`tolerance` .*1.3"),
        ({"tolerance": -0.1}, "`tolerance` .*-0.1"),
        ({"tolerance": np.nan}, "`tolerance` .*nan"),
        ({"tolerance": "loose"}, "`tolerance` .*'loose'"),
        ({"tolerance": [0.1, 0.2]}, "`tolerance`"),
        ({"sensitive_features": np.full(len(TEST), "group 9")}, "'group 9'"),
        ({"sensitive_features": TEST.groups[:5]}, "`sensitive_features`"),
    ],
)
def test_predict_names_what_it_refuses(options: dict[str, Any], names: str) -> None:
    unknown = "group 9" in names
    with pytest.raises(UnknownGroupError if unknown else InvalidInputError, match=names):
        fitted().predict(TEST.X, **({"sensitive_features": TEST.groups} | options))


JOBS = pd.DataFrame(
    {"x": TRAIN.logits, "job": np.where(np.arange(len(TRAIN)) % 3, "cook", "master")}
)


@pytest.mark.parametrize(
    ("X", "columns"),
    [
        (JOBS, "'job'"),
        (JOBS.assign(town="x"), "'job', 'town'"),
        (JOBS.assign(town=pd.Categorical(["x"] * len(JOBS))), "'job'"),  # boosting takes that
        (JOBS.to_numpy(), "1"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"per_group": True}, {"cv": 2}])
def test_columns_of_text_are_named_with_the_remedies(
    X: Any, columns: str, options: dict[str, Any]
) -> None:
    model = FairBayes(HistGradientBoostingClassifier(max_iter=2), random_state=0, **options)
    with pytest.raises(InvalidInputError) as caught:
        model.fit(X, TRAIN.y, sensitive_features=TRAIN.groups)
    assert caught.value.argument == "X"
    for text in (columns, "HistGradientBoostingClassifier", "OneHotEncoder", "from_dtype"):
        assert text in str(caught.value)
    assert str(caught.value.__cause__).startswith("could not convert string to float: ")


def test_categories_are_named_where_there_is_no_other_text() -> None:
    model = FairBayes(LogisticRegression(), random_state=0)
    with pytest.raises(InvalidInputError, match="'job'"):
        model.fit(JOBS.astype({"job": "category"}), TRAIN.y, sensitive_features=TRAIN.groups)


def test_other_errors_of_an_estimator_are_left_alone() -> None:
    model = FairBayes(LogisticRegression(C=-1.0), random_state=0)
    with pytest.raises(ValueError, match="'C' parameter") as caught:
        model.fit(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)
    assert not isinstance(caught.value, InvalidInputError)


def test_an_unfitted_dial_says_so() -> None:
    for method in ("predict", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(FairBayes(LogisticRegression()), method)(TEST.X)
    with pytest.raises(NotFittedError):
        FairBayes(LogisticRegression()).calibrate(TEST.X)
    with pytest.raises(NotFittedError):
        FairBayes(LogisticRegression()).thresholds()


@pytest.mark.parametrize("params", [{}, {"per_group": True}, {"estimator": Network(epochs=1)}])
def test_logits_need_no_calibration(params: dict[str, Any]) -> None:
    if "estimator" in params:
        pytest.importorskip("torch")
    options = {"sensitive_features": TEST.groups}
    dial = fitted(calibration=None, **params)
    logits = dial.logits(TEST.X, **options)
    for act in (lambda: dial.predict(TEST.X, **options), dial.thresholds):
        with pytest.raises(NotFittedError, match="not calibrated"):
            act()
    dial.calibrate(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)
    assert np.array_equal(dial.logits(TEST.X, **options), logits)


def test_recalibrated_logits_need_calibration() -> None:
    dial = fitted(calibration=None, recalibrate="group")
    with pytest.raises(NotFittedError, match="not calibrated"):
        dial.logits(TEST.X, sensitive_features=TEST.groups)


def test_a_small_group_error_is_of_its_own_class() -> None:
    with pytest.raises(SmallGroupError, match="'tiny'"):
        FairBayes(LogisticRegression(), random_state=0).fit(
            TRAIN.X, TRAIN.y, sensitive_features=SMALL
        )


def test_nan_scores_and_bad_probabilities_of_an_estimator_are_refused() -> None:
    class Bad:
        classes_ = np.array([0, 1])

        def __init__(self, value: float) -> None:
            self.value = value

        def predict_proba(self, X: Any) -> Any:
            return np.full((len(X), 2), self.value)

    for value, shown in ((np.nan, "NaN"), (1.2, "1.2")):
        with pytest.raises(InvalidInputError, match=shown):
            FairBayes(Bad(value), prefit=True).fit(TEST.X, TEST.y, sensitive_features=TEST.groups)


def test_calibrating_without_the_groups_is_not_taken_for_one_group() -> None:
    with pytest.raises(InvalidInputError, match="`sensitive_features`"):
        fitted().calibrate(TEST.X, TEST.y)


def test_the_warning_for_an_unreachable_tolerance_points_at_the_users_line() -> None:
    dial = fitted(criterion="equalized_odds+true_positive_rate>=0.1+false_positive_rate<=0.9")
    with pytest.warns(InfeasibleToleranceWarning) as seen:
        dial.predict(TEST.X, sensitive_features=TEST.groups, tolerance=0.0)
    assert [w.filename for w in seen] == [__file__]


def test_labels_of_other_length_are_refused_when_calibrating() -> None:
    model = LogisticRegression().fit(TRAIN.X, TRAIN.y)
    for y in (TEST.y[:1], TEST.y[:10]):
        with pytest.raises(InvalidInputError, match="`X`"):
            FairBayes(model, prefit=True).calibrate(TEST.X, y, sensitive_features=TEST.groups)
        with pytest.raises(InvalidInputError, match="`X`"):
            FairBayes(model, prefit=True).fit(TEST.X, y, sensitive_features=TEST.groups)
    with pytest.raises(InvalidInputError, match="`y`"):
        FairBayes(model, prefit=True).fit(TEST.X, None, sensitive_features=TEST.groups)


def test_lines_belong_to_their_groups_whatever_groups_come_later() -> None:
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b", "c"], 9000)
    z = rng.normal(size=9000) * 1.5
    shift = np.array([-1.0, 0.0, 1.5])[np.searchsorted(["a", "b", "c"], groups)]
    y = (rng.random(9000) < expit(z)).astype(int)
    X = pd.DataFrame({"z": z + shift, "high": 0})
    dial = FairBayes(Biased(), prefit=True, recalibrate="group", tolerance=0.1)
    dial.calibrate(X, y, sensitive_features=groups)
    lines = dict(zip(dial.platt_.names, dial.platt_.intercept, strict=True))
    some = groups != "a"
    dial.calibrate(X[some], sensitive_features=groups[some])
    assert dict(zip(dial.platt_.names, dial.platt_.intercept, strict=True)) == {
        name: lines[name] for name in ("b", "c")
    }
    with pytest.raises(UnknownGroupError, match="'d'"):
        dial.calibrate(X, sensitive_features=np.where(groups == "a", "d", groups))


def test_with_confidence_a_rows_decision_does_not_depend_on_others_tolerances() -> None:
    dial = fitted()
    wishes = np.full(len(TEST), 0.3)
    options = {"sensitive_features": TEST.groups, "confidence": 0.9}
    alike = dial.predict(TEST.X, **options, tolerance=wishes)
    mixed = dial.predict(TEST.X, **options, tolerance=np.r_[[0.25, 0.35], wishes[2:]])
    assert np.array_equal(alike[2:], mixed[2:])


@pytest.mark.parametrize("offset", [(-0.7, -0.7), (0.7, 0.7), (0.7, -0.7), (-0.7, 0.0)])
def test_a_bias_in_either_direction_is_noticed(offset: tuple[float, float]) -> None:
    class Shifted:
        classes_ = np.array([0, 1])

        def decision_function(self, X: Any) -> Any:
            return X["z"].to_numpy() + np.array(offset)[X["high"].to_numpy()]

    X, y, groups = biased_rows(10_000, 2)
    with pytest.warns(BiasedScoresWarning, match="recalibrate='group'"):
        FairBayes(Shifted(), prefit=True).calibrate(X, y, sensitive_features=groups)


def test_calibrated_scores_give_no_warning() -> None:
    class Right:
        classes_ = np.array([0, 1])

        def decision_function(self, X: Any) -> Any:
            return X["z"].to_numpy()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(20):
            X, y, groups = biased_rows(3000, seed)
            FairBayes(Right(), prefit=True).calibrate(X, y, sensitive_features=groups)


# ---- rows that the classifier has seen ---------------------------------------------------------


SEEN = "separate the labels"
NEIGHBOR = KNeighborsClassifier(1)


@pytest.mark.parametrize("model", [RandomForestClassifier(50, random_state=0), NEIGHBOR])
@pytest.mark.parametrize("recalibrate", [None, "group"])
def test_memorized_rows_are_noticed_and_rows_not_seen_are_not(
    model: Any, recalibrate: str | None
) -> None:
    model = clone(model).fit(TRAIN.X, TRAIN.y)
    dial = FairBayes(model, prefit=True, recalibrate=recalibrate)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", SeenRowsWarning)
        dial.calibrate(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)
        assert [type(warning.message) for warning in given] == [SeenRowsWarning]
        assert re.search(SEEN, str(given[0].message))
        dial.calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)
        dial.calibrate(TRAIN.X, sensitive_features=TRAIN.groups)  # no labels, no sign
        assert len(given) == 1


def test_a_label_among_the_features_is_noticed_when_fitting() -> None:
    leaking = TRAIN.X.assign(verdict=TRAIN.y)
    for model in (FairBayes(LogisticRegression()), FairBayes(LogisticRegression(), cv=3)):
        with pytest.warns(SeenRowsWarning, match="`X`"):
            model.fit(leaking, TRAIN.y, sensitive_features=TRAIN.groups)


@pytest.mark.parametrize("accuracy", [0.9, 0.97])
def test_strong_scores_of_rows_not_seen_give_no_warning(accuracy: float) -> None:
    rng = np.random.default_rng(0)
    y, groups = rng.integers(0, 2, (2, 20_000))
    z = norm.ppf(accuracy) * (2 * y - 1) + rng.normal(size=len(y))
    dial = FairBayes(Scored(), prefit=True)
    dial.calibrate(pd.DataFrame({"z": 2 * norm.ppf(accuracy) * z}), y, sensitive_features=groups)


def test_a_few_rows_are_no_sign() -> None:
    y, groups = np.repeat([[0, 1]], 90, axis=0).reshape(-1), np.repeat(["a", "b"], 90)
    rows = pd.DataFrame({"z": 2.0 * y - 1.0})
    FairBayes(Scored(), prefit=True).calibrate(rows, y, sensitive_features=groups)
    rows, y, groups = pd.concat([rows] * 2), np.tile(y, 2), np.tile(groups, 2)
    with pytest.warns(SeenRowsWarning, match=SEEN):
        FairBayes(Scored(), prefit=True).calibrate(rows, y, sensitive_features=groups)


class Scored:
    """Scores that stand in a column."""

    classes_ = np.array([0, 1])

    def decision_function(self, X: Any) -> Any:
        return X["z"].to_numpy()


def test_fit_says_that_a_fitted_model_is_calibrated_on_all_rows() -> None:
    model = LogisticRegression().fit(TRAIN.X, TRAIN.y)
    dial = FairBayes(model, prefit=True)
    with pytest.warns(SeenRowsWarning, match="`calibrate`"):
        dial.fit(TEST.X, TEST.y, sensitive_features=TEST.groups)
    assert dial.frontier_.counts.sum() == len(TEST)


@pytest.mark.parametrize(("n", "positive"), [(200, 1), (10, 5), (6, 3)])
@pytest.mark.parametrize("texts", [False, True])
def test_trees_that_have_too_few_rows_say_so(n: int, positive: int, texts: bool) -> None:
    X = pd.DataFrame({"x": np.arange(n) % 7, "job": ["cook"] * n})[["x", "job"][: 1 + texts]]
    y = np.where(np.arange(n) < positive, "yes", "no")
    dial = FairBayes(boosting(["job"] * texts, 0), calibration=None, random_state=0)
    found = f"`y` .*{n - positive} with 'no' and {positive} with 'yes'"
    with pytest.raises(InvalidInputError, match=found):
        dial.fit(X, y, sensitive_features=np.arange(n) % 2)
    dial.set_params(estimator=logistic()).fit(X, y, sensitive_features=np.arange(n) % 2)


def test_an_infinite_cell_is_named_by_its_row() -> None:
    for row in (7, len(TRAIN) - 7):
        X = TRAIN.X.reset_index(drop=True).astype(float)
        X.iloc[row, 0] = np.inf
        with pytest.raises(InvalidInputError, match=f"\\b{row}\\b"):
            FairBayes(logistic(), random_state=0).fit(X, TRAIN.y, sensitive_features=TRAIN.groups)


def test_groups_must_be_passed_by_name() -> None:
    dial = FairBayes(LogisticRegression(), random_state=0)
    with pytest.raises(TypeError, match=r"fit\(X, y, sensitive_features=...\)"):
        dial.fit(TRAIN.X, TRAIN.y, TRAIN.groups)  # type: ignore[misc]
    dial.fit(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)
    with pytest.raises(TypeError, match=r"calibrate\(X, y, sensitive_features=...\)"):
        dial.calibrate(TEST.X, TEST.y, TEST.groups)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"predict\(X, sensitive_features=...\)"):
        dial.predict(TEST.X, TEST.groups)  # type: ignore[misc]
    options = ["sensitive_features", "sample_weight", "control_features"]
    assert [*inspect.signature(dial.fit).parameters] == ["X", "y", *options]


@pytest.mark.parametrize("kind", [FairBayes, GFB, YOTO])
def test_the_error_of_predict_proba_names_the_alternatives(kind: Any) -> None:
    model = kind()
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match=r"`predict\(X, tolerance=") as error:
        model.predict_proba(TEST.X)
    assert ("`logits`" in str(error.value)) == (kind is not YOTO)
    with pytest.raises(AttributeError, match=f"^'{kind.__name__}' object has no attribute 'nets'$"):
        model.nets  # noqa: B018
    assert clone(pickle.loads(pickle.dumps(model))).tolerance == model.tolerance


def test_forgotten_groups_draw_a_warning() -> None:
    with pytest.warns(FairdialWarning, match="`sensitive_features`"):
        FairBayes(LogisticRegression()).fit(TRAIN.X, TRAIN.y)


def test_one_row_of_every_group_and_label_stays_to_train() -> None:
    from fairdial.estimators.rows import hold_out

    cells = np.array([0, 0, 1, 2, 2, 2, 3])
    held = hold_out(cells, 0.9, np.random.RandomState(0))
    assert set(np.delete(cells, held)) == {0, 1, 2, 3}


def test_a_row_that_no_threshold_can_select_is_not_selected() -> None:
    class Certain:
        classes_ = np.array([0, 1])

        def decision_function(self, X: Any) -> Any:
            return np.where(X["x"] > 0, np.inf, -np.inf)

    dial = FairBayes(Certain(), prefit=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dial.fit(TEST.X, TEST.y, sensitive_features=TEST.groups)
        for tolerance in (0.0, 0.1, 1.0):
            options = {"sensitive_features": TEST.groups, "tolerance": tolerance}
            margin = dial.decision_function(TEST.X, **options)
            assert not np.isnan(margin).any()
            assert np.array_equal(margin > 0, dial.predict(TEST.X, **options) == 1)


def test_nullable_labels_keep_their_kind_and_sparse_rows_can_name_groups() -> None:
    dial = FairBayes(LogisticRegression(), random_state=0, tolerance=0.1)
    dial.fit(TRAIN.X, pd.Series(TRAIN.y, dtype="Int64"), sensitive_features=TRAIN.groups)
    assert dial.classes_.dtype.kind == "i"
    both = sparse.coo_matrix(np.column_stack([TRAIN.X, TRAIN.groups == "group 1"]).astype(float))
    named = FairBayes(LogisticRegression(), sensitive_column=1, random_state=0, tolerance=0.1)
    assert named.fit(both, TRAIN.y).frontier_.groups == (0.0, 1.0)
    with pytest.raises(InvalidInputError, match="`tolerance`"):
        dial.thresholds([0.1, 0.2])  # type: ignore[arg-type]


def test_the_positive_label_can_be_named() -> None:
    words = np.array(["deny", "approve"])[TRAIN.y]  # "approve" is the smaller word
    options: dict[str, Any] = {"per_group": True, "random_state": 0, "tolerance": 0.05}
    named = FairBayes(LogisticRegression(), pos_label="approve", **options)
    named.fit(TRAIN.X, words, sensitive_features=TRAIN.groups)
    plain = FairBayes(LogisticRegression(), **options)
    plain.fit(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)
    assert named.classes_.tolist() == ["deny", "approve"]
    assert np.array_equal(
        named.predict(TEST.X, sensitive_features=TEST.groups) == "approve",
        plain.predict(TEST.X, sensitive_features=TEST.groups) == 1,
    )
    fitted_model = LogisticRegression().fit(TRAIN.X, words)
    prefit = FairBayes(fitted_model, prefit=True, pos_label="approve", tolerance=1.0)
    prefit.calibrate(TRAIN.X, words, sensitive_features=TRAIN.groups)
    decisions = prefit.predict(TEST.X, sensitive_features=TEST.groups)
    assert np.array_equal(decisions, fitted_model.predict(TEST.X))
    for wrong in (
        FairBayes(LogisticRegression(), pos_label="grant"),
        FairBayes(fitted_model, prefit=True, pos_label="grant"),
    ):
        with pytest.raises(InvalidInputError, match="`pos_label`"):
            wrong.fit(TRAIN.X, words, sensitive_features=TRAIN.groups)
        with pytest.raises(InvalidInputError, match="'approve'"):
            wrong.set_params(pos_label="Approve").fit(TRAIN.X, words)


def test_an_estimator_that_needs_the_sensitive_column_is_explained() -> None:
    frame = TRAIN.X.assign(group=TRAIN.groups)
    columns = make_column_transformer((OneHotEncoder(), ["group"]), remainder="passthrough")
    by_transformer = make_pipeline(columns, LogisticRegression())
    by_key = make_pipeline(
        FunctionTransformer(lambda X: X.assign(group=X["group"] == "group 1")), LogisticRegression()
    )
    for pipeline in (by_transformer, by_key):
        with pytest.raises(InvalidInputError, match="'group'") as caught:
            FairBayes(pipeline, sensitive_column="group").fit(frame, TRAIN.y)
        assert caught.value.argument == "sensitive_column"
        assert "'group'" in str(caught.value.__cause__)
        ready = FairBayes(
            clone(pipeline).fit(frame, TRAIN.y), prefit=True, sensitive_column="group"
        )
        with pytest.raises(InvalidInputError, match="`sensitive_column`"):
            ready.calibrate(frame, TRAIN.y)
        dial = FairBayes(pipeline, random_state=0)
        dial.fit(frame, TRAIN.y, sensitive_features=frame["group"])
        assert dial.frontier_.groups == ("group 0", "group 1")
    dial = FairBayes(LogisticRegression(), sensitive_column="group")
    with pytest.raises(ValueError, match="could not convert string to float") as other:
        dial.fit(frame.assign(word="text"), TRAIN.y)
    assert "sensitive_column" not in str(other.value)


def test_a_cell_that_is_called_like_the_sensitive_column_is_not_taken_for_it() -> None:
    frame = pd.DataFrame({"A": TRAIN.groups, "x": TRAIN.X["x"].astype(object)})
    frame.iloc[::2, 1] = "A"
    known = OrdinalEncoder().fit(pd.DataFrame({"x": ["B", "C"]}))
    strict = make_pipeline(FunctionTransformer(known.transform), LogisticRegression())
    for scorer, named in (
        (LogisticRegression(), "could not convert string to float: 'A'"),
        (strict, r"Found unknown categories \[.*'A'.*\] in column 0"),
    ):
        with pytest.raises(ValueError, match=named) as caught:
            FairBayes(scorer, sensitive_column="A").fit(frame, TRAIN.y)
        assert "sensitive_column" not in str(caught.value)


def test_labels_may_be_as_large_as_their_type_allows(tmp_path: Path) -> None:
    top = 2**64 - 1
    y = pd.Series(np.array([top - 1, top], np.uint64)[TRAIN.y])
    for labels in (y, y.astype("UInt64")):
        dial = FairBayes(LogisticRegression(), tolerance=0.1, random_state=0)
        dial.fit(TRAIN.X, labels, sensitive_features=TRAIN.groups)
        assert dial.classes_.tolist() == [top - 1, top]
        assert set(dial.predict(TEST.X, sensitive_features=TEST.groups).tolist()) == {top - 1, top}
        dial.calibrate(TRAIN.X, labels, sensitive_features=TRAIN.groups)
        dial.save(tmp_path / "model", overwrite=True)
        assert load(tmp_path / "model").classes_.tolist() == [top - 1, top]


@pytest.mark.parametrize("wrong", ["logistic", object()])
def test_what_cannot_be_trained_is_refused_by_its_name(wrong: Any) -> None:
    got = type(wrong).__name__
    for estimator in (wrong, [GaussianNB(), wrong]):
        with pytest.raises(InvalidInputError, match=f"`estimator` .*{got}"):
            fitted(estimator=estimator)


@pytest.mark.parametrize("params", [{}, {"per_group": True}, {"recalibrate": "group"}, {"cv": 3}])
def test_flips_and_logits_of_a_model_agree_with_its_decisions(params: dict[str, Any]) -> None:
    dial = fitted(**params)
    options = {"sensitive_features": TEST.groups}
    before = dial.predict(TEST.X, tolerance=0.3, **options)
    after = dial.predict(TEST.X, tolerance=0.05, **options)
    assert np.array_equal(dial.flips(TEST.X, 0.3, 0.05, **options), after - before)
    logits = dial.logits(TEST.X, **options)
    assert np.array_equal(dial.frontier_.decide(logits, TEST.groups, 0.05), after == 1)


def test_a_scorer_takes_codes_and_says_so() -> None:
    dial = fitted(per_group=True)
    with pytest.raises(InvalidInputError, match="`groups`"):
        dial.scorer_.logits(TEST.X, TEST.groups)


def test_rows_in_another_order_are_noticed_by_their_index() -> None:
    groups = pd.Series(TRAIN.groups, index=TRAIN.X.index)
    labels = pd.Series(TRAIN.y, index=TRAIN.X.index)
    for y, g, name in (
        (labels.sort_values(), groups, "y"),
        (labels, groups.sort_values(), "sensitive_features"),
    ):
        with pytest.raises(InvalidInputError, match=f"`{name}`"):
            FairBayes(LogisticRegression()).fit(TRAIN.X, y, sensitive_features=g)
    dial = FairBayes(LogisticRegression(), random_state=0)
    dial.fit(TRAIN.X, labels.reset_index(drop=True), sensitive_features=groups)


def test_missing_labels_a_text_for_groups_and_a_wild_tolerance_are_refused() -> None:
    words = np.array(["no", "yes"], dtype=object)[TRAIN.y]
    words[3] = np.nan
    with pytest.raises(InvalidInputError, match="`y`"):
        FairBayes(LogisticRegression()).fit(TRAIN.X, words, sensitive_features=TRAIN.groups)
    with pytest.raises(InvalidInputError, match="`sensitive_column`"):
        FairBayes(LogisticRegression()).fit(TRAIN.X, TRAIN.y, sensitive_features="region")
    with pytest.raises(InvalidInputError, match="`tolerance`"):
        FairBayes(LogisticRegression(), tolerance=5).fit(
            TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups
        )


@pytest.mark.parametrize("criterion", ["equal_opportunity", "predictive_equality"])
def test_an_assumed_positive_label_draws_a_warning_if_the_criterion_depends_on_it(
    criterion: str,
) -> None:
    sample = make_gaussian(2_000, random_state=0)
    words = np.where(sample.y == 1, "approved", "rejected")
    model = FairBayes(LogisticRegression(), criterion=criterion, per_group=True, random_state=0)
    with pytest.warns(FairdialWarning, match="'rejected'"):
        model.fit(sample.X, words, sensitive_features=sample.groups)
    model.set_params(pos_label="approved").fit(sample.X, words, sensitive_features=sample.groups)
    model.set_params(pos_label=None).fit(sample.X, sample.y, sensitive_features=sample.groups)
    model.set_params(criterion="demographic_parity")
    model.fit(sample.X, words, sensitive_features=sample.groups)


def test_an_empty_column_in_the_way_of_a_classifier_is_named() -> None:
    sample = make_gaussian(400, random_state=0)
    X = pd.DataFrame(sample.X).assign(nothing=np.nan).rename(columns=str)
    with contextlib.suppress(ValueError, RuntimeWarning):
        HistGradientBoostingClassifier().fit(X, sample.y)
        pytest.skip("this scikit-learn grows trees on empty columns")
    with pytest.raises(InvalidInputError, match="'nothing'") as caught:
        FairBayes(HistGradientBoostingClassifier()).fit(
            X, sample.y, sensitive_features=sample.groups
        )
    assert caught.value.argument == "X"


def test_dates_in_the_way_of_a_classifier_are_named() -> None:
    sample = make_gaussian(500, random_state=0)
    X = sample.X.assign(since=pd.Timestamp("2020-01-01"))
    with pytest.raises(InvalidInputError, match="'since'"):
        FairBayes(HistGradientBoostingClassifier(), random_state=0).fit(
            X, sample.y, sensitive_features=sample.groups
        )
