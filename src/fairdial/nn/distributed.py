"""Several processes that train together: torch.distributed behind :class:`ProcessGroup`.

Each training opens its own process group within the one that the user (or torchrun) started. If it
fails in one process, that process closes the training's group: the others, which wait for a message
that will never come, fail at once, and the user's group stays usable.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fairdial._validation import requested_processes
from fairdial.errors import DistributedError, InvalidInputError
from fairdial.nn.batchnorm import JointBatchNorm
from fairdial.nn.process_group import SINGLE_PROCESS, ProcessGroup, T, local_slice

TIMEOUT = 600.0  # seconds that a process waits for the others
AGREE_EVERY = 8  # batches between checks for an interrupt in any process


class ProcessRank(NamedTuple):
    """Rank of this process among those that were started together."""

    rank: int
    size: int

    @property
    def is_main(self) -> bool:
        """Whether this process writes the output for all."""
        return self.rank == 0


def process_rank() -> ProcessRank:
    """Return the rank of this process and the number of processes; (0, 1) without a process group.

    Examples
    --------
    >>> from fairdial.nn.distributed import process_rank
    >>> process_rank()
    ProcessRank(rank=0, size=1)
    """
    if dist.is_available() and dist.is_initialized():
        return ProcessRank(dist.get_rank(), dist.get_world_size())
    return ProcessRank(0, 1)


@contextmanager
def process_group(timeout: float = TIMEOUT) -> Iterator[ProcessRank]:
    """Open the process group that torchrun's environment describes, while the block runs.

    Does nothing in a process that was started alone or already has a process group. Tensors on the
    CPU use Gloo and tensors on CUDA use NCCL; on CUDA, this process takes the device of its
    ``LOCAL_RANK``.

    Parameters
    ----------
    timeout : float
        Seconds that a process waits for the others before it gives up.

    Examples
    --------
    >>> from fairdial.nn.distributed import process_group
    >>> with process_group() as started:  # as many processes as torchrun started
    ...     started.is_main
    True
    """
    started = dist.is_available() and dist.is_initialized()
    if started or requested_processes() == 1:
        yield process_rank()
        return
    _take_device()
    limit = timedelta(seconds=timeout)
    try:
        _run_collective(lambda: dist.init_process_group(_backend(), timeout=limit), "at the start")
    except ValueError as error:
        raise InvalidInputError(
            "WORLD_SIZE", f"come with the rest of torchrun's environment ({error})"
        ) from error
    try:
        yield process_rank()
    finally:
        dist.destroy_process_group()


def _take_device() -> None:
    """Give each process of a machine its own CUDA device, if there are any."""
    if not torch.cuda.is_available():
        return
    local, devices = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= devices:
        raise InvalidInputError(
            "nproc-per-node", f"be at most the number of CUDA devices, {devices}", given=local + 1
        )
    torch.cuda.set_device(local)


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


@contextmanager
def training_processes() -> Iterator[ProcessGroup]:
    """Join the processes of one training: all that there are, or this one alone."""
    if process_rank().size == 1:
        yield SINGLE_PROCESS
        return
    processes = TorchProcessGroup()
    try:
        with _held_interrupts(processes):
            yield processes
    finally:
        processes.close()


class TorchProcessGroup(ProcessGroup):
    """Processes that train together, in their own process group.

    Every process must make the same calls in the same order: all methods except
    :meth:`local_rows` and :meth:`share_work` wait for the others.
    """

    def __init__(self) -> None:
        self.rank, self.size = process_rank()
        self._place, self.interrupted = "the start", False
        if dist.get_backend() == "gloo":  # notice now, not later, if a process has ended
            self._call(lambda: dist.all_reduce(torch.zeros(1)))
        self._group: Any = self._call(lambda: dist.new_group(None, _timeout(), _backend()))

    def close(self) -> None:
        """Leave the group; processes that still wait for this one fail."""
        dist.destroy_process_group(self._group)
        self._group = None  # dropping the last reference closes the connections

    def _call(self, collective: Callable[[], T]) -> T:
        return _run_collective(collective, f"process {self.rank} of {self.size} at {self._place}")

    # ---- one step ------------------------------------------------------------------------------

    def local_rows(self, joint: Tensor) -> Tensor:
        """Return this process's slice of the last axis."""
        return joint[..., local_slice(joint.shape[-1], self.rank, self.size)]

    def all_gather(self, part: Tensor, n: int) -> Tensor:
        """Place this part among zeros and sum over the processes, as parts may be uneven."""
        joint = part.new_zeros(*part.shape[:-1], n)
        self.local_rows(joint).copy_(part)
        self._call(lambda: dist.all_reduce(joint, group=self._group))
        return joint

    @torch.no_grad()
    def all_sum(self, tensors: Sequence[Tensor], grads_of: nn.Module | None = None) -> list[Tensor]:
        """Sum everything in one message; an unused weight has a gradient of 0."""
        params = [] if grads_of is None else [p for p in grads_of.parameters() if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
        every = [*tensors, *grads]
        flat = torch.cat([tensor.reshape(-1) for tensor in every])
        self._call(lambda: dist.all_reduce(flat, group=self._group))
        parts = torch.split(flat, [tensor.numel() for tensor in every])
        summed = [p.view(t.shape).to(t.dtype) for p, t in zip(parts, every, strict=True)]
        for p, grad in zip(params, summed[len(tensors) :], strict=True):
            p.grad = grad
        return summed[: len(tensors)]

    def forward(self, module: nn.Module, *inputs: Tensor) -> Tensor:
        """Run a module, with the moments of the joint batch."""
        with JointBatchNorm(self):
            output: Tensor = module(*inputs)
        return output

    def backward(self, output: Tensor, cotangent: Tensor) -> None:
        """Backpropagate; the forward of a checkpointed layer sees the joint moments too."""
        JointBatchNorm(self).backward(output, cotangent)

    # ---- a training ----------------------------------------------------------------------------

    def start_batch(self, epoch: int, batch: int) -> None:
        """Note where this process is; every few batches, check whether one was interrupted."""
        self._place = f"epoch {epoch}, batch {batch + 1}"
        if batch % AGREE_EVERY == 0:
            asked = torch.tensor([float(self.interrupted)])
            self._call(lambda: dist.all_reduce(asked, group=self._group))
            if asked.item() > 0:
                self.interrupted = False
                raise AgreedInterrupt

    def interrupt(self) -> None:
        """Stop with the others at the next check; a second interrupt stops at once."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def agreed_on(self, stop: KeyboardInterrupt) -> bool:
        """Return whether the others were interrupted too."""
        return isinstance(stop, AgreedInterrupt)

    def share_work(self, work: Iterable[T]) -> Iterable[T]:
        """Return every ``size``-th piece."""
        return islice(work, self.rank, None, self.size)

    def on_main(self, action: Callable[[], T]) -> T:
        """Run the action in the main process; the others wait for its result."""
        if not self.is_main:
            result, error = self._from_main(None)
            if error is None:
                return result  # type: ignore[no-any-return]
            if error == KeyboardInterrupt.__name__:
                raise AgreedInterrupt
            raise DistributedError(f"the main process (0) failed: {error}")
        try:
            value = action()
        except KeyboardInterrupt as stop:
            self._from_main((None, KeyboardInterrupt.__name__))
            raise AgreedInterrupt from stop
        except Exception as error:
            self._from_main((None, f"{type(error).__name__}: {error}"))
            raise
        self._from_main((value, None))
        return value

    def _from_main(self, message: Any) -> Any:
        messages = [message]
        self._call(lambda: dist.broadcast_object_list(messages, 0, group=self._group))
        return messages[0]

    def gather_objects(self, item: T) -> list[T]:
        """Return every process's item, by rank."""
        items = [item] * self.size
        self._call(lambda: dist.all_gather_object(items, item, group=self._group))
        return items

    @torch.no_grad()
    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Send all tensors in one message, as bytes, whatever their dtypes."""
        every = list(tensors)
        pieces = [t.detach().reshape(-1).contiguous().view(torch.uint8) for t in every]
        flat = torch.cat(pieces)
        self._call(lambda: dist.broadcast(flat, 0, group=self._group))
        for tensor, piece in zip(every, torch.split(flat, list(map(len, pieces))), strict=True):
            tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))


class AgreedInterrupt(KeyboardInterrupt):
    """An interrupt that all processes raise at the same batch."""


def _run_collective(collective: Callable[[], T], where: str) -> T:
    """Run a collective operation; raise an error that says what happened if it fails.

    The original error is dropped: its frames would keep the group alive, and its connections must
    close so that the other processes notice.
    """
    try:
        return collective()
    except RuntimeError as error:
        reason = re.split(r"\.\s|\n", re.sub(r"^\[[^]]*\]\s*", "", str(error)))[0]
    raise DistributedError(
        f"{where}: lost the other processes. One of them ended, is stuck or never started (`fit` "
        "must be called in every process). See its last output and restart all of them; with "
        f"`checkpoint` they resume after the last complete epoch. ({reason})"
    )


def _timeout() -> timedelta:
    """Return how long the user's own process group waits."""
    group: Any = dist.distributed_c10d._get_default_group()
    for device in ("cpu", "cuda"):
        try:
            limit: timedelta = group._get_backend(torch.device(device)).options._timeout
        except (AttributeError, RuntimeError):
            continue
        return limit
    return timedelta(seconds=TIMEOUT)


@contextmanager
def _held_interrupts(processes: TorchProcessGroup) -> Iterator[None]:
    """Hold the first Ctrl-C until all processes can stop together, but not a second one."""
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def hold(_: int, __: FrameType | None) -> None:
        processes.interrupt()

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if processes.interrupted:  # after the last batch: raise it as usual
        raise KeyboardInterrupt
