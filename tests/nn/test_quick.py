"""The quick form of a network scores to the last bit as the network does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fairdial import EPO, FairBayes, Network
from fairdial.nn.quick import quick_scorer

RNG = np.random.default_rng(0)
X = RNG.normal(size=(900, 4))
GROUPS = np.arange(900) % 3
Y = (X[:, 0] + 0.3 * GROUPS + RNG.normal(size=900) > 0.3).astype(int)
USUAL = {"hidden": (16, 8), "head": 4, "members": 3, "epochs": 1}

NETWORKS = {
    "usual": {},
    "one net for all groups": {"shared": True},
    "a net for each group": {"shared": False},
    "one member": {"members": 1},
    "no hidden layer in the head": {"head": 0},
    "bare": {"bare": True},
    "one layer": {"hidden": (8,)},
    "dropout": {"dropout": 0.2},
}


def fitted(model, groups=GROUPS):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, Y, sensitive_features=groups)


@pytest.mark.parametrize("name", NETWORKS)
def test_scores_are_the_networks_to_the_last_bit_in_every_batch(name):
    model = fitted(FairBayes(Network(**(USUAL | NETWORKS[name])), random_state=0))
    quick = quick_scorer(model.scorer_)
    features = model.encoder_.transform(X)
    for rows in (slice(0, 1), slice(1, 2), slice(2, 3), slice(0, 2), slice(5, 40), slice(0, 900)):
        want = model.scorer_.logits(X[rows], GROUPS[rows])
        found = quick.logits(features[rows], GROUPS[rows])
        assert found.dtype == want.dtype
        assert np.array_equal(found, want)


def test_one_group_is_scored_too():
    model = fitted(FairBayes(Network(**USUAL), random_state=0), groups=None)
    quick, zeros = quick_scorer(model.scorer_), np.zeros(900, int)
    features = model.encoder_.transform(X)
    assert np.array_equal(quick.logits(features, zeros), model.scorer_.logits(X, zeros))


def test_other_networks_have_no_quick_form():
    layered = fitted(FairBayes(Network(**USUAL, norm=True), random_state=0))
    family = fitted(EPO(n_settings=2, network=Network(**USUAL | {"members": 1}), random_state=0))
    assert quick_scorer(layered.scorer_) is None
    assert quick_scorer(family.scorer_) is None
