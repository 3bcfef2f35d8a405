"""Frontiers as arrays: exact bits, infinities too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from fairdial.criteria import CRITERIA, Criterion
from fairdial.errors import InvalidInputError, ModelFileError
from fairdial.frontier import Frontier, frontier_from_data
from fairdial.paths import Path
from fairdial.persistence.values import pack, unpack

Arrays = dict[str, NDArray[Any]]

FRONTIER = "frontier.safetensors"
TABLE = ("setting", "gap", "certifiable", "thresholds", "selected")
MEASURED = ("setting", "selected", "declared")


def criterion_name(criterion: Criterion) -> str:
    """The name of one of the library's criteria; one's own can't be saved."""
    if criterion not in CRITERIA:
        raise InvalidInputError(
            f"`criterion` must be one of the library's to be saved, got {criterion.name!r} of your "
            "own, whose functions are code."
        )
    return criterion.name


def frontier_to_arrays(frontier: Frontier) -> tuple[dict[str, Any], bytes]:
    """What a frontier is, as JSON knows it, and its arrays as safetensors."""
    states = frontier.states
    told = {
        "criterion": criterion_name(frontier.criterion),
        "groups": [pack(group) for group in frontier.groups],
        "rows": frontier.rows.tolist(),
        "certificate": frontier.certificate,
    }
    arrays: Arrays = {}
    if isinstance(states, Path):
        told |= {"kind": "path", "dtype": states.dtype.name}
        for a, ladder in enumerate(states.ladders):
            arrays[f"lower.{a}"], arrays[f"counts.{a}"] = ladder.lower, ladder.counts
            if ladder.wide.any():
                arrays[f"upper.{a}"] = ladder.upper
    else:
        thresholds, selected = states.read(np.arange(len(states)))
        arrays = {"setting": states.setting, "selected": selected}
        if states.family is None:
            told["kind"] = "table"
            arrays |= {
                "gap": states.gap,
                "certifiable": states.certifiable,
                "thresholds": thresholds,
            }
        else:
            told |= {"kind": "measured", "family": states.family}
            arrays["declared"] = states.certifiable
    arrays["rows"] = frontier.rows
    return told, safetensors.save({k: np.ascontiguousarray(v) for k, v in arrays.items()})


def frontier_from_arrays(told: dict[str, Any], body: bytes, name: str) -> Frontier:
    """The frontier that :func:`frontier_to_arrays` gave, checked."""
    try:
        arrays = dict(safetensors.load(body))
        kind, groups = told["kind"], [unpack(group) for group in told["groups"]]
        data = {**told, "groups": groups}
        if not np.array_equal(arrays.pop("rows"), told["rows"]):
            raise ValueError("other numbers of rows")
        if kind == "path":
            data["ladders"] = [
                {
                    "lower": arrays.pop(f"lower.{a}"),
                    "upper": arrays.pop(f"upper.{a}", None),
                    "counts": arrays.pop(f"counts.{a}"),
                }
                for a in range(len(groups))
            ]
        elif kind == "table":
            data["states"] = {column: arrays.pop(column) for column in TABLE}
        elif kind == "measured":
            measured = {column: arrays.pop(column) for column in MEASURED}
            data["measured"] = {**measured, "family": told["family"]}
        else:
            raise ValueError(f"states of unknown kind {kind!r}")
        if arrays:
            raise ValueError(f"unknown arrays {sorted(arrays)}")
        return frontier_from_data(data)
    except (SafetensorError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(
            f"`{name}` must hold the frontier that the manifest tells of, got something else "
            f"({type(error).__name__}: {error})."
        ) from error
