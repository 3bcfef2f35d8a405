from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from fairdial.core.rates import FALSE_POSITIVE, SELECTION, TRUE_POSITIVE, Rate
from fairdial.nn.implicit import find_fairest, hard_root, setting_domain

RATES = [SELECTION, TRUE_POSITIVE, FALSE_POSITIVE]
SIGNS = np.array([-1.0, 1.0])


def shares_of(rate: Rate) -> np.ndarray:
    return np.array({None: [0.7, 0.3], 1: [0.25, 0.2], 0: [0.35, 0.2]}[rate.eligible])


def closed_form(rate: Rate, shares: Any, shift: float) -> float:
    """The root of one row in each group, group 1's logit being ``shift`` above group 0's."""
    p0, p1 = shares
    if rate is SELECTION:
        big = np.tanh(shift / 2.0)
        return float((1.0 - np.sqrt(1.0 - 4.0 * big**2 * p0 * p1)) / (2.0 * big))
    if rate is TRUE_POSITIVE:
        return float(np.expm1(shift) / (1.0 / p0 + np.exp(shift) / p1))
    return float(np.expm1(shift) / (1.0 / p1 + np.exp(shift) / p0))


def draw(seed: int, n: int = 24, nets: int = 1, scale: float = 1.5) -> tuple[Any, Any]:
    """Logits (M, 2, n) of two groups that differ, and which of the rows count."""
    rng = np.random.default_rng(seed)
    logits = scale * rng.standard_normal((nets, 2, n)) + np.array([-0.6, 0.5])[:, None]
    eligible = rng.random((2, n)) < 0.6
    eligible[:, 0] = True
    return logits, eligible


def phi(logits: Any, eligible: Any, rate: Rate, shares: Any, t: float, k: float = 10.0) -> float:
    tau = rate.link(t * SIGNS / shares)
    soft = [expit(k * (logits[a][eligible[a]] - tau[a])).mean() for a in (0, 1)]
    return float(soft[1] - soft[0])


def hard_disparity(logits: Any, eligible: Any, rate: Rate, shares: Any, t: float) -> float:
    tau = rate.link(t * SIGNS / shares)
    hard = [(logits[a][eligible[a]] > tau[a]).mean() for a in (0, 1)]
    return float(hard[1] - hard[0])


# ---- the root ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "shares", "expected"),
    [
        (SELECTION, (0.5, 0.5), 0.110639234),
        (SELECTION, (0.7, 0.3), 0.092184046),
        (TRUE_POSITIVE, (0.25, 0.2), 0.089557106),
        (FALSE_POSITIVE, (0.35, 0.2), 0.121356117),
    ],
)
def test_one_row_in_each_group_has_its_closed_form(
    rate: Rate, shares: tuple[float, float], expected: float
) -> None:
    found = find_fairest(np.array([[[0.0], [0.9]]]), rate, np.array(shares))
    assert found.t[0] == pytest.approx(expected, abs=1e-9)
    assert found.t[0] == pytest.approx(closed_form(rate, shares, 0.9), abs=1e-12)


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
@pytest.mark.parametrize("place", [-1.5, -0.5, 0.0, 1.0])
def test_the_root_depends_on_the_shift_and_not_on_the_place(rate: Rate, place: float) -> None:
    shares = shares_of(rate)
    rows = np.random.default_rng(0).standard_normal(6)
    logits = np.stack((rows + place, rows + place + 0.9))[None]
    found = find_fairest(logits, rate, shares)
    assert found.t[0] == pytest.approx(closed_form(rate, shares, 0.9), abs=1e-9)


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
def test_gaussian_logits_of_equal_variance_have_the_closed_form(rate: Rate) -> None:
    rng = np.random.default_rng(1)
    shares, n = shares_of(rate), 40_000
    logits = np.stack((rng.standard_normal(n) - 0.2, rng.standard_normal(n) + 0.5))[None]
    found = find_fairest(logits, rate, shares)
    assert found.t[0] == pytest.approx(closed_form(rate, shares, 0.7), abs=0.005)


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
@pytest.mark.parametrize("sharpness", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("seed", range(5))
def test_phi_is_zero_at_the_root(rate: Rate, sharpness: float, seed: int) -> None:
    logits, eligible = draw(seed)
    shares = shares_of(rate)
    found = find_fairest(logits, rate, shares, eligible, sharpness=sharpness)
    assert abs(phi(logits[0], eligible, rate, shares, found.t[0], sharpness)) < 1e-12
    low, high = setting_domain(rate, shares)
    exact = brentq(
        lambda t: phi(logits[0], eligible, rate, shares, t, sharpness),
        low + 1e-4,
        high - 1e-4,
        xtol=1e-15,
    )
    assert found.t[0] == pytest.approx(exact, abs=1e-9)
    np.testing.assert_allclose(
        found.thresholds[0], rate.link(found.t[0] * SIGNS / shares), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
def test_phi_falls_strictly_so_the_root_is_the_only_one(rate: Rate) -> None:
    logits, eligible = draw(7)
    shares = shares_of(rate)
    low, high = setting_domain(rate, shares)
    grid = np.linspace(low + 1e-3, high - 1e-3, 200)
    values = [phi(logits[0], eligible, rate, shares, t) for t in grid]
    assert (np.diff(values) < 0).all()


def test_swapping_the_groups_turns_the_root_around() -> None:
    logits, eligible = draw(3)
    here = find_fairest(logits, SELECTION, np.array([0.7, 0.3]), eligible)
    there = find_fairest(logits[:, ::-1], SELECTION, np.array([0.3, 0.7]), eligible[::-1])
    assert here.t[0] == pytest.approx(-there.t[0], abs=1e-12)


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
def test_several_nets_give_the_same_as_each_alone(rate: Rate) -> None:
    logits, eligible = draw(11, nets=5)
    together = find_fairest(logits, rate, shares_of(rate), eligible)
    for m in range(5):
        alone = find_fairest(logits[m : m + 1], rate, shares_of(rate), eligible)
        assert together.t[m] == pytest.approx(alone.t[0], abs=1e-12)
        np.testing.assert_allclose(together.gradient[m], alone.gradient[0], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
@pytest.mark.parametrize("place", [0.0, -8.0, 8.0])  # beyond: everybody is on one side
def test_where_the_search_starts_is_irrelevant(rate: Rate, place: float) -> None:
    logits, eligible = draw(5)
    logits = logits + place
    shares = shares_of(rate)
    cold = find_fairest(logits, rate, shares, eligible)
    for start in (-0.15, -0.01, 0.08, 0.19, 10.0, -10.0):
        warm = find_fairest(logits, rate, shares, eligible, start=np.array([start]))
        assert warm.t[0] == pytest.approx(cold.t[0], abs=1e-10)


# ---- the gradient ------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_central_differences(rate: Rate, seed: int) -> None:
    logits, eligible = draw(seed, n=8)
    shares = shares_of(rate)
    found = find_fairest(logits, rate, shares, eligible)
    numeric = np.zeros_like(logits[0])
    step = 1e-5
    for a, i in np.ndindex(numeric.shape):
        t = []
        for sign in (1.0, -1.0):
            moved = logits.copy()
            moved[0, a, i] += sign * step
            t.append(find_fairest(moved, rate, shares, eligible).t[0])
        numeric[a, i] = (t[0] - t[1]) / (2 * step)
    error = np.abs(found.gradient[0] - numeric).max() / np.abs(numeric).max()
    assert error <= 1e-7
    assert (found.gradient[0, 1] >= 0).all()
    assert (found.gradient[0, 0] <= 0).all()
    assert (found.gradient[0][~eligible] == 0).all()


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
def test_threshold_slopes_are_those_of_central_differences(rate: Rate) -> None:
    logits, eligible = draw(2)
    shares = shares_of(rate)
    found = find_fairest(logits, rate, shares, eligible)
    t, step = found.t[0], 1e-6
    ahead, back = (rate.link((t + s) * SIGNS / shares) for s in (step, -step))
    np.testing.assert_allclose(found.threshold_slopes[0], (ahead - back) / (2 * step), rtol=1e-7)


# ---- the hard root -----------------------------------------------------------------------------


def hard_root_by_force(logits: Any, eligible: Any, rate: Rate, shares: Any) -> float:
    """Look at every plateau of the disparity."""
    turns = [SIGNS[a] * shares[a] * rate.inverse(logits[a][eligible[a]]) for a in (0, 1)]
    ends = np.unique(np.concatenate(turns))
    inner = np.concatenate(([ends[0] - 1.0], (ends[1:] + ends[:-1]) / 2, [ends[-1] + 1.0]))
    dis = np.array([(turns[1] > t).mean() - (turns[0] < t).mean() for t in inner])
    low = ends[np.flatnonzero(dis > 1e-12)[-1]]  # up to here the disparity is positive
    high = ends[np.flatnonzero(dis < -1e-12)[0] - 1]  # from here on it is negative
    return float(np.clip(0.0, low, high))


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_hard_root_is_that_of_brute_force(rate: Rate, tied: bool, seed: int) -> None:
    logits, eligible = draw(seed, n=9)
    if tied:
        logits = np.round(logits)
    shares = shares_of(rate)
    found = hard_root(logits, rate, shares, eligible / eligible.sum(axis=1, keepdims=True))
    assert found[0] == pytest.approx(
        hard_root_by_force(logits[0], eligible, rate, shares), abs=1e-12
    )


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
@pytest.mark.parametrize("seed", range(5))
def test_a_sharp_root_is_a_hard_root(rate: Rate, seed: int) -> None:
    logits, eligible = draw(seed)
    shares = shares_of(rate)
    sharp = find_fairest(logits, rate, shares, eligible, sharpness=1e6)
    off = hard_disparity(logits[0], eligible, rate, shares, sharp.t[0])
    assert abs(off) <= 1.0 / eligible.sum(axis=1).min() + 1e-12
    before = hard_disparity(logits[0], eligible, rate, shares, sharp.t[0] - 1e-4)
    after = hard_disparity(logits[0], eligible, rate, shares, sharp.t[0] + 1e-4)
    assert before >= -1e-12
    assert after <= 1e-12


def test_the_released_rule_takes_the_hard_root_and_the_smooth_gradient() -> None:
    logits, eligible = draw(6)
    shares = np.array([0.7, 0.3])
    found = find_fairest(logits, SELECTION, shares, eligible, hard=True)
    root = hard_root(logits, SELECTION, shares, eligible / eligible.sum(axis=1, keepdims=True))
    assert found.t[0] == pytest.approx(root[0], abs=1e-15)
    step = 1e-6
    for a, i in ((0, 0), (1, 3)):
        if not eligible[a, i]:
            continue
        moved = [logits[0].copy() for _ in range(2)]
        moved[0][a, i] += step
        moved[1][a, i] -= step
        by_z = phi(moved[0], eligible, SELECTION, shares, root[0])
        by_z = (by_z - phi(moved[1], eligible, SELECTION, shares, root[0])) / (2 * step)
        by_t = phi(logits[0], eligible, SELECTION, shares, root[0] + step)
        by_t = (by_t - phi(logits[0], eligible, SELECTION, shares, root[0] - step)) / (2 * step)
        assert found.gradient[0, a, i] == pytest.approx(-by_z / by_t, rel=1e-5, abs=1e-9)


# ---- saturation --------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("places", [(-150.0, 150.0), (150.0, -150.0), (-150.0, -150.0), (900, 900)])
def test_saturated_logits_give_numbers(rate: Rate, hard: bool, places: tuple[float, float]) -> None:
    rows = np.linspace(-5.0, 5.0, 7)
    logits = np.stack((rows + places[0], rows + places[1]))[None]
    shares = shares_of(rate)
    found = find_fairest(logits, rate, shares, hard=hard)
    assert all(np.isfinite(part).all() for part in found)
    low, high = setting_domain(rate, shares)
    assert low < found.t[0] < high


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_root_beyond_the_clamp_has_no_gradient(rate: Rate, sign: float) -> None:
    logits = sign * np.array([[[-150.0, -120.0], [120.0, 150.0]]])
    shares = shares_of(rate)
    found = find_fairest(logits, rate, shares)
    low, high = setting_domain(rate, shares)
    assert found.t[0] == pytest.approx(high - 1e-4 if sign > 0 else low + 1e-4, abs=1e-11)
    assert (found.gradient == 0).all()


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
def test_a_share_below_the_clamp_is_still_a_domain(rate: Rate) -> None:
    logits, _ = draw(1)
    shares = np.array([0.5, 5e-5])
    found = find_fairest(logits, rate, shares)
    low, high = setting_domain(rate, shares)
    assert low < found.t[0] < high
    assert all(np.isfinite(part).all() for part in found)
