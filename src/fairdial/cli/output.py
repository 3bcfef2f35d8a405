"""What a command tells: its result on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

WIDE = 1000  # columns: nothing is cut


@dataclass
class Output:
    """Where results, notes and progress go.

    Attributes
    ----------
    as_json : bool
        The result is printed as JSON.
    quiet : bool
        No notes, no progress.
    silent : bool
        Nothing at all: another process speaks for this one.
    """

    as_json: bool
    quiet: bool
    silent: bool = False

    @property
    def progress(self) -> bool:
        """Whether bars are to be drawn: on a terminal only."""
        return not self.quiet and not self.silent and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Something worth knowing that isn't the result."""
        if not self.quiet and not self.silent:
            click.echo(text, err=True)

    def result(self, data: Any, *parts: Any) -> None:
        """The result: as JSON, or as texts and tables."""
        if self.silent:
            return
        if self.as_json:
            click.echo(json.dumps(data, indent=2, allow_nan=False))
            return
        for part in parts:
            click.echo(part if isinstance(part, str) else _drawn(part))


def _drawn(part: Any) -> str:
    """A table as text; with colours on a terminal only."""
    from rich.console import Console

    console = Console(width=WIDE, highlight=False, markup=False, emoji=False)
    with console.capture() as caught:
        console.print(part)
    return "\n".join(line.rstrip() for line in caught.get().rstrip().splitlines())


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Any:
    """A table of cells; the first column is aligned to the left, figures to the right."""
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(head):
        drawn.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
    for line in lines:
        drawn.add_row(*line)
    return drawn
