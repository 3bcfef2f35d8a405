"""The libraries that fairdial is compared with, called as their documentation shows.

Every peer gets the same probabilities, labels and groups. Libraries are optional, so that the
benchmarks run anywhere: check :meth:`Peer.installed`.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from common import Floats, Rows
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin

MISSING = "not installed (make peers)"


class _Scores(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose only feature is the probability itself."""

    def fit(self, X: Any, y: Any) -> _Scores:  # noqa: ARG002
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict_proba(self, X: Any) -> Floats:
        return np.column_stack((1.0 - X[:, 0], X[:, 0]))


class Peer(ABC):
    """A library with the rows in its own input format, so that conversion isn't timed."""

    name: str
    module: str

    def __init__(self, rows: Rows, criterion: str = "demographic_parity") -> None:
        self.criterion = criterion
        self.scores = rows.probabilities
        self.y, self.groups = rows.y.astype(np.int64), rows.groups.astype(np.int64)

    @classmethod
    def installed(cls) -> bool:
        """Return whether it can be imported."""
        return importlib.util.find_spec(cls.module) is not None

    @abstractmethod
    def fit(self, tolerance: float) -> Any:
        """Fit for one tolerance; this is timed."""

    @abstractmethod
    def apply(self, fitted: Any, scores: Floats, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the decisions of the fitted rule for any rows, from their probabilities."""

    def decisions(self, fitted: Any) -> NDArray[np.bool_]:
        """Return the decisions of the fitted rule for the same rows."""
        return self.apply(fitted, self.scores, self.groups)

    def run(self, tolerance: float) -> None:
        """Fit, and store the result."""
        self.fitted = self.fit(tolerance)

    def gap(self) -> float:
        """Return the gap of its rates on the same rows; the larger one for equalized odds."""
        selected, every = self.decisions(self.fitted), np.ones(len(self.y), np.bool_)
        odds = self.criterion == "equalized_odds"
        gaps = []
        for eligible in (self.y == 0, self.y == 1) if odds else (every,):
            rates = [selected[eligible & (self.groups == a)].mean() for a in np.unique(self.groups)]
            gaps.append(max(rates) - min(rates))
        return float(max(gaps))


class Fairlearn(Peer):
    """``ThresholdOptimizer`` on a fitted estimator, with its relaxation ``tol``.

    For equalized odds it has no relaxation: every tolerance is 0.
    """

    name = "fairlearn"
    module = "fairlearn"

    def fit(self, tolerance: float) -> Any:
        """Fit ``ThresholdOptimizer(prefit=True, tol=tolerance)``."""
        from fairlearn.postprocessing import ThresholdOptimizer

        optimizer = ThresholdOptimizer(
            estimator=_Scores(),
            constraints=self.criterion,
            objective="accuracy_score",
            prefit=True,
            predict_method="predict_proba",
            tol=None if self.criterion == "equalized_odds" else tolerance,
        )
        return optimizer.fit(self.scores[:, None], self.y, sensitive_features=self.groups)

    def apply(self, fitted: Any, scores: Floats, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return decisions randomized between two thresholds per group, with a fixed seed."""
        drawn = fitted.predict(scores[:, None], sensitive_features=groups, random_state=0)
        return np.asarray(drawn, np.bool_)

    @staticmethod
    def mixture(fitted: Any) -> tuple[Floats, Floats]:
        """Return weights (2, K) and logit thresholds (2, K) of the randomized rule."""
        groups = fitted.interpolated_thresholder_.interpolation_dict
        weights, thresholds = np.empty((2, len(groups))), np.empty((2, len(groups)))
        for a, rule in groups.items():
            if {rule.operation0.operator, rule.operation1.operator} != {">"}:
                raise RuntimeError("a flipped threshold, although flip=False")
            weights[:, a] = rule.p0, rule.p1
            thresholds[:, a] = rule.operation0.threshold, rule.operation1.threshold
        return weights, _to_logits(thresholds)


class ErrorParity(Peer):
    """``RelaxedThresholdOptimizer`` with the scores given."""

    name = "error-parity"
    module = "error_parity"

    def fit(self, tolerance: float) -> Any:
        """Fit ``RelaxedThresholdOptimizer(tolerance=tolerance)`` with ``y_scores``."""
        from error_parity import RelaxedThresholdOptimizer

        optimizer = RelaxedThresholdOptimizer(
            predictor=lambda X: X[:, 0], constraint=self.criterion, tolerance=tolerance
        )
        return optimizer.fit(self.scores[:, None], self.y, group=self.groups, y_scores=self.scores)

    def apply(self, fitted: Any, scores: Floats, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return decisions randomized between points of the ROC curve, with its default seed."""
        return np.asarray(fitted.predict(scores[:, None], group=groups), np.bool_)


class OxonFair(Peer):
    """``FairPredictor`` on given scores, by its fast path."""

    name = "oxonfair"
    module = "oxonfair"

    def __init__(self, rows: Rows, criterion: str = "demographic_parity") -> None:
        super().__init__(rows, criterion)
        self.columns = np.column_stack((1.0 - self.scores, self.scores))

    def fit(self, tolerance: float) -> Any:
        """Fit the most accurate thresholds whose gap is within the tolerance."""
        from oxonfair import DataDict, FairPredictor, group_metrics

        gap = {
            "demographic_parity": group_metrics.demographic_parity,
            "equalized_odds": group_metrics.equalized_odds_max,
        }[self.criterion]
        predictor = FairPredictor(None, DataDict(self.y, self.columns, groups=self.groups))
        return predictor.fit(group_metrics.accuracy, gap, tolerance)

    def apply(self, fitted: Any, scores: Floats, groups: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return deterministic decisions, by one offset per group."""
        from oxonfair import DataDict

        unused = np.arange(len(scores)) % 2  # labels
        columns = np.column_stack((1.0 - scores, scores))
        return np.asarray(fitted.predict(DataDict(unused, columns, groups=groups)), np.bool_)

    @staticmethod
    def thresholds(fitted: Any) -> Floats:
        """Return the logit thresholds (K,): ``p + offset > 1 - p``."""
        return _to_logits((1.0 - np.asarray(fitted.offset, np.float64)) / 2.0)


def _to_logits(probabilities: Floats) -> Floats:
    """Return thresholds on log-odds for thresholds on probabilities; infinite outside [0, 1]."""
    with np.errstate(divide="ignore"):
        return np.asarray(logit(np.clip(probabilities, 0.0, 1.0)), np.float64)


PEERS: tuple[type[Peer], ...] = (Fairlearn, OxonFair, ErrorParity)


def quiet() -> None:
    """Silence warnings of the peers about solvers and deprecated calls."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
