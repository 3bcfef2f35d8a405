"""The second pass over rows that were summarized: keep only the scores in opened bins."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fairdial._arrays import Counts, Dtype, Floats, Indices, Mask, Scores
from fairdial._validation import (
    check_labels,
    check_same_length,
    check_scores,
    match_groups,
    raise_nan,
)
from fairdial.core.group_scores import GroupScores
from fairdial.core.histograms import CHUNK, Binned
from fairdial.errors import InvalidInputError

MERGE_SIZE = 1 << 20  # scores that are kept before equal ones are merged

CellBatch = tuple[Scores, Indices]  # scores, and cells: group code * labels + label


class RereadBins(Binned):
    """Bins of a summary whose rows are read again.

    Parameters
    ----------
    counts : (K, L, 2^bits) int64
        Rows by group, label and bin.
    dtype : dtype
        Dtype of the scores.
    names : tuple
        Names of the groups.
    read : callable
        Returns all rows again, in batches.
    source : str
        The argument that named the rows.
    """

    def __init__(
        self,
        counts: Counts,
        dtype: Dtype,
        names: tuple[Hashable, ...],
        read: Callable[[], Iterable[CellBatch]],
        source: str,
    ) -> None:
        super().__init__(counts, dtype)
        self._names, self._read, self._source = names, read, source

    def _distinct_scores(self, flags: Mask, groups: Sequence[int]) -> Iterator[GroupScores]:
        found = _DistinctScores()
        for scores, cells in self._read():
            for start in range(0, len(scores), CHUNK):
                chunk, own = scores[start : start + CHUNK], cells[start : start + CHUNK]
                keys = np.empty(len(chunk), np.intp)
                if not self.grid.write_keys(chunk, own, keys):
                    raise_nan(scores, "logits")
                rows = np.flatnonzero(flags.take(keys))
                found.add(chunk.take(rows), own.take(rows))
        found.merge()
        n_labels = self.counts.shape[1]
        opened = flags.reshape(self.counts.shape)
        for group in groups:
            group_scores = found.group_scores(group * n_labels, n_labels)
            expected = np.where(opened[group], self.counts[group], 0).sum(axis=1)
            if not np.array_equal(group_scores.totals, expected):
                raise InvalidInputError(
                    self._source,
                    "hold the summarized rows",
                    given=f"{group_scores.totals.sum():,} rows of group {self._names[group]!r} "
                    f"instead of {expected.sum():,} in the opened bins",
                )
            yield group_scores


class _DistinctScores:
    """Distinct scores of cells with their numbers of rows."""

    def __init__(self) -> None:
        empty = np.zeros(0), np.zeros(0, np.intp), np.zeros(0, np.int64)
        self._parts, self._size, self._limit = [empty], 0, MERGE_SIZE

    def add(self, scores: Scores, cells: Indices) -> None:
        """Add rows."""
        ones = np.ones(len(scores), np.int64)
        self._parts.append((scores.astype(np.float64), cells, ones))
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

    def group_scores(self, cell: int, n_labels: int) -> GroupScores:
        """Return the merged scores of one group, whose first cell is ``cell``."""
        ((scores, cells, rows),) = self._parts
        start, stop = np.searchsorted(cells, [cell, cell + n_labels])
        values, place = np.unique(scores[start:stop], return_inverse=True)
        counts = np.zeros((n_labels, len(values)), np.int64)
        counts[cells[start:stop] - cell, len(values) - 1 - place] = rows[start:stop]
        values = values[::-1].copy()
        return GroupScores.from_counts(values, values, counts)


def check_batches(
    batches: Iterable[Any], names: tuple[Hashable, ...], has_labels: bool, dtype: Dtype
) -> Iterator[CellBatch]:
    """Check a user's batches, and return their scores and cells."""
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2 + has_labels:
            shape = "(logits, groups, y)" if has_labels else "(logits, groups)"
            raise InvalidInputError("refine", f"return batches {shape}, as were summarized")
        if np.size(batch[0]) == 0:
            continue
        scores = check_scores(batch[0], nan=False)
        if np.result_type(scores.dtype, dtype) != dtype:
            raise InvalidInputError(
                "refine", f"return {dtype.name} scores, as were summarized", given=scores.dtype.name
            )
        cells = match_groups(batch[1], names).astype(np.intp)
        check_same_length(scores, cells, ("logits", "groups"))
        if has_labels:
            positive = check_labels(batch[2])
            check_same_length(scores, positive, ("logits", "y"))
            cells = cells * 2 + positive
        yield scores, cells
