"""Scores of the groups in common bins, from ladders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairdial.ladders import Counts, Floats, Ladder

BINS = 60
TAIL = 0.002  # of the rows on either side may lie beyond the edges


def histogram(ladders: Sequence[Ladder]) -> tuple[Floats, Counts]:
    """Edges, and rows by group, label and bin, (K, L, bins).

    Bins are equally wide and closed above; 0 is an edge. Rows beyond the edges count in the
    outermost bins. An atom that is more than one score (ladders of bins) goes where its middle is.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.ladders import sort_scores
    >>> from fairdial.serve.histogram import histogram
    >>> ladders = sort_scores(np.array([-1.0, 0.5, 2.0]), np.array([0, 0, 1]), None, 2)
    >>> edges, counts = histogram(ladders)
    >>> counts.sum(axis=2).tolist()
    [[2], [1]]
    """
    middles = [_middles(ladder) for ladder in ladders]
    edges = _edges(middles, [ladder.counts.sum(axis=0) for ladder in ladders])
    counts = [
        _binned(edges, middle, ladder.counts)
        for middle, ladder in zip(middles, ladders, strict=True)
    ]
    return edges, np.stack(counts)


def _middles(ladder: Ladder) -> Floats:
    """(m,) where each atom stands; infinite scores at the ends of all numbers."""
    most = np.finfo(np.float64).max / 4
    lower, upper = np.clip(ladder.lower, -most, most), np.clip(ladder.upper, -most, most)
    return np.asarray(lower + (upper - lower) / 2)


def _edges(middles: Sequence[Floats], rows: Sequence[Counts]) -> Floats:
    """Evenly spaced, 0 among them, over all but the farthest rows on either side."""
    values, weights = np.concatenate(middles), np.concatenate(rows)
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(share, [TAIL, 1.0 - TAIL])
    low, high = values[order][np.minimum(places, len(order) - 1)].tolist()
    low, high = min(low, 0.0), max(high, 0.0)
    width = (high - low) / BINS or 1.0 / BINS
    first, last = np.floor(low / width), np.ceil(high / width)
    return np.arange(min(first, -1.0), max(last, 1.0) + 1) * width


def _binned(edges: Floats, values: Floats, counts: Counts) -> Counts:
    """(L, bins) rows in each bin, closed above; those beyond the edges in the outermost bins."""
    place = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)
    return np.stack(
        [np.bincount(place, line, minlength=len(edges) - 1).astype(np.int64) for line in counts]
    )
