"""Tables of Arrow: pyarrow's own, and relations of DuckDB, read batch by batch."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairdial._validation import did_you_mean
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


class Batch(NamedTuple):
    """Rows, and where they are: in a part of a dataset, after its first ``start`` rows."""

    rows: Any
    part: Any = None
    start: int | None = None  # None: unknown

    def apply(self, task: Task) -> pd.DataFrame:
        """Return what a task makes of the rows; errors name the file, and rows within it."""
        if self.part is not None:  # files of a filtered dataset weren't checked before
            _check_part(self.part, task.columns)
        found = self.rows.select(task.columns).to_pandas()
        start = self.start or 0
        found.index = pd.RangeIndex(start, start + len(found))
        try:
            return task(found)
        except InvalidInputError as error:
            if self.start is not None and _name(self.part):
                error.add_note(f"That is in {_name(self.part)!r}.")
            raise


class ArrowTable(Engine):
    """A Table of pyarrow."""

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.schema.names)

    def _batches(self, columns: list[str]) -> Iterator[Batch]:
        """Yield the rows in batches, with these columns."""
        for rows in self.data.select(columns).to_batches(max_chunksize=BATCH):
            yield Batch(rows)

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
                yield append_columns(batch.rows, batch.apply(task), types).cast(schema)

        return pyarrow.RecordBatchReader.from_batches(schema, run())

    def _schema(self) -> Any:
        return self.data.schema

    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes."""
        return _sum(batch.apply(task) for batch in self._batches(task.columns))


class ArrowDataset(ArrowTable):
    """A Dataset of pyarrow, such as a folder of Parquet files, which needn't fit in memory."""

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return a reader of the rows with the columns that the task computes."""
        self.check_files(task.columns)
        return self._reader(task, fields)

    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes."""
        self.check_files(task.columns)
        return super().count(task)

    def check_files(self, columns: Sequence[str]) -> None:
        """Raise if pyarrow would read other values than a file has.

        It reads missing values where a file lacks a column, and truth values where another file
        has some and this one has numbers.
        """
        for part in self._parts() or ():
            _check_part(part, columns)
            self._check_truth(part, columns)

    def _check_truth(self, part: Any, columns: Sequence[str]) -> None:
        from pyarrow.types import is_boolean, is_null

        read, stored = self.data.schema, part.physical_schema
        for name in (name for name in columns if name in stored.names):
            kind = stored.field(name).type
            if is_boolean(read.field(name).type) and not (is_boolean(kind) or is_null(kind)):
                raise InvalidInputError(
                    "data",
                    f"have one type in all files for {name!r}",
                    given=f"truth values, and {kind} in {_name(part)!r}",
                )

    def _parts(self) -> list[Any] | None:
        """Return the files, or other parts, of the dataset; None if it is filtered."""
        try:
            return list(self.data.get_fragments())
        except ValueError:
            return None

    def _batches(self, columns: list[str]) -> Iterator[Batch]:
        return self._read(columns, batch_readahead=1, fragment_readahead=1)

    def _read(self, columns: list[str], **options: Any) -> Iterator[Batch]:
        parts = self._parts()
        if parts is None:
            yield from self._read_filtered(columns, options)
            return
        schema = self.data.schema
        for part in parts:
            start = 0
            with reading(_name(part)):
                for rows in part.to_batches(schema, columns, batch_size=BATCH, **options):
                    yield Batch(rows, part, start)
                    start += len(rows)

    def _read_filtered(self, columns: list[str], options: Mapping[str, Any]) -> Iterator[Batch]:
        """Yield batches, whose places in their files are unknown."""
        with reading("a filtered dataset"):
            scanner = self.data.scanner(columns=columns, batch_size=BATCH, **options)
            for found in scanner.scan_batches():
                if len(found.record_batch):
                    self._check_truth(found.fragment, columns)
                    yield Batch(found.record_batch, found.fragment)


class DuckRelation(ArrowTable):
    """A relation of DuckDB, which needn't fit in memory."""

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.columns)

    def _schema(self) -> Any:
        return self.data.limit(0).to_arrow_table().schema

    def _batches(self, columns: list[str]) -> Iterator[Batch]:
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        for rows in self.data.project(quoted).to_arrow_reader(BATCH):
            yield Batch(rows)

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return a reader of the rows with the columns that the task computes."""
        return self._reader(task, fields)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Name what can't be read."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InvalidInputError("data", "be readable", given=f"{name!r} ({reason})") from error


def _name(part: Any) -> str:
    """Return the path of a part of a dataset; parts in memory have none."""
    return str(getattr(part, "path", ""))


def columns_of(part: Any) -> list[str]:
    """Return the columns of a part of a dataset, with those in the names of its folders."""
    from pyarrow.dataset import get_partition_keys

    with reading(_name(part)):
        inside = part.physical_schema.names
    return [*inside, *get_partition_keys(part.partition_expression)]


def _check_part(part: Any, columns: Sequence[str]) -> None:
    known = columns_of(part)
    for name in columns:
        if name not in known:
            raise InvalidInputError(
                "data",
                f"have a column {name!r} in every file",
                given=f"{_name(part)!r} with the columns {known}",
                hint=did_you_mean(name, known),
            )


def _sum(tables: Iterable[pd.DataFrame], every: int = 16) -> pd.DataFrame:
    """Return the sum of many tables, of which few are kept at a time."""
    waiting: list[pd.DataFrame] = []
    for table in tables:
        waiting.append(table)
        if len(waiting) == every:
            waiting = [merge(waiting)]
    return merge(waiting)
