"""Decode pictures once, into a memory map in a cache folder with a manifest.

A cache folder is named by a digest of its source, so a changed source gets a new one. The manifest
is written last; a cache without a manifest, or with a file of the wrong size, is made again.
Several processes may do so at once: each writes under its own temporary name, then renames.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray

from fairdial._files import remove_abandoned, replacing, write_file
from fairdial._validation import check_count
from fairdial.datasets.picture_files import PictureFiles, first_names
from fairdial.datasets.pictures import CHANNELS, Pictures, Pixels, shaped_key
from fairdial.errors import (
    FairdialWarning,
    InvalidInputError,
    MissingExtraError,
    install_command,
    warn,
)
from fairdial.progress import Bar, Reporter, Silent

FORMAT = 2  # 2: copies are found by their pixels
RESAMPLING = "bilinear"
VARIABLE = "FAIRDIAL_CACHE"
MANIFEST = "manifest.json"
AT_ONCE = 128  # pictures in memory
MOST_THREADS = 8
DIGITS = 16  # of a digest in a file's name


class Decoded(NamedTuple):
    """Pictures with their names, and cluster numbers that copies of one picture share."""

    pictures: Pictures
    names: list[str]
    clusters: NDArray[np.int64]


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder for decoded pictures.

    This is ``cache``, else the environment variable ``FAIRDIAL_CACHE``, else ``fairdial`` in the
    user's cache folder.

    Examples
    --------
    >>> from fairdial.datasets.picture_cache import cache_folder
    >>> cache_folder("scratch").name
    'scratch'
    """
    if cache is not None and not isinstance(cache, str | os.PathLike):
        raise InvalidInputError("cache", "be the path of a folder or None", given=repr(cache))
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
    """Return pictures as RGB of ``size`` x ``size`` pixels, from the cache if they are there.

    Warns about pictures that can't be decoded, and leaves them out.

    Parameters
    ----------
    files : PictureFiles
        The files.
    names : sequence of str
        Which files to decode, in which order.
    title : str
        Short name of the data set, for the cache folder.
    size : int
        Height and width. Other sizes are resampled (bilinear, with antialiasing), without keeping
        the aspect ratio.
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
            f"left out {len(lost):,} of {len(names):,} pictures that can't be read: "
            f"{first_names(lost)}",
            FairdialWarning,
        )
    if not manifest["names"]:
        raise InvalidInputError("root", f"contain readable pictures of {title}", given="none")
    pixels = np.lib.format.open_memmap(folder / manifest["pixels"], mode="r")
    pictures = Pictures(pixels, key=manifest["key"])
    _, clusters = np.unique(manifest["sha256"], return_inverse=True)
    return Decoded(pictures, manifest["names"], clusters.astype(np.int64))


def open_folder(folder: Path) -> Path:
    """Create a folder of the cache if it is missing, and remove what killed processes left."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            "cache", "be a writable folder", given=f"{str(folder)!r} ({error})"
        ) from None
    remove_abandoned(folder)
    return folder


def _read_manifest(folder: Path, digest: str) -> dict[str, Any] | None:
    """Return the manifest if it is complete and its pixel file has the right size."""
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
    """Decode all pictures, and write the pixels and then the manifest."""
    manifest: dict[str, Any] = {"format": FORMAT, "digest": digest, "source": str(files.place)}
    decode = decoder(size)
    kept: dict[str, str] = {}
    unreadable: list[str] = []
    seen = hashlib.sha256()

    with replacing(folder / "pixels.npy", lambda: _pixel_file(manifest["key"])) as stream:
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
        _write_header(stream, shape)  # same length for any number of pictures
        manifest["key"] = shaped_key(seen, shape)
    path = folder / _pixel_file(manifest["key"])
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
    write_file(folder / MANIFEST, json.dumps(manifest))
    return manifest


def _pixel_file(key: str) -> str:
    return f"pixels-{key[:DIGITS]}.npy"


def _write_header(stream: IO[bytes], shape: tuple[int, ...]) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)


def _decoded(
    files: PictureFiles, names: Sequence[str], decode: Callable[[bytes | None], Pixels | None]
) -> Iterator[tuple[str, Pixels | None]]:
    """Yield the name and the pixels of each picture."""
    threads = min(int(cpu_count()), MOST_THREADS)
    with files.reader() as read, ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(names), AT_ONCE):
            batch = names[start : start + AT_ONCE]
            blobs = [read(name) for name in batch]
            yield from zip(batch, pool.map(decode, blobs), strict=True)


def decoder(size: int) -> Callable[[bytes | None], Pixels | None]:
    """Return a function from file content to (3, size, size) pixels, or None if it is broken.

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
        raise MissingExtraError(f"pictures need Pillow: {install_command('images')}.") from None
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
        resized = picture.resize((size, size), Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(resized).transpose(2, 0, 1))

    return decode
