"""What workers do with batches of rows: decide, and make tables of counts that add up.

A task gets a DataFrame with the columns it names and returns another one. Tables of counts all have
the columns ``cell`` (text that names group, stratum and label), ``place`` (a bin, a score or a
decision), ``rows`` and ``weight``; :func:`merge` adds them up in any order.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial._arrays import Floats, Mask
from fairdial._validation import check_one_tolerance, match_groups, raise_nan
from fairdial.core.decide import select
from fairdial.core.histograms import Grid, add_to_bins
from fairdial.core.serialization import json_name
from fairdial.large.model_rows import RowReader, TableRows
from fairdial.large.rows import Names, Rows, encode_rows

DECISION, MARGIN, LOGIT = "decision", "margin", "logit"
KEYS, SUMS = ["cell", "place"], ["rows", "weight"]
TYPES = {"cell": object, "place": np.float64, "rows": np.int64, "weight": np.float64}


class Task(ABC):
    """A function of a DataFrame that can be sent to other processes."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """Columns that it needs."""

    @abstractmethod
    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Return the result of a batch, which may have no rows."""


def merge(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the sum of tables of counts."""
    parts = [table for table in tables if len(table)]
    if not parts:
        return pd.DataFrame({name: np.zeros(0, dtype) for name, dtype in TYPES.items()})
    if len(parts) == 1:
        return parts[0]
    together = pd.concat(parts, ignore_index=True)
    return together.groupby(KEYS, sort=False, as_index=False)[SUMS].sum()


# ---- decide --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decide(Task):
    """Decisions as labels, margins and, if rows are compared with thresholds, logits.

    Attributes
    ----------
    thresholds : (K,) float64 or None
        The thresholds at the tolerance; None if the model has none or draws them.
    """

    reader: RowReader
    tolerance: float
    confidence: float | None
    simultaneous: bool
    thresholds: Floats | None

    @classmethod
    def at(
        cls,
        reader: RowReader,
        tolerance: float | None,
        confidence: float | None,
        simultaneous: bool,
    ) -> Decide:
        """Return the task that decides at a tolerance, whose thresholds are found once."""
        model = reader.model
        chosen = check_one_tolerance(model.default_tolerance if tolerance is None else tolerance)
        thresholds = None
        frontier = model.frontier_
        if hasattr(model, "logits") and not frontier.is_blind:
            point = frontier.at(chosen, confidence=confidence, simultaneous=simultaneous)
            thresholds = point.thresholds if point.lottery is None else None
        return cls(reader, chosen, confidence, simultaneous, thresholds)

    @property
    def columns(self) -> list[str]:
        """Columns that it needs."""
        return self.reader.columns

    @property
    def fields(self) -> dict[str, np.dtype[Any]]:
        """Names and types of the columns that it returns."""
        found = {DECISION: self.reader.model.classes_.dtype, MARGIN: np.dtype(np.float64)}
        return found if self.thresholds is None else found | {LOGIT: np.dtype(np.float64)}

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Return decisions, margins and logits."""
        margin, logits = self.score(self.reader.read(batch))
        classes = self.reader.model.classes_
        decided = classes[select(margin, 0.0).astype(np.intp)]
        kind = object if classes.dtype == object else None  # pandas would make them strings
        found = {DECISION: pd.Series(decided, batch.index, kind), MARGIN: margin}
        if logits is not None:
            found[LOGIT] = logits
        return pd.DataFrame(found, index=batch.index)

    def score(self, rows: TableRows) -> tuple[Floats, Floats | None]:
        """Return margins and, with thresholds, logits."""
        model, groups = self.reader.model, rows.sensitive_features
        if not len(rows.X):
            return np.zeros(0), None if self.thresholds is None else np.zeros(0)
        if self.thresholds is None:
            asked = np.full(len(rows.X), self.tolerance) if self.simultaneous else self.tolerance
            margin = model.decision_function(
                rows.X, sensitive_features=groups, tolerance=asked, confidence=self.confidence
            )
            return margin, None
        logits: Floats = model.logits(rows.X, sensitive_features=groups)
        limits = self.thresholds[0]
        if len(self.thresholds) > 1:
            limits = self.thresholds[match_groups(rows.groups, model.frontier_.groups, "data")]
        with np.errstate(invalid="ignore"):
            margin = logits - limits
        return np.where(np.isnan(margin), 0.0, margin), logits  # inf - inf: not above


# ---- count ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CountDecisions(Task):
    """Counts of rows by group, stratum, label and decision (``place``, 0 or 1)."""

    decide: Decide

    @property
    def columns(self) -> list[str]:
        """Columns that it needs."""
        return self.decide.columns

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Return the counts."""
        if not len(batch):
            return merge([])
        rows = self.decide.reader.read(batch)
        margin, _ = self.decide.score(rows)
        found = encode(rows, margin)
        return _count(found, select(found.scores, 0.0).astype(np.intp), 2)


@dataclass(frozen=True)
class ReadScores:
    """Scores of rows with their groups, strata, labels and weights.

    Attributes
    ----------
    score : str, optional
        Column of the model's logits; by default they are computed.
    """

    reader: RowReader
    score: str | None = None

    @property
    def columns(self) -> list[str]:
        """Columns that are needed."""
        return [*self.reader.columns, *([] if self.score is None else [self.score])]

    def __call__(self, batch: pd.DataFrame) -> Rows:
        """Return the rows of a batch that isn't empty."""
        rows = self.reader.read(batch)
        if self.score is not None:
            return encode(rows, batch[self.score])
        return encode(
            rows, self.reader.model.logits(rows.X, sensitive_features=rows.sensitive_features)
        )


@dataclass(frozen=True)
class CountScores(Task):
    """Counts of rows by group, stratum, label and bin of their score (``place``)."""

    read: ReadScores
    bits: int

    @property
    def columns(self) -> list[str]:
        """Columns that it needs."""
        return self.read.columns

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Return the counts of the bins that have rows."""
        if not len(batch):
            return merge([])
        rows, grid = self.read(batch), Grid(self.bits)
        if not len(rows.scores):
            return merge([])
        cells = rows.cells(rows.groups, rows.strata)
        counts = np.zeros((len(_names(rows)), grid.size), np.int64)
        if not add_to_bins(counts, grid, rows.scores, cells):
            raise_nan(rows.scores, "logits")
        weights = counts
        if rows.weights is not None:
            weights = np.zeros(counts.shape, rows.weights.dtype)
            add_to_bins(weights, grid, rows.scores, cells, rows.weights)
        cell, place = np.nonzero(counts)
        return _table(rows, cell, place, counts[cell, place], weights[cell, place])


@dataclass(frozen=True)
class OpenBins(Task):
    """Counts of rows by cell and score (``place``), for scores in opened bins only.

    Attributes
    ----------
    packed : uint8 array
        Which bins of each cell are open, packed bits.
    groups, strata : tuple
        Names, in the order of the cells.
    """

    read: ReadScores
    packed: NDArray[np.uint8]
    groups: Names
    strata: Names
    bits: int

    @property
    def columns(self) -> list[str]:
        """Columns that it needs."""
        return self.read.columns

    @cached_property
    def _flags(self) -> Mask:
        return np.unpackbits(self.packed).view(np.bool_)

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Return the scores in opened bins with their counts."""
        if not len(batch):
            return merge([])
        rows, grid = self.read(batch), Grid(self.bits)
        if not len(rows.scores):
            return merge([])
        cells = rows.cells(self.groups, self.strata)
        keys = np.empty(len(cells), np.intp)
        if not grid.write_keys(rows.scores, cells, keys):
            raise_nan(rows.scores, "logits")
        kept = np.flatnonzero(self._flags.take(keys))
        weights = np.ones(len(kept)) if rows.weights is None else rows.weights.take(kept)
        table = pd.DataFrame(
            {
                "cell": cells.take(kept),
                "place": rows.scores.take(kept).astype(np.float64) + 0.0,  # no -0.0
                "rows": np.ones(len(kept), np.int64),
                "weight": np.asarray(weights, np.float64),
            }
        )
        table = table.groupby(KEYS, sort=False, as_index=False)[SUMS].sum()
        return table.assign(cell=table["cell"].astype(str).astype(object))


def encode(rows: TableRows, scores: Any) -> Rows:
    """Return checked rows with codes of their groups and strata."""
    groups = np.full(len(rows.X), "all", object) if rows.groups is None else rows.groups
    return encode_rows(
        scores,
        groups,
        rows.positive,
        sample_weight=rows.weights,
        control_features=rows.strata,
    )


def _names(rows: Rows) -> list[str]:
    """Return the names of the cells of these rows, in the order of their codes."""
    labels = [None] if rows.label is None else [0, 1]
    strata = rows.strata or (None,)
    return [
        json.dumps([json_name(group), None if stratum is None else json_name(stratum), label])
        for group, stratum, label in product(rows.groups, strata, labels)
    ]


def _count(rows: Rows, places: NDArray[np.intp], n_places: int) -> pd.DataFrame:
    """Return the counts of rows by cell and place."""
    codes = rows.cells(rows.groups, rows.strata).astype(np.intp) * n_places + places
    size = len(_names(rows)) * n_places
    counts = np.bincount(codes, minlength=size)
    weights = counts
    if rows.weights is not None:
        weights = np.bincount(codes, rows.weights, minlength=size)
    found = np.flatnonzero(counts)
    return _table(rows, found // n_places, found % n_places, counts[found], weights[found])


def _table(rows: Rows, cell: Any, place: Any, counts: Any, weights: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "cell": np.array(_names(rows), object)[cell],
            "place": np.asarray(place, np.float64),
            "rows": np.asarray(counts, np.int64),
            "weight": np.asarray(weights, np.float64),
        }
    )


def names_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of counts with columns ``group``, ``stratum`` and ``label``."""
    known = {cell: json.loads(cell) for cell in table["cell"].unique()}
    names = {
        name: pd.Series([known[cell][place] for cell in table["cell"]], dtype=object)
        for place, name in enumerate(("group", "stratum", "label"))
    }
    return pd.DataFrame(names).dropna(axis=1, how="all").join(table.reset_index(drop=True))
