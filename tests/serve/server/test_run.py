"""What is checked before the server listens, and where the dial stands then."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import sqlite3
import subprocess
import sys
import warnings

import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

from fairdial import (
    CannotCertifyError,
    FairBayes,
    FairdialWarning,
    InvalidInputError,
    MissingExtraError,
    ModelFileError,
)
from fairdial.cli import main
from fairdial.datasets import make_gaussian
from fairdial.serve.audit import AuditLog
from fairdial.serve.run import (
    CONNECTIONS,
    OTHER_FILES,
    find_port,
    find_token,
    find_tokens,
    known_hosts,
    make_app,
    most_connections,
    need_libraries,
    say_standing,
)

UNUSED = r"isn't used: the dial stands at 0\.05, where the audit log says \(version"


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
    with pytest.raises(InvalidInputError, match=r"FAIRDIAL_TOKEN.*`read_only`"):
        settings(case)
    assert settings(case, read_only=True, audit=None).audit is None


@pytest.mark.parametrize("token", ["", "short", " with-spaces-around-it ", "ümlaut-in-the-token"])
def test_a_token_that_is_none_is_refused_and_not_repeated(token):
    with pytest.raises(InvalidInputError, match="NAME") as refused:
        find_token("NAME", {"NAME": token})
    assert not token or token not in str(refused.value)


def test_a_token_for_observations_only_is_optional_and_checked():
    both = {"A": "x" * 16, "FAIRDIAL_OBSERVE_TOKEN": "y" * 16}
    assert find_tokens("A", both, needed=True) == ("x" * 16, "y" * 16)
    assert find_tokens("A", {}, needed=False) == (None, None)
    with pytest.raises(InvalidInputError, match="FAIRDIAL_OBSERVE_TOKEN"):
        find_tokens("A", both | {"FAIRDIAL_OBSERVE_TOKEN": "short"}, needed=True)
    with pytest.raises(InvalidInputError, match="in A must"):
        find_tokens("A", {"A": "short"}, needed=False)


def test_the_token_comes_from_the_variable_that_is_named():
    assert find_token("A", {"A": "x" * 16, "B": "y" * 16}) == "x" * 16


# ---- where the dial stands ---------------------------------------------------------------------


def test_the_first_start_records_where_the_dial_stands(case, settings, tmp_path):
    settings(case)
    settings(case)
    (entry,) = entries(tmp_path / "audit.sqlite")
    assert (entry.tolerance, entry.confidence, entry.who) == (0.1, None, "server")
    assert entry.gap == case.model.frontier_.at(0.1).gap
    assert entry.model == case.model.model_hash_


def test_a_tolerance_counts_until_somebody_moves_the_dial(case, settings, client, token, tmp_path):
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


def test_a_start_says_where_the_dial_stands_and_who_says_so(case, settings, client, token):
    assert say_standing(settings(case, read_only=True, audit=None)) == (
        "The dial stands at 0.1 (the folder's own)."
    )
    made = settings(case, read_only=True, audit=None, tolerance=0.3)
    assert say_standing(made) == ("The dial stands at 0.3 (`tolerance`); the folder's own is 0.1.")
    assert say_standing(settings(case)) == "The dial stands at 0.1 (audit log, version 1)."
    client(case).put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    assert say_standing(settings(case, tolerance=0.05)) == (
        "The dial stands at 0.05 (audit log, version 2); the folder's own is 0.1."
    )


def test_a_tolerance_that_is_not_used_is_told_with_the_one_that_is(case, settings, client, token):
    client(case).put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    with pytest.warns(FairdialWarning, match=rf"^`tolerance` 0\.2 {UNUSED} 2\); move it by"):
        settings(case, tolerance=0.2)
    with pytest.warns(FairdialWarning, match=rf"{UNUSED}.*; a server that isn't read-only moves"):
        settings(case, tolerance=0.2, read_only=True)
    settings(case, tolerance=0.05)  # no warning: it stands there


def test_nobody_is_called_as_the_server_is(case, client, token):
    ask = client(case)
    body = {"tolerance": 0.05, "reason": "x", "by": " Server "}
    assert ask.put("/v1/dial", json=body, headers=token).status_code == 422
    assert ask.get("/v1/dial").json()["version"] == 1


def test_a_log_that_was_altered_is_not_followed(case, settings, client, token, tmp_path):
    ask = client(case)
    ask.put("/v1/dial", json={"tolerance": 0.05, "reason": "x"}, headers=token)
    told = ask.get("/v1/audit").json()
    assert told["altered"] is None
    assert len({entry["hash"] for entry in told["entries"]}) == 2
    file = sqlite3.connect(tmp_path / "audit.sqlite")
    file.execute("DROP TRIGGER audit_unchanged")
    file.execute("UPDATE audit SET who = 'somebody else' WHERE version = 2")
    file.commit()
    file.close()
    assert ask.get("/v1/audit").json()["altered"] == 2
    for read_only in (False, True):
        with pytest.raises(InvalidInputError, match="entry 2 was altered"):
            settings(case, read_only=read_only)


def test_another_model_is_recorded_and_keeps_the_dial(case, cases, settings, tmp_path):
    settings(case, tolerance=0.3)
    settings(cases("network"))
    first, second = entries(tmp_path / "audit.sqlite")
    assert (second.reason, second.tolerance) == (
        "the model's folder was changed, the dial was not moved",
        0.3,
    )
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
    with pytest.raises(CannotCertifyError, match=r"can't be certified.*another `tolerance`"):
        settings(case, tolerance=0.01, confidence=0.95)
    assert not (tmp_path / "audit.sqlite").exists()
    (tmp_path / "audit.sqlite").touch()  # an empty file is as good as none
    settings(case, tolerance=0.01)
    told = r"^Where the dial stands, tolerance 0\.01 can't be .*\. Start with another `tolerance`"
    with pytest.raises(CannotCertifyError, match=told):
        settings(case, confidence=0.95)
    assert len(entries(tmp_path / "audit.sqlite")) == 1
    log = AuditLog(tmp_path / "audit.sqlite")
    log.append(tolerance=0.02, who="Ann", reason="x", model=case.model.model_hash_)
    log.close()
    with (
        pytest.warns(FairdialWarning, match=r"`tolerance` 0\.6 isn't used"),
        pytest.raises(CannotCertifyError, match="`audit` of its own"),
    ):
        settings(case, tolerance=0.6, confidence=0.95)


def test_the_log_lies_beside_the_model_by_default(case, settings):
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
    with pytest.raises(InvalidInputError, match="`audit` must be a file"):
        settings(case, read_only=True, audit=tmp_path / "none.sqlite")


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
    with pytest.raises(InvalidInputError, match="`model` must be calibrated"):
        settings(type(case)(tmp_path / "model", None, None, None))


def test_a_signature_is_asked_for(tmp_path, case, settings):
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
    with pytest.raises(InvalidInputError, match="`model` must stay the same"):
        make_app(made)


# ---- places ------------------------------------------------------------------------------------


ELSEWHERE = "192.0.2.1"  # an address of documentation, which no machine has


def test_an_address_of_another_machine_is_refused():
    with socket.socket() as trial, contextlib.suppress(OSError):
        trial.bind((ELSEWHERE, 0))
        pytest.skip("this system allows to listen on addresses that it hasn't (ip_nonlocal_bind)")
    with pytest.raises(InvalidInputError, match="this machine has no such address"):
        find_port(ELSEWHERE, 0)


def test_a_port_that_is_taken_or_none_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidInputError, match=r"`host` and `port` must be free.*another pr"):
            find_port("127.0.0.1", taken.getsockname()[1])
    for port in (-1, 1 << 16, "80", True):
        with pytest.raises(InvalidInputError, match="`port`"):
            find_port("127.0.0.1", port)
    assert 0 < find_port("127.0.0.1", 0) < 1 << 16


def test_names_are_checked_where_the_server_is_local_or_names_are_given():
    local = ("localhost", "127.0.0.1", "[::1]")
    for host in ("127.0.0.1", "localhost", "127.0.0.2"):
        assert set(known_hosts(host, ())) == {*local, host}
    assert set(known_hosts("::1", ())) == set(local)
    assert known_hosts("0.0.0.0", ()) is None
    assert set(known_hosts("0.0.0.0", ("dial.example",))) == {*local, "0.0.0.0", "dial.example"}


# ---- the page's names --------------------------------------------------------------------------


def test_the_page_is_given_its_names(cases, client):
    case = cases("per group")  # groups are numbers
    names = {"name": "Loans", "people": {"1": "women"}, "labels": ("refused", "granted")}
    page = client(case, **names).get("/v1/frontier").json()
    assert page["name"] == "Loans"
    assert page["groups"] == [{"name": "0", "people": None}, {"name": "1", "people": "women"}]
    assert page["labels"] == {"negative": "refused", "positive": "granted"}


def test_names_of_groups_that_there_are_not_are_refused(case, settings, tmp_path):
    with pytest.raises(InvalidInputError, match=r"`people` must name groups among .*'west'"):
        settings(case, people={"west": "westerners"})
    assert not (tmp_path / "audit.sqlite").exists()


# ---- the command -------------------------------------------------------------------------------


def test_the_command_says_what_is_wrong_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRDIAL_TOKEN", "x" * 20)
    done = CliRunner().invoke(main, ["serve", str(tmp_path / "nothing"), "--port", "0"])
    assert done.exit_code == 2
    assert "MODEL must be a model's folder" in done.output
    assert "there is no such folder" in done.output
    assert "Loading" not in done.output
    assert "Traceback" not in done.output
    done = CliRunner().invoke(main, ["serve", str(tmp_path), "--port", "0"])
    assert "`manifest.json` must be in" in done.output
    assert "Loading" not in done.output
    done = CliRunner().invoke(main, ["serve", str(tmp_path), "--port", "http"])
    assert "'http' is not a valid whole number" in done.output
    monkeypatch.delenv("FAIRDIAL_TOKEN")
    done = CliRunner().invoke(main, ["serve", str(tmp_path / "nothing")])
    assert "FAIRDIAL_TOKEN" in done.output
    done = CliRunner().invoke(main, ["serve", str(tmp_path / "nothing"), "--people", "women"])
    assert "must be like Female=women, got 'women'" in done.output


def test_what_takes_no_time_is_checked_before_the_libraries_are_loaded(tmp_path):
    code = (
        "import os, socket, sys\n"
        "from click.testing import CliRunner\n"
        "from fairdial.cli import main\n"
        "taken = socket.socket(); taken.bind(('127.0.0.1', 0)); taken.listen()\n"
        "port = str(taken.getsockname()[1])\n"
        "for token, words in (('', 'FAIRDIAL_TOKEN'), ('x' * 20, 'must be free')):\n"
        "    os.environ['FAIRDIAL_TOKEN'] = token\n"
        "    done = CliRunner().invoke(main, ['serve', sys.argv[1], '--port', port])\n"
        "    assert words in done.output and 'Loading' not in done.output, done.output\n"
        "print(sorted({'numpy', 'sklearn', 'fastapi', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_promise_that_cant_be_made_ends_with_one_as_in_every_command(
    cases, tmp_path, monkeypatch
):
    monkeypatch.setenv("FAIRDIAL_TOKEN", "x" * 20)
    folder, audit = str(cases("network").folder), str(tmp_path / "audit.sqlite")
    wish = ["--tolerance", "0.001", "--confidence", "0.99"]
    for command in (["serve", folder, "--port", "0", "--audit", audit], ["dial", folder]):
        done = CliRunner().invoke(main, [*command, *wish])
        assert done.exit_code == 1, done.output
        assert "can't be certified" in done.output


def test_the_address_is_told_as_json_on_stdout(cases, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRDIAL_TOKEN", "x" * 20)
    monkeypatch.setattr("fairdial.serve.run._run", lambda *_: None)
    folder = str(cases("array").folder)
    wish = ["serve", folder, "--port", "0", "--audit", str(tmp_path / "audit.sqlite")]
    done = CliRunner().invoke(main, [*wish, "--json"])
    told = json.loads(done.stdout)
    assert told["model"] == folder
    assert told["address"].startswith("http://127.0.0.1:")
    done = CliRunner().invoke(main, wish)
    loading, standing, serving = done.stderr.splitlines()
    assert standing == "The dial stands at 0 (audit log, version 1)."
    assert (done.stdout, loading) == ("", f"Loading {folder} ...")
    assert serving.startswith("Serving on http://127.0.0.1:")


def test_there_are_fewer_connections_than_files_may_be_open(monkeypatch):
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


def test_the_command_is_there_without_the_servers_libraries():
    code = (
        "import sys, fairdial.cli.serve\n"
        "print(sorted({'fastapi', 'uvicorn', 'prometheus_client', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
