"""What the page knows of a dial: counts of rows at every position, never the rows themselves.

The document is plain data for JSON. It holds, for each position that some tolerance leads to, how
many rows of each label and group are selected; the page works out rates, gaps and accuracies from
these, in the arithmetic of :class:`fairdial.Frontier`, so that both agree to the last bit.

What can be read from it: for each group and label how many calibration rows there are, how many
each position selects, and how many fall into each bin of the histogram. No features and no
identities; but where a group is small a count can be one person, and neighbouring positions differ
by one. Publish such a page only where the counts may be public.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairdial._validation import check_fraction, check_one
from fairdial._version import __version__
from fairdial.errors import CannotCertifyError, InvalidInputError
from fairdial.frontier import Frontier
from fairdial.ladders import Counts, Floats, Indices
from fairdial.methods.base import DialClassifier
from fairdial.paths import Path, States, count_for
from fairdial.serve.histogram import histogram
from fairdial.serve.packing import pack_floats, pack_ints
from fairdial.states_json import plain_name

FORMAT, VERSION = "fairdial.page", 1

MOST_STATES = 100_000  # positions on a page,
MOST_NUMBERS = 2_000_000  # and their counts and thresholds: about 3 MB
GRIDS = (5, 4, 3)  # decimals of the tolerances whose positions are kept where there are more
SLIDER = (3, 4)  # decimals of the slider's stops: usual, and for a gap that is small
SMALL_GAP = 0.02
CERTIFIED_STOPS = 50  # at most, as each takes a while
STEPS = tuple(step * 10**power for power in range(4) for step in (1, 2, 5))  # between them
MOST_PEOPLE = 10**10  # a need for more is one that can't be met
THRESHOLD_DECIMALS = 3
ENDLESS = 2**31 - 1  # a threshold that selects nobody, or everybody

WORDS: dict[int | None, tuple[str, str]] = {
    None: ("Equal selection", "Every group should be selected equally often."),
    1: (
        "Equal opportunity",
        "Of those whose label is {positive}, every group should be selected equally often.",
    ),
    0: (
        "Equal false alarms",
        "Of those whose label is {negative}, every group should be selected equally often.",
    ),
}


def page_data(
    model: DialClassifier | Frontier,
    *,
    name: str = "Fairness dial",
    people: Mapping[Hashable, str] | None = None,
    labels: tuple[str, str] | None = None,
    tolerance: float | None = None,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """The document from which the page is drawn, ready for JSON.

    Parameters
    ----------
    model : estimator or Frontier
        A calibrated model, or its frontier.
    name : str
        What the page calls the model.
    people : mapping, optional
        What to call the members of a group: ``{"Female": "women"}``.
    labels : (str, str), optional
        Names of the negative and the positive label; by default the model's, where these are text.
    tolerance : float, optional
        The position in use, with which others are compared; by default the model's own.
    confidence : float
        Of the statements about new rows.

    Returns
    -------
    dict
        ``format``, ``version``, ``name``, ``software``; ``criterion`` (``name``, ``counted``,
        ``title``, ``meaning``); ``groups`` (``name``, ``people``); ``labels``; ``rows`` by label
        and group; ``measured``; ``states``; ``slider`` (``digits``, ``stops``); ``certified``;
        ``histogram``; ``deployed`` (``tolerance``, ``confidence``, ``selected``) or None. Columns
        are packed by :mod:`fairdial.serve.packing`.

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
        frontier, position, known = model, tolerance, labels
    else:
        check_is_fitted(model, "frontier_")
        frontier = model.frontier_
        position = model.tolerance if tolerance is None else tolerance
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
        "rows": frontier.rows.tolist(),
        "measured": frontier.measured,
        "states": _states(frontier),
        "slider": slider,
        "certified": _certified(frontier, level, slider),
        "histogram": _histogram(frontier.states),
        "deployed": None if position is None else _deployed(frontier, check_one(position)),
    }


# ---- names -------------------------------------------------------------------------------------


def _text(value: Any, argument: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"`{argument}` must be text, got {value!r}.")
    return value


def _class_names(model: DialClassifier) -> tuple[str, str] | None:
    """The model's labels, negative first, where they are words."""
    negative, positive = model.classes_.tolist()
    words = isinstance(negative, str) and isinstance(positive, str)
    return (negative, positive) if words else None


def _label_names(labels: Any) -> dict[str, str] | None:
    if labels is None:
        return None
    if isinstance(labels, str) or len(labels) != 2:
        raise InvalidInputError(
            f"`labels` must be the names of the negative and the positive label, got {labels!r}."
        )
    return {"negative": _text(labels[0], "labels"), "positive": _text(labels[1], "labels")}


def _criterion(frontier: Frontier, labels: dict[str, str] | None) -> dict[str, Any]:
    counted = frontier.criterion.rates[0].counted
    title, meaning = WORDS[counted]
    quoted = {key: f"“{value}”" for key, value in (labels or {}).items()}
    meaning = meaning.format(**({"positive": "positive", "negative": "negative"} | quoted))
    return {
        "name": frontier.criterion.name,
        "counted": counted,
        "title": title,
        "meaning": meaning,
    }


def _groups(frontier: Frontier, people: Mapping[Hashable, str]) -> list[dict[str, Any]]:
    unknown = [group for group in people if group not in frontier.groups]
    if unknown:
        raise InvalidInputError(
            f"`people` must name groups among {list(frontier.groups)}, got {unknown[0]!r}."
        )
    return [
        {
            "name": str(plain_name(group)),
            "people": _text(people[group], "people") if group in people else None,
        }
        for group in frontier.groups
    ]


# ---- positions ---------------------------------------------------------------------------------


def _kept(frontier: Frontier) -> tuple[Indices, int | None]:
    """The positions on the page; and, if they are not all, decimals of tolerances that are exact.

    Whatever the first position within a tolerance is, it has a smaller gap than all before it: so
    only such positions are kept, and the first kept one is the same. Of a family all settings are
    kept, because all are shown.
    """
    states = frontier.states
    if frontier.measured:
        return np.arange(len(states)), None
    most = min(MOST_STATES, MOST_NUMBERS // (frontier.rows.size + len(frontier.groups)))
    dialled, decimals = np.flatnonzero(states.dialled), None
    for digits in GRIDS:
        if len(dialled) <= most:
            break
        grid = np.arange(10**digits + 1) / 10**digits
        dialled, decimals = np.unique(states.first_within(grid)[0]), digits
    return dialled, decimals


def _states(frontier: Frontier) -> dict[str, Any]:
    kept, decimals = _kept(frontier)
    thresholds, selected = frontier.states.read(kept)
    _check_gaps(frontier, kept, selected)
    return {
        "count": len(kept),
        "of": int(frontier.states.dialled.sum()) if not frontier.measured else len(kept),
        "decimals": decimals,
        "selected": pack_ints(selected.reshape(len(kept), -1)),
        "thresholds": None if frontier.measured else pack_ints(_rounded(thresholds)),
        "settings": pack_floats(frontier.setting[kept]) if frontier.measured else None,
        "declared": pack_ints(frontier.states.certifiable) if frontier.measured else None,
    }


def _check_gaps(frontier: Frontier, kept: Indices, selected: Counts) -> None:
    """The page works gaps out from counts: they must be the frontier's."""
    kind = frontier.criterion
    gap = kind.gap(count_for(kind, selected) / frontier.counted)
    if not np.array_equal(gap, frontier.gap[kept]):
        raise InvalidInputError(
            "`model` must have a frontier whose gaps are those of its counts, got one that was "
            "changed; calibrate it anew."
        )


def _rounded(thresholds: Floats) -> Counts:
    """Thresholds as whole numbers of their last decimal shown."""
    with np.errstate(invalid="ignore"):
        scaled = np.rint(thresholds * 10**THRESHOLD_DECIMALS)
    return np.asarray(np.clip(scaled, -ENDLESS, ENDLESS), np.int64)


def _slider(frontier: Frontier) -> dict[str, int]:
    """Stops at ``i / 10^digits`` up to the gap without constraint; ``step`` of certified ones."""
    free = float(frontier.gap[0])
    digits = SLIDER[free < SMALL_GAP]
    stops = int(np.searchsorted(np.arange(10**digits + 1) / 10**digits, free))
    step = next(step for step in STEPS if stops <= step * CERTIFIED_STOPS)
    return {"digits": digits, "stops": -(-stops // step) * step, "step": step}


def _deployed(frontier: Frontier, tolerance: float) -> dict[str, Any]:
    states = frontier.states.first_within(np.array([tolerance]))[0]
    selected = frontier.states.read(states)[1][0]
    return {"tolerance": tolerance, "confidence": None, "selected": selected.tolist()}


# ---- new rows ----------------------------------------------------------------------------------


def _certified(frontier: Frontier, level: float, slider: dict[str, int]) -> dict[str, Any]:
    """What can be said about new rows: at every ``step``-th stop, and at the first with a promise.

    That one may lie beyond the slider's end.
    """
    try:
        margin = frontier.margin(level)
    except CannotCertifyError:
        reason = "seen" if frontier.certificate == "none" else "searched"
        return {"level": level, "kind": "none", "reason": reason}
    kind = "simultaneous"
    if frontier.beforehand:
        kind = "declared"
    elif frontier.measured:
        kind = "finite"
    stops, smallest = [], None
    for number in range(0, slider["stops"] + 1, slider["step"]):
        stops.append(_promise(frontier, level, number, slider))
        smallest = stops[-1].smallest if smallest is None else smallest
    least = None if smallest is None else _stop_from(smallest, slider)
    if least is not None and least not in [stop.number for stop in stops]:
        stops = sorted([*stops, _promise(frontier, level, least, slider)])
    numbers, states, bounds, needed, _ = zip(*stops, strict=True)
    able = np.array(states) >= 0
    thresholds, selected = frontier.states.read(np.where(able, states, 0))
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
        "thresholds": None if frontier.measured else pack_ints(_rounded(thresholds)),
        "settings": pack_floats(frontier.setting[list(states)]) if frontier.measured else None,
    }


class _Stop(NamedTuple):
    """A stop of the slider, and what can be said about new rows there."""

    number: int
    state: int  # -1: nothing
    bound: float
    needed: int  # rows with which something could be said; 0: no number
    smallest: float | None  # tolerance with which it can, if it can't with this one


def _promise(frontier: Frontier, level: float, number: int, slider: dict[str, int]) -> _Stop:
    try:
        points = frontier.at([number / 10 ** slider["digits"]], confidence=level)
    except CannotCertifyError as error:
        rows = error.rows_needed or 0
        needed = rows if rows <= MOST_PEOPLE else 0
        return _Stop(number, -1, np.nan, needed, error.smallest_tolerance)
    return _Stop(number, int(points.states[0]), float(points[0].certified_gap), 0, None)


def _stop_from(tolerance: float, slider: dict[str, int]) -> int | None:
    """The first stop that is not below a tolerance; None: only at 1, where all gaps are."""
    unit = 10 ** slider["digits"]
    number = int(np.searchsorted(np.arange(unit + 1) / unit, tolerance))
    return number if number < unit else None


# ---- scores ------------------------------------------------------------------------------------


def _histogram(states: States) -> dict[str, Any] | None:
    """Rows by group, label and bin of their score; None where scores are not kept."""
    if not isinstance(states, Path):
        return None
    edges, counts = histogram(states.ladders)
    bins = len(edges) - 1
    return {"edges": pack_floats(edges), "bins": bins, "counts": pack_ints(counts.ravel())}
