"""Metrics for Prometheus.

Counters live in the process, or in files of ``PROMETHEUS_MULTIPROC_DIR`` if there are several
processes, so that each answers for all. Gauges of the dial and of the observations are read when
somebody asks for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """The server's metrics.

    Parameters
    ----------
    read : callable
        Returns the gauges.
    """

    def __init__(self, read: Callable[[], Iterable[GaugeMetricFamily]]) -> None:
        self._registry = CollectorRegistry()
        shared = FOLDER in os.environ
        registry = None if shared else self._registry
        self._requests = Counter(
            "fairdial_requests", "Requests.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "fairdial_request_seconds",
            "Seconds from the arrival of a request to the end of its answer.",
            ["path"],
            buckets=SECONDS,
            registry=registry,
        )
        self._decisions = Counter(
            "fairdial_decisions", "Decisions.", ["group", "label"], registry=registry
        )
        if shared:
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        self._registry.register(_Gauges(read))
        self._children: dict[tuple[int, tuple[str, ...]], Any] = {}

    def _child(self, metric: Any, *labels: str) -> Any:
        """Return a metric with its labels; cached, because the lookup takes as long as counting."""
        key = id(metric), labels
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = metric.labels(*labels)
        return found

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._child(self._requests, path, str(status)).inc()
        self._child(self._seconds, path).observe(seconds)

    def decisions(self, group: str, label: str, count: int) -> None:
        """Count decisions."""
        self._child(self._decisions, group, label).inc(count)

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self._registry)


class _Gauges(Collector):
    """Gauges that are read when somebody asks for them."""

    def __init__(self, read: Callable[[], Iterable[GaugeMetricFamily]]) -> None:
        self._read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return []  # read nothing at registration

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._read()
