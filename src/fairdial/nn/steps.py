"""Training steps: plain (ERM) and GFB's bilevel one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fairdial.errors import DivergedError, InvalidInputError
from fairdial.nn.adam import Adam
from fairdial.nn.masoba import Bilevel, Directions, GaussNewton, directions, dot, residual
from fairdial.nn.nets import DialNet, Head, ModuleStack, take_runs
from fairdial.nn.process_group import SINGLE_PROCESS, ProcessGroup
from fairdial.nn.schedules import Factor

FIRST_ROUNDS = 10  # power iterations before the first scaled step
CURVATURE_EVERY = 10  # steps between power iterations, aux="scaled"
ROUNDS = 12  # of conjugate gradients, aux="solve"
DAMPING = 1e-4  # of the positive semi-definite system
TINY = 1e-30
DOT_AT_ONCE = 2**16  # numbers whose products are summed in float32
LARGEST = 1e6  # larger weights and auxiliary variables have diverged


Optimizer = Adam | torch.optim.Optimizer


def make_optimizer(parts: list[dict[str, Any]], name: str) -> Optimizer:
    """Return Adam or plain gradient descent, fused where the parameters allow it."""
    params = [p for part in parts for p in part["params"]]
    fused = all(p.is_contiguous() and p.is_floating_point() for p in params)
    if name == "adam":
        return Adam(parts) if fused else torch.optim.Adam(parts)
    return torch.optim.SGD(parts, fused=fused)


def set_grads(params: list[nn.Parameter], grads: list[Tensor]) -> None:
    """Set the gradients that the optimizer sees."""
    for p, g in zip(params, grads, strict=True):
        p.grad = g


def match_strides(params: list[nn.Parameter]) -> None:
    """Copy gradients whose strides differ from their weight's: fused optimizers get them wrong."""
    for p in params:
        if p.grad is not None and p.grad.stride() != p.stride():
            p.grad = torch.empty_like(p).copy_(p.grad)


def inner_product(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner product of two large tensors in float64, without copies in float64."""
    parts = zip(
        torch.split(a.flatten(), DOT_AT_ONCE), torch.split(b.flatten(), DOT_AT_ONCE), strict=True
    )
    return torch.stack([torch.dot(u, v) for u, v in parts]).double().sum()


def _owners(part: nn.Module, copies: int) -> list[int | None]:
    """Return which member each parameter belongs to; None if its first axis goes through all."""
    if not isinstance(part, ModuleStack):
        return [None for _ in part.parameters()]
    found = {id(p): i // copies for i, net in enumerate(part.nets) for p in net.parameters()}
    return [found[id(p)] for p in part.parameters()]


class Losses(Protocol):
    """Anything that gives the losses of logits, for the record."""

    def losses(self, logits: Tensor, y: Tensor, runs: int = 1) -> dict[str, Tensor]:
        """Return losses by name: one number, or one for each of several runs."""


class Step(ABC):
    """Updates a net on one batch."""

    net: DialNet
    objective: Losses
    optimizers: dict[str, Optimizer]
    processes: ProcessGroup = SINGLE_PROCESS  # that take this step together

    @abstractmethod
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Take one step; return the logits (M, G, B) before it.

        With several processes, x is this process's part of the joint batch and y holds all its
        labels.
        """

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs besides net and optimizers."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:  # noqa: B027
        """Resume from :meth:`state`."""

    def diagnose(self, x: Tensor, y: Tensor) -> dict[str, float]:  # noqa: ARG002
        """Return diagnostics, once per epoch."""
        return {}

    def keep(self, runs: Sequence[int]) -> None:
        """Keep some of the net's runs only."""
        before = self.net.runs
        self.net.keep(runs)
        for optimizer in self.optimizers.values():
            for entries in optimizer.state.values():
                for name, value in entries.items():
                    if isinstance(value, Tensor) and value.ndim:
                        entries[name] = take_runs(value, before, runs)

    def check(self) -> None:
        """Raise if the state is no longer finite."""
        refuse_nonfinite(self.net.parameters(), "the network", "learning_rate")


def refuse_nonfinite(tensors: Iterable[Tensor], what: str, rate: str) -> None:
    """Raise if a tensor holds values that are not finite or far too large."""
    for tensor in tensors:
        largest = float(tensor.detach().abs().max()) if tensor.numel() else 0.0
        if not largest < LARGEST:
            raise DivergedError(
                f"training diverged: {what} holds values of size {largest:.3g}. Lower `{rate}`."
            )


class PlainStep(Step):
    """Empirical risk minimization: eq:l_pred in every group, all weights at once."""

    objective: Bilevel

    def __init__(
        self, net: DialNet, objective: Bilevel, *, rate: float, weight_decay: float = 0.0
    ) -> None:
        self.net, self.objective = net, objective
        self._params = list(net.parameters())
        trunk = {"params": list(net.trunk.parameters()), "lr": rate}
        head = {"params": list(net.head.parameters()), "lr": rate, "weight_decay": weight_decay}
        self.optimizers = {"all": make_optimizer([trunk, head], "adam")}

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Take one gradient step."""
        self.optimizers["all"].zero_grad(set_to_none=True)
        logits = self.processes.forward(self.net, x)
        joint = self.processes.all_gather(logits.detach(), y.shape[-1])
        self.processes.backward(
            logits, self.processes.local_rows(self.objective.prediction(joint, y)[0])
        )
        self.processes.all_sum([], grads_of=self.net)
        match_strides(self._params)
        self.optimizers["all"].step()
        return joint


class BilevelStep(Step):
    """MA-SOBA on trunk and head (alg:proposed, lines 5 to 10).

    Parameters
    ----------
    net : DialNet
        Trunk g and head z.
    objective : Bilevel
        L_pred and L_gen.
    outer_rate, inner_rate : float
        Learning rates of the trunk and of the head.
    aux : {"step", "adam", "scaled", "solve"}
        How the auxiliary system is solved: the paper's step, or Adam in its place; or, for its
        positive semi-definite part and the distance loss only, steps scaled by the curvature or
        conjugate gradients.
    aux_rate : float
        Rate of the auxiliary variable ("scaled": divided by the largest curvature).
    theta : float
        Moving-average parameter of h; 1 is the raw hypergradient.
    average_first : bool
        Whether h includes the new direction before the outer step; in the paper, after it.
    bias_correction : bool
        Whether the outer step takes h divided by the total weight of the directions in it.
    outer_optimizer, inner_optimizer : {"adam", "sgd"}
        Optimizers that take h and D_z.
    schedules : mapping
        Factors by step of the rates of "outer", "inner" and "aux", and of theta ("average").
    clip : float, optional
        Largest norm of each member's D_g (before averaging), D_z and auxiliary direction.
    sequential : bool
        Whether the head moves first, and the other directions are those at the new head, for the
        same features.
    weight_decay : float
        Weight decay of the head; part of its Hessian.
    warm_steps : int
        Number of first steps with the prediction loss only, never sequential.
    directions : callable
        Computes the three directions.
    """

    objective: Bilevel

    def __init__(
        self,
        net: DialNet,
        objective: Bilevel,
        *,
        outer_rate: float,
        inner_rate: float,
        aux: str = "scaled",
        aux_rate: float = 1.0,
        theta: float = 1.0,
        average_first: bool = True,
        bias_correction: bool = False,
        outer_optimizer: str = "adam",
        inner_optimizer: str = "adam",
        schedules: Mapping[str, Factor] | None = None,
        clip: float | None = None,
        sequential: bool = False,
        weight_decay: float = 0.0,
        warm_steps: int = 0,
        directions: Callable[..., Directions] = directions,
    ) -> None:
        self.net, self.objective = net, objective
        self._plain = objective.plain()
        self._warm_steps, self._directions = warm_steps, directions
        self.trunk, self.head = list(net.trunk.parameters()), list(net.head.parameters())
        outer = {"params": self.trunk, "lr": outer_rate, "name": "outer"}
        inner = {"params": self.head, "lr": inner_rate, "weight_decay": weight_decay}
        inner["name"] = "inner"
        if outer_optimizer == inner_optimizer and not sequential:  # one call for both
            self.optimizers = {"both": make_optimizer([outer, inner], outer_optimizer)}
        else:
            self.optimizers = {
                "inner": make_optimizer([inner], inner_optimizer),
                "outer": make_optimizer([outer], outer_optimizer),
            }
        self.aux, self.aux_rate, self.weight_decay = aux, aux_rate, weight_decay
        self.theta, self.average_first = theta, average_first
        self.bias_correction, self.clip, self.sequential = bias_correction, clip, sequential
        self._schedules = dict(schedules or {})
        self._rates = {"outer": outer_rate, "inner": inner_rate, "aux": aux_rate, "average": theta}
        self.w = [torch.zeros_like(p) for p in self.head]
        if aux == "adam":
            part = {"params": self.w, "lr": aux_rate, "name": "aux"}
            self.optimizers["aux"] = make_optimizer([part], "adam")
        self.h = [torch.zeros_like(p) for p in self.trunk] if not self._raw else []
        self._mass = 0.0  # total weight of the directions in h
        self._power = [torch.full_like(p, 1.0 / p.numel() ** 0.5) for p in self.head]
        device = self.head[0].device
        self._largest = torch.full((len(self.head[0]),), math.inf, device=device)  # unknown yet
        self._count = 0

    @property
    def _raw(self) -> bool:
        plain = self.theta == 1.0 and self.average_first and "average" not in self._schedules
        return not self.trunk or plain

    def _rate(self, name: str) -> float:
        """Return the present rate of "outer", "inner" or "aux", or theta ("average")."""
        rate, factor = self._rates[name], self._schedules.get(name)
        return rate if factor is None else rate * factor(self._count)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute all directions at one iterate, then update (lines 7 to 10)."""
        warm = self._count < self._warm_steps
        for optimizer in self.optimizers.values() if self._schedules else ():
            for group in optimizer.param_groups:
                group["lr"] = self._rate(group["name"])
        ahead = self.sequential and not warm
        d = self._compute(x, y, warm, self._move_head if ahead else None)
        if not ahead:
            self._set_inner(d.inner)
        fresh = self._average()
        if not warm:
            with torch.no_grad():
                self._auxiliary_step(d)
        for name, optimizer in self.optimizers.items():
            if name != "aux" and not (ahead and name == "inner"):
                optimizer.step()
        if fresh:
            self._include(fresh)
        self._count += 1
        return d.logits

    def _set_inner(self, inner: list[Tensor]) -> None:
        """Set D_z, no longer than allowed, as the head's gradient."""
        if self.clip is not None:
            self._shorten(inner, self.net.head)
        set_grads(self.head, inner)

    def _move_head(self, inner: list[Tensor]) -> None:
        """Take the head's step before the others."""
        self._set_inner(inner)
        self.optimizers["inner"].step()

    def _compute(
        self, x: Tensor, y: Tensor, warm: bool, move_head: Callable[[list[Tensor]], None] | None
    ) -> Directions:
        """Compute the directions; D_g, no longer than allowed, is the trunk's gradient."""
        for p in self.trunk:
            p.grad = None
        objective = self._plain if warm else self.objective
        d = self._directions(self.net, x, y, self.w, objective, self.processes, move_head)
        match_strides(self.trunk)
        if self.clip is not None:
            self._shorten([p.grad for p in self.trunk], self.net.trunk)
        return d

    @torch.no_grad()
    def _shorten(self, direction: Sequence[Tensor | None], part: nn.Module) -> None:
        """Scale each member's direction in a part of the net to the largest norm, if longer."""
        assert self.clip is not None
        members, owners = self.net.members, _owners(part, self.net.copies)
        squares = torch.zeros(members, dtype=torch.float64, device=self.head[0].device)
        known = [(g, owner) for g, owner in zip(direction, owners, strict=True) if g is not None]
        for g, owner in known:
            if owner is None:
                rows = g.reshape(members, -1)
                squares += torch.stack([inner_product(row, row) for row in rows])
            else:
                squares[owner] += inner_product(g, g)
        factors = (self.clip / squares.sqrt()).clamp(max=1.0)
        for g, owner in known:
            if owner is None:
                factor = factors.repeat_interleave(len(g) // members)
                factor = factor.view(-1, *[1] * (g.ndim - 1))
            else:
                factor = factors[owner]
            g.mul_(factor.to(g.dtype))

    def _average(self) -> list[Tensor] | None:
        """Set h (eq:h) as the trunk's gradient; return D_g if h includes it after the step."""
        if self._raw:
            return None
        fresh = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.trunk]
        if self.average_first:
            self._include(fresh)
        mass = self._mass if self.bias_correction and self._mass > 0.0 else 1.0
        set_grads(self.trunk, [h / mass for h in self.h])  # a copy: the optimizer may change it
        return None if self.average_first else fresh

    def _include(self, fresh: list[Tensor]) -> None:
        """Include D_g in h (line 10)."""
        rate = self._rate("average")
        if rate > 1.0:
            raise InvalidInputError(
                "schedules", "keep `moving_average` times its factor at most 1", given=f"{rate:g}"
            )
        torch._foreach_lerp_(self.h, fresh, rate)
        self._mass += rate * (1.0 - self._mass)

    @property
    def _damping(self) -> float:
        return self.weight_decay + (0.0 if self._exact else DAMPING)

    @property
    def _exact(self) -> bool:
        """Whether the auxiliary system is the paper's, with the whole Hessian."""
        return self.aux in ("step", "adam")

    def _auxiliary_step(self, d: Directions) -> None:
        """Move w toward the solution of H w = grad_z L_gen (line 9); "step" is that of eq:w.

        A batch without a distance loss, such as one without eligible rows, says nothing about w.
        """
        distant = d.cotangents.distant
        if not bool(distant.any()):
            return
        if self._exact:
            for w, step in zip(self.w, d.auxiliary, strict=True):
                step.add_(w, alpha=self._damping)
            if self.clip is not None:
                self._shorten(d.auxiliary, self.net.head)
            for w, step in zip(self.w, d.auxiliary, strict=True):
                if self.aux == "adam":
                    w.grad = step
                else:
                    w.add_(step, alpha=-self._rate("aux"))
            if self.aux == "adam":
                self.optimizers["aux"].step()
            return
        head, right = self.net.head, self.net.flat(d.cotangents.v_distance)
        assert isinstance(head, Head)
        c = self.net.flat(d.cotangents.c)
        system = GaussNewton(head, d.features, c, self._damping, self.processes)
        if self.aux == "solve":
            found = system.solve(right, self.w, ROUNDS, d.tangent)
        else:
            first = bool(self._largest.isinf().any())
            if first or self._count % CURVATURE_EVERY == 0:
                rounds = FIRST_ROUNDS if first else 1
                self._largest, self._power = system.largest(self._power, rounds)
            rest = system.residual(self.w, right, d.tangent)
            best = dot(rest, rest) / dot(rest, system(rest)).clamp_min(TINY)  # exact line search
            rate = torch.minimum(self._rate("aux") / self._largest, best).view(-1, 1, 1)
            if self.clip is not None:
                self._shorten(rest, self.net.head)
            found = [w - rate * r for w, r in zip(self.w, rest, strict=True)]
        known = distant.repeat_interleave(len(self.w[0]) // len(distant)).view(-1, 1, 1)
        for w, new in zip(self.w, found, strict=True):
            w.copy_(torch.where(known, new, w))

    def state(self) -> dict[str, Tensor]:
        """Return the auxiliary variable, the moving average, the curvature and the last t."""
        state = {"count": torch.tensor(self._count), "largest": self._largest}
        state["mass"] = torch.tensor(self._mass, dtype=torch.float64)
        if self.objective.t is not None:
            state["t"] = torch.from_numpy(self.objective.t)
        for name, tensors in (("w", self.w), ("h", self.h), ("power", self._power)):
            state |= {f"{name}{i}": tensor for i, tensor in enumerate(tensors)}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from :meth:`state`."""
        self._count = int(state["count"])
        self._largest = state["largest"].to(self._largest.device)
        self._mass = float(state["mass"])
        self.objective.t = state["t"].numpy() if "t" in state else None
        for name, tensors in (("w", self.w), ("h", self.h), ("power", self._power)):
            for i, tensor in enumerate(tensors):
                tensor.copy_(state[f"{name}{i}"])

    def keep(self, runs: Sequence[int]) -> None:
        """Raise: the step has one run."""
        raise RuntimeError(f"BilevelStep trains one run and can't keep runs {list(runs)}")

    def diagnose(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """Return how well the auxiliary system is solved on this batch; NaN in the warm start."""
        warm = self._count <= self._warm_steps
        figures = {"warm": float(warm)}
        if warm and isinstance(self.net.head, Head):
            figures["aux_residual"] = math.nan
        elif isinstance(self.net.head, Head):
            self.net.eval()  # no dropout; batch normalization has seen this batch
            figures["aux_residual"] = residual(
                self.net,
                x,
                y,
                self.w,
                self.objective,
                damping=self.weight_decay + DAMPING,
                processes=self.processes,
            )
            self.net.train()
        return figures

    def check(self) -> None:
        """Raise if the state is no longer finite, naming the rate to lower."""
        rates = "aux_rate` or `learning_rate` (or `head_rate"
        if all(float(p.detach().abs().max()) < LARGEST for p in self.trunk + self.head):
            rates = "aux_rate"
        refuse_nonfinite(self.w, "the auxiliary variable", rates)
        refuse_nonfinite(self.head, "the head", "head_rate` or `learning_rate")
        refuse_nonfinite(self.trunk, "the trunk", "learning_rate")
