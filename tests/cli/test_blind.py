"""Models on the command line that decide without the group."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fairdial

COMMON = ("--label", "decision", "--positive", "approve", "--drop", "number,half")
BLIND = ("--sensitive", "region", "--method", "logistic", "--tolerance", 0.1, "--blind")


@pytest.fixture(scope="module")
def folder(shell, place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blind") / "model"
    shell("train", place / "old.csv", *COMMON, *BLIND, "--out", folder)
    return folder


def test_rows_to_decide_on_need_no_group(shell, folder, place, tmp_path):
    table = pd.read_csv(place / "new.csv")
    table.drop(columns=["region", "decision"]).to_csv(tmp_path / "new.csv", index=False)
    outs = [tmp_path / "without.csv", tmp_path / "with.csv"]
    for data, out in zip((tmp_path / "new.csv", place / "new.csv"), outs, strict=True):
        shell("predict", folder, data, "--out", out)
    without, given = (pd.read_csv(out) for out in outs)
    assert without.equals(given)
    assert list(without) == ["decision", "margin"]
    model = fairdial.load(folder)
    assert np.array_equal((without["margin"] > 0), without["decision"] == "approve")
    assert model.frontier_.is_blind


def test_evaluation_and_calibration_use_the_true_groups(shell, folder, place, tmp_path):
    done = shell("evaluate", folder, place / "new.csv", "--json")
    assert {line["group"] for line in json.loads(done.stdout)["groups"]} == {"north", "south"}
    other = tmp_path / "other"
    shell("calibrate", folder, place / "new.csv", "--out", other)
    assert fairdial.load(other).frontier_.at(0.1).gap <= 0.1


def test_the_dial_turns(shell, folder):
    done = shell("dial", folder, "--tolerance", 0.2, "--bound", "--json")
    found = json.loads(done.stdout)
    assert found["gap"] <= 0.2
    assert found["bound"] is not None
    for command in (("info", folder), ("dial", folder, "--tolerance", 0.3, "--bound")):
        assert shell(*command).stdout


@pytest.mark.parametrize("option", ["--html", "--onnx", "--thresholds"])
def test_exports_raise(refused, folder, tmp_path, option):
    ends = {"--html": "html", "--onnx": "onnx", "--thresholds": "csv"}
    refused("export", folder, option, tmp_path / f"out.{ends[option]}", option="MODEL")
    assert not list(tmp_path.iterdir())


def test_serving_is_refused(folder):
    from fairdial.serve.deciding import Decider

    with pytest.raises(fairdial.InvalidInputError) as error:
        Decider(fairdial.load(folder))
    assert error.value.argument == "model"


def test_methods_that_see_the_group_take_no_blind(refused, place, tmp_path):
    options = ("--sensitive", "region", "--blind", "--out", tmp_path / "model")
    for method in ("gfb", "epo"):
        command = ("train", place / "old.csv", *COMMON, *options, "--method", method)
        refused(*command, option="--blind", names=(method,))
