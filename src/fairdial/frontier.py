"""The frontier: what each position of the dial does, and the dial itself.

A :class:`Frontier` is a value: the states of the dial, measured on held-out rows, least constrained
first. Its states are thresholds of one score (swept), or settings of a family, each with decisions
of its own (measured). ``frontier.at(tolerance)`` is the dial. It flows through the whole system:
estimators choose from it, files keep it, figures draw it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fairdial import confidence as statements
from fairdial._validation import (
    check_count,
    check_fraction,
    check_one,
    check_same_length,
    check_scores,
    check_tolerance,
    match_groups,
    raise_nan,
)
from fairdial.bootstrap import resampled_accuracy
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import (
    CannotCertifyError,
    InfeasibleToleranceWarning,
    InvalidInputError,
    warn,
)
from fairdial.ladders import Counts, Floats, Indices
from fairdial.metrics import pareto
from fairdial.paths import Path, States, count_for, share_right
from fairdial.plotting import draw_frontier
from fairdial.points import Point, Points
from fairdial.states_json import plain_name, states_from_data, states_to_data

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Certificate = Literal["declared", "simultaneous", "finite", "none"]

CHUNK = 1 << 15  # rows whose intermediate results stay in the cache
STATES_AT_ONCE = 1 << 16
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Frontier:
    """States of the dial on calibration rows, least constrained first.

    Made by :func:`fairdial.sweep` (states are thresholds) or :func:`fairdial.measure` (states are
    settings of a family); not to be constructed by hand.

    Attributes
    ----------
    states : States
        The states; thresholds and counts of a state are rebuilt when they are asked for.
    criterion : Criterion
        What is being equalised.
    groups : tuple
        Names of the groups, in the order of their codes.
    rows : (L, K) int64
        Calibration rows by label (L is 1 without labels) and group.
    certificate : {"declared", "simultaneous", "finite", "none"}
        The strongest statement about new rows that these rows support; "finite" is that of a
        measured family.

    Examples
    --------
    >>> from fairdial import sweep
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(10_000, random_state=0)
    >>> frontier = sweep(rows.logits, rows.groups, rows.y)
    >>> frontier.groups
    ('group 0', 'group 1')
    >>> frontier.at(0.05).gap <= 0.05
    True
    >>> decisions = frontier.decide(rows.logits, rows.groups, tolerance=0.05)
    """

    states: States
    criterion: Criterion
    groups: tuple[Hashable, ...]
    rows: Counts
    certificate: Certificate = "declared"

    # ---- columns -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.states)

    @property
    def setting(self) -> Floats:
        """(S,) the setting of each state: t for two groups, the price T for more; or measured."""
        return self.states.setting

    @property
    def measured(self) -> bool:
        """Whether the states are settings of a family rather than thresholds of one score."""
        return self.states.family is not None

    @property
    def gap(self) -> Floats:
        """(S,) highest minus lowest rate of each state."""
        return self.states.gap

    @cached_property
    def accuracy(self) -> Floats | None:
        """(S,) accuracy of each state; None without labels."""
        if len(self.rows) == 1:
            return None
        states = np.arange(len(self))
        blocks = [states[i : i + STATES_AT_ONCE] for i in range(0, len(self), STATES_AT_ONCE)]
        return np.concatenate([self._accuracy(self.states.read(b)[1]) for b in blocks])

    def _accuracy(self, selected: Counts) -> Floats:
        return share_right(selected, *self._totals)

    @cached_property
    def _totals(self) -> tuple[int, int]:
        """Rows with label 0, and all rows."""
        return int(self.rows[0].sum()), int(self.rows.sum())

    @property
    def counted(self) -> Counts:
        """(K,) rows that count for the criterion."""
        return count_for(self.criterion, self.rows)

    @property
    def beforehand(self) -> bool:
        """Whether ``confidence=`` alone is for tolerances that were decided on beforehand.

        ``simultaneous=True`` is for any. Where this is False, ``confidence=`` always is.
        """
        return self.certificate == "declared" and len(self.groups) == 2

    # ---- the dial ------------------------------------------------------------------------------

    @overload
    def at(
        self, tolerance: float, *, confidence: float | None = ..., simultaneous: bool = ...
    ) -> Point: ...
    @overload
    def at(
        self,
        tolerance: NDArray[Any] | list[float] | tuple[float, ...],
        *,
        confidence: float | None = ...,
        simultaneous: bool = ...,
    ) -> Points: ...
    def at(
        self, tolerance: Any, *, confidence: float | None = None, simultaneous: bool = False
    ) -> Point | Points:
        """Where the dial stands for a tolerance: the least constrained state within it.

        Of a measured family: the most accurate setting within it; without labels, the first.

        Parameters
        ----------
        tolerance : float or array of float
            The largest gap that is wished for, in [0, 1]; an array gives :class:`Points`.
        confidence : float, optional
            Ask for a gap on *new* rows within the tolerance, with this confidence. Several
            tolerances hold together.
        simultaneous : bool
            The statement holds for the whole dial at once, so that the tolerance may be chosen
            after looking. More than two groups, and a measured family: always.

        Raises
        ------
        CannotCertifyError
            The rows don't support the statement; the error says which tolerance they would
            support and about how many rows the wish needs.

        Examples
        --------
        >>> from fairdial import sweep
        >>> from fairdial.datasets import make_gaussian
        >>> sample = make_gaussian(20_000, random_state=0)
        >>> frontier = sweep(sample.logits, sample.groups, sample.y)
        >>> frontier.at(0.1).gap <= 0.1
        True
        >>> frontier.at(0.1, confidence=0.95).gap < frontier.at(0.1).gap
        True
        """
        wishes = check_tolerance(tolerance)
        column = wishes.reshape(-1)
        if confidence is None:
            states, feasible = self.states.first_within(column)
            if not feasible.all():
                self._warn(column, states, feasible)
            points = self._points(column, states, feasible)
        else:
            points = self._certified(column, check_fraction(confidence, "confidence"), simultaneous)
        return points if wishes.ndim else points[0]

    def _points(self, tolerance: Floats, states: Indices, feasible: NDArray[np.bool_]) -> Points:
        thresholds, selected = self.states.read(states)
        return Points(
            tolerance=tolerance,
            setting=self.setting.take(states),
            accuracy=self._accuracy(selected) if len(self.rows) == 2 else None,
            gap=self.gap.take(states),
            feasible=feasible,
            thresholds=thresholds,
            selected=selected,
            rows=self.rows,
            groups=self.groups,
            criterion=self.criterion,
            states=states,
            measured=self.measured,
        )

    def _warn(self, tolerance: Floats, states: Indices, feasible: NDArray[np.bool_]) -> None:
        worst = int(np.argmin(np.where(feasible, np.inf, tolerance)))
        who, why = "no state of the dial", " (tied scores and small groups move in steps)"
        if self.measured:
            who, why = f"none of the {len(self)} settings", ""
        elif self.certificate == "simultaneous":  # thresholds at edges of bins
            why = (
                " (scores in one bin, tied scores and small groups move in steps; where the bins "
                "are too coarse for the scale of the scores, more `bits` or exact `tolerances=` "
                "take them apart)"
            )
        warn(
            f"{who} has a {self.criterion.name} gap within the tolerance {tolerance[worst]:g} on "
            f"the calibration rows{why}; the smallest gap, {self.gap[states[worst]]:.4g}, is used "
            "and feasible is False",
            InfeasibleToleranceWarning,
        )

    def margin(self, confidence: float = 0.95) -> float:
        """How far the gap on new rows can lie above any state's, for the whole dial at once.

        ``gap + margin(confidence)`` bounds the population gap of every state together; of a
        measured family, of every setting that was fixed before the rows were looked at.
        """
        alpha = 1.0 - check_fraction(confidence, "confidence")
        if self.certificate == "none":
            raise CannotCertifyError(
                "`confidence` needs a scorer that has not seen the calibration rows; these scores "
                "were cross-fitted or are the training rows' own. Calibrate on held-out rows."
            )
        counts, family = tuple(self.counted.tolist()), self.states.family
        if family is None:
            return statements.uniform_margin(counts, alpha)
        if family == 0:
            raise CannotCertifyError(
                "`confidence` needs settings that were fixed before the calibration rows were "
                "looked at; none of these was. Calibrate on other rows than they were found on."
            )
        return statements.finite_margin(counts, alpha, family)

    def _certified(self, tolerance: Floats, confidence: float, simultaneous: bool) -> Points:
        margin = self.margin(confidence)  # also refuses where nothing can be said
        two, alpha = len(self.groups) == 2, 1.0 - confidence
        if self.measured:
            points = self._within(tolerance, alpha if two else None, confidence, margin)
            bound = np.minimum(tolerance, points.gap + margin)  # theorem 3: both hold together
        elif self.beforehand and not simultaneous:
            alpha /= max(len(np.unique(tolerance)), 1)
            points, bound = self._within(tolerance, alpha, confidence, margin), tolerance
        else:
            points = self._within(tolerance, None, confidence, margin)
            bound = points.gap + margin
        return replace(points, confidence=confidence, certified_gap=bound)

    def _within(
        self, tolerance: Floats, alpha: float | None, confidence: float, margin: float
    ) -> Points:
        """Points that can be certified: by exact tails where ``alpha`` is given, or the margin."""
        inner, family = tolerance - margin, self.states.family
        if alpha is not None:
            counts = tuple(self.counted.tolist())
            exact = [
                statements.inner_tolerance(counts, wish, alpha, family)
                for wish in tolerance.tolist()
            ]
            inner = np.array(exact) if family is None else np.maximum(inner, exact)
        swept = alpha is None and family is None
        find = self.states.first_within if swept else self.states.first_certifiable
        states, feasible = find(inner)
        if not feasible.all():
            raise self._refusal(float(tolerance[~feasible].min()), confidence, alpha, margin)
        return self._points(tolerance, states, feasible)

    def _refusal(
        self, wish: float, confidence: float, alpha: float | None, margin: float
    ) -> CannotCertifyError:
        """What these rows can't promise, what they can, and how many the wish would need."""
        rows, family = int(self.rows.sum()), self.states.family
        certain = float(self.gap[self.states.certifiable].min(initial=1.0))
        least = float(self.gap.min()) if family is None else certain
        smallest = math.inf
        if alpha is None or family is not None:
            smallest = math.ceil((least + margin) / statements.RESOLUTION) * statements.RESOLUTION
        if alpha is not None:
            counts = tuple(self.counted.tolist())
            exact = statements.smallest_tolerance(counts, alpha, certain, family)
            smallest = min(smallest, exact)
            margin = smallest - certain
        tied = self.measured or least > 2.0 / float(self.counted.min())  # more rows don't help
        needed = statements.rows_needed(rows, margin, wish - least if tied else wish)
        can = f"tolerances down to {smallest:.4f}" if smallest <= 1 else "no tolerance"
        if needed is None:
            more = f"no number of calibration rows would do for {wish:g}"
            if tied:
                more += " with these settings" if self.measured else " with scores as tied as these"
        else:
            more = f"about {needed:,} calibration rows like these would do for {wish:g}"
        return CannotCertifyError(
            f"`tolerance`={wish:g} can't be certified with confidence {confidence:g}: {rows:,} "
            f"calibration rows (smallest gap {least:.4g}) can certify {can}; {more}.",
            smallest_tolerance=smallest if smallest <= 1 else None,
            rows_needed=needed,
        )

    def least_disparity(self, *, accuracy: float) -> Point:
        """The smallest gap that the dial reaches with at least this accuracy.

        ``at(point.tolerance)`` leads back to the point.

        Examples
        --------
        >>> from fairdial import sweep
        >>> from fairdial.datasets import make_gaussian
        >>> sample = make_gaussian(20_000, random_state=0)
        >>> frontier = sweep(sample.logits, sample.groups, sample.y)
        >>> frontier.least_disparity(accuracy=0.76).accuracy >= 0.76
        True
        """
        if self.accuracy is None:
            raise InvalidInputError("`accuracy` needs labels; this frontier was found without.")
        if not isinstance(accuracy, (int, float, np.number)) or not 0 <= accuracy <= 1:
            raise InvalidInputError(f"`accuracy` must lie in [0, 1], got {accuracy!r}.")
        dialled = self.states.dialled
        able = (self.accuracy >= accuracy) & dialled
        if not able.any():
            raise InvalidInputError(
                f"`accuracy` must be reachable: the most accurate position of the dial has "
                f"{self.accuracy[dialled].max():.4f}, got {accuracy:g}."
            )
        state = np.array([np.argmin(np.where(able, self.gap, np.inf))])
        return self._points(self.gap[state], state, np.array([True]))[0]  # type: ignore[no-any-return]

    def decide(
        self, logits: ArrayLike, groups: Any, tolerance: Any, *, confidence: float | None = None
    ) -> NDArray[np.bool_]:
        """Decisions for scored rows at a tolerance, or at one tolerance for each row.

        With ``confidence`` as in :meth:`at`; for one tolerance a row it is the simultaneous one.

        A decision is ``logit > threshold``, strictly: the same for the same row, whoever else is
        among the rows.

        Examples
        --------
        >>> from fairdial import sweep
        >>> from fairdial.datasets import make_gaussian
        >>> sample = make_gaussian(20_000, random_state=0)
        >>> frontier = sweep(sample.logits, sample.groups, sample.y)
        >>> bool(frontier.decide([5.0], ["group 0"], tolerance=0.05)[0])
        True
        """
        self._refuse_measured("decide")
        scores = check_scores(logits, nan=False)
        codes = match_groups(groups, self.groups)
        check_same_length(scores, codes, ("logits", "groups"))
        wishes = check_tolerance(tolerance)
        if wishes.ndim == 0:
            point = self.at(float(wishes), confidence=confidence)
            return decide(scores, codes, point.thresholds)
        check_same_length(scores, wishes, ("logits", "tolerance"))
        thresholds = self.row_thresholds(wishes, codes, confidence=confidence)
        if np.isnan(scores).any():
            raise_nan(scores, "logits")
        return np.asarray(scores > thresholds)

    def row_thresholds(
        self, tolerances: Floats, codes: NDArray[Any], *, confidence: float | None = None
    ) -> Floats:
        """(n,) thresholds of rows with group codes and a checked tolerance each.

        Confidence is simultaneous, so that a row's threshold is its own, whoever else is asked.
        """
        self._refuse_measured("row_thresholds")
        distinct, place = np.unique(tolerances, return_inverse=True)
        points = self.at(distinct, confidence=confidence, simultaneous=True)
        thresholds: Floats = points.thresholds[place, codes]
        return thresholds

    def flips(
        self, logits: ArrayLike, groups: Any, tolerance_from: float, tolerance_to: float
    ) -> NDArray[np.int8]:
        """Which scored rows change decision when the dial moves: +1 gained, -1 lost, 0 same.

        Examples
        --------
        >>> from fairdial import sweep
        >>> from fairdial.datasets import make_gaussian
        >>> sample = make_gaussian(20_000, random_state=0)
        >>> frontier = sweep(sample.logits, sample.groups, sample.y)
        >>> moved = frontier.flips(sample.logits, sample.groups, 0.3, 0.05)
        >>> set(moved[sample.groups == "group 0"]) == {0, 1}
        True
        """
        self._refuse_measured("flips")
        before = self.decide(logits, groups, check_one(tolerance_from, "tolerance_from"))
        after = self.decide(logits, groups, check_one(tolerance_to, "tolerance_to"))
        return after.astype(np.int8) - before.astype(np.int8)

    def _refuse_measured(self, name: str) -> None:
        if self.measured:
            raise InvalidInputError(
                f"`{name}` needs thresholds on one score, got a measured family, whose decisions "
                "come from its own margins: use the model's predict; "
                "frontier.at(tolerance).setting names the setting."
            )

    # ---- other frontiers -----------------------------------------------------------------------

    def _take(self, states: Indices) -> Frontier:
        """The frontier of some states, written out."""
        return replace(self, states=self.states.take(states))

    def thin(self, k: int) -> Frontier:
        """At most ``k`` states, evenly spaced in gap; the first and the last stay.

        At the gaps kept, ``at`` gives the same answers as before.
        """
        check_count(k, "k", least=2)
        grid = np.linspace(self.gap[0], self.gap.min(), k)
        return self._take(np.unique(self.states.first_within(np.append(grid, self.gap.min()))[0]))

    def pareto(self) -> Frontier:
        """Only the states that no other beats in accuracy and gap."""
        if self.accuracy is None:
            raise InvalidInputError("`pareto` needs labels; this frontier was found without.")
        return self._take(np.flatnonzero(pareto(np.column_stack((self.accuracy, self.gap)))))

    def band(
        self,
        tolerances: ArrayLike | None = None,
        *,
        confidence: float = 0.95,
        n_boot: int = 1000,
        random_state: int | None = None,
    ) -> pd.DataFrame:
        """Bootstrap band: how the frontier would vary with other calibration rows.

        Rows are resampled within groups (by counts of 256 score classes a group, so the cost
        doesn't grow with the rows), the path is found anew and each tolerance is set on it.

        Returns
        -------
        DataFrame
            One line a tolerance: ``tolerance``, ``accuracy`` here, ``lower`` and ``upper``.
        """
        if self.measured:
            raise InvalidInputError(
                "`band` needs the score of each row to draw them anew, got a measured family, of "
                "which only counts are kept."
            )
        if self.accuracy is None or not isinstance(self.states, Path):
            raise InvalidInputError("`band` needs a frontier with labels that was not thinned.")
        level = (1.0 - check_fraction(confidence, "confidence")) / 2
        check_count(n_boot, "n_boot")
        grid = np.linspace(0.0, self.gap[0], 50) if tolerances is None else tolerances
        wishes = np.atleast_1d(check_tolerance(grid, "tolerances"))
        rng = np.random.default_rng(random_state)
        here = self._accuracy(self.states.read(self.states.first_within(wishes)[0])[1])
        classes, draws = resampled_accuracy(self.states, wishes, n_boot, rng)
        draws += here - classes  # what the score classes cost, not the rows
        lower, upper = np.nanquantile(draws, [level, 1.0 - level], axis=0)
        return pd.DataFrame({"tolerance": wishes, "accuracy": here, "lower": lower, "upper": upper})

    # ---- out and in ----------------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """One line a state: setting, accuracy, gap, thresholds (if swept) and rates by group."""
        states = np.arange(len(self))
        feasible = np.ones(len(self), np.bool_)
        frame = self._points(self.gap, states, feasible).to_frame()
        return frame.drop(columns=["tolerance", "feasible"])

    def to_json(self) -> str:
        """The frontier as JSON text; :meth:`from_json` gives it back, equal to the last bit."""
        data = {
            "format": "fairdial.frontier",
            "version": FORMAT,
            "criterion": self.criterion.name,
            "groups": [plain_name(group) for group in self.groups],
            "rows": self.rows.tolist(),
            "certificate": self.certificate,
            **states_to_data(self.states),
        }
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Frontier:
        """The frontier that :meth:`to_json` wrote."""
        try:
            data = json.loads(text)
            if data["format"] != "fairdial.frontier":
                raise InvalidInputError(f"`text` must be a frontier, got {data['format']!r}.")
            if data["version"] > FORMAT:
                raise InvalidInputError(
                    f"`text` has format version {data['version']}, this fairdial reads up to "
                    f"{FORMAT}; install a newer one."
                )
            return frontier_from_data(data)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                f"`text` must be what Frontier.to_json wrote, got something else "
                f"({type(error).__name__}: {error})."
            ) from error

    def plot(self, ax: Axes | None = None, *, label: str | None = None, band: bool = False) -> Axes:
        """Accuracy against gap, with the bootstrap band if wished; needs the extra ``plot``.

        A measured family: a dot for each setting, and the line is where the dial stands.
        """
        if self.accuracy is None:
            raise InvalidInputError("`plot` needs labels; this frontier was found without.")
        grid = np.linspace(self.gap.min(), self.gap[0], 400)
        shade = self.band(np.linspace(grid[0], grid[-1], 50), random_state=0) if band else None
        title = f"{self.criterion.name.replace('_', ' ')} gap"
        if self.measured:
            states = np.flatnonzero(self.states.dialled)[::-1]
            gaps = np.append(self.gap[states], self.gap.max())  # the first answers all above it
            accuracy = self.accuracy[np.append(states, 0)]
            dots = self.gap, self.accuracy
            return draw_frontier(gaps, accuracy, title, ax=ax, label=label, settings=dots)
        states, _ = self.states.first_within(grid)
        accuracy = self._accuracy(self.states.read(states)[1])
        return draw_frontier(self.gap[states], accuracy, title, ax=ax, label=label, band=shade)

    def __repr__(self) -> str:
        accuracy, kind = "", "settings" if self.measured else "states"
        if len(self.rows) == 2:
            accuracy = f", accuracy {self._accuracy(self.states.read(np.array([0]))[1])[0]:.4f}"
        return (
            f"Frontier({self.criterion.name}, groups={list(self.groups)}, "
            f"{int(self.rows.sum()):,} rows, {len(self):,} {kind}, gap {self.gap[0]:.4f}{accuracy} "
            f"down to gap {self.gap.min():.4f})"
        )


def frontier_from_data(data: dict[str, Any]) -> Frontier:
    """A frontier from plain data or arrays, checked; ValueError and the like: it is none."""
    kind = find_criterion(data["criterion"])
    groups, rows = tuple(data["groups"]), np.array(data["rows"], np.int64)
    if rows.ndim != 2 or rows.shape != (len(rows), len(groups)) or len(rows) not in (1, 2):
        raise ValueError("rows by label and group of another shape")
    if kind.needs_labels and len(rows) == 1:
        raise ValueError(f"rows without the labels that {kind.name} needs")
    states = states_from_data(data, kind, rows)
    swept = "declared", "simultaneous", "none"
    known = swept if states.family is None else ("finite", "none")
    if data["certificate"] not in known:
        raise InvalidInputError(f"`text` has the certificate {data['certificate']!r}.")
    return Frontier(states, kind, groups, rows, data["certificate"])


def decide(
    logits: NDArray[np.floating[Any]], codes: NDArray[np.integer[Any]], thresholds: Floats
) -> NDArray[np.bool_]:
    """``logits > thresholds[codes]``, eq:f_erm, in pieces that fit the cache; NaN is refused."""
    decisions = np.empty(len(logits), np.bool_)
    with np.errstate(over="ignore"):
        limits = thresholds.astype(logits.dtype)
    above = limits > thresholds  # scores may be coarser than those of calibration: round down
    limits[above] = np.nextafter(limits[above], -np.inf, dtype=logits.dtype)
    for start in range(0, len(logits), CHUNK):
        rows = slice(start, start + CHUNK)
        scores, group, out = logits[rows], codes[rows], decisions[rows]
        if len(limits) == 2:
            np.greater(scores, limits[0], out=out)
            other = np.greater(scores, limits[1])
            other ^= out
            other &= group.astype(np.bool_)
            out ^= other
        else:
            np.greater(scores, limits[group], out=out)
        if np.isnan(scores.min()):
            raise_nan(logits, "logits")
    return decisions
