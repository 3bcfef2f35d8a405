"""The exact path of decisions between prices, counted with the rows' true groups.

From one vector of prices to another, each row's margin is a line, so its decision changes at most
once: however many rates and groups there are, no row returns to a decision that it left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fairdial._arrays import Codes, Counts, Floats, Indices, Kinds, Weights, exact_weights
from fairdial.core.criteria import Criterion
from fairdial.core.decide import count_kinds, select, sum_by_cell
from fairdial.core.dual import DEAREST, Dual
from fairdial.core.prices import Pricing

N_KNOTS = 10  # tolerances that prices are solved for, between the largest gap and 0
ROUNDS = 4  # of correcting expected rates by counted ones
CLOSE = 0.05  # of the tolerance: a gap that needs no correction
SOLVED_ROWS = 40_000  # rows that prices are solved on; all are counted
N_STATES = 1 << 12  # states of a segment that are counted, and states that are kept


class States(NamedTuple):
    """Decisions along a path, and what they do on the rows."""

    setting: Floats  # (S,) segment of the path, and position on it
    prices: Floats  # (S, L)
    selected: Counts  # (S, C, K)
    value: Floats  # (S,) mean expected utility of the selected rows


class Counter:
    """Counts decisions in the rows' true cells.

    Parameters
    ----------
    codes, kinds : (n,) arrays
        Group and kind of each row; without kinds, all are of one.
    n_groups, n_kinds : int
        Their numbers.
    weights : (n,) array, optional
        Weights of the rows.
    """

    def __init__(
        self,
        codes: Codes,
        kinds: Kinds | None,
        n_groups: int,
        n_kinds: int | None = None,
        weights: Weights | None = None,
    ) -> None:
        n_kinds = count_kinds(kinds) if n_kinds is None else n_kinds
        self.shape = n_kinds, n_groups
        self.cells = codes.astype(np.intp)
        if kinds is not None:
            self.cells += n_groups * kinds.astype(np.intp)
        self.weights = None if weights is None else exact_weights(weights)

    def total(self) -> Counts:
        """Return all rows by kind and group, (C, K)."""
        return self.count(np.arange(len(self.cells)))

    def count(self, rows: Indices) -> Counts:
        """Return some rows by kind and group, (C, K)."""
        weights = None if self.weights is None else self.weights[rows]
        n_kinds, n_groups = self.shape
        return sum_by_cell(self.cells[rows], n_kinds * n_groups, weights).reshape(self.shape)

    def changes(self, rows: Indices, gained: Indices, places: Indices, size: int) -> Counts:
        """Return by how much counts have changed at each of ``size`` places, (size, C, K).

        Row ``rows[i]`` changes at ``places[i]``, by +1 or -1 (``gained``).
        """
        n_cells = self.shape[0] * self.shape[1]
        signed = gained if self.weights is None else gained * self.weights[rows]
        flat = places * n_cells + self.cells[rows]
        found = np.bincount(flat, signed, (size + 1) * n_cells)[: size * n_cells]
        kept = found if signed.dtype.kind == "f" else np.rint(found).astype(np.int64)
        return np.asarray(kept.reshape(size, *self.shape).cumsum(axis=0))


class Crossings(NamedTuple):
    """Where rows change their decision on a segment, and where rounding could change it."""

    rows: Indices  # that change
    at: Floats  # where, in [0, 1]
    gained: Indices  # 1: selected at the end; -1: at the start
    start: Floats  # of the intervals in which a row's decision isn't certain
    end: Floats


def find_crossings(pricing: Pricing, first: Floats, last: Floats) -> Crossings:
    """Return the changes of decisions from some prices to others, both (L,)."""
    before, after = pricing.margins(first), pricing.margins(last)
    size = np.abs(pricing.utility)
    for column, price in zip(pricing.loads.T, np.maximum(np.abs(first), np.abs(last)), strict=True):
        size += np.abs(column) * price
    error = 4.0 * (len(first) + 3) * np.finfo(np.float64).eps * size
    changed = select(before, 0.0) != select(after, 0.0)
    rows = np.flatnonzero(changed)
    near = np.flatnonzero((np.abs(before) <= error) | (np.abs(after) <= error) | changed)
    slope = (after - before)[near]
    with np.errstate(divide="ignore", invalid="ignore"):
        at = -before[near] / slope
        width = error[near] / np.abs(slope)
    flat = ~np.isfinite(at) | ~np.isfinite(width)
    start = np.where(flat, 0.0, at - width)
    end = np.where(flat, np.where(error[near] > 0, 1.0, 0.0), at + width)
    gained = np.where(after[rows] > 0, 1, -1)
    return Crossings(rows, at[changed[near]], gained, start, end)


def find_places(start: Floats, end: Floats, limit: int = N_STATES) -> Floats:
    """Return places between changes where every row's decision is certain, ascending, (m,).

    It isn't in the intervals from ``start`` to ``end``. If there are more places than ``limit``,
    they are evenly spaced among all.
    """
    order = np.argsort(start, kind="stable")
    low = np.maximum.accumulate(end[order])[:-1]
    high = start[order][1:]
    middle = low + (high - low) / 2
    places = middle[(low < middle) & (middle < high) & (middle > 0) & (middle < 1)]
    if len(places) > limit:
        places = places[np.linspace(0, len(places) - 1, limit).round().astype(np.intp)]
    return places


def count_path(
    pricing: Pricing,
    counter: Counter,
    knots: Sequence[Floats],
    limit: int = N_STATES,
    at_places: Sequence[Floats] | None = None,
) -> States:
    """Return the states of a path through knots of prices, each (L,), counted exactly.

    ``at_places`` are positions on each segment, 0 first; by default they lie between all changes.
    """
    settings, prices, selected, values = [], [], [], []
    for k, (first, last) in enumerate(zip(knots, [*knots[1:], knots[-1]], strict=True)):
        rows = np.flatnonzero(select(pricing.margins(first), 0.0))
        base, gain = counter.count(rows), pricing.weights[rows] @ pricing.utility[rows]
        places = np.zeros(1)
        if k < len(knots) - 1:
            found = find_crossings(pricing, first, last)
            places = np.append(places, find_places(found.start, found.end, limit))
            if at_places is not None:
                places = at_places[k]
            at = np.searchsorted(places, np.maximum(found.at, 0.0), side="left")
            at = np.maximum(at, 1)  # at the knot itself nothing has changed
            changes = counter.changes(found.rows, found.gained, at, len(places))
            moved = pricing.weights[found.rows] * pricing.utility[found.rows] * found.gained
            gains = np.bincount(at, moved, len(places) + 1)[: len(places)].cumsum()
        else:
            changes, gains = np.zeros((1, *base.shape), base.dtype), np.zeros(1)
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


def find_knots(
    pricing: Pricing,
    counter: Counter,
    criterion: Criterion,
    cells: Counts,
    *,
    single: bool = False,
) -> list[Floats]:
    """Return prices from 0 to the most equal decisions, each (L,).

    ``single`` asks for one segment, on which each row changes at most once. For one rate and two
    groups there is only one direction, so one segment is enough.
    """

    def count(prices: Floats) -> Counts:
        return counter.count(np.flatnonzero(select(pricing.margins(prices), 0.0)))

    free = np.zeros(pricing.loads.shape[1])
    if pricing.n_demands == 1 and len(free) == 2:
        return [free, _find_end(pricing, count, criterion, cells)]
    gap = float(criterion.gap_of(count(free), cells))
    if gap == 0.0:
        return [free]
    sample = pricing
    if len(pricing.utility) > SOLVED_ROWS:
        chosen = np.random.default_rng(0).permutation(len(pricing.utility))[:SOLVED_ROWS]
        sample = pricing.take(np.sort(chosen))
    if criterion.has_groupings:
        places = criterion.places(cells.shape[1])
        pooled = solve_knots(
            sample.pool(places, criterion.width(cells.shape[1])),
            lambda prices: count(prices[places]),
            criterion,
            cells,
            gap,
        )
        knots = [prices[places] for prices in pooled]
    else:
        knots = solve_knots(sample, count, criterion, cells, gap)
    return [knots[0], knots[-1]] if single else knots


def solve_knots(
    sample: Dual,
    count: Callable[[Floats], Counts],
    criterion: Criterion,
    cells: Counts,
    gap: float,
) -> list[Floats]:
    """Return the prices at tolerances from the largest ``gap`` to 0, the first of them 0.

    ``count`` says what decisions at prices do; expected rates are corrected until it agrees.
    """
    free = np.zeros_like(sample.shares)
    knots, offset = [free], np.zeros_like(free)
    for tolerance in (gap * np.arange(N_KNOTS - 1, -1, -1) / N_KNOTS).tolist():
        best, distance = knots[-1], np.inf
        for _ in range(ROUNDS):
            prices = sample.minimize(tolerance, best, offset)
            selected = count(prices)
            missed = abs(float(criterion.gap_of(selected, cells)) - tolerance)
            if missed >= distance or np.abs(prices).max() > DEAREST:
                break
            best, distance = prices, missed
            if missed <= CLOSE * max(tolerance, gap / N_KNOTS):
                break
            rates = np.nan_to_num(criterion.rates_of(selected, cells)).ravel()
            offset = rates - sample.soft_rates(prices)
        if distance == np.inf:  # out of reach, and so is everything below
            break
        knots.append(best)
    return knots


def _find_end(
    pricing: Pricing, count: Callable[[Floats], Counts], criterion: Criterion, cells: Counts
) -> Floats:
    """Return prices of two groups at which the disparity of one rate has changed its sign."""
    disparity = float(criterion.disparity(criterion.rates_of(count(np.zeros(2)), cells)))
    sign = 1.0 if disparity > 0 else -1.0
    direction = sign * np.array([-1.0, 1.0]) * pricing.shares.min() / pricing.shares
    size = 0.25
    while size < DEAREST:
        rates = criterion.rates_of(count(size * direction), cells)
        if sign * float(criterion.disparity(rates)) <= 0:
            break
        size *= 2
    return np.asarray(size * direction)


def improving(gap: Floats, limit: int = N_STATES) -> Indices:
    """Return the states whose gap is smaller than all before, thinned evenly in gap."""
    best = np.minimum.accumulate(gap)
    kept = np.flatnonzero(np.concatenate(([True], best[1:] < best[:-1])))
    if len(kept) <= limit:
        return kept
    grid = np.append(np.linspace(gap[0], best[-1], limit), best[-1])
    return np.unique(kept[np.searchsorted(-gap[kept], -grid, side="left").clip(max=len(kept) - 1)])
