"""The paper's tables agree with each other, wherever they speak about the same thing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairdial.bench import paper
from fairdial.bench.plan import Method, make_plan, read_plan

# GFB minus FairBiNN: here the quartile table's mean isn't the difference of the means.
KNOWN_SLIPS = {("adult", "FairBiNN"), ("compas", "FairBiNN")}


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (paper.HV, paper.METHODS),
        (paper.INVERTED_HV, paper.METHODS),
        (paper.COST, paper.METHODS),
        (paper.HV_QUARTILES, paper.RIVALS),
        (paper.INVERTED_HV_QUARTILES, paper.RIVALS),
    ],
)
def test_every_table_has_all_data_sets_and_methods(table, columns):
    assert tuple(table) == paper.DATASETS
    assert all(tuple(entries) == columns for entries in table.values())


@pytest.mark.parametrize("table", [paper.HV_QUARTILES, paper.INVERTED_HV_QUARTILES])
def test_quartiles_rise(table):
    for entries in table.values():
        for entry in entries.values():
            assert entry.q1 <= entry.q2 <= entry.q3


@pytest.mark.parametrize("dataset", paper.DATASETS)
@pytest.mark.parametrize("rival", paper.RIVALS)
@pytest.mark.parametrize(
    ("means", "quartiles", "slips"),
    [
        (paper.HV, paper.HV_QUARTILES, KNOWN_SLIPS),
        (paper.INVERTED_HV, paper.INVERTED_HV_QUARTILES, set()),
    ],
)
def test_mean_differences_are_differences_of_means(dataset, rival, means, quartiles, slips):
    of_means = means[dataset][paper.MAIN].mean - means[dataset][rival].mean
    off = abs(quartiles[dataset][rival].mean - of_means)
    assert (off > 1.1e-4) == ((dataset, rival) in slips)


def test_training_ratios_are_those_that_the_text_names():
    to_fairbayes = [c["GFB"].train / c["FairBayes"].train for c in paper.COST.values()]
    to_fairbinn = [c["GFB"].train / c["FairBiNN"].train for c in paper.COST.values()]
    assert [round(min(to_fairbayes), 1), round(max(to_fairbayes), 1)] == [1.2, 1.7]
    assert [round(min(to_fairbinn), 2), round(max(to_fairbinn), 2)] == [1.05, 1.33]
    assert all(max(c.values(), key=lambda s: s.train) == c["EPO"] for c in paper.COST.values())


def test_retraining_is_no_adaptation_and_yoto_is_listed_with_none():
    for entries in paper.COST.values():
        without = [name for name, entry in entries.items() if entry.adaptation is None]
        assert without == ["EPO", "FairBiNN"]
        assert entries["YOTO"].adaptation == 0


def test_only_a_networks_own_row_has_a_column_of_the_paper():
    assert paper.column(Method("own", "GFB")) == "GFB"
    assert paper.column(Method("null", "GFB", seed_offset=1)) is None
    assert paper.column(Method("trees", "FairBayes", scorer="gradient boosting")) is None


def test_the_paper_has_demographic_parity_only():
    assert paper.has_results("adult", "demographic_parity")
    assert not paper.has_results("adult", "equal_opportunity")
    assert not paper.has_results("gaussian", "demographic_parity")


def test_every_setting_that_a_plan_changes_is_listed_with_the_papers_value():
    plan = {
        "title": "t",
        "datasets": ["utkface", "compas"],
        "seeds": [0, 5, 10, 15, 20],
        "settings": 7,
        "size": 96,
        "train_rows": 900,
        "defaults": {"settings": "release", "trained": "layer4"},
        "methods": [
            {"name": "own", "estimator": "GFB", "arguments": {"weight": 0.5}},
            {"name": "short", "estimator": "FairBayes", "network": {"epochs": 4, "patience": 2}},
            {"name": "TARTE", "estimator": "YOTO", "encoder": "tarte", "trained": "all"},
        ],
    }
    text = " ".join(paper.differences(make_plan(plan)))
    for part in (
        "own on utkface, own on compas: weight 0.5 (0.875)",
        "short on utkface, short on compas: epochs 4 (100), patience 2 (10)",
        "encoder (own, short)",
        "96 x 96",
        "last stage and the head are trained (own, short)",
        "7 points",
        "900 rows",
        "YOTO selects",
        "leaves out EPO, FairBiNN",
    ):
        assert part in text, part
    assert "features of a frozen" not in text


def test_a_data_set_with_fewer_rows_than_the_papers_is_named_by_its_records():
    plan = make_plan(
        {
            "title": "t",
            "datasets": ["celeba"],
            "seeds": [0],
            "methods": [{"name": "GFB", "estimator": "GFB"}],
        }
    )
    for counts, few in (([[900, 600], [64, 56]], True), ([[19143, 0], [0, 13679]], False)):
        record = {"config": plan.trials()[0], "result": {"rows": {"calibration": counts}}}
        text = " ".join(paper.differences(plan, [record]))
        assert ("202,599" in text) == few
        assert ("about 10,000 rows" in text) == few


def test_differences_name_what_the_plan_changes():
    faithful = " ".join(paper.differences(read_plan("paper-tabular")))
    assert "scaled to the encoder" in faithful
    assert "100)" not in faithful
    assert "The comparison" not in faithful
    assert "The paper has 5 seeds" not in faithful
    assert "TARTE" in faithful
    assert "TARTE" not in " ".join(paper.differences(read_plan("paper-images")))
    other = {
        "title": "t",
        "datasets": ["compas"],
        "seeds": [1],
        "rows": 500,
        "criteria": ["equal_opportunity"],
        "methods": [
            {"name": "GFB", "estimator": "GFB"},
            {"name": "trees", "estimator": "FairBayes", "scorer": "gradient boosting"},
        ],
    }
    text = " ".join(paper.differences(make_plan(other)))
    for part in ("EPO, FairBiNN, YOTO, FairBayes", "trees", "500 rows", "equal_opportunity"):
        assert part in text


def _differences(**changes):
    methods = [{"name": name, "estimator": name} for name in paper.METHODS]
    base = {"title": "t", "datasets": ["adult"], "seeds": [*paper.SEEDS], "methods": methods}
    defaults = {"settings": "paper", "encoder": "tarte"} | changes.pop("defaults", {})
    return paper.differences(make_plan(base | {"defaults": defaults} | changes))


def test_what_isnt_tuned_is_named():
    plan = read_plan("paper-tabular")
    values = {"arguments": {}, "network": {"batch_size": 64}}
    names = [name.lower() for name in paper.METHODS]

    def said(tuned):
        found = paper.differences(replace(plan, tuned=tuned))
        (line,) = (line for line in found if line.startswith("Hyperparameters"))
        return line

    every = {"adult": dict.fromkeys(names, values), "compas": dict.fromkeys(names, values)}
    fewer = every | {"adult": {n: v for n, v in every["adult"].items() if n != "epo"}}
    assert "not tuned" not in said(every)
    assert "EPO on adult" in said(fewer)
    assert said(fewer).count(" on adult") == 1
    assert "on compas" not in said(fewer)
    assert "not tuned" in said({})


def test_tables_encoded_as_in_the_paper_are_no_difference():
    text = " ".join(_differences())
    assert "TARTE" not in text
    assert "widths" not in text


@pytest.mark.parametrize(
    "changes",
    [
        {"inits": 3},
        {"settings": 5},
        {"evaluate": "validation"},
        {"train_rows": 300},
        {"seeds": [1, 2, 3, 4, 6]},
        {"defaults": {"network": {"epochs": 3}}},
        {"defaults": {"encoder": {}}},
    ],
)
def test_each_change_of_the_setup_is_one_more_difference(changes):
    faithful = _differences()
    assert [line for line in _differences(**changes) if line not in faithful]


@pytest.mark.parametrize("name", ["paper-images", "images-frozen"])
def test_pictures_name_their_size_and_the_layers_that_are_trained(name):
    plan = read_plan(name)
    found = paper.differences(plan)
    assert f"{plan.size} x {plan.size}" in " ".join(found)
    every = replace(plan, methods=tuple(replace(m, trained="all") for m in plan.methods))
    assert len(paper.differences(every)) < len(found)
