from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairdial import InvalidInputError
from fairdial.bench.plan import (
    SHIPPED,
    Method,
    Plan,
    keep_plan,
    make_plan,
    narrow,
    plan_text,
    read_plan,
)


def data(**changes: Any) -> dict[str, Any]:
    methods = [
        {"name": "net", "estimator": "FairBayes"},
        {"name": "again", "same_as": "net", "seed_offset": 7},
        {"name": "trees", "estimator": "FairBayes", "scorer": "gradient boosting"},
    ]
    base = {"title": "t", "datasets": ["gaussian"], "seeds": [0, 1], "methods": methods}
    return base | changes


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_plans_are_plans(name: str) -> None:
    plan = read_plan(name)
    assert plan.trials()
    assert plan.baseline in {method.name for method in plan.methods}


def test_the_papers_plan_is_the_papers() -> None:
    plan = read_plan("paper-tabular")
    assert plan.datasets == ("adult", "compas")
    assert plan.seeds == (0, 5, 10, 15, 20)
    assert plan.settings == 10
    names = {method.estimator for method in plan.methods}
    assert names == {"EPO", "FairBiNN", "YOTO", "FairBayes", "GFB"}
    assert all(method.settings == "paper" for method in plan.methods)


def test_the_papers_plan_on_pictures_is_the_papers() -> None:
    plan = read_plan("paper-images")
    assert plan.datasets == ("utkface", "celeba")
    assert plan.seeds == (0, 5, 10, 15, 20)
    assert plan.settings == 10
    assert {m.estimator for m in plan.methods} == {"EPO", "FairBiNN", "YOTO", "FairBayes", "GFB"}
    assert {(m.settings, m.trained) for m in plan.methods} == {("paper", "layer4")}
    assert sum(m.seed_offset > 0 for m in plan.methods) == 1


def test_defaults_are_keys_of_every_method_that_its_own_replace() -> None:
    methods = [
        {"name": "one", "estimator": "GFB"},
        {"name": "two", "same_as": "one", "network": {"epochs": 9}, "trained": "none"},
    ]
    defaults = {"trained": "layer4", "network": {"epochs": 2, "batch_size": 64}}
    plan = data(methods=methods, defaults=defaults, datasets=["utkface"])
    one, two = make_plan(plan).methods
    assert (one.trained, one.network) == ("layer4", {"epochs": 2, "batch_size": 64})
    assert (two.trained, two.network) == ("none", {"epochs": 9, "batch_size": 64})


def test_the_size_of_pictures_is_part_of_a_trial_only_if_it_is_not_64() -> None:
    pictures = data(size=128, datasets=["utkface"])
    assert all("size" not in trial for trial in make_plan(pictures | {"size": 64}).trials())
    assert all(trial["size"] == 128 for trial in make_plan(pictures).trials())


def test_a_confirmation_has_twenty_splits_and_a_null_method() -> None:
    plan = read_plan("confirm")
    assert len(plan.seeds) >= 20
    assert any(method.seed_offset for method in plan.methods)


def test_trials_are_data_sets_by_criteria_by_methods_by_seeds() -> None:
    plan = make_plan(data(criteria=["demographic_parity", "equal_opportunity"], cost={"epochs": 2}))
    trials = plan.trials()
    studies = [t for t in trials if t["kind"] == "study"]
    costs = [t for t in trials if t["kind"] == "cost"]
    assert len(studies) == 2 * 3 * 2
    assert len(costs) == 2 * 2  # a null method costs as much as its model
    assert {t["criterion"] for t in trials} == {"demographic_parity", "equal_opportunity"}


def test_methods_take_turns_in_every_split_and_initialization() -> None:
    plan = make_plan(data(inits=2))
    names = [method.name for method in plan.methods]
    trials = plan.trials()
    for i in range(0, len(trials), len(names)):
        turn = trials[i : i + len(names)]
        assert [t["method"]["name"] for t in turn] == names
        assert len({(t["seed"], t.get("init", 0)) for t in turn}) == 1


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ({"sees_group": True}, "sees_group"),
        ({"scorer": ["network", "small trees"], "sees_group": True}, "sees_group"),
        ({"scorer": "small trees", "sees_group": 1}, "sees_group"),
    ],
)
def test_a_method_that_makes_no_sense_is_refused(method: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Method(name="m", estimator="FairBayes", **method)
    assert caught.value.argument == argument


def test_a_null_method_is_its_model_with_another_seed() -> None:
    net, again, _ = make_plan(data()).methods
    assert again.seed_offset == 7
    assert (again.estimator, again.network, again.arguments) == (
        net.estimator,
        net.network,
        net.arguments,
    )


def test_a_method_like_another_that_is_like_a_third_has_all_its_entries() -> None:
    chain = [
        {"name": "third", "same_as": "second", "seed_offset": 9},
        {"name": "second", "same_as": "first", "network": {"epochs": 3}},
        {"name": "first", "estimator": "GFB", "arguments": {"weight": 0.75}},
    ]
    third, second, first = make_plan(data(methods=chain)).methods
    assert third == replace(second, name="third", seed_offset=9)
    assert second == replace(first, name="second", network={"epochs": 3})
    chain[2]["same_as"] = "third"
    with pytest.raises(InvalidInputError, match="same_as"):
        make_plan(data(methods=chain))


def method(**changes: Any) -> dict[str, Any]:
    return data(methods=[{"name": "m", "estimator": "GFB"} | changes])


@pytest.mark.parametrize(
    ("plan", "argument", "suggested"),
    [
        (data(sedes=[1]), "sedes", "'seeds'"),
        (data(datasets=["adlut"]), "datasets", "'adult'"),
        (data(seeds=[0.5]), "seeds", ""),
        (data(seeds=[1, 1]), "seeds", ""),
        (data(seeds=[]), "seeds", ""),
        (data(settings=1), "settings", ""),
        (data(criteria=["parity"]), "criterion", ""),
        (data(baseline="nett"), "baseline", "'net'"),
        (data(tolerances=[2.0]), "tolerances", ""),
        (data(confidence=1.0), "confidence", ""),
        (data(cost={"epoch": 3}), "epoch", "'epochs'"),
        (data(cost={"epochs": 1}), "cost.epochs", ""),
        ({"title": "t"}, "plan", "datasets, methods, seeds"),
        (method(arguments={"wieght": 0.5}), "wieght", "'weight'"),
        (method(arguments={"random_state": 1}), "random_state", ""),
        (method(network={"epoches": 3}), "epoches", "'epochs'"),
        (method(network={"epochs": 0}), "network", "`epochs`"),
        (method(network={"validation": 0.2}), "validation", ""),
        (method(arguments=3), "arguments", ""),
        (method(seed_offset=1.5), "seed_offset", ""),
        (data(seeds=3), "seeds", ""),
        (data(tolerances=0.1), "tolerances", ""),
        (data(tolerances=["a"]), "tolerances", ""),
        (data(confidence="high"), "confidence", ""),
        (data(cost=[1]), "cost", ""),
        (data(title=5), "title", ""),
        (data(methods={"name": "m"}), "methods", ""),
        (method(estimator="GBF"), "estimator", "'GFB'"),
        (method(settings="paper"), "settings", ""),
        (method(scorer="gradient boosting"), "scorer", ""),
        (method(same_as="other"), "same_as", ""),
        (method(trained="layer3"), "trained", "'layer4'"),
        (method(encoder="tarta"), "encoder", "'tarte'"),
        (method(encoder={"n_bin": 3}), "n_bin", "'n_bins'"),
        (method(estimator="FairBayes", scorer="small trees", encoder="tarte"), "encoder", ""),
        (data(size=16), "size", ""),
        (data(defaults={"trianed": "all"}), "trianed", "'trained'"),
        (data(defaults=3), "defaults", ""),
        (data(methods=[{"estimator": "GFB"}]), "methods", ""),
        (method(estimator=5), "estimator", ""),
        (method(estimator="FairBayes", scorer=5), "scorer", ""),
        (method(estimator="FairBayes", scorer=[]), "scorer", ""),
        (method(arguments={"outer": "sdg"}), "arguments", "`outer`"),
        (method(arguments={"weight": "x"}), "arguments", "`weight`"),
        (method(arguments={"schedules": {"outr": "cosine"}}), "arguments", "`schedules`"),
        (method(trained="layer4"), "trained", ""),  # no pictures
        (data(size=128), "size", ""),  # no pictures
        (method(encoder="tarte") | {"datasets": ["utkface"]}, "encoder", ""),  # no table
        (method(estimator="AutoDial", settings="paper"), "settings", ""),
        (method(estimator="AutoDial", encoder="tarte"), "encoder", ""),
        (method(estimator="AutoDial", encoder={"n_bins": 3}), "encoder", ""),
        (method(arguments={"min_count": "x"}), "arguments", "`min_count`"),
        (method(estimator="FairBayes", arguments={"min_count": 0}), "arguments", "`min_count`"),
        (data(gaps=[0.05, 0.05]), "gaps", ""),
        (data(tolerances=[0.05, 0.05]), "tolerances", ""),
        (method(same_as="m"), "same_as", ""),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(
    plan: dict[str, Any], argument: str, suggested: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make_plan(plan)
    assert caught.value.argument == argument
    assert suggested in str(caught.value)


def test_a_file_that_is_no_plan_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="'confirm'"):
        read_plan("confrim")
    path = tmp_path / "broken.toml"
    path.write_text("title = ")
    with pytest.raises(InvalidInputError) as caught:
        read_plan(path)
    assert caught.value.argument == "plan"


def test_a_folder_keeps_one_plan(tmp_path: Path) -> None:
    keep_plan(plan_text("quick"), tmp_path / "study" / "plan.toml")
    keep_plan(plan_text("quick"), tmp_path / "study" / "plan.toml")
    assert isinstance(read_plan(tmp_path / "study" / "plan.toml"), Plan)
    with pytest.raises(InvalidInputError) as caught:
        keep_plan(plan_text("confirm"), tmp_path / "study" / "plan.toml")
    assert caught.value.argument == "out"


def test_a_plan_is_narrowed_to_some_of_its_data_sets() -> None:
    whole = read_plan("paper-images")
    fewer = make_plan(tomllib.loads(narrow(plan_text("paper-images"), ["celeba"])))
    assert fewer.datasets == ("celeba",)
    assert fewer.methods == whole.methods
    with pytest.raises(InvalidInputError, match="'utkface', 'celeba'"):
        narrow(plan_text("paper-images"), ["adult"])
    with pytest.raises(InvalidInputError, match="`plan`"):
        narrow(plan_text("quick").replace("datasets = [", "datasets = [\n"), ["compas"])


def test_an_objective_is_part_of_the_trial_only_if_it_is_not_accuracy() -> None:
    plain = make_plan(data()).trials()
    assert make_plan(data(objective="accuracy")).trials() == plain
    assert all("objective" not in trial for trial in plain)
    costs = make_plan(data(objective=[1, 5])).trials()
    assert all(trial["objective"] == [1, 5] for trial in costs)


@pytest.mark.parametrize("objective", ["speed", [1], [1, -1], [0, 0], 3])
def test_unknown_objectives_are_refused(objective: Any) -> None:
    with pytest.raises(InvalidInputError):
        make_plan(data(objective=objective))


def test_families_refuse_objectives() -> None:
    methods = [{"name": "family", "estimator": "EPO"}]
    with pytest.raises(InvalidInputError) as error:
        make_plan(data(methods=methods, objective="f1"))
    assert error.value.argument == "objective"


@pytest.mark.parametrize("text", ["fairness", "selection_rate>=2", "demographic_parity=0.1+x"])
def test_unknown_criteria_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        make_plan(data(criteria=[text]))
