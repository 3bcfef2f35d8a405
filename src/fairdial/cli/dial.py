"""``fairdial dial``: what a tolerance does, and whom it moves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    from fairdial.points import Point


@click.command()
@options.MODEL
@options.tolerance(told="The largest gap that is wished for. [default: where the dial rests]")
@options.certifies
@click.option(
    "--from",
    "before",
    type=options.Share(0, 1),
    help="Compare with this tolerance. [default: where the dial rests]",
)
@click.option("--set", "keep", is_flag=True, help="Let the dial rest at --tolerance from now on.")
@options.KEY
@options.TRUST
@options.tells
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
    """What MODEL does at a tolerance, on its calibration rows, and who is moved.

    Nothing is trained. --set writes the tolerance into the model's folder; a confidence is no part
    of the model, and is asked for each time. A server's dial is moved by the server.

    \b
    fairdial dial model --tolerance 0.05
    fairdial dial model --tolerance 0.05 --confidence 0.95 --from 0.1
    fairdial dial model --tolerance 0.1 --confidence 0.95 --simultaneous
    """
    from fairdial.cli.figures import holds_for_any, moves, point_data, positions, sentence
    from fairdial.cli.models import open_model, read_told, refuse_unsigned, telling_table

    if keep and (tolerance is None or confidence is not None):
        raise InvalidInputError("--set must come with --tolerance and without --confidence.")
    known = read_told(folder, key_file)
    resting = known.resting
    wish = resting if tolerance is None else tolerance
    start = resting if before is None else before
    with telling_table(known.share, asked=tolerance is not None):
        after = known.frontier.at(wish, confidence=confidence, simultaneous=simultaneous)
    any_wish = holds_for_any(known.frontier, confidence, simultaneous)
    if before is None:  # nobody asked for where it rests: no warning if that isn't reached
        (old,) = positions(known.frontier, [start])
    else:
        old = known.frontier.at(start)
    moved = moves(old, after)
    if keep:
        refuse_unsigned(folder, key_file)
        model = open_model(folder, key_file, trust)
        model.tolerance = wish
        model.save(folder, overwrite=True, key=key_file)
    show.result(
        point_data(after)
        | {
            "simultaneous": any_wish,
            "resting": wish if keep else resting,
            "from": start,
            "moved": moved,
        },
        sentence(after, any_wish),
        _group_table(after, moved, start),
    )
    if keep:
        show.note(f"The dial of {folder} rests at {wish:g} now (before: {resting:g}).")
        from fairdial.serve.audit import BESIDE

        log = Path(f"{folder.absolute()}{BESIDE}")
        if log.exists():
            show.note(
                f"A server of it stands where its audit log says ({log.name}): move that dial by "
                "the server's page, or by PUT /v1/dial."
            )


def _group_table(point: Point, moved: list[dict[str, Any]], start: float) -> Any:
    from fairdial.cli.figures import share
    from fairdial.cli.output import table

    frame = point.to_frame()
    head = ["group", *(name.replace("_", " ") for name in frame), f"rows moved from {start:g}"]
    lines = []
    for (group, line), move in zip(frame.iterrows(), moved, strict=True):
        cells = [f"{int(v):,}" if name == "rows" else share(v) for name, v in line.items()]
        if "threshold" in line:
            cells[1] = f"{line['threshold']:+.4f}"
        lines.append([str(group), *cells, f"{move['balance']:+,}" if move["balance"] else "0"])
    return table(head, lines)
