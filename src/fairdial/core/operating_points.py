"""Operating points of a dial: what they have in common, a table of them, and a model family.

The points of one scorer's thresholds are in ``threshold_path.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set
from functools import cached_property

import numpy as np

from fairdial._arrays import Counts, Floats, Indices, Mask
from fairdial.core.criteria import Criterion
from fairdial.core.decide import accuracy_of_counts


class OperatingPoints(ABC):
    """The operating points of a dial, least constrained first.

    Attributes
    ----------
    gap : (S,) float64
        Highest minus lowest rate.
    n_declared : int or None
        Of a model family, the number of settings that were fixed before looking at the calibration
        rows; None if the points are thresholds of one score.
    """

    gap: Floats
    n_declared: int | None = None

    def __len__(self) -> int:
        return len(self.gap)

    @property
    @abstractmethod
    def setting(self) -> Floats:
        """(S,) t for two groups, the price T for more; or the setting of a model in a family."""

    @property
    @abstractmethod
    def certifiable(self) -> Mask:
        """(S,) the points that theorems 1 and 3 of ``docs/confidence.md`` apply to."""

    @abstractmethod
    def read(self, points: Indices) -> tuple[Floats, Counts]:
        """Return the thresholds, (s, K), and the rows that they select, (s, L, K)."""

    def take(self, points: Indices) -> OperatingPoints:
        """Return some of the points; by default as a table."""
        return self.tabulate(points)

    def tabulate(self, points: Indices) -> PointTable:
        """Return some of the points as a table."""
        thresholds, selected = self.read(points)
        columns = self.setting[points], self.gap[points], self.certifiable[points]
        table = PointTable(*columns, thresholds, selected)
        table.indices = points
        return table

    def choose(self, tolerances: Floats) -> tuple[PointTable, Mask]:
        """Return the point for each tolerance, (m,), and whether it is within the tolerance.

        Where none is, the point with the smallest gap is chosen.
        """
        points, feasible = self.find(tolerances)
        return self.tabulate(points), feasible

    @property
    def unproved(self) -> Set[float]:
        """Tolerances whose answer may not be the best, because a search was stopped."""
        return frozenset()

    @property
    def n_unconstrained(self) -> float:
        """Number of rows that the least constrained point selects."""
        return float(self.read(np.array([0]))[1].sum())

    def bound(self, tolerance: float) -> float | None:  # noqa: ARG002
        """Return the best expected objective of any mixture of thresholds; None if unknown."""
        return None

    def expected_value(self, thresholds: Floats) -> float | None:  # noqa: ARG002
        """Return the objective that the scores predict at thresholds, (K,); None if unknown."""
        return None

    @cached_property
    def _negative_best(self) -> Floats:
        """(S,) minus the smallest gap so far: ascending, for searches."""
        return -np.minimum.accumulate(self.gap)

    @property
    def reachable(self) -> Mask:
        """(S,) whether some tolerance leads to the point: its gap is smaller than all before."""
        best = self._negative_best
        return np.concatenate(([True], best[1:] > best[:-1]))

    def find(self, tolerances: Floats) -> tuple[Indices, Mask]:  # eq:t, eq:t_approx
        """Return the first point within each tolerance, and whether there is one.

        If there is none, the point with the smallest gap is returned.
        """
        best = self._negative_best
        points = best.searchsorted(-tolerances, side="left")
        feasible = points < len(best)
        if not feasible.all():
            points = np.where(feasible, points, best.searchsorted(best[-1], side="left"))
        return points, feasible

    @cached_property
    def _certifiable(self) -> tuple[Indices, Floats]:
        """The certifiable points, then the last one; and minus the smallest gap so far."""
        points = np.flatnonzero(self.certifiable)
        return np.append(points, len(self) - 1), -np.minimum.accumulate(self.gap[points])

    def find_certifiable(self, tolerances: Floats) -> tuple[Indices, Mask]:
        """Return the first certifiable point within each tolerance, and whether there is one."""
        points, best = self._certifiable
        found = best.searchsorted(-tolerances, side="left")
        return points[found], found < len(best)


class PointTable(OperatingPoints):
    """Points with their thresholds and counts stored.

    A lottery mixes several thresholds per group: ``mixture`` holds thresholds and probabilities,
    both (S, K, M).
    """

    def __init__(
        self,
        setting: Floats,
        gap: Floats,
        certifiable: Mask,
        thresholds: Floats,
        selected: Counts,
        mixture: tuple[Floats, Floats] | None = None,
    ) -> None:
        self.gap = gap
        self._setting, self._certified = setting, certifiable
        self._thresholds, self._selected = thresholds, selected
        self.mixture = mixture
        self.indices: Indices | None = None  # among the points that they were taken from

    @property
    def setting(self) -> Floats:
        """(S,) t for two groups, the price T for more."""
        return self._setting

    @property
    def certifiable(self) -> Mask:
        """(S,) the points that can be certified for a declared tolerance."""
        return self._certified

    def read(self, points: Indices) -> tuple[Floats, Counts]:
        """Return the thresholds, (s, K), and the rows that they select, (s, C, K)."""
        return self._thresholds[points], self._selected[points]

    def overwrite(self, places: Indices, others: PointTable) -> PointTable:
        """Return the table with other points at some places; their setting stays."""
        gap, thresholds, selected = self.gap.copy(), self._thresholds.copy(), self._selected.copy()
        certifiable = self._certified.copy()
        gap[places], certifiable[places] = others.gap, False
        thresholds[places], selected[places] = others._thresholds, others._selected
        table = PointTable(self._setting, gap, certifiable, thresholds, selected)
        table.indices = self.indices
        return table

    def tabulate(self, points: Indices) -> PointTable:
        """Return some of the points."""
        table = super().tabulate(points)
        if self.mixture is not None:
            table.mixture = self.mixture[0][points], self.mixture[1][points]
        return table


class ModelFamily(OperatingPoints):
    """Models trained at several settings of a trade-off, the most accurate first.

    Equally accurate models are ordered by their gap, then as given. So the first model within a
    tolerance is the most accurate one. Without labels, the order is the given one, which should be
    least constrained first.

    Parameters
    ----------
    setting : (S,) float64
        The setting of each model.
    selected : (S, L, K) int64
        Rows that each model selects, by label (L is 1 without labels) and group.
    counts : (L, K) int64
        All rows by label and group.
    criterion : Criterion
        The criterion.
    declared : (S,) bool
        The settings that were fixed before looking at the rows; only these can be certified.
    n_declared : int, optional
        How many settings were declared before some were left out: leaving them out after looking
        doesn't make the choice smaller.
    """

    n_declared: int

    def __init__(
        self,
        setting: Floats,
        selected: Counts,
        counts: Counts,
        criterion: Criterion,
        declared: Mask,
        n_declared: int | None = None,
    ) -> None:
        gap = criterion.gap_of(selected, counts)
        order = np.arange(len(gap))
        if len(counts) == 2:
            order = np.lexsort((gap, -accuracy_of_counts(selected, counts)))  # stable
        self.gap = gap[order]
        self._setting, self._declared = setting[order], declared[order]
        self._selected = selected[order]
        self._counts, self._criterion = counts, criterion
        self.n_declared = int(declared.sum()) if n_declared is None else n_declared

    @property
    def setting(self) -> Floats:
        """(S,) the setting of each model."""
        return self._setting

    @property
    def certifiable(self) -> Mask:
        """(S,) the settings that were fixed before looking at the rows."""
        return self._declared

    def read(self, points: Indices) -> tuple[Floats, Counts]:
        """Return the thresholds on each model's margins, which are 0, and the selected rows."""
        selected = self._selected[points]
        return np.zeros((len(selected), selected.shape[2])), selected

    def take(self, points: Indices) -> ModelFamily:
        """Return some of the models; the number of declared settings stays the same."""
        return ModelFamily(
            self._setting[points],
            self._selected[points],
            self._counts,
            self._criterion,
            self._declared[points],
            self.n_declared,
        )
