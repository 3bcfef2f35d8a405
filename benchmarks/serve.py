"""Measure requests per second and costs of the model server, beside a bare ping.

    python benchmarks/serve.py [--seconds 3] [--rounds 5] [--requests 100000] [--quick]

The server runs in its own process (one worker), the client in this one: closed loops on keep-alive
connections over the loopback interface. Pings, single rows and batches alternate. Models are
trained on Adult; tests/serve/ checks the answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from common import machine, table
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fairdial import GFB, FairBayes, Network, TableEncoder
from fairdial.datasets import load_adult

PACKAGES = ("fairdial", "fastapi", "uvicorn", "pydantic", "scikit-learn", "torch")
CONNECTIONS = 8
BATCH = 100
SHARE, SPREAD, GAIN, GROWTH = 0.25, 10.0, 20.0, 0.02  # goals
START = 120.0  # seconds
SERVER = "from fairdial.cli import main; main()"
KB = 1024


# ---- the server --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A running server."""

    host: str
    port: int
    pid: int

    @property
    def cpu(self) -> float:
        """CPU seconds used so far."""
        parts = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        """Resident memory in megabytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / KB
        raise RuntimeError("no VmRSS")


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve the model in a folder on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, "serve", str(folder), "--port", "0"],
        env={**os.environ, "FAIRDIAL_TOKEN": secrets.token_hex(), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "http://" in line:
                break
        address = urlsplit(lines[-1].rpartition(" ")[2].strip())
        if address.hostname is None or address.port is None:
            raise RuntimeError("".join(lines))
        server = Server(address.hostname, address.port, process.pid)
        wait(server)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def wait(server: Server) -> None:
    """Wait until the server answers."""
    until = time.monotonic() + START
    while True:
        try:
            run(server, request("GET", "/healthz"), 1, connections=1)
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


# ---- the client --------------------------------------------------------------------------------


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """Return a request as bytes."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class Run:
    """The results of a closed loop."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.latencies) / self.seconds

    def quantile(self, q: float) -> float:
        """Return a quantile of the latencies in milliseconds."""
        ordered = sorted(self.latencies)
        return 1e3 * ordered[min(int(q * len(ordered)), len(ordered) - 1)]


class Loop(asyncio.Protocol):
    """Sends the same request again when it is answered."""

    def __init__(self, wire: bytes, left: list[int], until: float, seen: list[float]) -> None:
        self._wire, self._left, self._until, self._seen = wire, left, until, seen
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer, self._sent = b"", 0.0

    def connection_made(self, transport: Any) -> None:
        """Send the first request."""
        self._transport = transport
        self._send()

    def _send(self) -> None:
        if self._left[0] <= 0 or time.perf_counter() > self._until:
            self._transport.close()
            return
        self._left[0] -= 1
        self._sent = time.perf_counter()
        self._transport.write(self._wire)

    def data_received(self, data: bytes) -> None:
        """Read the answer, and send the next request."""
        self._buffer += data
        head, gap, rest = self._buffer.partition(b"\r\n\r\n")
        if not gap:
            return
        lower = head.lower()
        size = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) < size:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.ended.set_exception(RuntimeError(self._buffer.decode()))
            self._transport.close()
            return
        self._seen.append(time.perf_counter() - self._sent)
        self._buffer = b""
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """Finish the loop."""
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)


def run(
    server: Server,
    wire: bytes,
    most: int,
    *,
    seconds: float = 3600.0,
    connections: int = CONNECTIONS,
) -> Run:
    """Send requests until the number or the time is reached."""

    async def loops() -> Run:
        seen: list[float] = []
        left = [most]
        cpu, start = server.cpu, time.perf_counter()
        made = [
            await asyncio.get_running_loop().create_connection(
                lambda: Loop(wire, left, start + seconds, seen), server.host, server.port
            )
            for _ in range(connections)
        ]
        await asyncio.gather(*(protocol.ended for _, protocol in made))
        return Run(time.perf_counter() - start, seen, server.cpu - cpu)

    return asyncio.run(loops())


# ---- models ------------------------------------------------------------------------------------


def models(folder: Path, *, quick: bool) -> dict[str, Path]:
    """Train and save models, and return their folders by name."""
    train, _ = load_adult().split(test_size=0.2, random_state=0)
    network = Network(epochs=1 if quick else 5)
    made = {
        "GFB, network": GFB(network=network, random_state=0),
        "FairBayes, logistic regression": FairBayes(
            make_pipeline(TableEncoder(), LogisticRegression(max_iter=1000)), random_state=0
        ),
        "FairBayes, gradient boosting": FairBayes(
            make_pipeline(TableEncoder(n_bins=0), HistGradientBoostingClassifier(random_state=0)),
            random_state=0,
        ),
    }
    if quick:
        del made["GFB, network"], made["FairBayes, gradient boosting"]
    places = {}
    for number, (name, model) in enumerate(made.items()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(train.X, train.y, sensitive_features=train.groups)
        places[name] = folder / f"model{number}"
        model.save(places[name])
    return places


def bodies() -> tuple[bytes, bytes]:
    """Return the bodies of a request for one row and for a batch."""
    _, test = load_adult().split(test_size=0.2, random_state=0)
    records = json.loads(test.X.iloc[:BATCH].to_json(orient="records"))
    rows = [
        {"features": features, "group": str(group)}
        for features, group in zip(records, test.groups, strict=False)
    ]
    return json.dumps({"rows": rows[:1]}).encode(), json.dumps({"rows": rows}).encode()


# ---- results -----------------------------------------------------------------------------------


@dataclass
class Results:
    """The runs of each kind of request."""

    runs: dict[str, list[Run]] = field(default_factory=dict)

    def rate(self, kind: str) -> float:
        """Return the median requests per second."""
        return statistics.median(run.rate for run in self.runs[kind])

    def cost(self, kind: str) -> float:
        """Return the server's CPU microseconds per request."""
        runs = self.runs[kind]
        return 1e6 * sum(r.cpu for r in runs) / sum(len(r.latencies) for r in runs)

    def quantile(self, kind: str, q: float) -> float:
        """Return the median over runs of a quantile of latencies, in milliseconds."""
        return statistics.median(run.quantile(q) for run in self.runs[kind])


def measure(server: Server, wires: dict[str, bytes], seconds: float, rounds: int) -> Results:
    """Measure all kinds of requests in turn."""
    results = Results({kind: [] for kind in wires})
    for wire in wires.values():
        run(server, wire, CONNECTIONS * 5)  # warms up
    for _ in range(rounds):
        for kind, wire in wires.items():
            results.runs[kind].append(run(server, wire, 1 << 30, seconds=seconds))
    return results


def verdict(good: bool) -> str:
    """Return whether a goal is met, as text."""
    return "ok" if good else "miss"


def report(seconds: float, rounds: int, requests: int, *, quick: bool) -> None:
    """Measure, and print the results."""
    print(machine(PACKAGES))
    one, batch = bodies()
    wires = {
        "ping": request("GET", "/healthz"),
        "one row": request("POST", "/v1/predict", one),
        f"{BATCH} rows": request("POST", "/v1/predict", batch),
    }
    lines, goals = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, place in models(Path(folder), quick=quick).items():
            with serving(place) as server:
                results = measure(server, wires, seconds, rounds)
                lines += [
                    [
                        name,
                        kind,
                        f"{results.rate(kind):,.0f}",
                        f"{results.cost(kind):,.0f}",
                        f"{results.quantile(kind, 0.5):.2f}",
                        f"{results.quantile(kind, 0.99):.2f}",
                    ]
                    for kind in wires
                ]
                share = results.cost("ping") / results.cost("one row")
                spread = results.quantile("one row", 0.99) / results.quantile("one row", 0.5)
                gain = BATCH * results.cost("one row") / results.cost(f"{BATCH} rows")
                goals += [
                    [name, "a ping against one row, CPU time", f">= {SHARE:.0%}", f"{share:.0%}",
                     verdict(share >= SHARE)],
                    [name, "one row, p99 against p50", f"<= {SPREAD:g}x", f"{spread:.1f}x",
                     verdict(spread <= SPREAD)],
                    [name, f"rows per CPU second, {BATCH} at once against one", f">= {GAIN:g}x",
                     f"{gain:.0f}x", verdict(gain >= GAIN)],
                ]  # fmt: skip
                before = server.memory
                run(server, wires["one row"], requests)
                after = server.memory
                growth = after / before - 1
                goals.append(
                    [name, f"memory over {requests:,} requests", f"<= +{GROWTH:.0%}",
                     f"{before:.0f} to {after:.0f} MB ({growth:+.1%})", verdict(growth <= GROWTH)]
                )  # fmt: skip
    print(
        f"\nOne worker, {CONNECTIONS} connections, {rounds} rounds of {seconds:g} s of each kind "
        "in turn; medians of the rounds. CPU is the server's.\n"
    )
    head = ["model", "request", "requests/s", "CPU us per request", "p50 ms", "p99 ms"]
    print(table(head, lines))
    print("\nGoals:\n")
    print(table(["model", "result", "goal", "measured", "verdict"], goals))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per round and kind")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--requests", type=int, default=100_000, help="requests for the memory test"
    )
    parser.add_argument("--quick", action="store_true", help="one model, short rounds")
    given = parser.parse_args(arguments)
    if given.quick:
        print("A quick run checks that the script works; its numbers mean nothing.\n")
        report(0.1, 1, 100, quick=True)
    else:
        report(given.seconds, given.rounds, given.requests, quick=False)


if __name__ == "__main__":
    main()
