"""The COMPAS table: who was charged again within two years, Broward County 2013-2014."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairdial.datasets._embedded import read_table, sensitive_columns
from fairdial.datasets.base import Dataset
from fairdial.datasets.registry import DatasetInfo, TableColumns, register_dataset

TEXT = ("sex", "age_cat", "race", "c_charge_degree")
MERGED = 1_000  # rows; smaller races are merged in "compas-race"


def load_compas(sensitive: str | Sequence[str] = "caucasian") -> Dataset:
    """Load the 6,172 rows of COMPAS that pass ProPublica's filter, people of every race.

    The label is 1 for a new charge within two years: the positive label is the adverse one.
    With the default groups, the paper's A=1 is "Caucasian" and A=0 is "Not Caucasian". Groups
    sorted by name put Caucasian first, so a signed disparity (second group minus first) has the
    opposite sign of the paper's.

    Parameters
    ----------
    sensitive : {"caucasian", "race", "sex"} or a sequence of "race" and "sex"
        The groups: Caucasian or not, the six races of the source, the two sexes, or intersections
        such as ``"Hispanic & Female"``. The columns that define them are not among the features.

    Returns
    -------
    Dataset
        Numbers are integers. Text columns are pandas categories, which survive subsetting.

    Examples
    --------
    >>> from fairdial.datasets import load_compas
    >>> load_compas()
    Dataset('compas', 6172 rows, 8 columns, groups: Caucasian 2103, Not Caucasian 4069)
    >>> load_compas("sex")
    Dataset('compas', 6172 rows, 8 columns, groups: Female 1175, Male 4997)
    """
    table = read_table("compas.csv.gz", TEXT)
    if isinstance(sensitive, str) and sensitive == "caucasian":
        columns = ["race"]
        groups = np.where(table["race"] == "Caucasian", "Caucasian", "Not Caucasian")
    else:
        columns = sensitive_columns(sensitive, ("race", "sex"))
        groups = table[columns]
    return Dataset(
        X=table.drop(columns=["two_year_recid", *columns]),
        y=table["two_year_recid"].to_numpy(dtype=np.int64),
        groups=groups,
        name=COMPAS.name,
        label=COMPAS.label,
        source=COMPAS.source,
        license=COMPAS.license,
        preparation=(
            "ProPublica's filter (screened within 30 days of the arrest, a known outcome, no "
            "ordinary traffic offense, a score), nine columns kept; no names, no dates of birth"
        ),
    )


COMPAS = register_dataset(
    DatasetInfo(
        name="compas",
        load=load_compas,
        description="Defendants in Broward County: who was charged again within two years.",
        source=(
            "Larson, Mattu, Kirchner and Angwin (2016), How We Analyzed the COMPAS Recidivism "
            "Algorithm, ProPublica: compas-analysis, compas-scores-two-years.csv"
        ),
        license="ProPublica's data terms apply",
        groups="Caucasian or not",
        label="a new charge within two years (the adverse outcome)",
        in_paper=True,
        columns=TableColumns("origin", "charged_again", "no", "yes"),
    )
)

register_dataset(
    replace(
        COMPAS,
        name="compas-race",
        load=lambda: replace(load_compas("race").merge_small(MERGED), name="compas-race"),
        groups="African-American, Caucasian and everyone else",
        in_paper=False,
        settings=COMPAS.name,
        columns=None,
    )
)
