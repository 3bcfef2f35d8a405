"""Encode records of JSON as the first step of a model encodes tables, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer

from fairdial._arrays import Features, Floats
from fairdial.estimators.learners import turns_into_floats
from fairdial.serve.records import Layout, Record
from fairdial.tables.encoder import TableEncoder
from fairdial.tables.frequent import FrequentEncoder
from fairdial.tables.plan import RecordWriter

FEW = 12  # rows that are encoded faster one by one than column by column


class RecordEncoder:
    """Encode checked records as a fitted :class:`~fairdial.TableEncoder` does, but faster.

    Parameters
    ----------
    encoder : TableEncoder
        Fitted.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdial import TableEncoder
    >>> from fairdial.serve.record_encoders import RecordEncoder
    >>> X = pd.DataFrame({"age": [20, 30, 40, None], "job": ["cook", "cook", "nurse", "cook"]})
    >>> encoder = TableEncoder(n_bins=2).fit(X)
    >>> RecordEncoder(encoder).transform([{"age": 35, "job": "pilot"}])
    array([[0.5, 1. , 0.5, 0. , 0. , 0. , 1. ]], dtype=float32)
    """

    def __init__(self, encoder: TableEncoder) -> None:
        self._dtype, self._width = encoder.dtype, 0
        self._writers: list[tuple[str, RecordWriter]] = []
        for block in encoder.columns_:
            writer = block.record_writer(self._width, encoder.dtype)
            self._writers.append((str(block.name), writer))
            self._width += block.width

    def transform(self, X: Sequence[Record]) -> Features:
        """Return the features of records that :meth:`Layout.check` returned, (n, d)."""
        out = np.zeros((len(X), self._width), self._dtype)
        if len(X) <= FEW:
            for record, row in zip(X, out, strict=True):
                for name, writer in self._writers:
                    writer.one(record[name], row)
        else:
            for name, writer in self._writers:
                writer.many([record[name] for record in X], out)
        return out


class TreeRecordEncoder:
    """Encode checked records as the first step of :func:`~fairdial.estimators.learners.boosting`.

    Parameters
    ----------
    codes : sequence of (str, dict)
        Columns of text, and the codes of their values.
    numbers : sequence of str
        The other columns.
    """

    def __init__(
        self, codes: Sequence[tuple[str, dict[Any, float]]], numbers: Sequence[str]
    ) -> None:
        self._codes, self._numbers = codes, numbers

    @classmethod
    def make(cls, step: ColumnTransformer, layout: Layout) -> TreeRecordEncoder | None:
        """Return an encoder for a fitted step, or None if it is another or takes other values."""
        columns = {column.name: column for column in layout.columns}
        (_, encoder, texts), *rest = step.transformers_
        numbers = [name for _, _, names in rest for name in names]
        if (
            type(encoder) is FrequentEncoder
            and encoder.unknown_value is not None
            and np.isnan([encoder.unknown_value, encoder.encoded_missing_value]).all()
            and all(name in columns and _has_text(columns[name].dtype) for name in texts)
            and all(turns_into_floats(other) for _, other, _ in rest)
            and all(name in columns and columns[name].kind == "number" for name in numbers)
        ):
            codes = zip(map(str, texts), encoder.code_tables(), strict=True)
            return cls(list(codes), list(map(str, numbers)))
        return None

    def transform(self, X: Sequence[Record]) -> Floats:
        """Return the codes and numbers of records that :meth:`Layout.check` returned, (n, d)."""
        rows = [
            [
                *[codes.get(record[name], np.nan) for name, codes in self._codes],
                *[record[name] for name in self._numbers],
            ]
            for record in X
        ]
        return np.array(rows, np.float64)  # None becomes NaN


def _has_text(dtype: Any) -> bool:
    if isinstance(dtype, pd.CategoricalDtype):
        return all(isinstance(category, str) for category in dtype.categories)
    return isinstance(dtype, pd.StringDtype) or getattr(dtype, "kind", "") == "O"
