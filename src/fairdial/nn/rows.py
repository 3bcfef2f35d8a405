"""Training rows: where they lie, and the batches that pair the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairdial.datasets.pictures import Pictures
from fairdial.errors import InvalidInputError
from fairdial.nn.world import ALONE, World

BRIGHTEST = 255.0  # of a pixel


class Rows(Protocol):
    """Features that can be taken by position."""

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """(b, ...) the rows at these positions, float32 on the training device."""


class TensorRows:
    """Features in memory."""

    def __init__(self, features: Tensor) -> None:
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def take(self, index: Tensor) -> Tensor:
        """(b, ...) the rows at these positions."""
        return self.features.index_select(0, index.to(self.features.device))


class DatasetRows:
    """Features of a torch Dataset (its items, or the first entry of each), read when needed."""

    def __init__(self, dataset: Any, device: torch.device) -> None:
        self.dataset, self.device = dataset, device

    def __len__(self) -> int:
        return len(self.dataset)

    def take(self, index: Tensor) -> Tensor:
        """(b, ...) the rows at these positions."""
        items = [self.dataset[i] for i in index.tolist()]
        rows = [item[0] if isinstance(item, (tuple, list)) else item for item in items]
        taken = torch.stack([torch.as_tensor(row) for row in rows]).float()
        if not bool(torch.isfinite(taken).all()):
            raise InvalidInputError("`X` must hold finite numbers, got NaN or infinity (inf).")
        return taken.to(self.device)


class PictureRows:
    """Pictures, normalised when they are taken: the pixels stay where they are."""

    def __init__(self, pictures: Pictures, device: torch.device) -> None:
        self.pictures, self.device = pictures, device
        mean, std = (
            torch.tensor(values, device=device).view(-1, 1, 1)
            for values in (pictures.mean, pictures.std)
        )
        self._scale, self._shift = 1.0 / (BRIGHTEST * std), -mean / std

    def __len__(self) -> int:
        return len(self.pictures)

    def take(self, index: Tensor) -> Tensor:
        """(b, 3, h, w) the pictures at these positions."""
        pixels = torch.from_numpy(self.pictures.uint8(index.cpu().numpy())).to(self.device)
        return torch.addcmul(self._shift, pixels.float(), self._scale)


class PairedBatches:
    """Endless batches with as many rows of each group, every group reshuffled when it is through.

    Parameters
    ----------
    rows : Rows
        Features of all rows.
    y : (n,) Tensor
        Labels, 0 and 1.
    parts : sequence of int arrays
        Positions of each group's training rows.
    size : int
        Rows of each group in a batch; a smaller group repeats its rows.
    seed : int
        Of the order; methods with the same seed see the same batches.
    epoch : {"long", "short"}
        Whether an epoch is one pass over the largest or over the smallest group.
    world : World
        The processes that share each batch; all draw the same, and take their rows of it.
    """

    def __init__(
        self,
        rows: Rows,
        y: Tensor,
        parts: Sequence[NDArray[np.intp]],
        *,
        size: int,
        seed: int,
        epoch: str = "long",
        world: World = ALONE,
    ) -> None:
        if size < world.size:
            raise InvalidInputError(
                f"`batch_size` must be at least the number of processes, {world.size}, got {size}."
            )
        self.rows, self.y, self.world = rows, y, world
        self.parts = [torch.as_tensor(part, dtype=torch.int64) for part in parts]
        sizes = [len(part) for part in self.parts]
        self.size = size
        self.steps = -(-(max(sizes) if epoch == "long" else min(sizes)) // size)
        self.generator = torch.Generator().manual_seed(seed)
        self._queues = [self._shuffled(part) for part in self.parts]

    def _shuffled(self, part: Tensor) -> Tensor:
        return part[torch.randperm(len(part), generator=self.generator)]

    def next(self) -> tuple[Tensor, Tensor]:
        """(G, b, ...) features of this process's rows, and (G, B) labels of all."""
        picked = []
        for a, part in enumerate(self.parts):
            while len(self._queues[a]) < self.size:
                self._queues[a] = torch.cat((self._queues[a], self._shuffled(part)))
            picked.append(self._queues[a][: self.size])
            self._queues[a] = self._queues[a][self.size :]
        index = torch.stack(picked)  # (G, B)
        mine = self.world.mine(index)
        x = self.rows.take(mine.flatten())
        y = self.y.index_select(0, index.flatten()).view(index.shape)
        return x.view(*mine.shape, *x.shape[1:]), y

    def state(self) -> dict[str, Tensor]:
        """What a run that goes on needs."""
        queues = {f"queue{a}": queue.clone() for a, queue in enumerate(self._queues)}
        return {"generator": self.generator.get_state(), **queues}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from :meth:`state`."""
        self.generator.set_state(state["generator"])
        self._queues = [state[f"queue{a}"] for a in range(len(self.parts))]
