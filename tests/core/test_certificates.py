"""Laws of the statements about new rows: exact sums, boundaries, and coverage by simulation."""

from __future__ import annotations

import re
from itertools import product
from math import comb
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr
from scipy.stats import binom, binomtest

from fairdial import sweep
from fairdial.core.certificates import (
    exceedance,
    gap_interval,
    inner_tolerance,
    rate_interval,
    smallest_tolerance,
    uniform_margin,
)
from fairdial.core.frontier import Frontier
from fairdial.errors import CannotCertifyError, InvalidInputError

ROOT = Path(__file__).resolve().parents[2]
CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")


# ---- the bound ---------------------------------------------------------------------------------


def binomial(n, p):
    """(n + 1, points) probabilities of every count, for an array of p."""
    return np.array([comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


def exact_missed(n_high, n_low, gap, seen, points=4001):
    """max over base rates of P(k_high / n_high - k_low / n_low <= seen): every pair of counts."""
    base = np.linspace(0, 1 - gap, points)
    high, low = binomial(n_high, base + gap), binomial(n_low, base)
    total = np.zeros(points)
    for i in range(n_high + 1):
        for j in range(n_low + 1):
            if i * n_low - j * n_high <= seen * n_high * n_low + 1e-9:
                total += high[i] * low[j]
    return total.max()


def exact_exceedance(counts, tolerance, inner):
    n, m = counts
    sides = [
        exact_missed(a, b, tolerance, inner) + exact_missed(b, a, tolerance, 0.0)
        for a, b in ((n, m), (m, n))
    ]
    return min(1.0, max(sides))


SMALL = [(1, 1), (1, 7), (2, 3), (5, 5), (4, 9), (12, 12), (12, 3), (10, 11)]


@pytest.mark.parametrize("counts", SMALL)
@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.25, 0.5, 0.8, 1.0])
def test_the_bound_is_the_double_sum_over_all_counts(counts, tolerance):
    for share in (0.0, 0.3, 0.7, 1.0):
        inner = share * tolerance
        expected = exact_exceedance(counts, tolerance, inner)
        got = exceedance(counts, tolerance, inner)
        assert got == pytest.approx(expected, abs=2e-4)
        assert got >= expected - 2e-4


def summed_missed(n_high, n_low, gap, seen):
    """As exact_missed, for more rows: one sum over the counts of the lower group."""
    base, k = np.linspace(0, 1 - gap, 3001)[:, None], np.arange(n_low + 1)
    most = np.floor(n_high * (seen + k / n_low) + 1e-9)
    tail = np.where(most < 0, 0.0, binom.cdf(most, n_high, base + gap))
    return (binom.pmf(k, n_low, base) * tail).sum(axis=1).max()


@pytest.mark.parametrize(
    ("counts", "tolerance", "alpha"),
    [
        ((268, 21), 0.5177846, 0.1),
        ((351, 30), 0.5138514, 0.05),
        ((303, 25), 0.4446722, 0.1),
        ((214, 19), 0.4434065, 0.05),
        ((100, 80), 0.3, 0.05),
        ((60, 60), 0.4, 0.05),
    ],
)
def test_the_inner_tolerance_holds_at_every_base_rate(counts, tolerance, alpha):
    inner = inner_tolerance(counts, tolerance, alpha)
    n, m = counts
    for a, b in ((n, m), (m, n)):
        bound = summed_missed(a, b, tolerance, inner) + summed_missed(b, a, tolerance, 0.0)
        assert bound <= alpha * 1.005


def test_the_bound_never_falls_with_the_inner_tolerance():
    for counts in ((30, 50), (200, 90), (1000, 1000)):
        bounds = [exceedance(counts, 0.2, inner) for inner in np.linspace(0, 0.2, 41)]
        assert (np.diff(bounds) >= -1e-6).all()
    assert exceedance((100, 100), 0.1, 0.1000001) == 1.0


def test_the_bound_does_not_depend_on_the_order_of_the_groups():
    for counts in ((30, 50), (12, 400), (77, 76)):
        for inner in (0.0, 0.05, 0.1):
            assert exceedance(counts, 0.15, inner) == exceedance(counts[::-1], 0.15, inner)


@pytest.mark.parametrize("counts", [(40, 60), (100, 100), (313, 190), (800, 1200)])
@pytest.mark.parametrize("tolerance", [0.2, 0.3, 0.5])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_inner_tolerance_is_the_boundary_of_the_bound(counts, tolerance, alpha):
    inner = inner_tolerance(counts, tolerance, alpha)
    if inner < 0:
        assert exceedance(counts, tolerance, 0.0) > alpha
        return
    assert 0 <= inner <= tolerance
    assert exceedance(counts, tolerance, inner) <= alpha
    lattice = 1 / (counts[0] * counts[1])
    assert exceedance(counts, tolerance, inner + lattice) > alpha


@pytest.mark.parametrize("counts", [(3431, 3439), (500, 499), (1000, 1001)])
def test_nearly_equal_groups_have_the_usual_margin(counts):
    """Their steps are tiny and the worst base rate drifts with the inner tolerance."""
    usual = 0.82 * np.sqrt(1 / counts[0] + 1 / counts[1])
    for tolerance in np.linspace(1.5 * usual, 0.3, 12).tolist():
        inner = inner_tolerance(counts, tolerance, 0.05)
        assert tolerance - inner == pytest.approx(usual, rel=0.08)
        assert exceedance(counts, tolerance, inner) <= 0.05
        assert exceedance(counts, tolerance, inner + 1e-4) > 0.05


@pytest.mark.parametrize(
    ("n", "declared", "whole"),
    [(500, 0.052, 0.132), (5_000, 0.0164, 0.042), (50_000, 0.0052, 0.013)],
)
def test_margins_shrink_with_the_square_root_of_the_rows(n, declared, whole):
    for tolerance in (0.1, 0.2):
        inner = inner_tolerance((n, n), tolerance, 0.05)
        assert tolerance - inner == pytest.approx(declared, rel=0.04)
    assert uniform_margin((n, n), 0.05) == pytest.approx(whole, rel=0.04)


def test_the_documented_smallest_tolerances_are_those_of_the_code():
    page = (ROOT / "docs" / "tolerance.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert [row[0] for row in rows] == ["500", "1,000", "5,000", "10,000", "50,000"]
    for people, *shown in rows:
        n = int(people.replace(",", ""))
        computed = (
            smallest_tolerance((n, n), 0.05, 0.0),
            uniform_margin((n, n), 0.05),
            uniform_margin((n, n, n), 0.05),
        )
        assert [f"{value:.3f}" for value in computed] == shown


def test_the_documented_price_of_one_declared_tolerance_is_that_of_the_code():
    page = (ROOT / "docs" / "confidence.md").read_text("utf-8")
    found = re.search(r"The price is about \$([\d.]+)\\sqrt{1/m_0 \+ 1/m_1}\$ at 95%", page)
    assert found is not None
    for counts in ((5_000, 5_000), (4_000, 20_000)):
        price = 0.2 - inner_tolerance(counts, 0.2, 0.05)
        assert price == pytest.approx(
            float(found[1]) * np.sqrt(1 / counts[0] + 1 / counts[1]), rel=0.03
        )


def test_the_margin_of_several_groups_is_the_sum_of_the_two_largest():
    counts, alpha = (100, 400, 900), 0.05
    each = [np.sqrt(np.log(2 * 3 / alpha) / (2 * m)) for m in counts]
    assert uniform_margin(counts, alpha) == pytest.approx(each[0] + each[1])
    assert uniform_margin((100,), alpha) == 0.0


@pytest.mark.parametrize("counts", [(60, 60), (400, 150), (2000, 3000)])
def test_the_smallest_tolerance_holds_and_a_little_less_does_not(counts):
    for inner in (0.0, 0.01, 0.1):
        smallest = smallest_tolerance(counts, 0.05, inner)
        assert exceedance(counts, smallest, inner) <= 0.05
        assert exceedance(counts, smallest - 3e-4, inner) > 0.05
    assert smallest_tolerance((1, 1), 0.05, 0.0) == pytest.approx(0.975, abs=2e-4)
    assert smallest_tolerance((1, 1), 0.05, 1.0) == np.inf


# ---- the dial ----------------------------------------------------------------------------------

BASE_RATES, SEPARATIONS = (0.3, 0.6), (1.2, 1.5)


def draw(rng, n_group):
    """True log-odds, groups and labels, given how many rows each group and label have."""
    groups = np.repeat([0, 1], n_group)
    pi, d = np.take(BASE_RATES, groups), np.take(SEPARATIONS, groups)
    y = np.tile(np.arange(n_group), 2) < np.round(pi * n_group)
    mean = np.where(y, 1, -1) * d**2 / 2 + logit(pi)
    return rng.normal(mean, d), groups, y.astype(int)


def population_gap(criterion, thresholds):
    """|difference of the groups' rates| in the population, in closed form."""
    pi, d = np.array(BASE_RATES), np.array(SEPARATIONS)
    tpr = ndtr((d**2 / 2 + logit(pi) - thresholds) / d)
    fpr = ndtr((-(d**2) / 2 + logit(pi) - thresholds) / d)
    rates = {
        "demographic_parity": pi * tpr + (1 - pi) * fpr,
        "equal_opportunity": tpr,
        "predictive_equality": fpr,
    }[criterion]
    return np.abs(rates[..., 1] - rates[..., 0])


def test_the_closed_forms_are_those_of_the_drawn_rows():
    logits, groups, y = draw(np.random.default_rng(0), 200_000)
    thresholds = np.array([-0.4, 0.7])
    decisions = logits > thresholds[groups]
    for criterion, rows in zip(CRITERIA, (y >= 0, y == 1, y == 0), strict=True):
        rates = [decisions[rows & (groups == a)].mean() for a in (0, 1)]
        assert abs(rates[1] - rates[0]) == pytest.approx(
            population_gap(criterion, thresholds), abs=0.006
        )
    assert np.mean(expit(logits[groups == 0])) == pytest.approx(BASE_RATES[0], abs=0.005)


def exceeding(criterion, tolerance, draws, *, n_group=300, **question):
    """How often the population gap is above the tolerance, over draws of calibration rows."""
    rng = np.random.default_rng(20_240)
    count = 0
    for _ in range(draws):
        logits, groups, y = draw(rng, n_group)
        frontier = sweep(logits, groups, y, criterion=criterion)
        point = frontier.at(tolerance, **question)
        count += population_gap(criterion, point.thresholds) > tolerance
    return count / draws


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_declared_tolerance_holds_with_its_confidence(criterion):
    alpha, draws = 0.1, 400
    tolerance = 0.15 if criterion == "demographic_parity" else 0.2
    exceeded = exceeding(criterion, tolerance, draws, confidence=1 - alpha)
    assert exceeded <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / draws)


def test_the_whole_dial_holds_with_its_confidence():
    alpha, draws = 0.1, 400
    rng = np.random.default_rng(7)
    exceeded = 0
    for _ in range(draws):
        logits, groups, _ = draw(rng, 300)
        frontier = sweep(logits, groups)
        thresholds, _ = frontier.points.read(np.arange(len(frontier)))
        beyond = population_gap("demographic_parity", thresholds) - frontier.gap
        exceeded += beyond.max() > frontier.margin(1 - alpha)
    assert exceeded / draws <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / draws)


def test_a_simultaneous_certificate_holds():
    exceeded = exceeding("demographic_parity", 0.2, 400, confidence=0.9, simultaneous=True)
    assert exceeded <= 0.1


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_plain_answer_exceeds_the_tolerance_about_half_the_time(criterion):
    assert 0.35 <= exceeding(criterion, 0.15, 400) <= 0.65


@pytest.mark.parametrize("simultaneous", [False, True])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_a_refusal_names_a_tolerance_that_then_succeeds(n_groups, simultaneous):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        groups = rng.integers(0, n_groups, int(rng.integers(150, 1500)))
        frontier = sweep(rng.normal(0.3 * groups), groups)
        with pytest.raises(CannotCertifyError, match=r"`tolerance=0\.001`") as caught:
            frontier.at(0.001, confidence=0.95, simultaneous=simultaneous)
        assert caught.value.rows_needed > len(groups)
        smallest = caught.value.smallest_tolerance
        assert 0.001 < smallest <= 1
        point = frontier.at(smallest, confidence=0.95, simultaneous=simultaneous)
        assert point.certified_gap <= smallest
        assert point.confidence == 0.95


def test_no_sample_size_certifies_a_gap_of_zero():
    frontier = sweep(*draw(np.random.default_rng(0), 300))
    with pytest.raises(CannotCertifyError, match="no sample size") as caught:
        frontier.at(0.0, confidence=0.9)
    assert caught.value.rows_needed is None


def test_too_few_rows_certify_nothing():
    frontier = sweep([-1.0, 1.0, 2.0, -2.0], [0, 0, 1, 1], min_count=1)
    with pytest.raises(CannotCertifyError) as caught:
        frontier.at(0.9, confidence=0.999, simultaneous=True)
    assert caught.value.smallest_tolerance is None


def test_rows_needed_are_about_enough():
    frontier = sweep(*draw(np.random.default_rng(0), 300))
    with pytest.raises(CannotCertifyError) as caught:
        frontier.at(0.03, confidence=0.95)
    needed = caught.value.rows_needed
    more = sweep(*draw(np.random.default_rng(1), int(0.6 * needed)))
    assert more.at(0.03, confidence=0.95).certified_gap <= 0.03


def test_several_tolerances_share_the_error_probability():
    frontier = sweep(*draw(np.random.default_rng(0), 2_000))
    alone = frontier.at(0.2, confidence=0.95)
    together = frontier.at([0.2, 0.25, 0.3], confidence=0.95)
    assert together[0].gap < alone.gap
    same = frontier.at([0.2, 0.2, 0.2], confidence=0.95)
    assert same.gap.tolist() == [alone.gap] * 3
    assert together.certified_gap.tolist() == [0.2, 0.25, 0.3]


def test_no_tolerance_at_all_is_an_empty_answer():
    frontier = sweep(*draw(np.random.default_rng(0), 300))
    assert len(frontier.at([])) == 0
    assert len(frontier.at([], confidence=0.9)) == 0


def test_a_simultaneous_certificate_is_stricter_than_a_declared_one():
    frontier = sweep(*draw(np.random.default_rng(0), 2_000))
    declared = frontier.at(0.2, confidence=0.95)
    simultaneous = frontier.at(0.2, confidence=0.95, simultaneous=True)
    assert simultaneous.gap < declared.gap < frontier.at(0.2).gap
    assert simultaneous.gap < simultaneous.certified_gap <= 0.2


def test_scores_of_rows_that_the_scorer_has_seen_certify_nothing():
    whole = sweep(*draw(np.random.default_rng(0), 300))
    seen = Frontier(whole.points, whole.problem, whole.groups, whole.cells, "none")
    for question in ({}, {"simultaneous": True}):
        with pytest.raises(CannotCertifyError, match="`confidence`"):
            seen.at(0.3, confidence=0.9, **question)
    with pytest.raises(CannotCertifyError, match="`confidence`"):
        seen.margin()
    assert seen.at(0.3).gap <= 0.3


def test_a_simultaneous_frontier_ignores_declared_tolerances():
    whole = sweep(*draw(np.random.default_rng(0), 2_000))
    weaker = Frontier(whole.points, whole.problem, whole.groups, whole.cells, "simultaneous")
    one, two = weaker.at(0.2, confidence=0.9), whole.at(0.2, confidence=0.9, simultaneous=True)
    assert one.thresholds.tolist() == two.thresholds.tolist()


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 1.5, np.nan, "0.9", True])
def test_an_invalid_confidence_is_refused(confidence):
    frontier = sweep(*draw(np.random.default_rng(0), 100))
    with pytest.raises(InvalidInputError, match="`confidence`"):
        frontier.at(0.3, confidence=confidence)
    with pytest.raises(InvalidInputError, match="`confidence`"):
        frontier.margin(confidence)


@pytest.mark.parametrize("how", ["thin", "pareto"])
def test_a_thinned_frontier_certifies_or_refuses(how):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        logits, groups, y = draw(rng, 300)
        whole = sweep(logits + rng.normal(0, 2) * (groups == 1), groups, y)
        fewer = whole.thin(12) if how == "thin" else whole.pareto()
        for tolerance in (0.001, 0.2):
            inner = inner_tolerance((300, 300), tolerance, 0.1)
            if (fewer.gap[fewer.points.certifiable] <= inner).any():
                assert fewer.at(tolerance, confidence=0.9).gap <= inner
            else:
                with pytest.raises(CannotCertifyError, match="`tolerance="):
                    fewer.at(tolerance, confidence=0.9)


def test_points_at_a_single_setting_are_not_certified():
    """Scores that tie across groups make points that hold at one value of t only."""
    logits = np.r_[np.linspace(-2, 2, 81), np.linspace(-2, 2, 81) + 1.0]
    frontier = sweep(logits, np.repeat([0, 1], 81))
    path = frontier.points
    single = np.r_[path.cost[1:] == path.cost[:-1], False]
    assert single[1:].any()
    assert not path.certifiable[1:][single[1:]].any()
    assert path.certifiable[0]  # t = 0 was fixed beforehand


def test_coarse_steps_have_no_number_of_needed_rows():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1], 3000)
    logits = np.where(rng.random(6000) < np.where(groups == 1, 0.6, 0.4), 1.0, -1.0)
    with pytest.raises(CannotCertifyError, match="no sample size") as refused:
        sweep(logits, groups).at(0.15, confidence=0.95)
    assert refused.value.rows_needed is None
    assert refused.value.smallest_tolerance > 0.2


def test_groups_at_opposite_infinities_are_refused_not_broken():
    logits = np.r_[np.full(50, np.inf), np.full(50, -np.inf)]
    with pytest.raises(CannotCertifyError):
        sweep(logits, np.repeat([0, 1], 50)).at(0.05, confidence=0.95)


@pytest.mark.parametrize(
    ("counts", "tolerance", "alpha"),
    [((1533, 13), 0.406, 0.05), ((1986, 223), 0.58, 0.01), ((351, 30), 0.514, 0.05)],
)
def test_the_bound_holds_at_every_base_rate_of_unequal_groups(counts, tolerance, alpha):
    from fairdial.core.certificates import _missed

    inner = inner_tolerance(counts, tolerance, alpha)
    base = np.array_split(np.linspace(0, 1 - tolerance, 40_001), 40)

    def worst(high, low, seen):
        return max(_missed(high, low, tolerance, seen, part).max() for part in base)

    first, second = counts
    assert worst(first, second, inner) + worst(second, first, 0.0) <= alpha
    assert worst(second, first, inner) + worst(first, second, 0.0) <= alpha


# ---- decisions that were fixed beforehand ------------------------------------------------------


@pytest.mark.parametrize(("selected", "rows"), [(0, 9), (9, 9), (3, 40), (700, 1000)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_interval_of_a_rate_is_clopper_and_pearsons(selected, rows, level):
    exact = binomtest(selected, rows).proportion_ci(level, method="exact")
    assert rate_interval(selected, rows, level) == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize("rows", [(5, 12), (1, 30), (4, 5, 6)])
@pytest.mark.parametrize("level", [0.6, 0.95])
def test_the_interval_of_a_gap_covers_it_for_all_rates(rows, level):
    grid = np.array([0.0, 0.03, 0.2, 0.5, 0.65, 0.97, 1.0])
    rates = np.array(list(product(grid, repeat=len(rows))))  # (points, K)
    gap, held = np.ptp(rates, axis=1), np.zeros(len(rates))
    chances = [binomial(n, rates[:, a]) for a, n in enumerate(rows)]  # (n + 1, points) each
    for counts in product(*(range(n + 1) for n in rows)):
        low, high = gap_interval(counts, rows, level)
        weight = np.prod([chance[k] for chance, k in zip(chances, counts, strict=True)], axis=0)
        held += weight * ((low <= gap + 1e-12) & (gap <= high + 1e-12))
    assert held.min() >= level - 1e-9


def test_the_interval_of_a_gap_contains_the_sample_gap_and_shrinks_with_rows():
    before = np.inf
    for n in (50, 500, 5000, 500_000):
        low, high = gap_interval([n // 2, n // 5, n // 4], [n, n, n])
        assert low <= 0.3 <= high
        assert high - low < before
        before = high - low
    assert before < 0.007


def test_one_group_has_no_gap():
    assert gap_interval([3], [9]) == (0.0, 0.0)


def test_the_widest_gap_is_between_two_groups():
    low, high = rate_interval(1, 1, 0.975)
    assert gap_interval([1, 500], [1, 1000])[1] < high - low  # not one group's own interval
