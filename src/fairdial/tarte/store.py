"""Features in a folder: computed once, found again by what they were computed from."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial.errors import FairdialWarning, InvalidInputError, warn

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
    path = _open_folder(folder) / f"{key}.npy"
    found = _read(path, shape)
    if found is not None:
        return found
    features = compute()
    half = path.with_suffix(f".{uuid.uuid4().hex}.part")
    try:
        with half.open("wb") as file:
            np.save(file, features, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(half, path)
    except OSError as error:  # a full disk must not cost what took long to compute
        half.unlink(missing_ok=True)
        warn(f"features could not be kept in `cache`: {error}", FairdialWarning)
    return features


def _open_folder(folder: Any) -> Path:
    if not isinstance(folder, str | os.PathLike):
        raise InvalidInputError(f"`cache` must be the path of a folder or None, got {folder!r}.")
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"`cache` must be a folder that can be written, got {str(folder)!r} ({error})."
        ) from error
    return path


def _read(path: Path, shape: tuple[int, int]) -> Features | None:
    """What the file holds, or None where it isn't there or isn't whole."""
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype != np.float32:
        return None
    return found
