"""One position of the dial (:class:`Point`), and many of them in columns (:class:`Points`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.criteria import Criterion
from fairdial.ladders import Counts, Floats, Indices


@dataclass(frozen=True, eq=False, repr=False)
class Point:
    """One position of the dial, with its figures on the calibration rows.

    Attributes
    ----------
    tolerance : float
        The gap that was asked for.
    setting : float
        The multiplier t of the paper for two groups; for more, the price of a unit of tolerance.
        Of a measured family, the setting whose model decides.
    accuracy : float or None
        Share of right decisions; None where labels are unknown.
    gap : float
        Highest minus lowest rate over the groups.
    feasible : bool
        Whether the gap is within the tolerance; if no state is, the smallest gap was taken.
    thresholds : (K,) float64
        A row is selected where its logit is strictly above its group's threshold. Of a measured
        family all are 0, and the logit is the margin at this setting.
    selected, rows : (L, K) int64
        Rows selected, and all rows, by label (L is 1 without labels) and group.
    groups : tuple
        Names of the groups.
    criterion : Criterion
        Which rate is meant.
    confidence : float or None
        Confidence of ``certified_gap``.
    certified_gap : float or None
        What the gap on new rows stays within, with that confidence.
    measured : bool
        Whether the setting is one of a measured family.

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
    accuracy: float | None
    gap: float
    feasible: bool
    thresholds: Floats
    selected: Counts
    rows: Counts
    groups: tuple[Hashable, ...]
    criterion: Criterion
    confidence: float | None = None
    certified_gap: float | None = None
    measured: bool = False

    @property
    def selection_rate(self) -> Floats:
        """(K,) share of each group's rows that are selected."""
        return np.asarray(self.selected.sum(axis=0) / self.rows.sum(axis=0), np.float64)

    @property
    def true_positive_rate(self) -> Floats | None:
        """(K,) share of each group's positive rows that are selected."""
        return self._rate_of(1)

    @property
    def false_positive_rate(self) -> Floats | None:
        """(K,) share of each group's negative rows that are selected."""
        return self._rate_of(0)

    def _rate_of(self, label: int) -> Floats | None:
        if len(self.rows) == 1:
            return None
        with np.errstate(invalid="ignore"):
            return np.asarray(self.selected[label] / self.rows[label], np.float64)

    @property
    def rates(self) -> Floats:
        """(K,) rates of the criterion."""
        return np.asarray(getattr(self, self.criterion.rates[0].name), np.float64)

    @property
    def disparity(self) -> float | None:
        """Second group's rate minus the first's, signed; None unless there are two groups."""
        return float(self.criterion.disparity(self.rates)) if len(self.groups) == 2 else None

    @property
    def worst(self) -> tuple[Hashable, Hashable]:
        """The groups with the lowest and the highest rate."""
        rates = self.rates
        return self.groups[int(np.argmin(rates))], self.groups[int(np.argmax(rates))]

    def to_frame(self) -> pd.DataFrame:
        """One line a group: rows, threshold (unless measured), rates, accuracy."""
        columns: dict[str, Any] = {"rows": self.rows.sum(axis=0)}
        if not self.measured:
            columns["threshold"] = self.thresholds
        columns["selection_rate"] = self.selection_rate
        if len(self.rows) == 2:
            columns["true_positive_rate"] = self.true_positive_rate
            columns["false_positive_rate"] = self.false_positive_rate
            right = self.selected[1] + self.rows[0] - self.selected[0]
            columns["accuracy"] = right / self.rows.sum(axis=0)
        return pd.DataFrame(columns, index=pd.Index(list(self.groups), name="group"))

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
        if not self.measured:
            text += f", thresholds={{{thresholds}}}"
        if self.certified_gap is not None:
            text += f", certified_gap={self.certified_gap:.4f}, confidence={self.confidence:g}"
        return text + ")"

    def __str__(self) -> str:
        lowest, highest = self.worst
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        text = (
            f"{self.criterion.name}: gap {self.gap:.4f} on the calibration rows "
            f"(tolerance {self.tolerance:g}{accuracy}); lowest rate {lowest}, highest {highest}. "
        )
        if self.measured:
            text += f"Decided by setting {self.setting:g}. "
        if not self.feasible:
            kind = "setting" if self.measured else "state"
            text += f"No {kind} reaches the tolerance: this is the smallest gap of the dial. "
        if self.certified_gap is not None:
            return text + (
                f"With confidence {self.confidence:g} the gap on new rows is at most "
                f"{self.certified_gap:.4f}, if the tolerance was decided on before looking at the "
                "figures, or asked with simultaneous=True."
            )
        if self.measured:
            return text + (
                "The setting was chosen on these rows, so on new ones the gap may well be above "
                "the tolerance: ask with confidence= for a bound."
            )
        if not self.feasible or not self.thresholds.any():  # it isn't the dial that holds it there
            return text + "On new rows it may well be larger: ask with confidence= for a bound."
        more = "" if len(self.groups) <= 2 else ", and more often the more groups there are"
        return text + (
            f"On new rows it will be above the tolerance about as often as below{more}: "
            "ask with confidence= for a bound."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Points(Sequence[Point]):
    """Positions of the dial for several tolerances: columns, and a sequence of :class:`Point`.

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
    accuracy: Floats | None
    gap: Floats
    feasible: NDArray[np.bool_]
    thresholds: Floats  # (m, K)
    selected: Counts  # (m, L, K)
    rows: Counts  # (L, K)
    groups: tuple[Hashable, ...]
    criterion: Criterion
    states: Indices
    confidence: float | None = None
    certified_gap: Floats | None = None
    measured: bool = False

    def __len__(self) -> int:
        return len(self.tolerance)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        return Point(
            tolerance=float(self.tolerance[i]),
            setting=float(self.setting[i]),
            accuracy=None if self.accuracy is None else float(self.accuracy[i]),
            gap=float(self.gap[i]),
            feasible=bool(self.feasible[i]),
            thresholds=self.thresholds[i],
            selected=self.selected[i],
            rows=self.rows,
            groups=self.groups,
            criterion=self.criterion,
            confidence=self.confidence,
            certified_gap=None if self.certified_gap is None else float(self.certified_gap[i]),
            measured=self.measured,
        )

    def __iter__(self) -> Iterator[Point]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        frame = self.to_frame()
        narrow = [name for name in frame.columns if "_rate[" not in name]  # rates: to_frame()
        return str(frame[narrow].round(4).to_string(index=False))

    def to_frame(self) -> pd.DataFrame:
        """One line a tolerance; thresholds (unless measured) and rates in a column a group."""
        columns: dict[str, Any] = {"tolerance": self.tolerance, "setting": self.setting}
        if self.accuracy is not None:
            columns["accuracy"] = self.accuracy
        columns["gap"] = self.gap
        if self.certified_gap is not None:
            columns["certified_gap"] = self.certified_gap
        columns["feasible"] = self.feasible
        if not self.measured:
            for a, group in enumerate(self.groups):
                columns[f"threshold[{group}]"] = self.thresholds[:, a]
        totals = self.rows.sum(axis=0)
        for a, group in enumerate(self.groups):
            columns[f"selection_rate[{group}]"] = self.selected[:, :, a].sum(axis=1) / totals[a]
        if len(self.rows) == 2:
            with np.errstate(invalid="ignore"):
                for label, name in ((1, "true_positive_rate"), (0, "false_positive_rate")):
                    for a, group in enumerate(self.groups):
                        share = self.selected[:, label, a] / np.float64(self.rows[label, a])
                        columns[f"{name}[{group}]"] = share
        return pd.DataFrame(columns)
