"""Measure false alarms and the delay of the anytime-valid watch, and of a fixed window.

    python benchmarks/monitoring.py [--runs 100] [--rows 1000000] [--record FILE] [--quick]

Streams of decisions of two groups. Without drift, the gap is exactly at the tolerance of 0.05, the
worst case, and every row is a look. With drift, it jumps from 0.03 to 0.08. The window is the
exact interval of the gap on disjoint windows of rows (``gap_interval``), whose error probability is
divided by the number of windows, so that both have the same probability of a false alarm over the
whole stream.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import Floats, Integers, Report, machine

from fairdial.core.anytime import Watch
from fairdial.core.certificates import gap_interval

TOLERANCE, ALPHA, BASE = 0.05, 0.01, 0.2
CALM, JUMP = 0.03, 0.08
WINDOWS = (2_000, 10_000, 50_000)
PACKAGES = ("fairdial", "numpy")


def draw(
    gap: Floats, rng: np.random.Generator
) -> tuple[Integers, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Draw groups and decisions; the second group's rate is higher by the gap."""
    codes = rng.integers(0, 2, len(gap))
    return codes, rng.random(len(gap)) < BASE + gap * codes


def window_alarm(codes: Integers, selected: Integers, size: int, alpha: float) -> int | None:
    """Return the row at which a window first shows a gap above the tolerance."""
    for end in range(size, len(codes) + 1, size):
        part = slice(end - size, end)
        rows = np.bincount(codes[part], minlength=2)
        chosen = np.bincount(codes[part], selected[part], minlength=2).astype(int)
        if gap_interval(chosen.tolist(), rows.tolist(), 1 - alpha)[0] > TOLERANCE:
            return end
    return None


def report(shown: Report, runs: int, rows: int, seed: int) -> None:
    """Run the streams and print two tables."""
    print(machine(PACKAGES))
    false = dict.fromkeys(("watch", *WINDOWS), 0)
    for run in range(runs):
        stream = draw(np.full(rows, TOLERANCE), np.random.default_rng([seed, 0, run]))
        false["watch"] += Watch(2, TOLERANCE, ALPHA).update(*stream).alarm is not None
        for size in WINDOWS:
            found = window_alarm(*stream, size, ALPHA / max(rows // size, 1))
            false[size] += found is not None
    shown.show(
        f"False alarms in {runs} streams of {rows:,} rows, gap always 0.05, alpha {ALPHA:g}.",
        ["method", "false alarms"],
        ([_name(who), f"{count} of {runs}"] for who, count in false.items()),
    )
    delays: dict[str | int, list[float]] = {who: [] for who in false}
    calm = rows // 2
    for run in range(runs):
        gap = np.where(np.arange(rows) < calm, CALM, JUMP)
        stream = draw(gap, np.random.default_rng([seed, 1, run]))
        alarms: dict[str | int, int | None] = {
            "watch": Watch(2, TOLERANCE, ALPHA).update(*stream).alarm
        }
        for size in WINDOWS:
            alarms[size] = window_alarm(*stream, size, ALPHA / max(rows // size, 1))
        for who, alarm in alarms.items():
            delays[who].append(np.inf if alarm is None else alarm - calm)
    lines = []
    for who, each in delays.items():
        sure = np.array(each)
        quantiles = np.quantile(np.where(np.isinf(sure), rows, sure), (0.5, 0.9))
        missed = f"{np.isinf(sure).sum()} of {runs}"
        lines.append([_name(who), *(f"{value:,.0f}" for value in quantiles), missed])
    shown.show(
        f"Rows from the jump of the gap ({CALM:g} to {JUMP:g}, row {calm:,}) to the alarm.",
        ["method", "median", "90%", "never"],
        lines,
    )


def _name(who: str | int) -> str:
    return "watch" if who == "watch" else f"windows of {who:,} rows"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, metavar="FILE", help="store the tables as JSON")
    parser.add_argument("--quick", action="store_true", help="few rows, to check that it works")
    given = parser.parse_args(arguments)
    shown = Report()
    if given.quick:
        print("A quick run checks that the script works; its numbers mean nothing.\n")
        report(shown, 2, 20_000, given.seed)
    else:
        report(shown, given.runs, given.rows, given.seed)
    if given.record is not None:
        shown.write(given.record, PACKAGES)


if __name__ == "__main__":
    main()
