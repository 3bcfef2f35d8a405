from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairdial import DivergedError
from fairdial.core.rates import SELECTION
from fairdial.nn.masoba import Directions, Objective, directions
from fairdial.nn.nets import DialNet, Head, MLPTrunk, ModuleStack
from fairdial.nn.steps import BilevelStep, PlainStep

OBJECTIVE = Objective(SELECTION, np.array([0.6, 0.4]), weight=0.8)


def small_net(hidden: int = 4) -> DialNet:
    generator = torch.Generator().manual_seed(0)
    return DialNet(
        MLPTrunk(2, (3, 5), generator), Head(2, 5, hidden, generator), members=1, groups=2
    ).double()


def batch(seed: int, n: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(2, n, generator=generator) < 0.5).double()
    x = torch.randn(2, n, 3, generator=generator, dtype=torch.float64) + y[..., None]
    return x, y


def weights(part: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in part.parameters()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


def bilevel(net: DialNet, **settings: Any) -> BilevelStep:
    chosen = {
        "outer_rate": 0.05,
        "inner_rate": 0.1,
        "aux": "step",
        "aux_rate": 0.1,
        "outer_optimizer": "sgd",
        "inner_optimizer": "sgd",
    }
    return BilevelStep(net, OBJECTIVE, **(chosen | settings))


# ---- the order of the updates ------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_in_the_papers_order_the_first_outer_step_is_none(optimizer: str) -> None:
    net = small_net()
    step = bilevel(net, theta=0.1, average_first=False, outer_optimizer=optimizer)
    trunk, head = weights(net.trunk), weights(net.head)
    step(*batch(0))
    assert same(weights(net.trunk), trunk)
    assert not same(weights(net.head), head)
    step(*batch(1))
    assert not same(weights(net.trunk), trunk)


def test_the_moving_average_lags_one_step() -> None:
    net = small_net()
    step = bilevel(net, theta=0.1, average_first=False)
    for k in range(4):
        h, before, w = [a.clone() for a in step.h], weights(net.trunk), [a.clone() for a in step.w]
        twin = copy.deepcopy(net)
        directions(twin, *batch(k), w, OBJECTIVE)
        step(*batch(k))
        for p, old, a in zip(net.trunk.parameters(), before, h, strict=True):
            torch.testing.assert_close(p.detach(), old - 0.05 * a)  # line 7: h of before
        for p, old, a in zip(twin.trunk.parameters(), h, step.h, strict=True):
            torch.testing.assert_close(a, 0.9 * old + 0.1 * p.grad)  # line 10


def test_averaging_first_uses_the_new_direction_at_once() -> None:
    net = small_net()
    step = bilevel(net, theta=0.1, average_first=True)
    before = weights(net.trunk)
    step(*batch(0))
    for p, old, h in zip(net.trunk.parameters(), before, step.h, strict=True):
        assert h.abs().max() > 0
        torch.testing.assert_close(p.detach(), old - 0.05 * h)


def test_theta_of_one_in_the_papers_order_is_soba_one_step_late() -> None:
    late, soba = small_net(), small_net()
    step = bilevel(late, theta=1.0, average_first=False)
    w = [torch.zeros_like(p) for p in soba.head.parameters()]
    held: list[Tensor] | None = None
    for k in range(20):
        soba.zero_grad(set_to_none=True)
        d = directions(soba, *batch(k), w, OBJECTIVE)
        fresh = [p.grad.clone() for p in soba.trunk.parameters()]
        with torch.no_grad():
            for p, g in zip(soba.head.parameters(), d.inner, strict=True):
                p -= 0.1 * g
            for a, g in zip(w, d.auxiliary, strict=True):
                a -= 0.1 * g
            for p, g in zip(soba.trunk.parameters(), held or [], strict=held is not None):
                p -= 0.05 * g
        held = fresh
        step(*batch(k))
    for p, q in zip(late.parameters(), soba.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)


def test_theta_of_one_averaging_first_is_soba() -> None:
    raw, averaged = small_net(), small_net()
    one, two = bilevel(raw, theta=1.0), bilevel(averaged, theta=1.0 - 1e-13)
    for k in range(10):
        one(*batch(k))
        two(*batch(k))
    for p, q in zip(raw.parameters(), averaged.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)


def test_the_warm_start_is_plain_training() -> None:
    net, plain = small_net(), small_net()
    warm = BilevelStep(net, OBJECTIVE, outer_rate=0.01, inner_rate=0.01, warm_steps=5)
    simple = PlainStep(plain, OBJECTIVE, rate=0.01)
    for k in range(5):
        warm(*batch(k))
        simple(*batch(k))
    for p, q in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)
    assert all((w == 0).all() for w in warm.w)
    warm(*batch(5))
    assert any((w != 0).any() for w in warm.w)


def test_a_plain_weight_with_a_solved_system_is_plain_training() -> None:
    net, plain = small_net(), small_net()
    objective = Objective(SELECTION, np.array([0.6, 0.4]), weight=1.0)
    step = BilevelStep(net, objective, outer_rate=0.01, inner_rate=0.01, aux="solve")
    simple = PlainStep(plain, objective, rate=0.01)
    for k in range(10):
        step(*batch(k))
        simple(*batch(k))
    for p, q in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)


def test_weight_decay_is_part_of_the_heads_hessian() -> None:
    plain, decayed = small_net(), small_net()
    one, two = bilevel(plain), bilevel(decayed, weight_decay=0.01)
    for step in (one, two):
        for w in step.w:
            w.fill_(0.5)
        step(*batch(0))
    for a, b in zip(one.w, two.w, strict=True):
        torch.testing.assert_close(b, a - 0.1 * 0.01 * 0.5)


@pytest.mark.parametrize("aux", ["step", "scaled", "solve"])
@pytest.mark.parametrize("hidden", [0, 4])
def test_every_treatment_of_the_auxiliary_system_trains(aux: str, hidden: int) -> None:
    net = small_net(hidden)
    step = BilevelStep(net, OBJECTIVE, outer_rate=0.01, inner_rate=0.01, aux=aux, aux_rate=0.5)
    first = float(OBJECTIVE.losses(net(batch(0)[0]).detach(), batch(0)[1])["loss"])
    for k in range(60):
        step(*batch(k))
    step.check()
    last = float(OBJECTIVE.losses(net(batch(0)[0]).detach(), batch(0)[1])["loss"])
    assert last < first
    assert any((w != 0).any() for w in step.w)


@pytest.mark.parametrize("warm_steps", [0, 3, 10, 105])
def test_scaled_steps_know_the_curvature_from_the_first_on(warm_steps: int) -> None:
    net = small_net()
    step = BilevelStep(
        net, OBJECTIVE, outer_rate=1e-6, inner_rate=1e-6, aux="scaled", warm_steps=warm_steps
    )
    for k in range(warm_steps + 1):
        step(*batch(k))
    assert (step._largest < 1.0).all()  # of these rows; 1 is where it starts


def test_frozen_and_empty_trunks_leave_the_head_to_learn() -> None:
    frozen = nn.Linear(3, 5)
    frozen.requires_grad_(False)
    for trunk in (frozen, nn.Identity()):
        stack = ModuleStack.copies_of(trunk, 2)
        width = 5 if trunk is frozen else 3
        net = DialNet(stack, Head(2, width, 4, torch.Generator()), members=1, groups=2).double()
        before, head = weights(net.trunk), weights(net.head)
        for theta in (1.0, 0.5):
            step = bilevel(net, theta=theta, outer_optimizer="adam", inner_optimizer="adam")
            step(*batch(0))
        assert same(weights(net.trunk), before)
        assert not same(weights(net.head), head)


# ---- a quadratic problem with a known solution -------------------------------------------------

H = torch.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=torch.float64)
B = torch.tensor([[1.0, 0.0, -1.0], [0.5, 2.0, 0.0]], dtype=torch.float64)
SHIFT = torch.tensor([0.2, -0.1], dtype=torch.float64)
GOAL = torch.tensor([1.0, -1.0], dtype=torch.float64)


class Quadratic(nn.Module):
    """g = y'Hy / 2 - y'(Bx + b) below, f = |y - c|^2 / 2 + .05 |x|^2 above."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.ParameterList([nn.Parameter(torch.zeros(3, dtype=torch.float64))])
        self.head = nn.ParameterList([nn.Parameter(torch.zeros(2, dtype=torch.float64))])


def quadratic_directions(net: Any, _x: Any, _y: Any, w: list[Tensor], *_: Any) -> Directions:
    outer, inner = net.trunk[0].detach(), net.head[0].detach()
    net.trunk[0].grad = 0.1 * outer + B.T @ w[0]  # grad_1 f - (grad_12 g) w, grad_12 g = -B'
    d_h = H @ inner - (B @ outer + SHIFT)
    d_w = H @ w[0] - (inner - GOAL)
    unused: dict[str, Any] = dict.fromkeys(Directions._fields)
    return Directions(**(unused | {"inner": [d_h], "auxiliary": [d_w]}))


def quadratic(alpha: float, beta: float, theta: float) -> BilevelStep:
    net: Any = Quadratic()
    return BilevelStep(
        net,
        OBJECTIVE,
        outer_rate=alpha,
        inner_rate=beta,
        aux="step",
        aux_rate=beta,
        theta=theta,
        average_first=False,
        outer_optimizer="sgd",
        inner_optimizer="sgd",
        directions=quadratic_directions,
    )


def test_a_quadratic_problem_is_solved() -> None:
    step = quadratic(0.01, 0.3, 0.3)
    for _ in range(5000):
        step(torch.zeros(1), torch.zeros(1))
    step.check()
    x = torch.tensor([0.56411423, -0.45906860, -0.67888138], dtype=torch.float64)
    y = torch.tensor([0.87110975, -0.99741301], dtype=torch.float64)
    w = torch.tensor([-0.06788814, 0.02295343], dtype=torch.float64)
    net: Any = step.net
    torch.testing.assert_close(net.trunk[0].detach(), x, rtol=0, atol=1e-8)
    torch.testing.assert_close(net.head[0].detach(), y, rtol=0, atol=1e-8)
    torch.testing.assert_close(step.w[0], w, rtol=0, atol=1e-8)
    # the exact solution: y = H^-1 (Bx + b), H w = y - c, .1 x + B'w = 0
    solver = torch.linalg.solve(H, B)
    system = 0.1 * torch.eye(3, dtype=torch.float64) + solver.T @ solver
    right = solver.T @ (GOAL - torch.linalg.solve(H, SHIFT))
    exact = torch.linalg.solve(system, right)
    torch.testing.assert_close(net.trunk[0].detach(), exact, rtol=0, atol=1e-9)


def test_an_outer_rate_near_the_inner_one_raises_diverged_error() -> None:
    step = quadratic(0.05, 0.1, 0.1)

    def run() -> None:
        for k in range(5000):
            step(torch.zeros(1), torch.zeros(1))
            if k % 100 == 0:
                step.check()

    with pytest.raises(DivergedError, match=r"Lower `.*rate`"):
        run()


# ---- divergence --------------------------------------------------------------------------------


def test_each_part_that_diverges_is_named_with_its_rate() -> None:
    for part, rate in (("trunk", "learning"), ("head", "(head|inner)"), ("w", "aux")):
        step = bilevel(small_net())
        with torch.no_grad():
            (step.w if part == "w" else list(getattr(step.net, part).parameters()))[0][0] = 1e9
        with pytest.raises(DivergedError, match=f"`{rate}_rate`"):
            step.check()


def test_not_a_number_has_diverged() -> None:
    step = PlainStep(small_net(), OBJECTIVE, rate=0.1)
    step.check()
    with torch.no_grad():
        next(step.net.parameters())[0] = float("nan")
    with pytest.raises(DivergedError, match="nan"):
        step.check()
