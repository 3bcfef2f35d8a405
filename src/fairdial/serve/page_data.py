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

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypedDict

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairdial._arrays import Counts, Floats, Indices
from fairdial._validation import check_fraction, check_one_tolerance
from fairdial._version import __version__
from fairdial.core.frontier import Frontier
from fairdial.core.operating_points import OperatingPoints
from fairdial.core.serialization import json_name
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import CannotCertifyError, InvalidInputError
from fairdial.estimators.base import DialClassifier
from fairdial.serve.page_columns import histogram, pack_floats, pack_ints

FORMAT, VERSION = "fairdial.page", 1

MOST_POINTS = 100_000  # on a page
MOST_NUMBERS = 2_000_000  # counts and thresholds: about 3 MB
GRIDS = (5, 4, 3)  # decimals of the tolerances whose points are kept if there are more
SLIDER = (3, 4)  # decimals of the slider's stops: usual, and for a small gap
SMALL_GAP = 0.02
CERTIFIED_STOPS = 50  # at most, since each takes a while
STEPS = tuple(step * 10**power for power in range(4) for step in (1, 2, 5))  # between them
MOST_PEOPLE = 10**10  # more people than there can be
THRESHOLD_DECIMALS = 3
ENDLESS = 2**31 - 1  # stands for a threshold that selects nobody or everybody

TITLES = {"demographic_parity": "Equal selection", "predictive_equality": "Equal false alarms"}
MEANINGS: dict[int | None, str] = {  # by the label of eligible rows
    None: "Every group should be selected equally often.",
    1: "Of those whose label is {positive}, every group should be selected equally often.",
    0: "Of those whose label is {negative}, every group should be selected equally often.",
}


class Slider(TypedDict):
    """Stops at ``i / 10^digits`` for i up to ``stops``; every ``step``-th is certified."""

    digits: int
    stops: int
    step: int


class LabelNames(TypedDict):
    """What the page calls the labels."""

    negative: str
    positive: str


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
        ``format``, ``version``, ``name``, ``software``; ``criterion`` (``name``, ``counted``: the
        label of eligible rows, ``title``, ``meaning``); ``groups`` (``name``, ``people``);
        ``labels``; ``rows`` by label and group; ``measured``: whether it is a family of models;
        ``states``: the operating points; ``slider`` (``digits``, ``stops``); ``certified``;
        ``histogram``; ``deployed`` (``tolerance``, ``confidence``, ``selected``) or None. Columns
        are packed by :mod:`fairdial.serve.page_columns`.

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
    if isinstance(model, Frontier):
        frontier, in_use, known = model, tolerance, labels
    else:
        check_is_fitted(model, "frontier_")
        frontier = model.frontier_
        in_use = model.tolerance if tolerance is None else tolerance
        known = _class_names(model) if labels is None else labels
    level = check_fraction(confidence, "confidence")
    slider = _slider(frontier)
    label_names = _label_names(known)
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": _text(name, "name"),
        "software": f"fairdial {__version__}",
        "criterion": _criterion(frontier, label_names),
        "groups": _groups(frontier, people or {}),
        "labels": label_names,
        "rows": frontier.counts.tolist(),
        "measured": frontier.is_family,
        "states": _points(frontier),
        "slider": slider,
        "certified": _certified(frontier, level, slider),
        "histogram": _histogram(frontier.points),
        "deployed": None if in_use is None else _deployed(frontier, check_one_tolerance(in_use)),
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


def _label_names(labels: tuple[str, str] | None) -> LabelNames | None:
    if labels is None:
        return None
    if isinstance(labels, str) or len(labels) != 2:
        allowed = "be the names of the negative and the positive label"
        raise InvalidInputError("labels", allowed, given=repr(labels))
    return {"negative": _text(labels[0], "labels"), "positive": _text(labels[1], "labels")}


def _criterion(frontier: Frontier, labels: LabelNames | None) -> dict[str, object]:
    name, eligible = frontier.criterion.name, frontier.criterion.rate.eligible
    names = labels or {"negative": "negative", "positive": "positive"}
    shown = {key: f"“{value}”" if labels else value for key, value in names.items()}
    return {
        "name": name,
        "counted": eligible,
        "title": TITLES.get(name, name.replace("_", " ").capitalize()),
        "meaning": MEANINGS[eligible].format(**shown),
    }


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
    most = min(MOST_POINTS, MOST_NUMBERS // (frontier.counts.size + len(frontier.groups)))
    kept, decimals = np.flatnonzero(points.reachable), None
    for digits in GRIDS:
        if len(kept) <= most:
            break
        grid = np.arange(10**digits + 1) / 10**digits
        kept, decimals = np.unique(points.find(grid)[0]), digits
    return kept, decimals


def _points(frontier: Frontier) -> dict[str, object]:
    kept, decimals = _kept(frontier)
    thresholds, selected = frontier.points.read(kept)
    if not np.array_equal(
        frontier.criterion.gap_of(selected, frontier.counts), frontier.gap[kept]
    ):  # the page computes gaps from counts
        raise InvalidInputError(
            "model",
            "have a frontier whose gaps follow from its counts",
            given="one that was changed",
            hint="Calibrate it again.",
        )
    is_family = frontier.is_family
    return {
        "count": len(kept),
        "of": len(kept) if is_family else int(frontier.points.reachable.sum()),
        "decimals": decimals,
        "selected": pack_ints(selected.reshape(len(kept), -1)),
        "thresholds": None if is_family else pack_ints(_rounded(thresholds)),
        "settings": pack_floats(frontier.setting[kept]) if is_family else None,
        "declared": pack_ints(frontier.points.certifiable) if is_family else None,
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
    index = frontier.points.find(np.array([tolerance]))[0]
    selected = frontier.points.read(index)[1][0]
    return {"tolerance": tolerance, "confidence": None, "selected": selected.tolist()}


# ---- new rows ----------------------------------------------------------------------------------


class _Stop(NamedTuple):
    """A stop of the slider, and what can be certified there."""

    number: int
    place: int  # of the certified point; -1 if there is none
    bound: float
    needed: int  # rows that would certify it; 0 if no number would
    smallest: float | None  # certifiable tolerance, if this one isn't


def _certified(frontier: Frontier, level: float, slider: Slider) -> dict[str, object]:
    """Return what holds for new rows at every ``step``-th stop, and at the first certifiable one.

    The latter may lie beyond the slider's end.
    """
    try:
        margin = frontier.margin(level)
    except CannotCertifyError:
        reason = "seen" if frontier.certificate == "none" else "searched"
        return {"level": level, "kind": "none", "reason": reason}
    kind = "simultaneous"
    if frontier.needs_declared_tolerance:
        kind = "declared"
    elif frontier.is_family:
        kind = "finite"
    stops, smallest = [], None
    for number in range(0, slider["stops"] + 1, slider["step"]):
        stops.append(_certify(frontier, level, number, slider))
        smallest = stops[-1].smallest if smallest is None else smallest
    least = None if smallest is None else _stop_from(smallest, slider)
    if least is not None and least not in [stop.number for stop in stops]:
        stops = sorted([*stops, _certify(frontier, level, least, slider)])
    numbers, places, bounds, needed, _ = zip(*stops, strict=True)
    able = np.array(places) >= 0
    thresholds, selected = frontier.points.read(np.where(able, places, 0))
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
        "selected": pack_ints(selected.reshape(len(numbers), -1)),
        "thresholds": None if frontier.is_family else pack_ints(_rounded(thresholds)),
        "settings": pack_floats(frontier.setting[list(places)]) if frontier.is_family else None,
    }


def _certify(frontier: Frontier, level: float, number: int, slider: Slider) -> _Stop:
    try:
        points = frontier.at([number / 10 ** slider["digits"]], confidence=level)
    except CannotCertifyError as error:
        rows = error.rows_needed or 0
        needed = rows if rows <= MOST_PEOPLE else 0
        return _Stop(number, -1, np.nan, needed, error.smallest_tolerance)
    assert points.certified_gap is not None
    return _Stop(number, int(points.indices[0]), float(points.certified_gap[0]), 0, None)


def _stop_from(tolerance: float, slider: Slider) -> int | None:
    """Return the first stop at or above a tolerance, or None if that is 1, which limits nothing."""
    unit = 10 ** slider["digits"]
    number = int(np.searchsorted(np.arange(unit + 1) / unit, tolerance))
    return number if number < unit else None


# ---- scores ------------------------------------------------------------------------------------


def _histogram(points: OperatingPoints) -> dict[str, object] | None:
    """Return rows by group, label and bin of their score; None if scores are not kept."""
    if not isinstance(points, ThresholdPath):
        return None
    edges, counts = histogram(points.group_scores)
    bins = len(edges) - 1
    return {"edges": pack_floats(edges), "bins": bins, "counts": pack_ints(counts.ravel())}
