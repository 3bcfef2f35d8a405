"""Laws of dials for overlapping groups."""

from __future__ import annotations

import itertools
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from fairdial import (
    CannotCertifyError,
    Frontier,
    InvalidInputError,
    SmallGroupError,
    sweep,
    sweep_blind,
)
from fairdial.core.criteria import criterion
from fairdial.core.decide import count_rows
from fairdial.core.groupings import find_groupings
from fairdial.core.overlap import OverlapPoints
from fairdial.io.frontiers import frontier_from_arrays, frontier_to_arrays
from fairdial.metrics import gap

CRITERIA = (
    "demographic_parity",
    "equal_opportunity",
    "equalized_odds",
    "false_negative_rate_parity",
)


def draw(n, seed, n_races=3):
    """Logits, a table of two sensitive columns, and labels."""
    rng = np.random.default_rng(seed)
    sex, race = rng.integers(0, 2, n), rng.choice(n_races, n, p=None)
    logits = rng.normal(0.8 * sex - 0.5 * race, 1.2)
    names = pd.DataFrame({"sex": np.array(["f", "m"])[sex], "race": race})
    return logits, names, (rng.random(n) < expit(logits)).astype(int)


def marginal_gap(names, decided, y, kind):
    """Return the largest gap over the columns, counted by ``metrics.gap``."""
    columns = (names[name] for name in names)
    return max(gap(y, decided, sensitive_features=c, criterion=kind) for c in columns)


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


@pytest.mark.parametrize("kind", [*CRITERIA, "accuracy_parity"])
@pytest.mark.parametrize("overlap", ["marginal", "both"])
def test_gaps_are_those_of_the_decisions(kind, overlap):
    for seed in range(4):
        logits, names, y = draw(900, seed)
        frontier = sweep(logits, names, y, criterion=kind, overlap=overlap, min_count=1)
        joined = names["sex"] + " & " + names["race"].astype(str)
        for tolerance in (0.2, 0.1, 0.05, 0.01):
            point = quietly(lambda d=tolerance, f=frontier: f.at(d))
            given = logits, joined, tolerance
            decided = quietly(lambda f=frontier, g=given: f.decide(*g))
            found = marginal_gap(names, decided.astype(int), y, kind)
            if overlap == "both":
                every = gap(y, decided.astype(int), sensitive_features=joined, criterion=kind)
                assert every >= found - 1e-12  # a rate of a union is a mean of rates
                found = every
            assert point.gap == pytest.approx(found, abs=1e-12)
            assert point.feasible == (point.gap <= tolerance)


@pytest.mark.parametrize("kind", CRITERIA)
def test_no_thresholds_of_tiny_cases_are_better_and_few_are_missed(kind):
    reached, possible = 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        names = pd.DataFrame({"a": [0, 0, 1, 1] * 3, "b": [0, 1, 0, 1] * 3})
        logits, y = rng.normal(size=12), np.tile([0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0], 1)
        frontier = sweep(logits, names, y, criterion=kind, overlap="marginal", min_count=1)
        points = frontier.points
        every = np.array(list(itertools.product(range(4), repeat=4)))
        gaps = frontier.criterion.gap_of(points._selected(every), frontier.cells)
        values = np.array([points.value_at(ranks) for ranks in every])
        for tolerance in (0.5, 0.34, 0.2):
            point = quietly(lambda d=tolerance, f=frontier: f.at(d))
            best = values[gaps <= tolerance].max()
            if not point.feasible:
                assert point.gap > tolerance
                continue
            assert point.gap <= tolerance
            assert point.expected_value <= best + 1e-12
            assert point.bound >= best - 1e-9
            possible += 1
            reached += point.expected_value >= best - 0.05
    assert reached >= 0.75 * possible > 30


@pytest.mark.parametrize("kind", ["demographic_parity", "equal_opportunity"])
def test_values_are_close_to_the_bound_of_all_mixtures(kind):
    for seed in range(3):
        logits, names, y = draw(6000, seed, n_races=4)
        frontier = sweep(logits, names, y, criterion=kind, overlap="marginal")
        for tolerance in (0.1, 0.05, 0.02):
            point = frontier.at(tolerance)
            assert point.feasible
            assert -1e-9 <= point.bound - point.expected_value <= 0.001


def test_intersections_and_single_columns_stay_as_they_are():
    logits, names, y = draw(2000, 0)
    plain, named = sweep(logits, names, y), sweep(logits, names, y, overlap="intersection")
    assert plain.to_json() == named.to_json()
    alone = [sweep(logits, names["sex"], y, overlap=how) for how in ("intersection", "marginal")]
    assert alone[0].to_json() == alone[1].to_json()


@pytest.mark.parametrize(
    "kind", ["demographic_parity_ratio", "equalized_odds", "predictive_parity"]
)
def test_both_takes_any_criterion_and_is_as_good_as_intersections(kind):
    logits, names, y = draw(800, 1, n_races=2)
    both = sweep(logits, names, y, criterion=kind, overlap="both", objective="balanced_accuracy")
    alone = sweep(logits, names, y, criterion=kind, objective="balanced_accuracy")
    for tolerance in (0.3, 0.2):
        found = [quietly(lambda d=tolerance, f=f: f.at(d)) for f in (both, alone)]
        assert found[0].expected_value == pytest.approx(found[1].expected_value, abs=1e-12)
        assert len(found[0].gaps) == 3 * len(found[1].gaps)
        assert found[0].gap == pytest.approx(found[1].gap, abs=1e-12)


def test_whole_weights_are_repeated_rows():
    logits, names, y = draw(400, 2)
    weights = np.random.default_rng(0).integers(1, 4, len(y))
    given = {"criterion": "equal_opportunity", "overlap": "marginal", "min_count": 1}
    once = sweep(logits, names, y, sample_weight=weights, **given)
    again = [part.repeat(weights) for part in (logits, y)]
    long = sweep(again[0], names.loc[names.index.repeat(weights)], again[1], **given)
    for tolerance in (0.2, 0.1):
        points = once.at(tolerance), long.at(tolerance)
        assert np.array_equal(points[0].thresholds, points[1].thresholds)
        assert points[0].gap == points[1].gap


@pytest.mark.parametrize("nested", [None, True])
@pytest.mark.parametrize("overlap", ["marginal", "both"])
def test_frontiers_are_saved_exactly(overlap, nested):
    logits, names, y = draw(1500, 3)
    frontier = sweep(
        logits, names, y, criterion="equal_opportunity", overlap=overlap, nested=nested
    )
    again = Frontier.from_json(frontier.to_json())
    stored = frontier_from_arrays(*frontier_to_arrays(frontier), "frontier")
    for tolerance in (0.3, 0.13, 0.07, 0.031):
        points = [quietly(lambda d=tolerance, f=f: f.at(d)) for f in (frontier, again, stored)]
        for other in points[1:]:
            assert np.array_equal(points[0].thresholds, other.thresholds)
            assert points[0].gap == other.gap
            assert points[0].gaps == other.gaps
    if nested:
        decided = [quietly(lambda d=d: frontier.decide(logits, names, d)) for d in (0.3, 0.1, 0.03)]
        changes = np.abs(np.diff(np.array(decided, int), axis=0)).sum(axis=0)
        assert frontier.nested
        assert changes.max() <= 1


@pytest.mark.parametrize("change", ["members", "names", "kept", "kept_nan"])
def test_damaged_groups_of_columns_are_refused(change):
    logits, names, y = draw(500, 4)
    data = json.loads(sweep(logits, names, y, overlap="marginal", min_count=1).to_json())
    grouping = data["criterion"]["demands"][0]["grouping"]
    if change == "members":
        grouping["members"] = grouping["members"][:-1]
    elif change == "names":
        grouping["names"] = [*grouping["names"], "another"]
    elif change == "kept":
        data["kept"] = [line[:-1] for line in data["kept"]]
    else:
        data["kept"][0][0] = "nan"
    with pytest.raises(InvalidInputError):
        Frontier.from_json(json.dumps(data))


def test_intersections_without_a_row_of_their_own_need_none_in_a_marginal_dial():
    logits, names, y = draw(3000, 5)
    names.loc[(names["sex"] == "f") & (names["race"] == 2), "race"] = 1
    names.loc[0, ["sex", "race"]] = ["f", 2]
    with pytest.raises(SmallGroupError):
        sweep(logits, names, y, overlap="both")
    assert sweep(logits, names, y, overlap="marginal").at(0.05).gap <= 0.05


def test_certificates_hold_for_marginal_groups():
    """Over draws of calibration rows, certified tolerances are broken in at most 10% of cases."""
    logits, names, y = draw(200_000, 6)
    rng, broken, certified = np.random.default_rng(0), 0, 0
    for _ in range(25):
        rows = rng.choice(len(y), 4000, replace=False)
        frontier = sweep(logits[rows], names.iloc[rows], y[rows], overlap="marginal")
        try:
            point = frontier.at(0.15, confidence=0.9)
        except CannotCertifyError:
            continue
        certified += 1
        decided = frontier.decide(logits, names, 0.15, confidence=0.9).astype(int)
        broken += marginal_gap(names, decided, y, "demographic_parity") > 0.15
        assert point.gap <= 0.15
    assert certified >= 15
    assert broken <= 6  # 10% of 25, and more than two standard deviations


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"criterion": "demographic_parity_ratio"}, "criterion"),
        ({"criterion": "true_positive_rate>=0.5"}, "criterion"),
        ({"objective": "f1"}, "objective"),
        ({"budget": 0.3}, "budget"),
        ({"rising": True}, "rising"),
        ({"value": "labels"}, "value"),
        ({"randomize": "hash"}, "randomize"),
        ({"overlap": "union"}, "overlap"),
    ],
)
def test_what_marginal_groups_cannot_have_is_refused(options, argument):
    logits, names, y = draw(300, 7)
    with pytest.raises(InvalidInputError) as error:
        sweep(logits, names, y, **{"overlap": "marginal", "min_count": 1} | options)
    assert error.value.argument == argument


@pytest.mark.parametrize("kind", ["demographic_parity", "equalized_odds"])
def test_blind_dials_keep_marginal_groups_within_the_tolerance(kind):
    logits, names, y = draw(3000, 8, n_races=2)
    joined = names["sex"] + " & " + names["race"].astype(str)
    known = np.eye(4)[np.unique(joined, return_inverse=True)[1]]
    posterior = 0.7 * known + 0.3 / 4
    frontier = sweep_blind(logits, posterior, names, y, criterion=kind, overlap="marginal")
    for tolerance in (0.2, 0.1):
        point = frontier.at(tolerance)
        decided = frontier.decide(logits, posterior, tolerance).astype(int)
        assert marginal_gap(names, decided, y, kind) == pytest.approx(point.gap, abs=1e-12)
        assert point.gap <= tolerance
    again = Frontier.from_json(frontier.to_json())
    assert again.at(0.1).gap == frontier.at(0.1).gap
    wider = sweep_blind(logits, posterior, names, y, criterion=kind)
    assert frontier.at(0.1).expected_value >= wider.at(0.1).expected_value - 0.002


def test_groups_of_a_column_are_unions_of_intersections():
    names = pd.DataFrame({"a": ["x", "y", "x"], "b": [True, True, False]})
    codes, groups = np.array([1, 2, 0]), ("x & False", "x & True", "y & True")
    first, second = find_groupings(names, codes, groups)
    assert (first.column, first.names, first.members) == ("a", ("x", "y"), (0, 0, 1))
    assert (second.names, second.members) == (("False", "True"), (0, 1, 1))
    kind = criterion("demographic_parity").compare("both", (first, second))
    cells = count_rows(codes, None, 3, 1)
    assert [len(d.names(groups)) for d in kind.demands] == [2, 2, 3]
    assert kind.eligible_counts(cells).tolist() == [1, 1, 1]
    assert find_groupings(names["a"], codes, groups) == ()


def test_tables_have_lines_for_marginal_groups():
    logits, names, y = draw(2000, 9)
    frontier = sweep(logits, names, y, overlap="marginal")
    assert isinstance(frontier.points, OverlapPoints)
    point = frontier.at(0.05)
    table = point.to_frame()
    decided = frontier.decide(logits, names, 0.05)
    for name in ("f", "m"):
        rate = decided[names["sex"] == name].mean()
        assert table.loc[f"sex: {name}", "selection_rate"] == pytest.approx(rate)
    assert list(point.gaps) == ["selection_rate by sex", "selection_rate by race"]
    assert set(point.worst) <= {"f", "m", "0", "1", "2"}


@pytest.mark.parametrize("overlap", ["intersection", "marginal", "both"])
@pytest.mark.parametrize("kind", ["demographic_parity", "equal_opportunity"])
def test_a_refusal_names_a_group_that_has_as_many_rows_as_it_says(overlap, kind):
    logits, names, y = draw(2000, 5)
    kept = ~((names["sex"] == "f") & (names["race"] == 1)) | (np.arange(2000) % 2 == 0)
    logits, names, y = logits[kept], names[kept], y[kept]
    frontier = sweep(logits, names, y, criterion=kind, overlap=overlap)
    with pytest.raises(CannotCertifyError) as caught:
        frontier.at(0.02, confidence=0.95)
    error = caught.value
    counted = names[y == 1] if kind == "equal_opportunity" else names
    both = counted["sex"] + " & " + counted["race"].astype(str)
    sizes = {} if overlap == "marginal" else both.value_counts().to_dict()
    for column in names if overlap != "intersection" else ():
        sizes |= {f"{column}: {n}": c for n, c in counted[column].value_counts().items()}
    assert sizes[error.group] == error.group_rows
