"""Options for what the page calls things, shared by the commands that make the page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])
Names = tuple[str | None, dict[str, str], tuple[str, str] | None]
MOST_ASKED = 12  # groups


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


def ask_names(groups: Sequence[Hashable], given: Names) -> Names:
    """Ask on a terminal for the names that are not given; an empty answer keeps the default.

    Parameters
    ----------
    groups : sequence
        The model's groups.
    given : tuple
        Name of the page, names of groups' members by group, and names of the labels.
    """
    name, people, labels = given
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return given

    def ask(text: str) -> str:
        answer = click.prompt(text, default="", show_default=False, err=True)
        return str(answer).strip()

    click.echo("What the page calls things; press Enter to keep the name in the data.", err=True)
    name = name or ask("Title, such as: Who gets a loan") or None
    if not people and len(groups) <= MOST_ASKED:
        answers = {str(group): ask(f"Members of group {group}, such as: women") for group in groups}
        people = {group: answer for group, answer in answers.items() if answer}
    if labels is None:
        negative = ask("Negative label, such as: defaulted")
        positive = ask("Positive label, such as: repaid") if negative else ""
        labels = (negative, positive) if negative and positive else None
    return name, people, labels
