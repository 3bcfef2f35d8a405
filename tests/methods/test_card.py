"""A model's card: its figures are the frontier's, and it says what it doesn't know."""

from __future__ import annotations

import re
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
    FairBayes,
    FairBiNN,
    FairdialWarning,
    InfeasibleToleranceWarning,
    Network,
)
from fairdial.datasets import make_gaussian
from fairdial.methods.card import CONFIDENCE, FREE, TOLERANCES, model_card

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
def test_the_positions_are_those_of_the_frontier(name: str) -> None:
    model = fitted(MODELS[name])
    head, *lines = table(model_card(model), "Positions of the dial")
    assert head[3:] == [f"selected: {group}" for group in model.frontier_.groups]
    assert [line[0] for line in lines] == [f"{t:.2f}" for t in TOLERANCES] + ["free"]
    for line, wish in zip(lines, (*TOLERANCES, FREE), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InfeasibleToleranceWarning)
            point = model.frontier_.at(wish)
        assert line[1] == f"{point.accuracy:.4f}"
        assert ("not reached" in line[2]) == (not point.feasible)
        digits = 0.5e-4 if point.feasible else 0.05 * point.gap
        assert abs(float(line[2].split()[0]) - point.gap) <= digits
        assert line[3:] == [f"{rate:.4f}" for rate in point.selection_rate]


def promise(frontier: Any, wish: float) -> list[str]:
    try:
        point = frontier.at(wish, confidence=CONFIDENCE)
    except CannotCertifyError as error:
        told, least = str(error), error.smallest_tolerance
    else:
        return [f"at most {point.certified_gap:.4f}", f"{point.accuracy:.4f}"]
    rows = re.search(r"about ([\d,]+) calibration rows", told)
    more = f"{f'about {rows[1]}' if rows else 'no number of'} calibration rows would do"
    can = "none can" if least is None else f"{least:.4f} can"
    return [f"can't be promised ({can}); {more}", ""]


@pytest.mark.parametrize("name", MODELS)
def test_what_is_promised_is_what_the_frontier_certifies(name: str) -> None:
    model = fitted(MODELS[name])
    card, frontier = model_card(model), model.frontier_
    if frontier.certificate == "none":
        assert "None can be promised" in card
        assert "at most" not in card.split("## Gaps on new rows")[1].split("\n## ")[0]
        return
    assert f"{frontier.margin(CONFIDENCE):.4f} above those measured" in card
    single = frontier.certificate == "declared"
    assert ("one tolerance that was chosen before" in card) == single
    assert ("All lines hold at once" in card) == (not single)
    for line, wish in zip(table(card, "Gaps on new rows")[1:], TOLERANCES, strict=True):
        assert line[0] == f"{wish:.2f}"
        assert line[1:] == promise(frontier, wish)


def test_the_training_is_told() -> None:
    model = fitted(FairBayes(make_pipeline(StandardScaler(), LOGISTIC)))
    before = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    fitted(model)
    ended = datetime.fromisoformat(model.training_["ended"])
    assert timedelta(0) <= ended - before < timedelta(minutes=5)
    assert model.training_["rows"] + model.frontier_.rows.sum() == 2500
    card = model_card(model)
    told = f"Its scorer was trained on {model.training_['rows']:,} rows; training ended {ended}"
    assert f"{told} (UTC)." in card
    assert "by a pipeline of `StandardScaler`, `LogisticRegression`, and" in card
    assert "AutoDial" not in card
    model.training_["asked"] = "logistic"
    assert "Its scorer (`--method logistic`) was trained" in model_card(model)
    model.training_ |= {"chosen": "logistic", "why": "gfb: failed: <class 'X'> & others."}
    told = "AutoDial took `'logistic'`. gfb: failed: &lt;class 'X'&gt; &amp; others."
    assert told in model_card(model)


def test_training_elsewhere_is_not_told() -> None:
    known = LogisticRegression().fit(DATA.X, DATA.y)
    assert "Its scorer was trained elsewhere" in model_card(fitted(FairBayes(known, prefit=True)))


def test_the_rows_are_counted_by_group() -> None:
    model = fitted(FairBayes(LOGISTIC, criterion="equal_opportunity"))
    head, *lines = table(model_card(model), "Calibration rows")
    assert head[-1] == "share with label 1"
    rows = model.frontier_.rows
    for a, line in enumerate(lines):
        assert line[0] == model.frontier_.groups[a]
        assert line[1:3] == [f"{rows[:, a].sum():,}", f"{rows[1, a]:,}"]
        assert line[3] == f"{rows[1, a] / rows[:, a].sum():.4f}"


def test_the_labels_and_the_resting_place_are_named() -> None:
    y = np.array(["deny", "grant"])[DATA.y]
    card = model_card(fitted(FairBayes(LOGISTIC, pos_label="deny", tolerance=0.07), y=y))
    assert "`'deny'` (the positive one: the row is selected) or `'grant'`" in card
    assert "rests at tolerance 0.07" in card
    assert "by `LogisticRegression`, and" in card


def test_without_labels_accuracy_is_unknown() -> None:
    model = fitted(FairBayes(LOGISTIC))
    model.calibrate(DATA.X, sensitive_features=DATA.groups)
    card = model_card(model)
    assert "Their labels were not known" in card
    assert {line[1] for line in table(card, "Positions of the dial")[1:]} == {"unknown"}
    assert "share with label" not in card


def test_one_group_has_no_gap_and_needs_no_group() -> None:
    card = model_card(fitted(FairBayes(LOGISTIC), groups=None))
    assert "There is one group, and so no gap." in card
    assert "Every prediction needs the row's group" not in card


def test_before_calibration_there_is_no_dial_to_speak_of() -> None:
    card = model_card(fitted(FairBayes(LOGISTIC, calibration=None)))
    assert "## Not calibrated" in card
    assert "## Positions" not in card
    assert "Every prediction needs the row's group" in card


def test_names_cannot_break_the_tables() -> None:
    groups = np.where(DATA.groups == "group 0", "a|b\n# c", "d")
    _, *lines = table(model_card(fitted(FairBayes(LOGISTIC), groups=groups)), "Calibration rows")
    assert len(lines) == 2
    assert lines[0][0] == "a\\|b # c"


def test_a_sensitive_column_is_named_and_not_asked_for() -> None:
    frame = DATA.X.assign(group=DATA.groups)
    model = FairBayes(LOGISTIC, sensitive_column="group", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        card = model_card(model.fit(frame, DATA.y))
    assert "read from the column `'group'`" in card
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
    assert (tmp_path / "this folder" / "MODEL_CARD.md").read_text() == card
    again = fairdial.load(tmp_path / "this folder")
    assert model_card(again) == card


def test_a_frame_of_groups_is_told_as_intersections() -> None:
    other = np.where(np.arange(len(DATA.y)) % 2, "x", "y")
    frame = pd.DataFrame({"a": DATA.groups, "b": other})
    head, *_ = table(model_card(fitted(FairBayes(LOGISTIC), groups=frame)), "Positions of the dial")
    assert head[3] == "selected: group 0 & x"
