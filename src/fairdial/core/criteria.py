"""Fairness criteria as data: sets of demands on rates.

A :class:`Criterion` is a plain record, and one tolerance moves all of its demands.
:func:`criterion` reads names and combinations of them. To add a criterion, add it to ``CRITERIA``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Floats, Indices, Mask
from fairdial._validation import closest_name, did_you_mean
from fairdial.core.demands import RATIO, Demand, exact, maximum, minimum
from fairdial.core.groupings import Grouping, Overlap
from fairdial.core.rates import (
    ACCURACY,
    FALSE_NEGATIVE,
    FALSE_OMISSION,
    FALSE_POSITIVE,
    PRECISION,
    RATES,
    SELECTION,
    TRUE_POSITIVE,
    Rate,
)
from fairdial.errors import InvalidInputError


@dataclass(frozen=True)
class Criterion:
    """A fairness criterion: demands on rates, moved together by one tolerance.

    Attributes
    ----------
    name : str
        Name of the criterion.
    demands : tuple of Demand
        The demands; a :class:`Rate` stands for a limit on its difference.
    aliases : tuple of str
        Other names.
    description : str
        A sentence that defines the criterion.
    declared : float or None
        The tolerance that a combination of criteria was written with.
    n_strata : int
        Number of strata of the rows, once conditions have been applied to them.

    Examples
    --------
    >>> from fairdial import criterion
    >>> parity = criterion("demographic_parity")
    >>> float(parity.gap([0.25, 0.5, 0.375])), parity.needs_labels
    (0.25, False)
    >>> both = criterion({"demographic_parity": 0.10, "equal_opportunity": 0.05})
    >>> [(demand.name, float(demand.scale)) for demand in both.demands], both.declared
    ([('selection_rate', 1.0), ('true_positive_rate', 0.5)], 0.1)
    """

    name: str
    demands: tuple[Demand, ...]
    aliases: tuple[str, ...] = ()
    description: str = ""
    declared: float | None = None
    n_strata: int = 1

    def __post_init__(self) -> None:
        given: tuple[Demand | Rate, ...] = tuple(self.demands)
        if not given:
            raise InvalidInputError("demands", "hold at least one demand", given="none")
        demands = tuple(Demand(d) if isinstance(d, Rate) else d for d in given)
        object.__setattr__(self, "demands", demands)

    @property
    def is_simple(self) -> bool:
        """Whether it limits the difference of one rate with a link: the threshold path applies."""
        first = self.demands[0]
        plain = first.spread == "difference" and first.scale == 1 and first.rate.has_link
        everywhere = first.where is None and first.strata is None and first.grouping is None
        return len(self.demands) == 1 and plain and everywhere

    @property
    def rate(self) -> Rate:
        """The rate of a simple criterion; raises for others."""
        if not self.is_simple:
            raise InvalidInputError(
                "criterion",
                "limit the difference of one rate: demographic_parity, equal_opportunity or "
                "predictive_equality",
                given=self.name,
            )
        return self.demands[0].rate

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rates, each once."""
        return tuple(dict.fromkeys(demand.rate for demand in self.demands))

    @property
    def needs_labels(self) -> bool:
        """Whether a rate depends on labels."""
        return any(rate.needs_labels for rate in self.rates)

    @property
    def has_conditions(self) -> bool:
        """Whether a demand has a condition that must still be applied to rows."""
        return any(demand.where is not None for demand in self.demands)

    @property
    def has_groupings(self) -> bool:
        """Whether a demand compares the groups of one column among several."""
        return any(demand.grouping is not None for demand in self.demands)

    @property
    def groupings(self) -> tuple[Grouping, ...]:
        """The columns whose groups are compared, each once."""
        return tuple(dict.fromkeys(d.grouping for d in self.demands if d.grouping is not None))

    def compare(self, overlap: Overlap, groupings: Sequence[Grouping]) -> Criterion:
        """Return the criterion of marginal groups, of intersections, or of both."""
        if overlap == "intersection" or not groupings:
            return self
        demands = [replace(d, grouping=one) for one in groupings for d in self.demands]
        if overlap == "both":
            demands += self.demands
        return replace(self, demands=tuple(demands))

    def places(self, n_groups: int) -> Indices:
        """Return where each demand's rate of each intersection is in :meth:`rates_of`, (J K,)."""
        own, width = tuple(range(n_groups)), self.width(n_groups)
        members = [own if d.grouping is None else d.grouping.members for d in self.demands]
        return np.concatenate([j * width + np.array(p) for j, p in enumerate(members)])

    def width(self, n_groups: int) -> int:
        """Return the largest number of groups that a demand compares."""
        return max(len(demand.names(range(n_groups))) for demand in self.demands)

    def split(self, counts: Counts) -> Counts:
        """Return counts by stratum and label, (..., S, L, K), from those by kind, (..., C, K)."""
        n_kinds, n_groups = counts.shape[-2:]
        shape = (*counts.shape[:-2], self.n_strata, n_kinds // self.n_strata, n_groups)
        return counts.reshape(shape)

    def eligible_rows(self, positive: Mask) -> Mask:
        """Return which labeled rows the rate of a simple criterion is computed over, (n,)."""
        return self.rate.eligible_rows(positive)

    def eligible_counts(self, counts: Counts) -> Counts:
        """Return the eligible rows, (..., K), from those by kind, (..., C, K).

        With several demands, it is the smallest of their numbers in each group. A demand on the
        groups of one column has as many for an intersection as for the group it is a part of.
        """
        return np.asarray(np.minimum.reduce(self.eligible_by_demand(counts)))

    def eligible_by_demand(self, counts: Counts) -> list[Counts]:
        """Return each demand's eligible rows, (..., K), from those by kind, (..., C, K)."""
        parts = self.split(counts)
        eligible = []
        for demand in self.demands:
            fixed = demand if demand.rate.fixed else replace(demand, rate=ALL)
            rows = fixed.parts(parts, parts)[1]
            eligible.append(rows if demand.grouping is None else demand.grouping.spread(rows))
        return eligible

    def rates_of(self, selected: Counts, counts: Counts) -> Floats:
        """Return the groups' rates from selected and all rows by kind, both (..., C, K).

        They are (..., K) with one demand, and (..., J, K) with several. Where demands compare
        groups of different columns, missing places are NaN.
        """
        selected, counts = self.split(selected), self.split(counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = [np.divide(*demand.parts(selected, counts)) for demand in self.demands]
        if self.has_groupings:
            width = max(rate.shape[-1] for rate in rates)
            rates = [_widen(rate, width) for rate in rates]
        return np.asarray(rates[0] if len(rates) == 1 else np.stack(rates, axis=-2))

    def gaps_of(self, selected: Counts, counts: Counts) -> Floats:
        """Return each demand's gap, divided by its scale, (..., J), from rows by kind."""
        selected, counts = self.split(selected), self.split(counts)
        return np.stack([demand.gap_of(selected, counts) for demand in self.demands], axis=-1)

    def gap_of(self, selected: Counts, counts: Counts) -> Floats:
        """Return the smallest tolerance that allows these rows, (...): the largest gap."""
        return np.asarray(self.gaps_of(selected, counts).max(axis=-1))

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


def _widen(rates: Floats, width: int) -> Floats:
    """Return rates with NaN behind them, (..., width)."""
    missing = np.full((*rates.shape[:-1], width - rates.shape[-1]), np.nan)
    return np.concatenate((rates, missing), axis=-1)


ALL = Rate("all_rows")

DEMOGRAPHIC_PARITY = Criterion(  # eq:dp
    "demographic_parity",
    (Demand(SELECTION),),
    aliases=("statistical_parity",),
    description="Demographic parity: the share of rows with a positive decision (the selection "
    "rate) should be equal in all groups.",
)
EQUAL_OPPORTUNITY = Criterion(  # eq:eop
    "equal_opportunity",
    (Demand(TRUE_POSITIVE),),
    aliases=("true_positive_rate_parity",),
    description="Equal opportunity: among rows whose true label is positive, the share with a "
    "positive decision (the true positive rate) should be equal in all groups.",
)
PREDICTIVE_EQUALITY = Criterion(  # eq:pe
    "predictive_equality",
    (Demand(FALSE_POSITIVE),),
    aliases=("false_positive_rate_parity",),
    description="Predictive equality: among rows whose true label is negative, the share with a "
    "positive decision (the false positive rate) should be equal in all groups.",
)
EQUALIZED_ODDS = Criterion(
    "equalized_odds",
    (Demand(TRUE_POSITIVE), Demand(FALSE_POSITIVE)),
    aliases=("equalised_odds", "equal_odds"),
    description="Equalized odds: the true positive rate and the false positive rate should both "
    "be equal in all groups.",
)
FALSE_NEGATIVE_PARITY = Criterion(
    "false_negative_rate_parity",
    (Demand(FALSE_NEGATIVE),),
    description="False negative rate parity: among rows whose true label is positive, the share "
    "with a negative decision should be equal in all groups.",
)
ACCURACY_PARITY = Criterion(
    "accuracy_parity",
    (Demand(ACCURACY),),
    aliases=("overall_accuracy_equality",),
    description="Accuracy parity: the share of correct decisions should be equal in all groups.",
)
PREDICTIVE_PARITY = Criterion(
    "predictive_parity",
    (Demand(PRECISION),),
    aliases=("precision_parity", "positive_predictive_value_parity"),
    description="Predictive parity: among rows with a positive decision, the share whose true "
    "label is positive (the precision) should be equal in all groups.",
)
FALSE_OMISSION_PARITY = Criterion(
    "false_omission_rate_parity",
    (Demand(FALSE_OMISSION),),
    description="False omission rate parity: among rows with a negative decision, the share whose "
    "true label is positive should be equal in all groups.",
)

CRITERIA = (
    DEMOGRAPHIC_PARITY,
    EQUAL_OPPORTUNITY,
    PREDICTIVE_EQUALITY,
    EQUALIZED_ODDS,
    FALSE_NEGATIVE_PARITY,
    ACCURACY_PARITY,
    PREDICTIVE_PARITY,
    FALSE_OMISSION_PARITY,
)

Given = str | Criterion | Demand | Sequence[Any] | Mapping[Any, float]


def criterion(given: Given) -> Criterion:
    """Return the criterion with this name, or the combination of several.

    Parameters
    ----------
    given : str, Criterion, Demand, list or mapping
        A name, such as ``"equalized_odds"``; with ``_ratio`` at its end the ratio of the rates is
        limited rather than their difference. ``"true_positive_rate>=0.8"`` is a minimum,
        ``"false_positive_rate<=0.1"`` a maximum. A list (or names joined by ``+``) demands all of
        them. A mapping gives each its own tolerance: ``{"demographic_parity": 0.10,
        "equal_opportunity": 0.05}``; the largest one is the tolerance of the dial, and the others
        move in proportion to it.

    Examples
    --------
    >>> import fairdial
    >>> fairdial.criterion("true_positive_rate_parity").name
    'equal_opportunity'
    >>> fairdial.criterion(["equalized_odds", "true_positive_rate>=0.8"]).name
    'equalized_odds+true_positive_rate>=0.8'
    """
    if isinstance(given, Criterion):
        return given
    if isinstance(given, Demand):
        return Criterion(given.name, (given,))
    if isinstance(given, str):
        parts = [_parse(part) for part in given.split("+")]
        return parts[0][0] if len(parts) == 1 and parts[0][1] is None else _combine(parts)
    if isinstance(given, Mapping):
        return _combine([(criterion(key), _check_share(key, given[key])) for key in given])
    if isinstance(given, (list, tuple)):
        return _combine([(criterion(part), None) for part in given])
    raise InvalidInputError(
        "criterion", "be a name, a Criterion, a list or a mapping to tolerances", given=repr(given)
    )


def _parse(text: str) -> tuple[Criterion, float | None]:
    """Return the criterion of one part of a text, and its tolerance if it has one."""
    match = re.fullmatch(r"\s*(\w[\w ]*?)\s*(>=|<=|=)\s*([0-9.eE+-]+)\s*", text)
    if match is None:
        return _find(text.strip()), None
    name, sign, number = match.groups()
    try:
        value = float(number)
    except ValueError:
        raise InvalidInputError(
            "criterion", f"have a number after {sign}", given=repr(text)
        ) from None
    if sign == "=":
        return _find(name), _check_share(name, value)
    demand = (minimum if sign == ">=" else maximum)(name, value)
    return Criterion(demand.name, (demand,)), None


def _find(name: str) -> Criterion:
    stem = name.removesuffix(RATIO)
    for known in CRITERIA:
        if stem == known.name or stem in known.aliases:
            return known if stem == name else as_ratio(known)
    allowed = [n for known in CRITERIA for n in (known.name, *known.aliases)]
    raise InvalidInputError(
        "criterion",
        f"be one of {', '.join(allowed)}",
        given=repr(name),
        hint=suggest_criterion(name, allowed),
    )


def as_ratio(given: Criterion) -> Criterion:
    """Return the criterion that limits ratios of rates in place of their differences."""
    demands = tuple(
        replace(demand, spread="ratio") if demand.spread == "difference" else demand
        for demand in given.demands
    )
    text = given.description.replace("should be equal", "should have a ratio near 1")
    text = text.replace("should both be equal", "should both have a ratio near 1")
    return replace(given, name=given.name + RATIO, demands=demands, aliases=(), description=text)


def _check_share(name: object, value: float) -> float:
    if not isinstance(value, (int, float, np.number)) or not 0 <= value <= 1:
        raise InvalidInputError(
            "criterion", f"have a tolerance in [0, 1] for {name}", given=repr(value)
        )
    return float(value)


def _combine(parts: Sequence[tuple[Criterion, float | None]]) -> Criterion:
    """Return the criterion that demands all parts, scaled by their tolerances."""
    if not parts:
        raise InvalidInputError("criterion", "name at least one criterion", given="none")
    given = [tolerance for _, tolerance in parts if tolerance is not None]
    moved = [part for part, tolerance in parts if tolerance is None and _moves(part)]
    if given and moved:
        raise InvalidInputError(
            "criterion",
            "have a tolerance for every part, or for none",
            given=f"none for {moved[0].name}",
        )
    for part, tolerance in parts:
        if tolerance and not _moves(part):
            raise InvalidInputError(
                "criterion",
                f"have no tolerance for {part.name}, which the dial doesn't move",
                given=tolerance,
            )
    parts = [(part, tolerance if _moves(part) else None) for part, tolerance in parts]
    given = [tolerance for _, tolerance in parts if tolerance is not None]
    largest = max(given, default=0.0)
    if len(parts) == 1:
        return replace(parts[0][0], declared=largest if given else None)
    demands: dict[str, Demand] = {}
    for part, tolerance in parts:
        scale = exact(tolerance) / exact(largest) if tolerance is not None and largest else 1
        for demand in part.demands:
            scaled = replace(demand, scale=demand.scale * scale)
            key = f"{demand.name} {demand.where!r}"
            if key not in demands or scaled.scale < demands[key].scale:  # the stricter one
                demands[key] = scaled
    names = [part.name if t is None else f"{part.name}={t!r}" for part, t in parts]
    return Criterion(
        "+".join(names),
        tuple(demands.values()),
        description=" ".join(part.description for part, _ in parts if part.description),
        declared=largest if given else None,
    )


def _moves(given: Criterion) -> bool:
    return any(demand.scale for demand in given.demands)


def name_to_save(given: Criterion) -> str:
    """Return the name of one of the library's criteria; raise for your own, which are code.

    Examples
    --------
    >>> from fairdial import criterion
    >>> from fairdial.core.criteria import name_to_save
    >>> name_to_save(criterion("demographic_parity"))
    'demographic_parity'
    """
    try:
        known = criterion(given.name) == replace(given, declared=criterion(given.name).declared)
    except InvalidInputError:
        known = False
    if not known:
        raise InvalidInputError(
            "criterion",
            "be one of the library's, or a combination of them, to be saved",
            given=f"your own {given.name!r}",
        )
    if given.declared is not None and len(given.demands) == 1:
        return f"{given.name}={given.declared!r}"
    return given.name


def suggest_criterion(name: object, allowed: Sequence[str]) -> str:
    """Return a hint, after a space, for an unknown criterion; "" if no criterion is close.

    Examples
    --------
    >>> from fairdial.core.criteria import suggest_criterion
    >>> suggest_criterion("demographic parity", ["demographic_parity"])
    " Did you mean 'demographic_parity'?"
    """
    plain = re.sub(r"[\W_]+", "_", name.strip().lower()) if isinstance(name, str) else ""
    rates = [rate.name for rate in RATES]
    if closest_name(plain, rates, 0.85) is not None:
        return f" To limit a rate, write {plain}>=0.8 or {plain}<=0.1."
    return did_you_mean(plain, allowed)
