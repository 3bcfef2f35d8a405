"""``fairdial train``: the model is the one that Python trains."""

from __future__ import annotations

import json
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
from fairdial import FairBayes, InvalidInputError
from fairdial._validation import fraction_hint
from fairdial.cli.columns import looks_like_dates
from fairdial.cli.points import points_at
from fairdial.cli.reading import require_columns
from fairdial.cli.training_rows import check_groups, check_labels, make_features
from fairdial.estimators.candidates import make_candidate
from fairdial.estimators.learners import boosting, logistic
from fairdial.registry import find, methods, names

NARROW = ("--criterion", "demographic_parity", "--criterion", "selection_rate>=0.4",
          "--criterion", "selection_rate<=0.6")  # fmt: skip
COMMON = ("--label", "decision", "--positive", "approve", "--drop", "number,half")
FEATURES = ["sex", "job", "children", "owner", "income"]


def rows(table: pd.DataFrame, *groups: str) -> pd.DataFrame:
    """Features as the command line makes them, and groups."""
    job = pd.Series([None if pd.isna(v) else v for v in table["job"]], dtype=object)
    found = table[[name for name in FEATURES if name not in groups]]
    found = found.assign(job=job, owner=table["owner"].astype("int64"))
    return found.join(table[list(groups)])


def write(folder: Path, table: pd.DataFrame) -> Path:
    path = folder / "table.csv"
    table.to_csv(path, index=False)
    return path


# ---- the same model ----------------------------------------------------------------------------


def test_logistic_regression_is_that_of_python(
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
    for tolerance in (0.02, 0.05, 1.0):
        ours, theirs = (m.decision_function(X, tolerance=tolerance) for m in (own, found))
        assert np.array_equal(ours, theirs)


def test_boosting_with_intersections_is_that_of_python(
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


def test_the_result_is_the_frontier(place: Path, answer: Any) -> None:
    out = place / "result"
    result = answer("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method",
                    "logistic", "--seed", 3, "--calibration", 0.4, "--out", out)  # fmt: skip
    found = fairdial.load(out)
    frontier = found.frontier_
    assert result["hash"] == found.model_hash_
    assert result["model"] == str(out)
    assert result["features"] == FEATURES
    assert result["sensitive"] == ["region"]
    assert result["positive"] == "approve"
    assert result["rows"] == 1600
    assert result["calibration_rows"] == frontier.counts.sum() == pytest.approx(640, abs=4)
    assert result["frontier"][-1]["tolerance"] == frontier.gap[0]
    for line in result["frontier"]:
        (point,) = points_at(frontier, [line["tolerance"]])
        assert line["feasible"] == point.feasible == (point.gap <= line["tolerance"])
        assert line["accuracy"] == point.accuracy
        assert line["gap"] == point.gap
        assert [g["group"] for g in line["groups"]] == ["north", "south"]
        assert [g["selection_rate"] for g in line["groups"]] == point.selection_rate.tolist()
        assert [g["threshold"] for g in line["groups"]] == point.thresholds.tolist()
        assert [g["selected"] for g in line["groups"]] == point.selected.sum(axis=0).tolist()


@pytest.mark.parametrize("method", [m.name for m in methods() if m.needs_torch])
def test_a_network_of_every_method_is_trained_and_saved(
    method: str, place: Path, answer: Any
) -> None:
    out = place / method
    result = answer("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method",
                    method, "--epochs", 1, "--members", 1, "--out", out)  # fmt: skip
    found = fairdial.load(out)
    network = found.estimator if method == "fairbayes" else found.network
    assert (network.epochs, network.members, network.verbose) == (1, 1, False)
    assert type(found).__name__.lower() == method
    decided = answer("predict", out, place / "new.csv", "--tolerance", 1, "--out", f"{out}.csv")
    assert decided["rows"] == 700
    assert result["method"] == method


def test_a_blend_averages_both_and_auto_says_what_it_chose(place: Path, answer: Any) -> None:
    common = ("train", place / "old.csv", *COMMON, "--sensitive", "region")
    answer(*common, "--method", "blend", "--out", place / "blend")
    parts = fairdial.load(place / "blend").estimator
    assert [type(part).__name__ for part in parts] == ["Pipeline"] * 2
    assert answer("info", place / "blend")["chosen"] is None
    result = answer(*common, "--method", "auto", "--time-limit", 0.001, "--out", place / "auto")
    assert result["chosen"] == "boosting"
    assert type(fairdial.load(place / "auto")) is FairBayes
    known = answer("info", place / "auto")
    assert (known["method"], known["chosen"]) == ("auto", "boosting")
    assert known["why"] == result["why"]


def test_why_a_candidate_failed_is_printed_in_full_and_not_saved(
    place: Path, tmp_path: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quotes(LogisticRegression):  # type: ignore[misc]
        def fit(self, *_: Any) -> Any:
            raise ValueError("this is no number: 'patient0@clinic.org'")

    monkeypatch.setattr("fairdial.estimators.learners.boosting", lambda *_, **__: Quotes())
    common = ("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "auto")
    found = shell(*common, "--time-limit", 0.001, "--out", tmp_path / "m")
    assert "'patient0@clinic.org'" in found.stderr
    assert "logistic" in found.stderr
    assert "ValueError" in shell("info", tmp_path / "m").stdout
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


def test_options_reach_the_estimator(place: Path, answer: Any) -> None:
    answer("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "logistic",
           "--criterion", "predictive_equality", "--min-count", 12, "--recalibrate", "--seed", 5,
           "--out", place / "set")  # fmt: skip
    found = fairdial.load(place / "set")
    assert found.get_params(deep=False) | {"estimator": None} == {
        "estimator": None,
        "blind": False,
        "groups": "intersection",
        "unknown": "raise",
        "limit_classes": None,
        "group_estimator": None,
        "criterion": "predictive_equality",
        "tolerance": 0.0,
        "objective": "accuracy",
        "budget": None,
        "nested": None,
        "rising": False,
        "randomize": None,
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


def test_boosting_has_the_trees_of_auto_and_of_blend() -> None:
    alone = find("boosting").make(texts=["job"], seed=0).estimator
    blended = find("blend").make(texts=["job"], seed=0).estimator[-1]
    tried = make_candidate("boosting", pd.DataFrame({"job": ["a"]}), 0).estimator
    assert alone.get_params()["histgradientboostingclassifier__max_leaf_nodes"] == 15
    assert str(alone.get_params()) == str(blended.get_params()) == str(tried.get_params())


# ---- labels and columns ------------------------------------------------------------------------


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
    result = answer("train", path, "--label", "y", "--sensitive", "region", "--method", "logistic",
                    *chosen, "--out", tmp_path / "m")  # fmt: skip
    assert result["positive"] == positive
    assert fairdial.load(tmp_path / "m").classes_[1] == positive
    assert answer("evaluate", tmp_path / "m", path, "--tolerance", 1)["accuracy"] > 0.6


@pytest.mark.parametrize(
    ("labels", "warned"),
    [
        (("approve", "deny"), True),
        ((1, 2), True),
        ((9, 10), True),
        ((0, 1), False),
        ((0.0, 1.0), False),
        ((False, True), False),
    ],
)
def test_a_positive_class_by_default_draws_a_warning_unless_it_is_one(
    labels: tuple[Any, Any], warned: bool, old: pd.DataFrame
) -> None:
    y = pd.Series([labels[owner] for owner in old["owner"]], name="y")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert check_labels(y, None)[1] is None
    assert ["`positive`" in str(one.message) for one in caught] == [True] * warned


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
    result = answer("train", path, "--label", "decision", "--positive", "approve", "--sensitive",
                    "region", "--out", tmp_path / "m")  # fmt: skip
    assert result["features"] == ["income", "place"]
    assert answer("evaluate", tmp_path / "m", path, "--tolerance", 1)["accuracy"] > 0.7


def warnings_of(column: list[Any]) -> list[str]:
    """Return the notes on a feature that are shown before training."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_features(pd.DataFrame({"x": column}))
    assert all("`drop=x`" in str(one.message) for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (lambda i: f"{i},345 EUR", "'0,345 EUR'"),
        (lambda i: f"${i}.50", "'$0.50'"),
        (lambda i: "unknown" if i == 7 else str(i), "'unknown'"),
        (lambda i: f"{i % 300} kg", "'0 kg'"),
        (lambda i: f"note {i}", "every row"),
        (lambda i: f"{i:04d}-{i % 7}", "every row"),
        (lambda i: f"{i:05d}", "every row"),
        (lambda i: f"note {max(i, 20)}", "580"),
        (lambda i: f"2020-01-{1 + i % 28:02d}", "dates"),
        (lambda i: f"place {i % 100}", None),
        (lambda i: f"{i % 8} children", None),
        (lambda i: f"{i % 60}{'ABCDEFGHIJ'[i % 10]}", None),
        (lambda i: f"{10 * (i % 20)}-{10 * (i % 20) + 9}", None),
        (lambda i: f"{i % 50:05d}", None),
    ],
)
def test_texts_that_are_hardly_categories_draw_one_warning(value: Any, name: str | None) -> None:
    given = warnings_of([value(i) for i in range(600)])
    assert [name in line for line in given if name] == [True] * (name is not None)
    assert len(given) == (name is not None)


def test_a_text_with_far_more_values_than_categories_draws_a_warning() -> None:
    (given,) = warnings_of([f"word {i % 1500}" for i in range(6000)])
    assert "1,500" in given


@pytest.mark.parametrize(
    "numbers",
    [range(1, 601), [(7 * i) % 601 for i in range(600)], [*range(600), *range(20)]],
    ids=["in order", "shuffled", "with repeated rows"],
)
def test_whole_numbers_that_all_differ_draw_a_warning(numbers: Any) -> None:
    (given,) = warnings_of(list(numbers))
    assert "'x'" in given


@pytest.mark.parametrize(
    "column",
    [
        [float(i) + 0.5 for i in range(600)],  # measured, not counted
        [i // 2 for i in range(600)],
        [1000 * i for i in [*range(595), *range(5)]],  # amounts, of which some are alike
        [*range(599), np.nan],
    ],
)
def test_other_numbers_draw_none(column: list[Any]) -> None:
    assert warnings_of(column) == []


def test_columns_that_say_nothing_are_left_out(
    old: pd.DataFrame, tmp_path: Path, shell: Any
) -> None:
    nothing = {"empty": None, "rare": [1.0] + [np.nan] * (len(old) - 1), "same": 7, "word": "same"}
    results = []
    for columns in (nothing, {}):
        path = write(tmp_path, old[["income", "region", "decision"]].assign(**columns))
        found = shell("train", path, "--label", "decision", "--positive", "approve", "--sensitive",
                      "region", "--out", tmp_path / "m", "--overwrite", "--json")  # fmt: skip
        assert all(f"'{name}'" in found.stderr for name in columns)
        results.append(json.loads(found.stdout))
    assert results[0]["features"] == results[1]["features"] == ["income"]
    assert results[0]["frontier"] == results[1]["frontier"]


def test_columns_that_give_away_label_or_group_are_named(
    old: pd.DataFrame, tmp_path: Path, shell: Any, answer: Any
) -> None:
    kept = old[["income", "children", "region", "decision"]]
    path = write(tmp_path, kept.assign(leak=1 * (kept["decision"] == "deny"), proxy=kept["region"]))
    common = ("--label", "decision", "--positive", "approve", "--sensitive", "region",
              "--method", "logistic", "--tolerance", 1)  # fmt: skip
    found = shell("train", path, *common, "--out", tmp_path / "m", "--quiet")
    lines = [line for line in found.stderr.splitlines() if "determines" in line]
    assert [("--drop leak" in line, "--drop proxy" in line) for line in lines] == [
        (True, False),
        (False, True),
    ]
    told = answer("info", tmp_path / "m")["proxies"]
    assert told["together"] > 0.95
    assert next(iter(told["columns"])) == "proxy"
    assert told["chance"] == 0.5
    assert fairdial.load(tmp_path / "m").training_["proxies"] == told
    assert "proxy 1.00" in shell("info", tmp_path / "m").stdout
    clean = ("--drop", "leak,proxy", "--out", tmp_path / "n")
    assert "determines" not in shell("train", path, *common, *clean, "--quiet").stderr
    assert 0.5 < answer("info", tmp_path / "n")["proxies"]["together"] < 0.9


def test_a_value_beside_missing_ones_says_something() -> None:
    table = pd.DataFrame({"x": ["yes", None] * 300})
    assert list(make_features(table)) == ["x"]


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
    assert looks_like_dates(pd.Series([value], dtype=object)) is is_date


def test_groups_that_differ_only_by_case_or_spaces_draw_a_warning() -> None:
    with pytest.warns(fairdial.FairdialWarning, match="'Woman' and 'woman '"):
        check_groups(pd.DataFrame({"g": ["Woman", "woman ", "Man", "Human"]}))


@pytest.mark.parametrize(
    "names", [("Café", "Cafe\N{COMBINING ACUTE ACCENT}"), ("here", "he\N{ZERO WIDTH SPACE}re")]
)
def test_groups_that_look_the_same_draw_a_warning(names: tuple[str, str]) -> None:
    with pytest.warns(fairdial.FairdialWarning, match="rename"):
        check_groups(pd.DataFrame({"g": [*names, "elsewhere"]}))


@pytest.mark.parametrize("name", ["no\x1b[31mrth", "two\nlines", "left\N{RIGHT-TO-LEFT OVERRIDE}"])
def test_groups_with_control_characters_are_refused_and_not_printed(
    name: str, old: pd.DataFrame, tmp_path: Path, shell: Any
) -> None:
    table = old[["income", "region", "decision"]].replace("north", name)
    table.to_parquet(tmp_path / "table.parquet")
    found = shell("train", tmp_path / "table.parquet", *COMMON[:4], "--sensitive", "region",
                  "--out", tmp_path / "m", code=2)  # fmt: skip
    assert found.stderr.startswith("Error: --sensitive ")
    assert "\x1b" not in found.stderr
    assert found.stderr.count("\n") == 1


def test_names_of_a_model_from_python_reach_no_terminal(tmp_path: Path, shell: Any) -> None:
    """Escapes of terminals, and code spans of Markdown that a name would close."""
    rng = np.random.default_rng(0)
    names = np.array(["a\x1b[2J", "b`<script>`"])
    groups, x = names[rng.integers(2, size=400)], rng.normal(size=400)
    X = pd.DataFrame({"x`<b>`": x, "g": groups})
    model = FairBayes(LogisticRegression(), sensitive_column="g", random_state=0)
    model.fit(X, (x + rng.normal(size=400) > 0).astype(int)).save(tmp_path / "m")
    for command in (("info",), ("dial", "--tolerance", 0.5)):
        found = shell(command[0], tmp_path / "m", *command[1:])
        assert "\x1b" not in found.output
        assert "[2J" in found.output
    card = (tmp_path / "m" / "MODEL_CARD.md").read_text()
    assert "\x1b" not in card
    assert "`` 'x`<b>`' ``" in card
    assert "`'x`" not in card
    assert "| b\\`&lt;script>\\` |" in card


def test_rows_that_repeat_others_draw_a_note(old: pd.DataFrame, tmp_path: Path, shell: Any) -> None:
    common = (*COMMON, "--sensitive", "region", "--method", "logistic", "--out", tmp_path / "m",
              "--overwrite", "--tolerance", 0.5)  # fmt: skip
    assert "rows of" not in shell("train", write(tmp_path, old), *common).stderr
    path = write(tmp_path, pd.concat([old, old.head(50)]))
    assert "50 rows of 1,650 repeat" in shell("train", path, *common).stderr


# ---- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values", "option", "name"),
    [
        ("region", lambda n: range(n), "--sensitive", "1,600"),
        ("region", lambda n: ["here"] * n, "--sensitive", "'here'"),
        ("income", lambda n: [0.5] * (n - 1) + [np.inf], "DATA", "data row 1,600"),
        ("income", lambda n: pd.date_range("2020-01-01", periods=n), "DATA", "--drop income"),
    ],
)
def test_columns_that_a_model_cannot_use(
    column: str, values: Any, option: str, name: str, old: pd.DataFrame, tmp_path: Path,
    refused: Any,
) -> None:  # fmt: skip
    table = old[["income", "children", "region", "decision"]].copy()
    table[column] = values(len(table))
    table.to_parquet(tmp_path / "table.parquet")
    refused("train", tmp_path / "table.parquet", "--label", "decision", "--positive", "approve",
            "--sensitive", "region", "--out", tmp_path / "m", option=option,
            names=(f"'{column}'", name))  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "option", "names"),
    [
        ({"--label": "decison"}, "--label", ["'decison'", "Did you mean 'decision'?"]),
        ({"--label": "children", "--method": "gfb"}, "--label", ["'children'", "0, 1, 2, 3"]),
        ({"--label": "half"}, "--label", ["'half'", "0.5"]),
        ({"--label": "job"}, "--label", ["'job'", "{rows}", "{first}", "--drop-missing"]),
        ({"--label": "region"}, "--sensitive", ["--label", "'region'"]),
        ({"--sensitive": "Region"}, "--sensitive", ["Did you mean 'region'?"]),
        ({"--sensitive": "region,zzz"}, "--sensitive", ["'number'", "'zzz'"]),
        ({"--sensitive": "job"}, "--sensitive", ["{rows}", "{first}", "--drop-missing",
                                                 "--missing-group"]),
        ({"--sensitive": "sex,Regoin"}, "--sensitive", ["Did you mean 'region'?"]),
        ({"--drop": "numbr"}, "--drop", ["Did you mean 'number'?"]),
        ({"--drop": "region"}, "--drop", ["--sensitive", "'region'"]),
        ({"--positive": "yes"}, "--positive", ["'approve'", "'deny'", "'yes'"]),
        ({"--positive": "Deny"}, "--positive", ["Did you mean 'deny'?"]),
        ({"--epochs": "3"}, "--epochs", []),
        ({"--method": "epo", "--recalibrate": None}, "--recalibrate", []),
        ({"--out": "/proc/m"}, "--out", ["/proc/m"]),
        ({"--missing-group": " "}, "--missing-group", ["' '"]),
    ],
)  # fmt: skip
def test_mistakes_name_the_option(
    changed: dict[str, str | None], option: str, names: list[str], old: pd.DataFrame, place: Path,
    refused: Any,
) -> None:  # fmt: skip
    missing = np.flatnonzero(old["job"].isna())
    facts = {"rows": f"{len(missing)} rows", "first": f"data row {missing[0] + 1}"}
    given = {"--label": "decision", "--sensitive": "region", "--method": "logistic",
             "--out": place / "never"} | changed  # fmt: skip
    words = [word for pair in given.items() for word in pair if word is not None]
    names = [name.format(**facts) for name in names]
    refused("train", place / "old.csv", *words, option=option, names=tuple(names))
    assert not (place / "never").exists()


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("--method", "forest", "boosting"),
        ("--tolerance", "1.3", ""),
        ("--tolerance", "5", "5% is 0.05."),
        ("--tolerance", "5%", "5% is 0.05."),
        ("--tolerance", "0,05", "0.05"),
        ("--tolerance", "nan", ""),
        ("--tolerance", "abc", ""),
        ("--calibration", "95", "95% is 0.95."),
        ("--calibration", "20", "20% is 0.2."),
        ("--calibration", "0", ""),
        ("--time-limit", "nan", ""),
        ("--time-limit", "0", ""),
        ("--time-limit", "5%", ""),
    ],
)
def test_values_out_of_range(option: str, value: str, hint: str, place: Path, shell: Any) -> None:
    found = shell("train", place / "old.csv", *COMMON, "--sensitive", "region", option, value,
                  "--out", place / "never", code=2)  # fmt: skip
    assert f"'{option}'" in found.stderr
    assert hint in found.stderr


@pytest.mark.parametrize(
    ("name", "least"), [("tolerance", 2), ("confidence", 50), ("level", 50), ("calibration", 5)]
)
def test_only_plausible_percentages_are_suggested(name: str, least: int) -> None:
    assert "%" in fraction_hint(least, name)
    assert fraction_hint(least - 0.5, name) == ""
    assert "%" in fraction_hint("1.5%", name)
    assert fraction_hint("101%", name) == ""


def test_a_small_group_is_refused_before_training(place: Path, shell: Any) -> None:
    found = shell("train", place / "old.csv", *COMMON, "--sensitive", "region", "--min-count", 900,
                  "--out", place / "never", code=2)  # fmt: skip
    assert "--sensitive" in found.stderr
    assert "--min-count" in found.stderr
    assert "'south'" in found.stderr
    assert "Trained" not in found.stderr


@pytest.mark.parametrize(
    ("name", "columns", "meant"),
    [
        ("id", ["customer_id", "region"], "customer_id"),
        ("ID", ["Customer ID", "region"], "Customer ID"),
        ("id", ["customer_id", "order_id"], None),
        ("id", ["paid", "region"], None),
        ("nope", ["paid", "region"], None),
    ],
)
def test_a_column_is_suggested_by_a_word_of_its_name(
    name: str, columns: list[str], meant: str | None
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        require_columns(pd.DataFrame(columns=columns), [name], "drop")
    assert caught.value.argument == "drop"
    assert [repr(meant) in hint for hint in caught.value.hints] == [True] * (meant is not None)


@pytest.mark.parametrize("many", [1, 2])
def test_a_label_with_hardly_a_row_to_train_on_is_refused(
    many: int, tmp_path: Path, refused: Any, shell: Any
) -> None:
    n = 300
    table = pd.DataFrame({"x": np.arange(n) % 17, "g": ["a"] * 150 + ["b"] * 150})
    path = write(tmp_path, table.assign(y=(np.arange(n) < many).astype(int)))
    given = ("train", path, "--label", "y", "--sensitive", "g", "--out", tmp_path / "m")
    for method in ("boosting", "blend"):
        refused(*given, "--method", method, option="--label", names=("'y'", "1 of 1"))
    write(tmp_path, table.assign(y=(np.arange(n) < 3).astype(int)))
    shell(*given)


def test_a_model_is_replaced_only_with_overwrite(place: Path, refused: Any, shell: Any) -> None:
    out = place / "twice"
    given = ("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "logistic",
             "--out", out)  # fmt: skip
    shell(*given)
    refused(*given, option="--out", names=("--overwrite",))
    shell(*given, "--overwrite", "--seed", 1)
    assert fairdial.load(out).random_state == 1
    (out / "diary.txt").write_text("mine")
    refused(*given, "--overwrite", option="--out", names=("'diary.txt'",))
    assert (out / "diary.txt").exists()


# ---- what is printed ---------------------------------------------------------------------------


@pytest.mark.parametrize(("shift", "who"), [(50.0, "no one"), (-50.0, "everyone")])
def test_a_model_that_decides_the_same_for_all_draws_a_warning(
    shift: float, who: str, model: Path, place: Path, tmp_path: Path, shell: Any
) -> None:
    found = fairdial.load(model)
    line = found.estimator_.scorer
    object.__setattr__(line, "intercept", line.intercept + shift)  # towards "deny", the second
    found.save(tmp_path / "m")
    assert who in shell("calibrate", tmp_path / "m", place / "new.csv", "--in-place").stderr


def test_the_default_tolerance_has_its_own_line(place: Path, shell: Any) -> None:
    found = shell("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method",
                  "logistic", "--tolerance", 0.9, "--out", place / "wide")  # fmt: skip
    (line,) = [line for line in found.stdout.splitlines() if line.endswith("default")]
    assert line.startswith(" 0.9 ")
    assert "unconstrained" in line
    frontier = fairdial.load(place / "wide").frontier_
    assert f"\n {frontier.gap[0]:.4g} " not in found.stdout  # the same point


def test_an_unreachable_tolerance_draws_a_warning_if_it_was_given(
    place: Path, tmp_path: Path, shell: Any
) -> None:
    common = ("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "logistic",
              *NARROW)  # fmt: skip
    found = shell(*common, "--tolerance", 0.0, "--out", tmp_path / "a")
    gap = fairdial.load(tmp_path / "a").frontier_.gap.min()
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("Warning: --tol")]
    assert f"{gap:.4f}" in line
    assert "not reachable" in found.stdout
    assert "Warning" not in shell(*common, "--out", tmp_path / "b").stderr
    assert "Warning" not in shell(*common, "--tolerance", 0.1, "--out", tmp_path / "c").stderr


def test_without_a_tolerance_the_command_that_sets_one_is_named(
    place: Path, tmp_path: Path, shell: Any
) -> None:
    common = ("train", place / "old.csv", *COMMON, "--sensitive", "region", "--method", "logistic")
    command = "fairdial dial {} --tolerance T --set"
    for name, given in (("a", ()), ("b", ("--tolerance", 0))):
        out = tmp_path / name
        found = shell(*common, *given, "--out", out)
        assert (command.format(out) in found.stderr) == (not given)
        assert f"fairdial dial {out} --confidence 0.95" in found.stdout


def test_a_small_table_draws_a_suggestion_unless_a_method_was_named(
    place: Path, tmp_path: Path, shell: Any
) -> None:
    common = ("train", place / "old.csv", *COMMON, "--sensitive", "region", "--tolerance", 0.1,
              "--out")  # fmt: skip
    assert "--method blend" in shell(*common, tmp_path / "a").stderr
    assert "--method blend" not in shell(*common, tmp_path / "b", "--method", "boosting").stderr
    assert shell(*common, tmp_path / "c", "-q").stderr == ""


def test_the_help_names_every_method(shell: Any) -> None:
    text = " ".join(shell("train", "--help").output.split())
    assert all(text.count(method) > 1 for method in names())


def test_gfb_is_trained_for_equalized_odds_in_four_groups(place: Path, answer: Any) -> None:
    pytest.importorskip("torch")
    given = ("--sensitive", "region,sex", "--method", "gfb", "--criterion", "equalized_odds",
             "--epochs", 3, "--members", 1, "--min-count", 5)  # fmt: skip
    answer("train", place / "old.csv", *COMMON, *given, "--out", place / "four")
    model = fairdial.load(place / "four")
    assert len(model.frontier_.groups) == 4
    assert max(model.frontier_.at(0.2).gaps.values()) <= 0.2
    found = answer("evaluate", place / "four", place / "new.csv", "--tolerance", 0.2)
    assert found["accuracy"] > 0.5


# ---- processes ---------------------------------------------------------------------------------


def test_missing_torch_is_named_before_the_work(
    place: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    given = ("--sensitive", "region", "--method", "gfb", "--out", place / "without")
    found = shell("train", place / "old.csv", *COMMON, *given, code=1)
    assert found.stderr.startswith("Error: --method gfb needs torch: pip install '.[torch]'")
    assert found.stderr.count("\n") == 1


def test_under_torchrun_only_networks_are_trained(
    place: Path, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused("train", place / "old.csv", *COMMON, "--sensitive", "region", "--out", place / "never",
            option="--method", names=("'boosting'", "gfb"))  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
def test_interrupted_training_ends_with_130_and_saves_nothing(place: Path) -> None:
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
    assert err.startswith("Interrupted")
    assert out == ""
    assert not (place / "never").exists()
