"""Losses that studies compare: their derivatives are those of what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fairdial.core.criteria import criterion
from fairdial.nn.implicit import find_fairest
from fairdial.nn.losses import SHARPNESS
from fairdial.nn.masoba import Objective
from fairdial.nn.variants import SOFTNESS, ShareObjective, SoftObjective, WholeDialObjective

SHARES = np.array([0.3, 0.6])
RNG = np.random.default_rng(0)
Z = torch.tensor(RNG.normal(size=(2, 2, 30)) + np.array([-0.6, 0.7])[None, :, None])
Y = torch.tensor((RNG.random((2, 30)) < 0.5).astype(float))


def whole(z: np.ndarray, rate, tolerances) -> np.ndarray:
    """(M,) the loss itself: cross-entropy, and wrong decisions at the thresholds."""
    y = Y.numpy()
    eligible = None if rate.eligible is None else y == rate.eligible
    loss = binary_cross_entropy_with_logits(
        torch.tensor(z), Y.expand(len(z), -1, -1), reduction="none"
    )
    total = loss.mean(dim=(1, 2)).numpy()
    for tolerance in tolerances:
        found = find_fairest(z, rate, SHARES, eligible, gap=tolerance)
        margin = (2 * y - 1) * (z - found.thresholds[:, :, None])
        wrong = (1 / (1 + np.exp(SOFTNESS * margin))).mean(axis=2)  # by member and group
        total += wrong @ SHARES / SHARES.sum() / len(tolerances)
    return total


@pytest.mark.parametrize("name", ["demographic_parity", "equal_opportunity", "predictive_equality"])
def test_the_whole_dials_gradient_is_that_of_its_loss(name: str) -> None:
    rate = criterion(name).rate
    tolerances = (0.0, 0.05, 0.2)
    objective = WholeDialObjective(rate, SHARES, weight=1.0, tolerances=tolerances, accuracy=1e-13)
    first, _ = objective.prediction(Z.clone(), Y)
    z, step = Z.numpy(), 1e-6
    for place in [(0, 0, 3), (0, 1, 7), (1, 0, 11), (1, 1, 29)]:
        up, down = z.copy(), z.copy()
        up[place] += step
        down[place] -= step
        slope = (whole(up, rate, tolerances) - whole(down, rate, tolerances))[place[0]] / (2 * step)
        assert float(first[place]) == pytest.approx(slope, rel=1e-4, abs=1e-8)


def test_groups_by_their_shares_are_the_mean_over_rows_of_the_population() -> None:
    rate, z = criterion("demographic_parity").rate, Z.clone().requires_grad_()
    loss = binary_cross_entropy_with_logits(z, Y.expand_as(z), reduction="none").mean(dim=2)
    (loss @ torch.tensor(SHARES / SHARES.sum())).sum().backward()
    first, second = ShareObjective(rate, SHARES, weight=1.0).prediction(Z.clone(), Y)
    assert torch.allclose(first, z.grad)
    alike = Objective(rate, SHARES, weight=1.0).prediction(Z.clone(), Y)[1]
    assert torch.allclose(second[:, 1] / alike[:, 1], torch.tensor(4 / 3, dtype=second.dtype))


def test_a_tolerance_leaves_just_that_disparity_and_the_least_change() -> None:
    rate, z = criterion("demographic_parity").rate, Z.numpy()
    fairest, loose = find_fairest(z, rate, SHARES), find_fairest(z, rate, SHARES, gap=0.1)
    rates = (0.5 + 0.5 * np.tanh(SHARPNESS / 2 * (z - loose.thresholds[:, :, None]))).mean(axis=-1)
    np.testing.assert_allclose(np.abs(rates[:, 1] - rates[:, 0]), 0.1, atol=1e-9)
    assert (np.abs(loose.t) < np.abs(fairest.t)).all()
    free = find_fairest(z, rate, SHARES, gap=0.99)
    assert np.abs(free.t).max() < 1e-12
    assert not free.gradient.any()


def test_probabilities_are_learned_as_by_cross_entropy() -> None:
    rate = criterion("demographic_parity").rate
    soft = torch.rand(2, 30, dtype=torch.float64)
    z = Z.clone().requires_grad_()
    target = soft.expand_as(z)
    loss = binary_cross_entropy_with_logits(z, target, reduction="none").mean(dim=(1, 2)).sum()
    (expected,) = torch.autograd.grad(loss, z)
    objective = SoftObjective(rate, SHARES, weight=1.0)
    first, second = objective.prediction(Z, soft)
    torch.testing.assert_close(first, expected)
    p = torch.sigmoid(Z)
    torch.testing.assert_close(second, p * (1 - p) / soft.numel())
    found = objective.losses(Z, soft)["loss"]
    torch.testing.assert_close(found, loss.detach() / len(Z))
