"""Paired statistics against scipy and by hand; signs; which seeds and methods count."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from fairdial.bench.curves import Panel, Study, Trial
from fairdial.bench.plan import make_plan
from fairdial.bench.tables import (
    FIGURES,
    HV,
    INVERTED,
    MATCHED,
    Claim,
    Paired,
    brief,
    claim_pairs,
    claims,
    cost,
    fitting_table,
    held_by_tolerance,
    holm,
    hv_table,
    main_pairs,
    matched_differences,
    matched_quartiles,
    matched_table,
    measured,
    paired,
    quartile_table,
    seeds_needed,
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
    """A curve that is ``lift`` above another, from a gap of .2 down to 0."""
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


def study(plan=None, leave_out=(), noise=0.002, costs=()):
    plan = plan or make()
    rng = np.random.default_rng(0)
    trials = {}
    for method, seed in itertools.product(LIFTS, plan.seeds):
        lift = LIFTS[method] + noise * rng.standard_normal()
        if (method, seed) not in leave_out and method not in leave_out:
            trials[method, seed] = trial(method, seed, lift)
    panel = Panel("compas", "demographic_parity", plan.methods, plan.seeds, trials)
    return Study(plan, (panel,), tuple(costs), (), (), 0)


def cells(table, line, column):
    place = table.head.index(column)
    return next(entries[place] for entries in table.lines if entries[0] == line)


# ---- statistics --------------------------------------------------------------------------------


def test_quartiles_of_five_values_are_order_statistics():
    values = [0.3, -0.1, 0.7, 0.2, 0.5]
    found = paired(values)
    assert [found.q1, found.q2, found.q3] == sorted(values)[1:4]


@pytest.mark.parametrize("n", [2, 5, 20])
def test_the_interval_and_p_value_are_those_of_the_t_test(n):
    values = np.random.default_rng(n).normal(0.3, 1.0, n)
    found, test = paired(values), stats.ttest_1samp(values, 0.0)
    ends = test.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert found.p == pytest.approx(test.pvalue)
    assert found.error == pytest.approx(stats.sem(values))
    assert found.seeds == n


def test_seeds_that_are_missing_do_not_count():
    assert paired([1.0, np.nan, 3.0]) == paired([1.0, 3.0])


def test_one_seed_has_a_mean_and_no_error():
    found = paired([0.5])
    assert (found.seeds, found.mean, found.q1, found.q3) == (1, 0.5, 0.5, 0.5)
    assert np.isnan([found.sd, found.error, found.low, found.high, found.p, found.needed]).all()


def test_no_seed_has_nothing():
    assert paired([]).seeds == 0
    assert np.isnan(paired([np.nan]).mean)


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.25, 0.0)])
def test_differences_without_spread_are_sure(value, p):
    found = paired([value] * 4)
    assert (found.low, found.high, found.p, found.seen) == (value, value, p, 0.0)


@pytest.mark.parametrize("effect", [0.15, 0.3, 0.6, 1.0, 2.0])
def test_seeds_needed_have_about_the_power_asked_for(effect):
    n = int(seeds_needed(effect, 1.0))

    def power(size):
        limit = stats.t.ppf(0.975, size - 1)
        return stats.nct.sf(limit, size - 1, effect * np.sqrt(size))

    assert power(n + 1) >= 0.8
    assert power(max(n - 2, 2)) < 0.8


def test_what_is_seen_and_what_is_needed_fit_together():
    values = np.random.default_rng(1).normal(0.0, 1.0, 12)
    found = paired(values)
    assert seeds_needed(found.seen * 1.0001, found.sd) == 12
    assert seeds_needed(found.seen * 0.9, found.sd) > 12


def test_no_difference_needs_endless_seeds():
    assert seeds_needed(0.0, 1.0) == np.inf
    assert seeds_needed(1e-9, 1.0) == np.inf


def test_holm_agrees_with_its_definition():
    p = np.random.default_rng(0).random(8) * 0.1
    adjusted = holm(p)
    for alpha in np.linspace(0.01, 1, 60):
        rejected, order = set(), np.argsort(p)
        for step, i in enumerate(order):
            if p[i] > alpha / (len(p) - step):
                break
            rejected.add(i)
        assert set(np.flatnonzero(adjusted <= alpha)) == rejected


def test_holm_leaves_out_what_has_no_p_value():
    found = holm([0.02, np.nan, 0.04])
    assert found[[0, 2]] == pytest.approx([0.04, 0.04])
    assert np.isnan(found[1])


def test_brief_numbers_have_no_exponents():
    assert [brief(v) for v in (12345.6, 1.0, 0.000123456)] == ["12300", "1", "0.000123"]
    assert brief(float("nan")) == "-"


# ---- comparisons -------------------------------------------------------------------------------


def test_a_better_main_method_is_positive_in_hv_and_negative_in_inverted_hv():
    (part,) = measured(study())
    assert part.difference(HV, "main", "base").mean > 0
    assert part.difference(INVERTED, "main", "base").mean < 0
    assert part.difference(MATCHED, "main", "base").mean == pytest.approx(2.0, abs=0.5)


def test_differences_use_the_seeds_that_both_methods_have():
    (part,) = measured(study(leave_out={("main", 0), ("base", 5)}))
    found = part.difference(HV, "main", "base")
    hv = part.volumes.hv
    assert found.seeds == 1
    assert found.mean == pytest.approx(hv.loc[10, "main"] - hv.loc[10, "base"])


def test_claims_name_the_method_that_is_better():
    found = {(c.figure, c.a, c.b): c for c in claims(study())}
    assert len(found) == 3 * len(FIGURES)  # main - base, third - base, main - third
    for figure in FIGURES:
        assert found[figure, "main", "base"].better == "main"
        assert found[figure, "third", "base"].better == "base"
        assert found[figure, "main", "third"].better == "main"
        assert found[figure, "main", "base"].excludes_zero


def test_claims_are_corrected_together_and_null_rows_stay_out():
    found = claims(study())
    assert [c.adjusted for c in found] == holm([c.found.p for c in found]).tolist()
    assert all("null" not in (c.a, c.b) for c in found)
    assert all(c.null is not None and c.null.seeds == 3 for c in found)


def test_a_difference_no_larger_than_the_null_rows_is_within_it():
    def claim(mean):
        return Claim("p", HV, "a", "b", Paired(3, mean), False, Paired(3, -0.2))

    assert claim(0.2).within_null
    assert not claim(0.21).within_null


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


def test_the_hv_table_has_means_and_population_deviations_and_no_null_rows():
    one = study()
    (part,) = measured(one)
    table = hv_table(one, part)
    values = part.volumes.hv["main"]
    assert cells(table, "main", "HV") == f"{values.mean():.4f} ± {values.std(ddof=0):.4f}"
    assert cells(table, "main", "paper: HV") == "0.8164 ± 0.038"
    assert [line[0] for line in table.lines] == ["base", "main", "third"]


def test_the_quartile_table_says_which_sign_is_good_and_has_the_null_row():
    one = study()
    (part,) = measured(one)
    assert "positive is good for main" in quartile_table(one, part, HV).caption
    inverted = quartile_table(one, part, INVERTED)
    assert "negative is good for main" in inverted.caption
    assert [line[0] for line in inverted.lines] == ["main - base", "main - third", "null - base"]
    assert cells(inverted, "main - base", "mean").startswith("-")
    assert cells(inverted, "main - base", "paper: mean / Q1 / Q2 / Q3").startswith("-0.0326 / ")
    assert cells(inverted, "null - base", "paper: mean / Q1 / Q2 / Q3") == "-"


def test_one_seed_shows_dashes_for_errors():
    one = study(make(seeds=[0]))
    (part,) = measured(one)
    table = quartile_table(one, part, HV)
    for column in ("std. error", "95% interval", "seeds needed"):
        assert cells(table, "main - base", column) == "-"
    assert "±" not in cells(hv_table(one, part), "main", "HV")
    assert "±" not in cells(matched_differences(one, part), "main", "gap 0.05")


def test_missing_methods_show_dashes():
    one = study(leave_out={"third"})
    (part,) = measured(one)
    assert cells(hv_table(one, part), "third", "HV") == "-"
    assert cells(hv_table(one, part), "third", "seeds") == "0"


def test_a_gap_that_no_seed_reaches_is_said_not_to_be_reached():
    one = study(make(gaps=[0.1]))
    panel = one.panels[0]
    for key, old in list(panel.trials.items()):
        if key[0] == "third" or key == ("main", 0):
            panel.trials[key] = Trial(**{**vars(old), "curve": old.curve[:3]})
    (part,) = measured(one)
    table = matched_table(part)
    assert cells(table, "third", "gap 0.1") == "not reached"
    assert cells(table, "main", "gap 0.1").endswith("(2 of 3)")
    assert "of" not in cells(table, "base", "gap 0.1")
    lines = matched_quartiles(one, part).lines
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
        others = {"adapt_one": 1.0, "adapt_many": 1.0, "predict_one": 1.0}
        return {"config": config, "timing": seconds | others}

    one = study(
        costs=[
            run("base", train=1.0),
            run("base", train=3.0),
            run("third", train=8.0, train_one=5.0),
        ]
    )
    table = cost(one, one.panels[0]).set_index("method")
    assert table.loc["base", ["repeats", "train_one", "train"]].tolist() == [2, 2.0, 2.0]
    assert table.loc["third", ["train_one", "train"]].tolist() == [5.0, 8.0]


def test_fitting_has_ratios_to_the_baseline_where_it_has_one():
    one = study()
    assert cells(fitting_table(one, one.panels[0]), "main", "fit, ratio to base") == "1"
    none = study(leave_out={"base"})
    assert cells(fitting_table(none, none.panels[0]), "main", "fit, ratio to base") == "-"
