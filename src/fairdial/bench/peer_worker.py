"""Call the libraries that studies compare with; this file runs in their own environment.

It is started as a script by :mod:`fairdial.bench.peers` and needs only NumPy and the library that
is asked for. Each function below calls one library as its documentation shows: it takes calibration
rows and a tolerance and returns a rule, which decides on other rows without their labels.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import cached_property
from types import SimpleNamespace
from typing import Any, TextIO

import numpy as np

NOISE = 1e-4  # of LinearPost, which breaks ties
CRITERIA = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "true_positive_rate_parity",
    "equalized_odds": "equalized_odds",
}
TREES = {  # fairdial's
    "learning_rate": 0.06,
    "max_iter": 300,
    "max_leaf_nodes": 15,
    "l2_regularization": 1.0,
    "early_stopping": True,
}
SEED = 0  # of libraries that draw

Rule = Callable[["Rows"], Any]


class Rows(SimpleNamespace):
    """Rows as a peer takes them; those that aren't calibration rows have no labels.

    Attributes
    ----------
    p : (n,) float64
        Probability of the positive label, the same for all peers that take scores.
    codes : (n,) int64
        Groups; absent where rules may not see them.
    joint : (n, K, 2) float64
        Probability of each group and label.
    X : (n, d) float64, n_categories : int
        Features, of which the first are codes of categories.
    y : (n,) int64
        Labels of the rows that rules are fitted to.
    """

    @cached_property
    def scores(self) -> Any:
        """(n, 1) probabilities as the only feature."""
        return self.p[:, None]


# ---- libraries that take scores ----------------------------------------------------------------


def fairlearn(rows: Rows, criterion: str, tolerance: float) -> Rule:
    """ThresholdOptimizer of fairlearn; it has no tolerance for equalized odds."""
    from fairlearn.postprocessing import ThresholdOptimizer
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Scores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """A fitted classifier whose only feature is the probability."""

        def fit(self, X: Any, y: Any) -> Any:  # noqa: ARG002
            return self

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict_proba(self, X: Any) -> Any:
            return np.column_stack((1.0 - X[:, 0], X[:, 0]))

    model = ThresholdOptimizer(
        estimator=Scores(),
        constraints=CRITERIA[criterion],
        objective="accuracy_score",
        prefit=True,
        predict_method="predict_proba",
        tol=None if criterion == "equalized_odds" else tolerance,
    )
    model.fit(rows.scores, rows.y, sensitive_features=rows.codes)
    return lambda new: model.predict(new.scores, sensitive_features=new.codes, random_state=SEED)


def error_parity(rows: Rows, criterion: str, tolerance: float) -> Rule:
    """RelaxedThresholdOptimizer of error-parity."""
    from error_parity import RelaxedThresholdOptimizer

    model = RelaxedThresholdOptimizer(
        predictor=lambda X: X[:, 0], constraint=CRITERIA[criterion], tolerance=tolerance
    )
    model.fit(rows.scores, rows.y, group=rows.codes, y_scores=rows.p)
    return lambda new: model.predict(new.scores, group=new.codes)


def oxonfair(rows: Rows, criterion: str, tolerance: float) -> Rule:
    """OxonFair's FairPredictor, by its fast path."""
    from oxonfair import DataDict, FairPredictor, group_metrics

    gap = {
        "demographic_parity": group_metrics.demographic_parity,
        "equal_opportunity": group_metrics.equal_opportunity,
        "equalized_odds": group_metrics.equalized_odds_max,
    }[criterion]

    def given(some: Rows, y: Any) -> Any:
        return DataDict(y, np.column_stack((1.0 - some.p, some.p)), groups=some.codes)

    model = FairPredictor(None, given(rows, rows.y))
    model.fit(group_metrics.accuracy, gap, tolerance)
    return lambda new: model.predict(given(new, np.arange(len(new.p)) % 2))  # unused labels


def reject_option(rows: Rows, criterion: str, tolerance: float) -> Rule:
    """AIF360's RejectOptionClassification, with a grid of 25 x 25 in place of 100 x 50."""
    from aif360.algorithms.postprocessing import RejectOptionClassification
    from aif360.datasets import BinaryLabelDataset
    from pandas import DataFrame

    rates = [rows.y[rows.codes == a].mean() for a in (0, 1)]
    groups = [{"group": float(a)} for a in np.argsort(rates)]

    def given(some: Rows, y: Any) -> Any:
        table = DataFrame({"group": some.codes.astype(float), "label": y.astype(float)})
        found = BinaryLabelDataset(
            df=table, label_names=["label"], protected_attribute_names=["group"]
        )
        found.scores = some.p[:, None].copy()
        return found

    def decided(some: Rows) -> Any:
        return given(some, (some.p > 0.5).astype(int))

    model = RejectOptionClassification(
        unprivileged_groups=groups[:1],
        privileged_groups=groups[1:],
        metric_name={
            "demographic_parity": "Statistical parity difference",
            "equal_opportunity": "Equal opportunity difference",
            "equalized_odds": "Average odds difference",
        }[criterion],
        metric_ub=tolerance,
        metric_lb=-tolerance,
        num_class_thresh=25,
        num_ROC_margin=25,
    ).fit(given(rows, rows.y), decided(rows))
    return lambda new: model.predict(decided(new)).labels[:, 0]


def linearpost(rows: Rows, criterion: str, tolerance: float) -> Rule:
    """LinearPost (arXiv 2405.04025), written from its linear program, with HiGHS as the solver.

    Costs and constraints use probabilities of groups and labels, not the labels. Rates lie within
    half the tolerance of a free center. Duals of the constraints give the rule for other rows.
    """
    from scipy.optimize import linprog

    rng = np.random.default_rng(SEED)
    margin = 1.0 - 2.0 * _noisy(rows, rng)  # cost of a positive decision, against a negative one
    weights, rates = _parts(rows.joint, criterion)  # (n, C), (C,)
    means = weights.mean(axis=0)
    columns = weights / means / len(margin)  # (n, C)
    center = -(rates[:, None] == np.unique(rates)).astype(float)  # (C, E)
    upper, lower = (np.hstack((s * columns.T, s * center)) for s in (1.0, -1.0))
    found = linprog(
        np.concatenate((margin / len(margin), np.zeros(center.shape[1]))),
        A_ub=np.vstack((upper, lower)),
        b_ub=np.full(2 * len(means), tolerance / 2.0),
        bounds=(0.0, 1.0),
        method="highs",
    )
    if found.status != 0:
        raise RuntimeError(found.message)
    duals = found.ineqlin.marginals[: len(means)] - found.ineqlin.marginals[len(means) :]

    def decide(new: Rows) -> Any:
        shares = _parts(new.joint, criterion)[0] / means
        return 1.0 - 2.0 * _noisy(new, np.random.default_rng(SEED + 1)) < shares @ duals

    return decide


def _noisy(rows: Rows, rng: np.random.Generator) -> Any:
    p = rows.joint[:, :, 1].sum(axis=1)
    return p + rng.uniform(-NOISE, NOISE, len(p))


def _parts(joint: Any, criterion: str) -> tuple[Any, Any]:
    """Return each row's weights in the rates that are compared, (n, C), and which rate each is."""
    k = joint.shape[1]
    if criterion == "demographic_parity":
        return joint.sum(axis=2), np.zeros(k, int)
    if criterion == "equal_opportunity":
        return joint[:, :, 1], np.zeros(k, int)
    return np.hstack((joint[:, :, 0], joint[:, :, 1])), np.repeat([0, 1], k)


# ---- libraries that train ----------------------------------------------------------------------


def reduction(rows: Rows, criterion: str, tolerance: float) -> Rule:
    """ExponentiatedGradient of fairlearn, over small trees."""
    from fairlearn import reductions
    from sklearn.ensemble import HistGradientBoostingClassifier

    moment = {
        "demographic_parity": reductions.DemographicParity,
        "equal_opportunity": reductions.TruePositiveRateParity,
        "equalized_odds": reductions.EqualizedOdds,
    }[criterion]
    trees = HistGradientBoostingClassifier(
        categorical_features=list(range(rows.n_categories)), random_state=SEED, **TREES
    )
    model = reductions.ExponentiatedGradient(trees, moment(difference_bound=tolerance))
    model.fit(rows.X, rows.y, sensitive_features=rows.codes)
    return lambda new: model.predict(new.X, random_state=SEED)


def fairgbm(rows: Rows, criterion: str, tolerance: float) -> Rule:
    """FairGBM, which limits rates of errors alone."""
    import fairgbm.sklearn as library
    from sklearn.utils import check_X_y

    def check(X: Any, y: Any, **options: Any) -> Any:
        if "force_all_finite" in options:  # scikit-learn 1.6 renamed it
            options["ensure_all_finite"] = options.pop("force_all_finite")
        return check_X_y(X, y, **options)

    library._LGBMCheckXY = check
    model = library.FairGBMClassifier(
        constraint_type="FNR" if criterion == "equal_opportunity" else "FPR,FNR",
        constraint_fpr_threshold=tolerance,
        constraint_fnr_threshold=tolerance,
        n_estimators=200,
        learning_rate=TREES["learning_rate"],
        num_leaves=TREES["max_leaf_nodes"],
        reg_lambda=TREES["l2_regularization"],
        random_state=SEED,
        n_jobs=1,
    )
    categories = list(range(rows.n_categories))
    model.fit(rows.X, rows.y, constraint_group=rows.codes, categorical_feature=categories)
    booster = model.booster_
    return lambda new: booster.predict(new.X) > 0.5


PEERS: dict[str, Callable[[Rows, str, float], Rule]] = {
    "fairlearn": fairlearn,
    "error-parity": error_parity,
    "oxonfair": oxonfair,
    "reject option": reject_option,
    "linearpost": linearpost,
    "reduction": reduction,
    "fairgbm": fairgbm,
}
QUICK = (fairlearn, error_parity, oxonfair, linearpost)


# ---- the process -------------------------------------------------------------------------------


def read_rows(file: str) -> Rows:
    """Return the rows of a file."""
    with np.load(file) as arrays:
        found = Rows(**{name: arrays[name] for name in arrays.files})
    if "n_categories" in vars(found):
        found.n_categories = int(found.n_categories)
    return found


def serve(tasks: TextIO, answers: TextIO) -> None:
    """Fit the rules of the first task, then decide on the rows of each further one."""
    rules: list[Rule] = []
    for line in tasks:
        task = json.loads(line)
        rows, seconds = read_rows(task["rows"]), list[float]()
        if "peer" in task:
            fit = PEERS[task["peer"]]
            if fit in QUICK:  # so that importing isn't timed
                fit(rows, task["criterion"], task["tolerances"][0])
            for tolerance in task["tolerances"]:
                start = time.process_time()
                rules.append(fit(rows, task["criterion"], tolerance))
                seconds.append(time.process_time() - start)
        else:
            found = [np.asarray(rule(rows)).astype(np.float64) == 1 for rule in rules]
            np.save(task["out"], np.array(found, np.bool_))
        answers.write(json.dumps({"seconds": seconds}) + "\n")
        answers.flush()


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print isn't an answer
    serve(sys.stdin, channel)
