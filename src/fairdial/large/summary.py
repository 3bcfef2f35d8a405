"""Summaries of scores by counts that add up, and their frontier."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Floats, Indices, Mask
from fairdial._validation import check_count, check_tolerance, raise_nan, sort_names
from fairdial.core.criteria import Given
from fairdial.core.decide import by_label
from fairdial.core.frontier import Frontier
from fairdial.core.histograms import Grid, add_to_bins
from fairdial.core.objectives import Objective
from fairdial.core.problem import Budget, make_problem
from fairdial.core.serialization import DTYPES
from fairdial.errors import InvalidInputError, renamed
from fairdial.large.files import (
    BITS,
    SummaryData,
    check_bits,
    check_size,
    read_summary,
    write_summary,
)
from fairdial.large.frontier import find_frontier
from fairdial.large.rows import encode_rows
from fairdial.large.second_pass import CellBatch, Read, SecondPass, check_batches

if TYPE_CHECKING:
    import pandas as pd

Batches = Iterable[Any] | Callable[[], Iterable[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class ScoreSummary(SummaryData):
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
    counts : (K, C, 2^bits) int64 or float64
        Rows, or sums of their weights, by group, kind and bin, the highest scores first. Kinds are
        the labels (one without labels); with strata, ``stratum * labels + label``. Float64 if some
        weights aren't whole numbers.
    groups : tuple
        Names of the groups, sorted.
    dtype : dtype
        Dtype of the scores and thresholds, float32 or float64. Parts of both add up to float64.
    strata : tuple
        Names of the strata, sorted; empty without control features.
    n_rows : (C, K) int64, optional
        Rows by kind and group, if they have weights.

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

    @classmethod
    def from_scores(
        cls,
        logits: ArrayLike,
        groups: Any,
        y: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        control_features: Any = None,
        bits: int = BITS,
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
        sample_weight : (n,) array-like, optional
            Weights. A row with weight 3 counts as three rows; rows with weight 0 don't count.
        control_features : (n,) array-like, Series or DataFrame, optional
            Stratum of each row, for criteria within strata.
        bits : int
            2^bits bins per group, stratum and label, from 8 to 20.

        Examples
        --------
        >>> from fairdial import ScoreSummary
        >>> ScoreSummary.from_scores([-1.0, 0.5], ["a", "b"], sample_weight=[2, 0.5])
        ScoreSummary(2 rows with weights, without labels, groups=['a', 'b'], float64, 2^16 bins)
        """
        grid, n_labels = check_bits(bits), 1 if y is None else 2
        given = (logits, groups, y, sample_weight, control_features)
        if all(np.size(column) == 0 for column in given if column is not None):
            return cls(np.zeros((0, n_labels, grid.size), np.int64), (), DTYPES["float64"])
        rows = encode_rows(
            logits, groups, y, sample_weight=sample_weight, control_features=control_features
        )
        n_kinds, n_groups = max(1, len(rows.strata)) * n_labels, len(rows.groups)
        check_size(n_groups * n_kinds, grid)
        cells = rows.cells(rows.groups, rows.strata)
        weighted = rows.weights is not None
        dtype = np.int64 if rows.weights is None else rows.weights.dtype
        counts = np.zeros((n_groups, n_kinds, grid.size), dtype)
        if not add_to_bins(counts, grid, rows.scores, cells, rows.weights):
            raise_nan(rows.scores, "logits")
        n_rows = None
        if weighted:
            n_rows = np.bincount(cells, minlength=n_groups * n_kinds).reshape(n_groups, n_kinds).T
        return cls(counts, rows.groups, rows.scores.dtype, rows.strata, n_rows)

    # ---- sums ----------------------------------------------------------------------------------

    @property
    def bits(self) -> int:
        """Log2 of the number of bins."""
        return int(self.counts.shape[2]).bit_length() - 1

    @property
    def labeled(self) -> bool:
        """Whether rows were counted by label."""
        return self.n_labels == 2

    labelled = renamed("labelled", "labeled")

    @property
    def n_labels(self) -> int:
        """Number of labels that rows were counted by: 2, or 1 without labels."""
        return int(self.counts.shape[1]) // max(1, len(self.strata))

    @property
    def cells(self) -> Counts:
        """(C, K) sums of weights by kind and group; without weights, numbers of rows."""
        return np.asarray(self.counts.sum(axis=2).T)

    @property
    def rows_by_kind(self) -> Counts:
        """(C, K) rows by kind and group."""
        return self.cells if self.n_rows is None else self.n_rows

    @property
    def rows(self) -> Counts:
        """(L, K) rows by label and group."""
        return by_label(self.rows_by_kind, self.n_labels)

    def __add__(self, other: ScoreSummary) -> ScoreSummary:
        """Return the summary of both parts' rows; groups and strata are matched by name."""
        if not isinstance(other, ScoreSummary):
            return NotImplemented
        parts = [part for part in (self, other) if part.groups]
        properties: dict[str, tuple[object, object]] = {"labeled": (self.labeled, other.labeled)}
        if len(parts) == 2:  # empty parts have no bins
            properties["bits"] = self.bits, other.bits
            properties["control_features"] = bool(self.strata), bool(other.strata)
        for name, (one, two) in properties.items():
            if one != two:
                raise InvalidInputError(
                    name, "be the same in summaries that are added", given=f"{one} and {two}"
                )
        if len(parts) < 2:
            return parts[0] if parts else self
        groups = _unite(self.groups, other.groups, "groups")
        strata = _unite(self.strata, other.strata, "control_features")
        n_labels, n_kinds = self.n_labels, max(1, len(strata)) * self.n_labels
        check_size(len(groups) * n_kinds, Grid(self.bits))
        dtype = np.result_type(self.counts, other.counts)
        counts = np.zeros((len(groups), n_kinds, self.counts.shape[2]), dtype)
        n_rows = np.zeros((n_kinds, len(groups)), np.int64)
        for part in parts:
            strata_places = _places(part.strata, strata) if strata else np.zeros(1, np.intp)
            kinds = (strata_places[:, None] * n_labels + np.arange(n_labels)).ravel()
            own = _places(part.groups, groups)
            counts[np.ix_(own, kinds)] += part.counts
            n_rows[np.ix_(kinds, own)] += part.rows_by_kind.astype(np.int64, copy=False)
        weighted = self.n_rows is not None or other.n_rows is not None
        scores = np.result_type(self.dtype, other.dtype)
        return ScoreSummary(counts, groups, scores, strata, n_rows if weighted else None)

    def __radd__(self, other: object) -> ScoreSummary:
        """Support ``sum(parts)``, which starts with 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScoreSummary):
            return NotImplemented
        return (
            self.groups == other.groups
            and self.strata == other.strata
            and self.dtype == other.dtype
            and np.array_equal(self.counts, other.counts)
            and np.array_equal(self.rows_by_kind, other.rows_by_kind)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        labels = "with labels" if self.labeled else "without labels"
        weights = "" if self.n_rows is None else "with weights, "
        strata = f", strata={list(self.strata)}" if self.strata else ""
        return (
            f"ScoreSummary({int(self.rows.sum()):,} rows {weights}{labels}, "
            f"groups={list(self.groups)}{strata}, {self.dtype.name}, 2^{self.bits} bins)"
        )

    # ---- the frontier --------------------------------------------------------------------------

    def to_frontier(
        self,
        criterion: Given = "demographic_parity",
        *,
        objective: str | Objective = "accuracy",
        budget: float | Budget | None = None,
        nested: bool | None = None,
        rising: bool = False,
        randomize: Literal["hash"] | None = None,
        value: Literal["plug-in", "labels"] = "plug-in",
        tolerances: ArrayLike | None = None,
        refine: Batches | None = None,
        min_count: int = 30,
    ) -> Frontier:
        """Return the frontier, with thresholds at edges of bins or exact at some tolerances.

        Gap and accuracy of every point are exact on these rows; the class says what the bins cost.
        With strata, every demand holds within each of them. ``confidence=`` is simultaneous: it
        holds for all thresholds at once.

        Parameters
        ----------
        criterion : str, Criterion, list or mapping
            The criterion; see :func:`fairdial.criterion`. Its demands have no conditions: the
            strata of a summary are fixed when rows are counted.
        objective, budget, nested, rising, randomize, value
            As in :func:`fairdial.sweep`.
        tolerances : array-like, optional
            With ``refine``, tolerances with exact answers, equal to those of
            :func:`fairdial.sweep`. For a criterion with one rate only.
        refine : iterable or callable, with ``tolerances``
            The same rows again in batches, each ``(logits, groups)``, ``(logits, groups, y)`` or,
            with weights, a dict of arguments of :meth:`from_scores`: an iterable that can be
            repeated, such as a list, or a function that returns an iterator. Only rows in the bins
            on which the tolerances depend are kept. One pass is nearly always enough.
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
        check_count(min_count, "min_count")
        n_rows = float(self.counts.sum())
        problem = make_problem(
            criterion, objective, budget, nested, rising, randomize, value, n_rows=n_rows
        )
        exact = None
        if tolerances is not None:
            exact = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
        self.check_refine(refine, problem.uses_path and not self.strata, exact)

        return find_frontier(
            self,
            problem,
            tolerances=exact,
            read=self.second_pass(refine),
            min_count=min_count,
        )

    def second_pass(self, refine: Batches | SecondPass | None) -> Read | None:
        """Return a function that yields these rows again, checked; None without ``refine``."""
        if refine is None:
            return None
        if isinstance(refine, SecondPass):
            return refine.read

        def read(_: Mask) -> Iterator[CellBatch]:
            batches = refine() if callable(refine) else refine
            return check_batches(
                batches, self.groups, self.strata, self.dtype, labeled=self.labeled
            )

        return read

    @staticmethod
    def check_refine(
        refine: Batches | SecondPass | None, uses_path: bool, tolerances: Floats | None
    ) -> None:
        """Raise unless rows for a second pass are given if, and only if, they are needed."""
        if refine is not None and not uses_path:
            raise InvalidInputError(
                "refine",
                "be None unless the threshold path applies: one rate, accuracy and no strata",
            )
        if uses_path and (refine is None) != (tolerances is None):
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
        write_summary(path, self)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ScoreSummary:
        """Return the summary that :meth:`save` wrote."""
        return cls(**vars(read_summary(path)))

    @staticmethod
    def sql(
        table: str,
        *,
        score: str = "score",
        group: str = "group",
        label: str | None = None,
        weight: str | None = None,
        control: str | None = None,
        bits: int = BITS,
        dialect: str = "duckdb",
    ) -> str:
        """Return a query whose result :meth:`from_counts` reads.

        Parameters
        ----------
        table : str
            What to put after FROM, verbatim: a table, ``read_parquet('folder/*.parquet')``, or a
            query in parentheses.
        score, group, label : str
            Columns. Labels are 0 and 1, or booleans; by default there are none.
        weight, control : str, optional
            Columns of weights and strata, as in :meth:`from_scores`.
        bits : int
            2^bits bins per group, stratum and label.
        dialect : {"duckdb", "postgres", "spark", "bigquery", "snowflake"}
            Which SQL to write.

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

        return write_query(
            table,
            score=score,
            group=group,
            label=label,
            weight=weight,
            control=control,
            grid=check_bits(bits),
            dialect=dialect,
        )

    @classmethod
    def from_counts(cls, frame: pd.DataFrame) -> ScoreSummary:
        """Return the summary from a table of counts, such as the result of :meth:`sql`.

        Parameters
        ----------
        frame : DataFrame
            Columns ``group``, ``stratum`` (optional), ``label`` (0 and 1; optional), ``bin`` (0 has
            the highest scores), ``rows``, ``weight`` (the sum of their weights; optional),
            ``dtype`` (of the scores) and ``bits``, in any order of lines. Lines with the same
            group, stratum, label and bin add up. Without lines, the summary is empty.
        """
        from fairdial.large.sql import read_counts

        return cls(**vars(read_counts(frame)))


def _places(names: tuple[Hashable, ...], among: tuple[Hashable, ...]) -> Indices:
    places = {name: place for place, name in enumerate(among)}
    return np.array([places[name] for name in names], np.intp)


def _unite(
    one: tuple[Hashable, ...], two: tuple[Hashable, ...], argument: str
) -> tuple[Hashable, ...]:
    """Return the names of both parts, sorted.

    Raise if a name is True in one part and 1 in the other: they are equal, but not the same.
    """
    found: dict[Hashable, Hashable] = {}
    for name in (*one, *two):
        same = found.setdefault(name, name)
        if isinstance(same, (bool, np.bool_)) != isinstance(name, (bool, np.bool_)):
            raise InvalidInputError(
                argument,
                "have one type in summaries that are added",
                given=f"booleans and numbers ({same!r} and {name!r})",
            )
    return sort_names(found)
