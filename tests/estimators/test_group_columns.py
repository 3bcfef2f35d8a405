"""Names of several sensitive columns: their order in a table doesn't matter."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import AutoDial, FairBayes, InvalidInputError
from fairdial.cli import main
from fairdial.large import decide


def rows(n, seed):
    """Features, labels, and two sensitive columns with the same values."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({name: rng.choice(["no", "yes"], n) for name in ("veteran", "married")})
    shift = 1.5 * (people["veteran"] == "yes") - 0.8 * (people["married"] == "yes")
    X = pd.DataFrame({"x": rng.normal(shift), "w": rng.normal(size=n)})
    return X, (rng.random(n) < 1 / (1 + np.exp(-X["x"]))).to_numpy().astype(int), people


TRAIN, NEW = rows(3000, 0), rows(1500, 1)
SWAPPED = ["married", "veteran"]


def fitted(**options):
    options = {"random_state": 0} | options
    model = FairBayes(LogisticRegression(), **options)
    return model.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])


def same(model, other, tolerance=0.05):
    X, _, people = NEW
    wanted = model.predict(X, sensitive_features=people, tolerance=tolerance)
    return np.array_equal(
        other.predict(X, sensitive_features=people[SWAPPED], tolerance=tolerance), wanted
    )


@pytest.mark.parametrize("groups", ["intersection", "both", "marginal"])
@pytest.mark.parametrize("per_group", [False, True])
def test_columns_are_found_by_name(groups, per_group, tmp_path):
    X, y, people = NEW
    model = fitted(groups=groups, per_group=per_group)
    assert same(model, model)
    array = people.to_numpy(dtype=object)
    wanted = model.predict(X, sensitive_features=people, tolerance=0.05)
    for plain in (array, pd.DataFrame(array), people["veteran"] + " & " + people["married"]):
        assert np.array_equal(model.predict(X, sensitive_features=plain, tolerance=0.05), wanted)
    swapped = model.predict(X, sensitive_features=array[:, ::-1], tolerance=0.05)
    assert not np.array_equal(swapped, wanted)  # without names the order counts
    assert np.array_equal(
        model.logits(X, sensitive_features=people),
        model.logits(X, sensitive_features=people[SWAPPED]),
    )
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert again.group_columns_ == ("veteran", "married")
    assert same(model, again)
    first = fitted(groups=groups, per_group=per_group).calibrate(X, y, sensitive_features=people)
    second = again.calibrate(X, y, sensitive_features=people[SWAPPED])
    assert first.frontier_.groups == second.frontier_.groups
    assert np.array_equal(first.frontier_.at(0.1).thresholds, second.frontier_.at(0.1).thresholds)
    assert same(first, second)


@pytest.mark.parametrize("method", ["predict", "logits", "decision_function"])
def test_other_names_are_refused(method):
    X, _, people = NEW
    model = fitted()
    for wrong in (
        people.rename(columns={"married": "maried"}),
        people.assign(other="no"),
        people.set_axis(["married", "married"], axis=1),
    ):
        with pytest.raises(InvalidInputError) as error:
            getattr(model, method)(X, sensitive_features=wrong)
        assert error.value.argument == "sensitive_features"


def test_calibration_may_take_other_groups_unless_training_saw_them():
    X, y, people = NEW
    other = people.rename(columns={"married": "abroad"})
    model = fitted().calibrate(X, y, sensitive_features=other)
    assert model.group_columns_ == ("veteran", "abroad")
    before = model.frontier_
    with pytest.raises(InvalidInputError):
        model.calibrate(X, y[:-1], sensitive_features=people)
    assert model.group_columns_ == ("veteran", "abroad")
    assert model.frontier_ is before
    model.calibrate(X, y, sensitive_features=people["married"])
    assert not hasattr(model, "group_columns_")
    with pytest.raises(InvalidInputError) as error:
        fitted(per_group=True).calibrate(X, y, sensitive_features=other)
    assert error.value.argument == "sensitive_features"


def test_models_without_names_and_automatic_ones(tmp_path):
    model = FairBayes(LogisticRegression(), random_state=0)
    model.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2].to_numpy())
    assert not hasattr(model, "group_columns_")
    model.save(tmp_path / "plain")  # as models that were saved before there were names
    assert not hasattr(fairdial.load(tmp_path / "plain"), "group_columns_")
    auto = AutoDial(candidates=["logistic"], random_state=0)
    auto.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    assert same(auto, auto)
    auto.save(tmp_path / "auto")
    assert same(auto, fairdial.load(tmp_path / "auto"))


def test_the_command_line_and_large_tables(tmp_path):
    X, y, people = NEW
    model = fitted(tolerance=0.05)
    wanted = model.predict(X, sensitive_features=people)
    table = pd.concat([X, people], axis=1)
    found = decide(table, model, group=SWAPPED, tolerance=0.05)
    assert np.array_equal(found["decision"], wanted)
    with pytest.raises(InvalidInputError) as error:
        decide(table.assign(o="no"), model, group=["veteran", "o"], tolerance=0.05)
    assert error.value.argument == "group"
    folder, data = str(tmp_path / "model"), str(tmp_path / "new.csv")
    model.save(folder)
    table.assign(y=y, o="no").to_csv(data, index=False)
    call = CliRunner().invoke
    shown = []
    for order in ("veteran,married", "married,veteran"):
        given = ["--label", "y", "--sensitive", order, "--json"]
        measured = call(main, ["evaluate", folder, data, *given])
        assert measured.exit_code == 0, measured.output
        shown.append(json.loads(measured.stdout))
        out = tmp_path / f"{order}.csv"
        decided = call(main, ["predict", folder, data, "--sensitive", order, "--out", str(out)])
        assert decided.exit_code == 0, decided.output
        assert np.array_equal(pd.read_csv(out)["decision"], wanted)
    assert shown[0]["gap"] == shown[1]["gap"]
    refused = call(
        main,
        ["predict", folder, data, "--sensitive", "veteran,o", "--out", str(tmp_path / "o.csv")],
    )
    assert refused.exit_code != 0
