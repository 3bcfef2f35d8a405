"""The benchmarks run, and the page of the studies shows what they print."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairdial.bench.plan import read_plan
from fairdial.bench.store import Store, pack

FOLDER = Path(__file__).parent.parent / "benchmarks"
PLAN = FOLDER.parent / "docs" / "results" / "frontier" / "tables.toml"


@pytest.fixture(autouse=True)
def _beside_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts import what they share from their own folder."""
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.mark.parametrize(
    ("script", "column", "lines"),
    [
        ("dial.py", "rows", {"2,000", "210,000"}),
        (
            "coverage.py",
            "criterion",
            {"demographic_parity", "equal_opportunity", "predictive_equality"},
        ),
        ("monitoring.py", "false alarms", {"watch", "windows of 2,000 rows"}),
        ("blind.py", "dial", {"blind", "with the group"}),
        ("classes.py", "data", {"Adult education"}),
        ("criteria.py", "rule", {"fairdial, sort", "fairdial, histogram"}),
        ("overlap.py", "groups", {"demographic_parity", "equal_opportunity", "equalized_odds"}),
        ("odds.py", "method", {"fairdial", "fairdial, lottery", "fairdial, cross-fitted"}),
        (
            "parquet.py",
            "CPU s",
            {"decoding alone", "one pass", "exact, two passes", "the same counts by DuckDB"},
        ),
        ("train_step.py", "network", {"default, 3 members, batch 256", "paper, COMPAS, batch 32"}),
        ("stacks.py", "method", {"EPO", "FairBiNN"}),
        ("images.py", "step", {"plain training (FairBayes)", "GFB", "loading a batch"}),
        ("serve.py", "request", {"FairBayes, logistic regression"}),
        ("forests.py", "estimator", {"HistGradientBoosting", "LightGBM"}),
        ("groups.py", "CPU ms", {"np.sort", "sweep"}),
        ("commands.py", "peak MB", {"fairdial train", "fairdial predict", "predict, bare"}),
    ],
)
def test_a_benchmark_measures_what_it_is_for(script: str, column: str, lines: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), "--quick"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in done.stdout.splitlines()
        if line.startswith("|")
    ]
    assert any(column in row for row in rows)
    assert lines <= {row[0] for row in rows}
    measured = {row[0] for row in rows if any(cell[:1].isdigit() for cell in row[1:])}
    assert lines <= measured


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / "frontier.py"), str(PLAN), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_packed_records_are_compared_against_any_method(tmp_path: Path) -> None:
    done = compare("--against", "gradient boosting", "--figure", str(tmp_path / "cost.png"))
    assert done.returncode == 0, done.stderr
    lines = {
        cells[1].strip(): [cell.strip() for cell in cells]
        for cells in (line.split("|") for line in reversed(done.stdout.splitlines()))
        if len(cells) > 10  # the long tables; of two, the first
    }
    assert lines["gradient boosting"][5:17] == [""] * 12  # not against itself
    assert lines["single net"][5] == "12"
    assert lines["null: single net again"][11] == "null"
    assert " trials by code" in done.stdout
    assert (tmp_path / "cost.png").stat().st_size > 10_000


def test_noise_is_what_a_null_method_differs_from_its_twin_whatever_the_rival() -> None:
    script = runpy.run_path(str(FOLDER / "frontier.py"))
    study = script["read"](PLAN)
    panel = study.panels[0]
    by_rival = [
        script["compare"]("", study, panel, base).noise
        for base in ("single net", "gradient boosting")
    ]
    twins = script["mean_difference"](
        panel, study.plan.gaps, "null: single net again", "single net"
    )
    assert by_rival == [pytest.approx(abs(float(twins.mean())))] * 2


def test_a_win_needs_three_errors_more_than_noise_and_holms_p() -> None:
    script = runpy.run_path(str(FOLDER / "frontier.py"))
    rng = np.random.default_rng(0)

    def line(mean: float, spread: float) -> Any:
        values = rng.normal(size=12)
        values = mean + spread * (values - values.mean()) / values.std(ddof=1)
        off = script["paired"](values)
        return script["Line"](str(mean), False, {}, off, off, {}, off, off, off, 1.0)

    lines = [line(0.4, 0.1), line(0.4, 0.4), line(-0.4, 0.1), line(0.05, 0.01)]
    shown = script["Shown"]("", None, None, "base", lines, noise=0.1)
    script["decide"]([shown])
    assert [one.wins for one in lines] == [True, False, False, False]
    many = [line(0.1, 0.05) for _ in range(200)]
    script["decide"]([script["Shown"]("", None, None, "base", many)])
    assert not any(one.wins for one in many)  # seven plain errors each, but two hundred of them


def test_failed_trials_are_listed_and_records_may_be_packed_or_not(tmp_path: Path) -> None:
    script = runpy.run_path(str(FOLDER / "frontier.py"))
    config = read_plan(PLAN).trials()[0]
    bad = {"config": config, "code": "0" * 16, "environment": {}, "warnings": [], "error": "broke"}
    (tmp_path / "plan.toml").write_text(PLAN.read_text("utf-8"), "utf-8")
    store = Store(tmp_path / "records")
    store.write(bad)
    assert "failed: single net, broke" in script["show_run"](script["read"](tmp_path))
    pack([bad], tmp_path / "plan.jsonl.xz")
    packed = script["read"](tmp_path / "plan.toml")
    assert "failed: single net, broke" in script["show_run"](packed)


SHOWN = [
    shown
    for document in sorted((FOLDER.parent / "docs").rglob("*.md"))
    for shown in re.findall(
        r"<!-- python benchmarks/frontier.py (.*?) -->\n\n(.*?)\n\n<!-- end -->",
        document.read_text("utf-8"),
        flags=re.DOTALL,
    )
]


@pytest.mark.parametrize(("arguments", "text"), SHOWN, ids=[arguments for arguments, _ in SHOWN])
def test_a_summary_shows_what_the_command_prints(
    arguments: str,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(FOLDER.parent)
    monkeypatch.setattr(sys, "argv", ["frontier.py", *shlex.split(arguments)])
    runpy.run_path(str(FOLDER / "frontier.py"), run_name="__main__")
    assert capsys.readouterr().out.strip() == text


def test_the_summary_shows_every_stored_plan() -> None:
    shown = {Path(name).stem for names, _ in SHOWN for name in re.findall(r"\S+\.toml", names)}
    stored = {path.name.removesuffix(".jsonl.xz") for path in PLAN.parent.glob("*.jsonl.xz")}
    assert shown == stored


def test_an_unknown_method_to_compare_with_is_refused() -> None:
    done = compare("--against", "magic")
    assert done.returncode == 2
    assert "'single net'" in done.stderr
    assert "magic" in done.stderr


# ---- make bench --------------------------------------------------------------------------------

PRINTED = """a machine

Goals at 10 rows:

| result           | goal   | measured | verdict |
| ---------------- | ------ | -------- | ------- |
| ours against one | <= 2x  | 1.5x     | ok      |
| one against ours | >= 10x | 1,200x   | ok      |
| another          | <= 5 s | 6 s      | miss    |
"""


def measured(**values: str) -> list[dict[str, str]]:
    goals = {"slow": "<= 2x", "fast": ">= 10x", "seconds": "<= 5 s"}
    return [{"what": n, "goal": goals[n], "measured": v, "verdict": ""} for n, v in values.items()]


def test_goals_are_read_from_what_a_script_prints() -> None:
    script = runpy.run_path(str(FOLDER / "bench.py"))
    (printed,) = script["parse"](PRINTED)
    assert printed["title"] == "Goals at 10 rows:"
    found = script["goals_of"]("dial", [printed])
    assert [goal["verdict"] for goal in found] == ["ok", "ok", "miss"]
    assert found[1]["what"] == "dial: one against ours"
    assert [script["ratio"](goal["measured"]) for goal in found] == [1.5, 1200.0, None]


def test_only_ratios_that_are_much_worse_count_as_regressions() -> None:
    script = runpy.run_path(str(FOLDER / "bench.py"))
    before = measured(slow="1.0x", fast="20x", seconds="1 s")
    worse = script["regressions"]
    assert worse(measured(slow="1.2x", fast="18x", seconds="9 s"), before) == []
    (slower,) = worse(measured(slow="1.4x", fast="40x"), before)
    assert "slow" in slower
    (lower,) = worse(measured(slow="0.1x", fast="15x"), before)
    assert "fast" in lower
    assert worse(measured(slow="9x"), []) == []  # a new goal


def test_every_script_of_make_bench_exists_and_the_page_shows_the_record() -> None:
    script = runpy.run_path(str(FOLDER / "bench.py"))
    assert all((FOLDER / step.script).is_file() for step in script["STEPS"])
    record = json.loads(script["RECORD"].read_text("utf-8"))
    assert script["write_page"](record) == script["PAGE"].read_text("utf-8")
    for entry in record.values():
        assert entry["tables"] == script["parse"](entry["output"])
