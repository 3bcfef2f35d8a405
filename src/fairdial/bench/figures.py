"""Draw the figures of a report: pure functions of curves, with the same bytes each time."""

from __future__ import annotations

import io
import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import ConvexHull

from fairdial._arrays import Floats
from fairdial.bench.comparisons import (
    MATCHED,
    POINTS,
    QUANTITIES,
    Claim,
    KeyFigures,
    at_tolerances,
)
from fairdial.bench.curves import Histogram, Panel, Study
from fairdial.bench.hypervolume import sensitivity
from fairdial.bench.statistics import Paired, corrected, paired
from fairdial.errors import MissingExtraError, install_command

try:
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    from PIL import Image  # which matplotlib needs
except ModuleNotFoundError:
    raise MissingExtraError(f"reports need matplotlib: {install_command('bench')}.") from None

# Okabe and Ito's colors that are visible on white and on black.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
GRAY = "#8c8c8c"
INK, FAINT = "#1d1d20", "#d9d9dd"  # replaced by the page's colors in HTML
HANDLE, LETTER, LINE, MOST_COLUMNS = 0.6, 0.068, 0.2, 6  # of a legend; in inches
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.axisbelow": True,
    "svg.hashsalt": "fairdial",
    "pdf.fonttype": 42,
    "text.parse_math": False,
}
MANY_POINTS = 6.0  # of accuracy; beyond, the axis is logarithmic outside [-1, 1]
TICKS = (-30, -10, -3, -1, -0.5, 0, 0.5, 1, 3, 10, 30)
WIDTH = 3.7  # of a panel, in inches
DPI = 110
SCORE_BINS = 64
AREAS = ("#f3d88a", "#9fd8c4")  # of HV and of inverted HV
CORNERS = np.linspace(0.0, 2 * np.pi, 24, endpoint=False)


# ---- the look of a method ----------------------------------------------------------------------


def looks(study: Study) -> dict[str, dict[str, Any]]:
    """Return color, marker and dash of each method, for all figures; null methods are gray."""
    found: dict[str, dict[str, Any]] = {}
    shown = [m for m in study.plan.methods if m.seed_offset == 0]
    for i, method in enumerate(shown):
        dash = DASHES[i // len(COLORS) % len(DASHES)]
        found[method.name] = {
            "color": COLORS[i % len(COLORS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": dash,
        }
    for method in study.plan.methods:
        found.setdefault(method.name, {"color": GRAY, "marker": "", "linestyle": "--"})
    for name, look in found.items():  # matplotlib's legends skip names that start with _
        look["label"] = f" {name}" if name.startswith("_") else name
    return found


def _sheet(rows: int, columns: int, height: float) -> tuple[Figure, Any]:
    width = max(WIDTH * columns, 5.2)
    figure = Figure(figsize=(width, height * rows + 0.2), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in np.ravel(axes):
        ax.locator_params(axis="x", nbins=5)
    return figure, axes


def _legend(figure: Figure, axes: Any, look: dict[str, Any]) -> None:
    """Add one legend below all panels, in the plan's order."""
    found: dict[str, Any] = {}
    for ax in np.ravel(axes):
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    place = {entry["label"]: i for i, entry in enumerate(look.values())}
    found = dict(sorted(found.items(), key=lambda item: place.get(item[0], len(place))))
    if found:
        widest = HANDLE + LETTER * max(map(len, found))
        columns = min(len(found), max(1, int(figure.get_figwidth() / widest)), MOST_COLUMNS)
        figure.set_figheight(figure.get_figheight() + LINE * -(-len(found) // columns))
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns)


# ---- figures -----------------------------------------------------------------------------------


def draw_tradeoffs(study: Study, parts: list[KeyFigures]) -> Figure:
    """Draw mean accuracy and gap by operating point, with a band of one standard error.

    Above: everything. Below: the region of the baseline and the main method.
    """
    figure, axes = _sheet(2, len(parts), 2.7)
    look = looks(study)
    for column, part in zip(axes.T, parts, strict=True):
        means = {}
        for name in part.panel.compared:
            points = np.stack([trial.points for trial in part.panel.of(name)])  # (seeds, n, 2)
            means[name] = mean = points.mean(axis=0)[:, ::-1]  # gap, accuracy
            for ax in column:
                if len(points) > 1:
                    error = points.std(axis=0, ddof=1)[:, ::-1] / np.sqrt(len(points))
                    ax.add_patch(_ribbon(mean, error, look[name]["color"]))
                ax.plot(*mean.T, **look[name])
        near = [means[n] for n in (study.plan.baseline, study.plan.main) if n in means]
        _zoom(column[0], column[1], np.concatenate(near or [*means.values()]))
        column[0].set(title=part.panel.title, ylabel="accuracy")
        column[1].set(xlabel="gap on test rows", ylabel="accuracy, enlarged")
    _legend(figure, axes, look)
    return figure


def _zoom(whole: Any, ax: Any, points: Floats) -> None:
    """Show these points and a margin, within the limits of the whole."""
    low, high = points.min(axis=0), points.max(axis=0)
    margin = np.maximum(0.25 * (high - low), 0.002)
    (left, right), (bottom, top) = whole.get_xlim(), whole.get_ylim()
    ax.set_xlim(max(low[0] - margin[0], left), min(high[0] + margin[0], right))
    ax.set_ylim(max(low[1] - 2 * margin[1], bottom), min(high[1] + margin[1], top))


def _ribbon(centers: Floats, radii: Floats, color: str) -> PathPatch:
    """Return the union of ellipses around points and of the areas between neighbors."""
    least = 1e-6
    circle = np.column_stack((np.cos(CORNERS), np.sin(CORNERS)))
    rings = centers[:, None] + np.maximum(radii, least)[:, None] * circle  # (n, corners, 2)
    outlines = []
    for first, second in itertools.pairwise(rings):
        both = np.concatenate((first, second))
        hull = both[ConvexHull(both).vertices]  # counterclockwise, so overlaps fill once
        outlines.append(Path(np.concatenate((hull, hull[:1])), closed=True))
    shape = Path.make_compound_path(*outlines)
    return PathPatch(shape, facecolor=color, edgecolor="none", alpha=0.16)


def draw_tolerances(study: Study, parts: list[KeyFigures]) -> Figure:
    """Draw accuracy minus the baseline's, and the gap on test rows, at common tolerances."""
    figure, axes = _sheet(2, len(parts), 2.5)
    look, base = looks(study), study.plan.baseline
    for (top, bottom), part in zip(axes.T, parts, strict=True):
        panel = part.panel
        accuracy, gaps = at_tolerances(panel, 0), at_tolerances(panel, 1)
        tolerances = np.array([*accuracy])
        top.axhline(0.0, color=INK, linewidth=0.8)
        names = panel.compared
        nulls = [null for null, twin in panel.nulls if twin == base]
        for name in [n for n in (*names, *nulls) if n != base and base in names]:
            found = [paired(POINTS * (values[name] - values[base])) for values in accuracy.values()]
            _banded(top, tolerances, found, look[name])
        for name in names:
            found = [paired(values[name]) for values in gaps.values()]
            _banded(bottom, tolerances, found, look[name])
        bottom.plot(
            tolerances, tolerances, color=INK, linewidth=0.9, linestyle=":", label="tolerance"
        )
        top.set(title=panel.title, ylabel=f"points to {_short(base)}")
        if max(map(abs, top.get_ylim())) > MANY_POINTS:
            top.set_yscale("symlog", linthresh=1.0, linscale=1.5)
            inside = [tick for tick in TICKS if top.get_ylim()[0] <= tick <= top.get_ylim()[1]]
            top.set_yticks(inside, labels=[f"{tick:g}" for tick in inside])
            top.minorticks_off()
        bottom.set(xlabel="tolerance on calibration rows", ylabel="gap on test rows")
    _legend(figure, axes, look)
    return figure


def _short(name: str) -> str:
    return name if len(name) <= 16 else "the baseline"


def _banded(ax: Any, x: ArrayLike, found: list[Paired], look: dict[str, Any]) -> None:
    mean = np.array([f.mean for f in found])
    error = np.nan_to_num([f.error for f in found])
    ax.fill_between(x, mean - error, mean + error, color=look["color"], alpha=0.13, linewidth=0)
    ax.plot(x, mean, **{**look, "marker": ""})


def draw_logits(study: Study, parts: list[KeyFigures]) -> Figure:
    """Draw how scores are distributed in each group, for the baseline and the main method."""
    names = list(dict.fromkeys((study.plan.baseline, study.plan.main)))
    figure, axes = _sheet(len(names), len(parts), 2.3)
    for column, part in zip(axes.T, parts, strict=True):
        found = {name: _histograms(part.panel, name) for name in names}
        ends = [h.edges[[0, -1]] for each in found.values() for h in each]
        if not ends:
            continue
        edges = np.linspace(np.min(ends), np.max(ends), SCORE_BINS + 1)
        for ax, (name, histograms) in zip(column, found.items(), strict=True):
            _distributions(ax, histograms, edges)
            ax.set(title=f"{part.panel.title}: {name}", yticks=[], xlim=(edges[0], edges[-1]))
            ax.set_ylim(bottom=0.0)
            ax.grid(axis="y", visible=False)
        column[-1].set_xlabel("score (log-odds)")
        if any(found.values()):
            column[0].legend(loc="upper right")
    for ax in axes[:, 0]:
        ax.set_ylabel("density")
    return figure


def _histograms(panel: Panel, name: str) -> list[Histogram]:
    return [trial.histogram for trial in panel.of(name) if trial.histogram is not None]


def _distributions(ax: Any, histograms: list[Histogram], edges: Floats) -> None:
    """Draw mean densities over trials, filled for positive labels, and mean fairest thresholds."""
    ax.axvline(0.0, color=INK, linewidth=0.8)
    if not histograms:
        ax.text(0.5, 0.5, "no scores in the records", ha="center", transform=ax.transAxes)
        return
    densities = np.mean([_density(each, edges) for each in histograms], axis=0)  # (2, K, bins)
    fairest = np.mean([each.fairest for each in histograms], axis=0)
    for a, group in enumerate(histograms[0].groups):
        color = COLORS[a % len(COLORS)]
        ax.stairs(densities[:, a].sum(axis=0), edges, color=color, linewidth=1.4, label=group)
        ax.stairs(densities[1, a], edges, color=color, fill=True, alpha=0.25, linewidth=0)
        ax.axvline(fairest[a], color=color, linestyle="--", linewidth=1.2)


def _density(histogram: Histogram, edges: Floats) -> Floats:
    """Return the density of each label and group, (2, K, bins), between other edges."""
    counts = histogram.counts
    below = np.concatenate((np.zeros((*counts.shape[:2], 1)), counts.cumsum(axis=-1)), axis=-1)
    found = np.empty((*counts.shape[:2], len(edges) - 1))
    for y, a in np.ndindex(counts.shape[:2]):
        found[y, a] = np.diff(np.interp(edges, histogram.edges, below[y, a]))
    return np.asarray(found / (counts.sum(axis=(0, -1))[:, None] * np.diff(edges)))


def draw_areas(study: Study, parts: list[KeyFigures]) -> Figure:
    """Draw what HV and inverted HV measure, for the first split of baseline and main method."""
    names = list(dict.fromkeys((study.plan.baseline, study.plan.main)))
    figure, axes = _sheet(len(names), len(parts), 2.5)
    for column, part in zip(axes.T, parts, strict=True):
        reference = part.volumes.reference
        out, into = 1 / reference.steps, 1 / reference.inverted_steps
        for ax, name in zip(column, names, strict=True):
            trials = part.panel.of(name)
            if trials:
                points = reference.normalize(trials[0].points)
                _area(ax, points, (-out, 1 + out), AREAS[0], "HV")
                _area(ax, points, (1 + into, -into), AREAS[1], "inverted HV")
                ax.plot(*points.T[::-1], "o", color=INK, markersize=3.5)
            ax.set(title=f"{part.panel.title}: {name}", ylabel="accuracy, normalized")
        column[-1].set_xlabel("gap, normalized")
    axes[0, 0].legend(loc="center")
    return figure


def _area(ax: Any, points: Floats, worst: tuple[float, float], color: str, label: str) -> None:
    """Fill the union of the rectangles between points and a reference (accuracy, gap)."""
    sign = 1.0 if worst[0] <= points[:, 0].min() else -1.0  # HV, or inverted HV
    inside = points[np.all(sign * (points - worst) * (1, -1) > 0, axis=1)]
    corners = [
        Path(np.array([(g, a), (g, worst[0]), (worst[1], worst[0]), (worst[1], a), (g, a)]))
        for a, g in inside
    ]
    for corner in corners:
        ax.add_patch(PathPatch(corner, facecolor=color, edgecolor="none"))
    ax.plot(worst[1], worst[0], "s", color=color, label=label, markersize=6, mec=INK, mew=0.6)


def draw_sensitivity(study: Study, parts: list[KeyFigures]) -> Figure:
    """Draw HV and inverted HV against the reference point; a star marks the report's value."""
    figure, axes = _sheet(2, len(parts), 2.5)
    look = looks(study)
    for column, part in zip(axes.T, parts, strict=True):
        reference = part.volumes.reference
        found = sensitivity(part.panel, reference)
        main = (part.volumes.hv, part.volumes.inverted)
        steps = (reference.steps, reference.inverted_steps)
        labels = ("HV (higher is better)", "inverted HV (lower is better)")
        for ax, means, values, at, label in zip(column, found, main, steps, labels, strict=True):
            for name in part.panel.compared:
                line = {**look[name], "marker": ""}
                ax.plot(means.index, means[name], **line)
                ax.plot(at, values[name].mean(), "*", color=line["color"], markersize=9)
            ax.set_xscale("log")
            ax.set_xticks([2, 5, 10, 20, 40, 80], labels=["2", "5", "10", "20", "40", "80"])
            ax.minorticks_off()
            ax.set_ylabel(label)
        column[0].set_title(part.panel.title)
        column[1].set_xlabel("N - 1 = N' - 1 (closer reference point to the right)")
    _legend(figure, axes, look)
    return figure


def draw_differences(study: Study, parts: list[KeyFigures], claims: list[Claim]) -> Figure:
    """Draw differences from the baseline on the key quantities, with null methods.

    Thick lines are plain 95% intervals, thin lines corrected ones.
    """
    base = study.plan.baseline
    lines = [_differing(part, claims, base) for part in parts]
    height = 0.26 * max((len(names) for names, _ in lines), default=1) + 0.9
    figure, axes = _sheet(len(parts), len(QUANTITIES), height)
    figure.set_figwidth(8.4)
    look = looks(study)
    for row, part, (names, find) in zip(axes, parts, lines, strict=True):
        for ax, quantity in zip(row, QUANTITIES, strict=True):
            ax.axvline(0.0, color=INK, linewidth=0.8)
            for place, name in enumerate(names):
                found = find(quantity, name)
                color, marker = look[name]["color"], look[name]["marker"] or "o"
                ax.plot(found.mean, place, marker, color=color)
                if found.seeds > 1:
                    for ends, width in ((corrected(found), 1.0), (found, 2.4)):
                        line = {"color": color, "linewidth": width, "solid_capstyle": "butt"}
                        ax.plot([ends.low, ends.high], [place, place], "-", **line)
            ax.set_yticks(range(len(names)), labels=names if ax is row[0] else [""] * len(names))
            ax.set_ylim(len(names) - 0.5, -0.5)
            ax.grid(axis="y", visible=False)
            ax.set_xlabel("accuracy at matched gaps, points" if quantity == MATCHED else quantity)
        row[1].set_title(f"{part.panel.title}: difference from {_short(base)}, 95% intervals")
    return figure


def _differing(
    part: KeyFigures, claims: list[Claim], base: str
) -> tuple[list[str], Callable[[str, str], Paired]]:
    """Return the methods with a difference from the baseline, and a function that finds it."""
    known = {
        (c.quantity, c.a): c.found for c in claims if c.panel == part.panel.title and c.b == base
    }
    nulls = [null for null, twin in part.panel.nulls if twin == base]
    names = list(dict.fromkeys(a for _, a in known)) + nulls

    def find(quantity: str, name: str) -> Paired:
        if name in nulls:
            return part.difference(quantity, name, base)
        return known[quantity, name]

    return names, find


# ---- files -------------------------------------------------------------------------------------


def render(draw: Callable[[], Figure]) -> dict[str, bytes]:
    """Return a figure as PNG, PDF and SVG, without dates and versions."""
    found = {}
    with style.context(["default", STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # missing letters
        figure = draw()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once for all files
        for kind, metadata in (
            ("png", {"Software": None}),
            ("pdf", {"Creator": None, "Producer": None, "CreationDate": None}),
            ("svg", {"Creator": None, "Date": None, "Format": None, "Type": None}),
        ):
            buffer = io.BytesIO()
            transparent = kind == "svg"
            figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata, transparent=transparent)
            found[kind] = buffer.getvalue()
    return found | {"png": _with_palette(found["png"])}


def _with_palette(png: bytes) -> bytes:
    """Return an image with 256 colors, a third of the size."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(256).save(buffer, "png", optimize=True)
    return buffer.getvalue()


def inline(svg: bytes, name: str) -> str:
    """Return an SVG to embed in a page: with unique ids, the page's colors and no links."""
    text = svg.decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', text)[1])  # type: ignore[index]
    size = f' style="min-width: {0.85 * width:.0f}pt; max-width: {1.25 * width:.0f}pt"'
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', rf"\1{size}", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    return text.replace(INK, "currentColor").replace(FAINT, "var(--line)")
