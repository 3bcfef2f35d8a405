"""Figures of decisions among more than two classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fairdial._arrays import Indices
from fairdial._validation import check_weights
from fairdial.cli.points import Json, json_number, json_value
from fairdial.core.certificates import rate_interval
from fairdial.core.class_path import ClassCounter
from fairdial.core.class_problem import encode_labels, for_classes
from fairdial.core.criteria import criterion
from fairdial.core.decide import class_accuracy, decided_counts, rows_by_class
from fairdial.core.measured import measure_demands
from fairdial.core.rates import FALSE_POSITIVE, SELECTION, TRUE_POSITIVE
from fairdial.errors import InvalidInputError


def measure_classes(
    model: Any,
    decided: Indices,
    y: pd.Series | None,
    codes: Indices,
    given: Mapping[str, Any],
    level: float,
) -> Json:
    """Return accuracy, gaps, and the figures of each class and group, with intervals.

    Weighted rows have no intervals.

    Parameters
    ----------
    model : FairBayes
        Calibrated, with more than two classes.
    decided : (n,) intp
        Class of each row.
    y : (n,) Series, optional
        Labels.
    codes : (n,) intp
        Group of each row.
    given : mapping
        ``sample_weight`` and ``control_features``, if there are any.
    level : float
        Confidence level of the intervals.
    """
    if given.get("control_features") is not None:
        raise InvalidInputError("control", "be left out with more than two classes")
    classes, names = model.frontier_.classes, model.frontier_.groups
    labels = None if y is None else encode_labels(y, classes)
    weights = check_weights(given.get("sample_weight"), len(decided))
    counter = ClassCounter(codes, labels, len(classes), len(names), weights)
    selected, cells = counter.count(decided), counter.total()
    kind = for_classes(criterion(model.criterion), classes, model.limit_classes)
    demands, interval = measure_demands(kind, selected, cells, level if weights is None else None)
    missing = [name for a, name in enumerate(names) if any(d["eligible"][a] == 0 for d in demands)]
    known = len(names) - len(missing) > 1 or len(names) == 1
    counts = rows_by_class(cells, len(classes))
    n_rows = counts.sum()
    accuracy = None if labels is None else float(class_accuracy(selected, counts))
    found: Json = {
        "criterion": kind.name,
        "rows": json_number(n_rows),
        "accuracy": accuracy,
        "accuracy_interval": None,
        "objective": "accuracy",
        "value": accuracy,
        "gap": json_value(float(kind.gap_of(selected, cells))) if known else None,
        "gap_interval": None if interval is None else [json_value(end) for end in interval],
        "demands": [{k: v for k, v in d.items() if k != "eligible"} for d in demands],
        "missing_groups": [json_value(name) for name in missing],
        "level": level,
        "groups": [],
    }
    if accuracy is not None and weights is None:
        right = int(selected[1::2].sum())
        found["accuracy_interval"] = list(rate_interval(right, int(n_rows), level))
    chosen = decided_counts(selected, len(classes))
    rates = (SELECTION,) if labels is None else (SELECTION, TRUE_POSITIVE, FALSE_POSITIVE)
    split = [array.reshape(len(classes), counter.n_labels, -1) for array in (selected, cells)]
    for c, name in enumerate(classes):
        by_rate = {rate.name: rate.of(split[0][c], split[1][c]) for rate in rates}
        for a, group in enumerate(names):
            line: Json = {"class": json_value(name), "group": json_value(group)}
            if labels is not None:
                line["rows"] = json_number(counts[c, a])
            line["decided"] = json_number(chosen[c, a])
            line |= {key: json_value(values[a]) for key, values in by_rate.items()}
            found["groups"].append(line)
    return found
