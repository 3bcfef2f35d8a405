"""Frontiers and their operating points as JSON data, and back.

The keys of the format are those of version 0.1: "ladders" are groups' scores, "measured" is a model
family, and "states" is a table of points.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Counts, Dtype, Floats
from fairdial.core.class_problem import check_class_problem
from fairdial.core.criteria import Criterion
from fairdial.core.group_scores import GroupScores, total_counts
from fairdial.core.nested import NestedPoints
from fairdial.core.operating_points import ModelFamily, OperatingPoints, PointTable
from fairdial.core.overlap import OverlapPoints, search_points
from fairdial.core.price_points import PricePoints, PriceRules
from fairdial.core.prices import Gains, check_priceable
from fairdial.core.problem import Problem, problem_from_dict, problem_to_dict
from fairdial.core.rule_sequences import Guide
from fairdial.core.searched import SearchedPoints
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import InvalidInputError

FORMAT = 3  # 3: groups of single columns
Certificate = Literal["declared", "simultaneous", "finite", "weighted", "none"]
Names = tuple[Hashable, ...]
Parts = tuple[OperatingPoints, Problem, Names, Counts, Certificate, Guide | None, Names | None]

RULES = "rules."  # prefix of the columns of a blind dial's rules
DTYPES: dict[str, Dtype] = {name: np.dtype(name) for name in ("float32", "float64")}


def write_frontier(
    points: OperatingPoints,
    problem: Problem,
    groups: tuple[Hashable, ...],
    cells: Counts,
    certificate: Certificate,
    guide: Guide | None = None,
    classes: Names | None = None,
) -> str:
    """Return the parts of a frontier as JSON; version 1 is enough for what version 0.2 knew."""
    described = problem_to_dict(problem)
    known = len(described) == 1 and problem.criterion.is_simple and cells.dtype.kind == "i"
    version = 1 if known and certificate != "weighted" else 2
    data = {
        "format": "fairdial.frontier",
        "version": FORMAT if problem.criterion.has_groupings else version,
        **described,
        "groups": [json_name(group) for group in groups],
        "rows": cells.tolist(),
        "certificate": certificate,
        **points_to_dict(points),
        **guide_to_dict(guide),
    }
    if classes is not None:
        data["classes"] = [json_name(name, "classes") for name in classes]
    return json.dumps(data, allow_nan=False)


def read_frontier(text: str) -> Parts:
    """Return the parts that :func:`write_frontier` wrote."""
    allowed = "be written by Frontier.to_json"
    try:
        data = json.loads(text)
        if data["format"] != "fairdial.frontier":
            raise InvalidInputError("text", allowed, given=f"the format {data['format']!r}")
        if data["version"] > FORMAT:
            raise InvalidInputError(
                "text",
                f"have format version {FORMAT} or older",
                given=data["version"],
                hint="Install a newer fairdial.",
            )
        return frontier_parts(data)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            "text", allowed, given=f"something else ({type(error).__name__}: {error})"
        ) from error


def frontier_parts(data: dict[str, Any]) -> Parts:
    """Return the parts of a frontier from JSON data or arrays; raise ValueError or the like."""
    problem = problem_from_dict(data)
    kind = problem.criterion
    groups, cells = tuple(data["groups"]), read_counts(data["rows"])
    n_labels = len(cells) // kind.n_strata if cells.ndim == 2 else 0
    if cells.shape != (kind.n_strata * n_labels, len(groups)) or n_labels not in (1, 2):
        raise ValueError("rows must be by kind and group")
    if problem.needs_labels and n_labels == 1:
        raise ValueError(f"{kind.name} needs labels")
    for grouping in filter(None, (demand.grouping for demand in kind.demands)):
        if len(grouping.members) != len(groups):
            raise ValueError("groups of a column don't match the intersections")
    classes = None if data.get("classes") is None else tuple(data["classes"])
    if classes is not None and (len(classes) != kind.n_strata or "prices" not in data):
        raise ValueError("classes don't match the criterion")
    points = points_from_dict(data, problem, cells, has_classes=classes is not None)
    swept = "declared", "simultaneous", "weighted", "none"
    known = swept if points.n_declared is None else ("finite", "weighted", "none")
    if data["certificate"] not in known:
        raise InvalidInputError(
            "text",
            f"have a certificate among {', '.join(known)}",
            given=repr(data["certificate"]),
        )
    guide = _read_guide(data.get("guide"), len(groups))
    return points, problem, groups, cells, data["certificate"], guide, classes


def guide_to_dict(guide: Guide | None) -> dict[str, Any]:
    """Return a guide as JSON data; nothing if there is none."""
    if guide is None:
        return {}
    thresholds = [_numbers(line) for line in guide.thresholds]
    return {"guide": {"gap": guide.gap.tolist(), "thresholds": thresholds}}


def _read_guide(data: Any, n_groups: int) -> Guide | None:
    if data is None:
        return None
    gap = np.array(data["gap"], np.float64)
    thresholds = np.array(data["thresholds"], np.float64)
    if not len(gap) or thresholds.shape != (len(gap), n_groups):
        raise ValueError("the guide's rules don't match the groups")
    if np.isnan(thresholds).any() or not np.all(np.diff(gap) >= 0):
        raise ValueError("the guide's rules aren't in ascending order")
    return Guide(gap, thresholds)


def read_counts(data: Any) -> Counts:
    """Return counts as int64, or float64 if they are sums of weights; raise ValueError."""
    array = np.array(data)
    if array.dtype.kind not in "iuf":
        raise ValueError("counts must be numbers")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or np.any(array < 0):
            raise ValueError("counts must be finite and not negative")
        return array.astype(np.float64)
    return array.astype(np.int64)


def json_name(name: Hashable, argument: str = "groups") -> str | int | float | bool:
    """Return the name of a group or class as JSON data."""
    value = name.item() if isinstance(name, np.generic) else name
    if not isinstance(value, (str, int, float, bool)):
        raise InvalidInputError(argument, "be text or numbers to be saved", given=repr(name))
    return value


def points_to_dict(points: OperatingPoints) -> dict[str, Any]:
    """Return a path by its scores, other points by their columns, and a nested dial by both."""
    if isinstance(points, NestedPoints):
        states = _table_to_dict(points) | {"lost": _numbers(points.lost)}
        return points_to_dict(points.source) | {"states": states}
    if isinstance(points, (ThresholdPath, SearchedPoints)):
        group_scores = []
        for scores in points.group_scores:
            item: dict[str, Any] = {
                "lower": _numbers(scores.lower),
                "upper": _numbers(scores.upper) if scores.is_bin.any() else None,
                "counts": scores.counts.tolist(),
            }
            if scores.gain is not None:
                item["gain"] = scores.gain.tolist()
            group_scores.append(item)
        found: dict[str, Any] = {"dtype": points.dtype.name, "ladders": group_scores}
        if isinstance(points, OverlapPoints):
            found["kept"] = [_numbers(line) for line in points.kept_thresholds]
        return found
    if isinstance(points, PricePoints):
        return {"prices": {k: column.tolist() for k, column in price_columns(points).items()}}
    if points.n_declared is not None:
        family = {
            "setting": _numbers(points.setting),
            "selected": points.read(np.arange(len(points)))[1].tolist(),
            "declared": points.certifiable.tolist(),
            "family": points.n_declared,
        }
        return {"measured": family}
    return {"states": _table_to_dict(points)}


def _table_to_dict(points: OperatingPoints) -> dict[str, Any]:
    refuse_mixture(points)
    thresholds, selected = points.read(np.arange(len(points)))
    return {
        "setting": _numbers(points.setting),
        "gap": _numbers(points.gap),
        "certifiable": points.certifiable.tolist(),
        "thresholds": [_numbers(line) for line in thresholds],
        "selected": selected.tolist(),
    }


def price_columns(points: PricePoints) -> dict[str, NDArray[Any]]:
    """Return the arrays of a blind dial; those of its rules have a prefix."""
    columns = {
        "setting": points.setting,
        "gap": points.gap,
        "prices": points.prices,
        "selected": points.read(np.arange(len(points)))[1],
        "value": points.value,
        "gains": np.array(points.gains),
        "lines": points.lines.reshape(-1, 2),
        "nested": np.array([points.is_nested]),
    }
    if points.unknown:
        columns["unknown"] = np.array([points.unknown])
    if points.estimate is not None:
        columns["estimate"] = points.estimate
    rules = points.rules
    if rules is not None:
        columns |= {RULES + name: column for name, column in price_columns(rules.table).items()}
        columns |= {RULES + name: getattr(rules, name) for name in ("found", "tested", "testing")}
    return columns


def price_points_from(columns: dict[str, Any], n_demands: int, cells: Counts) -> PricePoints:
    """Return the blind dial of :func:`price_columns`, checked; raise ValueError or the like."""
    numbers = ("setting", "gap", "prices", "value", "gains", "lines")
    read = {name: np.array(columns[name], np.float64) for name in numbers}
    selected, nested = read_counts(columns["selected"]), np.array(columns["nested"])
    size = len(read["gap"])
    shapes = {
        "setting": (size,),
        "gap": (size,),
        "prices": (size, n_demands, cells.shape[1]),
        "value": (size,),
        "gains": (2,),
    }
    if not size or any(read[name].shape != shape for name, shape in shapes.items()):
        raise ValueError("columns of prices have different lengths")
    lines = read["lines"].reshape(-1, 2)
    if not all(np.isfinite(column).all() for column in read.values()) or np.any(read["gap"] < 0):
        raise ValueError("prices, gaps or values are infinite or NaN")
    if nested.shape != (1,) or nested.dtype != np.bool_:
        raise ValueError("nested must be a boolean")
    _check_selected(selected, size, cells)
    unknown, estimate = 0.0, None
    if "unknown" in columns:
        (unknown,) = np.array(columns["unknown"], np.float64).tolist()
        if not 0 < unknown < np.inf:
            raise ValueError("rows without a group aren't a number")
    if "estimate" in columns:
        estimate = np.array(columns["estimate"], np.float64)
        if estimate.shape != (size,) or not np.isfinite(estimate).all() or not unknown:
            raise ValueError("estimated gaps don't match the points")
    rules = None
    if RULES + "found" in columns:
        names = [name for name in columns if name.startswith(RULES)]
        rules = _read_rules({n.removeprefix(RULES): columns[n] for n in names}, n_demands, cells)
    return PricePoints(
        read["setting"],
        read["gap"],
        read["prices"],
        selected,
        read["value"],
        Gains(*read["gains"].tolist()),
        lines,
        nested=bool(nested[0]),
        rules=rules,
        unknown=unknown,
        estimate=estimate,
    )


def _read_rules(columns: dict[str, Any], n_demands: int, cells: Counts) -> PriceRules:
    table = price_points_from(columns, n_demands, cells)
    found = np.array(columns["found"], np.float64)
    tested, testing = read_counts(columns["tested"]), read_counts(columns["testing"])
    if found.shape != (len(table),) or not np.all(np.diff(found) >= 0):
        raise ValueError("rules aren't in ascending order")
    if testing.shape != cells.shape or np.any(testing > cells):
        raise ValueError("testing rows don't match the rows")
    _check_selected(tested, len(table), testing)
    return PriceRules(table, found, tested, testing)


def refuse_mixture(points: OperatingPoints) -> None:
    """Raise if only some points of a lottery are left: a table has one threshold per group."""
    if getattr(points, "mixture", None) is not None:
        raise InvalidInputError(
            "frontier", "be whole to be saved, if a lottery decides", given="some of its points"
        )


def points_from_dict(
    data: dict[str, Any], problem: Problem, cells: Counts, *, has_classes: bool = False
) -> OperatingPoints:
    """Return what :func:`points_to_dict` was given, for these rows by kind and group."""
    criterion = problem.criterion
    if "ladders" in data:
        group_scores = [_read_scores(item) for item in data["ladders"]]
        if not np.array_equal(total_counts(group_scores), cells):
            raise ValueError("scores and rows differ in number")
        _check_eligible(criterion, cells)
        if problem.uses_path:
            strict = problem.nested is True
            return ThresholdPath(group_scores, criterion, DTYPES[data["dtype"]], strict=strict)
        if problem.objective.name == "utility" and any(s.gain is None for s in group_scores):
            raise ValueError("utilities are missing")
        n_labels = len(cells) // criterion.n_strata
        searched = search_points(group_scores, problem, DTYPES[data["dtype"]], n_labels)
        if isinstance(searched, OverlapPoints):
            searched = searched.keeping(_read_kept(data["kept"], len(group_scores)))
        if not problem.nested:
            return searched
        table, lost = _read_table(data["states"], cells), np.array(data["states"]["lost"])
        if lost.shape != (len(table),) or lost.dtype.kind != "f" or not np.all(lost >= 0):
            raise ValueError("losses of a nested dial don't match its points")
        return NestedPoints(table, lost, searched)
    if "prices" in data:
        (check_class_problem if has_classes else check_priceable)(problem)
        _check_eligible(criterion, cells)
        return price_points_from(data["prices"], len(criterion.demands), cells)
    if "measured" in data:
        return _read_family(data["measured"], criterion, cells)
    return _read_table(data["states"], cells)


def _numbers(values: Floats) -> list[float | str]:
    """Return numbers, the infinite ones as text that float() reads."""
    return [value if np.isfinite(value) else str(value) for value in values.tolist()]


def _read_kept(data: Any, n_groups: int) -> Floats:
    kept = np.array(data, np.float64)
    if not len(kept) or kept.shape != (len(kept), n_groups) or np.isnan(kept).any():
        raise ValueError("thresholds of intersections are missing, or don't match the groups")
    return kept


def _read_scores(item: dict[str, Any]) -> GroupScores:
    lower = np.array(item["lower"], np.float64)
    upper = lower if item["upper"] is None else np.array(item["upper"], np.float64)
    counts = read_counts(item["counts"])
    if lower.ndim != 1 or lower.shape != upper.shape or counts.shape[1:] != lower.shape:
        raise ValueError("columns of scores have different lengths")
    if not np.all(np.diff(lower) < 0) or not np.all(lower <= upper) or np.any(counts < 0):
        raise ValueError("scores are not in descending order, or counts are negative")
    scores = GroupScores.from_counts(lower, upper, counts)
    if item.get("gain") is None:
        return scores
    gain = np.array(item["gain"], np.float64)
    if gain.shape != (len(lower) + 1,) or not np.isfinite(gain).all():
        raise ValueError("utilities don't match the scores")
    return replace(scores, gain=gain)


def _read_family(item: dict[str, Any], criterion: Criterion, counts: Counts) -> ModelFamily:
    setting = np.array(item["setting"], np.float64)
    selected = read_counts(item["selected"])
    declared, n_declared = np.array(item["declared"]), item["family"]
    size = len(setting)
    if size == 0 or setting.shape != (size,) or np.isnan(setting).any():
        raise ValueError("settings are missing or NaN")
    if declared.shape != (size,) or declared.dtype != np.bool_:
        raise ValueError("declared must be one boolean per setting")
    if type(n_declared) is not int or n_declared < declared.sum():
        raise ValueError("family must be at least the number of declared settings")
    _check_selected(selected, size, counts)
    _check_eligible(criterion, counts)
    return ModelFamily(setting, selected, counts, criterion, declared, n_declared)


def _read_table(columns: dict[str, Any], counts: Counts) -> PointTable:
    setting = np.array(columns["setting"], np.float64)
    gap = np.array(columns["gap"], np.float64)
    certifiable = np.array(columns["certifiable"], np.bool_)
    thresholds = np.array(columns["thresholds"], np.float64)
    selected = read_counts(columns["selected"])
    size = len(gap)
    if size == 0 or any(column.shape != (size,) for column in (setting, gap, certifiable)):
        raise ValueError("columns of points have different lengths")
    if thresholds.shape != (size, counts.shape[1]):
        raise ValueError("thresholds don't match the groups")
    if any(np.isnan(column).any() for column in (setting, gap, thresholds)):
        raise ValueError("settings, gaps or thresholds are NaN")
    _check_selected(selected, size, counts)
    return PointTable(setting, gap, certifiable, thresholds, selected)


def _check_selected(selected: Counts, size: int, counts: Counts) -> None:
    if selected.shape != (size, *counts.shape):
        raise ValueError("selected rows don't match the rows")
    if np.any(selected < 0) or np.any(selected > counts):
        raise ValueError("more or fewer rows are selected than exist")


def _check_eligible(criterion: Criterion, counts: Counts) -> None:
    if not criterion.eligible_counts(counts).all():
        raise ValueError("some groups have no eligible rows")


def refuse_constant(text: str) -> float:
    """Raise: NaN and Infinity aren't JSON (``parse_constant`` of :func:`json.loads`)."""
    raise ValueError(f"{text} is not a finite number")
