"""Rows that are read again: only those of the opened bins are kept, equal scores as one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._validation import (
    check_labels,
    check_same_length,
    check_scores,
    match_groups,
    raise_nan,
)
from fairdial.errors import InvalidInputError
from fairdial.histograms import CHUNK, Binned
from fairdial.ladders import Counts, Floats, Indices, Ladder, Scores

AT_ONCE = 1 << 20  # scores that are kept before equal ones are put together

Batch = tuple[Scores, Indices]  # scores, and cells: group code * labels + label


class RowsAgain(Binned):
    """Bins that were counted; what they hold is read again.

    Parameters
    ----------
    counts : (K, L, 2^bits) int64
        Rows by group, label and bin.
    dtype : dtype
        Of the scores.
    names : tuple
        Names of the groups.
    read : callable
        Gives all rows anew, in batches.
    """

    def __init__(
        self,
        counts: Counts,
        dtype: np.dtype[Any],
        names: tuple[Hashable, ...],
        read: Callable[[], Iterable[Batch]],
    ) -> None:
        super().__init__(counts, dtype)
        self._names, self._read = names, read

    def _open(self, flags: NDArray[np.bool_], groups: Sequence[int]) -> Iterator[Ladder]:
        found = _Tally()
        for scores, cells in self._read():
            for start in range(0, len(scores), CHUNK):
                piece, own = scores[start : start + CHUNK], cells[start : start + CHUNK]
                keys = np.empty(len(piece), np.intp)
                if not self.grid.write_keys(piece, own, keys):
                    raise_nan(scores, "logits")
                hits = np.flatnonzero(flags.take(keys))
                found.add(piece.take(hits), own.take(hits))
        found.gather()
        n_labels = self.counts.shape[1]
        opened = flags.reshape(self.counts.shape)
        for group in groups:
            ladder = found.ladder(group * n_labels, n_labels)
            rows = np.where(opened[group], self.counts[group], 0).sum(axis=1)
            if not np.array_equal(ladder.rows, rows):
                raise InvalidInputError(
                    "the rows that are read again must be those that were summarised, got "
                    f"{ladder.rows.sum():,} of group {self._names[group]!r} where {rows.sum():,} "
                    "were counted."
                )
            yield ladder


class _Tally:
    """Distinct scores of cells with their numbers of rows."""

    def __init__(self) -> None:
        nothing = np.zeros(0), np.zeros(0, np.intp), np.zeros(0, np.int64)
        self._pieces, self._size, self._limit = [nothing], 0, AT_ONCE

    def add(self, scores: Scores, cells: Indices) -> None:
        """Rows to be counted."""
        ones = np.ones(len(scores), np.int64)
        self._pieces.append((scores.astype(np.float64), cells, ones))
        self._size += len(scores)
        if self._size > self._limit:
            self.gather()
            self._limit = max(AT_ONCE, 2 * self._size)

    def gather(self) -> None:
        """Put equal scores of a cell together: cells ascending, and in each its scores."""
        scores: Floats
        scores, cells, rows = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        scores += 0.0  # -0.0 and 0.0 are one score
        order = np.lexsort((scores, cells))
        scores, cells, rows = scores[order], cells[order], rows[order]
        new = np.ones(len(scores), np.bool_)
        new[1:] = (scores[1:] != scores[:-1]) | (cells[1:] != cells[:-1])
        first = np.flatnonzero(new)
        if len(first):
            rows = np.add.reduceat(rows, first)
        self._pieces = [(scores[first], cells[first], rows)]
        self._size = len(first)

    def ladder(self, cell: int, n_labels: int) -> Ladder:
        """The ladder of some cells, one a label, of what was gathered."""
        ((scores, cells, rows),) = self._pieces
        start, stop = np.searchsorted(cells, [cell, cell + n_labels])
        values, place = np.unique(scores[start:stop], return_inverse=True)
        counts = np.zeros((n_labels, len(values)), np.int64)
        counts[cells[start:stop] - cell, len(values) - 1 - place] = rows[start:stop]
        values = values[::-1].copy()
        return Ladder.of_counts(values, values, counts)


def read_batches(
    batches: Iterable[Any], names: tuple[Hashable, ...], labelled: bool, dtype: np.dtype[Any]
) -> Iterator[Batch]:
    """A user's batches, checked, with the cells of their rows."""
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2 + labelled:
            shape = "(logits, groups, y)" if labelled else "(logits, groups)"
            raise InvalidInputError(f"`refine` must give batches {shape}, as were summarised.")
        if np.size(batch[0]) == 0:
            continue
        scores = check_scores(batch[0], nan=False)
        if np.result_type(scores.dtype, dtype) != dtype:
            raise InvalidInputError(
                f"`refine` must give scores of {dtype.name}, as were summarised, got "
                f"{scores.dtype.name}."
            )
        cells = match_groups(batch[1], names).astype(np.intp)
        check_same_length(scores, cells, ("logits", "groups"))
        if labelled:
            positive = check_labels(batch[2])
            check_same_length(scores, positive, ("logits", "y"))
            cells = cells * 2 + positive
        yield scores, cells
