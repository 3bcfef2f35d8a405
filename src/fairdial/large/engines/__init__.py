"""Adapters of the engines whose tables we decide on, calibrate on and evaluate on.

An adapter does two things: it appends columns that a task computes from batches of rows, and it
sums tables of counts that a task makes of batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from fairdial.errors import InvalidInputError
from fairdial.large.tasks import Task

BATCH = 1 << 17  # rows: enough to hide the cost of a batch
ADAPTERS = {  # modules by the first part of the name of a table's module
    "pandas": "local",
    "polars": "local",
    "pyarrow": "arrow",
    "duckdb": "arrow",
    "_duckdb": "arrow",
    "dask": "dask",
    "pyspark": "spark",
    "ray": "ray",
}


class Engine(ABC):
    """A table of an engine.

    Parameters
    ----------
    data : table
        A table of the engine's own type.
    """

    def __init__(self, data: Any) -> None:
        self.data = data

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """Names of the table's columns."""

    @abstractmethod
    def append(self, task: Task, fields: Mapping[str, np.dtype[Any]]) -> Any:
        """Return the table with the columns that the task computes."""

    @abstractmethod
    def count(self, task: Task) -> pd.DataFrame:
        """Return the sum of the tables of counts that the task makes."""


def find_engine(data: Any) -> Engine:
    """Return the adapter for a table, or what is one; raise if there is none for its type."""
    if isinstance(data, Engine):
        return data
    for kind in type(data).__mro__:
        home = ADAPTERS.get(kind.__module__.partition(".")[0])
        if home is not None:
            adapter = import_module(f"fairdial.large.engines.{home}").adapt(data)
            if adapter is not None:
                assert isinstance(adapter, Engine)
                return adapter
    raise InvalidInputError(
        "data",
        "be a table of pandas, polars, pyarrow, DuckDB, dask, Spark or Ray",
        given=type(data).__name__,
    )
