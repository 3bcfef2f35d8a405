"""Objectives: what the thresholds maximize under the demands of a criterion.

An objective is a quotient of two linear functions of the selected rows: with ``TP`` true positives
and ``FP`` false positives, ``(a1 TP + a0 FP + a) / (b1 TP + b0 FP + b)``. The denominator is 1 for
all but F1. The *plug-in* value uses expected positives, from the scores; the *label* value counts
labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fairdial._arrays import Counts, Floats
from fairdial._validation import did_you_mean
from fairdial.core.group_scores import GroupScores
from fairdial.errors import InvalidInputError

Name = Literal["accuracy", "balanced_accuracy", "f1", "costs", "utility"]
NAMES = ("accuracy", "balanced_accuracy", "f1")


class Terms(NamedTuple):
    """Coefficients of true positives, false positives and a constant, above and below."""

    true_positive: float
    false_positive: float
    constant: float
    below: tuple[float, float, float] = (0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Objective:
    """What the thresholds maximize.

    Attributes
    ----------
    name : {"accuracy", "balanced_accuracy", "f1", "costs", "utility"}
        Accuracy; the mean of the accuracies on both labels; the F1 score of the positive label;
        minus the mean cost of a row; or the mean utility, given for each row.
    false_positive, false_negative : float
        Costs of the two kinds of errors.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial import Costs
    >>> costs = Costs(false_positive=1, false_negative=5)
    >>> float(costs.value_of(np.array([[1], [3]]), np.array([[5], [5]])))  # (1 * 1 + 2 * 5) / 10
    -1.1
    """

    name: Name = "accuracy"
    false_positive: float = 1.0
    false_negative: float = 1.0

    @property
    def title(self) -> str:
        """Name of the value in tables and figures."""
        titles = {"costs": "minus mean cost", "f1": "F1", "utility": "mean utility"}
        return titles.get(self.name, self.name.replace("_", " "))

    def terms(self, negatives: float, positives: float) -> Terms:
        """Return the coefficients for rows with these numbers of labels."""
        n = negatives + positives
        match self.name:
            case "balanced_accuracy":
                positive = 0.5 / positives if positives else 0.0
                negative = 0.5 / negatives if negatives else 0.0
                return Terms(positive, -negative, 0.5)
            case "f1":
                return Terms(2.0, 0.0, 0.0, (1.0, 1.0, float(positives)))
            case "costs":
                fp, fn = self.false_positive / n, self.false_negative / n
                return Terms(fn, -fp, -fn * positives)
            case _:
                return Terms(1.0 / n, -1.0 / n, negatives / n)

    def threshold(self, negatives: float, positives: float) -> float | None:
        """Return the logit above which selecting pays; None if it depends on the other rows."""
        if self.name in ("f1", "utility"):
            return None
        terms = self.terms(negatives, positives)
        if not terms.true_positive or not terms.false_positive:
            return None
        return math.log(-terms.false_positive / terms.true_positive)

    def value_of(self, selected: Counts, counts: Counts) -> Floats:
        """Return the value, (...), from selected and all rows by label and group, (..., 2, K)."""
        negatives, positives = counts.sum(axis=-1).tolist()
        false_positive, true_positive = np.moveaxis(selected.sum(axis=-1), -1, 0)
        return evaluate(self.terms(negatives, positives), true_positive, false_positive)


ACCURACY = Objective()


def evaluate(
    terms: Terms, true_positive: Floats | Counts, false_positive: Floats | Counts
) -> Floats:
    """Return the quotient of the two linear functions; 0 if nothing can be divided by."""
    a1, a0, a, (b1, b0, b) = terms
    above = a1 * true_positive + a0 * false_positive + a
    below = b1 * true_positive + b0 * false_positive + b
    return np.divide(above, below, out=np.zeros(np.shape(above)), where=np.asarray(below) != 0)


def Costs(false_positive: float = 1.0, false_negative: float = 1.0) -> Objective:  # noqa: N802
    """Return the objective that minimizes the mean cost of errors.

    Parameters
    ----------
    false_positive, false_negative : float
        Cost of selecting a row with a negative label, and of not selecting one with a positive
        label. Only their ratio changes decisions.

    Examples
    --------
    >>> from fairdial import Costs, sweep
    >>> from fairdial.datasets import make_gaussian
    >>> rows = make_gaussian(2_000, random_state=0)
    >>> costs = Costs(false_positive=1, false_negative=5)
    >>> frontier = sweep(rows.logits, rows.groups, rows.y, objective=costs)
    >>> frontier.at(0.05).gap <= 0.05
    True
    """
    for name, cost in (("false_positive", false_positive), ("false_negative", false_negative)):
        if not isinstance(cost, (int, float, np.number)) or not 0 <= cost < math.inf:
            raise InvalidInputError(name, "be a cost of 0 or more", given=repr(cost))
    if not false_positive and not false_negative:
        raise InvalidInputError("false_negative", "be above 0 if `false_positive` is 0", given=0)
    return Objective("costs", float(false_positive), float(false_negative))


def objective(given: str | Objective) -> Objective:
    """Return the objective with this name; an Objective is returned unchanged."""
    if isinstance(given, Objective):
        return given
    for name in NAMES:
        if given == name:
            return Objective(name)  # type: ignore[arg-type]
    raise InvalidInputError(
        "objective",
        f"be one of {', '.join(NAMES)}, or Costs(...)",
        given=repr(given),
        hint=did_you_mean(given if isinstance(given, str) else "", NAMES),
    )


def expected(scores: GroupScores) -> Floats:
    """Return the expected number of positives among the selected rows at each rank, (m + 1,)."""
    rows = scores.selected.sum(axis=0)
    middle = scores.lower
    if scores.is_bin.any():
        with np.errstate(invalid="ignore"):
            middle = scores.lower + (scores.upper - scores.lower) / 2
        ends = np.where(np.isfinite(scores.lower), scores.lower, scores.upper)
        middle = np.where(np.isfinite(middle), middle, ends)
    with np.errstate(over="ignore"):
        probability = 1.0 / (1.0 + np.exp(-middle))
    return np.concatenate(([0.0], np.cumsum(np.diff(rows) * probability)))


def true_and_false(
    group_scores: Sequence[GroupScores], by_label: bool, n_labels: int
) -> list[tuple[Floats, Floats]]:
    """Return each group's true and false positives at each rank: counted, or expected."""
    pairs = []
    for scores in group_scores:
        if by_label:
            kinds = scores.selected.reshape(-1, n_labels, len(scores) + 1).sum(axis=0)
            pairs.append((kinds[1].astype(np.float64), kinds[0].astype(np.float64)))
        else:
            positive = expected(scores)
            pairs.append((positive, scores.selected.sum(axis=0) - positive))
    return pairs
