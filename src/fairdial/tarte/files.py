"""The files of the model, on this machine: where they are, what is in them, where to get them."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial.errors import InvalidInputError, MissingExtraError, say_install

HUB = "https://huggingface.co"
SOURCES = {
    "weights": f"tarte_pretrained_weights.pt of {HUB}/inria-soda/tarte",
    "config": f"tarte_pretrained_configs.json of {HUB}/inria-soda/tarte",
    "fasttext": f"cc.en.300.bin of {HUB}/hi-paris/fastText",
}
SIZES = (
    "dim_input",
    "dim_transformer",
    "dim_feedforward",
    "num_heads",
    "num_layers_transformer",
)
INSTALL = (
    f"{say_install('tarte')} (about 2.6 GB with a CPU build of torch); or, without libraries that "
    "aren't used here, pip install '.[torch]' fasttext -c constraints.txt there, and then "
    "pip install --no-deps tarte-ai"
)
WHOLE = 2**30  # bytes up to which a file's fingerprint reads all of it ...
ENDS = 2**20  # ... and beyond, this much of its beginning and of its end


def find_file(path: Any, name: str) -> Path:
    """The file that an argument names, or an error that says where it is had."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(f"`{name}` must be the path of a file, got {path!r}.")
    found = Path(path).expanduser()
    if not found.is_file():
        raise InvalidInputError(
            f"`{name}` must be a file on this machine, got {str(path)!r}, which is not there. "
            f"Nothing is downloaded; the official file is {SOURCES[name]}."
        )
    return found


def fingerprint(path: Path) -> str:
    """A digest of a file; of a very large one its size, beginning and end."""
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
    """The file is the one that was there at fit."""
    if fingerprint(path) != known:
        raise InvalidInputError(
            f"`{name}` must be the file that the encoder was fitted with, got {str(path)!r} with "
            "other content. Fit again."
        )


def read_config(path: Path) -> dict[str, Any]:
    """The sizes of the transformer."""
    try:
        config = json.loads(path.read_text("utf-8"))
        sizes = {key: config[key] for key in SIZES}
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"`config` must be a JSON file, got {str(path)!r} ({error}); the official file is "
            f"{SOURCES['config']}."
        ) from error
    except KeyError as error:
        raise InvalidInputError(
            f"`config` must have {', '.join(SIZES)}; got none called {error} in {str(path)!r}."
        ) from None
    for key, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InvalidInputError(f"`config`: {key} must be a positive integer, got {size!r}.")
    if sizes["dim_transformer"] % sizes["num_heads"]:
        raise InvalidInputError(
            "`config`: num_heads must divide dim_transformer, got "
            f"{sizes['num_heads']} and {sizes['dim_transformer']}."
        )
    return sizes


def need(module: str) -> ModuleType:
    """A module that comes with the extra, or an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError:
    """What to install where something is not there."""
    return MissingExtraError(
        f"TarteEncoder needs torch, fasttext and tarte-ai, got no {error.name}: {INSTALL}."
    )


def word_vectors(path: Path, texts: Sequence[str], dim: int) -> NDArray[np.float32]:
    """(len(texts), dim) the vectors of texts.

    The model stays open, for it takes long to read: one in each process.
    """
    stat = path.stat()
    model = _open_words(path, stat.st_size, stat.st_mtime_ns)
    if model.get_dimension() != dim:
        raise InvalidInputError(
            f"`fasttext` must hold vectors of dim_input={dim} numbers, as `config` says, got "
            f"{model.get_dimension()} in {str(path)!r}."
        )
    vectors = [model.get_sentence_vector(text) for text in texts]
    return np.array(vectors, np.float32).reshape(len(texts), dim)


@lru_cache(maxsize=1)
def _open_words(path: Path, size: int, mtime: int) -> Any:  # noqa: ARG001
    fasttext = need("fasttext")
    try:
        return fasttext.load_model(str(path))
    except (ValueError, MemoryError, RuntimeError) as error:
        raise InvalidInputError(
            f"`fasttext` must be a model of fastText, got {str(path)!r} ({error}); the official "
            f"file is {SOURCES['fasttext']}."
        ) from error
