"""Curves are what the counts say: by brute force, by hand, and with records missing."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from fairdial.bench.comparisons import (
    at_tolerances,
    grid_difference,
    held,
    matched,
    mean_difference,
    reached,
)
from fairdial.bench.curves import (
    Panel,
    Trial,
    measure,
    read_study,
    read_trial,
)
from fairdial.bench.plan import make_plan
from fairdial.core.criteria import CRITERIA, criterion
from fairdial.errors import InvalidInputError
from fairdial.metrics import gap

DP = criterion("demographic_parity")
METHODS = [
    {"name": "A", "estimator": "FairBayes"},
    {"name": "B", "estimator": "GFB"},
    {"name": "A again", "same_as": "A", "seed_offset": 9},
]


def make(**changes):
    data = {
        "title": "t",
        "datasets": ["compas"],
        "seeds": [0, 5, 10],
        "methods": METHODS,
        "tolerances": [0.0, 0.05, 0.1, 0.2],
    }
    return make_plan(data | changes)


def counts(rng, rows, size):
    return (rng.random((size, 2, 2)) * (np.asarray(rows) + 1)).astype(int)


def record(config, seed=0, size=6):
    rng = np.random.default_rng([seed, config["seed"]])
    rows = [[30, 40], [50, 20]]
    states = [3 * i for i in range(size)]
    n = len(config["tolerances"])
    return {
        "config": config,
        "result": {
            "rows": {"calibration": rows, "test": rows},
            "states": {
                "state": states,
                "test": np.moveaxis(counts(rng, rows, size), 0, -1).tolist(),
            },
            "points": [states[i] for i in (0, 2, 2, 5)],
            "curve": [states[i] for i in (0, 1, 3, 5)],
            "grid": [int(s) for s in rng.choice(states, n)],
            "feasible": [bool(f) for f in rng.random(n) < 0.7],
            "certified": [
                None if rng.random() < 0.5 else int(rng.choice(states)) for _ in range(n)
            ],
            "epochs": {"trained": [4, 8], "kept": [1, 2]},
        },
        "timing": {"fit_cpu": 2.0},
        "environment": {},
        "warnings": [],
        "code": "c",
    }


def by_state(result):
    """Accuracy and gap of each operating point, one by one."""
    columns = zip(*np.asarray(result["states"]["test"]).reshape(4, -1), strict=True)
    rows = result["rows"]["test"]
    return {
        state: measure([np.reshape(cells, (2, 2))], rows, DP)[0]
        for state, cells in zip(result["states"]["state"], columns, strict=True)
    }


def records(plan):
    return [record(config, seed=i) for i, config in enumerate(plan.trials())]


def trial(curve, **changes):
    n = len(curve)
    points = np.array(curve, float)
    values = {
        "method": "A",
        "seed": 0,
        "points": points,
        "curve": points,
        "tolerances": np.zeros(n),
        "grid": points,
        "feasible": np.ones(n, bool),
        "certified": points,
        "seconds": {},
        "epochs": np.nan,
    }
    return Trial(**(values | changes))


# ---- counts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CRITERIA, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_counts_give_the_accuracy_and_gap_of_the_rows(kind, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(5, 30, (2, 3))
    selected = (rng.random((2, 3)) * (rows + 1)).astype(int)
    y, groups, decisions = [], [], []
    for label in range(2):
        for group in range(3):
            n, k = rows[label, group], selected[label, group]
            y += [label] * n
            groups += [group] * n
            decisions += [1] * k + [0] * (n - k)
    accuracy, disparity = measure([selected], rows, kind)[0]
    assert accuracy == pytest.approx(np.mean(np.array(y) == decisions))
    assert disparity == pytest.approx(gap(y, decisions, sensitive_features=groups, criterion=kind))


def test_a_group_without_eligible_rows_has_no_gap():
    rows = [[5, 5], [5, 0]]
    assert measure([rows], rows, DP)[0, 1] == 0
    with pytest.raises(InvalidInputError, match="equal_opportunity") as caught:
        measure([rows], rows, criterion("equal_opportunity"))
    assert caught.value.given == "[5, 0]"


def test_a_trial_reads_each_position_where_the_record_points():
    one = record(make().trials()[0])
    found, result = read_trial(one), one["result"]
    points = by_state(result)
    for name in ("points", "curve", "grid"):
        assert np.array_equal(getattr(found, name), [points[s] for s in result[name]])
    for state, pair in zip(result["certified"], found.certified, strict=True):
        assert np.isnan(pair).all() if state is None else np.array_equal(pair, points[state])
    assert found.epochs == 6


# ---- matched gaps ------------------------------------------------------------------------------

CURVE = [(0.9, 0.3), (0.8, 0.1), (0.85, 0.2), (0.7, 0.05)]  # the third step back doesn't count


@pytest.mark.parametrize(
    ("gap", "accuracy"),
    [(0.5, 0.9), (0.3, 0.9), (0.2, 0.85), (0.1, 0.8), (0.075, 0.775), (0.05, 0.7), (0.04, np.nan)],
)
def test_accuracy_at_a_gap_is_interpolated_along_the_running_minimum(gap, accuracy):
    assert trial(CURVE).matched([gap])[0] == pytest.approx(accuracy, nan_ok=True)


def test_a_splits_figure_is_the_mean_of_its_initializations_that_have_it():
    trials = {
        ("A", 0, 0): trial([(0.8, 0.1)]),
        ("A", 0, 1): trial([(0.6, 0.0)]),
        ("A", 0, 2): trial([(0.7, 0.3)]),
    }
    panel = Panel("d", "demographic_parity", make().methods, (0,), trials)
    found = matched(panel, (0.1, 0.5))
    assert found[0.5].loc[0, "A"] == pytest.approx(0.7)
    assert found[0.1].loc[0, "A"] == pytest.approx(0.7)  # of 0.8 and 0.6: the third is too loose
    assert reached(found[0.1], panel, "A") == (1, 1)
    assert len(panel.of("A")) == 3


def test_differences_are_paired_by_initialization_before_they_are_averaged():
    easy, hard, loose = [(0.9, 0.0)], [(0.7, 0.0)], [(0.9, 0.3)]
    trials = {
        ("A", 0, 0): trial(loose),  # doesn't reach the gap, and would lower the mean of the others
        ("A", 0, 1): trial(hard),
        ("B", 0, 0): trial(easy),
        ("B", 0, 1): trial(hard),
    }
    panel = Panel("d", "demographic_parity", make().methods, (0,), trials)
    assert mean_difference(panel, (0.1,), "A", "B")[0] == 0
    assert mean_difference(panel, (0.1, 0.5), "A", "B")[0] == 0
    assert grid_difference(panel, "A", "B")[0] == pytest.approx(
        50 * sum(trial(x).grid[:, 0].mean() * s for x, s in ((loose, 1), (easy, -1)))
    )


def test_a_curve_of_one_position_has_its_accuracy_at_its_gap_and_above():
    found = trial([(0.8, 0.1)]).matched([0.05, 0.1, 0.2])
    assert np.array_equal(found, [np.nan, 0.8, 0.8], equal_nan=True)


def test_matched_says_which_seeds_reach_a_gap():
    panel = Panel(
        "d",
        "demographic_parity",
        make().methods,
        (0, 5, 10),
        {
            ("A", 0, 0): trial(CURVE),
            ("A", 5, 0): trial([(0.8, 0.1)]),
            ("B", 0, 0): trial([(0.6, 0.0)]),
            ("B", 5, 0): trial([(0.6, 0.0)]),
        },
    )
    found = matched(panel, (0.05, 0.3))
    assert reached(found[0.05], panel, "A") == (1, 2)
    assert found[0.05]["A"].isna().tolist() == [False, True, True]
    off = mean_difference(panel, (0.05, 0.3), "A", "B")
    assert off[0] == pytest.approx(100 * np.mean([0.7 - 0.6, 0.9 - 0.6]))
    assert off[5] == pytest.approx(100 * (0.8 - 0.6))  # the gap that both reach
    assert np.isnan(off[10])
    complete = mean_difference(panel, (0.05, 0.3), "A", "B", all_gaps=True)
    assert complete[0] == off[0]
    assert complete[[5, 10]].isna().all()  # not where one of the gaps isn't reached


# ---- whether tolerances held -------------------------------------------------------------------


def test_shares_that_held_agree_with_counting_one_by_one():
    plan = make()
    study = read_study(plan, records(plan))
    (panel,) = study.panels
    table = held(panel)
    assert list(table.index) == ["A", "B"]
    for name in table.index:
        plain, sure, cases = [], [], 0
        for one in study.records:
            result = one["result"]
            if one["config"]["method"]["name"] != name:
                continue
            gaps = {state: gap for state, (_, gap) in by_state(result).items()}
            for i, tolerance in enumerate(plan.tolerances):
                cases += 1
                if result["feasible"][i]:
                    plain.append(gaps[result["grid"][i]] <= tolerance)
                if result["certified"][i] is not None:
                    sure.append(gaps[result["certified"][i]] <= tolerance)
        line = table.loc[name]
        assert line["cases"] == cases
        assert line["feasible"] == pytest.approx(len(plain) / cases)
        assert line["held"] == pytest.approx(np.mean(plain))
        assert line["certified"] == pytest.approx(len(sure) / cases)
        assert line["certified_held"] == pytest.approx(np.mean(sure))


def test_only_the_tolerances_asked_for_are_counted():
    plan = make()
    (panel,) = read_study(plan, records(plan)).panels
    assert held(panel, [0.1]).loc["A", "cases"] == len(plan.seeds)
    assert held(panel, [0.11])["cases"].sum() == 0


def test_a_gap_equal_to_the_tolerance_holds_whatever_the_rounding():
    rows = [[100, 100], [0, 0]]
    points = measure([[[40, 35], [0, 0]]], rows, DP)
    assert points[0, 1] == 0.05  # exact, rounded once
    points[0, 1] = 0.40 - 0.35  # 0.05 but for the last bit
    assert points[0, 1] > 0.05
    assert trial(points, tolerances=np.array([0.05])).held.tolist() == [1.0]
    assert trial(points, tolerances=np.array([0.0499])).held.tolist() == [0.0]


def test_the_common_grid_has_a_frame_a_tolerance():
    plan = make()
    (panel,) = read_study(plan, records(plan)).panels
    found = at_tolerances(panel, 1)
    assert tuple(found) == plan.tolerances
    assert found[0.1].loc[5, "B"] == panel.trials["B", 5, 0].grid[2, 1]


# ---- studies -----------------------------------------------------------------------------------


def test_a_study_knows_what_is_done_missing_failed_and_foreign():
    plan = make()
    found = records(plan)
    broken = {**found[1], "error": "Oops: bad"}
    foreign = copy.deepcopy(found[0])
    foreign["config"]["seed"] = 77
    study = read_study(plan, [found[0], broken, foreign, *found[3:]])
    assert len(study.records) == len(found) - 2
    assert [c["seed"] for c in study.missing] == [found[2]["config"]["seed"]]
    assert [error for _, error in study.failed] == ["Oops: bad"]
    assert study.ignored == 1
    assert not study.complete
    assert read_study(plan, found).complete


def test_a_finished_record_beats_a_failed_one_in_any_order():
    plan = make()
    found = records(plan)
    broken = {"config": found[0]["config"], "error": "Oops: bad"}
    assert read_study(plan, [broken, *found]).complete
    assert read_study(plan, [*found, broken]).complete


def test_the_order_of_records_does_not_matter():
    plan = make()
    found = records(plan)
    one, other = read_study(plan, found), read_study(plan, found[::-1])
    assert [r["config"] for r in one.records] == [r["config"] for r in other.records]
    assert list(one.panels[0].trials) == list(other.panels[0].trials)


def test_a_trial_without_eligible_rows_of_a_group_counts_as_failed():
    plan = make(criteria=["equal_opportunity"])
    found = records(plan)
    found[0]["result"]["rows"]["test"] = [[30, 40], [50, 0]]
    study = read_study(plan, found)
    ((config, error),) = study.failed
    assert config == found[0]["config"]
    assert "equal_opportunity" in error


def test_null_methods_know_what_they_repeat():
    plan = make()
    (panel,) = read_study(plan, records(plan)).panels
    assert panel.compared == ["A", "B"]
    assert panel.nulls == [("A again", "A")]


def test_a_null_method_is_compared_with_the_method_that_it_repeats_and_no_other():
    plan = make(
        datasets=["utkface"],
        methods=[
            {"name": "frozen", "estimator": "FairBayes"},
            {"name": "tuned", "estimator": "FairBayes", "trained": "all"},
            {"name": "again", "same_as": "tuned", "seed_offset": 9},
        ],
    )
    trials = {(m.name, 0, 0): trial(CURVE) for m in plan.methods}
    panel = Panel("utkface", "demographic_parity", plan.methods, (0,), trials)
    assert panel.nulls == [("again", "tuned")]


def test_a_null_method_without_a_twin_is_compared_with_nothing():
    plan = make(methods=[{"name": "B", "estimator": "GFB"}, {**METHODS[0], "seed_offset": 9}])
    (panel,) = read_study(plan, records(plan)).panels
    assert panel.nulls == []
    assert panel.compared == ["B"]
