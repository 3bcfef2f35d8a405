from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairdial import InvalidInputError, Network
from fairdial.nn.build import build_net
from fairdial.nn.nets import DialNet, Head, ModuleStack
from fairdial.nn.partition import fairness_names


def net_of(hidden: tuple[int, ...] = (64, 32), **settings: Any) -> DialNet:
    network = Network(**({"hidden": hidden, "members": 1} | settings))
    return build_net(network, torch.zeros(2, 7), 2, seed=0)


class Resnet(nn.Module):
    """Children as a residual net has them, one of them deep."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(7, 4)
        self.layer1 = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.layer2 = nn.Linear(4, 4)
        self.layer3 = nn.Linear(4, 4)
        self.layer4 = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        self.layer40 = nn.Linear(4, 4)  # a name that begins with another's
        self.pool = nn.Flatten()

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4, self.layer40):
            x = x + torch.relu(layer(x))
        return self.pool(x)


def own_net(module: nn.Module | None = None, *, members: int = 1) -> DialNet:
    draw, nets = torch.Generator().manual_seed(0), 2 * members
    stack = ModuleStack.copies_of(Resnet() if module is None else module, nets)
    return DialNet(stack, Head(nets, 4, 3, draw), members=members, groups=2)


def places(names: list[str]) -> set[tuple[str, int]]:
    """(part, layer) of names of the library's trunk."""
    found = [re.fullmatch(r"trunk\.(layers|norms)\.(\d+)\.(weight|bias)", n) for n in names]
    assert all(found), names
    return {(match[1], int(match[2])) for match in found if match}


def children(names: list[str]) -> set[tuple[int, str]]:
    """(net, child) of names of a user's trunk."""
    return {(int(n.split(".")[2]), n.split(".")[3]) for n in names}


# ---- the library's layers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        ((101,) * 5, {("layers", 3), ("layers", 4), ("norms", 3)}),  # Adult: L4, L5 and L4's norm
        ((16,) * 3, {("layers", 1), ("layers", 2), ("norms", 1)}),  # COMPAS: L2, L3 and L2's norm
        ((64, 32), {("layers", 1)}),  # the last has no norm
        ((64,), {("layers", 0)}),
    ],
)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("bare", [True, False])
def test_the_papers_partitions_are_the_default(
    hidden: tuple[int, ...], expected: set[tuple[str, int]], shared: bool, bare: bool
) -> None:
    net = net_of(hidden, norm=True, shared=shared, bare=bare)
    assert places(fairness_names(net)) == expected
    plain = net_of(hidden, shared=shared, bare=bare)
    assert places(fairness_names(plain)) == {p for p in expected if p[0] == "layers"}


@pytest.mark.parametrize("count", [1, 2, 3, 4, np.int64(2)])
def test_a_number_takes_so_many_of_the_last_layers(count: int) -> None:
    net = net_of((6, 5, 4, 3), norm=True)
    found = places(fairness_names(net, count))
    assert {i for part, i in found if part == "layers"} == set(range(4 - count, 4))
    assert {i for part, i in found if part == "norms"} == set(range(4 - count, 3))


@pytest.mark.parametrize("choice", [None, 1, 2])
@pytest.mark.parametrize("members", [1, 3])
def test_weights_and_biases_go_together_and_the_head_stays(choice: Any, members: int) -> None:
    net = net_of((6, 5), norm=True, members=members)
    found = fairness_names(net, choice)
    assert len(found) == len(set(found))
    assert set(found) <= set(dict(net.named_parameters()))
    assert {n.removesuffix("weight") for n in found if n.endswith("weight")} == {
        n.removesuffix("bias") for n in found if n.endswith("bias")
    }
    assert not any(n.startswith("head.") for n in found)


def test_more_than_ten_layers_are_told_apart() -> None:
    net = net_of((3,) * 12)
    assert places(fairness_names(net)) == {("layers", 10), ("layers", 11)}
    assert ("layers", 1) not in places(fairness_names(net, 3))


@pytest.mark.parametrize("choice", [0, -1, 3, 1.0, "1", "layers", [1], (), np.nan])
def test_invalid_numbers_of_layers_are_refused(choice: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"`fairness` .*1 to 2, got"):
        fairness_names(net_of((6, 5)), choice)


# ---- a user's trunk ----------------------------------------------------------------------


def test_the_last_part_with_parameters_is_the_default() -> None:
    assert children(fairness_names(own_net())) == {(0, "layer40"), (1, "layer40")}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("layer4", {"layer4"}),
        (["layer4"], {"layer4"}),
        (("layer1", "layer3"), {"layer1", "layer3"}),
        (["layer4", "layer4"], {"layer4"}),
        (["stem", "layer1", "layer2", "layer3", "layer4", "layer40"], None),
    ],
)
@pytest.mark.parametrize("members", [1, 2])
def test_parts_are_chosen_by_name_in_every_net(
    choice: Any, expected: set[str] | None, members: int
) -> None:
    net = own_net(members=members)
    found = fairness_names(net, choice)
    expected = expected or {f"layer{i}" for i in (1, 2, 3, 4, 40)} | {"stem"}
    assert children(found) == {(i, name) for i in range(2 * members) for name in expected}
    every = [n for n, _ in net.named_parameters() if n.startswith("trunk.")]
    assert found == [n for n in every if n.split(".")[3] in expected]


def test_a_part_of_a_part_can_be_chosen() -> None:
    found = fairness_names(own_net(), "layer1.2")
    assert found == [f"trunk.nets.{i}.layer1.2.{p}" for i in (0, 1) for p in ("weight", "bias")]


def test_frozen_parameters_are_in_no_part() -> None:
    module = Resnet()
    module.layer40.requires_grad_(False)
    module.layer4[0].bias.requires_grad_(False)
    net = own_net(module)
    assert children(fairness_names(net)) == {(0, "layer4"), (1, "layer4")}  # the last that trains
    assert not any(n.endswith("layer4.0.bias") for n in fairness_names(net))
    with pytest.raises(InvalidInputError, match=r"`fairness`"):
        fairness_names(net, "layer40")


def test_a_frozen_trunk_has_no_fairness_part() -> None:
    module = Resnet().requires_grad_(False)
    for choice in (None, "layer4"):
        with pytest.raises(InvalidInputError, match="`fairness`"):
            fairness_names(own_net(module), choice)


@pytest.mark.parametrize("choice", ["layer5", "layer", "", "pool", [], ["layer4", "layer9"]])
def test_names_of_nothing_that_is_trained_are_refused(choice: Any) -> None:
    with pytest.raises(InvalidInputError, match="`fairness`"):
        fairness_names(own_net(), choice)


@pytest.mark.parametrize("choice", [2, 1.5, True, ["layer4", 3], {"layer4": 1}, object()])
def test_invalid_names_are_refused(choice: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"`fairness`"):
        fairness_names(own_net(), choice)


def test_the_refusal_says_what_could_be_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        fairness_names(own_net(), "fc")
    for part in ("stem", "layer4", "'fc'"):
        assert part in str(caught.value)
    assert "pool" not in str(caught.value)


def test_a_trunk_without_parts_is_the_fairness_part() -> None:
    torch.manual_seed(0)
    trunk = ModuleStack.copies_of(nn.Linear(4, 5), 2)
    net = DialNet(trunk, Head(2, 5, 3, torch.Generator()), members=1, groups=2)
    expected = [name for name, _ in net.named_parameters() if name.startswith("trunk.")]
    assert fairness_names(net) == expected
