"""The best of several trainings, by the dial on validation rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import fairdial
from fairdial import AutoDial, FairBayes, FairdialWarning, InvalidInputError
from fairdial.datasets import Dataset, load_compas, make_gaussian
from fairdial.methods.auto import TOLERANCES, Trial, choose, make_candidate, to_frame
from fairdial.methods.learners import boosting, is_wide, logistic, texts_of

COMPAS = load_compas()
ROWS = COMPAS.X.rename(columns=str.upper)  # not what another test looks for in all memory
TRAIN, TEST = Dataset(ROWS, COMPAS.y, COMPAS.groups).split(random_state=0)
del COMPAS
QUICK = ("logistic", "boosting", "blend")


def fitted(model: Any, data: Any = TRAIN) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return model.fit(data.X, data.y, sensitive_features=data.groups)


MODEL = fitted(AutoDial(candidates=QUICK, random_state=0))


def rows(share: float, n: int = 400, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random(n) < share).astype(float)


def test_the_best_is_taken_unless_a_faster_one_is_within_a_standard_error() -> None:
    best, worse = rows(0.9), rows(0.5, seed=1)
    close = best.copy()
    close[:1] = 1 - close[:1]  # one row of 400: a difference of one standard error
    assert choose([Trial("a", worse, 1.0), Trial("b", best, 9.0)])[0] == "b"
    name, why = choose([Trial("a", close, 1.0), Trial("b", best, 9.0)])
    assert name == "a"
    assert "within one standard error" in why
    assert choose([Trial("a", close, 9.0), Trial("b", best, 1.0)])[0] == "b"


def test_what_was_not_tried_is_told_and_not_taken() -> None:
    trials = [Trial("a", rows(0.5), 1.0), Trial("b", None, 0.0, "not tried: the time was over")]
    name, why = choose(trials)
    assert name == "a"
    assert "b: not tried" in why
    assert np.isnan(to_frame(trials).loc["b", "accuracy"])


def test_errors_are_those_of_paired_rows() -> None:
    one, other = rows(0.6), rows(0.7, seed=2)
    table = to_frame([Trial("a", one, 1.0), Trial("b", other, 1.0)])
    off = one - other
    assert table.loc["a", "difference"] == pytest.approx(100 * off.mean())
    assert table.loc["a", "error"] == pytest.approx(100 * off.std(ddof=1) / 400**0.5)
    assert table.loc["b", "difference"] == table.loc["b", "error"] == 0.0


def test_the_chosen_candidate_is_what_it_would_be_alone() -> None:
    seed = MODEL.model_.random_state
    alone = make_candidate(MODEL.chosen_, TRAIN.X, seed, random_state=seed)
    fitted(alone)
    asked: dict[str, Any] = {"sensitive_features": TEST.groups, "tolerance": 0.05}
    assert MODEL.predict(TEST.X, **asked).tolist() == alone.predict(TEST.X, **asked).tolist()
    assert np.array_equal(MODEL.frontier_.gap, alone.frontier_.gap)
    assert MODEL.trials_.index.tolist() == list(QUICK)
    assert MODEL.chosen_ in MODEL.why_


def test_accuracies_are_those_of_the_dial_on_rows_that_were_not_trained_on() -> None:
    table = MODEL.trials_
    assert table["accuracy"].between(0.6, 0.75).all()  # a model that saw them reaches .8
    assert len(TOLERANCES) == 21


def test_a_blend_of_what_was_trained_equals_one_trained_anew() -> None:
    blend = fitted(AutoDial(candidates=["blend"], random_state=0))
    three = fitted(AutoDial(candidates=QUICK, random_state=0))
    alone = fitted(AutoDial(candidates=["logistic", "blend"], random_state=0))
    assert blend.trials_.empty
    assert three.trials_.loc["blend", "accuracy"] == alone.trials_.loc["blend", "accuracy"]


def test_a_saved_model_is_the_chosen_one_with_the_dial_as_it_is(tmp_path: Any) -> None:
    model = fitted(AutoDial(candidates=["blend"], random_state=0))
    model.calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert type(again) is FairBayes
    assert again.thresholds(0.05) == model.thresholds(0.05)
    asked: dict[str, Any] = {"sensitive_features": TRAIN.groups, "tolerance": 0.05}
    assert again.predict(TRAIN.X, **asked).tolist() == model.predict(TRAIN.X, **asked).tolist()


def test_time_that_is_over_stops_networks_and_leaves_the_rest_untried() -> None:
    pytest.importorskip("torch")
    model = fitted(AutoDial(candidates=["network", "gfb", "logistic"], budget=0.01, random_state=0))
    assert model.chosen_ == "network"
    assert "stopped" in model.trials_.loc["network", "note"]
    assert model.trials_.loc[["gfb", "logistic"], "note"].str.startswith("not tried").all()


def test_all_candidates_are_tried_by_default_and_gfb_needs_two_groups() -> None:
    pytest.importorskip("torch")
    few = make_gaussian(600, shares=(0.4, 0.3, 0.3), base_rates=(0.3, 0.5, 0.6),
                        separations=(1.2, 1.5, 1.3), random_state=0)  # fmt: skip
    model = fitted(AutoDial(budget=0.01, random_state=0, min_count=5), few)
    assert model.trials_.index.tolist() == ["logistic", "boosting", "blend", "network"]


def test_embeddings_are_not_for_trees_and_are_scaled() -> None:
    wide = np.random.default_rng(0).normal(size=(200, 300))
    assert is_wide(wide)
    assert not is_wide(TRAIN.X)
    names = [name for name, _ in logistic(wide=True).steps]
    assert names == ["standardscaler", "logisticregression"]
    network = make_candidate("network", wide, 0).estimator
    assert network.dropout == 0.5
    assert type(network.encoder).__name__ == "StandardScaler"


def test_text_columns_are_categories_whatever_their_type() -> None:
    frame = pd.DataFrame(
        {
            "n": [1.0, 2.0],
            "o": ["a", "b"],
            "c": pd.Categorical(["x", "y"]),
            "s": pd.array(["u", "v"], dtype="string"),
            "b": [True, False],
        }
    )
    assert texts_of(frame) == ["o", "c", "s"]
    assert boosting(["o"], 0).steps[-1][1].categorical_features == [0]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"candidates": ["boosting", "trees"]}, "`candidates` must be one of"),
        ({"candidates": "boosting"}, "`candidates` must be"),
        ({"candidates": []}, "`candidates` must hold at least one"),
        ({"candidates": ["gfb", "gfb"]}, "`candidates` must be different"),
        ({"budget": 0}, "`budget` must be seconds above 0, got 0"),
        ({"validation": 1.0}, "`validation`"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        fitted(clone(MODEL).set_params(**settings))
