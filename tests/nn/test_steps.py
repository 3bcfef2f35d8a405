from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairdial import DivergedError, InvalidInputError
from fairdial.core.rates import SELECTION, TRUE_POSITIVE
from fairdial.nn.masoba import Cotangents, Directions, GaussNewton, Objective, directions
from fairdial.nn.nets import DialNet, Head, MLPTrunk, ModuleStack
from fairdial.nn.schedules import SCHEDULED, check_schedules, factor_at
from fairdial.nn.steps import BilevelStep, PlainStep, inner_product

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
    return BilevelStep(net, replace(OBJECTIVE, t=None), **(chosen | settings))


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


def curvature(net: DialNet, x: Tensor, y: Tensor) -> GaussNewton:
    with torch.no_grad():
        features, c = net.trunk(net.arrange(x)), OBJECTIVE.prediction(net(x), y)[1]
    return GaussNewton(net.head, features, net.flat(c), 0.0)


@pytest.mark.parametrize("warm_steps", [0, 3, 10, 105])
def test_scaled_steps_know_the_curvature_from_the_first_on(warm_steps: int) -> None:
    net = small_net()
    step = BilevelStep(
        net, OBJECTIVE, outer_rate=1e-6, inner_rate=1e-6, aux="scaled", warm_steps=warm_steps
    )
    for k in range(warm_steps + 1):
        step(*batch(k))
    assert (step._largest < 1.0).all()  # of these rows
    late = BilevelStep(
        small_net(),
        Objective(TRUE_POSITIVE, np.array([0.3, 0.2])),
        outer_rate=1e-12,
        inner_rate=1e-12,
        aux="scaled",
        warm_steps=warm_steps,
    )
    for k in range(warm_steps + 1):
        x, y = batch(k)
        late(x, torch.zeros_like(y))  # no eligible rows: nothing to solve yet
    late(*batch(0))
    exact, _ = curvature(late.net, *batch(0)).largest(late._power, rounds=100)
    assert (late._largest >= 0.9 * exact).all()


def test_scaled_steps_go_no_further_than_to_the_minimum_along_their_direction() -> None:
    net = small_net()
    step = bilevel(net, outer_rate=0.0, inner_rate=0.0, aux="scaled", aux_rate=1e6)
    places = []
    for _ in range(4):  # the same system each time: steepest descent with an exact line search
        places.append(torch.cat([w.flatten() for w in step.w]))
        step(*batch(0))
    moves = torch.stack(places).diff(dim=0)
    directions = nn.functional.normalize(moves, dim=1)
    assert (moves.norm(dim=1) > 0).all()
    assert (directions[1:] * directions[:-1]).sum(dim=1).abs().max() < 1e-6


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


def only(**parts: Any) -> Directions:
    """Directions of a problem without logits."""
    unused: dict[str, Any] = dict.fromkeys(Directions._fields)
    none: dict[str, Any] = dict.fromkeys(Cotangents._fields)
    cotangents = Cotangents(**(none | {"distant": torch.tensor([True])}))
    return Directions(**(unused | {"cotangents": cotangents} | parts))


def quadratic_directions(
    net: Any, _x: Any, _y: Any, w: list[Tensor], _objective: Any, _processes: Any, move_head: Any
) -> Directions:
    outer, inner = net.trunk[0].detach(), net.head[0].detach()  # inner moves with the head
    net.trunk[0].grad = 0.1 * outer + B.T @ w[0]  # grad_1 f - (grad_12 g) w, grad_12 g = -B'
    d_h = H @ inner - (B @ outer + SHIFT)
    if move_head is not None:
        move_head([d_h])
    d_w = H @ w[0] - (inner - GOAL)
    return only(inner=[d_h], auxiliary=[d_w])


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


# ---- options of the step -----------------------------------------------------------------------


def ensemble(kind: str, seed: int = 0) -> DialNet:
    """Two members, each with a net for either group."""
    generator = torch.Generator().manual_seed(seed)
    trunk: nn.Module
    if kind == "layers":
        trunk = MLPTrunk(4, (3, 5), generator)
    else:
        torch.manual_seed(seed)
        trunk = ModuleStack.copies_of(lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh()), 4)
    return DialNet(trunk, Head(4, 5, 4, generator), members=2, groups=2).double()


def restored(step: BilevelStep, twin: BilevelStep) -> BilevelStep:
    """The twin in the state of the step, as a checkpoint would give it."""
    twin.net.load_state_dict(step.net.state_dict())
    twin.restore({name: tensor.clone() for name, tensor in step.state().items()})
    for name, optimizer in step.optimizers.items():
        mine = copy.deepcopy(optimizer.state_dict())
        twin.optimizers[name].load_state_dict(
            {
                "state": mine["state"],
                "param_groups": twin.optimizers[name].state_dict()["param_groups"],
            }
        )
    return twin


# ---- plain steps and Adam ----------------------------------------------------------------------


@pytest.mark.parametrize("outer", ["adam", "sgd"])
@pytest.mark.parametrize("inner", ["adam", "sgd"])
@pytest.mark.parametrize("aux", ["adam", "step"])
def test_each_variable_takes_its_own_kind_of_step(outer: str, inner: str, aux: str) -> None:
    net, twin = small_net(), small_net()
    rates = {"outer": 0.05, "inner": 0.1, "aux": 0.02}
    step = bilevel(net, outer_optimizer=outer, inner_optimizer=inner, aux=aux, aux_rate=0.02)
    w = [torch.zeros_like(p) for p in twin.head.parameters()]
    variables = {
        "outer": list(twin.trunk.parameters()),
        "inner": list(twin.head.parameters()),
        "aux": w,
    }
    kinds = {"outer": outer, "inner": inner, "aux": aux}
    optimizers = [
        (torch.optim.Adam if kinds[name] == "adam" else torch.optim.SGD)(part, lr=rates[name])
        for name, part in variables.items()
    ]
    for k in range(6):
        twin.zero_grad(set_to_none=True)
        d = directions(twin, *batch(k), w, OBJECTIVE)
        for p, g in zip(variables["inner"] + w, d.inner + d.auxiliary, strict=True):
            p.grad = g
        for optimizer in optimizers:
            optimizer.step()
        step(*batch(k))
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)
    for a, b in zip(step.w, w, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_adam_leaves_the_auxiliary_variable_alone_in_the_warm_start() -> None:
    step = bilevel(small_net(), aux="adam", warm_steps=3)
    for k in range(3):
        step(*batch(k))
    assert not any(w.any() for w in step.w)
    step(*batch(3))
    assert all(np.isclose(float(w.abs().max()), 0.1, rtol=1e-3) for w in step.w)  # its first step


@pytest.mark.parametrize("aux", ["step", "adam", "scaled", "solve"])
@pytest.mark.parametrize("hidden", [0, 4])
def test_a_batch_without_eligible_rows_leaves_the_auxiliary_variable_alone(
    aux: str, hidden: int
) -> None:
    net = small_net(hidden)
    objective = Objective(TRUE_POSITIVE, np.array([0.3, 0.2]), weight=0.8)
    step = BilevelStep(net, objective, outer_rate=0.01, inner_rate=0.01, aux=aux, aux_rate=0.1)
    step(*batch(0))
    w, head = [a.clone() for a in step.w], weights(net.head)
    x, y = batch(1)
    y[1] = 0.0
    step(x, y)
    assert any(a.any() for a in w)
    assert same(step.w, w)
    assert not same(weights(net.head), head)


@pytest.mark.parametrize("aux", ["scaled", "solve"])
def test_a_member_without_a_distance_loss_keeps_its_auxiliary_variable(aux: str) -> None:
    def second_unsolved(*given: Any) -> Directions:
        d = directions(*given)
        cotangents = d.cotangents._replace(distant=torch.tensor([True, False]))
        return d._replace(cotangents=cotangents)

    plain, step = bilevel(ensemble("layers"), aux=aux), bilevel(ensemble("layers"), aux=aux)
    plain(*batch(0))
    step._directions = second_unsolved
    step(*batch(0))
    for a, b in zip(plain.w, step.w, strict=True):
        assert torch.equal(a[:2], b[:2])
        assert a[2:].any()
        assert not b[2:].any()


# ---- schedules ---------------------------------------------------------------------------------


def test_named_factors_have_closed_forms() -> None:
    for k in range(40):
        assert factor_at("constant", k, 40) == 1.0
        assert factor_at("inverse", k, 40) == 1.0 / (k + 1)
        assert np.isclose(factor_at("inverse_sqrt", k, 40), (k + 1) ** -0.5)
        assert np.isclose(factor_at("cosine", k, 40), np.cos(np.pi * k / 80) ** 2)
        assert factor_at(lambda n: 2.0 * n, k, 40) == 2.0 * k
    assert factor_at("cosine", 41, 40) == 0.0


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_a_factor_that_is_no_factor_is_refused(bad: float) -> None:
    with pytest.raises(InvalidInputError, match="`schedules`"):
        factor_at(lambda _: bad, 0, 10)


@pytest.mark.parametrize("given", ["cosine", {"trunk": "cosine"}, {"outer": "linear"}, {"aux": 1}])
def test_schedules_are_checked(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="`schedules`"):
        check_schedules(given)


@pytest.mark.parametrize("name", SCHEDULED)
@pytest.mark.parametrize("aux", ["step", "adam", "scaled"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_schedule_multiplies_its_rate(name: str, aux: str, optimizer: str) -> None:
    def made(factor: float, **more: Any) -> BilevelStep:
        rates = {"outer": 0.05, "inner": 0.1, "aux": 0.1, "average": 0.4}
        rates[name] *= factor
        return bilevel(
            small_net(),
            outer_rate=rates["outer"],
            inner_rate=rates["inner"],
            aux_rate=rates["aux"],
            theta=rates["average"],
            outer_optimizer=optimizer,
            inner_optimizer="sgd",
            aux=aux,
            **more,
        )

    scheduled = made(1.0, schedules={name: lambda k: 1.0 / (k + 1)})
    for k in range(4):
        alone = restored(scheduled, made(1.0 / (k + 1)))
        scheduled(*batch(k))
        alone(*batch(k))
        assert same(weights(scheduled.net), weights(alone.net))
        assert same(scheduled.w, alone.w)
        assert same(scheduled.h, alone.h)


def test_an_inverse_schedule_of_the_average_is_the_mean_of_all_directions() -> None:
    step = bilevel(small_net(), theta=1.0, schedules={"average": lambda k: 1.0 / (k + 1)})
    seen: list[list[Tensor]] = []
    for k in range(5):
        twin = copy.deepcopy(step.net)
        directions(twin, *batch(k), step.w, OBJECTIVE)
        seen.append([p.grad for p in twin.trunk.parameters() if p.grad is not None])
        step(*batch(k))
        for h, parts in zip(step.h, zip(*seen, strict=True), strict=True):
            torch.testing.assert_close(h, torch.stack(parts).mean(0), rtol=1e-9, atol=1e-12)


def test_an_average_above_one_is_refused() -> None:
    step = bilevel(small_net(), theta=0.5, schedules={"average": lambda _: 3.0})
    with pytest.raises(InvalidInputError, match="`schedules`"):
        step(*batch(0))


# ---- bias correction ---------------------------------------------------------------------------


def constant(net: Any, _x: Any, _y: Any, w: list[Tensor], *_: Any) -> Directions:
    net.trunk[0].grad = torch.tensor([0.3, -2.0, 1e-3], dtype=torch.float64)
    return only(inner=[torch.zeros_like(w[0])], auxiliary=[torch.zeros_like(w[0])])


def on_quadratic(directions: Any = quadratic_directions, **settings: Any) -> BilevelStep:
    chosen = {"outer_rate": 0.01, "inner_rate": 0.3, "aux": "step", "aux_rate": 0.3, "theta": 0.3}
    chosen |= {"outer_optimizer": "sgd", "inner_optimizer": "sgd", "directions": directions}
    net: Any = Quadratic()
    return BilevelStep(net, OBJECTIVE, **(chosen | settings))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("schedules", [{}, {"average": lambda k: (k + 1) ** -0.5}])
def test_the_corrected_average_of_a_constant_direction_is_that_direction(
    first: bool, schedules: Any
) -> None:
    step = on_quadratic(
        constant, average_first=first, bias_correction=True, theta=0.1, schedules=schedules
    )
    expected = torch.tensor([0.3, -2.0, 1e-3], dtype=torch.float64)
    for k in range(30):
        before = step.trunk[0].detach().clone()
        step(torch.zeros(1), torch.zeros(1))
        moved = (before - step.trunk[0].detach()) / 0.01
        late = k == 0 and not first  # nothing has been averaged yet
        goal = torch.zeros(3, dtype=torch.float64) if late else expected
        torch.testing.assert_close(moved, goal, rtol=1e-9, atol=1e-12)


# ---- the largest norm --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["layers", "modules"])
@pytest.mark.parametrize("aux", ["step", "scaled", "adam"])
def test_a_loose_limit_changes_no_bit(kind: str, aux: str) -> None:
    free, limited = ensemble(kind), ensemble(kind)
    one, two = bilevel(free, aux=aux, theta=0.5), bilevel(limited, aux=aux, theta=0.5, clip=1e3)
    for k in range(5):
        one(*batch(k))
        two(*batch(k))
    assert same(weights(free), weights(limited))
    assert same(one.w, two.w)


@pytest.mark.parametrize("kind", ["layers", "modules"])
def test_no_member_takes_a_longer_step_and_each_keeps_its_direction(kind: str) -> None:
    limit = 1e-3
    free, limited = ensemble(kind), ensemble(kind)
    one, two = bilevel(free), bilevel(limited, clip=limit)
    for step in (one, two):
        for w in step.w:
            w.fill_(0.5)
    before = weights(free), [w.clone() for w in one.w]
    one(*batch(0))
    two(*batch(0))

    def moves(step: BilevelStep) -> dict[str, Tensor]:
        now = [*weights(step.net), *step.w]
        parts = [a - b for a, b in zip(now, [*before[0], *before[1]], strict=True)]
        n = len(step.trunk)
        trunk = parts[:n]
        if kind == "modules":  # weights of net 0, of net 1, ...: a member has two nets
            trunk = [torch.cat([p.flatten() for p in half]) for half in (trunk[:4], trunk[4:])]
            trunk = [torch.stack(trunk)]
        m = len(step.head)
        found = {"outer": trunk, "inner": parts[n : n + m], "aux": parts[n + m :]}
        return {
            name: torch.cat([p.reshape(2, -1) for p in of], dim=1) for name, of in found.items()
        }

    rates = {"outer": 0.05, "inner": 0.1, "aux": 0.1}
    for name, moved in moves(two).items():
        plain = moves(one)[name]
        length, whole = moved.norm(dim=1), plain.norm(dim=1)
        assert (whole > rates[name] * limit).all(), name
        torch.testing.assert_close(length, torch.full_like(length, rates[name] * limit))
        torch.testing.assert_close(moved / length[:, None], plain / whole[:, None])


@pytest.mark.parametrize("kind", ["layers", "modules"])
def test_a_member_doesnt_feel_the_limit_of_another(kind: str) -> None:
    quiet, loud = ensemble(kind), ensemble(kind)
    with torch.no_grad():
        for p in loud.head.parameters():
            p[2:] *= 50.0  # the second member's
    one, two = bilevel(quiet, clip=0.05), bilevel(loud, clip=0.05)
    for k in range(3):
        one(*batch(k))
        two(*batch(k))
    for p, q in zip(quiet.head.parameters(), loud.head.parameters(), strict=True):
        torch.testing.assert_close(p[:2], q[:2], rtol=0, atol=1e-6)  # all share the root's search


# ---- the order of the updates ------------------------------------------------------------------


class Counted(nn.Module):
    """A trunk with batch normalization and dropout that counts its forward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        found: Tensor = self.layers(x)
        return found


def test_the_sequential_order_runs_the_trunk_once() -> None:
    head = Head(2, 5, 4, torch.Generator().manual_seed(0))
    net = DialNet(ModuleStack.copies_of(Counted, 2), head, members=1, groups=2).double().train()
    step = bilevel(net, sequential=True)
    for k in range(3):
        step(*batch(k))
    for trunk in net.trunk.nets:
        assert trunk.passes == 3
        assert int(trunk.layers[1].num_batches_tracked) == 3


def test_the_sequential_order_is_two_passes() -> None:
    net, twin = small_net(), small_net()
    step = bilevel(net, sequential=True)
    w = [torch.zeros_like(p) for p in twin.head.parameters()]
    for k in range(6):
        expected = directions(twin, *batch(k), w, OBJECTIVE)
        with torch.no_grad():
            for p, g in zip(twin.head.parameters(), expected.inner, strict=True):
                p -= 0.1 * g
        twin.zero_grad(set_to_none=True)
        d = directions(twin, *batch(k), w, OBJECTIVE)
        with torch.no_grad():
            for a, g in zip(w, d.auxiliary, strict=True):
                a -= 0.1 * g
            for p in twin.trunk.parameters():
                p -= 0.05 * p.grad
        twin.zero_grad(set_to_none=True)
        torch.testing.assert_close(step(*batch(k)), expected.logits, rtol=1e-9, atol=1e-12)
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-11)
    for a, b in zip(step.w, w, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_the_warm_start_is_the_same_in_either_order() -> None:
    one, two = small_net(), small_net()
    together, sequential = bilevel(one, warm_steps=3), bilevel(two, warm_steps=3, sequential=True)
    for k in range(3):
        together(*batch(k))
        sequential(*batch(k))
    assert same(weights(one), weights(two))


# ---- all of them at once -----------------------------------------------------------------------

EXACT = torch.linalg.solve(
    0.1 * torch.eye(3, dtype=torch.float64) + torch.linalg.solve(H, B).T @ torch.linalg.solve(H, B),
    torch.linalg.solve(H, B).T @ (GOAL - torch.linalg.solve(H, SHIFT)),
)


@pytest.mark.parametrize(
    "settings",
    [
        {"sequential": True},
        {"bias_correction": True, "average_first": False},
        {"outer_optimizer": "adam", "outer_rate": 0.002},
        {"aux": "adam", "aux_rate": 0.01, "schedules": {"aux": lambda k: 0.999**k}},
        {"schedules": {"average": lambda k: max((k + 1) ** -0.5, 0.2)}},
    ],
)
def test_the_quadratic_problem_is_solved_with_every_option(settings: dict[str, Any]) -> None:
    step = on_quadratic(**settings)
    for _ in range(6000):
        step(torch.zeros(1), torch.zeros(1))
    torch.testing.assert_close(step.trunk[0].detach(), EXACT, rtol=0, atol=1e-4)


ALL = {
    "outer_optimizer": "adam",
    "inner_optimizer": "sgd",
    "aux": "adam",
    "theta": 0.4,
    "average_first": False,
    "bias_correction": True,
    "schedules": {name: lambda k: 1.0 / (k + 1) for name in SCHEDULED},
    "clip": 0.01,
    "sequential": True,
    "warm_steps": 2,
}


@pytest.mark.parametrize("kind", ["layers", "modules"])
@pytest.mark.parametrize("killed", [1, 4])
def test_a_resumed_run_takes_the_same_steps(kind: str, killed: int) -> None:
    whole = bilevel(ensemble(kind), **ALL)
    for k in range(killed):
        whole(*batch(k))
    again = restored(whole, bilevel(ensemble(kind, seed=1), **ALL))
    for k in range(killed, killed + 4):
        whole(*batch(k))
        again(*batch(k))
        assert same(weights(whole.net), weights(again.net))
    assert same(whole.w, again.w)
    assert same(whole.h, again.h)


def test_a_checkpoint_is_restored_to_the_nets_device() -> None:
    step = bilevel(small_net(), aux="scaled")
    step(*batch(0))
    elsewhere = bilevel(small_net().to("meta"), aux="scaled")
    elsewhere.restore(step.state())
    assert elsewhere._largest.device == elsewhere.head[0].device != step._largest.device


def test_runs_cant_be_taken_out_of_a_bilevel_step() -> None:
    step = bilevel(small_net())
    with pytest.raises(RuntimeError):
        step.keep([0])


@pytest.mark.parametrize("size", [1, 2**16, 3 * 2**16 + 7])
def test_inner_products_are_those_in_float64(size: int) -> None:
    a, b = torch.randn(2, size, generator=torch.Generator().manual_seed(size))
    expected = torch.dot(a.double(), b.double())
    scale = float(a.norm() * b.norm())
    assert inner_product(a, b).dtype == torch.float64
    assert float((inner_product(a, b) - expected).abs()) <= 1e-6 * scale
