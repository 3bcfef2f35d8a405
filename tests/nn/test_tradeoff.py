from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, spearmanr
from torch import Tensor, nn
from torch.nn import functional

from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.rates import FALSE_POSITIVE, SELECTION, TRUE_POSITIVE, Rate
from fairdial.errors import InvalidInputError
from fairdial.nn.nets import DialNet, Film, Head, MLPTrunk, ModuleStack
from fairdial.nn.pareto import epo_weights
from fairdial.nn.partition import fairness_names
from fairdial.nn.tradeoff import EPOStep, FairBiNNStep, Tradeoff, YOTOStep, smooth_gap

RATES = [SELECTION, TRUE_POSITIVE, FALSE_POSITIVE]
NAMES = [rate.name for rate in RATES]
every_rate = pytest.mark.parametrize("rate", RATES, ids=NAMES)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def paired(
    seed: int, *, members: int = 2, groups: int = 2, n: int = 9, spread: float = 0.3
) -> tuple[Tensor, Tensor]:
    """Logits (M, G, B) where the sigmoids aren't flat, and labels (G, B) of both kinds."""
    draw = generator(seed)
    logits = spread * torch.randn(members, groups, n, generator=draw, dtype=torch.float64)
    y = (torch.rand(groups, n, generator=draw) < 0.5).double()
    y[:, 0], y[:, 1] = 0.0, 1.0
    return logits + 0.2 * torch.arange(groups)[:, None], y


def eligible(rate: Rate, y: Tensor) -> Tensor:
    return torch.ones_like(y, dtype=torch.bool) if rate.eligible is None else y == rate.eligible


def plain_gap(z: Tensor, y: Tensor, rate: Rate, sharpness: float = 10.0) -> Tensor:
    """Smooth gap of one member's logits (G, B), as the definition has it."""
    used = eligible(rate, y)
    rates = [
        torch.sigmoid(sharpness * z[a][used[a]]).mean() for a in range(len(z)) if used[a].any()
    ]
    return max(rates) - min(rates) if rates else z.new_zeros(())


def criterion_of(*rates: Rate) -> Criterion:
    return Criterion("+".join(rate.name for rate in rates), rates)


def plain_loss(z: Tensor, y: Tensor, gamma: float = 0.0) -> Tensor:
    """Focal loss of one member's logits (G, B): the groups' means, averaged."""
    rows = functional.binary_cross_entropy_with_logits(z, y, reduction="none")
    return ((1.0 - torch.exp(-rows)) ** gamma * rows).mean(dim=1).mean()


# ---- the gap -----------------------------------------------------------------------------------


@every_rate
@pytest.mark.parametrize("groups", [2, 3, 5])
@pytest.mark.parametrize("sharpness", [1.0, 10.0])
def test_the_gap_is_highest_minus_lowest_mean_sigmoid(
    rate: Rate, groups: int, sharpness: float
) -> None:
    logits, y = paired(0, members=3, groups=groups)
    found = Tradeoff(criterion_of(rate), sharpness=sharpness).disparity(logits, y)
    assert found.value.shape == (3,)
    assert found.gradient.shape == logits.shape
    for m in range(3):
        z, used = logits[m].numpy(), eligible(rate, y).numpy()
        rates = [(1.0 / (1.0 + np.exp(-sharpness * z[a][used[a]]))).mean() for a in range(groups)]
        assert float(found.value[m]) == pytest.approx(max(rates) - min(rates), rel=1e-12)
        assert float(found.value[m]) > 0


@every_rate
@pytest.mark.parametrize("groups", [2, 3])
def test_the_gaps_gradient_is_that_of_differences(rate: Rate, groups: int) -> None:
    logits, y = paired(1, groups=groups, n=5)
    objective, eps = Tradeoff(criterion_of(rate)), 1e-6
    found = objective.disparity(logits, y).gradient
    slopes = torch.zeros_like(logits)
    for place in np.ndindex(*logits.shape):
        ends = []
        for side in (eps, -eps):
            moved = logits.clone()
            moved[place] += side
            ends.append(objective.disparity(moved, y).value[place[0]])
        slopes[place] = (ends[0] - ends[1]) / (2 * eps)
    torch.testing.assert_close(found, slopes, rtol=1e-7, atol=1e-9)
    assert float(found.abs().max()) > 0.01


@every_rate
@pytest.mark.parametrize("groups", [2, 3])
def test_the_gaps_gradient_is_autograds(rate: Rate, groups: int) -> None:
    logits, y = paired(2, members=3, groups=groups)
    objective, z = Tradeoff(criterion_of(rate)), logits.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: objective.disparity(z, y).value, z)
    total = sum(plain_gap(z[m], y, rate) for m in range(3))
    (expected,) = torch.autograd.grad(total, z)
    torch.testing.assert_close(
        objective.disparity(logits, y).gradient, expected, rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_the_prediction_loss_and_its_gradient_are_autograds(gamma: float, groups: int) -> None:
    logits, y = paired(3, members=3, groups=groups, spread=2.0)
    found = Tradeoff(criterion_of(SELECTION), gamma).accuracy(logits, y)
    z = logits.clone().requires_grad_()
    losses = [plain_loss(z[m], y, gamma) for m in range(3)]
    (expected,) = torch.autograd.grad(sum(losses), z)
    torch.testing.assert_close(found.value, torch.stack(losses).detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(found.gradient, expected, rtol=1e-10, atol=1e-15)


def test_the_masks_of_two_criteria_split_the_rows() -> None:
    logits, y = paired(4)
    by_positive = Tradeoff(criterion_of(TRUE_POSITIVE)).disparity(logits, y).gradient
    by_negative = Tradeoff(criterion_of(FALSE_POSITIVE)).disparity(logits, y).gradient
    assert bool(((by_positive != 0) == (y == 1)).all())
    assert bool(((by_negative != 0) == (y == 0)).all())
    flipped = Tradeoff(criterion_of(FALSE_POSITIVE)).disparity(logits, 1.0 - y)
    assert torch.equal(flipped.gradient, by_positive)


@pytest.mark.parametrize("rate", RATES[1:], ids=NAMES[1:])
@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_group_without_eligible_rows_is_left_out(rate: Rate, empty: int) -> None:
    logits, y = paired(5, groups=3)
    logits[:, empty] = torch.tensor([[9.0], [-9.0]])  # would be the highest, or the lowest
    y[empty] = 1.0 - rate.eligible
    rest = [a for a in range(3) if a != empty]
    found = Tradeoff(criterion_of(rate)).disparity(logits, y)
    alone = Tradeoff(criterion_of(rate)).disparity(logits[:, rest], y[rest])
    torch.testing.assert_close(found.value, alone.value)
    torch.testing.assert_close(found.gradient[:, rest], alone.gradient)
    assert bool((found.gradient[:, empty] == 0).all())
    assert bool((found.value > 0).all())


@pytest.mark.parametrize("full", [(), (0,), (1,)])
def test_fewer_than_two_groups_with_eligible_rows_have_no_gap(full: tuple[int, ...]) -> None:
    logits, y = paired(6, groups=3)
    y[:] = 0.0
    y[list(full), 2:] = 1.0
    found = Tradeoff(criterion_of(TRUE_POSITIVE)).disparity(logits, y)
    assert bool((found.value == 0).all())
    assert bool((found.gradient == 0).all())


def test_equal_rates_have_no_gap_and_no_gradient() -> None:
    logits = torch.zeros(2, 3, 8, dtype=torch.float64)  # rates of 1/2 without rounding
    found = smooth_gap(logits, torch.ones(3, 8, dtype=torch.float64))
    assert bool((found.value == 0).all())
    assert bool((found.gradient == 0).all())


@every_rate
@pytest.mark.parametrize("groups", [2, 3])
def test_sharp_sigmoids_give_the_gap_of_decisions(rate: Rate, groups: int) -> None:
    logits, y = paired(8, groups=groups, n=40)
    logits = logits.sign() * (logits.abs() + 0.01)
    found = Tradeoff(criterion_of(rate), sharpness=1e7).disparity(logits, y)
    used = eligible(rate, y)
    for m in range(2):
        rates = [float((logits[m, a] > 0)[used[a]].double().mean()) for a in range(groups)]
        assert float(found.value[m]) == pytest.approx(max(rates) - min(rates), abs=1e-12)
    assert bool(torch.isfinite(found.gradient).all())


@every_rate
def test_extreme_logits_stay_finite(rate: Rate) -> None:
    logits, y = paired(9, spread=1e30)
    for part in (
        Tradeoff(criterion_of(rate)).disparity(logits, y),
        Tradeoff(criterion_of(rate), 2.0).accuracy(logits, y),
    ):
        assert bool(torch.isfinite(part.gradient).all())
        assert bool(torch.isfinite(part.value).all())


@given(seed=st.integers(0, 2**31), groups=st.integers(1, 4), which=st.integers(0, 2))
def test_the_gap_lies_between_0_and_1_and_its_gradient_never_in_three_groups(
    seed: int, groups: int, which: int
) -> None:
    logits, y = paired(seed, groups=groups, spread=1.0)
    found = Tradeoff(criterion_of(RATES[which])).disparity(logits, y)
    assert bool(((found.value >= 0) & (found.value <= 1)).all())
    pulls = found.gradient.sum(dim=2)  # (M, G): up for the highest, down for the lowest
    assert bool(((pulls > 0).sum(dim=1) <= 1).all())
    assert bool(((pulls < 0).sum(dim=1) <= 1).all())


@every_rate
def test_the_order_does_not_matter(rate: Rate) -> None:
    logits, y = paired(10, members=3, groups=3)
    objective = Tradeoff(criterion_of(rate), 2.0)
    rng = np.random.default_rng(0)
    rows = torch.as_tensor(np.stack([rng.permutation(9) for _ in range(3)]))
    groups, members = torch.tensor([2, 0, 1]), torch.tensor([1, 2, 0])

    def mixed(z: Tensor) -> Tensor:
        return z.gather(2, rows.expand(3, -1, -1))[members][:, groups]

    for part in (objective.accuracy, objective.disparity):
        one, two = part(logits, y), part(mixed(logits), y.gather(1, rows)[groups])
        torch.testing.assert_close(two.value, one.value[members], rtol=1e-13, atol=0)
        torch.testing.assert_close(two.gradient, mixed(one.gradient), rtol=1e-13, atol=0)


# ---- several demands ---------------------------------------------------------------------------


def test_the_gap_of_several_rates_is_the_sum_of_their_gaps() -> None:
    logits, y = paired(20, members=3, groups=3)
    both = Tradeoff(find_criterion("equalized_odds"))
    parts = [Tradeoff(criterion_of(rate)) for rate in (TRUE_POSITIVE, FALSE_POSITIVE)]
    found, alone = both.disparity(logits, y), [part.disparity(logits, y) for part in parts]
    torch.testing.assert_close(found.value, alone[0].value + alone[1].value)
    torch.testing.assert_close(found.gradient, alone[0].gradient + alone[1].gradient)
    codes = np.repeat(np.arange(3), 9)
    flat = logits.flatten(1).numpy(), y.flatten().numpy() == 1, codes
    expected = sum(part.on_rows(*flat)[1] for part in parts)
    np.testing.assert_allclose(both.on_rows(*flat)[1], expected, rtol=1e-12)


def test_gaps_are_divided_by_their_scales() -> None:
    logits, y = paired(21, groups=2)
    scaled = find_criterion({"demographic_parity": 0.1, "equal_opportunity": 0.05})
    found = Tradeoff(scaled).disparity(logits, y)
    kinds = criterion_of(SELECTION), criterion_of(TRUE_POSITIVE)
    parts = [Tradeoff(kind).disparity(logits, y) for kind in kinds]
    torch.testing.assert_close(found.value, parts[0].value + 2.0 * parts[1].value)
    torch.testing.assert_close(found.gradient, parts[0].gradient + 2.0 * parts[1].gradient)


def test_opposite_rates_have_the_same_gap() -> None:
    logits, y = paired(22, groups=3)
    one = Tradeoff(find_criterion("false_negative_rate_parity")).disparity(logits, y)
    other = Tradeoff(criterion_of(TRUE_POSITIVE)).disparity(logits, y)
    assert torch.equal(one.value, other.value)
    assert torch.equal(one.gradient, other.gradient)


@pytest.mark.parametrize(
    "name",
    [
        "demographic_parity_ratio",
        "accuracy_parity",
        "predictive_parity",
        "true_positive_rate>=0.5",
        "equalized_odds+false_positive_rate<=0.1",
    ],
)
def test_demands_without_a_smooth_gap_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Tradeoff(find_criterion(name))
    assert caught.value.argument == "criterion"


# ---- both losses of flat rows ------------------------------------------------------------------


@every_rate
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_flat_rows_have_the_losses_of_paired_ones(rate: Rate, groups: int, gamma: float) -> None:
    logits, y = paired(11, members=4, groups=groups)
    objective = Tradeoff(criterion_of(rate), gamma)
    order = np.random.default_rng(0).permutation(groups * 9)
    codes = np.repeat(np.arange(groups), 9)
    loss, gap = objective.on_rows(
        logits.flatten(1).numpy()[:, order], y.flatten().numpy()[order] == 1, codes[order]
    )
    np.testing.assert_allclose(loss, objective.accuracy(logits, y).value, rtol=1e-13)
    np.testing.assert_allclose(gap, objective.disparity(logits, y).value, rtol=1e-12, atol=1e-15)


@every_rate
def test_groups_of_any_size_count_alike(rate: Rate) -> None:
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1, 3], [5, 40, 11])  # group 2 has no rows
    z, positive = rng.standard_normal((2, 56)), rng.random(56) < 0.5
    loss, gap = Tradeoff(criterion_of(rate)).on_rows(z, positive, codes)
    used = np.ones(56, bool) if rate.eligible is None else positive == rate.eligible
    for r in range(2):
        rows = np.logaddexp(0.0, np.where(positive, -z[r], z[r]))
        means = [rows[codes == a].mean() for a in (0, 1, 3)]
        rates = [
            (1 / (1 + np.exp(-10 * z[r, used & (codes == a)]))).mean()
            for a in (0, 1, 3)
            if (used & (codes == a)).any()
        ]
        assert loss[r] == pytest.approx(np.mean(means), rel=1e-12)
        assert gap[r] == pytest.approx(max(rates) - min(rates), rel=1e-12)


@pytest.mark.parametrize("positive", [True, False])
def test_rows_of_which_none_is_eligible_have_no_gap(positive: bool) -> None:
    rate = FALSE_POSITIVE if positive else TRUE_POSITIVE
    z = np.random.default_rng(2).standard_normal((2, 8))
    loss, gap = Tradeoff(criterion_of(rate)).on_rows(z, np.full(8, positive), np.arange(8) % 2)
    assert np.array_equal(gap, [0.0, 0.0])
    assert np.isfinite(loss).all()


def test_the_record_has_the_mean_of_each_runs_members() -> None:
    logits, y = paired(12, members=6)
    objective = Tradeoff(criterion_of(SELECTION))
    found = objective.losses(logits, y, 3)
    for r in range(3):
        alone = objective.losses(logits[2 * r : 2 * r + 2], y)
        assert {name: float(value[r]) for name, value in found.items()} == pytest.approx(
            {name: float(value) for name, value in alone.items()}, rel=1e-13
        )
        both = [plain_gap(logits[m], y, SELECTION) for m in (2 * r, 2 * r + 1)]
        assert float(alone["disparity"]) == pytest.approx(float(sum(both)) / 2, rel=1e-12)


# ---- nets, and their gradients by plain autograd -----------------------------------------------


class Resnet(nn.Module):
    """A user's trunk, with a shortcut, parameters of every number of axes, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 6)
        self.layer1 = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6))
        self.layer2 = nn.Linear(6, 5)
        self.temperature = nn.Parameter(torch.tensor(0.8))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = x + torch.relu(self.layer1(x))
        return torch.relu(self.layer2(x)) * self.temperature


class Frozen(Resnet):
    """Whose first part isn't trained."""

    def __init__(self) -> None:
        super().__init__()
        self.stem.requires_grad_(False)
        self.temperature.requires_grad_(False)


class Summed(nn.Module):
    """Whose parameters' gradients share memory: with each other, and with themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)
        self.one = nn.Parameter(torch.full((5,), 0.1))
        self.two = nn.Parameter(torch.full((5,), 0.2))
        self.level = nn.Parameter(torch.full((4,), 0.05))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x) + (self.one + self.two) + self.level.sum())


class Idle(nn.Module):
    """With a layer that no row goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(2, 2)
        self.used = Resnet()

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def library_net(
    *, members: int = 1, groups: int = 2, shared: bool = False, runs: int = 1, **trunk: Any
) -> DialNet:
    draw = generator(20)
    nets = members * (1 if shared else groups)
    n_in = 3 + (groups if shared else 0)
    return DialNet(
        MLPTrunk(nets, (n_in, 6, 5), draw, **trunk),
        Head(nets, 5, 4, draw),
        members=members,
        groups=groups,
        shared=shared,
        runs=runs,
    ).double()


def module_net(make: Callable[[], nn.Module], *, members: int = 1, groups: int = 2) -> DialNet:
    torch.manual_seed(20)
    nets = members * groups
    return DialNet(
        ModuleStack.copies_of(make, nets),
        Head(nets, 5, 4, generator(20)),
        members=members,
        groups=groups,
    ).double()


NETS: dict[str, Callable[[], DialNet]] = {
    "separate": library_net,
    "shared": lambda: library_net(shared=True),
    "separate members": lambda: library_net(members=3),
    "shared members": lambda: library_net(members=3, shared=True),
    "three groups": lambda: library_net(members=2, groups=3, norm=True),
    "runs": lambda: library_net(members=6, runs=3),
    "module": lambda: module_net(Resnet),
    "module members": lambda: module_net(Resnet, members=3),
    "module of three groups": lambda: module_net(Resnet, members=2, groups=3),
    "frozen module": lambda: module_net(Frozen, members=2),
    "shared memory": lambda: module_net(Summed, members=2),
    "idle": lambda: module_net(Idle, members=2),
}
every_net = pytest.mark.parametrize("kind", NETS)


def batch(seed: int, groups: int = 2, n: int = 16) -> tuple[Tensor, Tensor]:
    """Rows (G, B, 3) and labels (G, B), of which later groups have more positive ones."""
    draw = generator(100 + seed)
    y = (torch.rand(groups, n, generator=draw) < torch.linspace(0.3, 0.7, groups)[:, None]).double()
    y[:, 0], y[:, 1] = 0.0, 1.0
    x = torch.randn(groups, n, 3, generator=draw, dtype=torch.float64) + y[..., None]
    return x + 0.5 * torch.arange(groups)[:, None, None], y


def trained(net: nn.Module) -> list[nn.Parameter]:
    return [p for p in net.parameters() if p.requires_grad]


def slopes(loss: Tensor, net: nn.Module) -> list[Tensor]:
    """Of every trained parameter, by plain autograd."""
    params = trained(net)
    found = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(params, found, strict=True)]


def directions_for(runs: int, seed: int = 0) -> np.ndarray:
    angles = np.random.default_rng(seed).uniform(0.1, 1.4, runs)
    return np.column_stack((np.cos(angles), np.sin(angles)))


def same(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(p, q) for p, q in pairs)


def close(a: nn.Module, b: nn.Module, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    for name, value in a.state_dict().items():
        torch.testing.assert_close(value, b.state_dict()[name], rtol=rtol, atol=atol, msg=name)


# ---- EPO ---------------------------------------------------------------------------------------


def epo_gradients(
    net: DialNet, x: Tensor, y: Tensor, vectors: np.ndarray, rate: Rate, *, restricted: bool
) -> tuple[list[Tensor], np.ndarray]:
    """2 alpha' G of every member by itself, added up; and the alphas (M, 2)."""
    logits = net(x)
    total, weights = [torch.zeros_like(p) for p in trained(net)], []
    for m in range(net.members):
        losses = [plain_loss(logits[m], y), plain_gap(logits[m], y, rate)]
        pair = [slopes(loss, net) for loss in losses]
        rows = torch.stack([torch.cat([g.flatten() for g in one]) for one in pair])  # (2, P)
        alpha = epo_weights(
            np.array([[float(loss.detach()) for loss in losses]]),
            (rows @ rows.T).numpy()[None],
            vectors[m : m + 1],
            restricted=restricted,
        )[0]
        weights.append(alpha)
        for sum_, a, b in zip(total, *pair, strict=True):
            sum_ += 2.0 * (alpha[0] * a + alpha[1] * b)
    return total, np.array(weights)


def epo(net: DialNet, vectors: np.ndarray, rate: Rate = SELECTION, **settings: Any) -> EPOStep:
    return EPOStep(
        net, Tradeoff(criterion_of(rate)), vectors=vectors, **({"rate": 0.01} | settings)
    )


@every_rate
@every_net
def test_epo_descends_each_members_weighted_gradients(kind: str, rate: Rate) -> None:
    net = NETS[kind]()
    vectors = directions_for(net.runs)
    expected, _ = epo_gradients(
        net,
        *batch(0, net.groups),
        np.repeat(vectors, net.members // net.runs, axis=0),
        rate,
        restricted=True,
    )
    epo(net, vectors, rate)(*batch(0, net.groups))
    for p, g in zip(trained(net), expected, strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-9, atol=1e-13)
    assert any(float(g.abs().max()) > 1e-3 for g in expected)


@pytest.mark.parametrize("restricted", [True, False])
@every_net
def test_epo_is_adam_on_those_gradients(kind: str, restricted: bool) -> None:
    net = NETS[kind]()
    twin, vectors = copy.deepcopy(net), directions_for(net.runs, seed=1)
    every = np.repeat(vectors, net.members // net.runs, axis=0)
    step = epo(net, vectors, weight_decay=0.1, restricted=restricted)
    head = set(twin.head.parameters())
    others = [p for p in trained(twin) if p not in head]
    adam = torch.optim.Adam(
        [{"params": others}, {"params": [*head], "weight_decay": 0.1}], lr=0.01, foreach=False
    )
    for k in range(4):
        rows = batch(k, net.groups)
        grads, _ = epo_gradients(twin, *rows, every, SELECTION, restricted=restricted)
        for p, g in zip(trained(twin), grads, strict=True):
            p.grad = g
        before = twin(rows[0]).detach()
        adam.step()
        torch.testing.assert_close(step(*rows), before, rtol=1e-8, atol=1e-10)
        close(net, twin, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("restricted", [True, False])
def test_epo_mixes_both_gradients_where_the_losses_have_their_proportion(restricted: bool) -> None:
    inside = 0
    for k in range(12):
        net = library_net(members=6, runs=6)
        x, y = batch(k)
        logits = net(x).detach()
        losses = np.array([[plain_loss(z, y), plain_gap(z, y, SELECTION)] for z in logits])
        vectors = losses[:, ::-1] / np.linalg.norm(losses, axis=1, keepdims=True)
        vectors[::2] *= 1.005, 0.995  # almost
        expected, alpha = epo_gradients(net, x, y, vectors, SELECTION, restricted=restricted)
        epo(net, vectors, restricted=restricted)(x, y)
        for p, g in zip(trained(net), expected, strict=True):
            torch.testing.assert_close(p.grad, g, rtol=1e-8, atol=1e-12)
        inside += int(((alpha[:, 0] > 0.01) & (alpha[:, 0] < 0.99)).sum())
    assert inside > 10  # else a wrong Gram matrix would go unnoticed


@every_net
def test_the_gram_matrix_is_that_of_each_members_own_gradients(kind: str) -> None:
    net = NETS[kind]()
    step, draw = epo(net, directions_for(net.runs)), generator(3)
    pair = [
        [torch.randn(p.shape, generator=draw, dtype=torch.float64) for p in trained(net)]
        for _ in range(2)
    ]
    names = [name for name, p in net.named_parameters() if p.requires_grad]
    expected = np.zeros((net.members, 2, 2))
    for m in range(net.members):
        own = range(m * net.copies, (m + 1) * net.copies)  # the member's nets
        flat = []
        for side in pair:
            pieces = []
            for name, g in zip(names, side, strict=True):
                parts = name.split(".")
                if parts[1] != "nets":
                    pieces.append(g[own.start : own.stop].flatten())
                elif int(parts[2]) in own:
                    pieces.append(g.flatten())
            flat.append(torch.cat(pieces))
        for i in range(2):
            for j in range(2):
                expected[m, i, j] = float(flat[i] @ flat[j])
    np.testing.assert_allclose(step._gram(*pair), expected, rtol=1e-12)


def test_epos_members_do_not_see_each_other() -> None:
    vectors = directions_for(3)
    together = library_net(members=3, runs=3)
    alone = [copy.deepcopy(together) for _ in range(3)]
    step = epo(together, vectors)
    for r, net in enumerate(alone):
        net.keep([r])
        one = epo(net, vectors[[r]])
        for k in range(3):
            one(*batch(k))
    for k in range(3):
        step(*batch(k))
    for r, net in enumerate(alone):
        for p, q in zip(together.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(p[2 * r : 2 * r + 2], q, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("kind", ["epo", "fairbinn"])
def test_frozen_weights_stay_and_have_no_gradient(kind: str) -> None:
    net = module_net(Frozen, members=2)
    step = (
        epo(net, directions_for(1))
        if kind == "epo"
        else fairbinn(net, fairness=fairness_names(net, "layer1"))
    )
    before = copy.deepcopy(net)
    step(*batch(0))
    for (name, p), q in zip(net.named_parameters(), before.parameters(), strict=True):
        moved = not torch.equal(p, q)
        assert moved == (".stem." not in name and ".temperature" not in name), name
        assert (p.grad is not None) == moved


def test_epo_accepts_a_batch_without_a_gap() -> None:
    net = library_net()
    x, y = batch(0)
    step = epo(net, directions_for(1), TRUE_POSITIVE)
    step(x, torch.zeros_like(y))  # no positive rows: no gap, no gradient of it
    step.check()
    assert all(bool(torch.isfinite(p.grad).all()) for p in net.parameters())


# ---- FairBiNN ----------------------------------------------------------------------------------


def fairbinn(net: DialNet, *, etas: Any = None, **settings: Any) -> FairBiNNStep:
    chosen = {"rate": 0.01, "fair_rate": 0.02, "fairness": fairness_names(net)} | settings
    etas = np.linspace(0.5, 2.0, net.runs) if etas is None else etas
    return FairBiNNStep(net, Tradeoff(criterion_of(SELECTION)), etas=etas, **chosen)


@every_net
def test_every_trained_parameter_is_in_exactly_one_part(kind: str) -> None:
    net = NETS[kind]()
    step = fairbinn(net)
    parts = [id(p) for p in step.fair] + [id(p) for p in step.rest]
    assert sorted(parts) == sorted(id(p) for p in trained(net))
    assert len(set(parts)) == len(parts)
    assert step.fair
    assert step.rest
    for name, part in (("fairness", step.fair), ("accuracy", step.rest)):
        groups = step.optimizers[name].param_groups
        assert sorted(id(p) for g in groups for p in g["params"]) == sorted(id(p) for p in part)


def test_names_other_than_trained_parameters_are_refused() -> None:
    net = library_net()
    with pytest.raises(AssertionError):
        fairbinn(net, fairness=["trunk.layers.9.weight"])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("accumulate", [True, False])
@every_net
def test_each_step_leaves_the_other_part_alone(kind: str, accumulate: bool, optimizer: str) -> None:
    for still, moves in (("rate", "fair"), ("fair_rate", "rest")):
        net = NETS[kind]()
        settings = {"fair_optimizer": optimizer, "accumulate": accumulate}
        step = fairbinn(net, **settings, **{still: 0.0})
        before = {id(p): p.detach().clone() for p in net.parameters()}
        for k in range(3):
            step(*batch(k, net.groups))
        moved = {id(p) for p in net.parameters() if not torch.equal(p, before[id(p)])}
        mine = {id(p) for p in getattr(step, moves)}
        assert moved <= mine
        assert moved


def fairbinn_by_hand(
    net: DialNet, etas: Tensor, names: list[str], *, accumulate: bool, optimizer: str
) -> Callable[[Tensor, Tensor], None]:
    """As the text has it, with plain autograd: zero, the gap, its step; (zero,) loss, its step."""
    fair = [p for name, p in net.named_parameters() if name in names]
    rest = [p for name, p in net.named_parameters() if name not in names and p.requires_grad]
    kinds = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    lower = kinds[optimizer](fair, lr=0.02, foreach=False)
    upper = torch.optim.Adam(rest, lr=0.01, foreach=False)

    def step(x: Tensor, y: Tensor) -> None:
        net.zero_grad()
        z = net(x)
        sum(eta * plain_gap(z[m], y, SELECTION) for m, eta in enumerate(etas)).backward()
        lower.step()
        if not accumulate:
            net.zero_grad()
        z = net(x)
        sum(plain_loss(z[m], y) for m in range(net.members)).backward()
        upper.step()

    return step


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("accumulate", [True, False])
@every_net
def test_fairbinn_is_two_plain_steps_in_order(kind: str, accumulate: bool, optimizer: str) -> None:
    net = NETS[kind]()
    twin, names = copy.deepcopy(net), fairness_names(net)
    etas = np.geomspace(0.3, 30.0, net.runs)
    step = fairbinn(net, etas=etas, fairness=names, accumulate=accumulate, fair_optimizer=optimizer)
    each = torch.as_tensor(np.repeat(etas, net.members // net.runs))
    by_hand = fairbinn_by_hand(twin, each, names, accumulate=accumulate, optimizer=optimizer)
    for k in range(4):
        rows = batch(k, net.groups)
        before = twin(rows[0]).detach()
        torch.testing.assert_close(step(*rows), before, rtol=1e-7, atol=1e-9)
        by_hand(*rows)
        close(net, twin, rtol=1e-7, atol=1e-9)


def test_the_accuracy_gradient_is_taken_where_the_fairness_step_ends() -> None:
    net = library_net()
    start = copy.deepcopy(net)
    step = fairbinn(net, fair_rate=0.5, fair_optimizer="sgd", rate=0.0, accumulate=False)
    x, y = batch(0)
    step(x, y)
    found = {name: p.grad for name, p in net.named_parameters()}
    fair = set(fairness_names(net))
    for where, agrees in ((net, True), (start, False)):  # rate=0: net is where the step ended
        grads = slopes(plain_loss(where(x)[0], y), where)
        wanted = dict(zip(dict(where.named_parameters()), grads, strict=True))
        alike = [torch.allclose(found[n], wanted[n], rtol=1e-9) for n in wanted if n not in fair]
        assert all(alike) if agrees else not any(alike)


@pytest.mark.parametrize("eta", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("kind", ["separate", "module", "shared memory"])
def test_accumulating_adds_eta_times_the_gaps_gradient_before_the_step(
    kind: str, eta: float
) -> None:
    grads, start = [], NETS[kind]()
    for accumulate in (True, False):
        net = copy.deepcopy(start)
        step = fairbinn(net, etas=np.array([eta]), accumulate=accumulate)
        step(*batch(0))
        grads.append([p.grad for p in step.rest])
    x, y = batch(0)
    logits = start(x)
    pull = sum(plain_gap(logits[m], y, SELECTION) for m in range(start.members))
    gap = dict(zip((n for n, _ in start.named_parameters()), slopes(pull, start), strict=True))
    names = [n for n in gap if n not in fairness_names(start)]
    for one, two, name in zip(*grads, names, strict=True):
        torch.testing.assert_close(one - two, eta * gap[name], rtol=1e-7, atol=1e-12 * (1 + eta))


def weights_at(eta: float, *, steps: int = 30, **settings: Any) -> Tensor:
    net = library_net()
    step = fairbinn(net, etas=np.array([eta]), **settings)
    for k in range(steps):
        step(*batch(k, n=64))
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_with_adam_and_separate_parts_eta_has_no_effect() -> None:
    one, two = (weights_at(eta, accumulate=False) for eta in (1.0, 1e4))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
    assert float((one - two).abs().max()) < 1e-4


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate": True},
        {"accumulate": True, "fair_optimizer": "sgd"},
        {"accumulate": False, "fair_optimizer": "sgd"},
    ],
)
def test_in_every_other_case_eta_matters(settings: dict[str, Any]) -> None:
    one, two = (weights_at(eta, **settings) for eta in (0.1, 10.0))
    assert float((one - two).abs().max()) > 0.05


def test_a_larger_eta_ends_with_a_smaller_gap() -> None:
    gaps = []
    for eta in (0.01, 100.0):
        net = library_net()
        step = fairbinn(net, etas=np.array([eta]))
        for k in range(150):
            step(*batch(k, n=64))
        x, y = batch(999, n=512)
        gaps.append(float(plain_gap(net(x)[0].detach(), y, SELECTION)))
    assert gaps[1] < 0.3 * gaps[0]


# ---- some of the runs --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["epo", "fairbinn"])
@pytest.mark.parametrize("kept", [[0], [2], [0, 2], [2, 0]])
def test_kept_runs_continue_unchanged(kind: str, kept: list[int]) -> None:
    def make() -> Any:
        net = library_net(members=6, runs=3)
        return epo(net, directions_for(3)) if kind == "epo" else fairbinn(net)

    whole, some = make(), make()
    for step in (whole, some):
        for k in range(3):
            step(*batch(k))
    some.keep(kept)
    assert some.net.kept == kept
    for k in range(3, 6):
        whole(*batch(k))
        some(*batch(k))
    for p, q in zip(whole.net.parameters(), some.net.parameters(), strict=True):
        apart = p.view(3, 4, *p.shape[1:])[kept].flatten(0, 1)
        torch.testing.assert_close(q, apart, rtol=1e-10, atol=1e-13)


# ---- YOTO --------------------------------------------------------------------------------------


def film_net(members: int = 2, *, shared: bool = False) -> DialNet:
    net, draw = library_net(members=members, shared=shared), generator(21)
    net.film = Film(members * net.copies, [6, 5, 4], draw, hidden=3, identity=False).double()
    return net


def yoto(net: DialNet, **settings: Any) -> YOTOStep:
    chosen: dict[str, Any] = {"bounds": (1e-3, 10.0), "condition": float, "rate": 0.01, "seed": 0}
    return YOTOStep(net, Tradeoff(criterion_of(SELECTION)), **(chosen | settings))


def test_drawn_weights_are_log_uniform_within_their_bounds() -> None:
    step = yoto(film_net(4), bounds=(1e-6, 10.0), seed=3)
    drawn = np.array([step.draw() for _ in range(1500)])  # (n, M)
    assert drawn.shape == (1500, 4)
    assert drawn.min() >= 1e-6
    assert drawn.max() <= 10.0
    share = (np.log10(drawn) + 6.0) / 7.0
    assert kstest(share.ravel(), "uniform").pvalue > 0.01
    for one, two in ((share[:, 0], share[:, 1]), (share[:-1, 0], share[1:, 0])):
        assert spearmanr(one, two).pvalue > 0.01  # members and batches: nothing to do with another
    assert len(np.unique(drawn)) == drawn.size


def test_the_same_seed_draws_the_same_and_another_another() -> None:
    one, two, other = (yoto(film_net(), seed=seed) for seed in (0, 0, 1))
    torch.manual_seed(0)
    first = [one.draw() for _ in range(5)]
    torch.manual_seed(1)
    assert [two.draw() for _ in range(5)] == first
    assert other.draw() != first[0]


def test_draws_resume() -> None:
    step = yoto(film_net())
    step(*batch(0))
    state = {name: value.clone() for name, value in step.state().items()}
    expected = [step.draw() for _ in range(4)]
    again = yoto(film_net(), seed=77)
    again.restore(state)
    assert [again.draw() for _ in range(4)] == expected


@pytest.mark.parametrize("shared", [False, True])
def test_yoto_descends_the_weighted_losses_at_their_conditions(shared: bool) -> None:
    net = film_net(3, shared=shared)
    twin = copy.deepcopy(net)
    step = yoto(net, condition=np.log10, weight_decay=0.1)
    drawn = yoto(twin)  # for its draws alone
    head = set(twin.head.parameters())
    others = [p for p in twin.parameters() if p not in head]
    adam = torch.optim.Adam(
        [{"params": others}, {"params": [*head], "weight_decay": 0.1}], lr=0.01, foreach=False
    )
    for k in range(4):
        x, y = batch(k)
        weights = torch.tensor(drawn.draw(), dtype=torch.float64)
        twin.zero_grad()
        z = twin(x, torch.log10(weights))
        sum(
            plain_loss(z[m], y) + weights[m] * plain_gap(z[m], y, SELECTION) for m in range(3)
        ).backward()
        adam.step()
        torch.testing.assert_close(step(x, y), z.detach(), rtol=1e-7, atol=1e-9)
        for p, q in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-7, atol=1e-9)
        close(net, twin, rtol=1e-6, atol=1e-8)
