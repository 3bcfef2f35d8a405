"""Laws of lotteries, against a dense linear program and enumeration; and of the hash."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit
from scipy.stats import kstest

from fairdial.core.group_scores import sort_scores
from fairdial.core.lottery import bound, hash_uniform, solve_lottery
from fairdial.core.search import Limit, Total
from fairdial.datasets import make_gaussian

SPREADS = ("difference", "ratio", "minimum", "maximum")
CLOSE = 1e-8


# ---- random problems -------------------------------------------------------------------------


def random_groups(rng, n_groups):
    """Draw the cumulative counts (2, m + 1) of a few scores in each group."""
    return [
        np.cumsum(np.pad(rng.integers(0, 3, (2, rng.integers(1, 6))), ((0, 0), (1, 0))), axis=1)
        for _ in range(n_groups)
    ]


def fixed(groups, label, event, spread, edge):
    """Limit the rate of a decision given the label."""
    picked = [group.sum(axis=0) if label is None else group[label] for group in groups]
    sizes = tuple(np.array(line[-1]) for line in picked)
    if event == "rejected":
        picked = [line[-1] - line for line in picked]
    return Limit(tuple(picked), sizes, spread, edge)


def accuracy(groups, spread, edge):
    """Limit the accuracy, which isn't monotone in the rank."""
    correct = tuple(group[1] + group[0][-1] - group[0] for group in groups)
    return Limit(correct, tuple(np.array(group[:, -1].sum()) for group in groups), spread, edge)


def precision(groups, spread, edge):
    """Limit the precision, whose denominator depends on the rank."""
    return Limit(tuple(g[1] for g in groups), tuple(g.sum(axis=0) for g in groups), spread, edge)


def random_problem(rng):
    groups = random_groups(rng, int(rng.integers(1, 4)))
    values = [rng.normal(size=group.shape[1]).cumsum() for group in groups]
    limits = []
    for _ in range(rng.integers(1, 4)):
        spread, edge = SPREADS[rng.integers(4)], Fraction(int(rng.integers(0, 11)), 10)
        kind = rng.integers(4)
        if kind == 0:
            limits.append(accuracy(groups, spread, edge))
        elif kind == 1 and spread in ("minimum", "maximum"):
            limits.append(precision(groups, spread, edge))
        else:
            label = (None, 0, 1)[rng.integers(3)]
            event = ("selected", "rejected")[rng.integers(2)]
            limits.append(fixed(groups, label, event, spread, edge))
    total = None
    if rng.random() < 0.3:
        counts = tuple(group.sum(axis=0) for group in groups)
        rows = int(sum(line[-1] for line in counts))
        least, most = sorted(rng.integers(0, rows + 1, 2).tolist())
        total = Total(counts, Fraction(most), Fraction(least))
    return values, limits, total


# ---- references ------------------------------------------------------------------------------


def parts(limit, group, n_ranks):
    """Return numerator and denominator at every rank."""
    denominator = np.broadcast_to(limit.denominator[group], n_ranks)
    return limit.numerator[group], denominator


def dense(values, limits, total):
    """Solve the program with all ranks and a constraint for each pair of groups; None: no rule."""
    sizes = [len(line) for line in values]
    starts = np.concatenate(([0], np.cumsum(sizes)))

    def line(group, coefficients):
        full = np.zeros(starts[-1])
        full[starts[group] : starts[group + 1]] = coefficients
        return full

    rows, right = [], []
    for limit in limits:
        edge, rates = float(limit.bound), {}
        for a, size in enumerate(sizes):
            numerator, denominator = parts(limit, a, size)
            if denominator.max() == 0:
                continue
            if limit.spread in ("minimum", "maximum"):
                sign = 1 if limit.spread == "maximum" else -1
                rows.append(line(a, sign * (numerator - edge * denominator)))
                right.append(0.0)
            else:
                rates[a] = line(a, numerator / denominator)
        for one, two in itertools.permutations(rates.values(), 2):
            factor = edge if limit.spread == "ratio" else 1.0
            rows.append(factor * one - two)
            right.append(edge if limit.spread == "difference" else 0.0)
    if total is not None:
        every = np.concatenate(total.selected).astype(float)
        rows += [every, -every]
        right += [float(total.most), -float(total.least)]
    shares = np.stack([line(a, 1.0) for a in range(len(values))])
    found = linprog(
        -np.concatenate(values),
        np.array(rows) if rows else None,
        right if rows else None,
        shares,
        np.ones(len(values)),
    )
    return -found.fun if found.success else None


def meets(limit, ranks):
    """Return whether a vector of ranks is within a limit, in fractions."""
    rates = []
    for a, rank in enumerate(ranks):
        numerator, denominator = parts(limit, a, len(limit.numerator[a]))
        if denominator[rank]:
            rates.append(Fraction(int(numerator[rank]), int(denominator[rank])))
    if not rates:
        return True
    return {
        "difference": max(rates) - min(rates) <= limit.bound,
        "ratio": min(rates) >= limit.bound * max(rates),
        "minimum": min(rates) >= limit.bound,
        "maximum": max(rates) <= limit.bound,
    }[limit.spread]


def enumerate_rules(values, limits, total):
    """Yield the value of each vector of ranks within the limits."""
    for ranks in itertools.product(*(range(len(line)) for line in values)):
        if all(meets(limit, ranks) for limit in limits):
            if total is not None:
                count = sum(int(s[k]) for s, k in zip(total.selected, ranks, strict=True))
                if not total.least <= count <= total.most:
                    continue
            yield sum(line[k] for line, k in zip(values, ranks, strict=True))


def check_mixture(lottery, values, limits, total):
    """Check that the mixture is one, has the stated value and meets the limits in expectation."""
    assert lottery.ranks.shape == lottery.weights.shape == (len(values), lottery.ranks.shape[1])
    assert np.all(lottery.weights >= 0)
    assert lottery.weights.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    for ranks, weights in zip(lottery.ranks, lottery.weights, strict=True):
        used = ranks[weights > 0]
        assert np.all(np.diff(used) > 0)
        assert len(used) <= 1 + len(limits) + (total is not None)

    def mean(lines):
        return [
            float(weights @ np.broadcast_to(line, len(v))[ranks])
            for line, v, ranks, weights in zip(
                lines, values, lottery.ranks, lottery.weights, strict=True
            )
        ]

    assert sum(mean(values)) == pytest.approx(lottery.value, abs=1e-9)
    for limit in limits:
        edge = float(limit.bound)
        pairs = zip(mean(limit.numerator), mean(limit.denominator), strict=True)
        rates = [n / d for n, d in pairs if d > 1e-6]
        if limit.spread == "difference" and rates:
            assert max(rates) - min(rates) <= edge + CLOSE
        elif limit.spread == "ratio" and rates:
            assert min(rates) >= edge * max(rates) - CLOSE
        elif limit.spread == "minimum":
            assert all(rate >= edge - 1e-6 for rate in rates)
        elif limit.spread == "maximum":
            assert all(rate <= edge + 1e-6 for rate in rates)
    if total is not None:
        count = sum(mean(total.selected))
        assert float(total.least) - 1e-7 <= count <= float(total.most) + 1e-7


# ---- laws ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_lottery_solves_the_dense_program_and_no_rule_is_better(seed):
    rng = np.random.default_rng(seed)
    solved = 0
    for _ in range(150):
        values, limits, total = random_problem(rng)
        lottery = solve_lottery(values, limits, total)
        best = dense(values, limits, total)
        assert (lottery is None) == (best is None)
        rules = max(enumerate_rules(values, limits, total), default=-np.inf)
        if lottery is None:
            assert rules == -np.inf
            assert bound(values, limits, total) == -np.inf
            continue
        solved += 1
        assert lottery.value == pytest.approx(best, abs=CLOSE)
        assert lottery.value <= lottery.bound <= lottery.value + CLOSE
        assert rules <= lottery.bound + 1e-12
        check_mixture(lottery, values, limits, total)
    assert solved > 50


@pytest.mark.parametrize(
    ("tolerance", "value"), [("0.05", 0.163284), ("0.02", 0.154430), ("0", 0.147782)]
)
def test_equalized_odds_of_the_gaussian_law(tolerance, value):
    values, limits = gaussian(10_000, Fraction(tolerance))
    lottery = solve_lottery(values, limits)
    assert round(lottery.value, 6) == value
    assert lottery.bound - lottery.value < 1e-12
    check_mixture(lottery, values, limits, None)


def gaussian(n, tolerance):
    data = make_gaussian(n, random_state=0)
    groups = sort_scores(data.logits, (data.groups == "group 1").astype(int), data.y == 1, 2)
    gains = [(2 * expit(group.lower) - 1) * group.counts.sum(axis=0) / n for group in groups]
    counts = [group.selected for group in groups]
    limits = [fixed(counts, label, "selected", "difference", tolerance) for label in (1, 0)]
    return [np.append(0.0, gain.cumsum()) for gain in gains], limits


def test_a_wider_limit_costs_nothing_and_a_slack_one_nothing_at_all():
    found = [solve_lottery(*gaussian(3_000, Fraction(d, 100))).value for d in range(0, 100, 9)]
    assert np.all(np.diff(found) > -1e-12)
    values, _ = gaussian(3_000, Fraction(1))
    assert found[-1] == pytest.approx(sum(line.max() for line in values), abs=1e-15)


def test_ranks_without_a_value_are_not_used():
    values, limits = gaussian(2_000, Fraction(1, 50))
    free = [int(line.argmax()) for line in values]
    for line, rank in zip(values, free, strict=True):
        line[:rank] = -np.inf  # nobody loses a positive decision
    lottery = solve_lottery(values, limits)
    assert np.all(lottery.ranks >= np.array(free)[:, None])
    assert lottery.value < sum(line.max() for line in values)
    values[0][:] = -np.inf
    assert solve_lottery(values, limits) is None


def test_a_difference_of_rates_given_the_decision_is_refused():
    groups = random_groups(np.random.default_rng(0), 2)
    values = [np.zeros(group.shape[1]) for group in groups]
    with pytest.raises(ValueError, match="linear"):
        solve_lottery(values, [precision(groups, "difference", Fraction(1, 10))])


# ---- the hash --------------------------------------------------------------------------------


def test_the_hash_never_changes():
    for rows, salt, pinned in [
        ([b"a", "b"], "salt", [0.9082783287055883, 0.42045596349999104]),
        (np.array([[1.5, -2.0], [0.0, 1e300]]), "salt", [0.08186713089689512, 0.6354323353416519]),
        (np.array([7, -1]), "", [0.8917120577757514, 0.176004282240674]),
    ]:
        assert hash_uniform(rows, salt).tolist() == pinned


def test_equal_rows_have_equal_numbers_whatever_their_type():
    rows = np.array([[0.0, 1.0, np.nan], [-0.0, 1.0, -np.nan], [2.0, 3.0, 4.0]])
    ours = hash_uniform(rows, "s")
    assert ours[0] == ours[1] != ours[2]
    for alike in (np.asfortranarray(rows), rows.astype(">f8"), rows.astype(np.float32)):
        assert np.array_equal(hash_uniform(alike, "s"), ours)
    assert np.array_equal(hash_uniform(rows[::-1], "s"), ours[::-1])
    names = ["Ann", "Zoë"]
    for alike in (np.array(names), np.array(names, object), [name.encode() for name in names]):
        assert np.array_equal(hash_uniform(alike, "s"), hash_uniform(names, b"s"))
    codes = np.array([0, 1, 2**63 - 1])
    for alike in (codes.astype(np.uint64), codes[:, None]):
        assert np.array_equal(hash_uniform(alike), hash_uniform(codes))
    assert np.array_equal(hash_uniform(codes[:2].astype(np.int8)), hash_uniform(codes[:2]))
    assert len(hash_uniform([])) == 0


@pytest.mark.parametrize("kind", ["integers", "floats"])
def test_numbers_are_uniform_and_those_of_two_salts_uncorrelated(kind):
    n = 40_000
    rows = np.arange(n) if kind == "integers" else np.linspace(0, 1, 2 * n).reshape(n, 2)
    one, two = hash_uniform(rows, "one"), hash_uniform(rows, "two")
    assert one.min() >= 0.0
    assert one.max() < 1.0
    for sample in (one, two, (one - two) % 1.0):
        assert kstest(sample, "uniform").pvalue > 1e-3
    for other in (two, np.roll(one, 1), np.arange(n)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(n)


def test_drawn_lots_keep_the_probabilities():
    values, limits = gaussian(2_000, Fraction(1, 50))
    lottery = solve_lottery(values, limits)
    lots = hash_uniform(np.arange(50_000), "lots")
    for ranks, weights in zip(lottery.ranks, lottery.weights, strict=True):
        drawn = ranks[np.searchsorted(weights.cumsum()[:-1], lots, side="right")]
        shares = [np.mean(drawn == rank) for rank in ranks[weights > 0]]
        assert shares == pytest.approx(weights[weights > 0], abs=0.01)
