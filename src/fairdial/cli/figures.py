"""Positions of the dial as plain data, and as tables."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from fairdial.cli.output import table
from fairdial.errors import FairdialWarning, InfeasibleToleranceWarning, warn
from fairdial.frontier import Frontier
from fairdial.points import Point

MANY = 4  # more groups than this: only the lowest and the highest rate are in the table
MARK, UNREACHED = "*", "no position of the dial has so small a gap"
LARGER = "On new rows the gap may well be larger"
FEW = 1_000  # counted rows of a group, below which its rate is off by some hundredths by chance
SHOWN = (0.0, 0.02, 0.05, 0.1, 0.2)  # tolerances of a model's table, with the free gap
NAMES = {
    "selection_rate": "selected",
    "true_positive_rate": "true positive rate",
    "false_positive_rate": "false positive rate",
}


def plain(value: Any) -> Any:
    """A number or a name as JSON knows it; infinite ones as "inf" and "-inf", NaN as null."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def point_data(point: Point) -> dict[str, Any]:
    """A position of the dial as JSON knows it."""
    frame = point.to_frame()
    groups = [
        {"group": plain(name), "selected": int(chosen)}
        | {column: plain(value) for column, value in line.items()}
        for (name, line), chosen in zip(
            frame.to_dict("index").items(), point.selected.sum(axis=0), strict=True
        )
    ]
    return {
        "tolerance": point.tolerance,
        "criterion": point.criterion.name,
        "accuracy": plain(point.accuracy),
        "gap": point.gap,
        "feasible": point.feasible,
        "setting": plain(point.setting),
        "confidence": point.confidence,
        "certified_gap": plain(point.certified_gap),
        "rows": int(point.rows.sum()),
        "groups": groups,
    }


def shown_tolerances(frontier: Frontier, extra: float) -> list[float]:
    """Tolerances that are worth a line: some round ones, the model's own, and the free gap.

    The last leads to the unconstrained position: the free gap, or the model's own above it.
    """
    free = float(frontier.gap[0])
    return sorted({wish for wish in SHOWN if wish < free} | {max(free, extra), extra})


def positions(frontier: Frontier, tolerances: Sequence[float]) -> list[Point]:
    """Positions of the dial; that one isn't reached is told by its ``feasible`` alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        return list(frontier.at(list(tolerances)))


def frontier_parts(points: Iterable[Point], resting: float) -> list[Any]:
    """A table, one line a tolerance: accuracy, gap, selection rates; and what its marks mean.

    The tolerances are those of :func:`shown_tolerances`: the last position is unconstrained.
    """
    found = list(points)
    first = found[0]
    rates = dict.fromkeys(("selection_rate", first.criterion.rates[0].name))
    if len(first.groups) <= MANY:
        columns = [f"{NAMES[rate]}\n{group}" for rate in rates for group in first.groups]
    else:
        columns = [f"{NAMES[rate]}\n{end}" for rate in rates for end in ("lowest", "highest")]
    lines = []
    for point in found:
        mark = ("" if point.feasible else f" {MARK}") + (" free" if point is found[-1] else "")
        mark += " <-" if point.tolerance == resting else ""
        cells = [share(value) for rate in rates for value in _rates(point, rate)]
        lines.append(
            [f"{point.tolerance:.4g}{mark}", share(point.accuracy), share(point.gap), *cells]
        )
    free = "the least constrained setting" if first.measured else "the unconstrained position"
    marks = {MARK: UNREACHED, "free": free, "<-": "where the dial rests"}
    told = [f"{mark} {text}" for mark, text in marks.items() if any(mark in c[0] for c in lines)]
    return [table(["tolerance", "accuracy", "gap", *columns], lines), *told]


def caveat(frontier: Frontier, folder: Any) -> str:
    """That a gap on these rows is none on new ones, and how a bound is asked for."""
    counted = frontier.counted.tolist()
    fewest = min(counted)
    few = ""
    if fewest < FEW and len(counted) > 1:
        name = frontier.groups[counted.index(fewest)]
        few = f", all the more as the smallest group, {plain(name)!r}, has {fewest:,} that count"
    place = shlex.quote(str(folder))
    return f"{LARGER}{few}: fairdial dial {place} --confidence 0.95 asks for a bound."


def warn_if_constant(points: Sequence[Point]) -> None:
    """Say that a dial has nothing to move: no row, or every one, is selected at every tolerance."""
    from fairdial.methods.card import constant_decision

    alike = constant_decision(points)
    if alike is not None:
        who = "nobody" if alike == "none" else "everybody"
        warn(
            f"the model selects {who}, at every tolerance: its scores don't part the rows. Train "
            "it longer, by another method, or on other columns",
            FairdialWarning,
        )


def _rates(point: Point, rate: str) -> Sequence[float]:
    values = getattr(point, rate)
    return values if len(values) <= MANY else (min(values), max(values))


def share(value: Any) -> str:
    """A share with four digits; what isn't known as a dash."""
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def holds_for_any(frontier: Frontier, confidence: float | None, simultaneous: bool) -> bool | None:
    """Whether a promise is for any tolerance, or one decided on beforehand; None without one."""
    return None if confidence is None else simultaneous or not frontier.beforehand


def sentence(point: Point, any_wish: bool | None) -> str:
    """A position of the dial in words; ``any_wish`` says for which tolerances a promise holds."""
    lowest, highest = point.worst
    accuracy = "" if point.accuracy is None else f", accuracy {point.accuracy:.4f}"
    text = (
        f"Tolerance {point.tolerance:g}: {point.criterion.name.replace('_', ' ')} gap "
        f"{point.gap:.4f} on {point.rows.sum():,} calibration rows{accuracy}; lowest rate "
        f"{lowest}, highest {highest}."
    )
    if not point.feasible:
        text += " It is the smallest gap of the dial."
    if point.certified_gap is None:
        return f"{text} {LARGER}: --confidence asks for a bound."
    when = (
        "also if the tolerance was chosen after looking at the figures."
        if any_wish
        else "if the tolerance was decided on before looking at the figures; --simultaneous is "
        "for one chosen after."
    )
    return text + (
        f" With confidence {point.confidence:g} the gap on new rows is at most "
        f"{point.certified_gap:.4f}, {when}"
    )


def moves(before: Point, after: Point) -> list[dict[str, Any]]:
    """How many calibration rows of each group gain and lose the positive label.

    Thresholds of a group move one way, so the difference of two counts is the number of rows that
    flip. The settings of a measured family decide each in their own way: of them only the balance
    is known.
    """
    change = (after.selected - before.selected).sum(axis=0).tolist()
    found = []
    for group, balance in zip(after.groups, change, strict=True):
        line: dict[str, Any] = {"group": plain(group), "balance": balance}
        if not after.measured:
            line |= {"gained": max(balance, 0), "lost": max(-balance, 0)}
        found.append(line)
    return found
