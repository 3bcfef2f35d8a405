"""Scores summarised by counts that add up, and the frontier of such a summary."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

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
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import FairdialWarning, InvalidInputError, warn
from fairdial.frontier import Frontier
from fairdial.histograms import Grid, count_rows_in
from fairdial.ladders import Counts, Floats
from fairdial.paths import Path, refine
from fairdial.summaries.again import Batch, RowsAgain, read_batches
from fairdial.summaries.files import read_summary, write_summary
from fairdial.summaries.limits import BITS, DTYPES, check_bits, check_size
from fairdial.summaries.tables import read_counts, write_query
from fairdial.sweeping import MANY, check_counts

MARGIN = 4  # neighbours opened with a bin: then reading the rows once more is nearly always enough

Again = Callable[[], Iterable[Any]] | Iterable[Any]


@dataclass(frozen=True, eq=False, repr=False)
class ScoreSummary:
    """Rows counted by group, label and bin of their score: small, and a sum over partitions.

    There are 2^bits bins between -16 and 16, each closed above, with edges at multiples of
    2^(5 - bits); 0 is one of them, and the first and the last bin are open-ended. With the default
    of 16 bits a bin is 2^-11 (about .0005) wide, and a group takes a megabyte, however many rows
    there are. Thresholds at edges select exactly the rows counted above them: gap and accuracy of
    every state of :meth:`to_frontier` are exact. What the bins cost: a group passes a whole bin at
    a time, so the first state within a tolerance may stand up to a bin further from the free one
    than it would with all scores at hand, and its gap lies that much below the tolerance. Where the
    scores differ by little more than a bin, no state may lie within a tolerance that they allow: it
    is then reported infeasible, with a warning.

    Made by :meth:`from_scores`, :meth:`from_counts`, :func:`fairdial.summarize_parquet` or ``+``.

    Attributes
    ----------
    counts : (K, L, 2^bits) int64
        Rows by group, label (L is 1 without labels) and bin, the highest scores first.
    groups : tuple
        Names of the groups, sorted.
    dtype : dtype
        Of the scores, float32 or float64, in which thresholds are placed. Parts of both kinds add
        up to float64, which holds the scores of both.

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
    dtype: np.dtype[Any]

    @classmethod
    def from_scores(
        cls, logits: ArrayLike, groups: Any, y: ArrayLike | None = None, *, bits: int = BITS
    ) -> ScoreSummary:
        """Summary of rows in memory, such as one partition; no rows at all are fine, too.

        Parameters
        ----------
        logits : (n,) array-like
            Scores, log-odds of the positive label.
        groups : (n,) array-like, Series or DataFrame
            Group of each row, any names; several columns stand for their intersections.
        y : (n,) array-like of 0 and 1, optional
            Labels.
        bits : int
            2^bits bins a group and label, from 8 to 20.
        """
        grid, n_labels = check_bits(bits), 1 if y is None else 2
        if all(np.size(given) == 0 for given in (logits, groups, y) if given is not None):
            return cls(np.zeros((0, n_labels, grid.size), np.int64), (), DTYPES["float64"])
        scores = check_scores(logits, nan=False)  # looked for below, on the way
        codes, names = encode_groups(groups)
        check_same_length(scores, codes, ("logits", "groups"))
        cells = codes
        if y is not None:
            positive = check_labels(y)
            check_same_length(scores, positive, ("logits", "y"))
            cells = codes.astype(np.min_scalar_type(2 * len(names))) * 2 + positive
        check_size(len(names) * n_labels, grid)
        counts = np.zeros((len(names), n_labels, grid.size), np.int64)
        if not count_rows_in(counts, grid, scores, cells):
            raise_nan(scores, "logits")
        return cls(counts, names, scores.dtype)

    # ---- sums ----------------------------------------------------------------------------------

    @property
    def bits(self) -> int:
        """Log2 of the number of bins."""
        return int(self.counts.shape[2]).bit_length() - 1

    @property
    def labelled(self) -> bool:
        """Whether rows were counted by label."""
        return bool(self.counts.shape[1] == 2)

    @property
    def rows(self) -> Counts:
        """(L, K) rows by label and group."""
        return np.asarray(self.counts.sum(axis=2).T)

    def __add__(self, other: ScoreSummary) -> ScoreSummary:
        """Summary of both parts' rows; groups are united by name."""
        if not isinstance(other, ScoreSummary):
            return NotImplemented
        parts = [part for part in (self, other) if part.groups]
        for name in ("labelled", *["bits"] * (len(parts) == 2)):  # without rows bins don't matter
            one, two = getattr(self, name), getattr(other, name)
            if one != two:
                raise InvalidInputError(
                    f"summaries must have the same `{name}` to be added, got {one} and {two}."
                )
        if len(parts) < 2:
            return parts[0] if parts else self
        _refuse_mixed((*self.groups, *other.groups))
        names = sort_names(dict.fromkeys((*self.groups, *other.groups)))
        check_size(len(names) * self.counts.shape[1], Grid(self.bits))
        counts = np.zeros((len(names), *self.counts.shape[1:]), np.int64)
        places = {name: place for place, name in enumerate(names)}
        for part in parts:
            counts[[places[name] for name in part.groups]] += part.counts
        return ScoreSummary(counts, names, np.result_type(self.dtype, other.dtype))

    def __radd__(self, other: Any) -> ScoreSummary:
        """So that ``sum(parts)`` works, which starts with 0."""
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
        labels = "with labels" if self.labelled else "without labels"
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
        refine: Again | None = None,
        min_count: int = 30,
    ) -> Frontier:
        """The frontier of these rows, thresholds at edges; or exact at some tolerances.

        Gap and accuracy of every state are exact on these rows; see the class for what the bins
        cost. ``confidence=`` is simultaneous: it holds for all thresholds at once.

        Parameters
        ----------
        criterion : str or Criterion
            What is to be equalised.
        tolerances : array-like, optional
            Where the answers are to be exact, equal to those of :func:`fairdial.sweep`; for that
            the rows are read again.
        refine : callable or iterable, with ``tolerances``
            The same rows again in batches, each ``(logits, groups)`` or ``(logits, groups, y)``
            as in :meth:`from_scores`: a list or another iterable that can be gone through several
            times, or a function that gives an iterator. Only rows in the bins on which the
            tolerances depend are kept; that nearly always takes one pass.
        min_count : int
            Least number of counted rows in each group.

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
                "`tolerances` and `refine` must be given together: exact answers need the rows."
            )
        if isinstance(refine, Iterator):
            raise InvalidInputError(
                "`refine` must give the rows as often as they are asked for, got an iterator, "
                "which gives them once; give a list, or a function that makes the iterator."
            )
        if refine is None or tolerances is None:
            return find_frontier(self, kind, min_count=min_count)

        def read() -> Iterator[Batch]:
            batches = refine() if callable(refine) else refine
            return read_batches(batches, self.groups, self.labelled, self.dtype)

        wishes = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
        return find_frontier(self, kind, tolerances=wishes, read=read, min_count=min_count)

    # ---- files and queries ---------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the summary to a file, whole or not at all.

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
        """The summary that :meth:`save` wrote."""
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
        """A query for DuckDB whose result :meth:`from_counts` reads.

        Parameters
        ----------
        table : str
            What stands after FROM: a table, ``read_parquet('folder/*.parquet')``, or a query in
            parentheses. It is put into the text as it is.
        score, group, label : str
            Columns. Labels are 0 and 1, or booleans; without ``label`` they are not counted.
        bits : int
            2^bits bins a group and label.

        Examples
        --------
        >>> import duckdb
        >>> from fairdial import ScoreSummary
        >>> rows = "(SELECT 0.5 AS score, 'a' AS region UNION ALL SELECT -1.0, 'b')"
        >>> frame = duckdb.sql(ScoreSummary.sql(rows, group="region")).df()
        >>> ScoreSummary.from_counts(frame)
        ScoreSummary(2 rows without labels, groups=['a', 'b'], float64, 2^16 bins)
        """
        grid = check_bits(bits)
        return write_query(table, score=score, group=group, label=label, grid=grid)

    @classmethod
    def from_counts(cls, frame: pd.DataFrame) -> ScoreSummary:
        """Summary from a table of counts, as the query of :meth:`sql` gives it.

        Parameters
        ----------
        frame : DataFrame
            Columns ``group``, ``label`` (0 and 1; may be absent), ``bin`` (0 holds the highest
            scores), ``rows``, ``dtype`` (of the scores) and ``bits``; any order of lines, and
            lines with the same group, label and bin add up. No line at all is the summary of no
            rows.
        """
        return cls(*read_counts(frame))


def find_frontier(
    summary: ScoreSummary,
    criterion: Criterion,
    *,
    min_count: int,
    tolerances: Floats | None = None,
    read: Callable[[], Iterable[Batch]] | None = None,
    argument: str = "groups",
) -> Frontier:
    """:meth:`ScoreSummary.to_frontier` where all is checked and rows come with their cells."""
    if not summary.groups:
        raise InvalidInputError(f"`{argument}` must hold at least one row, got 0 rows.")
    check_counts(criterion, summary.rows, summary.groups, min_count=min_count, argument=argument)
    if _like_probabilities(summary):
        warn(
            "all scores lie in [0, 1]: these look like probabilities, whose log-odds "
            "proba_to_logits gives (of Parquet files: probabilities=True)",
            FairdialWarning,
        )
    if tolerances is None or read is None:
        grid = Grid(summary.bits)
        ladders = [grid.ladder(counts, summary.dtype) for counts in summary.counts]
        path = Path(ladders, criterion, summary.dtype)
    else:
        again = RowsAgain(summary.counts, summary.dtype, summary.groups, read)
        path = refine(again, criterion, summary.dtype, tolerances, margin=MARGIN)
    return Frontier(path, criterion, summary.groups, summary.rows, "simultaneous")


def _refuse_mixed(names: Iterable[Hashable]) -> None:
    """True and 1 are equal, but not the same group."""
    met: dict[Hashable, Hashable] = {}
    for name in names:
        same = met.setdefault(name, name)
        if isinstance(same, (bool, np.bool_)) != isinstance(name, (bool, np.bool_)):
            raise InvalidInputError(
                "summaries must have groups of one type to be added, got booleans and numbers: "
                f"{same!r} and {name!r}."
            )


def _like_probabilities(summary: ScoreSummary) -> bool:
    """Whether scores fill much of [0, 1], and nothing else, as far as bins tell."""
    if summary.counts.sum() < MANY:
        return False
    bins = np.flatnonzero(summary.counts.any(axis=(0, 1)))[[0, -1]]
    high, low = Grid(summary.bits).upper(bins).tolist()
    return bool(0.0 <= low < 0.3 and 0.7 < high <= 1.0)
