"""What turns a table, or records of JSON, into the features of a plain model.

Like the blocks of a table encoder (:mod:`fairdial.tables.plan`), these blocks run on columns of
tables, on values of records and in ONNX graphs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from fairdial._arrays import Features, Floats
from fairdial._onnx import Graph
from fairdial.errors import InvalidInputError
from fairdial.tables.columns import (
    Column,
    Table,
    Value,
    read_categories,
    take_column,
    to_builtin,
)
from fairdial.tables.plan import KINDS as ENCODER_KINDS
from fairdial.tables.plan import Categorical, Json, Numeric, RecordWriter, category_input, read_flag

Missing = Literal["any", "nan", "none"]  # numbers that aren't finite: all, NaN or none
MOST_CODES = 254  # categories of a text column in boosting; rarer ones share one or are missing
FEW = 12  # rows that are encoded faster one by one than column by column


@dataclass(frozen=True)
class Number:
    """Pass a number on; missing values become ``fill`` or, without one, stay NaN."""

    kind: ClassVar[str] = "number"
    width: ClassVar[int] = 1
    name: Value
    fill: float | None = None

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> Number:
        """Read a block from parsed JSON; raise ValueError if it can't be right."""
        fill = item["fill"]
        return cls(to_builtin(item["name"]), None if fill is None else _finite(fill))

    def write_column(self, column: Column, out: Features) -> None:
        """Write the features of a column of a table, (n, width)."""
        self._write(_as_floats(column, self.name), out)

    def _write(self, values: Floats, out: Features) -> None:
        out[:, 0] = values if self.fill is None else np.where(np.isnan(values), self.fill, values)

    def record_writer(self, start: int, dtype: str) -> RecordWriter:  # noqa: ARG002
        """Return functions that write JSON values into rows, from position ``start`` on."""
        missing = math.nan if self.fill is None else self.fill

        def write_one(value: float | None, row: Features) -> None:
            row[start] = missing if value is None else value

        def write_many(values: Sequence[Json], out: Features) -> None:
            self._write(np.array(values, np.float64), out[:, start : start + 1])

        return RecordWriter(write_one, write_many)

    def add_nodes(self, graph: Graph) -> list[str]:
        """Add an input and the computation of the features; return the parts, (n, ...) each."""
        given = graph.input(str(self.name), "DOUBLE", ["n", 1])
        if self.fill is None:
            return [given]
        return [graph.op("Where", graph.op("IsNaN", given), graph.constant([[self.fill]]), given)]


@dataclass(frozen=True)
class Code:
    """Give each category a number; ``missing`` and ``unknown`` are NaN if None."""

    kind: ClassVar[str] = "code"
    width: ClassVar[int] = 1
    name: Value
    categories: tuple[Value, ...]
    codes: tuple[float, ...]
    missing: float | None = None
    unknown: float | None = None

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> Code:
        """Read a block from parsed JSON; raise ValueError if it can't be right."""
        categories = _categories(item)
        codes = tuple(_finite(code) for code in item["codes"])
        if len(codes) != len(categories):
            raise ValueError(f"codes of column {item['name']!r}")
        rest = [None if item[k] is None else _finite(item[k]) for k in ("missing", "unknown")]
        return cls(to_builtin(item["name"]), categories, codes, *rest)

    @cached_property
    def _table(self) -> dict[Any, float]:
        missing = math.nan if self.missing is None else self.missing
        return {**dict(zip(self.categories, self.codes, strict=True)), None: missing}

    def __getstate__(self) -> dict[str, Any]:
        """Return what files keep: the fields."""
        return {name: value for name, value in self.__dict__.items() if name != "_table"}

    @property
    def _unknown(self) -> float:
        return math.nan if self.unknown is None else self.unknown

    def write_column(self, column: Column, out: Features) -> None:
        """Write the features of a column of a table, (n, width)."""
        codes, values = read_categories(column, self.name)
        table, unknown = self._table, self._unknown
        by_code = [table.get(value, unknown) for value in (*values, None)]  # code -1: missing
        out[:, 0] = np.array(by_code)[codes]

    def record_writer(self, start: int, dtype: str) -> RecordWriter:  # noqa: ARG002
        """Return functions that write JSON values into rows, from position ``start`` on."""
        table, unknown = self._table, self._unknown

        def write_one(value: Json, row: Features) -> None:
            row[start] = table.get(value, unknown)

        def write_many(values: Sequence[Json], out: Features) -> None:
            out[:, start] = [table.get(value, unknown) for value in values]

        return RecordWriter(write_one, write_many)

    def add_nodes(self, graph: Graph) -> list[str]:
        """Add an input and the computation of the features; return the parts, (n, ...) each."""
        given, missing = category_input(graph, self.name, self.categories)
        places = {value: i for i, value in enumerate((*self.categories, missing))}
        place = graph.look_up(given, places, default=len(places))  # (n, 1)
        table = [*self.codes, self._table[None], self._unknown]
        return [graph.op("Gather", graph.constant(table), place)]


@dataclass(frozen=True)
class OneHot:
    """Mark the category of a value; ``missing`` and others without a place get zeros."""

    kind: ClassVar[str] = "one_hot"
    name: Value
    categories: tuple[Value, ...]
    missing: int | None = None  # place of missing values

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> OneHot:
        """Read a block from parsed JSON; raise ValueError if it can't be right."""
        categories, missing = _categories(item), item["missing"]
        if missing is not None and (
            type(missing) is not int or not 0 <= missing <= len(categories)
        ):
            raise ValueError(f"missing values of column {item['name']!r}")
        return cls(to_builtin(item["name"]), categories, missing)

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories) + (self.missing == len(self.categories))

    def _places(self, missing: Value | None) -> dict[Any, int]:
        places: dict[Any, int] = {value: i for i, value in enumerate(self.categories)}
        return {**places, missing: -1 if self.missing is None else self.missing}

    def write_column(self, column: Column, out: Features) -> None:
        """Write the features of a column of a table, (n, width)."""
        codes, values = read_categories(column, self.name)
        places = self._places(None)
        self._write(np.array([places.get(value, -1) for value in (*values, None)])[codes], out)

    def _write(self, places: Any, out: Features) -> None:
        known = np.flatnonzero(places >= 0)
        out[known, places[known]] = 1.0

    def record_writer(self, start: int, dtype: str) -> RecordWriter:  # noqa: ARG002
        """Return functions that write JSON values into rows, from position ``start`` on."""
        places, stop = self._places(None), start + self.width

        def write_one(value: Json, row: Features) -> None:
            place = places.get(value, -1)
            if place >= 0:
                row[start + place] = 1.0

        def write_many(values: Sequence[Json], out: Features) -> None:
            self._write(np.array([places.get(v, -1) for v in values]), out[:, start:stop])

        return RecordWriter(write_one, write_many)

    def add_nodes(self, graph: Graph) -> list[str]:
        """Add an input and the computation of the features; return the parts, (n, ...) each."""
        given, missing = category_input(graph, self.name, self.categories)
        codes = graph.look_up(given, self._places(missing), default=-1)
        return [graph.one_hot(graph.squeeze(codes, 1), self.width)]


InputBlock: TypeAlias = Number | Code | OneHot | Numeric | Categorical
KINDS: dict[str, Any] = {**ENCODER_KINDS, **{block.kind: block for block in (Number, Code, OneHot)}}


@dataclass(frozen=True)
class Inputs:
    """Blocks of features, in the order in which the model takes them.

    Attributes
    ----------
    columns : tuple
        Names of all columns of the training rows, or their positions.
    named : bool
        Whether the columns have names.
    blocks : tuple
        What computes the features.
    dtype : {"float32", "float64"}
        Type of the features that blocks write.
    centre, scale : (d,) arrays or None
        The features are ``(features - centre) / scale``.
    missing : {"any", "nan", "none"}
        Which numbers that aren't finite the model takes.
    """

    columns: tuple[Value, ...]
    named: bool
    blocks: tuple[InputBlock, ...]
    dtype: str = "float64"
    centre: Floats | None = None
    scale: Floats | None = None
    missing: Missing = "any"

    @cached_property
    def _writers(self) -> list[tuple[str, RecordWriter]]:
        """What writes the values of records, by name."""
        writers, start = [], 0
        for block in self.blocks:
            writers.append((str(block.name), block.record_writer(start, self.dtype)))
            start += block.width
        return writers

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickling keeps: functions of writers can't be pickled."""
        return {name: value for name, value in self.__dict__.items() if name != "_writers"}

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(block.width for block in self.blocks)

    def transform(self, X: Table) -> Features:
        """Return the features of a table, (n, width)."""
        out = np.zeros((len(X), self.width), self.dtype)
        names, start = list(self.columns), 0
        for block in self.blocks:
            if self.named and isinstance(X, pd.DataFrame):
                column = X[block.name]
            else:
                column = take_column(X, names.index(block.name))
            block.write_column(column, out[:, start : start + block.width])
            start += block.width
        return self._finish(out)

    def transform_records(self, records: Sequence[Mapping[str, Json]]) -> Features:
        """Return the features of checked records, (n, width)."""
        out = np.zeros((len(records), self.width), self.dtype)
        if len(records) <= FEW:
            for record, row in zip(records, out, strict=True):
                for name, writer in self._writers:
                    writer.one(record[name], row)
        else:
            for name, writer in self._writers:
                writer.many([record[name] for record in records], out)
        return self._finish(out)

    def _finish(self, out: Features) -> Features:
        if self.missing != "any":
            bad = np.isinf(out) if self.missing == "nan" else ~np.isfinite(out)
            if bad.any():
                raise InvalidInputError(
                    "X",
                    "hold finite numbers" + (" or NaN" if self.missing == "nan" else ""),
                    given=str(out[bad][0]),
                )
        if self.centre is not None:
            out = out - self.centre
        return out if self.scale is None else out / self.scale

    def add_nodes(self, graph: Graph) -> str:
        """Add the columns as inputs and the computation of the features; return (n, width)."""
        parts = [part for block in self.blocks for part in block.add_nodes(graph)]
        found = graph.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
        if self.dtype == "float32":
            found = graph.cast(graph.cast(found, "FLOAT"), "DOUBLE")
        if self.centre is not None:
            found = graph.op("Sub", found, graph.constant(self.centre[None]))
        return (
            found
            if self.scale is None
            else graph.op("Div", found, graph.constant(self.scale[None]))
        )

    def to_json(self) -> dict[str, Any]:
        """Return the inputs as JSON data."""
        return {
            "columns": list(self.columns),
            "named": self.named,
            "dtype": self.dtype,
            "missing": self.missing,
            "centre": None if self.centre is None else self.centre.tolist(),
            "scale": None if self.scale is None else self.scale.tolist(),
            "blocks": [
                {"kind": block.kind, **{k: v for k, v in vars(block).items() if k[0] != "_"}}
                for block in self.blocks
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Inputs:
        """Return the inputs that :meth:`to_json` wrote; raise ValueError if they can't be right."""
        columns = tuple(to_builtin(name) for name in data["columns"])
        blocks = tuple(KINDS[item["kind"]].from_json(item) for item in data["blocks"])
        width = sum(block.width for block in blocks)
        if len(set(columns)) < len(columns) or not {b.name for b in blocks} <= set(columns):
            raise ValueError("blocks of other columns")
        if data["dtype"] not in ("float32", "float64") or data["missing"] not in get_args(Missing):
            raise ValueError("unknown types of features")
        affine = []
        for name in ("centre", "scale"):
            found = data[name]
            affine.append(None if found is None else np.array([_finite(v) for v in found]))
            if found is not None and (len(found) != width or (name == "scale" and 0 in found)):
                raise ValueError(f"{name} of other features")
        named = read_flag(data["named"])
        return cls(columns, named, blocks, data["dtype"], affine[0], affine[1], data["missing"])


def _as_floats(column: Column, name: Value) -> Floats:
    """Return a column as float64, NaN where a value is missing."""
    try:
        if isinstance(column, pd.Series):
            if isinstance(column.dtype, pd.CategoricalDtype):
                column = column.astype(object)
            return np.asarray(column.to_numpy(np.float64, na_value=np.nan))
        return np.asarray(column, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError("X", f"hold numbers in column {name!r}", given=error) from None


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _categories(item: dict[str, Any]) -> tuple[Value, ...]:
    found = tuple(to_builtin(value) for value in item["categories"])
    if len(set(found)) < len(found):
        raise ValueError(f"repeated categories of column {item['name']!r}")
    return found
