"""Operating points found by search: the best thresholds at each tolerance, for any demands.

The threshold path answers one rate at once for all tolerances. Everything else (several rates,
ratios, minimum rates, costs, budgets) is solved by an exact search at each tolerance that is asked
for, from the same sorted scores.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import ceil, floor

import numpy as np

from fairdial._arrays import Counts, Dtype, Floats, Indices, Mask
from fairdial.core.criteria import Criterion
from fairdial.core.demands import SPREADS, Demand, exact, reach
from fairdial.core.group_scores import GroupScores, place_thresholds, total_counts
from fairdial.core.lottery import Lottery, solve_lottery
from fairdial.core.objectives import Terms, evaluate, true_and_false
from fairdial.core.operating_points import OperatingPoints, PointTable
from fairdial.core.problem import Problem
from fairdial.core.rank_totals import Total
from fairdial.core.search import Limit, Searcher, UndecidedError
from fairdial.errors import InvalidInputError

VACUOUS = dict(zip(SPREADS, map(Fraction, (1, 0, 0, 1)), strict=True))  # bounds without effect
N_LISTED = 65  # points that are listed, drawn and sent to the page
FINE = 1e-9  # precision of the smallest gap, and of exact budgets of weighted rows
MAX_UNDECIDED = 2  # searches that are stopped, until the smallest gap so far is used
KEPT = 4096  # answers that are kept
ROUNDS = 50  # of Dinkelbach's iteration; a handful is enough


class SearchedPoints(OperatingPoints):
    """The best thresholds of the groups' scores at each tolerance.

    The points that are listed (``gap``, ``setting``, ``read``) are answers to evenly spaced
    tolerances; :meth:`choose` answers any tolerance exactly.

    Attributes
    ----------
    cells : (C, K)
        Rows by kind and group.
    constant : bool
        Whether the same decision for everybody is an answer.
    """

    def __init__(
        self,
        group_scores: Sequence[GroupScores],
        problem: Problem,
        dtype: Dtype,
        n_labels: int,
        names: Sequence[Hashable] | None = None,
        *,
        constant: bool = True,
    ) -> None:
        self.group_scores, self.problem, self.dtype = group_scores, problem, dtype
        self.n_labels, self._constant = n_labels, constant
        self.names = range(len(group_scores)) if names is None else names
        self.cells = total_counts(group_scores)
        self._answers: dict[float, Indices | None] = {}
        self._stopped = False  # whether the last search was
        self._unproved = set[float]()
        self._require_a_solution()

    @property
    def criterion(self) -> Criterion:
        """The criterion."""
        return self.problem.criterion

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """The demands that are searched for, which imply all others.

        A rate of a group of one column is a mean of those of its intersections. So it needs no
        limit of its own if they have the same one.
        """
        demands = self.problem.criterion.demands
        whole = [demand for demand in demands if demand.grouping is None]
        return tuple(d for d in demands if replace(d, grouping=None) not in whole) + tuple(whole)

    @property
    def unproved(self) -> Set[float]:
        """Tolerances whose search was stopped: better thresholds may exist.

        This happens at tolerances near 0 for rates that don't rise with the selected rows.
        """
        return self._unproved

    def rebuild(self, group_scores: Sequence[GroupScores]) -> SearchedPoints:
        """Return the points of other scores of the same groups."""
        return SearchedPoints(group_scores, self.problem, self.dtype, self.n_labels, self.names)

    # ---- the problem in numbers ----------------------------------------------------------------

    @cached_property
    def _hits(self) -> list[tuple[Floats, Floats]]:
        """True and false positives of each group at each rank: counted, or expected."""
        return true_and_false(self.group_scores, self.problem.value == "labels", self.n_labels)

    @cached_property
    def _terms(self) -> Terms:
        if self.n_labels == 2:
            by_label = self.cells.reshape(-1, 2, len(self.group_scores)).sum(axis=(0, 2))
            return self.problem.objective.terms(*by_label.tolist())
        positives = sum(float(true[-1]) for true, _ in self._hits)
        return self.problem.objective.terms(float(self.cells.sum()) - positives, positives)

    def _values(self, price: float = 0.0) -> list[Floats]:
        """Return each group's objective at each rank, minus ``price`` times its denominator."""
        if self.problem.objective.name == "utility":
            n = float(self.cells.sum())
            return [_gain(scores)[: scores.last_rank + 1] / n for scores in self.group_scores]
        a1, a0, _, (b1, b0, _) = self._terms
        values = [
            (a1 - price * b1) * true + (a0 - price * b0) * false for true, false in self._hits
        ]
        pairs = zip(values, self.group_scores, strict=True)
        return [value[: scores.last_rank + 1] for value, scores in pairs]

    @cached_property
    def _rates(self) -> list[tuple[list[Counts], list[Counts]]]:
        """Numerators and denominators of each demand's rate, by group and rank."""
        criterion = self.problem.criterion
        parts = []
        for demand in self.demands:
            pairs = [
                replace(demand, grouping=None).parts(
                    criterion.split(scores.selected[:, : scores.last_rank + 1]),
                    criterion.split(total[:, None]),
                )
                for scores, total in zip(self.group_scores, self.cells.T, strict=True)
            ]
            parts.append(([over for over, _ in pairs], [under for _, under in pairs]))
        return parts

    def _bounds(self, tolerance: float | None) -> list[Fraction]:
        """Return the demands' bounds at a tolerance; None: bounds that always hold."""
        demands = self.demands
        if tolerance is None:
            return [VACUOUS[demand.spread] for demand in demands]
        return [demand.bound(reach(tolerance)) for demand in demands]

    def _limits(self, tolerance: float | None = None) -> list[Limit]:
        demands, bounds = self.demands, self._bounds(tolerance)
        return [
            Limit(
                tuple(over),
                tuple(under),
                demand.spread,
                bound,
                None if demand.grouping is None else demand.grouping.members,
            )
            for demand, bound, (over, under) in zip(demands, bounds, self._rates, strict=True)
        ]

    def _total(self, least: float = 0) -> Total | None:
        """Return the limits on the number of selected rows: the budget, or not none and not all."""
        budget, n_rows = self.problem.budget, float(self.cells.sum())
        if budget is None and self._constant:
            return None
        selected = tuple(
            scores.selected[:, : scores.last_rank + 1].sum(axis=0) for scores in self.group_scores
        )
        if budget is not None:
            return Total(selected, budget.most(n_rows), exact(least))
        whole = self.cells.dtype.kind == "i"
        some, most = (1.0, n_rows - 1) if whole else np.nextafter((0.0, n_rows), (1.0, 0.0))
        return Total(selected, Fraction(most), Fraction(some))

    # ---- solving -------------------------------------------------------------------------------

    @cached_property
    def _linear(self) -> Searcher:
        return Searcher(self._values(), self._limits(), self._total())

    @cached_property
    def unconstrained(self) -> Indices:
        """(K,) the best ranks without demands, within the budget."""
        found = self._best(None, None, None)
        assert found is not None  # no row need be selected
        return found

    def solve(
        self, tolerance: float, lowest: Indices | None = None, highest: Indices | None = None
    ) -> Indices | None:
        """Return the best ranks at a tolerance, (K,); None if no thresholds meet the demands."""
        if self.problem.rising:
            base = self.unconstrained
            lowest = base if lowest is None else np.maximum(base, lowest)
        return self._best(tolerance, lowest, highest)

    def _best(
        self, tolerance: float | None, lowest: Indices | None, highest: Indices | None
    ) -> Indices | None:
        bounds, limits = self._bounds(tolerance), (lowest, highest)
        ranks = self._within_budget(None, bounds, limits)
        if self.problem.objective.name != "f1" or ranks is None:
            return ranks
        price = self.value_at(ranks)
        for _ in range(ROUNDS):  # Dinkelbach: the price rises to the largest quotient
            found = self._within_budget(price, bounds, limits)
            assert found is not None  # the limits are the same
            reached = self.value_at(found)
            if reached <= price:
                break
            ranks, price = found, reached
        return ranks

    def _within_budget(
        self,
        price: float | None,
        bounds: Sequence[Fraction],
        limits: tuple[Indices | None, Indices | None],
    ) -> Indices | None:
        """Return the best ranks at a price; an exact budget asks for as many rows as it allows."""
        values = self._values(price or 0.0)

        def attempt(least: float) -> Indices | None:
            searcher = self._linear
            if price is not None or least:
                searcher = Searcher(values, self._limits(), self._total(least))
            try:
                found = searcher.search(bounds, lowest=limits[0], highest=limits[1])
            except UndecidedError:
                self._stopped = True
                return None
            self._stopped |= found is not None and not found.proved
            return None if found is None else found.ranks

        budget, total = self.problem.budget, self._total()
        best = attempt(0)
        if budget is None or total is None or not budget.exact or best is None:
            return best
        whole = self.cells.dtype.kind == "i"
        least, most = self._n_selected(best), float(floor(total.most) if whole else total.most)
        if least < most and (all_of_it := attempt(most)) is not None:
            return all_of_it
        precision = 1.0 if whole else FINE * most
        while most - least > precision:  # ties and demands leave some over
            middle = least + (most - least) / 2
            middle = ceil(middle) if whole else middle
            found = attempt(middle)
            if found is None:
                most = middle
            else:
                best, least = found, self._n_selected(found)
        return best

    @property
    def n_unconstrained(self) -> float:
        """Number of rows that are selected without demands."""
        return self._n_selected(self.unconstrained)

    def _n_selected(self, ranks: Indices) -> float:
        counts = (s.selected[:, k].sum() for s, k in zip(self.group_scores, ranks, strict=True))
        return float(sum(counts))

    def value_at(self, ranks: Indices) -> float:
        """Return the objective at ranks, as it is maximized."""
        if self.problem.objective.name == "utility":
            n = float(self.cells.sum())
            pairs = zip(self.group_scores, ranks, strict=True)
            return float(sum(_gain(scores)[k] for scores, k in pairs)) / n
        true = sum(float(hits[0][k]) for hits, k in zip(self._hits, ranks, strict=True))
        false = sum(float(hits[1][k]) for hits, k in zip(self._hits, ranks, strict=True))
        return float(evaluate(self._terms, np.array(true), np.array(false)))

    def answer(self, tolerance: float) -> Indices | None:
        """Return ``solve(tolerance)``, which is remembered."""
        if tolerance not in self._answers:
            if len(self._answers) >= KEPT:
                self._answers.clear()
            self._stopped = False
            found = self._answers[tolerance] = self.solve(tolerance)
            if self._stopped:
                self._unproved.add(tolerance)
            return found
        return self._answers.get(tolerance)

    def gap_at(self, ranks: Indices) -> float:
        """Return the smallest tolerance that allows ranks."""
        selected = self._selected(ranks[None])
        return float(self.problem.criterion.gap_of(selected, self.cells)[0])

    @property
    def _loosest(self) -> float:
        """A tolerance at which only demands with scale 0 limit anything."""
        scales = [demand.scale for demand in self.demands if demand.scale]
        return float(max([1, *(ceil(1 / scale) for scale in scales)]))

    @cached_property
    def least(self) -> Indices:
        """(K,) the best ranks at the smallest tolerance that any thresholds reach."""
        low, best = 0.0, self.answer(self._loosest)
        if best is None:  # all rows have one score, and the same decision is no answer
            return np.array([values.argmax() for values in self._values()])
        found = self.answer(0.0)
        if found is not None:
            return found
        high = self.gap_at(best)
        undecided = 0
        while high - low > FINE and undecided < MAX_UNDECIDED:
            middle = low + (high - low) / 2
            found = self.answer(middle)
            if found is None:
                low, undecided = middle, undecided + (middle in self.unproved)
            else:
                best, high = found, min(self.gap_at(found), middle)
        return best

    def _require_a_solution(self) -> None:
        """Raise if no thresholds meet the demands at any tolerance."""
        criterion = self.problem.criterion
        floors = [d for d in criterion.demands if d.spread in ("minimum", "maximum")]
        if not floors or self.answer(self._loosest) is not None:
            return
        names = " and ".join(demand.name for demand in criterion.demands)
        budget = "" if self.problem.budget is None else " within the budget"
        raise InvalidInputError(
            "criterion",
            "have demands that some group thresholds meet together",
            given=f"{names}, which none meets{budget}{self._conflict()}",
            hint="Lower a minimum, raise a maximum, or drop a demand.",
        )

    def _conflict(self) -> str:
        """Name a group whose own minimum and maximum rates contradict each other."""
        for name, over, under in zip(self.names, *self._group_bounds(), strict=True):
            if not np.any(over & under):
                return f" (in group {name!r} alone they contradict each other)"
        return ""

    def _group_bounds(self) -> tuple[list[Mask], list[Mask]]:
        """Return, for each group, which ranks meet all minimum rates and all maximum rates."""
        demands = self.demands
        masks: dict[str, list[Mask]] = {"minimum": [], "maximum": []}
        for spread, groups in masks.items():
            for a, scores in enumerate(self.group_scores):
                mask = np.ones(scores.last_rank + 1, np.bool_)
                for demand, (over, under) in zip(demands, self._rates, strict=True):
                    if demand.spread == spread:
                        with np.errstate(invalid="ignore", divide="ignore"):
                            rates = over[a] / under[a]
                        limit = float(demand.bound(exact(1.0)))
                        mask &= (rates >= limit) if spread == "minimum" else (rates <= limit)
                groups.append(mask)
        return masks["minimum"], masks["maximum"]

    # ---- operating points ----------------------------------------------------------------------

    def choose(self, tolerances: Floats) -> tuple[PointTable, Mask]:
        """Return the best point at each tolerance, and whether the tolerance is reached."""
        feasible = np.ones(len(tolerances), np.bool_)
        if self.problem.randomize is not None:
            return self._lottery_table(tolerances), feasible
        ranks = np.empty((len(tolerances), len(self.group_scores)), np.intp)
        for i in np.argsort(-tolerances, kind="stable"):
            found = self.answer(float(tolerances[i]))
            feasible[i] = found is not None
            ranks[i] = self.least if found is None else found
        return self.table(tolerances, ranks, feasible), feasible

    def table(self, tolerances: Floats, ranks: Indices, feasible: Mask | None = None) -> PointTable:
        """Return points with these ranks, (s, K), found at these tolerances."""
        thresholds, selected = self.thresholds(ranks), self._selected(ranks)
        gap = self.problem.criterion.gap_of(selected, self.cells)
        if feasible is not None:  # a scaled gap may be rounded up
            gap = np.where(feasible, np.minimum(gap, tolerances), gap)
        certifiable = np.zeros(len(gap), np.bool_)
        return PointTable(tolerances, gap, certifiable, thresholds, selected)

    def _selected(self, ranks: Indices) -> Counts:
        """Return the selected rows at ranks, (s, C, K)."""
        columns = [s.selected.take(ranks[:, a], axis=1).T for a, s in enumerate(self.group_scores)]
        return np.stack(columns, axis=2)

    def thresholds(self, ranks: Indices) -> Floats:
        """Return thresholds that select these ranks, (s, K), between scores if possible."""
        return self.place(ranks, self._targets(ranks))

    def _targets(self, ranks: Indices) -> Floats:
        """Return what thresholds are, if they select these ranks: those without demands."""
        by_label = self.cells.reshape(-1, self.n_labels, len(self.group_scores)).sum(axis=(0, 2))
        natural = (
            self.problem.objective.threshold(*by_label.tolist()) if self.n_labels == 2 else 0.0
        )
        return np.full(ranks.shape, np.nan if natural is None else natural)

    def place(self, ranks: Indices, targets: Floats) -> Floats:
        """Return the thresholds closest to targets, (s, K), that select these ranks."""
        above, below = np.empty(ranks.shape), np.empty(ranks.shape)
        for a, scores in enumerate(self.group_scores):
            above[:, a], below[:, a] = (
                scores.above.take(ranks[:, a]),
                scores.below.take(ranks[:, a]),
            )
        with np.errstate(invalid="ignore"):  # between infinite scores
            return place_thresholds(targets, below, above, self.dtype)

    @cached_property
    def _listed(self) -> PointTable:
        top = self.gap_at(self.unconstrained) if self.problem.randomize is None else 1.0
        grid = np.linspace(min(top, 1.0), 0.0, N_LISTED)
        table, feasible = self.choose(grid)
        kept = np.flatnonzero(feasible)
        if not feasible.all():
            kept = np.append(kept, np.flatnonzero(~feasible)[0])  # the smallest gap
        different = np.ones(len(kept), np.bool_)
        rules = table.read(kept)[0]
        different[1:] = (rules[1:] != rules[:-1]).any(axis=1)
        return table.tabulate(kept[different])

    @property
    def gap(self) -> Floats:  # type: ignore[override]
        """(S,) gaps of the listed points."""
        return self._listed.gap

    @property
    def setting(self) -> Floats:
        """(S,) the tolerance that each listed point was found at."""
        return self._listed.setting

    @property
    def certifiable(self) -> Mask:
        """(S,) none: a search looks at the rows."""
        return self._listed.certifiable

    def read(self, points: Indices) -> tuple[Floats, Counts]:
        """Return thresholds and selected rows of listed points."""
        return self._listed.read(points)

    def take(self, points: Indices) -> PointTable:
        """Return some of the listed points as a table."""
        return self._listed.tabulate(points)

    # ---- lotteries and bounds ------------------------------------------------------------------

    def lottery(self, tolerance: float) -> Lottery | None:
        """Return the best mixture of thresholds, which meets the demands in expectation."""
        total = None if self.problem.budget is None else self._total()
        return solve_lottery(self._values(), self._limits(tolerance), total)

    def _lottery_table(self, tolerances: Floats) -> PointTable:
        lotteries = []
        for tolerance in tolerances.tolist():
            found = self.lottery(tolerance)
            if found is None:
                raise InvalidInputError(
                    "tolerance",
                    f"be one that a lottery reaches for {self.criterion.name}",
                    given=tolerance,
                )
            lotteries.append(found)
        size = max(lottery.ranks.shape[1] for lottery in lotteries)
        n_groups = len(self.group_scores)
        ranks = np.zeros((len(lotteries), n_groups, size), np.intp)
        weights = np.zeros((len(lotteries), n_groups, size))
        for i, lottery in enumerate(lotteries):
            width = lottery.ranks.shape[1]
            ranks[i, :, :width], weights[i, :, :width] = lottery.ranks, lottery.weights
        flat = np.moveaxis(ranks, 2, 0).reshape(-1, n_groups)
        mixed = np.moveaxis(self.thresholds(flat).reshape(size, -1, n_groups), 0, 2)
        counts = self._selected(flat).reshape(size, len(lotteries), -1, n_groups)
        selected = np.einsum("mick,ikm->ick", counts, weights)
        gap = self.problem.criterion.gap_of(selected, self.cells.astype(np.float64))
        main = np.take_along_axis(mixed, weights.argmax(axis=2)[:, :, None], 2)[:, :, 0]
        none = np.zeros(len(gap), np.bool_)
        gap = np.minimum(gap, tolerances)  # up to the precision of the linear program
        return PointTable(tolerances, gap, none, main, selected, (mixed, weights))

    def bound(self, tolerance: float) -> float | None:
        """Return the best expected value of any mixture of thresholds within a tolerance."""
        budget = self.problem.budget
        if self.problem.objective.name == "f1" or self.problem.rising:
            return None
        if budget is not None and budget.exact:
            return None
        if not all(demand.rate.fixed for demand in self.demands):
            return None
        constant = 0.0 if self.problem.objective.name == "utility" else self._terms.constant
        found = self.lottery(tolerance)
        return None if found is None else found.bound + constant

    def expected_value(self, thresholds: Floats) -> float:
        """Return the objective at thresholds, (K,), as it is maximized."""
        pairs = zip(self.group_scores, thresholds, strict=True)
        return self.value_at(np.array([int(scores.rank(t)) for scores, t in pairs]))


def _gain(scores: GroupScores) -> Floats:
    if scores.gain is None:
        raise InvalidInputError("utility", "be given for the objective 'utility'")
    return scores.gain
