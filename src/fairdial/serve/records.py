"""Rows of JSON as what a model scores, checked, without a table in between where that is possible.

A row is a record by column name (a list where the training rows had no names). What the columns
hold is known from the model, so everything is checked here; messages name the row, the column and
what is allowed, never what was sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.encoders import CLIP, TableEncoder
from fairdial.errors import InvalidInputError

Kind = Literal["number", "text", "any"]
Features = NDArray[np.float32]

LARGEST = 1e100  # encoders take numbers beyond for infinite
FEW = 12  # rows up to which going through them one by one is faster than column by column
SHOWN = 5  # names in a message
WORDS = {
    "number": "a finite number, true, false or null",
    "text": "text or null",
    "any": "text, a finite number, true, false or null",
}


class BadRowError(InvalidInputError):
    """A row that the model can't score; the message doesn't tell what was sent."""


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


@dataclass(frozen=True)
class Layout:
    """The columns of a model's rows.

    Attributes
    ----------
    columns : tuple of Column
        In the order of the training rows.
    named : bool
        Whether rows are records; otherwise they are lists.
    """

    columns: tuple[Column, ...]
    named: bool

    def values(self, rows: Sequence[Any]) -> list[Any]:
        """(n,) records, each checked; NaN, strangers and what is missing are refused."""
        if not self.named:
            return [self._listed(row, i) for i, row in enumerate(rows)]
        for i, row in enumerate(rows):
            self._check(row, i)
        return list(rows)

    def _listed(self, row: Any, i: int) -> dict[str, Any]:
        if not isinstance(row, list) or len(row) != len(self.columns):
            raise BadRowError(
                f"row {i}: `features` must be a list of {len(self.columns)} values, got another."
            )
        found = {column.text: value for column, value in zip(self.columns, row, strict=True)}
        self._check(found, i)
        return found

    def _check(self, row: Any, i: int) -> None:
        if not isinstance(row, dict):
            raise BadRowError(f"row {i}: `features` must be values by column name, got another.")
        for column in self.columns:
            try:
                value = row[column.text]
            except KeyError:
                raise BadRowError(
                    f"row {i}: `features` must have {column.text!r}, got a row without."
                ) from None
            if value is None:
                continue
            kind = type(value)
            if kind is str:
                good = column.kind != "number"
            elif kind is float or kind is int or kind is bool:
                good = column.kind != "text" and -LARGEST <= value <= LARGEST  # not so for NaN
            else:
                good = False
            if not good:
                raise BadRowError(
                    f"row {i}: {column.text!r} must be {WORDS[column.kind]}, got another value."
                )
        if len(row) != len(self.columns):
            raise BadRowError(
                f"row {i}: `features` must have the columns {self.told} only, got others besides."
            )

    @property
    def told(self) -> str:
        """The columns in words."""
        names = [repr(column.text) for column in self.columns[:SHOWN]]
        more = len(self.columns) - len(names)
        return ", ".join(names) + (f" and {more} more" if more > 0 else "")

    def schema(self) -> dict[str, Any]:
        """The rows' JSON schema."""
        types = {
            "number": ["number", "boolean", "null"],
            "text": ["string", "null"],
            "any": ["string", "number", "boolean", "null"],
        }
        parts = [
            {"type": types[c.kind], **({} if c.kind == "text" else _RANGE)} for c in self.columns
        ]
        if not self.named:
            size = len(parts)
            values = parts[0] if all(part == parts[0] for part in parts) else {}
            return {"type": "array", "items": values, "minItems": size, "maxItems": size}
        names = [column.text for column in self.columns]
        return {
            "type": "object",
            "properties": dict(zip(names, parts, strict=True)),
            "required": names,
            "additionalProperties": False,
        }


_RANGE = {"minimum": -LARGEST, "maximum": LARGEST}


def encoder_layout(encoder: TableEncoder) -> Layout:
    """The columns that a fitted encoder expects."""
    columns = [
        Column(rule.name, str(rule.name), "number" if rule.kind == "numeric" else "any")
        for rule in encoder.columns_
    ]
    return _layout(columns, named=encoder.named_)


def table_layout(
    names: Sequence[Hashable] | None, count: int, dtypes: dict[Any, Any] | None
) -> Layout:
    """The columns that a scikit-learn estimator expects, by what is known of its training rows."""
    if names is None:
        return _layout([Column(i, str(i), "number") for i in range(count)], named=False)
    known = dtypes or {}
    return _layout(
        [Column(n, str(n), _kind(known.get(n)), known.get(n)) for n in names], named=True
    )


def _layout(columns: list[Column], *, named: bool) -> Layout:
    if len({column.text for column in columns}) < len(columns):
        raise InvalidInputError(
            "`model` must have columns whose names differ as text to be served, got two alike."
        )
    return Layout(tuple(columns), named)


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
        self._rules: list[tuple[str, Any, int]] = []
        self._writers: list[Callable[[Any, Features], None]] = []
        start = 0
        for rule in encoder.columns_:
            self._rules.append((str(rule.name), rule, start))
            make = _number_writer if rule.kind == "numeric" else _category_writer
            self._writers.append(make(rule, start))
            start += rule.width

    def __call__(self, rows: Sequence[dict[str, Any]]) -> Features:
        """(n, n_features_out_) features of rows that a layout has checked."""
        out = np.zeros((len(rows), self._width), np.float32)
        if len(rows) <= FEW:
            for row, line in zip(rows, out, strict=True):
                for (name, _, _), write in zip(self._rules, self._writers, strict=True):
                    write(row[name], line)
        else:
            for name, rule, start in self._rules:
                values = [row[name] for row in rows]
                kind = np.float64 if rule.kind == "numeric" else object
                rule.write(np.array(values, kind), out[:, start : start + rule.width])
        return out


def _number_writer(rule: Any, start: int) -> Callable[[Any, Features], None]:
    """Writes one number of a row; see ``_Numeric.write`` of the encoders."""
    centre, scale, edges = rule.centre, rule.scale, rule.edges
    inner, widths = list(edges[1:-1]), np.diff(edges).tolist()
    first, last = start + 1, start + rule.width - 1

    def write(value: Any, line: Features) -> None:
        if value is None:
            value = centre
            if rule.missing:
                line[last] = 1.0
        number = float(value)
        line[start] = min(max((number - centre) / scale, -CLIP), CLIP)
        if edges:
            place = bisect_right(inner, number)
            line[first : first + place] = 1.0
            line[first + place] = min(max((number - edges[place]) / widths[place], 0.0), 1.0)

    return write


def _category_writer(rule: Any, start: int) -> Callable[[Any, Features], None]:
    """Writes one category of a row; see ``_Categorical.write`` of the encoders."""
    other = start + len(rule.categories)
    places = {value: start + i for i, value in enumerate(rule.categories)}
    places[None] = other + rule.missing

    def write(value: Any, line: Features) -> None:
        line[places.get(value, other)] = 1.0

    return write


# ---- tables ------------------------------------------------------------------------------------


def make_table(layout: Layout, rows: Sequence[dict[str, Any]]) -> Any:
    """Checked records as a DataFrame with the training rows' types, or as an array."""
    if not layout.named:
        lines = [[row[column.text] for column in layout.columns] for row in rows]
        return np.array(lines, np.float64)
    columns = {
        column.name: _column(column.dtype, [row[column.text] for row in rows])
        for column in layout.columns
    }
    return pd.DataFrame(columns)


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
