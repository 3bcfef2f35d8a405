"""Shared by the benchmarks: CPU time, tables, the machine, and rows of a known law."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from fairdial.bench.store import command_line, environment
from fairdial.datasets import GaussianLaw

Floats = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]

TWO_GROUPS = GaussianLaw()


def machine(packages: Iterable[str]) -> str:
    """Return the processor, the system, and the versions of Python and packages."""
    parts = [_processor(), platform.system(), f"Python {platform.python_version()}"]
    for name in packages:
        try:
            parts.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            parts.append(f"{name} not installed")
    return ", ".join(parts)


def _processor() -> str:
    table = Path("/proc/cpuinfo")
    if table.is_file():
        for line in table.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Timing:
    """The minimum CPU time of several runs, in seconds."""

    seconds: float
    runs: int

    @property
    def cell(self) -> str:
        """Milliseconds for a table, with a note if there was only one run."""
        return milliseconds(self.seconds) + (" (1 run)" if self.runs == 1 else "")


def cpu_time(call: Callable[[], Any], repeats: int, budget: float = math.inf) -> Timing:
    """Return the minimum CPU time of up to ``repeats`` runs, within ``budget`` seconds."""
    best, used, runs = math.inf, 0.0, 0
    while runs < repeats and (runs == 0 or used < budget):
        start = time.process_time()
        call()
        took = time.process_time() - start
        best, used, runs = min(best, took), used + took, runs + 1
    return Timing(best, runs)


def milliseconds(seconds: float) -> str:
    """Return milliseconds with three digits, or all integer digits if there are more."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return an aligned Markdown table."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *lines, strict=True)]
    rule = ["-" * width for width in widths]
    padded = [
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        for line in (head, rule, *lines)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


class Report:
    """Print tables, and keep them for a record.

    Attributes
    ----------
    tables : dict
        Lines of each table by its title, as dicts by column.
    """

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, str]]] = {}

    def show(self, title: str, head: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
        """Print a table under its title."""
        found = list(lines)
        print(f"\n{title}\n\n{table(head, found)}", flush=True)
        self.tables[title] = [dict(zip(head, line, strict=True)) for line in found]

    def write(self, path: Path, packages: Iterable[str]) -> None:
        """Store the tables as JSON, with the command, the commit, the machine and the date."""
        record = {
            "command": command_line(),
            "date": datetime.now(UTC).date().isoformat(),
            "environment": environment(),
            "machine": machine(packages),
            "tables": self.tables,
        }
        path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


@dataclass(frozen=True)
class Goal:
    """A result and its goal."""

    what: str
    goal: str
    value: str
    verdict: str


def at_least(what: str, value: float | None, goal: float, unit: str = "x") -> Goal:
    """Return a goal for a speedup or another large number; None if it wasn't measured."""
    if value is None:
        return Goal(what, f">= {goal:,g}{unit}", "not measured", "-")
    shown = f"{value:,.1f}{unit}" if value >= 10 else f"{value:.3g}{unit}"
    return Goal(what, f">= {goal:,g}{unit}", shown, "ok" if value >= goal else "miss")


def at_most(what: str, value: float, goal: float, unit: str = "x") -> Goal:
    """Return a goal for a time or a ratio that should stay small."""
    verdict = "ok" if value <= goal else "miss"
    return Goal(what, f"<= {goal:g}{unit}", f"{value:.3g}{unit}", verdict)


def show_goals(goals: Sequence[Goal], title: str = "Goals:") -> None:
    """Print goals, with the columns that ``bench.py`` reads."""
    lines = [[g.what, g.goal, g.value, g.verdict] for g in goals]
    print(f"\n{title}\n\n{table(['result', 'goal', 'measured', 'verdict'], lines)}", flush=True)


@dataclass(frozen=True)
class Rows:
    """Scored rows: true log-odds, group codes and labels."""

    logits: Floats
    groups: Integers
    y: Integers

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def probabilities(self) -> Floats:
        """The probability (n,) of a label of 1."""
        return np.asarray(expit(self.logits), np.float64)


def draw(law: GaussianLaw, n: int, rng: np.random.Generator) -> Rows:
    """Draw rows of the law with their true log-odds; groups and labels are int8."""
    groups = rng.choice(len(law.shares), size=n, p=law.shares).astype(np.int8)
    y = (rng.random(n) < np.take(law.base_rates, groups)).astype(np.int8)
    return Rows(log_odds(law, groups, y, rng), groups, y)


def log_odds(law: GaussianLaw, groups: Integers, y: Integers, rng: np.random.Generator) -> Floats:
    """Return true log-odds of rows with known group and label, drawing the feature."""
    d = np.take(law.separations, groups)
    x = rng.standard_normal(len(groups)) + (y - 0.5) * d
    return np.asarray(d * x + np.take(logit(law.base_rates), groups), np.float64)
