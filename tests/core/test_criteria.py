"""Laws of the criteria: the paper's thresholds, their inverses, and the records' names."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

from fairdial.core.criteria import (
    CRITERIA,
    DEMOGRAPHIC_PARITY,
    EQUAL_OPPORTUNITY,
    PREDICTIVE_EQUALITY,
    Criterion,
    criterion,
)
from fairdial.errors import InvalidInputError

SIGNS = np.array([-1.0, 1.0])  # the paper's 2a - 1
PAPER = (DEMOGRAPHIC_PARITY, EQUAL_OPPORTUNITY, PREDICTIVE_EQUALITY)
LOGITS = np.linspace(-6, 6, 49)


def kappa(kind: Criterion, t: float, p: np.ndarray) -> np.ndarray:
    """Probability thresholds of the paper, group by group."""
    s_t = SIGNS * t
    if kind is DEMOGRAPHIC_PARITY:
        return 0.5 + s_t / (2 * p)
    if kind is EQUAL_OPPORTUNITY:
        return p / (2 * p - s_t)
    return (p + s_t) / (2 * p + s_t)


def open_interval(kind: Criterion, p: np.ndarray) -> tuple[float, float]:
    """The settings t at which both thresholds of the paper are finite."""
    if kind is DEMOGRAPHIC_PARITY:
        return -p.min(), p.min()
    if kind is EQUAL_OPPORTUNITY:
        return -p[0], p[1]
    return -p[1], p[0]


@pytest.mark.parametrize("kind", PAPER, ids=str)
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.7, 0.3), (0.02, 0.4), (0.25, 0.2)])
def test_thresholds_are_the_logits_of_the_papers_probabilities(kind, shares):
    p = np.array(shares)
    low, high = open_interval(kind, p)
    for t in low + (high - low) * np.linspace(0.001, 0.999, 101):
        got = kind.rate.threshold(SIGNS * t, p)
        np.testing.assert_allclose(got, logit(kappa(kind, t, p)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", PAPER, ids=str)
@given(z=st.floats(-15, 15))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_the_link_undoes_the_inverse(kind, z):
    rate = kind.rate
    u = rate.inverse(z)
    assert rate.domain[0] < u < rate.domain[1]
    np.testing.assert_allclose(rate.link(u), z, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(rate.inverse(rate.link(u)), u, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("kind", PAPER, ids=str)
def test_the_slope_is_the_derivative_of_the_link(kind):
    rate, h = kind.rate, 1e-6
    rise = rate.inverse(LOGITS + h) - rate.inverse(LOGITS - h)
    np.testing.assert_allclose(rate.slope(rate.inverse(LOGITS)), 2 * h / rise, rtol=1e-5)


@pytest.mark.parametrize("kind", PAPER, ids=str)
def test_price_is_the_share_times_the_inverse_of_the_link(kind):
    rate = kind.rate
    np.testing.assert_allclose(rate.threshold(rate.price(LOGITS, 0.3), 0.3), LOGITS, atol=1e-9)
    assert rate.price(0.0, 0.3) == 0.0


@pytest.mark.parametrize("kind", PAPER, ids=str)
def test_price_is_the_marginal_loss_of_expected_accuracy(kind):
    """Dropping a row of log-odds z loses 2 sigmoid(z) - 1; the rate moves by P(eligible | z)."""
    p = 1 / (1 + np.exp(-LOGITS))
    eligible = {None: np.ones_like(p), 1: p, 0: 1 - p}[kind.rate.eligible]
    np.testing.assert_allclose(kind.rate.inverse(LOGITS), (2 * p - 1) / eligible, rtol=1e-9)


@pytest.mark.parametrize("kind", PAPER, ids=str)
def test_no_price_means_threshold_zero(kind):
    assert kind.rate.threshold([0.0, -0.0], [0.6, 0.4]).tolist() == [0.0, 0.0]
    assert kind.rate.link(0.0) == 0.0
    assert kind.rate.inverse(0.0) == 0.0


@pytest.mark.parametrize("kind", PAPER, ids=str)
def test_thresholds_rise_with_the_multiplier_over_the_whole_domain(kind):
    multipliers = 0.35 * kind.rate.inverse(LOGITS)
    thresholds = kind.rate.threshold(multipliers, 0.35)
    assert np.isfinite(thresholds).all()
    assert (np.diff(multipliers) > 0).all()
    assert (np.diff(thresholds) > 0).all()


@pytest.mark.parametrize(
    ("kind", "u", "threshold"),
    [
        (DEMOGRAPHIC_PARITY, 1.0, np.inf),
        (DEMOGRAPHIC_PARITY, -1.0, -np.inf),
        (EQUAL_OPPORTUNITY, 1.0, np.inf),
        (EQUAL_OPPORTUNITY, -1e6, -np.log1p(1e6)),
        (PREDICTIVE_EQUALITY, -1.0, -np.inf),
        (PREDICTIVE_EQUALITY, 1e6, np.log1p(1e6)),
    ],
)
def test_thresholds_are_infinite_at_the_proper_end_only(kind, u, threshold):
    assert kind.rate.threshold(u * 0.4, 0.4) == pytest.approx(threshold)


@pytest.mark.parametrize("kind", PAPER, ids=str)
def test_a_multiplier_outside_the_domain_is_refused(kind):
    low, high = kind.rate.domain
    outside = [end for end in (low - 1e-4, high + 1e-4) if np.isfinite(end)]
    for u in (*outside, np.nan):
        with pytest.raises(InvalidInputError, match="multipliers"):
            kind.rate.threshold([0.0, u * 0.5], [0.5, 0.5])


def test_the_inverse_of_infinite_logits_is_the_end_of_the_domain():
    for kind in PAPER:
        rate = kind.rate
        ends = rate.price([-np.inf, np.inf], 1.0)
        np.testing.assert_array_equal(ends, rate.domain)


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
def test_a_criterion_answers_to_its_name_its_aliases_and_itself(kind):
    assert criterion(kind.name) is kind
    assert criterion(kind) is kind
    assert str(kind) == kind.name
    for alias in kind.aliases:
        assert criterion(alias) is kind


def test_names_and_aliases_differ():
    names = [name for kind in CRITERIA for name in (kind.name, *kind.aliases)]
    assert len(set(names)) == len(names)
    assert criterion("true_positive_rate_parity") is EQUAL_OPPORTUNITY
    assert criterion("false_positive_rate_parity") is PREDICTIVE_EQUALITY


def test_the_criteria_of_the_paper_are_those_whose_thresholds_have_a_closed_form():
    assert [kind for kind in CRITERIA if kind.is_simple] == [*PAPER]
    for kind in set(CRITERIA) - set(PAPER):
        with pytest.raises(InvalidInputError) as caught:
            kind.rate  # noqa: B018
        assert caught.value.argument == "criterion"


@pytest.mark.parametrize("kind", PAPER, ids=str)
def test_labels_make_rows_eligible(kind):
    positive = np.array([True, False, True])
    eligible = {None: [True] * 3, 1: positive, 0: ~positive}[kind.rate.eligible]
    np.testing.assert_array_equal(kind.eligible_rows(positive), eligible)


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
def test_a_criterion_needs_labels_if_they_change_its_rates(kind):
    counts = np.array([[40, 70], [60, 30]])
    selected = np.array([[10, 30], [35, 15]])
    flipped = kind.rates_of(selected[::-1], counts[::-1])
    changes = not np.array_equal(kind.rates_of(selected, counts), flipped)
    assert kind.needs_labels == changes
    assert kind.description


@pytest.mark.parametrize("name", ["dp", "", "Demographic_Parity", None, 3])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(InvalidInputError) as caught:
        criterion(name)
    assert (caught.value.argument, caught.value.given) == ("criterion", repr(name))
    assert not isinstance(name, str) or "demographic_parity" in caught.value.allowed


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("demographic parity", "'demographic_parity'"),
        ("Equal-Opportunity", "'equal_opportunity'"),
        ("equalized odds", "'equalized_odds'"),
        ("Equalised Odds", "'equalised_odds'"),
        ("true positive rate", "true_positive_rate>="),
        ("justice", None),
        (3, None),
    ],
)
def test_a_hint_names_the_criterion_that_was_probably_meant(name, named):
    with pytest.raises(InvalidInputError) as caught:
        criterion(name)
    assert (caught.value.argument, caught.value.given) == ("criterion", repr(name))
    assert bool(caught.value.hints) == (named is not None)
    assert named is None or named in caught.value.hints[0]


def test_gap_is_the_spread_and_disparity_its_signed_form():
    rates = np.array([[0.2, 0.5], [0.9, 0.4]])
    np.testing.assert_allclose(DEMOGRAPHIC_PARITY.gap(rates), [0.3, 0.5])
    np.testing.assert_allclose(DEMOGRAPHIC_PARITY.disparity(rates), [0.3, -0.5])
    assert DEMOGRAPHIC_PARITY.gap([0.1, 0.4, 0.2]) == pytest.approx(0.3)
    with pytest.raises(InvalidInputError, match="`rates`"):
        DEMOGRAPHIC_PARITY.disparity([0.1, 0.4, 0.2])


def test_criteria_are_frozen_records():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEMOGRAPHIC_PARITY.name = "other"
    assert len({*CRITERIA}) == len(CRITERIA)
