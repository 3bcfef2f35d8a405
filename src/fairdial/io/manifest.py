"""The manifest of a model's folder: its hash, its signature, and the files that it names.

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
from typing import TYPE_CHECKING, cast

from fairdial._validation import did_you_mean
from fairdial.errors import InvalidInputError, ModelFileError
from fairdial.io.values import Json, claim, read_json

if TYPE_CHECKING:
    from fairdial.estimators.base import Training

Key = bytes | str | os.PathLike[str] | None

MANIFEST, DIGEST, SIGNATURE = "manifest.json", "manifest.sha256", "manifest.sig"
OBJECTS = "objects.skops"  # scikit-learn objects, in models that have some
FORMAT, VERSION = "fairdial.model", 4
"""Version 1: fairdial 0.1, whose table encoders have other names; 2: 0.2, which knows criteria with
one rate only. A reader of version 2 would ignore objectives and budgets; one of version 3 doesn't
know plain models, and its GFB lacks options of its algorithm."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
HASH = re.compile(r"[0-9a-f]{64}")
MAX_MANIFEST = 1 << 24  # bytes
MAX_FILE = 1 << 34
MAX_FILES = 64
MIN_KEY, MAX_KEY = 16, 1 << 16
TRAINING = {"rows", "ended", "asked"}
CHOICE = {"chosen", "why"}  # of AutoDial
MISSING_GROUP = {"missing_group"}  # if rows without a group have one
PROXIES = {"together", "columns", "chance"}
OPTIONAL = MISSING_GROUP | {"proxies", "merged_groups", "merged_labels"}


def check_folder(place: Path) -> None:
    """Raise unless this is a model's folder; suggest a model next to it that was probably meant."""
    must = f"`folder` must be a model's folder, got {str(place)!r}"
    if not os.path.lexists(place):
        beside = [path.parent.name for path in place.parent.glob(f"[!.]*/{MANIFEST}")]
        raise ModelFileError(f"{must}, which doesn't exist.{did_you_mean(place.name, beside)}")
    if not place.is_dir():
        raise ModelFileError(f"{must}, which isn't a folder.")
    if not os.path.lexists(place / MANIFEST):
        raise ModelFileError(f"{must}, which isn't one: it has no `{MANIFEST}`.")


def read_manifest(place: Path, secret: bytes | None) -> tuple[dict[str, Json], bytes]:
    """Return the manifest and its bytes, after checking its hash and, with a key, its signature."""
    check_folder(place)
    body = read_file(place, MANIFEST, MAX_MANIFEST)
    if not hmac.compare_digest(read_file(place, DIGEST, MAX_KEY), digest_of(body)):
        raise ModelFileError(
            f"`{MANIFEST}` must have the SHA-256 in `{DIGEST}`; one of them was altered after it "
            f"was saved in {str(place)!r}."
        )
    if secret is not None:
        if not os.path.lexists(place / SIGNATURE):
            raise ModelFileError(f"`{SIGNATURE}` must exist with `key`, but the model is unsigned.")
        given = read_file(place, SIGNATURE, MAX_KEY)
        if not hmac.compare_digest(given, sign(body, secret).encode()):
            raise ModelFileError(
                f"`{SIGNATURE}` must be made with `key`; the model was signed with another key, or "
                "altered."
            )
    manifest = read_json(body, MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"`{MANIFEST}` must have the format {FORMAT!r}.")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"`{MANIFEST}` must have a format version, got {version!r}.")
    if version > VERSION:
        raise ModelFileError(
            f"`{MANIFEST}` has format version {version}, but this version of fairdial reads up to "
            f"{VERSION}; install a newer one."
        )
    return manifest, body


def trained_method(manifest: Mapping[str, Json]) -> str:
    """Return what --method was if the command line trained the model, else the class name."""
    training = manifest.get("training") or {}
    return str(training.get("asked") or manifest["method"])


def sees_group(scorer: Mapping[str, Json]) -> bool | None:
    """Return whether a saved scorer knows a row's group; None for a scorer of your own.

    Examples
    --------
    >>> from fairdial.io.manifest import sees_group
    >>> sees_group({"kind": "estimators", "method": "predict_proba", "per_group": True})
    True
    """
    if scorer["kind"] == "object":
        return None
    if scorer["kind"] in ("estimators", "plain"):
        return bool(scorer["per_group"])
    if scorer["kind"] == "blind":
        return False
    if scorer["kind"] == "averaged":
        return any(sees_group(part) for part in scorer["parts"])
    return any(not net["shared"] or _reads_group(net["trunk"]) for net in scorer["nets"])


def _reads_group(trunk: Mapping[str, Json]) -> bool:
    """Return whether a shared network's layers use the group, which every row comes with."""
    return not trunk["marks"] or trunk["late"]  # marks are columns that the first layer drops


def training_from_data(data: dict[str, Json]) -> Training:
    """Return how the model was trained, checked; ValueError if the data are something else.

    Examples
    --------
    >>> from fairdial.io.manifest import training_from_data
    >>> data = {"rows": 900, "ended": "2026-01-01 00:00:00", "asked": None}
    >>> training_from_data(data) == data
    True
    """
    claim(set(data) - OPTIONAL in (TRAINING, TRAINING | CHOICE), "known facts on training")
    claim(type(data["rows"]) is int and data["rows"] > 0, "a number of training rows")
    claim(isinstance(data["ended"], str), "the end of training")
    claim(data["asked"] is None or isinstance(data["asked"], str), "a method")
    for name in (CHOICE | MISSING_GROUP) & set(data):  # shown on terminals: one line each
        claim(isinstance(data[name], str) and data[name].isprintable(), "one line of text")
    if "proxies" in data:
        _check_proxies(data["proxies"])
    if "merged_groups" in data:
        merged = data["merged_groups"]
        claim(isinstance(merged, dict) and set(merged) == {"name", "values"}, "merged groups")
        claim(all(map(_are_names, ([merged["name"]], *merged["values"]))), "names of groups")
    if "merged_labels" in data:
        claim(_are_names(data["merged_labels"]), "merged labels")
    return cast("Training", data)


def _are_names(data: Json) -> bool:
    return isinstance(data, list) and all(isinstance(x, str) and x.isprintable() for x in data)


def _check_proxies(data: Json) -> None:
    claim(isinstance(data, dict) and set(data) == PROXIES, "figures on proxies of the group")
    columns = data["columns"]
    claim(isinstance(columns, dict) and all(map(str.isprintable, columns)), "names of columns")
    figures = [data["together"], data["chance"], *columns.values()]
    claim(all(type(x) in (int, float) and 0 <= x <= 1 for x in figures), "accuracies")


def named_files(manifest: Mapping[str, Json]) -> dict[str, tuple[str, int]]:
    """Return hash and size of every file that the manifest names."""
    entries = manifest.get("files")
    if not isinstance(entries, dict) or len(entries) > MAX_FILES:
        raise ModelFileError(f"`{MANIFEST}` must name at most {MAX_FILES} files.")
    found = {}
    for name, entry in entries.items():
        if not PLAIN_NAME.fullmatch(name) or name in (MANIFEST, DIGEST, SIGNATURE):
            raise ModelFileError(
                f"`{MANIFEST}` must name files inside the folder by plain names, got {name!r}."
            )
        if not isinstance(entry, dict) or set(entry) != {"sha256", "size"}:
            raise ModelFileError(f"`{MANIFEST}` must have hash and size of {name!r}.")
        digest, size = entry["sha256"], entry["size"]
        if not isinstance(digest, str) or not HASH.fullmatch(digest):
            raise ModelFileError(f"`{MANIFEST}` must have a SHA-256 of {name!r}, got {digest!r}.")
        if type(size) is not int or not 0 <= size <= MAX_FILE:
            raise ModelFileError(
                f"`{MANIFEST}` must have a size of at most {MAX_FILE:,} bytes for {name!r}, "
                f"got {size!r}."
            )
        found[name] = digest, size
    return found


def read_file(place: Path, name: str, most: int, *, whole: bool = False) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes, or exactly as many."""
    path = place / name
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ModelFileError(f"`{name}` must be a file, not a link or a folder.")
        with open(path, "rb", opener=_open_no_link) as file:
            found = os.fstat(file.fileno())  # the file that is read, whatever has the name by now
            if not stat.S_ISREG(found.st_mode):
                raise ModelFileError(f"`{name}` must be a file, not a link or a folder.")
            if whole and found.st_size != most:
                raise ModelFileError(
                    f"`{name}` must have {most:,} bytes, got {found.st_size:,}; it was altered "
                    f"after it was saved in {str(place)!r}."
                )
            if found.st_size > most:
                raise ModelFileError(
                    f"`{name}` must have at most {most:,} bytes, got {found.st_size:,}."
                )
            return file.read(most + 1)
    except FileNotFoundError as error:
        raise ModelFileError(f"`{name}` must be in {str(place)!r}, but is missing.") from error
    except OSError as error:
        raise ModelFileError(f"`{name}` can't be read: {error}.") from error


def _open_no_link(path: str, flags: int) -> int:
    """Open a file unless it is a link; never wait for a pipe."""
    extra = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags | extra)


# ---- keys --------------------------------------------------------------------------------------


def read_key(key: Key) -> bytes | None:
    """Return a key's bytes, given directly or by the path of a file."""
    if key is None:
        return None
    if isinstance(key, (str, os.PathLike)):
        try:
            with Path(key).open("rb") as file:
                secret = file.read(MAX_KEY + 1)
        except OSError as error:
            raise InvalidInputError(
                "key", "be bytes or the path of a file", given=f"{str(key)!r} ({error})"
            ) from error
    elif isinstance(key, (bytes, bytearray, memoryview)):
        secret = bytes(key)
    else:
        raise InvalidInputError("key", "be bytes or the path of a file", given=type(key).__name__)
    if not MIN_KEY <= len(secret) <= MAX_KEY:
        raise InvalidInputError(
            "key", f"have between {MIN_KEY} and {MAX_KEY:,} bytes", given=f"{len(secret):,}"
        )
    return secret


def sign(body: bytes, secret: bytes) -> str:
    """Return the HMAC-SHA256 in hexadecimal digits."""
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def digest_of(body: bytes) -> bytes:
    """Return the hash of the manifest, as ``sha256sum -c`` reads it."""
    return f"{hash_of(body)}  {MANIFEST}\n".encode()


def hash_of(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
