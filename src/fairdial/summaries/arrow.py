"""Scored rows in Parquet files, batch by batch: scores, and codes of groups and labels."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from fairdial._validation import check_scores
from fairdial.errors import InvalidInputError, MissingExtraError, say_install
from fairdial.ladders import Scores
from fairdial.scorers import proba_to_logits

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1 << 18  # rows: as many as hide what a batch costs, and a few megabytes
BUFFER = 1 << 20  # bytes of a column that are read at once, however long its row group is
HIDDEN = (".", "_")  # how names of files begin that are not finished, or not data
SMALL = 256  # whole numbers below are their own codes
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
WHOLE = re.compile("0|-?[1-9][0-9]*")


@dataclass(frozen=True)
class Coded:
    """Rows as codes of values; there may be values that no row has."""

    codes: NDArray[np.integer[Any]]
    values: Sequence[Hashable]


@dataclass(frozen=True)
class Piece:
    """Some rows: scores, groups, and labels if there are any."""

    scores: Scores
    groups: Coded
    labels: Coded | None


class ParquetReader:
    """Scored rows in Parquet files, to be gone through as often as one likes.

    Parameters
    ----------
    path, score, group, label, probabilities
        As in :func:`fairdial.calibrate_parquet`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        score: str,
        group: str,
        label: str | None,
        *,
        probabilities: bool = False,
    ) -> None:
        self._arrow = _pyarrow()
        self._files = _find_files(Path(path))
        self._folders = _read_folders(Path(path), self._files)
        self._columns = {"score": score, "group": group}
        self.labelled = label is not None
        if label is not None:
            self._columns["label"] = label
        self._probabilities = probabilities
        self._booleans: dict[str, bool] = {}  # of columns of booleans or numbers, which they are
        for file in self._files:
            self._check_columns(file)

    # ---- what there is to read -------------------------------------------------------------------

    def _schema(self, file: Path) -> pa.Schema:
        try:
            return self._arrow.parquet.read_schema(file)
        except (self._arrow.ArrowException, OSError) as error:
            raise _unreadable(file, error) from error

    def _check_columns(self, file: Path) -> None:
        schema = self._schema(file)
        there = [*schema.names, *(name for name in self._folders[file] if name not in schema.names)]
        for argument, column in self._columns.items():
            if column not in there:
                raise InvalidInputError(
                    f"`{argument}` must be one of the columns {there} of {file.name}, got "
                    f"{column!r}."
                )
            if argument != "score":
                self._check_values(argument, schema, file)
        types, column = self._arrow.types, self._columns["score"]
        kind = schema.field(column).type if column in schema.names else None
        if kind is None or not (
            types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind)
        ):
            raise InvalidInputError(
                f"`score` must be a column of numbers, got {column!r} of type "
                f"{'text' if kind is None else kind} in {file.name}."
            )

    def _check_values(self, argument: str, schema: pa.Schema, file: Path) -> None:
        """One value a row, and none that equals another file's without being the same."""
        types, column = self._arrow.types, self._columns[argument]
        if column not in schema.names:
            numeric, boolean = isinstance(self._folders[file][column], int), False
        else:
            kind = schema.field(column).type
            if types.is_dictionary(kind):
                kind = kind.value_type
            if types.is_nested(kind):
                raise InvalidInputError(
                    f"`{argument}` must be a column of single values, got {column!r} of type "
                    f"{kind} in {file.name}."
                )
            boolean = types.is_boolean(kind)
            numeric = boolean or types.is_integer(kind) or types.is_floating(kind)
        if numeric and self._booleans.setdefault(argument, boolean) != boolean:
            raise InvalidInputError(
                f"`{argument}` must be of one type in all files, got booleans and numbers in "
                f"{column!r} (in {file.name} {'booleans' if boolean else 'numbers'})."
            )

    # ---- batches ---------------------------------------------------------------------------------

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, dict[str, Hashable]]]:
        """Batches of the columns that a file holds, with the values that its folders name."""
        for file in self._files:
            schema, folders = self._schema(file), self._folders[file]
            wanted = dict.fromkeys(self._columns.values())
            inside = [name for name in wanted if name in schema.names]
            words = [name for name in inside if self._is_text(schema.field(name).type)]
            try:
                with self._arrow.parquet.ParquetFile(
                    file, read_dictionary=words, buffer_size=BUFFER, pre_buffer=False
                ) as reader:
                    for batch in reader.iter_batches(BATCH, columns=inside, use_threads=False):
                        yield batch, folders
            except (self._arrow.ArrowException, OSError) as error:
                raise _unreadable(file, error) from error

    def _is_text(self, kind: pa.DataType) -> bool:
        types = self._arrow.types
        return bool(types.is_string(kind) or types.is_large_string(kind))

    def pieces(self) -> Iterator[Piece]:
        """All rows, none of which lacks anything, piece by piece."""
        for batch, folders in self._batches():
            if any(column.null_count for column in batch.columns):
                self.refuse_missing()
            if len(batch):
                scores = self._scores(batch.column(self._columns["score"]))
                groups = self._coded("group", batch, folders)
                labels = self._coded("label", batch, folders) if self.labelled else None
                yield Piece(scores, groups, labels)

    def _scores(self, column: pa.Array) -> Scores:
        if self._arrow.types.is_decimal(column.type):
            column = column.cast(self._arrow.float64())
        scores = check_scores(column.to_numpy(zero_copy_only=False), "score", nan=False)
        if self._probabilities:
            if np.isnan(scores.min()):
                self.refuse_missing()
            scores = proba_to_logits(scores, "score")
        return scores

    def _coded(self, argument: str, batch: pa.RecordBatch, folders: dict[str, Hashable]) -> Coded:
        name = self._columns[argument]
        if name in batch.schema.names:
            coded = self._encode(batch.column(name))
        else:
            coded = Coded(np.zeros(len(batch), np.int8), [folders[name]])
        if any(value is None or value != value for value in coded.values):
            self.refuse_missing()
        return coded

    def _encode(self, column: pa.Array) -> Coded:
        types = self._arrow.types
        if types.is_boolean(column.type):
            return Coded(column.cast(self._arrow.uint8()).to_numpy(), [False, True])
        if types.is_integer(column.type):
            values = column.to_numpy()
            if values.min() >= 0 and values.max() < SMALL:
                return Coded(values, range(int(values.max()) + 1))
        if not types.is_dictionary(column.type):
            column = column.dictionary_encode()
        return Coded(column.indices.to_numpy(), column.dictionary.to_pylist())

    def refuse_missing(self) -> NoReturn:
        """Count what is missing, in a pass of its own, and say so."""
        missing, rows = dict.fromkeys(self._columns, 0), 0
        for batch, folders in self._batches():
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
        bad = ", ".join(
            f"`{argument}` {count:,} (column {self._columns[argument]!r})"
            for argument, count in missing.items()
            if count
        )
        raise InvalidInputError(
            f"every row must have a score, a group and a label where one is named, got nulls or "
            f"NaN among {rows:,} rows: {bad}. Leave those rows out."
        )


def _unreadable(file: Path, error: Exception) -> InvalidInputError:
    told = str(error).strip().rstrip(".")
    return InvalidInputError(f"`path` must hold Parquet files, got {str(file)!r}: {told}.")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(f"Parquet needs pyarrow: {say_install('large')}.") from None
    return pyarrow


def _find_files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    found = sorted(file for file in root.rglob("*.parquet") if file.is_file())
    files = [
        file
        for file in found
        if not any(part.startswith(HIDDEN) for part in file.relative_to(root).parts)
    ]
    if not files:
        what = "a folder without any" if root.is_dir() else "nothing there"
        raise InvalidInputError(
            f"`path` must be a Parquet file or a folder of *.parquet files, got {str(root)!r}: "
            f"{what}."
        )
    return files


def _read_folders(root: Path, files: Sequence[Path]) -> dict[Path, dict[str, Hashable]]:
    """For each file the columns that stand in the names of its folders, as in ``region=north``.

    They are whole numbers if all of them are written like some.
    """
    words: dict[Path, dict[str, str]] = {file: {} for file in files}
    for file in files if root.is_dir() else ():
        pairs = (part.partition("=") for part in file.relative_to(root).parts[:-1] if "=" in part)
        words[file] = {unquote(name): unquote(text) for name, _, text in pairs}
    texts = {(name, text) for own in words.values() for name, text in own.items()}
    others = {name for name, text in texts if not WHOLE.fullmatch(text) and text != NO_PARTITION}

    def value(name: str, text: str) -> Hashable:
        if text == NO_PARTITION:
            return None
        return text if name in others else int(text)

    return {
        file: {name: value(name, text) for name, text in own.items()} for file, own in words.items()
    }
