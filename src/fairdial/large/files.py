"""Files of score summaries, written atomically and verified when read; and limits of their size."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Counts, Dtype
from fairdial._files import replacing
from fairdial._validation import check_count
from fairdial.core.histograms import Grid
from fairdial.core.serialization import DTYPES, json_name
from fairdial.errors import InvalidInputError

FORMAT = 1
BITS = 16  # 2^16 bins of 2^-11 take a tenth longer to count than 2^14, 2^20 bins twice as long
MIN_BITS, MAX_BITS = 8, 20
MAX_BINS = 1 << 27  # a gigabyte of counts


def check_bits(bits: int) -> Grid:
    """Return the grid with 2^bits bins."""
    check_count(bits, "bits", least=MIN_BITS)
    if bits > MAX_BITS:
        raise InvalidInputError("bits", f"be at most {MAX_BITS}", given=bits)
    return Grid(int(bits))


def check_size(n_cells: int, grid: Grid) -> None:
    """Raise if the counts would be too large."""
    if n_cells * grid.size > MAX_BINS:
        raise InvalidInputError(
            "bits",
            f"allow at most {MAX_BINS:,} bins in total",
            given=f"2^{grid.bits} bins for each of {n_cells:,} groups and labels",
            hint="Check that the group column contains groups.",
        )


def write_summary(
    path: str | PathLike[str], counts: Counts, groups: Sequence[Hashable], dtype: Dtype
) -> None:
    """Write the nonzero counts by group, label and bin."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    places = np.flatnonzero(counts)
    tensors = {"places": places.astype(np.int64), "rows": counts.reshape(-1)[places]}
    header: dict[str, Any] = {
        "format": "fairdial.summary",
        "version": FORMAT,
        "shape": list(counts.shape),
        "groups": [json_name(group) for group in groups],
        "dtype": dtype.name,
    }
    header["sha256"] = _hash(header, tensors)
    try:
        with replacing(path) as part:
            save_file(tensors, part.name, metadata={"fairdial": json.dumps(header)})
    except (SafetensorError, OSError) as error:
        raise InvalidInputError(
            "path", "be a writable file", given=f"{str(path)!r} ({error})"
        ) from error


def read_summary(
    path: str | PathLike[str],
) -> tuple[Counts, tuple[Hashable, ...], Dtype]:
    """Return the counts, groups and dtype that :func:`write_summary` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as stored:
            header = json.loads((stored.metadata() or {})["fairdial"])
            if header["format"] != "fairdial.summary":
                raise ValueError(f"the format is {header['format']!r}")
            if header["version"] > FORMAT:
                raise InvalidInputError(
                    "path",
                    f"have format version {FORMAT} or older",
                    given=header["version"],
                    hint="Install a newer fairdial.",
                )
            tensors = {name: stored.get_tensor(name) for name in ("places", "rows")}
        if header.pop("sha256") != _hash(header, tensors):
            raise ValueError("the checksum is wrong")
        n_groups, n_labels, size = header["shape"]
        groups = tuple(header["groups"])
        if len(groups) != n_groups or n_labels not in (1, 2) or size & (size - 1):
            raise ValueError("counts and groups don't match")
        check_size(n_groups * n_labels, check_bits(size.bit_length() - 1))
        counts = np.zeros(n_groups * n_labels * size, np.int64)
        counts[tensors["places"]] = tensors["rows"]
        return counts.reshape(n_groups, n_labels, size), groups, DTYPES[header["dtype"]]
    except FileNotFoundError:
        raise InvalidInputError("path", "be an existing file", given=repr(str(path))) from None
    except (SafetensorError, OSError, KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            "path", "be written by ScoreSummary.save", given=f"{Path(path).name} ({error})"
        ) from error


def _hash(header: dict[str, Any], tensors: dict[str, NDArray[np.int64]]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in ("places", "rows"):
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()
