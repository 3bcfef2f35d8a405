"""Options for what the page calls things, shared by the commands that make the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Return ``Female=women`` and others as a mapping; a group's name may contain an =."""
    found = {}
    for text in given:
        group, equals, people = (part.strip() for part in text.rpartition("="))
        if not (group and equals and people):
            raise click.BadParameter(f"must be like Female=women, got {text!r}.")
        found[group] = people
    return found


def _filled(
    _: click.Context, __: click.Parameter, given: tuple[str, str] | None
) -> tuple[str, str] | None:
    if given and not all(text.strip() for text in given):
        raise click.BadParameter("must be two texts, got an empty one.")
    return given


def page_names(command: Command) -> Command:
    """Add the options --name, --people and --label-names."""
    for option in (
        click.option(
            "--label-names",
            nargs=2,
            metavar="NEGATIVE POSITIVE",
            callback=_filled,
            help="What the page calls the labels; default: as in the training data.",
        ),
        click.option(
            "--people",
            multiple=True,
            metavar="GROUP=WORD",
            callback=_pairs,
            help="What the page calls a group's members: Female=women; repeatable.",
        ),
        click.option("--name", help="The page's title; default: the name of MODEL's folder."),
    ):
        command = option(command)
    return command
