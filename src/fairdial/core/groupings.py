"""Overlapping groups: demands on the values of single columns, beside or without intersections.

With several sensitive columns every row belongs to one *intersection*, such as "Black & Female",
and to one group of each column: its *marginal* groups. Decisions have a threshold for every
intersection. A :class:`Grouping` says which intersections make up the groups of a column, so that a
demand can compare these groups.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Codes
from fairdial._validation import check_choice, encode_groups
from fairdial.errors import InvalidInputError

Overlap = Literal["intersection", "marginal", "both"]
OVERLAPS: tuple[Overlap, ...] = ("intersection", "marginal", "both")


@dataclass(frozen=True)
class Grouping:
    """The groups of one column, each a union of intersections.

    Attributes
    ----------
    column : str
        Name of the column.
    names : tuple of str
        Its groups.
    members : tuple of int
        For each intersection, the place of its group among the names.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.core.groupings import Grouping
    >>> sex = Grouping("sex", ("female", "male"), (0, 1, 0))
    >>> sex.pool(np.array([10, 20, 30]))
    array([40, 20])
    """

    column: str
    names: tuple[str, ...]
    members: tuple[int, ...]

    def pool(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return sums over the intersections of each group, (..., G), from (..., K)."""
        sums = np.zeros((*values.shape[:-1], len(self.names)), values.dtype)
        for group, place in enumerate(self.members):
            sums[..., place] += values[..., group]
        return sums

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return each intersection's value, (..., K), from those of the groups, (..., G)."""
        return np.asarray(values[..., list(self.members)])


def check_overlap(value: object, name: str) -> Overlap:
    """Return what is compared if there are several sensitive columns."""
    found: Overlap = check_choice(value, name, OVERLAPS)
    return found


def find_groupings(
    values: Any, codes: Codes, groups: Sequence[Hashable], name: str = "groups"
) -> tuple[Grouping, ...]:
    """Return the grouping of each sensitive column; none if there are fewer than two columns.

    Parameters
    ----------
    values : DataFrame or 2-D array-like
        Sensitive columns.
    codes : (n,) array
        The rows' intersections.
    groups : sequence
        Names of the intersections; each has a row.
    name : str
        What errors call the values.
    """
    columns = _columns(values)
    if len(columns) < 2:
        return ()
    found, first = np.unique(codes, return_index=True)
    if len(found) < len(groups):
        missing = [repr(group) for a, group in enumerate(groups) if a not in found]
        raise InvalidInputError(
            name, "have rows in every intersection", given=f"none in {', '.join(missing)}"
        )
    groupings = []
    for column, content in columns:
        each, names = encode_groups(content, name)
        members = tuple(int(code) for code in each[first])
        groupings.append(Grouping(column, tuple(map(str, names)), members))
    return tuple(groupings)


def _columns(values: Any) -> list[tuple[str, Any]]:
    """Return the columns of a table or 2-D array with their names; none for a single column."""
    import pandas as pd

    if isinstance(values, pd.DataFrame):
        return [(str(name), values.iloc[:, i]) for i, name in enumerate(values.columns)]
    array = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    if array.ndim != 2:
        return []
    return [(f"column {i}", array[:, i]) for i in range(array.shape[1])]
