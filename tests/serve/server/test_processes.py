"""Servers as they run: several processes, kill -9, restarts, full disks, many at once."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fairdial.serve.audit import AuditLog

TOKEN = "a-token-of-enough-letters"
SERVER = "from fairdial.cli import main; main()"
START = 180.0  # seconds; many on a machine that has other things to do
KILLS = 25
DATABASE_KILLS = 6


class Server:
    """A client of a server on this machine; every request has a connection of its own."""

    def __init__(self, port):
        self.port = port

    def ask(self, method, path, body=None, timeout=60.0):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, *question):
        status, body = self.ask(*question)
        assert status == 200, body
        return json.loads(body)

    def move(self, tolerance, reason="x"):
        return self.ask("PUT", "/v1/dial", {"tolerance": tolerance, "reason": reason})

    def wait(self):
        until = time.monotonic() + START
        while time.monotonic() < until:
            with suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/healthz")[0] == 200:
                    return
            time.sleep(0.02)
        raise AssertionError("the server doesn't answer")


@contextmanager
def serving(folder, *options, **environment):
    """The command, in a process of its own, which ends by SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, "serve", str(folder), "--port", "0", *map(str, options)],
        env={**os.environ, "FAIRDIAL_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = iter(process.stderr.readline, "")
        line = next(line for line in lines if "http://127.0.0.1:" in line)
        server = Server(urlsplit(line.rpartition(" ")[2].strip()).port)
        assert server.ask("GET", "/healthz")[0] == 200  # it listens once the address is printed
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stderr.close()
    assert process.returncode in (-signal.SIGTERM, 0)


# ---- several processes -------------------------------------------------------------------------


def test_two_processes_never_answer_with_an_old_dial_and_a_restart_keeps_it(cases, tmp_path):
    case = cases("array")
    options = "--workers", 2, "--audit", tmp_path / "audit.sqlite"
    with serving(case.folder, *options) as server:
        check_consistency(server, case)
        check_many_at_once(server, case)
        check_figures(server)
        data = server.json("GET", "/v1/dial")
    with serving(case.folder, *options) as server:
        again = server.json("GET", "/v1/dial")
    assert again == data
    for log in tmp_path.glob("*.sqlite*-wal"):  # two processes may leave one by closing together
        with closing(sqlite3.connect(log.with_name(log.name.removesuffix("-wal")))) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchall()
    assert not list(tmp_path.glob("*-wal"))  # nobody has them open


@pytest.mark.parametrize("workers", [1, 2])
def test_a_terminated_server_removes_its_temporary_files(workers, cases, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    options = "--workers", workers, "--audit", tmp_path / "audit.sqlite"
    with serving(cases("array").folder, *options, TMPDIR=str(scratch)):
        assert list(scratch.glob("fairdial-serve-*"))
    assert not list(scratch.glob("fairdial-serve-*"))


def check_consistency(server, case):
    """After a move has been answered, whoever is asked has seen it."""
    rows = [{"features": row["features"]} for row in case.rows(0, 1)]
    wrong, stop = [], threading.Event()
    moved = [(1, server.json("GET", "/v1/dial")["tolerance"])]  # only added to

    def look():
        while not stop.is_set():
            version, tolerance = moved[-1]
            dial = server.json("GET", "/v1/dial")
            data = server.json("POST", "/v1/predict", {"rows": rows})
            for found, value in (
                (dial, dial["tolerance"]),
                (data, data["rows"][0]["tolerance"]),
            ):
                if found["version"] < version:
                    wrong.append((version, found["version"]))
                if found["version"] == version and value != tolerance:
                    wrong.append((tolerance, value))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(40):
        status, body = server.move(i / 50)
        assert status == 200
        found = json.loads(body)
        moved.append((found["version"], found["tolerance"]))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [version for version, _ in moved] == list(range(1, 42))
    entries = server.json("GET", "/v1/audit")["entries"]
    assert [e["new"]["tolerance"] for e in entries[::-1]] == [t for _, t in moved]


def check_many_at_once(server, case, many=1_000):
    """A thousand connections at the same time, each with a request, all answered rightly."""
    rows = [{"features": row["features"]} for row in case.rows(0, 50)]
    alone = [{"rows": [row], "tolerance": 0.0} for row in rows]  # batches round otherwise
    want = [server.json("POST", "/v1/predict", body)["rows"][0] for body in alone]

    async def ask(i):
        body = json.dumps(alone[i % 50]).encode()
        for attempt in range(5):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                break
            except ConnectionResetError:  # the queue of connections was full
                await asyncio.sleep(0.1 * attempt)
        head = f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode())
        await ready.wait()
        writer.write(body)
        answer = await reader.read()
        writer.close()
        head, _, text = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(text)["rows"][0]["margin"] == want[i % 50]["margin"]

    async def everybody():
        global ready
        ready = asyncio.Event()
        asking = [asyncio.ensure_future(ask(i)) for i in range(many)]
        await asyncio.sleep(0.5)
        ready.set()
        return await asyncio.gather(*asking)

    with ThreadPoolExecutor(1) as apart:  # a browser's tests leave a loop in this thread
        found = apart.submit(asyncio.run, everybody()).result()
    assert Counter(status for status, _ in found) == {200: many}
    assert all(good for _, good in found)


def check_figures(server):
    """Whoever is asked answers for both."""
    text = server.ask("GET", "/metrics")[1].decode()
    lines = dict(line.rpartition(" ")[::2] for line in text.splitlines() if line[0] != "#")
    assert float(lines['fairdial_requests_total{path="/v1/dial",status="200"}']) >= 42
    total = sum(float(v) for k, v in lines.items() if k.startswith("fairdial_decisions_total"))
    asked = float(lines['fairdial_requests_total{path="/v1/predict",status="200"}'])
    assert total == asked  # every request had one row
    assert lines["fairdial_dial_version"] == "41.0"


# ---- one that can be started again and again ---------------------------------------------------


@pytest.fixture
def copies(cases, settings, tmp_path):
    """Starts servers of one model within a moment, and ends what is left of them."""
    with copied(settings(cases("array")), tmp_path) as start:
        yield start


@contextmanager
def copied(made, tmp_path):
    """Like the fixture, from settings."""
    (tmp_path / "settings.json").write_text(json.dumps(asdict(made)))
    program = Path(__file__).with_name("server_of.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path / "settings.json")],
        env={**os.environ, "FAIRDIAL_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    started = []

    def start(limit=None):
        if limit is not None:
            process.stdin.write(f"limit {limit}\n")
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process.stdin.write(f"start {port}\n")
        process.stdin.flush()
        pid = int(process.stdout.readline())
        started.append(pid)
        server = Server(port)
        server.wait()
        return server, pid

    yield start
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def test_two_servers_with_one_database_survive_each_others_end(cases, settings, database, tmp_path):
    """One of two is killed in the middle of its moves, again and again; the other sees them all."""
    rng, url = random.Random(0), database.fresh()
    places = [tmp_path / name for name in "ab"]
    for folder in places:
        folder.mkdir()
    made = [
        settings(cases("array"), audit=url, observed=folder / "observed.sqlite")
        for folder in places
    ]
    with copied(made[0], places[0]) as one, copied(made[1], places[1]) as other:
        starts = [one, other]
        running = [start() for start in starts]
        answered = 0
        for i in range(DATABASE_KILLS):
            (mover, pid), (witness, _) = running[i % 2], running[1 - i % 2]
            known = last(url).version
            killer = threading.Timer(rng.uniform(0.02, 0.15), os.kill, (pid, signal.SIGKILL))
            killer.start()
            tried = 0.0
            with suppress(OSError, http.client.HTTPException):
                while True:
                    tried = rng.random()
                    status, body = mover.move(tried)
                    assert status == 200
                    moved = json.loads(body)
                    seen = witness.json("GET", "/v1/dial")
                    assert seen["version"] == moved["version"] == known + 1
                    assert seen["tolerance"] == moved["tolerance"] == tried
                    known, answered = moved["version"], answered + 1
            killer.join()
            status, body = witness.move(0.5)  # the lock is free, and no number was lost
            found = json.loads(body)
            assert status == 200
            assert found["version"] in (known + 1, known + 2)  # recorded, but not answered
            if found["version"] == known + 2:
                (before,) = witness.json("GET", f"/v1/audit?limit=1&before={known + 2}")["entries"]
                assert before["new"]["tolerance"] == tried
            running[i % 2] = starts[i % 2]()
        assert answered > 0
        data = running[0][0].json("GET", "/v1/audit?limit=1000")
        assert data["altered"] is None
        assert [e["version"] for e in data["entries"]] == list(range(found["version"], 0, -1))


def test_a_lost_database_is_a_clear_503_and_the_server_isnt_ready(cases, client, database, token):
    ask = client(cases("array"), audit=database.fresh())
    rows = {"rows": [{"features": row["features"]} for row in cases("array").rows(0, 1)]}
    body = {"tolerance": 0.05, "reason": "x"}
    assert ask.get("/readyz").json()["status"] == "ready"
    assert ask.put("/v1/dial", json=body, headers=token).json()["version"] == 2
    database.server.stop()
    answers = [
        ask.get("/readyz"),
        ask.post("/v1/predict", json=rows),
        ask.get("/v1/dial"),
        ask.get("/v1/audit"),
        ask.put("/v1/dial", json=body, headers=token),
    ]
    assert [answer.status_code for answer in answers] == [503] * 5
    for answer in answers:
        assert "audit log" in answer.json()["detail"]
    assert ask.get("/healthz").status_code == 200
    assert "fairdial_files_readable 0.0" in ask.get("/metrics").text
    database.server.start()
    assert ask.get("/readyz").json()["version"] == 2
    assert ask.post("/v1/predict", json=rows).json()["version"] == 2


def test_a_killed_server_leaves_the_dial_as_its_log_says(copies, tmp_path):
    """kill -9 at every stage of a move: what was answered is recorded, and nothing half."""
    rng, path = random.Random(0), tmp_path / "audit.sqlite"
    answered = 0
    for _ in range(KILLS):
        server, pid = copies()
        before = server.json("GET", "/v1/dial")
        assert before["version"] == last(path).version  # what the log says
        assert before["tolerance"] == last(path).tolerance
        seen = [before]
        killer = threading.Timer(rng.uniform(0.0, 0.06), os.kill, (pid, signal.SIGKILL))
        killer.start()
        number = before["version"]
        with suppress(OSError, http.client.HTTPException):
            while True:
                number += 1
                status, body = server.move(number % 1_000 / 1_000)
                assert status == 200
                seen.append(json.loads(body))
        killer.join()
        answered += len(seen) - 1
        found = last(path)
        assert found.version in (seen[-1]["version"], seen[-1]["version"] + 1)
        if found.version == seen[-1]["version"]:
            assert found.tolerance == seen[-1]["tolerance"]
        else:  # recorded, and killed before it was answered
            assert found.tolerance == number % 1_000 / 1_000
    check_log(path)
    assert answered > 0


def last(path):
    log = AuditLog(path, write=False)
    found = log.last()
    log.close()
    return found


def check_log(path):
    """Whole, without gaps, each move from where the one before it went."""
    file = sqlite3.connect(path)
    assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows = file.execute("SELECT version, old_tolerance, tolerance FROM audit").fetchall()
    file.close()
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert [row[1] for row in rows[1:]] == [row[2] for row in rows[:-1]]


def test_a_full_disk_refuses_changes_and_loses_none(copies, tmp_path):
    """Files can't grow beyond a limit of the system's, which is what a full disk does."""
    path = tmp_path / "audit.sqlite"
    server, pid = copies(limit=60_000)
    statuses = [server.move(i / 1_000, reason="r" * 500)[0] for i in range(60)]
    done = statuses.count(200)
    assert set(statuses) == {200, 503}
    assert statuses == [200] * done + [503] * (60 - done)
    dial = server.json("GET", "/v1/dial")
    assert (dial["version"], dial["tolerance"]) == (done + 1, (done - 1) / 1_000)
    assert last(path).version == done + 1
    os.kill(pid, signal.SIGKILL)
    server, _ = copies(limit=1 << 30)
    assert server.json("GET", "/v1/dial") == dial
    assert server.move(0.5)[0] == 200
    check_log(path)
