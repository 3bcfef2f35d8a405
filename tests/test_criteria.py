"""Laws of the criteria: the paper's thresholds, their inverses, and the records' names."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

from fairdial.criteria import (
    CRITERIA,
    DEMOGRAPHIC_PARITY,
    EQUAL_OPPORTUNITY,
    PREDICTIVE_EQUALITY,
    Criterion,
    criterion,
)
from fairdial.errors import InvalidInputError

SIGNS = np.array([-1.0, 1.0])  # the paper's 2a - 1


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


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.7, 0.3), (0.02, 0.4), (0.25, 0.2)])
def test_thresholds_are_the_logits_of_the_papers_probabilities(kind, shares):
    p = np.array(shares)
    low, high = open_interval(kind, p)
    for t in low + (high - low) * np.linspace(0.001, 0.999, 101):
        got = kind.rates[0].threshold(SIGNS * t, p)
        np.testing.assert_allclose(got, logit(kappa(kind, t, p)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
@given(z=st.floats(-15, 15))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_the_link_undoes_the_inverse(kind, z):
    rate = kind.rates[0]
    u = rate.inverse(z)
    np.testing.assert_allclose(rate.link(u), z, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(rate.inverse(rate.link(u)), u, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
def test_price_is_the_share_times_the_inverse_of_the_link(kind):
    z = np.linspace(-5, 5, 41)
    rate = kind.rates[0]
    np.testing.assert_allclose(rate.threshold(rate.price(z, 0.3), 0.3), z, atol=1e-9)
    assert rate.price(0.0, 0.3) == 0.0


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
def test_price_is_the_marginal_loss_of_expected_accuracy(kind):
    """Dropping a row of log-odds z loses 2 sigmoid(z) - 1; the rate moves by P(counted | z)."""
    z = np.linspace(-6, 6, 49)
    p = 1 / (1 + np.exp(-z))
    counted = {None: np.ones_like(z), 1: p, 0: 1 - p}[kind.rates[0].counted]
    np.testing.assert_allclose(kind.rates[0].inverse(z), (2 * p - 1) / counted, rtol=1e-9)


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
def test_no_price_means_threshold_zero(kind):
    assert kind.rates[0].threshold([0.0, -0.0], [0.6, 0.4]).tolist() == [0.0, 0.0]
    assert kind.rates[0].link(0.0) == 0.0
    assert kind.rates[0].inverse(0.0) == 0.0


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
def test_the_second_threshold_rises_and_the_first_falls_with_t(kind):
    p = np.array([0.35, 0.2])
    low, high = open_interval(kind, p)
    t = np.linspace(low, high, 203)[1:-1]
    thresholds = np.array([kind.rates[0].threshold(SIGNS * value, p) for value in t])
    assert np.isfinite(thresholds).all()
    assert (np.diff(thresholds[:, 0]) < 0).all()
    assert (np.diff(thresholds[:, 1]) > 0).all()


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
    assert kind.rates[0].threshold(u * 0.4, 0.4) == pytest.approx(threshold)


@pytest.mark.parametrize(
    ("kind", "u"),
    [
        (DEMOGRAPHIC_PARITY, 1.0001),
        (DEMOGRAPHIC_PARITY, -1.0001),
        (EQUAL_OPPORTUNITY, 1.0001),
        (PREDICTIVE_EQUALITY, -1.0001),
        (DEMOGRAPHIC_PARITY, np.nan),
        (EQUAL_OPPORTUNITY, np.nan),
        (PREDICTIVE_EQUALITY, np.nan),
    ],
)
def test_a_multiplier_outside_the_domain_is_refused(kind, u):
    with pytest.raises(InvalidInputError, match="multipliers"):
        kind.rates[0].threshold([0.0, u * 0.5], [0.5, 0.5])


def test_the_inverse_of_infinite_logits_is_the_end_of_the_domain():
    for kind in CRITERIA:
        rate = kind.rates[0]
        ends = rate.price([-np.inf, np.inf], 1.0)
        np.testing.assert_array_equal(ends, rate.domain)


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
def test_a_criterion_answers_to_its_name_its_aliases_and_itself(kind):
    assert criterion(kind.name) is kind
    assert criterion(kind) is kind
    assert str(kind) == kind.name
    for alias in kind.aliases:
        assert criterion(alias) is kind


def test_the_rate_parity_names_are_aliases():
    assert criterion("true_positive_rate_parity") is EQUAL_OPPORTUNITY
    assert criterion("false_positive_rate_parity") is PREDICTIVE_EQUALITY
    assert [kind.rates[0].counted for kind in CRITERIA] == [None, 1, 0]
    assert [kind.needs_labels for kind in CRITERIA] == [False, True, True]


@pytest.mark.parametrize("name", ["dp", "", "Demographic_Parity", None, 3])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(InvalidInputError, match=r"`criterion`.*demographic_parity") as caught:
        criterion(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("demographic parity", "got 'demographic parity'. Did you mean 'demographic_parity'?"),
        ("Equal-Opportunity", "Did you mean 'equal_opportunity'?"),
        ("equalized_odds", "predictive_equality for the other."),
        ("Equalised Odds", "predictive_equality for the other."),
        ("justice", "got 'justice'."),
        (3, "got 3."),
    ],
)
def test_a_criterion_that_was_probably_meant_is_named(name, ending):
    with pytest.raises(InvalidInputError) as caught:
        criterion(name)
    assert str(caught.value).endswith(ending)
    assert ("isn't supported" in str(caught.value)) == ("odds" in str(name).lower())


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
    assert len({*CRITERIA}) == 3
