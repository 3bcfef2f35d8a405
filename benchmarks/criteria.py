"""Time equalized odds and the other criteria of the dial beside the libraries that have them.

One process, one thread, CPU time, the same scores for all:

    python benchmarks/criteria.py [--rows 1000000] [--baseline SRC] [--record FILE] [--quick]

All libraries answer the same ten tolerances of equalized odds. fairdial answers them from a full
sort, after which every other tolerance is a search on the same sorted scores, and from a histogram
if the tolerances are given beforehand. The peers fit once per tolerance. fairlearn has no tolerance
for equalized odds, so that its ten fits are alike: one of them is timed and multiplied.

``--baseline`` is the ``src`` folder of another version, whose one-rate criteria are timed in turn
with those of this one. ``--record`` stores all numbers with the commit and the versions.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    TWO_GROUPS,
    Goal,
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
from dial import PACKAGES, TOLERANCES, many_groups, ten_answers
from numpy.typing import NDArray
from peers import MISSING, PEERS, Fairlearn, Peer, quiet
from threadpoolctl import threadpool_limits

from fairdial import sweep
from fairdial.bench.store import command_line, environment

CRITERION = "equalized_odds"
ONE_RATE = ("demographic_parity", "equal_opportunity", "predictive_equality")
MANY = 20  # groups
TURNS = 5  # of the baseline and this version


# ---- answers on the calibration rows ---------------------------------------------------------


def odds_gap(selected: NDArray[np.bool_], rows: Rows) -> float:
    """Return the larger of the gaps of true and false positive rates."""
    cells = rows.groups.astype(np.intp) * 2 + rows.y
    rates = np.bincount(cells, selected) / np.bincount(cells)
    return float(max(np.ptp(rates[0::2]), np.ptp(rates[1::2])))


def judge(decide: Callable[[float], NDArray[np.bool_]], rows: Rows) -> dict[str, Any]:
    """Count how often a rule keeps its tolerance on the calibration rows, and its accuracy."""
    gaps, accuracies = [], []
    for tolerance in TOLERANCES.tolist():
        selected = decide(tolerance)
        gaps.append(odds_gap(selected, rows))
        accuracies.append(float(np.mean(selected == (rows.y == 1))))
    return {"gaps": gaps, "accuracies": accuracies}


# ---- two groups, all libraries ---------------------------------------------------------------


def sorted_answers(rows: Rows) -> Any:
    """Return ten answers by a full sort and a search for each."""
    return sweep(rows.logits, rows.groups, rows.y, criterion=CRITERION).at(TOLERANCES)


def histogram_answers(rows: Rows) -> Any:
    """Return ten answers by a histogram that is opened where the answers are."""
    frontier = sweep(rows.logits, rows.groups, rows.y, criterion=CRITERION, tolerances=TOLERANCES)
    return frontier.at(TOLERANCES)


OURS = {"fairdial, sort": sorted_answers, "fairdial, histogram": histogram_answers}


def ten_fits(peer: Peer) -> dict[float, Any]:
    """Return the fitted rule of a peer for each tolerance."""
    return {tolerance: peer.fit(tolerance) for tolerance in TOLERANCES.tolist()}


def compare(
    rows: Rows, repeats: int, peer_repeats: int
) -> tuple[dict[str, Timing], dict[str, dict[str, Any]], dict[str, str]]:
    """Time ten answers of everyone; return timings, answers and remarks."""
    timings, answers, remarks = {}, {}, {}
    for name, call in OURS.items():
        timings[name] = cpu_time(partial(call, rows), repeats)
        thresholds = dict(zip(TOLERANCES.tolist(), call(rows).thresholds, strict=True))
        answers[name] = judge(lambda d, t=thresholds: rows.logits > t[d][rows.groups], rows)
        remarks[name] = f"minimum of {repeats} runs"
    for kind in PEERS:
        if not kind.installed():
            remarks[kind.name] = MISSING
            continue
        importlib.import_module(kind.module)  # importing isn't timed
        peer, fitted = kind(rows, CRITERION), {}
        if kind is Fairlearn:  # ten equal fits
            one = cpu_time(partial(peer.run, 0.0), 1)
            timings[kind.name] = Timing(10 * one.seconds, 1)
            fitted = dict.fromkeys(TOLERANCES.tolist(), peer.fitted)
            remarks[kind.name] = "strict; one fit, times ten"
        else:
            timings[kind.name] = cpu_time(
                lambda p=peer, f=fitted: f.update(ten_fits(p)), peer_repeats
            )
            remarks[kind.name] = f"minimum of {timings[kind.name].runs} runs"
        answers[kind.name] = judge(lambda d, p=peer, f=fitted: p.decisions(f[d]), rows)
    return timings, answers, remarks


def answer_cells(found: dict[str, Any]) -> list[str]:
    """Return how often the tolerance is kept, the largest excess and the mean accuracy."""
    excess = np.array(found["gaps"]) - TOLERANCES
    kept = int((excess <= 0).sum())
    return [
        f"{kept} of {len(excess)}",
        f"{excess.max():+.4f}",
        f"{np.mean(found['accuracies']):.4f}",
    ]


# ---- many groups -----------------------------------------------------------------------------


def after_sorting(rows: Rows, repeats: int) -> tuple[float, float]:
    """Return the CPU seconds of sorting, and of ten searches after it."""
    sorting, searching = [], []
    for _ in range(repeats):  # a frontier keeps its answers, so each is asked once
        made: list[Any] = []
        sorting.append(
            cpu_time(
                lambda m=made: m.append(
                    sweep(rows.logits, rows.groups, rows.y, criterion=CRITERION)
                ),
                1,
            ).seconds
        )
        searching.append(cpu_time(lambda m=made: m[0].at(TOLERANCES), 1).seconds)
    return min(sorting), min(searching)


# ---- one rate --------------------------------------------------------------------------------


def one_rate(rows: Rows, repeats: int) -> dict[str, float]:
    """Return the CPU seconds of ten answers for each criterion with one rate."""
    return {name: cpu_time(partial(ten_answers, rows, name), repeats).seconds for name in ONE_RATE}


def one_rate_by_version(baseline: Path | None, n: int, repeats: int) -> dict[str, dict[str, float]]:
    """Return the times of this version and of the baseline, in turns, each the minimum."""
    folders = {"this version": Path(sweep.__code__.co_filename).parents[2]}
    if baseline is not None:
        folders["baseline"] = baseline.resolve()
    script = [sys.executable, __file__, "--one-rate", "--rows", str(n), "--repeats", str(repeats)]
    best: dict[str, dict[str, float]] = {}
    for _ in range(TURNS if baseline is not None else 1):
        for name, folder in folders.items():
            variables = os.environ | {"PYTHONPATH": str(folder)}
            done = subprocess.run(script, env=variables, capture_output=True, text=True, check=True)
            found, so_far = json.loads(done.stdout), best.setdefault(name, {})
            best[name] = {k: min(v, so_far.get(k, v)) for k, v in found.items()}
    return best


# ---- the run ---------------------------------------------------------------------------------


def goals(
    timings: dict[str, Timing], searching: float, one: dict[str, dict[str, float]]
) -> list[Goal]:
    """Return the promised results."""
    ours = timings["fairdial, sort"].seconds

    def times(name: str) -> float | None:
        return timings[name].seconds / ours if name in timings else None

    found = [
        at_least("sort and ten searches against ten error-parity fits", times("error-parity"), 10),
        at_least("sort and ten searches against ten oxonfair fits", times("oxonfair"), 10),
        at_least("sort and ten searches against ten fairlearn fits", times("fairlearn"), 100),
        at_most(f"{MANY} groups, ten searches after sorting", searching * 1e3, 600, " ms"),
        at_most("histogram", timings["fairdial, histogram"].seconds * 1e3, 60, " ms"),
    ]
    if "baseline" in one:
        found += [
            at_most(f"{name} against the baseline", seconds / one["baseline"][name], 1.05, "x")
            for name, seconds in one["this version"].items()
        ]
    return found


def report(given: argparse.Namespace) -> None:
    """Measure, print, and store the record."""
    rng = np.random.default_rng(given.seed)
    n = given.rows
    print(machine(PACKAGES))
    rows = draw(TWO_GROUPS, n, rng)
    timings, answers, remarks = compare(rows, given.repeats, given.peer_repeats)
    print(f"\nEqualized odds, ten tolerances, {n:,} rows, two groups; CPU milliseconds:\n")
    lines = [
        [name, milliseconds(timings[name].seconds), *answer_cells(answers[name]), remark]
        if name in timings
        else [name, "", "", "", "", remark]
        for name, remark in remarks.items()
    ]
    head = ["rule", "ms", "tolerance kept", "largest excess", "mean accuracy", "timing"]
    print(table(head, lines))
    print("\nTolerances are kept or not on the calibration rows themselves.")

    many = draw(many_groups(), n, rng)
    sorting, searching = after_sorting(many, given.repeats)
    histogram = cpu_time(partial(histogram_answers, many), given.repeats).seconds
    print(f"\nEqualized odds, ten tolerances, {n:,} rows, {MANY} groups; CPU milliseconds:\n")
    cells = [milliseconds(seconds) for seconds in (sorting, searching, histogram)]
    print(
        table(["groups", "sorting", "ten searches after it", "histogram route"], [["20", *cells]])
    )

    one = one_rate_by_version(given.baseline, n, 6 * given.repeats)  # they take milliseconds
    print("\nOne rate, ten tolerances, two groups; CPU milliseconds:\n")
    lines = [[name, *(milliseconds(found[name]) for found in one.values())] for name in ONE_RATE]
    print(table(["criterion", *one], lines))

    verdicts = goals(timings, searching, one)
    show_goals(verdicts)
    if given.record is not None:
        record = {
            "command": command_line(),
            "environment": environment(),
            "machine": machine(PACKAGES),
            "rows": n,
            "tolerances": TOLERANCES.tolist(),
            "seconds": {name: timing.seconds for name, timing in timings.items()},
            "answers": answers,
            "many_groups": {"sorting": sorting, "searching": searching, "histogram": histogram},
            "one_rate": one,
            "goals": [asdict(goal) for goal in verdicts],
        }
        given.record.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**6, metavar="N")
    parser.add_argument("--repeats", type=int, default=5, help="runs, of which the minimum counts")
    parser.add_argument("--peer-repeats", type=int, default=2, help="runs of the peers' ten fits")
    parser.add_argument("--baseline", type=Path, metavar="SRC", help="another version's src folder")
    parser.add_argument("--record", type=Path, metavar="FILE", help="store the numbers as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one-rate", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="few rows, to check that it works")
    given = parser.parse_args(arguments)
    quiet()
    if given.quick:
        given.rows, given.repeats, given.peer_repeats = 210_000, 1, 1
    with threadpool_limits(1):
        if given.one_rate:
            rows = draw(TWO_GROUPS, given.rows, np.random.default_rng(given.seed))
            print(json.dumps(one_rate(rows, given.repeats)))
            return
        if given.quick:
            print("A quick run checks that the script works; its numbers mean nothing.\n")
        report(given)


if __name__ == "__main__":
    main()
