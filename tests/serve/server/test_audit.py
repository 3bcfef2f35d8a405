"""The audit log: every reader sees the last recorded change, whatever happens."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import threading
from contextlib import closing
from itertools import pairwise

import psycopg
import pytest

from fairdial import InvalidInputError
from fairdial.serve.audit import AuditLog
from fairdial.serve.entries import AuditError, DialMovedError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "audit.sqlite"


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


def tamper(place, *statements):
    """Change a log behind its triggers."""
    if isinstance(place, str):
        with psycopg.connect(place) as connection:
            connection.execute("ALTER TABLE fairdial_audit DISABLE TRIGGER ALL")
            for statement in statements:
                connection.execute(re.sub(r"\baudit\b", "fairdial_audit", statement))
        return
    with closing(sqlite3.connect(place)) as connection:
        for trigger in ("audit_kept", "audit_unchanged"):
            connection.execute(f"DROP TRIGGER {trigger}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def fill(log):
    """Change the dial until the disk is full."""
    for _ in range(500):
        try:
            move(log, 0.2, reason="r" * 500)
        except AuditError:
            return
    raise AssertionError("never full")


def test_a_new_file_is_empty_and_private(path, opened):
    log = opened(path, create=True)
    assert log.last() is None
    assert log.entries(10) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_reader_sees_a_move_as_soon_as_it_is_recorded(place, opened):
    writer = opened(place, create=True)
    readers = [opened(place), opened(place, write=False)]
    for i in range(20):
        entry = move(writer, i / 20, confidence=None if i % 2 else 0.9)
        assert entry.version == i + 1
        for reader in readers:
            assert reader.last() == entry


def test_an_entry_has_the_previous_tolerance(place, opened):
    log = opened(place, create=True)
    first, second = move(log, 0.3, confidence=0.9), move(log, 0.1)
    assert first.to_dict()["old"] is None
    assert second.to_dict()["old"] == {"tolerance": 0.3, "confidence": 0.9}
    assert second.to_dict()["new"] == {"tolerance": 0.1, "confidence": None}
    assert first.time <= second.time


def test_numbers_come_back_to_the_last_bit(place, opened):
    log = opened(place, create=True)
    for value in (0.1 + 0.2, 1 / 3, 5e-324, 0.0, 1.0):
        move(log, value)
        assert log.last().tolerance == value
        assert type(log.last().tolerance) is float


def test_entries_come_last_first_and_in_pages(place, opened):
    log = opened(place, create=True)
    for i in range(7):
        move(log, i / 10)
    assert [e.version for e in log.entries(3)] == [7, 6, 5]
    assert [e.version for e in log.entries(3, before=5)] == [4, 3, 2]
    assert [e.version for e in log.entries(99, before=1)] == []


def test_a_change_based_on_an_old_version_is_refused(place, opened):
    log = opened(place, create=True)
    with pytest.raises(DialMovedError):
        move(log, 0.1, seen=1)
    move(log, 0.1, seen=0)
    move(log, 0.2, seen=1)
    with pytest.raises(DialMovedError):
        move(log, 0.3, seen=1)
    assert log.last().tolerance == 0.2


def test_of_many_changes_based_on_one_version_one_succeeds(place, opened):
    logs = [opened(place, create=True) for _ in range(4)]
    move(logs[0], 0.5)
    done, refused = [], []

    def go(log, name):
        try:
            done.append(move(log, 0.1, who=name, seen=1))
        except DialMovedError:
            refused.append(name)

    threads = [threading.Thread(target=go, args=(log, str(i))) for i, log in enumerate(logs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(done), len(refused)) == (1, 3)
    assert logs[0].last() == done[0]


def test_concurrent_changes_are_all_recorded_one_after_the_other(place, opened):
    logs = [opened(place, create=True) for _ in range(3)]

    def go(log):
        for i in range(10):
            move(log, i / 10)

    threads = [threading.Thread(target=go, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = logs[0].entries(99)[::-1]
    assert [e.version for e in entries] == list(range(1, 31))
    for before, after in pairwise(entries):
        assert after.old_tolerance == before.tolerance


def test_entries_can_be_neither_changed_nor_deleted(path, opened):
    move(opened(path, create=True), 0.1)
    connection = sqlite3.connect(path)
    old = "old_tolerance, old_confidence"
    columns = f"time, 'Mallory', {old}, 0.9, confidence, 'x', model, gap, hash"
    for statement in (
        "DELETE FROM audit",
        "UPDATE audit SET tolerance = 1",
        "UPDATE OR REPLACE audit SET tolerance = 1",
        f"INSERT OR REPLACE INTO audit SELECT version, {columns} FROM audit",
        f"REPLACE INTO audit SELECT version, {columns} FROM audit",
        f"INSERT INTO audit SELECT version + 5, {columns} FROM audit",
        f"INSERT INTO audit SELECT -1, {columns} FROM audit",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("SELECT 1", None),
        ("UPDATE audit SET reason = 'y' WHERE version = 2", 2),
        ("UPDATE audit SET tolerance = 0.9 WHERE version = 3", 3),
        ("UPDATE audit SET time = '' WHERE version = 1", 1),
        ("DELETE FROM audit WHERE version = 2", 2),
        ("DELETE FROM audit WHERE version = 1", 1),
        ("UPDATE audit SET old_tolerance = NULL WHERE version = 2", 2),
    ],
)
def test_an_altered_entry_is_found(statement, found, place, opened):
    log, reader = opened(place, create=True), opened(place, write=False)
    for tolerance in (0.1, -0.0, 1 / 3, 1):
        move(log, tolerance, confidence=0.9)
    assert log.altered() is None
    tamper(place, statement)
    assert log.altered() == reader.altered() == found


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET tolerance = 0.9 WHERE version = 3",
        "UPDATE audit SET hash = 'x' WHERE version = 2",
        "INSERT INTO audit SELECT version + 1, time, who, old_tolerance, old_confidence, 0.9, "
        "confidence, reason, model, gap, hash FROM audit WHERE version = 3",
        "DELETE FROM audit WHERE version = 2",
    ],
)
def test_an_altered_entry_never_takes_effect(statement, place, opened):
    log, reader = opened(place, create=True), opened(place, write=False)
    for tolerance in (0.1, 0.2, 0.3):
        move(log, tolerance)
    assert log.last().tolerance == reader.last().tolerance == 0.3
    tamper(place, statement)
    for one in (log, reader, opened(place)):
        with pytest.raises(AuditError):
            one.last()
    with pytest.raises(AuditError):
        move(log, 0.4)


def test_the_whole_log_is_read_again_only_after_a_change(place, opened, monkeypatch):
    log, other = opened(place, create=True), opened(place)
    kind = type(log.store)
    read, queries = kind.read, []
    monkeypatch.setattr(
        kind, "read", lambda self, *a, **k: queries.append(a) or read(self, *a, **k)
    )
    for i in range(4):
        move(other, i / 10)
        assert [log.altered() for _ in range(5)] == [None] * 5
        assert len(queries) == i + 1


def test_changes_by_the_server_itself_dont_count_as_moved(place, opened):
    log = opened(place, create=True)
    move(log, 0.1, who="server")
    assert not log.moved()
    move(log, 0.2)
    assert log.moved()
    move(log, 0.3, who="server")
    assert log.moved()


def test_reading_creates_no_file(path, opened):
    log = opened(path, create=True)
    move(log, 0.1)
    log.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    reader = opened(path, write=False)
    assert reader.last().tolerance == 0.1
    assert reader.altered() is None
    reader.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_log_is_written_ahead_and_synchronized(path, opened):
    log = opened(path, create=True)
    assert log.store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert log.store._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_full_disk_refuses_the_move_and_changes_nothing(path, opened):
    log, other = opened(path, create=True), opened(path)
    move(log, 0.1)
    (pages,) = log.store._writer.execute("PRAGMA page_count").fetchone()
    log.store._writer.execute(f"PRAGMA max_page_count = {pages}")
    fill(log)
    recorded = log.last().version
    for reader in (log, other):
        assert reader.last().version == recorded
        assert len(reader.entries(1000)) == recorded
    log.store._writer.execute("PRAGMA max_page_count = 1000000")
    assert move(log, 0.3).version == recorded + 1  # no number was lost


def test_a_locked_log_refuses_the_move_and_can_still_be_read(path, opened, monkeypatch):
    monkeypatch.setattr("fairdial.serve.sqlite.LOCK_TIMEOUT", 0.05)
    log = opened(path, create=True)
    move(log, 0.1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(AuditError, match="locked"):
        move(log, 0.2)
    assert log.last().tolerance == 0.1
    other.close()
    assert move(log, 0.2).version == 2


def test_a_log_that_was_moved_away_is_not_written(path, opened):
    log = opened(path, create=True)
    move(log, 0.1)
    os.rename(path, path.with_suffix(".away"))
    with pytest.raises(AuditError):
        move(log, 0.2)
    opened(path, create=True)
    with pytest.raises(AuditError):
        move(log, 0.2)


def test_what_was_opened_for_reading_is_not_written(place, opened):
    move(opened(place, create=True), 0.1)
    with pytest.raises(AuditError):
        move(opened(place, write=False), 0.2)


def test_a_missing_log_is_created_only_on_request(path):
    with pytest.raises(InvalidInputError) as refused:
        AuditLog(path)
    assert refused.value.argument == "audit"
    assert not path.exists()


@pytest.mark.parametrize("kind", ["text", "table", "newer"])
def test_another_file_is_refused_and_left_as_it_is(kind, tmp_path):
    path = tmp_path / "other"
    if kind == "text":
        path.write_text("not a database, but long enough to be looked at " * 20)
    else:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE audit (version)")
        if kind == "newer":
            connection.execute(f"PRAGMA application_id = {0x46444C41}")
            connection.execute("PRAGMA user_version = 3")
        connection.commit()
        connection.close()
    before = path.read_bytes()
    with pytest.raises(InvalidInputError) as refused:
        AuditLog(path, create=True)
    assert refused.value.argument == "audit"
    assert path.read_bytes() == before


def test_a_place_where_no_file_can_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError) as refused:
        AuditLog(tmp_path / "file" / "audit.sqlite", create=True)
    assert refused.value.argument == "audit"
