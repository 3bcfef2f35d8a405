"""Plain values and tables come back equal, and of the same type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairdial import InvalidInputError, ModelFileError
from fairdial.io.values import (
    pack,
    pack_table,
    read_json,
    unpack,
    unpack_table,
    write_json,
)

NUMBERS = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.none())
NUMPY = st.one_of(
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.booleans().map(np.bool_),
    st.text().map(np.str_),
)
VALUES = st.recursive(
    NUMBERS | NUMPY,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, np.floating) and np.isnan(one):
        return bool(np.isnan(other))
    if isinstance(one, (float, np.floating)) and one == 0:
        return bool(np.signbit(one) == np.signbit(other)) and other == 0
    return bool(one == other)


def test_an_array_larger_than_any_of_ours_is_refused_before_it_is_made() -> None:
    with pytest.raises(ValueError, match="more than 134,217,728 bytes"):
        unpack({"$array": ["<U65536", [0] * 513]})


@given(VALUES)
def test_values_come_back_through_strict_json(value: Any) -> None:
    assert same(unpack(read_json(write_json(pack(value)), "file")), value)


@pytest.mark.parametrize(
    "array",
    [
        np.array([0, 1]),
        np.array([0, 1], ">i2"),
        np.array(["no", "yes"]),
        np.array([True, False]),
        np.array([0.5, -np.inf, np.nan]),
        np.array([1, "a", None, 2.5, (3, "b")], dtype=object),
        np.array([], dtype=np.float32),
        np.array(["a", ""], "<U7")[::-1],
    ],
)
def test_arrays_come_back_with_their_type(array: np.ndarray) -> None:
    found = unpack(read_json(write_json(pack(array)), "file"))
    assert found.dtype == array.dtype
    assert same(found.tolist(), array.tolist())


def test_other_types_are_refused_or_left_to_the_caller() -> None:
    for value in (1j, b"", {}, object(), np.datetime64("2020"), np.zeros((2, 2)), np.longdouble(1)):
        with pytest.raises(InvalidInputError):
            pack(value)
        assert pack([value], lambda _: "other") == ["other"]
    assert unpack({"$mine": 3}, lambda data: data["$mine"] + 1) == 4


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"a": 1, "b": 2},
        {"$unknown": 1},
        {"$float": "1.0"},
        {"$float": []},
        {"$numpy": ["object", 1]},
        {"$numpy": ["datetime64", 1]},
        {"$numpy": ["no such type", 1]},
        {"$numpy": ["int8", 1000]},
        {"$numpy": ["int8"]},
        {"$numpy": [["int8", [3]], 1]},
        {"$array": ["<U1000000000", ["a"]]},
        {"$array": ["|V8", ["a"]]},
        {"$array": ["<i8,<i8", [1]]},
        {"$array": ["<i8", ["a"]]},
        {"$array": ["<i8", 3]},
        {"$tuple": 3},
    ],
)
def test_what_was_never_packed_is_refused(data: Any) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, ArithmeticError)):
        unpack(data)


@pytest.mark.parametrize(
    "body",
    [
        b"NaN",
        b"[Infinity]",
        b"1e400",
        b'{"a": 1, "a": 1}',
        b"{'a': 1}",
        b"\xff",
        b"",
        b"[" * 10**5,
    ],
)
def test_invalid_json_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(ModelFileError, match=r"`some\.json`"):
        read_json(body, "some.json")


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [1, 2], "b": [0.1, np.nan], "c": [True, False]}),
        pd.DataFrame({"epoch": [1, 2], "b": [np.inf, -0.0]}).set_index("epoch"),
        pd.DataFrame({"s": [0.5, 0.5], "epoch": [1, 2], "b": [3, 4]}).set_index(["s", "epoch"]),
    ],
)
def test_tables_come_back(frame: pd.DataFrame) -> None:
    found = unpack_table(read_json(write_json(pack_table(frame)), "file"))
    pd.testing.assert_frame_equal(found, frame, check_exact=True)


def test_short_texts_in_wide_arrays_take_no_memory() -> None:
    found = unpack({"$array": ["<U65536", ["a", "bc"]]})
    assert found.tolist() == ["a", "bc"]
    assert found.nbytes < 100
    with pytest.raises(ValueError, match="array"):
        unpack({"$array": ["<U65536", ["a" * 65_536, *"b" * 100]]})
    wide = np.array(["x" * 3_000, "y"] * 40)
    assert unpack(pack(wide)).dtype == wide.dtype
