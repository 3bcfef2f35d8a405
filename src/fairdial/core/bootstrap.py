"""Bootstrap of the frontier: how it varies with the calibration rows."""

from __future__ import annotations

import numpy as np

from fairdial._arrays import Counts, Floats
from fairdial.core.decide import accuracy_of_counts, by_label
from fairdial.core.group_scores import GroupScores, total_counts
from fairdial.core.searched import SearchedPoints
from fairdial.core.threshold_path import ThresholdPath

N_BINS = 256  # per group, so that the cost of a replicate doesn't grow with the rows


def resampled_accuracy(
    points: ThresholdPath | SearchedPoints,
    tolerances: Floats,
    replicates: int,
    rng: np.random.Generator,
    sizes: Counts | None = None,
) -> tuple[Floats, Floats]:
    """Return the accuracy at each tolerance on binned scores, (m,), and on resampled rows, (r, m).

    Rows are drawn with replacement within groups; each replicate has its own dial. A replicate in
    which a group has no eligible rows is NaN. With weights, rows are drawn in proportion to them,
    and ``sizes`` is how many of each group; by default, as many as their weights add up to.
    """
    coarse = [scores.coarsen(N_BINS) for scores in points.group_scores]
    if sizes is None:
        sizes = np.maximum(np.rint(total_counts(points.group_scores).sum(axis=0)), 1)
    draws = list(zip(coarse, sizes.astype(np.int64).tolist(), strict=True))
    accuracy = np.full((replicates, len(tolerances)), np.nan)
    for line in accuracy:
        drawn = [_resample(scores, size, rng) for scores, size in draws]
        if points.criterion.eligible_counts(total_counts(drawn)).all():
            line[:] = _accuracy(points.rebuild(drawn), tolerances)
    return _accuracy(points.rebuild(coarse), tolerances), accuracy


def _accuracy(points: ThresholdPath | SearchedPoints, tolerances: Floats) -> Floats:
    if isinstance(points, ThresholdPath):  # bins are too coarse to search beyond its end
        _, selected = points.read(points.find(tolerances)[0])  # (m, C, K)
    else:
        table, _ = points.choose(tolerances)
        _, selected = table.read(np.arange(len(table)))
    return accuracy_of_counts(by_label(selected, 2), by_label(total_counts(points.group_scores), 2))


def _resample(scores: GroupScores, size: int, rng: np.random.Generator) -> GroupScores:
    """Draw rows with replacement, and give them the weight of all."""
    counts = scores.counts
    total = counts.sum()
    drawn: Counts = rng.multinomial(size, counts.ravel() / total).reshape(counts.shape)
    if size != total:
        drawn = drawn * (total / size)
    keep = drawn.any(axis=0)
    return GroupScores.from_counts(scores.lower[keep], scores.upper[keep], drawn[:, keep])
