"""What a model's folder says of itself: the manifest, its hash, its signature; files by name.

``manifest.json`` holds the size and the SHA-256 of every other file, ``manifest.sha256`` the hash
of the manifest itself; ``manifest.sig``, if there is one, signs the manifest with a key
(HMAC-SHA256).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairdial._validation import did_you_mean
from fairdial.errors import InvalidInputError, ModelFileError
from fairdial.persistence.values import read_json

MANIFEST, DIGEST, SIGNATURE = "manifest.json", "manifest.sha256", "manifest.sig"
FORMAT, VERSION = "fairdial.model", 1
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
HASH = re.compile(r"[0-9a-f]{64}")
LARGEST_MANIFEST = 1 << 24  # bytes
LARGEST_FILE = 1 << 34
MOST_FILES = 64
SHORTEST_KEY, LARGEST_KEY = 16, 1 << 16

Key = bytes | str | os.PathLike[str] | None


def check_folder(place: Path) -> None:
    """Whether there is such a folder; if not, the model beside it that was probably meant."""
    must = f"`folder` must be a model's folder, got {str(place)!r}"
    if not os.path.lexists(place):
        beside = [path.parent.name for path in place.parent.glob(f"[!.]*/{MANIFEST}")]
        raise ModelFileError(f"{must}: there is no such folder.{did_you_mean(place.name, beside)}")
    if not place.is_dir():
        raise ModelFileError(f"{must}, which isn't a folder.")


def read_manifest(place: Path, secret: bytes | None) -> tuple[dict[str, Any], bytes]:
    """The manifest and its bytes; hash, and with a key the signature, are checked first."""
    check_folder(place)
    body = read_file(place, MANIFEST, LARGEST_MANIFEST)
    if not hmac.compare_digest(read_file(place, DIGEST, LARGEST_KEY), digest_of(body)):
        raise ModelFileError(
            f"`{MANIFEST}` must have the SHA-256 that `{DIGEST}` tells, got another: one of them "
            f"was altered after it was saved in {str(place)!r}."
        )
    if secret is not None:
        if not os.path.lexists(place / SIGNATURE):
            raise ModelFileError(f"`{SIGNATURE}` must be there with `key`, got an unsigned model.")
        given = read_file(place, SIGNATURE, LARGEST_KEY)
        if not hmac.compare_digest(given, sign(body, secret).encode()):
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


def named_files(manifest: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
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


def read_file(place: Path, name: str, most: int, *, whole: bool = False) -> bytes:
    """The bytes of a file that is no link and not larger than it may be; or of just that size."""
    path = place / name
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise ModelFileError(f"`{name}` must be a file, got a link or a folder.")
        if whole and found.st_size != most:
            raise ModelFileError(
                f"`{name}` must have {most:,} bytes, got {found.st_size:,}: it was altered after "
                f"it was saved in {str(place)!r}."
            )
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


def sign(body: bytes, secret: bytes) -> str:
    """HMAC-SHA256 in hexadecimal digits."""
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def digest_of(body: bytes) -> bytes:
    """The hash of the manifest, as ``sha256sum -c`` reads it."""
    return f"{hash_of(body)}  {MANIFEST}\n".encode()


def hash_of(data: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
