"""``fairdial evaluate``: the library's metrics on the model's decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fairdial
from fairdial.cli.model_rows import read_rows
from fairdial.core.certificates import gap_interval, rate_interval
from fairdial.metrics import gap, group_table


@pytest.mark.parametrize("name", ["model", "crossed"])
@pytest.mark.parametrize("tolerance", [None, 0.05])
def test_figures_are_those_of_the_metrics(
    name: str, tolerance: float | None, place: Path, answer: Any, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(name)
    given = () if tolerance is None else ("--tolerance", tolerance)
    result = answer("evaluate", folder, place / "new.csv", *given)
    found = fairdial.load(folder)
    rows = read_rows(found, place / "new.csv", label="decision")
    table = rows.table
    decisions = found.predict(rows.X, tolerance=tolerance)
    groups = table["region"] if name == "model" else table[["region", "sex"]]
    about = {"sensitive_features": groups, "pos_label": "approve"}
    frame = group_table(table["decision"], decisions, **about)
    right = int((decisions == table["decision"]).sum())
    assert result["rows"] == 700
    assert result["accuracy"] == right / 700
    assert result["accuracy_interval"] == list(rate_interval(right, 700))
    assert result["gap"] == gap(table["decision"], decisions, criterion=found.criterion, **about)
    assert [line["group"] for line in result["groups"]] == frame.index.tolist()
    for column in frame:
        assert [line[column] for line in result["groups"]] == frame[column].tolist()
    chosen = decisions == "approve"
    assert sum(line["selected"] for line in result["groups"]) == chosen.sum()
    counts = table["decision"] == "approve" if name == "crossed" else table["number"].notna()
    names = groups if name == "model" else groups["region"] + " & " + groups["sex"]
    totals = counts.groupby(names).sum().tolist()
    hits = (counts & chosen).groupby(names).sum().tolist()
    assert result["gap_interval"] == list(gap_interval(hits, totals))
    assert result["tolerance"] == (found.tolerance if tolerance is None else tolerance)
    assert result["within_tolerance"] == (result["gap"] <= result["tolerance"])


@pytest.mark.parametrize(("tolerance", "verdict"), [(1.0, "within"), (0.3, "undecided")])
def test_the_verdict_is_what_the_interval_allows(
    tolerance: float, verdict: str, model: Path, place: Path, answer: Any
) -> None:
    result = answer("evaluate", model, place / "new.csv", "--tolerance", tolerance)
    low, high = result["gap_interval"]
    assert result["verdict"] == verdict
    assert (high <= tolerance) if verdict == "within" else (low <= tolerance < high)


def test_a_gap_that_is_clearly_too_large_is_above(
    model: Path, tmp_path: Path, new: pd.DataFrame, answer: Any
) -> None:
    apart = new.assign(income=(new["region"] == "north") * 8.0 - 4.0)
    apart.to_csv(tmp_path / "apart.csv", index=False)
    result = answer("evaluate", model, tmp_path / "apart.csv")
    assert result["verdict"] == "above"
    assert result["gap_interval"][0] > 0.1


def test_a_lower_level_makes_narrower_intervals(model: Path, place: Path, answer: Any) -> None:
    wide, narrow = (
        answer("evaluate", model, place / "new.csv", "--level", level) for level in (0.99, 0.5)
    )
    for name in ("gap_interval", "accuracy_interval"):
        assert wide[name][0] <= narrow[name][0] < narrow[name][1] < wide[name][1]


def test_without_labels_the_gap_of_demographic_parity_is_known(
    model: Path, crossed: Path, place: Path, tmp_path: Path, new: pd.DataFrame, answer: Any,
    refused: Any,
) -> None:  # fmt: skip
    path = tmp_path / "unlabelled.csv"
    new.drop(columns="decision").to_csv(path, index=False)
    result, full = (answer("evaluate", model, data) for data in (path, place / "new.csv"))
    assert result["accuracy"] is None
    assert result["gap"] == full["gap"]
    assert result["gap_interval"] == full["gap_interval"]
    assert set(result["groups"][0]) == {"group", "rows", "selected", "selection_rate"}
    refused("evaluate", crossed, path, option="DATA", names=("'decision'",))


@pytest.mark.parametrize("tolerance", [0.05, 1.0])
def test_a_gap_that_cannot_be_seen_is_never_within(
    tolerance: float, model: Path, tmp_path: Path, new: pd.DataFrame, answer: Any, shell: Any
) -> None:
    path = tmp_path / "north.csv"
    new[new["region"] == "north"].to_csv(path, index=False)
    result = answer("evaluate", model, path, "--tolerance", tolerance)
    assert result["missing_groups"] == ["south"]
    assert result["gap"] is None
    assert result["within_tolerance"] is None
    assert result["verdict"] == "undecided"
    rate = result["groups"][0]["selection_rate"]
    assert result["gap_interval"][0] == 0.0
    assert result["gap_interval"][1] > max(rate, 1 - rate)  # whatever the other group's rate is
    text = shell("evaluate", model, path, "--tolerance", tolerance).stdout
    assert "'south'" in text
    assert "population" not in text


def test_groups_that_are_there_can_show_that_the_gap_is_too_large(
    crossed: Path, tmp_path: Path, new: pd.DataFrame, answer: Any
) -> None:
    path = tmp_path / "three.csv"
    rows = new[(new["region"] == "north") | (new["sex"] == "F")]
    rows = rows.assign(income=(rows["region"] == "north") * 8.0 - 4.0)
    rows.to_csv(path, index=False)
    result = answer("evaluate", crossed, path)
    assert result["missing_groups"] == ["south & M"]
    assert (result["verdict"], result["within_tolerance"]) == ("above", False)


def test_a_group_without_eligible_rows_is_missing(
    crossed: Path, tmp_path: Path, new: pd.DataFrame, answer: Any
) -> None:
    path = tmp_path / "denied.csv"
    gone = (new["region"] == "south") & (new["sex"] == "F") & (new["decision"] == "approve")
    new[~gone].to_csv(path, index=False)
    result = answer("evaluate", crossed, path, "--tolerance", 1)
    assert result["missing_groups"] == ["south & F"]
    assert result["verdict"] == "undecided"


def test_certified_points_are_evaluated(
    model: Path, crossed: Path, place: Path, answer: Any, shell: Any
) -> None:
    given = ("evaluate", model, place / "new.csv", "--tolerance", 0.3, "--confidence", 0.9)
    assert "with confidence 0.9" in shell(*given).stdout
    found = fairdial.load(model)
    rows = read_rows(found, place / "new.csv", label="decision")
    point = found.frontier_.at(0.3, confidence=0.9, simultaneous=True)
    limits = rows.table["region"].map(dict(zip(point.groups, point.thresholds, strict=True)))
    chosen = int((found.logits(rows.X) > limits).sum())
    one, whole = answer(*given), answer(*given, "--simultaneous")
    assert sum(line["selected"] for line in whole["groups"]) == chosen
    assert whole["gap"] < one["gap"]
    assert (one["simultaneous"], whole["simultaneous"]) == (False, True)
    four = ("evaluate", crossed, place / "new.csv", "--tolerance", 0.7)
    assert answer(*four, "--confidence", 0.9)["simultaneous"] is False
    assert answer(*four)["simultaneous"] is None


@pytest.mark.parametrize(
    ("value", "names"),
    [("perhaps", ("'deny'", "'approve'", "'perhaps'")), (None, ("1 row", "--drop-missing"))],
)
def test_values_that_are_no_labels_are_named(
    value: str | None, names: tuple[str, ...], model: Path, tmp_path: Path, new: pd.DataFrame,
    refused: Any,
) -> None:  # fmt: skip
    path = tmp_path / "other.csv"
    new.assign(decision=new["decision"].where(new.index != 3, value)).to_csv(path, index=False)
    given = ("evaluate", model, path)
    refused(*given, option="DATA", names=("'decision'", "data row 4", *names))
