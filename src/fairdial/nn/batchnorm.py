"""Batch normalization of a joint batch whose rows are spread over several processes.

torch's own ``SyncBatchNorm`` needs CUDA. Here the function behind every batch normalization layer
is replaced during the forward pass, so the layers themselves stay as they are: class, weights,
running statistics, names. It is also replaced during the backward pass, where checkpointed layers
(``torch.utils.checkpoint``) run forward once more.
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

from fairdial.nn.process_group import ProcessGroup

TAKES_EDGES = "Edge" in str(inspect.signature(torch.autograd.backward))


class Moments(NamedTuple):
    """Moments of every channel of the joint batch."""

    mean: Tensor  # (C,)
    squares: Tensor  # (C,): sum of squared deviations from the mean
    n: Tensor  # (): number of values


class JointBatchNorm(TorchFunctionMode):
    """Context in which training batch normalization is that of the joint batch.

    Parameters
    ----------
    processes : ProcessGroup
        The processes that hold the rows.
    """

    def __init__(self, processes: ProcessGroup) -> None:
        super().__init__()
        self.processes = processes

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace batch normalization; call every other function as it is."""
        kwargs = kwargs or {}
        if func is functional.batch_norm:
            return self._batch_norm(*args, **kwargs)
        if func is torch.batch_norm:  # the same with its arguments in another order
            return self._of_torch(*args, **kwargs)
        return func(*args, **kwargs)

    def backward(self, output: Tensor, cotangent: Tensor) -> None:
        """Backpropagate a cotangent with this mode active.

        torch leaves a mode while it handles a function of tensors, and recent versions of torch
        count ``backward`` among them; given the output's gradient edge, there is no tensor to see.
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
        """Take the arguments of ``torch.batch_norm``."""
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
        """Take the arguments of ``torch.nn.functional.batch_norm``."""
        if not training:
            return functional.batch_norm(
                x, running_mean, running_var, weight, bias, False, momentum, eps
            )
        moments = joint_moments(x, self.processes)
        with torch.no_grad():
            if running_mean is not None:
                running_mean.lerp_(moments.mean.to(running_mean), momentum)
            if running_var is not None:  # unbiased, as in torch
                unbiased = moments.squares / (moments.n - 1.0)
                running_var.lerp_(unbiased.to(running_var), momentum)
        apply: Callable[..., Tensor] = _Normalize.apply
        return apply(x, weight, bias, moments, eps, self.processes)


@torch.no_grad()
def joint_moments(x: Tensor, processes: ProcessGroup) -> Moments:
    """Return the moments of rows (B, C, ...) over all processes, from those of each."""
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    dims, shape = _channels(x)
    mean = x.mean(dims)
    squares = (x - mean.view(shape)).square_().sum(dims)  # torch.var_mean is slower
    count = x.new_full((1,), x.numel() // x.shape[1])
    own = torch.cat((mean, squares, count))  # (2C + 1,)
    each = processes.all_gather(own[:, None], processes.size)  # (2C + 1, processes)
    means, spreads, counts = torch.split(each, [len(mean), len(mean), 1])
    total = counts.sum()
    joint = (means * counts).sum(dim=1) / total
    apart = (counts * (means - joint[:, None]) ** 2).sum(dim=1)
    return Moments(joint, spreads.sum(dim=1) + apart, total)


class _Normalize(torch.autograd.Function):
    """Normalize rows; the gradient goes through the joint moments too."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        moments: Moments,
        eps: float,
        processes: ProcessGroup,
    ) -> Tensor:
        mean, var = moments.mean, moments.squares / moments.n
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(var + eps), moments.n)
        ctx.processes = processes
        return functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, n = ctx.saved_tensors
        dims, shape = _channels(x)
        apart = x - mean.view(shape)
        by_bias, by_weight = dy.sum(dims), (dy * apart).sum(dims) * scale  # of this process's rows
        dx = None
        if ctx.needs_input_grad[0]:
            (both,) = ctx.processes.all_sum([torch.stack((by_bias, by_weight)) / n])
            slope = scale if weight is None else scale * weight
            level, tilt = slope * both[0], slope * scale * both[1]
            dx = apart.mul_(-tilt.view(shape)).sub_(level.view(shape))
            dx = dx.addcmul_(dy, slope.view(shape))
        _, scaled, shifted, *_ = ctx.needs_input_grad
        others = (None, None, None)  # of moments, eps, processes
        return dx, by_weight if scaled else None, by_bias if shifted else None, *others


def _channels(x: Tensor) -> tuple[list[int], tuple[int, ...]]:
    """Return the axes other than channels, and the shape that broadcasts channels over them."""
    return [axis for axis in range(x.ndim) if axis != 1], (1, -1, *[1] * (x.ndim - 2))
