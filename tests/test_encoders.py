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
from fairdial.encoders import (
    WIDE,
    Encoder,
    FrequentEncoder,
    TableEncoder,
    is_wide,
    piecewise_linear,
    quantile_edges,
    wide_steps,
)
from fairdial.errors import FairdialWarning

finite = st.floats(-1e100, 1e100)
vectors = hnp.arrays(np.float64, st.integers(1, 60), elements=finite)
lumpy = hnp.arrays(np.float64, st.integers(1, 200), elements=st.integers(0, 30).map(float))


def mixed_table(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Every kind of column, with and without missing values."""
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
    """An encoder fitted on one column, ``x``."""
    return TableEncoder(**parameters).fit(pd.DataFrame({"x": values}))


def feature(encoder: TableEncoder, values: Any, name: str) -> np.ndarray:
    """One output, by its name, for rows of the column ``x``."""
    at = encoder.get_feature_names_out().tolist().index(name)
    return encoder.transform(pd.DataFrame({"x": values}))[:, at]


# ---- edges and the piecewise-linear encoding ----------------------------------------------------


@given(st.one_of(vectors, lumpy), st.integers(1, 20))
def test_edges_rise_from_the_least_to_the_largest_value_and_are_values(
    values: np.ndarray, n_bins: int
) -> None:
    edges = quantile_edges(values, n_bins)
    assert edges[0] == values.min()
    assert edges[-1] == values.max()
    assert (np.diff(edges) > 0).all()
    assert np.isin(edges, values).all()
    assert len(edges) <= n_bins + 1


@given(lumpy)
def test_few_distinct_values_are_the_edges(values: np.ndarray) -> None:
    distinct = np.unique(values)
    assert np.array_equal(quantile_edges(values, max(len(distinct) - 1, 1)), distinct)


@given(lumpy, st.integers(1, 20))
def test_a_value_that_fills_a_bin_on_its_own_is_an_edge(values: np.ndarray, n_bins: int) -> None:
    distinct, counts = np.unique(values, return_counts=True)
    heavy = distinct[counts * n_bins > len(values)]
    assert np.isin(heavy, quantile_edges(values, n_bins)).all()


def test_a_column_that_is_mostly_zero_keeps_all_its_bins() -> None:
    values = np.r_[np.zeros(9_000), np.arange(1.0, 1_001.0)]
    assert len(quantile_edges(values, 16)) == 17


@given(st.integers(1, 20), st.integers(0, 9))
def test_bins_of_distinct_values_hold_equally_many_rows(n_bins: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=333)
    counts = np.histogram(values, quantile_edges(values, n_bins))[0]
    assert counts.max() - counts.min() <= 2


@given(vectors, st.integers(2, 20), hnp.arrays(np.float64, 30, elements=finite))
def test_components_lie_in_the_unit_interval_and_rise_with_the_value(
    values: np.ndarray, n_bins: int, new: np.ndarray
) -> None:
    edges = quantile_edges(values, n_bins)
    if len(edges) > 1:
        components = piecewise_linear(np.sort(np.r_[values, new]), edges)
        assert components.dtype == np.float32
        assert components.min() >= 0
        assert components.max() <= 1
        assert (np.diff(components, axis=0) >= 0).all()
        assert (np.diff(components, axis=1) <= 0).all()  # bins fill one after the other


@given(lumpy, st.integers(2, 20), hnp.arrays(np.float64, 30, elements=st.floats(-9, 40)))
def test_components_add_up_to_the_place_among_the_edges(
    values: np.ndarray, n_bins: int, new: np.ndarray
) -> None:
    edges = quantile_edges(values, n_bins)
    if len(edges) > 1:
        place = np.interp(new, edges, np.arange(len(edges)))
        total = piecewise_linear(new, edges).sum(axis=1, dtype=np.float64)
        assert np.allclose(total, place, rtol=0, atol=1e-6)


def test_components_add_up_to_the_rank_within_one_bin() -> None:
    values = np.random.default_rng(0).lognormal(size=1_000)
    rank = np.argsort(np.argsort(values)) / 999
    total = piecewise_linear(values, quantile_edges(values, 16)).sum(axis=1) / 16
    assert np.abs(total - rank).max() < 1 / 16


# ---- numbers -----------------------------------------------------------------------------------


def test_a_number_is_scaled_by_median_and_interquartile_range() -> None:
    encoder = one([0.0, 1.0, 2.0, 3.0, 4.0])
    assert feature(encoder, [2.0, 4.0, 1.0], "x").tolist() == [0.0, 1.0, -0.5]


def test_a_quartile_range_of_zero_falls_back_to_the_standard_deviation() -> None:
    values = [0.0] * 9 + [10.0]
    assert feature(one(values), values, "x")[-1] == pytest.approx(10 / np.std(values))


def test_outliers_end_at_ten() -> None:
    encoder = one(np.arange(100.0))
    assert feature(encoder, [1e99, -1e99], "x").tolist() == [10.0, -10.0]


@pytest.mark.parametrize("value", [0, 0.1, -3.7e90, True])
def test_a_constant_column_is_zero(value: float) -> None:
    encoder = one([value] * 7)
    assert encoder.get_feature_names_out().tolist() == ["x"]
    assert encoder.transform(pd.DataFrame({"x": [value] * 3})).tolist() == [[0.0]] * 3


def test_missing_numbers_become_the_median_and_are_marked() -> None:
    encoder = one([1.0, 2.0, np.nan, 3.0, 9.0])
    out = encoder.transform(pd.DataFrame({"x": [np.nan, 2.5]}))
    assert np.array_equal(out[0, :-1], out[1, :-1])
    assert out[:, -1].tolist() == [1.0, 0.0]
    assert encoder.get_feature_names_out()[-1] == "x=missing"


def test_numbers_that_go_missing_after_training_become_the_median() -> None:
    encoder = one([1.0, 2.0, 3.0, 9.0, 2.0])
    assert "x=missing" not in encoder.get_feature_names_out()
    gap, median = encoder.transform(pd.DataFrame({"x": [np.nan, 2.0]}))
    assert np.array_equal(gap, median)


def test_booleans_are_zero_and_one() -> None:
    flags = np.array([True, False, True, False, False])
    expected = one(flags.astype(float)).transform(pd.DataFrame({"x": flags.astype(int)}))
    assert np.array_equal(one(flags).transform(pd.DataFrame({"x": flags})), expected)


def test_two_values_need_no_bins() -> None:
    assert one([0, 1, 1, 0]).n_features_out_ == 1


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
    frame = pd.DataFrame({"x": [1, np.nan, 5, 7, 8]})
    expected = TableEncoder().fit_transform(frame)
    assert np.array_equal(TableEncoder().fit_transform(pd.DataFrame({"x": same})), expected)
    assert np.array_equal(TableEncoder().fit(frame).transform(pd.DataFrame({"x": same})), expected)


def test_without_bins_a_number_is_one_feature() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    assert TableEncoder(n_bins=0).fit_transform(X).shape == (50, 3)
    assert TableEncoder(n_bins=4).fit_transform(X).shape == (50, 15)


# ---- categories --------------------------------------------------------------------------------


def test_a_category_has_one_output_and_a_new_one_goes_to_other() -> None:
    encoder = one(["a", "b", "a", "b"])
    assert encoder.get_feature_names_out().tolist() == ["x=a", "x=b", "x=other"]
    out = encoder.transform(pd.DataFrame({"x": ["b", "new", "a"]}))
    assert out.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_missing_is_a_category_of_its_own_if_training_had_it() -> None:
    encoder = one(["a", None, "b", np.nan, pd.NA])
    assert encoder.get_feature_names_out().tolist() == ["x=a", "x=b", "x=other", "x=missing"]
    gaps = pd.DataFrame({"x": pd.Series([None, np.nan, pd.NA, pd.NaT], dtype=object)})
    assert encoder.transform(gaps).tolist() == [[0, 0, 0, 1]] * 4
    assert one(["a", "b"]).transform(gaps).tolist() == [[0, 0, 1]] * 4


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
def test_rare_categories_go_to_other(min_frequency: float, kept: str) -> None:
    encoder = one(["a"] * 69 + ["b"] * 30 + ["c"], min_frequency=min_frequency)
    assert encoder.get_feature_names_out().tolist() == [f"x={c}" for c in (*kept, "other")]
    assert feature(encoder, ["c"], "x=other").tolist() == [float("c" not in kept)]


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
    assert encoder.get_feature_names_out().tolist() == [*kept, "x=other"]
    assert one(values, min_frequency=1).n_features_out_ == 65


def test_categories_called_other_or_missing_are_put_in_quotes() -> None:
    names = one(["other", "missing", None, 1, "1"]).get_feature_names_out().tolist()
    assert names == ["x=1", "x='1'", "x='missing'", "x='other'", "x=other", "x=missing"]


@pytest.mark.parametrize("later", ["category", "object", "string"])
@pytest.mark.parametrize("dtype", ["category", "object", "string"])
def test_texts_of_every_type_are_the_same_categories(dtype: str, later: str) -> None:
    values = pd.Series(["a", "b", None, "a"])
    encoder = one(values.astype(dtype))
    out = encoder.transform(pd.DataFrame({"x": values.astype(later)}))
    assert out.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]


def test_categories_nobody_has_are_left_out() -> None:
    encoder = one(pd.Categorical(["a", "b"], categories=["a", "b", "c"]))
    assert encoder.n_features_out_ == 3


def test_whole_numbers_that_became_floats_stay_the_same_category() -> None:
    encoder = one(pd.Categorical([1, 2, 1]))
    assert encoder.transform(pd.DataFrame({"x": [2.0, np.nan]})).tolist() == [[0, 1, 0], [0, 0, 1]]


# ---- categories for trees ----------------------------------------------------------------------


def codes(values: Any) -> FrequentEncoder:
    encoder = FrequentEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    return encoder.fit(pd.DataFrame({"x": values}))


@pytest.mark.parametrize("count", [1, 9, 10, 11])
def test_a_value_of_fewer_than_ten_rows_is_forgotten(count: int) -> None:
    values = ["a"] * 50 + ["b"] * count + ["c"] * 20
    encoder, kept = codes(values), [*"abc"] if count >= 10 else [*"ac"]
    assert encoder.categories_[0].tolist() == kept
    out = encoder.transform(pd.DataFrame({"x": ["a", "b", "c", "d", None]}))[:, 0]
    expected = [kept.index(v) if v in kept else np.nan for v in ("a", "b", "c", "d", None)]
    np.testing.assert_array_equal(out, expected)


def test_where_all_values_are_rare_all_are_unknown() -> None:
    values = pd.Series([f"name {i}" for i in range(40)])
    encoder = codes(values)
    assert "name" not in str(encoder.categories_)
    assert np.isnan(encoder.transform(pd.DataFrame({"x": [*values, None]}))).all()


@pytest.mark.parametrize("later", ["category", "object", "string"])
@pytest.mark.parametrize("dtype", ["category", "object", "string"])
def test_codes_do_not_depend_on_the_type_of_texts(dtype: str, later: str) -> None:
    values = pd.Series(["b", "a", "b"] * 20 + ["rare", None])
    out = codes(values.astype(dtype)).transform(pd.DataFrame({"x": values.astype(later)}))[-5:, 0]
    np.testing.assert_array_equal(out, [1, 0, 1, np.nan, np.nan])


def test_categories_of_numbers_are_numbers() -> None:
    encoder = codes(pd.Categorical([3, 1] * 20 + [7]))
    assert encoder.categories_[0].tolist() == [1, 3]
    out = encoder.transform(pd.DataFrame({"x": [3.0, 1.0, 7.0, np.nan]}))[:, 0]
    np.testing.assert_array_equal(out, [1, 0, np.nan, np.nan])


# ---- rows and columns --------------------------------------------------------------------------


def test_features_are_finite_float32_row_after_row() -> None:
    out = TableEncoder().fit_transform(mixed_table())
    assert out.dtype == np.float32
    assert out.flags.c_contiguous
    assert np.isfinite(out).all()
    assert np.abs(out).max() <= 10


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


def test_the_order_of_the_training_rows_changes_nothing() -> None:
    table = mixed_table()
    shuffled = TableEncoder().fit(table.sample(frac=1, random_state=0))
    assert shuffled.to_json() == TableEncoder().fit(table).to_json()


def test_the_table_is_left_as_it_was() -> None:
    table = mixed_table()
    before = table.copy(deep=True)
    TableEncoder().fit(table).transform(table)
    pd.testing.assert_frame_equal(table, before)


def test_columns_are_found_by_name_in_any_order_and_others_are_ignored() -> None:
    table = mixed_table()
    encoder = TableEncoder().fit(table)
    turned = table[table.columns[::-1]].assign(extra=datetime.date(2020, 1, 1))
    assert np.array_equal(encoder.transform(turned), encoder.transform(table))


def test_names_of_columns_can_be_numbers() -> None:
    table = pd.DataFrame({7: [1.0, 2.0, 4.0], 3: ["a", "b", "a"]})
    encoder = TableEncoder().fit(table)
    assert encoder.get_feature_names_out().tolist() == [
        *("7", "7[0]", "7[1]"),
        *("3=a", "3=b", "3=other"),
    ]
    assert np.array_equal(encoder.transform(table[[3, 7]]), encoder.transform(table))
    again = TableEncoder.from_json(encoder.to_json())
    assert np.array_equal(again.transform(table[[3, 7]]), encoder.transform(table))


def test_arrays_are_tables_without_names() -> None:
    table = mixed_table()[["real", "gappy", "text"]]
    expected = TableEncoder().fit(table)
    encoder = TableEncoder().fit(table.to_numpy(dtype=object))
    assert np.array_equal(encoder.transform(table.to_numpy(object)), expected.transform(table))
    assert encoder.get_feature_names_out()[0] == "x0"
    given = encoder.get_feature_names_out(list(table.columns))
    assert given.tolist() == expected.get_feature_names_out().tolist()


def test_numbers_beside_texts_in_a_list_stay_numbers() -> None:
    encoder = TableEncoder(n_bins=0).fit([[1, "a"], [2, "b"], [4, "a"]])
    assert encoder.get_feature_names_out().tolist() == ["x0", "x1=a", "x1=b", "x1=other"]


def test_an_array_after_a_table_with_names_is_read_by_position_with_a_warning() -> None:
    table = mixed_table()[["real", "gappy"]]
    encoder = TableEncoder().fit(table)
    with pytest.warns(FairdialWarning, match="does not have valid feature names"):
        out = encoder.transform(table.to_numpy())
    assert np.array_equal(out, encoder.transform(table))


def test_a_single_row_can_be_learned_and_encoded() -> None:
    table = mixed_table().dropna()[:1]
    assert np.isfinite(TableEncoder().fit_transform(table)).all()


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


def test_the_encoder_is_an_encoder() -> None:
    def width(encoder: Encoder) -> int:
        return encoder.fit(mixed_table()).transform(mixed_table(9)).shape[1]

    encoder = TableEncoder()
    assert width(encoder) == encoder.n_features_out_


def test_nothing_is_encoded_before_fit() -> None:
    for use in (
        lambda: TableEncoder().transform(mixed_table()),
        lambda: TableEncoder().to_json(),
        lambda: TableEncoder().n_features_out_,
        lambda: TableEncoder().get_feature_names_out(),
    ):
        with pytest.raises(NotFittedError):
            use()


# ---- what is refused ---------------------------------------------------------------------------

DAY = pd.Timestamp("2020-01-01")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([DAY, DAY], "column 'x' must hold numbers or categories, got datetime.*Turn dates"),
        ([DAY.tz_localize("UTC")] * 2, "column 'x' .* got datetime.*Turn dates"),
        ([DAY - DAY] * 2, "column 'x' .* got timedelta.*Turn durations"),
        ([DAY.to_period("D")] * 2, "column 'x' .* got period.*Turn dates"),
        ([DAY.date(), None], r"column 'x' must hold texts.* got datetime\.date"),
        (pd.Categorical([DAY, DAY]), "column 'x' must hold texts.* got Timestamp"),
        ([("a",), ("b",)], "column 'x' must hold texts.* got \\('a',\\)"),
        ([b"a", b"b"], "column 'x' must hold texts.* got b'a'"),
        ([{"a": 1}, {}], "column 'x' must hold texts"),
        (["a", np.inf], "column 'x' must hold texts, finite numbers or booleans, got inf"),
        ([1.0, np.inf], "column 'x' must hold finite numbers .* got inf in the row with index 1"),
        (
            [-1e101, 0.0],
            r"column 'x' must hold finite numbers .* got -1e\+101 in the row with index 0",
        ),
        (pd.Series([10**400, 1], dtype=object), "column 'x' must hold finite numbers"),
        ([1j, 2j], "column 'x' must hold real numbers"),
        ([np.nan, np.nan], "column 'x' must hold at least one value.*Drop the column"),
        ([None, None], "column 'x' must hold at least one value.*Drop the column"),
        (pd.array([None], dtype="Int64"), "column 'x' must hold at least one value"),
        ([], "at least one row, got 0 rows"),
    ],
)
def test_columns_that_cannot_be_learned_are_named(values: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        one(values)


@pytest.mark.parametrize("label", [7, "ann"])
def test_a_row_of_a_part_is_named_as_in_the_whole_table(label: Any) -> None:
    table = pd.DataFrame({"x": [1.0, 2.0, np.inf]}, index=[3, 5, label])
    for learn in (TableEncoder().fit, TableEncoder().fit(table[:2]).transform):
        with pytest.raises(InvalidInputError, match=f"got inf in the row with index {label!r}.$"):
            learn(table[1:])
    with pytest.raises(InvalidInputError, match=r"column 0 must hold finite .*, got inf.$"):
        TableEncoder().fit(table.to_numpy()[1:])  # of an array, no one knows


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (pd.DataFrame({"a": [1.0], "c": [2]}), "none called 'b', 'd'; there are 'a', 'c'"),
        (pd.DataFrame({"a": ["39"], "b": ["u"], "d": [1]}), "column 'a' must hold numbers.*'39'"),
        (pd.DataFrame({"a": [-np.inf], "b": ["u"], "d": [1]}), "column 'a' .* got -inf in the row"),
        (pd.DataFrame({"a": [DAY], "b": ["u"], "d": [1]}), "column 'a' must hold numbers"),
        (pd.DataFrame({"a": [1], "b": [DAY], "d": [1]}), "column 'b' must hold texts"),
        (pd.DataFrame([[1, "u", 1, 1]], columns=list("abda")), "every column differently"),
        (np.ones((2, 2)), "X has 2 features, but TableEncoder is expecting 3 features"),
        (np.ones(3), "Reshape your data"),
        (csr_array(np.ones((2, 3))), "[Ss]parse"),
        (pd.DataFrame({"a": [], "b": [], "d": []}), "at least one row, got 0 rows"),
    ],
)
def test_rows_that_cannot_be_encoded_are_refused(X: Any, message: str) -> None:
    encoder = TableEncoder().fit(pd.DataFrame({"a": [1, 2], "b": ["u", "v"], "d": [0, 1]}))
    with pytest.raises(InvalidInputError, match=message):
        encoder.transform(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "every column differently, got 'a' twice"),
        (pd.DataFrame({("a", "b"): [1]}), "name its columns by texts or numbers"),
        (pd.DataFrame(index=[0, 1]), "at least one column, got 0 columns"),
        (np.ones((2, 0)), r"0 feature\(s\)"),
        (np.array([[DAY, 1]], dtype="datetime64[ns]"), "column 0 .* got datetime64"),
        ("text", "`X` must be a table"),
        (None, "`X` must be a table"),
    ],
)
def test_what_is_no_table_is_refused(X: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        TableEncoder().fit(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_bins": -1}, "`n_bins` must be a whole number >= 0, got -1"),
        ({"n_bins": 2.5}, "`n_bins` must be a whole number"),
        ({"max_categories": 0}, "`max_categories` must be a whole number >= 1, got 0"),
        ({"min_frequency": 0}, "`min_frequency` must be a whole number >= 1, got 0"),
        ({"min_frequency": 1.5}, "`min_frequency` must lie strictly between 0 and 1, got 1.5"),
        ({"min_frequency": "rare"}, "`min_frequency` must be a number of rows.*got 'rare'"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        TableEncoder(**parameters).fit(mixed_table())


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
    (rule,) = encoder.columns_
    (again,) = TableEncoder.from_json(encoder.to_json()).columns_
    assert again == rule
    assert {type(value) for value in again.categories} == {str, int, float, bool}
    assert [type(value) for value in again.categories] == [type(v) for v in rule.categories]


def change(change_it: Callable[[dict[str, Any]], Any]) -> str:
    """The text of a fitted encoder after a change."""
    table = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["u", "v", "u"]})
    data = json.loads(TableEncoder().fit(table).to_json())
    change_it(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be what TableEncoder.to_json wrote"),
        ("[]", "must be what TableEncoder.to_json wrote"),
        ("null", "must be what TableEncoder.to_json wrote"),
        ("[" * 100_000, "must be what TableEncoder.to_json wrote"),
        ('{"format": "fairdial.frontier"}', "must be a table encoder, got 'fairdial.frontier'"),
        (change(lambda d: d.update(version=99)), "version 99, .* reads up to 1; install a newer"),
        (change(lambda d: d.pop("columns")), "KeyError: 'columns'"),
        (change(lambda d: d.update(columns=[])), "no columns"),
        (change(lambda d: d.update(columns=d["columns"][:1] * 2)), "two with one name"),
        (change(lambda d: d.update(parameters={"bins": 1})), "bins"),
        (change(lambda d: d.update(named=1)), "neither true nor false"),
        (change(lambda d: d["columns"][0].update(kind="date")), "KeyError: 'date'"),
        (change(lambda d: d["columns"][0].update(scale=0)), "scale and edges of column 'a'"),
        (change(lambda d: d["columns"][0].update(scale=np.nan)), "NaN is not a finite"),
        (change(lambda d: d["columns"][0].update(centre="inf")), "scale and edges"),
        (change(lambda d: d["columns"][0].update(edges=[1, 3, 2])), "scale and edges"),
        (change(lambda d: d["columns"][0].update(edges=[1])), "scale and edges"),
        (change(lambda d: d["columns"][1].update(categories=["u", "u"])), "repeated categories"),
        (change(lambda d: d["columns"][1].update(categories=[None])), "neither a text"),
        (change(lambda d: d["columns"][1].update(missing="no")), "neither true nor false"),
    ],
)
def test_texts_that_are_no_encoder_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        TableEncoder.from_json(text)


@pytest.mark.parametrize("end", range(0, 350, 11))
def test_a_text_that_was_cut_off_is_refused(end: int) -> None:
    with pytest.raises(InvalidInputError):
        TableEncoder.from_json(change(lambda data: data)[:end])


# ---- embeddings --------------------------------------------------------------------------------


FLOATS = np.random.default_rng(0).normal(size=(40, WIDE))
FRAME = pd.DataFrame(FLOATS).add_prefix("x")


@pytest.mark.parametrize(
    "X",
    [
        FLOATS,
        FLOATS.astype(np.float16),
        FLOATS.astype(np.uint8),
        FRAME,
        FRAME.astype("float32"),
        FRAME.astype("Float64"),
        FRAME.where(FRAME > 0),
        FRAME.set_axis([0] * WIDE, axis=1),
    ],
)
def test_rows_of_very_many_numbers_are_wide(X: Any) -> None:
    assert is_wide(X)


@pytest.mark.parametrize(
    "X",
    [
        FLOATS[:, 1:],
        FRAME.iloc[:, 1:],
        FLOATS[0],
        FLOATS.reshape(40, 16, 16),
        FLOATS > 0,
        FLOATS.astype(object),
        FLOATS.astype(str),
        csr_array(FLOATS),
        FRAME.astype(pd.SparseDtype(float, 0.0)),
        FRAME.assign(text="a"),
        FRAME.assign(yes=True),
        FRAME.assign(day=pd.Timestamp("2020-01-01")),
        FRAME.assign(kind=pd.Categorical([1, 2] * 20)),
        FLOATS.tolist(),
        None,
    ],
)
def test_other_rows_are_not_wide(X: Any) -> None:
    assert not is_wide(X)


def test_wide_rows_are_scaled_and_their_gaps_are_marked() -> None:
    gaps = FRAME.where(FRAME["x0"] > 0, axis=0).assign(x1=np.nan)
    out = make_pipeline(*wide_steps()).fit(gaps).transform(gaps)
    assert out.shape == (40, 2 * WIDE)
    assert np.isfinite(out).all()
    assert np.allclose(out.mean(axis=0), 0.0)


def test_numbers_that_are_all_there_are_scaled_as_without_imputing() -> None:
    wide = np.random.default_rng(0).normal(3.0, 2.0, (50, 300)).astype(np.float32)
    encoder = make_pipeline(*wide_steps())
    assert np.array_equal(encoder.fit_transform(wide), encoder[-1].fit_transform(wide))


# ---- real tables -------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "width"), [(load_adult, 205), (load_compas, 69)])
def test_real_tables_encode_without_surprises(load: Callable[[], Any], width: int) -> None:
    parts = load().paper_split(0)
    encoder = TableEncoder(n_bins=16).fit(parts.train.X)
    assert encoder.n_features_out_ == width
    for part in parts:
        out = encoder.transform(part.X)
        assert out.dtype == np.float32
        assert out.shape == (len(part), width)
        assert np.isfinite(out).all()
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


def test_features_are_of_the_type_that_was_asked_for() -> None:
    X = pd.DataFrame({"age": [20.3, 30.1, 40.7, 51.9], "job": ["cook", "cook", "nurse", "cook"]})
    fine, coarse = (TableEncoder(dtype=kind).fit(X) for kind in ("float64", "float32"))
    assert fine.transform(X).dtype == np.float64
    assert np.array_equal(fine.transform(X).astype(np.float32), coarse.transform(X))
    assert TableEncoder.from_json(fine.to_json()).transform(X).dtype == np.float64
    with pytest.raises(InvalidInputError, match="`dtype`"):
        TableEncoder(dtype="int8").fit(X)
