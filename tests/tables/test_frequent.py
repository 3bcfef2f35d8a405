"""Codes of frequent categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import OrdinalEncoder

from fairdial.tables.frequent import MANY, FrequentEncoder


def codes(values: Any) -> FrequentEncoder:
    encoder = FrequentEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    return encoder.fit(pd.DataFrame({"x": values}))


def of_objects(table: pd.DataFrame, most: int | None) -> tuple[list[list[Any]], np.ndarray]:
    """Categories and codes by scikit-learn alone, which sees the most frequent value for rare."""
    objects = table.astype(object)
    for name in objects:
        counts = objects[name].value_counts()
        often = objects[name].map(counts) >= 10
        objects[name] = objects[name].where(often, counts.index[0] if often.any() else np.nan)
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, max_categories=most
    ).fit(objects)
    codes = encoder.transform(table.astype(object))
    return [found.tolist() for found in encoder.categories_], codes


@pytest.mark.parametrize("most", [None, 30, 3])
@pytest.mark.parametrize("rows", [MANY - 1, 5 * MANY])
def test_codes_are_those_of_scikit_learn_without_rare_values(rows: int, most: int | None) -> None:
    rng = np.random.default_rng(rows)
    table = pd.DataFrame(
        {
            "many": rng.zipf(1.3, rows).astype(str),
            "few": rng.choice(np.array(["x", "y", None, np.nan], dtype=object), rows),
            "kind": pd.Categorical(rng.integers(0, 90, rows), categories=range(100)),
            "unique": [f"name {i}" for i in range(rows)],
        }
    )
    encoder = FrequentEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, max_categories=most
    )
    found = encoder.fit_transform(table)
    categories, expected = of_objects(table, most)
    np.testing.assert_array_equal(found, expected)
    assert str([c.tolist() for c in encoder.categories_]) == str(categories)


@pytest.mark.parametrize("dtype", ["category", "object", "str"])
@pytest.mark.parametrize("rows", [MANY - 10, MANY + 10])
def test_unknown_values_are_an_error_by_default(rows: int, dtype: str) -> None:
    table = pd.DataFrame({"x": pd.Series(["a", "b"] * (rows // 2), dtype=dtype), "y": "c"})
    encoder = FrequentEncoder().fit(table)
    assert np.array_equal(encoder.transform(table)[:, 0], np.arange(rows) % 2)
    with pytest.raises(ValueError, match="unknown"):
        encoder.transform(table.assign(y=["rare", *["c"] * (rows - 1)]))


@pytest.mark.parametrize("count", [1, 9, 10, 11])
def test_values_of_fewer_than_ten_rows_are_unknown(count: int) -> None:
    values = ["a"] * 50 + ["b"] * count + ["c"] * 20
    encoder, kept = codes(values), [*"abc"] if count >= 10 else [*"ac"]
    assert encoder.categories_[0].tolist() == kept
    out = encoder.transform(pd.DataFrame({"x": ["a", "b", "c", "d", None]}))[:, 0]
    expected = [kept.index(v) if v in kept else np.nan for v in ("a", "b", "c", "d", None)]
    np.testing.assert_array_equal(out, expected)


def test_if_all_values_are_rare_all_are_unknown() -> None:
    values = pd.Series([f"name {i}" for i in range(40)])
    encoder = codes(values)
    assert "name" not in str(encoder.categories_)
    assert np.isnan(encoder.transform(pd.DataFrame({"x": [*values, None]}))).all()


@pytest.mark.parametrize("later", ["category", "object", "string"])
@pytest.mark.parametrize("dtype", ["category", "object", "string"])
def test_codes_do_not_depend_on_the_type_of_text(dtype: str, later: str) -> None:
    values = pd.Series(["b", "a", "b"] * 20 + ["rare", None])
    out = codes(values.astype(dtype)).transform(pd.DataFrame({"x": values.astype(later)}))[-5:, 0]
    np.testing.assert_array_equal(out, [1, 0, 1, np.nan, np.nan])


def test_categories_of_numbers_are_numbers() -> None:
    encoder = codes(pd.Categorical([3, 1] * 20 + [7]))
    assert encoder.categories_[0].tolist() == [1, 3]
    out = encoder.transform(pd.DataFrame({"x": [3.0, 1.0, 7.0, np.nan]}))[:, 0]
    np.testing.assert_array_equal(out, [1, 0, np.nan, np.nan])
