"""One process, or several that train together: what a training step sees of it.

Data-parallel: every process draws the same joint batch and takes its part of each group's rows.
What belongs to the joint batch (logits, directions, figures) passes through a :class:`World`, so
that all processes hold the same weights and do what one would do with the whole batch. For one
process alone every method is the identity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


class World(ABC):
    """The processes of a training, as one of them sees them."""

    rank: int
    size: int

    @property
    def is_main(self) -> bool:
        """Whether this process writes and shows what all have done."""
        return self.rank == 0

    # ---- one step ------------------------------------------------------------------------------

    @abstractmethod
    def mine(self, joint: Tensor) -> Tensor:
        """Of the joint batch, which is the last axis, the part that is this process's."""

    @abstractmethod
    def gather(self, part: Tensor, n: int) -> Tensor:
        """The joint batch of ``n`` (last axis) from every process's part of it."""

    @abstractmethod
    def sum(self, tensors: Sequence[Tensor], grads_of: nn.Module | None = None) -> list[Tensor]:
        """Tensors summed over the processes; and, in place, the gradients of a module."""

    @abstractmethod
    def run(self, module: nn.Module, *inputs: Tensor) -> Any:
        """A training forward; batch normalisation sees the joint batch."""

    @abstractmethod
    def pull(self, output: Tensor, cotangent: Tensor) -> None:
        """``output.backward(cotangent)``, for an output of :meth:`run`."""

    # ---- a training ----------------------------------------------------------------------------

    @abstractmethod
    def begin(self, epoch: int, batch: int) -> None:
        """A batch begins; an interrupt of one process is raised in all."""

    @abstractmethod
    def allows(self, stop: KeyboardInterrupt) -> bool:
        """Whether one may go on after this interrupt: all processes have it at the same place."""

    @abstractmethod
    def share_out(self, work: Iterable[T]) -> Iterable[T]:
        """Of some pieces of work, those that are this process's."""

    @abstractmethod
    def lead(self, action: Callable[[], T]) -> T:
        """What the main process's action gives, in all; its failure ends all."""

    @abstractmethod
    def collect(self, thing: Any) -> list[Any]:
        """One thing of every process, by rank."""

    @abstractmethod
    def spread(self, tensors: Iterable[Tensor]) -> None:
        """The main process's values into everybody's tensors."""


class Alone(World):
    """One process: nothing to share."""

    rank, size = 0, 1

    def mine(self, joint: Tensor) -> Tensor:
        """All of it."""
        return joint

    def gather(self, part: Tensor, n: int) -> Tensor:  # noqa: ARG002
        """The part is the whole."""
        return part

    def sum(
        self,
        tensors: Sequence[Tensor],
        grads_of: nn.Module | None = None,  # noqa: ARG002
    ) -> list[Tensor]:
        """The same tensors."""
        return tensors if isinstance(tensors, list) else list(tensors)

    def run(self, module: nn.Module, *inputs: Tensor) -> Any:
        """A forward."""
        return module(*inputs)

    def pull(self, output: Tensor, cotangent: Tensor) -> None:
        """A backward."""
        torch.autograd.backward(output, cotangent)

    def begin(self, epoch: int, batch: int) -> None:
        """Nothing to agree on."""

    def allows(self, stop: KeyboardInterrupt) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def share_out(self, work: Iterable[T]) -> Iterable[T]:
        """All of it."""
        return work

    def lead(self, action: Callable[[], T]) -> T:
        """What the action gives."""
        return action()

    def collect(self, thing: Any) -> list[Any]:
        """The one thing."""
        return [thing]

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """They are the main process's already."""


ALONE = Alone()


def part_of(n: int, rank: int, size: int) -> slice:
    """Which of ``n`` rows a process takes: as even as whole numbers allow.

    Examples
    --------
    >>> from fairdial.nn.world import part_of
    >>> [part_of(7, rank, 3) for rank in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    return slice(n * rank // size, n * (rank + 1) // size)
