"""Checks of arguments that several modules share."""

from __future__ import annotations

import numbers
import os
import sys
from collections.abc import Hashable, Iterable, Sequence, Sized
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Codes, Floats, Mask, Scores, Weights, exact_weights
from fairdial.errors import InvalidInputError, UnknownGroupError

SIMILAR = 0.7  # least similarity of a suggested name
GROUP_COLUMNS = "columns that the groups were learned from"
SAME_GROUP = 0.85  # of a suggested group: "Male" and "Female" have 0.8
LEAST_PERCENTAGE = {"tolerance": 2, "confidence": 50, "level": 50}  # others: 5
MAX_LISTED = 5  # values that a message lists
MIN_TYPO_LENGTH = 4  # shorter words aren't searched for typos


# ---- rows ----------------------------------------------------------------------------------------

PRECISION = 1e-3  # of probabilities in single precision


def as_vector(values: object, name: str) -> NDArray[Any]:
    """Return a one-dimensional array with at least one row; a column (n, 1) is flattened."""
    array = _as_array(values, name, "have one dimension")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidInputError(name, "have one dimension", given=f"shape {array.shape}")
    if array.size == 0:
        raise InvalidInputError(name, "have at least one row", given="0 rows")
    return array


def _as_array(values: object, name: str, allowed: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidInputError(name, allowed, given="rows of different lengths") from None
    if np.ma.is_masked(values):
        raise InvalidInputError(
            name,
            "have no missing values",
            given="a masked array",
            hint="Fill in or drop the masked rows.",
        )
    return array


def check_same_length(first: Sized, second: Sized, names: tuple[str, str]) -> None:
    """Raise unless both arguments have the same number of rows."""
    if len(first) != len(second):
        raise InvalidInputError(
            names[0],
            f"have as many rows as `{names[1]}`",
            given=f"{len(first)} and {len(second)} rows",
        )


def check_aligned(X: object, other: object, name: str) -> None:
    """Raise if two pandas objects have the same index in different orders."""
    if "pandas" not in sys.modules:
        return
    import pandas as pd

    first, second = getattr(X, "index", None), getattr(other, "index", None)
    if not isinstance(first, pd.Index) or not isinstance(second, pd.Index):
        return
    if len(first) != len(second) or first.equals(second):
        return
    if first.is_unique and second.is_unique and first.isin(second).all():
        raise InvalidInputError(
            name,
            "have its rows in the order of `X`",
            given="the same index in another order",
            hint=f"Use {name}.loc[X.index].",
        )


def check_scores(logits: object, name: str = "logits", *, nan: bool = True) -> Scores:
    """Return scores as float32 (if they are float16 or float32) or float64.

    With ``nan=False``, the caller checks for NaN itself, in a pass that it makes anyway.
    """
    array = _as_real(as_vector(logits, name), name)
    if nan and np.isnan(array).any():
        raise_nan(array, name)
    return array


def _as_real(given: NDArray[Any], name: str) -> Scores:
    array = given
    if array.dtype == object:
        real = [v if isinstance(v, (numbers.Real, np.bool_)) else None for v in array.flat]
        array = np.array(real).reshape(array.shape)
    if array.dtype != np.bool_ and not np.issubdtype(array.dtype, np.number):
        kind = next((v for v in given.flat if not isinstance(v, numbers.Real)), "?")
        raise InvalidInputError(name, "be real numbers", given=f"values such as {kind!r}")
    if np.iscomplexobj(array):
        raise InvalidInputError(name, "be real numbers", given="complex numbers")
    if array.dtype == np.float16:
        return array.astype(np.float32)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def raise_nan(array: Scores, name: str) -> None:
    """Raise an error that says where the first NaN is."""
    bad = np.flatnonzero(np.isnan(array))
    raise InvalidInputError(
        name,
        "not contain NaN",
        given=f"{bad.size} among {array.size} values, the first in row {bad[0]} (counted from 0)",
    )


def check_margins(margins: object, name: str = "margins") -> Scores:
    """Return margins, (S, n), without NaN: one line per setting and one column per row."""
    allowed = "have one line per setting and one column per row, at least one of each"
    array = _as_array(margins, name, allowed)
    if array.ndim != 2 or array.size == 0:
        raise InvalidInputError(name, allowed, given=f"shape {array.shape}")
    array = _as_real(array, name)
    if np.isnan(array.max()):
        line, row = np.argwhere(np.isnan(array))[0]
        raise InvalidInputError(
            name, "not contain NaN", given=f"one in line {line}, row {row} (counted from 0)"
        )
    return array


def check_settings(settings: object, size: int) -> Floats:
    """Return ``size`` distinct numbers; 0, 1, 2, ... if none are given."""
    if settings is None:
        return np.arange(size, dtype=np.float64)
    values = check_scores(settings, "settings").astype(np.float64)
    if len(values) != size:
        raise InvalidInputError(
            "settings", f"have one number per line of `margins` ({size})", given=len(values)
        )
    if len(np.unique(values)) < size:
        ordered = np.sort(values)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]][0]
        raise InvalidInputError("settings", "be distinct", given=f"{repeated:g} twice")
    return values


def check_labels(y: object, name: str = "y") -> Mask:
    """Return labels 0 and 1 (or False and True) as booleans."""
    array = as_vector(y, name)
    if array.dtype == object and all(isinstance(v, (numbers.Real, np.bool_)) for v in array):
        array = array.astype(np.float64)
    if array.dtype == np.bool_:
        return array
    if array.dtype == object or not np.issubdtype(array.dtype, np.number):
        raise InvalidInputError(name, "be 0 or 1", given=f"values such as {array[0]!r}")
    if array.dtype.itemsize == 1 and array.min() >= 0 and array.max() <= 1:
        return array.view(np.bool_)
    positive = np.asarray(array == 1)
    if not np.all(positive | (array == 0)):
        other = array[~(positive | (array == 0))][0]
        raise InvalidInputError(name, "be 0 or 1", given=repr(other))
    return positive


def check_weights(
    sample_weight: object, n_rows: int, name: str = "sample_weight"
) -> Weights | None:
    """Return weights as int64 if they are whole numbers, else float64; None if all are 1.

    Weights may be 0: these rows don't count, and the caller drops them.
    """
    if sample_weight is None:
        return None
    weights = check_scores(sample_weight, name)
    if len(weights) != n_rows:
        raise InvalidInputError(name, f"have one number per row ({n_rows:,})", given=len(weights))
    bad = np.flatnonzero((weights < 0) | np.isinf(weights))
    if bad.size:
        raise InvalidInputError(
            name,
            "be finite numbers from 0 up",
            given=f"{weights[bad[0]]:g} in row {bad[0]} (counted from 0)",
        )
    with np.errstate(over="ignore"):
        total = float(weights.sum(dtype=np.float64))
    if not 0 < total < np.inf:
        raise InvalidInputError(
            name, "have a finite sum above zero", given=f"{total:g}, from {n_rows:,} rows"
        )
    exact = exact_weights(weights)
    return None if (exact == 1).all() else exact


def check_utility(utility: object, n_rows: int) -> Floats:
    """Return finite utilities, one per row."""
    values = check_scores(utility, "utility").astype(np.float64)
    if len(values) != n_rows:
        raise InvalidInputError(
            "utility", f"have one number per row ({n_rows:,})", given=len(values)
        )
    if np.isinf(values).any():
        raise InvalidInputError("utility", "be finite numbers", given="an infinite one")
    return values


# ---- numbers -------------------------------------------------------------------------------------


def check_posterior(posterior: object, n_groups: int, name: str = "posterior") -> Floats:
    """Return probabilities of groups, (n, K), as float64; each row's sum is 1."""
    allowed = f"hold a probability for each of {n_groups} groups, which sum to 1 in every row"
    array = _as_real(np.asarray(posterior), name).astype(np.float64)
    if array.ndim != 2 or array.shape[1] != n_groups:
        raise InvalidInputError(name, allowed, given=f"shape {array.shape}")
    sums = array.sum(axis=1)
    if not (np.all(array >= 0) and np.all(np.abs(sums - 1.0) <= PRECISION)):  # also NaN
        worst = int(np.argmax(np.where(np.isfinite(sums), np.abs(sums - 1.0), np.inf)))
        raise InvalidInputError(name, allowed, given=f"{array[worst].tolist()} in row {worst}")
    return array


def check_class_scores(
    scores: object, n_classes: int | None = None, name: str = "scores"
) -> Scores:
    """Return log-probabilities or logits of classes, (n, C), one of them finite in every row."""
    classes = "more than one class" if n_classes is None else f"each of {n_classes} classes"
    array = _as_real(np.asarray(scores), name)
    if array.ndim != 2 or array.shape[1] < 2 or n_classes not in (None, array.shape[1]):
        raise InvalidInputError(name, f"have a column for {classes}", given=f"shape {array.shape}")
    known = (array < np.inf).all(axis=1) & (array > -np.inf).any(axis=1)  # NaN isn't
    if not known.all():
        row = int(np.argmin(known))
        raise InvalidInputError(
            name,
            "hold numbers, or -inf for classes that are impossible",
            given=f"{array[row].tolist()} in row {row} (counted from 0)",
        )
    return array


def check_tolerance(tolerance: object, name: str = "tolerance") -> Floats:
    """Return a tolerance, or an array of them, in [0, 1]."""
    if type(tolerance) is float and 0.0 <= tolerance <= 1.0:  # the usual case
        return np.array(tolerance)
    given = np.asarray(tolerance)
    numeric = given.dtype.kind in "iuf" or (
        given.dtype == object
        and all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in given.flat)
    )
    allowed = "be a number in [0, 1]"
    if not numeric and given.size:
        hint = fraction_hint(tolerance, "tolerance")
        raise InvalidInputError(name, allowed, given=repr(tolerance), hint=hint)
    array = given.astype(np.float64)
    if array.ndim > 1:
        raise InvalidInputError(
            name, "be a number or have one dimension", given=f"shape {array.shape}"
        )
    inside = (array >= 0.0) & (array <= 1.0)
    if not inside.all():
        first = float((array[~inside] if array.ndim else array).flat[0])
        raise InvalidInputError(name, allowed, given=first, hint=fraction_hint(first, "tolerance"))
    return array


def check_one_tolerance(tolerance: object, name: str = "tolerance") -> float:
    """Return a single tolerance in [0, 1]."""
    array = check_tolerance(tolerance, name)
    if array.ndim:
        raise InvalidInputError(name, "be a single number", given=f"{len(array)} numbers")
    return float(array)


def check_fraction(value: object, name: str) -> float:
    """Return a number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise InvalidInputError(
            name, "be strictly between 0 and 1", given=repr(value), hint=fraction_hint(value, name)
        )
    return float(value)


def check_confidence(value: object) -> float:
    """Return a confidence: at least one half, so that it says more than a coin, and below 1."""
    level = check_fraction(value, "confidence")
    if level < 0.5:
        raise InvalidInputError("confidence", "be at least 0.5 and below 1", given=f"{level:g}")
    return level


def check_positive(value: object, name: str, unit: str = "a number") -> float:
    """Return a number above 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value) > 0:
        raise InvalidInputError(name, f"be {unit} above 0", given=repr(value))
    return float(value)


def check_count(value: object, name: str, *, least: int = 1) -> int:
    """Return an integer that is at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidInputError(name, f"be an integer >= {least}", given=repr(value))
    return int(value)


def check_choice(value: Any, name: str, allowed: Sequence[Any]) -> Any:
    """Return the value if it is among the allowed ones."""
    if not any(value is option or value == option for option in allowed):
        options = ", ".join(map(repr, allowed))
        raise InvalidInputError(name, f"be one of {options}", given=repr(value))
    return value


def requested_processes() -> int:
    """Return the number of processes that torchrun started, its ``WORLD_SIZE``; 1 without it."""
    given = os.environ.get("WORLD_SIZE", "").strip() or "1"
    if not given.isdecimal() or int(given) < 1:
        raise InvalidInputError(
            "WORLD_SIZE", "be an integer >= 1 in the environment", given=repr(given)
        )
    return int(given)


# ---- groups --------------------------------------------------------------------------------------


def encode_groups(values: object, name: str = "groups") -> tuple[Codes, tuple[Hashable, ...]]:
    """Return the group codes 0..K-1 of rows, and the sorted names of the groups.

    A DataFrame or 2-D array with several columns is encoded by their intersections, named like
    ``"Black & Female"``.
    """
    texts = _as_texts(values)
    if texts is not None:
        return _encode(texts, name)
    array = _as_column(values, name)
    if array.dtype == np.bool_:
        if array.all() or not array.any():
            return np.zeros(len(array), np.uint8), (bool(array[0]),)
        return array.view(np.uint8), (False, True)
    if _are_codes(array, None):
        n_groups = int(array.max()) + 1
        if (n_groups <= 2 and int(array.min()) == 0) or np.bincount(array.astype(np.intp)).all():
            return array, tuple(range(n_groups))
    return _encode(array, name)


def _encode(groups: Any, name: str) -> tuple[Codes, tuple[Hashable, ...]]:
    codes, found = _factorize(groups, name)
    names = sort_names(found)
    places = {group: place for place, group in enumerate(names)}
    return np.array([places[group] for group in found], np.intp)[codes], names


def encode_strata(control_features: object) -> tuple[Codes, tuple[Hashable, ...]]:
    """Return the stratum codes 0..S-1 of rows, and the sorted names of the strata.

    Several columns are encoded by their intersections, as in :func:`encode_groups`.
    """
    return encode_groups(control_features, "control_features")


def order_columns(values: Any, names: Sequence[Hashable], argument: str, what: str) -> Any:
    """Return a DataFrame's columns in the order of these names; raise if it has other columns.

    Arrays, and DataFrames whose columns are only numbered, stay as they are.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdial._validation import order_columns
    >>> table = pd.DataFrame({"b": [1], "a": [2]})
    >>> order_columns(table, ("a", "b"), "posterior", "groups").columns.tolist()
    ['a', 'b']
    """
    if not has_named_columns(values):
        return values
    given = values.columns.tolist()
    if len(given) != len(names) or set(given) != set(names):
        wrong = [name for name in given if name not in names]
        raise InvalidInputError(
            argument,
            f"have as columns the {what} ({', '.join(map(repr, names))})",
            given=", ".join(map(repr, given)),
            hint=did_you_mean(wrong[0], names).strip() if wrong else "",
        )
    return values if given == list(names) else values[list(names)]


def has_named_columns(values: Any) -> bool:
    """Return whether these are a DataFrame whose columns have names, not only numbers 0, 1, ..."""
    if values is None or isinstance(values, np.ndarray):
        return False
    import pandas as pd

    if not isinstance(values, pd.DataFrame):
        return False
    names: list[Hashable] = values.columns.tolist()
    return names != list(range(len(names)))


def match_groups(values: object, names: tuple[Hashable, ...], name: str = "groups") -> Codes:
    """Return the codes of rows whose groups are among ``names``; raise on other groups."""
    groups = _as_texts(values)
    if groups is None:
        groups = _as_column(values, name)
        if names == tuple(range(len(names))) and _are_codes(groups, len(names)):
            return groups.view(np.uint8) if groups.dtype == np.bool_ else groups
    codes, found = _factorize(groups, name)
    order = {group: code for code, group in enumerate(names)}
    unknown = [group for group in found if group not in order]
    if unknown:
        near = (did_you_mean(group, names, SAME_GROUP) for group in unknown[:MAX_LISTED])
        raise UnknownGroupError(
            name,
            f"be groups with calibration rows ({', '.join(map(repr, names))})",
            given=", ".join(map(repr, unknown[:MAX_LISTED])),
            hint=(next(filter(None, near), ""), "A new group needs calibration rows of its own."),
            groups=unknown,
        )
    return np.array([order[group] for group in found], np.intp)[codes]


def _as_texts(values: object) -> Any:
    """Return pandas' text, or categories that are text, which needn't become objects; else None."""
    if isinstance(values, np.ndarray | list | tuple):
        return None
    import pandas as pd

    if not isinstance(values, pd.Series) or not len(values):
        return None
    kind = values.dtype
    if isinstance(kind, pd.CategoricalDtype):
        kind = kind.categories.dtype
    return values.array if isinstance(kind, pd.StringDtype) else None


def _factorize(groups: Any, name: str) -> tuple[Codes, list[Any]]:
    """Return a code for each row, and the distinct groups in the order of their first rows."""
    import pandas as pd

    codes, uniques = pd.factorize(groups, sort=False)
    if (codes < 0).any():
        _refuse_missing(groups, name)
    return codes, list(uniques.tolist() if hasattr(uniques, "tolist") else uniques)


def sort_names(names: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Return names of groups in ascending order; as text if their types are mixed."""
    found: list[Any] = list(names)
    try:
        return tuple(sorted(found))
    except TypeError:
        return tuple(sorted(found, key=str))


def _as_column(values: object, name: str) -> NDArray[Any]:
    """Return group membership as one array; several columns are combined."""
    if isinstance(values, str):
        raise InvalidInputError(
            name,
            "have one group per row",
            given=f"the text {values!r}",
            hint="To name a column of `X`, set `sensitive_column`.",
        )
    if not isinstance(values, np.ndarray):
        import pandas as pd

        if isinstance(values, pd.DataFrame):
            if values.shape[1] == 0:
                raise InvalidInputError(name, "have at least one column", given="none")
            columns = [values.iloc[:, i] for i in range(values.shape[1])]
            if len(columns) > 1:
                return _intersections([column.to_numpy(dtype=object) for column in columns], name)
            return as_vector(columns[0].to_numpy(), name)
        if isinstance(values, pd.Series):
            return as_vector(values.to_numpy(), name)
    array = np.asarray(values)
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        array = np.array(values, dtype=object)  # None and NaN must not become text
    if array.ndim == 2 and array.shape[1] > 1:
        return _intersections([column.astype(object) for column in array.T], name)
    return as_vector(array, name)


def _intersections(columns: list[NDArray[Any]], name: str) -> NDArray[Any]:
    """Return names like ``"Black & Female"``; raise if two intersections have the same name."""
    import pandas as pd

    if len(columns[0]) == 0:
        raise InvalidInputError(name, "have at least one row", given="0 rows")
    for column in columns:
        _refuse_missing(column, name)
    _refuse_probabilities(columns, name)
    parts = [pd.factorize(column.astype(object)) for column in columns]
    place = np.zeros(len(columns[0]), np.intp)
    for codes, uniques in parts:
        place = place * len(uniques) + codes
    _, first, inverse = np.unique(place, return_index=True, return_inverse=True)
    joined = [" & ".join(str(column[i]) for column in columns) for i in first]
    if len(set(joined)) < len(joined):
        repeated = next(text for text in joined if joined.count(text) > 1)
        raise InvalidInputError(
            name,
            "have intersections with distinct names",
            given=f"{repeated!r} twice",
            hint="Rename the values that contain ' & '.",
        )
    return np.array(joined, dtype=object)[inverse]


def _refuse_probabilities(columns: list[NDArray[Any]], name: str) -> None:
    """Raise if columns look like probabilities of groups: shares that sum to 1 in every row."""
    if not all(isinstance(column[0], (float, np.floating)) for column in columns):
        return
    try:
        table = np.array(columns, np.float64)
    except (TypeError, ValueError):
        return
    shares = np.all((table >= 0) & (table <= 1)) and np.any((table > 0) & (table < 1))
    if shares and np.all(np.abs(table.sum(axis=0) - 1.0) <= PRECISION):
        raise InvalidInputError(
            name,
            "have a group in every column, whose combinations are the groups",
            given="what looks like probabilities of groups",
            hint="sweep_blind takes probabilities, as `posterior`.",
        )


def _refuse_missing(array: Any, name: str) -> None:
    import pandas as pd

    missing = np.asarray(pd.isna(array))
    if missing.any():
        raise InvalidInputError(
            name,
            "have a group for every row",
            given=f"{int(missing.sum())} missing values, the first in row "
            f"{int(np.argmax(missing))} (counted from 0)",
            hint="Drop those rows, or give them a group of their own, such as 'not stated'.",
        )


def _are_codes(array: NDArray[Any], n_groups: int | None) -> bool:
    """Whether the values are their own codes: integers or booleans in 0..K-1."""
    if array.dtype == np.bool_:
        return n_groups is None or n_groups == 2
    if not np.issubdtype(array.dtype, np.integer):
        return False
    low, high = int(array.min()), int(array.max())
    return low >= 0 and high < (256 if n_groups is None else n_groups)


# ---- hints ---------------------------------------------------------------------------------------


def describe_values(values: Sequence[object]) -> str:
    """Return how many values there are, and the first of them.

    Examples
    --------
    >>> from fairdial._validation import describe_values
    >>> describe_values(["no", "perhaps", "yes"])
    "3: 'no', 'perhaps', 'yes'"
    """
    listed = ", ".join(map(repr, values[:MAX_LISTED]))
    return f"{len(values)}: {listed}{', ...' if len(values) > MAX_LISTED else ''}"


def closest_name(name: str, known: Iterable[str], similar: float = SIMILAR) -> str | None:
    """Return the known name that was probably meant, ignoring case and surrounding spaces.

    Examples
    --------
    >>> from fairdial._validation import closest_name
    >>> closest_name("Nroth", ["south", "north"], 0.85), closest_name("Male", ["Female"], 0.85)
    ('north', None)
    """
    plain, names = name.strip().lower(), {other.strip().lower(): other for other in known}
    typo = (other for other in names if _is_typo(plain, other))
    near = plain if plain in names else next(typo, None)
    if near is None:
        near = next(iter(get_close_matches(plain, names, 1, similar)), None)
    return None if near is None else names[near]


def _is_typo(word: str, other: str) -> bool:
    """Whether two neighboring letters are swapped, or one letter is missing."""
    short, long = sorted((word, other), key=len)
    if len(short) < MIN_TYPO_LENGTH or len(long) - len(short) > 1:
        return False
    if len(short) < len(long):
        return any(
            long[:i] + long[i + 1 :] == short and long[i].isalpha() for i in range(len(long))
        )
    i = next((i for i, (a, b) in enumerate(zip(word, other, strict=True)) if a != b), len(word))
    return word[i : i + 2] == other[i : i + 2][::-1] and word[i + 2 :] == other[i + 2 :]


def did_you_mean(name: object, known: Iterable[object], similar: float = SIMILAR) -> str:
    """Return a hint that suggests the closest known name, after a space; "" if none is close."""
    texts = [other for other in known if isinstance(other, str)]
    near = closest_name(name, texts, similar) if isinstance(name, str) else None
    return "" if near is None else f" Did you mean {near!r}?"


def fraction_hint(given: object, name: str) -> str:
    """Return a hint, after a space, for a share that isn't written as a fraction; "" if unclear.

    A number without a percent sign is only taken for a percentage if it is a plausible one: a
    confidence of 1.5% isn't.

    Examples
    --------
    >>> from fairdial._validation import fraction_hint
    >>> fraction_hint(5, "tolerance"), fraction_hint(1.5, "confidence")
    (' 5% is 0.05.', '')
    >>> fraction_hint("5 %", "tolerance"), fraction_hint("0,05", "tolerance")
    (' 5% is 0.05.', ' Write 0.05, with a decimal point.')
    """
    if isinstance(given, bool) or not isinstance(given, (str, numbers.Real)):
        return ""
    text = str(given).strip()
    try:
        number = float(text.removesuffix("%").strip().replace(",", ".", 1))
    except ValueError:
        return ""
    least = 0 if text.endswith("%") else LEAST_PERCENTAGE.get(name, 5)
    if least <= number <= 100:
        return f" {number:g}% is {number / 100:g}."
    return f" Write {number:g}, with a decimal point." if "," in text and 0 <= number <= 1 else ""
