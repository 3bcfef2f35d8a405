"""Every engine answers as one process does: tables of this process first."""

from __future__ import annotations

import copy

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes, InvalidInputError, ScoreSummary, UnknownGroupError, load
from fairdial.estimators.learners import boosting
from fairdial.large import calibrate, decide, evaluate, evaluate_counts
from fairdial.large import engines as adapters
from fairdial.metrics import gap, group_table

from .conftest import FEATURES, TOLERANCES, make_people

LABEL = {"label": "hired"}


def as_dataset(rows, folder):
    folder.mkdir()
    for part in range(3):
        table = pa.Table.from_pandas(rows[part::3], preserve_index=False)
        pa.parquet.write_table(table, folder / f"{part}.parquet")
    pa.parquet.write_table(table.slice(0, 0), folder / "empty.parquet")
    return pa.dataset.dataset(folder)


KINDS = {
    "pandas": lambda rows, _: rows,
    "pandas nullable": lambda rows, _: rows.convert_dtypes(),
    "pandas of Arrow": lambda rows, _: rows.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda rows, _: polars.from_pandas(rows),
    "polars lazy": lambda rows, _: polars.from_pandas(rows).lazy(),
    "pyarrow": lambda rows, _: pa.Table.from_pandas(rows, preserve_index=False),
    "Parquet": lambda rows, folder: as_dataset(rows, folder / "rows"),
    "DuckDB": lambda rows, _: duckdb.from_df(rows),
}


def as_pandas(table):
    if isinstance(table, polars.LazyFrame):
        table = table.collect()
    if isinstance(table, pa.RecordBatchReader):
        table = table.read_all()
    return table if isinstance(table, pd.DataFrame) else table.to_pandas()


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    for module in ("local", "arrow"):
        __import__(f"fairdial.large.engines.{module}")
        monkeypatch.setattr(getattr(adapters, module), "BATCH", 3000)


@pytest.fixture(params=KINDS)
def table(request, people, tmp_path):
    return KINDS[request.param](people, tmp_path)


def check_decisions(found, people, model, tolerance):
    """The decisions of one process, in the order of the identifiers, beside all other columns."""
    X = people[[*model.feature_names_in_, "sex"]]
    assert list(found.columns) == [*people.columns, "decision", "margin", "logit"]
    found = found.sort_values("id", ignore_index=True)
    assert (found["decision"].to_numpy(object) == model.predict(X, tolerance=tolerance)).all()
    margins = model.decision_function(X, tolerance=tolerance)
    np.testing.assert_array_equal(found["margin"].to_numpy(float), margins)
    np.testing.assert_array_equal(found["logit"].to_numpy(float), model.logits(X))
    for name in people.columns:
        same = (found[name] == people[name]) | (found[name].isna() & people[name].isna())
        assert same.all()


def check_frontier(found, people, model):
    """The answers of one process."""
    expected = copy.deepcopy(model).calibrate(
        people[[*model.feature_names_in_, "sex"]], people["hired"]
    )
    for column in ("thresholds", "gap", "accuracy", "counts", "selected"):
        ours, theirs = (getattr(m.frontier_.at(TOLERANCES), column) for m in (found, expected))
        np.testing.assert_array_equal(ours, theirs)


def check_evaluation(found, people, model, tolerance):
    """The figures of one process."""
    decisions = model.predict(people[[*model.feature_names_in_, "sex"]], tolerance=tolerance)
    assert found.accuracy == (decisions == people["hired"]).mean()
    where = {"sensitive_features": people["sex"], "pos_label": "yes"}
    assert found.gap == gap(people["hired"], decisions, **where)
    table = group_table(people["hired"], decisions, **where)
    assert found.cells.sum(axis=0).tolist() == table["rows"].tolist()
    assert found.gap_interval[0] <= found.gap <= found.gap_interval[1]
    assert found.accuracy_interval[0] < found.accuracy < found.accuracy_interval[1]


def test_decisions_are_those_of_one_process(table, people, boosted):
    found = decide(table, boosted, tolerance=0.05)
    check_decisions(as_pandas(found), people, boosted, 0.05)


def test_calibration_is_that_of_one_process(table, people, boosted):
    model = calibrate(table, copy.deepcopy(boosted), **LABEL, tolerances=TOLERANCES)
    check_frontier(model, people, boosted)


def test_figures_are_those_of_one_process(table, people, boosted):
    check_evaluation(evaluate(table, boosted, **LABEL, tolerance=0.05), people, boosted, 0.05)


def test_bins_alone_keep_the_tolerance(people, boosted):
    model = calibrate(polars.from_pandas(people), copy.deepcopy(boosted), **LABEL)
    logits = boosted.logits(people[[*FEATURES, "sex"]])
    summary = ScoreSummary.from_scores(logits, people["sex"], people["hired"] == "yes")
    ours, theirs = model.frontier_.at(TOLERANCES), summary.to_frontier().at(TOLERANCES)
    np.testing.assert_array_equal(ours.thresholds, theirs.thresholds)
    assert (ours.gap <= TOLERANCES).all()


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("control", [None, "region"])
def test_weights_and_strata(people, linear, weight, control):
    rows = people.fillna({"hours": 38.0})
    given = {"label": "hired", "weight": weight, "control": control}
    exact = None if control else TOLERANCES
    model = calibrate(polars.from_pandas(rows), copy.deepcopy(linear), **given, tolerances=exact)
    kept = rows[rows["weight"] > 0] if weight else rows
    options = {"sample_weight": kept["weight"]} if weight else {}
    if control is None:
        other = copy.deepcopy(linear)
        other.calibrate(kept[["age", "hours", "sex"]], kept["hired"], **options)
        ours, theirs = (m.frontier_.at(TOLERANCES) for m in (model, other))
        np.testing.assert_array_equal(ours.thresholds, theirs.thresholds)
    measured = evaluate(rows, model, **given, tolerance=0.1)
    chosen = model.predict(rows[["age", "hours", "sex"]], tolerance=0.1)
    options = {"sample_weight": rows["weight"]} if weight else {}
    options |= {"control_features": rows["region"]} if control else {}
    where = {"sensitive_features": rows["sex"], "pos_label": "yes", **options}
    assert measured.gap == pytest.approx(gap(rows["hired"], chosen, **where), rel=1e-12)
    assert (measured.gap_interval is None) == (weight is not None)
    assert measured.gap <= 0.1


def test_stored_scores_save_scoring_again(people, boosted):
    scored = decide(polars.from_pandas(people), boosted, tolerance=0.05)
    scored = scored.select("sex", "hired", "logit")  # no features
    model = calibrate(scored, copy.deepcopy(boosted), **LABEL, score="logit", tolerances=TOLERANCES)
    check_frontier(model, people, boosted)


def test_a_calibrated_model_is_another_model(people, boosted, tmp_path):
    before = boosted.save(tmp_path / "before")
    model = load(tmp_path / "before")
    assert model.model_hash_ == before
    calibrate(people, model, **LABEL)
    assert not hasattr(model, "model_hash_")
    assert model.save(tmp_path / "after") != before


def test_groups_beside_the_features(people):
    rows = make_people(4000, 0).fillna({"hours": 38.0})
    model = FairBayes(LogisticRegression(max_iter=1000), random_state=0)
    model.fit(rows[["age"]], rows["hired"], sensitive_features=rows[["sex", "region"]])
    found = decide(pa.Table.from_pandas(people), model, tolerance=0.1, group=["sex", "region"])
    expected = model.predict(
        people[["age"]], sensitive_features=people[["sex", "region"]], tolerance=0.1
    )
    assert found["decision"].to_pylist() == expected.tolist()
    with pytest.raises(InvalidInputError) as caught:
        decide(people, model, tolerance=0.1)
    assert caught.value.argument == "group"


def test_all_methods_decide(people):
    """Blind dials and lotteries have no fixed thresholds."""
    rows = make_people(4000, 0)
    for options in ({"blind": True}, {"randomize": "hash"}):
        model = FairBayes(
            LogisticRegression(max_iter=1000), sensitive_column="sex", random_state=0, **options
        )
        model.fit(rows[["age", "id", "sex"]], rows["hired"])
        X = people[["age", "id", "sex"]]
        found = decide(polars.from_pandas(people), model, tolerance=0.1)
        assert found.columns[-2:] == ["decision", "margin"]
        assert found["decision"].to_list() == model.predict(X, tolerance=0.1).tolist()
        assert evaluate(people, model, label="hired", tolerance=0.1).accuracy == (
            model.score(X, people["hired"], tolerance=0.1)
        )


def test_missing_and_small_groups_have_their_names(people, linear):
    """As the command line trains: rows without a group, and merged groups."""
    model = copy.deepcopy(linear)
    model.training_ |= {
        "missing_group": "M", "merged_groups": {"name": "F", "values": [["X"], ["Y"]]}
    }  # fmt: skip
    rows = people.fillna({"hours": 38.0})[["age", "hours", "sex"]]
    other = rows.assign(sex=rows["sex"].map({"F": "X", "M": None}))
    found = decide(polars.from_pandas(other), model, tolerance=0.05)
    assert found["decision"].to_list() == linear.predict(rows, tolerance=0.05).tolist()


def test_no_rows_give_no_decisions(people, boosted):
    nobody = polars.from_pandas(people[:0])
    for empty in (nobody, nobody.lazy(), people[:0], nobody.to_arrow()):
        found = as_pandas(decide(empty, boosted, tolerance=0.05))
        assert found.shape == (0, people.shape[1] + 3)
        with pytest.raises(InvalidInputError) as caught:
            evaluate(empty, boosted, **LABEL, tolerance=0.05)
        assert caught.value.argument == "data"


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        (lambda rows: rows.drop(columns="age"), "data"),
        (lambda rows: rows.drop(columns="sex"), "group"),
        (lambda rows: rows.drop(columns="hired"), "label"),
        (lambda rows: rows.assign(hired="perhaps"), "label"),
        (lambda rows: rows.assign(hired=None), "label"),
        (lambda rows: rows.assign(age="old"), "data"),
        (lambda rows: rows.to_numpy(), "data"),
    ],
)
def test_unusable_tables_are_refused(people, boosted, change, argument):
    with pytest.raises(InvalidInputError) as caught:
        evaluate(change(people), boosted, **LABEL, tolerance=0.05)
    assert caught.value.argument == argument


def test_unknown_and_missing_groups_are_refused(people, boosted):
    for wrong in ("other", None):
        rows = people.assign(sex=people["sex"].where(people["id"] != 7, wrong))
        with pytest.raises((UnknownGroupError, InvalidInputError)):
            decide(pa.Table.from_pandas(rows), boosted, tolerance=0.05)


def test_columns_that_decisions_would_hide_are_refused(people, boosted):
    with pytest.raises(InvalidInputError) as caught:
        decide(people.assign(margin=0), boosted, tolerance=0.05)
    assert caught.value.argument == "data"


def test_counts_of_one_query_are_enough(people, boosted):
    decided = duckdb.from_df(decide(people, boosted, tolerance=0.05))
    query = """SELECT sex AS "group", decision = 'yes' AS decision, hired = 'yes' AS label,
               count(*) AS rows FROM decided GROUP BY ALL"""
    counts = decided.query("decided", query).df()
    found = evaluate_counts(counts, boosted.criterion)
    whole = evaluate(people, boosted, **LABEL, tolerance=0.05)
    assert (found.accuracy, found.gap, found.gap_interval) == (
        whole.accuracy, whole.gap, whole.gap_interval
    )  # fmt: skip
    halves = pd.concat([counts.assign(rows=counts["rows"] // 2)] * 2)
    twice = pd.concat([halves, counts.assign(rows=counts["rows"] % 2)])
    assert evaluate_counts(twice, boosted.criterion).accuracy_interval == whole.accuracy_interval


def test_columns_with_nulls_in_training_mean_the_same_without_them() -> None:
    rng = np.random.default_rng(0)
    n = 2_000
    owns, number = rng.random(n) < 0.5, rng.integers(3, size=n)
    y = (rng.random(n) < np.where(owns, 0.7, 0.2) + 0.05 * number).astype(int)
    table = pd.DataFrame({"owns": owns.astype(object), "number": number.astype(object)})
    table["sex"] = np.where(rng.random(n) < 0.5, "f", "m")
    table.loc[:50, ["owns", "number"]] = None  # objects, because of the missing values
    given = boosting(["owns", "number"], 0)
    model = FairBayes(given, sensitive_column="sex", random_state=0).fit(table, y)
    new = table[51:].astype({"owns": bool, "number": "int64"})
    expected = model.predict(table[51:], tolerance=0.05)
    assert np.array_equal(decide(new, model, tolerance=0.05)["decision"], expected)
    found = decide(polars.from_pandas(new), model, tolerance=0.05)["decision"].to_numpy()
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("column", ["rows", "weight"])
@pytest.mark.parametrize("wrong", [-100, np.nan, np.inf, "many", None])
def test_counts_that_are_none_are_refused(column, wrong):
    lines = pd.DataFrame(
        {
            "group": ["a", "a", "b", "b"],
            "decision": [0, 1, 0, 1],
            "rows": [100, 150, 250, 100],
            "weight": [100.0, 150.0, 250.0, 100.0],
        }
    )
    values = lines[column].astype(object)
    lines[column] = [*values[:3], wrong]
    for dtype in (object,) if isinstance(wrong, str) else (object, np.float64):
        with pytest.raises(InvalidInputError) as caught:
            evaluate_counts(lines.astype({column: dtype}))
        assert caught.value.argument == column


def run_on(table, model):
    """What reads a table; each call reads it once."""
    return {
        "decide": lambda: as_pandas(decide(table, model, tolerance=0.05)),
        "evaluate": lambda: evaluate(table, model, **LABEL, tolerance=0.05),
        "calibrate": lambda: calibrate(table, copy.deepcopy(model), **LABEL),
    }


@pytest.mark.parametrize("task", ["decide", "evaluate", "calibrate"])
@pytest.mark.parametrize("filtered", [False, True])
def test_each_file_of_a_dataset_must_have_the_columns(people, boosted, tmp_path, task, filtered):
    as_dataset(people, tmp_path / "rows")
    other = people[:500].rename(columns={"age": "aeg"}).assign(id=-1)
    other.to_parquet(tmp_path / "rows" / "9.parquet", index=False)
    table = pa.dataset.dataset(tmp_path / "rows")
    table = table.filter(pa.dataset.field("weight") >= 0) if filtered else table
    with pytest.raises(InvalidInputError) as caught:
        run_on(table, boosted)[task]()
    assert caught.value.argument == "data"
    assert "9.parquet" in caught.value.given
    if filtered:  # files that the filter leaves out may be as they are
        kept = pa.dataset.dataset(tmp_path / "rows").filter(pa.dataset.field("id") >= 0)
        run_on(kept, boosted)[task]()


def test_features_may_be_in_the_names_of_folders(people, boosted, tmp_path):
    for sex, rows in people.groupby("sex"):
        (tmp_path / f"sex={sex}").mkdir()
        rows.drop(columns="sex").to_parquet(tmp_path / f"sex={sex}" / "0.parquet", index=False)
    table = pa.dataset.dataset(tmp_path, partitioning="hive")
    found = evaluate(table, boosted, **LABEL, tolerance=0.05)
    whole = evaluate(people, boosted, **LABEL, tolerance=0.05)
    assert (found.accuracy, found.gap) == (whole.accuracy, whole.gap)
    people[:100].drop(columns="sex").to_parquet(tmp_path / "0.parquet", index=False)
    with pytest.raises(InvalidInputError):
        evaluate(
            pa.dataset.dataset(tmp_path, partitioning="hive"), boosted, **LABEL, tolerance=0.05
        )


@pytest.mark.parametrize("task", ["decide", "evaluate", "calibrate"])
@pytest.mark.parametrize("filtered", [False, True])
def test_damaged_pages_of_a_dataset_are_invalid_input(people, boosted, tmp_path, task, filtered):
    as_dataset(people, tmp_path / "rows")
    file = tmp_path / "rows" / "1.parquet"
    held = file.read_bytes()
    size = len(held) - 8 - int.from_bytes(held[-8:-4], "little")
    file.write_bytes(held[:4] + b"\xff" * (size - 4) + held[size:])
    table = pa.dataset.dataset(tmp_path / "rows")
    table = table.filter(pa.dataset.field("id") >= 0) if filtered else table
    with pytest.raises(InvalidInputError) as caught:
        run_on(table, boosted)[task]()
    assert filtered or "1.parquet" in caught.value.given


@pytest.mark.parametrize("filtered", [False, True])
def test_numbers_of_later_files_are_not_read_as_truth_values(people, boosted, tmp_path, filtered):
    people[:500].assign(age=True).to_parquet(tmp_path / "0.parquet", index=False)
    people[500:].to_parquet(tmp_path / "1.parquet", index=False)
    table = pa.dataset.dataset(tmp_path)
    table = table.filter(pa.dataset.field("id") >= 0) if filtered else table
    for call in run_on(table, boosted).values():
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert "1.parquet" in caught.value.given
