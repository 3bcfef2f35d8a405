"""Models from Python that were given their groups apart: the command line is told the column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import FairBayes

FEATURES = ["children", "half"]


def trained(
    table: pd.DataFrame, groups: Any, folder: Path, features: Any = FEATURES, y: Any = None
) -> Any:
    """A model that was saved from Python."""
    model = FairBayes(LogisticRegression(), tolerance=0.2, pos_label="approve", random_state=0)
    model.fit(table[features], table["decision"] if y is None else y, sensitive_features=groups)
    model.save(folder)
    return fairdial.load(folder)


@pytest.mark.filterwarnings("ignore::fairdial.errors.BiasedScoresWarning")
@pytest.mark.parametrize("columns", ["region", ["region", "sex"], "children"])
def test_every_command_decides_as_python_does(
    columns: Any,
    old: pd.DataFrame,
    new: pd.DataFrame,
    place: Path,
    tmp_path: Path,
    shell: Any,
    answer: Any,
) -> None:
    folder, out = tmp_path / "m", tmp_path / "out.csv"
    model = trained(old, old[columns], folder)
    given = ("--sensitive", columns if isinstance(columns, str) else ",".join(columns))
    answer("predict", folder, place / "new.csv", *given, "--out", out)
    X, groups = new[FEATURES], new[columns]
    decisions = model.predict(X, sensitive_features=groups)
    assert pd.read_csv(out)["decision"].tolist() == decisions.tolist()
    told = answer("evaluate", folder, place / "new.csv", *given)
    assert told["accuracy"] == (decisions == new["decision"]).mean()
    assert [line["group"] for line in told["groups"]] == list(model.frontier_.groups)
    shell("calibrate", folder, place / "new.csv", *given, "--in-place")
    model.calibrate(X, new["decision"], sensitive_features=groups)
    assert fairdial.load(folder).frontier_.to_json() == model.frontier_.to_json()


def test_a_feature_may_tell_the_group(
    old: pd.DataFrame, new: pd.DataFrame, tmp_path: Path, answer: Any, shell: Any
) -> None:
    kind = pd.CategoricalDtype(["north", "south"])
    model = FairBayes(HistGradientBoostingClassifier(), pos_label="approve", random_state=0)
    X = old[["income", "region"]].astype({"region": kind})
    model.fit(X, old["decision"], sensitive_features=old["region"]).save(tmp_path / "m")
    new.to_csv(tmp_path / "new.csv", index=False)
    given = ("predict", tmp_path / "m", tmp_path / "new.csv", "--sensitive", "region")
    answer(*given, "--tolerance", 0.1, "--out", tmp_path / "out.csv")
    X = new[["income", "region"]].astype({"region": kind})
    own = model.predict(X, sensitive_features=new["region"], tolerance=0.1)
    assert pd.read_csv(tmp_path / "out.csv")["decision"].tolist() == own.tolist()
    new.assign(region=new["region"].replace("south", "east")).to_csv(given[2], index=False)
    assert "got 'east' in " in shell(*given, "--out", "-", code=2).stderr


def test_labels_without_a_name_are_told_too(
    old: pd.DataFrame, place: Path, tmp_path: Path, answer: Any, shell: Any
) -> None:
    trained(old, old["region"], tmp_path / "m", y=old["decision"].to_numpy())
    given = ("evaluate", tmp_path / "m", place / "new.csv", "--sensitive", "region")
    found = shell(*given).stderr
    assert found == (
        "MODEL doesn't know the column of labels, which --label would name: accuracy isn't known.\n"
    )
    assert answer(*given, "--label", "decision")["accuracy"] > 0.5


def test_without_the_option_both_ways_are_named(
    old: pd.DataFrame, place: Path, tmp_path: Path, shell: Any
) -> None:
    trained(old, old["region"], tmp_path / "m")
    for name, *more in (("predict", "--out", "-"), ("evaluate",), ("calibrate", "--in-place")):
        told = shell(name, tmp_path / "m", place / "new.csv", *more, code=2).stderr
        assert told.startswith("Error: --sensitive must name the column that tells the group: ")
        assert told.endswith("(Trained with sensitive_column= in Python, it does.)\n")
    given = ("--out", "-", "--sensitive", "regoin")
    told = shell("predict", tmp_path / "m", place / "new.csv", *given, code=2).stderr
    assert "--sensitive must be among the columns" in told
    assert "Did you mean 'region'?" in told


def test_a_model_that_knows_its_columns_takes_no_others(
    model: Path, crossed: Path, place: Path, shell: Any, answer: Any
) -> None:
    for folder, own in ((model, "region"), (crossed, "region,sex")):
        given = ("evaluate", folder, place / "new.csv")
        assert answer(*given, "--sensitive", own) == answer(*given)
        told = shell(*given, "--sensitive", "job", code=2).stderr
        assert f"--sensitive must be {own!r}, as in training, or be left out, got 'job'." in told


def test_groups_of_numbers_are_found_where_rows_are_left_out(
    old: pd.DataFrame, new: pd.DataFrame, tmp_path: Path, answer: Any
) -> None:
    trained(old, old["children"], tmp_path / "m", ["half"])
    holes = new.assign(children=new["children"].where(np.arange(len(new)) % 3 > 0))
    holes.to_csv(tmp_path / "new.csv", index=False)
    given = ("evaluate", tmp_path / "m", tmp_path / "new.csv", "--sensitive", "children")
    assert answer(*given, "--drop-missing")["rows"] == holes["children"].notna().sum()
