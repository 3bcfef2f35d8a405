"""Files of score summaries: what was counted, whole or not at all, and checked when it is read."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Hashable, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fairdial.errors import InvalidInputError
from fairdial.ladders import Counts
from fairdial.states_json import plain_name
from fairdial.summaries.limits import DTYPES, check_bits, check_size

FORMAT = 1


def write_summary(
    path: str | PathLike[str], counts: Counts, groups: Sequence[Hashable], dtype: np.dtype[Any]
) -> None:
    """Write counts by group, label and bin: only those that aren't 0."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    file = Path(path)
    places = np.flatnonzero(counts)
    tensors = {"places": places.astype(np.int64), "rows": counts.reshape(-1)[places]}
    told: dict[str, Any] = {
        "format": "fairdial.summary",
        "version": FORMAT,
        "shape": list(counts.shape),
        "groups": [plain_name(group) for group in groups],
        "dtype": dtype.name,
    }
    told["sha256"] = _hash(told, tensors)
    half = file.with_name(f".{file.name}.{uuid.uuid4().hex}.part")
    try:
        save_file(tensors, half, metadata={"fairdial": json.dumps(told)})
        with half.open("rb+") as written:
            os.fsync(written.fileno())
        os.replace(half, file)
    except (SafetensorError, OSError) as error:
        raise InvalidInputError(
            f"`path` must be a file that can be written, got {str(file)!r}: {error}."
        ) from error
    finally:
        with suppress(OSError):  # such as a path through a file
            half.unlink(missing_ok=True)


def read_summary(
    path: str | PathLike[str],
) -> tuple[Counts, tuple[Hashable, ...], np.dtype[Any]]:
    """Counts, groups and dtype as :func:`write_summary` wrote them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as stored:
            told = json.loads((stored.metadata() or {})["fairdial"])
            if told["format"] != "fairdial.summary":
                raise ValueError(f"a file of the format {told['format']!r}")
            if told["version"] > FORMAT:
                raise InvalidInputError(
                    f"`path` has format version {told['version']}, this fairdial reads up to "
                    f"{FORMAT}; install a newer one."
                )
            tensors = {name: stored.get_tensor(name) for name in ("places", "rows")}
        if told.pop("sha256") != _hash(told, tensors):
            raise ValueError("a damaged file: its checksum is another")
        n_groups, n_labels, size = told["shape"]
        groups = tuple(told["groups"])
        if len(groups) != n_groups or n_labels not in (1, 2) or size & (size - 1):
            raise ValueError("counts of another shape than its groups")
        check_size(n_groups * n_labels, check_bits(size.bit_length() - 1))
        counts = np.zeros(n_groups * n_labels * size, np.int64)
        counts[tensors["places"]] = tensors["rows"]
        return counts.reshape(n_groups, n_labels, size), groups, DTYPES[told["dtype"]]
    except FileNotFoundError:
        raise InvalidInputError(f"`path` must be a file, got {str(path)!r}: not there.") from None
    except (SafetensorError, OSError, KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"`path` must be what ScoreSummary.save wrote, got {Path(path).name}: {error}."
        ) from error


def _hash(told: dict[str, Any], tensors: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name in ("places", "rows"):
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()
