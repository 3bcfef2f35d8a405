"""Methods with one scorer whose group thresholds move: FairBayes, GFB and AutoDial."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _num_samples

from fairdial._arrays import Codes, Counts, Floats, Mask, Scores
from fairdial._validation import (
    check_choice,
    check_one_tolerance,
    check_scores,
    check_tolerance,
    match_groups,
)
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.frontier import Certificate
from fairdial.core.histograms import Grid, add_to_bins
from fairdial.core.problem import Problem
from fairdial.core.sweep import sweep_encoded
from fairdial.errors import BiasedScoresWarning, InvalidInputError, SeenRowsWarning, warn
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.rows import groups_by_name
from fairdial.estimators.scorers import PlattMap, Scorer
from fairdial.large.files import BITS
from fairdial.large.frontier import find_frontier
from fairdial.large.parquet import require_label, reread, summarize
from fairdial.large.reader import ParquetReader
from fairdial.plotting import draw_logits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTICEABLE = 5.0  # standard errors: biased scores are reported if they are off by more than this
MATERIAL = 0.03  # and by more than this probability
SEPARATED = 0.999  # AUC; memorized rows exceed it, new rows with noisy labels don't
FEWEST = 100  # rows of either label; with fewer, good scores separate them by chance
COARSE = Grid(12)  # bins of 1/128, narrow enough to measure that AUC
FEATURES = ("n_features_in_", "feature_names_in_")


class ThresholdClassifier(DialClassifier):
    """A scorer with group thresholds, which are found for every tolerance at once."""

    recalibrate: str | None
    scorer_: Scorer
    estimator_: Any
    platt_: PlattMap | None

    # ---- calibrate -----------------------------------------------------------------------------

    def _find_frontier(
        self,
        X: Any,
        codes: Codes,
        groups: tuple[Hashable, ...],
        positive: Mask | None,
        certificate: Certificate,
    ) -> Self:
        logits = self.scorer_.logits(X, codes)
        return self._set_frontier(logits, codes, groups, positive, certificate)

    def _set_frontier(
        self,
        logits: Scores,
        codes: Codes,
        groups: tuple[Hashable, ...],
        positive: Mask | None,
        certificate: Certificate,
    ) -> Self:
        """Recalibrate the logits if requested, sweep them, and warn about suspicious scores."""
        check_choice(self.recalibrate, "recalibrate", (None, "group"))
        platt = None
        if self.recalibrate == "group":
            platt = getattr(self, "platt_", None)
            if positive is not None:
                platt = PlattMap.fit(logits, codes, positive, groups)
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
            Problem(find_criterion(self.criterion)),
            groups,
            min_count=1,
            certificate=certificate,
            argument="sensitive_features",
        )
        self.platt_ = platt
        if positive is None:
            return self
        by_group = [codes == a for a in range(len(groups))]
        if len(groups) > 1:
            _warn_if_seen(_count_by_score(logits[rows], positive[rows]) for rows in by_group)
        if platt is None:
            for name, rows in zip(groups, by_group, strict=True):
                p = expit(logits[rows].astype(np.float64))
                if _warn_if_biased(name, p, np.ones(len(p)), int(positive[rows].sum())):
                    break
        return self

    def calibrate_parquet(
        self,
        path: str | PathLike[str],
        *,
        score: str = "score",
        group: str = "group",
        label: str | None = None,
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
        self._check_scorer()
        check_choice(self.recalibrate, "recalibrate", (None, "group"))
        platt = None if self.recalibrate is None else getattr(self, "platt_", None)
        if self.recalibrate == "group" and platt is None:
            raise InvalidInputError(
                "recalibrate",
                "be None for a first calibration on Parquet files",
                given="'group'",
                hint="Call calibrate with some labeled rows first, then write what logits returns.",
            )
        problem = Problem(find_criterion(self.criterion))
        require_label(problem, label)
        exact = None
        if tolerances is not None:
            exact = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
        reader, grid = ParquetReader(path, score, group, label), Grid(BITS)
        summary, cells = summarize(reader, grid, classes=self.classes_.tolist())
        self._check_groups(summary.groups)
        platt = None if platt is None else platt.reorder(summary.groups)
        self.frontier_ = find_frontier(
            summary,
            problem,
            tolerances=exact,
            read=lambda: reread(reader, cells),
            min_count=self._least_count(summary.groups),
            argument="group",
            source="path",
        )
        self.platt_ = platt
        self.__dict__.pop("model_hash_", None)  # this is no longer the saved model
        for what in FEATURES:  # a prefit estimator may know them, although we saw no rows
            if not hasattr(self, what) and hasattr(getattr(self, "estimator_", None), what):
                setattr(self, what, getattr(self.estimator_, what))
        if summary.labeled and len(summary.groups) > 1:
            _warn_if_seen(summary.counts)
        if platt is None and summary.labeled:
            for name, counts in zip(summary.groups, summary.counts, strict=True):
                p, rows = expit(grid.middles), counts.sum(axis=0)
                if _warn_if_biased(name, p, rows, int(counts[1].sum())):
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

    def _score(self, X: Any, codes: Codes) -> Floats:
        """Return logits, recalibrated if that was requested."""
        logits, platt = self.scorer_.logits(X, codes), getattr(self, "platt_", None)
        return np.asarray(logits if platt is None else platt(logits, codes), np.float64)

    def _margins(
        self, X: Any, codes: Codes, tolerances: Sequence[Floats], confidence: float | None
    ) -> list[Floats]:
        """Return logits minus the thresholds of their groups."""
        logits, margins = self._score(X, codes), []
        for tolerance in tolerances:
            if tolerance.ndim:
                limits = self.frontier_.row_thresholds(tolerance, codes, confidence=confidence)
            else:
                point = self.frontier_.at(float(tolerance), confidence=confidence)
                limits = point.thresholds[codes]
            with np.errstate(invalid="ignore"):
                margin = logits - limits
            margins.append(np.where(np.isnan(margin), 0.0, margin))  # inf - inf: not above
        return margins

    @groups_by_name
    def logits(self, X: object, *, sensitive_features: object = None) -> Floats:
        """Return the scores that thresholds apply to: log-odds of the positive label.

        They need no calibration, unless ``recalibrate="group"``.
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
        """Return the logit threshold of each group at a tolerance."""
        self._check_calibrated()
        given = self.tolerance if tolerance is None else tolerance
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
        X, codes = self._rows_to_score(X, sensitive_features)
        logits = self._score(X, codes)
        frontier = self.frontier_
        fairest = frontier.points.read(np.array([int(np.argmin(frontier.gap))]))[0][0]
        return draw_logits(logits, codes, frontier.groups, fairest, ax=ax, label=label)


def _warn_if_biased(name: Hashable, p: Floats, counts: Floats | Counts, positive: int) -> bool:
    """Warn if a group's mean probability is clearly not its share of positive labels.

    ``counts`` rows have each probability in ``p``; ``positive`` of them have a positive label.
    Thresholds are found as if scores were log-odds.
    """
    n = float(counts.sum())
    mean, share = float(p @ counts) / n, positive / n
    error = np.sqrt(max(float((p * (1.0 - p)) @ counts), 1.0)) / n
    biased = abs(mean - share) > max(MATERIAL, NOTICEABLE * error)
    if biased:
        warn(
            f"the scores of group {name!r} are biased: their mean probability is {mean:.3f}, but "
            f"the share of positive labels is {share:.3f}. This costs accuracy, but the tolerance "
            "still holds; `recalibrate='group'` corrects it",
            BiasedScoresWarning,
        )
    return bool(biased)


def _count_by_score(logits: Scores, positive: Mask) -> Counts:
    """Return (2, bins) rows of a group by label and score, highest scores first."""
    counts = np.zeros((2, COARSE.size), np.int64)
    add_to_bins(counts, COARSE, logits, positive.astype(np.intp))
    return counts


def _warn_if_seen(groups: Iterable[Counts]) -> None:
    """Warn if scores separate the labels as well as only scores of training rows do.

    Each group's counts are (2, bins), by label and score, highest scores first.
    """
    labels, pairs, ordered = np.zeros(2), 0.0, 0.0
    for negative, positive in groups:
        below = negative.sum() - negative.cumsum() + 0.5 * negative  # ties count half
        labels += negative.sum(), positive.sum()
        pairs += float(negative.sum()) * float(positive.sum())
        ordered += float(positive @ below)
    if labels.min() < FEWEST or not pairs or ordered < SEPARATED * pairs:
        return
    warn(
        "the scores separate the labels of the calibration rows almost perfectly (area under the "
        f"ROC curve within groups: {ordered / pairs:.4f}). Either the classifier was trained on "
        "these rows, or `X` contains the label. Calibrate on rows that it hasn't seen; otherwise "
        "the results don't hold on new rows",
        SeenRowsWarning,
    )
