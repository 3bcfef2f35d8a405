"""Operating points as JSON, tables and sentences."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairdial.cli.output import table
from fairdial.core.frontier import Frontier
from fairdial.core.point import Point
from fairdial.errors import FairdialWarning, InfeasibleToleranceWarning, warn

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]

DIGITS, MOST_DIGITS = 4, 16
FEW_ELIGIBLE = 1_000  # below this, chance moves a group's rate by some hundredths
MOST_GROUPS = 4  # with more groups, a table shows only the lowest and the highest rate
NEW_DATA = "The gap on new data may be larger"
NOT_REACHABLE = "not reachable"
NOT_REACHABLE_MEANS = (
    f"{NOT_REACHABLE.capitalize()}: no operating point has a gap that small; the smallest is shown."
)
ROUND_TOLERANCES = (0.0, 0.02, 0.05, 0.1, 0.2)
RATES = {
    "selection_rate": "selected",
    "true_positive_rate": "true positive rate",
    "false_positive_rate": "false positive rate",
}


def json_value(value: Any) -> Any:
    """Return a value that JSON can hold: infinities as text, NaN as null."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def spell(name: str) -> str:
    """Return the name of a criterion or a column as words."""
    return name.replace("_", " ")


# ---- data --------------------------------------------------------------------------------------


def points_at(frontier: Frontier, tolerances: Sequence[float]) -> list[Point]:
    """Return the points at these tolerances; ``feasible`` says whether each is reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        return list(frontier.at(list(tolerances)))


def point_data(point: Point) -> Json:
    """Return an operating point for JSON."""
    selected = point.selected.sum(axis=0)
    groups = [
        {"group": json_value(name), "selected": int(count)}
        | {column: json_value(value) for column, value in line.items()}
        for (name, line), count in zip(
            point.to_frame().to_dict("index").items(), selected, strict=True
        )
    ]
    return {
        "tolerance": point.tolerance,
        "criterion": point.criterion.name,
        "accuracy": json_value(point.accuracy),
        "gap": point.gap,
        "feasible": point.feasible,
        "setting": json_value(point.setting),
        "confidence": point.confidence,
        "certified_gap": json_value(point.certified_gap),
        "rows": int(point.counts.sum()),
        "groups": groups,
    }


def count_changes(before: Point, after: Point) -> list[Json]:
    """Count the calibration rows of each group that gain and lose the positive label.

    The threshold of a group moves one way, so the difference of two counts is the number of
    changed decisions. In a model family every setting decides for itself: only the balance is
    known.
    """
    change = (after.selected - before.selected).sum(axis=0).tolist()
    found = []
    for group, balance in zip(after.groups, change, strict=True):
        line: Json = {"group": json_value(group), "balance": balance}
        if not after.is_family:
            line |= {"gained": max(balance, 0), "lost": max(-balance, 0)}
        found.append(line)
    return found


def holds_for_any(frontier: Frontier, confidence: float | None, simultaneous: bool) -> bool | None:
    """Return whether a certificate covers tolerances chosen after looking; None without one."""
    if confidence is None:
        return None
    return simultaneous or not frontier.needs_declared_tolerance


# ---- tables ------------------------------------------------------------------------------------


def summarize(
    frontier: Frontier, default: float, folder: Path | str | None = None
) -> tuple[list[Json], list[str | Table]]:
    """Return a frontier at round tolerances and the default one, for JSON and as a table.

    The last point is the unconstrained one: at its own gap, or at the default tolerance above it.
    With the ``folder`` of a new model, warn of constant decisions and add a caveat.
    """
    largest = float(frontier.gap[0])
    below = {tolerance for tolerance in ROUND_TOLERANCES if tolerance < largest}
    points = points_at(frontier, sorted(below | {max(largest, default), default}))
    parts = [_summary_table(points, default)]
    if not all(point.feasible for point in points):
        parts.append(NOT_REACHABLE_MEANS)
    if folder is not None:
        _warn_if_constant(points)
        parts.append(_caveat(frontier, folder))
    return [point_data(point) for point in points], parts


def _summary_table(points: Sequence[Point], default: float) -> str | Table:
    first = points[0]
    rates = dict.fromkeys(("selection_rate", first.criterion.rate.name))
    few = len(first.groups) <= MOST_GROUPS
    names = first.groups if few else ("lowest", "highest")
    columns = [f"{RATES[rate]}\n{name}" for rate in rates for name in names]
    lines = []
    for point in points:
        notes = [] if point.feasible else [NOT_REACHABLE]
        if point is points[-1]:
            notes.append("least constrained" if point.is_family else "unconstrained")
        if point.tolerance == default:
            notes.append("default")
        cells = [digits(value) for rate in rates for value in _rates(point, rate)]
        lines.append(
            [
                f"{point.tolerance:.4g}",
                digits(point.accuracy),
                gap_digits(point),
                *cells,
                ", ".join(notes),
            ]
        )
    return table(["tolerance", "accuracy", "gap", *columns, ""], lines, note=True)


def _rates(point: Point, rate: str) -> Sequence[float]:
    values: Sequence[float] = getattr(point, rate)
    return values if len(values) <= MOST_GROUPS else (min(values), max(values))


def digits(value: float | None) -> str:
    """Return a number with four decimals; a dash for what isn't known."""
    return "-" if value is None or math.isnan(value) else f"{value:.{DIGITS}f}"


def gap_digits(point: Point) -> str:
    """Return the gap, with as many decimals as show that it is above the tolerance, if it is."""
    text = digits(point.gap)
    for decimals in range(DIGITS, MOST_DIGITS + 1):
        text = f"{point.gap:.{decimals}f}"
        if point.feasible or float(text) > point.tolerance:
            break
    return text


# ---- sentences ---------------------------------------------------------------------------------


def describe_point(point: Point, any_tolerance: bool | None) -> str:
    """Describe an operating point; ``any_tolerance`` is that of :func:`holds_for_any`."""
    lowest, highest = point.worst
    accuracy = "" if point.accuracy is None else f", accuracy {point.accuracy:.4f}"
    text = (
        f"Tolerance {point.tolerance:g}: {spell(point.criterion.name)} gap {gap_digits(point)} on "
        f"{point.counts.sum():,} calibration rows{accuracy}; lowest rate: {lowest}, highest rate: "
        f"{highest}."
    )
    if not point.feasible:
        text += " This is the smallest gap that can be reached."
    if point.certified_gap is None:
        return f"{text} {NEW_DATA}: --confidence gives a bound."
    when = (
        "even if the tolerance was chosen after looking at the results."
        if any_tolerance
        else "if the tolerance was chosen before looking at the results; use --simultaneous if it "
        "was chosen after."
    )
    return text + (
        f" With confidence {point.confidence:g} the gap on new data is at most "
        f"{point.certified_gap:.4f}, {when}"
    )


def _caveat(frontier: Frontier, folder: Path | str) -> str:
    """Say that the gap may be larger on new data, and which command bounds it."""
    eligible = frontier.eligible.tolist()
    fewest = min(eligible)
    few = ""
    if fewest < FEW_ELIGIBLE and len(eligible) > 1:
        name = frontier.groups[eligible.index(fewest)]
        few = f" (the smallest group, {json_value(name)!r}, has only {fewest:,} eligible rows)"
    command = f"fairdial dial {shlex.quote(str(folder))} --confidence 0.95"
    return f"{NEW_DATA}{few}; for a bound: {command}"


def warn_if_unreachable(frontier: Frontier, tolerance: float, consequence: str) -> None:
    """Warn that no operating point reaches a tolerance on the calibration rows."""
    (point,) = points_at(frontier, [tolerance])
    if not point.feasible:
        warn(
            f"`tolerance={tolerance:g}` can't be reached on the calibration rows: the smallest "
            f"{spell(point.criterion.name)} gap is {gap_digits(point)}, {consequence}",
            InfeasibleToleranceWarning,
        )


def _warn_if_constant(points: Sequence[Point]) -> None:
    """Warn that every decision is the same at every tolerance."""
    from fairdial.io.card import constant_decision

    same = constant_decision(points)
    if same is not None:
        who = "no one" if same == "none" else "everyone"
        warn(
            f"the model selects {who} at every tolerance: its scores don't separate the rows. "
            "Train it longer, with another method, or on other columns",
            FairdialWarning,
        )
