"""Rates: P(event | eligible) in a group, with the link from price to threshold.

If group ``a``'s threshold is at logit ``z``, changing its rate by one unit costs ``p_a *
inverse(z)`` of expected accuracy, with ``p_a`` the share of all rows that belong to the group and
are eligible. Every threshold formula of the paper is ``threshold_a = link(t_a / p_a)``, for
multipliers ``t`` over the groups that sum to 0; with two groups, ``t * (-1, +1)`` gives the paper's
sign ``2a - 1``. Thresholds are logits, not probabilities.

To add a rate, add it to ``RATES``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Floats, Mask
from fairdial.errors import InvalidInputError

Function = Callable[[Any], Any]  # elementwise, of floats or arrays
Eligible = Literal[0, 1, "selected", "rejected"] | None
Event = Literal["selected", "rejected", "positive", "correct"]
DIRECTIONS = {"selected": 1, "rejected": -1}
MAX_PRICE = 1e300  # finite where exp overflows, so that differences of prices aren't NaN


def _no_link(u: Any) -> Any:  # noqa: ARG001
    raise InvalidInputError(
        "criterion",
        "have one rate with a closed-form threshold (selection rate, true or false positive rate)",
        given="another rate",
    )


@dataclass(frozen=True)
class Rate:
    """The probability of an event among a group's eligible rows.

    Attributes
    ----------
    name : str
        Name of the rate in tables.
    eligible : {None, 0, 1, "selected", "rejected"}
        The rows that the rate is computed over: all rows, those with a label, or those with a
        decision.
    event : {"selected", "rejected", "positive", "correct"}
        What is counted among them: a decision, a positive label, or a decision that equals the
        label.
    link : callable
        Maps the price per share ``u`` to a logit threshold; increasing, ``link(0) = 0``. Only the
        selection rate and the true and false positive rates have one.
    slope : callable
        Derivative of the link.
    inverse : callable
        Maps a logit threshold to the price per share.
    domain : (float, float)
        The open interval of ``u``; thresholds at its ends are infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.rates import PRECISION
    >>> selected = np.array([[2, 0], [6, 4]])  # by label and group
    >>> PRECISION.of(selected, np.array([[10, 10], [10, 10]]))
    array([0.75, 1.  ])
    """

    name: str
    eligible: Eligible = None
    link: Function = _no_link
    slope: Function = _no_link
    inverse: Function = _no_link
    domain: tuple[float, float] = (0.0, 0.0)
    event: Event = "selected"

    @property
    def has_link(self) -> bool:
        """Whether there is a closed form of the thresholds."""
        return self.link is not _no_link

    @property
    def needs_labels(self) -> bool:
        """Whether the rate depends on labels."""
        return self.event in ("positive", "correct") or self.eligible in (0, 1)

    @property
    def fixed(self) -> bool:
        """Whether the eligible rows don't depend on the decisions."""
        return self.eligible in (None, 0, 1)

    @property
    def direction(self) -> int:
        """1 if the rate rises with the number of selected rows, -1 if it falls, 0 if neither."""
        return DIRECTIONS.get(self.event, 0) if self.fixed else 0

    def threshold(self, multipliers: ArrayLike, shares: ArrayLike) -> Floats:
        """Return the logit thresholds at multipliers ``t_a`` for shares ``p_a``.

        These are gamma_a of eq:fairbayes_general_logit; their sigmoids are kappa_a of
        eq:fairbayes_general_eta. Raises outside the domain.

        Examples
        --------
        >>> from fairdial.core.rates import SELECTION
        >>> SELECTION.threshold([-0.1, 0.1], [0.5, 0.5]).round(6)
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

    def eligible_rows(self, positive: Mask, selected: Mask | None = None) -> Mask:
        """Return which labeled rows the rate is computed over, (n,)."""
        if self.eligible is None:
            return np.ones(len(positive), np.bool_)
        if self.fixed:
            return np.asarray(positive == bool(self.eligible))
        if selected is None:
            raise InvalidInputError("selected", f"be given for the {self.name}")
        return np.asarray(selected == (self.eligible == "selected"))

    def price(self, logits: ArrayLike, share: float | Floats) -> Floats:
        """Return the cost of one unit of a group's rate where its threshold is at ``logits``."""
        with np.errstate(over="ignore"):
            return share * np.asarray(self.inverse(np.asarray(logits, np.float64)), np.float64)

    def parts(self, selected: Counts, counts: Counts) -> tuple[Counts, Counts]:
        """Return numerator and denominator, (..., K), from selected and all rows, (..., L, K)."""
        rejected: Counts = counts
        if self.event != "selected" or not self.fixed:
            rejected = np.asarray(counts - selected)
        among = {"selected": selected, "rejected": rejected}.get(str(self.eligible), counts)
        if self.eligible in (0, 1):
            label = int(self.eligible)
            kinds = slice(label, label + 1)
            among, selected, rejected = (a[..., kinds, :] for a in (among, selected, rejected))
        if self.event == "correct":
            happened: Counts = np.asarray(selected[..., 1, :] + rejected[..., 0, :])
        elif self.event == "positive":
            happened = among[..., 1, :]
        else:
            happened = (selected if self.event == "selected" else rejected).sum(axis=-2)
        return happened, among.sum(axis=-2)

    def of(self, selected: Counts, counts: Counts) -> Floats:
        """Return the groups' rates, (..., K); NaN where no row is eligible."""
        numerator, denominator = self.parts(selected, counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(numerator / denominator)


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
FALSE_NEGATIVE = Rate("false_negative_rate", 1, event="rejected")
TRUE_NEGATIVE = Rate("true_negative_rate", 0, event="rejected")
ACCURACY = Rate("accuracy", event="correct")
PRECISION = Rate("precision", "selected", event="positive")
FALSE_OMISSION = Rate("false_omission_rate", "rejected", event="positive")

RATES = (
    SELECTION,
    TRUE_POSITIVE,
    FALSE_POSITIVE,
    FALSE_NEGATIVE,
    TRUE_NEGATIVE,
    ACCURACY,
    PRECISION,
    FALSE_OMISSION,
)
