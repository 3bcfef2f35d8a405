"""Tasks on the American Community Survey, from files in the census's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairdial.datasets import load_acs
from fairdial.datasets.acs import CODES, NUMBERS, TASKS
from fairdial.errors import InvalidInputError

PERSON = {
    "AGEP": 40, "COW": 1, "SCHL": 16, "MAR": 1, "OCCP": 4710, "POBP": 1, "RELP": 0, "WKHP": 40,
    "SEX": 1, "RAC1P": 1, "PINCP": 60_000, "PWGTP": 20, "DIS": 2, "ESP": None, "CIT": 1, "MIG": 1,
    "MIL": 4, "ANC": 1, "NATIVITY": 1, "DEAR": 2, "DEYE": 2, "DREM": 2, "ESR": 1, "ST": 56,
    "FER": None, "PUBCOV": 2, "GCL": None, "JWMNP": 20, "PUMA": 100, "JWTR": 1, "POWPUMA": 100,
    "POVPIP": 400,
}  # fmt: skip


def write(path: Path, *people: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([PERSON | person for person in people]).to_csv(path, index=False)
    return path


def survey(root: Path, *people: dict[str, Any], state: str = "56", year: int = 2018) -> Path:
    write(root / str(year) / "1-Year" / f"psam_p{state}.csv", *people)
    return root


@pytest.mark.parametrize(
    ("task", "people", "labels"),
    [
        (
            "income",
            [{"AGEP": 16}, {"AGEP": 17}, {"PINCP": 100}, {"PINCP": 101}, {"WKHP": 0}, {"WKHP": 1},
             {"PWGTP": 0}, {"PINCP": 50_000}, {"PINCP": 50_001}, {"PINCP": None}, {"WKHP": None}],
            {1: 1, 3: 0, 5: 1, 7: 0, 8: 1},
        ),
        ("employment", [{"ESR": 1}, {"ESR": 2}, {"ESR": None, "AGEP": 3}], {0: 1, 1: 0, 2: 0}),
        (
            "public_coverage",
            [{"AGEP": 64, "PINCP": 30_000, "PUBCOV": 1}, {"AGEP": 65, "PINCP": 0},
             {"PINCP": 30_001}, {"PINCP": -5_000}],
            {0: 1, 3: 0},
        ),
        (
            "mobility",
            [{"AGEP": 18}, {"AGEP": 19}, {"AGEP": 34, "MIG": 3}, {"AGEP": 35}],
            {1: 1, 2: 0},
        ),
        (
            "travel_time",
            [{"JWMNP": 20}, {"JWMNP": 21}, {"ESR": 3}, {"AGEP": 16}, {"PWGTP": 0},
             {"JWMNP": None}],
            {0: 0, 1: 1, 5: 0},
        ),
    ],
)  # fmt: skip
def test_tasks_have_the_rows_and_labels_of_their_definition(
    tmp_path: Path, task: str, people: list[dict[str, Any]], labels: dict[int, int]
) -> None:
    numbered = [person | {"POVPIP": i, "SCHL": i} for i, person in enumerate(people)]
    data = load_acs(survey(tmp_path, *numbered), task=task)
    assert dict(zip(data.X["SCHL"].astype(int), data.y.tolist(), strict=True)) == labels
    assert set(data.X.columns) == set(TASKS[task].features) - {"SEX"}


def test_numbers_stay_numbers_and_codes_become_categories(tmp_path: Path) -> None:
    data = load_acs(survey(tmp_path, {"COW": None}, {"OCCP": 10}), sensitive="RAC1P")
    for name, dtype in data.X.dtypes.items():
        assert isinstance(dtype, pd.CategoricalDtype) == (name not in NUMBERS)
    assert data.X["COW"].isna().tolist() == [True, False]
    assert data.X["OCCP"].tolist() == ["4710", "10"]


def test_groups_have_names_and_intersections(tmp_path: Path) -> None:
    root = survey(tmp_path, {"SEX": 2, "RAC1P": 6}, {"SEX": 1, "RAC1P": 2})
    assert load_acs(root).groups.tolist() == ["Female", "Male"]
    both = load_acs(root, sensitive=["SEX", "RAC1P"])
    assert both.groups.tolist() == ["Female & Asian", "Male & Black"]
    assert not {"SEX", "RAC1P"} & set(both.X.columns)


def test_states_are_read_in_the_layouts_of_both_times(tmp_path: Path) -> None:
    survey(tmp_path, {"AGEP": 30}, state="01")
    survey(tmp_path, {"AGEP": 50}, {"AGEP": 51}, state="56")
    assert load_acs(tmp_path).X["AGEP"].tolist() == [30, 50, 51]
    assert load_acs(tmp_path, states=["WY"]).X["AGEP"].tolist() == [50, 51]
    assert len(load_acs(tmp_path / "2018" / "1-Year")) == 3
    write(tmp_path / "old" / "ss16pal.csv", {"AGEP": 44})
    assert load_acs(tmp_path / "old", year=2016).X["AGEP"].tolist() == [44]
    assert len(CODES) == 52  # the states, the capital and Puerto Rico


def test_a_prepared_parquet_file_gives_the_same_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    people = [
        {"AGEP": int(age), "SEX": int(sex), "PINCP": int(income), "OCCP": int(job)}
        for age, sex, income, job in zip(
            rng.integers(10, 90, 60), rng.integers(1, 3, 60), rng.integers(0, 100_000, 60),
            rng.integers(1, 9_000, 60), strict=True,
        )
    ]  # fmt: skip
    survey(tmp_path, *people[:30], state="01")
    survey(tmp_path, *people[30:], state="56")
    expected = load_acs(tmp_path)
    task, table = TASKS["income"], pd.DataFrame([PERSON | person for person in people])
    table["ST"] = ["AL"] * 30 + ["WY"] * 30
    kept = table[task.eligible(table)]
    kept = kept.assign(PINCP=kept["PINCP"] > 50_000)[[*task.features, "PINCP", "ST"]]
    kept.to_parquet(tmp_path / "income.parquet")
    found = load_acs(tmp_path / "income.parquet")
    pd.testing.assert_frame_equal(found.X, expected.X)
    assert found.y.tolist() == expected.y.tolist()
    assert found.groups.tolist() == expected.groups.tolist()
    one = load_acs(tmp_path / "income.parquet", states=["WY"])
    assert one.y.tolist() == load_acs(tmp_path, states=["WY"]).y.tolist()
    for wrong, argument in (({"states": ["TX"]}, "states"), ({"task": "mobility"}, "root")):
        with pytest.raises(InvalidInputError) as caught:
            load_acs(tmp_path / "income.parquet", **wrong)  # type: ignore[arg-type]
        assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"task": "wealth"}, "task"),
        ({"states": "WY"}, "states"),
        ({"states": ["XX"]}, "states"),
        ({"states": []}, "states"),
        ({"states": ["WY", "WY"]}, "states"),
        ({"states": ["WY", "TX"]}, "root"),
        ({"year": 1990}, "year"),
        ({"year": 2019, "states": ["AL"]}, "root"),
        ({"horizon": "3-Year"}, "horizon"),
        ({"sensitive": "AGEP"}, "sensitive"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, wrong: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        load_acs(survey(tmp_path, {}), **wrong)
    assert caught.value.argument == argument


@pytest.mark.parametrize("text", ["", "AGEP,SEX\n40,1\n", "a,b\n"])
def test_files_without_the_columns_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "psam_p56.csv").write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        load_acs(tmp_path)
    assert caught.value.argument == "root"


def test_other_bad_files_are_refused(tmp_path: Path) -> None:
    def refused(root: Path, **how: Any) -> None:
        with pytest.raises(InvalidInputError) as caught:
            load_acs(root, **how)
        assert caught.value.argument == "root"

    refused(tmp_path / "nowhere")
    refused(survey(tmp_path / "text", {"AGEP": "forty"}))
    refused(survey(tmp_path / "codes", {"SEX": 3}))
    refused(survey(tmp_path / "none", {"AGEP": 3}))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    refused(tmp_path / "broken.parquet")
    refused(tmp_path / "missing.parquet")
