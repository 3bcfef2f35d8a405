"""The search agrees with enumeration, whatever the limits."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from fairdial.core.search import Limit, Searcher, search
from fairdial.core.range_maxima import RangeMaxima

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
    for numerator, denominator, rank in zip(
        limit.numerator, limit.denominator, ranks, strict=True
    ):
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


def enumerate_ranks(values, limits, lowest, highest):
    """The largest value over all ranks that meet the limits, or None."""
    ranges = [range(lo, hi + 1) for lo, hi in zip(lowest, highest, strict=True)]
    combinations = list(itertools.product(*ranges))
    if not combinations:
        return None
    totals = sum(v[np.array(k)] for v, k in zip(values, zip(*combinations, strict=True), strict=True))
    for best in np.argsort(-totals, kind="stable"):
        if all(is_met(limit, combinations[best]) for limit in limits):
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
    return rng, values, limits, lowest, highest


def check_case(seed):
    rng, values, limits, lowest, highest = random_case(seed)
    start = rng.integers(0, [len(v) for v in values]) if rng.random() < 0.3 else None
    found = search(values, limits, lowest=lowest, highest=highest, start=start)
    best = enumerate_ranks(values, limits, lowest, highest)
    if best is None:
        assert found is None
        return 0
    assert found is not None
    assert (lowest <= found.ranks).all()
    assert (found.ranks <= highest).all()
    assert all(is_met(limit, found.ranks) for limit in limits)
    assert found.value == pytest.approx(best, abs=1e-11)
    total = sum(v[k] for v, k in zip(values, found.ranks, strict=True))
    assert found.value == pytest.approx(total, abs=1e-12)
    return 1


@pytest.mark.parametrize("block", range(10))
def test_search_equals_enumeration(block):
    solved = sum(check_case((block, seed)) for seed in range(300))
    assert 30 < solved < 300  # both kinds of answers occur
