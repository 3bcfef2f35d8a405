"""``fairdial calibrate``: the same scorer, the frontier of other rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fairdial
from fairdial.cli.model_rows import read_rows


def calibrated(model: Path, data: Path, *, labels: bool = True) -> Any:
    """The model, calibrated by Python."""
    found = fairdial.load(model)
    rows = read_rows(found, data, label="decision")
    return found.calibrate(rows.X, rows.table["decision"] if labels else None)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_frontier_is_that_of_python(
    kind: str, crossed: Path, place: Path, tmp_path: Path, answer: Any
) -> None:
    data, before = place / f"new.{kind}", fairdial.load(crossed)
    result = answer("calibrate", crossed, data, "--out", tmp_path / "m")
    found, own = fairdial.load(tmp_path / "m"), calibrated(crossed, data)
    assert found.frontier_.to_json() == own.frontier_.to_json()
    assert found.frontier_.to_json() != before.frontier_.to_json()
    assert result["hash"] == found.model_hash_
    assert result["calibration_rows"] == 700
    assert result["labels"] is True
    for line in result["frontier"]:
        if line["feasible"]:
            assert line["accuracy"] == own.frontier_.at(line["tolerance"]).accuracy
    assert fairdial.load(crossed).model_hash_ == before.model_hash_


def test_in_place_replaces_the_frontier(
    model: Path, place: Path, tmp_path: Path, shell: Any
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    shell("calibrate", copy, place / "new.csv", "--in-place")
    assert fairdial.load(copy).frontier_.counts.sum() == 700
    assert fairdial.load(copy).tolerance == 0.1


def test_demographic_parity_needs_no_labels(
    model: Path, place: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    new.drop(columns="decision").to_csv(tmp_path / "unlabelled.csv", index=False)
    found = shell("calibrate", model, tmp_path / "unlabelled.csv", "--out", tmp_path / "m")
    assert "'decision'" in found.stderr
    own = calibrated(model, place / "new.csv", labels=False)
    assert fairdial.load(tmp_path / "m").frontier_.to_json() == own.frontier_.to_json()
    assert " - " in found.stdout  # no accuracy


def test_other_criteria_do(crossed: Path, tmp_path: Path, new: pd.DataFrame, refused: Any) -> None:
    new.drop(columns="decision").to_csv(tmp_path / "unlabelled.csv", index=False)
    given = ("calibrate", crossed, tmp_path / "unlabelled.csv", "--out", "m")
    refused(*given, option="DATA", names=("equal_opportunity", "'decision'"))


def test_labels_that_are_there_need_not_be_used(
    model: Path, crossed: Path, place: Path, tmp_path: Path, answer: Any, refused: Any
) -> None:
    result = answer("calibrate", model, place / "new.csv", "--no-labels", "--out", tmp_path / "m")
    assert result["labels"] is False
    own = calibrated(model, place / "new.csv", labels=False)
    assert fairdial.load(tmp_path / "m").frontier_.to_json() == own.frontier_.to_json()
    given = ("calibrate", crossed, place / "new.csv", "--no-labels", "--out", tmp_path / "n")
    refused(*given, option="--no-labels", names=("equal_opportunity",))


def test_labels_may_stand_in_another_column(
    model: Path, place: Path, tmp_path: Path, new: pd.DataFrame, answer: Any, refused: Any
) -> None:
    new.rename(columns={"decision": "outcome"}).to_csv(tmp_path / "other.csv", index=False)
    answer("calibrate", model, tmp_path / "other.csv", "--label", "outcome", "--out",
           tmp_path / "m")  # fmt: skip
    own = calibrated(model, place / "new.csv")
    assert fairdial.load(tmp_path / "m").frontier_.to_json() == own.frontier_.to_json()
    given = ("calibrate", model, tmp_path / "other.csv", "--out", tmp_path / "n")
    refused(*given, "--label", "outcom", option="--label", names=("Did you mean 'outcome'?",))


SCORES = ["--in-place", "--scores", "s", "--group", "region"]


@pytest.mark.parametrize(
    ("given", "option", "name"),
    [
        ([], "--out", "--in-place"),
        (["--in-place", "--out", "x"], "--out", "both"),
        (["--in-place", "--scores", "margin", "--group", "region"], "--scores", "'logit'"),
        (["--in-place", "--scores", "s"], "--scores", "--group"),
        (["--in-place", "--label", "x", "--no-labels"], "--label", "--no-labels"),
        ([*SCORES, "--drop-missing"], "--drop-missing", "--scores"),
        ([*SCORES, "--sensitive", "region"], "--sensitive", "--scores"),
        ([*SCORES, "--encoding", "latin-1"], "--encoding", "--scores"),
    ],
)
def test_options_that_contradict_each_other(
    given: list[str], option: str, name: str, model: Path, place: Path, refused: Any
) -> None:
    refused("calibrate", model, place / "new.csv", *given, option=option, names=(name,))


# ---- scores in Parquet -------------------------------------------------------------------------


def test_scores_are_streamed_into_the_frontier_of_their_counts(
    model: Path, place: Path, tmp_path: Path, answer: Any
) -> None:
    found = fairdial.load(model)
    rows = read_rows(found, place / "new.parquet", label="decision")
    scored = rows.table[["region", "decision"]].assign(logit=found.logits(rows.X))
    scored.to_parquet(tmp_path / "scored.parquet")
    result = answer("calibrate", model, tmp_path / "scored.parquet", "--scores", "logit", "--group",
                  "region", "--label", "decision", "--out", tmp_path / "m")  # fmt: skip
    own = found.calibrate_parquet(
        tmp_path / "scored.parquet", score="logit", group="region", label="decision"
    )
    assert fairdial.load(tmp_path / "m").frontier_.to_json() == own.frontier_.to_json()
    assert result["calibration_rows"] == 700


def test_predict_writes_scores_that_calibrate_reads(
    model: Path, place: Path, tmp_path: Path, answer: Any
) -> None:
    answer("predict", model, place / "new.parquet", "--tolerance", 0.05, "--id", "region", "--out",
           tmp_path / "scored.parquet")  # fmt: skip
    found = fairdial.load(model)
    X = read_rows(found, place / "new.parquet").X
    logits = pd.read_parquet(tmp_path / "scored.parquet")["logit"]
    assert np.array_equal(logits, found.logits(X))
    result = answer("calibrate", model, tmp_path / "scored.parquet", "--scores", "logit", "--group",
                  "region", "--out", tmp_path / "m")  # fmt: skip
    assert result["labels"] is False
    assert result["frontier"][-1]["gap"] == pytest.approx(
        calibrated(model, place / "new.parquet", labels=False).frontier_.gap[0]
    )


@pytest.mark.parametrize(("name", "option"), [("new.parquet", "--scores"), ("new.csv", "DATA")])
def test_files_without_scores_are_refused(
    name: str, option: str, model: Path, place: Path, tmp_path: Path, refused: Any
) -> None:
    given = ("--scores", "logit", "--group", "region", "--out", tmp_path / "m")
    line = refused("calibrate", model, place / name, *given, option=option)
    assert not line.endswith("..")


# ---- groups ------------------------------------------------------------------------------------


def test_a_column_of_other_groups_does_not_replace_the_frontier(
    model: Path, place: Path, tmp_path: Path, refused: Any, answer: Any
) -> None:
    copy, scored = tmp_path / "copy", tmp_path / "scored.parquet"
    shutil.copytree(model, copy)
    answer("predict", copy, place / "new.csv", "--id", "region", "--out", scored)
    given = ("--scores", "logit", "--group", "decision", "--in-place")
    refused("calibrate", copy, scored, *given, option="--group", names=("'north'", "'approve'"))
    assert fairdial.load(copy).frontier_.groups == ("north", "south")


def test_rows_that_lack_a_group_do_not_replace_the_frontier(
    model: Path, tmp_path: Path, new: pd.DataFrame, refused: Any
) -> None:
    copy, part = tmp_path / "copy", tmp_path / "part.csv"
    shutil.copytree(model, copy)
    new[new["region"] == "north"].to_csv(part, index=False)
    refused("calibrate", copy, part, "--in-place", option="DATA", names=("'south'",))
    assert fairdial.load(copy).frontier_.groups == ("north", "south")


def test_an_additional_group_draws_a_warning(
    model: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    path = tmp_path / "more.csv"
    more = new.assign(region=new["region"].where(new.index % 3 > 0, "west"))
    more.to_csv(path, index=False)
    found = shell("calibrate", model, path, "--out", tmp_path / "m")
    assert [line for line in found.stderr.splitlines() if "Warning: " in line and "'west'" in line]
    assert fairdial.load(tmp_path / "m").frontier_.groups == ("north", "south", "west")


def test_a_small_group_is_refused_and_a_misspelled_name_suggested(
    model: Path, tmp_path: Path, new: pd.DataFrame, refused: Any
) -> None:
    path, slip = tmp_path / "slip.csv", new["region"].where(new.index != 4, "Nroth")
    given = ("calibrate", model, path, "--out", tmp_path / "m")
    new.assign(region=slip).to_csv(path, index=False)
    refused(*given, option="DATA", names=("'Nroth'", "Did you mean 'north'?"))
    few = pd.concat([new[new["region"] == "north"], new[new["region"] == "south"][:7]])
    few.to_csv(path, index=False)
    assert "Did you mean" not in refused(*given, option="DATA", names=("7", "'south'"))
    assert not (tmp_path / "m").exists()
