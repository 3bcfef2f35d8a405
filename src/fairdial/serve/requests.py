"""What clients may send, and messages about what they sent instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic_core import from_json
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from fairdial.serve.tokens import LONGEST_NAME, check_name
from fairdial.tables.columns import LARGEST

MOST_ROWS = 1_000
MOST_SCORES = 10_000
LONGEST_REASON = 500
SHOWN = 5  # problems in one message

Number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]
Tolerance = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]
Confidence = Annotated[float, Field(strict=True, ge=0.5, lt=1.0)]
JsonValue = Any  # checked later, against the model's columns and groups


class RefusedError(Exception):
    """A request that can't be answered; the client sees the message."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


# ---- requests ----------------------------------------------------------------------------------


def _text(longest: int) -> StringConstraints:
    return StringConstraints(
        strict=True, strip_whitespace=True, min_length=1, max_length=longest, pattern=r"\S"
    )


def check_visible(text: str) -> str:
    """Return text without control characters, except for line breaks; raise ValueError."""
    if not all(x in "\n\t" or x.isprintable() or x.isspace() for x in text):
        raise ValueError("characters that can't be seen")
    return text


class Request(BaseModel):
    """A request has no fields besides those named."""

    model_config = ConfigDict(extra="forbid")


class Row(TypedDict):  # faster to create than a model
    """One row to decide on."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    features: JsonValue
    group: NotRequired[JsonValue]
    tolerance: NotRequired[Tolerance | None]


class PredictRequest(Request):
    """Rows to decide on."""

    rows: Annotated[list[Row], Field(min_length=1, max_length=MOST_ROWS)]
    tolerance: Tolerance | None = None


class DialRequest(Request):
    """A change to the dial."""

    tolerance: Tolerance
    confidence: Confidence | None = None
    reason: Annotated[str, _text(LONGEST_REASON), AfterValidator(check_visible)]
    by: Annotated[str, _text(LONGEST_NAME), AfterValidator(check_name)] | None = None


class ObservedRow(Request):
    """One row that was decided on."""

    features: JsonValue
    group: JsonValue = None
    label: JsonValue = None


class ObserveRequest(Request):
    """Rows that were decided on: either their scores and groups, or the rows themselves.

    Labels are optional; rates that depend on them are computed over the rows that have one.
    """

    scores: Annotated[list[Number], Field(min_length=1, max_length=MOST_SCORES)] | None = None
    groups: Annotated[list[JsonValue], Field(max_length=MOST_SCORES)] | None = None
    labels: Annotated[list[JsonValue], Field(max_length=MOST_SCORES)] | None = None
    rows: Annotated[list[ObservedRow], Field(min_length=1, max_length=MOST_ROWS)] | None = None


# ---- problems ----------------------------------------------------------------------------------

FIELDS = {  # what each field must be
    "rows": f"a list of 1 to {MOST_ROWS:,} rows",
    "features": "the row's columns",
    "group": "the name of a group",
    "tolerance": "a number from 0 to 1, such as 0.05 for 5%",
    "confidence": "a number from 0.5 to below 1, such as 0.95 for 95%, or null",
    "reason": f"text of 1 to {LONGEST_REASON} characters",
    "by": f"text of 1 to {LONGEST_NAME} characters, or left out",
    "scores": f"a list of 1 to {MOST_SCORES:,} numbers",
    "groups": f"a list of at most {MOST_SCORES:,} group names",
    "label": "one of the model's labels, or null",
    "labels": f"a list of at most {MOST_SCORES:,} labels",
}
ITEMS = {  # what each item of a list must be
    "rows": "an object with `features` and `group`",
    "scores": f"a number between -{LARGEST:g} and {LARGEST:g}",
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
OUT_OF_RANGE = "a number out of range"
GIVEN = {  # by pydantic's error type, where the kind of the value is right
    "missing": "nothing",
    "string_too_short": "empty text",
    "string_pattern_mismatch": "empty text",
    "string_too_long": "longer text",
    "value_error": "text with characters that can't be seen, or of several alphabets",
    "too_short": "an empty list",
    "too_long": "a longer list",
    "greater_than": OUT_OF_RANGE,
    "greater_than_equal": OUT_OF_RANGE,
    "less_than": OUT_OF_RANGE,
    "less_than_equal": OUT_OF_RANGE,
    "finite_number": OUT_OF_RANGE,
}

Parsed = TypeVar("Parsed", bound=BaseModel)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a repeated key")
    return found


def parse(kind: type[Parsed], body: bytes, *, once: bool = False) -> Parsed:
    """Return a request from its body; raise RefusedError without repeating any of its values.

    With ``once``, a key may occur only once in an object; otherwise its last value counts.
    """
    try:
        data = from_json(body, allow_inf_nan=False)  # parsing and validating in two steps is faster
    except ValueError:
        raise RefusedError(422, "the body must be valid JSON, without NaN or Infinity.") from None
    try:
        if once:
            json.loads(body, object_pairs_hook=_once)
    except ValueError:
        raise RefusedError(422, "the body must have each key once.") from None
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        problems = [describe_problem(p["loc"], p["type"], p["input"]) for p in found[:SHOWN]]
        more = f" (and {len(found) - SHOWN} more)" if len(found) > SHOWN else ""
        raise RefusedError(422, f"{'; '.join(problems)}{more}.") from None


def describe_problem(place: Sequence[int | str], error: str, given: object) -> str:
    """Describe what is wrong with a request, from the place and type of pydantic's error.

    The text names the kind of value that was sent; it repeats neither values nor unknown names.

    Examples
    --------
    >>> from fairdial.serve.requests import describe_problem
    >>> describe_problem(["tolerance"], "less_than_equal", 1.3)
    '`tolerance` must be a number from 0 to 1, such as 0.05 for 5%, got a number out of range'
    >>> describe_problem(["reason"], "missing", {"tolerance": 0.1})
    '`reason` must be text of 1 to 500 characters, got nothing'
    """
    extra = error == "extra_forbidden"  # the place then ends with the unknown field
    known = [p for p in place[: -1 if extra else None] if isinstance(p, int) or p in FIELDS]
    where = f"`{'.'.join(map(str, known))}`" if known else "the request"
    if extra:
        return f"{where} must have only the documented fields, got an unknown one"
    got = GIVEN.get(error) or KINDS.get(type(given), "something else")
    if not known:
        return f"{where} must be an object, got {got}"
    name = next(p for p in reversed(known) if isinstance(p, str))
    must = ITEMS[name] if isinstance(known[-1], int) else FIELDS[name]
    return f"{where} must be {must}, got {got}"
