"""Counts of the rows that a server observed, in a SQLite file that its processes share.

Stored by group: the number of rows, the number since the dial last changed and how many of those
were selected, both also by label for rows that have one, counts of scores in bins, and what the
watch of the gap remembers. Their size doesn't grow with the rows.
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

from fairdial._arrays import Counts, Mask
from fairdial.errors import FairdialError, InvalidInputError
from fairdial.serve.drift import BINS, Look, look_number
from fairdial.serve.sqlite import connect, create_file, create_tables, transaction

APPLICATION = 0x46444C4F  # "FDLO"

SCHEMA = (
    "CREATE TABLE about (model TEXT NOT NULL, since TEXT NOT NULL, version INTEGER)",
    """CREATE TABLE groups (
        place INTEGER PRIMARY KEY,
        rows INTEGER NOT NULL DEFAULT 0,
        current INTEGER NOT NULL DEFAULT 0,
        selected INTEGER NOT NULL DEFAULT 0,
        look INTEGER NOT NULL DEFAULT -1,
        distance REAL,
        bound REAL,
        drift INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE bins (
        place INTEGER NOT NULL,
        bin INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        PRIMARY KEY (place, bin)
    ) WITHOUT ROWID""",
)
LABELED = """CREATE TABLE IF NOT EXISTS labeled (
        place INTEGER NOT NULL,
        label INTEGER NOT NULL,
        current INTEGER NOT NULL,
        selected INTEGER NOT NULL,
        PRIMARY KEY (place, label)
    ) WITHOUT ROWID"""  # files of version 0.2 don't have it
WATCH = "CREATE TABLE IF NOT EXISTS watch (state TEXT NOT NULL)"  # nor this one
READ = """SELECT since, version, rows, current, selected, look, distance, bound, drift
    FROM about, groups ORDER BY place"""


class ObservedError(FairdialError):
    """The observations can't be read or written."""


@dataclass(frozen=True)
class Observed:
    """Counts of every group.

    Attributes
    ----------
    since : str
        When counting began, in UTC.
    rows : (K,) int64
        All rows.
    current, selected : (K,) int64
        Rows since the dial last changed, and those of them that were selected.
    labeled, labeled_selected : (2, K) int64
        Rows with a label since the dial last changed, by label and group, and those of them that
        were selected.
    looks : list of Look or None
        The last test of each group's scores for drift.
    drift : (K,) bool
        Whether any test found drift.
    watch : str or None
        State of the watch since the dial last changed.
    """

    since: str
    rows: Counts
    current: Counts
    selected: Counts
    labeled: Counts
    labeled_selected: Counts
    looks: list[Look | None]
    drift: Mask
    watch: str | None


class Observations:
    """The counts of one model's server.

    Parameters
    ----------
    path : path
        The file; created if it doesn't exist.
    model : str
        The model's hash; counts of another model are dropped.
    n_groups : int
        Number of groups.
    """

    def __init__(self, path: str | os.PathLike[str], *, model: str, n_groups: int) -> None:
        self.path, self.model, self.n_groups = Path(path).absolute(), model, n_groups
        self._lock = threading.Lock()
        create_file(self.path, "observed")
        try:
            self._file = connect(self.path, "rw", synchronous="NORMAL")
            with transaction(self._file):
                create_tables(self._file, APPLICATION, SCHEMA)
                self._file.execute(LABELED)
                self._file.execute(WATCH)
                if self._file.execute("SELECT model FROM about").fetchall() != [(model,)]:
                    self._clear()
            self._file.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise InvalidInputError(
                "observed", "be a file of observations", given=f"{str(self.path)!r} ({error})"
            ) from error

    def _clear(self) -> None:
        for table in ("about", "groups", "bins", "labeled", "watch"):
            self._file.execute(f"DELETE FROM {table}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._file.execute("INSERT INTO about VALUES (?, ?, NULL)", (self.model, now))
        places = [(place,) for place in range(self.n_groups)]
        self._file.executemany("INSERT INTO groups (place) VALUES (?)", places)

    def clear(self) -> None:
        """Set all counts to zero."""
        with self._lock, _own_errors(), transaction(self._file):
            self._clear()

    def add(
        self,
        rows: Counts,
        selected: Counts,
        version: int,
        bins: Counts | None,
        look: Callable[[int, Counts], Look] | None,
        labeled: tuple[Counts, Counts] | None = None,
        watch: Callable[[str | None], str] | None = None,
    ) -> None:
        """Add rows to the counts.

        Parameters
        ----------
        rows, selected : (K,) int64
            Rows of each group, and how many of them are selected.
        version : int
            The dial's version at which they were selected; rates of earlier versions are dropped.
        bins : (K, BINS) int64, optional
            Rows by bin of their score.
        look : callable, optional
            ``look(group, bins)`` tests a group for drift; called when a test is due.
        labeled : ((2, K) int64, (2, K) int64), optional
            Rows with a label by label and group, and how many of them are selected.
        watch : callable, optional
            ``watch(state)`` returns the state of the watch after these rows, from the one before.
        """
        with self._lock, _own_errors(), transaction(self._file):
            is_current = self._move_to(version)
            if labeled is not None and is_current:
                self._add_labeled(*labeled)
            if watch is not None and is_current:
                known = self._file.execute("SELECT state FROM watch").fetchone()
                self._file.execute("DELETE FROM watch")
                state = watch(None if known is None else known[0])
                self._file.execute("INSERT INTO watch VALUES (?)", (state,))
            for place in np.flatnonzero(rows).tolist():
                n, chosen = int(rows[place]), int(selected[place])
                self._file.execute(
                    "UPDATE groups SET rows = rows + ?, current = current + ?, "
                    "selected = selected + ? WHERE place = ?",
                    (n, n * is_current, chosen * is_current, place),
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

    def _add_labeled(self, rows: Counts, selected: Counts) -> None:
        self._file.executemany(
            "INSERT INTO labeled VALUES (?, ?, ?, ?) ON CONFLICT (place, label) DO UPDATE SET "
            "current = current + excluded.current, selected = selected + excluded.selected",
            [
                (place, label, int(rows[label, place]), int(selected[label, place]))
                for label, place in zip(*(i.tolist() for i in np.nonzero(rows)), strict=True)
            ],
        )

    def _move_to(self, version: int) -> bool:
        """Drop the rates of earlier versions; return False if a later version is being counted."""
        model, current = self._file.execute("SELECT model, version FROM about").fetchone()
        if model != self.model:
            raise ObservedError("another model is using the file of observations")
        if current is None or current < version:
            self._file.execute("UPDATE about SET version = ?", (version,))
            self._file.execute("UPDATE groups SET current = 0, selected = 0")
            self._file.execute("DELETE FROM labeled")
            self._file.execute("DELETE FROM watch")
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
        """Return the number of rows by group and bin of their score, (K, BINS)."""
        with self._lock, _own_errors():
            return self._bins()

    def read(self, version: int) -> Observed:
        """Return the counts, with the rates at a version of the dial."""
        with self._lock, _own_errors():
            lines = self._file.execute(READ).fetchall()
            cells = self._file.execute("SELECT place, label, current, selected FROM labeled")
            known = cells.fetchall()
            state = self._file.execute("SELECT state FROM watch").fetchone()
        labeled = np.zeros((2, 2, self.n_groups), np.int64)
        if lines[0][1] == version:
            for place, label, n, chosen in known:
                labeled[:, label, place] = n, chosen
        counts = np.array([line[2:5] for line in lines], np.int64)
        if lines[0][1] != version:
            counts[:, 1:] = 0
        return Observed(
            since=lines[0][0],
            rows=counts[:, 0],
            current=counts[:, 1],
            selected=counts[:, 2],
            labeled=labeled[0],
            labeled_selected=labeled[1],
            looks=[None if line[5] < 0 else Look(*line[5:8]) for line in lines],
            drift=np.array([line[8] for line in lines], np.bool_),
            watch=state[0] if state is not None and lines[0][1] == version else None,
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise SQLite's errors as ObservedError."""
    try:
        yield
    except sqlite3.Error as error:
        raise ObservedError(f"the observations can't be read or written ({error})") from error
