"""Tables of pandas and polars, in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fairdial.large.engines import BATCH, Engine
from fairdial.large.tasks import Task, merge


def adapt(data: Any) -> Engine | None:
    """Return the adapter for a table."""
    if isinstance(data, pd.DataFrame):
        return PandasFrame(data)
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(data, polars.LazyFrame):
        return PolarsLazyFrame(data)
    if polars is not None and isinstance(data, polars.DataFrame):
        return PolarsFrame(data)
    return None


class PandasFrame(Engine):
    """A DataFrame of pandas."""

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.columns)

    def _batches(self, columns: list[str]) -> Iterator[pd.DataFrame]:
        rows = self.data[columns].reset_index(drop=True)
        for start in range(0, max(1, len(rows)), BATCH):
            yield rows[start : start + BATCH]

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> pd.DataFrame:  # noqa: ARG002
        """Return the table with the columns that the task computes."""
        found = pd.concat([task(batch) for batch in self._batches(task.columns)])
        return (
            self.data.join(found.set_axis(self.data.index))
            if self.data.index.is_unique
            else (self.data.assign(**{str(name): found[name].to_numpy() for name in found}))
        )

    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes."""
        return merge(task(batch) for batch in self._batches(task.columns))


class PolarsFrame(Engine):
    """A DataFrame of polars."""

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.columns)

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:  # noqa: ARG002
        """Return the table with the columns that the task computes."""
        import polars

        parts = [part.select(task.columns) for part in self.data.iter_slices(BATCH)]
        found = pd.concat([task(part.to_pandas()) for part in parts or [self.data.clear()]])
        return self.data.hstack(polars.from_pandas(found))

    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes."""
        rows = self.data.select(task.columns)
        return merge(task(part.to_pandas()) for part in rows.iter_slices(BATCH))


class PolarsLazyFrame(Engine):
    """A LazyFrame of polars, which needn't fit in memory."""

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.collect_schema().names())

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return the lazy table with the columns that the task computes."""
        import polars

        kinds = {"b": polars.Boolean, "i": polars.Int64, "u": polars.UInt64, "f": polars.Float64}
        schema = dict(self.data.collect_schema())
        schema |= {name: kinds.get(dtype.kind, polars.String) for name, dtype in fields.items()}

        def run(part: Any) -> Any:
            return (
                PolarsFrame(part).append(task, fields).cast({name: schema[name] for name in fields})
            )

        return self.data.map_batches(run, schema=schema, streamable=True)

    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes."""
        rows = self.data.select(task.columns)
        parts = rows.collect_batches(chunk_size=BATCH, maintain_order=False)
        return merge(task(part.to_pandas()) for part in parts)
