"""Store what other libraries answer on small data: ``answers.json``, which the tests read.

The libraries need an older NumPy than the tests, so they run in the environment of the benchmarks:

    python3 run.py peers
    .venv-peers/bin/python tests/oracles/make_answers.py

Answers are numbers of selected rows by label and group; those of randomized rules are expected
numbers.
"""

from __future__ import annotations

import json
import logging
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from fairdial.datasets import load_compas, make_gaussian

ANSWERS = Path(__file__).with_name("answers.json")
PEERS = ("error-parity", "fairlearn", "oxonfair")
TOLERANCES = (0.0, 0.02, 0.05, 0.1, 0.2)
LEVELS = (0.3, 0.5, 0.7, 0.9)
THREE = {"shares": (0.5, 0.3, 0.2), "base_rates": (0.3, 0.45, 0.6), "separations": (1.0, 1.2, 1.5)}

# what we call it: the measure of OxonFair, and how its limit follows from the tolerance
LIMITED = {
    "equalized_odds": ("equalized_odds_max", None),
    "demographic_parity": ("pos_pred_rate", "max_diff"),
    "equal_opportunity": ("recall", "max_diff"),
    "predictive_equality": ("false_pos_rate", "max_diff"),
    "false_negative_rate_parity": ("false_neg_rate", "max_diff"),
    "accuracy_parity": ("accuracy", "max_diff"),
    "predictive_parity": ("pos_pred_val", "max_diff"),
    "false_omission_rate_parity": ("neg_pred_val", "max_diff"),
    "demographic_parity_ratio": ("pos_pred_rate", "min_ratio"),
    "true_positive_rate>=": ("recall", "min"),
    "false_positive_rate<=": ("false_pos_rate", "max"),
}
OBJECTIVES = ("accuracy", "balanced_accuracy", "f1")
ERROR_PARITY = {
    "equalized_odds": "equalized_odds",
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "true_positive_rate_parity",
    "predictive_equality": "false_positive_rate_parity",
}


def make_data() -> dict[str, dict[str, list[Any]]]:
    """Return small sets of scored rows; the logits are rounded, the last set has many ties."""
    drawn = {
        "two groups": make_gaussian(300, random_state=1),
        "three groups": make_gaussian(240, random_state=2, **THREE),
    }
    found = {
        name: {
            "logits": data.logits.round(3).tolist(),
            "groups": np.unique(data.groups, return_inverse=True)[1].tolist(),
            "y": data.y.tolist(),
        }
        for name, data in drawn.items()
    }
    compas = load_compas()
    train, held = compas.split(test_size=0.05, random_state=0)
    columns = ["age", "priors_count", "juv_misd_count"]
    model = LogisticRegression(max_iter=1000).fit(train.X[columns], train.y)
    found["ties"] = {
        "logits": model.decision_function(held.X[columns]).round(1).tolist(),
        "groups": np.unique(held.groups, return_inverse=True)[1].tolist(),
        "y": held.y.tolist(),
    }
    return found


class Scores(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose only feature is the probability itself."""

    def fit(self, X: Any, y: Any) -> Scores:  # noqa: ARG002
        """Do nothing."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict_proba(self, X: Any) -> Any:
        """Return both probabilities."""
        return np.column_stack((1.0 - X[:, 0], X[:, 0]))


class Rows:
    """Rows in the form that the libraries take."""

    def __init__(self, data: dict[str, list[Any]]) -> None:
        self.scores = expit(np.array(data["logits"]))
        self.groups, self.y = np.array(data["groups"]), np.array(data["y"])
        self.n_groups = int(self.groups.max()) + 1

    def count(self, selected: Any) -> list[list[float]]:
        """Return the number of selected rows by label and group, expected if they are chances."""
        cells = self.y * self.n_groups + self.groups
        sums = np.bincount(cells, selected, 2 * self.n_groups)
        return [[round(value, 9) for value in line] for line in sums.reshape(2, -1).tolist()]


def ask_oxonfair(rows: Rows) -> list[dict[str, Any]]:
    """Return the most accurate thresholds within each limit."""
    from oxonfair import DataDict, FairPredictor
    from oxonfair import group_metrics as measures

    data = DataDict(rows.y, np.column_stack((1 - rows.scores, rows.scores)), groups=rows.groups)
    answers = []
    for criterion, (measure, spread) in LIMITED.items():
        constraint = getattr(measures, measure)
        constraint = constraint if spread is None else getattr(constraint, spread)
        level = criterion.endswith("=")
        for objective in OBJECTIVES if criterion == "equalized_odds" else OBJECTIVES[:1]:
            for tolerance in LEVELS if level else TOLERANCES:
                limit = 1 - tolerance if spread == "min_ratio" else tolerance
                predictor = FairPredictor(None, data)
                predictor.fit(
                    getattr(measures, objective),
                    constraint,
                    limit,
                    greater_is_better_const=spread in ("min", "min_ratio"),
                )
                answers.append(
                    {
                        "criterion": f"{criterion}{tolerance}" if level else criterion,
                        "objective": objective,
                        "tolerance": 0.0 if level else tolerance,
                        "selected": rows.count(predictor.predict(data)),
                    }
                )
    return answers


def ask_error_parity(rows: Rows) -> list[dict[str, Any]]:
    """Return the best randomized rules, by a linear program on the convex hulls of ROC curves."""
    from error_parity import RelaxedThresholdOptimizer

    X, answers = rows.scores[:, None], []
    totals = np.array(rows.count(np.ones(len(rows.y))))
    for criterion, constraint in ERROR_PARITY.items():
        for false_negative in (1.0, 3.0):
            for tolerance in TOLERANCES:
                optimizer = RelaxedThresholdOptimizer(
                    predictor=lambda X: X[:, 0],
                    constraint=constraint,
                    tolerance=tolerance,
                    false_neg_cost=false_negative,
                )
                optimizer.fit(X, rows.y, group=rows.groups, y_scores=rows.scores)
                rates = np.array(optimizer.groupwise_roc_points).T  # (2, K): FPR, TPR
                answers.append(
                    {
                        "criterion": criterion,
                        "false_negative": false_negative,
                        "tolerance": tolerance,
                        "selected": (rates * totals).round(9).tolist(),
                    }
                )
    return answers


def ask_fairlearn(rows: Rows) -> list[dict[str, Any]]:
    """Return randomized rules that equalize the rates, and nearly so for one rate."""
    from fairlearn.postprocessing import ThresholdOptimizer

    X, answers = rows.scores[:, None], []
    for criterion, tolerances in (("equalized_odds", [None]), ("demographic_parity", TOLERANCES)):
        for objective in ("accuracy", "balanced_accuracy"):
            for tolerance in tolerances:
                optimizer = ThresholdOptimizer(
                    estimator=Scores(),
                    constraints=criterion,
                    objective=f"{objective}_score",
                    prefit=True,
                    predict_method="predict_proba",
                    tol=tolerance,
                ).fit(X, rows.y, sensitive_features=rows.groups)
                chances = optimizer._pmf_predict(X, sensitive_features=rows.groups)[:, 1]
                answers.append(
                    {
                        "criterion": criterion,
                        "objective": objective,
                        "tolerance": tolerance or 0.0,
                        "selected": rows.count(chances),
                    }
                )
    return answers


def measure_by_fairlearn(rows: Rows) -> dict[str, Any]:
    """Return the numbers of fairlearn's MetricFrame for decisions by one threshold."""
    from fairlearn import metrics as fair
    from sklearn.metrics import accuracy_score, precision_score

    decisions = (rows.scores > 0.4).astype(int)
    measures = {
        "selection_rate": fair.selection_rate,
        "true_positive_rate": fair.true_positive_rate,
        "false_positive_rate": fair.false_positive_rate,
        "false_negative_rate": fair.false_negative_rate,
        "true_negative_rate": fair.true_negative_rate,
        "accuracy": accuracy_score,
        "precision": precision_score,
    }
    given = {"y_true": rows.y, "y_pred": decisions, "sensitive_features": rows.groups}
    frame = fair.MetricFrame(metrics=measures, **given)
    gaps = {
        "demographic_parity": fair.demographic_parity_difference(**given),
        "demographic_parity_ratio": 1 - fair.demographic_parity_ratio(**given),
        "equalized_odds": fair.equalized_odds_difference(**given),
        "equal_opportunity": fair.equal_opportunity_difference(**given),
    }
    return {
        "selected": rows.count(decisions),
        "by_group": {name: frame.by_group[name].tolist() for name in measures},
        "gaps": {name: float(value) for name, value in gaps.items()},
    }


def make_answers() -> dict[str, Any]:
    """Return all answers and the data that they belong to."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    found: dict[str, Any] = {"versions": {name: version(name) for name in PEERS}, "sets": {}}
    for name, data in make_data().items():
        rows = Rows(data)
        found["sets"][name] = {
            "data": data,
            "rows": rows.count(np.ones(len(rows.y))),
            "oxonfair": ask_oxonfair(rows),
            "error-parity": ask_error_parity(rows),
            "fairlearn": ask_fairlearn(rows),
            "metrics": measure_by_fairlearn(rows),
        }
    return found


if __name__ == "__main__":
    text = json.dumps(make_answers(), separators=(",", ":"))
    ANSWERS.write_text(text.replace('{"criterion"', '\n{"criterion"') + "\n")
    print(f"{ANSWERS.name}: {len(text):,} characters")
