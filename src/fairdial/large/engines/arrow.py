"""Tables of Arrow: pyarrow's own, and relations of DuckDB, read batch by batch."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fairdial.errors import InvalidInputError
from fairdial.large.engines import BATCH, Engine
from fairdial.large.tasks import Task, merge


def adapt(data: Any) -> Engine | None:
    """Return the adapter for a table."""
    duckdb = sys.modules.get("duckdb")
    if duckdb is not None and isinstance(data, duckdb.DuckDBPyRelation):
        return DuckRelation(data)
    import pyarrow
    import pyarrow.dataset

    if isinstance(data, pyarrow.RecordBatch):
        data = pyarrow.Table.from_batches([data])
    if isinstance(data, pyarrow.Table):
        return ArrowTable(data)
    if isinstance(data, pyarrow.dataset.Dataset):
        return ArrowDataset(data)
    if isinstance(data, pyarrow.RecordBatchReader):
        raise InvalidInputError(
            "data",
            "be readable more than once",
            given="a RecordBatchReader",
            hint="Pass a pyarrow Table or Dataset.",
        )
    return None


def append_columns(batch: Any, found: pd.DataFrame, types: Mapping[str, Any]) -> Any:
    """Return a batch or table of Arrow with more columns."""
    import pyarrow

    for name, kind in types.items():
        values = found[name].to_numpy(object if kind == pyarrow.string() else None)
        batch = batch.append_column(pyarrow.field(name, kind), pyarrow.array(values, kind))
    return batch


def arrow_types(fields: Mapping[str, np.dtype[Any]]) -> dict[str, Any]:
    """Return the types of new columns."""
    import pyarrow

    return {
        name: pyarrow.from_numpy_dtype(dtype) if dtype.kind in "biuf" else pyarrow.string()
        for name, dtype in fields.items()
    }


class ArrowTable(Engine):
    """A Table of pyarrow."""

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.schema.names)

    def _batches(self, columns: list[str]) -> Iterable[Any]:
        """Return the rows in batches, with these columns."""
        return self.data.select(columns).to_batches(max_chunksize=BATCH)  # type: ignore[no-any-return]

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return the table with the columns that the task computes."""
        return self._reader(task, fields).read_all()

    def _reader(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return the rows with the new columns, to be read once."""
        import pyarrow

        types = arrow_types(fields)
        schema = self._schema()
        for name, kind in types.items():
            schema = schema.append(pyarrow.field(name, kind))

        def run() -> Iterator[Any]:
            for batch in self._batches(self.columns):
                found = task(batch.select(task.columns).to_pandas())
                yield append_columns(batch, found, types).cast(schema)

        return pyarrow.RecordBatchReader.from_batches(schema, run())

    def _schema(self) -> Any:
        return self.data.schema

    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes."""
        return _sum(task(batch.to_pandas()) for batch in self._batches(task.columns))


class ArrowDataset(ArrowTable):
    """A Dataset of pyarrow, such as a folder of Parquet files, which needn't fit in memory."""

    def _batches(self, columns: list[str]) -> Iterable[Any]:
        return self.data.to_batches(  # type: ignore[no-any-return]
            columns=columns, batch_size=BATCH, batch_readahead=1, fragment_readahead=1
        )

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return a reader of the rows with the columns that the task computes."""
        return self._reader(task, fields)


class DuckRelation(ArrowDataset):
    """A relation of DuckDB, which needn't fit in memory."""

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.columns)

    def _schema(self) -> Any:
        return self.data.limit(0).to_arrow_table().schema

    def _batches(self, columns: list[str]) -> Iterable[Any]:
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        return self.data.project(quoted).to_arrow_reader(BATCH)  # type: ignore[no-any-return]


def _sum(tables: Iterable[pd.DataFrame], every: int = 16) -> pd.DataFrame:
    """Return the sum of many tables, of which few are kept at a time."""
    waiting: list[pd.DataFrame] = []
    for table in tables:
        waiting.append(table)
        if len(waiting) == every:
            waiting = [merge(waiting)]
    return merge(waiting)
