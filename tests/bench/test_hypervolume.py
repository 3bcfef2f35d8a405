"""HV and inverted HV: worked examples, another library, and the edges of the definition."""

from __future__ import annotations

import moocore
import numpy as np
import pandas as pd
import pytest

from fairdial.bench.curves import Panel, Trial
from fairdial.bench.hypervolume import (
    Reference,
    fronts,
    make_reference,
    orders,
    sensitivity,
    volumes,
)
from fairdial.bench.plan import make_plan
from fairdial.errors import InvalidInputError

STAIRS = np.array([(0.8, 0.1), (0.78, 0.05), (0.7, 0.0)])
PLAN = make_plan(
    {
        "title": "t",
        "datasets": ["compas"],
        "seeds": [0, 5],
        "methods": [
            {"name": "A", "estimator": "FairBayes"},
            {"name": "B", "estimator": "GFB"},
            {"name": "null", "same_as": "A", "seed_offset": 9},
        ],
    }
)


def random_curve(seed, n=10):
    rng = np.random.default_rng(seed)
    return np.column_stack((rng.uniform(0.6, 0.8, n), rng.uniform(0.0, 0.3, n)))


def panel(curves):
    empty = np.empty((0, 2))
    trials = {
        (*key, 0): Trial(
            key[0], key[1], points, points, np.empty(0), empty, np.empty(0, bool), empty, {}, 0.0
        )
        for key, points in curves.items()
    }
    return Panel("compas", "demographic_parity", PLAN.methods, PLAN.seeds, trials)


def other_library(points, reference):
    """Area with accuracy maximized and gap minimized."""
    return float(moocore.hypervolume(np.column_stack((-points[:, 0], points[:, 1])), ref=reference))


# ---- worked examples ---------------------------------------------------------------------------


def test_the_staircase_has_the_area_worked_out_by_hand():
    reference = make_reference([STAIRS])
    assert (reference.n, reference.n_dominated) == (3, 0)
    assert reference.hv(STAIRS) == pytest.approx(1.65)
    assert reference.inverted_hv(STAIRS, steps=2) == pytest.approx(1.35)


def test_the_best_point_alone_spans_the_whole_rectangle():
    reference = Reference((0.0, 0.0), (1.0, 1.0), n=10, n_dominated=10)
    assert reference.hv([(1.0, 0.0)]) == pytest.approx(1.2345679, abs=5e-8)
    assert reference.inverted_hv([(0.0, 1.0)]) == pytest.approx(1.2345679, abs=5e-8)


@pytest.mark.parametrize("seed", range(10))
def test_areas_agree_with_another_library(seed):
    curves = [random_curve([seed, i]) for i in range(4)]
    reference = make_reference(curves)
    out, into = 1 / reference.steps, 1 / reference.inverted_steps
    for curve in curves:
        mapped = reference.normalize(curve)
        expected = other_library(mapped, (out, 1 + out))
        assert reference.hv(curve) == pytest.approx(expected, abs=1e-12)
        inverted = other_library(-mapped, (1 + into, into))
        assert reference.inverted_hv(curve) == pytest.approx(inverted, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_map_comes_from_the_non_dominated_points_of_all_curves(seed):
    curves = [random_curve([seed, i]) for i in range(3)]
    reference = make_reference(curves)
    best = np.concatenate([fronts(curve)[0] for curve in curves])
    mapped = reference.normalize(best)
    assert mapped.min(axis=0) == pytest.approx([0, 0])
    assert mapped.max(axis=0) == pytest.approx([1, 1])
    assert reference.n == max(len(fronts(curve)[0]) for curve in curves)
    assert reference.n_dominated == max(len(fronts(curve)[1]) for curve in curves)


def test_dominated_points_outside_the_map_count_unclipped():
    worse = (0.6, 0.2)  # maps to (-1, 2)
    reference = make_reference([np.vstack((STAIRS, worse))])
    inverted = reference.inverted_hv(np.vstack((STAIRS, worse)))
    assert reference.inverted_steps == 1
    assert inverted == pytest.approx((2 - -1) * (2 - -1))  # one rectangle down to (2, -1)


# ---- edges -------------------------------------------------------------------------------------


def test_equal_points_count_once():
    twice = np.vstack((STAIRS, STAIRS))
    assert make_reference([twice]) == make_reference([STAIRS])
    reference = make_reference([STAIRS])
    assert reference.hv(twice) == pytest.approx(reference.hv(STAIRS))


def test_one_point_a_curve_takes_a_shift_of_one_and_says_so():
    reference = make_reference([[(0.8, 0.1)], [(0.7, 0.0)]])
    assert (reference.n, reference.steps) == (1, 1)
    assert any("1/(N-1) is set to 1" in note for note in reference.notes)
    assert reference.hv([(0.8, 0.1)]) == pytest.approx((1 + 1) * (2 - 1))


@pytest.mark.parametrize("more", [[], [(0.6, 0.2)]])
def test_few_dominated_points_take_a_shift_of_one(more):
    reference = make_reference([[*STAIRS, *more]])
    assert reference.n_dominated == len(more)
    assert reference.inverted_steps == 1
    assert any("1/(N'-1) is set to 1" in note for note in reference.notes)


def test_enough_points_of_both_kinds_bring_no_notes():
    points = [*STAIRS, (0.6, 0.2), (0.5, 0.3)]
    assert make_reference([points]).notes == ()


def test_a_span_of_zero_becomes_one():
    reference = make_reference([[(0.8, 0.1)]])
    assert reference.span == (1.0, 1.0)
    assert [axis in " ".join(reference.notes) for axis in ("accuracy", "gap")] == [True, True]
    assert reference.normalize([(0.8, 0.1)]).tolist() == [[0.0, 0.0]]


def test_no_curve_is_an_error():
    with pytest.raises(InvalidInputError) as caught:
        make_reference([])
    assert caught.value.argument == "curves"


def test_points_beyond_the_reference_have_no_area():
    reference = make_reference([STAIRS])
    assert reference.hv([(0.1, 0.9)]) == 0
    assert reference.inverted_hv([(0.99, -0.9)]) == 0


# ---- panels ------------------------------------------------------------------------------------


def test_null_methods_do_not_change_the_reference():
    curves = {
        (name, seed): random_curve(seed + i) for i, name in enumerate("AB") for seed in (0, 5)
    }
    without = volumes(panel(curves))
    outlier = np.array([(0.99, 0.0), (0.1, 0.9)])
    beside = volumes(panel({**curves, ("null", 0): outlier}))
    assert beside.reference == without.reference
    assert beside.hv[["A", "B"]].equals(without.hv[["A", "B"]])
    assert beside.hv.loc[0, "null"] == pytest.approx(without.reference.hv(outlier))
    assert np.isnan(beside.hv.loc[5, "null"])


def test_a_panel_of_null_methods_only_has_no_areas():
    assert volumes(panel({("null", 0): STAIRS})) is None
    assert volumes(panel({})) is None


def test_the_main_value_lies_on_the_sensitivity_curve():
    curves = {
        (name, seed): random_curve(seed + 3 * i) for i, name in enumerate("AB") for seed in (0, 5)
    }
    one = panel(curves)
    areas = volumes(one)
    at = (areas.reference.steps, areas.reference.inverted_steps)
    hv, inverted = sensitivity(one, areas.reference, at)
    assert hv.loc[at[0]].to_numpy() == pytest.approx(areas.hv[["A", "B"]].mean().to_numpy())
    assert inverted.loc[at[1]].to_numpy() == pytest.approx(
        areas.inverted[["A", "B"]].mean().to_numpy()
    )


def test_areas_shrink_as_the_reference_comes_nearer():
    one = panel({("A", 0): STAIRS, ("B", 0): random_curve(1)})
    for means in sensitivity(one, volumes(one).reference):
        assert len(means) == 30
        assert (means.diff().iloc[1:] < 0).all(axis=None)


def test_orders_tell_where_methods_change_places():
    means = pd.DataFrame({"A": [3.0, 2.0, 1.0], "B": [1.0, 1.5, 2.0]}, index=[2.0, 4.0, 8.0])
    main = pd.Series({"A": 9.0, "B": 1.0})
    first, second = orders(means, main, lower_is_better=False)
    assert (first.first, first.last, first.methods) == (2.0, 4.0, ("A", "B"))
    assert (second.first, second.last, second.methods) == (8.0, 8.0, ("B", "A"))
    assert (first.tau, second.tau) == (pytest.approx(1), pytest.approx(-1))
    turned = orders(means, main, lower_is_better=True)
    assert [order.methods for order in turned] == [("B", "A"), ("A", "B")]


def test_one_method_has_no_tau():
    (only,) = orders(
        pd.DataFrame({"A": [1.0]}, index=[2.0]), pd.Series({"A": 1.0}), lower_is_better=False
    )
    assert np.isnan(only.tau)
