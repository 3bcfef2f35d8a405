"""The only place where user input is checked.

Every message names the argument, what was got and what is allowed.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Hashable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.errors import InvalidInputError, SmallGroupError, UnknownGroupError

Codes = NDArray[np.integer[Any]]

ALIKE = 0.7  # words that share less than this aren't taken for each other
MOST_SHOWN = 5  # values that a message names
LEAST_LETTERS = 4  # of a word that is taken for another which differs by a slip
SAME_GROUP = 0.85  # "Male" and "Female" share 0.8


def as_vector(values: Any, name: str) -> NDArray[Any]:
    """One-dimensional array; a column of shape (n, 1) is flattened, 0 rows are refused."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidInputError(
            f"`{name}` must have one dimension, got rows of different lengths."
        ) from None
    if np.ma.is_masked(values):
        raise InvalidInputError(f"`{name}` must not be masked; fill or leave out those rows.")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidInputError(
            f"`{name}` must have one dimension, got an array of shape {array.shape}."
        )
    if array.size == 0:
        raise InvalidInputError(f"`{name}` must hold at least one row, got 0 rows.")
    return array


def check_same_length(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Both arguments describe the same rows."""
    if len(first) != len(second):
        raise InvalidInputError(
            f"`{names[0]}` and `{names[1]}` must describe the same rows, got {len(first)} "
            f"and {len(second)}."
        )


def check_aligned(X: Any, other: Any, name: str) -> None:
    """The same rows in another order, by their pandas index, are a mistake."""
    first, second = getattr(X, "index", None), getattr(other, "index", None)
    if not isinstance(first, pd.Index) or not isinstance(second, pd.Index):
        return
    if len(first) != len(second) or first.equals(second):
        return
    if first.is_unique and second.is_unique and first.isin(second).all():
        raise InvalidInputError(
            f"`{name}` must have its rows in the order of `X`, got the same index in another "
            f"order; use {name}.loc[X.index]."
        )


def check_scores(
    logits: Any, name: str = "logits", *, nan: bool = True
) -> NDArray[np.floating[Any]]:
    """Real scores without NaN; float32 stays what it is (float16 joins it), the rest is float64.

    With ``nan=False`` the caller looks for NaN itself, in a pass that it makes anyway.
    """
    array = _as_real(as_vector(logits, name), name)
    if nan and np.isnan(array).any():
        raise_nan(array, name)
    return array


def _as_real(given: NDArray[Any], name: str) -> NDArray[np.floating[Any]]:
    """Single precision stays what it is (half joins it), other real numbers become double."""
    array = given
    if array.dtype == object:
        real = [v if isinstance(v, (numbers.Real, np.bool_)) else None for v in array.flat]
        array = np.array(real).reshape(array.shape)
    if array.dtype != np.bool_ and not np.issubdtype(array.dtype, np.number):
        kind = next((v for v in given.flat if not isinstance(v, numbers.Real)), "?")
        raise InvalidInputError(f"`{name}` must hold real numbers, got values like {kind!r}.")
    if np.iscomplexobj(array):
        raise InvalidInputError(f"`{name}` must hold real numbers, got complex ones.")
    if array.dtype == np.float16:
        return array.astype(np.float32)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def check_margins(margins: Any, name: str = "margins") -> NDArray[np.floating[Any]]:
    """Real numbers without NaN, one line a setting and one column a row."""
    try:
        array = np.asarray(margins)
    except ValueError:
        raise InvalidInputError(
            f"`{name}` must have one line a setting, got lines of different lengths."
        ) from None
    if np.ma.is_masked(margins):
        raise InvalidInputError(f"`{name}` must not be masked; fill or leave out those rows.")
    if array.ndim != 2 or array.size == 0:
        raise InvalidInputError(
            f"`{name}` must have one line a setting and one column a row, at least one of each, "
            f"got an array of shape {array.shape}."
        )
    array = _as_real(array, name)
    if np.isnan(array.max()):
        line, row = np.argwhere(np.isnan(array))[0]
        raise InvalidInputError(
            f"`{name}` must not hold NaN, got some (the first in line {line}, row {row}, "
            "counted from 0)."
        )
    return array


def check_settings(settings: Any, size: int) -> NDArray[np.float64]:
    """One number for each line of margins, no two the same; 0, 1, 2, ... if none are given."""
    if settings is None:
        return np.arange(size, dtype=np.float64)
    values = check_scores(settings, "settings").astype(np.float64)
    if len(values) != size:
        raise InvalidInputError(
            f"`settings` must hold one number for each line of `margins` ({size}), got "
            f"{len(values)}."
        )
    if len(np.unique(values)) < size:
        ordered = np.sort(values)
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        raise InvalidInputError(f"`settings` must differ from each other, got {twice:g} twice.")
    return values


def raise_nan(array: NDArray[np.floating[Any]], name: str) -> None:
    """Say where the first NaN is."""
    bad = np.flatnonzero(np.isnan(array))
    raise InvalidInputError(
        f"`{name}` must not hold NaN, got {bad.size} of {array.size} (the first in row {bad[0]}, "
        "counted from 0)."
    )


def check_labels(y: Any, name: str = "y") -> NDArray[np.bool_]:
    """Labels 0 and 1 (or False and True) as booleans."""
    array = as_vector(y, name)
    if array.dtype == object and all(isinstance(v, (numbers.Real, np.bool_)) for v in array):
        array = array.astype(np.float64)
    if array.dtype == np.bool_:
        return array
    if array.dtype == object or not np.issubdtype(array.dtype, np.number):
        raise InvalidInputError(
            f"`{name}` must hold the labels 0 and 1, got values like {array[0]!r}."
        )
    if array.dtype.itemsize == 1 and array.min() >= 0 and array.max() <= 1:
        return array.view(np.bool_)
    positive = np.asarray(array == 1)
    if not np.all(positive | (array == 0)):
        other = array[~(positive | (array == 0))][0]
        raise InvalidInputError(f"`{name}` must hold the labels 0 and 1, got {other!r}.")
    return positive


def check_tolerance(tolerance: Any, name: str = "tolerance") -> NDArray[np.float64]:
    """A tolerance, or an array of them, each in [0, 1]."""
    if type(tolerance) is float and 0.0 <= tolerance <= 1.0:  # the usual case, at once
        return np.array(tolerance)
    given = np.asarray(tolerance)
    numeric = given.dtype.kind in "iuf" or (
        given.dtype == object
        and all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in given.flat)
    )
    if not numeric and given.size:
        raise InvalidInputError(
            f"`{name}` must be a number in [0, 1], got {tolerance!r}.{share_meant(tolerance)}"
        )
    array = given.astype(np.float64)
    if array.ndim > 1:
        raise InvalidInputError(
            f"`{name}` must be a number or have one dimension, got shape {array.shape}."
        )
    inside = (array >= 0.0) & (array <= 1.0)
    if not inside.all():
        bad = array[~inside] if array.ndim else array
        first = float(bad.flat[0])
        raise InvalidInputError(f"`{name}` must lie in [0, 1], got {first}.{share_meant(first)}")
    return array


def check_one(tolerance: Any, name: str = "tolerance") -> float:
    """One tolerance in [0, 1]."""
    array = check_tolerance(tolerance, name)
    if array.ndim:
        raise InvalidInputError(f"`{name}` must be one number, got {len(array)} of them.")
    return float(array)


def check_fraction(value: Any, name: str) -> float:
    """A number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise InvalidInputError(
            f"`{name}` must lie strictly between 0 and 1, got {value!r}.{share_meant(value)}"
        )
    return float(value)


def check_positive(value: Any, name: str, unit: str = "a number") -> float:
    """A number above 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value) > 0:
        raise InvalidInputError(f"`{name}` must be {unit} above 0, got {value!r}.")
    return float(value)


def check_count(value: Any, name: str, *, least: int = 1) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidInputError(f"`{name}` must be a whole number >= {least}, got {value!r}.")
    return int(value)


def asked_processes() -> int:
    """How many processes torchrun has started: its ``WORLD_SIZE``; one where there is none."""
    told = os.environ.get("WORLD_SIZE", "").strip() or "1"
    if not told.isdecimal() or int(told) < 1:
        raise InvalidInputError(
            f"`WORLD_SIZE` of the environment must be a whole number >= 1, got {told!r}."
        )
    return int(told)


def check_choice(value: Any, name: str, allowed: Sequence[Any]) -> Any:
    """One of a few allowed values."""
    if not any(value is option or value == option for option in allowed):
        words = ", ".join(map(repr, allowed))
        raise InvalidInputError(f"`{name}` must be one of {words}; got {value!r}.")
    return value


def _one_column(values: Any, name: str) -> NDArray[Any]:
    """Group membership as one array; several columns become their intersections."""
    if isinstance(values, str):
        raise InvalidInputError(
            f"`{name}` must hold one group for each row, got the text {values!r}; to name a column "
            "of X set `sensitive_column`."
        )
    if isinstance(values, pd.DataFrame):
        if values.shape[1] == 0:
            raise InvalidInputError(f"`{name}` must have at least one column, got none.")
        columns = [values.iloc[:, i] for i in range(values.shape[1])]
        if len(columns) > 1:
            return _intersections([column.to_numpy(dtype=object) for column in columns], name)
        return as_vector(columns[0].to_numpy(), name)
    if isinstance(values, pd.Series):
        return as_vector(values.to_numpy(), name)
    array = np.asarray(values)
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        array = np.array(values, dtype=object)  # None and NaN must not become words
    if array.ndim == 2 and array.shape[1] > 1:
        return _intersections([column.astype(object) for column in array.T], name)
    return as_vector(array, name)


def _intersections(columns: list[NDArray[Any]], name: str) -> NDArray[Any]:
    """Names like ``"Black & Female"``; two intersections with one name are refused."""
    if len(columns[0]) == 0:
        raise InvalidInputError(f"`{name}` must hold at least one row, got 0 rows.")
    for column in columns:
        _refuse_missing(column, name)
    parts = [pd.factorize(column.astype(object)) for column in columns]
    place = np.zeros(len(columns[0]), np.intp)
    for codes, uniques in parts:
        place = place * len(uniques) + codes
    _, first, inverse = np.unique(place, return_index=True, return_inverse=True)
    joined = [" & ".join(str(column[i]) for column in columns) for i in first]
    if len(set(joined)) < len(joined):
        twice = next(word for word in joined if joined.count(word) > 1)
        raise InvalidInputError(
            f"`{name}` must not hold different intersections with one name, got {twice!r} twice; "
            "rename the values that contain ' & '."
        )
    return np.array(joined, dtype=object)[inverse]


def _refuse_missing(array: NDArray[Any], name: str) -> None:
    missing = np.asarray(pd.isna(array))
    if missing.any():
        raise InvalidInputError(
            f"`{name}` must name a group for every row, got {int(missing.sum())} missing values "
            f"(the first in row {int(np.argmax(missing))}, counted from 0). Leave those rows out, "
            "or give them a group of their own, such as 'not stated'."
        )


def _codes_as_given(array: NDArray[Any], n_groups: int | None) -> bool:
    """Whether the values are their own codes: integers or booleans 0..K-1, all in range."""
    if array.dtype == np.bool_:
        return n_groups is None or n_groups == 2
    if not np.issubdtype(array.dtype, np.integer):
        return False
    low, high = int(array.min()), int(array.max())
    return low >= 0 and high < (256 if n_groups is None else n_groups)


def encode_groups(
    values: Any, name: str = "groups"
) -> tuple[NDArray[np.integer[Any]], tuple[Hashable, ...]]:
    """Codes 0..K-1 and the names of the groups, sorted.

    A DataFrame (or a 2-D array) with several columns stands for their intersections, named
    like ``"Black & Female"``.
    """
    array = _one_column(values, name)
    if array.dtype == np.bool_:
        if array.all() or not array.any():
            return np.zeros(len(array), np.uint8), (bool(array[0]),)
        return array.view(np.uint8), (False, True)
    if _codes_as_given(array, None):
        n_groups = int(array.max()) + 1
        if (n_groups <= 2 and int(array.min()) == 0) or np.bincount(array).all():
            return array, tuple(range(n_groups))
    _refuse_missing(array, name)
    codes, uniques = pd.factorize(array, sort=False)
    found = list(uniques.tolist() if hasattr(uniques, "tolist") else uniques)
    names = sort_names(found)
    places = {name: place for place, name in enumerate(names)}
    rank = np.array([places[name] for name in found], np.intp)
    return rank[codes], names


def sort_names(names: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Names of groups in their order; as words where they are of mixed types."""
    found: list[Any] = list(names)
    try:
        return tuple(sorted(found))
    except TypeError:
        return tuple(sorted(found, key=str))


def match_groups(
    values: Any, names: tuple[Hashable, ...], name: str = "groups"
) -> NDArray[np.integer[Any]]:
    """Codes of rows whose groups must be among ``names``; a stranger is an error."""
    array = _one_column(values, name)
    if names == tuple(range(len(names))) and _codes_as_given(array, len(names)):
        return array.view(np.uint8) if array.dtype == np.bool_ else array
    _refuse_missing(array, name)
    codes = pd.Index(list(names), dtype=object).get_indexer(pd.Index(array.astype(object)))
    if (codes < 0).any():
        strangers = pd.unique(array[codes < 0])
        shown = ", ".join(repr(s) for s in strangers[:5].tolist())
        near = (did_you_mean(s, names, SAME_GROUP) for s in strangers[:5].tolist())
        raise UnknownGroupError(
            f"`{name}` holds groups that were not among the calibration rows: {shown}; known are "
            f"{', '.join(map(repr, names))}.{next(filter(None, near), '')} Correct names that are "
            "misspelt; a group that is new needs calibration rows of its own."
        )
    return np.asarray(codes)


def check_group_counts(
    counted: NDArray[np.integer[Any]],
    names: Sequence[Hashable],
    *,
    criterion: str,
    label: int | None,
    min_count: int,
    name: str = "groups",
) -> None:
    """Every group has rows that count for the criterion (with this label), and enough of them."""
    counts = dict(zip(names, counted.tolist(), strict=True))
    empty = [repr(group) for group, count in counts.items() if count == 0]
    if empty:
        raise InvalidInputError(
            f"`{name}`: {', '.join(empty)} must have rows that count for {criterion}, got "
            + ("none." if label is None else f"none with label {label}.")
        )
    small = [f"{group!r} ({count})" for group, count in counts.items() if count < min_count]
    if small:
        raise SmallGroupError(
            f"`{name}`: every group must have at least min_count={min_count} calibration rows "
            f"that count for {criterion}, got fewer in {', '.join(small)}. Merge small groups, "
            "leave their rows out, calibrate on more rows (`calibration=`, `cv=`), or lower "
            "`min_count`: a single row of a tiny group can move everybody else."
        )


# ---- words ---------------------------------------------------------------------------------------


def say_values(values: Sequence[Any]) -> str:
    """How many values there are, and the first of them.

    Examples
    --------
    >>> from fairdial._validation import say_values
    >>> say_values(["no", "perhaps", "yes"])
    "3: 'no', 'perhaps', 'yes'"
    """
    listed = ", ".join(map(repr, values[:MOST_SHOWN]))
    return f"{len(values)}: {listed}{', ...' if len(values) > MOST_SHOWN else ''}"


def nearest(word: str, known: Iterable[str], alike: float = ALIKE) -> str | None:
    """The known word that was probably meant: but for capitals and spaces, or nearly so.

    Examples
    --------
    >>> from fairdial._validation import nearest
    >>> nearest("Nroth", ["south", "north"], 0.85), nearest("Male", ["Female"], 0.85)
    ('north', None)
    """
    plain, words = word.strip().lower(), {other.strip().lower(): other for other in known}
    slip = (other for other in words if _is_slip(plain, other))
    near = plain if plain in words else next(slip, None)
    if near is None:
        near = next(iter(get_close_matches(plain, words, 1, alike)), None)
    return None if near is None else words[near]


def _is_slip(word: str, other: str) -> bool:
    """Whether two neighbours are swapped, or one letter is too many or too few."""
    short, long = sorted((word, other), key=len)
    if len(short) < LEAST_LETTERS or len(long) - len(short) > 1:
        return False
    if len(short) < len(long):
        return any(
            long[:i] + long[i + 1 :] == short and long[i].isalpha() for i in range(len(long))
        )
    i = next((i for i, (a, b) in enumerate(zip(word, other, strict=True)) if a != b), len(word))
    return word[i : i + 2] == other[i : i + 2][::-1] and word[i + 2 :] == other[i + 2 :]


def did_you_mean(word: Any, known: Iterable[Any], alike: float = ALIKE) -> str:
    """The end of a message that names the nearest known text; empty where none is near."""
    texts = [other for other in known if isinstance(other, str)]
    near = nearest(word, texts, alike) if isinstance(word, str) else None
    return "" if near is None else f" Did you mean {near!r}?"


def share_meant(given: Any) -> str:
    """The end of a message that names the share which somebody meant; empty where none is known.

    Examples
    --------
    >>> from fairdial._validation import share_meant
    >>> share_meant(5), share_meant("5 %"), share_meant("0,05"), share_meant(-3)
    (' 5% is 0.05.', ' 5% is 0.05.', ' Write 0.05, with a point.', '')
    """
    if isinstance(given, bool) or not isinstance(given, (str, numbers.Real)):
        return ""
    text = str(given).strip()
    try:
        number = float(text.removesuffix("%").strip().replace(",", ".", 1))
    except ValueError:
        return ""
    if text.endswith("%") or 1 < number <= 100:
        return f" {number:g}% is {number / 100:g}." if 0 <= number <= 100 else ""
    return f" Write {number:g}, with a point." if "," in text and 0 <= number <= 1 else ""
