"""Draw the figures of docs/gfb.md: ``python scripts/draw_gfb.py [FOLDER]``, half a minute.

They show how thresholds move, what that costs, and what GFB does about it. The first two come from
a Gaussian law, the third from two short trainings on Adult.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from fairdial import GFB, FairBayes, Network
from fairdial.datasets import GaussianLaw, load_adult
from fairdial.nn.losses import boundary_distance

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "img"
TOLERANCES = (1.0, 0.20, 0.0)
COLORS = ("#2a6fbb", "#d9662b")
ROWS, EPOCHS = 20_000, 12
WEIGHT = 0.7  # of the prediction loss; the default is 0.95, this shows more
SCORES = np.linspace(-4.5, 5.5, 1001)
SAVE: dict[str, Any] = {"dpi": 110, "metadata": {"Software": None}}


def draw_thresholds(plt: Any, folder: Path) -> None:
    """Draw the scores of two groups with their thresholds at three tolerances."""
    law = GaussianLaw()
    both = np.repeat(SCORES[:, None], 2, axis=1)
    density = -np.gradient(law.rates("demographic_parity", both), SCORES, axis=0)  # (scores, 2)
    fig, axes = plt.subplots(3, 1, figsize=(7, 6.4), sharex=True, layout="constrained")
    for ax, tolerance in zip(axes, TOLERANCES, strict=True):
        point = law.at("demographic_parity", tolerance)
        for a, threshold in enumerate(point.thresholds.tolist()):
            low, high = min(0.0, threshold), max(0.0, threshold)
            moved = (low <= SCORES) & (high >= SCORES)
            color = COLORS[a]
            ax.plot(SCORES, density[:, a], color=color, label=law.names[a])
            ax.axvline(threshold, color=color, linestyle="--")
            ax.fill_between(SCORES, density[:, a], where=moved, color=color, alpha=0.35, lw=0)
        ax.axvline(0.0, color="0.5", linewidth=0.8)
        allowed = "any gap allowed" if tolerance == 1.0 else f"gap of at most {tolerance:g}"
        ax.set_title(
            f"{allowed}: gap {abs(point.disparity):.2f}, accuracy {point.accuracy:.3f}", loc="left"
        )
        ax.set_yticks([])
        ax.set_ylim(bottom=0)
    axes[0].legend(frameon=False)
    axes[-1].set_xlabel("score (log-odds); dashed: a group's threshold, shaded: changed decisions")
    fig.savefig(folder / "gfb-thresholds.png", **SAVE)
    plt.close(fig)


def draw_cost(plt: Any, folder: Path) -> None:
    """Draw the cost of a changed decision, and the distance that GFB minimizes."""
    law = GaussianLaw()
    fairest = float(law.at("demographic_parity", 0.0).thresholds[1])
    z = np.linspace(-1.5, 2.5, 801)
    between = (z > 0) & (z < fairest)
    distance = boundary_distance(z, np.full_like(z, fairest)).value
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    left.plot(z, np.abs(np.tanh(z / 2)), color="0.3")
    left.fill_between(z, np.abs(np.tanh(z / 2)), where=between, color=COLORS[1], alpha=0.35, lw=0)
    left.set(title="cost of a changed decision", ylabel="|2 eta - 1|")
    right.plot(z, distance, color="0.3")
    right.fill_between(z, distance, where=between, color=COLORS[1], alpha=0.35, lw=0)
    right.set(title="what GFB minimizes", ylabel="distance to the fairest threshold")
    for ax in (left, right):
        ax.axvline(0.0, color="0.5", linewidth=0.8)
        ax.axvline(fairest, color=COLORS[1], linestyle="--")
        ax.set_xlabel("score of a row of group 1")
    fig.savefig(folder / "gfb-cost.png", **SAVE)
    plt.close(fig)


def draw_training(plt: Any, folder: Path) -> None:
    """Draw scores and changed decisions of one network, trained plainly and by GFB."""
    adult = load_adult()
    some = np.random.default_rng(0).choice(len(adult), ROWS, replace=False)
    train, test = adult.subset(some).split(test_size=0.3, random_state=0)
    network = Network(members=1, epochs=EPOCHS, patience=None)
    models = {
        "plain training": FairBayes(network, random_state=0),
        "GFB": GFB(network=network, weight=WEIGHT, random_state=0),
    }
    fig, axes = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    (share, frontier), panels = axes[1], axes[0]
    for ax, (name, model) in zip(panels, models.items(), strict=True):
        model.fit(train.X, train.y, sensitive_features=train.groups)
        model.plot_logits(test.X, sensitive_features=test.groups, ax=ax, label=name)
        ax.set(xlabel="score", xlim=(-7, 5))
        share.plot(100 * model.history_["interval_share"], marker=".", label=name)
        model.frontier_.plot(frontier, label=name)
    share.set(title="rows whose decision changes", xlabel="epoch", ylabel="% of validation rows")
    share.set_ylim(bottom=0)
    share.legend()
    frontier.set(title="frontier", xlabel="gap")
    fig.savefig(folder / "gfb-training.png", **SAVE)
    plt.close(fig)


def main(folder: Path = FOLDER) -> None:
    """Draw all three figures."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    for draw in (draw_thresholds, draw_cost, draw_training):
        draw(plt, folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
