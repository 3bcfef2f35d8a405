"""Figures of decisions with their intervals, from counts alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairdial._arrays import Codes, Counts, Mask, Weights
from fairdial._validation import (
    check_fraction,
    check_labels,
    check_weights,
    encode_groups,
    match_groups,
)
from fairdial.core.certificates import rate_interval
from fairdial.core.criteria import Criterion, Given
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import by_label, count_rows
from fairdial.core.measured import measure_demands
from fairdial.core.strata import find_strata
from fairdial.core.sweep import find_kinds
from fairdial.errors import InvalidInputError

LEVEL = 0.95
Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Evaluation:
    """Figures of decisions on rows that had no part in choosing them.

    Attributes
    ----------
    criterion : str
        Name of the criterion.
    rows : float
        Number of rows, or the sum of their weights.
    accuracy, gap : float or None
        None without labels; the gap is None if fewer than two groups have eligible rows.
    accuracy_interval, gap_interval : (low, high) or None
        Intervals with this ``level``; None for weighted rows.
    demands : list of dict
        Gap, interval and rates of each demand of the criterion.
    missing_groups : tuple
        Groups without eligible rows: the interval of the gap allows for any rate of theirs.
    selected, cells : (C, K) array
        Selected and all rows by kind (stratum and label) and group.
    groups : tuple
        Names of the groups.
    level : float
        Confidence of each interval.
    """

    criterion: str
    rows: float
    accuracy: float | None
    accuracy_interval: Interval
    gap: float | None
    gap_interval: Interval
    demands: list[dict[str, Any]]
    missing_groups: tuple[Hashable, ...]
    selected: Counts
    cells: Counts
    groups: tuple[Hashable, ...]
    level: float


def evaluate_counts(
    counts: pd.DataFrame,
    criterion: Given = "demographic_parity",
    *,
    level: float = LEVEL,
    groups: Sequence[Hashable] | None = None,
) -> Evaluation:
    """Return accuracy and gap of decisions with exact intervals, from counts of rows.

    One GROUP BY of a table with decisions is enough.

    Parameters
    ----------
    counts : DataFrame
        Columns ``group``, ``decision`` (0 and 1), ``rows`` and, unless the criterion needs none,
        ``label`` (0 and 1); ``stratum``, if demands hold within strata; and ``weight``, sums of
        weights, if rows have some. Lines may repeat: they add up.
    criterion : str, Criterion, list or mapping
        The criterion; see :func:`fairdial.criterion`.
    level : float
        Confidence of the intervals. Those of accuracy and of the groups' rates are exact binomial
        intervals, the latter wide enough to hold jointly. Weighted rows have none.
    groups : sequence, optional
        Names of all groups, some of which may have no rows here.

    Examples
    --------
    >>> import duckdb
    >>> from fairdial.large import evaluate_counts
    >>> rows = (
    ...     "(SELECT i % 2 AS sex, i % 3 = 0 AS decision, i % 5 < 2 AS label FROM range(9000) t(i))"
    ... )
    >>> query = "SELECT sex AS 'group', decision, label, count(*) AS rows FROM %s GROUP BY ALL"
    >>> found = evaluate_counts(duckdb.sql(query % rows).df(), "equal_opportunity")
    >>> round(found.accuracy, 3), found.gap
    (0.533, 0.0)
    >>> found.gap_interval[1] < 0.08
    True
    """
    check_fraction(level, "level")
    columns = list(counts.columns) if isinstance(counts, pd.DataFrame) else []
    if not {"group", "decision", "rows"} <= set(columns):
        raise InvalidInputError(
            "counts",
            "be a DataFrame with the columns group, decision, rows",
            given=columns or type(counts).__name__,
        )
    kind = find_criterion(criterion)
    if "label" not in columns and kind.needs_labels:
        raise InvalidInputError("counts", f"have a column 'label' for {kind.name}", given=columns)
    if not len(counts):
        raise InvalidInputError("counts", "have at least one line", given="none")
    check_weights(counts["rows"], len(counts), "rows")
    counts = counts[counts["rows"] > 0]
    weights = None
    if "weight" in columns:
        weights = check_weights(counts["weight"], len(counts), "weight")
    if groups is None:
        codes, names = encode_groups(counts["group"], "group")
    else:
        names = tuple(groups)
        codes = match_groups(counts["group"], names, "group")
    return measure_decisions(
        check_labels(counts["decision"].to_numpy(), "decision"),
        check_labels(counts["label"].to_numpy(), "label") if "label" in columns else None,
        codes,
        names,
        kind,
        strata=counts["stratum"] if "stratum" in columns else None,
        weights=weights,
        repeats=check_weights(counts["rows"], len(counts), "rows"),
        level=level,
    )


def measure_decisions(
    selected: Mask,
    positive: Mask | None,
    codes: Codes,
    names: Sequence[Hashable],
    criterion: Criterion,
    *,
    strata: Any = None,
    weights: Weights | None = None,
    repeats: Weights | None = None,
    level: float = LEVEL,
) -> Evaluation:
    """Return the figures of checked decisions.

    ``repeats`` are numbers of rows of each line, ``weights`` their weights, for which there are no
    intervals.
    """
    kind, stratum = find_strata(criterion, strata, len(selected))
    n_kinds = kind.n_strata * (1 if positive is None else 2)
    kinds, each = find_kinds(positive, stratum), weights if weights is not None else repeats
    among = None if kinds is None else kinds[selected]
    heavy = None if each is None else each[selected]
    n_groups = len(names)
    chosen = count_rows(codes[selected], among, n_groups, n_kinds, heavy)
    cells = count_rows(codes, kinds, n_groups, n_kinds, each)
    known_level = None if weights is not None else level
    demands, interval = measure_demands(kind, chosen, cells, known_level)
    fixed = [demand for demand in demands if demand["eligible"] is not None]
    missing = tuple(
        name for a, name in enumerate(names) if any(demand["eligible"][a] == 0 for demand in fixed)
    )
    comparable = len(names) - len(missing) > 1 or len(names) == 1
    accuracy, accuracy_interval = None, None
    if positive is not None:
        hits, counts = by_label(chosen, 2), by_label(cells, 2)
        right, total = hits[1].sum() + counts[0].sum() - hits[0].sum(), counts.sum()
        accuracy = float(right / total)
        if weights is None:
            accuracy_interval = rate_interval(int(right), int(total), level)
    return Evaluation(
        kind.name,
        float(np.sum(cells)),
        accuracy,
        accuracy_interval,
        float(kind.gap_of(chosen, cells)) if comparable else None,
        interval,
        demands,
        missing,
        chosen,
        cells,
        tuple(names),
        level,
    )
