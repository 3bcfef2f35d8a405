from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from fairdial import Network
from fairdial.criteria import (
    DEMOGRAPHIC_PARITY,
    EQUAL_OPPORTUNITY,
    PREDICTIVE_EQUALITY,
    Criterion,
)
from fairdial.nn.fitting import Held, build
from fairdial.nn.nets import DialNet
from fairdial.nn.rows import TensorRows
from fairdial.nn.scorer import score_runs
from fairdial.nn.selection import score_conditions, score_weighted, tradeoff_figures
from fairdial.nn.tradeoff import Tradeoff

CRITERIA = [DEMOGRAPHIC_PARITY, EQUAL_OPPORTUNITY, PREDICTIVE_EQUALITY]
every_criterion = pytest.mark.parametrize("criterion", CRITERIA, ids=str)


def held_rows(criterion: Criterion = DEMOGRAPHIC_PARITY, *, groups: int = 2, n: int = 200) -> Held:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, groups, n)
    x = rng.standard_normal((n, 3)) + 0.5 * codes[:, None]
    positive = rng.random(n) < 1.0 / (1.0 + np.exp(-x.sum(axis=1)))
    return Held(TensorRows(torch.as_tensor(x)), codes, positive, groups, criterion)


def objective_of(held: Held) -> Tradeoff:
    return Tradeoff(held.criterion.rates[0])


def net_of(*, runs: int = 1, film: Any = None, groups: int = 2) -> DialNet:
    network = Network(hidden=(6, 5), head=4, members=2)
    net = build(network, torch.zeros(2, 3), groups, 0, runs=runs, film=film).double()
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
    loss, gap = objective_of(held).on_rows(logits, held.positive, held.codes)
    assert np.array_equal(found["held_loss"], loss)
    assert np.array_equal(found["held_disparity"], gap)
    label = criterion.rates[0].counted
    for r in range(3):
        right = sum((z > 0) == p for z, p in zip(logits[r], held.positive, strict=True))
        assert found["accuracy"][r] == pytest.approx(right / 200, abs=1e-15)
        rates = []
        for a in range(groups):
            rows = [
                z > 0
                for z, c, p in zip(logits[r], held.codes, held.positive, strict=True)
                if c == a and (label is None or p == label)
            ]
            rates.append(sum(rows) / len(rows))
        assert found["gap"][r] == pytest.approx(max(rates) - min(rates), abs=1e-14)


@pytest.mark.parametrize("positive", [True, False])
def test_rows_of_which_none_counts_have_no_gap(positive: bool) -> None:
    held = held_rows(PREDICTIVE_EQUALITY if positive else EQUAL_OPPORTUNITY)
    held.positive = np.full(200, positive)
    found = tradeoff_figures(np.ones((2, 200)), held, objective_of(held))
    assert np.array_equal(found["gap"], [0.0, 0.0])
    assert np.array_equal(found["held_disparity"], [0.0, 0.0])


def test_groups_without_rows_are_left_out() -> None:
    held = held_rows(groups=3)
    logits = np.random.default_rng(1).standard_normal((2, 200))
    some = held.codes != 1
    held.codes, held.positive, logits = held.codes[some], held.positive[some], logits[:, some]
    found = tradeoff_figures(logits, held, objective_of(held))
    for r in range(2):
        rates = [(logits[r] > 0)[held.codes == a].mean() for a in (0, 2)]
        assert found["gap"][r] == pytest.approx(abs(rates[0] - rates[1]), abs=1e-14)
        assert found["gap"][r] > 0


@every_criterion
def test_a_run_scores_minus_its_weighted_losses(criterion: Criterion) -> None:
    held, net = held_rows(criterion), net_of(runs=3)
    objective = objective_of(held)
    weights = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    found = score_weighted(net, held, objective=objective, weights=weights)
    logits = score_runs(net, held.rows, held.codes)
    loss, gap = objective.on_rows(logits, held.positive, held.codes)
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


def test_one_run_alone_is_told_in_numbers() -> None:
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
            part = net.of_group(held.rows.features[rows], a, condition=c)
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
