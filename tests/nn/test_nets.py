from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fairdial.nn.nets import DialNet, Head, MLPTrunk, ModuleStack


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
def test_layers_stand_where_they_are_said_to(norm: bool, bare: bool) -> None:
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
    stack = ModuleStack.of(module, 4)
    for copied in stack.nets:
        assert copied is not module
        assert torch.equal(copied.weight, module.weight)
    with torch.no_grad():
        stack.nets[0].weight += 1.0
    assert torch.equal(stack.nets[1].weight, module.weight)


def test_module_stacks_call_a_function_for_each_net() -> None:
    stack = ModuleStack.of(lambda: nn.Linear(3, 5), 4)
    assert len({id(net) for net in stack.nets}) == 4
    assert not torch.equal(stack.nets[0].weight, stack.nets[1].weight)


def test_module_stacks_flatten_and_serve_each_net_its_rows() -> None:
    stack = ModuleStack.of(lambda: nn.Conv2d(1, 2, 3), 4)
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
