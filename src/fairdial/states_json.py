"""States of a dial as plain data for JSON, and back, checked."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from fairdial.criteria import Criterion
from fairdial.errors import InvalidInputError
from fairdial.ladders import Counts, Floats, Ladder
from fairdial.paths import Measured, Path, States, Table, count_for, count_rows

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}


def plain_name(name: Hashable) -> Any:
    """A group's name as JSON knows it."""
    value = name.item() if isinstance(name, np.generic) else name
    if not isinstance(value, (str, int, float, bool)):
        raise InvalidInputError(
            f"`groups` must be named by text or numbers to be written as JSON, got {name!r}."
        )
    return value


def states_to_data(states: States) -> dict[str, Any]:
    """A path by its ladders, settings by what they select; other states column by column."""
    if isinstance(states, Path):
        ladders = [
            {
                "lower": _numbers(ladder.lower),
                "upper": _numbers(ladder.upper) if ladder.wide.any() else None,
                "counts": ladder.counts.tolist(),
            }
            for ladder in states.ladders
        ]
        return {"dtype": states.dtype.name, "ladders": ladders}
    thresholds, selected = states.read(np.arange(len(states)))
    if states.family is not None:
        family = {
            "setting": _numbers(states.setting),
            "selected": selected.tolist(),
            "declared": states.certifiable.tolist(),
            "family": states.family,
        }
        return {"measured": family}
    columns = {
        "setting": _numbers(states.setting),
        "gap": _numbers(states.gap),
        "certifiable": states.certifiable.tolist(),
        "thresholds": [_numbers(line) for line in thresholds],
        "selected": selected.tolist(),
    }
    return {"states": columns}


def states_from_data(data: dict[str, Any], criterion: Criterion, rows: Counts) -> States:
    """What :func:`states_to_data` gave, for these rows by label and group."""
    if "ladders" in data:
        ladders = [_read_ladder(item) for item in data["ladders"]]
        if not np.array_equal(count_rows(ladders), rows) or not count_for(criterion, rows).all():
            raise ValueError("ladders that don't hold the rows")
        return Path(ladders, criterion, DTYPES[data["dtype"]])
    if "measured" in data:
        return _read_measured(data["measured"], criterion, rows)
    columns = data["states"]
    table = Table(
        setting=np.array(columns["setting"], np.float64),
        gap=np.array(columns["gap"], np.float64),
        certifiable=np.array(columns["certifiable"], np.bool_),
        thresholds=np.array(columns["thresholds"], np.float64),
        selected=np.array(columns["selected"], np.int64),
    )
    _check_table(table, rows)
    return table


def _numbers(values: Floats) -> list[Any]:
    """Finite numbers as they are, infinite ones as words that float() reads."""
    return [value if np.isfinite(value) else str(value) for value in values.tolist()]


def _read_ladder(item: dict[str, Any]) -> Ladder:
    lower = np.array(item["lower"], np.float64)
    upper = lower if item["upper"] is None else np.array(item["upper"], np.float64)
    counts = np.array(item["counts"], np.int64)
    if lower.ndim != 1 or lower.shape != upper.shape or counts.shape[1:] != lower.shape:
        raise ValueError("ladder columns of different lengths")
    if not np.all(np.diff(lower) < 0) or not np.all(lower <= upper) or np.any(counts < 0):
        raise ValueError("ladder out of order")
    return Ladder.of_counts(lower, upper, counts)


def _read_measured(item: dict[str, Any], criterion: Criterion, rows: Counts) -> Measured:
    setting = np.array(item["setting"], np.float64)
    selected = np.array(item["selected"], np.int64)
    declared, family = np.array(item["declared"]), item["family"]
    size = len(setting)
    if size == 0 or setting.shape != (size,) or np.isnan(setting).any():
        raise ValueError("settings that are none")
    if declared.shape != (size,) or declared.dtype != np.bool_:
        raise ValueError("another number of settings that were declared or not")
    if type(family) is not int or family < declared.sum():
        raise ValueError("a family smaller than its declared settings")
    _check_selected(selected, size, rows)
    if not count_for(criterion, rows).all():
        raise ValueError("groups without rows that count")
    return Measured(setting, selected, rows, criterion, declared, family)


def _check_selected(selected: Counts, size: int, rows: Counts) -> None:
    if selected.shape != (size, *rows.shape):
        raise ValueError("state columns of another shape than the rows")
    if np.any(selected < 0) or np.any(selected > rows):
        raise ValueError("states that select rows that aren't there")


def _check_table(table: Table, rows: Counts) -> None:
    size = len(table)
    thresholds, selected = table.read(np.arange(size))
    shapes = [table.setting.shape, table.gap.shape, table.certifiable.shape]
    if size == 0 or any(shape != (size,) for shape in shapes):
        raise ValueError("state columns of different lengths")
    if thresholds.shape != (size, rows.shape[1]) or np.isnan(thresholds).any():
        raise ValueError("thresholds that are none")
    if np.isnan([table.setting, table.gap]).any():
        raise ValueError("settings or gaps that are none")
    _check_selected(selected, size, rows)
