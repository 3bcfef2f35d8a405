"""Signs of differences; which seeds and methods count; what tables show."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fairdial.bench import comparisons
from fairdial.bench.comparisons import (
    HV,
    INVERTED,
    MATCHED,
    QUANTITIES,
    Claim,
    claim_pairs,
    cost,
    key_figures,
    main_pairs,
    no_better_than_constant,
)
from fairdial.bench.curves import Panel, Study, Trial
from fairdial.bench.plan import make_plan
from fairdial.bench.statistics import SPLIT_RATIO, Paired, corrected, holm, paired
from fairdial.bench.tables import (
    brief,
    fitting_table,
    held_by_tolerance,
    hv_table,
    matched_differences,
    matched_quartiles,
    matched_table,
    methods_table,
    quartile_table,
)

METHODS = [
    {"name": "base", "estimator": "FairBayes"},
    {"name": "main", "estimator": "GFB"},
    {"name": "third", "estimator": "YOTO"},
    {"name": "null", "same_as": "base", "seed_offset": 9},
]
TOLERANCES = [0.05, 0.1]


def make(seeds=(0, 5, 10), **changes):
    data = {
        "title": "t",
        "datasets": ["compas"],
        "seeds": list(seeds),
        "methods": METHODS,
        "baseline": "base",
        "main": "main",
        "tolerances": TOLERANCES,
        "gaps": [0.05, 0.1],
    }
    return make_plan(data | changes)


def trial(method, seed, lift):
    """A curve that is ``lift`` above another, from a gap of 0.2 down to 0."""
    gaps = np.linspace(0.2, 0.0, 11)
    wiggle = 0.001 * np.sin(7 * seed + np.arange(11))
    points = np.column_stack((0.7 + 0.4 * gaps - gaps**2 + lift + wiggle, gaps))
    grid = points[[8, 5]]
    return Trial(
        method=method,
        seed=seed,
        points=points,
        curve=points,
        tolerances=np.array(TOLERANCES),
        grid=grid,
        feasible=np.ones(2, bool),
        certified=np.full((2, 2), np.nan),
        seconds={"fit_cpu": 2.0},
        epochs=5.0,
    )


LIFTS = {"base": 0.0, "main": 0.02, "third": -0.01, "null": 0.001}


def rows_record(method, seed, dataset="compas", **rows):
    """A record with nothing but counts of rows."""
    config = {
        "kind": "study",
        "dataset": dataset,
        "criterion": "demographic_parity",
        "method": {"name": method},
        "seed": seed,
    }
    return {"config": config, "result": {"rows": rows}}


def study(plan=None, leave_out=(), noise=0.002, records=()):
    plan = plan or make()
    rng = np.random.default_rng(0)
    trials = {}
    for method, seed in itertools.product(LIFTS, plan.seeds):
        lift = LIFTS[method] + noise * rng.standard_normal()
        if (method, seed) not in leave_out and method not in leave_out:
            trials[method, seed, 0] = trial(method, seed, lift)
    panel = Panel("compas", "demographic_parity", plan.methods, plan.seeds, trials)
    return Study(plan, (panel,), tuple(records), (), (), 0)


def claims(study):
    return comparisons.claims(study.plan, key_figures(study))


def cells(table, line, column):
    place = table.head.index(column)
    return next(entries[place] for entries in table.rows if entries[0] == line)


# ---- comparisons -------------------------------------------------------------------------------


def test_a_better_main_method_is_positive_in_hv_and_negative_in_inverted_hv():
    (part,) = key_figures(study())
    assert part.difference(HV, "main", "base").mean > 0
    assert part.difference(INVERTED, "main", "base").mean < 0
    assert part.difference(MATCHED, "main", "base").mean == pytest.approx(2.0, abs=0.5)


def test_differences_use_the_seeds_that_both_methods_have():
    (part,) = key_figures(study(leave_out={("main", 0), ("base", 5)}))
    found = part.difference(HV, "main", "base")
    hv = part.volumes.hv
    assert found.seeds == 1
    assert found.mean == pytest.approx(hv.loc[10, "main"] - hv.loc[10, "base"])


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_differences_are_paired_by_initialization(quantity):
    whole = study()
    (panel,) = whole.panels
    for seed in panel.seeds:
        panel.trials["main", seed, 1] = trial("main", seed, 0.1)  # base has no such trial
    (part,) = key_figures(whole)
    alone = {key: one for key, one in panel.trials.items() if key[2] == 0}
    paired_only = replace(part, panel=replace(panel, trials=alone))
    assert part.difference(quantity, "main", "base") == paired_only.difference(
        quantity, "main", "base"
    )


def test_claims_name_the_method_that_is_better():
    found = {(c.quantity, c.a, c.b): c for c in claims(study())}
    assert len(found) == 3 * len(QUANTITIES)  # main - base, third - base, main - third
    for quantity in QUANTITIES:
        assert found[quantity, "main", "base"].better == "main"
        assert found[quantity, "third", "base"].better == "base"
        assert found[quantity, "main", "third"].better == "main"
        assert found[quantity, "main", "base"].excludes_zero


def test_claims_are_corrected_together_and_null_methods_stay_out():
    found = claims(study())
    assert [c.adjusted for c in found] == holm([c.corrected.p for c in found]).tolist()
    assert all(c.corrected.p > c.found.p for c in found)
    assert all("null" not in (c.a, c.b) for c in found)
    assert all(c.null is not None and c.null.seeds == 3 for c in found)


def test_a_difference_no_larger_than_the_null_methods_is_within_it():
    def claim(mean):
        return Claim("p", HV, "a", "b", Paired(3, mean), False, Paired(3, -0.2))

    assert claim(0.2).within_null
    assert not claim(0.21).within_null


def test_the_corrected_interval_decides_what_is_supported():
    found = paired([0.0, 1.0, 2.0, 2.0, 2.0])
    assert found.low > 0
    one = Claim("p", HV, "a", "b", found, False, None)
    assert not one.excludes_zero
    assert one.corrected == corrected(found, SPLIT_RATIO)


def test_main_and_baseline_may_be_the_same():
    one = study(make(main="base"))
    pairs = claim_pairs(one.panels[0], "base", "base")
    assert pairs == [("main", "base"), ("third", "base")]


def test_methods_without_trials_are_compared_with_nothing():
    one = study(leave_out={"main"})
    assert main_pairs(one.panels[0], "main") == [("null", "base")]
    assert {(c.a, c.b) for c in claims(one)} == {("third", "base")}
    assert claims(study(leave_out={"base"}))[0].b == "third"


# ---- tables ------------------------------------------------------------------------------------


def test_brief_numbers_have_no_exponents():
    assert [brief(v) for v in (12345.6, 1.0, 0.000123456)] == ["12300", "1", "0.000123"]
    assert brief(float("nan")) == "-"


def test_the_table_of_methods_says_how_each_differs_from_the_others():
    plan = make_plan(
        {
            "title": "t",
            "datasets": ["compas"],
            "seeds": [0],
            "methods": [
                {"name": "plain", "estimator": "FairBayes"},
                {"name": "bins", "estimator": "FairBayes", "encoder": {"n_bins": 64}},
                {"name": "crossed", "estimator": "FairBayes", "calibration": "crossed"},
                {
                    "name": "two",
                    "estimator": "FairBayes",
                    "scorer": ["small trees", "logistic regression"],
                    "sees_group": True,
                },
            ],
        }
    )
    rows = {line[0]: line[1:4] for line in methods_table(Study(plan, (), (), (), (), 0)).rows}
    assert rows == {
        "plain": ("FairBayes", "default", "-"),
        "bins": ("FairBayes", "default", "encoder n_bins=64"),
        "crossed": ("FairBayes", "default", "calibration crossed"),
        "two": (
            "FairBayes with small trees and logistic regression",
            "default",
            "sees the group",
        ),
    }


def test_the_hv_table_has_means_and_population_deviations_and_no_null_methods():
    one = study()
    (part,) = key_figures(one)
    table = hv_table(one, part)
    values = part.volumes.hv["main"]
    assert cells(table, "main", "HV") == f"{values.mean():.4f} ± {values.std(ddof=0):.4f}"
    assert cells(table, "main", "paper: HV") == "0.8164 ± 0.038"
    assert [line[0] for line in table.rows] == ["base", "main", "third"]


def test_positions_no_more_accurate_than_a_constant_are_counted():
    many_negative, many_positive = (
        [[50, 10], [30, 10]],
        [[5, 15], [60, 20]],
    )  # constants are 0.6 and 0.8 right
    records = [
        rows_record("main", 0, test=many_negative),
        rows_record("main", 5, test=many_negative),
        rows_record("main", 10, test=many_positive),
        rows_record("main", 0, dataset="adult", test=[[99, 0], [0, 1]]),
    ]
    one = study(records=records)
    panel = one.panels[0]
    accuracies = {0: [0.8, 0.6, 0.5], 5: [0.8, 0.7, 0.61], 10: [0.9, 0.8, 0.7]}
    for seed, values in accuracies.items():
        points = np.column_stack((values, [0.2, 0.1, 0.0]))
        old = panel.trials["main", seed, 0]
        panel.trials["main", seed, 0] = Trial(**{**vars(old), "points": points})
    found = no_better_than_constant(one, panel)
    assert found["main"].to_dict() == {0: 2.0, 5: 0.0, 10: 2.0}
    assert found["base"].isna().all()
    (part,) = key_figures(one)
    table = hv_table(one, part)
    assert cells(table, "main", "no better than constant") == "1.3"
    assert cells(table, "base", "no better than constant") == "-"


def test_the_quartile_table_has_plain_errors_and_both_intervals():
    one = study(make(seeds=range(8)), noise=0.008)
    (part,) = key_figures(one)
    plain = part.difference(HV, "main", "base")
    sure = corrected(plain)
    table = quartile_table(one, part, HV)
    assert cells(table, "main - base", "std. error") == f"{plain.error:.4f}"
    for column, found in (("95% interval", plain), ("corrected interval", sure)):
        assert cells(table, "main - base", column) == f"{found.low:+.4f} to {found.high:+.4f}"
    assert plain.needed < sure.needed < np.inf
    assert cells(table, "main - base", "seeds needed") == f"{sure.needed:.0f}"
    line = next(e for e in matched_quartiles(one, part).rows if e[1] == "mean")
    mean = corrected(part.difference(MATCHED, "main", "base"))
    assert f"{mean.low:+.2f} to {mean.high:+.2f}" in line


def test_the_quartile_table_says_which_sign_is_good_and_has_the_null_method():
    one = study()
    (part,) = key_figures(one)
    assert "positive" in quartile_table(one, part, HV).caption
    inverted = quartile_table(one, part, INVERTED)
    assert "negative" in inverted.caption
    assert [line[0] for line in inverted.rows] == ["main - base", "main - third", "null - base"]
    assert cells(inverted, "main - base", "mean").startswith("-")
    assert cells(inverted, "main - base", "paper: mean / Q1 / Q2 / Q3").startswith("-0.0326 / ")
    assert cells(inverted, "null - base", "paper: mean / Q1 / Q2 / Q3") == "-"


def test_one_seed_shows_dashes_for_errors():
    one = study(make(seeds=[0]))
    (part,) = key_figures(one)
    table = quartile_table(one, part, HV)
    for column in ("std. error", "95% interval", "corrected interval", "seeds needed"):
        assert cells(table, "main - base", column) == "-"
    assert "±" not in cells(hv_table(one, part), "main", "HV")
    assert "±" not in cells(matched_differences(one, part), "main", "gap 0.05")


def test_missing_methods_show_dashes():
    one = study(leave_out={"third"})
    (part,) = key_figures(one)
    assert cells(hv_table(one, part), "third", "HV") == "-"
    assert cells(hv_table(one, part), "third", "trials") == "0"


def test_a_gap_that_no_seed_reaches_is_said_not_to_be_reached():
    one = study(make(gaps=[0.1]))
    panel = one.panels[0]
    for key, old in list(panel.trials.items()):
        if key[0] == "third" or key == ("main", 0, 0):
            panel.trials[key] = Trial(**{**vars(old), "curve": old.curve[:3]})
    (part,) = key_figures(one)
    table = matched_table(part)
    assert cells(table, "third", "gap 0.1") == "not reached"
    assert cells(table, "main", "gap 0.1").endswith("(2 of 3)")
    assert "of" not in cells(table, "base", "gap 0.1")
    lines = matched_quartiles(one, part).rows
    assert ("main - third", "0.1", "0") in [line[:3] for line in lines]


def test_tolerances_off_the_grid_make_no_table():
    one = study(make(gaps=[0.07]))
    assert held_by_tolerance(one, one.panels[0]) is None
    assert held_by_tolerance(study(), study().panels[0]) is not None


def test_cost_is_the_mean_of_runs_and_one_training_serves_all_settings():
    def run(name, **seconds):
        config = {
            "kind": "cost",
            "dataset": "compas",
            "criterion": "demographic_parity",
            "method": {"name": name},
        }
        others = {"adapt_one": 1.0, "adapt_many": 1.0, "predict_one": 1.0, "predict_many": 1.0}
        return {"config": config, "timing": seconds | others}

    one = study(
        records=[
            run("base", train=1.0),
            run("base", train=3.0),
            run("third", train=8.0, train_one=5.0),
        ]
    )
    table = cost(one, one.panels[0])
    assert table.loc["base", ["train_one", "train"]].tolist() == [2.0, 2.0]
    assert table.loc["third", ["train_one", "train"]].tolist() == [5.0, 8.0]


def test_fitting_has_ratios_to_the_baseline_where_it_has_one():
    one = study()
    assert cells(fitting_table(one, one.panels[0]), "main", "fit, ratio to base") == "1"
    none = study(leave_out={"base"})
    assert cells(fitting_table(none, none.panels[0]), "main", "fit, ratio to base") == "-"
