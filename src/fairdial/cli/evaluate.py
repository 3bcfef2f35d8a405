"""``fairdial evaluate``: how a model's decisions do on labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output

LEVEL = 0.95


@click.command()
@options.MODEL
@options.DATA
@options.tolerance(told="The largest gap that is wished for. [default: where the dial rests]")
@options.certifies
@click.option("--label", metavar="COLUMN", help="Column of labels. [default: that of training]")
@options.SENSITIVE
@options.DROP_MISSING
@click.option(
    "--level",
    type=options.Share(0, 1, min_open=True, max_open=True),
    default=LEVEL,
    show_default=True,
    help="Of the intervals.",
)
@options.KEY
@options.reads
@options.TRUST
@options.tells
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
    form: options.Form,
    show: Output,
) -> None:
    """How the decisions of MODEL do on the rows of DATA: accuracy, and the gap between groups.

    Use rows that the model has neither learned from nor was calibrated on. The intervals say where
    the figures of the population lie, with at least the probability of --level: exact binomial
    ones for accuracy and for each group's rate, the latter so wide that all hold together; the gap
    lies between the least and the largest that such rates can make.
    """
    from fairdial._validation import check_fraction
    from fairdial.cli.assessing import assess, take_truth
    from fairdial.cli.calibrate import refuse_without_labels, say_unlabelled
    from fairdial.cli.figures import holds_for_any, plain
    from fairdial.cli.model_rows import label_of, read_rows, refuse_strangers, wishes
    from fairdial.cli.models import open_model, share_of, telling_table
    from fairdial.cli.tables import need_columns

    check_fraction(level, "level")
    model = open_model(folder, key_file, trust)
    name = label_of(model) if label is None else label
    rows = read_rows(model, data, name, show.note, form, sensitive, drop_missing)
    if label is not None:
        need_columns(rows.table, [label], "--label")
    truth = None
    if name is not None and name in rows.table:
        truth = take_truth(model, rows.table[name])
    else:
        refuse_without_labels(model, name)
        show.note(f"{say_unlabelled(name)}: accuracy isn't known.")
    refuse_strangers(model, rows)
    wish = model.tolerance if tolerance is None else tolerance
    asked = wishes(wish, rows, simultaneous)
    with telling_table(share_of(model), asked=tolerance is not None):
        labels = model.predict(
            rows.X, sensitive_features=rows.apart, tolerance=asked, confidence=confidence
        )
    found = assess(model, rows.groups, truth, labels == model.classes_[1], level) | {
        "tolerance": wish,
        "confidence": confidence,
        "simultaneous": holds_for_any(model.frontier_, confidence, simultaneous),
        "positive": plain(model.classes_[1]),
        "hash": model.model_hash_,
    }
    show.result(found | judge(found), _sentence(found | judge(found)), _table(found))


def judge(found: dict[str, Any]) -> dict[str, Any]:
    """Whether the gap is within the tolerance: on these rows, and in the population.

    Rows that lack a group can show that the gap is too large, and never that it isn't.
    """
    wish, gap, whole = found["tolerance"], found["gap"], not found["missing_groups"]
    low, high = found["gap_interval"]
    above = gap is not None and gap > wish
    return {
        "within_tolerance": not above if whole else False if above else None,
        "verdict": "above" if low > wish else "within" if whole and high <= wish else "undecided",
    }


def _table(found: dict[str, Any]) -> Any:
    from fairdial.cli.figures import share
    from fairdial.cli.output import table

    names = [name for name in found["groups"][0] if name != "group"]
    lines = [
        [str(line["group"])]
        + [f"{line[n]:,}" if n in ("rows", "selected") else share(line[n]) for n in names]
        for line in found["groups"]
    ]
    return table(["group", *(name.replace("_", " ") for name in names)], lines)


def _sentence(found: dict[str, Any]) -> str:
    def between(interval: list[float]) -> str:
        return f"({100 * found['level']:g}% interval {interval[0]:.4f} to {interval[1]:.4f})"

    text = ""
    if found["confidence"] is not None:
        text = (
            f"The position is that of tolerance {found['tolerance']:g} with confidence "
            f"{found['confidence']:g}{' for any tolerance' if found['simultaneous'] else ''}. "
        )
    if found["accuracy"] is not None:
        text += f"Accuracy {found['accuracy']:.4f} {between(found['accuracy_interval'])}. "
    gap = "is not known" if found["gap"] is None else f"{found['gap']:.4f}"
    text += f"{found['criterion'].replace('_', ' ').capitalize()} gap {gap} "
    text += f"{between(found['gap_interval'])}: "
    if found["missing_groups"]:
        lacking = ", ".join(map(repr, found["missing_groups"]))
        text += f"DATA has no rows of {lacking} that count, so nothing shows that the gap is "
        text += f"within the tolerance {found['tolerance']:g}"
        if found["verdict"] == "above":
            return text + "; the others show that it is above it in the population."
        return text + "."
    here = "within" if found["within_tolerance"] else "above"
    text += f"{here} the tolerance {found['tolerance']:g} on these rows"
    if found["verdict"] == "undecided":
        return text + "; too few rows to say for the population."
    return text + f", and {found['verdict']} it in the population."
