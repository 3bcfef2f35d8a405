"""Fits that plan for a certificate: the share held out, and training rows as a guide."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import FairBayes, InvalidInputError, plan_calibration
from fairdial.errors import FairdialWarning


def rows(sizes, seed=0):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(groups), 2)) + 0.3 * groups[:, None]
    y = (X.sum(axis=1) + rng.normal(size=len(groups)) > 0.5).astype(int)
    return X, y, groups


def test_auto_holds_out_what_the_plan_says():
    X, y, groups = rows((4000, 6000))
    model = FairBayes(LogisticRegression(), tolerance=0.06, calibration="auto", random_state=0)
    model.fit(X, y, sensitive_features=groups)
    share = plan_calibration(groups, y, tolerance=0.06).share
    assert model.frontier_.cells.sum() == pytest.approx(share * len(y), abs=4)
    point = model.frontier_.at(0.06, confidence=0.95)
    assert point.theorem == 1
    with pytest.raises(InvalidInputError, match="calibration"):
        FairBayes(LogisticRegression(), calibration="auto").fit(X, y, sensitive_features=groups)


def test_auto_warns_if_no_share_is_enough():
    X, y, groups = rows((300, 300))
    model = FairBayes(LogisticRegression(), tolerance=0.01, calibration="auto", random_state=0)
    with pytest.warns(FairdialWarning, match="half of the rows"):
        model.fit(X, y, sensitive_features=groups)
    assert model.frontier_.cells.sum() == pytest.approx(300, abs=4)


def test_training_rows_guide_certificates_of_small_groups(tmp_path):
    X, y, groups = rows((4000, 500, 600))
    model = FairBayes(LogisticRegression(), random_state=0).fit(X, y, sensitive_features=groups)
    frontier = model.frontier_
    assert frontier.guide is not None
    point = frontier.at(0.25, confidence=0.95)
    assert point.theorem == 5
    assert (frontier.guide.thresholds == point.thresholds).all(axis=1).any()
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model").frontier_.at(0.25, confidence=0.95)
    assert np.array_equal(again.thresholds, point.thresholds)
    X, y, groups = rows((2000, 2000, 2000))
    large = FairBayes(LogisticRegression(), random_state=0).fit(X, y, sensitive_features=groups)
    assert large.frontier_.guide is None
