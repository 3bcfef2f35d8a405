"""Tables of the fairness literature, from your own files: census, credit and law school records.

None of them is part of the package. ``describe()`` says where each comes from and under which
terms, and whether the file is the one with the known checksum.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.datasets._embedded import sensitive_columns
from fairdial.datasets.base import Dataset
from fairdial.datasets.picture_files import what_is_at
from fairdial.datasets.registry import DatasetInfo, register_dataset
from fairdial.errors import InvalidInputError

KDD_COLUMNS = [
    "age",
    "class_of_worker",
    "industry_code",
    "occupation_code",
    "education",
    "wage_per_hour",
    "enrolled",
    "marital_status",
    "major_industry",
    "major_occupation",
    "race",
    "hispanic_origin",
    "sex",
    "union_member",
    "unemployment_reason",
    "employment_status",
    "capital_gains",
    "capital_losses",
    "dividends",
    "tax_filer",
    "previous_region",
    "previous_state",
    "household_and_family",
    "household_summary",
    "instance_weight",
    "migration_msa",
    "migration_region",
    "migration_within_region",
    "same_house_a_year_ago",
    "migration_sunbelt",
    "n_employees",
    "family_under_18",
    "father_birth",
    "mother_birth",
    "self_birth",
    "citizenship",
    "own_business",
    "veterans_questionnaire",
    "veterans_benefits",
    "weeks_worked",
    "year",
    "income",
]
KDD_NUMBERS = [
    "age",
    "wage_per_hour",
    "capital_gains",
    "capital_losses",
    "dividends",
    "n_employees",
    "weeks_worked",
]
DUTCH_COLUMNS = [
    "sex",
    "age",
    "household_position",
    "household_size",
    "prev_residence_place",
    "citizenship",
    "country_birth",
    "edu_level",
    "economic_status",
    "cur_eco_activity",
    "marital_status",
    "occupation",
]
LAW_NUMBERS = ["decile1b", "decile3", "lsat", "ugpa", "zfygpa", "zgpa"]
LAW_CODES = ["fulltime", "fam_inc", "tier"]
PAYMENTS = [f"{kind}{i}" for kind in ("BILL_AMT", "PAY_AMT") for i in range(1, 7)]
CREDIT_NUMBERS = ["LIMIT_BAL", "AGE", *(f"PAY_{i}" for i in (0, 2, 3, 4, 5, 6)), *PAYMENTS]
CREDIT_TARGETS = (
    "default payment next month",
    "default.payment.next.month",
    "default payment",
    "Y",
)
CHECKSUMS = {  # of files that many copies agree on
    "dutch_census_2001.arff": "0e7e3f32668919c239db820f625815e1ea834c71402cdea595e03ef08c8616ef",
    "dutch.csv": "c0e1df7e2ca07fa84aa99b5565c7b782a381e2fab377648a6d920174d04ce090",
    "credit-card-clients.csv": "7cfc3bb35b6986be40cccb5d490806f082b46f93afafdce27fd7f409eb5abb02",
}

Root = str | os.PathLike[str]


@dataclass(frozen=True)
class Found:
    """A table as it is in files, and what is known about these."""

    table: pd.DataFrame
    files: str


def load_kdd_census(root: Root, *, sensitive: str | Sequence[str] = "sex") -> Dataset:
    r"""Load Census-Income (KDD) from your own copy of UCI's files.

    Parameters
    ----------
    root : path
        ``census-income.data`` of UCI, or the folder with it; ``census-income.test`` next to it is
        added.
    sensitive : {"sex", "race"} or a sequence of both
        The column that defines the groups.

    Returns
    -------
    Dataset
        The instance weight and the year aren't features. Codes and text are categories.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fairdial.datasets import load_kdd_census
    >>> row = ["Not in universe"] * 42
    >>> for i in (0, 2, 3, 5, 16, 17, 18, 24, 30, 36, 38, 39, 40):
    ...     row[i] = "0"
    >>> rows = [[*row[:12], "Female", *row[13:41], "- 50000."]]
    >>> rows += [[*row[:12], "Male", *row[13:41], "50000+."]]
    >>> with TemporaryDirectory() as folder:
    ...     lines = [", ".join(row) for row in rows]
    ...     _ = (Path(folder) / "census-income.data").write_text("\n".join(lines))
    ...     load_kdd_census(folder)
    Dataset('kdd-census', 2 rows, 38 columns, groups: Female 1, Male 1)
    """
    columns = sensitive_columns(sensitive, ("sex", "race"))
    found = _read(root, ("census-income.data",), KDD_COLUMNS, also=("census-income.test",))
    table = found.table
    dropped = ["instance_weight", "year", "income", *columns]
    label = _labels(table["income"], {"- 50000.": 0, "50000+.": 1}, "income")
    return _dataset(KDD, found, table.drop(columns=dropped), KDD_NUMBERS, label, table[columns])


def load_dutch_census(root: Root) -> Dataset:
    r"""Load the Dutch census of 2001 from your own file.

    Parameters
    ----------
    root : path
        ``dutch_census_2001.arff`` or ``dutch.csv``, or a folder with one of them.

    Returns
    -------
    Dataset
        Women and men; the age (in classes) is a number, other codes are categories.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fairdial.datasets import load_dutch_census
    >>> lines = [
    ...     "sex,age,household_position,household_size,prev_residence_place,citizenship,"
    ...     "country_birth,edu_level,economic_status,cur_eco_activity,marital_status,occupation",
    ...     "male,6,1131,112,1,1,1,5,111,135,1,1",
    ...     "female,10,1122,113,1,1,1,2,111,122,2,0",
    ... ]
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "dutch.csv").write_text("\n".join(lines))
    ...     load_dutch_census(folder)
    Dataset('dutch-census', 2 rows, 10 columns, groups: female 1, male 1)
    """
    found = _read(root, ("dutch_census_2001.arff", "dutch.csv"))
    table = found.table.rename(columns=str.lower)
    _require(table, DUTCH_COLUMNS, found.files)
    sexes = {"1": "male", "2": "female", "male": "male", "female": "female"}
    label = _labels(table["occupation"], {"2_1": 1, "5_4_9": 0, "1": 1, "0": 0}, "occupation")
    X = table[[name for name in DUTCH_COLUMNS if name not in ("sex", "occupation")]]
    return _dataset(DUTCH, found, X, ["age"], label, _named(table["sex"], sexes, "sex"))


def load_law_school(root: Root, *, sensitive: str = "race") -> Dataset:
    r"""Load the law students of 1991 from your own file: who passed the bar exam.

    Parameters
    ----------
    root : path
        ``law_school_clean.csv`` or ``law_dataset.arff``, or a folder with one of them.
    sensitive : {"race", "sex"}
        Which column defines the groups; the other is a feature.

    Returns
    -------
    Dataset
        Grades and scores are numbers, codes are categories.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fairdial.datasets import load_law_school
    >>> lines = [
    ...     "decile1b,decile3,lsat,ugpa,zfygpa,zgpa,fulltime,fam_inc,male,tier,race,pass_bar",
    ...     "10.0,10.0,44.0,3.5,1.33,1.88,1.0,5.0,0.0,4.0,White,1.0",
    ...     "5.0,4.0,29.0,3.5,-0.11,-0.57,1.0,4.0,1.0,2.0,Non-White,0.0",
    ... ]
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "law_school_clean.csv").write_text("\n".join(lines))
    ...     load_law_school(folder)
    Dataset('law-school', 2 rows, 10 columns, groups: Non-White 1, White 1)
    """
    (chosen,) = sensitive_columns(sensitive, ("race", "sex"))
    found = _read(root, ("law_school_clean.csv", "law_dataset.arff"))
    table = found.table.rename(columns={"racetxt": "race"})
    _require(table, (*LAW_NUMBERS, *LAW_CODES, "male", "race", "pass_bar"), found.files)
    races = {"White": "White", "Non-White": "Non-White", "1": "White", "0": "Non-White"}
    groups = {
        "race": _named(table["race"].map(_whole), races, "race"),
        "sex": _named(table["male"].map(_whole), {"1": "Male", "0": "Female"}, "male"),
    }
    X = table[[*LAW_NUMBERS, *LAW_CODES]].copy()
    X[LAW_CODES] = X[LAW_CODES].map(_whole)
    other = "sex" if chosen == "race" else "race"
    X[other] = groups[other]
    label = _labels(table["pass_bar"].map(_whole), {"1": 1, "0": 0}, "pass_bar")
    return _dataset(LAW, found, X, LAW_NUMBERS, label, groups[chosen])


def load_credit_default(root: Root) -> Dataset:
    r"""Load Default of Credit Card Clients (Taiwan) from your own copy of UCI's table, as CSV.

    Parameters
    ----------
    root : path
        ``credit-card-clients.csv``, ``UCI_Credit_Card.csv`` or
        ``default of credit card clients.csv``, or a folder with one of them. A first line with
        ``X1, X2, ...`` above the names is skipped.

    Returns
    -------
    Dataset
        Women and men; amounts, the age and months of delay are numbers, education and marital
        status are categories.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fairdial.datasets import load_credit_default
    >>> from fairdial.datasets.own_tables import CREDIT_NUMBERS
    >>> names = ["SEX", "EDUCATION", "MARRIAGE", *CREDIT_NUMBERS, "default payment next month"]
    >>> lines = [",".join(names), ",".join(["1"] * 24), ",".join(["2"] * 23 + ["0"])]
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "UCI_Credit_Card.csv").write_text("\n".join(lines))
    ...     load_credit_default(folder)
    Dataset('credit-default', 2 rows, 22 columns, groups: Female 1, Male 1)
    """
    names = ("credit-card-clients.csv", "UCI_Credit_Card.csv", "default of credit card clients.csv")
    found = _read(root, names)
    table = found.table
    if "X1" in table.columns and "LIMIT_BAL" in table.iloc[0].astype(str).tolist():
        table = table.iloc[1:].set_axis(table.iloc[0].tolist(), axis=1).reset_index(drop=True)
    table = table.rename(columns={"PAY_1": "PAY_0"})
    _require(table, (*CREDIT_NUMBERS, "SEX", "EDUCATION", "MARRIAGE"), found.files)
    target = next((name for name in CREDIT_TARGETS if name in table), CREDIT_TARGETS[0])
    _require(table, (target,), found.files)
    label = _labels(table[target].map(_whole), {"1": 1, "0": 0}, target)
    groups = _named(table["SEX"].map(_whole), {"1": "Male", "2": "Female"}, "SEX")
    X = table[["EDUCATION", "MARRIAGE", *CREDIT_NUMBERS]]
    return _dataset(CREDIT, found, X, CREDIT_NUMBERS, label, groups)


# ---- files -------------------------------------------------------------------------------------


def _read(
    root: Root, names: Sequence[str], columns: Sequence[str] | None = None, also: Sequence[str] = ()
) -> Found:
    """Return the table in a file, or in the first of some files of a folder, as text."""
    path = Path(root)
    there = [path / name for name in names if (path / name).is_file()] if path.is_dir() else [path]
    if not there or not there[0].is_file():
        raise InvalidInputError(
            "root",
            f"be the file {' or '.join(names)}, or a folder with it",
            given=f"{path}: {what_is_at(path)}",
        )
    paths = [there[0], *(there[0].parent / name for name in also)]
    paths = [path for path in paths if path.is_file()]
    tables = [_read_text(path, columns) for path in paths]
    return Found(pd.concat(tables, ignore_index=True), "; ".join(map(_describe_file, paths)))


def _read_text(path: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    """Return a CSV or ARFF table of text, without spaces around values."""
    options = {"dtype": str, "skipinitialspace": True, "keep_default_na": False}
    try:
        if path.suffix == ".arff":
            lines = path.read_text("utf-8").splitlines()
            names = [line.split()[1] for line in lines if line.lower().startswith("@attribute")]
            start = next(i for i, line in enumerate(lines) if line.lower().startswith("@data"))
            table = pd.read_csv(path, skiprows=start + 1, header=None, comment="%", **options)
            table = table.set_axis(names, axis=1)
        elif columns is not None:
            table = pd.read_csv(path, header=None, **options).set_axis(list(columns), axis=1)
        else:
            table = pd.read_csv(path, **options)
    except (ValueError, StopIteration, IndexError) as error:
        raise InvalidInputError(
            "root", f"have a table of the known layout in {path.name}", given=str(error)
        ) from error
    return table.map(str.strip)


def _describe_file(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    known = CHECKSUMS.get(path.name)
    if known is None:
        return f"{path.name} (SHA-256 {digest[:12]})"
    same = "with the known checksum" if digest == known else "NOT the file with the known checksum"
    return f"{path.name}, {same}"


def _require(table: pd.DataFrame, names: Sequence[str], files: str) -> None:
    missing = [name for name in names if name not in table]
    if missing:
        raise InvalidInputError("root", f"have the columns {', '.join(missing)}", given=files)


def _whole(text: str) -> str:
    """Return 1.0 as 1."""
    return text.removesuffix(".00").removesuffix(".0")


def _named(column: pd.Series, names: Mapping[str, str], what: str) -> pd.Series:
    named = column.map(names)
    if named.isna().any():
        raise InvalidInputError(
            "root",
            f"have only {', '.join(names)} in {what}",
            given=repr(column[named.isna()].iloc[0]),
        )
    return named


def _labels(column: pd.Series, values: Mapping[str, int], what: str) -> NDArray[np.int64]:
    names = {text: str(value) for text, value in values.items()}
    return np.asarray(_named(column, names, what), np.int64)


def _dataset(
    info: DatasetInfo,
    found: Found,
    table: pd.DataFrame,
    numbers: Sequence[str],
    label: NDArray[np.int64],
    groups: pd.Series | pd.DataFrame,
) -> Dataset:
    """Return a data set with numbers as floats and all else as categories."""
    X: dict[str, pd.Series] = {}
    for name in table.columns:
        try:
            known = table[name].where(~table[name].isin(["?", ""]))
            X[name] = known.astype(float) if name in numbers else table[name].astype("category")
        except ValueError as error:
            raise InvalidInputError(
                "root", f"have numbers in the column {name}", given=str(error)
            ) from error
    return Dataset(
        X=pd.DataFrame(X),
        y=label,
        groups=groups,
        name=info.name,
        label=info.label,
        source=info.source,
        license=info.license,
        preparation=f"from {found.files}",
    )


# ---- what is known -----------------------------------------------------------------------------


def _register(
    name: str, load: Callable[..., Dataset], description: str, source: str, terms: str, label: str,
    groups: str = "women and men",
) -> DatasetInfo:  # fmt: skip
    return register_dataset(
        DatasetInfo(name, load, description, source, terms, groups, label, needs_folder=True)
    )


KDD = _register(
    "kdd-census",
    load_kdd_census,
    "Census records of 1994 and 1995: who had an income above 50,000 dollars.",
    "Census-Income (KDD), UCI Machine Learning Repository, donated by Lane and Kohavi (2000), "
    "doi:10.24432/C5N30T",
    "CC BY 4.0",
    "a total income above 50,000 dollars a year",
)
DUTCH = _register(
    "dutch-census",
    load_dutch_census,
    "Census records of the Netherlands, 2001: who has a prestigious occupation.",
    "Statistics Netherlands, Dutch virtual census of 2001 (IPUMS International), as prepared for "
    "Le Quy et al. (2022), A survey on datasets for fairness-aware machine learning",
    "no license is stated with the files; ask those who publish them",
    "a prestigious occupation",
)
LAW = _register(
    "law-school",
    load_law_school,
    "Law students of 1991: who passed the bar exam.",
    "Wightman (1998), LSAC National Longitudinal Bar Passage Study, as prepared for Le Quy et al. "
    "(2022), A survey on datasets for fairness-aware machine learning",
    "no license is stated with the files; ask those who publish them",
    "passed the bar exam",
    "White and Non-White students",
)
CREDIT = _register(
    "credit-default",
    load_credit_default,
    "Credit card holders in Taiwan, 2005: who didn't pay the next month (the adverse outcome).",
    "Yeh (2009), Default of Credit Card Clients, UCI Machine Learning Repository, "
    "doi:10.24432/C55S3H",
    "CC BY 4.0",
    "no payment in the next month (the adverse outcome)",
)
