"""One scorer, and thresholds that move: FairBayes and GFB."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from fairdial._validation import check_choice, check_count, check_one, check_scores
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import BiasedScoresWarning, InvalidInputError, warn
from fairdial.frontier import Certificate
from fairdial.methods.base import DialClassifier
from fairdial.methods.rows import Codes
from fairdial.plotting import draw_logits
from fairdial.scorers import PlattMap, Scorer
from fairdial.sweeping import sweep_codes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTICEABLE = 5.0  # standard errors, and
MATERIAL = 0.03  # of probability, before biased scores are reported


class ThresholdClassifier(DialClassifier):
    """A scorer whose group thresholds are the dial: the frontier is swept, exactly."""

    recalibrate: Any
    scorer_: Scorer

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
        self.frontier_ = sweep_codes(
            check_scores(logits, "logits of the estimator", nan=False),
            codes,
            positive,
            find_criterion(self.criterion),
            names,
            min_count=check_count(self.min_count, "min_count") if len(names) > 1 else 1,
            certificate=certificate,
            argument="sensitive_features",
        )
        self.platt_ = platt
        if platt is None and positive is not None:
            _warn_if_biased(logits, codes, positive, names)
        return self

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
    logits: NDArray[Any], codes: Codes, positive: NDArray[np.bool_], names: tuple[Hashable, ...]
) -> None:
    """The path takes scores for log-odds: say so if a group's plainly are not, on the average."""
    for a, name in enumerate(names):
        p, share = expit(logits[codes == a].astype(np.float64)), positive[codes == a].mean()
        off = float(p.mean() - share)
        error = np.sqrt(max(float((p * (1.0 - p)).sum()), 1.0)) / len(p)
        if abs(off) > max(MATERIAL, NOTICEABLE * error):
            warn(
                f"the scores of group {name!r} are biased: their mean probability is "
                f"{p.mean():.3f}, the share of positive labels {share:.3f}. That costs accuracy "
                "(not the tolerance); recalibrate='group' repairs it",
                BiasedScoresWarning,
            )
            return
