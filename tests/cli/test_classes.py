"""The command line with more than two classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import fairdial
from fairdial.cli import main
from fairdial.metrics import gap

NAMES = np.array(["high", "low", "middle"])


def draw(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    people = pd.DataFrame(rng.normal(size=(n, 2)), columns=["age", "score"])
    people["sex"] = rng.choice(["f", "m"], n)
    people["age"] += 0.5 * (people["sex"] == "m")
    scores = np.column_stack([people["age"], people["score"], np.full(n, 0.5)])
    people["pay"] = NAMES[(2 * scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]
    return people


def run(*arguments: object, code: int = 0) -> Any:
    done = CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("classes")
    draw(1500, 0).to_csv(place / "people.csv", index=False)
    draw(800, 1).to_csv(place / "new.csv", index=False)
    train = ["train", place / "people.csv", "--label", "pay", "--sensitive", "sex"]
    train += ["--method", "logistic", "--tolerance", "0.1", "--out", place / "model", "--json"]
    result = json.loads(run(*train).stdout)
    assert result["classes"] == NAMES.tolist()
    assert result["positive"] is None
    return place


def test_predict_writes_classes(folder: Path) -> None:
    out = folder / "decided.csv"
    given = ["predict", folder / "model", folder / "new.csv", "--out", out, "--overwrite", "--json"]
    result = json.loads(run(*given).stdout)
    found, new = pd.read_csv(out), pd.read_csv(folder / "new.csv")
    model = fairdial.load(folder / "model")
    assert np.array_equal(found["decision"], model.predict(new.drop(columns="pay"), tolerance=0.1))
    assert result["decided"] == found["decision"].value_counts().to_dict()
    values = np.sort(model.decision_function(new.drop(columns="pay"), tolerance=0.1), axis=1)
    assert np.allclose(found["margin"], values[:, -1] - values[:, -2])


def test_evaluate_measures_every_class(folder: Path) -> None:
    given = ["evaluate", folder / "model", folder / "new.csv", "--tolerance", "0.1"]
    result = json.loads(run(*given, "--json").stdout)
    new, model = pd.read_csv(folder / "new.csv"), fairdial.load(folder / "model")
    decided = model.predict(new.drop(columns="pay"), tolerance=0.1)
    assert result["accuracy"] == pytest.approx((decided == new["pay"]).mean())
    assert result["gap"] == gap(new["pay"], decided, sensitive_features=new["sex"])
    low, high = result["gap_interval"]
    assert low <= result["gap"] <= high
    assert {(line["class"], line["group"]) for line in result["groups"]} == {
        (name, sex) for name in NAMES for sex in "fm"
    }
    for line in result["groups"]:
        rows = new["sex"] == line["group"]
        assert line["selection_rate"] == pytest.approx((decided[rows] == line["class"]).mean())
    assert "high" in run(*given).stdout
    new.drop(columns="pay").to_csv(folder / "unlabeled.csv", index=False)
    result = json.loads(
        run("evaluate", folder / "model", folder / "unlabeled.csv", "--json").stdout
    )
    assert result["accuracy"] is None


def test_dial_and_info_show_the_classes(folder: Path) -> None:
    result = json.loads(run("dial", folder / "model", "--tolerance", "0.05", "--json").stdout)
    assert result["gap"] <= 0.05
    assert [line["demand"] for line in result["demands"]] == [
        f"selection_rate in {name}" for name in NAMES
    ]
    assert sum(line["balance"] for line in result["moved"]) == 0
    text = run("dial", folder / "model", "--from", "0.2", "--bound").stdout
    assert all(name in text for name in NAMES)
    assert json.loads(run("info", folder / "model", "--json").stdout)["classes"] == NAMES.tolist()
    assert "middle" in run("info", folder / "model").stdout


def test_calibrate_takes_other_rows_and_another_criterion(folder: Path) -> None:
    given = ["calibrate", folder / "model", folder / "new.csv", "--out", folder / "again"]
    given += ["--criterion", "equal_opportunity", "--overwrite", "--json"]
    result = json.loads(run(*given).stdout)
    assert result["calibration_rows"] == 800
    assert {line["demand"] for line in result["demands"]} == {
        f"true_positive_rate in {name}" for name in NAMES
    }


def test_positive_combines_the_other_classes(folder: Path) -> None:
    train = ["train", folder / "people.csv", "--label", "pay", "--sensitive", "sex"]
    train += ["--method", "logistic", "--positive", "high", "--out", folder / "two", "--json"]
    assert json.loads(run(*train).stdout)["positive"] == "high"


@pytest.mark.parametrize("more", [["--blind"], ["--method", "gfb"], ["--calibration", "auto"]])
def test_what_needs_two_values_is_refused(folder: Path, more: list[str]) -> None:
    train = ["train", folder / "people.csv", "--label", "pay", "--sensitive", "sex"]
    train += ["--tolerance", "0.1", "--out", folder / "none", *more]
    assert run(*train, code=2).stderr


def test_exports_pages_reports_and_servers_say_what_they_need(folder: Path) -> None:
    for given in (
        ["export", folder / "model", "--sql", folder / "rule.sql"],
        ["export", folder / "model", "--onnx", folder / "model.onnx"],
        ["export", folder / "model", "--html", folder / "page.html"],
        ["report", folder / "model", "--out", folder / "report.html"],
        ["serve", folder / "model", "--read-only"],
    ):
        assert "two classes" in run(*given, code=2).stderr
