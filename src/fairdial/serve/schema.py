"""What the server is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from fairdial.columns import LARGEST

MOST_ROWS = 1_000
MOST_SCORES = 10_000
LONGEST_REASON, LONGEST_NAME = 500, 100

Number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]
Tolerance = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]
Confidence = Annotated[float, Field(strict=True, gt=0.0, lt=1.0)]
Extended = float | Literal["Infinity", "-Infinity"]
"""A number, or one of two words, as JSON has no infinite numbers."""
Label = str | int | float | bool


def _text(longest: int) -> Any:
    return StringConstraints(
        strict=True, strip_whitespace=True, min_length=1, max_length=longest, pattern=r"\S"
    )


class Asked(BaseModel):
    """What is asked has no other fields than those named."""

    model_config = ConfigDict(extra="forbid")


# ---- asked -------------------------------------------------------------------------------------


class Row(TypedDict):  # faster to make than a model
    """One row to decide on."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    features: Any
    group: NotRequired[Any]
    tolerance: NotRequired[Tolerance | None]


class PredictRequest(Asked):
    """Rows to decide on."""

    rows: Annotated[list[Row], Field(min_length=1, max_length=MOST_ROWS)]
    tolerance: Tolerance | None = None


class DialRequest(Asked):
    """A move of the dial."""

    tolerance: Tolerance
    confidence: Confidence | None = None
    reason: Annotated[str, _text(LONGEST_REASON)]
    by: Annotated[str, _text(LONGEST_NAME)] | None = None


class ObservedRow(Asked):
    """One row that was decided on."""

    features: Any
    group: Any = None


class ObserveRequest(Asked):
    """Unlabelled rows of the day: their scores and groups, or the rows themselves."""

    scores: Annotated[list[Number], Field(min_length=1, max_length=MOST_SCORES)] | None = None
    groups: Annotated[list[Any], Field(max_length=MOST_SCORES)] | None = None
    rows: Annotated[list[ObservedRow], Field(min_length=1, max_length=MOST_ROWS)] | None = None


FIELDS = {
    "rows": f"a list of 1 to {MOST_ROWS:,} rows",
    "features": "the row's columns",
    "group": "the name of a group",
    "tolerance": "a number from 0 to 1, such as 0.05 for 5%",
    "confidence": "a number above 0 and below 1, such as 0.95 for 95%, or null",
    "reason": f"text of 1 to {LONGEST_REASON} characters",
    "by": f"text of 1 to {LONGEST_NAME} characters, or left out",
    "scores": f"a list of 1 to {MOST_SCORES:,} numbers",
    "groups": f"a list of at most {MOST_SCORES:,} names of groups",
}
"""What can be asked, by name, and what it must be."""
PARTS = {
    "rows": "an object with `features` and `group`",
    "scores": f"a number of at most {LARGEST:g} in size",
}
KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
GOT = {
    "missing": "nothing",
    "string_too_short": "empty text",
    "string_pattern_mismatch": "empty text",
    "string_too_long": "longer text",
    "too_short": "an empty list",
    "too_long": "a longer list",
    "greater_than": "another number",
    "greater_than_equal": "another number",
    "less_than": "another number",
    "less_than_equal": "another number",
    "finite_number": "another number",
}
"""What was sent, by pydantic's type of an error, where its kind is right."""


def say_problem(place: Sequence[int | str], kind: str, given: Any) -> str:
    """What is wrong with a request, by pydantic's place and type of an error.

    Only the kind of what was sent is told: neither values nor names of fields are repeated.

    Examples
    --------
    >>> from fairdial.serve.schema import say_problem
    >>> say_problem(["tolerance"], "less_than_equal", 1.3)
    '`tolerance` must be a number from 0 to 1, such as 0.05 for 5%, got another number'
    >>> say_problem(["reason"], "missing", {"tolerance": 0.1})
    '`reason` must be text of 1 to 500 characters, got nothing'
    """
    extra = kind == "extra_forbidden"  # the last of the place is the field that is too many
    known = [p for p in place[: -1 if extra else None] if isinstance(p, int) or p in FIELDS]
    where = f"`{'.'.join(map(str, known))}`" if known else "the request"
    if extra:
        return f"{where} must have no other fields than those documented, got another"
    got = GOT.get(kind) or KINDS.get(type(given), "something else")
    if not known:
        return f"{where} must be an object, got {got}"
    name = next(p for p in reversed(known) if isinstance(p, str))
    must = PARTS[name] if isinstance(known[-1], int) else FIELDS[name]
    return f"{where} must be {must}, got {got}"


# ---- answered ----------------------------------------------------------------------------------


class Problem(BaseModel):
    """What went wrong; nothing that was sent is repeated."""

    detail: str
    request: str = Field(description="Id of the request, also in the header X-Request-Id.")


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]


class Decision(BaseModel):
    """One row's decision."""

    decision: Label = Field(description="The label.")
    margin: Extended = Field(description="How far above the border of the positive label.")
    tolerance: float = Field(description="The tolerance at which it was decided.")


class Position(BaseModel):
    """Where the dial stands for a tolerance."""

    tolerance: float
    setting: Extended
    gap: float = Field(description="Of the calibration rows.")
    feasible: bool = Field(description="Whether that gap is within the tolerance.")
    certified_gap: float | None = Field(
        description="What the gap of new rows stays within, with the confidence: the dial's own "
        "tolerance by itself, any other for the whole dial at once."
    )
    thresholds: dict[str, Extended] | None = Field(
        description="Logit threshold by group; null where a family of models decides."
    )


class PredictAnswer(BaseModel):
    """Decisions, and everything that they follow from."""

    rows: list[Decision]
    positions: list[Position] = Field(description="One for each tolerance that occurs.")
    confidence: float | None
    version: int = Field(description="Of the dial.")
    model: str = Field(description="Hash of the model.")


class DialAnswer(Position):
    """Where the dial stands."""

    groups: list[str] = Field(description="Names, in the order of `selected`.")

    confidence: float | None
    version: int
    writable: bool
    reason: str
    who: str
    time: str | None
    selected: list[list[int]] = Field(
        description="Calibration rows that are selected, by label (negative first) and group."
    )
    least_confidence: float | None = Field(description="What the server asks of every move.")
    model: str


class DialPlace(BaseModel):
    """A place of the dial."""

    tolerance: float
    confidence: float | None


class AuditEntry(BaseModel):
    """A move of the dial."""

    version: int
    time: str
    who: str
    old: DialPlace | None
    new: DialPlace
    reason: str
    model: str
    gap: float | None = Field(description="That of the calibration rows at the new place.")
    feasible: bool | None = Field(description="Whether it is within the new tolerance.")
    hash: str = Field(description="SHA-256 of the entry before and of this one.")


class AuditAnswer(BaseModel):
    """Moves of the dial, the last one first."""

    entries: list[AuditEntry]
    altered: int | None = Field(
        description="Version of the first entry of the log that isn't what its hash says; null: "
        "all are."
    )


class LookAnswer(BaseModel):
    """A look at a group's scores."""

    distance: float = Field(description="Largest distance of the two distributions of scores.")
    bound: float = Field(description="What chance allows.")


class ObservedGroup(BaseModel):
    """What was observed of a group."""

    group: str
    rows: int
    rows_at_dial: int = Field(description="Since the dial was moved where it stands.")
    selected: int = Field(description="Of those.")
    rate: float | None
    low: float
    high: float
    look: LookAnswer | None
    drift: bool


class ObservedGap(BaseModel):
    """The gap of selection rates, with an interval."""

    gap: float
    low: float
    high: float
    confidence: float


class Drift(BaseModel):
    """Whether the scores have changed since calibration."""

    warning: bool
    false_alarms: float = Field(description="Chance of a warning ever, if nothing has changed.")


class Proposal(BaseModel):
    """Thresholds for the same tolerance and confidence, from the observed scores."""

    tolerance: float
    gap: float
    feasible: bool
    confidence: float | None = Field(description="The dial's.")
    certified_gap: float | None = Field(
        description="What the gap of new rows stays within, with the confidence."
    )
    thresholds: dict[str, Extended]


class ObserveAnswer(BaseModel):
    """What was observed since counting began."""

    since: str
    groups: list[ObservedGroup]
    gap: ObservedGap | None
    drift: Drift | None
    proposal: Proposal | None
    notes: list[str] = Field(description="Why something is missing.")
    tolerance: float
    confidence: float | None
    version: int
    model: str
