"""Rows of a user's table for a model that knows its columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial._validation import SAME_GROUP, did_you_mean, encode_groups
from fairdial.cli.categories import strange_values
from fairdial.cli.options import Form
from fairdial.cli.rows import MOST_LABELS, count_missing, fill_groups, is_read, say_rows, whole_rows
from fairdial.cli.tables import (
    USUAL,
    as_numbers,
    as_text,
    need_columns,
    read_table,
    row_name,
    split_names,
    tidy,
)
from fairdial.errors import InvalidInputError, UnknownGroupError

NO_GROUP = "; a model that was trained with --missing-group gives them a group of their own."
LEAVE_OUT = f"--drop-missing leaves those rows out{NO_GROUP}"
CALLED = {  # kinds of numpy's types; what train reads as truth values is kept in whole numbers
    "b": "truth values (true, false)",
    "i": "numbers or truth values (true, false)",
}
TAKE_OUT = f"No row is left without a decision: take those rows out of DATA{NO_GROUP}"


@dataclass(frozen=True)
class ModelRows:
    """Rows that a model can take, under their numbers in the file.

    Attributes
    ----------
    table : DataFrame
        All columns; features are of the kind that the model knows.
    told : DataFrame
        The columns that tell the group, as they are in the file.
    X : DataFrame
        Rows as ``predict`` takes them: features, and beside them groups where the model looks for
        them there.
    within : bool
        Whether it does; else it is given them apart.
    """

    table: pd.DataFrame
    told: pd.DataFrame
    X: pd.DataFrame
    within: bool

    @property
    def groups(self) -> Any:
        """The group of each row: a Series, or several columns."""
        return self.told if self.told.shape[1] > 1 else self.told.iloc[:, 0]

    @property
    def apart(self) -> Any:
        """What ``predict`` takes as sensitive features; None where they are within X."""
        return None if self.within else self.groups

    @property
    def group_names(self) -> tuple[Hashable, ...]:
        """Names of the groups that the rows are of."""
        return encode_groups(self.groups, "sensitive_features")[1]


def read_rows(
    model: Any,
    data: Path,
    label: str | None = None,
    tell: Callable[[str], None] | None = None,
    form: Form = USUAL,
    sensitive: Sequence[str] = (),
    drop_missing: bool | None = None,
) -> ModelRows:
    """The table with every column that the model needs, each of the kind that it knows.

    ``tell`` is told of values that the model has no category for, and how many rows are left out.
    ``drop_missing`` leaves out rows without a group or a label; None: that can't be wished for.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InvalidInputError(
            "MODEL must know its features by name, got one that was trained on rows without "
            "names: use it from Python."
        )
    features, groups = [str(name) for name in names], sensitive_columns(model, sensitive)
    kinds = getattr(model, "feature_dtypes_", {})
    words = [name for name in features if _is_text(kinds.get(name))]
    texts = [*words]
    known = model.frontier_.groups if hasattr(model, "frontier_") else ()
    unnamed = missing_group(model)
    known = [name for name in known if name != unnamed]
    texts_only = all(isinstance(name, str) for name in known)  # no numbers, which "NA" is none of
    read = unnamed is not None and all(is_read(name) for name in known)
    if len(groups) == 1 and known and texts_only and not read:
        texts += groups
    if label is not None and isinstance(model.classes_[1], str):
        texts.append(label)
    table = read_table(data, texts, form, (*groups, *sensitive) if texts_only else ())
    groups = sensitive_columns(model, sensitive, table.columns)
    need_columns(table, groups, "--sensitive" if sensitive else "DATA")
    need_columns(table, features, "DATA")
    say = tell or (lambda _: None)
    table = table.assign(**fill_groups(table[groups], unnamed))
    if drop_missing:
        labels = [label] if label is not None and label in table else []
        table = whole_rows(table, [*labels, *groups], say)
    missing = table[groups].isna().any(axis=1).to_numpy()
    if missing.any():
        raise InvalidInputError(
            f"DATA must tell the group of every row in {', '.join(map(repr, groups))}, got "
            f"{count_missing(missing)}. {TAKE_OUT if drop_missing is None else LEAVE_OUT}"
        )
    for text in strange_values(model, table[words]) if tell is not None else ():
        say(text)
    ready = table.assign(**{name: _as_known(table[name], kinds.get(name)) for name in features})
    within = model.sensitive_column is not None
    X = ready[features].join(table[groups]) if within else ready[features]
    return ModelRows(ready, table[groups], X, within)


def sensitive_columns(
    model: Any, given: Sequence[str] = (), there: Collection[str] = ()
) -> list[str]:
    """Columns that tell the group: those that the model knows, else those that are given.

    ``there`` are the columns of the table, of which one may have a comma in its name.
    """
    own = model.sensitive_column
    if own is None:
        if given:
            return split_names(given, there)
        raise InvalidInputError(
            "--sensitive must name the column that tells the group: MODEL was trained with "
            "sensitive_features=, and doesn't know it. (Trained with sensitive_column= in Python, "
            "it does.)"
        )
    known = [*own] if isinstance(own, (list, tuple)) else [own]
    if given and split_names(given, [*there, *known]) != known:
        raise InvalidInputError(
            f"--sensitive must be {','.join(known)!r}, as in training, or be left out, got "
            f"{','.join(given)!r}."
        )
    return known


def missing_group(model: Any) -> str | None:
    """The group of rows that don't tell theirs, if training gave them one."""
    name: str | None = getattr(model, "training_", {}).get("missing_group")
    return name


def label_of(model: Any) -> str | None:
    """The column of the labels in training, where they came from one."""
    name: str | None = getattr(model, "label_name_", None)
    return name


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
        return ready.where(ready.isin(kind.categories)).astype(kind)
    return ready if _is_text(kind) else as_numbers(column, CALLED.get(kind.kind, "numbers"))


def refuse_strangers(model: Any, rows: ModelRows) -> None:
    """Rows to be decided on must be of groups that the dial knows."""
    codes, found = encode_groups(rows.groups, "sensitive_features")
    known = model.frontier_.groups
    strange = [name for name in found if name not in known]
    if not strange:
        return
    wrong: NDArray[np.bool_] = np.isin(codes, [found.index(name) for name in strange])
    listed = ", ".join(map(repr, strange[:MOST_LABELS]))
    more = ", ..." if len(strange) > MOST_LABELS else ""
    anew = "calibrate on rows of it"
    if getattr(model, "trained_groups_", None) is not None:
        anew = "train anew with rows of it, as this method learns from the group"
    raise UnknownGroupError(
        f"DATA must hold groups that the dial knows, {', '.join(map(repr, known))}; got "
        f"{listed}{more} in {say_rows(int(wrong.sum()))} (first: "
        f"{row_name(int(rows.table.index[wrong][0]))}).{group_meant(strange, known)} Correct a "
        f"name that is misspelt; if the group is new, {anew}."
    )


def group_meant(strange: Iterable[Hashable], known: Iterable[Hashable]) -> str:
    """The end of a sentence that names the known group which was probably meant; or nothing."""
    names = list(known)
    near = (did_you_mean(name, names, SAME_GROUP) for name in strange)
    return next(filter(None, near), "")


def wishes(tolerance: float, rows: ModelRows, simultaneous: bool) -> Any:
    """A tolerance as ``predict`` takes it; one for each row makes its confidence simultaneous."""
    return np.full(len(rows.table), tolerance) if simultaneous else tolerance
