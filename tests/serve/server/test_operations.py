"""Operating a server: tokens with names, path prefixes, new models without a restart, drains."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes, InvalidInputError, load
from fairdial.serve.startup import check_root_path
from fairdial.serve.tokens import Tokens, read_tokens

TOKEN = "a-token-of-enough-letters"
ANN, BEN = "anns-own-token-0123456789", "bens-own-token-0123456789"
SERVER = "from fairdial.cli import main; main()"
PATIENCE = 120.0


def digest(token):
    return hashlib.sha256(token.encode()).hexdigest()


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# who may change the dial\n\n{digest(ANN)}  Ann Lee\n{digest(BEN)} Ben\n")
    return path


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


# ---- tokens ------------------------------------------------------------------------------------


def test_the_log_has_the_name_of_the_token(cases, client, token, people):
    ask = client(cases("array"), token_file=people)
    body = {"tolerance": 0.05, "reason": "x"}
    assert ask.put("/v1/dial", json=body, headers=bearer(ANN)).json()["who"] == "Ann Lee"
    named = body | {"by": "Ben"}
    assert ask.put("/v1/dial", json=named, headers=bearer(BEN)).json()["who"] == "Ben"
    assert ask.put("/v1/dial", json=named, headers=bearer(ANN)).status_code == 422
    for other in ("Ben", "ANN LEE"):  # the shared token can't speak for them
        answer = ask.put("/v1/dial", json=body | {"by": other}, headers=token)
        assert answer.status_code == 422
    assert ask.put("/v1/dial", json=body | {"by": "Eve"}, headers=token).json()["who"] == "Eve"
    for wrong in (digest(ANN), ANN[:-1], ANN + "x", ""):
        assert ask.put("/v1/dial", json=body, headers=bearer(wrong)).status_code == 401
    names = [entry["who"] for entry in ask.get("/v1/audit").json()["entries"]]
    assert names == ["Eve", "Ben", "Ann Lee", "server"]


def test_tokens_with_names_are_enough(cases, client, people, monkeypatch, settings):
    made = settings(cases("array"), token_file=people)
    monkeypatch.delenv("FAIRDIAL_TOKEN")
    ask = client(cases("array"), token_file=made.token_file, open_observe=False)
    assert ask.delete("/v1/observe", headers=bearer(BEN)).status_code == 200
    assert ask.delete("/v1/observe", headers=bearer(TOKEN)).status_code == 401


def test_a_token_for_observations_does_nothing_else():
    tokens = Tokens(owner=None, observer=TOKEN)
    assert tokens.find(f"Bearer {TOKEN}", to_observe=True) == (True, None)
    assert tokens.find(f"Bearer {TOKEN}") == (False, None)
    assert tokens.allow(to_observe=True)
    assert not tokens.allow()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nobody\n",
        f"{ANN}  Ann\n",
        f"{digest(ANN)[:-1]}  Ann\n",
        f"{digest(ANN)}\n",
        f"{digest(ANN)}  Server\n",
        f"{digest(ANN)}  {'A' * 101}\n",
        f"{digest(ANN)}  Ann\n{digest(ANN)}  Ben\n",
        f"{digest(ANN)}  Ann\n{digest(BEN)}  Ann\n",
        f"{digest(ANN)}  \N{CYRILLIC CAPITAL LETTER A}nn\n",
    ],
)
def test_a_file_that_names_nobody_clearly_is_refused(text, tmp_path):
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InvalidInputError) as refused:
        read_tokens(path)
    assert refused.value.argument == "token_file"


# ---- path prefix -------------------------------------------------------------------------------


def test_a_prefix_may_be_kept_or_stripped_by_the_proxy(cases, client):
    case = cases("array")
    ask = client(case, root_path="/team/dial/")
    rows = {"rows": [{"features": row["features"]} for row in case.rows(0, 2)]}
    plain = ask.post("/v1/predict", json=rows)
    kept = ask.post("/team/dial/v1/predict", json=rows)
    assert plain.content == kept.content
    assert ask.get("/team/dial/").text == ask.get("/").text
    assert ask.get("/team/dial/static/app.js").status_code == 200
    moved = ask.get("/team/dial")
    assert (moved.status_code, moved.headers["location"]) == (308, "/team/dial/")
    for other in ("/team/dialv1/dial", "/team", "/dial/v1/dial", "/team/dial/team/dial/"):
        assert ask.get(other).status_code == 404
    (server,) = ask.get("/team/dial/openapi.json").json()["servers"]
    assert server["url"] == "/team/dial"
    text = ask.get("/team/dial/metrics").text
    assert 'path="/v1/predict",status="200"} 2.0' in text  # one name, with the prefix or not


@pytest.mark.parametrize("path", ["/a b", "/a//b", "/ä", "/a?b", "/a\n", 'https://x/"'])
def test_a_prefix_must_be_a_path(path):
    with pytest.raises(InvalidInputError) as refused:
        check_root_path(path)
    assert refused.value.argument == "root_path"


# ---- a new model -------------------------------------------------------------------------------


class Running:
    """A server in a process of its own."""

    def __init__(self, process, port, lines):
        self.process, self.port, self.lines = process, port, lines

    def ask(self, method, path, body=None, token=TOKEN):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json", **bearer(token)}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def wait_for(self, condition):
        until = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < until, "".join(self.lines)
            time.sleep(0.02)


@contextmanager
def serving(folder, *options, code=SERVER):
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(folder), "--port", "0", *map(str, options)],
        env={**os.environ, "FAIRDIAL_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = []
    try:
        for line in iter(process.stderr.readline, ""):
            lines.append(line)
            if "http://127.0.0.1:" in line:
                break
        else:
            raise AssertionError("".join(lines))
        reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        reader.start()
        yield Running(process, urlsplit(line.rpartition(" ")[2].strip()).port, lines)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        reader.join()
        process.stderr.close()
    assert process.returncode in (-signal.SIGTERM, 0)


def train(folder, seed, **options):
    """A model of one number, whose decisions depend on the seed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(600, 2))
    groups = np.where(X[:, 1] > 0, "a", "b")
    y = X[:, 0] + rng.normal(size=600) > 0.2 * seed
    model = FairBayes(LogisticRegression(), tolerance=0.3, random_state=seed, **options)
    model.fit(X, y.astype(int), sensitive_features=groups)
    model.save(folder, overwrite=Path(folder).exists())
    return load(folder).model_hash_


@pytest.mark.parametrize("workers", [1, 2])
def test_a_new_model_is_served_without_dropping_a_request(workers, tmp_path):
    folder = tmp_path / "model"
    old = train(folder, 1)
    row = {"rows": [{"features": [0.3, 1.0], "group": "a"}]}
    with serving(folder, "--workers", workers) as server:
        status, dial = server.ask("PUT", "/v1/dial", {"tolerance": 0.17, "reason": "x"})
        assert status == 200
        seen, stop = [], threading.Event()

        def look():
            while not stop.is_set():
                status, answer = server.ask("POST", "/v1/predict", row)
                seen.append((status, answer.get("model"), answer.get("version")))

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        server.wait_for(lambda: len(seen) > 5)
        new = train(folder, 2)
        server.reload()
        server.wait_for(lambda: [model for _, model, _ in seen[-8:]] == [new] * 8)
        stop.set()
        for thread in threads:
            thread.join()
        assert {status for status, _, _ in seen} == {200}
        assert {model for _, model, _ in seen} == {old, new}
        _, dial = server.ask("GET", "/v1/dial")
        assert (dial["tolerance"], dial["version"], dial["model"]) == (0.17, 3, new)
        _, audit = server.ask("GET", "/v1/audit")
        assert [entry["model"] for entry in audit["entries"]] == [new, old, old]
        assert audit["entries"][0]["who"] == "server"


def test_a_model_for_which_the_dial_means_something_else_is_refused(tmp_path, people):
    folder, broken = tmp_path / "model", tmp_path / "away"
    old = train(folder, 1)
    with serving(folder, "--token-file", people) as server:

        def refusals():
            return sum("not reloaded" in line for line in server.lines)

        train(folder, 2, criterion="equal_opportunity", calibration=0.6)
        server.reload()
        server.wait_for(lambda: refusals() == 1)
        shutil.move(folder, broken)
        server.reload()
        server.wait_for(lambda: refusals() == 2)
        status, answer = server.ask("GET", "/readyz")
        assert (status, answer["model"], answer["version"]) == (200, old, 1)
        train(folder, 1)
        people.write_text(f"{digest(BEN)}  Ben\n")  # Ann has left
        server.reload()
        body = {"tolerance": 0.05, "reason": "x"}
        server.wait_for(lambda: server.ask("PUT", "/v1/dial", body, ANN)[0] == 401)
        assert server.ask("PUT", "/v1/dial", body, BEN)[1]["who"] == "Ben"


SLOW = (
    "import time\n"
    "from fairdial.serve.service import Service\n"
    "real = Service.predict\n"
    "Service.predict = lambda *given: time.sleep(1.5) or real(*given)\n"
)


def test_a_terminated_server_answers_what_it_has_begun(tmp_path):
    folder = tmp_path / "model"
    train(folder, 1)
    row = {"rows": [{"features": [0.3, 1.0], "group": "a"}]}
    found = []
    with serving(folder, code=SLOW + SERVER) as server:
        asking = threading.Thread(
            target=lambda: found.append(server.ask("POST", "/v1/predict", row))
        )
        asking.start()
        time.sleep(0.7)
        server.process.send_signal(signal.SIGTERM)
        asking.join()
    assert [status for status, _ in found] == [200]


# ---- behind nginx ------------------------------------------------------------------------------

HOST = "dial.example.org"


def configuration(folder, port, upstreams, *, change=lambda text: text):
    """The documented block, with this test's addresses."""
    page = Path(__file__).parents[3] / "docs" / "serving.md"
    (block,) = re.findall(r"```nginx\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    for number, upstream in zip((8000, 8001), upstreams, strict=True):
        block = block.replace(f"127.0.0.1:{number}", f"127.0.0.1:{upstream}")
    block = block.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    block = change(block.replace("/etc/ssl", str(folder)))
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    return (
        f"{user} daemon off; pid {folder}/pid; error_log {folder}/errors; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{block} }}\n"
    )


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def nginx(tmp_path):
    """Starts nginx with the documented configuration; returns a client that trusts it."""
    program = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if program is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    names = f"/CN={HOST}", f"subjectAltName=DNS:{HOST}"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", names[0], "-addext", names[1]),
            *("-keyout", str(tmp_path / "dial.key"), "-out", str(tmp_path / "dial.crt")),
        ],
        check=True,
        capture_output=True,
    )
    started = []

    def start(upstreams, **options):
        port = free_port()
        path = tmp_path / f"nginx-{port}.conf"
        path.write_text(configuration(tmp_path, port, upstreams, **options))
        started.append(subprocess.Popen([program, "-p", str(tmp_path), "-c", str(path)]))
        trust = ssl.create_default_context(cafile=str(tmp_path / "dial.crt"))

        def ask(method, path, **options):
            headers = {"Host": HOST} | options.pop("headers", {})
            with httpx.Client(verify=trust, base_url=f"https://127.0.0.1:{port}") as one:
                return one.request(
                    method, path, headers=headers, extensions={"sni_hostname": HOST}, **options
                )

        until = time.monotonic() + PATIENCE
        while True:
            try:
                ask("GET", "/")
                return ask
            except httpx.TransportError:
                assert time.monotonic() < until, (tmp_path / "errors").read_text()
                time.sleep(0.05)

    yield start
    for process in started:
        process.terminate()
        process.wait(30)


def test_the_documented_proxy_serves_page_and_api_over_tls_below_a_path(nginx, tmp_path):
    train(tmp_path / "model", 1)
    row = {"rows": [{"features": [0.3, 1.0], "group": "a"}]}
    local = "allow 10.0.0.0/8", "allow 127.0.0.1"
    with serving(tmp_path / "model", "--root-path", "/dial", "--allow-host", HOST) as server:
        direct = server.ask("POST", "/v1/predict", row)[1]
        both = server.port, free_port()  # nobody listens at the second
        for change in (
            lambda text: text.replace(*local),
            lambda text: (
                text.replace(*local)  # the prefix is stripped
                .replace("proxy_pass http://dial;", "proxy_pass http://dial/;", 1)
                .replace("proxy_pass http://dial;", "proxy_pass http://dial/v1/predict;")
            ),
        ):
            ask = nginx(both, change=change)
            assert "<title>" in ask("GET", "/dial/").text
            assert ask("GET", "/dial").headers["location"].endswith("/dial/")
            for path in ("static/app.js", "readyz", "openapi.json", "v1/frontier"):
                assert ask("GET", f"/dial/{path}").status_code == 200
            answers = [ask("POST", "/dial/v1/predict", json=row) for _ in range(6)]
            assert [answer.status_code for answer in answers] == [200] * 6
            assert answers[0].json() == direct
            body = {"tolerance": 0.2, "reason": "x"}
            assert ask("PUT", "/dial/v1/dial", json=body).status_code == 401
            assert ask("PUT", "/dial/v1/dial", json=body, headers=bearer(TOKEN)).status_code == 200
            direct = server.ask("POST", "/v1/predict", row)[1]
        strict = nginx(both)  # as documented: only from another network
        assert strict("POST", "/dial/v1/predict", json=row).status_code == 403
        wrong = nginx(both, change=lambda text: text.replace("proxy_set_header Host $host;", ""))
        assert wrong("GET", "/dial/readyz").status_code == 421
