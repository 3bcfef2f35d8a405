"""Plots; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from fairdial._arrays import Codes, Floats, Scores
from fairdial.errors import MissingExtraError, install_command

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

N_BINS = 80


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError(f"Plots need matplotlib: {install_command('plot')}.") from None
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def draw_frontier(
    gaps: Floats,
    accuracy: Floats,
    title: str,
    *,
    ax: Axes | None = None,
    label: str | None = None,
    band: pd.DataFrame | None = None,
    models: tuple[Floats, Floats] | None = None,
) -> Axes:
    """Plot accuracy against gap, a band by tolerance, and a dot per model (gaps, accuracies)."""
    ax = _axes(ax, (6, 4))
    (line,) = ax.plot(gaps, accuracy, label=label, drawstyle="steps-post")
    if models is not None:
        ax.plot(*models, "o", color=line.get_color(), markersize=4, alpha=0.6)
    if band is not None:
        area = ax.fill_between(band["tolerance"], band["lower"], band["upper"], alpha=0.2)
        area.set(facecolor=line.get_color(), linewidth=0)
        area.set_label("95% bootstrap band" if label is None else f"{label}: 95% bootstrap band")
    ax.set_xlabel(title)
    ax.set_ylabel("accuracy")
    if label is not None:
        ax.legend()
    return ax


def draw_logits(
    logits: Scores,
    codes: Codes,
    groups: tuple[Hashable, ...],
    fairest: Floats,
    *,
    ax: Axes | None = None,
    label: str = "",
) -> Axes:
    """Plot histograms of the groups' logits, shaded between 0 and each fairest threshold."""
    ax = _axes(ax, (6, 3.5))
    finite = logits[np.isfinite(logits)]
    low, high = np.quantile(finite, [0.002, 0.998]).tolist()
    edges = np.linspace(low, high, N_BINS).tolist()
    for a, (group, threshold) in enumerate(zip(groups, fairest, strict=True)):
        color = f"C{a}"
        rows = finite[codes[np.isfinite(logits)] == a]
        ax.hist(rows, edges, density=True, histtype="step", color=color, label=str(group))
        ax.axvline(threshold, color=color, linestyle="--")
        ax.axvspan(min(0.0, threshold), max(0.0, threshold), color=color, alpha=0.12, linewidth=0)
    ax.axvline(0.0, color="0.4", linewidth=0.8)
    ax.set_xlabel("logit\n(dashed: fairest threshold; shaded: range of the dial)")
    ax.set_ylabel("density")
    ax.set_title(label)
    ax.legend()
    return ax
