"""Blind dials: the scorer's parts, and what blindness costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from fairdial._arrays import Codes, Floats, Indices, Scores
from fairdial.core.frontier import Frontier
from fairdial.core.prices import check_priceable
from fairdial.errors import InvalidInputError
from fairdial.estimators.fitting import check_estimator, fit_clone
from fairdial.estimators.learners import for_table
from fairdial.estimators.rows import Rows, take_rows
from fairdial.estimators.scorers import Scorer
from fairdial.nn.network import Network


class Blindness(NamedTuple):
    """How well the features predict the group, and what deciding without it costs.

    Attributes
    ----------
    auc : Series
        For each group, the probability that a row of the group gets a higher probability of it
        than a row of another group: 0.5 if features say nothing, 1 if they give the group away.
    costs : DataFrame
        One line per tolerance: ``blind`` and ``aware`` accuracy on these rows, their difference
        ``cost``, and whether the blind dial reaches the tolerance (``reached``).
    """

    auc: pd.Series
    costs: pd.DataFrame


class BlindScorer:
    """A scorer of labels, and a classifier that estimates the probability of each group.

    Parameters
    ----------
    labels : Scorer
        Gives logits; its classifiers don't see the group.
    groups : classifier
        Fitted on group codes; has ``predict_proba``.
    n_groups : int
        Number of groups.
    """

    def __init__(self, labels: Scorer, groups: Any, n_groups: int) -> None:
        self.labels, self.groups, self.n_groups = labels, groups, n_groups

    def logits(self, X: Any, groups: Codes) -> Scores:
        """Return (n,) log-odds of the positive label; groups are ignored."""
        return self.labels.logits(X, groups)

    def posterior(self, X: Any) -> Floats:
        """Return the probability of each group, (n, K)."""
        given = np.asarray(self.groups.predict_proba(X), np.float64)
        codes = np.asarray(self.groups.classes_, np.intp)
        if given.shape[1:] != codes.shape or not np.isfinite(given).all():
            raise InvalidInputError(
                "group_estimator",
                "give a probability of every group by predict_proba",
                given=f"shape {given.shape}, or NaN",
            )
        found = np.zeros((len(given), self.n_groups))
        found[:, codes] = given
        return np.asarray(found / found.sum(axis=1, keepdims=True))


def check_blind(model: Any) -> None:
    """Raise unless a FairBayes can be blind."""
    check_priceable(model._make_problem(np.inf))
    refused = {
        "prefit": model.prefit and "True",
        "per_group": model.per_group and "True",
        "cv": model.cv is not None and model.cv,
        "recalibrate": model.recalibrate is not None and repr(model.recalibrate),
        "estimator": any(isinstance(part, Network) for part in model._parts()) and "a network",
    }
    for name, given in refused.items():
        if given is not False:
            allowed = "be left at its default with `blind=True`"
            if name == "estimator":
                allowed = "be a scikit-learn classifier with `blind=True`"
            raise InvalidInputError(name, allowed, given=given)


def fit_groups(model: Any, rows: Rows, places: Indices) -> Any:
    """Return a classifier of groups, fitted on some of the rows."""
    if len(rows.groups) < 2:
        raise InvalidInputError(
            "sensitive_features", "be given to `fit` with `blind=True`", given="one group"
        )
    estimator = model.group_estimator
    name = "estimator" if estimator is None else "group_estimator"
    estimator = model._parts()[0] if estimator is None else estimator
    check_estimator(estimator)
    if not hasattr(estimator, "predict_proba"):
        raise InvalidInputError(
            name,
            "have predict_proba, to estimate probabilities of groups",
            given=type(estimator).__name__,
            hint="Set `group_estimator` to a classifier that has it.",
        )
    fitted = for_table(estimator, rows.X)
    return fit_clone(fitted, take_rows(rows.X, places), rows.codes[places], rows.weights_of(places))


def compare_blind(
    blind: Frontier, aware: Frontier, posterior: Floats, codes: Codes, tolerances: Floats
) -> Blindness:
    """Return what blindness costs, from two frontiers of the same rows."""
    auc = [roc_auc_score(codes == a, posterior[:, a]) for a in range(posterior.shape[1])]
    points = blind.at(tolerances), aware.at(tolerances)
    accuracy = [found.accuracy for found in points]
    assert accuracy[0] is not None
    assert accuracy[1] is not None
    columns = {
        "blind": accuracy[0],
        "aware": accuracy[1],
        "cost": accuracy[1] - accuracy[0],
        "reached": points[0].feasible,
    }
    index = pd.Index(tolerances, name="tolerance")
    names = pd.Index(list(blind.groups), name="group")
    return Blindness(pd.Series(auc, names, name="auc"), pd.DataFrame(columns, index))
