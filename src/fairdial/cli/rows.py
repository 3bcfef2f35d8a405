"""Rows of a user's table: to train on, and for a model that knows its columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairdial._validation import encode_groups
from fairdial.cli.tables import (
    as_numbers,
    as_text,
    looks_like_dates,
    nearest,
    need_columns,
    read_table,
    row_name,
    split_names,
    tidy,
)
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import FairdialWarning, InvalidInputError, SmallGroupError, warn
from fairdial.methods.rows import hold_out

MOST_LABELS = 10  # that an error lists
MOST_GROUPS = 100
ROW_NUMBERS = "Unnamed: 0"  # what pandas calls the index that it wrote into a CSV file


@dataclass(frozen=True)
class TrainingRows:
    """What ``fit`` is given.

    Attributes
    ----------
    X : DataFrame
        Features, and the columns that tell the group.
    y : Series
        Labels.
    positive : label or None
        The positive one, if it was named.
    groups : list of str
        Columns that tell the group.
    """

    X: pd.DataFrame
    y: pd.Series
    positive: Any
    groups: list[str]

    @property
    def features(self) -> list[str]:
        """Columns that the model learns from."""
        return [name for name in self.X if name not in self.groups]

    @property
    def texts(self) -> list[str]:
        """Features that are text."""
        return [name for name in self.features if self.X[name].dtype == object]


def training_rows(
    table: pd.DataFrame,
    label: str,
    positive: str | None,
    sensitive: Sequence[str],
    drop: Sequence[str],
) -> TrainingRows:
    """Labels, features and groups of a table, by the names of columns; errors name the option."""
    need_columns(table, [label], "--label")
    groups = split_names(sensitive, table)
    need_columns(table, groups, "--sensitive")
    left_out = split_names(drop, table)
    need_columns(table, left_out, "--drop")
    named = [label, *groups, *left_out]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise InvalidInputError(
            f"--label, --sensitive and --drop must name different columns, got {twice!r} twice."
        )
    y, chosen = take_labels(table[label], positive)
    X = take_features(table.drop(columns=[label, *left_out]), groups)
    return TrainingRows(X, y, chosen, groups)


def take_labels(column: pd.Series, positive: str | None) -> tuple[pd.Series, Any]:
    """Labels and the positive one; errors name the column."""
    if column.isna().any():
        raise InvalidInputError(
            f"--label: {column.name!r} must hold a label in every row, got {column.isna().sum()} "
            "missing."
        )
    values = sorted(column.unique().tolist(), key=str)
    if len(values) != 2:
        listed = ", ".join(repr(v) for v in values[:MOST_LABELS])
        more = ", ..." if len(values) > MOST_LABELS else ""
        raise InvalidInputError(
            f"--label: {column.name!r} must hold two values, got {len(values)}: {listed}{more}."
        )
    for value in values:
        if isinstance(value, float) and not value.is_integer():
            raise InvalidInputError(
                f"--label: {column.name!r} must hold texts, whole numbers or truth values, got "
                f"{value!r}."
            )
    if positive is None:
        if isinstance(values[1], str):
            warn(
                f"--positive was not given: {max(values)!r} of {column.name!r} is taken for the "
                "label that selected means",
                FairdialWarning,
            )
        return column, None
    for value in values:
        if positive == str(value) or (not isinstance(value, str) and _same(positive, value)):
            return column, value
    near = nearest(positive, [str(value) for value in values])
    told = f" Did you mean {near!r}?" if near is not None else ""
    raise InvalidInputError(
        f"--positive must be one of the labels {values[0]!r} and {values[1]!r}, got {positive!r}."
        + told
    )


def _same(text: str, value: Any) -> bool:
    try:
        return float(text) == float(value)
    except ValueError:
        return False


def take_features(table: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """Features in the form that models take, and the columns of the groups as they are."""
    missing = table[list(groups)].isna().any(axis=1)
    if missing.any():
        raise InvalidInputError(
            f"--sensitive: {', '.join(map(repr, groups))} must tell the group of every row, got "
            f"{int(missing.sum())} rows without."
        )
    names = table[list(groups)].drop_duplicates()
    many = len(names)
    if many == 1:
        raise InvalidInputError(
            f"--sensitive: {', '.join(map(repr, groups))} must tell two groups or more, got one: "
            f"{' & '.join(map(str, names.iloc[0]))!r}. There is no gap to be dialled."
        )
    if many > MOST_GROUPS:
        raise InvalidInputError(
            f"--sensitive: {', '.join(map(repr, groups))} must tell at most {MOST_GROUPS} groups, "
            f"got {many:,}. Put values together first, such as ages into ranges."
        )
    features = tidy(table.drop(columns=list(groups)))
    for name in features:
        if looks_like_dates(features[name]):
            warn(
                f"{name!r} looks like dates, and each is taken for a category of its own: turn "
                f"them into numbers first, or --drop {name!r}",
                FairdialWarning,
            )
    if features.shape[1] == 0:
        raise InvalidInputError(
            "DATA must have columns to learn from, got none besides the others."
        )
    for name in features:
        if name == ROW_NUMBERS or (features[name].dtype == object and features[name].is_unique):
            warn(
                f"{name!r} has another value in every row: if it is only a name, --drop {name!r}",
                FairdialWarning,
            )
    return features.join(table[list(groups)])


def check_held_out(rows: TrainingRows, criterion: str, share: float, least: int) -> None:
    """Whether every group will have enough held-out rows that count, before anything is trained.

    How many rows are held out is known beforehand; which ones is drawn.
    """
    kind = find_criterion(criterion)
    given = rows.X[rows.groups] if len(rows.groups) > 1 else rows.X[rows.groups[0]]
    codes, names = encode_groups(given, "sensitive_features")
    positive = max(rows.y.unique()) if rows.positive is None else rows.positive
    labels = (rows.y == positive).to_numpy()
    held = hold_out(codes.astype(np.intp) * 2 + labels, share, np.random.RandomState(0))
    wanted = kind.rates[0].counted
    counts = held if wanted is None else held[labels[held] == bool(wanted)]
    there = np.bincount(codes, minlength=len(names)).tolist()
    counted = np.bincount(codes[counts], minlength=len(names)).tolist()
    small = [
        f"{name!r} ({n:,} of its {m:,} rows)"
        for name, n, m in zip(names, counted, there, strict=True)
        if n < least
    ]
    if small:
        raise SmallGroupError(
            f"--sensitive: every group of {', '.join(map(repr, rows.groups))} must have at least "
            f"{least} held-out rows that count for {kind.name}, got fewer in {', '.join(small)}. "
            "Merge small groups, leave their rows out, hold out more rows (--calibration), or "
            "lower --min-count: a single row of a tiny group can move everybody else."
        )


# ---- rows for a model --------------------------------------------------------------------------


def sensitive_columns(model: Any) -> list[str]:
    """Columns that tell the group."""
    given = model.sensitive_column
    if given is None:
        raise InvalidInputError(
            "MODEL must know which column tells the group, got one that was trained without "
            "`sensitive_column`: use it from Python."
        )
    return list(given) if isinstance(given, (list, tuple)) else [given]


def label_of(model: Any) -> str | None:
    """The column of the labels in training, where they came from one."""
    name: str | None = getattr(model, "label_name_", None)
    return name


def read_rows(model: Any, data: Path, label: str | None = None) -> pd.DataFrame:
    """The table with every column that the model needs, each of the kind that it knows."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InvalidInputError(
            "MODEL must know its features by name, got one that was trained on rows without "
            "names: use it from Python."
        )
    features, groups = [str(name) for name in names], sensitive_columns(model)
    kinds = getattr(model, "feature_dtypes_", {})
    texts = [name for name in features if _is_text(kinds.get(name))]
    known = model.frontier_.groups if hasattr(model, "frontier_") else ()
    if len(groups) == 1 and known and all(isinstance(name, str) for name in known):
        texts += groups
    if label is not None and isinstance(model.classes_[1], str):
        texts.append(label)
    table = read_table(data, texts)
    need_columns(table, [*features, *groups], "DATA")
    missing = table[groups].isna().any(axis=1).to_numpy()
    if missing.any():
        raise InvalidInputError(
            f"DATA must tell the group of every row in {', '.join(map(repr, groups))}, got "
            f"{int(missing.sum()):,} rows without (the first: {row_name(int(np.argmax(missing)))})."
        )
    return table.assign(**{name: _as_known(table[name], kinds.get(name)) for name in features})


def _is_text(kind: Any) -> bool:
    """Whether a column's type in training was one of texts."""
    values = getattr(kind, "categories", None)
    if values is not None:
        return all(isinstance(value, str) for value in values)
    return kind is not None and getattr(kind, "kind", "O") not in "biuf"


def _as_known(column: pd.Series, kind: Any) -> pd.Series:
    """A column in the type that it had in training."""
    if kind is None:
        return tidy(column.to_frame())[column.name]
    ready = as_text(column) if _is_text(kind) else column
    if hasattr(kind, "categories"):
        return ready.astype(kind)
    return ready if _is_text(kind) else as_numbers(column)


def groups_of(model: Any, table: pd.DataFrame) -> tuple[Hashable, ...]:
    """Names of the groups that the rows are of."""
    columns = sensitive_columns(model)
    given = table[columns] if len(columns) > 1 else table[columns[0]]
    return encode_groups(given, "sensitive_features")[1]


def inputs(model: Any, table: pd.DataFrame) -> pd.DataFrame:
    """Features and groups, as ``predict`` takes them."""
    return table[[*map(str, model.feature_names_in_), *sensitive_columns(model)]]
