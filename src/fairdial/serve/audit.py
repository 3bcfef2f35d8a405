"""The audit log: every move of the dial, in order; the last one is where the dial stands.

One SQLite file. A move is on the disk before it can be seen (write-ahead log with
``synchronous=FULL``), and nothing but the file says where the dial stands: processes that share it
agree, and one that is killed leaves the dial at the last recorded move. Rows can't be changed or
deleted.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairdial.errors import FairdialError, InvalidInputError
from fairdial.serve.files import connect, make_file, transaction

APPLICATION, FORMAT = 0x46444C41, 1  # "FDLA"

SCHEMA = (
    """CREATE TABLE audit (
        version INTEGER PRIMARY KEY AUTOINCREMENT,
        time TEXT NOT NULL,
        who TEXT NOT NULL,
        old_tolerance REAL,
        old_confidence REAL,
        tolerance REAL NOT NULL,
        confidence REAL,
        reason TEXT NOT NULL,
        model TEXT NOT NULL,
        gap REAL
    )""",
    """CREATE TRIGGER audit_kept BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END""",
    """CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END""",
)
COLUMNS = (
    "version, time, who, old_tolerance, old_confidence, tolerance, confidence, reason, model, gap"
)
LAST = f"SELECT {COLUMNS} FROM audit ORDER BY version DESC LIMIT 1"
BEFORE = f"SELECT {COLUMNS} FROM audit WHERE version < ? ORDER BY version DESC LIMIT ?"
ADD = f"INSERT INTO audit ({COLUMNS}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
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
    gap: float | None = None

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
        }


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
        try:
            self._writer = connect(self.path, "rw") if write else None
            if self._writer is not None:
                _prepare(self._writer, self.path)
            self._reader = connect(self.path, "rw" if write else "ro")
            _check(self._reader, self.path)
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

    def _read(self, query: str, *values: int) -> list[Entry]:
        try:
            with self._reading:
                rows = self._reader.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise AuditError(f"the audit log can't be read ({error})") from error
        return [Entry(*row) for row in rows]

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
                    old = (None, None) if before is None else (before.tolerance, before.confidence)
                    row = (_now(), who, *old, tolerance, confidence, reason, model, gap)
                    added = self._writer.execute(ADD, row).lastrowid
            except sqlite3.Error as error:
                raise AuditError(f"the audit log can't be written ({error})") from error
        assert added is not None
        return Entry(added, *row)

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
        self._reader.close()
        if self._writer is not None:
            self._writer.close()


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
    if version > FORMAT:
        raise InvalidInputError(
            f"`audit` has format version {version}, this fairdial reads up to {FORMAT}; install a "
            "newer one."
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
