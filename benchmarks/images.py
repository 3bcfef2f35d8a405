"""Time fine-tuning of a ResNet-18: GFB beside plain training, and loading beside both.

A ResNet-18 for each group on generated pictures of 64 x 64 in a memory map. Steps are interleaved;
times are median CPU times of one thread, in float32 and bfloat16. Loading reads a batch from the
map and normalizes it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from common import at_least, at_most, machine, show_goals, table

from fairdial.core.rates import SELECTION
from fairdial.datasets import Pictures
from fairdial.nn.data import PairedBatches, PictureInputs
from fairdial.nn.masoba import Objective
from fairdial.nn.nets import DialNet, Head, ModuleStack
from fairdial.nn.resnet import ResNet18
from fairdial.nn.steps import BilevelStep, PlainStep

SHARES = np.array([0.48, 0.52])
SIDE = 64
HEAD = 128
GOAL_STEP, GOAL_LOADER = 1.10, 3.0


def generated(folder: Path, n: int) -> Pictures:
    """Return pictures in a memory-mapped file, as the loaders do."""
    path = folder / "pixels.npy"
    pixels = np.lib.format.open_memmap(path, "w+", np.uint8, (n, 3, SIDE, SIDE))
    rng = np.random.default_rng(0)
    for start in range(0, n, 512):
        part = pixels[start : start + 512]
        part[:] = rng.integers(0, 256, part.shape, dtype=np.uint8)
    pixels.flush()
    return Pictures(np.load(path, mmap_mode="r"))


def build(reduced: bool = False) -> DialNet:
    """Return a ResNet-18 per group from the same weights; with `reduced`, in bfloat16."""
    torch.manual_seed(0)
    head = Head(2, 512, HEAD, torch.Generator().manual_seed(0))
    return DialNet(ModuleStack.copies_of(ResNet18({}), 2, reduced), head, members=1, groups=2)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64, help="pictures of both groups together")
    parser.add_argument("--quick", action="store_true", help="few repeats, to check that it works")
    given = parser.parse_args()
    repeats, batch = (1, 4) if given.quick else (given.repeats, given.batch)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        n = 64 if given.quick else 8192
        rows = PictureInputs(generated(Path(folder), n), torch.device("cpu"))
        y = torch.from_numpy((np.random.default_rng(1).random(n) < 0.5).astype(np.float32))
        parts = [np.arange(0, n, 2), np.arange(1, n, 2)]
        batches = PairedBatches(rows, y, parts, size=batch // 2, seed=0)
        objective = Objective(SELECTION, SHARES, weight=0.95)
        steps: dict[str, Callable[..., object]] = {
            "plain training (FairBayes)": PlainStep(build(), objective, rate=1e-4),
            "GFB": BilevelStep(build(), objective, outer_rate=1e-4, inner_rate=1e-4),
            "plain training, bfloat16": PlainStep(build(reduced=True), objective, rate=1e-4),
            "GFB, bfloat16": BilevelStep(
                build(reduced=True), objective, outer_rate=1e-4, inner_rate=1e-4
            ),
        }
        seconds: dict[str, list[float]] = {name: [] for name in [*steps, "loading a batch"]}
        warm = 1 if given.quick else 2
        for i in range(repeats + warm):
            start = time.process_time()
            x, labels = batches.next()
            loaded = time.process_time() - start
            for name, step in steps.items():
                start = time.process_time()
                step(x, labels)
                if i >= warm:  # after warming up
                    seconds[name].append(time.process_time() - start)
            if i >= warm:
                seconds["loading a batch"].append(loaded)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    first = next(iter(medians))
    lines = [
        [name, f"{1e3 * s:.1f}", f"{batch / s:.0f}", f"{s / medians[first]:.3f}"]
        for name, s in medians.items()
    ]
    print(machine(["torch"]))
    print(f"ResNet-18 per group, {SIDE} x {SIDE}, batch {batch}, one thread, {repeats} repeats\n")
    print(table(["step", "CPU ms", "pictures/s", "ratio to plain training"], lines))
    ratio = medians["GFB"] / medians[first]
    faster = min(medians[name] for name in steps) / medians["loading a batch"]
    show_goals(
        [
            at_most("GFB against plain training", ratio, GOAL_STEP),
            at_least("loading against the fastest step", faster, GOAL_LOADER),
        ]
    )


if __name__ == "__main__":
    main()
