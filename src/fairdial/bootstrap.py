"""Bootstrap of the frontier: what other calibration rows would have given."""

from __future__ import annotations

import numpy as np

from fairdial.ladders import Floats, Ladder
from fairdial.paths import Path, count_for, count_rows, share_right

ATOMS = 256  # score classes a group: the cost of a replicate doesn't grow with the rows


def resampled_accuracy(
    path: Path, tolerances: Floats, replicates: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Accuracy at each tolerance on the score classes, and (replicates, tolerances) on drawn rows.

    Rows are drawn with replacement within groups, and the path is found anew. A replicate in which
    a group has lost all its counted rows is NaN.
    """
    coarse = [ladder.coarsen(ATOMS) for ladder in path.ladders]
    accuracy = np.full((replicates, len(tolerances)), np.nan)
    for line in accuracy:
        drawn = [_resample(ladder, rng) for ladder in coarse]
        if count_for(path.criterion, count_rows(drawn)).all():
            line[:] = _accuracy(Path(drawn, path.criterion, path.dtype), tolerances)
    return _accuracy(Path(coarse, path.criterion, path.dtype), tolerances), accuracy


def _accuracy(path: Path, tolerances: Floats) -> Floats:
    selected = path.read(path.first_within(tolerances)[0])[1]  # (m, 2, K)
    return share_right(selected, int(path.rows[0].sum()), int(path.rows.sum()))


def _resample(ladder: Ladder, rng: np.random.Generator) -> Ladder:
    """As many rows again, drawn with replacement."""
    counts = ladder.counts
    total = int(counts.sum())
    drawn = rng.multinomial(total, counts.ravel() / total).reshape(counts.shape)
    keep = drawn.any(axis=0)
    return Ladder.of_counts(ladder.lower[keep], ladder.upper[keep], drawn[:, keep])
