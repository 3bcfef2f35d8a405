"""A net with fresh weights, from a Network's settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypedDict

import torch
from torch import Tensor, nn

from fairdial.errors import InvalidInputError
from fairdial.nn.nets import DialNet, Film, Head, MLPTrunk, ModuleStack
from fairdial.nn.network import Network

DROPOUT = 0.5  # of embeddings, where it is "auto"


class FilmSettings(TypedDict, total=False):
    """Width, depth and start of the hyper-networks that modulate a net."""

    hidden: int
    depth: int
    identity: bool


def build_net(
    network: Network,
    sample: Tensor,
    n_groups: int,
    seed: int,
    *,
    runs: int = 1,
    film: FilmSettings | None = None,
    embeddings: bool = False,
    outputs: int = 1,
) -> DialNet:
    """Return a net with fresh weights, which depend on the settings and the seed only.

    Parameters
    ----------
    network : Network
        Settings.
    sample : (b, ...) Tensor
        Some inputs, for their shape.
    n_groups : int
        Number of groups.
    seed : int
        Seed of the weights.
    runs : int
        Settings that are trained side by side, all from the same weights.
    film : dict, optional
        Arguments of :class:`~fairdial.nn.nets.Film`, if the net is modulated.
    embeddings : bool
        Whether the inputs are embeddings, for dropout that is "auto".
    outputs : int
        Logits of a row: 1, or the number of classes if there are more than two.
    """
    generator = torch.Generator().manual_seed(seed)
    members = network.members
    nets = members * (1 if network.is_shared else n_groups)
    trunk: nn.Module
    if network.trunk is not None:
        trunk = ModuleStack.copies_of(network.trunk, nets, network.precision == "bfloat16")
        with _refuse_single_points(trunk):
            width = _output_width(trunk.nets[0], sample)
    else:
        marks, seen = n_groups if network.is_shared else 0, network.group_input
        early, late = (marks if seen == place else 0 for place in ("trunk", "head"))
        dropout = network.dropout
        if isinstance(dropout, str):
            dropout = DROPOUT if embeddings else 0.0
        trunk = MLPTrunk(
            nets,
            (sample.shape[-1] + early, *network.hidden),
            generator,
            norm=network.norm,
            dropout=dropout,
            bare=network.bare,
            marks=marks - early,
            late=late > 0,
        )
        width = network.hidden[-1] + late
    head = Head(nets, width, network.head, generator, outputs)
    widths = [*getattr(trunk, "active_widths", []), *head.active_widths]
    if film is not None and not widths:
        raise InvalidInputError("network", "have a hidden layer in its head", given="`head=0`")
    net = DialNet(
        trunk,
        head,
        members=members,
        groups=n_groups,
        shared=network.is_shared,
        film=None if film is None else Film(nets, widths, generator, **film),
    )
    if runs > 1:
        copies = {name: p.repeat(runs, *[1] * (p.ndim - 1)) for name, p in net.named_parameters()}
        net.put(copies, runs)
    return net


@contextlib.contextmanager
def _refuse_single_points(trunk: ModuleStack) -> Iterator[None]:
    """Raise where bfloat16 gives wrong results: strided convolutions of single-point maps.

    On CPUs, torch fills the gradients of their weights with uninitialized memory.
    """

    def look(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, nn.Conv2d)
        wide, strided = max(layer.kernel_size) > 1, max(layer.stride) > 1
        if wide and strided and min(inputs[0].shape[-2:]) == 1:
            raise InvalidInputError(
                "precision",
                "be 'float32' for pictures so small that a strided convolution sees one point",
                given=f"'bfloat16' with {layer}",
            )

    layers = [part for part in trunk.nets[0].modules() if isinstance(part, nn.Conv2d)]
    hooks = [layer.register_forward_pre_hook(look) for layer in layers if trunk.reduced]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def _output_width(module: nn.Module, sample: Tensor) -> int:
    mode = module.training
    features: Tensor = module.eval().to(sample.device)(sample)
    module.train(mode)
    if features.shape[:1] != sample.shape[:1]:
        raise InvalidInputError(
            "trunk",
            "return one row of features for each row",
            given=f"shape {tuple(features.shape)} for {len(sample)} rows",
        )
    return int(features.flatten(1).shape[1])
