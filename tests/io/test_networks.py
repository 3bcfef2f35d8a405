"""Networks come back from their weights, and weights of other networks are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from fairdial import ModelFileError
from fairdial.io.networks import nets_from_arrays, nets_to_arrays
from fairdial.nn.nets import DialNet, Film, Head, MLPTrunk, ModuleStack


def make(
    *,
    members: int = 2,
    groups: int = 2,
    shared: bool = False,
    runs: int = 1,
    hidden: int = 3,
    film: bool = False,
    module: bool = False,
    **settings: Any,
) -> DialNet:
    generator = torch.Generator().manual_seed(0)
    nets = members * (1 if shared else groups)
    trunk: nn.Module = MLPTrunk(nets, (5, 4, 6), generator, **settings)
    if module:
        trunk = ModuleStack([nn.Linear(5, 6) for _ in range(nets)])
    head = Head(nets, 6, hidden, generator)
    widths = [*getattr(trunk, "active_widths", []), *head.active_widths]
    modulation = Film(nets, widths, generator, hidden=7, identity=False) if film else None
    return DialNet(
        trunk, head, members=members, groups=groups, shared=shared, runs=runs, film=modulation
    ).eval()


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "shared": {"shared": True, "groups": 3},
    "one": {"members": 1, "groups": 1},
    "runs": {"members": 6, "runs": 3},
    "norm": {"norm": True, "dropout": 0.5},
    "bare": {"bare": True},
    "linear": {"hidden": 0},
    "film": {"film": True},
    "bare film": {"film": True, "bare": True, "hidden": 0},
    "module": {"module": True},
    "modulated module": {"module": True, "film": True},
}


def trunk_of(name: str) -> Any:
    return (lambda: nn.Linear(5, 6)) if CASES[name].get("module") else None


@pytest.mark.parametrize("name", CASES)
def test_a_net_comes_back(name: str) -> None:
    net = make(**CASES[name])
    (found,) = nets_from_arrays(*nets_to_arrays([net]), "file", trunk_of(name))
    assert (found.members, found.groups, found.shared) == (net.members, net.groups, net.shared)
    assert found.kept == net.kept
    assert not found.training
    for (one, a), (other, b) in zip(
        found.state_dict().items(), net.state_dict().items(), strict=True
    ):
        assert one == other
        assert torch.equal(a, b)
        assert a.dtype == b.dtype
    assert all(p.requires_grad for p in found.parameters())
    width = 5 - net.groups if net.shared else 5
    x = torch.randn(7, width, generator=torch.Generator().manual_seed(1))
    condition = 0.3 if net.film is not None else None
    for group in range(net.groups):
        for run in (None, *range(net.runs)):
            expected = net.of_group(x, group, run, condition)
            assert torch.equal(found.of_group(x, group, run, condition), expected)
    assert repr(found) == repr(net)


def test_dropout_comes_back() -> None:
    (found,) = nets_from_arrays(*nets_to_arrays([make(dropout=0.5)]), "file")
    assert found.trunk.dropout == 0.5


def test_several_nets_come_back_in_order() -> None:
    nets = [make(members=m) for m in range(1, 13)]
    found = nets_from_arrays(*nets_to_arrays(nets), "file")
    assert [net.members for net in found] == list(range(1, 13))


def test_loaded_weights_are_copies() -> None:
    layout, body = nets_to_arrays([make()])
    before = bytes(body)
    (found,) = nets_from_arrays(layout, body, "file")
    with torch.no_grad():
        for p in found.parameters():
            p.add_(1.0)
    assert body == before


# ---- faults ------------------------------------------------------------------------------------


def refused(layout: Any, weights: dict[str, torch.Tensor], trunk: Any = None) -> None:
    with pytest.raises(ModelFileError, match="`some file`"):
        nets_from_arrays(layout, save(weights), "some file", trunk)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["trunk.layers.1.bias", "head.layers.0.weight", "film.out.0.bias"])
def test_weights_that_are_no_numbers_are_refused(name: str, value: float) -> None:
    layout, body = nets_to_arrays([make(film=True)])
    weights = dict(load(body))
    weights[f"0/{name}"].view(-1)[-1] = value
    refused(layout, weights)


def test_a_module_may_hold_infinities_but_no_nan() -> None:
    net = make(module=True)
    net.trunk.nets[0].bias.data[0] = float("-inf")  # type: ignore[index,union-attr,operator]
    layout, body = nets_to_arrays([net])
    (found,) = nets_from_arrays(layout, body, "file", lambda: nn.Linear(5, 6))
    assert torch.equal(found.trunk.nets[0].bias, net.trunk.nets[0].bias)  # type: ignore
    weights = dict(load(body))
    weights["0/trunk.nets.0.bias"][0] = float("nan")
    refused(layout, weights, lambda: nn.Linear(5, 6))


@pytest.mark.parametrize(
    "edit",
    [
        lambda w: w.pop("0/trunk.layers.0.weight"),
        lambda w: w.pop("0/trunk.layers.1.bias"),
        lambda w: w.pop("0/head.layers.0.weight"),
        lambda w: w.update({"0/more": torch.zeros(2)}),
        lambda w: w.update({"1/more": torch.zeros(2)}),
        lambda w: w.update({"more": torch.zeros(2)}),
        lambda w: w.update({"-1/more": torch.zeros(2)}),
        lambda w: w.update({"0/trunk.layers.0.weight": torch.zeros(4, 5)}),
        lambda w: w.update({"0/trunk.layers.0.weight": torch.zeros(4, 5, 9)}),
        lambda w: w.update({"0/trunk.layers.0.weight": torch.zeros(3, 5, 4)}),
        lambda w: w.update({"0/trunk.layers.0.weight": torch.zeros(4, 5, 4).double()}),
        lambda w: w.update({"0/trunk.layers.0.weight": torch.zeros(4, 5, 4).int()}),
        lambda w: w.update({"0/head.layers.0.weight": torch.zeros(4, 5, 3)}),
        lambda w: w.update({"0/head.layers.1.bias": torch.zeros(4, 1, 2)}),
        lambda w: w.update({"0/head.layers.2.weight": torch.zeros(4, 1, 1)}),
        lambda w: w.clear(),
    ],
)
def test_weights_of_other_nets_are_refused(edit: Any) -> None:
    layout, body = nets_to_arrays([make()])
    weights = dict(load(body))
    edit(weights)
    refused(layout, weights)


@pytest.mark.parametrize(
    "changed",
    [
        {"members": 3},
        {"members": 0},
        {"members": 10**12},
        {"members": True},
        {"members": "2"},
        {"groups": 3},
        {"groups": 1},
        {"runs": 3},
        {"runs": 0},
        {"shared": True},
        {"shared": 0},
        {"film": True},
        {"film": None},
        {"trunk": {}},
        {"trunk": None},
        {"trunk": {"kind": "layers", "norm": True, "dropout": 0.0, "bare": False}},
        {"trunk": {"kind": "layers", "norm": False, "dropout": "x", "bare": False}},
    ],
)
def test_descriptions_of_other_nets_are_refused(changed: dict[str, Any]) -> None:
    (layout,), body = nets_to_arrays([make()])
    refused([layout | changed], dict(load(body)))


def test_other_numbers_of_nets_are_refused() -> None:
    layout, body = nets_to_arrays([make(), make()])
    for other in (layout[:1], layout * 2, []):
        refused(other, dict(load(body)))


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff" * 64, b"cos\nabort\n(tR."])
def test_invalid_safetensors_are_refused(body: bytes) -> None:
    layout, _ = nets_to_arrays([make()])
    with pytest.raises(ModelFileError, match="`some file`"):
        nets_from_arrays(layout, body, "some file")
