"""Two hosts with one dial in PostgreSQL: servers are killed and cut off, and nothing may be stale.

    python benchmarks/fleet.py [--requests 10000] [--kills 30] [--quick]

Each server runs in a network namespace of its own (``ip netns``, which needs root; elsewhere both
run on loopback addresses), the database and the client outside. While clients move the dial at
either host and ask both for decisions, one server after the other is killed by SIGKILL and started
again, and now and then a host loses its way to the database. Every answer is checked: it must have
the version that was in effect when the request began or a later one, and the tolerance that the
log has for this version. At the end, every acknowledged change must be in the log.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from common import machine, table
from postgres import running
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes
from fairdial.datasets import make_gaussian
from fairdial.serve.audit import AuditLog
from fairdial.serve.startup import Settings, make_app, prepare

TOKEN = "a-token-of-this-benchmark"
HOSTS = ("a", "b")
PORT = 8931
OUTSIDE, DATABASE = "10.213.0.1", "10.213.1.1"
CUT = 7.0  # seconds without the database
LIMIT = 8.0  # seconds within which a host without it must answer 503
ENDED = (OSError, http.client.HTTPException)


# ---- hosts -------------------------------------------------------------------------------------


def command(*words: str) -> None:
    """Run a command of the system."""
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def networks() -> Iterator[bool]:
    """Make a namespace for each host, connected by a bridge; yield whether that is possible."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        yield False
        return
    number = os.getpid() % 10_000
    bridge = f"fdbr{number}"
    try:
        command("ip", "link", "add", bridge, "type", "bridge")
        for address in (OUTSIDE, DATABASE):
            command("ip", "address", "add", f"{address}/24", "dev", bridge)
        command("ip", "link", "set", bridge, "up")
        for place, name in enumerate(HOSTS):
            space, outer = f"fairdial-{name}", f"fd{name}{number}"
            command("ip", "netns", "add", space)
            ends = "type", "veth", "peer", "name", "eth0", "netns", space
            command("ip", "link", "add", outer, *ends)
            command("ip", "link", "set", outer, "master", bridge, "up")
            inside = "ip", "-n", space
            command(*inside, "address", "add", f"10.213.0.{2 + place}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                command(*inside, "link", "set", device, "up")
            command(*inside, "route", "add", f"{DATABASE}/32", "via", OUTSIDE)
        yield True
    finally:
        for name in HOSTS:
            with contextlib.suppress(subprocess.CalledProcessError):
                command("ip", "netns", "delete", f"fairdial-{name}")
        with contextlib.suppress(subprocess.CalledProcessError):
            command("ip", "link", "delete", bridge)


@dataclass
class Host:
    """One host: a process that starts servers at once, by copies of itself."""

    name: str
    address: str
    settings: Path
    apart: bool
    process: subprocess.Popen[str] = field(init=False)
    pid: int = 0

    def __post_init__(self) -> None:
        inside = ["ip", "netns", "exec", f"fairdial-{self.name}"] if self.apart else []
        self.process = subprocess.Popen(
            [*inside, sys.executable, __file__, "--host", str(self.settings), self.address],
            env={**os.environ, "FAIRDIAL_TOKEN": TOKEN},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def start(self) -> None:
        """Start a server, and wait until it is ready."""
        assert self.process.stdin is not None
        self.process.stdin.write("start\n")
        self.process.stdin.flush()
        self.pid = int(self._line())
        while True:
            with contextlib.suppress(*ENDED):
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            time.sleep(0.02)

    def kill(self) -> None:
        """End the server in the middle of whatever it does."""
        os.kill(self.pid, signal.SIGKILL)

    def cut(self, *, off: bool) -> None:
        """Take away the way to the database, or give it back."""
        route = [f"{DATABASE}/32"]
        way = ["blackhole", *route] if off else [*route, "via", OUTSIDE]
        command("ip", "-n", f"fairdial-{self.name}", "route", "replace", *way)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        """Send one request on a connection of its own."""
        connection = http.client.HTTPConnection(self.address, PORT, timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def close(self) -> None:
        """End everything on this host."""
        with contextlib.suppress(ProcessLookupError):
            self.kill()
        self.process.communicate()


def run_host(file: str, address: str) -> None:
    """Start a server for every line of the input: a copy of this process."""
    import uvicorn

    settings = Settings.from_json(Path(file).read_text("utf-8"))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            options = {"log_level": "critical", "access_log": False}
            uvicorn.run(make_app(settings), host=address, port=PORT, **options)
            os._exit(0)
        print(pid, flush=True)


# ---- the run -----------------------------------------------------------------------------------


class Run:
    """Clients of both hosts, and what they saw."""

    def __init__(self, hosts: Sequence[Host], requests: int, kills: int) -> None:
        self.hosts, self.requests, self.kills = hosts, requests, kills
        self.acknowledged: list[tuple[int, float]] = [(1, 0.1)]  # only added to
        self.counts: Counter[str] = Counter()
        self.seen: set[tuple[int, float]] = set()
        self.slowest = 0.0
        self._lock = threading.Lock()
        self.over = threading.Event()

    def move(self) -> None:
        """Change the dial, at one host and the other."""
        rng = random.Random(1)
        while not self.over.is_set():
            tolerance = rng.random()
            body = {"tolerance": tolerance, "reason": "benchmark"}
            status, answer = self._ask(rng.choice(self.hosts), "PUT", "/v1/dial", body)
            if status == 200:
                self.acknowledged.append((int(str(answer["version"])), tolerance))
                self._count("changes")
            elif status:
                self._count("changes refused (503)")
            else:
                self._count("changes without an answer")
            time.sleep(0.01)

    def look(self, seed: int) -> None:
        """Ask for decisions, and check the version of every answer."""
        rng = random.Random(seed)
        row = {"rows": [{"features": [0.3], "group": "group 0"}]}
        while not self.over.is_set():
            known = self.acknowledged[-1][0]
            status, answer = self._ask(rng.choice(self.hosts), "POST", "/v1/predict", row)
            if not status:
                self._count("requests to a killed server")
                time.sleep(0.005)
                continue
            if status != 200:
                self._count("requests refused (503)")
                continue
            self._count("decisions")
            version = int(str(answer["version"]))
            rows = answer["rows"]
            assert isinstance(rows, list)
            with self._lock:
                self.seen.add((version, float(rows[0]["tolerance"])))
            if version < known:
                self._count("stale answers")

    def _ask(
        self, host: Host, method: str, path: str, body: object
    ) -> tuple[int, dict[str, object]]:
        start = time.monotonic()
        try:
            status, answer = host.ask(method, path, body)
        except ENDED:
            return 0, {}
        if status not in (200, 503):
            self._count("answers of another kind")
            return status, answer
        with self._lock:
            self.slowest = max(self.slowest, time.monotonic() - start)
        return status, answer

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def disturb(self, cuts: bool) -> None:
        """Kill one server after the other; sometimes take the database away from a host."""
        rng = random.Random(2)
        turn = 0
        while self.counts["kills"] < self.kills or self.counts["decisions"] < self.requests:
            host = self.hosts[turn % 2]
            turn += 1
            if cuts and turn % 12 == 6:
                host.cut(off=True)
                time.sleep(CUT)
                host.cut(off=False)
                self._count("cuts")
            else:
                time.sleep(rng.uniform(0.3, 1.0))
                host.kill()
                self._count("kills")
                host.start()
        self.over.set()

    def run(self, cuts: bool) -> None:
        """Do all of it until enough decisions were made."""
        threads = [threading.Thread(target=self.look, args=(i,)) for i in range(4)]
        threads += [threading.Thread(target=self.move)]
        threads += [threading.Thread(target=self.disturb, args=(cuts,))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def verdicts(self, log: AuditLog) -> dict[str, int]:
        """Return what must be zero."""
        entries = {entry.version: entry.tolerance for entry in log.entries(10**6)}
        lost = [v for v, tolerance in self.acknowledged if entries.get(v) != tolerance]
        wrong = [pair for pair in self.seen if entries.get(pair[0]) != pair[1]]
        unknown = len(entries) - len(self.acknowledged)
        most = self.counts["changes without an answer"] + self.counts["changes refused (503)"]
        return {
            "answers of another kind than 200 and 503": self.counts["answers of another kind"],
            "answers with an older dial than was in effect": self.counts["stale answers"],
            "answers with a tolerance that the log doesn't have": len(wrong),
            "acknowledged changes that the log doesn't have": len(lost),
            "entries that nobody asked for": max(0, unknown - most),
            "altered entries, or gaps in their numbers": int(log.altered() is not None),
        }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=10_000, help="decisions, at least")
    parser.add_argument("--kills", type=int, default=30, help="at least")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--host", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.host:
        run_host(*given.host)
        return
    requests, kills = (300, 2) if given.quick else (given.requests, given.kills)
    os.environ["FAIRDIAL_TOKEN"] = TOKEN
    print(machine(("fairdial", "psycopg", "uvicorn")))
    sample = make_gaussian(4_000, random_state=0)
    model = FairBayes(LogisticRegression(), tolerance=0.1, calibration=0.5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(sample.X.to_numpy(), sample.y, sensitive_features=sample.groups)
    with (
        tempfile.TemporaryDirectory() as folder,
        networks() as apart,
        running(DATABASE if apart else "127.0.0.1") as database,
    ):
        model.save(Path(folder, "model"))
        hosts = []
        for place, name in enumerate(HOSTS):
            Path(folder, name).mkdir()
            settings = prepare(
                Path(folder, "model"),
                audit=database.url(),
                observed=Path(folder, name, "observed.sqlite"),
                read_only=False,
                tolerance=None,
                confidence=None,
                token_env="FAIRDIAL_TOKEN",
                open_observe=False,
                key=None,
                hosts=None,
                scratch=folder,
            )
            Path(folder, name, "settings.json").write_text(settings.to_json())
            address = f"10.213.0.{2 + place}" if apart else f"127.0.0.{2 + place}"
            hosts.append(Host(name, address, Path(folder, name, "settings.json"), apart))
        try:
            for host in hosts:
                host.start()
            run = Run(hosts, requests, kills)
            run.run(cuts=apart)
        finally:
            for host in hosts:
                host.close()
        log = AuditLog(database.url(), write=False)
        found = run.verdicts(log)
        log.close()
    where = "network namespaces" if apart else "loopback addresses"
    print(f"\nTwo servers on two {where}, one dial in PostgreSQL:\n")
    print(table(["what", "count"], [[what, f"{n:,}"] for what, n in sorted(run.counts.items())]))
    print("\nMust be zero:\n")
    lines = [[what, "<= 0", f"{n:,}", "miss" if n else "ok"] for what, n in found.items()]
    if apart:
        late = "ok" if run.slowest <= LIMIT + CUT else "miss"
        lines.append(["slowest answer", f"<= {LIMIT + CUT:g} s", f"{run.slowest:.1f} s", late])
    print(table(["what", "goal", "measured", "verdict"], lines))
    if any(found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
