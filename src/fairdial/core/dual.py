"""The dual of a fairness program: Newton's method on its smoothed form.

Prices at a tolerance minimize the dual of a linear program, which is smoothed here. Every choice of
prices also bounds what any rule can reach.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from fairdial._arrays import Floats

SMOOTH = (0.1, 0.03, 0.01)  # smoothing of decisions and prices, in units of utility
STEPS = 40  # of Newton's method at one smoothing; about ten are enough
ENOUGH = 1e-9  # decrease at which it stops
SHORTEST = 1e-6  # step of its line search
RIDGE = 1e-9
DEAREST = 64.0  # price at which it gives up, in units of utility


class Dual(ABC):
    """The dual of a linear program with a price for each rate; a subclass knows the decisions.

    Attributes
    ----------
    start : (L,) float64
        The numerators of the rates if no row has a decision that adds to them.
    shares : (L,) float64
        The denominators.
    widths : (L,) float64
        The width of the limit at tolerance 1.
    n_demands : int
        Number of demands; each limits the difference of as many rates in a row.
    """

    start: Floats
    shares: Floats
    widths: Floats
    n_demands: int

    @abstractmethod
    def evaluate(self, prices: Floats, smooth: float) -> tuple[float, Any]:
        """Return the mean of the smoothed best utilities after prices, and what was computed."""

    @abstractmethod
    def curve(self, computed: Any, smooth: float) -> tuple[Floats, Floats]:
        """Return what smoothed decisions add to the numerators, (L,), and the Hessian, (L, L)."""

    @abstractmethod
    def soft_rates(self, prices: Floats) -> Floats:
        """Return the expected rates of smoothed decisions, (L,)."""

    @abstractmethod
    def gain(self, prices: Floats) -> float:
        """Return the mean of the best utilities after prices, without smoothing."""

    def bound(self, prices: Floats) -> tuple[float, float]:
        """Return intercept and slope in the tolerance of the bound that prices give.

        No rule, randomized or not, that keeps the expected rates within tolerance ``d`` has more
        expected utility than ``intercept + slope * d``: weak duality. The prices of each demand
        are balanced (``balance``).
        """
        intercept = self.gain(prices) - float(self.start @ prices)
        return intercept, float(self.widths @ (self.shares * np.abs(prices)) / 2)

    def balance(self, prices: Floats) -> Floats:
        """Return prices moved so that their mean over each demand's groups is 0.

        A price that all groups pay alike isn't fairness, and no bound follows from it.
        """
        by_demand = prices.reshape(self.n_demands, -1), self.shares.reshape(self.n_demands, -1)
        mean = (by_demand[0] * by_demand[1]).sum(axis=1) / by_demand[1].sum(axis=1)
        return np.asarray((by_demand[0] - mean[:, None]).ravel())

    def minimize(self, tolerance: float, prices: Floats, offset: Floats) -> Floats:
        """Return the prices at a tolerance, (L,), by Newton's method on the smoothed dual.

        Parameters
        ----------
        tolerance : float
            The limit on differences of rates, before scales.
        prices : (L,) float64
            Where to start.
        offset : (L,) float64
            What to add to the expected rates, to correct them for what was counted.
        """
        found = prices
        for smooth in SMOOTH[1:] if prices.any() else SMOOTH:
            found = self._newton(tolerance, found, offset, smooth)
        return self.balance(found)

    def _newton(self, tolerance: float, prices: Floats, offset: Floats, smooth: float) -> Floats:
        penalty = tolerance * self.widths * self.shares / 2
        start = self.start + self.shares * offset
        size = len(prices)
        fixed = np.zeros((self.n_demands, size))  # prices of a demand sum to 0, by shares
        for j, shares in enumerate(self.shares.reshape(self.n_demands, -1)):
            fixed[j, j * len(shares) : (j + 1) * len(shares)] = shares
        system = np.zeros((size + self.n_demands,) * 2)
        system[size:, :size], system[:size, size:] = fixed, fixed.T

        def value(at: Floats) -> tuple[float, Any]:
            mean, computed = self.evaluate(at, smooth)
            return float(mean - start @ at + penalty @ np.sqrt(at**2 + smooth**2)), computed

        now, computed = value(prices)
        for _ in range(STEPS):
            used, hessian = self.curve(computed, smooth)
            root = np.sqrt(prices**2 + smooth**2)
            slope = -used - start + penalty * prices / root
            system[:size, :size] = hessian
            system[range(size), range(size)] += penalty * smooth**2 / root**3 + RIDGE
            step = -np.linalg.lstsq(system, np.append(slope, fixed @ prices), rcond=None)[0][:size]
            step *= min(1.0, 1.0 / max(float(np.abs(step).max()), RIDGE))
            length, expected = 1.0, float(slope @ step)
            while True:
                tried = prices + length * step
                then, computed = value(tried)
                if then <= now + 1e-4 * length * expected or length < SHORTEST:
                    break
                length /= 2
            if then >= now - ENOUGH:
                return tried if then <= now else prices
            prices, now = tried, then
            if np.abs(prices).max() > DEAREST:  # no decisions have these rates
                break
        return prices
