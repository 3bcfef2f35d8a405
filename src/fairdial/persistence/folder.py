"""A model's folder: written whole or not at all, and checked before anything in it is read.

``manifest.json`` holds the size and the SHA-256 of every other file, ``manifest.sha256`` the hash
of the manifest itself; ``manifest.sig``, if there is one, signs the manifest with a key
(HMAC-SHA256). Files that the manifest doesn't name are never opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairdial.errors import InvalidInputError, ModelFileError
from fairdial.persistence.values import read_json, write_json

MANIFEST, DIGEST, SIGNATURE = "manifest.json", "manifest.sha256", "manifest.sig"
FORMAT, VERSION = "fairdial.model", 1
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
HASH = re.compile(r"[0-9a-f]{64}")
LARGEST_MANIFEST = 1 << 24  # bytes
LARGEST_FILE = 1 << 34
MOST_FILES = 64
SHORTEST_KEY, LARGEST_KEY = 16, 1 << 16
ABANDONED = 3600.0  # seconds after which a half-written folder has no writer any more
ATTEMPTS = 10  # of reading, while somebody else replaces the folder

Key = bytes | str | os.PathLike[str] | None


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
    target = Path(os.path.realpath(folder))
    _recover(target)
    if os.path.lexists(target):
        _refuse_existing(target, overwrite)
    hashes = {name: {"sha256": _hash(data), "size": len(data)} for name, data in files.items()}
    body = write_json({"format": FORMAT, "version": VERSION, **manifest, "files": hashes})
    contents = {**files, MANIFEST: body, DIGEST: _digest(body)}
    if secret is not None:
        contents[SIGNATURE] = _sign(body, secret).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    part.mkdir()
    try:
        for name, data in contents.items():
            _write_file(part / name, data)
        _sync(part)
        _put(part, target, overwrite)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return _hash(body)


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
    return target.with_name(f".{target.name}.old")


def _recover(target: Path) -> None:
    """Finish what a save that was killed has left: the old folder comes back, or goes."""
    old = _aside(target)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        with contextlib.suppress(OSError):  # somebody else was faster
            os.rename(old, target)
    for part in target.parent.glob(f".{target.name}.*.part"):
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
        known = {MANIFEST, DIGEST, SIGNATURE, *_files(_manifest(target, None)[0])}
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
    for attempt in range(ATTEMPTS):
        place = _find(target)
        before = _identity(place)
        try:
            return _read(place, secret)
        except ModelFileError:
            if _identity(_find(target)) == before or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


def _find(target: Path) -> Path:
    """The folder; or the old one, where a save was killed (or is) between its two renames."""
    old = _aside(target)
    return old if not target.exists() and old.exists() else target


def _identity(place: Path) -> tuple[int, int] | None:
    try:
        found = place.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _read(place: Path, secret: bytes | None) -> Stored:
    manifest, body = _manifest(place, secret)
    files = {}
    for name, (digest, size) in _files(manifest).items():
        data = _read_file(place, name, size)
        if len(data) != size:
            raise ModelFileError(
                f"`{name}` must have {size:,} bytes, got {len(data):,}: it is not the file that "
                "was saved."
            )
        if not hmac.compare_digest(_hash(data), digest):
            raise ModelFileError(
                f"`{name}` must have the SHA-256 of the manifest, got another: it was altered "
                "after it was saved."
            )
        files[name] = data
    return Stored(manifest, files, _hash(body))


def _manifest(place: Path, secret: bytes | None) -> tuple[dict[str, Any], bytes]:
    """The manifest and its bytes; hash, and with a key the signature, are checked first."""
    if not place.is_dir():
        raise ModelFileError(f"`folder` must be a model's folder, got {str(place)!r}, which isn't.")
    body = _read_file(place, MANIFEST, LARGEST_MANIFEST)
    if not hmac.compare_digest(_read_file(place, DIGEST, LARGEST_KEY), _digest(body)):
        raise ModelFileError(
            f"`{MANIFEST}` must have the SHA-256 that `{DIGEST}` tells, got another: one of them "
            "was altered after it was saved."
        )
    if secret is not None:
        if not os.path.lexists(place / SIGNATURE):
            raise ModelFileError(f"`{SIGNATURE}` must be there with `key`, got an unsigned model.")
        given = _read_file(place, SIGNATURE, LARGEST_KEY)
        if not hmac.compare_digest(given, _sign(body, secret).encode()):
            raise ModelFileError(
                f"`{SIGNATURE}` must be made with `key`, got another: the model was signed with "
                "another key, or altered."
            )
    manifest = read_json(body, MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"`{MANIFEST}` must have the format {FORMAT!r}, got another.")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"`{MANIFEST}` must have a format version, got {version!r}.")
    if version > VERSION:
        raise ModelFileError(
            f"`{MANIFEST}` has format version {version}, this fairdial reads up to {VERSION}; "
            "install a newer one."
        )
    return manifest, body


def _files(manifest: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Hash and size of every file that the manifest names."""
    entries = manifest.get("files")
    if not isinstance(entries, dict) or len(entries) > MOST_FILES:
        raise ModelFileError(f"`{MANIFEST}` must name at most {MOST_FILES} files, got others.")
    found = {}
    for name, entry in entries.items():
        if not PLAIN.fullmatch(name) or name in (MANIFEST, DIGEST, SIGNATURE):
            raise ModelFileError(
                f"`{MANIFEST}` must name files inside the folder by plain names, got {name!r}."
            )
        if not isinstance(entry, dict) or set(entry) != {"sha256", "size"}:
            raise ModelFileError(f"`{MANIFEST}` must have hash and size of {name!r}, got others.")
        digest, size = entry["sha256"], entry["size"]
        if not isinstance(digest, str) or not HASH.fullmatch(digest):
            raise ModelFileError(f"`{MANIFEST}` must have a SHA-256 of {name!r}, got {digest!r}.")
        if type(size) is not int or not 0 <= size <= LARGEST_FILE:
            raise ModelFileError(
                f"`{MANIFEST}` must have a size of at most {LARGEST_FILE:,} bytes for {name!r}, "
                f"got {size!r}."
            )
        found[name] = digest, size
    return found


def _read_file(place: Path, name: str, most: int) -> bytes:
    """The bytes of a file that is no link and not larger than it may be."""
    path = place / name
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise ModelFileError(f"`{name}` must be a file, got a link or a folder.")
        if found.st_size > most:
            raise ModelFileError(
                f"`{name}` must have at most {most:,} bytes, got {found.st_size:,}."
            )
        with path.open("rb") as file:
            return file.read(most + 1)
    except FileNotFoundError as error:
        raise ModelFileError(f"`{name}` must be in {str(place)!r}, got no such file.") from error
    except OSError as error:
        raise ModelFileError(f"`{name}` can't be read: {error}.") from error


# ---- keys --------------------------------------------------------------------------------------


def read_key(key: Key) -> bytes | None:
    """A key's bytes, given as they are or by the path of a file that holds them."""
    if key is None:
        return None
    if isinstance(key, (str, os.PathLike)):
        try:
            with Path(key).open("rb") as file:
                secret = file.read(LARGEST_KEY + 1)
        except OSError as error:
            raise InvalidInputError(
                f"`key` must be bytes or the path of a key's file, got {str(key)!r} ({error})."
            ) from error
    elif isinstance(key, (bytes, bytearray, memoryview)):
        secret = bytes(key)
    else:
        raise InvalidInputError(
            f"`key` must be bytes or the path of a key's file, got {type(key).__name__}."
        )
    if not SHORTEST_KEY <= len(secret) <= LARGEST_KEY:
        raise InvalidInputError(
            f"`key` must have from {SHORTEST_KEY} to {LARGEST_KEY:,} bytes, got {len(secret):,}."
        )
    return secret


def _sign(body: bytes, secret: bytes) -> str:
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def _digest(body: bytes) -> bytes:
    """The hash of the manifest, as ``sha256sum -c`` reads it."""
    return f"{_hash(body)}  {MANIFEST}\n".encode()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
