"""A rate of every group as a function of the group's rank."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Floats, Indices

Array = NDArray[Any]
Spread = Literal["difference", "ratio", "minimum", "maximum"]
LARGEST = 2**62
MARGIN = 2.0**-50  # relative error of a limit times a denominator, generously


class RankRates:
    """One rate of all groups, prepared for searches.

    Whole-number counts are compared exactly, others as float64 quotients. A group without eligible
    rows at a rank has no rate there (NaN). Rates that aren't monotone are ordered as float64, which
    tells all of them apart as long as denominators are at most 2**26.

    Attributes
    ----------
    exact : bool
        Whether numerators and denominators are whole numbers.
    direction : int
        1 if the rates of all groups never fall with the rank, -1 if they never rise, 0 otherwise.
    keys : list of arrays
        Ascending keys of the rates by rank; the rates themselves if ``direction`` is 0.
    cuts_exactly : bool
        Whether :meth:`bound_ranks` is exact, rather than a rounding error too wide.
    """

    def __init__(self, numerators: Sequence[Array], denominators: Sequence[Array]) -> None:
        self.numerators = [np.asarray(part) for part in numerators]
        self.denominators = [np.asarray(part).reshape(-1) for part in denominators]
        parts = [*self.numerators, *self.denominators]
        self.exact = all(np.issubdtype(part.dtype, np.integer) for part in parts)
        constant = all(len(part) == 1 for part in self.denominators)
        # With whole numbers over one denominator the numerators serve as keys: no copies.
        self._whole = self.exact and constant
        self.keys: list[Array] = self.numerators if self._whole else self._divide()
        self.absent = [bool(constant and not part[0]) for part in self.denominators]
        present = [key for key, gone in zip(self.keys, self.absent, strict=True) if not gone]
        self.direction = 0
        if all((key[1:] >= key[:-1]).all() for key in present):
            self.direction = 1
        elif all((key[1:] <= key[:-1]).all() for key in present):
            self.direction = -1
            self.keys = [-key for key in self.keys]  # ascending, for searches
        elif self._whole:
            self._whole, self.keys = False, self._divide()
        self.cuts_exactly = self._whole or not self.exact

    def _divide(self) -> list[Array]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return [
                np.where(below > 0, above / below, np.nan)
                for above, below in zip(self.numerators, self.denominators, strict=True)
            ]

    def at(self, ranks: Indices) -> Floats:
        """Return the rates at ranks (B, K); NaN where there is none."""
        rates = np.empty(ranks.shape)
        for group, chosen in enumerate(ranks.T):
            if self.absent[group]:
                rates[:, group] = np.nan
            elif self._whole:
                rates[:, group] = self.numerators[group][chosen] / self.denominators[group]
            else:
                rates[:, group] = self.keys[group][chosen]
        if self.direction < 0 and not self._whole:
            np.negative(rates, out=rates)
        return rates

    def cut_above(self, group: int, limit: Floats, lo: Indices, hi: Indices) -> None:
        """Narrow rank intervals to rates of at most a limit, or a rounding error more."""
        if not self.absent[group]:
            scaled = limit * self.denominators[group] if self._whole else limit
            self._cut(group, scaled + np.abs(scaled) * MARGIN, self.direction, lo, hi)

    def cut_below(self, group: int, limit: Floats, lo: Indices, hi: Indices) -> None:
        """Narrow rank intervals to rates of at least a limit, or a rounding error less."""
        if not self.absent[group]:
            scaled = limit * self.denominators[group] if self._whole else limit
            self._cut(group, np.abs(scaled) * MARGIN - scaled, -self.direction, lo, hi)

    def _cut(self, group: int, limit: Array, side: int, lo: Indices, hi: Indices) -> None:
        """Keep ranks with keys <= limit (side 1) or -keys <= limit (side -1)."""
        keys = self.keys[group]
        if self._whole:
            limit = np.floor(np.clip(limit, -LARGEST, LARGEST)).astype(np.int64)
        if side > 0:
            np.minimum(hi, keys.searchsorted(limit, "right") - 1, out=hi)
        else:
            np.maximum(lo, keys.searchsorted(-limit, "left"), out=lo)

    def bound_ranks(self, spread: Spread, bound: Fraction, lo: Indices, hi: Indices) -> None:
        """Narrow one rank interval per group (K,) to the ranks that keep a minimum or maximum."""
        sign = 1 if spread == "maximum" else -1
        for group in range(len(self.keys)):
            if self.absent[group]:
                continue
            limit: float | int = sign * float(bound)
            if self._whole:
                limit = sign * bound * int(self.denominators[group][0]) // 1
                limit = max(-LARGEST, min(limit, LARGEST))
            elif self.exact:  # the search checks the ranks at the limit
                limit += abs(limit) * MARGIN
            cut = slice(group, group + 1)
            self._cut(group, np.array([limit]), sign * self.direction, lo[cut], hi[cut])

    def beyond(self, group: int, rank: int, above: bool) -> tuple[int, int]:
        """Return the interval of ranks whose rate is above (or below) that at a rank."""
        keys = self.keys[group]
        if above == (self.direction > 0):
            return int(keys.searchsorted(keys[rank], "right")), len(keys) - 1
        return 0, int(keys.searchsorted(keys[rank], "left")) - 1

    def hold(self, ranks: Indices, spread: Spread, bound: Fraction) -> bool:
        """Return whether the rates at one rank per group (K,) are within a limit, exactly."""
        rates: list[Any]
        limit: Any = bound
        if self.exact:
            pairs = [
                (int(above[rank]), int(below[rank if len(below) > 1 else 0]))
                for above, below, rank in zip(
                    self.numerators, self.denominators, ranks, strict=True
                )
            ]
            rates = [Fraction(above, below) for above, below in pairs if below]
        else:
            row = self.at(ranks[None])[0]
            rates, limit = row[~np.isnan(row)].tolist(), float(bound)
        return not rates or within(min(rates), max(rates), spread, limit)


def within(lowest: Any, highest: Any, spread: Spread, bound: Any) -> Any:
    """Return whether the lowest and highest rates are within a limit."""
    if spread == "difference":
        return highest - lowest <= bound
    if spread == "ratio":
        return lowest >= bound * highest
    return lowest >= bound if spread == "minimum" else highest <= bound
