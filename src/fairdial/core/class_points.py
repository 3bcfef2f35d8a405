"""Calibration rows of a dial with more than two classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Codes, Counts, Floats, Indices, Mask, Weights
from fairdial.core.class_path import (
    ClassCounter,
    count_class_path,
    find_class_knots,
    unsettled,
)
from fairdial.core.class_prices import ClassPricing, choose_class
from fairdial.core.criteria import Criterion
from fairdial.core.price_points import PricedRows, PricePoints, Scale, Walk
from fairdial.core.prices import Gains
from fairdial.core.problem import Problem


@dataclass(frozen=True, eq=False)
class ClassRows(PricedRows):
    """Calibration rows with probabilities of more than two classes, and known groups.

    Attributes
    ----------
    probability : (n, C) float64
        Probability of each class.
    codes : (n,) int array
        Group of each row.
    labels : (n,) int array, optional
        Class of each row.
    n_groups : int
        Number of groups.
    weights : (n,) array, optional
        Weights of the rows.
    """

    probability: Floats
    codes: Codes
    labels: Codes | None
    n_groups: int
    weights: Weights | None = None

    def take(self, rows: Mask) -> ClassRows:
        """Return some of the rows."""
        return ClassRows(
            self.probability[rows],
            self.codes[rows],
            None if self.labels is None else self.labels[rows],
            self.n_groups,
            None if self.weights is None else self.weights[rows],
        )

    def counter(self) -> ClassCounter:
        """Return what counts decisions on these rows."""
        n_classes = self.probability.shape[1]
        return ClassCounter(self.codes, self.labels, n_classes, self.n_groups, self.weights)

    def total(self) -> Counts:
        """Return all rows by class, label and group, (C L, K)."""
        return self.counter().total()

    def identity(self) -> Sequence[NDArray[Any]]:
        """Return probabilities and groups."""
        return self.probability, self.codes.astype(np.int64)

    def scale(self, problem: Problem) -> Scale:  # noqa: ARG002
        """Return that utilities are the expected accuracy."""
        return Scale(Gains(1.0, 1.0), 1.0, 0.0)

    def walk(self, problem: Problem, scale: Scale) -> Walk:  # noqa: ARG002
        """Return the path from no prices to the most equal decisions."""
        pricing, counter = self._pricing(problem.criterion), self.counter()
        single = problem.nested is True
        knots = find_class_knots(pricing, counter, problem.criterion, single=single)
        return Walk(pricing, count_class_path(pricing, counter, knots), len(knots) <= 2)

    def count_rules(self, criterion: Criterion, rules: PricePoints) -> Counts:
        """Return the rows by decided class of each rule, (R, C L, K).

        Rules of one segment of the path differ in few rows: the others are counted once.
        """
        pricing, counter = self._pricing(criterion), self.counter()
        flat = rules.prices.reshape(len(rules), -1)
        segments = np.floor(rules.setting)
        found: Counts = np.zeros((len(rules), *counter.shape), counter.total().dtype)
        for segment in np.unique(segments):
            places = np.flatnonzero(segments == segment)
            ends = flat[places[0]], flat[places[-1]]
            before, after = (pricing.values(prices) for prices in ends)
            rows = unsettled(pricing, *ends, before, after)[0]
            settled = np.ones(len(before), np.bool_)
            settled[rows] = False
            still: Indices = np.flatnonzero(settled)
            found[places] = counter.take(still).count(choose_class(before[still]))
            few, counted = pricing.take(rows), counter.take(rows)
            for place in places if len(rows) else ():
                found[place] += counted.count(choose_class(few.values(flat[place])))
        return found

    def _pricing(self, criterion: Criterion) -> ClassPricing:
        return ClassPricing.make(
            self.probability, self.codes, self.n_groups, criterion, self.weights
        )
