"""Run the console blocks of a document, and update their output.

    python scripts/console.py docs/csv.md

A block starts with ```` ```console ````. Lines with ``$`` are commands, which run in order in a
temporary folder; their output follows. A line of ``...`` replaces omitted lines. The tests run the
same blocks and compare.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from fairdial.cli import main as fairdial

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPT, OMITTED = "$ ", "..."
VARYING = re.compile(  # seconds, hashes, times
    r"\b\d+\.\d s\b|\b[0-9a-f]{64}\b|\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b"
)
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
ABSOLUTE, RELATIVE = 0.02, 0.2  # allowed differences of numbers below and above 1


class Step(NamedTuple):
    """A command and its output."""

    command: str
    output: list[str]


def steps_of(block: str) -> list[Step]:
    """Return the commands of a block."""
    found: list[Step] = []
    for line in block.splitlines():
        if line.startswith(PROMPT):
            found.append(Step(line.removeprefix(PROMPT), []))
        else:
            found[-1].output.append(line)
    return found


def run_command(command: str) -> list[str]:
    """Return the output of a command, which must succeed."""
    parts = shlex.split(command)
    if parts[0] == "fairdial" and not {"|", ">"} & set(parts):
        done = CliRunner().invoke(fairdial, parts[1:], prog_name="fairdial")
        code, text = done.exit_code, done.output
    else:
        ran = subprocess.run(command, shell=True, text=True, capture_output=True)
        code, text = ran.returncode, ran.stdout + ran.stderr
    if code != 0:
        raise RuntimeError(f"{command!r} exited with {code}: {text}")
    return [line.rstrip() for line in text.rstrip().splitlines()]


def shorten(fresh: Sequence[str], known: Sequence[str]) -> list[str]:
    """Omit from the new lines what the old ones omit."""
    if OMITTED not in known:
        return list(fresh)
    before = known.index(OMITTED)
    after = len(known) - before - 1
    return [*fresh[:before], OMITTED, *fresh[len(fresh) - after :]]


def run_document(text: str) -> Iterator[tuple[Step, list[str]]]:
    """Yield each command with its old output and its new output, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for block in BLOCK.findall(text):
            for step in steps_of(block):
                yield step, shorten(run_command(step.command), step.output)


def alike(line: str, other: str) -> bool:
    """Return whether two lines have the same text and nearly the same numbers."""
    one, two = (
        " ".join(re.sub("─+", "─", VARYING.sub("#", text)).split()) for text in (line, other)
    )
    if NUMBER.sub("#", one) != NUMBER.sub("#", two):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(two), strict=True)
    numbers = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(abs(a - b) <= (ABSOLUTE if abs(b) < 1 else RELATIVE * abs(b)) for a, b in numbers)


def rewrite(text: str) -> str:
    """Return the document with new output."""
    fresh = iter([(step.command, lines) for step, lines in run_document(text)])

    def replaced(found: re.Match[str]) -> str:
        lines: list[str] = []
        for _ in steps_of(found.group(1)):
            command, output = next(fresh)
            lines += [PROMPT + command, *output]
        return "```console\n" + "\n".join(lines) + "\n```"

    return BLOCK.sub(replaced, text)


def main() -> None:
    """Parse the options and rewrite the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("document", type=Path)
    path = parser.parse_args().document
    part = path.with_name(f".{path.name}.part")
    part.write_text(rewrite(path.read_text("utf-8")), "utf-8")
    os.replace(part, path)


if __name__ == "__main__":
    main()
