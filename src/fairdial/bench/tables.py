"""The tables of a report: paired statistics, costs, and each table as rows of text.

Figures come as one frame each, with a line a seed and a column a method; a paired difference uses
the seeds that both methods have. First the numbers, then their tables.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import t as student

from fairdial.bench import paper
from fairdial.bench.curves import (
    NAN,
    POINTS,
    Floats,
    Panel,
    Study,
    at_tolerances,
    held,
    matched,
    mean_difference,
    mean_of,
    reached,
)
from fairdial.bench.plan import Method
from fairdial.bench.reference import Volumes, orders, sensitivity, volumes

LEVEL, POWER, MOST_SEEDS = 0.95, 0.80, 10_000


# ---- paired differences ------------------------------------------------------------------------


class Paired(NamedTuple):
    """Differences by seed, in short; NaN where there are too few seeds."""

    seeds: int = 0
    mean: float = NAN
    q1: float = NAN
    q2: float = NAN
    q3: float = NAN
    sd: float = NAN  # ddof 1
    error: float = NAN  # standard error of the mean
    low: float = NAN  # ends of the 95% t interval
    high: float = NAN
    p: float = NAN  # two-sided paired t test
    needed: float = NAN  # seeds for 80% power at this mean and sd; infinite: beyond MOST_SEEDS
    seen: float = NAN  # the difference that so many seeds see with 80% power at this sd


def paired(differences: ArrayLike) -> Paired:
    """Mean, quartiles (linear), standard error, t interval and power of paired differences.

    Examples
    --------
    >>> from fairdial.bench.tables import paired
    >>> found = paired([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> found.q1, found.q2, found.q3, found.needed
    (2.0, 3.0, 4.0, 5.0)
    """
    values = np.asarray(differences, np.float64)
    values = values[~np.isnan(values)]
    n = len(values)
    if n == 0:
        return Paired()
    mean = float(values.mean())
    q1, q2, q3 = np.percentile(values, [25, 50, 75]).tolist()
    if n == 1:
        return Paired(n, mean, q1, q2, q3)
    sd = float(values.std(ddof=1))
    error = sd / n**0.5
    half = float(student.ppf((1 + LEVEL) / 2, n - 1)) * error
    ratio = abs(mean) / error if error > 0 else (0.0 if mean == 0 else float("inf"))
    return Paired(
        n,
        mean,
        q1,
        q2,
        q3,
        sd,
        error,
        mean - half,
        mean + half,
        p=float(2 * student.sf(ratio, n - 1)),
        needed=seeds_needed(mean, sd),
        seen=float(_factors()[min(n, MOST_SEEDS) - 2] * sd),
    )


def seeds_needed(mean: float, sd: float) -> float:
    """Seeds with which a paired t test sees such a difference with 80% power, about."""
    if mean == 0:
        return float("inf")
    if sd == 0:
        return 2.0
    enough = np.flatnonzero(_factors() <= abs(mean) / sd)
    return float(enough[0] + 2) if len(enough) else float("inf")


@cache
def _factors() -> Floats:
    """(t_.975 + t_.8) / sqrt(n) for n = 2, 3, ...: the effect that n seeds see with 80% power."""
    n = np.arange(2, MOST_SEEDS + 1)
    quantiles = student.ppf((1 + LEVEL) / 2, n - 1) + student.ppf(POWER, n - 1)
    return np.asarray(quantiles / np.sqrt(n), np.float64)


def holm(p_values: ArrayLike) -> Floats:
    """Holm's adjusted p values; NaN stays, and doesn't count.

    Examples
    --------
    >>> from fairdial.bench.tables import holm
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def main_pairs(panel: Panel, main: str) -> list[tuple[str, str]]:
    """Main minus each other method; then null rows minus what they repeat."""
    rivals = [(main, name) for name in panel.compared if name != main]
    return (rivals if main in panel.compared else []) + panel.nulls


# ---- cost --------------------------------------------------------------------------------------

STEPS = ("train_one", "train", "adapt_one", "adapt_many", "predict_one")


def cost(study: Study, panel: Panel) -> pd.DataFrame:
    """Mean seconds of each step, a line a method; where one training serves all, it is both."""
    lines: dict[str, list[dict[str, float]]] = {}
    for record in study.costs:
        config, seconds = record["config"], record["timing"]
        if (config["dataset"], config["criterion"]) == (panel.dataset, panel.criterion):
            once = {"train_one": seconds.get("train_one", seconds["train"])}
            lines.setdefault(config["method"]["name"], []).append(seconds | once)
    found = [
        {"method": name, "repeats": len(runs)}
        | {step: mean_of([run[step] for run in runs]) for step in STEPS}
        for name, runs in lines.items()
    ]
    return pd.DataFrame(found, columns=["method", "repeats", *STEPS])


def fitting(panel: Panel) -> pd.DataFrame:
    """Processor seconds of fit and calibration, and epochs, of the study trials; means."""
    lines = []
    for name in panel.compared:
        trials = panel.of(name)
        lines.append(
            {
                "method": name,
                "seeds": len(trials),
                "fit": mean_of([t.seconds.get("fit_cpu", NAN) for t in trials]),
                "calibrate": mean_of([t.seconds.get("calibrate_cpu", NAN) for t in trials]),
                "epochs": mean_of([t.epochs for t in trials]),
            }
        )
    return pd.DataFrame(lines, columns=["method", "seeds", "fit", "calibrate", "epochs"])


# ---- what the seeds support --------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A comparison of two methods on one figure, and the null row's difference beside it."""

    panel: str
    figure: str
    a: str
    b: str
    found: Paired
    lower_is_better: bool
    null: Paired | None  # of the null row that differs most
    adjusted: float = NAN  # Holm, over all claims of the report

    @property
    def excludes_zero(self) -> bool:
        """Whether the 95% interval does."""
        return self.found.low > 0 or self.found.high < 0

    @property
    def better(self) -> str:
        """The method that the mean speaks for."""
        return self.a if (self.found.mean < 0) == self.lower_is_better else self.b

    @property
    def within_null(self) -> bool:
        """Whether the null row differs as much."""
        return self.null is not None and abs(self.found.mean) <= abs(self.null.mean)


MATCHED, HV, INVERTED = FIGURES = ("mean accuracy at matched gaps", "HV", "inverted HV")


@dataclass(frozen=True, eq=False)
class Measured:
    """The key figures of a panel, by seed."""

    panel: Panel
    by_gap: dict[float, pd.DataFrame]
    volumes: Volumes

    def difference(self, figure: str, a: str, b: str) -> Paired:
        """Method a minus method b."""
        if figure == MATCHED:
            return paired(mean_difference(self.by_gap, a, b))
        values = self.volumes.hv if figure == HV else self.volumes.inverted
        return paired(values[a] - values[b])

    def null(self, figure: str) -> Paired | None:
        """The null row that differs most from what it repeats."""
        found = [self.difference(figure, *pair) for pair in self.panel.nulls]
        return max((null for null in found if null.seeds), key=lambda n: abs(n.mean), default=None)


def measured(study: Study) -> list[Measured]:
    """The key figures of those panels that have trials."""
    areas = [(panel, volumes(panel)) for panel in study.panels]
    return [Measured(p, matched(p, study.plan.gaps), v) for p, v in areas if v is not None]


def claim_pairs(panel: Panel, main: str, baseline: str) -> list[tuple[str, str]]:
    """Every method minus the baseline; then main minus the others."""
    names = panel.compared
    pairs = [(name, baseline) for name in names if name != baseline]
    if main != baseline:
        pairs += [(main, name) for name in names if name not in (main, baseline)]
    return [(a, b) for a, b in pairs if a in names and b in names]


def claims(study: Study) -> list[Claim]:
    """All comparisons on the key figures, with Holm's p values over all of them."""
    plan = study.plan
    found = [
        Claim(
            panel=part.panel.title,
            figure=figure,
            a=a,
            b=b,
            found=part.difference(figure, a, b),
            lower_is_better=figure == INVERTED,
            null=part.null(figure),
        )
        for part in measured(study)
        for a, b in claim_pairs(part.panel, plan.main, plan.baseline)
        for figure in FIGURES
    ]
    adjusted = holm([claim.found.p for claim in found])
    return [replace(claim, adjusted=float(p)) for claim, p in zip(found, adjusted, strict=True)]


# ---- numbers as text ---------------------------------------------------------------------------


class Table(NamedTuple):
    """Cells as text; with a label it goes to LaTeX too."""

    caption: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    note: str = ""
    label: str = ""


def number(value: float, spec: str = ".4f") -> str:
    """A number as text: "-" where there is none."""
    return "-" if np.isnan(value) else f"{value:{spec}}"


def plus_minus(mean: float, other: float, spec: str = ".4f") -> str:
    """A mean and its spread or error, where there is one."""
    more = "" if np.isnan(other) else f" ± {number(other, spec.lstrip('+'))}"
    return f"{number(mean, spec)}{more}"


def interval(found: Paired, spec: str) -> str:
    """The ends of the 95% interval."""
    if np.isnan(found.low):
        return "-"
    return f"{number(found.low, spec)} to {number(found.high, spec)}"


def brief(value: float) -> str:
    """Three digits, without exponents."""
    return "-" if np.isnan(value) else np.format_float_positional(float(f"{value:.3g}"), trim="-")


def share(value: float) -> str:
    """A percentage."""
    return "-" if np.isnan(value) else f"{100 * value:.0f}%"


def _label(kind: str, panel: Panel) -> str:
    return f"tab:{kind}-{panel.dataset}-{panel.criterion}".replace("_", "-")


# ---- what was run ------------------------------------------------------------------------------


def methods_table(study: Study) -> Table:
    """Methods, settings, trials done."""
    done = Counter(record["config"]["method"]["name"] for record in study.records)
    asked = Counter(config["method"]["name"] for config in study.plan.trials())
    failed = Counter(config["method"]["name"] for config, _ in study.failed)
    lines = [
        (
            m.name,
            m.estimator + (f" on {m.scorer}" if m.scorer else ""),
            m.settings,
            _changes(m),
            f"{done[m.name]} of {asked[m.name]}",
            str(failed[m.name]),
        )
        for m in study.plan.methods
    ]
    nulls = any(m.seed_offset for m in study.plan.methods)
    return Table(
        "Methods and their settings.",
        ("method", "estimator", "settings", "changed", "trials done", "failed"),
        tuple(lines),
        note="A null row repeats a method with another seed for its weights and batches: what "
        "differs there is noise."
        if nulls
        else "",
    )


def _changes(method: Method) -> str:
    words = [f"{k}={v!r}" for k, v in sorted({**method.arguments, **method.network}.items())]
    if method.seed_offset:
        words.append(f"null row: seed + {method.seed_offset}")
    return ", ".join(words) or "-"


def failed_table(study: Study) -> Table:
    """Trials that failed, with their errors."""
    lines = tuple((*_words(config), error) for config, error in study.failed)
    return Table("Trials that failed.", ("kind", "data", "method", "seed", "error"), lines)


def missing_table(study: Study) -> Table:
    """How many trials of what are missing."""
    counted = Counter(_words(config)[:3] for config in study.missing)
    lines = tuple((*words, str(n)) for words, n in counted.items())
    return Table("Trials that are missing.", ("kind", "data", "method", "trials"), lines)


def _words(config: dict[str, Any]) -> tuple[str, str, str, str]:
    where = f"{config['dataset']}, {config['criterion'].replace('_', ' ')}"
    return config["kind"], where, config["method"]["name"], str(config["seed"])


def versions_table(study: Study) -> Table:
    """Versions of code and packages."""
    found: dict[str, Counter[str]] = {}
    for record in study.records:
        entries = {"code": record.get("code", "unknown"), **record.get("environment", {})}
        for name, value in sorted(entries.items()):
            found.setdefault(name, Counter())[str(value)] += 1
    lines = []
    for name, counted in found.items():
        several = len(counted) > 1
        words = (f"{v} ({n} trials)" if several else v for v, n in sorted(counted.items()))
        lines.append((name, ", ".join(words)))
    mixed = [name for name, counted in found.items() if len(counted) > 1]
    return Table(
        "Versions, as the records have them.",
        ("what", "version"),
        tuple(lines),
        note=f"Not all trials have the same {', '.join(mixed)}." if mixed else "",
    )


def warnings_table(study: Study) -> Table:
    """Warnings of trials, the most frequent first."""
    told: Counter[str] = Counter(
        message for record in study.records for message in record.get("warnings", ())
    )
    lines = sorted(told.items(), key=lambda item: (-item[1], item[0]))
    return Table(
        "Warnings, and in how many trials.",
        ("warning", "trials"),
        tuple((message, str(n)) for message, n in lines),
    )


# ---- hypervolume and paired differences --------------------------------------------------------


def hv_table(study: Study, part: Measured) -> Table:
    """HV and inverted HV, mean and standard deviation (ddof 0), beside the paper's."""
    panel = part.panel
    known = paper.knows(panel.dataset, panel.criterion)
    lines = []
    for method in study.plan.methods:
        if method.seed_offset:
            continue
        trials = panel.of(method.name)
        line = [method.name, str(len(trials))]
        for frame in (part.volumes.hv, part.volumes.inverted):
            values = frame[method.name]
            line.append(plus_minus(values.mean(), values.std(ddof=0) if len(trials) > 1 else NAN))
        line.append(number(mean_of([t.points[:, 1].max() for t in trials])))
        if known:
            published = (paper.HV[panel.dataset], paper.INVERTED_HV[panel.dataset])
            line += [_spread(table.get(paper.column(method) or "")) for table in published]
        lines.append(tuple(line))
    theirs = ("paper: HV", "paper: inverted HV") if known else ()
    return Table(
        f"HV and inverted HV: {panel.title}.",
        ("method", "seeds", "HV", "inverted HV", "largest gap", *theirs),
        tuple(lines),
        label=_label("hv", panel),
    )


def _spread(entry: paper.Spread | None) -> str:
    return "-" if entry is None else f"{entry.mean:.4f} ± {entry.sd:.3f}"


PAIRED_HEAD = ("seeds", "mean", "Q1", "Q2", "Q3", "std. error", "95% interval", "seeds needed")


def _paired_cells(found: Paired, spec: str) -> list[str]:
    needed = f"over {MOST_SEEDS}" if np.isinf(found.needed) else number(found.needed, ".0f")
    return [
        str(found.seeds),
        *(number(value, spec) for value in (found.mean, found.q1, found.q2, found.q3)),
        number(found.error, spec.lstrip("+")),
        interval(found, spec),
        needed,
    ]


def quartile_table(study: Study, part: Measured, figure: str) -> Table:
    """Main minus the others in HV or inverted HV, beside the paper's."""
    panel, plan = part.panel, study.plan
    methods = {method.name: method for method in plan.methods}
    theirs: dict[str, paper.Quartiles] = {}
    if paper.knows(panel.dataset, panel.criterion) and (
        paper.column(methods[plan.main]) == paper.MAIN
    ):
        published = paper.HV_QUARTILES if figure == HV else paper.INVERTED_HV_QUARTILES
        theirs = published[panel.dataset]
    lines = []
    for a, b in main_pairs(panel, plan.main):
        line = [f"{a} - {b}", *_paired_cells(part.difference(figure, a, b), "+.4f")]
        if theirs:
            known = theirs.get(paper.column(methods[b]) or "") if a == plan.main else None
            line.append(" / ".join(f"{value:+.4f}" for value in known) if known else "-")
        lines.append(tuple(line))
    good = "negative" if figure == INVERTED else "positive"
    return Table(
        f"Differences of {figure}: {panel.title}; {good} is good for {plan.main}.",
        ("difference", *PAIRED_HEAD, *(("paper: mean / Q1 / Q2 / Q3",) if theirs else ())),
        tuple(lines),
        label=_label(f"{figure.lower().replace(' ', '-')}-quartiles", panel),
    )


def matched_quartiles(study: Study, part: Measured) -> Table:
    """Main minus the others in accuracy at matched gaps."""
    lines = []
    for a, b in main_pairs(part.panel, study.plan.main):
        for gap, values in part.by_gap.items():
            found = paired(POINTS * (values[a] - values[b]))
            lines.append((f"{a} - {b}", f"{gap:g}", *_paired_cells(found, "+.2f")))
        found = part.difference(MATCHED, a, b)
        lines.append((f"{a} - {b}", "mean", *_paired_cells(found, "+.2f")))
    return Table(
        f"Differences of accuracy at matched gaps, in points: {part.panel.title}; positive is good "
        f"for {study.plan.main}.",
        ("difference", "gap", *PAIRED_HEAD),
        tuple(lines),
        note="Seeds are those where both methods reach the gap; the mean is, by seed, over the "
        "gaps that both reach.",
        label=_label("matched-quartiles", part.panel),
    )


# ---- accuracy at gaps and tolerances -----------------------------------------------------------


def _listed(panel: Panel) -> list[str]:
    return [*panel.compared, *(null for null, _ in panel.nulls)]


def matched_table(part: Measured) -> Table:
    """Mean accuracy at matched gaps."""
    lines = []
    for name in _listed(part.panel):
        line = [name]
        for values in part.by_gap.values():
            there, of = reached(values, part.panel, name)
            mean = number(values[name].mean()) if there else "not reached"
            line.append(mean if there in (0, of) else f"{mean} ({there} of {of})")
        lines.append(tuple(line))
    return Table(
        f"Accuracy at matched gaps on test rows, mean over seeds: {part.panel.title}.",
        ("method", *(f"gap {gap:g}" for gap in part.by_gap)),
        tuple(lines),
        note="In brackets: how many of the seeds reached the gap, where not all did.",
        label=_label("matched", part.panel),
    )


def matched_differences(study: Study, part: Measured) -> Table:
    """The same minus the baseline, in points."""
    base = study.plan.baseline
    lines = []
    for name in _listed(part.panel):
        line = [name, *(_points(values, name, base) for values in part.by_gap.values())]
        found = part.difference(MATCHED, name, base)
        line.append("-" if name == base else plus_minus(found.mean, found.error, "+.2f"))
        lines.append(tuple(line))
    return Table(
        f"The same minus {base}, in points of accuracy ± standard error, paired by seed: "
        f"{part.panel.title}.",
        ("method", *(f"gap {gap:g}" for gap in part.by_gap), "mean over gaps"),
        tuple(lines),
        label=_label("matched-differences", part.panel),
    )


def _points(values: pd.DataFrame, name: str, base: str) -> str:
    found = paired(POINTS * (values[name] - values[base]))
    return "-" if name == base else plus_minus(found.mean, found.error, "+.2f")


def grid_table(study: Study, panel: Panel) -> Table | None:
    """Accuracy and gap at those common tolerances that are among the plan's gaps."""
    base = study.plan.baseline
    accuracy, gaps = at_tolerances(panel, 0), at_tolerances(panel, 1)
    chosen = [t for t in accuracy if np.isclose(t, study.plan.gaps).any()]
    lines = []
    for name in _listed(panel):
        line = [name]
        for t in chosen:
            line += [number(accuracy[t][name].mean()), number(gaps[t][name].mean())]
            line.append(_points(accuracy[t], name, base))
        lines.append(tuple(line))
    head = (f"{what}, {t:g}" for t in chosen for what in ("accuracy", "gap", "points"))
    if not chosen:
        return None
    return Table(
        "At common tolerances: accuracy and gap on test rows, mean over seeds, and accuracy minus "
        f"{base} in points ± standard error: {panel.title}.",
        ("method", *head),
        tuple(lines),
        note="Numbers in the head are tolerances asked for on calibration rows. A method whose gap "
        "is smaller than it had to be pays for that in accuracy here.",
    )


def order_table(part: Measured) -> Table:
    """Orders of the methods along N - 1."""
    reference, names = part.volumes.reference, part.panel.compared
    found = sensitivity(part.panel, reference)
    main = (part.volumes.hv.mean(), part.volumes.inverted.mean())
    lines = []
    for figure, means, values in zip((HV, INVERTED), found, main, strict=True):
        lower = figure == INVERTED
        at = reference.inverted_steps if lower else reference.steps
        ranked = values[names].sort_values(ascending=lower, kind="stable").index
        lines.append((figure, f"{at} (main)", " > ".join(ranked), "-"))
        for order in orders(means, values, lower_is_better=lower):
            stretch = f"{order.first:.1f} to {order.last:.1f}"
            lines.append((figure, stretch, " > ".join(order.methods), number(order.tau, ".2f")))
    return Table(
        f"Orders of the methods, best first: {part.panel.title}.",
        ("figure", "N - 1", "order", "tau"),
        tuple(lines),
        note="An order of means alone doesn't say that the methods differ.",
    )


# ---- cost and tolerances as text ---------------------------------------------------------------


def cost_tables(study: Study, panel: Panel) -> list[Table]:
    """Seconds, and ratios to the baseline beside the paper's."""
    frame = cost(study, panel).set_index("method")
    names = [m.name for m in study.plan.methods if m.name in frame.index]
    base, n = study.plan.baseline, study.plan.settings
    columns = {
        "train_one": "train, 1 setting",
        "train": f"train, {n} settings",
        "adapt_one": "adapt, 1 tolerance",
        "adapt_many": f"adapt, {n} tolerances",
        "predict_one": "decide, test rows",
    }
    seconds = [(name, *(brief(frame.loc[name, c]) for c in columns)) for name in names]
    tables = [
        Table(
            f"Wall-clock seconds: {panel.title}.",
            ("method", *columns.values()),
            tuple(seconds),
            note="Where one training serves all settings, both columns are that training.",
            label=_label("cost", panel),
        )
    ]
    if base not in names:
        return tables if names else []
    known = paper.knows(panel.dataset, panel.criterion)
    methods = {m.name: m for m in study.plan.methods}
    ratios = []
    for name in names:
        line = (name, *(brief(frame.loc[name, c] / frame.loc[base, c]) for c in columns))
        theirs = _paper_ratios(methods[name], methods[base], panel.dataset) if known else ()
        ratios.append(line + theirs)
    published = ("paper: train", "paper: adapt", "paper: decide") if known else ()
    note = (
        "The paper trains one setting. It decides for one parameter of EPO, FairBiNN and YOTO, and "
        "for ten of FairBayes and GFB; for how many its adaptation is, it doesn't say."
    )
    ratio_table = Table(
        f"Ratios to {base}: {panel.title}.",
        ("method", *columns.values(), *published),
        tuple(ratios),
        note=note if known else "",
        label=_label("cost-ratios", panel),
    )
    return [*tables, ratio_table]


def _paper_ratios(method: Method, base: Method, dataset: str) -> tuple[str, ...]:
    column, under = paper.column(method), paper.column(base)
    if column is None or under is None:
        return ("-", "-", "-")
    mine, other = paper.COST[dataset][column], paper.COST[dataset][under]
    adapt = mine.train if mine.adaptation is None else mine.adaptation
    below = other.train if other.adaptation is None else other.adaptation
    return (
        brief(mine.train / other.train),
        brief(adapt / below) if below else "-",
        brief(mine.inference / other.inference),
    )


def fitting_table(study: Study, panel: Panel) -> Table:
    """What fitting cost in the study trials."""
    frame, base = fitting(panel), study.plan.baseline
    under = frame.loc[frame["method"] == base, "fit"].mean()
    lines = tuple(
        (
            entry.method,
            str(entry.seeds),
            number(entry.epochs, ".1f"),
            brief(entry.fit),
            brief(entry.fit / under if under > 0 else NAN),
            brief(entry.calibrate),
        )
        for entry in frame.itertuples(index=False)
    )
    return Table(
        f"Processor seconds of the study trials, with early stopping, mean over seeds: "
        f"{panel.title}.",
        ("method", "seeds", "epochs", "fit", f"fit, ratio to {base}", "calibrate"),
        lines,
        note="Epochs are the mean over a trial's networks. EPO and FairBiNN fit all settings.",
        label=_label("fit", panel),
    )


def held_table(panel: Panel) -> Table:
    """How often tolerances held, over all of them."""
    lines = tuple(
        (
            entry.method,
            str(entry.wishes),
            *(share(v) for v in (entry.feasible, entry.held)),
            *(share(v) for v in (entry.certified, entry.certified_held)),
        )
        for entry in held(panel).itertuples(index=False)
    )
    return Table(
        f"How often tolerances held on test rows, over all seeds and tolerances: {panel.title}.",
        ("method", "wishes", "feasible", "held, plain", "certifiable", "held, certified"),
        lines,
        note="Held: share of the feasible, and of the certifiable, wishes.",
        label=_label("held", panel),
    )


def held_by_tolerance(study: Study, panel: Panel) -> Table | None:
    """The same at those common tolerances that are among the plan's gaps."""
    frames = {t: held(panel, [t]).set_index("method") for t in study.plan.gaps}
    frames = {t: frame for t, frame in frames.items() if frame["wishes"].any()}
    if not frames:
        return None
    lines = []
    for name in panel.compared:
        entries = (frame.loc[name] for frame in frames.values())
        cells = (
            f"{share(e.held)} / {share(e.certified_held)} ({share(e.certified)})" for e in entries
        )
        lines.append((name, *cells))
    return Table(
        f"By tolerance: held plain / held certified (share certifiable): {panel.title}.",
        ("method", *(f"tolerance {t:g}" for t in frames)),
        tuple(lines),
    )
