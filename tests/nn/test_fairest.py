"""The fairest thresholds of a batch for any number of groups, and for equalized odds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import norm

from fairdial.core.rates import FALSE_POSITIVE, SELECTION, TRUE_POSITIVE, Rate
from fairdial.datasets.synthetic import GaussianLaw
from fairdial.nn.equal_odds import EDGE, STIFFNESS, _log1p, equalize_odds
from fairdial.nn.equal_rates import _bracket, _Rates, equalize_rate, setting_box
from fairdial.nn.fairest import Compared, find_thresholds, shares_of
from fairdial.nn.implicit import find_fairest
from fairdial.nn.losses import boundary_distance
from fairdial.nn.masoba import Objective

ODDS = (TRUE_POSITIVE, FALSE_POSITIVE)
RATES: list[Rate] = [SELECTION, TRUE_POSITIVE, FALSE_POSITIVE]
CRITERIA: list[Compared] = [*RATES, ODDS]
GROUPS = [2, 3, 5]
K = 10.0


def name_of(rate: Compared) -> str:
    return "equalized_odds" if isinstance(rate, tuple) else rate.name


def draw(
    groups: int, seed: int = 0, n: int = 12, nets: int = 2, scale: float = 1.0
) -> tuple[Any, Any, Any]:
    """Logits (M, K, n), labels (K, n) and shares (2, K) of groups that differ."""
    rng = np.random.default_rng(seed)
    base = np.linspace(0.35, 0.65, groups)
    y = rng.random((groups, n)) < base[:, None]
    y[:, 0], y[:, 1] = True, False
    shift = np.linspace(-0.6, 0.5, groups)[:, None]
    z = scale * rng.standard_normal((nets, groups, n)) + 0.8 * (y - 0.5) + shift
    size = rng.dirichlet(np.full(groups, 8.0))
    return z, y, np.stack((size * (1.0 - base), size * base))


def soft_rate(z: Any, thresholds: Any, rows: Any) -> Any:
    """Smooth rates (M, K) among some rows (K, n)."""
    soft = expit(K * (z - thresholds[:, :, None]))
    return (soft * rows).sum(axis=-1) / rows.sum(axis=-1)


def eligible_rows(rate: Rate, y: Any) -> Any:
    return np.ones_like(y) if rate.eligible is None else y == bool(rate.eligible)


def solve(z: Any, y: Any, rate: Compared, shares: Any, **more: Any) -> Any:
    found = find_thresholds(z, y, rate, shares, accuracy=1e-13, **more)
    assert found is not None
    return found


# ---- the equations -----------------------------------------------------------------------------


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("rate", RATES, ids=name_of)
@pytest.mark.parametrize("seed", range(3))
def test_one_rate_is_equal_in_all_groups_and_the_multipliers_sum_to_zero(
    rate: Rate, groups: int, seed: int
) -> None:
    z, y, shares = draw(groups, seed)
    found = solve(z, y, rate, shares)
    rates = soft_rate(z, found.thresholds, eligible_rows(rate, y))
    np.testing.assert_allclose(rates, rates[:, :1] * np.ones(groups), atol=1e-12)
    t = shares_of(rate, shares) * rate.inverse(found.thresholds)
    np.testing.assert_allclose(t.sum(axis=1), 0.0, atol=1e-12)


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("stiffness", [1.0, STIFFNESS, 100.0])
def test_prices_of_equalized_odds_are_proportional_to_the_distance_from_the_mean(
    groups: int, stiffness: float
) -> None:
    z, y, shares = draw(groups, n=200)
    found = solve(z, y, ODDS, shares, stiffness=stiffness)
    assert found.solved.all()
    prices = []
    for label, rows in ((0, ~y), (1, y)):
        rates = soft_rate(z, found.thresholds, rows)
        u = stiffness * (rates - np.average(rates, weights=shares[label], axis=1)[:, None])
        np.testing.assert_allclose(u @ shares[label], 0.0, atol=1e-12)
        prices.append(u)
    away = np.minimum(1.0 + prices[0], 1.0 - prices[1]) > EDGE  # from the end of the domain
    assert away.mean() > 0.5
    expected = np.log1p(np.maximum(prices[0], -0.999)) - np.log1p(-np.minimum(prices[1], 0.999))
    np.testing.assert_allclose(found.thresholds[away], expected[away], atol=1e-11)


def test_the_stiffer_the_smaller_the_gap_of_both_rates() -> None:
    z, y, shares = draw(3, n=2000, nets=1)
    gaps = []
    for stiffness in (0.001, 1.0, 5.0, STIFFNESS, 100.0):
        found = solve(z, y, ODDS, shares, stiffness=stiffness)
        rates = [soft_rate(z, found.thresholds, rows) for rows in (y, ~y)]
        gaps.append(max(np.ptp(r) for r in rates))
    assert (np.diff(gaps) < 0).all()
    assert gaps[0] > 0.2
    assert gaps[3] < 0.05


def test_gaussian_groups_of_equal_separations_have_the_closed_form() -> None:
    law = GaussianLaw((0.6, 0.4), (0.3, 0.6), (1.4, 1.4))
    n = 4000  # rows of each label, at the quantiles of its law
    noise = norm.ppf((np.arange(n) + 0.5) / n)
    means = np.array([-0.5, 0.5])
    log_odds = np.log(np.divide(law.base_rates, 1.0 - np.asarray(law.base_rates)))
    z = np.stack([
        np.concatenate([1.4 * (1.4 * mean + noise) + offset for mean in means])
        for offset in log_odds
    ])[None]  # fmt: skip
    y = np.repeat([[False, True]], n, axis=1)[[0, 0]].reshape(2, -1)
    pi = np.asarray(law.base_rates)
    shares = np.asarray(law.shares) * np.stack((1.0 - pi, pi))
    found = solve(z, y, ODDS, shares, stiffness=1e4)
    np.testing.assert_allclose(found.thresholds[0], law.equalized_odds(), atol=1e-3)
    np.testing.assert_allclose(found.thresholds[0], [-0.524524, 0.728239], atol=1e-3)
    select = [1.0 - norm.cdf((found.thresholds[0] - log_odds) / 1.4 - 1.4 * m) for m in means]
    np.testing.assert_allclose(select[1], 0.680625, atol=1e-3)
    np.testing.assert_allclose(select[0], 0.176043, atol=1e-3)


@pytest.mark.parametrize("rate", RATES, ids=name_of)
def test_shifted_groups_have_shifted_thresholds(rate: Rate) -> None:
    rows, shifts = np.random.default_rng(1).standard_normal(9), np.array([-0.7, 0.1, 0.4, 0.9])
    z = (rows + shifts[:, None])[None]
    found = equalize_rate(z, rate, np.array([0.2, 0.1, 0.15, 0.05]))
    np.testing.assert_allclose(np.diff(found.thresholds[0]), np.diff(shifts), atol=1e-11)


@pytest.mark.parametrize("rate", RATES, ids=name_of)
@pytest.mark.parametrize("seed", range(4))
def test_two_groups_are_the_paper_s(rate: Rate, seed: int) -> None:
    z, y, shares = draw(2, seed)
    eligible, shares = eligible_rows(rate, y), shares_of(rate, shares)
    pair = find_fairest(z, rate, shares, eligible)
    found = equalize_rate(z, rate, shares, eligible)
    np.testing.assert_allclose(found.thresholds, pair.thresholds, atol=1e-10)
    np.testing.assert_allclose(found.t, pair.t[:, None] * [-1.0, 1.0], atol=1e-10)
    by_threshold = np.random.default_rng(seed).standard_normal((2, 2))
    expected = pair.pull_back(by_threshold)
    np.testing.assert_allclose(found.pull_back(by_threshold), expected, atol=1e-10)


@pytest.mark.parametrize("root", ["smooth", "hard"])
@pytest.mark.parametrize("rate", RATES, ids=name_of)
def test_the_distance_of_two_groups_is_the_paper_s_to_the_last_bit(rate: Rate, root: str) -> None:
    z, y, shares = draw(2, 3, n=40, nets=3)
    shares, hard = shares_of(rate, shares), root == "hard"
    objective = Objective(rate, shares, hard=hard)
    start = None
    for _ in range(3):
        eligible = None if rate is SELECTION else eligible_rows(rate, y)
        pair = find_fairest(z, rate, shares, eligible, start=start, hard=hard, accuracy=1e-8)
        start = pair.t
        d = boundary_distance(z, pair.thresholds[:, :, None])
        by_t = (d.by_threshold.sum(axis=-1) * pair.threshold_slopes).sum(axis=1)
        expected = 0.5 / 40 * (d.by_logit + by_t[:, None, None] * pair.gradient)
        value, gradient = objective._distance(torch.from_numpy(z), torch.from_numpy(y).float())
        np.testing.assert_array_equal(value, d.value.mean(axis=(1, 2)))
        np.testing.assert_array_equal(gradient, expected)
        z = z + 0.1


# ---- gradients ---------------------------------------------------------------------------------


def differences(function: Any, z: Any, step: float) -> Any:
    """Derivatives of a function of the logits (1, K, n), of fourth order: (..., K, n)."""
    numeric = []
    for place in np.ndindex(z.shape[1:]):
        values = []
        for s in (2, 1, -1, -2):
            moved = z.copy()
            moved[(0, *place)] += s * step
            values.append(function(moved))
        far, near, back, far_back = values
        numeric.append((8.0 * (near - back) - (far - far_back)) / (12.0 * step))
    return np.moveaxis(np.array(numeric), 0, -1).reshape(*np.shape(numeric[0]), *z.shape[1:])


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("rate", CRITERIA, ids=name_of)
def test_the_gradient_of_the_thresholds_is_that_of_differences(rate: Any, groups: int) -> None:
    z, y, shares = draw(groups, 5, n=8, nets=1)
    found = solve(z, y, rate, shares)
    near = {"start": found.start}
    numeric = differences(
        lambda moved: solve(moved, y, rate, shares, **near).thresholds[0], z, 1e-4
    )
    exact = np.stack([found.pull_back(row[None])[0] for row in np.eye(groups)])
    assert np.abs(exact - numeric).max() <= 1e-7 * np.abs(numeric).max()
    if not isinstance(rate, tuple):
        assert (exact[:, ~eligible_rows(rate, y)] == 0).all()


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("rate", CRITERIA, ids=name_of)
def test_the_gradient_of_the_distance_loss_is_that_of_differences(rate: Any, groups: int) -> None:
    z, y, shares = draw(groups, 7, n=8, nets=1)
    label = torch.from_numpy(y).double()

    objective = Objective(rate, shares, accuracy=1e-13)

    def loss(moved: Any) -> Any:
        return objective._distance(torch.from_numpy(moved), label)[0][0]

    exact = objective._distance(torch.from_numpy(z), label)[1][0]
    numeric = differences(loss, z, 1e-4)
    assert np.abs(numeric).max() > 1e-3
    assert np.abs(exact - numeric).max() <= 1e-7 * np.abs(numeric).max()


# ---- relations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", CRITERIA, ids=name_of)
def test_permuting_groups_permutes_thresholds_and_gradients(rate: Any) -> None:
    z, y, shares = draw(5, 2)
    order = np.array([3, 0, 4, 1, 2])
    here, there = solve(z, y, rate, shares), solve(z[:, order], y[order], rate, shares[:, order])
    np.testing.assert_allclose(there.thresholds, here.thresholds[:, order], atol=1e-11)
    by_threshold = np.random.default_rng(0).standard_normal((2, 5))
    moved = there.pull_back(by_threshold[:, order])
    np.testing.assert_allclose(moved, here.pull_back(by_threshold)[:, order], atol=1e-9)


@pytest.mark.parametrize("rate", CRITERIA, ids=name_of)
@pytest.mark.parametrize("groups", [2, 4])
def test_duplicated_rows_change_nothing(rate: Any, groups: int) -> None:
    z, y, shares = draw(groups, 4)
    once = solve(z, y, rate, shares)
    twice = solve(np.concatenate((z, z), axis=2), np.concatenate((y, y), axis=1), rate, shares)
    np.testing.assert_allclose(twice.thresholds, once.thresholds, atol=1e-11)


@pytest.mark.parametrize("rate", CRITERIA, ids=name_of)
@pytest.mark.parametrize("groups", [3, 5])
def test_several_nets_give_the_same_as_each_alone(rate: Any, groups: int) -> None:
    z, y, shares = draw(groups, 6, nets=4)
    z[2] *= 3.0
    together = solve(z, y, rate, shares)
    by_threshold = np.random.default_rng(0).standard_normal((4, groups))
    pulled = together.pull_back(by_threshold)
    for m in range(4):
        alone = solve(z[m : m + 1], y, rate, shares)
        np.testing.assert_allclose(together.thresholds[m], alone.thresholds[0], atol=1e-9)
        np.testing.assert_allclose(
            pulled[m], alone.pull_back(by_threshold[m : m + 1])[0], rtol=1e-6, atol=1e-9
        )


@pytest.mark.parametrize("rate", CRITERIA, ids=name_of)
@pytest.mark.parametrize("scale", [0.0, 0.3, 100.0])
@pytest.mark.parametrize("seed", range(5))
def test_where_the_search_starts_is_irrelevant(rate: Any, scale: float, seed: int) -> None:
    n = 200 if isinstance(rate, tuple) else 12  # small batches may have several solutions
    z, y, shares = draw(4, seed, n=n)
    cold = solve(z, y, rate, shares)
    rng = np.random.default_rng(0)
    for _ in range(4):
        start = scale * rng.standard_normal((2, 4))
        start -= start.mean(axis=1, keepdims=True)
        if not isinstance(rate, tuple):  # a setting, within its domain
            low, high = setting_box(rate, shares_of(rate, shares))
            start *= min(1.0, 0.9 * min(-low.max(), high.min()) / max(np.abs(start).max(), 1e-9))
        warm = solve(z, y, rate, shares, start=start)
        np.testing.assert_allclose(warm.thresholds, cold.thresholds, atol=1e-9)


def test_in_small_batches_equalized_odds_has_a_solution_or_none_from_any_start() -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        z, y, shares = draw(4, seed)
        found = solve(z, y, ODDS, shares, start=100.0 * rng.standard_normal((2, 4)))
        asked = []
        for rows, share in ((~y, shares[0]), (y, shares[1])):
            rates = soft_rate(z, found.thresholds, rows)
            asked.append(STIFFNESS * (rates - np.average(rates, weights=share, axis=1)[:, None]))
        expected = _log1p(asked[0]) - _log1p(-asked[1])
        off = np.abs(found.thresholds - expected).max(axis=1)
        assert (off[found.solved] < 1e-9).all()
        assert (found.thresholds[~found.solved] == 0).all()


# ---- brackets, clamps and saturation -----------------------------------------------------------


@pytest.mark.parametrize("rate", RATES, ids=name_of)
@pytest.mark.parametrize("seed", range(3))
def test_the_search_within_brackets_finds_the_same_as_newton_steps(rate: Rate, seed: int) -> None:
    z, y, shares = draw(4, seed)
    shares, eligible = shares_of(rate, shares), eligible_rows(rate, y)
    rates = _Rates(z, rate, shares, eligible, K)
    t, _ = _bracket(rates, *setting_box(rate, shares), 1e-13)
    expected = equalize_rate(z, rate, shares, eligible).t
    np.testing.assert_allclose(t, expected, atol=1e-10)


@pytest.mark.parametrize("rate", CRITERIA, ids=name_of)
@pytest.mark.parametrize(
    "places",
    [(-150, 0, 150), (150, 150, -150), (-150, -150, -150), (900, 900, 900), (0, 0, 900)],
)
def test_saturated_logits_give_numbers(rate: Any, places: tuple[float, ...]) -> None:
    rows = np.linspace(-5.0, 5.0, 8)
    z = (rows + np.array(places)[:, None])[None]
    y = np.tile([True, False], (3, 4))
    shares = np.array([[0.1, 0.2, 0.15], [0.3, 0.05, 0.2]])
    found = solve(z, y, rate, shares)
    assert np.isfinite(found.thresholds).all()
    assert np.isfinite(found.pull_back(np.ones((1, 3)))).all()
    if not isinstance(rate, tuple):
        t = shares_of(rate, shares) * rate.inverse(found.thresholds)
        assert t.sum() == pytest.approx(0.0, abs=1e-9)
        again = solve(z, y, rate, shares, start=np.array([[0.01, -0.02, 0.01]]))
        np.testing.assert_allclose(again.thresholds, found.thresholds, atol=1e-9)


@pytest.mark.parametrize("rate", RATES, ids=name_of)
def test_a_clamped_group_follows_nothing_and_the_others_stay_equal(rate: Rate) -> None:
    z, y, shares = draw(3, 1, nets=1)
    shares, eligible = shares_of(rate, shares), eligible_rows(rate, y)
    below = rate is FALSE_POSITIVE  # its thresholds have no upper end
    z[:, 2] += -60.0 if below else 60.0  # beyond every threshold
    found = equalize_rate(z, rate, shares, eligible)
    end = setting_box(rate, shares)[0 if below else 1]
    assert found.t[0, 2] == pytest.approx(end[2], abs=1e-11)
    rates = soft_rate(z, found.thresholds, eligible)[0]
    assert rates[0] == pytest.approx(rates[1], abs=1e-11)
    pulled = found.pull_back(np.array([[1.0, -2.0, 3.0]]))
    assert (pulled[0, 2] == 0).all()
    moved = z.copy()
    moved[0, 0, 0] += 1e-5
    ahead = equalize_rate(moved, rate, shares, eligible).thresholds[0] @ [1.0, -2.0, 3.0]
    moved[0, 0, 0] -= 2e-5
    back = equalize_rate(moved, rate, shares, eligible).thresholds[0] @ [1.0, -2.0, 3.0]
    assert pulled[0, 0, 0] == pytest.approx((ahead - back) / 2e-5, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("rate", CRITERIA, ids=name_of)
def test_a_group_with_a_single_row_of_a_label_and_a_tiny_share(rate: Any) -> None:
    z, y, shares = draw(3, 9, n=30)
    y[1] = False
    y[1, 4] = True
    shares[:, 1] = 5e-5, 1e-6
    found = solve(z, y, rate, shares)
    assert np.isfinite(found.thresholds).all()
    assert np.isfinite(found.pull_back(np.ones((2, 3)))).all()


@pytest.mark.parametrize("rate", [TRUE_POSITIVE, FALSE_POSITIVE, ODDS], ids=name_of)
@pytest.mark.parametrize("groups", [2, 3])
def test_a_batch_without_eligible_rows_of_a_group_has_no_distance(rate: Any, groups: int) -> None:
    z, y, shares = draw(groups)
    y[1] = rate is FALSE_POSITIVE
    assert find_thresholds(z, y, rate, shares) is None
    objective = Objective(rate, shares)
    value, gradient = objective._distance(torch.from_numpy(z), torch.from_numpy(y).float())
    assert (value == 0).all()
    assert (gradient == 0).all()
    assert objective.t is None


@pytest.mark.parametrize("seed", range(10))
def test_hard_batches_of_equalized_odds_are_solved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, y, shares = draw(int(rng.integers(2, 7)), seed, n=40, scale=float(rng.choice([0.1, 1, 6])))
    found = equalize_odds(z, y, shares)
    assert found.solved.all()


@pytest.mark.parametrize("seed", [81, 104])
def test_a_net_without_a_solution_has_no_distance_and_leaves_the_others_alone(seed: int) -> None:
    hard, y, shares = draw(3, seed, n=16, nets=1)
    easy = 0.3 * hard
    z = np.concatenate((easy, hard))
    found = equalize_odds(z, y, shares)
    assert found.solved.tolist() == [True, False]
    assert (found.thresholds[1] == 0).all()
    assert (found.pull_back(np.ones((2, 3)))[1] == 0).all()
    start = found.thresholds + 1e-3  # near net 0's solution: it needs no path from 0
    again = equalize_odds(z, y, shares, start=start)
    alone = equalize_odds(easy, y, shares, start=start[:1])
    np.testing.assert_array_equal(again.thresholds[0], alone.thresholds[0])
    value, gradient = Objective(ODDS, shares)._distance(
        torch.from_numpy(z), torch.from_numpy(y).float()
    )
    assert value[0] > 0
    assert value[1] == 0
    assert (gradient[1] == 0).all()
