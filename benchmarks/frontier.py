"""Compare trainings: accuracy at matched gaps and cost, from the records of studies.

    fairdial bench run docs/results/frontier/tables.toml --out study
    python benchmarks/frontier.py study [MORE STUDIES] [--against METHOD] [--brief | --lines]
        [--costs N] [--figure F]

A study is a folder of `fairdial bench run`, or a plan with its packed records beside it, such as
docs/results/frontier/tables.toml and tables.jsonl.xz. For each data set and criterion, on test
rows, the tables show:

- the accuracy at each gap of the plan (in parentheses: how many splits reach it, if not all do);
- the mean difference to the baseline (or to METHOD) in points, over the gaps that both reach,
  paired by split and initialization, with its plain standard error over splits; the same over the
  splits that reach all gaps, if those are fewer (in parentheses, how many); the corrected 95%
  interval (Nadeau and Bengio); Holm's p over all rows of the command; whether it wins (3 plain
  standard errors, more than a null method differs from what it repeats, Holm's p below 0.05); and
  the difference that would be detected with 80% power at Holm's first level;
- the difference of accuracy and of the gap on the common grid of tolerances (on test rows, in
  points), and of HV (in plain standard errors);
- processor time of training, the median ratio to the baseline's on the same split and
  initialization;
- the differences at each gap, in points (in plain standard errors).

--costs N trains every method again on the first N splits, one after the other, scores their
calibration rows, and prints processor times of one thread as ratios to the baseline's. --figure
draws accuracy against cost. --brief and --lines print what docs/results/frontier/README.md shows: a
table for each data set and criterion, best first; or one table of all differences.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from common import cpu_time, table
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from fairdial.bench.comparisons import (
    grid_difference,
    matched,
    matched_difference,
    mean_difference,
    reached,
    training_ratio,
)
from fairdial.bench.curves import Panel, Study, open_study
from fairdial.bench.hypervolume import volumes
from fairdial.bench.model import make_model, read_parts
from fairdial.bench.sources import join_rows
from fairdial.bench.statistics import LEVEL, POWER, Paired, corrected, holm, paired
from fairdial.errors import InvalidInputError

WIN = 3.0  # plain standard errors
SCORINGS = 5
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)  # of costs
HEAD = (
    "splits", "difference", "error", "errors", "all gaps", "corrected 95%", "Holm p", "wins",
    "detectable", "grid", "gap on the grid", "HV", "cost",
)  # fmt: skip
BRIEF = ("difference", "all gaps", "corrected 95%", "Holm p", "wins", "detectable", "training")
LINES = ("study", "data", "method", "splits", *BRIEF)


def read(place: Path) -> Study:
    """Return a study from its folder, or from a plan with its packed records."""
    try:
        return open_study(place)
    except InvalidInputError as error:
        raise SystemExit(f"frontier.py: {error}") from None


# ---- comparing ---------------------------------------------------------------------------------


@dataclass
class Line:
    """A method, compared with another one."""

    method: str
    null: bool
    accuracy: dict[float, str]
    plain: Paired
    complete: Paired
    by_gap: dict[float, Paired]
    grid: Paired
    gap: Paired
    hv: Paired
    cost: float
    holm: float = float("nan")
    detectable: float = float("nan")
    wins: bool = False

    @property
    def sure(self) -> Paired:
        """The difference with the corrected error."""
        return corrected(self.plain)

    @property
    def at_all_gaps(self) -> str:
        """The difference over the splits that reach all gaps, if others don't."""
        if self.complete.seeds == self.plain.seeds:
            return ""
        return f"{_with_error(self.complete)} ({self.complete.seeds})"

    @property
    def known(self) -> bool:
        """Whether the difference has a standard error."""
        return self.plain.seeds > 1

    @property
    def claimed(self) -> bool:
        """Whether it is one of the comparisons of Holm's p values."""
        return not self.null and self.known


@dataclass
class Shown:
    """A table: a panel of a study, compared with one method."""

    name: str
    study: Study
    panel: Panel
    base: str
    lines: list[Line]
    noise: float = 0.0  # the largest difference of a null method to what it repeats
    training: dict[str, float] = field(default_factory=dict)
    scoring: dict[str, float] = field(default_factory=dict)


def compare(name: str, study: Study, panel: Panel, base: str) -> Shown:
    """Compare every method of a panel with one of them."""
    gaps, area = study.plan.gaps, volumes(panel)
    accuracies, lines = matched(panel, gaps), []
    for method in [m.name for m in study.plan.methods if panel.of(m.name)]:
        known = method != base
        lines.append(
            Line(
                method,
                null=method in dict(panel.nulls),
                accuracy={gap: _accuracy(accuracies[gap], panel, method) for gap in gaps},
                plain=paired(mean_difference(panel, gaps, method, base)) if known else Paired(),
                complete=paired(mean_difference(panel, gaps, method, base, all_gaps=True)),
                by_gap={gap: paired(matched_difference(panel, gap, method, base)) for gap in gaps},
                grid=paired(grid_difference(panel, method, base)) if known else Paired(),
                gap=paired(grid_difference(panel, method, base, 1)) if known else Paired(),
                hv=paired(area.hv[method] - area.hv[base]) if known and area else Paired(),
                cost=training_ratio(panel, method, base),
            )
        )
    nulls = [paired(mean_difference(panel, gaps, *pair)).mean for pair in panel.nulls]
    noise = max((abs(mean) for mean in nulls if np.isfinite(mean)), default=0.0)
    return Shown(name, study, panel, base, lines, noise)


def _accuracy(values: Any, panel: Panel, method: str) -> str:
    there, of = reached(values, panel, method)
    mean = f"{values[method].mean():.4f}" if there else "-"
    return mean if there == of else f"{mean} ({there})"


def decide(shown: list[Shown]) -> None:
    """Set Holm's p values over all lines, the detectable differences and the winners."""
    claimed = [line for one in shown for line in one.lines if line.claimed]
    for line, p in zip(claimed, holm([line.sure.p for line in claimed]), strict=True):
        line.holm, df = float(p), line.plain.seeds - 1
        tail = (1 - LEVEL) / 2 / len(claimed)
        line.detectable = float(student.isf(tail, df) + student.ppf(POWER, df)) * line.sure.error
    for one in shown:
        for line in one.lines:
            far = line.plain.mean >= WIN * line.plain.error and line.plain.mean > one.noise
            line.wins = bool(line.claimed and far and line.holm < 1 - LEVEL)


# ---- showing -----------------------------------------------------------------------------------


def show(one: Shown) -> str:
    """Return the tables of a data set and criterion."""
    plan, gaps = one.study.plan, one.study.plan.gaps
    rows, steps = [], []
    for line in one.lines:
        known, sure = line.known, line.sure
        cells = [
            str(line.plain.seeds), f"{line.plain.mean:+.3f}", f"{line.plain.error:.3f}",
            _errors(line.plain), line.at_all_gaps, f"{sure.low:+.2f} to {sure.high:+.2f}",
            f"{line.holm:.3f}" if line.claimed else "null", "yes" if line.wins else "",
            f"{line.detectable:.2f}" if line.claimed else "",
            f"{line.grid.mean:+.3f} ({_errors(line.grid)})",
            f"{line.gap.mean:+.2f} ({_errors(line.gap)})",
            f"{line.hv.mean:+.4f} ({_errors(line.hv)})",
        ]  # fmt: skip
        filled = cells if known else [""] * len(cells)
        rows.append([line.method, *line.accuracy.values(), *filled, f"{line.cost:.2f}"])
        if known:
            found = (f"{off.mean:+.3f} ({_errors(off)})" for off in line.by_gap.values())
            steps.append([line.method, *found])
    at = [f"gap {gap:g}" for gap in gaps]
    here = sum(len(one.panel.of(method.name)) for method in plan.methods)
    wanted = len(plan.methods) * len(plan.seeds) * plan.inits
    return (
        f"**{plan.title}: {one.panel.title}**, against {one.base} ({here} of {wanted} trials)\n\n"
        f"{table(['method', *at, *HEAD], rows)}\n\n"
        "Differences at each gap, in points (in standard errors)\n\n"
        f"{table(['method', *at], steps)}\n"
    )


def show_brief(one: Shown, named: bool = False) -> str:
    """Return the summary, best first; name the study if there are several."""
    gaps = one.study.plan.gaps
    order = sorted(one.lines, key=lambda line: line.plain.mean if line.known else 0.0)
    rows = []
    for line in reversed(order):
        filled = _brief(line) if line.known else [""] * (len(BRIEF) - 1)
        rows.append([line.method, *line.accuracy.values(), *filled, f"{line.cost:.2f}"])
    at = [f"gap {gap:g}" for gap in gaps]
    title = f"{one.name}: {one.panel.title}" if named else one.panel.title
    return f"**{title}**, against {one.base}\n\n{table(['method', *at, *BRIEF], rows)}\n"


def show_lines(shown: list[Shown]) -> str:
    """Return all differences in one table, in the order of the studies."""
    rows = [
        [
            one.name,
            one.panel.title,
            line.method,
            str(line.plain.seeds),
            *_brief(line),
            f"{line.cost:.2f}",
        ]
        for one in shown
        for line in one.lines
        if line.known
    ]
    return table(LINES, rows)


def _brief(line: Line) -> list[str]:
    """Return the cells of a difference in a summary."""
    sure = line.sure
    return [
        _with_error(line.plain),
        line.at_all_gaps,
        f"{sure.low:+.2f} to {sure.high:+.2f}",
        f"{line.holm:.3f}" if line.claimed else "null",
        "yes" if line.wins else "",
        f"{line.detectable:.2f}" if line.claimed else "",
    ]


def _with_error(found: Paired) -> str:
    """Return a difference and its plain standard error."""
    if not found.seeds:
        return "-"
    error = f" ± {found.error:.2f}" if found.seeds > 1 else ""
    return f"{found.mean:+.2f}{error}"


def _errors(found: Paired) -> str:
    """Return a difference in plain standard errors."""
    return f"{found.mean / found.error:+.1f}" if found.seeds > 1 and found.error else ""


def show_run(study: Study) -> str:
    """Return what the tables don't show: failed trials, versions of the code, epochs."""
    codes = Counter(record["code"] for record in study.records)
    facts = [f"{n} trials by code {code}" for code, n in codes.items()]
    facts += [f"failed: {config['method']['name']}, {error}" for config, error in study.failed]
    return "; ".join(facts + _twins(study) + _kept(study))


def _kept(study: Study) -> list[str]:
    """Return which epochs networks kept, and how often the first or the last one."""
    kept: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for record in study.records:
        config, epochs = record["config"], record["result"].get("epochs")
        if epochs:
            here = kept.setdefault((config["dataset"], config["method"]["name"]), [])
            here += zip(epochs["kept"], epochs["trained"], strict=True)
    return [
        f"{method} keeps epochs {min(k for k, _ in pairs)} to {max(k for k, _ in pairs)} "
        f"({sum(k == 1 for k, _ in pairs)} times the first, {sum(k == n for k, n in pairs)} times "
        f"the last, of {len(pairs)}; {data})"
        for (data, method), pairs in kept.items()
    ]


def _twins(study: Study) -> list[str]:
    """Return which methods decided the same: AutoDial's choices, methods without randomness."""
    states: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in study.records:
        config = record["config"]
        trial = config["dataset"], config["criterion"], config["seed"], config.get("init", 0)
        if config["kind"] == "study":
            states.setdefault(trial, {})[config["method"]["name"]] = record["result"]["states"]
    same = Counter(
        (trial[0], trial[1], one, two)
        for trial, found in states.items()
        for one, two in combinations([m.name for m in study.plan.methods if m.name in found], 2)
        if found[one] == found[two]
    )
    return [
        f"{one} equals {two} in {n} trials ({data}, {criterion.replace('_', ' ')})"
        for (data, criterion, one, two), n in same.items()
    ]


# ---- costs -------------------------------------------------------------------------------------


def measure_costs(one: Shown, splits: int) -> None:
    """Train and score with every method in turn, on one thread."""
    import torch

    torch.set_num_threads(1)
    plan, panel = one.study.plan, one.panel
    training: dict[str, list[float]] = {}
    scoring: dict[str, list[float]] = {}
    for config in plan.trials():
        here = (config["dataset"], config["criterion"]) == (panel.dataset, panel.criterion)
        method = config["method"]
        known = method["name"] in {line.method for line in one.lines}
        if not here or not known or config["seed"] not in plan.seeds[:splits] or "init" in config:
            continue
        parts = read_parts(config)
        model, fit, held = make_model(config, parts), parts.fit, parts.calibration
        crossed = method.get("calibration") == "crossed"
        if crossed:  # it trains and finds its frontier on all rows
            fit = join_rows(fit, held)
        with threadpool_limits(1):  # as in a study, whose trials run in parallel
            timing = cpu_time(
                lambda m=model, f=fit: m.fit(f.X, f.y, sensitive_features=f.groups), 1
            )
            training.setdefault(method["name"], []).append(timing.seconds)
            if not crossed:
                model.calibrate(held.X, held.y, sensitive_features=held.groups)
            timing = cpu_time(
                lambda m=model, h=held: m.logits(h.X, sensitive_features=h.groups), SCORINGS
            )
        scoring.setdefault(method["name"], []).append(timing.seconds)
    for found, ratios in ((training, one.training), (scoring, one.scoring)):
        for name, seconds in found.items():
            ratios[name] = float(np.median(np.array(seconds) / np.array(found[one.base])))


def show_costs(one: Shown) -> str:
    """Return both costs as a table."""
    rows = [[m, f"{one.training[m]:.2f}", f"{one.scoring[m]:.2f}"] for m in one.training]
    costs = table(["method", "training", "scoring"], rows)
    return f"Processor time as a ratio to {one.base}\n\n{costs}\n"


def draw(shown: list[Shown], path: Path) -> None:
    """Draw accuracy against cost: a column for each table, training above scoring."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    rows = 2 if any(one.scoring for one in shown) else 1
    size = (6.6 * len(shown), 4.4 * rows)
    figure, axes = plt.subplots(rows, len(shown), figsize=size, squeeze=False)
    for column, one in zip(axes.T, shown, strict=True):
        costs = (one.training or {line.method: line.cost for line in one.lines}, one.scoring)
        for ax, cost_of, what in zip(column, costs, ("training", "scoring"), strict=False):
            for number, line in enumerate(one.lines, start=1):
                if line.method not in cost_of:
                    continue
                known, at = line.known, cost_of[line.method]
                mean, error = (line.plain.mean, line.plain.error) if known else (0.0, 0.0)
                color = "0.6" if line.null else f"C{(number - 1) % 10}"
                marker = "os^Dv"[(number - 1) // 10]
                label = f"{number} {line.method}"
                ax.errorbar(at, mean, yerr=error, fmt=marker, color=color, ms=5, label=label)
                place = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 8}
                ax.annotate(str(number), (at, mean), **place)
            ax.axhline(0.0, color="0.8", linewidth=1, zorder=0)
            ax.set(xscale="log", title=one.panel.title, xlabel=f"{what}, ratio to {one.base}")
            low, high = ax.get_xlim()
            ax.set_xticks([t for t in TICKS if low <= t <= high])
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set_ylabel("points of accuracy at matched gaps")
    axes[0, -1].legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.suptitle("Accuracy against cost, with one standard error", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=70)


def main() -> None:
    """Print every study's tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="+", type=Path, help="folders, or plans with records")
    parser.add_argument("--against", help="a method to compare with instead of the baseline")
    parser.add_argument("--costs", type=int, default=0, help="measure costs on this many splits")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--brief", action="store_true", help="only the main comparison, best first")
    form.add_argument("--lines", action="store_true", help="all differences in one table")
    parser.add_argument("--figure", type=Path, help="draw accuracy against cost to this file")
    given = parser.parse_args()
    shown = []
    for place in given.studies:
        study = read(place)
        base = given.against or study.plan.baseline
        names = [method.name for method in study.plan.methods]
        if base not in names:
            parser.error(f"--against must be one of {names}, got {base!r}")
        panels = [panel for panel in study.panels if panel.of(base)]
        shown += [compare(place.stem, study, panel, base) for panel in panels]
    decide(shown)
    if given.lines:
        print(show_lines(shown))
    for before, one in pairwise([None, *shown]):
        if not given.lines:
            several = len(given.studies) > 1
            print(show_brief(one, several) if given.brief else show(one))
        if given.costs:
            measure_costs(one, given.costs)
            print(show_costs(one))
        new = before is None or before.study is not one.study
        if new and not (given.brief or given.lines):
            print(f"{show_run(one.study)}\n")
    if given.figure is not None:
        draw(shown, given.figure)


if __name__ == "__main__":
    main()
