"""``fairdial report``: the report of a folder and a table is that of Python."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import fairdial
from fairdial.serve.audit import AuditLog


def test_figures_are_those_of_evaluate_and_info(shell, answer, model, place, tmp_path):
    out = tmp_path / "report.json"
    shell("report", model, place / "new.csv", "--out", out, "--quiet")
    facts = json.loads(out.read_text("utf-8"))
    found = answer("evaluate", model, place / "new.csv")
    here = facts["rows"]["here"]
    assert (here["gap"], here["accuracy"]) == (found["gap"], found["accuracy"])
    assert here["gap_interval"] == found["gap_interval"]
    assert facts["rows"]["verdict"] == found["verdict"]
    known = answer("info", model)
    assert facts["model"]["hash"] == known["hash"]
    assert facts["model"]["features"] == known["features"]
    assert facts["model"]["sees_group"] is known["scorer_sees_group"]
    assert [group["name"] for group in facts["groups"]] == ["north", "south"]


def test_the_same_command_writes_the_same_bytes(shell, model, place, tmp_path):
    named = ("--people", "north=northerners", "--label-names", "denied", "granted")
    pages = []
    for name in ("one", "two"):
        out = tmp_path / f"{name}.html"
        shell("report", model, place / "new.csv", "--name", "Loans", *named, "--out", out)
        pages.append(out.read_bytes())
    assert pages[0] == pages[1]
    assert b"northerners" in pages[0]
    assert b"granted" in pages[0]


def test_the_log_beside_the_model_is_read(shell, place, tmp_path):
    loaded = fairdial.load(place / "model")
    loaded.save(tmp_path / "served")
    log = AuditLog(tmp_path / "served.audit.sqlite", create=True)
    log.append(tolerance=0.3, who="Ann", reason="policy 7", model="abc")
    log.close()
    out = tmp_path / "report.json"
    shell("report", tmp_path / "served", "--out", out, "--quiet")
    facts = json.loads(out.read_text("utf-8"))
    assert facts["setting"]["tolerance"] == 0.3
    assert facts["history"]["entries"][0]["who"] == "Ann"
    assert facts["rows"] is None


def test_intersections_and_other_criteria_have_a_report(shell, crossed, narrow, place, tmp_path):
    for name, folder in (("crossed", crossed), ("narrow", narrow)):
        out = tmp_path / f"{name}.html"
        shell("report", folder, place / "new.parquet", "--out", out)
        assert "<svg" in out.read_text("utf-8")


def test_rows_that_are_left_out_are_counted(shell, model, place, tmp_path):
    table = pd.read_csv(place / "new.csv")
    table.loc[:4, "region"] = None
    table.to_csv(tmp_path / "some.csv", index=False)
    out = tmp_path / "report.json"
    shell("report", model, tmp_path / "some.csv", "--out", out, code=2)
    shell("report", model, tmp_path / "some.csv", "--drop-missing", "--out", out)
    assert json.loads(out.read_text("utf-8"))["rows"]["left_out"] == 5


@pytest.mark.parametrize(
    ("more", "option"),
    [
        (("--out", "report.txt"), "--out"),
        (("--out", "report.html", "--label", "decision"), "--label"),
        (("--out", "report.html", "--confidence", "0.95"), "--confidence"),
        (("--out", "report.html", "--people", "east=x"), "--people"),
    ],
)
def test_mistakes_name_the_option(refused, model, tmp_path, monkeypatch, more, option):
    monkeypatch.chdir(tmp_path)
    refused("report", model, *more, option=option)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_replaced_only_with_overwrite(shell, refused, model, tmp_path):
    out = tmp_path / "report.html"
    shell("report", model, "--out", out)
    refused("report", model, "--out", out, option="--out")
    shell("report", model, "--out", out, "--overwrite")
