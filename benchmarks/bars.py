"""Sanity checks of the comparison methods, from the records of a study.

    fairdial bench run paper-tabular --out study
    python benchmarks/bars.py study

For each data set and method, means over seeds on test rows: the most accurate of the method's own
operating points beside the constant classifier (bar: at least 5 points above); the gap at the loose
and at the strict end (bar for YOTO and FairBiNN: it falls by at least half); the share of the
baseline's gap that the points span (bar for EPO: at least half).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from common import table

from fairdial.bench.curves import Panel, open_study

ABOVE, FALL, SPAN = 0.05, 0.5, 0.5


def check(panel: Panel, name: str, constant: float, plain: float) -> list[str]:
    """Return the row of one method."""
    trials = panel.of(name)
    best = float(np.mean([trial.points[:, 0].max() for trial in trials]))
    loose = float(np.mean([trial.points[0, 1] for trial in trials]))
    strict = float(np.mean([trial.points[-1, 1] for trial in trials]))
    span = float(np.mean([np.ptp(trial.points[:, 1]) for trial in trials])) / plain
    bars = [best >= constant + ABOVE]
    if name in ("YOTO", "FairBiNN"):
        bars.append(strict <= (1 - FALL) * loose)
    if name == "EPO":
        bars.append(span >= SPAN)
    seconds = np.mean([trial.seconds["fit_cpu"] for trial in trials])
    numbers = [f"{value:.4f}" for value in (constant, best, loose, strict)]
    return [name, *numbers, f"{span:.2f}", f"{seconds:.1f}", "met" if all(bars) else "missed"]


def main() -> None:
    """Print a table for every data set of the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="folder of `fairdial bench run`")
    folder = parser.parse_args().study
    study = open_study(folder)
    plan = study.plan
    head = ["method", "constant", "best accuracy", "gap, loose end", "strict end", "span of gap"]
    for panel in study.panels:
        if plan.baseline not in panel.compared:
            print(f"{panel.title}: no trial of {plan.baseline} yet\n")
            continue
        rows = [record["result"]["rows"]["test"] for record in study.of_kind("study", panel)]
        constant = float(np.mean([np.sum(r, axis=1).max() / np.sum(r) for r in rows]))
        plain = float(np.mean([trial.points[:, 1].max() for trial in panel.of(plan.baseline)]))
        names = [method.name for method in plan.methods if panel.of(method.name)]
        checked = [check(panel, name, constant, plain) for name in names]
        print(f"{panel.title}, {len(plan.seeds)} seeds; gap of {plan.baseline} {plain:.4f}\n")
        print(table([*head, "train, CPU s", "bars"], checked) + "\n")


if __name__ == "__main__":
    main()
