"""Audit reports: every figure is the frontier's or is counted on the rows, and nothing leaks in."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes, InvalidInputError
from fairdial.datasets import make_gaussian
from fairdial.metrics import gap
from fairdial.report import Rows, render_report, report_data, write_report
from fairdial.report.write import BROWSERS
from fairdial.serve.audit import AuditLog


class Sample(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray


def draw(n: int, seed: int) -> Sample:
    found = make_gaussian(n, random_state=seed)
    return Sample(np.asarray(found.X), np.asarray(found.y), np.asarray(found.groups, str))


pytestmark = pytest.mark.filterwarnings("ignore::fairdial.FairdialWarning")
OLD, NEW = draw(4_000, 0), draw(3_000, 1)
ROWS = Rows(NEW.X, NEW.y, NEW.groups, name="new.csv", sha256="0" * 64)
NASTY = '<script>alert(1)</script>\x1b[2J"&'


def trained(**settings):
    settings = {"tolerance": 0.05, "random_state": 0} | settings
    model = FairBayes(LogisticRegression(), **settings)
    return model.fit(OLD.X, OLD.y, sensitive_features=OLD.groups)


@pytest.fixture(scope="module")
def model():
    return trained()


class Text(HTMLParser):
    """The tags, the addresses and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.addresses, self.words = set(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.words.append(data)


def test_figures_on_rows_are_those_of_the_decisions(model):
    facts = report_data(model, ROWS)
    chosen = model.predict(NEW.X, sensitive_features=NEW.groups)
    free = model.predict(NEW.X, sensitive_features=NEW.groups, tolerance=1.0)
    here = facts["rows"]["here"]
    assert here["gap"] == gap(NEW.y, chosen, sensitive_features=NEW.groups)
    assert here["accuracy"] == np.mean(chosen == NEW.y)
    for a, line in enumerate(facts["rows"]["affected"]):
        members = NEW.groups == facts["groups"][a]["name"]
        assert line["gained"] == np.sum((chosen > free) & members)
        assert line["lost"] == np.sum((chosen < free) & members)
        assert here["groups"][a]["selected"] == chosen[members].sum()
    low, high = here["gap_interval"]
    assert low <= here["gap"] <= high


def test_figures_of_calibration_rows_are_the_frontiers(model):
    facts = report_data(model)
    point, free = model.frontier_.at(0.05), model.frontier_.at(1.0)
    setting = facts["setting"]
    assert (setting["here"]["gap"], setting["unlimited"]["gap"]) == (point.gap, free.gap)
    assert setting["here"]["accuracy"] == point.accuracy
    for line in facts["frontier"]["table"]:
        at = model.frontier_.at(line["tolerance"])
        assert (line["gap"], line["accuracy"]) == (at.gap, at.accuracy)
    moved = (point.selected - free.selected).sum(axis=0)
    assert [line["balance"] for line in facts["affected"]] == moved.tolist()
    offer = model.frontier_.at(0.05, confidence=0.95) if facts["certificate"]["offer"] else None
    assert offer is None or facts["certificate"]["offer"]["gap"] == offer.gap


@pytest.mark.parametrize(
    "settings",
    [
        {"criterion": "equalized_odds"},
        {"criterion": "demographic_parity_ratio", "tolerance": 0.2},
        {"criterion": ["demographic_parity", "true_positive_rate>=0.5"]},
        {"criterion": "equal_opportunity", "nested": True},
        {"randomize": "hash"},
        {"rising": True},
        {"blind": True},
        {"budget": 0.3},
        {"recalibrate": "group"},
        {"cv": 3},
    ],
    ids=str,
)
def test_every_kind_of_dial_has_a_report(settings):
    model = trained(**settings)
    for rows in (None, ROWS):
        facts = report_data(model, rows)
        page = render_report(json.loads(json.dumps(facts, allow_nan=False)))
        assert page == render_report(facts)
        assert "None" not in " ".join(Text(page).words)
        assert "nan" not in page


def test_one_group_and_small_groups_are_named():
    model = FairBayes(LogisticRegression(), random_state=0).fit(OLD.X, OLD.y)
    assert report_data(model)["certificate"]["kind"] == "one group"
    assert "only one group" in render_report(report_data(model, Rows(NEW.X, NEW.y)))
    few = trained(min_count=5)
    kept = np.r_[
        np.flatnonzero(OLD.groups == "group 0")[:20], np.flatnonzero(OLD.groups != "group 0")
    ]
    few.calibrate(OLD.X[kept], OLD.y[kept], sensitive_features=OLD.groups[kept])
    assert "Fewer than 30 eligible people of group 0" in render_report(report_data(few))


def test_rows_that_lack_a_group_show_nothing_about_the_limit(model):
    some = NEW.groups == "group 1"
    facts = report_data(model, Rows(NEW.X[some], NEW.y[some], NEW.groups[some]))
    assert facts["rows"]["absent"] == ["group 0"]
    assert facts["rows"]["verdict"] == "undecided"
    assert "have nobody of group 0" in render_report(facts)


def test_the_log_says_what_is_in_use_and_since_when(model, tmp_path):
    log = AuditLog(tmp_path / "log.sqlite", create=True)
    log.append(tolerance=0.05, who="server", reason="first start", model="abc")
    log.append(tolerance=0.2, confidence=0.9, who="Ann", reason="policy 7", model="abc")
    log.close()
    facts = report_data(model, ROWS, audit=tmp_path / "log.sqlite")
    assert facts["setting"]["tolerance"] == 0.2
    point = model.frontier_.at(0.2, confidence=0.9)
    assert facts["setting"]["here"]["gap"] == point.gap
    assert facts["certificate"]["bound"] == point.certified_gap
    chosen = model.predict(NEW.X, sensitive_features=NEW.groups, tolerance=0.2, confidence=0.9)
    assert facts["rows"]["here"]["gap"] == gap(NEW.y, chosen, sensitive_features=NEW.groups)
    page = render_report(facts)
    assert all(text in page for text in ("Ann", "policy 7", "first start"))
    assert (
        report_data(model, audit=tmp_path / "log.sqlite", tolerance=0.1)["setting"]["source"]
        == "given"
    )


def test_an_altered_log_is_refused(model, tmp_path):
    import sqlite3

    log = AuditLog(tmp_path / "log.sqlite", create=True)
    log.append(tolerance=0.05, who="Ann", reason="policy", model="abc")
    log.close()
    with sqlite3.connect(tmp_path / "log.sqlite") as file:
        file.execute("DROP TRIGGER audit_unchanged")
        file.execute("UPDATE audit SET who = 'Bob'")
    file.close()
    with pytest.raises(InvalidInputError, match="audit"):
        report_data(model, audit=tmp_path / "log.sqlite")


def test_the_page_has_no_scripts_no_addresses_and_no_markup_of_its_input(model, tmp_path):
    log = AuditLog(tmp_path / "log.sqlite", create=True)
    log.append(tolerance=0.05, who=NASTY, reason=NASTY, model=NASTY)
    log.close()
    facts = report_data(
        model,
        Rows(NEW.X, NEW.y, NEW.groups, name=NASTY),
        name=NASTY,
        people={"group 0": NASTY},
        labels=(NASTY, NASTY),
        audit=tmp_path / "log.sqlite",
    )
    page = render_report(facts)
    found = Text(page)
    assert not found.tags & {"script", "iframe", "link", "object", "img", "form"}
    assert found.addresses == []
    assert not re.search(r"url\(|@import|https?:", page)
    assert "\x1b" not in page
    assert "default-src 'none'" in page


def test_the_same_facts_are_written_to_the_same_bytes(model, tmp_path):
    first = write_report(report_data(model, ROWS), tmp_path / "one.html").read_bytes()
    assert first == write_report(report_data(model, ROWS), tmp_path / "two.html").read_bytes()
    stored = write_report(report_data(model, ROWS), tmp_path / "facts.json").read_text("utf-8")
    assert render_report(json.loads(stored)).encode() == first


def test_a_pdf_is_printed_where_a_browser_is_installed(model, tmp_path, monkeypatch):
    if any(map(shutil.which, BROWSERS)):
        written = write_report(report_data(model), tmp_path / "report.pdf").read_bytes()
        assert written.startswith(b"%PDF-")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InvalidInputError) as refused:
        write_report(report_data(model), tmp_path / "none.pdf")
    assert refused.value.argument == "out"
    assert not Path(tmp_path / "none.pdf").exists()


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"tolerance": 2.0}, "tolerance"),
        ({"confidence": 0.95}, "confidence"),
        ({"level": 1.0}, "confidence"),
        ({"name": " "}, "name"),
        ({"people": {"nobody": "x"}}, "people"),
        ({"labels": ("", "x")}, "labels"),
        ({"labels": ("x",)}, "labels"),
        ({"audit": "missing.sqlite"}, "audit"),
        ({"rows": Rows(NEW.X[:0], NEW.y[:0], NEW.groups[:0])}, "X"),
        ({"rows": Rows(NEW.X, NEW.y)}, "sensitive_features"),
        ({"rows": Rows(NEW.X, NEW.y, NEW.groups, NEW.groups)}, "control_features"),
        ({"rows": Rows(NEW.X, NEW.y[1:], NEW.groups)}, "X"),
        ({"rows": Rows(NEW.X, NEW.y + 1, NEW.groups)}, "y"),
        ({"rows": Rows(NEW.X, NEW.y, np.char.add(NEW.groups, "?"))}, "sensitive_features"),
        ({"rows": Rows(np.hstack([NEW.X, NEW.X]), NEW.y, NEW.groups)}, None),
    ],
)
def test_bad_input_is_refused_by_name(model, change, argument):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        report_data(model, **change)
    assert argument is None or getattr(refused.value, "argument", None) == argument


def test_labels_are_needed_where_the_criterion_needs_them():
    model = trained(criterion="equal_opportunity")
    with pytest.raises(InvalidInputError) as refused:
        report_data(model, Rows(NEW.X, None, NEW.groups))
    assert refused.value.argument == "y"
    plain = report_data(trained(), Rows(NEW.X, None, NEW.groups))
    assert plain["rows"]["here"]["accuracy"] is None
    assert "unknown" in render_report(plain)


def test_other_models_are_refused():
    with pytest.raises(InvalidInputError) as refused:
        report_data(LogisticRegression().fit(OLD.X, OLD.y))
    assert refused.value.argument == "model"
    with pytest.raises(InvalidInputError):
        report_data(FairBayes(LogisticRegression(), calibration=None).fit(OLD.X, OLD.y))
    with pytest.raises(InvalidInputError):
        render_report({"format": "other"})


def test_strata_are_measured_within_each():
    rng = np.random.default_rng(0)
    strata, new = rng.choice(["a", "b"], len(OLD.y)), rng.choice(["a", "b"], len(NEW.y))
    model = FairBayes(LogisticRegression(), calibration=None, tolerance=0.1, random_state=0)
    model.fit(OLD.X, OLD.y, sensitive_features=OLD.groups)
    model.calibrate(OLD.X, OLD.y, sensitive_features=OLD.groups, control_features=pd.Series(strata))
    facts = report_data(model, Rows(NEW.X, NEW.y, NEW.groups, pd.Series(new)))
    chosen = model.predict(NEW.X, sensitive_features=NEW.groups)
    within = [
        gap(NEW.y[new == s], chosen[new == s], sensitive_features=NEW.groups[new == s])
        for s in ("a", "b")
    ]
    assert facts["rows"]["here"]["gap"] == max(within)
    assert "strata" in render_report(facts)
    first = new == "a"
    some = Rows(NEW.X[first], NEW.y[first], NEW.groups[first], pd.Series(new[first]))
    assert "strata" in render_report(report_data(model, some))
    with pytest.raises(InvalidInputError) as refused:
        report_data(model, ROWS)
    assert refused.value.argument == "control_features"
