"""Records survive: kills, half-written files, other machines."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import lzma
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from threadpoolctl import threadpool_info, threadpool_limits

from fairdial import InvalidInputError, MissingExtraError, registry
from fairdial.bench import run as running
from fairdial.bench import store as storing
from fairdial.bench.model import make_model, read_parts
from fairdial.bench.plan import Method, Plan, make_plan, read_plan
from fairdial.bench.run import run, status
from fairdial.bench.store import (
    Store,
    code_version,
    command_line,
    config_key,
    git_state,
    pack,
    read_packed,
    trial_code,
)
from fairdial.cli import main
from fairdial.datasets.registry import DATASETS
from fairdial.paper.tarte import TarteEncoder, files

REDUCED = """
title = "reduced"
datasets = ["gaussian"]
rows = 1500
seeds = [0, 1]
settings = 3
tolerances = [0.05, 0.2]
baseline = "net"

[[methods]]
name = "net"
estimator = "FairBayes"
network = { epochs = 2, members = 1, hidden = [8], head = 4 }

[[methods]]
name = "EPO"
estimator = "EPO"
network = { epochs = 2, hidden = [8], head = 4 }

[[methods]]
name = "lines"
estimator = "FairBayes"
scorer = "logistic regression"
"""


def reduced() -> Plan:
    return make_plan(tomllib.loads(REDUCED))


def results(store: Store, plan: Plan) -> list[Any]:
    found = []
    for config in plan.trials():
        record = store.find(config)
        assert record is not None
        found.append((config_key(config), record["result"], record["warnings"]))
    return found


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Store]:
    """The reduced plan, run without a break."""
    store = Store(tmp_path_factory.mktemp("straight"))
    plan = reduced()
    assert run(plan, store, n_jobs=1).missing == 0
    return plan, store


def test_a_rerun_does_nothing(straight: tuple[Plan, Store]) -> None:
    plan, store = straight
    before = {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    assert run(plan, store, n_jobs=1) == status(plan, store)
    assert before == {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}


def test_a_trial_in_the_driver_has_one_thread_as_in_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info()}

    monkeypatch.setattr(running, "run_trial", lambda _: threads())
    config = reduced().trials()[0]
    with threadpool_limits(2):
        assert 2 in threads()
        assert list(running.run_trials([config], "loky", 1)) == [{1}]
        assert running.run_in_worker(config, {}) == {1}
        assert 2 in threads()


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty", "text", "gone"])
def test_a_damaged_record_is_found_and_done_again(
    damage: str, straight: tuple[Plan, Store], tmp_path: Path
) -> None:
    plan, whole = straight
    store = Store(tmp_path)
    for path in whole.folder.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    victim = store.path(plan.trials()[-1])
    text = victim.read_text()
    damaged = {
        "truncated": text[: len(text) // 2],
        "altered": text.replace('"seed": 1', '"seed": 2'),
        "empty": "",
        "text": "hello\nworld\n",
        "gone": None,
    }[damage]
    assert damaged != text
    victim.unlink()
    if damaged is not None:
        victim.write_text(damaged)
    assert status(plan, store).missing == 1
    assert run(plan, store, n_jobs=1).missing == 0
    assert results(store, plan) == results(whole, plan)


def test_another_code_version_is_another_record(straight: tuple[Plan, Store]) -> None:
    plan, store = straight
    config = plan.trials()[0]
    assert code_version() in store.path(config).name
    other, newer = store.path(config, "0" * 16), store.path(config, "f" * 16)
    other.write_bytes(store.path(config).read_bytes())
    moved = store.path(config)
    kept = moved.read_bytes()
    moved.unlink()
    try:
        assert store.find(config) is None
        assert len(store.records([config])) == 1
        newer.write_bytes(_by_code(other.read_bytes(), "f" * 16))
        for first, second in ((other, newer), (newer, other)):  # whatever their names sort like
            os.utime(first, (1, 1))
            os.utime(second, (2, 2))
            (found,) = store.records([config])
            assert found == store.read(second)
        moved.write_bytes(kept)
        assert store.records([config]) == [store.read(moved)]
    finally:
        moved.write_bytes(kept)
        other.unlink()
        newer.unlink(missing_ok=True)


def _by_code(record: bytes, code: str) -> bytes:
    """The same record, as if another version had written it."""
    head, body = record.decode().split("\n", 1)
    return f"{json.dumps(json.loads(head) | {'code': code})}\n{body}".encode()


def test_a_failed_trial_is_reported_kept_and_tried_again(tmp_path: Path) -> None:
    data = tomllib.loads(REDUCED)
    data["methods"][0]["network"]["learning_rate"] = 1e9
    plan, store = make_plan(data), Store(tmp_path)
    found = run(plan, store, n_jobs=1)
    assert (found.failed, found.missing) == (2, 2)
    error = store.failure(plan.trials()[0])
    assert error is not None
    assert "diverged" in error
    assert run(plan, store, n_jobs=1).failed == 2


STUDY = [sys.executable, "-m", "fairdial", "bench", "run"]


def test_a_study_killed_three_times_ends_with_the_same_records(tmp_path: Path) -> None:
    text = REDUCED.replace("seeds = [0, 1]", "seeds = [0, 1, 2, 3]")
    plan = make_plan(tomllib.loads(text))
    whole = Store(tmp_path / "whole")
    run(plan, whole, n_jobs=1)
    file, out = tmp_path / "plan.toml", tmp_path / "out"
    file.write_text(text)
    rng = random.Random(0)
    command = [*STUDY, str(file), "--out", str(out), "--jobs", "1"]
    for kill in range(3):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        seen = len(list(out.glob("records/*.json")))
        assert seen < 12
        until = time.monotonic() + 60
        while kill and len(list(out.glob("records/*"))) <= seen and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.1 if kill else 2.0))
        assert process.poll() is None  # it is at work
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert results(Store(out / "records"), plan) == results(whole, plan)
    commands = {r.get("command") for r in Store(out / "records").records(plan.trials())}
    assert commands == {"fairdial bench run plan.toml --out out --jobs 1"}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_workers_end_with_their_driver(tmp_path: Path) -> None:
    file, out = tmp_path / "plan.toml", tmp_path / "out"
    file.write_text(REDUCED.replace("epochs = 2", "patience = 9999, epochs = 9999"))
    command = [*STUDY, str(file), "--out", str(out), "--jobs", "2"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def busy(pid: int) -> list[int]:
        """Processes of this one that have used a second of processor time."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid and int(fields[11]) > os.sysconf("SC_CLK_TCK"):
                    found.append(int(path.parent.name))
        return found

    until = time.monotonic() + 90
    while len(workers := busy(process.pid)) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    assert len(workers) >= 2
    time.sleep(3.0)  # until they are in a trial
    process.kill()
    process.wait()
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < until:
        time.sleep(0.2)
    alive = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    assert not alive


def test_processes_give_the_same_records(straight: tuple[Plan, Store], tmp_path: Path) -> None:
    plan, whole = straight
    store = Store(tmp_path)
    shown: list[dict[str, Any]] = []

    class Shown:
        def __enter__(self) -> Shown:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def advance(self, record: dict[str, Any]) -> None:
            shown.append(record)

    assert run(plan, store, n_jobs=2, reporter=Shown()).missing == 0
    assert results(store, plan) == results(whole, plan)
    assert [line["done"] for line in shown] == list(range(1, 7))
    assert shown[-1]["running"] == 0


@pytest.mark.filterwarnings("ignore")  # of dask's own
def test_a_dask_cluster_gives_the_same_records(
    straight: tuple[Plan, Store], tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed")
    plan, whole = straight
    store = Store(tmp_path)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    ) as cluster:
        found = run(plan, store, backend="dask", scheduler=cluster.scheduler_address)
    assert found.missing == 0
    assert results(store, plan) == results(whole, plan)


@pytest.mark.filterwarnings("ignore")  # of ray's own
def test_ray_gives_the_same_records(straight: tuple[Plan, Store], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    plan, whole = straight
    store = Store(tmp_path)
    assert run(plan, store, backend="ray", n_jobs=2).missing == 0
    assert results(store, plan) == results(whole, plan)


def test_a_missing_library_of_a_backend_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="pip install ray"):
        run(reduced(), Store(tmp_path), backend="ray")


def test_torch_that_is_missing_is_named_before_anything_runs(
    straight: tuple[Plan, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    file, out = tmp_path / "plan.toml", tmp_path / "out"
    file.write_text(REDUCED)
    done = CliRunner().invoke(main, ["bench", "run", str(file), "--out", str(out)])
    assert done.exit_code == 1
    assert "net, EPO" in done.stderr
    assert not list(out.glob("records/*"))
    assert run(*straight, n_jobs=1).missing == 0  # what is done needs nothing more


@pytest.mark.parametrize(
    ("method", "needs"),
    [
        ({"estimator": "GFB"}, True),
        ({"estimator": "FairBayes", "scorer": "gradient boosting"}, False),
        ({"estimator": "FairBayes", "scorer": ["logistic regression", "network"]}, True),
        ({"estimator": "AutoDial"}, False),
        ({"estimator": "AutoDial", "arguments": {"candidates": ["logistic", "gfb"]}}, True),
    ],
)
def test_which_methods_need_torch(method: dict[str, Any], needs: bool) -> None:
    assert Method(name="one", **method).needs_torch is needs


def test_a_scheduler_needs_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="`scheduler`"):
        run(reduced(), Store(tmp_path), scheduler="tcp://nowhere:1")
    with pytest.raises(InvalidInputError, match="`backend`"):
        run(reduced(), Store(tmp_path), backend="slurm")


def test_a_data_set_that_cannot_be_read_is_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "records")
    monkeypatch.delenv("FAIRDIAL_DATA", raising=False)
    with pytest.raises(InvalidInputError) as caught:
        run(read_plan("paper-images"), store)
    assert (caught.value.argument, caught.value.given) == ("data", "none")
    monkeypatch.setenv("FAIRDIAL_DATA", str(tmp_path))
    with pytest.raises(InvalidInputError, match="resnet18"):
        run(read_plan("paper-images"), store)
    assert not (tmp_path / "records").exists() or not list((tmp_path / "records").iterdir())


def test_tarte_without_its_files_names_them_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRDIAL_DATA", str(tmp_path))
    method = {"name": "net", "estimator": "FairBayes", "settings": "paper", "encoder": "tarte"}
    plan = make_plan({"title": "t", "datasets": ["compas"], "seeds": [0], "methods": [method]})
    (tmp_path / "tarte_pretrained_weights.pt").write_bytes(b"")
    with pytest.raises(InvalidInputError) as caught:
        run(plan, Store(tmp_path / "records"))
    assert caught.value.argument == "data"
    assert "cc.en.300.bin" in str(caught.value)
    assert "tarte_pretrained_weights.pt" not in str(caught.value)


def test_tarte_is_read_from_the_data_folder_with_layers_for_its_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRDIAL_DATA", str(tmp_path))
    (tmp_path / "tarte").mkdir()
    for name in files.NAMES.values():
        (tmp_path / "tarte" / name).write_bytes(b"")
    sizes = dict.fromkeys(files.SIZES, 2) | {"dim_transformer": 768}
    (tmp_path / "tarte" / files.NAMES["config"]).write_text(json.dumps(sizes))
    method = {"name": "net", "estimator": "GFB", "settings": "paper", "encoder": "tarte"}
    plan = make_plan({"title": "t", "datasets": ["compas"], "seeds": [0], "methods": [method]})
    (config,) = plan.trials()
    network = make_model(config, read_parts(config)).network
    assert isinstance(network.encoder, TarteEncoder)
    assert Path(network.encoder.fasttext).parent == tmp_path / "tarte"
    assert network.hidden == (384, 192, 348)


# ---- packed records and provenance ---------------------------------------------------------------


def test_a_packed_study_has_the_same_records_in_one_file(
    straight: tuple[Plan, Store], tmp_path: Path
) -> None:
    plan, whole = straight
    store = Store(tmp_path / "records")
    store.folder.mkdir()
    for path in whole.folder.glob("*.json"):
        (store.folder / path.name).write_bytes(path.read_bytes())
    assert store.pack() == len(plan.trials())
    assert not list(store.folder.iterdir())
    assert store.records(plan.trials()) == whole.records(plan.trials())
    fresh = Store(tmp_path / "records")
    assert results(fresh, plan) == results(whole, plan)
    assert run(plan, fresh, n_jobs=1).missing == 0
    assert not list(store.folder.iterdir())  # nothing ran again
    assert fresh.pack() == len(plan.trials())
    assert read_packed(store.packed) == sorted(
        whole.records(plan.trials()), key=lambda r: whole.path(r["config"]).name
    )


@pytest.fixture
def copied(straight: tuple[Plan, Store], tmp_path: Path) -> tuple[Plan, Store]:
    """The same study in another folder."""
    plan, whole = straight
    store = Store(tmp_path / "records")
    store.folder.mkdir()
    for path in whole.folder.glob("*.json"):
        (store.folder / path.name).write_bytes(path.read_bytes())
    return plan, store


@pytest.mark.parametrize(
    ("old", "new"), [(b'"seed":1', b'"seed":2'), (b'"sha256":"', b'"sha256":"0'), (b"}", b"")]
)
def test_damaged_lines_of_a_packed_study_are_run_again(
    old: bytes, new: bytes, copied: tuple[Plan, Store]
) -> None:
    plan, store = copied
    whole = store.records(plan.trials())
    store.pack()
    lines = lzma.decompress(store.packed.read_bytes()).splitlines(keepends=True)
    bad = next(i for i, line in enumerate(lines) if old in line)
    lines[bad] = lines[bad].replace(old, new)
    store.packed.write_bytes(lzma.compress(b"".join(lines)))
    fresh = Store(store.folder)
    assert status(plan, fresh).missing == 1
    assert run(plan, fresh, n_jobs=1).missing == 0
    assert fresh.pack() == len(plan.trials())
    again = Store(store.folder).records(plan.trials())
    assert [r["result"] for r in again] == [r["result"] for r in whole]


@pytest.mark.parametrize("damage", ["truncated", "altered", "text"])
def test_a_packed_file_that_cannot_be_read_is_named_and_kept(
    damage: str, copied: tuple[Plan, Store]
) -> None:
    plan, store = copied
    store.pack()
    body = store.packed.read_bytes()
    middle = len(body) // 2
    damaged = {
        "truncated": body[:middle],
        "altered": body[:middle] + bytes([body[middle] ^ 255]) + body[middle + 1 :],
        "text": b"hello",
    }[damage]
    store.packed.write_bytes(damaged)
    fresh = Store(store.folder)
    for call in (lambda: status(plan, fresh), lambda: run(plan, fresh), fresh.pack):
        with pytest.raises(InvalidInputError, match=re.escape(str(store.packed))) as caught:
            call()
        assert caught.value.argument == "records"
    assert store.packed.read_bytes() == damaged
    out = store.folder.parent
    (out / "plan.toml").write_text(REDUCED)
    done = CliRunner().invoke(main, ["bench", "status", "--out", str(out)])
    assert done.exit_code == 2
    assert str(store.packed) in done.stderr


def test_a_damaged_file_does_not_hide_the_packed_record(copied: tuple[Plan, Store]) -> None:
    plan, store = copied
    config = plan.trials()[0]
    whole = store.find(config)
    assert whole is not None
    store.pack()
    store.path(config).write_text("half of a rec")
    assert store.find(config) == whole
    assert status(plan, Store(store.folder)).missing == 0


def test_packing_keeps_a_record_that_is_replaced_meanwhile(
    copied: tuple[Plan, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = copied
    first = store.find(plan.trials()[0])
    assert first is not None
    newer = first | {"command": "another run"}

    def pack_slowly(records: Any, path: Path) -> None:
        pack(records, path)
        store.write(newer)

    monkeypatch.setattr(storing, "pack", pack_slowly)
    assert store.pack() == len(plan.trials())
    assert list(store.folder.iterdir()) == [store.path(first["config"])]
    assert store.find(first["config"]) == newer
    monkeypatch.undo()
    assert store.pack() == len(plan.trials())
    assert store.find(first["config"]) == newer


def test_packed_records_without_a_hash_are_read(copied: tuple[Plan, Store]) -> None:
    plan, store = copied
    records = store.records(plan.trials())
    for path in store.folder.glob("*.json"):
        path.unlink()
    lines = [*map(json.dumps, records), '{"config": {}}', "[]"]
    store.packed.write_bytes(lzma.compress("\n".join(lines).encode()))
    assert read_packed(store.packed) == records
    assert Store(store.folder).records(plan.trials()) == records


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["/lib/fairdial/__main__.py", "bench", "run", "quick", "--out", "study"],
            "fairdial bench run quick --out study",
        ),
        (
            ["/bin/fairdial", "bench", "run", "/home/me/a plan.toml", "--data", "/home/me/x"],
            "fairdial bench run 'a plan.toml' --data DATA",
        ),
        (
            ["fairdial", "bench", "run", "quick", "--data=../me", "--out=/home/me/study"],
            "fairdial bench run quick --data=DATA --out=study",
        ),
        (
            ["fairdial", "bench", "run", "quick", "--data", "../me", "--jobs", "2"],
            "fairdial bench run quick --data DATA --jobs 2",
        ),
        (["/home/me/study.py"], "study.py"),
    ],
)
def test_the_command_of_a_record_has_no_private_path(
    arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    assert command_line() == expected


def test_a_record_says_what_made_it(straight: tuple[Plan, Store]) -> None:
    plan, store = straight
    (record,) = store.records(plan.trials()[:1])
    versions = record["environment"]
    for name in ("python", "numpy", "scipy", "scikit-learn", "torch", "fairdial"):
        assert versions[name][0].isdigit()
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", versions["commit"])
    assert versions["dirty"] in ("yes", "no", "unknown")
    assert record["command"]


def test_the_commit_is_that_of_the_code_and_unknown_elsewhere(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    code = tmp_path / "code"
    code.mkdir()
    assert git_state(code) == {"commit": "unknown", "dirty": "unknown"}
    (code / "one.py").write_text("x = 1")
    git("init", "-q")
    (tmp_path / "other.txt").write_text("")
    git("add", "other.txt")
    git("commit", "-qm", "another project")
    assert git_state(code)["commit"] == "unknown"  # installed inside another project's checkout
    git("add", ".")
    git("commit", "-qm", "the code")
    assert git_state(code) == {"commit": git("rev-parse", "HEAD"), "dirty": "no"}
    (code / "one.py").write_text("x = 2")
    assert git_state(code)["dirty"] == "yes"


CODE = '''"""A module."""

def double(x):
    """Return twice x."""
    return 2 * x  # why
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("A module", "The module", True),
        ("Return twice", "Double", True),
        ("# why", "# because", True),
        ("    return 2 * x", "\n    return (2 * x)", True),
        ("2 * x", "3 * x", False),
        ("def double", "def triple", False),
    ],
)
def test_the_code_version_depends_on_code_alone(
    old: str, new: str, same: bool, tmp_path: Path
) -> None:
    def version(text: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "one.py").write_text(text)
        (folder / "plotting.py").write_text(text)
        return code_version(folder)

    assert (version(CODE) == version(CODE.replace(old, new))) is same


def test_code_that_only_draws_or_serves_does_not_count(tmp_path: Path) -> None:
    before = code_version(tmp_path)
    code_version.cache_clear()
    (tmp_path / "plotting.py").write_text("x = 1")
    assert code_version(tmp_path) == before
    code_version.cache_clear()


PLUGIN = """
from dataclasses import replace
from fairdial import FairBayes
from fairdial.datasets import register_dataset
from fairdial.datasets.registry import DATASETS
from fairdial.registry import Method, register

class Mine(FairBayes):
    weight = 1

def load():
    return DATASETS["gaussian"].load()

register(Method("mine", "Mine", lambda: Mine, "Mine.", candidate="mine"))
register_dataset(replace(DATASETS["gaussian"], name="own", load=load))
"""


@pytest.mark.parametrize("package", [False, True])
@pytest.mark.parametrize(
    ("estimator", "dataset", "users"),
    [
        ("FairBayes", "gaussian", False),
        ("GFB", "gaussian", False),
        ("Mine", "gaussian", True),
        ("FairBayes", "own", True),
        ("AutoDial", "gaussian", True),
    ],
)
def test_the_code_of_a_trial_includes_the_users_module(
    estimator: str,
    dataset: str,
    users: bool,
    package: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.setitem(DATASETS, "own", DATASETS["gaussian"])  # removed after the test
    config = reduced().trials()[0]
    config["method"]["estimator"], config["dataset"] = estimator, dataset
    file = tmp_path / ("users/methods.py" if package else "users_methods.py")
    file.parent.mkdir(exist_ok=True)
    helper = file.with_name("helper.py")
    if package:
        (file.parent / "__init__.py").touch()
        helper.write_text("x = 1")

    def version(text: str) -> str:
        file.write_text(text)
        name = "users.methods" if package else "users_methods"
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        importlib.import_module(name)
        return trial_code(config)

    first = version(PLUGIN)
    assert version(PLUGIN + "# a comment") == first
    assert (first == code_version()) is not users
    assert (version(PLUGIN.replace("weight = 1", "weight = 2")) != first) is users
    assert version(PLUGIN) == first
    if package:
        helper.write_text("x = 2")
        assert (version(PLUGIN) != first) is users
    for name in ("users", "users.methods", "users_methods"):
        sys.modules.pop(name, None)


def test_code_without_a_file_counts_too() -> None:
    names: dict[str, Any] = {"__name__": "a_notebook"}
    exec("def load(): pass\ndef other(): pass", names)
    assert storing._user_code(names["load"]) != storing._user_code(names["other"])


def test_records_of_the_first_format_are_read(tmp_path: Path) -> None:
    config = reduced().trials()[0]
    points = [{"state": s, "setting": 0.1 * s, "test": [[s, 1], [2, 3]]} for s in (0, 4)]
    body = json.dumps({"config": config, "result": {"states": points}})
    store = Store(tmp_path)
    head = {"format": 1, "code": "0" * 16, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    store.path(config, "0" * 16).write_text(f"{json.dumps(head)}\n{body}\n")
    (record,) = store.records([config])
    columns = {"state": [0, 4], "test": [[[0, 4], [1, 1]], [[2, 2], [3, 3]]]}
    assert record["result"]["states"] == columns


# ---- the command line --------------------------------------------------------------------------


def test_run_status_report_and_pack(tmp_path: Path) -> None:
    file, out = tmp_path / "plan.toml", tmp_path / "out"
    file.write_text(REDUCED)
    shell = CliRunner()
    done = shell.invoke(main, ["bench", "run", str(file), "--out", str(out), "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "6 of 6 trials done." in done.output
    assert f"fairdial bench report --out {out}" in done.stderr
    for quiet in ("--json", "--quiet"):
        done = shell.invoke(main, ["bench", "run", str(file), "--out", str(out), quiet])
        assert (done.exit_code, done.stderr) == (0, "")
    done = shell.invoke(main, ["bench", "status", "--out", str(out), "--json"])
    assert json.loads(done.output) == {"total": 6, "done": 6, "failed": 0, "missing": 0}
    done = shell.invoke(main, ["bench", "report", "--out", str(out)])
    assert done.exit_code == 0, done.output
    for line in done.output.split():
        assert Path(line).is_file()
    assert (out / "report" / "report.html").is_file()
    done = shell.invoke(main, ["bench", "pack", "--out", str(out), "--json"])
    assert json.loads(done.output) == {"records": 6, "file": str(out / "records.jsonl.xz")}
    done = shell.invoke(main, ["bench", "status", "--out", str(out), "--json"])
    assert json.loads(done.output)["done"] == 6


def test_mistakes_end_with_two_and_a_line(tmp_path: Path) -> None:
    shell = CliRunner()
    done = shell.invoke(main, ["bench", "run", "qiuck", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "Did you mean 'quick'?" in done.output
    done = shell.invoke(main, ["bench", "status", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "plan.toml" in done.output


def test_a_study_with_failures_ends_with_one(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(
        REDUCED.replace("epochs = 2, members", "epochs = 2, learning_rate = 1e9, members")
    )
    shell = CliRunner()
    done = shell.invoke(
        main, ["bench", "run", str(file), "--out", str(tmp_path / "out"), "--jobs", "1"]
    )
    assert done.exit_code == 1
    assert "2 failed" in done.output
    assert re.search(r"^  [12] trials?: DivergedError: ", done.stdout, re.MULTILINE), done.stdout
    done = shell.invoke(main, ["bench", "status", "--out", str(tmp_path / "out")])
    assert "diverged" in done.output


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_an_interrupted_study_keeps_no_half_trained_record(tmp_path: Path) -> None:
    file, out = tmp_path / "plan.toml", tmp_path / "out"
    file.write_text(REDUCED.replace("epochs = 2", "patience = 9999, epochs = 9999"))
    command = [*STUDY, str(file), "--out", str(out), "--jobs", "1"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's & ignores it
    )
    until = time.monotonic() + 60
    while not (out / "plan.toml").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(6.0)  # some epochs
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) != 0
    assert not list(out.glob("records/*.json"))


def test_a_failure_never_replaces_a_finished_record(
    straight: tuple[Plan, Store],
) -> None:
    plan, store = straight
    record = store.find(plan.trials()[0])
    assert record is not None
    failed = {k: record[k] for k in ("config", "code", "environment", "warnings")}
    store.write(failed | {"error": "no memory"})
    assert store.find(plan.trials()[0]) == record


def test_a_number_that_is_not_finite_makes_a_failed_record(
    straight: tuple[Plan, Store], tmp_path: Path
) -> None:
    plan, whole = straight
    store = Store(tmp_path)
    record = whole.find(plan.trials()[0])
    assert record is not None
    store.write(record | {"timing": {"fit": float("nan")}})
    assert store.find(plan.trials()[0]) is None
    assert "not finite" in str(store.failure(plan.trials()[0]))


def test_a_file_that_may_still_be_written_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    fresh, old = tmp_path / "fresh.part", tmp_path / "old.part"
    for path in (fresh, old):
        path.write_text("half")
    os.utime(old, (0, 0))
    store.remove_leftovers()
    assert list(tmp_path.iterdir()) == [fresh]


def test_a_long_name_still_names_a_file(tmp_path: Path, straight: tuple[Plan, Store]) -> None:
    plan, _ = straight
    config = plan.trials()[0] | {"method": plan.trials()[0]["method"] | {"name": "x" * 400}}
    assert len(Store(tmp_path).path(config).name) < 200


@pytest.mark.filterwarnings("ignore")  # of dask's own
def test_workers_with_several_threads_are_refused(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, dashboard_address=None, processes=True
        ) as cluster,
        pytest.raises(InvalidInputError, match="one thread each"),
    ):
        run(reduced(), Store(tmp_path), backend="dask", scheduler=cluster.scheduler_address)
