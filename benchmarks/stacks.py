"""Time ten settings of EPO or FairBiNN trained in one stack, beside one setting alone.

The default network (one member) trains on Adult for a fixed number of epochs. One setting and ten
alternate in one process; the minimum CPU time of several rounds on one thread counts. Tests check
that the stack gives the same networks as separate training.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import torch
from common import at_most, machine, show_goals, table

from fairdial import EPO, FairBiNN, FairdialWarning, Network
from fairdial.datasets import Dataset, load_adult

SETTINGS = 10
GOAL = 7.0


def make(name: str, n_settings: int, epochs: int, **network: Any) -> Any:
    """Return a model that trains for a fixed number of epochs."""
    shape = Network(members=1, epochs=epochs, patience=None, **network)
    options: dict[str, Any] = {"network": shape, "calibration": None, "random_state": 0}
    if name == "FairBiNN":
        return FairBiNN(n_settings, widen=0, **options)
    return EPO(n_settings, **options)


class Clock:
    """Records the CPU time at the end of every epoch."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_epoch_end(self, epoch: int, record: dict[str, Any], net: Any) -> None:  # noqa: ARG002
        """Record the time."""
        self.times.append(time.process_time())


def seconds(model: Any, rows: Dataset) -> float:
    """Return the CPU time of an epoch, without the first, which includes encoding."""
    clock = Clock()
    model.network.set_params(callbacks=[clock])
    model.fit(rows.X, rows.y, sensitive_features=rows.groups)
    return (clock.times[-1] - clock.times[0]) / (len(clock.times) - 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a short run, to check that it works")
    options = parser.parse_args()
    epochs, rounds = (2, 1) if options.quick else (options.epochs, options.rounds)
    warnings.simplefilter("ignore", FairdialWarning)
    torch.set_num_threads(1)
    rows = load_adult().paper_split(0).train
    if options.quick:
        rows = rows.split(test_size=0.05, random_state=0)[1]
    shapes: dict[str, dict[str, Any]] = {"default (64, 32), head 32": {}}
    if not options.quick:
        shapes["(128, 64), head 64"] = {"hidden": (128, 64), "head": 64}
    print(machine(("torch", "numpy")) + "\n")
    lines, goals = [], []
    for shape, network in shapes.items():
        for name in ("EPO", "FairBiNN"):
            one, ten = [], []
            for _ in range(rounds):
                one.append(seconds(make(name, 1, epochs, **network), rows))
                ten.append(seconds(make(name, SETTINGS, epochs, **network), rows))
            ratio = min(ten) / min(one)
            lines.append([name, shape, f"{min(one):.3f}", f"{min(ten):.3f}"])
            goals.append(at_most(f"{name}, {shape}: ten against one", ratio, GOAL))
    print(table(["method", "network", "one, s per epoch", "ten, s per epoch"], lines))
    show_goals(goals)


if __name__ == "__main__":
    main()
