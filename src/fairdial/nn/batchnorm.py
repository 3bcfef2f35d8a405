"""Batch normalisation of a joint batch whose rows lie in several processes.

torch's own ``SyncBatchNorm`` needs CUDA. Here the function behind every layer of batch
normalisation is replaced while a forward runs, so that layers stay as they are: class, weights,
running figures, names. It is replaced while the backward runs, too: checkpointed layers
(``torch.utils.checkpoint``) run forward once more there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fairdial.nn.world import World

TAKES_EDGES = "Edge" in str(inspect.signature(torch.autograd.backward))


class Moments(NamedTuple):
    """Of every channel of the joint batch."""

    mean: Tensor  # (C,)
    squares: Tensor  # (C,): squared deviations from the mean, summed
    n: Tensor  # (): values


class JointBatchNorm(TorchFunctionMode):
    """While it is entered, training batch normalisation is that of the joint batch.

    Parameters
    ----------
    world : World
        The processes that hold the rows.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Every function of torch as it is, but for one."""
        kwargs = kwargs or {}
        if func is functional.batch_norm:
            return self._batch_norm(*args, **kwargs)
        if func is torch.batch_norm:  # the same with its arguments in another order
            return self._of_torch(*args, **kwargs)
        return func(*args, **kwargs)

    def pull(self, output: Tensor, cotangent: Tensor) -> None:
        """``output.backward(cotangent)`` with this mode inside of it.

        A mode is left while a function of tensors that it sees runs, and recent versions of torch
        show it ``backward``; with the output's edge in the graph there is no tensor to be seen.
        """
        root: Any = torch.autograd.graph.get_gradient_edge(output) if TAKES_EDGES else output
        with self:
            torch.autograd.backward(root, cotangent)

    def _of_torch(
        self,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
        cudnn_enabled: bool,  # noqa: ARG002
    ) -> Tensor:
        """As ``torch.batch_norm``, whose arguments these are."""
        return self._batch_norm(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )

    def _batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """As ``torch.nn.functional.batch_norm``, whose arguments these are."""
        if not training:
            return functional.batch_norm(
                x, running_mean, running_var, weight, bias, False, momentum, eps
            )
        moments = joint_moments(x, self.world)
        with torch.no_grad():
            if running_mean is not None:
                running_mean.lerp_(moments.mean.to(running_mean), momentum)
            if running_var is not None:  # the unbiased one, as torch has it
                unbiased = moments.squares / (moments.n - 1.0)
                running_var.lerp_(unbiased.to(running_var), momentum)
        apply: Callable[..., Tensor] = _Normalise.apply
        return apply(x, weight, bias, moments, eps, self.world)


@torch.no_grad()
def joint_moments(x: Tensor, world: World) -> Moments:
    """Moments of rows (B, C, ...) over the rows of all processes, from those of each."""
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    dims, shape = _channels(x)
    mean = x.mean(dims)
    squares = (x - mean.view(shape)).square_().sum(dims)  # torch.var_mean is slower
    count = x.new_full((1,), x.numel() // x.shape[1])
    mine = torch.cat((mean, squares, count))  # (2C + 1,)
    each = world.gather(mine[:, None], world.size)  # (2C + 1, processes)
    means, spreads, counts = torch.split(each, [len(mean), len(mean), 1])
    total = counts.sum()
    joint = (means * counts).sum(dim=1) / total
    apart = (counts * (means - joint[:, None]) ** 2).sum(dim=1)
    return Moments(joint, spreads.sum(dim=1) + apart, total)


class _Normalise(torch.autograd.Function):
    """Normalised rows; the gradient goes through the joint moments too."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        moments: Moments,
        eps: float,
        world: World,
    ) -> Tensor:
        mean, var = moments.mean, moments.squares / moments.n
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(var + eps), moments.n)
        ctx.world = world
        return functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, n = ctx.saved_tensors
        dims, shape = _channels(x)
        apart = x - mean.view(shape)
        by_bias, by_weight = dy.sum(dims), (dy * apart).sum(dims) * scale  # of these rows alone
        dx = None
        if ctx.needs_input_grad[0]:
            (both,) = ctx.world.sum([torch.stack((by_bias, by_weight)) / n])
            slope = scale if weight is None else scale * weight
            level, tilt = slope * both[0], slope * scale * both[1]
            dx = apart.mul_(-tilt.view(shape)).sub_(level.view(shape))
            dx = dx.addcmul_(dy, slope.view(shape))
        _, scaled, shifted, *_ = ctx.needs_input_grad
        others = (None, None, None)  # moments, eps, world
        return dx, by_weight if scaled else None, by_bias if shifted else None, *others


def _channels(x: Tensor) -> tuple[list[int], tuple[int, ...]]:
    """The axes that are not channels, and the shape in which channels meet them."""
    return [axis for axis in range(x.ndim) if axis != 1], (1, -1, *[1] * (x.ndim - 2))
