"""Laws of the exact tests: their level by brute force, monotone regions, and the quick bound."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from fairdial.core import pairwise
from fairdial.core.pairwise import (
    Pair,
    clopper_pearson,
    rejects_ceiling,
    rejects_floor,
    rejects_pair,
    surely_rejects,
)

SIZES = [(12, 12), (20, 7), (4, 25)]


def rejected(m_a, m_b, limit, slope, alpha):
    return np.array(
        [
            [rejects_pair(Pair(i, m_a, j, m_b, limit, slope), alpha) for j in range(m_b + 1)]
            for i in range(m_a + 1)
        ]
    )


@pytest.mark.parametrize(("m_a", "m_b"), SIZES)
@pytest.mark.parametrize(("limit", "slope"), [(0.1, 1.0), (0.35, 1.0), (0.0, 0.8)])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_level_is_kept_at_every_pair_of_rates(m_a, m_b, limit, slope, alpha):
    region = rejected(m_a, m_b, limit, slope, alpha).astype(float)
    rates = np.linspace(0, 1, 401)
    a = binom.pmf(np.arange(m_a + 1)[:, None], m_a, rates)  # (counts, rates)
    b = binom.pmf(np.arange(m_b + 1)[:, None], m_b, rates)
    level = a.T @ region @ b  # (rates of a, rates of b)
    null = slope * rates[:, None] - rates >= limit - 1e-12
    assert level[null].max() <= alpha
    border = np.linspace(limit / slope, 1, 2001)
    a = binom.pmf(np.arange(m_a + 1)[:, None], m_a, border)
    b = binom.pmf(np.arange(m_b + 1)[:, None], m_b, np.clip(slope * border - limit, 0, 1))
    on_border = ((region @ b) * a).sum(axis=0)
    assert 0.5 * alpha < on_border.max() <= alpha  # and it is not wasted


@pytest.mark.parametrize(("m_a", "m_b"), SIZES)
def test_the_regions_are_monotone(m_a, m_b):
    for limit, slope in ((0.1, 1.0), (0.5, 1.0), (0.0, 0.7), (0.02, 1.0)):
        pair = Pair(0, m_a, 0, m_b, limit, slope)
        for z in (0.1, 0.8, 1.7, 3.0, 6.0):
            border = pairwise._border(np.arange(m_b + 1.0), 0, m_a, z, pair)
            assert (np.diff(border) >= 0).all()
            difference, deviation = pairwise._statistic(
                np.arange(m_a + 1.0)[:, None], np.arange(m_b + 1.0), pair
            )
            flat = z * z / (2 * pairwise._fewest(pair))
            inside = difference <= 1e-9 - np.maximum(z * deviation, flat)
            assert np.array_equal(inside, np.arange(m_a + 1)[:, None] <= border)


def test_the_bound_of_the_tail_is_above_it_everywhere_and_close():
    for pair in (
        Pair(20, 100, 19, 90, 0.1),
        Pair(2, 400, 1, 60, 0.05),
        Pair(90, 100, 500, 550, 0.1),
    ):
        low, high = pairwise._nuisance(pair, 0.05)
        z = pairwise._extremity(pair)
        bound = pairwise._largest_tail(low, high, z, pair, 0.05)
        everywhere = pairwise._tails(np.linspace(low, high, 3001), z, pair).max()
        assert everywhere <= bound <= 1.02 * everywhere + 2e-4


def test_a_tail_is_the_double_sum():
    pair, z = Pair(9, 30, 8, 20, 0.15), 1.3
    rates = np.array([0.2, 0.5, 0.93])
    border = pairwise._border(np.arange(21.0), 0, 30, z, pair)
    expected = [
        sum(binom.pmf(j, 20, r - 0.15) * binom.cdf(border[j], 30, r) for j in range(21))
        for r in rates
    ]
    assert pairwise._tails(rates, z, pair) == pytest.approx(expected, abs=1e-7)


def test_what_surely_rejects_is_rejected():
    rng = np.random.default_rng(0)
    checked = 0
    for _ in range(60):
        m = rng.integers(20, 800, (1, 3))
        x = rng.binomial(m, rng.uniform(0, 1) * np.ones(3))
        limit, slope = ((rng.uniform(0.02, 0.4), 1.0), (0.0, rng.uniform(0.4, 0.95)))[
            rng.integers(2)
        ]
        sure = surely_rejects(x, m, limit, slope, 0.05)[0]
        for a, b in np.argwhere(sure & ~np.eye(3, dtype=bool)).tolist():
            pair = Pair(int(x[0, a]), int(m[0, a]), int(x[0, b]), int(m[0, b]), limit, slope)
            assert rejects_pair(pair, 0.05)
            checked += 1
    assert checked > 30


@pytest.mark.parametrize(("rows", "target"), [(500, 0.045), (5_000, 0.0142), (50_000, 0.0045)])
def test_the_margin_at_rates_near_one_fifth(rows, target):
    low = round(0.2 * rows)
    high = low + int((0.05 - target) * rows)
    assert rejects_pair(Pair(high, rows, low, rows, 0.05), 0.05)
    assert not rejects_pair(Pair(low + round(0.05 * rows), rows, low, rows, 0.05), 0.05)


def test_degenerate_pairs():
    assert not rejects_pair(Pair(0, 0, 5, 10, 0.1), 0.05)
    assert not rejects_pair(Pair(5, 10, 0, 0, 0.1), 0.05)
    assert not rejects_pair(Pair(10, 10, 0, 10, 0.9), 0.05)
    assert rejects_pair(Pair(0, 1000, 1000, 1000, 0.01), 0.05)
    assert not surely_rejects(np.array([[0, 5]]), np.array([[0, 10]]), 0.1, 1.0, 0.05).any()


def test_tests_of_one_rate_are_binomial_tests():
    for rows, level, alpha in ((30, 0.8, 0.05), (200, 0.1, 0.2)):
        counts = np.arange(rows + 1)
        floor = [binomtest(k, rows, level, "greater").pvalue <= alpha for k in counts.tolist()]
        ceiling = [binomtest(k, rows, level, "less").pvalue <= alpha for k in counts.tolist()]
        many = np.full(rows + 1, rows)
        assert rejects_floor(counts, many, level, alpha).tolist() == floor
        assert rejects_ceiling(counts, many, level, alpha).tolist() == ceiling


def test_intervals_are_those_of_clopper_and_pearson():
    counts, rows = np.arange(31), np.full(31, 30)
    low, high = clopper_pearson(counts, rows, 0.1)
    for k in counts.tolist():
        interval = binomtest(k, 30).proportion_ci(0.9, method="exact")
        assert (low[k], high[k]) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("n", [32, 64, 256])
def test_interpolation_magnifies_errors_as_little_as_the_proof_says(n):
    _, matrix = pairwise._nodes(n)
    most = np.abs(matrix).sum(axis=1).max()
    assert most <= 1 + 2 / np.pi * np.log(n)
    largest = 1 + 2 / np.pi * np.log(pairwise.MAX_NODES)
    assert 2 * pairwise.TAIL * largest / np.cos(np.pi / (2 * pairwise.FINER)) <= pairwise.OMITTED
