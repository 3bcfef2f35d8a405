"""``fairdial train``: the model is the one that Python would have trained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import FairBayes, InvalidInputError, SmallGroupError
from fairdial.cli.learners import METHODS, NETWORKS, make_model
from fairdial.cli.rows import TrainingRows, check_held_out, take_features, take_labels
from fairdial.cli.tables import looks_like_dates, need_columns
from fairdial.methods.candidates import make_candidate
from fairdial.methods.learners import boosting, logistic

COMMON = ("--label", "decision", "--positive", "approve", "--drop", "number,half")
FEATURES = ["sex", "job", "children", "owner", "income"]


def rows(table: pd.DataFrame, *groups: str) -> pd.DataFrame:
    """Features as the command line makes them, and groups."""
    job = pd.Series([None if pd.isna(v) else v for v in table["job"]], dtype=object)
    found = table[[name for name in FEATURES if name not in groups]]
    found = found.assign(job=job, owner=table["owner"].astype("int64"))
    return found.join(table[list(groups)])


# ---- the same model ----------------------------------------------------------------------------


def test_logistic_regression_is_the_one_of_python(
    model: Path, old: pd.DataFrame, new: pd.DataFrame
) -> None:
    own = FairBayes(
        logistic(),
        tolerance=0.1,
        pos_label="approve",
        sensitive_column="region",
        calibration=0.25,
        random_state=0,
    ).fit(rows(old, "region"), old["decision"])
    found = fairdial.load(model)
    assert found.tolerance == 0.1
    assert found.classes_.tolist() == ["deny", "approve"]
    assert found.label_name_ == "decision"
    assert found.feature_names_in_.tolist() == FEATURES
    X = rows(new, "region")
    for wish in (0.02, 0.05, 1.0):
        ours, theirs = (m.decision_function(X, tolerance=wish) for m in (own, found))
        assert np.array_equal(ours, theirs)


def test_boosting_with_intersections_is_the_one_of_python(
    crossed: Path, old: pd.DataFrame, new: pd.DataFrame
) -> None:
    own = FairBayes(
        boosting(["job"], 0),
        criterion="equal_opportunity",
        pos_label="approve",
        sensitive_column=["region", "sex"],
        calibration=0.25,
        random_state=0,
    ).fit(rows(old, "region", "sex"), old["decision"])
    found = fairdial.load(crossed)
    assert found.frontier_.groups == ("north & F", "north & M", "south & F", "south & M")
    assert found.frontier_.to_json() == own.frontier_.to_json()
    X = rows(new, "region", "sex")
    assert np.array_equal(
        found.decision_function(X, tolerance=0.2), own.decision_function(X, tolerance=0.2)
    )


def test_the_kind_of_file_makes_no_difference(place: Path, model: Path, answer: Any) -> None:
    answer("train", place / "old.parquet", *COMMON, "--sensitive", "region", "--method",
           "logistic", "--tolerance", 0.1, "--out", place / "same")  # fmt: skip
    one, other = (fairdial.load(folder) for folder in (model, place / "same"))
    assert one.frontier_.to_json() == other.frontier_.to_json()
    assert one.feature_dtypes_ == other.feature_dtypes_


def test_what_is_told_is_the_frontier(place: Path, answer: Any) -> None:
    out = place / "told"
    told = answer("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method",
                  "logistic", "--seed", 3, "--calibration", 0.4, "--out", out)  # fmt: skip
    found = fairdial.load(out)
    frontier = found.frontier_
    assert told["hash"] == found.model_hash_
    assert told["model"] == str(out)
    assert told["features"] == FEATURES
    assert told["sensitive"] == ["region"]
    assert told["positive"] == "approve"
    assert told["rows"] == 1600
    assert told["calibration_rows"] == frontier.rows.sum() == pytest.approx(640, abs=4)
    assert [line["tolerance"] for line in told["frontier"]][-1] == frontier.gap[0]
    for line in told["frontier"]:
        if not line["feasible"]:
            assert line["gap"] == frontier.gap.min()
            continue
        point = frontier.at(line["tolerance"])
        assert line["accuracy"] == point.accuracy
        assert line["gap"] == point.gap <= line["tolerance"]
        assert [g["group"] for g in line["groups"]] == ["north", "south"]
        assert [g["selection_rate"] for g in line["groups"]] == point.selection_rate.tolist()
        assert [g["threshold"] for g in line["groups"]] == point.thresholds.tolist()
        assert [g["selected"] for g in line["groups"]] == point.selected.sum(axis=0).tolist()


@pytest.mark.parametrize("method", NETWORKS)
def test_a_network_of_every_method_is_trained_and_saved(
    method: str, place: Path, answer: Any
) -> None:
    out = place / method
    told = answer("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", method,
                  "--epochs", 1, "--members", 1, "--out", out)  # fmt: skip
    found = fairdial.load(out)
    network = found.estimator if method == "fairbayes" else found.network
    assert (network.epochs, network.members, network.verbose) == (1, 1, False)
    assert type(found).__name__.lower() == method
    decided = answer("predict", out, place / "new.csv", "--tolerance", 1, "--out", f"{out}.csv")
    assert decided["rows"] == 700
    assert told["method"] == method


def test_a_blend_is_both_averaged_and_auto_says_what_it_took(
    place: Path, answer: Any, shell: Any
) -> None:
    common = ("train", place / "old.csv", *COMMON, "--sensitive", "region")
    answer(*common, "--method", "blend", "--out", place / "blend")
    assert [type(part).__name__ for part in fairdial.load(place / "blend").estimator] == [
        "Pipeline"
    ] * 2
    told = answer(*common, "--method", "auto", "--budget", 0.001, "--out", place / "auto")
    assert told["chosen"] == "boosting"
    assert "not tried" in told["why"]
    assert type(fairdial.load(place / "auto")) is FairBayes
    known = answer("info", place / "auto")
    assert [known[name] for name in ("method", "chosen")] == ["auto", "boosting"]
    assert known["why"] == told["why"]
    shown = " ".join(shell("info", place / "auto").stdout.split())
    assert f" chosen boosting. {told['why']} " in shown
    assert answer("info", place / "blend")["chosen"] is None
    assert "\nchosen " not in shell("info", place / "blend").stdout


def test_why_a_candidate_failed_is_told_in_full_and_not_saved(
    place: Path, tmp_path: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quotes(LogisticRegression):  # type: ignore[misc]
        def fit(self, *_: Any) -> Any:
            raise ValueError("this is no number: 'patient0@clinic.org'")

    monkeypatch.setattr("fairdial.methods.candidates.boosting", lambda *_, **__: Quotes())
    common = ("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "auto")
    found = shell(*common, "--budget", 0.001, "--out", tmp_path / "m")
    assert "\nboosting failed: ValueError: this is no number: 'patient0@" in found.stderr
    assert "Chosen: logistic." in found.stderr
    assert "boosting: failed: ValueError." in shell("info", tmp_path / "m").stdout
    saved = [path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()]
    assert not [body for body in saved if b"@clinic" in body]


def test_many_columns_of_numbers_are_taken_as_from_python(tmp_path: Path, answer: Any) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(600, 300))).rename(columns="x{}".format)
    table = table.assign(label=(table["x0"] > 0).astype(int), group=rng.choice(["a", "b"], 600))
    path = write(tmp_path, table)
    common = ("train", path, "--label", "label", "--sensitive", "group", "--method")
    X = table.drop(columns=["label", "group"])
    for method in ("logistic", "blend"):
        answer(*common, method, "--out", tmp_path / method)
        found = fairdial.load(tmp_path / method).estimator
        assert repr(found) == repr(make_candidate(method, X, 0).estimator)
    assert "simpleimputer" in found[0].named_steps
    narrow = write(tmp_path, table.drop(columns=[f"x{i}" for i in range(1, 50)]))
    answer("train", narrow, *common[2:], "logistic", "--out", tmp_path / "narrow")
    assert "tableencoder" in fairdial.load(tmp_path / "narrow").estimator.named_steps


def test_settings_reach_the_estimator(place: Path, answer: Any) -> None:
    answer("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "logistic",
           "--criterion", "predictive_equality", "--min-count", 12, "--recalibrate", "--seed", 5,
           "--out", place / "set")  # fmt: skip
    found = fairdial.load(place / "set")
    assert found.get_params(deep=False) | {"estimator": None} == {
        "estimator": None,
        "criterion": "predictive_equality",
        "tolerance": 0.0,
        "recalibrate": "group",
        "prefit": False,
        "per_group": False,
        "calibration": 0.25,
        "cv": None,
        "predict_method": "auto",
        "pos_label": "approve",
        "sensitive_column": "region",
        "min_count": 12,
        "random_state": 5,
    }
    assert found.platt_ is not None


# ---- labels and columns ------------------------------------------------------------------------


def write(folder: Path, table: pd.DataFrame) -> Path:
    path = folder / "table.csv"
    table.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("labels", "given", "positive"),
    [
        ((0, 1), None, 1),
        ((0, 1), "0", 0),
        ((1.0, 2.0), "1.00", 1.0),
        ((False, True), "False", False),
    ],
)
def test_labels_of_any_kind_and_the_positive_one(
    labels: tuple[Any, Any], given: str | None, positive: Any, old: pd.DataFrame, tmp_path: Path,
    answer: Any,
) -> None:  # fmt: skip
    y = np.where(old["decision"] == "approve", labels[1], labels[0])
    path = write(tmp_path, old[["income", "region"]].assign(y=y))
    chosen = () if given is None else ("--positive", given)
    told = answer("train", path, "--label", "y", "--sensitive", "region", "--method", "logistic",
                  *chosen, "--out", tmp_path / "m")  # fmt: skip
    assert told["positive"] == positive
    assert fairdial.load(tmp_path / "m").classes_[1] == positive
    scored = answer("evaluate", tmp_path / "m", path, "--tolerance", 1)
    assert scored["accuracy"] > 0.6


@pytest.mark.parametrize(
    ("labels", "warned"),
    [((1, 2), True), ((9, 10), True), ((0, 1), False), ((0.0, 1.0), False), ((False, True), False)],
)
def test_a_label_that_is_taken_by_default_is_told_unless_it_is_one(
    labels: tuple[Any, Any], warned: bool, old: pd.DataFrame
) -> None:
    y = pd.Series(np.where(old["owner"], labels[1], labels[0]), name="y")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert take_labels(y, None)[1] is None
    words = [f"--positive was not given: {labels[1]} of 'y' is taken for the label that selected"]
    assert [str(one.message)[: len(words[0])] for one in caught] == words * warned


def test_a_text_label_that_is_taken_by_default_is_told(place: Path, shell: Any) -> None:
    found = shell("train", place / "old.csv", "--label", "decision", "--sensitive", "region",
                  "--method", "logistic", "--out", place / "greater")  # fmt: skip
    assert "Warning: --positive was not given: 'deny'" in found.stderr
    assert "Warning: 'number' has another value in every row" in found.stderr
    assert "Selected means decision = 'deny'" in found.stdout


def test_whole_numbers_and_truth_values_may_be_missing_in_parquet(
    old: pd.DataFrame, new: pd.DataFrame, tmp_path: Path, answer: Any
) -> None:
    def holed(table: pd.DataFrame) -> pd.DataFrame:
        gone = np.arange(len(table)) % 50 == 0
        return table[["region", "decision", "income"]].assign(
            children=table["children"].astype("Int64").mask(gone),
            owner=table["owner"].astype("boolean").mask(gone),
            job=table["job"].astype("category"),
        )

    holed(old).to_parquet(tmp_path / "old.parquet")
    holed(new).to_parquet(tmp_path / "new.parquet")
    holed(new).to_csv(tmp_path / "new.csv", index=False)
    answer("train", tmp_path / "old.parquet", "--label", "decision", "--positive", "approve",
           "--sensitive", "region", "--out", tmp_path / "m")  # fmt: skip
    parts = []
    for kind in ("csv", "parquet"):
        answer("predict", tmp_path / "m", tmp_path / f"new.{kind}", "--tolerance", 0.1, "--out",
               tmp_path / f"{kind}.parquet")  # fmt: skip
        parts.append(pd.read_parquet(tmp_path / f"{kind}.parquet"))
    pd.testing.assert_frame_equal(*parts)


def test_a_text_column_may_have_more_values_than_boosting_has_bins(
    old: pd.DataFrame, tmp_path: Path, answer: Any
) -> None:
    places = [f"place {i % 700}" for i in range(len(old))]
    path = write(tmp_path, old[["income", "region", "decision"]].assign(place=places))
    told = answer("train", path, "--label", "decision", "--positive", "approve", "--sensitive",
                  "region", "--out", tmp_path / "m")  # fmt: skip
    assert told["features"] == ["income", "place"]
    assert answer("evaluate", tmp_path / "m", path, "--tolerance", 1)["accuracy"] > 0.7


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("region", lambda n: range(n), "must tell at most 100 groups, got 1,600"),
        ("income", lambda n: [0.5] * (n - 1) + [np.inf], "infinite one in data row 1,600"),
        ("income", lambda n: pd.date_range("2020-01-01", periods=n), "turn them into numbers"),
        ("region", lambda n: ["here"] * n, "must tell two groups or more, got one: 'here'"),
        (
            "region",
            lambda n: ["a", "b"] * (n // 2 - 1) + ["a", "c"],
            "got fewer in 'c' (0 of its 1 rows). Merge small groups",
        ),
    ],
)
def test_columns_that_cannot_be_what_they_are_to_be(
    column: str, values: Any, told: str, old: pd.DataFrame, tmp_path: Path, shell: Any
) -> None:
    table = old[["income", "children", "region", "decision"]].copy()
    table[column] = values(len(table))
    table.to_parquet(tmp_path / "table.parquet")
    found = shell("train", tmp_path / "table.parquet", "--label", "decision", "--positive",
                  "approve", "--sensitive", "region", "--out", tmp_path / "m", code=2)  # fmt: skip
    assert told in found.stderr
    assert f"'{column}'" in found.stderr


# ---- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (["--label", "decison"], "'decision'; got 'decison'. Did you mean 'decision'?"),
        (["--label", "children"], "'children' must hold two values, got 4: 0, 1, 2, 3."),
        (["--label", "half"], "'half' must hold texts, whole numbers or truth values, got 0.5."),
        (["--label", "job"], "a label in every row, got {} without (first: {}). --drop-mi"),
        (["--label", "region"], "must name different columns, got 'region' twice"),
        (["--sensitive", "Region"], "got 'Region'. Did you mean 'region'?"),
        (["--sensitive", "region,zzz"], "--sensitive must be among the columns 'number',"),
        (["--sensitive", "job"], "got {} without (first: {}). --drop-missing leaves those"),
        (["--sensitive", "Regoin"], "got 'Regoin'. Did you mean 'region'?"),
        (["--sensitive", "sex,Regoin"], "got 'Regoin'. Did you mean 'region'?"),
        (["--drop", "numbr"], "Did you mean 'number'?"),
        (["--criterion", "demographic parity"], ". Did you mean 'demographic_parity'?"),
        (["--criterion", "equalized_odds"], " Equalised odds, true and false positive rates at"),
        (["--positive", "yes"], "--positive must be one of the labels 'approve' and 'deny'"),
        (["--epochs", "3"], "--epochs is for networks"),
        (["--method", "epo", "--recalibrate"], "--recalibrate is for methods with thresholds"),
        (["--method", "forest"], "'forest' is not one of"),
        (["--criterion", "equal"], "'equal' is not one of"),
        (["--tolerance", "1.3"], "1.3 is not in the range 0<=x<=1"),
        (["--tolerance", "5"], "5.0 is not in the range 0<=x<=1. 5% is 0.05."),
        (["--tolerance", "0,05"], "'0,05' is not a valid number. Write 0.05, with a point."),
        (["--tolerance", "5%"], "'5%' is not a valid number. 5% is 0.05."),
        (["--calibration", "95"], "95.0 is not in the range 0<x<1. 95% is 0.95."),
        (["--calibration", "0"], "0.0 is not in the range 0<x<1.\n"),
        (["--tolerance", "500"], "500.0 is not in the range 0<=x<=1.\n"),
        (["--tolerance", "nan"], "nan is not in the range 0<=x<=1"),
        (["--tolerance", "abc"], "'abc' is not a valid number"),
        (["--budget", "nan"], "'--budget': nan is not in the range x>0"),
        (["--budget", "0"], "'--budget': 0.0 is not in the range x>0"),
        (["--budget", "5%"], "'--budget': '5%' is not a valid number.\n"),
        (["--min-count", "900"], "at least 900 held-out rows that count for demographic_parity"),
        (["--positive", "Deny"], "got 'Deny'. Did you mean 'deny'?"),
        (["--out", "/proc/m"], "--out must lie in a folder that can be written to, got /proc/m"),
        (["--drop", "region"], "must name different columns, got 'region' twice"),
    ],
)  # fmt: skip
def test_mistakes_end_with_two_and_say_what_is_wrong(
    changed: list[str], told: str, old: pd.DataFrame, place: Path, shell: Any
) -> None:
    gone = np.flatnonzero(old["job"].isna())
    told = told.format(f"{len(gone)} rows", f"data row {gone[0] + 1}")
    given = ["train", place / "old.csv", "--label", "decision", "--sensitive", "region",
             "--method", "logistic", "--out", place / "never"]  # fmt: skip
    for option, value in zip(changed[::2], [*changed[1::2], None], strict=False):
        if option in given and value is not None:
            given[given.index(option) + 1] = value
        else:
            given += [option] if value is None else [option, value]
    found = shell(*given, code=2)
    assert told.strip() in " ".join(found.stderr.split())
    assert told.endswith("\n") <= found.stderr.endswith(told)
    assert found.stdout == ""
    assert not (place / "never").exists()


def test_a_model_is_replaced_only_if_that_is_wished(place: Path, shell: Any) -> None:
    out = place / "twice"
    given = ("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "logistic",
             "--out", out)  # fmt: skip
    shell(*given)
    assert "is there already; --overwrite replaces it" in shell(*given, code=2).stderr
    shell(*given, "--overwrite", "--seed", 1)
    assert fairdial.load(out).random_state == 1
    (out / "diary.txt").write_text("mine")
    assert "'diary.txt'" in shell(*given, "--overwrite", code=2).stderr
    assert (out / "diary.txt").exists()


def test_names_that_are_far_from_all_others_are_not_guessed(place: Path, shell: Any) -> None:
    found = shell("train", place / "old.csv", "--label", "decision", "--sensitive", "region",
                  "--drop", "nope", "--out", place / "never", code=2)  # fmt: skip
    assert "got 'nope'." in found.stderr
    assert "Did you mean" not in found.stderr


@pytest.mark.parametrize(
    ("name", "columns", "meant"),
    [
        ("id", ["customer_id", "region"], "customer_id"),
        ("ID", ["Customer ID", "region"], "Customer ID"),
        ("id", ["customer_id", "order_id"], None),
        ("id", ["paid", "region"], None),
    ],
)
def test_a_column_is_meant_by_a_word_of_its_name(
    name: str, columns: list[str], meant: str | None
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        need_columns(pd.DataFrame(columns=columns), [name], "--drop")
    ending = "" if meant is None else f" Did you mean {meant!r}?"
    assert str(caught.value).endswith(f"got {name!r}.{ending}")


def test_dates_that_are_texts_are_told(old: pd.DataFrame, tmp_path: Path, shell: Any) -> None:
    days = pd.date_range("2020-01-01", periods=len(old)).strftime("%d.%m.%Y")
    path = write(tmp_path, old[["income", "job", "region", "decision"]].assign(opened=days))
    found = shell("train", path, "--label", "decision", "--positive", "approve", "--sensitive",
                  "region", "--method", "logistic", "--out", tmp_path / "m")  # fmt: skip
    assert "Warning: 'opened' looks like dates" in found.stderr
    assert "'job' looks like dates" not in found.stderr


@pytest.mark.parametrize(
    ("value", "is_date"),
    [
        ("2020-01-31", True),
        ("2020-01-31T10:00:00Z", True),
        ("31/1/20", True),
        ("1.2.2020 8:00", True),
        ("2020-01.31", False),
        ("10-20", False),
        ("12.5", False),
        ("office", False),
    ],
)
def test_what_looks_like_a_date(value: str, is_date: bool) -> None:
    assert looks_like_dates(pd.Series([value, None], dtype=object)) is is_date


def test_the_held_out_rows_are_counted_beforehand_as_they_will_be(old: pd.DataFrame) -> None:
    X, y = rows(old, "region", "sex"), old["decision"]
    for kind in ("demographic_parity", "equal_opportunity", "predictive_equality"):
        model = FairBayes(
            logistic(),
            criterion=kind,
            pos_label="approve",
            sensitive_column=["region", "sex"],
            calibration=0.25,
            min_count=1,
            random_state=0,
        )
        least = int(model.fit(X, y).frontier_.counted.min())
        given = TrainingRows(X, y, "approve", ["region", "sex"])
        check_held_out(given, kind, 0.25, least)
        with pytest.raises(SmallGroupError, match=f"at least {least + 1} held-out rows"):
            check_held_out(given, kind, 0.25, least + 1)


@pytest.mark.parametrize("many", [1, 2])
def test_a_label_with_hardly_a_row_to_train_on_is_told_beforehand(
    many: int, tmp_path: Path, shell: Any
) -> None:
    n = 300
    table = pd.DataFrame({"x": np.arange(n) % 17, "g": ["a"] * 150 + ["b"] * 150})
    path = write(tmp_path, table.assign(y=(np.arange(n) < many).astype(int)))
    for method in ("boosting", "blend"):
        given = ("--label", "y", "--sensitive", "g", "--method", method, "--out", tmp_path / "m")
        found = shell("train", path, *given, code=2).stderr
        assert "Error: --label: 'y' must have at least 2 rows of each label that aren't" in found
        assert found.endswith("held out, to train on, got 1 of the label 1.\n")
    write(tmp_path, table.assign(y=(np.arange(n) < 3).astype(int)))
    shell("train", path, *given)


@pytest.mark.parametrize(("shift", "who"), [(50.0, "nobody"), (-50.0, "everybody")])
def test_a_model_that_decides_alike_for_all_is_told(
    shift: float, who: str, model: Path, place: Path, tmp_path: Path, shell: Any
) -> None:
    found = fairdial.load(model)
    found.estimator_[-1].intercept_ += shift  # towards "deny", the second in the alphabet
    found.save(tmp_path / "m")
    told = shell("calibrate", tmp_path / "m", place / "new.csv", "--in-place").stderr
    assert f"Warning: the model selects {who}, at every tolerance" in told
    card = (tmp_path / "m" / "MODEL_CARD.md").read_text("utf-8")
    assert f"It selects {'none' if shift > 0 else 'all'} of these rows at every tolerance" in card
    assert " 1 state in all" in card


def test_the_resting_tolerance_has_a_line_of_its_own(place: Path, shell: Any) -> None:
    found = shell("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method",
                  "logistic", "--tolerance", 0.9, "--out", place / "wide")  # fmt: skip
    assert [line for line in found.stdout.splitlines() if line.startswith(" 0.9 free <-")]
    assert "free the unconstrained position\n" in found.stdout
    frontier = fairdial.load(place / "wide").frontier_
    assert f" {frontier.gap[0]:.4g} free" not in found.stdout  # the same position
    assert "1,600 rows, 25% of them held out to find the dial" in found.stderr


def test_that_the_gap_of_new_rows_may_be_larger_is_said_once(place: Path, shell: Any) -> None:
    out = place / "caveat"
    given = ("--sensitive", "region", "--method", "logistic", "--out", out)
    found = shell("train", place / "old.csv", *COMMON, *given)
    held = fairdial.load(out).frontier_.counted.min()
    told = (
        "On new rows the gap may well be larger, all the more as the smallest group, 'south', has "
        f"{held} that count: fairdial dial {out} --confidence 0.95 asks for a bound.\n"
    )
    assert found.stdout.endswith(told)
    assert found.stdout.count("may well be larger") == 1
    assert "On new rows the gap may well be larger: --conf" in shell("dial", out).stdout
    again = ("calibrate", out, place / "new.csv", "--in-place")
    assert "On new rows the gap may well be larger, all the more" in shell(*again).stdout


def test_a_dial_that_rests_at_the_strictest_position_by_default_is_told(
    place: Path, tmp_path: Path, shell: Any
) -> None:
    common = ("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "logistic")
    out = tmp_path / "a"
    assert shell(*common, "--out", out).stderr.endswith(
        " its dial rests at 0.\nThat is the strictest position, because no --tolerance was given: "
        f"fairdial dial {out} --tolerance T --set chooses another.\n"
    )
    found = shell(*common, "--out", tmp_path / "b", "--tolerance", 0)
    assert found.stderr.endswith(" its dial rests at 0.\n")


def test_groups_that_gfb_cannot_take_are_named_before_it_is_trained(
    place: Path, tmp_path: Path, shell: Any
) -> None:
    given = ("--sensitive", "region,sex", "--method", "gfb", "--out", tmp_path / "m")
    assert shell("train", place / "old.csv", *COMMON, *given, code=2).stderr == (
        "Error: --sensitive: 'region', 'sex' must tell two groups for --method gfb, got 4: "
        "'north & F', 'north & M', 'south & F', 'south & M'; --method boosting or fairbayes takes "
        "any number.\n"
    )


def test_a_small_table_is_told_of_other_methods_unless_one_was_named(
    place: Path, tmp_path: Path, shell: Any
) -> None:
    words = "Small table: --method blend or auto may be better (on 2,000 rows of Adult blend was"
    common = ("train", place / "old.csv", *COMMON, "--sensitive", "region", "--out")
    assert words in shell(*common, tmp_path / "a").stderr
    assert words not in shell(*common, tmp_path / "b", "--method", "boosting").stderr
    assert shell(*common, tmp_path / "c", "-q").stderr == ""


def warned(table: pd.DataFrame, groups: list[str]) -> list[str]:
    """What is said of a table's columns before training."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        take_features(table, groups)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (lambda i: f"{i},345 EUR", "looks like numbers, but with others that are none, such as '0"),
        (lambda i: f"${i}.50", "looks like numbers, but"),
        (lambda i: "unknown" if i == 7 else str(i), "are none, such as 'unknown'"),
        (lambda i: f"{i % 300} kg", "looks like numbers, but"),
        (lambda i: f"note {i}", "has another value in every row"),
        (lambda i: f"{i:04d}-{i % 7}", "has another value in every row"),
        (lambda i: f"note {max(i, 20)}", "has 580 different texts in 600 rows"),
        (lambda i: f"2020-01-{1 + i % 28:02d}", "looks like dates"),
        (lambda i: f"place {i % 100}", None),
        (lambda i: f"{i % 8} children", None),
        (lambda i: f"{i % 60}{'ABCDEFGHIJ'[i % 10]}", None),
        (lambda i: f"{10 * (i % 20)}-{10 * (i % 20) + 9}", None),
    ],
)
def test_texts_that_are_hardly_categories_are_told_once(values: Any, words: str | None) -> None:
    table = pd.DataFrame({"x": [values(i) for i in range(600)], "g": ["a", "b"] * 300})
    told = warned(table, ["g"])
    assert len(told) == (words is not None)
    assert all(words in line and "--drop 'x'" in line for line in told)


@pytest.mark.parametrize(("many", "words"), [(50, None), (600, "has another value in every row")])
def test_texts_of_digits_are_categories(many: int, words: str | None) -> None:
    codes = [f"{i % many:05d}" for i in range(600)]
    told = warned(pd.DataFrame({"zip": codes, "g": ["a", "b"] * 300}), ["g"])
    assert len(told) == (words is not None)
    assert all(words in line for line in told)


def test_a_text_with_far_more_values_than_categories_is_told() -> None:
    table = pd.DataFrame({"x": [f"word {i % 1500}" for i in range(6000)], "g": ["a", "b"] * 3000})
    (told,) = warned(table, ["g"])
    assert told.startswith("'x' has 1,500 different texts in 6,000 rows")


def test_groups_that_differ_only_by_capitals_or_spaces_are_told() -> None:
    names = ["Woman", "woman ", "Man", "Human"]
    table = pd.DataFrame({"x": range(40), "g": names * 10})
    (told,) = warned(table, ["g"])
    assert "'g' has the groups 'Woman' and 'woman ', which differ only by capitals" in told


def test_every_method_is_documented_by_the_help(shell: Any) -> None:
    text = " ".join(shell("train", "--help").output.split())
    assert all(f"{method}" in text for method in METHODS)
    assert "Why boosting is the default" in text


# ---- processes ---------------------------------------------------------------------------------


def test_torch_that_is_missing_is_named_before_the_work(
    place: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    given = ("--sensitive", "region", "--method", "gfb", "--out", place / "without")
    found = shell("train", place / "old.csv", *COMMON, *given, code=1)
    assert found.stderr == (
        "Error: --method gfb needs torch: pip install '.[torch]' -c constraints.txt in fairdial's "
        "folder; --method boosting does without.\n"
    )


def test_under_torchrun_only_networks_are_trained(
    place: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = shell("train", place / "old.csv", *COMMON, "--sensitive", "region", "--out",
                  place / "never", code=2)  # fmt: skip
    assert "must be a network" in found.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
def test_an_interrupted_training_ends_with_130_and_saves_nothing(place: Path) -> None:
    command = [sys.executable, "-m", "fairdial", "train", str(place / "old.csv"), *COMMON,
               "--sensitive", "region", "--method", "fairbayes", "--members", "400", "--epochs",
               "9999", "--out", str(place / "never")]  # fmt: skip
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's & ignores it
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("Training fairbayes on 1,600 rows")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    # Python ends by the signal itself if it was in exec(text), as imports are: 130 in a shell
    assert process.returncode in (130, -signal.SIGINT), err
    assert err.strip() == "Interrupted: nothing was written."
    assert out == ""
    assert not (place / "never").exists()


def test_boosting_has_the_trees_of_auto_and_of_blend() -> None:
    alone = make_model("boosting", texts=["job"], seed=0).estimator
    blended = make_model("blend", texts=["job"], seed=0).estimator[-1]
    tried = make_candidate("boosting", pd.DataFrame({"job": ["a"]}), 0).estimator
    assert alone.get_params()["histgradientboostingclassifier__max_leaf_nodes"] == 15
    assert str(alone.get_params()) == str(blended.get_params()) == str(tried.get_params())
