"""The processes that train together: one, or several that share every batch.

Training is data-parallel. Every process draws the same joint batch and takes its part of each
group's rows. Logits, directions and figures of the joint batch pass through a
:class:`ProcessGroup`, so all processes hold the same weights and do what one process would do with
the whole batch. For a single process every method is the identity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


class ProcessGroup(ABC):
    """The processes that train together, as seen by one of them."""

    rank: int
    size: int

    @property
    def is_main(self) -> bool:
        """Whether this process writes and shows results for all."""
        return self.rank == 0

    # ---- one step ------------------------------------------------------------------------------

    @abstractmethod
    def local_rows(self, joint: Tensor) -> Tensor:
        """Return this process's part of the joint batch, which is the last axis."""

    @abstractmethod
    def all_gather(self, part: Tensor, n: int) -> Tensor:
        """Return the joint batch of ``n`` (last axis), given each process's part."""

    @abstractmethod
    def all_sum(self, tensors: Sequence[Tensor], grads_of: nn.Module | None = None) -> list[Tensor]:
        """Return tensors summed over the processes, and sum a module's gradients in place."""

    @abstractmethod
    def forward(self, module: nn.Module, *inputs: Tensor) -> Tensor:
        """Run a module in training, with batch normalization over the joint batch."""

    @abstractmethod
    def backward(self, output: Tensor, cotangent: Tensor) -> None:
        """Backpropagate a cotangent from an output of :meth:`forward`."""

    # ---- a training ----------------------------------------------------------------------------

    @abstractmethod
    def start_batch(self, epoch: int, batch: int) -> None:
        """Note that a batch starts; raise in all processes if one was interrupted."""

    @abstractmethod
    def agreed_on(self, stop: KeyboardInterrupt) -> bool:
        """Return whether all processes were interrupted at the same place."""

    @abstractmethod
    def share_work(self, work: Iterable[T]) -> Iterable[T]:
        """Return this process's share of some pieces of work."""

    @abstractmethod
    def on_main(self, action: Callable[[], T]) -> T:
        """Run an action in the main process and return its result in all; it fails in all too."""

    @abstractmethod
    def gather_objects(self, item: T) -> list[T]:
        """Return every process's item, by rank."""

    @abstractmethod
    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Copy the main process's values into these tensors."""


class SingleProcess(ProcessGroup):
    """One process, which has nothing to share."""

    rank, size = 0, 1

    def local_rows(self, joint: Tensor) -> Tensor:
        """Return all rows."""
        return joint

    def all_gather(self, part: Tensor, n: int) -> Tensor:  # noqa: ARG002
        """Return the part, which is the whole."""
        return part

    def all_sum(
        self,
        tensors: Sequence[Tensor],
        grads_of: nn.Module | None = None,  # noqa: ARG002
    ) -> list[Tensor]:
        """Return the same tensors."""
        return tensors if isinstance(tensors, list) else list(tensors)

    def forward(self, module: nn.Module, *inputs: Tensor) -> Tensor:
        """Call the module."""
        output: Tensor = module(*inputs)
        return output

    def backward(self, output: Tensor, cotangent: Tensor) -> None:
        """Backpropagate."""
        torch.autograd.backward(output, cotangent)

    def start_batch(self, epoch: int, batch: int) -> None:
        """Do nothing."""

    def agreed_on(self, stop: KeyboardInterrupt) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def share_work(self, work: Iterable[T]) -> Iterable[T]:
        """Return all of it."""
        return work

    def on_main(self, action: Callable[[], T]) -> T:
        """Run the action."""
        return action()

    def gather_objects(self, item: T) -> list[T]:
        """Return the one item."""
        return [item]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Do nothing."""


SINGLE_PROCESS = SingleProcess()


def local_slice(n: int, rank: int, size: int) -> slice:
    """Return which of ``n`` rows a process takes, as evenly as integers allow.

    Examples
    --------
    >>> from fairdial.nn.process_group import local_slice
    >>> [local_slice(7, rank, 3) for rank in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    return slice(n * rank // size, n * (rank + 1) // size)
