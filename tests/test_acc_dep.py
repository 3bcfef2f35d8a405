"""Theorem 1: what relaxing the tolerance gives back, on discrete laws with a known eta."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit

from fairdial import InvalidInputError, sweep
from fairdial.metrics import acc_dep, given_back

DELTAS = np.linspace(0.0, 1.0, 9)
CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")


class Law:
    """Rows with masses, groups and eta, each row twice: once with each label."""

    def __init__(self, rng: np.random.Generator) -> None:
        groups, atoms = int(rng.integers(2, 5)), int(rng.integers(2, 9))
        self.n_groups = groups
        self.codes = np.repeat(np.arange(groups), atoms)
        self.mass = rng.dirichlet(np.ones(groups * atoms))
        self.eta = rng.uniform(0.02, 0.98, groups * atoms)
        self.logits = logit(self.eta)

    def accuracy(self, thresholds: np.ndarray) -> float:
        chosen = self.logits > thresholds[self.codes]
        return float(self.mass @ np.where(chosen, self.eta, 1.0 - self.eta))

    def labeled(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Rows whose weighted share of positives at every score is exactly eta."""
        rows = {
            "sensitive_features": np.tile(self.codes, 2),
            "sample_weight": np.concatenate((self.mass * self.eta, self.mass * (1.0 - self.eta))),
        }
        return rows, np.repeat([1, 0], len(self.codes))


@pytest.mark.parametrize("seed", range(300))
def test_accuracies_differ_by_acc_dep(seed: int) -> None:
    rng = np.random.default_rng(seed)
    law = Law(rng)
    fairest = rng.normal(0.0, 1.5, law.n_groups)
    loose = fairest * rng.random(law.n_groups)  # between 0 and the fairest
    found = given_back(law.logits, law.codes, loose, fairest, law.mass)[1]
    assert found == pytest.approx(law.accuracy(loose) - law.accuracy(fairest), abs=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_on_the_dial_the_plug_in_equals_the_difference_on_labels(criterion: str) -> None:
    for seed in range(30):
        law = Law(np.random.default_rng(seed))
        rows, y = law.labeled()
        scores, weights = np.tile(law.logits, 2), rows["sample_weight"]
        frontier = sweep(
            scores, rows["sensitive_features"], y,
            criterion=criterion, sample_weight=weights, min_count=1,
        )  # fmt: skip
        found = acc_dep(frontier, scores, DELTAS, **rows)
        assert found == pytest.approx(
            acc_dep(frontier, scores, DELTAS, y_true=y, **rows), abs=1e-12
        )
        assert found[0] == 0.0
        assert (np.diff(found) >= 0).all()


def test_a_threshold_that_crosses_a_half_breaks_the_identity() -> None:
    eta, mass, codes = np.array([0.45, 0.55]), np.array([0.5, 0.5]), np.zeros(2, np.intp)
    strict, loose = logit([0.4]), logit([0.6])  # on either side of 1/2
    accuracies = [mass @ np.where(eta > k, eta, 1 - eta) for k in (0.6, 0.4)]
    assert accuracies[0] - accuracies[1] == pytest.approx(0.0, abs=1e-12)
    assert given_back(logit(eta), codes, loose, strict, mass)[1] == pytest.approx(0.1)


def test_thresholds_outside_the_interval_need_labels() -> None:
    rng = np.random.default_rng(0)
    z, groups = rng.normal(-1.0, 1.0, 600), rng.integers(0, 2, 600)
    y = (rng.random(600) < 1 / (1 + np.exp(-z))).astype(int)
    frontier = sweep(z + groups, groups, y, objective="balanced_accuracy")  # its best isn't 0
    with pytest.raises(InvalidInputError) as caught:
        acc_dep(frontier, z + groups, [1.0], sensitive_features=groups)
    assert caught.value.argument == "frontier"
    realized = acc_dep(frontier, z + groups, [1.0], sensitive_features=groups, y_true=y)
    at = [frontier.at(delta).accuracy for delta in (1.0, 0.0)]
    assert realized == pytest.approx([at[0] - at[1]])


def test_labels_give_the_difference_of_the_frontier_s_accuracies() -> None:
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 3, 900)
    z = rng.normal(0.5 * groups, 1.2)
    y = (rng.random(900) < 1 / (1 + np.exp(-z))).astype(int)
    frontier = sweep(z, groups, y)
    found = acc_dep(frontier, z, DELTAS, sensitive_features=groups, y_true=y)
    strictest = frontier.accuracy[np.argmin(frontier.gap)]
    assert found[0] == 0.0
    assert found[1:] == pytest.approx(frontier.at(DELTAS[1:]).accuracy - strictest)
    plain = acc_dep(frontier, z, DELTAS, sensitive_features=groups)
    repeated = acc_dep(
        frontier, z, DELTAS, sensitive_features=groups, sample_weight=np.full(900, 2.0)
    )
    assert repeated == pytest.approx(plain)
