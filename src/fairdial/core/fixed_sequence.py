"""Certificates by testing a sequence of rules that was fixed without the testing rows.

The sequence runs from the most equal rule to the least constrained one. Each rule's hypothesis "the
population violates a demand" is tested at the full level, and the last rule before the first one
that fails is certified. Neither the number of rules nor the number of groups costs anything: a rule
passes only if the tests of *all* demands and pairs of groups reject (``docs/confidence.md``,
theorems 1 and 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairdial._arrays import Counts, Floats, Mask
from fairdial.core.criteria import Criterion
from fairdial.core.demands import Demand, exact
from fairdial.core.pairwise import (
    Pair,
    rejects_ceiling,
    rejects_floor,
    rejects_pair,
    surely_rejects,
)


@dataclass(frozen=True, eq=False)
class Rules:
    """A sequence of rules, the most equal first, and what they do on the testing rows.

    Attributes
    ----------
    setting : (S,) float64
        Setting of each rule: t of a path, or the tolerance that it was found for.
    thresholds : (S, K) float64
        A row is selected if its score is above its group's threshold.
    selected : (S, C, K) int64
        Selected testing rows by kind and group.
    cells : (C, K) int64
        All testing rows by kind and group.
    """

    setting: Floats
    thresholds: Floats
    selected: Counts
    cells: Counts

    def __len__(self) -> int:
        return len(self.setting)

    def take(self, n: int) -> Rules:
        """Return the first rules."""
        return Rules(self.setting[:n], self.thresholds[:n], self.selected[:n], self.cells)


class Failure(NamedTuple):
    """What stopped a sequence: a demand, and the groups of the test that didn't reject."""

    rule: int
    demand: Demand
    groups: tuple[int, ...]  # the higher and the lower one; one group of a minimum or maximum


class _Tests(NamedTuple):
    """One demand's tests at every rule."""

    demand: Demand
    over: Counts  # (S, K)
    under: Counts
    limit: float
    slope: float
    passed: Mask  # (S, K, K) pairs that surely pass; (S, K) of a minimum or maximum


def _prepare(rules: Rules, demand: Demand, criterion: Criterion, d: float, alpha: float) -> _Tests:
    split = criterion.split(rules.selected), criterion.split(rules.cells)
    over, under = demand.parts(*split)
    under = np.broadcast_to(under, over.shape)
    bound = float(demand.bound(exact(d)))
    if demand.spread in ("minimum", "maximum"):
        test = rejects_floor if demand.spread == "minimum" else rejects_ceiling
        vacuous = bound <= 0 if demand.spread == "minimum" else bound >= 1
        return _Tests(demand, over, under, bound, 1.0, test(over, under, bound, alpha) | vacuous)
    limit, slope = (bound, 1.0) if demand.spread == "difference" else (0.0, bound)
    if slope <= 0 or limit >= 1:  # every rule is within the limit
        passed = np.ones((*over.shape, over.shape[1]), np.bool_)
    else:
        passed = surely_rejects(over, under, limit, slope, alpha)
    passed |= np.eye(over.shape[1], dtype=np.bool_)
    return _Tests(demand, over, under, limit, slope, passed)


def walk(
    rules: Rules, criterion: Criterion, tolerance: float, alpha: float
) -> tuple[int, Failure | None]:
    """Return how many rules pass before the first one that fails, and why it fails.

    Rule ``s`` passes if the counts reject, at level ``alpha``, that the population violates any
    demand at the tolerance.
    """
    tests = [_prepare(rules, demand, criterion, tolerance, alpha) for demand in criterion.demands]
    sure = np.logical_and.reduce(
        [test.passed.reshape(len(rules), -1).all(axis=1) for test in tests]
    )
    for rule in np.flatnonzero(~sure).tolist():
        for test in tests:
            failed = _first_failure(test, rule, alpha)
            if failed is not None:
                return rule, Failure(rule, test.demand, failed)
    return len(rules), None


def _first_failure(test: _Tests, rule: int, alpha: float) -> tuple[int, ...] | None:
    """Return the groups of a test that doesn't reject at a rule; the closest pairs first."""
    open_pairs = np.argwhere(~test.passed[rule])
    if test.passed.ndim == 2:
        groups = open_pairs[:, 0]
        if not len(groups):
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = test.over[rule, groups] / test.under[rule, groups]
        worst = rates.argmin() if test.demand.spread == "minimum" else rates.argmax()
        return (int(groups[worst]),)
    x, m = test.over[rule], test.under[rule]
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = x / m
        a, b = open_pairs.T
        spread = test.slope**2 * rates * (1 - rates) / m
        close = (test.slope * rates[a] - rates[b] - test.limit) / np.sqrt(spread[a] + spread[b])
    for i in np.argsort(-np.nan_to_num(close, nan=np.inf), kind="stable").tolist():
        high, low = int(a[i]), int(b[i])
        counts = int(x[high]), int(m[high]), int(x[low]), int(m[low])
        if not rejects_pair(Pair(*counts, test.limit, test.slope), alpha):
            return high, low
    return None
