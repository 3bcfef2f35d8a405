"""Move thresholds that almost meet demands on overlapping groups until they do.

Groups have ranks (how many steps of their scores are selected), and a demand limits the differences
of a rate between unions of groups. Given the ranks of all others, a group's own rank must lie in an
interval, which is found by binary searches. :func:`repair` goes from group to group: first each
moves as little as possible into the interval that its demands leave, then to its best rank in it.
All starts move at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairdial._arrays import Counts, Floats, Indices

ROUNDS = 3  # of moving into intervals, and then of improving
ROUNDING = 1e-9  # of a count


@dataclass(frozen=True, eq=False)
class Pool:
    """A limited rate of unions of groups, which rises with the ranks.

    Attributes
    ----------
    counts : sequence of (m_a + 1,) arrays
        Numerator of each group at each rank, ascending.
    totals : (G,) array
        Denominator of each union.
    members : (K,) intp
        The union that each group is a part of.
    scale : float
        How much of the tolerance is its limit.
    """

    counts: Sequence[Counts]
    totals: Counts
    members: Indices
    scale: float

    def sums(self, ranks: Indices) -> Floats:
        """Return the numerators of the unions, (S, G), at ranks (S, K)."""
        found = np.zeros((len(ranks), len(self.totals)))
        for a, place in enumerate(self.members):
            found[:, place] += self.counts[a][ranks[:, a]]
        return found


def repair(ranks: Indices, tolerances: Floats, pools: Sequence[Pool], free: Indices) -> Indices:
    """Return ranks close to given ones, (S, K), most of which meet the demands at tolerances, (S,).

    ``free`` are the groups' best ranks without demands, and the value of a group's ranks falls on
    both sides of it. Whether a demand is met must be checked afterwards.
    """
    found = ranks.copy()
    last = np.array([len(column) - 1 for column in pools[0].counts])
    sums = [pool.sums(found) for pool in pools]
    windows = []
    for pool, numerators in zip(pools, sums, strict=True):
        rates = numerators / pool.totals
        middle = (rates.max(axis=1) + rates.min(axis=1)) / 2
        room = tolerances * pool.scale / 2
        windows.append((middle - room, middle + room))
    for turn in range(2 * ROUNDS):
        for a in range(found.shape[1]):
            lo, hi = np.zeros(len(found), np.intp), np.full(len(found), last[a])
            for pool, numerators, window in zip(pools, sums, windows, strict=True):
                place = pool.members[a]
                low, high = window
                if turn >= ROUNDS and len(pool.totals) > 1:
                    others = np.delete(numerators / pool.totals, place, axis=1)
                    room = tolerances * pool.scale
                    low, high = others.max(axis=1) - room, others.min(axis=1) + room
                column, total = pool.counts[a], pool.totals[place]
                rest = numerators[:, place] - column[found[:, a]]
                least, most = low * total - rest - ROUNDING, high * total - rest + ROUNDING
                np.maximum(lo, column.searchsorted(least, "left"), out=lo)
                np.minimum(hi, column.searchsorted(most, "right") - 1, out=hi)
            goal = found[:, a] if turn < ROUNDS else np.full(len(found), free[a])
            moved = np.where(lo <= hi, np.clip(goal, lo, hi), (lo + hi) // 2).clip(0, last[a])
            for pool, numerators in zip(pools, sums, strict=True):
                change = pool.counts[a][moved] - pool.counts[a][found[:, a]]
                numerators[:, pool.members[a]] += change
            found[:, a] = moved
    return found
