"""Model cards: their figures are the frontier's."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import fairdial
from fairdial import (
    EPO,
    GFB,
    YOTO,
    CannotCertifyError,
    Costs,
    FairBayes,
    FairBiNN,
    FairdialWarning,
    Network,
)
from fairdial.core.rising import rising_frontier
from fairdial.datasets import make_gaussian
from fairdial.io.card import CONFIDENCE, TOLERANCES, UNCONSTRAINED, model_card
from fairdial.io.card_metadata import card_metadata

DATA = make_gaussian(2500, random_state=0)
NET = Network(members=1, hidden=(4,), head=3, epochs=2)
LOGISTIC = LogisticRegression()


def fitted(model: Any, groups: Any = DATA.groups, y: Any = DATA.y) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return model.set_params(random_state=0).fit(DATA.X, y, sensitive_features=groups)


def table(card: str, heading: str) -> list[list[str]]:
    """The lines of the table under a heading."""
    lines = card.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    rows = [line[2:-2].split(" | ") for line in lines if line.startswith("|")]
    return [rows[0], *rows[2:]]


MODELS = {
    "FairBayes": FairBayes(LOGISTIC, per_group=True),
    "equal opportunity": FairBayes(LOGISTIC, criterion="equal_opportunity"),
    "folds": FairBayes(LOGISTIC, cv=3),
    "recalibrated": FairBayes(LOGISTIC, recalibrate="group"),
    "network": FairBayes(NET),
    "GFB": GFB(network=NET, criterion="predictive_equality"),
    "EPO": EPO(2, network=NET),
    "FairBiNN": FairBiNN(2, widen=0, network=NET),
    "YOTO": YOTO(network=NET, film=(4, 1)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_operating_points_are_those_of_the_frontier(name: str) -> None:
    model = fitted(MODELS[name])
    head, *lines = table(model_card(model), "Operating points")
    assert head[3:] == [f"selected: {group}" for group in model.frontier_.groups]
    assert [line[0] for line in lines] == [f"{t:.2f}" for t in TOLERANCES] + ["unconstrained"]
    for line, tolerance in zip(lines, (*TOLERANCES, UNCONSTRAINED), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)
            point = model.frontier_.at(tolerance)
        assert line[1] == f"{point.accuracy:.4f}"
        assert ("not reached" in line[2]) == (not point.feasible)
        digits = 0.5e-4 if point.feasible else 0.05 * point.gap
        assert abs(float(line[2].split()[0]) - point.gap) <= digits
        assert line[3:] == [f"{rate:.4f}" for rate in point.selection_rate]


GENERAL: dict[str, dict[str, Any]] = {
    "equalized odds": {"criterion": "equalized_odds", "tolerance": 0.05},
    "mapping": {
        "criterion": {"demographic_parity": 0.1, "equal_opportunity": 0.05},
        "objective": Costs(1, 5),
    },
    "nested": {"criterion": "equalized_odds", "nested": True, "tolerance": 0.05},
    "budget": {"budget": 0.2, "tolerance": 0.05},
    "rising": {"rising": True, "tolerance": 0.05},
    "lottery": {"criterion": "equalized_odds", "randomize": "hash", "tolerance": 0.05},
}


@pytest.mark.parametrize("name", GENERAL)
def test_every_demand_is_listed_with_its_gap_at_the_default_tolerance(name: str) -> None:
    model = fitted(FairBayes(LOGISTIC, per_group=True, **GENERAL[name]))
    card, tolerance = model_card(model), model.default_tolerance
    point = model.frontier_.at(tolerance)
    part = card.split("## At the default tolerance")[1].split("\n## ")[0]
    lines = [line for line in table(card, "At the default tolerance") if len(line) == 5]
    rates = point.rates.reshape(len(point.gaps), -1)
    for line, (demand, gap), rate in zip(lines[1:], point.gaps.items(), rates, strict=True):
        assert line[:2] == [demand, f"{gap:.4f}"]
        assert line[3:] == [f"{value:.4f}" for value in rate]
    rising = None if name == "rising" else rising_frontier(model.frontier_)
    assert ("selected if nobody loses" in part) == (rising is not None)
    if rising is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)
            assert f"gap {rising.at(tolerance).gap:.4f}" in part


def test_the_card_says_what_is_solved_and_how_rows_move() -> None:
    def said(name: str) -> str:
        card = model_card(fitted(FairBayes(LOGISTIC, per_group=True, **GENERAL[name])))
        return card.split("## Criterion")[1].split("\n## ")[0]

    assert "change it back" in said("equalized odds")
    assert "at most once" in said("nested")
    assert "in expectation" in said("lottery")
    assert "false negative 5" in said("mapping")
    assert "0.5 d" in said("mapping")
    assert "0.2 of all rows" in said("budget")
    assert "no row loses" in said("rising")


@pytest.mark.parametrize("name", MODELS)
def test_the_certified_gaps_are_those_of_the_frontier(name: str) -> None:
    model = fitted(MODELS[name])
    card, frontier = model_card(model), model.frontier_
    if frontier.certificate == "none":
        assert "at most" not in card.split("## Gaps on new rows")[1].split("\n## ")[0]
        return
    assert f"{frontier.margin(CONFIDENCE):.4f}" in card
    for line, tolerance in zip(table(card, "Gaps on new rows")[1:], TOLERANCES, strict=True):
        assert line[0] == f"{tolerance:.2f}"
        try:
            point = frontier.at(tolerance, confidence=CONFIDENCE)
        except CannotCertifyError as error:
            assert line[2] == ""
            for figure, form in ((error.smallest_tolerance, ".4f"), (error.rows_needed, ",")):
                assert figure is None or format(figure, form) in line[1]
        else:
            assert line[1:] == [f"at most {point.certified_gap:.4f}", f"{point.accuracy:.4f}"]


def test_the_training_is_described() -> None:
    model = FairBayes(make_pipeline(StandardScaler(), LOGISTIC))
    before = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    fitted(model)
    ended = datetime.fromisoformat(model.training_["ended"])
    assert timedelta(0) <= ended - before < timedelta(minutes=5)
    assert model.training_["rows"] + model.frontier_.counts.sum() == 2500
    card = model_card(model)
    for text in (f"{model.training_['rows']:,} rows", f"{ended} (UTC)", "`StandardScaler`"):
        assert text in card
    assert "AutoDial" not in card
    model.training_ |= {"asked": "auto", "chosen": "logistic", "why": "gfb: <class 'X'> & others."}
    card = model_card(model)
    for text in ("`--method auto`", "`'logistic'`", "gfb: &lt;class 'X'&gt; &amp; others."):
        assert text in card


def test_training_elsewhere_is_unknown() -> None:
    known = LogisticRegression().fit(DATA.X, DATA.y)
    card = model_card(fitted(FairBayes(known, prefit=True)))
    assert "unknown" in card.split("## Training")[1].split("\n## ")[0]


def test_the_rows_are_counted_by_group() -> None:
    model = fitted(FairBayes(LOGISTIC, criterion="equal_opportunity"))
    head, *lines = table(model_card(model), "Calibration rows")
    assert head[-1] == "share with label 1"
    rows = model.frontier_.counts
    for a, line in enumerate(lines):
        assert line[0] == model.frontier_.groups[a]
        assert line[1:3] == [f"{rows[:, a].sum():,}", f"{rows[1, a]:,}"]
        assert line[3] == f"{rows[1, a] / rows[:, a].sum():.4f}"


def test_labels_tolerance_and_scorer_are_named() -> None:
    y = np.array(["deny", "grant"])[DATA.y]
    card = model_card(fitted(FairBayes(LOGISTIC, pos_label="deny", tolerance=0.07), y=y))
    assert card.index("`'deny'`") < card.index("`'grant'`")  # the positive one first
    for text in ("0.07", "`LogisticRegression`"):
        assert text in card


def test_without_labels_accuracy_is_unknown() -> None:
    model = fitted(FairBayes(LOGISTIC))
    model.calibrate(DATA.X, sensitive_features=DATA.groups)
    card = model_card(model)
    assert {line[1] for line in table(card, "Operating points")[1:]} == {"unknown"}
    assert "share with label" not in card


def test_one_group_has_no_gap_and_needs_no_group() -> None:
    card = model_card(fitted(FairBayes(LOGISTIC), groups=None))
    assert "|" not in card.split("## Gaps on new rows")[1]
    assert "Every prediction needs the row's group" not in card


def test_before_calibration_there_are_no_operating_points() -> None:
    card = model_card(fitted(FairBayes(LOGISTIC, calibration=None)))
    assert "## Not calibrated" in card
    assert "## Operating points" not in card
    assert "Every prediction needs the row's group" in card


def test_names_cannot_break_the_tables() -> None:
    groups = np.where(DATA.groups == "group 0", "a|b\n# c", "d")
    _, *lines = table(model_card(fitted(FairBayes(LOGISTIC), groups=groups)), "Calibration rows")
    assert len(lines) == 2
    assert lines[0][0] == "a\\|b # c"


def test_the_group_column_is_named_and_predicting_needs_no_groups() -> None:
    frame = DATA.X.assign(group=DATA.groups)
    model = FairBayes(LOGISTIC, sensitive_column="group", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        card = model_card(model.fit(frame, DATA.y))
    assert "Group column: `'group'`" in card
    more = frame.assign(other=1.0)[["other", "group", "x"]]
    code = card.split("Then `")[1].split("`")[0].replace("; model", "; found = model")
    names: dict[str, Any] = {"model": model, "X": more}
    exec(code, names)
    assert names["found"].tolist() == model.predict(frame, tolerance=0.05).tolist()
    assert "Features: `'x'`." in card


def test_how_to_load_it_names_what_is_needed(tmp_path) -> None:
    own = fitted(GFB(network=NET.__class__(trunk=lambda: nn.Linear(1, 3), epochs=1, encoder=None)))
    assert "trunk=make_trunk" in model_card(own)
    plain = fitted(MODELS["network"])
    card = model_card(plain)
    assert "trunk" not in card
    assert "trusted" not in card
    plain.save(tmp_path / "this folder")
    code = card.split("```python\n")[1].split("```")[0].replace("this folder", str(tmp_path))
    names: dict[str, Any] = {}
    exec(code.replace(str(tmp_path), str(tmp_path / "this folder")), names)
    assert isinstance(names["model"], FairBayes)
    assert (tmp_path / "this folder" / "MODEL_CARD.md").read_text().endswith(f"\n\n{card}")
    again = fairdial.load(tmp_path / "this folder")
    assert model_card(again) == card


def test_a_frame_of_groups_is_shown_as_intersections() -> None:
    other = np.where(np.arange(len(DATA.y)) % 2, "x", "y")
    frame = pd.DataFrame({"a": DATA.groups, "b": other})
    head, *_ = table(model_card(fitted(FairBayes(LOGISTIC), groups=frame)), "Operating points")
    assert head[3] == "selected: group 0 & x"


@pytest.mark.parametrize("tolerance", [0.07, None])
def test_the_metadata_are_yaml_with_the_figures_of_the_default_tolerance(tolerance):
    yaml = pytest.importorskip("yaml")
    options = {"calibration": None} if tolerance is None else {"tolerance": tolerance}
    model = fitted(FairBayes(LOGISTIC, **options))
    before, text, after = card_metadata(model).split("---")
    assert before.strip() == after.strip() == ""
    found = yaml.safe_load(text)
    assert found["library_name"] == "fairdial"
    assert "fairness" in found["tags"]
    if tolerance is None:
        assert "model-index" not in found
        return
    (entry,) = found["model-index"]
    ((gap, accuracy), (task, name)) = _metrics(entry)
    point = model.frontier_.at(tolerance)
    assert gap == pytest.approx(point.gap, abs=1e-6)
    assert accuracy == pytest.approx(point.accuracy, abs=1e-6)
    assert (task, name) == ("tabular-classification", "calibration rows")


def _metrics(entry):
    (result,) = entry["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    return (values["demographic_parity_gap"], values["accuracy"]), (
        result["task"]["type"],
        result["dataset"]["name"],
    )


def test_a_saved_card_begins_with_its_metadata(tmp_path):
    model = fitted(FairBayes(LOGISTIC))
    model.save(tmp_path / "model")
    text = (tmp_path / "model" / "MODEL_CARD.md").read_text("utf-8")
    assert text == f"{card_metadata(model)}\n\n{model_card(model, sees_group=False)}"
