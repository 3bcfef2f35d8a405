"""Options that several commands share, and what a command tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from fairdial.cli.groups import take_debug
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

TABS = {"tab": "\t", "\\t": "\t"}  # as people type it

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
SENSITIVE = click.option(
    "--sensitive",
    multiple=True,
    metavar="COLUMN[,COLUMN]",
    help="Column that tells the group, of a model from Python that was given its groups as "
    "sensitive_features; several stand for their intersections. [default: that of training]",
)
DROP_MISSING = click.option(
    "--drop-missing",
    is_flag=True,
    help="Leave out rows without a group, or without a label where labels are used.",
)
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace what lies at --out.")


class Whole(click.IntRange):
    """A whole number between two others."""

    name = "whole number"


class Number(click.FloatRange):
    """A number in a range; NaN isn't."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or click's own words on why it isn't one."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


class Share(Number):
    """A number between two others; a percentage is answered with the share."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or why it isn't one."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from fairdial._validation import share_meant

            self.fail(f"{error.message}{share_meant(value)}", param, ctx)


class Criterion(click.Choice):  # type: ignore[type-arg]  # generic from click 8.2 on
    """The name of a criterion; another is answered with the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or which one was meant."""
        try:
            return str(super().convert(value, param, ctx))
        except click.BadParameter as error:
            from fairdial.criteria import criterion_meant

            told = criterion_meant(value, [str(name) for name in self.choices])
            self.fail(f"{error.message}{told}", param, ctx)


def tolerance(
    *, required: bool = False, told: str = "The largest gap that is wished for."
) -> Decorator:
    """The option --tolerance."""
    return click.option("--tolerance", type=Share(0, 1), required=required, help=told)


def certifies(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --confidence, and --simultaneous, which needs it."""

    @click.option(
        "--confidence",
        type=Share(0, 1, min_open=True, max_open=True),
        help="The gap on new rows is to be within the tolerance with this confidence, such as "
        "0.95; with two groups, for a tolerance decided on before looking at the figures.",
    )
    @click.option(
        "--simultaneous",
        is_flag=True,
        help="With --confidence: for a tolerance chosen after looking at the figures.",
    )
    @wraps(command)
    def wrapped(*args: Any, confidence: float | None, simultaneous: bool, **kwargs: Any) -> Any:
        if simultaneous and confidence is None:
            raise InvalidInputError("--simultaneous must come with --confidence.")
        return command(*args, confidence=confidence, simultaneous=simultaneous, **kwargs)

    return wrapped


class Form(NamedTuple):
    """How a CSV file is written; None is the usual way: commas, UTF-8, points in numbers."""

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None


def reads(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --separator, --encoding and --decimal; the command gets them as ``form``."""

    @click.option(
        "--separator",
        metavar="SIGN",
        callback=_one_sign,
        help="Sign between the columns of a CSV file, such as ';' or tab. [default: ,]",
    )
    @click.option(
        "--encoding",
        metavar="NAME",
        callback=_known_encoding,
        help="Of a CSV file, such as latin-1 or cp1252. [default: utf-8]",
    )
    @click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        help="Sign before the decimals of numbers in a CSV file. [default: .]",
    )
    @wraps(command)
    def wrapped(
        *args: Any,
        separator: str | None,
        encoding: str | None,
        decimal: str | None,
        **kwargs: Any,
    ) -> Any:
        if decimal is not None and decimal == (separator or ","):
            raise InvalidInputError(
                f"--decimal must be another sign than --separator, got {decimal!r} for both."
            )
        return command(*args, form=Form(separator, encoding, decimal), **kwargs)

    return wrapped


def _one_sign(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """A sign that can stand between columns."""
    sign = TABS.get(value, value) if value is not None else None
    if sign is not None and (len(sign) != 1 or sign.isalnum() or sign in "\"'\r\n."):
        raise InvalidInputError(f"--separator must be one sign, such as ';' or tab, got {value!r}.")
    return sign


def _known_encoding(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """An encoding of texts that Python knows."""
    if value is not None:
        try:
            "".encode(value)
        except (LookupError, ValueError):
            raise InvalidInputError(
                f"--encoding must be one that Python knows, such as latin-1, got {value!r}."
            ) from None
    return value


def tells(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --json, --quiet and --debug; the command gets them as ``show``."""

    @take_debug
    @click.option("--quiet", "-q", is_flag=True, help="No notes and no progress on stderr.")
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @wraps(command)
    def wrapped(*args: Any, as_json: bool, quiet: bool, **kwargs: Any) -> Any:
        return command(*args, show=Output(as_json, quiet), **kwargs)

    return wrapped
