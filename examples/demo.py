"""Three models with the dial on Adult: trained once each, then set to any tolerance.

Gradient boosting, a plain network (FairBayes) and the paper's method (GFB). Prints what each
position of the dial does and writes ``demo-frontier.png`` and ``demo-logits.png``.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingClassifier

from fairdial import GFB, FairBayes, InfeasibleToleranceWarning, Network
from fairdial.datasets import Dataset, load_adult
from fairdial.metrics import gap, group_table

TOLERANCES = (0.00, 0.02, 0.05, 0.08, 0.10, 0.15, 1.00)
CONFIDENCE = 0.95
FRONTIER, LOGITS = Path("demo-frontier.png"), Path("demo-logits.png")


def main() -> None:
    """Train, turn the dial, show."""
    mpl.use("Agg")
    console = Console(width=None if sys.stdout.isatty() else 110)
    train, test = load_adult().split(test_size=0.2, random_state=0)
    console.print(f"Adult: {len(train):,} rows to train and calibrate, {len(test):,} to test.\n")

    boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    network = Network(verbose=sys.stdout.isatty())
    models: dict[str, Any] = {
        "gradient boosting": FairBayes(boosting, random_state=0),
        "plain network": FairBayes(network, random_state=0),
        "GFB": GFB(network=network, random_state=0),
    }
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(train.X, train.y, sensitive_features=train.groups)
        console.print(
            f"Trained {name} and found {len(model.frontier_):,} positions of its dial in "
            f"{time.perf_counter() - start:.1f} s."
        )
    console.print("Nothing is trained again below.\n")

    best = models["gradient boosting"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)  # said below the table
        curves = {name: on_test(model, test) for name, model in models.items()}
        console.print(dial_table(best, test, curves["gradient boosting"][2]))
        console.print(
            "Flips: test rows that gain (+) or lose (-) against the unconstrained decisions. The "
            "bound for new\nrows holds for the whole column at once. (*) no state reaches the "
            "tolerance on these rows; the smallest gap\nis taken.\n"
        )
    console.print(comparison(curves))
    sure = best.frontier_.at(0.05, confidence=CONFIDENCE)
    console.print(
        f"\nGradient boosting, for a gap of at most 0.05 on new rows with {CONFIDENCE:.0%} "
        f"confidence: the dial keeps {sure.gap:.4f}\non the calibration rows; accuracy there "
        f"{sure.accuracy:.4f} instead of {best.frontier_.at(0.05).accuracy:.4f}. (One tolerance "
        "that is declared\nbeforehand needs a smaller margin than the table's column, which holds "
        "for every tolerance at once.)"
    )
    console.print("\nIts test rows by group at tolerance 0.05:")
    decisions = best.predict(test.X, sensitive_features=test.groups, tolerance=0.05)
    by_group = group_table(test.y, decisions, sensitive_features=test.groups)
    console.print(by_group.round(4).to_string())
    draw(models, curves, test)
    console.print(f"\nThe frontiers are drawn in {FRONTIER}, the networks' logits in {LOGITS}.")


Curve = tuple[list[float], list[float], list[NDArray[np.int64]]]


def on_test(model: Any, test: Dataset) -> Curve:
    """Gaps, accuracies and decisions on test rows at every tolerance."""
    decisions = [
        model.predict(test.X, sensitive_features=test.groups, tolerance=wish) for wish in TOLERANCES
    ]
    gaps = [gap(test.y, d, sensitive_features=test.groups) for d in decisions]
    return gaps, [float((d == test.y).mean()) for d in decisions], decisions


def dial_table(model: Any, test: Dataset, decisions: list[NDArray[np.int64]]) -> Table:
    """One line a tolerance: thresholds, figures, who flips."""
    points = model.frontier_.at(np.array(TOLERANCES))
    margin = model.frontier_.margin(CONFIDENCE)
    table = Table(title="Gradient boosting: who is taken to earn more than $50K")
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
    for point, decided in zip(points, decisions, strict=True):
        table.add_row(
            f"{point.tolerance:.2f}" + ("" if point.feasible else "*"),
            *(f"{threshold:+.3f}" for threshold in point.thresholds),
            f"{point.accuracy:.4f}",
            f"{point.gap:.4f}",
            f"<= {min(point.gap + margin, 1):.3f}",
            f"{(decided == test.y).mean():.4f}",
            f"{gap(test.y, decided, sensitive_features=test.groups):.4f}",
            *(flips(decisions[-1], decided, test.groups == group) for group in points.groups),
        )
    return table


def comparison(curves: dict[str, Curve]) -> Table:
    """The three models beside each other, on test rows."""
    table = Table(title="Test rows: accuracy (gap) of the three models")
    table.add_column("tolerance", justify="right")
    for name in curves:
        table.add_column(name, justify="right")
    for i, wish in enumerate(TOLERANCES):
        cells = (f"{accuracy[i]:.4f} ({gaps[i]:.4f})" for gaps, accuracy, _ in curves.values())
        table.add_row(f"{wish:.2f}", *cells)
    return table


def flips(before: NDArray[np.int64], after: NDArray[np.int64], rows: NDArray[np.bool_]) -> str:
    """How many of these rows gain and lose."""
    change = after[rows] - before[rows]
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    return " ".join(f"{n:+d}" for n in (gained, -lost) if n) or "0"


def draw(models: dict[str, Any], curves: dict[str, Curve], test: Dataset) -> None:
    """Frontiers of all models with their test points; logits of both networks."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for i, (name, model) in enumerate(models.items()):
        model.frontier_.plot(axes, label=name, band=i == 0)
        gaps, accuracy, _ = curves[name]
        dots = f"{name}: test rows"
        axes.plot(gaps, accuracy, "o", color=f"C{i}", markersize=4, label=dots)
    axes.set_title("Adult: each model trained once, set to every tolerance")
    axes.legend(fontsize="small")
    figure.savefig(FRONTIER, dpi=150)

    figure, pair = plt.subplots(1, 2, figsize=(10, 3.5), sharex=True, layout="constrained")
    for name, ax in zip(("plain network", "GFB"), pair, strict=True):
        models[name].plot_logits(test.X, sensitive_features=test.groups, ax=ax, label=name)
    figure.savefig(LOGITS, dpi=150)


if __name__ == "__main__":
    main()
