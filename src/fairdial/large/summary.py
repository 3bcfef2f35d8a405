"""Summaries of scores by counts that add up, and their frontier."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Dtype, Floats
from fairdial._validation import (
    check_count,
    check_labels,
    check_same_length,
    check_scores,
    check_tolerance,
    encode_groups,
    raise_nan,
    sort_names,
)
from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.frontier import Frontier
from fairdial.core.histograms import Grid, add_to_bins, refine
from fairdial.core.serialization import DTYPES
from fairdial.core.problem import Problem
from fairdial.core.sweep import ENOUGH_ROWS, check_group_sizes
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import FairdialWarning, InvalidInputError, renamed, warn
from fairdial.large.files import BITS, check_bits, check_size, read_summary, write_summary
from fairdial.large.second_pass import CellBatch, RereadBins, check_batches

if TYPE_CHECKING:
    import pandas as pd

MARGIN = 4  # neighbors opened with a bin: then a second pass is nearly always enough

Batches = Iterable[Any] | Callable[[], Iterable[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class ScoreSummary:
    """Counts of rows by group, label and bin of their score.

    Summaries are small, and those of partitions add up. There are 2^bits bins between -16 and 16,
    each including its upper edge, with edges at multiples of 2^(5 - bits); 0 is one of them, and
    the first and the last bin extend to infinity. With the default of 16 bits, a bin is 2^-11
    (about 0.0005) wide, and a group takes a megabyte for any number of rows.

    Thresholds at edges select exactly the rows counted above them, so gap and accuracy of every
    point of :meth:`to_frontier` are exact. But a group passes a whole bin at a time: the point
    within a tolerance may be up to a bin further from the unconstrained one than necessary, with a
    gap that much below the tolerance. If the scores differ by little more than a bin, a tolerance
    that they allow may be out of reach, with a warning.

    Made by :meth:`from_scores`, :meth:`from_counts`, :func:`fairdial.summarize_parquet` or ``+``.

    Attributes
    ----------
    counts : (K, L, 2^bits) int64
        Rows by group, label (L is 1 without labels) and bin, the highest scores first.
    groups : tuple
        Names of the groups, sorted.
    dtype : dtype
        Dtype of the scores and thresholds, float32 or float64. Parts of both add up to float64.

    Examples
    --------
    >>> from fairdial import ScoreSummary
    >>> from fairdial.datasets import make_gaussian
    >>> parts = [make_gaussian(20_000, random_state=seed) for seed in range(3)]
    >>> summary = sum(ScoreSummary.from_scores(p.logits, p.groups, p.y) for p in parts)
    >>> summary
    ScoreSummary(60,000 rows with labels, groups=['group 0', 'group 1'], float64, 2^16 bins)
    >>> point = summary.to_frontier().at(0.1)
    >>> 0.099 < point.gap <= 0.1
    True
    """

    counts: Counts
    groups: tuple[Hashable, ...]
    dtype: Dtype

    @classmethod
    def from_scores(
        cls, logits: ArrayLike, groups: Any, y: ArrayLike | None = None, *, bits: int = BITS
    ) -> ScoreSummary:
        """Return the summary of rows in memory, such as one partition, which may be empty.

        Parameters
        ----------
        logits : (n,) array-like
            Scores: log-odds of the positive label.
        groups : (n,) array-like, Series or DataFrame
            Group of each row; several columns are combined into their intersections.
        y : (n,) array-like of 0 and 1, optional
            Labels.
        bits : int
            2^bits bins per group and label, from 8 to 20.
        """
        grid, n_labels = check_bits(bits), 1 if y is None else 2
        if all(np.size(given) == 0 for given in (logits, groups, y) if given is not None):
            return cls(np.zeros((0, n_labels, grid.size), np.int64), (), DTYPES["float64"])
        scores = check_scores(logits, nan=False)  # checked below, in a later pass
        codes, names = encode_groups(groups)
        check_same_length(scores, codes, ("logits", "groups"))
        cells = codes
        if y is not None:
            positive = check_labels(y)
            check_same_length(scores, positive, ("logits", "y"))
            cells = codes.astype(np.min_scalar_type(2 * len(names))) * 2 + positive
        check_size(len(names) * n_labels, grid)
        counts = np.zeros((len(names), n_labels, grid.size), np.int64)
        if not add_to_bins(counts, grid, scores, cells):
            raise_nan(scores, "logits")
        return cls(counts, names, scores.dtype)

    # ---- sums ----------------------------------------------------------------------------------

    @property
    def bits(self) -> int:
        """Log2 of the number of bins."""
        return int(self.counts.shape[2]).bit_length() - 1

    @property
    def labeled(self) -> bool:
        """Whether rows were counted by label."""
        return bool(self.counts.shape[1] == 2)

    labelled = renamed("labelled", "labeled")

    @property
    def rows(self) -> Counts:
        """(L, K) rows by label and group."""
        return np.asarray(self.counts.sum(axis=2).T)

    def __add__(self, other: ScoreSummary) -> ScoreSummary:
        """Return the summary of both parts' rows; groups are matched by name."""
        if not isinstance(other, ScoreSummary):
            return NotImplemented
        parts = [part for part in (self, other) if part.groups]
        for name in ("labeled", *["bits"] * (len(parts) == 2)):  # empty parts have no bins
            one, two = getattr(self, name), getattr(other, name)
            if one != two:
                raise InvalidInputError(
                    name, "be the same in summaries that are added", given=f"{one} and {two}"
                )
        if len(parts) < 2:
            return parts[0] if parts else self
        _refuse_mixed_types((*self.groups, *other.groups))
        names = sort_names(dict.fromkeys((*self.groups, *other.groups)))
        check_size(len(names) * self.counts.shape[1], Grid(self.bits))
        counts = np.zeros((len(names), *self.counts.shape[1:]), np.int64)
        places = {name: place for place, name in enumerate(names)}
        for part in parts:
            counts[[places[name] for name in part.groups]] += part.counts
        return ScoreSummary(counts, names, np.result_type(self.dtype, other.dtype))

    def __radd__(self, other: object) -> ScoreSummary:
        """Support ``sum(parts)``, which starts with 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScoreSummary):
            return NotImplemented
        return (
            self.groups == other.groups
            and self.dtype == other.dtype
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        labels = "with labels" if self.labeled else "without labels"
        return (
            f"ScoreSummary({int(self.counts.sum()):,} rows {labels}, groups={list(self.groups)}, "
            f"{self.dtype.name}, 2^{self.bits} bins)"
        )

    # ---- the frontier --------------------------------------------------------------------------

    def to_frontier(
        self,
        criterion: str | Criterion = "demographic_parity",
        *,
        tolerances: ArrayLike | None = None,
        refine: Batches | None = None,
        min_count: int = 30,
    ) -> Frontier:
        """Return the frontier, with thresholds at edges of bins or exact at some tolerances.

        Gap and accuracy of every point are exact on these rows; the class says what the bins cost.
        ``confidence=`` is simultaneous: it holds for all thresholds at once.

        Parameters
        ----------
        criterion : str or Criterion
            The criterion to equalize.
        tolerances : array-like, optional
            Tolerances with exact answers, equal to those of :func:`fairdial.sweep`. They need
            another pass over the rows.
        refine : iterable or callable, with ``tolerances``
            The same rows again in batches, each ``(logits, groups)`` or ``(logits, groups, y)``
            as in :meth:`from_scores`: an iterable that can be repeated, such as a list, or a
            function that returns an iterator. Only rows in the bins on which the tolerances
            depend are kept. One pass is nearly always enough.
        min_count : int
            Minimum number of eligible rows per group.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial import ScoreSummary, sweep
        >>> from fairdial.datasets import make_gaussian
        >>> parts = [make_gaussian(20_000, random_state=seed) for seed in range(3)]
        >>> batches = [(p.logits, p.groups, p.y) for p in parts]
        >>> summary = sum(ScoreSummary.from_scores(*batch) for batch in batches)
        >>> exact = summary.to_frontier(tolerances=[0.05, 0.1], refine=batches)
        >>> whole = sweep(*(np.concatenate(column) for column in zip(*batches)))
        >>> (exact.at([0.05, 0.1]).thresholds == whole.at([0.05, 0.1]).thresholds).all()
        np.True_
        """
        kind = find_criterion(criterion)
        check_count(min_count, "min_count")
        if (refine is None) != (tolerances is None):
            raise InvalidInputError(
                "refine", "be given together with `tolerances`: exact answers need the rows"
            )
        if isinstance(refine, Iterator):
            raise InvalidInputError(
                "refine",
                "be repeatable",
                given="an iterator",
                hint="Pass a list, or a function that returns the iterator.",
            )
        if refine is None or tolerances is None:
            return find_frontier(self, kind, min_count=min_count)

        def read() -> Iterator[CellBatch]:
            batches = refine() if callable(refine) else refine
            return check_batches(batches, self.groups, self.labeled, self.dtype)

        exact = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
        return find_frontier(self, kind, tolerances=exact, read=read, min_count=min_count)

    # ---- files and queries ---------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the summary to a file, atomically.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fairdial import ScoreSummary
        >>> summary = ScoreSummary.from_scores([-1.0, 0.5, 2.0], ["a", "a", "b"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     summary.save(Path(folder) / "may.summary")
        ...     ScoreSummary.load(Path(folder) / "may.summary") == summary
        True
        """
        write_summary(path, self.counts, self.groups, self.dtype)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ScoreSummary:
        """Return the summary that :meth:`save` wrote."""
        return cls(*read_summary(path))

    @staticmethod
    def sql(
        table: str,
        *,
        score: str = "score",
        group: str = "group",
        label: str | None = None,
        bits: int = BITS,
    ) -> str:
        """Return a query for DuckDB whose result :meth:`from_counts` reads.

        Parameters
        ----------
        table : str
            What to put after FROM, verbatim: a table, ``read_parquet('folder/*.parquet')``, or a
            query in parentheses.
        score, group, label : str
            Columns. Labels are 0 and 1, or booleans; by default there are none.
        bits : int
            2^bits bins per group and label.

        Examples
        --------
        >>> import duckdb
        >>> from fairdial import ScoreSummary
        >>> rows = "(SELECT 0.5 AS score, 'a' AS region UNION ALL SELECT -1.0, 'b')"
        >>> frame = duckdb.sql(ScoreSummary.sql(rows, group="region")).df()
        >>> ScoreSummary.from_counts(frame)
        ScoreSummary(2 rows without labels, groups=['a', 'b'], float64, 2^16 bins)
        """
        from fairdial.large.sql import write_query

        grid = check_bits(bits)
        return write_query(table, score=score, group=group, label=label, grid=grid)

    @classmethod
    def from_counts(cls, frame: pd.DataFrame) -> ScoreSummary:
        """Return the summary from a table of counts, such as the result of :meth:`sql`.

        Parameters
        ----------
        frame : DataFrame
            Columns ``group``, ``label`` (0 and 1; optional), ``bin`` (0 has the highest scores),
            ``rows``, ``dtype`` (of the scores) and ``bits``, in any order of lines. Lines with the
            same group, label and bin add up. Without lines, the summary is empty.
        """
        from fairdial.large.sql import read_counts

        return cls(*read_counts(frame))


def find_frontier(
    summary: ScoreSummary,
    criterion: Criterion,
    *,
    min_count: int,
    tolerances: Floats | None = None,
    read: Callable[[], Iterable[CellBatch]] | None = None,
    argument: str = "groups",
    source: str = "refine",
) -> Frontier:
    """Return the frontier of a summary; ``read`` returns checked rows with their cells.

    ``argument`` named the groups, and ``source`` the rows that are read again.
    """
    if not summary.groups:
        raise InvalidInputError(argument, "have at least one row", given="0 rows")
    check_group_sizes(
        criterion, summary.rows, summary.groups, min_count=min_count, argument=argument
    )
    if _look_like_probabilities(summary):
        warn(
            "All scores are in [0, 1] and look like probabilities; proba_to_logits (for Parquet "
            "files, `probabilities=True`) converts them to logits.",
            FairdialWarning,
        )
    if tolerances is None or read is None:
        grid = Grid(summary.bits)
        group_scores = [grid.group_scores(counts, summary.dtype) for counts in summary.counts]
        path = ThresholdPath(group_scores, criterion, summary.dtype)
    else:
        bins = RereadBins(summary.counts, summary.dtype, summary.groups, read, source)
        path = refine(bins, criterion, summary.dtype, tolerances, margin=MARGIN)
    return Frontier(path, Problem(criterion), summary.groups, summary.rows, "simultaneous")


def _refuse_mixed_types(names: Iterable[Hashable]) -> None:
    """Raise if a group is True in one part and 1 in another: they are equal, but not the same."""
    found: dict[Hashable, Hashable] = {}
    for name in names:
        same = found.setdefault(name, name)
        if isinstance(same, (bool, np.bool_)) != isinstance(name, (bool, np.bool_)):
            raise InvalidInputError(
                "groups",
                "have one type in summaries that are added",
                given=f"booleans and numbers ({same!r} and {name!r})",
            )


def _look_like_probabilities(summary: ScoreSummary) -> bool:
    """Whether scores fill much of [0, 1], and nothing else, as far as the bins show."""
    if summary.counts.sum() < ENOUGH_ROWS:
        return False
    bins = np.flatnonzero(summary.counts.any(axis=(0, 1)))[[0, -1]]
    high, low = Grid(summary.bits).upper(bins).tolist()
    return bool(0.0 <= low < 0.3 and 0.7 < high <= 1.0)
