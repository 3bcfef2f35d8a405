"""ONNX graphs of trees and lines decide as the models do, at every tolerance."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from fairdial import FairBayes, InvalidInputError, TableEncoder  # noqa: E402
from fairdial.estimators.learners import blend, booster, boosting  # noqa: E402
from fairdial.io.onnx import export_onnx  # noqa: E402

RNG = np.random.default_rng(0)
N = 600
X = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, N).astype(float),
        "job": RNG.choice(["cook", "nurse", "pilot"], N),
        "pay": RNG.normal(size=N),
    }
)
Y = (X["pay"] + (X["job"] == "cook") + RNG.normal(size=N) > 0.5).to_numpy()
GROUPS = RNG.choice(["f", "m"], N)
NEW = X.assign(job=X["job"].where(X.index % 5 > 0, "baker"), age=X["age"].where(X.index % 7 > 0))
NEW.loc[::11, "job"] = None


def small(library: str) -> Any:
    made = booster(library, 0)
    made[-1].set_params(**{"iterations" if library == "catboost" else "n_estimators": 15})
    return made


@pytest.mark.parametrize(
    ("estimator", "more"),
    [
        (boosting(["job"], 0, trees={"max_iter": 15}), {}),
        (boosting(["job"], 0, trees={"max_iter": 5}), {"per_group": True}),
        (make_pipeline(TableEncoder(), RandomForestClassifier(5, random_state=0)), {}),
        (make_pipeline(TableEncoder(dtype="float64"), LogisticRegression(max_iter=1000)), {}),
        (blend(["job"], 0), {"recalibrate": "group"}),
        (small("lightgbm"), {"pos_label": False}),
        (small("xgboost"), {}),
        (small("catboost"), {}),
    ],
    ids=["boosting", "per group", "forest", "line", "blend", "lightgbm", "xgboost", "catboost"],
)
def test_the_graph_decides_as_the_model(estimator: Any, more: Any, tmp_path: Path) -> None:
    model = FairBayes(estimator, random_state=0, min_count=1, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, Y, sensitive_features=GROUPS)
        path = export_onnx(model, tmp_path / "model.onnx")
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        feed = {
            "age": NEW["age"].to_numpy()[:, None],
            "job": NEW["job"].fillna("").to_numpy(object)[:, None],
            "pay": NEW["pay"].to_numpy()[:, None],
            "group": GROUPS.astype(object),
        }
        expected = model.logits(NEW, sensitive_features=GROUPS)
        for point in model.frontier_.at(np.linspace(0, 0.3, 10)):
            logit, decision = session.run(None, {**feed, "thresholds": point.thresholds})
            limits = point.thresholds[np.searchsorted(model.frontier_.groups, GROUPS)]
            assert np.array_equal(decision, expected > limits)
    assert np.allclose(logit, expected, rtol=1e-5)
    unknown = {**feed, "group": np.full(N, "x", object), "thresholds": point.thresholds}
    logit, decision = session.run(None, unknown)
    assert np.isnan(logit).all()
    assert not decision.any()


def test_trees_in_single_precision_are_added_in_order(tmp_path: Path) -> None:
    numbers = X[["age", "pay"]]
    model = FairBayes(booster("xgboost", 0), random_state=0, min_count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(numbers, Y, sensitive_features=GROUPS)  # 100 trees
    session = runtime.InferenceSession(export_onnx(model, tmp_path / "model.onnx"))
    feed = {name: numbers[[name]].to_numpy() for name in numbers} | {
        "group": GROUPS.astype(object),
        "thresholds": np.zeros(2),
    }
    found = session.run(["logit"], feed)[0]
    # sums in another order differ by hundreds of these
    assert np.allclose(found, model.logits(numbers, sensitive_features=GROUPS), rtol=0, atol=3e-7)


def test_trees_in_double_precision_have_the_same_bits_on_one_thread(tmp_path: Path) -> None:
    """Scores that differ by rounding alone may be on two sides of a threshold."""
    numbers = X[["age", "pay"]]
    model = FairBayes(
        HistGradientBoostingClassifier(max_iter=60, max_depth=3, random_state=0),
        predict_method="decision_function",  # no probability in between
        random_state=0,
        min_count=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(numbers, Y, sensitive_features=GROUPS)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(export_onnx(model, tmp_path / "model.onnx"), options)
    feed = {name: numbers[[name]].to_numpy() for name in numbers} | {
        "group": GROUPS.astype(object),
        "thresholds": np.zeros(2),
    }
    found = session.run(["logit"], feed)[0]
    assert np.array_equal(found, model.logits(numbers, sensitive_features=GROUPS))


def test_what_is_not_converted_is_not_exported(tmp_path: Path) -> None:
    numbers = X[["age", "pay"]]
    for estimator, more in (
        (KNeighborsClassifier(), {}),
        (HistGradientBoostingClassifier(max_iter=3), {"predict_method": "predict"}),
    ):
        model = FairBayes(estimator, random_state=0, min_count=1, **more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(numbers, Y, sensitive_features=GROUPS)
        with pytest.raises(InvalidInputError) as caught:
            export_onnx(model, tmp_path / "model.onnx")
        assert caught.value.argument == "model"
        assert not (tmp_path / "model.onnx").exists()
