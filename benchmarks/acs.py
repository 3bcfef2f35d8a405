"""Time everything on ACSIncome: training, calibration and ten tolerances against one reduction.

    python benchmarks/acs.py --data FOLDER [--rows 1e4 1e5 1e6] [--reduction 1e4] [--record FILE]
    python benchmarks/acs.py --table FILE

The folder has your files of the American Community Survey (``fairdial.datasets.load_acs``). For
each number of rows, at most all, fairdial trains its default model on 80% of them, calibrates on
the rest and answers ten tolerances. For each number after ``--reduction``, fairlearn's
ExponentiatedGradient is fitted to all of these rows over the same trees, for one tolerance.
Processor seconds, one thread. Demographic parity between women and men. Reading the files, and
encoding features for the reduction, isn't timed. ``--table`` prints a stored record.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import Report, at_most, table
from threadpoolctl import threadpool_limits

from fairdial import FairBayes
from fairdial.bench.decisions import _features
from fairdial.bench.peers import PeerProcess
from fairdial.datasets import Dataset, load_acs
from fairdial.estimators.learners import boosting, text_columns

TOLERANCES = np.linspace(0.01, 0.1, 10)
TOLERANCE, CRITERION = 0.05, "demographic_parity"
TIMES = "Processor seconds"
PACKAGES = ("fairdial", "scikit-learn", "numpy")


def sample(data: Dataset, n_rows: float) -> Dataset:
    """Return a part of the rows, or all."""
    if n_rows >= len(data):
        return data
    return data.split(test_size=n_rows / len(data), random_state=0)[1]


def dial(data: Dataset) -> dict[str, float]:
    """Return the processor seconds of fairdial's steps."""
    model = FairBayes(boosting(text_columns(data.X), 0), calibration=None, random_state=0)
    train, held = data.split(test_size=0.2, random_state=0)
    found, start = {}, time.process_time()

    def lap(name: str) -> None:
        nonlocal start
        found[name], start = time.process_time() - start, time.process_time()

    model.fit(train.X, train.y, sensitive_features=train.groups)
    lap("train")
    model.calibrate(held.X, held.y, sensitive_features=held.groups)
    lap("calibrate")
    model.frontier_.at(TOLERANCES)
    lap("ten tolerances")
    return found


def reduction(data: Dataset) -> float:
    """Return the processor seconds of one fit of the reduction."""
    given: dict[str, Any] = _features(data, 0)(data)
    codes = np.unique(data.groups, return_inverse=True)[1].astype(np.int64)
    with PeerProcess("reduction") as process:
        return process.fit({**given, "codes": codes, "y": data.y}, CRITERION, [TOLERANCE])[0]


def show(record: Path) -> None:
    """Print the tables of a record."""
    stored = json.loads(record.read_text("utf-8"))
    for title, lines in stored["tables"].items():
        print(f"\n{title}\n\n{table(list(lines[0]), [list(line.values()) for line in lines])}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with your files")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    parser.add_argument("--reduction", type=float, nargs="*", default=[1e4, 9e4])
    parser.add_argument("--record", type=Path, help="where to store the tables, as JSON")
    parser.add_argument("--table", type=Path, help="print the tables of a record, and stop")
    options = parser.parse_args()
    if options.table is not None:
        show(options.table)
        return
    if options.data is None:
        parser.error("--data is needed")
    data, report = load_acs(options.data), Report()
    lines, total = [], 0.0
    with threadpool_limits(1):
        for n_rows in options.rows:
            some = sample(data, n_rows)
            steps = dial(some)
            total = sum(steps.values())
            shown = [f"{value:.3g}" for value in (*steps.values(), total)]
            lines.append(["fairdial, ten tolerances", f"{len(some):,}", *shown])
            print(lines[-1], flush=True)
        for n_rows in options.reduction:
            some = sample(data, n_rows)
            seconds = reduction(some)
            lines.append(
                ["ExponentiatedGradient, one", f"{len(some):,}", *["-"] * 3, f"{seconds:.3g}"]
            )
            print(lines[-1], flush=True)
    report.show(
        TIMES, ["method", "rows", "train", "calibrate", "ten tolerances", "together"], lines
    )
    if options.reduction:
        against = f"{lines[len(options.rows) - 1][1]} rows, against one reduction on"
        goal = at_most(f"{against} {lines[-1][1]} rows", total / seconds, 1.0)
        report.show(
            "Goal",
            ["result", "goal", "measured", "verdict"],
            [[goal.what, goal.goal, goal.value, goal.verdict]],
        )
    if options.record is not None:
        report.write(options.record, PACKAGES)


if __name__ == "__main__":
    main()
