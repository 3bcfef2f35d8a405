"""The frontier: all operating points of a dial, and the dial itself.

A :class:`Frontier` is a value: the operating points, measured on held-out rows, least constrained
first. They are thresholds of one score (:func:`fairdial.sweep`) or models of a family
(:func:`fairdial.measure`). ``frontier.at(tolerance)`` is the dial.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairdial._arrays import Codes, Counts, Floats, Indices, Mask, Scores
from fairdial._validation import (
    check_class_scores,
    check_confidence,
    check_count,
    check_fraction,
    check_one_tolerance,
    check_posterior,
    check_same_length,
    check_scores,
    check_tolerance,
    match_groups,
    order_columns,
    raise_nan,
)
from fairdial.core.bootstrap import resampled_accuracy
from fairdial.core.certify import Certifier, find_theorem, simultaneous_margin
from fairdial.core.class_prices import choose_class, class_values, probabilities
from fairdial.core.criteria import Criterion
from fairdial.core.decide import (
    accuracy_of_counts,
    accuracy_of_net,
    by_label,
    class_accuracy,
    rows_by_class,
    select,
    select_by_group,
)
from fairdial.core.decision_sql import write_decision
from fairdial.core.lottery import hash_uniform
from fairdial.core.nested import NestedPoints
from fairdial.core.objectives import Objective
from fairdial.core.operating_points import OperatingPoints, PointTable
from fairdial.core.overlap import OverlapPoints
from fairdial.core.pareto import pareto
from fairdial.core.point import Point, Points, number_of_rows
from fairdial.core.price_points import PricePoints
from fairdial.core.prices import margins
from fairdial.core.problem import Problem
from fairdial.core.rule_sequences import Guide
from fairdial.core.searched import SearchedPoints
from fairdial.core.serialization import Certificate as Certificate
from fairdial.core.serialization import read_frontier, write_frontier
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import (
    CannotCertifyError,
    ConstantDecisionsWarning,
    FairdialWarning,
    InfeasibleToleranceWarning,
    InvalidInputError,
    renamed,
    warn,
)
from fairdial.plotting import draw_frontier

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LOTTERY = b"fairdial lottery"  # salt of the draws
MAX_ROW_TOLERANCES = 64  # distinct ones, where each is a search
CHUNK = 1 << 16  # points whose counts are computed at once


def refuse_prices(frontier: Frontier, what: str) -> None:
    """Raise if prices decide, which can't be ``what``: "served", "exported", ..."""
    if frontier.classes is not None:
        raise InvalidInputError(
            "model",
            f"have two classes to be {what}",
            given=f"one with {len(frontier.classes)}",
            hint="Decide with predict, or train a model of one class against the others.",
        )
    if frontier.is_blind:
        raise InvalidInputError(
            "model",
            f"decide by group thresholds to be {what}",
            given="a blind one, which decides by prices",
            hint="Decide with predict.",
        )


def refuse_groupings(frontier: Frontier, what: str) -> None:
    """Raise if groups of single columns are compared, which can't be ``what``: "served", ..."""
    if frontier.criterion.has_groupings:
        raise InvalidInputError(
            "model",
            f"compare intersections alone to be {what}",
            given="one that compares the groups of single columns",
            hint="Calibrate with groups='intersection'.",
        )


@dataclass(frozen=True, eq=False)
class Frontier:
    """The operating points of a dial on calibration rows, least constrained first.

    Made by :func:`fairdial.sweep` (thresholds) or :func:`fairdial.measure` (models of a family),
    not by hand.

    Attributes
    ----------
    points : OperatingPoints
        The points; thresholds and counts of a point are computed on demand.
    problem : Problem
        Criterion, objective and budget.
    groups : tuple
        Names of the groups, in the order of their codes.
    cells : (C, K)
        Calibration rows by kind (stratum and label) and group: the sums of their weights.
    certificate : {"declared", "simultaneous", "finite", "weighted", "none"}
        The strongest statement about new rows that the calibration rows support; "finite" is that
        of a model family. There is none for weighted rows.
    guide : Guide or None
        Rules found on other rows, which certificates test (:meth:`guided_by`).
    classes : tuple or None
        Names of the classes of a dial with more than two (:func:`fairdial.sweep_classes`). Kinds
        are then class and label, which says whether a row belongs to the class, and each class
        counts all rows.

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

    points: OperatingPoints
    problem: Problem
    groups: tuple[Hashable, ...]
    cells: Counts
    certificate: Certificate = "declared"
    guide: Guide | None = None
    classes: tuple[Hashable, ...] | None = None

    rows = renamed("rows", "counts")
    measured = renamed("measured", "is_family")

    # ---- columns -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.points)

    @property
    def criterion(self) -> Criterion:
        """The fairness criterion."""
        return self.problem.criterion

    @property
    def objective(self) -> Objective:
        """What the thresholds maximize."""
        return self.problem.objective

    @cached_property
    def counts(self) -> Counts:
        """(L, K) calibration rows by label (L is 1 without labels) and group."""
        if self.classes is not None:
            return rows_by_class(self.cells, len(self.classes))
        return by_label(self.cells, len(self.cells) // self.criterion.n_strata)

    @property
    def setting(self) -> Floats:
        """(S,) t for two groups, the price T for more; or the setting of a model in a family.

        Of points found by search, the tolerance that they were found at.
        """
        return self.points.setting

    @property
    def nested(self) -> bool:
        """Whether each row changes its decision at most once along the dial."""
        if isinstance(self.points, PricePoints):
            return self.points.is_nested
        complete = getattr(self.points, "is_complete", True)  # no search takes over
        return bool(self.problem.nested) or (self.problem.uses_path and complete)

    @property
    def mixes(self) -> bool:
        """Whether rows with different tolerances keep the largest of them together on new data.

        They do along the threshold path of two groups, where each group's rate moves one way. With
        more groups, rates may cross in the population; elsewhere each tolerance has decisions of
        its own.
        """
        complete = getattr(self.points, "is_complete", True)
        known_groups = not (self.is_family or self.has_prices)
        return self.problem.uses_path and complete and known_groups and len(self.groups) <= 2

    def check_mixture(self, n_tolerances: int, confidence: float | None) -> None:
        """Raise if rows with so many different tolerances can't have a confidence together."""
        if confidence is not None and n_tolerances > 1 and not self.mixes:
            raise InvalidInputError(
                "tolerance",
                "be one number with `confidence`",
                given=f"{n_tolerances} tolerances",
                hint="Each would hold if all rows had it; together they may have a larger gap.",
            )

    @property
    def nested_loss(self) -> float | None:
        """The largest loss of the objective that nesting costs; None if it isn't known."""
        return self.points.loss if isinstance(self.points, NestedPoints) else None

    @property
    def is_family(self) -> bool:
        """Whether the points are models of a family rather than thresholds of one score."""
        return self.points.n_declared is not None

    @property
    def is_blind(self) -> bool:
        """Whether prices decide, with probabilities of the groups in place of groups."""
        return self.has_prices and self.classes is None

    @property
    def has_prices(self) -> bool:
        """Whether prices decide rather than thresholds."""
        return isinstance(self.points, PricePoints)

    @property
    def has_labels(self) -> bool:
        """Whether the calibration rows have labels."""
        return len(self.cells) == 2 * self.criterion.n_strata

    @property
    def gap(self) -> Floats:
        """(S,) the smallest tolerance that allows each point."""
        return self.points.gap

    @cached_property
    def accuracy(self) -> Floats | None:
        """(S,) accuracy; None without labels."""
        if not self.has_labels:
            return None
        if isinstance(self.points, ThresholdPath) and self.points.net_correct is not None:
            return accuracy_of_net(self.points.net_correct, self.counts)
        points = np.arange(len(self))
        blocks = [points[i : i + CHUNK] for i in range(0, len(self), CHUNK)]
        return np.concatenate([self.accuracy_of(block) for block in blocks])

    def accuracy_of(self, points: Indices) -> Floats:
        """Return the accuracy of some points, (s,); only with labels."""
        if self.classes is not None:
            return class_accuracy(self.points.read(points)[1], self.counts)
        return accuracy_of_counts(self._by_label(points), self.counts)

    def value_of(self, points: Indices) -> Floats:
        """Return the objective of some points on the labels, (s,); only with labels."""
        if self.classes is not None:
            return self.accuracy_of(points)
        return self.objective.value_of(self._by_label(points), self.counts)

    def _by_label(self, points: Indices) -> Counts:
        return by_label(self.points.read(points)[1], len(self.counts))

    @property
    def eligible(self) -> Counts:
        """(K,) eligible rows; with several demands, the smallest number of each group."""
        return self.criterion.eligible_counts(self.cells)

    @property
    def needs_declared_tolerance(self) -> bool:
        """Whether ``confidence`` without ``simultaneous`` assumes a tolerance chosen in advance."""
        return self._theorem(simultaneous=False) in (1, 5)

    def _theorem(self, *, simultaneous: bool) -> int:
        """Return the theorem of a certificate, by a rule that doesn't depend on counts."""
        simultaneous |= self.certificate != "declared"
        return find_theorem(self.points, self.problem, len(self.groups), simultaneous=simultaneous)

    @property
    def can_certify(self) -> bool:
        """Whether the calibration rows support statements about new rows at all."""
        if self.problem.randomize is not None or self.certificate in ("weighted", "none"):
            return False
        if isinstance(self.points, PricePoints):
            return self.points.rules is not None and self.certificate == "declared"
        theorem, demands = self._theorem(simultaneous=False), self.criterion.demands
        if theorem == 3:
            return all(demand.is_certifiable for demand in demands)
        return theorem != 2 or all(demand.rate.direction for demand in demands)

    @cached_property
    def _certifier(self) -> Certifier:
        parts = self.points, self.problem, self.cells, self.groups, self.guide
        return Certifier(*parts, classes=self.classes is not None)

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
        """Return the least constrained operating point within a tolerance.

        In a model family, it is the most accurate model within the tolerance; without labels, the
        first.

        Parameters
        ----------
        tolerance : float or array of float
            The largest allowed gap, in [0, 1]; an array gives :class:`Points`.
        confidence : float, optional
            Keep the gap on *new* rows within the tolerance, with this confidence, at least 0.5 and
            below 1. Statements about
            several tolerances hold together.
        simultaneous : bool
            Make the statement for the whole dial at once, so that the tolerance may be chosen
            after looking. Always so for a model family and for recalibrated scores.

        Raises
        ------
        CannotCertifyError
            The rows don't support the statement; the error says which tolerance they support, and
            about how many rows the requested one needs.

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
        tolerances = check_tolerance(tolerance)
        column = tolerances.reshape(-1)
        if confidence is None:
            table, feasible = self.points.choose(column)
            if not feasible.all():
                self._warn(column, table.gap, feasible)
            points = self._points(column, table, feasible)
            self._warn_if_constant(points)
            self._warn_if_unproved(column[feasible])
        else:
            points = self._certified(column, check_confidence(confidence), simultaneous)
        return points if tolerances.ndim else points[0]

    def _points(self, tolerance: Floats, table: PointTable, feasible: Mask) -> Points:
        thresholds, selected = table.read(np.arange(len(table)))
        return Points(
            tolerance=tolerance,
            setting=table.setting,
            gap=table.gap,
            feasible=feasible,
            thresholds=thresholds,
            selected_cells=selected,
            cells=self.cells,
            groups=self.groups,
            problem=self.problem,
            source=self.points,
            indices=table.indices,
            mixture=table.mixture,
            is_family=self.is_family,
            weighted=self.certificate == "weighted",
            prices=table.prices if isinstance(table, PricePoints) else None,
            gains=table.gains if isinstance(table, PricePoints) else None,
            classes=self.classes,
        )

    def _warn(self, tolerance: Floats, gap: Floats, feasible: Mask) -> None:
        worst = int(np.argmin(np.where(feasible, np.inf, tolerance)))
        if self.is_family:
            reason = f"The family has {len(self)} models."
        elif tolerance[worst] in self.points.unproved:
            reason = "The search for a smaller one was stopped early."
        elif isinstance(self.points, OverlapPoints):
            reason = "No thresholds of intersections with a smaller one were found."
        elif isinstance(self.points, SearchedPoints):
            reason = "No group thresholds have a smaller one."
            if self.problem.rising:
                reason = "No thresholds at which nobody loses have a smaller one."
        elif isinstance(self.points, ThresholdPath):
            reason = "Only the same decision for everybody would reach it."
            if self.points.is_complete:
                reason = "The path ends there; `nested=False` searches all thresholds."
        elif isinstance(self.points, NestedPoints):
            reason = "The nested dial ends there; `nested=False` goes further."
        elif self.is_blind:
            reason = "Groups that are known only with probabilities allow no less."
        elif self.classes is not None:
            reason = "No prices on the path have a smaller one."
        else:
            reason = f"The frontier holds {len(self)} points."
        if self.certificate == "simultaneous":  # thresholds at edges of bins
            reason += " If the bins are too coarse for the scores, use more `bits` or `tolerances`."
        warn(
            f"No operating point reaches the tolerance {tolerance[worst]:g} for "
            f"{self.criterion.name} on the calibration rows; the smallest gap, "
            f"{gap[worst]:.4g}, is used. {reason}",
            InfeasibleToleranceWarning,
        )

    def _warn_if_unproved(self, tolerance: Floats) -> None:
        stopped = [value for value in tolerance.tolist() if value in self.points.unproved]
        if stopped:
            warn(
                f"The search at the tolerance {stopped[0]:g} was stopped early: the thresholds are "
                "within the tolerance, but better ones may exist. Choose a larger tolerance.",
                FairdialWarning,
            )

    def _warn_if_constant(self, points: Points) -> None:
        """Warn if a tolerance is reached only by deciding the same for everybody."""
        if self.is_family or len(self.groups) == 1:
            return
        if self.classes is not None:
            self._warn_if_one_class(points)
            return
        n_selected, n_rows = points.selected.sum(axis=(1, 2)), self.cells.sum()
        for value, what in ((0, "nobody"), (n_rows, "everybody")):
            same = np.flatnonzero(n_selected == value)
            if len(same) and self.points.n_unconstrained != value:
                warn(
                    f"At the tolerance {points.tolerance[same[0]]:g} the thresholds select {what}: "
                    f"that has no {self.criterion.name} gap, but no use either. Choose a larger "
                    "tolerance or calibrate on more rows.",
                    ConstantDecisionsWarning,
                )
                return

    def _warn_if_one_class(self, points: Points) -> None:
        assert self.classes is not None
        n_rows = self.counts.sum()
        free = self._points(
            np.ones(1), self.points.tabulate(np.zeros(1, np.intp)), np.ones(1, bool)
        )
        if (free.selected.sum(axis=2) == n_rows).any():
            return
        for place, c in np.argwhere(points.selected.sum(axis=2) == n_rows)[:1]:
            warn(
                f"At the tolerance {points.tolerance[place]:g} everybody gets the class "
                f"{self.classes[c]!r}: that has no {self.criterion.name} gap, but no use either. "
                "Choose a larger tolerance or calibrate on more rows.",
                ConstantDecisionsWarning,
            )

    def margin(self, confidence: float = 0.95) -> float:
        """Return how far the gap on new rows can exceed the measured one, for all points at once.

        ``gap + margin(confidence)`` bounds the population gaps of all points together; of a model
        family, those of the settings that were fixed before looking at the rows.
        """
        alpha = 1.0 - check_confidence(confidence)
        if self.has_prices:
            raise CannotCertifyError(
                "A margin for all points at once needs thresholds of one score, got prices."
            )
        self._refuse_seen_rows()
        return simultaneous_margin(self.points, self.criterion, self.cells, alpha)

    def _refuse_seen_rows(self) -> None:
        if self.problem.randomize is not None:
            raise CannotCertifyError(
                "`confidence` needs decisions without a lottery: rows with the same key share a "
                "draw, so the gap on new rows may differ from the expected one."
            )
        if (
            isinstance(self.points, PricePoints)
            and self.points.unknown
            and (self.points.estimate is None)
        ):
            raise CannotCertifyError(
                "`confidence` needs calibration rows whose group is known, got none."
            )
        if self.certificate == "weighted":
            raise CannotCertifyError(
                "`confidence` needs rows that count equally, got `sample_weight`. Calibrate "
                "without weights; to keep their effect, keep each row with a probability in "
                "proportion to its weight."
            )
        if self.certificate == "none":
            raise CannotCertifyError(
                "`confidence` needs a scorer that hasn't seen the calibration rows, got scores of "
                "training rows or cross-fitted scores. Calibrate on held-out rows."
            )

    def _certified(self, tolerance: Floats, confidence: float, simultaneous: bool) -> Points:
        self._refuse_seen_rows()
        simultaneous |= self.certificate != "declared"
        found = self._certifier.certify(tolerance, confidence, simultaneous=simultaneous)
        points = self._points(tolerance, found.table, np.ones(len(found.table), np.bool_))
        return replace(
            points,
            confidence=confidence,
            certified_gap=found.bound,
            simultaneous=found.theorem in (2, 3),
            theorem=found.theorem,
        )

    def least_disparity(self, *, accuracy: float) -> Point:
        """Return the point with the smallest gap among those with at least this accuracy.

        ``at(point.tolerance)`` returns the same point.

        Examples
        --------
        >>> from fairdial import sweep
        >>> from fairdial.datasets import make_gaussian
        >>> sample = make_gaussian(20_000, random_state=0)
        >>> frontier = sweep(sample.logits, sample.groups, sample.y)
        >>> frontier.least_disparity(accuracy=0.76).accuracy >= 0.76
        True
        """
        self._require_labels("least_disparity")
        if not isinstance(accuracy, (int, float, np.number)) or not 0 <= accuracy <= 1:
            raise InvalidInputError("accuracy", "be a number in [0, 1]", given=repr(accuracy))
        assert self.accuracy is not None
        reachable = self.points.reachable
        enough = (self.accuracy >= accuracy) & reachable
        if not enough.any():
            best = self.accuracy[reachable].max()
            raise InvalidInputError(
                "accuracy", f"be at most {best:.4f}, the best of the dial", given=f"{accuracy:g}"
            )
        index = np.array([np.argmin(np.where(enough, self.gap, np.inf))])
        table = self.points.tabulate(index)
        return self._points(table.gap, table, np.array([True]))[0]

    def decide(
        self,
        logits: ArrayLike,
        groups: Any,
        tolerance: Any,
        *,
        confidence: float | None = None,
        keys: Any = None,
    ) -> Mask | Indices:
        """Return the decisions for scored rows at a tolerance, or at one tolerance per row.

        ``confidence`` is as in :meth:`at`; with one tolerance per row it is simultaneous, and
        refused where groups at different tolerances may have a larger gap (:attr:`mixes`). A row's
        decision doesn't depend on the other rows. A lottery draws by a hash of the row's entry in
        ``keys`` (identifiers, or a matrix of features), by default of its logit. A blind dial takes
        probabilities of the groups, (n, K), as ``groups``. With more than two classes, decisions
        are positions in ``classes``.

        Examples
        --------
        >>> from fairdial import sweep
        >>> from fairdial.datasets import make_gaussian
        >>> sample = make_gaussian(20_000, random_state=0)
        >>> frontier = sweep(sample.logits, sample.groups, sample.y)
        >>> bool(frontier.decide([5.0], ["group 0"], tolerance=0.05)[0])
        True
        """
        if self.is_blind:
            margin = self.margins(logits, groups, tolerance, confidence=confidence)
            return select(margin, 0.0)
        if self.classes is not None:
            return choose_class(self.class_values(logits, groups, tolerance, confidence=confidence))
        self._require_thresholds("decide")
        scores = check_scores(logits, nan=False)
        codes = match_groups(groups, self.groups)
        check_same_length(scores, codes, ("logits", "groups"))
        tolerances = check_tolerance(tolerance)
        if tolerances.ndim == 0:
            point = self.at(float(tolerances), confidence=confidence)
            if point.lottery is None:
                return select_by_group(scores, codes, point.thresholds)
            draws = hash_uniform(np.asarray(scores if keys is None else keys), LOTTERY)
            check_same_length(scores, draws, ("logits", "keys"))
            if np.isnan(scores).any():
                raise_nan(scores, "logits")
            return select(scores, point.thresholds_of(codes, draws))
        check_same_length(scores, tolerances, ("logits", "tolerance"))
        thresholds = self.row_thresholds(tolerances, codes, confidence=confidence)
        if np.isnan(scores).any():
            raise_nan(scores, "logits")
        return select(scores, thresholds)

    def margins(
        self,
        logits: ArrayLike,
        posterior: ArrayLike,
        tolerance: ArrayLike,
        *,
        confidence: float | None = None,
    ) -> Floats:
        """Return utility minus price of each row in a blind dial, (n,): above 0 it is selected.

        Parameters
        ----------
        logits : (n,) array-like
            Log-odds of the positive label.
        posterior : (n, K) array-like
            Probability of each group, in the order of ``groups``.
        tolerance : float or (n,) array-like
            One tolerance, or one for each row.
        confidence : float, optional
            As in :meth:`at`; for one tolerance only.
        """
        if not self.is_blind:
            raise InvalidInputError(
                "margins", "be called on a blind dial", given="one with groups", hint="Use decide."
            )
        scores = check_scores(logits)
        posterior = order_columns(posterior, self.groups, "posterior", "groups")
        shares = check_posterior(posterior, len(self.groups))
        check_same_length(scores, shares, ("logits", "posterior"))
        tolerances = check_tolerance(tolerance)
        rates = [demand.rate for demand in self.criterion.demands]
        if tolerances.ndim == 0:
            point = self.at(float(tolerances), confidence=confidence)
            assert point.prices is not None
            assert point.gains is not None
            return margins(scores, shares, rates, point.gains, point.prices)
        check_same_length(scores, tolerances, ("logits", "tolerance"))
        distinct, place = np.unique(tolerances, return_inverse=True)
        points = self.at(distinct, confidence=confidence, simultaneous=True)
        assert points.prices is not None
        assert points.gains is not None
        return margins(scores, shares, rates, points.gains, points.prices[place])

    def class_values(
        self,
        scores: ArrayLike,
        groups: Any,
        tolerance: ArrayLike,
        *,
        confidence: float | None = None,
    ) -> Floats:
        """Return utility minus price of each class, (n, C); a row gets the class with the largest.

        Parameters
        ----------
        scores : (n, C) array-like
            Log-probabilities or logits of the classes, in the order of ``classes``.
        groups : (n,) array-like, Series or DataFrame
            Group of each row.
        tolerance : float or (n,) array-like
            One tolerance, or one for each row.
        confidence : float, optional
            As in :meth:`at`; for one tolerance only.
        """
        if self.classes is None:
            raise InvalidInputError(
                "class_values",
                "be called on a dial with more than two classes",
                given="one with two",
                hint="Use decide.",
            )
        scores = order_columns(scores, self.classes, "scores", "classes")
        logits = check_class_scores(scores, len(self.classes))
        codes = match_groups(groups, self.groups)
        check_same_length(logits, codes, ("scores", "groups"))
        tolerances = check_tolerance(tolerance)
        if tolerances.ndim:
            check_same_length(logits, tolerances, ("scores", "tolerance"))
        return self.class_values_of(logits, codes, tolerances, confidence=confidence)

    def class_values_of(
        self, scores: Scores, codes: Codes, tolerances: Floats, *, confidence: float | None = None
    ) -> Floats:
        """Return the values of the classes for checked rows with group codes, (n, C)."""
        place = np.zeros(1, np.intp)
        if tolerances.ndim:
            tolerances, place = np.unique(tolerances, return_inverse=True)
            self.check_mixture(len(tolerances), confidence)
        points = self.at(np.atleast_1d(tolerances), confidence=confidence)
        assert points.prices is not None
        prices = np.concatenate(list(points.prices), axis=1)  # (J, m K)
        columns = codes.astype(np.intp) + len(self.groups) * place
        return class_values(probabilities(scores), columns, self.criterion.demands, prices)

    def row_thresholds(
        self, tolerances: Floats, codes: Codes, *, confidence: float | None = None
    ) -> Floats:
        """Return the thresholds of rows with a checked tolerance and a group code each, (n,).

        Confidence is simultaneous, so a row's threshold doesn't depend on the other rows.
        """
        self._require_thresholds("row_thresholds")
        distinct, place = np.unique(tolerances, return_inverse=True)
        if self.problem.randomize is not None:
            raise InvalidInputError(
                "tolerance", "be one number for a lottery", given=f"{len(distinct)} tolerances"
            )
        if not self.nested and len(distinct) > MAX_ROW_TOLERANCES:
            raise InvalidInputError(
                "tolerance",
                f"have at most {MAX_ROW_TOLERANCES} distinct values where each is searched for",
                given=len(distinct),
                hint="A dial with `nested=True` allows any number.",
            )
        self.check_mixture(len(distinct), confidence)
        points = self.at(distinct, confidence=confidence, simultaneous=True)
        thresholds: Floats = points.thresholds[place, codes]
        return thresholds

    def flips(
        self, logits: ArrayLike, groups: Any, tolerance_from: float, tolerance_to: float
    ) -> NDArray[np.int8]:
        """Return which decisions change between two tolerances: +1 gained, -1 lost, 0 unchanged.

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
        if self.is_family or self.classes is not None:
            self._require_thresholds("flips")
        before = self.decide(logits, groups, check_one_tolerance(tolerance_from, "tolerance_from"))
        after = self.decide(logits, groups, check_one_tolerance(tolerance_to, "tolerance_to"))
        return after.astype(np.int8) - before.astype(np.int8)

    def _require_thresholds(self, method: str) -> None:
        if self.is_blind:
            raise InvalidInputError(
                method,
                "be called on thresholds of groups",
                given="a blind dial, which has prices",
                hint="Use its `at`, `decide`, `flips` and `margins`.",
            )
        if self.classes is not None:
            raise InvalidInputError(
                method,
                "be called on thresholds of groups",
                given=f"a dial of {len(self.classes)} classes, which has prices",
                hint="Use its `at`, `decide` and `class_values`.",
            )
        if self.is_family:
            raise InvalidInputError(
                method,
                "be called on thresholds of one score",
                given="a model family",
                hint="Use the model's predict, which applies the model at the tolerance.",
            )

    def _require_labels(self, method: str) -> None:
        if not self.has_labels:
            raise InvalidInputError(
                method, "be called on a frontier with labels", given="one without"
            )

    # ---- other frontiers -----------------------------------------------------------------------

    def guided_by(self, other: Frontier) -> Frontier:
        """Return the frontier with certificates for the rules of another one.

        With more than two groups, or several rates, a certificate tests rules that were found on
        rows that are independent of the testing rows. By default a part of the calibration rows
        finds them.
        If there are independent rows, such as the training rows, their frontier can find them, and
        all calibration rows test: small groups need this.

        Parameters
        ----------
        other : Frontier
            The frontier of the same score on rows that are independent of these ones. Rules that
            don't fit the score are safe, but certify less.

        Examples
        --------
        >>> from fairdial import sweep
        >>> from fairdial.datasets import make_gaussian
        >>> train, held = make_gaussian(20_000, random_state=0).split(random_state=0)
        >>> odds = "equalized_odds"
        >>> other = sweep(train.logits, train.groups, train.y, criterion=odds)
        >>> frontier = sweep(held.logits, held.groups, held.y, criterion=odds)
        >>> frontier.guided_by(other).at(0.1, confidence=0.95).theorem
        5
        """
        self._require_thresholds("guided_by")
        if other.is_family or other.has_prices or other.problem.randomize is not None:
            raise InvalidInputError(
                "other", "be a frontier of thresholds of one score, without a lottery"
            )
        if other.groups != self.groups or other.criterion != self.criterion:
            raise InvalidInputError("other", "have the same groups and criterion")
        if other.points is self.points:
            raise InvalidInputError("other", "be about other rows", given="the same frontier")
        return replace(self, guide=Guide.from_points(other.points))

    def thin(self, k: int) -> Frontier:
        """Keep at most ``k`` points, evenly spaced in gap, with the first and the last.

        At the gaps that are kept, ``at`` gives the same answers as before.
        """
        check_count(k, "k", least=2)
        grid = np.linspace(self.gap[0], self.gap.min(), k)
        kept = np.unique(self.points.find(np.append(grid, self.gap.min()))[0])
        return replace(self, points=self.points.take(kept))

    def pareto(self) -> Frontier:
        """Keep the points that no other point dominates in the objective's value and gap."""
        self._require_labels("pareto")
        values = self.accuracy
        if self.objective.name != "accuracy":
            values = self.value_of(np.arange(len(self)))
        assert values is not None
        kept = np.flatnonzero(pareto(np.column_stack((values, self.gap))))
        return replace(self, points=self.points.take(kept))

    def band(
        self,
        tolerances: ArrayLike | None = None,
        *,
        confidence: float = 0.95,
        n_boot: int | None = None,
        random_state: int | None = None,
    ) -> pd.DataFrame:
        """Return a bootstrap band: how the frontier varies with the calibration rows.

        Rows are resampled within groups, as counts of 256 bins per group (4,096 in all if there
        are more than 16 groups), so that the cost doesn't grow with the rows. Each of ``n_boot``
        samples (by default 1,000, or 100 where each tolerance is a search) has its own dial, on
        which the tolerances are set.

        Returns
        -------
        DataFrame
            One line per tolerance: ``tolerance``, ``accuracy`` here, ``lower`` and ``upper``.
        """
        import pandas as pd

        self._require_thresholds("band")
        self._require_labels("band")
        if not isinstance(self.points, (ThresholdPath, SearchedPoints)):
            raise InvalidInputError(
                "band", "be called on a whole frontier", given="one with some of the points"
            )
        if self.cells.dtype.kind == "f":
            raise InvalidInputError(
                "band",
                "be called on rows that count equally, or with whole-number weights",
                given="other weights",
            )
        level = (1.0 - check_fraction(confidence, "confidence")) / 2
        searched = isinstance(self.points, SearchedPoints)
        n_boot = 100 if searched and n_boot is None else 1000 if n_boot is None else n_boot
        check_count(n_boot, "n_boot")
        size = 20 if searched else 50
        least = float(self.gap.min())
        grid = np.linspace(least, self.gap[0], size) if tolerances is None else tolerances
        checked = np.atleast_1d(check_tolerance(grid, "tolerances"))
        rng = np.random.default_rng(random_state)
        here = self.at(checked).accuracy
        assert here is not None
        binned, draws = resampled_accuracy(self.points, checked, n_boot, rng)
        draws += here - binned  # correct for the bins
        lower, upper = np.nanquantile(draws, [level, 1.0 - level], axis=0)
        columns = {"tolerance": checked, "accuracy": here, "lower": lower, "upper": upper}
        return pd.DataFrame(columns)

    # ---- output and input ----------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """Return one line per point: setting, accuracy, gap, thresholds and rates by group."""
        feasible = np.ones(len(self), np.bool_)
        table = self.points.tabulate(np.arange(len(self)))
        frame = self._points(self.gap, table, feasible).to_frame()
        return frame.drop(columns=["tolerance", "feasible"])

    def to_sql(
        self,
        tolerance: float,
        *,
        score: str = "score",
        group: str | Sequence[str] = "group",
        dialect: str = "duckdb",
        confidence: float | None = None,
        missing_group: Hashable | None = None,
        merged_groups: Mapping[Hashable, Sequence[str]] | None = None,
    ) -> str:
        """Return the decision rule at a tolerance as an SQL expression.

        It is 1 if a row is selected and 0 if not, as :meth:`decide` answers; and NULL where that
        raises: for a NULL or NaN score, and for a group without a threshold.

        Parameters
        ----------
        tolerance : float
            The largest gap allowed.
        score : str
            Column of scores, on the same scale as here: log-odds, not probabilities.
        group : str or sequence of str
            Column of groups, of the same type as the groups' names here. Several columns are joined
            to names like ``"Black & Female"``.
        dialect : {"duckdb", "sqlite", "postgres", "spark", "bigquery", "snowflake"}
            Which SQL to write.
        confidence : float, optional
            As in :meth:`at`.
        missing_group : hashable, optional
            The group of rows without one; by default they have no decision.
        merged_groups : mapping, optional
            Names in the column that belong to a group of another name, by that name.

        Examples
        --------
        >>> import duckdb
        >>> from fairdial import sweep
        >>> from fairdial.datasets import make_gaussian
        >>> sample = make_gaussian(2_000, random_state=0)
        >>> frontier = sweep(sample.logits, sample.groups, sample.y)
        >>> rule = frontier.to_sql(0.05, score="z", group="region")
        >>> rows = "(VALUES (5.0, 'group 0'), (-5.0, 'group 1'), (1.0, 'group 7')) t(z, region)"
        >>> duckdb.sql(f"SELECT {rule} FROM {rows}").fetchall()
        [(1,), (0,), (None,)]
        """
        self._require_thresholds("to_sql")
        if self.problem.randomize is not None:
            raise InvalidInputError(
                "to_sql", "be called on a dial without a lottery", given="randomize='hash'"
            )
        point = self.at(check_one_tolerance(tolerance), confidence=confidence)
        return write_decision(
            point.thresholds,
            self.groups,
            score=score,
            group=group,
            dialect=dialect,
            missing_group=missing_group,
            merged_groups=merged_groups,
        )

    def to_json(self) -> str:
        """Return the frontier as JSON; :meth:`from_json` restores it to the last bit."""
        parts = self.points, self.problem, self.groups, self.cells, self.certificate, self.guide
        return write_frontier(*parts, self.classes)

    @classmethod
    def from_json(cls, text: str) -> Frontier:
        """Return the frontier that :meth:`to_json` wrote."""
        return cls(*read_frontier(text))

    def plot(self, ax: Axes | None = None, *, label: str | None = None, band: bool = False) -> Axes:
        """Plot accuracy against gap, with the bootstrap band on request; needs the extra ``plot``.

        A model family has a dot per model, and the line shows the points that the dial uses.
        """
        self._require_labels("plot")
        assert self.accuracy is not None
        grid = np.linspace(self.gap.min(), self.gap[0], 400)
        shade = self.band(random_state=0) if band else None
        title = f"{self.criterion.name.replace('_', ' ')} gap"
        if self.is_family:
            points = np.flatnonzero(self.points.reachable)[::-1]
            gaps = np.append(self.gap[points], self.gap.max())  # the first answers all above it
            accuracy = self.accuracy[np.append(points, 0)]
            dots = self.gap, self.accuracy
            return draw_frontier(gaps, accuracy, title, ax=ax, label=label, models=dots)
        points, _ = self.points.find(grid)
        accuracy = self.accuracy_of(points)
        return draw_frontier(self.gap[points], accuracy, title, ax=ax, label=label, band=shade)

    def __repr__(self) -> str:
        if isinstance(self.points, SearchedPoints):  # listing points takes a search for each
            rows = number_of_rows(self.counts)
            return f"Frontier({self.criterion.name}, groups={list(self.groups)}, {rows} rows)"
        accuracy, kind = "", "models" if self.is_family else "points"
        if self.has_labels:
            accuracy = f", accuracy {self.accuracy_of(np.array([0]))[0]:.4f}"
        return (
            f"Frontier({self.criterion.name}, groups={list(self.groups)}, "
            f"{number_of_rows(self.counts)} rows, {len(self):,} {kind}, "
            f"gap {self.gap[0]:.4f}{accuracy} down to gap {self.gap.min():.4f})"
        )
