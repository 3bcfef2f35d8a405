"""Frontiers and summaries of scored rows in Parquet files."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from os import PathLike
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Indices
from fairdial._validation import check_count, check_tolerance, describe_values, sort_names
from fairdial.core.criteria import Given
from fairdial.core.frontier import Frontier
from fairdial.core.histograms import Grid, add_to_bins
from fairdial.core.objectives import Objective
from fairdial.core.problem import Budget, Problem, make_problem
from fairdial.errors import InvalidInputError
from fairdial.large.files import BITS, check_bits, check_size
from fairdial.large.frontier import find_frontier
from fairdial.large.reader import Batch, ParquetReader
from fairdial.large.second_pass import CellBatch
from fairdial.large.summary import ScoreSummary

NO_LABELS: tuple[Hashable, ...] = (None,)
KEYS = ("group", "control", "label")  # what a cell has in common

Cell = tuple[Hashable, ...]  # group, stratum and label, those that were named


def calibrate_parquet(
    path: str | PathLike[str],
    *,
    score: str = "score",
    group: str = "group",
    label: str | None = None,
    weight: str | None = None,
    control: str | None = None,
    criterion: Given = "demographic_parity",
    objective: str | Objective = "accuracy",
    budget: float | Budget | None = None,
    nested: bool | None = None,
    rising: bool = False,
    randomize: Literal["hash"] | None = None,
    value: Literal["plug-in", "labels"] = "plug-in",
    tolerances: ArrayLike | None = None,
    pos_label: Hashable = None,
    probabilities: bool = False,
    min_count: int = 30,
    bits: int = BITS,
) -> Frontier:
    """Compute the frontier of scored rows in Parquet files, in one pass, or in two if exact.

    Only the named columns are read, in batches, and only counts are kept, so memory doesn't grow
    with the rows. Needs the extra ``large``.

    Parameters
    ----------
    path : path
        A Parquet file, or a folder: all ``*.parquet`` files in it, sorted by name, except names
        that start with a dot or an underscore. Folders named like ``region=north`` are a column
        ``region``.
    score : str
        Column of scores: log-odds of the positive label. Use held-out rows, not the training rows.
    group : str
        Column of groups: text, integers or booleans, dictionary-encoded or not.
    label : str, optional
        Column of labels: two values of any type. Demographic parity doesn't need it; without it,
        accuracy is unknown.
    weight : str, optional
        Column of weights. A row with weight 3 counts as three rows; rows with weight 0 don't count.
    control : str, optional
        Column of strata: every demand holds within each of them.
    criterion : str, Criterion, list or mapping
        The criterion; see :func:`fairdial.criterion`. Its demands have no conditions.
    objective, budget, nested, rising, randomize, value
        As in :func:`fairdial.sweep`.
    tolerances : array-like, optional
        For one rate, tolerances with exact answers, equal to those of :func:`fairdial.sweep` on all
        rows in memory. The files are then read a second time (rarely a third). Without them, and
        for other criteria, thresholds are at edges of bins: within the tolerance or reported
        infeasible, with exact gap and accuracy, but up to a bin from the best; see
        :class:`fairdial.ScoreSummary`.
    pos_label : label, optional
        The positive label; the one that sorts last by default.
    probabilities : bool
        Whether the scores are probabilities of the positive label instead of log-odds.
    min_count : int
        Minimum number of eligible rows per group.
    bits : int
        2^bits bins per group, stratum and label, from 8 to 20.

    Returns
    -------
    Frontier
        Its ``confidence=`` is simultaneous.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from fairdial import calibrate_parquet
    >>> from fairdial.datasets import make_gaussian
    >>> sample = make_gaussian(20_000, random_state=0)
    >>> rows = pd.DataFrame({"score": sample.logits, "group": sample.groups, "label": sample.y})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows.to_parquet(f"{folder}/rows.parquet")
    ...     frontier = calibrate_parquet(folder, label="label", tolerances=[0.05, 0.1])
    >>> frontier.at(0.1).gap <= 0.1
    True
    """
    grid = check_bits(bits)

    def problem(n_rows: float) -> Problem:
        return make_problem(
            criterion, objective, budget, nested, rising, randomize, value, n_rows=n_rows
        )

    require_label(problem(np.inf), label)  # checks all options before reading
    check_count(min_count, "min_count")
    exact = None
    if tolerances is not None:
        exact = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
    reader = ParquetReader(
        path, score, group, label, weight=weight, control=control, probabilities=probabilities
    )
    summary, cells = summarize(reader, grid, pos_label=pos_label)
    return find_frontier(
        summary,
        problem(float(summary.counts.sum())),
        tolerances=exact,
        read=lambda _: reread(reader, cells),
        min_count=min_count,
        argument="group",
        source="path",
    )


def summarize_parquet(
    path: str | PathLike[str],
    *,
    score: str = "score",
    group: str = "group",
    label: str | None = None,
    weight: str | None = None,
    control: str | None = None,
    pos_label: Hashable = None,
    probabilities: bool = False,
    bits: int = BITS,
) -> ScoreSummary:
    """Summarize scored rows in Parquet files in one pass.

    The parameters are those of :func:`fairdial.calibrate_parquet`. Summaries of several files or
    machines add up; see :class:`fairdial.ScoreSummary`. For labels other than 0 and 1, pass
    ``pos_label``, so that it is the same in all parts.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from fairdial import summarize_parquet
    >>> rows = pd.DataFrame({"score": [-1.0, 0.5, 2.0], "group": ["a", "a", "b"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows.to_parquet(f"{folder}/rows.parquet")
    ...     summarize_parquet(folder)
    ScoreSummary(3 rows without labels, groups=['a', 'b'], float64, 2^16 bins)
    """
    grid = check_bits(bits)
    reader = ParquetReader(
        path, score, group, label, weight=weight, control=control, probabilities=probabilities
    )
    return summarize(reader, grid, pos_label=pos_label)[0]


def require_label(problem: Problem, label: str | None) -> None:
    """Raise if the criterion or the objective needs labels, before the rows are read."""
    if problem.needs_labels and label is None:
        raise InvalidInputError("label", f"be given for {problem.criterion.name}")


def summarize(
    reader: ParquetReader,
    grid: Grid,
    *,
    pos_label: Hashable = None,
    classes: Sequence[Hashable] | None = None,
) -> tuple[ScoreSummary, dict[Cell, int]]:
    """Return the summary of all rows, and the cell of each group, stratum and label.

    ``classes`` are the negative and the positive label, if they are known.
    """
    cell_numbers, dtypes = _CellNumbers(), {np.dtype(np.float32)}
    counts: Counts = np.zeros((0, grid.size), np.int64)
    n_rows = np.zeros(0, np.int64)
    for batch in reader.batches():
        cells = cell_numbers.of(batch)
        if len(cell_numbers.known) > len(counts):
            counts = _grow(counts, len(cell_numbers.known), grid)
            n_rows = np.append(n_rows, np.zeros(len(counts) - len(n_rows), np.int64))
        if batch.weights is not None:
            counts = counts.astype(np.result_type(counts, batch.weights), copy=False)
            n_rows += np.bincount(cells, minlength=len(n_rows))
        if not add_to_bins(counts, grid, batch.scores, cells, batch.weights):
            reader.raise_missing()
        dtypes.add(batch.scores.dtype)
    known = cell_numbers.known
    if reader.has("weight") and not known:
        raise InvalidInputError("weight", "have a positive sum", given="0")
    names = [sort_names(set(column)) for column in zip(*known, strict=True)]
    found = dict(zip(filter(reader.has, KEYS), names, strict=False))
    groups, strata = found.get("group", ()), found.get("control", ())
    labels = NO_LABELS
    if reader.has("label"):
        labels = _find_labels(found.get("label", ()), pos_label, classes)
        found["label"] = labels
    places = list(product(*found.values())) if groups else []
    shape = len(groups), max(1, len(strata)) * len(labels)
    ordered = np.zeros((len(places), grid.size), counts.dtype)
    rows = np.zeros(len(places), np.int64)
    for cell, place in enumerate(places):
        if place in known:
            ordered[cell], rows[cell] = counts[known[place]], n_rows[known[place]]
    summary = ScoreSummary(
        ordered.reshape(*shape, grid.size),
        groups,
        np.result_type(*dtypes),
        strata,
        rows.reshape(shape).T if reader.has("weight") else None,
    )
    return summary, {place: cell for cell, place in enumerate(places)}


def _find_labels(
    found: Sequence[Hashable], pos_label: Hashable, classes: Sequence[Hashable] | None
) -> tuple[Hashable, ...]:
    """Return the negative and the positive label; raise on others."""
    labels = _classes(found, pos_label) if classes is None else tuple(classes)
    for label in found:
        if label not in labels:
            raise InvalidInputError(
                "label", f"be {labels[0]!r} or {labels[1]!r} in every row", given=repr(label)
            )
    return labels


def reread(reader: ParquetReader, cells: dict[Cell, int]) -> Iterator[CellBatch]:
    """Yield all rows again, with the cells of the first pass."""
    cell_numbers = _CellNumbers(cells)
    for batch in reader.batches():
        yield batch.scores, cell_numbers.of(batch), batch.weights


class _CellNumbers:
    """A number for each cell: the known ones, or in the order of their first rows."""

    def __init__(self, known: dict[Cell, int] | None = None) -> None:
        self.known: dict[Cell, int] = {} if known is None else known
        self._grows = known is None
        self._values: list[Sequence[Hashable]] = []
        self._table = np.zeros(0, np.intp)

    def of(self, batch: Batch) -> Indices:
        """Return the number of each row's group, stratum and label."""
        columns = [batch.columns[key] for key in KEYS if key in batch.columns]
        values = [column.values for column in columns]
        if self._values != values:  # else reuse the last batch's table
            self._table = np.array([self.known.get(c, -1) for c in product(*values)], np.intp)
            self._values = values
        codes = columns[0].codes.astype(np.intp)
        for column in columns[1:]:
            codes *= len(column.values)
            codes += column.codes.astype(np.intp)  # adding unsigned codes would fail
        found = self._table.take(codes)
        if found.min() < 0:
            self._add(np.unique(codes[found < 0]))
            found = self._table.take(codes)
        return found

    def _add(self, codes: Indices) -> None:
        places = np.unravel_index(codes, [len(values) for values in self._values])
        for code, *place in zip(codes.tolist(), *(p.tolist() for p in places), strict=True):
            cell = tuple(values[i] for values, i in zip(self._values, place, strict=True))
            if not self._grows:
                raise InvalidInputError(
                    "path", "hold the same rows in every pass", given=f"{cell} in a later one"
                )
            self._table[code] = self.known.setdefault(cell, len(self.known))


def _grow(counts: Counts, n_cells: int, grid: Grid) -> Counts:
    """Return the counts with room for more cells, at least twice as many."""
    check_size(n_cells, grid)
    longer = np.zeros((max(n_cells, 2 * len(counts)), grid.size), counts.dtype)
    longer[: len(counts)] = counts
    return longer


def _kind(label: Hashable) -> type:
    """Return a type such that labels of different types are never equal."""
    return numbers.Number if isinstance(label, (numbers.Number, np.bool_)) else type(label)


def _classes(found: Sequence[Hashable], pos_label: Hashable) -> tuple[Hashable, ...]:
    """Return the negative and the positive label."""
    if len(found) > 2:
        raise InvalidInputError("label", "have two values", given=describe_values(found))
    if pos_label is not None:
        if len(found) == 2 and pos_label not in found:
            raise InvalidInputError("pos_label", f"be one of {found}", given=repr(pos_label))
        if found and _kind(pos_label) is not _kind(found[0]):
            raise InvalidInputError(
                "pos_label",
                f"have the type of the labels, such as {found[0]!r}",
                given=repr(pos_label),
            )
        others = [label for label in found if label != pos_label]
        return (*others, pos_label) if others else (None, pos_label)
    if all(label in (0, 1) for label in found):
        return 0, 1
    if len(found) < 2:
        raise InvalidInputError(
            "pos_label", "be given for a single label other than 0 and 1", given=repr(found[0])
        )
    return tuple(found)
