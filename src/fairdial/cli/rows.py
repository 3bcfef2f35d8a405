"""Rows of a user's table to train on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial._validation import did_you_mean, encode_groups, say_values
from fairdial.cli.tables import (
    MISSING,
    as_text,
    find_amount,
    looks_like_dates,
    looks_like_prose,
    need_columns,
    row_name,
    split_names,
    tidy,
)
from fairdial.criteria import criterion as find_criterion
from fairdial.encoders import is_wide
from fairdial.errors import (
    FairdialWarning,
    InvalidInputError,
    SmallGroupError,
    warn,
)
from fairdial.methods.rows import hold_out
from fairdial.sweeping import count_by_group

MOST_LABELS = 10  # that an error lists
MOST_GROUPS = 100
LEAST_LEFT = 2  # rows of a label to train on: boosting holds out one of them to know when to stop
NO_GROUP = (
    "--drop-missing leaves those rows out, --missing-group 'not stated' gives them a group of "
    "their own."
)
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

    @property
    def group_codes(self) -> tuple[NDArray[np.integer[Any]], tuple[Hashable, ...]]:
        """The group of each row, and the groups' names."""
        given = self.X[self.groups] if len(self.groups) > 1 else self.X[self.groups[0]]
        return encode_groups(given, "sensitive_features")

    @property
    def is_wide(self) -> bool:
        """Whether the features are many numbers, such as those of a pretrained network."""
        return is_wide(self.X[self.features])


def training_rows(
    table: pd.DataFrame,
    label: str,
    positive: str | None,
    sensitive: Sequence[str],
    drop: Sequence[str],
    missing_group: str | None = None,
    drop_missing: bool = False,
    tell: Callable[[str], None] | None = None,
) -> TrainingRows:
    """Labels, features and groups of a table, by the names of columns; errors name the option.

    ``tell`` is told how many rows are left out, or given the group ``missing_group``.
    """
    need_columns(table, [label], "--label")
    groups = split_names(sensitive, table.columns)
    need_columns(table, groups, "--sensitive")
    left_out = split_names(drop, table.columns)
    need_columns(table, left_out, "--drop")
    named = [label, *groups, *left_out]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise InvalidInputError(
            f"--label, --sensitive and --drop must name different columns, got {twice!r} twice."
        )
    say = tell or (lambda _: None)
    for name in groups:
        _warn_of_words(table[name], missing_group)
    if missing_group is not None:
        table = table.assign(**_named(table, groups, missing_group, say))
    if drop_missing:
        table = whole_rows(table, [label] if missing_group is not None else [label, *groups], say)
    y, chosen = take_labels(table[label], positive)
    X = take_features(table.drop(columns=[label, *left_out]), groups)
    return TrainingRows(X.reset_index(drop=True), y.reset_index(drop=True), chosen, groups)


def _named(
    table: pd.DataFrame, groups: Sequence[str], name: str, say: Callable[[str], None]
) -> dict[str, pd.Series]:
    """The columns of the groups, with a name where they say nothing."""
    if not name.strip() or not name.isprintable():
        raise InvalidInputError(f"--missing-group must be a name, got {name!r}.")
    for column in groups:
        count = int(table[column].isna().sum())
        there = ", which is there already" if (as_text(table[column]) == name).any() else ""
        so = f"{'is' if count == 1 else 'are'} taken for {name!r}{there}"
        say(f"{say_rows(count)} without {column!r} {so if count else 'there is'}.")
    return fill_groups(table[list(groups)], name)


def fill_groups(table: pd.DataFrame, name: str | None) -> dict[str, pd.Series]:
    """Columns that tell the group as text, with a name where they say nothing.

    As text, because a file can't hold numbers beside a name.
    """
    if name is None:
        return {}
    return {str(column): _filled(table[column], name) for column in table}


def _filled(column: pd.Series, name: str) -> pd.Series:
    values = [
        name if missing else _text_of(value)
        for value, missing in zip(column.tolist(), column.isna(), strict=True)
    ]
    return pd.Series(values, column.index, dtype=object, name=column.name)


def _text_of(value: Any) -> str:
    """A value as text; pandas reads whole numbers as others where one is missing."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def is_read(name: str) -> bool:
    """Whether a text is what becomes of a number or a truth value that is read."""
    try:
        return name in ("False", "True") or name == _text_of(float(name))
    except ValueError:
        return False


def whole_rows(table: pd.DataFrame, names: list[str], say: Callable[[str], None]) -> pd.DataFrame:
    """The rows that have a value in each of these columns, under their numbers.

    Whole numbers are whole again, though pandas reads them as others where one is missing.
    """
    known = table[names].notna().all(axis=1)
    count = int((~known).sum())
    if count == len(table):
        raise InvalidInputError(
            f"--drop-missing must leave rows, got none with {', '.join(map(repr, names))}."
        )
    so = f"{'is' if count == 1 else 'are'} left out" if count else "there is"
    say(f"{say_rows(count)} without {' or '.join(map(repr, names))} {so}.")
    kept = table[known]
    floats = [name for name in names if pd.api.types.is_float_dtype(kept[name].dtype)]
    return kept.astype({name: "int64" for name in floats if (kept[name] % 1 == 0).all()})


def take_labels(column: pd.Series, positive: str | None) -> tuple[pd.Series, Any]:
    """Labels and the positive one; errors name the column."""
    missing = column.isna().to_numpy()
    if missing.any():
        raise InvalidInputError(
            f"--label: {column.name!r} must hold a label in every row, got "
            f"{count_missing(missing)}. --drop-missing leaves those rows out."
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
        if set(values) != {0, 1}:
            warn(
                f"--positive was not given: {max(values)!r} of {column.name!r} is taken for the "
                "label that selected means",
                FairdialWarning,
            )
        return column, None
    for value in values:
        if positive == str(value) or (not isinstance(value, str) and _same(positive, value)):
            return column, value
    raise InvalidInputError(
        f"--positive must be one of the labels {values[0]!r} and {values[1]!r}, got {positive!r}."
        + did_you_mean(positive, map(str, values))
    )


def count_missing(missing: NDArray[np.bool_]) -> str:
    """How many rows lack something, and the first of them."""
    return f"{say_rows(int(missing.sum()))} without (first: {row_name(int(np.argmax(missing)))})"


def say_rows(count: int) -> str:
    """So many rows, in words."""
    return {0: "No row", 1: "1 row"}.get(count, f"{count:,} rows")


def _same(text: str, value: Any) -> bool:
    try:
        return float(text) == float(value)
    except ValueError:
        return False


def take_features(table: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """Features in the form that models take, and the columns of the groups as they are."""
    missing = table[list(groups)].isna().any(axis=1).to_numpy()
    if missing.any():
        raise InvalidInputError(
            f"--sensitive: {', '.join(map(repr, groups))} must tell the group of every row, got "
            f"{count_missing(missing)}. {NO_GROUP}"
        )
    for name in groups:
        _warn_of_twins(table[name])
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
    if features.shape[1] == 0:
        raise InvalidInputError(
            "DATA must have columns to learn from, got none besides the others."
        )
    for name in features:
        told = _hardly_categories(features[name])
        if told is not None:
            warn(f"{told}, or --drop {name!r}", FairdialWarning)
    return features.join(table[list(groups)])


def _hardly_categories(column: pd.Series) -> str | None:
    """What a column seems to be that will be taken for categories, and what to do; or None."""
    apart = "and each is taken for a category of its own"
    if looks_like_dates(column):
        return f"{column.name!r} looks like dates, {apart}: turn them into numbers first"
    amount = find_amount(column)
    if amount is not None:
        return (
            f"{column.name!r} looks like numbers, but with others that are none, such as "
            f"{amount!r}, {apart}: turn them into plain numbers first"
        )
    if column.name == ROW_NUMBERS or (column.dtype == object and column.is_unique):
        return f"{column.name!r} has another value in every row: keep it if it is more than a name"
    if looks_like_prose(column):
        return (
            f"{column.name!r} has {column.nunique():,} different texts in {column.count():,} rows, "
            f"{apart}, the rare ones for one: turn them into numbers or fewer categories first"
        )
    return None


def _warn_of_words(column: pd.Series, missing_group: str | None) -> None:
    """Say which groups have names that stand for what is missing elsewhere."""
    words = {word for word in MISSING if word and word != missing_group}
    for name in column[column.isin(words)].drop_duplicates():
        warn(
            f"--sensitive: {column.name!r} has the group {name!r}, which is taken for a name: only "
            "what is empty is missing there",
            FairdialWarning,
        )


def _warn_of_twins(column: pd.Series) -> None:
    """Say which groups differ only by capitals or spaces around their names."""
    known: dict[str, str] = {}
    for name in column.drop_duplicates():
        plain = str(name).strip().casefold()
        if plain in known:
            warn(
                f"--sensitive: {column.name!r} has the groups {known[plain]!r} and {name!r}, which "
                "differ only by capitals or spaces, and are taken for two: give them one name if "
                "they are one",
                FairdialWarning,
            )
        known.setdefault(plain, name)


def check_two_groups(rows: TrainingRows) -> None:
    """Whether GFB can be trained on these groups."""
    names = rows.group_codes[1]
    if len(names) > 2:
        raise InvalidInputError(
            f"--sensitive: {', '.join(map(repr, rows.groups))} must tell two groups for --method "
            f"gfb, got {say_values(names)}; --method boosting or fairbayes takes any number."
        )


def check_held_out(rows: TrainingRows, criterion: str, share: float, least: int) -> None:
    """Whether every group will have enough held-out rows that count, before anything is trained.

    Also whether every label has rows that are left to train on. How many rows are held out is known
    beforehand; which ones is drawn.
    """
    kind = find_criterion(criterion)
    codes, names = rows.group_codes
    positive = max(rows.y.unique()) if rows.positive is None else rows.positive
    labels = (rows.y == positive).to_numpy()
    held = hold_out(codes.astype(np.intp) * 2 + labels, share, np.random.RandomState(0))
    there = np.bincount(codes, minlength=len(names)).tolist()
    counted = count_by_group(codes[held], labels[held], kind, len(names)).tolist()
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
    left = rows.y.drop(rows.y.index[held]).value_counts()
    if left.min() < LEAST_LEFT:
        rare = left.index.tolist()[left.argmin()]
        raise InvalidInputError(
            f"--label: {rows.y.name!r} must have at least {LEAST_LEFT} rows of each label that "
            f"aren't held out, to train on, got {left.min()} of the label {rare!r}."
        )
