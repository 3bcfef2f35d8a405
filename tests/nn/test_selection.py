from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logit

from fairdial import Network
from fairdial.core.criteria import (
    DEMOGRAPHIC_PARITY,
    EQUAL_OPPORTUNITY,
    PREDICTIVE_EQUALITY,
    Criterion,
)
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.problem import Problem
from fairdial.core.strata import find_strata
from fairdial.core.sweep import sweep_encoded
from fairdial.nn.build import build_net
from fairdial.nn.data import InputEncoder, TensorInputs, TrainingData
from fairdial.nn.nets import DialNet
from fairdial.nn.scorer import score_runs
from fairdial.nn.selection import (
    FEW_TOLERANCES,
    dial_figures,
    interval_figures,
    score_conditions,
    score_weighted,
    tradeoff_figures,
)
from fairdial.nn.tradeoff import Tradeoff

CRITERIA = [DEMOGRAPHIC_PARITY, EQUAL_OPPORTUNITY, PREDICTIVE_EQUALITY]
every_criterion = pytest.mark.parametrize("criterion", CRITERIA, ids=str)


def held_rows(
    criterion: Criterion = DEMOGRAPHIC_PARITY, *, groups: int = 2, n: int = 200
) -> TrainingData:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, groups, n)
    x = rng.standard_normal((n, 3)) + 0.5 * codes[:, None]
    positive = rng.random(n) < 1.0 / (1.0 + np.exp(-x.sum(axis=1)))
    inputs, encode = TensorInputs(torch.as_tensor(x)), InputEncoder(None, torch.device("cpu"))
    none, every = np.zeros(0, np.intp), np.arange(n)
    return TrainingData(inputs, positive, codes, groups, none, every, criterion, encode)


def objective_of(held: TrainingData) -> Tradeoff:
    return Tradeoff(held.criterion)


def net_of(*, runs: int = 1, film: Any = None, groups: int = 2) -> DialNet:
    network = Network(hidden=(6, 5), head=4, members=2)
    net = build_net(network, torch.zeros(2, 3), groups, 0, runs=runs, film=film).double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in net.parameters():  # runs that differ, a modulation that does something
            p += 0.2 * torch.randn(p.shape, generator=draw, dtype=torch.float64)
    return net


@every_criterion
@pytest.mark.parametrize("groups", [2, 3])
def test_the_figures_are_their_definitions(criterion: Criterion, groups: int) -> None:
    held = held_rows(criterion, groups=groups)
    logits = np.random.default_rng(1).standard_normal((3, 200))
    found = tradeoff_figures(logits, held, objective_of(held))
    loss, gap = objective_of(held).on_rows(logits, held.y, held.codes)
    assert np.array_equal(found["held_loss"], loss)
    assert np.array_equal(found["held_disparity"], gap)
    label = criterion.rate.eligible
    for r in range(3):
        right = sum((z > 0) == p for z, p in zip(logits[r], held.y, strict=True))
        assert found["accuracy"][r] == pytest.approx(right / 200, abs=1e-15)
        rates = []
        for a in range(groups):
            rows = [
                z > 0
                for z, c, p in zip(logits[r], held.codes, held.y, strict=True)
                if c == a and (label is None or p == label)
            ]
            rates.append(sum(rows) / len(rows))
        assert found["gap"][r] == pytest.approx(max(rates) - min(rates), abs=1e-14)


@pytest.mark.parametrize("positive", [True, False])
def test_rows_of_which_none_is_eligible_have_no_gap(positive: bool) -> None:
    held = held_rows(PREDICTIVE_EQUALITY if positive else EQUAL_OPPORTUNITY)
    held.y = np.full(200, positive)
    found = tradeoff_figures(np.ones((2, 200)), held, objective_of(held))
    assert np.array_equal(found["gap"], [0.0, 0.0])
    assert np.array_equal(found["held_disparity"], [0.0, 0.0])


def test_groups_without_rows_are_left_out() -> None:
    held = held_rows(groups=3)
    logits = np.random.default_rng(1).standard_normal((2, 200))
    some = held.codes != 1
    held.validation, logits = np.flatnonzero(some), logits[:, some]
    found = tradeoff_figures(logits, held, objective_of(held))
    for r in range(2):
        rates = [(logits[r] > 0)[held.codes[some] == a].mean() for a in (0, 2)]
        assert found["gap"][r] == pytest.approx(abs(rates[0] - rates[1]), abs=1e-14)
        assert found["gap"][r] > 0


@every_criterion
def test_a_run_scores_minus_its_weighted_losses(criterion: Criterion) -> None:
    held, net = held_rows(criterion), net_of(runs=3)
    objective = objective_of(held)
    weights = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    found = score_weighted(net, held, objective=objective, weights=weights)
    logits = score_runs(net, held.inputs, held.codes)
    loss, gap = objective.on_rows(logits, held.y, held.codes)
    assert found["score"] == pytest.approx(
        [-loss[0], -(0.6 * loss[1] + 0.8 * gap[1]), -gap[2]], rel=1e-12
    )
    assert all(isinstance(v, list) and len(v) == 3 for v in found.values())
    assert all(isinstance(one, float) for v in found.values() for one in v)


@pytest.mark.parametrize("kept", [[1], [0, 2], [2, 0]])
def test_runs_that_are_left_have_their_own_weights(kept: list[int]) -> None:
    held, net = held_rows(), net_of(runs=3)
    weights = np.array([[1.0, 0.1], [0.6, 0.8], [0.2, 5.0]])
    asked = {"objective": objective_of(held), "weights": weights}
    whole = score_weighted(net, held, **asked)
    net.keep(kept)
    some = score_weighted(net, held, **asked)
    for name, values in some.items():
        assert values == pytest.approx([whole[name][r] for r in kept], rel=1e-12)


def test_a_single_run_is_scored_by_numbers() -> None:
    held, net = held_rows(), net_of(runs=3)
    weights = np.array([[1.0, 0.1], [0.6, 0.8], [0.2, 5.0]])
    together = score_weighted(net, held, objective=objective_of(held), weights=weights)
    for r in range(3):
        one = copy.deepcopy(net)
        one.keep([r])
        one.kept = [0]  # as a training of this run alone has it
        alone = score_weighted(one, held, objective=objective_of(held), weights=weights[[r]])
        assert all(isinstance(v, float) for v in alone.values())
        assert alone == pytest.approx({k: v[r] for k, v in together.items()}, rel=1e-12)


def test_conditions_score_minus_the_mean_of_their_weighted_losses() -> None:
    held, net = held_rows(), net_of(film={"hidden": 4, "depth": 1})
    weights = [1e-3, 0.1, 10.0]
    conditions = [-1.0, 0.0, 2.0]
    found = score_conditions(
        net, held, objective=objective_of(held), weights=weights, conditions=conditions
    )
    figures = []
    for c in conditions:
        logits = np.empty((1, 200))
        for a in (0, 1):
            rows = torch.as_tensor(held.codes == a)
            part = net.of_group(held.inputs.features[rows], a, condition=c)
            logits[0, held.codes == a] = part.mean(dim=0).detach()
        figures.append(tradeoff_figures(logits, held, objective_of(held)))
    pairs = zip(figures, weights, strict=True)
    total = [f["held_loss"][0] + w * f["held_disparity"][0] for f, w in pairs]
    assert found["score"] == pytest.approx(-np.mean(total), rel=1e-12)
    for name in ("held_loss", "held_disparity", "accuracy", "gap"):
        assert found[f"{name}_loose"] == pytest.approx(figures[0][name][0], rel=1e-12)
        assert found[f"{name}_strict"] == pytest.approx(figures[-1][name][0], rel=1e-12)
    assert len({float(f["held_loss"][0]) for f in figures}) == 3  # the condition matters


def test_scoring_leaves_the_net_as_it_was() -> None:
    held, net = held_rows(), net_of(runs=2)
    net.train()
    before = copy.deepcopy(net.state_dict())
    score_weighted(net, held, objective=objective_of(held), weights=np.ones((2, 2)))
    assert net.training
    assert all(torch.equal(p, before[name]) for name, p in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


# ---- theorem 1: what the dial gives back; tests/test_acc_dep.py has the identity ---------------


def test_interval_figures_are_those_of_the_theorem() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    codes = rng.integers(0, 2, n)
    eta = rng.beta(2, 2 + codes)
    z = logit(eta)
    fairest = np.array([-0.31, 0.52])
    found = interval_figures(z, codes, fairest)
    kappa = 1.0 / (1.0 + np.exp(-fairest))
    inside = (eta > np.minimum(0.5, kappa)[codes]) & (eta <= np.maximum(0.5, kappa)[codes])
    assert found["interval_share"] == inside.mean()
    assert found["acc_dep"] == pytest.approx(np.where(inside, np.abs(2 * eta - 1), 0).mean())
    assert (found["fairest_0"], found["fairest_1"]) == (-0.31, 0.52)


# ---- the score of an epoch ---------------------------------------------------------------------


def dial_rows(n: int = 400) -> tuple[np.ndarray, TrainingData]:
    rng = np.random.default_rng(0)
    data = held_rows(n=n)
    z = rng.standard_normal(n) + 0.8 * (data.codes - 0.5)
    data.y = rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * z))
    return z, data


def test_the_dial_score_is_the_area_under_what_the_dial_delivers() -> None:
    z, data = dial_rows()
    found = dial_figures(z, data, "dial")
    frontier = sweep_encoded(
        z, data.codes, data.y, Problem(DEMOGRAPHIC_PARITY), (0, 1), min_count=1
    )
    tolerances = np.linspace(0.0, 1.0, 4001)
    points, _ = frontier.points.find(tolerances)
    delivered = frontier.accuracy_of(points)
    assert found["score"] == pytest.approx(np.trapezoid(delivered, tolerances), abs=2e-3)
    assert found["gap"] == frontier.gap[0]
    assert found["accuracy"] == frontier.accuracy[0]


def test_the_score_can_be_the_papers_hypervolume() -> None:
    z, data = dial_rows()
    found = dial_figures(z, data, "hypervolume")
    assert found["score"] == found["hypervolume"]
    other = dial_figures(z, data, "dial")
    assert found["hypervolume"] == other["hypervolume"]
    frontier = sweep_encoded(
        z, data.codes, data.y, Problem(DEMOGRAPHIC_PARITY), (0, 1), min_count=1
    )
    points, _ = frontier.points.find(np.linspace(0.0, frontier.gap[0], 50))
    best = np.maximum.accumulate(frontier.accuracy[points])  # of those within a gap
    gaps = frontier.gap[points]
    area = float((best * np.diff(np.append(gaps, 1.0))).sum())
    assert found["hypervolume"] == pytest.approx(area, abs=1e-12)


def test_better_scores_have_a_better_score() -> None:
    z, data = dial_rows()
    noise = np.random.default_rng(1).standard_normal(len(z))
    figures = [dial_figures(z + level * noise, data)["score"] for level in (0.0, 1.0, 5.0)]
    assert figures[0] > figures[1] > figures[2]


def test_validation_rows_of_one_group_are_scored_by_accuracy() -> None:
    z, data = dial_rows()
    one = data.codes == 0
    data.validation = np.flatnonzero(one)
    found = dial_figures(z[one], data)
    right = ((z > 0) == data.y)[one].mean()
    assert found == {"score": right, "accuracy": right}


# ---- several rates, strata and weights ---------------------------------------------------------

SEVERAL = ["equalized_odds", "demographic_parity_ratio", "accuracy_parity", "predictive_parity"]


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("by", ["dial", "hypervolume"])
def test_searched_dials_are_scored_at_a_few_tolerances(name: str, by: str) -> None:
    z, data = dial_rows()
    data.criterion = find_criterion(name)
    found = dial_figures(z, data, by)
    frontier = sweep_encoded(z, data.codes, data.y, Problem(data.criterion), (0, 1), min_count=1)
    tolerances = np.linspace(0.0, found["gap"], FEW_TOLERANCES + 1)[1:]
    points = frontier.at(tolerances)
    assert found["accuracy"] == points.accuracy[-1]
    assert not {"fairest_gap", "fairest_0", "interval_share", "acc_dep"} & set(found)
    expected = found["gap"] * points.accuracy.mean() + (1 - found["gap"]) * points.accuracy[-1]
    if by == "dial":
        assert found["score"] == pytest.approx(expected, rel=1e-12)
    plain = (z > 0) == data.y
    assert found["accuracy"] >= plain.mean() - 0.02


@pytest.mark.parametrize("name", ["demographic_parity", "equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("strata", [False, True])
def test_whole_weights_of_validation_rows_are_repeated_rows(name: str, strata: bool) -> None:
    z, data = dial_rows()
    rng = np.random.default_rng(3)
    counts, kind = rng.integers(1, 4, len(z)), find_criterion(name)
    places = np.repeat(np.arange(len(z)), counts)
    found = rng.integers(0, 2, len(z)) if strata else None
    repeated = None if found is None else found[places]
    one, other = copy.copy(data), copy.copy(data)
    one.weights, one.validation = counts, np.arange(len(z))
    other.validation = np.arange(len(places))
    other.y, other.codes = data.y[places], data.codes[places]
    one.criterion, one.strata = find_strata(kind, found, len(z))
    other.criterion, other.strata = find_strata(kind, repeated, len(places))
    here, there = dial_figures(z, one), dial_figures(z[places], other)
    assert here == pytest.approx(there, rel=1e-12)
    if not strata:
        parts = [
            tradeoff_figures(lines, held, Tradeoff(kind))
            for lines, held in ((z[None], one), (z[places][None], other))
        ]
        for what in parts[0]:
            np.testing.assert_allclose(parts[0][what], parts[1][what], rtol=1e-12)
