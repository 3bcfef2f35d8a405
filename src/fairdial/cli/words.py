"""What the library says in Python's names, in those of the command line."""

from __future__ import annotations

import re

import click

PHRASES = (  # advice that names what no command has
    (" or lower `warm_epochs`", ""),
    (
        "leave their rows out, calibrate on more rows (`calibration=`, `cv=`), or lower "
        "`min_count`",
        "leave their rows out, or calibrate on more rows",
    ),
    (" (or give FairBayes an estimator of scikit-learn)", ""),
    ("recalibrate='group' repairs it", "training with --recalibrate repairs it"),
    ("recalibrate='group'", "--recalibrate"),
)
OTHERS = {  # a name of Python: the parameters of commands that it may be
    "X": ("data",),
    "folder": ("folder", "out"),
    "key": ("key_file",),
    "model": ("folder",),
    "path": ("data",),
    "pos_label": ("positive",),
    "random_state": ("seed",),
    "score": ("scores",),
    "sensitive_column": ("sensitive", "data"),
    "sensitive_features": ("sensitive", "data"),
    "y": ("label",),
}
QUOTED = re.compile(r"`(\w+)=?`")
SET = re.compile(r"(?<![-\w])(\w+)=(\w+)\b")


def in_options(text: str, command: click.Command | None) -> str:
    """A message in which arguments of Python are called as the command calls them.

    Examples
    --------
    >>> import click
    >>> from fairdial.cli.words import in_options
    >>> key = click.Option(["--key-file"])
    >>> in_options("`key` must have 16 bytes, got 3.", click.Command("dial", params=[key]))
    '--key-file must have 16 bytes, got 3.'
    """
    names = {} if command is None else dict(_name(parameter) for parameter in command.params)
    for old, new in PHRASES:
        text = text.replace(old, new)

    def called(found: re.Match[str]) -> str:
        for name in (found[1], *OTHERS.get(found[1], ())):
            if name in names:
                return names[name]
        return found[0]

    def given(found: re.Match[str]) -> str:
        option = names.get(found[1], "")
        if not option.startswith("--"):
            return found[0]
        return option if found[2] == "True" else f"{option} {found[2]}"

    return SET.sub(given, QUOTED.sub(called, text))


def _name(parameter: click.Parameter) -> tuple[str, str]:
    """A parameter's name in Python, and that which people type."""
    name = str(parameter.name)
    if isinstance(parameter, click.Argument):
        return name, parameter.metavar or name.upper()
    return name, max(parameter.opts, key=len)
