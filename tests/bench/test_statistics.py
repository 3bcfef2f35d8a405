"""Paired statistics, plain and corrected, against scipy and by hand; power; Holm's p values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fairdial.bench.statistics import (
    RATIOS,
    SPLIT_RATIO,
    Paired,
    corrected,
    holm,
    paired,
    seeds_needed,
)


def test_quartiles_of_five_values_are_order_statistics():
    values = [0.3, -0.1, 0.7, 0.2, 0.5]
    found = paired(values)
    assert [found.q1, found.q2, found.q3] == sorted(values)[1:4]


@pytest.mark.parametrize("n", [2, 5, 20])
def test_the_interval_and_p_value_are_those_of_the_t_test(n):
    values = np.random.default_rng(n).normal(0.3, 1.0, n)
    found, test = paired(values), stats.ttest_1samp(values, 0.0)
    ends = test.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert found.p == pytest.approx(test.pvalue)
    assert found.error == pytest.approx(stats.sem(values))
    assert found.seeds == n


def test_seeds_that_are_missing_do_not_count():
    assert paired([1.0, np.nan, 3.0]) == paired([1.0, 3.0])


def test_one_seed_has_a_mean_and_no_error():
    found = paired([0.5])
    assert (found.seeds, found.mean, found.q1, found.q3) == (1, 0.5, 0.5, 0.5)
    assert np.isnan([found.sd, found.error, found.low, found.high, found.p, found.needed]).all()


def test_no_seed_has_nothing():
    assert paired([]).seeds == 0
    assert np.isnan(paired([np.nan]).mean)


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.25, 0.0)])
def test_differences_without_spread_are_sure(value, p):
    found = paired([value] * 4)
    assert (found.low, found.high, found.p, found.detectable) == (value, value, p, 0.0)


@pytest.mark.parametrize("effect", [0.15, 0.3, 0.6, 1.0, 2.0])
def test_seeds_needed_have_about_the_power_asked_for(effect):
    n = int(seeds_needed(effect, 1.0))

    def power(size):
        limit = stats.t.ppf(0.975, size - 1)
        return stats.nct.sf(limit, size - 1, effect * np.sqrt(size))

    assert power(n + 1) >= 0.8
    assert power(max(n - 2, 2)) < 0.8


def test_what_is_detectable_and_what_is_needed_fit_together():
    values = np.random.default_rng(1).normal(0.0, 1.0, 12)
    found = paired(values)
    assert seeds_needed(found.detectable * 1.0001, found.sd) == 12
    assert seeds_needed(found.detectable * 0.9, found.sd) > 12


def test_no_difference_needs_endless_seeds():
    assert seeds_needed(0.0, 1.0) == np.inf
    assert seeds_needed(1e-9, 1.0) == np.inf


@pytest.mark.parametrize("n", [2, 5, 20])
@pytest.mark.parametrize("ratio", [0.1, SPLIT_RATIO, 1.0])
def test_the_corrected_interval_is_nadeau_and_bengios(n, ratio):
    values = np.random.default_rng(n).normal(0.3, 1.0, n)
    plain = paired(values)
    found = corrected(plain, ratio)
    error = np.sqrt(values.var(ddof=1) * (1 / n + ratio))
    ends = stats.t.interval(0.95, n - 1, values.mean(), error)
    assert found.error == pytest.approx(error)
    assert (found.low, found.high) == pytest.approx(ends)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(values.mean()) / error, n - 1))
    assert found[:6] == plain[:6]  # seeds, mean, quartiles, sd


def test_the_papers_split_has_about_fifteen_test_rows_for_a_hundred_training_rows():
    assert pytest.approx(0.154, abs=5e-4) == SPLIT_RATIO


def test_the_corrected_test_keeps_its_level_where_splits_overlap():
    """Differences with the correlation that Nadeau and Bengio assume, and no true difference."""
    n, ratio, repeats = 5, 0.5, 4000
    rng = np.random.default_rng(0)
    shared = np.sqrt(ratio) * rng.standard_normal((repeats, 1))
    found = [paired(values) for values in shared + rng.standard_normal((repeats, n))]
    assert np.mean([f.p < 0.05 for f in found]) > 0.15
    assert np.mean([corrected(f, ratio).p < 0.05 for f in found]) == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize("found", [Paired(), paired([0.5])])
def test_too_few_seeds_have_nothing_to_correct(found):
    assert corrected(found, 0.2) is found


@pytest.mark.parametrize("effect", [1.3, 1.6, 2.0])
def test_corrected_seeds_have_about_the_power_asked_for(effect):
    n = int(seeds_needed(effect, 1.0, SPLIT_RATIO))

    def power(size):
        limit = stats.t.ppf(0.975, size - 1)
        return stats.nct.sf(limit, size - 1, effect / np.sqrt(1 / size + SPLIT_RATIO))

    assert n > seeds_needed(effect, 1.0)
    assert power(n + 1) >= 0.8
    assert power(max(n - 2, 2)) < 0.8


def test_small_differences_need_more_splits_than_there_can_be():
    assert seeds_needed(1.0, 1.0) < 20
    assert seeds_needed(1.0, 1.0, SPLIT_RATIO) == np.inf


def test_what_is_detectable_and_what_is_needed_fit_together_when_corrected():
    found = corrected(paired(np.random.default_rng(1).normal(2.0, 1.0, 12)), SPLIT_RATIO)
    assert seeds_needed(found.detectable * 1.0001, found.sd, SPLIT_RATIO) == 12
    assert seeds_needed(found.mean, found.sd, SPLIT_RATIO) == found.needed


def test_holm_agrees_with_its_definition():
    p = np.random.default_rng(0).random(8) * 0.1
    adjusted = holm(p)
    for alpha in np.linspace(0.01, 1, 60):
        rejected, order = set(), np.argsort(p)
        for step, i in enumerate(order):
            if p[i] > alpha / (len(p) - step):
                break
            rejected.add(i)
        assert set(np.flatnonzero(adjusted <= alpha)) == rejected


def test_holm_leaves_out_what_has_no_p_value():
    found = holm([0.02, np.nan, 0.04])
    assert found[[0, 2]] == pytest.approx([0.04, 0.04])
    assert np.isnan(found[1])


def test_splits_with_more_test_rows_have_larger_corrected_errors():
    values = [1.0, 2.0, 4.0]
    paper, thirds = (corrected(paired(values, ratio)) for ratio in RATIOS.values())
    plain = paired(values)
    for found, ratio in ((paper, 10 / 64.8), (thirds, 30 / 35)):
        assert found.error == pytest.approx(plain.error * (1 + 3 * ratio) ** 0.5)
        assert found.mean == plain.mean
