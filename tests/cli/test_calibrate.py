"""``fairdial calibrate``: the same scorer, a dial of other rows."""

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
    rows = read_rows(found, data, "decision")
    return found.calibrate(rows.X, rows.table["decision"] if labels else None)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_dial_is_the_one_that_python_finds(
    kind: str, crossed: Path, place: Path, tmp_path: Path, answer: Any
) -> None:
    data, before = place / f"new.{kind}", fairdial.load(crossed)
    told = answer("calibrate", crossed, data, "--out", tmp_path / "m")
    found, own = fairdial.load(tmp_path / "m"), calibrated(crossed, data)
    assert found.frontier_.to_json() == own.frontier_.to_json()
    assert found.frontier_.to_json() != before.frontier_.to_json()
    assert told["hash"] == found.model_hash_
    assert told["calibration_rows"] == 700
    assert told["labels"] is True
    for line in told["frontier"]:
        if line["feasible"]:
            assert line["accuracy"] == own.frontier_.at(line["tolerance"]).accuracy
    assert fairdial.load(crossed).model_hash_ == before.model_hash_


def test_in_place_replaces_the_dial(model: Path, place: Path, tmp_path: Path, shell: Any) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    shell("calibrate", copy, place / "new.csv", "--in-place")
    assert fairdial.load(copy).frontier_.rows.sum() == 700
    assert fairdial.load(copy).tolerance == 0.1


def test_demographic_parity_needs_no_labels(
    model: Path, place: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    new.drop(columns="decision").to_csv(tmp_path / "unlabelled.csv", index=False)
    found = shell("calibrate", model, tmp_path / "unlabelled.csv", "--out", tmp_path / "m")
    assert "DATA has no labels" in found.stderr
    own = calibrated(model, place / "new.csv", labels=False)
    assert fairdial.load(tmp_path / "m").frontier_.to_json() == own.frontier_.to_json()
    assert " - " in found.stdout  # no accuracy


def test_other_criteria_do(crossed: Path, tmp_path: Path, new: pd.DataFrame, shell: Any) -> None:
    new.drop(columns="decision").to_csv(tmp_path / "unlabelled.csv", index=False)
    found = shell("calibrate", crossed, tmp_path / "unlabelled.csv", "--out", "m", code=2)
    assert "must have labels for equal_opportunity: in a column 'decision'" in found.stderr


def test_labels_that_are_there_need_not_be_used(
    model: Path, crossed: Path, place: Path, tmp_path: Path, answer: Any, shell: Any
) -> None:
    told = answer("calibrate", model, place / "new.csv", "--no-labels", "--out", tmp_path / "m")
    assert told["labels"] is False
    own = calibrated(model, place / "new.csv", labels=False)
    assert fairdial.load(tmp_path / "m").frontier_.to_json() == own.frontier_.to_json()
    given = ("calibrate", crossed, place / "new.csv", "--no-labels", "--out", tmp_path / "n")
    told = shell(*given, code=2).stderr
    assert "--no-labels is for demographic_parity, got a model for equal_opportunity" in told


def test_labels_may_stand_in_another_column(
    model: Path, place: Path, tmp_path: Path, new: pd.DataFrame, answer: Any, shell: Any
) -> None:
    new.rename(columns={"decision": "outcome"}).to_csv(tmp_path / "other.csv", index=False)
    answer("calibrate", model, tmp_path / "other.csv", "--label", "outcome", "--out",
           tmp_path / "m")  # fmt: skip
    own = calibrated(model, place / "new.csv")
    assert fairdial.load(tmp_path / "m").frontier_.to_json() == own.frontier_.to_json()
    found = shell("calibrate", model, tmp_path / "other.csv", "--label", "outcom", "--out",
                  tmp_path / "n", code=2)  # fmt: skip
    assert "--label must be among the columns" in found.stderr
    assert "Did you mean 'outcome'?" in found.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "Either --out or --in-place must be given, got neither."),
        (["--in-place", "--out", "x"], "Either --out or --in-place must be given, got both."),
        (
            ["--in-place", "--scores", "margin", "--group", "region"],
            "must be scores that don't depend on the dial, got 'margin'",
        ),
        (["--in-place", "--scores", "s"], "--scores and --group must be given together"),
        (["--in-place", "--label", "x", "--no-labels"], "--label or --no-labels must be left out"),
        (
            ["--in-place", "--scores", "s", "--group", "region", "--drop-missing"],
            "--drop-missing must be left out with --scores and --group, got it.",
        ),
    ],
)
def test_wishes_that_contradict_each_other(
    given: list[str], told: str, model: Path, place: Path, shell: Any
) -> None:
    assert told in shell("calibrate", model, place / "new.csv", *given, code=2).stderr


# ---- scores in Parquet -------------------------------------------------------------------------


def test_scores_are_streamed_into_the_dial_of_their_counts(
    model: Path, place: Path, tmp_path: Path, answer: Any
) -> None:
    found = fairdial.load(model)
    rows = read_rows(found, place / "new.parquet", "decision")
    scored = rows.table[["region", "decision"]].assign(logit=found.logits(rows.X))
    scored.to_parquet(tmp_path / "scored.parquet")
    told = answer("calibrate", model, tmp_path / "scored.parquet", "--scores", "logit", "--group",
                  "region", "--label", "decision", "--out", tmp_path / "m")  # fmt: skip
    own = found.calibrate_parquet(
        tmp_path / "scored.parquet", score="logit", group="region", label="decision"
    )
    assert fairdial.load(tmp_path / "m").frontier_.to_json() == own.frontier_.to_json()
    assert told["calibration_rows"] == 700


def test_predict_writes_scores_that_calibrate_reads(
    model: Path, place: Path, tmp_path: Path, answer: Any
) -> None:
    answer("predict", model, place / "new.parquet", "--tolerance", 0.05, "--id", "region", "--out",
           tmp_path / "scored.parquet")  # fmt: skip
    found = fairdial.load(model)
    X = read_rows(found, place / "new.parquet").X
    logits = pd.read_parquet(tmp_path / "scored.parquet")["logit"]
    assert np.array_equal(logits, found.logits(X))
    told = answer("calibrate", model, tmp_path / "scored.parquet", "--scores", "logit", "--group",
                  "region", "--out", tmp_path / "m")  # fmt: skip
    assert told["labels"] is False
    assert told["frontier"][-1]["gap"] == pytest.approx(
        calibrated(model, place / "new.parquet", labels=False).frontier_.gap[0]
    )


def test_a_column_that_is_not_in_the_parquet_file_is_named(
    model: Path, place: Path, tmp_path: Path, shell: Any
) -> None:
    found = shell("calibrate", model, place / "new.parquet", "--scores", "logit", "--group",
                  "region", "--out", tmp_path / "m", code=2)  # fmt: skip
    assert "logit" in found.stderr


# ---- groups ------------------------------------------------------------------------------------


def test_a_column_of_other_groups_does_not_replace_the_dial(
    model: Path, place: Path, tmp_path: Path, shell: Any, answer: Any
) -> None:
    copy, scored = tmp_path / "copy", tmp_path / "scored.parquet"
    shutil.copytree(model, copy)
    answer("predict", copy, place / "new.csv", "--id", "region", "--out", scored)
    found = shell("calibrate", copy, scored, "--scores", "logit", "--group", "decision",
                  "--in-place", code=2)  # fmt: skip
    assert "--group must hold rows of every group that the dial knows, got none of 'north', " in (
        found.stderr
    )
    assert fairdial.load(copy).frontier_.groups == ("north", "south")


def test_rows_that_lack_a_group_do_not_replace_the_dial(
    model: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    copy, part = tmp_path / "copy", tmp_path / "part.csv"
    shutil.copytree(model, copy)
    new[new["region"] == "north"].to_csv(part, index=False)
    found = shell("calibrate", copy, part, "--in-place", code=2)
    assert "DATA must hold rows of every group that the dial knows, got none of 'south'" in (
        found.stderr
    )
    assert fairdial.load(copy).frontier_.groups == ("north", "south")


def test_a_group_that_comes_on_top_is_told(
    model: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    path = tmp_path / "more.csv"
    more = new.assign(region=new["region"].where(new.index % 3 > 0, "west"))
    more.to_csv(path, index=False)
    found = shell("calibrate", model, path, "--out", tmp_path / "m")
    assert "Warning: DATA has groups that the dial didn't know: 'west'" in found.stderr
    assert fairdial.load(tmp_path / "m").frontier_.groups == ("north", "south", "west")


def test_a_group_that_is_misspelt_is_not_welcomed(
    model: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    path = tmp_path / "slip.csv"
    new.assign(region=new["region"].where(new.index != 4, "Nroth")).to_csv(path, index=False)
    found = shell("calibrate", model, path, "--out", tmp_path / "m", code=2)
    assert found.stderr.startswith("Error: ")
    assert found.stderr.endswith(" Did you mean 'north'?\n")
    assert "From now on it does" not in found.stderr


def test_advice_names_what_the_command_has(
    model: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    path = tmp_path / "few.csv"
    few = pd.concat([new[new["region"] == "north"], new[new["region"] == "south"][:7]])
    few.to_csv(path, index=False)
    found = shell("calibrate", model, path, "--out", tmp_path / "m", code=2)
    assert (
        "got fewer in 'south' (7). Merge small groups, leave their rows out, or calibrate on "
        in (found.stderr)
    )
    assert not {"`", "min_count", "cv="} & set(found.stderr.split())
    assert "`" not in found.stderr


def test_csv_given_for_scores_is_refused_in_one_sentence(
    model: Path, place: Path, tmp_path: Path, shell: Any
) -> None:
    found = shell("calibrate", model, place / "new.csv", "--scores", "logit", "--group", "region",
                  "--out", tmp_path / "m", code=2)  # fmt: skip
    assert "DATA must hold Parquet files, got" in found.stderr
    assert not found.stderr.rstrip().endswith("..")
