"""From scored rows, or from the margins of a family of settings, to the frontier."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairdial._validation import (
    check_count,
    check_group_counts,
    check_labels,
    check_margins,
    check_same_length,
    check_scores,
    check_settings,
    check_tolerance,
    encode_groups,
)
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import FairdialWarning, InvalidInputError, warn
from fairdial.frontier import Certificate, Frontier
from fairdial.histograms import BITS, Histogram
from fairdial.ladders import Counts, Floats, Indices, Scores, sort_scores
from fairdial.paths import Measured, Path, count_for, count_rows, refine

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


def _fractions(lines: Scores) -> bool:
    """Whether something lies between 0 and 1: not so for decisions."""
    return any(bool(((line > 0) & (line < 1)).any()) for line in lines)


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
    _refuse_no_labels(criterion, positive is not None)
    histogram = None
    n_bins = len(names) * (1 if positive is None else 2) << BITS
    if tolerances is not None and len(scores) > max(SORT_LIMIT, n_bins // BINS_A_ROW):
        histogram = Histogram(scores, codes, positive, len(names))
        ladders = histogram.ladders
    else:
        ladders = sort_scores(scores, codes, positive, len(names))
    rows = count_rows(ladders)
    check_counts(criterion, rows, names, min_count=min_count, argument=argument)
    if histogram is None or tolerances is None:
        path = Path(ladders, criterion, scores.dtype)
        return Frontier(path, criterion, names, rows, certificate)
    path = refine(histogram, criterion, scores.dtype, tolerances)
    weaker: Certificate = "none" if certificate == "none" else "simultaneous"
    return Frontier(path, criterion, names, rows, weaker)


def measure(
    margins: ArrayLike,
    groups: Any,
    y: ArrayLike | None = None,
    *,
    settings: ArrayLike | None = None,
    criterion: str | Criterion = "demographic_parity",
    min_count: int = 30,
) -> Frontier:
    """The frontier of a family of settings, such as trained models: each one measured.

    ``frontier.at(tolerance)`` is the most accurate setting whose gap is within the tolerance; its
    ``setting`` says which. The gap need not fall from one setting to the next.

    Parameters
    ----------
    margins : (S, n) array-like
        One line a setting: it selects the rows whose margin is above 0. Use held-out rows: not
        those of training. ``confidence=`` counts every line, so give all settings that were tried.
    groups : (n,) array-like, Series or DataFrame
        Group of each row, any names; several columns stand for their intersections.
    y : (n,) array-like of 0 and 1, optional
        Labels. Demographic parity works without: the first setting within the tolerance is then
        taken, so give the least constrained one first.
    settings : (S,) array-like of float, optional
        What distinguishes the settings, each another number; 0, 1, 2, ... by default.
    criterion : str or Criterion
        What is to be equalised.
    min_count : int
        Least number of counted rows in each group.

    Returns
    -------
    Frontier

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import measure
    >>> from fairdial.datasets import make_gaussian
    >>> sample = make_gaussian(20_000, random_state=0)
    >>> help_given = np.array([0.0, 0.5, 1.0, 1.5])  # to the group that is selected less
    >>> margins = sample.logits + help_given[:, None] * (sample.groups == "group 0")
    >>> frontier = measure(margins, sample.groups, sample.y, settings=help_given)
    >>> point = frontier.at(0.2)
    >>> point.setting, point.gap <= 0.2
    (1.0, True)
    """
    kind = find_criterion(criterion)
    check_count(min_count, "min_count")
    lines = check_margins(margins)
    codes, names = encode_groups(groups)
    check_same_length(lines[0], codes, ("margins", "groups"))
    if lines.shape[1] >= MANY and _like_probabilities(lines) and _fractions(lines):
        warn(
            "all `margins` lie in [0, 1]: these look like probabilities; a row is selected where "
            "its margin is above 0, so subtract the threshold, such as 0.5",
            FairdialWarning,
        )
    positive = None
    if y is not None:
        positive = check_labels(y)
        check_same_length(lines[0], positive, ("margins", "y"))
    return measure_counts(
        check_settings(settings, len(lines)),
        count_selected(lines, codes, positive, len(names)),
        count_cells(codes, positive, len(names)),
        kind,
        names,
        min_count=min_count,
    )


def measure_counts(
    settings: Floats,
    selected: Counts,
    rows: Counts,
    criterion: Criterion,
    names: tuple[Hashable, ...],
    *,
    declared: NDArray[np.bool_] | None = None,
    min_count: int,
    argument: str = "groups",
    certificate: Certificate = "finite",
) -> Frontier:
    """:func:`measure` for rows that were checked and counted.

    ``selected`` is (S, L, K) and ``rows`` (L, K), as :func:`count_selected` counts them. Settings
    that were found by looking at these rows are not ``declared``; by default all are.
    """
    check_counts(criterion, rows, names, min_count=min_count, argument=argument)
    fixed = np.ones(len(settings), np.bool_) if declared is None else declared
    states = Measured(settings, selected, rows, criterion, fixed)
    return Frontier(states, criterion, names, rows, certificate)


def count_selected(
    margins: Scores, codes: NDArray[Any], positive: NDArray[np.bool_] | None, n_groups: int
) -> Counts:
    """(S, L, K) rows with a margin above 0, by setting, label and group; margins are (S, n)."""
    n_labels = 1 if positive is None else 2
    places = 2 * _cells(codes, positive, n_groups)  # not selected there, selected one further
    counts = np.empty((len(margins), n_labels, n_groups), np.int64)
    for line, count in zip(margins, counts, strict=True):
        found = np.bincount(places + (line > 0), minlength=2 * count.size)
        count[:] = found[1::2].reshape(count.shape)
    return counts


def count_cells(codes: NDArray[Any], positive: NDArray[np.bool_] | None, n_groups: int) -> Counts:
    """(L, K) rows by label and group."""
    n_labels = 1 if positive is None else 2
    rows = np.bincount(_cells(codes, positive, n_groups), minlength=n_labels * n_groups)
    return rows.reshape(n_labels, n_groups).astype(np.int64, copy=False)


def count_by_group(
    codes: NDArray[Any], positive: NDArray[np.bool_], criterion: Criterion, n_groups: int
) -> Counts:
    """(K,) rows of each group that count for the criterion.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import criterion
    >>> from fairdial.sweeping import count_by_group
    >>> codes, positive = np.array([0, 0, 1, 1]), np.array([True, False, True, True])
    >>> count_by_group(codes, positive, criterion("equal_opportunity"), 2)
    array([1, 2])
    """
    return count_for(criterion, count_cells(codes, positive, n_groups))


def _cells(codes: NDArray[Any], positive: NDArray[np.bool_] | None, n_groups: int) -> Indices:
    """(n,) label and group of each row in one number."""
    cells = codes.astype(np.intp)
    if positive is not None:
        cells += n_groups * positive.astype(np.intp)
    return cells


def _refuse_no_labels(criterion: Criterion, labelled: bool) -> None:
    if criterion.needs_labels and not labelled:
        raise InvalidInputError(f"`y` must be given: {criterion.name} counts rows by their label.")


def check_counts(
    criterion: Criterion,
    rows: Counts,
    names: tuple[Hashable, ...],
    *,
    min_count: int,
    argument: str = "groups",
) -> None:
    """Raise where calibration rows (L, K) lack labels, or groups lack counted rows."""
    _refuse_no_labels(criterion, len(rows) == 2)
    check_group_counts(
        count_for(criterion, rows),
        names,
        criterion=criterion.name,
        label=criterion.rates[0].counted,
        min_count=min_count,
        name=argument,
    )
