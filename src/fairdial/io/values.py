"""Values as strict JSON with their types: what is read back is equal and of the same type.

Text, integers, booleans, None and lists are written as they are. Everything else that JSON can't
express is an object with one key: ``{"$tuple": [...]}``, ``{"$float": "inf"}``, ``{"$numpy":
["int64", 3]}``, ``{"$array": ["<U5", [...]]}``.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.core.serialization import refuse_constant
from fairdial.errors import InvalidInputError, ModelFileError

if TYPE_CHECKING:  # reading a manifest needs no scikit-learn
    from fairdial.estimators.base import DialClassifier
    from fairdial.estimators.scorers import PlattMap

SCALARS = "biufU"  # kinds of NumPy types that are written
MAX_ITEM = 1 << 18  # bytes of one value
MAX_ARRAY = 1 << 27  # bytes of all values of an array
WIDE_ITEM = 1 << 8  # bytes of one text that are allocated even if it is shorter
FREE_ARRAY = 1 << 20  # bytes of an array of texts, from which padding is limited,
MOST_PADDING = 16  # to so many times the content
Json = Any  # what the json module reads and writes
Other = Callable[[Any], Any]


def write_json(data: Json) -> bytes:
    """Return strict JSON in ASCII, the same bytes for the same data."""
    return json.dumps(data, indent=1, allow_nan=False).encode()


def read_json(body: bytes, name: str) -> Json:
    """Return the data of a strict JSON file; NaN, infinity and repeated keys are refused."""
    try:
        return json.loads(
            body.decode("utf-8"),
            parse_constant=refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_no_repeats,
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"`{name}` must be strict JSON ({error}).") from error


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _no_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repeated!r} occurs twice")
    return found


def claim(holds: object, what: str) -> None:
    """Raise ValueError if stored data are not what they must be."""
    if not holds:
        raise ValueError(f"expected {what}")


# ---- values ------------------------------------------------------------------------------------


def pack(value: object, other: Other | None = None) -> Json:
    """Return a value as JSON; ``other`` packs what isn't plain.

    Examples
    --------
    >>> from fairdial.io.values import pack, unpack
    >>> pack((1, "a", float("inf")))
    {'$tuple': [1, 'a', {'$float': 'inf'}]}
    >>> unpack(pack((1, "a", float("inf"))))
    (1, 'a', inf)
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if type(value) is tuple:
        return {"$tuple": [pack(item, other) for item in value]}
    if type(value) is list:
        return [pack(item, other) for item in value]
    if isinstance(value, np.str_):
        return {"$numpy": ["str", str(value)]}
    if isinstance(value, np.generic) and value.dtype.kind in SCALARS and value.dtype.itemsize <= 8:
        return {"$numpy": [value.dtype.name, pack(value.item())]}
    if type(value) is np.ndarray and value.ndim == 1 and value.dtype.kind in SCALARS + "O":
        plain = [pack(item, other) for item in value.tolist()]
        return {"$array": [value.dtype.str, plain]}
    if other is not None:
        return other(value)
    raise InvalidInputError(
        "folder",
        "hold only text, numbers and booleans",
        given=f"{value!r} of type {type(value).__name__}",
    )


def unpack(data: Json, other: Other | None = None) -> Any:
    """Return the value that :func:`pack` was given; ``other`` unpacks what isn't plain."""
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, list):
        return [unpack(item, other) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError("a value without a known type")
    ((kind, content),) = data.items()
    if kind == "$tuple":
        return tuple(unpack(item, other) for item in content)
    if kind == "$float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "$numpy":
        name, item = content
        return np.str_(item) if name == "str" else _dtype(name).type(unpack(item))
    if kind == "$array":
        name, items = content
        return _array(name, [unpack(item, other) for item in items])
    if other is None:
        raise ValueError(f"a value of unknown type {kind!r}")
    return other(data)


def _array(name: str, values: list[Any]) -> NDArray[Any]:
    dtype = np.dtype(object) if name == "|O" else _dtype(name)
    if dtype.itemsize * len(values) > MAX_ARRAY:
        raise ValueError(f"an array of more than {MAX_ARRAY:,} bytes")
    if dtype.kind == "U":
        lengths = [len(str(value)) for value in values]
        if dtype.itemsize > WIDE_ITEM:  # no wider than its texts
            dtype = np.dtype(f"<U{max(lengths, default=1) or 1}")
        content = dtype.alignment * (sum(lengths) + len(lengths))
        if dtype.itemsize * len(values) > max(FREE_ARRAY, MOST_PADDING * content):
            raise ValueError("an array of texts of such different lengths")
    found = np.empty(len(values), dtype)
    for i, value in enumerate(values):
        found[i] = value
    return found


def _dtype(name: object) -> np.dtype[Any]:
    found = np.dtype(name) if isinstance(name, str) else np.dtype(object)
    if found.kind not in SCALARS or found.subdtype is not None or found.itemsize > MAX_ITEM:
        raise ValueError(f"values of unknown type {name!r}")
    return found


# ---- tables ------------------------------------------------------------------------------------


def pack_table(frame: pd.DataFrame) -> dict[str, Json]:
    """Return a table of numbers by column, with its index."""
    names = [name for name in frame.index.names if name is not None]
    flat = frame.reset_index() if names else frame
    return {
        "index": names,
        "columns": {str(name): pack(column.to_numpy()) for name, column in flat.items()},
    }


def unpack_table(data: dict[str, Json]) -> pd.DataFrame:
    """Return the table that :func:`pack_table` was given."""
    frame = pd.DataFrame({name: unpack(column) for name, column in data["columns"].items()})
    return frame.set_index(data["index"]) if data["index"] else frame


# ---- columns of a model ------------------------------------------------------------------------


def pack_features(model: DialClassifier) -> dict[str, Json]:
    """Return number, names and types of the columns that a model expects; None if unknown."""
    names = getattr(model, "feature_names_in_", None)
    types = getattr(model, "feature_dtypes_", None)
    columns = getattr(model, "group_columns_", None)
    return {
        "count": getattr(model, "n_features_in_", None),
        "names": None if names is None else [str(name) for name in names],
        "dtypes": None if types is None else [[pack(n), _pack_dtype(t)] for n, t in types.items()],
    } | ({} if columns is None else {"groups": [pack(name) for name in columns]})


def unpack_features(data: dict[str, Json]) -> dict[str, Any]:
    """Return the attributes that :func:`pack_features` read."""
    found: dict[str, Any] = {}
    if data["count"] is not None:
        claim(type(data["count"]) is int and data["count"] > 0, "a number of features")
        found["n_features_in_"] = data["count"]
    if data["names"] is not None:
        names = data["names"]
        claim(len(names) == data["count"] and all(type(n) is str for n in names), "names")
        found["feature_names_in_"] = np.array(names, dtype=object)
    if data["dtypes"] is not None:
        found["feature_dtypes_"] = {unpack(n): _unpack_dtype(kind) for n, kind in data["dtypes"]}
    columns = data.get("groups")  # absent in older models, and if they had no names
    if columns is not None:
        claim(type(columns) is list and len(columns) > 1, "names of group columns")
        found["group_columns_"] = tuple(unpack(name) for name in columns)
    return found


def _pack_dtype(dtype: object) -> Json:
    """Return a column's type: its name, or its categories if they are plain."""
    if isinstance(dtype, pd.CategoricalDtype):
        with contextlib.suppress(InvalidInputError):
            values = [pack(value) for value in dtype.categories.tolist()]
            return {"categories": values, "ordered": bool(dtype.ordered)}
    return str(dtype)


def _unpack_dtype(data: Json) -> object:
    if isinstance(data, dict):
        return pd.CategoricalDtype([unpack(v) for v in data["categories"]], data["ordered"])
    try:
        return pd.api.types.pandas_dtype(data)
    except (ImportError, TypeError):  # a type of a library that isn't installed
        return np.dtype(object)


# ---- recalibration -----------------------------------------------------------------------------


def pack_platt(platt: PlattMap | None) -> dict[str, Json] | None:
    """Return each group's line."""
    if platt is None:
        return None
    return {
        "slope": pack(platt.slope),
        "intercept": pack(platt.intercept),
        "groups": pack(platt.names),
    }


def unpack_platt(data: dict[str, Json]) -> PlattMap:
    """Return the lines that :func:`pack_platt` was given, checked."""
    from fairdial.estimators.scorers import PlattMap

    slope, intercept = unpack(data["slope"]), unpack(data["intercept"])
    groups = unpack(data["groups"])
    claim(slope.shape == intercept.shape == (len(groups),), "a line for each group")
    claim(np.isfinite([slope, intercept]).all() and (slope > 0).all(), "rising lines")
    return PlattMap(slope, intercept, groups)
