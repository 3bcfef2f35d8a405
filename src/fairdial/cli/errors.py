"""Where errors and warnings end: one line on stderr, in the names of the command line.

The library names its arguments in backticks, as `` `random_state` `` or `` `min_count=30` ``. Here
they become the options of the command that runs: ``--seed``, ``--min-count 30``.
"""

from __future__ import annotations

import ast
import os
import shlex
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from fairdial.cli.output import visible
from fairdial.errors import (
    CannotCertifyError,
    DivergedError,
    FairdialError,
    FairdialWarning,
    InterruptedWarning,
    MissingExtraError,
    render,
)

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130  # exit codes
INPUT_WAS_FINE = (CannotCertifyError, DivergedError, MissingExtraError)
CONTEXT, DEBUG = "fairdial.context", "fairdial.debug"  # keys of click's meta
ALIASES = {  # argument of the library: parameters of commands that set it
    "X": ("data",),
    "control_features": ("control",),
    "criterion": ("criteria",),
    "false_negative": ("cost_fn",),
    "false_positive": ("cost_fp",),
    "folder": ("out",),
    "key": ("key_file",),
    "level": ("criteria",),
    "model": ("folder",),
    "path": ("data",),
    "pos_label": ("positive",),
    "random_state": ("seed",),
    "rate": ("criteria",),
    "sample_weight": ("weights",),
    "score": ("scores",),
    "sensitive_column": ("sensitive", "data"),
    "sensitive_features": ("sensitive", "data"),
    "group": ("sensitive", "data"),
    "weight": ("weights",),
    "trusted": ("trust",),
    "y": ("label",),
}

Name = Callable[[str, str], str | None]
F = TypeVar("F", bound=Callable[..., Any])


class Failure(click.ClickException):
    """An error that ends the program with a given exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(visible(message))
        self.exit_code = code  # type: ignore[misc]


def debug_option(command: F) -> F:
    """Add --debug, and remember the context of the command that runs."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[CONTEXT] = ctx
        if value:
            ctx.meta[DEBUG] = True

    return click.option(
        "--debug",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=remember,
        help="Show the traceback of an error.",
    )(command)


def failure(ctx: click.Context, error: Exception) -> Failure:
    """Return an error as click shows it: one line, after the traceback if --debug asks for it."""
    if ctx.meta.get(DEBUG):
        click.echo(traceback.format_exc(), err=True, nl=False)
    if not isinstance(error, (FairdialError, OSError)):
        return Failure(f"{type(error).__name__}: {error} (--debug shows the traceback)", FAILED)
    if isinstance(error, OSError):
        return Failure(str(error), FAILED)
    name = option_name(ctx.meta.get(CONTEXT, ctx))
    notes = (render(note, name) for note in getattr(error, "__notes__", ()))
    message = " ".join((error.render(name), *notes))
    code = FAILED if isinstance(error, INPUT_WAS_FINE) else WRONG_INPUT
    return Failure(message[:1].upper() + message[1:], code)


def option_name(ctx: click.Context) -> Name:
    """Return the function that names a library argument as this command does.

    Examples
    --------
    >>> import click
    >>> from fairdial.cli.errors import option_name
    >>> options = [click.Option(["--min-count"]), click.Option(["--trust"])]
    >>> command = click.Command("train", params=options)
    >>> name = option_name(click.Context(command))
    >>> name("min_count", "30"), name("trusted", "['a', 'b']"), name("cv", "")
    ('--min-count 30', '--trust a --trust b', None)
    """
    parameters = {str(parameter.name): parameter for parameter in ctx.command.params}

    def name(argument: str, value: str) -> str | None:
        known = [n for n in (argument, *ALIASES.get(argument, ())) if n in parameters]
        if argument not in known:  # several commands take groups by --sensitive, if at all
            known.sort(key=lambda n: not parameters[n].required)
        if not known:
            return None
        parameter = parameters[known[0]]
        if isinstance(parameter, click.Argument):
            return parameter.metavar or str(parameter.name).upper()
        option = max(parameter.opts, key=len)
        if value == "False" and parameter.secondary_opts:
            return max(parameter.secondary_opts, key=len)
        if not value or (isinstance(parameter, click.Option) and parameter.is_flag):
            return option
        if argument == "tolerance" and _is_default(ctx, "tolerance"):
            return f"the default tolerance {value}"
        values = ast.literal_eval(value) if argument == "trusted" else [value.strip(chr(39))]
        return " ".join(f"{option} {shlex.quote(one)}" for one in values)

    return name


def _is_default(ctx: click.Context, parameter: str) -> bool:
    source = ctx.get_parameter_source(parameter)
    return source in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show each warning once, as one line on stderr; interrupted training is an error."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        ctx = click.get_current_context(silent=True)
        text = " ".join(str(message).split())
        if ctx is not None:
            text = render(text, option_name(ctx))
        if text not in shown and not is_secondary_process():
            shown.add(text)
            click.echo(f"Warning: {visible(text)}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", FairdialWarning)
        warnings.simplefilter("error", InterruptedWarning)
        warnings.showwarning = show
        yield


def is_secondary_process() -> bool:
    """Return whether torchrun started this process beside another that reports."""
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return several and os.environ.get("RANK", "0") != "0"
