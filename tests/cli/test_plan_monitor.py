"""``fairdial plan`` and ``fairdial monitor``: the library's plan and watch on tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fairdial import InvalidInputError, plan_calibration
from fairdial.cli import main
from fairdial.core.anytime import Watch


def ask(*arguments: Any, code: int = 0) -> str:
    found = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert found.exit_code == code, found.output
    return found.stdout


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b", "c"], 12_000)
    rates = {"a": 0.2, "b": 0.25, "c": 0.45}
    chosen = rng.random(12_000) < pd.Series(groups).map(rates).to_numpy()
    y = rng.integers(0, 2, 12_000)
    frame = pd.DataFrame({"g": groups, "decision": np.where(chosen, "yes", "no"), "y": y})
    path = tmp_path_factory.mktemp("log") / "log.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_plan_is_that_of_the_library(log: Path) -> None:
    frame = pd.read_csv(log)
    asked = ("--sensitive", "g", "--tolerance", 0.1, "--label", "decision", "--positive", "yes")
    found = json.loads(ask("plan", log, *asked, "--json"))
    expected = plan_calibration(frame["g"], (frame["decision"] == "yes").astype(int), tolerance=0.1)
    assert found["share"] == expected.share
    assert found["needed"] == expected.needed
    assert [line["held_out"] for line in found["groups"]] == expected.held_out.tolist()
    assert "--calibration" in ask("plan", log, *asked)
    tight = json.loads(ask("plan", log, "--sensitive", "g", "--tolerance", 0.001, "--json"))
    assert tight["share"] is None
    assert tight["needed"] > 1_000_000
    none = json.loads(ask("plan", log, "--sensitive", "g", "--tolerance", 1e-7, "--json"))
    assert none["needed"] is None


def test_more_rows_certify_smaller_tolerances() -> None:
    smallest = []
    for rows in (300, 3000, 30_000):
        groups = np.repeat(["a", "b", "c"], [rows, 3 * rows, 2 * rows])
        plan = plan_calibration(groups, tolerance=0.1, rate=0.3)
        smallest.append(plan.smallest if plan.share is None else 0.1)
        assert (plan.share is None) == (plan.smallest > 0.1)
        if plan.share is not None:
            assert plan.needed is not None
            assert plan.needed > plan.held_out.min() or plan.scarce == ()
    assert smallest == sorted(smallest, reverse=True)


def test_as_many_rows_of_each_group_as_a_plan_needs_are_enough() -> None:
    for n_groups, tolerance in ((2, 0.05), (5, 0.1)):
        names = [f"group {i}" for i in range(n_groups)]
        scarce = plan_calibration(np.repeat(names, 100), tolerance=tolerance)
        assert scarce.needed is not None
        assert scarce.scarce == tuple(names)
        for extra, enough in ((0, True), (-2, False)):
            groups = np.repeat(names, 2 * (scarce.needed + extra))
            plan = plan_calibration(groups, tolerance=tolerance)
            assert (plan.share is not None) == enough
            assert (plan.scarce == ()) == enough


def test_one_group_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        plan_calibration(["a"] * 100, tolerance=0.1)
    assert caught.value.argument == "groups"


def test_rows_are_numbered_as_in_the_file(log: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(log)
    asked = ("--sensitive", "g", "--decision", "decision", "--tolerance", 0.1, "--json")
    plain = json.loads(ask("monitor", log, *asked, code=1))
    assert plain["alarm_row"] == plain["alarm"]
    assert plain["positive"] == "yes"
    gaps = pd.concat([frame.iloc[:5].assign(g=None), frame])  # five rows are left out
    gaps["at"] = np.arange(len(gaps))
    row = plain["alarm"] + 5
    for order, number in ((1, row), (-1, len(gaps) - row + 1)):
        gaps[::order].to_csv(tmp_path / "log.csv", index=False)
        found = json.loads(ask("monitor", tmp_path / "log.csv", *asked, "--time", "at", code=1))
        assert found["alarm"] == plain["alarm"]
        assert found["alarm_row"] == number
        assert found["alarm_time"] == str(row - 1)


def test_an_alarm_is_that_of_the_watch(log: Path) -> None:
    frame = pd.read_csv(log)
    codes, selected = (
        pd.factorize(frame["g"], sort=True)[0],
        (frame["decision"] == "yes").to_numpy(),
    )
    asked = ("monitor", log, "--sensitive", "g", "--decision", "decision")
    found = json.loads(ask(*asked, "--tolerance", 0.1, "--json", code=1))
    assert found["alarm"] == Watch(3, 0.1).update(codes, selected).alarm
    worst = max(found["pairs"], key=lambda pair: pair["evidence"])
    assert (worst["higher"], worst["lower"]) == ("c", "a")
    low, high = found["gap_interval"]
    assert 0.1 < low < found["gap"] < high
    calm = json.loads(ask(*asked, "--tolerance", 0.4, "--json"))
    assert calm["alarm"] is None
    some = ("--label", "y", "--eligible", 1, "--tolerance", 0.4, "--json")
    assert json.loads(ask(*asked, *some))["rows"] == int((frame["y"] == 1).sum())


def test_unknown_columns_and_values_are_refused(log: Path) -> None:
    asked = ("monitor", log, "--sensitive", "g", "--tolerance", 0.1)
    ask(*asked, "--decision", "nothing", code=2)
    ask(*asked, "--decision", "decision", "--positive", "maybe", code=2)
    ask(*asked, "--decision", "decision", "--label", "y", code=2)
    ask("plan", log, "--sensitive", "nothing", "--tolerance", 0.1, code=2)


def test_rows_are_ordered_by_numbers_or_dates(log: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(log)
    hours = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(len(frame)), "h")
    frame["when"] = hours.strftime("%d %B %Y %H:%M")  # not in the order of the alphabet
    frame["number"] = np.arange(len(frame))
    shuffled = tmp_path / "shuffled.csv"
    frame.sample(frac=1, random_state=0).to_csv(shuffled, index=False)
    asked = ("--sensitive", "g", "--decision", "decision", "--tolerance", 0.1, "--json")
    there = json.loads(ask("monitor", log, *asked, code=1))
    for column in ("when", "number"):
        found = json.loads(ask("monitor", shuffled, *asked, "--time", column, code=1))
        assert found["alarm"] == there["alarm"]
    ask("monitor", shuffled, *asked, "--time", "g", code=2)
