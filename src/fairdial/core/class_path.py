"""The exact path of decisions between prices of classes, counted with the rows' labels and groups.

From one vector of prices to another, a row's value of each class is a line, so the row follows the
upper envelope of these lines: it never returns to a class that it left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairdial._arrays import Codes, Counts, Floats, Indices, Weights, exact_weights
from fairdial.core.class_prices import ClassPricing, choose_class, lead_of
from fairdial.core.criteria import Criterion
from fairdial.core.decide import sum_by_cell
from fairdial.core.price_path import N_STATES, SOLVED_ROWS, States, find_places, solve_knots

CHUNK = 1 << 16  # rows whose lines are compared at once
MOST_COUNTS = 1 << 22  # of the states of one segment


class ClassCounter:
    """Counts decided classes by class, label (whether the row belongs to it) and group.

    Parameters
    ----------
    codes : (n,) int array
        Group of each row.
    labels : (n,) int array, optional
        Class of each row.
    n_classes, n_groups : int
        Their numbers.
    weights : (n,) array, optional
        Weights of the rows.
    """

    def __init__(
        self,
        codes: Codes,
        labels: Codes | None,
        n_classes: int,
        n_groups: int,
        weights: Weights | None = None,
    ) -> None:
        self.codes = codes.astype(np.intp)
        self.labels = None if labels is None else labels.astype(np.intp)
        self.n_classes, self.n_groups = n_classes, n_groups
        self.n_labels = 1 if labels is None else 2
        self.weights = None if weights is None else exact_weights(weights)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of kinds (class and label) and of groups."""
        return self.n_classes * self.n_labels, self.n_groups

    def take(self, rows: Indices) -> ClassCounter:
        """Return what counts some of the rows."""
        labels = None if self.labels is None else self.labels[rows]
        weights = None if self.weights is None else self.weights[rows]
        return ClassCounter(self.codes[rows], labels, self.n_classes, self.n_groups, weights)

    def total(self) -> Counts:
        """Return all rows by kind and group, (C L, K): each row is counted for every class."""
        if self.labels is None:
            rows = sum_by_cell(self.codes, self.n_groups, self.weights)
            return np.tile(rows, (self.n_classes, 1))
        cells = self.labels * self.n_groups + self.codes
        found = sum_by_cell(cells, self.n_classes * self.n_groups, self.weights)
        belong = found.reshape(self.n_classes, self.n_groups)
        return np.stack([belong.sum(axis=0) - belong, belong], axis=1).reshape(self.shape)

    def count(self, decided: Indices) -> Counts:
        """Return the rows by decided class and label, and group, (C L, K)."""
        size = self.shape[0] * self.shape[1]
        cells = self._cells(decided, np.arange(len(decided)))
        return sum_by_cell(cells, size, self.weights).reshape(self.shape)

    def changes(self, moves: Moves, places: Indices, size: int) -> Counts:
        """Return by how much counts have changed at each of ``size`` places, (size, C L, K)."""
        n_cells = self.shape[0] * self.shape[1]
        each = np.ones(len(places)) if self.weights is None else self.weights[moves.rows]
        signed = np.concatenate([each, -each])
        cells = [self._cells(classes, moves.rows) for classes in (moves.gained, moves.left)]
        flat = np.concatenate([places, places]) * n_cells + np.concatenate(cells)
        found = np.bincount(flat, signed, (size + 1) * n_cells)[: size * n_cells]
        whole = self.weights is None or self.weights.dtype.kind == "i"
        kept: Counts = np.rint(found).astype(np.int64) if whole else found
        return np.asarray(kept.reshape(size, *self.shape).cumsum(axis=0))

    def _cells(self, decided: Indices, rows: Indices) -> Indices:
        """Return kind and group of some rows with these decisions, in one number."""
        kind = decided
        if self.labels is not None:
            kind = decided * 2 + (self.labels[rows] == decided)
        return np.asarray(kind * self.n_groups + self.codes[rows])


class Moves(NamedTuple):
    """Where rows change their class on a segment, and where rounding could change it."""

    rows: Indices  # that change, a row once for each change
    left: Indices  # class before
    gained: Indices  # class after
    at: Floats  # where, in [0, 1]
    start: Floats  # of the intervals in which a row's class isn't certain
    end: Floats


def find_moves(
    pricing: ClassPricing, first: Floats, last: Floats, before: Floats, after: Floats
) -> Moves:
    """Return the changes of classes from some prices to others, both (L,).

    ``before`` and ``after`` are the values of the classes, (n, C), at these prices.
    """
    rows, error = unsettled(pricing, first, last, before, after)
    found = [
        _envelope(pricing.probability.shape[1], some, error[some], before[some], after[some])
        for some in (rows[i : i + CHUNK] for i in range(0, len(rows), CHUNK))
    ]
    none, nowhere = np.empty(0, np.intp), np.empty(0)
    columns = zip(Moves(none, none, none, nowhere, nowhere, nowhere), *found, strict=True)
    return Moves(*[np.concatenate(parts) for parts in columns])


def unsettled(
    pricing: ClassPricing, first: Floats, last: Floats, before: Floats, after: Floats
) -> tuple[Indices, Floats]:
    """Return the rows whose class may change between prices, and each row's rounding error.

    Every other row has one class on the whole segment: a class that is best at both ends is best
    between them.
    """
    largest = np.maximum(np.abs(first), np.abs(last)).reshape(pricing.n_demands, -1)
    n_rates = len({demand.rate for demand in pricing.demands})
    size = 1.0 + largest.sum(axis=0)[pricing.codes]  # utilities and loads are at most 1
    error = 8.0 * (n_rates + 4) * np.finfo(np.float64).eps * size
    chosen = choose_class(before)
    settled = chosen == choose_class(after)
    for values in (before, after):
        settled &= lead_of(values) > error
    return np.flatnonzero(~settled), error


def _envelope(n_classes: int, rows: Indices, error: Floats, before: Floats, after: Floats) -> Moves:
    """Return the changes of some rows, whose values at both ends are (m, C)."""
    slope = after - before
    low = np.full(before.shape, -1.0)  # class c is certainly best between low and high
    high = np.full(before.shape, 2.0)
    for c in range(n_classes):
        for other in range(n_classes):
            if other == c:
                continue
            ahead, rises = before[:, c] - before[:, other], slope[:, c] - slope[:, other]
            with np.errstate(divide="ignore", invalid="ignore"):
                at = (error - ahead) / rises
            never = (rises == 0) & (ahead <= error)
            np.maximum(low[:, c], np.where(rises > 0, at, -1.0), out=low[:, c])
            ends = np.where(rises < 0, at, np.where(never, -2.0, 2.0))
            np.minimum(high[:, c], ends, out=high[:, c])
    certain = low < high
    order = np.argsort(np.where(certain, low, np.inf), axis=1, kind="stable")
    held, until = choose_class(before), np.full(len(rows), -1.0)
    moved, intervals = [], []
    every = np.arange(len(rows))
    for c in order.T:
        known = certain[every, c]
        at, to = low[every, c], c
        intervals.append((until[known], at[known]))
        changes = known & (to != held)
        moved.append((rows[changes], held[changes], to[changes], at[changes]))
        held = np.where(known, to, held)
        until = np.where(known, high[every, c], until)
    open_end = until < 1.0
    intervals.append((until[open_end], np.full(int(open_end.sum()), 2.0)))
    columns = [*zip(*moved, strict=True), *zip(*intervals, strict=True)]
    return Moves(*[np.concatenate(parts) for parts in columns])


def count_class_path(
    pricing: ClassPricing, counter: ClassCounter, knots: Sequence[Floats], limit: int = N_STATES
) -> States:
    """Return the states of a path through knots of prices, each (L,), counted exactly."""
    limit = min(limit, max(64, MOST_COUNTS // (counter.shape[0] * counter.shape[1])))
    settings, prices, selected, values = [], [], [], []
    after = pricing.values(knots[0])
    utility = pricing.probability
    for k, (first, last) in enumerate(zip(knots, [*knots[1:], knots[-1]], strict=True)):
        before = after
        decided = choose_class(before)
        base = counter.count(decided)
        gain = float(pricing.weights @ utility[np.arange(len(decided)), decided])
        places, changes, gains = np.zeros(1), np.zeros((1, *base.shape), base.dtype), np.zeros(1)
        if k < len(knots) - 1:
            after = pricing.values(last)
            moves = find_moves(pricing, first, last, before, after)
            places = np.append(places, find_places(moves.start, moves.end, limit))
            at = np.searchsorted(places, np.maximum(moves.at, 0.0), side="left")
            at = np.maximum(at, 1)  # at the knot itself nothing has changed
            changes = counter.changes(moves, at, len(places))
            more = utility[moves.rows, moves.gained] - utility[moves.rows, moves.left]
            moved = pricing.weights[moves.rows] * more
            gains = np.bincount(at, moved, len(places) + 1)[: len(places)].cumsum()
        settings.append(k + places)
        prices.append(first + places[:, None] * (last - first))
        selected.append(base + changes)
        values.append(gain + gains)
    return States(
        np.concatenate(settings),
        np.concatenate(prices),
        np.concatenate(selected),
        np.concatenate(values),
    )


def find_class_knots(
    pricing: ClassPricing, counter: ClassCounter, criterion: Criterion, *, single: bool = False
) -> list[Floats]:
    """Return prices from 0 to the most equal decisions, each (L,).

    They are solved for on at most ``SOLVED_ROWS`` rows, and corrected by counts on all.
    ``single`` asks for one segment, on which no row returns to a class that it left.
    """
    cells, free = counter.total(), np.zeros_like(pricing.shares)

    def count(prices: Floats) -> Counts:
        return counter.count(choose_class(pricing.values(prices)))

    gap = float(criterion.gap_of(count(free), cells))
    if gap == 0.0:
        return [free]
    sample = pricing
    if len(pricing.codes) > SOLVED_ROWS:
        chosen = np.random.default_rng(0).permutation(len(pricing.codes))[:SOLVED_ROWS]
        sample = pricing.take(np.sort(chosen))
    knots = solve_knots(sample, count, criterion, cells, gap)
    return [knots[0], knots[-1]] if single else knots
