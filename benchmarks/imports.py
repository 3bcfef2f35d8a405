"""Time imports, beside the libraries that users import anyway, and ``--help``.

    python benchmarks/imports.py [--repeats 15] [--quick]

Each import runs in a fresh interpreter, in turn, and is timed inside it (CPU time). If an estimator
takes too long, the slowest additional modules are listed. Then follows the help of each command, in
a fresh process (CPU time of the whole process).
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence

from common import Goal, at_most, machine, milliseconds, show_goals, table

from fairdial.cli import COMMANDS

BASELINE = "import sklearn, pandas"
PACKAGE = "import fairdial"
OURS = "from fairdial import FairBayes"
FIT = (
    "from fairdial.nn.adam import Adam; import torch; "
    "p = torch.zeros(2, requires_grad=True); p.sum().backward(); Adam([p], 1e-3).step()"
)
GOAL = 1.3  # times the baseline
PACKAGE_GOAL = 10.0  # ms
HELP_GOAL = 0.3  # seconds
HEAVIEST = 15
PACKAGES = ("fairdial", "numpy", "pandas", "scikit-learn", "scipy")


def fresh(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a new interpreter."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def import_seconds(statement: str) -> float:
    """Return the CPU time of an import in a fresh interpreter, without the start."""
    program = (
        f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    )
    return float(fresh("-c", program).stdout)


def loaded(statement: str) -> dict[str, float]:
    """Return the modules that an import loads, with the milliseconds of each."""
    found = {}
    for line in fresh("-X", "importtime", "-c", statement).stderr.splitlines():
        own, _, name = line.removeprefix("import time:").split("|")
        if own.strip().isdigit():  # the first line is a heading
            found[name.strip()] = int(own) / 1e3
    return found


def help_seconds(command: str) -> float:
    """Return the CPU time of a process that prints the help of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = [sys.executable, "-m", "fairdial", *command.split(), "--help"]
    subprocess.run(run, capture_output=True)  # a command that needs an extra may fail
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def report_help(repeats: int) -> Goal:
    """Measure the help of every command, print the results, and return the goal."""
    times: dict[str, list[float]] = {command: [] for command in ("", *COMMANDS)}
    for command in times:
        help_seconds(command)  # compiles and fills the disk cache
    for _ in range(repeats):
        for command, taken in times.items():
            taken.append(help_seconds(command))
    print(f"\nCPU milliseconds of `fairdial COMMAND --help`, {repeats} runs of each in turn.\n")
    lines = [
        [command or "(none)", milliseconds(statistics.median(taken)), milliseconds(min(taken))]
        for command, taken in times.items()
    ]
    print(table(["command", "median", "minimum"], lines))
    slowest = max(statistics.median(taken) for taken in times.values())
    return at_most("the slowest help", slowest, HELP_GOAL, " s")


def report(repeats: int) -> list[Goal]:
    """Measure imports, print the results, and return the goals."""
    times: dict[str, list[float]] = {BASELINE: [], PACKAGE: [], OURS: []}
    for statement in times:
        import_seconds(statement)  # compiles and fills the disk cache
    for _ in range(repeats):
        for statement, taken in times.items():
            taken.append(import_seconds(statement))
    medians = {statement: statistics.median(taken) for statement, taken in times.items()}
    ratio = medians[OURS] / medians[BASELINE]  # a user needs both
    print(f"\nCPU milliseconds in a fresh interpreter, {repeats} runs of each in turn.\n")
    lines = [
        [f"`{statement}`", milliseconds(medians[statement]), milliseconds(min(taken))]
        for statement, taken in times.items()
    ]
    print(table(["import", "median", "minimum"], lines))
    if ratio >= GOAL:
        known = loaded(BASELINE)
        extra = {n: t for n, t in loaded(f"{BASELINE}, fairdial").items() if n not in known}
        slowest = sorted(extra.items(), key=lambda item: -item[1])[:HEAVIEST]
        print(
            f"\n{len(extra)} additional modules take {sum(extra.values()):.0f} ms (including "
            "tracing); the slowest:\n"
        )
        print(table(["module", "ms"], [[n, f"{t:.1f}"] for n, t in slowest]))
    extra_by_fit = loaded(FIT).keys() & {"torch._dynamo", "onnx"}
    return [
        at_most(f"`{PACKAGE}`", 1e3 * medians[PACKAGE], PACKAGE_GOAL, " ms"),
        at_most(f"`{OURS}` against `{BASELINE}`", ratio, GOAL),
        at_most("slow modules that a network's fit imports", len(extra_by_fit), 0, ""),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=15, help="runs of each import")
    parser.add_argument("--quick", action="store_true", help="one run of each")
    given = parser.parse_args(arguments)
    if given.quick:
        print("A quick run checks that the script works; its numbers mean nothing.\n")
    repeats = 1 if given.quick else given.repeats
    print(machine(PACKAGES))
    goals = report(repeats)
    show_goals([*goals, report_help(repeats)])


if __name__ == "__main__":
    main()
