"""Fill in the numbers that a page quotes from the records of studies.

    python scripts/quote.py README.md docs/results/README.md

A quote is a pair of comments, with what the records say between them:

    GFB reaches <!-- quote paper-tabular adult accuracy GFB 0.05 -->0.8490<!-- end --> there.

It names a study (a folder of docs/results with plan.toml and records.jsonl.xz, or a plan there with
its packed records beside it, such as frontier/tables), a data set (adult, or with a criterion
adult/equal_opportunity), a quantity and its arguments. Names with spaces are in double quotes. A
last argument that starts with a colon is a number format: ``:.1f``, ``:.0%``. The tests compute
every quote again and compare.

A figure is a cell of a benchmark's tables in benchmarks/record.json, which ``make bench`` writes:

    ten tolerances take <!-- figure dial 1,000,000 fairdial -->10.4<!-- end --> ms

It names a script, cells of the line, and the column; ``:/1000`` divides it.

The quantities are the functions below; ``--help`` lists them. They are on test rows, over the
splits of a study. A study's name and ``minutes`` alone is the processor time of all its trials.
GAP is one of the plan's. WHAT is a gap, mean (over the gaps; the default), grid
(over the common tolerances), all three in points of accuracy, or hv or inverted-hv.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairdial.bench import comparisons
from fairdial.bench.comparisons import HV, INVERTED, MATCHED, Claim, KeyFigures
from fairdial.bench.curves import Study, mean_of, open_study
from fairdial.bench.report import report_blocks
from fairdial.bench.statistics import Paired, corrected, paired
from fairdial.bench.store import read_packed
from fairdial.bench.tables import Table
from fairdial.bench.writers import markdown_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
RECORD = ROOT / "benchmarks" / "record.json"
VERIFIED = "verified.txt"  # what `fairdial bench verify` printed, beside a study's records
MARKED = re.compile(
    r"(<!--\s+(quote|figure|python)\s+([^>]+?)\s+-->)(.*?)(<!-- end -->)", re.DOTALL
)
WHAT = {"mean": MATCHED, "hv": HV, "inverted-hv": INVERTED}


class Source(NamedTuple):
    """A data set and criterion of a study."""

    study: Study
    part: KeyFigures
    claims: list[Claim]
    folder: Path  # docs/results/NAME

    def names(self, *methods: str) -> None:
        """Raise for a method without trials."""
        known = [method.name for method in self.study.plan.methods]
        for name in methods:
            if not self.part.panel.of(name):
                raise ValueError(f"no trials of {name!r}; methods: {', '.join(known)}")

    def difference(self, a: str, b: str, what: str) -> tuple[Paired, bool]:
        """Return a difference, and whether it is in points."""
        self.names(a, b)
        if what == "grid":
            panel = self.part.panel
            return paired(comparisons.grid_difference(panel, a, b), panel.ratio), True
        if what in WHAT:
            return self.part.difference(WHAT[what], a, b), what == "mean"
        gap = self.gap(what)
        panel = self.part.panel
        return paired(comparisons.matched_difference(panel, gap, a, b), panel.ratio), True

    def gap(self, text: str) -> float:
        """Return one of the plan's gaps."""
        found = [gap for gap in self.part.by_gap if text == f"{gap:g}" or float(text) == gap]
        if not found:
            raise ValueError(f"gap {text} isn't one of {[*self.part.by_gap]}")
        return found[0]


class Quoted(NamedTuple):
    """Numbers, their format, and what is between them."""

    numbers: tuple[float, ...]
    spec: str
    between: str = " ± "

    def show(self, spec: str | None) -> str:
        """Return the text."""
        first = spec or self.spec
        specs = [first] + [first.lstrip("+") if self.between == " ± " else first] * 9
        if np.isnan(self.numbers).any():
            raise ValueError("the records don't have this number")
        return self.between.join(f"{x:{s}}" for x, s in zip(self.numbers, specs, strict=False))


# ---- quantities --------------------------------------------------------------------------------


def accuracy(source: Source, method: str, gap: str) -> Quoted:
    """METHOD GAP: mean accuracy at a matched gap."""
    source.names(method)
    return Quoted((float(source.part.by_gap[source.gap(gap)][method].mean()),), ".4f")


def hv(source: Source, method: str) -> Quoted:
    """METHOD: mean HV ± standard deviation (divisor n)."""
    source.names(method)
    values = source.part.volumes.hv[method]
    return Quoted((float(values.mean()), float(values.std(ddof=0))), ".4f")


def inverted_hv(source: Source, method: str) -> Quoted:
    """METHOD: mean inverted HV ± standard deviation (divisor n)."""
    source.names(method)
    values = source.part.volumes.inverted[method]
    return Quoted((float(values.mean()), float(values.std(ddof=0))), ".4f")


def difference(source: Source, a: str, b: str, what: str = "mean") -> Quoted:
    """A B [WHAT]: A minus B, mean ± plain standard error."""
    found, points = source.difference(a, b, what)
    return Quoted((found.mean, found.error), "+.2f" if points else "+.4f")


def mean(source: Source, a: str, b: str, what: str = "mean") -> Quoted:
    """A B [WHAT]: A minus B, the mean alone."""
    found, points = source.difference(a, b, what)
    return Quoted((found.mean,), "+.2f" if points else "+.4f")


def error(source: Source, a: str, b: str, what: str = "mean") -> Quoted:
    """A B [WHAT]: the plain standard error alone."""
    found, points = source.difference(a, b, what)
    return Quoted((found.error,), ".2f" if points else ".4f")


def interval(source: Source, a: str, b: str, what: str = "mean") -> Quoted:
    """A B [WHAT]: the corrected 95% interval (Nadeau and Bengio) of A minus B."""
    found, points = source.difference(a, b, what)
    sure = corrected(found)
    return Quoted((sure.low, sure.high), "+.2f" if points else "+.4f", " to ")


def p(source: Source, a: str, b: str, what: str = "mean") -> Quoted | str:
    """A B [mean, hv or inverted-hv]: Holm's p over all comparisons of the report."""
    if what not in WHAT:
        raise ValueError(f"p is for {', '.join(WHAT)}, not {what!r}")
    here = source.part.panel.title, WHAT[what]
    for claim in source.claims:
        if (claim.panel, claim.quantity) == here and {claim.a, claim.b} == {a, b}:
            tiny = claim.adjusted < 0.001
            return "below 0.001" if tiny else Quoted((claim.adjusted,), ".3f")
    raise ValueError(f"the report doesn't compare {a!r} with {b!r}")


def detectable(source: Source, a: str, b: str, what: str = "mean") -> Quoted:
    """A B [WHAT]: the difference that these splits detect with 80% power."""
    found, points = source.difference(a, b, what)
    return Quoted((corrected(found).detectable,), ".2f" if points else ".4f")


def _share(source: Source, column: str, method: str, tolerance: str | None) -> Quoted:
    source.names(method)
    only = None if tolerance is None else [float(tolerance)]
    frame = comparisons.held(source.part.panel, only)
    return Quoted((float(frame.loc[method, column]),), ".0%")


def held(source: Source, method: str, tolerance: str | None = None) -> Quoted:
    """METHOD [TOLERANCE]: share of feasible cases in which the tolerance held."""
    return _share(source, "held", method, tolerance)


def certified(source: Source, method: str, tolerance: str | None = None) -> Quoted:
    """METHOD [TOLERANCE]: share of cases that could be certified."""
    return _share(source, "certified", method, tolerance)


def certified_held(source: Source, method: str, tolerance: str | None = None) -> Quoted:
    """METHOD [TOLERANCE]: share of certified cases in which the tolerance held."""
    return _share(source, "certified_held", method, tolerance)


def change(source: Source, method: str, base: str | None = None) -> Quoted:
    """METHOD [BASE]: mean absolute change of validation accuracy per epoch; a ratio to BASE."""
    source.names(method)
    value = comparisons.validation_change(source.part.panel, method)
    if base is None:
        return Quoted((value,), ".4f")
    source.names(base)
    return Quoted((value / comparisons.validation_change(source.part.panel, base),), ".2f")


def epochs(source: Source, method: str) -> Quoted:
    """METHOD: mean number of epochs."""
    source.names(method)
    return Quoted((mean_of([trial.epochs for trial in source.part.panel.of(method)]),), ".1f")


def kept(source: Source, method: str, epoch: str) -> Quoted:
    """METHOD EPOCH: in how many networks this epoch was kept."""
    source.names(method)
    records = source.study.of_kind("study", source.part.panel)
    mine = [r["result"]["epochs"] for r in records if r["config"]["method"]["name"] == method]
    found = [n for epochs in mine if epochs is not None for n in epochs["kept"]]
    return Quoted((sum(n == int(epoch) for n in found), len(found)), ".0f", " of ")


def training(source: Source, a: str, b: str) -> Quoted:
    """A B: processor time of training, median ratio of A to B."""
    source.names(a, b)
    return Quoted((comparisons.training_ratio(source.part.panel, a, b),), ".2f")


def cost(source: Source, method: str, step: str) -> Quoted:
    """METHOD STEP: seconds of a cost trial; a step is train, adapt_one, predict_many, ..."""
    frame = comparisons.cost(source.study, source.part.panel)
    return Quoted((float(frame.loc[method, step]),), ".3g")


def splits(source: Source, method: str) -> Quoted:
    """METHOD: number of splits with a trial."""
    source.names(method)
    return Quoted((len({trial.seed for trial in source.part.panel.of(method)}),), ".0f")


def repeated(source: Source) -> Quoted:
    """Trials that made the same decisions, of those that ``bench verify`` repeated."""
    panel, file = source.part.panel, source.folder / VERIFIED
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    trial = re.compile(rf"(same|differs): {panel.dataset}, {panel.criterion}, .*, seed \d+")
    found = [match[1] for line in lines if (match := trial.match(line))]
    if not found:
        raise ValueError(f"no trial of {panel.title} in {file}")
    return Quoted((found.count("same"), len(found)), ".0f", " of ")


def table(source: Source, name: str) -> str:
    """NAME: a table of the report by its LaTeX label: hv, matched, hv-quartiles, cost, ..."""
    panel = source.part.panel
    label = f"tab:{name}-{panel.dataset}-{panel.criterion.replace('_', '-')}"
    blocks = report_blocks(source.study, [source.part], source.claims)
    tables = {block.label: block for block in blocks if isinstance(block, Table)}
    if label not in tables:
        raise ValueError(f"no table {label!r}; there are {', '.join(filter(None, tables))}")
    return f"\n\n{markdown_table(tables[label])}\n\n"


QUANTITIES: dict[str, Callable[..., Quoted | str]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        accuracy, hv, inverted_hv, difference, mean, error, interval, p, detectable, held,
        certified, certified_held, change, epochs, kept, training, cost, splits, repeated, table,
    )
}  # fmt: skip


# ---- pages -------------------------------------------------------------------------------------


@cache
def sources(name: str) -> dict[tuple[str, str], Source]:
    """Return the data sets and criteria of a study in docs/results."""
    place = RESULTS / name
    study = open_study(place if place.is_dir() else place.with_name(f"{place.name}.toml"))
    parts = comparisons.key_figures(study)
    claims = comparisons.claims(study.plan, parts)
    return {(p.panel.dataset, p.panel.criterion): Source(study, p, claims, place) for p in parts}


def minutes(study: str) -> str:
    """Return the processor time of all trials of a study, or of tuning, in minutes."""
    place = RESULTS / study
    packed = (
        place / "records.jsonl.xz" if place.is_dir() else place.with_name(f"{place.name}.jsonl.xz")
    )
    timings = [record.get("timing", {}) for record in read_packed(packed)]
    return (
        f"{sum(t for timing in timings for k, t in timing.items() if k.endswith('_cpu')) / 60:.0f}"
    )


def quote(text: str) -> str:
    """Return what the records say: STUDY DATA QUANTITY [ARGUMENTS] [:FORMAT]; or STUDY minutes."""
    if text.split()[1:] == ["minutes"]:
        return minutes(text.split()[0])
    study, data, quantity, *arguments = shlex.split(text)
    spec = arguments.pop()[1:] if arguments and arguments[-1].startswith(":") else None
    dataset, _, criterion = data.partition("/")
    panels = sources(study)
    found = [s for key, s in panels.items() if key[0] == dataset and criterion in ("", key[1])]
    if len(found) != 1:
        raise ValueError(f"{data!r} must name one of {['/'.join(key) for key in panels]}")
    if quantity not in QUANTITIES:
        raise ValueError(f"unknown quantity {quantity!r}; there are {', '.join(QUANTITIES)}")
    function = QUANTITIES[quantity]
    try:
        inspect.signature(function).bind(found[0], *arguments)
    except TypeError as error:
        raise ValueError(f"{quantity}: {error}") from error
    value = function(found[0], *arguments)
    return value if isinstance(value, str) else value.show(spec)


@cache
def benchmarks() -> dict[str, Any]:
    """Return the tables of the last run of the benchmarks, by script."""
    found: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return {name: entry["tables"] for name, entry in found.items()}


def figure(text: str) -> str:
    """Return a cell of a benchmark's tables: SCRIPT CELL... COLUMN [:/NUMBER]."""
    script, *cells = shlex.split(text)
    divisor = float(cells.pop()[2:]) if cells and cells[-1].startswith(":/") else None
    if script not in benchmarks():
        raise ValueError(f"the record has no {script!r}, but {', '.join(benchmarks())}")
    *wanted, column = cells
    found = [
        line[table["head"].index(column)]
        for table in benchmarks()[script]
        for line in table["lines"]
        if column in table["head"] and all(cell in line for cell in wanted)
    ]
    if len(found) != 1:
        raise ValueError(f"{len(found)} lines have {', '.join(wanted)} and a column {column!r}")
    if divisor is None:
        return str(found[0])
    return f"{float(found[0].replace(',', '')) / divisor:.3g}"


def run(command: str) -> str:
    """Return what a script prints, as a block of its own."""
    done = subprocess.run(
        [sys.executable, *shlex.split(command)], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise ValueError(done.stderr)
    return f"\n\n{done.stdout.strip()}\n\n"


def fill(page: str, *, commands: bool = False) -> str:
    """Return a page with its quotes computed again, and with the output of its commands.

    A quote that only differs in line breaks stays as it is.
    """

    def replace(match: re.Match[str]) -> str:
        start, kind, text, old, end = match.groups()
        if kind == "python" and not commands:
            return match[0]
        try:
            new = {"quote": quote, "figure": figure, "python": run}[kind](text)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{' '.join(start.split())}: {error}") from error
        return start + (old if old.split() == new.split() else new) + end

    return MARKED.sub(replace, page)


def main() -> None:
    """Fill in pages."""
    shown = "\n".join(f"{name} {function.__doc__}" for name, function in QUANTITIES.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"quantities:\n{shown}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pages", nargs="+", type=Path, help="Markdown files to update")
    parser.add_argument(
        "--commands", action="store_true", help="also run the commands of <!-- python ... -->"
    )
    given = parser.parse_args()
    for page in given.pages:
        old = page.read_text("utf-8")
        try:
            new = fill(old, commands=given.commands)
        except ValueError as error:
            raise SystemExit(f"{page}: {error}") from None
        if new != old:
            page.write_text(new, "utf-8")
            print(f"{page}: updated")


if __name__ == "__main__":
    main()
