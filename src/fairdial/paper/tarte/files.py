"""The model's files on this machine: where they are, what they hold, where to get them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial.errors import InvalidInputError, MissingExtraError, install_command

HUB = "https://huggingface.co"
NAMES = {  # of the official files
    "weights": "tarte_pretrained_weights.pt",
    "config": "tarte_pretrained_configs.json",
    "fasttext": "cc.en.300.bin",
}
PLACES = {
    "weights": "inria-soda/tarte",
    "config": "inria-soda/tarte",
    "fasttext": "hi-paris/fastText",
}
SOURCES = {argument: f"{name} of {HUB}/{PLACES[argument]}" for argument, name in NAMES.items()}
SIZES = (
    "dim_input",
    "dim_transformer",
    "dim_feedforward",
    "num_heads",
    "num_layers_transformer",
)
INSTALL = (
    f"{install_command('tarte')} (about 2.6 GB with a CPU build of torch); or, without libraries "
    "that aren't used here, pip install '.[torch]' fasttext -c constraints.txt there, and then "
    "pip install --no-deps tarte-ai"
)
WHOLE = 2**30  # bytes up to which a fingerprint reads the whole file
ENDS = 2**20  # bytes that it reads of the beginning and the end of a larger one


def find_file(path: Any, name: str) -> Path:
    """Return the file that an argument names, or raise an error that says where to get it."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(name, "be the path of a file", given=repr(path))
    found = Path(path).expanduser()
    if not found.is_file():
        raise InvalidInputError(
            name,
            "be a file on this machine",
            given=f"{str(path)!r}, which doesn't exist",
            hint=f"Nothing is downloaded; the official file is {SOURCES[name]}.",
        )
    return found


def find_files(folder: Path) -> dict[str, Path]:
    """Return the official files in a folder, or in ``tarte/`` in it, by argument."""
    found = {
        argument: path
        for argument, name in NAMES.items()
        for path in (folder / "tarte" / name, folder / name)
        if path.is_file()
    }
    missing = [SOURCES[argument] for argument in NAMES if argument not in found]
    if missing:
        raise InvalidInputError(
            "data",
            "contain TARTE's files, directly or in tarte/",
            given=f"{folder} without {', '.join(missing)}",
            hint="Nothing is downloaded.",
        )
    return found


def fingerprint(path: Path) -> str:
    """Return a digest of a file; of a very large one, of its size, beginning and end."""
    stat = path.stat()
    return _fingerprint(path, stat.st_size, stat.st_mtime_ns)


@lru_cache
def _fingerprint(path: Path, size: int, mtime: int) -> str:  # noqa: ARG001
    with path.open("rb") as file:
        if size <= WHOLE:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(str(size).encode() + file.read(ENDS))
        file.seek(-ENDS, os.SEEK_END)
        digest.update(file.read())
        return digest.hexdigest()


def check_unchanged(path: Path, name: str, known: str) -> None:
    """Raise if the file has changed since the encoder was fitted."""
    if fingerprint(path) != known:
        raise InvalidInputError(
            name,
            "be the file that the encoder was fitted with",
            given=f"{str(path)!r} with other content",
            hint="Fit again.",
        )


def read_config(path: Path) -> dict[str, Any]:
    """Return the sizes of the transformer."""
    try:
        config = json.loads(path.read_text("utf-8"))
        sizes = {key: config[key] for key in SIZES}
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            "config",
            "be a JSON file",
            given=f"{str(path)!r} ({error})",
            hint=f"The official file is {SOURCES['config']}.",
        ) from error
    except KeyError as error:
        raise InvalidInputError(
            "config", f"have {', '.join(SIZES)}", given=f"{str(path)!r} without {error}"
        ) from None
    for key, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InvalidInputError("config", f"have a positive integer as {key}", given=repr(size))
    if sizes["dim_transformer"] % sizes["num_heads"]:
        raise InvalidInputError(
            "config",
            "have a dim_transformer that num_heads divides",
            given=f"{sizes['dim_transformer']} and {sizes['num_heads']}",
        )
    return sizes


def require_package(name: str) -> None:
    """Raise if a package that TARTE needs isn't installed."""
    try:
        found = find_spec(name) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise missing_package(name)


def missing_package(name: str | None) -> MissingExtraError:
    """Return an error that says what to install."""
    return MissingExtraError(
        f"TarteEncoder needs torch, fasttext and tarte-ai, but {name} is missing: {INSTALL}."
    )


def word_vectors(path: Path, texts: Sequence[str], dim: int) -> NDArray[np.float32]:
    """Return the vectors of texts, (len(texts), dim).

    The model, which takes long to read, stays open in each process.
    """
    stat = path.stat()
    model = _open_words(path, stat.st_size, stat.st_mtime_ns)
    if model.get_dimension() != dim:
        raise InvalidInputError(
            "fasttext",
            f"hold vectors of dim_input={dim} numbers, as in `config`",
            given=f"{model.get_dimension()} in {str(path)!r}",
        )
    vectors = [model.get_sentence_vector(text) for text in texts]
    return np.array(vectors, np.float32).reshape(len(texts), dim)


@lru_cache(maxsize=1)
def _open_words(path: Path, size: int, mtime: int) -> Any:  # noqa: ARG001
    require_package("fasttext")
    import fasttext

    try:
        return fasttext.load_model(str(path))
    except (ValueError, MemoryError, RuntimeError) as error:
        raise InvalidInputError(
            "fasttext",
            "be a fastText model",
            given=f"{str(path)!r} ({error})",
            hint=f"The official file is {SOURCES['fasttext']}.",
        ) from error
