"""The scores of each group, sorted in descending order, with cumulative counts by kind.

The rows of a group are divided into *kinds*: by label, and by stratum if there are strata. Kind
``stratum * n_labels + label`` is the label's kind in the stratum. Rows count with their weights.

A group's scores are a sequence of *steps*, each a distinct score or a bin of scores. What a
threshold between two steps selects depends only on its *rank*, the number of steps above it.
:func:`sort_scores` makes a step of every distinct score; ``histograms.py`` makes steps of bins and
opens those that matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairdial._arrays import (
    Codes,
    Counts,
    Dtype,
    Floats,
    Indices,
    Kinds,
    Mask,
    Scores,
    Weights,
    exact_weights,
    summable_unit,
)
from fairdial._validation import raise_nan
from fairdial.core.decide import count_kinds, sum_by_cell


@dataclass(frozen=True, eq=False)
class GroupScores:
    """One group's scores in descending steps.

    Attributes
    ----------
    lower, upper : (m,) float64
        Smallest and largest score of each step; the same array if every step is one score.
    selected : (C, m + 1) int64 or float64
        Rows above the threshold at each rank, by kind: the sum of their weights. It is int64 unless
        some weights aren't whole numbers.
    gain : (m + 1,) float64, optional
        Total utility of the selected rows at each rank, if rows have one.
    """

    lower: Floats
    upper: Floats
    selected: Counts
    gain: Floats | None = None

    @classmethod
    def from_framed(
        cls, framed: Floats, selected: Counts, gain: Floats | None = None
    ) -> GroupScores:
        """Make group scores of distinct scores between inf and -inf, (m + 2,), without copies."""
        values = framed[1:-1]
        found = cls(values, values, selected, gain)
        found.__dict__.update(above=framed[:-1], below=framed[1:])
        return found

    @classmethod
    def from_counts(cls, lower: Floats, upper: Floats, counts: Counts) -> GroupScores:
        """Make group scores from the rows of each step by kind, (C, m)."""
        return cls(lower, upper, _cumulative(counts))

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def counts(self) -> Counts:
        """(C, m) rows of each step by kind."""
        return np.diff(self.selected, axis=1)

    @property
    def totals(self) -> Counts:
        """(C,) rows by kind."""
        return self.selected[:, -1]

    @cached_property
    def is_bin(self) -> Mask:
        """(m,) whether a step is a bin rather than a single score."""
        return self.lower < self.upper

    @cached_property
    def above(self) -> Floats:
        """(m + 1,) smallest selected score at each rank."""
        return np.concatenate(([np.inf], self.lower))

    @cached_property
    def below(self) -> Floats:
        """(m + 1,) largest score that isn't selected at each rank."""
        return np.concatenate((self.upper, [-np.inf]))

    @cached_property
    def _ascending(self) -> Floats:
        """(m,) negated lower ends, for searches."""
        return -self.lower

    def rank(self, thresholds: ArrayLike) -> Indices:
        """Return the number of steps above each threshold."""
        wanted: Floats = np.negative(thresholds)
        return self._ascending.searchsorted(wanted, side="left")

    @cached_property
    def last_rank(self) -> int:
        """The highest rank that a threshold has: no threshold is below a score of -inf."""
        return int(self.rank(-np.inf))

    def coarsen(self, n_bins: int) -> GroupScores:
        """Merge the steps into about ``n_bins`` bins with equally many rows; 0 stays an edge."""
        if len(self) <= n_bins:
            return self
        rows = self.selected.sum(axis=0)
        cuts = np.searchsorted(rows, np.linspace(0, rows[-1], n_bins + 1)[:-1])
        edges = self.rank([np.finfo(np.float64).max, 0.0, -np.inf])  # keep infinite scores apart
        cuts = np.unique(np.concatenate((cuts, edges)))
        cuts = cuts[cuts < len(self)]
        ends = np.append(cuts[1:], len(self))
        ranks = np.append(cuts, len(self))
        gain = None if self.gain is None else self.gain[ranks]
        return GroupScores(self.lower[ends - 1], self.upper[cuts], self.selected[:, ranks], gain)


def _cumulative(values: NDArray[Any]) -> NDArray[Any]:
    """Return the running sums along the last axis, beginning with 0."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1), values.dtype)
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums


def total_counts(group_scores: Sequence[GroupScores]) -> Counts:
    """Return the number of rows by kind and group, (C, K)."""
    return np.stack([group.totals for group in group_scores], axis=1)


def sort_scores(
    logits: Scores,
    codes: Codes,
    kinds: Kinds | None,
    n_groups: int,
    n_kinds: int | None = None,
    weights: NDArray[Any] | None = None,
    utility: Floats | None = None,
) -> list[GroupScores]:
    """Return the distinct scores of every group; raise on NaN.

    Parameters
    ----------
    logits : (n,) float
        Scores.
    codes : (n,) integer
        Groups, 0 to ``n_groups - 1``.
    kinds : (n,) bool or integer, optional
        Kinds, 0 to ``n_kinds - 1``, such as the labels; by default, all rows are of one kind.
    n_groups, n_kinds : int
        Number of groups and kinds; by default 1 or, with ``kinds``, 2.
    weights : (n,), optional
        Positive weights; by default 1.
    utility : (n,) float64, optional
        Utility of selecting a row (once: it counts with the weight).
    """
    if np.isnan(logits.max()):
        raise_nan(logits, "logits")
    n_kinds = count_kinds(kinds) if n_kinds is None else n_kinds
    if n_kinds <= 2 and weights is None and utility is None:
        return [_merge(runs) for runs in _split(logits, codes, kinds, n_groups, n_kinds)]
    own = None if weights is None else exact_weights(weights)
    gain = None if utility is None else _exact_gain(utility, own)
    order = np.argsort(codes.astype(np.min_scalar_type(n_groups)), kind="stable")  # radix sort
    ends = np.cumsum(np.bincount(codes, minlength=n_groups))[:-1]
    return [
        sort_group(
            logits.take(rows),
            None if kinds is None else kinds.take(rows),
            n_kinds,
            None if own is None else own.take(rows),
            None if gain is None else gain.take(rows),
        )
        for rows in np.split(order, ends)
    ]


def sort_group(
    scores: Scores,
    kinds: Kinds | None,
    n_kinds: int,
    weights: Weights | None = None,
    gain: Floats | None = None,
) -> GroupScores:
    """Return one group's distinct scores, from its rows; ``gain`` is what selecting each adds."""
    order = np.argsort(scores)[::-1]
    ordered: Floats = scores.take(order).astype(np.float64, copy=False)
    starts = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    values = ordered[starts]
    values += 0.0  # -0.0 equals 0.0
    steps = np.empty(len(ordered), np.intp)
    steps[order] = np.cumsum(starts) - 1  # of each row
    sums = None
    if gain is not None:
        sums = _cumulative(np.bincount(steps, gain, len(values)))
    if kinds is not None:
        steps += kinds.astype(np.intp) * len(values)
    counts = sum_by_cell(steps, n_kinds * len(values), weights).reshape(n_kinds, len(values))
    return GroupScores.from_framed(_frame(values), _cumulative(counts), sums)


def _frame(values: Floats) -> Floats:
    """Return descending scores between inf and -inf."""
    framed = np.empty(len(values) + 2)
    framed[0], framed[1:-1], framed[-1] = np.inf, values, -np.inf
    return framed


def _exact_gain(utility: Floats, weights: Weights | None) -> Floats:
    """Return weighted utilities whose sums are exact, as for repeated rows."""
    total = np.abs(utility) if weights is None else np.abs(utility) * weights
    unit = summable_unit(float(total.sum()))
    if weights is None or weights.dtype.kind == "i":
        rounded = np.rint(utility / unit) * unit
        return np.asarray(rounded if weights is None else rounded * weights)
    return np.asarray(np.rint(utility * weights / unit) * unit)


def _merge(runs: Sequence[Scores]) -> GroupScores:
    """Return one group's distinct scores, from its scores by label: one or two runs."""
    ascending: list[Floats] = [np.sort(run.astype(np.float64, copy=False)) for run in runs]
    merged, labels = ascending[0], None
    if len(runs) > 1:
        merged = np.concatenate(ascending)
        order = np.argsort(merged, kind="stable")  # merges the sorted runs
        merged, labels = merged.take(order), order >= len(runs[0])
    merged += 0.0  # -0.0 equals 0.0
    ends = np.ones(len(merged), np.bool_)
    np.not_equal(merged[1:], merged[:-1], out=ends[:-1])
    last = np.flatnonzero(ends)  # last row of each distinct score, ascending
    below = np.zeros((len(runs), len(last) + 1), np.int64)  # rows of the lowest scores
    below[0, 1:] = last + 1
    if labels is not None:
        below[1, 1:] = np.cumsum(labels, dtype=np.int64).take(last)
        below[0] -= below[1]
    framed = _frame(merged.take(last)[::-1])
    return GroupScores.from_framed(framed, below[:, -1:] - below[:, ::-1])


def _split(
    logits: Scores, codes: Codes, kinds: Kinds | None, n_groups: int, n_kinds: int
) -> list[list[Scores]]:
    """Return the scores by group and kind."""
    n_cells = n_groups * n_kinds
    cells = codes.astype(np.min_scalar_type(n_cells))
    if kinds is not None:
        cells *= n_kinds
        cells += kinds.astype(cells.dtype, copy=False)
    if n_cells <= 4:  # taking by position is faster than by mask
        runs = [logits.take(np.flatnonzero(cells == cell)) for cell in range(n_cells)]
    else:
        order = np.argsort(cells, kind="stable")  # radix sort
        sizes = np.bincount(cells, minlength=n_cells)
        runs = np.split(logits.take(order), np.cumsum(sizes)[:-1])
    return [runs[i : i + n_kinds] for i in range(0, n_cells, n_kinds)]


def place_thresholds(targets: Floats, below: Floats, above: Floats, dtype: Dtype) -> Floats:
    """Return numbers of ``dtype`` with ``below <= number < above``.

    That is the target if it lies strictly inside, else (or if it is NaN) the middle. If no number
    lies strictly between, it is ``below``: rows at the threshold aren't selected.
    """
    placed = targets if dtype == np.float64 else targets.astype(dtype).astype(np.float64)
    inside = (placed > below) & (placed < above)
    if inside.all():
        return placed
    high = np.where(np.isposinf(above), np.where(np.isneginf(below), 1.0, below + 2.0), above)
    low = np.where(np.isneginf(below), high - 2.0, below)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite scores
        middle = (low + (high - low) / 2).astype(dtype).astype(np.float64)
    middle = np.where((middle > below) & (middle < above), middle, below)
    return np.where(inside, placed, middle)
