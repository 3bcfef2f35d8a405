"""Features in a folder: computed once, found again by what they were computed from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fairdial.datasets.picture_cache import cache_folder, open_folder, write_whole
from fairdial.errors import FairdialWarning, warn

Features = NDArray[np.float32]


def kept(
    folder: Any, key: str, shape: tuple[int, int], compute: Callable[[], Features]
) -> Features:
    """The features of a key: read if the folder has them whole, else computed and written.

    Parameters
    ----------
    folder : path
        Made where it isn't there.
    key : str
        Names the file.
    shape : tuple of int
        Rows and features; a file of another shape is not whole.
    compute : callable
        Gives the features.
    """
    path = open_folder(cache_folder(folder)) / f"{key}.npy"
    found = _read(path, shape)
    if found is not None:
        return found
    features = compute()

    def fill(stream: IO[bytes]) -> str:
        np.save(stream, features, allow_pickle=False)
        return path.name

    try:
        write_whole(path.parent, fill)
    except OSError as error:  # a full disk must not cost what took long to compute
        warn(f"features could not be kept in `cache`: {error}", FairdialWarning)
    return features


def _read(path: Path, shape: tuple[int, int]) -> Features | None:
    """What the file holds, or None where it isn't there or isn't whole."""
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype != np.float32:
        return None
    return found
