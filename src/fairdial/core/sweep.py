"""Compute the frontier of scored rows (:func:`sweep`) or of a model family (:func:`measure`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Codes, Counts, Dtype, Floats, Kinds, Mask, Scores, Weights
from fairdial._validation import (
    check_count,
    check_labels,
    check_margins,
    check_same_length,
    check_scores,
    check_settings,
    check_tolerance,
    check_utility,
    check_weights,
    encode_groups,
)
from fairdial.core.criteria import ALL, Criterion, Given
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_rows, count_selected
from fairdial.core.frontier import Certificate, Frontier
from fairdial.core.group_scores import GroupScores, sort_scores, total_counts
from fairdial.core.groupings import Overlap, check_overlap, find_groupings
from fairdial.core.histograms import BITS, Histogram, refine
from fairdial.core.nested import nest
from fairdial.core.objectives import Objective
from fairdial.core.operating_points import ModelFamily, OperatingPoints
from fairdial.core.overlap import search_points
from fairdial.core.problem import Budget, Problem, make_problem
from fairdial.core.strata import find_strata
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
    criterion: Given = "demographic_parity",
    objective: str | Objective = "accuracy",
    budget: float | Budget | None = None,
    nested: bool | None = None,
    rising: bool = False,
    randomize: Literal["hash"] | None = None,
    value: Literal["plug-in", "labels"] = "plug-in",
    utility: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    tolerances: ArrayLike | None = None,
    overlap: Overlap = "intersection",
    min_count: int = 30,
) -> Frontier:
    """Compute the exact frontier of scored rows from one sort.

    Parameters
    ----------
    logits : (n,) array-like
        Scores: log-odds of the positive label. Use held-out rows, not the training rows.
    groups : (n,) array-like, Series or DataFrame
        Group of each row; several columns are combined into their intersections.
    y : (n,) array-like of 0 and 1, optional
        Labels. Demographic parity doesn't need them; without them, accuracy is unknown.
    criterion : str, Criterion, list or mapping
        The criterion; see :func:`fairdial.criterion` for names and combinations, such as
        ``{"demographic_parity": 0.10, "equal_opportunity": 0.05}``.
    objective : str or Objective
        What to maximize: "accuracy", "balanced_accuracy", "f1" or :func:`fairdial.Costs`.
    budget : float, int or Budget, optional
        Select at most this share (at most 1) or number of the calibration rows.
    nested : bool, optional
        True: each row changes its decision at most once along the dial. False: the best
        thresholds at each tolerance. By default, criteria with one rate and accuracy as objective
        are nested, at next to no cost, and others are not.
    rising : bool
        Only lower thresholds: no row loses a positive decision.
    randomize : {None, "hash"}
        "hash" mixes thresholds by a hash of the row. This keeps the tolerance in expectation, and
        costs less than deciding without chance where tolerances are tight.
    value : {"plug-in", "labels"}
        Compute the objective from the scores, or from the labels of these rows. Scores generalize
        better on small data.
    utility : (n,) array-like, optional
        What selecting each row is worth, in place of an objective.
    sample_weight : (n,) array-like, optional
        Weights of the rows. Whole numbers mean repeated rows.
    control_features : (n,) array-like, Series or DataFrame, optional
        Strata of the rows: every demand holds within each of them. If the criterion has conditions,
        these are its columns.
    tolerances : array-like, optional
        The tolerances that you will use. With more than 30,000 rows, a histogram then takes the
        place of sorting. For one rate, the answers to these tolerances are still exact. At others,
        and for other criteria, thresholds are at bin edges: within the tolerance, with exact gap
        and accuracy, but up to a bin (2^-9) from the best; and ``confidence=`` is always
        simultaneous.
    overlap : {"intersection", "marginal", "both"}
        What is compared if ``groups`` has several columns: the intersections, the groups of each
        column, or all of them. Thresholds are those of intersections in any case. "marginal" and
        "both" are for differences of rates.
    min_count : int
        Minimum number of eligible rows per group that is compared.

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
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(10_000, random_state=0)
    >>> odds = sweep(rows.logits, rows.groups, rows.y, criterion="equalized_odds")
    >>> odds.at(0.05).gaps["true_positive_rate"] <= 0.05
    True
    """
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
    weights = check_weights(sample_weight, len(scores))
    gain = None
    if utility is not None:
        gain = check_utility(utility, len(scores))
        if objective != "accuracy" or value != "plug-in":
            raise InvalidInputError(
                "utility", "be given without `objective` and `value`, which it replaces"
            )
        objective = Objective("utility")
    exact = None
    if tolerances is not None:
        exact = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
    n_rows = float(len(scores) if weights is None else weights.sum())
    problem = make_problem(
        criterion, objective, budget, nested, rising, randomize, value, n_rows=n_rows
    )
    resolved, strata = find_strata(problem.criterion, control_features, len(scores))
    resolved = compare_groups(resolved, overlap, "overlap", groups, codes, names)
    return sweep_encoded(
        scores,
        codes,
        positive,
        replace(problem, criterion=resolved),
        names,
        strata=strata,
        weights=weights,
        utility=gain,
        min_count=min_count,
        tolerances=exact,
    )


def compare_groups(
    criterion: Criterion,
    overlap: object,
    argument: str,
    values: Any,
    codes: Codes,
    names: Sequence[Hashable],
    name: str = "groups",
) -> Criterion:
    """Return the criterion of what ``overlap`` says: intersections, marginal groups, or both."""
    how = check_overlap(overlap, argument)
    if how == "intersection":
        return criterion
    return criterion.compare(how, find_groupings(values, codes, names, name))


def _look_like_probabilities(scores: Scores) -> bool:
    """Whether scores fill much of [0, 1], on both sides of one half, and nothing else."""
    low, high = float(scores.min()), float(scores.max())
    return 0.0 <= low < 0.3 and 0.7 < high <= 1.0


def sweep_encoded(
    scores: Scores,
    codes: Codes,
    positive: Mask | None,
    problem: Problem,
    names: tuple[Hashable, ...],
    *,
    strata: Codes | None = None,
    weights: Weights | None = None,
    utility: Floats | None = None,
    min_count: int,
    tolerances: Floats | None = None,
    certificate: Certificate = "declared",
    argument: str = "groups",
) -> Frontier:
    """Compute the frontier of checked rows with group codes.

    The criterion's conditions have been applied: ``strata`` are the rows' strata.
    """
    criterion = problem.criterion
    require_labels(problem, positive is not None)
    if weights is not None:
        certificate = "weighted"
        kept = np.flatnonzero(weights)
        if len(kept) < len(weights):  # a weight of 0 is no row
            scores, codes, weights = scores.take(kept), codes.take(kept), weights.take(kept)
            positive = None if positive is None else positive.take(kept)
            strata = None if strata is None else strata.take(kept)
            utility = None if utility is None else utility.take(kept)
    n_labels, n_groups = 1 if positive is None else 2, len(names)
    n_kinds = n_labels * criterion.n_strata
    kinds = find_kinds(positive, strata)
    n_bins = n_groups * n_kinds << BITS
    enough = len(scores) > max(SORT_LIMIT, n_bins // MAX_BINS_PER_ROW)
    rows = scores, codes, kinds, n_groups, n_kinds, weights
    binned = None
    if tolerances is not None and enough and utility is None:
        binned = Histogram(*rows)
    group_scores = sort_scores(*rows, utility) if binned is None else binned.group_scores
    cells = total_counts(group_scores)
    counts = cells if weights is None else count_rows(codes, kinds, n_groups, n_kinds)
    check_group_sizes(criterion, counts, names, min_count=min_count, argument=argument)
    if binned is not None and tolerances is not None and problem.uses_path:
        path = refine(binned, criterion, scores.dtype, tolerances)
        if problem.nested or not path.is_beyond(tolerances).any():
            path.strict = problem.nested is True
            return Frontier(path, problem, names, cells, _weaken(certificate))
        binned = None  # beyond the end of the path, answers depend on all scores
        group_scores = sort_scores(*rows)
    points = find_points(group_scores, problem, scores.dtype, n_labels, tolerances, names)
    reached = certificate if binned is None else _weaken(certificate)
    return Frontier(points, problem, names, cells, reached)


def _weaken(certificate: Certificate) -> Certificate:
    """Return what thresholds at the edges of bins support."""
    return "simultaneous" if certificate == "declared" else certificate


def find_kinds(positive: Mask | None, strata: Codes | None) -> Kinds | None:
    """Return the kind of each row, ``stratum * L + label``; None if all are of one kind."""
    if strata is None:
        return positive
    if positive is None:
        return strata
    return np.asarray(strata.astype(np.intp) * 2 + positive)


def find_points(
    group_scores: Sequence[GroupScores],
    problem: Problem,
    dtype: Dtype,
    n_labels: int,
    tolerances: Floats | None = None,
    names: Sequence[Hashable] | None = None,
) -> OperatingPoints:
    """Return the operating points of groups' scores: a path, a search, or a nested search."""
    if problem.uses_path:
        strict = problem.nested is True
        return ThresholdPath(group_scores, problem.criterion, dtype, strict=strict)
    searched = search_points(group_scores, problem, dtype, n_labels, names)
    return nest(searched, tolerances) if problem.nested else searched


def measure(
    margins: ArrayLike,
    groups: Any,
    y: ArrayLike | None = None,
    *,
    settings: ArrayLike | None = None,
    criterion: Given = "demographic_parity",
    sample_weight: ArrayLike | None = None,
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
    criterion : str, Criterion, list or mapping
        The criterion; see :func:`fairdial.criterion`.
    sample_weight : (n,) array-like, optional
        Weights of the rows. Whole numbers mean repeated rows.
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
    kind, _ = find_strata(find_criterion(criterion), None, 0)
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
    weights = check_weights(sample_weight, lines.shape[1])
    n_kinds = 1 if positive is None else 2
    check_group_sizes(
        kind, count_rows(codes, positive, len(names), n_kinds), names, min_count=min_count
    )
    return measure_counts(
        check_settings(settings, len(lines)),
        count_selected(lines, codes, positive, len(names), n_kinds, weights),
        count_rows(codes, positive, len(names), n_kinds, weights),
        kind,
        names,
        min_count=0,
        certificate="finite" if weights is None else "weighted",
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
    return Frontier(points, Problem(criterion), names, counts, certificate)


def require_labels(problem: Problem, has_labels: bool) -> None:
    """Raise if criterion or objective need labels and there are none."""
    if problem.criterion.needs_labels and not has_labels:
        raise InvalidInputError("y", f"be given for {problem.criterion.name}")
    if problem.value == "labels" and not has_labels:
        raise InvalidInputError("y", "be given for `value='labels'`")


def check_group_sizes(
    criterion: Criterion,
    counts: Counts,
    names: tuple[Hashable, ...],
    *,
    min_count: int,
    argument: str = "groups",
) -> None:
    """Raise if labels are missing, or a group has too few eligible rows; counts are (C, K)."""
    require_labels(Problem(criterion), len(counts) == 2 * criterion.n_strata)
    split = criterion.split(counts)
    for demand in criterion.demands:
        rate = demand.rate if demand.rate.fixed else ALL
        eligible = replace(demand, rate=rate).parts(split, split)[1]
        sizes = dict(zip(demand.names(names), eligible.tolist(), strict=True))
        kind = "" if rate.eligible is None else f" with label {rate.eligible}"
        kind += f" in {demand.within}" if demand.within else ""
        _refuse_small(sizes, kind, min_count, argument)


def _refuse_small(sizes: Mapping[Hashable, int], kind: str, min_count: int, argument: str) -> None:
    """Raise if a group has no eligible rows, or fewer than ``min_count``."""
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
