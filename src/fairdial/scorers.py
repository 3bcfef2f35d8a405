"""Scorers: anything that gives one logit a row.

A scorer has ``logits(X, groups) -> (n,)``; the dial needs nothing else of a model. Here are the
adapters for scikit-learn classifiers, one for all rows or one for each group.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.utils import _safe_indexing

from fairdial._validation import (
    as_vector,
    check_choice,
    check_same_length,
    check_scores,
    match_groups,
)
from fairdial.errors import InvalidInputError

Floats = NDArray[np.float64]
Codes = NDArray[np.integer[Any]]

METHODS = ("predict_proba", "decision_function", "predict")
STEEPEST, FLATTEST = 1e3, 1e-3  # slopes that recalibration may give; all keep the order of scores


class Scorer(Protocol):
    """Anything that gives one logit a row."""

    def logits(self, X: Any, groups: Codes) -> NDArray[np.floating[Any]]:
        """(n,) log-odds of the positive label."""


def proba_to_logits(probabilities: Any, name: str = "probabilities") -> Floats:
    """Log-odds of probabilities; 0 and 1 become infinite.

    Examples
    --------
    >>> from fairdial.scorers import proba_to_logits
    >>> proba_to_logits([0.5, 0.75]).round(4)
    array([0.    , 1.0986])
    """
    array = check_scores(probabilities, name).astype(np.float64)
    if array.min() < 0 or array.max() > 1:
        bad = array[(array < 0) | (array > 1)][0]
        raise InvalidInputError(f"`{name}` must lie in [0, 1], got {bad:g}.")
    return np.asarray(logit(array), np.float64)


def find_method(estimator: Any, predict_method: str = "auto") -> str:
    """The method that scores: the one named, or the first that the estimator has."""
    check_choice(predict_method, "predict_method", ("auto", *METHODS))
    names = METHODS if predict_method == "auto" else (predict_method,)
    for name in names:
        if hasattr(estimator, name):
            return name
    raise InvalidInputError(
        f"`estimator` must have {' or '.join(names)}, got {type(estimator).__name__} without."
    )


def estimator_logits(estimator: Any, X: Any, *, positive: Any, method: str) -> Floats:
    """Logits of a fitted scikit-learn classifier for the label ``positive``."""
    given = getattr(estimator, method)(X)
    classes = list(getattr(estimator, "classes_", ()))
    if method == "predict_proba":
        given = np.asarray(given)
        if given.ndim == 2:
            if positive not in classes:
                return np.full(len(given), -np.inf)
            given = given[:, classes.index(positive)]
        return proba_to_logits(given, "predict_proba of `estimator`")
    if method == "decision_function":
        scores = check_scores(given, "decision_function of `estimator`").astype(np.float64)
        return -scores if classes and classes[0] == positive else scores
    return np.where(as_vector(given, "predict of `estimator`") == positive, 1.0, -1.0)


class SklearnScorer:
    """Fitted scikit-learn classifiers as a scorer.

    Parameters
    ----------
    estimators : list
        Fitted classifiers: one for all rows, or one for each group code.
    positive : label
        The label whose odds are meant.
    method : {"predict_proba", "decision_function", "predict"}
        What scores.
    """

    def __init__(self, estimators: Sequence[Any], *, positive: Any, method: str) -> None:
        self.estimators = list(estimators)
        self.positive = positive
        self.method = method

    def logits(self, X: Any, groups: Codes) -> Floats:
        """(n,) log-odds of the positive label."""
        if len(self.estimators) == 1:
            return self._one(self.estimators[0], X)
        groups = np.asarray(groups)
        if groups.dtype.kind not in "iu" or not np.isin(groups, range(len(self.estimators))).all():
            raise InvalidInputError(
                f"`groups` must be codes from 0 to {len(self.estimators) - 1} for a scorer; the "
                "estimator's logits() takes names."
            )
        scores = np.empty(len(groups))
        for group, estimator in enumerate(self.estimators):
            rows = np.flatnonzero(groups == group)
            if rows.size:
                scores[rows] = self._one(estimator, _safe_indexing(X, rows))
        return scores

    def _one(self, estimator: Any, X: Any) -> Floats:
        return estimator_logits(estimator, X, positive=self.positive, method=self.method)


class AveragedScorer:
    """Several scorers whose logits are averaged: the models of cross-fitting."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self.scorers = list(scorers)

    def logits(self, X: Any, groups: Codes) -> Floats:
        """(n,) mean log-odds of the positive label."""
        scores = np.array([scorer.logits(X, groups) for scorer in self.scorers], np.float64)
        with np.errstate(invalid="ignore"):
            mean = scores.mean(axis=0)
        return np.where(np.isnan(mean), 0.0, mean)  # +inf and -inf: undecided


class PlattMap:
    """Recalibration of each group's logits by a line, ``slope * z + intercept``, slope > 0.

    Scores that are biased by an intercept cost accuracy on the path; a line a group, fitted on
    labelled calibration rows, repairs that. The order within a group stays, so gaps are unaffected.
    """

    def __init__(self, slope: Floats, intercept: Floats, names: tuple[Hashable, ...]) -> None:
        self.slope, self.intercept, self.names = slope, intercept, names

    @classmethod
    def fit(
        cls,
        logits: Any,
        groups: Codes,
        positive: NDArray[np.bool_],
        names: tuple[Hashable, ...],
    ) -> PlattMap:
        """Least log loss in each group, with Platt's smoothed targets."""
        check_same_length(logits, positive, ("logits", "y"))
        lines = np.array(
            [
                _fit_line(np.asarray(logits)[groups == a], positive[groups == a])
                for a in range(len(names))
            ]
        )
        return cls(lines[:, 0], lines[:, 1], names)

    def of(self, names: tuple[Hashable, ...]) -> PlattMap:
        """The same lines for groups in another order, or for some of them."""
        places = match_groups(np.array(names, dtype=object), self.names, "sensitive_features")
        return PlattMap(self.slope[places], self.intercept[places], names)

    def __call__(self, logits: Any, groups: Codes) -> Floats:
        """Recalibrated logits; infinite ones stay."""
        return np.asarray(
            self.slope[groups] * np.asarray(logits, np.float64) + self.intercept[groups]
        )


def _fit_line(
    logits: NDArray[np.floating[Any]], positive: NDArray[np.bool_]
) -> tuple[float, float]:
    z = np.clip(logits.astype(np.float64), -30.0, 30.0)  # infinite scores take part, too
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    target = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))

    def loss(line: Floats) -> tuple[float, Floats]:
        m = line[0] * z + line[1]
        error = expit(m) - target
        value = np.mean(np.logaddexp(0.0, m) - target * m)
        return float(value), np.array([np.mean(error * z), np.mean(error)])

    found = minimize(
        loss,
        np.array([1.0, 0.0]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(FLATTEST, STEEPEST), (None, None)],
        options={"ftol": 1e-14, "gtol": 1e-9},
    )
    return float(found.x[0]), float(found.x[1])
