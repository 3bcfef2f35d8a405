"""Several processes that train together: torch.distributed behind :class:`World`.

A training opens a process group of its own within the one that the user (or torchrun) has started.
When it fails in one process, that group is closed there: the others, waiting for a message that
will never come, get an error at once, and the user's group stays as it was.
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

from fairdial._validation import asked_processes
from fairdial.errors import DistributedError, InvalidInputError
from fairdial.nn.batchnorm import JointBatchNorm
from fairdial.nn.world import ALONE, T, World, part_of

TIMEOUT = 600.0  # seconds that a process waits for the others
AGREE_EVERY = 8  # batches between looks at each other's interrupts


class Processes(NamedTuple):
    """The processes that were started together, as one of them sees them."""

    rank: int
    size: int

    @property
    def is_main(self) -> bool:
        """Whether this process writes the output of all."""
        return self.rank == 0


def processes() -> Processes:
    """Which process this is, of how many; the only one without a process group.

    Examples
    --------
    >>> from fairdial.nn.distributed import processes
    >>> processes()
    Processes(rank=0, size=1)
    """
    if dist.is_available() and dist.is_initialized():
        return Processes(dist.get_rank(), dist.get_world_size())
    return Processes(0, 1)


@contextmanager
def process_group(timeout: float = TIMEOUT) -> Iterator[Processes]:
    """The process group that torchrun's environment asks for, while the block runs.

    Does nothing in a process that was started alone, or that has a process group already. Gloo
    carries what is on the processor, NCCL what is on CUDA, where this process takes the device of
    its ``LOCAL_RANK``.

    Parameters
    ----------
    timeout : float
        Seconds that a process waits for the others before it gives up.

    Examples
    --------
    >>> from fairdial.nn.distributed import process_group
    >>> with process_group() as started:  # as many as torchrun has started
    ...     started.is_main
    True
    """
    started = dist.is_available() and dist.is_initialized()
    if started or asked_processes() == 1:
        yield processes()
        return
    _take_device()
    limit = timedelta(seconds=timeout)
    try:
        _or_tell(lambda: dist.init_process_group(_backend(), timeout=limit), "at the start")
    except ValueError as error:
        raise InvalidInputError(
            f"`WORLD_SIZE` must come with the rest of torchrun's environment: {error}"
        ) from error
    try:
        yield processes()
    finally:
        dist.destroy_process_group()


def _take_device() -> None:
    """Each process of a machine has a device of its own there."""
    if not torch.cuda.is_available():
        return
    local, devices = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local >= devices:
        raise InvalidInputError(
            f"`--nproc-per-node` must be at most the number of CUDA devices, {devices}, got more."
        )
    torch.cuda.set_device(local)


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


@contextmanager
def joined() -> Iterator[World]:
    """The processes of one training: all that there are, or this one alone."""
    if processes().size == 1:
        yield ALONE
        return
    world = Joint()
    try:
        with _held_interrupts(world):
            yield world
    finally:
        world.close()


class Joint(World):
    """Processes that train together, in a process group of their own.

    Every process must do the same, in the same order: each method but :meth:`mine` and
    :meth:`share_out` waits for the others.
    """

    def __init__(self) -> None:
        self.rank, self.size = processes()
        self._place, self.interrupted = "the start", False
        if dist.get_backend() == "gloo":  # a process that has ended is noticed now, not later
            self._call(lambda: dist.all_reduce(torch.zeros(1)))
        self._group: Any = self._call(lambda: dist.new_group(None, _timeout(), _backend()))

    def close(self) -> None:
        """Leave; whoever still waits for this process gets an error."""
        dist.destroy_process_group(self._group)
        self._group = None  # the last reference: this is what closes the connections

    def _call(self, collective: Callable[[], T]) -> T:
        return _or_tell(collective, f"process {self.rank} of {self.size} at {self._place}")

    # ---- one step ------------------------------------------------------------------------------

    def mine(self, joint: Tensor) -> Tensor:
        """A piece of the last axis."""
        return joint[..., part_of(joint.shape[-1], self.rank, self.size)]

    def gather(self, part: Tensor, n: int) -> Tensor:
        """Everybody's part in its place: the others' are 0, and added (parts may be uneven)."""
        joint = part.new_zeros(*part.shape[:-1], n)
        self.mine(joint).copy_(part)
        self._call(lambda: dist.all_reduce(joint, group=self._group))
        return joint

    @torch.no_grad()
    def sum(self, tensors: Sequence[Tensor], grads_of: nn.Module | None = None) -> list[Tensor]:
        """In one message; a weight that was not used has a gradient of 0."""
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

    def run(self, module: nn.Module, *inputs: Tensor) -> Any:
        """A forward, with the moments of the joint batch."""
        with JointBatchNorm(self):
            return module(*inputs)

    def pull(self, output: Tensor, cotangent: Tensor) -> None:
        """A backward, in which a checkpointed layer's forward has these moments too."""
        JointBatchNorm(self).pull(output, cotangent)

    # ---- a training ----------------------------------------------------------------------------

    def begin(self, epoch: int, batch: int) -> None:
        """Note where this process is; from time to time ask whether one was interrupted."""
        self._place = f"epoch {epoch}, batch {batch + 1}"
        if batch % AGREE_EVERY == 0:
            asked = torch.tensor([float(self.interrupted)])
            self._call(lambda: dist.all_reduce(asked, group=self._group))
            if asked.item() > 0:
                self.interrupted = False
                raise AgreedInterrupt

    def interrupt(self) -> None:
        """Stop with the others, at the next batch at which all look; at once if asked again."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def allows(self, stop: KeyboardInterrupt) -> bool:
        """Whether the others were interrupted too."""
        return isinstance(stop, AgreedInterrupt)

    def share_out(self, work: Iterable[T]) -> Iterable[T]:
        """Every so many-th piece."""
        return islice(work, self.rank, None, self.size)

    def lead(self, action: Callable[[], T]) -> T:
        """The main process acts; the others wait for what comes of it."""
        if not self.is_main:
            given, error = self._from_main(None)
            if error is None:
                return given  # type: ignore[no-any-return]
            if error == KeyboardInterrupt.__name__:
                raise AgreedInterrupt
            raise DistributedError(f"process 0, which leads, failed: {error}")
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
        held = [message]
        self._call(lambda: dist.broadcast_object_list(held, 0, group=self._group))
        return held[0]

    def collect(self, thing: Any) -> list[Any]:
        """One thing of every process, by rank."""
        things: list[Any] = [None] * self.size
        self._call(lambda: dist.all_gather_object(things, thing, group=self._group))
        return things

    @torch.no_grad()
    def spread(self, tensors: Iterable[Tensor]) -> None:
        """As bytes in one message, whatever their kinds."""
        every = list(tensors)
        pieces = [t.detach().reshape(-1).contiguous().view(torch.uint8) for t in every]
        flat = torch.cat(pieces)
        self._call(lambda: dist.broadcast(flat, 0, group=self._group))
        for tensor, piece in zip(every, torch.split(flat, list(map(len, pieces))), strict=True):
            tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))


class AgreedInterrupt(KeyboardInterrupt):
    """An interrupt that every process has at the same batch."""


def _or_tell(collective: Callable[[], T], where: str) -> T:
    """What a collective gives, or an error that says what has happened.

    The original error is not kept: its frames would hold the group, whose connections must close so
    that others notice too.
    """
    try:
        return collective()
    except RuntimeError as error:
        told = re.split(r"\.\s|\n", re.sub(r"^\[[^]]*\]\s*", "", str(error)))[0]
    raise DistributedError(
        f"{where}: lost the other processes. One has ended, is stuck or never came (`fit` must be "
        "called in every process): see what it said last, and start all of them again; with "
        f"`checkpoint` they go on after the last whole epoch. ({told})"
    )


def _timeout() -> timedelta:
    """How long the user's own process group waits."""
    group: Any = dist.distributed_c10d._get_default_group()
    for device in ("cpu", "cuda"):
        try:
            limit: timedelta = group._get_backend(torch.device(device)).options._timeout
        except (AttributeError, RuntimeError):
            continue
        return limit
    return timedelta(seconds=TIMEOUT)


@contextmanager
def _held_interrupts(world: Joint) -> Iterator[None]:
    """Ctrl-C is held until all processes can stop together; the second one is not."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def hold(_: int, __: FrameType | None) -> None:
        world.interrupt()

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if world.interrupted:  # after the last batch: as it would be without us
        raise KeyboardInterrupt
