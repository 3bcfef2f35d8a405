"""Plots; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairdial._arrays import Codes, Floats, Scores
from fairdial.errors import MissingExtraError, install_command

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

N_BINS = 80
PANELS = {  # title of a panel: columns of the history and their labels
    "training loss": {"loss": "prediction", "disparity": "disparity"},
    "distance loss": {"distance": "distance"},
    "validation loss": {"held_loss": "prediction", "held_disparity": "disparity"},
    "validation accuracy": {
        "accuracy": "mean over weights",
        "accuracy_loose": "loosest weight",
        "accuracy_strict": "strictest weight",
    },
    "score that selects the epoch": {"score": "score"},
    "gap on validation rows": {
        "gap": "unconstrained",
        "fairest_gap": "smallest",
        "gap_loose": "loosest weight",
        "gap_strict": "strictest weight",
    },
    "auxiliary residual (1: no effect)": {"aux_residual": "residual"},
}
ONE_SCALE = 20.0  # residuals beyond are drawn on a logarithmic scale


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError(f"Plots need matplotlib: {install_command('plot')}.") from None
    return plt


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    plt = _pyplot()
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


def draw_history(
    history: pd.DataFrame, best_epoch: int | Sequence[int], *, title: str = ""
) -> Figure:
    """Plot learning curves: one panel for each kind of figure that the history has.

    One run has a line for each figure; of several runs, the first figure of each panel is drawn,
    colored by setting. Dots mark selected epochs, a shaded area the warm start.
    """
    panels = {
        name: {column: label for column, label in columns.items() if column in history}
        for name, columns in PANELS.items()
    }
    panels = {name: columns for name, columns in panels.items() if columns}
    n_columns = min(len(panels), 2 if len(panels) == 4 else 3)
    n_lines = -(-len(panels) // n_columns)
    size = (4.0 * n_columns, 2.5 * n_lines + 0.5)
    figure: Figure = _pyplot().figure(figsize=size, layout="constrained")
    places: list[Axes] = list(figure.subplots(n_lines, n_columns, squeeze=False).flat)
    for ax, (name, columns) in zip(places, panels.items(), strict=False):
        ax.set_title(name, fontsize="medium")
        if history.index.nlevels > 1:
            assert isinstance(best_epoch, Sequence)
            _draw_runs(ax, history[next(iter(columns))], best_epoch)
        else:
            _draw_run(ax, history, columns, int(np.max(best_epoch)))
        if "aux_residual" in columns and history["aux_residual"].max() > ONE_SCALE:
            ax.set_yscale("log")
        ax.locator_params(axis="x", integer=True)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in places[len(panels) :]:
        ax.set_visible(False)
    for ax in places[max(len(panels) - n_columns, 0) : len(panels)]:
        ax.set_xlabel("epoch")
    _add_legend(figure, history)
    figure.suptitle(title)
    return figure


def _draw_run(ax: Axes, history: pd.DataFrame, columns: dict[str, str], best_epoch: int) -> None:
    """Plot figures of one run by epoch."""
    marker = "." if len(history) < 3 else "None"
    for column, label in columns.items():
        (line,) = ax.plot(history.index, history[column], marker=marker, label=label)
        ax.plot(best_epoch, history[column].loc[best_epoch], "o", color=line.get_color(), ms=5)
    ax.axvline(best_epoch, color="0.5", linestyle="--", linewidth=0.8)
    n_warm = _count_warm(history)
    if n_warm:
        first = float(history.index[0])
        ax.axvspan(first - 0.5, first + n_warm - 0.5, color="0.92", zorder=0)
    if len(columns) > 1:
        ax.legend(fontsize="small", frameon=False)


def _draw_runs(ax: Axes, figures: pd.Series[float], best_epoch: Sequence[int]) -> None:
    """Plot one figure of several runs by epoch."""
    settings = figures.index.get_level_values(0).unique()
    for i, (setting, epoch) in enumerate(zip(settings, best_epoch, strict=True)):
        run = figures.loc[setting]
        color = _color(i, len(settings))
        ax.plot(run.index, run, color=color, linewidth=1.2)
        ax.plot(epoch, run.loc[epoch], "o", color=color, ms=5)


def _color(i: int, n: int) -> Any:
    return _pyplot().get_cmap("viridis")(0.9 * i / max(n - 1, 1))


def _count_warm(history: pd.DataFrame) -> int:
    """Return the number of epochs of the warm start."""
    return int((history["warm"] == 1).sum()) if "warm" in history else 0


def _add_legend(figure: Figure, history: pd.DataFrame) -> None:
    """Add a legend for all panels: settings, if there are several, selected epoch, warm start."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    several = history.index.nlevels > 1
    settings = history.index.get_level_values(0).unique() if several else []
    handles: list[Any] = [
        Line2D([], [], color=_color(i, len(settings)), label=f"{setting:.3g}")
        for i, setting in enumerate(settings)
    ]
    dashes = "" if several else "--"
    handles.append(
        Line2D([], [], color="0.5", marker="o", ls=dashes, lw=0.8, ms=5, label="selected epoch")
    )
    if _count_warm(history):
        handles.append(Patch(color="0.92", label="warm start"))
    if several:
        figure.legend(handles=handles, title="setting", loc="outside right upper", frameon=False)
    else:
        columns = len(handles)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
