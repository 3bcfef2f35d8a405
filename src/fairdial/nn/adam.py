"""Adam, as a call of PyTorch's fused kernel.

``torch.optim.Adam`` calls the same kernel, but imports ``torch._dynamo`` first, which takes longer
than many a fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

DEFAULTS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam:
    """Adam with the attributes and the state of ``torch.optim.Adam(..., fused=True)``.

    Parameters
    ----------
    params : iterable of Parameter or of dict
        Contiguous parameters, or groups of them with options of their own.
    lr : float
        Learning rate of groups without one.

    Examples
    --------
    >>> import torch
    >>> from fairdial.nn.adam import Adam
    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> weight.grad = torch.tensor([1.0, -1.0])
    >>> Adam([weight], lr=0.1).step()
    >>> weight.detach()
    tensor([0.9000, 1.1000])
    """

    def __init__(
        self, params: Iterable[nn.Parameter] | Iterable[dict[str, Any]], lr: float = 1e-3
    ) -> None:
        given: list[Any] = list(params)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        self.param_groups = [
            {**DEFAULTS, "lr": lr, **group, "params": list(group["params"])} for group in groups
        ]
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}

    def _parameters(self) -> Iterable[nn.Parameter]:
        return chain.from_iterable(group["params"] for group in self.param_groups)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, or set them to zero."""
        for p in self._parameters():
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            kinds: dict[tuple[torch.device, torch.dtype], list[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    kinds.setdefault((p.device, p.dtype), []).append(p)
            for params in kinds.values():
                self._update(params, group)

    def _update(self, params: list[nn.Parameter], group: Mapping[str, Any]) -> None:
        for p in params:
            if p not in self.state:
                step = torch.zeros((), dtype=torch.float32, device=p.device)
                self.state[p] = {"step": step, **{name: torch.zeros_like(p) for name in MOMENTS}}
        weights: list[Tensor] = [*params]
        states = [self.state[p] for p in params]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            weights,
            [p.grad for p in params if p.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            amsgrad=False,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
            grad_scale=None,
            found_inf=None,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state by the place of each parameter, and the options of the groups."""
        state = {i: self.state[p] for i, p in enumerate(self._parameters()) if p in self.state}
        groups = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for group, options in zip(self.param_groups, found["param_groups"], strict=True):
            group.update({name: value for name, value in options.items() if name != "params"})
        self.state = {
            p: {name: value.to(p.device) for name, value in found["state"][i].items()}
            for i, p in enumerate(self._parameters())
            if i in found["state"]
        }
