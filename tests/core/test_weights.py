"""Laws of weights and kinds: whole-number weights are repeated rows, to the last bit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairdial import sweep
from fairdial._arrays import exact_weights
from fairdial._validation import check_weights, encode_strata
from fairdial.core.bootstrap import resampled_accuracy
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import (
    accuracy_of_counts,
    by_label,
    count_rows,
    count_selected,
    group_accuracy,
)
from fairdial.core.group_scores import sort_scores, total_counts
from fairdial.core.histograms import Histogram, refine
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import FairdialWarning, InvalidInputError

CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")
TOLERANCES = np.array([0.0, 0.02, 0.05, 0.1, 0.3, 1.0])
SCORES = {
    "continuous": lambda rng, n: rng.normal(size=n),
    "tied": lambda rng, n: rng.normal(size=n).round(1) - 0.0,
    "single precision": lambda rng, n: rng.normal(size=n).astype(np.float32),
    "infinite": lambda rng, n: rng.choice([-np.inf, -1.0, -0.0, 0.0, 0.5, np.inf], n),
}
DTYPES = (np.int8, np.uint64, np.float32, np.float64)


def draw(name, seed, n=150, n_groups=3, n_kinds=2):
    """Scores, groups and kinds in which every group has rows of every kind, and whole weights."""
    rng = np.random.default_rng(seed)
    cells = np.arange(n) % (n_groups * n_kinds)
    rng.shuffle(cells)
    return SCORES[name](rng, n), cells // n_kinds, cells % n_kinds, rng.integers(1, 6, n)


def repeat(columns, weights):
    """The columns with every row as often as its weight says, in another order."""
    order = np.random.default_rng(1).permutation(weights.sum())
    return [np.repeat(column, weights)[order] for column in columns]


def assert_same_scores(one, two):
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left.lower, right.lower)
        np.testing.assert_array_equal(left.upper, right.upper)
        np.testing.assert_array_equal(left.selected, right.selected)
        assert left.selected.dtype == right.selected.dtype


def assert_same_path(one, two):
    """Same points, to the last bit: gap, price, thresholds, selected rows, accuracy."""
    np.testing.assert_array_equal(one.gap, two.gap)
    np.testing.assert_array_equal(one.setting, two.setting)
    points = np.arange(len(one))
    (thresholds, selected), (expected, rows) = one.read(points), two.read(points)
    np.testing.assert_array_equal(thresholds, expected)
    np.testing.assert_array_equal(selected, rows)
    assert selected.dtype == one.counts.dtype
    for measure in (accuracy_of_counts, group_accuracy):
        np.testing.assert_array_equal(
            measure(selected, one.counts).astype(np.float64), measure(rows, two.counts)
        )


# ---- repeated rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_kinds", [1, 2, 6])
@pytest.mark.parametrize("name", SCORES)
def test_whole_weights_sort_as_repeated_rows(name, n_kinds, dtype):
    logits, codes, kinds, weights = draw(name, 3, n_kinds=n_kinds)
    weighted = sort_scores(logits, codes, kinds, 3, n_kinds, weights.astype(dtype))
    rows, groups, own = repeat((logits, codes, kinds), weights)
    repeated = sort_scores(rows, groups, own, 3, n_kinds)
    assert_same_scores(weighted, repeated)
    assert weighted[0].selected.dtype == np.int64
    binned = Histogram(logits, codes, kinds, 3, n_kinds, weights.astype(dtype))
    np.testing.assert_array_equal(binned.counts, Histogram(rows, groups, own, 3, n_kinds).counts)
    assert binned.counts.dtype == np.int64
    binned.open_bins([np.flatnonzero(group.is_bin) for group in binned.group_scores])
    assert_same_scores(binned.group_scores, repeated)
    margins = np.stack((logits, -logits))
    counts = count_rows(codes, kinds, 3, n_kinds, weights.astype(dtype))
    np.testing.assert_array_equal(counts, count_rows(groups, own, 3, n_kinds))
    np.testing.assert_array_equal(counts, total_counts(weighted))
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(
        count_selected(margins, codes, kinds, 3, n_kinds, weights.astype(dtype)),
        count_selected(np.stack((rows, -rows)), groups, own, 3, n_kinds),
    )


@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", SCORES)
def test_whole_weights_give_the_path_of_repeated_rows(name, criterion, n_groups):
    kind = find_criterion(criterion)
    for seed in range(5):
        logits, codes, labels, weights = draw(name, seed, n_groups=n_groups)
        positive = labels == 1
        scores = sort_scores(logits, codes, positive, n_groups, weights=weights)
        rows, groups, own = repeat((logits, codes, positive), weights)
        repeated = ThresholdPath(sort_scores(rows, groups, own, n_groups), kind, rows.dtype)
        assert_same_path(ThresholdPath(scores, kind, logits.dtype), repeated)
        binned = Histogram(logits, codes, positive, n_groups, weights=weights)
        found = refine(binned, kind, logits.dtype, TOLERANCES)
        points, feasible = found.find(TOLERANCES)
        expected, reached = repeated.find(TOLERANCES)
        np.testing.assert_array_equal(feasible, reached)
        for part, whole in zip(found.read(points), repeated.read(expected), strict=True):
            np.testing.assert_array_equal(part, whole)


rows_of_two_groups = st.lists(
    st.tuples(
        st.floats(-3, 3) | st.integers(-2, 2).map(float),
        st.integers(0, 1),
        st.booleans(),
        st.integers(1, 4),
        st.floats(-1, 1),
    ),
    max_size=25,
)
CORNERS = [(1.0, a, label, 1, 0.1) for a in (0, 1) for label in (True, False)]


@given(rows=rows_of_two_groups, criterion=st.sampled_from(CRITERIA))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_any_whole_weights_are_repeated_rows(rows, criterion):
    columns = [np.array(column) for column in zip(*rows, *CORNERS, strict=True)]
    logits, codes, positive, weights, utility = columns
    scores = sort_scores(logits, codes, positive, 2, 2, weights, utility)
    repeated = repeat((logits, codes, positive, utility), weights)
    expected = sort_scores(*repeated[:3], 2, 2, None, repeated[3])
    assert_same_scores(scores, expected)
    for left, right in zip(scores, expected, strict=True):
        np.testing.assert_array_equal(left.gain, right.gain)
    kind = find_criterion(criterion)
    one, two = (ThresholdPath(groups, kind, logits.dtype) for groups in (scores, expected))
    assert_same_path(one, two)


# ---- weights that aren't whole -------------------------------------------------------------------


@pytest.mark.parametrize("n_kinds", [1, 2, 6])
@pytest.mark.parametrize("name", SCORES)
def test_real_weights_add_up_in_any_order(name, n_kinds):
    logits, codes, kinds, _ = draw(name, 7, n_kinds=n_kinds)
    rng = np.random.default_rng(7)
    weights = rng.lognormal(0, 3, len(logits))
    scores = sort_scores(logits, codes, kinds, 3, n_kinds, weights)
    order = rng.permutation(len(logits))
    shuffled = [column[order] for column in (logits, codes, kinds)]
    assert_same_scores(scores, sort_scores(*shuffled, 3, n_kinds, weights[order]))
    binned = Histogram(logits, codes, kinds, 3, n_kinds, weights)
    np.testing.assert_array_equal(total_counts(binned.group_scores), total_counts(scores))
    binned.open_bins([np.flatnonzero(group.is_bin) for group in binned.group_scores])
    assert_same_scores(binned.group_scores, scores)
    np.testing.assert_array_equal(
        count_rows(codes, kinds, 3, n_kinds, weights), total_counts(scores)
    )
    for a, group in enumerate(scores):
        assert group.selected.dtype == np.float64
        assert (np.diff(group.selected, axis=1) >= 0).all()
        assert (group.counts.sum(axis=0) > 0).all()
        for kind in range(n_kinds):
            own = (codes == a) & (kinds == kind)
            close = pytest.approx(weights[own].sum(), abs=1e-13 * weights.sum())
            assert group.totals[kind] == close


@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("exponent", [-30, -1, 3, 40])
def test_weights_times_a_power_of_two_change_no_threshold(exponent, criterion, n_groups):
    kind = find_criterion(criterion)
    for seed, name in enumerate(SCORES):
        logits, codes, labels, weights = draw(name, seed, n_groups=n_groups)
        real = weights * np.random.default_rng(seed).uniform(0.1, 1, len(weights))
        for given_ in (weights, real):
            paths = [
                ThresholdPath(
                    sort_scores(logits, codes, labels, n_groups, weights=scaled),
                    kind,
                    logits.dtype,
                )
                for scaled in (given_, given_ * 2.0**exponent)
            ]
            np.testing.assert_allclose(paths[0].gap, paths[1].gap, rtol=0, atol=1e-15)
            points = np.arange(len(paths[0]))
            thresholds, selected = paths[0].read(points)
            found, rows = paths[1].read(points)
            np.testing.assert_array_equal(thresholds, found)
            np.testing.assert_array_equal(selected * 2.0**exponent, rows)


@given(
    weights=st.lists(
        st.floats(0, 1e300, allow_subnormal=True) | st.integers(0, 2**60).map(float),
        min_size=1,
        max_size=40,
    ),
    seed=st.integers(0, 9),
)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_exact_weights_are_close_and_have_exact_sums(weights, seed):
    given_ = np.array(weights)
    exact = exact_weights(given_)
    total = given_.sum()
    np.testing.assert_allclose(exact, given_, rtol=0, atol=total * 2.0**-50)
    np.testing.assert_array_equal(exact > 0, given_ > 0)
    order = np.random.default_rng(seed).permutation(len(given_))
    assert np.cumsum(exact)[-1] == np.cumsum(exact[order])[-1]
    assert np.cumsum(exact)[-1] == sum(int(w) if w == int(w) else w for w in exact.tolist())
    np.testing.assert_array_equal(exact_weights(exact), exact)


# ---- kinds and gains -----------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SCORES)
def test_kinds_add_up_over_the_strata(name, weighted):
    logits, codes, kinds, weights = draw(name, 11, n_kinds=6)
    own = weights if weighted else None
    scores = sort_scores(logits, codes, kinds, 3, 6, own)
    labels = sort_scores(logits, codes, kinds % 2 == 1, 3, weights=own)
    for kind in range(6):  # as if it were alone
        rows = np.flatnonzero(kinds == kind)
        part = None if own is None else own[rows]
        alone = sort_scores(logits[rows], codes[rows], None, 3, 1, part)
        for group, single in zip(scores, alone, strict=True):
            ranks = np.append(single.rank(group.upper), len(single))
            np.testing.assert_array_equal(group.selected[kind], single.selected[0, ranks])
    for group, expected in zip(scores, labels, strict=True):
        np.testing.assert_array_equal(group.lower, expected.lower)
        summed = by_label(group.selected, 2)
        np.testing.assert_array_equal(summed, expected.selected)
    counts = count_rows(codes, kinds, 3, 6, own)
    np.testing.assert_array_equal(by_label(counts, 2), total_counts(labels))
    np.testing.assert_array_equal(by_label(counts, 1), by_label(by_label(counts, 2), 1))
    margins = np.stack((logits, logits - 0.3, -logits))
    np.testing.assert_array_equal(
        by_label(count_selected(margins, codes, kinds, 3, 6, own), 2),
        count_selected(margins, codes, kinds % 2, 3, 2, own),
    )


@pytest.mark.parametrize("weights", ["none", "whole", "real"])
@pytest.mark.parametrize("name", SCORES)
def test_gain_is_the_utility_of_the_selected_rows(name, weights):
    logits, codes, kinds, whole = draw(name, 13)
    rng = np.random.default_rng(13)
    utility = rng.normal(size=len(logits))
    own = {"none": None, "whole": whole, "real": rng.uniform(0.1, 2, len(logits))}[weights]
    worth = utility if own is None else utility * own
    scores = sort_scores(logits, codes, kinds, 3, 2, own, utility)
    assert_same_scores(scores, sort_scores(logits, codes, kinds, 3, 2, own))
    for a, group in enumerate(scores):
        assert group.gain[0] == 0
        for rank in range(1, len(group) + 1):
            above = (codes == a) & (logits >= group.above[rank])
            assert group.gain[rank] == pytest.approx(worth[above].sum(), abs=1e-11)
        coarse = group.coarsen(8)
        ranks = np.append(group.rank(coarse.upper), len(group))
        np.testing.assert_array_equal(coarse.gain, group.gain[ranks])


# ---- input and bootstrap -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        [1, -1, 1],
        [1, np.nan, 1],
        [1, np.inf, 1],
        [0, 0, 0],
        [1, 2],
        [[1, 2, 3]],
        ["a", "b", "c"],
        [1e308] * 3,
        1.0,
    ],
)
def test_bad_weights_are_refused(bad):
    with pytest.raises(InvalidInputError) as caught:
        check_weights(bad, 3)
    assert caught.value.argument == "sample_weight"


def test_weights_are_integers_where_they_can_be():
    assert check_weights(None, 3) is None
    assert check_weights([1.0, 1.0, 1.0], 3) is None
    assert check_weights([2.0, 0.0, 1.0], 3).dtype == np.int64
    assert check_weights([True, False, True], 3).tolist() == [1, 0, 1]
    assert check_weights(np.array([0.5, 1.5], np.float32), 2).dtype == np.float64


def test_strata_are_the_intersections_of_columns():
    columns = np.array([["a", "x"], ["b", "x"], ["a", "x"], ["a", "y"]])
    codes, names = encode_strata(columns)
    assert names == ("a & x", "a & y", "b & x")
    assert codes.tolist() == [0, 2, 0, 1]
    with pytest.raises(InvalidInputError) as caught:
        encode_strata(["a", None])
    assert caught.value.argument == "control_features"


def test_the_bootstrap_of_whole_weights_is_that_of_repeated_rows():
    logits, codes, labels, weights = draw("continuous", 5, n=900)
    kind = find_criterion("demographic_parity")
    rows, groups, own = repeat((logits, codes, labels), weights)
    weighted = sort_scores(logits, codes, labels, 3, weights=weights)
    paths = [
        ThresholdPath(scores, kind, logits.dtype)
        for scores in (weighted, sort_scores(rows, groups, own, 3))
    ]
    one, two = (
        resampled_accuracy(path, TOLERANCES, 20, np.random.default_rng(0)) for path in paths
    )
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])


def test_the_bootstrap_varies_with_the_rows_and_not_with_the_scale_of_the_weights():
    logits, codes, labels, weights = draw("continuous", 5, n=900)
    kind = find_criterion("demographic_parity")
    sizes = np.bincount(codes)
    spread = []
    for scale in (1e-6, 1e6):
        scores = sort_scores(logits, codes, labels, 3, weights=weights * scale)
        path = ThresholdPath(scores, kind, logits.dtype)
        rng = np.random.default_rng(0)
        spread.append(resampled_accuracy(path, np.array([1.0]), 200, rng, sizes)[1].std())
    assert spread[0] == pytest.approx(spread[1], rel=0.05)
    assert 0.5 < spread[0] / np.sqrt(0.25 / len(logits)) < 1.5


def test_scores_of_minus_infinity_are_never_selected():
    rng = np.random.default_rng(3)
    for seed in range(20):
        logits = np.where(rng.random(40) < 0.3, -np.inf, rng.normal(size=40).round(1))
        codes, y = np.arange(40) % 2, rng.integers(0, 2, 40)
        y[:4] = [0, 0, 1, 1]
        frontier = sweep(logits, codes, y, criterion="equalized_odds", min_count=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)
            points = frontier.at(TOLERANCES)
        for i in range(len(TOLERANCES)):
            selected = logits > points.thresholds[i][codes]
            expected = count_rows(codes[selected], y[selected] == 1, 2)
            np.testing.assert_array_equal(points.selected[i], expected, err_msg=str(seed))
