"""Laws of the ladders: exact counts by plain counting, and bins that open into the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairdial.errors import InvalidInputError
from fairdial.histograms import BITS, Grid, Histogram
from fairdial.ladders import Ladder, sort_scores

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
def test_the_exact_ladder_is_what_plain_counting_finds(name, dtype, n_groups):
    logits, codes, positive = draw(name, n_groups, n_groups=n_groups, dtype=dtype)
    ladders = sort_scores(logits, codes, positive, n_groups)
    for a, ladder in enumerate(ladders):
        values, counts = naive(logits[codes == a], positive[codes == a])
        assert ladder.lower.tolist() == values
        assert ladder.upper.tolist() == values
        np.testing.assert_array_equal(ladder.counts, counts)
        assert not np.signbit(ladder.lower[ladder.lower == 0]).any()
        assert not ladder.wide.any()
    for ladder, bare in zip(ladders, sort_scores(logits, codes, None, n_groups), strict=True):
        assert bare.lower.tolist() == ladder.lower.tolist()
        np.testing.assert_array_equal(bare.counts, ladder.counts.sum(axis=0, keepdims=True))


@pytest.mark.parametrize("name", GENERATORS)
def test_the_rank_of_a_threshold_selects_the_rows_strictly_above_it(name):
    logits, codes, positive = draw(name, 5, n_groups=2)
    for a, ladder in enumerate(sort_scores(logits, codes, positive, 2)):
        mine, labels = logits[codes == a], positive[codes == a]
        near = mine[np.isfinite(mine)]
        thresholds = np.concatenate(
            ([-np.inf, np.inf, 0.0, -0.0], mine, near + 0.01, np.nextafter(near, -np.inf))
        )
        ranks = ladder.rank(thresholds)
        for threshold, rank in zip(thresholds, ranks, strict=True):
            above = mine > threshold
            expected = [np.sum(above & ~labels), np.sum(above & labels)]
            assert ladder.selected[:, rank].tolist() == expected
            assert ladder.below[rank] <= threshold or ladder.below[rank] == -np.inf
            assert threshold < ladder.above[rank] or rank == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("labelled", [True, False])
def test_histogram_counts_at_edges_are_exact(name, dtype, labelled):
    logits, codes, positive = draw(name, 11, n=300, dtype=dtype)
    histogram = Histogram(logits, codes, positive if labelled else None, 3)
    for a, ladder in enumerate(histogram.ladders):
        mine, labels = logits[codes == a], positive[codes == a]
        assert ladder.counts.sum() == len(mine)
        for i in range(len(ladder)):
            inside = (mine >= ladder.lower[i]) & (mine <= ladder.upper[i])
            expected = [np.sum(inside & ~labels), np.sum(inside & labels)]
            assert ladder.counts[:, i].tolist() == (expected if labelled else [sum(expected)])
        assert (ladder.upper[1:] < ladder.lower[:-1]).all()
        free = ladder.selected[:, ladder.rank(0.0)].sum()
        assert free == np.sum(mine > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("labelled", [True, False])
def test_splitting_every_wide_atom_gives_the_sorted_ladder(name, dtype, labelled):
    logits, codes, positive = draw(name, 13, n=400, dtype=dtype)
    y = positive if labelled else None
    histogram = Histogram(logits, codes, y, 3)
    histogram.split([np.flatnonzero(ladder.wide) for ladder in histogram.ladders])
    for opened, exact in zip(histogram.ladders, sort_scores(logits, codes, y, 3), strict=True):
        assert opened.lower.tolist() == exact.lower.tolist()
        assert opened.upper.tolist() == exact.upper.tolist()
        np.testing.assert_array_equal(opened.counts, exact.counts)


@pytest.mark.parametrize("name", GENERATORS)
def test_splitting_in_any_order_ends_at_the_sorted_ladder(name):
    logits, codes, positive = draw(name, 17, n=200)
    rng = np.random.default_rng(17)
    histogram = Histogram(logits, codes, positive, 3)
    while any(ladder.wide.any() for ladder in histogram.ladders):
        wanted = []
        for ladder in histogram.ladders:
            wide = np.flatnonzero(ladder.wide)
            wanted.append(np.sort(rng.permutation(wide)[: 1 + len(wide) // 3]))
        histogram.split(wanted)
        sizes = [int(ladder.counts.sum()) for ladder in histogram.ladders]
        assert sizes == np.bincount(codes, minlength=3).tolist()
    for opened, exact in zip(
        histogram.ladders, sort_scores(logits, codes, positive, 3), strict=True
    ):
        assert opened.lower.tolist() == exact.lower.tolist()
        np.testing.assert_array_equal(opened.counts, exact.counts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_histogram_takes_the_largest_numbers_there_are(dtype):
    largest = np.finfo(dtype).max
    logits = np.array([largest, -largest, largest / 2, -largest / 2, np.inf, -np.inf], dtype)
    histogram = Histogram(logits, np.zeros(6, np.int64), None, 1)
    histogram.split([np.flatnonzero(histogram.ladders[0].wide)])
    assert histogram.ladders[0].lower.tolist() == sorted(logits.tolist(), reverse=True)


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
    with pytest.raises(InvalidInputError, match=r"`logits`.*2 of 4.*row 2"):
        make(logits, np.array([0, 0, 1, 1]), None, 2)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("atoms", [1, 4, 16])
def test_coarsening_keeps_the_rows_and_zero_as_an_edge(name, atoms):
    logits, codes, positive = draw(name, 19, n=500, n_groups=2)
    for a, ladder in enumerate(sort_scores(logits, codes, positive, 2)):
        coarse = ladder.coarsen(atoms)
        mine = logits[codes == a]
        np.testing.assert_array_equal(coarse.counts.sum(axis=1), ladder.counts.sum(axis=1))
        assert len(coarse) <= atoms + 4 or coarse is ladder
        assert (coarse.lower <= coarse.upper).all()
        assert (coarse.upper[1:] < coarse.lower[:-1]).all()
        if len(coarse) == len(ladder):
            continue
        for i in range(len(coarse)):
            inside = (mine >= coarse.lower[i]) & (mine <= coarse.upper[i])
            assert inside.sum() == coarse.counts[:, i].sum()
            assert not coarse.lower[i] <= 0.0 < coarse.upper[i]
        infinite = np.isinf(coarse.lower) | np.isinf(coarse.upper)
        assert not (infinite & coarse.wide).any()


def test_coarse_atoms_hold_about_the_same_number_of_rows():
    rng = np.random.default_rng(0)
    (ladder,) = sort_scores(rng.normal(size=10_000), np.zeros(10_000, np.int64), None, 1)
    sizes = ladder.coarsen(100).counts.sum(axis=0)
    assert sizes.max() <= 101
    assert len(sizes) <= 101


def test_a_ladder_with_few_atoms_is_given_back_unchanged():
    ladder = Ladder(np.array([1.0, -1.0]), np.array([1.0, -1.0]), np.array([[3, 4]]))
    assert ladder.coarsen(2) is ladder


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
def test_ladders_of_any_numbers_are_what_plain_counting_finds(values):
    logits = np.array([score for score, _, _ in values])
    positive = np.array([label for _, label, _ in values])
    codes = np.array([group for _, _, group in values] + [0, 1])
    logits, positive = np.append(logits, [0.5, 0.5]), np.append(positive, [True, False])
    histogram = Histogram(logits, codes, positive, 2)
    histogram.split([np.flatnonzero(ladder.wide) for ladder in histogram.ladders])
    exact = sort_scores(logits, codes, positive, 2)
    for a in range(2):
        expected, counts = naive(logits[codes == a], positive[codes == a])
        for ladder in (exact[a], histogram.ladders[a]):
            assert ladder.lower.tolist() == expected
            np.testing.assert_array_equal(ladder.counts, counts)
