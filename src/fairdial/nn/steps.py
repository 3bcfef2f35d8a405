"""One training step: plain (ERM), or GFB's bilevel one. The loop takes either."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fairdial.errors import DivergedError
from fairdial.nn.masoba import Directions, GaussNewton, Objective, directions, residual
from fairdial.nn.nets import DialNet, Head

CURVATURE_EVERY = 10  # steps between power iterations of aux="scaled"
ROUNDS = 12  # conjugate-gradient rounds of aux="solve"
DAMPING = 1e-3
LARGEST = 1e6  # a weight or auxiliary variable beyond this has diverged


def make_optimizer(
    params: list[nn.Parameter], name: str, rate: float, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """Adam or plain gradient descent, fused where the parameters allow it."""
    fused = all(p.is_contiguous() and p.is_floating_point() for p in params)
    if name == "adam":
        return torch.optim.Adam(params, lr=rate, weight_decay=weight_decay, fused=fused)
    return torch.optim.SGD(params, lr=rate, weight_decay=weight_decay, fused=fused)


def _set_grads(params: list[nn.Parameter], grads: list[Tensor]) -> None:
    for p, g in zip(params, grads, strict=True):
        p.grad = g


def _match_strides(params: list[nn.Parameter]) -> None:
    """Fused optimisers are silently wrong where a gradient's strides differ from its weight's."""
    for p in params:
        if p.grad is not None and p.grad.stride() != p.stride():
            p.grad = torch.empty_like(p).copy_(p.grad)


class Step(ABC):
    """Changes the net by one batch."""

    net: DialNet

    @abstractmethod
    def __call__(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Take one step; gives the batch's figures."""

    @abstractmethod
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """By name, for checkpoints."""

    def tensors(self) -> dict[str, Tensor]:
        """State besides net and optimisers, for checkpoints; changed in place when restored."""
        return {}

    def diagnose(self, x: Tensor, y: Tensor) -> dict[str, float]:  # noqa: ARG002
        """Figures of the inner workings, once an epoch."""
        return {}

    def check(self) -> None:
        """Raise where the state has stopped being finite."""
        _refuse_nonfinite(self.net.parameters(), "the network", "learning_rate")


def _refuse_nonfinite(tensors: Any, what: str, rate: str) -> None:
    for tensor in tensors:
        largest = float(tensor.detach().abs().max()) if tensor.numel() else 0.0
        if not largest < LARGEST:
            raise DivergedError(
                f"training diverged: {what} holds values of size {largest:.3g}. Lower `{rate}`."
            )


class PlainStep(Step):
    """Empirical risk minimisation: eq:l_pred in every group, all weights at once."""

    def __init__(
        self, net: DialNet, objective: Objective, *, rate: float, weight_decay: float = 0.0
    ) -> None:
        self.net, self.objective = net, objective
        self._params = list(net.parameters())
        self._optimizer = make_optimizer(self._params, "adam", rate, weight_decay)

    def __call__(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """One gradient step."""
        self._optimizer.zero_grad(set_to_none=True)
        logits = self.net(x)
        with torch.no_grad():
            loss, u, _ = self.objective.prediction(logits.detach(), y)
        logits.backward(u)
        _match_strides(self._params)
        self._optimizer.step()
        return {"loss": loss.mean()}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """One for everything."""
        return {"all": self._optimizer}


class BilevelStep(Step):
    """MA-SOBA on trunk and head (alg:proposed, lines 4 to 10).

    Parameters
    ----------
    net : DialNet
        Trunk g and head z.
    objective : Objective
        L_pred and L_gen.
    outer_rate, inner_rate : float
        Of the trunk and of the head.
    aux : {"step", "scaled", "solve"}
        How the auxiliary system is treated: the paper's step; steps scaled by the curvature;
        conjugate gradients on its positive semi-definite part.
    aux_rate : float
        Of the auxiliary variable ("step": as it is; "scaled": over the largest curvature).
    theta : float
        Moving-average parameter of h; 1 is the raw hypergradient.
    average_first : bool
        Whether h takes the new direction in before the outer step, not after as in the paper.
    outer_optimizer, inner_optimizer : {"adam", "sgd"}
        What is fed with h and with D_h.
    weight_decay : float
        Of the head; part of its Hessian.
    warm_steps : int
        First so many steps with the prediction loss alone.
    directions : callable
        Where the three directions come from.
    """

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
        self._outer = make_optimizer(self.trunk, outer_optimizer, outer_rate)
        self._inner = make_optimizer(self.head, inner_optimizer, inner_rate, weight_decay)
        self.aux, self.aux_rate, self.weight_decay = aux, aux_rate, weight_decay
        self.theta, self.average_first = theta, average_first
        self.w = [torch.zeros_like(p) for p in self.head]
        self.h = [torch.zeros_like(p) for p in self.trunk] if not self._raw else []
        self._power = [torch.full_like(p, 1.0 / p.numel() ** 0.5) for p in self.head]
        self._largest = torch.ones(len(self.head[0]), device=self.head[0].device)
        self._count = torch.zeros((), dtype=torch.int64)

    @property
    def _raw(self) -> bool:
        return self.theta == 1.0 and self.average_first

    def __call__(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """All directions at one iterate, then the updates."""
        self._outer.zero_grad(set_to_none=True)
        warm = self._count < self._warm_steps
        d = self._directions(self.net, x, y, self.w, self._plain if warm else self.objective)
        self._outer_step()
        _set_grads(self.head, d.inner)
        if not warm:
            with torch.no_grad():
                self._auxiliary_step(d.auxiliary, d.features, d.cotangents)
        self._inner.step()
        self._count += 1
        return {"loss": d.cotangents.loss.mean(), "distance": d.cotangents.distance.mean()}

    def _outer_step(self) -> None:
        """Line 7 and line 10: the outer step with h, and the moving average of D_g."""
        _match_strides(self.trunk)
        if self._raw:
            self._outer.step()
            return
        fresh = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.trunk]
        if self.average_first:
            torch._foreach_lerp_(self.h, fresh, self.theta)
        _set_grads(self.trunk, [h.clone() for h in self.h])  # a copy: the optimiser may change it
        self._outer.step()
        if not self.average_first:
            torch._foreach_lerp_(self.h, fresh, self.theta)

    def _auxiliary_step(self, direction: list[Tensor], features: Tensor, cot: Any) -> None:
        """Line 9: towards the solution of H w = grad_h L_gen."""
        if self.aux == "solve":
            assert isinstance(self.net.head, Head)
            damping = DAMPING / features.shape[1] + self.weight_decay
            system = GaussNewton(self.net.head, features, self.net.flat(cot.c), damping)
            right = system.right(self.net.flat(cot.v_distance), self.w)
            for w, found in zip(self.w, system.solve(right, self.w, ROUNDS), strict=True):
                w.copy_(found)
            return
        if self.weight_decay:
            torch._foreach_add_(direction, self.w, alpha=self.weight_decay)
        if self.aux == "step":
            torch._foreach_add_(self.w, direction, alpha=-self.aux_rate)
            return
        if self._count % CURVATURE_EVERY == 0:
            assert isinstance(self.net.head, Head)
            system = GaussNewton(self.net.head, features, self.net.flat(cot.c), self.weight_decay)
            largest, power = system.largest(self._power)
            self._largest.copy_(largest)
            for kept, found in zip(self._power, power, strict=True):
                kept.copy_(found)
        for w, d in zip(self.w, direction, strict=True):
            w -= (self.aux_rate / self._largest.clamp_min(1e-12)).view(-1, 1, 1) * d

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Outer and inner."""
        return {"outer": self._outer, "inner": self._inner}

    def tensors(self) -> dict[str, Tensor]:
        """The auxiliary variable, the moving average, the curvature estimate, the last t."""
        found = {f"w{i}": w for i, w in enumerate(self.w)}
        found |= {f"h{i}": h for i, h in enumerate(self.h)}
        found |= {f"power{i}": p for i, p in enumerate(self._power)}
        return found | {"largest": self._largest, "count": self._count}

    def diagnose(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """How well the auxiliary system is solved on this batch."""
        figures = {"warm": float(self._count <= self._warm_steps)}
        if isinstance(self.net.head, Head):
            figures["aux_residual"] = residual(self.net, x, y, self.w, self.objective)
        return figures

    def check(self) -> None:
        """Raise where the state has stopped being finite, naming the rate to lower."""
        _refuse_nonfinite(self.w, "the auxiliary variable", "aux_rate")
        _refuse_nonfinite(self.head, "the head", "inner_rate")
        _refuse_nonfinite(self.trunk, "the trunk", "learning_rate")
