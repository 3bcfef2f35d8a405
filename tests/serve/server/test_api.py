"""The server's HTTP interface: permissions, refusals, and what must never leak."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time

import httpx
import pytest

from fairdial.serve import page_data, requests
from fairdial.serve.app import MOST_BYTES
from fairdial.serve.audit import AuditLog
from fairdial.serve.entries import AuditError
from fairdial.serve.service import Service

GETS = ["/healthz", "/v1/dial", "/v1/audit", "/v1/observe", "/v1/frontier", "/metrics", "/"]


@pytest.fixture
def case(cases):
    return cases("pipeline")


@pytest.fixture
def ask(case, client):
    return client(case)


# ---- the dial ----------------------------------------------------------------------------------


def test_the_dial_starts_at_the_models_default_tolerance(ask, case):
    data = ask.get("/v1/dial").json()
    point = case.model.frontier_.at(0.1)
    assert (data["tolerance"], data["confidence"], data["version"]) == (0.1, None, 1)
    assert data["writable"] is True
    assert data["selected"] == point.selected.tolist()
    assert data["model"] == case.model.model_hash_
    (entry,) = ask.get("/v1/audit").json()["entries"]
    assert (entry["who"], entry["reason"], entry["old"]) == ("server", "first start", None)


def test_a_move_is_recorded_and_in_effect_at_once(ask, case, token):
    body = {"tolerance": 0.05, "reason": " policy 7 ", "by": "Ann"}
    answer = ask.put("/v1/dial", json=body, headers=token)
    assert answer.status_code == 200
    assert answer.headers["etag"] == '"2"'
    assert answer.json() == ask.get("/v1/dial").json()
    assert answer.json()["reason"] == "policy 7"
    data = ask.post("/v1/predict", json={"rows": case.rows(0, 1)}).json()
    assert (data["version"], data["rows"][0]["tolerance"]) == (2, 0.05)
    entry = ask.get("/v1/audit").json()["entries"][0]
    assert (entry["who"], entry["reason"], entry["version"]) == ("Ann", "policy 7", 2)
    assert entry["old"] == {"tolerance": 0.1, "confidence": None}
    assert entry["new"] == {"tolerance": 0.05, "confidence": None}


@pytest.mark.parametrize(
    "name", ["José Müller-Łukasz", "Ωνάσης", "Иван Петров", "王小明", "O'Neil (HR)", "علی"]
)
def test_names_of_any_alphabet_are_recorded(name, ask, token):
    body = {"tolerance": 0.05, "reason": "line 1\nline 2", "by": name}
    assert ask.put("/v1/dial", json=body, headers=token).status_code == 200
    assert ask.get("/v1/audit").json()["entries"][0]["who"] == name


def test_a_move_names_each_field_once(ask, token):
    headers = token | {"content-type": "application/json"}
    body = '{"tolerance": 0.05, "reason": "x", "tolerance": 0.2}'
    assert ask.put("/v1/dial", content=body, headers=headers).status_code == 422
    assert ask.get("/v1/dial").json()["version"] == 1


def test_a_wrong_token_is_logged_with_its_sender_and_not_itself(ask, caplog):
    wrong = {"authorization": "Bearer not-the-token-at-all"}
    body = {"tolerance": 0.05, "reason": "x"}
    answer = ask.put("/v1/dial", json=body, headers=wrong)
    assert answer.status_code == 401
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fairdial.serve"]
    assert answer.json()["request"] in line
    assert "not-the-token" not in line


def test_counters_are_served_while_the_log_is_unreadable(ask, monkeypatch):
    def fail(_):
        raise AuditError("disk I/O error")

    assert "fairdial_files_readable 1.0" in ask.get("/metrics").text
    monkeypatch.setattr(AuditLog, "last", fail)
    assert ask.get("/v1/dial").status_code == 503
    found = ask.get("/metrics")
    assert found.status_code == 200
    assert "fairdial_files_readable 0.0" in found.text
    assert 'fairdial_requests_total{path="/v1/dial",status="503"} 1.0' in found.text
    assert "fairdial_dial_tolerance" not in found.text


def test_a_move_without_a_name_is_unnamed(ask, token):
    ask.put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    assert ask.get("/v1/audit").json()["entries"][0]["who"] == "unnamed"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic a-token-of-enough-letters",
        "a-token-of-enough-letters",
        "Bearer a-token-of-enough-letters-and-more",
        "Bearer a-token-of-enough-letter",
        "Bearer \xff",
    ],
)
def test_without_the_token_the_dial_doesnt_change(header, ask):
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for method, path in (("PUT", "/v1/dial"), ("DELETE", "/v1/observe")):
        answer = ask.request(method, path, json={"tolerance": 0.05, "reason": "x"}, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert ask.get("/v1/dial").json()["version"] == 1


def test_the_bearer_scheme_is_case_insensitive(ask, token):
    headers = {"authorization": token["Authorization"].replace("Bearer", "bEARER")}
    body = {"tolerance": 0.05, "reason": "x"}
    assert ask.put("/v1/dial", json=body, headers=headers).status_code == 200


def test_a_read_only_server_changes_nothing_even_with_a_token(case, client, token):
    ask = client(case, read_only=True, audit=None)
    answer = ask.put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    assert answer.status_code == 403
    data = ask.get("/v1/dial").json()
    assert (data["writable"], data["version"], data["tolerance"]) == (False, 0, 0.1)
    assert ask.get("/v1/audit").json() == {"entries": [], "altered": None}
    assert not list(case.folder.parent.glob("*.audit.sqlite"))
    assert ask.post("/v1/predict", json={"rows": case.rows(0, 1)}).status_code == 200


def test_a_read_only_server_follows_the_log_of_another(case, client, token):
    writer, reader = client(case), client(case, read_only=True)
    writer.put("/v1/dial", json={"tolerance": 0.03, "reason": "x"}, headers=token)
    data = reader.get("/v1/dial").json()
    assert (data["tolerance"], data["version"], data["writable"]) == (0.03, 2, False)
    body = {"tolerance": 0.05, "reason": "x"}
    assert reader.put("/v1/dial", json=body, headers=token).status_code == 403


def test_a_change_based_on_an_old_version_is_refused(ask, token):
    body = {"tolerance": 0.05, "reason": "x"}
    for seen, status in (('"1"', 200), ('"1"', 412), ("nonsense", 412), ('"2"', 200), ("*", 200)):
        answer = ask.put("/v1/dial", json=body, headers=token | {"If-Match": seen})
        assert answer.status_code == status
        if status == 412:
            assert "version 2" in answer.json()["detail"]
            assert answer.headers["etag"] == '"2"'
    assert ask.get("/v1/dial").json()["version"] == 4


@pytest.mark.parametrize(
    "change",
    [
        {"reason": ""},
        {"reason": "  \t "},
        {"reason": "r" * (requests.LONGEST_REASON + 1)},
        {"reason": None},
        {"reason": 7},
        {"by": ""},
        {"by": "b" * (requests.LONGEST_NAME + 1)},
        {"by": "server\0"},
        {"by": "ser\N{ZERO WIDTH SPACE}ver"},
        {"by": "\N{FULLWIDTH LATIN SMALL LETTER S}erver"},
        {"by": "\N{CYRILLIC SMALL LETTER DZE}erver"},
        {"by": "An\x1b[2Jn"},
        {"reason": "x\x1b[2J"},
        {"reason": "x\N{RIGHT-TO-LEFT OVERRIDE}"},
        {"tolerance": -0.01},
        {"tolerance": 1.01},
        {"tolerance": "0.1"},
        {"tolerance": True},
        {"tolerance": None},
        {"confidence": 0},
        {"confidence": 1},
        {"extra": 1},
    ],
)
def test_a_move_needs_a_tolerance_and_a_reason(change, ask, token):
    body = {"tolerance": 0.05, "reason": "x"} | change
    answer = ask.put("/v1/dial", json=body, headers=token)
    assert answer.status_code == 422
    assert ask.get("/v1/dial").json()["version"] == 1


@pytest.mark.parametrize(
    ("body", "field", "given"),
    [
        ({"tolerance": 0.05}, "`reason`", "nothing"),
        ({"tolerance": 0.05, "reason": " "}, "`reason`", "empty text"),
        ({"tolerance": 0.05, "reason": "r" * 501}, "`reason`", "longer text"),
        ({"tolerance": -1, "reason": "x"}, "`tolerance`", "out of range"),
        ({"tolerance": "0,05", "reason": "x"}, "`tolerance`", "text"),
        ({"tolerance": 1, "reason": "x", "rows": []}, "the request", "unknown"),
        ([], "the request", "a list"),
    ],
)
def test_a_refusal_names_the_field_and_the_kind_of_value(body, field, given, ask, token):
    answer = ask.put("/v1/dial", json=body, headers=token)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(f"{field} must ")
    assert given in answer.json()["detail"].partition(", got ")[2]


def test_a_refusal_says_where_in_the_rows(ask, case):
    rows = case.rows(0, 2)
    rows[1]["tolerance"] = 2
    for answer, place in (
        (ask.post("/v1/predict", json={"rows": rows}), "rows.1.tolerance"),
        (ask.post("/v1/predict", json={"rows": [7]}), "rows.0"),
        (ask.post("/v1/observe", json={"scores": [1, "x"]}), "scores.1"),
        (ask.get("/v1/audit", params={"limit": 0}), "limit"),
    ):
        assert answer.json()["detail"].startswith(f"`{place}` must ")


def test_a_change_with_confidence_takes_the_certified_point(cases, client, token):
    case = cases("network")
    ask = client(case)
    body = {"tolerance": 0.6, "confidence": 0.9, "reason": "x"}
    data = ask.put("/v1/dial", json=body, headers=token).json()
    point = case.model.frontier_.at(0.6, confidence=0.9)
    assert (data["confidence"], data["certified_gap"]) == (0.9, 0.6)
    assert data["selected"] == point.selected.tolist()
    assert data["gap"] == point.gap
    assert ask.get("/v1/audit").json()["entries"][0]["new"]["confidence"] == 0.9


def test_a_tolerance_that_cant_be_certified_at_the_servers_confidence_is_refused(
    cases, client, token
):
    ask = client(cases("network"), tolerance=0.6, confidence=0.9)
    answer = ask.put("/v1/dial", json={"tolerance": 0.01, "reason": "x"}, headers=token)
    assert answer.status_code == 422
    for confidence, status in ((None, 422), (0.8, 422), (0.9, 200), (0.95, 200)):
        body = {"tolerance": 0.7, "reason": "x", "confidence": confidence}
        assert ask.put("/v1/dial", json=body, headers=token).status_code == status
    data = ask.put("/v1/dial", json={"tolerance": 0.7, "reason": "x"}, headers=token).json()
    assert data["confidence"] == 0.9  # the server's own, where none is asked for
    assert data["least_confidence"] == 0.9


def test_an_infeasible_tolerance_is_set_and_reported(cases, client, token):
    ask = client(cases("pipeline"))
    data = ask.put("/v1/dial", json={"tolerance": 0.0, "reason": "x"}, headers=token).json()
    assert data["feasible"] is False
    assert data["gap"] > 0
    entry = ask.get("/v1/audit").json()["entries"][0]
    assert (entry["gap"], entry["feasible"]) == (data["gap"], False)
    ask.put("/v1/dial", json={"tolerance": 1.0, "reason": "x"}, headers=token)
    assert ask.get("/v1/audit").json()["entries"][0]["feasible"] is True


def test_the_log_is_listed_in_pages(ask, token):
    for i in range(5):
        ask.put("/v1/dial", json={"tolerance": i / 10, "reason": "x"}, headers=token)
    found = ask.get("/v1/audit", params={"limit": 2}).json()["entries"]
    assert [e["version"] for e in found] == [6, 5]
    found = ask.get("/v1/audit", params={"limit": 2, "before": 5}).json()["entries"]
    assert [e["version"] for e in found] == [4, 3]
    for bad in ({"limit": 0}, {"limit": 1001}, {"limit": "7131x"}, {"before": 0}):
        answer = ask.get("/v1/audit", params=bad)
        assert answer.status_code == 422
        assert "7131" not in answer.text


def test_a_full_disk_is_reported_and_loses_nothing(case, client, token, monkeypatch):
    services = []
    start = Service.__init__

    def remember(self, *args, **options):
        start(self, *args, **options)
        services.append(self)

    monkeypatch.setattr(Service, "__init__", remember)
    ask = client(case)
    writer = services[0].log.store._writer
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    body = {"tolerance": 0.05, "reason": "r" * 500}
    statuses = [ask.put("/v1/dial", json=body, headers=token).status_code for _ in range(20)]
    done = statuses.count(200)
    assert statuses == [200] * done + [503] * (20 - done)
    assert 503 in statuses
    data = ask.get("/v1/dial").json()
    assert data["version"] == done + 1
    assert len(ask.get("/v1/audit").json()["entries"]) == done + 1
    writer.execute("PRAGMA max_page_count = 100000")
    assert ask.put("/v1/dial", json=body, headers=token).json()["version"] == done + 2


def test_a_recorded_change_is_confirmed_even_if_the_log_cant_be_read_then(ask, token, monkeypatch):
    append, last = AuditLog.append, AuditLog.last

    def fail(_):
        monkeypatch.setattr(AuditLog, "last", last)
        raise AuditError("the audit log can't be read (disk I/O error)")

    def record(self, **move):
        entry = append(self, **move)
        monkeypatch.setattr(AuditLog, "last", fail)
        return entry

    monkeypatch.setattr(AuditLog, "append", record)
    body = {"tolerance": 0.05, "reason": "x"}
    answer = ask.put("/v1/dial", json=body, headers=token)
    assert answer.status_code == 200
    monkeypatch.setattr(AuditLog, "last", last)
    assert answer.json() == ask.get("/v1/dial").json()


def test_a_missing_log_is_reported(ask, token, tmp_path):
    (tmp_path / "audit.sqlite").rename(tmp_path / "away")
    answer = ask.put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    assert answer.status_code == 503
    assert ask.get("/v1/dial").json()["version"] == 1


# ---- who waits -----------------------------------------------------------------------------------


@pytest.fixture
def places(monkeypatch):
    """Whether each request for decisions was answered on the loop."""
    found, predict = [], Service.predict

    def noted(self, request, dial):
        found.append(asyncio._get_running_loop() is not None)
        return predict(self, request, dial)

    monkeypatch.setattr(Service, "predict", noted)
    return found


def test_only_fast_predictions_stay_in_the_event_loop(case, client, places, monkeypatch):
    monkeypatch.setattr("fairdial.serve.service.FAST", 10.0)  # however busy the machine is
    ask = client(case)
    few, many = {"rows": case.rows(0, 1)}, {"rows": case.rows(0, 1) * 1_000}
    own = {"rows": [case.rows(0, 1)[0] | {"tolerance": 0.2}]}
    hidden = json.dumps(few | {"tolerance": 0.3}).replace("tolerance", "toler\\u0061nce")
    kind = {"Content-Type": "application/json"}
    ask.post("/v1/predict", json=few)  # nobody knows yet how fast the model is
    for content in map(json.dumps, (few, few | {"tolerance": 0.2}, own)):
        assert ask.post("/v1/predict", content=content, headers=kind).status_code == 200
    answer = ask.post("/v1/predict", content=hidden, headers=kind)
    assert answer.json()["rows"][0]["tolerance"] == 0.3
    assert places == [False, True, False, False, False]
    monkeypatch.setattr("fairdial.serve.service.FAST", 1e-6)
    ask.post("/v1/predict", json=few)
    ask.post("/v1/predict", json=many)
    assert places[5:] == [False, False]
    monkeypatch.setattr("fairdial.serve.service.FAST", 10.0)
    ask.post("/v1/predict", json=many)  # many rows have a pace of their own
    assert places[7:] == [True]


def test_the_first_prediction_after_a_change_leaves_the_event_loop(
    ask, case, places, tmp_path, monkeypatch
):
    monkeypatch.setattr("fairdial.serve.service.FAST", 10.0)
    ask.post("/v1/predict", json={"rows": case.rows(0, 1)})
    log = AuditLog(tmp_path / "audit.sqlite")
    log.append(tolerance=0.05, who="Ann", reason="elsewhere", model=case.model.model_hash_)
    log.close()
    for _ in range(2):
        ask.post("/v1/predict", json={"rows": case.rows(0, 1)})
    assert places == [False, False, True]


def test_the_document_is_made_once_for_everybody_waiting(case, client, monkeypatch):
    made, real = [], page_data.page_data

    def slow(*args, **options):
        made.append(threading.current_thread())
        time.sleep(0.2)
        if len(made) == 1:
            raise MemoryError
        return real(*args, **options)

    monkeypatch.setattr("fairdial.serve.page_data.page_data", slow)
    ask = client(case)
    assert ask.get("/v1/frontier").status_code == 500  # the next request makes it again

    async def everybody():
        transport = httpx.ASGITransport(ask.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as one:
            waiting = [asyncio.ensure_future(one.get("/v1/frontier")) for _ in range(60)]
            await asyncio.sleep(0.05)
            other = await one.get("/v1/dial")  # threads are free for others
            assert not any(answer.done() for answer in waiting)
            return other, await asyncio.gather(*waiting)

    other, answers = ask.run(everybody())
    assert {answer.status_code for answer in (other, *answers)} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(made) == 2


def test_a_late_body_is_refused(ask, monkeypatch, token):
    monkeypatch.setattr("fairdial.serve.app.BODY_TIMEOUT", 0.05)

    async def never():
        yield b"{"
        await asyncio.sleep(60)

    for method, path in (("POST", "/v1/predict"), ("PUT", "/v1/dial"), ("POST", "/v1/observe")):
        headers = token | {"Content-Type": "application/json"}
        answer = ask.request(method, path, content=never(), headers=headers)
        assert answer.status_code == 408
        assert answer.headers["connection"] == "close"


# ---- what is refused ---------------------------------------------------------------------------

SECRET = "Zaphod-Trillian"


WRONG = {  # somebody's data in the wrong place of a row, or of its features
    "a text for a number": ({}, {"age": SECRET}),
    "a list for a value": ({}, {"job": [SECRET]}),
    "a stranger": ({}, {SECRET: 1}),
    "a column missing": ({"features": {"job": SECRET}}, {}),
    "features as text": ({"features": SECRET}, {}),
    "a group that nobody knows": ({"group": SECRET}, {}),
    "a group that is a list": ({"group": [SECRET]}, {}),
    "a field of the row": ({SECRET: 1}, {}),
    "a tolerance as text": ({"tolerance": SECRET}, {}),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("path", ["/v1/predict", "/v1/observe"])
def test_refusals_never_repeat_what_was_sent(what, path, ask, case, caplog):
    row = case.rows(0, 1)[0]
    of_row, of_features = WRONG[what]
    wrong = row | {"features": row["features"] | of_features} | of_row
    for body in ({"rows": [row, wrong]}, {"rows": [row], SECRET: wrong}, {"rows": wrong}, wrong):
        check_silence(ask, path, body, caplog)
    check_silence(ask, path, SECRET, caplog)
    check_silence(ask, path, {"rows": [SECRET]}, caplog)


def check_silence(ask, path, body, caplog):
    with caplog.at_level(logging.DEBUG):
        answer = ask.post(path, json=body)
    assert answer.status_code == 422
    assert set(answer.json()) == {"detail", "request"}
    for part in ("Zaphod", "Trillian"):
        assert part not in answer.text
        assert part not in str(answer.headers)
        assert part not in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"rows": [NaN]}',
        b'{"rows": [{"features": {"age": NaN, "job": "Zaphod"}}]}',
        b'{"rows": [{"features": {"age": Infinity}}]}',
        b"\xff\xfe",
        b'{"rows": "\\ud800"}',
        b"[" * 100_000,
        b'{"rows": 1e99999}',
        b'{"tolerance": 0.1}',
        b"null",
        b"[]",
    ],
    ids=range(12),
)
def test_invalid_bodies_are_refused(body, ask, token):
    for method, path in (("POST", "/v1/predict"), ("PUT", "/v1/dial"), ("POST", "/v1/observe")):
        headers = token | {"Content-Type": "application/json"}
        answer = ask.request(method, path, content=body, headers=headers)
        assert answer.status_code == 422
        assert "Zaphod" not in answer.text


def test_infinity_written_as_a_number_is_refused(ask, case):
    row = json.dumps(case.rows(0, 1)[0] | {"tolerance": 0.1})
    age = json.dumps(case.features[0]["age"])
    for text in (row.replace(f'"age": {age}', '"age": 1e999'), row.replace("0.1", "1e999")):
        answer = ask.post(
            "/v1/predict",
            content=f'{{"rows": [{text}]}}',
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code == 422


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_read(kind, ask, case, token):
    """A page of somebody else's can send other types without asking first."""
    for method, path in (("POST", "/v1/predict"), ("PUT", "/v1/dial"), ("POST", "/v1/observe")):
        headers = token | ({} if kind is None else {"Content-Type": kind})
        content = json.dumps({"rows": case.rows(0, 1)}).encode()
        answer = ask.request(method, path, content=content, headers=headers)
        assert answer.status_code == 415


def test_the_type_of_json_may_have_a_charset(ask, case):
    answer = ask.post(
        "/v1/predict",
        content=json.dumps({"rows": case.rows(0, 1)}),
        headers={"Content-Type": "Application/JSON; charset=utf-8"},
    )
    assert answer.status_code == 200


def test_too_many_bytes_are_refused_however_they_come(ask, token):
    async def parts():
        for _ in range(3):
            yield b" " * (MOST_BYTES // 2)

    for method, path in (("POST", "/v1/predict"), ("PUT", "/v1/dial"), ("POST", "/v1/observe")):
        headers = token | {"Content-Type": "application/json"}
        for content in (b" " * (MOST_BYTES + 1), parts()):
            answer = ask.request(method, path, content=content, headers=headers)
            assert answer.status_code == 413
        answer = ask.request(method, path, content=b" " * MOST_BYTES, headers=headers)
        assert answer.status_code == 422


def test_too_many_rows_are_refused(ask, case):
    rows = case.rows(0, 1) * (requests.MOST_ROWS + 1)
    assert ask.post("/v1/predict", json={"rows": rows}).status_code == 422
    assert ask.post("/v1/observe", json={"rows": rows}).status_code == 422
    assert ask.post("/v1/predict", json={"rows": rows[1:]}).status_code == 200
    scores = {"scores": [0.0] * (requests.MOST_SCORES + 1)}
    scores["groups"] = ["north"] * (requests.MOST_SCORES + 1)
    assert ask.post("/v1/observe", json=scores).status_code == 422


def test_a_row_that_cant_be_scored_is_refused_and_not_repeated(cases, client):
    case = cases("array")  # logistic regression knows no missing values
    answer = client(case).post("/v1/predict", json={"rows": [{"features": [12345.5, None, 1]}]})
    assert answer.status_code == 422
    assert "12345" not in answer.text


def test_unknown_paths_and_methods_have_the_same_error_body(ask):
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("GET", "/static/nothing.js", 404),
        ("GET", "/static/../app.py", 404),
        ("GET", "/static/%2e%2e/app.py", 404),
        ("PUT", "/v1/predict", 405),
        ("DELETE", "/v1/dial", 405),
        ("GET", "/docs", 404),
        ("GET", "/redoc", 404),
    ):
        answer = ask.request(method, path)
        assert answer.status_code == status, path
        assert set(answer.json()) == {"detail", "request"}


def test_internal_errors_have_an_id_and_log_no_data(ask, case, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError(f"a message with {SECRET}")

    monkeypatch.setattr(Service, "predict", broken)
    answer = ask.post("/v1/predict", json={"rows": case.rows(0, 1)})
    assert answer.status_code == 500
    request = answer.json()["request"]
    assert answer.headers["x-request-id"] == request
    assert request in caplog.text
    assert "RuntimeError" in caplog.text
    for part in (SECRET, "message"):
        assert part not in answer.text
        assert part not in caplog.text
    assert "Traceback" not in answer.text


# ---- every answer ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*GETS, "/static/app.js", "/nowhere", "/openapi.json"])
def test_every_answer_has_the_security_headers(path, ask):
    headers = ask.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert len(headers["x-request-id"]) == 16
    assert headers["cache-control"] == ("no-cache" if "static" in path else "no-store")


def test_request_ids_differ(ask):
    assert len({ask.get("/healthz").headers["x-request-id"] for _ in range(20)}) == 20


def test_a_local_server_answers_to_its_own_names_only(case, client):
    ask = client(case, hosts=("localhost", "127.0.0.1", "[::1]", "dial.example"))
    for host, good in (
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("dial.example", True),
        ("attacker.example", False),
        ("localhost.attacker.example", False),
        ("", False),
    ):
        answer = ask.get("/v1/dial", headers={"Host": host})
        assert (answer.status_code == 200) == good, host
        assert good or answer.status_code == 421


def test_the_page_and_its_document_are_served(ask, case):
    page = ask.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "<!DOCTYPE html>" in page.text
    assert "://" not in page.text.replace("http://www.w3.org", "")
    script = ask.get("/static/app.js")
    assert script.headers["content-type"].startswith("text/javascript")
    for coding in ("gzip", "identity"):
        answer = ask.get("/v1/frontier", headers={"Accept-Encoding": coding})
        assert answer.headers.get("content-encoding", "identity") == coding
        assert answer.json()["format"] == "fairdial.page"
        assert answer.json()["name"] == case.folder.name
        assert answer.json()["rows"] == case.model.frontier_.counts.tolist()


def test_metrics_are_counted(ask, case, token):
    data = ask.post("/v1/predict", json={"rows": case.rows(0, 40)}).json()
    ask.post("/v1/predict", json={"rows": case.rows(40, 41)})
    ask.get("/nowhere")
    ask.put("/v1/dial", json={"tolerance": 0.25, "reason": "x"}, headers=token)
    answer = ask.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = dict(line.rpartition(" ")[::2] for line in answer.text.splitlines() if line[0] != "#")
    assert lines['fairdial_requests_total{path="/v1/predict",status="200"}'] == "2.0"
    assert lines['fairdial_requests_total{path="other",status="404"}'] == "1.0"
    assert lines['fairdial_request_seconds_count{path="/v1/predict"}'] == "2.0"
    assert lines["fairdial_dial_tolerance"] == "0.25"
    assert lines["fairdial_dial_version"] == "2.0"
    decided = {k: float(v) for k, v in lines.items() if "decisions_total" in k}
    assert sum(decided.values()) == 41
    for group in ("north", "south", "east"):
        for label in (0, 1):
            want = sum(
                row["decision"] == label and sent["group"] == group
                for row, sent in zip(data["rows"], case.rows(0, 40), strict=True)
            )
            key = f'fairdial_decisions_total{{group="{group}",label="{label}"}}'
            assert decided.get(key, 0.0) - want in (0.0, 1.0)
