"""``fairdial evaluate``: measure a model's decisions on labeled rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairdial.cli import options
from fairdial.cli.output import Output

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from fairdial._arrays import Indices, Mask
    from fairdial.cli.points import Json
    from fairdial.estimators.base import DialClassifier

LEVEL = 0.95


@click.command()
@options.MODEL
@options.DATA
@options.TOLERANCE
@options.certifying
@options.LABEL
@options.SENSITIVE
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
    of the gap runs from the smallest to the largest gap that such rates allow.
    """
    from fairdial.cli.model_rows import match_known_groups, read_labeled_rows
    from fairdial.cli.models import open_model
    from fairdial.cli.points import holds_for_any, json_value
    from fairdial.cli.predict import score
    from fairdial.core.decide import select

    model = open_model(folder, key_file, trust)
    rows, y = read_labeled_rows(
        model,
        data,
        csv_format,
        label=label,
        sensitive=sensitive,
        drop_missing=drop_missing,
        note=show.note,
    )
    truth = None if y is None else y.isin([model.classes_[1]]).to_numpy()
    codes = match_known_groups(model, rows)
    chosen = float(model.tolerance if tolerance is None else tolerance)
    margin, _ = score(model, rows, codes, chosen, confidence, simultaneous)
    found = measure(model, rows.groups, codes, truth, select(margin, 0.0), level) | {
        "tolerance": chosen,
        "confidence": confidence,
        "simultaneous": holds_for_any(model.frontier_, confidence, simultaneous),
        "positive": json_value(model.classes_[1]),
        "hash": model.model_hash_,
    }
    found |= compare(found)
    show.result(found, _sentence(found), _table(found))


def measure(
    model: DialClassifier,
    groups: pd.Series | pd.DataFrame,
    codes: Indices,
    truth: Mask | None,
    selected: Mask,
    level: float,
) -> Json:
    """Return accuracy, gap and the groups' figures, with intervals.

    A group without eligible rows may have any rate: the interval of the gap allows for that, and
    the gap is that of the other groups (None if fewer than two are left).
    """
    import numpy as np

    from fairdial.cli.points import json_value
    from fairdial.core.certificates import gap_interval, rate_interval
    from fairdial.core.criteria import criterion
    from fairdial.metrics import group_table

    kind, names = criterion(model.criterion), model.frontier_.groups
    labels = selected if truth is None else truth
    frame = group_table(labels, selected, sensitive_features=groups)
    if truth is None:
        frame = frame[["rows", "selection_rate"]]
    frame.insert(1, "selected", (frame["selection_rate"] * frame["rows"]).round().astype(int))
    eligible = np.ones(len(selected), np.bool_) if truth is None else kind.eligible_rows(truth)
    totals = np.bincount(codes[eligible], minlength=len(names)).tolist()
    hits = np.bincount(codes[eligible & selected], minlength=len(names)).tolist()
    rates = [k / n for k, n in zip(hits, totals, strict=True) if n]
    found: Json = {
        "criterion": kind.name,
        "rows": len(selected),
        "accuracy": None,
        "accuracy_interval": None,
        "gap": max(rates) - min(rates) if len(rates) > 1 or len(names) == 1 else None,
        "gap_interval": list(gap_interval(hits, totals, level)),
        "missing_groups": [
            json_value(name) for name, n in zip(names, totals, strict=True) if n == 0
        ],
        "level": level,
        "groups": [
            {"group": json_value(name)}
            | {column: json_value(value) for column, value in line.items()}
            for name, line in frame.to_dict("index").items()
        ],
    }
    if truth is not None:
        right = int((selected == truth).sum())
        found["accuracy"] = right / len(truth)
        found["accuracy_interval"] = list(rate_interval(right, len(truth), level))
    return found


def compare(found: Json) -> Json:
    """Return whether the gap is within the tolerance, on these rows and in the population.

    Rows that lack a group can show that the gap is too large, but never that it isn't.
    """
    tolerance, gap, complete = found["tolerance"], found["gap"], not found["missing_groups"]
    low, high = found["gap_interval"]
    above = gap is not None and gap > tolerance
    verdict = "undecided"
    if low > tolerance:
        verdict = "above"
    elif complete and high <= tolerance:
        verdict = "within"
    within = False if above else True if complete else None
    return {"within_tolerance": within, "verdict": verdict}


def _table(found: Json) -> Table:
    from fairdial.cli.output import table
    from fairdial.cli.points import digits, spell

    names = [name for name in found["groups"][0] if name != "group"]
    lines = [
        [str(line["group"])]
        + [f"{line[n]:,}" if n in ("rows", "selected") else digits(line[n]) for n in names]
        for line in found["groups"]
    ]
    return table(["group", *map(spell, names)], lines)


def _sentence(found: Json) -> str:
    from fairdial.cli.columns import quote_names
    from fairdial.cli.points import spell

    def interval(ends: list[float]) -> str:
        return f"({100 * found['level']:g}% interval {ends[0]:.4f} to {ends[1]:.4f})"

    tolerance, text = f"{found['tolerance']:g}", ""
    if found["confidence"] is not None:
        which = ", for any tolerance" if found["simultaneous"] else ""
        text = (
            f"Certified for tolerance {tolerance} with confidence {found['confidence']:g}{which}. "
        )
    if found["accuracy"] is not None:
        text += f"Accuracy {found['accuracy']:.4f} {interval(found['accuracy_interval'])}. "
    gap = "unknown" if found["gap"] is None else f"{found['gap']:.4f}"
    text += f"{spell(found['criterion']).capitalize()} gap {gap} {interval(found['gap_interval'])}"
    if found["missing_groups"]:
        text += f". DATA has no eligible rows of {quote_names(found['missing_groups'])}, so these "
        text += f"rows can't show that the gap is within the tolerance {tolerance}"
        if found["verdict"] == "above":
            text += "; the other groups show that it is above it in the population"
        return f"{text}."
    here = "within" if found["within_tolerance"] else "above"
    text += f": {here} the tolerance {tolerance} on these rows"
    if found["verdict"] == "undecided":
        return f"{text}; too few rows to tell for the population."
    return f"{text}, and {found['verdict']} it in the population."
