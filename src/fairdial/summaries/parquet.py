"""Parquet files of scored rows: summarised in one pass, exact in two."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairdial._validation import check_count, check_tolerance, sort_names
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError
from fairdial.frontier import Frontier
from fairdial.histograms import Grid, count_rows_in
from fairdial.ladders import Counts, Indices
from fairdial.summaries.again import Batch
from fairdial.summaries.arrow import ParquetReader, Piece
from fairdial.summaries.limits import BITS, check_bits, check_size
from fairdial.summaries.summary import ScoreSummary, find_frontier

NO_LABELS: tuple[Hashable, ...] = (None,)

Cell = tuple[Hashable, Hashable]  # a group and a label


def calibrate_parquet(
    path: str | PathLike[str],
    *,
    score: str = "score",
    group: str = "group",
    label: str | None = None,
    criterion: str | Criterion = "demographic_parity",
    tolerances: ArrayLike | None = None,
    pos_label: Any = None,
    probabilities: bool = False,
    min_count: int = 30,
    bits: int = BITS,
) -> Frontier:
    """The frontier of scored rows in Parquet files: one pass, or two for exact answers.

    Only the columns named are read, batch by batch, and only counts are kept, so memory doesn't
    grow with the rows. Needs the extra ``large``.

    Parameters
    ----------
    path : path
        A Parquet file, or a folder: all ``*.parquet`` files in it, in the order of their names,
        but for names that begin with a dot or an underscore. Folders named like ``region=north``
        stand for a column ``region``.
    score : str
        Column of scores, log-odds of the positive label. Use held-out rows: not those of training.
    group : str
        Column of groups: text, whole numbers or booleans, dictionary-encoded or not.
    label : str, optional
        Column of labels, two values of any type. Demographic parity works without; then accuracy
        is absent.
    criterion : str or Criterion
        What is to be equalised.
    tolerances : array-like, optional
        Where the answers are to be exact, equal to those of :func:`fairdial.sweep` on all rows in
        memory. The files are then read a second time (now and then a third). Without, thresholds
        stand at edges of bins: within the tolerance or reported infeasible, with exact gap and
        accuracy, but up to a bin from the least constrained; see :class:`fairdial.ScoreSummary`.
    pos_label : label, optional
        The positive label; the greater of the two by default.
    probabilities : bool
        The scores are probabilities of the positive label, whose log-odds are to be taken.
    min_count : int
        Least number of counted rows in each group.
    bits : int
        2^bits bins a group and label, from 8 to 20.

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
    kind, grid = find_criterion(criterion), check_bits(bits)
    refuse_no_label(kind, label)
    check_count(min_count, "min_count")
    wishes = None
    if tolerances is not None:
        wishes = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
    reader = ParquetReader(path, score, group, label, probabilities=probabilities)
    summary, cells = count_rows(reader, grid, pos_label=pos_label)
    return find_frontier(
        summary,
        kind,
        tolerances=wishes,
        read=lambda: read_rows(reader, cells),
        min_count=min_count,
        argument="group",
    )


def summarize_parquet(
    path: str | PathLike[str],
    *,
    score: str = "score",
    group: str = "group",
    label: str | None = None,
    pos_label: Any = None,
    probabilities: bool = False,
    bits: int = BITS,
) -> ScoreSummary:
    """The summary of scored rows in Parquet files, by one pass; parameters as above.

    Summaries of several files or machines add up; see :class:`fairdial.ScoreSummary`. For labels
    other than 0 and 1 give ``pos_label``, so that it is the same in all parts.

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
    reader = ParquetReader(path, score, group, label, probabilities=probabilities)
    return count_rows(reader, grid, pos_label=pos_label)[0]


def refuse_no_label(criterion: Criterion, label: str | None) -> None:
    """Before all rows are read in vain."""
    if criterion.needs_labels and label is None:
        raise InvalidInputError(
            f"`label` must be given: {criterion.name} counts rows by their label."
        )


def count_rows(
    reader: ParquetReader,
    grid: Grid,
    *,
    pos_label: Any = None,
    classes: Sequence[Any] | None = None,
) -> tuple[ScoreSummary, dict[Cell, int]]:
    """The summary, and the cell of each group and label, by one pass.

    ``classes`` are the negative and the positive label, where they are known already.
    """
    slots, kinds = _Slots(), {np.dtype(np.float32)}
    counts = np.zeros((0, grid.size), np.int64)
    for piece in reader.pieces():
        cells = slots.find(piece)
        if len(slots.places) > len(counts):
            counts = _longer(counts, len(slots.places), grid)
        if not count_rows_in(counts, grid, piece.scores, cells):
            reader.refuse_missing()
        kinds.add(piece.scores.dtype)
    names = sort_names({group for group, _ in slots.places})
    order = NO_LABELS
    if reader.labelled:
        found = sort_names({label for _, label in slots.places})
        order = _classes(found, pos_label) if classes is None else tuple(classes)
        for label in found:
            if label not in order:
                raise InvalidInputError(
                    f"`label` must hold the classes {order[0]!r} and {order[1]!r}, got {label!r}."
                )
    pairs = [(name, label) for name in names for label in order]
    ordered = np.zeros((len(pairs), grid.size), np.int64)
    for cell, pair in enumerate(pairs):
        if pair in slots.places:
            ordered[cell] = counts[slots.places[pair]]
    shape = len(names), len(order), grid.size
    summary = ScoreSummary(ordered.reshape(shape), names, np.result_type(*kinds))
    return summary, {pair: cell for cell, pair in enumerate(pairs)}


def read_rows(reader: ParquetReader, cells: dict[Cell, int]) -> Iterator[Batch]:
    """The rows again, with the cells that the first pass gave them."""
    slots = _Slots(cells)
    for piece in reader.pieces():
        yield piece.scores, slots.find(piece)


class _Slots:
    """A number for each group and label: those that are known, or given as they are met."""

    def __init__(self, known: dict[Cell, int] | None = None) -> None:
        self.places: dict[Cell, int] = {} if known is None else known
        self._grows = known is None
        self._values: tuple[Sequence[Hashable], Sequence[Hashable]] = (), ()
        self._table = np.zeros(0, np.intp)

    def find(self, piece: Piece) -> Indices:
        """The number of each row's group and label."""
        groups, labels = piece.groups, piece.labels
        marks = NO_LABELS if labels is None else labels.values
        if self._values != (groups.values, marks):  # else the table of the last piece serves
            pairs = ((group, label) for group in groups.values for label in marks)
            self._table = np.array([self.places.get(pair, -1) for pair in pairs], np.intp)
            self._values = groups.values, marks
        codes = groups.codes.astype(np.intp)
        if labels is not None:
            codes *= len(marks)
            codes += labels.codes.astype(np.intp)  # unsigned ones can't be added as they are
        found = self._table.take(codes)
        if found.min() < 0:
            self._meet(np.unique(codes[found < 0]))
            found = self._table.take(codes)
        return found

    def _meet(self, codes: Indices) -> None:
        groups, marks = self._values
        for code in codes.tolist():
            pair = groups[code // len(marks)], marks[code % len(marks)]
            if not self._grows:
                raise InvalidInputError(
                    f"the rows that are read again must be those that were summarised, got {pair}."
                )
            self._table[code] = self.places.setdefault(pair, len(self.places))


def _longer(counts: Counts, n_cells: int, grid: Grid) -> Counts:
    """The counts with room for more cells: at least twice as many."""
    check_size(n_cells, grid)
    longer = np.zeros((max(n_cells, 2 * len(counts)), grid.size), np.int64)
    longer[: len(counts)] = counts
    return longer


def _kind(label: Any) -> type:
    """Labels of one kind may be equal, others never are."""
    return numbers.Number if isinstance(label, (numbers.Number, np.bool_)) else type(label)


def _classes(found: Sequence[Any], pos_label: Any) -> tuple[Hashable, ...]:
    """The negative and the positive label."""
    if len(found) > 2:
        shown = ", ".join(map(repr, found[:5]))
        raise InvalidInputError(f"`label` must hold two values, got {len(found)}: {shown}.")
    if pos_label is not None:
        if len(found) == 2 and pos_label not in found:
            raise InvalidInputError(f"`pos_label` must be one of {list(found)}, got {pos_label!r}.")
        if found and _kind(pos_label) is not _kind(found[0]):
            raise InvalidInputError(
                f"`pos_label` must be of the labels' type, got {pos_label!r} where `label` holds "
                f"{found[0]!r}."
            )
        others = [label for label in found if label != pos_label]
        return (*others, pos_label) if others else (None, pos_label)
    if all(label in (0, 1) for label in found):
        return 0, 1
    if len(found) < 2:
        raise InvalidInputError(
            f"`pos_label` must be given where the labels don't tell it, got {found[0]!r} only."
        )
    return tuple(found)
