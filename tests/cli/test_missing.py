"""Rows without a label or a group: left out, or given a group that the model keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fairdial
from fairdial.serve.deciding import Decider
from fairdial.serve.records import BadRowError

COMMON = ("--label", "decision", "--positive", "approve", "--drop", "number,half")
LOGISTIC = ("--method", "logistic", "--tolerance", 0.1)
NAME = "not stated"
NAMED = ("--missing-group", NAME)


def with_holes(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The table without every fifth value of these columns, each from another row on."""
    holes = table.copy()
    for start, name in enumerate(columns, start=2):
        holes[name] = holes[name].astype(object).where(np.arange(len(holes)) % 5 != start)
    return holes


def filled(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The same table with a name in those holes."""
    return table.assign(**{name: table[name].where(table[name].notna(), NAME) for name in columns})


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("missing")


@pytest.fixture(scope="module")
def unnamed(here: Path, old: pd.DataFrame, shell: Any) -> Path:
    """A model that was trained on rows of which some lack the region."""
    with_holes(old, "region").to_csv(here / "old.csv", index=False)
    given = ("--sensitive", "region", *LOGISTIC, *NAMED, "--out", here / "model")
    found = shell("train", here / "old.csv", *COMMON, *given)
    assert "320 rows" in found.stderr
    return here / "model"


@pytest.mark.parametrize("groups", [("region",), ("region", "sex")])
def test_it_is_the_model_of_a_table_with_that_name_in_it(
    groups: tuple[str, ...],
    here: Path,
    old: pd.DataFrame,
    new: pd.DataFrame,
    shell: Any,
    answer: Any,
) -> None:
    holes, fresh = with_holes(old, *groups), with_holes(new, *groups)
    for name, table in (("holes", holes), ("fresh", fresh)):
        table.to_csv(here / f"{name}.csv", index=False)
        filled(table, *groups).to_csv(here / f"{name}-named.csv", index=False)
    common = (*COMMON, "--sensitive", ",".join(groups), *LOGISTIC, "--min-count", 10, "--overwrite")
    first = answer("train", here / "holes.csv", *common, *NAMED, "--out", here / "one")
    second = answer("train", here / "holes-named.csv", *common, "--out", here / "two")
    assert first["frontier"] == second["frontier"]
    assert (first["missing_group"], second["missing_group"]) == (NAME, None)
    for model, table in (("one", "fresh"), ("two", "fresh-named")):
        asked = ("predict", here / model, here / f"{table}.csv", "--overwrite", "--out")
        shell(*asked, here / f"{model}.csv")
    assert (here / "one.csv").read_text() == (here / "two.csv").read_text()


def test_every_command_that_takes_rows_knows_the_group(
    unnamed: Path, here: Path, new: pd.DataFrame, shell: Any, answer: Any
) -> None:
    with_holes(new, "region").to_parquet(here / "new.parquet")
    given = ("--id", "region", "--out", here / "scored.parquet")
    shell("predict", unnamed, here / "new.parquet", *given)
    beside = pd.read_parquet(here / "scored.parquet")["region"]
    assert (beside == filled(with_holes(new, "region"), "region")["region"]).all()
    assert {g["group"] for g in answer("evaluate", unnamed, here / "new.parquet")["groups"]} == {
        "north",
        "south",
        NAME,
    }
    again = here / "again"
    shell("calibrate", unnamed, here / "new.parquet", "--out", again)
    assert fairdial.load(again).frontier_.groups == ("north", NAME, "south")
    assert fairdial.load(again).training_["missing_group"] == NAME
    assert answer("info", again)["missing_group"] == NAME


def numbered(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(region=(table["region"] == "north").astype(int))


def test_numbers_beside_the_name_are_texts_that_all_commands_share(
    here: Path, old: pd.DataFrame, new: pd.DataFrame, shell: Any
) -> None:
    with_holes(numbered(old), "region").to_csv(here / "numbers.csv", index=False)
    given = ("--sensitive", "region", *LOGISTIC, *NAMED, "--out", here / "numbers")
    shell("train", here / "numbers.csv", *COMMON, *given)
    assert fairdial.load(here / "numbers").frontier_.groups == ("0", "1", NAME)
    holes = with_holes(numbered(new), "region")
    for table in (numbered(new), holes, holes.assign(region=holes["region"].astype(float))):
        table.to_csv(here / "n.csv", index=False)
        asked = ("--id", "region", "--out", here / "n.parquet", "--overwrite")
        shell("predict", here / "numbers", here / "n.csv", *asked)
        assert set(pd.read_parquet(here / "n.parquet")["region"]) <= {"0", "1", NAME}
    scored = (here / "n.parquet", "--scores", "logit", "--group", "region")
    shell("calibrate", here / "numbers", *scored, "--out", here / "numbers again")
    assert fairdial.load(here / "numbers again").frontier_.groups == ("0", "1", NAME)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (("true", "false"), ("False", "True")),
        (("1.50", "2.0"), ("1.5", "2")),
        (("1", "-2"), ("-2", "1")),
        (("07", "x"), ("07", "x")),
        (("1.0", "NA"), ("1.0", "NA")),
    ],
)
def test_a_model_decides_on_the_file_that_it_was_trained_on_and_on_parts_of_it(
    values: tuple[str, str],
    names: tuple[str, str],
    here: Path,
    old: pd.DataFrame,
    shell: Any,
    answer: Any,
) -> None:
    named = old.assign(region=np.where(old["region"] == "north", *values))
    holes = with_holes(named, "region")
    holes.to_csv(here / "own.csv", index=False)
    given = ("--sensitive", "region", *LOGISTIC, *NAMED, "--overwrite", "--out", here / "own")
    shell("train", here / "own.csv", *COMMON, *given)
    assert set(fairdial.load(here / "own").frontier_.groups) == {*names, NAME}
    one = holes[holes["region"] != values[1]]
    for part in (holes, named, one, one.dropna(subset="region")):
        part.to_csv(here / "part.csv", index=False)
        found = answer("evaluate", here / "own", here / "part.csv")["groups"]
        assert sum(group["rows"] for group in found) == len(part)


WORDS = ("NA", "None", "null")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("more", [NAMED, ("--drop-missing",)])
def test_only_what_is_empty_is_missing_and_any_word_is_a_group(
    word: str, more: tuple[str, ...], here: Path, old: pd.DataFrame, shell: Any, answer: Any
) -> None:
    def named(table: pd.DataFrame) -> pd.DataFrame:
        return with_holes(table.assign(region=table["region"].replace("south", word)), "region")

    for kind in ("csv", "parquet"):
        path, model, again = (here / f"words{end}" for end in (f".{kind}", "", " again"))
        named(old).to_csv(path, index=False) if kind == "csv" else named(old).to_parquet(path)
        given = ("--sensitive", "region", *LOGISTIC, *more, "--overwrite", "--out", model)
        found = shell("train", path, *COMMON, *given)
        assert "320 rows" in found.stderr
        assert f"Warning: 'region' has the group '{word}'" in found.stderr
        expected = {"north", word} | ({NAME} if more == NAMED else set())
        assert set(fairdial.load(model).frontier_.groups) == expected
        rows = named(old) if more == NAMED else named(old).dropna(subset="region")
        rows.to_csv(here / "rows.csv", index=False)
        groups = answer("evaluate", model, here / "rows.csv")["groups"]
        assert {group["group"] for group in groups} == expected
        shell("predict", model, here / "rows.csv", "--out", here / "words.csv", "--overwrite")
        shell("calibrate", model, here / "rows.csv", "--out", again, "--overwrite")
        assert set(fairdial.load(again).frontier_.groups) == expected


def test_a_word_may_be_the_name_of_the_missing_group(
    here: Path, old: pd.DataFrame, shell: Any
) -> None:
    holes = with_holes(old, "region")
    holes.to_csv(here / "word.csv", index=False, na_rep="NA")
    holes.to_csv(here / "empty.csv", index=False)
    found = {}
    for name in ("word", "empty"):
        given = ("--sensitive", "region", *LOGISTIC, "--missing-group", "NA", "--out", here / name)
        assert "Warning" not in shell("train", here / f"{name}.csv", *COMMON, *given).stderr
        found[name] = fairdial.load(here / name).frontier_
    assert found["word"].groups == ("NA", "north", "south")
    assert found["word"].to_json() == found["empty"].to_json()


def test_a_word_among_numbers_is_a_missing_group(
    here: Path, old: pd.DataFrame, shell: Any, refused: Any
) -> None:
    table = numbered(old)
    table.to_csv(here / "plain.csv", index=False)
    given = ("--sensitive", "region", *LOGISTIC, "--overwrite", "--out", here / "plain")
    shell("train", here / "plain.csv", *COMMON, *given)
    table.assign(region=table["region"].astype(object).where(table.index != 7)).to_csv(
        here / "odd.csv", index=False, na_rep="NA"
    )
    given = ("predict", here / "plain", here / "odd.csv", "--out", "-")
    refused(*given, option="DATA", names=("1 row", "data row 8"))


def test_numbers_stay_whole_where_rows_are_left_out(
    here: Path, old: pd.DataFrame, new: pd.DataFrame, shell: Any
) -> None:
    def coded(table: pd.DataFrame) -> pd.DataFrame:
        return numbered(table).assign(decision=(table["decision"] == "approve").astype(int))

    with_holes(coded(old), "decision", "region").to_csv(here / "coded.csv", index=False)
    given = ("--label", "decision", "--positive", 1, "--drop", "number,half", *LOGISTIC)
    groups = ("--sensitive", "region,sex", "--drop-missing", "--out", here / "coded")
    shell("train", here / "coded.csv", *given, *groups)
    model = fairdial.load(here / "coded")
    assert all(group.split(" & ")[0] in ("0", "1") for group in model.frontier_.groups)
    assert model.classes_.tolist() == [0, 1]
    coded(new).to_csv(here / "whole.csv", index=False)
    shell("predict", here / "coded", here / "whole.csv", "--out", here / "coded-decided.csv")
    assert set(pd.read_csv(here / "coded-decided.csv", dtype=str)["decision"]) == {"0", "1"}


def test_a_name_that_exists_already_is_noted(here: Path, old: pd.DataFrame, shell: Any) -> None:
    with_holes(old, "region").to_csv(here / "there.csv", index=False)
    given = ("--sensitive", "region", *LOGISTIC, "--missing-group", "north", "--out", here / "n")
    found = shell("train", here / "there.csv", *COMMON, *given)
    assert "'north', which exists already" in found.stderr


def test_rows_are_left_out_and_counted(
    here: Path, old: pd.DataFrame, shell: Any, answer: Any
) -> None:
    holes = with_holes(old, "decision", "region")
    holes.to_csv(here / "both.csv", index=False)
    whole = holes.dropna(subset=["decision", "region"])
    whole.to_csv(here / "whole.csv", index=False)
    common = (*COMMON, "--sensitive", "region", *LOGISTIC, "--overwrite", "--out")
    first = answer("train", here / "both.csv", *common, here / "left", "--drop-missing")
    second = answer("train", here / "whole.csv", *common, here / "right")
    assert (first["rows"], first["frontier"]) == (len(whole), second["frontier"])
    given = ("train", here / "both.csv", *common, here / "left", "--drop-missing")
    assert "640 rows without 'decision' or 'region'" in shell(*given).stderr
    found = shell(*given, *NAMED).stderr
    assert "320 rows without 'region'" in found
    assert "320 rows without 'decision'" in found


def test_rows_that_are_left_out_make_no_difference_to_the_others(
    model: Path, here: Path, new: pd.DataFrame, shell: Any, answer: Any
) -> None:
    holes = with_holes(new, "decision", "region")
    holes.to_csv(here / "gaps.csv", index=False)
    holes.dropna(subset=["decision", "region"]).to_csv(here / "rest.csv", index=False)
    given = ("gaps.csv", "--drop-missing"), ("rest.csv",)
    one, two = (answer("evaluate", model, here / name, *more) for name, *more in given)
    assert one == two
    one, two = (
        answer("calibrate", model, here / name, *more, "--overwrite", "--out", here / "again")
        for name, *more in given
    )
    assert (one["calibration_rows"], one["frontier"]) == (420, two["frontier"])
    found = shell("evaluate", model, here / "gaps.csv", "--drop-missing").stderr
    assert found.startswith("280 rows without 'decision' or 'region'")
    given = ("--drop-missing", "--no-labels", "--overwrite", "--out", here / "again")
    found = shell("calibrate", model, here / "gaps.csv", *given).stderr
    assert found.startswith("140 rows without 'region'")  # no label is needed


def test_every_command_says_what_to_do_about_missing_values(
    model: Path, crossed: Path, here: Path, new: pd.DataFrame, refused: Any
) -> None:
    with_holes(new, "region").to_csv(here / "ungrouped.csv", index=False)
    with_holes(new, "decision").to_csv(here / "unlabeled.csv", index=False)
    facts, out = ("140 rows", "data row 3"), ("--out", here / "never.csv")
    predict = refused("predict", model, here / "ungrouped.csv", *out, option="DATA", names=facts)
    assert "--drop-missing" not in predict
    for command, *more in (("evaluate",), ("calibrate", *out)):
        for data in ("ungrouped.csv", "unlabeled.csv"):
            given = (command, model, here / data, *more)
            refused(*given, option="DATA", names=(*facts, "--drop-missing"))
    for folder, needed in ((model, False), (crossed, True)):
        given = ("calibrate", folder, here / "unlabeled.csv", *out)
        assert ("--no-labels" not in refused(*given, option="DATA")) == needed


def test_numbers_of_rows_are_those_of_the_file(here: Path, old: pd.DataFrame, refused: Any) -> None:
    holes = with_holes(old, "decision")
    holes.loc[9, "income"] = np.inf
    holes.to_csv(here / "infinite.csv", index=False)
    given = ("--sensitive", "region", *LOGISTIC, "--drop-missing", "--out", here / "never")
    names = ("'income'", "data row 10")
    refused("train", here / "infinite.csv", *COMMON, *given, option="DATA", names=names)


def test_a_server_takes_rows_without_a_group_for_it(unnamed: Path, model: Path) -> None:
    served = Decider(fairdial.load(unnamed))
    assert served.codes(["north", None, "south", NAME]).tolist() == [0, 1, 2, 1]
    with pytest.raises(BadRowError):
        Decider(fairdial.load(model)).codes(["north", None])
