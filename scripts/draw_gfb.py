"""Draw the figures of docs/gfb.md: ``python scripts/draw_gfb.py [FOLDER]``, half a minute.

They show how thresholds move, what that costs, and what GFB does about it. The first two come from
a Gaussian law, the others from two short trainings on Adult.
"""

from __future__ import annotations

import sys
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from fairdial import GFB, FairBayes, Network
from fairdial.datasets import Dataset, GaussianLaw, load_adult
from fairdial.metrics import acc_dep
from fairdial.nn.losses import boundary_distance

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "img"
TOLERANCES = (1.0, 0.20, 0.0)
COLORS = ("#2a6fbb", "#d9662b")  # of groups
STRONG = ("0.35", "#009e73")  # of scorers
NEAR = np.linspace(-3.5, 2.5, 61)  # edges of scores
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


@cache
def trained() -> tuple[dict[str, FairBayes | GFB], Dataset, Dataset]:
    """Return a network trained plainly and by GFB on rows of Adult, test rows and the others."""
    adult = load_adult()
    some = np.random.default_rng(0).choice(len(adult), ROWS, replace=False)
    others = adult.subset(np.setdiff1d(np.arange(len(adult)), some))
    train, test = adult.subset(some).split(test_size=0.3, random_state=0)
    network = Network(members=1, epochs=EPOCHS, patience=None)
    models: dict[str, FairBayes | GFB] = {
        "plain training": FairBayes(network, random_state=0),
        "GFB": GFB(network=network, weight=WEIGHT, random_state=0),
    }
    for model in models.values():
        model.fit(train.X, train.y, sensitive_features=train.groups)
    return models, test, others


def draw_training(plt: Any, folder: Path) -> None:
    """Draw scores and changed decisions of one network, trained plainly and by GFB."""
    models, test, _ = trained()
    fig, axes = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    (share, frontier), panels = axes[1], axes[0]
    for ax, (name, model) in zip(panels, models.items(), strict=True):
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


def draw_given_back(plt: Any, folder: Path) -> None:
    """Draw where changed decisions lie, and what the tolerance gives back (theorem 1).

    The theorem is about calibrated scores, so they are recalibrated on rows of their own.
    """
    models, _, others = trained()
    held, test = others.split(test_size=0.5, random_state=0)
    fig, axes = plt.subplots(2, 2, figsize=(9, 6.6), layout="constrained")
    (curve, share), panels = axes[1], axes[0]
    for ax, (name, model), color in zip(panels, models.items(), STRONG, strict=True):
        model = copy(model).set_params(recalibrate="group")
        model.calibrate(held.X, held.y, sensitive_features=held.groups)
        frontier, rows = model.frontier_, {"sensitive_features": test.groups}
        logits = model.logits(test.X, **rows)
        fairest = frontier.points.read(frontier.points.find(np.zeros(1))[0])[0][0]
        for a, group in enumerate(frontier.groups):
            inside = sorted((0.0, float(fairest[a])))
            mine = logits[test.groups == group]
            count, edges, _ = ax.hist(
                mine, NEAR, density=True, histtype="step", color=COLORS[a], label=group, lw=1.3
            )
            middle = (edges[1:] + edges[:-1]) / 2
            moved = (middle > inside[0]) & (middle <= inside[1])
            kept = np.where(moved, count, 0.0)
            ax.stairs(kept, edges, fill=True, color=COLORS[a], alpha=0.35, lw=0)
            ax.axvline(fairest[a], color=COLORS[a], linestyle="--")
        ax.axvline(0.0, color="0.5", linewidth=0.8)
        ax.set(title=name, xlabel="score", xlim=(NEAR[0], NEAR[-1]), ylim=(0, 0.45), yticks=[])
        ax.legend(frameon=False, loc="upper right")
        deltas = np.linspace(0.0, float(frontier.gap[0]), 60)
        plug_in = acc_dep(frontier, logits, deltas, **rows)
        realized = acc_dep(frontier, logits, deltas, y_true=test.y, **rows)
        curve.plot(deltas, 100 * plug_in, color=color, label=f"{name}, Acc_dep")
        curve.plot(deltas, 100 * realized, color=color, linestyle=":", label=f"{name}, on labels")
        share.plot(deltas / deltas[-1], plug_in / plug_in[-1], color=color, label=name)
    curve.set(title="accuracy given back", xlabel="tolerance", ylabel="points")
    curve.legend(frameon=False)
    share.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
    share.set(title="the same as shares", xlabel="share of the unconstrained gap")
    share.set_ylabel("share of the accuracy")
    share.legend(frameon=False, loc="lower right")
    fig.savefig(folder / "gfb-given-back.png", **SAVE | {"dpi": 95})
    plt.close(fig)


def main(folder: Path = FOLDER) -> None:
    """Draw all figures."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    for draw in (draw_thresholds, draw_cost, draw_training, draw_given_back):
        draw(plt, folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
