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
    ("no state of the dial has", "no position of the dial has"),
    (" is used and feasible is False", " is used"),
    (
        "; where the bins are too coarse for the scale of the scores, more `bits` or exact "
        "`tolerances=` take them apart",
        "",
    ),
)
OTHERS = {  # a name of Python: the parameters of commands that it may be, those required first
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
GAP = re.compile(r"\b([a-z]+)_([a-z]+) gap\b")  # of a criterion


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
    parameters = [] if command is None else command.params
    names = dict(map(_name, parameters))
    required = {parameter.name for parameter in parameters if parameter.required}
    for old, new in PHRASES:
        text = text.replace(old, new)

    def called(found: re.Match[str]) -> str:
        others = [name for name in OTHERS.get(found[1], ()) if name in names]
        others.sort(key=lambda name: name not in required)
        return names.get(found[1]) or next((names[name] for name in others), found[0])

    def given(found: re.Match[str]) -> str:
        option = names.get(found[1], "")
        if not option.startswith("--"):
            return found[0]
        return option if found[2] == "True" else f"{option} {found[2]}"

    return SET.sub(given, QUOTED.sub(called, GAP.sub(r"\1 \2 gap", text)))


def _name(parameter: click.Parameter) -> tuple[str, str]:
    """A parameter's name in Python, and that which people type."""
    name = str(parameter.name)
    if isinstance(parameter, click.Argument):
        return name, parameter.metavar or name.upper()
    return name, max(parameter.opts, key=len)
