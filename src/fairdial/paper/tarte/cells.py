"""Tables as the cells that TARTE reads: texts and scaled numbers, with their columns' names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.preprocessing import PowerTransformer, RobustScaler

from fairdial._arrays import Floats
from fairdial.errors import InvalidInputError
from fairdial.nn.feature_cache import Features
from fairdial.tables.columns import (
    Table,
    Value,
    column_names,
    is_numeric,
    read_categories,
    read_numbers,
    refuse_empty,
    take_column,
)

SCALERS = {"robust": (RobustScaler,), "power": (PowerTransformer,)}
YEARS = (RobustScaler, PowerTransformer)  # one after the other
LIMIT = 1e15  # of scaled numbers: squares of larger ones overflow in float32


@dataclass(frozen=True)
class Cells:
    """Rows of a table, text columns first.

    Attributes
    ----------
    names : tuple of str
        The columns' names.
    texts : tuple of str
        Distinct texts of the rows, sorted.
    codes : array of shape (n, k)
        Text of each cell, as a position in ``texts``; -1 where the value is missing.
    numbers : array of shape (n, m)
        Scaled numbers; NaN where the value is missing.
    """

    names: tuple[str, ...]
    texts: tuple[str, ...]
    codes: NDArray[np.int32]
    numbers: Features

    def __len__(self) -> int:
        return len(self.codes)

    def digest(self) -> str:
        """Return a digest of everything that the rows hold."""
        shape = json.dumps([self.names, self.texts, self.codes.shape, self.numbers.shape])
        digest = hashlib.sha256(shape.encode())
        digest.update(np.ascontiguousarray(self.codes).tobytes())
        digest.update(np.ascontiguousarray(self.numbers).tobytes())
        return digest.hexdigest()

    def tokens(
        self, rows: slice, names: Features, texts: Features
    ) -> tuple[Features, Features, NDArray[np.bool_]]:
        """Return the transformer's inputs for some rows.

        A text becomes its vector, a number the vector of its column's name times the number. The
        first token of a row is the readout, which has no cell.

        Parameters
        ----------
        rows : slice
            Which rows.
        names : array of shape (c, d)
            Vectors of the columns' names.
        texts : array of shape (len(texts) + 1, d)
            Vectors of the texts; the last stands for missing ones.

        Returns
        -------
        cells : array of shape (b, 1 + c, d)
            Values.
        columns : array of shape (1 + c, d)
            The columns' names.
        missing : array of shape (b, 1 + c)
            Tokens that are masked.
        """
        codes, numbers = self.codes[rows], self.numbers[rows]
        known = np.nan_to_num(numbers, nan=0.0)[:, :, None]
        cells = np.concatenate((texts[codes], known * names[codes.shape[1] :]), axis=1)
        missing = np.concatenate((codes < 0, np.isnan(numbers)), axis=1)
        return (
            np.insert(cells, 0, 1.0, axis=1),
            np.insert(names, 0, 1.0, axis=0),
            np.insert(missing, 0, False, axis=1),
        )


@dataclass(frozen=True)
class Reader:
    """Reads rows as cells, by kinds of columns and scales learned from training rows."""

    names: tuple[Value, ...]
    named: bool
    kinds: tuple[str, ...]
    scalers: dict[str, list[Any]]  # by kind: one after the other

    @classmethod
    def learn(cls, table: Table, scaling: str) -> Reader:
        """Learn from training rows.

        Parameters
        ----------
        table : DataFrame or array of shape (n, d)
            The rows.
        scaling : {"robust", "power"}
            How numbers are scaled.
        """
        names = column_names(table)
        columns = [take_column(table, i) for i in range(len(names))]
        kinds = [_kind(column, name) for column, name in zip(columns, names, strict=True)]
        for column, name in zip(columns, names, strict=True):
            refuse_empty(np.asarray(column)[~np.asarray(pd.isna(column))], name)
        reader = cls(tuple(names), isinstance(table, pd.DataFrame), tuple(kinds), {})
        for kind, steps in (("number", SCALERS[scaling]), ("date", YEARS)):
            values = reader._values(table, range(len(names)), kind)
            if values.shape[1]:
                reader.scalers[kind] = _fit(steps, values)
        return reader

    def read(self, table: Table, where: Sequence[int]) -> Cells:
        """Return rows as cells; ``where`` holds the place of each column in the table."""
        texts, codes = _unite(
            [
                read_categories(take_column(table, where[i]), self.names[i])
                for i in self._places("text")
            ],
            len(table),
        )
        numbers = [np.empty((len(table), 0))]
        for kind, scalers in self.scalers.items():
            values = self._values(table, where, kind)
            try:
                with np.errstate(over="ignore"):
                    for scaler in scalers:
                        values = scaler.transform(values)
            except ValueError as error:  # the power of a number far from the training rows
                raise InvalidInputError(
                    "X",
                    "hold numbers that can be scaled",
                    given=error,
                    hint="`scaling='robust'` takes numbers of any size.",
                ) from error
            numbers.append(np.clip(values, -LIMIT, LIMIT))
        order = [i for kind in ("text", "number", "date") for i in self._places(kind)]
        return Cells(
            names=tuple(self._title(i) for i in order),
            texts=texts,
            codes=codes,
            numbers=np.concatenate(numbers, axis=1, dtype=np.float32),
        )

    def _places(self, kind: str) -> list[int]:
        return [i for i, found in enumerate(self.kinds) if found == kind]

    def _title(self, i: int) -> str:
        return _one_line(self.names[i]) if self.named else f"Column_{i}"

    def _values(self, table: Table, where: Sequence[int], kind: str) -> Floats:
        """Return the numbers (n, m) of one kind of columns."""
        read = read_numbers if kind == "number" else _read_years
        columns = [read(take_column(table, where[i]), self.names[i]) for i in self._places(kind)]
        return np.array(columns, np.float64).reshape(len(columns), len(table)).T


def _fit(steps: Sequence[Any], values: Floats) -> list[Any]:
    """Return scalers, each fitted on the output of the previous one."""
    scalers = []
    for make in steps:
        scalers.append(make().set_output(transform="default").fit(values))
        values = scalers[-1].transform(values)
    return scalers


def _kind(column: Any, name: Value) -> str:
    if getattr(column.dtype, "kind", "O") == "M":
        return "date"
    return "number" if is_numeric(column, name) else "text"


def _read_years(column: Any, name: Value) -> Floats:
    """Return the years of a column of dates, NaN where a date is missing."""
    dates = pd.Series(column)
    if getattr(dates.dtype, "kind", "O") != "M":
        if not dates.isna().all():
            raise InvalidInputError(
                "X",
                f"hold dates in column {name!r}, as the training rows did",
                given=dates.dtype,
            )
        return np.full(len(dates), np.nan)
    return np.asarray(dates.dt.year.to_numpy(dtype=np.float64, na_value=np.nan))


def _unite(
    columns: Sequence[tuple[NDArray[np.integer[Any]], Sequence[Value]]], n_rows: int
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the texts of all columns, sorted, and each cell's place among them or -1."""
    codes = np.empty((n_rows, len(columns)), np.int32)
    lowered = [[_one_line(value).lower() for value in values] for _, values in columns]
    used = {
        texts[i]
        for (found, _), texts in zip(columns, lowered, strict=True)
        for i in np.unique(found[found >= 0])
    }
    place = {text: i for i, text in enumerate(sorted(used))}
    for j, ((found, _), texts) in enumerate(zip(columns, lowered, strict=True)):
        codes[:, j] = np.array([*(place.get(text, -1) for text in texts), -1])[found]
    return tuple(place), codes


def _one_line(value: Value) -> str:
    return str(value).replace("\n", " ")
