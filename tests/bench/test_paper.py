"""The paper's tables agree with each other, wherever they speak about the same thing."""

from __future__ import annotations

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


def test_differences_name_what_the_plan_changes():
    faithful = " ".join(paper.differences(read_plan("paper-tabular")))
    assert "scaled to the encoder" in faithful
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
