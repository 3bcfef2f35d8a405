"""Compute the frontier of decisions that don't see the groups (:func:`sweep_blind`)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Codes, Floats, Mask, Scores, Weights
from fairdial._validation import (
    check_choice,
    check_count,
    check_labels,
    check_posterior,
    check_same_length,
    check_scores,
    check_weights,
    encode_groups,
    order_columns,
)
from fairdial.core.criteria import Given
from fairdial.core.decide import count_rows
from fairdial.core.frontier import Certificate, Frontier
from fairdial.core.groupings import Overlap, check_overlap
from fairdial.core.objectives import Objective
from fairdial.core.price_points import ScoredRows, find_price_points
from fairdial.core.prices import check_priceable
from fairdial.core.problem import Problem, make_problem
from fairdial.core.sweep import check_group_sizes, compare_groups, require_labels
from fairdial.errors import InvalidInputError

Unknown = Literal["raise", "estimate"]


def sweep_blind(
    logits: ArrayLike,
    posterior: ArrayLike,
    groups: Any,
    y: ArrayLike | None = None,
    *,
    criterion: Given = "demographic_parity",
    objective: str | Objective = "accuracy",
    nested: bool | None = None,
    sample_weight: ArrayLike | None = None,
    unknown: Unknown = "raise",
    overlap: Overlap = "intersection",
    min_count: int = 30,
) -> Frontier:
    """Compute the frontier of decisions from probabilities of the groups.

    Decisions need a score and a probability of each group, but no group. The true groups of the
    calibration rows say which gap decisions have, so tolerances hold exactly on these rows, however
    good or bad the probabilities are.

    Parameters
    ----------
    logits : (n,) array-like
        Log-odds of the positive label. Use held-out rows, not the training rows.
    posterior : (n, K) array-like
        Probability of each group, in sorted order of their names.
    groups : (n,) array-like, Series or DataFrame; or None
        True group of each row. With ``unknown="estimate"``, missing values (None, NaN) are groups
        that aren't known; None means that no group is.
    y : (n,) array-like of 0 and 1, optional
        Labels. Demographic parity doesn't need them; without them, accuracy is unknown.
    criterion : str, Criterion, list or mapping
        Differences of rates over all rows, or rows with one label.
    objective : str or Objective
        "accuracy", "balanced_accuracy" or :func:`fairdial.Costs`.
    nested : bool, optional
        True: each row changes its decision at most once along the dial. With two groups and one
        rate that is always so.
    sample_weight : (n,) array-like, optional
        Weights of the rows. Whole numbers mean repeated rows.
    unknown : {"raise", "estimate"}
        What to do about rows without a known group. "estimate": tolerances hold exactly on the rows
        whose group is known, and the gap on all rows is estimated from the posterior. If no group
        is known, the gap itself is an estimate. ``point.promise`` says which.
    overlap : {"intersection", "marginal", "both"}
        What is compared if ``groups`` has several columns; see :func:`fairdial.sweep`. The
        posterior is that of the intersections.
    min_count : int
        Minimum number of eligible rows per group.

    Returns
    -------
    Frontier

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import sweep_blind
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(10_000, random_state=0)
    >>> likely = np.where(rows.groups == "group 1", 0.8, 0.2)  # what is known of the groups
    >>> posterior = np.column_stack((1 - likely, likely))
    >>> frontier = sweep_blind(rows.logits, posterior, rows.groups, rows.y)
    >>> frontier.at(0.05).gap <= 0.05
    True
    >>> decisions = frontier.decide(rows.logits, posterior, tolerance=0.05)
    """
    check_count(min_count, "min_count")
    scores = check_scores(logits)
    known, codes, names = find_known(groups, posterior, len(scores), unknown)
    shares = check_posterior(order_columns(posterior, names, "posterior", "groups"), len(names))
    check_same_length(scores, shares, ("logits", "posterior"))
    positive = None
    if y is not None:
        positive = check_labels(y)
        check_same_length(scores, positive, ("logits", "y"))
    weights = check_weights(sample_weight, len(scores))
    problem = make_problem(criterion, objective, nested=nested)
    some = groups
    if known is not None and known.any() and not known.all():
        some = take_known(groups, known)
    places = codes if known is None else codes[known]
    if known is None or known.any():
        compared = compare_groups(problem.criterion, overlap, "overlap", some, places, names)
        problem = replace(problem, criterion=compared)
    elif check_overlap(overlap, "overlap") != "intersection":
        raise InvalidInputError("overlap", "be 'intersection' if no group is known", given=overlap)
    return sweep_blind_encoded(
        scores,
        shares,
        codes,
        positive,
        problem,
        names,
        weights=weights,
        min_count=min_count,
        known=known,
    )


def find_known(
    groups: Any, posterior: object, n_rows: int, unknown: object, argument: str = "groups"
) -> tuple[Mask | None, Codes, tuple[Hashable, ...]]:
    """Return which rows have a known group (None: all), group codes, and names of the groups."""
    import pandas as pd

    check_choice(unknown, "unknown", ("raise", "estimate"))
    if unknown == "raise":
        if groups is None:
            raise InvalidInputError(argument, "be given unless `unknown='estimate'`", given="None")
        codes, names = encode_groups(groups, argument)
        check_same_length(range(n_rows), codes, ("logits", argument))
        return None, codes, names
    if groups is not None:
        if np.ndim(groups) == 0:
            raise InvalidInputError(argument, "have one group per row", given=repr(groups))
        check_same_length(range(n_rows), range(len(groups)), ("logits", argument))
        missing = np.asarray(pd.isna(np.asarray(groups, dtype=object)))
        known = np.asarray(~missing.reshape(n_rows, -1).any(axis=1), np.bool_)
        codes = np.zeros(n_rows, np.intp)
        if known.all():
            return None, *encode_groups(groups, argument)
        if known.any():
            codes[known], names = encode_groups(take_known(groups, known), argument)
            return known, codes, names
    shape = np.asarray(posterior).shape
    if len(shape) != 2:
        raise InvalidInputError(
            "posterior",
            "have a column for each group, with its probability in every row",
            given=f"shape {shape}" if shape else repr(posterior),
            hint="Of two groups with one probability p: np.column_stack((1 - p, p)).",
        )
    names = tuple(range(shape[1]))
    if isinstance(posterior, pd.DataFrame):
        names = tuple(posterior.columns)
    return np.zeros(n_rows, np.bool_), np.zeros(n_rows, np.intp), names


def take_known(groups: Any, known: Mask) -> Any:
    """Return the groups of some rows."""
    return groups.loc[known] if hasattr(groups, "loc") else np.asarray(groups, dtype=object)[known]


def sweep_blind_encoded(
    scores: Scores,
    posterior: Floats,
    codes: Codes,
    positive: Mask | None,
    problem: Problem,
    names: tuple[Hashable, ...],
    *,
    weights: Weights | None = None,
    min_count: int,
    certificate: Certificate = "declared",
    argument: str = "groups",
    known: Mask | None = None,
) -> Frontier:
    """Compute the frontier of checked rows with group codes and probabilities of the groups.

    ``known`` says which rows have a group; the gap on all rows is then estimated, too.
    """
    check_priceable(problem)
    require_labels(problem, positive is not None)
    rows = ScoredRows(scores, posterior, codes, positive, weights)
    if known is not None and not known.any():
        return _estimate(rows, problem, names)
    if known is not None:
        rest = rows.take(~known)
        rows = replace(rows.take(known), unknown=rest.spread(), n_unknown=rest.n_rows)
        weights = rows.weights
    if weights is not None:
        kept, certificate = rows.take(weights > 0), "weighted"
        rows = replace(kept, unknown=rows.unknown, n_unknown=rows.n_unknown)
    n_kinds = 1 if positive is None else 2
    counts = count_rows(rows.codes, rows.kinds, len(names), n_kinds)
    check_group_sizes(problem.criterion, counts, names, min_count=min_count, argument=argument)
    cells = rows.counter().total()
    return Frontier(find_price_points(rows, problem), problem, names, cells, certificate)


def _estimate(rows: ScoredRows, problem: Problem, names: tuple[Hashable, ...]) -> Frontier:
    """Compute the frontier of rows none of whose groups is known; its gaps are estimates."""
    every = rows.spread()
    points = find_price_points(every, problem)
    points.unknown = rows.n_rows
    return Frontier(points, problem, names, every.total(), "weighted")
