"""Split data sets for trials, and keep test rows sealed until the end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fairdial._arrays import Mask
from fairdial.datasets import Dataset, Pictures
from fairdial.datasets.base import PaperSplit
from fairdial.datasets.registry import DATASETS
from fairdial.errors import FairdialError, InvalidInputError

DATA = "FAIRDIAL_DATA"  # environment variable of the data folder; workers inherit it
WEIGHTS = ("resnet18*.safetensors", "resnet18*.pth")
SIDE = 64  # height and width of a picture in pixels, unless a plan says otherwise
SAMPLE_SEED, FEW_SEED = 0, 1
TEST = 0.3  # share of the test rows where training and calibration have as many rows


def load_source(name: str, size: int = SIDE) -> Dataset:
    """Load a data set by name; pictures at this height and width."""
    info = DATASETS[name]
    options = {"size": size} if info.pictures else {}
    return info.load(data_folder(), **options) if info.needs_folder else info.load(**options)


def data_folder() -> Path:
    """Return the folder with the user's copies of pictures and of pretrained weights."""
    folder = os.environ.get(DATA)
    if not folder or not Path(folder).is_dir():
        raise InvalidInputError(
            "data",
            "name the folder with your pictures and pretrained weights",
            given=folder or "none",
            hint=f"The environment variable {DATA} sets it too.",
        )
    return Path(folder)


def find_weights() -> Path:
    """Return the file of the pretrained ResNet-18 in the data folder."""
    found = [path for pattern in WEIGHTS for path in sorted(data_folder().glob(pattern))]
    if not found:
        raise InvalidInputError(
            "data",
            f"contain ResNet-18's weights ({' or '.join(WEIGHTS)})",
            given=f"{data_folder()} without them",
        )
    return found[0]


def check_sources(names: Iterable[str], size: int = SIDE) -> None:
    """Raise before anything runs if a data set can't be loaded; decode its pictures."""
    for name in names:
        if DATASETS[name].pictures:
            find_weights()
        if DATASETS[name].needs_folder:
            load_source(name, size)


class Parts(NamedTuple):
    """The rows of a trial."""

    fit: Dataset  # training and validation rows
    validation: Mask  # which of them early stopping uses
    calibration: Dataset
    test: SealedRows  # the rows that the results are measured on
    key: str  # identifies the content of the training and validation rows
    encoded: bool = False  # whether rows are features of pictures, ready for a network


class SealedRowsError(FairdialError):
    """Test rows were opened too early, or twice."""


class SealedRows:
    """Test rows that can be opened once, after everything has been chosen.

    They are dropped when the rows are split, and loaded again when they are opened, so nothing
    that runs in between can see them, not even by accident.
    """

    def __init__(self, read: Callable[[], Dataset]) -> None:
        self._read, self._released, self._opened = read, False, False

    def then(self, change: Callable[[Dataset], Dataset]) -> SealedRows:
        """Return sealed rows that are changed when they are opened."""
        return SealedRows(lambda: change(self._read()))

    def release(self) -> None:
        """Allow the rows to be opened: training and calibration are over."""
        self._released = True

    def open(self) -> Dataset:
        """Return the test rows."""
        if not self._released:
            raise SealedRowsError("test rows are sealed until training and calibration are over.")
        if self._opened:
            raise SealedRowsError("test rows can be opened only once.")
        self._opened = True
        return self._read()


def split(
    name: str,
    seed: int,
    rows: int | None = None,
    *,
    train_rows: int | None = None,
    evaluate: str = "test",
    size: int = SIDE,
    shares: str = "paper",
) -> Parts:
    """Return a split of a data set, with the evaluation rows sealed; by default the paper's.

    With ``shares="35/35/30"``, 35% of the rows are for training, 35% for calibration and 30% for
    testing, and none for early stopping.

    These are the test rows. For exploration (``evaluate="validation"``) they are the validation
    rows, and early stopping uses a part of the training rows.
    """

    def load_parts() -> PaperSplit:
        return _sample(load_source(name, size), rows).paper_split(seed)

    if shares != "paper":
        return _split_in_three(name, seed, rows)
    parts = load_parts()
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
    if isinstance(calibration.X, pd.DataFrame):  # a copy, so that the other parts can be freed
        calibration = Dataset(calibration.X.copy(), calibration.y, calibration.groups, name=name)
    sealed = SealedRows(lambda: getattr(load_parts(), evaluate))
    return Parts(fit, validation, calibration, sealed, _key(fit))


def _split_in_three(name: str, seed: int, rows: int | None) -> Parts:
    def load_parts() -> tuple[Dataset, Dataset, Dataset]:
        rest, test = _sample(load_source(name), rows).split(TEST, seed)
        return *rest.split(0.5, seed), test

    fit, calibration, _ = load_parts()
    sealed = SealedRows(lambda: load_parts()[2])
    return Parts(fit, np.zeros(len(fit), np.bool_), calibration, sealed, _key(fit))


def _key(data: Dataset) -> str:
    """Return a digest of rows, labels and groups."""
    digest = hashlib.sha256()
    if isinstance(data.X, Pictures):
        digest.update(data.X.places_key().encode())
    else:
        digest.update(pd.util.hash_pandas_object(data.X, index=False).to_numpy().tobytes())
    for column in (data.y, data.groups):
        digest.update(repr(column.tolist()).encode())
    return digest.hexdigest()[:16]


def join_rows(first: Dataset, second: Dataset) -> Dataset:
    """Return the rows of both."""
    X = first.X.join(second.X) if isinstance(first.X, Pictures) else pd.concat([first.X, second.X])
    return Dataset(
        X,
        np.concatenate([first.y, second.y]),
        np.concatenate([first.groups, second.groups]),
        name=first.name,
    )


def take(data: Dataset, rows: ArrayLike) -> Dataset:
    """Return some rows, by position."""
    places = np.asarray(rows)
    X = data.X[places] if isinstance(data.X, Pictures) else data.X.iloc[places]
    return Dataset(X, data.y[places], data.groups[places], name=data.name)


def _few(data: Dataset, most: int, seed: int) -> Dataset:
    """Return at most ``most`` rows of each group, drawn with the split's seed."""
    rng = np.random.default_rng([FEW_SEED, seed])
    members = [np.flatnonzero(data.groups == group) for group in np.unique(data.groups)]
    kept = [rng.permutation(rows)[:most] for rows in members]
    return take(data, np.sort(np.concatenate(kept)))


def _sample(data: Dataset, rows: int | None) -> Dataset:
    """Return a stratified sample of this many rows, the same for every seed."""
    if rows is None or rows >= len(data):
        return data
    return data.split(test_size=rows / len(data), random_state=SAMPLE_SEED)[1]
