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

    def __init__(self, rows: Rows) -> None:
        self.scores = rows.probabilities
        self.y, self.groups = rows.y.astype(np.int64), rows.groups.astype(np.int64)

    @classmethod
    def installed(cls) -> bool:
        """Return whether it can be imported."""
        return importlib.util.find_spec(cls.module) is not None

    @abstractmethod
    def fit(self, tolerance: float) -> Any:
        """Fit for one demographic-parity tolerance; this is timed."""

    @abstractmethod
    def decisions(self, fitted: Any) -> NDArray[np.bool_]:
        """Return the decisions of the fitted rule for the same rows."""

    def run(self, tolerance: float) -> None:
        """Fit, and store the result."""
        self.fitted = self.fit(tolerance)

    def gap(self) -> float:
        """Return the gap of its selection rates on the same rows."""
        selected = self.decisions(self.fitted)
        rates = [selected[self.groups == a].mean() for a in np.unique(self.groups)]
        return float(max(rates) - min(rates))


class Fairlearn(Peer):
    """``ThresholdOptimizer`` on a fitted estimator, with its relaxation ``tol``."""

    name = "fairlearn"
    module = "fairlearn"

    def fit(self, tolerance: float) -> Any:
        """Fit ``ThresholdOptimizer(prefit=True, tol=tolerance)``."""
        from fairlearn.postprocessing import ThresholdOptimizer

        optimizer = ThresholdOptimizer(
            estimator=_Scores(),
            constraints="demographic_parity",
            objective="accuracy_score",
            prefit=True,
            predict_method="predict_proba",
            tol=tolerance,
        )
        return optimizer.fit(self.scores[:, None], self.y, sensitive_features=self.groups)

    def decisions(self, fitted: Any) -> NDArray[np.bool_]:
        """Return decisions randomized between two thresholds per group, with a fixed seed."""
        drawn = fitted.predict(self.scores[:, None], sensitive_features=self.groups, random_state=0)
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
            predictor=lambda X: X[:, 0], constraint="demographic_parity", tolerance=tolerance
        )
        return optimizer.fit(self.scores[:, None], self.y, group=self.groups, y_scores=self.scores)

    def decisions(self, fitted: Any) -> NDArray[np.bool_]:
        """Return decisions randomized between points of the ROC curve, with its default seed."""
        return np.asarray(fitted.predict(self.scores[:, None], group=self.groups), np.bool_)


class OxonFair(Peer):
    """``FairPredictor`` on given scores, by its fast path."""

    name = "oxonfair"
    module = "oxonfair"

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.columns = np.column_stack((1.0 - self.scores, self.scores))

    def _data(self) -> Any:
        from oxonfair import DataDict

        return DataDict(self.y, self.columns, groups=self.groups)

    def fit(self, tolerance: float) -> Any:
        """Fit the most accurate thresholds with ``demographic_parity`` within the tolerance."""
        from oxonfair import FairPredictor, group_metrics

        predictor = FairPredictor(None, self._data())
        return predictor.fit(group_metrics.accuracy, group_metrics.demographic_parity, tolerance)

    def decisions(self, fitted: Any) -> NDArray[np.bool_]:
        """Return deterministic decisions, by one offset per group."""
        return np.asarray(fitted.predict(self._data()), np.bool_)

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
