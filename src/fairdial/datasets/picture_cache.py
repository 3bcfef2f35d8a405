"""Pictures decoded once: a memory map in a cache folder, and a manifest that vouches for it.

A cache is a folder named by a digest of what it was made from, so that a changed source has
another one. The manifest is written last; what has none, or not the length that it tells, is made
anew. Several processes may do so at once: each writes under a name of its own, and the finished
file takes its place in one step.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairdial._validation import check_count
from fairdial.datasets.picture_files import PictureFiles, first_names
from fairdial.datasets.pictures import CHANNELS, Pictures, Pixels, shaped_key
from fairdial.errors import (
    FairdialWarning,
    InvalidInputError,
    MissingExtraError,
    say_install,
    warn,
)
from fairdial.progress import Bar, Reporter, Silent

FORMAT = 2  # since 2 copies are found by their pixels
RESAMPLING = "bilinear"
VARIABLE = "FAIRDIAL_CACHE"
MANIFEST = "manifest.json"
PART = ".part"  # ending of a file that is being written
ABANDONED = 3600.0  # seconds after which such a file has no writer any more
AT_ONCE = 128  # pictures in memory
MOST_THREADS = 8
DIGITS = 16  # of a digest in a file's name


class Decoded(NamedTuple):
    """Pictures with the name of each, and a number that copies of one have in common."""

    pictures: Pictures
    names: list[str]
    clusters: NDArray[np.int64]


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """Where decoded pictures are kept.

    The folder that is given; else that of the environment variable ``FAIRDIAL_CACHE``; else
    ``fairdial`` in the user's cache folder.

    Examples
    --------
    >>> from fairdial.datasets.picture_cache import cache_folder
    >>> cache_folder("scratch").name
    'scratch'
    """
    if cache is not None and not isinstance(cache, str | os.PathLike):
        raise InvalidInputError(f"`cache` must be the path of a folder or None, got {cache!r}.")
    chosen = cache if cache is not None else os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    users = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")  # Linux, Windows
    return (Path(users) if users else Path.home() / ".cache") / "fairdial"


def decode_once(
    files: PictureFiles,
    names: Sequence[str],
    *,
    title: str,
    size: int,
    cache: str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> Decoded:
    """Pictures as RGB of ``size`` x ``size`` pixels, decoded now or long ago.

    Pictures that can't be decoded are left out, with a warning.

    Parameters
    ----------
    files : PictureFiles
        Where they are.
    names : sequence of str
        Which of them, in which order.
    title : str
        Short name of the data set, for the folder of the cache.
    size : int
        Height and width. Other sizes are resampled (bilinear, with a filter as wide as a reduced
        pixel), without regard to the aspect.
    cache : path, optional
        See :func:`cache_folder`.
    verbose : bool
        Show a progress bar while decoding.
    """
    size = check_count(size, "size")
    recipe = f"{FORMAT} {RESAMPLING} {size} {files.digest(names)}"
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    folder = cache_folder(cache) / f"{title}-{size}px-{digest[:DIGITS]}"
    open_folder(folder)
    manifest = _read_manifest(folder, digest)
    if manifest is None:
        manifest = _make(files, names, size, folder, digest, verbose)
    lost = manifest["unreadable"]
    if lost:
        warn(
            f"{len(lost):,} of {len(names):,} pictures can't be read and are left out: "
            f"{first_names(lost)}",
            FairdialWarning,
        )
    if not manifest["names"]:
        raise InvalidInputError(f"`root` must hold pictures that can be read, got none of {title}.")
    pixels = np.lib.format.open_memmap(folder / manifest["pixels"], mode="r")
    pictures = Pictures(pixels, key=manifest["key"])
    _, clusters = np.unique(manifest["sha256"], return_inverse=True)
    return Decoded(pictures, manifest["names"], clusters.astype(np.int64))


def open_folder(folder: Path) -> Path:
    """A folder of the cache: made where it isn't there, without what a killed process left."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"`cache` must be a folder that can be written, got {str(folder)!r}: {error}."
        ) from None
    for path in folder.glob(f"*{PART}"):
        with suppress(OSError):  # somebody else was faster, or it is somebody else's
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()
    return folder


def _read_manifest(folder: Path, digest: str) -> dict[str, Any] | None:
    """The manifest, if it is whole and its pixels are what it says."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        whole = (folder / manifest["pixels"]).stat().st_size == manifest["bytes"]
        known = manifest["digest"] == digest
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return manifest if whole and known else None


def _make(
    files: PictureFiles, names: Sequence[str], size: int, folder: Path, digest: str, verbose: bool
) -> dict[str, Any]:
    """Decode everything; the pixels take their place, and then the manifest."""
    manifest: dict[str, Any] = {"format": FORMAT, "digest": digest, "source": str(files.place)}
    decode = decoder(size)
    kept: dict[str, str] = {}
    unreadable: list[str] = []
    seen = hashlib.sha256()

    def write_pixels(stream: IO[bytes]) -> str:
        _write_header(stream, (len(names), CHANNELS, size, size))
        reporter: Reporter = Bar("decoding", len(names), ()) if verbose else Silent()
        with reporter as shown:
            for name, pixels in _decoded(files, names, decode):
                if pixels is None:
                    unreadable.append(name)
                else:
                    kept[name] = hashlib.sha256(pixels.data).hexdigest()
                    seen.update(pixels.data)
                    stream.write(pixels.data)
                shown.advance({})
        shape = (len(kept), CHANNELS, size, size)
        stream.seek(0)
        _write_header(stream, shape)  # of the same length, whatever the number of pictures
        manifest["key"] = shaped_key(seen, shape)
        return f"pixels-{manifest['key'][:DIGITS]}.npy"

    def write_manifest(stream: IO[bytes]) -> str:
        stream.write(json.dumps(manifest).encode())
        return MANIFEST

    path = write_whole(folder, write_pixels)
    manifest |= {
        "size": size,
        "resampling": RESAMPLING,
        "count": len(kept),
        "pixels": path.name,
        "bytes": path.stat().st_size,
        "unreadable": unreadable,
        "names": list(kept),
        "sha256": list(kept.values()),
    }
    write_whole(folder, write_manifest)
    return manifest


def write_whole(folder: Path, fill: Callable[[IO[bytes]], str]) -> Path:
    """A file that ``fill`` writes and names; it gets its name when it is whole and on disk."""
    part = folder / f"{os.getpid()}-{uuid.uuid4().hex}{PART}"
    try:
        with part.open("xb") as stream:
            name = fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, folder / name)
    finally:
        part.unlink(missing_ok=True)
    return folder / name


def _write_header(stream: IO[bytes], shape: tuple[int, ...]) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)


def _decoded(
    files: PictureFiles, names: Sequence[str], decode: Callable[[bytes | None], Pixels | None]
) -> Iterator[tuple[str, Pixels | None]]:
    """Name and pixels of one picture after the other."""
    threads = min(os.cpu_count() or 1, MOST_THREADS)
    with files.reader() as read, ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(names), AT_ONCE):
            batch = names[start : start + AT_ONCE]
            blobs = [read(name) for name in batch]
            yield from zip(batch, pool.map(decode, blobs), strict=True)


def decoder(size: int) -> Callable[[bytes | None], Pixels | None]:
    """A function from a picture's file to (3, size, size) pixels, None if it can't be decoded.

    Examples
    --------
    >>> from io import BytesIO
    >>> from PIL import Image
    >>> from fairdial.datasets.picture_cache import decoder
    >>> file = BytesIO()
    >>> Image.new("L", (8, 6), 255).save(file, "JPEG")
    >>> decode = decoder(4)
    >>> decode(file.getvalue()).shape
    (3, 4, 4)
    >>> decode(b"not a picture") is None
    True
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingExtraError(f"pictures need Pillow: {say_install('images')}.") from None
    broken = (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        struct.error,
        Image.DecompressionBombError,
    )

    def decode(blob: bytes | None) -> Pixels | None:
        if blob is None:
            return None
        try:
            with Image.open(io.BytesIO(blob)) as opened:
                picture = opened.convert("RGB")
        except broken:
            return None
        fitting = picture.resize((size, size), Image.Resampling.BILINEAR)  # itself if it fits
        return np.ascontiguousarray(np.asarray(fitting).transpose(2, 0, 1))

    return decode
