"""A decision rule as an SQL expression, so that a database decides where the rows are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from fairdial._arrays import Floats
from fairdial._sql import DIALECTS, Dialect
from fairdial._validation import check_choice
from fairdial.errors import InvalidInputError


def write_decision(
    thresholds: Floats,
    groups: Sequence[Hashable],
    *,
    score: str,
    group: str | Sequence[str],
    dialect: str,
    missing_group: Hashable | None = None,
    merged_groups: Mapping[Hashable, Sequence[str]] | None = None,
) -> str:
    """Return a ``CASE`` expression: 1 if a row is selected, 0 if not, NULL if that is undefined.

    Parameters
    ----------
    thresholds : (K,) float64
        A row is selected if its score is above its group's threshold.
    groups : sequence of str, int or bool
        Names of the groups.
    score : str
        Column of scores.
    group : str or sequence of str
        Column of groups; several columns are joined by " & ", as the groups' names are.
    dialect : str
        Name of the dialect.
    missing_group : str, int or bool, optional
        The group of rows without one.
    merged_groups : mapping, optional
        Other names that belong to a group.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.decision_sql import write_decision
    >>> limits = np.array([0.25, -1.0])
    >>> print(write_decision(limits, "FM", score="z", group="sex", dialect="sqlite"))
    CASE
      WHEN CAST("z" AS REAL) IS NULL THEN NULL
      WHEN "sex" = 'F' THEN CASE WHEN CAST("z" AS REAL) > (1.0 / 4.0 /* 0.25 */) THEN 1 ELSE 0 END
      WHEN "sex" = 'M' THEN CASE WHEN CAST("z" AS REAL) > (-1.0 /* -1.0 */) THEN 1 ELSE 0 END
    END
    """
    found: Dialect = DIALECTS[check_choice(dialect, "dialect", tuple(DIALECTS))]
    columns = [group] if isinstance(group, str) else list(group)
    if not columns:
        raise InvalidInputError("group", "name at least one column", given="none")
    z = f"CAST({found.column(score, 'score')} AS {found.double})"  # exact for single precision too
    joined = " || ' & ' || ".join(found.column(name, "group") for name in columns)
    whose = joined if len(columns) == 1 else f"({joined})"
    if missing_group is not None:
        whose = f"COALESCE({whose}, {_literal(missing_group, found)})"
    lines = [f"WHEN {found.is_missing(z)} THEN NULL"]
    for name, threshold in zip(groups, thresholds.tolist(), strict=True):
        above = f"CASE WHEN {z} > {found.number(threshold)} THEN 1 ELSE 0 END"
        names = [name, *(merged_groups or {}).get(name, ())]
        same = f"= {_literal(name, found)}"
        if len(names) > 1:
            same = f"IN ({', '.join(_literal(each, found) for each in names)})"
        lines.append(f"WHEN {whose} {same} THEN {above}")
    return "\n  ".join(["CASE", *lines]) + "\nEND"


def _literal(name: Hashable, dialect: Dialect) -> str:
    """Return a group's name as a constant."""
    if isinstance(name, bool):
        return "TRUE" if name else "FALSE"
    if isinstance(name, int):
        return str(name)
    if isinstance(name, str):
        return dialect.text(name)
    raise InvalidInputError(
        "groups", "be text, whole numbers or booleans in SQL", given=f"{name!r}"
    )
