"""FairBayes for overlapping groups."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import CannotCertifyError, FairBayes, InvalidInputError, sweep
from fairdial.cli import main
from fairdial.estimators.rows import hold_out
from fairdial.metrics import gap
from fairdial.serve.page_data import page_data


def rows(n, seed):
    """Features with a column that follows the groups, labels, and two sensitive columns."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "race": rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1]),
        }
    )
    shift = 1.2 * (people["sex"] == "m") - 0.8 * (people["race"] == "b")
    X = pd.DataFrame({"x": rng.normal(shift), "w": rng.normal(size=n) + shift})
    y = (rng.random(n) < 1 / (1 + np.exp(-X["x"]))).astype(int).to_numpy()
    return X, y, people


TRAIN, NEW = rows(4000, 0), rows(3000, 1)


class Fails(LogisticRegression):
    def fit(self, *_, **__):
        raise AssertionError("it was trained")


def gap_of(y, decided, people, criterion="demographic_parity"):
    found = [gap(y, decided, sensitive_features=people[c], criterion=criterion) for c in people]
    return max(found)


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("groups", ["marginal", "both"])
def test_tolerances_hold_on_calibration_rows(groups, blind, tmp_path):
    model = FairBayes(LogisticRegression(), groups=groups, blind=blind, random_state=0)
    model.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    X, y, people = NEW
    model.calibrate(X, y, sensitive_features=people)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    for tolerance in (0.3, 0.2):
        given = {} if blind else {"sensitive_features": people}
        decided = model.predict(X, tolerance=tolerance, **given)
        assert gap_of(y, decided, people) <= tolerance
        assert np.array_equal(decided, again.predict(X, tolerance=tolerance, **given))
        assert again.frontier_.at(tolerance).gaps == model.frontier_.at(tolerance).gaps
    assert again.groups == groups
    if blind:
        assert (
            model.blindness(X, y, sensitive_features=people, tolerances=0.2).costs["reached"].all()
        )


def test_one_column_and_the_default_are_as_before():
    X, y, people = TRAIN
    models = [
        FairBayes(LogisticRegression(), random_state=0, groups=g) for g in ("both", "intersection")
    ]
    found = [model.fit(X, y, sensitive_features=people["sex"]).frontier_ for model in models]
    assert found[0].to_json() == found[1].to_json()


def test_intersections_without_calibration_rows_have_a_threshold():
    X, y, people = (part.copy() for part in TRAIN)
    people.loc[(people["sex"] == "f") & (people["race"] == "c"), "race"] = "b"
    people.loc[0, ["sex", "race"]] = ["f", "c"]  # a single row, which isn't held out
    model = FairBayes(LogisticRegression(), groups="marginal", random_state=0)
    model.fit(X, y, sensitive_features=people)
    place = model.frontier_.groups.index("f & c")
    assert model.frontier_.counts[:, place].sum() == 0
    least, most = (model.frontier_.at(d).thresholds for d in (0.05, 0.5))
    assert np.isfinite(least[place])
    assert least[place] < most[place]  # women pay less, and so does this intersection
    new = people.iloc[:1]
    assert model.predict(X.iloc[:1], sensitive_features=new, tolerance=0.05).shape == (1,)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"groups": "union"}, "groups"),
        ({"groups": "marginal", "criterion": "demographic_parity_ratio"}, "criterion"),
        ({"groups": "marginal", "budget": 0.2}, "budget"),
    ],
)
def test_what_does_not_go_together_is_refused_before_training(options, argument):
    with pytest.raises(InvalidInputError) as error:
        FairBayes(Fails(), **options).fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    assert error.value.argument == argument


def test_pages_are_refused():
    model = FairBayes(LogisticRegression(), groups="both", random_state=0)
    model.fit(TRAIN[0], TRAIN[1], sensitive_features=TRAIN[2])
    with pytest.raises(InvalidInputError) as error:
        page_data(model, name="x")
    assert error.value.argument == "model"


def test_the_command_line_shows_every_column(tmp_path):
    X, y, people = TRAIN
    table = tmp_path / "people.csv"
    pd.concat([X, people], axis=1).assign(label=y).to_csv(table, index=False)
    folder, call = str(tmp_path / "model"), CliRunner().invoke
    given = ["--label", "label", "--sensitive", "sex,race", "--groups", "marginal"]
    trained = call(main, ["train", str(table), *given, "--method", "logistic", "--out", folder])
    assert trained.exit_code == 0, trained.output
    shown = call(main, ["dial", folder, "--tolerance", "0.1", "--json"])
    point = json.loads(shown.stdout)
    assert set(point["gaps"]) == {"selection_rate by sex", "selection_rate by race"}
    by_name = {line["group"]: line for line in point["groups"]}
    women = [line for name, line in by_name.items() if name.startswith("f & ")]
    assert by_name["sex: f"]["selected"] == sum(line["selected"] for line in women)
    measured = call(main, ["evaluate", folder, str(table), "--tolerance", "0.1", "--json"])
    found = json.loads(measured.stdout)
    assert [line["demand"] for line in found["demands"]] == list(point["gaps"])
    assert found["gap"] == max(line["gap"] for line in found["demands"])


def test_rows_of_small_intersections_are_held_out_as_often_as_others() -> None:
    rng = np.random.default_rng(0)
    cells = rng.choice(400, size=8_000, p=rng.dirichlet(np.full(400, 0.3)))
    sizes = np.bincount(cells)[cells]
    few = sizes <= 5
    counts = np.zeros(len(cells))
    for seed in range(200):
        held = hold_out(cells, 0.1, np.random.RandomState(seed), pooled=True)
        assert len(np.unique(held)) == len(held)
        assert abs(len(held) - 800) <= 1
        counts[held] += 1
    assert abs(counts[few].mean() / 200 - 0.1) < 0.01  # rounded up, it would be above 0.2
    assert abs(counts[~few].mean() / 200 - 0.1) < 0.001


def test_bands_are_refused_for_groups_that_pool_intersections() -> None:
    rng = np.random.default_rng(0)
    groups = pd.DataFrame({"a": rng.integers(2, size=4_000), "b": rng.integers(3, size=4_000)})
    logits = rng.normal(size=4_000) + 0.5 * groups["a"].to_numpy()
    y = rng.random(4_000) < 1 / (1 + np.exp(-logits))
    for overlap in ("marginal", "both"):
        frontier = sweep(logits, groups, y, overlap=overlap)
        with pytest.raises(CannotCertifyError):
            frontier.at(0.2, confidence=0.95, simultaneous=True)
        assert frontier.at(0.2, confidence=0.95).theorem == 5
