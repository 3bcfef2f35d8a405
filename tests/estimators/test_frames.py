"""Tables of polars and pyarrow, and pandas' nullable and Arrow-backed columns, as features."""

from __future__ import annotations

import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fairdial import FairBayes, InvalidInputError, Network
from fairdial.tables.frames import as_pandas

KINDS = {
    "polars": polars.from_pandas,
    "pyarrow": lambda rows: pa.Table.from_pandas(rows, preserve_index=False),
    "nullable": lambda rows: rows.convert_dtypes(),
    "Arrow-backed": lambda rows: rows.convert_dtypes(dtype_backend="pyarrow"),
}
FEATURES = ["age", "hours", "job", "member"]


def people(seed):
    rng = np.random.default_rng(seed)
    n = 1500
    rows = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "hours": np.where(rng.random(n) < 0.1, np.nan, rng.normal(38, 9, n)),
            "job": rng.choice(["clerk", "nurse", None], n),
            "member": rng.random(n) < 0.5,
            "sex": rng.choice(["F", "M"], n),
            "region": rng.choice(["north", "south"], n),
            "weight": rng.integers(1, 3, n),
        }
    )
    return rows.assign(hired=np.where(rows["age"] + 15 * rng.logistic(size=n) > 45, "yes", "no"))


def make(**options):
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job"]), remainder="passthrough"
    )
    scorer = make_pipeline(encoder, HistGradientBoostingClassifier(max_iter=5, random_state=0))
    return FairBayes(scorer, random_state=0, **options)


def take(table, columns):
    return table[columns] if isinstance(table, pd.DataFrame) else table.select(columns)


@pytest.fixture(params=KINDS)
def convert(request):
    return KINDS[request.param]


def test_models_are_the_same_from_every_kind_of_table(convert):
    rows, new = people(0), people(1)
    table, other = convert(rows), convert(new)
    columns = [*FEATURES, "sex"]
    expected = make(sensitive_column="sex").fit(rows[columns], rows["hired"])
    model = make(sensitive_column="sex").fit(take(table, columns), table["hired"])
    for one in (model, expected):
        for given in (take(other, columns), new[columns]):
            np.testing.assert_array_equal(one.logits(given), expected.logits(new[columns]))
    model.calibrate(take(other, columns), other["hired"])
    expected.calibrate(new[columns], new["hired"])
    ours, theirs = (m.frontier_.at([0.05, 0.1]).thresholds for m in (model, expected))
    np.testing.assert_array_equal(ours, theirs)


def test_groups_weights_and_strata_may_be_such_tables(convert):
    rows = people(0)
    table = convert(rows)
    found, expected = (
        make().fit(
            take(given, FEATURES),
            given["hired"],
            sensitive_features=take(given, ["sex", "region"]),
            sample_weight=given["weight"],
            control_features=take(given, ["member"]),
        )
        for given in (table, rows)
    )
    assert found.frontier_.groups == expected.frontier_.groups
    np.testing.assert_array_equal(found.frontier_.gap, expected.frontier_.gap)


def test_networks_take_them(convert):
    rows = people(0)
    table = convert(rows)
    found, expected = (
        FairBayes(Network(epochs=1, hidden=(8,)), random_state=0).fit(
            take(given, FEATURES), given["hired"], sensitive_features=given["sex"]
        )
        for given in (table, rows)
    )
    np.testing.assert_array_equal(
        found.logits(take(table, FEATURES), sensitive_features=table["sex"]),
        expected.logits(rows[FEATURES], sensitive_features=rows["sex"]),
    )


def test_missing_values_survive(convert):
    rows = pd.DataFrame({"n": [1, None], "b": [True, None], "t": ["x", None]}).convert_dtypes()
    found = as_pandas(convert(rows))
    assert found.isna().to_numpy().tolist() == [[False] * 3, [True] * 3]
    assert found["n"].dtype == np.float64
    assert found.iloc[0].tolist() == [1.0, True, "x"]


def test_tables_elsewhere_are_refused():
    rows = people(0)[[*FEATURES, "sex"]]
    model = make(sensitive_column="sex").fit(rows, people(0)["hired"])
    lazy = polars.from_pandas(rows).lazy()
    for table in (dd.from_pandas(rows, npartitions=2), duckdb.from_df(rows), lazy):
        with pytest.raises(InvalidInputError) as caught:
            model.predict(table, tolerance=0.1)
        assert caught.value.argument == "X"
