"""Draw two pictures of docs/monitoring.md: a stream of decisions with drift, and one without.

python scripts/draw_monitoring.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

from fairdial.core.anytime import Watch, gap_sequence

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "img"
TOLERANCE, ALPHA, ROWS, JUMP, STEP = 0.05, 0.01, 120_000, 40_000, 400


def draw(name: str, after: float, seed: int) -> None:
    """Draw the gap with its confidence sequence, and the evidence."""
    rng = np.random.default_rng(seed)
    gap = np.where(np.arange(ROWS) < JUMP, 0.03, after)
    codes = rng.integers(0, 2, ROWS)
    selected = rng.random(ROWS) < 0.2 + gap * codes
    watch, evidence, lows, highs, seen = Watch(2, TOLERANCE, ALPHA), [], [], [], []
    rows, chosen = np.zeros(2, int), np.zeros(2, int)
    ends = np.arange(STEP, ROWS + 1, STEP)
    for end in ends:
        part = slice(end - STEP, end)
        watch.update(codes[part], selected[part])
        rows += np.bincount(codes[part], minlength=2)
        chosen += np.bincount(codes[part][selected[part]], minlength=2)
        low, high = gap_sequence(chosen.tolist(), rows.tolist(), 0.95)
        lows.append(low)
        highs.append(high)
        seen.append(np.ptp(chosen / rows))
        evidence.append(watch.evidence)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 4.6), sharex=True, layout="constrained")
    top.fill_between(
        ends, lows, highs, color="tab:blue", alpha=0.2, label="95% confidence sequence"
    )
    top.plot(ends, seen, color="tab:blue", label="gap so far")
    top.plot(ends, gap[ends - 1], color="black", lw=1, ls=":", label="true gap")
    top.axhline(TOLERANCE, color="tab:red", lw=1, label="tolerance")
    top.set(ylim=(0, 0.15), ylabel="gap")
    top.legend(ncol=2, fontsize=8, loc="upper right")
    bottom.semilogy(ends, evidence, color="tab:green")
    bottom.axhline(1 / ALPHA, color="tab:red", lw=1)
    bottom.set(ylim=(1e-3, 1e5), ylabel="evidence", xlabel="rows")
    if watch.alarm is not None:
        for axis in (top, bottom):
            axis.axvline(watch.alarm, color="tab:red", ls="--", lw=1)
        bottom.text(watch.alarm, 2e-3, f" alarm at row {watch.alarm:,}", fontsize=8)
    figure.savefig(FOLDER / f"monitoring-{name}.png", dpi=110, metadata={"Software": ""})
    plt.close(figure)


if __name__ == "__main__":
    draw("drift", 0.08, 1)
    draw("calm", 0.03, 2)
