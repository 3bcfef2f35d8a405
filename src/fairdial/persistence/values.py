"""Plain values as strict JSON, with their types: what comes back is equal and of the same type.

Texts, whole numbers, booleans, None and lists are themselves. Whatever JSON doesn't know is an
object with one key: ``{"$tuple": [...]}``, ``{"$float": "inf"}``, ``{"$numpy": ["int64", 3]}``,
``{"$array": ["<U5", [...]]}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fairdial.errors import InvalidInputError, ModelFileError

SCALARS = "biufU"  # kinds of numpy's types that are written
WIDEST = 1 << 18  # bytes of one value
LARGEST = 1 << 27  # bytes of all values of an array
Other = Callable[[Any], Any]


def write_json(data: Any) -> bytes:
    """Strict JSON in ASCII, the same bytes for the same data."""
    return json.dumps(data, indent=1, allow_nan=False).encode()


def read_json(body: bytes, name: str) -> Any:
    """What a file of strict JSON says; NaN, infinity and repeated keys are refused."""
    try:
        return json.loads(
            body.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_no_repeats,
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"`{name}` must be strict JSON, got something else ({error}).") from (
            error
        )


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


# ---- values ------------------------------------------------------------------------------------


def pack(value: Any, other: Other | None = None) -> Any:
    """A value as JSON knows it; ``other`` packs what isn't plain.

    Examples
    --------
    >>> from fairdial.persistence.values import pack, unpack
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
        f"`folder`: {value!r} of type {type(value).__name__} can't be saved; texts, numbers and "
        "booleans can."
    )


def unpack(data: Any, other: Other | None = None) -> Any:
    """What :func:`pack` was given; ``other`` unpacks what isn't plain. ValueError: not packed."""
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


def _array(name: str, values: list[Any]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(object) if name == "|O" else _dtype(name)
    if dtype.itemsize * len(values) > LARGEST:
        raise ValueError(f"an array of more than {LARGEST:,} bytes")
    found = np.empty(len(values), dtype)
    for i, value in enumerate(values):
        found[i] = value
    return found


def _dtype(name: Any) -> np.dtype[Any]:
    found = np.dtype(name) if isinstance(name, str) else np.dtype(object)
    if found.kind not in SCALARS or found.subdtype is not None or found.itemsize > WIDEST:
        raise ValueError(f"values of unknown type {name!r}")
    return found


# ---- tables ------------------------------------------------------------------------------------


def pack_table(frame: pd.DataFrame) -> dict[str, Any]:
    """A table of numbers by column, with its index."""
    names = [name for name in frame.index.names if name is not None]
    flat = frame.reset_index() if names else frame
    return {
        "index": names,
        "columns": {str(name): pack(column.to_numpy()) for name, column in flat.items()},
    }


def unpack_table(data: dict[str, Any]) -> pd.DataFrame:
    """What :func:`pack_table` was given."""
    frame = pd.DataFrame({name: unpack(column) for name, column in data["columns"].items()})
    return frame.set_index(data["index"]) if data["index"] else frame
