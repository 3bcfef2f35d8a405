"""Run the benchmarks, compare them with their goals and the last run, and write the record.

    python benchmarks/bench.py [--only NAME...] [--minutes 20] [--full] [--quick]

``make bench`` runs this. Each script runs at a size that fits into twenty minutes on two cores. Its
tables go into ``benchmarks/record.json`` and from there into ``docs/figures.md``; pages quote the
record (``scripts/quote.py``). Goals are judged by processor time. The run fails if a script fails,
or if a measured ratio is much worse than in the last record; missed goals are listed.

With ``--only`` the other entries of the record stay as they are. ``--quick`` checks that all
scripts work, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common import machine

from fairdial.bench.store import git_state

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "record.json"
PAGE = ROOT / "docs" / "figures.md"
PEERS = ROOT / ".venv-peers" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
WORSE = 1.3  # times the last run's ratio, from which a run fails
RATIO = re.compile(r"[+-]?([\d,]*\.?\d+)(x|%)$")  # other units depend on the machine
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Step:
    """A script, its arguments, and what it measures."""

    script: str
    title: str
    arguments: str = ""
    peers: bool = False

    @property
    def name(self) -> str:
        """Its name in the record and in quotes."""
        return self.script.removesuffix(".py")


STEPS = (
    Step("imports.py", "Import time", "--repeats 5"),
    Step("commands.py", "The command line on a million rows"),
    Step("groups.py", "Many groups, and a full sweep"),
    Step("train_step.py", "What a training step costs"),
    Step(
        "dial.py",
        "The dial compared with other libraries",
        "--rows 1e4 1e5 1e6 --budget 6",
        peers=True,
    ),
    Step(
        "criteria.py",
        "Equalized odds compared with other libraries",
        "--peer-repeats 1",
        peers=True,
    ),
    Step("forests.py", "Models as plain arrays", "--mutations 5000 --seconds 1"),
    Step("serve.py", "What the server answers", "--seconds 1 --rounds 3 --requests 3000"),
    Step("fleet.py", "Two hosts with one dial"),
    Step("coverage.py", "Does the tolerance hold on new data?", "--draws 100", peers=True),
    Step("monitoring.py", "Watching the gap", "--runs 20 --rows 200000"),
    Step("blind.py", "Blind dials", "--splits 3"),
    Step(
        "blind_peers.py",
        "Blind dials compared with other libraries",
        "--adult 0 --compas 8",
        peers=True,
    ),
    Step("overlap.py", "Overlapping groups"),
    Step("classes.py", "More than two classes", "--splits 2"),
    Step("brute_force.py", "The dial and brute force", "--cases 3000"),
    Step("parquet.py", "More rows than memory", "--repeats 1"),
    Step(
        "engines.py",
        "Decisions where the rows are",
        "--rows 1e6 --engines pyarrow polars DuckDB dask",
    ),
    Step("stacks.py", "Ten settings in one stack", "--epochs 3 --rounds 2"),
    Step("images.py", "ResNet-18 on pictures", "--repeats 3"),
    Step("page.py", "The page", "--rows 1e5 --moves 100"),
)


# ---- tables ------------------------------------------------------------------------------------


def parse(text: str) -> list[dict[str, Any]]:
    """Return the Markdown tables of a script's output, each with the line before it as title."""
    found: list[dict[str, Any]] = []
    title, lines = "", []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        if lines:
            found.append({"title": title, "head": lines[0], "lines": lines[2:]})
            lines, title = [], ""
        title = line.strip() or title
    return found


def goals_of(name: str, tables: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the goals of a script: lines of tables that end with goal, measured and verdict."""
    found = []
    for table in tables:
        if table["head"][-3:] != ["goal", "measured", "verdict"]:
            continue
        for *what, goal, measured, verdict in table["lines"]:
            found.append(
                {
                    "what": f"{name}: {', '.join(filter(None, what))}",
                    "goal": goal,
                    "measured": measured,
                    "verdict": verdict,
                }
            )
    return found


def ratio(text: str) -> float | None:
    """Return a measured ratio; None for a figure with another unit."""
    found = RATIO.match(text)
    return float(found[1].replace(",", "")) if found else None


def regressions(new: Sequence[dict[str, str]], old: Sequence[dict[str, str]]) -> list[str]:
    """Return the goals whose ratio is much worse than in the last run."""
    before = {goal["what"]: goal["measured"] for goal in old}
    found = []
    for goal in new:
        now, then = ratio(goal["measured"]), ratio(before.get(goal["what"], ""))
        if now is None or then is None:
            continue
        times = then / now if goal["goal"].startswith(">") else now / then
        if times > WORSE:
            found.append(f"{goal['what']}: {goal['measured']}, last time {before[goal['what']]}")
    return found


# ---- running -----------------------------------------------------------------------------------


def run(step: Step, *, quick: bool, full: bool) -> dict[str, Any]:
    """Run a script, and return its entry of the record; the entry has an error if it fails."""
    python = str(PEERS) if step.peers and PEERS.is_file() else sys.executable
    arguments = ["--quick"] if quick else [] if full else step.arguments.split()
    command = [python, str(ROOT / "benchmarks" / step.script), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True
    )
    entry: dict[str, Any] = {
        "command": " ".join(["python", f"benchmarks/{step.script}", *arguments]),
        "title": step.title,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": git_state(ROOT / "src").get("commit", "unknown"),
        "machine": machine(()),
        "peers": step.peers and PEERS.is_file(),
        "output": done.stdout.strip(),
        "tables": parse(done.stdout),
    }
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        entry["error"] = lines[-1]
    return entry


def run_all(
    steps: Sequence[Step], minutes: float, *, quick: bool, full: bool
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Run scripts while there is time; return their entries, and what failed or wasn't run."""
    found, problems, start = {}, [], time.perf_counter()
    for step in steps:
        if time.perf_counter() - start > 60 * minutes:
            problems.append(f"{step.name}: not run, {minutes:g} minutes are over")
            continue
        began = time.perf_counter()
        entry = run(step, quick=quick, full=full)
        took = time.perf_counter() - began
        if "error" in entry:
            problems.append(f"{step.name}: {entry['error']}")
        else:
            found[step.name] = entry
        print(f"{step.name}: {entry.get('error', 'done')}, {took:.0f} s", flush=True)
    return found, problems


def describe(goals: Sequence[dict[str, str]]) -> str:
    """Return the goals that are met and missed."""
    lines = []
    for verdict, what in (("ok", "met"), ("miss", "missed")):
        chosen = [goal for goal in goals if goal["verdict"] == verdict]
        lines.append(f"\n{len(chosen)} goals {what}:")
        lines += [f"  {g['what']}: {g['measured']} (goal {g['goal']})" for g in chosen]
    return "\n".join(lines)


# ---- the page ----------------------------------------------------------------------------------


def describe_entry(entry: dict[str, Any]) -> str:
    """Return a section of the page."""
    script = entry["command"].split()[1]
    output = entry["output"].removeprefix(entry["machine"]).strip()
    head = [f"## {entry['title']}: `{script}`", f"`{entry['command']}`"]
    return "\n\n".join([*head, output])


def write_page(record: dict[str, dict[str, Any]]) -> str:
    """Return the page of figures from a record."""
    runs: dict[tuple[str, str, str], list[str]] = {}
    for name, entry in record.items():
        key = entry["date"], entry["commit"], entry["machine"]
        runs.setdefault(key, []).append(name)
    made = "\n".join(
        f"- {', '.join(names)}: {date}, {commit if ' ' in commit else commit[:12]}, {where}"
        for (date, commit, where), names in runs.items()
    )
    goals = [goal for name, entry in record.items() for goal in entry_goals(name, entry)]
    lines = [
        f"| {g['what']} | {g['goal']} | {g['measured']} | {g['verdict']} |".replace("| |", "|  |")
        for g in goals
    ]
    table = "\n".join(["| result | goal | measured | verdict |", "|---|---|---|---|", *lines])
    sections = "\n\n".join(describe_entry(entry) for entry in record.values())
    return (
        "# Figures: speed, coverage and memory\n\n"
        "`make bench` runs the benchmarks and writes this page. Times are processor times; compare "
        "the ratios, because absolute\ntimes depend on the machine. "
        "[What each command measures](../benchmarks/README.md).\n\n"
        f"Measured (date, commit, machine):\n\n{made}\n\n## Goals\n\n{table}\n\n{sections}\n"
    )


def entry_goals(name: str, entry: dict[str, Any]) -> list[dict[str, str]]:
    """Return the goals in the output of one script."""
    return goals_of(name, entry["tables"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and write; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [step.name for step in STEPS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--minutes", type=float, default=20.0, help="no script starts after these")
    parser.add_argument("--full", action="store_true", help="run scripts at their own sizes")
    parser.add_argument("--quick", action="store_true", help="check that all scripts work")
    given = parser.parse_args(arguments)
    chosen = [step for step in STEPS if step.name in given.only]
    if any(step.peers for step in chosen) and not PEERS.is_file():
        print("The other libraries aren't installed (make peers): their columns stay empty.")
    found, problems = run_all(chosen, given.minutes, quick=given.quick, full=given.full)
    goals = [goal for name, entry in found.items() for goal in entry_goals(name, entry)]
    if not given.quick:
        print(describe(goals))
        old = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else {}
        last = [goal for name, entry in old.items() for goal in entry_goals(name, entry)]
        problems += [f"worse than before: {line}" for line in regressions(goals, last)]
        both = {**old, **found}
        record = {step.name: both[step.name] for step in STEPS if step.name in both}
        RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        PAGE.write_text(write_page(record), "utf-8")
        print("\nWrote benchmarks/record.json and docs/figures.md. Now fill in the pages:")
        print("  python scripts/quote.py README.md docs/*.md")
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
