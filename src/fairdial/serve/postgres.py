"""A connection to a PostgreSQL database that the servers of a fleet share."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg

Found = TypeVar("Found")
Connection = psycopg.Connection[tuple[Any, ...]]

PATIENCE = 5  # seconds to wait for the database, and for another writer
TICK = 0.5  # seconds between looks at calls that don't return
SECRETS = "password", "sslpassword"
# of a server that hangs, the database ends the connection, and with it the lock
BEGIN = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = '{PATIENCE}s';
SET LOCAL idle_in_transaction_session_timeout = '{PATIENCE}s';
SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') IN ('off', 'local');
SELECT pg_advisory_xact_lock({{key}});
"""


class DoubtError(Exception):
    """The connection broke during a commit, which may have succeeded."""


class Line:
    """A connection to the database for one thread at a time, opened when it is needed.

    A connection that broke is replaced once; a call that doesn't return in time is cut off.
    """

    def __init__(self, url: str, patience: float) -> None:
        self._url, self._patience = url, patience
        self._using, self._cutting = threading.Lock(), threading.Lock()
        self._connection: Connection | None = None
        self._until: float | None = None  # when the running call is cut off
        self._watch: threading.Thread | None = None
        self._closed = threading.Event()

    def run(self, use: Callable[[Connection], Found], *, again: bool = False) -> Found:
        """Return what ``use`` returns, which must end its transaction.

        It is called again with a new connection if the one that was open broke; with ``again``, it
        gets a new one at once.
        """
        if not self._using.acquire(timeout=self._patience):
            raise psycopg.OperationalError(f"no answer within {self._patience:g} seconds")
        try:
            if again:
                self._drop()
            known = self._connection is not None
            waited = psycopg.errors.LockNotAvailable
            try:
                return self._call(use)
            except psycopg.Error as error:
                if isinstance(error, waited) or not known or self._until == 0.0:
                    raise
            return self._call(use)
        finally:
            self._until = None
            self._using.release()

    def _call(self, use: Callable[[Connection], Found]) -> Found:
        connection = self._connection or self._open()
        self._until = time.monotonic() + self._patience
        try:
            found = use(connection)
        except BaseException as error:
            if self._until == 0.0 or isinstance(error, psycopg.Error | DoubtError):
                self._drop()
            raise
        with self._cutting:
            self._until = None
        return found

    def _open(self) -> Connection:
        connection = self._connection = psycopg.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,  # so that a pool of connections may be in between
            connect_timeout=PATIENCE,
            target_session_attrs="primary",  # a standby may lag behind
            client_encoding="utf8",
            application_name="fairdial",
        )
        if self._watch is None:
            self._watch = threading.Thread(target=self._cut_late_calls, daemon=True)
            self._watch.start()
        return connection

    def _cut_late_calls(self) -> None:
        """Shut the connection of a call that takes too long, such as with a host that is gone."""
        while not self._closed.wait(TICK):
            with self._cutting:
                late = self._until is not None and 0.0 < self._until < time.monotonic()
                if late and self._connection is not None and not self._connection.closed:
                    self._until = 0.0
                    with socket.socket(fileno=os.dup(self._connection.fileno())) as line:
                        line.shutdown(socket.SHUT_RDWR)

    def _drop(self) -> None:
        with self._cutting:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection."""
        self._closed.set()
        self._drop()


@contextmanager
def transaction(connection: Connection, key: str) -> Iterator[None]:
    """Begin a transaction that holds a lock; the block must end it."""
    connection.execute(BEGIN.format(key=key).encode())
    try:
        yield
    except BaseException:
        if not connection.closed:
            with suppress(Exception):
                connection.execute("ROLLBACK")
        raise


def commit(connection: Connection) -> None:
    """Commit; raise DoubtError if that fails."""
    try:
        connection.execute("COMMIT")
    except psycopg.Error as error:
        raise DoubtError from error


def hide_password(url: str) -> str:
    """Return the address of a database without its password.

    Examples
    --------
    >>> from fairdial.serve.audit_postgres import hide_password
    >>> hide_password("postgresql://ann:secret@db.example/dials?sslmode=require")
    'postgresql://ann@db.example/dials?sslmode=require'
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    query = urlencode([p for p in parse_qsl(parts.query) if p[0] not in SECRETS])
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query=query))
