"""Demands: limits on one rate in all groups at a tolerance.

A :class:`Demand` limits the difference of a rate between groups, their ratio, a minimum or a
maximum. A criterion is a set of demands (``criteria.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from fairdial._arrays import Counts, Floats
from fairdial._validation import did_you_mean
from fairdial.core.groupings import Grouping
from fairdial.core.rates import RATES, Rate
from fairdial.errors import InvalidInputError

Spread = Literal["difference", "ratio", "minimum", "maximum"]
SPREADS: tuple[Spread, ...] = ("difference", "ratio", "minimum", "maximum")
Condition = str | Callable[[Any], Any]
EXACT = 2.0**53  # integers below it are exact in float64
RATIO = "_ratio"


def exact(number: float | int | str | Fraction) -> Fraction:
    """Return the decimal number that a float is written as: 0.1 is exactly 1/10.

    Examples
    --------
    >>> from fairdial.core.demands import exact
    >>> exact(0.05)
    Fraction(1, 20)
    """
    return Fraction(repr(float(number)) if isinstance(number, (float, np.floating)) else number)


def reach(tolerance: float) -> Fraction:
    """Return the largest gap that is within a tolerance: what isn't rounded to more than it.

    So the reported gap of a point is a tolerance that the point is within.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from fairdial.core.demands import reach
    >>> Fraction(1, 3) <= reach(1 / 3), Fraction(3, 10) <= reach(0.3)
    (True, True)
    """
    if not tolerance:
        return Fraction(0)
    return Fraction(tolerance) + Fraction(float(np.spacing(tolerance))) / 2


@dataclass(frozen=True)
class Demand:
    """A limit on one rate in all groups, at a tolerance ``d``.

    Attributes
    ----------
    rate : Rate
        The rate.
    spread : {"difference", "ratio", "minimum", "maximum"}
        What is limited: highest minus lowest rate (at most ``scale * d``); one minus lowest divided
        by highest rate (likewise, so 0.2 is the four-fifths rule); the lowest rate (at least
        ``level - scale * d``); or the highest rate (at most ``level + scale * d``).
    scale : Fraction
        How far the tolerance moves the limit; 0 if the demand always holds in full.
    level : float
        The minimum or maximum.
    where : str or callable, optional
        Condition on the rows: the name of a column of ``control_features``, or a function of them
        that returns a boolean for each row. A column that isn't boolean makes one demand for each
        of its values.
    strata : tuple of int, optional
        Strata whose rows are eligible, once the condition has been applied to rows.
    within : str
        Name of these rows.
    grouping : Grouping, optional
        With several sensitive columns, the column whose groups are compared in place of the
        intersections of all columns.

    Examples
    --------
    >>> from fairdial import minimum
    >>> minimum("true_positive_rate", 0.8).name
    'true_positive_rate>=0.8'
    """

    rate: Rate
    spread: Spread = "difference"
    scale: Fraction = Fraction(1)
    level: float = 0.0
    where: Condition | None = None
    strata: tuple[int, ...] | None = None
    within: str = ""
    grouping: Grouping | None = None

    def __post_init__(self) -> None:
        if self.spread not in SPREADS:
            raise InvalidInputError(
                "spread", f"be one of {', '.join(SPREADS)}", given=repr(self.spread)
            )
        if not 0 <= self.level <= 1:
            raise InvalidInputError("level", "be a rate in [0, 1]", given=self.level)
        scale = exact(self.scale)
        if scale < 0:
            raise InvalidInputError("scale", "not be negative", given=float(scale))
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "level", float(self.level))

    @property
    def name(self) -> str:
        """Name of what is limited, such as ``selection_rate`` or ``true_positive_rate>=0.8``."""
        sign = {"difference": "", "ratio": RATIO}.get(self.spread)
        if sign is None:
            sign = f"{'>=' if self.spread == 'minimum' else '<='}{self.level!r}"
        where = f" in {self.within}" if self.within else ""
        by = f" by {self.grouping.column}" if self.grouping else ""
        return f"{self.rate.name}{sign}{where}{by}"

    @property
    def is_certifiable(self) -> bool:
        """Whether it limits the difference of a rate over rows that don't depend on decisions."""
        return self.spread == "difference" and self.rate.direction != 0 and self.scale > 0

    def bound(self, tolerance: Fraction) -> Fraction:
        """Return the limit at a tolerance: of the difference, min / max, min, or max."""
        room, level = self.scale * tolerance, exact(self.level)
        bounds = {
            "difference": room,
            "ratio": 1 - room,
            "minimum": level - room,
            "maximum": level + room,
        }
        return bounds[self.spread]

    def parts(self, selected: Counts, counts: Counts) -> tuple[Counts, Counts]:
        """Return numerator and denominator of the rates, from rows (..., S, L, K).

        They are (..., K), or (..., G) for the G groups of a grouping.
        """
        chosen = slice(None) if self.strata is None else list(self.strata)
        summed = (array[..., chosen, :, :].sum(axis=-3) for array in (selected, counts))
        parts = self.rate.parts(*summed)
        if self.grouping is None:
            return parts
        return self.grouping.pool(parts[0]), self.grouping.pool(parts[1])

    def names(self, groups: Sequence[Hashable]) -> Sequence[Hashable]:
        """Return the names of the groups that are compared, given those of all groups."""
        return groups if self.grouping is None else self.grouping.names

    def gap_of(self, selected: Counts, counts: Counts) -> Floats:
        """Return how much is demanded of the tolerance, (...), from rows (..., S, L, K).

        Groups without eligible rows aren't compared. Where counts are integers, the gap is the
        exact quotient, rounded once: it is at most a tolerance if and only if the demand holds.
        """
        gap = _gap(self, *self.parts(selected, counts))
        return gap if self.scale else np.where(gap > 0, np.inf, 0.0)


def _gap(demand: Demand, numerator: Counts, denominator: Counts) -> Floats:
    """Return the gap divided by the scale if there is one, (...), from parts (..., K)."""
    scale = demand.scale or Fraction(1)
    with np.errstate(over="ignore"):
        largest = np.square(np.float64(denominator.max(initial=0)))
        size = largest * max(scale.numerator, scale.denominator)
    denominator = np.broadcast_to(denominator, numerator.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = numerator / denominator
    known = denominator > 0
    low = np.where(known, rates, np.inf).argmin(axis=-1, keepdims=True)
    high = np.where(known, rates, -np.inf).argmax(axis=-1, keepdims=True)
    lowest, highest = (np.take_along_axis(rates, k, -1)[..., 0] for k in (low, high))
    if demand.spread == "minimum":
        gap = (demand.level - lowest) / float(scale)
    elif demand.spread == "maximum":
        gap = (highest - demand.level) / float(scale)
    elif numerator.dtype.kind == "f" or size >= EXACT:
        with np.errstate(invalid="ignore", divide="ignore"):
            gap = highest - lowest if demand.spread == "difference" else 1.0 - lowest / highest
        gap = gap / float(scale)
    else:
        parts = [
            np.take_along_axis(array, k, -1)[..., 0]
            for k in (high, low)
            for array in (numerator, denominator)
        ]
        over = parts[0] * parts[3]  # highest rate, times both denominators
        under = parts[1] * parts[3] if demand.spread == "difference" else over
        with np.errstate(invalid="ignore", divide="ignore"):
            gap = (over - parts[2] * parts[1]) * scale.denominator / (under * scale.numerator)
    return np.where(known.any(axis=-1) & (gap > 0), gap, 0.0)  # nothing selected: ratio 1


def minimum(rate: str | Rate, level: float, *, where: Condition | None = None) -> Demand:
    """Demand that a rate is at least ``level`` in every group, at every tolerance.

    Examples
    --------
    >>> from fairdial import criterion, minimum
    >>> criterion(["equalized_odds", minimum("true_positive_rate", 0.7)]).name
    'equalized_odds+true_positive_rate>=0.7'
    """
    return Demand(find_rate(rate), "minimum", Fraction(0), level, where)


def maximum(rate: str | Rate, level: float, *, where: Condition | None = None) -> Demand:
    """Demand that a rate is at most ``level`` in every group, at every tolerance.

    Examples
    --------
    >>> from fairdial import maximum
    >>> maximum("false_positive_rate", 0.1).name
    'false_positive_rate<=0.1'
    """
    return Demand(find_rate(rate), "maximum", Fraction(0), level, where)


def find_rate(name: str | Rate) -> Rate:
    """Return the rate with this name; a Rate is returned unchanged."""
    if isinstance(name, Rate):
        return name
    for rate in RATES:
        if rate.name == name:
            return rate
    names = [rate.name for rate in RATES]
    raise InvalidInputError(
        "rate", f"be one of {', '.join(names)}", given=repr(name), hint=did_you_mean(name, names)
    )
