"""Users' tables: CSV and Parquet files, each read once."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fairdial._validation import closest_name
from fairdial.cli.columns import count_rows
from fairdial.cli.options import CsvFormat
from fairdial.cli.output import CSV, PARQUET, is_parquet
from fairdial.errors import (
    FairdialWarning,
    InvalidInputError,
    MissingExtraError,
    install_command,
    warn,
)

DEFAULT_FORMAT = CsvFormat()
EXACT = (3, 1)  # the pandas version from which read_csv is exact to the last bit by default
FIELDS = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")  # pandas on long lines
MISSING = (  # values that mean "missing" in a CSV file; in a group column, only "" does
    "", "NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A", "NaN", "nan", "-NaN", "-nan", "NULL",
    "null", "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
)  # fmt: skip
MOST_COLUMNS = 40  # that an error lists
MOST_LETTERS = 60  # of a first line that an error quotes
LEAST_SWALLOWED = 4  # separators in a value that may be whole lines; fewer occur in addresses
SEPARATOR_NAMES = {"\t": "tab"}  # as --separator takes them
SEPARATORS = (",", ";", "\t", "|")
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
WORD_BREAKS = re.compile(r"[\W_]+")


class Table(NamedTuple):
    """A user's table.

    Attributes
    ----------
    rows : DataFrame
        All columns, with the types that they look like.
    verbatim : DataFrame
        The columns that were asked for as they are written: text, if the file is CSV.
    """

    rows: pd.DataFrame
    verbatim: pd.DataFrame


def read_table(
    path: Path,
    csv_format: CsvFormat = DEFAULT_FORMAT,
    *,
    texts: Collection[str] = (),
    groups: Sequence[str] = (),
    verbatim: Sequence[str] = (),
    typed: Collection[str] = (),
) -> Table:
    """Read a CSV or Parquet file.

    Parameters
    ----------
    path : Path
        The file.
    csv_format : CsvFormat
        How it is written.
    texts : collection of str
        Columns that are text, whatever they look like.
    groups : sequence of str
        Columns as :func:`split_names` takes them in which "NA" is a name like any other, and only
        an empty value is missing.
    verbatim : sequence of str
        Columns as :func:`split_names` takes them that are also returned as they are written;
        those that the file doesn't have are ignored.
    typed : collection of str
        Columns whose types are needed; verbatim columns that aren't among them are read as text.
    """
    check_data_path(path)
    if is_parquet(path) and csv_format != DEFAULT_FORMAT:
        given = next(name for name, value in csv_format._asdict().items() if value is not None)
        raise InvalidInputError(given, "be used with a CSV file", given=repr(path.name))
    try:
        if is_parquet(path):
            found = _read_parquet(path, verbatim)
        else:
            found = _read_csv(path, csv_format, texts, groups, verbatim, typed)
    except ImportError as error:
        raise MissingExtraError(
            f"{path.name} needs pyarrow: {install_command('large')}."
        ) from error
    except InvalidInputError:
        raise
    except (ValueError, OSError, EOFError, zlib.error, csv.Error) as error:
        raise _unreadable(path, *_explain(error, csv_format)) from error
    if len(found.rows) == 0:
        raise InvalidInputError("data", "have at least one row", given=f"{path} without any")
    return found


def check_data_path(path: Path) -> None:
    """Refuse a file that is neither CSV nor Parquet, by its name."""
    name = path.name.lower()
    if not name.endswith((*CSV, *PARQUET)):
        sheet = name.endswith(SPREADSHEETS)
        raise InvalidInputError(
            "data",
            f"end in {', '.join((*CSV, *PARQUET))}",
            given=repr(path.name),
            hint="Export the sheet as CSV (UTF-8) or Parquet." if sheet else (),
        )


def _read_parquet(path: Path, verbatim: Sequence[str]) -> Table:
    rows = pd.read_parquet(path)
    rows.columns = [str(name) for name in rows.columns]
    if not rows.columns.is_unique:
        raise _duplicate(rows.columns[rows.columns.duplicated()][0])
    names = [name for name in split_names(verbatim, rows.columns) if name in rows]
    kept = pd.DataFrame(index=pd.RangeIndex(len(rows)))
    if names:  # whole numbers stay whole where one is missing
        kept = pd.read_parquet(path, columns=names, dtype_backend="numpy_nullable")
    return Table(rows.reset_index(drop=True), kept.reset_index(drop=True))


def _read_csv(
    path: Path,
    csv_format: CsvFormat,
    texts: Collection[str],
    groups: Sequence[str],
    verbatim: Sequence[str],
    typed: Collection[str],
) -> Table:
    data = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        data = gzip.decompress(data)
    separator, encoding = csv_format.separator or ",", csv_format.encoding or "utf-8"

    def parse(**options: object) -> pd.DataFrame:
        return pd.read_csv(io.BytesIO(data), sep=separator, encoding=encoding, **options)

    _check_header(parse(header=None, nrows=2, dtype="str").iloc[0].dropna(), path, separator)
    columns = parse(nrows=0).columns
    names = [name for name in split_names(verbatim, columns) if name in columns]
    as_written = [name for name in names if name not in typed]
    named = split_names(groups, columns)
    missing = {name: [""] if name in named else list(MISSING) for name in columns}
    missing |= {name: [] for name in as_written}
    rows = parse(
        low_memory=False,
        dtype=dict.fromkeys([*texts, *as_written], "str"),
        decimal=csv_format.decimal or ".",
        keep_default_na=False,
        na_values=missing,
        **({} if _version(pd.__version__) >= EXACT else {"float_precision": "round_trip"}),
    )
    one_line_each = data.rstrip().count(b"\n") == len(rows)
    if not one_line_each or rows.iloc[:, -1].isin(["", np.nan]).any():
        _check_lines(data, path, separator, encoding, len(columns))
    kept = rows[as_written]
    if len(as_written) < len(names):  # needed twice: with its type, and as written
        again = [name for name in names if name in typed]
        kept = kept.join(parse(usecols=again, dtype="str", keep_default_na=False))
    return Table(rows, kept[names])


def _check_header(names: pd.Series, path: Path, separator: str) -> None:
    """Refuse names that occur twice, which pandas would rename, and another separator."""
    if names.duplicated().any():
        raise _duplicate(names[names.duplicated()].iloc[0])
    line = str(names.iloc[0])
    other = [s for s in SEPARATORS if len(names) == 1 and s != separator and s in line]
    if other:
        shown = line if len(line) <= MOST_LETTERS else line[:MOST_LETTERS] + "..."
        option = SEPARATOR_NAMES.get(other[0], other[0])
        raise InvalidInputError(
            "data",
            f"have {separator!r} between its columns",
            given=f"one column {shown!r} in {path}",
            hint=f"If the separator is {other[0]!r}, use `separator={option}` (and `decimal=,` for "
            "decimal commas).",
        )


def _check_lines(data: bytes, path: Path, separator: str, encoding: str, width: int) -> None:
    """Refuse short lines, which pandas fills up, and lines that a stray quote makes one value."""
    spanning: list[int] = []
    with io.TextIOWrapper(io.BytesIO(data), encoding=encoding, newline="") as file:
        reader, line = csv.reader(file, delimiter=separator), 1
        for values in reader:
            first, line = line, reader.line_num + 1
            blank = not values or (len(values) == 1 and not values[0].strip())
            if len(values) < width and not blank:
                last = not file.read().strip()
                raise _unreadable(
                    path,
                    f"{'the last line' if last else f'line {first}'} has {len(values)} values, the "
                    f"first one {width}" + ("; the file seems to be cut off" if last else ""),
                    "Empty values at the end of a line need their separators, too.",
                )
            if line - first == 1:
                continue
            spanning.append(first)
            for value in values:
                swallowed = len(value.splitlines()) - 1
                seen = value.count(separator)
                if seen == swallowed * (width - 1) and seen >= LEAST_SWALLOWED:
                    raise _unreadable(
                        path,
                        f"a value that begins in line {first} holds {swallowed + 1} lines of "
                        f"{width} values each",
                        "Is a quotation mark in it not closed?",
                    )
    if spanning:
        warn(
            f"{path.name} has line breaks within values of {count_rows(len(spanning))} (first: "
            f"line {spanning[0]:,}); if that isn't intended, a quotation mark is missing there",
            FairdialWarning,
        )


def _unreadable(path: Path, reason: str, hint: str = "") -> InvalidInputError:
    return InvalidInputError("data", "be a readable table", given=f"{path}: {reason}", hint=hint)


def _duplicate(name: str) -> InvalidInputError:
    return InvalidInputError("data", "name each column once", given=f"{name!r} twice")


def _explain(error: Exception, csv_format: CsvFormat) -> tuple[str, str]:
    """Return why a file can't be read, and a hint."""
    if isinstance(error, pd.errors.EmptyDataError):
        return "the file is empty", "Its first line must name the columns."
    if isinstance(error, UnicodeError):
        return (
            f"it isn't {csv_format.encoding or 'UTF-8'} text",
            "If it is a CSV file, `encoding` sets its encoding.",
        )
    if isinstance(error, EOFError):
        return "the compressed data end too early; the file seems to be cut off", ""
    if isinstance(error, zlib.error):
        return "the compressed data are damaged", ""
    message = str(error).strip() or type(error).__name__
    if isinstance(error, pd.errors.ParserError):
        fields = FIELDS.search(message)
        if fields is None:
            return "it isn't a CSV file", ""
        expected, line, found = map(int, fields.groups())
        hint = "Is there a separator at the end of that line?" if found - expected == 1 else ""
        return f"line {line} has {found} values, the lines before it {expected}", hint
    return message.splitlines()[0].removesuffix("."), ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


# ---- columns -----------------------------------------------------------------------------------


def split_names(given: Sequence[str], columns: Collection[str]) -> list[str]:
    """Return names of columns given one by one or with commas; a name may contain a comma."""
    names: list[str] = []
    for text in given:
        names += [text] if text in columns else [part.strip() for part in text.split(",")]
    return list(dict.fromkeys(names))


def require_columns(table: pd.DataFrame, names: Iterable[str], argument: str) -> None:
    """Refuse columns that the table doesn't have; the error suggests the closest."""
    columns = [str(column) for column in table.columns]
    listed = ", ".join(map(repr, columns[:MOST_COLUMNS]))
    if len(columns) > MOST_COLUMNS:
        listed += f" and {len(columns) - MOST_COLUMNS} more"
    for name in names:
        if name in columns:
            continue
        close = _closest_column(name, columns)
        if argument == "data":
            hint = "" if close is None else f"Is it called {close!r} there?"
            raise InvalidInputError(
                "data", f"have a column {name!r}", given=f"the columns {listed}", hint=hint
            )
        hint = "" if close is None else f"Did you mean {close!r}?"
        raise InvalidInputError(argument, f"be one of {listed}", given=repr(name), hint=hint)


def _closest_column(name: str, columns: Sequence[str]) -> str | None:
    """Return a column with nearly this name, or the only one that has it as a word."""
    close = closest_name(name, columns)
    if close is None:
        word = name.strip().lower()
        having = [column for column in columns if word in WORD_BREAKS.split(column.lower())]
        close = having[0] if len(having) == 1 else None
    return close
