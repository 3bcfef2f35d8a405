"""The command line: ``fairdial train``, ``dial``, ``predict`` and the rest.

Each command is a module of this package, imported when it is called; it imports what it needs of
the library when it runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import errno
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click

from fairdial._version import __version__
from fairdial.cli.errors import INTERRUPTED, debug_option, failure, warnings_as_lines
from fairdial.errors import (
    InterruptedWarning,
    MissingExtraError,
    install_command,
)
from fairdial.registry import load_plugin


class Command(NamedTuple):
    """The module and name of a command, its one-line help, and the extra that it needs."""

    place: str
    help: str
    extra: str | None = None


COMMANDS = {
    "plan": Command("fairdial.cli.plan:plan", "Plan the rows that a certificate needs."),
    "train": Command("fairdial.cli.train:train", "Train a model on a table."),
    "info": Command("fairdial.cli.info:info", "Describe a model."),
    "dial": Command("fairdial.cli.dial:dial", "Show what a tolerance does, and who is affected."),
    "predict": Command("fairdial.cli.predict:predict", "Decide on the rows of a table."),
    "calibrate": Command("fairdial.cli.calibrate:calibrate", "Recalibrate a model on new rows."),
    "evaluate": Command("fairdial.cli.evaluate:evaluate", "Measure decisions on labeled rows."),
    "monitor": Command("fairdial.cli.monitor:monitor", "Watch the gap in a log of decisions."),
    "serve": Command("fairdial.cli.serve:serve", "Serve a model over HTTP.", extra="serve"),
    "export": Command("fairdial.cli.export:export", "Export a model as an HTML page or as ONNX."),
    "report": Command("fairdial.cli.report:report", "Write an audit report for a regulator."),
    "bench": Command("fairdial.cli.bench:bench", "Run studies and write their reports."),
    "demo": Command("fairdial.cli.demo:demo", "Try the dial on Adult or COMPAS, in seconds."),
}


class Commands(click.Group):
    """A group whose commands are imported when they are called."""

    def __init__(self, *args: Any, lazy: dict[str, Command], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names, in the order in which a user needs them."""
        return list(self.lazy)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.lazy.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; one whose extra is missing raises when it is called."""
        known = self.lazy.get(cmd_name)
        if known is None:
            return None
        module, _, name = known.place.partition(":")
        try:
            found: click.Command = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if known.extra is None:
                raise
            return _unavailable(cmd_name, known.extra, str(error.name))
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; an unknown name is answered with the closest one."""
        name = args[0]
        if name not in self.lazy and not name.startswith("-"):
            close = get_close_matches(name, self.lazy, 1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors and warnings become one line each."""
        try:
            with warnings_as_lines():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (KeyboardInterrupt, InterruptedWarning):
            click.echo("Interrupted: nothing was written.", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of a pipe has gone: click ends quietly
            raise failure(ctx, error) from error


def _unavailable(name: str, extra: str, package: str) -> click.Command:
    """Return a command that names the extra it needs, whatever its arguments."""

    @click.command(name, context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("anything", nargs=-1, type=click.UNPROCESSED)
    def refuse(anything: tuple[str, ...]) -> None:  # noqa: ARG001
        raise MissingExtraError(f"fairdial {name} needs {package}: {install_command(extra)}.")

    return refuse


def _load_plugins(ctx: click.Context, _: click.Parameter, modules: tuple[str, ...]) -> None:
    try:
        for module in modules:
            load_plugin(module)
    except Exception as error:  # click calls this before the command, outside of invoke
        raise failure(ctx, error) from error


@click.group(cls=Commands, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairdial")
@click.option(
    "--plugin",
    multiple=True,
    metavar="MODULE",
    is_eager=True,
    expose_value=False,
    callback=_load_plugins,
    help="Import a module that registers your own methods or data sets; searched in the current "
    "folder too. Every command that loads such a model needs it; repeatable.",
)
@debug_option
def main() -> None:
    """Fair classification with a tolerance that you set after training.

    \b
    fairdial train people.csv --label income --positive ">50K" --sensitive sex \\
        --tolerance 0.05 --out model
    fairdial dial model --tolerance 0.05
    fairdial predict model new.csv --tolerance 0.05 --out decisions.csv

    Results go to stdout (with --json, as JSON), everything else to stderr. Exit codes: 0 success,
    1 failure, 2 invalid usage or input, 130 interrupted.
    """
