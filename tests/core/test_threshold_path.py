"""Laws of the path, against brute force written from the definitions.

For two groups with shares ``p`` the setting ``t`` selects a row of the second group while ``t < b``
and a row of the first once ``t > b``, where ``b`` is the row's breakpoint: ``s p tanh(z/2)`` for
demographic parity, ``-s p expm1(-z)`` for equal opportunity, ``s p expm1(z)`` for predictive
equality, and ``s`` is -1 for the first group and +1 for the second.
"""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest

from fairdial import sweep
from fairdial.core import sweep as sweeping
from fairdial.errors import ConstantDecisionsWarning, InfeasibleToleranceWarning

CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")
COUNTED = {"demographic_parity": None, "equal_opportunity": 1, "predictive_equality": 0}
TOLERANCES = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 1.0])


def unit_price(criterion, z):
    with np.errstate(over="ignore"):
        if criterion == "demographic_parity":
            return np.tanh(z / 2)
        return -np.expm1(-z) if criterion == "equal_opportunity" else np.expm1(z)


# ---- random rows -----------------------------------------------------------------------------


def continuous(rng, n):
    return rng.normal(rng.normal(), rng.uniform(0.2, 3), n)


def tied(rng, n):
    return rng.normal(rng.normal(), 1.5, n).round(int(rng.integers(0, 2)))


def saturated(rng, n):
    return rng.uniform(-40, 40, n)


def overflowing(rng, n):
    return rng.uniform(-800, 800, n)


def single_precision(rng, n):
    return rng.normal(rng.normal(), 1.5, n).astype(np.float32)


def tied_single_precision(rng, n):
    return (rng.integers(-9, 9, n) / np.float32(3)).astype(np.float32)


def constant(rng, n):
    return np.full(n, rng.choice([-2.0, -0.0, 0.0, 0.3, 40.0]))


def infinite(rng, n):
    z = rng.normal(rng.normal(), 1.5, n)
    return np.where(rng.random(n) < 0.3, rng.choice([-np.inf, np.inf], n), z)


def symmetric(rng, n):
    """Few values, the same with either sign, so that prices tie exactly between the groups."""
    return rng.choice([-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0], n)


def tiny(rng, n):
    return rng.normal(rng.normal(), 1, n) * 1e-300


GENERATORS = {
    maker.__name__: maker
    for maker in (
        continuous,
        tied,
        saturated,
        overflowing,
        single_precision,
        tied_single_precision,
        constant,
        infinite,
        symmetric,
        tiny,
    )
}
EXACT_BREAKPOINTS = {"continuous", "tied", "single_precision", "tied_single_precision", "symmetric"}


def draw(maker, seed, n_groups=2, largest=60, smallest=1):
    """Logits, codes and labels in which every group has rows with either label."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(smallest, largest + 1, n_groups)
    if maker is symmetric and rng.random() < 0.7:
        sizes[:] = sizes[0]  # equal shares: exact ties
    logits = np.concatenate([maker(rng, int(size)) for size in sizes])
    codes = np.repeat(np.arange(n_groups), sizes)
    labels = rng.random(len(logits)) < rng.uniform(0.1, 0.9)
    if rng.random() < 0.2:
        labels[:] = rng.random() < 0.5
    order = rng.permutation(len(logits))
    return logits[order], codes[order], labels[order].astype(int)


def with_counted_rows(criterion, codes, y):
    """The labels, changed in one row of each group that has no counted row."""
    label = COUNTED[criterion]
    if label is not None:
        y = y.copy()
        for a in np.unique(codes):
            mine = np.flatnonzero(codes == a)
            if not (y[mine] == label).any():
                y[mine[0]] = label
    return y


def rows_that_count(criterion, y):
    label = COUNTED[criterion]
    return np.ones(len(y), bool) if label is None else y == label


# ---- oracles for two groups --------------------------------------------------------------------


def difference(chosen, rows):
    """The second group's rate minus the first's: the exact quotient, rounded once."""
    rates = [Fraction(int(c), int(n)) for c, n in zip(chosen, rows, strict=True)]
    return float(rates[1] - rates[0])


def largest_difference(chosen, rows):
    """The highest minus the lowest rate: the exact quotient, rounded once."""
    rates = [Fraction(int(c), int(n)) for c, n in zip(chosen, rows, strict=True)]
    return float(max(rates) - min(rates))


def smallest_gap(criterion, logits, codes, y):
    """The smallest gap of all pairs of thresholds that select some rows, but not all.

    No threshold is below minus infinity. None if there is no such pair.
    """
    eligible = rows_that_count(criterion, y)
    chosen, everything, rows = [], [], []
    for a in (0, 1):
        mine, z = logits[codes == a], logits[eligible & (codes == a)]
        cuts = [*np.unique(mine), -np.inf]
        chosen.append(np.array([np.sum(z > cut) for cut in cuts]))
        everything.append(np.array([np.sum(mine > cut) for cut in cuts]))
        rows.append(len(z))
    apart = np.abs(chosen[0][:, None] * rows[1] - chosen[1] * rows[0])
    total = everything[0][:, None] + everything[1]
    useful = apart[(total > 0) & (total < len(logits))]
    return float(Fraction(int(useful.min()), rows[0] * rows[1])) if len(useful) else None


def walk(criterion, logits, codes, y):
    """All points on the way from t = 0 towards equality: (price, rows selected, disparity).

    The order inside a group is that of its logits; between the groups that of their prices, and
    at equal prices the rows that lose their selection go first.
    """
    eligible = rows_that_count(criterion, y)
    z = [logits[eligible & (codes == a)].astype(np.float64).tolist() for a in (0, 1)]
    rows = [len(values) for values in z]
    chosen = [sum(value > 0 for value in values) for values in z]
    d = difference(chosen, rows)
    points = [(0.0, tuple(chosen), d)]
    if d == 0:
        return points
    high = 1 if d > 0 else 0
    low = 1 - high
    events = []
    for a in (0, 1):
        share = rows[a] / len(logits)
        for value in sorted(set(z[a])):
            price = float(share * unit_price(criterion, np.float64(value)))
            price = max(min(price, 1e300), -1e300)
            size = z[a].count(value)
            if a == high and value > 0:
                events.append((price, 0, value, a, -size))
            if a == low and value <= 0 and value != -np.inf:
                events.append((-price, 1, -value, a, size))
    for price, _, _, a, change in sorted(events):
        chosen[a] += change
        d = difference(chosen, rows)
        points.append((price, tuple(chosen), d))
        if (d <= 0) == (high == 1) or d == 0:
            break
    return points


def first_along(points, tolerance):
    """The point that the dial must take, and whether it is within the tolerance."""
    for point in points:
        if abs(point[2]) <= tolerance:
            return point, True
    return min(points, key=lambda point: abs(point[2])), False


def literal(criterion, logits, codes, y):
    """(|t|, disparity) at each breakpoint and just beyond it, by counting breakpoints."""
    eligible = rows_that_count(criterion, y)
    b = []
    for a, sign in ((0, -1.0), (1, 1.0)):
        z = logits[eligible & (codes == a)].astype(np.float64)
        b.append(sign * (len(z) / len(logits)) * unit_price(criterion, z))
    n0, n1 = len(b[0]), len(b[1])

    def apart(second, first):
        return difference((np.sum(first), np.sum(second)), (n0, n1))

    def at(t):
        return apart(b[1] > t, b[0] < t)

    start = at(0.0)
    found = [(0.0, start)]
    all_b = np.concatenate((b[0], b[1], [0.0]))
    if start > 0:
        for t in np.unique(all_b[all_b >= 0]):
            found.append((t, at(t)))
            found.append((t, apart(b[1] > t, b[0] <= t)))
    elif start < 0:
        for t in -np.unique(-all_b[all_b <= 0]):
            found.append((-t, at(t)))
            found.append((-t, apart(b[1] >= t, b[0] < t)))
    return found


def ask(frontier, tolerance):
    """The answers; tolerances out of reach and constant decisions are warned about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        points = frontier.at(tolerance)
    given = {w.category for w in caught}
    assert (InfeasibleToleranceWarning in given) == (not np.all(points.feasible))
    first = frontier.points.read(np.array([0]))[1].sum()  # unconstrained
    constant = {0, int(points.counts.sum())} - {int(first)}
    due = len(points.groups) > 1 and constant & set(points.selected.sum(axis=(1, 2)).tolist())
    assert (ConstantDecisionsWarning in given) == bool(due)
    assert given <= {InfeasibleToleranceWarning, ConstantDecisionsWarning}
    return points


def recount(criterion, point, logits, codes, y):
    """Selected rows by label and group, decided row by row in the rows' own dtype."""
    limits = np.asarray(point.thresholds).astype(logits.dtype)
    decisions = np.array([z > limits[a] for z, a in zip(logits, codes, strict=True)])
    n_groups = len(limits)
    selected = np.array(
        [[np.sum(decisions[(codes == a) & (y == v)]) for a in range(n_groups)] for v in (0, 1)]
    )
    eligible = rows_that_count(criterion, y)
    rates = np.array([decisions[eligible & (codes == a)].mean() for a in range(n_groups)])
    return decisions, selected, rates


def check_figures(criterion, point, logits, codes, y):
    decisions, selected, rates = recount(criterion, point, logits, codes, y)
    n_groups = len(rates)
    np.testing.assert_array_equal(point.selected, selected)
    np.testing.assert_array_equal(point.rates, rates)
    label = COUNTED[criterion]
    sizes = np.array([point.counts.sum(axis=0), *point.counts])[0 if label is None else 1 + label]
    chosen = selected.sum(axis=0) if label is None else selected[label]
    assert point.gap == largest_difference(chosen, sizes)
    assert point.accuracy == np.mean(decisions == (y == 1))
    low, high = point.worst
    assert rates[low] == rates.min()
    assert rates[high] == rates.max()
    for a in range(n_groups):
        mine = codes == a
        assert point.selection_rate[a] == decisions[mine].mean()
        for name, label in (("true_positive_rate", 1), ("false_positive_rate", 0)):
            rows = mine & (y == label)
            got = getattr(point, name)[a]
            assert got == decisions[rows].mean() if rows.any() else np.isnan(got)
    assert point.feasible == (point.gap <= point.tolerance)
    return rates


def check_placement(point, logits, codes):
    """No threshold is a score where a number of the scores' dtype fits in between."""
    dtype = logits.dtype.type
    for a, threshold in enumerate(point.thresholds):
        assert dtype(threshold) == threshold
        mine = logits[codes == a]
        if (threshold == 0 and point.setting == 0) or not (mine == threshold).any():
            continue
        if np.isinf(threshold):
            continue
        above = mine[mine > threshold]
        following = np.nextafter(dtype(threshold), dtype(np.inf))
        assert following == np.inf or (len(above) and above.min() <= following)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", GENERATORS)
def test_two_groups_agree_with_brute_force(name, criterion):
    for seed in range(120):
        logits, codes, y = draw(GENERATORS[name], 7919 * seed + len(name))
        y = with_counted_rows(criterion, codes, y)
        frontier = sweep(logits, codes, y, criterion=criterion, min_count=1)
        walked = walk(criterion, logits, codes, y)
        assert len(frontier) == len(walked)
        np.testing.assert_array_equal(frontier.gap, [abs(d) for _, _, d in walked])
        np.testing.assert_array_equal(frontier.points.cost, [price for price, _, _ in walked])
        rng = np.random.default_rng(seed)
        tolerances = np.concatenate((TOLERANCES, rng.random(2), rng.choice(frontier.gap, 2)))
        points = ask(frontier, tolerances)
        label = COUNTED[criterion]
        for tolerance, point in zip(tolerances, points, strict=True):
            (price, chosen, d), on_path = first_along(walked, tolerance)
            if not on_path:
                end, sizes = frontier.gap.min(), frontier.eligible
                if end <= 1 / sizes.min():  # less than a row of the smallest group
                    assert not point.feasible
                    assert point.gap == end
                    continue
                smallest = smallest_gap(criterion, logits, codes, y)
                assert point.feasible == (smallest is not None and smallest <= tolerance)
                if point.feasible:
                    assert point.gap <= tolerance
                else:
                    assert point.gap == (end if smallest is None else min(smallest, end))
                continue
            assert point.feasible
            counts = point.selected.sum(axis=0) if label is None else point.selected[label]
            assert tuple(counts) == chosen
            assert point.gap == abs(d)
            assert point.disparity == pytest.approx(d, abs=3e-16)
            assert abs(point.setting) >= price
            if price == 0 and chosen == walked[0][1]:
                assert point.setting == 0.0
                assert point.thresholds.tolist() == [0.0, 0.0]
            elif point.setting != 0:
                assert np.sign(point.setting) == np.sign(walked[0][2])
        for i in rng.choice(len(tolerances), 2, replace=False):
            check_figures(criterion, points[i], logits, codes, y)
            check_placement(points[i], logits, codes)
        order = np.argsort(tolerances)
        assert (np.diff(np.abs(points.setting[order])) <= 0).all()
        assert not points.setting[tolerances >= frontier.gap[0]].any()


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", sorted(EXACT_BREAKPOINTS))
def test_the_least_setting_is_that_of_the_definition(name, criterion):
    for seed in range(60):
        logits, codes, y = draw(GENERATORS[name], 104_729 * seed + len(name))
        y = with_counted_rows(criterion, codes, y)
        frontier = sweep(logits, codes, y, criterion=criterion, min_count=1)
        found = literal(criterion, logits, codes, y)
        points = ask(frontier, TOLERANCES)
        for tolerance, point, index in zip(TOLERANCES, points, points.indices, strict=True):
            within = [t for t, d in found if abs(d) <= tolerance]
            if within:
                assert point.feasible
                assert frontier.points.cost[index] == min(within)
            else:  # the path ends at its smallest gap
                smallest = min(abs(d) for _, d in found)
                assert frontier.gap.min() == smallest
                least = min(t for t, d in found if abs(d) == smallest)
                assert frontier.points.cost[index] == least


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_reported_setting_selects_the_reported_rows(criterion):
    signs = np.array([-1.0, 1.0])
    for seed in range(150):
        logits, codes, y = draw(continuous, seed)
        y = with_counted_rows(criterion, codes, y)
        eligible = rows_that_count(criterion, y)
        sizes = np.bincount(codes[eligible], minlength=2)
        b = (signs * sizes / len(y))[codes] * unit_price(criterion, logits)
        frontier = sweep(logits, codes, y, criterion=criterion, min_count=1)
        for index, t in enumerate(frontier.setting):
            selected = np.where(codes == 1, t < b, t > b)
            chosen = [selected[eligible & (codes == a)].sum() for a in (0, 1)]
            assert abs(difference(chosen, sizes)) == frontier.gap[index]


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("n_groups", [2, 3, 4])
def test_every_row_changes_its_decision_at_most_once_along_the_path(name, criterion, n_groups):
    for seed in range(12):
        logits, codes, y = draw(GENERATORS[name], 31 * seed, n_groups=n_groups, largest=30)
        y = with_counted_rows(criterion, codes, y)
        frontier = sweep(logits, codes, y, criterion=criterion, min_count=1)
        thresholds, selected = frontier.points.read(np.arange(len(frontier)))
        decisions = logits[None, :] > thresholds.astype(logits.dtype)[:, codes]  # (S, n)
        assert np.abs(np.diff(decisions.astype(int), axis=0)).sum(axis=0).max(initial=0) <= 1
        assert (decisions[0] == (logits > 0)).all()
        for a in range(n_groups):
            for label in (0, 1):
                rows = (codes == a) & (y == label)
                assert (decisions[:, rows].sum(axis=1) == selected[:, label, a]).all()
        right = (decisions == (y == 1)).mean(axis=1)
        np.testing.assert_array_equal(frontier.accuracy, right)
        eligible = rows_that_count(criterion, y)
        mine = [eligible & (codes == a) for a in range(n_groups)]
        chosen = np.stack([decisions[:, rows].sum(axis=1) for rows in mine], axis=1)
        sizes = [rows.sum() for rows in mine]
        gaps = [largest_difference(line, sizes) for line in chosen]
        np.testing.assert_array_equal(frontier.gap, gaps)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", GENERATORS)
def test_swapping_the_groups_turns_the_sign_of_t_and_nothing_else(name, criterion):
    for seed in range(25):
        logits, codes, y = draw(GENERATORS[name], 613 * seed)
        y = with_counted_rows(criterion, codes, y)
        first = sweep(logits, codes, y, criterion=criterion, min_count=1)
        tolerances = TOLERANCES[~first.points.is_beyond(TOLERANCES)]  # searches may break ties
        one = ask(first, tolerances)
        two = ask(sweep(logits, 1 - codes, y, criterion=criterion, min_count=1), tolerances)
        np.testing.assert_array_equal(one.setting, -two.setting)
        np.testing.assert_array_equal(one.thresholds, two.thresholds[:, ::-1])
        np.testing.assert_array_equal(one.selected, two.selected[:, :, ::-1])
        for column in ("gap", "accuracy", "feasible", "indices"):
            np.testing.assert_array_equal(getattr(one, column), getattr(two, column))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_order_of_the_rows_does_not_matter(criterion):
    rng = np.random.default_rng(0)
    for seed in range(20):
        logits, codes, y = draw(tied, seed, n_groups=3)
        y = with_counted_rows(criterion, codes, y)
        order = rng.permutation(len(y))
        one = ask(sweep(logits, codes, y, criterion=criterion, min_count=1), TOLERANCES)
        two = sweep(logits[order], codes[order], y[order], criterion=criterion, min_count=1)
        same_points(one, ask(two, TOLERANCES))


# ---- regression cases --------------------------------------------------------------------------


@pytest.mark.parametrize(("tolerance", "gap"), [(0.2, 0.1), (0.35, 0.35)])
def test_the_gap_is_within_the_tolerance_where_bisection_overshoots(tolerance, gap):
    logits = [-2, -1, -0.5, 0.4, -0.3, 0.2, 0.7, 1.5, 2]
    frontier = sweep(logits, [0] * 4 + [1] * 5, min_count=1)
    point = frontier.at(tolerance)
    assert point.disparity == pytest.approx(gap, abs=1e-15)
    assert point.feasible
    if tolerance == 0.2:
        index = frontier.at([tolerance]).indices[0]
        begin, end = frontier.points.cost[index : index + 2]
        assert begin + 5e-6 == pytest.approx(0.108858, abs=5e-7)  # just inside the step
        assert point.setting == pytest.approx((begin + end) / 2)


def test_saturated_scores_are_all_selected_where_bisection_rejects_them():
    logits = np.concatenate((np.full(90, 2.0), np.full(10, -2.0), np.full(40, -15.0)))
    point = sweep(logits, [0] * 100 + [1] * 40).at(0.2)
    assert point.disparity == pytest.approx(0.1)
    assert point.feasible
    assert point.selection_rate.tolist() == [0.9, 1.0]


def test_minus_infinity_is_never_selected_and_infinity_only_dropped_by_infinity():
    logits = np.array([-np.inf, -np.inf, -1.0, np.inf, np.inf, 1.0])
    codes = [0, 0, 0, 1, 1, 1]
    frontier = sweep(logits, codes, min_count=1)
    decisions = frontier.decide(logits, codes, 0.34)
    assert decisions.tolist() == [False, False, True, True, True, False]
    thresholds, _ = frontier.points.read(np.arange(len(frontier)))
    assert not (thresholds[:, 0] == -np.inf).any()
    assert thresholds[-1, 1] == np.inf
    assert frontier.gap.tolist() == [1.0, 2 / 3, 1 / 3, 1 / 3]


def test_a_group_of_minus_infinity_alone_has_a_threshold_above_it():
    frontier = sweep([-np.inf, 3.0, 3.1, 3.2], [0, 1, 1, 1], min_count=1)
    thresholds, _ = frontier.points.read(np.arange(len(frontier)))
    assert (thresholds[:, 0] > -np.inf).all()


# ---- the histogram route -----------------------------------------------------------------------


def same_points(one, two):
    for column in ("tolerance", "gap", "feasible", "thresholds", "selected", "counts"):
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column), err_msg=column)
    if len(one.groups) == 2:
        np.testing.assert_array_equal(one.setting, two.setting)
    else:  # a sum over the groups, which rounds
        np.testing.assert_allclose(one.setting, two.setting, rtol=1e-12)
    np.testing.assert_array_equal(one.accuracy, two.accuracy)
    assert one.groups == two.groups
    assert one.criterion == two.criterion


def crowded(rng, n):
    """Many rows in few bins."""
    return rng.normal(0.3, 0.02, n)


def powers(rng, n):
    return rng.normal(size=n) * 10.0 ** rng.integers(-12, 12, n)


def huge(rng, n):
    return rng.normal(size=n) * 1e100


HISTOGRAM_GENERATORS = GENERATORS | {maker.__name__: maker for maker in (crowded, powers, huge)}


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", HISTOGRAM_GENERATORS)
@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_the_histogram_route_gives_the_sorted_routes_answers(
    name, criterion, n_groups, monkeypatch
):
    monkeypatch.setattr(sweeping, "SORT_LIMIT", 0)
    monkeypatch.setattr(sweeping, "MAX_BINS_PER_ROW", 10**9)
    for seed in range(6):
        largest = 60 if seed % 2 else 400
        logits, codes, y = draw(
            HISTOGRAM_GENERATORS[name], 97 * seed, n_groups=n_groups, largest=largest
        )
        y = with_counted_rows(criterion, codes, y)
        exact = sweep(logits, codes, y, criterion=criterion, min_count=1)
        tolerances = TOLERANCES if seed % 3 else np.random.default_rng(seed).random(3) * 0.3
        binned = sweep(logits, codes, y, criterion=criterion, tolerances=tolerances, min_count=1)
        same_points(ask(exact, tolerances), ask(binned, tolerances))
        sorts = exact.points.is_beyond(tolerances).any()  # a search needs all scores
        assert binned.certificate == ("declared" if sorts else "simultaneous")


@pytest.mark.parametrize("n_groups", [2, 4])
def test_the_histogram_route_works_without_labels(n_groups, monkeypatch):
    monkeypatch.setattr(sweeping, "SORT_LIMIT", 0)
    monkeypatch.setattr(sweeping, "MAX_BINS_PER_ROW", 10**9)
    logits, codes, _ = draw(continuous, 3, n_groups=n_groups, largest=500, smallest=100)
    exact = ask(sweep(logits, codes), TOLERANCES)
    binned = ask(sweep(logits, codes, tolerances=TOLERANCES), TOLERANCES)
    same_points(exact, binned)
    assert binned.accuracy is None


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_at_other_tolerances_the_histogram_route_stays_within_them(
    criterion, n_groups, monkeypatch
):
    monkeypatch.setattr(sweeping, "SORT_LIMIT", 0)
    monkeypatch.setattr(sweeping, "MAX_BINS_PER_ROW", 10**9)
    for seed in range(10):
        logits, codes, y = draw(continuous, seed, n_groups=n_groups, largest=400, smallest=30)
        y = with_counted_rows(criterion, codes, y)
        binned = sweep(logits, codes, y, criterion=criterion, tolerances=[0.1], min_count=1)
        points = ask(binned, np.linspace(0, 0.5, 11))
        for point in points:
            check_figures(criterion, point, logits, codes, y)


def test_one_row_more_than_the_limit_takes_the_histogram_route():
    rng = np.random.default_rng(0)
    n = sweeping.SORT_LIMIT + 1
    codes = rng.integers(0, 2, n)
    logits = rng.normal(size=n) + 0.8 * codes
    y = rng.random(n) < 1 / (1 + np.exp(-logits))
    tolerances = np.linspace(0.01, 0.3, 10)
    binned = sweep(logits, codes, y, tolerances=tolerances)
    assert len(binned) < n / 2
    same_points(sweep(logits, codes, y).at(tolerances), binned.at(tolerances))


# ---- more than two groups ----------------------------------------------------------------------


def reachable(criterion, logits, codes, y, a):
    """Rates and prices of one group: (k / m, price of the row that the k-th step passes)."""
    eligible = rows_that_count(criterion, y)
    z = logits[eligible & (codes == a)].astype(np.float64)
    values = sorted(set(z.tolist()), reverse=True)
    rows = [np.sum(z == value) for value in values]
    rates = np.concatenate(([0], np.cumsum(rows))) / len(z)
    prices = len(z) / len(logits) * unit_price(criterion, np.array(values))
    return rates, prices, int(np.sum(np.array(values) > 0))


def band_states(criterion, logits, codes, y):
    """(T, gap) of the bands whose floor and ceiling cost the same T, straight from G and H."""
    n_groups = int(codes.max()) + 1
    groups = [reachable(criterion, logits, codes, y, a) for a in range(n_groups)]
    free = np.array([rates[k] for rates, _, k in groups])
    levels = np.unique(np.concatenate([rates for rates, _, _ in groups]))
    levels = levels[(levels >= free.min()) & (levels <= free.max())]

    def floor_cost(level):
        return sum(
            -prices[np.searchsorted(rates, level) - 1]
            for rates, prices, k in groups
            if rates[k] < level
        )

    def ceiling_cost(level):
        return sum(
            prices[np.searchsorted(rates, level, side="right") - 1]
            for rates, prices, k in groups
            if rates[k] > level
        )

    costs_up = np.array([floor_cost(level) for level in levels])
    costs_down = np.array([ceiling_cost(level) for level in levels])
    for price in np.unique(np.concatenate((costs_up, costs_down))):
        low = levels[costs_up <= price].max()
        high = levels[costs_down <= price].min()
        if high < low:
            break
        moved = []
        for rates, _, k in groups:
            rate = rates[k]
            if rate < low:
                rate = rates[np.searchsorted(rates, low)]
            elif rate > high:
                rate = rates[np.searchsorted(rates, high, side="right") - 1]
            moved.append(rate)
        yield price, max(moved) - min(moved)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", ["continuous", "tied", "symmetric", "infinite", "saturated"])
@pytest.mark.parametrize("n_groups", [3, 4])
def test_several_groups_never_break_a_tolerance_they_report_as_kept(name, criterion, n_groups):
    for seed in range(40):
        logits, codes, y = draw(
            GENERATORS[name], 53 * seed, n_groups=n_groups, smallest=3, largest=8
        )
        y = with_counted_rows(criterion, codes, y)
        points = ask(sweep(logits, codes, y, criterion=criterion, min_count=1), TOLERANCES)
        for point in points:
            check_figures(criterion, point, logits, codes, y)
            check_placement(point, logits, codes)
            if point.feasible:
                assert point.gap <= point.tolerance


@pytest.mark.parametrize("n_groups", [3, 4])
@pytest.mark.parametrize("name", ["continuous", "tied", "symmetric"])
def test_no_threshold_vector_within_the_tolerance_costs_less_than_the_optimum(name, n_groups):
    """All threshold vectors of small groups: the dial is never above the best expected accuracy."""
    for seed in range(25):
        logits, codes, y = draw(
            GENERATORS[name], 211 * seed, n_groups=n_groups, smallest=3, largest=6
        )
        groups = [reachable("demographic_parity", logits, codes, y, a) for a in range(n_groups)]
        sizes = np.bincount(codes)
        losses = []  # of expected accuracy at each rank
        for a, (rates, prices, k) in enumerate(groups):
            steps = np.diff(rates)
            cost = np.concatenate(([0.0], np.cumsum(-prices * steps)))
            losses.append(cost - cost[k])
            assert losses[a].min() >= -1e-15
            assert sizes[a] > 0
        ranks = np.array(list(itertools.product(*(range(len(g[0])) for g in groups))))
        rates = np.stack([groups[a][0][ranks[:, a]] for a in range(n_groups)], axis=1)
        loss = sum(losses[a][ranks[:, a]] for a in range(n_groups))
        spread = rates.max(axis=1) - rates.min(axis=1) - 1e-12  # of differences, which round
        for point in ask(sweep(logits, codes, y, min_count=1), TOLERANCES):
            mine = sum(
                losses[a][int(np.flatnonzero(groups[a][0] == rate)[0])]
                for a, rate in enumerate(point.rates)
            )
            best = loss[spread <= max(point.tolerance, point.gap) + 1e-12].min()
            assert mine >= best - 1e-12
            if point.tolerance >= spread[np.argmin(loss)]:
                assert mine == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_groups", [2, 3, 4, 6])
def test_the_path_reaches_every_tolerance_that_a_priced_band_reaches(criterion, n_groups):
    for seed in range(40):
        logits, codes, y = draw(continuous, 89 * seed, n_groups=n_groups, largest=25, smallest=4)
        y = with_counted_rows(criterion, codes, y)
        frontier = sweep(logits, codes, y, criterion=criterion, min_count=1)
        bands = list(band_states(criterion, logits, codes, y))
        points = ask(frontier, TOLERANCES)
        for point, index in zip(points, points.indices, strict=True):
            within = [price for price, gap in bands if gap <= point.tolerance]
            if within:
                assert point.feasible
                assert frontier.points.cost[index] <= within[0] * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("n_groups", [2, 3, 5, 8])
@pytest.mark.parametrize("n", [2_000, 6_000])
def test_with_calibrated_scores_the_loss_to_the_exact_optimum_is_small(n_groups, n):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        codes = rng.permutation(np.arange(n) % n_groups)
        logits = rng.normal(rng.normal(0, 0.7, n_groups)[codes], 1.3)
        probability = 1 / (1 + np.exp(-logits))
        y = (rng.random(n) < probability).astype(int)
        groups = [reachable("demographic_parity", logits, codes, y, a) for a in range(n_groups)]
        costs = []
        for rates, prices, k in groups:
            cost = np.concatenate(([0.0], np.cumsum(-prices * np.diff(rates))))
            costs.append(cost - cost[k])
        best_accuracy = np.where(logits > 0, probability, 1 - probability).mean()
        frontier = sweep(logits, codes, y)
        for tolerance in (0.01, 0.03, 0.1, 0.2):
            best = best_band_loss(groups, costs, tolerance)
            point = frontier.at(tolerance)
            decisions = logits > point.thresholds[codes]
            accuracy = np.where(decisions, probability, 1 - probability).mean()
            loss = best_accuracy - accuracy
            assert loss >= best - 1e-12
            assert loss - best <= 1e-3


def best_band_loss(groups, costs, tolerance):
    """Least loss over all bands [l, l + tolerance] whose floor or ceiling is a reachable rate."""
    every = np.unique(np.concatenate([rates for rates, _, _ in groups]))
    lows = np.concatenate((every, every - tolerance))
    highs = np.concatenate((every + tolerance, every))
    total = np.zeros(len(lows))
    for (rates, _, k), cost in zip(groups, costs, strict=True):
        first = np.searchsorted(rates, lows - 1e-12)
        last = np.searchsorted(rates, highs + 1e-12, side="right") - 1
        rank = np.clip(k, first, np.maximum(last, first))
        total += np.where(first <= last, cost[np.minimum(rank, len(rates) - 1)], np.inf)
    return total.min()


def test_groups_at_the_same_level_move_together():
    """Two groups at rate 1: lowering one alone costs accuracy and leaves the ceiling where it is.

    Raising the third group is cheaper than lowering both, and ends with no gap.
    """
    frontier = sweep([1.25, 0.25, 3.45, 2.25, 1.15, -0.55], [0, 0, 1, 1, 2, 2], min_count=1)
    with pytest.warns(ConstantDecisionsWarning):
        point = frontier.at(0.0)
    assert point.feasible
    assert point.selection_rate.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_first_certifiable_point_agrees_with_a_linear_search(criterion):
    found = 0
    for seed in range(30):
        logits, codes, y = draw(tied if seed % 2 else continuous, seed, smallest=5)
        y = with_counted_rows(criterion, codes, y)
        path = sweep(logits, codes, y, criterion=criterion, min_count=1).points
        for points in (path, path.take(np.arange(0, len(path), 3))):
            tolerances = np.concatenate((TOLERANCES, points.gap))
            first, feasible = points.find_certifiable(tolerances)
            for tolerance, index, able in zip(tolerances, first, feasible, strict=True):
                expected = [
                    i
                    for i in range(len(points))
                    if points.certifiable[i] and points.gap[i] <= tolerance
                ]
                assert able == bool(expected)
                assert not able or index == expected[0]
                found += able
    assert found > 100


def test_one_group_has_no_gap():
    point = sweep([1.0, -1.0, 0.5], ["a", "a", "a"], [1, 0, 0], min_count=1).at(0.0)
    assert point.gap == 0
    assert point.feasible
    assert point.thresholds.tolist() == [0.0]


def test_the_rows_given_are_left_as_they_were():
    logits, codes, y = draw(symmetric, 4, n_groups=3)
    copies = logits.copy(), codes.copy(), y.copy()
    for array in (logits, codes, y):
        array.setflags(write=False)
    ask(sweep(logits, codes, y, min_count=1), TOLERANCES)
    for array, copy in zip((logits, codes, y), copies, strict=True):
        np.testing.assert_array_equal(array, copy)
        np.testing.assert_array_equal(np.signbit(array), np.signbit(copy))


@pytest.mark.parametrize("name", ["demographic_parity", "equal_opportunity", "predictive_equality"])
@pytest.mark.parametrize("weights", ["none", "whole", "real"])
def test_running_sums_give_the_accuracy_of_every_point(name: str, weights: str) -> None:
    rng = np.random.default_rng(5)
    for n_groups in (1, 3, 7, 40):
        groups = np.concatenate([np.arange(n_groups).repeat(4), rng.integers(0, n_groups, 300)])
        y = np.concatenate([np.tile([0, 0, 1, 1], n_groups), rng.integers(0, 2, 300)])
        logits = np.round(rng.normal(size=len(y)), 1)  # with ties
        sample_weight = {
            "none": None,
            "whole": rng.integers(1, 4, len(y)),
            "real": rng.random(len(y)) + 0.1,
        }[weights]
        frontier = sweep(
            logits, groups, y, criterion=name, sample_weight=sample_weight, min_count=1
        )
        one_by_one = frontier.accuracy_of(np.arange(len(frontier)))
        np.testing.assert_array_equal(frontier.accuracy, one_by_one)
