"""Tables from users' files: layouts, labels, groups, checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fairdial import InvalidInputError
from fairdial.datasets import (
    DATASETS,
    Dataset,
    load_credit_default,
    load_dutch_census,
    load_kdd_census,
    load_law_school,
    own_tables,
)
from fairdial.datasets.own_tables import CREDIT_NUMBERS, DUTCH_COLUMNS, KDD_COLUMNS

NAMES = ("kdd-census", "dutch-census", "law-school", "credit-default")
LAW = "decile1b,decile3,lsat,ugpa,zfygpa,zgpa,fulltime,fam_inc,male"
ARFF = "% a comment\n@relation r\n{}\n@data\n\n{}\n"


def kdd_row(sex: str, income: str) -> str:
    values = dict.fromkeys(KDD_COLUMNS, "0") | {"education": "Masters", "race": "White"}
    return ", ".join((values | {"sex": sex, "father_birth": "?", "income": income}).values())


def arff(columns: str, *rows: str) -> str:
    return ARFF.format("\n".join(f"@attribute {c} {{1,2}}" for c in columns.split(",")),
                       "\n".join(rows))  # fmt: skip


def write(folder: Path, name: str, *lines: str) -> Path:
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def test_kdd_census_joins_both_files(tmp_path: Path) -> None:
    write(tmp_path, "census-income.data", kdd_row("Female", "- 50000."), kdd_row("Male", "50000+."))
    write(tmp_path, "census-income.test", kdd_row("Male", "- 50000."))
    data = load_kdd_census(tmp_path)
    assert (data.y.tolist(), data.groups.tolist()) == ([0, 1, 0], ["Female", "Male", "Male"])
    assert {"sex", "instance_weight", "year", "income"}.isdisjoint(data.X)
    assert data.X["age"].dtype == np.float64
    assert data.X["father_birth"].tolist() == ["?"] * 3
    assert load_kdd_census(tmp_path, sensitive=["race", "sex"]).groups[0] == "White & Female"


def test_dutch_census_is_the_same_in_both_layouts(tmp_path: Path) -> None:
    codes = ["6", "1131", "112", "1", "1", "1", "5", "111", "135", "1"]
    csv = write(tmp_path, "dutch.csv", ",".join(DUTCH_COLUMNS),
                ",".join(["male", *codes, "1"]), ",".join(["female", *codes, "0"]))  # fmt: skip
    columns = ",".join(DUTCH_COLUMNS).replace("marital", "Marital")
    rows = ",".join(["1", *codes, "2_1"]), ",".join(["2", *codes, "5_4_9"])
    other = write(tmp_path, "dutch_census_2001.arff", arff(columns, *rows))
    one, two = load_dutch_census(csv), load_dutch_census(other)
    assert one.X.equals(two.X)
    assert one.y.tolist() == two.y.tolist() == [1, 0]
    assert one.groups.tolist() == two.groups.tolist() == ["male", "female"]
    assert "NOT" in one.describe()


def test_law_school_is_the_same_in_both_layouts(tmp_path: Path) -> None:
    start = "9.00,7.00,46.00,2.90,1.02,0.30,1.00,4.00"
    csv = write(tmp_path, "law_school_clean.csv", f"{LAW},tier,race,pass_bar",
                f"{start},1.0,3.0,White,1.0", f"{start},0.0,4.0,Non-White,0.0")  # fmt: skip
    text = arff(f"{LAW},racetxt,tier,pass_bar", f"{start},1.00,1,3,1", f"{start},0.00,0,4,0")
    other = write(tmp_path, "law_dataset.arff", text)
    one, two = load_law_school(csv), load_law_school(other)
    assert one.X.equals(two.X)
    assert one.y.tolist() == two.y.tolist() == [1, 0]
    assert one.groups.tolist() == two.groups.tolist() == ["White", "Non-White"]
    by_sex = load_law_school(csv, sensitive="sex")
    assert by_sex.groups.tolist() == ["Male", "Female"]
    assert "race" in by_sex.X


def test_credit_is_the_same_with_both_headers(tmp_path: Path) -> None:
    names = ["ID", "SEX", "EDUCATION", "MARRIAGE", *CREDIT_NUMBERS, "default payment next month"]
    rows = [",".join(["7", "1", "2", "1", *["5"] * 20, "1"]),
            ",".join(["8", "2", "3", "1", *["-2"] * 20, "0"])]  # fmt: skip
    one = load_credit_default(write(tmp_path, "UCI_Credit_Card.csv", ",".join(names), *rows))
    first = ",".join(["", *(f"X{i}" for i in range(1, 24)), "Y"])
    two = load_credit_default(write(tmp_path, "other.csv", first, ",".join(names), *rows))
    assert one.X.equals(two.X)
    assert one.y.tolist() == two.y.tolist() == [1, 0]
    assert one.groups.tolist() == two.groups.tolist() == ["Male", "Female"]
    assert "ID" not in one.X


def test_a_known_checksum_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ",".join(["male", *["1"] * 10, "1"])
    path = write(tmp_path, "dutch.csv", ",".join(DUTCH_COLUMNS), row, row.replace("male", "female"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(own_tables.CHECKSUMS, "dutch.csv", digest)
    assert "with the known checksum" in load_dutch_census(path).preparation
    assert "NOT" not in load_dutch_census(path).preparation


@pytest.mark.parametrize(
    "load", [load_kdd_census, load_dutch_census, load_law_school, load_credit_default]
)
def test_other_files_are_refused(load: Callable[..., Dataset], tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing.csv", write(tmp_path, "x.csv", "a,b", "1,2")):
        with pytest.raises(InvalidInputError) as caught:
            load(root)
        assert caught.value.argument == "root"


def test_values_without_a_meaning_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "census-income.data", kdd_row("Female", "about 50000"))
    with pytest.raises(InvalidInputError) as caught:
        load_kdd_census(tmp_path)
    assert caught.value.argument == "root"


@pytest.mark.parametrize("name", NAMES)
def test_terms_and_sources_are_known_before_loading(name: str) -> None:
    info = DATASETS[name]
    assert info.needs_folder
    assert info.license
    assert info.source
