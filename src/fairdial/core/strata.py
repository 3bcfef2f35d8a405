"""Apply the conditions of a criterion to rows: strata, and demands within them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from fairdial._arrays import Codes
from fairdial._validation import check_same_length, encode_groups
from fairdial.core.criteria import Criterion
from fairdial.core.demands import Condition, Demand
from fairdial.errors import InvalidInputError


def find_strata(
    criterion: Criterion, control_features: Any, n_rows: int
) -> tuple[Criterion, Codes | None]:
    """Return the criterion with its conditions applied, and each row's stratum (None: one).

    If no demand has a condition of its own, all demands hold within every stratum of the control
    features.
    """
    if control_features is None:
        if criterion.has_conditions:
            raise InvalidInputError(
                "control_features", f"be given for the conditions of {criterion.name}"
            )
        return criterion, None
    if not criterion.has_conditions:
        codes, names = encode_groups(control_features, "control_features")
        _check_rows(codes, n_rows)
        return apply_strata(criterion, names), codes
    columns: dict[Condition, tuple[Codes, tuple[Hashable, ...]]] = {}
    for demand in criterion.demands:
        if demand.where is not None and demand.where not in columns:
            columns[demand.where] = _column(demand.where, control_features, n_rows)
    table = np.column_stack([codes for codes, _ in columns.values()])
    rows, strata = np.unique(table, axis=0, return_inverse=True)  # (S, conditions)
    places = {where: place for place, where in enumerate(columns)}
    resolved: list[Demand] = []
    for demand in criterion.demands:
        if demand.where is None:
            resolved.append(demand)
            continue
        column = rows[:, places[demand.where]]
        names = columns[demand.where][1]
        boolean = all(isinstance(name, bool) for name in names)
        wanted = [1] if boolean else list(range(len(names)))
        label = _name(demand.where)
        for value in wanted:
            found = tuple(np.flatnonzero(column == value).tolist())
            within = label if boolean else f"{label}={names[value]}"
            resolved.append(replace(demand, where=None, strata=found, within=within))
    return replace(criterion, demands=tuple(resolved), n_strata=len(rows)), strata.reshape(-1)


def apply_strata(criterion: Criterion, names: tuple[Hashable, ...]) -> Criterion:
    """Return the criterion whose demands hold within each of the named strata."""
    demands = [
        replace(demand, strata=(stratum,), within=str(name))
        for stratum, name in enumerate(names)
        for demand in criterion.demands
    ]
    return replace(criterion, demands=tuple(demands), n_strata=len(names))


def _column(
    where: Condition, control_features: Any, n_rows: int
) -> tuple[Codes, tuple[Hashable, ...]]:
    """Return the codes and names of a condition's values; a boolean has the names False, True."""
    if isinstance(where, str):
        try:
            column = control_features[where]
        except (KeyError, IndexError, TypeError, ValueError):
            raise InvalidInputError(
                "control_features", f"have a column {where!r}, a condition of the criterion"
            ) from None
    else:
        column = where(control_features)
    values = np.asarray(column)
    if values.dtype == np.bool_:
        _check_rows(values, n_rows)
        if not values.any():
            raise InvalidInputError(
                "control_features",
                f"meet the condition {_name(where)!r} in some rows",
                given="none",
            )
        return values.astype(np.intp), (False, True)
    if not isinstance(where, str):
        raise InvalidInputError(
            "where", f"return booleans ({_name(where)})", given=f"dtype {values.dtype}"
        )
    codes, names = encode_groups(column, "control_features")
    _check_rows(codes, n_rows)
    return codes, names


def _check_rows(codes: Codes, n_rows: int) -> None:
    check_same_length(range(n_rows), codes, ("logits", "control_features"))


def _name(where: Condition) -> str:
    return where if isinstance(where, str) else getattr(where, "__name__", "condition")
