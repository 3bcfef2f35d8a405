"""Time the dial beside the libraries that a user would choose instead.

One process, minimum CPU time of several runs, the same scores for all:

    python benchmarks/dial.py [--rows 10000 100000 1000000 10000000] [--quick]

fairdial answers ten tolerances exactly; every peer answers one. Groups and labels are int8 (one
column shows the cost of int64), and each peer gets its own input format before timing. The last
table compares the results at one million rows with their goals.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from common import (
    TWO_GROUPS,
    Goal,
    Integers,
    Rows,
    Timing,
    at_least,
    at_most,
    cpu_time,
    draw,
    machine,
    milliseconds,
    show_goals,
    table,
)
from numpy.typing import NDArray
from peers import MISSING, PEERS, quiet
from threadpoolctl import threadpool_limits

from fairdial import Criterion, Frontier, Points, sweep
from fairdial.core.criteria import CRITERIA, DEMOGRAPHIC_PARITY
from fairdial.datasets import GaussianLaw

TOLERANCES = np.linspace(0.02, 0.20, 10)
TOLERANCE = 0.10  # of the peers' fits
RESOLUTION = 1e-5  # of the setting t in the bisection
MANY_GROUPS = 20
PACKAGES = ("fairdial", "numpy", "fairlearn", "oxonfair", "error-parity")


# ---- what is timed --------------------------------------------------------------------------


def ten_answers(rows: Rows, criterion: Criterion = DEMOGRAPHIC_PARITY) -> Points:
    """Return ten exact answers; above 200,000 rows, without sorting all of them."""
    frontier = sweep(rows.logits, rows.groups, rows.y, criterion=criterion, tolerances=TOLERANCES)
    return frontier.at(TOLERANCES)


def sorted_dial(rows: Rows) -> Points:
    """Return ten answers from all operating points, by a full sort."""
    return sweep(rows.logits, rows.groups, rows.y).at(TOLERANCES)


def mean(mask: NDArray[np.bool_]) -> float:
    """Return the share of true values, as usually written."""
    return float(mask.mean())


def counted_mean(mask: NDArray[np.bool_]) -> float:
    """Return the share of true values, in NumPy's fastest way."""
    return np.count_nonzero(mask) / len(mask)


def bisection(
    rows: Rows, share_of: Callable[[NDArray[np.bool_]], float] = mean
) -> list[tuple[float, float]]:
    """Return ten pairs of thresholds by the paper's bisection (alg:post-process, eq:thresh_new).

    For each tolerance a binary search on t; each step takes the share of each group's rows that
    are above its threshold (eq:ddp_general). The feasible end of the bracket is the answer.
    """
    scores = [rows.logits[rows.groups == a] for a in (0, 1)]
    share = [len(part) / len(rows) for part in scores]

    def thresholds(t: float) -> tuple[float, float]:
        return (
            -math.log((share[0] + t) / (share[0] - t)),
            -math.log((share[1] - t) / (share[1] + t)),
        )

    def disparity(t: float) -> float:
        low, high = (share_of(part > tau) for part, tau in zip(scores, thresholds(t), strict=True))
        return high - low

    unconstrained = disparity(0.0)
    sign = math.copysign(1.0, unconstrained)
    found = []
    for tolerance in TOLERANCES.tolist():
        outside, inside = 0.0, min(share) * (1.0 - 1e-12)
        if abs(unconstrained) <= tolerance:
            inside = 0.0
        while inside - outside > RESOLUTION:
            middle = (outside + inside) / 2.0
            if sign * disparity(sign * middle) <= tolerance:
                inside = middle
            else:
                outside = middle
        found.append(thresholds(sign * inside))
    return found


OURS: dict[str, Callable[[Rows], Any]] = {
    "fairdial": ten_answers,
    "fairdial, int64 columns": ten_answers,
    "fairdial, full sort": sorted_dial,
    "bisection": bisection,
    "bisection, tuned": lambda rows: bisection(rows, counted_mean),
}


def wide(rows: Rows) -> Rows:
    """Return the same rows with int64 groups and labels."""
    return Rows(rows.logits, rows.groups.astype(np.int64), rows.y.astype(np.int64))


# ---- the tables -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One row of the first table."""

    timings: dict[str, Timing]
    cells: dict[str, str]
    remarks: list[str]


def measure(rows: Rows, repeats: int, budget: float, peer_limit: int) -> Measured:
    """Time all methods on the same rows, and check their answers."""
    inputs = {"fairdial, int64 columns": wide(rows)}
    timings = {
        name: cpu_time(partial(call, inputs.get(name, rows)), repeats, budget)
        for name, call in OURS.items()
    }
    cells = {name: timing.cell for name, timing in timings.items()}
    remarks = [own_gaps(rows)]
    for kind in PEERS:
        if not kind.installed():
            cells[kind.name] = MISSING
        elif len(rows) > peer_limit:
            cells[kind.name] = "skipped (--peer-limit)"
        else:
            importlib.import_module(kind.module)  # importing isn't timed
            peer = kind(rows)
            timings[kind.name] = cpu_time(partial(peer.run, TOLERANCE), repeats, budget)
            cells[kind.name] = timings[kind.name].cell
            remarks.append(f"{peer.name} {peer.gap():.5f}")
    return Measured(timings, cells, remarks)


def selection_gap(decisions: NDArray[np.bool_], groups: Integers) -> float:
    """Return the gap of selection rates of these decisions."""
    counts = np.bincount(groups), np.bincount(groups[decisions], minlength=2)
    rates = counts[1] / counts[0]
    return float(rates.max() - rates.min())


def own_gaps(rows: Rows) -> str:
    """Return whether the answers keep their tolerances, counted row by row."""

    def room(thresholds: Iterable[Any]) -> list[float]:
        return [
            tolerance - selection_gap(rows.logits > np.take(tau, rows.groups), rows.groups)
            for tau, tolerance in zip(thresholds, TOLERANCES.tolist(), strict=True)
        ]

    ours, searched = room(ten_answers(rows).thresholds), room(bisection(rows))
    exceeded = sum(left < 0 for left in ours)
    kept = "keeps all ten" if not exceeded else f"EXCEEDS {exceeded} of ten"
    return (
        f"fairdial {kept}, at most {max(ours):.1e} below the tolerance "
        f"(bisection: {max(searched):.1e})"
    )


def goals(rows: Rows, measured: Measured, repeats: int, rng: np.random.Generator) -> list[Goal]:
    """Return the promised results for these rows."""
    ours = measured.timings["fairdial"].seconds

    def times(name: str) -> float | None:
        timing = measured.timings.get(name)
        return None if timing is None else timing.seconds / ours

    many = draw(many_groups(), len(rows), rng)
    twenty = cpu_time(lambda: ten_answers(many), repeats).seconds
    frontier = sweep(rows.logits, rows.groups, rows.y)
    further, thousand, applied = on_a_fitted_dial(frontier, rows, repeats)
    return [
        at_least("ten tolerances against one fairlearn fit", times("fairlearn"), 1000),
        at_least("ten tolerances against one oxonfair fit", times("oxonfair"), 40),
        at_least("ten tolerances against one error-parity fit", times("error-parity"), 40),
        at_least("ten tolerances against ten bisections", times("bisection"), 10),
        at_least("... with np.count_nonzero for mean()", times("bisection, tuned"), 10),
        at_most(f"{MANY_GROUPS} groups against two", twenty / ours, 4, "x"),
        at_most("a further tolerance on a fitted dial", further * 1e6, 50, " us"),
        at_most("a thousand tolerances in one call", thousand * 1e3, 1, " ms"),
        at_least("decisions against np.where of two comparisons", applied, 4),
    ]


def on_a_fitted_dial(frontier: Frontier, rows: Rows, repeats: int) -> tuple[float, float, float]:
    """Return seconds for one and for a thousand tolerances, and the speedup over np.where."""
    calls = 500
    tolerances = np.random.default_rng(0).uniform(0.01, 0.3, calls).tolist()
    further = (
        cpu_time(lambda: [frontier.at(tolerance) for tolerance in tolerances], repeats).seconds
        / calls
    )
    grid = np.linspace(0.001, 0.3, 1000)
    thousand = cpu_time(lambda: frontier.at(grid), repeats).seconds
    tau = frontier.at(TOLERANCE).thresholds
    logits, groups = rows.logits, rows.groups
    where = cpu_time(lambda: np.where(groups == 1, logits > tau[1], logits > tau[0]), repeats)
    decide = cpu_time(lambda: frontier.decide(logits, groups, TOLERANCE), repeats)
    return further, thousand, where.seconds / decide.seconds


def many_groups() -> GaussianLaw:
    """Return a law of twenty equal groups whose rates differ as much as those of two."""
    return GaussianLaw(
        shares=(1 / MANY_GROUPS,) * MANY_GROUPS,
        base_rates=tuple(np.linspace(0.3, 0.6, MANY_GROUPS).tolist()),
        separations=tuple(np.linspace(1.2, 1.5, MANY_GROUPS).tolist()),
    )


def other_criteria(rows: Rows, repeats: int) -> str:
    """Return the milliseconds of ten tolerances for each criterion."""
    parts = []
    for kind in CRITERIA:
        timing = cpu_time(partial(ten_answers, rows, kind), repeats)
        parts.append(f"{kind.name} {milliseconds(timing.seconds)} ms")
    return ", ".join(parts)


# ---- the run --------------------------------------------------------------------------------


def report(
    sizes: Sequence[int], goal_rows: int, repeats: int, budget: float, peer_limit: int, seed: int
) -> None:
    """Measure, and print the results."""
    rng = np.random.default_rng(seed)
    print(machine(PACKAGES))
    print(
        f"\nCPU milliseconds, minimum of up to {repeats} runs; fairdial and the bisection: "
        f"{len(TOLERANCES)} tolerances; the libraries: one fit for tolerance {TOLERANCE:g}.\n"
    )
    columns = [*OURS, *(kind.name for kind in PEERS)]
    lines, remarks, verdicts, criteria = [], [], None, ""
    for n in sorted({*sizes, goal_rows}):
        rows = draw(TWO_GROUPS, n, rng)
        measured = measure(rows, repeats, budget, peer_limit)
        lines.append([f"{n:,}", *(measured.cells[name] for name in columns)])
        remarks.append(f"- {n:,} rows: " + "; ".join(measured.remarks))
        if n == goal_rows:
            verdicts = goals(rows, measured, repeats, rng)
            criteria = other_criteria(rows, repeats)
    print(table(["rows", *columns], lines))
    print(f"\nGaps on the same rows (the libraries' for tolerance {TOLERANCE:g}):\n")
    print("\n".join(remarks))
    print(f"\nTen tolerances of each criterion at {goal_rows:,} rows: {criteria}.")
    show_goals(verdicts or [], f"Goals at {goal_rows:,} rows:")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows",
        type=lambda text: int(float(text)),
        nargs="+",
        default=[10**4, 10**5, 10**6, 10**7],
        metavar="N",
        help="numbers of rows; one million, for the goals, is always included",
    )
    parser.add_argument("--repeats", type=int, default=9, help="runs, of which the minimum counts")
    parser.add_argument(
        "--budget", type=float, default=20.0, help="seconds after which runs are not repeated"
    )
    parser.add_argument(
        "--peer-limit",
        type=lambda text: int(float(text)),
        default=10**6,
        metavar="N",
        help="rows above which the other libraries are not run (1e7: some minutes)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="few rows and runs, to check that it works"
    )
    given = parser.parse_args(arguments)
    quiet()
    with threadpool_limits(1):
        if given.quick:
            print("A quick run checks that the script works; its numbers mean nothing.\n")
            report([2_000], 210_000, 1, given.budget, 2_000, given.seed)
        else:
            report(given.rows, 10**6, given.repeats, given.budget, given.peer_limit, given.seed)


if __name__ == "__main__":
    main()
