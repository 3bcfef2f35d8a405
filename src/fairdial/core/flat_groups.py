"""All groups' scores in flat arrays, so that many groups are read at once.

With a hundred groups, a hundred small reads would take most of the time of one answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Counts, Floats, Indices
from fairdial.core.group_scores import GroupScores


def starts_of(parts: Sequence[NDArray[np.generic]]) -> Indices:
    """Return where each part begins once they are joined."""
    sizes = [part.shape[-1] for part in parts]
    return np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.intp)


class FlatGroups:
    """The groups' scores one after the other, at each rank.

    A group and a rank are one *place*: ``starts[group] + rank``.

    Attributes
    ----------
    starts : (K,) intp
        Where each group begins.
    above, below : (N,) float64
        Smallest selected score, and largest score that isn't selected.
    selected : (C, N) int64 or float64
        Rows above the threshold, by kind.
    """

    def __init__(self, group_scores: Sequence[GroupScores]) -> None:
        highest, lowest = np.array([np.inf]), np.array([-np.inf])
        above = [part for scores in group_scores for part in (highest, scores.lower)]
        below = [part for scores in group_scores for part in (scores.upper, lowest)]
        selected = [scores.selected for scores in group_scores]
        self.starts = starts_of(selected)
        self.above: Floats = np.concatenate(above)
        self.below: Floats = np.concatenate(below)
        self.selected: Counts = np.concatenate(selected, axis=1)

    def place(self, thresholds: Floats, first: Indices, last: Indices) -> Indices:
        """Return the place of each threshold, clipped to the places from ``first`` to ``last``."""
        low, high = first, last
        while (low < high).any():
            middle = (low + high) >> 1
            # what the next place selects is above the threshold; NaN is below all scores
            over = ~(self.above.take(np.minimum(middle + 1, last)) <= thresholds) & (low < high)
            low, high = np.where(over, middle + 1, low), np.where(over, high, middle)
        return low
