"""Networks and GFB with more than two classes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fairdial
from fairdial import GFB, FairBayes, InvalidInputError, ModelFileError, Network, TrainingWarning
from fairdial.io.networks import nets_to_arrays
from fairdial.metrics import gap
from fairdial.nn.build import build_net

pytest.importorskip("torch")

NAMES = np.array(["high", "low", "middle"])


def draw(n: int, seed: int) -> tuple[Any, Any, Any]:
    """Rows whose best classes are known: the scores of the classes are two features and 0.5."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(3, size=n)
    X = rng.normal(size=(n, 3)) + np.outer(groups, [0.5, 0.0, 0.2])
    scores = 2 * np.column_stack([X[:, 0], X[:, 1], np.full(n, 0.5)])
    y = NAMES[(scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]
    return X, y, np.array(["u", "v", "w"])[groups]


X, Y, GROUPS = draw(4000, 0)
NEW, NEW_Y, NEW_GROUPS = draw(4000, 1)
BEST = NAMES[np.column_stack([NEW[:, 0], NEW[:, 1], np.full(len(NEW), 0.5)]).argmax(axis=1)]


def network(**params: Any) -> Network:
    return Network(**{"members": 1, "hidden": (16,), "head": 8, "epochs": 12} | params)


def quietly(model: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)  # of so short a training
        return model.fit(X, Y, sensitive_features=GROUPS)


MODELS = {
    "plain": lambda: FairBayes(network(), random_state=0),
    "separate": lambda: FairBayes(network(shared=False), random_state=0),
    "gfb": lambda: GFB(network=network(), random_state=0),
    "gfb solved": lambda: GFB(network=network(members=2), aux="solve", random_state=0),
    "gfb linear head": lambda: GFB(
        network=network(head=0), aux="step", aux_rate=0.1, random_state=0
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_trained_network_is_about_as_good_as_the_best_rule(name: str, tmp_path: Path) -> None:
    model = quietly(MODELS[name]())
    groups = {"sensitive_features": NEW_GROUPS}
    loose = model.predict(NEW, tolerance=1.0, **groups)
    assert np.mean(loose == NEW_Y) > np.mean(BEST == NEW_Y) - 0.03
    assert model.frontier_.at(0.05).gap <= 0.05
    strict = model.predict(NEW, tolerance=0.05, **groups)
    assert gap(NEW_Y, strict, **groups) < 0.5 * gap(NEW_Y, loose, **groups)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert np.array_equal(again.predict(NEW, tolerance=0.05, **groups), strict)


def test_gfb_records_its_distance_and_its_auxiliary_system() -> None:
    history = quietly(GFB(network=network(), weight=0.5, random_state=0)).history_
    trained = history[history["warm"] == 0]
    assert (trained["distance"] > 0).all()
    assert trained["aux_residual"].median() < 1.0
    assert {"score", "accuracy", "gap", "fairest_gap"} <= set(history)


def test_a_full_weight_is_plain_training() -> None:
    plain = quietly(FairBayes(network(), random_state=0)).history_
    same = quietly(GFB(network=network(), weight=1.0, random_state=0)).history_
    for name in ("loss", "score", "accuracy"):  # the selected epoch may be another
        assert np.allclose(plain[name], same[name], rtol=1e-3)


def test_what_gfb_cannot_train_for_is_refused() -> None:
    for params, name in (
        ({"criterion": "equalized_odds"}, "criterion"),
        ({"criterion": "equal_opportunity"}, "criterion"),
        ({"root": "hard"}, "root"),
        ({"network": network(gamma=1.0)}, "gamma"),
        ({"objective": "balanced_accuracy"}, "objective"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            GFB(**{"network": network()} | params).fit(X, Y, sensitive_features=GROUPS)
        assert caught.value.argument == name


def test_another_criterion_needs_a_new_calibration_only() -> None:
    model = quietly(GFB(network=network(), random_state=0))
    model.set_params(criterion="equal_opportunity").calibrate(X, Y, sensitive_features=GROUPS)
    assert model.frontier_.at(0.05).gap <= 0.05


def test_a_folder_with_a_net_for_other_classes_is_refused(tmp_path: Path) -> None:
    model = quietly(FairBayes(network(), random_state=0))
    other = build_net(network(), torch.zeros(2, 3), 3, seed=0, outputs=4)
    assert nets_to_arrays([other])[0] == nets_to_arrays([model.net_])[0]  # widths aren't described
    model.net_ = model.scorer_.net = other.double()
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError):
        fairdial.load(tmp_path / "model")
