"""Fairness criteria: the rates that they equalize, and the link from price to threshold.

A :class:`Rate` is a selection rate over its eligible rows. If group ``a``'s threshold is at
logit ``z``, changing its rate by one unit costs ``p_a * inverse(z)`` of expected accuracy, with
``p_a`` the share of all rows that belong to the group and are eligible. Every threshold formula of
the paper is ``threshold_a = link(t_a / p_a)``, for multipliers ``t`` over the groups that sum to 0;
with two groups, ``t * (-1, +1)`` gives the paper's sign ``2a - 1``. Thresholds are logits, not
probabilities.

Both classes are plain records. To add a criterion with one rate, add it to ``CRITERIA``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Floats, Mask
from fairdial._validation import closest_name, did_you_mean
from fairdial.errors import InvalidInputError

Function = Callable[[Any], Any]  # elementwise, of floats or arrays


@dataclass(frozen=True)
class Rate:
    """A selection rate over eligible rows, with the link to its thresholds.

    Attributes
    ----------
    name : str
        Name of the rate in tables.
    eligible : int or None
        Label of the eligible rows; None if all rows are eligible.
    link : callable
        Maps the price per share ``u`` to a logit threshold; increasing, ``link(0) = 0``.
    slope : callable
        Derivative of the link.
    inverse : callable
        Maps a logit threshold to the price per share.
    domain : (float, float)
        The open interval of ``u``; thresholds at its ends are infinite.
    """

    name: str
    eligible: int | None
    link: Function
    slope: Function
    inverse: Function
    domain: tuple[float, float]

    def threshold(self, multipliers: ArrayLike, shares: ArrayLike) -> Floats:
        """Return the logit thresholds at multipliers ``t_a`` for shares ``p_a``.

        These are gamma_a of eq:fairbayes_general_logit; their sigmoids are kappa_a of
        eq:fairbayes_general_eta. Raises outside the domain.

        Examples
        --------
        >>> from fairdial.core.criteria import criterion
        >>> dp = criterion("demographic_parity").rate
        >>> dp.threshold([-0.1, 0.1], [0.5, 0.5]).round(6)
        array([-0.405465,  0.405465])
        """
        u = np.asarray(multipliers, np.float64) / np.asarray(shares, np.float64)
        low, high = self.domain
        if not np.all((u >= low) & (u <= high)):
            raise InvalidInputError(
                "multipliers", f"be in [{low}, {high}] times `shares` ({self.name})", given=u
            )
        with np.errstate(divide="ignore"):
            return np.asarray(self.link(u), np.float64)

    def eligible_rows(self, positive: Mask) -> Mask:
        """Return which labeled rows the rate is computed over, (n,)."""
        if self.eligible is None:
            return np.ones(len(positive), np.bool_)
        return np.asarray(positive == bool(self.eligible))

    def price(self, logits: ArrayLike, share: float) -> Floats:
        """Return the cost of one unit of a group's rate where its threshold is at ``logits``."""
        with np.errstate(over="ignore"):
            return share * np.asarray(self.inverse(np.asarray(logits, np.float64)), np.float64)


def _dp_link(u: Any) -> Any:  # eq:tau, eq:tau_dp
    return 2.0 * np.arctanh(u)


def _dp_slope(u: Any) -> Any:
    return 2.0 / (1.0 - u * u)


def _dp_inverse(z: Any) -> Any:
    return np.tanh(z / 2.0)


def _tpr_link(u: Any) -> Any:  # eq:gamma_eop, eq:tau_eop
    return -np.log1p(-u)


def _tpr_slope(u: Any) -> Any:
    return 1.0 / (1.0 - u)


def _tpr_inverse(z: Any) -> Any:
    return -np.expm1(-z)


def _fpr_link(u: Any) -> Any:  # eq:gamma_pe, eq:tau_pe
    return np.log1p(u)


def _fpr_slope(u: Any) -> Any:
    return 1.0 / (1.0 + u)


def _fpr_inverse(z: Any) -> Any:
    return np.expm1(z)


SELECTION = Rate("selection_rate", None, _dp_link, _dp_slope, _dp_inverse, (-1.0, 1.0))
TRUE_POSITIVE = Rate("true_positive_rate", 1, _tpr_link, _tpr_slope, _tpr_inverse, (-np.inf, 1.0))
FALSE_POSITIVE = Rate("false_positive_rate", 0, _fpr_link, _fpr_slope, _fpr_inverse, (-1.0, np.inf))


@dataclass(frozen=True)
class Criterion:
    """A fairness criterion: the rates that it equalizes over the groups.

    Attributes
    ----------
    name : str
        Name of the criterion.
    rates : tuple of Rate
        The rates; each criterion has one so far.
    aliases : tuple of str
        Other names.
    description : str
        A sentence that defines the criterion.

    Examples
    --------
    >>> from fairdial import criterion
    >>> parity = criterion("demographic_parity")
    >>> float(parity.gap([0.25, 0.5, 0.375])), parity.needs_labels
    (0.25, False)
    """

    name: str
    rates: tuple[Rate, ...]
    aliases: tuple[str, ...] = ()
    description: str = ""

    @property
    def rate(self) -> Rate:
        """The only rate; raises if there are several."""
        if len(self.rates) != 1:
            raise InvalidInputError("criterion", "have one rate", given=self.name)
        return self.rates[0]

    @property
    def needs_labels(self) -> bool:
        """Whether eligibility depends on the label."""
        return any(rate.eligible is not None for rate in self.rates)

    def eligible_rows(self, positive: Mask) -> Mask:
        """Return which labeled rows the rate is computed over, (n,)."""
        return self.rate.eligible_rows(positive)

    def eligible_counts(self, counts: Counts) -> Counts:
        """Return the counts of eligible rows, (..., K), from those by label, (..., L, K)."""
        label = self.rate.eligible
        return np.asarray(counts.sum(axis=-2) if label is None else counts[..., label, :])

    def rates_of(self, selected: Counts, counts: Counts) -> Floats:
        """Return the groups' rates, (..., K), from selected and all rows, both (..., L, K)."""
        return np.asarray(self.eligible_counts(selected) / self.eligible_counts(counts))

    def gap_of(self, selected: Counts, counts: Counts) -> Floats:
        """Return the gap, (...), from selected and all rows by label and group, (..., L, K)."""
        return self.gap(self.rates_of(selected, counts))

    def gap(self, rates: ArrayLike) -> Floats:
        """Return the highest minus the lowest rate over the groups (last axis)."""
        values = np.asarray(rates, np.float64)  # (..., K)
        return np.asarray(values.max(axis=-1) - values.min(axis=-1), np.float64)

    def disparity(self, rates: ArrayLike) -> Floats:
        """Return the second group's rate minus the first's: eq:ddp, eq:deop, eq:dpe."""
        values = np.asarray(rates, np.float64)
        if values.shape[-1] != 2:
            raise InvalidInputError(
                "rates",
                "have two groups",
                given=values.shape[-1],
                hint="For more groups, use gap().",
            )
        return np.asarray(values[..., 1] - values[..., 0], np.float64)

    def __str__(self) -> str:
        return self.name


DEMOGRAPHIC_PARITY = Criterion(  # eq:dp
    "demographic_parity",
    (SELECTION,),
    description="Demographic parity: the share of rows with a positive decision (the selection "
    "rate) should be equal in all groups.",
)
EQUAL_OPPORTUNITY = Criterion(  # eq:eop
    "equal_opportunity",
    (TRUE_POSITIVE,),
    aliases=("true_positive_rate_parity",),
    description="Equal opportunity: among rows whose true label is positive, the share with a "
    "positive decision (the true positive rate) should be equal in all groups.",
)
PREDICTIVE_EQUALITY = Criterion(  # eq:pe
    "predictive_equality",
    (FALSE_POSITIVE,),
    aliases=("false_positive_rate_parity",),
    description="Predictive equality: among rows whose true label is negative, the share with a "
    "positive decision (the false positive rate) should be equal in all groups.",
)

EQUALIZED_ODDS = ("equalized_odds", "equalised_odds", "equal_odds")  # not supported
CRITERIA = (DEMOGRAPHIC_PARITY, EQUAL_OPPORTUNITY, PREDICTIVE_EQUALITY)


def criterion(name: str | Criterion) -> Criterion:
    """Return the criterion with this name or alias; a Criterion is returned unchanged.

    Examples
    --------
    >>> import fairdial
    >>> fairdial.criterion("true_positive_rate_parity").name
    'equal_opportunity'
    """
    if isinstance(name, Criterion):
        return name
    for known in CRITERIA:
        if name == known.name or name in known.aliases:
            return known
    allowed = [n for known in CRITERIA for n in (known.name, *known.aliases)]
    raise InvalidInputError(
        "criterion",
        f"be one of {', '.join(allowed)}",
        given=repr(name),
        hint=suggest_criterion(name, allowed),
    )


def name_to_save(criterion: Criterion) -> str:
    """Return the name of one of the library's criteria; raise for your own, which are code.

    Examples
    --------
    >>> from fairdial import criterion
    >>> from fairdial.core.criteria import name_to_save
    >>> name_to_save(criterion("demographic_parity"))
    'demographic_parity'
    """
    if criterion not in CRITERIA:
        raise InvalidInputError(
            "criterion",
            "be one of the library's to be saved",
            given=f"your own {criterion.name!r}",
        )
    return criterion.name


def suggest_criterion(name: object, allowed: Sequence[str]) -> str:
    """Return a hint, after a space, for an unknown criterion; "" if no criterion is close.

    Examples
    --------
    >>> from fairdial.core.criteria import suggest_criterion
    >>> suggest_criterion("demographic parity", ["demographic_parity"])
    " Did you mean 'demographic_parity'?"
    """
    plain = re.sub(r"[\W_]+", "_", name.strip().lower()) if isinstance(name, str) else ""
    if closest_name(plain, EQUALIZED_ODDS, 0.85) is not None:
        return (
            " Equalized odds (equal true and false positive rates) isn't supported:"
            " equal_opportunity equalizes the one rate, predictive_equality the other."
        )
    return did_you_mean(plain, allowed)
