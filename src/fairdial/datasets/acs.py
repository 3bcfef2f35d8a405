"""The American Community Survey: five tasks on records of the US census, from your own files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fairdial._validation import check_choice, check_count
from fairdial.datasets._embedded import sensitive_columns
from fairdial.datasets.base import Dataset
from fairdial.datasets.picture_files import what_is_at
from fairdial.datasets.registry import DatasetInfo, register_dataset
from fairdial.errors import InvalidInputError, require_extra

ADDRESS = "https://www2.census.gov/programs-surveys/acs/data/pums/"
HORIZONS = ("1-Year", "5-Year")
FIRST_YEAR, RENAMED = 2014, 2017  # files are named psam_p01.csv from 2017 on, before ss16pal.csv
NUMBERS = {"AGEP", "SCHL", "WKHP", "JWMNP", "PINCP", "POVPIP"}  # the other columns hold codes
GROUPS = {
    "SEX": {1: "Male", 2: "Female"},
    "RAC1P": {
        1: "White",
        2: "Black",
        3: "American Indian",
        4: "Alaska Native",
        5: "American Indian or Alaska Native, not specified",
        6: "Asian",
        7: "Pacific Islander",
        8: "Some other race",
        9: "Two or more races",
    },
}
STATES = (
    "AL:01 AK:02 AZ:04 AR:05 CA:06 CO:08 CT:09 DE:10 DC:11 FL:12 GA:13 HI:15 ID:16 IL:17 IN:18 "
    "IA:19 KS:20 KY:21 LA:22 ME:23 MD:24 MA:25 MI:26 MN:27 MS:28 MO:29 MT:30 NE:31 NV:32 NH:33 "
    "NJ:34 NM:35 NY:36 NC:37 ND:38 OH:39 OK:40 OR:41 PA:42 RI:44 SC:45 SD:46 TN:47 TX:48 UT:49 "
    "VT:50 VA:51 WA:53 WV:54 WI:55 WY:56 PR:72"
)
CODES = {name: code for name, _, code in (pair.partition(":") for pair in STATES.split())}


@dataclass(frozen=True)
class Task:
    """A prediction task: the same rows, features and labels as in folktables.

    Attributes
    ----------
    features : tuple of str
        Columns of the features, those of the groups included.
    target : str
        Column that decides the label.
    positive : callable
        Returns from the target which labels are 1.
    eligible : callable
        Returns from the table which rows belong to the task.
    filtered : tuple of str
        Other columns that ``eligible`` reads.
    label : str
        What a label of 1 means.
    """

    features: tuple[str, ...]
    target: str
    positive: Callable[[pd.Series], pd.Series]
    eligible: Callable[[pd.DataFrame], pd.Series]
    filtered: tuple[str, ...]
    label: str


def _adults(table: pd.DataFrame) -> pd.Series:
    return (table["AGEP"] > 16) & (table["PWGTP"] >= 1)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PERSON = _words("AGEP SCHL MAR SEX DIS ESP CIT MIG MIL ANC NATIVITY DEAR DEYE DREM RAC1P")
TASKS = {
    "income": Task(
        _words("AGEP COW SCHL MAR OCCP POBP RELP WKHP SEX RAC1P"),
        "PINCP",
        lambda income: income > 50_000,
        lambda table: _adults(table) & (table["PINCP"] > 100) & (table["WKHP"] > 0),
        ("PWGTP",),
        "an income above 50,000 dollars a year",
    ),
    "employment": Task(
        (*PERSON, "RELP"),
        "ESR",
        lambda status: status == 1,
        lambda table: table["AGEP"].notna(),
        (),
        "employed, at work",
    ),
    "public_coverage": Task(
        (*PERSON, "PINCP", "ESR", "ST", "FER"),
        "PUBCOV",
        lambda coverage: coverage == 1,
        lambda table: (table["AGEP"] < 65) & (table["PINCP"] <= 30_000),
        (),
        "covered by public health insurance",
    ),
    "mobility": Task(
        (
            *(name for name in PERSON if name != "MIG"),
            *["RELP", "GCL", "COW", "ESR", "WKHP", "JWMNP", "PINCP"],
        ),
        "MIG",
        lambda moved: moved == 1,
        lambda table: (table["AGEP"] > 18) & (table["AGEP"] < 35),
        (),
        "lives at the same address as a year ago",
    ),
    "travel_time": Task(
        _words("AGEP SCHL MAR SEX DIS ESP MIG RELP RAC1P PUMA ST CIT OCCP JWTR POWPUMA POVPIP"),
        "JWMNP",
        lambda minutes: minutes > 20,
        lambda table: _adults(table) & (table["ESR"] == 1),
        ("PWGTP", "ESR"),
        "a way to work of more than 20 minutes",
    ),
}


def load_acs(
    root: str | os.PathLike[str],
    *,
    task: str = "income",
    states: Sequence[str] | None = None,
    year: int = 2018,
    horizon: str = "1-Year",
    sensitive: str | Sequence[str] = "SEX",
) -> Dataset:
    r"""Load a task on the American Community Survey from your own files.

    Rows, features and labels of a task are those of folktables (Ding et al., 2021), and so is the
    layout of the folder. Download the person files of the public-use microdata from
    https://www2.census.gov/programs-surveys/acs/data/pums/.

    Parameters
    ----------
    root : path
        The folder with ``2018/1-Year/psam_p01.csv`` and so on (before 2017: ``ss16pal.csv``), or
        with these files directly; or a Parquet file with the rows of one task: its features, the
        target as true or false, and the state in ``ST``; or a folder with one such file, called
        ``acsincome*.parquet`` after the task.
    task : {"income", "employment", "public_coverage", "mobility", "travel_time"}
        What to predict.
    states : sequence of str, optional
        States by their two letters, such as ``["AL", "WY"]``; by default all that are there.
    year : int
        Year of the survey, from 2014.
    horizon : {"1-Year", "5-Year"}
        Which survey.
    sensitive : {"SEX", "RAC1P"} or a sequence of both
        The column that defines the groups; a sequence gives intersections such as
        ``"Male & Asian"``. These columns are not among the features.

    Returns
    -------
    Dataset
        Ages, years of schooling (``SCHL``, in order), hours, minutes and dollars are numbers; other
        columns are pandas categories of the survey's codes. What doesn't apply to a person is
        missing.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fairdial.datasets import load_acs
    >>> lines = [
    ...     "AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP,PWGTP",
    ...     "52,6,16,1,4710,1,0,60,1,1,81000,20",
    ...     "23,1,17,1,5400,1,1,40,2,6,24000,31",
    ...     "12,,8,5,,1,2,,2,6,,14",  # a child isn't part of the task
    ... ]
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "psam_p56.csv").write_text("\n".join(lines))
    ...     load_acs(folder, states=["WY"])
    Dataset('acs-income', 2 rows, 9 columns, groups: Female 1, Male 1)
    """
    chosen = TASKS[check_choice(task, "task", tuple(TASKS))]
    columns = sensitive_columns(sensitive, tuple(GROUPS))
    check_choice(horizon, "horizon", HORIZONS)
    check_count(year, "year", least=FIRST_YEAR)
    if states is not None:
        _check_states(states)
    path = _find_parquet(Path(root), task)
    if path.suffix == ".parquet":
        table, known = _read_task(path, chosen, states)
        preparation = f"rows of the task {task} as they are in {path.name}"
    else:
        table, known = _read_survey(path, chosen, states, year, horizon)
        preparation = f"the {horizon.lower()} survey of {year}; rows of folktables' task {task}"
    if not len(table):
        raise InvalidInputError("root", f"hold rows of the task {task}", given="none")
    label = table[chosen.target]
    y = label if label.dtype == np.bool_ else chosen.positive(label)
    return Dataset(
        X=_features(table, [name for name in chosen.features if name not in columns]),
        y=y.to_numpy(dtype=np.int64),
        groups=pd.DataFrame({name: _group_names(table[name], name) for name in columns}),
        name=f"acs-{task.replace('_', '-')}",
        label=chosen.label,
        source=ACS.source,
        license=ACS.license,
        preparation=f"{preparation}; {known}",
    )


def _find_parquet(path: Path, task: str) -> Path:
    """Return the only Parquet file of a task in a folder, or the path itself."""
    found = sorted(path.glob(f"acs{task.replace('_', '')}*.parquet")) if path.is_dir() else []
    return found[0] if len(found) == 1 else path


def _check_states(states: Sequence[str]) -> None:
    """Refuse what isn't a sequence of distinct states."""
    given = [states] if isinstance(states, str) else list(states)
    unknown = [state for state in given if state not in CODES]
    if isinstance(states, str) or not given or unknown or len(set(given)) < len(given):
        raise InvalidInputError(
            "states", "be different states by their two letters, such as ['AL', 'WY']",
            given=repr(states),
        )  # fmt: skip


def _read_survey(
    root: Path, task: Task, states: Sequence[str] | None, year: int, horizon: str
) -> tuple[pd.DataFrame, str]:
    """Return the rows of a task from the survey's files, and which states they are from."""
    folder = root / str(year) / horizon
    folder = folder if folder.is_dir() else root
    paths = {state: folder / _file_name(state, year) for state in states or CODES}
    there = {state: path for state, path in paths.items() if path.is_file()}
    missing = [state for state in states or () if state not in there]
    if missing or not there:
        state = missing[0] if missing else "AL"
        raise InvalidInputError(
            "root",
            f"have {Path(str(year)) / horizon / _file_name(state, year)}",
            given=f"{root}: {what_is_at(root)}",
            hint=f"Download the person files from {ADDRESS}.",
        )
    wanted = {*task.features, task.target, *task.filtered}
    parts = [_read_state(path, wanted, task) for path in there.values()]
    named = "all states" if len(there) == len(CODES) else f"states: {', '.join(there)}"
    return pd.concat(parts, ignore_index=True), named


def _file_name(state: str, year: int) -> str:
    if year >= RENAMED:
        return f"psam_p{CODES[state]}.csv"
    return f"ss{year % 100}p{state.lower()}.csv"


def _read_state(path: Path, wanted: Iterable[str], task: Task) -> pd.DataFrame:
    """Return the rows of a task from one state's file."""
    columns = set(wanted)
    try:
        header = pd.read_csv(path, nrows=0).columns
        _require(columns, header, path)
        table = pd.read_csv(path, usecols=sorted(columns), dtype=np.float64, na_values=[" ", ""])
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError("root", f"have a table of numbers in {path.name}",
                                given=str(error)) from error  # fmt: skip
    return table[task.eligible(table)]


def _read_task(path: Path, task: Task, states: Sequence[str] | None) -> tuple[pd.DataFrame, str]:
    """Return the rows of a task that somebody has prepared, and which states they are from."""
    require_extra("pyarrow", "reading Parquet files", "large")
    from pyarrow import ArrowException, parquet

    wanted = [*task.features, task.target]
    try:
        header = parquet.read_schema(path).names
        _require(wanted, header, path)
        has_states = "ST" in header
        table = pd.read_parquet(path, columns=[*dict.fromkeys([*wanted, *["ST"] * has_states])])
    except (OSError, ArrowException) as error:
        raise InvalidInputError(
            "root", "be a Parquet file of one task", given=f"{path}: {error}"
        ) from error
    if table[task.target].dtype != np.bool_:
        raise InvalidInputError(
            "root",
            f"have the target {task.target} as true or false in a Parquet file",
            given=str(table[task.target].dtype),
        )
    if states is not None:
        found = set(table["ST"].unique()) if has_states else set()
        absent = [state for state in states if state not in found]
        if absent:
            raise InvalidInputError(
                "states", f"be in the column ST of {path.name}", given=", ".join(absent)
            )
        table = table[table["ST"].isin(states)]
    named = "states as in the file" if states is None else f"states: {', '.join(states)}"
    return table.reset_index(drop=True), named


def _require(columns: Iterable[str], header: Iterable[str], path: Path) -> None:
    missing = sorted(set(columns) - set(header))
    if missing:
        raise InvalidInputError(
            "root",
            f"have the columns {', '.join(missing)} in {path.name}",
            given="a file without them",
        )


def _features(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return numbers as they are and codes as categories."""
    X = {}
    for name in names:
        column = table[name]
        if name in NUMBERS:
            X[name] = column.astype(np.float64)
        elif column.dtype.kind in "iuf":
            codes = column.astype("Int64")
            X[name] = codes.astype("string").astype(object).astype("category")
        else:
            X[name] = column.astype(object).astype("category")
    return pd.DataFrame(X)


def _group_names(column: pd.Series, name: str) -> pd.Series:
    """Return the groups' names instead of the survey's codes."""
    named = column.map(GROUPS[name])
    if named.isna().any():
        raise InvalidInputError(
            "root",
            f"have the codes 1 to {len(GROUPS[name])} in {name}",
            given=repr(column[named.isna()].iloc[0]),
        )
    return named


ACS = register_dataset(
    DatasetInfo(
        name="acs-income",
        load=load_acs,
        description="Census records: who earned more than 50,000 dollars a year.",
        source=(
            "US Census Bureau, American Community Survey, public-use microdata; tasks of Ding, "
            "Hardt, Miller and Schmidt (2021), Retiring Adult"
        ),
        license="public-use microdata of the US Census Bureau",
        groups="women and men",
        label="an income above 50,000 dollars a year",
        needs_folder=True,
    )
)
