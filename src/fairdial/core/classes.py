"""Compute the frontier of decisions among more than two classes (:func:`sweep_classes`)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from fairdial._arrays import Codes, Scores, Weights
from fairdial._validation import (
    check_class_scores,
    check_count,
    check_same_length,
    check_weights,
    encode_groups,
    has_named_columns,
    order_columns,
)
from fairdial.core.class_points import ClassRows
from fairdial.core.class_prices import probabilities
from fairdial.core.class_problem import check_class_problem, encode_labels, for_classes
from fairdial.core.criteria import Given
from fairdial.core.frontier import Certificate, Frontier
from fairdial.core.price_points import find_price_points
from fairdial.core.problem import Problem, make_problem
from fairdial.core.sweep import check_group_sizes, require_labels
from fairdial.errors import InvalidInputError


def sweep_classes(
    scores: ArrayLike,
    groups: Any,
    y: ArrayLike | None = None,
    *,
    classes: Sequence[Hashable] | None = None,
    criterion: Given = "demographic_parity",
    limit_classes: Sequence[Hashable] | None = None,
    nested: bool | None = None,
    sample_weight: ArrayLike | None = None,
    min_count: int = 30,
) -> Frontier:
    """Compute the frontier of decisions among more than two classes.

    A row gets the class with the largest probability minus the price of the class in the row's
    group, and the tolerance moves the prices. The criterion holds for each class: demographic
    parity says that every class is decided equally often in all groups, equal opportunity that the
    rows of every class are recognized equally often.

    Parameters
    ----------
    scores : (n, C) array-like
        Log-probabilities or logits of the classes: their softmax are the probabilities. Use
        held-out rows, not the training rows. The columns of a DataFrame are found by the names of
        the classes.
    groups : (n,) array-like, Series or DataFrame
        Group of each row; several columns are combined into their intersections.
    y : (n,) array-like, optional
        Labels, of any type. Demographic parity doesn't need them; without them, accuracy is
        unknown.
    classes : sequence, optional
        Names of the classes, in the order of the columns; by default the labels in sorted order,
        or without labels the names of the columns.
    criterion : str, Criterion, list or mapping
        Demographic parity, equal opportunity, predictive equality, equalized odds, or combinations.
    limit_classes : sequence, optional
        The classes that the criterion holds for; by default all.
    nested : bool, optional
        True: no row returns to a class that it left along the dial. This costs accuracy.
    sample_weight : (n,) array-like, optional
        Weights of the rows. Whole numbers mean repeated rows.
    min_count : int
        Minimum number of eligible rows per class and group.

    Returns
    -------
    Frontier

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import sweep_classes
    >>> rng = np.random.default_rng(0)
    >>> groups = rng.integers(2, size=6_000)
    >>> scores = rng.normal(size=(6_000, 3)) + np.outer(groups, [0.0, 0.3, 0.6])
    >>> y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    >>> frontier = sweep_classes(scores, groups, y)
    >>> frontier.at(0.05).gap <= 0.05
    True
    >>> decided = frontier.decide(scores, groups, tolerance=0.05)  # positions in frontier.classes
    """
    check_count(min_count, "min_count")
    given = check_class_scores(scores)
    codes, names = encode_groups(groups)
    check_same_length(given, codes, ("scores", "groups"))
    if classes is None:
        known = tuple(range(given.shape[1])) if y is None else encode_groups(y, "y")[1]
        if y is None and has_named_columns(scores):
            known = tuple(scores.columns)  # type: ignore[union-attr]
    else:
        known = tuple(classes)
    if len(known) != given.shape[1] or len(set(known)) < len(known):
        raise InvalidInputError(
            "classes",
            f"name each of the {given.shape[1]} columns of `scores` once",
            given=f"{len(known)} names",
            hint="" if classes is not None else "They are the labels, if they aren't given.",
        )
    given = check_class_scores(order_columns(scores, known, "scores", "classes"))
    labels = None
    if y is not None:
        labels = encode_labels(y, known)
        check_same_length(given, labels, ("scores", "y"))
    weights = check_weights(sample_weight, len(given))
    problem = make_problem(criterion, nested=nested)
    check_class_problem(problem)
    problem = replace(problem, criterion=for_classes(problem.criterion, known, limit_classes))
    return sweep_classes_encoded(
        given, codes, labels, problem, names, known, weights=weights, min_count=min_count
    )


def sweep_classes_encoded(
    scores: Scores,
    codes: Codes,
    labels: Codes | None,
    problem: Problem,
    names: tuple[Hashable, ...],
    classes: tuple[Hashable, ...],
    *,
    weights: Weights | None = None,
    min_count: int,
    certificate: Certificate = "declared",
    argument: str = "groups",
) -> Frontier:
    """Compute the frontier of checked rows; the criterion holds for classes (``for_classes``)."""
    check_class_problem(problem)
    require_labels(problem, labels is not None)
    rows = ClassRows(probabilities(scores), codes, labels, len(names), weights)
    if weights is not None:
        rows, certificate = rows.take(weights > 0), "weighted"
    once = replace(rows, weights=None).total()
    check_group_sizes(problem.criterion, once, names, min_count=min_count, argument=argument)
    points = find_price_points(rows, problem)
    return Frontier(points, problem, names, rows.total(), certificate, classes=tuple(classes))
