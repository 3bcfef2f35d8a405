"""Metrics of decisions, and of sets of (accuracy, gap) points."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Codes, Counts, Floats, Mask, Scores, Weights
from fairdial._validation import (
    as_vector,
    check_labels,
    check_same_length,
    check_scores,
    check_tolerance,
    check_weights,
    encode_groups,
    match_groups,
    sort_names,
)
from fairdial.core.class_path import ClassCounter
from fairdial.core.class_problem import encode_labels, for_classes
from fairdial.core.criteria import Criterion, Given
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_rows, decided_counts, rows_by_class, select_by_group
from fairdial.core.pareto import check_points
from fairdial.core.pareto import pareto as pareto
from fairdial.core.rates import ACCURACY, FALSE_POSITIVE, SELECTION, TRUE_POSITIVE
from fairdial.core.searched import SearchedPoints
from fairdial.core.strata import find_strata
from fairdial.errors import ConstantDecisionsWarning, InfeasibleToleranceWarning, InvalidInputError

if TYPE_CHECKING:
    import pandas as pd

    from fairdial.core.frontier import Frontier

SHOWN = (SELECTION, TRUE_POSITIVE, FALSE_POSITIVE, ACCURACY)  # rates of every table


def group_table(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    criterion: Given | None = None,
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    pos_label: Hashable = None,
) -> pd.DataFrame:
    """Return rows, selection rate, true and false positive rate and accuracy of each group.

    With more than two classes, there is one line per class and group: rows of the class, rows that
    are decided as the class, and their rates.

    Parameters
    ----------
    y_true, y_pred : array-like
        Labels and decisions; with more than two, classes.
    sensitive_features : array-like, Series or DataFrame
        Group of each row; several columns are combined into their intersections.
    criterion : str, Criterion, list or mapping, optional
        Adds a column for each other rate of the criterion, such as the precision.
    sample_weight : array-like, optional
        Weights of the rows; ``rows`` are then their sums.
    control_features : array-like, Series or DataFrame, optional
        Strata of the rows: one line for each stratum and group.
    pos_label : label, optional
        The positive label; by default 1, or the greater of two other labels. With more than two
        classes, this class is compared with all others together.

    Examples
    --------
    >>> from fairdial.metrics import group_table
    >>> table = group_table([1, 0, 1, 0], [1, 1, 0, 0], sensitive_features=["a", "a", "b", "b"])
    >>> table.selection_rate.tolist()
    [1.0, 0.0]
    """
    import pandas as pd

    classes = find_classes(y_true, y_pred) if pos_label is None else None
    if classes is not None:
        _refuse_control(control_features)
        counted = _ClassRows(y_true, y_pred, classes, sensitive_features, sample_weight)
        return counted.table(criterion)
    truth, decision = _decisions(y_true, y_pred, pos_label)
    strata: Codes | None = None
    names: list[Hashable] = [""]
    if control_features is not None:
        strata, found = encode_groups(control_features, "control_features")
        check_same_length(truth, strata, ("y_true", "control_features"))
        names = list(found)
    given = _Rows(truth, decision, sensitive_features, sample_weight, strata, len(names))
    rates = (*SHOWN, *(find_criterion(criterion).rates if criterion is not None else ()))
    tables = {}
    for stratum, name in enumerate(names):
        selected, counts = (cells[2 * stratum : 2 * stratum + 2] for cells in given.cells)
        columns = {"rows": counts.sum(axis=0)}
        columns |= {rate.name: rate.of(selected, counts) for rate in dict.fromkeys(rates)}
        tables[name] = pd.DataFrame(columns, pd.Index(list(given.groups), name="group"))
    return tables[""] if strata is None else pd.concat(tables, names=["stratum"])


def gap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    criterion: Given = "demographic_parity",
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    pos_label: Hashable = None,
) -> float:
    """Return the smallest tolerance that allows these decisions.

    With one rate it is the highest minus the lowest rate over the groups; with several demands, the
    largest gap among them, each divided by its scale. With more than two classes, it is the largest
    gap of any class.

    Parameters
    ----------
    y_true, y_pred : array-like
        Labels and decisions; with more than two, classes.
    sensitive_features : array-like, Series or DataFrame
        Group of each row.
    criterion : str, Criterion, list or mapping
        The criterion; see :func:`fairdial.criterion`.
    sample_weight : array-like, optional
        Weights of the rows.
    control_features : array-like, Series or DataFrame, optional
        Strata of the rows: the largest gap within any of them.
    pos_label : label, optional
        The positive label.

    Examples
    --------
    >>> from fairdial.metrics import gap
    >>> rows = {"sensitive_features": ["a", "a", "b", "b"]}
    >>> gap([1, 0, 1, 0], [1, 1, 0, 1], **rows)
    0.5
    >>> gap([1, 0, 1, 0], [1, 1, 0, 1], criterion="equalized_odds", **rows)
    1.0
    >>> gap([1, 0, 1, 0], [1, 1, 0, 1], criterion="selection_rate>=0.5", **rows)
    0.0
    """
    kind, selected, counts = _measure(
        y_true, y_pred, sensitive_features, criterion, sample_weight, control_features, pos_label
    )
    return float(kind.gap_of(selected, counts))


def gaps(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    criterion: Given,
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    pos_label: Hashable = None,
) -> dict[str, float]:
    """Return the gap of each demand of a criterion, not divided by its scale.

    Of a ratio, it is one minus the lowest divided by the highest rate; of a minimum or maximum,
    what is missing to it. The parameters are those of :func:`gap`.

    Examples
    --------
    >>> from fairdial.metrics import gaps
    >>> groups = ["a", "a", "b", "b"]
    >>> gaps([1, 0, 1, 0], [1, 1, 0, 1], sensitive_features=groups, criterion="equalized_odds")
    {'true_positive_rate': 1.0, 'false_positive_rate': 0.0}
    """
    kind, selected, counts = _measure(
        y_true, y_pred, sensitive_features, criterion, sample_weight, control_features, pos_label
    )
    return _gaps_of_demands(kind, selected, counts)


def _gaps_of_demands(criterion: Criterion, selected: Counts, cells: Counts) -> dict[str, float]:
    """Return the unscaled gap of each demand from selected and all rows by kind, (C, K)."""
    split = criterion.split(selected), criterion.split(cells)
    return {
        demand.name: float(replace(demand, scale=Fraction(1)).gap_of(*split))
        for demand in criterion.demands
    }


def _measure(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive_features: Any,
    criterion: Given,
    sample_weight: ArrayLike | None,
    control_features: Any,
    pos_label: Hashable,
) -> tuple[Criterion, Counts, Counts]:
    """Return the criterion, and selected and all rows by kind and group, (C, K)."""
    classes = find_classes(y_true, y_pred) if pos_label is None else None
    if classes is not None:
        _refuse_control(control_features)
        kind = for_classes(find_criterion(criterion), classes)
        counted = _ClassRows(y_true, y_pred, classes, sensitive_features, sample_weight)
        _require_eligible(kind, counted.cells[1], counted.groups)
        return kind, *counted.cells
    truth, decision = _decisions(y_true, y_pred, pos_label)
    kind, strata = find_strata(find_criterion(criterion), control_features, len(truth))
    given = _Rows(truth, decision, sensitive_features, sample_weight, strata, kind.n_strata)
    selected, counts = given.cells
    _require_eligible(kind, counts, given.groups)
    return kind, selected, counts


def _require_eligible(kind: Criterion, counts: Counts, names: tuple[Hashable, ...]) -> None:
    split = kind.split(counts)
    for demand in kind.demands:
        if not demand.rate.fixed:
            continue  # a group of which nobody is selected isn't compared
        eligible = demand.parts(split, split)[1]
        pairs = zip(demand.names(names), eligible.tolist(), strict=True)
        empty = [name for name, n in pairs if n == 0]
        if empty:
            label = demand.rate.eligible
            what = "rows" if label is None else f"rows with label {label}"
            what += f" in {demand.within}" if demand.within else ""
            raise InvalidInputError(
                "y_true",
                f"have {what} in every group for {kind.name}",
                given=f"none in {', '.join(map(repr, empty))}",
            )


class _Rows:
    """Labels and decisions with their groups, counted by kind (stratum and label) and group."""

    def __init__(
        self,
        truth: Mask,
        decision: Mask,
        sensitive_features: Any,
        sample_weight: ArrayLike | None = None,
        strata: Codes | None = None,
        n_strata: int = 1,
    ) -> None:
        codes, self.groups = encode_groups(sensitive_features, "sensitive_features")
        check_same_length(truth, codes, ("y_true", "sensitive_features"))
        weights = check_weights(sample_weight, len(truth))
        kinds = truth if strata is None else strata.astype(np.intp) * 2 + truth
        n_kinds, n_groups = 2 * n_strata, len(self.groups)
        chosen = None if weights is None else weights[decision]
        self.cells = (
            count_rows(codes[decision], kinds[decision], n_groups, n_kinds, chosen),
            count_rows(codes, kinds, n_groups, n_kinds, weights),
        )


def find_classes(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[Hashable, ...] | None:
    """Return the classes of labels and decisions if the labels have more than two.

    Examples
    --------
    >>> from fairdial.metrics import find_classes
    >>> find_classes(["low", "high", "none"], ["low"] * 3), find_classes([0, 1], [1, 1])
    (('high', 'low', 'none'), None)
    """
    found: set[Hashable] = set()
    for name, values in (("y_true", y_true), ("y_pred", y_pred)):
        array = as_vector(values, name)
        if array.dtype.kind == "f" and not np.array_equal(array, np.floor(array)):
            return None  # scores, or NaN
        found |= set(np.unique(array).tolist() if array.dtype.kind in "iufb" else array.tolist())
        if len(found) <= 2:
            return None
    return sort_names(found)


def _refuse_control(control_features: Any) -> None:
    if control_features is not None:
        raise InvalidInputError(
            "control_features",
            "be left out with more than two classes",
            given="strata",
            hint="`pos_label` compares one class with the others.",
        )


class _ClassRows:
    """Labels and decisions with their groups, counted by class, label and group."""

    def __init__(
        self,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        classes: tuple[Hashable, ...],
        sensitive_features: Any,
        sample_weight: ArrayLike | None,
    ) -> None:
        truth, decided = encode_labels(y_true, classes), encode_labels(y_pred, classes)
        check_same_length(truth, decided, ("y_true", "y_pred"))
        codes, self.groups = encode_groups(sensitive_features, "sensitive_features")
        check_same_length(truth, codes, ("y_true", "sensitive_features"))
        weights = check_weights(sample_weight, len(truth))
        counter = ClassCounter(codes, truth, len(classes), len(self.groups), weights)
        self.classes, self.cells = classes, (counter.count(decided), counter.total())

    def table(self, criterion: Given | None) -> pd.DataFrame:
        """Return one line per class and group."""
        import pandas as pd

        selected, cells = self.cells
        size = len(self.classes)
        columns = {"rows": rows_by_class(cells, size), "decided": decided_counts(selected, size)}
        shown = (SELECTION, TRUE_POSITIVE, FALSE_POSITIVE)
        rates = (*shown, *(find_criterion(criterion).rates if criterion is not None else ()))
        split = (array.reshape(size, 2, -1) for array in (selected, cells))
        by_class = list(zip(*split, strict=True))
        for rate in dict.fromkeys(rates):
            columns[rate.name] = np.stack([rate.of(*parts) for parts in by_class])
        index = pd.MultiIndex.from_product([self.classes, self.groups], names=["class", "group"])
        return pd.DataFrame({name: array.ravel() for name, array in columns.items()}, index)


def _decisions(y_true: ArrayLike, y_pred: ArrayLike, pos_label: Hashable) -> tuple[Mask, Mask]:
    """Return which labels and decisions are positive: 1, or the greater of two other labels."""
    truth, decision = as_vector(y_true, "y_true"), as_vector(y_pred, "y_pred")
    check_same_length(truth, decision, ("y_true", "y_pred"))
    several = find_classes(truth, decision)
    if several is not None and pos_label in several:
        return np.asarray(truth == pos_label), np.asarray(decision == pos_label)
    if pos_label is None and truth.dtype.kind in "biuf":
        return check_labels(truth, "y_true"), check_labels(decision, "y_pred")
    classes = sorted(set(truth.tolist()) | set(decision.tolist()), key=str)
    positive = classes[-1] if pos_label is None else pos_label
    if len(classes) > 2 or positive not in classes:
        raise InvalidInputError(
            "y_true",
            f"have two labels together with `y_pred`, {positive!r} among them",
            given=classes,
        )
    return np.asarray(truth == positive), np.asarray(decision == positive)


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:  # eq:hv
    """Return the exact area that (accuracy, gap) points dominate, up to a reference point.

    Higher accuracy and a smaller gap are better. Points that aren't better than the reference in
    both add nothing. The inverted measure, the area between the points and a reference that is
    *better* than all of them, is ``hypervolume(-points, -reference)``.

    Parameters
    ----------
    points : (n, 2) array-like
        Accuracy and gap of each point.
    reference : (2,) array-like
        Accuracy and gap of the reference.

    Examples
    --------
    >>> from fairdial.metrics import hypervolume
    >>> hypervolume([(1.0, 0.0)], (-1 / 9, 1 + 1 / 9))
    1.234567901234568
    """
    array = check_points(points)
    worst = np.asarray(reference, np.float64)
    if worst.shape != (2,) or not np.isfinite(worst).all():
        raise InvalidInputError("reference", "be a finite (accuracy, gap)", given=repr(reference))
    if np.all(array[:, 0] < worst[0]) and np.all(array[:, 1] > worst[1]):
        raise InvalidInputError(
            "reference",
            "be worse than the points",
            given=f"{reference!r}, which is better than all of them",
            hint="For the inverted measure, negate both arguments.",
        )
    array = array[(array[:, 0] > worst[0]) & (array[:, 1] < worst[1])]
    array = array[np.lexsort((array[:, 1], -array[:, 0]))]  # most accurate first
    gaps = np.r_[worst[1], np.minimum.accumulate(array[:, 1])]
    return float(np.sum((array[:, 0] - worst[0]) * -np.diff(gaps)))


# ---- theorem 1 ---------------------------------------------------------------------------------


def acc_dep(
    frontier: Frontier,
    logits: ArrayLike,
    tolerances: ArrayLike,
    *,
    sensitive_features: Any,
    y_true: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Floats:  # thm:threshold_shift_error
    """Return the accuracy that each tolerance gives back, compared with the strictest point.

    Without labels, this is the paper's Acc_dep: the mean of ``|2 eta - 1|`` over the rows whose
    decision differs from that of the strictest operating point, with ``eta = expit(logits)``. By
    theorem 1 it equals the difference of the two accuracies under two conditions:

    - the scores are calibrated: ``eta`` is P(Y = 1) given the features and the group;
    - every threshold lies between 0 and the group's fairest threshold. The nested operating points
      of one rate, such as demographic parity, equal opportunity or predictive equality, with
      accuracy as objective satisfy this, for any number of groups; others, such as those of
      ``nested=False``, may not, which is an error.

    With labels, it is that difference itself, measured on the rows; it needs no condition.

    Parameters
    ----------
    frontier : Frontier
        The frontier, whose operating points have thresholds.
    logits : (n,) array-like
        Scores of rows, of any scorer: log-odds of the positive label.
    tolerances : (m,) array-like
        The tolerances delta.
    sensitive_features : array-like, Series or DataFrame
        Group of each row, among those of the frontier.
    y_true : (n,) array-like of 0 and 1, optional
        Labels.
    sample_weight : (n,) array-like, optional
        Weights of the rows.

    Returns
    -------
    (m,) array
        Zero at the strictest operating point, which has the smallest gap.

    Examples
    --------
    >>> from fairdial import sweep
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.metrics import acc_dep
    >>> rows = make_gaussian(20_000, random_state=0)
    >>> frontier = sweep(rows.logits, rows.groups, rows.y)
    >>> where = {"sensitive_features": rows.groups}
    >>> acc_dep(frontier, rows.logits, [0.0, 0.1, 0.2, 0.4], **where).round(3)
    array([0.   , 0.02 , 0.035, 0.05 ])
    >>> acc_dep(frontier, rows.logits, [0.0, 0.1, 0.2, 0.4], y_true=rows.y, **where).round(3)
    array([0.   , 0.021, 0.037, 0.056])
    """
    deltas = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
    scores = check_scores(logits, nan=False)
    codes = match_groups(sensitive_features, frontier.groups, "sensitive_features")
    check_same_length(scores, codes, ("logits", "sensitive_features"))
    weights = check_weights(sample_weight, len(scores))
    if frontier.is_family or frontier.problem.randomize is not None:
        raise InvalidInputError("frontier", "have one threshold per group at every operating point")
    thresholds = _threshold_rows(frontier, np.append(deltas, 0.0))  # (m + 1, K)
    *moved, fairest = thresholds
    if y_true is not None:
        truth = check_labels(as_vector(y_true, "y_true"), "y_true")
        check_same_length(scores, truth, ("logits", "y_true"))
        correct = [select_by_group(scores, codes, row) == truth for row in thresholds]
        accuracies = [float(np.average(rows, weights=weights)) for rows in correct]
        return np.array(accuracies[:-1]) - accuracies[-1]
    if not ((np.minimum(0, fairest) <= thresholds) & (thresholds <= np.maximum(0, fairest))).all():
        raise InvalidInputError(
            "frontier",
            "have thresholds between 0 and the fairest ones, which theorem 1 requires",
            given=f"{frontier.problem.criterion.name} with thresholds outside",
            hint="Pass `y_true` for the difference of the accuracies.",
        )
    return np.array([given_back(scores, codes, row, fairest, weights)[1] for row in moved])


def _threshold_rows(frontier: Frontier, tolerances: Floats) -> Floats:
    """Return thresholds (m, K); on a path, no search takes over where it ends above a tolerance."""
    points = frontier.points
    if not isinstance(points, SearchedPoints):
        return points.read(points.find(tolerances)[0])[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)  # then the smallest gap counts
        warnings.simplefilter("ignore", ConstantDecisionsWarning)
        return frontier.at(tolerances).thresholds


def given_back(
    scores: Scores,
    codes: Codes,
    thresholds: Floats,
    fairest: Floats,
    weights: Weights | None = None,
) -> tuple[float, float]:  # eq:acc_dep
    """Return the share of rows between thresholds and the fairest ones (K,), and Acc_dep."""
    loose, strict = (select_by_group(scores, codes, each) for each in (thresholds, fairest))
    changed = loose != strict
    worth = np.abs(np.tanh(scores.astype(np.float64) / 2.0))  # |2 eta - 1|
    share = float(np.average(changed, weights=weights))
    return share, float(np.average(np.where(changed, worth, 0.0), weights=weights))
