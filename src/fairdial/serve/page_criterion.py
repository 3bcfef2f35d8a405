"""What the page says about a criterion and an objective, and how it computes them."""

from __future__ import annotations

from typing import TypedDict

from fairdial.core.criteria import Criterion
from fairdial.core.demands import RATIO, Demand
from fairdial.core.frontier import Frontier

TITLES = {
    "demographic_parity": "Equal selection",
    "predictive_equality": "Equal false alarms",
    "accuracy_parity": "Equal accuracy",
    "predictive_parity": "Equal precision",
}
MEANINGS: dict[object, str] = {  # by the label of eligible rows
    None: "Every group should be selected equally often.",
    1: "Of those whose label is {positive}, every group should be selected equally often.",
    0: "Of those whose label is {negative}, every group should be selected equally often.",
}
RATES = {  # in the middle of a sentence
    "selection_rate": "share selected",
    "true_positive_rate": "share selected of those whose label is {positive}",
    "false_positive_rate": "share selected of those whose label is {negative}",
    "false_negative_rate": "share not selected of those whose label is {positive}",
    "true_negative_rate": "share not selected of those whose label is {negative}",
    "accuracy": "share of correct decisions",
    "precision": "share whose label is {positive} among the selected",
    "false_omission_rate": "share whose label is {positive} among those not selected",
}
WHOSE: dict[object, str] = {  # by the eligible rows of a rate
    None: "people",
    1: "people labeled {positive}",
    0: "people labeled {negative}",
    "selected": "selected people",
    "rejected": "people not selected",
}
WHAT = {  # by the event that a rate counts
    "selected": "who are selected",
    "rejected": "who are not selected",
    "positive": "who are labeled {positive}",
    "correct": "whose decision is correct",
}
PREDICTED = {  # the same if labels have names
    "selected": "who are predicted {positive}",
    "rejected": "who are predicted {negative}",
}


class LabelNames(TypedDict):
    """What the page calls the labels."""

    negative: str
    positive: str


def describe_criterion(frontier: Frontier, labels: LabelNames | None) -> dict[str, object]:
    """Return the criterion in plain words, and its demands as the page computes them."""
    criterion = frontier.criterion
    names = labels or {"negative": "negative", "positive": "positive"}
    shown = {key: f"“{value}”" if labels else str(value) for key, value in names.items()}
    demands = [_demand(demand, shown, named=bool(labels)) for demand in criterion.demands]
    simple = criterion.is_simple
    eligible = criterion.demands[0].rate.eligible if simple else None
    return {
        "name": criterion.name,
        "simple": simple,
        "counted": eligible,
        "title": " and ".join(_title(part) for part in criterion.name.split("+")),
        "meaning": MEANINGS[eligible].format(**shown) if simple else _meaning(criterion, shown),
        "demands": demands,
    }


def _title(name: str) -> str:
    for sign, word in ((">=", "least"), ("<=", "most")):
        rate, found, level = name.partition(sign)
        if found:
            return f"{_title(rate)} at {word} {100 * float(level.split('=')[0]):.4g}%"
    name = name.split("=")[0]
    stem = name.removesuffix(RATIO)
    title = TITLES.get(stem, stem.replace("_", " ").capitalize())
    return title if stem == name else f"{title} (ratio)"


def _rate(demand: Demand, labels: dict[str, str]) -> str:
    text = RATES.get(demand.rate.name, demand.rate.name.replace("_", " ")).format(**labels)
    return f"{text}, within {demand.within}" if demand.within else text


def _heading(demand: Demand, labels: dict[str, str], *, named: bool) -> str:
    """Say whose share of what a picture of the groups' rates shows."""
    rate = demand.rate
    what = PREDICTED.get(rate.event, WHAT[rate.event]) if named else WHAT[rate.event]
    text = f"Share of {WHOSE[rate.eligible]} in each group {what}".format(**labels)
    return f"{text}, within {demand.within}" if demand.within else text


def _demand(demand: Demand, labels: dict[str, str], *, named: bool) -> dict[str, object]:
    return {
        "name": demand.name,
        "title": _rate(demand, labels),
        "heading": _heading(demand, labels, named=named),
        "eligible": demand.rate.eligible,
        "event": demand.rate.event,
        "spread": demand.spread,
        "scale": float(demand.scale),
        "level": demand.level,
        "strata": None if demand.strata is None else list(demand.strata),
    }


def _meaning(criterion: Criterion, labels: dict[str, str]) -> str:
    near = [_rate(d, labels) for d in criterion.demands if d.spread in ("difference", "ratio")]
    text = []
    if near:
        text.append(f"In all groups, these should be about the same: {'; '.join(near)}.")
    for demand in criterion.demands:
        if demand.spread in ("minimum", "maximum"):
            word = "least" if demand.spread == "minimum" else "most"
            level = f"{100 * demand.level:.4g}%"
            text.append(f"In every group, the {_rate(demand, labels)} should be at {word} {level}.")
    return " ".join(text)


def describe_objective(frontier: Frontier) -> dict[str, object]:
    """Return the objective's name, and the terms that it is computed from if there are labels.

    With true positives TP and false positives FP, it is ``(a TP + b FP + c) / (d TP + e FP + f)``.
    """
    objective = frontier.objective
    known = frontier.has_labels and objective.name != "utility"
    terms = None
    if known:
        found = objective.terms(*frontier.counts.sum(axis=1).tolist())
        terms = [*found[:3], *found.below]
    return {"name": objective.name, "title": objective.title, "terms": terms}
