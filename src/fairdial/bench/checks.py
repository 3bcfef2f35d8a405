"""Check what a plan or a space holds, and name what is wrong."""

from __future__ import annotations

from collections.abc import Iterable

from fairdial._validation import did_you_mean
from fairdial.errors import InvalidInputError

TYPES: dict[type, str] = {
    str: "text",
    dict: "a table",
    list: "a list",
    tuple: "a list",
    bool: "true or false",
}


def check_keys(given: Iterable[str], allowed: Iterable[str], what: str) -> None:
    """Raise for a key that isn't allowed."""
    names = sorted(allowed)
    for key in given:
        if key not in names:
            raise InvalidInputError(
                key, f"be one of the {what}: {', '.join(names)}", hint=suggest(key, names)
            )


def check_choice(value: object, name: str, allowed: Iterable[str], place: str = "") -> None:
    """Raise for a value that isn't one of some names."""
    choices = list(allowed)
    if value not in choices:
        raise InvalidInputError(
            name,
            f"be one of {', '.join(map(repr, choices))}",
            given=f"{value!r}{place}",
            hint=suggest(value, choices),
        )


def suggest(given: object, allowed: Iterable[str]) -> str:
    """Return a hint with the nearest valid name; empty if none is near."""
    return did_you_mean(given, allowed, 0.5).strip()


def check_type(value: object, kind: type | tuple[type, ...], name: str) -> None:
    """Raise for a value of another type; true and false aren't numbers."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join(dict.fromkeys(TYPES.get(k, "a number") for k in kinds))
        raise InvalidInputError(name, f"be {expected}", given=repr(value))


def check_integer(value: object, name: str, *, least: int) -> None:
    """Raise for anything but an integer of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInputError(name, f"be an integer of at least {least}", given=repr(value))
