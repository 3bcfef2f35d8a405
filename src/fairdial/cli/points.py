"""Operating points as JSON, tables and sentences."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairdial.cli.output import table
from fairdial.cli.problems import demands_data, demands_table, digits, is_plain, spell
from fairdial.core.frontier import Frontier
from fairdial.core.point import Point
from fairdial.core.rates import SELECTION, Rate
from fairdial.core.searched import SearchedPoints
from fairdial.errors import (
    ConstantDecisionsWarning,
    FairdialWarning,
    InfeasibleToleranceWarning,
    warn,
)

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]

DIGITS, MOST_DIGITS = 4, 16
FEW_ELIGIBLE = 1_000  # below this, chance moves a group's rate by some hundredths
MOST_RATES = 8  # of a table; with more, it shows only the lowest and the highest of each kind
NEW_DATA = "The gap on new data may be larger"
NO_BOUND = "there is no bound for weighted or reused rows, minimum rates and ratios"
NOT_REACHABLE = "not reachable"
NOT_REACHABLE_MEANS = (
    f"{NOT_REACHABLE.capitalize()}: no operating point has a gap that small; the smallest is shown."
)
ROUND_TOLERANCES = (0.0, 0.02, 0.05, 0.1, 0.2)


def json_value(value: Any) -> Any:
    """Return a value that JSON can hold: infinities as text, NaN as null."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def json_number(value: Any) -> int | float:
    """Return a count, or a sum of weights."""
    number = float(value)
    return int(number) if number.is_integer() else number


# ---- data --------------------------------------------------------------------------------------


def points_at(frontier: Frontier, tolerances: Sequence[float]) -> list[Point]:
    """Return the points at these tolerances; ``feasible`` says whether each is reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        warnings.simplefilter("ignore", ConstantDecisionsWarning)
        return list(frontier.at(list(tolerances)))


def point_data(point: Point) -> Json:
    """Return an operating point for JSON."""
    selected = point.selected.sum(axis=0)
    lines = point.to_frame().to_dict("index")
    if point.classes is not None:
        groups = [
            {"class": json_value(name), "group": json_value(group)}
            | {column: json_value(value) for column, value in line.items()}
            for (name, group), line in lines.items()
        ]
    else:
        of_columns = [grouping.pool(selected) for grouping in point.criterion.groupings]
        counts = [count for counts in (selected, *of_columns) for count in counts]
        groups = [
            {"group": json_value(name), "selected": json_number(count)}
            | {column: json_value(value) for column, value in line.items()}
            for (name, line), count in zip(lines.items(), counts, strict=True)
        ]
    if point.lottery is not None:
        for line, thresholds, shares in zip(groups, *point.lottery, strict=False):
            line["lottery"] = [
                {"threshold": json_value(threshold), "probability": share}
                for threshold, share in zip(thresholds.tolist(), shares.tolist(), strict=True)
                if share > 0
            ]
    return {
        "tolerance": point.tolerance,
        "criterion": point.criterion.name,
        "accuracy": json_value(point.accuracy),
        "objective": point.problem.objective.name,
        "value": json_value(point.value),
        "gap": json_value(point.gap),
        "gaps": point.gaps,
        "demands": demands_data(point),
        "selected_share": None
        if point.classes is not None
        else float(point.selected.sum() / point.counts.sum()),
        "feasible": point.feasible,
        "setting": json_value(point.setting),
        "confidence": point.confidence,
        "certified_gap": json_value(point.certified_gap),
        "rows": json_number(point.counts.sum()),
        "groups": groups,
    }


def count_changes(before: Point, after: Point) -> list[Json]:
    """Count the calibration rows of each group that gain and lose the positive label.

    A group has one threshold, which moves one way between two points, so the difference of two
    counts is the number of changed decisions. In a model family every setting decides for itself,
    in a lottery every row, and in a blind dial members of a group move both ways: only the balance
    is known.
    """
    change = (after.selected - before.selected).sum(axis=0).tolist()
    found = []
    if after.classes is not None:  # of each class
        moved = (after.selected - before.selected).ravel().tolist()
        cells = product(after.classes, after.groups)
        return [
            {"class": json_value(name), "group": json_value(group), "balance": json_number(balance)}
            for (name, group), balance in zip(cells, moved, strict=True)
        ]
    for group, balance in zip(after.groups, map(json_number, change), strict=True):
        line: Json = {"group": json_value(group), "balance": balance}
        if after.has_thresholds and after.lottery is None:
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
    largest = min(_largest_gap(frontier), 1.0)
    below = {tolerance for tolerance in ROUND_TOLERANCES if tolerance < largest}
    points = points_at(frontier, sorted(below | {max(largest, default), default}))
    parts: list[str | Table] = [_summary_table(points, default)]
    here = points_at(frontier, [default])[0]
    if not is_plain(frontier.criterion) and len(here.gaps) > MOST_RATES:
        parts += [f"Demands at tolerance {default:g}:", demands_table(here)]
    if not all(point.feasible for point in points):
        parts.append(NOT_REACHABLE_MEANS)
    if folder is not None:
        _warn_if_constant(points)
        parts.append(_caveat(frontier, folder))
    return [point_data(point) for point in points], parts


def _largest_gap(frontier: Frontier) -> float:
    """Return the gap of the least constrained point, without listing searched points."""
    points = frontier.points
    if isinstance(points, SearchedPoints) and frontier.problem.randomize is None:
        return points.gap_at(points.unconstrained)
    return float(frontier.gap[0])


def _summary_table(points: Sequence[Point], default: float) -> str | Table:
    first = points[0]
    plain = is_plain(first.criterion)
    rates = list(dict.fromkeys((SELECTION, *(first.criterion.rates if plain else ()))))
    rates = [] if first.classes is not None else rates
    few = len(first.groups) * len(rates) <= MOST_RATES
    names = first.groups if few else ("lowest", "highest")
    columns = [f"{title(rate)}\n{name}" for rate in rates for name in names]
    gaps = [] if plain or len(first.gaps) > MOST_RATES else list(first.gaps)
    objective = first.problem.objective
    extra = [] if objective.name == "accuracy" else [objective.title]
    lines = []
    for point in points:
        notes = [] if point.feasible else [NOT_REACHABLE]
        if point is points[-1]:
            bound = point.is_family or any(not d.scale for d in point.criterion.demands)
            notes.append("least constrained" if bound else "unconstrained")
        if point.tolerance == default:
            notes.append("default")
        same = decision_of_all(point)
        if same is not None:
            notes.append(f"selects {same}")
        lines.append(
            [
                f"{point.tolerance:.4g}",
                digits(point.accuracy),
                *([digits(point.value)] if extra else []),
                gap_digits(point),
                *(digits(point.gaps[name]) for name in gaps),
                *(digits(value) for rate in rates for value in _rates(point, rate, few)),
                ", ".join(notes),
            ]
        )
    heads = [f"gap\n{spell(name)}" for name in gaps]
    return table(["tolerance", "accuracy", *extra, "gap", *heads, *columns, ""], lines, note=True)


def decision_of_all(point: Point) -> str | None:
    """Return "no one" or "everyone" if all rows have the same decision; else None."""
    if point.classes is not None:
        return None
    share = point.selected.sum() / point.counts.sum()
    return {0.0: "no one", 1.0: "everyone"}.get(float(share))


def title(rate: Rate) -> str:
    """Return the name of a rate at the head of a column."""
    return "selected" if rate == SELECTION else spell(rate.name)


def _rates(point: Point, rate: Rate, few: bool) -> Sequence[float]:
    values: list[float] = rate.of(point.selected, point.counts).tolist()
    if few:
        return values
    known = [value for value in values if value == value] or [math.nan]
    return min(known), max(known)


def gap_digits(point: Point) -> str:
    """Return the gap, with as many decimals as show that it is above the tolerance, if it is."""
    text = digits(point.gap)
    if not math.isfinite(point.gap):
        return "inf"  # a minimum or maximum isn't met
    for decimals in range(DIGITS, MOST_DIGITS + 1):
        text = f"{point.gap:.{decimals}f}"
        if point.feasible or float(text) > point.tolerance:
            break
    return text


# ---- sentences ---------------------------------------------------------------------------------


def can_certify(frontier: Frontier) -> bool:
    """Return whether the calibration rows support statements about new rows at all."""
    return frontier.can_certify


def describe_point(frontier: Frontier, point: Point, any_tolerance: bool | None) -> str:
    """Describe an operating point; ``any_tolerance`` is that of :func:`holds_for_any`."""
    lowest, highest = point.worst
    accuracy = "" if point.accuracy is None else f", accuracy {point.accuracy:.4f}"
    objective = point.problem.objective
    if objective.name != "accuracy" and point.value is not None:
        accuracy += f", {objective.title} {point.value:.4f}"
    text = (
        f"Tolerance {point.tolerance:g}: {spell(point.criterion.name)} gap {gap_digits(point)} on "
        f"{point.n_rows}{accuracy}; lowest rate: {lowest}, highest rate: "
        f"{highest}."
    )
    budget = point.problem.budget
    if budget is not None:
        share = point.selected.sum() / point.counts.sum()
        limit = f"{'' if budget.exact else 'at most '}{100 * budget.share:.4g}%"
        text += f" {100 * share:.4g}% of all rows are selected (budget: {limit})."
    if point.lottery is not None:
        text += " A hash of each row draws its threshold; these numbers are expected ones."
    if not point.feasible:
        text += " This is the smallest gap that can be reached."
    if point.certified_gap is None:
        bound = ": --confidence gives a bound" if can_certify(frontier) else f"; {NO_BOUND}"
        return f"{text} {NEW_DATA}{bound}."
    return f"{text} {describe_bound(frontier, point, any_tolerance)}"


def describe_bound(frontier: Frontier, point: Point, any_tolerance: bool | None) -> str:
    """Describe what a certified point says about new rows, and on which condition."""
    when = "if the tolerance was chosen before looking at the results"
    when += "." if frontier.has_prices else "; use --simultaneous if it was chosen after."
    if any_tolerance:
        when = "even if the tolerance was chosen after looking at the results."
    return (
        f"With confidence {point.confidence:g} the gap on new data is at most "
        f"{point.certified_gap:.4f}, {when}"
    )


def _caveat(frontier: Frontier, folder: Path | str) -> str:
    """Say that the gap may be larger on new data, and which command bounds it."""
    eligible = frontier.eligible.tolist()
    fewest = min(eligible)
    few = ""
    if fewest < FEW_ELIGIBLE and len(eligible) > 1:
        name = frontier.groups[eligible.index(fewest)]
        few = f" (the smallest group, {json_value(name)!r}, has only {fewest:,.0f} eligible rows)"
    if not can_certify(frontier):
        return f"{NEW_DATA}{few}; {NO_BOUND}."
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


def warn_if_useless(frontier: Frontier, tolerance: float) -> None:
    """Warn that a tolerance is reached only by deciding the same for everybody."""
    (point,) = points_at(frontier, [tolerance])
    same = decision_of_all(point)
    if same is not None and _largest_gap(frontier) > tolerance:
        warn(
            f"at `tolerance={tolerance:g}` the thresholds select {same}: choose a larger tolerance "
            "or calibrate on more rows",
            ConstantDecisionsWarning,
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
