"""Operating points of a dial with prices in place of group thresholds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Codes, Counts, Floats, Indices, Kinds, Mask, Scores, Weights
from fairdial.core.criteria import Criterion
from fairdial.core.decide import select
from fairdial.core.dual import Dual
from fairdial.core.fixed_sequence import Rules
from fairdial.core.operating_points import PointTable
from fairdial.core.price_path import (
    N_STATES,
    Counter,
    States,
    count_path,
    find_knots,
    improving,
)
from fairdial.core.prices import Gains, Pricing, find_gains
from fairdial.core.problem import Problem
from fairdial.core.promise import Promise
from fairdial.core.rule_sequences import N_PATH, PATH_SHARE, SALT

MIN_STATES, MOST_NUMBERS = 256, 1 << 22  # that are kept, and of their prices and counts
N_BOUNDS = 17  # prices that bounds are computed from
N_RULES = 65  # rules that certificates test; more of them have small gaps


class PricePoints(PointTable):
    """Points with prices for groups, which rows belong to with probabilities.

    Thresholds are 0: they apply to margins, which are utility minus price.

    Parameters
    ----------
    setting : (S,) float64
        Segment of the path and position on it.
    gap : (S,) float64
        Gaps on the calibration rows, with their true groups.
    prices : (S, J, K) float64
        Price of each demand's rate in each group.
    selected : (S, C, K) array
        Selected calibration rows by kind and group.
    value : (S,) float64
        Expected objective.
    gains : Gains
        Utilities of selecting positive and negative rows.
    lines : (M, 2) float64
        Intercepts and slopes in the tolerance of bounds on the expected objective.
    nested : bool
        Whether each row changes its decision at most once along the points.
    rules : PriceRules, optional
        What certificates test.
    unknown : float
        Calibration rows without a known group, or the sum of their weights.
    estimate : (S,) float64, optional
        Estimated gaps on all rows; None if ``gap`` itself is estimated, or every group is known.
    """

    def __init__(
        self,
        setting: Floats,
        gap: Floats,
        prices: Floats,
        selected: Counts,
        value: Floats,
        gains: Gains,
        lines: Floats,
        *,
        nested: bool,
        rules: PriceRules | None = None,
        unknown: float = 0.0,
        estimate: Floats | None = None,
    ) -> None:
        none = np.zeros(len(gap), np.bool_)
        super().__init__(setting, gap, none, np.zeros((len(gap), prices.shape[2])), selected)
        self.prices, self.value, self.gains, self.lines = prices, value, gains, lines
        self.is_nested, self.rules = nested, rules
        self.unknown, self.estimate = unknown, estimate

    def tabulate(self, points: Indices) -> PricePoints:
        """Return some of the points."""
        table = PricePoints(
            self.setting[points],
            self.gap[points],
            self.prices[points],
            self.read(points)[1],
            self.value[points],
            self.gains,
            self.lines,
            nested=self.is_nested,
            rules=self.rules,
            unknown=self.unknown,
            estimate=None if self.estimate is None else self.estimate[points],
        )
        table.indices = points
        return table

    def bound(self, tolerance: float) -> float | None:
        """Return the best expected objective of any rule whose expected rates are within it."""
        if not len(self.lines):
            return None
        return float((self.lines @ np.array([1.0, tolerance])).min())

    def value_of(self, prices: Floats) -> float | None:
        """Return the expected objective at the prices of a point, (J, K)."""
        return self._find(self.value, prices)

    def promise(self, prices: Floats, n_rows: float) -> Promise:
        """Return what the gap says at the prices of a point, for as many counted rows."""
        estimate = None if self.estimate is None else self._find(self.estimate, prices)
        if self.unknown and self.estimate is None:
            return Promise("estimated", 0.0, self.unknown, self._find(self.gap, prices))
        return Promise("counted", n_rows, self.unknown, estimate)

    def _find(self, column: Floats, prices: Floats) -> float | None:
        places = np.flatnonzero((self.prices == prices).all(axis=(1, 2)))
        return float(column[places[0]]) if len(places) else None


@dataclass(frozen=True, eq=False)
class PriceRules:
    """Rules that were found on a part of the calibration rows; the others test them (theorem 5).

    Attributes
    ----------
    table : PricePoints
        The rules, the most equal first, counted on all calibration rows.
    found : (R,) float64
        Gaps on the rows that the rules were found on, ascending.
    tested : (R, C, K) int64
        Selected testing rows by kind and group.
    testing : (C, K) int64
        All testing rows by kind and group.
    """

    table: PricePoints
    found: Floats
    tested: Counts
    testing: Counts

    def at(self, tolerance: float) -> Rules | None:
        """Return the sequence for a tolerance, None if there is none; settings are places here."""
        last = int(np.searchsorted(self.found, tolerance, side="right"))
        if not last:
            return None
        inner = np.linspace(self.found[0], self.found[last - 1], N_PATH)
        places = np.unique(np.searchsorted(self.found, inner, side="right") - 1)
        thresholds = self.table.read(places)[0]
        return Rules(places.astype(np.float64), thresholds, self.tested[places], self.testing)


class Walk(NamedTuple):
    """A path of prices on rows: the program, the states, and whether it is one segment."""

    pricing: Dual
    states: States
    is_single: bool
    estimate: Floats | None = None  # (S,) gaps on all rows, if some groups are unknown


class Scale(NamedTuple):
    """How mean expected utilities become the objective: ``unit * utility + constant``."""

    gains: Gains
    unit: float
    constant: float


class PricedRows(ABC):
    """Calibration rows of a dial with prices."""

    weights: Weights | None
    n_unknown: float = 0.0  # rows without a known group, or the sum of their weights

    @abstractmethod
    def take(self, rows: Mask) -> Self:
        """Return some of the rows."""

    @abstractmethod
    def total(self) -> Counts:
        """Return all rows by kind and group, (C, K)."""

    @abstractmethod
    def identity(self) -> Sequence[NDArray[Any]]:
        """Return arrays that tell these rows, in their order, from others."""

    @abstractmethod
    def scale(self, problem: Problem) -> Scale:
        """Return how utilities become the objective."""

    @abstractmethod
    def walk(self, problem: Problem, scale: Scale) -> Walk:
        """Return the path from no prices to the most equal decisions."""

    @abstractmethod
    def count_rules(self, criterion: Criterion, rules: PricePoints) -> Counts:
        """Return the rows that each rule selects, (R, C, K)."""


@dataclass(frozen=True, eq=False)
class ScoredRows(PricedRows):
    """Calibration rows of a blind dial.

    Attributes
    ----------
    logits : (n,) array
        Log-odds of the positive label.
    posterior : (n, K) float64
        Probability of each group.
    codes : (n,) int array
        True group of each row.
    kinds : (n,) array, optional
        Label of each row.
    weights : (n,) array, optional
        Weights of the rows.
    unknown : ScoredRows, optional
        Rows without a known group, each once for every group, with its probability as weight.
    n_unknown : float
        Number of these rows, or the sum of their weights.
    """

    logits: Scores
    posterior: Floats
    codes: Codes
    kinds: Kinds | None
    weights: Weights | None = None
    unknown: ScoredRows | None = None
    n_unknown: float = 0.0

    @property
    def n_rows(self) -> float:
        """Number of rows, or the sum of their weights."""
        return float(len(self.logits) if self.weights is None else self.weights.sum())

    def spread(self) -> ScoredRows:
        """Return each row once for every group, with the group's probability as its weight."""
        n_groups = self.posterior.shape[1]
        each = np.ones(len(self.logits)) if self.weights is None else self.weights
        rows = ScoredRows(
            self.logits.repeat(n_groups),
            self.posterior.repeat(n_groups, axis=0),
            np.tile(np.arange(n_groups), len(self.logits)),
            None if self.kinds is None else self.kinds.repeat(n_groups),
            (self.posterior * each[:, None]).ravel(),
        )
        assert rows.weights is not None
        return rows.take(rows.weights > 0)

    def join(self, other: ScoredRows) -> ScoredRows:
        """Return these rows and others, which have weights."""
        assert other.weights is not None
        each = np.ones(len(self.logits)) if self.weights is None else self.weights
        kinds = None
        if self.kinds is not None and other.kinds is not None:
            kinds = np.concatenate([self.kinds, other.kinds])
        return ScoredRows(
            np.concatenate([self.logits, other.logits]),
            np.concatenate([self.posterior, other.posterior]),
            np.concatenate([self.codes, other.codes]),
            kinds,
            np.concatenate([each, other.weights]),
        )

    def take(self, rows: Mask) -> ScoredRows:
        """Return some of the rows."""
        return ScoredRows(
            self.logits[rows],
            self.posterior[rows],
            self.codes[rows],
            None if self.kinds is None else self.kinds[rows],
            None if self.weights is None else self.weights[rows],
        )

    def identity(self) -> Sequence[NDArray[Any]]:
        """Return logits and true groups."""
        return self.logits.astype(np.float64), self.codes.astype(np.int64)

    def counter(self) -> Counter:
        """Return what counts decisions on these rows."""
        n_kinds = 1 if self.kinds is None else 2
        return Counter(self.codes, self.kinds, self.posterior.shape[1], n_kinds, self.weights)

    def total(self) -> Counts:
        """Return all rows by kind and group, (C, K)."""
        return self.counter().total()

    def pricing(self, criterion: Criterion, gains: Gains) -> Pricing:
        """Return the linear program of these rows."""
        return Pricing.make(self.logits, self.posterior, criterion, gains, self.weights)

    def labels(self) -> tuple[float, float]:
        """Return the numbers of negatives and positives, expected ones if labels are unknown."""
        weights = np.ones(len(self.logits)) if self.weights is None else self.weights
        if self.kinds is None:
            positive = 1.0 / (1.0 + np.exp(-self.logits.astype(np.float64)))
        else:
            positive = self.kinds.astype(np.float64)
        positives = float(weights @ positive)
        return float(weights.sum()) - positives, positives

    def scale(self, problem: Problem) -> Scale:
        """Return how utilities, at most 1, become the objective."""
        labels = self.labels()
        terms, gains = problem.objective.terms(*labels), find_gains(problem, *labels)
        unit = sum(labels) * max(terms.true_positive, -terms.false_positive)
        return Scale(gains, unit, terms.constant)

    def walk(self, problem: Problem, scale: Scale) -> Walk:
        """Return the path from no prices to the most equal decisions."""
        pricing, counter = self.pricing(problem.criterion, scale.gains), self.counter()
        single = problem.nested is True
        knots = find_knots(pricing, counter, problem.criterion, counter.total(), single=single)
        states, estimate = count_path(pricing, counter, knots), None
        if self.unknown is not None:
            every = self.join(self.unknown)
            segments = [
                states.setting[np.floor(states.setting) == k] - k for k in range(len(knots))
            ]
            found = count_path(
                every.pricing(problem.criterion, scale.gains),
                every.counter(),
                knots,
                at_places=segments,
            )
            estimate = problem.criterion.gap_of(found.selected, every.total())
        return Walk(pricing, states, len(knots) <= 2, estimate)

    def count_rules(self, criterion: Criterion, rules: PricePoints) -> Counts:
        """Return the rows that each rule selects, (R, C, K)."""
        pricing, counter = self.pricing(criterion, rules.gains), self.counter()
        flat = rules.prices.reshape(len(rules), -1)
        return np.stack(
            [counter.count(np.flatnonzero(select(pricing.margins(line), 0.0))) for line in flat]
        )


def find_price_points(rows: PricedRows, problem: Problem) -> PricePoints:
    """Return the operating points of a dial with prices, least constrained first."""
    points = _path_points(rows, problem)
    if rows.weights is None:
        points.rules = _find_rules(rows, problem)
    return points


def _path_points(rows: PricedRows, problem: Problem, n_bounds: int = N_BOUNDS) -> PricePoints:
    criterion, scale = problem.criterion, rows.scale(problem)
    pricing, states, single, estimate = rows.walk(problem, scale)
    gap = criterion.gap_of(states.selected, rows.total())
    size = states.prices.shape[1] + states.selected[0].size
    kept = improving(gap, min(N_STATES, max(MIN_STATES, MOST_NUMBERS // size)))
    prices = states.prices[kept]
    some = prices[np.unique(np.linspace(0, len(kept) - 1, n_bounds).round().astype(np.intp))]
    lines = np.array([pricing.bound(pricing.balance(line)) for line in some]).reshape(-1, 2)
    return PricePoints(
        states.setting[kept],
        gap[kept],
        prices.reshape(len(kept), len(criterion.demands), -1),
        states.selected[kept],
        scale.unit * states.value[kept] + scale.constant,
        scale.gains,
        scale.unit * lines + np.array([scale.constant, 0.0]),
        nested=single,
        unknown=rows.n_unknown,
        estimate=None if estimate is None else estimate[kept],
    )


def _find_rules(rows: PricedRows, problem: Problem) -> PriceRules | None:
    """Find rules on a part of the rows, and count them on the others.

    Rows are drawn by a generator whose seed is a hash of all of them (``rule_sequences.py`` says
    why): the same rows in the same order are always divided the same way.
    """
    digest = sha256(SALT)
    for array in rows.identity():
        digest.update(np.ascontiguousarray(array).tobytes())
    rng = np.random.default_rng(int.from_bytes(digest.digest()[:16], "little"))
    cells = rows.total()
    chosen = rng.random(len(rows.identity()[0])) < PATH_SHARE
    part, rest = rows.take(chosen), rows.take(~chosen)
    sizes = [problem.criterion.eligible_counts(some.total()) for some in (part, rest)]
    if not all(size.all() for size in sizes):
        return None
    points = _path_points(part, problem, n_bounds=0)
    least, largest = points.gap[-1], points.gap[0]
    grid = least + (largest - least) * np.linspace(0.0, 1.0, N_RULES) ** 2
    grid[-1] = largest
    places = np.unique(points.find(grid)[0])[::-1]  # most equal first
    rules = points.tabulate(places)
    tested = rest.count_rules(problem.criterion, rules)
    selected: Counts = np.asarray(rules.read(np.arange(len(rules)))[1] + tested)
    table = PricePoints(
        rules.setting,
        problem.criterion.gap_of(selected, cells),
        rules.prices,
        selected,
        rules.value,
        rules.gains,
        np.zeros((0, 2)),
        nested=False,
    )
    return PriceRules(table, rules.gap, tested, rest.total())
