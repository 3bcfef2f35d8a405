"""The frontier: what each position of the dial does, and the dial itself.

A :class:`Frontier` is a value: the states of the dial, measured on held-out rows, least constrained
first. ``frontier.at(tolerance)`` is the dial. It flows through the whole system: estimators choose
from it, files keep it, figures draw it.
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
from fairdial.paths import Path, States, Table, count_for, share_right
from fairdial.plotting import draw_frontier
from fairdial.points import Point, Points
from fairdial.states_json import plain_name, states_from_data, states_to_data

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Certificate = Literal["declared", "simultaneous", "none"]

CHUNK = 1 << 15  # rows whose intermediate results stay in the cache
STATES_AT_ONCE = 1 << 16
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Frontier:
    """States of the dial on calibration rows, least constrained first.

    Made by :func:`fairdial.sweep`; not to be constructed by hand.

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
    certificate : {"declared", "simultaneous", "none"}
        The strongest statement about new rows that these rows support.
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
        """(S,) the setting of each state: t for two groups, the price T for more."""
        return self.states.setting

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

        Parameters
        ----------
        tolerance : float or array of float
            The largest gap that is wished for, in [0, 1]; an array gives :class:`Points`.
        confidence : float, optional
            Ask for a gap on *new* rows within the tolerance, with this confidence. Several
            tolerances hold together.
        simultaneous : bool
            The statement holds for the whole dial at once, so that the tolerance may be chosen
            after looking. More than two groups: always.

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
        )

    def _warn(self, tolerance: Floats, states: Indices, feasible: NDArray[np.bool_]) -> None:
        worst = int(np.argmin(np.where(feasible, np.inf, tolerance)))
        warn(
            f"no state of the dial has a {self.criterion.name} gap within the tolerance "
            f"{tolerance[worst]:g} on the calibration rows (tied scores and small groups move in "
            f"steps); the smallest gap, {self.gap[states[worst]]:.4g}, is used and "
            "feasible is False",
            InfeasibleToleranceWarning,
        )

    def margin(self, confidence: float = 0.95) -> float:
        """How far the gap on new rows can lie above any state's, for the whole dial at once.

        ``gap + margin(confidence)`` bounds the population gap of every state together.
        """
        alpha = 1.0 - check_fraction(confidence, "confidence")
        if self.certificate == "none":
            raise CannotCertifyError(
                "`confidence` needs a scorer that has not seen the calibration rows; these scores "
                "were cross-fitted or are the training rows' own. Calibrate on held-out rows."
            )
        return statements.uniform_margin(tuple(self.counted.tolist()), alpha)

    def _certified(self, tolerance: Floats, confidence: float, simultaneous: bool) -> Points:
        margin = self.margin(confidence)  # also refuses where nothing can be said
        declared = self.certificate == "declared" and len(self.groups) == 2 and not simultaneous
        alpha = (1.0 - confidence) / max(len(np.unique(tolerance)), 1)
        counts = tuple(self.counted.tolist())
        if declared:
            inner = np.array(
                [statements.inner_tolerance(counts, wish, alpha) for wish in tolerance.tolist()]
            )
            states, feasible = self.states.first_certifiable(inner)
        else:
            inner = tolerance - margin
            states, feasible = self.states.first_within(inner)
        if not feasible.all():
            wish = float(tolerance[~feasible].min())
            raise self._refusal(wish, confidence, alpha if declared else None, margin)
        points = self._points(tolerance, states, feasible)
        bound = tolerance if declared else points.gap + margin
        return replace(points, confidence=confidence, certified_gap=bound)

    def _refusal(
        self, wish: float, confidence: float, alpha: float | None, margin: float
    ) -> CannotCertifyError:
        """What these rows can't promise, what they can, and how many the wish would need."""
        rows = int(self.rows.sum())
        if alpha is None:
            smallest = float(self.gap.min()) + margin
            smallest = math.ceil(smallest / statements.RESOLUTION) * statements.RESOLUTION
        else:
            least = float(self.gap[self.states.certifiable].min())
            counts = self.counted.tolist()
            smallest = statements.smallest_tolerance((counts[0], counts[1]), alpha, least)
            margin = smallest - least
        least = float(self.gap.min())
        tied = least > 2.0 / float(self.counted.min())  # steps that more rows don't make finer
        needed = statements.rows_needed(rows, margin, wish - least if tied else wish)
        can = f"tolerances down to {smallest:.4f}" if smallest <= 1 else "no tolerance"
        if needed is None:
            more = f"no number of rows would do for {wish:g}"
            more += " with scores as tied as these" if tied else ""
        else:
            more = f"about {needed:,} rows like these would do for {wish:g}"
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
        before = self.decide(logits, groups, check_one(tolerance_from, "tolerance_from"))
        after = self.decide(logits, groups, check_one(tolerance_to, "tolerance_to"))
        return after.astype(np.int8) - before.astype(np.int8)

    # ---- other frontiers -----------------------------------------------------------------------

    def _take(self, states: Indices) -> Frontier:
        """The frontier of some states, written out."""
        thresholds, selected = self.states.read(states)
        certifiable = self.states.certifiable[states]
        table = Table(self.setting[states], self.gap[states], certifiable, thresholds, selected)
        return replace(self, states=table)

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
        """One line a state: setting, accuracy, gap, thresholds and rates by group."""
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
            kind = find_criterion(data["criterion"])
            groups, rows = tuple(data["groups"]), np.array(data["rows"], np.int64)
            if rows.ndim != 2 or rows.shape != (len(rows), len(groups)) or len(rows) not in (1, 2):
                raise ValueError("rows by label and group of another shape")
            if data["certificate"] not in ("declared", "simultaneous", "none"):
                raise InvalidInputError(f"`text` has the certificate {data['certificate']!r}.")
            states = states_from_data(data, kind, rows)
            return cls(states, kind, groups, rows, data["certificate"])
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                f"`text` must be what Frontier.to_json wrote, got something else "
                f"({type(error).__name__}: {error})."
            ) from error

    def plot(self, ax: Axes | None = None, *, label: str | None = None, band: bool = False) -> Axes:
        """Accuracy against gap, with the bootstrap band if wished; needs the extra ``plot``."""
        if self.accuracy is None:
            raise InvalidInputError("`plot` needs labels; this frontier was found without.")
        grid = np.linspace(self.gap.min(), self.gap[0], 400)
        states, _ = self.states.first_within(grid)
        accuracy = self._accuracy(self.states.read(states)[1])
        shade = self.band(np.linspace(grid[0], grid[-1], 50), random_state=0) if band else None
        title = f"{self.criterion.name.replace('_', ' ')} gap"
        return draw_frontier(self.gap[states], accuracy, title, ax=ax, label=label, band=shade)

    def __repr__(self) -> str:
        accuracy = ""
        if len(self.rows) == 2:
            accuracy = f", accuracy {self._accuracy(self.states.read(np.array([0]))[1])[0]:.4f}"
        return (
            f"Frontier({self.criterion.name}, groups={list(self.groups)}, "
            f"{int(self.rows.sum()):,} rows, {len(self):,} states, gap {self.gap[0]:.4f}{accuracy} "
            f"down to gap {self.gap.min():.4f})"
        )


def decide(
    logits: NDArray[np.floating[Any]], codes: NDArray[np.integer[Any]], thresholds: Floats
) -> NDArray[np.bool_]:
    """``logits > thresholds[codes]`` in pieces that stay in the cache; NaN is refused."""
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
