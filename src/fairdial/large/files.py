"""Files of score summaries, written atomically and verified when read; and limits of their size."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from dataclasses import dataclass
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

FORMAT = 2  # version 1 has neither weights nor strata
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
            given=f"2^{grid.bits} bins for each of {n_cells:,} groups, strata and labels",
            hint="Check that the group column contains groups.",
        )


@dataclass(frozen=True)
class SummaryData:
    """What a summary consists of; see :class:`fairdial.ScoreSummary`."""

    counts: Counts
    groups: tuple[Hashable, ...]
    dtype: Dtype
    strata: tuple[Hashable, ...] = ()
    n_rows: NDArray[np.int64] | None = None


def write_summary(path: str | PathLike[str], data: SummaryData) -> None:
    """Write the nonzero counts by group, kind and bin."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    places = np.flatnonzero(data.counts)
    tensors = {"places": places.astype(np.int64), "rows": data.counts.reshape(-1)[places]}
    header: dict[str, Any] = {
        "format": "fairdial.summary",
        "version": FORMAT,
        "shape": list(data.counts.shape),
        "groups": [json_name(group) for group in data.groups],
        "strata": [json_name(stratum) for stratum in data.strata],
        "n_rows": None if data.n_rows is None else data.n_rows.tolist(),
        "dtype": data.dtype.name,
    }
    header["sha256"] = _hash(header, tensors)
    try:
        with replacing(path) as part:
            save_file(tensors, part.name, metadata={"fairdial": json.dumps(header)})
    except (SafetensorError, OSError) as error:
        raise InvalidInputError(
            "path", "be a writable file", given=f"{str(path)!r} ({error})"
        ) from error


def read_summary(path: str | PathLike[str]) -> SummaryData:
    """Return what :func:`write_summary` wrote."""
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
        return _restore(header, tensors["places"], tensors["rows"])
    except FileNotFoundError:
        raise InvalidInputError("path", "be an existing file", given=repr(str(path))) from None
    except (SafetensorError, OSError, KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            "path", "be written by ScoreSummary.save", given=f"{Path(path).name} ({error})"
        ) from error


def _restore(header: dict[str, Any], places: NDArray[np.int64], rows: Counts) -> SummaryData:
    """Return a summary's data from a header and the nonzero counts."""
    n_groups, n_kinds, size = header["shape"]
    groups, strata = tuple(header["groups"]), tuple(header.get("strata", ()))
    if (
        len(groups) != n_groups
        or n_kinds not in (max(1, len(strata)), 2 * max(1, len(strata)))
        or size & (size - 1)
    ):
        raise ValueError("counts, groups and strata don't match")
    check_size(n_groups * n_kinds, check_bits(size.bit_length() - 1))
    counts = np.zeros(n_groups * n_kinds * size, rows.dtype)
    counts[places] = rows
    n_rows = None
    if header.get("n_rows") is not None:
        n_rows = np.array(header["n_rows"], np.int64).reshape(n_kinds, n_groups)
    dtype = DTYPES[header["dtype"]]
    return SummaryData(counts.reshape(n_groups, n_kinds, size), groups, dtype, strata, n_rows)


def _hash(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in ("places", "rows"):
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()
