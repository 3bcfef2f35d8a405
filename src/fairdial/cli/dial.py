"""``fairdial dial``: show what a tolerance does, and who is affected."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from fairdial.cli.points import Json
    from fairdial.core.point import Point


@click.command()
@options.MODEL
@options.TOLERANCE
@options.certifying
@click.option(
    "--from",
    "before",
    type=options.Fraction(0, 1),
    help="Tolerance to compare with. [default: the model's default tolerance]",
)
@click.option(
    "--rising",
    is_flag=True,
    help="Also show the answer in which no one loses a positive decision (leveling up).",
)
@click.option(
    "--bound",
    is_flag=True,
    help="Also show what the best mixture of thresholds could reach: the price of deciding "
    "without a lottery.",
)
@click.option("--set", "keep", is_flag=True, help="Make --tolerance the model's default.")
@options.KEY
@options.TRUST
@options.reporting
def dial(
    folder: Path,
    tolerance: float | None,
    confidence: float | None,
    simultaneous: bool,
    before: float | None,
    rising: bool,
    bound: bool,
    keep: bool,
    key_file: Path | None,
    trust: tuple[str, ...],
    show: Output,
) -> None:
    """Show what MODEL does at a tolerance on its calibration rows, and whose decision changes.

    Nothing is trained. --set stores the tolerance in the model's folder; a confidence isn't stored,
    so pass it each time. A running server has its own dial.

    \b
    fairdial dial model --tolerance 0.05
    fairdial dial model --tolerance 0.05 --confidence 0.95 --from 0.1
    fairdial dial model --tolerance 0.1 --confidence 0.95 --simultaneous
    fairdial dial model --tolerance 0.05 --rising --bound
    """
    from fairdial.cli.models import check_stays_signed, open_model, read_frontier, sizing_refusals
    from fairdial.cli.points import (
        count_changes,
        describe_point,
        holds_for_any,
        point_data,
        points_at,
    )
    from fairdial.cli.problems import (
        compare_rising,
        demands_table,
        describe_nesting,
        is_plain,
        problem_data,
        rising_point,
    )

    if keep and (tolerance is None or confidence is not None):
        raise InvalidInputError("keep", "be used with `tolerance` and without `confidence`")
    summary, frontier = read_frontier(folder, key_file)
    default = summary.tolerance
    chosen = default if tolerance is None else tolerance
    start = default if before is None else before
    with sizing_refusals(summary.held_out):
        after = frontier.at(chosen, confidence=confidence, simultaneous=simultaneous)
    any_tolerance = holds_for_any(frontier, confidence, simultaneous)
    if before is None:  # nobody asked for the default tolerance: no warning if it isn't reached
        (old,) = points_at(frontier, [start])
    else:
        old = frontier.at(start)
    changes = count_changes(old, after)
    data = problem_data(frontier) | point_data(after)
    parts: list[str | Table] = [describe_point(frontier, after, any_tolerance)]
    if not is_plain(frontier.criterion):
        parts.append(demands_table(after))
    parts.append(_group_table(after, changes, start))
    if not frontier.problem.uses_path and not frontier.is_family:
        parts.append(f"Nested: {describe_nesting(frontier)}.")
    if rising:
        lifted = rising_point(frontier, chosen)
        data["rising_answer"] = point_data(lifted)
        parts += ["If no one may lose a positive decision:", compare_rising(after, lifted)]
    if bound:
        data |= {"expected_value": after.expected_value, "bound": after.bound}
        parts.append(_describe_bound(after))
    if keep:
        check_stays_signed(folder, key_file)
        model = open_model(folder, key_file, trust)
        model.tolerance = chosen
        model.save(folder, overwrite=True, key=key_file)
    show.result(
        data
        | {
            "simultaneous": any_tolerance,
            "resting": chosen if keep else default,
            "from": start,
            "moved": changes,
        },
        *parts,
    )
    if keep:
        show.note(f"The default tolerance of {folder} is now {chosen:g} (before: {default:g}).")
        from fairdial.serve.audit import AUDIT_SUFFIX

        log = Path(f"{folder.absolute()}{AUDIT_SUFFIX}")
        if log.exists():
            show.note(
                f"A server of this model keeps the tolerance in its audit log ({log.name}); set it "
                "on the server's page, or with PUT /v1/dial."
            )


def _describe_bound(point: Point) -> str:
    """Say what the best rule could reach, and what deciding without a lottery costs."""
    name = point.problem.objective.title
    if point.bound is None or point.expected_value is None:
        return f"The best possible {name} isn't known for this model."
    if point.prices is not None:
        return (
            f"Expected {name} of these prices: {point.expected_value:.4f}. No rule whose expected "
            f"rates are within the tolerance reaches more than {point.bound:.4f} on these scores."
        )
    return (
        f"Expected {name} of these thresholds: {point.expected_value:.4f}. No mixture of "
        f"thresholds within the tolerance reaches more than {point.bound:.4f} on these scores."
    )


def _group_table(point: Point, changes: list[Json], start: float) -> Table:
    from fairdial.cli.output import table
    from fairdial.cli.problems import count, digits, spell

    frame = point.to_frame()
    if point.classes is not None:
        return _class_table(frame, changes, start)
    head = ["group", *map(spell, frame), f"selected rows,\nchange from {start:g}"]
    lines = []
    balances = [change["balance"] for change in changes]
    for grouping in point.criterion.groupings:
        sums = dict.fromkeys(range(len(grouping.names)), 0)
        for place, balance in zip(grouping.members, balances, strict=False):
            sums[place] += balance
        balances += sums.values()
    for (group, line), balance in zip(frame.iterrows(), balances, strict=True):
        cells = [count(v) if name == "rows" else digits(v) for name, v in line.items()]
        if "threshold" in line:
            of_column = math.isnan(line["threshold"])  # which has one in each intersection
            cells[1] = "" if of_column else f"{line['threshold']:+.4f}"
        lines.append([str(group), *cells, count(balance, "+") if balance else "0"])
    return table(head, lines)


def _class_table(frame: pd.DataFrame, changes: list[Json], start: float) -> Table:
    from fairdial.cli.output import table
    from fairdial.cli.problems import count, digits, spell

    head = ["class", "group", *map(spell, frame), f"decided,\nchange from {start:g}"]
    lines = []
    for ((name, group), line), change in zip(frame.iterrows(), changes, strict=True):
        cells = [count(v) if n in ("rows", "decided") else digits(v) for n, v in line.items()]
        balance = change["balance"]
        moved = count(balance, "+") if balance else "0"
        lines.append([str(name), str(group), *cells, moved])
    return table(head, lines)
