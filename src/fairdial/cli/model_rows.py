"""Rows of a user's table for a trained model, which knows its columns and groups."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fairdial._arrays import Codes, Indices
from fairdial._validation import (
    GROUP_COLUMNS,
    SAME_GROUP,
    did_you_mean,
    encode_groups,
    order_columns,
)
from fairdial.cli.categories import describe_unknown_values
from fairdial.cli.columns import (
    Note,
    as_strata,
    as_weights,
    count_missing,
    count_rows,
    drop_incomplete,
    is_number_or_bool,
    quote_names,
)
from fairdial.cli.options import CsvFormat
from fairdial.cli.reading import DEFAULT_FORMAT, read_table, require_columns, split_names
from fairdial.core.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError, UnknownGroupError
from fairdial.tables.values import (
    as_trained,
    fill_groups,
    is_text,
    merge_groups,
    merge_labels,
    row_name,
)

if TYPE_CHECKING:
    from fairdial.cli.plain_dial import PlainDial
    from fairdial.estimators.base import DialClassifier

MOST_NAMES = 10  # that an error lists
OWN_GROUP = "A model trained with --missing-group has a group for them."


@dataclass(frozen=True)
class ModelRows:
    """Rows that a model can take, with their index in the file.

    Attributes
    ----------
    table : DataFrame
        All columns; features have the types of training.
    verbatim : DataFrame
        Columns as they are written in the file, where asked for.
    group_columns : DataFrame
        The columns that make up the group.
    X : DataFrame
        Features, and the group columns where the model looks for them there.
    groups_in_rows : bool
        Whether it does.
    left_out : int
        Number of rows without a label or a group, if they are left out.
    """

    table: pd.DataFrame
    verbatim: pd.DataFrame
    group_columns: pd.DataFrame
    X: pd.DataFrame
    groups_in_rows: bool
    left_out: int = 0

    @property
    def groups(self) -> pd.Series | pd.DataFrame:
        """The group of each row: one column, or several."""
        return (
            self.group_columns if self.group_columns.shape[1] > 1 else self.group_columns.iloc[:, 0]
        )

    @property
    def sensitive_features(self) -> pd.Series | pd.DataFrame | None:
        """What ``predict`` takes as sensitive features; None where X has the groups."""
        return None if self.groups_in_rows else self.groups

    @cached_property
    def group_codes(self) -> tuple[Codes, tuple[Hashable, ...]]:
        """The group code of each row, and the names of the groups."""
        return encode_groups(self.groups, "sensitive_features")


def read_rows(
    model: DialClassifier | PlainDial,
    data: Path,
    csv_format: CsvFormat = DEFAULT_FORMAT,
    *,
    label: str | None = None,
    sensitive: Sequence[str] = (),
    verbatim: Sequence[str] = (),
    drop_missing: bool | None = None,
    with_groups: bool = True,
    note: Note = lambda _: None,
) -> ModelRows:
    """Read a table with every column that the model needs, in the types of training.

    ``with_groups`` says whether that includes the group columns.

    ``note`` gets sentences on rows that are left out and on values without a category.
    ``drop_missing`` is None for commands that need every row.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InvalidInputError(
            "folder",
            "be a model that was trained on named columns",
            given="one that wasn't",
            hint="Use it from Python.",
        )
    features = [str(name) for name in names]
    dtypes = getattr(model, "feature_dtypes_", {})
    text_features = [name for name in features if is_text(dtypes.get(name))]
    unnamed = missing_group(model)
    groups = group_columns(model, sensitive) if with_groups else []
    merged = getattr(model, "training_", {}).get("merged_groups")
    added = {unnamed} | ({merged["name"]} if merged else set())  # the table needn't have them
    known = [name for name in known_groups(model) if name not in added]
    named = all(isinstance(name, str) for name in known)  # not numbers, which "NA" isn't
    texts = [*text_features]
    if len(groups) == 1 and known and named:
        numbers = added != {None} and all(is_number_or_bool(str(name)) for name in known)
        texts += [] if numbers else groups
    if label is not None and isinstance(model.classes_[1], str):
        texts.append(label)
    read = read_table(
        data,
        csv_format,
        texts=texts,
        groups=(*groups, *sensitive) if named else (),
        verbatim=verbatim,
        typed=[*features, *groups, *sensitive, *([] if label is None else [label])],
    )
    table = read.rows
    groups = group_columns(model, sensitive, table.columns) if with_groups else []
    require_columns(table, groups, "sensitive" if sensitive else "data")
    require_columns(table, features, "data")
    table = table.assign(**fill_groups(table[groups], unnamed))
    table = table.assign(**merge_groups(table[groups], merged))
    if drop_missing:
        labels = [label] if label is not None and label in table else []
        table = drop_incomplete(table, [*labels, *groups], note)
    missing = table[groups].isna().any(axis=1).to_numpy()
    if missing.any():
        way = "`drop_missing` leaves those rows out."
        if drop_missing is None:
            way = "Every row needs a decision: remove those rows from the file."
        raise InvalidInputError(
            "data",
            f"have a value in every row of {quote_names(groups)}",
            given=count_missing(missing),
            hint=(way, OWN_GROUP),
        )
    for text in describe_unknown_values(model, table[text_features]):
        note(text)
    ready = table.assign(**{name: as_trained(table[name], dtypes.get(name)) for name in features})
    in_X = model.sensitive_column is not None or not with_groups
    X = ready[features].join(table[groups]) if in_X else ready[features]
    return ModelRows(ready, read.verbatim, table[groups], X, in_X, len(read.rows) - len(table))


def group_columns(
    model: DialClassifier | PlainDial, given: Sequence[str] = (), columns: Collection[str] = ()
) -> list[str]:
    """Return the group columns: the model's own, else those given with --sensitive.

    ``columns`` are those of the table, one of which may have a comma in its name.
    """
    return choose_groups(model.sensitive_column, given, columns, _trained_columns(model))


def _trained_columns(model: DialClassifier | PlainDial) -> tuple[str, ...]:
    """Return the names of several group columns that training in Python had; else nothing."""
    return tuple(map(str, getattr(model, "group_columns_", None) or ()))


def choose_groups(
    own: object,
    given: Sequence[str] = (),
    columns: Collection[str] = (),
    trained: Sequence[str] = (),
) -> list[str]:
    """Return the group columns that a model was trained with, else those given.

    Those given are put in the order of ``trained``, if they are the same.
    """
    if own is None:
        if given:
            names = split_names(given, columns)
            return list(trained) if sorted(names) == sorted(trained) else names
        raise InvalidInputError(
            "sensitive",
            "name the group column: MODEL was trained with sensitive_features=, and doesn't know "
            "it",
            hint="(A model trained with sensitive_column= in Python does.)",
        )
    known = [str(name) for name in own] if isinstance(own, (list, tuple)) else [str(own)]
    if given and split_names(given, [*columns, *known]) != known:
        raise InvalidInputError(
            "sensitive",
            f"be {','.join(known)!r}, as in training, or be left out",
            given=repr(",".join(given)),
        )
    return known


def known_groups(model: DialClassifier | PlainDial) -> tuple[Hashable, ...]:
    """Return the groups of a model, or nothing if it isn't calibrated."""
    return model.frontier_.groups if hasattr(model, "frontier_") else ()


def missing_group(model: DialClassifier | PlainDial) -> str | None:
    """Return the group of rows whose group is missing, if training gave them one."""
    name: str | None = getattr(model, "training_", {}).get("missing_group")
    return name


# ---- groups ------------------------------------------------------------------------------------


def match_known_groups(model: DialClassifier | PlainDial, rows: ModelRows) -> Indices:
    """Return each row's group code in the model's order; refuse groups that it doesn't know."""
    trained = _trained_columns(model)
    if trained and rows.group_columns.shape[1] > 1:
        order_columns(rows.group_columns, trained, "sensitive", GROUP_COLUMNS)
    codes, found = rows.group_codes
    known = model.frontier_.groups
    order = {name: code for code, name in enumerate(known)}
    matched: Indices = np.array([order.get(name, -1) for name in found], np.intp)[codes]
    unknown = [name for name in found if name not in order]
    if not unknown:
        return matched
    wrong = matched < 0
    listed = quote_names(unknown[:MOST_NAMES]) + (", ..." if len(unknown) > MOST_NAMES else "")
    new = "calibrate the model on rows that include it"
    if getattr(model, "trained_groups_", None) is not None:
        new = "train again on rows that include it, since this method learns from the group"
    raise UnknownGroupError(
        "data",
        f"hold only groups that the model knows ({quote_names(known)})",
        given=f"{listed} in {count_rows(int(wrong.sum()))} (first: "
        f"{row_name(int(rows.table.index[wrong][0]))})",
        hint=(
            *filter(None, [suggest_group(unknown, known)]),
            f"Correct misspelled names; if a group is new, {new}.",
        ),
    )


def suggest_group(unknown: Iterable[Hashable], known: Iterable[Hashable]) -> str:
    """Return a question that names the known group that was probably meant, or nothing."""
    names = list(known)
    suggestions = (did_you_mean(name, names, SAME_GROUP).strip() for name in unknown)
    return next(filter(None, suggestions), "")


# ---- weights and strata ------------------------------------------------------------------------


def read_row_options(
    table: pd.DataFrame, weights: str | None, control: Sequence[str]
) -> dict[str, pd.Series | pd.DataFrame]:
    """Return weights and control columns of a table as ``calibrate`` takes them, if asked for."""
    found: dict[str, pd.Series | pd.DataFrame] = {}
    if weights is not None:
        require_columns(table, [weights], "weights")
        found["sample_weight"] = as_weights(table[weights])
    if control:
        names = split_names(control, table.columns)
        require_columns(table, names, "control")
        found["control_features"] = as_strata(table[names])
    return found


# ---- labels ------------------------------------------------------------------------------------


def read_labeled_rows(
    model: DialClassifier,
    data: Path,
    csv_format: CsvFormat,
    *,
    label: str | None,
    no_labels: bool = False,
    sensitive: Sequence[str],
    drop_missing: bool,
    note: Note,
) -> tuple[ModelRows, pd.Series | None]:
    """Read rows with their labels; None for labels that the file lacks and no criterion needs."""
    column = getattr(model, "label_name_", None) if label is None else label
    used = None if no_labels else column
    rows = read_rows(
        model, data, csv_format, label=used, sensitive=sensitive, drop_missing=drop_missing,
        note=note,
    )  # fmt: skip
    if label is not None:
        require_columns(rows.table, [label], "label")
    kind = find_criterion(model.criterion)
    others = getattr(model, "training_", {}).get("merged_labels")
    if used is not None and used in rows.table and others:
        labels = merge_labels(rows.table[used], str(model.classes_[1]), others)
        rows = replace(rows, table=rows.table.assign(**{used: labels}))
    if used is not None and used in rows.table:
        check_label_values(rows.table[used], model.classes_.tolist(), needed=kind.needs_labels)
        return rows, rows.table[used]
    if no_labels:
        reason = "--no-labels"
    elif column is None:
        reason = "MODEL doesn't know its label column, and --label wasn't given"
    else:
        reason = f"DATA has no labels (no column {column!r})"
    if kind.needs_labels and no_labels:
        raise InvalidInputError(
            "no_labels",
            "be used with criteria that need no labels, such as demographic_parity",
            given=f"a model for {kind.name}",
        )
    if kind.needs_labels:
        where = "a column given with `label`" if column is None else f"the column {column!r}"
        raise InvalidInputError("data", f"have labels for {kind.name}, in {where}")
    note(f"{reason}: accuracy is unknown.")
    return rows, None


def check_label_values(column: pd.Series, classes: list[Hashable], *, needed: bool) -> None:
    """Refuse missing labels, and values that aren't labels."""
    missing = column.isna().to_numpy()
    if missing.any():
        without = () if needed else ("`no_labels` does without labels.",)
        raise InvalidInputError(
            "data",
            f"have a label in every row of {column.name!r}",
            given=count_missing(missing),
            hint=("`drop_missing` leaves those rows out.", *without),
        )
    other = column[~column.isin(classes)]
    if len(other):
        raise InvalidInputError(
            "data",
            f"hold {' or '.join(map(repr, classes))} in {column.name!r}, as in training",
            given=f"{other.iloc[0]!r} in {row_name(other.index[0])}",
        )
