"""The audit log in PostgreSQL, by a real server that is restarted, killed and frozen."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from fairdial import InvalidInputError
from fairdial.serve import audit_postgres, postgres
from fairdial.serve.audit import AuditLog, has_entries
from fairdial.serve.entries import AuditError


@pytest.fixture
def url(database):
    return database.fresh()


@pytest.fixture
def opened():
    logs = []

    def make(*args, **options):
        logs.append(AuditLog(*args, **options))
        return logs[-1]

    yield make
    for log in logs:
        log.close()


def move(log, tolerance, **options):
    return log.append(
        tolerance=tolerance, **({"who": "Ann", "reason": "why", "model": "m"} | options)
    )


def test_a_log_is_created_once_by_servers_that_start_together(url, opened):
    assert not has_entries(url)
    errors = []

    def go():
        try:
            move(opened(url, create=True), 0.1)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert has_entries(url)
    assert [e.version for e in opened(url).entries(9)] == [4, 3, 2, 1]


def test_a_missing_log_is_created_only_on_request(url):
    with pytest.raises(InvalidInputError) as refused:
        AuditLog(url)
    assert refused.value.argument == "audit"
    assert not has_entries(url)


def test_entries_can_be_neither_changed_nor_deleted(url, opened):
    move(opened(url, create=True), 0.1)
    old = "old_tolerance, old_confidence"
    columns = f"time, 'Mallory', {old}, 0.9, confidence, 'x', model, gap, hash"
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (
            "DELETE FROM fairdial_audit",
            "TRUNCATE fairdial_audit",
            "UPDATE fairdial_audit SET tolerance = 1",
            f"INSERT INTO fairdial_audit SELECT version, {columns} FROM fairdial_audit "
            "ON CONFLICT (version) DO UPDATE SET tolerance = 1",
            f"INSERT INTO fairdial_audit SELECT version + 5, {columns} FROM fairdial_audit",
            f"INSERT INTO fairdial_audit SELECT -1, {columns} FROM fairdial_audit",
        ):
            with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
                connection.execute(statement)


def test_another_table_of_the_name_is_refused_and_left_as_it_is(url, database):
    database.server.execute(url, "CREATE TABLE fairdial_audit (version int)")
    for create in (False, True):
        with pytest.raises(InvalidInputError) as refused:
            AuditLog(url, create=create)
        assert refused.value.argument == "audit"


@pytest.mark.parametrize(
    "address",
    ["postgresql://ann:sesame@127.0.0.1:1/x", "postgresql://ann@127.0.0.1:1/x?password=sesame"],
)
def test_a_database_that_is_not_there_is_refused_without_its_password(address):
    with pytest.raises(InvalidInputError, match=r"ann@127\.0\.0\.1:1/x") as refused:
        AuditLog(address, create=True)
    assert "sesame" not in str(refused.value)


def test_a_database_that_may_lose_commits_is_refused(url, database, opened):
    log = opened(url, create=True)
    server = database.server
    server.execute(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    try:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                AuditLog(url).close()
            except InvalidInputError:
                break
            time.sleep(0.05)
        else:
            raise AssertionError("fsync = off was accepted")
        opened(url, write=False)
    finally:
        server.execute(url, "ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
    assert move(log, 0.1).version == 1


def test_a_change_waits_for_the_disk_although_the_database_would_not(url, opened, monkeypatch):
    found, begun = [], postgres.commit

    def look(connection):
        found.extend(connection.execute("SHOW synchronous_commit").fetchone())
        begun(connection)

    monkeypatch.setattr(audit_postgres, "commit", look)
    for given in ("off", "local", "remote_apply"):
        move(opened(f"{url}%20-csynchronous_commit%3D{given}", create=True), 0.1)
    assert found == ["on", "on", "remote_apply"]


def test_a_restart_of_the_database_is_not_noticed_afterwards(url, opened, database):
    log, reader = opened(url, create=True), opened(url, write=False)
    move(log, 0.1)
    database.server.stop()
    for use in (log.last, reader.last, log.altered, lambda: move(log, 0.2)):
        with pytest.raises(AuditError) as refused:
            use()
        assert not refused.value.doubtful
    database.server.start()
    assert reader.last().tolerance == log.last().tolerance == 0.1
    assert move(log, 0.2).version == 2
    assert reader.last().version == 2


def test_a_frozen_database_is_given_up_and_works_again_later(url, opened, database, monkeypatch):
    monkeypatch.setattr(audit_postgres, "PATIENCE", 0.4)
    monkeypatch.setattr(postgres, "TICK", 0.05)
    log = opened(url, create=True)
    move(log, 0.1)
    database.server.freeze()
    try:
        start = time.monotonic()
        errors = []

        def go():
            try:
                log.last()
            except AuditError as error:
                errors.append(error)

        threads = [threading.Thread(target=go) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(errors) == 3
        assert time.monotonic() - start < 30
    finally:
        database.server.thaw()
    assert log.last().tolerance == 0.1


def test_the_lock_of_a_server_that_hangs_is_given_back(url, opened):
    """One host stops in the middle of a change; the others go on after a while."""
    log, other = opened(url, create=True), opened(url)
    move(log, 0.1)
    with psycopg.connect(url, autocommit=True) as hanging:
        begin = postgres.BEGIN.replace(f"'{postgres.PATIENCE}s'", "'700ms'")
        hanging.execute(begin.format(key=audit_postgres.CHANGING))
        start = time.monotonic()
        assert move(other, 0.2).version == 2  # waits until the database ends that session
        assert time.monotonic() - start > 0.3
        with pytest.raises(psycopg.Error):
            hanging.execute("COMMIT")
    assert log.last().tolerance == 0.2


def test_a_change_is_refused_while_another_holds_the_lock(url, opened, monkeypatch):
    monkeypatch.setattr(postgres, "BEGIN", postgres.BEGIN.replace("'5s'", "'200ms'"))
    log = opened(url, create=True)
    move(log, 0.1)
    with psycopg.connect(url) as other:
        other.execute(f"SELECT pg_advisory_xact_lock({audit_postgres.CHANGING})")
        with pytest.raises(AuditError) as refused:
            move(log, 0.2)
        assert not refused.value.doubtful
        assert log.last().tolerance == 0.1
    assert move(log, 0.2).version == 2


@pytest.mark.parametrize("happened", ["recorded", "lost"])
def test_a_connection_that_breaks_in_a_commit_leaves_no_doubt(happened, url, opened, monkeypatch):
    log = opened(url, create=True)
    move(log, 0.1)
    real = postgres.commit

    def broken(connection):
        if happened == "recorded":
            real(connection)
        pid = connection.info.backend_pid
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        real(connection)

    monkeypatch.setattr(audit_postgres, "commit", broken)
    if happened == "recorded":
        assert move(log, 0.2).version == 2
    else:
        with pytest.raises(AuditError) as refused:
            move(log, 0.2)
        assert not refused.value.doubtful
    monkeypatch.undo()
    assert log.last().tolerance == (0.2 if happened == "recorded" else 0.1)
    assert move(log, 0.3).version == (3 if happened == "recorded" else 2)
    assert log.altered() is None


def test_a_commit_that_nobody_can_look_up_is_doubtful(url, opened, database, monkeypatch):
    monkeypatch.setattr(audit_postgres, "PATIENCE", 0.3)
    log = opened(url, create=True)
    move(log, 0.1)
    real = postgres.commit

    def broken(connection):
        database.server.stop()
        real(connection)

    monkeypatch.setattr(audit_postgres, "commit", broken)
    with pytest.raises(AuditError) as refused:
        move(log, 0.2)
    assert refused.value.doubtful
    monkeypatch.undo()
    database.server.start()
    assert log.last().tolerance == 0.1


def test_a_crash_of_the_database_loses_no_recorded_change(url, opened, database):
    log = opened(url, create=True)
    for i in range(5):
        entry = move(log, i / 10)
    database.server.stop(database.server.CRASH)
    database.server.start()
    assert log.last() == entry
    assert [e.version for e in log.entries(99)] == [5, 4, 3, 2, 1]
    assert log.altered() is None
