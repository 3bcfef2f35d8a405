"""What a server has observed of unlabelled rows: counts in a SQLite file that its processes share.

By group: rows, rows since the dial was last moved and how many of those were selected, and counts
of scores in bins. The size is bounded by the bins, however many rows come.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fairdial.errors import FairdialError, InvalidInputError
from fairdial.serve.drift import BINS, Counts, Look, look_number
from fairdial.serve.files import connect, make_file, transaction

APPLICATION = 0x46444C4F  # "FDLO"

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS about (model TEXT NOT NULL, since TEXT NOT NULL, version INTEGER)",
    """CREATE TABLE IF NOT EXISTS groups (
        place INTEGER PRIMARY KEY,
        rows INTEGER NOT NULL DEFAULT 0,
        current INTEGER NOT NULL DEFAULT 0,
        selected INTEGER NOT NULL DEFAULT 0,
        look INTEGER NOT NULL DEFAULT -1,
        distance REAL,
        bound REAL,
        drift INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE IF NOT EXISTS bins (
        place INTEGER NOT NULL,
        bin INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        PRIMARY KEY (place, bin)
    ) WITHOUT ROWID""",
)
READ = """SELECT since, version, rows, current, selected, look, distance, bound, drift
    FROM about, groups ORDER BY place"""


class ObservedError(FairdialError):
    """What was observed can't be read or written."""


@dataclass(frozen=True)
class Observed:
    """What was observed of each group.

    Attributes
    ----------
    since : str
        When counting began, in UTC.
    version : int
        The dial's version that ``current`` and ``selected`` are about.
    rows, current, selected : (K,) int64
        All rows; rows since the dial was moved to this version, and those of them selected.
    looks : list of Look or None
        The last look at each group's scores.
    drift : (K,) bool
        Whether any look has found drift.
    """

    since: str
    version: int
    rows: Counts
    current: Counts
    selected: Counts
    looks: list[Look | None]
    drift: np.ndarray[tuple[int], np.dtype[np.bool_]]


class Observations:
    """The counts of one model's server.

    Parameters
    ----------
    path : path
        The file; made where there is none.
    model : str
        Hash of the model; counts of another one are dropped.
    n_groups : int
        How many groups there are.
    """

    def __init__(self, path: str | os.PathLike[str], *, model: str, n_groups: int) -> None:
        self.path, self.model, self.n_groups = Path(path).absolute(), model, n_groups
        self._lock = threading.Lock()
        make_file(self.path, "observed")
        try:
            self._file = connect(self.path, "rw", synchronous="NORMAL")
            with transaction(self._file):
                self._prepare()
            self._file.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"`observed` must be a file of observations, got {str(self.path)!r} ({error})."
            ) from error

    def _prepare(self) -> None:
        (kind,) = self._file.execute("PRAGMA application_id").fetchone()
        tables = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if kind != APPLICATION and (kind or tables):
            raise sqlite3.DatabaseError("another kind of file")
        for statement in SCHEMA:
            self._file.execute(statement)
        self._file.execute(f"PRAGMA application_id = {APPLICATION}")
        known = self._file.execute("SELECT model FROM about").fetchall()
        if known != [(self.model,)]:
            self._clear()

    def _clear(self) -> None:
        for table in ("about", "groups", "bins"):
            self._file.execute(f"DELETE FROM {table}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._file.execute("INSERT INTO about VALUES (?, ?, NULL)", (self.model, now))
        places = [(place,) for place in range(self.n_groups)]
        self._file.executemany("INSERT INTO groups (place) VALUES (?)", places)

    def clear(self) -> None:
        """Start counting anew."""
        with self._lock, _clear_errors(), transaction(self._file):
            self._clear()

    def add(
        self,
        rows: Counts,
        selected: Counts,
        version: int,
        bins: Counts | None,
        look: Callable[[int, Counts], Look] | None,
    ) -> None:
        """Count rows.

        Parameters
        ----------
        rows, selected : (K,) int64
            Rows of each group, and those that the dial selects.
        version : int
            The dial's, at which they were selected; those of an earlier one are forgotten.
        bins : (K, BINS) int64, optional
            Rows by score.
        look : callable, optional
            ``look(group, bins)``: called where a look is due.
        """
        with self._lock, _clear_errors(), transaction(self._file):
            counted = self._move_to(version)
            for place in np.flatnonzero(rows).tolist():
                n, chosen = int(rows[place]), int(selected[place])
                self._file.execute(
                    "UPDATE groups SET rows = rows + ?, current = current + ?, "
                    "selected = selected + ? WHERE place = ?",
                    (n, n * counted, chosen * counted, place),
                )
                if bins is None:
                    continue
                self._file.executemany(
                    "INSERT INTO bins VALUES (?, ?, ?) "
                    "ON CONFLICT (place, bin) DO UPDATE SET rows = rows + excluded.rows",
                    [(place, i, int(bins[place, i])) for i in np.flatnonzero(bins[place]).tolist()],
                )
                if look is not None:
                    self._look(place, look)

    def _move_to(self, version: int) -> bool:
        """Forget the rates of earlier versions; False: another process has seen a later one."""
        model, current = self._file.execute("SELECT model, version FROM about").fetchone()
        if model != self.model:
            raise ObservedError("the file of observations was taken over by another model")
        if current is None or current < version:
            self._file.execute("UPDATE about SET version = ?", (version,))
            self._file.execute("UPDATE groups SET current = 0, selected = 0")
        return current is None or current <= version

    def _look(self, place: int, look: Callable[[int, Counts], Look]) -> None:
        (rows, last) = self._file.execute(
            "SELECT rows, look FROM groups WHERE place = ?", (place,)
        ).fetchone()
        if look_number(rows) <= last:
            return
        found = look(place, self._bins()[place])
        self._file.execute(
            "UPDATE groups SET look = ?, distance = ?, bound = ?, drift = max(drift, ?) "
            "WHERE place = ?",
            (found.number, found.distance, found.bound, int(found.drift), place),
        )

    def _bins(self) -> Counts:
        counts = np.zeros((self.n_groups, BINS), np.int64)
        found = np.array(self._file.execute("SELECT place, bin, rows FROM bins").fetchall(), int)
        if len(found):
            counts[found[:, 0], found[:, 1]] = found[:, 2]
        return counts

    def bins(self) -> Counts:
        """(K, BINS) rows by group and bin of their score."""
        with self._lock, _clear_errors():
            return self._bins()

    def read(self, version: int) -> Observed:
        """What was counted, with the rates at a version of the dial."""
        with self._lock, _clear_errors():
            lines = self._file.execute(READ).fetchall()
        counts = np.array([line[2:5] for line in lines], np.int64)
        if lines[0][1] != version:
            counts[:, 1:] = 0
        return Observed(
            since=lines[0][0],
            version=version,
            rows=counts[:, 0],
            current=counts[:, 1],
            selected=counts[:, 2],
            looks=[None if line[5] < 0 else Look(*line[5:8]) for line in lines],
            drift=np.array([line[8] for line in lines], np.bool_),
        )

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise ObservedError(f"observations can't be read or written ({error})") from error
