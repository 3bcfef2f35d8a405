"""``fairdial info``: what a model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output


@click.command()
@options.MODEL
@options.KEY
@options.tells
def info(folder: Path, key_file: Path | None, show: Output) -> None:
    """What MODEL is: method, criterion, groups, columns, where its dial rests.

    Every file is checked against the manifest's hashes; with --key-file the signature too. The
    folder's MODEL_CARD.md says more, in words.
    """
    from fairdial.cli.figures import (
        frontier_parts,
        plain,
        point_data,
        positions,
        shown_tolerances,
    )
    from fairdial.cli.models import read_dial
    from fairdial.persistence.folder import SIGNATURE
    from fairdial.persistence.values import unpack

    known = read_dial(folder, key_file)
    manifest, frontier = known.manifest, known.frontier
    parameters = manifest["parameters"]
    classes = unpack(manifest["classes"])
    points = positions(frontier, shown_tolerances(frontier, known.resting))
    counts = frontier.rows.sum(axis=0).tolist()
    data: dict[str, Any] = {
        "model": str(folder),
        "hash": known.hash,
        "signed": (folder / SIGNATURE).exists(),
        "method": manifest["method"],
        "criterion": frontier.criterion.name,
        "tolerance": known.resting,
        "certificate": frontier.certificate,
        "label": manifest["label"],
        "negative": plain(classes[0]),
        "positive": plain(classes[1]),
        "sensitive": unpack(parameters["sensitive_column"]),
        "features": manifest["features"]["names"],
        "groups": [
            {"group": plain(group), "rows": rows}
            for group, rows in zip(frontier.groups, counts, strict=True)
        ],
        "libraries": manifest["libraries"],
        "frontier": [point_data(point) for point in points],
    }
    features = data["features"] or []
    named = {
        "method": data["method"],
        "criterion": data["criterion"],
        "dial rests at": f"{known.resting:g}",
        "selected means": f"{data['label']} = {classes[1]!r} (the other: {classes[0]!r})",
        "groups": ", ".join(
            f"{g} ({n:,} rows)" for g, n in zip(frontier.groups, counts, strict=True)
        ),
        "told by": ", ".join(_names(data["sensitive"])) or "-",
        "features": f"{len(features)}: {', '.join(features)}",
        "made with": ", ".join(
            f"{name} {version}" for name, version in manifest["libraries"].items()
        ),
        "hash": known.hash + (" (signed)" if data["signed"] else ""),
    }
    width = max(map(len, named))
    text = "\n".join(f"{name:<{width}}  {value}" for name, value in named.items())
    show.result(data, text, *frontier_parts(points, known.resting))


def _names(given: Any) -> list[str]:
    if given is None:
        return []
    return [str(name) for name in given] if isinstance(given, (list, tuple)) else [str(given)]
