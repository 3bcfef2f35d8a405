"""Folders of Parquet files, read and written batch by batch: they may be larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from fairdial._files import replacing
from fairdial.errors import InvalidInputError
from fairdial.large.engines import BATCH
from fairdial.large.engines.arrow import (
    ArrowDataset,
    Batch,
    append_columns,
    arrow_types,
    columns_of,
    reading,
)
from fairdial.large.reader import find_files, import_pyarrow
from fairdial.large.tasks import DECISION, Decide
from fairdial.progress import Reporter, Silent


class ParquetFolder(ArrowDataset):
    """A folder of Parquet files, in the order of their names.

    Parameters
    ----------
    path : path
        As in :func:`fairdial.calibrate_parquet`.
    report : callable
        Gets the number of batches and returns what hears of each.
    """

    def __init__(self, path: Path, report: Callable[[int], Reporter] = lambda _: Silent()) -> None:
        import_pyarrow()
        import pyarrow.dataset

        kind = pyarrow.dataset.ParquetFileFormat(pre_buffer=False, use_buffered_stream=True)
        files = [str(file) for file in find_files(path)]
        self.path, self._report = path, report
        with reading(str(path)):
            found = pyarrow.dataset.dataset(
                files, format=kind, partitioning="hive", partition_base_dir=str(path)
            )
        super().__init__(found)

    @property
    def n_batches(self) -> int:
        """Number of batches that are read."""
        sizes = (group.num_rows for part in self.data.get_fragments() for group in part.row_groups)
        return sum(-(-size // BATCH) for size in sizes)

    @property
    def columns_anywhere(self) -> set[str]:
        """Names of the columns that at least one file has."""
        return {name for part in self.data.get_fragments() for name in columns_of(part)}

    def _batches(self, columns: list[str]) -> Iterator[Batch]:
        with self._report(self.n_batches) as reporter:
            for batch in self._read(
                columns, batch_readahead=0, fragment_readahead=0, use_threads=False
            ):
                yield batch
                reporter.advance({})

    def write_decisions(self, task: Decide, path: Path, keep: Sequence[str]) -> list[int]:
        """Write a Parquet file with decisions beside some columns; return rows by class.

        The file appears when it is complete. Groups have the names that the model knows.
        """
        import pyarrow
        import pyarrow.parquet

        columns, types = list(dict.fromkeys([*keep, *task.columns])), arrow_types(task.fields)
        self.check_files(columns)
        renamed, groups = _renamed(task, keep), list(task.reader.groups)
        schema = pyarrow.schema([self.data.schema.field(name) for name in keep])
        for name in renamed:
            place = schema.get_field_index(name)
            schema = schema.set(place, pyarrow.field(name, pyarrow.string()))
        for name, kind in types.items():
            schema = schema.append(pyarrow.field(name, kind))
        n_rows, n_positive = 0, 0
        positive = task.reader.model.classes_[1]
        with replacing(path) as part:
            with pyarrow.parquet.ParquetWriter(part.name, schema) as file:
                for batch in self._batches(columns):
                    found, kept = batch.apply(task), batch.rows.select(list(keep))
                    names = task.reader.name_groups(batch.rows.select(groups).to_pandas())
                    for name in renamed:
                        values = pyarrow.array(names[name].to_numpy(object), pyarrow.string())
                        kept = kept.set_column(kept.schema.get_field_index(name), name, values)
                    file.write_batch(append_columns(kept, found, types).cast(schema))
                    n_rows += len(batch.rows)
                    n_positive += int(np.count_nonzero(found[DECISION].to_numpy() == positive))
            if not n_rows:
                raise InvalidInputError("data", "have at least one row", given="none")
        return [n_rows - n_positive, n_positive]


def _renamed(task: Decide, keep: Sequence[str]) -> list[str]:
    """Return the kept columns whose groups have other names in the model."""
    training = getattr(task.reader.model, "training_", {})
    changed = training.get("missing_group") is not None or "merged_groups" in training
    return [name for name in keep if changed and name in task.reader.groups]
