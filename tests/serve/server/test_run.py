"""The start of a server: what is checked, and which tolerance is in effect."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import resource
import socket
import sqlite3
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from fairdial import (
    CannotCertifyError,
    FairBayes,
    FairdialWarning,
    InvalidInputError,
    MissingExtraError,
    ModelFileError,
)
from fairdial.cli import main
from fairdial.cli.output import Output
from fairdial.datasets import make_gaussian
from fairdial.serve.audit import AuditLog
from fairdial.serve.run import (
    CONNECTIONS,
    OTHER_FILES,
    find_port,
    known_hosts,
    most_connections,
    need_libraries,
)
from fairdial.serve.startup import describe_start, make_app
from fairdial.serve.tokens import find_token, find_tokens

UNUSED = r"`tolerance=0\.2`.*0\.05.*version"


@pytest.fixture
def case(cases):
    return cases("pipeline")


def entries(path):
    log = AuditLog(path, write=False)
    found = log.entries(99)[::-1]
    log.close()
    return found


# ---- the token ---------------------------------------------------------------------------------


def test_without_a_token_nothing_is_served_unless_read_only(case, settings, monkeypatch):
    monkeypatch.delenv("FAIRDIAL_TOKEN")
    with pytest.raises(InvalidInputError, match=r"FAIRDIAL_TOKEN.*`read_only") as refused:
        settings(case)
    assert refused.value.argument == "token_env"
    assert settings(case, read_only=True, audit=None).audit is None


@pytest.mark.parametrize("token", ["", "short", " with-spaces-around-it ", "ümlaut-in-the-token"])
def test_an_invalid_token_is_refused_and_not_repeated(token):
    with pytest.raises(InvalidInputError, match="NAME") as refused:
        find_token("NAME", {"NAME": token})
    assert not token or token not in str(refused.value)


def test_a_token_for_observations_only_is_optional_and_checked():
    both = {"A": "x" * 16, "FAIRDIAL_OBSERVE_TOKEN": "y" * 16}
    assert find_tokens("A", both, needed=True) == ("x" * 16, "y" * 16)
    assert find_tokens("A", {}, needed=False) == (None, None)
    with pytest.raises(InvalidInputError, match="FAIRDIAL_OBSERVE_TOKEN"):
        find_tokens("A", both | {"FAIRDIAL_OBSERVE_TOKEN": "short"}, needed=True)
    with pytest.raises(InvalidInputError, match=r"\bA\b"):
        find_tokens("A", {"A": "short"}, needed=False)


def test_the_token_comes_from_the_variable_that_is_named():
    assert find_token("A", {"A": "x" * 16, "B": "y" * 16}) == "x" * 16


# ---- where the dial stands ---------------------------------------------------------------------


def test_the_first_start_records_the_tolerance(case, settings, tmp_path):
    settings(case)
    settings(case)
    (entry,) = entries(tmp_path / "audit.sqlite")
    assert (entry.tolerance, entry.confidence, entry.who) == (0.1, None, "server")
    assert entry.gap == case.model.frontier_.at(0.1).gap
    assert entry.model == case.model.model_hash_


def test_a_tolerance_is_used_until_somebody_changes_the_dial(
    case, settings, client, token, tmp_path
):
    settings(case, tolerance=0.3)
    settings(case)
    settings(case, tolerance=0.4)
    found = entries(tmp_path / "audit.sqlite")
    assert [entry.tolerance for entry in found] == [0.3, 0.4]
    assert (found[1].who, found[1].reason) == ("server", "started with tolerance 0.4")
    ask = client(case)
    ask.put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    with pytest.warns(FairdialWarning, match=UNUSED):
        settings(case, tolerance=0.2)
    assert entries(tmp_path / "audit.sqlite")[-1].tolerance == 0.05


def test_a_start_reports_the_tolerance_and_its_source(case, settings, client, token):
    def numbers(**options):
        return re.findall(r"\d[\d.]*\b", describe_start(settings(case, **options)))

    assert numbers(read_only=True, audit=None) == ["0.1"]
    assert numbers(read_only=True, audit=None, tolerance=0.3) == ["0.3", "0.1"]
    assert numbers() == ["0.1", "1"]  # and the version
    client(case).put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    assert numbers(tolerance=0.05) == ["0.05", "2", "0.1"]


def test_a_tolerance_that_is_ignored_warns(case, settings, client, token):
    client(case).put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    for read_only in (False, True):
        with pytest.warns(FairdialWarning, match=UNUSED):
            settings(case, tolerance=0.2, read_only=read_only)
    settings(case, tolerance=0.05)  # no warning: it is in effect


def test_the_servers_name_is_reserved(case, client, token):
    ask = client(case)
    body = {"tolerance": 0.05, "reason": "x", "by": " Server "}
    assert ask.put("/v1/dial", json=body, headers=token).status_code == 422
    assert ask.get("/v1/dial").json()["version"] == 1


def test_an_altered_log_is_refused(case, settings, client, token, tmp_path):
    ask = client(case)
    ask.put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    data = ask.get("/v1/audit").json()
    assert data["altered"] is None
    assert len({entry["hash"] for entry in data["entries"]}) == 2
    file = sqlite3.connect(tmp_path / "audit.sqlite")
    file.execute("DROP TRIGGER audit_unchanged")
    file.execute("UPDATE audit SET who = 'somebody else' WHERE version = 2")
    file.commit()
    file.close()
    assert ask.get("/v1/audit").json()["altered"] == 2
    for read_only in (False, True):
        with pytest.raises(InvalidInputError, match="entry 2"):
            settings(case, read_only=read_only)


def test_another_model_is_recorded_and_keeps_the_dial(case, cases, settings, tmp_path):
    settings(case, tolerance=0.3)
    settings(cases("network"))
    first, second = entries(tmp_path / "audit.sqlite")
    assert (second.who, second.tolerance) == ("server", 0.3)
    assert second.model != first.model


def test_a_higher_confidence_is_recorded(cases, settings, tmp_path):
    case = cases("network")
    settings(case, tolerance=0.6)
    settings(case, confidence=0.9)
    settings(case, confidence=0.8)  # the log's own is higher
    _, second = entries(tmp_path / "audit.sqlite")
    assert (second.tolerance, second.confidence) == (0.6, 0.9)


def test_a_dial_that_cant_be_certified_is_refused_before_anything_is_recorded(
    cases, settings, tmp_path
):
    case = cases("network")
    with pytest.raises(CannotCertifyError, match=r"0\.01\b.*another `tolerance`"):
        settings(case, tolerance=0.01, confidence=0.95)
    assert not (tmp_path / "audit.sqlite").exists()
    (tmp_path / "audit.sqlite").touch()  # an empty file is as good as none
    settings(case, tolerance=0.01)
    with pytest.raises(CannotCertifyError, match=r"0\.01\b.*another `tolerance`"):
        settings(case, confidence=0.95)
    assert len(entries(tmp_path / "audit.sqlite")) == 1
    log = AuditLog(tmp_path / "audit.sqlite")
    log.append(tolerance=0.02, who="Ann", reason="x", model=case.model.model_hash_)
    log.close()
    with (
        pytest.warns(FairdialWarning, match=r"`tolerance=0\.6`"),
        pytest.raises(CannotCertifyError, match="another `audit`"),
    ):
        settings(case, tolerance=0.6, confidence=0.95)


def test_the_log_is_beside_the_model_by_default(case, settings):
    made = settings(case, audit=None)
    assert made.audit == f"{case.folder}.audit.sqlite"
    assert made.observed == f"{case.folder}.audit.sqlite.observed"
    (case.folder.parent / f"{case.folder.name}.audit.sqlite").unlink()


def test_a_read_only_server_leaves_no_file_beside_the_log(case, client, token, tmp_path):
    client(case).close()
    folder = tmp_path / "logs"
    folder.mkdir()
    (tmp_path / "audit.sqlite").rename(folder / "audit.sqlite")
    reader = client(case, read_only=True, audit=folder / "audit.sqlite")
    assert reader.get("/v1/dial").json()["version"] == 1
    assert [path.name for path in folder.iterdir()] == ["audit.sqlite"]
    writer = client(case, audit=folder / "audit.sqlite")  # starts later, and is followed
    writer.put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    assert reader.get("/v1/dial").json()["version"] == 2
    writer.close()
    assert reader.get("/v1/dial").json()["version"] == 2
    reader.close()
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["audit.sqlite", "audit.sqlite.observed"]  # the writer's counts


def test_a_read_only_server_writes_nothing_beside_the_model(case, settings, tmp_path):
    made = settings(case, read_only=True, audit=None)
    assert made.audit is None
    assert made.observed.startswith(str(tmp_path))
    with pytest.raises(InvalidInputError) as refused:
        settings(case, read_only=True, audit=tmp_path / "none.sqlite")
    assert refused.value.argument == "audit"


# ---- the model ---------------------------------------------------------------------------------


def test_a_folder_without_a_model_is_refused(tmp_path, case, settings):
    with pytest.raises(ModelFileError):
        settings(type(case)(tmp_path, None, None, None))


def test_a_model_must_be_calibrated(tmp_path, case, settings):
    sample = make_gaussian(500, random_state=0)
    model = FairBayes(LogisticRegression(), calibration=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(sample.X, sample.y, sensitive_features=sample.groups)
    model.save(tmp_path / "model")
    with pytest.raises(InvalidInputError) as refused:
        settings(type(case)(tmp_path / "model", None, None, None))
    assert refused.value.argument == "model"


def saved(folder, classifier):
    """A saved model, a request for decisions on ten rows, and the decisions."""
    sample = make_gaussian(600, random_state=0)
    model = FairBayes(classifier, tolerance=0.1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(sample.X, sample.y, sensitive_features=sample.groups)
    model.save(folder)
    X, groups = sample.X[:10], sample.groups[:10]
    records = X.to_dict("records")
    rows = [{"features": x, "group": a} for x, a in zip(records, groups.tolist(), strict=True)]
    decided = model.predict(X, sensitive_features=groups).tolist()
    return SimpleNamespace(folder=folder), {"rows": rows}, decided


def decisions(answer):
    return [row["decision"] for row in answer.json()["rows"]]


def test_types_outside_the_list_are_served_if_they_are_trusted(client, settings, tmp_path):
    case, asked, decided = saved(tmp_path / "model", KNeighborsClassifier(30))
    with pytest.raises(ModelFileError) as caught:
        settings(case)
    names = ast.literal_eval(re.search(r"trusted=(\[.*?\])", str(caught.value))[1])
    server = client(case, trusted=tuple(names))
    assert decisions(server.post("/v1/predict", json=asked)) == decided
    assert "trust" in [option.name for option in main.get_command(None, "serve").params]


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
def test_boosters_of_other_libraries_are_served_without_trust(client, tmp_path, library):
    module = pytest.importorskip(library)
    classifier = {
        "lightgbm": lambda: module.LGBMClassifier(n_estimators=5, verbose=-1),
        "xgboost": lambda: module.XGBClassifier(n_estimators=5),
        "catboost": lambda: module.CatBoostClassifier(
            iterations=5, verbose=0, allow_writing_files=False
        ),
    }[library]()
    case, asked, decided = saved(tmp_path / "model", classifier)
    assert decisions(client(case).post("/v1/predict", json=asked)) == decided


def test_the_signature_is_checked(tmp_path, case, settings):
    key, other = tmp_path / "key", tmp_path / "other"
    key.write_bytes(b"k" * 32)
    other.write_bytes(b"o" * 32)
    case.model.save(tmp_path / "signed", key=key)
    signed = type(case)(tmp_path / "signed", None, None, None)
    make_app(settings(signed, key=key))
    for wrong in (signed, case):
        with pytest.raises(ModelFileError, match=r"manifest\.sig"):
            settings(wrong, key=other)


def test_a_model_that_is_replaced_meanwhile_is_not_served(tmp_path, cases, settings):
    case = cases("pipeline")
    case.model.save(tmp_path / "model")
    made = settings(type(case)(tmp_path / "model", None, None, None))
    cases("network").model.save(tmp_path / "model", overwrite=True)
    with pytest.raises(InvalidInputError) as refused:
        make_app(made)
    assert refused.value.argument == "model"


# ---- places ------------------------------------------------------------------------------------


ELSEWHERE = "192.0.2.1"  # an address of documentation, which no machine has


def test_an_address_of_another_machine_is_refused():
    with socket.socket() as trial, contextlib.suppress(OSError):
        trial.bind((ELSEWHERE, 0))
        pytest.skip("this system allows to listen on addresses that it hasn't (ip_nonlocal_bind)")
    with pytest.raises(InvalidInputError, match=ELSEWHERE):
        find_port(ELSEWHERE, 0)


def test_a_port_that_is_taken_or_none_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidInputError, match=str(taken.getsockname()[1])):
            find_port("127.0.0.1", taken.getsockname()[1])
    for port in (-1, 1 << 16, "80", True):
        with pytest.raises(InvalidInputError) as refused:
            find_port("127.0.0.1", port)
        assert refused.value.argument == "port"
    assert 0 < find_port("127.0.0.1", 0) < 1 << 16


def test_host_names_are_checked_on_local_servers_or_if_given():
    local = ("localhost", "127.0.0.1", "[::1]")
    for host in ("127.0.0.1", "localhost", "127.0.0.2"):
        assert set(known_hosts(host, ())) == {*local, host}
    assert set(known_hosts("::1", ())) == set(local)
    assert known_hosts("0.0.0.0", ()) is None
    assert set(known_hosts("0.0.0.0", ("dial.example",))) == {*local, "0.0.0.0", "dial.example"}


# ---- the page's names --------------------------------------------------------------------------


def test_the_page_uses_the_given_names(cases, client):
    case = cases("per group")  # groups are numbers
    names = {"name": "Loans", "people": {"1": "women"}, "labels": ("refused", "granted")}
    page = client(case, **names).get("/v1/frontier").json()
    assert page["name"] == "Loans"
    assert page["groups"] == [{"name": "0", "people": None}, {"name": "1", "people": "women"}]
    assert page["labels"] == {"negative": "refused", "positive": "granted"}


def test_unknown_groups_are_refused(case, settings, tmp_path):
    with pytest.raises(InvalidInputError, match=r"`people`.*'west'"):
        settings(case, people={"west": "westerners"})
    assert not (tmp_path / "audit.sqlite").exists()


# ---- the command -------------------------------------------------------------------------------


def test_the_command_says_what_is_wrong_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRDIAL_TOKEN", "x" * 20)
    for options, named in (
        ([tmp_path / "nothing", "--port", "0"], "MODEL"),
        ([tmp_path, "--port", "0"], "MODEL"),
        ([tmp_path, "--port", "0"], "manifest.json"),
        ([tmp_path, "--port", "http"], "'http'"),
        ([tmp_path / "nothing", "--people", "women"], "'women'"),
        ([tmp_path / "nothing", "--token-env", "UNSET"], "UNSET"),
    ):
        done = CliRunner().invoke(main, ["serve", *map(str, options)])
        assert done.exit_code == 2
        assert named in done.output
        assert "Loading" not in done.output
        assert "Traceback" not in done.output


def test_fast_checks_come_before_the_libraries_are_loaded(tmp_path):
    code = (
        "import os, socket, sys\n"
        "from click.testing import CliRunner\n"
        "from fairdial.cli import main\n"
        "taken = socket.socket(); taken.bind(('127.0.0.1', 0)); taken.listen()\n"
        "port = str(taken.getsockname()[1])\n"
        "for token, named in (('', 'FAIRDIAL_TOKEN'), ('x' * 20, port)):\n"
        "    os.environ['FAIRDIAL_TOKEN'] = token\n"
        "    done = CliRunner().invoke(main, ['serve', sys.argv[1], '--port', port])\n"
        "    assert named in done.output and 'Loading' not in done.output, done.output\n"
        "print(sorted({'numpy', 'sklearn', 'fastapi', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_tolerance_that_cant_be_certified_ends_with_exit_code_1(cases, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRDIAL_TOKEN", "x" * 20)
    folder, audit = str(cases("network").folder), str(tmp_path / "audit.sqlite")
    asked = ["--tolerance", "0.001", "--confidence", "0.99"]
    for command in (["serve", folder, "--port", "0", "--audit", audit], ["dial", folder]):
        done = CliRunner().invoke(main, [*command, *asked])
        assert done.exit_code == 1, done.output
        assert "0.001" in done.output


def test_the_address_is_announced_once_the_server_listens(cases, tmp_path, monkeypatch):
    """As JSON on stdout if asked for, otherwise on stderr."""
    monkeypatch.setenv("FAIRDIAL_TOKEN", "x" * 20)
    listened, announced = [], []

    def listen_late(host, port, *_):
        time.sleep(0.2)
        listened.append(time.monotonic())
        with socket.create_server((host, port)) as server:
            with server.accept()[0] as asking:
                asking.recv(4096)
                assert not announced
                asking.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            time.sleep(0.2)

    announce = Output.result, Output.note

    def timed(shown):
        def show(self, message, *more):
            if "http://127.0.0.1:" in str(message):
                assert listened
                announced.append(message)
            shown(self, message, *more)

        return show

    monkeypatch.setattr("fairdial.serve.run._run", listen_late)
    for name, shown in zip(("result", "note"), announce, strict=True):
        monkeypatch.setattr(Output, name, timed(shown))
    folder = str(cases("array").folder)
    command = ["serve", folder, "--port", "0", "--audit", str(tmp_path / "audit.sqlite")]
    done = CliRunner().invoke(main, [*command, "--json"])
    data = json.loads(done.stdout)
    assert data["model"] == folder
    assert data["address"].startswith("http://127.0.0.1:")
    listened.clear()
    announced.clear()
    done = CliRunner().invoke(main, command)
    assert done.stdout == ""
    assert "http://127.0.0.1:" in done.stderr.splitlines()[-1]


def test_connections_are_fewer_than_open_files(monkeypatch):
    limits = {"now": (1024, 1024)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, found: limits.update(now=found))
    assert most_connections() == 1024 - OTHER_FILES
    limits["now"] = 1024, resource.RLIM_INFINITY
    assert most_connections() == CONNECTIONS
    assert limits["now"][0] == CONNECTIONS + OTHER_FILES
    assert most_connections() == CONNECTIONS
    limits["now"] = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    assert most_connections() == CONNECTIONS


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[serve\]'"):
        need_libraries()


def test_the_command_exists_without_the_servers_libraries():
    code = (
        "import sys, fairdial.cli.serve\n"
        "print(sorted({'fastapi', 'uvicorn', 'prometheus_client', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
