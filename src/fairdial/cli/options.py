"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from fairdial.cli.errors import debug_option
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError

Callback = Callable[..., Any]

TABS = {"tab": "\t", "\\t": "\t"}  # as people type it

MODEL = click.argument("folder", metavar="MODEL", type=click.Path(path_type=Path))
DATA = click.argument(
    "data", metavar="DATA", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
DATA_OR_FOLDER = click.argument(
    "data", metavar="DATA", type=click.Path(exists=True, path_type=Path)
)
LABEL = click.option(
    "--label", metavar="COLUMN", help="Label column. [default: the one used in training]"
)
KEY = click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the key that signs the model.",
)
TRUST = click.option(
    "--trust",
    multiple=True,
    metavar="TYPE",
    help="Also load objects of this type, which is not known to be safe; repeatable.",
)
SENSITIVE = click.option(
    "--sensitive",
    multiple=True,
    metavar="COLUMN[,COLUMN]",
    help="Group column, for a model trained in Python with sensitive_features=; several columns "
    "are combined into their intersections. [default: the one used in training]",
)
DROP_MISSING = click.option(
    "--drop-missing",
    is_flag=True,
    help="Leave out rows without a group, or without a label where labels are used.",
)
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace what exists at --out.")


class LogPlace(click.Path):
    """An audit log: a file, or the address of a PostgreSQL database."""

    name = "file or URL"

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(exists=exists, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a URL as it is, and anything else as a path."""
        if isinstance(value, str) and "://" in value:
            if value.startswith(("postgresql://", "postgres://")):
                return value
            self.fail(f"must be a file or begin with postgresql://, got {value!r}.", param, ctx)
        return super().convert(value, param, ctx)


class Integer(click.IntRange):
    """An integer in a range."""

    name = "integer"


class Number(click.FloatRange):
    """A number in a range, and not NaN."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return found


class Fraction(Number):
    """A number between 0 and 1; the error for a percentage names the fraction."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from fairdial._validation import fraction_hint

            name = (param and param.name) or ""
            self.fail(f"{error.message}{fraction_hint(value, name)}", param, ctx)


class Share(Fraction):
    """A share of the rows, or "auto"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or "auto"."""
        return value if value == "auto" else super().convert(value, param, ctx)


TOLERANCE = click.option(
    "--tolerance",
    type=Fraction(0, 1),
    help="Largest allowed gap between groups. [default: the model's default tolerance]",
)


def certifying(command: Callback) -> Callback:
    """Add --confidence and --simultaneous, which needs it."""

    @click.option(
        "--confidence",
        type=Fraction(0, 1, min_open=True, max_open=True),
        help="Keep the gap on new data within the tolerance with this confidence, such as 0.95. "
        "This holds for a tolerance chosen before looking at the results.",
    )
    @click.option(
        "--simultaneous",
        is_flag=True,
        help="With --confidence: also for a tolerance chosen after looking at the results.",
    )
    @wraps(command)
    def wrapped(*args: Any, confidence: float | None, simultaneous: bool, **kwargs: Any) -> Any:
        if simultaneous and confidence is None:
            raise InvalidInputError("simultaneous", "be used with `confidence`")
        return command(*args, confidence=confidence, simultaneous=simultaneous, **kwargs)

    return wrapped


class CsvFormat(NamedTuple):
    """How a CSV file is written; None stands for the default: commas, UTF-8, decimal points."""

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None


def reading_csv(command: Callback) -> Callback:
    """Add --separator, --encoding and --decimal; the command gets them as ``csv_format``."""

    @click.option(
        "--separator",
        metavar="CHAR",
        callback=_check_separator,
        help="Character between the columns of a CSV file, such as ';' or tab. [default: ,]",
    )
    @click.option(
        "--encoding",
        metavar="NAME",
        callback=_check_encoding,
        help="Encoding of a CSV file, such as latin-1 or cp1252. [default: utf-8]",
    )
    @click.option(
        "--decimal",
        type=click.Choice([".", ","]),
        help="Decimal point of the numbers in a CSV file. [default: .]",
    )
    @wraps(command)
    def wrapped(
        *args: Any, separator: str | None, encoding: str | None, decimal: str | None, **kwargs: Any
    ) -> Any:
        if decimal is not None and decimal == (separator or ","):
            raise InvalidInputError(
                "decimal", "differ from `separator`", given=f"{decimal!r} for both"
            )
        return command(*args, csv_format=CsvFormat(separator, encoding, decimal), **kwargs)

    return wrapped


def _check_separator(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    char = TABS.get(value, value) if value is not None else None
    if char is not None and (len(char) != 1 or char.isalnum() or char in "\"'\r\n."):
        raise InvalidInputError(
            "separator", "be one character, such as ';' or tab", given=repr(value)
        )
    return char


def _check_encoding(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            "".encode(value)
        except (LookupError, ValueError):
            raise InvalidInputError(
                "encoding", "be a text encoding, such as latin-1", given=repr(value)
            ) from None
    return value


def reporting(command: Callback) -> Callback:
    """Add --json, --quiet and --debug; the command gets an :class:`Output` as ``show``."""

    @debug_option
    @click.option("--quiet", "-q", is_flag=True, help="Print no notes and no progress.")
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @wraps(command)
    def wrapped(*args: Any, as_json: bool, quiet: bool, **kwargs: Any) -> Any:
        return command(*args, show=Output(as_json, quiet), **kwargs)

    return wrapped
