"""The group of all commands: loaded when they are called, and the one place where errors end."""

from __future__ import annotations

import errno
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click

from fairdial.cli.words import in_options
from fairdial.errors import (
    CannotCertifyError,
    DivergedError,
    FairdialError,
    FairdialWarning,
    InterruptedWarning,
    MissingExtraError,
    say_install,
)

FAILED, WRONG, INTERRUPTED = 1, 2, 130
OWN_FAULT = (CannotCertifyError, DivergedError, MissingExtraError)  # the input was as it must be
DEBUG = "fairdial.debug"

F = TypeVar("F", bound=Callable[..., Any])


class Command(NamedTuple):
    """Where a command is, what it does in a line, and the extra that it needs."""

    place: str
    help: str
    extra: str | None = None


class Commands(click.Group):
    """Commands that are imported when they are called."""

    def __init__(self, *args: Any, lazy: dict[str, Command], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names, in the order in which they are needed."""
        return list(self.lazy)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.lazy.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; one whose libraries are missing says so when it is called."""
        known = self.lazy.get(cmd_name)
        if known is None:
            return None
        module, _, name = known.place.partition(":")
        try:
            found: click.Command = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if known.extra is None:
                raise
            return _missing(cmd_name, known.extra, error)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is asked for; for a name that is none, the nearest one is named."""
        name = args[0]
        if name not in self.lazy and not name.startswith("-"):
            near = get_close_matches(name, self.lazy, 1)
            told = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{name}'.{told}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors become one line, warnings a line each."""
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (KeyboardInterrupt, InterruptedWarning):
            click.echo("Interrupted: nothing was written.", err=True)
            ctx.exit(INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever reads has had enough
                raise
            raise _failure(ctx, error, FAILED) from error
        except Exception as error:
            own = isinstance(error, OWN_FAULT) or not isinstance(error, FairdialError)
            raise _failure(ctx, error, FAILED if own else WRONG) from error


class Failure(click.ClickException):
    """An error that ends the program with a code of its own."""

    def __init__(self, told: str, code: int) -> None:
        super().__init__(told)
        self.exit_code = code  # type: ignore[misc]


def take_debug(command: F) -> F:
    """The option --debug: whoever catches an error asks the context for it."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[DEBUG] = True

    return click.option(
        "--debug",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=remember,
        help="Show where in the program an error came from.",
    )(command)


def speaks_another() -> bool:
    """Whether this is one of several processes of torchrun, and not the first."""
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return several and os.environ.get("RANK", "0") != "0"


def _failure(ctx: click.Context, error: Exception, code: int) -> click.ClickException:
    """An error as click shows it: one line, and before it the traceback if that is wished."""
    if ctx.meta.get(DEBUG):
        click.echo(traceback.format_exc(), err=True, nl=False)
    name = ctx.invoked_subcommand
    asked = (
        ctx.command.get_command(ctx, name) if isinstance(ctx.command, Commands) and name else None
    )
    told = in_options(str(error), asked)
    if not isinstance(error, (FairdialError, OSError)):
        told = f"{type(error).__name__}: {error} (--debug shows where)"
    return Failure(told, code)


def _missing(name: str, extra: str, error: ModuleNotFoundError) -> click.Command:
    """A command that says which extra it needs, whatever its arguments."""
    told = f"`fairdial {name}` needs {error.name}: {say_install(extra)}."

    @click.command(
        name,
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
    )
    @click.argument("anything", nargs=-1, type=click.UNPROCESSED)
    def refuse(anything: tuple[str, ...]) -> None:  # noqa: ARG001
        raise MissingExtraError(told)

    return refuse


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Every warning is one line on stderr, told once; an interrupted training is an error."""
    told: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        asked = click.get_current_context(silent=True)
        text = in_options(" ".join(str(message).split()), asked.command if asked else None)
        if text not in told and not speaks_another():
            told.add(text)
            click.echo(f"Warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", FairdialWarning)
        warnings.simplefilter("error", InterruptedWarning)
        warnings.showwarning = show
        yield
