"""What a fitted TableEncoder does, as data: a block of features for each column.

A block can be computed in three places, with the same bits: for a column of a table, for values of
JSON records, and in an ONNX graph. These are methods of the block, next to each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from fairdial._arrays import Features, Floats
from fairdial._onnx import INT64, Graph
from fairdial.errors import InvalidInputError
from fairdial.tables.columns import (
    Column,
    Value,
    read_categories,
    read_numbers,
    refuse_empty,
    to_builtin,
)
from fairdial.tables.piecewise import piecewise_linear, quantile_edges

Json: TypeAlias = str | int | float | bool | None

MOST_INDICATORS = 64  # categories of a column that have their own feature, by default
CLIP = 10.0  # scaled numbers end here, so that an outlier can't drown the other features


class RecordWriter(NamedTuple):
    """Functions that write a column's features of checked JSON values."""

    one: Callable[[Any, Features], None]  # a value, and a row of all features
    many: Callable[[Sequence[Any], Features], None]  # (n,) values, and (n, d) rows


@dataclass(frozen=True)
class Numeric:
    """Scale a number, place it among quantiles, and flag missing values if training had any."""

    kind: ClassVar[str] = "numeric"
    name: Value
    centre: float  # the median; spelled as in saved models
    scale: float
    edges: tuple[float, ...]  # empty: no piecewise-linear part
    missing: bool

    @classmethod
    def fit(cls, name: Value, values: Floats, n_bins: int) -> Numeric:
        """Learn from the training rows."""
        known = values[~np.isnan(values)]
        refuse_empty(known, name)
        low, median, high = np.quantile(known, (0.25, 0.5, 0.75)).tolist()
        deviation = float(np.std(known)) if known.min() < known.max() else 0.0
        edges = quantile_edges(known, n_bins) if n_bins else known[:0]
        if len(edges) < 3:  # a single bin adds nothing to the scaled number
            edges = known[:0]
        return cls(
            name=name,
            centre=median,
            scale=(high - low) or deviation or 1.0,
            edges=tuple(edges.tolist()),
            missing=len(known) < len(values),
        )

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> Numeric:
        """Read a block from parsed JSON; raise ValueError if it can't be right."""
        centre, scale, *edges = (float(v) for v in (item["centre"], item["scale"], *item["edges"]))
        finite = np.isfinite([centre, scale, *edges]).all()
        if not finite or scale <= 0 or len(edges) in (1, 2) or (np.diff(edges) <= 0).any():
            raise ValueError(f"scale and edges of column {item['name']!r}")
        return cls(
            to_builtin(item["name"]), centre, scale, tuple(edges), read_flag(item["missing"])
        )

    @property
    def labels(self) -> list[str]:
        """What follows the column's name in the names of the features."""
        bins = [f"[{b}]" for b in range(len(self.edges) - 1)]
        return ["", *bins, *["=missing"] * self.missing]

    @property
    def width(self) -> int:
        """Number of features."""
        return max(len(self.edges), 1) + self.missing

    def write_column(self, column: Column, out: Features) -> None:
        """Write the features of a column of a table, (n, width)."""
        self._write(read_numbers(column, self.name), np.array(self.edges), out)

    def _write(self, values: Floats, edges: Floats, out: Features) -> None:
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, self.centre, values)
        with np.errstate(over="ignore"):
            out[:, 0] = ((values - self.centre) / self.scale).clip(-CLIP, CLIP)
        if len(edges):
            out[:, 1 : len(edges)] = piecewise_linear(values, edges)
        if self.missing:
            out[:, -1] = missing

    def record_writer(self, start: int, dtype: str) -> RecordWriter:
        """Return functions that write JSON values into rows, from position ``start`` on."""
        median, scale, edges, array = self.centre, self.scale, self.edges, np.array(self.edges)
        inner, widths, first = edges[1:-1], np.diff(array).tolist(), start + 1
        stop, flag = start + self.width, start + self.width - 1 if self.missing else None
        as_part = float if dtype == "float32" else np.float32  # as piecewise_linear rounds

        def write_one(value: int | float | bool | None, row: Features) -> None:
            if value is None:
                value = median
                if flag is not None:
                    row[flag] = 1.0
            number = float(value)
            row[start] = min(max((number - median) / scale, -CLIP), CLIP)
            if edges:
                passed = bisect_right(inner, number)
                part = (number - edges[passed]) / widths[passed]
                row[first : first + passed] = 1.0
                row[first + passed] = as_part(min(max(part, 0.0), 1.0))

        def write_many(values: Sequence[Json], out: Features) -> None:
            self._write(np.array(values, np.float64), array, out[:, start:stop])  # None is NaN

        return RecordWriter(write_one, write_many)

    def add_nodes(self, graph: Graph) -> list[str]:
        """Add an input and the computation of the features; return the parts, (n, ...) each."""
        given = graph.input(str(self.name), "DOUBLE", ["n", 1])
        missing = graph.op("IsNaN", given)
        value = graph.op("Where", missing, graph.constant([[self.centre]]), given)
        scaled = graph.op("Sub", value, graph.constant([[self.centre]]))
        scaled = graph.op("Div", scaled, graph.constant([[self.scale]]))
        parts = [graph.clip(scaled, -CLIP, CLIP)]
        if self.edges:
            edges = np.array(self.edges)
            part = graph.op("Sub", value, graph.constant(edges[None, :-1]))
            part = graph.op("Div", part, graph.constant(np.diff(edges)[None]))
            part = graph.clip(part, 0.0, 1.0)
            parts.append(graph.cast(graph.cast(part, "FLOAT"), "DOUBLE"))  # as piecewise_linear
        if self.missing:
            parts.append(graph.cast(missing, "DOUBLE"))
        return parts


@dataclass(frozen=True)
class Categorical:
    """One-hot encode a category: each, all others, and missing values if training had any."""

    kind: ClassVar[str] = "categorical"
    name: Value
    categories: tuple[Value, ...]
    missing: bool

    @classmethod
    def fit(cls, name: Value, column: Column, at_least: int, at_most: int) -> Categorical:
        """Learn the categories that enough training rows have."""
        codes, values = read_categories(column, name)
        known = codes[codes >= 0]
        refuse_empty(known, name)
        counts = np.bincount(known, minlength=len(values)).tolist()
        often = [(v, count) for v, count in zip(values, counts, strict=True) if count >= at_least]
        often.sort(key=lambda item: (-item[1], *_order(item[0])))
        kept = sorted((value for value, _ in often[:at_most]), key=_order)
        return cls(name, tuple(kept), len(known) < len(codes))

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> Categorical:
        """Read a block from parsed JSON; raise ValueError if it can't be right."""
        categories = tuple(to_builtin(value) for value in item["categories"])
        if len(set(categories)) < len(categories):
            raise ValueError(f"repeated categories of column {item['name']!r}")
        return cls(to_builtin(item["name"]), categories, read_flag(item["missing"]))

    @property
    def labels(self) -> list[str]:
        """What follows the column's name in the names of the features."""
        texts = [str(value) for value in self.categories]
        clear = [
            text if texts.count(text) == 1 and text not in ("other", "missing") else repr(value)
            for text, value in zip(texts, self.categories, strict=True)
        ]
        return [f"={text}" for text in (*clear, "other", *["missing"] * self.missing)]

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories) + 1 + self.missing

    def _places(self, missing: Value | None, start: int = 0) -> tuple[dict[Any, int], int]:
        """Return the position of each category and of a missing value, and that of all others."""
        other = start + len(self.categories)
        places = {value: start + i for i, value in enumerate(self.categories)}
        return {**places, missing: other + self.missing}, other

    def write_column(self, column: Column, out: Features) -> None:
        """Write the features of a column of a table, (n, width)."""
        codes, values = read_categories(column, self.name)
        places, other = self._places(None)
        by_code = [places.get(value, other) for value in (*values, None)]  # code -1: missing
        out[np.arange(len(codes)), np.array(by_code)[codes]] = 1.0

    def record_writer(self, start: int, dtype: str) -> RecordWriter:  # noqa: ARG002
        """Return functions that write JSON values into rows, from position ``start`` on."""
        places, other = self._places(None, start)

        def write_one(value: Json, row: Features) -> None:
            row[places.get(value, other)] = 1.0

        def write_many(values: Sequence[Json], out: Features) -> None:
            out[np.arange(len(values)), [places.get(value, other) for value in values]] = 1.0

        return RecordWriter(write_one, write_many)

    def add_nodes(self, graph: Graph) -> list[str]:
        """Add an input and the computation of the features; return the parts, (n, ...) each.

        A missing value is given as empty text or as the smallest int64.
        """
        given, missing = category_input(graph, self.name, self.categories)
        places, other = self._places(missing)
        codes = graph.look_up(given, places, default=other)
        return [graph.one_hot(graph.squeeze(codes, 1), self.width)]


Block: TypeAlias = Numeric | Categorical
KINDS: dict[str, type[Block]] = {block.kind: block for block in (Numeric, Categorical)}


def category_input(graph: Graph, name: Value, categories: Sequence[Value]) -> tuple[str, Value]:
    """Add an input for a column of categories; return it, and the value that stands for missing."""
    text = all(isinstance(value, str) for value in categories)
    missing: Value = "" if text else INT64.min
    for value in categories:
        good = value != missing and (text or (type(value) is int and _is_int64(value)))
        if not good:
            raise InvalidInputError(
                "model",
                "have categories that are all text (not empty) or all integers above -2**63 "
                "and below 2**63",
                given=f"{value!r} in column {name!r}",
            )
    return graph.input(str(name), "STRING" if text else "INT64", ["n", 1]), missing


def _order(value: Value) -> tuple[bool, Value]:
    """Sort numbers before text."""
    return isinstance(value, str), value


def _is_int64(value: int) -> bool:
    return INT64.min <= value <= INT64.max


def read_flag(value: object) -> bool:
    """Return a boolean of parsed JSON."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value
