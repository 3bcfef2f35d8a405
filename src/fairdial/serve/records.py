"""Check rows of JSON, and turn them into tables for models that need them.

A row is a record by column name, or a list if the training rows had no names. The model knows what
its columns hold, so everything is checked here. Messages name the row, the column and what is
allowed, but never repeat what was sent.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairdial._onnx import INT64
from fairdial.errors import InvalidInputError
from fairdial.tables.columns import LARGEST, Table
from fairdial.tables.encoder import TableEncoder
from fairdial.tables.inputs import Inputs
from fairdial.tables.plan import Json, Numeric

Kind = Literal["number", "text", "any"]
Record = Mapping[str, Json]
JsonSchema = dict[str, Any]

SHOWN = 5  # names in a message
NUMBERS = frozenset({int, float, bool})
ALLOWED: dict[Kind, frozenset[type]] = {
    "number": NUMBERS | {type(None)},
    "text": frozenset({str, type(None)}),
    "any": NUMBERS | {str, type(None)},
}
JSON_TYPES: dict[Kind, list[str]] = {
    "number": ["number", "boolean", "null"],
    "text": ["string", "null"],
    "any": ["string", "number", "boolean", "null"],
}
DESCRIPTIONS: dict[Kind, str] = {
    "number": "a finite number, true, false or null",
    "text": "text or null",
    "any": "text, a finite number, true, false or null",
}


class BadRowError(InvalidInputError):
    """The model can't score a row; the message doesn't repeat what was sent."""

    def __init__(
        self,
        argument: str,
        allowed: str,
        *,
        given: str = "",
        hint: str = "",
        row: int | None = None,
    ) -> None:
        super().__init__(argument, allowed, given=given, hint=hint)
        if row is not None:
            self.args = (f"row {row} (counted from 0): {self}",)


@dataclass(frozen=True)
class Column:
    """A column that the model expects.

    Attributes
    ----------
    name : Hashable
        Its name in a table of rows, or its position; as text, its name in a record.
    kind : {"number", "text", "any"}
        What it holds, besides missing values.
    dtype : optional
        pandas' type of the training rows, if known.
    """

    name: Hashable
    kind: Kind
    dtype: Any = None

    @property
    def text(self) -> str:
        """Name in a record."""
        return str(self.name)


class Layout:
    """The columns of a model's rows.

    Parameters
    ----------
    columns : sequence of Column
        In the order of the training rows.
    named : bool
        Whether rows are records; otherwise they are lists.
    """

    def __init__(self, columns: Sequence[Column], *, named: bool) -> None:
        self.columns, self.named = tuple(columns), named
        self._types = [(column.text, ALLOWED[column.kind]) for column in columns]
        if len({column.text for column in columns}) < len(columns):
            raise InvalidInputError("model", "have columns whose names differ as text to be served")

    def check(self, rows: Sequence[Any]) -> Sequence[Record]:
        """Return rows as records, or raise BadRowError."""
        if not self.named:
            rows = [self._as_record(row, i) for i, row in enumerate(rows)]
        for i, row in enumerate(rows):
            if not self._is_good(row):
                raise BadRowError("features", self._problem(row), row=i)
        return rows

    def _as_record(self, row: Any, i: int) -> Record:
        if not isinstance(row, list) or len(row) != len(self.columns):
            raise BadRowError("features", f"be a list of {len(self.columns)} values", row=i)
        return {column.text: value for column, value in zip(self.columns, row, strict=True)}

    def _is_good(self, row: Any) -> bool:
        try:
            for text, types in self._types:
                value = row[text]
                kind = type(value)
                if kind not in types:
                    return False
                if kind is not str and value is not None and not -LARGEST <= value <= LARGEST:
                    return False  # NaN, too
        except (KeyError, TypeError):
            return False
        return len(row) == len(self._types)

    def _problem(self, row: Any) -> str:
        """Return what a bad row must be or have, as the rest of a message."""
        if not isinstance(row, dict):
            return "be an object with a value for each column"
        for column in self.columns:
            if column.text not in row:
                return f"have a value for {column.text!r}"
            value = row[column.text]
            beyond = type(value) in NUMBERS and not -LARGEST <= value <= LARGEST
            if beyond or type(value) not in ALLOWED[column.kind]:
                return f"have {DESCRIPTIONS[column.kind]} in {column.text!r}"
        return f"have no columns besides {shorten([column.text for column in self.columns])}"

    def schema(self) -> JsonSchema:
        """Return the JSON schema of a row."""
        limits = {"minimum": -LARGEST, "maximum": LARGEST}
        values = [
            {"type": JSON_TYPES[c.kind], **({} if c.kind == "text" else limits)}
            for c in self.columns
        ]
        if not self.named:
            size = len(values)
            return {"type": "array", "items": values[0], "minItems": size, "maxItems": size}
        names = [column.text for column in self.columns]
        return {
            "type": "object",
            "properties": dict(zip(names, values, strict=True)),
            "required": names,
            "additionalProperties": False,
        }


def shorten(names: Sequence[Any]) -> str:
    """Return the first few names as text, and how many more there are.

    Examples
    --------
    >>> from fairdial.serve.records import shorten
    >>> shorten(["a", "b", "c", "d", "e", "f", "g"])
    "'a', 'b', 'c', 'd', 'e' and 2 more"
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more


def encoder_layout(encoder: TableEncoder) -> Layout:
    """Return the columns that a fitted encoder expects."""
    return _layout(encoder.columns_, encoder.named_)


def blocks_layout(inputs: Inputs) -> Layout:
    """Return the columns that inputs made by a table encoder expect."""
    return _layout(inputs.blocks, inputs.named)


def _layout(blocks: Sequence[Any], named: bool) -> Layout:
    columns = [Column(b.name, "number" if isinstance(b, Numeric) else "any") for b in blocks]
    return Layout(columns, named=named)


def table_layout(
    names: Sequence[Hashable] | None, count: int, dtypes: Mapping[Hashable, Any] | None
) -> Layout:
    """Return the columns that a scikit-learn estimator expects, from its training rows."""
    if names is None:
        return Layout([Column(i, "number") for i in range(count)], named=False)
    known = dtypes or {}
    return Layout([Column(n, _kind(known.get(n)), known.get(n)) for n in names], named=True)


def _kind(dtype: Any) -> Kind:
    if dtype is None or isinstance(dtype, pd.CategoricalDtype):
        return "any"
    if pd.api.types.is_numeric_dtype(dtype):  # booleans, too
        return "number"
    return "text" if isinstance(dtype, pd.StringDtype) else "any"


def make_table(layout: Layout, records: Sequence[Record]) -> Table:
    """Return checked records as a DataFrame with the training rows' types, or as an array."""
    columns = {c.name: [record[c.text] for record in records] for c in layout.columns}
    if not layout.named:
        return np.ascontiguousarray(np.array(list(columns.values()), np.float64).T)
    return pd.DataFrame({c.name: _make_column(c.dtype, columns[c.name]) for c in layout.columns})


def _make_column(dtype: Any, values: list[Any]) -> Any:
    """Return a column; a missing number is NaN, and a category may be new."""
    if isinstance(dtype, pd.CategoricalDtype):
        known = dtype.categories
        new = [v for v in dict.fromkeys(values) if v is not None and v not in known]
        return pd.Categorical(values, categories=[*known, *new], ordered=dtype.ordered)
    if dtype is not None and pd.api.types.is_numeric_dtype(dtype):
        kinds = set(map(type, values))
        if kinds == {bool}:
            return np.array(values, np.bool_)
        if kinds == {int} and all(abs(value) <= INT64.max for value in values):
            return np.array(values, np.int64)
        return np.array(values, np.float64)
    if isinstance(dtype, pd.StringDtype):
        return pd.array(values, dtype=dtype)
    return pd.Series(values, dtype=object) if dtype is not None else values
