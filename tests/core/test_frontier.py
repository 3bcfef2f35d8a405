"""Laws of the frontier: the dial's answers, its other forms, and what it refuses."""

from __future__ import annotations

import json
import pickle
import time
import tracemalloc
import warnings
from fractions import Fraction
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from scipy.special import ndtri

from fairdial import Frontier, Point, Points, measure, sweep
from fairdial.core import bootstrap
from fairdial.core import sweep as sweeping
from fairdial.core.bands import rate_band
from fairdial.core.group_scores import sort_scores
from fairdial.errors import (
    ConstantDecisionsWarning,
    FairdialWarning,
    InfeasibleToleranceWarning,
    InvalidInputError,
    SmallGroupError,
    UnknownGroupError,
)

CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")
TOLERANCES = np.array([0.0, 0.03, 0.1, 0.15, 0.3, 1.0])
COLUMNS = ("tolerance", "setting", "gap", "feasible", "thresholds", "selected", "counts")


def sample(n=400, n_groups=2, seed=0, *, digits=None):
    """Calibrated log-odds, groups and labels."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.arange(n) % n_groups)
    logits = rng.normal(0.5 * groups, 1.5)
    y = rng.random(n) < 1 / (1 + np.exp(-logits))
    return (logits if digits is None else logits.round(digits)), groups, y.astype(int)


def quietly(call, *arguments, **options):
    """The result, whether or not a tolerance is out of reach."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        warnings.simplefilter("ignore", ConstantDecisionsWarning)
        return call(*arguments, **options)


def same_points(one, two):
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column), err_msg=column)
    np.testing.assert_array_equal(one.accuracy, two.accuracy)
    assert one.groups == two.groups
    assert one.criterion is two.criterion


# ---- at ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_one_tolerance_gives_a_point_and_several_give_the_same_points(criterion, n_groups):
    frontier = sweep(*sample(n_groups=n_groups), criterion=criterion)
    points = quietly(frontier.at, TOLERANCES)
    assert isinstance(points, Points)
    assert len(points) == len(TOLERANCES)
    for i, tolerance in enumerate(TOLERANCES):
        point = quietly(frontier.at, float(tolerance))
        assert isinstance(point, Point)
        for column in ("tolerance", "setting", "accuracy", "gap", "feasible"):
            assert getattr(point, column) == getattr(points, column)[i]
        assert point.thresholds.tolist() == points.thresholds[i].tolist()
        assert point.thresholds.tolist() == points[i].thresholds.tolist()
    assert [p.tolerance for p in points] == TOLERANCES.tolist()
    assert [p.tolerance for p in points[1:3]] == TOLERANCES[1:3].tolist()
    assert points[-1].tolerance == 1.0
    with pytest.raises(IndexError):
        points[len(TOLERANCES)]


COARSE = ([-1.0, -1.0, -1.0, 1.0, 2.0], [0, 0, 0, 1, 1])  # gaps 1, 0.5, then -0.5


def out_of_reach():
    """Accuracies of 2/3 or 1/3 in one group, 1/2 or 1 in the other: the smallest gap is 1/6."""
    return sweep(*COARSE, [1, 0, 0, 0, 1], criterion="accuracy_parity", min_count=1)


def test_a_tolerance_out_of_reach_gives_one_warning():
    with pytest.warns(InfeasibleToleranceWarning, match=r"tolerance 0 .*0\.1667") as caught:
        points = out_of_reach().at([0.1, 0.0, 0.34])
    assert len(caught) == 1
    assert points.feasible.tolist() == [False, False, True]
    assert points.gap.tolist() == [1 / 6] * 3


def test_the_same_decision_for_everybody_is_the_answer_of_a_search_only():
    path, searched = sweep(*COARSE, min_count=1), sweep(*COARSE, min_count=1, nested=False)
    with pytest.warns(InfeasibleToleranceWarning):
        points = path.at([0.4, 0.0, 0.5])
    assert points.feasible.tolist() == [False, False, True]
    assert points.gap.tolist() == [0.5] * 3
    with pytest.warns(ConstantDecisionsWarning, match=r"tolerance 0\.4 ") as caught:
        points = searched.at([0.4, 0.0, 0.5])
    assert len(caught) == 1
    assert points.feasible.all()
    assert points.gap.tolist() == [0.0, 0.0, 0.5]


def test_the_warning_points_at_the_caller():
    for frontier, kind in (
        (out_of_reach(), InfeasibleToleranceWarning),
        (sweep(*COARSE, min_count=1, nested=False), ConstantDecisionsWarning),
    ):
        for call in (frontier.at, lambda tolerance, dial=frontier: dial.decide(*COARSE, tolerance)):
            with pytest.warns(kind) as caught:
                call(0.0)
            assert caught[0].filename == __file__


# ---- choosing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_groups", [2, 4])
def test_least_disparity_is_the_smallest_gap_the_dial_reaches_at_that_accuracy(criterion, n_groups):
    for seed in range(5):
        frontier = sweep(*sample(300, n_groups, seed), criterion=criterion, min_count=1)
        positions = frontier.at(np.minimum(frontier.gap, 1.0))  # where the dial can stand
        for wanted in np.quantile(positions.accuracy, [0, 0.2, 0.5, 0.9, 1.0]):
            point = frontier.least_disparity(accuracy=wanted)
            assert point.accuracy >= wanted
            assert point.gap == positions.gap[positions.accuracy >= wanted].min()
            assert point.feasible
            again = frontier.at(point.tolerance)  # the point can be dialled
            assert (again.accuracy, again.gap) == (point.accuracy, point.gap)


@pytest.mark.parametrize("accuracy", [-0.1, 1.1, "0.5", None, np.nan, 0.999])
def test_an_accuracy_out_of_reach_is_refused(accuracy):
    with pytest.raises(InvalidInputError, match="`accuracy`"):
        sweep(*sample()).least_disparity(accuracy=accuracy)


@pytest.mark.parametrize("n_groups", [2, 3])
def test_pareto_keeps_the_points_that_are_not_dominated(n_groups):
    for seed in range(5):
        frontier = sweep(*sample(200, n_groups, seed), min_count=1)
        accuracy, gap = frontier.accuracy, frontier.gap
        better = (accuracy[:, None] >= accuracy) & (gap[:, None] <= gap)
        better &= (accuracy[:, None] > accuracy) | (gap[:, None] < gap)
        kept = frontier.pareto()
        expected = ~better.any(axis=0)
        np.testing.assert_array_equal(kept.gap, gap[expected])
        np.testing.assert_array_equal(kept.accuracy, accuracy[expected])
        np.testing.assert_array_equal(kept.setting, frontier.setting[expected])


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("k", [2, 5, 40, 10_000])
def test_thinning_keeps_the_answers_at_the_gaps_that_are_kept(criterion, n_groups, k):
    frontier = sweep(*sample(400, n_groups, seed=k), criterion=criterion, min_count=1)
    thin = frontier.thin(k)
    assert len(thin) <= k
    assert thin.gap[0] == frontier.gap[0]
    assert thin.setting[0] == 0
    assert thin.gap[-1] == frontier.gap.min()
    same_points(thin.at(thin.gap), frontier.at(thin.gap))
    for tolerance in TOLERANCES[1:]:
        assert quietly(thin.at, tolerance).gap <= max(tolerance, thin.gap.min())


def test_a_thinned_frontier_thins_and_filters_again():
    frontier = sweep(*sample()).thin(30)
    again = frontier.thin(5)
    assert len(again) <= 5
    same_points(again.at(again.gap), frontier.at(again.gap))
    assert len(frontier.pareto()) <= 30


@pytest.mark.parametrize("k", [1, 0, -3, 2.5, "3", True])
def test_thinning_to_fewer_than_two_points_is_refused(k):
    with pytest.raises(InvalidInputError, match="`k`"):
        sweep(*sample()).thin(k)


# ---- deciding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_decisions_are_scores_strictly_above_their_groups_threshold(n_groups, dtype):
    logits, groups, y = sample(600, n_groups, digits=1)
    logits = logits.astype(dtype)
    frontier = sweep(logits, groups, y)
    for tolerance in TOLERANCES:
        point = quietly(frontier.at, tolerance)
        decisions = quietly(frontier.decide, logits, groups, tolerance)
        expected = [z > point.thresholds[a] for z, a in zip(logits, groups, strict=True)]
        assert decisions.dtype == bool
        assert decisions.tolist() == expected
        mine = [decisions[groups == a] for a in range(n_groups)]
        rates = [Fraction(int(part.sum()), len(part)) for part in mine]
        assert point.gap == float(max(rates) - min(rates))


def test_a_gap_of_exactly_the_tolerance_is_within_it():
    """Rates are compared as counts: 0.57 - 0.5 is more than 0.07 as a float."""
    groups, rank = np.repeat([0, 1], 100), np.tile(np.arange(100), 2)
    above = 0
    for low, high in [(a, b) for a in range(0, 100, 7) for b in range(a + 1, 101, 3)]:
        logits = np.where(rank < np.array([low, high])[groups], 1.0, -1.0)
        point = sweep(logits, groups).at((high - low) / 100)
        assert point.feasible
        assert point.selected.sum(axis=0).tolist() == [low, high]
        above += high / 100 - low / 100 > (high - low) / 100
    assert above > 50  # where floats would say otherwise


@pytest.mark.parametrize("n_groups", [2, 4])
def test_one_tolerance_per_row_decides_like_row_by_row(n_groups):
    logits, groups, y = sample(300, n_groups, digits=1)
    frontier = sweep(logits, groups, y)
    tolerances = np.random.default_rng(1).choice(TOLERANCES, len(logits))
    decisions = quietly(frontier.decide, logits, groups, tolerances)
    for i in range(0, len(logits), 7):
        alone = quietly(frontier.decide, logits[[i]], groups[[i]], tolerances[i])
        assert decisions[i] == alone[0]


@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_groups_at_different_tolerances_keep_the_largest_along_the_path(n_groups):
    rng = np.random.default_rng(n_groups)
    for seed in range(20):
        logits, groups, y = sample(300, n_groups, seed=seed, digits=1)
        frontier = sweep(logits, groups, y)
        own = rng.choice(TOLERANCES, n_groups)[groups]
        if not (frontier.nested and quietly(frontier.at, float(own.min())).feasible):
            continue
        selected = quietly(frontier.decide, logits, groups, own)
        rates = [Fraction(int(selected[groups == a].sum()), int((groups == a).sum()))
                 for a in range(n_groups)]  # fmt: skip
        assert max(rates) - min(rates) <= Fraction(own.max())


def test_bounds_of_three_groups_do_not_carry_over_to_rows_with_different_tolerances():
    """The band of a small group between the others is wide, and its rate falls with the gap."""
    sizes, free = np.array([10_000, 30_000, 100]), ndtri([0.8, 0.3, 0.5])
    groups = np.repeat([0, 1, 2], sizes)
    grids = [ndtri((np.arange(n) + 0.5) / n) for n in sizes]
    frontier = sweep(np.concatenate(grids) + free[groups], groups)
    tight, loose = (frontier.at(d, confidence=0.95, simultaneous=True) for d in (0.2, 0.35))
    bands = [rate_band(int(n), 0.05 / 3) for n in sizes]
    high = bands[0][1][round(loose.rates[0] * sizes[0])]
    low = bands[2][0][round(tight.rates[2] * sizes[2])]
    assert loose.certified_gap <= 0.35 < high - low  # both certified, not their mixture
    assert not frontier.mixes
    own = np.where(groups == 2, 0.2, 0.35)
    with pytest.raises(InvalidInputError) as caught:
        frontier.decide(np.zeros(len(groups)), groups, own, confidence=0.95)
    assert caught.value.argument == "tolerance"


def test_where_they_may_not_confidence_is_refused():
    """Two models that select one group each: both have gap 0.1, together they have 0.9."""
    n = 40_000
    groups, u = np.tile([0, 1], n // 2), np.random.default_rng(0).random(n)
    rates = np.array([[0.1, 0.0], [0.9, 1.0]])
    frontier = measure(rates[:, groups] - u, groups, settings=[0.0, 1.0])
    assert not frontier.mixes
    frontier.check_mixture(1, 0.9)
    frontier.check_mixture(2, None)
    with pytest.raises(InvalidInputError) as caught:
        frontier.check_mixture(2, 0.9)
    assert caught.value.argument == "tolerance"
    for problem in ({"criterion": "equalized_odds"}, {"budget": 0.3}):
        logits, groups, y = sample(400, 2, digits=1)
        searched = sweep(logits, groups, y, **problem)
        with pytest.raises(InvalidInputError) as caught:
            searched.decide(logits, groups, np.where(groups == 0, 0.5, 0.9), confidence=0.5)
        assert caught.value.argument == "tolerance"


@pytest.mark.parametrize(
    ("calibrated", "asked"), [(np.float64, np.float32), (np.float32, np.float64)]
)
def test_a_decision_does_not_depend_on_the_form_of_the_tolerance(calibrated, asked):
    for seed in range(20):
        logits, groups, _ = sample(200, seed=seed)
        frontier = sweep(logits.astype(calibrated), groups)
        near = frontier.at(0.1).thresholds.astype(asked)
        near = np.concatenate((near, np.nextafter(near, asked(9)), np.nextafter(near, asked(-9))))
        who = np.tile([0, 1], 3)
        one = frontier.decide(near, who, 0.1)
        assert one.tolist() == frontier.decide(near, who, np.full(6, 0.1)).tolist()
        assert one.tolist() == (near.astype(float) > frontier.at(0.1).thresholds[who]).tolist()


def test_single_precision_rows_are_decided_on_a_frontier_of_enormous_scores():
    frontier = sweep(
        [-4e300, -3e300, -2e300, -1e300, 1e300, 2e300], [0, 0, 0, 1, 1, 1], min_count=1
    )
    rows = np.array([-1.0, 1.0], np.float32)
    assert quietly(frontier.decide, rows, [0, 1], 0.1).shape == (2,)


def test_a_decision_does_not_depend_on_the_other_rows():
    logits, groups, y = sample((1 << 15) + 500, digits=2)
    frontier = sweep(logits, groups, y)
    decisions = frontier.decide(logits, groups, 0.05)
    some = np.random.default_rng(0).permutation(len(logits))[:100]
    assert frontier.decide(logits[some], groups[some], 0.05).tolist() == decisions[some].tolist()


def test_flips_are_the_difference_of_two_decisions():
    logits, groups, y = sample(500)
    frontier = sweep(logits, groups, y)
    flips = frontier.flips(logits, groups, 0.3, 0.02)
    before = frontier.decide(logits, groups, 0.3).astype(int)
    after = frontier.decide(logits, groups, 0.02).astype(int)
    assert flips.tolist() == (after - before).tolist()
    assert set(flips[groups == 0]) <= {0, 1}
    assert set(flips[groups == 1]) <= {0, -1}
    assert not frontier.flips(logits, groups, 0.1, 0.1).any()
    with pytest.raises(InvalidInputError, match="`tolerance_from`"):
        frontier.flips(logits, groups, [0.1, 0.2], 0.1)


def test_nan_scores_are_refused_wherever_scores_go():
    logits, groups, y = sample(70_000)
    frontier = sweep(logits, groups, y)
    broken = logits.copy()
    broken[69_000] = np.nan
    for call in (
        lambda: sweep(broken, groups, y),
        lambda: sweep(broken, groups, y, tolerances=[0.1]),
        lambda: frontier.decide(broken, groups, 0.1),
        lambda: frontier.decide(broken, groups, np.full(len(broken), 0.1)),
        lambda: frontier.flips(broken, groups, 0.1, 0.2),
    ):
        with pytest.raises(InvalidInputError, match=r"`logits`.*NaN.*row 69000"):
            call()


# ---- columns, frames, words --------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_frames_agree_with_the_points(criterion, n_groups):
    frontier = sweep(*sample(200, n_groups), criterion=criterion, min_count=1)
    frame = frontier.to_frame()
    assert len(frame) == len(frontier)
    for i in np.flatnonzero(
        frontier.gap < np.append(np.inf, np.minimum.accumulate(frontier.gap)[:-1])
    ):
        point, line = frontier.at(frontier.gap[i]), frame.iloc[i]
        for column in ("setting", "accuracy", "gap"):
            assert line[column] == getattr(point, column)
        for a, group in enumerate(frontier.groups):
            assert line[f"threshold[{group}]"] == point.thresholds[a]
            for rate in ("selection_rate", "true_positive_rate", "false_positive_rate"):
                assert line[f"{rate}[{group}]"] == getattr(point, rate)[a]
    points = quietly(frontier.at, TOLERANCES)
    wide = points.to_frame()
    assert wide["tolerance"].tolist() == TOLERANCES.tolist()
    assert wide["feasible"].tolist() == points.feasible.tolist()
    tall = points[2].to_frame()
    assert tall.index.tolist() == list(frontier.groups)
    assert tall["rows"].sum() == 200
    right = (tall["accuracy"] * tall["rows"]).sum() / 200
    assert right == pytest.approx(points[2].accuracy)


def test_points_and_frontiers_describe_themselves():
    frontier = sweep(*sample())
    point = frontier.at(0.1)
    assert repr(point).startswith("Point(tolerance=0.1, setting=")
    assert "feasible=True" in repr(point)
    assert f"gap {point.gap:.4f}" in str(point)
    assert "`confidence`" in str(point)
    assert repr(frontier).startswith("Frontier(demographic_parity, groups=[0, 1], 400 rows")
    certain = sweep(*sample(20_000)).at(0.1, confidence=0.9)
    assert "certified_gap=0.1000, confidence=0.9" in repr(certain)
    assert "confidence 0.9" in str(certain)
    assert "0.1000" in str(certain)
    assert not certain.simultaneous
    assert "`simultaneous=True`" in str(certain)
    whole = sweep(*sample(20_000)).at(0.1, confidence=0.9, simultaneous=True)
    assert whole.simultaneous
    assert "`simultaneous=True`" not in str(whole)
    assert sweep(*sample(n_groups=3)).at(0.2).disparity is None
    assert "certified_gap" in sweep(*sample(20_000)).at([0.1, 0.2], confidence=0.9).to_frame()
    assert "threshold[0]" in repr(frontier.at([0.1, 0.2]))


def test_only_a_gap_that_the_dial_holds_is_exceeded_half_the_time():
    frontier = sweep(*sample())
    assert "half the time" in str(frontier.at(0.05))
    assert "half the time" not in str(frontier.at(1.0))
    unreached = quietly(out_of_reach().at, 0.0)
    assert "half the time" not in str(unreached)


@pytest.mark.parametrize(
    ("tolerance", "meant"),
    [(5, "0.05"), (12.5, "0.125"), ("5%", "0.05"), ("0,05", "0.05"), (500, None), (-0.1, None)],
)
def test_a_hint_writes_a_percentage_as_a_fraction(tolerance, meant):
    with pytest.raises(InvalidInputError) as refused:
        sweep(*sample()).at(tolerance)
    assert refused.value.argument == "tolerance"
    assert bool(refused.value.hints) == (meant is not None)
    assert meant is None or meant in refused.value.hints[0]


def test_the_worst_pair_is_the_lowest_and_the_highest_rate():
    logits, groups, y = sample(n_groups=4)
    names = np.array(["d", "b", "a", "c"])[groups]
    point = sweep(logits, names, y).at(1.0)
    rates = {name: np.mean(logits[names == name] > 0) for name in "abcd"}
    assert point.worst == (min(rates, key=rates.get), max(rates, key=rates.get))
    assert point.groups == ("a", "b", "c", "d")


# ---- JSON --------------------------------------------------------------------------------------


def frontiers():
    logits, groups, y = sample(150, 3, digits=2)
    endless = logits.copy()
    endless[::11], endless[5::13] = np.inf, -np.inf
    yield "path", sweep(logits, groups, y, min_count=1)
    yield "unlabelled", sweep(logits, groups, min_count=1)
    yield "infinite", sweep(endless, groups, y, min_count=1)
    yield "infinite, thinned", sweep(endless, groups, y, min_count=1).thin(7)
    yield "single precision", sweep(logits.astype(np.float32), groups, y, min_count=1)
    yield "names", sweep(logits, np.array(["ä", 'b"', "c"])[groups], y, min_count=1)
    yield "whole numbers", sweep(logits, 5 * groups - 5, y, min_count=1)
    yield "booleans", sweep(logits, groups > 0, y, min_count=1)
    yield "halves", sweep(logits, groups / 2, y, min_count=1)
    yield "thinned", sweep(logits, groups, y, min_count=1).thin(9)
    yield "pareto", sweep(logits, groups, y, min_count=1).pareto()
    yield "unlabelled, thinned", sweep(logits, groups, min_count=1).thin(9)
    for criterion in CRITERIA:
        yield criterion, sweep(logits, groups > 1, y, criterion=criterion, min_count=1)
    yield "tiny", sweep(logits * 1e-310, groups, y, min_count=1)
    whole = sweep(logits, groups > 1, y, min_count=1)
    yield "seen", Frontier(whole.points, whole.problem, whole.groups, whole.cells, "none")


FRONTIERS = dict(frontiers())


@pytest.mark.parametrize("name", FRONTIERS)
def test_json_gives_the_frontier_back_to_the_last_bit(name):
    frontier = FRONTIERS[name]
    text = frontier.to_json()
    again = Frontier.from_json(text)
    assert again.to_json() == text
    json.loads(text, parse_constant=pytest.fail)
    assert again.groups == frontier.groups
    assert [type(group) for group in again.groups] == [type(group) for group in frontier.groups]
    assert again.certificate == frontier.certificate
    np.testing.assert_array_equal(again.gap, frontier.gap)
    np.testing.assert_array_equal(again.setting, frontier.setting)
    np.testing.assert_array_equal(again.points.certifiable, frontier.points.certifiable)
    np.testing.assert_array_equal(again.accuracy, frontier.accuracy)
    tolerances = np.concatenate((TOLERANCES, frontier.gap))
    same_points(quietly(again.at, tolerances), quietly(frontier.at, tolerances))
    pd.testing.assert_frame_equal(again.to_frame(), frontier.to_frame())


def test_json_of_binned_scores_gives_the_same_answers(monkeypatch):
    monkeypatch.setattr(sweeping, "SORT_LIMIT", 0)
    monkeypatch.setattr(sweeping, "MAX_BINS_PER_ROW", 10**9)
    logits, groups, y = sample(2_000, 3)
    frontier = sweep(logits, groups, y, tolerances=[0.05, 0.1])
    again = Frontier.from_json(frontier.to_json())
    same_points(again.at([0.05, 0.1, 0.2]), frontier.at([0.05, 0.1, 0.2]))
    assert again.certificate == "simultaneous"


def edited(name, change):
    data = json.loads(FRONTIERS[name].to_json())
    change(data)
    return json.dumps(data)


def without(*keys):
    def change(data):
        for key in keys[:-1]:
            data = data[key]
        del data[keys[-1]]

    return change


def with_value(value, *keys):
    def change(data):
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


def last_dropped(*keys):
    def change(data):
        for key in keys:
            data = data[key]
        data.pop()

    return change


CORRUPTIONS = {
    **{
        f"no {key}": ("path", without(key))
        for key in ("format", "version", "criterion", "groups", "rows", "certificate", "dtype")
    },
    "no ladders": ("path", without("ladders")),
    "no states": ("thinned", without("states")),
    **{
        f"no {key} in a ladder": ("path", without("ladders", 0, key))
        for key in ("lower", "upper", "counts")
    },
    **{
        f"no {key} in the states": ("thinned", without("states", key))
        for key in ("setting", "gap", "certifiable", "thresholds", "selected")
    },
    **{
        f"short {key}": ("thinned", last_dropped("states", key))
        for key in ("setting", "gap", "certifiable", "thresholds", "selected")
    },
    "other format": ("path", with_value("something.else", "format")),
    "newer version": ("path", with_value(99, "version")),
    "version in words": ("path", with_value("one", "version")),
    "unknown criterion": ("path", with_value("justice", "criterion")),
    "unknown certificate": ("path", with_value("divine", "certificate")),
    "unknown dtype": ("path", with_value("int8", "dtype")),
    "no ladder left": ("path", with_value([], "ladders")),
    "ladders in words": ("path", with_value("up", "ladders")),
    "a ladder upside down": ("path", lambda data: data["ladders"][0]["lower"].reverse()),
    "a short ladder": ("path", last_dropped("ladders", 0, "lower")),
    "a missing ladder": ("path", last_dropped("ladders")),
    "a missing group": ("path", last_dropped("groups")),
    "a missing group, thinned": ("thinned", last_dropped("groups")),
    "negative counts": ("path", with_value(-1, "ladders", 0, "counts", 0, 0)),
    "enormous counts": ("path", with_value(10**30, "ladders", 0, "counts", 0, 0)),
    "rows that don't add up": ("path", with_value(1, "rows", 0, 0)),
    "rows of one group too few": ("path", last_dropped("rows", 0)),
    "NaN in a ladder": ("path", with_value("nan", "ladders", 0, "lower", 0)),
    "words in a ladder": ("path", with_value("high", "ladders", 0, "lower", 0)),
    "an empty ladder": (
        "path",
        with_value({"lower": [], "upper": None, "counts": [[], []]}, "ladders", 0),
    ),
}


@pytest.mark.parametrize("how", CORRUPTIONS)
def test_a_damaged_file_is_refused(how):
    with pytest.raises(InvalidInputError, match="`"):
        Frontier.from_json(edited(*CORRUPTIONS[how]))


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "3", '"frontier"', "not json", "{}"])
def test_other_json_is_refused(text):
    with pytest.raises(InvalidInputError, match="`text`"):
        Frontier.from_json(text)


@given(cut=st.integers(0, 10**6))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_truncated_file_is_refused(cut):
    text = FRONTIERS["infinite"].to_json()
    with pytest.raises(InvalidInputError, match="`text`"):
        Frontier.from_json(text[: cut % len(text)])


# ---- without labels ----------------------------------------------------------------------------


def test_demographic_parity_works_without_labels_and_without_accuracy():
    logits, groups, y = sample()
    frontier, labeled = sweep(logits, groups), sweep(logits, groups, y)
    assert frontier.accuracy is None
    point, other = frontier.at(0.1), labeled.at(0.1)
    assert point.accuracy is None
    assert point.true_positive_rate is None
    assert point.false_positive_rate is None
    assert point.thresholds.tolist() == other.thresholds.tolist()
    assert point.gap == other.gap
    assert "accuracy" not in frontier.to_frame()
    assert "accuracy" not in point.to_frame()
    assert "accuracy=None" in repr(point)
    assert "accuracy" not in str(point)
    assert "accuracy" not in repr(frontier)
    for call in (
        frontier.plot,
        frontier.pareto,
        frontier.band,
        lambda: frontier.least_disparity(accuracy=0.5),
    ):
        with pytest.raises(InvalidInputError, match="labels"):
            call()


# ---- names of groups ---------------------------------------------------------------------------

NAMES = ["Female", "Male", "Other"]
KINDS = {
    "str": lambda codes: np.array(NAMES)[codes],
    "object": lambda codes: np.array(NAMES, object)[codes],
    "list": lambda codes: [NAMES[a] for a in codes],
    "series": lambda codes: pd.Series(np.array(NAMES)[codes], index=np.arange(len(codes))[::-1]),
    "category": lambda codes: pd.Series(np.array(NAMES)[codes]).astype("category"),
    "categorical": lambda codes: pd.Categorical(np.array(NAMES)[codes]),
    "string": lambda codes: pd.Series(np.array(NAMES)[codes], dtype="string"),
    "frame": lambda codes: pd.DataFrame({"sex": np.array(NAMES)[codes]}),
    "column": lambda codes: np.array(NAMES)[codes][:, None],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_names_of_any_type_give_the_dial_of_their_codes(kind, n_groups):
    logits, codes, y = sample(n_groups=n_groups)
    plain = sweep(logits, codes, y)
    named = sweep(logits, KINDS[kind](codes), y)
    assert named.groups == tuple(NAMES[:n_groups])
    assert named.at(0.1).thresholds.tolist() == plain.at(0.1).thresholds.tolist()
    decisions = named.decide(logits, KINDS[kind](codes), 0.1)
    assert decisions.tolist() == plain.decide(logits, codes, 0.1).tolist()
    few = named.decide(logits[:1], [NAMES[codes[0]]], 0.1)
    assert few[0] == decisions[0]


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
@pytest.mark.parametrize("n_groups", [2, 3, 7])
@pytest.mark.parametrize("labeled", [True, False])
def test_whole_numbers_of_any_type_are_group_names(dtype, n_groups, labeled, monkeypatch):
    logits, codes, y = sample(n_groups=n_groups)
    y = y if labeled else None
    frontier = sweep(logits, codes.astype(dtype), y)
    assert frontier.groups == tuple(range(n_groups))
    expected = sweep(logits, codes, y).at(0.1)
    assert frontier.at(0.1).thresholds.tolist() == expected.thresholds.tolist()
    decisions = frontier.decide(logits, codes.astype(dtype), 0.1)
    assert decisions.tolist() == (logits > expected.thresholds[codes]).tolist()
    far = sweep(logits, codes.astype(dtype) + dtype(100), y)
    assert far.groups == tuple(range(100, 100 + n_groups))
    assert far.at(0.1).thresholds.tolist() == expected.thresholds.tolist()
    monkeypatch.setattr(sweeping, "SORT_LIMIT", 0)
    monkeypatch.setattr(sweeping, "MAX_BINS_PER_ROW", 10**9)
    binned = sweep(logits, codes.astype(dtype), y, tolerances=[0.1])
    assert binned.at(0.1).thresholds.tolist() == expected.thresholds.tolist()


@pytest.mark.parametrize("n_groups", [40, 100, 200, 300])
def test_many_groups_are_kept_apart(n_groups):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(n_groups), 6)
    logits = rng.normal(size=len(codes))
    y = rng.integers(0, 2, len(codes))
    for dtype in (np.uint8, np.int64) if n_groups <= 256 else (np.int64,):
        frontier = sweep(logits, codes.astype(dtype), y, min_count=1)
        point = frontier.at(1.0)
        for a in range(n_groups):
            assert point.selected[:, a].sum() == np.sum(logits[codes == a] > 0)
            assert point.selected[1, a] == np.sum((logits > 0) & (codes == a) & (y == 1))


def test_booleans_are_group_names():
    logits, codes, y = sample()
    frontier = sweep(logits, codes.astype(bool), y)
    assert frontier.groups == (False, True)
    expected = sweep(logits, codes, y).decide(logits, codes, 0.1).tolist()
    assert frontier.decide(logits, codes.astype(bool), 0.1).tolist() == expected
    assert frontier.decide(logits[:1], [True], 0.1).shape == (1,)


def test_columns_are_combined_into_intersections():
    logits, codes, y = sample(n_groups=4)
    people = pd.DataFrame(
        {
            "race": pd.Categorical(np.array(["Black", "White"])[codes // 2]),
            "sex": np.array(["Female", "Male"])[codes % 2],
        }
    )
    frontier = sweep(logits, people, y)
    names = ("Black & Female", "Black & Male", "White & Female", "White & Male")
    assert frontier.groups == names
    plain = sweep(logits, codes, y)
    assert frontier.at(0.1).thresholds.tolist() == plain.at(0.1).thresholds.tolist()
    expected = plain.decide(logits, codes, 0.1).tolist()
    assert frontier.decide(logits, people, 0.1).tolist() == expected
    assert frontier.decide(logits, people.to_numpy(), 0.1).tolist() == expected
    joined = np.array(names)[codes]
    assert frontier.decide(logits, joined, 0.1).tolist() == expected


def test_intersections_of_numbers_and_names_are_joined_as_text():
    logits, codes, y = sample(n_groups=4)
    people = pd.DataFrame({"old": codes // 2, "sex": np.array(["F", "M"])[codes % 2]})
    assert sweep(logits, people, y).groups == ("0 & F", "0 & M", "1 & F", "1 & M")


def test_intersections_with_the_same_name_are_refused():
    people = pd.DataFrame({"first": ["a & b", "a"] * 40, "second": ["c", "b & c"] * 40})
    with pytest.raises(InvalidInputError, match=r"`groups`.*'a & b & c'"):
        sweep(np.linspace(-1, 1, 80), people)


@pytest.mark.parametrize("stranger", ["Nobody", 7, True, 0])
def test_an_unknown_group_is_refused(stranger):
    logits, codes, y = sample()
    frontier = sweep(logits, np.array(NAMES)[codes], y)
    with pytest.raises(UnknownGroupError, match="`groups`"):
        frontier.decide([0.5, 0.1], np.array(["Male", stranger], object), 0.1)


@pytest.mark.parametrize("codes", [[0, 2], [0, -1], np.array([0, 255], np.uint8), [0.0, 0.5]])
def test_an_unknown_code_is_refused(codes):
    frontier = sweep(*sample())
    with pytest.raises(UnknownGroupError, match="`groups`"):
        frontier.decide([0.5, 0.1], codes, 0.1)


def test_a_small_group_is_named():
    logits, _, y = sample(100)
    groups = ["many"] * 93 + ["few"] * 7
    with pytest.raises(SmallGroupError, match="`groups`") as caught:
        sweep(logits, groups, y)
    assert caught.value.groups == ("few",)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), vars(again)) == (
        SmallGroupError,
        str(caught.value),
        vars(caught.value),
    )
    assert any("`min_count`" in hint for hint in caught.value.hints)
    assert sweep(logits, groups, y, min_count=7).groups == ("few", "many")


# ---- refusals ----------------------------------------------------------------------------------

Z = [0.5, -0.5, 1.0, -1.0]
G = ["a", "a", "b", "b"]
Y = [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        pytest.param(([0.5, np.nan, 1, 1], G, Y), {}, "logits", id="NaN scores"),
        pytest.param((list("abcd"), G, Y), {}, "logits", id="text scores"),
        pytest.param((["0.3"] * 4, G, Y), {}, "logits", id="numbers as text"),
        pytest.param(([b"0.3"] * 4, G, Y), {}, "logits", id="numbers as bytes"),
        pytest.param((np.zeros(4, "datetime64[D]"), G, Y), {}, "logits", id="dates"),
        pytest.param(([1j, 0, 0, 1], G, Y), {}, "logits", id="complex scores"),
        pytest.param(([None, 0.1, 0, 1], G, Y), {}, "logits", id="missing scores"),
        pytest.param((np.ones((4, 2)), G, Y), {}, "logits", id="two columns of scores"),
        pytest.param((0.5, G, Y), {}, "logits", id="one number for scores"),
        pytest.param(([[0.5, 1], [1]], G, Y), {}, "logits", id="ragged scores"),
        pytest.param(([], [], []), {}, "logits", id="no rows"),
        pytest.param((Z, [], Y), {}, "groups", id="no groups"),
        pytest.param((Z[:3], G, Y), {}, "logits", id="fewer scores"),
        pytest.param((Z, G[:3], Y), {}, "groups", id="fewer groups"),
        pytest.param((Z, G, Y[:3]), {}, "y", id="fewer labels"),
        pytest.param((Z, ["a", None, "b", "b"], Y), {}, "groups", id="a missing group"),
        pytest.param((Z, ["a", np.nan, "b", "b"], Y), {}, "groups", id="a NaN among names"),
        pytest.param((Z, [0, 1, np.nan, 1], Y), {}, "groups", id="a NaN among codes"),
        pytest.param(
            (Z, pd.Series(["a", pd.NA, "b", "b"], dtype="string"), Y), {}, "groups", id="an NA"
        ),
        pytest.param(
            (Z, pd.Categorical(["a", None, "b", "b"]), Y), {}, "groups", id="a missing category"
        ),
        pytest.param(
            (Z, pd.DataFrame({"p": ["a", None, "b", "b"], "q": G}), Y),
            {},
            "groups",
            id="a missing value in a column",
        ),
        pytest.param(
            (Z, pd.DataFrame(index=range(4)), Y), {}, "groups", id="groups without columns"
        ),
        pytest.param((Z, G, [0, 1, 2, 1]), {}, "y", id="a third label"),
        pytest.param((Z, G, [0, 1, 0.5, 1]), {}, "y", id="half a label"),
        pytest.param((Z, G, [-1, 1, -1, 1]), {}, "y", id="signed labels"),
        pytest.param((Z, G, [0, 1, np.nan, 1]), {}, "y", id="NaN labels"),
        pytest.param((Z, G, ["no", "yes", "no", "yes"]), {}, "y", id="labels in words"),
        pytest.param((Z, G, np.array(Y)[:, None] * [1, 1]), {}, "y", id="two columns of labels"),
        pytest.param((Z, G, Y), {"criterion": "fairness"}, "criterion", id="unknown criterion"),
        pytest.param((Z, G), {"criterion": "equal_opportunity"}, "y", id="labels needed"),
        pytest.param((Z, G), {"criterion": "predictive_equality"}, "y", id="labels needed too"),
        pytest.param(
            (Z, G, [0, 0, 0, 1]), {"criterion": "equal_opportunity"}, "groups", id="no positives"
        ),
        pytest.param(
            (Z, G, [1, 1, 0, 1]), {"criterion": "predictive_equality"}, "groups", id="no negatives"
        ),
        pytest.param((Z, G, Y), {"min_count": 0}, "min_count", id="min_count 0"),
        pytest.param((Z, G, Y), {"min_count": 2.5}, "min_count", id="min_count 2.5"),
        pytest.param((Z, G, Y), {"min_count": True}, "min_count", id="min_count True"),
        pytest.param((Z, G, Y), {"min_count": 3}, "min_count", id="small groups"),
        pytest.param((Z, G, Y), {"tolerances": [0.1, 2.0]}, "tolerances", id="tolerances"),
        pytest.param((Z, G, Y), {"tolerances": ["wide"]}, "tolerances", id="tolerances in words"),
    ],
)
def test_bad_rows_are_refused_by_name(arguments, options, name):
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        sweep(*arguments, **{"min_count": 1} | options)


def test_a_group_without_eligible_rows_is_named():
    with pytest.raises(InvalidInputError, match="label 1") as caught:
        sweep(Z, G, [0, 0, 0, 1], criterion="equal_opportunity", min_count=1)
    assert "'b'" not in str(caught.value)


@pytest.mark.parametrize(
    "tolerance",
    [-0.01, 1.01, np.nan, 1j, [0.1, 1.5], [[0.1]], [0.1, None], "0.1", True, b"0.1", None],
)
def test_an_invalid_tolerance_is_refused_everywhere(tolerance):
    frontier = sweep(Z, G, Y, min_count=1)
    for call in (
        frontier.at,
        partial(frontier.at, confidence=0.5),
        partial(frontier.decide, Z, G),
    ):
        with pytest.raises(InvalidInputError, match="`tolerance`"):
            call(tolerance)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        pytest.param((Z[:3], G, 0.1), "logits", id="fewer scores"),
        pytest.param((Z, G[:3], 0.1), "groups", id="fewer groups"),
        pytest.param((Z, G, [0.1, 0.2]), "tolerance", id="fewer tolerances"),
        pytest.param((list("abcd"), G, 0.1), "logits", id="text scores"),
        pytest.param((Z, ["a", None, "b", "b"], 0.1), "groups", id="a missing group"),
        pytest.param(([], [], 0.1), "logits", id="no rows"),
    ],
)
def test_bad_rows_to_decide_are_refused_by_name(arguments, name):
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        sweep(Z, G, Y, min_count=1).decide(*arguments)


@pytest.mark.parametrize("dtype", ["object", "str", "string", "category"])
def test_groups_are_the_same_in_every_type_of_text(dtype):
    logits, codes, y = sample(300, 3)
    names = np.array(["b", "\N{LATIN SMALL LETTER U WITH DIAERESIS}", "a"], dtype=object)[codes]
    groups = pd.Series(names).astype(dtype)
    one, two = sweep(logits, names, y), sweep(logits, groups, y)
    same_points(quietly(one.at, TOLERANCES), quietly(two.at, TOLERANCES))
    decisions = one.decide(logits, names, 0.1)
    np.testing.assert_array_equal(one.decide(logits, groups, 0.1), decisions)
    some = groups[groups != "a"]  # a category without rows
    rows = some.index.to_numpy()
    np.testing.assert_array_equal(one.decide(logits[rows], some, 0.1), decisions[rows])
    with pytest.raises(UnknownGroupError) as caught:
        sweep(logits[rows], some, y[rows]).decide(logits, groups, 0.1)
    assert list(caught.value.groups) == ["a"]
    missing = groups.where(codes != 1, None)
    for call in (partial(sweep, logits, missing, y), partial(one.decide, logits, missing, 0.1)):
        with pytest.raises(InvalidInputError, match="`groups`"):
            call()


# ---- bands and figures -------------------------------------------------------------------------


def test_the_band_holds_the_frontier_is_repeatable_and_narrows_with_rows():
    few, many = sweep(*sample(400)), sweep(*sample(10_000))
    band = few.band(n_boot=200, random_state=0)
    assert band.columns.tolist() == ["tolerance", "accuracy", "lower", "upper"]
    assert len(band) == 50
    inside = (band["lower"] <= band["accuracy"]) & (band["accuracy"] <= band["upper"])
    assert inside.mean() >= 0.9
    pd.testing.assert_frame_equal(band, few.band(n_boot=200, random_state=0))
    assert not band.equals(few.band(n_boot=200, random_state=1))
    here = quietly(few.at, band["tolerance"].to_numpy()).accuracy
    np.testing.assert_array_equal(band["accuracy"], here)
    grid = np.linspace(0.02, 0.1, 9)
    wide, narrow = (f.band(grid, n_boot=200, random_state=0) for f in (few, many))
    assert (narrow["upper"] - narrow["lower"]).max() < (wide["upper"] - wide["lower"]).min()
    less = few.band(grid, confidence=0.5, n_boot=200, random_state=0)
    assert (less["upper"] - less["lower"]).max() < (wide["upper"] - wide["lower"]).max()


@pytest.mark.parametrize("n_groups", [2, 4])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_band_is_there_for_every_criterion_and_number_of_groups(criterion, n_groups):
    frontier = sweep(*sample(2_000, n_groups), criterion=criterion)
    band = frontier.band([0.05, 0.1, 0.3], n_boot=40, random_state=0)
    assert (band["lower"] <= band["upper"]).all()
    assert np.isfinite(band.to_numpy()).all()


def test_the_band_survives_replicates_without_eligible_rows():
    logits, groups, y = sample(100)
    y[(groups == 1) & (np.cumsum(groups == 1) > 1)] = 0
    y[np.argmax(groups == 1)] = 1  # the only positive of its group
    frontier = sweep(logits, groups, y, criterion="equal_opportunity", min_count=1)
    band = frontier.band([0.3, 0.5], n_boot=60, random_state=0)
    assert np.isfinite(band.to_numpy()).all()


@pytest.mark.parametrize("rows_per_cell", [0, 10**9], ids=["cells", "rows"])
def test_resampled_rows_follow_the_counts_of_their_group(monkeypatch, rows_per_cell):
    monkeypatch.setattr(bootstrap, "ROWS_PER_CELL", rows_per_cell)
    logits, codes, y = sample(300, 3)
    parts = sort_scores(logits.round(1), codes, y, 3)
    counts = [part.counts for part in parts]
    sizes = np.array([50, 100, 200])
    resampler, rng = bootstrap._Resampler(parts, sizes), np.random.default_rng(0)
    total, n_draws = [np.zeros(part.shape) for part in counts], 1000
    for _ in range(n_draws):
        drawn = resampler.draw(rng)
        np.testing.assert_allclose(drawn.totals.sum(axis=0), [part.sum() for part in counts])
        for sums, part, scores in zip(total, parts, drawn.split(), strict=True):
            sums[:, np.searchsorted(-part.lower, -scores.lower)] += scores.counts
    for sums, part, size in zip(total, counts, sizes.tolist(), strict=True):
        error = np.sqrt(part * (1 - part / part.sum()) * part.sum() / size / n_draws)
        assert (np.abs(sums / n_draws - part) <= 5 * error).all()


def test_a_frontier_of_sorted_rows_keeps_at_most_forty_bytes_a_row():
    logits, groups, y = sample(100_000)
    sweep(logits[:1000], groups[:1000], y[:1000]).at(0.1)  # imports
    tracemalloc.start()
    frontier = sweep(logits, groups, y)
    frontier.at(0.1)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(np.unique(logits)) == len(logits) >= kept / 40


def test_a_thousand_replicates_of_fifty_tolerances_take_seconds_at_most():
    frontier = sweep(*sample(50_000))
    start = time.process_time()
    frontier.band(n_boot=1000, random_state=0)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"confidence": 1.0}, "confidence"),
        ({"n_boot": 0}, "n_boot"),
        ({"tolerances": [1.5]}, "tolerances"),
    ],
)
def test_an_invalid_band_is_refused(options, name):
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        sweep(*sample()).band(**options)
    with pytest.raises(InvalidInputError, match="`band`"):
        sweep(*sample()).thin(5).band()


def test_a_plot_draws_the_frontier_on_the_axes_given():
    frontier = sweep(*sample())
    figure, given_axes = plt.subplots()
    axes = frontier.plot(given_axes, label="plain", band=True)
    assert axes is given_axes
    (line,) = axes.lines
    gaps, accuracies = line.get_data()
    assert gaps.min() == frontier.gap.min()
    assert gaps.max() == frontier.gap[0]
    assert frontier.at(0.1).accuracy in accuracies or len(set(accuracies)) > 10
    assert len(axes.collections) == 1
    assert axes.get_xlabel() == "demographic parity gap"
    assert axes.get_ylabel() == "accuracy"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "plain",
        "plain: 95% bootstrap band",
    ]
    own = frontier.thin(10).plot()
    assert isinstance(own, Axes)
    assert own is not given_axes
    figure.canvas.draw()
    own.figure.canvas.draw()
    plt.close("all")


def test_masked_rows_are_refused():
    logits, codes, y = sample()
    hidden = np.ma.masked_array(logits, mask=np.arange(len(logits)) == 3)
    with pytest.raises(InvalidInputError, match="`logits`"):
        sweep(hidden, codes, y)
    sweep(np.ma.masked_array(logits, mask=False), codes, y)


def test_forty_thousand_groups_are_kept_apart():
    n = 40_000
    codes = np.arange(n).astype(np.int64)
    frontier = sweep(np.tile([1.0, -1.0], n // 2), codes, np.tile([1, 0], n // 2), min_count=1)
    assert len(frontier.groups) == n
    assert frontier.counts.sum(axis=0).tolist() == [1] * n


def test_the_band_is_as_wide_as_the_rows_are_few():
    """The free accuracy is a mean of rows, so its band must have the binomial width."""
    logits, codes, y = sample(4000)
    frontier = sweep(logits, codes, y)
    band = frontier.band([1.0], n_boot=800, random_state=0).iloc[0]
    share = band["accuracy"]
    width = 2 * 1.96 * np.sqrt(share * (1 - share) / 4000)
    assert band["upper"] - band["lower"] == pytest.approx(width, rel=0.15)
    assert (band["upper"] + band["lower"]) / 2 == pytest.approx(share, abs=width / 10)


def test_probabilities_are_not_silently_taken_for_logits():
    logits, codes, y = sample()
    with pytest.warns(FairdialWarning, match="proba_to_logits"):
        sweep(1 / (1 + np.exp(-logits)), codes, y)


def test_decisions_with_confidence_use_the_certified_thresholds():
    logits, codes, y = sample(4000)
    frontier = sweep(logits, codes, y)
    point = frontier.at(0.3, confidence=0.9)
    sure = frontier.decide(logits, codes, 0.3, confidence=0.9)
    assert np.array_equal(sure, logits > point.thresholds[codes])


@pytest.mark.parametrize(("old", "new"), [("rows", "counts"), ("measured", "is_family")])
def test_names_of_version_0_1_still_work_and_warn(old: str, new: str) -> None:
    frontier = sweep([-1.0, 1.0, 2.0, 0.5], ["a", "a", "b", "b"], min_count=1)
    points = frontier.at([0.5, 1.0])
    for owner in (frontier, points, points[0]):
        with pytest.warns(DeprecationWarning, match=new) as caught:
            assert getattr(owner, old) is getattr(owner, new)
        assert caught[0].filename == __file__
