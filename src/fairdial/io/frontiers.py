"""Frontiers as arrays, with exact bits, including infinities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from fairdial.core.frontier import Frontier
from fairdial.core.problem import problem_to_dict
from fairdial.core.searched import SearchedPoints
from fairdial.core.serialization import frontier_parts
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import ModelFileError
from fairdial.io.values import Json, pack, unpack

Arrays = dict[str, NDArray[Any]]

FRONTIER = "frontier.safetensors"
TABLE = ("setting", "gap", "certifiable", "thresholds", "selected")
MEASURED = ("setting", "selected", "declared")


def frontier_to_arrays(frontier: Frontier) -> tuple[dict[str, Json], bytes]:
    """Return a description of a frontier, as JSON, and its arrays as safetensors."""
    points = frontier.points
    data: dict[str, Json] = {
        **problem_to_dict(frontier.problem),
        "groups": [pack(group) for group in frontier.groups],
        "rows": frontier.cells.tolist(),
        "certificate": frontier.certificate,
    }
    arrays: Arrays = {}
    if isinstance(points, (ThresholdPath, SearchedPoints)):
        data |= {"kind": "path", "dtype": points.dtype.name}
        for a, scores in enumerate(points.group_scores):
            arrays[f"lower.{a}"], arrays[f"counts.{a}"] = scores.lower, scores.counts
            if scores.is_bin.any():
                arrays[f"upper.{a}"] = scores.upper
            if scores.gain is not None:
                arrays[f"gain.{a}"] = scores.gain
    else:
        thresholds, selected = points.read(np.arange(len(points)))
        arrays = {"setting": points.setting, "selected": selected}
        if points.n_declared is None:
            data["kind"] = "table"
            arrays |= {
                "gap": points.gap,
                "certifiable": points.certifiable,
                "thresholds": thresholds,
            }
        else:
            data |= {"kind": "measured", "family": points.n_declared}
            arrays["declared"] = points.certifiable
    arrays["rows"] = frontier.cells
    return data, safetensors.save({k: np.ascontiguousarray(v) for k, v in arrays.items()})


def frontier_from_arrays(stored: dict[str, Json], body: bytes, name: str) -> Frontier:
    """Return the frontier that :func:`frontier_to_arrays` was given, checked."""
    try:
        arrays = dict(safetensors.load(body))
        kind, groups = stored["kind"], [unpack(group) for group in stored["groups"]]
        data = {**stored, "groups": groups}
        if not np.array_equal(arrays.pop("rows"), stored["rows"]):
            raise ValueError("other numbers of rows")
        if kind == "path":
            data["ladders"] = [
                {
                    "lower": arrays.pop(f"lower.{a}"),
                    "upper": arrays.pop(f"upper.{a}", None),
                    "counts": arrays.pop(f"counts.{a}"),
                    "gain": arrays.pop(f"gain.{a}", None),
                }
                for a in range(len(groups))
            ]
        elif kind == "table":
            data["states"] = {column: arrays.pop(column) for column in TABLE}
        elif kind == "measured":
            columns = {column: arrays.pop(column) for column in MEASURED}
            data["measured"] = {**columns, "family": stored["family"]}
        else:
            raise ValueError(f"operating points of unknown kind {kind!r}")
        if arrays:
            raise ValueError(f"unknown arrays {sorted(arrays)}")
        return Frontier(*frontier_parts(data))
    except (SafetensorError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(
            f"`{name}` must hold the frontier that the manifest describes "
            f"({type(error).__name__}: {error})."
        ) from error
