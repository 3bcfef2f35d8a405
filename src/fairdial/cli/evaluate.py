"""``fairdial evaluate``: how a model's decisions do on labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli import options
from fairdial.cli.output import Output
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEVEL = 0.95


@click.command()
@options.MODEL
@options.DATA
@options.tolerance(told="The largest gap that is wished for. [default: where the dial rests]")
@options.CONFIDENCE
@click.option("--label", metavar="COLUMN", help="Column of labels. [default: that of training]")
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=LEVEL,
    show_default=True,
    help="Of the intervals.",
)
@options.KEY
@options.TRUST
@options.tells
def evaluate(
    folder: Path,
    data: Path,
    tolerance: float | None,
    confidence: float | None,
    label: str | None,
    level: float,
    key_file: Path | None,
    trust: tuple[str, ...],
    show: Output,
) -> None:
    """How the decisions of MODEL do on the rows of DATA: accuracy, and the gap between groups.

    Use rows that the model has neither learned from nor was calibrated on. The intervals say where
    the figures of the population lie, with at least the probability of --level: exact binomial
    ones for accuracy and for each group's rate, the latter so wide that all hold together; the gap
    lies between the least and the largest that such rates can make.
    """
    from fairdial._validation import check_fraction
    from fairdial.cli.calibrate import refuse_without_labels
    from fairdial.cli.figures import plain
    from fairdial.cli.models import inputs, label_of, open_model, read_rows
    from fairdial.cli.tables import need_columns

    check_fraction(level, "level")
    model = open_model(folder, key_file, trust)
    name = label_of(model) if label is None else label
    table = read_rows(model, data, name)
    if label is not None:
        need_columns(table, [label], "--label")
    truth = None
    if name is not None and name in table:
        truth = take_truth(model, table[name])
    else:
        refuse_without_labels(model, name)
        show.note("DATA has no labels: accuracy isn't known.")
    X = inputs(model, table)
    decided = model.predict(X, tolerance=tolerance, confidence=confidence) == model.classes_[1]
    wish = model.tolerance if tolerance is None else tolerance
    found = assess(model, X, truth, decided, level) | {
        "tolerance": wish,
        "confidence": confidence,
        "positive": plain(model.classes_[1]),
        "hash": model.model_hash_,
    }
    low, high = found["gap_interval"]
    found["within_tolerance"] = found["gap"] <= wish
    found["verdict"] = "within" if high <= wish else "above" if low > wish else "undecided"
    show.result(found, _sentence(found), _table(found))


def take_truth(model: Any, column: Any) -> NDArray[np.bool_]:
    """Which rows have the positive label; values that are no label are refused."""
    negative, positive = model.classes_.tolist()
    other = column[~column.isin([negative, positive])]
    if len(other):
        raise InvalidInputError(
            f"--label: {column.name!r} must hold {negative!r} and {positive!r}, as in training, "
            f"got {other.iloc[0]!r} in row {other.index[0]}."
        )
    truth: NDArray[np.bool_] = column.isin([positive]).to_numpy()
    return truth


def assess(
    model: Any, X: Any, truth: NDArray[np.bool_] | None, decided: NDArray[np.bool_], level: float
) -> dict[str, Any]:
    """Figures of decisions, by group and in all, with their intervals."""
    from fairdial.cli.figures import plain
    from fairdial.cli.models import sensitive_columns
    from fairdial.confidence import gap_interval, rate_interval
    from fairdial.criteria import criterion
    from fairdial.metrics import gap, group_table

    kind, columns = criterion(model.criterion), sensitive_columns(model)
    groups = X[columns] if len(columns) > 1 else X[columns[0]]
    labels = decided if truth is None else truth
    frame = group_table(labels, decided, sensitive_features=groups)
    if truth is None:
        frame = frame[["rows", "selection_rate"]]
    frame.insert(1, "selected", (frame["selection_rate"] * frame["rows"]).round().astype(int))
    found: dict[str, Any] = {
        "criterion": kind.name,
        "rows": len(decided),
        "accuracy": None,
        "accuracy_interval": None,
        "gap": gap(labels, decided, sensitive_features=groups, criterion=kind),
        "gap_interval": list(gap_interval(*_counted(kind, groups, truth, decided), level)),
        "level": level,
        "groups": [
            {"group": plain(name)} | {column: plain(value) for column, value in line.items()}
            for name, line in frame.to_dict("index").items()
        ],
    }
    if truth is not None:
        right = int((decided == truth).sum())
        found["accuracy"] = right / len(truth)
        found["accuracy_interval"] = list(rate_interval(right, len(truth), level))
    return found


def _counted(
    kind: Any, groups: Any, truth: NDArray[np.bool_] | None, decided: NDArray[np.bool_]
) -> tuple[list[int], list[int]]:
    """Rows of each group that count for the criterion: those selected, and all."""
    import numpy as np

    from fairdial._validation import encode_groups

    codes, names = encode_groups(groups, "sensitive_features")
    counts = np.ones(len(decided), np.bool_)
    if truth is not None and kind.rates[0].counted is not None:
        counts = truth == bool(kind.rates[0].counted)
    size = len(names)
    selected = np.bincount(codes[counts & decided], minlength=size)
    return selected.tolist(), np.bincount(codes[counts], minlength=size).tolist()


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
    if found["accuracy"] is not None:
        text = f"Accuracy {found['accuracy']:.4f} {between(found['accuracy_interval'])}. "
    text += f"{found['criterion'].replace('_', ' ').capitalize()} gap {found['gap']:.4f} "
    text += f"{between(found['gap_interval'])}: "
    here = "within" if found["within_tolerance"] else "above"
    text += f"{here} the tolerance {found['tolerance']:g} on these rows"
    if found["verdict"] == "undecided":
        return text + "; for the population they don't decide it."
    return text + f", and {found['verdict']} it in the population."
