"""Methods with one scorer whose group thresholds move: FairBayes, GFB and AutoDial."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _num_samples

from fairdial._arrays import Codes, Floats, Scores
from fairdial._validation import (
    check_choice,
    check_class_scores,
    check_one_tolerance,
    check_scores,
    check_tolerance,
    match_groups,
)
from fairdial.core.class_problem import check_class_problem
from fairdial.core.classes import sweep_classes_encoded
from fairdial.core.decide import by_label
from fairdial.core.groupings import Overlap
from fairdial.core.histograms import Grid
from fairdial.core.objectives import Objective
from fairdial.core.problem import Budget, Problem, make_problem
from fairdial.core.rule_sequences import PATH_SHARE
from fairdial.core.sweep import sweep_encoded
from fairdial.errors import InvalidInputError
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.draws import draw_rows
from fairdial.estimators.rows import Rows, Sample, drop_column, groups_by_name, take_rows
from fairdial.estimators.score_checks import count_by_score, warn_if_biased, warn_if_seen
from fairdial.estimators.scorers import PlattMap, Scorer
from fairdial.large.files import BITS
from fairdial.large.frontier import find_frontier
from fairdial.large.parquet import require_label, reread, summarize
from fairdial.large.reader import ParquetReader
from fairdial.large.second_pass import Read, SecondPass
from fairdial.large.summary import Batches, ScoreSummary
from fairdial.plotting import draw_logits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW_ROWS = 100  # of a group, too few to find rules that certificates test
FEATURES = ("n_features_in_", "feature_names_in_")


class ThresholdClassifier(DialClassifier):
    """A scorer with group thresholds, which are found for every tolerance at once."""

    # defaults for methods whose constructor doesn't have these parameters
    objective: str | Objective = "accuracy"
    budget: float | Budget | None = None
    nested: bool | None = None
    rising: bool = False
    randomize: Literal["hash"] | None = None
    blind: bool = False
    groups: Overlap = "intersection"

    recalibrate: str | None
    scorer_: Scorer
    estimator_: Any
    platt_: PlattMap | None

    @property
    def problem(self) -> Problem:
        """What the dial solves with the current parameters.

        A budget that is a number of rows refers to the rows of the last calibration.
        """
        calibrated = hasattr(self, "frontier_")
        return self._make_problem(float(self.frontier_.cells.sum()) if calibrated else np.inf)

    def _make_problem(self, n_rows: float) -> Problem:
        return make_problem(
            self.criterion,
            self.objective,
            self.budget,
            self.nested,
            self.rising,
            self.randomize,
            n_rows=n_rows,
        )

    # ---- calibrate -----------------------------------------------------------------------------

    def _calibrate_held_out(self, rows: Rows) -> Self:
        """Find the frontier on held-out rows; the training rows guide certificates if that helps.

        It helps if a group is so small that a part of its calibration rows says little.
        """
        super()._calibrate_held_out(rows)
        frontier = getattr(self, "frontier_", None)
        if (
            frontier is None
            or frontier.has_prices
            or frontier.certificate != "declared"
            or len(frontier.groups) == 2
        ):
            return self
        few = PATH_SHARE * float(frontier.eligible.min()) < FEW_ROWS
        if not (few and frontier.problem.uses_path and frontier.needs_declared_tolerance):
            return self
        sample = rows.sample(rows.train)
        logits = self.scorer_.logits(take_rows(rows.X, rows.train), sample.codes)
        other = sweep_encoded(
            check_scores(logits, "logits of the estimator", nan=False),
            sample.codes,
            sample.positive,
            frontier.problem,
            frontier.groups,
            min_count=1,
            argument="sensitive_features",
        )
        self.frontier_ = frontier.guided_by(other)
        return self

    def _find_frontier(self, X: Any, sample: Sample) -> Self:
        return self._set_frontier(self.scorer_.logits(X, sample.codes), sample)

    def _check_classes(self) -> None:
        """Raise if a model with more than two classes has settings that need two."""
        if len(self.classes_) == 2:
            if self.limit_classes is not None:
                raise InvalidInputError(
                    "limit_classes", "be None with two classes", given=repr(self.limit_classes)
                )
            return
        check_class_problem(self._make_problem(np.inf))
        if self.recalibrate is not None:
            raise InvalidInputError(
                "recalibrate", "be None with more than two classes", given=repr(self.recalibrate)
            )

    def _set_class_frontier(self, logits: Scores, sample: Sample) -> Self:
        self._check_classes()
        self.platt_ = None
        classes = tuple(self.classes_.tolist())
        self.frontier_ = sweep_classes_encoded(
            check_class_scores(logits, len(classes), "scores of the estimator"),
            sample.codes,
            sample.classes,
            replace(self._make_problem(sample.n_rows), criterion=sample.criterion),
            sample.groups,
            classes,
            weights=sample.weights,
            min_count=1,
            certificate=sample.certificate,
            argument="sensitive_features",
        )
        return self

    def _set_frontier(self, logits: Scores, sample: Sample) -> Self:
        """Recalibrate the logits if requested, sweep them, and warn about suspicious scores."""
        if sample.n_classes > 2:
            return self._set_class_frontier(logits, sample)
        check_choice(self.recalibrate, "recalibrate", (None, "group"))
        codes, groups, positive = sample.codes, sample.groups, sample.positive
        platt, certificate = None, sample.certificate
        if self.recalibrate == "group":
            platt = getattr(self, "platt_", None)
            if positive is not None:
                platt = PlattMap.fit(logits, codes, positive, groups, sample.weights)
                certificate = "simultaneous" if certificate == "declared" else certificate
            elif platt is None:
                raise InvalidInputError("y", "be given: `recalibrate='group'` needs labels once")
            else:
                platt = platt.reorder(groups)
            logits = platt(logits, codes)
        logits = check_scores(logits, "logits of the estimator", nan=False)
        self.frontier_ = sweep_encoded(
            logits,
            codes,
            positive,
            replace(self._make_problem(sample.n_rows), criterion=sample.criterion),
            groups,
            strata=sample.strata,
            weights=sample.weights,
            min_count=1,
            certificate=certificate,
            argument="sensitive_features",
        )
        self.platt_ = platt
        if positive is None:
            return self
        by_group = [codes == a for a in range(len(groups))]
        if len(groups) > 1:
            warn_if_seen(count_by_score(logits[rows], positive[rows]) for rows in by_group)
        if platt is None:
            for name, rows in zip(groups, by_group, strict=True):
                if not rows.any():
                    continue
                p = expit(logits[rows].astype(np.float64))
                weights = np.ones(len(p)) if sample.weights is None else sample.weights[rows]
                if warn_if_biased(name, p, weights, float(weights @ positive[rows])):
                    break
        return self

    def calibrate_parquet(
        self,
        path: str | PathLike[str],
        *,
        score: str = "score",
        group: str = "group",
        label: str | None = None,
        weight: str | None = None,
        control: str | None = None,
        tolerances: ArrayLike | None = None,
    ) -> Self:
        """Find the frontier on scored rows in Parquet files, which may exceed memory.

        Parameters
        ----------
        path : path
            A Parquet file, or a folder of them, of rows that the scorer was not trained on.
        score : str
            Column of this model's scores: its :meth:`logits`, in full precision; rounded to single
            precision they are no longer exactly the scores that ``predict`` uses.
        group : str
            Column of groups, with the names that ``predict`` gets.
        label : str, optional
            Column of labels, the classes of this model. Demographic parity works without it.
        weight, control : str, optional
            Columns of sample weights and of strata.
        tolerances : array-like, optional
            Where the answers must be exact; the files are then read twice. Without it, thresholds
            are edges of bins, within the tolerance. See :func:`fairdial.calibrate_parquet`.

        Examples
        --------
        >>> import tempfile
        >>> import pandas as pd
        >>> from sklearn.linear_model import LogisticRegression
        >>> from fairdial import FairBayes
        >>> from fairdial.datasets import make_gaussian
        >>> train, new = make_gaussian(20_000, random_state=0).split(random_state=0)
        >>> model = FairBayes(LogisticRegression(), per_group=True, random_state=0)
        >>> model = model.fit(train.X, train.y, sensitive_features=train.groups)
        >>> scores = model.logits(new.X, sensitive_features=new.groups)
        >>> rows = pd.DataFrame({"score": scores, "group": new.groups, "label": new.y})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows.to_parquet(f"{folder}/rows.parquet")
        ...     model = model.calibrate_parquet(folder, label="label", tolerances=[0.05])
        >>> decisions = model.predict(new.X, sensitive_features=new.groups, tolerance=0.05)
        >>> model.frontier_.at(0.05).gap <= 0.05
        True
        """
        self._check_summaries(label is not None)
        exact = None
        if tolerances is not None:
            exact = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
        reader, grid = (
            ParquetReader(path, score, group, label, weight=weight, control=control),
            Grid(BITS),
        )
        summary, cells = summarize(reader, grid, classes=self.classes_.tolist())
        return self._calibrate_summary(
            summary, exact, lambda _: reread(reader, cells), "group", "path"
        )

    def calibrate_summary(
        self,
        summary: ScoreSummary,
        *,
        tolerances: ArrayLike | None = None,
        refine: Batches | SecondPass | None = None,
    ) -> Self:
        """Find the frontier from a summary of this model's scores on held-out rows.

        Parameters
        ----------
        summary : ScoreSummary
            Counts of this model's :meth:`logits` by group and label; 1 is the positive class.
        tolerances, refine : optional
            As in :meth:`fairdial.ScoreSummary.to_frontier`: tolerances with exact answers, and the
            rows again. Without them, thresholds are edges of bins, within the tolerance.

        Examples
        --------
        >>> from sklearn.linear_model import LogisticRegression
        >>> from fairdial import FairBayes, ScoreSummary
        >>> from fairdial.datasets import make_gaussian
        >>> train, new = make_gaussian(20_000, random_state=0).split(random_state=0)
        >>> model = FairBayes(LogisticRegression(), per_group=True, random_state=0)
        >>> model = model.fit(train.X, train.y, sensitive_features=train.groups)
        >>> scores = model.logits(new.X, sensitive_features=new.groups)
        >>> model = model.calibrate_summary(ScoreSummary.from_scores(scores, new.groups, new.y))
        >>> model.frontier_.at(0.05).gap <= 0.05
        True
        """
        problem = self._check_summaries(summary.labeled)
        exact = None
        if tolerances is not None:
            exact = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
        summary.check_refine(refine, problem.uses_path and not summary.strata, exact)
        return self._calibrate_summary(
            summary, exact, summary.second_pass(refine), "summary", "refine"
        )

    def _check_summaries(self, labeled: bool) -> Problem:
        """Return the problem; raise if the frontier can't be found from summaries."""
        self._check_scorer()
        if len(self.classes_) > 2:
            raise InvalidInputError(
                "path",
                "hold scores of a model with two classes",
                given=f"one with {len(self.classes_)}",
                hint="Call calibrate with the rows themselves.",
            )
        if self.blind:
            raise InvalidInputError(
                "blind",
                "be False for scored rows, which lack probabilities of groups",
                given=True,
                hint="Call calibrate with the rows themselves.",
            )
        if self.groups != "intersection":
            raise InvalidInputError(
                "groups",
                "be 'intersection' for scored rows, which have one column of groups",
                given=repr(self.groups),
                hint="Call calibrate with the rows themselves.",
            )
        check_choice(self.recalibrate, "recalibrate", (None, "group"))
        if self.recalibrate == "group" and getattr(self, "platt_", None) is None:
            raise InvalidInputError(
                "recalibrate",
                "be None for a first calibration on scored rows",
                given="'group'",
                hint="Call calibrate with some labeled rows first, then write what logits returns.",
            )
        problem = self._make_problem(np.inf)  # checks the problem before rows are read
        require_label(problem, "label" if labeled else None)
        return problem

    def _calibrate_summary(
        self,
        summary: ScoreSummary,
        tolerances: Floats | None,
        read: Read | None,
        argument: str,
        source: str,
    ) -> Self:
        """Set the frontier of a summary, and warn about suspicious scores."""
        self._check_groups(summary.groups)
        platt = None if self.recalibrate is None else getattr(self, "platt_", None)
        platt = None if platt is None else platt.reorder(summary.groups)
        self.frontier_ = find_frontier(
            summary,
            self._make_problem(float(summary.counts.sum())),
            tolerances=tolerances,
            read=read,
            min_count=self._least_count(summary.groups),
            argument=argument,
            source=source,
        )
        self.platt_ = platt
        self.__dict__.pop("model_hash_", None)  # this is no longer the saved model
        for what in FEATURES:  # a prefit estimator may know them, although we saw no rows
            if not hasattr(self, what) and hasattr(getattr(self, "estimator_", None), what):
                setattr(self, what, getattr(self.estimator_, what))
        if not summary.labeled:
            return self
        by_group = [by_label(counts, 2) for counts in summary.counts]  # each (2, bins)
        if len(by_group) > 1:
            warn_if_seen(by_group)
        middles = Grid(summary.bits).middles
        for name, counts in zip(summary.groups, by_group, strict=True) if platt is None else ():
            rows, mean = counts.sum(axis=0), 1.0
            if rows.dtype.kind == "f":
                mean = float(rows.sum() / summary.rows[:, summary.groups.index(name)].sum())
            p, positives = expit(middles), float(counts[1].sum())
            if warn_if_biased(name, p, rows, positives, mean_weight=mean):
                break
        return self

    def _check_groups(self, groups: tuple[Hashable, ...]) -> None:
        """Raise if training fixed the groups and these are different ones."""
        known = self._trained_groups()
        if known is None:
            return
        match_groups(np.array(groups, dtype=object), known, "group")
        missing = [repr(name) for name in known if name not in groups]
        if missing:
            raise InvalidInputError(
                "group",
                "hold rows of every group in the training rows",
                given=f"none of {', '.join(missing)}",
            )

    # ---- predict -------------------------------------------------------------------------------

    @property
    def _is_blind(self) -> bool:
        """Whether decisions need no group."""
        return hasattr(self, "frontier_") and self.frontier_.is_blind

    def _rows_to_score(self, X: object, sensitive_features: object) -> tuple[Any, Codes]:
        """Return checked features and group codes; a blind dial ignores groups."""
        self._check_calibrated()
        if not self._is_blind:
            return super()._rows_to_score(X, sensitive_features)
        X = self._check_features(drop_column(self, X), reset=False)
        return X, np.zeros(_num_samples(X), np.intp)

    def _require_thresholds(self, method: str) -> None:
        if len(self.classes_) > 2:
            raise InvalidInputError(
                method,
                "be called on a model with two classes",
                given=f"one with {len(self.classes_)}, which has prices",
                hint="`frontier_.at(tolerance).prices` has them.",
            )
        if self._is_blind:
            raise InvalidInputError(
                method,
                "be called on a model with thresholds",
                given="a blind one, which has prices",
                hint="`frontier_.at(tolerance).prices` has them.",
            )

    def _score(self, X: Any, codes: Codes) -> Floats:
        """Return logits, recalibrated if that was requested."""
        logits, platt = self.scorer_.logits(X, codes), getattr(self, "platt_", None)
        return np.asarray(logits if platt is None else platt(logits, codes), np.float64)

    def _margins(
        self, X: Any, codes: Codes, tolerances: Sequence[Floats], confidence: float | None
    ) -> list[Floats]:
        """Return logits minus the thresholds of their groups; of a blind dial, minus prices."""
        if self._is_blind:
            logits, posterior = self._score(X, codes), self.scorer_.posterior(X)  # type: ignore[attr-defined]
            return [
                self.frontier_.margins(logits, posterior, tolerance, confidence=confidence)
                for tolerance in tolerances
            ]
        logits, margins = self._score(X, codes), []
        if len(self.classes_) > 2:
            return [
                self.frontier_.class_values_of(logits, codes, tolerance, confidence=confidence)
                for tolerance in tolerances
            ]
        for tolerance in tolerances:
            if tolerance.ndim:
                limits = self.frontier_.row_thresholds(tolerance, codes, confidence=confidence)
            else:
                point = self.frontier_.at(float(tolerance), confidence=confidence)
                draws = None if point.lottery is None else draw_rows(X, logits)
                limits = point.thresholds_of(codes, draws)
            with np.errstate(invalid="ignore"):
                margin = logits - limits
            margins.append(np.where(np.isnan(margin), 0.0, margin))  # inf - inf: not above
        return margins

    @groups_by_name
    def logits(self, X: object, *, sensitive_features: object = None) -> Floats:
        """Return the scores that thresholds apply to: log-odds of the positive label.

        With more than two classes, these are log-probabilities of the classes, (n, C). They need no
        calibration, unless ``recalibrate="group"``.
        """
        if hasattr(self, "frontier_"):
            return self._score(*self._rows_to_score(X, sensitive_features))
        self._check_scorer()
        if self.recalibrate is not None:
            raise NotFittedError(
                f"This {type(self).__name__} instance is not calibrated yet, and "
                "`recalibrate='group'` corrects its logits by calibration rows. Call `calibrate`."
            )
        X, sensitive = self._take_groups(X, sensitive_features)
        X = self._check_features(X, reset=False)
        groups = self._trained_groups() or ("all",)  # the scorer may not see groups
        known = self._trained_groups() is not None
        return self._score(X, self._codes(sensitive if known else None, _num_samples(X), groups))

    def thresholds(
        self, tolerance: float | None = None, *, confidence: float | None = None
    ) -> dict[Hashable, float]:
        """Return the logit threshold of each group at a tolerance; of a lottery, the likeliest."""
        self._check_calibrated()
        self._require_thresholds("thresholds")
        given = self.default_tolerance if tolerance is None else tolerance
        point = self.frontier_.at(check_one_tolerance(given), confidence=confidence)
        return dict(zip(point.groups, point.thresholds.tolist(), strict=True))

    def plot_logits(
        self,
        X: object,
        *,
        sensitive_features: object = None,
        ax: Axes | None = None,
        label: str = "",
    ) -> Axes:
        """Plot the groups' logit distributions with their fairest thresholds; needs ``plot``.

        The shaded rows, between 0 and a group's fairest threshold, are those whose decisions the
        tolerance can change. GFB works on them.
        """
        self._check_calibrated()
        self._require_thresholds("plot_logits")
        X, codes = self._rows_to_score(X, sensitive_features)
        logits = self._score(X, codes)
        frontier = self.frontier_
        fairest = frontier.points.read(np.array([int(np.argmin(frontier.gap))]))[0][0]
        return draw_logits(logits, codes, frontier.groups, fairest, ax=ax, label=label)
