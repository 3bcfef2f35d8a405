"""What a manifest tells of the training, checked; without the libraries that models need."""

from __future__ import annotations

from typing import Any

KNOWN = {"rows", "ended", "asked"}
CHOSEN = {"chosen", "why"}  # where one of several candidates was taken
UNNAMED = {"missing_group"}  # where rows that don't tell their group have one


def claim(holds: Any, what: str) -> None:
    """ValueError where stored data are not what they must be."""
    if not holds:
        raise ValueError(f"something else than {what}")


def training_from_data(data: dict[str, Any]) -> dict[str, Any]:
    """What is told of the training, such as its rows and when it ended.

    Examples
    --------
    >>> from fairdial.persistence.facts import training_from_data
    >>> told = {"rows": 900, "ended": "2026-01-01 00:00:00", "asked": None}
    >>> training_from_data(told) == told
    True
    >>> training_from_data(told | {"rows": "many"})
    Traceback (most recent call last):
    ...
    ValueError: something else than a number of training rows
    """
    claim(set(data) - UNNAMED in (KNOWN, KNOWN | CHOSEN), "what is known of the training")
    claim(type(data["rows"]) is int and data["rows"] > 0, "a number of training rows")
    claim(isinstance(data["ended"], str), "when training ended")
    claim(data["asked"] is None or isinstance(data["asked"], str), "what was asked for")
    for name in CHOSEN & set(data):  # a line each: both are shown on terminals
        claim(isinstance(data[name], str) and data[name].isprintable(), "what was chosen, and why")
    for name in UNNAMED & set(data):
        claim(isinstance(data[name], str) and data[name].isprintable(), "the name of a group")
    return dict(data)
