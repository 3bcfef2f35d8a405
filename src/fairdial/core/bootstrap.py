"""Bootstrap of the frontier: how it varies with the calibration rows."""

from __future__ import annotations

import numpy as np

from fairdial._arrays import Floats
from fairdial.core.decide import accuracy_of_counts
from fairdial.core.group_scores import GroupScores, total_counts
from fairdial.core.threshold_path import ThresholdPath

N_BINS = 256  # per group, so that the cost of a replicate doesn't grow with the rows


def resampled_accuracy(
    path: ThresholdPath, tolerances: Floats, replicates: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the accuracy at each tolerance on binned scores, (m,), and on resampled rows, (r, m).

    Rows are drawn with replacement within groups; each replicate has its own path. A replicate in
    which a group has no eligible rows is NaN.
    """
    coarse = [scores.coarsen(N_BINS) for scores in path.group_scores]
    accuracy = np.full((replicates, len(tolerances)), np.nan)
    for line in accuracy:
        drawn = [_resample(scores, rng) for scores in coarse]
        if path.criterion.eligible_counts(total_counts(drawn)).all():
            line[:] = _accuracy(ThresholdPath(drawn, path.criterion, path.dtype), tolerances)
    return _accuracy(ThresholdPath(coarse, path.criterion, path.dtype), tolerances), accuracy


def _accuracy(path: ThresholdPath, tolerances: Floats) -> Floats:
    selected = path.read(path.find(tolerances)[0])[1]  # (m, 2, K)
    return accuracy_of_counts(selected, path.counts)


def _resample(scores: GroupScores, rng: np.random.Generator) -> GroupScores:
    """Draw as many rows with replacement."""
    counts = scores.counts
    total = int(counts.sum())
    drawn = rng.multinomial(total, counts.ravel() / total).reshape(counts.shape)
    keep = drawn.any(axis=0)
    return GroupScores.from_counts(scores.lower[keep], scores.upper[keep], drawn[:, keep])
