"""Run the console blocks of a document and put their output into it.

    python scripts/console.py docs/cli.md

A block starts with ```` ```console ````; in it, lines with ``$`` are commands, run one after the
other in one temporary folder, and what follows is their output. A line of ``...`` stands for lines
that are left out. The tests run the same blocks and compare.
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
PROMPT, LEFT_OUT = "$ ", "..."
VARYING = re.compile(  # seconds, hashes, times
    r"\b\d+\.\d s\b|\b[0-9a-f]{64}\b|\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b"
)
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
SHARE, PART = 0.02, 0.2  # how far shares, and numbers above 1, may be apart elsewhere


class Step(NamedTuple):
    """A command, and the lines that it printed."""

    command: str
    output: list[str]


def steps_of(block: str) -> list[Step]:
    """The commands of a block."""
    found: list[Step] = []
    for line in block.splitlines():
        if line.startswith(PROMPT):
            found.append(Step(line.removeprefix(PROMPT), []))
        else:
            found[-1].output.append(line)
    return found


def run_command(command: str) -> list[str]:
    """What a command prints; it must succeed."""
    words = shlex.split(command)
    if words[0] == "fairdial" and not {"|", ">"} & set(words):
        done = CliRunner().invoke(fairdial, words[1:], prog_name="fairdial")
        code, text = done.exit_code, done.output
    else:
        ran = subprocess.run(command, shell=True, text=True, capture_output=True)
        code, text = ran.returncode, ran.stdout + ran.stderr
    if code != 0:
        raise RuntimeError(f"{command!r} ended with {code}: {text}")
    return [line.rstrip() for line in text.rstrip().splitlines()]


def shorten(fresh: Sequence[str], known: Sequence[str]) -> list[str]:
    """Leave out of new lines what was left out of the old ones."""
    if LEFT_OUT not in known:
        return list(fresh)
    before = known.index(LEFT_OUT)
    after = len(known) - before - 1
    return [*fresh[:before], LEFT_OUT, *fresh[len(fresh) - after :]]


def run_document(text: str) -> Iterator[tuple[Step, list[str]]]:
    """Each command with its old output, and what it prints now; in an empty folder."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for block in BLOCK.findall(text):
            for step in steps_of(block):
                yield step, shorten(run_command(step.command), step.output)


def alike(line: str, other: str) -> bool:
    """Whether two lines say the same: words as they are, numbers nearly."""
    one, two = (
        " ".join(re.sub("─+", "─", VARYING.sub("#", text)).split()) for text in (line, other)
    )
    if NUMBER.sub("#", one) != NUMBER.sub("#", two):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(two), strict=True)
    numbers = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(abs(a - b) <= (SHARE if abs(b) < 1 else PART * abs(b)) for a, b in numbers)


def rewrite(text: str) -> str:
    """The document with fresh output."""
    fresh = iter([(step.command, lines) for step, lines in run_document(text)])

    def replaced(found: re.Match[str]) -> str:
        lines: list[str] = []
        for _ in steps_of(found.group(1)):
            command, output = next(fresh)
            lines += [PROMPT + command, *output]
        return "```console\n" + "\n".join(lines) + "\n```"

    return BLOCK.sub(replaced, text)


def main() -> None:
    """Read the options and rewrite."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("document", type=Path)
    path = parser.parse_args().document
    half = path.with_name(f".{path.name}.part")
    half.write_text(rewrite(path.read_text("utf-8")), "utf-8")
    os.replace(half, path)


if __name__ == "__main__":
    main()
