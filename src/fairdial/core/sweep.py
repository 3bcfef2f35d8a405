"""Compute the frontier of scored rows (:func:`sweep`) or of a model family (:func:`measure`)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Codes, Counts, Floats, Mask, Scores
from fairdial._validation import (
    check_count,
    check_labels,
    check_margins,
    check_same_length,
    check_scores,
    check_settings,
    check_tolerance,
    encode_groups,
)
from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_rows, count_selected
from fairdial.core.frontier import Certificate, Frontier
from fairdial.core.group_scores import sort_scores, total_counts
from fairdial.core.histograms import BITS, Histogram, refine
from fairdial.core.operating_points import ModelFamily
from fairdial.core.threshold_path import ThresholdPath
from fairdial.errors import FairdialWarning, InvalidInputError, SmallGroupError, warn

MAX_BINS_PER_ROW = 4  # with more, sorting is faster than a histogram
SORT_LIMIT = 30_000  # rows up to which sorting is faster than two passes
ENOUGH_ROWS = 30  # to tell probabilities from logits


def sweep(
    logits: ArrayLike,
    groups: Any,
    y: ArrayLike | None = None,
    *,
    criterion: str | Criterion = "demographic_parity",
    tolerances: ArrayLike | None = None,
    min_count: int = 30,
) -> Frontier:
    """Compute the exact frontier of scored rows: all operating points, from one sort.

    Parameters
    ----------
    logits : (n,) array-like
        Scores: log-odds of the positive label. Use held-out rows, not the training rows.
    groups : (n,) array-like, Series or DataFrame
        Group of each row; several columns are combined into their intersections.
    y : (n,) array-like of 0 and 1, optional
        Labels. Demographic parity doesn't need them; without them, accuracy is unknown.
    criterion : str or Criterion
        The criterion to equalize.
    tolerances : array-like, optional
        The tolerances that you will use. With more than 30,000 rows, the answers to them are then
        computed by a histogram and the few rows that they depend on, without sorting all rows;
        they are still exact. At other tolerances, thresholds are at bin edges: within the
        tolerance, with exact gap and accuracy, but up to a bin (2^-9) from the least constrained
        point; and ``confidence=`` is always simultaneous.
    min_count : int
        Minimum number of eligible rows per group.

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
    scores = check_scores(logits, nan=False)  # checked below, in a later pass
    codes, names = encode_groups(groups)
    check_same_length(scores, codes, ("logits", "groups"))
    if len(scores) >= ENOUGH_ROWS and _look_like_probabilities(scores):
        warn(
            "All `logits` are in [0, 1] and look like probabilities; proba_to_logits converts "
            "probabilities to logits.",
            FairdialWarning,
        )
    positive = None
    if y is not None:
        positive = check_labels(y)
        check_same_length(scores, positive, ("logits", "y"))
    exact = None
    if tolerances is not None:
        exact = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
    return sweep_encoded(
        scores, codes, positive, kind, names, min_count=min_count, tolerances=exact
    )


def _look_like_probabilities(scores: Scores) -> bool:
    """Whether scores fill much of [0, 1], on both sides of one half, and nothing else."""
    low, high = float(scores.min()), float(scores.max())
    return 0.0 <= low < 0.3 and 0.7 < high <= 1.0


def sweep_encoded(
    scores: Scores,
    codes: Codes,
    positive: Mask | None,
    criterion: Criterion,
    names: tuple[Hashable, ...],
    *,
    min_count: int,
    tolerances: Floats | None = None,
    certificate: Certificate = "declared",
    argument: str = "groups",
) -> Frontier:
    """Compute the frontier of checked rows with group codes."""
    _require_labels(criterion, positive is not None)
    histogram = None
    n_bins = len(names) * (1 if positive is None else 2) << BITS
    if tolerances is not None and len(scores) > max(SORT_LIMIT, n_bins // MAX_BINS_PER_ROW):
        histogram = Histogram(scores, codes, positive, len(names))
        group_scores = histogram.group_scores
    else:
        group_scores = sort_scores(scores, codes, positive, len(names))
    counts = total_counts(group_scores)
    check_group_sizes(criterion, counts, names, min_count=min_count, argument=argument)
    if histogram is None or tolerances is None:
        path = ThresholdPath(group_scores, criterion, scores.dtype)
        return Frontier(path, criterion, names, counts, certificate)
    path = refine(histogram, criterion, scores.dtype, tolerances)
    weaker: Certificate = "none" if certificate == "none" else "simultaneous"
    return Frontier(path, criterion, names, counts, weaker)


def measure(
    margins: ArrayLike,
    groups: Any,
    y: ArrayLike | None = None,
    *,
    settings: ArrayLike | None = None,
    criterion: str | Criterion = "demographic_parity",
    min_count: int = 30,
) -> Frontier:
    """Compute the frontier of a model family: models trained at several settings.

    ``frontier.at(tolerance)`` is the most accurate model whose gap is within the tolerance, named
    by its ``setting``. The gap need not decrease from one setting to the next.

    Parameters
    ----------
    margins : (S, n) array-like
        One line per model, which selects the rows with a margin above 0. Use held-out rows, not
        the training rows. Include all settings that were tried: ``confidence=`` counts them.
    groups : (n,) array-like, Series or DataFrame
        Group of each row; several columns are combined into their intersections.
    y : (n,) array-like of 0 and 1, optional
        Labels. Demographic parity doesn't need them: the dial then uses the first model within the
        tolerance, so order the models from least to most constrained.
    settings : (S,) array-like of float, optional
        A distinct number per model; 0, 1, 2, ... by default.
    criterion : str or Criterion
        The criterion to equalize.
    min_count : int
        Minimum number of eligible rows per group.

    Returns
    -------
    Frontier

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import measure
    >>> from fairdial.datasets import make_gaussian
    >>> sample = make_gaussian(20_000, random_state=0)
    >>> boosts = np.array([0.0, 0.5, 1.0, 1.5])  # of the group with the lower rate
    >>> margins = sample.logits + boosts[:, None] * (sample.groups == "group 0")
    >>> frontier = measure(margins, sample.groups, sample.y, settings=boosts)
    >>> point = frontier.at(0.2)
    >>> point.setting, point.gap <= 0.2
    (1.0, True)
    """
    kind = find_criterion(criterion)
    check_count(min_count, "min_count")
    lines = check_margins(margins)
    codes, names = encode_groups(groups)
    check_same_length(lines[0], codes, ("margins", "groups"))
    if (
        lines.shape[1] >= ENOUGH_ROWS
        and _look_like_probabilities(lines)
        and any(bool(((line > 0) & (line < 1)).any()) for line in lines)  # decisions are 0 or 1
    ):
        warn(
            "All `margins` are in [0, 1] and look like probabilities. Rows with a margin above 0 "
            "are selected, so subtract the threshold, such as 0.5.",
            FairdialWarning,
        )
    positive = None
    if y is not None:
        positive = check_labels(y)
        check_same_length(lines[0], positive, ("margins", "y"))
    return measure_counts(
        check_settings(settings, len(lines)),
        count_selected(lines, codes, positive, len(names)),
        count_rows(codes, positive, len(names)),
        kind,
        names,
        min_count=min_count,
    )


def measure_counts(
    settings: Floats,
    selected: Counts,
    counts: Counts,
    criterion: Criterion,
    names: tuple[Hashable, ...],
    *,
    declared: Mask | None = None,
    min_count: int,
    argument: str = "groups",
    certificate: Certificate = "finite",
) -> Frontier:
    """Compute the frontier of a model family from selected rows, (S, L, K), and all rows, (L, K).

    Settings that were found by looking at these rows are not ``declared``; by default all are.
    """
    check_group_sizes(criterion, counts, names, min_count=min_count, argument=argument)
    fixed = np.ones(len(settings), np.bool_) if declared is None else declared
    points = ModelFamily(settings, selected, counts, criterion, fixed)
    return Frontier(points, criterion, names, counts, certificate)


def _require_labels(criterion: Criterion, has_labels: bool) -> None:
    if criterion.needs_labels and not has_labels:
        raise InvalidInputError("y", f"be given for {criterion.name}")


def check_group_sizes(
    criterion: Criterion,
    counts: Counts,
    names: tuple[Hashable, ...],
    *,
    min_count: int,
    argument: str = "groups",
) -> None:
    """Raise if labels are missing, or a group has too few eligible rows; counts are (L, K)."""
    _require_labels(criterion, len(counts) == 2)
    sizes = dict(zip(names, criterion.eligible_counts(counts).tolist(), strict=True))
    label = criterion.rate.eligible
    kind = "" if label is None else f" with label {label}"
    empty = [name for name, size in sizes.items() if size == 0]
    if empty:
        raise InvalidInputError(
            argument,
            f"have rows{kind} in every group",
            given=f"none in {', '.join(map(repr, empty))}",
        )
    small = [name for name, size in sizes.items() if size < min_count]
    if small:
        raise SmallGroupError(
            argument,
            f"have at least {min_count} calibration rows{kind} in every group",
            given=", ".join(f"{sizes[name]} in {name!r}" for name in small),
            hint=(
                "Merge small groups, drop their rows, or calibrate on more rows.",
                "Set `calibration` or `cv` to calibrate on more rows.",
                "Lower `min_count` to accept small groups: then a single row of a tiny group can "
                "change the decisions of all others.",
            ),
            groups=small,
        )
