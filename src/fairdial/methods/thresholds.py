"""One scorer, and thresholds that move: FairBayes, GFB, and AutoDial, which takes one of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from fairdial._validation import (
    check_choice,
    check_one,
    check_scores,
    check_tolerance,
    match_groups,
)
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import BiasedScoresWarning, InvalidInputError, SeenRowsWarning, warn
from fairdial.frontier import Certificate
from fairdial.histograms import Grid, count_rows_in
from fairdial.ladders import Counts
from fairdial.methods.base import DialClassifier, groups_by_name
from fairdial.methods.rows import Codes
from fairdial.plotting import draw_logits
from fairdial.scorers import PlattMap, Scorer
from fairdial.summaries.arrow import ParquetReader
from fairdial.summaries.limits import BITS
from fairdial.summaries.parquet import count_rows, read_rows, refuse_no_label
from fairdial.summaries.summary import find_frontier
from fairdial.sweeping import sweep_codes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTICEABLE = 5.0  # standard errors, and
MATERIAL = 0.03  # of probability, before biased scores are reported
SEPARATED = 0.999  # memorised rows have more; fresh rows, noisy as people's labels are, have less
FEWEST = 100  # rows of either label: with fewer, good scores separate them by chance
COARSE = Grid(12)  # bins of 1/128: narrow enough for that
FEATURES = ("n_features_in_", "feature_names_in_")


class ThresholdClassifier(DialClassifier):
    """A scorer whose group thresholds are the dial: the frontier is swept, exactly."""

    recalibrate: Any
    scorer_: Scorer
    estimator_: Any

    def _find_frontier(
        self,
        X: Any,
        codes: Codes,
        names: tuple[Hashable, ...],
        positive: NDArray[np.bool_] | None,
        certificate: Certificate,
    ) -> Self:
        logits = self.scorer_.logits(X, codes)
        return self._set_frontier(logits, codes, names, positive, certificate)

    def _set_frontier(
        self,
        logits: NDArray[np.floating[Any]],
        codes: Codes,
        names: tuple[Hashable, ...],
        positive: NDArray[np.bool_] | None,
        certificate: Certificate,
    ) -> Self:
        check_choice(self.recalibrate, "recalibrate", (None, "group"))
        platt = None
        if self.recalibrate == "group":
            platt = getattr(self, "platt_", None)
            if positive is not None:
                platt = PlattMap.fit(logits, codes, positive, names)
                certificate = "simultaneous" if certificate == "declared" else certificate
            elif platt is None:
                raise InvalidInputError("`y` must be given: recalibrate='group' needs labels once.")
            else:
                platt = platt.of(names)
            logits = platt(logits, codes)
        logits = check_scores(logits, "logits of the estimator", nan=False)
        self.frontier_ = sweep_codes(
            logits,
            codes,
            positive,
            find_criterion(self.criterion),
            names,
            min_count=self._least_count(names),
            certificate=certificate,
            argument="sensitive_features",
        )
        self.platt_ = platt
        if positive is not None and len(names) > 1:
            mine = (codes == a for a in range(len(names)))
            _warn_if_seen(_by_label_and_bin(logits[rows], positive[rows]) for rows in mine)
        if platt is None and positive is not None:
            for a, name in enumerate(names):
                p = expit(logits[codes == a].astype(np.float64))
                if _warn_if_biased(name, p, np.ones(len(p)), int(positive[codes == a].sum())):
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
        """Find the frontier anew on scored rows in Parquet files: more of them than memory holds.

        Parameters
        ----------
        path : path
            A Parquet file, or a folder of them, of rows that the scorer was not trained on.
        score : str
            Column of scores that this model gave: its :meth:`logits`, as they are; written in
            single precision they are no longer quite those on which ``predict`` decides.
        group : str
            Column of groups, by the names that ``predict`` gets.
        label : str, optional
            Column of labels, the classes of this model. Demographic parity works without.
        tolerances : array-like, optional
            Where the answers are to be exact; the files are read twice then. Without, thresholds
            stand at edges of bins, within the tolerance. See :func:`fairdial.calibrate_parquet`.

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
                "`recalibrate` must be None for a first calibration by Parquet files, got 'group': "
                "call calibrate on some labelled rows, then write what logits gives."
            )
        kind, wishes = find_criterion(self.criterion), None
        refuse_no_label(kind, label)
        if tolerances is not None:
            wishes = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
        reader, grid = ParquetReader(path, score, group, label), Grid(BITS)
        summary, cells = count_rows(reader, grid, classes=self.classes_.tolist())
        self._check_groups(summary.groups)
        platt = None if platt is None else platt.of(summary.groups)
        self.frontier_ = find_frontier(
            summary,
            kind,
            tolerances=wishes,
            read=lambda: read_rows(reader, cells),
            min_count=self._least_count(summary.groups),
            argument="group",
        )
        self.platt_ = platt
        for what in FEATURES:  # of a fitted estimator that no rows were given to
            if not hasattr(self, what) and hasattr(getattr(self, "estimator_", None), what):
                setattr(self, what, getattr(self.estimator_, what))
        if summary.labelled and len(summary.groups) > 1:
            _warn_if_seen(summary.counts)
        if platt is None and summary.labelled:
            for name, counts in zip(summary.groups, summary.counts, strict=True):
                p, rows = expit(grid.middles), counts.sum(axis=0)
                if _warn_if_biased(name, p, rows, int(counts[1].sum())):
                    break
        return self

    def _check_groups(self, names: tuple[Hashable, ...]) -> None:
        """Where training fixed the groups, rows must be of those, and of all of them."""
        known = self._group_names()
        if known is None:
            return
        match_groups(np.array(names, dtype=object), known, "group")
        missing = [repr(name) for name in known if name not in names]
        if missing:
            raise InvalidInputError(
                f"`group` must hold rows of every group that was trained on, got none of "
                f"{', '.join(missing)}."
            )

    def _score(self, X: Any, codes: Codes) -> NDArray[np.float64]:
        """Logits, recalibrated if that is wished."""
        logits = self.scorer_.logits(X, codes)
        return np.asarray(logits if self.platt_ is None else self.platt_(logits, codes), np.float64)

    def _margins(
        self,
        X: Any,
        codes: Codes,
        wishes: Sequence[NDArray[np.float64]],
        confidence: float | None,
    ) -> list[NDArray[np.float64]]:
        """Logit minus the group's threshold."""
        logits, margins = self._score(X, codes), []
        for wish in wishes:
            if wish.ndim:
                limits = self.frontier_.row_thresholds(wish, codes, confidence=confidence)
            else:
                point = self.frontier_.at(float(wish), confidence=confidence)
                limits = point.thresholds[codes]
            with np.errstate(invalid="ignore"):
                margin = logits - limits
            margins.append(np.where(np.isnan(margin), 0.0, margin))  # inf over inf: not above
        return margins

    @groups_by_name
    def logits(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Scores on which the thresholds work: log-odds of the positive label, recalibrated."""
        return self._score(*self._rows_to_score(X, sensitive_features))

    def thresholds(
        self, tolerance: float | None = None, *, confidence: float | None = None
    ) -> dict[Hashable, float]:
        """Logit threshold of each group at a tolerance."""
        check_is_fitted(self, "frontier_")
        wish = self.tolerance if tolerance is None else tolerance
        point = self.frontier_.at(check_one(wish), confidence=confidence)
        return dict(zip(point.groups, point.thresholds.tolist(), strict=True))

    def plot_logits(
        self,
        X: Any,
        *,
        sensitive_features: Any = None,
        ax: Axes | None = None,
        label: str = "",
    ) -> Axes:
        """Logit distributions of the groups with their fairest thresholds; needs ``plot``.

        Rows between 0 and a group's fairest threshold (shaded) are those whose decisions the dial
        moves: the mechanism that GFB works on, made visible.
        """
        X, codes = self._rows_to_score(X, sensitive_features)
        logits = self._score(X, codes)
        frontier = self.frontier_
        fairest = frontier.states.read(np.array([int(np.argmin(frontier.gap))]))[0][0]
        return draw_logits(logits, codes, frontier.groups, fairest, ax=ax, label=label)


def _warn_if_biased(
    name: Hashable, p: NDArray[np.float64], rows: NDArray[Any], positive: int
) -> bool:
    """The path takes scores for log-odds: say so if a group's plainly are not, on the average.

    ``rows`` are those with each probability ``p``, and ``positive`` those with a positive label.
    """
    n = float(rows.sum())
    mean, share = float(p @ rows) / n, positive / n
    error = np.sqrt(max(float((p * (1.0 - p)) @ rows), 1.0)) / n
    biased = abs(mean - share) > max(MATERIAL, NOTICEABLE * error)
    if biased:
        warn(
            f"the scores of group {name!r} are biased: their mean probability is "
            f"{mean:.3f}, the share of positive labels {share:.3f}. That costs accuracy "
            "(not the tolerance); recalibrate='group' repairs it",
            BiasedScoresWarning,
        )
    return bool(biased)


def _by_label_and_bin(
    logits: NDArray[np.floating[Any]], positive: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """(2, bins) rows of a group by label and score, the highest scores first."""
    counts = np.zeros((2, COARSE.size), np.int64)
    count_rows_in(counts, COARSE, logits, positive.astype(np.intp))
    return counts


def _warn_if_seen(groups: Iterable[Counts]) -> None:
    """Say so if scores know the labels, which are hardly so easy to tell on rows not seen.

    Of each group there are (2, bins) rows by label and score, the highest scores first.
    """
    labels, pairs, ordered = np.zeros(2), 0.0, 0.0
    for negative, positive in groups:
        below = negative.sum() - negative.cumsum() + 0.5 * negative  # tied: half
        labels += negative.sum(), positive.sum()
        pairs += float(negative.sum()) * float(positive.sum())
        ordered += float(positive @ below)
    if labels.min() < FEWEST or not pairs or ordered < SEPARATED * pairs:
        return
    warn(
        "the scores separate the labels of the calibration rows almost perfectly (area under the "
        f"ROC curve {ordered / pairs:.4f} within groups): has the classifier seen these rows, or "
        "does `X` hold the label? Calibrate on rows that it hasn't seen; what rows that it knows "
        "promise doesn't hold on new ones",
        SeenRowsWarning,
    )
