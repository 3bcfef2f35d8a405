"""``fairdial info``: what a model is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output

if TYPE_CHECKING:
    from fairdial.cli.models import Told

SEEN = {True: "yes", False: "no", None: "not known: it may be among the features"}


@click.command()
@options.MODEL
@options.KEY
@options.tells
def info(folder: Path, key_file: Path | None, show: Output) -> None:
    """What MODEL is: method, criterion, groups, columns, where its dial rests.

    Every file is checked against the manifest's hashes; with --key-file the signature too. No
    object is loaded, so there is nothing to trust. The folder's MODEL_CARD.md says more, in words.
    """
    from fairdial.cli.figures import frontier_parts, point_data, positions, shown_tolerances
    from fairdial.cli.models import read_told, reading_manifest

    told = read_told(folder, key_file)
    with reading_manifest():
        data = describe(folder, told) | {"signature_checked": key_file is not None}
        lines = _lines(data)
    if told.known is None:
        show.result(data, lines, "It isn't calibrated yet: fairdial calibrate does it.")
        return
    points = positions(told.known, shown_tolerances(told.known, told.resting))
    data["frontier"] = [point_data(point) for point in points]
    show.result(data, lines, *frontier_parts(points, told.resting))


def describe(folder: Path, told: Told) -> dict[str, Any]:
    """What the manifest tells, as JSON knows it."""
    from fairdial.cli.figures import plain
    from fairdial.cli.learners import asked_for
    from fairdial.persistence.facts import training_from_data
    from fairdial.persistence.manifest import SIGNATURE
    from fairdial.persistence.values import unpack

    manifest, frontier = told.manifest, told.known
    parameters, known = manifest["parameters"], manifest.get("training")
    training = {} if known is None else training_from_data(known)
    negative, positive = unpack(manifest["classes"]).tolist()
    sensitive = unpack(parameters["sensitive_column"])
    criterion = parameters["criterion"]
    counts = [] if frontier is None else frontier.rows.sum(axis=0).tolist()
    return {
        "model": str(folder),
        "hash": told.hash,
        "signed": (folder / SIGNATURE).exists(),
        "method": asked_for(manifest),
        "estimator": manifest["method"],
        "training_rows": training.get("rows"),
        "trained": training.get("ended"),
        "chosen": training.get("chosen"),
        "why": training.get("why"),
        "criterion": criterion if isinstance(criterion, str) else criterion["$criterion"],
        "tolerance": told.resting,
        "label": manifest["label"],
        "negative": plain(negative),
        "positive": plain(positive),
        "sensitive": None if sensitive is None else _names(sensitive),
        "missing_group": training.get("missing_group"),
        "scorer_sees_group": _sees_group(parameters),
        "features": manifest["features"]["names"],
        "groups": [
            {"group": plain(group), "rows": rows}
            for group, rows in zip(() if frontier is None else frontier.groups, counts, strict=True)
        ],
        "libraries": manifest["libraries"],
        "frontier": None,
    }


def _names(given: Any) -> list[str]:
    return [str(name) for name in given] if isinstance(given, (list, tuple)) else [str(given)]


def _sees_group(parameters: dict[str, Any]) -> bool | None:
    """Whether the scorer knows a row's group; None: it may be among the features."""
    from fairdial.persistence.values import unpack

    def sees(packed: dict[str, Any]) -> bool:
        network = packed.get("$network")
        return network is not None and network["group_input"] != "none"

    given = unpack(parameters.get("estimator", parameters.get("network")), sees)
    parts = given if isinstance(given, (list, tuple)) else [given]
    if parameters.get("per_group") or any(part is None or part for part in parts):
        return True  # None is a network that sees it
    return None if unpack(parameters["sensitive_column"]) is None else False


def _signature(data: dict[str, Any]) -> str:
    if data["signature_checked"]:
        return "checked: it was made with the key"
    return "not checked: give --key-file" if data["signed"] else "none"


def _lines(data: dict[str, Any]) -> str:
    features, unnamed = data["features"], data["missing_group"]
    named = {
        "method": f"{data['method']} ({data['estimator']})",
        "trained": "elsewhere: not known"
        if data["trained"] is None
        else f"on {data['training_rows']:,} rows, {data['trained']} UTC",
        **({} if data["chosen"] is None else {"chosen": f"{data['chosen']}. {data['why']}"}),
        "criterion": data["criterion"],
        "dial rests at": f"{data['tolerance']:g}",
        "selected means": f"{data['label'] or 'label'} = {data['positive']!r} (the other: "
        f"{data['negative']!r})",
        "groups": ", ".join(
            f"{g['group']} ({g['rows']:,} calibration rows)" for g in data["groups"]
        )
        or "-",
        "told by": ", ".join(data["sensitive"] or ["-"])
        + ("" if unnamed is None else f" (where nothing is told: {unnamed!r})"),
        "scorer sees the group": SEEN[data["scorer_sees_group"]],
        "features": "-" if features is None else f"{len(features)}: {', '.join(features)}",
        "made with": ", ".join(f"{name} {number}" for name, number in data["libraries"].items()),
        "hash": data["hash"],
        "signature": _signature(data),
    }
    width = max(map(len, named))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in named.items())
