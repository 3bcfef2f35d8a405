"""``fairdial dial``: show what a tolerance does, and who is affected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
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
    """
    from fairdial.cli.models import check_stays_signed, open_model, read_frontier, sizing_refusals
    from fairdial.cli.points import (
        count_changes,
        describe_point,
        holds_for_any,
        point_data,
        points_at,
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
    if keep:
        check_stays_signed(folder, key_file)
        model = open_model(folder, key_file, trust)
        model.tolerance = chosen
        model.save(folder, overwrite=True, key=key_file)
    show.result(
        point_data(after)
        | {
            "simultaneous": any_tolerance,
            "resting": chosen if keep else default,
            "from": start,
            "moved": changes,
        },
        describe_point(after, any_tolerance),
        _group_table(after, changes, start),
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


def _group_table(point: Point, changes: list[Json], start: float) -> Table:
    from fairdial.cli.output import table
    from fairdial.cli.points import digits, spell

    frame = point.to_frame()
    head = ["group", *map(spell, frame), f"selected rows,\nchange from {start:g}"]
    lines = []
    for (group, line), change in zip(frame.iterrows(), changes, strict=True):
        cells = [f"{int(v):,}" if name == "rows" else digits(v) for name, v in line.items()]
        if "threshold" in line:
            cells[1] = f"{line['threshold']:+.4f}"
        balance = change["balance"]
        lines.append([str(group), *cells, f"{balance:+,}" if balance else "0"])
    return table(head, lines)
