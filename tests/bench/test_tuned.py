"""A study keeps the tuned values that it started with."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fairdial import InvalidInputError
from fairdial.bench.curves import open_study
from fairdial.bench.plan import make_plan
from fairdial.bench.store import Store
from fairdial.bench.tuned import keep_tuned, read_study_plan, tuned_path, write_tuned
from fairdial.cli import main
from fairdial.paper import presets

pytest.importorskip("torch")

PLAN = """
title = "small"
datasets = ["compas"]
rows = 600
seeds = [0]
settings = 2

[[methods]]
name = "net"
estimator = "FairBayes"
settings = "paper"
network = { epochs = 1, hidden = [4], head = 4 }

[[methods]]
name = "lines"
estimator = "FairBayes"
scorer = "logistic regression"
"""


def entry(rate: float) -> dict[str, Any]:
    return {"arguments": {}, "network": {"learning_rate": rate}, "tuning": {"rows": None}}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library's tuned values, in a file of the test; to be changed with :func:`tune`."""
    file = tmp_path / "library.json"
    monkeypatch.setattr(presets, "TUNED", file)
    tune(file, 0.01)
    return file


def tune(file: Path, rate: float) -> None:
    write_tuned(file, {"compas": {"fairbayes": entry(rate), "gfb": entry(rate)}, "adult": {}})
    presets.read_chosen.cache_clear()


def test_records_still_belong_to_their_study_after_the_next_tuning(
    library: Path, tmp_path: Path
) -> None:
    file, out, shell = tmp_path / "given.toml", tmp_path / "out", CliRunner()
    file.write_text(PLAN)
    command = ["bench", "run", str(file), "--out", str(out), "--jobs", "1"]
    done = shell.invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "tuned.json" not in done.output
    stored = json.loads((out / "tuned.json").read_text())
    assert stored["chosen"] == {"compas": {"fairbayes": entry(0.01)}}  # what the plan uses
    before = sorted((out / "records").iterdir())
    tune(library, 0.02)
    done = shell.invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "tuned.json" in done.stderr
    assert sorted((out / "records").iterdir()) == before
    assert open_study(out).complete
    done = shell.invoke(main, ["bench", "status", "--out", str(out), "--json"])
    assert json.loads(done.output)["done"] == 2
    done = shell.invoke(main, ["bench", "report", "--out", str(out), "--markdown"])
    assert "incomplete" not in (out / "report" / "report.md").read_text()
    (out / "tuned.json").unlink()
    assert len(open_study(out).missing) == 1  # the library's values are used
    Store(out / "records").pack()
    for name in ("plan.toml", "records.jsonl.xz"):
        (out / name).rename(tmp_path / name.replace("plan", "one").replace("records", "one"))
    (tmp_path / "one.tuned.json").write_text(json.dumps(stored))
    assert open_study(tmp_path / "one.toml").complete


def test_what_was_not_tuned_stays_so(library: Path, tmp_path: Path) -> None:
    library.write_text('{"chosen": {}}')
    presets.read_chosen.cache_clear()
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    plan = make_plan(tomllib.loads(PLAN))
    kept = keep_tuned(plan, path)
    tune(library, 0.01)
    assert kept.trials() == read_study_plan(path).trials() != plan.trials()
    assert "tuned" not in kept.trials()[0]["method"]


def test_a_plan_without_tuned_settings_stores_none(tmp_path: Path) -> None:
    plan = make_plan(tomllib.loads(PLAN.replace('"paper"', '"release"')))
    assert keep_tuned(plan, tmp_path / "plan.toml") == plan
    assert not tuned_path(tmp_path / "plan.toml").exists()


def test_the_values_are_no_part_of_a_plan_and_must_be_json(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="tuned"):
        make_plan(tomllib.loads(PLAN) | {"tuned": {}})
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    tuned_path(path).write_text("{")
    with pytest.raises(InvalidInputError, match=r"tuned\.json"):
        read_study_plan(path)
