"""Laws of groups' scores: counts equal plain counting, and opened bins have the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairdial.core.flat_groups import FlatGroups
from fairdial.core.group_scores import GroupScores, sort_scores, total_counts
from fairdial.core.histograms import BITS, Grid, Histogram
from fairdial.errors import InvalidInputError

GENERATORS = {
    "continuous": lambda rng, n: rng.normal(size=n),
    "tied": lambda rng, n: rng.normal(size=n).round(1),
    "signed zeros": lambda rng, n: rng.choice([-0.0, 0.0, -1.0, 1.0], n),
    "at the edges": lambda rng, n: rng.integers(-20, 20, n) / Grid(BITS).scale,
    "beyond the bins": lambda rng, n: rng.normal(size=n) * 30,
    "infinite": lambda rng, n: np.where(
        rng.random(n) < 0.2, rng.choice([-np.inf, np.inf], n), rng.normal(size=n)
    ),
    "tiny": lambda rng, n: rng.normal(size=n) * 1e-310,
    "constant": lambda rng, n: np.full(n, rng.choice([-3.0, 0.0, 2.5])),
}


def naive(scores, labels):
    """Distinct scores from the highest down, with rows by label, by counting each one."""
    table = {}
    for score, label in zip(scores.tolist(), labels.tolist(), strict=True):
        table.setdefault(score + 0.0, [0, 0])[label] += 1
    values = sorted(table, reverse=True)
    return values, np.array([table[value] for value in values]).reshape(-1, 2).T


def draw(name, seed, n=80, n_groups=3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    logits = GENERATORS[name](rng, n).astype(dtype)
    codes = rng.permutation(np.arange(n) % n_groups)
    return logits, codes, rng.random(n) < 0.4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("n_groups", [1, 2, 3, 7])
def test_distinct_scores_agree_with_plain_counting(name, dtype, n_groups):
    logits, codes, positive = draw(name, n_groups, n_groups=n_groups, dtype=dtype)
    group_scores = sort_scores(logits, codes, positive, n_groups)
    for a, group in enumerate(group_scores):
        values, counts = naive(logits[codes == a], positive[codes == a])
        assert group.lower.tolist() == values
        assert group.upper.tolist() == values
        np.testing.assert_array_equal(group.counts, counts)
        assert not np.signbit(group.lower[group.lower == 0]).any()
        assert not group.is_bin.any()
    for group, bare in zip(group_scores, sort_scores(logits, codes, None, n_groups), strict=True):
        assert bare.lower.tolist() == group.lower.tolist()
        np.testing.assert_array_equal(bare.counts, group.counts.sum(axis=0, keepdims=True))


@pytest.mark.parametrize("name", GENERATORS)
def test_the_rank_of_a_threshold_selects_the_rows_strictly_above_it(name):
    logits, codes, positive = draw(name, 5, n_groups=2)
    for a, group in enumerate(sort_scores(logits, codes, positive, 2)):
        mine, labels = logits[codes == a], positive[codes == a]
        near = mine[np.isfinite(mine)]
        thresholds = np.concatenate(
            ([-np.inf, np.inf, 0.0, -0.0], mine, near + 0.01, np.nextafter(near, -np.inf))
        )
        ranks = group.rank(thresholds)
        for threshold, rank in zip(thresholds, ranks, strict=True):
            above = mine > threshold
            expected = [np.sum(above & ~labels), np.sum(above & labels)]
            assert group.selected[:, rank].tolist() == expected
            assert group.below[rank] <= threshold or group.below[rank] == -np.inf
            assert threshold < group.above[rank] or rank == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("labeled", [True, False])
def test_histogram_counts_at_edges_are_exact(name, dtype, labeled):
    logits, codes, positive = draw(name, 11, n=300, dtype=dtype)
    histogram = Histogram(logits, codes, positive if labeled else None, 3)
    for a, group in enumerate(histogram.group_scores):
        mine, labels = logits[codes == a], positive[codes == a]
        assert group.counts.sum() == len(mine)
        for i in range(len(group)):
            inside = (mine >= group.lower[i]) & (mine <= group.upper[i])
            expected = [np.sum(inside & ~labels), np.sum(inside & labels)]
            assert group.counts[:, i].tolist() == (expected if labeled else [sum(expected)])
        assert (group.upper[1:] < group.lower[:-1]).all()
        above_zero = group.selected[:, group.rank(0.0)].sum()
        assert above_zero == np.sum(mine > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("labeled", [True, False])
def test_opening_every_bin_gives_the_sorted_scores(name, dtype, labeled):
    logits, codes, positive = draw(name, 13, n=400, dtype=dtype)
    y = positive if labeled else None
    histogram = Histogram(logits, codes, y, 3)
    histogram.open_bins([np.flatnonzero(group.is_bin) for group in histogram.group_scores])
    for opened, exact in zip(histogram.group_scores, sort_scores(logits, codes, y, 3), strict=True):
        assert opened.lower.tolist() == exact.lower.tolist()
        assert opened.upper.tolist() == exact.upper.tolist()
        np.testing.assert_array_equal(opened.counts, exact.counts)


@pytest.mark.parametrize("name", GENERATORS)
def test_opening_bins_in_any_order_gives_the_sorted_scores(name):
    logits, codes, positive = draw(name, 17, n=200)
    rng = np.random.default_rng(17)
    histogram = Histogram(logits, codes, positive, 3)
    while any(group.is_bin.any() for group in histogram.group_scores):
        wanted = []
        for group in histogram.group_scores:
            wide = np.flatnonzero(group.is_bin)
            wanted.append(np.sort(rng.permutation(wide)[: 1 + len(wide) // 3]))
        histogram.open_bins(wanted)
        sizes = [int(group.counts.sum()) for group in histogram.group_scores]
        assert sizes == np.bincount(codes, minlength=3).tolist()
    for opened, exact in zip(
        histogram.group_scores, sort_scores(logits, codes, positive, 3), strict=True
    ):
        assert opened.lower.tolist() == exact.lower.tolist()
        np.testing.assert_array_equal(opened.counts, exact.counts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_histogram_takes_the_largest_floats(dtype):
    largest = np.finfo(dtype).max
    logits = np.array([largest, -largest, largest / 2, -largest / 2, np.inf, -np.inf], dtype)
    histogram = Histogram(logits, np.zeros(6, np.int64), None, 1)
    histogram.open_bins([np.flatnonzero(histogram.group_scores[0].is_bin)])
    assert histogram.group_scores[0].lower.tolist() == sorted(logits.tolist(), reverse=True)


def test_a_histogram_longer_than_a_chunk_counts_every_row():
    rng = np.random.default_rng(0)
    n = (1 << 16) * 2 + 77
    logits, codes, positive = rng.normal(size=n), rng.integers(0, 4, n), rng.random(n) < 0.5
    histogram = Histogram(logits, codes.astype(np.int8), positive, 4)
    assert histogram.counts.shape == (4, 2, 1 << BITS)
    for a in range(4):
        for label in (0, 1):
            expected = np.sum((codes == a) & (positive == label))
            assert histogram.counts[a, label].sum() == expected


@pytest.mark.parametrize("make", [sort_scores, Histogram])
def test_nan_is_refused_and_its_row_is_named(make):
    logits = np.array([0.0, 1.0, np.nan, np.nan])
    with pytest.raises(InvalidInputError, match=r"`logits`.*row 2"):
        make(logits, np.array([0, 0, 1, 1]), None, 2)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("n_bins", [1, 4, 16])
def test_coarsening_keeps_the_rows_and_zero_as_an_edge(name, n_bins):
    logits, codes, positive = draw(name, 19, n=500, n_groups=2)
    for a, group in enumerate(sort_scores(logits, codes, positive, 2)):
        coarse = group.coarsen(n_bins)
        mine = logits[codes == a]
        np.testing.assert_array_equal(coarse.counts.sum(axis=1), group.counts.sum(axis=1))
        assert len(coarse) <= n_bins + 4 or coarse is group
        assert (coarse.lower <= coarse.upper).all()
        assert (coarse.upper[1:] < coarse.lower[:-1]).all()
        if len(coarse) == len(group):
            continue
        for i in range(len(coarse)):
            inside = (mine >= coarse.lower[i]) & (mine <= coarse.upper[i])
            assert inside.sum() == coarse.counts[:, i].sum()
            assert not coarse.lower[i] <= 0.0 < coarse.upper[i]
        infinite = np.isinf(coarse.lower) | np.isinf(coarse.upper)
        assert not (infinite & coarse.is_bin).any()


def test_coarse_bins_have_about_the_same_number_of_rows():
    rng = np.random.default_rng(0)
    (group,) = sort_scores(rng.normal(size=10_000), np.zeros(10_000, np.int64), None, 1)
    sizes = group.coarsen(100).counts.sum(axis=0)
    assert sizes.max() <= 101
    assert len(sizes) <= 101


def test_few_scores_are_not_coarsened():
    group = GroupScores(np.array([1.0, -1.0]), np.array([1.0, -1.0]), np.array([[3, 4]]))
    assert group.coarsen(2) is group


@given(
    values=st.lists(
        st.tuples(
            st.floats(width=32, allow_nan=False) | st.integers(-3, 3).map(float),
            st.booleans(),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=30,
    )
)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_any_numbers_agree_with_plain_counting(values):
    logits = np.array([score for score, _, _ in values])
    positive = np.array([label for _, label, _ in values])
    codes = np.array([group for _, _, group in values] + [0, 1])
    logits, positive = np.append(logits, [0.5, 0.5]), np.append(positive, [True, False])
    histogram = Histogram(logits, codes, positive, 2)
    histogram.open_bins([np.flatnonzero(group.is_bin) for group in histogram.group_scores])
    exact = sort_scores(logits, codes, positive, 2)
    for a in range(2):
        expected, counts = naive(logits[codes == a], positive[codes == a])
        for group in (exact[a], histogram.group_scores[a]):
            assert group.lower.tolist() == expected
            np.testing.assert_array_equal(group.counts, counts)


# ---- all groups in flat arrays -----------------------------------------------------------------


@pytest.mark.parametrize("name", GENERATORS)
def test_groups_come_back_from_flat_arrays(name: str) -> None:
    parts = sort_scores(*draw(name, 7), 3)
    joined = FlatGroups.join(parts)
    counts = np.concatenate([part.counts for part in parts], axis=1)
    group = np.repeat(np.arange(3), [len(part) for part in parts])
    lower = np.concatenate([part.lower for part in parts])
    made = FlatGroups.from_counts(lower, lower, counts, group, 3)
    for flat in (joined, made):
        assert np.array_equal(flat.totals, total_counts(parts))
        for found, part in zip(flat.split(), parts, strict=True):
            for field in ("lower", "upper", "selected", "above", "below"):
                assert np.array_equal(getattr(found, field), getattr(part, field))
