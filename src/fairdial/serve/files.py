"""SQLite files that several processes share."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fairdial.errors import InvalidInputError

PATIENCE = 5.0  # seconds to wait for another writer
PRIVATE = 0o600


def make_file(path: Path, argument: str) -> None:
    """An empty file that only its owner can read, unless there is one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, PRIVATE))
    except OSError as error:
        raise InvalidInputError(
            f"`{argument}` must be a file that can be made and written, got {str(path)!r} "
            f"({error})."
        ) from error


def connect(path: Path, mode: str, *, synchronous: str = "FULL") -> sqlite3.Connection:
    """A connection for any thread, one at a time; transactions are begun and ended by hand."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=PATIENCE,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; the lock is taken at once, so that what was read stays true."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise
