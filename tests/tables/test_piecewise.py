"""Bins between quantiles, and how far values reach through them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fairdial.tables.piecewise import piecewise_linear, quantile_edges

finite = st.floats(-1e100, 1e100)
vectors = hnp.arrays(np.float64, st.integers(1, 60), elements=finite)
lumpy = hnp.arrays(np.float64, st.integers(1, 200), elements=st.integers(0, 30).map(float))


@given(st.one_of(vectors, lumpy), st.integers(1, 20))
def test_edges_rise_from_the_least_to_the_largest_value_and_are_values(
    values: np.ndarray, n_bins: int
) -> None:
    edges = quantile_edges(values, n_bins)
    assert edges[0] == values.min()
    assert edges[-1] == values.max()
    assert (np.diff(edges) > 0).all()
    assert np.isin(edges, values).all()
    assert len(edges) <= n_bins + 1


@given(lumpy)
def test_few_distinct_values_are_the_edges(values: np.ndarray) -> None:
    distinct = np.unique(values)
    assert np.array_equal(quantile_edges(values, max(len(distinct) - 1, 1)), distinct)


@given(lumpy, st.integers(1, 20))
def test_a_value_that_fills_a_bin_on_its_own_is_an_edge(values: np.ndarray, n_bins: int) -> None:
    distinct, counts = np.unique(values, return_counts=True)
    heavy = distinct[counts * n_bins > len(values)]
    assert np.isin(heavy, quantile_edges(values, n_bins)).all()


def test_a_column_that_is_mostly_zero_keeps_all_its_bins() -> None:
    values = np.r_[np.zeros(9_000), np.arange(1.0, 1_001.0)]
    assert len(quantile_edges(values, 16)) == 17


@given(st.integers(1, 20), st.integers(0, 9))
def test_bins_of_distinct_values_hold_equally_many_rows(n_bins: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=333)
    counts = np.histogram(values, quantile_edges(values, n_bins))[0]
    assert counts.max() - counts.min() <= 2


@given(vectors, st.integers(2, 20), hnp.arrays(np.float64, 30, elements=finite))
def test_components_lie_in_the_unit_interval_and_rise_with_the_value(
    values: np.ndarray, n_bins: int, new: np.ndarray
) -> None:
    edges = quantile_edges(values, n_bins)
    if len(edges) > 1:
        components = piecewise_linear(np.sort(np.r_[values, new]), edges)
        assert components.dtype == np.float32
        assert components.min() >= 0
        assert components.max() <= 1
        assert (np.diff(components, axis=0) >= 0).all()
        assert (np.diff(components, axis=1) <= 0).all()  # bins fill one after the other


@given(lumpy, st.integers(2, 20), hnp.arrays(np.float64, 30, elements=st.floats(-9, 40)))
def test_components_add_up_to_the_place_among_the_edges(
    values: np.ndarray, n_bins: int, new: np.ndarray
) -> None:
    edges = quantile_edges(values, n_bins)
    if len(edges) > 1:
        place = np.interp(new, edges, np.arange(len(edges)))
        total = piecewise_linear(new, edges).sum(axis=1, dtype=np.float64)
        assert np.allclose(total, place, rtol=0, atol=1e-6)


def test_components_add_up_to_the_rank_within_one_bin() -> None:
    values = np.random.default_rng(0).lognormal(size=1_000)
    rank = np.argsort(np.argsort(values)) / 999
    total = piecewise_linear(values, quantile_edges(values, 16)).sum(axis=1) / 16
    assert np.abs(total - rank).max() < 1 / 16
