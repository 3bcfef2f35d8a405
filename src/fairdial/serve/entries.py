"""Entries of the audit log: what each one holds, and the chain of hashes that links them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable
from dataclasses import astuple, dataclass
from typing import Protocol

from fairdial.errors import FairdialError

APPLICATION, FORMAT = 0x46444C41, 2  # "FDLA"
SERVER = "server"  # who changes the dial at start-up; a reserved name
COLUMNS = (
    "version, time, who, old_tolerance, old_confidence, tolerance, confidence, reason, model, "
    "gap, hash"
)
LAST = f"SELECT {COLUMNS} FROM audit ORDER BY version DESC LIMIT 2"  # and the one before it
ADD = f"INSERT INTO audit ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class AuditError(FairdialError):
    """The audit log can't be read or written, such as on a full disk.

    Attributes
    ----------
    doubtful : bool
        Whether a change may have been recorded all the same; otherwise nothing has changed.
    """

    def __init__(self, message: str, *, doubtful: bool = False) -> None:
        super().__init__(message)
        self.doubtful = doubtful


class DialMovedError(FairdialError):
    """The dial changed after the caller looked at it.

    Attributes
    ----------
    version : int
        The version that is in effect.
    """

    def __init__(self, version: int) -> None:
        super().__init__("the dial has changed in the meantime")
        self.version = version


@dataclass(frozen=True)
class Entry:
    """One change to the dial.

    Attributes
    ----------
    version : int
        Number of the change, from 1.
    time : str
        When, in UTC, as ISO 8601.
    who : str
        The name that was given.
    old_tolerance, old_confidence : float or None
        What was in effect before; None at the first start.
    tolerance, confidence : float, float or None
        What is in effect since.
    reason : str
        Why.
    model : str
        Hash of the model that was served.
    gap : float or None
        Gap on the calibration rows; if it is above the tolerance, it is the smallest possible.
    hash : str
        SHA-256 of the previous entry's hash and of all other fields.
    """

    version: int
    time: str
    who: str
    old_tolerance: float | None
    old_confidence: float | None
    tolerance: float
    confidence: float | None
    reason: str
    model: str
    gap: float | None
    hash: str

    def to_dict(self) -> dict[str, object]:
        """Return the entry as JSON data."""
        old = {"tolerance": self.old_tolerance, "confidence": self.old_confidence}
        return {
            "version": self.version,
            "time": self.time,
            "who": self.who,
            "old": None if self.old_tolerance is None else old,
            "new": {"tolerance": self.tolerance, "confidence": self.confidence},
            "reason": self.reason,
            "model": self.model,
            "gap": self.gap,
            "feasible": None if self.gap is None else self.gap <= self.tolerance,
            "hash": self.hash,
        }


def hash_entry(previous: str, *values: object) -> str:
    """Return the hash of an entry from the previous entry's hash ("" at first) and its values."""
    data = json.dumps([previous, *values], separators=(",", ":"))
    return hashlib.sha256(data.encode()).hexdigest()


def first_altered(entries: Iterable[Entry]) -> int | None:
    """Return the version of the first entry that doesn't match its hash, or None."""
    previous = ""
    for place, entry in enumerate(entries, 1):
        *values, found = astuple(entry)
        if entry.version != place or found != hash_entry(previous, *values):
            return place
        previous = found
    return None


class Store(Protocol):
    """Where the entries are: a SQLite file, or a table of a PostgreSQL database.

    Attributes
    ----------
    place : str
        The file or the database, without its password.
    writable : bool
        Whether entries may be added.
    remote : bool
        Whether reading waits for another machine.
    """

    place: str
    writable: bool
    remote: bool

    def read(self, query: str, *values: int | str, separately: bool = False) -> list[Entry]:
        """Return entries; long reads use a separate connection, so that nobody waits for them."""

    def add(self, following: Callable[[list[Entry]], Entry]) -> Entry:
        """Add the entry that ``following`` returns, given the newest two, while others wait.

        When this returns, the entry is on the disk.
        """

    def state(self) -> Hashable:
        """Return something that any change of the stored entries changes."""

    def close(self) -> None:
        """Close all connections."""
