"""Scorers: anything that gives each row a logit.

A scorer has ``logits(X, groups) -> (n,)``; thresholds need nothing else from a model. With more
than two classes it returns log-probabilities or logits of the classes, (n, C). The adapters here
wrap scikit-learn classifiers, one for all rows or one for each group. scikit-learn is imported
where it is used, because plain models don't need it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from fairdial._arrays import Codes, Floats, Mask, Scores, Weights
from fairdial._special import expit
from fairdial._validation import (
    as_vector,
    check_choice,
    check_same_length,
    check_scores,
    match_groups,
)
from fairdial.core.logits import proba_to_logits
from fairdial.errors import InvalidInputError
from fairdial.forests.forest import library_of

PREDICT_METHODS = ("predict_proba", "decision_function", "predict")
ROUNDED = 1e-3  # by how much probabilities of two classes may miss 1
STEEPEST, FLATTEST = 1e3, 1e-3  # bounds of recalibration's slopes, which keep the order of scores


class Scorer(Protocol):
    """Anything that gives each row a logit."""

    def logits(self, X: Any, groups: Codes) -> Scores:
        """Return (n,) log-odds of the positive label.

        With more than two classes, (n, C) log-probabilities or logits: their softmax are the
        probabilities of the classes, in sorted order.
        """


def find_method(estimator: object, predict_method: str = "auto") -> str:
    """Return the method that scores: the one named, or the first that the estimator has."""
    check_choice(predict_method, "predict_method", ("auto", *PREDICT_METHODS))
    names = PREDICT_METHODS if predict_method == "auto" else (predict_method,)
    for name in names:
        if hasattr(estimator, name):
            return name
    raise InvalidInputError(
        "estimator", f"have {' or '.join(names)}", given=f"{type(estimator).__name__} without it"
    )


def estimator_logits(estimator: Any, X: Any, *, positive: object, method: str) -> Floats:
    """Return the logits of a fitted scikit-learn classifier for the label ``positive``."""
    from sklearn.utils.validation import _num_samples

    given = getattr(estimator, method)(X)
    check_same_length(range(_num_samples(X)), given, ("X", f"{method} of `estimator`"))
    classes = list(getattr(estimator, "classes_", ()))
    if method == "predict_proba":
        given = np.asarray(given)
        if given.ndim == 2:
            if library_of(estimator) and np.any(np.abs(given.sum(axis=1) - 1) > ROUNDED):
                raise InvalidInputError(
                    "estimator",
                    "have one output",
                    given=f"{type(estimator).__name__} with {given.shape[1]} outputs",
                )
            if positive not in classes:
                return np.full(len(given), -np.inf)
            given = given[:, classes.index(positive)]
        if np.any((given < 0) | (given > 1)):
            raise InvalidInputError(
                "estimator",
                "give probabilities between 0 and 1 by predict_proba",
                given=f"{type(estimator).__name__}, which gives {_first_beyond(given):g}",
                hint="Boosters with a custom objective give raw scores: turn them into log-odds "
                "and pass them to fairdial.sweep.",
            )
        return proba_to_logits(given, "predict_proba of `estimator`")
    if method == "decision_function":
        scores = check_scores(given, "decision_function of `estimator`").astype(np.float64)
        return -scores if classes and classes[0] == positive else scores
    labels = as_vector(given, "predict of `estimator`")
    known = set(classes) or {positive, *labels[labels != positive][:1].tolist()}
    if not set(labels.tolist()) <= known:
        raise InvalidInputError(
            "estimator",
            "be a classifier of two labels",
            given=f"{type(estimator).__name__}, whose predict gives other values",
            hint="Turn scores of a regressor or ranker into log-odds and pass them to "
            "fairdial.sweep.",
        )
    return np.where(labels == positive, 1.0, -1.0)


def _first_beyond(given: Floats) -> float:
    """Return the first number that is no probability."""
    return float(given[(given < 0) | (given > 1)][0])


def class_logits(estimator: Any, X: Any, *, classes: Sequence[Any], method: str) -> Floats:
    """Return the log-probabilities of classes, (n, C), or what is used as such."""
    from sklearn.utils.validation import _num_samples

    given = np.asarray(getattr(estimator, method)(X))
    check_same_length(range(_num_samples(X)), given, ("X", f"{method} of `estimator`"))
    known = list(getattr(estimator, "classes_", classes))
    if method == "predict":
        labels = as_vector(given, "predict of `estimator`")
        return np.where(labels[:, None] == np.array(classes, labels.dtype), 1.0, 0.0)
    if given.shape[1:] != (len(known),):
        raise InvalidInputError(
            "estimator",
            f"give a column for each of {len(known)} classes by {method}",
            given=f"{type(estimator).__name__}, which gives shape {given.shape}",
        )
    scores = given.astype(np.float64)
    if method == "predict_proba":
        if np.any((scores < 0) | (scores > 1)):
            raise InvalidInputError(
                "estimator",
                "give probabilities between 0 and 1 by predict_proba",
                given=f"{type(estimator).__name__}, which gives {_first_beyond(scores):g}",
            )
        with np.errstate(divide="ignore"):
            scores = np.log(scores)
    if known == list(classes):
        return scores
    found = np.full((len(scores), len(classes)), -np.inf)  # of classes that it wasn't trained on
    found[:, [list(classes).index(name) for name in known]] = scores
    return found


class SklearnScorer:
    """Wrap fitted scikit-learn classifiers as a scorer.

    Parameters
    ----------
    estimators : list
        Fitted classifiers: one for all rows, or one for each group code.
    positive : label
        The positive label.
    method : {"predict_proba", "decision_function", "predict"}
        The classifiers' method that gives scores.
    classes : sequence, optional
        The classes if there are more than two, which have no positive one.
    """

    def __init__(
        self,
        estimators: Sequence[Any],
        *,
        positive: object,
        method: str,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.estimators = list(estimators)
        self.classes = None if classes is None else list(classes)
        self.positive = positive
        self.method = method

    def logits(self, X: Any, groups: Codes) -> Floats:
        """Return (n,) log-odds of the positive label; (n, C) with more than two classes."""
        if len(self.estimators) == 1:
            return self._one(self.estimators[0], X)
        from sklearn.utils import _safe_indexing

        groups = np.asarray(groups)
        if groups.dtype.kind not in "iu" or not np.isin(groups, range(len(self.estimators))).all():
            raise InvalidInputError(
                "groups",
                f"hold codes from 0 to {len(self.estimators) - 1}",
                hint="To pass the names of groups, call logits() of the estimator.",
            )
        more = () if self.classes is None else (len(self.classes),)
        scores = np.empty((len(groups), *more))
        for group, estimator in enumerate(self.estimators):
            rows = np.flatnonzero(groups == group)
            if rows.size:
                scores[rows] = self._one(estimator, _safe_indexing(X, rows))
        return scores

    def _one(self, estimator: Any, X: Any) -> Floats:
        if self.classes is not None:
            return class_logits(estimator, X, classes=self.classes, method=self.method)
        return estimator_logits(estimator, X, positive=self.positive, method=self.method)


class AveragedScorer:
    """Average the logits of several scorers, such as the models of cross-fitting."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self.scorers = list(scorers)

    def logits(self, X: Any, groups: Codes) -> Floats:
        """Return (n,) mean log-odds of the positive label; (n, C) with more than two classes."""
        scores = np.array([scorer.logits(X, groups) for scorer in self.scorers], np.float64)
        with np.errstate(invalid="ignore"):
            mean = scores.mean(axis=0)
        return np.where(np.isnan(mean), 0.0, mean)  # +inf and -inf: undecided


class PlattMap:
    """Recalibrate each group's logits by a line, ``slope * z + intercept`` with slope > 0.

    Biased scores cost accuracy. A line per group, fitted on labeled calibration rows, corrects
    them. It keeps the order within a group, so gaps are unaffected.
    """

    def __init__(self, slope: Floats, intercept: Floats, names: tuple[Hashable, ...]) -> None:
        self.slope, self.intercept, self.names = slope, intercept, names

    @classmethod
    def fit(
        cls,
        logits: Scores,
        groups: Codes,
        positive: Mask,
        names: tuple[Hashable, ...],
        weights: Weights | None = None,
    ) -> PlattMap:
        """Minimize the log loss in each group, with Platt's smoothed targets."""
        check_same_length(logits, positive, ("logits", "y"))
        each = np.ones(len(positive), np.int64) if weights is None else weights
        rows = [groups == a for a in range(len(names))]
        lines = np.array([_fit_line(logits[at], positive[at], each[at]) for at in rows])
        return cls(lines[:, 0], lines[:, 1], names)

    def reorder(self, names: tuple[Hashable, ...]) -> PlattMap:
        """Return the same lines for groups in another order, or for some of them."""
        places = match_groups(np.array(names, dtype=object), self.names, "sensitive_features")
        return PlattMap(self.slope[places], self.intercept[places], names)

    def __call__(self, logits: Scores, groups: Codes) -> Floats:
        """Return recalibrated logits; infinite ones stay infinite."""
        return np.asarray(self.slope[groups] * logits.astype(np.float64) + self.intercept[groups])


def _fit_line(logits: Scores, positive: Mask, weights: Weights) -> tuple[float, float]:
    """Return slope and intercept; repeated rows and whole weights give the same bits."""
    from scipy.optimize import minimize

    clipped = np.clip(logits.astype(np.float64), -30.0, 30.0)  # infinite scores count, too
    z, place = np.unique(clipped, return_inverse=True)
    n_by_score = np.bincount(place, weights, len(z))
    positive_by_score = np.bincount(place, weights * positive, len(z))
    n, n_positive = n_by_score.sum(), positive_by_score.sum()
    high, low = (n_positive + 1) / (n_positive + 2), 1 / (n - n_positive + 2)
    target = low * n_by_score + (high - low) * positive_by_score  # sums over rows of a score

    def loss(line: Floats) -> tuple[float, Floats]:
        m = line[0] * z + line[1]
        error = expit(m) * n_by_score - target
        value = (np.logaddexp(0.0, m) * n_by_score - target * m).sum() / n
        return float(value), np.array([(error * z).sum(), error.sum()]) / n

    found = minimize(
        loss,
        np.array([1.0, 0.0]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(FLATTEST, STEEPEST), (None, None)],
        options={"ftol": 1e-14, "gtol": 1e-9},
    )
    return float(found.x[0]), float(found.x[1])
