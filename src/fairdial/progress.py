"""One small reporter for long work: the library tells it, a caller shows it."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any, Protocol, Self


class Reporter(Protocol):
    """What long work tells: how many steps there are, and what each brought."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def advance(self, record: dict[str, Any]) -> None:
        """One more step is done."""


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def advance(self, record: dict[str, Any]) -> None:
        """Shows nothing."""


class Bar:
    """A progress bar on stderr, with the latest figures and the time left."""

    def __init__(self, title: str, total: int, shown: tuple[str, ...]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Left

        figures = TextColumn("{task.fields[figures]}")
        self._bar = Progress(
            TextColumn(title),
            BarColumn(),
            MofNCompleteColumn(),
            Left(),
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
        """Move on by one and show the figures."""
        figures = "  ".join(
            f"{name} {record[name]:.4f}"
            for name in self._shown
            if record.get(name) is not None and not math.isnan(record[name])
        )
        self._bar.update(self._task, advance=1, figures=figures)
