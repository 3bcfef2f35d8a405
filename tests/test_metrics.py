"""Laws of the figures: counted by hand, areas by worked examples, sampling and another library."""

from __future__ import annotations

import moocore
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairdial.core.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError
from fairdial.metrics import gap, gaps, group_table, hypervolume, pareto

SHIFT = 0.5
STAIRS = np.array([(0.8, 0.1), (0.78, 0.05), (0.7, 0.0)])
NORMALISED = (STAIRS - STAIRS.min(axis=0)) / np.ptp(STAIRS, axis=0)
COARSE_POINTS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=15
).map(lambda pairs: np.array(pairs, float) / 6)


# ---- hypervolume -------------------------------------------------------------------------------


def test_the_best_point_alone_spans_the_whole_rectangle():
    assert hypervolume([(1.0, 0.0)], (-1 / 9, 1 + 1 / 9)) == pytest.approx(1.2345679, abs=5e-8)


def test_the_staircase_has_the_area_worked_out_by_hand():
    assert hypervolume(NORMALISED, (-SHIFT, 1 + SHIFT)) == pytest.approx(1.65)


def test_the_inverted_staircase_has_the_area_worked_out_by_hand():
    reference = np.array([1 + SHIFT, -SHIFT])
    assert hypervolume(-NORMALISED, -reference) == pytest.approx(1.35)


def random_points(seed, n=30):
    rng = np.random.default_rng(seed)
    return np.column_stack((rng.uniform(0.4, 1.0, n), rng.uniform(0.0, 0.6, n)))


@pytest.mark.parametrize("seed", range(20))
def test_the_area_agrees_with_another_library(seed):
    points = random_points(seed, n=1 + 3 * seed)
    reference = (0.5, 0.5)
    both_minimised = np.column_stack((-points[:, 0], points[:, 1]))
    expected = moocore.hypervolume(both_minimised, ref=(-0.5, 0.5))
    assert hypervolume(points, reference) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_area_agrees_with_random_darts(seed):
    points, n = random_points(seed, 12), 40_000
    darts = np.random.default_rng(seed).random((n, 2)) * [1.0, 0.8]
    hit = np.zeros(n, bool)
    for accuracy, disparity in points:
        hit |= (darts[:, 0] < accuracy) & (darts[:, 1] > disparity)
    area, share = hypervolume(points, (0.0, 0.8)), hit.mean()
    assert area == pytest.approx(0.8 * share, abs=4 * 0.8 * np.sqrt(share * (1 - share) / n))


@given(points=COARSE_POINTS, extra=COARSE_POINTS)
@settings(deadline=None, derandomize=True, max_examples=150)
def test_the_area_ignores_order_duplicates_and_beaten_points_and_never_falls(points, extra):
    reference = (-0.1, 1.1)
    area = hypervolume(points, reference)
    assert hypervolume(points[::-1], reference) == pytest.approx(area)
    assert hypervolume(np.vstack((points, points)), reference) == pytest.approx(area)
    assert hypervolume(points[pareto(points)], reference) == pytest.approx(area)
    assert hypervolume(np.vstack((points, extra)), reference) >= area - 1e-12
    assert area <= 1.1**2 + 1e-12


@given(points=COARSE_POINTS)
@settings(deadline=None, derandomize=True, max_examples=100)
def test_reflecting_points_and_reference_measures_the_other_side(points):
    reference = np.array([1.1, -0.1])
    expected = moocore.hypervolume(np.column_stack((points[:, 0], -points[:, 1])), ref=(1.1, 0.1))
    assert hypervolume(-points, -reference) == pytest.approx(float(expected), abs=1e-12)


def test_points_on_or_beyond_the_reference_count_nothing():
    assert hypervolume([(0.5, 0.2), (0.4, 0.1), (0.9, 0.7)], (0.5, 0.5)) == 0.0
    assert hypervolume([(0.6, 0.2), (0.4, 0.0)], (0.5, 0.5)) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("points", "reference", "name"),
    [
        ([(0.8, 0.1)], (0.9, 0.0), "reference"),
        ([(0.8, 0.1)], (0.1,), "reference"),
        ([(0.8, 0.1)], (np.nan, 1.0), "reference"),
        ([(0.8, 0.1)], (0.0, np.inf), "reference"),
        ([0.8, 0.1], (0.0, 1.0), "points"),
        ([], (0.0, 1.0), "points"),
        (np.zeros((0, 2)), (0.0, 1.0), "points"),
        ([(0.8, np.nan)], (0.0, 1.0), "points"),
        ([(0.8, 0.1, 0.2)], (0.0, 1.0), "points"),
    ],
)
def test_hypervolume_refuses_what_has_no_area(points, reference, name):
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        hypervolume(points, reference)


# ---- pareto ------------------------------------------------------------------------------------


@given(points=COARSE_POINTS)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_pareto_keeps_exactly_the_points_that_no_other_beats(points):
    expected = [
        not any(
            other[0] >= point[0]
            and other[1] <= point[1]
            and (other[0] > point[0] or other[1] < point[1])
            for other in points
        )
        for point in points
    ]
    assert pareto(points).tolist() == expected


def test_pareto_keeps_every_copy_of_a_point_that_is_not_beaten():
    assert pareto([(0.8, 0.1), (0.8, 0.1), (0.8, 0.2)]).tolist() == [True, True, False]


# ---- tables of groups --------------------------------------------------------------------------


def naive_table(y, decisions, groups):
    lines = {}
    for name in sorted(set(groups)):
        rows = [
            (int(label), int(decision))
            for label, decision, group in zip(y, decisions, groups, strict=True)
            if group == name
        ]
        positive = [d for label, d in rows if label == 1]
        negative = [d for label, d in rows if label == 0]
        lines[name] = {
            "rows": len(rows),
            "selection_rate": sum(d for _, d in rows) / len(rows),
            "true_positive_rate": sum(positive) / len(positive) if positive else np.nan,
            "false_positive_rate": sum(negative) / len(negative) if negative else np.nan,
            "accuracy": sum(label == d for label, d in rows) / len(rows),
        }
    return pd.DataFrame.from_dict(lines, orient="index")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("names", ["ab", "abcde", (0, 1), (3, 7, 11), (0, 1, 2, 3)])
def test_the_group_table_is_what_counting_row_by_row_finds(names, seed):
    rng = np.random.default_rng(seed)
    n = 40
    groups = [names[i % len(names)] for i in rng.permutation(n)]
    y, decisions = rng.integers(0, 2, n), rng.integers(0, 2, n).astype(bool)
    table = group_table(y, decisions, sensitive_features=groups)
    expected = naive_table(y, decisions, groups)
    assert table.index.tolist() == expected.index.tolist()
    assert table.index.name == "group"
    for column in expected:
        np.testing.assert_array_equal(table[column], expected[column])
    for criterion, column in (
        ("demographic_parity", "selection_rate"),
        ("equal_opportunity", "true_positive_rate"),
        ("predictive_equality", "false_positive_rate"),
    ):
        rates = expected[column]
        if not rates.isna().any():
            got = gap(y, decisions, sensitive_features=groups, criterion=criterion)
            assert got == pytest.approx(rates.max() - rates.min(), abs=1e-15)  # rounded once


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int64, np.uint64])
def test_a_hundred_groups_in_any_integer_type_are_kept_apart(dtype):
    groups = np.repeat(np.arange(100), 3).astype(dtype)
    y = np.tile([1, 0, 1], 100)
    table = group_table(y, np.ones(300, int), sensitive_features=groups)
    assert table["rows"].tolist() == [3] * 100
    assert table["accuracy"].tolist() == [2 / 3] * 100


def test_a_group_without_a_label_has_no_such_rate_and_no_such_gap():
    y, decisions, groups = [1, 1, 0, 1], [1, 0, 0, 1], ["a", "a", "b", "b"]
    table = group_table(y, decisions, sensitive_features=groups)
    assert np.isnan(table.loc["a", "false_positive_rate"])
    with pytest.raises(InvalidInputError, match="label 0"):
        gap(y, decisions, sensitive_features=groups, criterion="predictive_equality")
    assert gap(y, decisions, sensitive_features=groups, criterion="equal_opportunity") == 0.5


def test_several_columns_stand_for_their_intersections():
    people = pd.DataFrame({"race": ["Black", "White"] * 2, "sex": ["Female"] * 2 + ["Male"] * 2})
    table = group_table([1, 0, 1, 0], [1, 0, 1, 0], sensitive_features=people)
    assert table.index.tolist() == [
        "Black & Female",
        "Black & Male",
        "White & Female",
        "White & Male",
    ]


@pytest.mark.parametrize(
    ("y", "decisions", "groups", "name"),
    [
        ([1, 2], [0, 1], ["a", "b"], "y_true"),
        ([1, 0], [0.5, 1], ["a", "b"], "y_pred"),
        ([1, 0], [0, 1, 1], ["a", "b"], "y_pred"),
        ([1, 0], [0, 1], ["a"], "sensitive_features"),
        ([1, 0], [0, 1], ["a", None], "sensitive_features"),
        ([], [], [], "y_true"),
    ],
)
def test_bad_columns_are_refused_by_name(y, decisions, groups, name):
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        group_table(y, decisions, sensitive_features=groups)


def test_labels_other_than_0_and_1_mean_the_greater_or_the_named_one():
    truth, decided, groups = ["no", "yes", "yes"], ["yes", "yes", "no"], ["a", "a", "b"]
    numbers = group_table([0, 1, 1], [1, 1, 0], sensitive_features=groups)
    assert group_table(truth, decided, sensitive_features=groups).equals(numbers)
    turned = group_table(truth, decided, sensitive_features=groups, pos_label="no")
    assert turned["selection_rate"].tolist() == [0.0, 1.0]
    assert gap(truth, decided, sensitive_features=groups) == 1.0
    with pytest.raises(InvalidInputError, match="`y_true`"):
        gap(truth, decided, sensitive_features=groups, pos_label="perhaps")


# ---- any criterion, weights and strata ---------------------------------------------------------

TEXTS = (
    "equalized_odds",
    "demographic_parity_ratio",
    "accuracy_parity",
    "predictive_parity",
    "false_omission_rate_parity",
    "true_positive_rate>=0.6",
    "equalized_odds+selection_rate<=0.4",
)


def random_rows(seed, n=60):
    rng = np.random.default_rng(seed)
    groups = np.array(list("abc"))[rng.permutation(np.arange(n) % 3)]
    return rng.integers(0, 2, n), rng.integers(0, 2, n), groups, rng


def naive_gaps(y, decided, groups, text):
    """The gap of each demand, by definition."""
    found = {}
    for demand in find_criterion(text).demands:
        rates = []
        for group in np.unique(groups):
            t, d = y[groups == group], decided[groups == group]
            eligible = {None: d == d, 0: t == 0, 1: t == 1, "selected": d == 1, "rejected": d == 0}
            event = {"selected": d == 1, "rejected": d == 0, "positive": t == 1, "correct": t == d}
            among = eligible[demand.rate.eligible]
            rates.append(event[demand.rate.event][among].mean())
        low, high = min(rates), max(rates)
        gaps = {
            "difference": high - low,
            "ratio": 1 - low / high if high else 0.0,
            "minimum": max(demand.level - low, 0),
            "maximum": max(high - demand.level, 0),
        }
        found[demand.name] = gaps[demand.spread]
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("text", TEXTS)
def test_the_gap_of_every_demand_is_what_its_definition_says(text, seed):
    y, decided, groups, _ = random_rows(seed)
    expected = naive_gaps(y, decided, groups, text)
    found = gaps(y, decided, sensitive_features=groups, criterion=text)
    assert found == pytest.approx(expected, abs=1e-12)
    moving = {d.name for d in find_criterion(text).demands if d.scale}
    fixed = [value for name, value in expected.items() if name not in moving]
    largest = max((expected[name] for name in moving), default=0.0)
    got = gap(y, decided, sensitive_features=groups, criterion=text)
    assert got == (np.inf if any(fixed) else pytest.approx(largest, abs=1e-12))


@pytest.mark.parametrize("text", TEXTS)
def test_whole_weights_are_repeated_rows(text):
    y, decided, groups, rng = random_rows(7)
    weights = rng.integers(1, 4, len(y))
    repeated = [np.repeat(column, weights) for column in (y, decided, groups)]
    about = {"criterion": text}
    weighted = {"sensitive_features": groups, "sample_weight": weights}
    whole = {"sensitive_features": repeated[2]}
    assert gap(y, decided, **weighted, **about) == gap(*repeated[:2], **whole, **about)
    assert gaps(y, decided, **weighted, **about) == gaps(*repeated[:2], **whole, **about)
    pd.testing.assert_frame_equal(
        group_table(y, decided, **weighted, **about),
        group_table(*repeated[:2], **whole, **about),
    )


def test_strata_are_measured_one_by_one():
    y, decided, groups, rng = random_rows(3, 240)
    city = np.array(["x", "y"])[rng.integers(0, 2, len(y))]
    about = {"criterion": "equalized_odds"}
    alone = {
        name: gap(
            y[city == name], decided[city == name], sensitive_features=groups[city == name], **about
        )
        for name in "xy"
    }
    both = {"sensitive_features": groups, "control_features": city}
    assert gap(y, decided, **both, **about) == max(alone.values())
    table = group_table(y, decided, **both)
    for name in "xy":
        rows = city == name
        pd.testing.assert_frame_equal(
            table.loc[name],
            group_table(y[rows], decided[rows], sensitive_features=groups[rows]),
        )


@pytest.mark.parametrize("weights", [[-1, 1, 1, 1], [0, 0, 0, 0], [float("nan"), 1, 1, 1], [1, 1]])
def test_wrong_weights_are_refused(weights):
    rows = {"sensitive_features": list("aabb"), "sample_weight": weights}
    with pytest.raises(InvalidInputError) as error:
        gap([1, 0, 1, 0], [1, 1, 0, 0], **rows)
    assert error.value.argument == "sample_weight"


def test_a_stratum_without_eligible_rows_of_a_group_is_named():
    rows = {"sensitive_features": list("aabb"), "control_features": list("xyxx")}
    with pytest.raises(InvalidInputError) as error:
        gap([1, 0, 1, 0], [1, 1, 0, 0], **rows)
    assert "'b'" in str(error.value)
