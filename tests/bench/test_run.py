"""Records survive: kills, half-written files, other machines."""

from __future__ import annotations

import contextlib
import json
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

from fairdial import InvalidInputError, MissingExtraError
from fairdial.bench.plan import Method, Plan, make_plan, read_plan
from fairdial.bench.run import run, status
from fairdial.bench.store import Store, code_version, config_key
from fairdial.cli import main

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
        assert store.of_any_code(config) is not None
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


def test_a_failed_trial_is_told_kept_and_tried_again(tmp_path: Path) -> None:
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


def test_killed_five_times_the_study_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    text = REDUCED.replace("seeds = [0, 1]", "seeds = [0, 1, 2, 3, 4, 5]")
    plan = make_plan(tomllib.loads(text))
    whole = Store(tmp_path / "whole")
    run(plan, whole, n_jobs=1)
    file, out = tmp_path / "plan.toml", tmp_path / "out"
    file.write_text(text)
    rng = random.Random(0)
    command = [*STUDY, str(file), "--out", str(out), "--jobs", "1"]
    for kill in range(5):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        seen = len(list(out.glob("records/*.json")))
        assert seen < 18
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
    told: list[dict[str, Any]] = []

    class Told:
        def __enter__(self) -> Told:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def advance(self, record: dict[str, Any]) -> None:
            told.append(record)

    assert run(plan, store, n_jobs=2, reporter=Told()).missing == 0
    assert results(store, plan) == results(whole, plan)
    assert [line["done"] for line in told] == list(range(1, 7))
    assert told[-1]["running"] == 0


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
    told = "Error: the plan (net, EPO) needs torch: pip install '.[torch]' -c constraints.txt"
    assert done.stderr.startswith(told)
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
    with pytest.raises(InvalidInputError, match=r"utkface: `--data`.*got 'none'"):
        run(read_plan("paper-images"), store)
    monkeypatch.setenv("FAIRDIAL_DATA", str(tmp_path))
    with pytest.raises(InvalidInputError, match="must hold ResNet-18's weights"):
        run(read_plan("paper-images"), store)
    assert not (tmp_path / "records").exists() or not list((tmp_path / "records").iterdir())


# ---- the command line --------------------------------------------------------------------------


def test_run_status_and_report(tmp_path: Path) -> None:
    file, out = tmp_path / "plan.toml", tmp_path / "out"
    file.write_text(REDUCED)
    shell = CliRunner()
    done = shell.invoke(main, ["bench", "run", str(file), "--out", str(out), "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "6 of 6 trials done." in done.output
    assert done.stderr.endswith(f"fairdial bench report --out {out} writes the report.\n")
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


def test_a_failure_never_takes_the_place_of_a_whole_record(
    straight: tuple[Plan, Store],
) -> None:
    plan, store = straight
    record = store.find(plan.trials()[0])
    assert record is not None
    failed = {k: record[k] for k in ("config", "code", "environment", "warnings")}
    store.write(failed | {"error": "no memory"})
    assert store.find(plan.trials()[0]) == record


def test_a_figure_that_is_no_number_makes_a_failed_record(
    straight: tuple[Plan, Store], tmp_path: Path
) -> None:
    plan, whole = straight
    store = Store(tmp_path)
    record = whole.find(plan.trials()[0])
    assert record is not None
    store.write(record | {"timing": {"fit": float("nan")}})
    assert store.find(plan.trials()[0]) is None
    assert "not finite" in str(store.failure(plan.trials()[0]))


def test_a_file_that_somebody_may_be_writing_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    fresh, old = tmp_path / "fresh.part", tmp_path / "old.part"
    for path in (fresh, old):
        path.write_text("half")
    os.utime(old, (0, 0))
    assert list(store.leftovers()) == [old]


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
