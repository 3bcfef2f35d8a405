"""The dial agrees with an enumeration of all threshold vectors, for every kind of problem."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fairdial import sweep
from fairdial.datasets import make_gaussian

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def brute_force():
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("brute_force")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.mark.parametrize("block", range(12))
def test_no_vector_of_thresholds_is_better(brute_force, block):
    """Each answer keeps its tolerance, none is worse than the best, and none is missed."""
    found, faults = brute_force.run(range(100 * block, 100 * (block + 1)))
    assert faults == []
    total = sum(found.values(), Counter())
    assert total["answers"] > 100
    assert total["infeasible"] > 5
    assert total["refused"] > 2


ROWS = make_gaussian(10_000, random_state=0)
KNOWN = [  # criterion, tolerance, selected negatives and positives by group
    ("equalized_odds", 0.1, [[857, 277], [1063, 1684]]),
    ("equalized_odds", 0.05, [[566, 134], [883, 1321]]),
    ("equalized_odds", 0.02, [[172, 33], [467, 683]]),
    ({"demographic_parity": 0.1, "equal_opportunity": 0.05}, 0.1, [[924, 212], [1096, 1522]]),
    ("demographic_parity_ratio", 0.2, [[1017, 232], [1159, 1567]]),
    ("equalized_odds+true_positive_rate>=0.7", 0.1, [[1118, 448], [1204, 1876]]),
]


@pytest.mark.parametrize(("criterion", "tolerance", "selected"), KNOWN)
def test_known_optima_of_the_gaussian_law(criterion, tolerance, selected):
    point = sweep(ROWS.logits, ROWS.groups, ROWS.y, criterion=criterion).at(tolerance)
    assert point.selected.tolist() == selected
    assert point.gap <= tolerance


def test_the_optimum_of_equalized_odds_moves_rows_back_and_forth():
    """Ranks at four tolerances: the second group loses rows, then all rows are selected."""
    logits = [0.4, -1, -0.8, -4.9, 3.6, 2.3, -0.7, 1.5]
    groups, y = [0] * 4 + [1] * 4, [1, 0, 0, 1, 0, 1, 0, 0]
    frontier = sweep(logits, groups, y, criterion="equalized_odds", min_count=1)
    assert not frontier.nested
    ranks = [frontier.at(tolerance).selected.sum(axis=0).tolist() for tolerance in (1, 0.5, 0.34)]
    assert ranks == [[1, 3], [2, 3], [0, 1]]
    with pytest.warns(UserWarning, match="everybody"):
        assert frontier.at(0.25).selected.sum() == 8


def test_every_stratum_is_within_the_tolerance():
    rng = np.random.default_rng(0)
    strata = rng.choice(["north", "south", "west"], len(ROWS.y))
    for criterion in ("demographic_parity", "equalized_odds"):
        frontier = sweep(
            ROWS.logits, ROWS.groups, ROWS.y, criterion=criterion, control_features=strata
        )
        decisions = frontier.decide(ROWS.logits, ROWS.groups, 0.05)
        for stratum, label in ((s, v) for s in np.unique(strata) for v in (0, 1)):
            inside = strata == stratum
            if criterion == "equalized_odds":
                inside &= ROWS.y == label
            rates = [decisions[inside & (ROWS.groups == a)].mean() for a in frontier.groups]
            assert max(rates) - min(rates) <= 0.05 + 1e-15
