"""The report of a study: Markdown, LaTeX tables and one HTML page, from a plan and its records.

A pure function: no clock, no machine, no chance. The same records give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fairdial.bench import figures, paper, tables
from fairdial.bench.curves import Study, read_study
from fairdial.bench.plan import Plan
from fairdial.bench.reference import SENSITIVITY, Reference
from fairdial.bench.statistics import (
    FIGURES,
    LEVEL,
    MATCHED,
    MOST_SEEDS,
    POWER,
    SPLIT_RATIO,
    Claim,
    Measured,
    claims,
    main_pairs,
    measured,
)
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

EXPLORED = (
    "An exploration: figures are from validation rows, though tables call them test rows; the test "
    "rows of these splits were not read."
)


def write_report(plan: Plan, records: Iterable[dict[str, Any]], folder: str | Path) -> list[Path]:
    """Write the report of a study.

    Parameters
    ----------
    plan : Plan
        What was to be run.
    records : iterable of dict
        Records of its trials, failed ones too; what is missing is said in the report.
    folder : path
        Made if need be; files of an earlier report are replaced.

    Returns
    -------
    list of Path
        ``report.html``, ``report.md``, ``tables.tex``, and ``figures/`` as PNG and PDF.
    """
    study = read_study(plan, records)
    parts, found = measured(study), claims(study)
    blocks = report_blocks(study, parts, found)
    drawn = _draw(study, parts, found, blocks)
    inlined = {name: figures.inline(kinds["svg"], name) for name, kinds in drawn.items()}
    contents: dict[str, bytes] = {
        "report.html": to_html(plan.title, blocks, inlined).encode(),
        "report.md": to_markdown(plan.title, blocks).encode(),
        "tables.tex": to_latex(plan.title, blocks).encode(),
    }
    for name, kinds in drawn.items():
        contents |= {f"figures/{name}.{kind}": kinds[kind] for kind in ("png", "pdf")}
    return [_write(Path(folder) / name, content) for name, content in contents.items()]


def _draw(
    study: Study, parts: list[Measured], found: list[Claim], blocks: list[Block]
) -> dict[str, dict[str, bytes]]:
    """The figures that the report shows."""
    known: dict[str, Callable[[], Any]] = {
        "tradeoffs": lambda: figures.draw_tradeoffs(study, parts),
        "tolerances": lambda: figures.draw_tolerances(study, parts),
        "sensitivity": lambda: figures.draw_sensitivity(study, parts),
        "differences": lambda: figures.draw_differences(study, parts, found),
    }
    shown = [block.name for block in blocks if isinstance(block, Drawing)]
    return {name: figures.render(known[name]) for name in shown}


def _write(path: Path, content: bytes) -> Path:
    """To a temporary name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}.part")
    half.write_bytes(content)
    os.replace(half, path)
    return path


# ---- sections ----------------------------------------------------------------------------------


def report_blocks(study: Study, parts: list[Measured], found: list[Claim]) -> list[Block]:
    """The whole report, whatever it is written as."""
    sections = {"What was run": _what_was_run(study)}
    if parts:
        sections |= {
            "Trade-off curves": _curves(study),
            "HV and inverted HV": _hypervolume(study, parts),
            "Paired differences": _paired(study, parts),
            "Accuracy at matched gaps": _matched(study, parts),
            "Sensitivity to the reference point": _sensitivity(parts),
            "Cost": _cost(study, parts),
            "How often the tolerance held": _held(study, parts),
            "What the number of seeds supports": _support(study, found),
        }
    blocks = _short(study, found)
    for n, (title, section) in enumerate(sections.items(), start=1):
        blocks += [Heading(2, f"{n}. {title}"), *section]
    warned = tables.warnings_table(study)
    last = warned if warned.lines else Text("None.")
    return [*blocks, Heading(2, "Appendix: warnings of the trials"), last]


def _short(study: Study, found: list[Claim]) -> list[Block]:
    """What comes first: whether the study is complete, and main against the baseline."""
    plan = study.plan
    blocks: list[Block] = []
    if not study.complete:
        told = (
            f"This study is incomplete. Of {len(plan.trials())} trials: {len(study.missing)} "
            f"missing, {len(study.failed)} failed. Everything below is about the others. HV will "
            "change with the rest, because it is normalised over all trials."
        )
        blocks.append(Text(told, urgent=True))
    few = min((claim.found.seeds for claim in found), default=len(plan.seeds))
    if few < 2:
        told = "Some comparisons have fewer than two seeds in common: they show nothing."
        blocks.append(Text(told, urgent=True))
    mine = [claim for claim in found if (claim.a, claim.b) == (plan.main, plan.baseline)]
    if mine:
        sentences = tuple(f"{claim.panel}: {verdict(claim)}" for claim in mine)
        blocks += [Heading(2, f"In short: {plan.main} against {plan.baseline}"), Items(sentences)]
    return blocks


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
    explored = plan.evaluate == "validation"
    told = (
        f"Trials: {len(study.records)} of {len(plan.trials())} done, {len(study.missing)} missing, "
        f"{len(study.failed)} failed.",
        f"Data sets: {', '.join(plan.datasets)}{sample}. Criteria: {criteria}.",
        f"Seeds ({len(plan.seeds)}): {', '.join(map(str, plan.seeds))}. A seed fixes the split, "
        "and a method's weights and batches; methods share them.",
        *([f"Initialisations of each: {plan.inits}."] if plan.inits > 1 else []),
        *([EXPLORED] if explored else []),
        f"Baseline: {plan.baseline}. Main method: {plan.main}.",
        f"Processor time of the study trials: {_duration(seconds)}.",
    )
    blocks += [Items(told), tables.methods_table(study)]
    if study.ignored:
        blocks.append(Text(f"Records that belong to no trial of this plan: {study.ignored}."))
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
            "Accuracy is vertical, the gap horizontal (the paper's figure has them the other way "
            "round): up and to the left is better."
        ),
        Drawing(
            "tradeoffs",
            "Accuracy and gap on test rows: mean over seeds for each of a method's own "
            f"{study.plan.settings} positions, joined from the loosest to the tightest. Bands are "
            "one standard error, in both directions. Below: the part where the baseline and the "
            "main method lie.",
        ),
        Drawing(
            "tolerances",
            "The common grid of tolerances, asked for on calibration rows. Above: accuracy on test "
            f"rows minus that of {base}, paired by seed, in points; where differences are large, "
            "the axis is logarithmic beyond one point. Below: the gap on test rows. Bands are one "
            "standard error. Where no position meets a tolerance, the one with the smallest gap is "
            "taken.",
        ),
    ]


def _hypervolume(study: Study, parts: list[Measured]) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "HV is the area between a curve and a reference point worse than all of it: more is "
            "better. Inverted HV is the area between a curve and a reference point better than all "
            "of it: less is better. Accuracy and gap are first mapped by the extremes of the "
            "non-dominated points of all methods and seeds; null rows have no say in that. Values "
            "are mean ± standard deviation over seeds (divisor n, as in the paper)."
        ),
        Text(
            "Both depend on which methods are compared. Inverted HV can be won by shrinking the "
            "curve: one that never has a large gap has fewer bad points, not better ones. Read it "
            "beside the largest gap (of a curve, on test rows, mean over seeds) and the accuracy "
            "at matched gaps."
        ),
        Text(
            "No better than constant: how many of a method's own positions are no more accurate on "
            "test rows than the better of always deciding yes and always deciding no, mean over "
            "seeds. Where their own curve doesn't dominate them, such points stretch the range "
            "that accuracy is mapped from, and so change the HV of all methods."
        ),
    ]
    for part in parts:
        reference = part.volumes.reference
        blocks += [Heading(3, part.panel.title), Text(_reference(reference))]
        blocks += [Text(note, urgent=True) for note in reference.notes]
        blocks.append(tables.hv_table(study, part))
    if any(paper.knows(part.panel.dataset, part.panel.criterion) for part in parts):
        blocks += [
            Text("This study differs from the paper in this:"),
            Items(tuple(paper.differences(study.plan))),
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


def _paired(study: Study, parts: list[Measured]) -> list[Block]:
    main = study.plan.main
    blocks: list[Block] = [
        Text(
            f"Differences by seed, {main} minus the other method; quartiles are interpolated "
            f"linearly. HV and accuracy: positive is good for {main}. Inverted HV: negative is "
            f"good for {main}; the paper's caption of that table says positive, which is wrong. "
            "Standard errors and 95% intervals are plain; corrected intervals allow for seeds "
            "that split the same rows (see the last section). Seeds needed: with about so many "
            f"the corrected test sees the observed difference with {POWER:.0%} power at the "
            f"observed spread; over {MOST_SEEDS} can mean that no number of splits of these rows "
            "is enough. Null rows are compared with the method that they repeat."
        ),
    ]
    for part in parts:
        blocks.append(Heading(3, part.panel.title))
        if main_pairs(part.panel, main):
            blocks += [tables.quartile_table(study, part, name) for name in FIGURES[1:]]
            blocks.append(tables.matched_quartiles(study, part))
        else:
            blocks.append(Text(f"Nothing to compare: {main} has no trials, or no rival has any."))
    return blocks


def _matched(study: Study, parts: list[Measured]) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "For each trial the dial is turned from loose to tight, and accuracy on test rows is "
            "read, by linear interpolation, where the gap on test rows has come down to a given "
            "value. This asks what a curve is worth, whatever tolerance leads there. A gap below "
            "all that the dial shows on test rows is not reached; above the loosest position's "
            "gap, that position's accuracy counts. Where some seeds don't reach a gap, the means "
            "of two methods may be over different seeds: then read the paired differences."
        ),
    ]
    for part in parts:
        common = tables.grid_table(study, part.panel)
        blocks += [
            Heading(3, part.panel.title),
            tables.matched_table(part),
            tables.matched_differences(study, part),
            common or Text("None of the gaps is among the common tolerances."),
        ]
    return blocks


def _sensitivity(parts: list[Measured]) -> list[Block]:
    return [
        Text(
            f"N - 1 = N' - 1 takes {len(SENSITIVITY)} values from {SENSITIVITY[0]:g} to "
            f"{SENSITIVITY[-1]:g}, evenly on a logarithmic scale; the normalisation stays. "
            "Kendall's tau compares each order of the methods with the main one: 1 is the same "
            "order, -1 the reverse."
        ),
        Drawing(
            "sensitivity",
            "Mean HV and inverted HV over seeds against the place of the reference point. The star "
            "is the value that this report uses.",
        ),
        *(tables.order_table(part) for part in parts),
    ]


def _cost(study: Study, parts: list[Measured]) -> list[Block]:
    plan = study.plan
    blocks: list[Block] = []
    if plan.cost is None:
        blocks.append(Text("This plan has no cost trials."))
    else:
        runs = "one run" if plan.cost.repeats == 1 else f"the mean of {plan.cost.repeats} runs"
        blocks += [
            Text(
                f"Training is timed over {plan.cost.epochs} epochs without early stopping (the "
                f"paper: {paper.EPOCHS}), one trial at a time: {runs}. Scorers without epochs are "
                "fitted as usual. Deciding is on all test rows. What another "
                "tolerance costs depends on the kind of method:"
            ),
            Items(
                (
                    "Thresholds (FairBayes, GFB): a search over the scores of the calibration "
                    "rows, one for all tolerances.",
                    "YOTO: a search over weights, which takes forward passes; the paper lists 0.",
                    f"EPO and FairBiNN: training anew; {plan.settings} settings train side by "
                    "side, in one stack.",
                )
            ),
        ]
        for panel in study.panels:
            found = tables.cost_tables(study, panel)
            blocks += found or [Text(f"No cost trial is done: {panel.title}.")]
    return [*blocks, *(tables.fitting_table(study, part.panel) for part in parts)]


def _held(study: Study, parts: list[Measured]) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "A wish is a tolerance of the common grid at one seed. Plain: the position is within "
            "the tolerance on calibration rows, where that is feasible. Certified: the position is "
            "chosen so that the gap in the population is within the tolerance at confidence "
            f"{study.plan.confidence:g}, where the calibration rows allow it. Held: the gap on "
            "test rows was at most the tolerance. A gap on test rows is itself a sample: where the "
            "population's gap is within the tolerance, test rows may still show more, and the "
            "other way round. So certified shares may fall below the confidence without "
            "contradicting it."
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
            f"Every method against {plan.baseline}, and {plan.main} against the others, on three "
            "figures, with 95% t intervals of the paired differences. Seeds are splits of the same "
            "rows, so plain intervals are too narrow; the corrected one is Nadeau and Bengio's "
            "(2003), and it decides what is supported. Its standard error is the plain one times "
            "sqrt(1 + n r), with n seeds and r test rows for each training row of a split (here "
            f"{SPLIT_RATIO:.3f}); p values and what would have been seen are by that error too. "
            "Neither interval is about other data sets. Among "
            f"{len(found)} such intervals about {len(found) * (1 - LEVEL):.1f} would exclude 0 by "
            "chance alone if no method differed; Holm's p values account for that, over all "
            "comparisons of this report. A difference no larger than the null row's is noise."
        ),
    ]
    if not found:
        return [*blocks, Text("There is nothing to compare.")]
    blocks.append(
        Drawing(
            "differences",
            f"Differences to {plan.baseline}, paired by seed, with 95% t intervals: thick lines "
            "are plain, thin lines corrected. Positive is better for accuracy and HV, negative for "
            "inverted HV. Null rows are grey.",
        )
    )
    for title in dict.fromkeys(claim.panel for claim in found):
        told = tuple(verdict(claim) for claim in found if claim.panel == title)
        blocks += [Heading(3, title), Items(told)]
    return blocks


def verdict(claim: Claim) -> str:
    """What the numbers say about a comparison, in one sentence."""
    found, sure = claim.found, claim.corrected
    spec, unit = ("+.2f", " points") if claim.figure == MATCHED else ("+.4f", "")
    what = f"{claim.figure}, {claim.a} - {claim.b}"
    if found.seeds == 0:
        return f"{what}: no seed has both."
    mean = f"{number(found.mean, spec)}{unit}"
    if found.seeds == 1:
        return f"{what}: {mean} on one seed, which shows nothing."
    between = f"corrected 95% interval {tables.interval(sure, spec)}"
    more = f"plain {tables.interval(found, spec)}; {found.seeds} seeds"
    holm = "Holm p below 0.001" if claim.adjusted < 0.001 else f"Holm p {claim.adjusted:.3f}"
    if claim.excludes_zero:
        alone = claim.adjusted > 1 - LEVEL
        word = "supported by itself but not over all comparisons" if alone else "supported"
        told = f"{word}, in favour of {claim.better} ({between}, which excludes 0; {more}; {holm})"
    else:
        seen = f"{number(sure.seen, spec.lstrip('+'))}{unit}"
        told = (
            f"no difference established ({between}; {more}; a difference of {seen} would have been "
            f"seen with {POWER:.0%} power; {holm})"
        )
    if claim.null is not None:
        null = f"{tables.plus_minus(claim.null.mean, claim.null.error, spec)}{unit}"
        noise = ", no less than this: noise" if claim.within_null else ""
        told += f"; the null row differs by {null}{noise}"
    return f"{what}: {mean}, {told}."
