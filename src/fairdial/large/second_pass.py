"""The second pass over rows that were summarized: keep only the scores in opened bins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fairdial._arrays import Codes, Counts, Dtype, Floats, Indices, Mask, Scores, Weights
from fairdial._validation import raise_nan
from fairdial.core.group_scores import GroupScores
from fairdial.core.histograms import CHUNK, Binned
from fairdial.errors import InvalidInputError
from fairdial.large.rows import Names, encode_rows

MERGE_SIZE = 1 << 20  # scores that are kept before equal ones are merged
POSITIONAL = ("logits", "groups", "y")  # of a batch that is a tuple
ROUNDING = 1e-12  # of weights in other batches, relative to the sum of all weights

CellBatch = tuple[Scores, Codes, Weights | None]  # scores, cells (group * kinds + kind), weights
Read = Callable[[Mask], Iterable[CellBatch]]  # rows, at least those whose keys are flagged


class SecondPass(ABC):
    """Rows that can be read again where they are, such as on the workers of an engine."""

    @abstractmethod
    def read(self, flags: Mask) -> Iterable[CellBatch]:
        """Return the rows whose keys, ``cell * size + bin``, are flagged."""


class RereadBins(Binned):
    """Bins of a summary whose rows are read again.

    Parameters
    ----------
    counts : (K, C, 2^bits) int64 or float64
        Rows by group, kind and bin.
    dtype : dtype
        Dtype of the scores.
    names : tuple
        Names of the groups.
    read : callable
        Returns the rows again, in batches: all of them, or only those whose bins are flagged.
    source : str
        The argument that named the rows.
    """

    def __init__(
        self,
        counts: Counts,
        dtype: Dtype,
        names: Names,
        read: Read,
        source: str,
    ) -> None:
        super().__init__(counts, dtype)
        self._names, self._read, self._source = names, read, source

    def _distinct_scores(self, flags: Mask, groups: Sequence[int]) -> Iterator[GroupScores]:
        found = _DistinctScores()
        for scores, cells, weights in self._read(flags):
            for start in range(0, len(scores), CHUNK):
                chunk, own = scores[start : start + CHUNK], cells[start : start + CHUNK]
                keys = np.empty(len(chunk), np.intp)
                if not self.grid.write_keys(chunk, own, keys):
                    raise_nan(scores, "logits")
                rows = np.flatnonzero(flags.take(keys))
                part = None if weights is None else weights[start:].take(rows)
                found.add(chunk.take(rows), own.take(rows), part)
        found.merge()
        n_kinds = self.counts.shape[1]
        opened = flags.reshape(self.counts.shape)
        for group in groups:
            group_scores = found.group_scores(group * n_kinds, n_kinds)
            expected = np.where(opened[group], self.counts[group], 0).sum(axis=1)
            if not self._agree(group_scores.totals, expected):
                raise InvalidInputError(
                    self._source,
                    "hold the summarized rows",
                    given=f"{group_scores.totals.sum():,} rows of group {self._names[group]!r} "
                    f"instead of {expected.sum():,} in the opened bins",
                )
            yield group_scores

    def _agree(self, found: Counts, expected: Counts) -> bool:
        """Whether two sums of the same weights agree: exactly if they are whole numbers."""
        if found.dtype == expected.dtype == np.int64:
            return np.array_equal(found, expected)
        return bool((abs(found - expected) <= ROUNDING * self.counts.sum()).all())


class _DistinctScores:
    """Distinct scores of cells with their numbers of rows, or the sums of their weights."""

    def __init__(self) -> None:
        empty: tuple[Floats, Indices, Counts]
        empty = np.zeros(0), np.zeros(0, np.intp), np.zeros(0, np.int64)
        self._parts, self._size, self._limit = [empty], 0, MERGE_SIZE

    def add(self, scores: Scores, cells: Codes, weights: Weights | None = None) -> None:
        """Add rows."""
        own = np.ones(len(scores), np.int64) if weights is None else weights
        self._parts.append((scores.astype(np.float64), cells.astype(np.intp), own))
        self._size += len(scores)
        if self._size > self._limit:
            self.merge()
            self._limit = max(MERGE_SIZE, 2 * self._size)

    def merge(self) -> None:
        """Merge equal scores of a cell, and sort by cell and score."""
        scores: Floats
        scores, cells, rows = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        scores += 0.0  # -0.0 equals 0.0
        order = np.lexsort((scores, cells))
        scores, cells, rows = scores[order], cells[order], rows[order]
        new = np.ones(len(scores), np.bool_)
        new[1:] = (scores[1:] != scores[:-1]) | (cells[1:] != cells[:-1])
        first = np.flatnonzero(new)
        if len(first):
            rows = np.add.reduceat(rows, first)
        self._parts = [(scores[first], cells[first], rows)]
        self._size = len(first)

    def group_scores(self, cell: int, n_kinds: int) -> GroupScores:
        """Return the merged scores of one group, whose first cell is ``cell``."""
        ((scores, cells, rows),) = self._parts
        start, stop = np.searchsorted(cells, [cell, cell + n_kinds])
        values, place = np.unique(scores[start:stop], return_inverse=True)
        counts = np.zeros((n_kinds, len(values)), rows.dtype)
        counts[cells[start:stop] - cell, len(values) - 1 - place] = rows[start:stop]
        values = values[::-1].copy()
        return GroupScores.from_counts(values, values, counts)


def check_batches(
    batches: Iterable[Any], groups: Names, strata: Names, dtype: Dtype, *, labeled: bool
) -> Iterator[CellBatch]:
    """Check a user's batches, and return their scores, cells and weights.

    A batch is a tuple, or a mapping of arguments of :meth:`fairdial.ScoreSummary.from_scores`.
    """
    wanted = ["logits", "groups", *["y"] * labeled, *["control_features"] * bool(strata)]
    for batch in batches:
        given = batch
        if isinstance(batch, (tuple, list)) and len(batch) <= len(POSITIONAL):
            given = dict(zip(POSITIONAL, batch, strict=False))
        if not isinstance(given, Mapping) or {*given} - {"sample_weight"} != {*wanted}:
            raise InvalidInputError(
                "refine",
                f"return batches of {', '.join(wanted)}, as were summarized",
                hint="A batch is a tuple or, with weights or control features, a dict.",
            )
        if np.size(given["logits"]) == 0:
            continue
        rows = encode_rows(**given)
        if np.result_type(rows.scores.dtype, dtype) != dtype:
            raise InvalidInputError(
                "refine",
                f"return {dtype.name} scores, as were summarized",
                given=rows.scores.dtype.name,
            )
        yield rows.scores, rows.cells(groups, strata), rows.weights
