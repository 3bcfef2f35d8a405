"""Stacks of networks: the nets of all groups and ensemble members run in one batched product.

A :class:`DialNet` has a trunk g and a head z for each net of the stack (in the paper, one net per
group). Rows come in paired batches, ``(G, B, ...)``, with equally many of each group. Net
``m * G + a`` of the stack is member m's net for group a; with a shared trunk, net m serves all
groups and sees the group as an input. Several *runs* (the settings of a family) may train side by
side in one stack: run r has the members ``r * M .. (r + 1) * M``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fairdial.nn.layers import ALL, Layer, ReLU, StackedLinear, StackedNorm

Modulation = tuple[Tensor, Tensor]  # scale and shift of one layer's units, (S, 1, width) each


class MLPTrunk(nn.Module):
    """Multi-layer perceptrons that map rows to features.

    Parameters
    ----------
    nets : int
        Number of nets in the stack.
    widths : sequence of int
        Number of inputs, then the width of each layer.
    generator : torch.Generator
        Draws the initial weights.
    norm : bool
        Layer normalization after each hidden activation.
    dropout : float
        Share of the units that are dropped after each hidden layer during training.
    bare : bool
        No activation after the last layer, as in the paper's networks.
    marks : int
        How many of the last inputs mark the group and are hidden from the layers.
    late : bool
        Append those marks to the features, for the head; otherwise they are dropped.
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
        """Widths of the layers that are followed by an activation."""
        widths = [layer.weight.shape[-1] for layer in self.layers]  # type: ignore[index]
        return widths[: len(widths) - self.bare]  # type: ignore[return-value]

    def forward(self, x: Tensor, nets: slice = ALL, film: Sequence[Modulation] = ()) -> Tensor:
        """Map (S, B, d) to (S, B, f)."""
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

    def plan(self, nets: slice = ALL) -> list[Layer]:
        """Return what evaluation computes, without marks and modulation, as data."""
        layers: list[Layer] = []
        for i, linear in enumerate(self.layers):
            assert isinstance(linear, StackedLinear)
            layers += (linear.layer(nets), ReLU())
            if self.norms is not None and i < len(self.norms):
                norm = self.norms[i]
                assert isinstance(norm, StackedNorm)
                layers.append(norm.layer(nets))
        return layers[:-1] if self.bare else layers


def modulate(x: Tensor, film: Modulation) -> Tensor:
    """Apply feature-wise linear modulation to activations (S, B, width)."""
    scale, shift = film
    return torch.relu(torch.addcmul(shift, x, scale))


class Film(nn.Module):
    """Hyper-networks: scale and shift of every modulated layer, as functions of one number.

    In every net of the stack, each layer has a hyper-network for its scale and one for its shift.

    Parameters
    ----------
    nets : int
        Number of nets in the stack.
    widths : sequence of int
        Widths of the modulated layers.
    generator : torch.Generator
        Draws the initial weights.
    hidden, depth : int
        Width and number of a hyper-network's hidden layers.
    identity : bool
        Start with scale 1 and shift 0 for every number, like a net without modulation.
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
        """Map a number for each net (S,) to the scale and shift of each layer, (S, 1, width)."""
        x = condition.repeat(2 * len(self.out)).view(-1, 1, 1)
        for layer in self.hidden:
            x = torch.relu(layer(x))
        parts = x.view(len(self.out), 2 * self.nets, 1, -1)
        both = [layer(part) for layer, part in zip(self.out, parts, strict=True)]
        return [(b[: self.nets], b[self.nets :]) for b in both]


class ModuleStack(nn.Module):
    """A user's modules as the nets of a stack, called one by one.

    Parameters
    ----------
    modules : sequence of Module
        One for each net.
    reduced : bool
        Train in bfloat16 where torch considers it safe (autocast). Weights and features stay in
        float32, and evaluation is unaffected.
    """

    def __init__(self, modules: Sequence[nn.Module], reduced: bool = False) -> None:
        super().__init__()
        self.nets, self.reduced = nn.ModuleList(modules), reduced

    @classmethod
    def copies_of(
        cls, trunk: nn.Module | Callable[[], nn.Module], nets: int, reduced: bool = False
    ) -> ModuleStack:
        """Copy a module with its weights, or call a function that makes one, for each net."""
        if isinstance(trunk, nn.Module):
            return cls([copy.deepcopy(trunk) for _ in range(nets)], reduced)
        return cls([trunk() for _ in range(nets)], reduced)

    def forward(self, x: Tensor, nets: slice = ALL) -> Tensor:
        """Map (S, B, ...) to (S, B, f)."""
        modules = list(self.nets)[nets]
        reduced = self.reduced and self.training
        with torch.autocast(x.device.type, torch.bfloat16, enabled=reduced):
            features = [module(rows) for module, rows in zip(modules, x, strict=True)]
        stacked = torch.stack([f.flatten(1) for f in features])
        return stacked.float() if reduced else stacked


class Tangent(NamedTuple):
    """Logits, their tangent along w, and what the pullback needs."""

    logits: Tensor  # (S, B) or (S, B, C)
    along: Tensor  # the same
    hidden: Tensor | None  # (S, B, h)
    hidden_along: Tensor | None
    active: Tensor | None


class Head(nn.Module):
    """Features to a logit, with one hidden layer (or none, ``hidden=0``), in each net of a stack.

    With several ``outputs``, features to a logit for each: (S, B, C) in place of (S, B).

    The second-order terms of the bilevel problem are explicit for this head: :meth:`tangent` is its
    forward pass with a tangent, and :meth:`pullback` the transpose of that.
    """

    def __init__(
        self, nets: int, n_in: int, hidden: int, generator: torch.Generator, outputs: int = 1
    ) -> None:
        super().__init__()
        self.outputs = outputs
        widths = [n_in, hidden, outputs] if hidden else [n_in, outputs]
        self.layers = nn.ModuleList(
            StackedLinear(nets, a, b, generator) for a, b in pairwise(widths)
        )

    @property
    def weights(self) -> list[Tensor]:
        """The parameters in order, faster than ``parameters()``."""
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
        """Map (S, B, f) to (S, B) or (S, B, C)."""
        x = features
        for i, layer in enumerate(self.layers):
            if i:
                x = torch.relu(x)
                x = modulate(x, film[i - 1]) if film else x
            x = layer(x, nets)
        return self._drop(x)

    def _drop(self, logits: Tensor) -> Tensor:
        """Drop the last axis if there is one output only."""
        return logits.squeeze(-1) if self.outputs == 1 else logits

    def _restore(self, logits: Tensor) -> Tensor:
        """Undo :meth:`_drop`."""
        return logits.unsqueeze(-1) if self.outputs == 1 else logits

    def plan(self, nets: slice = ALL) -> list[Layer]:
        """Return what evaluation computes, without modulation, as data."""
        layers: list[Layer] = []
        for linear in self.layers:
            assert isinstance(linear, StackedLinear)
            layers += (linear.layer(nets), ReLU())
        return layers[:-1]

    def tangent(self, features: Tensor, w: Sequence[Tensor]) -> Tangent:
        """Return logits and their derivative along ``w``, which is shaped like the parameters."""
        params = self.weights
        if len(params) == 2:
            z = torch.baddbmm(params[1], features, params[0])
            zd = torch.baddbmm(w[1], features, w[0])
            return Tangent(self._drop(z), self._drop(zd), None, None, None)
        w1, b1, w2, b2 = params
        r = torch.baddbmm(b1, features, w1).relu_()
        active = r.sign()
        rd = torch.baddbmm(w[1], features, w[0]).mul_(active)
        z = torch.bmm(r, w2).add_(b2)
        zd = torch.bmm(rd, w2).baddbmm_(r, w[2]).add_(w[3])
        return Tangent(self._drop(z), self._drop(zd), r, rd, active)

    def pullback(
        self, features: Tensor, w: Sequence[Tensor], t: Tangent, cz: Tensor, cd: Tensor
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Map cotangents of the logits and of their tangent to weights, w and features."""
        params = self.weights
        cz, cd = self._restore(cz), self._restore(cd)  # (S, B, C)
        rows = features.transpose(1, 2)
        sums = [cz.sum(dim=1, keepdim=True), cd.sum(dim=1, keepdim=True)]
        if t.hidden is None or t.hidden_along is None or t.active is None:
            df = torch.bmm(cz, params[0].transpose(1, 2)).baddbmm_(cd, w[0].transpose(1, 2))
            return [torch.bmm(rows, cz), sums[0]], [torch.bmm(rows, cd), sums[1]], df
        w1, _, w2, _ = params
        back, back_along = w2.transpose(1, 2), w[2].transpose(1, 2)
        if self.outputs == 1:  # elementwise: faster than products of matrices
            a = torch.addcmul(cz * back, cd, back_along).mul_(t.active)  # (S, B, h)
            ad = (cd * back).mul_(t.active)
        else:
            a = torch.bmm(cz, back).baddbmm_(cd, back_along).mul_(t.active)
            ad = torch.bmm(cd, back).mul_(t.active)
        hidden = t.hidden.transpose(1, 2)
        second = torch.bmm(hidden, cz).baddbmm_(t.hidden_along.transpose(1, 2), cd)
        df = torch.bmm(a, w1.transpose(1, 2)).baddbmm_(ad, w[0].transpose(1, 2))
        by_weights = [torch.bmm(rows, a), a.sum(dim=1, keepdim=True), second, sums[0]]
        by_w = [torch.bmm(rows, ad), ad.sum(dim=1, keepdim=True), torch.bmm(hidden, cd), sums[1]]
        return by_weights, by_w, df

    def transpose(self, features: Tensor, t: Tangent, cz: Tensor) -> list[Tensor]:
        """Map a cotangent of the logits to the weights: ``J' cz``."""
        cz = self._restore(cz)
        rows, total = features.transpose(1, 2), cz.sum(dim=1, keepdim=True)
        if t.hidden is None or t.active is None:
            return [torch.bmm(rows, cz), total]
        back = self.weights[2].transpose(1, 2)
        a = (cz * back if self.outputs == 1 else torch.bmm(cz, back)).mul_(t.active)
        second = torch.bmm(t.hidden.transpose(1, 2), cz)
        return [torch.bmm(rows, a), a.sum(dim=1, keepdim=True), second, total]


class DialNet(nn.Module):
    """Trunk and head for every member and group.

    Parameters
    ----------
    trunk : Module
        ``trunk(x, nets)`` maps (S, B, ...) to (S, B, f).
    head : Module
        ``head(features, nets)`` maps (S, B, f) to (S, B), or to (S, B, C) for several classes.
    members, groups : int
        M and G.
    shared : bool
        One trunk and head per member, which see the group as an input; rows must be flat.
    runs : int
        Settings that are trained side by side; each has equally many of the members.
    film : Film, optional
        Modulates the layers of the head and, if it is an MLPTrunk, of the trunk.
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
        """Number of runs in the stack now."""
        return len(self.kept)

    @property
    def copies(self) -> int:
        """Number of nets of one member."""
        return 1 if self.shared else self.groups

    @property
    def head_dtype(self) -> torch.dtype:
        """Precision of the logits, which may exceed the trunk's."""
        return next(self.head.parameters()).dtype

    def arrange(self, x: Tensor) -> Tensor:
        """Return paired rows (G, B, ...) as the stack's inputs (S, B', ...)."""
        if self.shared:
            eye = torch.eye(self.groups, dtype=x.dtype, device=x.device)
            mark = eye[:, None, :].expand(-1, x.shape[1], -1)
            x = torch.cat((x, mark), dim=-1).flatten(0, 1)[None]
        if self.members == 1:
            return x
        return x.repeat(self.members, *([1] * (x.ndim - 1)))

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return the logits of rows (G, B, ...); ``film`` needs a condition (M,)."""
        inputs = self.arrange(x)
        if condition is None:
            return self.pairs(self.head(self.trunk(inputs)))
        trunk, head = self._films(condition.repeat_interleave(self.copies), ALL)
        features = self.trunk(inputs, ALL, trunk) if trunk else self.trunk(inputs)
        return self.pairs(self.head(features, ALL, head))

    def _films(self, condition: Tensor, nets: slice) -> tuple[list[Modulation], list[Modulation]]:
        """Return the modulations of the trunk's layers and of the head's, for some nets."""
        assert self.film is not None
        found = [(scale[nets], shift[nets]) for scale, shift in self.film(condition)]
        split = len(found) - len(self.head.active_widths)  # type: ignore[arg-type]
        return found[:split], found[split:]

    def pairs(self, logits: Tensor) -> Tensor:
        """Reshape (S, B') to (M, G, B), or (S, B', C) to (M, G, C, B)."""
        if logits.ndim == 2:
            return logits.view(self.members, self.groups, -1)
        return logits.view(self.members, self.groups, -1, logits.shape[-1]).transpose(2, 3)

    def flat(self, paired: Tensor) -> Tensor:
        """Undo :meth:`pairs`."""
        if paired.ndim == 3:
            return paired.reshape(self.members * self.copies, -1)
        return paired.transpose(2, 3).reshape(self.members * self.copies, -1, paired.shape[2])

    def _nets(self, group: int, run: int | None) -> tuple[slice, int]:
        """Return which nets score rows of a group, of all runs or of one, and how many."""
        first, count = 0, self.members
        if run is not None:
            count = self.members // self.runs
            first = run * count * self.copies
        start = first + (0 if self.shared else group)
        return slice(start, first + count * self.copies, self.copies), count

    def plan(self, group: int | None = None) -> list[Layer] | None:
        """Return the layers from a row to its logit, as data: those of a group's nets, or of all.

        None if a custom trunk, group marks, modulation or several classes rule that out.
        """
        trunk, head = self.trunk, self.head
        if type(trunk) is not MLPTrunk or trunk.marks or type(head) is not Head or self.film:
            return None
        if head.outputs > 1:
            return None
        nets = ALL if group is None else self._nets(group, None)[0]
        return [*trunk.plan(nets), *head.plan(nets)]

    def features_of(self, x: Tensor, group: int, run: int | None = None) -> Tensor:
        """Return an unmodulated trunk's features (M, n, f) of one group's rows (n, ...)."""
        nets, count = self._nets(group, run)
        features: Tensor = self.trunk(self._marked(x, group).expand(count, *[-1] * x.ndim), nets)
        return features.to(self.head_dtype)

    def _marked(self, x: Tensor, group: int) -> Tensor:
        """Return one group's rows as the nets' inputs, (1, n, ...)."""
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
        """Return the logits (M, n) or (M, n, C) of one group's rows (n, ...), for all runs or one.

        With ``features``, x comes from :meth:`features_of`.
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
        """Keep only the runs at these places of the stack; ``kept`` names them."""
        for p in self.parameters():
            p.data, p.grad = take_runs(p.data, self.runs, runs), None
        self.members = self.members // self.runs * len(runs)
        self.kept = [self.kept[i] for i in runs]

    @torch.no_grad()
    def put(self, weights: dict[str, Tensor], runs: int) -> None:
        """Load the weights of this many runs, however many there are now."""
        alone = self.runs == runs == 1  # any module, with its buffers
        self.members = self.members // self.runs * runs
        self.kept = list(range(runs))
        if alone:
            self.load_state_dict(weights)
            return
        for name, p in self.named_parameters():
            p.data, p.grad = weights[name].clone(), None


def take_runs(stacked: Tensor, runs: int, kept: Sequence[int]) -> Tensor:
    """Return some runs' part of a tensor whose first axis goes through all runs."""
    by_run = stacked.view(runs, -1, *stacked.shape[1:])
    return by_run[list(kept)].flatten(0, 1)
