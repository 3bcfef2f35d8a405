"""Options that several commands share, and what a command tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from fairdial.cli.groups import take_debug
from fairdial.cli.output import Output

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

MODEL = click.argument("folder", metavar="MODEL", type=click.Path(path_type=Path))
DATA = click.argument(
    "data", metavar="DATA", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
KEY = click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the key that the model is signed with.",
)
TRUST = click.option(
    "--trust",
    multiple=True,
    metavar="TYPE",
    help="A type of scikit-learn's objects that may be loaded besides those known to be harmless.",
)
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace what lies at --out.")


class Share(click.FloatRange):
    """A number between two others; NaN isn't."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or click's own words on why it isn't one."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


CONFIDENCE = click.option(
    "--confidence",
    type=Share(0, 1, min_open=True, max_open=True),
    help="The gap on new rows is to be within the tolerance with this confidence, such as 0.95.",
)


def tolerance(
    *, required: bool = False, told: str = "The largest gap that is wished for."
) -> Decorator:
    """The option --tolerance."""
    return click.option("--tolerance", type=Share(0, 1), required=required, help=told)


def tells(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --json, --quiet and --debug; the command gets them as ``show``."""

    @take_debug
    @click.option("--quiet", "-q", is_flag=True, help="No notes and no progress on stderr.")
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @wraps(command)
    def wrapped(*args: Any, as_json: bool, quiet: bool, **kwargs: Any) -> Any:
        return command(*args, show=Output(as_json, quiet), **kwargs)

    return wrapped
