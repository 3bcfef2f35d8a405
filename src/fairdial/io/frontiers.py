"""Frontiers as arrays, with exact bits, including infinities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from fairdial.core.frontier import Frontier
from fairdial.core.nested import NestedPoints
from fairdial.core.operating_points import PointTable
from fairdial.core.overlap import OverlapPoints
from fairdial.core.price_points import PricePoints
from fairdial.core.problem import problem_to_dict
from fairdial.core.searched import SearchedPoints
from fairdial.core.serialization import (
    frontier_parts,
    guide_to_dict,
    price_columns,
    refuse_mixture,
)
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import ModelFileError
from fairdial.io.values import Json, pack, unpack

Arrays = dict[str, NDArray[Any]]

FRONTIER = "frontier.safetensors"
TABLE = ("setting", "gap", "certifiable", "thresholds", "selected")
MEASURED = ("setting", "selected", "declared")
KINDS = ("path", "nested", "table", "measured", "prices")


def frontier_to_arrays(frontier: Frontier) -> tuple[dict[str, Json], bytes]:
    """Return a description of a frontier, as JSON, and its arrays as safetensors."""
    points = frontier.points
    data: dict[str, Json] = {
        **problem_to_dict(frontier.problem),
        "groups": [pack(group) for group in frontier.groups],
        "rows": frontier.cells.tolist(),
        "certificate": frontier.certificate,
        **guide_to_dict(frontier.guide),
    }
    if frontier.classes is not None:
        data["classes"] = [pack(name) for name in frontier.classes]
    arrays: Arrays = {}
    scored = points.source if isinstance(points, NestedPoints) else points
    if isinstance(scored, (ThresholdPath, SearchedPoints)):
        data |= {"kind": "path", "dtype": scored.dtype.name}
        for a, scores in enumerate(scored.group_scores):
            arrays[f"lower.{a}"], arrays[f"counts.{a}"] = scores.lower, scores.counts
            if scores.is_bin.any():
                arrays[f"upper.{a}"] = scores.upper
            if scores.gain is not None:
                arrays[f"gain.{a}"] = scores.gain
    if isinstance(scored, OverlapPoints):
        arrays["kept"] = scored.kept_thresholds
    if isinstance(points, PricePoints):
        data["kind"] = "prices"
        arrays |= price_columns(points)
    elif points.n_declared is not None:
        data |= {"kind": "measured", "family": points.n_declared}
        arrays |= {"setting": points.setting, "declared": points.certifiable}
        arrays["selected"] = points.read(np.arange(len(points)))[1]
    elif isinstance(points, PointTable):
        refuse_mixture(points)
        data["kind"] = "nested" if isinstance(points, NestedPoints) else "table"
        thresholds, selected = points.read(np.arange(len(points)))
        columns = points.setting, points.gap, points.certifiable, thresholds, selected
        arrays |= dict(zip(TABLE, columns, strict=True))
        if isinstance(points, NestedPoints):
            arrays["lost"] = points.lost
    arrays["rows"] = frontier.cells
    return data, safetensors.save({k: np.ascontiguousarray(v) for k, v in arrays.items()})


def frontier_from_arrays(stored: dict[str, Json], body: bytes, name: str) -> Frontier:
    """Return the frontier that :func:`frontier_to_arrays` was given, checked."""
    try:
        arrays = dict(safetensors.load(body))
        kind, groups = stored["kind"], [unpack(group) for group in stored["groups"]]
        data = {**stored, "groups": groups}
        if stored.get("classes") is not None:
            data["classes"] = [unpack(name) for name in stored["classes"]]
        if not np.array_equal(arrays.pop("rows"), stored["rows"]):
            raise ValueError("other numbers of rows")
        if kind not in KINDS:
            raise ValueError(f"operating points of unknown kind {kind!r}")
        if kind in ("path", "nested"):
            data["ladders"] = [
                {
                    "lower": arrays.pop(f"lower.{a}"),
                    "upper": arrays.pop(f"upper.{a}", None),
                    "counts": arrays.pop(f"counts.{a}"),
                    "gain": arrays.pop(f"gain.{a}", None),
                }
                for a in range(len(groups))
            ]
            if "kept" in arrays:
                data["kept"] = arrays.pop("kept")
        if kind in ("table", "nested"):
            columns = TABLE if kind == "table" else (*TABLE, "lost")
            data["states"] = {column: arrays.pop(column) for column in columns}
        if kind == "prices":
            data["prices"], arrays = arrays, {}
        if kind == "measured":
            family = {column: arrays.pop(column) for column in MEASURED}
            data["measured"] = {**family, "family": stored["family"]}
        if arrays:
            raise ValueError(f"unknown arrays {sorted(arrays)}")
        return Frontier(*frontier_parts(data))
    except (SafetensorError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelFileError(
            f"`{name}` must hold the frontier that the manifest describes "
            f"({type(error).__name__}: {error})."
        ) from error
