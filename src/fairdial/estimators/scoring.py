"""A scorer for scikit-learn's model selection that passes the groups to ``predict``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score

from fairdial.errors import InvalidInputError
from fairdial.estimators.rows import split_column


class GroupScorer(BaseEstimator):  # type: ignore[misc]
    """Callable ``scorer(estimator, X, y, sensitive_features=None)``."""

    __metadata_request__score = {"sensitive_features": True}  # noqa: RUF012

    def __init__(
        self,
        metric: Callable[..., float],
        *,
        greater_is_better: bool = True,
        tolerance: float | None = None,
        sensitive_column: object = None,
        metric_params: dict[str, object] | None = None,
    ) -> None:
        self.metric = metric
        self.greater_is_better = greater_is_better
        self.tolerance = tolerance
        self.sensitive_column = sensitive_column
        self.metric_params = metric_params

    def __call__(self, estimator: Any, X: Any, y: Any, sensitive_features: object = None) -> float:
        """Return the metric of the estimator's decisions, where greater is better."""
        groups = sensitive_features
        passed: dict[str, object] = {} if groups is None else {"sensitive_features": groups}
        if self.tolerance is not None:
            passed["tolerance"] = self.tolerance
        if groups is None:
            column = self.sensitive_column
            if column is None:
                column = getattr(estimator, "sensitive_column", None)
            if column is not None:
                groups = split_column(X, column)[1]
        decisions = estimator.predict(X, **passed)
        params = dict(self.metric_params or {})
        if "sensitive_features" in inspect.signature(self.metric).parameters:
            if groups is None:
                raise InvalidInputError(
                    "sensitive_features",
                    "reach the scorer",
                    hint="Enable scikit-learn's metadata routing and pass params="
                    "{'sensitive_features': ...}, or set `sensitive_column` of the estimator or of "
                    "make_group_scorer.",
                )
            params["sensitive_features"] = groups
        value = float(self.metric(np.asarray(y), decisions, **params))
        return value if self.greater_is_better else -value

    def score(self, estimator: Any, X: Any, y: Any, sensitive_features: object = None) -> float:
        """Call the scorer; scikit-learn's routing looks for a method with this name."""
        return self(estimator, X, y, sensitive_features)


def make_group_scorer(
    metric: Callable[..., float] = accuracy_score,
    *,
    greater_is_better: bool = True,
    tolerance: float | None = None,
    sensitive_column: object = None,
    **metric_params: object,
) -> GroupScorer:
    """Make a scorer for ``cross_validate`` and ``GridSearchCV`` that passes the groups on.

    scikit-learn's own scorers never pass metadata to ``predict``. With metadata routing enabled
    this one does; without routing the groups come from ``sensitive_column`` (its own, or the
    estimator's).

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_pred)``, or one that also takes ``sensitive_features=``, such as
        :func:`fairdial.metrics.gap`.
    greater_is_better : bool
        If False, the sign is flipped, as in scikit-learn.
    tolerance : float, optional
        Tolerance at which to score; the estimator's own by default.
    sensitive_column : str, int or list, optional
        Group column(s) of X.
    **metric_params
        Passed on to ``metric``.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from fairdial import FairBayes, make_group_scorer
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.metrics import gap
    >>> sample = make_gaussian(4000, random_state=0)
    >>> X = sample.X.assign(group=sample.groups)
    >>> dial = FairBayes(
    ...     LogisticRegression(),
    ...     sensitive_column="group",
    ...     tolerance=0.1,
    ...     recalibrate="group",
    ...     random_state=0,
    ... )
    >>> scores = cross_val_score(
    ...     dial, X, sample.y, cv=3, scoring=make_group_scorer(gap, greater_is_better=False)
    ... )
    >>> bool((scores > -0.3).all())
    True
    """
    if not callable(metric):
        raise InvalidInputError("metric", "be callable", given=repr(metric))
    return GroupScorer(
        metric,
        greater_is_better=greater_is_better,
        tolerance=tolerance,
        sensitive_column=sensitive_column,
        metric_params=metric_params or None,
    )
