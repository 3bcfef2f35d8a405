"""Laws of certificates by a fixed sequence, for any number of groups and all criteria."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from fairdial import CannotCertifyError, Frontier, InvalidInputError, plan_calibration, sweep
from fairdial.core.bands import rate_band
from fairdial.core.certificates import crossing, exceedance
from fairdial.core.fixed_sequence import Rules, walk
from fairdial.core.rule_sequences import split_scores

EVERY = (
    "demographic_parity",
    "equalized_odds",
    "accuracy_parity",
    "predictive_parity",
    "demographic_parity_ratio",
    "demographic_parity+true_positive_rate>=0.3",
    "equal_opportunity+false_positive_rate<=0.9",
)
SHIFTS = np.array([-0.5, 0.0, 0.3, -0.2])


def draw(rng, sizes):
    """Scores, groups and labels; a label is positive with the probability that the score says."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    logits = rng.normal(SHIFTS[groups], 1.5)
    return logits, groups, (rng.random(len(groups)) < ndtr(logits / 1.7)).astype(int)


@pytest.mark.parametrize("criterion", EVERY)
def test_every_criterion_gets_a_certificate(criterion):
    rows = draw(np.random.default_rng(0), (3000, 2500, 2000))
    tolerance = 0.3 if "ratio" in criterion else 0.2
    frontier = sweep(*rows, criterion=criterion)
    assert frontier.can_certify
    assert frontier.needs_declared_tolerance
    point = frontier.at(tolerance, confidence=0.95)
    assert point.theorem == 5
    assert not point.simultaneous
    assert point.certified_gap == tolerance
    again = Frontier.from_json(frontier.to_json()).at(tolerance, confidence=0.95)
    assert np.array_equal(again.thresholds, point.thresholds)


def test_the_certified_rule_is_the_last_before_the_first_failure():
    rows = draw(np.random.default_rng(1), (900, 700, 800))
    frontier = sweep(*rows)
    point = frontier.at(0.15, confidence=0.95)
    rules = frontier._certifier._sequences.at(0.15)
    passes = []
    for i in range(len(rules)):
        columns = (
            column[i : i + 1] for column in (rules.setting, rules.thresholds, rules.selected)
        )
        passes.append(walk(Rules(*columns, rules.cells), frontier.criterion, 0.15, 0.05)[0])
    stop = passes.index(0) if 0 in passes else len(rules)
    assert stop > 0
    assert np.array_equal(point.thresholds, rules.thresholds[stop - 1])


def test_rows_are_split_at_random_but_always_the_same_way():
    logits, groups, y = draw(np.random.default_rng(2), (4000, 3000, 3000))
    scores = sweep(logits, groups, y).points.group_scores
    part, rest = split_scores(scores)
    for whole, a, b in zip(scores, part, rest, strict=True):
        assert np.array_equal(a.totals + b.totals, whole.totals)
        assert a.totals.sum() / whole.totals.sum() == pytest.approx(0.3, abs=0.03)
    order = np.random.default_rng(3).permutation(len(logits))
    shuffled = sweep(logits[order], groups[order], y[order]).points.group_scores
    assert np.array_equal(split_scores(shuffled)[0][0].lower, part[0].lower)
    other = sweep(logits + 1e-3, groups, y).points.group_scores
    assert len(split_scores(other)[0][0]) != len(part[0]) or not np.array_equal(
        split_scores(other)[0][0].lower, part[0].lower + 1e-3
    )
    tied = sweep(np.round(logits), groups, y).points.group_scores
    part, _ = split_scores(tied)
    shares = part[0].totals / tied[0].totals
    assert shares == pytest.approx(0.3, abs=0.05)  # ties are on both sides


def test_few_draws_exceed_the_tolerance():
    """The share of draws that are certified and wrong, with the population gap in closed form."""
    wrong, certified, draws = 0, 0, 60
    sizes, tolerance, alpha = (200, 300, 250), 0.25, 0.2
    for seed in range(draws):
        logits, groups, y = draw(np.random.default_rng([5, seed]), sizes)
        try:
            point = sweep(logits, groups, y).at(tolerance, confidence=1 - alpha)
        except CannotCertifyError:
            continue
        rates = ndtr((SHIFTS[:3] - point.thresholds) / 1.5)
        certified += 1
        wrong += rates.max() - rates.min() > tolerance
    assert certified > draws / 2
    assert wrong / draws <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / draws)


def test_a_guide_uses_all_rows_for_testing():
    rng = np.random.default_rng(4)
    other, frontier = (sweep(*draw(rng, sizes)) for sizes in ((900, 300, 360), (300, 100, 120)))
    guided = frontier.guided_by(other)
    with pytest.raises(CannotCertifyError) as alone:
        frontier.at(0.001, confidence=0.95)
    with pytest.raises(CannotCertifyError) as helped:
        guided.at(0.001, confidence=0.95)
    assert helped.value.smallest_tolerance < alone.value.smallest_tolerance
    point = guided.at(0.3, confidence=0.95)
    assert (guided.guide.thresholds == point.thresholds).all(axis=1).any()
    again = Frontier.from_json(guided.to_json())
    assert np.array_equal(again.at(0.3, confidence=0.95).thresholds, point.thresholds)
    two = sweep(*draw(rng, (300, 300)))
    for wrong in (two, frontier):
        with pytest.raises(InvalidInputError, match="other"):
            frontier.guided_by(wrong)


def test_a_refusal_names_the_small_group_and_what_it_needs():
    frontier = sweep(*draw(np.random.default_rng(6), (4000, 60, 3000)))
    with pytest.raises(CannotCertifyError) as caught:
        frontier.at(0.1, confidence=0.95)
    error = caught.value
    assert (error.group, error.group_rows) == (1, 60)
    assert error.smallest_tolerance > 0.1
    assert 60 < error.group_rows_needed < error.rows_needed
    assert frontier.at(error.smallest_tolerance, confidence=0.95).theorem == 5


def test_many_equal_groups_use_the_whole_dial_at_tight_tolerances():
    """Which theorem applies is decided by group sizes and the tolerance, not by counts."""
    rng = np.random.default_rng(7)
    groups = np.repeat(np.arange(12), 5000)
    frontier = sweep(rng.normal(0.05 * groups), groups)
    assert frontier.at(0.06, confidence=0.95).theorem == 2
    assert frontier.at(0.15, confidence=0.95).theorem == 5
    both = frontier.at([0.07, 0.15], confidence=0.95)
    assert both.certified_gap[0] <= 0.07
    assert both.certified_gap[1] == 0.15


def test_bands_hold_at_all_thresholds_with_ties():
    rng, alpha, draws, misses = np.random.default_rng(8), 0.2, 400, 0
    low, high = rate_band(60, alpha)
    thresholds = np.arange(-1, 12)
    true = (11 - np.clip(thresholds, -1, 11)) / 12  # of the integers 0 to 11
    for _ in range(draws):
        scores = rng.integers(0, 12, 60)
        counts = (scores[:, None] > thresholds).sum(axis=0)
        misses += ((true < low[counts]) | (true > high[counts])).any()
    assert misses / draws <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / draws)


def test_bands_are_narrower_for_rates_near_the_ends():
    low, high = rate_band(2000, 0.05)
    width = high - low
    assert max(width[40], width[1960]) < 0.6 * width[1000]
    assert np.allclose(low, 1 - high[::-1])
    assert (np.diff(low) >= 0).all()


@pytest.mark.parametrize("counts", [(30, 50), (400, 400), (90, 2000)])
def test_the_crossing_is_bounded(counts):
    for tolerance in (0.05, 0.1, 0.3):
        tail = exceedance(counts, tolerance, 0.0, family=1)
        bound = crossing(counts, tolerance)
        assert tail - 1e-6 <= bound
        assert bound <= max(1.5 * tail, 1e-3) or tail > 0.25


def test_the_rows_that_small_groups_need_are_enough():
    """Every group that has fewer gets as many as the refusal says."""
    rng = np.random.default_rng(9)
    for sizes in ((4000, 60, 3000), (5000, 90, 120, 4000)):
        with pytest.raises(CannotCertifyError) as caught:
            sweep(*draw(rng, sizes)).at(0.1, confidence=0.95)
        needed = caught.value.group_rows_needed
        assert f"{needed:,} in each group" in caught.value.enough
        enough = sum(
            certifies(sweep(*draw(rng, tuple(max(n, needed) for n in sizes))), 0.1)
            for _ in range(5)
        )
        assert enough >= 3


def certifies(frontier, tolerance):
    try:
        return frontier.at(tolerance, confidence=0.95).certified_gap <= tolerance
    except CannotCertifyError:
        return False


@pytest.mark.parametrize("confidence", [1e-300, 0.1, 0.499])
def test_a_confidence_below_one_half_is_refused(confidence):
    frontier = sweep(*draw(np.random.default_rng(10), (300, 300)))
    for ask in (
        lambda: frontier.at(0.3, confidence=confidence),
        lambda: frontier.margin(confidence),
        lambda: plan_calibration([0, 1], tolerance=0.3, confidence=confidence),
    ):
        with pytest.raises(InvalidInputError, match="confidence"):
            ask()


def test_confidence_doesnt_mix_points_that_arent_nested():
    logits, groups, y = draw(np.random.default_rng(11), (2000, 2000, 2000))
    frontier = sweep(logits, groups, y, criterion="equalized_odds")
    assert not frontier.nested
    mixed = np.where(groups == 0, 0.3, 0.4)
    with pytest.raises(InvalidInputError) as caught:
        frontier.decide(logits, groups, mixed, confidence=0.9)
    assert caught.value.argument == "tolerance"
    same = frontier.decide(logits, groups, np.full(len(groups), 0.4), confidence=0.9)
    point = frontier.at(0.4, confidence=0.9, simultaneous=True)
    assert np.array_equal(same, logits > point.thresholds[groups])
    path = sweep(logits[groups < 2], groups[groups < 2])
    assert path.nested
    path.decide(logits[groups < 2], groups[groups < 2], mixed[groups < 2], confidence=0.9)
