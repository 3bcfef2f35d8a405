"""DataFrames of dask: partitions are decided on and counted by its workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fairdial.large.engines import Engine
from fairdial.large.tasks import Task, merge

FAN_IN = 8  # tables of counts that a worker adds at a time


def adapt(data: Any) -> Engine | None:
    """Return the adapter for a table."""
    from dask.dataframe import DataFrame

    return DaskFrame(data) if isinstance(data, DataFrame) else None


class DaskFrame(Engine):
    """A DataFrame of dask.

    The task, and with it the model, is one value of the graph, so a worker receives it once. If a
    worker dies, dask repeats what was lost.
    """

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return list(self.data.columns)

    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return the lazy table with the columns that the task computes."""
        from dask.delayed import delayed

        empty = {name: pd.Series(np.zeros(0, dtype)) for name, dtype in fields.items()}
        meta = self.data._meta.assign(**{name: each[:0] for name, each in empty.items()})
        shipped = delayed(task, pure=True)
        return self.data.map_partitions(_append, shipped, list(fields), meta=meta)

    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes, added in a tree."""
        from dask.base import compute
        from dask.delayed import delayed

        shipped, add = delayed(task, pure=True), delayed(_add)
        one = delayed(_count)
        parts = [one(part, shipped) for part in self.data[task.columns].to_delayed()]
        while len(parts) > 1:
            parts = [add(parts[start : start + FAN_IN]) for start in range(0, len(parts), FAN_IN)]
        return merge(compute(*parts))  # type: ignore[no-untyped-call]


def _count(part: pd.DataFrame, task: Task) -> pd.DataFrame:
    return task(part.reset_index(drop=True))


def _add(tables: list[pd.DataFrame]) -> pd.DataFrame:
    return merge(tables)


def _append(part: pd.DataFrame, task: Task, names: list[str]) -> pd.DataFrame:
    found = task(part[task.columns].reset_index(drop=True))
    return part.assign(**{name: found[name].set_axis(part.index) for name in names})
