"""Rows with labels and groups, and two ways to split them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fairdial._arrays import Indices
from fairdial._validation import (
    as_vector,
    check_count,
    check_fraction,
    check_labels,
    check_same_length,
    check_scores,
    encode_groups,
)
from fairdial.datasets.dividing import divide
from fairdial.datasets.pictures import Pictures
from fairdial.errors import InvalidInputError

PAPER_SHARES = (0.10, 0.10, 0.20)  # test; validation of the rest; calibration of the rest


class PaperSplit(NamedTuple):
    """The four disjoint parts of the paper's protocol."""

    train: Dataset
    validation: Dataset
    calibration: Dataset
    test: Dataset


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows, each with a binary label and a group.

    Parameters
    ----------
    X : pandas.DataFrame of shape (n, d), or Pictures
        The features. :meth:`subset` and the splits keep the row labels, so a row can be traced to
        its source; the row labels of pictures are their ``places``.
    y : array-like of shape (n,)
        Labels 0 and 1.
    groups : array-like of shape (n,), or DataFrame
        The group of each row, converted to a string; several columns give their intersections,
        such as ``"Black & Female"``.
    name : str
        A short name.
    source, license, preparation, label : str
        Where the rows come from, under which terms, how they were prepared, and what a label of 1
        means; shown by :meth:`describe`.
    logits : array-like of shape (n,), optional
        The true log-odds of a label of 1, if the distribution of the rows is known.
    clusters : array-like of shape (n,), optional
        Rows with the same value belong together, such as copies of one picture: :meth:`split`
        and :meth:`paper_split` never separate them. Integers stay as they are, other values are
        numbered.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairdial.datasets import Dataset
    >>> X = pd.DataFrame({"x": range(8)})
    >>> data = Dataset(X, [0, 1] * 4, ["a"] * 4 + ["b"] * 4, name="tiny")
    >>> data
    Dataset('tiny', 8 rows, 1 column, groups: a 4, b 4)
    >>> train, test = data.split(test_size=0.5, random_state=0)
    >>> len(train), len(test)
    (4, 4)
    """

    X: pd.DataFrame | Pictures
    y: NDArray[np.int64]
    groups: NDArray[np.str_]
    name: str = "data"
    source: str = ""
    license: str = ""
    preparation: str = ""
    label: str = ""
    logits: NDArray[np.float64] | None = None
    clusters: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.X, (pd.DataFrame, Pictures)):
            raise InvalidInputError(
                "X", "be a pandas DataFrame or Pictures", given=type(self.X).__name__
            )
        if len(self.X) == 0:
            raise InvalidInputError("X", "hold at least one row", given="none")
        y = check_labels(self.y)
        check_same_length(self.X, y, ("X", "y"))
        groups = _names(self.groups)
        check_same_length(self.X, groups, ("X", "groups"))
        object.__setattr__(self, "y", y.astype(np.int64))
        object.__setattr__(self, "groups", groups)
        if self.logits is not None:
            logits = check_scores(self.logits)
            check_same_length(self.X, logits, ("X", "logits"))
            object.__setattr__(self, "logits", logits.astype(np.float64))
        if self.clusters is not None:
            clusters = _numbers(self.clusters)
            check_same_length(self.X, clusters, ("X", "clusters"))
            object.__setattr__(self, "clusters", clusters)

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        names, counts = np.unique(self.groups, return_counts=True)
        groups = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
        return f"Dataset({self.name!r}, {self._size()}, groups: {groups})"

    def _size(self) -> str:
        """Return the number of rows and what they are, as text."""
        if isinstance(self.X, Pictures):
            _, _, height, width = self.X.shape
            return f"{len(self)} picture" + "s" * (len(self) != 1) + f" of {height} x {width}"
        columns = int(self.X.shape[1])
        return f"{len(self)} rows, {columns} column" + "s" * (columns != 1)

    def describe(self) -> str:
        """Return the source, the terms, the preparation and the groups as text.

        Examples
        --------
        >>> from fairdial.datasets import make_gaussian
        >>> print(make_gaussian(1000, random_state=0).describe())
        gaussian: 1000 rows, 1 column
        Source: drawn from a Gaussian law whose best trade-off is known
        <BLANKLINE>
        group     rows  share  label 1
        group 0    581  0.581    0.320
        group 1    419  0.419    0.611
        all       1000  1.000    0.442
        """
        lines = [f"{self.name}: {self._size()}"]
        facts = {
            "Label 1": self.label,
            "Source": self.source,
            "License": self.license,
            "Preparation": self.preparation,
        }
        lines += [f"{name}: {text}" for name, text in facts.items() if text]
        names = np.unique(self.groups).tolist()
        wide = max(len("group"), *map(len, names))
        lines += ["", f"{'group':<{wide}} {'rows':>6}  share  label 1"]
        masks = [(name, self.groups == name) for name in names]
        for name, mask in [*masks, ("all", np.ones(len(self), dtype=bool))]:
            lines.append(
                f"{name:<{wide}} {mask.sum():>6}  {mask.mean():.3f}  {self.y[mask].mean():>7.3f}"
            )
        return "\n".join(lines)

    def subset(self, index: ArrayLike) -> Dataset:
        """Return the rows at these positions, or where a mask is true.

        Examples
        --------
        >>> from fairdial.datasets import load_compas
        >>> data = load_compas()
        >>> len(data.subset(data.groups == "Caucasian"))
        2103
        """
        rows = self._positions(index)
        return replace(
            self,
            X=self.X[rows] if isinstance(self.X, Pictures) else self.X.iloc[rows],
            y=self.y[rows],
            groups=self.groups[rows],
            logits=None if self.logits is None else self.logits[rows],
            clusters=None if self.clusters is None else self.clusters[rows],
        )

    def merge_small(self, rows: int, name: str = "Other") -> Dataset:
        """Return the same rows with all groups of fewer than ``rows`` rows merged into one.

        Parameters
        ----------
        rows : int
            Groups of at least this many rows stay as they are.
        name : str
            Name of the merged group; no other group may have it.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial.datasets import load_compas
        >>> data = load_compas("race").merge_small(1_000)
        >>> np.unique(data.groups).tolist()
        ['African-American', 'Caucasian', 'Other']
        """
        least = check_count(rows, "rows")
        names, codes, counts = np.unique(self.groups, return_inverse=True, return_counts=True)
        small = counts < least
        if name in names[~small]:
            raise InvalidInputError(
                "name",
                "differ from the groups that stay",
                given=repr(name),
            )
        return replace(self, groups=np.where(small, name, names)[codes])

    def split(self, test_size: float = 0.2, random_state: int = 0) -> tuple[Dataset, Dataset]:
        """Split the rows at random into two parts, stratified by group and label.

        A cluster goes where its first row goes, so sizes are exact up to one cluster for each
        group and label.

        Parameters
        ----------
        test_size : float
            The share of every group that goes to the test part, between 0 and 1; the number of rows
            is rounded up.
        random_state : int
            The seed.

        Returns
        -------
        train, test : Dataset

        Examples
        --------
        >>> from fairdial.datasets import load_adult
        >>> train, test = load_adult().split(test_size=0.2, random_state=0)
        >>> len(train), len(test)
        (39073, 9769)
        """
        share = check_fraction(test_size, "test_size")
        test, train = self._parts((share,), random_state)
        return self.subset(train), self.subset(test)

    def paper_split(self, seed: int) -> PaperSplit:
        """Split the rows as in the paper.

        Within every group, stratified by label: 10% of the rows for testing, 10% of the rest for
        validation, 20% of what is left for calibration, each rounded up; the others for training.
        Clusters stay together as in :meth:`split`.

        Parameters
        ----------
        seed : int
            The seed; the paper used 0, 5, 10, 15 and 20.

        Returns
        -------
        PaperSplit
            The parts ``train``, ``validation``, ``calibration`` and ``test``.

        Examples
        --------
        >>> from fairdial.datasets import load_compas
        >>> parts = load_compas().paper_split(0)
        >>> [len(part) for part in parts]
        [3997, 557, 1000, 618]
        """
        test, validation, calibration, train = self._parts(PAPER_SHARES, seed, name="seed")
        return PaperSplit(*map(self.subset, (train, validation, calibration, test)))

    def _positions(self, index: ArrayLike) -> Indices:
        given = as_vector(index, "index")
        if given.dtype == np.bool_:
            check_same_length(given, self.y, ("index", "y"))
            if not given.any():
                raise InvalidInputError("index", "choose at least one row", given="none")
            return np.flatnonzero(given)
        if not np.issubdtype(given.dtype, np.integer):
            raise InvalidInputError(
                "index", "hold row positions or a mask", given=f"values like {given[0]!r}"
            )
        low, high = int(given.min()), int(given.max())
        if low < 0 or high >= len(self):
            raise InvalidInputError(
                "index", f"lie in [0, {len(self) - 1}]", given=low if low < 0 else high
            )
        return given.astype(np.intp)

    def _parts(
        self, shares: Sequence[float], random_state: int, name: str = "random_state"
    ) -> list[Indices]:
        rng = np.random.default_rng(check_count(random_state, name, least=0))
        return divide(self.y, self.groups, shares, rng, clusters=self.clusters)


def _names(groups: ArrayLike | pd.DataFrame) -> NDArray[np.str_]:
    """Return the name of each row's group; several columns give their intersections."""
    codes, names = encode_groups(groups)
    table: NDArray[np.str_] = np.array([str(name) for name in names])
    return np.take(table, codes)


def _numbers(clusters: ArrayLike) -> NDArray[np.int64]:
    """Return an integer for each row's cluster."""
    given = as_vector(clusters, "clusters")
    if np.issubdtype(given.dtype, np.integer):
        return given.astype(np.int64)
    codes: NDArray[np.int64] = pd.factorize(given)[0].astype(np.int64)
    if (codes < 0).any():
        raise InvalidInputError(
            "clusters",
            "name a cluster for every row",
            given=f"{int((codes < 0).sum())} missing values, the first in row "
            f"{int(np.argmax(codes < 0))} (counted from 0)",
        )
    return codes
