"""Gradient boosting with the dial on Adult: train once, then set any tolerance.

Prints what each position of the dial does and writes ``demo-frontier.png``.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingClassifier

from fairdial import FairBayes, InfeasibleToleranceWarning
from fairdial.datasets import load_adult
from fairdial.metrics import gap, group_table

TOLERANCES = (0.00, 0.02, 0.05, 0.08, 0.10, 0.15)
CONFIDENCE = 0.95
FIGURE = Path("demo-frontier.png")


def main() -> None:
    """Train, turn the dial, show."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    train, test = load_adult().split(test_size=0.2, random_state=0)
    console.print(
        f"[bold]Adult[/]: {len(train):,} rows to train and calibrate, {len(test):,} to test."
    )

    start = time.perf_counter()
    boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    dial = FairBayes(boosting, criterion="demographic_parity", calibration=0.25, random_state=0)
    dial.fit(train.X, train.y, sensitive_features=train.groups)
    console.print(
        f"Trained gradient boosting and found {len(dial.frontier_):,} positions of the dial in "
        f"{time.perf_counter() - start:.1f} s. Nothing is trained again below.\n"
    )

    frontier = dial.frontier_
    wishes = np.array([*TOLERANCES, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)  # said below the table
        points = frontier.at(wishes)
        decisions = [
            dial.predict(test.X, sensitive_features=test.groups, tolerance=wish) for wish in wishes
        ]
    accuracy = [float((d == test.y).mean()) for d in decisions]
    gaps = [gap(test.y, d, sensitive_features=test.groups) for d in decisions]
    margin = frontier.margin(CONFIDENCE)

    table = Table(title="Demographic parity on Adult: who is taken to earn more than $50K")
    for name in (
        "tolerance",
        *(f"threshold\n{group}" for group in points.groups),
        "accuracy\ncalib.",
        "gap\ncalib.",
        f"new rows,\n{CONFIDENCE:.0%} sure",
        "accuracy\ntest",
        "gap\ntest",
        *(f"flips\n{group}" for group in points.groups),
    ):
        table.add_column(name, justify="right")
    for i, point in enumerate(points):
        table.add_row(
            f"{point.tolerance:.2f}" + ("" if point.feasible else "*"),
            *(f"{threshold:+.3f}" for threshold in point.thresholds),
            f"{point.accuracy:.4f}",
            f"{point.gap:.4f}",
            f"<= {min(point.gap + margin, 1):.3f}",
            f"{accuracy[i]:.4f}",
            f"{gaps[i]:.4f}",
            *(flips(decisions[-1], decisions[i], test.groups == group) for group in points.groups),
        )
    console.print(table)
    console.print(
        "Flips: test rows that gain (+) or lose (-) against the unconstrained decisions. The bound "
        "for new\nrows holds for the whole column at once. (*) no state reaches the tolerance on "
        "these rows; the smallest gap is taken."
    )

    sure = frontier.at(0.05, confidence=CONFIDENCE)
    console.print(
        f"\nFor a gap of at most 0.05 on new rows with {CONFIDENCE:.0%} confidence the dial keeps "
        f"{sure.gap:.4f} on the calibration rows; accuracy there {sure.accuracy:.4f} instead of "
        f"{frontier.at(0.05).accuracy:.4f}."
    )
    console.print("\nTest rows by group at tolerance 0.05:")
    by_group = group_table(test.y, decisions[2], sensitive_features=test.groups)
    console.print(by_group.round(4).to_string())

    mpl.use("Agg")
    axes = frontier.plot(label="calibration rows, with bootstrap band", band=True)
    axes.plot(gaps, accuracy, "o", label="test rows, tolerances of the table")
    axes.set_title("Adult: one trained model, every tolerance")
    axes.legend()
    axes.figure.savefig(FIGURE, dpi=150)
    console.print(f"\nThe frontier is drawn in {FIGURE}.")


def flips(before: NDArray[np.int64], after: NDArray[np.int64], rows: NDArray[np.bool_]) -> str:
    """How many of these rows gain and lose."""
    change = after[rows] - before[rows]
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    return " ".join(f"{n:+d}" for n in (gained, -lost) if n) or "0"


if __name__ == "__main__":
    main()
