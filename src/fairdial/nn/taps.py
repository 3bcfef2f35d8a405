"""Convolutions of small maps as matrix products, one for each weight of the kernel (tap).

At the end of a ResNet, maps have few points, and more than half of a padded 3 x 3 convolution's
products are with padding. Here they are left out. Maps are position-major, (h, w, n, channels), so
that the points a tap reads are rows of a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Points = tuple[slice, slice]  # of a map


class TapConv(nn.Module):
    """A convolution without bias, padded so that stride 1 keeps the size of maps.

    Computes in bfloat16 under autocast; sums over taps are float32.

    Parameters
    ----------
    like : Conv2d
        The convolution whose weights it copies.

    Examples
    --------
    >>> import torch
    >>> from fairdial.nn.taps import TapConv
    >>> conv = torch.nn.Conv2d(3, 5, 3, stride=2, padding=1, bias=False)
    >>> x = torch.randn(7, 3, 4, 4)
    >>> y = TapConv(conv)(x.permute(2, 3, 0, 1))  # (h, w, n, channels)
    >>> torch.allclose(y.permute(2, 3, 0, 1), conv(x), atol=1e-5)
    True
    """

    def __init__(self, like: nn.Conv2d) -> None:
        super().__init__()
        self.side, self.stride = like.kernel_size[0], like.stride[0]
        weight = like.weight.detach().flatten(2).permute(2, 0, 1)
        self.weight = nn.Parameter(weight.contiguous())  # (side^2, out, in)

    def forward(self, x: Tensor) -> Tensor:
        """Map (h, w, n, in) to (h', w', n, out)."""
        apply: Callable[..., Tensor] = _Taps.apply
        reduced = torch.is_autocast_enabled(x.device.type)
        return apply(x, self.weight, self.side, self.stride, reduced)


class _Taps(torch.autograd.Function):
    """Sum the taps' products, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, side: int, stride: int, reduced: bool
    ) -> Tensor:
        dtype = torch.bfloat16 if reduced else x.dtype
        low, taps = x.to(dtype), weight.to(dtype)
        ctx.save_for_backward(low, taps)
        ctx.side, ctx.stride = side, stride
        height, width = (-(-n // stride) for n in x.shape[:2])
        y = x.new_empty(height, width, x.shape[2], weight.shape[1])
        for i, (tap, read, written) in enumerate(points_of_taps(x.shape[:2], side, stride)):
            found = (low[read].flatten(0, 2) @ taps[tap].t()).view(y[written].shape)
            _put(y, written, found, first=i == 0)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, taps = ctx.saved_tensors
        g = dy.to(x.dtype)
        dx = torch.empty_like(x, dtype=dy.dtype) if ctx.needs_input_grad[0] else None
        if dx is not None and ctx.stride > 1:
            dx.zero_()
        used = list(points_of_taps(x.shape[:2], ctx.side, ctx.stride))
        by_weight = torch.empty_like(taps, dtype=dy.dtype)
        if len(used) < len(taps):
            by_weight.zero_()
        for i, (tap, read, written) in enumerate(used):
            rows = g[written].flatten(0, 2)
            if dx is not None:
                found = (rows @ taps[tap]).view(dx[read].shape)
                _put(dx, read, found, first=i == 0 and ctx.stride == 1)
            by_weight[tap] = rows.t() @ x[read].flatten(0, 2)
        return dx, by_weight, None, None, None


def _put(maps: Tensor, points: Points, found: Tensor, *, first: bool) -> None:
    """Add to some points of maps; the first tap, which has all points, overwrites them."""
    if first:
        maps[points] = found
    else:
        maps[points] += found


def points_of_taps(
    size: tuple[int, ...], side: int, stride: int
) -> Iterator[tuple[int, Points, Points]]:
    """Yield each tap's number, the points that it reads and those that it adds to.

    The middle tap, which adds to all points, comes first.

    Examples
    --------
    >>> from fairdial.nn.taps import points_of_taps
    >>> len(list(points_of_taps((2, 2), 3, 1))), len(list(points_of_taps((1, 1), 3, 1)))
    (9, 1)
    """
    middle = side // 2
    for y, x in sorted(product(range(side), repeat=2), key=lambda at: at != (middle, middle)):
        found = [_points(n, at - middle, stride) for n, at in zip(size, (y, x), strict=True)]
        if all(found):
            (read_y, written_y), (read_x, written_x) = found  # type: ignore[misc]
            yield y * side + x, (read_y, read_x), (written_y, written_x)


def _points(n: int, shift: int, stride: int) -> tuple[slice, slice] | None:
    """Return what a tap reads and writes along one axis of n points; None if it is all padding."""
    written = [i for i in range(-(-n // stride)) if 0 <= i * stride + shift < n]
    if not written:
        return None
    first, last = written[0], written[-1]
    read = slice(first * stride + shift, last * stride + shift + 1, stride)
    return read, slice(first, last + 1)
