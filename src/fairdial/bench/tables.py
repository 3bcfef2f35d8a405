"""The tables of a report: each as rows of text."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from fairdial.bench import paper
from fairdial.bench.curves import (
    NAN,
    POINTS,
    Panel,
    Study,
    at_tolerances,
    held,
    matched_difference,
    mean_of,
    reached,
)
from fairdial.bench.plan import Method
from fairdial.bench.reference import orders, sensitivity
from fairdial.bench.statistics import (
    HV,
    INVERTED,
    MATCHED,
    MOST_SEEDS,
    Measured,
    Paired,
    corrected,
    cost,
    fitting,
    main_pairs,
    no_better_than_constant,
    paired,
)

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
            m.estimator + (f" on {' and '.join(m.scorers)}" if m.scorers else ""),
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
        note="A null row repeats a method with another seed for all that it draws, such as "
        "weights and batches: what differs there is noise. What draws nothing, as logistic "
        "regression, is the same again."
        if nulls
        else "",
    )


def _changes(method: Method) -> str:
    words = [f"{k}={v!r}" for k, v in sorted({**method.arguments, **method.network}.items())]
    words += [f"encoder's {k}={v!r}" for k, v in sorted(method.encoder.items())]
    if method.calibration != "apart":
        words.append(f"calibration {method.calibration}")
    if method.pictures != "frozen":
        words.append(f"pictures {method.pictures}")
    if method.sees_group:
        words.append("sees the group")
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


NO_BETTER = "no better than constant"


def hv_table(study: Study, part: Measured) -> Table:
    """HV and inverted HV, mean and standard deviation (ddof 0), beside the paper's."""
    panel = part.panel
    known = paper.knows(panel.dataset, panel.criterion)
    constant = no_better_than_constant(study, panel)
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
        line.append(number(constant[method.name].mean(), ".1f"))
        if known:
            published = (paper.HV[panel.dataset], paper.INVERTED_HV[panel.dataset])
            line += [_spread(table.get(paper.column(method) or "")) for table in published]
        lines.append(tuple(line))
    theirs = ("paper: HV", "paper: inverted HV") if known else ()
    return Table(
        f"HV and inverted HV: {panel.title}.",
        ("method", "seeds", "HV", "inverted HV", "largest gap", NO_BETTER, *theirs),
        tuple(lines),
        label=_label("hv", panel),
    )


def _spread(entry: paper.Spread | None) -> str:
    return "-" if entry is None else f"{entry.mean:.4f} ± {entry.sd:.3f}"


INTERVALS = ("95% interval", "corrected interval")
PAIRED_HEAD = ("seeds", "mean", "Q1", "Q2", "Q3", "std. error", *INTERVALS, "seeds needed")
PAIRED_NOTE = (
    "Corrected: Nadeau and Bengio's interval, for seeds that split the same rows; seeds needed are "
    "by its error."
)


def _paired_cells(found: Paired, spec: str) -> list[str]:
    """Under PAIRED_HEAD; the standard error and the first interval are plain."""
    sure = corrected(found)
    needed = f"over {MOST_SEEDS}" if np.isinf(sure.needed) else number(sure.needed, ".0f")
    return [
        str(found.seeds),
        *(number(value, spec) for value in (found.mean, found.q1, found.q2, found.q3)),
        number(found.error, spec.lstrip("+")),
        interval(found, spec),
        interval(sure, spec),
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
        found = part.difference(figure, a, b)
        line = [f"{a} - {b}", *_paired_cells(found, "+.4f")]
        if theirs:
            known = theirs.get(paper.column(methods[b]) or "") if a == plan.main else None
            line.append(" / ".join(f"{value:+.4f}" for value in known) if known else "-")
        lines.append(tuple(line))
    good = "negative" if figure == INVERTED else "positive"
    return Table(
        f"Differences of {figure}: {panel.title}; {good} is good for {plan.main}.",
        ("difference", *PAIRED_HEAD, *(("paper: mean / Q1 / Q2 / Q3",) if theirs else ())),
        tuple(lines),
        note=PAIRED_NOTE,
        label=_label(f"{figure.lower().replace(' ', '-')}-quartiles", panel),
    )


def matched_quartiles(study: Study, part: Measured) -> Table:
    """Main minus the others in accuracy at matched gaps."""
    lines = []
    for a, b in main_pairs(part.panel, study.plan.main):
        for gap in part.by_gap:
            found = paired(matched_difference(part.panel, gap, a, b))
            lines.append((f"{a} - {b}", f"{gap:g}", *_paired_cells(found, "+.2f")))
        found = part.difference(MATCHED, a, b)
        lines.append((f"{a} - {b}", "mean", *_paired_cells(found, "+.2f")))
    return Table(
        f"Differences of accuracy at matched gaps, in points: {part.panel.title}; positive is good "
        f"for {study.plan.main}.",
        ("difference", "gap", *PAIRED_HEAD),
        tuple(lines),
        note="Seeds are those where both methods reach the gap; the mean is, by seed, over the "
        f"gaps that both reach. {PAIRED_NOTE}",
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
        found = [paired(matched_difference(part.panel, gap, name, base)) for gap in part.by_gap]
        found.append(part.difference(MATCHED, name, base))
        lines.append((name, *("-" if name == base else _points(each) for each in found)))
    return Table(
        f"The same minus {base}, in points of accuracy ± standard error, paired by seed: "
        f"{part.panel.title}.",
        ("method", *(f"gap {gap:g}" for gap in part.by_gap), "mean over gaps"),
        tuple(lines),
        label=_label("matched-differences", part.panel),
    )


def _points(found: Paired) -> str:
    return plus_minus(found.mean, found.error, "+.2f")


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
            off = paired(POINTS * (accuracy[t][name] - accuracy[t][base]))
            line.append("-" if name == base else _points(off))
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
        "predict_one": "decide, 1 tolerance",
        "predict_many": f"decide, {n} tolerances",
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
