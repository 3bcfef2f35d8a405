"""Records are encoded as tables are, and bad rows are refused without being repeated."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import validator_for

from fairdial import FairBayes, InvalidInputError, TableEncoder
from fairdial.estimators.learners import boosting
from fairdial.forests.steps import Columns, apply_step, finish, start
from fairdial.serve.deciding import Decider
from fairdial.serve.record_encoders import FEW, RecordEncoder
from fairdial.serve.records import (
    LARGEST,
    BadRowError,
    Column,
    Layout,
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
ENCODERS = {
    kind: TableEncoder(n_bins=6, dtype=kind).fit(TRAINING) for kind in ("float32", "float64")
}
ENCODER = ENCODERS["float32"]
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
    """Return the same rows as a table: numbers as numbers, everything else as objects."""
    columns = {}
    for block in ENCODER.columns_:
        values = [row[block.name] for row in rows]
        kind = np.float64 if block.kind == "numeric" else object
        columns[block.name] = pd.Series(values, dtype=kind)
    return pd.DataFrame(columns)


@pytest.mark.parametrize("dtype", ENCODERS)
@given(st.lists(RECORDS, min_size=1, max_size=2 * FEW))
@settings(max_examples=150)
def test_records_are_encoded_as_a_table_is_to_the_last_bit(dtype, rows):
    encoder = ENCODERS[dtype]
    found = RecordEncoder(encoder).transform(LAYOUT.check(rows))
    want = encoder.transform(as_frame(rows))
    assert found.dtype == want.dtype
    assert np.array_equal(found, want)


@given(st.lists(RECORDS, min_size=FEW + 1, max_size=2 * FEW))
@settings(max_examples=50)
def test_many_rows_are_encoded_as_they_are_one_by_one(rows):
    encoder = RecordEncoder(ENCODER)
    alone = [encoder.transform(LAYOUT.check([row]))[0] for row in rows]
    assert np.array_equal(encoder.transform(LAYOUT.check(rows)), alone)


TABLE = pd.DataFrame(
    {
        "kind": pd.Categorical(RNG.choice(["x", "y", "z"], 400)),
        "size": TRAINING["size"],
        "job": pd.array(TRAINING["job"], dtype="str"),
        "count": TRAINING["count"],
        "text": TRAINING["mixed"].astype(str).astype(object),
        "flag": TRAINING["size"] > 0,
    }
)
STEP = boosting(["job", "kind", "text"], 0)[0].fit(TABLE)
ROWS = st.fixed_dictionaries(
    {
        "kind": CODES | st.sampled_from(["x", "y"]),
        "size": SIZES | HUGE,
        "job": WORDS,
        "count": SIZES,
        "text": CODES | WORDS,
        "flag": SIZES,
    }
)


@given(st.lists(ROWS, min_size=1, max_size=8))
@settings(max_examples=100)
def test_records_are_encoded_as_boosting_encodes_a_table(rows):
    layout = table_layout(list(TABLE), len(TABLE.columns), dict(TABLE.dtypes))
    columns = Columns(tuple(TABLE), True, dict(TABLE.dtypes))
    inputs = finish(apply_step(STEP, start(columns)), columns, missing="any")
    found = inputs.transform_records(layout.check(rows))
    want = STEP.transform(make_table(layout, rows))
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("cv", [None, 2])
def test_boosting_is_served_without_tables(cv):
    groups, y = np.arange(400) % 2, TABLE["size"] + TABLE["flag"] > 0.5
    model = FairBayes(boosting(["job", "kind", "text"], 0), cv=cv, random_state=0, min_count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(TABLE, y, sensitive_features=groups)
    decider = Decider(model)
    records = json.loads(TABLE.to_json(orient="records"))
    rows = decider.rows(records)
    assert not hasattr(rows, "columns")
    assert np.array_equal(
        decider.scores(rows, groups), model.logits(TABLE, sensitive_features=groups)
    )


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
def test_bad_rows_are_refused_without_repeating_them(what, rows):
    given = [GOOD] * (rows - 1) + [BAD[what]]
    with pytest.raises(BadRowError, match=rf"^row {rows - 1} \(counted from 0\): ") as refused:
        LAYOUT.check(given)
    assert refused.value.argument == "features"
    for part in ("9182", "nan", "secret", "inf,"):
        assert part not in str(refused.value)


def test_good_rows_are_accepted_as_they_are():
    assert LAYOUT.check([GOOD] * 30) == [GOOD] * 30


def test_rows_without_names_are_lists():
    layout = encoder_layout(TableEncoder().fit(np.array([[1.0, 2.0], [3.0, 5.0]])))
    assert not layout.named
    assert layout.check([[1, None]]) == [{"0": 1, "1": None}]
    for bad in ([1], [1, 2, 3], ["a", 1], {"0": 1, "1": 2}, None, "ab"):
        with pytest.raises(BadRowError):
            layout.check([bad])


def test_columns_that_are_alike_as_text_are_refused():
    with pytest.raises(InvalidInputError) as refused:
        Layout([Column(1, "number"), Column("1", "any")], named=True)
    assert refused.value.argument == "model"


def test_a_long_list_of_columns_is_shortened_in_messages():
    layout = Layout([Column(f"c{i}", "number") for i in range(9)], named=True)
    with pytest.raises(BadRowError, match="'c4' and 4 more"):
        layout.check([{f"c{i}": i for i in range(10)}])


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
    table = make_table(layout, layout.check(rows))
    assert table.columns.tolist() == list(DTYPES)
    assert [str(t) for t in table.dtypes[:3]] == ["int64", "float64", "bool"]
    assert table["text"].dtype == DTYPES["text"]
    assert table["thing"].tolist() == [5, "w"]
    assert table["kind"].dtype == DTYPES["kind"]
    assert table["kind"].cat.codes.tolist() == [0, 1]


def test_missing_fractional_and_huge_numbers_make_a_column_float():
    layout = table_layout(["n"], 1, {"n": np.dtype(np.int64)})
    for values, want in (([1, None], [1.0, np.nan]), ([1, 2.5], [1.0, 2.5]), ([10**30], [1e30])):
        column = make_table(layout, layout.check([{"n": v} for v in values]))["n"]
        assert column.dtype == np.float64
        assert np.array_equal(column, want, equal_nan=True)


def test_new_categories_follow_the_known_ones():
    layout = table_layout(["k"], 1, {"k": DTYPES["kind"]})
    rows = [{"k": v} for v in ("b", "new", None, "a")]
    column = make_table(layout, layout.check(rows))["k"]
    assert column.cat.categories.tolist() == ["a", "b", "new"]
    assert column.cat.codes.tolist() == [1, 2, -1, 0]


def test_the_schema_describes_the_accepted_rows():
    valid = validator_for(LAYOUT.schema()).is_valid
    assert valid(GOOD)
    for what, row in BAD.items():
        if "NaN" not in what and what != "infinity":  # not in JSON
            assert not valid(row), what
    plain = encoder_layout(TableEncoder().fit(np.array([[1.0, 2.0], [3.0, 5.0]])))
    valid = validator_for(plain.schema()).is_valid
    assert [valid(row) for row in ([1, None], [1], ["a", 1])] == [True, False, False]
    assert json.dumps(LAYOUT.schema())
