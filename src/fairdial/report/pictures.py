"""The pictures of a report as SVG: bars with a bracket for the gap, and the frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fairdial.report.words import FEW, called, limit, markup, percent, points

Json = Mapping[str, Any]

WIDTH, BAR, ROW, HEAD, ROOM = 320, 24, 46, 30, 60
MOST_BARS = 24  # groups in a picture
SPAN = 0.2  # of the accuracy axis at least, so that small differences look small
TICK = 0.05


def bars(
    groups: Sequence[Json], rates: Sequence[float | None], sizes: Sequence[float], title: str,
    demand: Json, gap: float | None, top: float, note: str = "",
) -> str:  # fmt: skip
    """Return a bar for each group's rate, with a bracket for the gap or a line for a limit.

    ``top`` is the rate at the right end, which pictures that are compared share.
    """
    scale = (WIDTH - ROOM) / top
    bottom = HEAD + ROW * len(groups)
    known = [rate for rate in rates if rate is not None]
    parts = [f'<text x="0" y="14" class="head">{markup(title)}</text>']
    spread, low, high = demand["spread"], min(known, default=0.0), max(known, default=0.0)
    if spread in ("difference", "ratio") and len(known) > 1:
        x, wide = low * scale, max((high - low) * scale, 1.0)
        parts.append(
            f'<rect x="{x:.1f}" y="{HEAD - 6}" width="{wide:.1f}" height="{bottom - HEAD + 6}" '
            'class="zone"/>'
        )
    for i, (group, rate, size) in enumerate(zip(groups, rates, sizes, strict=True)):
        y = HEAD + ROW * i
        few = " few" if size < FEW else ""
        parts.append(
            f'<text x="0" y="{y + 9}" class="name">{markup(_short(called(group)))} '
            f'<tspan class="quiet" dx="6">{size:,.0f} people</tspan></text>'
        )
        if rate is None:
            parts.append(f'<text x="0" y="{y + 31}" class="quiet">nobody is eligible</text>')
            continue
        parts.append(
            f'<rect x="0" y="{y + 15}" width="{max(rate * scale, 0.5):.1f}" height="{BAR}" '
            f'class="bar{few}"/><text x="{max(rate, 0) * scale + 5:.1f}" y="{y + 32}" '
            f'class="value">{percent(rate)}</text>'
        )
    if spread in ("difference", "ratio") and len(known) > 1:
        x, end = low * scale, max(high * scale, low * scale + 1)
        parts.append(
            f'<path d="M{x:.1f} {bottom} v7 H{end:.1f} v-7" class="bracket"/>'
            f'<text x="0" y="{bottom + 24}" class="gap">{markup(_gap(spread, gap, low, high))}'
            f"{markup(note)}</text>"
        )
    elif spread in ("minimum", "maximum"):
        x = demand["level"] * scale
        word = "at least" if spread == "minimum" else "at most"
        parts.append(
            f'<path d="M{x:.1f} {HEAD - 4} V{bottom}" class="level"/>'
            f'<text x="0" y="{bottom + 24}" class="gap">The line: {word} '
            f"{percent(demand['level'])}{markup(note)}</text>"
        )
    spoken = ", ".join(
        f"{called(group)} {percent(rate)}" for group, rate in zip(groups, rates, strict=True)
    )
    return _svg(WIDTH, bottom + 32, f"{title}: {spoken}", parts)


def top_of(rates: Sequence[float | None]) -> float:
    """Return the rate at the right end of pictures with these bars: a round one above them.

    Examples
    --------
    >>> from fairdial.report.pictures import top_of
    >>> top_of([0.081, 0.26]), top_of([None, 0.95])
    (0.4, 1.0)
    """
    highest = max((rate for rate in rates if rate is not None), default=0.0)
    return min(1.0, math.ceil(10 * highest + 0.5) / 10)


def _gap(spread: str, gap: float | None, low: float, high: float) -> str:
    if spread == "ratio":
        return f"The lowest is {percent(low / high if high else 1.0)} of the highest"
    return f"Gap: {points(high - low if gap is None else gap)} points"


def _short(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def frontier(curve: Sequence[Json], used: Json) -> str | None:
    """Return accuracy by limit; None if accuracy is unknown or there is nothing to set."""
    known = [(point["tolerance"], point["accuracy"]) for point in curve]
    if len(known) < 2 or known[-1][0] <= 0 or any(accuracy is None for _, accuracy in known):
        return None
    wide, high, left, top = 560, 230, 46, 12
    end = max(known[-1][0], used["tolerance"])
    accuracies = [accuracy for _, accuracy in known]
    middle = (min(accuracies) + max(accuracies)) / 2
    room = max(SPAN, (max(accuracies) - min(accuracies)) * 1.2) / 2
    low = max(0.0, math.floor((middle - room) / TICK) * TICK)
    top_value = min(1.0, math.ceil((middle + room) / TICK) * TICK)

    def place(tolerance: float, accuracy: float) -> tuple[float, float]:
        x = left + (wide - left - 10) * tolerance / end
        y = top + high * (top_value - accuracy) / (top_value - low)
        return x, y

    parts = []
    for i in range(round((top_value - low) / TICK) + 1):
        value = low + i * TICK
        y = place(0, value)[1]
        parts.append(
            f'<path d="M{left} {y:.1f} H{wide - 10}" class="grid"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" class="tick end">{100 * value:.0f}%</text>'
        )
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if end <= 10 * s)
    for i in range(int(end / step + 1e-9) + 1):
        x = place(i * step, low)[0]
        parts.append(
            f'<text x="{x:.1f}" y="{top + high + 18}" class="tick middle">'
            f"{limit(i * step).removesuffix('.0')}</text>"
        )
    path = "M" + " L".join("{:.1f} {:.1f}".format(*place(*pair)) for pair in known)
    parts.append(f'<path d="{path}" class="curve"/>')
    text = "Accuracy by the largest gap allowed"
    if used["accuracy"] is not None:
        x, y = place(used["tolerance"], used["accuracy"])
        parts.append(
            f'<path d="M{x:.1f} {top} V{top + high}" class="used"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" class="mark"/>'
        )
        text += f"; at the limit in use, {percent(used['accuracy'])}"
    parts.append(
        f'<text x="{(wide + left) / 2}" y="{top + high + 38}" class="tick middle">'
        "Largest gap allowed, in percentage points (the dot: the limit in use)</text>"
    )
    return _svg(wide, top + high + 46, text, parts)


def _svg(wide: float, high: float, text: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img" '
        f'aria-label="{markup(text)}">{"".join(parts)}</svg>'
    )
