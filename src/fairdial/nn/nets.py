"""Networks in stacks: the groups' nets and the members of an ensemble run in one batched product.

A :class:`DialNet` is a trunk g and a head z for each net of the stack (paper: one net a group).
Rows come in paired batches, ``(G, B, ...)``: as many of either group. Net ``m * G + a`` of the
stack is member m's net for group a; with a shared trunk, net m serves all groups and sees the group
as an input.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

ALL = slice(None)


class StackedLinear(nn.Module):
    """One linear layer in each net of a stack."""

    def __init__(self, nets: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(n_in)  # torch.nn.Linear's own
        self.weight = nn.Parameter(_uniform((nets, n_in, n_out), bound, generator))
        self.bias = nn.Parameter(_uniform((nets, 1, n_out), bound, generator))

    def forward(self, x: Tensor, nets: slice = ALL) -> Tensor:
        """(S, B, n_in) -> (S, B, n_out)."""
        return torch.baddbmm(self.bias[nets], x, self.weight[nets])


class StackedNorm(nn.Module):
    """One layer normalisation in each net of a stack."""

    def __init__(self, nets: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(nets, 1, width))
        self.bias = nn.Parameter(torch.zeros(nets, 1, width))

    def forward(self, x: Tensor, nets: slice = ALL) -> Tensor:
        """(S, B, width), normalised over the last axis."""
        normal = functional.layer_norm(x, x.shape[-1:])
        return torch.addcmul(self.bias[nets], normal, self.weight[nets])


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


class MLPTrunk(nn.Module):
    """Multi-layer perceptrons: rows to features.

    Parameters
    ----------
    nets : int
        Nets in the stack.
    widths : sequence of int
        Inputs, then the width of each layer.
    generator : torch.Generator
        For the initial weights.
    norm : bool
        Layer normalisation after each hidden activation.
    dropout : float
        Share of the units that are dropped after each hidden layer while training.
    bare : bool
        No activation after the last layer, as the paper's networks have it.
    """

    def __init__(
        self,
        nets: int,
        widths: Sequence[int],
        generator: torch.Generator,
        *,
        norm: bool = False,
        dropout: float = 0.0,
        bare: bool = False,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            StackedLinear(nets, a, b, generator) for a, b in pairwise(widths)
        )
        self.norms = nn.ModuleList(StackedNorm(nets, w) for w in widths[1:-1]) if norm else None
        self.dropout, self.bare = dropout, bare

    def forward(self, x: Tensor, nets: slice = ALL) -> Tensor:
        """(S, B, d) -> (S, B, f)."""
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = layer(x, nets)
            if i == last and self.bare:
                break
            x = torch.relu(x)
            if self.norms is not None and i < last:
                x = self.norms[i](x, nets)
            if self.dropout:
                x = functional.dropout(x, self.dropout, self.training)
        return x


class ModuleStack(nn.Module):
    """A user's modules as the nets of a stack, one call each."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(modules)

    @classmethod
    def of(cls, trunk: nn.Module | Callable[[], nn.Module], nets: int) -> ModuleStack:
        """Copies of a module, with its weights; or as many calls of a function that makes one."""
        if isinstance(trunk, nn.Module):
            return cls([copy.deepcopy(trunk) for _ in range(nets)])
        return cls([trunk() for _ in range(nets)])

    def forward(self, x: Tensor, nets: slice = ALL) -> Tensor:
        """(S, B, ...) -> (S, B, f)."""
        modules = list(self.nets)[nets]
        features = [module(rows) for module, rows in zip(modules, x, strict=True)]
        return torch.stack([f.flatten(1) for f in features])


class Tangent(NamedTuple):
    """Logits, their tangent along w, and what the pull-back needs."""

    logits: Tensor  # (S, B)
    along: Tensor  # (S, B)
    hidden: Tensor | None  # (S, B, h)
    hidden_along: Tensor | None
    active: Tensor | None


class Head(nn.Module):
    """Features to a logit: one hidden layer (or none, ``hidden=0``), in each net of a stack.

    The library knows this head, so that the second-order terms of the bilevel problem are explicit:
    :meth:`tangent` and :meth:`pull` are its forward with a tangent and the transpose of that.
    """

    def __init__(self, nets: int, n_in: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        widths = [n_in, hidden, 1] if hidden else [n_in, 1]
        self.layers = nn.ModuleList(
            StackedLinear(nets, a, b, generator) for a, b in pairwise(widths)
        )

    @property
    def weights(self) -> list[Tensor]:
        """The parameters in order, without the search that ``parameters()`` makes."""
        found: list[Tensor] = []
        for layer in self.layers:
            assert isinstance(layer, StackedLinear)
            found += (layer.weight, layer.bias)
        return found

    def forward(self, features: Tensor, nets: slice = ALL) -> Tensor:
        """(S, B, f) -> (S, B)."""
        x = features
        for i, layer in enumerate(self.layers):
            x = layer(torch.relu(x) if i else x, nets)
        return x.squeeze(-1)

    def tangent(self, features: Tensor, w: Sequence[Tensor]) -> Tangent:
        """Logits and their derivative along ``w`` (shaped like the parameters)."""
        params = self.weights
        if len(params) == 2:
            z = torch.baddbmm(params[1], features, params[0])
            zd = torch.baddbmm(w[1], features, w[0])
            return Tangent(z.squeeze(-1), zd.squeeze(-1), None, None, None)
        w1, b1, w2, b2 = params
        r = torch.baddbmm(b1, features, w1).relu_()
        active = r.sign()
        rd = torch.baddbmm(w[1], features, w[0]).mul_(active)
        z = torch.bmm(r, w2).add_(b2)
        zd = torch.bmm(rd, w2).baddbmm_(r, w[2]).add_(w[3])
        return Tangent(z.squeeze(-1), zd.squeeze(-1), r, rd, active)

    def pull(
        self, features: Tensor, w: Sequence[Tensor], t: Tangent, cz: Tensor, cd: Tensor
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Transpose: cotangents of the logits and of their tangent, to weights, w and features."""
        params = self.weights
        cz, cd = cz.unsqueeze(-1), cd.unsqueeze(-1)  # (S, B, 1)
        rows = features.transpose(1, 2)
        sums = [cz.sum(dim=1, keepdim=True), cd.sum(dim=1, keepdim=True)]
        if t.hidden is None or t.hidden_along is None or t.active is None:
            df = torch.bmm(cz, params[0].transpose(1, 2)).baddbmm_(cd, w[0].transpose(1, 2))
            return [torch.bmm(rows, cz), sums[0]], [torch.bmm(rows, cd), sums[1]], df
        w1, _, w2, _ = params
        back = w2.transpose(1, 2)
        a = torch.addcmul(cz * back, cd, w[2].transpose(1, 2)).mul_(t.active)  # (S, B, h)
        ad = (cd * back).mul_(t.active)
        hidden = t.hidden.transpose(1, 2)
        second = torch.bmm(hidden, cz).baddbmm_(t.hidden_along.transpose(1, 2), cd)
        df = torch.bmm(a, w1.transpose(1, 2)).baddbmm_(ad, w[0].transpose(1, 2))
        by_weights = [torch.bmm(rows, a), a.sum(dim=1, keepdim=True), second, sums[0]]
        by_w = [torch.bmm(rows, ad), ad.sum(dim=1, keepdim=True), torch.bmm(hidden, cd), sums[1]]
        return by_weights, by_w, df

    def transpose(self, features: Tensor, t: Tangent, cz: Tensor) -> list[Tensor]:
        """Cotangent of the logits alone, to the weights: ``J' cz``."""
        cz = cz.unsqueeze(-1)
        rows, total = features.transpose(1, 2), cz.sum(dim=1, keepdim=True)
        if t.hidden is None or t.active is None:
            return [torch.bmm(rows, cz), total]
        a = (cz * self.weights[2].transpose(1, 2)).mul_(t.active)
        second = torch.bmm(t.hidden.transpose(1, 2), cz)
        return [torch.bmm(rows, a), a.sum(dim=1, keepdim=True), second, total]


class DialNet(nn.Module):
    """Trunk and head for every member and group.

    Parameters
    ----------
    trunk : Module
        ``trunk(x, nets)``: (S, B, ...) to (S, B, f).
    head : Module
        ``head(features, nets)``: (S, B, f) to (S, B).
    members, groups : int
        M and G.
    shared : bool
        One trunk and head a member, which see the group as an input (rows are flat then).
    """

    def __init__(
        self, trunk: nn.Module, head: nn.Module, *, members: int, groups: int, shared: bool = False
    ) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head
        self.members, self.groups, self.shared = members, groups, shared

    def arrange(self, x: Tensor) -> Tensor:
        """Paired rows (G, B, ...) as the stack's inputs (S, B', ...)."""
        if self.shared:
            eye = torch.eye(self.groups, dtype=x.dtype, device=x.device)
            mark = eye[:, None, :].expand(-1, x.shape[1], -1)
            x = torch.cat((x, mark), dim=-1).flatten(0, 1)[None]
        if self.members == 1:
            return x
        return x.repeat(self.members, *([1] * (x.ndim - 1)))

    def forward(self, x: Tensor) -> Tensor:
        """(G, B, ...) -> (M, G, B) logits."""
        return self.pairs(self.head(self.trunk(self.arrange(x))))

    def pairs(self, logits: Tensor) -> Tensor:
        """(S, B') -> (M, G, B)."""
        return logits.view(self.members, self.groups, -1)

    def flat(self, paired: Tensor) -> Tensor:
        """(M, G, B) -> (S, B')."""
        return paired.reshape(self.members * (1 if self.shared else self.groups), -1)

    def of_group(self, x: Tensor, group: int) -> Tensor:
        """(n, ...) rows of one group -> (M, n) logits."""
        if self.shared:
            mark = x.new_zeros(len(x), self.groups)
            mark[:, group] = 1.0
            x, nets = torch.cat((x, mark), dim=-1), ALL
        else:
            nets = slice(group, None, self.groups)
        stack = x.unsqueeze(0).expand(self.members, *x.shape)
        logits: Tensor = self.head(self.trunk(stack, nets), nets)
        return logits
