"""Criteria, objectives, budgets, weights and strata on the command line, on COMPAS and on loans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import fairdial
from fairdial import metrics
from fairdial.cli.points import points_at
from fairdial.cli.problem_options import join_criteria
from fairdial.core.criteria import criterion
from fairdial.core.demands import minimum
from fairdial.core.measured import gap_range
from fairdial.estimators.learners import logistic

COMPAS = ("--label", "charged_again", "--positive", "no", "--sensitive", "origin",
          "--method", "logistic")  # fmt: skip
LOANS = ("--label", "decision", "--positive", "approve", "--drop", "number,half",
         "--sensitive", "region", "--method", "logistic")  # fmt: skip


@pytest.fixture(scope="module")
def compas(tmp_path_factory: pytest.TempPathFactory, shell: Any) -> Path:
    """A folder with compas-train.csv and compas-new.csv, with a column of weights."""
    folder = tmp_path_factory.mktemp("compas")
    shell("demo", "--data", "compas", "--tables", folder)
    for name in ("train", "new"):
        table = pd.read_csv(folder / f"compas-{name}.csv")
        table["times"] = 1 + np.arange(len(table)) % 3
        table.to_csv(folder / f"weighted-{name}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def odds(compas: Path, answer: Any) -> tuple[Path, Any]:
    """Equalized odds, with a minimum rate, costs and a budget."""
    out = compas / "odds"
    found = answer("train", compas / "compas-train.csv", *COMPAS, "--criterion", "equalized_odds",
                   "--criterion", "true_positive_rate>=0.5", "--cost-fn", 2, "--budget", 0.8,
                   "--tolerance", 0.05, "--out", out)  # fmt: skip
    return out, found


def test_every_option_reaches_the_problem(odds: tuple[Path, Any]) -> None:
    out, found = odds
    model = fairdial.load(out)
    assert found["criterion"] == "equalized_odds+true_positive_rate>=0.5"
    assert found["objective"] == "costs"
    assert found["costs"] == {"false_positive": 1.0, "false_negative": 2.0}
    assert found["budget"] == {"share": 0.8, "exact": False}
    assert found["nested"] is False
    assert model.frontier_.problem.objective == fairdial.Costs(1, 2)
    for line in found["frontier"]:
        (own,) = points_at(model.frontier_, [line["tolerance"]])
        assert line["gaps"] == own.gaps
        assert line["value"] == own.value
        assert line["selected_share"] <= 0.8
        if line["feasible"]:
            two = own.gaps["true_positive_rate"], own.gaps["false_positive_rate"]
            assert max(two) <= line["tolerance"]
            assert own.gaps["true_positive_rate>=0.5"] == 0


def test_dial_and_info_name_every_demand(odds: tuple[Path, Any], answer: Any, shell: Any) -> None:
    out, _ = odds
    names = ["true_positive_rate", "false_positive_rate", "true_positive_rate>=0.5"]
    found = answer("dial", out, "--tolerance", 0.05)
    assert list(found["gaps"]) == names
    assert [line["demand"] for line in found["demands"]] == names
    assert [line["limit"] for line in found["demands"]] == [0.05, 0.05, 0.0]
    told = answer("info", out)
    assert [line["demand"] for line in told["demands"]] == names
    for text in (shell("dial", out).stdout, shell("info", out).stdout):
        for name in names:
            assert name.replace("_", " ").replace(">=", " >= ") in text
        assert "minus mean cost" in text
        assert "80%" in text


def test_no_one_loses_in_the_answer_that_only_lowers_thresholds(
    odds: tuple[Path, Any], answer: Any
) -> None:
    out, _ = odds
    model = fairdial.load(out)
    found = answer("dial", out, "--tolerance", 0.05, "--rising", "--bound")
    best, lifted = model.frontier_.at(0.05), found["rising_answer"]
    free = model.frontier_.at(1.0)
    assert lifted["feasible"] == (lifted["gap"] <= 0.05)
    for group, selected in zip(lifted["groups"], free.selected.sum(axis=0), strict=True):
        assert group["selected"] >= selected
    assert found["bound"] == best.bound
    assert found["bound"] >= found["expected_value"] - 1e-12


def test_a_path_has_a_leveling_up_answer_too(model: Path, answer: Any) -> None:
    found = answer("dial", model, "--tolerance", 0.05, "--rising")
    free = fairdial.load(model).frontier_.at(1.0)
    rising = found["rising_answer"]
    assert rising["gap"] <= 0.05
    assert [g["selected"] for g in rising["groups"]] >= free.selected.sum(axis=0).tolist()


def test_evaluate_measures_every_demand(
    odds: tuple[Path, Any], compas: Path, answer: Any, tmp_path: Path
) -> None:
    out, _ = odds
    found = answer("evaluate", out, compas / "compas-new.csv", "--tolerance", 0.05)
    answer("predict", out, compas / "compas-new.csv", "--tolerance", 0.05, "--out",
           tmp_path / "d.csv")  # fmt: skip
    table, decided = pd.read_csv(compas / "compas-new.csv"), pd.read_csv(tmp_path / "d.csv")
    rows = {
        "sensitive_features": table["origin"],
        "criterion": "equalized_odds+true_positive_rate>=0.5",
        "pos_label": "no",
    }
    expected = metrics.gaps(table["charged_again"], decided["decision"], **rows)
    assert {d["demand"]: d["gap"] for d in found["demands"]} == expected
    for line in found["demands"]:
        low, high = line["interval"]
        assert low <= line["gap"] <= high
    assert found["gap"] == metrics.gap(table["charged_again"], decided["decision"], **rows)
    wrong = table["charged_again"] != decided["decision"]
    missed = wrong & (table["charged_again"] == "no")
    assert found["value"] == pytest.approx(-(wrong.sum() + missed.sum()) / len(table))


def test_weights_are_repeated_rows(compas: Path, answer: Any, tmp_path: Path) -> None:
    table = pd.read_csv(compas / "weighted-new.csv")
    repeated = table.loc[table.index.repeat(table["times"])].drop(columns="times")
    repeated.to_csv(tmp_path / "repeated.csv", index=False)
    answer("train", compas / "weighted-train.csv", *COMPAS, "--weights", "times", "--criterion",
           "equalized_odds", "--tolerance", 0.1, "--out", tmp_path / "m")  # fmt: skip
    found = fairdial.load(tmp_path / "m")
    assert "times" not in found.feature_names_in_
    weighted = answer("evaluate", tmp_path / "m", compas / "weighted-new.csv", "--weights", "times")
    plain = answer("evaluate", tmp_path / "m", tmp_path / "repeated.csv")
    for name in ("rows", "accuracy", "gap", "groups"):
        assert weighted[name] == plain[name]
    assert weighted["gap_interval"] is None
    once = ("--criterion", "equalized_odds", "--out")
    answer("calibrate", tmp_path / "m", compas / "weighted-new.csv", "--weights", "times", *once,
           tmp_path / "w")  # fmt: skip
    answer("calibrate", tmp_path / "m", tmp_path / "repeated.csv", *once, tmp_path / "r")
    frontiers = [fairdial.load(tmp_path / name).frontier_ for name in "wr"]
    assert np.array_equal(frontiers[0].cells, frontiers[1].cells)
    one, two = (frontier.at(0.05) for frontier in frontiers)
    assert one.gaps == two.gaps
    assert np.array_equal(one.thresholds, two.thresholds)


def test_strata_hold_one_by_one(compas: Path, answer: Any, tmp_path: Path) -> None:
    found = answer("train", compas / "compas-train.csv", *COMPAS, "--control", "c_charge_degree",
                   "--tolerance", 0.05, "--out", tmp_path / "m")  # fmt: skip
    assert found["control"] == ["c_charge_degree"]
    assert "c_charge_degree" in found["features"]
    model = fairdial.load(tmp_path / "m")
    assert model.frontier_.criterion.n_strata == 2
    point = answer("dial", tmp_path / "m", "--tolerance", 0.05)
    assert len(point["gaps"]) == 2
    assert max(point["gaps"].values()) <= 0.05
    new = compas / "compas-new.csv"
    seen = answer("evaluate", tmp_path / "m", new, "--control", "c_charge_degree")
    decided = model.predict(pd.read_csv(new).drop(columns="charged_again"), tolerance=0.05)
    table = pd.read_csv(new)
    for name, line in zip(("F", "M"), seen["demands"], strict=True):
        rows = (table["c_charge_degree"] == name).to_numpy()
        alone = metrics.gap(table["charged_again"][rows], decided[rows], pos_label="no",
                            sensitive_features=table["origin"][rows])  # fmt: skip
        assert line["gap"] == alone


def test_a_criterion_with_tolerances_sets_the_default(
    place: Path, answer: Any, tmp_path: Path
) -> None:
    found = answer("train", place / "old.csv", *LOANS, "--criterion", "demographic_parity=0.1",
                   "--criterion", "equal_opportunity=0.05", "--out", tmp_path / "m")  # fmt: skip
    assert found["tolerance"] == 0.1
    assert [demand["scale"] for demand in found["demands"]] == [1.0, 0.5]
    point = answer("dial", tmp_path / "m")
    assert point["gaps"]["selection_rate"] <= 0.1
    assert point["gaps"]["true_positive_rate"] <= 0.05


def test_ratio_is_the_four_fifths_rule(place: Path, answer: Any, tmp_path: Path) -> None:
    answer("train", place / "old.csv", *LOANS, "--ratio", "--tolerance", 0.2, "--out",
           tmp_path / "m")  # fmt: skip
    point = answer("dial", tmp_path / "m", "--tolerance", 0.2)
    rates = [group["selection_rate"] for group in point["groups"]]
    assert point["criterion"] == "demographic_parity_ratio"
    assert min(rates) >= 0.8 * max(rates)


@pytest.mark.parametrize("objective", ["balanced_accuracy", "f1"])
def test_objectives_are_the_best_of_their_kind(
    objective: str, place: Path, answer: Any, tmp_path: Path
) -> None:
    answer("train", place / "old.csv", *LOANS, "--objective", objective, "--tolerance", 0.05,
           "--out", tmp_path / "m")  # fmt: skip
    point = fairdial.load(tmp_path / "m").frontier_.at(0.05)
    shown = answer("dial", tmp_path / "m")
    assert shown["value"] == point.value
    assert point.problem.objective.name == objective


def test_a_nested_dial_reports_what_it_costs(place: Path, answer: Any, tmp_path: Path) -> None:
    found = answer("train", place / "old.csv", *LOANS, "--criterion", "equalized_odds", "--nested",
                   "--tolerance", 0.1, "--out", tmp_path / "m")  # fmt: skip
    assert found["nested"] is True
    assert found["nested_loss"] >= 0
    assert answer("info", tmp_path / "m")["nested_loss"] == found["nested_loss"]


def test_an_exact_budget_is_used_up(place: Path, answer: Any, tmp_path: Path) -> None:
    answer("train", place / "old.csv", *LOANS, "--budget", 0.25, "--exact-budget", "--tolerance",
           0.1, "--out", tmp_path / "m")  # fmt: skip
    point = answer("dial", tmp_path / "m", "--tolerance", 0.1)
    assert 0.24 <= point["selected_share"] <= 0.25


def test_a_lottery_decides_as_python_does(place: Path, answer: Any, tmp_path: Path) -> None:
    answer("train", place / "old.csv", *LOANS, "--criterion", "equalized_odds", "--randomize",
           "--tolerance", 0.02, "--out", tmp_path / "m")  # fmt: skip
    answer("predict", tmp_path / "m", place / "new.csv", "--out", tmp_path / "d.csv")
    model, new = fairdial.load(tmp_path / "m"), pd.read_csv(place / "new.csv")
    columns = [*model.feature_names_in_, "region"]
    decided = pd.read_csv(tmp_path / "d.csv")["decision"]
    assert decided.tolist() == model.predict(new[columns], tolerance=0.02).tolist()
    shell_data = answer("dial", tmp_path / "m", "--tolerance", 0.02)
    for group in shell_data["groups"]:
        assert sum(part["probability"] for part in group["lottery"]) == pytest.approx(1.0)
    answer("export", tmp_path / "m", "--thresholds", tmp_path / "t.csv", "--tolerance", 0.02)
    table = pd.read_csv(tmp_path / "t.csv")
    assert table.groupby("group")["probability"].sum().tolist() == pytest.approx([1.0, 1.0])


def test_exported_thresholds_are_those_of_the_dial(
    model: Path, answer: Any, tmp_path: Path
) -> None:
    answer("export", model, "--thresholds", tmp_path / "t.csv", "--tolerance", 0.05, "--tolerance",
           0.1)  # fmt: skip
    table = pd.read_csv(tmp_path / "t.csv")
    points = fairdial.load(model).frontier_.at([0.05, 0.1])
    assert np.array_equal(table["threshold"].to_numpy().reshape(2, 2), points.thresholds)
    assert table["probability"].eq(1).all()


def test_exported_sql_decides_as_predict_does(
    model: Path, place: Path, answer: Any, refused: Any, tmp_path: Path
) -> None:
    answer("export", model, "--sql", tmp_path / "rule.sql", "--tolerance", 0.05, "--score", "z")
    trained, new = fairdial.load(model), pd.read_csv(place / "new.csv")
    X = new[[*trained.feature_names_in_, "region"]]
    rows = new.assign(z=trained.logits(X), place=np.arange(len(new)))
    rule = (tmp_path / "rule.sql").read_text()
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        found = connection.execute(f"SELECT {rule} FROM rows ORDER BY place").fetchall()
    expected = trained.predict(X, tolerance=0.05) == trained.classes_[1]
    assert [line[0] for line in found] == expected.astype(int).tolist()

    to = ("--sql", tmp_path / "other.sql")
    refused("export", model, *to, "--tolerance", 0.05, "--tolerance", 0.1, option="--tolerance")
    refused("export", model, *to, "--sensitive", "sex", option="--sensitive")
    refused("export", model, "--thresholds", tmp_path / "t.csv", "--score", "z", option="--score")
    assert not (tmp_path / "other.sql").exists()


def test_calibrate_can_change_the_problem(
    model: Path, place: Path, answer: Any, tmp_path: Path
) -> None:
    found = answer("calibrate", model, place / "new.csv", "--criterion", "equalized_odds",
                   "--objective", "f1", "--budget", 200, "--out", tmp_path / "m")  # fmt: skip
    assert found["criterion"] == "equalized_odds"
    assert found["objective"] == "f1"
    assert found["budget"]["share"] == pytest.approx(200 / 700)
    assert fairdial.load(tmp_path / "m").frontier_.at(0.1).selected.sum() <= 200


# ---- what is refused ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def odd(place: Path) -> Path:
    """Loans with columns that can't be weights, and with strata that are too small."""
    table = pd.read_csv(place / "old.csv")
    table["negative"], table["zero"], table["text"] = 1.0, 0, "heavy"
    table["gone"] = np.where(np.arange(len(table)) == 7, np.nan, 1.0)
    table.loc[3, "negative"] = -2.0
    table["rare"] = np.where(np.arange(len(table)) < 40, "few", "many")
    table["many"] = np.arange(len(table))
    table.to_csv(place / "odd.csv", index=False)
    return place / "odd.csv"


@pytest.mark.parametrize(
    ("arguments", "option", "names"),
    [
        (("--weights", "negative"), "--weights", ("-2.0", "data row 4")),
        (("--weights", "zero"), "--weights", ("'zero'",)),
        (("--weights", "text"), "--weights", ("'heavy'",)),
        (("--weights", "gone"), "--weights", ("data row 8",)),
        (("--weights", "nothing"), "--weights", ("'nothing'",)),
        (("--weights", "region"), "--weights", ("'region'",)),
        (("--control", "nothing"), "--control", ("'nothing'",)),
        (("--control", "region"), "--control", ("'region'",)),
        (("--control", "many"), "--control", ("'many'", "100")),
        (("--criterion", "fairness"), "--criterion", ("'fairness'",)),
        (("--criterion", "demographic parity"), "--criterion", ("'demographic_parity'?",)),
        (("--criterion", "true_positive_rate>=2"), "--criterion", ("[0, 1]",)),
        (("--criterion", "selection_rate>=0.6", "--criterion", "selection_rate<=0.4"),
         "--criterion", ("selection_rate>=0.6", "selection_rate<=0.4")),
        (("--criterion", "demographic_parity=0.1", "--criterion", "equalized_odds"),
         "--criterion", ("equalized_odds",)),
        (("--criterion", "demographic_parity=2"), "--criterion", ("[0, 1]",)),
        (("--cost-fp", "0", "--cost-fn", "0"), "--cost-fn", ()),
        (("--cost-fn", "2", "--objective", "f1"), "--objective", ("--cost-fp",)),
        (("--exact-budget",), "--exact-budget", ("--budget",)),
        (("--randomize", "--nested"), "--randomize", ("--nested",)),
        (("--randomize", "--rising"), "--randomize", ("--rising",)),
        (("--randomize", "--criterion", "predictive_parity"), "--randomize",
         ("predictive_parity",)),
        (("--time-limit", "5"), "--time-limit", ("auto",)),
        (("--budget", "5000"), "--budget", ("5000",)),
    ],
)  # fmt: skip
def test_bad_input_names_the_option(
    arguments: tuple[str, ...], option: str, names: tuple[str, ...], odd: Path, tmp_path: Path,
    refused: Any,
) -> None:  # fmt: skip
    extra = ("--drop", "negative,zero,text,gone,rare,many")
    extra = tuple(",".join(n for n in word.split(",") if n not in arguments) for word in extra)
    refused("train", odd, *LOANS, *extra, *arguments, "--out", tmp_path / "never", option=option,
            names=names)  # fmt: skip
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("value", ["-0.1", "1.5", "nan", "20%", "many"])
def test_a_budget_is_a_share_or_a_number_of_rows(value: str, place: Path, shell: Any) -> None:
    found = shell("train", place / "old.csv", *LOANS, "--budget", value, "--out", place / "never",
                  code=2)  # fmt: skip
    assert "'--budget'" in found.stderr


def test_small_strata_are_refused_before_training(odd: Path, tmp_path: Path, shell: Any) -> None:
    found = shell("train", odd, *LOANS, "--drop", "negative,zero,text,gone,many", "--control",
                  "rare", "--out", tmp_path / "never", code=2)  # fmt: skip
    assert "in few" in found.stderr
    assert "Training" not in found.stderr.splitlines()[-1]


def test_demands_that_no_thresholds_meet_are_refused(
    place: Path, tmp_path: Path, refused: Any
) -> None:
    refused("train", place / "old.csv", *LOANS, "--criterion", "true_positive_rate>=1",
            "--criterion", "false_positive_rate<=0", "--out", tmp_path / "never",
            option="--criterion",
            names=("true_positive_rate>=1.0", "false_positive_rate<=0.0"))  # fmt: skip


def test_families_refuse_what_needs_thresholds(place: Path, tmp_path: Path, refused: Any) -> None:
    for arguments, option in ((("--budget", "0.2"), "--budget"), (("--rising",), "--rising")):
        refused("train", place / "old.csv", *LOANS[:-1], "fairbinn", *arguments, "--out",
                tmp_path / "never", option=option)  # fmt: skip


# ---- helpers -----------------------------------------------------------------------------------


def test_ratios_are_for_differences_only() -> None:
    assert join_criteria((), ratio=False) == ""
    text = join_criteria(("equalized_odds", "true_positive_rate>=0.5"), ratio=True)
    spreads = [demand.spread for demand in criterion(text).demands]
    assert spreads == ["ratio", "ratio", "minimum"]


@pytest.mark.parametrize("seed", range(20))
def test_the_range_of_gaps_holds_every_gap_within_the_intervals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.random((3, 2)), axis=1)
    rates = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * rng.random((3, 500))  # (K, n)
    gaps = {
        criterion("demographic_parity").demands[0]: rates.max(axis=0) - rates.min(axis=0),
        criterion("demographic_parity_ratio").demands[0]: 1 - rates.min(axis=0) / rates.max(axis=0),
        minimum("selection_rate", 0.5): np.maximum(0.5 - rates.min(axis=0), 0),
    }
    for demand, found in gaps.items():
        low, high = gap_range(demand, [tuple(pair) for pair in ends.tolist()])
        assert low - 1e-12 <= found.min()
        assert found.max() <= high + 1e-12


def test_results_are_strict_json(odds: tuple[Path, Any], shell: Any) -> None:
    text = shell("info", odds[0], "--json").stdout
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize(
    "given",
    [
        {"demographic_parity": 0.1, "equal_opportunity": 0.05},
        ["equalized_odds", minimum("selection_rate", 0.2)],
        criterion("equalized_odds_ratio"),
    ],
)
def test_models_saved_from_python_are_described(
    given: Any, place: Path, answer: Any, tmp_path: Path
) -> None:
    table = pd.read_csv(place / "old.csv")
    model = fairdial.FairBayes(logistic(), criterion=given, pos_label="approve", random_state=0)
    model.fit(table[["children", "half"]], table["decision"], sensitive_features=table["sex"])
    model.save(tmp_path / "m")
    found = answer("info", tmp_path / "m")
    assert found["criterion"] == criterion(given).name
    assert found["tolerance"] == (criterion(given).declared or 0.0)
    assert answer("dial", tmp_path / "m", "--tolerance", 0.3)["gaps"]
