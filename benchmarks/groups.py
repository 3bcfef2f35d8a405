"""Time the dial with a hundred groups, and a full sweep beside sorting.

python benchmarks/groups.py [--rows 1e6] [--quick]
"""

from __future__ import annotations

import argparse
import tracemalloc
from collections.abc import Sequence
from time import process_time

import numpy as np
from common import TWO_GROUPS, at_most, cpu_time, draw, machine, show_goals, table
from threadpoolctl import threadpool_limits

from fairdial import Frontier, sweep
from fairdial.datasets import GaussianLaw

GROUPS, ROWS_PER_GROUP = 100, 1000
AT, BAND, SORTS, BYTES = 0.2, 2.0, 6.0, 40.0  # goals: ms, s, times np.sort, bytes per row


def many(n_groups: int) -> GaussianLaw:
    """Return a law of equal groups with different base rates."""
    return GaussianLaw(
        shares=(1 / n_groups,) * n_groups,
        base_rates=tuple(np.linspace(0.3, 0.6, n_groups).tolist()),
        separations=(1.4,) * n_groups,
    )


def report(n: int, n_boot: int, repeats: int) -> None:
    """Measure, and print the results."""
    print(machine(("fairdial", "numpy")))
    rng = np.random.default_rng(0)
    rows = draw(many(GROUPS), GROUPS * ROWS_PER_GROUP, rng)

    def fresh() -> Frontier:
        return sweep(rows.logits, rows.groups, rows.y)

    frontier = fresh()
    tolerances = rng.uniform(0.02, 0.2, 50 * repeats).tolist()
    at = cpu_time(lambda: [frontier.at(t) for t in tolerances], repeats).seconds / len(tolerances)
    accuracy = min(_accuracy_seconds(fresh()) for _ in range(repeats))
    band = cpu_time(lambda: frontier.band(n_boot=n_boot, random_state=0), 1).seconds
    certified = cpu_time(lambda: fresh().at(0.4, confidence=0.95), repeats).seconds
    print(f"\n{GROUPS} groups of {ROWS_PER_GROUP:,} rows, {len(frontier):,} points:\n")
    lines = [
        ["one tolerance", f"{1e3 * at:.3f} ms"],
        ["accuracy of all points", f"{1e3 * accuracy:.1f} ms"],
        [f"band, {n_boot:,} draws", f"{band:.2f} s"],
        ["a certified tolerance of a new frontier", f"{1e3 * certified:.0f} ms"],
    ]
    print(table(["result", "CPU time"], lines))

    rows = draw(TWO_GROUPS, n, rng)
    sorting = cpu_time(lambda: np.sort(rows.logits), repeats).seconds
    sweeping = cpu_time(lambda: sweep(rows.logits, rows.groups, rows.y), repeats).seconds
    tracemalloc.start()
    kept = sweep(rows.logits, rows.groups, rows.y)
    kept.at(0.1)
    memory = tracemalloc.get_traced_memory()[0] / n
    tracemalloc.stop()
    print(f"\nA full sweep of {n:,} rows in two groups, and np.sort of the scores:\n")
    head = ["", "CPU ms", "bytes kept per row"]
    lines = [["np.sort", f"{1e3 * sorting:.1f}", ""]]
    lines.append(["sweep", f"{1e3 * sweeping:.1f}", f"{memory:.0f}"])
    print(table(head, lines))
    show_goals(
        [
            at_most(f"{GROUPS} groups: one tolerance", 1e3 * at, AT, " ms"),
            at_most(f"{GROUPS} groups: band", band * 1000 / n_boot, BAND, " s"),
            at_most("a full sweep against np.sort", sweeping / sorting, SORTS),
            at_most("... bytes kept per row", memory, BYTES, ""),
        ]
    )


def _accuracy_seconds(frontier: Frontier) -> float:
    start = process_time()
    assert frontier.accuracy is not None
    return process_time() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**6, metavar="N")
    parser.add_argument("--quick", action="store_true", help="few draws, to check that it works")
    given = parser.parse_args(arguments)
    with threadpool_limits(1):
        if given.quick:
            print("A quick run checks that the script works; its numbers mean nothing.\n")
            report(10_000, 5, 1)
        else:
            report(given.rows, 1000, 5)


if __name__ == "__main__":
    main()
