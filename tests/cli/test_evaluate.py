"""``fairdial evaluate``: the library's metrics on the model's decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fairdial
from fairdial.cli.model_rows import read_rows
from fairdial.confidence import gap_interval, rate_interval
from fairdial.metrics import gap, group_table


@pytest.mark.parametrize("name", ["model", "crossed"])
@pytest.mark.parametrize("wish", [None, 0.05])
def test_figures_are_those_of_the_metrics(
    name: str, wish: float | None, place: Path, answer: Any, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(name)
    given = () if wish is None else ("--tolerance", wish)
    told = answer("evaluate", folder, place / "new.csv", *given)
    found = fairdial.load(folder)
    rows = read_rows(found, place / "new.csv", "decision")
    table = rows.table
    decisions = found.predict(rows.X, tolerance=wish)
    groups = table["region"] if name == "model" else table[["region", "sex"]]
    about = {"sensitive_features": groups, "pos_label": "approve"}
    frame = group_table(table["decision"], decisions, **about)
    right = int((decisions == table["decision"]).sum())
    assert told["rows"] == 700
    assert told["accuracy"] == right / 700
    assert told["accuracy_interval"] == list(rate_interval(right, 700))
    assert told["gap"] == gap(table["decision"], decisions, criterion=found.criterion, **about)
    assert [line["group"] for line in told["groups"]] == frame.index.tolist()
    for column in frame:
        assert [line[column] for line in told["groups"]] == frame[column].tolist()
    chosen = decisions == "approve"
    assert sum(line["selected"] for line in told["groups"]) == chosen.sum()
    counts = table["decision"] == "approve" if name == "crossed" else table["number"].notna()
    names = groups if name == "model" else groups["region"] + " & " + groups["sex"]
    totals = counts.groupby(names).sum().tolist()
    hits = (counts & chosen).groupby(names).sum().tolist()
    assert told["gap_interval"] == list(gap_interval(hits, totals))
    assert told["tolerance"] == (found.tolerance if wish is None else wish)
    assert told["within_tolerance"] == (told["gap"] <= told["tolerance"])


@pytest.mark.parametrize(
    ("wish", "verdict", "words"),
    [
        (1.0, "within", "within the tolerance 1 on these rows, and within it in the population."),
        (0.3, "undecided", "on these rows; too few rows to say for the population."),
    ],
)
def test_the_verdict_is_what_the_interval_allows(
    wish: float, verdict: str, words: str, model: Path, place: Path, answer: Any, shell: Any
) -> None:
    told = answer("evaluate", model, place / "new.csv", "--tolerance", wish)
    low, high = told["gap_interval"]
    assert told["verdict"] == verdict
    assert (high <= wish) if verdict == "within" else (low <= wish < high)
    assert words in shell("evaluate", model, place / "new.csv", "--tolerance", wish).stdout


def test_a_gap_that_is_plainly_too_large_is_said_to_be(
    model: Path, tmp_path: Path, new: pd.DataFrame, answer: Any
) -> None:
    apart = new.assign(income=(new["region"] == "north") * 8.0 - 4.0)
    apart.to_csv(tmp_path / "apart.csv", index=False)
    told = answer("evaluate", model, tmp_path / "apart.csv")
    assert told["verdict"] == "above"
    assert told["gap_interval"][0] > 0.1


def test_a_lower_level_makes_narrower_intervals(model: Path, place: Path, answer: Any) -> None:
    wide, narrow = (
        answer("evaluate", model, place / "new.csv", "--level", level) for level in (0.99, 0.5)
    )
    for name in ("gap_interval", "accuracy_interval"):
        assert wide[name][0] <= narrow[name][0] < narrow[name][1] < wide[name][1]


def test_without_labels_the_gap_of_demographic_parity_is_told(
    model: Path, crossed: Path, place: Path, tmp_path: Path, new: pd.DataFrame, answer: Any,
    shell: Any,
) -> None:  # fmt: skip
    path = tmp_path / "unlabelled.csv"
    new.drop(columns="decision").to_csv(path, index=False)
    told, full = (answer("evaluate", model, data) for data in (path, place / "new.csv"))
    assert told["accuracy"] is None
    assert told["gap"] == full["gap"]
    assert told["gap_interval"] == full["gap_interval"]
    assert set(told["groups"][0]) == {"group", "rows", "selected", "selection_rate"}
    assert "must have labels" in shell("evaluate", crossed, path, code=2).stderr


def test_groups_that_are_not_in_the_rows_are_told(
    crossed: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    new[new["sex"] == "F"].to_csv(tmp_path / "half.csv", index=False)
    found = shell("evaluate", crossed, tmp_path / "half.csv")
    assert "DATA has no rows of 'north & M', 'south & M' that count" in found.stdout


@pytest.mark.parametrize("wish", [0.05, 1.0])
def test_a_gap_that_cannot_be_seen_is_never_said_to_be_within(
    wish: float, model: Path, tmp_path: Path, new: pd.DataFrame, answer: Any, shell: Any
) -> None:
    path = tmp_path / "north.csv"
    new[new["region"] == "north"].to_csv(path, index=False)
    told = answer("evaluate", model, path, "--tolerance", wish)
    assert told["missing_groups"] == ["south"]
    assert told["gap"] is None
    assert told["within_tolerance"] is None
    assert told["verdict"] == "undecided"
    rate = told["groups"][0]["selection_rate"]
    assert told["gap_interval"][0] == 0.0
    assert told["gap_interval"][1] > max(rate, 1 - rate)  # whatever the other group's rate is
    text = shell("evaluate", model, path, "--tolerance", wish).stdout
    assert "gap is not known" in text
    assert "DATA has no rows of 'south' that count" in text
    assert "population" not in text


def test_groups_that_are_there_can_show_that_the_gap_is_too_large(
    crossed: Path, tmp_path: Path, new: pd.DataFrame, answer: Any, shell: Any
) -> None:
    path = tmp_path / "three.csv"
    rows = new[(new["region"] == "north") | (new["sex"] == "F")]
    rows = rows.assign(income=(rows["region"] == "north") * 8.0 - 4.0)
    rows.to_csv(path, index=False)
    told = answer("evaluate", crossed, path)
    assert told["missing_groups"] == ["south & M"]
    assert (told["verdict"], told["within_tolerance"]) == ("above", False)
    assert "show that it is above it in the population" in shell("evaluate", crossed, path).stdout


def test_a_group_without_rows_that_count_is_missing(
    crossed: Path, tmp_path: Path, new: pd.DataFrame, answer: Any
) -> None:
    path = tmp_path / "denied.csv"
    gone = (new["region"] == "south") & (new["sex"] == "F") & (new["decision"] == "approve")
    new[~gone].to_csv(path, index=False)
    told = answer("evaluate", crossed, path, "--tolerance", 1)
    assert told["missing_groups"] == ["south & F"]
    assert told["verdict"] == "undecided"


def test_a_certified_position_is_said_to_be_one(model: Path, place: Path, shell: Any) -> None:
    given = ("evaluate", model, place / "new.csv", "--tolerance", 0.25)
    told = "The position is that of tolerance 0.25 with confidence 0.9."
    assert told in shell(*given, "--confidence", 0.9).stdout
    assert "The position is" not in shell(*given).stdout


def test_a_position_for_any_tolerance_is_evaluated_and_said_to_be_one(
    model: Path, crossed: Path, place: Path, answer: Any, shell: Any
) -> None:
    given = ("evaluate", model, place / "new.csv", "--tolerance", 0.3, "--confidence", 0.9)
    told, words = "with confidence 0.9 for any tolerance.", "with confidence 0.9. "
    assert told in shell(*given, "--simultaneous").stdout
    assert words in shell(*given).stdout
    found = fairdial.load(model)
    rows = read_rows(found, place / "new.csv", "decision")
    table = rows.table
    point = found.frontier_.at(0.3, confidence=0.9, simultaneous=True)
    limits = table["region"].map(dict(zip(point.groups, point.thresholds, strict=True)))
    chosen = int((found.logits(rows.X) > limits).sum())
    one, whole = answer(*given), answer(*given, "--simultaneous")
    assert sum(line["selected"] for line in whole["groups"]) == chosen
    assert whole["gap"] < one["gap"]
    assert (one["simultaneous"], whole["simultaneous"]) == (False, True)
    four = ("evaluate", crossed, place / "new.csv", "--tolerance", 0.7)
    assert told in shell(*four, "--confidence", 0.9).stdout  # of more than two groups always
    assert answer(*four)["simultaneous"] is None


def test_values_that_are_no_labels_are_named(
    model: Path, tmp_path: Path, new: pd.DataFrame, shell: Any
) -> None:
    path = tmp_path / "other.csv"
    new.assign(decision=new["decision"].where(new.index != 3, "perhaps")).to_csv(path, index=False)
    found = shell("evaluate", model, path, code=2)
    told = "DATA must hold 'deny' or 'approve' in 'decision', as in training, got 'perhaps' in data"
    assert f"{told} row 4.\n" in found.stderr
    new.assign(decision=new["decision"].where(new.index != 3)).to_csv(path, index=False)
    found = shell("evaluate", model, path, code=2)
    told = "DATA must hold a label in every row of 'decision', got 1 row without (first: data row "
    assert f"{told}4). --drop-missing leaves those rows out.\n" in found.stderr
