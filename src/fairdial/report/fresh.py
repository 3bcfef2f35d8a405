"""Decisions on rows that had no part in training or calibration, measured for a report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairdial._arrays import Codes, Counts, Mask
from fairdial._validation import check_same_length, match_groups
from fairdial.core.certificates import rate_interval
from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import by_label, count_rows, select
from fairdial.core.measured import measure_demands
from fairdial.core.strata import find_strata
from fairdial.core.sweep import find_kinds
from fairdial.errors import InvalidInputError
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.labels import is_positive

Json = dict[str, Any]
UNLIMITED = 1.0  # a tolerance that every gap is within


@dataclass(frozen=True)
class Rows:
    """Rows to measure decisions on.

    Attributes
    ----------
    X : array-like or DataFrame
        Features, as ``predict`` takes them.
    y : array-like, optional
        Labels.
    sensitive_features : array-like, Series or DataFrame, optional
        Groups, unless X has them.
    control_features : array-like, Series or DataFrame, optional
        Strata, if demands hold within them.
    name : str
        What the report calls the rows, such as a file's name.
    sha256 : str, optional
        Hash of the file.
    left_out : int
        Rows of the file that aren't in X.
    """

    X: Any
    y: Any = None
    sensitive_features: Any = None
    control_features: Any = None
    name: str = "rows of your own"
    sha256: str | None = None
    left_out: int = 0


@dataclass(frozen=True)
class InUse:
    """The setting of the dial that a report is about, and where it comes from."""

    tolerance: float
    confidence: float | None
    source: str  # "given", "log" or "default"


def measure_rows(model: DialClassifier, rows: Rows, used: InUse, level: float) -> Json:
    """Return what the setting in use does on these rows, what no limit does, and who is affected.

    All intervals hold with probability ``level``, each statement on its own.
    """
    names = model.frontier_.groups
    codes = _codes(model, rows)
    n_groups = len(names)
    truth = None if rows.y is None else is_positive(rows.y, model.classes_)
    if truth is not None:
        check_same_length(codes, truth, ("X", "y"))
    elif find_criterion(model.criterion).needs_labels:
        raise InvalidInputError("y", f"be given for {find_criterion(model.criterion).name}")
    stratified = model.frontier_.criterion.n_strata > 1
    if stratified != (rows.control_features is not None):
        raise InvalidInputError(
            "control_features",
            "be given: the demands hold within strata"
            if stratified
            else "be left out: the demands don't hold within strata",
        )
    here = _decide(model, rows, used.tolerance, used.confidence)
    unlimited = _decide(model, rows, UNLIMITED, None)
    kind, strata = find_strata(find_criterion(model.criterion), rows.control_features, len(codes))
    n_kinds = kind.n_strata * (1 if truth is None else 2)
    kinds = find_kinds(truth, strata)

    def count(chosen: Mask) -> Counts:
        among = None if kinds is None else kinds[chosen]
        return count_rows(codes[chosen], among, n_groups, n_kinds)

    cells = count_rows(codes, kinds, n_groups, n_kinds)
    found = _figures(kind, count(here), cells, truth is not None, level)
    absent = [str(names[a]) for a in np.flatnonzero(cells.sum(axis=0) == 0)]
    return {
        "name": rows.name,
        "sha256": rows.sha256,
        "rows": len(codes),
        "left_out": rows.left_out,
        "labeled": truth is not None,
        "level": level,
        "absent": absent,
        "here": found,
        "unlimited": _figures(kind, count(unlimited), cells, truth is not None, level),
        "verdict": _verdict(found, used.tolerance, complete=_is_complete(kind, cells)),
        "affected": [
            {
                "rows": int((codes == a).sum()),
                "gained": int((here & ~unlimited & (codes == a)).sum()),
                "lost": int((unlimited & ~here & (codes == a)).sum()),
            }
            for a in range(n_groups)
        ],
    }


def _codes(model: DialClassifier, rows: Rows) -> Codes:
    """Return the group code of each row; refuse groups that the model doesn't know."""
    given = None if model.sensitive_column is not None else rows.sensitive_features
    _, groups = model._take_groups(rows.X, given)
    n_rows = len(rows.X) if hasattr(rows.X, "__len__") else rows.X.shape[0]
    if n_rows == 0:
        raise InvalidInputError("X", "hold at least one row", given="none")
    if groups is None:
        if len(model.frontier_.groups) == 1:
            return np.zeros(n_rows, np.intp)
        raise InvalidInputError("sensitive_features", "be given: the model has several groups")
    return match_groups(groups, model.frontier_.groups, "sensitive_features")


def _decide(model: DialClassifier, rows: Rows, tolerance: float, confidence: float | None) -> Mask:
    given = None if model.sensitive_column is not None else rows.sensitive_features
    margins = model.decision_function(
        rows.X, sensitive_features=given, tolerance=tolerance, confidence=confidence
    )
    return select(np.asarray(margins), 0.0)


def _figures(kind: Criterion, selected: Counts, cells: Counts, labeled: bool, level: float) -> Json:
    """Return gap, demands, accuracy and the groups' rates, with exact intervals."""
    demands, interval = measure_demands(kind, selected, cells, level)
    chosen, counts = by_label(selected, 1 + labeled), by_label(cells, 1 + labeled)
    found: Json = {
        "gap": number(kind.gap_of(selected, cells)),
        "gap_interval": None if interval is None else [number(end) for end in interval],
        "demands": [
            {
                "name": line["demand"],
                "gap": number(line["gap"]),
                "rates": [number(rate) for rate in line["rates"]],
                "interval": [number(end) for end in line["interval"]],
                "eligible": line["eligible"],
            }
            for line in demands
        ],
        "accuracy": None,
        "accuracy_interval": None,
        "groups": [],
    }
    if labeled:
        right = int(chosen[1].sum() + counts[0].sum() - chosen[0].sum())
        total = int(counts.sum())
        found["accuracy"] = right / total
        found["accuracy_interval"] = list(rate_interval(right, total, level))
    for a in range(counts.shape[1]):
        line: Json = {"rows": int(counts[:, a].sum()), "selected": int(chosen[:, a].sum())}
        for place, name in enumerate(("false_positive_rate", "true_positive_rate")):
            known = labeled and counts[place, a] > 0
            line[name] = float(chosen[place, a] / counts[place, a]) if known else None
        found["groups"].append(line)
    return found


def _is_complete(kind: Criterion, cells: Counts) -> bool:
    """Return whether every group has eligible rows, without which no gap is known to be small."""
    return bool((kind.eligible_counts(cells) > 0).all())


def _verdict(found: Json, tolerance: float, *, complete: bool) -> str:
    """Return "within" or "above" if the interval shows it for people in general."""
    if found["gap_interval"] is None:
        return "undecided"
    low, high = found["gap_interval"]
    if low is None or low > tolerance:  # None: a limit that doesn't move is exceeded for sure
        return "above"
    return "within" if complete and high is not None and high <= tolerance else "undecided"


def number(value: Any) -> float | int | None:
    """Return a number that JSON can hold; None for none, NaN and infinities.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.report.fresh import number
    >>> number(np.int64(3)), number(0.25), number(float("nan"))
    (3, 0.25, None)
    """
    if value is None or not math.isfinite(value):
        return None
    found: float | int = value.item() if hasattr(value, "item") else value
    return found
