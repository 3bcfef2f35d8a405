"""The data sets by name: one record each, which the studies, the command line and the docs read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fairdial.datasets.base import Dataset
from fairdial.errors import InvalidInputError


class TableColumns(NamedTuple):
    """Names for the group, the label and its two values when a data set is written as a table."""

    group: str
    label: str
    negative: str
    positive: str


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before it is loaded.

    Attributes
    ----------
    name : str
        Short name, as in plans of studies.
    load : callable
        Returns the data set; takes the folder first if ``needs_folder``.
    description : str
        One sentence.
    source, license : str
        Where the rows come from, and under which terms.
    groups, label : str
        What the default groups are, and what a label of 1 means.
    pictures : bool
        Whether rows are pictures.
    needs_folder : bool
        Whether the rows are read from the user's own copy.
    in_paper : bool
        Whether the paper reports results for it.
    settings : str, optional
        The data set of the paper whose settings apply to it; itself if it is ``in_paper``.
    columns : TableColumns, optional
        Column names for writing it as a table.

    Examples
    --------
    >>> from fairdial.datasets.registry import DATASETS
    >>> DATASETS["adult"].label
    'an income above 50,000 dollars a year'
    """

    name: str
    load: Callable[..., Dataset]
    description: str
    source: str
    license: str
    groups: str
    label: str
    pictures: bool = False
    needs_folder: bool = False
    in_paper: bool = False
    settings: str | None = None
    columns: TableColumns | None = None

    @property
    def settings_of(self) -> str | None:
        """The data set of the paper whose settings apply; None if there is none."""
        return self.name if self.in_paper else self.settings


DATASETS: dict[str, DatasetInfo] = {}
BUILT_IN: set[str] = set()  # names that users can't register; the package fills it


def register_dataset(info: DatasetInfo) -> DatasetInfo:
    """Register your own data set, so that plans of studies can name it.

    Parameters
    ----------
    info : DatasetInfo
        Its name must differ from those of the library's data sets. Registering a name again
        replaces the data set.

    Examples
    --------
    >>> from functools import partial
    >>> from fairdial.datasets import DatasetInfo, make_gaussian, register_dataset
    >>> info = register_dataset(
    ...     DatasetInfo(
    ...         name="far apart",
    ...         load=partial(make_gaussian, 5_000, base_rates=(0.1, 0.9)),
    ...         description="5,000 rows of a Gaussian law with very different base rates.",
    ...         source="drawn at random",
    ...         license="",
    ...         groups="two groups",
    ...         label="",
    ...     )
    ... )
    >>> len(info.load())
    5000
    """
    if info.name in BUILT_IN:
        raise InvalidInputError("name", "be new", given=f"{info.name!r} of the library")
    DATASETS[info.name] = info
    return info
