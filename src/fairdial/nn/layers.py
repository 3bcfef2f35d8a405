"""What a network computes, as data: the layers from a row to its logit, in order.

A layer holds the weights of a stack of S nets and can be computed by torch or in an ONNX graph,
both in float64. These are methods of the layer, next to each other. :class:`StackedLinear` and
:class:`StackedNorm` are the modules that train them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from fairdial._arrays import Floats
from fairdial._onnx import Graph

ALL = slice(None)
NORM_EPSILON = 1e-5  # default of torch


@dataclass(frozen=True)
class Linear:
    """Multiply by a weight and add a bias."""

    weight: Tensor  # (S, n_in, n_out)
    bias: Tensor  # (S, 1, n_out)

    def run(self, x: Tensor) -> Tensor:
        """(S, n, n_in) -> (S, n, n_out)."""
        return torch.baddbmm(self.bias, x, self.weight)

    def add_nodes(self, graph: Graph, x: str) -> str:
        """(1 or S, n, n_in) -> (S, n, n_out)."""
        product = graph.op("MatMul", x, graph.constant(_array(self.weight)))
        return graph.op("Add", product, graph.constant(_array(self.bias)))


@dataclass(frozen=True)
class ReLU:
    """Replace negative numbers with 0."""

    def run(self, x: Tensor) -> Tensor:
        """(S, n, width), in place."""
        return x.relu_()

    def add_nodes(self, graph: Graph, x: str) -> str:
        """(S, n, width) -> (S, n, width)."""
        return graph.op("Relu", x)


@dataclass(frozen=True)
class LayerNorm:
    """Normalize over the last axis, then scale and shift."""

    weight: Tensor  # (S, 1, width)
    bias: Tensor  # (S, 1, width)

    def run(self, x: Tensor) -> Tensor:
        """(S, n, width) -> (S, n, width)."""
        normal = functional.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON)
        return torch.addcmul(self.bias, normal, self.weight)

    def add_nodes(self, graph: Graph, x: str) -> str:
        """(S, n, width) -> (S, n, width)."""
        axis = graph.integers([-1])
        centered = graph.op("Sub", x, graph.op("ReduceMean", x, axis))
        variance = graph.op("ReduceMean", graph.op("Mul", centered, centered), axis)
        deviation = graph.op("Sqrt", graph.op("Add", variance, graph.constant(NORM_EPSILON)))
        normal = graph.op("Div", centered, deviation)
        scaled = graph.op("Mul", normal, graph.constant(_array(self.weight)))
        return graph.op("Add", scaled, graph.constant(_array(self.bias)))


Layer: TypeAlias = Linear | ReLU | LayerNorm


def _array(tensor: Tensor) -> Floats:
    found: Floats = tensor.detach().cpu().double().numpy()
    return found


class StackedLinear(nn.Module):
    """One linear layer in each net of a stack."""

    def __init__(self, nets: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(n_in)  # torch.nn.Linear's own
        self.weight = nn.Parameter(_uniform((nets, n_in, n_out), bound, generator))
        self.bias = nn.Parameter(_uniform((nets, 1, n_out), bound, generator))

    def forward(self, x: Tensor, nets: slice = ALL) -> Tensor:
        """Map (S, B, n_in) to (S, B, n_out)."""
        return torch.baddbmm(self.bias[nets], x, self.weight[nets])

    def layer(self, nets: slice = ALL) -> Linear:
        """Return the layer as data."""
        return Linear(self.weight[nets].detach(), self.bias[nets].detach())


class StackedNorm(nn.Module):
    """One layer normalization in each net of a stack."""

    def __init__(self, nets: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(nets, 1, width))
        self.bias = nn.Parameter(torch.zeros(nets, 1, width))

    def forward(self, x: Tensor, nets: slice = ALL) -> Tensor:
        """Normalize (S, B, width) over the last axis."""
        normal = functional.layer_norm(x, x.shape[-1:])
        return torch.addcmul(self.bias[nets], normal, self.weight[nets])

    def layer(self, nets: slice = ALL) -> LayerNorm:
        """Return the layer as data."""
        return LayerNorm(self.weight[nets].detach(), self.bias[nets].detach())


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
