from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus

from fairdial.core.rates import FALSE_POSITIVE, SELECTION, TRUE_POSITIVE, Rate
from fairdial.nn.class_objective import ClassObjective
from fairdial.nn.class_prices import equalize_classes
from fairdial.nn.implicit import setting_domain
from fairdial.nn.masoba import GaussNewton, Objective, directions, residual
from fairdial.nn.nets import ALL, DialNet, Head, MLPTrunk, ModuleStack
from fairdial.nn.steps import BilevelStep

RATES = [SELECTION, TRUE_POSITIVE, FALSE_POSITIVE]
SIGNS = torch.tensor([-1.0, 1.0], dtype=torch.float64)
WEIGHT = 0.8
RATE_OF_AUX = 0.05

# ---- the plain way: three gradients, each by autograd ------------------------------------------


def link(rate: Rate, u: Tensor) -> Tensor:
    if rate is SELECTION:
        return 2.0 * torch.atanh(u)
    return -torch.log1p(-u) if rate is TRUE_POSITIVE else torch.log1p(u)


def plain_fairest(z: Tensor, y: Tensor, objective: Objective) -> Tensor:
    """t(Z) of one net: a root found by bisection, then one Newton step for the gradient."""
    shares = torch.as_tensor(objective.shares)
    eligible = (
        torch.ones_like(y) if objective.rate.eligible is None else y == objective.rate.eligible
    )

    def phi(t: Tensor) -> Tensor:
        tau = link(objective.rate, t * SIGNS / shares)[:, None]
        soft = torch.sigmoid(objective.sharpness * (z - tau)) * eligible
        rates = soft.sum(dim=1) / eligible.sum(dim=1)
        return rates[1] - rates[0]

    low, high = setting_domain(objective.rate, objective.shares)
    low, high = low + objective.clamp, high - objective.clamp
    with torch.no_grad():
        root = brentq(lambda t: float(phi(torch.tensor(t, dtype=z.dtype))), low, high, xtol=1e-16)
    t = torch.tensor(root, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(phi(t), t)
    return t.detach() - phi(t.detach()) / slope


def plain_losses(z: Tensor, y: Tensor, objective: Objective) -> tuple[Tensor, Tensor]:
    """L_pred and L_gen, summed over the members: each is a problem of its own."""
    margin = (2.0 * y - 1.0) * z
    prediction = (torch.sigmoid(-margin) ** objective.gamma * softplus(-margin)).mean(dim=(1, 2))
    distance = []
    for member in z:
        t = plain_fairest(member, y, objective)
        tau = link(objective.rate, t * SIGNS / torch.as_tensor(objective.shares))[:, None]
        side = torch.sign(tau.detach())
        near = torch.sigmoid(side * objective.sharpness * member)
        distance.append((near * torch.relu(side * (tau - member))).mean())
    general = (1.0 - objective.weight) * torch.stack(distance) + objective.weight * prediction
    return prediction.sum(), general.sum()


def plain_prices(p: Tensor, objective: ClassObjective) -> Tensor:
    """The fairest prices of one net: found, then one differentiable Newton step."""
    shares = torch.as_tensor(objective.shares)
    shares = shares / shares.sum()
    found = equalize_classes(p.detach().numpy()[None], objective.shares, accuracy=1e-14)
    root = torch.from_numpy(found.prices[0])

    def equations(u: Tensor, p: Tensor) -> Tensor:
        rates = torch.softmax((p - u[:, None, :]) / objective.smoothing, dim=-1).mean(dim=1)
        return u - objective.stiffness * (rates - shares @ rates)

    slope = torch.autograd.functional.jacobian(lambda u: equations(u, p.detach()), root)
    size = root.numel()
    step = torch.linalg.solve(slope.view(size, size), equations(root, p).flatten())
    return root - step.view_as(root)


def plain_class_losses(z: Tensor, y: Tensor, objective: ClassObjective) -> tuple[Tensor, Tensor]:
    """L_pred and L_gen for logits (M, G, C, B), as the documentation writes them."""
    z = z.transpose(2, 3)
    labels = y.long().expand(len(z), -1, -1)[..., None]
    prediction = -torch.log_softmax(z, -1).gather(-1, labels).mean(dim=(1, 2, 3))
    distance = []
    for p in torch.softmax(z, dim=-1):
        u = plain_prices(p, objective)
        utility = p - u[:, None, :]
        free = torch.softmax(p / objective.smoothing, dim=-1)
        total = torch.zeros_like(p[..., 0])
        for k in range(p.shape[-1]):
            cheaper = (u.detach() < u.detach()[:, k : k + 1])[:, None, :]
            best = torch.where(cheaper, utility, -1e9).max(dim=-1).values
            total = total + free[..., k] * torch.relu(best - utility[..., k])
        distance.append(total.mean())
    general = (1.0 - objective.weight) * torch.stack(distance) + objective.weight * prediction
    return prediction.sum(), general.sum()


def plain_directions(
    net: DialNet,
    x: Tensor,
    y: Tensor,
    w: Sequence[Tensor],
    objective: Objective | ClassObjective,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """D_g, D_z, D_w exactly as eq:d_ga, eq:d_za and eq:w are written."""
    trunk, head = list(net.trunk.parameters()), list(net.head.parameters())
    if isinstance(objective, ClassObjective):
        prediction, general = plain_class_losses(net(x), y, objective)
    else:
        prediction, general = plain_losses(net(x), y, objective)
    inner = torch.autograd.grad(prediction, head, create_graph=True)
    product = torch.stack([(g * d).sum() for g, d in zip(inner, w, strict=True)]).sum()
    crossed = torch.autograd.grad(product, trunk + head, retain_graph=True, allow_unused=True)
    outer = torch.autograd.grad(general, trunk + head, allow_unused=True)
    both = [
        (torch.zeros_like(p) if a is None else a) - (torch.zeros_like(p) if b is None else b)
        for p, a, b in zip(trunk + head, outer, crossed, strict=True)
    ]
    return both[: len(trunk)], [g.detach() for g in inner], [-d for d in both[len(trunk) :]]


# ---- nets --------------------------------------------------------------------------------------


def mlp(*, members: int = 1, hidden: int = 5, shared: bool = False, bare: bool = False) -> DialNet:
    generator = torch.Generator().manual_seed(1)
    nets = members * (1 if shared else 2)
    trunk = MLPTrunk(nets, (3 + 2 * shared, 7, 4), generator, norm=True, bare=bare)
    head = Head(nets, 4, hidden, generator)
    return DialNet(trunk, head, members=members, groups=2, shared=shared).double()


def convolutional() -> DialNet:
    torch.manual_seed(2)
    trunk = ModuleStack.copies_of(
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()
        ),
        2,
    )
    head = Head(2, 12, 6, torch.Generator().manual_seed(3))
    return DialNet(trunk, head, members=1, groups=2).double()


class TanhHead(nn.Module):
    """A head that the library doesn't know, one for each net of the stack."""

    def __init__(self, nets: int, n_in: int, hidden: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.first = nn.Parameter(torch.randn(nets, hidden, n_in, generator=generator) / 2)
        self.second = nn.Parameter(torch.randn(nets, 1, hidden, generator=generator) / 2)

    def forward(self, features: Tensor, nets: slice = ALL) -> Tensor:
        hidden = torch.tanh(features @ self.first[nets].transpose(1, 2))
        return (hidden @ self.second[nets].transpose(1, 2)).squeeze(-1)


def batch(seed: int, shape: tuple[int, ...] = (3,), n: int = 24) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(2, n, generator=generator) < torch.tensor([[0.35], [0.6]])).double()
    x = torch.randn(2, n, *shape, generator=generator, dtype=torch.float64)
    return x + (y - 0.5).view(2, n, *([1] * len(shape))), y


def objective_for(rate: Rate = SELECTION, gamma: float = 0.0, weight: float = WEIGHT) -> Objective:
    shares = np.array({None: [0.6, 0.4], 1: [0.18, 0.24], 0: [0.42, 0.16]}[rate.eligible])
    return Objective(rate, shares, weight=weight, gamma=gamma, accuracy=1e-14)


def some_w(net: DialNet, seed: int = 9) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64)
        for p in net.head.parameters()
    ]


def outer_of(net: DialNet) -> list[Tensor]:
    return [
        torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in net.trunk.parameters()
    ]


def off(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Largest difference relative to the largest entry, over all tensors."""
    size = max(float(e.detach().abs().max()) for e in expected)
    pairs = zip(found, expected, strict=True)
    return max(float((f - e).detach().abs().max()) for f, e in pairs) / size


# ---- the three directions ----------------------------------------------------------------------

NETS: dict[str, Callable[[], DialNet]] = {
    "two layers": mlp,
    "linear head": lambda: mlp(hidden=0),
    "shared trunk": lambda: mlp(shared=True),
    "bare trunk": lambda: mlp(bare=True),
    "members": lambda: mlp(members=3),
    "shared members": lambda: mlp(members=2, shared=True),
    "convolutions": convolutional,
}


@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
@pytest.mark.parametrize("name", NETS)
def test_one_backward_gives_the_three_directions(name: str, rate: Rate, gamma: float) -> None:
    net = NETS[name]()
    x, y = batch(0, (1, 6, 6) if name == "convolutions" else (3,))
    w, objective = some_w(net), objective_for(rate, gamma)
    expected = plain_directions(copy.deepcopy(net), x, y, w, objective)
    found = directions(net, x, y, w, objective)
    assert off(outer_of(net), expected[0]) <= 1e-9
    assert off(found.inner, expected[1]) <= 1e-9
    assert off(found.auxiliary, expected[2]) <= 1e-9


def class_net(*, members: int = 1, hidden: int = 5, shared: bool = False) -> DialNet:
    generator = torch.Generator().manual_seed(1)
    nets = members * (1 if shared else 3)
    trunk = MLPTrunk(nets, (3 + 3 * shared, 7, 4), generator, norm=True)
    head = Head(nets, 4, hidden, generator, outputs=4)
    return DialNet(trunk, head, members=members, groups=3, shared=shared).double()


class OwnClassHead(nn.Module):
    """A head for four classes that the library doesn't know, one for each of three nets."""

    outputs = 4

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.weight = nn.Parameter(torch.randn(3, 4, 4, generator=generator))

    def forward(self, features: Tensor, nets: slice = ALL) -> Tensor:
        return torch.tanh(features) @ self.weight[nets]


CLASS_NETS: dict[str, Callable[[], DialNet]] = {
    "two layers": class_net,
    "linear head": lambda: class_net(hidden=0),
    "members": lambda: class_net(members=2),
    "shared members": lambda: class_net(members=2, shared=True),
    "own head": lambda: DialNet(class_net().trunk, OwnClassHead(), members=1, groups=3).double(),
}


@pytest.mark.parametrize("name", CLASS_NETS)
def test_one_backward_gives_the_three_directions_for_classes(name: str) -> None:
    net = CLASS_NETS[name]()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 24, 3, generator=generator, dtype=torch.float64)
    x[1] += 0.8
    y = torch.randint(4, (3, 24), generator=generator).double()
    objective = ClassObjective(np.array([0.5, 0.3, 0.2]), weight=WEIGHT, accuracy=1e-14)
    w = some_w(net)
    expected = plain_directions(copy.deepcopy(net), x, y, w, objective)
    found = directions(net, x, y, w, objective)
    assert bool(found.cotangents.distant.all())
    assert off(outer_of(net), expected[0]) <= 1e-9
    assert off(found.inner, expected[1]) <= 1e-9
    assert off(found.auxiliary, expected[2]) <= 1e-9


def test_conjugate_gradients_solve_the_system_of_classes() -> None:
    net = class_net()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 24, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (3, 24), generator=generator).double()
    objective = ClassObjective(np.full(3, 1 / 3), weight=0.2)
    found = directions(net, x, y, some_w(net), objective)
    c, right = net.flat(found.cotangents.c), net.flat(found.cotangents.v_distance)
    system = GaussNewton(net.head, found.features, c, 1e-3)
    with torch.no_grad():
        solved = system.solve(right, some_w(net), 200)
        rest = system.residual(solved, right)
        whole = net.head.transpose(found.features, net.head.tangent(found.features, solved), right)
    assert max(map(torch.norm, rest)) <= 1e-6 * max(map(torch.norm, whole))


@pytest.mark.parametrize("name", ["two layers", "linear head", "shared trunk", "convolutions"])
@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
def test_fifty_steps_stay_with_the_plain_way(name: str, rate: Rate) -> None:
    quick, plain = NETS[name](), NETS[name]()
    step = BilevelStep(
        quick,
        objective_for(rate, 2.0),
        outer_rate=0.02,
        inner_rate=0.1,
        aux="step",
        aux_rate=RATE_OF_AUX,
        theta=0.3,
        average_first=False,
        outer_optimizer="sgd",
        inner_optimizer="sgd",
    )
    w = [torch.zeros_like(p) for p in plain.head.parameters()]
    h = [torch.zeros_like(p) for p in plain.trunk.parameters()]
    for k in range(50):
        x, y = batch(k, (1, 6, 6) if name == "convolutions" else (3,))
        step(x, y)
        d_g, d_h, d_w = plain_directions(plain, x, y, w, objective_for(rate, 2.0))
        with torch.no_grad():  # alg:proposed, lines 7 to 10
            for p, a in zip(plain.trunk.parameters(), h, strict=True):
                p -= 0.02 * a
            for p, d in zip(plain.head.parameters(), d_h, strict=True):
                p -= 0.1 * d
            for a, d in zip(w, d_w, strict=True):
                a -= RATE_OF_AUX * d
            for a, d in zip(h, d_g, strict=True):
                a += 0.3 * (d - a)
    assert off(list(quick.parameters()), list(plain.parameters())) <= 1e-9
    assert off(step.w, w) <= 1e-9
    assert off(step.h, h) <= 1e-9
    for name_, value in plain.state_dict().items():  # batch normalization saw each batch once
        torch.testing.assert_close(quick.state_dict()[name_], value, rtol=1e-8, atol=1e-10)
        if name_.endswith("num_batches_tracked"):
            assert int(quick.state_dict()[name_]) == 50


def test_the_residual_leaves_batch_normalization_unchanged() -> None:
    net = convolutional().train()
    step = BilevelStep(net, objective_for(), outer_rate=0.01, inner_rate=0.01)
    before = copy.deepcopy(net.state_dict())
    step.diagnose(*batch(0, (1, 6, 6)))
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
def test_an_unknown_head_takes_the_way_of_double_backward(rate: Rate, gamma: float) -> None:
    net = DialNet(mlp().trunk, TanhHead(2, 4, 5), members=1, groups=2).double()
    x, y = batch(1)
    w, objective = some_w(net), objective_for(rate, gamma)
    expected = plain_directions(copy.deepcopy(net), x, y, w, objective)
    found = directions(net, x, y, w, objective)
    assert off(outer_of(net), expected[0]) <= 1e-9
    assert off(found.inner, expected[1]) <= 1e-9
    assert off(found.auxiliary, expected[2]) <= 1e-9


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_an_unknown_heads_update_is_that_of_a_plain_optimizer(optimizer: str) -> None:
    net = DialNet(mlp().trunk, TanhHead(2, 4, 5), members=1, groups=2).double()
    twin = copy.deepcopy(net)
    objective = objective_for(weight=1.0)
    step = BilevelStep(
        net,
        objective,
        outer_rate=0.01,
        inner_rate=0.01,
        aux="step",
        inner_optimizer=optimizer,
    )
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    plain = kind(twin.head.parameters(), lr=0.01)
    x, y = batch(1)
    _, d_h, _ = plain_directions(twin, x, y, step.w, objective)
    for p, d in zip(twin.head.parameters(), d_h, strict=True):
        p.grad = d.clone(memory_format=torch.contiguous_format)
    plain.step()
    step(x, y)
    assert off(list(net.head.parameters()), list(twin.head.parameters())) <= 1e-12


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_an_unknown_head_with_saturated_logits_has_finite_directions(gamma: float) -> None:
    net = DialNet(mlp().trunk, TanhHead(2, 4, 5), members=1, groups=2).double()
    with torch.no_grad():
        net.head.second *= 1e4
    x, y = batch(1)
    found = directions(net, x, y, some_w(net), objective_for(gamma=gamma))
    for part in (*found.inner, *found.auxiliary, *outer_of(net)):
        assert torch.isfinite(part).all()


# ---- against dense matrices --------------------------------------------------------------------


def flatten(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([p.reshape(-1) for p in parts])


def dense(
    net: DialNet, x: Tensor, y: Tensor, objective: Objective
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hessian blocks of L_pred (head-head, trunk-head) and gradients of L_gen (trunk, head)."""
    named = dict(net.named_parameters())
    names = [n for n in named if n.startswith("trunk")] + [n for n in named if n.startswith("head")]
    sizes = [named[n].numel() for n in names]
    split = sum(s for n, s in zip(names, sizes, strict=True) if n.startswith("trunk"))

    def loss(vector: Tensor, which: int) -> Tensor:
        parts = [
            p.view_as(named[n]) for n, p in zip(names, torch.split(vector, sizes), strict=True)
        ]
        logits = functional_call(net, dict(zip(names, parts, strict=True)), (x,))
        return plain_losses(logits, y, objective)[which]

    vector = flatten([named[n].detach() for n in names])
    hessian = torch.autograd.functional.hessian(lambda v: loss(v, 0), vector)
    source = vector.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(source, 1), source)
    return hessian[split:, split:], hessian[:split, split:], gradient[:split], gradient[split:]


@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("head", ["linear", "two layers", "unknown"])
def test_products_are_those_of_dense_hessians(head: str, gamma: float) -> None:
    net = mlp(hidden=0 if head == "linear" else 3)
    if head == "unknown":
        net = DialNet(net.trunk, TanhHead(2, 4, 3), members=1, groups=2).double()
    x, y = batch(4, n=12)
    objective, w = objective_for(gamma=gamma), some_w(net)
    h_hh, h_gh, g_trunk, g_head = dense(net, x, y, objective)
    found = directions(net, x, y, w, objective)
    assert off([flatten(found.auxiliary)], [h_hh @ flatten(w) - g_head]) <= 1e-9
    assert off([flatten(outer_of(net))], [g_trunk - h_gh @ flatten(w)]) <= 1e-9


def system_for(
    hidden: int, damping: float = 1e-3
) -> tuple[GaussNewton, Tensor, list[Tensor], DialNet]:
    """The system of a stack of two nets, its dense matrices (S, p, p), and the Jacobians."""
    net = mlp(hidden=hidden)
    x, y = batch(6)
    features = net.trunk(net.arrange(x)).detach()
    objective = objective_for()
    c = net.flat(objective(net.pairs(net.head(features)).detach(), y).c)
    params = [p.detach() for p in net.head.parameters()]
    names = [n for n, _ in net.head.named_parameters()]
    sizes = [p[0].numel() for p in params]
    matrices, jacobians = [], []
    for s in range(2):

        def logits(vector: Tensor, s: int = s) -> Tensor:
            parts = []
            for p, piece in zip(params, torch.split(vector, sizes), strict=True):
                own = piece.view_as(p[0])
                parts.append(torch.stack([own if i == s else p[i] for i in range(2)]))
            return functional_call(net.head, dict(zip(names, parts, strict=True)), (features,))[s]

        jacobian = torch.autograd.functional.jacobian(logits, flatten([p[s] for p in params]))
        matrix = jacobian.T @ (c[s][:, None] * jacobian)
        jacobians.append(jacobian)
        matrices.append(matrix + damping * torch.eye(len(matrix), dtype=torch.float64))
    return GaussNewton(net.head, features, c, damping), torch.stack(matrices), jacobians, net


def flatten_nets(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([p.flatten(1) for p in parts], dim=1)


def right_side(jacobians: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Cotangents of the logits (S, B), and J' times them (S, p)."""
    generator = torch.Generator().manual_seed(4)
    right = torch.randn(2, len(jacobians[0]), generator=generator, dtype=torch.float64)
    pairs = zip(jacobians, right, strict=True)
    return right, torch.stack([jacobian.T @ r for jacobian, r in pairs])


@pytest.mark.parametrize("hidden", [0, 5])
@torch.no_grad()
def test_gauss_newton_products_are_those_of_its_dense_matrix(hidden: int) -> None:
    system, matrices, jacobians, net = system_for(hidden)
    p = some_w(net)
    product = (matrices @ flatten_nets(p)[..., None]).squeeze(-1)
    torch.testing.assert_close(flatten_nets(system(p)), product, rtol=1e-11, atol=1e-13)
    right, pulled = right_side(jacobians)
    missed = flatten_nets(system.residual(p, right))
    torch.testing.assert_close(missed, product - pulled, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("hidden", [0, 5])
@torch.no_grad()
def test_solving_is_that_of_linear_algebra(hidden: int) -> None:
    system, matrices, jacobians, net = system_for(hidden)
    right, pulled = right_side(jacobians)
    found = flatten_nets(system.solve(right, some_w(net), 300))
    expected = torch.linalg.solve(matrices, pulled)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


@torch.no_grad()
def test_a_linear_head_is_solved_exactly_at_once() -> None:
    system, matrices, jacobians, net = system_for(0)
    right, pulled = right_side(jacobians)
    nothing = [torch.zeros_like(p) for p in net.head.parameters()]
    found = flatten_nets(system.solve(right, nothing, 0))
    expected = torch.linalg.solve(matrices, pulled)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("hidden", [0, 5])
@torch.no_grad()
def test_the_largest_curvature_is_the_largest_eigenvalue(hidden: int) -> None:
    system, matrices, _, net = system_for(hidden)
    largest, p = system.largest(some_w(net), rounds=400)
    expected = torch.linalg.eigvalsh(matrices)[:, -1]
    torch.testing.assert_close(largest, expected, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(flatten_nets(p).norm(dim=1), torch.ones(2).double())
    once, _ = system.largest([q.clone() for q in p])
    torch.testing.assert_close(once, expected, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("members", [1, 3])
def test_the_first_estimate_of_the_curvature_keeps_steps_stable(members: int) -> None:
    net = mlp(members=members)
    step = BilevelStep(net, objective_for(), outer_rate=1e-9, inner_rate=1e-9, aux="scaled")
    x, y = batch(6)
    step(x, y)
    with torch.no_grad():
        features = net.trunk(net.arrange(x))
        c = net.flat(objective_for().prediction(net(x), y)[1])
        start = [torch.randn_like(p) for p in net.head.parameters()]
        largest, _ = GaussNewton(net.head, features, c, 0.0).largest(start, rounds=100)
    assert (step._largest >= 0.5 * largest).all()  # a rate of 1 is stable down to here


# ---- the residual ------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [0, 5])
@torch.no_grad()
def test_the_residual_is_one_at_nothing_and_zero_at_the_solution(hidden: int) -> None:
    system, matrices, _, net = system_for(hidden)
    x, y = batch(6)
    objective = objective_for()
    cot = objective(net(x), y)
    zero = [torch.zeros_like(p) for p in net.head.parameters()]
    right = flatten_nets([-r for r in system.residual(zero, net.flat(cot.v_distance))])
    for w in (zero, some_w(net), system.solve(net.flat(cot.v_distance), zero, 300)):
        rest = (matrices @ flatten_nets(w)[..., None]).squeeze(-1) - right
        expected = float((rest.norm(dim=1) / right.norm(dim=1)).mean())
        assert residual(net, x, y, w, objective, damping=1e-3) == pytest.approx(expected, abs=1e-6)
    assert residual(net, x, y, zero, objective) == pytest.approx(1.0, abs=1e-12)
    assert expected <= 1e-6


@pytest.mark.parametrize("aux", ["step", "adam"])
def test_a_variable_that_solves_the_system_of_all_rows_does_so_on_other_batches(aux: str) -> None:
    net, objective = mlp(hidden=0), objective_for(weight=0.95)
    x, y = batch(3, n=20_000)
    refit(net, x, y, objective)
    still = {"outer_rate": 1e-12, "inner_rate": 1e-12}
    step = BilevelStep(net, objective, aux=aux, aux_rate=1e-9, **still)
    step(x, y)
    rows = [batch(seed, n=64) for seed in range(10, 40)]
    assert np.median([step.diagnose(*few)["aux_residual"] for few in rows]) > 0.99
    solved = BilevelStep(net, objective, aux="solve", **still)
    solved(x, y)
    for w, found in zip(step.w, solved.w, strict=True):
        w.copy_(found)
    assert np.median([step.diagnose(*few)["aux_residual"] for few in rows]) < 0.6


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
def test_the_residual_of_the_system_that_is_solved_is_zero_when_it_is(rate: Rate) -> None:
    net = mlp(hidden=0)
    x, y = batch(3)
    step = BilevelStep(net, objective_for(rate), outer_rate=1e-12, inner_rate=1e-12, aux="solve")
    step(x, y)
    assert step.diagnose(x, y)["aux_residual"] <= 1e-6


def test_nothing_to_solve_is_no_residual() -> None:
    net = mlp()
    x, y = batch(3)
    y[1] = 0.0  # nobody counts in a group: no distance, no right-hand side
    assert np.isnan(residual(net, x, y, some_w(net), objective_for(TRUE_POSITIVE)))


# ---- hypergradients ----------------------------------------------------------------------------


def exact_w(net: DialNet, x: Tensor, y: Tensor, objective: Objective) -> list[Tensor]:
    h_hh, _, _, g_head = dense(net, x, y, objective)
    found = torch.linalg.lstsq(h_hh, g_head[:, None], driver="gelsd").solution[:, 0]
    params = list(net.head.parameters())
    pieces = torch.split(found, [p.numel() for p in params])
    return [piece.view_as(p).contiguous() for p, piece in zip(params, pieces, strict=True)]


def refit(net: DialNet, x: Tensor, y: Tensor, objective: Objective) -> None:
    """Newton's method on a linear head until its gradient is gone."""
    with torch.no_grad():
        features = net.trunk(net.arrange(x))
        weight, bias = net.head.parameters()
        wide = torch.cat((features, torch.ones_like(features[..., :1])), dim=-1)
        for _ in range(60):
            u, c = (net.flat(part) for part in objective.prediction(net(x), y))
            gradient = torch.einsum("sbf,sb->sf", wide, u)
            hessian = torch.einsum("sbf,sb,sbg->sfg", wide, c, wide)
            move = torch.linalg.solve(hessian, gradient)
            weight -= move[:, :-1, None]
            bias -= move[:, -1:, None]
            if float(gradient.abs().max()) < 1e-14:
                break
        assert float(gradient.abs().max()) < 1e-10


@pytest.mark.parametrize("rate", RATES, ids=lambda r: r.name)
def test_the_hypergradient_is_that_of_finite_differences(rate: Rate) -> None:
    net = mlp(hidden=0)
    x, y = batch(8, n=60)
    objective = objective_for(rate)
    refit(net, x, y, objective)
    w = exact_w(net, x, y, objective)
    directions(net, x, y, w, objective)
    hypergradient = flatten(outer_of(net))
    base = flatten([p.detach() for p in net.trunk.parameters()])
    generator = torch.Generator().manual_seed(0)

    def phi(vector: Tensor) -> float:
        nn.utils.vector_to_parameters(vector, net.trunk.parameters())
        refit(net, x, y, objective)
        return float(plain_losses(net(x).detach(), y, objective)[1])

    for _ in range(4):
        along = torch.randn(len(base), generator=generator, dtype=torch.float64)
        along /= along.norm()
        step = 1e-5
        numeric = (phi(base + step * along) - phi(base - step * along)) / (2 * step)
        exact = float(hypergradient @ along)
        assert exact == pytest.approx(numeric, abs=1e-5 * float(hypergradient.norm()))


def test_plain_weight_has_the_stationary_points_of_plain_training() -> None:
    net = mlp(hidden=0)
    x, y = batch(8, n=60)
    objective = objective_for(weight=1.0)
    refit(net, x, y, objective)
    nothing = [torch.zeros_like(p) for p in net.head.parameters()]
    found = directions(net, x, y, nothing, objective)
    assert float(flatten(found.auxiliary).abs().max()) < 1e-10  # w stays where it is
    loss = plain_losses(net(x), y, objective)[0]
    expected = torch.autograd.grad(loss, list(net.trunk.parameters()), allow_unused=True)
    expected = [
        torch.zeros_like(p) if g is None else g
        for p, g in zip(net.trunk.parameters(), expected, strict=True)
    ]
    assert off(outer_of(net), expected) <= 1e-10


# ---- edges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [TRUE_POSITIVE, FALSE_POSITIVE], ids=lambda r: r.name)
def test_a_batch_without_eligible_rows_uses_the_prediction_loss_only(rate: Rate) -> None:
    net = mlp()
    x, y = batch(0)
    y[1] = 1.0 - rate.eligible
    found: Any = objective_for(rate)(net(x).detach(), y)
    torch.testing.assert_close(found.v, WEIGHT * found.u)
    assert (found.v_distance == 0).all()


def test_saturated_logits_have_finite_directions() -> None:
    net = mlp()
    with torch.no_grad():
        next(reversed(list(net.head.parameters()))).fill_(500.0)
    x, y = batch(0)
    for gamma in (0.0, 0.5, 2.0):
        found = directions(net, x, y, some_w(net), objective_for(gamma=gamma))
        for part in (*found.inner, *found.auxiliary, *outer_of(net)):
            assert torch.isfinite(part).all()
