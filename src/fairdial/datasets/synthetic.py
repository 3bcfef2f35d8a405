"""A Gaussian law whose best trade-off between accuracy and disparity is known exactly.

In group ``a`` the label is 1 with probability ``pi_a``, and the only feature ``x`` is Gaussian with
unit variance and means ``-d_a / 2`` and ``+d_a / 2`` for the labels 0 and 1. The true log-odds
``z = d_a x + logit pi_a`` are Gaussian too:

    z | Y=1, A=a  ~  N(+d_a^2 / 2 + logit pi_a, d_a^2)
    z | Y=0, A=a  ~  N(-d_a^2 / 2 + logit pi_a, d_a^2)

so every rate and the accuracy of a vector of thresholds are sums of normal probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import logit, ndtr

from fairdial._arrays import Floats
from fairdial._validation import check_count, check_same_length, check_tolerance, match_groups
from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.datasets.base import Dataset
from fairdial.datasets.registry import DatasetInfo, register_dataset
from fairdial.errors import InvalidInputError

SIGNS = np.array([-1.0, 1.0])  # the paper's 2a - 1
EXACT = {"xtol": 1e-15, "rtol": 4 * np.finfo(np.float64).eps}


class LawPoint(NamedTuple):
    """The best decision rule of a law within a tolerance."""

    t: float
    thresholds: Floats
    accuracy: float
    disparity: float


@dataclass(frozen=True)
class GaussianLaw:
    """A distribution with one Gaussian feature, for any number of groups.

    Parameters
    ----------
    shares : tuple of float
        The share of each group; they sum to 1.
    base_rates : tuple of float
        ``pi_a``, the probability of a label of 1 in each group.
    separations : tuple of float
        ``d_a``, the distance between the two labels' means in each group.

    Examples
    --------
    >>> from fairdial.datasets import GaussianLaw
    >>> law = GaussianLaw()
    >>> point = law.at("demographic_parity", tolerance=0.0)
    >>> round(point.accuracy, 6), point.thresholds.round(4)
    (0.724351, array([-0.7642,  1.2277]))
    >>> round(float(law.accuracy([0.0, 0.0])), 6)  # without any constraint
    0.774751
    """

    shares: tuple[float, ...] = (0.6, 0.4)
    base_rates: tuple[float, ...] = (0.3, 0.6)
    separations: tuple[float, ...] = (1.2, 1.5)

    def __post_init__(self) -> None:
        for name in ("shares", "base_rates", "separations"):
            object.__setattr__(self, name, _numbers(getattr(self, name), name))
            if len(getattr(self, name)) != len(self.shares):
                raise InvalidInputError(
                    name,
                    f"have one value per group, as many as `shares` ({len(self.shares)})",
                    given=len(getattr(self, name)),
                )
        if not np.isclose(sum(self.shares), 1.0, rtol=0.0, atol=1e-9):
            raise InvalidInputError("shares", "sum to 1", given=sum(self.shares))
        if max(self.base_rates) >= 1.0:
            raise InvalidInputError("base_rates", "be below 1", given=max(self.base_rates))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the groups, sorted."""
        width = len(str(len(self.shares) - 1))
        return tuple(f"group {a:0{width}}" for a in range(len(self.shares)))

    def sample(self, n: int, random_state: int = 0) -> Dataset:
        """Draw rows with the feature ``x``; their true log-odds are in ``logits``.

        Examples
        --------
        >>> from fairdial.datasets import GaussianLaw
        >>> GaussianLaw().sample(1000, random_state=0)
        Dataset('gaussian', 1000 rows, 1 column, groups: group 0 581, group 1 419)
        """
        n = check_count(n, "n")
        rng = np.random.default_rng(check_count(random_state, "random_state", least=0))
        a = rng.choice(len(self.shares), size=n, p=np.divide(self.shares, sum(self.shares)))
        y = rng.random(n) < np.take(self.base_rates, a)
        x = rng.standard_normal(n) + (y - 0.5) * np.take(self.separations, a)
        X = pd.DataFrame({"x": x})
        groups = np.array(self.names)[a]
        return Dataset(
            X,
            y.astype(np.int64),
            groups,
            name=GAUSSIAN.name,
            source=GAUSSIAN.source,
            logits=self.logits(X, groups),
        )

    def logits(self, X: pd.DataFrame, groups: ArrayLike) -> Floats:
        """Return the true log-odds of a label of 1, which no scorer can beat."""
        a = match_groups(groups, self.names)
        if not isinstance(X, pd.DataFrame) or "x" not in X:
            raise InvalidInputError("X", "be a DataFrame with the column x", given=type(X).__name__)
        check_same_length(X, a, ("X", "groups"))
        x = X["x"].to_numpy(dtype=np.float64)
        intercepts = np.asarray(logit(self.base_rates), dtype=np.float64)
        return np.asarray(np.take(self.separations, a) * x + np.take(intercepts, a))

    def eligible(self, criterion: str | Criterion) -> Floats:
        """Return the share of all rows that are eligible for the criterion, by group."""
        rate = find_criterion(criterion).rate
        pi = np.asarray(self.base_rates)
        by_label: dict[object, Floats] = {None: np.ones_like(pi), 1: pi, 0: 1.0 - pi}
        label_share = by_label[rate.eligible]
        return np.asarray(np.multiply(self.shares, label_share), dtype=np.float64)

    def rates(self, criterion: str | Criterion, thresholds: ArrayLike) -> Floats:
        """Return the criterion's rate in each group at these logit thresholds, shape (..., K)."""
        true_positive, false_positive = self._selected(thresholds)
        pi = np.asarray(self.base_rates)
        every = pi * true_positive + (1.0 - pi) * false_positive
        by_label: dict[object, Floats] = {None: every, 1: true_positive, 0: false_positive}
        return np.asarray(by_label[find_criterion(criterion).rate.eligible], dtype=np.float64)

    def accuracy(self, thresholds: ArrayLike) -> Floats:
        """Return the accuracy (...) at these logit thresholds (..., K)."""
        true_positive, false_positive = self._selected(thresholds)
        pi = np.asarray(self.base_rates)
        correct = pi * true_positive + (1.0 - pi) * (1.0 - false_positive)  # (..., K)
        return np.asarray(correct @ np.asarray(self.shares))

    def thresholds(self, criterion: str | Criterion, t: float) -> Floats:
        """Return the logit thresholds of two groups at the paper's multiplier ``t``."""
        self._check_two_groups()
        return find_criterion(criterion).rate.threshold(t * SIGNS, self.eligible(criterion))

    def disparity(self, criterion: str | Criterion, t: float) -> float:
        """Return the second group's rate minus the first's at ``t``; it falls as ``t`` rises."""
        rates = self.rates(criterion, self.thresholds(criterion, t))
        return float(find_criterion(criterion).disparity(rates))

    def at(self, criterion: str | Criterion, tolerance: float) -> LawPoint:
        """Return the most accurate rule within the tolerance, for two groups.

        Parameters
        ----------
        criterion : str or Criterion
            The fairness criterion.
        tolerance : float
            The largest absolute disparity, in [0, 1].

        Returns
        -------
        LawPoint
            The multiplier ``t``, the logit ``thresholds``, ``accuracy`` and ``disparity``.

        Examples
        --------
        >>> from fairdial.datasets import GaussianLaw
        >>> law = GaussianLaw()
        >>> [round(law.at("equal_opportunity", d).accuracy, 4) for d in (0.0, 0.2, 1.0)]
        [0.7446, 0.7674, 0.7748]
        """
        tolerance = float(check_tolerance(tolerance))
        unconstrained = self.disparity(criterion, 0.0)
        t = 0.0
        if abs(unconstrained) > tolerance:
            target = np.copysign(tolerance, unconstrained)
            end = self._end(criterion, np.sign(unconstrained))
            t = brentq(lambda t: self.disparity(criterion, t) - target, 0.0, end, **EXACT)
        thresholds = self.thresholds(criterion, t)
        return LawPoint(
            t, thresholds, float(self.accuracy(thresholds)), self.disparity(criterion, t)
        )

    def _selected(self, thresholds: ArrayLike) -> tuple[Floats, Floats]:
        """Return P(z > threshold) given label 1 and given label 0, each (..., K)."""
        tau = np.asarray(thresholds, dtype=np.float64)
        if tau.ndim == 0 or tau.shape[-1] != len(self.shares):
            raise InvalidInputError(
                "thresholds",
                f"have one value per group ({len(self.shares)})",
                given=f"shape {tau.shape}",
            )
        d = np.asarray(self.separations)
        centered = (logit(self.base_rates) - tau) / d
        return ndtr(centered + d / 2.0), ndtr(centered - d / 2.0)

    def _end(self, criterion: str | Criterion, direction: float) -> float:
        """Return the multiplier at which the first threshold becomes infinite, in a direction."""
        low, high = find_criterion(criterion).rate.domain
        room = np.where(direction * SIGNS > 0, high, -low) * self.eligible(criterion)
        return float(direction * room.min())

    def _check_two_groups(self) -> None:
        if len(self.shares) != 2:
            raise InvalidInputError(
                "shares", "have two groups for a signed multiplier t", given=len(self.shares)
            )


def make_gaussian(
    n: int,
    *,
    shares: tuple[float, ...] = GaussianLaw.shares,
    base_rates: tuple[float, ...] = GaussianLaw.base_rates,
    separations: tuple[float, ...] = GaussianLaw.separations,
    random_state: int = 0,
) -> Dataset:
    """Draw rows of a :class:`GaussianLaw`, with their true ``logits``.

    Parameters
    ----------
    n : int
        The number of rows.
    shares, base_rates, separations : tuple of float
        The law: one value per group, any number of groups.
    random_state : int
        The seed.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> from fairdial.datasets import make_gaussian
    >>> data = make_gaussian(
    ...     500,
    ...     shares=(0.5, 0.3, 0.2),
    ...     base_rates=(0.2, 0.4, 0.6),
    ...     separations=(1.0, 1.0, 2.0),
    ...     random_state=1,
    ... )
    >>> data.X.shape, data.logits.shape, sorted(set(data.groups.tolist()))
    ((500, 1), (500,), ['group 0', 'group 1', 'group 2'])
    """
    return GaussianLaw(shares, base_rates, separations).sample(n, random_state)


GAUSSIAN = register_dataset(
    DatasetInfo(
        name="gaussian",
        load=partial(make_gaussian, 20_000),
        description="20,000 rows of a Gaussian law whose best trade-off is known.",
        source="drawn from a Gaussian law whose best trade-off is known",
        license="",
        groups="two groups",
        label="",
    )
)


def _numbers(values: ArrayLike, name: str) -> tuple[float, ...]:
    """Return positive numbers as a tuple."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != 1 or array.size == 0 or not np.all((array > 0) & np.isfinite(array)):
        raise InvalidInputError(name, "hold positive numbers", given=repr(values))
    return tuple(array.tolist())
