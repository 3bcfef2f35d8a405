"""How decisions do on rows: figures by group and in all, with intervals."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._validation import match_groups
from fairdial.cli.figures import plain
from fairdial.cli.rows import count_missing
from fairdial.cli.tables import row_name
from fairdial.confidence import gap_interval, rate_interval
from fairdial.criteria import criterion
from fairdial.errors import InvalidInputError
from fairdial.metrics import group_table


def take_truth(model: Any, column: Any, ways: str = "") -> NDArray[np.bool_]:
    """Which rows have the positive label; values that are no label are refused.

    ``ways`` are those out of missing labels besides leaving their rows out.
    """
    missing = column.isna().to_numpy()
    if missing.any():
        raise InvalidInputError(
            f"DATA must hold a label in every row of {column.name!r}, got {count_missing(missing)}."
            f" --drop-missing leaves those rows out{ways}."
        )
    negative, positive = model.classes_.tolist()
    other = column[~column.isin([negative, positive])]
    if len(other):
        raise InvalidInputError(
            f"DATA must hold {negative!r} or {positive!r} in {column.name!r}, as in training, got "
            f"{other.iloc[0]!r} in {row_name(other.index[0])}."
        )
    truth: NDArray[np.bool_] = column.isin([positive]).to_numpy()
    return truth


def assess(
    model: Any,
    groups: Any,
    truth: NDArray[np.bool_] | None,
    decided: NDArray[np.bool_],
    level: float,
) -> dict[str, Any]:
    """Figures of decisions, by group and in all, with their intervals.

    Of a group without rows that count, every rate is possible: the interval of the gap allows for
    it, and the gap is that of the other groups (None where fewer than two are left).
    """
    kind = criterion(model.criterion)
    labels = decided if truth is None else truth
    frame = group_table(labels, decided, sensitive_features=groups)
    if truth is None:
        frame = frame[["rows", "selection_rate"]]
    frame.insert(1, "selected", (frame["selection_rate"] * frame["rows"]).round().astype(int))
    names = model.frontier_.groups
    selected, counted = _counted(kind, names, groups, truth, decided)
    rates = [k / n for k, n in zip(selected, counted, strict=True) if n]
    found: dict[str, Any] = {
        "criterion": kind.name,
        "rows": len(decided),
        "accuracy": None,
        "accuracy_interval": None,
        "gap": max(rates) - min(rates) if len(rates) > 1 or len(names) == 1 else None,
        "gap_interval": list(gap_interval(selected, counted, level)),
        "missing_groups": [plain(a) for a, n in zip(names, counted, strict=True) if n == 0],
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
    kind: Any,
    names: tuple[Hashable, ...],
    groups: Any,
    truth: NDArray[np.bool_] | None,
    decided: NDArray[np.bool_],
) -> tuple[list[int], list[int]]:
    """Rows of each of the model's groups that count for the criterion: those selected, and all."""
    codes = match_groups(groups, names, "sensitive_features")
    counts = np.ones(len(decided), np.bool_)
    if truth is not None and kind.rates[0].counted is not None:
        counts = truth == bool(kind.rates[0].counted)
    size = len(names)
    selected = np.bincount(codes[counts & decided], minlength=size)
    return selected.tolist(), np.bincount(codes[counts], minlength=size).tolist()
