"""Tables of users: read, looked at, brought into the form that a model knows, written."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import shlex
import sys
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from uuid import uuid4

import numpy as np
import pandas as pd
from pandas.api import types

from fairdial._validation import nearest
from fairdial.cli.options import Form
from fairdial.errors import InvalidInputError, MissingExtraError, say_install

CSV, PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")
SHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
EXACT = (3, 1)  # the pandas from which on numbers are read to the last bit by default
MOST_NAMED = 40  # columns that an error lists
MOST_SHOWN = 60  # letters of a name that may be a whole line
SEPARATORS = (",", ";", "\t", "|")
NAMES = {"\t": "tab"}  # of separators, as --separator takes them
USUAL = Form()
MISSING = (  # in a CSV file; of columns that tell the group, only what is empty
    "", "NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A", "NaN", "nan", "-NaN", "-nan", "NULL",
    "null", "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
)  # fmt: skip
MOST_LINES = 1000  # that a quoted value is thought to have
MOST_LOOKED_AT = 100  # values, before a column is taken for one of dates
DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d{2}))([ T].*)?")
MONEY = r"[$€£¥]|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|BRL|SEK|NOK|DKK|PLN"
UNIT = r"[%°€$£¥]|[A-Za-zµ]{1,8}[.²³]?(?:/[A-Za-z]{1,8})?"
AMOUNT = re.compile(rf"[-+]?(?:{MONEY})?\s*[-+]?\d+(?:[.,'\s]\d+)*\s*({UNIT})?")
FEW_UNITS = 5  # more than that are parts of names
FEW_AMOUNTS = 10  # so few different ones may be categories
MOSTLY = 0.9
MANY_TEXTS = 1000  # different ones; boosting tells 254 of them apart
FEW_TEXTS = 20  # so few different ones may be all different by chance
WORDS = re.compile(r"[\W_]+")  # what parts the words of a column's name
FIELDS = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


# ---- reading -----------------------------------------------------------------------------------


def read_table(
    path: Path, texts: Collection[str] = (), form: Form = USUAL, named: Sequence[str] = ()
) -> pd.DataFrame:
    """A CSV or Parquet file.

    ``texts`` are columns that are text, whatever they look like. In the columns ``named``, given as
    ``split_names`` takes them, "NA" is a name like any other, and only what is empty is missing.
    """
    kind = _kind(path, "DATA")
    if kind is PARQUET and form != USUAL:
        given = next(name for name, value in form._asdict().items() if value is not None)
        raise InvalidInputError(f"--{given} is for CSV files, got {path.name!r}.")
    try:
        found = pd.read_parquet(path) if kind is PARQUET else _read_csv(path, texts, form, named)
    except ImportError as error:
        raise MissingExtraError(f"{path.name} needs pyarrow: {say_install('large')}.") from error
    except InvalidInputError:
        raise
    except (ValueError, OSError, EOFError, zlib.error, csv.Error) as error:
        raise InvalidInputError(f"{path} can't be read: {_why(error, form)}") from error
    if len(found) == 0:
        raise InvalidInputError(f"{path} must hold at least one row, got a table without any.")
    found.columns = [str(name) for name in found.columns]
    if not found.columns.is_unique:
        twice = found.columns[found.columns.duplicated()][0]
        raise InvalidInputError(f"{path} must name each column once, got {twice!r} twice.")
    return found.reset_index(drop=True)


def _read_csv(path: Path, texts: Collection[str], form: Form, named: Sequence[str]) -> pd.DataFrame:
    usual = _usual(form)
    _check_beginning(path, usual)
    there = pd.read_csv(path, nrows=0, **usual).columns
    names = split_names(named, there)
    exact = {} if _version(pd) >= EXACT else {"float_precision": "round_trip"}
    found = pd.read_csv(
        path,
        low_memory=False,
        dtype=dict.fromkeys(texts, "str"),
        decimal=form.decimal or ".",
        keep_default_na=False,
        na_values={name: [""] if name in names else list(MISSING) for name in there},
        **usual,
        **exact,
    )
    if len(there) > 1 and len(found) and pd.isna(found.iat[-1, -1]):
        _check_end(path, usual, len(there))
    return found


def read_as_written(path: Path, names: Sequence[str], form: Form = USUAL) -> pd.DataFrame:
    """Columns of a file that ``read_table`` has read, to the letter: those of CSV are texts."""
    if is_parquet(path):
        found = pd.read_parquet(path, columns=list(names), dtype_backend="numpy_nullable")
        return found.reset_index(drop=True)
    usual = _usual(form)
    return pd.read_csv(path, usecols=list(names), dtype="str", keep_default_na=False, **usual)[
        list(names)
    ]


def _usual(form: Form) -> dict[str, str]:
    return {"sep": form.separator or ",", "encoding": form.encoding or "utf-8"}


def _check_beginning(path: Path, usual: dict[str, str]) -> None:
    """A CSV file's line of names, and the next one, which must not have more values.

    Pandas would rename a name that comes twice, and take what is too much for names of the rows.
    """
    names = pd.read_csv(path, header=None, nrows=2, dtype="str", **usual).iloc[0].dropna()
    if names.duplicated().any():
        twice = names[names.duplicated()].iloc[0]
        raise InvalidInputError(f"{path} must name each column once, got {twice!r} twice.")
    sign, alone = usual["sep"], len(names) == 1
    other = [s for s in SEPARATORS if alone and s != sign and s in names.iloc[0]]
    if other:
        shown = names.iloc[0]
        shown = shown if len(shown) <= MOST_SHOWN else shown[:MOST_SHOWN] + "..."
        raise InvalidInputError(
            f"{path} must have {'commas' if sign == ',' else repr(sign)} between its columns, got "
            f"one column {shown!r}: is the separator {other[0]!r}? --separator "
            f"{shlex.quote(NAMES.get(other[0], other[0]))} reads it (and --decimal , numbers with "
            "commas)."
        )


def _check_end(path: Path, usual: dict[str, str], width: int) -> None:
    """A CSV file's last line, which must not have fewer values: pandas would fill it up."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding=usual["encoding"], newline="") as file:
        lines = deque((x for x in file if x.strip() or usual["sep"] in x), maxlen=MOST_LINES)
    last = lines.pop()
    while lines and last.count('"') % 2:  # it begins within a quoted value
        last = lines.pop() + last
    *_, values = csv.reader(io.StringIO(last, newline=""), delimiter=usual["sep"])
    if len(values) < width:
        raise InvalidInputError(
            f"{path} must have {width} values in its last line, as names in its first, got "
            f"{len(values)}: it seems to be cut off. If values at the end of the line were left "
            "out because they are empty, the separators must stay."
        )


def _why(error: Exception, form: Form) -> str:
    """Why a file can't be read, in words that its owner can use."""
    told = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, pd.errors.EmptyDataError):
        return "it is empty, and must have a line of names and a line for each row."
    if isinstance(error, UnicodeError):
        given = form.encoding or "UTF-8"
        return f"it isn't text in {given}. If it is a CSV file, --encoding names its encoding."
    if isinstance(error, EOFError):
        return "it is compressed, and ends too early: it seems to be cut off."
    if isinstance(error, zlib.error):
        return "it is compressed, and damaged."
    if isinstance(error, pd.errors.ParserError):
        fields = FIELDS.search(told)
        if fields is None:
            return "it isn't a CSV file."
        one = int(fields[3]) - int(fields[1]) == 1
        more = " Is there a separator at its end?" if one else ""
        return f"line {fields[2]} has {fields[3]} values, and those before have {fields[1]}.{more}"
    return told


def _version(library: ModuleType) -> tuple[int, ...]:
    return tuple(int(part) for part in library.__version__.split(".")[:2])


def _kind(path: Path, argument: str) -> tuple[str, ...]:
    name = path.name.lower()
    for kind in (CSV, PARQUET):
        if name.endswith(kind):
            return kind
    sheet = path.name.lower().endswith(SHEETS) and argument == "DATA"
    told = " Export the sheet as CSV (in UTF-8) or Parquet." if sheet else ""
    raise InvalidInputError(
        f"{argument} must end in {', '.join((*CSV, *PARQUET))}, got {path.name!r}.{told}"
    )


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return path.name.lower().endswith(PARQUET)


def need_columns(table: pd.DataFrame, names: Iterable[str], argument: str) -> None:
    """Columns that must be there; the error lists those that are, and the nearest."""
    there = [str(column) for column in table.columns]
    listed = ", ".join(map(repr, there[:MOST_NAMED]))
    listed += f" and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else ""
    for name in names:
        if name in there:
            continue
        if argument == "DATA":
            near = _column_meant(name, there)
            told = f" Is it {near!r} there?" if near is not None else ""
            raise InvalidInputError(f"DATA must have the column {name!r}; it has {listed}.{told}")
        near = _column_meant(name, there)
        told = "" if near is None else f" Did you mean {near!r}?"
        raise InvalidInputError(
            f"{argument} must be among the columns {listed}; got {name!r}.{told}"
        )


def _column_meant(name: str, there: Sequence[str]) -> str | None:
    """The column that was probably meant: nearly so called, or the only one with it as a word."""
    near = nearest(name, there)
    if near is None:
        word = name.strip().lower()
        having = [column for column in there if word in WORDS.split(column.lower())]
        near = having[0] if len(having) == 1 else None
    return near


def row_name(place: int) -> str:
    """A row as people count: from 1, without the line of names."""
    return f"data row {place + 1:,}"


def looks_like_dates(column: pd.Series) -> bool:
    """Whether a column of texts looks like one of dates, by some of its values."""
    if column.dtype != object:
        return False
    seen = column.dropna().drop_duplicates().head(MOST_LOOKED_AT)
    return len(seen) > 0 and all(DATE.fullmatch(str(value).strip()) for value in seen)


def find_amount(column: pd.Series) -> str | None:
    """A value of a column of texts, most of which are numbers with a unit or commas; else None."""
    if column.dtype != object:
        return None
    seen = column.dropna().drop_duplicates()
    shown = [str(value).strip() for value in seen.head(MOST_LOOKED_AT)]
    found = [AMOUNT.fullmatch(text) for text in shown]
    amounts = [one for one in found if one is not None]
    units = {one[1] for one in amounts}
    if len(seen) <= FEW_AMOUNTS or len(amounts) < MOSTLY * len(shown) or len(units) > FEW_UNITS:
        return None
    others = seen[pd.to_numeric(seen, errors="coerce").isna()]
    return None if others.empty else str(others.iloc[0])  # digits may be codes in a Parquet file


def looks_like_prose(column: pd.Series) -> bool:
    """Whether a column of texts has so many different ones that they are hardly categories."""
    if column.dtype != object:
        return False
    many, known = column.nunique(), column.count()
    return bool(many > MANY_TEXTS or (many > FEW_TEXTS and 2 * many > known))


# ---- columns -----------------------------------------------------------------------------------


def tidy(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers as numpy's numbers, everything else as text with None for what is missing."""
    return pd.DataFrame({name: _tidy_column(table[name]) for name in table}, index=table.index)


def _tidy_column(column: pd.Series) -> pd.Series:
    if types.is_bool_dtype(column.dtype) or types.is_numeric_dtype(column.dtype):
        return _finite(_plain_numbers(column))
    if types.is_datetime64_any_dtype(column.dtype) or types.is_timedelta64_dtype(column.dtype):
        raise InvalidInputError(
            f"{column.name!r} holds dates or durations: turn them into numbers first, or leave the "
            f"column out (--drop {column.name})."
        )
    kind = types.infer_dtype(column, skipna=True)
    if kind in ("boolean", "decimal", "integer", "floating", "mixed-integer-float"):
        return _finite(column.astype("float64"))
    return as_text(column)


def _plain_numbers(column: pd.Series) -> pd.Series:
    """Numbers and truth values in a type of numpy's."""
    kind = column.dtype.kind
    if isinstance(column.dtype, pd.api.extensions.ExtensionDtype):
        whole = kind != "f" and not column.isna().any()
        return column.astype("int64" if whole else "float64")
    return column.astype("int64") if kind == "b" else column


def _finite(column: pd.Series) -> pd.Series:
    endless = np.isinf(column.to_numpy())
    if endless.any():
        raise InvalidInputError(
            f"{column.name!r} must hold finite numbers or none at all, got an infinite one in "
            f"{row_name(column.index[int(np.argmax(endless))])}."
        )
    return column


def as_text(column: pd.Series) -> pd.Series:
    """Values as texts, None where one is missing."""
    texts = column.astype(object)
    if types.infer_dtype(texts, skipna=True) != "string":
        texts = texts.map(str, na_action="ignore").astype(object)
    return texts.where(column.notna(), None)


def as_numbers(column: pd.Series, called: str = "numbers") -> pd.Series:
    """Values as numbers, or an error that names the first that is none, and what it should be."""
    try:
        return _finite(pd.to_numeric(_tidy_column(column)).astype("float64"))
    except InvalidInputError:
        raise
    except (ValueError, TypeError):
        numbers = pd.to_numeric(as_text(column), errors="coerce")
        wrong = column[numbers.isna() & column.notna()]
        raise InvalidInputError(
            f"{column.name!r} must hold {called}, as it did in training, got {wrong.iloc[0]!r} in "
            f"{row_name(wrong.index[0])}."
        ) from None


# ---- writing -----------------------------------------------------------------------------------


def check_free(path: Path, overwrite: bool, option: str = "--out") -> None:
    """Refuse to write where something lies, unless that is wished, or where nothing can be."""
    if os.path.lexists(path) and not overwrite:
        raise InvalidInputError(f"{option}: {path} is there already; --overwrite replaces it.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"{option} must lie in a folder that is there, got {path}.")
    try:
        os.rmdir(mkdtemp(prefix=".", dir=path.parent))
    except OSError as error:
        raise InvalidInputError(
            f"{option} must lie in a folder that can be written to, got {path} ({error.strerror})."
        ) from error


def check_table_name(path: Path) -> None:
    """A name that says what kind of file is to be written."""
    _kind(path, "--out")


def write_table(frame: pd.DataFrame, path: Path, *, overwrite: bool) -> None:
    """Write a table whole or not at all; "-" is CSV on stdout."""
    if str(path) == "-":
        frame.to_csv(sys.stdout, index=False)
        return
    check_free(path, overwrite)
    kind = _kind(path, "--out")
    half = path.with_name(f".{uuid4().hex}.{path.name}")
    try:
        if kind is PARQUET:
            frame.to_parquet(half, index=False)
        else:
            frame.to_csv(half, index=False)
        os.replace(half, path)
    except ImportError as error:
        raise MissingExtraError(f"{path.name} needs pyarrow: {say_install('large')}.") from error
    finally:
        half.unlink(missing_ok=True)


def split_names(given: Sequence[str], there: Collection[str]) -> list[str]:
    """Names of columns, given one by one or with commas; a column's name may have one in it."""
    names: list[str] = []
    for text in given:
        names += [text] if text in there else [part.strip() for part in text.split(",")]
    return list(dict.fromkeys(names))
