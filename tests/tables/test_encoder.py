"""TableEncoder: numbers, categories, tables, errors and JSON."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairdial import InvalidInputError
from fairdial.datasets import load_adult, load_compas
from fairdial.errors import FairdialWarning
from fairdial.tables.encoder import WIDE, TableEncoder, is_wide, wide_steps


def mixed_table(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Return every kind of column, with and without missing values."""
    rng = np.random.default_rng(seed)
    holes = rng.random(n) < 0.1
    words = np.array(["red", "green", "blue", "other", "missing"], dtype=object)
    return pd.DataFrame(
        {
            "real": rng.normal(size=n),
            "gappy": np.where(holes, np.nan, rng.lognormal(size=n)),
            "whole": rng.integers(0, 5, n),
            "flag": rng.random(n) < 0.3,
            "nullable": pd.array(np.where(holes, None, rng.integers(0, 90, n)), dtype="Int64"),
            "maybe": pd.array(np.where(holes, None, rng.random(n) < 0.5), dtype="boolean"),
            "text": rng.choice(words, n),
            "gappy_text": np.where(holes, None, rng.choice(words, n)),
            "string": pd.array(rng.choice(words, n), dtype="string"),
            "category": pd.Categorical(rng.choice([3, 1, 2], n)),
        }
    )


def one(values: Any, **parameters: Any) -> TableEncoder:
    """Return an encoder fitted on one column, ``x``."""
    return TableEncoder(**parameters).fit(pd.DataFrame({"x": values}))


def encode(encoder: TableEncoder, values: Any, dtype: Any = None) -> np.ndarray:
    """Return the features of rows of the column ``x``."""
    return encoder.transform(pd.DataFrame({"x": pd.Series(values, dtype=dtype)}))


def names_of(encoder: TableEncoder) -> list[str]:
    return encoder.get_feature_names_out().tolist()


# ---- numbers -----------------------------------------------------------------------------------


def test_a_number_is_scaled_by_median_and_interquartile_range_and_clipped() -> None:
    values = [2.0, 4.0, 1.0, 1e99, -1e99]
    found = encode(one([0.0, 1.0, 2.0, 3.0, 4.0]), values)[:, 0]
    assert found.tolist() == [0.0, 1.0, -0.5, 10.0, -10.0]
    values = [0.0] * 9 + [10.0]  # the interquartile range is 0
    assert encode(one(values), values)[-1, 0] == pytest.approx(10 / np.std(values))


@pytest.mark.parametrize("value", [0, 0.1, -3.7e90, True])
def test_a_constant_column_is_zero(value: float) -> None:
    encoder = one([value] * 7)
    assert names_of(encoder) == ["x"]
    assert encode(encoder, [value] * 3).tolist() == [[0.0]] * 3


def test_missing_numbers_become_the_median_and_are_marked_if_training_had_some() -> None:
    for values, median in (([1.0, 2.0, np.nan, 3.0, 9.0], 2.5), ([1.0, 2.0, 3.0, 9.0, 2.0], 2.0)):
        encoder, marked = one(values), int(np.isnan(values).any())
        missing, known = encode(encoder, [np.nan, median])
        size = len(missing) - marked
        assert np.array_equal(missing[:size], known[:size])
        assert (missing[size:].tolist(), known[size:].tolist()) == ([1.0] * marked, [0.0] * marked)
        assert ("x=missing" in names_of(encoder)) == marked


@pytest.mark.parametrize(
    "same",
    [
        pd.array([1, None, 5, 7, 8], dtype="Int64"),
        pd.array([1.0, None, 5.0, 7.0, 8.0], dtype="Float64"),
        pd.Series([1, None, 5, 7, 8], dtype=object),
        pd.Series([1, pd.NA, 5.0, 7, 8], dtype=object),
        pd.Series([1, np.nan, 5, 7, 8], dtype="float32"),
        pd.arrays.SparseArray([1, np.nan, 5, 7, 8]),
    ],
    ids=lambda values: str(values.dtype),
)
def test_every_type_of_number_gives_the_same_features(same: Any) -> None:
    expected = encode(one([1, np.nan, 5, 7, 8]), [1, np.nan, 5, 7, 8])
    for training in (same, [1, np.nan, 5, 7, 8]):
        found = one(training).transform(pd.DataFrame({"x": same}))
        assert np.array_equal(found, expected)


def test_booleans_are_zero_and_one() -> None:
    flags = np.array([True, False, True, False, False])
    assert np.array_equal(encode(one(flags), flags), encode(one(flags * 1.0), flags * 1))


def test_without_bins_a_number_is_one_feature() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    assert TableEncoder(n_bins=0).fit_transform(X).shape == (50, 3)
    assert TableEncoder(n_bins=4).fit_transform(X).shape == (50, 15)
    assert one([0, 1, 1, 0]).n_features_out_ == 1  # a single bin would add nothing


# ---- categories --------------------------------------------------------------------------------


def test_a_category_has_one_feature_and_new_values_are_other() -> None:
    encoder = one(["a", "b", "a", "b"])
    assert names_of(encoder) == ["x=a", "x=b", "x=other"]
    assert encode(encoder, ["b", "new", "a"]).tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_missing_is_a_category_if_training_had_it() -> None:
    encoder, missing = one(["a", None, "b", np.nan, pd.NA]), [None, np.nan, pd.NA, pd.NaT]
    assert names_of(encoder) == ["x=a", "x=b", "x=other", "x=missing"]
    assert encode(encoder, missing, object).tolist() == [[0, 0, 0, 1]] * 4
    assert encode(one(["a", "b"]), missing, object).tolist() == [[0, 0, 1]] * 4


@given(st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1), st.integers(1, 4))
def test_each_row_has_exactly_one_category(values: list[str | None], at_least: int) -> None:
    if any(value is not None for value in values):
        frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
        out = TableEncoder(min_frequency=at_least).fit_transform(frame)
        assert (out.sum(axis=1) == 1).all()
        assert set(np.unique(out)) <= {0.0, 1.0}


@pytest.mark.parametrize(
    ("min_frequency", "kept"), [(1, "abc"), (30, "ab"), (31, "a"), (0.3, "ab"), (0.301, "a")]
)
def test_rare_categories_are_other(min_frequency: float, kept: str) -> None:
    encoder = one(["a"] * 69 + ["b"] * 30 + ["c"], min_frequency=min_frequency)
    assert names_of(encoder) == [f"x={c}" for c in (*kept, "other")]
    assert encode(encoder, ["c"])[0, -1] == float("c" not in kept)


@pytest.mark.parametrize(
    ("rows", "enough"), [(4, 1), (100, 1), (101, 2), (900, 9), (1_000, 10), (50_000, 10)]
)
def test_ten_rows_or_one_percent_make_a_category_frequent(rows: int, enough: int) -> None:
    def kept(count: int) -> bool:
        return one(["a"] * (rows - count) + ["b"] * count).n_features_out_ == 3

    assert kept(enough)
    assert not kept(enough - 1)


def test_only_the_most_frequent_categories_are_kept() -> None:
    values = [f"c{i:03}" for i in range(200) for _ in range(i + 1)]
    encoder = one(values, max_categories=5, min_frequency=1)
    kept = [f"x=c{i}" for i in range(195, 200)]
    assert names_of(encoder) == [*kept, "x=other"]
    assert one(values, min_frequency=1).n_features_out_ == 65


def test_categories_called_other_or_missing_are_quoted() -> None:
    names = names_of(one(["other", "missing", None, 1, "1"]))
    assert names == ["x=1", "x='1'", "x='missing'", "x='other'", "x=other", "x=missing"]


@pytest.mark.parametrize("later", ["category", "object", "string"])
@pytest.mark.parametrize("dtype", ["category", "object", "string"])
def test_text_of_every_type_has_the_same_categories(dtype: str, later: str) -> None:
    values = pd.Series(["a", "b", None, "a"])
    encoder = one(values.astype(dtype))
    out = encoder.transform(pd.DataFrame({"x": values.astype(later)}))
    assert out.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]


def test_categories_are_equal_values_that_rows_have() -> None:
    assert one(pd.Categorical(["a", "b"], categories=["a", "b", "c"])).n_features_out_ == 3
    encoder = one(pd.Categorical([1, 2, 1]))
    assert encode(encoder, [2.0, np.nan]).tolist() == [[0, 1, 0], [0, 0, 1]]


# ---- rows and columns --------------------------------------------------------------------------


def test_other_rows_change_nothing() -> None:
    table = mixed_table()
    train, test = table[:300], table[300:]
    encoder = TableEncoder().fit(train)
    before = encoder.transform(train)
    encoder.transform(test.assign(real=1e9, text="new"))
    assert np.array_equal(encoder.transform(train), before)
    assert np.array_equal(encoder.transform(table)[:300], before)
    rows = np.random.default_rng(0).permutation(300)
    assert np.array_equal(encoder.transform(train.iloc[rows]), before[rows])
    assert np.array_equal(encoder.transform(train[7:8]), before[7:8])


def test_the_order_of_the_training_rows_changes_nothing_and_they_stay_as_they_are() -> None:
    table = mixed_table()
    before = table.copy(deep=True)
    encoder = TableEncoder().fit(table)
    encoder.transform(table)
    pd.testing.assert_frame_equal(table, before)
    shuffled = TableEncoder().fit(table.sample(frac=1, random_state=0))
    assert shuffled.to_json() == encoder.to_json()


def test_columns_are_found_by_name_in_any_order_and_others_are_ignored() -> None:
    table = mixed_table()
    encoder = TableEncoder().fit(table)
    turned = table[table.columns[::-1]].assign(extra=datetime.date(2020, 1, 1))
    assert np.array_equal(encoder.transform(turned), encoder.transform(table))


def test_names_of_columns_can_be_numbers() -> None:
    table = pd.DataFrame({7: [1.0, 2.0, 4.0], 3: ["a", "b", "a"]})
    encoder = TableEncoder().fit(table)
    assert names_of(encoder) == ["7", "7[0]", "7[1]", "3=a", "3=b", "3=other"]
    assert np.array_equal(encoder.transform(table[[3, 7]]), encoder.transform(table))
    again = TableEncoder.from_json(encoder.to_json())
    assert np.array_equal(again.transform(table[[3, 7]]), encoder.transform(table))


def test_arrays_are_tables_without_names() -> None:
    table = mixed_table()[["real", "gappy", "text"]]
    expected = TableEncoder().fit(table)
    encoder = TableEncoder().fit(table.to_numpy(dtype=object))
    assert np.array_equal(encoder.transform(table.to_numpy(object)), expected.transform(table))
    given = encoder.get_feature_names_out(list(table.columns))
    assert given.tolist() == names_of(expected)
    encoder = TableEncoder(n_bins=0).fit([[1, "a"], [2, "b"], [4, "a"]])
    assert names_of(encoder) == ["x0", "x1=a", "x1=b", "x1=other"]


def test_an_array_after_a_table_with_names_is_read_by_position_with_a_warning() -> None:
    table = mixed_table()[["real", "gappy"]]
    encoder = TableEncoder().fit(table)
    with pytest.warns(FairdialWarning, match="does not have valid feature names"):
        out = encoder.transform(table.to_numpy())
    assert np.array_equal(out, encoder.transform(table))


def test_a_second_fit_forgets_the_first() -> None:
    X = np.arange(12.0).reshape(6, 2)
    encoder = TableEncoder().fit(mixed_table()).fit(X)
    assert not hasattr(encoder, "feature_names_in_")
    assert encoder.to_json() == TableEncoder().fit(X).to_json()


def test_every_feature_has_a_name_of_its_own() -> None:
    encoder = TableEncoder(n_bins=16).fit(mixed_table())
    names = encoder.get_feature_names_out()
    assert len(set(names)) == len(names) == encoder.n_features_out_
    assert {"real", "real[15]", "gappy=missing", "text=red", "text='other'", "text=other"} <= {
        *names
    }
    frame = clone(encoder).set_output(transform="pandas").fit_transform(mixed_table())
    assert frame.columns.tolist() == names.tolist()


def test_nothing_is_encoded_before_fit() -> None:
    for use in (
        lambda: TableEncoder().transform(mixed_table()),
        lambda: TableEncoder().to_json(),
        lambda: TableEncoder().n_features_out_,
        lambda: TableEncoder().get_feature_names_out(),
    ):
        with pytest.raises(NotFittedError):
            use()


# ---- errors ------------------------------------------------------------------------------------

DAY = pd.Timestamp("2020-01-01")


@pytest.mark.parametrize(
    ("values", "given"),
    [
        ([DAY, DAY], "datetime"),
        ([DAY.tz_localize("UTC")] * 2, "datetime"),
        ([DAY - DAY] * 2, "timedelta"),
        ([DAY.to_period("D")] * 2, "period"),
        ([DAY.date(), None], "datetime.date"),
        (pd.Categorical([DAY, DAY]), "Timestamp"),
        ([("a",), ("b",)], "('a',)"),
        ([b"a", b"b"], "b'a'"),
        ([{"a": 1}, {}], "dict"),
        (["a", np.inf], "inf"),
        ([1.0, np.inf], "inf"),
        ([-1e101, 0.0], "-1e+101"),
        (pd.Series([10**400, 1], dtype=object), "inf"),
        ([1j, 2j], "complex"),
        ([np.nan, np.nan], "missing"),
        ([None, None], "missing"),
        (pd.array([None], dtype="Int64"), "missing"),
    ],
)
def test_columns_that_cannot_be_learned_are_named(values: Any, given: str) -> None:
    with pytest.raises(InvalidInputError, match="column 'x'") as refused:
        one(values)
    assert refused.value.argument == "X"
    assert given in str(refused.value)


@pytest.mark.parametrize("label", [7, "ann"])
def test_a_row_of_a_part_is_named_as_in_the_whole_table(label: Any) -> None:
    table = pd.DataFrame({"x": [1.0, 2.0, np.inf]}, index=[3, 5, label])
    for learn in (TableEncoder().fit, TableEncoder().fit(table[:2]).transform):
        with pytest.raises(InvalidInputError) as refused:
            learn(table[1:])
        assert refused.value.given == f"inf in the row with index {label!r}"
    with pytest.raises(InvalidInputError) as refused:
        TableEncoder().fit(table.to_numpy()[1:])  # rows of an array have no names
    assert refused.value.given == "inf"


@pytest.mark.parametrize(
    ("X", "named"),
    [
        (pd.DataFrame({"a": [1.0], "c": [2]}), "'b', 'd'"),
        (pd.DataFrame({"a": ["39"], "b": ["u"], "d": [1]}), "'39'"),
        (pd.DataFrame({"a": [-np.inf], "b": ["u"], "d": [1]}), "'a'"),
        (pd.DataFrame({"a": [DAY], "b": ["u"], "d": [1]}), "'a'"),
        (pd.DataFrame({"a": [1], "b": [DAY], "d": [1]}), "'b'"),
        (pd.DataFrame([[1, "u", 1, 1]], columns=list("abda")), "'a'"),
        (np.ones((2, 2)), "X has 2 features, but TableEncoder is expecting 3 features"),
        (np.ones(3), "Reshape your data"),
        (csr_array(np.ones((2, 3))), "parse"),
        (pd.DataFrame({"a": [], "b": [], "d": []}), "0 rows"),
    ],
)
def test_rows_that_cannot_be_encoded_are_refused(X: Any, named: str) -> None:
    encoder = TableEncoder().fit(pd.DataFrame({"a": [1, 2], "b": ["u", "v"], "d": [0, 1]}))
    with pytest.raises(InvalidInputError) as refused:
        encoder.transform(X)
    assert refused.value.argument == "X"
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("X", "named"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a' twice"),
        (pd.DataFrame({("a", "b"): [1]}), "('a', 'b')"),
        (pd.DataFrame(index=[0, 1]), "0 columns"),
        (pd.DataFrame({"x": []}), "0 rows"),
        (np.ones((2, 0)), "0 feature(s)"),
        (np.array([[DAY, 1]], dtype="datetime64[ns]"), "column 0"),
        ("text", "table"),
        (None, "table"),
    ],
)
def test_an_invalid_table_is_refused(X: Any, named: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        TableEncoder().fit(X)
    assert refused.value.argument == "X"
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("n_bins", -1),
        ("n_bins", 2.5),
        ("max_categories", 0),
        ("min_frequency", 0),
        ("min_frequency", 1.5),
        ("min_frequency", "rare"),
        ("dtype", "int8"),
    ],
)
def test_parameters_out_of_range_are_refused(parameter: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"`{parameter}`"):
        TableEncoder(**{parameter: value}).fit(mixed_table())


# ---- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"n_bins": np.int64(5), "min_frequency": 0.05}])
def test_json_gives_the_same_features_to_the_last_bit(parameters: dict[str, Any]) -> None:
    encoder = TableEncoder(**parameters).fit(mixed_table())
    again = TableEncoder.from_json(encoder.to_json())
    new = mixed_table(200, seed=1)
    assert again.transform(new).tobytes() == encoder.transform(new).tobytes()
    assert again.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()
    assert again.feature_names_in_.tolist() == encoder.feature_names_in_.tolist()
    assert again.get_params() == encoder.get_params()
    assert again.to_json() == encoder.to_json()


@given(hnp.arrays(np.float64, (20, 2), elements=st.floats(-1e100, 1e100)))
def test_json_keeps_every_number(X: np.ndarray) -> None:
    encoder = TableEncoder().fit(X)
    again = TableEncoder.from_json(encoder.to_json())
    assert again.columns_ == encoder.columns_
    assert again.transform(X).tobytes() == encoder.transform(X).tobytes()


def test_json_keeps_the_types_of_categories() -> None:
    values = ["1", 2, 2.5, True, False, np.int64(7), np.str_("e\u0301\ud800"), 10**30]
    encoder = one(pd.Series(values, dtype=object))
    (block,) = encoder.columns_
    (again,) = TableEncoder.from_json(encoder.to_json()).columns_
    assert again == block
    assert {type(value) for value in again.categories} == {str, int, float, bool}
    assert [type(value) for value in again.categories] == [type(v) for v in block.categories]


def change(change_it: Callable[[dict[str, Any]], Any]) -> str:
    """Return the JSON of a fitted encoder after a change."""
    table = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["u", "v", "u"]})
    data = json.loads(TableEncoder().fit(table).to_json())
    change_it(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        '{"format": "fairdial.frontier"}',
        change(lambda d: d.update(version=99)),
        change(lambda d: d.pop("columns")),
        change(lambda d: d.update(columns=[])),
        change(lambda d: d.update(columns=d["columns"][:1] * 2)),
        change(lambda d: d.update(parameters={"bins": 1})),
        change(lambda d: d.update(named=1)),
        change(lambda d: d["columns"][0].update(kind="date")),
        change(lambda d: d["columns"][0].update(scale=0)),
        change(lambda d: d["columns"][0].update(scale=np.nan)),
        change(lambda d: d["columns"][0].update(centre="inf")),
        change(lambda d: d["columns"][0].update(edges=[1, 3, 2])),
        change(lambda d: d["columns"][0].update(edges=[1])),
        change(lambda d: d["columns"][1].update(categories=["u", "u"])),
        change(lambda d: d["columns"][1].update(categories=[None])),
        change(lambda d: d["columns"][1].update(missing="no")),
        *(change(lambda d: d)[:end] for end in range(0, 350, 11)),
    ],
)
def test_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        TableEncoder.from_json(text)
    assert refused.value.argument == "text"


# ---- embeddings --------------------------------------------------------------------------------


FLOATS = np.random.default_rng(0).normal(size=(40, WIDE))
FRAME = pd.DataFrame(FLOATS).add_prefix("x")


NOT_WIDE = {
    "one column less": FLOATS[:, 1:],
    "one column of a frame less": FRAME.iloc[:, 1:],
    "one row": FLOATS[0],
    "pictures": FLOATS.reshape(40, 16, 16),
    "booleans": FLOATS > 0,
    "objects": FLOATS.astype(object),
    "text": FLOATS.astype(str),
    "sparse": csr_array(FLOATS),
    "sparse columns": FRAME.astype(pd.SparseDtype(float, 0.0)),
    "a text column": FRAME.assign(text="a"),
    "a boolean column": FRAME.assign(yes=True),
    "a date": FRAME.assign(day=DAY),
    "a category": FRAME.assign(kind=pd.Categorical([1, 2] * 20)),
    "lists": FLOATS.tolist(),
    "nothing": None,
}
ARE_WIDE = {
    "float64": FLOATS,
    "float16": FLOATS.astype(np.float16),
    "uint8": FLOATS.astype(np.uint8),
    "frame": FRAME,
    "float32 frame": FRAME.astype("float32"),
    "nullable": FRAME.astype("Float64"),
    "missing values": FRAME.where(FRAME > 0),
    "equal names": FRAME.set_axis([0] * WIDE, axis=1),
}


@pytest.mark.parametrize("name", [*ARE_WIDE, *NOT_WIDE])
def test_rows_of_very_many_numbers_are_embeddings(name: str) -> None:
    assert is_wide((ARE_WIDE | NOT_WIDE)[name]) == (name in ARE_WIDE)


def test_wide_rows_are_scaled_and_missing_values_are_marked() -> None:
    gaps = FRAME.where(FRAME["x0"] > 0, axis=0).assign(x1=np.nan)
    out = make_pipeline(*wide_steps()).fit(gaps).transform(gaps)
    assert out.shape == (40, 2 * WIDE)
    assert np.isfinite(out).all()
    assert np.allclose(out.mean(axis=0), 0.0)


def test_imputing_changes_nothing_without_missing_values() -> None:
    wide = np.random.default_rng(0).normal(3.0, 2.0, (50, 300)).astype(np.float32)
    encoder = make_pipeline(*wide_steps())
    assert np.array_equal(encoder.fit_transform(wide), encoder[-1].fit_transform(wide))


# ---- real tables -------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "width"), [(load_adult, 205), (load_compas, 69)])
def test_real_tables_are_encoded_and_restored(load: Callable[[], Any], width: int) -> None:
    parts = load().paper_split(0)
    encoder = TableEncoder(n_bins=16).fit(parts.train.X)
    assert encoder.n_features_out_ == width
    for part in parts:
        out = encoder.transform(part.X)
        assert out.dtype == np.float32
        assert out.shape == (len(part), width)
        assert np.isfinite(out).all()
        assert np.abs(out).max() <= 10
        assert out.flags.c_contiguous
    again = TableEncoder.from_json(encoder.to_json())
    assert again.transform(parts.test.X).tobytes() == out.tobytes()


def test_adult_encodes_in_a_fraction_of_a_second() -> None:
    X = load_adult().X
    encoder = TableEncoder()
    seconds: dict[str, list[float]] = {"fit": [], "transform": []}
    for _ in range(3):
        for verb, taken in seconds.items():
            start = time.process_time()
            getattr(encoder, verb)(X)
            taken.append(time.process_time() - start)
    assert min(seconds["fit"]) < 0.3
    assert min(seconds["transform"]) < 0.15


@parametrize_with_checks([TableEncoder(), TableEncoder(n_bins=0)])
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    check(estimator)


def test_features_have_the_requested_dtype() -> None:
    X = pd.DataFrame({"age": [20.3, 30.1, 40.7, 51.9], "job": ["cook", "cook", "nurse", "cook"]})
    fine, coarse = (TableEncoder(dtype=kind).fit(X) for kind in ("float64", "float32"))
    assert fine.transform(X).dtype == np.float64
    assert np.array_equal(fine.transform(X).astype(np.float32), coarse.transform(X))
    assert TableEncoder.from_json(fine.to_json()).transform(X).dtype == np.float64
