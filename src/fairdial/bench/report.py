"""Write the report of a study: Markdown, LaTeX tables and one HTML page.

A report is a pure function of the plan and its records: the same records give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fairdial.bench import figures, paper, tables
from fairdial.bench.comparisons import (
    MATCHED,
    QUANTITIES,
    Claim,
    KeyFigures,
    claims,
    key_figures,
    main_pairs,
)
from fairdial.bench.curves import Study, read_study
from fairdial.bench.hypervolume import SENSITIVITY, Reference
from fairdial.bench.plan import Plan
from fairdial.bench.statistics import LEVEL, MOST_SEEDS, POWER, RATIOS, SPLIT_RATIO
from fairdial.bench.store import Record, replace_file
from fairdial.bench.tables import number
from fairdial.bench.writers import (
    Block,
    Drawing,
    Heading,
    Items,
    Text,
    to_html,
    to_latex,
    to_markdown,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPLORED = (
    "This is an exploration: what the tables call test rows are validation rows; the test rows of "
    "these splits were not read."
)


def write_report(
    plan: Plan, records: Iterable[Record], folder: str | Path, *, markdown: bool = False
) -> list[Path]:
    """Write the report of a study.

    Parameters
    ----------
    plan : Plan
        The plan.
    records : iterable of Record
        Records of its trials, also failed ones; the report lists what is missing.
    folder : path
        Created if needed; files of an earlier report are replaced.
    markdown : bool
        Write only ``report.md`` and its PNG files, to store them with the records.

    Returns
    -------
    list of Path
        ``report.html``, ``report.md``, ``tables.tex``, and ``figures/`` as PNG and PDF.
    """
    study = read_study(plan, records)
    parts = key_figures(study)
    found = claims(plan, parts)
    blocks = report_blocks(study, parts, found)
    drawn = _draw(study, parts, found, blocks)
    contents: dict[str, bytes] = {"report.md": to_markdown(plan.title, blocks).encode()}
    if not markdown:
        inlined = {name: figures.inline(kinds["svg"], name) for name, kinds in drawn.items()}
        contents["report.html"] = to_html(plan.title, blocks, inlined).encode()
        contents["tables.tex"] = to_latex(plan.title, blocks).encode()
    for name, kinds in drawn.items():
        shown = ("png",) if markdown else ("png", "pdf")
        contents |= {f"figures/{name}.{kind}": kinds[kind] for kind in shown}
    paths = {Path(folder) / name: content for name, content in contents.items()}
    for path, content in paths.items():
        replace_file(path, content)
    return list(paths)


def _draw(
    study: Study, parts: list[KeyFigures], found: list[Claim], blocks: list[Block]
) -> dict[str, dict[str, bytes]]:
    """Return the figures that the report shows, by name and format."""
    known: dict[str, Callable[[], Figure]] = {
        "tradeoffs": lambda: figures.draw_tradeoffs(study, parts),
        "tolerances": lambda: figures.draw_tolerances(study, parts),
        "logits": lambda: figures.draw_logits(study, parts),
        "areas": lambda: figures.draw_areas(study, parts),
        "sensitivity": lambda: figures.draw_sensitivity(study, parts),
        "differences": lambda: figures.draw_differences(study, parts, found),
    }
    shown = [block.name for block in blocks if isinstance(block, Drawing)]
    return {name: figures.render(known[name]) for name in shown}


# ---- sections ----------------------------------------------------------------------------------


def report_blocks(study: Study, parts: list[KeyFigures], found: list[Claim]) -> list[Block]:
    """Return the whole report."""
    sections = {"What was run": _what_was_run(study)}
    if parts:
        sections |= {
            "Trade-off curves": _curves(study),
            "Score distributions": _scores(study, parts),
            "HV and inverted HV": _hypervolume(study, parts),
            "Paired differences": _paired(study, parts),
            "Accuracy at matched gaps": _matched(study, parts),
            "Sensitivity to the reference point": _sensitivity(parts),
            "Cost": _cost(study, parts),
            "How often tolerances held": _held(study, parts),
            "What the seeds support": _support(study, found),
        }
    blocks = _short(study, found)
    for n, (title, section) in enumerate(sections.items(), start=1):
        blocks += [Heading(2, f"{n}. {title}"), *section]
    warned = tables.warnings_table(study)
    last = warned if warned.rows else Text("None.")
    return [*blocks, Heading(2, "Appendix: warnings"), last]


def _short(study: Study, found: list[Claim]) -> list[Block]:
    """Return the summary: whether the study is complete, and main against the baseline."""
    plan = study.plan
    blocks: list[Block] = []
    if not study.complete:
        text = (
            f"This study is incomplete: of {len(plan.trials())} trials, {len(study.missing)} are "
            f"missing and {len(study.failed)} failed. The report covers the others. HV will change "
            "when more trials are done, because it is normalized over all of them."
        )
        blocks.append(Text(text, urgent=True))
    few = min((claim.found.seeds for claim in found), default=len(plan.seeds))
    if few < 2:
        text = "Some comparisons have fewer than two seeds in common and show nothing."
        blocks.append(Text(text, urgent=True))
    main = [claim for claim in found if (claim.a, claim.b) == (plan.main, plan.baseline)]
    if main:
        sentences = tuple(f"{claim.panel}: {verdict(claim)}" for claim in main)
        blocks += [Heading(2, f"In short: {plan.main} versus {plan.baseline}"), Items(sentences)]
    return blocks


def _objective(plan: Plan) -> list[str]:
    if plan.objective == "accuracy":
        return []
    name = plan.objective
    if not isinstance(name, str):
        name = f"minus mean cost (false positive {name[0]:g}, false negative {name[1]:g})"
    return [f"Thresholds maximize {name.replace('_', ' ')}; the tables show accuracy."]


def _what_was_run(study: Study) -> list[Block]:
    plan = study.plan
    blocks: list[Block] = []
    if plan.notes.strip():
        blocks.append(Text(" ".join(plan.notes.split())))
    timings = [record.get("timing", {}) for record in study.records]
    seconds = sum(v for timing in timings for k, v in timing.items() if k.endswith("_cpu"))
    criteria = ", ".join(name.replace("_", " ") for name in plan.criteria)
    sample = f"; a sample of {plan.rows} rows of each" if plan.rows else ""
    if plan.train_rows:
        sample += f"; at most {plan.train_rows} training and validation rows of each group"
    facts = (
        f"Trials: {len(study.records)} of {len(plan.trials())} done, {len(study.missing)} missing, "
        f"{len(study.failed)} failed.",
        f"Data sets: {', '.join(plan.datasets)}{sample}. Criteria: {criteria}.",
        *_objective(plan),
        f"Seeds ({len(plan.seeds)}): {', '.join(map(str, plan.seeds))}. A seed fixes the split, "
        "the initial weights and the batches, which methods share.",
        *([f"Initializations per split: {plan.inits}."] if plan.inits > 1 else []),
        *([EXPLORED] if plan.evaluate == "validation" else []),
        f"Baseline: {plan.baseline}. Main method: {plan.main}.",
        f"Processor time of the study trials: {_duration(seconds)}.",
    )
    blocks += [Items(facts), tables.methods_table(study)]
    if study.ignored:
        blocks.append(Text(f"Records that don't belong to this plan: {study.ignored}."))
    if study.failed:
        blocks.append(tables.failed_table(study))
    if study.missing:
        blocks.append(tables.missing_table(study))
    if study.records:
        blocks.append(tables.versions_table(study))
    return blocks


def _duration(seconds: float) -> str:
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _curves(study: Study) -> list[Block]:
    base = study.plan.baseline
    return [
        Text(
            "Accuracy is on the vertical axis and the gap on the horizontal axis (the paper's "
            "figure swaps them): up and to the left is better."
        ),
        Drawing(
            "tradeoffs",
            "Accuracy and gap on test rows: mean over seeds of a method's own "
            f"{study.plan.settings} operating points, from the loosest to the tightest. Bands are "
            "one standard error in both directions. Below: the region of the baseline and the main "
            "method.",
        ),
        Drawing(
            "tolerances",
            "Results at common tolerances on calibration rows. Above: accuracy on test rows minus "
            f"that of {base}, paired by seed, in points; if differences are large, the axis is "
            "logarithmic beyond one point. Below: the gap on test rows. Bands are one standard "
            "error. If no operating point meets a tolerance, the one with the smallest gap counts.",
        ),
    ]


def _scores(study: Study, parts: list[KeyFigures]) -> list[Block]:
    names = (study.plan.baseline, study.plan.main)
    trials = [trial for part in parts for name in names for trial in part.panel.of(name)]
    if all(trial.histogram is None for trial in trials):
        return [Text("The records have no scores of these methods.")]
    return [
        Drawing(
            "logits",
            "Scores of the calibration rows in each group: mean density over trials. Filled: rows "
            "with a positive label. Dashed: the fairest threshold, mean over trials; the dial "
            "changes the decisions of the rows between 0 and that threshold. The outermost bins "
            "hold all rows beyond.",
        ),
    ]


def _hypervolume(study: Study, parts: list[KeyFigures]) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "HV is the area between a curve and a reference point that is worse than all of it: "
            "higher is better. Inverted HV is the area between a curve and a reference point that "
            "is better than all of it: lower is better. Accuracy and gap are first normalized by "
            "the extremes of the non-dominated points of all methods and seeds, without null "
            "methods. "
            "Values are mean ± standard deviation over seeds (divisor n, as in the paper)."
        ),
        Text(
            "Both depend on which methods are compared. A short curve improves inverted HV: "
            "without large gaps it has fewer bad points, not better ones. Read inverted HV along "
            "with the largest gap of a curve (on test rows, mean over seeds) and the accuracy at "
            "matched gaps."
        ),
        Text(
            "No better than constant: the mean number of a method's own operating points that are "
            "no more accurate on test rows than the best constant decision. If no other point of "
            "the curve dominates them, they widen the range that accuracy is normalized by, and so "
            "change the HV of all methods."
        ),
        Drawing(
            "areas",
            "What the two measure, for the operating points of one trial (the first split): HV is "
            "the area between the points and the lower right square, inverted HV the area between "
            "the points and the upper left square.",
        ),
    ]
    for part in parts:
        reference = part.volumes.reference
        blocks += [Heading(3, part.panel.title), Text(_reference(reference))]
        blocks += [Text(note, urgent=True) for note in reference.notes]
        blocks.append(tables.hv_table(study, part))
    if any(paper.has_results(part.panel.dataset, part.panel.criterion) for part in parts):
        blocks += [
            Text("This study differs from the paper as follows:"),
            Items(tuple(paper.differences(study.plan, study.records))),
        ]
    return blocks


def _reference(r: Reference) -> str:
    high = (r.low[0] + r.span[0], r.low[1] + r.span[1])
    out, into = 1 / r.steps, 1 / r.inverted_steps
    return (
        f"Accuracy {r.low[0]:.4f} to {high[0]:.4f} and gap {r.low[1]:.4f} to {high[1]:.4f} are "
        f"mapped to 0 to 1. N = {r.n}: the reference point of HV is ({-out:.4f}, {1 + out:.4f}). "
        f"N' = {r.n_dominated}: that of inverted HV is ({1 + into:.4f}, {-into:.4f})."
    )


def _paired(study: Study, parts: list[KeyFigures]) -> list[Block]:
    main = study.plan.main
    blocks: list[Block] = [
        Text(
            f"Differences by seed, {main} minus the other method; quartiles are interpolated "
            f"linearly. For HV and accuracy, positive favors {main}. For inverted HV, negative "
            f"favors {main}; the paper's caption of that table wrongly says positive. Standard "
            "errors and 95% intervals are plain; corrected intervals account for splits of the "
            "same rows (see the last section). At the observed spread, the corrected test detects "
            f"the difference under 'detectable' with {POWER:.0%} power, and the observed one with "
            f"about the number of seeds under 'seeds needed'; over {MOST_SEEDS} can mean that no "
            "number of splits of these rows is enough. Null methods are compared with the method "
            "that they repeat."
        ),
    ]
    for part in parts:
        blocks.append(Heading(3, part.panel.title))
        if main_pairs(part.panel, main):
            blocks += [tables.quartile_table(study, part, name) for name in QUANTITIES[1:]]
            blocks.append(tables.matched_quartiles(study, part))
        else:
            blocks.append(Text(f"Nothing to compare: {main} or all other methods have no trials."))
    return blocks


def _matched(study: Study, parts: list[KeyFigures]) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "For each trial, the tolerance is lowered until the gap on test rows reaches a given "
            "value; accuracy on test rows there is interpolated linearly. This compares curves, "
            "whatever tolerance leads to the gap. A gap below the whole curve is not reached; "
            "above the loosest point's gap, that point's accuracy counts. If some seeds don't "
            "reach a gap, the means of two methods may cover different seeds: then read the paired "
            "differences."
        ),
    ]
    for part in parts:
        common = tables.grid_table(study, part.panel)
        blocks += [
            Heading(3, part.panel.title),
            tables.matched_table(part),
            tables.matched_differences(study, part),
            common or Text("None of the plan's gaps is a common tolerance."),
        ]
    return blocks


def _sensitivity(parts: list[KeyFigures]) -> list[Block]:
    return [
        Text(
            f"N - 1 = N' - 1 takes {len(SENSITIVITY)} values from {SENSITIVITY[0]:g} to "
            f"{SENSITIVITY[-1]:g}, evenly on a logarithmic scale, with the same normalization. "
            "Kendall's tau compares each order of the methods with the main one: 1 is the same "
            "order, -1 the reverse."
        ),
        Drawing(
            "sensitivity",
            "Mean HV and inverted HV over seeds against the reference point. The star marks the "
            "values in this report.",
        ),
        *(tables.order_table(part) for part in parts),
    ]


def _cost(study: Study, parts: list[KeyFigures]) -> list[Block]:
    plan = study.plan
    blocks: list[Block] = []
    if plan.cost is None:
        blocks.append(Text("This plan has no cost trials."))
    else:
        runs = "one run" if plan.cost.repeats == 1 else f"the mean of {plan.cost.repeats} runs"
        blocks += [
            Text(
                f"Training is timed over {plan.cost.epochs} epochs without early stopping (the "
                f"paper: {paper.EPOCHS}), in processor time of one thread: {runs}. Scorers without "
                "epochs are fitted as usual. Decisions are for all test rows. The cost of another "
                "tolerance depends on the kind of method:"
            ),
            Items(
                (
                    "FairBayes and GFB find thresholds from the scores of the calibration rows, "
                    "once for all tolerances.",
                    "YOTO searches for weights with forward passes; the paper reports 0.",
                    f"EPO and FairBiNN train again; {plan.settings} settings are trained together.",
                )
            ),
        ]
        for panel in study.panels:
            found = tables.cost_tables(study, panel)
            blocks += found or [Text(f"No cost trial is finished: {panel.title}.")]
    return [*blocks, *(tables.fitting_table(study, part.panel) for part in parts)]


def _held(study: Study, parts: list[KeyFigures]) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "A case is a tolerance of the common grid at one seed. Plain: the operating point is "
            "within the tolerance on calibration rows, if that is feasible. Certified: the gap in "
            f"the population is within the tolerance with confidence {study.plan.confidence:g}, if "
            "the calibration rows allow such a certificate. Held: the gap on test rows was at most "
            "the tolerance. The gap on test rows is a sample and may exceed the tolerance even if "
            "the population's gap doesn't, so certified shares may fall below the confidence "
            "without contradicting it."
        ),
    ]
    for part in parts:
        more = tables.held_by_tolerance(study, part.panel)
        blocks += [Heading(3, part.panel.title), tables.held_table(part.panel)]
        blocks += [more] if more is not None else []
    return blocks


def _support(study: Study, found: list[Claim]) -> list[Block]:
    plan = study.plan
    blocks: list[Block] = [
        Text(
            f"Every method is compared with {plan.baseline}, and {plan.main} with the others, on "
            "three quantities, with 95% t intervals of the paired differences. Seeds split the "
            "same rows, so plain intervals are too narrow; what is supported depends on the "
            "corrected interval of Nadeau and Bengio (2003). Its standard error is the plain one "
            "times sqrt(1 + n r), with n seeds and r test rows per training row of a split "
            f"({_ratio(plan)}); p values and power use it too. Neither interval says anything "
            f"about other data sets. If no method differed, about {len(found) * (1 - LEVEL):.1f} "
            f"of {len(found)} such intervals would exclude 0 by chance; Holm's p values account "
            "for that, over all comparisons of this report. A difference no larger than a null "
            "method's is noise."
        ),
    ]
    if not found:
        return [*blocks, Text("There is nothing to compare.")]
    blocks.append(
        Drawing(
            "differences",
            f"Differences from {plan.baseline}, paired by seed, with 95% t intervals: thick lines "
            "are plain, thin lines corrected. Positive is better for accuracy and HV, negative for "
            "inverted HV. Null methods are gray.",
        )
    )
    for title in dict.fromkeys(claim.panel for claim in found):
        verdicts = tuple(verdict(claim) for claim in found if claim.panel == title)
        blocks += [Heading(3, title), Items(verdicts)]
    return blocks


def _ratio(plan: Plan) -> str:
    """Return the ratio of the correction, and whether the study's own is another."""
    fewer = ["trains on fewer rows"] if plan.train_rows is not None else []
    other = ["is measured on validation rows"] if plan.evaluate != "test" else []
    if not fewer and not other:
        return f"here {RATIOS[plan.split]:.3f}"
    return (
        f"{SPLIT_RATIO:.3f}, that of whole splits, though this study {' and '.join(fewer + other)}"
    )


def verdict(claim: Claim) -> str:
    """Return what the numbers say about a comparison, in one sentence."""
    found, sure = claim.found, claim.corrected
    spec, unit = ("+.2f", " points") if claim.quantity == MATCHED else ("+.4f", "")
    what = f"{claim.quantity}, {claim.a} - {claim.b}"
    if found.seeds == 0:
        return f"{what}: no seed has both methods."
    mean = f"{number(found.mean, spec)}{unit}"
    if found.seeds == 1:
        return f"{what}: {mean} on one seed, which shows nothing."
    between = f"corrected 95% interval {tables.interval(sure, spec)}"
    more = f"plain {tables.interval(found, spec)}; {found.seeds} seeds"
    holm = "Holm p below 0.001" if claim.adjusted < 0.001 else f"Holm p {claim.adjusted:.3f}"
    if claim.excludes_zero:
        alone = claim.adjusted > 1 - LEVEL
        support = "supported alone but not over all comparisons" if alone else "supported"
        text = (
            f"{support}, in favor of {claim.better} ({between}, which excludes 0; {more}; {holm})"
        )
    else:
        smallest = f"{number(sure.detectable, spec.lstrip('+'))}{unit}"
        text = (
            f"no difference established ({between}; {more}; {POWER:.0%} power to detect a "
            f"difference of {smallest}; {holm})"
        )
    if claim.null is not None:
        null = f"{tables.plus_minus(claim.null.mean, claim.null.error, spec)}{unit}"
        noise = ", at least as much, so this is noise" if claim.within_null else ""
        text += f"; the null method differs by {null}{noise}"
    return f"{what}: {mean}, {text}."
