"""Figures of decisions on rows that had no part in choosing them, with exact intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import Any

from fairdial._arrays import Counts
from fairdial.core.certificates import rate_interval
from fairdial.core.criteria import Criterion
from fairdial.core.demands import Demand

Json = dict[str, Any]


def measure_demands(
    criterion: Criterion, selected: Counts, cells: Counts, level: float | None
) -> tuple[list[Json], tuple[float, float] | None]:
    """Return each demand's figures, and an interval of the overall gap.

    Parameters
    ----------
    criterion : Criterion
        The criterion, with its conditions applied.
    selected, cells : (C, K)
        Selected and all rows by kind and group.
    level : float or None
        Confidence of the intervals, which hold for all demands together; None for weighted rows,
        which have none.
    """
    split = criterion.split(selected), criterion.split(cells)
    found, ends = [], []
    for demand in criterion.demands:
        over, under = (part.tolist() for part in demand.parts(*split))
        line: Json = {
            "demand": demand.name,
            "spread": demand.spread,
            "scale": float(demand.scale),
            "gap": float(replace(demand, scale=Fraction(1)).gap_of(*split)),
            "interval": None,
            "rates": [k / n if n else None for k, n in zip(over, under, strict=True)],
            "eligible": under if demand.rate.fixed else None,
        }
        if level is not None:
            each = 1.0 - (1.0 - level) / (len(criterion.demands) * len(over))
            rates = [rate_interval(k, n, each) for k, n in zip(over, under, strict=True)]
            low, high = gap_range(demand, rates)
            line["interval"] = [low, high]
            ends.append((_scaled(low, demand), _scaled(high, demand)))
        found.append(line)
    if level is None:
        return found, None
    return found, (max(low for low, _ in ends), max(high for _, high in ends))


def gap_range(demand: Demand, rates: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the smallest and the largest gap of a demand if each group's rate is in an interval.

    Examples
    --------
    >>> from fairdial.core.measured import gap_range
    >>> from fairdial.core.demands import minimum
    >>> gap_range(minimum("true_positive_rate", 0.75), [(0.5, 0.625), (0.7, 0.8)])
    (0.125, 0.25)
    """
    lows, highs = zip(*rates, strict=True)
    if demand.spread == "minimum":
        gaps = demand.level - min(highs), demand.level - min(lows)
    elif demand.spread == "maximum":
        gaps = max(lows) - demand.level, max(highs) - demand.level
    elif len(rates) < 2:
        return 0.0, 0.0
    else:
        pairs = list(permutations(rates, 2))
        if demand.spread == "difference":
            gaps = max(lows) - min(highs), max(high - low for (_, high), (low, _) in pairs)
        else:
            least = 1.0 - min(highs) / max(lows) if max(lows) else 0.0
            gaps = least, max(1.0 - low / high if high else 0.0 for (_, high), (low, _) in pairs)
    return max(0.0, gaps[0]), max(0.0, gaps[1])


def _scaled(gap: float, demand: Demand) -> float:
    """Return the tolerance that a gap needs."""
    if demand.scale:
        return gap / float(demand.scale)
    return float("inf") if gap > 0 else 0.0
