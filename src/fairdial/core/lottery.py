"""The best randomized rule for known groups, and the hash that draws its lots.

A lottery gives each group a few ranks with probabilities, and draws one of them for each row. Rates
and values are linear in the probabilities, so the best lottery solves a linear program with one
column per rank. Few columns matter: :func:`solve_lottery` solves the program for the columns found
so far, and its dual prices tell which rank of each group would improve it most, until none does.
The prices also prove a bound on the value of every mixture of ranks within the limits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Floats, Indices, Mask
from fairdial.core.search import Limit, Total

PRECISION = 1e-12  # of the value, relative to the largest value of a rank
SLACK = 1e-9  # a limit that is exceeded by less is met
NEGLIGIBLE = 1e-11  # probabilities that are dropped
SEEDS = 9  # ranks of each group to start with
MAX_ROUNDS = 1000
SOLVER = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


@dataclass(frozen=True)
class Lottery:
    """A mixture of ranks in each group.

    Attributes
    ----------
    ranks : (K, M) intp
        Ranks of each group, ascending; unused places repeat the last one.
    weights : (K, M) float64
        Their probabilities; 0 in unused places.
    value : float
        Expected value.
    bound : float
        Proven upper bound on the value of every rule within the limits; it equals ``value`` up to
        rounding.
    """

    ranks: Indices
    weights: Floats
    value: float
    bound: float


def solve_lottery(
    values: Sequence[Floats], limits: Sequence[Limit], total: Total | None = None
) -> Lottery | None:
    """Return the most valuable lottery that meets the limits in expectation.

    Parameters
    ----------
    values : sequence of (m_a + 1,) float64
        Value of each rank in each group; ranks of value ``-inf`` aren't used.
    limits : sequence of Limit
        Limits on rates. For a difference or a ratio, the denominators must be the same at all
        ranks.
    total : Total, optional
        Limits on the number of selected rows.

    Returns
    -------
    Lottery or None
        None if no mixture meets the limits.

    Raises
    ------
    ValueError
        If a limit isn't linear in the probabilities.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import numpy as np
    >>> from fairdial.core.lottery import solve_lottery
    >>> from fairdial.core.search import Limit
    >>> selected = np.arange(3), np.arange(3)  # of two rows in each group
    >>> limit = Limit(selected, (np.array(2), np.array(2)), "difference", Fraction(1, 4))
    >>> values = np.array([0.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.5])
    >>> lottery = solve_lottery(values, [limit])
    >>> lottery.ranks.tolist(), lottery.weights.tolist(), lottery.value
    ([[1, 1], [1, 2]], [[1.0, 0.0], [0.5, 0.5]], 2.25)
    """
    usable = [np.isfinite(line) for line in values]
    if not all(map(np.any, usable)):
        return None
    scale = max(float(np.abs(v[u]).max()) for v, u in zip(values, usable, strict=True)) or 1.0
    program = _Program([line / scale for line in values], *_constraints(values, limits, total))
    ranks = [_seeds(line, here) for line, here in zip(values, usable, strict=True)]
    found = _generate(program, ranks)
    if found is None:  # mixtures of the seeds don't meet the limits: find ranks that do
        closest = _generate(program.soften(), ranks)
        if closest is None:
            raise RuntimeError("the linear program of the smallest excess has no solution")
        if -closest.value > SLACK:
            return None
        found = _generate(program.relax(max(-closest.value, 0.0)), closest.ranks)
        if found is None:
            raise RuntimeError("the linear program has no solution, although it is feasible")
    return _lottery(values, found, scale)


def bound(values: Sequence[Floats], limits: Sequence[Limit], total: Total | None = None) -> float:
    """Return a bound on the value of every rule within the limits; ``-inf`` if there is no rule.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import numpy as np
    >>> from fairdial.core.lottery import bound
    >>> from fairdial.core.search import Limit
    >>> selected, rows = (np.arange(3), np.arange(3)), (np.array(2), np.array(2))
    >>> values = np.array([0.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.5])
    >>> bound(values, [Limit(selected, rows, "difference", Fraction(1, 4))])
    2.25
    """
    lottery = solve_lottery(values, limits, total)
    return -np.inf if lottery is None else lottery.bound


# ---- column generation -----------------------------------------------------------------------


class _Mixture(NamedTuple):
    """The best mixture of some ranks of each group."""

    ranks: list[Indices]
    weights: Floats  # of the ranks of all groups, one after the other
    prices: Floats  # (R,) of the constraints, none negative
    value: float
    bound: float = np.inf


def _seeds(values: Floats, usable: Mask) -> Indices:
    """Return the ranks to start with: the best, the ends and some between."""
    allowed = np.flatnonzero(usable)
    spread = allowed[np.linspace(0, len(allowed) - 1, SEEDS).astype(np.intp)]
    return np.unique(np.append(spread, values.argmax()))


def _generate(program: _Program, ranks: list[Indices]) -> _Mixture | None:
    """Return the best mixture of all ranks; None if the given ranks can't meet the constraints."""
    found = program.solve(ranks)
    if found is None:
        return None
    bound = np.inf
    for _ in range(MAX_ROUNDS):
        best, proven = program.price(found.prices)
        bound = min(bound, proven)
        more = [np.union1d(old, new) for old, new in zip(found.ranks, best, strict=True)]
        if bound - found.value <= PRECISION or sum(map(len, more)) == len(found.weights):
            break
        found = program.solve(more) or found
    return found._replace(bound=bound)


def _lottery(values: Sequence[Floats], found: _Mixture, scale: float) -> Lottery:
    """Return a mixture as a table, without negligible ranks."""
    cuts = np.cumsum([len(ranks) for ranks in found.ranks])[:-1]
    parts = [
        (ranks[weights > NEGLIGIBLE], weights[weights > NEGLIGIBLE])
        for ranks, weights in zip(found.ranks, np.split(found.weights, cuts), strict=True)
    ]
    width = max(len(ranks) for ranks, _ in parts)
    table = np.stack([np.pad(ranks, (0, width - len(ranks)), "edge") for ranks, _ in parts])
    chances = np.stack([np.pad(w / w.sum(), (0, width - len(w))) for _, w in parts])
    value = sum(float(c @ v[r]) for v, r, c in zip(values, table, chances, strict=True))
    return Lottery(table, chances, value, max(value, found.bound * scale))


# ---- the linear program ----------------------------------------------------------------------


class _Constraint(NamedTuple):
    """``sign * (expected measure in the groups) + factor * level <= right``.

    The level is a free variable, one per measure: the lowest rate if a difference is limited, the
    highest if a ratio is.
    """

    sign: float
    measure: int
    groups: tuple[int, ...]
    factor: float
    right: float


def _constraints(
    values: Sequence[Floats], limits: Sequence[Limit], total: Total | None
) -> tuple[list[Floats], list[_Constraint]]:
    """Return the measures of every rank by group, and the constraints on them."""
    measures = [np.zeros((len(limits) + 1, len(line))) for line in values]  # (J, m_a + 1)
    constraints: list[_Constraint] = []
    for j, limit in enumerate(limits):
        edge = float(limit.bound)
        unions = _unions(limit)
        if limit.spread in ("difference", "ratio") and len(unions) < 2:
            continue
        for union in unions:
            largest = sum(np.max(limit.denominator[a]) for a in union)
            right = edge
            for a in union:
                measures[a][j] = limit.numerator[a] / largest
            a, denominator = union[0], limit.denominator[union[0]]
            if (
                len(union) == 1 and np.min(denominator) < largest
            ):  # n / d >= edge means that n - edge * d >= 0
                if limit.spread in ("difference", "ratio"):
                    raise ValueError(
                        f"the {limit.spread} of a rate given the decision isn't linear"
                    )
                measures[a][j] -= edge * (denominator / largest)
                right = 0.0
            constraints += {
                "difference": [
                    _Constraint(1, j, union, -1, edge),
                    _Constraint(-1, j, union, 1, 0),
                ],
                "ratio": [_Constraint(1, j, union, -1, 0), _Constraint(-1, j, union, edge, 0)],
                "minimum": [_Constraint(-1, j, union, 0, -right)],
                "maximum": [_Constraint(1, j, union, 0, right)],
            }[limit.spread]
    if total is not None:
        rows = sum(float(selected[-1]) for selected in total.selected) or 1.0
        for measure, selected in zip(measures, total.selected, strict=True):
            measure[-1] = selected / rows
        most, least = float(total.most) / rows, float(total.least) / rows
        everybody = tuple(range(len(values)))
        constraints += [
            _Constraint(1, len(limits), everybody, 0, most),
            _Constraint(-1, len(limits), everybody, 0, -least),
        ]
    return measures, constraints


def _unions(limit: Limit) -> list[tuple[int, ...]]:
    """Return what a limit compares: groups, or unions of groups, that have rows."""
    known = [a for a, denominator in enumerate(limit.denominator) if np.max(denominator) > 0]
    if limit.members is None:
        return [(a,) for a in known]
    places = range(1 + max(limit.members))
    found = [tuple(a for a in known if limit.members[a] == place) for place in places]
    return [union for union in found if union]


class _Program:
    """Maximize the expected value of a mixture of ranks under constraints.

    Parameters
    ----------
    values : sequence of (m_a + 1,) float64
        Value of each rank by group.
    measures : sequence of (J, m_a + 1) float64
        What the constraints refer to.
    constraints : sequence of _Constraint
    soft : bool
        Minimize the largest excess over a constraint instead.
    """

    def __init__(
        self,
        values: Sequence[Floats],
        measures: Sequence[Floats],
        constraints: Sequence[_Constraint],
        soft: bool = False,
    ) -> None:
        self.values, self.measures = values, measures
        self.constraints, self.soft = constraints, soft
        self.sign = np.array([float(one.sign) for one in constraints])  # (R,)
        self.measure = np.array([one.measure for one in constraints], np.intp)
        self.factor = np.array([float(one.factor) for one in constraints])
        self.right = np.array([float(one.right) for one in constraints])
        self.applies = [
            np.array([a in one.groups for one in constraints], np.bool_) for a in range(len(values))
        ]

    def soften(self) -> _Program:
        """Return the program that comes as close to the constraints as possible."""
        flat = [np.where(np.isfinite(line), 0.0, -np.inf) for line in self.values]
        return _Program(flat, self.measures, self.constraints, soft=True)

    def relax(self, excess: float) -> _Program:
        """Return the program whose constraints may be exceeded by as much."""
        weaker = [one._replace(right=one.right + excess) for one in self.constraints]
        return _Program(self.values, self.measures, weaker)

    @cached_property
    def ranges(self) -> tuple[Floats, Floats]:
        """The smallest and the largest value of each measure, each (J,)."""
        lowest = np.min([measures.min(axis=1) for measures in self.measures], axis=0)
        return lowest, np.max([measures.max(axis=1) for measures in self.measures], axis=0)

    def solve(self, ranks: list[Indices]) -> _Mixture | None:
        """Return the best mixture of these ranks; None if none meets the constraints."""
        from scipy.optimize import linprog  # slow to import

        n_levels, n_rows = len(self.measures[0]), len(self.right)
        owner = np.repeat(np.arange(len(ranks)), [len(line) for line in ranks])  # (N,)
        taken = [measures[:, line] for measures, line in zip(self.measures, ranks, strict=True)]
        applies = np.stack(self.applies, axis=1)[:, owner]  # (R, N)
        on_ranks = self.sign[:, None] * applies * np.hstack(taken)[self.measure]
        on_levels = np.zeros((n_rows, n_levels))
        on_levels[np.arange(n_rows), self.measure] = self.factor
        on_excess = np.full((n_rows, 1), -float(self.soft))
        values = np.concatenate([v[line] for v, line in zip(self.values, ranks, strict=True)])
        shares = (owner == np.arange(len(ranks))[:, None]).astype(np.float64)  # (K, N)
        found = linprog(
            np.concatenate((-values, np.zeros(n_levels), [1.0])),
            A_ub=np.hstack((on_ranks, on_levels, on_excess)),
            b_ub=self.right,
            A_eq=np.hstack((shares, np.zeros((len(ranks), n_levels + 1)))),
            b_eq=np.ones(len(ranks)),
            bounds=[(0, None)] * len(owner) + [(None, None)] * n_levels + [(0, None)],
            method="highs-ds",
            options=SOLVER,
        )
        if not found.success:
            return None
        weights = np.maximum(found.x[: len(owner)], 0.0)
        return _Mixture(ranks, weights, np.maximum(-found.ineqlin.marginals, 0.0), -found.fun)

    def price(self, prices: Floats) -> tuple[list[int], float]:
        """Return the best rank of each group at these prices, and the bound that they prove.

        Any prices prove a bound: a rule that meets the constraints pays at most ``prices @ right``,
        and its value after paying is at most the best of each group.
        """
        if self.soft:
            prices = prices / max(1.0, float(prices.sum()))  # the excess costs more than it saves
        best, bound = [], float(prices @ self.right)
        for values, measures, applies in zip(self.values, self.measures, self.applies, strict=True):
            charges = np.bincount(self.measure, prices * self.sign * applies, len(measures))
            net = values - charges @ measures
            best.append(int(net.argmax()))
            bound += float(net[best[-1]])
        factors = np.bincount(self.measure, prices * self.factor, len(self.measures[0]))
        lowest, highest = self.ranges
        bound += float(np.maximum(-factors * lowest, -factors * highest).sum())  # rounding errors
        return best, bound


# ---- lots ------------------------------------------------------------------------------------


def hash_uniform(rows: Iterable[bytes | str] | NDArray[Any], salt: bytes | str = b"") -> Floats:
    """Return a number in [0, 1) for each row that depends on the row's content and the salt only.

    The number is the first 53 bits of the BLAKE2b hash of the row, keyed with the salt. It is the
    same on every platform, and looks uniform and independent for different rows or salts.

    Parameters
    ----------
    rows : iterable of bytes or str, or array of shape (n,) or (n, d)
        Strings are hashed as UTF-8, integers as int64 or uint64 and other numbers as float64, both
        little-endian. Equal numbers are hashed alike: -0.0 as 0.0, and every NaN as the same.
    salt : bytes or str
        At most 64 bytes. Keep it secret if people could try inputs until one is selected.

    Returns
    -------
    (n,) float64

    Examples
    --------
    >>> from fairdial.core.lottery import hash_uniform
    >>> hash_uniform(["Ann", "Bob", "Ann"], "2026").round(4)
    array([0.6398, 0.5688, 0.6398])
    """
    key = salt.encode() if isinstance(salt, str) else salt
    keys = _bytes_of_rows(rows) if isinstance(rows, np.ndarray) else rows
    digests = b"".join(
        hashlib.blake2b(
            row.encode() if isinstance(row, str) else row, digest_size=8, key=key
        ).digest()
        for row in keys
    )
    numbers = np.frombuffer(digests, "<u8") >> np.uint64(11)
    return numbers.astype(np.float64) * 2.0**-53


def _bytes_of_rows(rows: NDArray[Any]) -> Iterable[bytes | str]:
    """Return the bytes of each row of an array."""
    if rows.dtype.kind in "OSU":
        return list(rows)
    dtype = f"<{rows.dtype.kind}8" if rows.dtype.kind in "iu" else "<f8"
    numbers = np.ascontiguousarray(rows, dtype).reshape(len(rows), -1)
    if dtype == "<f8":
        numbers = np.where(np.isnan(numbers), np.nan, numbers + 0.0)
    width = numbers.shape[1] * 8
    data = numbers.tobytes()
    return [data[i : i + width] for i in range(0, len(data), width)]
