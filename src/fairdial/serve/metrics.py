"""Figures for Prometheus. Processes that share a folder of counters answer for all of them.

Counters live in each process, or in files of ``PROMETHEUS_MULTIPROC_DIR`` where several serve. The
dial and what was observed are read from their files when they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


@dataclass(frozen=True)
class Gauge:
    """A figure that is read when it is asked for, by label values of its groups."""

    name: str
    help: str
    values: dict[str, float]  # by group; "" where there is none
    grouped: bool = False


class Metrics:
    """The server's figures.

    Parameters
    ----------
    read : callable
        Gives the gauges.
    """

    def __init__(self, read: Callable[[], Iterable[Gauge]]) -> None:
        self._registry = CollectorRegistry()
        shared = FOLDER in os.environ
        place = None if shared else self._registry
        self._requests = Counter(
            "fairdial_requests", "Requests.", ["path", "status"], registry=place
        )
        self._seconds = Histogram(
            "fairdial_request_seconds",
            "Seconds from a request's arrival to the end of its answer.",
            ["path"],
            buckets=SECONDS,
            registry=place,
        )
        self._decisions = Counter(
            "fairdial_decisions", "Decisions.", ["group", "label"], registry=place
        )
        if shared:
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        self._registry.register(_Gauges(read))
        self._known: dict[Any, Any] = {}

    def _child(self, metric: Any, *labels: str) -> Any:
        """A counter with its labels; finding it anew takes as long as counting."""
        key = id(metric), labels
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = metric.labels(*labels)
        return found

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._child(self._requests, path, str(status)).inc()
        self._child(self._seconds, path).observe(seconds)

    def decisions(self, group: str, label: str, count: int) -> None:
        """Count decisions."""
        self._child(self._decisions, group, label).inc(count)

    def text(self) -> bytes:
        """All figures, as Prometheus reads them."""
        return generate_latest(self._registry)


class _Gauges(Collector):
    """Gauges that are read when they are asked for."""

    def __init__(self, read: Callable[[], Iterable[Gauge]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Any]:
        return []  # nothing is read before somebody asks

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for gauge in self._read():
            family = GaugeMetricFamily(
                gauge.name, gauge.help, labels=["group"] if gauge.grouped else []
            )
            for group, value in gauge.values.items():
                family.add_metric([group] if gauge.grouped else [], value)
            yield family
