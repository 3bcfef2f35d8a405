"""The audit log in a SQLite file.

A change is on the disk before anybody can see it (write-ahead log with ``synchronous=FULL``).
Triggers refuse to change, replace or delete entries. Reading creates no file: if there is no
write-ahead log beside the file, nobody is writing, and the file is read as immutable; if there is
one, SQLite needs no new files.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

from fairdial.errors import InvalidInputError
from fairdial.serve.entries import ADD, APPLICATION, FORMAT, LAST, AuditError, Entry
from fairdial.serve.sqlite import check_kind, connect, create_file, create_tables, transaction

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


class SQLiteStore:
    """Entries in a SQLite file; parameters are as in :class:`~fairdial.serve.audit.AuditLog`."""

    remote = False

    def __init__(self, path: str | os.PathLike[str], *, create: bool, write: bool) -> None:
        self.path = Path(path).absolute()
        self.place, self.writable = str(self.path), write
        if create:
            create_file(self.path, "audit")
        if not self.path.is_file():
            raise InvalidInputError("audit", "be an existing file", given=repr(self.place))
        self._writing, self._reading = threading.Lock(), threading.Lock()
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
                given=f"{self.place!r} ({error})",
            ) from error
        found = self.path.stat()
        self._identity = found.st_dev, found.st_ino

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise InvalidInputError(
                "audit",
                "be on a disk that supports SQLite's write-ahead log",
                given=f"{self.place!r} (a network drive?)",
            )

    def read(self, query: str, *values: int | str, separately: bool = False) -> list[Entry]:
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

    def add(self, following: Callable[[list[Entry]], Entry]) -> Entry:
        """Add an entry after the newest ones; when this returns, it is on the disk."""
        assert self._writer is not None
        with self._writing:
            self._check_in_place()
            try:
                with transaction(self._writer):
                    rows = self._writer.execute(LAST).fetchall()
                    entry = following([Entry(*row) for row in rows])
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

    def state(self) -> tuple[tuple[int, int] | None, ...]:
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

    def close(self) -> None:
        """Close the file."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
