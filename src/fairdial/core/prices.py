"""Prices: decide by utility minus price, when rows belong to groups only with probabilities.

A row with probability ``eta`` of the positive label and probabilities ``q_a`` of the groups is
selected if its utility exceeds what it pays:

    utility(eta) > sum over demands j and groups a of  load_j(eta) q_a v_ja

The load of a rate says how selecting the row changes it: 1 for the selection rate, ``eta`` for the
true positive rate, ``1 - eta`` for the false positive rate. With known groups (``q_a`` is 0 or 1)
these are group thresholds.

Prices at a tolerance minimize the dual of a linear program (``dual.py``). Every choice of prices
also bounds what any rule can reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fairdial._arrays import Floats, Indices, Scores, Weights
from fairdial._special import expit
from fairdial.core.criteria import Criterion
from fairdial.core.dual import SMOOTH, Dual
from fairdial.core.problem import Problem
from fairdial.core.rates import Rate
from fairdial.errors import InvalidInputError

TINY = float(np.finfo(np.float64).tiny)


class Gains(NamedTuple):
    """Utility of selecting a positive row, and cost of selecting a negative one; at most 1."""

    positive: float
    negative: float


UNKNOWN = "groups are unknown when deciding"


def check_priceable(problem: Problem, when: str = UNKNOWN) -> None:
    """Raise if prices can't solve a problem: they take linear rates and objectives only."""
    for demand in problem.criterion.demands:
        plain = demand.strata is None and demand.where is None
        if demand.spread != "difference" or not demand.rate.fixed or not demand.scale or not plain:
            raise InvalidInputError(
                "criterion",
                "limit differences of rates over all rows or rows with one label, without "
                f"conditions, if {when}",
                given=demand.name,
                hint="Decisions that see the group take any criterion." if when == UNKNOWN else "",
            )
    refused = {
        "objective": problem.objective.name in ("f1", "utility") and problem.objective.name,
        "budget": problem.budget is not None and problem.budget.share,
        "rising": problem.rising,
        "randomize": problem.randomize is not None and repr(problem.randomize),
        "value": problem.value != "plug-in" and repr(problem.value),
    }
    for name, given in refused.items():
        if given is not False:
            raise InvalidInputError(
                name,
                f"be left at its default if {when}"
                + (", or be accuracy, balanced accuracy or costs" if name == "objective" else ""),
                given=given,
            )


def find_gains(problem: Problem, negatives: float, positives: float) -> Gains:
    """Return the gains of an objective for rows with these numbers of labels."""
    terms = problem.objective.terms(negatives, positives)
    size = max(terms.true_positive, -terms.false_positive)
    return Gains(terms.true_positive / size, -terms.false_positive / size)


def utilities(probability: Floats, gains: Gains) -> Floats:
    """Return the expected utility of selecting each row, (n,)."""
    return np.asarray(gains.positive * probability - gains.negative * (1.0 - probability))


def load(rate: Rate, probability: Floats) -> Floats:
    """Return how much selecting each row is expected to add to a rate's numerator, (n,)."""
    if rate.event == "correct":
        return np.asarray(2.0 * probability - 1.0)
    eligible = among(rate, probability)
    return -eligible if rate.event == "rejected" else eligible


def among(rate: Rate, probability: Floats) -> Floats:
    """Return the probability that each row is eligible for a rate, (n,)."""
    if rate.eligible is None:
        return np.ones_like(probability)
    return np.asarray(probability if rate.eligible == 1 else 1.0 - probability)


def margins(
    logits: Scores, posterior: Floats, rates: Sequence[Rate], gains: Gains, prices: Floats
) -> Floats:
    """Return utility minus price of each row, (n,); rows above 0 are selected.

    Parameters
    ----------
    logits : (n,) array
        Log-odds of the positive label.
    posterior : (n, K) float64
        Probability of each group.
    rates : sequence of Rate
        The J rates whose differences are limited.
    gains : Gains
        Utility of a positive and cost of a negative row.
    prices : (J, K) or (n, J, K) float64
        Prices; the same for all rows, or for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.prices import Gains, margins
    >>> from fairdial.core.rates import SELECTION
    >>> known, prices = np.eye(2), np.array([[0.25, -0.25]])
    >>> margins(np.zeros(2), known, [SELECTION], Gains(1.0, 1.0), prices)
    array([-0.25,  0.25])
    """
    probability = expit(logits.astype(np.float64))
    margin = utilities(probability, gains)
    for j, rate in enumerate(rates):  # column by column: a row's margin depends on no other row
        pays = load(rate, probability)
        for a in range(posterior.shape[1]):
            margin -= pays * posterior[:, a] * prices[..., j, a]
    return margin


@dataclass(frozen=True, eq=False)
class Pricing(Dual):
    """The linear program behind prices, on calibration rows.

    With decisions ``x`` in [0, 1] it maximizes ``mean(utility * x)``; rate ``l`` of a demand's
    groups is ``(start_l + mean(loads_l * x)) / shares_l``, and the rates of a demand differ by at
    most its width. All means are over rows with their weights.

    Attributes
    ----------
    utility : (n,) float64
        Utility of selecting each row.
    loads : (n, L) float64
        What selecting a row adds to the numerator of rate ``l``; ``L = J K``.
    start : (L,) float64
        The numerators if nobody is selected.
    shares : (L,) float64
        The denominators.
    weights : (n,) float64
        Weights of the rows; their sum is 1.
    widths : (L,) float64
        The width of the limit at tolerance 1.
    n_demands : int
        Number of demands, J.
    """

    utility: Floats
    loads: Floats
    start: Floats
    shares: Floats
    weights: Floats
    widths: Floats
    n_demands: int

    @classmethod
    def make(
        cls,
        logits: Scores,
        posterior: Floats,
        criterion: Criterion,
        gains: Gains,
        weights: Weights | None = None,
    ) -> Pricing:
        """Return the program of scored rows with probabilities of the groups."""
        probability = expit(logits.astype(np.float64))
        each = np.full(len(logits), 1.0) if weights is None else weights.astype(np.float64)
        each = each / each.sum()
        loads, start, shares = [], [], []
        for demand in criterion.demands:
            eligible = among(demand.rate, probability)
            unselected = np.zeros_like(probability)
            if demand.rate.event == "correct":
                unselected = 1.0 - probability
            elif demand.rate.event == "rejected":
                unselected = eligible
            for q in posterior.T:
                loads.append(load(demand.rate, probability) * q)
                start.append(each @ (unselected * q))
                shares.append(each @ (eligible * q))
        return cls(
            utilities(probability, gains),
            np.asfortranarray(np.stack(loads, axis=1)),
            np.array(start),
            np.maximum(shares, TINY),
            each,
            np.repeat([float(d.scale) for d in criterion.demands], posterior.shape[1]),
            len(criterion.demands),
        )

    def pool(self, places: Indices, width: int) -> Pricing:
        """Return the program with ``width`` rates for each demand; ``places`` of rates."""
        size = width * self.n_demands
        loads = np.zeros((len(self.utility), size), order="F")
        for column, place in zip(self.loads.T, places.tolist(), strict=True):
            loads[:, place] += column
        widths = self.widths.reshape(self.n_demands, -1)[:, :1]
        return replace(
            self,
            loads=loads,
            start=np.asarray(np.bincount(places, self.start, size), np.float64),
            shares=np.maximum(np.bincount(places, self.shares, size), TINY),
            widths=np.repeat(widths, width, axis=1).ravel(),
        )

    def take(self, rows: Indices) -> Pricing:
        """Return the program of some rows, with the starts and shares of all."""
        weights = self.weights[rows]
        loads = np.asfortranarray(self.loads[rows])
        return replace(
            self, utility=self.utility[rows], loads=loads, weights=weights / weights.sum()
        )

    def margins(self, prices: Floats) -> Floats:
        """Return utility minus price of each row, (n,): the same bits as :func:`margins`."""
        margin = self.utility.copy()
        for column, price in zip(self.loads.T, prices.tolist(), strict=True):
            margin -= column * price
        return margin

    def gain(self, prices: Floats) -> float:
        """Return the mean of the best utilities after prices, without smoothing."""
        return float(self.weights @ np.maximum(self.margins(prices), 0.0))

    def soft_rates(self, prices: Floats) -> Floats:
        """Return the expected rates of smoothed decisions, (L,)."""
        chosen = self.weights * expit(self.margins(prices) / SMOOTH[-1])
        return np.asarray((self.start + chosen @ self.loads) / self.shares)

    def evaluate(self, prices: Floats, smooth: float) -> tuple[float, Floats]:
        """Return the mean of the smoothed utilities after prices, and the scaled margins."""
        margin = (self.utility - self.loads @ prices) / smooth
        return float(smooth * (self.weights @ np.logaddexp(0.0, margin))), margin

    def curve(self, margin: Floats, smooth: float) -> tuple[Floats, Floats]:
        """Return what smoothed decisions add to the numerators, and the Hessian."""
        chosen = expit(margin)
        curved = self.weights * chosen * (1.0 - chosen) / smooth
        return (self.weights * chosen) @ self.loads, self.loads.T @ (curved[:, None] * self.loads)
