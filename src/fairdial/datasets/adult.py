"""The Adult table: who earned more than 50,000 dollars a year, from the 1994 census."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairdial.datasets._embedded import read_table, sensitive_columns
from fairdial.datasets.base import Dataset
from fairdial.datasets.registry import DatasetInfo, TableColumns, register_dataset

TEXT = (
    "workclass",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native_country",
    "income",
)
MERGED = 2_000  # rows; smaller intersections of race and sex are merged in "adult-race-sex"


def load_adult(sensitive: str | Sequence[str] = "sex") -> Dataset:
    """Load all 48,842 rows of Adult.

    The label is 1 for an income above 50,000 dollars a year. With the default groups, the
    paper's A=1 is Male and A=0 is Female.

    Parameters
    ----------
    sensitive : {"sex", "race"} or a sequence of both
        The column that defines the groups; a sequence gives intersections such as
        ``"Black & Female"``. These columns are not among the features.

    Returns
    -------
    Dataset
        Numbers are integers. Text columns are pandas categories, which survive subsetting, so a
        value missing from one part doesn't change the encoding; both ``OneHotEncoder`` and
        ``HistGradientBoostingClassifier`` accept them. An unknown value is the category ``"?"``.

    Examples
    --------
    >>> from fairdial.datasets import load_adult
    >>> load_adult()
    Dataset('adult', 48842 rows, 13 columns, groups: Female 16192, Male 32650)
    >>> print(load_adult().describe())
    adult: 48842 rows, 13 columns
    Label 1: an income above 50,000 dollars a year
    Source: Becker and Kohavi (1996), Adult, UCI Machine Learning Repository, doi:10.24432/C5XW20
    License: CC BY 4.0
    Preparation: adult.data and adult.test joined, text stripped, "?" kept as a category
    <BLANKLINE>
    group    rows  share  label 1
    Female  16192  0.332    0.109
    Male    32650  0.668    0.304
    all     48842  1.000    0.239
    """
    columns = sensitive_columns(sensitive, ("sex", "race"))
    table = read_table("adult.csv.gz", TEXT)
    return Dataset(
        X=table.drop(columns=["income", *columns]),
        y=(table["income"] == ">50K").to_numpy(dtype=np.int64),
        groups=table[columns],
        name=ADULT.name,
        label=ADULT.label,
        source=ADULT.source,
        license=ADULT.license,
        preparation='adult.data and adult.test joined, text stripped, "?" kept as a category',
    )


ADULT = register_dataset(
    DatasetInfo(
        name="adult",
        load=load_adult,
        description="Census records of 1994: who earned more than 50,000 dollars a year.",
        source=(
            "Becker and Kohavi (1996), Adult, UCI Machine Learning Repository, doi:10.24432/C5XW20"
        ),
        license="CC BY 4.0",
        groups="women and men",
        label="an income above 50,000 dollars a year",
        in_paper=True,
        columns=TableColumns("sex", "income", "<=50K", ">50K"),
    )
)

register_dataset(
    replace(
        ADULT,
        name="adult-race-sex",
        load=lambda: replace(
            load_adult(("race", "sex")).merge_small(MERGED), name="adult-race-sex"
        ),
        groups="White and Black women and men, and everyone else",
        in_paper=False,
        settings=ADULT.name,
        columns=None,
    )
)
