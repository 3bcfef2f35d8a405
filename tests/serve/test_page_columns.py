"""Columns survive the way to the browser."""

from __future__ import annotations

import base64
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairdial.serve.page_columns import pack_floats, pack_ints

WHOLE = st.integers(-(2**61), 2**61)
TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(WHOLE, min_size=width, max_size=width), min_size=1, max_size=20)
)


def unpack(text: str, length: int) -> list[int]:
    """Byte by byte, as the format is described."""
    numbers: list[int] = []
    value = bits = shift = 0
    for byte in base64.b64decode(text):
        bits |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            change = bits // 2 if bits % 2 == 0 else -(bits + 1) // 2
            value = change if len(numbers) % length == 0 else value + change
            numbers.append(value)
            bits = shift = 0
    return numbers


@given(TABLES)
def test_whole_numbers_come_back_column_after_column(table):
    expected = [value for column in zip(*table, strict=True) for value in column]
    assert unpack(pack_ints(table), len(table)) == expected


@given(st.lists(st.floats(), max_size=20))
def test_doubles_come_back_to_the_last_bit(values):
    data = base64.b64decode(pack_floats(values))
    assert data == b"".join(struct.pack("<d", value) for value in values)


def test_small_changes_take_one_byte_each():
    steps = np.random.default_rng(0).integers(-63, 64, 1000)
    assert len(base64.b64decode(pack_ints(np.cumsum(steps)))) == 1000


@settings(max_examples=30)
@given(st.lists(st.integers(-(2**51), 2**51), min_size=1, max_size=30))
def test_the_browser_reads_whole_numbers(node, values):
    assert node("ints", pack_ints(values), len(values)) == values


@settings(max_examples=30)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_the_browser_reads_doubles(node, values):
    assert node("floats", pack_floats(values)) == pytest.approx(values, rel=0, abs=0)
