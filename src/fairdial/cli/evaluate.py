"""``fairdial evaluate``: measure a model's decisions on labeled rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.cli.problem_options import CONTROL, WEIGHTS
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from fairdial._arrays import Counts, Indices, Mask
    from fairdial.cli.points import Json
    from fairdial.core.criteria import Criterion
    from fairdial.estimators.base import DialClassifier

LEVEL = 0.95
MOST_GROUPS = 4  # with more groups, a table of demands shows only the lowest and highest rate


@click.command()
@options.MODEL
@options.DATA_OR_FOLDER
@options.TOLERANCE
@options.certifying
@options.LABEL
@options.SENSITIVE
@WEIGHTS
@CONTROL
@options.DROP_MISSING
@click.option(
    "--level",
    type=options.Fraction(0, 1, min_open=True, max_open=True),
    default=LEVEL,
    show_default=True,
    help="Confidence level of the intervals.",
)
@options.KEY
@options.reading_csv
@options.TRUST
@options.reporting
def evaluate(
    folder: Path,
    data: Path,
    tolerance: float | None,
    confidence: float | None,
    simultaneous: bool,
    label: str | None,
    sensitive: tuple[str, ...],
    weights: str | None,
    control: tuple[str, ...],
    drop_missing: bool,
    level: float,
    key_file: Path | None,
    trust: tuple[str, ...],
    csv_format: options.CsvFormat,
    show: Output,
) -> None:
    """Measure the decisions of MODEL on the rows of DATA: accuracy, and the gap between groups.

    Use rows that were used neither for training nor for calibration. The intervals contain the
    population's figures with a probability of at least --level. Those of accuracy and of the
    groups' rates are exact binomial intervals, the latter wide enough to hold jointly; the interval
    of the gap runs from the smallest to the largest gap that such rates allow. With --weights,
    every figure is weighted and there are no intervals; with --control, demands are measured within
    each value of the column. A folder of Parquet files is read batch by batch, so it may be larger
    than memory.
    """
    from fairdial.cli.class_figures import measure_classes
    from fairdial.cli.model_rows import match_known_groups, read_labeled_rows, read_row_options
    from fairdial.cli.models import open_model
    from fairdial.cli.points import holds_for_any, json_value
    from fairdial.cli.predict import score
    from fairdial.core.class_prices import choose_class
    from fairdial.core.decide import select

    model = open_model(folder, key_file, trust)
    chosen = float(model.default_tolerance if tolerance is None else tolerance)
    if data.is_dir():
        from fairdial.cli.folders import count_decisions, find_label, open_folder

        if drop_missing:
            raise InvalidInputError("drop_missing", "be used with a file", given="a folder")
        streamed = open_folder(data, csv_format, show)
        column = find_label(model, streamed, label)
        if column is None:
            show.note("No label column: accuracy is unknown.")
        counts = count_decisions(
            model,
            streamed,
            tolerance=chosen,
            confidence=confidence,
            simultaneous=simultaneous,
            sensitive=sensitive,
            label=column,
            weights=weights,
            control=control,
        )
        measured = Measured.from_counts(counts, model.frontier_.groups, weights is not None)
        figures = measure(model, measured, level)
    else:
        rows, y = read_labeled_rows(
            model,
            data,
            csv_format,
            label=label,
            sensitive=sensitive,
            drop_missing=drop_missing,
            note=show.note,
        )
        codes = match_known_groups(model, rows)
        margin, _ = score(model, rows, codes, chosen, confidence, simultaneous)
        given = read_row_options(rows.table, weights, control)
        if margin.ndim == 2:
            figures = measure_classes(model, choose_class(margin), y, codes, given, level)
        else:
            measured = Measured(
                select(margin, 0.0),
                None if y is None else y.isin([model.classes_[1]]).to_numpy(),
                codes,
                rows.groups,
                given.get("sample_weight"),
                given.get("control_features"),
            )
            figures = measure(model, measured, level)
    found = figures | {
        "tolerance": chosen,
        "confidence": confidence,
        "simultaneous": holds_for_any(model.frontier_, confidence, simultaneous),
        "positive": None if len(model.classes_) > 2 else json_value(model.classes_[1]),
        "hash": model.model_hash_,
    }
    found |= compare(found)
    parts: list[str | Table] = [_sentence(found)]
    if len(found["demands"]) > 1 or found["demands"][0]["spread"] != "difference":
        parts.append(_demands_table(found))
    show.result(found, *parts, _table(found))


@dataclass(frozen=True)
class Measured:
    """Decisions on rows: which are selected, their labels (if any), groups, weights and strata."""

    selected: Mask
    truth: Mask | None
    codes: Indices
    groups: pd.Series | pd.DataFrame
    weights: pd.Series | None = None
    strata: pd.Series | pd.DataFrame | None = None
    repeats: bool = False  # whether weights are numbers of equal rows

    @classmethod
    def from_counts(
        cls, counts: pd.DataFrame, names: Sequence[Hashable], weighted: bool
    ) -> Measured:
        """Return the decisions of a table of counts by group, stratum, label and decision."""
        from fairdial._validation import match_groups

        return cls(
            counts["place"].to_numpy() == 1,
            counts["label"].to_numpy() == 1 if "label" in counts else None,
            match_groups(counts["group"], tuple(names), "sensitive_features").astype("int64"),
            counts["group"],
            counts["weight"] if weighted else counts["rows"],
            counts.get("stratum"),
            repeats=not weighted,
        )

    def count(self, criterion: Criterion, n_groups: int) -> tuple[Criterion, Counts, Counts]:
        """Return the criterion on these strata, and selected and all rows by kind and group."""
        from fairdial._validation import check_weights
        from fairdial.core.decide import count_rows
        from fairdial.core.strata import find_strata
        from fairdial.core.sweep import find_kinds

        kind, strata = find_strata(criterion, self.strata, len(self.selected))
        n_kinds = kind.n_strata * (1 if self.truth is None else 2)
        kinds, weights = (
            find_kinds(self.truth, strata),
            check_weights(self.weights, len(self.codes)),
        )
        rows = self.selected
        among = None if kinds is None else kinds[rows]
        heavy = None if weights is None else weights[rows]
        return (
            kind,
            count_rows(self.codes[rows], among, n_groups, n_kinds, heavy),
            count_rows(self.codes, kinds, n_groups, n_kinds, weights),
        )


def measure(
    model: DialClassifier,
    rows: Measured,
    level: float,
) -> Json:
    """Return accuracy, objective, gaps and the groups' figures, with intervals.

    A group without eligible rows may have any rate: the interval of the gap allows for that, and
    the gap is that of the other groups (None if fewer than two are left). Weighted rows have no
    intervals.
    """
    import pandas as pd

    from fairdial.cli.points import json_number, json_value
    from fairdial.core.certificates import rate_interval
    from fairdial.core.criteria import criterion
    from fairdial.core.decide import by_label
    from fairdial.core.measured import measure_demands
    from fairdial.metrics import group_table

    names = model.frontier_.groups
    kind, selected, cells = rows.count(criterion(model.criterion), len(names))
    groupings = model.frontier_.criterion.groupings
    kind = kind.compare(getattr(model, "groups", "intersection"), groupings)
    weighted = rows.weights is not None and not rows.repeats
    labels = rows.selected if rows.truth is None else rows.truth
    each = {"": rows.groups}
    if groupings:
        columns = [grouping.column for grouping in groupings]
        each |= {f"{name}: ": rows.groups[name] for name in columns}
    frames = [
        group_table(
            labels,
            rows.selected,
            sensitive_features=column,
            criterion=None if rows.truth is None else model.criterion,
            sample_weight=rows.weights,
        ).rename(index=lambda name, head=head: f"{head}{name}" if head else name)
        for head, column in each.items()
    ]
    frame = frames[0] if len(frames) == 1 else pd.concat(frames)
    if rows.truth is None:
        frame = frame[["rows", "selection_rate"]]
    chosen = frame["selection_rate"] * frame["rows"]
    frame.insert(1, "selected", chosen if weighted else chosen.round().astype(int))
    demands, interval = measure_demands(kind, selected, cells, None if weighted else level)
    fixed = [d for d in demands if d["eligible"] is not None]
    missing = [
        name
        for a, name in enumerate(names)
        if not groupings and any(demand["eligible"][a] == 0 for demand in fixed)
    ]
    known = len(names) - len(missing) > 1 or len(names) == 1
    found: Json = {
        "criterion": kind.name,
        "rows": json_number(cells.sum()),
        "accuracy": None,
        "accuracy_interval": None,
        "objective": model.frontier_.objective.name,
        "value": None,
        "gap": json_value(float(kind.gap_of(selected, cells))) if known else None,
        "gap_interval": None if interval is None else [json_value(end) for end in interval],
        "demands": [{k: v for k, v in d.items() if k != "eligible"} for d in demands],
        "missing_groups": [json_value(name) for name in missing],
        "level": level,
        "groups": [
            {"group": json_value(name)}
            | {column: json_value(value) for column, value in line.items()}
            for name, line in frame.to_dict("index").items()
        ],
    }
    if rows.truth is not None:
        hits, counts = by_label(selected, 2), by_label(cells, 2)
        right = hits[1].sum() + counts[0].sum() - hits[0].sum()
        found["accuracy"] = float(right / counts.sum())
        if not weighted:
            interval = rate_interval(int(right), int(counts.sum()), level)
            found["accuracy_interval"] = list(interval)
        if found["objective"] != "utility":
            found["value"] = float(model.frontier_.objective.value_of(hits, counts))
    return found


def compare(found: Json) -> Json:
    """Return whether the gap is within the tolerance, on these rows and in the population.

    Rows that lack a group can show that the gap is too large, but never that it isn't.
    """
    tolerance, gap, complete = found["tolerance"], found["gap"], not found["missing_groups"]
    above = gap is not None and float(gap) > tolerance
    verdict = "undecided"
    if found["gap_interval"] is not None:
        low, high = map(float, found["gap_interval"])
        if low > tolerance:
            verdict = "above"
        elif complete and high <= tolerance:
            verdict = "within"
    within = False if above else True if complete else None
    return {"within_tolerance": within, "verdict": verdict}


def _table(found: Json) -> Table:
    from fairdial.cli.output import table
    from fairdial.cli.problems import count, digits, spell

    keys = [name for name in ("class", "group") if name in found["groups"][0]]
    names = [name for name in found["groups"][0] if name not in keys]
    counted = ("rows", "selected", "decided")
    lines = [
        [str(line[key]) for key in keys]
        + [count(line[n]) if n in counted else digits(line[n]) for n in names]
        for line in found["groups"]
    ]
    return table([*keys, *map(spell, names)], lines)


def _demands_table(found: Json) -> Table:
    """Return a table of demands: gap, interval, what the tolerance allows, and rates."""
    from fairdial.cli.output import table
    from fairdial.cli.problems import digits, spell

    groups = list(dict.fromkeys(str(line["group"]) for line in found["groups"]))
    few = len(groups) == len(found["demands"][0]["rates"]) and len(groups) <= MOST_GROUPS
    lines = []
    for line in found["demands"]:
        known = [rate for rate in line["rates"] if rate is not None]
        rates = line["rates"] if few else [min(known, default=None), max(known, default=None)]
        ends = line["interval"]
        between = "-" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}"
        allowed = digits(line["scale"] * found["tolerance"])
        cells = [digits(rate) for rate in rates]
        lines.append([spell(line["demand"]), digits(line["gap"]), between, allowed, *cells])
    names = groups if few else ["lowest", "highest"]
    return table(["demand", "gap", "interval", "allowed", *names], lines)


def _sentence(found: Json) -> str:
    from fairdial.cli.columns import quote_names
    from fairdial.cli.problems import spell
    from fairdial.core.objectives import Objective

    def interval(ends: list[float] | None) -> str:
        if ends is None:
            return "(weighted)"
        ends = [float(end) for end in ends]
        return f"({100 * found['level']:g}% interval {ends[0]:.4f} to {ends[1]:.4f})"

    tolerance, text = f"{found['tolerance']:g}", ""
    if found["confidence"] is not None:
        which = ", for any tolerance" if found["simultaneous"] else ""
        text = (
            f"Certified for tolerance {tolerance} with confidence {found['confidence']:g}{which}. "
        )
    if found["accuracy"] is not None:
        text += f"Accuracy {found['accuracy']:.4f} {interval(found['accuracy_interval'])}. "
    if found["value"] is not None and found["objective"] != "accuracy":
        text += f"{Objective(found['objective']).title.capitalize()} {found['value']:.4f}. "
    gap = "unknown" if found["gap"] is None else f"{float(found['gap']):.4f}"
    text += f"{spell(found['criterion']).capitalize()} gap {gap} {interval(found['gap_interval'])}"
    if found["missing_groups"]:
        text += f". DATA has no eligible rows of {quote_names(found['missing_groups'])}, so these "
        text += f"rows can't show that the gap is within the tolerance {tolerance}"
        if found["verdict"] == "above":
            text += "; the other groups show that it is above it in the population"
        return f"{text}."
    here = "within" if found["within_tolerance"] else "above"
    text += f": {here} the tolerance {tolerance} on these rows"
    if found["gap_interval"] is None:
        return f"{text}."
    if found["verdict"] == "undecided":
        return f"{text}; too few rows to tell for the population."
    return f"{text}, and {found['verdict']} it in the population."
