"""Compute the frontier of decisions that don't see the groups (:func:`sweep_blind`)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from fairdial._arrays import Codes, Floats, Mask, Scores, Weights
from fairdial._validation import (
    check_count,
    check_labels,
    check_posterior,
    check_same_length,
    check_scores,
    check_weights,
    encode_groups,
)
from fairdial.core.criteria import Given
from fairdial.core.decide import count_rows
from fairdial.core.frontier import Certificate, Frontier
from fairdial.core.groupings import Overlap
from fairdial.core.objectives import Objective
from fairdial.core.price_points import ScoredRows, find_price_points
from fairdial.core.prices import check_priceable
from fairdial.core.problem import Problem, make_problem
from fairdial.core.sweep import check_group_sizes, compare_groups, require_labels


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
    groups : (n,) array-like, Series or DataFrame
        True group of each row.
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
    codes, names = encode_groups(groups)
    shares = check_posterior(posterior, len(names))
    check_same_length(scores, codes, ("logits", "groups"))
    check_same_length(scores, shares, ("logits", "posterior"))
    positive = None
    if y is not None:
        positive = check_labels(y)
        check_same_length(scores, positive, ("logits", "y"))
    weights = check_weights(sample_weight, len(scores))
    problem = make_problem(criterion, objective, nested=nested)
    compared = compare_groups(problem.criterion, overlap, "overlap", groups, codes, names)
    problem = replace(problem, criterion=compared)
    return sweep_blind_encoded(
        scores, shares, codes, positive, problem, names, weights=weights, min_count=min_count
    )


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
) -> Frontier:
    """Compute the frontier of checked rows with group codes and probabilities of the groups."""
    check_priceable(problem)
    require_labels(problem, positive is not None)
    rows = ScoredRows(scores, posterior, codes, positive, weights)
    if weights is not None:
        rows, certificate = rows.take(weights > 0), "weighted"
    n_kinds = 1 if positive is None else 2
    counts = count_rows(rows.codes, rows.kinds, len(names), n_kinds)
    check_group_sizes(problem.criterion, counts, names, min_count=min_count, argument=argument)
    cells = rows.counter().total()
    return Frontier(find_price_points(rows, problem), problem, names, cells, certificate)
