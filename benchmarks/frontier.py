"""What a training buys: accuracy at matched gaps and its cost, from the records of studies.

    fairdial bench run docs/results/frontier/tables.toml --out study
    python benchmarks/frontier.py study [MORE STUDIES] [--figure cost.png]

By data set and criterion, on test rows: accuracy at each gap of the plan, and the mean difference
to the plan's baseline in points, paired by split (figures of a split are means over its
initialisations), with the plain standard error, how many of them the difference is, the
corrected 95% interval (Nadeau and Bengio), Holm's p over the table, and the processor time of
training as a ratio to the baseline's in the same run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from common import table

from fairdial.bench.curves import Panel, Study, matched, mean_difference, read_study
from fairdial.bench.plan import read_plan
from fairdial.bench.statistics import Paired, corrected, holm, paired, split_ratio
from fairdial.bench.store import Store

HEAD = ["method", "splits", "difference", "error", "errors", "corrected 95%", "Holm p", "cost"]


def read(folder: Path) -> Study:
    """A study as its folder has it."""
    plan, store = read_plan(folder / "plan.toml"), Store(folder / "records")
    records = (store.of_any_code(config) for config in plan.trials())
    return read_study(plan, [record for record in records if record is not None])


def cost(panel: Panel, method: str) -> float:
    """Mean processor seconds of training."""
    return float(np.mean([t.seconds.get("fit_cpu", np.nan) for t in panel.of(method)]))


def compare(study: Study, panel: Panel) -> list[dict[str, Any]]:
    """A line a method: accuracies, and the paired difference to the baseline."""
    by_gap, base = matched(panel, study.plan.gaps), study.plan.baseline
    ratio, lines = split_ratio(study, panel), []
    for method in [m.name for m in study.plan.methods if panel.of(m.name)]:
        off = paired(mean_difference(by_gap, method, base)) if method != base else Paired()
        lines.append(
            {
                "method": method,
                "accuracy": {gap: float(values[method].mean()) for gap, values in by_gap.items()},
                "plain": off,
                "sure": corrected(off, ratio),
                "by_gap": {
                    gap: paired(100 * (values[method] - values[base]))
                    for gap, values in by_gap.items()
                },
                "cost": cost(panel, method) / cost(panel, base),
                "null": bool(method in dict(panel.nulls)),
            }
        )
    counted = [line for line in lines if line["method"] != base and not line["null"]]
    for line, p in zip(counted, holm([line["sure"].p for line in counted]), strict=True):
        line["holm"] = float(p)
    return lines


def show(study: Study, panel: Panel) -> str:
    """The table of a data set and criterion."""
    gaps, lines = study.plan.gaps, compare(study, panel)
    rows = []
    for line in lines:
        off, sure = line["plain"], line["sure"]
        known = off.seeds > 1
        rows.append(
            [
                line["method"],
                *(f"{line['accuracy'][gap]:.4f}" for gap in gaps),
                str(off.seeds) if known else "",
                f"{off.mean:+.3f}" if known else "",
                f"{off.error:.3f}" if known else "",
                f"{off.mean / off.error:+.1f}" if known and off.error else "",
                f"{sure.low:+.2f} to {sure.high:+.2f}" if known else "",
                f"{line['holm']:.3f}" if "holm" in line else "",
                f"{line['cost']:.2f}",
            ]
        )
    head = ["method", *(f"gap {gap:g}" for gap in gaps), *HEAD[1:]]
    done = f"{len(study.records)} of {len(study.plan.trials())} trials"
    return f"**{study.plan.title}: {panel.title}** ({done})\n\n{table(head, rows)}\n"


def draw(studies: list[Study], path: Path) -> None:
    """Accuracy against cost: a panel for each data set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [(study, panel) for study in studies for panel in study.panels if panel.trials]
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.2), squeeze=False)
    for ax, (study, panel) in zip(axes[0], panels, strict=True):
        for line in compare(study, panel):
            off = line["plain"]
            mean, error = (off.mean, off.error) if off.seeds > 1 else (0.0, 0.0)
            ax.errorbar(
                line["cost"], mean, yerr=error, fmt="o", color="0.6" if line["null"] else "C0"
            )
            ax.annotate(
                line["method"], (line["cost"], mean), xytext=(4, 3), textcoords="offset points",
                fontsize=7,
            )  # fmt: skip
        ax.axhline(0.0, color="0.8", linewidth=1, zorder=0)
        ax.set(xscale="log", title=panel.title, xlabel=f"training, ratio to {study.plan.baseline}")
        ax.set_ylabel("points of accuracy at matched gaps, one standard error")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print every study's tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="+", type=Path, help="folders of `fairdial bench run`")
    parser.add_argument("--figure", type=Path, help="draw accuracy against cost to this file")
    given = parser.parse_args()
    studies = [read(folder) for folder in given.studies]
    for study in studies:
        for panel in study.panels:
            if panel.trials:
                print(show(study, panel))
    if given.figure is not None:
        draw(studies, given.figure)


if __name__ == "__main__":
    main()
