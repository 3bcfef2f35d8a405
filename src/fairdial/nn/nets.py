"""Networks in stacks: the groups' nets and the members of an ensemble run in one batched product.

A :class:`DialNet` is a trunk g and a head z for each net of the stack (paper: one net a group).
Rows come in paired batches, ``(G, B, ...)``: as many of either group. Net ``m * G + a`` of the
stack is member m's net for group a; with a shared trunk, net m serves all groups and sees the group
as an input. Several *runs* (the settings of a family) may train side by side in one stack: run r
has the members ``r * M .. (r + 1) * M``.
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
Modulation = tuple[Tensor, Tensor]  # scale and shift of one layer's units, (S, 1, width) each


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
    marks : int
        So many inputs at the end, which tell the group, are not for the layers.
    late : bool
        Put those marks behind the features, for the head; else they are dropped.
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
        marks: int = 0,
        late: bool = False,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            StackedLinear(nets, a, b, generator) for a, b in pairwise(widths)
        )
        self.norms = nn.ModuleList(StackedNorm(nets, w) for w in widths[1:-1]) if norm else None
        self.dropout, self.bare = dropout, bare
        self.marks, self.late = marks, late

    @property
    def active_widths(self) -> list[int]:
        """Widths of the layers that an activation follows."""
        widths = [layer.weight.shape[-1] for layer in self.layers]  # type: ignore[index]
        return widths[: len(widths) - self.bare]  # type: ignore[return-value]

    def forward(self, x: Tensor, nets: slice = ALL, film: Sequence[Modulation] = ()) -> Tensor:
        """(S, B, d) -> (S, B, f)."""
        last = len(self.layers) - 1
        mark = x[..., x.shape[-1] - self.marks :]
        if self.marks:
            x = x[..., : -self.marks]
        for i, layer in enumerate(self.layers):
            x = layer(x, nets)
            if i == last and self.bare:
                break
            x = torch.relu(x)
            if film:
                x = modulate(x, film[i])
            if self.norms is not None and i < last:
                x = self.norms[i](x, nets)
            if self.dropout:
                x = functional.dropout(x, self.dropout, self.training)
        return torch.cat((x, mark), dim=-1) if self.late else x


def modulate(x: Tensor, film: Modulation) -> Tensor:
    """Feature-wise linear modulation of activations (S, B, width)."""
    scale, shift = film
    return torch.relu(torch.addcmul(shift, x, scale))


class Film(nn.Module):
    """Scale and shift of every modulated layer, as functions of one number: hyper-networks.

    Each layer has one hyper-network for its scale and one for its shift, in every net of the stack.

    Parameters
    ----------
    nets : int
        Nets in the stack.
    widths : sequence of int
        Of the modulated layers.
    generator : torch.Generator
        For the initial weights.
    hidden, depth : int
        Width and number of a hyper-network's hidden layers.
    identity : bool
        Start with scale 1 and shift 0, whatever the number: as the net without modulation.
    """

    def __init__(
        self,
        nets: int,
        widths: Sequence[int],
        generator: torch.Generator,
        *,
        hidden: int = 64,
        depth: int = 2,
        identity: bool = True,
    ) -> None:
        super().__init__()
        self.nets = nets
        sizes = [1] + [hidden] * depth
        self.hidden = nn.ModuleList(
            StackedLinear(2 * nets * len(widths), a, b, generator) for a, b in pairwise(sizes)
        )
        self.out = nn.ModuleList(StackedLinear(2 * nets, hidden, w, generator) for w in widths)
        if identity:
            with torch.no_grad():
                for p in self.out.parameters():
                    p.zero_()
                for layer in self.out:
                    layer.bias[:nets] = 1.0  # type: ignore[operator]

    def forward(self, condition: Tensor) -> list[Modulation]:
        """(S,) a number for each net -> scale and shift of each layer, (S, 1, width)."""
        x = condition.repeat(2 * len(self.out)).view(-1, 1, 1)
        for layer in self.hidden:
            x = torch.relu(layer(x))
        parts = x.view(len(self.out), 2 * self.nets, 1, -1)
        both = [layer(part) for layer, part in zip(self.out, parts, strict=True)]
        return [(b[: self.nets], b[self.nets :]) for b in both]


class ModuleStack(nn.Module):
    """A user's modules as the nets of a stack, one call each.

    Parameters
    ----------
    modules : sequence of Module
        One for each net.
    reduced : bool
        Train in bfloat16 where torch deems it safe (autocast); weights and features stay in
        float32, and evaluation isn't concerned.
    """

    def __init__(self, modules: Sequence[nn.Module], reduced: bool = False) -> None:
        super().__init__()
        self.nets, self.reduced = nn.ModuleList(modules), reduced

    @classmethod
    def of(
        cls, trunk: nn.Module | Callable[[], nn.Module], nets: int, reduced: bool = False
    ) -> ModuleStack:
        """Copies of a module, with its weights; or as many calls of a function that makes one."""
        if isinstance(trunk, nn.Module):
            return cls([copy.deepcopy(trunk) for _ in range(nets)], reduced)
        return cls([trunk() for _ in range(nets)], reduced)

    def forward(self, x: Tensor, nets: slice = ALL) -> Tensor:
        """(S, B, ...) -> (S, B, f)."""
        modules = list(self.nets)[nets]
        reduced = self.reduced and self.training
        with torch.autocast(x.device.type, torch.bfloat16, enabled=reduced):
            features = [module(rows) for module, rows in zip(modules, x, strict=True)]
        stacked = torch.stack([f.flatten(1) for f in features])
        return stacked.float() if reduced else stacked


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

    @property
    def active_widths(self) -> list[int]:
        """Width of the hidden layer, if there is one."""
        return [w.shape[-1] for w in self.weights[:-2:2]]

    def forward(
        self, features: Tensor, nets: slice = ALL, film: Sequence[Modulation] = ()
    ) -> Tensor:
        """(S, B, f) -> (S, B)."""
        x = features
        for i, layer in enumerate(self.layers):
            if i:
                x = torch.relu(x)
                x = modulate(x, film[i - 1]) if film else x
            x = layer(x, nets)
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
    runs : int
        Settings that are trained side by side; each has as many of the members.
    film : Film, optional
        Modulates the layers by a number that comes with the rows: those of the trunk where the
        library knows them, and the head's.
    """

    def __init__(
        self,
        trunk: nn.Module,
        head: nn.Module,
        *,
        members: int,
        groups: int,
        shared: bool = False,
        runs: int = 1,
        film: Film | None = None,
    ) -> None:
        super().__init__()
        self.trunk, self.head, self.film = trunk, head, film
        self.members, self.groups, self.shared = members, groups, shared
        self.kept = list(range(runs))

    @property
    def runs(self) -> int:
        """Settings that are in the stack now."""
        return len(self.kept)

    @property
    def copies(self) -> int:
        """Nets of one member."""
        return 1 if self.shared else self.groups

    @property
    def head_dtype(self) -> torch.dtype:
        """Precision of the logits; the trunk's may be lower."""
        return next(self.head.parameters()).dtype

    def arrange(self, x: Tensor) -> Tensor:
        """Paired rows (G, B, ...) as the stack's inputs (S, B', ...)."""
        if self.shared:
            eye = torch.eye(self.groups, dtype=x.dtype, device=x.device)
            mark = eye[:, None, :].expand(-1, x.shape[1], -1)
            x = torch.cat((x, mark), dim=-1).flatten(0, 1)[None]
        if self.members == 1:
            return x
        return x.repeat(self.members, *([1] * (x.ndim - 1)))

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """(G, B, ...) and, with ``film``, a number for each member (M,) -> (M, G, B) logits."""
        inputs = self.arrange(x)
        if condition is None:
            return self.pairs(self.head(self.trunk(inputs)))
        trunk, head = self._films(condition.repeat_interleave(self.copies), ALL)
        features = self.trunk(inputs, ALL, trunk) if trunk else self.trunk(inputs)
        return self.pairs(self.head(features, ALL, head))

    def _films(self, condition: Tensor, nets: slice) -> tuple[list[Modulation], list[Modulation]]:
        """What modulates the trunk's layers, and the head's, of some nets."""
        assert self.film is not None
        found = [(scale[nets], shift[nets]) for scale, shift in self.film(condition)]
        split = len(found) - len(self.head.active_widths)  # type: ignore[arg-type]
        return found[:split], found[split:]

    def pairs(self, logits: Tensor) -> Tensor:
        """(S, B') -> (M, G, B)."""
        return logits.view(self.members, self.groups, -1)

    def flat(self, paired: Tensor) -> Tensor:
        """(M, G, B) -> (S, B')."""
        return paired.reshape(self.members * self.copies, -1)

    def _nets(self, group: int, run: int | None) -> tuple[slice, int]:
        """Which nets score rows of a group, of all runs or of one; and how many they are."""
        first, count = 0, self.members
        if run is not None:
            count = self.members // self.runs
            first = run * count * self.copies
        start = first + (0 if self.shared else group)
        return slice(start, first + count * self.copies, self.copies), count

    def features_of(self, x: Tensor, group: int, run: int | None = None) -> Tensor:
        """(n, ...) rows of one group -> (M, n, f) features of an unmodulated trunk."""
        nets, count = self._nets(group, run)
        features: Tensor = self.trunk(self._marked(x, group).expand(count, *[-1] * x.ndim), nets)
        return features.to(self.head_dtype)

    def _marked(self, x: Tensor, group: int) -> Tensor:
        """Rows of one group as the nets' input, (1, n, ...)."""
        if self.shared:
            mark = x.new_zeros(len(x), self.groups)
            mark[:, group] = 1.0
            x = torch.cat((x, mark), dim=-1)
        return x.unsqueeze(0)

    def of_group(
        self,
        x: Tensor,
        group: int,
        run: int | None = None,
        condition: float | None = None,
        *,
        features: bool = False,
    ) -> Tensor:
        """(n, ...) rows of one group -> (M, n) logits, of all runs' members or of one run's.

        With ``features``, x is what :meth:`features_of` gave.
        """
        nets, count = self._nets(group, run)
        trunk: list[Modulation] = []
        head: list[Modulation] = []
        if condition is not None:
            size = (self.members * self.copies,)
            number = torch.full(size, condition, dtype=self.head_dtype, device=x.device)
            trunk, head = self._films(number, nets)
        if not features:
            stack = self._marked(x, group).expand(count, *[-1] * x.ndim)
            x = self.trunk(stack, nets, trunk) if trunk else self.trunk(stack, nets)
            x = x.to(self.head_dtype)
        logits: Tensor = self.head(x, nets, head)
        return logits

    # ---- runs ----------------------------------------------------------------------------------

    def keep(self, runs: Sequence[int]) -> None:
        """Go on with the runs at these places of the stack only; ``kept`` names them."""
        for p in self.parameters():
            p.data, p.grad = take_runs(p.data, self.runs, runs), None
        self.members = self.members // self.runs * len(runs)
        self.kept = [self.kept[i] for i in runs]

    @torch.no_grad()
    def put(self, weights: dict[str, Tensor], runs: int) -> None:
        """Take the weights of so many runs in, however many there are now."""
        alone = self.runs == runs == 1  # any module, with its buffers
        self.members = self.members // self.runs * runs
        self.kept = list(range(runs))
        if alone:
            self.load_state_dict(weights)
            return
        for name, p in self.named_parameters():
            p.data, p.grad = weights[name].clone(), None


def take_runs(stacked: Tensor, runs: int, kept: Sequence[int]) -> Tensor:
    """Some runs' part of a tensor whose first axis goes through all of them."""
    apart = stacked.view(runs, -1, *stacked.shape[1:])
    return apart[list(kept)].flatten(0, 1)
