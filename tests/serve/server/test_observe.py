"""What the server reports of unlabeled rows, and what it stores of them."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from fairdial import InvalidInputError
from fairdial.core.anytime import gap_sequence
from fairdial.serve.drift import BINS, redial
from fairdial.serve.entries import AuditError
from fairdial.serve.observations import Observations
from fairdial.serve.service import Service

MONITORING = Path(__file__).parents[3] / "docs" / "monitoring-files"
GROUPS = ("north", "south", "east")


@pytest.fixture
def case(cases):
    return cases("pipeline")


@pytest.fixture
def ask(case, client):
    return client(case)


def logits_of(case):
    return case.model.logits(case.X, sensitive_features=case.groups)


def by_group(data):
    return {line["group"]: line for line in data["groups"]}


def test_rates_are_those_of_the_decisions_at_the_dial(ask, case):
    scores = logits_of(case)
    data = ask.post(
        "/v1/observe", json={"scores": scores.tolist(), "groups": list(case.groups)}
    ).json()
    selected = case.model.predict(case.X, sensitive_features=case.groups, tolerance=0.1) == 1
    lines = by_group(data)
    counts = []
    for group in sorted(GROUPS):
        here = case.groups == group
        line = lines[group]
        assert (line["rows"], line["rows_at_dial"]) == (here.sum(), here.sum())
        assert line["selected"] == selected[here].sum()
        assert line["rate"] == selected[here].mean()
        counts.append((selected[here].sum(), here.sum()))
    rates = [k / n for k, n in counts]
    assert data["gap"]["gap"] == max(rates) - min(rates)
    low, high = gap_sequence(*np.array(counts).T.tolist(), 0.95)
    assert (data["gap"]["low"], data["gap"]["high"]) == (low, high)
    assert data["gap"]["low"] <= data["gap"]["gap"] <= data["gap"]["high"]
    assert (data["version"], data["tolerance"]) == (1, 0.1)


def test_rows_are_scored_and_counted_as_their_scores_are(ask, case, client, tmp_path):
    other = client(case, audit=tmp_path / "other.sqlite")
    rows = ask.post("/v1/observe", json={"rows": case.rows()}).json()
    body = {"scores": logits_of(case).tolist(), "groups": list(case.groups)}
    scores = other.post("/v1/observe", json=body).json()
    for one in (rows, scores):
        del one["since"]
    assert rows == scores


def test_counts_add_up_over_requests(ask, case):
    scores = logits_of(case)
    for part in np.array_split(np.arange(len(scores)), 7):
        body = {"scores": scores[part].tolist(), "groups": case.groups[part].tolist()}
        last = ask.post("/v1/observe", json=body).json()
    assert sum(line["rows"] for line in last["groups"]) == len(scores)
    assert ask.get("/v1/observe").json() == last


def test_a_change_of_the_dial_resets_the_rates_and_keeps_the_scores(ask, case, token):
    body = {"scores": logits_of(case).tolist(), "groups": list(case.groups)}
    before = by_group(ask.post("/v1/observe", json=body).json())
    ask.put("/v1/dial", json={"tolerance": 0.5, "reason": "x"}, headers=token)
    data = ask.get("/v1/observe").json()
    for group, line in by_group(data).items():
        assert (line["rows_at_dial"], line["selected"], line["rate"]) == (0, 0, None)
        assert (line["low"], line["high"]) == (0.0, 1.0)
        assert line["rows"] == before[group]["rows"]
    assert data["gap"] is None
    assert data["notes"]
    after = by_group(ask.post("/v1/observe", json=body).json())
    selected = case.model.predict(case.X, sensitive_features=case.groups, tolerance=0.5) == 1
    for group in GROUPS:
        assert after[group]["selected"] == selected[case.groups == group].sum()
        assert after[group]["rows"] == 2 * before[group]["rows"]


def test_thresholds_are_proposed_from_the_scores_alone(ask, case):
    rng = np.random.default_rng(0)
    groups = np.repeat(GROUPS, 200)
    scores = rng.normal(size=600) + np.repeat([0.0, 1.0, -1.0], 200)
    body = {"scores": scores.tolist(), "groups": groups.tolist()}
    data = ask.post("/v1/observe", json=body).json()
    proposal = data["proposal"]
    rates = [(scores[groups == g] > float(proposal["thresholds"][g])).mean() for g in GROUPS]
    assert max(rates) - min(rates) == pytest.approx(proposal["gap"])
    assert proposal["gap"] <= proposal["tolerance"] == 0.1
    assert ask.get("/v1/dial").json()["thresholds"] == case.model.thresholds(0.1)  # only proposed


def test_the_intervals_of_one_group_alone_are_no_gap(ask):
    """A group of four rows may have nearly any rate, and its ends are not two groups'."""
    body = {"scores": [9.0] + [-9.0] * 3, "groups": ["north"] * 4}
    ask.post("/v1/observe", json=body)
    for group in ("south", "east"):
        body = {"scores": [9.0] * 400 + [-9.0] * 600, "groups": [group] * 1_000}
        data = ask.post("/v1/observe", json=body).json()
    assert data["gap"]["high"] == gap_sequence([400, 1, 400], [1000, 4, 1000], 0.95)[1]
    north = by_group(data)["north"]
    assert data["gap"]["high"] < north["high"] - north["low"]


def test_proposed_thresholds_have_the_dials_confidence(cases, client, tmp_path):
    case = cases("network")
    ask = client(case, tolerance=0.3, confidence=0.9)
    rng = np.random.default_rng(0)
    groups = np.arange(4_000) % 2 == 0
    scores = rng.normal(size=4_000) + groups
    few = {"scores": scores[:80].tolist(), "groups": groups[:80].tolist()}
    data = ask.post("/v1/observe", json=few).json()
    assert data["proposal"] is None
    assert data["notes"]
    rest = {"scores": scores[80:].tolist(), "groups": groups[80:].tolist()}
    proposal = ask.post("/v1/observe", json=rest).json()["proposal"]
    counts = Observations(
        tmp_path / "audit.sqlite.observed", model=case.model.model_hash_, n_groups=2
    )
    frontier = redial(counts.bins(), case.model.frontier_.criterion, ("False", "True"))
    counts.close()
    point = frontier.at(0.3, confidence=0.9)
    assert proposal["thresholds"] == dict(
        zip(("False", "True"), point.thresholds.tolist(), strict=True)
    )
    assert (proposal["gap"], proposal["confidence"]) == (point.gap, 0.9)
    assert proposal["certified_gap"] == point.certified_gap <= 0.3


def test_too_few_rows_propose_nothing(ask):
    body = {"scores": [0.5] * 90, "groups": ["north"] * 60 + ["south"] * 30}
    data = ask.post("/v1/observe", json=body).json()
    assert data["proposal"] is None
    assert any("30" in note for note in data["notes"])


def test_changed_scores_give_a_warning_that_stays(ask, case):
    rng = np.random.default_rng(0)
    same = {"scores": [0.0] * 99, "groups": ["north"] * 99}
    assert ask.post("/v1/observe", json=same).json()["drift"] == {
        "warning": False,
        "false_alarms": 0.01,
    }
    assert by_group(ask.get("/v1/observe").json())["north"]["look"] is None
    far = {"scores": (rng.normal(size=300) + 9).tolist(), "groups": ["north"] * 300}
    data = ask.post("/v1/observe", json=far).json()
    assert data["drift"]["warning"] is True
    line = by_group(data)["north"]
    assert line["drift"] is True
    assert line["look"]["distance"] > line["look"]["bound"]
    assert by_group(data)["south"]["drift"] is False
    again = {"scores": logits_of(case).tolist(), "groups": list(case.groups)}
    assert ask.post("/v1/observe", json=again).json()["drift"]["warning"] is True
    lines = ask.get("/metrics").text.splitlines()
    assert "fairdial_drift_warning 1.0" in lines


def test_alert_rules_and_dashboard_ask_for_metrics_that_exist(ask, case):
    ask.post("/v1/observe", json={"scores": logits_of(case).tolist(), "groups": list(case.groups)})
    row = {"features": case.features[0], "group": case.groups[0]}
    assert ask.post("/v1/predict", json={"rows": [row]}).status_code == 200
    lines = [line for line in ask.get("/metrics").text.splitlines() if line[0] != "#"]
    exposed = {line.partition(" ")[0].partition("{")[0] for line in lines}
    for name in ("alerts.yml", "grafana.json"):
        wanted = set(re.findall(r"\bfairdial_\w+", (MONITORING / name).read_text("utf-8")))
        assert wanted
        assert wanted <= exposed


def test_scores_like_those_of_calibration_give_no_warning(ask, case):
    body = {"scores": logits_of(case).tolist(), "groups": list(case.groups)}
    for _ in range(5):
        data = ask.post("/v1/observe", json=body).json()
    assert data["drift"]["warning"] is False


def test_only_the_token_resets_the_counts(ask, token):
    ask.post("/v1/observe", json={"scores": [1.0], "groups": ["north"]})
    assert ask.delete("/v1/observe").status_code == 401
    assert by_group(ask.get("/v1/observe").json())["north"]["rows"] == 1
    data = ask.delete("/v1/observe", headers=token).json()
    assert by_group(data)["north"]["rows"] == 0


def test_observations_need_a_token_unless_they_are_open(case, client, token, monkeypatch):
    body = {"scores": [1.0], "groups": ["north"]}
    other = {"Authorization": "Bearer " + "o" * 20}
    monkeypatch.setenv("FAIRDIAL_OBSERVE_TOKEN", "o" * 20)
    ask = client(case, open_observe=False)
    for headers, status in (({}, 401), (token, 200), (other, 200)):
        assert ask.post("/v1/observe", json=body, headers=headers).status_code == status
    assert by_group(ask.get("/v1/observe").json())["north"]["rows"] == 2
    assert ask.delete("/v1/observe", headers=other).status_code == 401
    change = {"tolerance": 0.05, "reason": "x"}
    assert ask.put("/v1/dial", json=change, headers=other).status_code == 401


def test_a_read_only_server_takes_observations_with_a_token_too(case, client, token, monkeypatch):
    body = {"scores": [1.0], "groups": ["north"]}
    ask = client(case, read_only=True, audit=None, open_observe=False)
    assert ask.post("/v1/observe", json=body).status_code == 401
    assert ask.post("/v1/observe", json=body, headers=token).status_code == 200
    assert ask.delete("/v1/observe", headers=token).status_code == 200
    monkeypatch.delenv("FAIRDIAL_TOKEN")
    for open_observe, status in ((False, 403), (True, 200)):
        ask = client(case, read_only=True, audit=None, open_observe=open_observe)
        assert ask.post("/v1/observe", json=body).status_code == status
        assert ask.delete("/v1/observe", headers=token).status_code == 403


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_count_that_was_stored_is_not_denied_when_it_cant_be_read(
    method, ask, token, monkeypatch
):
    read = Service.observed

    def fail(_):
        monkeypatch.setattr(Service, "observed", read)
        raise AuditError("disk I/O error")

    ask.post("/v1/observe", json={"scores": [1.0], "groups": ["north"]})
    monkeypatch.setattr(Service, "observed", fail)
    body = {"scores": [1.0], "groups": ["north"]} if method == "POST" else None
    answer = ask.request(method, "/v1/observe", json=body, headers=token)
    assert answer.status_code == 503
    assert "nothing was changed" not in answer.text
    rows = 2 if method == "POST" else 0
    assert by_group(ask.get("/v1/observe").json())["north"]["rows"] == rows


def test_criteria_that_need_labels_have_no_gap_and_no_proposal(cases, client):
    case = cases("per group")
    ask = client(case)
    scores = case.model.logits(case.X, sensitive_features=case.groups)
    body = {"scores": scores.tolist(), "groups": case.groups.tolist()}
    data = ask.post("/v1/observe", json=body).json()
    assert data["gap"] is None
    assert data["proposal"] is None
    assert data["drift"] is not None
    assert any("equal_opportunity" in note for note in data["notes"])
    assert all(line["rate"] is not None for line in data["groups"])
    assert "fairdial_observed_gap" not in ask.get("/metrics").text


def test_a_family_counts_its_decisions_and_has_no_drift(cases, client):
    case = cases("family")
    ask = client(case)
    answer = ask.post("/v1/observe", json={"scores": [1.0], "groups": ["north"]})
    assert answer.status_code == 422
    data = ask.post("/v1/observe", json={"rows": case.rows()}).json()
    selected = case.model.predict(case.X, sensitive_features=case.groups) == 1
    for group, line in by_group(data).items():
        assert line["selected"] == selected[case.groups == group].sum()
    assert data["drift"] is data["proposal"] is None
    assert data["gap"] is not None
    assert len(data["notes"]) == 2


def test_cross_fitted_scores_are_not_compared(cases, client):
    ask = client(cases("cross-fitted"))
    data = ask.post("/v1/observe", json={"scores": [9.0] * 500, "groups": ["north"] * 500}).json()
    assert data["drift"] is None
    assert data["notes"]


def test_one_group_has_no_gap(cases, client):
    data = client(cases("array")).post("/v1/observe", json={"scores": [0.5, -1.0]}).json()
    assert data["gap"] is None
    assert data["notes"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"scores": [1.0]},
        {"scores": [1.0, 2.0], "groups": ["north"]},
        {"scores": [1.0], "groups": ["west"]},
        {"scores": ["1"], "groups": ["north"]},
        {"scores": [None], "groups": ["north"]},
        {"scores": [], "groups": []},
        {"groups": ["north"]},
        {"scores": [1.0], "groups": ["north"], "rows": []},
        {"rows": []},
        {"rows": [{"features": {}, "group": "north", "tolerance": 0.1}]},
    ],
    ids=str,
)
def test_requests_without_scores_and_groups_or_rows_are_refused(body, ask):
    assert ask.post("/v1/observe", json=body).status_code == 422
    assert sum(line["rows"] for line in ask.get("/v1/observe").json()["groups"]) == 0


def test_rows_and_groups_together_are_refused(ask, case):
    body = {"rows": case.rows(0, 1), "groups": ["north"]}
    assert ask.post("/v1/observe", json=body).status_code == 422


# ---- what is kept ------------------------------------------------------------------------------


def test_only_counts_are_kept_and_no_more_than_there_are_bins(ask, tmp_path):
    rng = np.random.default_rng(0)
    for _ in range(3):
        body = {"scores": (rng.normal(size=10_000) * 20).tolist(), "groups": ["north"] * 10_000}
        ask.post("/v1/observe", json=body)
    file = sqlite3.connect(tmp_path / "audit.sqlite.observed")
    names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    assert sorted(names) == ["about", "bins", "groups", "labeled", "watch"]
    (bins,) = file.execute("SELECT count(*) FROM bins").fetchone()
    (rows,) = file.execute("SELECT sum(rows) FROM bins").fetchone()
    file.close()
    assert bins <= BINS
    assert rows == 30_000


def counts(*values):
    return np.array(values, np.int64)


def test_counts_survive_a_restart_but_not_another_model(tmp_path):
    path = tmp_path / "observed"
    first = Observations(path, model="a", n_groups=2)
    first.add(counts(5, 3), counts(2, 1), 1, None, None)
    first.close()
    again = Observations(path, model="a", n_groups=2)
    assert again.read(1).rows.tolist() == [5, 3]
    again.close()
    other = Observations(path, model="b", n_groups=3)
    assert other.read(1).rows.tolist() == [0, 0, 0]
    other.close()


def test_rows_of_an_older_dial_dont_count_for_the_newer_one(tmp_path):
    file = Observations(tmp_path / "observed", model="a", n_groups=1)
    file.add(counts(5), counts(2), 2, None, None)
    file.add(counts(9), counts(9), 1, None, None)  # by a process that hadn't seen the move
    found = file.read(2)
    assert (found.rows[0], found.current[0], found.selected[0]) == (14, 5, 2)
    file.add(counts(4), counts(1), 3, None, None)
    found = file.read(3)
    assert (found.rows[0], found.current[0], found.selected[0]) == (18, 4, 1)
    assert file.read(2).current[0] == 0
    file.close()


def test_another_kind_of_file_is_refused(tmp_path):
    path = tmp_path / "observed"
    path.write_text("something else, that is long enough to be looked at " * 20)
    with pytest.raises(InvalidInputError) as refused:
        Observations(path, model="a", n_groups=1)
    assert refused.value.argument == "observed"
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE groups (x)")
    other.commit()
    other.close()
    with pytest.raises(InvalidInputError) as refused:
        Observations(tmp_path / "other", model="a", n_groups=1)
    assert refused.value.argument == "observed"


@pytest.mark.parametrize("score", [1.1e100, -1.1e308])
def test_scores_beyond_what_the_server_takes_are_refused(ask, score):
    answer = ask.post("/v1/observe", json={"scores": [score], "groups": [str(GROUPS[0])]})
    assert answer.status_code == 422
    assert "1e+100" in answer.text
