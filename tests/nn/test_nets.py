from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fairdial import InvalidInputError, Network
from fairdial.nn.build import build_net
from fairdial.nn.nets import DialNet, Film, Head, MLPTrunk, ModuleStack, take_runs


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def net_of(
    *, members: int = 2, groups: int = 2, hidden: int = 4, shared: bool = False, **trunk: object
) -> DialNet:
    draw = generator()
    nets = members * (1 if shared else groups)
    n_in = 3 + (groups if shared else 0)
    return DialNet(
        MLPTrunk(nets, (n_in, 6, 5), draw, **trunk),
        Head(nets, 5, hidden, draw),
        members=members,
        groups=groups,
        shared=shared,
    ).double()


def rows(groups: int = 2, n: int = 7) -> Tensor:
    return torch.randn(groups, n, 3, generator=generator(1), dtype=torch.float64)


def unpacked(net: DialNet, s: int, *, norm: bool = False, bare: bool = False) -> nn.Sequential:
    """Net s of a stack, built from torch's own layers with the same weights."""
    layers: list[nn.Module] = []

    def linear(packed: nn.Module) -> nn.Linear:
        n_in, n_out = packed.weight.shape[1:]
        own = nn.Linear(n_in, n_out, dtype=torch.float64)
        with torch.no_grad():
            own.weight.copy_(packed.weight[s].T)
            own.bias.copy_(packed.bias[s, 0])
        return own

    last = len(net.trunk.layers) - 1
    for i, layer in enumerate(net.trunk.layers):
        layers.append(linear(layer))
        if not (bare and i == last):
            layers.append(nn.ReLU())
        if norm and i < last:
            own = nn.LayerNorm(layer.weight.shape[-1], dtype=torch.float64)
            with torch.no_grad():
                own.weight.copy_(net.trunk.norms[i].weight[s, 0])
                own.bias.copy_(net.trunk.norms[i].bias[s, 0])
            layers.append(own)
    for i, layer in enumerate(net.head.layers):
        layers += [nn.ReLU()] * (i > 0) + [linear(layer)]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("hidden", [0, 4])
def test_packed_nets_are_nets_built_apart(members: int, groups: int, hidden: int) -> None:
    net = net_of(members=members, groups=groups, hidden=hidden)
    x = rows(groups)
    logits = net(x)
    assert logits.shape == (members, groups, 7)
    for m in range(members):
        for a in range(groups):
            alone = unpacked(net, m * groups + a)(x[a]).squeeze(-1)
            torch.testing.assert_close(logits[m, a], alone, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("bare", [False, True])
def test_layers_are_in_the_documented_order(norm: bool, bare: bool) -> None:
    net = net_of(norm=norm, bare=bare)
    if norm:
        with torch.no_grad():
            net.trunk.norms[0].weight.uniform_(0.5, 2.0, generator=generator(3))
            net.trunk.norms[0].bias.uniform_(-1.0, 1.0, generator=generator(4))
    x = rows()
    for s in range(4):
        alone = unpacked(net, s, norm=norm, bare=bare)(x[s % 2]).squeeze(-1)
        torch.testing.assert_close(net(x)[s // 2, s % 2], alone, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("members", [1, 3])
def test_a_groups_rows_alone_are_those_of_the_pair(shared: bool, members: int) -> None:
    net = net_of(members=members, groups=3, shared=shared)
    x = rows(3)
    for a in range(3):
        torch.testing.assert_close(net.of_group(x[a], a), net(x)[:, a], rtol=1e-12, atol=1e-14)


def test_a_shared_trunk_sees_the_group() -> None:
    net = net_of(shared=True)
    x = rows()[:1].expand(2, -1, -1)
    logits = net(x)
    assert not torch.allclose(logits[:, 0], logits[:, 1])
    with torch.no_grad():
        net.trunk.layers[0].weight[:, 3:] = 0.0  # blind to the mark
    blind = net(x)
    torch.testing.assert_close(blind[:, 0], blind[:, 1])


@pytest.mark.parametrize("shared", [False, True])
def test_pairs_and_flat_undo_each_other(shared: bool) -> None:
    net = net_of(members=3, shared=shared)
    paired = torch.arange(3 * 2 * 7).view(3, 2, 7)
    flat = net.flat(paired)
    assert flat.shape == ((3, 14) if shared else (6, 7))
    assert torch.equal(net.pairs(flat), paired)


def test_members_do_not_see_each_other() -> None:
    net = net_of(members=2)
    logits = net(rows())
    with torch.no_grad():
        for p in net.parameters():
            p[2:] += 1.0  # the second member's nets
    after = net(rows())
    assert torch.equal(after[0], logits[0])
    assert not torch.allclose(after[1], logits[1])


def test_module_stacks_copy_a_module_with_its_weights() -> None:
    module = nn.Linear(3, 5)
    stack = ModuleStack.copies_of(module, 4)
    for copied in stack.nets:
        assert copied is not module
        assert torch.equal(copied.weight, module.weight)
    with torch.no_grad():
        stack.nets[0].weight += 1.0
    assert torch.equal(stack.nets[1].weight, module.weight)


def test_module_stacks_call_a_function_for_each_net() -> None:
    stack = ModuleStack.copies_of(lambda: nn.Linear(3, 5), 4)
    assert len({id(net) for net in stack.nets}) == 4
    assert not torch.equal(stack.nets[0].weight, stack.nets[1].weight)


def test_module_stacks_flatten_and_serve_each_net_its_rows() -> None:
    stack = ModuleStack.copies_of(lambda: nn.Conv2d(1, 2, 3), 4)
    x = torch.randn(4, 5, 1, 6, 6, generator=generator())
    features = stack(x)
    assert features.shape == (4, 5, 2 * 4 * 4)
    torch.testing.assert_close(features[2], stack.nets[2](x[2]).flatten(1))
    torch.testing.assert_close(stack(x[1::2], slice(1, None, 2)), features[1::2])


def test_dropout_happens_in_training_only() -> None:
    net = net_of(dropout=0.5)
    x = rows()
    torch.manual_seed(0)
    net.train()
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))
    plain = net_of()
    plain.load_state_dict(net.state_dict())
    assert torch.equal(net(x), plain(x))


def test_the_same_generator_draws_the_same_net() -> None:
    one, two = net_of(), net_of()
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))


def test_initial_weights_are_those_of_torchs_linear_layer() -> None:
    draw = generator()
    weights = MLPTrunk(50, (16, 30), draw).layers[0].weight
    bound = 16**-0.5
    assert float(weights.detach().abs().max()) <= bound
    assert float(weights.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.02)


@pytest.mark.parametrize("hidden", [0, 4])
def test_the_tangent_is_that_of_central_differences(hidden: int) -> None:
    net = net_of(hidden=hidden)
    features = torch.randn(4, 9, 5, generator=generator(5), dtype=torch.float64)
    w = [
        torch.randn(p.shape, generator=generator(6), dtype=torch.float64)
        for p in net.head.parameters()
    ]
    found = net.head.tangent(features, w)
    moved = []
    for sign in (1.0, -1.0):
        head = copy.deepcopy(net.head)
        with torch.no_grad():
            for p, d in zip(head.parameters(), w, strict=True):
                p += sign * 1e-6 * d
            moved.append(head(features))
    torch.testing.assert_close(found.logits, net.head(features))
    torch.testing.assert_close(
        found.along.detach(), (moved[0] - moved[1]) / 2e-6, rtol=1e-6, atol=1e-8
    )


# ---- modulation --------------------------------------------------------------------------------

CONDITIONS = [0.0, 1e-6, 0.3, 10.0, -1.0, 1e6]
MODULATED: dict[str, dict[str, Any]] = {
    "shared": {"shared": True},
    "separate": {"shared": False},
    "norms": {"norm": True},
    "bare": {"bare": True},
    "linear head": {"head": 0},
    "one layer": {"hidden": (6,)},
    "one bare layer": {"hidden": (6,), "bare": True},
    "members": {"members": 3, "shared": False},
    "module": {"trunk": nn.Sequential(nn.Linear(3, 5), nn.ReLU())},
    "module members": {"trunk": lambda: nn.Linear(3, 5), "members": 2},
}
every_kind = pytest.mark.parametrize("kind", MODULATED)


def modulated(kind: str, *, film: Any = None, groups: int = 2, seed: int = 0) -> DialNet:
    base: dict[str, Any] = {"hidden": (6, 5), "head": 4, "members": 1}
    torch.manual_seed(0)  # for trunks that draw their own weights
    network = Network(**(base | MODULATED[kind]))
    return build_net(network, torch.zeros(2, 3), groups, seed, film=film).double()


def perturbed(net: DialNet, by: float = 0.3) -> DialNet:
    draw = generator(9)
    with torch.no_grad():
        for p in net.film.parameters():
            p += by * torch.randn(p.shape, generator=draw, dtype=p.dtype)
    return net


def numbers(net: DialNet, *values: float) -> Tensor:
    return torch.tensor(values or [0.7] * net.members, dtype=torch.float64)


@every_kind
@pytest.mark.parametrize("groups", [2, 3])
def test_a_fresh_modulation_changes_nothing_at_any_condition(kind: str, groups: int) -> None:
    plain = modulated(kind, groups=groups)
    net = modulated(kind, groups=groups, film={})
    x = rows(groups)
    for value in CONDITIONS:
        assert torch.equal(net(x, numbers(net, *[value] * net.members)), plain(x))
        for a in range(groups):
            assert torch.equal(net.of_group(x[a], a, condition=value), plain.of_group(x[a], a))


@every_kind
@pytest.mark.parametrize("identity", [True, False])
def test_trunk_and_head_start_alike_with_or_without_modulation(kind: str, identity: bool) -> None:
    plain = dict(modulated(kind).named_parameters())
    film = dict(modulated(kind, film={"identity": identity}).named_parameters())
    assert all(torch.equal(p, film[name]) for name, p in plain.items())
    assert all(name.startswith("film.") for name in film.keys() - plain.keys())
    assert film.keys() - plain.keys()


def test_a_random_start_is_a_modulation_already() -> None:
    plain = modulated("shared")
    net = modulated("shared", film={"identity": False})
    assert not torch.allclose(net(rows(), numbers(net)), plain(rows()))


@every_kind
def test_the_answer_depends_on_the_condition(kind: str) -> None:
    net = perturbed(modulated(kind, film={}))
    x = rows()
    answers = [net(x, numbers(net, *[value] * net.members)) for value in (0.0, 0.3, 2.0)]
    for one, two in ((0, 1), (1, 2), (0, 2)):
        assert not torch.allclose(answers[one], answers[two], rtol=1e-3)


@every_kind
@pytest.mark.parametrize("groups", [2, 3])
def test_modulated_rows_of_a_group_are_those_of_the_pair(kind: str, groups: int) -> None:
    net = perturbed(modulated(kind, groups=groups, film={}))
    x = rows(groups)
    for value in (0.0, 0.4, 3.0):
        whole = net(x, numbers(net, *[value] * net.members))
        for a in range(groups):
            alone = net.of_group(x[a], a, condition=value)
            torch.testing.assert_close(alone, whole[:, a], rtol=1e-12, atol=1e-14)


def test_each_member_has_its_own_condition() -> None:
    net = perturbed(modulated("members", film={}))
    x = rows()
    mixed = net(x, numbers(net, 0.1, 2.0, 0.5))
    for m, value in enumerate((0.1, 2.0, 0.5)):
        alike = net(x, numbers(net, *[value] * 3))
        torch.testing.assert_close(mixed[m], alike[m], rtol=1e-12, atol=1e-14)
        other = net(x, numbers(net, *[value + 1.0] * 3))
        assert not torch.allclose(mixed[m], other[m], rtol=1e-3)


def by_hand(film: Film, layer: int, kind: int, s: int, condition: float) -> Tensor:
    """Net s's scale (kind 0) or shift (1) of a layer, by its own small perceptron."""
    x = torch.tensor([condition], dtype=torch.float64)
    place = (layer * 2 + kind) * film.nets + s
    for hidden in film.hidden:
        x = torch.relu(x @ hidden.weight[place] + hidden.bias[place, 0])
    out = film.out[layer]
    return x @ out.weight[kind * film.nets + s] + out.bias[kind * film.nets + s, 0]


@pytest.mark.parametrize("depth", [1, 3])
def test_every_net_layer_and_kind_has_a_perceptron_of_its_own(depth: int) -> None:
    film = Film(3, [6, 5], generator(), hidden=4, depth=depth, identity=False).double()
    conditions = torch.tensor([0.1, 1.0, -2.0], dtype=torch.float64)
    found = film(conditions)
    assert len(found) == 2
    values = []
    for layer, pair in enumerate(found):
        for kind in (0, 1):
            assert pair[kind].shape == (3, 1, (6, 5)[layer])
            for s in range(3):
                one = by_hand(film, layer, kind, s, float(conditions[s]))
                torch.testing.assert_close(pair[kind][s, 0], one, rtol=1e-12, atol=1e-14)
                values.append(float(one[0].detach()))
    assert len(set(values)) == len(values)


@pytest.mark.parametrize("norm", [False, True])
def test_modulation_stands_between_two_activations_and_before_the_norm(norm: bool) -> None:
    draw = generator()
    net = DialNet(
        MLPTrunk(4, (3, 6, 5), draw, norm=norm),
        Head(4, 5, 4, draw),
        members=2,
        groups=2,
        film=Film(4, [6, 5, 4], draw, hidden=3, identity=False),
    ).double()
    x, conditions = rows(), [0.2, 1.5]
    found = net(x, numbers(net, *conditions))
    for m in range(2):
        for a in range(2):
            s, value = 2 * m + a, x[a]
            for i, layer in enumerate([*net.trunk.layers, net.head.layers[0]]):
                value = torch.relu(value @ layer.weight[s] + layer.bias[s])
                scale, shift = (by_hand(net.film, i, kind, s, conditions[m]) for kind in (0, 1))
                value = torch.relu(scale * value + shift)
                if norm and i == 0:
                    value = functional.layer_norm(value, (6,))
            last = net.head.layers[1]
            logits = (value @ last.weight[s] + last.bias[s]).squeeze(-1)
            torch.testing.assert_close(found[m, a], logits, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", ["module", "module members"])
def test_a_users_trunk_is_modulated_in_the_head_only(kind: str) -> None:
    net = perturbed(modulated(kind, film={}))
    assert [layer.weight.shape[-1] for layer in net.film.out] == [4]
    x = rows()
    for a in (0, 1):
        features = net.features_of(x[a], a)
        assert features.shape == (net.members, 7, 5)
        for value in (0.0, 2.0):
            direct = net.of_group(x[a], a, condition=value)
            by_features = net.of_group(features, a, condition=value, features=True)
            assert torch.equal(by_features, direct)
            wrong = net.of_group(features.flip(1), a, condition=value, features=True)
            torch.testing.assert_close(wrong.flip(1), direct)


def test_a_net_with_nothing_to_modulate_is_refused() -> None:
    network = Network(trunk=nn.Linear(3, 5), head=0)
    with pytest.raises(InvalidInputError, match="`network`"):
        build_net(network, torch.zeros(2, 3), 2, 0, film={})


@every_kind
def test_gradients_reach_every_hyper_network(kind: str) -> None:
    net = perturbed(modulated(kind, film={"hidden": 8}), by=0.1)
    net(rows(n=200), numbers(net)).square().sum().backward()
    for name, p in net.named_parameters():
        assert p.grad is not None, name
        assert bool((p.grad != 0).any()), name
    for layer in net.film.out:  # scale and shift of every net
        assert bool((layer.bias.grad != 0).flatten(1).any(dim=1).all())


@every_kind
def test_an_identity_is_a_start_and_no_dead_end(kind: str) -> None:
    net = modulated(kind, film={})
    net(rows(), numbers(net)).square().sum().backward()
    for layer in net.film.out:
        assert float(layer.weight.grad.abs().max()) > 0
        assert float(layer.bias.grad.abs().max()) > 0
    assert all(float(p.grad.abs().max()) == 0 for p in net.film.hidden.parameters())


def test_modulations_gradients_are_those_of_differences() -> None:
    net = perturbed(modulated("separate", film={"hidden": 3, "depth": 1}))
    x, condition = rows(), numbers(net)
    names = [name for name, _ in net.named_parameters()]

    def logits(*values: Tensor) -> Tensor:
        weights = dict(zip(names, values, strict=True))
        return torch.func.functional_call(net, weights, (x, condition))

    assert torch.autograd.gradcheck(logits, tuple(net.parameters()), eps=1e-7, atol=1e-5)


# ---- runs --------------------------------------------------------------------------------------


def runs_net(runs: int = 3, members: int = 2, *, shared: bool = False, groups: int = 2) -> DialNet:
    """Runs that differ, each with so many members."""
    net = net_of(members=runs * members, groups=groups, shared=shared, norm=True)
    net.kept = list(range(runs))
    return net


@pytest.mark.parametrize("kept", [[0], [1, 2], [2, 0], []])
def test_a_part_of_a_stack_is_that_of_its_runs_in_order(kept: list[int]) -> None:
    stacked = torch.arange(3 * 4 * 5).view(12, 5)
    chunks = stacked.chunk(3)
    expected = torch.cat([chunks[r] for r in kept]) if kept else stacked[:0]
    assert torch.equal(take_runs(stacked, 3, kept), expected)
    assert torch.equal(take_runs(stacked[:, 0].contiguous(), 3, kept), expected[:, 0])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kept", [[0], [1], [2], [0, 2], [1, 2], [2, 0], [0, 1, 2]])
def test_runs_that_are_kept_answer_as_before(shared: bool, kept: list[int]) -> None:
    net = runs_net(shared=shared, groups=3)
    x = rows(3)
    before = net(x).view(3, 2, 3, -1)
    net(x).sum().backward()
    net.keep(kept)
    assert net.kept == kept
    assert (net.runs, net.members) == (len(kept), 2 * len(kept))
    assert torch.equal(net(x).view(len(kept), 2, 3, -1), before[kept])
    assert all(p.grad is None for p in net.parameters())
    for place, run in enumerate(kept):
        alone = net.of_group(x[1], 1, run=place)
        torch.testing.assert_close(alone, before[run, :, 1], rtol=1e-12, atol=1e-14)


def test_keeping_twice_is_keeping_once() -> None:
    once, twice = runs_net(5), runs_net(5)
    twice.keep([0, 2, 3, 4])
    twice.keep([1, 3])  # places in what is left
    once.keep([2, 4])
    assert twice.kept == once.kept == [2, 4]
    assert all(
        torch.equal(p, q) for p, q in zip(once.parameters(), twice.parameters(), strict=True)
    )


@pytest.mark.parametrize("left", [[0], [1, 2], [0, 1, 2]])
def test_putting_all_runs_back_restores_them(left: list[int]) -> None:
    net = runs_net()
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    before = net(rows()).detach()
    net.keep(left)
    net(rows()).sum().backward()
    net.put(weights, 3)
    assert net.kept == [0, 1, 2]
    assert (net.runs, net.members) == (3, 6)
    assert torch.equal(net(rows()), before)
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    assert any(float(value.abs().max()) > 0 for value in weights.values())  # a copy was put


def test_gradients_fit_after_runs_have_left() -> None:
    net, whole = runs_net(), runs_net()
    for one in (net, whole):
        one(rows()).square().sum().backward()
        one.zero_grad()
    net.keep([0, 2])
    for one in (net, whole):
        one(rows()).square().sum().backward()
    for p, q in zip(net.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(p.grad, take_runs(q.grad, 3, [0, 2]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("members", [1, 3])
def test_runs_start_with_the_weights_of_a_net_alone(shared: bool, members: int) -> None:
    network = Network(hidden=(6, 5), head=4, members=members, shared=shared)
    alone, stack = (build_net(network, torch.zeros(2, 3), 2, 0, runs=runs) for runs in (1, 4))
    assert stack.kept == [0, 1, 2, 3]
    assert stack.members == 4 * members
    for p, q in zip(alone.parameters(), stack.parameters(), strict=True):
        assert torch.equal(q, torch.cat([p] * 4))
    x = rows().float()
    assert torch.equal(stack(x), alone(x).repeat(4, 1, 1))
