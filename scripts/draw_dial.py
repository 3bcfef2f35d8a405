"""Draw the figure of the first page: ``python scripts/draw_dial.py [FOLDER]``, in seconds.

Gradient boosting on Adult, trained once: accuracy against the gap at every operating point, on the
calibration rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
from sklearn.ensemble import HistGradientBoostingClassifier

from fairdial import FairBayes
from fairdial.datasets import load_adult

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "img"
TOLERANCES = (0.02, 0.05, 0.10)
COLOR = "#2a6fbb"


def main(folder: Path) -> None:
    """Train the model and draw its frontier."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    train, _ = load_adult().split(test_size=0.2, random_state=0)
    boosting = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    model = FairBayes(boosting, random_state=0)
    frontier = model.fit(train.X, train.y, sensitive_features=train.groups).frontier_
    assert frontier.accuracy is not None
    with plt.rc_context({"font.size": 14}):
        fig, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
        ax.plot(frontier.gap, 100 * frontier.accuracy, color=COLOR, linewidth=2)
        for tolerance in TOLERANCES:
            point = frontier.at(tolerance)
            assert point.accuracy is not None
            ax.plot(point.gap, 100 * point.accuracy, "o", color=COLOR, markersize=11)
            ax.annotate(
                f"tolerance {tolerance:g}",
                (point.gap, 100 * point.accuracy),
                xytext=(10, -20),
                textcoords="offset points",
            )
        ax.set(xlabel="gap between the groups", ylabel="accuracy, %")
        ax.spines[["top", "right"]].set_visible(False)
        fig.savefig(folder / "dial.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
