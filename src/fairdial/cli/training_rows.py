"""Rows of a user's table to train on: labels, features, groups."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NotRequired, TypedDict

import numpy as np
import pandas as pd

from fairdial._arrays import Codes
from fairdial._validation import did_you_mean, encode_groups
from fairdial.cli.columns import (
    Note,
    as_features,
    as_strata,
    as_weights,
    count_missing,
    count_rows,
    describe_doubt,
    describe_useless,
    drop_incomplete,
    find_small,
    quote_names,
)
from fairdial.cli.output import visible
from fairdial.cli.reading import MISSING, require_columns, split_names
from fairdial.errors import FairdialWarning, InvalidInputError, warn
from fairdial.estimators.base import GroupProxies, MergedGroups
from fairdial.estimators.proxies import column_accuracies, find_proxies
from fairdial.tables.encoder import is_wide
from fairdial.tables.values import as_text, fill_groups, merge_groups, merge_labels, negative_name

MOST_LABELS = 10  # that an error lists
MOST_GROUPS = 100
MOST_CLASSES = 100  # with more, a label is probably a number
OTHER = "Other"  # name of small groups together
MANY_REPEATED = 0.01  # share of rows from which they draw a note
MOST_PROXIES = 3  # columns that a model remembers
TELLS_LABEL, TELLS_GROUP = (
    0.99,
    0.95,
)  # balanced accuracy of one column from which it draws a warning
LEAST_LEFT = 2  # rows of each label to train on: boosting holds out one of them for early stopping

Label = str | int | float | bool


class Merged(TypedDict):
    """What became of small groups and of further labels."""

    merged_groups: NotRequired[MergedGroups]
    merged_labels: NotRequired[list[str]]


@dataclass(frozen=True)
class TrainingRows:
    """What ``fit`` gets.

    Attributes
    ----------
    X : DataFrame
        Features and group columns.
    y : Series
        Labels.
    positive : label or None
        The positive one, if the user named it.
    groups : list of str
        Group columns.
    weights : Series or None
        Weights of the rows.
    strata : Series, DataFrame or None
        Control columns.
    merged : dict
        Groups and labels that were merged, which a model remembers in its ``training_``.
    """

    X: pd.DataFrame
    y: pd.Series
    positive: Label | None
    groups: list[str]
    weights: pd.Series | None = None
    strata: pd.Series | pd.DataFrame | None = None
    merged: Merged = field(default_factory=Merged)

    @property
    def row_options(self) -> dict[str, pd.Series | pd.DataFrame]:
        """Weights and strata as ``fit`` takes them, if there are any."""
        given = {"sample_weight": self.weights, "control_features": self.strata}
        return {name: column for name, column in given.items() if column is not None}

    @property
    def control(self) -> list[str]:
        """Names of the control columns."""
        if self.strata is None:
            return []
        return [str(name) for name in pd.DataFrame(self.strata).columns]

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return [name for name in self.X if name not in self.groups]

    @property
    def texts(self) -> list[str]:
        """Names of the features that are text."""
        return [name for name in self.features if self.X[name].dtype == object]

    @property
    def is_wide(self) -> bool:
        """Whether the features are many numbers, such as those of a pretrained network."""
        return is_wide(self.X[self.features])

    @cached_property
    def group_codes(self) -> tuple[Codes, tuple[Hashable, ...]]:
        """The group code of each row, and the names of the groups."""
        given = self.X[self.groups] if len(self.groups) > 1 else self.X[self.groups[0]]
        return encode_groups(given, "sensitive_features")


def training_rows(
    table: pd.DataFrame,
    *,
    label: str,
    positive: str | None,
    sensitive: Sequence[str],
    drop: Sequence[str],
    weights: str | None = None,
    control: Sequence[str] = (),
    missing_group: str | None,
    drop_missing: bool,
    merge_small: int | None = None,
    two_labels: str = "",
    note: Note,
) -> TrainingRows:
    """Return the labels, features and groups of a table; the parameters are train's options.

    ``two_labels`` says why the label has two values, if it can't have more. ``note`` gets a
    sentence on the rows that are left out, or get the group ``missing_group``.
    """
    require_columns(table, [label], "label")
    groups = split_names(sensitive, table.columns)
    require_columns(table, groups, "sensitive")
    dropped = split_names(drop, table.columns)
    require_columns(table, dropped, "drop")
    weighing = [] if weights is None else [weights]
    require_columns(table, weighing, "weights")
    controlled = split_names(control, table.columns)
    require_columns(table, controlled, "control")
    used = {"label": [label], "sensitive": groups, "drop": dropped}
    used |= {"weights": weighing, "control": controlled}
    for first, second in combinations(used, 2):
        for name in used[first]:
            if name in used[second] and (first, second) != ("drop", "control"):
                raise InvalidInputError(second, f"not name a column of `{first}`", given=repr(name))
    for name in groups:
        _warn_of_missing_names(table[name], missing_group)
    if missing_group is not None:
        table = table.assign(**_name_missing(table, groups, missing_group, note))
    if drop_missing:
        required = [label] if missing_group is not None else [label, *groups]
        table = drop_incomplete(table, required, note)
    merged = Merged()
    if merge_small is not None and not table[groups].isna().any(axis=None):
        small = _merge_small(table[groups], merge_small, note)
        if small is not None:
            merged["merged_groups"] = small
            table = table.assign(**merge_groups(table[groups], small))
    others = _further_labels(table[label], positive)
    if others:
        merged["merged_labels"] = others
        table = table.assign(**{label: merge_labels(table[label], str(positive), others)})
        note(
            f"{label!r} has {len(others) + 1} values: {', '.join(map(repr, others))} are combined "
            f"into {negative_name(str(positive))!r}."
        )
    y, chosen = check_labels(table[label], positive, two=two_labels)
    check_groups(table[groups])
    repeated = int(table.duplicated().sum())
    if repeated >= MANY_REPEATED * len(table):
        note(
            f"{count_rows(repeated)} of {len(table):,} repeat another row in every column. If they "
            "are copies, remove them: a copy that is held out was seen in training, and is counted "
            "as another person."
        )
    weight = as_weights(table[weights]) if weights is not None else None
    strata = as_strata(table[controlled]) if controlled else None
    used_up = [label, *groups, *dropped, *weighing]
    X = make_features(table.drop(columns=used_up)).join(table[groups])
    return TrainingRows(
        X.reset_index(drop=True),
        y.reset_index(drop=True),
        chosen,
        groups,
        None if weight is None else weight.reset_index(drop=True),
        None if strata is None else strata.reset_index(drop=True),
        merged,
    )


def _name_missing(
    table: pd.DataFrame, groups: Sequence[str], name: str, note: Note
) -> dict[str, pd.Series]:
    if not name.strip() or not name.isprintable():
        raise InvalidInputError("missing_group", "be a name", given=repr(name))
    for column in groups:
        count = int(table[column].isna().sum())
        exists = ", which exists already" if (as_text(table[column]) == name).any() else ""
        what = f"assigned to the group {name!r}{exists}" if count else "found"
        note(f"{count_rows(count)} without {column!r} {what}.")
    return fill_groups(table[list(groups)], name)


def _merge_small(columns: pd.DataFrame, least: int, note: Note) -> MergedGroups | None:
    """Return the groups with fewer rows, which become one, or None if there are none."""
    small = find_small(columns, least)
    if not small:
        note(f"All groups have at least {count_rows(least)}: none is merged.")
        return None
    shown = quote_names(" & ".join(values) for values in small[:MOST_LABELS])
    more = ", ..." if len(small) > MOST_LABELS else ""
    note(f"Groups of fewer than {count_rows(least)} are merged into {OTHER!r}: {shown}{more}.")
    return {"name": OTHER, "values": small}


# ---- labels ------------------------------------------------------------------------------------


def _further_labels(column: pd.Series, positive: str | None) -> list[str]:
    """Return the values of a label besides the positive one, if there are several."""
    if positive is None or column.isna().any():
        return []
    values = sorted(as_text(column.drop_duplicates()).tolist())
    if not 3 <= len(values) <= MOST_LABELS or positive not in values:
        return []
    return [value for value in values if value != positive]


def check_labels(
    column: pd.Series, positive: str | None, *, two: str = ""
) -> tuple[pd.Series, Label | None]:
    """Return the labels and the positive one, in its type; None if the user named none.

    ``two`` says why there are two labels, if there can't be more.
    """
    missing = column.isna().to_numpy()
    if missing.any():
        raise InvalidInputError(
            "label",
            "have a value in every row",
            given=f"{column.name!r} with {count_missing(missing)}",
            hint="`drop_missing` leaves those rows out.",
        )
    values = sorted(column.unique().tolist(), key=str)
    most = 2 if two or positive is not None else MOST_CLASSES
    if not 2 <= len(values) <= most:
        listed = quote_names(values[:MOST_LABELS])
        more = ", ..." if len(values) > MOST_LABELS else ""
        allowed = f"have two values {two}".strip()
        if most > 2:
            allowed = f"have two values, or up to {most} as classes"
        raise InvalidInputError(
            "label",
            allowed,
            given=f"{column.name!r} with {len(values)}: {listed}{more}",
            hint="`positive` names one value; the others are combined." if two else "",
        )
    for value in values:
        if isinstance(value, float) and not value.is_integer():
            raise InvalidInputError(
                "label",
                "hold text, whole numbers or truth values",
                given=f"{column.name!r} with {value!r}",
            )
    if positive is None:
        if len(values) == 2 and set(values) != {0, 1}:
            warn(
                f"`positive` was not given: {max(values)!r} of {column.name!r} is taken as the "
                "positive class",
                FairdialWarning,
            )
        return column, None
    for value in values:
        if positive == str(value) or (not isinstance(value, str) and _equal(positive, value)):
            return column, value
    raise InvalidInputError(
        "positive",
        f"be one of the labels {values[0]!r} and {values[1]!r}",
        given=repr(positive),
        hint=did_you_mean(positive, map(str, values)).strip(),
    )


def _equal(text: str, number: float) -> bool:
    try:
        return float(text) == float(number)
    except ValueError:
        return False


def check_labels_left(rows: TrainingRows, held_out: float) -> None:
    """Refuse labels with hardly a row left to train on once a share of each cell is held out."""
    labels, values = pd.factorize(rows.y)
    codes = rows.group_codes[0].astype(np.intp)
    cells, size = len(values) * codes + labels, len(values) * (int(codes.max()) + 1)
    counts = np.bincount(cells, minlength=size).reshape(-1, len(values))  # (K, C)
    held = np.minimum(np.ceil(held_out * counts).astype(int), np.maximum(counts - 1, 0))
    left = (counts - held).sum(axis=0).tolist()
    fewest, label = min(left), values.tolist()[left.index(min(left))]
    if fewest < LEAST_LEFT:
        raise InvalidInputError(
            "label",
            f"leave at least {LEAST_LEFT} rows of each value to train on",
            given=f"{rows.y.name!r} with {fewest} of {label!r} that isn't held out",
        )


def find_leaks(rows: TrainingRows, seed: int) -> GroupProxies | None:
    """Return what the model remembers of proxies for the group; warn of columns that say all.

    These are columns that determine a row's label, so that nothing is left to predict, or its
    group, so that a scorer without the group sees it all the same.
    """
    features, codes = rows.X[rows.features], rows.group_codes[0].astype(np.intp)
    found = find_proxies(features, codes, seed)
    if found is None:
        return None
    labels = column_accuracies(features, pd.factorize(rows.y)[0], seed)
    for what, column, accuracies, enough in (
        ("label", rows.y.name, labels, TELLS_LABEL),
        ("group", ",".join(rows.groups), found.columns, TELLS_GROUP),
    ):
        for name, accuracy in accuracies.items():
            if accuracy >= enough:
                warn(
                    f"{name!r} determines the {what} ({column}) of nearly every row (balanced "
                    f"accuracy {accuracy:.3f}): leave it out with `drop={name}`, unless it is "
                    "known before the decision and meant to count",
                    FairdialWarning,
                )
    best = dict(list(found.columns.items())[:MOST_PROXIES])
    return {"together": found.together, "columns": best, "chance": found.chance}


# ---- features and groups -----------------------------------------------------------------------


def check_groups(columns: pd.DataFrame) -> None:
    """Refuse group columns with missing values, with one group, or with very many."""
    names = quote_names(columns)
    missing = columns.isna().any(axis=1).to_numpy()
    if missing.any():
        raise InvalidInputError(
            "sensitive",
            "have a value in every row",
            given=f"{names} with {count_missing(missing)}",
            hint=(
                "`drop_missing` leaves those rows out.",
                "`missing_group='not stated'` gives them a group of their own.",
            ),
        )
    for name in columns:
        _warn_of_similar_names(columns[name])
        for value in map(str, columns[name].drop_duplicates()):
            if visible(value) != value or "\n" in value or "\t" in value:
                raise InvalidInputError(
                    "sensitive",
                    "have names that can be printed",
                    given=f"{value!a} in {name!r}",
                    hint="Rename that group.",
                )
    groups = columns.drop_duplicates()
    if len(groups) == 1:
        only = " & ".join(map(str, groups.iloc[0]))
        raise InvalidInputError(
            "sensitive",
            "have two or more groups",
            given=f"{names} with one: {only!r}",
            hint="With one group there is no gap.",
        )
    if len(groups) > MOST_GROUPS:
        raise InvalidInputError(
            "sensitive",
            f"have at most {MOST_GROUPS} groups",
            given=f"{names} with {len(groups):,}",
            hint="Merge values first, such as ages into ranges.",
        )


def make_features(table: pd.DataFrame) -> pd.DataFrame:
    """Return features as models take them, without those that say nothing about a row.

    Warns of these, and of columns that are hardly categories.
    """
    features = as_features(table)
    useless = {name: why for name in features if (why := describe_useless(features[name]))}
    for why in useless.values():
        warn(f"{why}: it is left out", FairdialWarning)
    features = features.drop(columns=list(useless))
    if features.shape[1] == 0:
        raise InvalidInputError("data", "have columns to learn from", given="no others")
    for name in features:
        doubt = describe_doubt(features[name])
        if doubt is not None:
            warn(f"{doubt}, or leave it out with `drop={name}`", FairdialWarning)
    return features


def _warn_of_missing_names(column: pd.Series, missing_group: str | None) -> None:
    """Warn of groups whose names mean "missing" in other columns."""
    words = {word for word in MISSING if word and word != missing_group}
    for name in column[column.isin(words)].drop_duplicates():
        warn(
            f"{column.name!r} has the group {name!r}, which is taken as a name: in a group column "
            "only an empty value is missing",
            FairdialWarning,
        )


def fold(name: str) -> str:
    """Return what names have in common that look the same, or differ only by case.

    Examples
    --------
    >>> from fairdial.cli.training_rows import fold
    >>> fold("Caf\u00e9 ") == fold("cafe\u0301\u200b")
    True
    """
    seen = (x for x in unicodedata.normalize("NFKC", name) if unicodedata.category(x) != "Cf")
    return " ".join("".join(seen).casefold().split())


def _warn_of_similar_names(column: pd.Series) -> None:
    """Warn of groups whose names differ only by case, spaces or characters that can't be seen."""
    known: dict[str, str] = {}
    for name in column.drop_duplicates():
        folded = fold(str(name))
        if folded in known:
            warn(
                f"{column.name!r} has the groups {known[folded]!a} and {name!a}, which differ only "
                "by case, spaces or the way they are encoded, and count as two: rename one if they "
                "are the same",
                FairdialWarning,
            )
        known.setdefault(folded, name)
