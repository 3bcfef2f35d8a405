"""What the page calls things: options of the commands that make it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import click

from fairdial.errors import InvalidInputError


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """``Female=women`` and others as a mapping; a group's name may have an = in it."""
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


def names(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --name, --people and --label-names."""
    for option in (
        click.option(
            "--label-names",
            nargs=2,
            metavar="NEGATIVE POSITIVE",
            callback=_filled,
            help="What the labels are called on the page; default: as in the training data.",
        ),
        click.option(
            "--people",
            multiple=True,
            metavar="GROUP=WORD",
            callback=_pairs,
            help="What a group's members are called on the page: Female=women; repeatable.",
        ),
        click.option("--name", help="The page's title; default: the name of MODEL's folder."),
    ):
        command = option(command)
    return command


def people_of(groups: Iterable[Hashable], people: Mapping[str, str]) -> dict[Hashable, str]:
    """What members are called, by group rather than by the text that names it.

    Examples
    --------
    >>> from fairdial.serve.naming import people_of
    >>> people_of((0, 1), {"1": "women"})
    {1: 'women'}
    """
    by_text = {str(group): group for group in groups}
    unknown = [name for name in people if name not in by_text]
    if unknown:
        raise InvalidInputError(
            f"`people` must name groups among {', '.join(by_text)}, got {unknown[0]!r}."
        )
    return {by_text[name]: word for name, word in people.items()}
