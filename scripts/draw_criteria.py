"""Draw the figures of docs/criteria.md: ``python scripts/draw_criteria.py [FOLDER]``, a minute.

The rates of two made-up groups; what three criteria cost on Adult and COMPAS; leveling down and
leveling up on Adult. Scores are those of rows that the classifier hasn't seen.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline

from fairdial import TableEncoder, sweep
from fairdial.datasets import Dataset, load_adult, load_compas

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "img"
LOANS = {"group A": ((8, 40), (48, 60)), "group B": ((6, 60), (24, 40))}  # approved, all; by label
CRITERIA = ("demographic_parity", "equal_opportunity", "equalized_odds")
COLORS = ("#2a6fbb", "#d9662b", "#3d8c40")
TOLERANCES = np.linspace(0.01, 0.20, 77)
TICKS = (0.0, 0.05, 0.10, 0.15, 0.20)
ROWS = 100_000  # of each data set, at most
SAVE: dict[str, Any] = {"dpi": 110, "metadata": {"Software": None}}


def _some(rows: Dataset) -> Dataset:
    return rows.subset(np.arange(min(ROWS, len(rows))))


def score_adult() -> tuple[NDArray[np.float64], Dataset]:
    """Return scores of gradient boosting on held-out rows of Adult."""
    train, rest = load_adult().split(test_size=0.2, random_state=0)
    train, rest = _some(train), _some(rest)
    boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    return boosting.fit(train.X, train.y).decision_function(rest.X), rest


def score_compas() -> tuple[NDArray[np.float64], Dataset]:
    """Return cross-fitted scores of a logistic regression on COMPAS."""
    rows = _some(load_compas())
    model = make_pipeline(TableEncoder(dtype="float64"), LogisticRegression(max_iter=1000))
    return cross_val_predict(model, rows.X, rows.y, cv=5, method="decision_function"), rows


def draw_rates(plt: Any, folder: Path) -> None:
    """Draw two groups of 100 applicants by label and decision."""
    labels = ("don't repay", "repay")
    fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.9), layout="constrained")
    for ax, (name, rows) in zip(axes, LOANS.items(), strict=True):
        left = 0
        for label in (1, 0):
            approved, n = rows[label]
            share, color = approved / n, COLORS[0] if label else COLORS[1]
            middle = left + n / 2
            ax.bar(middle, share, n, color=color, edgecolor="white", linewidth=2)
            ax.bar(middle, 1 - share, n, share, color=color, alpha=0.25, edgecolor="white", lw=2)
            ax.text(
                middle, share / 2, f"{approved} approved", ha="center", va="center", color="white"
            )
            ax.text(middle, (1 + share) / 2, f"{n - approved} denied", ha="center", va="center")
            ax.text(middle, -0.07, f"{n} {labels[label]}", ha="center", va="top")
            rate = "true" if label else "false"
            text = f"{rate} positive\nrate {share:.0%}"
            ax.text(middle, 1.02, text, ha="center", va="bottom", fontsize=9)
            left += n
        total = sum(approved for approved, _ in rows)
        precision = rows[1][0] / total
        ax.set_title(f"{name}: {total}% approved,\n{precision:.0%} of these repay", pad=34)
        ax.set(xlim=(0, 100), ylim=(0, 1))
        ax.axis("off")
    fig.savefig(folder / "criteria-rates.png", **SAVE)
    plt.close(fig)


def draw_frontiers(plt: Any, folder: Path, scored: dict[str, tuple[Any, Dataset]]) -> None:
    """Draw accuracy against the tolerance for three criteria."""
    fig, axes = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
    for ax, (name, (logits, rows)) in zip(axes, scored.items(), strict=True):
        for criterion, color in zip(CRITERIA, COLORS, strict=True):
            points = sweep(logits, rows.groups, rows.y, criterion=criterion).at(TOLERANCES)
            assert points.accuracy is not None
            label = criterion.replace("_", " ")
            ax.plot(TOLERANCES, 100 * points.accuracy, color=color, label=label, linewidth=2)
        drawn = sweep(logits, rows.groups, rows.y, criterion=CRITERIA[2], randomize="hash")
        lottery = drawn.at(TOLERANCES[:14:2]).accuracy
        assert lottery is not None
        style = {"color": COLORS[2], "linestyle": ":", "linewidth": 2}
        ax.plot(TOLERANCES[:14:2], 100 * lottery, label="equalized odds, by lottery", **style)
        ax.set(title=f"{name}: {len(rows):,} people", xlabel="tolerance", ylabel="accuracy, %")
        ax.set_xticks(TICKS)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, loc="lower right")
    fig.savefig(folder / "criteria-frontiers.png", **SAVE)
    plt.close(fig)


def draw_rising(plt: Any, folder: Path, logits: Any, rows: Dataset) -> None:
    """Draw selection rates of women and men, with thresholds that move freely or only fall."""
    fig, axes = plt.subplots(1, 2, figsize=(9.6, 3.8), sharey=True, layout="constrained")
    titles = ("thresholds move both ways", "rising=True: nobody loses")
    for ax, rising, title in zip(axes, (False, True), titles, strict=True):
        frontier = sweep(logits, rows.groups, rows.y, rising=rising)
        points = frontier.at(TOLERANCES)
        for a, group in enumerate(frontier.groups):
            rates = 100 * points.selected[:, :, a].sum(axis=1) / frontier.counts[:, a].sum()
            ax.plot(TOLERANCES, rates, color=COLORS[a], label=group, linewidth=2)
        marked = frontier.at(0.05)
        assert marked.accuracy is not None
        ax.axvline(0.05, color="0.6", linewidth=0.8)
        ax.text(0.053, 2, f"at 0.05: accuracy {marked.accuracy:.1%}")
        ax.set(title=title, xlabel="tolerance")
        ax.set_xticks(TICKS)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set(ylabel="selected, %", ylim=(0, 30))
    axes[0].legend(frameon=False, loc="center right")
    fig.savefig(folder / "criteria-rising.png", **SAVE)
    plt.close(fig)


def main(folder: Path = FOLDER) -> None:
    """Draw all figures."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    scored = {"Adult": score_adult(), "COMPAS": score_compas()}
    draw_rates(plt, folder)
    draw_frontiers(plt, folder, scored)
    draw_rising(plt, folder, *scored["Adult"])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
