"""The tables of a report, as rows of text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from fairdial.bench import paper
from fairdial.bench.comparisons import (
    HV,
    INVERTED,
    MATCHED,
    POINTS,
    KeyFigures,
    at_tolerances,
    cost,
    fitting,
    held,
    main_pairs,
    matched_difference,
    no_better_than_constant,
    reached,
)
from fairdial.bench.curves import NAN, Panel, Study, mean_of
from fairdial.bench.hypervolume import orders, sensitivity
from fairdial.bench.plan import Method
from fairdial.bench.statistics import MOST_SEEDS, Paired, corrected, paired
from fairdial.bench.store import Config

DECIMAL = re.compile(r"\d+\.\d+")  # in a warning: a figure of one trial


class Table(NamedTuple):
    """Cells as text; a table with a label also goes to LaTeX."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    label: str = ""


# ---- numbers as text ---------------------------------------------------------------------------


def number(value: float, spec: str = ".4f") -> str:
    """Return a number as text; "-" for NaN."""
    return "-" if np.isnan(value) else f"{value:{spec}}"


def plus_minus(mean: float, spread: float, spec: str = ".4f") -> str:
    """Return a mean with its spread or error, if there is one."""
    more = "" if np.isnan(spread) else f" ± {number(spread, spec.lstrip('+'))}"
    return f"{number(mean, spec)}{more}"


def interval(found: Paired, spec: str) -> str:
    """Return the ends of the 95% interval."""
    if np.isnan(found.low):
        return "-"
    return f"{number(found.low, spec)} to {number(found.high, spec)}"


def brief(value: float) -> str:
    """Return three significant digits, without exponents."""
    return "-" if np.isnan(value) else np.format_float_positional(float(f"{value:.3g}"), trim="-")


def percent(value: float) -> str:
    """Return a share as a percentage."""
    return "-" if np.isnan(value) else f"{100 * value:.0f}%"


def _label(kind: str, panel: Panel) -> str:
    return re.sub(r"[^\w:.]|_", "-", f"tab:{kind}-{panel.dataset}-{panel.criterion}")


# ---- what was run ------------------------------------------------------------------------------


def methods_table(study: Study) -> Table:
    """Return the methods, their settings and how many of their trials are done."""
    done = Counter(record["config"]["method"]["name"] for record in study.records)
    planned = Counter(config["method"]["name"] for config in study.plan.trials())
    failed = Counter(config["method"]["name"] for config, _ in study.failed)
    rows = [
        (
            m.name,
            m.estimator + (f" with {' and '.join(m.scorers)}" if m.scorers else ""),
            m.settings,
            _changes(m),
            f"{done[m.name]} of {planned[m.name]}",
            str(failed[m.name]),
        )
        for m in study.plan.methods
    ]
    nulls = any(m.seed_offset for m in study.plan.methods)
    return Table(
        "Methods and their settings.",
        ("method", "estimator", "settings", "changed", "trials done", "failed"),
        tuple(rows),
        note="A null method repeats another one with a different seed for weights and batches: its "
        "difference is noise. A method without randomness, such as logistic regression, repeats "
        "exactly."
        if nulls
        else "",
    )


def _changes(method: Method) -> str:
    changes = [f"{k}={v!r}" for k, v in sorted({**method.arguments, **method.network}.items())]
    if isinstance(method.encoder, str):
        changes.append(f"encoder {method.encoder}")
    else:
        changes += [f"encoder {k}={v!r}" for k, v in sorted(method.encoder.items())]
    if method.calibration != "apart":
        changes.append(f"calibration {method.calibration}")
    if method.trained != "none":
        changes.append(f"trained {method.trained}")
    if method.sees_group:
        changes.append("sees the group")
    if method.seed_offset:
        changes.append(f"null method: seed + {method.seed_offset}")
    return ", ".join(changes) or "-"


def failed_table(study: Study) -> Table:
    """Return the trials that failed, with their errors."""
    rows = tuple((*_names(config), error) for config, error in study.failed)
    return Table("Failed trials.", ("kind", "data", "method", "seed", "error"), rows)


def missing_table(study: Study) -> Table:
    """Return how many trials of each kind are missing."""
    counts = Counter(_names(config)[:3] for config in study.missing)
    rows = tuple((*names, str(n)) for names, n in counts.items())
    return Table("Missing trials.", ("kind", "data", "method", "trials"), rows)


def _names(config: Config) -> tuple[str, str, str, str]:
    data = f"{config['dataset']}, {config['criterion'].replace('_', ' ')}"
    return config["kind"], data, config["method"]["name"], str(config["seed"])


def versions_table(study: Study) -> Table:
    """Return the versions of the code and of packages."""
    found: dict[str, Counter[str]] = {}
    for record in study.records:
        entries = {"code": record["code"], **record.get("environment", {})}
        if "command" in record:
            entries["command"] = record["command"]
        for name, value in sorted(entries.items()):
            found.setdefault(name, Counter())[str(value)] += 1
    rows = []
    for name, counts in found.items():
        several = len(counts) > 1
        values = (f"{v} ({n} trials)" if several else v for v, n in sorted(counts.items()))
        rows.append((name, ", ".join(values)))
    mixed = [name for name, counts in found.items() if len(counts) > 1]
    return Table(
        "Versions in the records.",
        ("name", "version"),
        tuple(rows),
        note=f"Trials differ in: {', '.join(mixed)}." if mixed else "",
    )


def warnings_table(study: Study) -> Table:
    """Return the warnings of trials, the most frequent first; "..." for numbers that differ."""
    counts: Counter[str] = Counter()
    texts: dict[str, set[str]] = {}
    for record in study.records:
        found = {DECIMAL.sub("...", message): message for message in record.get("warnings", ())}
        counts.update(found.keys())
        for pattern, message in found.items():
            texts.setdefault(pattern, set()).add(message)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = {p: min(found) if len(found) == 1 else p for p, found in texts.items()}
    return Table(
        "Warnings, and the number of trials with each.",
        ("warning", "trials"),
        tuple((shown[pattern], str(n)) for pattern, n in ordered),
    )


# ---- hypervolume and paired differences --------------------------------------------------------


def hv_table(study: Study, part: KeyFigures) -> Table:
    """Return HV and inverted HV, mean and standard deviation (ddof 0), beside the paper's."""
    panel = part.panel
    published = paper.has_results(panel.dataset, panel.criterion)
    constant = no_better_than_constant(study, panel)
    rows = []
    for method in study.plan.methods:
        if method.seed_offset:
            continue
        trials = panel.of(method.name)
        row = [method.name, str(len(trials))]
        for frame in (part.volumes.hv, part.volumes.inverted):
            values = frame[method.name]
            row.append(plus_minus(values.mean(), values.std(ddof=0) if len(trials) > 1 else NAN))
        row.append(number(mean_of([trial.points[:, 1].max() for trial in trials])))
        row.append(number(constant[method.name].mean(), ".1f"))
        if published:
            spreads = (paper.HV[panel.dataset], paper.INVERTED_HV[panel.dataset])
            row += [_spread(spread.get(paper.column(method) or "")) for spread in spreads]
        rows.append(tuple(row))
    theirs = ("paper: HV", "paper: inverted HV") if published else ()
    return Table(
        f"HV and inverted HV: {panel.title}.",
        (
            "method", "trials", "HV", "inverted HV", "largest gap", "no better than constant",
            *theirs,
        ),
        tuple(rows),
        label=_label("hv", panel),
    )  # fmt: skip


def _spread(entry: paper.Spread | None) -> str:
    return "-" if entry is None else f"{entry.mean:.4f} ± {entry.sd:.3f}"


PAIRED_HEAD = (
    "seeds", "mean", "Q1", "Q2", "Q3", "std. error", "95% interval", "corrected interval",
    "detectable", "seeds needed",
)  # fmt: skip
PAIRED_NOTE = (
    "The corrected interval (Nadeau and Bengio) accounts for splits of the same rows; its error "
    "also gives the detectable difference (80% power) and the seeds needed."
)


def _paired_cells(found: Paired, spec: str) -> list[str]:
    """Return the cells under PAIRED_HEAD; the standard error and first interval are plain."""
    sure = corrected(found)
    needed = f"over {MOST_SEEDS}" if np.isinf(sure.needed) else number(sure.needed, ".0f")
    return [
        str(found.seeds),
        *(number(value, spec) for value in (found.mean, found.q1, found.q2, found.q3)),
        number(found.error, spec.lstrip("+")),
        interval(found, spec),
        interval(sure, spec),
        number(sure.detectable, spec.lstrip("+")),
        needed,
    ]


def quartile_table(study: Study, part: KeyFigures, quantity: str) -> Table:
    """Return main minus the others in HV or inverted HV, beside the paper's."""
    panel, plan = part.panel, study.plan
    methods = {method.name: method for method in plan.methods}
    theirs: dict[str, paper.Quartiles] = {}
    if paper.has_results(panel.dataset, panel.criterion) and (
        paper.column(methods[plan.main]) == paper.MAIN
    ):
        published = paper.HV_QUARTILES if quantity == HV else paper.INVERTED_HV_QUARTILES
        theirs = published[panel.dataset]
    rows = []
    for a, b in main_pairs(panel, plan.main):
        row = [f"{a} - {b}", *_paired_cells(part.difference(quantity, a, b), "+.4f")]
        if theirs:
            known = theirs.get(paper.column(methods[b]) or "") if a == plan.main else None
            row.append(" / ".join(f"{value:+.4f}" for value in known) if known else "-")
        rows.append(tuple(row))
    sign = "negative" if quantity == INVERTED else "positive"
    return Table(
        f"Differences of {quantity}: {panel.title}; {sign} favors {plan.main}.",
        ("difference", *PAIRED_HEAD, *(("paper: mean / Q1 / Q2 / Q3",) if theirs else ())),
        tuple(rows),
        note=PAIRED_NOTE,
        label=_label(f"{quantity.lower().replace(' ', '-')}-quartiles", panel),
    )


def matched_quartiles(study: Study, part: KeyFigures) -> Table:
    """Return main minus the others in accuracy at matched gaps."""
    rows = []
    for a, b in main_pairs(part.panel, study.plan.main):
        for gap in part.by_gap:
            found = paired(matched_difference(part.panel, gap, a, b), part.panel.ratio)
            rows.append((f"{a} - {b}", f"{gap:g}", *_paired_cells(found, "+.2f")))
        found = part.difference(MATCHED, a, b)
        rows.append((f"{a} - {b}", "mean", *_paired_cells(found, "+.2f")))
    return Table(
        f"Differences of accuracy at matched gaps, in points: {part.panel.title}; positive favors "
        f"{study.plan.main}.",
        ("difference", "gap", *PAIRED_HEAD),
        tuple(rows),
        note="Only seeds in which both methods reach the gap count; the mean of a seed is over the "
        f"gaps that both reach. {PAIRED_NOTE}",
        label=_label("matched-quartiles", part.panel),
    )


# ---- accuracy at gaps and tolerances -----------------------------------------------------------


def _with_nulls(panel: Panel) -> list[str]:
    return [*panel.compared, *(null for null, _ in panel.nulls)]


def matched_table(part: KeyFigures) -> Table:
    """Return the mean accuracy at matched gaps."""
    rows = []
    for name in _with_nulls(part.panel):
        row = [name]
        for values in part.by_gap.values():
            there, of = reached(values, part.panel, name)
            mean = number(values[name].mean()) if there else "not reached"
            row.append(mean if there in (0, of) else f"{mean} ({there} of {of})")
        rows.append(tuple(row))
    return Table(
        f"Accuracy at matched gaps on test rows, mean over seeds: {part.panel.title}.",
        ("method", *(f"gap {gap:g}" for gap in part.by_gap)),
        tuple(rows),
        note="In parentheses: how many seeds reached the gap, if not all did.",
        label=_label("matched", part.panel),
    )


def matched_differences(study: Study, part: KeyFigures) -> Table:
    """Return the differences from the baseline at matched gaps, in points."""
    base = study.plan.baseline
    rows = []
    for name in _with_nulls(part.panel):
        found = [paired(matched_difference(part.panel, gap, name, base)) for gap in part.by_gap]
        found.append(part.difference(MATCHED, name, base))
        rows.append((name, *("-" if name == base else _points(each) for each in found)))
    return Table(
        f"Difference from {base} in points of accuracy ± standard error, paired by seed: "
        f"{part.panel.title}.",
        ("method", *(f"gap {gap:g}" for gap in part.by_gap), "mean over gaps"),
        tuple(rows),
        label=_label("matched-differences", part.panel),
    )


def _points(found: Paired) -> str:
    return plus_minus(found.mean, found.error, "+.2f")


def grid_table(study: Study, panel: Panel) -> Table | None:
    """Return accuracy and gap at the common tolerances that are among the plan's gaps."""
    base = study.plan.baseline
    accuracy, gaps = at_tolerances(panel, 0), at_tolerances(panel, 1)
    chosen = [t for t in accuracy if np.isclose(t, study.plan.gaps).any()]
    if not chosen:
        return None
    rows = []
    for name in _with_nulls(panel):
        row = [name]
        for t in chosen:
            row += [number(accuracy[t][name].mean()), number(gaps[t][name].mean())]
            off = paired(POINTS * (accuracy[t][name] - accuracy[t][base]))
            row.append("-" if name == base else _points(off))
        rows.append(tuple(row))
    head = (f"{what}, {t:g}" for t in chosen for what in ("accuracy", "gap", "points"))
    return Table(
        "At common tolerances: accuracy and gap on test rows, mean over seeds, and the difference "
        f"in accuracy from {base} in points ± standard error: {panel.title}.",
        ("method", *head),
        tuple(rows),
        note="The column heads give the tolerance on calibration rows. A method whose gap is "
        "smaller than required loses accuracy here.",
    )


def order_table(part: KeyFigures) -> Table:
    """Return the orders of the methods along N - 1."""
    reference, names = part.volumes.reference, part.panel.compared
    found = sensitivity(part.panel, reference)
    main = (part.volumes.hv.mean(), part.volumes.inverted.mean())
    rows = []
    for quantity, means, values in zip((HV, INVERTED), found, main, strict=True):
        lower = quantity == INVERTED
        at = reference.inverted_steps if lower else reference.steps
        ranked = values[names].sort_values(ascending=lower, kind="stable").index
        rows.append((quantity, f"{at} (main)", " > ".join(ranked), "-"))
        for order in orders(means, values, lower_is_better=lower):
            stretch = f"{order.first:.1f} to {order.last:.1f}"
            rows.append((quantity, stretch, " > ".join(order.methods), number(order.tau, ".2f")))
    return Table(
        f"Orders of the methods, best first: {part.panel.title}.",
        ("quantity", "N - 1", "order", "tau"),
        tuple(rows),
        note="An order of means doesn't show that the methods differ.",
    )


# ---- cost and tolerances -----------------------------------------------------------------------


def cost_tables(study: Study, panel: Panel) -> list[Table]:
    """Return seconds, and ratios to the baseline beside the paper's."""
    frame = cost(study, panel)
    methods = {m.name: m for m in study.plan.methods if m.name in frame.index}
    base, n = study.plan.baseline, study.plan.settings
    columns = {
        "train_one": "train, 1 setting",
        "train": f"train, {n} settings",
        "adapt_one": "adapt, 1 tolerance",
        "adapt_many": f"adapt, {n} tolerances",
        "predict_one": "decide, 1 tolerance",
        "predict_many": f"decide, {n} tolerances",
    }
    if not methods:
        return []
    published = paper.has_results(panel.dataset, panel.criterion)
    theirs = ("paper: train", "paper: adapt", "paper: decide") if published else ()
    seconds = Table(
        f"Processor seconds: {panel.title}.",
        ("method", *columns.values(), *theirs),
        tuple(
            (
                name,
                *(brief(frame.loc[name, c]) for c in columns),
                *(_paper_seconds(method, panel.dataset) if published else ()),
            )
            for name, method in methods.items()
        ),
        note="If one training serves all settings, both columns show that training."
        + (" The paper's are wall-clock seconds on an A100." if published else ""),
        label=_label("cost", panel),
    )
    if base not in methods:
        return [seconds]
    rows = []
    for name, method in methods.items():
        row = (name, *(brief(frame.loc[name, c] / frame.loc[base, c]) for c in columns))
        rows.append(
            row + (_paper_ratios(method, methods[base], panel.dataset) if published else ())
        )
    note = (
        "The paper trains one setting. It decides for one parameter with EPO, FairBiNN and YOTO, "
        "and for ten with FairBayes and GFB; it doesn't say for how many its adaptation is."
    )
    ratios = Table(
        f"Ratios to {base}: {panel.title}.",
        ("method", *columns.values(), *theirs),
        tuple(rows),
        note=note if published else "",
        label=_label("cost-ratios", panel),
    )
    return [seconds, ratios]


def _paper_seconds(method: Method, dataset: str) -> tuple[str, ...]:
    column = paper.column(method)
    if column is None:
        return ("-", "-", "-")
    one = paper.COST[dataset][column]
    adapt = "train again" if one.adaptation is None else brief(one.adaptation)
    return brief(one.train), adapt, brief(one.inference)


def _paper_ratios(method: Method, base: Method, dataset: str) -> tuple[str, ...]:
    column, under = paper.column(method), paper.column(base)
    if column is None or under is None:
        return ("-", "-", "-")
    one, other = paper.COST[dataset][column], paper.COST[dataset][under]
    adapt = one.train if one.adaptation is None else one.adaptation
    below = other.train if other.adaptation is None else other.adaptation
    return (
        brief(one.train / other.train),
        brief(adapt / below) if below else "-",
        brief(one.inference / other.inference),
    )


def fitting_table(study: Study, panel: Panel) -> Table:
    """Return the processor time of fitting in the study trials."""
    frame, base = fitting(panel), study.plan.baseline
    under = frame["fit"].get(base, NAN)
    rows = tuple(
        (
            name,
            f"{row['trials']:.0f}",
            number(row["epochs"], ".1f"),
            number(row["change"], ".4f"),
            brief(row["fit"]),
            brief(row["fit"] / under if under > 0 else NAN),
            brief(row["calibrate"]),
        )
        for name, row in _rows(frame)
    )
    return Table(
        f"Processor seconds of the study trials, with early stopping, mean over trials: "
        f"{panel.title}.",
        ("method", "trials", "epochs", "change", "fit", f"fit, ratio to {base}", "calibrate"),
        rows,
        note="Epochs are the mean over a trial's networks. Change is the mean absolute change of "
        "validation accuracy from one epoch to the next. EPO and FairBiNN fit all settings.",
        label=_label("fit", panel),
    )


def _rows(frame: pd.DataFrame) -> list[tuple[str, Mapping[str, float]]]:
    return [(str(name), row.to_dict()) for name, row in frame.iterrows()]


def held_table(panel: Panel) -> Table:
    """Return how often tolerances held, over all of them."""
    shares = ("feasible", "held", "certified", "certified_held")
    rows = tuple(
        (name, f"{row['cases']:.0f}", *(percent(row[share]) for share in shares))
        for name, row in _rows(held(panel))
    )
    return Table(
        f"How often tolerances held on test rows, over all seeds and tolerances: {panel.title}.",
        ("method", "cases", "feasible", "held, plain", "certifiable", "held, certified"),
        rows,
        note="Held: share of the feasible and of the certifiable cases.",
        label=_label("held", panel),
    )


def held_by_tolerance(study: Study, panel: Panel) -> Table | None:
    """Return how often tolerances held, at those that are among the plan's gaps."""
    frames = {t: held(panel, [t]) for t in study.plan.gaps}
    frames = {t: frame for t, frame in frames.items() if frame["cases"].any()}
    if not frames:
        return None
    return Table(
        f"By tolerance: held plain / held certified (share certifiable): {panel.title}.",
        ("method", *(f"tolerance {t:g}" for t in frames)),
        tuple(
            (name, *(_held_cell(frame.loc[name]) for frame in frames.values()))
            for name in panel.compared
        ),
    )


def _held_cell(row: pd.Series) -> str:
    return (
        f"{percent(row['held'])} / {percent(row['certified_held'])} ({percent(row['certified'])})"
    )
