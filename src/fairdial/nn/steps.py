"""One training step: plain (ERM), or GFB's bilevel one. The loop takes either."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fairdial.errors import DivergedError
from fairdial.nn.masoba import Directions, GaussNewton, Objective, directions, dot, residual
from fairdial.nn.nets import DialNet, Head, take_runs
from fairdial.nn.world import ALONE, World

FIRST_ROUNDS = 10  # power iterations before the first scaled step
CURVATURE_EVERY = 10  # steps between power iterations of aux="scaled"
ROUNDS = 12  # conjugate-gradient rounds of aux="solve"
DAMPING = 1e-4  # of the positive semi-definite system
TINY = 1e-30
LARGEST = 1e6  # a weight or auxiliary variable beyond this has diverged


def make_optimizer(parts: list[dict[str, Any]], name: str) -> torch.optim.Optimizer:
    """Adam or plain gradient descent, fused where the parameters allow it."""
    params = [p for part in parts for p in part["params"]]
    fused = all(p.is_contiguous() and p.is_floating_point() for p in params)
    if name == "adam":
        return torch.optim.Adam(parts, fused=fused)
    return torch.optim.SGD(parts, fused=fused)


def set_grads(params: list[nn.Parameter], grads: list[Tensor]) -> None:
    """What the optimiser will take for gradients."""
    for p, g in zip(params, grads, strict=True):
        p.grad = g


def match_strides(params: list[nn.Parameter]) -> None:
    """Fused optimisers are silently wrong where a gradient's strides differ from its weight's."""
    for p in params:
        if p.grad is not None and p.grad.stride() != p.stride():
            p.grad = torch.empty_like(p).copy_(p.grad)


class Losses(Protocol):
    """Tells the losses of logits, for the record."""

    def losses(self, logits: Tensor, y: Tensor, runs: int = 1) -> dict[str, Tensor]:
        """By name: one number, or one for each of several runs."""


class Step(ABC):
    """Changes the net by one batch."""

    net: DialNet

    objective: Losses

    world: World = ALONE  # the processes that take this step together

    @abstractmethod
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Take one step; gives the logits (M, G, B) before it.

        With several processes, x is this one's part of the joint batch and y all its labels.
        """

    @abstractmethod
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """By name, for checkpoints."""

    def state(self) -> dict[str, Tensor]:
        """What a run that goes on needs besides net and optimisers."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:  # noqa: B027
        """Go on from :meth:`state`; nothing to do where that is empty."""

    def diagnose(self, x: Tensor, y: Tensor) -> dict[str, float]:  # noqa: ARG002
        """Figures of the inner workings, once an epoch."""
        return {}

    def keep(self, runs: Sequence[int]) -> None:
        """Go on with some of the net's runs only."""
        before = self.net.runs
        self.net.keep(runs)
        for optimizer in self.optimizers().values():
            for entries in optimizer.state.values():
                for name, value in entries.items():
                    if isinstance(value, Tensor) and value.ndim:
                        entries[name] = take_runs(value, before, runs)

    def check(self) -> None:
        """Raise where the state has stopped being finite."""
        refuse_nonfinite(self.net.parameters(), "the network", "learning_rate")


def refuse_nonfinite(tensors: Any, what: str, rate: str) -> None:
    """Raise where a tensor holds values that are not finite, or beyond all measure."""
    for tensor in tensors:
        largest = float(tensor.detach().abs().max()) if tensor.numel() else 0.0
        if not largest < LARGEST:
            raise DivergedError(
                f"training diverged: {what} holds values of size {largest:.3g}. Lower `{rate}`."
            )


class PlainStep(Step):
    """Empirical risk minimisation: eq:l_pred in every group, all weights at once."""

    objective: Objective

    def __init__(
        self, net: DialNet, objective: Objective, *, rate: float, weight_decay: float = 0.0
    ) -> None:
        self.net, self.objective = net, objective
        self._params = list(net.parameters())
        trunk = {"params": list(net.trunk.parameters()), "lr": rate}
        head = {"params": list(net.head.parameters()), "lr": rate, "weight_decay": weight_decay}
        self._optimizer = make_optimizer([trunk, head], "adam")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """One gradient step."""
        self._optimizer.zero_grad(set_to_none=True)
        logits = self.world.run(self.net, x)
        joint = self.world.gather(logits.detach(), y.shape[-1])
        self.world.pull(logits, self.world.mine(self.objective.prediction(joint, y)[0]))
        self.world.sum([], grads_of=self.net)
        match_strides(self._params)
        self._optimizer.step()
        return joint

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """One for everything."""
        return {"all": self._optimizer}


class BilevelStep(Step):
    """MA-SOBA on trunk and head (alg:proposed, lines 5 to 10).

    Parameters
    ----------
    net : DialNet
        Trunk g and head z.
    objective : Objective
        L_pred and L_gen.
    outer_rate, inner_rate : float
        Of the trunk and of the head.
    aux : {"step", "scaled", "solve"}
        How the auxiliary system is treated: the paper's step; or, on its positive semi-definite
        part and for the distance loss alone, steps scaled by the curvature or conjugate gradients.
    aux_rate : float
        Of the auxiliary variable ("step": as it is; "scaled": over the largest curvature).
    theta : float
        Moving-average parameter of h; 1 is the raw hypergradient.
    average_first : bool
        Whether h takes the new direction in before the outer step, not after as in the paper.
    outer_optimizer, inner_optimizer : {"adam", "sgd"}
        What is fed with h and with D_z.
    weight_decay : float
        Of the head; part of its Hessian.
    warm_steps : int
        First so many steps with the prediction loss alone.
    directions : callable
        Where the three directions come from.
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
        if outer_optimizer == inner_optimizer:  # one call for both: all directions are taken first
            self._optimizers = {"both": make_optimizer([outer, inner], outer_optimizer)}
        else:
            self._optimizers = {
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
        """All directions at one iterate, then the updates (lines 7 to 10)."""
        for p in self.trunk:
            p.grad = None
        warm = self._count < self._warm_steps
        objective = self._plain if warm else self.objective
        d = self._directions(self.net, x, y, self.w, objective, self.world)
        match_strides(self.trunk)
        fresh = self._average()
        set_grads(self.head, d.inner)
        if not warm:
            with torch.no_grad():
                self._auxiliary_step(d)
        for optimizer in self._optimizers.values():
            optimizer.step()
        if fresh:
            torch._foreach_lerp_(self.h, fresh, self.theta)
        self._count += 1
        return d.logits

    def _average(self) -> list[Tensor] | None:
        """Put h (eq:h) where the outer step looks; D_g back if h is to take it in afterwards."""
        if self._raw:
            return None
        fresh = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.trunk]
        if self.average_first:
            torch._foreach_lerp_(self.h, fresh, self.theta)
        set_grads(self.trunk, [h.clone() for h in self.h])  # a copy: the optimiser may change it
        return None if self.average_first else fresh

    @property
    def _damping(self) -> float:
        return self.weight_decay + (0.0 if self.aux == "step" else DAMPING)

    def _auxiliary_step(self, d: Directions) -> None:
        """Line 9: towards the solution of H w = grad_z L_gen; "step" is that of eq:w."""
        if self.aux == "step":
            for w, step in zip(self.w, d.auxiliary, strict=True):
                step.add_(w, alpha=self._damping)
                w.add_(step, alpha=-self.aux_rate)
            return
        head, right = self.net.head, self.net.flat(d.cotangents.v_distance)
        assert isinstance(head, Head)
        c = self.net.flat(d.cotangents.c)
        system = GaussNewton(head, d.features, c, self._damping, self.world)
        if self.aux == "solve":
            found = system.solve(right, self.w, ROUNDS, d.tangent)
        else:
            first = self._count == self._warm_steps
            if first or self._count % CURVATURE_EVERY == 0:
                rounds = FIRST_ROUNDS if first else 1
                self._largest, self._power = system.largest(self._power, rounds)
            off = system.off(self.w, right, d.tangent)
            best = dot(off, off) / dot(off, system(off)).clamp_min(TINY)  # exact line search
            rate = torch.minimum(self.aux_rate / self._largest, best).view(-1, 1, 1)
            found = [w - rate * o for w, o in zip(self.w, off, strict=True)]
        for w, new in zip(self.w, found, strict=True):
            w.copy_(new)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Of trunk and head."""
        return self._optimizers

    def state(self) -> dict[str, Tensor]:
        """The auxiliary variable, the moving average, the curvature estimate, the last t."""
        found = {"count": torch.tensor(self._count), "largest": self._largest}
        if self.objective.t is not None:
            found["t"] = torch.from_numpy(self.objective.t)
        for name, tensors in (("w", self.w), ("h", self.h), ("power", self._power)):
            found |= {f"{name}{i}": tensor for i, tensor in enumerate(tensors)}
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from :meth:`state`."""
        self._count = int(state["count"])
        self._largest = state["largest"]
        self.objective.t = state["t"].numpy() if "t" in state else None
        for name, tensors in (("w", self.w), ("h", self.h), ("power", self._power)):
            for i, tensor in enumerate(tensors):
                tensor.copy_(state[f"{name}{i}"])

    def diagnose(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """How well the auxiliary system is solved on this batch; NaN before it is looked at."""
        warm = self._count <= self._warm_steps
        figures = {"warm": float(warm)}
        if warm and isinstance(self.net.head, Head):
            figures["aux_residual"] = math.nan
        elif isinstance(self.net.head, Head):
            self.net.eval()  # batch normalisation has seen this batch; no dropout in a figure
            figures["aux_residual"] = residual(
                self.net,
                x,
                y,
                self.w,
                self.objective,
                damping=self._damping,
                exact=self.aux == "step",
                world=self.world,
            )
            self.net.train()
        return figures

    def check(self) -> None:
        """Raise where the state has stopped being finite, naming the rate to lower."""
        rates = "aux_rate` or `learning_rate` (or `head_rate"
        if all(float(p.detach().abs().max()) < LARGEST for p in self.trunk + self.head):
            rates = "aux_rate"
        refuse_nonfinite(self.w, "the auxiliary variable", rates)
        refuse_nonfinite(self.head, "the head", "head_rate` or `learning_rate")
        refuse_nonfinite(self.trunk, "the trunk", "learning_rate")
