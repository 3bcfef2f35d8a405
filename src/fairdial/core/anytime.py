"""Statements about a stream of decisions that may be looked at any time (theorem 6).

*Evidence*: for each ordered pair of groups, a gambler starts with 1 and bets that the next
difference of their decisions is above the tolerance. If the gap is within the tolerance at every
time, no strategy makes money: the probability that a pair's average fortune *ever* reaches the
number of pairs divided by ``alpha`` is at most ``alpha`` for all pairs together, however often one
looks and whenever one stops. That raises the alarm.

*Confidence sequence*: intervals of the groups' rates, and of the gap, that hold at all times
together, as long as the rates don't change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any

import numpy as np
from scipy.signal import lfilter
from scipy.special import betaln, xlog1py, xlogy

from fairdial._arrays import Codes, Counts, Floats, Indices, Mask
from fairdial._validation import (
    check_count,
    check_fraction,
    check_one_tolerance,
    check_same_length,
)
from fairdial.errors import InvalidInputError

MEMORIES = (300.0, 1500.0, 6000.0)  # of gamblers, in pairs of decisions
PRIOR_VARIANCE = 0.4  # of a difference of two decisions
LARGEST_BET = 0.5  # a gambler never loses more than half of a fortune at once
BISECTIONS = 60


@dataclass
class _PairStream:
    """Two groups' decisions that haven't been compared yet, and what gamblers remember.

    Attributes
    ----------
    pending : (2, 2) int64
        Rows, and selected rows, of both groups since the last comparison.
    memory : (2, G) float64
        Weighted means of the differences and of their squares, for each memory.
    fortune : (2, G) float64
        Logarithms of fortunes; the first line bets that the first group's rate is higher.
    """

    pending: Counts = field(default_factory=lambda: np.zeros((2, 2), np.int64))
    memory: Floats = field(
        default_factory=lambda: np.array([[0.0], [PRIOR_VARIANCE]]) + np.zeros(len(MEMORIES))
    )
    fortune: Floats = field(default_factory=lambda: np.zeros((2, len(MEMORIES))))


def compare(side: Mask, selected: Mask, pending: Counts) -> tuple[Floats, Indices, Counts]:
    """Return differences of the mean decisions of two groups, when they are known, and the rest.

    A comparison ends as soon as both groups have a row that hasn't been compared: it is a run of
    rows of one group, and then one row of the other.

    Parameters
    ----------
    side, selected : (n,) bool
        Whether each row is of the second group, and whether it is selected.
    pending : (2, 2) int64
        Rows and selected rows of both groups that are still to be compared.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.anytime import compare
    >>> side = np.array([False, False, True, True, False])
    >>> selected = np.array([True, False, False, True, True])
    >>> compare(side, selected, np.zeros((2, 2), int))[:2]
    (array([0.5, 0. ]), array([2, 4]))
    """
    n = len(side)
    change = np.append(np.flatnonzero(side[1:] != side[:-1]) + 1, n)  # first row of each run
    ends, place, run = [], 0, 0
    if n and pending[0].any():
        waiting = bool(pending[0, 1])  # rows of this side are waiting
        first = 0 if bool(side[0]) != waiting else int(change[0])
        if first < n:
            ends.append(first)
        place = first + 1
    while place < n:
        run += int(np.searchsorted(change[run:], place, side="right"))
        end = int(change[run]) if run < len(change) else n
        if end >= n:
            break
        ends.append(end)
        place = end + 1
    last = np.array(ends, np.intp)
    rows = np.zeros((n + 1, 4), np.int64)
    for a in (0, 1):
        mine = side == bool(a)
        rows[1:, a], rows[1:, 2 + a] = np.cumsum(mine), np.cumsum(mine & selected)
    at = np.concatenate((rows[:1], rows[last + 1]))
    counts = np.diff(at, axis=0)
    start = np.concatenate(pending)
    if len(counts):
        counts[0] += start
        rest = rows[-1] - at[-1]
    else:
        rest = rows[-1] + start
    differences = counts[:, 2] / counts[:, 0] - counts[:, 3] / counts[:, 1]
    return differences, last, rest.reshape(2, 2)


def bet(differences: Floats, limit: float, stream: _PairStream) -> Floats:
    """Return the logarithms of all fortunes after each difference, (n, 2, G); update the stream.

    A bet depends on earlier differences only: it is about what would make a fortune grow fastest if
    the weighted mean of the past were the truth, and nothing if that is within the limit.
    """
    n = len(differences)
    paths = np.empty((n, 2, len(MEMORIES)))
    for g, memory in enumerate(MEMORIES):
        keep = 1.0 - 1.0 / memory
        past = []
        for k, values in enumerate((differences, differences**2)):
            start = float(stream.memory[k, g])
            found, _ = lfilter([1.0 - keep], [1.0, -keep], values, zi=[keep * start])
            past.append(np.concatenate(([start], found[:-1])))
            stream.memory[k, g] = found[-1] if n else start
        for line, sign in enumerate((1.0, -1.0)):
            edge = sign * past[0] - limit
            spread = np.maximum(past[1] - past[0] ** 2, 0.05) + edge**2
            bets = np.clip(edge / spread, 0.0, LARGEST_BET / (1.0 + limit))
            gains = np.log1p(bets * (sign * differences - limit))
            paths[:, line, g] = stream.fortune[line, g] + np.cumsum(gains)
            if n:
                stream.fortune[line, g] = paths[-1, line, g]
    return paths


class Watch:
    """Evidence against "the gap is within the tolerance", row by row.

    Parameters
    ----------
    n_groups : int
        Number of groups.
    tolerance : float
        The largest allowed gap.
    alpha : float
        Probability of ever raising a false alarm.

    Attributes
    ----------
    rows : int
        Rows seen.
    evidence : float
        The largest average fortune of a pair, divided by the number of pairs. Large values speak
        against the tolerance.
    largest : float
        The largest evidence so far.
    alarm : int or None
        Number of the row at which the evidence first reached ``1 / alpha``.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.anytime import Watch
    >>> rng = np.random.default_rng(0)
    >>> codes = rng.integers(0, 2, 20_000)
    >>> watch = Watch(2, tolerance=0.05)
    >>> watch.update(codes, rng.random(20_000) < 0.3 + 0.02 * codes).alarm is None
    True
    >>> watch.update(codes, rng.random(20_000) < 0.3 + 0.15 * codes).alarm > 20_000
    True
    """

    def __init__(self, n_groups: int, tolerance: float, alpha: float = 0.01) -> None:
        self.n_groups = check_count(n_groups, "n_groups")
        self.tolerance = check_one_tolerance(tolerance)
        self.alpha = check_fraction(alpha, "alpha")
        self.rows = 0
        self.alarm: int | None = None
        self._streams = {pair: _PairStream() for pair in combinations(range(n_groups), 2)}
        self._largest = -math.log(max(len(self._streams), 1))

    def update(self, codes: Codes, selected: Mask) -> Watch:
        """Add rows in the order of time: their groups and whether they are selected, both (n,)."""
        codes, selected = np.asarray(codes), np.asarray(selected, np.bool_)
        check_same_length(codes, selected, ("codes", "selected"))
        if len(codes) and not (codes.min() >= 0 and codes.max() < self.n_groups):
            allowed = f"be whole numbers from 0 to {self.n_groups - 1}"
            raise InvalidInputError("codes", allowed, given=f"{codes.min()} to {codes.max()}")
        for (a, b), stream in self._streams.items():
            mine = np.flatnonzero((codes == a) | (codes == b))
            found = compare(codes[mine] == b, selected[mine], stream.pending)
            differences, places, stream.pending = found
            if not len(places):
                continue
            shares = self._share(bet(differences, self.tolerance, stream))
            self._largest = max(self._largest, float(shares.max()))
            above = np.flatnonzero(shares >= -math.log(self.alpha))
            if len(above):
                row = self.rows + int(mine[places[above[0]]]) + 1
                old = self.alarm
                self.alarm = row if old is None or row < old else old
        self.rows += len(codes)
        return self

    def _share(self, fortunes: Floats) -> Floats:
        """Return what a pair's fortunes, (..., 2, G), are to the evidence, as logarithms.

        Fortunes of one pair are averaged. Those of several pairs are known at different times, so
        that an average of them would need another proof: each pair has its share of ``alpha``.
        """
        flat = fortunes.reshape(*fortunes.shape[:-2], -1)
        total = np.logaddexp.reduce(flat, axis=-1)
        return np.asarray(total - math.log(flat.shape[-1] * len(self._streams)))

    @property
    def evidence(self) -> float:
        """The largest average fortune of a pair, divided by the number of pairs."""
        shares = [float(self._share(stream.fortune)) for stream in self._streams.values()]
        return math.exp(min(max(shares, default=-math.inf), 600.0))

    @property
    def largest(self) -> float:
        """The largest evidence so far."""
        return math.exp(min(self._largest, 600.0))

    def evidence_of(self, a: int, b: int) -> float:
        """Return the evidence that the rate of group ``a`` is above that of ``b`` by too much."""
        stream = self._streams[min(a, b), max(a, b)]
        return float(np.exp(np.minimum(stream.fortune[int(a > b)], 600.0)).mean())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON data."""
        streams = [
            [stream.pending.tolist(), stream.memory.tolist(), stream.fortune.tolist()]
            for stream in self._streams.values()
        ]
        return {
            "n_groups": self.n_groups,
            "tolerance": self.tolerance,
            "alpha": self.alpha,
            "rows": self.rows,
            "alarm": self.alarm,
            "largest": self._largest,
            "streams": streams,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Watch:
        """Return the watch that :meth:`to_dict` was called on."""
        watch = cls(data["n_groups"], data["tolerance"], data["alpha"])
        watch.rows, watch.alarm, watch._largest = data["rows"], data["alarm"], data["largest"]
        for stream, (pending, memory, fortune) in zip(
            watch._streams.values(), data["streams"], strict=True
        ):
            stream.pending = np.array(pending, np.int64)
            stream.memory, stream.fortune = np.array(memory), np.array(fortune)
        return watch


# ---- confidence sequences ----------------------------------------------------------------------


def rate_sequence(selected: Counts, rows: Counts, alpha: float) -> tuple[Floats, Floats]:
    """Return intervals of rates that hold at all times together, each with error ``alpha``.

    They hold the rates whose likelihood isn't below ``alpha`` times that of a mixture of all rates
    (Jeffreys' prior), which is a betting argument too.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.anytime import rate_sequence
    >>> low, high = rate_sequence(np.array([0, 300]), np.array([0, 1000]), 0.05)
    >>> low.round(3), high.round(3)
    (array([0.   , 0.249]), array([1.   , 0.355]))
    """
    k, n = np.asarray(selected, np.float64), np.asarray(rows, np.float64)
    mixture = betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5)
    least = mixture + math.log(alpha)  # log-likelihoods below this are excluded
    rate = np.divide(k, n, out=np.full(k.shape, 0.5), where=n > 0)
    ends = []
    for end in (0.0, 1.0):
        inside, outside = rate.copy(), np.full(rate.shape, end)
        for _ in range(BISECTIONS):
            middle = (inside + outside) / 2
            kept = xlogy(k, middle) + xlog1py(n - k, -middle) >= least
            inside, outside = np.where(kept, middle, inside), np.where(kept, outside, middle)
        whole = xlogy(k, end) + xlog1py(n - k, -end) >= least
        ends.append(np.where(whole, end, outside))
    return ends[0], ends[1]


def gap_sequence(
    selected: Sequence[int], rows: Sequence[int], confidence: float = 0.95
) -> tuple[float, float]:
    """Return an interval of the gap that holds at all times together.

    Unlike :func:`fairdial.core.certificates.gap_interval`, it may be looked at after every row, and
    looking may decide when to stop.

    Examples
    --------
    >>> from fairdial.core.anytime import gap_sequence
    >>> [round(end, 3) for end in gap_sequence([500, 600], [1000, 1000])]
    [0.0, 0.219]
    """
    if len(rows) < 2:
        return 0.0, 0.0
    alpha = (1.0 - confidence) / len(rows)
    low, high = rate_sequence(np.asarray(selected), np.asarray(rows), alpha)
    widest = max(float(high[a] - low[b]) for a, b in permutations(range(len(rows)), 2))
    return max(0.0, float(low.max() - high.min())), widest
