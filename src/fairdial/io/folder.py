"""A model's folder: written completely or not at all, and checked before anything is parsed.

Files that the manifest doesn't name are never opened.
"""

from __future__ import annotations

import contextlib
import glob
import hmac
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairdial._files import ABANDONED, sync_folder
from fairdial.errors import InvalidInputError, ModelFileError
from fairdial.io.manifest import (
    DIGEST,
    FORMAT,
    MANIFEST,
    SIGNATURE,
    VERSION,
    Key,
    check_folder,
    digest_of,
    hash_of,
    named_files,
    read_file,
    read_key,
    read_manifest,
    sign,
)
from fairdial.io.values import Json, write_json

PARTIAL, OLD = ".fairdial-part", ".fairdial-old"  # suffixes of folders beside the target
ATTEMPTS = 30  # to read, while another process replaces the folder


@dataclass(frozen=True)
class Stored:
    """The content of a folder, checked against its manifest.

    Attributes
    ----------
    manifest : dict
        The manifest.
    files : dict
        The bytes of every file that it names.
    hash : str
        SHA-256 of the manifest, which identifies the model.
    """

    manifest: dict[str, Json]
    files: dict[str, bytes]
    hash: str


# ---- writing -----------------------------------------------------------------------------------


def write_folder(
    folder: str | os.PathLike[str],
    manifest: Mapping[str, Json],
    files: Mapping[str, bytes],
    *,
    overwrite: bool = False,
    key: Key = None,
) -> str:
    """Write a model's folder under a temporary name and rename it; return the manifest's hash.

    Parameters
    ----------
    folder : path
        Where to write the model.
    manifest : mapping
        Description of the model, as JSON; format and hashes are added.
    files : mapping of str to bytes
        All other files.
    overwrite : bool
        Whether a model in this folder may be replaced.
    key : bytes or path, optional
        Signs the manifest.
    """
    secret = read_key(key)
    target = check_target(folder, overwrite=overwrite)
    hashes = {name: {"sha256": hash_of(data), "size": len(data)} for name, data in files.items()}
    body = write_json({"format": FORMAT, "version": VERSION, **manifest, "files": hashes})
    contents = {**files, MANIFEST: body, DIGEST: digest_of(body)}
    if secret is not None:
        contents[SIGNATURE] = sign(body, secret).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}{PARTIAL}")
    part.mkdir()
    try:
        for name, data in contents.items():
            _write_file(part / name, data)
        sync_folder(part)
        _put(part, target, overwrite)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return hash_of(body)


def check_target(folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Return the path where a model may be written; raise if it may not."""
    target = Path(os.path.realpath(folder))
    _recover(target)
    if os.path.lexists(target):
        _refuse_existing(target, overwrite)
    return target


def _put(part: Path, target: Path, overwrite: bool) -> None:
    """Rename a finished folder to its name; the old one is kept until that is done."""
    old = _old(target)
    try:
        if overwrite and target.exists():
            os.rename(target, old)
        os.rename(part, target)
    except OSError as error:
        _recover(target)
        raise _written_elsewhere(target) from error
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _written_elsewhere(target: Path) -> InvalidInputError:
    return InvalidInputError(
        "folder",
        "not be written by another process at the same time",
        given=f"{str(target)!r}, which has just changed",
        hint="Save again.",
    )


def _old(target: Path) -> Path:
    """Return the path of the old folder while the new one replaces it."""
    return target.with_name(f".{target.name}{OLD}")


def _recover(target: Path) -> None:
    """Clean up after a save that was killed: restore the old folder, or remove it."""
    old = _old(target)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        with contextlib.suppress(OSError):  # another process did it first
            os.rename(old, target)
    for part in target.parent.glob(f".{glob.escape(target.name)}.*{PARTIAL}"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > ABANDONED:
                shutil.rmtree(part, ignore_errors=True)


def _refuse_existing(target: Path, overwrite: bool) -> None:
    """Raise unless the folder holds nothing but a model that may be replaced."""
    if not overwrite:
        raise InvalidInputError(
            "folder",
            "not exist yet",
            given=repr(str(target)),
            hint="`overwrite=True` replaces the model in it.",
        )
    try:
        known = {MANIFEST, DIGEST, SIGNATURE, *named_files(read_manifest(target, None)[0])}
    except ModelFileError as error:
        raise InvalidInputError(
            "folder",
            "hold a model to be replaced",
            given=f"{str(target)!r} ({str(error).removesuffix('.')})",
            hint="Delete it yourself, or choose another folder.",
        ) from error
    try:
        others = sorted({path.name for path in target.iterdir()} - known)
    except FileNotFoundError as error:
        raise _written_elsewhere(target) from error
    if others:
        raise InvalidInputError(
            "folder",
            "hold nothing but a model to be replaced",
            given=f"{str(target)!r} with {', '.join(map(repr, others))} in it",
            hint="Move these files first: they would be lost.",
        )


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


# ---- reading -----------------------------------------------------------------------------------


def read_folder(folder: str | os.PathLike[str], *, key: Key = None) -> Stored:
    """Return the content of a model's folder, checked against the manifest's hashes.

    Parameters
    ----------
    folder : path
        The model. While it is being replaced, either the old or the new model is read.
    key : bytes or path, optional
        The manifest must be signed with it.

    Raises
    ------
    ModelFileError
        A file is missing, has another size or hash, is a link, or the signature is wrong.
    """
    secret = read_key(key)
    target = Path(os.path.realpath(folder))
    for _ in range(ATTEMPTS - 1):
        place = _find(target)
        before = _identity(place)
        try:
            return _read(place, secret)
        except ModelFileError:
            if _identity(_find(target)) == before:  # it is not being replaced
                raise
    return _read(_find(target), secret)


def find_model(folder: str | os.PathLike[str]) -> None:
    """Raise unless there is a folder with a manifest, which isn't read."""
    place = _find(Path(os.path.realpath(folder)))
    check_folder(place)


def _find(target: Path) -> Path:
    """Return the folder, or the old one if a save is, or was killed, between two renames."""
    old = _old(target)
    return old if not target.exists() and old.exists() else target


def _identity(place: Path) -> tuple[Path, int, int, int] | None:
    """Return what distinguishes folders: a folder keeps its inode and time when it is renamed."""
    try:
        found = place.stat()
    except OSError:
        return None
    return place, found.st_dev, found.st_ino, found.st_mtime_ns


def _read(place: Path, secret: bytes | None) -> Stored:
    manifest, body = read_manifest(place, secret)
    files = {}
    for name, (digest, size) in named_files(manifest).items():
        data = read_file(place, name, size, whole=True)
        if not hmac.compare_digest(hash_of(data), digest):
            raise ModelFileError(
                f"`{name}` must have the SHA-256 in the manifest; it was altered after it was "
                f"saved in {str(place)!r}."
            )
        files[name] = data
    return Stored(manifest, files, hash_of(body))
