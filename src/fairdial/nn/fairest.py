"""The fairest thresholds of a batch and their gradient, whatever the criterion and the groups.

- one rate, two groups: the root t(Z) of the smooth disparity, as in the paper;
- one rate, any number of groups: one t per group, with sum 0;
- equalized odds: prices of two rates.
"""

from __future__ import annotations

from typing import Protocol

from fairdial._arrays import Floats, Mask
from fairdial.core.rates import Rate
from fairdial.nn.equal_odds import STIFFNESS, equalize_odds
from fairdial.nn.equal_rates import equalize_rate
from fairdial.nn.implicit import ACCURATE, CLAMP, find_fairest
from fairdial.nn.losses import SHARPNESS

Compared = Rate | tuple[Rate, Rate]  # two: the true and the false positive rate


class FairestThresholds(Protocol):
    """The fairest thresholds of each net in a batch."""

    @property
    def thresholds(self) -> Floats:
        """(M, K) thresholds."""

    @property
    def start(self) -> Floats:
        """(M, ...) where the search in the next batch starts."""

    def pull_back(self, by_threshold: Floats) -> Floats:
        """Return the gradient in the logits (M, K, n) from that in the thresholds (M, K)."""


def shares_of(rate: Rate, shares: Floats) -> Floats:
    """Return P(group, eligible), (K,), from P(group, label), (2, K); or what is (K,) already."""
    if shares.ndim == 1:
        return shares
    by_label: Floats = shares[rate.eligible] if rate.eligible in (0, 1) else shares.sum(axis=0)
    return by_label


def find_thresholds(
    logits: Floats,
    positive: Mask,
    rate: Compared,
    shares: Floats,
    *,
    sharpness: float = SHARPNESS,
    start: Floats | None = None,
    clamp: float = CLAMP,
    hard: bool = False,
    accuracy: float = ACCURATE,
    stiffness: float = STIFFNESS,
) -> FairestThresholds | None:
    """Return the fairest thresholds; None if a group has no eligible row in the batch.

    Parameters
    ----------
    logits : (M, K, n) float64
        Logits of M nets on n rows of each group.
    positive : (K, n) bool
        Which rows have the positive label.
    rate : Rate or (Rate, Rate)
        The rate that is to be equal in all groups; the true and the false positive rate for
        equalized odds.
    shares : (K,) or (2, K) float64
        P(group, eligible), or P(group, label).
    sharpness : float
        k of the sigmoids.
    start : array, optional
        ``start`` of the last batch's thresholds.
    clamp : float
        Distance that t keeps from the ends of its domain (one rate).
    hard : bool
        Use the root of the hard disparity (one rate and two groups).
    accuracy : float
        Accuracy of the solution.
    stiffness : float
        Price of a rate's distance from the mean (equalized odds).

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.rates import SELECTION
    >>> from fairdial.nn.fairest import find_thresholds
    >>> z, y = np.array([[[0.0], [0.9]]]), np.array([[True], [True]])
    >>> found = find_thresholds(z, y, SELECTION, np.array([0.5, 0.5]))
    >>> found.thresholds.round(3)
    array([[-0.45,  0.45]])
    """
    if isinstance(rate, tuple):
        both = positive.any(axis=1) & ~positive.all(axis=1)
        if not both.all():
            return None
        return equalize_odds(
            logits,
            positive,
            shares,
            sharpness=sharpness,
            start=start,
            stiffness=stiffness,
            accuracy=accuracy,
        )
    eligible = None
    if rate.eligible is not None:
        eligible = positive == bool(rate.eligible)
        if not eligible.any(axis=1).all():
            return None
    shares = shares_of(rate, shares)
    if len(shares) == 2:
        return find_fairest(
            logits,
            rate,
            shares,
            eligible,
            sharpness=sharpness,
            start=start,
            clamp=clamp,
            hard=hard,
            accuracy=accuracy,
        )
    return equalize_rate(
        logits,
        rate,
        shares,
        eligible,
        sharpness=sharpness,
        start=start,
        clamp=clamp,
        accuracy=accuracy,
    )
