"""Records are encoded as tables are, and what isn't right is refused without being repeated."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import validator_for

from fairdial import InvalidInputError, TableEncoder
from fairdial.serve.records import (
    FEW,
    LARGEST,
    BadRowError,
    Column,
    Layout,
    RecordEncoder,
    encoder_layout,
    make_table,
    table_layout,
)

RNG = np.random.default_rng(0)
TRAINING = pd.DataFrame(
    {
        "size": RNG.normal(size=400).round(2),
        "count": RNG.integers(0, 9, 400),
        "rare": np.where(RNG.random(400) < 0.1, np.nan, RNG.lognormal(size=400)),
        "flat": 3.0,
        "job": RNG.choice(["cook", "nurse", None], 400, p=[0.5, 0.4, 0.1]),
        "code": pd.Categorical(RNG.integers(0, 4, 400)),
        "mixed": RNG.choice(np.array(["x", 1, True, 2.5], dtype=object), 400),
    }
)
ENCODER = TableEncoder(n_bins=6).fit(TRAINING)
LAYOUT = encoder_layout(ENCODER)

SIZES = st.floats(-1e6, 1e6) | st.integers(-10, 10) | st.booleans() | st.none()
HUGE = st.floats(-LARGEST, LARGEST) | st.integers(-(10**60), 10**60)
WORDS = st.sampled_from(["cook", "nurse", "", "new", "x"]) | st.none()
CODES = st.sampled_from([0, 1, 2, 3, 7, 1.0, 2.5, True, False, "1", "x", None])
RECORDS = st.fixed_dictionaries(
    {
        "size": SIZES | HUGE,
        "count": SIZES,
        "rare": SIZES | HUGE | st.sampled_from([v for v in TRAINING["rare"][:20] if v == v]),
        "flat": SIZES,
        "job": WORDS,
        "code": CODES,
        "mixed": CODES | WORDS,
    }
)


def as_frame(rows):
    """The same rows as a table: numbers as numbers, everything else as objects."""
    columns = {}
    for rule in ENCODER.columns_:
        values = [row[rule.name] for row in rows]
        kind = np.float64 if rule.kind == "numeric" else object
        columns[rule.name] = pd.Series(values, dtype=kind)
    return pd.DataFrame(columns)


@given(st.lists(RECORDS, min_size=1, max_size=2 * FEW))
@settings(max_examples=150)
def test_records_are_encoded_as_a_table_is_to_the_last_bit(rows):
    found = RecordEncoder(ENCODER)(LAYOUT.records(rows))
    want = ENCODER.transform(as_frame(rows))
    assert found.dtype == want.dtype
    assert np.array_equal(found, want)


@given(st.lists(RECORDS, min_size=FEW + 1, max_size=2 * FEW))
@settings(max_examples=50)
def test_many_rows_are_encoded_as_they_are_one_by_one(rows):
    encode = RecordEncoder(ENCODER)
    alone = [encode(LAYOUT.records([row]))[0] for row in rows]
    assert np.array_equal(encode(LAYOUT.records(rows)), alone)
    assert np.array_equal(encode(rows), alone)  # records without their columns, too


GOOD = {
    "size": 0.5,
    "count": 3,
    "rare": None,
    "flat": 3,
    "job": "cook",
    "code": 1,
    "mixed": "x",
}
SECRET = 918273645.5
BAD = {
    "a number as text": GOOD | {"size": str(SECRET)},
    "NaN": GOOD | {"size": math.nan},
    "infinity": GOOD | {"size": -math.inf},
    "a number too large": GOOD | {"size": 10**400},
    "a NaN category": GOOD | {"job": math.nan},
    "a list": GOOD | {"job": [SECRET]},
    "a record in a record": GOOD | {"job": {"secret": SECRET}},
    "a missing column": {k: v for k, v in GOOD.items() if k != "count"},
    "a stranger": GOOD | {"secret": SECRET},
    "a stranger for a column": {k: v for k, v in GOOD.items() if k != "count"} | {"secret": SECRET},
    "no record": [SECRET],
    "nothing": None,
}


@pytest.mark.parametrize("rows", [1, FEW + 5], ids=["one", "many"])
@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_with_a_row_is_told_without_repeating_it(what, rows):
    given = [GOOD] * (rows - 1) + [BAD[what]]
    with pytest.raises(BadRowError, match=rf"^row {rows - 1} \(counted from 0\): ") as refused:
        LAYOUT.records(given)
    for part in ("9182", "nan", "secret", "inf,"):
        assert part not in str(refused.value)


def test_a_good_row_is_accepted_as_it_is():
    assert list(LAYOUT.records([GOOD])) == [GOOD]
    assert LAYOUT.records([GOOD] * 30).column("count") == [3] * 30


def test_rows_without_names_are_lists():
    layout = encoder_layout(TableEncoder().fit(np.array([[1.0, 2.0], [3.0, 5.0]])))
    assert not layout.named
    (row,) = layout.records([[1, None]])
    assert row == {"0": 1, "1": None}
    for bad in ([1], [1, 2, 3], {"0": 1, "1": 2}, None, "ab"):
        with pytest.raises(BadRowError, match="list of 2 values"):
            layout.records([bad])


def test_columns_that_are_alike_as_text_are_refused():
    with pytest.raises(InvalidInputError, match="differ as text"):
        Layout([Column(1, "1", "number"), Column("1", "1", "any")], named=True)


def test_a_long_list_of_columns_is_cut_in_messages():
    layout = Layout([Column(i, f"c{i}", "number") for i in range(9)], named=True)
    with pytest.raises(BadRowError, match="'c4' and 4 more only"):
        layout.records([{f"c{i}": i for i in range(10)}])


DTYPES = {
    "whole": np.dtype(np.int64),
    "real": np.dtype(np.float64),
    "flag": np.dtype(np.bool_),
    "text": pd.StringDtype(na_value=np.nan),
    "thing": np.dtype(object),
    "kind": pd.CategoricalDtype(["a", "b"]),
    "unknown": None,
}


def test_tables_have_the_types_of_the_training_rows():
    layout = table_layout(list(DTYPES), len(DTYPES), DTYPES)
    kinds = [column.kind for column in layout.columns]
    assert kinds == ["number", "number", "number", "text", "any", "any", "any"]
    rows = [
        {"whole": 1, "real": 2, "flag": True, "text": "u", "thing": 5, "kind": "a", "unknown": 1},
        {"whole": 2, "real": 0.5, "flag": False, "text": None, "thing": "w", "kind": "b"}
        | {"unknown": 2},
    ]
    table = make_table(layout, layout.records(rows))
    assert table.columns.tolist() == list(DTYPES)
    assert [str(t) for t in table.dtypes[:3]] == ["int64", "float64", "bool"]
    assert table["text"].dtype == DTYPES["text"]
    assert table["thing"].tolist() == [5, "w"]
    assert table["kind"].dtype == DTYPES["kind"]
    assert table["kind"].cat.codes.tolist() == [0, 1]


def test_a_number_that_is_missing_or_broken_makes_its_column_real_and_never_rounds():
    layout = table_layout(["n"], 1, {"n": np.dtype(np.int64)})
    for values, want in (([1, None], [1.0, np.nan]), ([1, 2.5], [1.0, 2.5]), ([10**30], [1e30])):
        column = make_table(layout, layout.records([{"n": v} for v in values]))["n"]
        assert column.dtype == np.float64
        assert np.array_equal(column, want, equal_nan=True)


def test_a_new_category_is_kept_behind_the_known_ones():
    layout = table_layout(["k"], 1, {"k": DTYPES["kind"]})
    rows = [{"k": v} for v in ("b", "new", None, "a")]
    column = make_table(layout, layout.records(rows))["k"]
    assert column.cat.categories.tolist() == ["a", "b", "new"]
    assert column.cat.codes.tolist() == [1, 2, -1, 0]


def test_a_layout_describes_the_rows_that_it_accepts():
    valid = validator_for(LAYOUT.schema()).is_valid
    assert valid(GOOD)
    for what, row in BAD.items():
        if "NaN" not in what and what != "infinity":  # JSON has none
            assert not valid(row), what
    plain = encoder_layout(TableEncoder().fit(np.array([[1.0, 2.0], [3.0, 5.0]])))
    valid = validator_for(plain.schema()).is_valid
    assert [valid(row) for row in ([1, None], [1], ["a", 1])] == [True, False, False]
    assert json.dumps(LAYOUT.schema())
