from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import config_context

from fairdial import InvalidInputError
from fairdial.paper.tarte.cells import LIMIT, Cells, Reader
from fairdial.tables.columns import as_table


def learn(table: Any, scaling: str = "robust") -> Reader:
    return Reader.learn(as_table(table, None), scaling)


def read(reader: Reader, table: Any) -> Cells:
    return reader.read(as_table(table, None), range(len(reader.names)))


def cells_of(table: Any, scaling: str = "robust") -> Cells:
    return read(learn(table, scaling), table)


def mixed(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    holes = rng.random(n) < 0.2
    return pd.DataFrame(
        {
            "age": np.where(holes, np.nan, rng.normal(40, 10, n)),
            "job": np.where(rng.random(n) < 0.2, None, rng.choice(["Cook", "nurse"], n)),
            "flag": rng.random(n) < 0.5,
            "since": pd.to_datetime(rng.choice(["1999-03-01", "2004-05-06", None], n)),
            "place": pd.Categorical(rng.choice(["Rome", "cook"], n)),
        }
    )


# ---- texts --------------------------------------------------------------------------------------


def test_texts_come_first_then_numbers_then_dates() -> None:
    assert cells_of(mixed()).names == ("job", "place", "age", "flag", "since")


def test_a_text_is_one_line_in_lower_case_and_a_name_keeps_its_case() -> None:
    cells = cells_of(pd.DataFrame({"My\nJob": ["Sous\nChef", "COOK", None]}))
    assert cells.names == ("My Job",)
    assert cells.texts == ("cook", "sous chef")
    assert cells.codes[:, 0].tolist() == [1, 0, -1]


def test_equal_texts_of_two_columns_are_one() -> None:
    cells = cells_of(mixed())
    assert cells.texts == ("cook", "nurse", "rome")
    words = np.array([*cells.texts, None], object)[cells.codes]
    for j, name in enumerate(("job", "place")):
        lower = [v.lower() if isinstance(v, str) else None for v in mixed()[name]]
        assert words[:, j].tolist() == lower


@pytest.mark.parametrize("dtype", [object, "str", "string", "category"])
def test_the_type_of_a_column_of_texts_makes_no_difference(dtype: Any) -> None:
    values = ["b", None, "a", "b"]
    table = pd.DataFrame({"x": pd.Series(values, dtype=dtype)})
    plain = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    assert cells_of(table).digest() == cells_of(plain).digest()


def test_categories_that_no_row_has_make_no_difference() -> None:
    few = pd.DataFrame({"x": pd.Categorical(["b", "c"], categories=["b", "c"])})
    many = pd.DataFrame({"x": pd.Categorical(["b", "c"], categories=["a", "b", "c", "d"])})
    assert cells_of(few).digest() == cells_of(many).digest()


def test_other_categories_are_read_as_text() -> None:
    assert cells_of(pd.DataFrame({"x": pd.Categorical([3, 1, 3])})).texts == ("1", "3")
    mixture = pd.DataFrame({"x": pd.Series(["a", 2.5, True], dtype=object)})
    assert cells_of(mixture).texts == ("2.5", "a", "true")


def test_new_texts_are_read_like_known_ones() -> None:
    reader = learn(pd.DataFrame({"x": ["a", "b"]}))
    assert read(reader, pd.DataFrame({"x": ["z", "a"]})).texts == ("a", "z")


# ---- numbers ------------------------------------------------------------------------------------


@given(hnp.arrays(np.float64, st.integers(5, 40), elements=st.integers(-50, 50).map(float)))
def test_robust_scaling_is_by_median_and_quartiles(values: np.ndarray) -> None:
    low, centre, high = np.quantile(values, (0.25, 0.5, 0.75))
    wanted = (values - centre) / ((high - low) or 1.0)
    got = cells_of(pd.DataFrame({"x": values})).numbers[:, 0]
    assert np.allclose(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scaling", ["robust", "power"])
def test_a_constant_column_becomes_0(scaling: str) -> None:
    table = pd.DataFrame({"x": [7.0] * 5, "d": pd.to_datetime(["2001-01-01"] * 5)})
    assert np.allclose(cells_of(table, scaling).numbers, 0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int64", "float32", "Int64", "bool", "boolean", object])
def test_numbers_and_booleans_of_every_type_are_numbers(dtype: Any) -> None:
    table = pd.DataFrame({"x": pd.Series([0, 1, 1, 0, 1]).astype(dtype)})
    assert np.array_equal(cells_of(table).numbers[:, 0], [-1, 0, 0, -1, 0])


@pytest.mark.parametrize("scaling", ["robust", "power"])
def test_scales_are_those_of_the_training_rows(scaling: str) -> None:
    table = pd.DataFrame({"x": np.random.default_rng(0).lognormal(size=50)})
    reader = learn(table, scaling)
    part = table.iloc[:7]
    assert np.array_equal(read(reader, part).numbers, read(reader, table).numbers[:7])


def test_what_scikit_learn_is_set_to_give_makes_no_difference() -> None:
    plain = cells_of(mixed()).digest()
    with config_context(transform_output="pandas"):
        reader = learn(mixed())
        assert read(reader, mixed()).digest() == plain
    assert read(reader, mixed()).digest() == plain


def test_missing_numbers_stay_missing() -> None:
    cells = cells_of(mixed())
    assert np.array_equal(np.isnan(cells.numbers[:, 0]), mixed()["age"].isna())
    assert np.array_equal(np.isnan(cells.numbers[:, 2]), mixed()["since"].isna())


def test_extreme_numbers_are_clipped() -> None:
    reader = learn(pd.DataFrame({"x": [0.0, 1.0, 2.0]}))
    far = read(reader, pd.DataFrame({"x": [1e90, -1e90]}))
    assert far.numbers[:, 0].tolist() == [np.float32(LIMIT), -np.float32(LIMIT)]


# ---- dates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [lambda d: d, lambda d: d.dt.tz_localize("Europe/Rome"), lambda d: d.astype("datetime64[s]")],
)
def test_dates_are_read_as_years(change: Any) -> None:
    years = ["1990-01-02", "1999-12-30", "2005-06-07", None, "2011-01-02"]
    january = ["1990-03-04", "1999-01-01", "2005-12-09", None, "2011-05-06"]
    first = change(pd.Series(pd.to_datetime(years)))
    reader = learn(pd.DataFrame({"d": first}))
    assert reader.kinds == ("date",)
    got = read(reader, pd.DataFrame({"d": first})).numbers
    again = read(reader, pd.DataFrame({"d": change(pd.Series(pd.to_datetime(january)))})).numbers
    assert np.array_equal(got, again, equal_nan=True)
    assert (np.diff(got[[0, 1, 2, 4], 0]) > 0).all()


def test_arrays_of_dates_are_dates() -> None:
    dates = np.array([["1990-01-02"], ["1999-12-30"]], "datetime64[D]")
    assert learn(dates).kinds == ("date",)


def test_a_column_of_dates_takes_dates_or_nothing() -> None:
    reader = learn(pd.DataFrame({"d": pd.to_datetime(["1990-01-02", "1999-12-30"])}))
    assert np.isnan(read(reader, pd.DataFrame({"d": [None, None]})).numbers).all()
    with pytest.raises(InvalidInputError, match=r"'d'.*got int64"):
        read(reader, pd.DataFrame({"d": [1990, 1999]}))


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, np.inf], "finite numbers .* column 'x'"),
        ([None, None], "at least one value in column 'x'"),
        (pd.to_datetime([None, None]), "at least one value in column 'x'"),
        ([np.nan, np.nan], "at least one value in column 'x'"),
        (pd.to_timedelta([1, 2]), "column 'x', got timedelta"),
        ([1j, 2j], "real numbers in column 'x'"),
        ([["a"], ["b"]], "column 'x'"),
    ],
)
def test_unreadable_columns_are_named(values: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        cells_of(pd.DataFrame({"x": pd.Series(values)}))


def test_texts_in_a_column_of_numbers_are_refused() -> None:
    reader = learn(pd.DataFrame({"x": [1.0, 2.0]}))
    with pytest.raises(InvalidInputError, match="numbers in column 'x', as the training rows did"):
        read(reader, pd.DataFrame({"x": ["1", "2"]}))


def test_numbers_too_far_away_for_a_power_are_refused() -> None:
    rare = pd.DataFrame({"x": [0.0] * 50 + [99999.0]})
    with pytest.raises(InvalidInputError, match="scaling='robust'"):
        read(learn(rare, "power"), pd.DataFrame({"x": [-1e100]}))


# ---- digest and tokens --------------------------------------------------------------------------


def test_digests_are_equal_where_the_cells_are() -> None:
    texts, numbers = (None, "a", "A", "b"), (None, 0.0, 1.0)
    reader = learn(pd.DataFrame({"t": ["a", "b"], "u": ["a", "b"], "x": [0.0, 1.0]}))
    found = {}
    for row in itertools.product(texts, texts, numbers):
        table = pd.DataFrame([row, ("b", "a", 0.5)], columns=["t", "u", "x"])
        cells = tuple(v.lower() if isinstance(v, str) else v for v in row)
        found.setdefault(cells, set()).add(read(reader, table).digest())
    assert all(len(digests) == 1 for digests in found.values())
    assert len(set.union(*found.values())) == len(found) == 3 * 3 * 3


def test_the_digest_depends_on_the_texts_not_on_their_places_alone() -> None:
    assert (
        cells_of(pd.DataFrame({"x": ["a"]})).digest()
        != cells_of(pd.DataFrame({"x": ["b"]})).digest()
    )


def test_the_digest_depends_on_the_names() -> None:
    assert (
        cells_of(pd.DataFrame({"x": ["a"]})).digest()
        != cells_of(pd.DataFrame({"y": ["a"]})).digest()
    )


def test_columns_without_names_are_numbered() -> None:
    assert cells_of(np.eye(3)).names == ("Column_0", "Column_1", "Column_2")
    assert cells_of(pd.DataFrame(np.eye(2))).names == ("0", "1")


def test_tokens_are_what_a_loop_over_cells_gives() -> None:
    cells, rng = cells_of(mixed()), np.random.default_rng(1)
    names = rng.normal(size=(5, 8)).astype(np.float32)
    words = rng.normal(size=(len(cells.texts) + 1, 8)).astype(np.float32)
    values, columns, missing = cells.tokens(slice(10, 30), names, words)
    assert values.shape == (20, 6, 8)
    assert values.dtype == columns.dtype == np.float32
    assert (values[:, 0] == 1).all()
    assert not missing[:, 0].any()
    assert np.array_equal(columns, np.vstack((np.ones(8), names)))
    for i, row in enumerate(range(10, 30)):
        for j, code in enumerate(cells.codes[row]):
            assert missing[i, 1 + j] == (code < 0)
            if code >= 0:
                assert np.array_equal(values[i, 1 + j], words[code])
        for j, number in enumerate(cells.numbers[row]):
            assert missing[i, 3 + j] == np.isnan(number)
            if not np.isnan(number):
                assert np.array_equal(values[i, 3 + j], number * names[2 + j])
    assert np.isfinite(values).all()


def test_tables_of_texts_alone_and_of_numbers_alone_have_tokens() -> None:
    names, words = np.ones((1, 4), np.float32), np.ones((2, 4), np.float32)
    for table in (pd.DataFrame({"x": ["a", None]}), pd.DataFrame({"x": [1.0, None]})):
        values, _, missing = cells_of(table).tokens(slice(None), names, words)
        assert values.shape == (2, 2, 4)
        assert missing[:, 1].tolist() == [False, True]
