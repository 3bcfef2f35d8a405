"""From scored rows to the frontier."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairdial._validation import (
    check_count,
    check_group_counts,
    check_labels,
    check_same_length,
    check_scores,
    check_tolerance,
    encode_groups,
)
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import FairdialWarning, InvalidInputError, warn
from fairdial.frontier import Certificate, Frontier
from fairdial.ladders import BITS, Floats, Histogram, Scores, sort_scores
from fairdial.paths import Path, count_for, count_rows, refine

BINS_A_ROW = 4  # at most, or sorting costs less than looking through the bins
MANY = 30  # scores, before they are taken for probabilities
SORT_LIMIT = 30_000  # rows up to which sorting them all costs less than two passes


def sweep(
    logits: ArrayLike,
    groups: Any,
    y: ArrayLike | None = None,
    *,
    criterion: str | Criterion = "demographic_parity",
    tolerances: ArrayLike | None = None,
    min_count: int = 30,
) -> Frontier:
    """The exact frontier of scored rows: every state of the dial, from one sort.

    Parameters
    ----------
    logits : (n,) array-like
        Scores, log-odds of the positive label. Use held-out rows: not those of training.
    groups : (n,) array-like, Series or DataFrame
        Group of each row, any names; several columns stand for their intersections.
    y : (n,) array-like of 0 and 1, optional
        Labels. Demographic parity works without; then accuracy is absent.
    criterion : str or Criterion
        What is to be equalised.
    tolerances : array-like, optional
        The tolerances that will be asked for. More than 30,000 rows are then not sorted: a
        histogram finds the few rows on which these answers depend, and they are exact. At other
        tolerances thresholds stand at bin edges: within the tolerance, with exact figures, but up
        to a bin (2^-9) from the least constrained; and ``confidence=`` is always simultaneous.
    min_count : int
        Least number of counted rows in each group.

    Returns
    -------
    Frontier

    Examples
    --------
    >>> from fairdial import sweep
    >>> logits = [-2, -1, -0.5, 0.4, -0.3, 0.2, 0.7, 1.5, 2]
    >>> frontier = sweep(logits, [0] * 4 + [1] * 5, min_count=1)
    >>> point = frontier.at(0.2)
    >>> round(point.gap, 6), round(point.disparity, 6)
    (0.1, 0.1)
    """
    kind = find_criterion(criterion)
    check_count(min_count, "min_count")
    scores = check_scores(logits, nan=False)  # looked for below, on the way
    codes, names = encode_groups(groups)
    check_same_length(scores, codes, ("logits", "groups"))
    if len(scores) >= MANY and _like_probabilities(scores):
        warn(
            "all `logits` lie in [0, 1]: these look like probabilities, whose log-odds "
            "proba_to_logits gives",
            FairdialWarning,
        )
    positive = None
    if y is not None:
        positive = check_labels(y)
        check_same_length(scores, positive, ("logits", "y"))
    wishes = None
    if tolerances is not None:
        wishes = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
    return sweep_codes(scores, codes, positive, kind, names, min_count=min_count, tolerances=wishes)


def _like_probabilities(scores: Scores) -> bool:
    """Whether scores fill much of [0, 1], on both sides of one half, and nothing else."""
    low, high = float(scores.min()), float(scores.max())
    return 0.0 <= low < 0.3 and 0.7 < high <= 1.0


def sweep_codes(
    scores: Scores,
    codes: NDArray[np.integer[Any]],
    positive: NDArray[np.bool_] | None,
    criterion: Criterion,
    names: tuple[Hashable, ...],
    *,
    min_count: int,
    tolerances: Floats | None = None,
    certificate: Certificate = "declared",
    argument: str = "groups",
) -> Frontier:
    """:func:`sweep` for rows that were checked, with group codes instead of names."""
    if criterion.needs_labels and positive is None:
        raise InvalidInputError(f"`y` must be given: {criterion.name} counts rows by their label.")
    histogram = None
    n_bins = len(names) * (1 if positive is None else 2) << BITS
    if tolerances is not None and len(scores) > max(SORT_LIMIT, n_bins // BINS_A_ROW):
        histogram = Histogram(scores, codes, positive, len(names))
        ladders = histogram.ladders
    else:
        ladders = sort_scores(scores, codes, positive, len(names))
    rows = count_rows(ladders)
    check_group_counts(
        count_for(criterion, rows),
        names,
        criterion=criterion.name,
        label=criterion.rates[0].counted,
        min_count=min_count,
        name=argument,
    )
    if histogram is None or tolerances is None:
        path = Path(ladders, criterion, scores.dtype)
        return Frontier(path, criterion, names, rows, certificate)
    path = refine(histogram, criterion, scores.dtype, tolerances)
    weaker: Certificate = "none" if certificate == "none" else "simultaneous"
    return Frontier(path, criterion, names, rows, weaker)
