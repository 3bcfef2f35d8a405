"""Laws of decisions among more than two classes."""

from __future__ import annotations

import itertools
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from fairdial import (
    CannotCertifyError,
    ConstantDecisionsWarning,
    Costs,
    Frontier,
    InfeasibleToleranceWarning,
    InvalidInputError,
    SmallGroupError,
    sweep,
    sweep_classes,
)
from fairdial.core.class_path import ClassCounter, count_class_path
from fairdial.core.class_points import ClassRows
from fairdial.core.class_prices import ClassPricing, choose_class, class_values, probabilities
from fairdial.core.class_problem import for_classes
from fairdial.core.criteria import criterion
from fairdial.core.price_points import find_price_points
from fairdial.core.problem import Problem
from fairdial.io.frontiers import frontier_from_arrays, frontier_to_arrays

CRITERIA = (
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "false_negative_rate_parity",
    "equalized_odds",
    "demographic_parity+equal_opportunity",
)


def draw(n, n_classes, n_groups, seed, spread=0.6):
    """Logits of classes, groups and labels; each label is drawn from what the logits say."""
    rng = np.random.default_rng(seed)
    codes = np.append(np.arange(n_groups), rng.integers(n_groups, size=n - n_groups))
    means = spread * rng.normal(size=(n_groups, n_classes))
    scores = means[codes] + rng.normal(size=(n, n_classes))
    return scores, codes, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


def recount(decided, y, codes, n_classes, n_groups):
    """Return rows by decided class, whether they belong to it, and group, (2 C, K)."""
    found = np.zeros((2 * n_classes, n_groups), int)
    np.add.at(found, (2 * decided + (y == decided), codes), 1)
    return found


@pytest.mark.parametrize("name", CRITERIA)
def test_states_of_a_path_are_counted_as_they_decide(name):
    n_states = 0
    for seed in range(12):
        n_classes, n_groups = 2 + seed % 4, 2 + seed % 3
        scores, codes, y = draw(25, n_classes, n_groups, seed)
        if seed % 3 == 0:
            scores = scores.round(0)  # ties
        kind = for_classes(criterion(name), tuple(range(n_classes)))
        shares = probabilities(scores)
        pricing = ClassPricing.make(shares, codes, n_groups, kind)
        counter = ClassCounter(codes, y, n_classes, n_groups)
        rng = np.random.default_rng(seed)
        size = len(pricing.shares)
        knots = [np.zeros(size), *rng.normal(size=(3, size)) * [[0.3], [1.0], [0.1]]]
        states = count_class_path(pricing, counter, knots)
        n_states += len(states.prices)
        for prices, selected, value in zip(
            states.prices, states.selected, states.value, strict=True
        ):
            lines = prices.reshape(len(kind.demands), n_groups)
            decided = choose_class(class_values(shares, codes, kind.demands, lines))
            assert np.array_equal(recount(decided, y, codes, n_classes, n_groups), selected)
            assert np.isclose(value, shares[np.arange(25), decided].mean(), atol=1e-12)
    assert n_states > 200


def test_a_segment_visits_every_decision_between_its_ends():
    for seed in range(8):
        scores, codes, y = draw(9, 4, 2, seed)
        kind = for_classes(criterion("demographic_parity"), tuple(range(4)))
        pricing = ClassPricing.make(probabilities(scores), codes, 2, kind)
        ends = [np.zeros(8), np.random.default_rng(seed).normal(size=8)]
        states = count_class_path(pricing, ClassCounter(codes, y, 4, 2), ends)
        visited = {tuple(choose_class(pricing.values(line))) for line in states.prices}
        fine = [choose_class(pricing.values(s * ends[1])) for s in np.linspace(0, 1, 2_001)]
        assert set(map(tuple, fine)) <= visited
        for row in range(9):  # the ray theorem: no return to a class that was left
            along = [key for key, _ in itertools.groupby(line[row] for line in fine)]
            assert len(along) == len(set(along))


@pytest.mark.parametrize("name", CRITERIA)
def test_tolerances_hold_on_calibration_rows(name):
    for n_classes, n_groups, seed in ((3, 2, 0), (4, 3, 1), (5, 5, 2)):
        scores, codes, y = draw(1500, n_classes, n_groups, seed)
        frontier = sweep_classes(scores, codes, y, criterion=name, min_count=1)
        for tolerance in (0.3, 0.1, 0.05):
            with warnings.catch_warnings(record=True) as raised:
                warnings.simplefilter("always")
                point = frontier.at(tolerance)
                decided = frontier.decide(scores, codes, tolerance)
            kinds = {warning.category for warning in raised}
            assert point.feasible == (InfeasibleToleranceWarning not in kinds)
            counts = recount(decided, y, codes, n_classes, n_groups)
            assert np.array_equal(counts, point.selected_cells)
            assert point.gap == frontier.criterion.gap_of(counts, frontier.cells)
            assert point.gap <= tolerance or not point.feasible
            assert np.isclose(point.accuracy, (decided == y).mean())
            shares = probabilities(scores)
            assert np.isclose(point.expected_value, shares[np.arange(1500), decided].mean())
        assert frontier.at(0.3).feasible


def rates_by_hand(decided, y, codes, name):
    """Return the largest difference between groups of what a criterion limits, over classes."""
    eligible = {"demographic_parity": (None,), "equal_opportunity": (1,), "equalized_odds": (1, 0)}
    gaps = []
    for c in range(int(y.max()) + 1):
        for among in eligible[name]:
            rows = np.ones(len(y), bool) if among is None else (y == c) == bool(among)
            rates = [(decided == c)[rows & (codes == a)].mean() for a in range(codes.max() + 1)]
            gaps.append(max(rates) - min(rates))
    return max(gaps)


@pytest.mark.parametrize("name", ["demographic_parity", "equal_opportunity", "equalized_odds"])
def test_the_gap_is_the_largest_of_the_classes(name):
    scores, codes, y = draw(800, 4, 3, 5)
    frontier = sweep_classes(scores, codes, y, criterion=name, min_count=1)
    decided = scores.argmax(axis=1)
    assert np.isclose(frontier.gap[0], rates_by_hand(decided, y, codes, name))
    point = frontier.at(0.15)
    decided = frontier.decide(scores, codes, 0.15)
    assert np.isclose(point.gap, rates_by_hand(decided, y, codes, name))
    assert np.allclose(
        point.true_positive_rate,
        [[(decided == c)[(y == c) & (codes == a)].mean() for a in range(3)] for c in range(4)],
    )
    assert np.allclose(
        point.selection_rate,
        [[(decided == c)[codes == a].mean() for a in range(3)] for c in range(4)],
    )


def test_no_decisions_of_few_rows_are_better():
    """Brute force: no decisions within the plug-in rates of a point have more expected utility.

    Each point maximizes utility minus price, so it is the best among decisions with its own rates.
    """
    for seed in range(12):
        scores, codes, _ = draw(7, 3, 2, seed)
        kind = for_classes(criterion("demographic_parity"), (0, 1, 2))
        shares = probabilities(scores)
        points = find_price_points(ClassRows(shares, codes, None, 2), Problem(kind))
        every = np.array(list(itertools.product(range(3), repeat=7)))  # (3^7, n)
        value = shares[np.arange(7), every].mean(axis=1)
        member = (np.arange(2) == codes[:, None]).astype(int)  # (n, K)
        counts = np.concatenate([(every == c) @ member for c in range(3)], axis=1)
        gaps = kind.gap_of(counts.reshape(-1, 3, 2), ClassCounter(codes, None, 3, 2).total())
        selected = points.read(np.arange(len(points)))[1]
        for s in range(len(points)):
            same = (counts == selected[s].ravel()).all(axis=1)
            assert points.value[s] >= value[same].max() - 1e-9
            assert points.gap[s] in gaps
        for tolerance in (0.0, 0.25, 0.5):
            best = value[gaps <= tolerance].max()
            assert points.bound(tolerance) >= best - 1e-9


def solve_program(shares, codes, n_groups, tolerance):
    """Return the best accuracy of randomized decisions with demographic parity, by HiGHS.

    The variables are the decisions, (n C), then the lowest rate of each class.
    """
    n, n_classes = shares.shape
    sizes = np.bincount(codes, minlength=n_groups)
    entries, limits = [], []
    for line, (c, a, sign) in enumerate(
        itertools.product(range(n_classes), range(n_groups), (1, -1))
    ):
        rows = np.flatnonzero(codes == a)
        entries.append((np.full(len(rows), line), rows * n_classes + c, sign / sizes[a] + 0 * rows))
        entries.append(([line], [n * n_classes + c], [-float(sign)]))
        limits.append(tolerance if sign == 1 else 0.0)
    row, column, value = map(np.concatenate, zip(*entries, strict=True))
    width = n * n_classes + n_classes
    upper = csr_matrix((value, (row, column)), shape=(len(limits), width))
    each = csr_matrix(
        (np.ones(n * n_classes), (np.arange(n * n_classes) // n_classes, np.arange(n * n_classes))),
        shape=(n, width),
    )
    cost = -np.append(shares.ravel(), np.zeros(n_classes)) / n
    found = linprog(cost, upper, limits, each, np.ones(n), bounds=(0, 1), method="highs")
    return -found.fun


@pytest.mark.parametrize(("n", "n_classes", "n_groups"), [(1000, 3, 2), (2000, 4, 3), (6000, 5, 5)])
def test_paths_stay_close_to_the_linear_program(n, n_classes, n_groups):
    scores, codes, y = draw(n, n_classes, n_groups, n)
    frontier = sweep_classes(scores, codes, y, min_count=1)
    for tolerance in (0.05, 0.15):
        point = frontier.at(tolerance)
        best = solve_program(probabilities(scores), codes, n_groups, tolerance)
        assert best - 1e-3 <= point.expected_value <= best + 1e-9
        assert best - 1e-9 <= point.bound <= best + 1e-3


@pytest.mark.parametrize("name", ["demographic_parity", "equal_opportunity", "equalized_odds"])
def test_two_classes_get_the_decisions_of_group_thresholds(name):
    rng = np.random.default_rng(4)
    codes = rng.integers(2, size=4000)
    logits = rng.normal(0.8 * codes - 0.4, 1.2)
    y = (rng.logistic(size=4000) < logits).astype(int)
    both = sweep_classes(np.column_stack([np.zeros(4000), logits]), codes, y, criterion=name)
    aware = sweep(logits, codes, y, criterion=name)
    for tolerance in (0.3, 0.1, 0.05):
        assert both.at(tolerance).gap <= tolerance
        found = both.decide(np.column_stack([np.zeros(4000), logits]), codes, tolerance)
        differ = found != aware.decide(logits, codes, tolerance)
        if name == "demographic_parity":
            assert differ.mean() <= 0.001  # of paths that keep some of their points
        else:  # a gap counts both classes, and prices come from expected rates
            assert abs(both.at(tolerance).accuracy - aware.at(tolerance).accuracy) <= 0.01


def test_whole_weights_are_repeated_rows():
    scores, codes, y = draw(700, 3, 2, 5)
    times = np.random.default_rng(0).integers(0, 4, 700)
    weighted = sweep_classes(scores, codes, y, sample_weight=times)
    again = np.repeat(np.arange(700), times)
    repeated = sweep_classes(scores[again], codes[again], y[again])
    assert np.array_equal(weighted.cells, repeated.cells)
    for tolerance in (0.2, 0.1, 0.04):
        one, other = weighted.at(tolerance), repeated.at(tolerance)
        assert one.gap <= tolerance
        assert np.isclose(one.expected_value, other.expected_value, atol=1e-3)
    with pytest.raises(CannotCertifyError):
        weighted.at(0.2, confidence=0.9)


@pytest.mark.parametrize("labeled", [True, False])
def test_frontiers_are_restored_to_the_last_bit(labeled):
    scores, codes, y = draw(3000, 3, 2, 6)
    groups = np.array(["a", "b"])[codes]
    names = ["x", "y", "z"]
    given = np.array(names)[y] if labeled else None
    frontier = sweep_classes(scores, groups, given, classes=names)
    stored, body = frontier_to_arrays(frontier)
    for again in (
        Frontier.from_json(frontier.to_json()),
        frontier_from_arrays(stored, body, "frontier"),
    ):
        assert again.classes == ("x", "y", "z")
        assert again.to_json() == frontier.to_json()
        for confidence in (None, 0.9):
            one, other = (f.at(0.12, confidence=confidence) for f in (frontier, again))
            assert one.gap == other.gap
            assert np.array_equal(one.prices, other.prices)
        assert np.array_equal(
            again.decide(scores, groups, 0.05), frontier.decide(scores, groups, 0.05)
        )
        assert again.has_labels is labeled
        assert (again.at(0.05).accuracy is None) is not labeled


def test_damaged_classes_are_refused():
    scores, codes, y = draw(500, 3, 2, 6)
    text = sweep_classes(scores, codes, y).to_json()
    for before, after in (
        ('"classes": [0, 1, 2]', '"classes": [0, 1]'),
        ('"n_strata": 3', '"n_strata": 2'),
        ('"spread": "difference"', '"spread": "ratio"'),
    ):
        assert before in text
        with pytest.raises(InvalidInputError):
            Frontier.from_json(text.replace(before, after))


def test_certified_gaps_hold_in_the_population():
    """Theorem 5 with classes: few certificates are wrong, and most are granted."""
    wrong = granted = 0
    draws = 15
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        codes = rng.integers(2, size=4000)
        means = np.array([[0.0, 0.0, 0.0], [0.0, 0.3, 0.6]])
        scores = means[codes] + rng.normal(size=(4000, 3))
        y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        frontier = sweep_classes(scores, codes, y)
        try:
            point = frontier.at(0.1, confidence=0.9)
        except CannotCertifyError:
            continue
        assert point.theorem == 5
        granted += 1
        fresh = np.random.default_rng(10_000)
        rates = []
        for a in range(2):
            more = means[a] + fresh.normal(size=(30_000, 3))
            values = class_values(
                probabilities(more),
                np.full(30_000, a),
                frontier.criterion.demands,
                point.prices,
            )
            rates.append(np.bincount(choose_class(values), minlength=3) / 30_000)
        wrong += np.abs(rates[0] - rates[1]).max() > 0.1
    assert granted >= draws / 2
    assert wrong <= 0.1 * granted + 3 * np.sqrt(0.09 * granted)
    with pytest.raises(CannotCertifyError):
        frontier.at(0.1, confidence=0.9, simultaneous=True)
    with pytest.raises(CannotCertifyError) as caught:
        frontier.at(0.001, confidence=0.9)
    assert caught.value.group_rows <= 4000


def test_a_tolerance_for_each_row():
    scores, codes, y = draw(900, 3, 2, 8)
    frontier = sweep_classes(scores, codes, y)
    each = np.where(np.arange(900) % 3 == 0, 0.3, 0.08)
    mixed = frontier.decide(scores, codes, each)
    for tolerance in (0.3, 0.08):
        one = frontier.decide(scores, codes, tolerance)
        assert np.array_equal(mixed[each == tolerance], one[each == tolerance])
    with pytest.raises(InvalidInputError):
        frontier.decide(scores, codes, each, confidence=0.9)


def test_only_limited_classes_are_equal():
    scores, codes, y = draw(4000, 4, 3, 9, spread=0.9)
    every = sweep_classes(scores, codes, y)
    one = sweep_classes(scores, codes, y, limit_classes=[2])
    assert len(one.criterion.demands) == 1
    point = one.at(0.05)
    assert np.ptp(point.selection_rate[2]) <= 0.05 < np.ptp(point.selection_rate, axis=1).max()
    assert point.expected_value > every.at(0.05).expected_value
    for wrong in ([], [7]):
        with pytest.raises(InvalidInputError, match="limit_classes"):
            sweep_classes(scores, codes, y, limit_classes=wrong)


def test_a_nested_dial_is_one_ray():
    scores, codes, y = draw(800, 4, 3, 3)
    frontier = sweep_classes(scores, codes, y, nested=True)
    decided = []
    for prices in frontier.points.prices:
        values = class_values(probabilities(scores), codes, frontier.criterion.demands, prices)
        decided.append(choose_class(values))
    assert frontier.nested
    for row in np.array(decided).T:
        along = [key for key, _ in itertools.groupby(row)]
        assert len(along) == len(set(along))


def test_what_dials_of_classes_refuse():
    scores, codes, y = draw(300, 3, 2, 0)
    with pytest.raises(InvalidInputError, match="scores"):
        sweep_classes(scores[:, 0], codes, y)
    with pytest.raises(InvalidInputError, match="scores"):
        sweep_classes(np.where(scores > 2, np.nan, scores), codes, y)
    with pytest.raises(InvalidInputError, match="classes"):
        sweep_classes(scores, codes, y, classes=["a", "b"])
    with pytest.raises(InvalidInputError, match="y"):
        sweep_classes(scores, codes, y, classes=[0, 1, 5])
    with pytest.raises(InvalidInputError, match="y"):
        sweep_classes(scores, codes, criterion="equal_opportunity")
    with pytest.raises(SmallGroupError):
        sweep_classes(scores, codes, y, criterion="equal_opportunity", min_count=200)
    for name in ("demographic_parity_ratio", "accuracy_parity", "true_positive_rate>=0.5"):
        with pytest.raises(InvalidInputError, match="criterion"):
            sweep_classes(scores, codes, y, criterion=name)
    frontier = sweep_classes(scores, codes, y)
    for use in (
        lambda: frontier.flips(scores, codes, 0.3, 0.1),
        lambda: frontier.to_sql(0.1),
        lambda: frontier.band(),
        lambda: frontier.margins(scores[:, 0], np.eye(2)[codes], 0.1),
    ):
        with pytest.raises(InvalidInputError):
            use()
    with pytest.raises(InvalidInputError, match="class_values"):
        sweep(scores[:, 0], codes).class_values(scores, codes, 0.1)


def test_one_class_for_everybody_is_warned_about():
    codes = np.arange(200) % 2
    scores = np.tile([1.0, 0.0, 0.0], (200, 1))
    scores[0] = [1.0, 1.1, 0.0]
    frontier = sweep_classes(scores, codes)
    with pytest.warns(ConstantDecisionsWarning):
        frontier.at(0.0)


def test_time_grows_almost_linearly():
    took = []
    for n in (10_000, 80_000):
        scores, codes, y = draw(n, 4, 2, 0)
        rows = ClassRows(probabilities(scores), codes, y, 2)
        problem = Problem(for_classes(criterion("demographic_parity"), (0, 1, 2, 3)))
        start = time.process_time()
        find_price_points(rows, problem)
        took.append(time.process_time() - start)
    assert took[1] <= 16 * took[0]


def test_costs_need_two_classes():
    from dataclasses import replace

    from fairdial.core.class_problem import check_class_problem

    problem = Problem(for_classes(criterion("demographic_parity"), (0, 1, 2)))
    check_class_problem(problem)
    with pytest.raises(InvalidInputError, match="objective"):
        check_class_problem(replace(problem, objective=Costs(1.0, 2.0)))


def test_columns_of_scores_are_found_by_name():
    scores, codes, y = draw(900, 3, 2, 0)
    names = ["low", "mid", "top"]
    y, table = np.array(names)[y], pd.DataFrame(scores, columns=names)
    mixed = table[["top", "low", "mid"]]
    frontier = sweep_classes(scores, codes, y, min_count=1)
    wanted = frontier.decide(scores, codes, 0.05)
    for given in (table, mixed, pd.DataFrame(scores)):
        found = sweep_classes(given, codes, y, min_count=1)
        assert np.array_equal(found.decide(mixed, codes, 0.05), wanted)
        assert np.array_equal(frontier.decide(given, codes, 0.05), wanted)
    found = sweep_classes(mixed, codes, min_count=1)  # without labels
    assert found.classes == ("top", "low", "mid")
    assert np.array_equal(found.decide(mixed, codes, 0.05), found.decide(table, codes, 0.05))
    found = sweep_classes(mixed, codes, y, classes=names, min_count=1)
    assert np.array_equal(found.decide(scores, codes, 0.05), wanted)
    wrong = table.set_axis(["low", "mid", "high"], axis=1)
    for call in (
        lambda: sweep_classes(wrong, codes, y, min_count=1),
        lambda: frontier.decide(wrong, codes, 0.05),
        lambda: sweep_classes(table.set_axis(["a", "a", "b"], axis=1), codes, min_count=1),
    ):
        with pytest.raises(InvalidInputError) as error:
            call()
        assert error.value.argument in ("scores", "classes")
