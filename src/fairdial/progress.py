"""Progress of long-running work."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any, Protocol, Self


class Reporter(Protocol):
    """Receives the steps of long-running work."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def advance(self, record: dict[str, Any]) -> None:
        """Report a finished step and its figures."""


class Silent:
    """Shows no progress."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def advance(self, record: dict[str, Any]) -> None:
        """Do nothing."""


class Bar:
    """Shows a progress bar on stderr, with the latest figures and the remaining time."""

    def __init__(self, title: str, total: int, shown: tuple[str, ...]) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        figures = TextColumn("{task.fields[figures]}")
        self._bar = Progress(
            TextColumn(title),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            figures,
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(title, total=total, figures="")
        self._shown = shown

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, record: dict[str, Any]) -> None:
        """Advance by one step and show its figures."""
        figures = "  ".join(
            f"{name} {record[name]:.4f}"
            for name in self._shown
            if record.get(name) is not None and not math.isnan(record[name])
        )
        self._bar.update(self._task, advance=1, figures=figures)
