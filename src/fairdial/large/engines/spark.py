"""DataFrames of Spark: its executors decide and count, and its shuffle adds the counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fairdial.large.engines import BATCH, Engine
from fairdial.large.engines.arrow import append_columns, arrow_types
from fairdial.large.tasks import KEYS, SUMS, Task, merge

COUNTS = "cell string, place double, rows long, weight double"


def adapt(data: Any) -> Engine | None:
    """Return the adapter for a table."""
    from pyspark.sql import DataFrame

    return SparkFrame(data) if isinstance(data, DataFrame) else None


class SparkFrame(Engine):
    """A DataFrame of Spark.

    The task, and with it the model, is a broadcast variable, which a Python worker reads once. If
    an executor dies, Spark repeats what was lost.
    """

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.columns)

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return the lazy table with the columns that the task computes."""
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import StructType

        types, shipped = arrow_types(fields), self._ship(task)
        schema = StructType(list(self.data.schema.fields))
        for name, kind in types.items():
            schema = schema.add(name, from_arrow_type(kind))

        def run(batches: Iterable[Any]) -> Iterator[Any]:
            task = shipped.value
            for table in _gather(batches):
                found = task(table.select(task.columns).to_pandas())
                yield from append_columns(table, found, types).to_batches()

        return self.data.mapInArrow(run, schema)

    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes, added by a shuffle."""
        import pyarrow
        from pyspark.sql import functions

        shipped = self._ship(task)

        def run(batches: Iterable[Any]) -> Iterator[Any]:
            task = shipped.value
            found = merge(task(table.to_pandas()) for table in _gather(batches))
            schema = pyarrow.schema(
                {"cell": "string", "place": "float64", "rows": "int64", "weight": "float64"}
            )
            yield from pyarrow.Table.from_pandas(found, schema, preserve_index=False).to_batches()

        rows = self.data.select(*("`" + name.replace("`", "``") + "`" for name in task.columns))
        counts = rows.mapInArrow(run, COUNTS)
        sums = counts.groupBy(*KEYS).agg(*(functions.sum(name).alias(name) for name in SUMS))
        found: pd.DataFrame = sums.toArrow().to_pandas()
        return merge([found.astype({"cell": object})])

    def _ship(self, task: Task) -> Any:
        return self.data.sparkSession.sparkContext.broadcast(task)


def _gather(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield tables of at least ``BATCH`` rows, except the last: Spark's batches are small."""
    import pyarrow

    waiting: list[Any] = []
    for batch in batches:
        if len(batch):
            waiting.append(batch)
        if sum(map(len, waiting)) >= BATCH:
            yield pyarrow.Table.from_batches(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pyarrow.Table.from_batches(waiting).combine_chunks()
