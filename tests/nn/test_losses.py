from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from fairdial.nn.losses import boundary_distance, focal

GAMMAS = [0.0, 0.5, 1.0, 2.0, 5.0]


def logits_and_labels(n: int = 200, scale: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    z = scale * torch.randn(n, generator=generator, dtype=torch.float64)
    y = (torch.rand(n, generator=generator) < 0.5).double()
    return z, y


def focal_by_autograd(z: torch.Tensor, y: torch.Tensor, gamma: float) -> torch.Tensor:
    margin = (2.0 * y - 1.0) * z
    return torch.sigmoid(-margin) ** gamma * softplus(-margin)


def distance_by_autograd(z: torch.Tensor, tau: torch.Tensor, k: float) -> torch.Tensor:
    side = torch.sign(tau.detach())
    return torch.sigmoid(side * k * z) * torch.relu(side * (tau - z))


# ---- focal -------------------------------------------------------------------------------------


def test_focal_without_focus_is_cross_entropy() -> None:
    z, y = logits_and_labels(scale=12.0)
    expected = binary_cross_entropy_with_logits(z, y, reduction="none")
    torch.testing.assert_close(focal(z, y).value, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_focal_at_zero_has_its_closed_form(gamma: float) -> None:
    for label in (0.0, 1.0):
        value = focal(torch.zeros(1).double(), torch.full((1,), label), gamma).value
        assert float(value) == pytest.approx(0.5**gamma * math.log(2.0), rel=1e-15)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_focal_derivatives_are_those_of_double_backward(gamma: float) -> None:
    z, y = logits_and_labels()
    source = z.clone().requires_grad_()
    loss = focal_by_autograd(source, y, gamma)
    (first,) = torch.autograd.grad(loss.sum(), source, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), source)
    found = focal(z, y, gamma)
    torch.testing.assert_close(found.value, loss.detach(), rtol=1e-12, atol=0.0)
    torch.testing.assert_close(found.first, first.detach(), rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(found.second, second, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_focal_survives_gradcheck_and_gradgradcheck(gamma: float) -> None:
    z, y = logits_and_labels(n=12, scale=2.0)
    z.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: focal(z, y, gamma).value, z)
    assert torch.autograd.gradgradcheck(lambda z: focal(z, y, gamma).value, z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_focal_is_finite_at_saturated_logits(gamma: float, dtype: torch.dtype) -> None:
    z = torch.tensor([-1e4, -100.0, -40.0, 40.0, 100.0, 1e4], dtype=dtype)
    for label in (0.0, 1.0):
        found = focal(z, torch.full_like(z, label), gamma)
        assert all(torch.isfinite(part).all() for part in found)
        assert (found.value >= 0).all()


def test_focal_has_the_symmetry_of_its_labels() -> None:
    z, y = logits_and_labels()
    here, there = focal(z, y, 2.0), focal(-z, 1.0 - y, 2.0)
    torch.testing.assert_close(here.value, there.value)
    torch.testing.assert_close(here.first, -there.first)
    torch.testing.assert_close(here.second, there.second)


# ---- the distance to the fairest threshold -----------------------------------------------------


def grid() -> tuple[np.ndarray, np.ndarray]:
    z = np.linspace(-4.0, 4.0, 321)
    tau = np.array([-2.03, -0.41, 0.37, 1.91])
    return np.tile(z, (4, 1)), tau[:, None]


def test_distance_is_zero_beyond_the_threshold() -> None:
    z, tau = grid()
    beyond = np.sign(tau) * (z - tau) >= 0
    assert beyond.any()
    for part in boundary_distance(z, tau):
        assert (part[beyond] == 0).all()


def test_distance_is_zero_where_the_threshold_is_zero() -> None:
    z, _ = grid()
    assert all((part == 0).all() for part in boundary_distance(z, np.zeros((4, 1))))


def test_distance_is_the_same_seen_in_a_mirror() -> None:
    z, tau = grid()
    here, there = boundary_distance(z, tau), boundary_distance(-z, -tau)
    np.testing.assert_allclose(here.value, there.value, rtol=1e-15)
    np.testing.assert_allclose(here.by_logit, -there.by_logit, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(here.by_threshold, -there.by_threshold, rtol=1e-15)


def test_distance_is_never_negative() -> None:
    z, tau = grid()
    assert (boundary_distance(z, tau).value >= 0).all()


def test_sharp_distance_is_the_papers() -> None:  # eq:dist
    z, tau = grid()
    z = z + 1e-3  # never 0, where the limit is half of it
    inside = (z > np.minimum(tau, 0.0)) & (z <= np.maximum(tau, 0.0))
    exact = np.where(inside, np.abs(tau - z), 0.0)
    np.testing.assert_allclose(boundary_distance(z, tau, 1e5).value, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sharpness", [1.0, 10.0, 100.0])
def test_distance_derivatives_are_those_of_autograd(sharpness: float) -> None:
    z, tau = (torch.as_tensor(part).requires_grad_() for part in grid())
    value = distance_by_autograd(z, tau, sharpness)
    by_logit, by_threshold = torch.autograd.grad(value.sum(), (z, tau))
    found = boundary_distance(*grid(), sharpness)
    np.testing.assert_allclose(found.value, value.detach().numpy(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.by_logit, by_logit.numpy(), rtol=1e-11, atol=1e-13)
    summed = found.by_threshold.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(summed, by_threshold.numpy(), rtol=1e-12, atol=1e-13)


def test_distance_is_finite_at_saturated_logits() -> None:
    z = np.array([-1e4, -100.0, 0.0, 100.0, 1e4])
    for tau in (-9.2, 9.2):
        assert all(np.isfinite(part).all() for part in boundary_distance(z, np.array(tau)))
