"""The audit log: every change to the dial, in order; the last one is in effect.

The log is a SQLite file, or a table of a PostgreSQL database that several hosts share. A change is
on the disk before anybody can see it, and only the log says which tolerance is in effect: servers
that share it agree, and one that is killed leaves the last recorded change in effect. The database
refuses to change, replace or delete entries. Each entry has a hash of itself and of the entry
before it, so :meth:`AuditLog.altered` finds an edited log unless everything after the edit was
rewritten. An entry that doesn't match its hash never takes effect, and nothing can be added after
it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import astuple, replace
from datetime import UTC, datetime
from pathlib import Path

from fairdial.errors import require_extra
from fairdial.serve.audit_sqlite import SQLiteStore
from fairdial.serve.entries import (
    COLUMNS,
    LAST,
    SERVER,
    AuditError,
    DialMovedError,
    Entry,
    Store,
    first_altered,
    hash_entry,
)

AUDIT_SUFFIX = ".audit.sqlite"  # added to the name of the model's folder by default
SCHEMES = "postgresql://", "postgres://"
BEFORE = f"SELECT {COLUMNS} FROM audit WHERE version < ? ORDER BY version DESC LIMIT ?"
ALL = f"SELECT {COLUMNS} FROM audit ORDER BY version"
MOVED = f"SELECT {COLUMNS} FROM audit WHERE who != ? LIMIT 1"
LARGEST_VERSION = 2**63 - 1


def is_database(place: str | os.PathLike[str]) -> bool:
    """Return whether a log's place is the address of a database, and not a file.

    Examples
    --------
    >>> from fairdial.serve.audit import is_database
    >>> is_database("postgresql://db.example/dials"), is_database("model.audit.sqlite")
    (True, False)
    """
    return isinstance(place, str) and place.startswith(SCHEMES)


def has_entries(place: str | os.PathLike[str]) -> bool:
    """Return whether there is a log with content at a place; raise if a database can't tell."""
    if is_database(place):
        require_extra("psycopg", "An audit log in PostgreSQL", "postgres")
        from fairdial.serve.audit_postgres import has_log

        return has_log(str(place))
    with suppress(OSError):
        return Path(place).stat().st_size > 0
    return False


class AuditLog:
    """The audit log of a server, shared by all of its processes.

    Parameters
    ----------
    place : path or str
        The file, or the address of a PostgreSQL database: ``postgresql://user@host/name``.
    create : bool
        Create the log if it doesn't exist.
    write : bool
        Whether entries may be added; otherwise the log is opened for reading only.

    Attributes
    ----------
    store : Store
        Where the entries are.

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
        self, place: str | os.PathLike[str], *, create: bool = False, write: bool = True
    ) -> None:
        self.store: Store
        if is_database(place):
            require_extra("psycopg", "An audit log in PostgreSQL", "postgres")
            from fairdial.serve.audit_postgres import PostgresStore

            self.store = PostgresStore(str(place), create=create, write=write)
        else:
            self.store = SQLiteStore(place, create=create, write=write)
        self._checking = threading.Lock()
        self._checked: list[Entry] = []  # newest entries whose link is known to hold
        self._altered: tuple[Hashable, int | None] | None = None

    @property
    def writable(self) -> bool:
        """Whether entries may be added."""
        return self.store.writable

    def last(self) -> Entry | None:
        """Return the last entry, which is in effect, or None if there is none."""
        return self._check_link(self.store.read(LAST))

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
        return self.store.read(BEFORE, LARGEST_VERSION if before is None else before, limit)

    def moved(self) -> bool:
        """Return whether anybody but the server itself has changed the dial."""
        return bool(self.store.read(MOVED, SERVER))

    def altered(self) -> int | None:
        """Return the version of the first entry that doesn't match its hash, or None."""
        with self._checking:  # of many requests one reads the whole log, and only if it changed
            state = self.store.state()
            if self._altered is None or self._altered[0] != state:
                self._altered = state, first_altered(self.store.read(ALL, separately=True))
            return self._altered[1]

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
            The change can't be recorded; the dial stays as it was, unless the error is
            ``doubtful``.
        DialMovedError
            Somebody else changed the dial in the meantime.
        """
        if not self.writable:
            raise AuditError("the audit log was opened for reading only")

        def following(newest: list[Entry]) -> Entry:
            previous = self._check_link(newest)
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
            return replace(entry, hash=hash_entry(previous.hash if previous else "", *values))

        return self.store.add(following)

    def close(self) -> None:
        """Close the file or the connections."""
        self.store.close()
