"""The document that the page is drawn from: counts of rows at every point, never the rows.

The document is plain JSON data. For each operating point that some tolerance leads to, it has the
number of selected rows by label and group. The page computes rates, gaps and accuracies from these
counts with the arithmetic of :class:`fairdial.Frontier`, so both agree to the last bit.

What can be read from it: by group and label, the number of calibration rows, the number that each
point selects, and the number in each bin of the histogram. It has no features and no identities.
But in a small group a count can be one person, and neighboring points differ by one row: publish
the page only if the counts may be public.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypedDict

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairdial._arrays import Counts, Floats, Indices
from fairdial._validation import check_confidence, check_one_tolerance
from fairdial._version import __version__
from fairdial.core.decide import by_label
from fairdial.core.frontier import Frontier, refuse_groupings, refuse_prices
from fairdial.core.nested import NestedPoints
from fairdial.core.operating_points import PointTable
from fairdial.core.point import Points
from fairdial.core.rising import rising_frontier
from fairdial.core.searched import SearchedPoints
from fairdial.core.serialization import json_name
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import CannotCertifyError, InvalidInputError
from fairdial.estimators.base import DialClassifier
from fairdial.serve.page_columns import histogram, pack_counts, pack_floats, pack_ints
from fairdial.serve.page_criterion import LabelNames, describe_criterion, describe_objective

FORMAT, VERSION = "fairdial.page", 3

MOST_POINTS = 100_000  # on a page
MOST_NUMBERS = 2_000_000  # counts and thresholds: about 3 MB
GRIDS = (5, 4, 3)  # decimals of the tolerances whose points are kept if there are more
SLIDER = (3, 4)  # decimals of the slider's stops: usual, and for a small gap
SMALL_GAP = 0.02
CERTIFIED_STOPS = 50  # at most, since each takes a while
SEARCHED_STOPS = 200  # at most, where each is a search
SLOW_STOPS = 50  # the same for rates that don't rise with the selected rows
STEPS = tuple(step * 10**power for power in range(4) for step in (1, 2, 5))  # between them
MOST_PEOPLE = 10**10  # more people than there can be
THRESHOLD_DECIMALS = 3
ENDLESS = 2**31 - 1  # stands for a threshold that selects nobody or everybody


class Slider(TypedDict):
    """Stops at ``i / 10^digits`` for i up to ``stops``; every ``step``-th is certified."""

    digits: int
    stops: int
    step: int


def page_data(
    model: DialClassifier | Frontier,
    *,
    name: str = "Fairness dial",
    people: Mapping[Hashable, str] | Mapping[str, str] | None = None,
    labels: tuple[str, str] | None = None,
    tolerance: float | None = None,
    confidence: float = 0.95,
) -> dict[str, object]:
    """Return the document that the page is drawn from, ready for JSON.

    Parameters
    ----------
    model : estimator or Frontier
        A calibrated model, or its frontier.
    name : str
        What the page calls the model.
    people : mapping, optional
        What to call the members of a group, by its name: ``{"Female": "women"}``.
    labels : (str, str), optional
        Names of the negative and the positive label; by default the model's, if they are text.
    tolerance : float, optional
        The tolerance in use, which others are compared with; by default the model's.
    confidence : float
        Confidence of the statements about new rows.

    Returns
    -------
    dict
        ``format``, ``version``, ``name``, ``software``; ``criterion`` (``name``, ``simple``,
        ``counted``: the label of eligible rows, ``title``, ``meaning``, ``demands``);
        ``objective``, ``budget``, ``nested`` and ``loss``, ``lottery``; ``groups`` (``name``,
        ``people``); ``labels``; ``strata``: their number; ``rows`` by stratum, label and group;
        ``measured``: whether it is a family of models; ``states``: the operating points;
        ``rising``: the answers where nobody loses; ``slider`` (``digits``, ``stops``);
        ``certified``; ``histogram``; ``deployed`` (``tolerance``, ``confidence``, ``selected``,
        ``gap``) or None. Columns are packed by :mod:`fairdial.serve.page_columns`.

    Examples
    --------
    >>> from fairdial import sweep
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.serve.page_data import page_data
    >>> sample = make_gaussian(20_000, random_state=0)
    >>> frontier = sweep(sample.logits, sample.groups, sample.y)
    >>> document = page_data(frontier, name="Loans", labels=("default", "repaid"))
    >>> document["criterion"]["meaning"]
    'Every group should be selected equally often.'
    """
    frontier: Frontier
    if isinstance(model, Frontier):
        frontier, in_use, known = model, tolerance, labels
    else:
        check_is_fitted(model, "frontier_")
        frontier = model.frontier_
        in_use = model.default_tolerance if tolerance is None else tolerance
        known = _class_names(model) if labels is None else labels
    refuse_prices(frontier, "shown on a page")
    refuse_groupings(frontier, "shown on a page")
    level = check_confidence(confidence)
    if in_use is not None:
        in_use = check_one_tolerance(in_use)
    slider = _slider(frontier)
    label_names = check_label_names(known)
    budget = frontier.problem.budget
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": _text(name, "name"),
        "software": f"fairdial {__version__}",
        "criterion": describe_criterion(frontier, label_names),
        "objective": describe_objective(frontier),
        "budget": None if budget is None else {"share": budget.share, "exact": budget.exact},
        "nested": frontier.nested or frontier.is_family,
        "loss": frontier.nested_loss,
        "lottery": frontier.problem.randomize is not None,
        "groups": _groups(frontier, people or {}),
        "labels": label_names,
        "strata": frontier.problem.criterion.n_strata,
        "rows": frontier.cells.tolist(),
        "measured": frontier.is_family,
        "states": _points(frontier, _grid(frontier, slider, in_use)),
        "rising": _rising(frontier, slider, in_use),
        "slider": slider,
        "certified": _certified(frontier, level, slider),
        "histogram": _histogram(frontier),
        "deployed": None if in_use is None else _deployed(frontier, in_use),
    }


# ---- names -------------------------------------------------------------------------------------


def _text(value: object, argument: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(argument, "be text", given=repr(value))
    return value


def _class_names(model: DialClassifier) -> tuple[str, str] | None:
    """Return the model's labels, negative first, if they are text."""
    negative, positive = model.classes_.tolist()
    is_text = isinstance(negative, str) and isinstance(positive, str)
    return (negative, positive) if is_text else None


def check_label_names(labels: tuple[str, str] | None) -> LabelNames | None:
    """Return the names of the labels; raise unless they are two texts."""
    if labels is None:
        return None
    if isinstance(labels, str) or len(labels) != 2:
        allowed = "be the names of the negative and the positive label"
        raise InvalidInputError("labels", allowed, given=repr(labels))
    return {"negative": _text(labels[0], "labels"), "positive": _text(labels[1], "labels")}


def match_people(
    groups: Sequence[Hashable], people: Mapping[Hashable, str] | Mapping[str, str]
) -> dict[Hashable, str]:
    """Return what members are called by group, from a mapping by group or by its name as text.

    Examples
    --------
    >>> from fairdial.serve.page_data import match_people
    >>> match_people((0, 1), {"1": "women"})
    {1: 'women'}
    """
    known = {str(group): group for group in groups} | {group: group for group in groups}
    for name in people:
        if name not in known:
            allowed = f"have keys among {', '.join(map(str, groups))}"
            raise InvalidInputError("people", allowed, given=repr(name))
    return {known[name]: _text(text, "people") for name, text in people.items()}


def _groups(
    frontier: Frontier, people: Mapping[Hashable, str] | Mapping[str, str]
) -> list[dict[str, str | None]]:
    called = match_people(frontier.groups, people)
    return [
        {"name": str(json_name(group)), "people": called.get(group)} for group in frontier.groups
    ]


# ---- points ------------------------------------------------------------------------------------


def _kept(frontier: Frontier) -> tuple[Indices, int | None]:
    """Return the points on the page, and the decimals of exact tolerances if they aren't all.

    The first point within a tolerance has a smaller gap than all points before it, so only such
    points are kept, and the first kept point is the same. All points of a family are kept, because
    all are shown.
    """
    points = frontier.points
    if frontier.is_family:
        return np.arange(len(points)), None
    most = min(MOST_POINTS, MOST_NUMBERS // (frontier.cells.size + len(frontier.groups)))
    kept, decimals = np.flatnonzero(points.reachable), None
    for digits in GRIDS:
        if len(kept) <= most:
            break
        grid = np.arange(10**digits + 1) / 10**digits
        kept, decimals = np.unique(points.find(grid)[0]), digits
    return kept, decimals


def _grid(frontier: Frontier, slider: Slider, in_use: float | None) -> Floats:
    """Return the tolerances that are searched for, descending: 1, stops, and the one in use."""
    slow = any(not demand.rate.direction for demand in frontier.criterion.demands)
    most = SLOW_STOPS if slow else SEARCHED_STOPS
    step = next(step for step in STEPS if slider["stops"] <= step * most)
    stops = np.arange(0, slider["stops"] + 1, step) / 10 ** slider["digits"]
    more = [1.0] if in_use is None else [1.0, in_use]
    return np.unique(np.append(stops, more))[::-1]


def _points(frontier: Frontier, grid: Floats) -> dict[str, object]:
    """Return points that are walked along, then answers to the tolerances of the grid.

    The page goes to the first point within a tolerance. Where there is none, and where every
    tolerance is a search of its own, it takes the answer to the next lower tolerance of the grid.
    """
    points, is_family = frontier.points, frontier.is_family
    searched = isinstance(points, SearchedPoints)
    kept, decimals = (np.arange(0), None) if searched else _kept(frontier)
    if isinstance(points, ThresholdPath):
        grid = grid[grid < points.gap[kept].min()]
    elif not searched:
        grid = grid[:0]
    thresholds, selected = points.read(kept)
    gap = points.gap[kept]
    if not isinstance(points, NestedPoints) and not np.array_equal(
        frontier.criterion.gap_of(selected, frontier.cells), gap
    ):
        raise InvalidInputError(
            "model",
            "have a frontier whose gaps follow from its counts",
            given="one that was changed",
            hint="Calibrate it again.",
        )
    if len(grid):
        table, _ = points.choose(grid)
        found, chosen = table.read(np.arange(len(table)))
        thresholds = np.concatenate([thresholds, found])
        selected = np.concatenate([selected, chosen])
        gap = np.concatenate([gap, table.gap])
    return {
        "count": len(gap),
        "of": len(kept) if is_family else int(points.reachable.sum()),
        "decimals": decimals,
        "selected": pack_counts(selected.reshape(len(gap), -1)),
        "gaps": pack_floats(gap) if len(grid) or not frontier.criterion.is_simple else None,
        "answers": pack_floats(grid),
        "thresholds": None if is_family else pack_ints(_rounded(thresholds)),
        "settings": pack_floats(frontier.setting[kept]) if is_family else None,
        "declared": pack_ints(points.certifiable) if is_family else None,
    }


def _rising(frontier: Frontier, slider: Slider, in_use: float | None) -> dict[str, object] | None:
    """Return the answers where no row loses a positive decision; None if there are none."""
    if frontier.problem.rising or not slider["stops"]:
        return None
    rising = rising_frontier(frontier)
    if rising is None:
        return None
    grid, tables = _grid(frontier, slider, in_use), list[PointTable]()
    for tolerance in grid.tolist():
        if (
            not tables or tables[-1].gap[0] > tolerance
        ):  # else the last answer is also the best here
            tables.append(rising.points.choose(np.array([tolerance]))[0])
            if tables[-1].gap[0] > tolerance:
                break  # the smallest gap
    first = np.array([0])
    selected = np.concatenate([table.read(first)[1] for table in tables])
    return {
        "count": len(tables),
        "gaps": pack_floats([table.gap[0] for table in tables]),
        "selected": pack_counts(selected.reshape(len(tables), -1)),
    }


def _rounded(thresholds: Floats) -> Counts:
    """Return thresholds as multiples of the last decimal shown."""
    with np.errstate(invalid="ignore"):
        scaled = np.rint(thresholds * 10**THRESHOLD_DECIMALS)
    return np.asarray(np.clip(scaled, -ENDLESS, ENDLESS), np.int64)


def _slider(frontier: Frontier) -> Slider:
    """Return a slider that ends at or just above the unconstrained gap."""
    unconstrained = float(frontier.gap[0])
    digits = SLIDER[unconstrained < SMALL_GAP]
    stops = int(np.searchsorted(np.arange(10**digits + 1) / 10**digits, unconstrained))
    step = next(step for step in STEPS if stops <= step * CERTIFIED_STOPS)
    return {"digits": digits, "stops": -(-stops // step) * step, "step": step}


def _deployed(frontier: Frontier, tolerance: float) -> dict[str, object]:
    table, _ = frontier.points.choose(np.array([tolerance]))
    selected = by_label(table.read(np.array([0]))[1][0], len(frontier.counts))
    found = {"tolerance": tolerance, "confidence": None, "selected": selected.tolist()}
    return found | {"gap": float(table.gap[0])}


# ---- new rows ----------------------------------------------------------------------------------


class _Stop(NamedTuple):
    """A stop of the slider, and what can be certified there."""

    number: int
    points: Points | None  # the certified point
    bound: float = np.nan
    needed: int = 0  # rows that would certify it; 0 if no number would
    needed_each: int = 0  # rows in each group that has fewer that would certify it, likewise
    smallest: float | None = None  # certifiable tolerance, if this one isn't


def _certified(frontier: Frontier, level: float, slider: Slider) -> dict[str, object]:
    """Return what holds for new rows at every ``step``-th stop, and at the first certifiable one.

    The latter may lie beyond the slider's end.
    """
    margin = None
    with contextlib.suppress(CannotCertifyError):  # without a margin, each stop has its bound
        margin = frontier.margin(level)
    if margin is None and (frontier.is_family or not frontier.can_certify):
        reasons = {"none": "seen", "weighted": "weighted"}
        other = "searched" if frontier.is_family else "demand"
        reason = reasons.get(frontier.certificate, other)
        return {"level": level, "kind": "none", "reason": reason}
    if frontier.problem.randomize is not None:
        return {"level": level, "kind": "none", "reason": "lottery"}
    kind = "simultaneous"
    if frontier.needs_declared_tolerance:
        kind = "declared"
    elif frontier.is_family:
        kind = "finite"
    stops: list[_Stop] = []
    smallest = None
    for number in range(0, slider["stops"] + 1, slider["step"]):
        stops.append(_certify(frontier, level, number, slider))
        smallest = stops[-1].smallest if smallest is None else smallest
    least = None if smallest is None else _stop_from(smallest, slider)
    if least is not None and least not in [stop.number for stop in stops]:
        stops.append(_certify(frontier, level, least, slider))
        stops.sort(key=lambda stop: stop.number)
    numbers, found, bounds, needed, needed_each, _ = zip(*stops, strict=True)
    able = np.array([points is not None for points in found])
    n_groups, size = len(frontier.groups), frontier.cells.size
    selected = np.zeros((len(stops), size), frontier.cells.dtype)
    thresholds, settings = np.zeros((len(stops), n_groups)), np.zeros(len(stops))
    for i, points in enumerate(found):
        if points is not None:
            selected[i] = points.selected_cells[0].reshape(-1)
            thresholds[i], settings[i] = points.thresholds[0], points.setting[0]
    first = int(np.argmax(able))
    return {
        "level": level,
        "kind": kind,
        "margin": margin,
        "smallest": numbers[first] / 10 ** slider["digits"] if able[first] else None,
        "stops": len(numbers),
        "numbers": pack_ints(numbers),
        "able": pack_ints(able),
        "bounds": pack_floats(np.array(bounds)),
        "needed": pack_ints(needed),
        "needed_each": pack_ints(needed_each),
        "selected": pack_counts(selected),
        "thresholds": None if frontier.is_family else pack_ints(_rounded(thresholds)),
        "settings": pack_floats(settings) if frontier.is_family else None,
    }


def _certify(frontier: Frontier, level: float, number: int, slider: Slider) -> _Stop:
    try:
        points = frontier.at([number / 10 ** slider["digits"]], confidence=level)
    except CannotCertifyError as error:
        wanted = error.rows_needed or 0, error.group_rows_needed or 0
        needed, each = (rows if rows <= MOST_PEOPLE else 0 for rows in wanted)
        return _Stop(number, None, np.nan, needed, each, error.smallest_tolerance)
    assert points.certified_gap is not None
    return _Stop(number, points, float(points.certified_gap[0]))


def _stop_from(tolerance: float, slider: Slider) -> int | None:
    """Return the first stop at or above a tolerance, or None if that is 1, which limits nothing."""
    unit = 10 ** slider["digits"]
    number = int(np.searchsorted(np.arange(unit + 1) / unit, tolerance))
    return number if number < unit else None


# ---- scores ------------------------------------------------------------------------------------


def _histogram(frontier: Frontier) -> list[dict[str, object]] | None:
    """Return each group's bins of scores, and rows by label; None if scores are not kept."""
    points = frontier.points
    if isinstance(points, NestedPoints):
        points = points.source
    if not isinstance(points, (ThresholdPath, SearchedPoints)):
        return None
    return [
        {
            "edges": pack_floats(edges),
            "counts": pack_counts(by_label(kinds, len(frontier.counts)).reshape(-1, 1)),
        }
        for edges, kinds in histogram(points.group_scores)
    ]
