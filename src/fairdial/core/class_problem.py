"""Which problems a dial with more than two classes solves."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Indices
from fairdial._validation import as_vector, did_you_mean
from fairdial.core.criteria import Criterion
from fairdial.core.problem import Problem
from fairdial.core.strata import apply_strata
from fairdial.errors import InvalidInputError

EVENTS = ("selected", "rejected")


def check_class_problem(problem: Problem) -> None:
    """Raise if prices of classes can't solve a problem."""
    for demand in problem.criterion.demands:
        rate, one = demand.rate, demand.strata is None or len(demand.strata) == 1
        linear = rate.fixed and rate.event in EVENTS and demand.where is None and one
        if demand.spread != "difference" or not demand.scale or not linear:
            raise InvalidInputError(
                "criterion",
                "be demographic_parity, equal_opportunity, predictive_equality, equalized_odds or "
                "a combination of them with more than two classes",
                given=demand.name,
            )
    refused = {
        "objective": problem.objective.name != "accuracy" and repr(problem.objective.name),
        "budget": problem.budget is not None and problem.budget.share,
        "rising": problem.rising,
        "randomize": problem.randomize is not None and repr(problem.randomize),
        "value": problem.value != "plug-in" and repr(problem.value),
    }
    for name, given in refused.items():
        if given is not False:
            raise InvalidInputError(
                name, "be left at its default with more than two classes", given=given
            )


def for_classes(
    criterion: Criterion, classes: tuple[Hashable, ...], limited: Sequence[Hashable] | None = None
) -> Criterion:
    """Return the criterion whose demands hold for each class, or for each of the ``limited`` ones.

    Examples
    --------
    >>> from fairdial import criterion
    >>> from fairdial.core.class_problem import for_classes
    >>> found = for_classes(criterion("equal_opportunity"), ("no", "later", "yes"), ["yes"])
    >>> [demand.name for demand in found.demands], found.n_strata
    (['true_positive_rate in yes'], 3)
    """
    found = apply_strata(criterion, classes)
    if limited is None:
        return found
    names = [limited] if isinstance(limited, str) else list(limited)
    unknown = [name for name in names if name not in classes]
    if unknown or not names:
        raise InvalidInputError(
            "limit_classes",
            f"hold classes among {', '.join(map(repr, classes))}",
            given=repr(unknown[0]) if unknown else "none",
            hint=did_you_mean(unknown[0], classes) if unknown else "",
        )
    places = {classes.index(name) for name in names}
    kept = [d for d in found.demands if d.strata is not None and d.strata[0] in places]
    return replace(found, demands=tuple(kept))


def encode_labels(y: ArrayLike, classes: tuple[Hashable, ...]) -> Indices:
    """Return the positions of labels among classes; raise on others.

    Examples
    --------
    >>> from fairdial.core.class_problem import encode_labels
    >>> encode_labels(["b", "a", "b"], ("a", "b", "c"))
    array([1, 0, 1])
    """
    import pandas as pd

    labels = as_vector(y, "y")
    codes = pd.Index(list(classes), dtype=object).get_indexer(pd.Index(labels.astype(object)))
    if (codes < 0).any():
        unknown = labels[codes < 0][:1].tolist()[0]
        raise InvalidInputError(
            "y",
            f"hold classes among {', '.join(map(repr, classes))}",
            given=repr(unknown),
            hint=did_you_mean(unknown, classes),
        )
    return np.asarray(codes, np.intp)
