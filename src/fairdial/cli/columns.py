"""Columns of users' tables: their types, and what they look like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from fairdial._arrays import Mask
from fairdial.errors import InvalidInputError
from fairdial.tables.columns import FREQUENT
from fairdial.tables.values import as_feature, as_read, as_text, row_name

Note = Callable[[str], None]

DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d{2}))([ T].*)?")
CURRENCY = r"[$€£¥]|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|BRL|SEK|NOK|DKK|PLN"
UNIT = r"[%°€$£¥]|[A-Za-zµ]{1,8}[.²³]?(?:/[A-Za-z]{1,8})?"
AMOUNT = re.compile(rf"[-+]?(?:{CURRENCY})?\s*[-+]?\d+(?:[.,'\s]\d+)*\s*({UNIT})?")
ROW_NUMBERS = "Unnamed: 0"  # how pandas names the index that it wrote into a CSV file
SAMPLE = 100  # distinct values to look at
MOST_UNITS = 5  # more than that are parts of names
FEW_AMOUNTS = 10  # so few distinct ones may be categories
MOSTLY = 0.9
MOST_STRATA = 100
MANY_TEXTS = 1000  # distinct ones; boosting distinguishes 254 of them
MANY_NUMBERS = 100  # whole ones, which hardly all differ unless they number the rows
NEARLY_ALL, SPARSE = 0.95, 2.0  # different numbers per row; and their range, per row
FEW_TEXTS = 20  # so few may all differ by chance


# ---- rows --------------------------------------------------------------------------------------


def count_rows(count: int) -> str:
    """Return "1 row", "2 rows" and so on."""
    return "1 row" if count == 1 else f"{count:,} rows"


def count_missing(missing: Mask) -> str:
    """Return how many rows lack a value, and the first of them."""
    first = row_name(int(np.argmax(missing)))
    return f"{count_rows(int(missing.sum()))} without one (first: {first})"


def quote_names(names: Iterable[object]) -> str:
    """Return names of columns or groups for a message."""
    return ", ".join(map(repr, names))


# ---- types -------------------------------------------------------------------------------------


def as_features(table: pd.DataFrame) -> pd.DataFrame:
    """Return numbers in numpy's types, and everything else as text with None where missing."""
    return pd.DataFrame({name: as_feature(table[name]) for name in table}, index=table.index)


def as_weights(column: pd.Series, argument: str = "weights") -> pd.Series:
    """Return weights of rows as numbers; the error names the first that can't be one."""
    missing = column.isna().to_numpy()
    if missing.any():
        raise InvalidInputError(
            argument,
            "have a value in every row",
            given=f"{column.name!r} with {count_missing(missing)}",
        )
    numbers = pd.to_numeric(as_text(column), errors="coerce").astype("float64")
    wrong = column[(numbers.isna() | np.isinf(numbers) | (numbers < 0)).to_numpy()]
    if len(wrong):
        raise InvalidInputError(
            argument,
            "hold finite numbers from 0 up",
            given=f"{wrong.iloc[0]!r} in {row_name(wrong.index[0])} of {column.name!r}",
        )
    if not numbers.any():
        raise InvalidInputError(
            argument, "hold a number above 0", given=f"{column.name!r} with zeros only"
        )
    return numbers


def as_strata(columns: pd.DataFrame, argument: str = "control") -> pd.DataFrame | pd.Series:
    """Return strata of rows: one column, or several; refuse missing values and very many."""
    missing = columns.isna().any(axis=1).to_numpy()
    if missing.any():
        raise InvalidInputError(
            argument,
            "have a value in every row",
            given=f"{quote_names(columns)} with {count_missing(missing)}",
        )
    n_strata = len(columns.drop_duplicates())
    if n_strata > MOST_STRATA:
        raise InvalidInputError(
            argument,
            f"have at most {MOST_STRATA} values",
            given=f"{quote_names(columns)} with {n_strata:,}",
            hint="Merge values first, such as ages into ranges.",
        )
    return columns.iloc[:, 0] if columns.shape[1] == 1 else columns


# ---- missing values ----------------------------------------------------------------------------


def find_small(columns: pd.DataFrame, least: int) -> list[list[str]]:
    """Return the groups of fewer rows, each by its value in every column."""
    texts = columns.map(as_read)
    counts = texts.value_counts(sort=False)
    return sorted([str(value) for value in key] for key in counts.index[counts < least])


def is_number_or_bool(text: str) -> bool:
    """Return whether a text is what :func:`fill_groups` makes of a number or a truth value."""
    try:
        return text in ("False", "True") or text == as_read(float(text))
    except ValueError:
        return False


def drop_incomplete(table: pd.DataFrame, columns: list[str], note: Note) -> pd.DataFrame:
    """Return the rows with a value in each of these columns, with their index.

    Whole numbers, which pandas reads as floats where one is missing, are whole again.
    """
    complete = table[columns].notna().all(axis=1)
    count = int((~complete).sum())
    if count == len(table):
        raise InvalidInputError(
            "drop_missing", "leave rows", given=f"none with {quote_names(columns)}"
        )
    what = "left out" if count else "found"
    note(f"{count_rows(count)} without {' or '.join(map(repr, columns))} {what}.")
    kept = table[complete]
    floats = [name for name in columns if pd.api.types.is_float_dtype(kept[name].dtype)]
    return kept.astype({name: "int64" for name in floats if (kept[name] % 1 == 0).all()})


# ---- looks -------------------------------------------------------------------------------------


def describe_useless(column: pd.Series) -> str | None:
    """Return why no model can learn from a column, or None if one can."""
    known = column.dropna()
    if len(known) < min(FREQUENT, len(column)):
        return f"{column.name!r} has a value in only {len(known)} of {len(column):,} rows"
    if len(known) == len(column) and column.nunique() == 1:
        return f"{column.name!r} has the same value {str(known.iloc[0])!r} in every row"
    return None


def describe_doubt(column: pd.Series) -> str | None:
    """Return why a column makes a poor set of categories, and what to do; or None."""
    unique = f"{column.name!r} has a different value in every row: keep it only if it is more than "
    unique += "an identifier"
    if column.dtype != object:
        numbers = column.name == ROW_NUMBERS or _numbers_rows(column)
        return unique if numbers else None
    known = column.dropna()
    distinct = known.drop_duplicates()
    each = "and each value becomes its own category"
    if looks_like_dates(distinct):
        return f"{column.name!r} looks like dates, {each}: convert it to numbers first"
    amount = find_amount(distinct)
    if amount is not None:
        return (
            f"{column.name!r} is mostly numeric, but contains {amount!r}, {each}: convert it to "
            "numbers first"
        )
    if column.name == ROW_NUMBERS or (len(distinct) == len(known) >= len(column) - 1):
        return unique
    many = len(distinct)
    if many > MANY_TEXTS or (many > FEW_TEXTS and 2 * many > len(known)):
        return (
            f"{column.name!r} has {many:,} distinct texts in {len(known):,} rows; frequent ones "
            "become categories, all others share one: convert it to numbers or to fewer categories "
            "first"
        )
    return None


def _numbers_rows(column: pd.Series) -> bool:
    """Return whether whole numbers look like those of an identifier.

    They are all different; or nearly all, because rows are repeated, and few numbers are left out.
    """
    rows = len(column)
    if rows < MANY_NUMBERS or column.isna().any() or not (column % 1 == 0).all():
        return False
    distinct = column.nunique()
    counted = float(column.max()) - float(column.min()) < SPARSE * rows
    return distinct == rows or (counted and distinct >= NEARLY_ALL * rows)


def looks_like_dates(distinct: pd.Series) -> bool:
    """Return whether the first of a column's distinct texts all look like dates."""
    seen = distinct.head(SAMPLE)
    return len(seen) > 0 and all(DATE.fullmatch(str(value).strip()) for value in seen)


def find_amount(distinct: pd.Series) -> str | None:
    """Return one of a column's distinct texts that isn't a plain number, if most are; or None."""
    shown = [str(value).strip() for value in distinct.head(SAMPLE)]
    amounts = [found for found in map(AMOUNT.fullmatch, shown) if found is not None]
    units = {found[1] for found in amounts}
    few = len(distinct) <= FEW_AMOUNTS or len(amounts) < MOSTLY * len(shown)
    if few or len(units) > MOST_UNITS:
        return None
    others = distinct[pd.to_numeric(distinct, errors="coerce").isna()]
    return None if others.empty else str(others.iloc[0])  # digits may be codes in a Parquet file
