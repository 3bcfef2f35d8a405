"""What "equal" means: selection rates over counted rows, and the link from price to threshold.

A :class:`Rate` is a selection rate over the rows that count for it. Moving group ``a``'s rate by
one unit where its threshold stands at logit ``z`` costs ``p_a * inverse(z)`` of expected accuracy,
with ``p_a`` the share of all rows that belong to the group and count. Every threshold formula of
the paper is one link, ``threshold_a = link(t_a / p_a)``, for a multiplier vector ``t`` over the
groups that sums to 0; the paper's sign ``2a - 1`` is the case of two groups, ``t * (-1, +1)``.
Thresholds are logits, not probabilities.

A :class:`Criterion` is one or two rates (two: later) and how their spread over groups is measured.
Both are plain records: the whole zoo is on this page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairdial._validation import did_you_mean, nearest
from fairdial.errors import InvalidInputError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rate:
    """A selection rate over counted rows, with the link that its threshold follows.

    Attributes
    ----------
    name : str
        Name of the rate in tables.
    counted : int or None
        The label of the rows that count; None counts every row.
    link : callable
        Price per share ``u`` to logit threshold, increasing, ``link(0) = 0``.
    slope : callable
        Derivative of the link.
    inverse : callable
        Logit threshold to price per share.
    domain : (float, float)
        The open interval of ``u``; at its ends the threshold is infinite or the link ends.
    """

    name: str
    counted: int | None
    link: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    inverse: Callable[[Any], Any]
    domain: tuple[float, float]

    def threshold(self, multipliers: ArrayLike, shares: ArrayLike) -> Floats:
        """Logit thresholds at multipliers ``t_a`` for shares ``p_a``; outside the domain raises.

        These are gamma_a of eq:fairbayes_general_logit; their sigmoids are kappa_a of
        eq:fairbayes_general_eta.

        Examples
        --------
        >>> from fairdial.criteria import criterion
        >>> dp = criterion("demographic_parity").rates[0]
        >>> dp.threshold([-0.1, 0.1], [0.5, 0.5]).round(6)
        array([-0.405465,  0.405465])
        """
        u = np.asarray(multipliers, np.float64) / np.asarray(shares, np.float64)
        low, high = self.domain
        if not np.all((u >= low) & (u <= high)):
            raise InvalidInputError(
                f"`multipliers` / `shares` must lie in [{low}, {high}] for the {self.name}, "
                f"got {u}."
            )
        with np.errstate(divide="ignore"):
            return np.asarray(self.link(u), np.float64)

    def price(self, logits: ArrayLike, share: float) -> Floats:
        """What one unit of this group's rate costs where its threshold stands at ``logits``."""
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
    """One fairness criterion: its rates, and how their spread over the groups is measured.

    ``gap`` is the highest minus the lowest rate over the groups, whatever their number; the
    signed ``disparity`` (last group minus first) exists for two groups and one rate only.

    Examples
    --------
    >>> from fairdial import criterion
    >>> parity = criterion("demographic_parity")
    >>> float(parity.gap([0.25, 0.5, 0.375])), parity.needs_labels
    (0.25, False)
    """

    name: str
    rates: tuple[Rate, ...]
    spread: str = "difference"
    aliases: tuple[str, ...] = ()

    @property
    def needs_labels(self) -> bool:
        """Whether some rate counts rows by their label."""
        return any(rate.counted is not None for rate in self.rates)

    def gap(self, rates: ArrayLike) -> Floats:
        """Highest minus lowest rate over the groups (last axis)."""
        values = np.asarray(rates, np.float64)  # (..., K)
        return np.asarray(values.max(axis=-1) - values.min(axis=-1), np.float64)

    def disparity(self, rates: ArrayLike) -> Floats:
        """Signed difference, second group minus first: eq:ddp, eq:deop, eq:dpe."""
        values = np.asarray(rates, np.float64)
        if values.shape[-1] != 2:
            raise InvalidInputError(
                f"`rates` must have two groups for a signed disparity, got {values.shape[-1]}; "
                "use gap() for more."
            )
        return np.asarray(values[..., 1] - values[..., 0], np.float64)

    def __str__(self) -> str:
        return self.name


DEMOGRAPHIC_PARITY = Criterion("demographic_parity", (SELECTION,))  # eq:dp
EQUAL_OPPORTUNITY = Criterion(  # eq:eop
    "equal_opportunity", (TRUE_POSITIVE,), aliases=("true_positive_rate_parity",)
)
PREDICTIVE_EQUALITY = Criterion(  # eq:pe
    "predictive_equality", (FALSE_POSITIVE,), aliases=("false_positive_rate_parity",)
)

ODDS = ("equalized_odds", "equalised_odds", "equal_odds")  # two rates: not offered
CRITERIA = (DEMOGRAPHIC_PARITY, EQUAL_OPPORTUNITY, PREDICTIVE_EQUALITY)


def criterion(name: str | Criterion) -> Criterion:
    """The criterion of this name or alias; a Criterion is given back unchanged.

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
        f"`criterion` must be one of {', '.join(allowed)}; got {name!r}."
        + criterion_meant(name, allowed)
    )


def criterion_meant(name: Any, allowed: Sequence[str]) -> str:
    """The end of a message about a criterion that isn't known: which one was probably meant.

    Examples
    --------
    >>> from fairdial.criteria import criterion_meant
    >>> criterion_meant("demographic parity", ["demographic_parity"])
    " Did you mean 'demographic_parity'?"
    """
    plain = re.sub(r"[\W_]+", "_", name.strip().lower()) if isinstance(name, str) else ""
    if nearest(plain, ODDS, 0.85) is not None:
        return (
            " Equalised odds, true and false positive rates at once, isn't supported: "
            "equal_opportunity is for the one rate, predictive_equality for the other."
        )
    return did_you_mean(plain, allowed)
