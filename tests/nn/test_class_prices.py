from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from fairdial.nn.class_prices import (
    distance_to_rule,
    equalize_classes,
    softmax,
    through_softmax,
)

SHARES = np.array([0.5, 0.3, 0.2])


def some_probabilities(seed: int, n: int = 30, classes: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=(2, 3, n, classes)) + rng.normal(size=(1, 3, 1, classes))
    return softmax(z)


def by_differences(function, at: np.ndarray, places: int, rng: np.random.Generator):
    """Central differences of a number in some of an array's entries, and which these are."""
    found = []
    chosen = [tuple(rng.integers(size) for size in at.shape) for _ in range(places)]
    for place in chosen:
        above, below = at.copy(), at.copy()
        above[place] += 1e-5
        below[place] -= 1e-5
        found.append((function(above) - function(below)) / 2e-5)
    return np.array(found), chosen


@pytest.mark.parametrize("stiffness", [1.0, 20.0, 1000.0])
@pytest.mark.parametrize("seed", range(4))
def test_prices_solve_their_equations(seed: int, stiffness: float) -> None:
    p = some_probabilities(seed)
    found = equalize_classes(p, SHARES, stiffness=stiffness, accuracy=1e-12)
    rates = softmax((p - found.prices[:, :, None, :]) / 0.05).mean(axis=2)
    mean = (SHARES[:, None] * rates).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.prices / stiffness, rates - mean, atol=1e-11)
    np.testing.assert_allclose((SHARES[:, None] * found.prices).sum(axis=1), 0.0, atol=1e-10)


def test_prices_minimize_the_convex_function() -> None:
    p = some_probabilities(7, n=8, classes=3)[:1]

    def value(free: np.ndarray) -> float:
        u = free.reshape(3, 3)
        u = u - SHARES @ u
        best = 0.05 * np.log(np.exp((p[0] - u[:, None, :]) / 0.05).sum(axis=-1))
        return float(SHARES @ (best.mean(axis=1) + (u * u).sum(axis=1) / 40.0))

    lowest = minimize(value, np.zeros(9), method="BFGS", options={"gtol": 1e-9})
    u = lowest.x.reshape(3, 3)
    np.testing.assert_allclose(equalize_classes(p, SHARES).prices[0], u - SHARES @ u, atol=1e-5)


def test_rows_that_are_not_there_are_ignored() -> None:
    p = some_probabilities(3)
    there = np.arange(30) < np.array([[30], [12], [1]])
    padded = p.copy()
    padded[:, ~there] = 0.25
    found = equalize_classes(padded, SHARES, there * 2.0, accuracy=1e-12)
    assert found.rates[:, 1] == pytest.approx(
        softmax((p[:, 1, :12] - found.prices[:, 1, None]) / 0.05).mean(axis=1)
    )


def test_the_start_does_not_matter() -> None:
    p = some_probabilities(1)
    start = 0.3 * np.random.default_rng(0).normal(size=(2, 3, 4))
    near = equalize_classes(p, SHARES, start=start, accuracy=1e-12).prices
    np.testing.assert_allclose(near, equalize_classes(p, SHARES, accuracy=1e-12).prices, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_through_the_prices_is_that_of_differences(seed: int) -> None:
    p, rng = some_probabilities(seed), np.random.default_rng(seed)
    by_price = rng.normal(size=(2, 3, 4))

    def total(p: np.ndarray) -> float:
        return float((equalize_classes(p, SHARES, accuracy=1e-14).prices * by_price).sum())

    found = equalize_classes(p, SHARES, accuracy=1e-14).pull_back(by_price)
    expected, chosen = by_differences(total, p, 30, rng)
    np.testing.assert_allclose([found[place] for place in chosen], expected, atol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_the_distances_gradients_are_those_of_differences(seed: int) -> None:
    p, rng = some_probabilities(seed), np.random.default_rng(seed)
    u = 0.1 * rng.normal(size=(2, 3, 4))
    found = distance_to_rule(p, u)
    expected, chosen = by_differences(lambda p: distance_to_rule(p, u).value.sum(), p, 30, rng)
    np.testing.assert_allclose(
        [found.by_probability[place] for place in chosen], expected, atol=1e-6
    )
    expected, chosen = by_differences(lambda u: distance_to_rule(p, u).value.sum(), u, 24, rng)
    np.testing.assert_allclose([found.by_price[place] for place in chosen], expected, atol=1e-5)


def test_with_two_classes_it_is_the_distance_of_a_threshold() -> None:
    rng = np.random.default_rng(0)
    p = softmax(rng.normal(size=(1, 2, 50, 2)))
    u = np.array([[[-0.1, 0.1], [0.15, -0.15]]])
    score = p[..., 1] - p[..., 0]
    threshold = (u[..., 1] - u[..., 0])[..., None]
    side = np.sign(threshold)
    near = 1.0 / (1.0 + np.exp(-side * score / 0.05))
    expected = near * np.maximum(side * (threshold - score), 0.0)
    np.testing.assert_allclose(distance_to_rule(p, u).value, expected, atol=1e-14)


def test_equal_prices_have_no_distance() -> None:
    p = some_probabilities(0)
    found = distance_to_rule(p, np.zeros((2, 3, 4)))
    assert not found.value.any()
    assert not found.by_probability.any()


def test_the_softmax_passes_its_gradient_on() -> None:
    rng = np.random.default_rng(0)
    z, by = rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
    expected, chosen = by_differences(lambda z: (softmax(z) * by).sum(), z, 15, rng)
    found = through_softmax(softmax(z), by)
    np.testing.assert_allclose([found[place] for place in chosen], expected, atol=1e-9)
