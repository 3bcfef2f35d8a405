"""SQLite files that the processes of a server share."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairdial.errors import InvalidInputError

LOCK_TIMEOUT = 5.0  # seconds to wait for another writer
PRIVATE = 0o600


def create_file(path: Path, argument: str) -> None:
    """Create an empty file that only its owner can read, unless the file exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, PRIVATE))
    except OSError as error:
        raise InvalidInputError(
            argument, "be a file that can be created and written", given=f"{str(path)!r} ({error})"
        ) from error


def connect(path: Path, mode: str, *, synchronous: str = "FULL") -> sqlite3.Connection:
    """Open a connection that any one thread at a time may use, without implicit transactions."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=LOCK_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run statements as one transaction; it locks at once, so that what it reads stays true."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def pragma(connection: sqlite3.Connection, name: str) -> int | str:
    """Return the value of a pragma."""
    value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def create_tables(
    connection: sqlite3.Connection, application: int, schema: Sequence[str], version: int = 0
) -> None:
    """Create the tables in an empty file; raise if the file holds anything else."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables == 0 and pragma(connection, "application_id") == 0:
        for statement in schema:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {application}")
        connection.execute(f"PRAGMA user_version = {version}")
    check_kind(connection, application, version)


def check_kind(connection: sqlite3.Connection, application: int, version: int) -> None:
    """Raise ``sqlite3.DatabaseError`` if the file isn't of this kind and version."""
    if pragma(connection, "application_id") != application:
        raise sqlite3.DatabaseError("it is another kind of file")
    found = pragma(connection, "user_version")
    if found != version:
        raise sqlite3.DatabaseError(
            f"its format has version {found}, but this fairdial reads version {version}"
        )
