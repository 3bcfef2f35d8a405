"""Prices with more than two classes: a row gets the class with the largest utility after prices.

Each class is a decision with rates of its own: whether a row gets the class, among rows that belong
to it or don't. So a demand limits a rate *within a class*, as it would within a stratum:
``demand.strata`` names the class. A row of group ``a`` with probabilities ``p_c`` of the classes
gets the class

    argmax over c of  p_c - sum over the demands j of class c:  load_j(p_c) v_ja

Loads, prices and the dual that finds them are those of ``prices.py`` and ``dual.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fairdial._arrays import Codes, Floats, Indices, Scores, Weights
from fairdial.core.criteria import Criterion
from fairdial.core.demands import Demand
from fairdial.core.dual import SMOOTH, Dual
from fairdial.core.prices import among, load
from fairdial.core.rates import Rate


def probabilities(scores: Scores) -> Floats:
    """Return the probabilities of the classes, (n, C), from log-probabilities or logits.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.class_prices import probabilities
    >>> probabilities(np.log([[0.5, 0.25, 0.25]]))
    array([[0.5 , 0.25, 0.25]])
    """
    return _softmax(np.asfortranarray(scores, np.float64))


def _softmax(scores: Floats) -> Floats:
    """Return the softmax of each row, (n, C), column by column: a row depends on no other."""
    found = scores - _largest(scores)[:, None]
    np.exp(found, out=found)
    total = found[:, 0].copy()
    for column in found.T[1:]:
        total += column
    found /= total[:, None]
    return found


def _largest(values: Floats) -> Floats:
    """Return the largest value in each row, (n,)."""
    largest = values[:, 0].copy()
    for column in values.T[1:]:
        np.maximum(largest, column, out=largest)
    return largest


def choose_class(values: Floats) -> Indices:
    """Return the class with the largest value in each row, (n,); of equal ones the first.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.class_prices import choose_class
    >>> choose_class(np.array([[0.1, 0.6, 0.3], [0.4, 0.2, 0.4]]))
    array([1, 0])
    """
    best, chosen = values[:, 0].copy(), np.zeros(len(values), np.intp)
    for c, column in enumerate(values.T[1:], 1):
        np.copyto(chosen, c, where=column > best)
        np.maximum(best, column, out=best)
    return chosen


def lead_of(values: Floats) -> Floats:
    """Return the largest minus the second largest value of each row, (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.class_prices import lead_of
    >>> lead_of(np.array([[0.125, 0.5, 0.375], [0.5, 0.0, 0.5]]))
    array([0.125, 0.   ])
    """
    best, second = values[:, 0].copy(), np.full(len(values), -np.inf)
    for column in values.T[1:]:
        np.maximum(second, np.minimum(best, column), out=second)
        np.maximum(best, column, out=best)
    return np.asarray(best - second)


def class_of(demand: Demand) -> int:
    """Return the class that a demand is about."""
    assert demand.strata is not None
    (place,) = demand.strata
    return place


def class_values(
    probability: Floats, codes: Codes, demands: Sequence[Demand], prices: Floats
) -> Floats:
    """Return utility minus price of each class, (n, C); a row gets the class with the largest.

    Parameters
    ----------
    probability : (n, C) float64
        Probability of each class.
    codes : (n,) int array
        Group of each row.
    demands : sequence of Demand
        The J demands, each about one class.
    prices : (J, K) float64
        Price of each demand in each group.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import criterion
    >>> from fairdial.core.class_prices import class_values
    >>> from fairdial.core.strata import apply_strata
    >>> demands = apply_strata(criterion("demographic_parity"), ("low", "middle", "high")).demands
    >>> rows, prices = np.array([[0.5, 0.25, 0.25]] * 2), np.array([[0.0, 0.5], [0, 0], [0, -0.5]])
    >>> class_values(rows, np.array([0, 1]), demands, prices)
    array([[0.5 , 0.25, 0.25],
           [0.  , 0.25, 0.75]])
    """
    found = np.array(probability, np.float64, order="F")
    for demand, line in zip(demands, prices, strict=True):
        c = class_of(demand)
        paid = line.take(codes)
        if not _is_constant(demand.rate):
            paid *= load(demand.rate, probability[:, c])
        found[:, c] -= paid
    return found


def _is_constant(rate: Rate) -> bool:
    """Return whether the load of every row is 1."""
    return rate.eligible is None and rate.event == "selected"


@dataclass(frozen=True, eq=False)
class ClassPricing(Dual):
    """The linear program behind prices of classes, on calibration rows of known groups.

    Attributes
    ----------
    probability : (n, C) float64
        Probability of each class: the utility of deciding it.
    codes : (n,) intp
        Group of each row.
    demands : tuple of Demand
        The J demands, each about one class.
    start, shares, widths : (L,) float64
        As in :class:`fairdial.core.dual.Dual`; ``L = J K``.
    weights : (n,) float64
        Weights of the rows; their sum is 1.
    n_demands : int
        Number of demands, J.
    """

    probability: Floats
    codes: Indices
    demands: tuple[Demand, ...]
    start: Floats
    shares: Floats
    weights: Floats
    widths: Floats
    n_demands: int

    @classmethod
    def make(
        cls,
        probability: Floats,
        codes: Codes,
        n_groups: int,
        criterion: Criterion,
        weights: Weights | None = None,
    ) -> ClassPricing:
        """Return the program of rows with probabilities of the classes, and groups."""
        each = np.full(len(codes), 1.0) if weights is None else weights.astype(np.float64)
        each = each / each.sum()
        places = codes.astype(np.intp)
        start, shares = [], []
        for demand in criterion.demands:
            eligible = each * among(demand.rate, probability[:, class_of(demand)])
            by_group = np.bincount(places, eligible, n_groups)
            shares.append(np.maximum(by_group, np.finfo(np.float64).tiny))
            start.append(by_group if demand.rate.event == "rejected" else np.zeros(n_groups))
        return cls(
            np.asfortranarray(probability),
            places,
            criterion.demands,
            np.concatenate(start),
            np.concatenate(shares),
            each,
            np.repeat([float(d.scale) for d in criterion.demands], n_groups),
            len(criterion.demands),
        )

    @property
    def n_groups(self) -> int:
        """Number of groups, K."""
        return len(self.shares) // self.n_demands

    def take(self, rows: Indices) -> ClassPricing:
        """Return the program of some rows, with the starts and shares of all."""
        weights = self.weights[rows]
        return replace(
            self,
            probability=np.asfortranarray(self.probability[rows]),
            codes=self.codes[rows],
            weights=weights / weights.sum(),
        )

    def values(self, prices: Floats) -> Floats:
        """Return utility minus price of each class, (n, C), at flat prices, (L,)."""
        by_demand = prices.reshape(self.n_demands, -1)
        return class_values(self.probability, self.codes, self.demands, by_demand)

    def gain(self, prices: Floats) -> float:
        """Return the mean of the best utilities after prices, without smoothing."""
        return float(self.weights @ _largest(self.values(prices)))

    def soft_rates(self, prices: Floats) -> Floats:
        """Return the expected rates of smoothed decisions, (L,)."""
        chosen = _softmax(self.values(prices) / SMOOTH[-1])
        return np.asarray((self.start + self._used(self._loaded(chosen))) / self.shares)

    def evaluate(self, prices: Floats, smooth: float) -> tuple[float, Floats]:
        """Return the mean of the smoothed best utilities after prices, and scaled values."""
        values = self.values(prices) / smooth
        largest = _largest(values)
        total = np.zeros_like(largest)
        for column in values.T:
            total += np.exp(column - largest)
        return float(smooth * (self.weights @ (largest + np.log(total)))), values

    def curve(self, computed: Floats, smooth: float) -> tuple[Floats, Floats]:
        """Return what smoothed decisions add to the numerators, (L,), and the Hessian, (L, L)."""
        loaded, size = self._loaded(_softmax(computed)), self.n_demands
        weighted = loaded * self.weights[:, None]
        classes = np.array([class_of(demand) for demand in self.demands])
        same = classes[:, None] == classes
        hessian = np.zeros((size, self.n_groups, size, self.n_groups))
        for a, rows in enumerate(self._rows_by_group):
            part = weighted[rows].T
            hessian[:, a, :, a] = (part @ self._loads[rows]) * same - part @ loaded[rows]
        return self._used(loaded), hessian.reshape(len(self.shares), -1) / smooth

    @cached_property
    def _rows_by_group(self) -> list[Indices]:
        return [np.flatnonzero(self.codes == a) for a in range(self.n_groups)]

    @cached_property
    def _loads(self) -> Floats:
        """(n, J) what a row with the class of a demand adds to its numerator."""
        columns = [load(d.rate, self.probability[:, class_of(d)]) for d in self.demands]
        return np.asfortranarray(np.stack(columns, axis=1))

    def _loaded(self, chosen: Floats) -> Floats:
        """Return what rows add to the numerators, (n, J), from shares of the classes."""
        return chosen[:, [class_of(demand) for demand in self.demands]] * self._loads

    def _used(self, loaded: Floats) -> Floats:
        """Return the sums over groups, (L,)."""
        sums = [np.bincount(self.codes, self.weights * x, self.n_groups) for x in loaded.T]
        return np.concatenate(sums)
