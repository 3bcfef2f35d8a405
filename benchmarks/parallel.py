"""Time steps of a small ResNet in one and in two processes, one thread each.

The joint batch is the same (64 rows of each group), so each of two processes runs half of it. The
rest is communication: moments of batch normalization, logits, directions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import numpy as np
import torch
from common import machine, table
from train_step import CASES, SHARES

from fairdial.core.rates import SELECTION
from fairdial.nn.distributed import process_group, training_processes
from fairdial.nn.masoba import Objective
from fairdial.nn.steps import BilevelStep, PlainStep, Step

CASE = CASES[-1]
PROCESSES = (1, 2)
WARM_UP = 3


def make_step(name: str) -> Step:
    """Return a step of plain training, or of GFB with its default auxiliary system."""
    objective = Objective(SELECTION, SHARES, weight=0.95, gamma=CASE.gamma)
    if name == "ERM":
        return PlainStep(CASE.build(), objective, rate=1e-3)
    return BilevelStep(CASE.build(), objective, outer_rate=1e-3, inner_rate=1e-3)


def measure(repeats: int) -> None:
    """Print median wall-clock and processor seconds of a step in each process, as JSON.

    Both kinds of steps alternate.
    """
    torch.set_num_threads(1)
    x, y = CASE.batch()
    with process_group(), training_processes() as processes:
        local = processes.local_rows(x.movedim(1, -1)).movedim(-1, 1).contiguous()
        steps = {name: make_step(name) for name in ("ERM", "GFB")}
        wall: dict[str, list[float]] = {name: [] for name in steps}
        cpu: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(repeats + WARM_UP):
            for name, step in steps.items():
                step.processes = processes
                start, used = time.perf_counter(), time.process_time()
                step(local, y)
                wall[name].append(time.perf_counter() - start)
                cpu[name].append(time.process_time() - used)
        found = {
            name: (float(np.median(wall[name][WARM_UP:])), float(np.median(cpu[name][WARM_UP:])))
            for name in steps
        }
        every = processes.gather_objects(found)
        if processes.is_main:
            print(json.dumps(every))


def run(n: int, repeats: int) -> list[dict[str, tuple[float, float]]]:
    """Return the times of every process, for n processes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launch += ["--nproc-per-node", str(n), __file__, "--measure", str(repeats)]
    done = subprocess.run(launch, capture_output=True, text=True, check=True)
    found: list[dict[str, tuple[float, float]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few steps, to check that it works")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure is not None:
        measure(chosen.measure)
        return
    print(machine(["fairdial", "torch"]), "\n")
    found = {n: run(n, 1 if chosen.quick else 40) for n in PROCESSES}
    lines = []
    for name in ("ERM", "GFB"):
        wall = {n: max(each[name][0] for each in found[n]) for n in PROCESSES}
        cpu = {n: max(each[name][1] for each in found[n]) for n in PROCESSES}
        lines += [
            [
                name,
                str(n),
                f"{1.0 / wall[n]:.2f}",
                f"{wall[PROCESSES[0]] / wall[n]:.2f}x",
                f"{1e3 * cpu[n]:.0f}",
                f"{cpu[PROCESSES[0]] / cpu[n]:.2f}x",
            ]
            for n in PROCESSES
        ]
    head = ["step", "processes", "steps/s", "gain", "CPU ms per process", "gain"]
    print(table(head, lines))


if __name__ == "__main__":
    main()
