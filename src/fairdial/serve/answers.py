"""What the server answers: the models of the OpenAPI document, and points as JSON."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, Field

from fairdial.core.point import Point

Extended = float | Literal["Infinity", "-Infinity"]
"""A number, or the name of an infinite one, which JSON can't express."""
Label = str | int | float | bool


class Problem(BaseModel):
    """What went wrong, without repeating anything that was sent."""

    detail: str
    request: str = Field(description="Id of the request, also in the header X-Request-Id.")


class Health(BaseModel):
    """The server is up."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """The server can decide."""

    status: Literal["ready"]
    version: int = Field(description="The version of the dial.")
    model: str = Field(description="Hash of the model.")


class Decision(BaseModel):
    """The decision on one row."""

    decision: Label = Field(description="The predicted label.")
    margin: Extended = Field(
        description="How far the row is above the threshold of its group; positive rows are "
        "selected."
    )
    tolerance: float = Field(description="The tolerance used for this row.")


class DemandAnswer(BaseModel):
    """One demand of the criterion at an operating point, on the calibration rows."""

    demand: str = Field(description="What is demanded, such as `true_positive_rate>=0.8`.")
    gap: float = Field(
        description="Difference of the groups' rates, one minus their ratio, or what is missing to "
        "the minimum or maximum."
    )
    allowed: float = Field(description="The largest gap that the tolerance allows.")
    rates: dict[str, float | None] = Field(
        description="Rate by group; null where no row is eligible."
    )


class Position(BaseModel):
    """The operating point at a tolerance."""

    tolerance: float
    setting: Extended
    gap: float = Field(
        description="The gap on the calibration rows: the smallest tolerance that allows these "
        "decisions."
    )
    feasible: bool = Field(description="Whether that gap is within the tolerance.")
    certified_gap: float | None = Field(
        description="Upper bound of the gap on new rows at the confidence. At the dial's own "
        "tolerance the bound holds for that tolerance alone, if it was chosen without looking at "
        "the calibration rows; at others it holds for all tolerances at once."
    )
    thresholds: dict[str, Extended] | None = Field(
        description="Logit threshold by group; null for a family of models."
    )
    demands: list[DemandAnswer] = Field(description="Every demand of the criterion.")
    objective: str = Field(description="What the thresholds maximize.")
    value: float | None = Field(
        description="The objective on the labels of the calibration rows; null without labels."
    )


class BudgetAnswer(BaseModel):
    """The limit on the share of all rows that is selected."""

    share: float
    exact: bool = Field(description="Whether as many rows as possible are selected.")


class PredictAnswer(BaseModel):
    """Decisions, and everything they depend on."""

    rows: list[Decision]
    positions: list[Position] = Field(description="One operating point per distinct tolerance.")
    confidence: float | None
    version: int = Field(description="Version of the dial.")
    model: str = Field(description="Hash of the model.")


class DialAnswer(Position):
    """The dial as it is now."""

    groups: list[str] = Field(description="Group names, in the order of `selected`.")
    criterion: str
    budget: BudgetAnswer | None
    nested: bool = Field(
        description="Whether each row changes its decision at most once along the dial."
    )
    confidence: float | None
    version: int
    writable: bool
    reason: str
    who: str
    time: str | None
    selected: list[list[float]] = Field(
        description="Number of calibration rows selected, by label (negative first) and group."
    )
    least_confidence: float | None = Field(
        description="The lowest confidence that the server accepts for a change."
    )
    model: str


class DialPlace(BaseModel):
    """A tolerance with its confidence."""

    tolerance: float
    confidence: float | None


class AuditEntry(BaseModel):
    """A change to the dial."""

    version: int
    time: str
    who: str
    old: DialPlace | None
    new: DialPlace
    reason: str
    model: str
    gap: float | None = Field(description="The gap on the calibration rows after the change.")
    feasible: bool | None = Field(description="Whether that gap is within the new tolerance.")
    hash: str = Field(description="SHA-256 of this entry and of the hash before it.")


class AuditAnswer(BaseModel):
    """Changes to the dial, newest first."""

    entries: list[AuditEntry]
    altered: int | None = Field(
        description="Version of the first entry that doesn't match its hash; null if all match."
    )


class LookAnswer(BaseModel):
    """A test of a group's scores for drift."""

    distance: float = Field(
        description="Largest difference between the distributions of observed and calibration "
        "scores."
    )
    bound: float = Field(description="The largest distance that chance explains.")


class ObservedGroup(BaseModel):
    """The observations of one group."""

    group: str
    rows: int
    rows_at_dial: int = Field(description="Rows since the dial last changed.")
    selected: int = Field(description="How many of those were selected.")
    rate: float | None
    low: float
    high: float
    look: LookAnswer | None
    drift: bool


class ObservedGap(BaseModel):
    """The gap between selection rates, with an interval that holds at all times together."""

    gap: float
    low: float
    high: float
    confidence: float


class ObservedDemand(BaseModel):
    """The observed gap of one demand since the dial last changed."""

    demand: str
    rows: int = Field(description="Eligible rows, of those with a label if the rate needs one.")
    gap: float | None = Field(description="Null where a group has no eligible rows.")
    low: float | None = Field(
        description="Confidence sequence, for differences of rates: it holds at all times together."
    )
    high: float | None
    confidence: float


class WatchedDemand(BaseModel):
    """Evidence that one demand's gap is above the tolerance, since the dial last changed."""

    demand: str
    rows: int = Field(description="Eligible rows that were compared.")
    evidence: float = Field(
        description="The largest average fortune of the gamblers of a pair of groups, who start "
        "with 1, divided by the number of pairs."
    )
    largest: float = Field(description="The largest evidence so far.")
    needed: float = Field(description="Evidence that raises an alarm.")
    alarm: int | None = Field(description="Number of the row that raised the alarm.")


class Watched(BaseModel):
    """Evidence that may be looked at any time."""

    alarm: bool
    false_alarms: float = Field(
        description="Probability of an alarm at any time if the gap is always within the tolerance."
    )
    demands: list[WatchedDemand]


class Drift(BaseModel):
    """Whether the scores have changed since calibration."""

    warning: bool
    false_alarms: float = Field(
        description="Probability of a warning at any time if nothing has changed."
    )


class Proposal(BaseModel):
    """Thresholds from the observed scores, at the same tolerance and confidence."""

    tolerance: float
    gap: float
    feasible: bool
    confidence: float | None = Field(description="The dial's confidence.")
    certified_gap: float | None = Field(
        description="Upper bound of the gap on new rows at the confidence."
    )
    thresholds: dict[str, Extended]
    demands: list[DemandAnswer]


class ObserveAnswer(BaseModel):
    """The observations since counting began."""

    since: str
    groups: list[ObservedGroup]
    gap: ObservedGap | None = Field(
        description="The gap between selection rates, if the criterion is demographic parity."
    )
    demands: list[ObservedDemand]
    watch: Watched
    drift: Drift | None
    proposal: Proposal | None
    notes: list[str] = Field(description="What is missing, and why.")
    tolerance: float
    confidence: float | None
    version: int
    model: str


# ---- JSON --------------------------------------------------------------------------------------


def point_data(point: Point, *, is_family: bool) -> dict[str, object]:
    """Return an operating point as the fields of :class:`Position`."""
    names = [str(group) for group in point.groups]
    thresholds = map(extended, point.thresholds.tolist())
    return {
        "tolerance": point.tolerance,
        "setting": extended(point.setting),
        "gap": point.gap,
        "feasible": point.feasible,
        "certified_gap": point.certified_gap,
        "thresholds": None if is_family else dict(zip(names, thresholds, strict=True)),
        "demands": demands_data(point),
        "objective": point.problem.objective.name,
        "value": point.value,
    }


def demands_data(point: Point) -> list[dict[str, object]]:
    """Return the demands of a point as the fields of :class:`DemandAnswer`."""
    demands = point.criterion.demands
    rates = point.rates.reshape(len(demands), -1).tolist()
    names = [str(group) for group in point.groups]
    return [
        {
            "demand": demand.name,
            "gap": gap,
            "allowed": float(demand.scale) * point.tolerance,
            "rates": {
                name: None if math.isnan(rate) else rate
                for name, rate in zip(names, line, strict=True)
            },
        }
        for demand, gap, line in zip(demands, point.gaps.values(), rates, strict=True)
    ]


def extended(value: float) -> float | str:
    """Return a number, or its name if it is infinite."""
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def number_json(value: float | None) -> str:
    """Return a number as JSON text."""
    if value is None:
        return "null"
    return repr(value) if math.isfinite(value) else f'"{extended(value)}"'
