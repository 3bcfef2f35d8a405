"""Data sets by name, split for a trial; and test rows that stay sealed until the very end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.datasets import (
    Dataset,
    Pictures,
    load_adult,
    load_celeba,
    load_compas,
    load_utkface,
    make_gaussian,
)
from fairdial.errors import FairdialError, InvalidInputError

DATA = "FAIRDIAL_DATA"  # names the folder with pictures and weights; workers inherit it
WEIGHTS = ("resnet18*.safetensors", "resnet18*.pth")
SIDE = 64  # pixels of a picture's side


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, whether the paper's settings know it, whether it is pictures.

    Pictures lie in the data folder, with the weights of the net that looks at them.
    """

    load: Callable[[], Dataset]
    paper: bool
    pictures: bool = False


def _gaussian() -> Dataset:
    return make_gaussian(20_000, random_state=0)


def _celeba() -> Dataset:
    return load_celeba(data_folder(), size=SIDE)


def _utkface() -> Dataset:
    return load_utkface(data_folder(), size=SIDE)


def data_folder() -> Path:
    """Where a user's own copies of pictures and weights lie."""
    named = os.environ.get(DATA)
    if not named or not Path(named).is_dir():
        raise InvalidInputError(
            f"`--data` (or the environment variable {DATA}) must name the folder with the "
            f"pictures and ResNet-18's weights, got {named or 'none'!r}."
        )
    return Path(named)


def find_weights() -> Path:
    """The pretrained ResNet-18 in the data folder."""
    found = [path for pattern in WEIGHTS for path in sorted(data_folder().glob(pattern))]
    if not found:
        raise InvalidInputError(
            f"`--data` must hold ResNet-18's weights, {' or '.join(WEIGHTS)}, got "
            f"{data_folder()} without."
        )
    return found[0]


SOURCES = {
    "adult": Source(load_adult, paper=True),
    "compas": Source(load_compas, paper=True),
    "gaussian": Source(_gaussian, paper=False),
    "celeba": Source(_celeba, paper=True, pictures=True),
    "utkface": Source(_utkface, paper=True, pictures=True),
}
SAMPLE_SEED, FEW_SEED = 0, 1


def check_sources(names: Iterable[str]) -> None:
    """Raise where data sets can't be read here, before anything runs; pictures are decoded."""
    for name in names:
        if not SOURCES[name].pictures:
            continue
        try:
            find_weights()
            SOURCES[name].load()
        except FairdialError as error:
            raise InvalidInputError(f"{name}: {error}") from error


class Parts(NamedTuple):
    """The rows of a trial."""

    fit: Dataset  # training and validation rows
    validation: NDArray[np.bool_]  # those of them that early stopping looks at
    calibration: Dataset
    test: SealedRows  # those that the figures are from
    key: str  # names the content of all training and validation rows
    encoded: bool = False  # whether rows are features of pictures, ready for a network


class SealedRowsError(FairdialError):
    """Somebody looked at test rows too early, or twice."""


class SealedRows:
    """Test rows that can be opened once, when everything has been chosen.

    They are dropped when the rows are split, and read anew when the seal is broken. So nothing
    that runs in between can see them, not even by accident.
    """

    def __init__(self, read: Callable[[], Dataset]) -> None:
        self._read, self._chosen, self._opened = read, False, False

    def then(self, change: Callable[[Dataset], Dataset]) -> SealedRows:
        """The same seal over rows that are changed when they are read."""
        return SealedRows(lambda: change(self._read()))

    def everything_is_chosen(self) -> None:
        """Say that training and calibration are over."""
        self._chosen = True

    def open(self) -> Dataset:
        """The test rows."""
        if not self._chosen:
            raise SealedRowsError("test rows are sealed until training and calibration are over.")
        if self._opened:
            raise SealedRowsError("test rows are opened once only.")
        self._opened = True
        return self._read()


def split(
    name: str,
    seed: int,
    rows: int | None = None,
    *,
    train_rows: int | None = None,
    evaluate: str = "test",
) -> Parts:
    """The paper's split of a data set, with the rows sealed that the figures are from.

    Those are the test rows; for exploration (``evaluate="validation"``) the validation rows, and
    early stopping then looks at a part of the training rows.
    """

    def parts_of() -> Any:
        return _sample(SOURCES[name].load(), rows).paper_split(seed)

    parts = parts_of()
    train, early = parts.train, parts.validation
    if evaluate == "validation":
        train, early = train.split(test_size=len(early) / len(train), random_state=seed)
    if train_rows is not None:
        share = len(early) / (len(train) + len(early))
        train = _few(train, round(train_rows * (1 - share)), seed)
        early = _few(early, round(train_rows * share), seed)
    fit = join_rows(train, early)
    validation = np.arange(len(fit)) >= len(train)
    calibration = parts.calibration
    if isinstance(calibration.X, pd.DataFrame):
        calibration = Dataset(calibration.X.copy(), calibration.y, calibration.groups, name=name)
    sealed = SealedRows(lambda: getattr(parts_of(), evaluate))
    return Parts(fit, validation, calibration, sealed, _key(fit))


def _key(data: Dataset) -> str:
    """A digest of rows, labels and groups."""
    digest = hashlib.sha256()
    if isinstance(data.X, Pictures):
        digest.update(data.X.places_key().encode())
    else:
        digest.update(pd.util.hash_pandas_object(data.X, index=False).to_numpy().tobytes())
    for column in (data.y, data.groups):
        digest.update(repr(column.tolist()).encode())
    return digest.hexdigest()[:16]


def join_rows(first: Dataset, second: Dataset) -> Dataset:
    """The rows of both."""
    X: Any = (
        first.X.join(second.X) if isinstance(first.X, Pictures) else pd.concat([first.X, second.X])
    )
    return Dataset(
        X,
        np.concatenate([first.y, second.y]),
        np.concatenate([first.groups, second.groups]),
        name=first.name,
    )


def take(data: Dataset, places: Any) -> Dataset:
    """Some rows, by position."""
    X: Any = data.X[places] if isinstance(data.X, Pictures) else data.X.iloc[places]
    return Dataset(X, data.y[places], data.groups[places], name=data.name)


def _few(data: Dataset, most: int, seed: int) -> Dataset:
    """At most so many rows of each group, drawn by the split's seed."""
    rng = np.random.default_rng([FEW_SEED, seed])
    parts = [np.flatnonzero(data.groups == group) for group in np.unique(data.groups)]
    kept = [rng.permutation(part)[:most] for part in parts]
    return take(data, np.sort(np.concatenate(kept)))


def _sample(data: Dataset, rows: int | None) -> Dataset:
    """So many rows, the same for every seed, of all groups and labels in proportion."""
    if rows is None or rows >= len(data):
        return data
    return data.split(test_size=rows / len(data), random_state=SAMPLE_SEED)[1]
