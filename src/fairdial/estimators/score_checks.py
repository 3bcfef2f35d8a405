"""Warnings about suspicious scores: biased ones, and those of rows that the scorer has seen."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from fairdial._arrays import Counts, Floats, Mask, Scores, Weights
from fairdial.core.histograms import Grid, add_to_bins
from fairdial.errors import BiasedScoresWarning, SeenRowsWarning, warn

NOTICEABLE = 5.0  # standard errors: biased scores are reported if they are off by more than this
MATERIAL = 0.03  # and by more than this probability
SEPARATED = 0.999  # AUC; memorized rows exceed it, new rows with noisy labels don't
FEWEST = 100  # rows of either label; with fewer, good scores separate them by chance
COARSE = Grid(12)  # bins of 1/128, narrow enough to measure that AUC


def warn_if_biased(
    name: Hashable,
    p: Floats,
    weights: Weights | Counts | Floats,
    positive: float,
    *,
    mean_weight: float | None = None,
) -> bool:
    """Warn if a group's mean probability is clearly not its share of positive labels.

    Each probability in ``p`` has a weight, of which ``positive`` belong to positive labels. Whole
    weights are numbers of rows. Others are those of single rows, unless the mean weight of a row is
    given. Thresholds are found as if scores were log-odds.
    """
    each = weights.astype(np.float64)
    n = float(each.sum())
    mean, share = float(p @ each) / n, positive / n
    if weights.dtype.kind in "iu":
        squares, unit = each, 1.0
    elif mean_weight is None:
        squares, unit = each * each, n / len(each)
    else:
        squares, unit = mean_weight * each, mean_weight
    error = np.sqrt(max(float((p * (1.0 - p)) @ squares), unit * unit)) / n
    biased = abs(mean - share) > max(MATERIAL, NOTICEABLE * error)
    if biased:
        warn(
            f"the scores of group {name!r} are biased: their mean probability is {mean:.3f}, but "
            f"the share of positive labels is {share:.3f}. This costs accuracy, but the tolerance "
            "still holds; `recalibrate='group'` corrects it",
            BiasedScoresWarning,
        )
    return bool(biased)


def count_by_score(logits: Scores, positive: Mask) -> Counts:
    """Return (2, bins) rows of a group by label and score, highest scores first."""
    counts = np.zeros((2, COARSE.size), np.int64)
    add_to_bins(counts, COARSE, logits, positive.astype(np.intp))
    return counts


def warn_if_seen(groups: Iterable[Counts]) -> None:
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
