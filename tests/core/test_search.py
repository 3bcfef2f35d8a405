"""The search agrees with enumeration, whatever the limits."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from fairdial.core.rank_values import RangeMaxima
from fairdial.core.search import Limit, Searcher, Total, search
from fairdial.datasets import make_gaussian

SPREADS = ("difference", "ratio", "minimum", "maximum")
MONOTONE = ("selection", "true_positive", "false_positive", "false_negative", "true_negative")
OTHER = ("accuracy", "precision", "false_omission")


class Groups:
    """Random groups: cumulative weights of the negatives and positives above each rank."""

    def __init__(self, rng, n_groups, largest, weights):
        self.cumulative = []
        for _ in range(n_groups):
            n_steps = int(rng.integers(1, largest + 1))
            if weights == "float":
                steps = rng.choice([0.0, 0.1, 0.3, 0.7, 1.1], size=(2, n_steps))
            else:  # ties put several rows into one step
                steps = rng.integers(0, 3 if weights == "ties" else 2, size=(2, n_steps))
            cumulative = np.zeros((2, n_steps + 1), steps.dtype)
            np.cumsum(steps, axis=1, out=cumulative[:, 1:])
            self.cumulative.append(cumulative)

    def rate(self, name):
        parts = []
        for negative, positive in self.cumulative:
            selected, total = negative + positive, negative[-1] + positive[-1]
            right = positive + negative[-1] - negative
            parts.append(
                {
                    "selection": (selected, total),
                    "true_positive": (positive, positive[-1]),
                    "false_positive": (negative, negative[-1]),
                    "false_negative": (positive[-1] - positive, positive[-1]),
                    "true_negative": (negative[-1] - negative, negative[-1]),
                    "accuracy": (right, total),
                    "precision": (positive, selected),
                    "false_omission": (positive[-1] - positive, total - selected),
                }[name]
            )
        numerators, denominators = zip(*parts, strict=True)
        return numerators, tuple(map(np.asarray, denominators))

    def values(self, rng, kind):
        values = []
        for negative, positive in self.cumulative:
            m = len(negative)
            if kind == "concave":
                gains = np.sort(rng.normal(size=m - 1))[::-1]
                values.append(np.concatenate(([0.0], np.cumsum(gains))))
            elif kind == "labels":
                values.append((positive - negative).astype(float))
            else:
                values.append(rng.integers(-3, 4, size=m).astype(float))
        return values


def is_met(limit, ranks):
    exact = all(np.issubdtype(part.dtype, np.integer) for part in limit.numerator)
    rates = []
    for numerator, denominator, rank in zip(limit.numerator, limit.denominator, ranks, strict=True):
        above, below = numerator[rank], denominator.reshape(-1)[rank if denominator.ndim else 0]
        if below:
            rates.append(Fraction(int(above), int(below)) if exact else above / below)
    if not rates:
        return True
    bound = limit.bound if exact else float(limit.bound)
    return {
        "difference": max(rates) - min(rates) <= bound,
        "ratio": min(rates) >= bound * max(rates),
        "minimum": min(rates) >= bound,
        "maximum": max(rates) <= bound,
    }[limit.spread]


def keeps(total, ranks):
    if total is None:
        return True
    selected = sum(part[rank] for part, rank in zip(total.selected, ranks, strict=True))
    if isinstance(selected, np.floating):
        return float(total.least) <= selected <= float(total.most)
    return total.least <= int(selected) <= total.most


def enumerate_ranks(values, limits, lowest, highest, total=None):
    """The largest value over all ranks that meet the limits, or None."""
    ranges = [range(lo, hi + 1) for lo, hi in zip(lowest, highest, strict=True)]
    combinations = list(itertools.product(*ranges))
    if not combinations:
        return None
    totals = sum(
        v[np.array(k)] for v, k in zip(values, zip(*combinations, strict=True), strict=True)
    )
    for best in np.argsort(-totals, kind="stable"):
        ranks = combinations[best]
        if keeps(total, ranks) and all(is_met(limit, ranks) for limit in limits):
            return totals[best]
    return None


def random_case(seed):
    rng = np.random.default_rng(seed)
    n_groups = int(rng.choice([2, 2, 3, 4]))
    groups = Groups(rng, n_groups, (9, 5, 3)[n_groups - 2], rng.choice(["one", "ties", "float"]))
    values = groups.values(rng, rng.choice(["concave", "labels", "any"]))
    limits = []
    for _ in range(rng.integers(1, 5)):
        name = rng.choice(MONOTONE if rng.random() < 0.6 else OTHER)
        spread = str(rng.choice(SPREADS, p=[0.5, 0.2, 0.15, 0.15]))
        bound = Fraction(int(rng.integers(0, 11)), int(rng.integers(10, 21)))
        if rng.random() < 0.3:
            bound = Fraction(float(bound))
        if spread == "maximum":
            bound = 1 - bound / 2
        limits.append(Limit(*groups.rate(name), spread, bound))
    last = np.array([len(v) - 1 for v in values])
    lowest, highest = np.zeros_like(last), last
    if rng.random() < 0.2:
        lowest, highest = rng.integers(0, last + 1), rng.integers(0, last + 1)
    return rng, groups, values, limits, lowest, highest


def random_total(rng, groups):
    """A budget: at most, exactly, or between."""
    selected = groups.rate("selection")[0]
    size = Fraction(float(sum(part[-1] for part in selected)))
    most = size * Fraction(int(rng.integers(0, 13)), 12)
    least = rng.choice(["none", "between", "exact"])
    if least == "none":
        return Total(selected, most)
    return Total(selected, most, most if least == "exact" else most * 3 / 4)


def check_case(seed, budget=False):
    rng, groups, values, limits, lowest, highest = random_case(seed)
    total = None
    if budget:
        total = random_total(rng, groups)
        limits = limits[: rng.integers(0, len(limits) + 1)]
    start = rng.integers(0, [len(v) for v in values]) if rng.random() < 0.3 else None
    found = search(values, limits, total=total, lowest=lowest, highest=highest, start=start)
    best = enumerate_ranks(values, limits, lowest, highest, total)
    if best is None:
        assert found is None
        return 0
    assert found is not None
    assert (lowest <= found.ranks).all()
    assert (found.ranks <= highest).all()
    assert all(is_met(limit, found.ranks) for limit in limits)
    assert keeps(total, found.ranks)
    assert found.value == pytest.approx(best, abs=1e-11)
    total = sum(v[k] for v, k in zip(values, found.ranks, strict=True))
    assert found.value == pytest.approx(total, abs=1e-12)
    return 1


@pytest.mark.parametrize("block", range(10))
def test_search_equals_enumeration(block):
    solved = sum(check_case((block, seed)) for seed in range(300))
    assert 30 < solved < 300  # both kinds of answers occur


@pytest.mark.parametrize("block", range(10))
def test_search_with_a_total_equals_enumeration(block):
    solved = sum(check_case((block, seed), budget=True) for seed in range(200))
    assert 20 < solved < 200


def by_hand(logits, positive, codes):
    """Values and rates of groups, from the definition: one step per row."""
    values, parts = [], {"true_positive": [], "false_positive": [], "selection": []}
    for code in np.unique(codes):
        order = np.argsort(-logits[codes == code])
        z, y = logits[codes == code][order], positive[codes == code][order].astype(int)
        gain = (2 / (1 + np.exp(-z)) - 1) / len(logits)
        values.append(np.concatenate(([0.0], np.cumsum(gain))))
        for name, counted in (("true_positive", y), ("false_positive", 1 - y), ("selection", y**0)):
            parts[name].append(np.concatenate(([0], np.cumsum(counted))))
    rates = {
        name: (tuple(above), tuple(part[-1:] for part in above)) for name, above in parts.items()
    }
    return values, rates


def test_equalized_odds_is_not_nested():
    z = np.array([0.4, -1, -0.8, -4.9, 3.6, 2.3, -0.7, 1.5])
    y = np.array([1, 0, 0, 1, 0, 1, 0, 0])
    values, rates = by_hand(z, y, np.arange(8) // 4)
    both = [Limit(*rates[f"{x}_positive"], "difference", Fraction(0)) for x in ("true", "false")]
    searcher = Searcher(values, both)
    ranks = [
        searcher.search([Fraction(tolerance)] * 2).ranks.tolist()
        for tolerance in ("1", "0.5", "0.34", "0.25")
    ]
    assert ranks == [[1, 3], [2, 3], [0, 1], [4, 4]]


@pytest.fixture(scope="module")
def gaussian():
    data = make_gaussian(10_000, random_state=0)
    return by_hand(data.logits, data.y == 1, np.unique(data.groups, return_inverse=True)[1])


GAUSSIAN = [
    (
        [("true_positive", "difference", "0.1"), ("false_positive", "difference", "0.1")],
        [(1063, 857), (1684, 277)],
        0.169656,
    ),
    (
        [("true_positive", "difference", "0.05"), ("false_positive", "difference", "0.05")],
        [(883, 566), (1321, 134)],
        0.155755,
    ),
    (
        [("true_positive", "difference", "0.02"), ("false_positive", "difference", "0.02")],
        [(467, 172), (683, 33)],
        0.098337,
    ),
    (
        [("selection", "difference", "0.1"), ("true_positive", "difference", "0.05")],
        [(1096, 924), (1522, 212)],
        0.158045,
    ),
    ([("selection", "ratio", "0.8")], [(1159, 1017), (1567, 232)], None),
    (
        [
            ("true_positive", "difference", "0.1"),
            ("false_positive", "difference", "0.1"),
            ("true_positive", "minimum", "0.7"),
        ],
        [(1204, 1118), (1876, 448)],
        0.165190,
    ),
    ([("selection", "difference", "0.05")], None, 0.148679),
]


@pytest.mark.parametrize(("demands", "selected", "value"), GAUSSIAN)
def test_gaussian(gaussian, demands, selected, value):
    values, rates = gaussian
    found = search(values, [Limit(*rates[r], spread, Fraction(b)) for r, spread, b in demands])
    if selected is not None:
        positive, negative = rates["true_positive"][0], rates["false_positive"][0]
        assert [
            (p[k], n[k]) for p, n, k in zip(positive, negative, found.ranks, strict=True)
        ] == selected
    if value is not None:
        assert found.value == pytest.approx(value, abs=5e-7)


def rate_grid(limit):
    """The rates of two groups at all pairs of ranks; NaN without a rate."""
    with np.errstate(invalid="ignore"):
        first, second = (a / b for a, b in zip(limit.numerator, limit.denominator, strict=True))
    return np.broadcast_arrays(first[:, None], second[None])


@pytest.mark.parametrize("seed", range(60))
def test_two_larger_groups(seed):
    rng = np.random.default_rng((99, seed))
    groups = Groups(rng, 2, 300, "one")
    values = groups.values(rng, rng.choice(["concave", "labels", "any"]))
    limits = []
    for name in rng.choice(MONOTONE + OTHER, size=rng.integers(1, 3), replace=False):
        spread = str(rng.choice(SPREADS[:2]))
        bound = Fraction(int(rng.integers(1, 2**10)), 2**13)  # never reached: no ties
        limits.append(Limit(*groups.rate(name), spread, bound if spread[0] == "d" else 1 - bound))
    allowed = np.ones([len(v) for v in values], bool)
    for limit in limits:
        first, second = rate_grid(limit)
        low, high = np.minimum(first, second), np.maximum(first, second)
        bound = float(limit.bound)
        close = high - low <= bound if limit.spread == "difference" else low >= bound * high
        allowed &= close | np.isnan(low)
    totals = np.where(allowed, values[0][:, None] + values[1][None], -np.inf)
    found = search(values, limits)
    if not allowed.any():
        assert found is None
    else:
        assert allowed[tuple(found.ranks)]
        assert found.value == pytest.approx(totals.max(), abs=1e-10)


def test_range_maxima():
    rng = np.random.default_rng(0)
    for n in (1, 31, 32, 33, 64, 100, 1000):
        values = rng.integers(0, 50, n).astype(float)
        ends = np.sort(rng.integers(0, n, size=(300, 2)), axis=1)
        best = RangeMaxima(values).best(ends[:, 0], ends[:, 1])
        assert (ends[:, 0] <= best).all()
        assert (best <= ends[:, 1]).all()
        assert (values[best] == [values[a : b + 1].max() for a, b in ends]).all()


@pytest.mark.parametrize("kind", ["concave", "labels", "any"])
def test_tolerance_zero_is_a_shared_rate(kind):
    rng = np.random.default_rng(7)
    groups = Groups(rng, 4, 2000, "ties")
    values = groups.values(rng, kind)
    numerators, denominators = groups.rate("selection")
    best = [{} for _ in values]  # by rate, of each group
    for table, value, above, below in zip(best, values, numerators, denominators, strict=True):
        for rank, gain in enumerate(value):
            rate = Fraction(int(above[rank]), int(below))
            table[rate] = max(gain, table.get(rate, -np.inf))
    shared = set.intersection(*map(set, best))
    expected = max(sum(table[rate] for table in best) for rate in shared)
    found = search(values, [Limit(numerators, denominators, "difference", Fraction(0))])
    assert found.value == pytest.approx(expected, abs=1e-9)


def test_a_start_only_helps(gaussian):
    values, rates = gaussian
    limits = [Limit(*rates["selection"], "difference", Fraction(1, 20))]
    found = search(values, limits)
    for start in (found.ranks, found.ranks * 0, found.ranks + 1):
        assert search(values, limits, start=start).value == pytest.approx(found.value, abs=1e-12)


def test_a_budget_takes_the_best_rows(gaussian):
    values, rates = gaussian
    selected = rates["selection"][0]
    gains = np.sort(np.concatenate([np.diff(v) for v in values]))[::-1]
    for most in (0, 1, 1234, 3000, 10_000):
        found = search(values, [], total=Total(selected, Fraction(most)))
        assert found.value == pytest.approx(np.maximum(gains[:most], 0).sum(), abs=1e-12)
        exact = search(values, [], total=Total(selected, Fraction(most), Fraction(most)))
        assert exact.value == pytest.approx(gains[:most].sum(), abs=1e-12)
        assert sum(part[k] for part, k in zip(selected, exact.ranks, strict=True)) == most
