"""The audit log: every change to the dial, in order; the last one is in effect.

The log is one SQLite file. A change is on the disk before anybody can see it (write-ahead log with
``synchronous=FULL``), and only the file says which tolerance is in effect: processes that share it
agree, and a process that is killed leaves the last recorded change in effect. SQLite triggers
refuse to change, replace or delete entries. Each entry has a hash of itself and of the entry before
it, so :meth:`AuditLog.altered` finds an edited file unless everything after the edit was rewritten.
An entry that doesn't match its hash never takes effect, and nothing can be added after it.

Reading creates no file. If there is no write-ahead log beside the file, nobody is writing, and the
file is read as immutable; if there is one, SQLite needs no new files.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterable
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from fairdial.errors import FairdialError, InvalidInputError
from fairdial.serve.sqlite import check_kind, connect, create_file, create_tables, transaction

APPLICATION, FORMAT = 0x46444C41, 2  # "FDLA"
AUDIT_SUFFIX = ".audit.sqlite"  # added to the name of the model's folder by default
SERVER = "server"  # who changes the dial at start-up; a reserved name

SCHEMA = (
    """CREATE TABLE audit (
        version INTEGER PRIMARY KEY,
        time TEXT NOT NULL,
        who TEXT NOT NULL,
        old_tolerance REAL,
        old_confidence REAL,
        tolerance REAL NOT NULL,
        confidence REAL,
        reason TEXT NOT NULL,
        model TEXT NOT NULL,
        gap REAL,
        hash TEXT NOT NULL
    )""",
    """CREATE TRIGGER audit_kept BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'entries of the audit log can only be added'); END""",
    """CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'entries of the audit log can only be added'); END""",
    """CREATE TRIGGER audit_next BEFORE INSERT ON audit
    WHEN NEW.version IS NOT (SELECT coalesce(max(version), 0) + 1 FROM audit)
    BEGIN SELECT RAISE(ABORT, 'entries of the audit log can only be added'); END""",
)
COLUMNS = (
    "version, time, who, old_tolerance, old_confidence, tolerance, confidence, reason, model, "
    "gap, hash"
)
LAST = f"SELECT {COLUMNS} FROM audit ORDER BY version DESC LIMIT 2"  # and the one before it
BEFORE = f"SELECT {COLUMNS} FROM audit WHERE version < ? ORDER BY version DESC LIMIT ?"
ALL = f"SELECT {COLUMNS} FROM audit ORDER BY version"
MOVED = f"SELECT {COLUMNS} FROM audit WHERE who != ? LIMIT 1"
ADD = f"INSERT INTO audit ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
LARGEST_VERSION = 2**63 - 1


class AuditError(FairdialError):
    """The audit log can't be read or written, such as on a full disk."""


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


class AuditLog:
    """The audit log of a server, shared by all of its processes.

    Parameters
    ----------
    path : path
        The file.
    create : bool
        Create the file if it doesn't exist.
    write : bool
        Whether entries may be added; otherwise the file is opened for reading only.

    Examples
    --------
    >>> import tempfile
    >>> from fairdial.serve.audit import AuditLog
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = AuditLog(f"{folder}/audit.sqlite", create=True)
    ...     first = log.append(tolerance=0.1, who="server", reason="first start", model="abc")
    ...     moved = log.append(tolerance=0.05, who="Ann", reason="policy 7", model="abc")
    ...     found = log.last()
    ...     log.close()
    >>> found.version, found.old_tolerance, found.tolerance
    (2, 0.1, 0.05)
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = False, write: bool = True
    ) -> None:
        self.path = Path(path).absolute()
        self.writable = write
        if create:
            create_file(self.path, "audit")
        if not self.path.is_file():
            raise InvalidInputError("audit", "be an existing file", given=repr(str(self.path)))
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._checking = threading.Lock()
        self._checked: list[Entry] = []  # newest entries whose link is known to hold
        self._altered: tuple[tuple[tuple[int, int] | None, ...], int | None] | None = None
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        try:
            if write:
                self._writer = connect(self.path, "rw")
                with transaction(self._writer):
                    create_tables(self._writer, APPLICATION, SCHEMA, FORMAT)
                self._write_ahead(self._writer)
                self._reader = connect(self.path, "rw")
            else:
                with closing(self._open_reader()) as reader:
                    check_kind(reader, APPLICATION, FORMAT)
        except sqlite3.Error as error:
            raise InvalidInputError(
                "audit",
                f"be an audit log that can be {'written' if write else 'read'}",
                given=f"{str(self.path)!r} ({error})",
            ) from error
        found = self.path.stat()
        self._identity = found.st_dev, found.st_ino

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise InvalidInputError(
                "audit",
                "be on a disk that supports SQLite's write-ahead log",
                given=f"{str(self.path)!r} (a network drive?)",
            )

    def last(self) -> Entry | None:
        """Return the last entry, which is in effect, or None if there is none."""
        return self._check_link(self._read(LAST))

    def _check_link(self, newest: list[Entry]) -> Entry | None:
        """Return the first of the newest entries; raise if it isn't what was recorded."""
        if not newest or newest == self._checked:
            return newest[0] if newest else None
        *values, found = astuple(newest[0])
        previous = newest[1].hash if len(newest) > 1 else ""
        follows = newest[0].version == (newest[1].version + 1 if len(newest) > 1 else 1)
        if not follows or found != hash_entry(previous, *values):
            raise AuditError(f"entry {newest[0].version} of the audit log was altered")
        self._checked = newest
        return newest[0]

    def entries(self, limit: int, before: int | None = None) -> list[Entry]:
        """Return at most ``limit`` entries, newest first, optionally those before a version."""
        return self._read(BEFORE, LARGEST_VERSION if before is None else before, limit)

    def moved(self) -> bool:
        """Return whether anybody but the server itself has changed the dial."""
        return bool(self._read(MOVED, SERVER))

    def altered(self) -> int | None:
        """Return the version of the first entry that doesn't match its hash, or None."""
        with self._checking:  # of many requests one reads the whole log, and only if it changed
            state = self._state()
            if self._altered is None or self._altered[0] != state:
                self._altered = state, first_altered(self._read(ALL, separately=True))
            return self._altered[1]

    def _state(self) -> tuple[tuple[int, int] | None, ...]:
        """Return size and time of the log's files, which any change of them changes."""
        found: list[tuple[int, int] | None] = []
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            try:
                stat = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_size, stat.st_mtime_ns))
        return tuple(found)

    def _read(self, query: str, *values: int | str, separately: bool = False) -> list[Entry]:
        """Return entries; long reads use a separate connection, so that nobody waits for them."""
        try:
            if self._reader is None or separately:
                with closing(self._open_reader()) as reader:
                    rows = reader.execute(query, values).fetchall()
            else:
                with self._reading:
                    rows = self._reader.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise AuditError(f"the audit log can't be read ({error})") from error
        return [Entry(*row) for row in rows]

    def _open_reader(self) -> sqlite3.Connection:
        """Open a connection that only reads and creates no file."""
        ahead = self.path.with_name(f"{self.path.name}-wal")
        return connect(self.path, "ro" if ahead.exists() else "ro&immutable=1")

    def append(
        self,
        *,
        tolerance: float,
        confidence: float | None = None,
        who: str,
        reason: str,
        model: str,
        gap: float | None = None,
        seen: int | None = None,
    ) -> Entry:
        """Record a change; when this returns, it is on the disk and every process sees it.

        Parameters
        ----------
        tolerance, confidence : float, float or None
            What takes effect.
        who, reason, model : str
            Who changes the dial, why, and the model's hash.
        gap : float, optional
            The gap on the calibration rows.
        seen : int, optional
            The version that the caller saw; raise if another one is in effect.

        Raises
        ------
        AuditError
            The change can't be recorded; the dial stays as it was.
        DialMovedError
            Somebody else changed the dial in the meantime.
        """
        if self._writer is None:
            raise AuditError("the audit log was opened for reading only")
        with self._writing:
            self._check_in_place()
            try:
                with transaction(self._writer):
                    rows = self._writer.execute(LAST).fetchall()
                    previous = self._check_link([Entry(*row) for row in rows])
                    version = previous.version if previous else 0
                    if seen is not None and seen != version:
                        raise DialMovedError(version)
                    entry = Entry(
                        version=version + 1,
                        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
                        who=who,
                        old_tolerance=previous.tolerance if previous else None,
                        old_confidence=previous.confidence if previous else None,
                        tolerance=float(tolerance) + 0.0,  # SQLite returns -0.0 as 0.0
                        confidence=confidence,
                        reason=reason,
                        model=model,
                        gap=gap,
                        hash="",
                    )
                    *values, _ = astuple(entry)
                    digest = hash_entry(previous.hash if previous else "", *values)
                    entry = replace(entry, hash=digest)
                    self._writer.execute(ADD, astuple(entry))
            except sqlite3.Error as error:
                raise AuditError(f"the audit log can't be written ({error})") from error
        return entry

    def _check_in_place(self) -> None:
        """Raise if the file was deleted or replaced: writing would work, but nobody reads it."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise AuditError("the audit log is gone") from error
        if (found.st_dev, found.st_ino) != self._identity:
            raise AuditError("the audit log was replaced by another file")

    def close(self) -> None:
        """Close the file."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
