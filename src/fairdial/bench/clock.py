"""Time the steps of a trial."""

from __future__ import annotations

import time


class Clock:
    """Wall-clock and processor seconds of the steps of a trial."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start()

    def _start(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def lap(self, name: str) -> None:
        """End a step."""
        self.seconds[name] = time.perf_counter() - self._wall
        self.seconds[f"{name}_cpu"] = time.process_time() - self._cpu
        self._start()
