"""The columns of a table that a model needs, in the types that it was trained on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairdial._arrays import Mask
from fairdial._validation import GROUP_COLUMNS, did_you_mean, order_columns
from fairdial.errors import InvalidInputError
from fairdial.tables.values import as_trained, fill_groups, merge_groups, merge_labels, row_name


@dataclass(frozen=True)
class TableRows:
    """Rows of a table: features, groups and what else was named."""

    X: pd.DataFrame
    groups: pd.Series | pd.DataFrame | None
    sensitive_features: pd.Series | pd.DataFrame | None  # None if X has the groups
    positive: Mask | None = None
    weights: pd.Series | None = None
    strata: pd.Series | pd.DataFrame | None = None


@dataclass(frozen=True)
class RowReader:
    """Reads a model's rows from tables, which may have other columns, too.

    Attributes
    ----------
    model : estimator
        A model that was trained on a DataFrame.
    groups : tuple of str
        Group columns; none if decisions don't depend on groups.
    label, weight : str, optional
        Columns of labels and weights.
    control : tuple of str
        Columns of strata.
    """

    model: Any
    groups: tuple[str, ...]
    label: str | None = None
    weight: str | None = None
    control: tuple[str, ...] = ()
    scored: bool = False  # whether features aren't needed

    @classmethod
    def of(
        cls,
        model: Any,
        columns: Collection[str],
        *,
        group: str | Sequence[str] | None = None,
        label: str | None = None,
        weight: str | None = None,
        control: str | Sequence[str] | None = None,
        scored: bool = False,
        measured: bool = False,
    ) -> RowReader:
        """Return the reader of a model's rows; raise on columns that the table doesn't have.

        ``scored`` says that the table has the scores, ``measured`` that groups are needed even if
        decisions don't depend on them.
        """
        if not scored and getattr(model, "feature_names_in_", None) is None:
            raise InvalidInputError(
                "model", "be trained on named columns", hint="Train it on a DataFrame."
            )
        if len(model.classes_) > 2:
            raise InvalidInputError("model", "have two classes", given=f"{len(model.classes_)}")
        if measured and getattr(model, "groups", "intersection") != "intersection":
            raise InvalidInputError(
                "model",
                "compare the intersections of group columns to be measured on such tables",
                given=f"groups={model.groups!r}",
            )
        blind = hasattr(model, "frontier_") and model.frontier_.is_blind
        own = model.sensitive_column
        if own is not None and group is not None and _names(group) != _names(own):
            raise InvalidInputError(
                "group", f"be {own!r}, as in training, or be left out", given=repr(group)
            )
        groups = _names(group if own is None else own)
        trained = tuple(map(str, getattr(model, "group_columns_", ())))
        if own is None and trained and len(groups) > 1:
            table = order_columns(pd.DataFrame(columns=groups), trained, "group", GROUP_COLUMNS)
            groups = tuple(table.columns)
        if blind and not measured:
            groups = ()
        known = model.frontier_.groups if hasattr(model, "frontier_") else ()
        if not groups and (measured or not blind) and len(known) > 1:
            raise InvalidInputError(
                "group",
                "name the group column: the model was trained with sensitive_features=",
            )
        reader = cls(model, groups, label, weight, _names(control), scored)
        wanted = {"group": groups, "control": reader.control}
        wanted |= {"label": _names(label), "weight": _names(weight), "data": reader.features}
        for argument, names in wanted.items():
            for name in names:
                if name not in columns:
                    raise InvalidInputError(
                        argument,
                        f"be among the columns {list(columns)}"
                        if argument != "data"
                        else f"have a column {name!r}, which the model needs",
                        given=repr(name) if argument != "data" else f"the columns {list(columns)}",
                        hint=did_you_mean(name, columns),
                    )
        return reader

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return () if self.scored else tuple(map(str, self.model.feature_names_in_))

    @property
    def columns(self) -> list[str]:
        """Names of all columns that are read."""
        optional = [name for name in (self.label, self.weight) if name is not None]
        return list(dict.fromkeys([*self.features, *self.groups, *optional, *self.control]))

    def read(self, batch: pd.DataFrame) -> TableRows:
        """Return the rows of a batch."""
        groups = self.name_groups(batch)
        self._check_groups(groups)
        dtypes = getattr(self.model, "feature_dtypes_", {})
        X = pd.DataFrame(
            {name: _as_trained(batch[name], dtypes.get(name)) for name in self.features},
            index=batch.index,
        )
        inside = self.model.sensitive_column is not None
        if inside:
            X = X.join(groups)
        named: pd.Series | pd.DataFrame | None = None
        if self.groups:
            named = groups if len(self.groups) > 1 else groups.iloc[:, 0]
        return TableRows(
            X,
            named,
            None if inside else named,
            self._positive(batch),
            self._weights(batch),
            self._strata(batch),
        )

    def name_groups(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Return the group columns with the names that the model gave to small or missing ones."""
        training: Mapping[str, Any] = getattr(self.model, "training_", {})
        groups = batch[list(self.groups)]
        groups = groups.assign(**fill_groups(groups, training.get("missing_group")))
        return groups.assign(**merge_groups(groups, training.get("merged_groups")))

    def _positive(self, batch: pd.DataFrame) -> Mask | None:
        if self.label is None:
            return None
        column, classes = batch[self.label], self.model.classes_.tolist()
        others = getattr(self.model, "training_", {}).get("merged_labels")
        if others:
            column = merge_labels(column, str(classes[1]), others)
        if column.isna().any():
            raise InvalidInputError(
                "label",
                "have a value in every row",
                given=f"{int(column.isna().sum())} rows without one in {self.label!r}, the first "
                f"{_first_row(batch, column.isna().to_numpy(np.bool_))}",
            )
        wrong = column[~column.isin(classes)]
        if len(wrong):
            raise InvalidInputError(
                "label",
                f"hold {classes[0]!r} or {classes[1]!r}",
                given=f"{wrong.iloc[0]!r} in {row_name(wrong.index[0])}",
            )
        return np.asarray(column.isin(classes[1:]), np.bool_)

    def _check_groups(self, groups: pd.DataFrame) -> None:
        missing = groups.isna().any(axis=1).to_numpy(np.bool_)
        if missing.any():
            raise InvalidInputError(
                "group",
                "have a group for every row",
                given=f"{int(missing.sum())} missing values, the first in "
                f"{_first_row(groups, missing)}",
                hint="Drop those rows, or give them a group of their own, such as 'not stated'.",
            )

    def _weights(self, batch: pd.DataFrame) -> pd.Series | None:
        if self.weight is None:
            return None
        column = batch[self.weight]
        if pd.api.types.is_numeric_dtype(column.dtype):
            numbers = column.to_numpy(np.float64, na_value=np.nan)
            wrong = ~((numbers >= 0) & (numbers < np.inf))
            if wrong.any():
                raise InvalidInputError(
                    "weight",
                    "be finite numbers from 0 up",
                    given=f"{numbers[wrong][0]:g} in {_first_row(batch, wrong)}",
                )
        return column

    def _strata(self, batch: pd.DataFrame) -> pd.Series | pd.DataFrame | None:
        if not self.control:
            return None
        strata = batch[list(self.control)]
        return strata.iloc[:, 0] if len(self.control) == 1 else strata


def _names(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    return tuple(map(str, given)) if isinstance(given, (list, tuple)) else (str(given),)


def _first_row(table: pd.DataFrame, found: Mask) -> str:
    return row_name(table.index[int(np.argmax(found))])


def _as_trained(column: pd.Series, dtype: Any) -> pd.Series:
    """Return a column in the type that it had in training.

    Numbers and booleans that were objects in training, as some columns with nulls are, stay what
    they are: text would be other values.
    """
    if dtype is None or column.dtype == dtype:
        return column
    if dtype.kind == "O" and pd.api.types.is_numeric_dtype(column.dtype):  # also booleans
        return column
    return as_trained(column, dtype)
