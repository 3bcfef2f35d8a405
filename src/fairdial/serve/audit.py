"""The audit log: every move of the dial, in order; the last one is where the dial stands.

One SQLite file. A move is on the disk before it can be seen (write-ahead log with
``synchronous=FULL``), and nothing but the file says where the dial stands: processes that share it
agree, and one that is killed leaves the dial at the last recorded move. Rows can't be changed,
replaced or deleted through SQLite. Each has a hash of itself and of the one before, so that a file
that was altered otherwise is found out, unless all that follows was made anew as well.

Whoever only reads leaves no file behind: without a write-ahead log beside it the file is complete
and nobody writes it, so it is read as it is; with one, SQLite's usual way makes nothing new.
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
from typing import Any

from fairdial.errors import FairdialError, InvalidInputError
from fairdial.serve.files import connect, make_file, transaction

APPLICATION, FORMAT = 0x46444C41, 2  # "FDLA"
BESIDE = ".audit.sqlite"  # after the name of the model's folder, where none is named
SERVER = "server"  # who moves the dial when it starts; nobody else may be called so

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
    BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END""",
    """CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END""",
    """CREATE TRIGGER audit_next BEFORE INSERT ON audit
    WHEN NEW.version IS NOT (SELECT coalesce(max(version), 0) + 1 FROM audit)
    BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END""",
)
COLUMNS = (
    "version, time, who, old_tolerance, old_confidence, tolerance, confidence, reason, model, "
    "gap, hash"
)
LAST = f"SELECT {COLUMNS} FROM audit ORDER BY version DESC LIMIT 1"
BEFORE = f"SELECT {COLUMNS} FROM audit WHERE version < ? ORDER BY version DESC LIMIT ?"
ALL = f"SELECT {COLUMNS} FROM audit ORDER BY version"
MOVED = f"SELECT {COLUMNS} FROM audit WHERE who != ? LIMIT 1"
ADD = f"INSERT INTO audit ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ENDLESS = 2**63 - 1


class AuditError(FairdialError):
    """The audit log can't be read or written: its disk is full, it is locked, or it is gone."""


class DialMovedError(FairdialError):
    """The dial is not where the caller has seen it.

    Attributes
    ----------
    version : int
        Where it is.
    """

    def __init__(self, version: int) -> None:
        super().__init__("the dial has been moved meanwhile")
        self.version = version


@dataclass(frozen=True)
class Entry:
    """One move of the dial.

    Attributes
    ----------
    version : int
        Counts the moves from 1.
    time : str
        When, in UTC, as ISO 8601.
    who : str
        Who said to have moved it.
    old_tolerance, old_confidence : float or None
        Where the dial stood before; None at the first start.
    tolerance, confidence : float, float or None
        Where it stands since.
    reason : str
        Why.
    model : str
        Hash of the model that was served.
    gap : float or None
        That of the calibration rows there; above the tolerance, it is the smallest within reach.
    hash : str
        SHA-256 of the entry before and of all that is said here.
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

    def to_dict(self) -> dict[str, Any]:
        """The entry for JSON."""
        before = {"tolerance": self.old_tolerance, "confidence": self.old_confidence}
        return {
            "version": self.version,
            "time": self.time,
            "who": self.who,
            "old": None if self.old_tolerance is None else before,
            "new": {"tolerance": self.tolerance, "confidence": self.confidence},
            "reason": self.reason,
            "model": self.model,
            "gap": self.gap,
            "feasible": None if self.gap is None else self.gap <= self.tolerance,
            "hash": self.hash,
        }


def hash_entry(before: str, *values: Any) -> str:
    """The hash of an entry: of the hash before it ("" for the first) and of its other values."""
    told = json.dumps([before, *values], separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()


def first_altered(entries: Iterable[Entry]) -> int | None:
    """The version of the first of all entries that isn't what its hash says; None: all are."""
    before = ""
    for place, entry in enumerate(entries, 1):
        *values, found = astuple(entry)
        if entry.version != place or found != hash_entry(before, *values):
            return place
        before = found
    return None


def _chained(before: Entry | None, **move: Any) -> Entry:
    """The entry of a move that comes after another, or is the first."""
    entry = Entry(
        version=1 if before is None else before.version + 1,
        time=_now(),
        old_tolerance=None if before is None else before.tolerance,
        old_confidence=None if before is None else before.confidence,
        hash="",
        **move,
    )
    *values, _ = astuple(entry)
    return replace(entry, hash=hash_entry("" if before is None else before.hash, *values))


class AuditLog:
    """The audit log of a server, shared by all of its processes.

    Parameters
    ----------
    path : path
        The file.
    create : bool
        Make the file where there is none.
    write : bool
        Whether moves may be added; otherwise the file is opened for reading only.

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
            make_file(self.path, "audit")
        if not self.path.is_file():
            raise InvalidInputError(f"`audit` must be a file, got {str(self.path)!r}, which isn't.")
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        try:
            if write:
                self._writer = connect(self.path, "rw")
                _prepare(self._writer, self.path)
                self._reader = connect(self.path, "rw")
                _check(self._reader, self.path)
            else:
                with closing(self._look()) as reader:
                    _check(reader, self.path)
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"`audit` must be an audit log that can be {'written' if write else 'read'}, got "
                f"{str(self.path)!r} ({error})."
            ) from error
        found = self.path.stat()
        self._identity = found.st_dev, found.st_ino

    def last(self) -> Entry | None:
        """The last move: where the dial stands. None: it was never set."""
        found = self._read(LAST)
        return found[0] if found else None

    def entries(self, limit: int, before: int | None = None) -> list[Entry]:
        """At most ``limit`` moves, the last one first, or the last ones before a version."""
        return self._read(BEFORE, ENDLESS if before is None else before, limit)

    def moved(self) -> bool:
        """Whether anybody but the server itself has moved the dial."""
        return bool(self._read(MOVED, SERVER))

    def altered(self) -> int | None:
        """The version of the first entry that isn't what its hash says; None: all are."""
        return first_altered(self._read(ALL, apart=True))

    def _read(self, query: str, *values: int | str, apart: bool = False) -> list[Entry]:
        """Entries; what takes longer is read apart, so that nobody else has to wait."""
        try:
            if self._reader is None or apart:
                with closing(self._look()) as reader:
                    rows = reader.execute(query, values).fetchall()
            else:
                with self._reading:
                    rows = self._reader.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise AuditError(f"the audit log can't be read ({error})") from error
        return [Entry(*row) for row in rows]

    def _look(self) -> sqlite3.Connection:
        """A connection that only reads, and makes no file."""
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
        """Record a move; when this returns, it is on the disk, and every process sees it.

        Parameters
        ----------
        tolerance, confidence : float, float or None
            Where the dial is to stand.
        who, reason, model : str
            Who moves it, why, and of which model.
        gap : float, optional
            The gap of the calibration rows there.
        seen : int, optional
            The version that the caller has seen; another one by now is refused.

        Raises
        ------
        AuditError
            It can't be recorded; the dial stands where it stood.
        DialMovedError
            Somebody else has moved it meanwhile.
        """
        if self._writer is None:
            raise AuditError("the audit log was opened for reading only")
        with self._writing:
            self._check_place()
            try:
                with transaction(self._writer):
                    rows = self._writer.execute(LAST).fetchall()
                    before = Entry(*rows[0]) if rows else None
                    version = before.version if before else 0
                    if seen is not None and seen != version:
                        raise DialMovedError(version)
                    entry = _chained(
                        before,
                        tolerance=float(tolerance) + 0.0,  # as it comes back: -0.0 is 0.0
                        confidence=confidence,
                        who=who,
                        reason=reason,
                        model=model,
                        gap=gap,
                    )
                    self._writer.execute(ADD, astuple(entry))
            except sqlite3.Error as error:
                raise AuditError(f"the audit log can't be written ({error})") from error
        return entry

    def _check_place(self) -> None:
        """A file that was deleted or replaced can still be written, but nobody would read it."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise AuditError("the audit log is gone") from error
        if (found.st_dev, found.st_ino) != self._identity:
            raise AuditError("the audit log was replaced by another file")

    def close(self) -> None:
        """Give the file back."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Set up an empty file; one that holds something must be an audit log."""
    with transaction(connection):
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty and connection.execute("PRAGMA application_id").fetchone()[0] == 0:
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
    _check(connection, path)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise InvalidInputError(
            f"`audit` must lie on a disk that allows SQLite's write-ahead log, got {str(path)!r} "
            "(a network drive?)."
        )


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if kind != APPLICATION:
        raise InvalidInputError(
            f"`audit` must be an audit log, got {str(path)!r}, another kind of file."
        )
    if version != FORMAT:
        raise InvalidInputError(
            f"`audit` has format version {version}, this fairdial reads {FORMAT} only."
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
