"""A folder of features, computed once and found by what they were computed from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._files import replacing
from fairdial.datasets.picture_cache import cache_folder, open_folder
from fairdial.errors import FairdialWarning, warn

Features = NDArray[np.floating[Any]]


def cached(
    folder: str | os.PathLike[str] | None,
    key: str,
    shape: tuple[int, ...],
    compute: Callable[[], Features],
    *,
    subfolder: str = "",
    dtype: type = np.float32,
) -> Features:
    """Return the features of a key: read from the folder, or else computed and written.

    Parameters
    ----------
    folder : path or None
        Created if it doesn't exist; None is the cache folder of the pictures.
    key : str
        Name of the file.
    shape : tuple of int
        Number of rows and features; a file of another shape is incomplete.
    compute : callable
        Computes the features.
    subfolder : str
        Where in the folder the file is.
    dtype : type
        Precision of the features.
    """
    opened = open_folder(cache_folder(folder) / subfolder)
    path = opened / f"{key}.npy"
    with _locked(opened / f"{key}.lock"):
        found = _read(path, shape, dtype)
        if found is None:
            found = compute()
            _write(path, np.asarray(found, dtype))
    return found


def _read(path: Path, shape: tuple[int, ...], dtype: type) -> Features | None:
    """Return the file's array, or None if it is missing or incomplete.

    It is mapped copy-on-write: processes share its memory, and torch can use it as it is.
    """
    try:
        found: Features = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.shape == shape and found.dtype == dtype else None


def _write(path: Path, values: Features) -> None:
    try:
        with replacing(path) as file:
            np.save(file, values, allow_pickle=False)
    except OSError as error:  # a full disk must not lose what took long to compute
        warn(f"features could not be stored in `cache`: {error}", FairdialWarning)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time compute what the others wait for.

    The file is deleted with the lock: a process that comes in between finds the result or computes
    it too.
    """
    try:
        import fcntl
    except ImportError:  # Windows: the same may be computed twice
        yield
        return
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
