"""One operating point (:class:`Point`), and several of them in columns (:class:`Points`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from fairdial._arrays import Codes, Counts, Floats, Indices, Mask
from fairdial.core.criteria import Criterion
from fairdial.core.decide import (
    accuracy_of_counts,
    by_label,
    class_accuracy,
    decided_counts,
    group_accuracy,
    rows_by_class,
)
from fairdial.core.operating_points import OperatingPoints
from fairdial.core.price_points import PricePoints
from fairdial.core.prices import Gains
from fairdial.core.problem import Problem
from fairdial.core.promise import Promise
from fairdial.errors import renamed

if TYPE_CHECKING:
    import pandas as pd


class Mixture(NamedTuple):
    """The thresholds that a lottery mixes, and their probabilities, both (K, M)."""

    thresholds: Floats
    probabilities: Floats


def number_of_rows(cells: Counts) -> str:
    """Return the number of rows, or the sum of their weights, as text."""
    total = float(cells.sum())
    return f"{total:,.0f}" if total.is_integer() else f"{total:,.1f}"


@dataclass(frozen=True, eq=False, repr=False)
class Point:
    """An operating point: thresholds, and what they do on the calibration rows.

    Attributes
    ----------
    tolerance : float
        The requested tolerance.
    setting : float
        The multiplier t of the paper for two groups; for more, the price of a unit of tolerance.
        In a model family, the setting of the model that decides.
    gap : float
        The smallest tolerance that allows these decisions: the largest gap among the criterion's
        demands. With one rate, highest minus lowest rate over the groups.
    feasible : bool
        Whether the gap is within the tolerance; if not, it is the smallest gap of the dial.
    thresholds : (K,) float64
        A row is selected if its logit is strictly above its group's threshold. In a model family
        and in a blind dial all are 0, and apply to margins.
    prices : (J, K) float64 or None
        In a blind dial, what rows pay for each demand in each group; ``gains`` are the utilities
        of selecting positive and negative rows (``fairdial.core.prices.margins``).
    selected_cells, cells : (C, K)
        Selected rows, and all rows, by kind (stratum and label) and group. They are integers unless
        rows have weights that aren't whole numbers, or a lottery decides.
    groups : tuple
        Names of the groups.
    problem : Problem
        Criterion, objective and budget.
    source : OperatingPoints
        Where the point comes from.
    lottery : Mixture or None
        With ``randomize="hash"``, the thresholds of each group and their probabilities;
        ``thresholds`` are then the most probable ones, and counts are expected counts.
    confidence : float or None
        Confidence of ``certified_gap``.
    certified_gap : float or None
        Upper bound on the gap on new rows, at that confidence.
    simultaneous : bool
        Whether the bound also holds for a tolerance chosen after looking at the results.
    theorem : int or None
        The theorem of ``docs/confidence.md`` that the bound follows from.
    is_family : bool
        Whether the point is a model of a family rather than thresholds of one score.
    weighted : bool
        Whether the rows have weights; counts are then sums of weights.
    classes : tuple or None
        With more than two classes, their names. Rates then have a line for each class, (C, K), and
        kinds are class and label, which says whether a row belongs to the class.

    Examples
    --------
    >>> from fairdial import sweep
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(2_000, random_state=0)
    >>> point = sweep(rows.logits, rows.groups, rows.y).at(0.05)
    >>> point.gap <= 0.05, point.feasible, point.worst
    (True, True, ('group 0', 'group 1'))
    """

    tolerance: float
    setting: float
    gap: float
    feasible: bool
    thresholds: Floats
    selected_cells: Counts
    cells: Counts
    groups: tuple[Hashable, ...]
    problem: Problem
    source: OperatingPoints
    lottery: Mixture | None = None
    confidence: float | None = None
    certified_gap: float | None = None
    simultaneous: bool = False
    theorem: int | None = None
    is_family: bool = False
    weighted: bool = False
    prices: Floats | None = None
    gains: Gains | None = None
    classes: tuple[Hashable, ...] | None = None

    rows = renamed("rows", "counts")
    measured = renamed("measured", "is_family")

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return len(self.cells) == 2 * self.criterion.n_strata

    @property
    def has_thresholds(self) -> bool:
        """Whether group thresholds of a score decide, rather than a model or prices."""
        return not self.is_family and self.prices is None

    @property
    def criterion(self) -> Criterion:
        """The criterion."""
        return self.problem.criterion

    @cached_property
    def selected(self) -> Counts:
        """(L, K) selected rows by label (L is 1 without labels) and group.

        With more than two classes, (C, K) rows by decided class and group.
        """
        if self.classes is not None:
            return decided_counts(self.selected_cells, len(self.classes))
        return by_label(self.selected_cells, len(self.cells) // self.criterion.n_strata)

    @cached_property
    def counts(self) -> Counts:
        """(L, K) all rows by label and group; L is the number of classes, or 1 without labels."""
        if self.classes is not None:
            return rows_by_class(self.cells, len(self.classes))
        return by_label(self.cells, len(self.cells) // self.criterion.n_strata)

    @property
    def n_rows(self) -> str:
        """Number of calibration rows, or the sum of their weights, as text."""
        number = number_of_rows(self.counts)
        return (
            f"calibration rows with a total weight of {number}"
            if self.weighted
            else (f"{number} calibration rows")
        )

    @property
    def accuracy(self) -> float | None:
        """Share of correct decisions; None without labels."""
        if not self.has_labels:
            return None
        if self.classes is not None:
            return float(class_accuracy(self.selected_cells, self.counts))
        return float(accuracy_of_counts(self.selected, self.counts))

    @property
    def value(self) -> float | None:
        """The objective on the labels of the calibration rows; None without labels."""
        if self.problem.objective.name == "utility":
            return self.expected_value
        if not self.has_labels or self.classes is not None:
            return self.accuracy
        return float(self.problem.objective.value_of(self.selected, self.counts))

    @property
    def expected_value(self) -> float | None:
        """The objective that the scores predict, which the thresholds maximize; None if unknown.

        With ``value="labels"`` it is counted on labels.
        """
        if self.prices is not None:
            assert isinstance(self.source, PricePoints)
            return self.source.value_of(self.prices)
        return None if self.lottery else self.source.expected_value(self.thresholds)

    @cached_property
    def bound(self) -> float | None:
        """The best ``expected_value`` of any mixture of thresholds within the tolerance.

        The difference is the price of deciding without a lottery. None if it is unknown: for model
        families, thinned frontiers, F1, and rates over selected rows.
        """
        return self.source.bound(self.tolerance)

    @property
    def promise(self) -> Promise:
        """Whether the gap is counted on known groups or estimated, and on how many rows."""
        n_rows = float(self.counts.sum())
        if self.prices is None or not isinstance(self.source, PricePoints):
            return Promise("counted", n_rows, 0.0, None)
        return self.source.promise(self.prices, n_rows)

    @property
    def gaps(self) -> dict[str, float]:
        """The unscaled gap of each demand; what is missing to a minimum or maximum."""
        split = self.criterion.split(self.selected_cells), self.criterion.split(self.cells)
        return {
            demand.name: float(replace(demand, scale=Fraction(1)).gap_of(*split))
            for demand in self.criterion.demands
        }

    @property
    def selection_rate(self) -> Floats:
        """(K,) share of each group's rows that are selected; of each class (C, K)."""
        selected = self.selected if self.classes is not None else self.selected.sum(axis=0)
        return np.asarray(selected / self.counts.sum(axis=0), np.float64)

    @property
    def true_positive_rate(self) -> Floats | None:
        """(K,) share of each group's positive rows that are selected."""
        return self._rate_of(1)

    @property
    def false_positive_rate(self) -> Floats | None:
        """(K,) share of each group's negative rows that are selected."""
        return self._rate_of(0)

    def _rate_of(self, label: int) -> Floats | None:
        if not self.has_labels:
            return None
        selected, counts = self.selected, self.counts
        if self.classes is not None:  # of each class
            selected, counts = (cells[label::2] for cells in (self.selected_cells, self.cells))
        else:
            selected, counts = selected[label], counts[label]
        with np.errstate(invalid="ignore"):
            return np.asarray(selected / counts, np.float64)

    @property
    def rates(self) -> Floats:
        """(K,) rates of the criterion; (J, K) if it has several demands."""
        return self.criterion.rates_of(self.selected_cells, self.cells)

    @property
    def disparity(self) -> float | None:
        """Second group's rate minus the first's, signed; None unless it is one rate of two."""
        if len(self.groups) != 2 or len(self.criterion.demands) != 1:
            return None
        return float(self.criterion.disparity(self.rates))

    @property
    def worst(self) -> tuple[Hashable, Hashable]:
        """The groups with the lowest and the highest rate, of the demand with the largest gap."""
        gaps = self.criterion.gaps_of(self.selected_cells, self.cells)
        demand = self.criterion.demands[int(np.argmax(gaps))]
        groups = demand.names(self.groups)
        rates = self.rates.reshape(len(gaps), -1)[int(np.argmax(gaps))][: len(groups)]
        rates = np.where(np.isnan(rates), np.nanmean(rates) if (rates == rates).any() else 0, rates)
        return groups[int(np.argmin(rates))], groups[int(np.argmax(rates))]

    def thresholds_of(self, codes: Codes, draws: Floats | None = None) -> Floats:
        """Return the threshold of each row, (n,), from its group code and its draw in [0, 1).

        Only a lottery needs draws (:func:`fairdial.core.lottery.hash_uniform`).
        """
        if self.lottery is None or draws is None:
            return np.asarray(self.thresholds[codes])
        ends = np.cumsum(self.lottery.probabilities, axis=1)[:, :-1]  # (K, M - 1)
        drawn = (draws[:, None] >= ends[codes]).sum(axis=1)
        return np.asarray(self.lottery.thresholds[codes, drawn])

    def to_frame(self) -> pd.DataFrame:
        """Return one line per group: rows, threshold (unless a family), rates, accuracy.

        With more than two classes there is one line per class and group. If groups of single
        columns are compared, they follow, as "sex: female".
        """
        import pandas as pd

        if self.classes is not None:
            return self._class_frame()
        thresholds = self.thresholds if self.has_thresholds else None
        frames = [_group_lines(self.selected, self.counts, list(self.groups), thresholds)]
        for grouping in self.criterion.groupings:
            pooled = grouping.pool(self.selected), grouping.pool(self.counts)
            names = [f"{grouping.column}: {name}" for name in grouping.names]
            missing = None if thresholds is None else np.full(len(names), np.nan)
            frames.append(_group_lines(*pooled, names, missing))
        return frames[0] if len(frames) == 1 else pd.concat(frames)

    def _class_frame(self) -> pd.DataFrame:
        """Return one line per class and group: rows of the class, decisions for it, and rates."""
        import pandas as pd

        assert self.classes is not None
        names = [list(self.classes), list(self.groups)]
        index = pd.MultiIndex.from_product(names, names=["class", "group"])
        columns = {"rows": self.counts} if self.has_labels else {}
        columns |= {"decided": self.selected, "selection_rate": self.selection_rate}
        if self.has_labels:
            columns["true_positive_rate"] = self.true_positive_rate  # type: ignore[assignment]
            columns["false_positive_rate"] = self.false_positive_rate  # type: ignore[assignment]
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index)

    def __repr__(self) -> str:
        accuracy = "None" if self.accuracy is None else f"{self.accuracy:.4f}"
        thresholds = ", ".join(
            f"{group!r}: {value:.4f}"
            for group, value in zip(self.groups, self.thresholds, strict=True)
        )
        text = (
            f"Point(tolerance={self.tolerance:g}, setting={self.setting:.6g}, "
            f"accuracy={accuracy}, gap={self.gap:.4f}, feasible={self.feasible}"
        )
        if self.has_thresholds:
            text += f", thresholds={{{thresholds}}}"
        if self.certified_gap is not None:
            text += f", certified_gap={self.certified_gap:.4f}, confidence={self.confidence:g}"
        return text + ")"

    def __str__(self) -> str:
        """Describe the point; arguments are in backticks (:func:`fairdial.errors.render`)."""
        lowest, highest = self.worst
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        parts = [
            f"Tolerance {self.tolerance:g}: {self.criterion.name.replace('_', ' ')} gap "
            f"{self.gap:.4f} on {self.n_rows}{accuracy}; lowest rate "
            f"{lowest}, highest {highest}."
        ]
        if self.is_family:
            parts.append(f"The model with setting {self.setting:g} decides.")
        if not self.feasible:
            parts.append("The tolerance is out of reach; this is the smallest gap of the dial.")
        if self.promise.estimate is not None and self.promise.gap == "counted":
            parts.append(
                f"The group of {self.promise.unknown:,.0f} more rows is unknown; on all rows "
                f"together the gap is estimated to be {self.promise.estimate:.4f}."
            )
        parts.append(self._new_rows())
        return " ".join(parts)

    def _new_rows(self) -> str:
        """Return what is known about the gap on new rows."""
        if self.promise.gap == "estimated":
            return "No group is known, so the gap is an estimate from probabilities of the groups."
        if self.certified_gap is not None:
            when = "if the tolerance was chosen before looking at the results"
            when += "." if self.prices is not None else "; otherwise use `simultaneous=True`."
            if self.simultaneous:
                when = "even if the tolerance was chosen after looking at the results."
            return (
                f"With confidence {self.confidence:g} the gap on new rows is at most "
                f"{self.certified_gap:.4f} (theorem {self.theorem}), {when}"
            )
        if self.lottery is not None:
            return "A lottery decides, so the tolerance holds in expectation."
        if self.is_family or not self.feasible or not self.thresholds.any():
            risk = "On new rows the gap may be larger"
        else:  # the dial moved the gap just below the tolerance
            risk = "On new rows the gap exceeds the tolerance about half the time"
            risk += ", and more often with more groups" if len(self.groups) > 2 else ""
        demands = self.criterion.demands
        simple = not self.is_family or all(demand.is_certifiable for demand in demands)
        certifiable = simple and not self.weighted
        return f"{risk}; `confidence` gives a bound." if certifiable else f"{risk}."


@dataclass(frozen=True, eq=False, repr=False)
class Points(Sequence[Point]):
    """Operating points for several tolerances: columns, and a sequence of :class:`Point`.

    Examples
    --------
    >>> from fairdial import sweep
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(2_000, random_state=0)
    >>> points = sweep(rows.logits, rows.groups, rows.y).at([0.02, 0.10])
    >>> len(points), points.thresholds.shape, points[1].tolerance
    (2, (2, 2), 0.1)
    """

    tolerance: Floats
    setting: Floats
    gap: Floats
    feasible: Mask
    thresholds: Floats  # (m, K)
    selected_cells: Counts  # (m, C, K)
    cells: Counts  # (C, K)
    groups: tuple[Hashable, ...]
    problem: Problem
    source: OperatingPoints
    indices: Indices | None = None  # among the points of the frontier
    mixture: tuple[Floats, Floats] | None = None  # of lotteries, (m, K, M)
    confidence: float | None = None
    certified_gap: Floats | None = None
    simultaneous: bool = False
    theorem: int | None = None
    is_family: bool = False
    weighted: bool = False
    prices: Floats | None = None  # of a blind dial, (m, J, K)
    gains: Gains | None = None
    classes: tuple[Hashable, ...] | None = None

    rows = renamed("rows", "counts")
    measured = renamed("measured", "is_family")

    def __len__(self) -> int:
        return len(self.tolerance)

    @property
    def criterion(self) -> Criterion:
        """The criterion."""
        return self.problem.criterion

    @cached_property
    def selected(self) -> Counts:
        """(m, L, K) selected rows by label (L is 1 without labels) and group.

        With more than two classes, (m, C, K) rows by decided class and group.
        """
        if self.classes is not None:
            return decided_counts(self.selected_cells, len(self.classes))
        return by_label(self.selected_cells, len(self.cells) // self.criterion.n_strata)

    @cached_property
    def counts(self) -> Counts:
        """(L, K) all rows by label and group; L is the number of classes, or 1 without labels."""
        if self.classes is not None:
            return rows_by_class(self.cells, len(self.classes))
        return by_label(self.cells, len(self.cells) // self.criterion.n_strata)

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return len(self.cells) == 2 * self.criterion.n_strata

    @cached_property
    def accuracy(self) -> Floats | None:
        """(m,) share of correct decisions; None without labels."""
        if not self.has_labels:
            return None
        if self.classes is not None:
            return class_accuracy(self.selected_cells, self.counts)
        return accuracy_of_counts(self.selected, self.counts)

    @cached_property
    def value(self) -> Floats | None:
        """(m,) the objective on the labels; None without labels."""
        if self.problem.objective.name == "utility":
            return np.array([point.value for point in self], np.float64)
        if not self.has_labels or self.classes is not None:
            return self.accuracy
        return self.problem.objective.value_of(self.selected, self.counts)

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...
    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        return Point(
            tolerance=float(self.tolerance[i]),
            setting=float(self.setting[i]),
            gap=float(self.gap[i]),
            feasible=bool(self.feasible[i]),
            thresholds=self.thresholds[i],
            selected_cells=self.selected_cells[i],
            cells=self.cells,
            groups=self.groups,
            problem=self.problem,
            source=self.source,
            lottery=None if self.mixture is None else Mixture(*(m[i] for m in self.mixture)),
            confidence=self.confidence,
            certified_gap=None if self.certified_gap is None else float(self.certified_gap[i]),
            simultaneous=self.simultaneous,
            theorem=self.theorem,
            is_family=self.is_family,
            weighted=self.weighted,
            prices=None if self.prices is None else self.prices[i],
            gains=self.gains,
            classes=self.classes,
        )

    def __iter__(self) -> Iterator[Point]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        frame = self.to_frame()
        narrow = [name for name in frame.columns if "_rate[" not in name]
        return str(frame[narrow].round(4).to_string(index=False))

    def to_frame(self) -> pd.DataFrame:
        """Return one line per tolerance, with thresholds (unless a family) and rates by group."""
        import pandas as pd

        columns: dict[str, Any] = {"tolerance": self.tolerance, "setting": self.setting}
        if self.accuracy is not None:
            columns["accuracy"] = self.accuracy
        if self.value is not None and self.problem.objective.name != "accuracy":
            columns[self.problem.objective.name] = self.value
        columns["gap"] = self.gap
        if self.certified_gap is not None:
            columns["certified_gap"] = self.certified_gap
        columns["feasible"] = self.feasible
        if not self.is_family and self.prices is None:
            for a, group in enumerate(self.groups):
                columns[f"threshold[{group}]"] = self.thresholds[:, a]
        totals = self.counts.sum(axis=0)
        if self.classes is not None:
            for c, name in enumerate(self.classes):
                for a, group in enumerate(self.groups):
                    columns[f"selection_rate[{name}, {group}]"] = self.selected[:, c, a] / totals[a]
            return pd.DataFrame(columns)
        for a, group in enumerate(self.groups):
            columns[f"selection_rate[{group}]"] = self.selected[:, :, a].sum(axis=1) / totals[a]
        if len(self.counts) == 2:
            with np.errstate(invalid="ignore"):
                for label, name in ((1, "true_positive_rate"), (0, "false_positive_rate")):
                    for a, group in enumerate(self.groups):
                        share = self.selected[:, label, a] / np.float64(self.counts[label, a])
                        columns[f"{name}[{group}]"] = share
        return pd.DataFrame(columns)


def _group_lines(
    selected: Counts, counts: Counts, names: Sequence[Hashable], thresholds: Floats | None
) -> pd.DataFrame:
    """Return one line per group from selected and all rows by label and group, (L, K)."""
    import pandas as pd

    totals = counts.sum(axis=0)
    columns: dict[str, Any] = {"rows": totals}
    if thresholds is not None:
        columns["threshold"] = thresholds
    columns["selection_rate"] = np.asarray(selected.sum(axis=0) / totals, np.float64)
    if len(counts) == 2:
        with np.errstate(invalid="ignore"):
            columns["true_positive_rate"] = np.asarray(selected[1] / counts[1], np.float64)
            columns["false_positive_rate"] = np.asarray(selected[0] / counts[0], np.float64)
        columns["accuracy"] = group_accuracy(selected, counts)
    return pd.DataFrame(columns, index=pd.Index(list(names), name="group"))
