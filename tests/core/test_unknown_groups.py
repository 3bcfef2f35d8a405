"""Laws of dials where some or all groups are unknown."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from fairdial import CannotCertifyError, Frontier, InvalidInputError, sweep, sweep_blind
from fairdial.io.frontiers import frontier_from_arrays, frontier_to_arrays


def draw(n, seed, n_groups=2):
    """Logits, probabilities of groups, groups and labels; each row is drawn from what they say."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_groups, 0.4), n)
    codes = (rng.random(n)[:, None] > shares.cumsum(axis=1)[:, :-1]).sum(axis=1)
    logits = rng.normal(shares @ np.linspace(-1, 1, n_groups), 1.0)
    return logits, shares, codes, (rng.random(n) < expit(logits)).astype(int)


def hide(codes, hidden):
    return np.where(hidden, None, codes.astype(object))


def expected_rates(decided, weights):
    return decided @ weights / weights.sum(axis=0)


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("kind", ["demographic_parity", "equalized_odds"])
def test_known_rows_are_counted_and_all_rows_estimated(kind, n_groups):
    logits, shares, codes, y = draw(2500, 0, n_groups)
    hidden = np.random.default_rng(1).random(len(y)) < 0.6
    given = {"criterion": kind, "unknown": "estimate"}
    frontier = sweep_blind(logits, shares, hide(codes, hidden), y, **given)
    alone = sweep_blind(*(part[~hidden] for part in (logits, shares, codes, y)), criterion=kind)
    weights = np.where(hidden[:, None], shares, np.eye(n_groups)[codes])
    for tolerance in (0.2, 0.1):
        point = frontier.at(tolerance)
        assert np.array_equal(point.prices, alone.at(tolerance).prices)  # exact on known rows
        assert point.gap == alone.at(tolerance).gap <= tolerance
        decided = frontier.decide(logits, shares, tolerance)
        conditions = [y == 1, y == 0] if kind == "equalized_odds" else [y >= 0]
        found = [np.ptp(expected_rates(decided[rows], weights[rows])) for rows in conditions]
        assert point.promise.gap == "counted"
        assert point.promise[1:3] == ((~hidden).sum(), hidden.sum())
        assert point.promise.estimate == pytest.approx(max(found), abs=1e-9)


def test_every_point_has_the_estimate_of_its_own_decisions():
    logits, shares, codes, y = draw(300, 2, 3)
    hidden = np.arange(len(y)) % 3 > 0
    frontier = sweep_blind(logits, shares, hide(codes, hidden), y, unknown="estimate", min_count=1)
    weights = np.where(hidden[:, None], shares, np.eye(3)[codes])
    for place in range(0, len(frontier), max(len(frontier) // 25, 1)):
        prices = frontier.points.prices[place, 0]
        decided = 2 * expit(logits) - 1 > shares @ prices
        rates = expected_rates(decided, weights)
        assert frontier.points.estimate[place] == pytest.approx(np.ptp(rates), abs=1e-9)


def test_without_any_known_group_the_gap_is_the_expected_one():
    logits, shares, codes, y = draw(20_000, 3)
    frontier = sweep_blind(logits, shares, None, y, unknown="estimate")
    for tolerance in (0.2, 0.05):
        point = frontier.at(tolerance)
        decided = frontier.decide(logits, shares, tolerance)
        assert point.promise.gap == "estimated"
        assert point.promise[1:3] == (0, pytest.approx(len(y)))
        assert point.gap == pytest.approx(np.ptp(expected_rates(decided, shares)), abs=1e-9)
        assert point.gap <= tolerance
        true = np.ptp([decided[codes == a].mean() for a in (0, 1)])
        assert true <= tolerance + 0.03  # the probabilities are right here, up to chance
        assert "estimate" in str(point)
    with pytest.raises(CannotCertifyError):
        frontier.at(0.2, confidence=0.9)


def test_certificates_use_the_known_rows():
    logits, shares, codes, y = draw(8000, 4)
    hidden = np.arange(len(y)) % 2 == 0
    frontier = sweep_blind(logits, shares, hide(codes, hidden), y, unknown="estimate")
    alone = sweep_blind(*(part[~hidden] for part in (logits, shares, codes, y)))
    points = [f.at(0.2, confidence=0.9) for f in (frontier, alone)]
    assert np.array_equal(points[0].prices, points[1].prices)
    assert points[0].promise.gap == "counted"


@pytest.mark.parametrize("all_unknown", [False, True])
def test_promises_are_saved(all_unknown):
    logits, shares, codes, y = draw(900, 5)
    groups = None if all_unknown else hide(codes, np.arange(len(y)) % 2 == 0)
    frontier = sweep_blind(logits, shares, groups, y, unknown="estimate")
    again = Frontier.from_json(frontier.to_json())
    stored = frontier_from_arrays(*frontier_to_arrays(frontier), "frontier")
    for other in (again, stored):
        assert other.at(0.1).promise == frontier.at(0.1).promise


def test_known_groups_promise_a_counted_gap():
    logits, shares, codes, y = draw(500, 6)
    plain = sweep_blind(logits, shares, codes, y)
    asked = sweep_blind(logits, shares, codes, y, unknown="estimate")
    assert plain.to_json() == asked.to_json()
    assert plain.at(0.2).promise == ("counted", 500, 0, None)


def test_columns_with_names_are_put_in_order():
    logits, shares, codes, y = draw(500, 7)
    names = np.array(["a", "b"])[codes]
    table = pd.DataFrame(shares[:, ::-1], columns=["b", "a"])
    plain = sweep_blind(logits, shares, names, y)
    assert sweep_blind(logits, table, names, y).to_json() == plain.to_json()
    unnamed = sweep_blind(logits, table, None, y, unknown="estimate")
    assert unnamed.groups == ("b", "a")


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"groups": None}, "groups"),
        ({"groups": "some"}, "groups"),
        ({"groups": None, "unknown": "guess"}, "unknown"),
        ({"groups": None, "unknown": "estimate", "overlap": "both"}, "overlap"),
        ({"groups": "some", "unknown": "estimate", "posterior": "other names"}, "posterior"),
    ],
)
def test_unclear_groups_are_refused(options, argument):
    logits, shares, codes, y = draw(200, 8)
    given = {"posterior": shares, "groups": codes, "y": y} | options
    if options.get("groups") == "some":
        given["groups"] = hide(codes, np.arange(len(y)) < 20)
    if "posterior" in options:
        given["posterior"] = pd.DataFrame(shares, columns=["x", "y"])
    with pytest.raises(InvalidInputError) as error:
        sweep_blind(logits, **given)
    assert error.value.argument == argument


def test_probabilities_are_not_taken_for_groups():
    logits, shares, codes, y = draw(200, 9)
    for table in (shares, pd.DataFrame(shares)):
        with pytest.raises(InvalidInputError) as error:
            sweep(logits, table, y)
        assert error.value.argument == "groups"
    flags = np.eye(2)[codes]  # columns of 0 and 1 are groups
    assert len(sweep(logits, flags, y).groups) == 2


@pytest.mark.parametrize("posterior", ["F", None, 0.5, np.full(300, 0.5)])
def test_probabilities_without_groups_have_a_column_for_each(posterior):
    logits, _, _, y = draw(300, 0)
    with pytest.raises(InvalidInputError) as caught:
        sweep_blind(logits, posterior, None, y, unknown="estimate")
    assert caught.value.argument == "posterior"


@pytest.mark.parametrize("groups", ["F", 0.5])
def test_one_value_is_not_a_group_of_each_row(groups):
    logits, shares, _, y = draw(300, 0)
    with pytest.raises(InvalidInputError) as caught:
        sweep_blind(logits, shares, groups, y, unknown="estimate")
    assert caught.value.argument == "groups"


def test_columns_of_probabilities_are_found_by_name():
    logits, shares, codes, y = draw(1000, 0)
    groups = np.array(["a", "b"])[codes]
    table = pd.DataFrame(shares, columns=["a", "b"])
    frontier = sweep_blind(logits, table, groups, y)
    wanted = frontier.decide(logits, shares, 0.05)
    for same in (table, table[["b", "a"]], pd.DataFrame(shares)):
        assert np.array_equal(frontier.decide(logits, same, 0.05), wanted)
    for wrong in (["a", "c"], ["a", "a"], ["x", "y"]):
        with pytest.raises(InvalidInputError) as caught:
            frontier.decide(logits, table.set_axis(wrong, axis=1), 0.05)
        assert caught.value.argument == "posterior"
