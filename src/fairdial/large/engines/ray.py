"""Datasets of Ray: its workers decide and count, and add the counts in a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fairdial.large.engines import BATCH, Engine
from fairdial.large.engines.arrow import append_columns, arrow_types
from fairdial.large.tasks import Task, merge

FAN_IN = 16  # tables of counts that a worker adds at a time
LEVELS = 2  # of the tree; the rest is added here, one by one


def adapt(data: Any) -> Engine | None:
    """Return the adapter for a table."""
    from ray.data import Dataset

    return RayDataset(data) if isinstance(data, Dataset) else None


class RayDataset(Engine):
    """A Dataset of Ray.

    The task, and with it the model, is an object of the cluster's store, which a worker reads once.
    If a worker dies, Ray repeats what was lost.
    """

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.columns() or ())

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return the lazy table with the columns that the task computes."""
        shipped, types = self._ship(task), arrow_types(fields)

        def run(table: Any) -> Any:
            task = _fetch(*shipped)
            return append_columns(table, task(table.select(task.columns).to_pandas()), types)

        return self.data.map_batches(run, batch_format="pyarrow", batch_size=BATCH)

    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes, added in a tree."""
        shipped = self._ship(task)

        def count(table: Any) -> Any:
            return _pack(_fetch(*shipped)(table.to_pandas()))

        def add(packed: Any) -> Any:
            return _pack(merge(map(_unpack, packed["counts"])))

        rows = self.data.select_columns(task.columns)
        packed = rows.map_batches(count, batch_format="pyarrow", batch_size=BATCH)
        for _ in range(LEVELS):
            packed = packed.map_batches(add, batch_format="pyarrow", batch_size=FAN_IN)
        found = merge([])
        for row in packed.iter_rows():
            found = merge([found, _unpack(row["counts"])])
        return found

    def _ship(self, task: Task) -> tuple[Any, str]:
        import ray

        reference = ray.put(task)
        return reference, reference.hex()


_FETCHED: dict[str, Any] = {}


def _fetch(reference: Any, name: str) -> Any:
    """Return a task, which this process receives once."""
    import ray

    if name not in _FETCHED:
        _FETCHED.clear()
        _FETCHED[name] = ray.get(reference)
    return _FETCHED[name]


def _pack(counts: pd.DataFrame) -> Any:
    """Return a table of counts as a table with one row of bytes."""
    import pyarrow

    table = pyarrow.Table.from_pandas(counts, preserve_index=False)
    sink = pyarrow.BufferOutputStream()
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
    with pyarrow.ipc.new_stream(sink, table.schema, options=options) as file:
        file.write_table(table)
    return pyarrow.table({"counts": pyarrow.array([sink.getvalue().to_pybytes()], "large_binary")})


def _unpack(packed: Any) -> pd.DataFrame:
    import pyarrow

    data = packed.as_py() if hasattr(packed, "as_py") else packed
    found: pd.DataFrame = pyarrow.ipc.open_stream(data).read_all().to_pandas()
    return found.astype({"cell": object})
