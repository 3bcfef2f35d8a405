"""Tiny real pictures, loose and zipped."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def make_jpeg(seed: int, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> bytes:
    """A JPEG file of noise, (width, height) large."""
    rng = np.random.default_rng(seed)
    picture = Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    file = io.BytesIO()
    picture.convert(mode).save(file, "JPEG", quality=95)
    return file.getvalue()


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, blob in files.items():
        (folder / name).write_bytes(blob)
    return folder


def write_zip(
    path: Path,
    files: dict[str, bytes],
    order: Iterable[str] | None = None,
    packed: int = zipfile.ZIP_STORED,
) -> Path:
    with zipfile.ZipFile(path, "w", packed) as archive:
        for name in order or files:
            archive.writestr(name, files[name])
    return path


def as_pillow(blob: bytes, size: int) -> np.ndarray:
    """What Pillow itself makes of a file: (3, size, size)."""
    picture = Image.open(io.BytesIO(blob)).convert("RGB")
    picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(picture).transpose(2, 0, 1)


@pytest.fixture
def jpeg() -> Callable[..., bytes]:
    return make_jpeg


@pytest.fixture
def folder_of() -> Callable[..., Path]:
    return write_files


@pytest.fixture
def zip_of() -> Callable[..., Path]:
    return write_zip


@pytest.fixture
def pillow() -> Callable[..., np.ndarray]:
    return as_pillow
