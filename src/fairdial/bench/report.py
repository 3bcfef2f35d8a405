"""The report of a study: Markdown, LaTeX tables and one HTML page, from a plan and its records.

A pure function: no clock, no machine, no chance. The same records give the same bytes.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fairdial.bench import figures, paper, tables
from fairdial.bench.curves import Study, read_study
from fairdial.bench.plan import Plan
from fairdial.bench.reference import SENSITIVITY, Reference
from fairdial.bench.tables import LEVEL, MATCHED, POWER, Claim, Measured, Table, number


class Heading(NamedTuple):
    """Of level 2 or 3."""

    level: int
    text: str


class Text(NamedTuple):
    """A paragraph; urgent ones must not be missed."""

    text: str
    urgent: bool = False


class Items(NamedTuple):
    """A list."""

    items: tuple[str, ...]


class Drawing(NamedTuple):
    """A figure by name."""

    name: str
    caption: str


Block = Heading | Text | Items | Table | Drawing


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
    parts, found = tables.measured(study), tables.claims(study)
    blocks = report_blocks(study, parts, found)
    drawn = _draw(study, parts, found, blocks)
    contents: dict[str, bytes] = {
        "report.html": to_html(plan.title, blocks, drawn).encode(),
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
    told = (
        f"Trials: {len(study.records)} of {len(plan.trials())} done, {len(study.missing)} missing, "
        f"{len(study.failed)} failed.",
        f"Data sets: {', '.join(plan.datasets)}{sample}. Criteria: {criteria}.",
        f"Seeds ({len(plan.seeds)}): {', '.join(map(str, plan.seeds))}. A seed fixes the split, "
        "and a method's weights and batches; methods share them.",
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
            "Seeds needed: with about so many a paired t test sees the observed difference with "
            f"{POWER:.0%} power at the observed spread. Null rows are compared with the method "
            "that they repeat."
        ),
    ]
    for part in parts:
        blocks.append(Heading(3, part.panel.title))
        if tables.main_pairs(part.panel, main):
            blocks += [tables.quartile_table(study, part, name) for name in tables.FIGURES[1:]]
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
                "fitted as usual. Deciding is for one tolerance on all test rows. What another "
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
            "figures, with 95% t intervals of the paired differences. Among "
            f"{len(found)} such intervals about {len(found) * (1 - LEVEL):.1f} would exclude 0 by "
            "chance alone if no method differed; Holm's p values account for that, over all "
            "comparisons of this report. A difference no larger than the null row's is noise. "
            "Seeds are new splits of the same rows, so their differences are not independent: the "
            "intervals are about these data, and too narrow for other data."
        ),
    ]
    if not found:
        return [*blocks, Text("There is nothing to compare.")]
    blocks.append(
        Drawing(
            "differences",
            f"Differences to {plan.baseline}, paired by seed, with 95% t intervals. Positive is "
            "better for accuracy and HV, negative for inverted HV. Null rows are grey.",
        )
    )
    for title in dict.fromkeys(claim.panel for claim in found):
        told = tuple(verdict(claim) for claim in found if claim.panel == title)
        blocks += [Heading(3, title), Items(told)]
    return blocks


def verdict(claim: Claim) -> str:
    """What the numbers say about a comparison, in one sentence."""
    found = claim.found
    spec, unit = ("+.2f", " points") if claim.figure == MATCHED else ("+.4f", "")
    what = f"{claim.figure}, {claim.a} - {claim.b}"
    if found.seeds == 0:
        return f"{what}: no seed has both."
    mean = f"{number(found.mean, spec)}{unit}"
    if found.seeds == 1:
        return f"{what}: {mean} on one seed, which shows nothing."
    between = f"95% interval {tables.interval(found, spec)}, {found.seeds} seeds"
    holm = "Holm p below 0.001" if claim.adjusted < 0.001 else f"Holm p {claim.adjusted:.3f}"
    if claim.excludes_zero:
        corrected = "" if claim.adjusted <= 1 - LEVEL else ", so no longer after correction"
        told = f"supported, in favour of {claim.better} ({between}, excludes 0; {holm}{corrected})"
    else:
        seen = f"{number(found.seen, spec.lstrip('+'))}{unit}"
        told = (
            f"not shown ({between}; a difference of {seen} would have been seen with {POWER:.0%} "
            f"power; {holm})"
        )
    if claim.null is not None:
        null = f"{tables.plus_minus(claim.null.mean, claim.null.error, spec)}{unit}"
        noise = ", no less than this: noise" if claim.within_null else ""
        told += f"; the null row differs by {null}{noise}"
    return f"{what}: {mean}, {told}."


# ---- Markdown ----------------------------------------------------------------------------------


def to_markdown(title: str, blocks: list[Block]) -> str:
    """The report as Markdown; figures are files beside it."""
    parts = [f"# {_md(title)}"]
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {_md(block.text)}")
        elif isinstance(block, Text):
            parts.append(f"> **Note.** {_md(block.text)}" if block.urgent else _md(block.text))
        elif isinstance(block, Items):
            parts.append("\n".join(f"- {_md(item)}" for item in block.items))
        elif isinstance(block, Drawing):
            alt = _md(block.caption.partition(".")[0])
            parts.append(f"![{alt}](figures/{block.name}.png)")
            parts.append(f"*{_md(block.caption)}*")
        else:
            parts.append(f"**{_md(block.caption)}**")
            parts.append("\n".join([_md_line(block.head), "|---" * len(block.head) + "|"]))
            parts[-1] += "".join(f"\n{_md_line(line)}" for line in block.lines)
            parts += [_md(block.note)] if block.note else []
    return "\n\n".join(parts) + "\n"


def _md(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<|~$&#])", r"\\\1", " ".join(text.split()))


def _md_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_md, cells)) + " |"


# ---- LaTeX -------------------------------------------------------------------------------------

TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
WIDE = 7  # columns


def to_latex(title: str, blocks: list[Block]) -> str:
    """The labelled tables, for a paper that uses booktabs."""
    found = [block for block in blocks if isinstance(block, Table) and block.label]
    head = f"% {' '.join(title.split())}\n% UTF-8; needs \\usepackage{{booktabs}}\n"
    return head + "".join(f"\n{_tex_table(table)}" for table in found)


def _tex_table(table: Table) -> str:
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\scriptsize" if len(table.head) > WIDE else r"\small",
        rf"\caption{{{_tex(' '.join((table.caption, table.note)).strip())}}}",
        rf"\label{{{table.label}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}",
        r"\toprule",
        _tex_line(table.head),
        r"\midrule",
        *map(_tex_line, table.lines),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    escaped = "".join(TEX.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<![\w-])([+-])(?=\d)", r"$\1$", escaped)


def _tex_line(cells: Iterable[str]) -> str:
    return " & ".join(map(_tex, cells)) + r" \\"


# ---- HTML --------------------------------------------------------------------------------------

LONG = 45  # characters: such cells are prose, and may break
CSS = """
:root { color-scheme: light dark; --ink: #1d1d20; --soft: #5a5a62; --page: #fdfdfc;
  --line: #d9d9dd; --stripe: #f3f3f1; --accent: #0b6aa2; --alert: #fff1d6; --edge: #c77700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e7ea; --soft: #a6a6b0; --page: #16171b;
  --line: #3a3b42; --stripe: #1f2026; --accent: #6cbcf0; --alert: #33280f; --edge: #e0a030; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 62rem; color: var(--ink);
  background: var(--page); font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: .6rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
p, li { max-width: 46rem; }
a { color: var(--accent); }
nav ol { columns: 16rem; padding-left: 0; list-style: none; }
.alert { background: var(--alert); border-left: .3rem solid var(--edge); padding: .7rem 1rem; }
.scroll { overflow-x: auto; margin: 1rem 0 .3rem; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .3rem .7rem .3rem 0; text-align: left; vertical-align: top; }
td { white-space: nowrap; }
table.words td { white-space: normal; min-width: 7rem; }
thead th { border-bottom: 1px solid var(--soft); font-weight: 600; vertical-align: bottom; }
tbody tr { background: var(--page); }
tbody tr:nth-child(even) { background: var(--stripe); }
tbody th { font-weight: 500; min-width: 8rem; position: sticky; left: 0; background: inherit; }
.note, figcaption { color: var(--soft); font-size: .86rem; margin: 0 0 1.2rem; max-width: 46rem; }
figure { margin: 1.4rem 0; }
figure svg { display: block; width: 100%; height: auto; }
@media print { nav { display: none; } .scroll { overflow: visible; } }
"""


def to_html(title: str, blocks: list[Block], drawn: dict[str, dict[str, bytes]]) -> str:
    """One page that needs nothing else."""
    headings = [b.text for b in blocks if isinstance(b, Heading) and b.level == 2]
    links = "".join(
        f'<li><a href="#part-{i}">{html.escape(text)}</a></li>' for i, text in enumerate(headings)
    )
    numbers = iter(range(len(headings)))
    body = "\n".join(_html_block(block, drawn, numbers) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f'<h1>{html.escape(title)}</h1>\n<nav aria-label="Contents"><ol>{links}</ol></nav>\n'
        f"<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _html_block(block: Block, drawn: dict[str, dict[str, bytes]], numbers: Any) -> str:
    if isinstance(block, Heading):
        place = f' id="part-{next(numbers)}"' if block.level == 2 else ""
        return f"<h{block.level}{place}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Text):
        kind = ' class="alert" role="note"' if block.urgent else ""
        return f"<p{kind}>{html.escape(block.text)}</p>"
    if isinstance(block, Items):
        return f"<ul>{''.join(f'<li>{html.escape(item)}</li>' for item in block.items)}</ul>"
    if isinstance(block, Drawing):
        svg = figures.inline(drawn[block.name]["svg"], block.name)
        caption = html.escape(block.caption)
        svg = svg.replace("<svg", f'<svg role="img" aria-label="{caption}"', 1)
        return (
            f'<figure><div class="scroll" tabindex="0">{svg}</div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return _html_table(block)


def _html_table(table: Table) -> str:
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in table.head)
    lines = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in others)
        + "</tr>"
        for first, *others in table.lines
    )
    note = f'<p class="note">{html.escape(table.note)}</p>' if table.note else ""
    caption = html.escape(table.caption)
    long = any(len(cell) > LONG for line in table.lines for cell in line[1:])
    words = ' class="words"' if long else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
        f"<table{words}><caption>{caption}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>{note}"
    )
