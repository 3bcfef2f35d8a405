"""Unlabelled scores: exact counts, intervals that cover, alarms that are rarely false."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairdial import criterion, sweep
from fairdial.datasets import make_gaussian
from fairdial.serve.drift import (
    BINS,
    FALSE_ALARMS,
    FIRST_LOOK,
    WIDTH,
    bin_scores,
    calibration_bins,
    look,
    look_number,
    redial,
)

PARITY = criterion("demographic_parity")
NUMBERS = st.floats(-20, 20) | st.sampled_from(
    [0.0, -0.0, WIDTH, -WIDTH, 16.0, -16.0, 1e308, -1e308, np.inf, -np.inf, 3 * WIDTH]
)


# ---- counts ------------------------------------------------------------------------------------


@given(st.lists(NUMBERS, min_size=1, max_size=60), st.data())
@settings(max_examples=100)
def test_what_lies_above_an_edge_is_counted_exactly(values, data):
    scores = np.array(values)
    codes = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=99)))
    codes = codes[: len(scores)]
    counts = bin_scores(scores, codes, 3)
    assert counts.shape == (3, BINS)
    above = np.cumsum(counts, axis=1)
    edges = (BINS // 2 - np.arange(1, BINS)) * WIDTH  # the lower edge of each bin but the last
    for group in range(3):
        want = [(scores[codes == group] > edge).sum() for edge in edges[::97]]
        assert above[group, :-1][::97].tolist() == want


def test_calibration_rows_fall_into_the_bins_of_their_scores():
    sample = make_gaussian(3_000, random_state=0)
    codes = (sample.groups == "group 1").astype(int)
    frontier = sweep(sample.logits, sample.groups, sample.y)
    assert np.array_equal(calibration_bins(frontier), bin_scores(sample.logits, codes, 2))


def test_thinned_frontiers_have_no_scores_to_compare_with():
    sample = make_gaussian(3_000, random_state=0)
    assert calibration_bins(sweep(sample.logits, sample.groups).thin(10)) is None


# ---- drift -------------------------------------------------------------------------------------


def test_looks_are_due_when_the_rows_have_doubled():
    numbers = [look_number(n) for n in range(2_000)]
    assert numbers[:FIRST_LOOK] == [-1] * FIRST_LOOK
    for k, first in enumerate((100, 200, 400, 800, 1_600)):
        assert numbers[first] == k
        assert numbers[first - 1] == k - 1


def test_the_doubt_that_looks_spend_adds_up_to_what_is_stated():
    """The bound's own inequality, turned round: chances of all looks and of the calibration."""
    spent, endless = 0.0, 2**500
    for k in range(200):
        rows = FIRST_LOOK * 2**k
        spent += 2 * np.exp(-2 * rows * bound_of(rows, endless) ** 2)
    before = 2 * np.exp(-2 * 10**6 * bound_of(endless, 10**6) ** 2)
    assert 3 * (spent + before) <= FALSE_ALARMS * (1 + 1e-9)  # of three groups
    assert 3 * (spent + before) >= 0.98 * FALSE_ALARMS


def bound_of(rows, before):
    one, two = np.zeros(BINS), np.zeros(BINS)
    one[5], two[5] = rows, before
    return look(one, two, 3).bound


def test_false_alarms_are_rare_though_looked_for_again_and_again():
    rng = np.random.default_rng(0)
    alarms, draws = 0, 300
    for _ in range(draws):
        calibration = bin_scores(rng.normal(size=400), np.zeros(400, int), 1)[0]
        scores = rng.normal(size=3_200)
        alarms += any(
            look(bin_scores(scores[:n], np.zeros(n, int), 1)[0], calibration, 1).drift
            for n in (100, 200, 400, 800, 1_600, 3_200)
        )
    assert alarms <= draws * FALSE_ALARMS + 3


def test_a_change_of_the_scores_is_found():
    rng = np.random.default_rng(1)
    calibration = bin_scores(rng.normal(size=2_000), np.zeros(2_000, int), 1)[0]
    found = look(bin_scores(rng.normal(0.6, 1, 1_600), np.zeros(1_600, int), 1)[0], calibration, 1)
    assert found.drift
    assert found.number == 4
    assert found.distance == pytest.approx(0.236, abs=0.05)  # 2 Phi(0.3) - 1


def test_the_same_scores_have_no_distance():
    counts = bin_scores(np.linspace(-3, 3, 500), np.zeros(500, int), 1)[0]
    assert look(counts, counts, 1).distance == 0.0


# ---- new thresholds -------------------------------------------------------------------------


def test_new_thresholds_keep_the_tolerance_on_the_observed_scores_exactly():
    sample = make_gaussian(20_000, random_state=3)
    codes = (sample.groups == "group 1").astype(int)
    frontier = redial(bin_scores(sample.logits, codes, 2), PARITY, ("group 0", "group 1"))
    exact = sweep(sample.logits, sample.groups)
    for tolerance in (0.02, 0.1, 0.2):
        point = frontier.at(tolerance)
        rates = [(sample.logits[codes == a] > point.thresholds[a]).mean() for a in range(2)]
        assert point.gap == pytest.approx(abs(rates[1] - rates[0]), abs=1e-12)
        assert point.gap <= tolerance
        assert point.gap >= tolerance - 0.01  # not much stricter than it must be
        assert point.thresholds == pytest.approx(exact.at(tolerance).thresholds, abs=2 * WIDTH)


def test_scores_beyond_all_bins_still_count():
    scores = np.concatenate((np.full(40, 50.0), np.full(60, -50.0), np.full(40, -np.inf)))
    codes = np.concatenate((np.zeros(100, int), np.ones(40, int)))
    frontier = redial(bin_scores(scores, codes, 2), PARITY, ("a", "b"))
    assert frontier.at(1.0).gap == pytest.approx(0.4)
    assert frontier.counts.tolist() == [[100, 40]]
