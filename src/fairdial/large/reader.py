"""Read scored rows from Parquet files in batches: scores, weights, and codes of their columns."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

import numpy as np

from fairdial._arrays import EXACT, Codes, Scores, Weights
from fairdial._validation import check_scores, did_you_mean
from fairdial.core.logits import proba_to_logits
from fairdial.errors import InvalidInputError, MissingExtraError, install_command

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1 << 18  # rows: enough to hide the cost of a batch, in a few megabytes
BUFFER = 1 << 20  # bytes of a column that are read at once, for row groups of any length
HIDDEN = (".", "_")  # prefixes of files that are unfinished, or not data
MAX_CODE = 256  # smaller integers are their own codes
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
NUMERIC = ("score", "weight")  # other columns hold values of any type
INTEGER = re.compile("0|-?[1-9][0-9]*")


@dataclass(frozen=True)
class Encoded:
    """Codes of rows, and the values they stand for; some values may have no rows."""

    codes: Codes
    values: Sequence[Hashable]


@dataclass(frozen=True)
class Batch:
    """Some rows with positive weights: scores; groups, strata and labels, and weights."""

    scores: Scores
    columns: dict[str, Encoded]  # those of "group", "control" and "label" that were named
    weights: Weights | None


class ParquetReader:
    """Scored rows in Parquet files, which can be read repeatedly.

    Parameters
    ----------
    path, score, group, label, weight, control, probabilities
        As in :func:`fairdial.calibrate_parquet`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        score: str,
        group: str,
        label: str | None,
        *,
        weight: str | None = None,
        control: str | None = None,
        probabilities: bool = False,
    ) -> None:
        self._arrow = import_pyarrow()
        self._files = find_files(Path(path))
        self._folders = _read_folders(Path(path), self._files)
        optional = {"label": label, "control": control, "weight": weight}
        named = {argument: column for argument, column in optional.items() if column is not None}
        self._columns = {"score": score, "group": group, **named}
        self._probabilities = probabilities
        self._booleans: dict[str, bool] = {}  # whether a column has booleans rather than numbers
        for file in self._files:
            self._check_columns(file)

    def has(self, argument: str) -> bool:
        """Return whether the column of an argument was named."""
        return argument in self._columns

    # ---- columns ---------------------------------------------------------------------------------

    def _schema(self, file: Path) -> pa.Schema:
        try:
            return self._arrow.parquet.read_schema(file)
        except (self._arrow.ArrowException, OSError) as error:
            raise _unreadable(file, error) from error

    def _check_columns(self, file: Path) -> None:
        schema = self._schema(file)
        known = [*schema.names, *(name for name in self._folders[file] if name not in schema.names)]
        for argument, column in self._columns.items():
            if column not in known:
                raise InvalidInputError(
                    argument,
                    f"be one of the columns {known} of {file.name}",
                    given=repr(column),
                    hint=did_you_mean(column, known),
                )
            if argument in NUMERIC:
                self._check_numeric(argument, schema, file)
            else:
                self._check_values(argument, schema, file)

    def _check_numeric(self, argument: str, schema: pa.Schema, file: Path) -> None:
        types, column = self._arrow.types, self._columns[argument]
        kind = schema.field(column).type if column in schema.names else None
        if kind is None or not (
            types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind)
        ):
            raise InvalidInputError(
                argument,
                "be a column of numbers",
                given=f"{column!r} of type {'text' if kind is None else kind} in {file.name}",
            )

    def _check_values(self, argument: str, schema: pa.Schema, file: Path) -> None:
        """Raise on nested values, and on booleans in some files with numbers in others."""
        types, column = self._arrow.types, self._columns[argument]
        if column not in schema.names:
            numeric, boolean = isinstance(self._folders[file][column], int), False
        else:
            kind = schema.field(column).type
            if types.is_dictionary(kind):
                kind = kind.value_type
            if types.is_nested(kind):
                raise InvalidInputError(
                    argument,
                    "be a column of single values",
                    given=f"{column!r} of type {kind} in {file.name}",
                )
            boolean = types.is_boolean(kind)
            numeric = boolean or types.is_integer(kind) or types.is_floating(kind)
        if numeric and self._booleans.setdefault(argument, boolean) != boolean:
            raise InvalidInputError(
                argument,
                "have one type in all files",
                given=f"booleans and numbers in {column!r} "
                f"({'booleans' if boolean else 'numbers'} in {file.name})",
            )

    # ---- batches ---------------------------------------------------------------------------------

    def _record_batches(self) -> Iterator[tuple[pa.RecordBatch, dict[str, Hashable]]]:
        """Yield batches of the columns in the files, with the values in their folders' names."""
        for file in self._files:
            schema, folders = self._schema(file), self._folders[file]
            wanted = dict.fromkeys(self._columns.values())
            inside = [name for name in wanted if name in schema.names]
            texts = [name for name in inside if self._is_text(schema.field(name).type)]
            try:
                with self._arrow.parquet.ParquetFile(
                    file, read_dictionary=texts, buffer_size=BUFFER, pre_buffer=False
                ) as reader:
                    for batch in reader.iter_batches(BATCH, columns=inside, use_threads=False):
                        yield batch, folders
            except (self._arrow.ArrowException, OSError) as error:
                raise _unreadable(file, error) from error

    def _is_text(self, kind: pa.DataType) -> bool:
        types = self._arrow.types
        return bool(types.is_string(kind) or types.is_large_string(kind))

    def batches(self) -> Iterator[Batch]:
        """Yield all rows with a positive weight; raise on missing values."""
        for batch, folders in self._record_batches():
            if any(column.null_count for column in batch.columns):
                self.raise_missing()
            if not len(batch):
                continue
            scores = self._scores(batch.column(self._columns["score"]))
            columns = {
                argument: self._encoded(argument, batch, folders)
                for argument in self._columns
                if argument not in NUMERIC
            }
            weights = self._weights(batch) if self.has("weight") else None
            if weights is None or weights.all():
                yield Batch(scores, columns, weights)
            elif weights.any():
                keep = np.flatnonzero(weights)
                kept = {
                    name: Encoded(column.codes.take(keep), column.values)
                    for name, column in columns.items()
                }
                yield Batch(scores.take(keep), kept, weights.take(keep))

    def _numbers(self, argument: str, column: pa.Array) -> Scores:
        if self._arrow.types.is_decimal(column.type):
            column = column.cast(self._arrow.float64())
        return check_scores(column.to_numpy(zero_copy_only=False), argument, nan=False)

    def _weights(self, batch: pa.RecordBatch) -> Weights:
        """Return weights, which are int64 if they are whole numbers."""
        weights = self._numbers("weight", batch.column(self._columns["weight"]))
        low, high = float(weights.min()), float(weights.max())
        if np.isnan(low):
            self.raise_missing()
        if low < 0 or high == np.inf:
            raise InvalidInputError(
                "weight", "be finite numbers from 0 up", given=f"{low if low < 0 else high:g}"
            )
        whole = high < EXACT and bool((weights == np.floor(weights)).all())
        return weights.astype(np.int64 if whole else np.float64, copy=False)

    def _scores(self, column: pa.Array) -> Scores:
        scores = self._numbers("score", column)
        if self._probabilities:
            if np.isnan(scores.min()):
                self.raise_missing()
            scores = proba_to_logits(scores, "score")
        return scores

    def _encoded(
        self, argument: str, batch: pa.RecordBatch, folders: dict[str, Hashable]
    ) -> Encoded:
        name = self._columns[argument]
        if name in batch.schema.names:
            coded = self._encode(batch.column(name))
        else:
            coded = Encoded(np.zeros(len(batch), np.int8), [folders[name]])
        if any(value is None or value != value for value in coded.values):  # null or NaN
            self.raise_missing()
        return coded

    def _encode(self, column: pa.Array) -> Encoded:
        types = self._arrow.types
        if types.is_boolean(column.type):
            return Encoded(column.cast(self._arrow.uint8()).to_numpy(), [False, True])
        if types.is_integer(column.type):
            values = column.to_numpy()
            if values.min() >= 0 and values.max() < MAX_CODE:
                return Encoded(values, range(int(values.max()) + 1))
        if not types.is_dictionary(column.type):
            column = column.dictionary_encode()
        return Encoded(column.indices.to_numpy(), column.dictionary.to_pylist())

    def raise_missing(self) -> NoReturn:
        """Count the missing values in another pass, and raise."""
        missing, rows = dict.fromkeys(self._columns, 0), 0
        for batch, folders in self._record_batches():
            rows += len(batch)
            for argument, name in self._columns.items():
                if name not in batch.schema.names:
                    missing[argument] += len(batch) if folders[name] is None else 0
                    continue
                column = batch.column(name)
                if self._arrow.types.is_dictionary(column.type):
                    column = column.dictionary_decode()
                null = self._arrow.compute.is_null(column, nan_is_null=True)
                missing[argument] += null.true_count
        found = {argument: count for argument, count in missing.items() if count}
        listed = ", ".join(
            f"{count:,} in column {self._columns[argument]!r}" for argument, count in found.items()
        )
        raise InvalidInputError(
            next(iter(found)),
            "have a value in every row",
            given=f"nulls or NaN among {rows:,} rows: {listed}",
            hint="Drop those rows.",
        )


def _unreadable(file: Path, error: Exception) -> InvalidInputError:
    reason = str(error).strip().rstrip(".")
    return InvalidInputError("path", "be readable Parquet files", given=f"{str(file)!r} ({reason})")


def import_pyarrow() -> Any:
    """Return pyarrow; raise if it isn't installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(f"Parquet needs pyarrow: {install_command('large')}.") from None
    return pyarrow


def find_files(root: Path) -> list[Path]:
    """Return a Parquet file, or those of a folder, sorted by name."""
    if root.is_file():
        return [root]
    found = sorted(file for file in root.rglob("*.parquet") if file.is_file())
    files = [
        file
        for file in found
        if not any(part.startswith(HIDDEN) for part in file.relative_to(root).parts)
    ]
    if not files:
        what = "a folder without any" if root.is_dir() else "which doesn't exist"
        raise InvalidInputError(
            "path",
            "be a Parquet file or a folder of *.parquet files",
            given=f"{str(root)!r}, {what}",
        )
    return files


def _read_folders(root: Path, files: Sequence[Path]) -> dict[Path, dict[str, Hashable]]:
    """Return the columns in the names of each file's folders, as in ``region=north``.

    A column's values are integers if all of them look like integers.
    """
    texts: dict[Path, dict[str, str]] = {file: {} for file in files}
    for file in files if root.is_dir() else ():
        pairs = (part.partition("=") for part in file.relative_to(root).parts[:-1] if "=" in part)
        texts[file] = {unquote(name): unquote(text) for name, _, text in pairs}
    pairs_found = {(name, text) for own in texts.values() for name, text in own.items()}
    non_integer = {
        name for name, text in pairs_found if not INTEGER.fullmatch(text) and text != NO_PARTITION
    }

    def value(name: str, text: str) -> Hashable:
        if text == NO_PARTITION:
            return None
        return text if name in non_integer else int(text)

    return {
        file: {name: value(name, text) for name, text in own.items()} for file, own in texts.items()
    }
