"""AutoDial: the simplest of several methods that is about as good as the best."""

from __future__ import annotations

import json
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

import fairdial
from fairdial import (
    AutoDial,
    FairBayes,
    FairdialWarning,
    InterruptedWarning,
    InvalidInputError,
    MissingExtraError,
    Network,
    SmallGroupError,
    TrainingWarning,
    criterion,
)
from fairdial.core.sweep import sweep
from fairdial.datasets import Dataset, load_compas, make_gaussian
from fairdial.estimators import auto as auto_module
from fairdial.estimators import candidates, learners
from fairdial.estimators.candidates import (
    Deadline,
    default_names,
    find_obstacles,
    make_candidate,
)
from fairdial.estimators.fitting import unreadable_columns
from fairdial.estimators.learners import SMALL_TREES, boosting, text_columns
from fairdial.estimators.rows import Rows
from fairdial.estimators.scorers import PlattMap
from fairdial.estimators.trials import CAUTION, TOLERANCES, Trial, choose, shorten_error, to_frame
from fairdial.io.manifest import training_from_data

COMPAS = load_compas()
ROWS = COMPAS.X.rename(columns=str.upper)  # not what another test looks for in all memory
TRAIN, TEST = Dataset(ROWS, COMPAS.y, COMPAS.groups).split(random_state=0)
del COMPAS
QUICK = ("logistic", "boosting", "blend")


def auto(**settings: Any) -> AutoDial:
    """Tries all candidates, however busy the machine is, unless the test says otherwise."""
    return AutoDial(**{"time_limit": float("inf"), "random_state": 0} | settings)


def fitted(model: Any, data: Any = TRAIN) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return model.fit(data.X, data.y, sensitive_features=data.groups)


@pytest.fixture(scope="module")
def model() -> Any:
    """The best of three on COMPAS."""
    return fitted(auto(candidates=QUICK))


# rows are held out one by one: copies of a row may be separated, a row with a weight is not
HELD_OUT = dict.fromkeys(
    [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")],
    "rows are held out one by one",
)
GAUSS = make_gaussian(1500, random_state=0)
PARITY = criterion("demographic_parity")


@parametrize_with_checks(
    [auto(candidates=("logistic", "boosting"), random_state=0, min_count=1)],
    expected_failed_checks=lambda _: HELD_OUT,
)
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_a_row_alone_is_scored_as_it_is_among_others() -> None:
    model = fitted(auto(candidates=["logistic"]))
    some, groups = TEST.X.iloc[:20], TEST.groups[:20]
    alone = [
        model.logits(some.iloc[[i]], sensitive_features=groups[[i]])[0] for i in range(len(some))
    ]
    assert model.logits(some, sensitive_features=groups) == pytest.approx(
        alone, rel=1e-12, abs=1e-12
    )


def test_with_a_whole_number_the_rows_that_others_hold_out_are_held_out() -> None:
    model = fitted(auto(candidates=["logistic"], random_state=5))
    other = fitted(make_candidate("logistic", TRAIN.X, 5))
    assert model.frontier_.to_json() == other.frontier_.to_json()


def rows(share: float, n: int = 400, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random(n) < share).astype(float)


def test_the_best_is_taken_unless_a_simpler_one_is_within_a_standard_error() -> None:
    best, worse = rows(0.9), rows(0.5, seed=1)
    close = best.copy()
    close[:1] = 1 - close[:1]  # one row of 400: a difference of one standard error
    assert choose([Trial("logistic", worse, 1.0), Trial("blend", best, 9.0)])[0] == "blend"
    name, why = choose([Trial("logistic", close, 1.0), Trial("blend", best, 9.0)])
    assert name == "logistic"
    assert "standard error" in why
    assert choose([Trial("logistic", best, 1.0), Trial("blend", close, 9.0)])[0] == "logistic"


def test_seconds_and_the_order_of_trying_choose_nothing() -> None:
    same = rows(0.9)
    names = default_names()
    for order in (sorted(names), names, names[::-1]):
        for seconds in (range(5), range(5, 0, -1)):
            trials = [Trial(n, same, float(s)) for n, s in zip(order, seconds, strict=True)]
            assert choose(trials)[0] == "logistic"
            assert choose([t for t in trials if t.name in ("gfb", "network")])[0] == "network"


def test_what_was_not_tried_is_noted_and_not_chosen() -> None:
    late = Trial("blend", None, 0.0, "not tried: the time was over")
    trials = [Trial("boosting", rows(0.5), 1.0), late]
    name, why = choose(trials)
    assert name == "boosting"
    assert "blend: not tried" in why
    both = choose([Trial("logistic", rows(0.9), 1.0), *trials])[1]
    assert "blend: not tried" in both
    assert np.isnan(to_frame(trials).loc["blend", "accuracy"])


LATE = Trial("blend", None, 0.0, "not tried: the time was over")
FAILED = Trial("gfb", None, 0.0, "failed: ValueError: no")
STOPPED = Trial("network", np.ones(400), 3.0, "stopped after epoch 3", stopped=True)


@pytest.mark.parametrize(
    "others", [[LATE], [FAILED], [STOPPED], [LATE, FAILED], [LATE, FAILED, STOPPED]]
)
def test_the_only_one_is_not_called_the_best(others: list[Trial]) -> None:
    name, why = choose([*others, Trial("boosting", np.tile([1.0, 0.0], 200), 1.0)])
    assert name == "boosting"
    for text in ("only one", "0.01 to 0.2", "400 validation rows", "0.5000 in 1.0 s"):
        assert text in why
    assert "best" not in why
    for trial in others:
        assert f" {trial.name}: {trial.note}." in why


def test_a_caution_goes_with_the_figures(model: Any) -> None:
    assert model.why_.count(CAUTION) == 1
    assert CAUTION in choose([Trial("boosting", rows(0.5), 1.0), LATE])[1]
    assert CAUTION not in fitted(auto(candidates=["logistic"])).why_  # there are none


def test_the_number_of_validation_rows_is_stated(model: Any) -> None:
    held = int(model.why_.split(" validation rows")[0].split()[-1])
    assert held == pytest.approx(0.2 * 0.8 * len(TRAIN), abs=5)


def test_what_was_stopped_is_not_compared_however_good_it_is_so_far() -> None:
    finished = [Trial("boosting", rows(0.5), 1.0), Trial("logistic", rows(0.3, seed=1), 1.0)]
    table = to_frame([STOPPED, *finished])
    assert choose([STOPPED, *finished])[0] == "boosting"
    why = choose([STOPPED, *finished])[1]
    assert why.replace(f" network: {STOPPED.note}.", "") == choose(finished)[1]
    assert table.loc["network", ["accuracy", "difference", "error"]].isna().all()
    assert table.loc["network", "seconds"] == 3.0
    pd.testing.assert_frame_equal(table.iloc[1:], to_frame(finished))


def test_where_none_was_finished_the_best_that_was_stopped_is_chosen() -> None:
    worse = Trial("gfb", rows(0.5), 1.0, "stopped after epoch 1", stopped=True)
    name, why = choose([worse, STOPPED, LATE])
    assert name == "network"
    assert "1.0000" in why
    assert " gfb: stopped after epoch 1. network: stopped" in why
    assert choose([worse])[0] == "gfb"
    as_good = Trial("gfb", np.ones(400), 1.0, "stopped after epoch 1", stopped=True)
    assert choose([as_good, STOPPED])[0] == "network"


def test_errors_are_those_of_paired_rows() -> None:
    one, other = rows(0.6), rows(0.7, seed=2)
    table = to_frame([Trial("a", one, 1.0), Trial("b", other, 1.0)])
    off = one - other
    assert table.loc["a", "difference"] == pytest.approx(100 * off.mean())
    assert table.loc["a", "error"] == pytest.approx(100 * off.std(ddof=1) / 400**0.5)
    assert table.loc["b", "difference"] == table.loc["b", "error"] == 0.0


def test_the_chosen_candidate_is_what_it_would_be_alone(model: Any) -> None:
    seed = model.model_.random_state
    alone = make_candidate(model.chosen_, TRAIN.X, seed)
    fitted(alone)
    asked: dict[str, Any] = {"sensitive_features": TEST.groups, "tolerance": 0.05}
    assert model.predict(TEST.X, **asked).tolist() == alone.predict(TEST.X, **asked).tolist()
    assert np.array_equal(model.frontier_.gap, alone.frontier_.gap)
    assert model.trials_.index.tolist() == list(QUICK)
    assert model.chosen_ in model.why_


def test_accuracies_are_those_of_the_dial_on_rows_that_were_not_trained_on(model: Any) -> None:
    table = model.trials_
    assert table["accuracy"].between(0.6, 0.75).all()  # a model that saw them reaches .8
    assert TOLERANCES.round(12).tolist() == [n / 100 for n in range(1, 21)]


def test_a_candidate_is_tried_the_same_whatever_stands_beside_it() -> None:
    three = fitted(auto(candidates=QUICK))
    two = fitted(auto(candidates=["logistic", "blend"]))
    assert three.trials_.loc["blend", "accuracy"] == two.trials_.loc["blend", "accuracy"]


def test_a_single_candidate_is_not_tried_but_taken() -> None:
    blend = fitted(auto(candidates=["blend"]))
    assert blend.trials_.empty
    _, trees = blend.model_.estimator
    assert trees.steps[-1][1].get_params().items() >= SMALL_TREES.items()


def test_boosting_is_of_the_small_trees_that_the_blend_has() -> None:
    _, in_blend = make_candidate("blend", TRAIN.X, 0).estimator
    alone = make_candidate("boosting", TRAIN.X, 0).estimator
    assert alone[-1].get_params() == in_blend[-1].get_params()
    assert alone[-1].get_params().items() >= SMALL_TREES.items()


def test_a_saved_model_is_the_chosen_one_with_the_dial_as_it_is(tmp_path: Any) -> None:
    model = fitted(auto(candidates=["blend"]))
    model.calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert type(again) is FairBayes
    assert again.thresholds(0.05) == model.thresholds(0.05)
    asked: dict[str, Any] = {"sensitive_features": TRAIN.groups, "tolerance": 0.05}
    assert again.predict(TRAIN.X, **asked).tolist() == model.predict(TRAIN.X, **asked).tolist()


def test_time_that_is_over_stops_networks_and_leaves_the_rest_untried() -> None:
    pytest.importorskip("torch")
    model = auto(candidates=["network", "gfb", "logistic"], time_limit=0.01)
    with pytest.warns(TrainingWarning, match="`time_limit`"):
        model.fit(TRAIN.X, TRAIN.y, sensitive_features=TRAIN.groups)
    assert model.chosen_ == "network"
    assert model.trials_.loc["network", "note"].startswith("stopped after epoch 1")
    assert model.trials_.loc["network", "note"].endswith(" so far")
    assert model.trials_["accuracy"].isna().all()
    assert "network: stopped after epoch 1" in model.why_
    assert len(model.history_) == 1
    assert model.model_.estimator.callbacks is None
    assert model.trials_.loc[["gfb", "logistic"], "note"].str.startswith("not tried").all()


def test_all_candidates_are_listed_by_default() -> None:
    pytest.importorskip("torch")
    few = make_gaussian(600, shares=(0.4, 0.3, 0.3), base_rates=(0.3, 0.5, 0.6),
                        separations=(1.2, 1.5, 1.3), random_state=0)  # fmt: skip
    model = fitted(auto(time_limit=0.01, random_state=0, min_count=5), few)
    assert model.trials_.index.tolist() == default_names()
    assert model.trials_.loc["network", "note"].startswith("not tried")
    assert model.trials_.loc["gfb", "note"].startswith("not tried")
    assert f" gfb: {model.trials_.loc['gfb', 'note']}." in model.why_
    assert model.chosen_ == "boosting"
    assert model.why_.startswith("boosting is the only one")


def test_a_network_that_is_stopped_gives_way_to_what_was_finished() -> None:
    pytest.importorskip("torch")

    class Late(Deadline):
        def __init__(self, _: float) -> None:
            super().__init__(0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairdial.estimators.auto.Deadline", Late)
        model = fitted(auto(candidates=["network", "logistic"]), GAUSS)
    assert model.chosen_ == "logistic"
    assert model.why_.startswith("logistic is the only one")
    assert np.isnan(model.trials_.loc["network", "difference"])


def test_embeddings_are_not_for_trees_and_are_scaled() -> None:
    wide = np.random.default_rng(0).normal(size=(200, 300))
    y, everything = np.arange(200) % 2, np.arange(200)
    given = Rows(wide, y == 1, y, y, (0, 1), everything, everything[:0], PARITY)
    why = find_obstacles(given)
    assert set(why) == {"boosting", "blend"}
    assert all("256" in reason for reason in why.values())
    names = [name for name, _ in make_candidate("logistic", wide, 0).estimator.steps]
    assert names == ["simpleimputer", "standardscaler", "logisticregression"]


def without_torch() -> None:
    raise MissingExtraError("no")


def test_candidates_that_need_torch_are_noted_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "require_torch", without_torch)
    model = fitted(auto(), GAUSS)
    assert model.trials_.index.tolist() == default_names()
    assert (
        model.trials_.loc[["network", "gfb"], "note"].tolist() == ["not tried: it needs torch"] * 2
    )
    assert " network: not tried: it needs torch. gfb: not tried: it needs torch." in model.why_
    assert model.why_.endswith(f" So {model.chosen_} was chosen.")


def test_the_only_possible_candidate_is_not_tried_and_the_others_are_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(candidates, "require_torch", without_torch)
    rng = np.random.default_rng(0)
    wide, y, groups = rng.normal(size=(400, 256)), np.arange(400) % 2, rng.choice(["a", "b"], 400)
    model = auto().fit(wide, y, sensitive_features=groups)
    assert model.chosen_ == "logistic"
    assert model.trials_.index.tolist() == ["boosting", "blend", "network", "gfb"]
    assert model.trials_["note"].str.startswith("not tried: it").all()
    assert model.why_.startswith("It was the only candidate. boosting: not tried: its trees take")
    model.save(tmp_path / "model")
    assert fairdial.load(tmp_path / "model").training_["why"] == model.why_


def test_a_candidate_left_by_failures_is_not_attributed_to_the_time_limit() -> None:
    never = Trial("gfb", None, 0.0, "not tried: it compares groups, got one", possible=False)
    why = choose([FAILED, Trial("boosting", rows(0.5), 1.0), never])[1]
    assert "time" not in why.split(".")[0]


def test_lists_of_rows_are_tried_as_arrays_are() -> None:
    X, asked = GAUSS.X.to_numpy(), {"sensitive_features": GAUSS.groups}
    model = auto(candidates=QUICK)
    array, rows_ = (clone(model).fit(given, GAUSS.y, **asked) for given in (X, X.tolist()))
    same = ["accuracy", "difference", "error", "note"]
    pd.testing.assert_frame_equal(array.trials_[same], rows_.trials_[same])
    assert rows_.logits(X.tolist(), **asked).tolist() == array.logits(X, **asked).tolist()
    everything = np.arange(9)
    others = everything > 4, everything, everything % 2, (0, 1), everything, [], PARITY
    for wide in (np.zeros((9, 3)), np.zeros((9, 300))):
        kinds = wide, wide.tolist(), tuple(map(tuple, wide))
        found = [find_obstacles(Rows(given, *others)) for given in kinds]
        assert found[0] == found[1] == found[2]
        one, other = (make_candidate("logistic", given, 0) for given in (wide, wide.tolist()))
        assert repr(one.estimator) == repr(other.estimator)


def test_rows_of_different_lengths_are_refused() -> None:
    ragged = [[0.0, 1.0]] * 1499 + [[1.0]]
    with pytest.raises(InvalidInputError, match="`X`"):
        auto().fit(ragged, GAUSS.y, sensitive_features=GAUSS.groups)


def test_trees_take_no_tensors() -> None:
    torch = pytest.importorskip("torch")
    everything = np.arange(9)
    tensor = torch.zeros((9, 3))
    given = Rows(tensor, everything > 4, everything, everything % 2, (0, 1), everything, [], PARITY)
    assert set(find_obstacles(given)) == {"boosting", "blend"}


def test_networks_are_the_defaults_whatever_the_rows() -> None:
    for X in (np.zeros((9, 300)), TRAIN.X):
        assert repr(make_candidate("network", X, 0).estimator) == repr(Network())
        assert repr(make_candidate("gfb", X, 0).network) == repr(Network())


def test_text_columns_are_categories_whatever_their_type() -> None:
    frame = pd.DataFrame(
        {
            "n": [1.0, 2.0],
            "o": ["a", "b"],
            "c": pd.Categorical(["x", "y"]),
            "s": pd.array(["u", "v"], dtype="string"),
            "b": [True, False],
        }
    )
    assert text_columns(frame) == ["o", "c", "s"]
    assert text_columns(frame.set_axis(["n", "t", "t", "s", "b"], axis=1)) == ["t", "t", "s"]
    assert unreadable_columns(frame) == ["o", "s"]  # categories stand in nobody's way yet
    assert unreadable_columns(frame[["n", "c"]]) == ["c"]
    assert boosting(["o"], 0).steps[-1][1].categorical_features == [0]


@pytest.mark.parametrize("name", ["boosting", "blend"])
def test_nullable_columns_beside_text_are_floats_to_trees(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole, gone = rng.integers(0, 9, len(GAUSS.y)), rng.random(len(GAUSS.y)) < 0.1
    plain = GAUSS.X.rename(columns=str).assign(
        text=rng.choice(["u", "v"], len(whole)),
        whole=np.where(gone, np.nan, whole),
        real=np.where(gone, np.nan, whole / 4),
        truth=np.where(gone, np.nan, whole > 4),
    )
    nullable = plain.astype({"whole": "Int64", "real": "Float64", "truth": "boolean"})
    data = Dataset(plain, GAUSS.y, GAUSS.groups), Dataset(nullable, GAUSS.y, GAUSS.groups)
    one, other = (fitted(make_candidate(name, rows.X, 0), rows) for rows in data)
    other.save(tmp_path / "model")
    asked: dict[str, Any] = {"sensitive_features": GAUSS.groups}
    expected = one.logits(plain, **asked).tolist()
    for model in (one, other, fairdial.load(tmp_path / "model")):
        assert model.logits(nullable, **asked).tolist() == expected
        assert model.logits(plain, **asked).tolist() == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"candidates": ["boosting", "trees"]},
        {"candidates": ["boosting", 3]},
        {"candidates": np.array([["gfb"]])},
        {"candidates": "boosting"},
        {"candidates": {"gfb"}},
        {"candidates": 3},
        {"candidates": np.array([])},
        {"candidates": []},
        {"candidates": ["gfb", "gfb"]},
        {"time_limit": 0},
        {"time_limit": True},
        {"time_limit": "60"},
        {"time_limit": float("nan")},
        {"recalibrate": "line"},
        {"validation": 1.0},
        {"min_count": 0},
        {"min_count": "30", "calibration": None},
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=f"`{next(iter(settings))}`"):
        fitted(auto(**{"candidates": QUICK} | settings))


def test_numbers_and_arrays_of_numpy_are_taken() -> None:
    names = np.array(["boosting", "logistic"])
    model = fitted(auto(time_limit=np.int64(600), candidates=names), GAUSS)
    assert model.trials_.index.tolist() == ["boosting", "logistic"]


# ---- texts of few rows -------------------------------------------------------------------------


def holds(path: Path, text: str) -> bool:
    """Whether a file holds a text, in the encodings of JSON and of numpy's arrays."""
    body = path.read_bytes()
    return any(text.encode(kind) in body for kind in ("utf-8", "utf-16-le", "utf-32-le"))


@pytest.mark.parametrize("names", [["logistic"], ["boosting"], ["blend"], ["boosting", "blend"]])
def test_a_text_that_one_training_row_has_is_not_in_a_saved_model(
    names: list[str], tmp_path: Path
) -> None:
    X = GAUSS.X.rename(columns=str).assign(
        mail=[f"patient{i}@clinic.org" for i in range(len(GAUSS.y))],
        city=["Bern", "Turku", "Porto"] * 500,
        job=pd.Series(["cook"] * 1499 + ["patient1500@clinic.org"], dtype="string"),
    )
    data = Dataset(X, GAUSS.y, GAUSS.groups)
    model = fitted(auto(candidates=names), data)
    model.save(tmp_path / "model")
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert [path for path in files if holds(path, "Turku")]  # what many have is kept
    assert not [path for path in files if holds(path, "@clinic")]
    asked: dict[str, Any] = {"sensitive_features": GAUSS.groups}
    again = fairdial.load(tmp_path / "model")
    assert again.logits(X, **asked).tolist() == model.logits(X, **asked).tolist()


def test_trees_of_frequent_categories_are_those_of_all_categories() -> None:
    X = TRAIN.X.assign(city=[f"city {i % 7 if i % 40 else i}" for i in range(len(TRAIN.y))])
    rare = boosting(text_columns(X), 0).fit(X, TRAIN.y)
    every = boosting(text_columns(X), 0)
    texts = every.steps[0][1].transformers[0]
    every.steps[0][1].transformers = [(texts[0], OrdinalEncoder(**texts[1].get_params()), texts[2])]
    every.fit(X, TRAIN.y)
    assert len(every.steps[0][1].transformers_[0][1].categories_[-1]) > 100
    off = rare.predict_proba(X) - every.predict_proba(X)
    assert np.abs(off).mean() < 0.01


# ---- candidates that fail ----------------------------------------------------------------------


class Breaks(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that can't be trained."""

    def fit(self, X: Any, y: Any) -> Any:
        assert len(X) == len(y)
        raise RuntimeError("no\ttrees \x1b[31mhere" + " and there" * 99)


class Interrupted(Breaks):
    """A classifier that is interrupted."""

    def fit(self, X: Any, y: Any) -> Any:
        assert len(X) == len(y)
        raise KeyboardInterrupt


def test_a_candidate_that_fails_is_noted_and_the_others_are_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(learners, "boosting", lambda *_, **__: Breaks())
    monkeypatch.setattr(learners, "blend", lambda *_, **__: [Breaks()])
    model = fitted(auto(candidates=QUICK), GAUSS)
    assert model.chosen_ == "logistic"
    for name in ("boosting", "blend"):
        note = model.trials_.loc[name, "note"]
        assert note.startswith("failed: RuntimeError: no trees [31mhere")
        assert len(note) <= 230
        assert f" {name}: failed: RuntimeError." in model.why_
        assert np.isnan(model.trials_.loc[name, "accuracy"])
    model.save(tmp_path / "model")
    assert fairdial.load(tmp_path / "model").training_["why"] == model.why_


def test_what_an_error_quotes_is_shown_but_not_saved(tmp_path: Path) -> None:
    rows = np.column_stack([GAUSS.X, np.zeros(len(GAUSS.y))]).astype(object)
    rows[::100, -1] = [f"patient{i}@clinic.org" for i in range(15)]
    with pytest.warns(TrainingWarning, match="boosting .*InvalidInputError.*, blend") as given:
        model = auto(candidates=QUICK).fit(rows, GAUSS.y, sensitive_features=GAUSS.groups)
    assert len(given) == 1
    assert "@clinic" not in str(given[0].message)
    assert given[0].filename == __file__
    assert model.chosen_ == "logistic"
    for name in ("boosting", "blend"):
        assert "@clinic.org'" in model.trials_.loc[name, "note"]
        assert f" {name}: failed: InvalidInputError." in model.why_
    model.save(tmp_path / "model")
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {"manifest.json", "MODEL_CARD.md"} <= {path.name for path in files}
    assert not [path for path in files if b"@clinic" in path.read_bytes()]
    assert "@clinic" not in str(model.training_) + model.why_
    for names in (["boosting"], ["boosting", "blend"]):
        with pytest.raises(InvalidInputError, match="@clinic"):
            clone(model).set_params(candidates=names).fit(
                rows, GAUSS.y, sensitive_features=GAUSS.groups
            )


@pytest.mark.parametrize("kind", ["table", "array", "objects", "list"])
@pytest.mark.parametrize("names", [None, ["boosting"], QUICK])
def test_an_infinite_cell_is_refused_wherever_it_is(
    kind: str, names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairdial.estimators.auto.make_candidate", None)  # nothing is trained
    where = ""
    for row in (0, 7, 1499):  # of training, validation or calibration, whatever the split
        X: Any = pd.DataFrame({"0": GAUSS.X["x"], "1": GAUSS.X["x"] ** 2})
        X.iloc[row, 1] = -np.inf
        X = X.astype(object) if kind == "objects" else X
        if kind in ("array", "list"):
            X = X.to_numpy().tolist() if kind == "list" else X.to_numpy()
        else:
            X.index, where = X.index + 100, f".*{row + 100}"
        with pytest.raises(InvalidInputError, match=f"column '?1'?.*-inf{where}"):
            auto(candidates=names).fit(X, GAUSS.y, sensitive_features=GAUSS.groups)


def test_time_goes_on_until_one_candidate_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "boosting", lambda *_, **__: Breaks())
    model = auto(candidates=["boosting", "logistic", "blend"], time_limit=1e-9)
    fitted(model, GAUSS)
    assert model.chosen_ == "logistic"
    assert model.trials_.loc["blend", "note"].startswith("not tried")


class Clock:
    """Time that passes only in training, in place of the module's."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


CLOCK = Clock()


class Takes(LogisticRegression):  # type: ignore[misc]
    """A classifier whose training takes some seconds for 1,000 rows."""

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__()
        self.seconds = seconds

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        CLOCK.now += self.seconds * len(X) / 1_000
        return super().fit(X, y, sample_weight)


def test_the_time_limit_holds_for_everything_unless_the_first_candidate_exceeds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (auto_module, candidates):
        monkeypatch.setattr(module, "time", CLOCK)
    monkeypatch.setattr(learners, "logistic", lambda **_: Takes(4.0))  # is tried first
    monkeypatch.setattr(learners, "boosting", lambda *_, **__: Takes(3.0))
    monkeypatch.setattr(learners, "blend", lambda *_, **__: [Takes(1.0)])
    n_tried = []
    for limit in (1.0, 13.0, 30.0, np.inf):
        CLOCK.now = 0.0
        model = fitted(auto(candidates=QUICK, time_limit=limit), GAUSS)
        rows = model.training_["rows"] / 1_000
        assert CLOCK.now <= max(limit, 1.001 * 4.0 * rows * (1 + 1 - model.validation))
        n_tried.append(int((model.trials_["seconds"] > 0).sum()))
    assert n_tried[0] == 1
    assert n_tried[-1] == 3
    assert n_tried == sorted(n_tried)
    assert 2 in n_tried


def test_if_all_fail_the_error_explains_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("boosting", "logistic"):
        monkeypatch.setattr(learners, name, lambda *_, **__: Breaks())
    monkeypatch.setattr(learners, "blend", lambda *_, **__: [Breaks()])
    model = auto(candidates=QUICK)
    with pytest.raises(
        InvalidInputError, match=r"`candidates` .*logistic failed: RuntimeError"
    ) as caught:
        fitted(model, GAUSS)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert not [name for name in vars(model) if name.endswith("_")]
    monkeypatch.setattr(learners, "logistic", lambda **_: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        fitted(model, GAUSS)


class Warns(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose training warns, as a network's does."""

    def __init__(self, category: type[Warning]) -> None:
        self.category = category

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_ = np.unique(y)
        assert len(X) == len(y)
        warnings.warn("so it is", self.category, stacklevel=1)
        return self

    def decision_function(self, X: Any) -> Any:
        return np.linspace(-1, 1, len(X))


def test_other_warnings_of_candidates_are_given_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learners, "boosting", lambda *_, **__: Warns(TrainingWarning))
    model = auto(candidates=["logistic", "boosting"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(GAUSS.X, GAUSS.y, sensitive_features=GAUSS.groups)
    assert model.chosen_ == "logistic"
    assert [str(w.message) for w in caught if w.category is TrainingWarning] == ["so it is"]


@pytest.mark.parametrize("usual", ["default", "ignore", "error"])
@pytest.mark.parametrize("name", ["network", "gfb"])
def test_interrupting_a_network_ends_all_trials(
    monkeypatch: pytest.MonkeyPatch, name: str, usual: Any
) -> None:
    pytest.importorskip("torch")

    class Impatient(Deadline):
        def on_epoch_end(self, *_: Any) -> bool:
            raise KeyboardInterrupt

    tried = []
    monkeypatch.setattr("fairdial.estimators.auto.Deadline", Impatient)
    monkeypatch.setattr(learners, "logistic", lambda **_: tried.append(1))
    model = auto(candidates=[name, "logistic"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(usual, InterruptedWarning)
        with pytest.raises(KeyboardInterrupt):
            model.fit(GAUSS.X, GAUSS.y, sensitive_features=GAUSS.groups)
    assert not [w for w in caught if w.category is InterruptedWarning]  # nothing is kept
    assert not tried
    assert not [name for name in vars(model) if name.endswith("_")]


class Looks(Warns):
    """A classifier that looks how many threads BLAS and OpenMP have."""

    seen: ClassVar[list[int]] = []
    openmp: ClassVar[list[int]] = []

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_ = np.unique(y)
        self.seen.extend(threads_of("blas"))
        self.openmp.extend(threads_of("openmp"))
        assert len(X) == len(y)
        return self


def threads_of(api: str) -> list[int]:
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == api]


@pytest.mark.parametrize(("most", "threads"), [(10**6, 1), (1, 2)])
def test_trees_of_few_rows_are_grown_by_one_thread(
    monkeypatch: pytest.MonkeyPatch, most: int, threads: int
) -> None:
    monkeypatch.setattr(learners, "boosting", lambda *_, **__: Looks(Warning))
    monkeypatch.setattr("fairdial.estimators.learners.MANY_ROWS", most)
    monkeypatch.setattr(Looks, "seen", [])
    monkeypatch.setattr(Looks, "openmp", [])
    with threadpool_limits(limits=2, user_api="openmp"):
        for names in (["boosting"], ["boosting", "logistic"]):  # trained at last, and tried
            fitted(auto(candidates=names), GAUSS)
        assert set(threads_of("openmp")) == {2}
    assert set(Looks.openmp) == {threads}


def test_candidates_are_tried_with_one_thread_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "boosting", lambda *_, **__: Looks(Warning))
    monkeypatch.setattr(Looks, "seen", [])
    monkeypatch.setattr(Looks, "openmp", [])
    with threadpool_limits(limits=2, user_api="blas"):
        before = threads_of("blas")
        fitted(auto(candidates=["boosting", "logistic"]), GAUSS)
        assert threads_of("blas") == before
    assert Looks.seen == [1] * len(before)
    assert before


class Meets(Warns):
    """A classifier that is trained in two threads, the second of which goes last if it can."""

    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_ = np.unique(y)
        assert len(X) == len(y)
        if threading.current_thread().name == "first":
            self.first_in.set()
            self.second_in.wait(0.5)  # it comes later where trials take turns
        else:
            self.second_in.set()
            assert self.first_out.wait(60)
        return self


def test_fits_in_two_threads_leave_threads_and_warnings_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learners, "boosting", lambda *_, **__: Meets(Warning))
    chosen = []

    def fit() -> None:
        model = auto(candidates=["boosting", "logistic"])
        model.fit(GAUSS.X, GAUSS.y, sensitive_features=GAUSS.groups)
        chosen.append(model.chosen_)
        Meets.first_out.set()

    with threadpool_limits(limits=2, user_api="blas"):
        before, filters = threads_of("blas"), list(warnings.filters)
        first, second = (threading.Thread(target=fit, name=name) for name in ("first", "second"))
        first.start()
        assert Meets.first_in.wait(60)
        second.start()
        for thread in (first, second):
            thread.join()
        assert threads_of("blas") == before
        assert list(warnings.filters) == filters
    assert chosen == ["logistic"] * 2


def test_an_error_is_one_line() -> None:
    assert shorten_error(ValueError("one\ntwo\x07")) == "one two"
    assert shorten_error(ValueError("x " * 999)).endswith("x [...]")
    assert len(shorten_error(ValueError("x " * 999))) <= 200


def test_a_deadline_stops_after_the_epoch_in_which_it_passes() -> None:
    over, open_ = Deadline(0.0), Deadline(float("inf"))
    assert over.on_epoch_end(3, {}, None)
    assert over.epoch == 3
    assert not open_.on_epoch_end(3, {}, None)
    assert open_.epoch is None


# ---- rows that are few, or missing -------------------------------------------------------------


def test_wide_tables_may_have_missing_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(400, 260))
    y, groups = wide[:, 0] + rng.normal(size=400) > 0, rng.choice(["a", "b"], 400)
    wide[rng.random(wide.shape) < 0.1] = np.nan
    wide[:, 7] = np.nan
    data = Dataset(pd.DataFrame(wide).rename(columns=str), pd.Series(y.astype(int)), groups)
    alone = fitted(auto(candidates=["logistic"], min_count=5), data)
    assert alone.score(data.X, data.y, sensitive_features=groups, tolerance=1.0) > 0.6
    alone.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    asked: dict[str, Any] = {"sensitive_features": groups, "tolerance": 0.1}
    assert again.predict(data.X, **asked).tolist() == alone.predict(data.X, **asked).tolist()


@pytest.mark.parametrize(
    ("criterion", "few"),
    [("demographic_parity", None), ("equal_opportunity", 1), ("predictive_equality", 0)],
)
def test_groups_that_are_too_small_to_compare_on_are_named(criterion: str, few: int | None) -> None:
    y = np.array(GAUSS.y)
    groups = np.full(len(y), "usual", object)
    groups[: 1 if few is None else 40] = "rare"
    if few is not None:
        y[:40] = 1 - few
        y[0] = few
    model = auto(candidates=QUICK, criterion=criterion, calibration=None)
    with pytest.raises(InvalidInputError, match=r"`validation` .*'rare'"):
        fitted(model, Dataset(GAUSS.X, pd.Series(y), groups))


@pytest.mark.parametrize(
    "criterion", ["demographic_parity", "equal_opportunity", "predictive_equality"]
)
def test_groups_that_are_too_small_for_the_dial_are_named_before_anything_is_trained(
    criterion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = np.full(len(GAUSS.y), "usual", object)
    groups[:100] = "rare"
    data = Dataset(GAUSS.X, GAUSS.y, groups)
    asked: dict[str, Any] = {"criterion": criterion, "random_state": 0}
    model = fitted(auto(candidates=["logistic", "boosting"], min_count=1, **asked), data)
    least = int(model.frontier_.eligible[0])
    assert fitted(clone(model).set_params(min_count=least), data).frontier_.eligible[0] == least
    monkeypatch.setattr("fairdial.estimators.auto.make_candidate", None)
    for early in (clone(model), FairBayes(Breaks(), **asked)):  # neither trains
        with pytest.raises(SmallGroupError, match="'rare'"):
            fitted(early.set_params(min_count=least + 1), data)


class Itself:
    """Rows that are their own logits."""

    def logits(self, X: Any, groups: Any) -> Any:
        assert len(X) == len(groups)
        return X


def shifted(size: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores that select everybody without lines, groups, labels."""
    rng = np.random.default_rng(0)
    codes, positive = rng.integers(0, 2, size), rng.random(size) < 0.4
    return positive + rng.normal(size=size) + 5.0, codes, positive


def test_candidates_are_compared_with_the_lines_that_the_chosen_one_will_have() -> None:
    asked: dict[str, Any] = {"candidates": ["logistic", "boosting"], "random_state": 0}
    plain, lines = (fitted(auto(recalibrate=r, **asked), GAUSS) for r in (None, "group"))
    assert plain.trials_["accuracy"].tolist() != lines.trials_["accuracy"].tolist()
    scores, codes, positive = shifted()
    everything = np.arange(len(codes))
    rows = Rows(scores, positive, positive, codes, (0, 1), everything, everything[:0], PARITY)
    right = AutoDial(recalibrate="group")._measure(Itself(), rows, everything)
    frontier = sweep(PlattMap.fit(scores, codes, positive, (0, 1))(scores, codes), codes, positive)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)  # tolerance 0 isn't reached
        accuracy = frontier.at(TOLERANCES).accuracy
    expected = np.where(frontier.gap.min() <= TOLERANCES, accuracy, 1 - positive.mean())
    assert right.mean() == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_tolerance_that_is_not_reached_is_credited_as_the_more_frequent_label(
    share: float,
) -> None:
    codes = np.repeat([0, 1], [100, 99])
    positive = np.random.default_rng(0).random(199) < share + 0.1 * codes
    scores = np.where(positive, 1.0, -1.0) * (1 + np.arange(199) % 2)  # in steps of many rows
    kind = criterion("demographic_parity+selection_rate>=0.2+selection_rate<=0.9")
    frontier = sweep(scores, codes, positive, criterion=kind)
    _, reached = frontier.points.choose(TOLERANCES)
    assert reached.any()
    assert not reached.all()
    everything = np.arange(199)
    rows = Rows(scores, positive, positive, codes, (0, 1), everything, everything[:0], kind)
    right = AutoDial(criterion=kind)._measure(Itself(), rows, everything)
    usual = max(positive.mean(), 1 - positive.mean())
    kept = frontier.at(TOLERANCES[reached]).accuracy
    assert right.mean() == pytest.approx((np.sum(kept) + (~reached).sum() * usual) / 20, abs=1e-12)


# ---- what is kept ------------------------------------------------------------------------------


def test_nothing_of_a_former_choice_remains() -> None:
    pytest.importorskip("torch")
    model = auto(candidates=["network"])
    fitted(model, GAUSS)
    assert {"net_", "encoder_", "history_", "best_epoch_", "validation_rows_"} <= set(vars(model))
    fitted(model.set_params(candidates=["logistic", "boosting"]), GAUSS)
    fresh = fitted(clone(model), GAUSS)
    assert set(vars(model)) == set(vars(fresh))
    assert model.trials_["accuracy"].tolist() == fresh.trials_["accuracy"].tolist()


def test_the_chosen_estimator_has_the_dial_as_it_is() -> None:
    model = fitted(auto(candidates=["logistic"]))
    before, other = model.model_.frontier_, pickle.loads(pickle.dumps(model))
    copied = clone(model)
    copied.__dict__.update(vars(model))
    model.calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)
    assert model.model_.frontier_ is model.frontier_ is not before
    assert copied.model_.frontier_ is copied.frontier_ is before  # shares the estimator only
    assert np.array_equal(other.model_.frontier_.gap, before.gap)


def test_groups_must_be_passed_by_name_when_calibrating() -> None:
    model = fitted(auto(candidates=["logistic"]))
    with pytest.raises(TypeError, match="`calibrate`"):
        model.calibrate(TEST.X, TEST.y, TEST.groups)


@pytest.mark.parametrize("names", [["logistic"], ["gfb"]])
def test_the_chosen_estimator_has_the_settings_as_they_are(names: Any, tmp_path: Path) -> None:
    if names == ["gfb"]:
        pytest.importorskip("torch")
    model = fitted(auto(candidates=names), GAUSS)
    before = model.model_
    now: dict[str, Any] = {"criterion": "equal_opportunity", "recalibrate": "group"}
    now |= {"min_count": 7, "tolerance": 0.03}
    model.set_params(**now, random_state=5)
    model.calibrate(GAUSS.X, GAUSS.y, sensitive_features=GAUSS.groups)
    assert model.model_.get_params().items() >= {**now, "random_state": 0}.items()
    assert before.criterion == "demographic_parity"  # whoever holds it has it as it was
    model.set_params(tolerance=0.07).save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    assert again.get_params().items() >= {**now, "tolerance": 0.07, "random_state": 0}.items()
    assert again.frontier_.criterion.name == "equal_opportunity"
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    assert f"\n# Model card: {type(again).__name__}, equal opportunity\n" in card


def test_the_dial_of_parquet_files_reaches_the_chosen_estimator(tmp_path: Path) -> None:
    model = fitted(auto(candidates=["logistic"]))
    scores = model.logits(TEST.X, sensitive_features=TEST.groups)
    frame = pd.DataFrame({"score": scores, "group": np.asarray(TEST.groups)})
    frame.to_parquet(tmp_path / "rows.parquet")
    model.calibrate_parquet(tmp_path / "rows.parquet")
    assert model.model_.frontier_ is model.frontier_
    assert model.frontier_.counts.sum() == len(TEST)


def test_a_pickled_model_decides_and_saves_the_same(model: Any, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(model))
    asked: dict[str, Any] = {"sensitive_features": TEST.groups, "tolerance": 0.03}
    assert again.predict(TEST.X, **asked).tolist() == model.predict(TEST.X, **asked).tolist()
    assert (again.chosen_, again.why_) == (model.chosen_, model.why_)
    again.training_["asked"] = "auto"
    again.save(tmp_path / "model")
    assert fairdial.load(tmp_path / "model").training_ == again.training_


def test_the_same_seed_chooses_the_same() -> None:
    one, other = (fitted(auto(candidates=QUICK, random_state=3), GAUSS) for _ in range(2))
    assert one.chosen_ == other.chosen_
    same = ["accuracy", "difference", "error"]
    pd.testing.assert_frame_equal(one.trials_[same], other.trials_[same])
    assert np.array_equal(one.frontier_.gap, other.frontier_.gap)


def test_the_choice_and_its_reason_are_saved_and_shown(tmp_path: Path) -> None:
    model = fitted(auto(candidates=QUICK), GAUSS)
    model.save(tmp_path / "model")
    training = json.loads((tmp_path / "model" / "manifest.json").read_bytes())["training"]
    assert (training["chosen"], training["why"]) == (model.chosen_, model.why_)
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    assert f"`'{model.chosen_}'`. {model.why_}" in card
    again = fairdial.load(tmp_path / "model")
    assert again.training_ == model.training_ == model.model_.training_
    again.fit(GAUSS.X, GAUSS.y, sensitive_features=GAUSS.groups)
    assert "chosen" not in again.training_


@pytest.mark.parametrize(
    "forged",
    [
        {"chosen": "blend"},
        {"why": "so"},
        {"chosen": 3, "why": "so"},
        {"chosen": "blend", "why": None},
        {"chosen": "blend", "why": "so\x1b[2J"},
        {"chosen": "blend\n", "why": "so"},
        {"chosen": "blend", "why": "so", "more": 1},
    ],
)
def test_a_choice_that_was_forged_is_refused(forged: dict[str, Any]) -> None:
    training = {"rows": 9, "ended": "now", "asked": None}
    assert training_from_data(training) == training
    with pytest.raises(ValueError, match="expected"):
        training_from_data(training | forged)
