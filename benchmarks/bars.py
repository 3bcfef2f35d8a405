"""Sanity bars of the comparison methods, from the records of a study.

    fairdial bench run paper-tabular --out study
    python benchmarks/bars.py study

By data set and method, means over seeds on test rows: the most accurate of the method's own
settings beside the constant classifier (bar: at least 5 points above); the gap at the loose and at
the strict end of the dial (bar for YOTO and FairBiNN: it falls by at least half); how much of the
plainly trained net's gap the settings span (bar for EPO: at least half).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from common import table

from fairdial.bench.plan import read_plan
from fairdial.bench.store import Store

ABOVE, FALL, SPAN = 0.05, 0.5, 0.5


def figures(record: dict[str, Any]) -> dict[str, Any]:
    """Accuracy and gap of a trial's own settings on test rows, loosest first."""
    result = record["result"]
    rows = np.array(result["rows"]["test"])
    states = {line["state"]: np.array(line["test"]) for line in result["states"]}
    chosen = np.array([states[state] for state in result["points"]])  # (S, L, K)
    right = chosen[:, 1].sum(axis=1) + (rows[0] - chosen[:, 0]).sum(axis=1)
    gaps = np.ptp(chosen.sum(axis=1) / rows.sum(axis=0), axis=1)
    return {
        "accuracy": right / rows.sum(),
        "gap": gaps,
        "constant": rows.sum(axis=1).max() / rows.sum(),
        "seconds": record["timing"]["fit_cpu"],
    }


def line(name: str, trials: list[dict[str, Any]], plain: float) -> list[str]:
    """One method on one data set."""
    best = float(np.mean([t["accuracy"].max() for t in trials]))
    constant = float(np.mean([t["constant"] for t in trials]))
    loose = float(np.mean([t["gap"][0] for t in trials]))
    strict = float(np.mean([t["gap"][-1] for t in trials]))
    span = float(np.mean([np.ptp(t["gap"]) for t in trials])) / plain
    bars = [best >= constant + ABOVE]
    if name in ("YOTO", "FairBiNN"):
        bars.append(strict <= (1 - FALL) * loose)
    if name == "EPO":
        bars.append(span >= SPAN)
    return [
        name,
        f"{constant:.4f}",
        f"{best:.4f}",
        f"{loose:.4f}",
        f"{strict:.4f}",
        f"{span:.2f}",
        f"{np.mean([t['seconds'] for t in trials]):.1f}",
        "met" if all(bars) else "missed",
    ]


def main() -> None:
    """Print a table for every data set of the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="folder that `fairdial bench run` wrote")
    options = parser.parse_args()
    plan, store = read_plan(options.study / "plan.toml"), Store(options.study / "records")
    head = ["method", "constant", "best accuracy", "gap, loose end", "strict end", "span of gap"]
    for dataset in plan.datasets:
        found: dict[str, list[dict[str, Any]]] = {}
        for config in plan.trials():
            record = store.of_any_code(config)
            if config["kind"] == "study" and config["dataset"] == dataset and record is not None:
                found.setdefault(config["method"]["name"], []).append(figures(record))
        if plan.baseline not in found:
            print(f"{dataset}: no trial of {plan.baseline} yet\n")
            continue
        plain = float(np.mean([t["gap"].max() for t in found[plan.baseline]]))
        lines = [line(name, trials, plain) for name, trials in found.items()]
        seeds = {len(trials) for trials in found.values()}
        print(f"{dataset}, {min(seeds)} to {max(seeds)} seeds; {plan.baseline}'s gap {plain:.4f}\n")
        print(table([*head, "train, CPU s", "bars"], lines) + "\n")


if __name__ == "__main__":
    main()
