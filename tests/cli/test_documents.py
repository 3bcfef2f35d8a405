"""Commands in the documents run, print what the documents show, and use options that exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from fairdial.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
TEXTS = {path.name: path.read_text("utf-8") for path in DOCUMENTS}
LINES = [
    pytest.param(line, id=f"{name}: {line}")
    for name, text in TEXTS.items()
    for line in dict.fromkeys(re.findall(r"^(?:    |\$ )+(fairdial .*?)(?: +#.*)?$", text, re.M))
    if "..." not in line
]


def load_console() -> Any:
    spec = importlib.util.spec_from_file_location("console", ROOT / "scripts" / "console.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONSOLE = load_console()


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if "```console" in text])
def test_commands_print_what_the_document_shows(name: str) -> None:
    for step, fresh in CONSOLE.run_document(TEXTS[name]):
        printed = f"{step.command}\n" + "\n".join(fresh)
        assert len(fresh) == len(step.output), printed
        for line, known in zip(fresh, step.output, strict=True):
            assert CONSOLE.alike(line, known), printed


@pytest.mark.parametrize("line", LINES)
def test_commands_and_options_exist(line: str) -> None:
    arguments = shlex.split(line)[1:]
    command: click.Command | None = main
    context = click.Context(main)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        if name in COMMANDS and COMMANDS[name].extra is not None:
            return
        command = command.get_command(context, name)
    assert command is not None
    command.make_parser(context).parse_args(arguments)


@pytest.mark.parametrize(
    ("line", "other", "same"),
    [
        ("a 0.8612 b", "a  0.8620  b", True),
        ("a 0.86 b", "a 0.96 b", False),
        ("Trained in 3.1 s.", "Trained in 99.0 s.", True),
        ("1,204 rows", "1,250 rows", True),
        ("1,204 rows", "12,040 rows", False),
        ("up 0.5", "down 0.5", False),
    ],
)
def test_numbers_may_differ_a_little_between_machines(line: str, other: str, same: bool) -> None:
    assert CONSOLE.alike(line, other) is same
