"""Training rows: a network's inputs, labels and groups, and batches that pair the groups.

An estimator's rows become one :class:`TrainingData`; the loop draws its :class:`PairedBatches` from
it, and scores look at its validation rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from torch import Tensor
from torch.utils.data import Dataset

from fairdial._arrays import Codes, Floats, Indices, Mask, Weights
from fairdial.core.criteria import Criterion
from fairdial.core.decide import count_rows
from fairdial.datasets.pictures import Pictures
from fairdial.errors import InvalidInputError
from fairdial.nn.process_group import SINGLE_PROCESS, ProcessGroup
from fairdial.tables.encoder import WIDE, Encoder, TableEncoder, is_wide, wide_steps

BRIGHTEST = 255.0  # pixel value
MIN_STEPS = 20  # per epoch: with few rows, epochs, patience and averages are counted in steps
FINITE = ("X", "hold finite numbers")


# ---- inputs ------------------------------------------------------------------------------------


class Inputs(Protocol):
    """A network's inputs, taken by position."""

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at these positions (b, ...), as float32 on the training device."""


class TensorInputs:
    """Inputs in memory."""

    def __init__(self, features: Tensor) -> None:
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at these positions (b, ...); inputs in float16 become float32."""
        taken = self.features.index_select(0, index.to(self.features.device))
        return taken.float() if taken.dtype == torch.float16 else taken


class DatasetInputs:
    """Items of a torch Dataset (or the first entry of each), read when needed."""

    def __init__(self, dataset: Dataset[Any], device: torch.device) -> None:
        self.dataset, self.device = dataset, device

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at these positions (b, ...)."""
        items = [self.dataset[i] for i in index.tolist()]
        rows = [item[0] if isinstance(item, (tuple, list)) else item for item in items]
        taken = torch.stack([torch.as_tensor(row) for row in rows]).float()
        if not bool(torch.isfinite(taken).all()):
            raise InvalidInputError(*FINITE, given="NaN or infinity (inf)")
        return taken.to(self.device)


class PictureInputs:
    """Pictures, normalized when they are taken: the pixels stay where they are."""

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
        """Return the pictures at these positions (b, 3, h, w)."""
        pixels = torch.from_numpy(self.pictures.uint8(index.cpu().numpy())).to(self.device)
        return torch.addcmul(self._shift, pixels.float(), self._scale)


def find_device(name: str) -> torch.device:
    """Return the torch device of this name; "auto" is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInputError(
            "device", "be available to torch on this machine", given=f"{name!r} ({error})"
        ) from error
    return device


@dataclass
class InputEncoder:
    """Turns rows into a network's inputs, on its device."""

    encoder: Encoder | None
    device: torch.device

    def __call__(self, X: Any) -> Inputs:
        """Return the inputs of encoded rows, pictures, tensors or torch Datasets."""
        if isinstance(X, Dataset):
            return DatasetInputs(X, self.device)
        if isinstance(X, Pictures) and self.encoder is None:
            return PictureInputs(X, self.device)
        if self.encoder is not None:
            encoded = self.encoder.transform(X)
            half = getattr(encoded, "dtype", None) == np.float16  # large maps
            dtype = np.float16 if half else np.float32
            features = torch.from_numpy(np.ascontiguousarray(encoded, dtype))
        elif isinstance(X, Tensor):
            features = X.detach().float()
        else:
            features = torch.from_numpy(np.ascontiguousarray(X, np.float32))
        if features.ndim < 2 or 0 in features.shape[1:]:
            shape = tuple(features.shape)
            raise InvalidInputError(
                "X",
                "have rows and features",
                given=f"0 feature(s) (shape={shape}) while a minimum of 1 is required",
                hint="Reshape your data.",
            )
        if not bool(torch.isfinite(features).all()):
            raise InvalidInputError(*FINITE, given="NaN or infinity (inf)")
        return TensorInputs(features.to(self.device))


def fit_encoder(choice: Encoder | str | None, X: Any, train: Indices) -> Encoder | None:
    """Return the encoder, fitted on the training rows only; None where rows are inputs already."""
    if isinstance(X, (Tensor, Dataset)) or choice is None:
        return None
    auto = isinstance(choice, str) and choice == "auto"
    encoder: Encoder
    if isinstance(X, Pictures):
        if auto:
            return None
        encoder = clone(choice).fit(X[train])
        return encoder
    table = _table(X)
    if auto:
        choice = make_pipeline(*wide_steps()) if is_wide(table) else TableEncoder()
    encoder = clone(choice).fit(table.iloc[train] if isinstance(X, pd.DataFrame) else table[train])
    return encoder


def _table(X: Any) -> Any:
    return X if isinstance(X, pd.DataFrame) else np.asarray(X)


def may_be_embeddings(X: Any, encoder: Encoder | None, inputs: Inputs) -> bool:
    """Return whether inputs with many numbers per row are something other than encoded columns."""
    if encoder is None:
        return True
    if isinstance(encoder, TableEncoder) or not isinstance(inputs, TensorInputs):
        return False
    if inputs.features.ndim != 2 or inputs.features.shape[1] < WIDE:
        return False
    return isinstance(X, Pictures) or is_wide(_table(X))


# ---- labeled rows ------------------------------------------------------------------------------


@dataclass
class TrainingData:
    """Everything that training needs to know about its rows.

    Attributes
    ----------
    inputs : Inputs
        The network's inputs, one for each row.
    y : (n,) array
        Which rows have the positive label; with several classes, the code of each row's class.
    codes : (n,) int array
        Group of each row.
    n_groups : int
        Number of groups.
    train, validation : int arrays
        Rows to train on, and rows for selecting the epoch.
    criterion : Criterion
        The fairness criterion, which defines the eligible rows.
    encode : InputEncoder
        Turns other rows into inputs.
    unencoded : bool
        Whether wide inputs are embeddings: not made from a table's columns.
    strata : (n,) int array, optional
        Stratum of each row, if the criterion has several.
    weights : (n,) array, optional
        Weights of the rows, above 0 for training and validation rows.
    n_classes : int
        Number of classes.
    """

    inputs: Inputs
    y: Mask | Codes
    codes: Codes
    n_groups: int
    train: Indices
    validation: Indices
    criterion: Criterion
    encode: InputEncoder
    unencoded: bool = False
    strata: Codes | None = None
    weights: Weights | None = None
    n_classes: int = 2

    @property
    def positive(self) -> Mask:
        """Return which rows have the positive label, of two."""
        assert self.n_classes == 2
        return np.asarray(self.y, bool)

    @property
    def outputs(self) -> int:
        """Logits that a net has for each row."""
        return 1 if self.n_classes == 2 else self.n_classes

    def weights_of(self, places: Indices) -> Weights | None:
        """Return the weights of some rows."""
        return None if self.weights is None else self.weights[places]

    def strata_of(self, places: Indices) -> Codes | None:
        """Return the strata of some rows."""
        return None if self.strata is None else self.strata[places]

    def is_embedded(self, sample: Tensor) -> bool:
        """Return whether inputs such as these are embeddings."""
        return self.unencoded and sample.ndim == 2 and sample.shape[1] >= WIDE

    def shares(self) -> Floats:
        """Return P(group, eligible) of the training rows, (K,), or P(group, label), (2, K).

        Rows are eligible by the label of the criterion's rates; if that isn't fixed, all rows are,
        and if it differs between the rates, both labels are counted. With several classes, all rows
        are eligible.
        """
        if self.n_classes > 2:
            return self._share(None)
        eligible = {rate.eligible for rate in self.criterion.rates}
        if len(eligible) > 1:
            return np.stack([self._share(label) for label in (0, 1)])
        (label,) = eligible
        return self._share(label if label in (0, 1) else None)

    def _share(self, label: object) -> Floats:
        """Return P(group, label) of the training rows, (K,); P(group) without a label."""
        places = self.train if label is None else self.train[self.y[self.train] == label]
        counts = count_rows(
            self.codes[places], None, self.n_groups, weights=self.weights_of(places)
        )
        total = len(self.train) if self.weights is None else self.weights[self.train].sum()
        return np.asarray(counts[0] / total, np.float64)

    def batches(
        self,
        *,
        size: int,
        seed: int,
        epoch: str,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> PairedBatches:
        """Return batches of the training rows."""
        parts = [self.train[self.codes[self.train] == a] for a in range(self.n_groups)]
        if any(len(part) == 0 for part in parts):
            raise InvalidInputError("sensitive_features", "leave training rows in every group")
        batches = PairedBatches(
            self.inputs,
            torch.as_tensor(self.y, dtype=torch.float32, device=self.encode.device),
            parts,
            size=size,
            seed=seed,
            epoch=epoch,
            processes=processes,
            weights=None if self.weights is None else [self.weights[part] for part in parts],
        )
        if epoch == "long":
            batches.steps = max(batches.steps, MIN_STEPS)
        return batches


class PairedBatches:
    """Endless batches with equally many rows of each group, reshuffled when used up.

    Parameters
    ----------
    inputs : Inputs
        Inputs of all rows.
    y : (n,) Tensor
        Labels, 0 and 1, or probabilities.
    parts : sequence of int arrays
        Positions of each group's training rows.
    size : int
        Rows of each group in a batch; a smaller group repeats its rows.
    seed : int
        Seed of the order; methods with the same seed see the same batches.
    epoch : {"long", "short"}
        Whether an epoch is one pass over the largest or over the smallest group.
    processes : ProcessGroup
        The processes that share each batch: all draw the same one and take their rows of it.
    weights : sequence of arrays, optional
        Weights of each group's rows. In each pass over a group, a row comes as often as its weight
        divided by the mean weight, rounded down or up at random, so that means over batches
        estimate weighted means without bias.
    """

    def __init__(
        self,
        inputs: Inputs,
        y: Tensor,
        parts: Sequence[Indices],
        *,
        size: int,
        seed: int,
        epoch: str = "long",
        processes: ProcessGroup = SINGLE_PROCESS,
        weights: Sequence[Weights] | None = None,
    ) -> None:
        if size < processes.size:
            raise InvalidInputError(
                "batch_size", f"be at least the number of processes, {processes.size}", given=size
            )
        self.inputs, self.y, self.processes = inputs, y, processes
        self.parts = [torch.as_tensor(part, dtype=torch.int64) for part in parts]
        sizes = [len(part) for part in self.parts]
        self.size = size
        self.steps = -(-(max(sizes) if epoch == "long" else min(sizes)) // size)
        self._copies = None
        if weights is not None:  # running totals; their last entries are the numbers of rows
            totals = [torch.as_tensor(part, dtype=torch.float64).cumsum(0) for part in weights]
            self._copies = [total * (len(total) / total[-1]) for total in totals]
        self.generator = torch.Generator().manual_seed(seed)
        self._queues = [self._shuffled(a) for a in range(len(self.parts))]

    def _shuffled(self, group: int) -> Tensor:
        """Return one pass over a group's rows, in random order."""
        part = self.parts[group]
        if self._copies is not None:  # systematic sampling
            start = torch.rand((), generator=self.generator, dtype=torch.float64)
            grid = torch.arange(len(part), dtype=torch.float64) + start
            part = part[torch.searchsorted(self._copies[group], grid).clamp_max(len(part) - 1)]
        return part[torch.randperm(len(part), generator=self.generator)]

    def next(self) -> tuple[Tensor, Tensor]:
        """Return the inputs of this process's rows (G, b, ...) and the labels of all (G, B)."""
        picked = []
        for a in range(len(self.parts)):
            while len(self._queues[a]) < self.size:
                self._queues[a] = torch.cat((self._queues[a], self._shuffled(a)))
            picked.append(self._queues[a][: self.size])
            self._queues[a] = self._queues[a][self.size :]
        index = torch.stack(picked)  # (G, B)
        local = self.processes.local_rows(index)
        x = self.inputs.take(local.flatten())
        y = self.y.index_select(0, index.flatten()).view(index.shape)
        return x.view(*local.shape, *x.shape[1:]), y

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs."""
        queues = {f"queue{a}": queue.clone() for a, queue in enumerate(self._queues)}
        return {"generator": self.generator.get_state(), **queues}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from :meth:`state`."""
        self.generator.set_state(state["generator"])
        self._queues = [state[f"queue{a}"] for a in range(len(self.parts))]
