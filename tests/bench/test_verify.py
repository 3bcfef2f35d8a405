"""Stored trials can be repeated, and a difference is noticed."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fairdial import InvalidInputError
from fairdial.bench.curves import open_study
from fairdial.bench.plan import read_plan
from fairdial.bench.store import Record, pack
from fairdial.bench.trial import run_trial
from fairdial.bench.verify import compare, draw, verify
from fairdial.cli import main

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "docs" / "results" / "frontier" / "small-1000.toml"
TRAINED = ROOT / "docs" / "results" / "groups"
PLAN = """
title = "small"
datasets = ["gaussian"]
rows = 1000
seeds = [0, 1]

[[methods]]
name = "linear"
estimator = "FairBayes"
scorer = "logistic regression"
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "small.toml"
    path.write_text(PLAN)
    pack(map(run_trial, read_plan(path).trials()), packed(path))
    return path


def packed(path: Path) -> Path:
    return path.with_name(f"{path.stem}.jsonl.xz")


def test_cheap_trials_of_a_committed_study_decide_as_they_did() -> None:
    records = open_study(COMMITTED).records
    cheap = [r for r in records if r["config"]["method"].get("scorer") == "logistic regression"]
    assert len(cheap) >= 2
    drawn = draw(cheap, 2, seed=0)
    for found in verify(drawn):
        if found.other_kernels:  # the last bits of scores differ, and with them a few decisions
            assert not found.problem
            (record,) = (r for r in drawn if r["config"] == found.config)
            for kind, n in found.rows.items():
                assert n < 0.005 * np.sum(record["result"]["rows"][kind]), str(found)
        else:
            assert found.same, str(found)


def test_trained_networks_of_a_committed_study_decide_as_they_did() -> None:
    pytest.importorskip("torch")
    records = open_study(TRAINED).records
    for name in ("FairBayes", "GFB"):
        mine = [r for r in records if r["config"]["method"]["name"] == name]
        (found,) = verify(draw(mine, 1, seed=0))
        if found.other_kernels:  # training amplifies the last bits, but rows stay the same
            for part in ("data", "groups", "rows"):
                assert f"other {part}" not in found.problem, str(found)
        else:
            assert found.same, str(found)


def test_other_linear_algebra_is_named_as_a_possible_reason(study: Path) -> None:
    record = open_study(study).records[0]
    other = copy.deepcopy(record)
    other["result"]["states"]["test"][0][1][0] += 1
    assert not compare(record, other).other_kernels
    other["environment"]["kernels"] = "another"
    assert compare(record, other).other_kernels
    other["result"]["epochs"] = {"kept": [9]}
    longer = copy.deepcopy(record)
    longer["result"]["epochs"] = {"kept": [7]}
    assert compare(longer, other).problem
    assert compare(longer, other).other_kernels
    del record["environment"]["kernels"]
    assert compare(record, record).other_kernels


def test_a_difference_of_one_row_is_a_difference(study: Path) -> None:
    record: Record = open_study(study).records[0]
    assert compare(record, record).same
    assert "no calibration counts" not in str(compare(record, record))
    older = copy.deepcopy(record)
    del older["result"]["states"]["calibration"]
    assert "no calibration counts" in str(compare(older, record))
    for kind in ("test", "calibration"):
        other = copy.deepcopy(record)
        other["result"]["states"][kind][0][1][0] += 1
        found = compare(record, other)
        assert not found.same
        assert found.rows[kind] == 1
        assert f"1 {kind} rows" in str(found)
    fewer = copy.deepcopy(record)
    fewer["result"]["curve"].pop()
    assert not compare(record, fewer).same
    for path, value in (
        (("data",), "0"),
        (("feasible", 0), None),
        (("rows", "train"), 1),
        (("rows", "calibration", 0, 0), 1),
        (("groups", 1), "x"),
        (("epochs",), {"trained": [3]}),
    ):
        older, other = copy.deepcopy(record), copy.deepcopy(record)
        older["result"]["epochs"] = {"trained": [2]}
        place = other["result"]
        place["epochs"] = {"trained": [2], "accuracy": [[0.5]]}
        assert compare(older, other).same  # what the stored record doesn't have isn't compared
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        found = compare(older, other)
        assert not found.same
        assert str(path[0]) in str(found)
    failed = copy.deepcopy(record)
    failed["error"] = "ValueError: no"
    assert not compare(record, failed).same


def test_the_command_says_what_differs_by_its_exit_code(study: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(main, ["bench", "verify", str(study), "--sample", "1"])
    assert done.exit_code == 0, done.output
    records = open_study(study).records
    for record in records:
        record["result"]["states"]["test"][1][0][-1] += 3
    changed = study.with_name("changed.toml")
    changed.write_text(PLAN)
    pack(records, packed(changed))
    done = runner.invoke(main, ["bench", "verify", str(changed), "--jobs", "1", "--sample", "9"])
    assert done.exit_code == 1
    assert "2 differ" in done.output


def test_the_folder_of_a_study_is_verified_too(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "plan.toml").write_text(PLAN)
    pack(open_study(study).records, folder / "records.jsonl.xz")
    assert len(open_study(folder).records) == 2
    with pytest.raises(InvalidInputError, match="`study`"):
        open_study(tmp_path)


def test_a_sample_is_repeated_by_its_seed(study: Path) -> None:
    record = open_study(study).records[0]
    records = [copy.deepcopy(record) for _ in range(20)]
    for seed, trial in enumerate(records):
        trial["config"]["seed"] = seed
    one, again, other = draw(records, 5, 0), draw(records[::-1], 5, 0), draw(records, 5, 1)
    assert one == again
    assert one != other
    assert len(draw(records, None, 0)) == len(records)
