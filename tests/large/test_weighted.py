"""Laws of weights and strata in summaries: whole weights are repeated rows, and parts add up."""

from __future__ import annotations

import warnings
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairdial import (
    InvalidInputError,
    ScoreSummary,
    SmallGroupError,
    calibrate_parquet,
    minimum,
    summarize_parquet,
    sweep,
)
from fairdial.core.decide import by_label
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import FairdialWarning
from fairdial.large import reader

DATA = Path(__file__).parents[1] / "data"
CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")
TOLERANCES = np.array([0.0, 0.03, 0.1, 1.0])
COLUMNS = {"label": "label", "weight": "weight", "control": "area"}


def draw(seed, n=600, n_groups=3, whole=True, ties=False):
    """Rows as arguments of from_scores; every cell of group, stratum and label has rows."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(np.arange(n) % (n_groups * 6))
    logits = rng.normal(0.3, 1.5, n) + 0.3 * (cells // 6)
    weights = rng.integers(0, 5, n) if whole else rng.choice([0.0, *rng.lognormal(0, 2, 9)], n)
    return {
        "logits": logits.round(1) if ties else logits,
        "groups": np.array([f"group {cell // 6}" for cell in cells]),
        "y": cells % 2,
        "sample_weight": weights,
        "control_features": np.array(["north", "south", "west"])[cells // 2 % 3],
    }


def part(rows, places):
    return {name: column[places] for name, column in rows.items()}


def repeated(rows):
    """The rows, each as often as its weight says, without weights."""
    weights = rows["sample_weight"]
    kept = {name: column for name, column in rows.items() if name != "sample_weight"}
    return {name: np.repeat(column, weights) for name, column in kept.items()}


def frame_of(rows):
    names = {"logits": "score", "groups": "group", "y": "label", "sample_weight": "weight"}
    return pd.DataFrame(rows).rename(columns=names | {"control_features": "area"})


def without_strata(rows):
    return {name: column for name, column in rows.items() if name != "control_features"}


def ask(frontier, tolerances=TOLERANCES):
    """The answers; those of a path, to the tolerances that it reaches."""
    if isinstance(frontier.points, ThresholdPath):
        tolerances = tolerances[frontier.points.find(tolerances)[1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return frontier.at(tolerances)


def same_points(one, two):
    for column in ("tolerance", "gap", "feasible", "thresholds", "selected", "counts", "accuracy"):
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column), err_msg=column)


def close(one, two):
    """Equal but for the rounding of sums in another order."""
    assert (one.groups, one.strata, one.dtype) == (two.groups, two.strata, two.dtype)
    np.testing.assert_allclose(one.counts, two.counts, rtol=0, atol=1e-14 * one.counts.sum())
    np.testing.assert_array_equal(one.n_rows, two.n_rows)


# ---- rows in memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64])
@pytest.mark.parametrize("ties", [False, True])
def test_whole_weights_are_repeated_rows(ties, dtype):
    rows = draw(1, ties=ties)
    plain = ScoreSummary.from_scores(**repeated(rows))
    rows["sample_weight"] = rows["sample_weight"].astype(dtype)
    weighted = ScoreSummary.from_scores(**rows)
    assert weighted.counts.dtype == np.int64
    np.testing.assert_array_equal(weighted.counts, plain.counts)
    np.testing.assert_array_equal(weighted.cells, plain.cells)
    assert weighted.strata == plain.strata == ("north", "south", "west")
    assert weighted != plain  # it has fewer rows
    assert weighted.rows.sum() == np.count_nonzero(rows["sample_weight"])
    for criterion in (*CRITERIA, "equalized_odds"):
        one, two = (s.to_frontier(criterion, min_count=1) for s in (weighted, plain))
        same_points(ask(one), ask(two))


@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_second_pass_over_weighted_rows_gives_the_answers_of_repeated_rows(criterion, n_groups):
    rows = without_strata(draw(2, 1500, n_groups))
    batches = [part(rows, places) for places in np.split(np.arange(1500), [400, 410, 1100])]
    summary = sum(ScoreSummary.from_scores(**batch) for batch in batches)
    exact = summary.to_frontier(criterion, tolerances=TOLERANCES, refine=batches)
    same_points(ask(exact), ask(sweep(**repeated(rows), criterion=criterion)))
    assert exact.certificate == "weighted"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"criterion": "demographic_parity"},
        {"criterion": "equalized_odds", "objective": "balanced_accuracy"},
        {"criterion": "demographic_parity_ratio", "budget": 0.3},
        {"criterion": ["equal_opportunity", "false_positive_rate<=0.6"], "budget": 400},
    ],
)
@pytest.mark.parametrize("strata", [False, True])
def test_scores_that_are_edges_have_the_answers_of_sweep(strata, options, weighted):
    rows = draw(2, 1500, 2)
    rows["logits"] = np.round(rows["logits"] * 4) / 4  # one distinct score in a bin
    if not strata:
        rows = without_strata(rows)
    if not weighted:
        del rows["sample_weight"]
    whole = {"value": "labels", "nested": False, "min_count": 1, **options}
    summary = ScoreSummary.from_scores(**rows).to_frontier(**whole)
    expected, found = ask(sweep(**rows, **whole)), ask(summary)
    np.testing.assert_array_equal(found.feasible, expected.feasible)
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-12)
    assert (found.gap[found.feasible] <= TOLERANCES[found.feasible]).all()


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_second_pass_over_real_weights_meets_the_tolerances(criterion):
    rows = without_strata(draw(3, 1500, whole=False))
    summary = ScoreSummary.from_scores(**rows)
    frontier = summary.to_frontier(criterion, tolerances=TOLERANCES, refine=[rows])
    points = ask(frontier)
    label = {"demographic_parity": None, "equal_opportunity": 1, "predictive_equality": 0}
    wanted = label[criterion]
    eligible = np.ones(1500, bool) if wanted is None else rows["y"] == wanted
    for i, tolerance in enumerate(points.tolerance):
        rates = []
        for name, threshold in zip(frontier.groups, points.thresholds[i], strict=True):
            weights = np.where(eligible & (rows["groups"] == name), rows["sample_weight"], 0)
            rates.append((weights * (rows["logits"] > threshold)).sum() / weights.sum())
        assert max(rates) - min(rates) == pytest.approx(points.gap[i], abs=1e-12)
        assert points.gap[i] <= tolerance


@pytest.mark.parametrize("whole", [True, False])
def test_partitions_in_any_order_add_up_to_the_whole(whole):
    rows = draw(4, whole=whole)
    rng = np.random.default_rng(4)
    for _ in range(5):
        order = rng.permutation(600)
        places = np.split(order, np.sort(rng.integers(1, 599, 3)))
        parts = [ScoreSummary.from_scores(**part(rows, own)) for own in places if len(own) > 20]
        kept = np.concatenate([own for own in places if len(own) > 20])
        summary = ScoreSummary.from_scores(**part(rows, kept))
        if whole:
            assert sum(parts) == summary
        close(sum(parts), summary)


def test_strata_are_matched_by_name():
    rows = draw(5)
    north = rows["control_features"] == "north"
    mild = rows["groups"] != "group 1"
    parts = [
        ScoreSummary.from_scores(**part(rows, mask))
        for mask in (north & mild, ~north & mild, ~mild)
    ]
    assert [s.strata for s in parts] == [("north",), ("south", "west"), ("north", "south", "west")]
    assert sum(parts) == sum(parts[::-1]) == ScoreSummary.from_scores(**rows)


def test_rows_with_and_without_weights_add_up():
    rows = draw(6)
    rows["sample_weight"][:300] = 1
    first, second = part(rows, slice(0, 300)), part(rows, slice(300, None))
    del first["sample_weight"]
    parts = [ScoreSummary.from_scores(**own) for own in (first, second)]
    assert parts[0].n_rows is None
    assert sum(parts) == ScoreSummary.from_scores(**rows)
    plain = part(rows, slice(0, 300))
    assert ScoreSummary.from_scores(**plain) == parts[0]


def test_strata_add_up_to_the_summary_without_them():
    rows = draw(7)
    summary = ScoreSummary.from_scores(**rows)
    bare = ScoreSummary.from_scores(**without_strata(rows))
    np.testing.assert_array_equal(by_label(summary.counts, 2), bare.counts)
    np.testing.assert_array_equal(summary.rows, bare.rows)
    with pytest.raises(InvalidInputError) as refused:
        summary + bare
    assert refused.value.argument == "control_features"


def test_names_without_weight_are_as_if_absent():
    rows = draw(8)
    gone = (rows["groups"] == "group 1") | (rows["control_features"] == "west")
    rows["sample_weight"] = np.where(gone, 0, 2.5)
    summary = ScoreSummary.from_scores(**rows)
    assert summary == ScoreSummary.from_scores(**part(rows, ~gone))
    assert summary.groups == ("group 0", "group 2")
    assert summary.strata == ("north", "south")


def test_small_groups_are_counted_in_rows_and_not_in_weights():
    rows = without_strata(draw(9, 180))
    rows["sample_weight"] = rows["sample_weight"] + 100
    summary = ScoreSummary.from_scores(**rows)
    assert summary.to_frontier(min_count=60).groups == summary.groups
    with pytest.raises(SmallGroupError):
        summary.to_frontier(min_count=61)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, "all zero", "one short"])
def test_bad_weights_are_refused(bad):
    rows = draw(10)
    weights = rows["sample_weight"].astype(float)
    if bad == "all zero":
        weights[:] = 0
    elif bad != "one short":
        weights[7] = bad
    rows["sample_weight"] = weights[1:] if bad == "one short" else weights
    with pytest.raises(InvalidInputError) as refused:
        ScoreSummary.from_scores(**rows)
    assert refused.value.argument == "sample_weight"


def test_small_strata_are_refused():
    rows = draw(9, 180)
    del rows["sample_weight"]
    summary = ScoreSummary.from_scores(**rows)
    assert summary.to_frontier(min_count=20).groups == summary.groups
    with pytest.raises(SmallGroupError):
        summary.to_frontier(min_count=21)


def test_batches_lack_nothing_and_have_the_weights():
    rows = without_strata(draw(11))
    summary = ScoreSummary.from_scores(**rows)

    def refuse(batch):
        with pytest.raises(InvalidInputError) as refused:
            summary.to_frontier(tolerances=[0.0], refine=[batch])
        return refused.value.argument

    assert refuse(tuple(rows.values())) == "refine"
    assert refuse({**rows, "bits": 8}) == "refine"
    assert refuse({name: rows[name] for name in ("logits", "groups")}) == "refine"
    assert refuse({**rows, "sample_weight": rows["sample_weight"] + 1}) == "refine"
    assert refuse({**rows, "sample_weight": -rows["sample_weight"]}) == "sample_weight"


def test_a_second_pass_needs_one_rate_and_no_strata():
    rows = draw(11)
    summary = ScoreSummary.from_scores(**rows)
    bare = ScoreSummary.from_scores(**without_strata(rows))
    options = {"tolerances": [0.1], "refine": [rows], "min_count": 1}
    for asked, criterion in ((summary, "demographic_parity"), (bare, "equalized_odds")):
        with pytest.raises(InvalidInputError) as refused:
            asked.to_frontier(criterion, **options)
        assert refused.value.argument == "refine"
        assert asked.to_frontier(criterion, tolerances=[0.1], min_count=1).groups == bare.groups


def test_conditions_of_a_criterion_need_the_rows():
    summary = ScoreSummary.from_scores(**draw(11))
    demand = minimum("true_positive_rate", 0.5, where="area")
    with pytest.raises(InvalidInputError) as refused:
        summary.to_frontier(["demographic_parity", demand])
    assert refused.value.argument == "criterion"


# ---- files and queries ---------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_gives_the_summary_back(whole, tmp_path):
    summary = ScoreSummary.from_scores(**draw(12, whole=whole))
    summary.save(tmp_path / "a.summary")
    same = ScoreSummary.load(tmp_path / "a.summary")
    assert same == summary
    assert same.counts.dtype == summary.counts.dtype
    assert same.labeled
    np.testing.assert_array_equal(same.n_rows, summary.n_rows)


def test_a_file_of_the_first_format_is_read():
    logits, groups = [-1.0, 0.5, 2.0, 0.5, -3.0, 40.0], ["a", "a", "b", "b", "b", "a"]
    expected = ScoreSummary.from_scores(logits, groups, [0, 1, 1, 0, 0, 1])
    assert ScoreSummary.load(DATA / "labeled-1.summary") == expected


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("columns", [COLUMNS, {"weight": "weight"}, {"control": "area"}])
def test_one_query_sums_the_same(columns, whole):
    rows = draw(13, whole=whole)
    given = {"label": "y", "weight": "sample_weight", "control": "control_features"}
    wanted = {"logits", "groups", *(given[name] for name in columns)}
    summary = ScoreSummary.from_scores(**{name: rows[name] for name in rows if name in wanted})
    with duckdb.connect() as connection:
        connection.register("scored", frame_of(rows))
        found = connection.sql(ScoreSummary.sql("scored", **columns)).df()
    if whole or "weight" not in columns:
        assert ScoreSummary.from_counts(found) == summary
        assert ScoreSummary.from_counts(found).counts.dtype == np.int64
    else:
        close(ScoreSummary.from_counts(found), summary)


@pytest.mark.parametrize("bad", ["-1", "'nan'", "'inf'", "NULL", "0"])
def test_a_query_shows_bad_weights(bad):
    rest = "" if bad == "0" else "SELECT 0.5 AS score, 'a' AS \"group\", 3 AS w UNION ALL "
    rows = f"({rest}SELECT 0.5 AS score, 'a' AS \"group\", {bad}::DOUBLE AS w)"
    found = duckdb.sql(ScoreSummary.sql(rows, weight="w")).df()
    with pytest.raises(InvalidInputError) as refused:
        ScoreSummary.from_counts(found)
    assert refused.value.argument == "weight"


# ---- Parquet -------------------------------------------------------------------------------------


def write(folder, rows, parts=3):
    table = pa.Table.from_pandas(frame_of(rows))
    size = -(-len(table) // parts)
    for i in range(parts):
        pq.write_table(table.slice(i * size, size), folder / f"{i}.parquet", row_group_size=50)
    return folder


@pytest.mark.parametrize("n_groups", [2, 4])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_files_give_the_answers_of_the_rows_in_memory(criterion, n_groups, tmp_path):
    rows = draw(14, 1200, n_groups)
    folder = write(tmp_path, rows)
    summary = summarize_parquet(folder, **COLUMNS)
    assert summary == ScoreSummary.from_scores(**rows)
    assert summary.counts.dtype == np.int64
    options = {"label": "label", "weight": "weight", "criterion": criterion}
    exact = calibrate_parquet(folder, **options, tolerances=TOLERANCES)
    whole = without_strata(repeated(rows))
    same_points(ask(exact), ask(sweep(**whole, criterion=criterion)))
    within = calibrate_parquet(folder, **options, control="area", min_count=1)
    same_points(ask(within), ask(summary.to_frontier(criterion, min_count=1)))


def test_real_weights_in_files_add_up_as_in_memory(tmp_path, monkeypatch):
    rows = draw(15, whole=False)
    rows["sample_weight"][:200] = 2  # a file of whole numbers among others
    monkeypatch.setattr(reader, "BATCH", 37)
    summary = summarize_parquet(write(tmp_path, rows), **COLUMNS)
    close(summary, ScoreSummary.from_scores(**rows))
    exact = calibrate_parquet(tmp_path, label="label", weight="weight", tolerances=TOLERANCES)
    bare = without_strata(rows)
    again = ScoreSummary.from_scores(**bare).to_frontier(tolerances=TOLERANCES, refine=[bare])
    np.testing.assert_allclose(ask(exact).gap, ask(again).gap, atol=1e-12)
    np.testing.assert_array_equal(ask(exact).thresholds, ask(again).thresholds)


@pytest.mark.parametrize(
    ("column", "value", "argument"),
    [
        ("sample_weight", -1.0, "weight"),
        ("sample_weight", np.inf, "weight"),
        ("sample_weight", np.nan, "weight"),
        ("sample_weight", None, "weight"),
        ("control_features", None, "control"),
    ],
)
def test_bad_values_in_files_are_refused(column, value, argument, tmp_path):
    rows = draw(16)
    dtype = object if column == "control_features" else float
    rows[column] = rows[column].astype(dtype)
    rows[column][7] = value
    with pytest.raises(InvalidInputError) as refused:
        summarize_parquet(write(tmp_path, rows), **COLUMNS)
    assert refused.value.argument == argument


def test_weights_in_files_are_numbers_and_some_are_positive(tmp_path):
    rows = draw(17)
    write(tmp_path, rows)
    with pytest.raises(InvalidInputError) as refused:
        summarize_parquet(tmp_path, weight="group")
    assert refused.value.argument == "weight"
    write(tmp_path, rows | {"sample_weight": np.zeros(600)})
    with pytest.raises(InvalidInputError) as refused:
        summarize_parquet(tmp_path, weight="weight")
    assert refused.value.argument == "weight"


def test_folder_names_are_strata(tmp_path):
    rows = draw(18)
    for name in ("north", "south", "west"):
        folder = tmp_path / f"place={name}"
        folder.mkdir()
        write(folder, part(rows, rows["control_features"] == name))
    summary = summarize_parquet(tmp_path, label="label", weight="weight", control="place")
    assert summary == ScoreSummary.from_scores(**rows)
