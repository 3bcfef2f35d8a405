"""What a command prints, and the files that it writes."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import click

from fairdial._files import replacing
from fairdial.errors import InvalidInputError, MissingExtraError, install_command

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

CSV, PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")
STDOUT = Path("-")
WIDE = 1000  # columns: nothing is cut
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\N{LEFT-TO-RIGHT EMBEDDING}-\N{RIGHT-TO-LEFT OVERRIDE}"
    "\N{LEFT-TO-RIGHT ISOLATE}-\N{POP DIRECTIONAL ISOLATE}]"
)

Data = Mapping[str, Any]  # whatever JSON can hold


@dataclass
class Output:
    """Print results to stdout, and notes and progress to stderr.

    Attributes
    ----------
    as_json : bool
        Print the result as JSON.
    quiet : bool
        Print no notes and no progress.
    silent : bool
        Print nothing at all: another process reports.
    """

    as_json: bool
    quiet: bool
    silent: bool = False

    @property
    def progress(self) -> bool:
        """Whether to draw progress bars: on a terminal only."""
        return not self.quiet and not self.silent and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Print something worth knowing that isn't the result."""
        if not self.quiet and not self.silent:
            click.echo(visible(text), err=True)

    def result(self, data: Data, *parts: str | Table) -> None:
        """Print the result, as JSON or as texts and tables."""
        if self.silent:
            return
        if self.as_json:
            click.echo(json.dumps(data, indent=2, allow_nan=False))
            return
        for part in parts:
            click.echo(visible(part) if isinstance(part, str) else _draw(part))


def visible(text: str) -> str:
    """Return text in which characters that control terminals are written as escapes.

    Examples
    --------
    >>> from fairdial.cli.output import visible
    >>> visible("one\\x1b[2J")
    'one\\\\x1b[2J'
    """
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def table(head: Sequence[str], lines: Sequence[Sequence[str]], *, note: bool = False) -> Table:
    """Return a table: the first column aligned to the left, numbers to the right.

    With ``note`` the last column is text, too.
    """
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    left = {0, len(head) - 1} if note else {0}
    for i, name in enumerate(map(visible, head)):
        drawn.add_column(name, justify="left" if i in left else "right", no_wrap=True)
    for line in lines:
        drawn.add_row(*map(visible, line))
    return drawn


def _draw(drawn: Table) -> str:
    """Return a table as text, with colors on a terminal only."""
    from rich.console import Console

    console = Console(width=WIDE, highlight=False, markup=False, emoji=False)
    with console.capture() as caught:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in caught.get().rstrip().splitlines())


# ---- files -------------------------------------------------------------------------------------


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, by its name."""
    return path.name.lower().endswith(PARQUET)


def check_writable(path: Path, overwrite: bool, argument: str = "out") -> None:
    """Refuse a path that exists, unless it may be replaced, or whose folder isn't writable."""
    if os.path.lexists(path) and not overwrite:
        raise InvalidInputError(
            argument,
            "be a new path",
            given=f"{path}, which exists",
            hint="`overwrite=True` replaces it.",
        )
    if not path.parent.is_dir():
        raise InvalidInputError(argument, "lie in an existing folder", given=path)
    try:
        os.rmdir(mkdtemp(prefix=".", dir=path.parent))
    except OSError as error:
        raise InvalidInputError(
            argument, "lie in a writable folder", given=f"{path} ({error.strerror})"
        ) from error


def check_table_path(path: Path) -> None:
    """Refuse a file name that doesn't say which kind of table to write."""
    if not path.name.lower().endswith((*CSV, *PARQUET)):
        raise InvalidInputError(
            "out", f"end in {', '.join((*CSV, *PARQUET))}", given=repr(path.name)
        )


def write_table(frame: pd.DataFrame, path: Path, *, overwrite: bool) -> None:
    """Write a table as CSV or Parquet; "-" is CSV on stdout."""
    if path == STDOUT:
        frame.to_csv(sys.stdout, index=False)
        return
    check_writable(path, overwrite)
    try:
        if is_parquet(path):
            write_files({path: lambda part: frame.to_parquet(part, index=False)})
        else:
            packed = "gzip" if path.suffix.lower() == ".gz" else None
            write_files({path: lambda part: frame.to_csv(part, index=False, compression=packed)})
    except ImportError as error:
        raise MissingExtraError(
            f"{path.name} needs pyarrow: {install_command('large')}."
        ) from error


def write_files(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Write all files or none: each goes under a temporary name first."""
    with ExitStack() as parts:
        for path, write in writers.items():
            write(Path(parts.enter_context(replacing(path)).name))
