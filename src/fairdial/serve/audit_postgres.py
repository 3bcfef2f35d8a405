"""The audit log in a table of a PostgreSQL database, for servers on several hosts.

The contract is that of the file: a change is on the database's disk before anybody can see it, and
every request reads the newest entry from the primary server, never from a copy that may lag behind.
Changes wait for each other by a lock that a transaction holds, so a server that is killed, or loses
the network, gives it back within seconds. If the connection breaks while a change is being
committed, the next connection finds out under the same lock whether it was recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import astuple

import psycopg

from fairdial.errors import InvalidInputError
from fairdial.serve.entries import ADD, APPLICATION, FORMAT, LAST, AuditError, Entry
from fairdial.serve.postgres import (
    PATIENCE,
    Connection,
    DoubtError,
    Line,
    commit,
    hide_password,
    transaction,
)

LONG = 60.0  # seconds for reading the whole log
TABLE = "fairdial_audit"
KIND = f"fairdial audit log, format {FORMAT}"
REFUSED = "entries of the audit log can only be added"

SCHEMA = f"""
CREATE TABLE {TABLE} (
    version bigint PRIMARY KEY,
    time text NOT NULL,
    who text NOT NULL,
    old_tolerance double precision,
    old_confidence double precision,
    tolerance double precision NOT NULL,
    confidence double precision,
    reason text NOT NULL,
    model text NOT NULL,
    gap double precision,
    hash text NOT NULL
);
COMMENT ON TABLE {TABLE} IS '{KIND}';
CREATE FUNCTION {TABLE}_next() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT'
        AND NEW.version = (SELECT coalesce(max(version), 0) + 1 FROM {TABLE}) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '{REFUSED}' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER {TABLE}_next BEFORE INSERT OR UPDATE OR DELETE ON {TABLE}
    FOR EACH ROW EXECUTE FUNCTION {TABLE}_next();
CREATE TRIGGER {TABLE}_kept BEFORE TRUNCATE ON {TABLE}
    FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_next();
"""
HASH = f"SELECT hash FROM {TABLE} WHERE version = %s".encode()
CREATING = f"{APPLICATION}::bigint << 32"
CHANGING = f"({APPLICATION}::bigint << 32) + '{TABLE}'::regclass::oid::bigint"
FIND = (  # by a query, because caches of names may be behind
    "SELECT obj_description(c.oid, 'pg_class') FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = current_schema() AND c.relname = %s"
)
STATE = (
    "SELECT count(*), sum(hashtextextended(ctid::text || ' ' || xmin::text, 0)::numeric) "
    f"FROM {TABLE}"
).encode()


class PostgresStore:
    """Entries in a table; parameters are as in :class:`~fairdial.serve.audit.AuditLog`."""

    remote = True

    def __init__(self, url: str, *, create: bool, write: bool) -> None:
        self.place, self.writable, self._url = hide_password(url), write, url
        self._reader, self._writer = Line(url, PATIENCE), Line(url, 2 * PATIENCE)
        try:
            if create:
                self._writer.run(self._create)
            self._reader.run(self._check)
        except psycopg.Error as error:
            self.close()
            raise _invalid(url, "be a database that can be used", error) from error
        except InvalidInputError:
            self.close()
            raise

    def _create(self, connection: Connection) -> None:
        if _find(connection)[1]:
            return
        with transaction(connection, CREATING):  # one server creates it, others wait
            if not _find(connection)[1]:
                connection.execute(SCHEMA.encode())
            connection.execute("COMMIT")

    def _check(self, connection: Connection) -> None:
        kind, exists = _find(connection)
        if not exists:
            raise _invalid(self._url, "be a database with an audit log", f"it has no table {TABLE}")
        if kind != KIND:
            raise _invalid(
                self._url,
                "be an audit log that this fairdial can read",
                f"its table {TABLE} is {kind or 'another kind of table'}, not {KIND}",
            )
        safe = connection.execute("SHOW fsync").fetchall()
        if self.writable and safe != [("on",)]:
            raise _invalid(
                self._url, "be a database that keeps what it commits", "it has fsync = off"
            )

    def read(self, query: str, *values: int | str, separately: bool = False) -> list[Entry]:
        """Return entries; long reads use a separate connection, so that nobody waits for them."""
        line = Line(self._url, LONG) if separately else self._reader
        with self._own_errors("read"):
            try:
                rows = line.run(lambda c: c.execute(_own(query), values).fetchall())
            finally:
                if separately:
                    line.close()
        return [Entry(*row) for row in rows]

    def state(self) -> Hashable:
        """Return the number of rows and a sum over their places, which any change changes."""
        with self._own_errors("read"):
            found: Hashable = self._reader.run(lambda c: c.execute(STATE).fetchone())
        return found

    def add(self, following: Callable[[list[Entry]], Entry]) -> Entry:
        """Add an entry after the newest ones; when this returns, it is on the database's disk."""
        tried: list[Entry] = []

        def change(connection: Connection) -> Entry:
            with transaction(connection, CHANGING):
                rows = connection.execute(_own(LAST)).fetchall()
                tried.append(following([Entry(*row) for row in rows]))
                connection.execute(_own(ADD), astuple(tried[-1]))
                commit(connection)
            return tried[-1]

        with self._own_errors("written"):
            try:
                return self._writer.run(change)
            except DoubtError as doubt:
                if self._was_recorded(tried[-1]):
                    return tried[-1]
                raise AuditError(f"the change was lost ({doubt.__cause__})") from doubt

    def _was_recorded(self, entry: Entry) -> bool:
        """Return whether an entry was recorded although its commit failed.

        The lock is free as soon as the database has finished or given up that commit.
        """

        def look(connection: Connection) -> bool:
            with transaction(connection, CHANGING):
                found = connection.execute(HASH, (entry.version,)).fetchone()
                connection.execute("ROLLBACK")
            return bool(found and found[0] == entry.hash)

        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self._writer.run(look, again=True)
            except psycopg.Error as error:
                if time.monotonic() > until:
                    raise AuditError(
                        f"the database was lost while a change was committed ({_line(error)})",
                        doubtful=True,
                    ) from error
            time.sleep(0.1)

    @contextmanager
    def _own_errors(self, done: str) -> Iterator[None]:
        """Raise the database's errors as AuditError."""
        try:
            yield
        except psycopg.Error as error:
            raise AuditError(f"the audit log can't be {done} ({_line(error)})") from error

    def close(self) -> None:
        """Close all connections."""
        self._reader.close()
        self._writer.close()


def _find(connection: Connection) -> tuple[str | None, bool]:
    """Return what the table says it is, and whether it exists."""
    found = connection.execute(FIND, (TABLE,)).fetchall()
    return (found[0][0], True) if found else (None, False)


def _own(query: str) -> bytes:
    """Return one of the shared queries as PostgreSQL reads it."""
    return query.replace("?", "%s").replace(" audit ", f" {TABLE} ").encode()


def _invalid(url: str, allowed: str, reason: object) -> InvalidInputError:
    return InvalidInputError("audit", allowed, given=f"{hide_password(url)!r} ({_line(reason)})")


def _line(text: object) -> str:
    return " ".join(str(text).split())


def has_log(url: str) -> bool:
    """Return whether a database has an audit log."""
    line = Line(url, PATIENCE)
    try:
        return line.run(_find)[1]
    except psycopg.Error as error:
        raise _invalid(url, "be a database that can be used", error) from error
    finally:
        line.close()
