"""Compare the dial with an enumeration of all threshold vectors on small random problems.

    python benchmarks/brute_force.py [--cases 30000] [--seed 0] [--quick]

Every case draws rows (two to four groups, ties, weights, strata), a criterion (any rate;
difference, ratio, minimum, maximum; combinations with their own tolerances), an objective, a
budget, and whether thresholds may only fall. It asks ``sweep(...)`` for some tolerances and
enumerates all vectors of group thresholds. Whole-number counts are compared in integers, others up
to 1e-9. The table shows how many answers break a demand, are worse than the best vector, or are
called infeasible although a vector meets the demands.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from common import machine, table
from numpy.typing import NDArray

from fairdial import Budget, Costs, Criterion, Frontier, InvalidInputError, Point, sweep
from fairdial.core.demands import Demand, find_rate
from fairdial.core.searched import SearchedPoints
from fairdial.core.threshold_path import ThresholdPath

Array = NDArray[Any]
BLOCK = 1_000  # cases between two lines of progress
CLOSE = 1e-9  # differences of values, and of rates of weights that aren't whole numbers
CRITERIA = {
    "demographic_parity": ("selection_rate",),
    "equal_opportunity": ("true_positive_rate",),
    "predictive_equality": ("false_positive_rate",),
    "equalized_odds": ("true_positive_rate", "false_positive_rate"),
    "false_negative_rate_parity": ("false_negative_rate",),
    "accuracy_parity": ("accuracy",),
    "predictive_parity": ("precision",),
    "false_omission_rate_parity": ("false_omission_rate",),
}
RATES = (
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "false_negative_rate",
    "true_negative_rate",
    "accuracy",
    "precision",
    "false_omission_rate",
)
MAPPED = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
LEVELS = (0.1, 0.25, 0.5, 0.6, 0.8)
SIZES = {2: 7, 3: 5, 4: 3}  # distinct scores of a group, at most


@dataclass(frozen=True)
class Line:
    """A demand, written down independently of the library."""

    rate: str
    spread: str
    scale: Fraction = Fraction(1)
    level: Fraction = Fraction(0)


@dataclass
class Case:
    """Rows, the arguments of ``sweep``, and what they mean."""

    logits: Array
    groups: Array
    y: Array
    weights: Array | None
    strata: Array | None
    lines: list[Line]
    options: dict[str, Any]
    tolerances: list[float]
    utility: Array | None = None
    kind: str = ""
    objective: str = "accuracy"
    costs: tuple[float, float] = (1.0, 1.0)
    budget: tuple[float, bool] | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether counts are whole numbers."""
        return self.weights is None or self.weights.dtype.kind == "i"


# ---- drawing -----------------------------------------------------------------------------------


def draw_rows(rng: np.random.Generator) -> dict[str, Any]:
    """Draw groups in which each stratum has rows with both labels."""
    n_groups = int(rng.integers(2, 5))
    n_strata = int(rng.choice([1, 1, 1, 2]))
    ties = rng.random() < 0.5
    logits, groups, y, strata = [], [], [], []
    for group in range(n_groups):
        size = int(rng.integers(2, SIZES[n_groups] + 1))
        values = rng.normal(rng.normal(), 1.5, size)
        if ties:
            values = np.round(values * 2) / 2
        n = max(size, 2 * n_strata) + int(rng.integers(0, 4))
        picked = rng.choice(values, n)
        labels = np.append(np.tile([0, 1], n_strata), rng.integers(0, 2, n - 2 * n_strata))
        within = np.append(np.repeat(np.arange(n_strata), 2), rng.integers(0, n_strata, n))[:n]
        logits.append(picked)
        groups.append(np.full(n, group))
        y.append(labels)
        strata.append(within)
    rows = {"logits": logits, "groups": groups, "y": y, "strata": strata}
    found: dict[str, Any] = {name: np.concatenate(parts) for name, parts in rows.items()}
    n_rows = len(found["y"])
    weights = None
    kind = rng.random()
    if kind < 0.25:
        weights = rng.integers(1, 5, n_rows)
    elif kind < 0.4:
        weights = rng.uniform(0.2, 3.0, n_rows)
    found["weights"] = weights
    if n_strata == 1:
        found["strata"] = None
    return found


def draw_criterion(rng: np.random.Generator) -> tuple[str, Any, list[Line]]:
    """Draw a criterion: its kind, the argument of ``sweep``, and its lines."""
    kind = str(rng.choice(["one", "one", "ratio", "list", "mapping", "limits", "own"]))
    if kind in ("one", "ratio"):
        name = str(rng.choice(list(CRITERIA)))
        spread = "difference" if kind == "one" else "ratio"
        text = name if kind == "one" else f"{name}_ratio"
        return kind, text, [Line(rate, spread) for rate in CRITERIA[name]]
    if kind == "own":
        rates, spreads = rng.choice(RATES, 2), rng.choice(["difference", "ratio", "minimum"], 2)
        lines = [
            Line(str(rate), str(spread), Fraction(int(rng.integers(1, 4)), 2), Fraction(1, 2))
            for rate, spread in zip(rates, spreads, strict=True)
        ]
        demands = tuple(
            Demand(find_rate(line.rate), line.spread, line.scale, 0.5)  # type: ignore[arg-type]
            for line in lines
        )
        return kind, Criterion("own", demands), lines
    names = [str(name) for name in rng.choice(list(CRITERIA), int(rng.integers(1, 4)))]
    names = list(dict.fromkeys(names))
    if kind == "mapping":
        given = {name: float(rng.choice(MAPPED)) for name in names}
        largest = max(given.values())
        return (
            kind,
            given,
            [
                Line(rate, "difference", Fraction(str(share)) / Fraction(str(largest)))
                for name, share in given.items()
                for rate in CRITERIA[name]
            ],
        )
    parts: list[str] = []
    lines = []
    if kind == "list":
        parts = [name + str(rng.choice(["", "_ratio"])) for name in names]
        lines = [
            Line(rate, "ratio" if part.endswith("_ratio") else "difference")
            for name, part in zip(names, parts, strict=True)
            for rate in CRITERIA[name]
        ]
    for _ in range(int(rng.integers(0 if parts else 1, 3))):
        rate, level = str(rng.choice(RATES)), float(rng.choice(LEVELS))
        least = bool(rng.random() < 0.5)
        parts.append(f"{rate}{'>=' if least else '<='}{level}")
        spread = "minimum" if least else "maximum"
        lines.append(Line(rate, spread, Fraction(0), Fraction(str(level))))
    return kind, "+".join(parts) if rng.random() < 0.5 else parts, lines


def draw_case(rng: np.random.Generator) -> Case:
    """Draw rows, a criterion, an objective and the rest."""
    rows = draw_rows(rng)
    kind, given, lines = draw_criterion(rng)
    options: dict[str, Any] = {"criterion": given, "nested": False}
    if rng.random() < 0.1:
        options["nested"] = None
    if rng.random() < 0.4:
        options["value"] = "labels"
    if rng.random() < 0.2:
        options["rising"] = True
    n_rows = len(rows["y"])
    case = Case(**rows, lines=lines, options=options, tolerances=[], kind=kind)
    choice = str(
        rng.choice(["accuracy", "accuracy", "costs", "balanced_accuracy", "f1", "utility"])
    )
    case.objective = choice
    if choice == "costs":
        case.costs = float(rng.integers(1, 4)), float(rng.integers(1, 6))
        options["objective"] = Costs(*case.costs)
    elif choice == "utility":
        case.utility = options["utility"] = rng.normal(size=n_rows)
        options.pop("value", None)
    else:
        options["objective"] = choice
    if rng.random() < 0.35:
        case.budget = float(rng.choice([0.1, 0.25, 0.3, 0.5, 0.75])), bool(rng.random() < 0.4)
        options["budget"] = Budget(*case.budget) if case.budget[1] else case.budget[0]
    options["sample_weight"] = case.weights
    if case.strata is not None:
        options["control_features"] = np.array(["u", "v"])[case.strata]
    case.tolerances = [float(rng.choice([0.0, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 1.0]))]
    case.tolerances.append(round(float(rng.random()), 3))
    return case


# ---- enumerating -------------------------------------------------------------------------------


class Enumeration:
    """All vectors of group thresholds of a case: counts, demands and values."""

    def __init__(self, case: Case) -> None:
        self.case = case
        n_groups = int(case.groups.max()) + 1
        weights = np.ones(len(case.y), np.int64) if case.weights is None else case.weights
        strata = np.zeros(len(case.y), np.intp) if case.strata is None else case.strata
        self.n_strata = int(strata.max()) + 1
        eta = 1 / (1 + np.exp(-case.logits))
        by_rank, hits = [], []
        for group in range(n_groups):
            rows = np.flatnonzero(case.groups == group)
            cuts = [np.inf, *np.unique(case.logits[rows])[::-1]]
            chosen = [rows[case.logits[rows] >= cut] for cut in cuts]
            by_rank.append(
                [_cells(case.y[r], strata[r], weights[r], self.n_strata) for r in chosen]
            )
            hits.append([_hits(case, r, weights, eta) for r in chosen])
        sizes = [range(len(part)) for part in by_rank]
        self.ranks = np.array(list(itertools.product(*sizes)))  # (V, K)
        self.selected = np.stack(
            [np.array(part)[self.ranks[:, a]] for a, part in enumerate(by_rank)], axis=-1
        )  # (V, S, 2, K)
        self.totals = np.stack([np.array(part)[-1] for part in by_rank], axis=-1)  # (S, 2, K)
        summed = sum(np.array(part)[self.ranks[:, a]] for a, part in enumerate(hits))  # (V, 2)
        self.n_selected = self.selected.sum(axis=(1, 2, 3))
        negatives, positives = (float(self.totals[:, label].sum()) for label in (0, 1))
        self.value = _value(case, summed, negatives, positives)
        self.affordable = np.ones(len(self.ranks), np.bool_)
        if case.budget is not None:
            total = self.totals.sum()
            most = Fraction(str(case.budget[0])) * (int(total) if case.whole else Fraction(total))
            self.affordable = np.array([Fraction(n) <= most for n in self.n_selected.tolist()])

    def parts(self, line: Line, stratum: int) -> tuple[Array, Array]:
        """Return numerators and denominators of a rate, (V, K)."""
        (s0, s1), (n0, n1) = self.selected[:, stratum].swapaxes(0, 1), self.totals[stratum]
        r0, r1 = n0 - s0, n1 - s1
        return {
            "selection_rate": (s0 + s1, s0 * 0 + n0 + n1),
            "true_positive_rate": (s1, s1 * 0 + n1),
            "false_positive_rate": (s0, s0 * 0 + n0),
            "false_negative_rate": (r1, s1 * 0 + n1),
            "true_negative_rate": (r0, s0 * 0 + n0),
            "accuracy": (s1 + r0, s0 * 0 + n0 + n1),
            "precision": (s1, s0 + s1),
            "false_omission_rate": (r1, r0 + r1),
        }[line.rate]

    def holds(self, tolerance: float, slack: float = 0.0) -> Array:
        """Return which vectors meet all demands, (V,); ``slack`` widens limits of real weights."""
        held = self.affordable.copy()
        room = Fraction(str(tolerance))
        for line, stratum in itertools.product(self.case.lines, range(self.n_strata)):
            over, under = self.parts(line, stratum)
            held &= _holds(line, over, under, room, slack, self.case.whole)
        return held

    def lexicographic(self, allowed: Array) -> Array:
        """Return the allowed vectors that an exact budget leaves: those that select the most."""
        if self.case.budget is None or not self.case.budget[1] or not allowed.any():
            return allowed
        most = self.n_selected[allowed].max()
        slack = 0 if self.case.whole else 10 * CLOSE * most
        return allowed & (self.n_selected >= most - slack)

    def unconstrained(self) -> Array:
        """Return the best vectors without demands, within the budget."""
        allowed = self.lexicographic(self.affordable)
        return self.ranks[allowed & (self.value >= self.value[allowed].max() - CLOSE)]

    def find(self, ranks: Array) -> int:
        """Return the index of a vector."""
        return int(np.flatnonzero((self.ranks == ranks).all(axis=1))[0])


def _cells(y: Array, strata: Array, weights: Array, n_strata: int) -> list[list[Any]]:
    """Return the weights of rows by stratum and label."""
    return [[weights[(y == v) & (strata == s)].sum() for v in (0, 1)] for s in range(n_strata)]


def _hits(case: Case, rows: Array, weights: Array, eta: Array) -> tuple[float, float]:
    """Return true and false positives of rows, or their utility."""
    if case.utility is not None:
        return float((case.utility[rows] * weights[rows]).sum()), 0.0
    good = case.y[rows] if case.options.get("value") == "labels" else eta[rows]
    return float((good * weights[rows]).sum()), float(((1 - good) * weights[rows]).sum())


def _value(case: Case, hits: Array, negatives: float, positives: float) -> Array:
    true, false = hits.T
    n = negatives + positives
    if case.objective == "utility":
        return np.asarray(true / n)
    if case.objective == "balanced_accuracy":
        return np.asarray((true / positives + 1 - false / negatives) / 2)
    if case.objective == "f1":
        return np.asarray(2 * true / (true + false + positives))
    fp, fn = case.costs
    if case.objective == "costs":
        return np.asarray(-(fp * false + fn * (positives - true)) / n)
    return np.asarray((true + negatives - false) / n)


def _holds(
    line: Line, over: Array, under: Array, room: Fraction, slack: float, whole: bool
) -> Array:
    """Return whether one demand holds, (V,); groups without eligible rows aren't compared."""
    known = under > 0
    if line.spread in ("minimum", "maximum"):
        least = line.spread == "minimum"
        bound = line.level - line.scale * room if least else line.level + line.scale * room
        if not whole:
            with np.errstate(invalid="ignore", divide="ignore"):
                rate = over / under
            limit = float(bound)
            kept = rate >= limit - slack if least else rate <= limit + slack
        else:
            left, right = over * bound.denominator, under * bound.numerator
            kept = left >= right if least else left <= right
        return np.asarray((kept | ~known).all(axis=1))
    bound = line.scale * room if line.spread == "difference" else 1 - line.scale * room
    held = np.ones(len(over), np.bool_)
    for a, b in itertools.permutations(range(over.shape[1]), 2):  # a is higher
        both = known[:, a] & known[:, b]
        if not whole:
            with np.errstate(invalid="ignore", divide="ignore"):
                high, low = over[:, a] / under[:, a], over[:, b] / under[:, b]
            difference = line.spread == "difference"
            excess = high - low - float(bound) if difference else float(bound) * high - low
            kept = excess <= slack
        elif line.spread == "difference":
            apart = over[:, a] * under[:, b] - over[:, b] * under[:, a]
            kept = apart * bound.denominator <= bound.numerator * under[:, a] * under[:, b]
        else:
            low, high = over[:, b] * under[:, a], over[:, a] * under[:, b]
            kept = low * bound.denominator >= bound.numerator * high
        held &= kept | ~both
    return held


# ---- comparing ---------------------------------------------------------------------------------


def check(case: Case) -> Counter[str]:
    """Return what was found: answers, and the faults among them, which the case lists."""
    found: Counter[str] = Counter()
    every = Enumeration(case)
    try:
        frontier = sweep(case.logits, case.groups, case.y, min_count=1, **case.options)
        points = frontier.at(case.tolerances)
    except InvalidInputError as error:
        found["refused"] += 1
        starts = every.unconstrained() if case.options.get("rising") else [every.ranks[0]]
        held = every.holds(1.0, -CLOSE)
        possible = all((held & (every.ranks >= start).all(axis=1)).any() for start in starts)
        if error.argument != "criterion" or possible:
            _fault(case, found, "false infeasible", f"refused: {error}")
        return found
    path = frontier.points
    searched = path.searched if isinstance(path, ThresholdPath) else path
    assert isinstance(searched, SearchedPoints)
    above = np.ones(len(every.ranks), np.bool_)
    if case.options.get("rising"):
        lowest = searched.unconstrained
        above = (every.ranks >= lowest).all(axis=1)
        if not any((lowest == best).all() for best in every.unconstrained()):
            _fault(case, found, "suboptimal", "unconstrained")
    for point in points:
        found["answers"] += 1
        pairs = zip(searched.group_scores, point.thresholds, strict=True)
        own = every.find(np.array([int(scores.rank(t)) for scores, t in pairs]))
        _check_point(case, every, frontier, point, own, above, found)
    return found


def _check_point(
    case: Case,
    every: Enumeration,
    frontier: Frontier,
    point: Point,
    own: int,
    above: Array,
    found: Counter[str],
) -> None:
    """Compare a point, which is vector ``own``, with all vectors that are ``above`` a limit."""
    slack = 0.0 if case.whole else CLOSE
    meets = above & every.holds(point.tolerance, -slack)
    where = f"tolerance {point.tolerance}, ranks {every.ranks[own]}"
    if not np.allclose(point.selected_cells.reshape(every.totals.shape), every.selected[own]):
        _fault(case, found, "violations", f"counts differ, {where}")
    expected = point.expected_value
    if expected is None or abs(expected - every.value[own]) > CLOSE:
        _fault(case, found, "violations", f"reported value {expected}, {where}")
        return
    if isinstance(frontier.points, ThresholdPath):  # the same decision for everybody is no answer
        n_selected = every.selected.sum(axis=tuple(range(1, every.selected.ndim)))
        constant = np.isclose(n_selected, 0) | np.isclose(n_selected, every.totals.sum())
        meets &= ~constant
        above = above & ~constant
    if not point.feasible:
        found["infeasible"] += 1
        if isinstance(frontier.points, ThresholdPath) and not frontier.points.is_beyond(
            np.array([point.tolerance])
        ):
            return  # less than one row
        smaller = round(point.gap - 1e-6, 9)
        if meets.any():
            _fault(case, found, "false infeasible", where)
        elif smaller > 0 and (above & every.holds(smaller, -slack)).any():
            _fault(case, found, "suboptimal", f"not the smallest gap, {where}")
        return
    if isinstance(frontier.points, ThresholdPath):
        above[own] = True  # the path may end there
    if not (every.holds(point.tolerance, slack)[own] and above[own]):
        _fault(case, found, "violations", where)
    if point.gap > point.tolerance:
        _fault(case, found, "violations", f"reported gap {point.gap}, {where}")
    if isinstance(frontier.points, ThresholdPath):
        return  # nested: close to the best, not always the best
    meets[own] = True
    best = every.lexicographic(meets)
    if not best[own] or every.value[own] < every.value[best].max() - CLOSE:
        _fault(case, found, "suboptimal", f"{where}, value {every.value[own]}")
    levels = any(line.spread == "minimum" and line.scale for line in case.lines)
    if case.whole and not levels:  # gaps are exact: the point is within its own gap
        again = frontier.at(point.gap)
        if not again.feasible or abs(again.expected_value - expected) > CLOSE:
            _fault(case, found, "violations", f"not the answer to its own gap, {where}")


def _fault(case: Case, found: Counter[str], kind: str, text: str) -> None:
    found[kind] += 1
    case.faults.append(f"{kind}: {text}")


def describe(case: Case, seed: int) -> str:
    """Return a case with faults, to be repeated."""
    options = {k: v for k, v in case.options.items() if not isinstance(v, np.ndarray)}
    if isinstance(options["criterion"], Criterion):
        options["criterion"] = [(str(line.scale), line.rate, line.spread) for line in case.lines]
    return f"seed {seed}: {'; '.join(case.faults)} | {options}, whole {case.whole}"


def run(seeds: Iterator[int] | range) -> tuple[dict[str, Counter[str]], list[str]]:
    """Check the cases of some seeds; return what was found by kind of criterion, and faults."""
    found: dict[str, Counter[str]] = {}
    faults = []
    for seed in seeds:
        case = draw_case(np.random.default_rng(seed))
        tally = found.setdefault(case.kind, Counter())
        tally["cases"] += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tally += check(case)
        except Exception:
            tally["errors"] += 1
            case.faults.append(traceback.format_exc(limit=-3))
        if case.faults:
            faults.append(describe(case, seed))
    return found, faults


COLUMNS = (
    "cases",
    "answers",
    "infeasible",
    "refused",
    "violations",
    "suboptimal",
    "false infeasible",
    "errors",
)


def main() -> None:
    """Run the cases and print the table and the first faults."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--quick", action="store_true", help="a few cases")
    given = parser.parse_args()
    size = 200 if given.quick else given.cases
    print(machine(("numpy", "fairdial")))
    found: dict[str, Counter[str]] = {}
    faults: list[str] = []
    for start in range(given.seed, given.seed + size, BLOCK):
        part, more = run(range(start, min(start + BLOCK, given.seed + size)))
        for kind, tally in part.items():
            found[kind] = found.get(kind, Counter()) + tally
        faults += more
        done = sum(tally["cases"] for tally in found.values())
        print(f"{done:,} cases, {len(faults)} with faults", file=sys.stderr, flush=True)
    total = sum(found.values(), Counter())
    lines = [[kind, *(f"{found[kind][c]:,}" for c in COLUMNS)] for kind in sorted(found)]
    lines.append(["all", *(f"{total[c]:,}" for c in COLUMNS)])
    print(table(["criterion", *COLUMNS], lines))
    for fault in faults[:20]:
        print(fault)
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
