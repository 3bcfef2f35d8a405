"""Tuning: the same for all methods, on validation rows only, and reproducible after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
optuna = pytest.importorskip("optuna")

from fairdial import InvalidInputError, paper_settings  # noqa: E402
from fairdial.bench import tuning  # noqa: E402
from fairdial.bench.estimators import ESTIMATORS  # noqa: E402
from fairdial.bench.model import make_model, read_parts  # noqa: E402
from fairdial.bench.plan import make_plan  # noqa: E402
from fairdial.bench.space import (  # noqa: E402
    SHIPPED,
    Space,
    keep_space,
    make_space,
    read_space,
    space_text,
)
from fairdial.bench.store import Config, Record, Store  # noqa: E402
from fairdial.bench.trial import run_trial  # noqa: E402
from fairdial.bench.tuning import (  # noqa: E402
    CHOSEN,
    Attempt,
    Search,
    adopt,
    tune,
    value_of,
    write_results,
)
from fairdial.cli import main  # noqa: E402
from fairdial.datasets.base import Dataset, PaperSplit  # noqa: E402
from fairdial.paper import presets  # noqa: E402

SMALL = """
title = "small"
datasets = ["compas"]
seeds = [2001, 2002, 2003]
trials = 4
rows = 600
settings = 3

[search]
"network.learning_rate" = { kind = "log", low = 1e-4, high = 1e-2 }
"network.average" = { kind = "choice", choices = [false, 3.0] }

[[methods]]
estimator = "FairBayes"
network = { epochs = 2, hidden = [8], head = 4 }

[[methods]]
estimator = "GFB"
network = { epochs = 2, hidden = [8], head = 4 }

[methods.search]
weight = { kind = "float", low = 0.5, high = 0.99 }
"""


def small(**changes: Any) -> Space:
    return make_space(tomllib.loads(SMALL) | changes)


def search_of(space: Space, place: int = 1) -> Search:
    return Search(space, space.datasets[0], space.methods[place])


# ---- one search, with values in closed form ------------------------------------------------------


def record_of(config: Config, accuracy: float) -> Record:
    """A record whose only point has this accuracy and no gap: both are its hypervolume."""
    selected = round((2 * accuracy - 1) * 10_000)
    counts = [[[0], [0]], [[selected], [selected]]]  # (L, K, n)
    result = {
        "states": {"state": [0], "test": counts},
        "rows": {"test": [[10_000] * 2] * 2},
        "certified": [None],
        "feasible": [True],
    } | {name: [0] for name in ("points", "curve", "grid")}
    timing = {"fit": 9.0, "fit_cpu": 1.5, "evaluate_cpu": 0.5}
    made: dict[str, str] = {}
    record: Record = {"config": config, "code": "", "environment": made, "warnings": []}
    return record | {"result": result, "timing": timing}  # type: ignore[return-value]


def height(config: Config) -> float:
    """A smooth function of the parameters, a little different on each split."""
    method = config["method"]
    rate, weight = method["network"]["learning_rate"], method["arguments"]["weight"]
    return float(
        0.9
        - 0.1 * (np.log10(rate) + 2.5) ** 2
        - 0.5 * (weight - 0.8) ** 2
        + 0.002 * (config["seed"] - 2002)
    )


def solve(search: Search) -> Search:
    steps = search.run()
    config = next(steps)
    while True:
        try:
            config = steps.send(record_of(config, height(config)))
        except StopIteration:
            return search


def test_a_search_prunes_bad_trials_and_never_ends_below_the_preset() -> None:
    search = solve(search_of(small(trials=30)))
    states = [attempt.state for attempt in search.attempts]
    assert len(states) == 30
    assert "pruned" in states
    for attempt in search.attempts:
        assert (attempt.state == "complete") == (len(attempt.hypervolumes) == 3)
        assert attempt.seconds == 2.0 * len(attempt.hypervolumes)
    first, best = search.attempts[0], search.best
    assert best is not None
    assert first.state == "complete"
    assert first.values["arguments"] == {"weight": presets.GFB_SETTINGS["weight"]}
    assert first.values["network"]["learning_rate"] == presets.DATASETS["compas"]["learning_rate"]
    assert best.value == max(a.value for a in search.attempts if a.state == "complete")
    assert best.value > first.value
    pruned = [a.hypervolumes[0] for a in search.attempts if a.state == "pruned"]
    assert max(pruned) <= max(a.hypervolumes[0] for a in search.attempts)


def test_a_search_is_a_function_of_its_records_and_more_trials_extend_it() -> None:
    whole = solve(search_of(small(trials=20))).attempts
    assert solve(search_of(small(trials=20))).attempts == whole
    assert solve(search_of(small(trials=12))).attempts == whole[:12]


def test_a_trial_that_fails_is_counted_and_never_chosen() -> None:
    search = search_of(small(trials=8))
    steps = search.run()
    config = next(steps)
    try:
        while True:
            record = record_of(config, height(config))
            if config["method"]["arguments"]["weight"] < 0.8:
                record["error"] = "DivergedError: no"
            config = steps.send(record)
    except StopIteration:
        pass
    states = [attempt.state for attempt in search.attempts]
    entry = search.chosen()
    assert entry is not None
    assert entry["failed"] == states.count("failed") > 0
    assert (entry["trials"], entry["pruned"]) == (8, states.count("pruned"))
    assert entry["arguments"]["weight"] >= 0.8


def test_a_fixed_network_argument_is_chosen_only_if_it_is_searched_too() -> None:
    method = {"estimator": "GFB", "arguments": {"aux": "scaled"}, "network": {"epochs": 2}}
    both = {"kind": "choice", "choices": [{}, {"network.epochs": 3}]}
    for own, kept in (({}, set()), ({"longer": both}, {"epochs"})):
        search = search_of(small(methods=[method | {"search": own}], search={}, trials=1), 0)
        search.attempts = [Attempt(0, search.searched.values({}), [0.5] * 3)]
        entry = search.chosen()
        assert entry is not None
        assert ({*entry["network"]}, entry["arguments"]) == (kept, {"aux": "scaled"})


@pytest.mark.parametrize("seed", range(5))
def test_the_value_is_the_area_that_the_own_points_dominate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = search_of(small()).space.config("compas", small().methods[0], {}, 2001)
    record, n = record_of(config, 0.5), 10
    selected = rng.integers(0, 10_000, (2, 2, n))
    record["result"]["states"] = {"state": list(range(n)), "test": selected.tolist()}
    record["result"]["points"] = list(range(0, n, 2))  # others aren't the method's own
    own = selected[:, :, ::2]
    accuracy = (own[1].sum(axis=0) + (10_000 - own[0]).sum(axis=0)) / 40_000
    gap = abs(np.diff(own.sum(axis=0), axis=0)[0]) / 20_000
    cells = np.linspace(0, 1, 1001)[:-1] + 0.0005
    inside = (cells[:, None, None] < accuracy) & (cells[None, :, None] > gap)
    assert value_of(record) == pytest.approx(inside.any(axis=2).mean(), abs=2e-3)


# ---- searches with networks ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Search]]:
    """The small space, searched without a break."""
    out = tmp_path_factory.mktemp("straight")
    found = tune(small(), Store(out / "records"))
    write_results(found, out)
    return out, found


def choices(searches: list[Search]) -> list[Any]:
    return [
        [(a.number, a.values, a.hypervolumes, a.state) for a in search.attempts]
        for search in searches
    ]


def test_a_killed_search_goes_on_in_processes_and_ends_the_same(
    straight: tuple[Path, list[Search]], tmp_path: Path
) -> None:
    file, out = tmp_path / "space.toml", tmp_path / "out"
    file.write_text(SMALL)
    command = [sys.executable, "-m", "fairdial", "bench", "tune", str(file), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 200
    while len(list(out.glob("records/*.json"))) < 3 and time.monotonic() < until:
        time.sleep(0.005)
    assert process.poll() is None  # it is at work
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / CHOSEN).exists()
    store = Store(out / "records")
    before = {path: path.stat().st_mtime_ns for path in store.folder.glob("*.json")}
    assert 3 <= len(before) < len(list((straight[0] / "records").glob("*.json")))
    assert choices(tune(small(), store, n_jobs=2)) == choices(straight[1])
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())


def test_the_command_shows_the_choice_and_runs_nothing_twice(
    straight: tuple[Path, list[Search]], tmp_path: Path
) -> None:
    out, searches = straight
    file = tmp_path / "space.toml"
    file.write_text(SMALL)
    before = sorted(out.glob("records/*"))
    done = CliRunner().invoke(
        main, ["bench", "tune", str(file), "--out", str(out), "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0
    assert sorted(out.glob("records/*")) == before
    found = json.loads(done.stdout)["chosen"]["compas"]
    for search in searches:
        best = search.best
        assert best is not None
        entry = found[search.key[1]]
        assert entry["value"] == best.value >= entry["preset"] == search.attempts[0].value
        fixed = {"epochs": 2, "hidden": [8], "head": 4}  # they only serve the search
        assert entry["arguments"] == best.values["arguments"]
        assert entry["network"] | fixed == best.values["network"]
        assert {*entry["network"]} == {"average", "learning_rate"}
        assert entry["tuning"]["network"] == fixed
        listed = json.loads((out / "trials" / f"compas-{search.key[1]}.json").read_text())
        assert [line["state"] for line in listed] == [a.state for a in search.attempts]
    file.write_text(SMALL.replace("0.99", "0.98"))
    other = CliRunner().invoke(main, ["bench", "tune", str(file), "--out", str(out)])
    assert other.exit_code == 2
    assert CliRunner().invoke(main, ["bench", "adopt", str(out)]).exit_code == 2  # only 600 rows
    assert "small" not in presets.TUNED.read_text()


class Forbidden:
    """Rows that nothing may touch."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"test rows were read: {name}")

    def __len__(self) -> int:
        raise AssertionError("test rows were counted")


def test_test_rows_are_never_read(
    straight: tuple[Path, list[Search]], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Dataset.paper_split

    def without_test(data: Dataset, seed: int) -> PaperSplit:
        return original(data, seed)._replace(test=Forbidden())  # type: ignore[arg-type]

    space = small()
    config = space.config("compas", space.methods[1], {"weight": 0.875}, 2001)
    assert config["evaluate"] == "validation"
    known = run_trial(config)
    monkeypatch.setattr(Dataset, "paper_split", without_test)
    sealed = run_trial(config)
    assert "error" not in sealed
    assert sealed["result"] == known["result"]
    assert "test rows" in run_trial({**config, "evaluate": "test"})["error"]
    assert straight[1][1].attempts[0].hypervolumes[0] > 0


# ---- spaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_every_point_of_a_shipped_space_is_a_valid_estimator(name: str) -> None:
    space = read_space(name)
    assert {s.method.estimator.lower() for s in space.methods} == set(presets.METHODS)
    for dataset in space.datasets:
        for searched in space.methods:
            study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
            for _ in range(20):
                trial, chosen = study.ask(), {}
                for parameter in searched.parameters(dataset):
                    chosen |= parameter.changes(parameter.suggest(trial))
                values = space.config(dataset, searched, chosen, 2001)["method"]
                assert (
                    not {*chosen}
                    - {*values["arguments"]}
                    - {f"network.{key}" for key in values["network"]}
                )
                kind = searched.method.estimator
                settings = paper_settings(kind.lower(), dataset, source="release")
                model: Any = ESTIMATORS[kind](**presets.with_values(settings, values))
                network = getattr(model, "network", None) or model.estimator
                network.set_params(trunk=None if searched.method.trained == "none" else object)
                network.check()
                getattr(model, "_check_settings", lambda: None)()


def test_every_method_of_a_shipped_space_trains(tmp_path: Path) -> None:
    data = tomllib.loads(space_text("paper-tabular"))
    data |= {"rows": 600, "seeds": [2001], "datasets": ["compas"], "settings": 2, "trials": 4}
    for method in data["methods"]:
        method["network"] = {"epochs": 1, "hidden": [8, 4], "head": 4}
    for search in tune(make_space(data), Store(tmp_path)):
        assert [attempt.error for attempt in search.attempts] == [""] * 4


def test_the_first_trial_is_the_preset_with_the_fixed_arguments() -> None:
    space = read_space("paper-tabular")
    for searched in space.methods:
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        study.enqueue_trial(space.preset("compas", searched))
        trial, chosen = study.ask(), {}
        for parameter in searched.parameters("compas"):
            chosen |= parameter.changes(parameter.suggest(trial))
        config = replace(space, rows=600).config("compas", searched, chosen, 2001)
        fixed = {"arguments": searched.method.arguments, "network": {}}
        plain = {**config, "method": {**config["method"], **fixed}}
        parts = read_parts(config)
        first, second = (make_model(c, parts).get_params() for c in (config, plain))
        assert first.keys() == second.keys()
        for name, value in first.items():
            if name not in ("network", "estimator"):
                assert np.array_equal(value, second[name]), name


@pytest.mark.parametrize(
    ("change", "argument", "suggested"),
    [
        ({"trails": 3}, "trails", "trials"),
        ({"datasets": ["compass"]}, "datasets", "compas"),
        ({"search": {"wieght": {"kind": "float", "low": 0.5, "high": 0.9}}}, "wieght", "weight"),
        ({"search": {"network.gama": {"kind": "choice", "choices": [0.0]}}}, "gama", "gamma"),
        ({"search": {"weight": {"kind": "flaot"}}}, "weight.kind", "float"),
        ({"search": {"weight": {"kind": "float", "lo": 0.5}}}, "lo", "low"),
        ({"search": {"weight": {"kind": "float", "low": 0.5}}}, "weight", ""),
        ({"search": {"weight": {"kind": "float", "low": 0.9, "high": 0.5}}}, "weight", ""),
        ({"search": {"weight": {"kind": "float", "low": 0.9, "high": 0.99}}}, "weight", ""),
        ({"search": {"aux": {"kind": "choice", "choices": ["solve"]}}}, "aux", ""),
        ({"search": {"weight": {"kind": "float", "low": {"adult": 0}, "high": 1}}}, "weight", ""),
        ({"seeds": [2001, 5]}, "seeds", ""),  # a split of the paper
        ({"seeds": []}, "seeds", ""),
        ({"seeds": {"adult": [2001]}}, "seeds", ""),  # none for COMPAS
        ({"methods": [{"estimator": "GFP"}]}, "estimator", "GFB"),
        ({"methods": [{"estimator": "GFB", "argument": {}}]}, "argument", "arguments"),
        ({"trials": 0}, "trials", ""),
        ({"seeds": 2001}, "seeds", ""),
        ({"seeds": {"compas": 2001}}, "seeds", ""),
        ({"seeds": [2001, 2001]}, "seeds", ""),
        ({"seeds": {"compas": [2001], "adlt": [2001]}}, "datasets", "adult"),
        ({"datasets": "compas"}, "datasets", ""),
        ({"datasets": []}, "datasets", ""),
        ({"datasets": ["compas", "compas"]}, "datasets", ""),
        ({"datasets": [["compas"]]}, "datasets", ""),
        ({"search": [1]}, "search", ""),
        ({"search": {"weight": 0.5}}, "weight", ""),
        ({"search": {"weight": {"kind": "float", "low": "a", "high": 1}}}, "weight.low", ""),
        ({"search": {"aux": {"kind": "choice", "choices": "step"}}}, "aux.choices", ""),
        ({"search": {"aux": {"kind": "choice", "choices": ["step", "step"]}}}, "aux", ""),
        ({"search": {"aux": {"kind": "choice", "choices": ["step", "sovle"]}}}, "arguments", ""),
        ({"search": {"weight": {"kind": "float", "low": 0.5, "high": 3.0}}}, "arguments", ""),
        ({"methods": "GFB"}, "methods", ""),
        ({"methods": ["GFB"]}, "methods", ""),
        ({"methods": [{"estimator": "GFB", "search": [1]}]}, "search", ""),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(
    change: dict[str, Any], argument: str, suggested: str
) -> None:
    base = tomllib.loads(SMALL) | {"search": {}, "methods": [{"estimator": "GFB"}]}
    with pytest.raises(InvalidInputError) as caught:
        make_space(base | change)
    assert caught.value.argument == argument
    assert suggested in str(caught.value)


def test_a_space_says_what_it_lacks() -> None:
    data = tomllib.loads(SMALL)
    for name in ("title", "datasets", "methods", "seeds", "trials"):
        with pytest.raises(InvalidInputError, match=name):
            make_space({key: value for key, value in data.items() if key != name})


def test_the_documented_space_is_a_space() -> None:
    text = (Path(__file__).parents[2] / "docs" / "studies.md").read_text("utf-8")
    blocks = [block.partition("```")[0] for block in text.split("```toml\n")[1:]]
    (space,) = [make_space(data) for data in map(tomllib.loads, blocks) if "search" in data]
    assert len(space.methods) == 2


def test_a_folder_keeps_one_space_whatever_its_notes_say(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    keep_space(SMALL, path)
    keep_space('notes = "new"' + SMALL.replace('"small"', '"other"'), path)
    assert path.read_text() == SMALL
    with pytest.raises(InvalidInputError, match="out"):
        keep_space(SMALL.replace("trials = 4", "trials = 5"), path)


def test_a_search_without_its_data_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRDIAL_DATA", raising=False)
    command = ["bench", "tune", "paper-images", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_space_can_be_narrowed_but_not_to_what_it_has_not() -> None:
    few = read_space("paper-tabular").narrowed(datasets=["compas"], methods=["GFB"], trials=3)
    assert (few.datasets, few.trials) == (("compas",), 3)
    assert [s.method.estimator for s in few.methods] == ["GFB"]
    for given in ({"datasets": ["celeba"]}, {"methods": ["gfb"]}):
        with pytest.raises(InvalidInputError):
            read_space("paper-tabular").narrowed(**given)  # type: ignore[arg-type]


# ---- presets -------------------------------------------------------------------------------------


def test_what_was_chosen_becomes_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = read_space("paper-tabular")
    method = next(s for s in space.methods if s.method.estimator == "YOTO")
    search = Search(space, "compas", method)
    chosen = {"film": [32, 2], "network.learning_rate": 0.003, "network.average": False}
    search.attempts = [
        Attempt(0, method.values({}), [0.5] * 3),
        Attempt(1, method.values(chosen), [0.75] * 3, seconds=4.0),
    ]
    write_results([search], tmp_path)
    file = tmp_path / "tuned.json"
    entry = {"arguments": {}, "network": {"gamma": 0.0}, "tuning": {"rows": None}}
    file.write_text(json.dumps({"chosen": {"compas": {"epo": entry}}}))
    done = CliRunner().invoke(main, ["bench", "adopt", str(tmp_path), "--to", str(file)])
    assert done.exit_code == 0
    monkeypatch.setattr(presets, "TUNED", file)
    stored = presets.read_chosen(file)["compas"]["yoto"]
    assert (stored["value"], stored["preset"], stored["trials"]) == (0.75, 0.5, 2)
    assert stored["tuning"]["seeds"] == list(space.seeds["compas"])
    tuned, released = (
        paper_settings("yoto", "compas", inputs=192, source=source)
        for source in ("tuned", "release")
    )
    assert (tuned["film"], released["film"]) == ((32, 2), (64, 2))
    assert tuned["network"].learning_rate == 0.003
    assert tuned["network"].average is None
    assert tuned["network"].hidden == released["network"].hidden
    assert paper_settings("epo", "compas")["network"].gamma == 0.0  # it stayed
    assert paper_settings("yoto", "adult")["film"] == (64, 2)  # not tuned: the release's

    def trial(settings: str) -> Config:
        one = {"name": "y", "estimator": "YOTO", "settings": settings}
        plan = {"title": "t", "datasets": ["compas"], "rows": 600, "seeds": [0], "methods": [one]}
        return make_plan(plan).trials()[0]

    for settings, known in (("paper", tuned), ("release", released)):
        config = trial(settings)
        made: Any = make_model(config, read_parts(config))
        assert made.film == known["film"]
        assert made.network.learning_rate == known["network"].learning_rate
    kept = json.loads(json.dumps(trial("paper")))
    adopt(tmp_path, tmp_path / "other.json")
    file.write_text('{"chosen": {}}')
    presets.read_chosen.cache_clear()
    assert make_model(kept, read_parts(kept)).film == (32, 2)  # a record holds what it used
    assert "tuned" in kept["method"]
    assert "tuned" not in trial("paper")["method"]


def test_two_processes_that_end_at_once_keep_both_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = [search_of(small(), place) for place in (0, 1)]
    for search in searches:
        search.attempts = [Attempt(0, search.searched.values({}), [0.5] * 3)]
    write = tuning.write_tuned

    def interrupted(path: Path, chosen: Any) -> None:
        """Let the other process do all its work just before the first writes all choices."""
        if path.name == CHOSEN:
            monkeypatch.setattr(tuning, "write_tuned", write)
            write_results(searches[1:], tmp_path)
        write(path, chosen)

    monkeypatch.setattr(tuning, "write_tuned", interrupted)
    write_results(searches[:1], tmp_path)
    stored = json.loads((tmp_path / CHOSEN).read_text())["chosen"]
    assert {*stored["compas"]} == {"fairbayes", "gfb"}
    searches[0].attempts = [Attempt(0, {}, state="failed")]
    assert {*write_results(searches[:1], tmp_path)["compas"]} == {"gfb"}


@pytest.mark.parametrize(
    "change", [{"trials": 9}, {"tuning": {"rows": None, "seeds": [2002]}}], ids=["trials", "splits"]
)
def test_unequal_tuning_is_never_adopted(tmp_path: Path, change: dict[str, Any]) -> None:
    entry = {
        "arguments": {},
        "network": {},
        "trials": 3,
        "tuning": {"rows": None, "seeds": [2001]},
    }
    to = tmp_path / "tuned.json"
    for other, fine in ((entry, True), (entry | change, False)):
        chosen = {"compas": {"gfb": entry, "fairbayes": other}}
        (tmp_path / CHOSEN).write_text(json.dumps({"chosen": chosen}))
        if fine:
            assert adopt(tmp_path, to) == chosen
        else:
            with pytest.raises(InvalidInputError, match="compas"):
                adopt(tmp_path, to)
    assert presets.read_chosen(to)["compas"]["fairbayes"] == entry


def test_the_shipped_presets_are_valid_and_no_worse_than_the_release() -> None:
    chosen = presets.read_chosen(presets.TUNED)
    for methods in chosen.values():
        for entry in methods.values():
            assert entry["tuning"]["rows"] is None
            assert entry["preset"] is None or entry["value"] >= entry["preset"]
    names = {name.lower(): name for name in ESTIMATORS}
    for dataset in presets.DATASETS:
        for method in presets.METHODS:
            for inputs in (None, 192):
                settings = paper_settings(method, dataset, inputs=inputs)
                model: Any = ESTIMATORS[names[method]](**settings)
                (getattr(model, "network", None) or model.estimator).check()
