"""Models from Python that got their groups apart: --sensitive names the column."""

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
    result = answer("evaluate", folder, place / "new.csv", *given)
    assert result["accuracy"] == (decisions == new["decision"]).mean()
    assert [line["group"] for line in result["groups"]] == list(model.frontier_.groups)
    shell("calibrate", folder, place / "new.csv", *given, "--in-place")
    model.calibrate(X, new["decision"], sensitive_features=groups)
    assert fairdial.load(folder).frontier_.to_json() == model.frontier_.to_json()


def test_a_feature_may_be_the_group(
    old: pd.DataFrame, new: pd.DataFrame, tmp_path: Path, answer: Any, refused: Any
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
    refused(*given, "--out", "-", option="DATA", names=("'east'",))


def test_labels_without_a_name_need_the_option(
    old: pd.DataFrame, place: Path, tmp_path: Path, answer: Any, shell: Any
) -> None:
    trained(old, old["region"], tmp_path / "m", y=old["decision"].to_numpy())
    given = ("evaluate", tmp_path / "m", place / "new.csv", "--sensitive", "region")
    assert "--label" in shell(*given).stderr
    assert answer(*given, "--label", "decision")["accuracy"] > 0.5


def test_without_the_option_it_is_asked_for(
    old: pd.DataFrame, place: Path, tmp_path: Path, refused: Any
) -> None:
    trained(old, old["region"], tmp_path / "m")
    for name, *more in (("predict", "--out", "-"), ("evaluate",), ("calibrate", "--in-place")):
        given = (name, tmp_path / "m", place / "new.csv", *more)
        refused(*given, option="--sensitive", names=("sensitive_column=",))
        hint = ("Did you mean 'region'?",)
        refused(*given, "--sensitive", "regoin", option="--sensitive", names=hint)


def test_a_model_that_knows_its_columns_takes_no_others(
    model: Path, crossed: Path, place: Path, refused: Any, answer: Any
) -> None:
    for folder, own in ((model, "region"), (crossed, "region,sex")):
        given = ("evaluate", folder, place / "new.csv")
        assert answer(*given, "--sensitive", own) == answer(*given)
        refused(*given, "--sensitive", "job", option="--sensitive", names=(repr(own), "'job'"))


def test_groups_of_numbers_are_found_where_rows_are_left_out(
    old: pd.DataFrame, new: pd.DataFrame, tmp_path: Path, answer: Any
) -> None:
    trained(old, old["children"], tmp_path / "m", ["half"])
    holes = new.assign(children=new["children"].where(np.arange(len(new)) % 3 > 0))
    holes.to_csv(tmp_path / "new.csv", index=False)
    given = ("evaluate", tmp_path / "m", tmp_path / "new.csv", "--sensitive", "children")
    assert answer(*given, "--drop-missing")["rows"] == holes["children"].notna().sum()
