"""Laws of decisions by prices: blind dials."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit

from fairdial import (
    Budget,
    CannotCertifyError,
    Costs,
    Frontier,
    InfeasibleToleranceWarning,
    InvalidInputError,
    SmallGroupError,
    sweep,
    sweep_blind,
)
from fairdial.core.criteria import criterion
from fairdial.core.decide import count_selected
from fairdial.core.price_path import Counter, count_path, find_knots
from fairdial.core.prices import Gains, Pricing, check_priceable, margins
from fairdial.core.problem import make_problem
from fairdial.io.frontiers import frontier_from_arrays, frontier_to_arrays

CRITERIA = (
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "false_negative_rate_parity",
    "accuracy_parity",
    "equalized_odds",
    "demographic_parity+equal_opportunity",
)
FAIR = Gains(1.0, 1.0)


def draw(n, n_groups, seed, noise=1.0):
    """Logits, probabilities of groups, groups and labels; each row is drawn from what they say."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_groups, noise), n)
    codes = (rng.random(n)[:, None] > shares.cumsum(axis=1)[:, :-1]).sum(axis=1)
    logits = rng.normal(shares @ np.linspace(-1, 1, n_groups), 1.0)
    return logits, shares, codes, (rng.random(n) < expit(logits)).astype(int)


def rates_of(name):
    return [demand.rate for demand in criterion(name).demands]


def decisions(frontier, logits, shares):
    """Return the decisions of every point, (S, n)."""
    points, rates = frontier.points, [demand.rate for demand in frontier.criterion.demands]
    return np.array([margins(logits, shares, rates, points.gains, p) > 0 for p in points.prices])


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_states_of_a_path_are_counted_as_they_decide(name, n_groups):
    kind, rates = criterion(name), rates_of(name)
    for seed in range(12):
        logits, shares, codes, y = draw(30, n_groups, seed)
        if seed % 3 == 0:
            logits, shares = logits.round(0), np.eye(n_groups)[shares.argmax(axis=1)]  # ties
        pricing, counter = Pricing.make(logits, shares, kind, FAIR), Counter(codes, y, n_groups)
        rng = np.random.default_rng(seed)
        knots = [np.zeros(len(rates) * n_groups), *rng.normal(size=(2, len(rates) * n_groups))]
        states = count_path(pricing, counter, knots)
        prices = states.prices.reshape(len(states.prices), len(rates), n_groups)
        found = np.array([margins(logits, shares, rates, FAIR, line) for line in prices])
        assert np.array_equal(count_selected(found, codes, y, n_groups), states.selected)
        values = ((found > 0) * (2 * expit(logits) - 1)).mean(axis=1)
        assert np.allclose(values, states.value, atol=1e-12)


def test_a_segment_visits_every_decision_between_its_ends():
    for seed in range(20):
        logits, shares, codes, y = draw(9, 2, seed)
        pricing = Pricing.make(logits, shares, criterion("demographic_parity"), FAIR)
        ends = [np.zeros(2), np.array([3.0, -3.0])]
        states = count_path(pricing, Counter(codes, y, 2), ends)
        fine = np.linspace(0.0, 1.0, 4_001)[:, None] * ends[1]
        every = set(map(tuple, pricing.utility > fine @ pricing.loads.T))
        visited = {tuple(pricing.margins(line) > 0) for line in states.prices}
        assert every <= visited


@pytest.mark.parametrize("name", CRITERIA)
def test_tolerances_hold_on_calibration_rows_and_bounds_above_values(name):
    for n_groups, seed in ((2, 0), (3, 1), (5, 2)):
        logits, shares, codes, y = draw(1500, n_groups, seed, noise=0.3)
        frontier = sweep_blind(logits, shares, codes, y, criterion=name, min_count=1)
        for tolerance in (0.3, 0.1, 0.05):
            with warnings.catch_warnings(record=True) as raised:
                warnings.simplefilter("always")
                point = frontier.at(tolerance)
            assert point.feasible == (not raised)
            decided = frontier.decide(logits, shares, tolerance)
            counts = count_selected(decided[None] - 0.5, codes, y, n_groups)[0]
            assert np.array_equal(counts, point.selected_cells)
            assert point.gap == frontier.criterion.gap_of(counts, frontier.cells)
            assert point.gap <= tolerance or not point.feasible
            assert np.isclose(point.expected_value, expected_accuracy(logits, y, decided))
        assert frontier.at(0.3).feasible


def expected_accuracy(logits, y, decided):
    """Return the objective: the share of negatives is counted, what is gained is expected."""
    return float(((2 * expit(logits) - 1) * decided).mean() + (1 - y).mean())


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_the_bound_is_close_to_the_linear_program_and_never_below(name):
    kind = criterion(name)
    for n_groups, seed in ((2, 0), (3, 1)):
        logits, shares, _, _ = draw(400, n_groups, seed, noise=0.4)
        pricing = Pricing.make(logits, shares, kind, FAIR)
        for tolerance in (0.0, 0.05, 0.15):
            best = solve_program(pricing, tolerance)
            size = len(pricing.shares)
            prices = pricing.minimize(tolerance, np.zeros(size), np.zeros(size))
            intercept, slope = pricing.bound(prices)
            assert best - 1e-9 <= intercept + slope * tolerance <= best + 1e-3
            other = pricing.balance(prices + np.random.default_rng(0).normal(size=size))
            intercept, slope = pricing.bound(other)
            assert intercept + slope * tolerance >= best - 1e-9


def solve_program(pricing, tolerance):
    """Return the best expected utility of randomized decisions within a tolerance, by HiGHS."""
    size = pricing.loads.shape[1]
    rates = (pricing.weights[:, None] * pricing.loads / pricing.shares).T  # (L, n)
    start, by_demand = pricing.start / pricing.shares, size // pricing.n_demands
    rows, limits = [], []
    for a in range(size):
        for b in range(size):
            if a != b and a // by_demand == b // by_demand:
                rows.append(rates[a] - rates[b])
                limits.append(tolerance * pricing.widths[a] - start[a] + start[b])
    found = linprog(-pricing.weights * pricing.utility, np.array(rows), limits, bounds=(0, 1))
    return -found.fun


def test_paths_stay_close_to_the_linear_program():
    logits, shares, codes, y = draw(6000, 3, 0, noise=0.3)
    frontier = sweep_blind(logits, shares, codes, y)
    pricing = Pricing.make(logits, shares, frontier.criterion, FAIR)
    for tolerance in (0.05, 0.1, 0.2):
        point = frontier.at(tolerance)
        expected = criterion_of_plug_in(pricing, point)
        assert solve_program(pricing, expected) - value_of_plug_in(pricing, point) <= 1e-3


def criterion_of_plug_in(pricing, point):
    """Return the difference of the expected rates at a point."""
    chosen = pricing.weights * (pricing.margins(point.prices.ravel()) > 0)
    return float(np.ptp((pricing.start + chosen @ pricing.loads) / pricing.shares))


def value_of_plug_in(pricing, point):
    chosen = pricing.margins(point.prices.ravel()) > 0
    return float((pricing.weights * pricing.utility) @ chosen)


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds"])
def test_no_row_returns_on_a_nested_dial(name):
    logits, shares, codes, y = draw(800, 4, 3, noise=0.3)
    frontier = sweep_blind(logits, shares, codes, y, criterion=name, nested=True)
    assert frontier.nested
    moved = np.abs(np.diff(decisions(frontier, logits, shares).astype(int), axis=0)).sum(axis=0)
    assert moved.max() == 1
    assert sweep_blind(logits, shares, codes, y, criterion="equalized_odds").nested is False


@pytest.mark.parametrize("name", ["demographic_parity", "equal_opportunity", "predictive_equality"])
def test_known_groups_get_the_decisions_of_group_thresholds(name):
    logits, _, codes, y = draw(3000, 2, 4, noise=0.3)
    blind = sweep_blind(logits, np.eye(2)[codes], codes, y, criterion=name)
    aware = sweep(logits, codes, y, criterion=name)
    for tolerance in (0.3, 0.1, 0.02):
        differ = blind.decide(logits, np.eye(2)[codes], tolerance) != aware.decide(
            logits, codes, tolerance
        )
        # shares of eligible rows are expected in one and counted in the other
        assert differ.mean() <= (0.0 if name == "demographic_parity" else 0.01)


def test_whole_weights_are_repeated_rows():
    logits, shares, codes, y = draw(600, 2, 5, noise=0.4)
    times = np.random.default_rng(0).integers(0, 4, 600)
    weighted = sweep_blind(logits, shares, codes, y, sample_weight=times)
    again = np.repeat(np.arange(600), times)
    repeated = sweep_blind(logits[again], shares[again], codes[again], y[again])
    assert np.array_equal(weighted.cells, repeated.cells)
    for tolerance in (0.2, 0.1, 0.03):
        one, other = weighted.at(tolerance), repeated.at(tolerance)
        assert np.array_equal(one.selected_cells, other.selected_cells)
    with pytest.raises(CannotCertifyError):
        weighted.at(0.2, confidence=0.95)


def test_other_objectives_are_maximized():
    logits, shares, codes, y = draw(4000, 2, 6, noise=0.3)
    costs = Costs(1.0, 4.0)
    cheap = sweep_blind(logits, shares, codes, y, objective=costs).at(0.1)
    plain = sweep_blind(logits, shares, codes, y).at(0.1)
    assert cheap.gap <= 0.1
    assert cheap.value > costs.value_of(plain.selected, plain.counts)
    chosen = margins(logits, shares, rates_of("demographic_parity"), cheap.gains, cheap.prices) > 0
    missed, false = (
        4 * (y.mean() - (expit(logits) * chosen).mean()),
        (expit(-logits) * chosen).mean(),
    )
    assert np.isclose(cheap.expected_value, -missed - false)
    assert cheap.expected_value <= cheap.bound + 0.01
    balanced = sweep_blind(logits, shares, codes, y, objective="balanced_accuracy").at(0.1)
    assert balanced.gap <= 0.1


def test_labels_are_optional_for_demographic_parity():
    logits, shares, codes, _ = draw(1000, 2, 7)
    frontier = sweep_blind(logits, shares, codes)
    point = frontier.at(0.02)
    assert point.gap <= 0.02
    assert point.accuracy is None
    with pytest.raises(InvalidInputError) as error:
        sweep_blind(logits, shares, codes, criterion="equal_opportunity")
    assert error.value.argument == "y"


def test_probabilities_that_say_nothing_reach_only_what_everybody_gets():
    logits, _, codes, y = draw(1000, 2, 8, noise=0.2)
    frontier = sweep_blind(logits, np.full((1000, 2), 0.5), codes, y)
    with pytest.warns(InfeasibleToleranceWarning):
        point = frontier.at(0.0)
    assert point.gap > 0


# ---- certificates ------------------------------------------------------------------------------


def test_certified_rules_hold_on_new_rows_and_cost_less_than_the_strictest():
    logits, shares, codes, y = draw(20_000, 3, 9, noise=0.3)
    frontier = sweep_blind(logits, shares, codes, y)
    assert frontier.can_certify
    point = frontier.at(0.1, confidence=0.95)
    assert point.theorem == 5
    assert point.certified_gap == 0.1
    rules = frontier.points.rules
    rates = [demand.rate for demand in frontier.criterion.demands]
    lines = [margins(logits, shares, rates, rules.table.gains, p) for p in rules.table.prices[::9]]
    counted = count_selected(np.array(lines), codes, y, 3)
    assert np.array_equal(counted, rules.table.read(np.arange(0, len(rules.table), 9))[1])
    new = draw(200_000, 3, 10, noise=0.3)
    chosen = frontier.decide(new[0], new[1], 0.1, confidence=0.95)
    rates = np.bincount(new[2], chosen) / np.bincount(new[2])
    assert np.ptp(rates) <= 0.1
    assert point.accuracy > frontier.at(0.01).accuracy
    both = frontier.at([0.1, 0.2], confidence=0.95)
    assert [p.certified_gap for p in both] == [0.1, 0.2]
    assert both[1].accuracy >= both[0].accuracy
    with pytest.raises(CannotCertifyError):
        frontier.at(0.1, confidence=0.95, simultaneous=True)
    with pytest.raises(CannotCertifyError):
        frontier.at(0.001, confidence=0.95)


def test_rules_do_not_depend_on_the_rows_that_test_them():
    logits, shares, codes, y = draw(4000, 2, 11, noise=0.3)
    first = sweep_blind(logits, shares, codes, y, criterion="equal_opportunity").points.rules
    changed = 0
    for row in range(0, 4000, 97):  # the draw doesn't depend on labels
        other = y.copy()
        other[row] = 1 - other[row]
        rules = sweep_blind(logits, shares, codes, other, criterion="equal_opportunity")
        same = np.array_equal(rules.points.rules.testing, first.testing)
        assert same or np.array_equal(rules.points.rules.table.prices, first.table.prices)
        changed += not same
        if changed == 5:
            break
    assert changed == 5


# ---- saving ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds"])
def test_frontiers_come_back_to_the_last_bit(name):
    logits, shares, codes, y = draw(3000, 3, 12, noise=0.3)
    frontier = sweep_blind(logits, shares, codes, y, criterion=name)
    data, body = frontier_to_arrays(frontier)
    for again in (
        Frontier.from_json(frontier.to_json()),
        frontier_from_arrays(data, body, "frontier"),
        Frontier.from_json(frontier_from_arrays(data, body, "frontier").to_json()),
    ):
        assert again.is_blind
        assert again.nested == frontier.nested
        for options in ({}, {"confidence": 0.9}):
            point, other = frontier.at(0.2, **options), again.at(0.2, **options)
            assert np.array_equal(point.prices, other.prices)
            assert np.array_equal(point.selected_cells, other.selected_cells)
            assert point.bound == other.bound
        assert again.to_json() == frontier.to_json()


@pytest.mark.parametrize("column", ["prices", "gap", "selected", "gains", "rules.found"])
def test_damaged_columns_are_refused(column):
    logits, shares, codes, y = draw(500, 2, 13)
    data = json.loads(sweep_blind(logits, shares, codes, y).to_json())
    data["prices"][column] = data["prices"][column][:-1]
    with pytest.raises(InvalidInputError):
        Frontier.from_json(json.dumps(data))


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"criterion": "demographic_parity_ratio"}, "criterion"),
        ({"criterion": "predictive_parity"}, "criterion"),
        ({"criterion": "demographic_parity+true_positive_rate>=0.5"}, "criterion"),
        ({"objective": "f1"}, "objective"),
    ],
)
def test_problems_that_prices_do_not_solve_are_refused(options, argument):
    logits, shares, codes, y = draw(300, 2, 14)
    with pytest.raises(InvalidInputError) as error:
        sweep_blind(logits, shares, codes, y, **options)
    assert error.value.argument == argument


def test_budgets_and_lotteries_are_refused():
    for options in ({"budget": Budget(0.3)}, {"rising": True}, {"randomize": "hash"}):
        with pytest.raises(InvalidInputError) as error:
            check_priceable(make_problem(**options))
        assert error.value.argument in options


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q: q[:, :1],
        lambda q: q * 0.5,
        lambda q: np.where(q == q[7], np.nan, q),
        lambda q: q - [[0.9, -0.9]],
    ],
)
def test_probabilities_that_are_none_are_refused(wrong):
    logits, shares, codes, y = draw(100, 2, 15)
    with pytest.raises(InvalidInputError) as error:
        sweep_blind(logits, wrong(shares), codes, y, min_count=1)
    assert error.value.argument == "posterior"


def test_what_needs_group_thresholds_refuses_a_blind_dial():
    logits, shares, codes, y = draw(1000, 2, 16)
    frontier = sweep_blind(logits, shares, codes, y)
    for call in (
        frontier.band,
        lambda: frontier.guided_by(frontier),
        lambda: frontier.row_thresholds(np.array([0.1]), codes[:1]),
    ):
        with pytest.raises(InvalidInputError):
            call()
    with pytest.raises(CannotCertifyError):
        frontier.margin()
    with pytest.raises(InvalidInputError):
        sweep(logits, codes, y).margins(logits, shares, 0.1)
    with pytest.raises(SmallGroupError):
        sweep_blind(logits, shares, codes, y, min_count=900)


def test_each_row_may_have_its_own_tolerance():
    logits, shares, codes, y = draw(1000, 2, 17)
    frontier = sweep_blind(logits, shares, codes, y)
    tolerances = np.where(np.arange(1000) % 2, 0.02, 0.2)
    mixed = frontier.decide(logits, shares, tolerances)
    for tolerance in (0.02, 0.2):
        rows = tolerances == tolerance
        assert np.array_equal(mixed[rows], frontier.decide(logits, shares, tolerance)[rows])
    moved = frontier.flips(logits, shares, 0.2, 0.02)
    assert np.array_equal(
        moved == 1, ~frontier.decide(logits, shares, 0.2) & frontier.decide(logits, shares, 0.02)
    )


def test_knots_lower_the_gap_of_several_rates_and_groups():
    logits, shares, codes, y = draw(5000, 4, 18, noise=0.3)
    kind = criterion("equalized_odds")
    pricing, counter = Pricing.make(logits, shares, kind, FAIR), Counter(codes, y, 4)
    cells = counter.total()
    knots = find_knots(pricing, counter, kind, cells)
    gaps = [
        float(kind.gap_of(counter.count(np.flatnonzero(pricing.margins(v) > 0)), cells))
        for v in knots
    ]
    assert gaps[-1] < 0.2 * gaps[0]
