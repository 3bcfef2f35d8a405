from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from threadpoolctl import threadpool_info, threadpool_limits

from fairdial import InvalidInputError, proba_to_logits
from fairdial.estimators import learners
from fairdial.estimators.scorers import (
    AveragedScorer,
    PlattMap,
    SklearnScorer,
    estimator_logits,
    find_method,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 2))
Y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
group_of = (X[:, 1] > 0).astype(int)


def test_probabilities_become_log_odds_and_their_ends_infinite() -> None:
    p = np.array([0.0, 0.2, 0.5, 1.0])
    assert np.array_equal(proba_to_logits(p), logit(p))
    assert np.isinf(proba_to_logits(p)[[0, 3]]).all()


@pytest.mark.parametrize("bad", [-0.1, 1.1])
def test_probabilities_outside_the_unit_interval_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInputError, match=rf"`probabilities` .*\[0, 1\], got {bad}"):
        proba_to_logits([0.5, bad])


def test_auto_takes_probabilities_first_then_the_decision_function() -> None:
    assert find_method(LogisticRegression()) == "predict_proba"
    assert find_method(RidgeClassifier()) == "decision_function"
    with pytest.raises(InvalidInputError, match="`estimator`"):
        find_method(RidgeClassifier(), "predict_proba")
    with pytest.raises(InvalidInputError, match="`predict_method`"):
        find_method(RidgeClassifier(), "guess")


@pytest.mark.parametrize("method", ["predict_proba", "decision_function", "predict"])
def test_logits_speak_of_the_positive_label_whichever_it_is(method: str) -> None:
    model = LogisticRegression().fit(X, np.array(["yes", "no"])[Y])
    for_yes = estimator_logits(model, X, positive="yes", method=method)
    for_no = estimator_logits(model, X, positive="no", method=method)
    assert np.allclose(for_yes, -for_no)
    assert np.array_equal(for_yes > 0, model.predict(X) == "yes")


def test_one_model_a_group_serves_its_own_rows() -> None:
    models = [LogisticRegression().fit(X[group_of == a], Y[group_of == a]) for a in (0, 1)]
    scorer = SklearnScorer(models, positive=1, method="decision_function")
    logits = scorer.logits(X, group_of)
    for a, model in enumerate(models):
        assert np.array_equal(logits[group_of == a], model.decision_function(X[group_of == a]))


def test_averaging_keeps_infinite_scores_and_calls_opposite_ones_undecided() -> None:
    class Fixed:
        def __init__(self, *values: float) -> None:
            self.values = np.array(values)

        def logits(self, X: object, groups: object) -> np.ndarray:  # noqa: ARG002
            return self.values

    inf = np.inf
    both = AveragedScorer([Fixed(1, inf, inf, -inf), Fixed(3, inf, -inf, 0)])
    assert np.array_equal(both.logits(None, group_of), [2, inf, 0, -inf])


def test_a_line_a_group_undoes_an_intercept_and_a_slope() -> None:
    n = 40_000
    groups = rng.integers(0, 2, n)
    true = rng.normal(size=n) * 2
    y = rng.random(n) < expit(true)
    biased = np.where(groups == 0, true * 0.5 - 0.7, true * 2 + 0.4)
    fitted = PlattMap.fit(biased, groups, y, (0, 1))
    assert np.abs(fitted(biased, groups) - true).max() < 0.35
    assert np.all(fitted.slope > 0)


def test_recalibration_never_turns_the_order_around() -> None:
    z = rng.normal(size=500)
    y = rng.random(500) < expit(-3 * z)  # scores that point the wrong way
    assert PlattMap.fit(z, np.zeros(500, int), y, (0,)).slope[0] > 0


def test_infinite_scores_stay_infinite_after_recalibration() -> None:
    z = np.r_[rng.normal(size=100), np.inf, -np.inf]
    groups, y = np.zeros(102, int), np.r_[rng.random(100) < 0.5, True, False]
    assert np.isinf(PlattMap.fit(z, groups, y, (0,))(z, groups)[-2:]).all()


@pytest.mark.parametrize("n_rows", [1_000, learners.MANY_ROWS])
def test_a_container_gets_as_many_threads_as_cores(
    n_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads() -> set[int]:
        return {found["num_threads"] for found in threadpool_info()}

    with threadpool_limits(limits=2):
        monkeypatch.setattr(learners.os, "cpu_count", lambda: 64)
        monkeypatch.setattr(learners, "cpu_count", lambda: 1)  # the container's limit
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        with learners.limit_threads(n_rows, trees=n_rows > 1_000):
            assert threads() == {1}
        assert threads() == {2}
        monkeypatch.setenv("OMP_NUM_THREADS", "2")  # somebody's choice
        with learners.limit_threads(n_rows, trees=n_rows > 1_000):
            assert threads() == {2}
