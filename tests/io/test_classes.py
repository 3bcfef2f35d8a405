"""Saved models with more than two classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import fairdial
from fairdial import FairBayes, InvalidInputError, ModelFileError
from fairdial.io.manifest import DIGEST, MANIFEST, digest_of
from fairdial.io.onnx import export_onnx


def draw(n: int = 1200) -> tuple[pd.DataFrame, Any, Any]:
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=n)
    X = pd.DataFrame(rng.normal(size=(n, 3)) + 0.4 * groups[:, None], columns=["a", "b", "c"])
    scores = np.column_stack([X["a"], X["b"], 0.5 + 0 * X["c"]])
    y = np.array(["high", "low", "middle"])[(2 * scores + rng.gumbel(size=(n, 3))).argmax(axis=1)]
    return X, y, np.array(["f", "m"])[groups]


X, Y, GROUPS = draw()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"per_group": True, "criterion": "equal_opportunity", "limit_classes": ["low", "high"]},
        {"cv": 2},
        {"estimator": [LogisticRegression(), GaussianNB()]},
        {"estimator": HistGradientBoostingClassifier(max_iter=10, random_state=0)},
        {"calibration": None},
    ],
)
def test_loaded_models_decide_alike(params: dict[str, Any], tmp_path: Path) -> None:
    given = {"estimator": LogisticRegression(), "random_state": 0, "min_count": 5} | params
    model = FairBayes(given.pop("estimator"), **given).fit(X, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert again.classes_.tolist() == model.classes_.tolist()
    assert again.limit_classes == model.limit_classes
    for one in (model, again):
        if params.get("calibration", 1) is None:
            one.calibrate(X, Y, sensitive_features=GROUPS)
    for tolerance in (0.3, 0.1):
        first, second = (
            one.predict(X, sensitive_features=GROUPS, tolerance=tolerance) for one in (model, again)
        )
        assert np.array_equal(first, second)
    assert again.frontier_.to_json() == model.frontier_.to_json()
    again.calibrate(X, Y, sensitive_features=GROUPS)
    assert again.frontier_.at(0.2).gap <= 0.2


def test_the_card_names_the_classes_and_their_prices(tmp_path: Path) -> None:
    model = FairBayes(LogisticRegression(), random_state=0).fit(X, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    for name in model.classes_:
        assert f"`'{name}'`" in card
        assert f"selection_rate in {name}" in card
    assert f"{model.frontier_.at(0.1).accuracy:.4f}" in card


def test_a_folder_with_other_classes_is_refused(tmp_path: Path) -> None:
    model = FairBayes(LogisticRegression(), random_state=0).fit(X, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    path = tmp_path / "model" / MANIFEST
    manifest = json.loads(path.read_bytes())
    text = json.dumps(manifest["classes"])
    for damaged in (text.replace("low", "high"), text.replace("low", "lower")):
        body = json.dumps({**manifest, "classes": json.loads(damaged)}).encode()
        path.write_bytes(body)
        (tmp_path / "model" / DIGEST).write_bytes(digest_of(body))
        with pytest.raises(ModelFileError):
            fairdial.load(tmp_path / "model")


def test_what_can_only_have_two_classes_says_so(tmp_path: Path) -> None:
    model = FairBayes(LogisticRegression(), random_state=0).fit(X, Y, sensitive_features=GROUPS)
    with pytest.raises(InvalidInputError, match="two classes"):
        export_onnx(model, tmp_path / "model.onnx")
