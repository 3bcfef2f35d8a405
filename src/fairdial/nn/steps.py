"""Training steps: plain (ERM) and GFB's bilevel one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fairdial.errors import DivergedError
from fairdial.nn.masoba import Directions, GaussNewton, Objective, directions, dot, residual
from fairdial.nn.nets import DialNet, Head, take_runs
from fairdial.nn.process_group import SINGLE_PROCESS, ProcessGroup

FIRST_ROUNDS = 10  # power iterations before the first scaled step
CURVATURE_EVERY = 10  # steps between power iterations, aux="scaled"
ROUNDS = 12  # of conjugate gradients, aux="solve"
DAMPING = 1e-4  # of the positive semi-definite system
TINY = 1e-30
LARGEST = 1e6  # larger weights and auxiliary variables have diverged


def make_optimizer(parts: list[dict[str, Any]], name: str) -> torch.optim.Optimizer:
    """Return Adam or plain gradient descent, fused where the parameters allow it."""
    params = [p for part in parts for p in part["params"]]
    fused = all(p.is_contiguous() and p.is_floating_point() for p in params)
    if name == "adam":
        return torch.optim.Adam(parts, fused=fused)
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


class Losses(Protocol):
    """Anything that gives the losses of logits, for the record."""

    def losses(self, logits: Tensor, y: Tensor, runs: int = 1) -> dict[str, Tensor]:
        """Return losses by name: one number, or one for each of several runs."""


class Step(ABC):
    """Updates a net on one batch."""

    net: DialNet
    objective: Losses
    optimizers: dict[str, torch.optim.Optimizer]
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

    objective: Objective

    def __init__(
        self, net: DialNet, objective: Objective, *, rate: float, weight_decay: float = 0.0
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
    objective : Objective
        L_pred and L_gen.
    outer_rate, inner_rate : float
        Learning rates of the trunk and of the head.
    aux : {"step", "scaled", "solve"}
        How the auxiliary system is solved: the paper's step; or, for its positive semi-definite
        part and the distance loss only, steps scaled by the curvature or conjugate gradients.
    aux_rate : float
        Rate of the auxiliary variable ("scaled": divided by the largest curvature).
    theta : float
        Moving-average parameter of h; 1 is the raw hypergradient.
    average_first : bool
        Whether h includes the new direction before the outer step; in the paper, after it.
    outer_optimizer, inner_optimizer : {"adam", "sgd"}
        Optimizers that take h and D_z.
    weight_decay : float
        Weight decay of the head; part of its Hessian.
    warm_steps : int
        Number of first steps with the prediction loss only.
    directions : callable
        Computes the three directions.
    """

    objective: Objective

    def __init__(
        self,
        net: DialNet,
        objective: Objective,
        *,
        outer_rate: float,
        inner_rate: float,
        aux: str = "scaled",
        aux_rate: float = 1.0,
        theta: float = 1.0,
        average_first: bool = True,
        outer_optimizer: str = "adam",
        inner_optimizer: str = "adam",
        weight_decay: float = 0.0,
        warm_steps: int = 0,
        directions: Callable[..., Directions] = directions,
    ) -> None:
        self.net, self.objective = net, objective
        self._plain = replace(objective, weight=1.0)
        self._warm_steps, self._directions = warm_steps, directions
        self.trunk, self.head = list(net.trunk.parameters()), list(net.head.parameters())
        outer = {"params": self.trunk, "lr": outer_rate}
        inner = {"params": self.head, "lr": inner_rate, "weight_decay": weight_decay}
        if outer_optimizer == inner_optimizer:  # one call for both, after all directions are known
            self.optimizers = {"both": make_optimizer([outer, inner], outer_optimizer)}
        else:
            self.optimizers = {
                "outer": make_optimizer([outer], outer_optimizer),
                "inner": make_optimizer([inner], inner_optimizer),
            }
        self.aux, self.aux_rate, self.weight_decay = aux, aux_rate, weight_decay
        self.theta, self.average_first = theta, average_first
        self.w = [torch.zeros_like(p) for p in self.head]
        self.h = [torch.zeros_like(p) for p in self.trunk] if not self._raw else []
        self._power = [torch.full_like(p, 1.0 / p.numel() ** 0.5) for p in self.head]
        self._largest = torch.ones(len(self.head[0]), device=self.head[0].device)
        self._count = 0

    @property
    def _raw(self) -> bool:
        return not self.trunk or (self.theta == 1.0 and self.average_first)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute all directions at one iterate, then update (lines 7 to 10)."""
        for p in self.trunk:
            p.grad = None
        warm = self._count < self._warm_steps
        objective = self._plain if warm else self.objective
        d = self._directions(self.net, x, y, self.w, objective, self.processes)
        match_strides(self.trunk)
        fresh = self._average()
        set_grads(self.head, d.inner)
        if not warm:
            with torch.no_grad():
                self._auxiliary_step(d)
        for optimizer in self.optimizers.values():
            optimizer.step()
        if fresh:
            torch._foreach_lerp_(self.h, fresh, self.theta)
        self._count += 1
        return d.logits

    def _average(self) -> list[Tensor] | None:
        """Set h (eq:h) as the trunk's gradient; return D_g if h includes it after the step."""
        if self._raw:
            return None
        fresh = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.trunk]
        if self.average_first:
            torch._foreach_lerp_(self.h, fresh, self.theta)
        set_grads(self.trunk, [h.clone() for h in self.h])  # a copy: the optimizer may change it
        return None if self.average_first else fresh

    @property
    def _damping(self) -> float:
        return self.weight_decay + (0.0 if self.aux == "step" else DAMPING)

    def _auxiliary_step(self, d: Directions) -> None:
        """Move w toward the solution of H w = grad_z L_gen (line 9); "step" is that of eq:w."""
        if self.aux == "step":
            for w, step in zip(self.w, d.auxiliary, strict=True):
                step.add_(w, alpha=self._damping)
                w.add_(step, alpha=-self.aux_rate)
            return
        head, right = self.net.head, self.net.flat(d.cotangents.v_distance)
        assert isinstance(head, Head)
        c = self.net.flat(d.cotangents.c)
        system = GaussNewton(head, d.features, c, self._damping, self.processes)
        if self.aux == "solve":
            found = system.solve(right, self.w, ROUNDS, d.tangent)
        else:
            first = self._count == self._warm_steps
            if first or self._count % CURVATURE_EVERY == 0:
                rounds = FIRST_ROUNDS if first else 1
                self._largest, self._power = system.largest(self._power, rounds)
            rest = system.residual(self.w, right, d.tangent)
            best = dot(rest, rest) / dot(rest, system(rest)).clamp_min(TINY)  # exact line search
            rate = torch.minimum(self.aux_rate / self._largest, best).view(-1, 1, 1)
            found = [w - rate * r for w, r in zip(self.w, rest, strict=True)]
        for w, new in zip(self.w, found, strict=True):
            w.copy_(new)

    def state(self) -> dict[str, Tensor]:
        """Return the auxiliary variable, the moving average, the curvature and the last t."""
        state = {"count": torch.tensor(self._count), "largest": self._largest}
        if self.objective.t is not None:
            state["t"] = torch.from_numpy(self.objective.t)
        for name, tensors in (("w", self.w), ("h", self.h), ("power", self._power)):
            state |= {f"{name}{i}": tensor for i, tensor in enumerate(tensors)}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from :meth:`state`."""
        self._count = int(state["count"])
        self._largest = state["largest"]
        self.objective.t = state["t"].numpy() if "t" in state else None
        for name, tensors in (("w", self.w), ("h", self.h), ("power", self._power)):
            for i, tensor in enumerate(tensors):
                tensor.copy_(state[f"{name}{i}"])

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
                damping=self._damping,
                exact=self.aux == "step",
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
