"""The plugin of docs/adding.md works with every command, also in worker processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pytest

from fairdial import InvalidInputError
from fairdial.bench.plan import make_plan
from fairdial.registry import Method, load_plugin, plugins

PAGE = Path(__file__).parents[2] / "docs" / "adding.md"
BLOCKS = re.findall(r"```python\n(# my_methods.py\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
METHODS = {"naive-bayes": "NaiveBayes", "forest": "Forest", "reweighed": "Reweighed"}
METHODS |= {"repaired": "Repaired"}
PLAN = {"title": "Mine", "datasets": ["loans"], "seeds": [0], "settings": 3}
PLAN |= {"methods": [{"name": name, "estimator": kind} for name, kind in METHODS.items()]}
TOML = """
title = "Mine"
datasets = ["loans"]
seeds = [0]
settings = 3
tolerances = [0.05]
""" + "".join(f'[[methods]]\nname = "{n}"\nestimator = "{k}"\n' for n, k in METHODS.items())
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the plugin, rows and a plan."""
    place = tmp_path_factory.mktemp("plugin")
    (place / "my_methods.py").write_text("\n".join(BLOCKS), encoding="utf-8")
    (place / "plan.toml").write_text(TOML, encoding="utf-8")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(20, 70, 1500), "sex": rng.choice(["f", "m"], 1500)})
    noise = rng.normal(0, 10, 1500) + 8 * (table["sex"] == "m")
    table["job"] = np.where(noise > 5, "clerk", rng.choice(["clerk", "cook"], 1500))
    table["paid"] = np.where(table["age"] + noise > 45, "yes", "no")
    table.to_csv(place / "texts.csv", index=False)
    table.drop(columns="job").to_csv(place / "numbers.csv", index=False)
    return place


@pytest.fixture(scope="module")
def call(folder: Path) -> Call:
    """Return a function that runs the command line with the plugin."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fairdial", "--plugin", "my_methods", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.mark.parametrize("name", ["forest", "repaired"])
def test_the_methods_of_the_page_train_decide_and_describe_themselves(
    name: str, folder: Path, call: Call
) -> None:
    rows = "texts.csv" if name == "forest" else "numbers.csv"
    options = ("--label", "paid", "--positive", "yes", "--sensitive", "sex", "--tolerance", "0.1")
    call("train", rows, *options, "--method", name, "--out", name)
    call("predict", name, rows, "--out", f"{name}.csv")
    assert len(pd.read_csv(folder / f"{name}.csv")) == 1500
    found = json.loads(call("info", name, "--json").stdout)
    assert (found["method"], found["estimator"]) == (name, METHODS[name])
    assert found["scorer_sees_group"] is (None if name == "repaired" else False)
    card = (folder / name / "MODEL_CARD.md").read_text("utf-8")
    assert ("The scorer doesn't see it" in card) == (name != "repaired")


def test_workers_of_a_study_know_the_methods_and_data_sets(call: Call) -> None:
    done = json.loads(
        call("bench", "run", "plan.toml", "--out", "study", "--jobs", "2", "--json").stdout
    )
    assert (done["done"], done["failed"]) == (len(METHODS), 0)


def test_workers_of_a_server_know_the_methods(folder: Path, call: Call) -> None:
    options = ("--label", "paid", "--positive", "yes", "--sensitive", "sex")
    call("train", "numbers.csv", *options, "--method", "reweighed", "--out", "served")
    command = [sys.executable, "-m", "fairdial", "--plugin", "my_methods", "serve", "served"]
    command += ["--workers", "2", "--port", "0", "--read-only", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, text=True, **pipes) as server:  # type: ignore[call-overload]
        try:
            started = "".join(iter(server.stdout.readline, "}\n")) + "}"
            with urlopen(f"{json.loads(started)['address']}healthz", timeout=60) as answer:
                assert answer.status == 200
        finally:
            server.terminate()


def test_a_constructor_without_the_common_parameters_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short:
        def __init__(self, criterion: str = "demographic_parity", tolerance: float = 0.0) -> None:
            pass

    with pytest.raises(InvalidInputError, match=r"Short without calibration, .*random_state"):
        Method("short", "Short", lambda: Short, "Too short.").make(seed=0)  # type: ignore[arg-type,return-value]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("fairdial.registry._PLUGINS", {})
    (tmp_path / "empty_plugin.py").touch()
    load_plugin("empty_plugin")
    assert plugins() == {"empty_plugin": os.getcwd()}


def test_a_plan_offers_registered_methods() -> None:
    with pytest.raises(InvalidInputError) as caught:
        make_plan(PLAN)
    assert caught.value.argument == "estimator"
    assert "naive-bayes" in caught.value.given
