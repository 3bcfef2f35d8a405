"""``fairdial info``: describe a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output

if TYPE_CHECKING:
    from fairdial.cli.models import Summary
    from fairdial.core.frontier import Frontier
    from fairdial.estimators.base import GroupProxies

SEES_GROUP = {
    True: "yes",
    False: "no",
    None: "unknown: it depends on the features, or on your own scorer",
}


@click.command()
@options.MODEL
@options.KEY
@options.reporting
def info(folder: Path, key_file: Path | None, show: Output) -> None:
    """Describe MODEL: method, criterion, groups, columns, default tolerance.

    Checks every file against the hashes in the manifest and, with --key-file, the signature. Loads
    no objects, so there is nothing to trust. MODEL_CARD.md in the folder says more.
    """
    from fairdial.cli.models import read_summary, reading_manifest
    from fairdial.cli.points import summarize
    from fairdial.cli.problems import problem_data

    summary = read_summary(folder, key_file)
    with reading_manifest():
        data = describe(folder, summary) | {"signature_checked": key_file is not None}
        named = _lines(data)
    if summary.frontier is None:
        show.result(data, _align(named), "Not calibrated yet: run fairdial calibrate.")
        return
    data |= problem_data(summary.frontier)
    place = list(named).index("default tolerance") + 1
    lines = list(named.items())
    named = dict(lines[:place]) | _problem_lines(summary.frontier) | dict(lines[place:])
    data["frontier"], parts = summarize(summary.frontier, summary.tolerance)
    show.result(data, _align(named), *parts)


def describe(folder: Path, summary: Summary) -> dict[str, Any]:
    """Return what the manifest says, for JSON."""
    from fairdial.cli.models import stored_criterion
    from fairdial.cli.points import json_number, json_value
    from fairdial.io.manifest import SIGNATURE, trained_method, training_from_data
    from fairdial.io.values import unpack

    manifest, frontier = summary.manifest, summary.frontier
    parameters, stored = manifest["parameters"], manifest.get("training")
    training: Mapping[str, Any] = {} if stored is None else training_from_data(stored)
    labels = unpack(manifest["classes"]).tolist()
    negative, positive = labels if len(labels) == 2 else (None, None)
    sensitive = unpack(parameters["sensitive_column"])
    groups = {}
    if frontier is not None:
        groups = dict(zip(frontier.groups, frontier.counts.sum(axis=0).tolist(), strict=True))
    return {
        "model": str(folder),
        "hash": summary.hash,
        "signed": (folder / SIGNATURE).exists(),
        "method": trained_method(manifest),
        "estimator": manifest["method"],
        "training_rows": training.get("rows"),
        "trained": training.get("ended"),
        "chosen": training.get("chosen"),
        "why": training.get("why"),
        "criterion": stored_criterion(parameters["criterion"]).name,
        "tolerance": summary.tolerance,
        "label": manifest["label"],
        "negative": json_value(negative),
        "positive": json_value(positive),
        **({"classes": [json_value(label) for label in labels]} if len(labels) > 2 else {}),
        "sensitive": None if sensitive is None else _as_list(sensitive),
        "missing_group": training.get("missing_group"),
        "proxies": training.get("proxies"),
        "scorer_sees_group": _sees_group(manifest, sensitive),
        "features": manifest["features"]["names"],
        "groups": [
            {"group": json_value(group), "rows": json_number(rows)}
            for group, rows in groups.items()
        ],
        "libraries": manifest["libraries"],
        "frontier": None,
    }


def _as_list(names: object) -> list[str]:
    return [str(name) for name in names] if isinstance(names, (list, tuple)) else [str(names)]


def _sees_group(manifest: Mapping[str, Any], sensitive: object) -> bool | None:
    """Return whether the scorer knows a row's group; None if it may be among the features."""
    from fairdial.io.manifest import sees_group

    seen = sees_group(manifest["scorer"])
    return None if sensitive is None and not seen else seen


def _lines(data: dict[str, Any]) -> dict[str, str]:
    features, missing = data["features"], data["missing_group"]
    return {
        "method": f"{data['method']} ({data['estimator']})",
        "trained": "unknown: not by fairdial"
        if data["trained"] is None
        else f"on {data['training_rows']:,} rows, {data['trained']} UTC",
        **({} if data["chosen"] is None else {"chosen": f"{data['chosen']}. {data['why']}"}),
        "criterion": data["criterion"],
        "default tolerance": f"{data['tolerance']:g}",
        "label column": data["label"] or "-",
        **(
            {"classes": ", ".join(map(repr, data["classes"]))}
            if "classes" in data
            else {
                "positive class": repr(data["positive"]),
                "negative class": repr(data["negative"]),
            }
        ),
        "group column": ", ".join(data["sensitive"] or ["-"])
        + ("" if missing is None else f" ({missing!r} where missing)"),
        "groups": ", ".join(
            f"{group['group']} ({group['rows']:,} calibration rows)" for group in data["groups"]
        )
        or "-",
        "scorer sees the group": SEES_GROUP[data["scorer_sees_group"]],
        **_proxy_line(data["proxies"]),
        "features": "-" if features is None else f"{len(features)}: {', '.join(features)}",
        "libraries": ", ".join(f"{name} {number}" for name, number in data["libraries"].items()),
        "hash": data["hash"],
        "signature": _signature(data),
    }


def _proxy_line(proxies: GroupProxies | None) -> dict[str, str]:
    return {} if proxies is None else {"features predict it": describe_proxies(proxies)}


def describe_proxies(proxies: GroupProxies) -> str:
    """Return how well the features tell the groups apart.

    Examples
    --------
    >>> from fairdial.cli.info import describe_proxies
    >>> describe_proxies({"together": 0.83, "columns": {"job": 0.7}, "chance": 0.5})
    'balanced accuracy 0.83, guessing 0.50; alone: job 0.70'
    """
    alone = ", ".join(f"{name} {value:.2f}" for name, value in proxies["columns"].items())
    together, chance = proxies["together"], proxies["chance"]
    return f"balanced accuracy {together:.2f}, guessing {chance:.2f}; alone: {alone}"


def _problem_lines(frontier: Frontier) -> dict[str, str]:
    """Return lines on objective, budget, nesting and strata."""
    from fairdial.cli.problems import describe_budget, describe_nesting, describe_objective

    lines = {"objective": describe_objective(frontier), "budget": describe_budget(frontier)}
    lines["nested"] = describe_nesting(frontier)
    if frontier.criterion.n_strata > 1 and frontier.classes is None:
        lines["strata"] = str(frontier.criterion.n_strata)
    return lines


def _align(named: dict[str, str]) -> str:
    width = max(map(len, named))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in named.items())


def _signature(data: dict[str, Any]) -> str:
    if data["signature_checked"]:
        return "valid: made with this key"
    return "not checked: pass --key-file" if data["signed"] else "none"
