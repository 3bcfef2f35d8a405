"""A model's folder: written whole or not at all, and checked before anything in it is read.

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
from typing import Any

from fairdial.errors import InvalidInputError, ModelFileError
from fairdial.persistence.manifest import (
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
from fairdial.persistence.values import write_json

HALF, ASIDE = ".fairdial-part", ".fairdial-old"  # names of folders beside the one that is meant
ABANDONED = 3600.0  # seconds after which a half-written folder has no writer any more
ATTEMPTS = 10  # of reading, while somebody else replaces the folder


@dataclass(frozen=True)
class Stored:
    """What a folder holds, checked against its manifest.

    Attributes
    ----------
    manifest : dict
        The manifest.
    files : dict
        The bytes of every file that it names.
    hash : str
        SHA-256 of the manifest, which stands for the whole model.
    """

    manifest: dict[str, Any]
    files: dict[str, bytes]
    hash: str


# ---- writing -----------------------------------------------------------------------------------


def write_folder(
    folder: str | os.PathLike[str],
    manifest: Mapping[str, Any],
    files: Mapping[str, bytes],
    *,
    overwrite: bool = False,
    key: Key = None,
) -> str:
    """Write a model's folder under a temporary name and rename it; gives the manifest's hash.

    Parameters
    ----------
    folder : path
        Where the model is to lie.
    manifest : mapping
        What is told of the model, as JSON knows it; format and hashes are added.
    files : mapping of str to bytes
        All other files.
    overwrite : bool
        Whether a model that lies there may be replaced.
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
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}{HALF}")
    part.mkdir()
    try:
        for name, data in contents.items():
            _write_file(part / name, data)
        _sync(part)
        _put(part, target, overwrite)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return hash_of(body)


def check_target(folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """The place where a model may be written; an error where it may not."""
    target = Path(os.path.realpath(folder))
    _recover(target)
    if os.path.lexists(target):
        _refuse_existing(target, overwrite)
    return target


def _put(part: Path, target: Path, overwrite: bool) -> None:
    """Rename a finished folder to its name; what was there is kept aside until that is done."""
    old = _aside(target)
    if overwrite and target.exists():
        os.rename(target, old)
    try:
        os.rename(part, target)
    except OSError as error:
        _recover(target)
        raise InvalidInputError(
            f"`folder` must not be written by others meanwhile, got {str(target)!r} that somebody "
            "has just made."
        ) from error
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _aside(target: Path) -> Path:
    """Where the old folder lies while the new one takes its place."""
    return target.with_name(f".{target.name}{ASIDE}")


def _recover(target: Path) -> None:
    """Finish what a save that was killed has left: the old folder comes back, or goes."""
    old = _aside(target)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        with contextlib.suppress(OSError):  # somebody else was faster
            os.rename(old, target)
    for part in target.parent.glob(f".{glob.escape(target.name)}.*{HALF}"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > ABANDONED:
                shutil.rmtree(part, ignore_errors=True)


def _refuse_existing(target: Path, overwrite: bool) -> None:
    """Only a model is ever replaced, and only if that is wished."""
    if not overwrite:
        raise InvalidInputError(
            f"`folder` must not exist yet, got {str(target)!r}; overwrite=True replaces the model "
            "in it."
        )
    try:
        known = {MANIFEST, DIGEST, SIGNATURE, *named_files(read_manifest(target, None)[0])}
    except ModelFileError as error:
        raise InvalidInputError(
            f"`folder` must hold a model to be replaced, got {str(target)!r} with something else "
            f"({error}) Delete it yourself, or name another."
        ) from error
    others = sorted({path.name for path in target.iterdir()} - known)
    if others:
        raise InvalidInputError(
            f"`folder` must hold nothing but a model to be replaced, got {str(target)!r} with "
            f"{', '.join(map(repr, others))} in it, which would be lost. Move them first."
        )


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make names last; where a folder can't be opened (Windows) the system does it."""
    with contextlib.suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---- reading -----------------------------------------------------------------------------------


def read_folder(folder: str | os.PathLike[str], *, key: Key = None) -> Stored:
    """Read a model's folder; everything is checked against the manifest's hashes.

    Parameters
    ----------
    folder : path
        Where the model lies. While it is being replaced, the old or the new model is read.
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
            if _identity(_find(target)) == before:  # nobody is replacing it
                raise
    return _read(_find(target), secret)


def find_model(folder: str | os.PathLike[str]) -> None:
    """Whether there is a folder with a manifest, before anything in it is read."""
    place = _find(Path(os.path.realpath(folder)))
    check_folder(place)
    if not os.path.lexists(place / MANIFEST):
        read_file(place, MANIFEST, 0)  # which says so


def _find(target: Path) -> Path:
    """The folder; or the old one, where a save was killed (or is) between its two renames."""
    old = _aside(target)
    return old if not target.exists() and old.exists() else target


def _identity(place: Path) -> tuple[int, ...] | None:
    """Tells a folder from another of the same name; numbers of files are used again."""
    try:
        found = place.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _read(place: Path, secret: bytes | None) -> Stored:
    manifest, body = read_manifest(place, secret)
    files = {}
    for name, (digest, size) in named_files(manifest).items():
        data = read_file(place, name, size, whole=True)
        if not hmac.compare_digest(hash_of(data), digest):
            raise ModelFileError(
                f"`{name}` must have the SHA-256 of the manifest, got another: it was altered "
                f"after it was saved in {str(place)!r}."
            )
        files[name] = data
    return Stored(manifest, files, hash_of(body))
