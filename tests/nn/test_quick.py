"""The quick form of a network scores to the last bit as the network does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fairdial import EPO, FairBayes, Network
from fairdial.nn.quick import QuickScorer, replace_encoder

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
    "norm": {"norm": True},
    "one group": {},
}


def fitted(model, groups=GROUPS):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, Y, sensitive_features=groups)


@pytest.mark.parametrize("name", NETWORKS)
def test_scores_are_the_networks_to_the_last_bit_in_every_batch(name):
    groups = None if name == "one group" else GROUPS
    codes = np.zeros(900, int) if name == "one group" else GROUPS
    model = fitted(FairBayes(Network(**(USUAL | NETWORKS[name])), random_state=0), groups)
    quick = replace_encoder(model.scorer_, model.encoder_)
    assert isinstance(quick, QuickScorer)
    for rows in (slice(0, 1), slice(1, 2), slice(2, 3), slice(0, 2), slice(5, 40), slice(0, 900)):
        want = model.scorer_.logits(X[rows], codes[rows])
        found = quick.logits(X[rows], codes[rows])
        assert found.dtype == want.dtype
        assert np.array_equal(found, want)


class Doubled:
    """Encode rows as another encoder encodes their doubles."""

    def __init__(self, encoder):
        self.encoder = encoder

    def transform(self, X):
        return self.encoder.transform(2 * X)


def test_other_networks_keep_their_scorer_with_the_new_encoder():
    family = fitted(EPO(n_settings=2, network=Network(**USUAL | {"members": 1}), random_state=0))
    headed = fitted(FairBayes(Network(**USUAL, group_input="head"), random_state=0))
    for model in (family, headed):
        scorer = replace_encoder(model.scorer_, Doubled(model.encoder_))
        assert type(scorer) is type(model.scorer_)
    setting = family.scorer_.settings[0]
    scorer = replace_encoder(family.scorer_, Doubled(family.encoder_))
    found = scorer.margins(scorer.prepare(X, GROUPS), GROUPS, setting)
    want = family.scorer_.margins(family.scorer_.prepare(2 * X, GROUPS), GROUPS, setting)
    assert np.array_equal(found, want)
