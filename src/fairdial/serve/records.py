"""Rows of JSON as what a model scores, checked, without a table in between where that is possible.

A row is a record by column name (a list where the training rows had no names). What the columns
hold is known from the model, so everything is checked here; messages name the row, the column and
what is allowed, never what was sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.columns import LARGEST
from fairdial.encoders import CLIP, TableEncoder
from fairdial.errors import InvalidInputError

Kind = Literal["number", "text", "any"]
Features = NDArray[np.float32]

FEW = 12  # rows up to which going through them one by one is faster than column by column
SHOWN = 5  # names in a message
NUMBERS = frozenset({int, float, bool})
WORDED = frozenset({str, bool, type(None)})  # their values need no look
ALLOWED: dict[str, frozenset[type]] = {
    "number": NUMBERS | {type(None)},
    "text": frozenset({str, type(None)}),
    "any": NUMBERS | {str, type(None)},
}
TYPES = {
    "number": ["number", "boolean", "null"],
    "text": ["string", "null"],
    "any": ["string", "number", "boolean", "null"],
}
WORDS = {
    "number": "a finite number, true, false or null",
    "text": "text or null",
    "any": "text, a finite number, true, false or null",
}


class BadRowError(InvalidInputError):
    """A row that the model can't score; the message doesn't tell what was sent."""


def row_name(place: int) -> str:
    """A row as lists of JSON count."""
    return f"row {place} (counted from 0)"


@dataclass(frozen=True)
class Column:
    """A column that the model expects.

    Attributes
    ----------
    name : Hashable
        Its name in a table of rows, or its place.
    text : str
        Its name in a record.
    kind : {"number", "text", "any"}
        What it holds, besides missing values.
    dtype : optional
        pandas' type of the training rows, where known.
    """

    name: Hashable
    text: str
    kind: Kind
    dtype: Any = None


class Records(Sequence[dict[str, Any]]):
    """Checked rows; their columns, too, where they were needed for checking."""

    def __init__(
        self, rows: Sequence[dict[str, Any]], columns: dict[str, list[Any]] | None = None
    ) -> None:
        self._rows, self._columns = rows, columns

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def column(self, text: str) -> list[Any]:
        """All rows' values in a column."""
        if self._columns is not None:
            return self._columns[text]
        return [row[text] for row in self._rows]


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
            raise InvalidInputError(
                "`model` must have columns whose names differ as text to be served, got two alike."
            )

    def records(self, rows: Sequence[Any]) -> Records:
        """(n,) rows as records, checked; NaN, strangers and what is missing are refused."""
        found = rows if self.named else [self._record(row, i) for i, row in enumerate(rows)]
        if len(found) > FEW:
            columns = self._columns(found)
            if columns is not None:
                return Records(found, columns)
        for i, row in enumerate(found):
            if not self._good(row):
                raise BadRowError(f"{row_name(i)}: {self._trouble(row)}")
        return Records(found)

    def _record(self, row: Any, i: int) -> dict[str, Any]:
        if not isinstance(row, list) or len(row) != len(self.columns):
            raise BadRowError(
                f"{row_name(i)}: `features` must be a list of {len(self.columns)} values, got "
                "another."
            )
        return {column.text: value for column, value in zip(self.columns, row, strict=True)}

    def _columns(self, rows: Sequence[Any]) -> dict[str, list[Any]] | None:
        """The columns of rows that are what they must be, many at once; None: look closer."""
        columns = {}
        try:
            if set(map(len, rows)) != {len(self._types)}:
                return None
            for text, types in self._types:
                column = columns[text] = [row[text] for row in rows]
                kinds = set(map(type, column))
                if not kinds <= types:
                    return None
                if not kinds <= WORDED and not all(map(_in_range, column)):
                    return None
        except (KeyError, TypeError):
            return None
        return columns

    def _good(self, row: Any) -> bool:
        """Whether a row is what it must be."""
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

    def _trouble(self, row: Any) -> str:
        """What is wrong with a row."""
        if not isinstance(row, dict):
            return "`features` must be values by column name, got another."
        for column in self.columns:
            if column.text not in row:
                return f"`features` must have {column.text!r}, got a row without."
            value = row[column.text]
            beyond = type(value) in NUMBERS and not -LARGEST <= value <= LARGEST
            if beyond or type(value) not in ALLOWED[column.kind]:
                return f"{column.text!r} must be {WORDS[column.kind]}, got another value."
        return f"`features` must have the columns {self._told} only, got others besides."

    @property
    def _told(self) -> str:
        """The columns in words."""
        names = [repr(column.text) for column in self.columns[:SHOWN]]
        more = len(self.columns) - len(names)
        return ", ".join(names) + (f" and {more} more" if more > 0 else "")

    def schema(self) -> dict[str, Any]:
        """The rows' JSON schema."""
        parts = [
            {"type": TYPES[c.kind], **({} if c.kind == "text" else _RANGE)} for c in self.columns
        ]
        if not self.named:
            size = len(parts)
            return {"type": "array", "items": parts[0], "minItems": size, "maxItems": size}
        names = [column.text for column in self.columns]
        return {
            "type": "object",
            "properties": dict(zip(names, parts, strict=True)),
            "required": names,
            "additionalProperties": False,
        }


def _in_range(value: Any) -> bool:
    return type(value) is str or value is None or -LARGEST <= value <= LARGEST  # NaN is nowhere


_RANGE = {"minimum": -LARGEST, "maximum": LARGEST}


def encoder_layout(encoder: TableEncoder) -> Layout:
    """The columns that a fitted encoder expects."""
    columns = [
        Column(rule.name, str(rule.name), "number" if rule.kind == "numeric" else "any")
        for rule in encoder.columns_
    ]
    return Layout(columns, named=encoder.named_)


def table_layout(
    names: Sequence[Hashable] | None, count: int, dtypes: dict[Any, Any] | None
) -> Layout:
    """The columns that a scikit-learn estimator expects, by what is known of its training rows."""
    if names is None:
        return Layout([Column(i, str(i), "number") for i in range(count)], named=False)
    known = dtypes or {}
    return Layout([Column(n, str(n), _kind(known.get(n)), known.get(n)) for n in names], named=True)


def _kind(dtype: Any) -> Kind:
    if dtype is None or isinstance(dtype, pd.CategoricalDtype):
        return "any"
    if pd.api.types.is_numeric_dtype(dtype):  # booleans, too
        return "number"
    return "text" if isinstance(dtype, pd.StringDtype) else "any"


# ---- encoders ----------------------------------------------------------------------------------


class RecordEncoder:
    """A fitted :class:`~fairdial.TableEncoder` for checked records: the same bits, sooner.

    Parameters
    ----------
    encoder : TableEncoder
        Fitted.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdial import TableEncoder
    >>> from fairdial.serve.records import RecordEncoder
    >>> X = pd.DataFrame({"age": [20, 30, 40, None], "job": ["cook", "cook", "nurse", "cook"]})
    >>> encoder = TableEncoder(n_bins=2).fit(X)
    >>> RecordEncoder(encoder)([{"age": 35, "job": "pilot"}])
    array([[0.5, 1. , 0.5, 0. , 0. , 0. , 1. ]], dtype=float32)
    """

    def __init__(self, encoder: TableEncoder) -> None:
        self._width = encoder.n_features_out_
        self._rules: list[_Number | _Category] = []
        start = 0
        for rule in encoder.columns_:
            self._rules.append((_Number if rule.kind == "numeric" else _Category)(rule, start))
            start += rule.width

    def __call__(self, given: Sequence[dict[str, Any]]) -> Features:
        """(n, n_features_out_) features of rows that a layout has checked."""
        rows = given if isinstance(given, Records) else Records(given)
        out = np.zeros((len(rows), self._width), np.float32)
        if len(rows) <= FEW:
            for row, line in zip(rows, out, strict=True):
                for rule in self._rules:
                    rule.write_one(row[rule.text], line)
        else:
            for rule in self._rules:
                rule.write(rows.column(rule.text), out)
        return out


class _Number:
    """A column of numbers, as ``_Numeric`` of the encoders writes it."""

    def __init__(self, rule: Any, start: int) -> None:
        self.text, self._start = str(rule.name), start
        self._centre, self._scale, self._edges = rule.centre, rule.scale, rule.edges
        self._inner, self._widths = list(rule.edges[1:-1]), np.diff(rule.edges).tolist()
        self._borders = np.array(rule.edges), np.array(self._inner), np.array(self._widths)
        self._passed = np.tri(len(self._widths), len(self._widths), -1, dtype=np.float32)
        self._flag = start + rule.width - 1 if rule.missing else None

    def write_one(self, value: Any, line: Features) -> None:
        if value is None:
            value = self._centre
            if self._flag is not None:
                line[self._flag] = 1.0
        number = float(value)
        scaled = (number - self._centre) / self._scale
        line[self._start] = min(max(scaled, -CLIP), CLIP)
        if self._edges:
            place, first = bisect_right(self._inner, number), self._start + 1
            part = (number - self._edges[place]) / self._widths[place]
            line[first : first + place] = 1.0
            line[first + place] = min(max(part, 0.0), 1.0)

    def write(self, column: list[Any], out: Features) -> None:
        values = np.array(column, np.float64)  # None is NaN
        missing = np.isnan(values)
        if missing.any():
            values[missing] = self._centre
            if self._flag is not None:
                out[:, self._flag] = missing
        with np.errstate(over="ignore"):
            out[:, self._start] = ((values - self._centre) / self._scale).clip(-CLIP, CLIP)
            if not self._edges:
                return
            edges, inner, widths = self._borders
            place = inner.searchsorted(values, side="right")
            part = ((values - edges[place]) / widths[place]).clip(0.0, 1.0)
        first = self._start + 1
        out[:, first : first + len(widths)] = self._passed[place]
        out[np.arange(len(values)), first + place] = part


class _Category:
    """A column of categories, as ``_Categorical`` of the encoders writes it."""

    def __init__(self, rule: Any, start: int) -> None:
        self.text = str(rule.name)
        self._other = start + len(rule.categories)
        self._places: dict[Any, int] = {v: start + i for i, v in enumerate(rule.categories)}
        self._places[None] = self._other + rule.missing

    def write_one(self, value: Any, line: Features) -> None:
        line[self._places.get(value, self._other)] = 1.0

    def write(self, column: list[Any], out: Features) -> None:
        find, other = self._places.get, self._other
        out[np.arange(len(column)), [find(value, other) for value in column]] = 1.0


# ---- tables ------------------------------------------------------------------------------------


def make_table(layout: Layout, rows: Records) -> Any:
    """Checked records as a DataFrame with the training rows' types, or as an array."""
    if not layout.named:
        columns = [rows.column(column.text) for column in layout.columns]
        return np.ascontiguousarray(np.array(columns, np.float64).T)
    return pd.DataFrame(
        {column.name: _column(column.dtype, rows.column(column.text)) for column in layout.columns}
    )


def _column(dtype: Any, values: list[Any]) -> Any:
    """One column; a number that is missing is NaN, and a category may be new."""
    if isinstance(dtype, pd.CategoricalDtype):
        known = dtype.categories
        new = [v for v in dict.fromkeys(values) if v is not None and v not in known]
        return pd.Categorical(values, categories=[*known, *new], ordered=dtype.ordered)
    if dtype is not None and pd.api.types.is_numeric_dtype(dtype):
        return _numbers(values)
    if isinstance(dtype, pd.StringDtype):
        return pd.array(values, dtype=dtype)
    return pd.Series(values, dtype=object) if dtype is not None else values


def _numbers(values: list[Any]) -> NDArray[Any]:
    """Booleans and whole numbers stay what they are, if all are and fit; the rest is float64."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return np.array(values, np.bool_)
    if kinds == {int} and all(abs(value) <= np.iinfo(np.int64).max for value in values):
        return np.array(values, np.int64)
    return np.array(values, np.float64)
