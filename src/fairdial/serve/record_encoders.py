"""Encode records of JSON as the first step of a model encodes tables, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairdial._arrays import Features
from fairdial.serve.records import Record
from fairdial.tables.encoder import TableEncoder
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
