"""EPO, FairBiNN and YOTO as estimators."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from fairdial import (
    EPO,
    GFB,
    YOTO,
    CannotCertifyError,
    FairBayes,
    FairBiNN,
    FairdialWarning,
    InvalidInputError,
    Network,
    TrainingWarning,
    make_group_scorer,
    paper_settings,
)
from fairdial.datasets import make_gaussian
from fairdial.errors import InfeasibleToleranceWarning
from fairdial.metrics import gap
from fairdial.nn.nets import DialNet
from fairdial.paper.yoto import Condition, bisect_weight

DATA = make_gaussian(3000, random_state=0)
TRAIN, TEST = DATA.split(test_size=0.4, random_state=0)
CONSTANT = max(DATA.y.mean(), 1.0 - DATA.y.mean())  # accuracy of deciding alike for all
CRITERIA = ["demographic_parity", "equal_opportunity", "predictive_equality"]
CHECKED = Network(
    members=1,
    hidden=(8,),
    head=4,
    epochs=20,
    patience=None,
    learning_rate=0.05,
    batch_size=64,
    average=None,
)
SLOWER = clone(CHECKED).set_params(learning_rate=0.01, epochs=60, hidden=(16,), head=16)
FAMILIES = ["EPO", "FairBiNN", "YOTO"]
pytestmark = pytest.mark.filterwarnings(  # short trainings end there; tested by itself
    "ignore:the setting chosen at this tolerance:fairdial.FairdialWarning"
)


def quick(**settings: Any) -> Network:
    plain: dict[str, Any] = {"members": 1, "hidden": (16, 8), "head": 8, "epochs": 4}
    return Network(**(plain | {"batch_size": 128, "learning_rate": 5e-3} | settings))


def make(name: str, network: Network | None = None, **settings: Any) -> Any:
    base: dict[str, Any] = {"network": network or quick(), "random_state": 0}
    if name == "EPO":
        return EPO(**({"n_settings": 4} | base | settings))
    if name == "FairBiNN":
        return FairBiNN(**({"n_settings": 4, "widen": 0} | base | settings))
    return YOTO(**(base | settings))


def fit(model: Any, data: Any = TRAIN) -> Any:
    return model.fit(data.X, data.y, sensitive_features=data.groups)


def decide(model: Any, data: Any = TEST, **dial: Any) -> np.ndarray:
    return np.asarray(model.predict(data.X, sensitive_features=data.groups, **dial))


# rows are held out one by one: copies of a row may be separated, a row with a weight is not
HELD_OUT = dict.fromkeys(
    [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")],
    "rows are held out one by one",
)


@parametrize_with_checks(
    [
        EPO(2, network=CHECKED, random_state=0, min_count=1),
        FairBiNN(2, widen=0, network=CHECKED, random_state=0, min_count=1),
        YOTO(targets=2, network=SLOWER, random_state=0, min_count=1),
    ],
    expected_failed_checks=lambda _: HELD_OUT,
)
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


# ---- the contract of the dial ------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_most_accurate_setting_within_the_tolerance_is_chosen(
    name: str, criterion: str
) -> None:
    model = make(name, criterion=criterion, calibration=None)
    fit(model).calibrate(TEST.X, TEST.y, sensitive_features=TEST.groups)
    frontier = model.frontier_
    figures = {}  # by setting, from decisions of the model itself
    for setting in frontier.setting.tolist():
        codes = np.searchsorted(np.array(frontier.groups), TEST.groups)
        decisions = model.scorer_.margins(model.scorer_.prepare(TEST.X, codes), codes, setting) > 0
        spread = gap(TEST.y, decisions, sensitive_features=TEST.groups, criterion=criterion)
        figures[setting] = (decisions == TEST.y).mean(), spread
    for tolerance in (0.02, 0.1, 0.25, 0.6):
        within = [accuracy for accuracy, spread in figures.values() if spread <= tolerance]
        if not within:
            continue
        point = frontier.at(tolerance)
        assert point.accuracy == pytest.approx(max(within), abs=1e-12)
        assert figures[point.setting] == pytest.approx((point.accuracy, point.gap), abs=1e-12)
        decisions = decide(model, tolerance=tolerance)
        assert (decisions == TEST.y).mean() == pytest.approx(point.accuracy, abs=1e-12)
        assert gap(
            TEST.y, decisions, sensitive_features=TEST.groups, criterion=criterion
        ) == pytest.approx(point.gap, abs=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_one_tolerance_per_row_is_applied_row_by_row(name: str) -> None:
    model = fit(make(name))
    tolerances = np.where(np.arange(len(TEST)) % 3 == 0, 0.05, 0.6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        mixed = decide(model, tolerance=tolerances)
        strict, loose = decide(model, tolerance=0.05), decide(model, tolerance=0.6)
    np.testing.assert_array_equal(mixed, np.where(tolerances == 0.05, strict, loose))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        moved = model.flips(TEST.X, 0.6, 0.05, sensitive_features=TEST.groups)
    np.testing.assert_array_equal(moved, strict.astype(int) - loose.astype(int))


def test_an_unreachable_tolerance_takes_the_smallest_gap_and_warns() -> None:
    model = fit(make("FairBiNN", n_settings=1, eta=(1e-4, 1e-3), network=quick(epochs=25)))
    reached = model.frontier_.gap.min()
    assert reached > 0.001
    with pytest.warns(InfeasibleToleranceWarning):
        point = model.frontier_.at(0.0)
    assert not point.feasible
    assert point.gap == reached


def test_a_setting_with_constant_decisions_warns() -> None:
    model = fit(make("FairBiNN", n_settings=2, eta=(1e-4, 1e3), network=quick(epochs=15)))
    with pytest.warns(FairdialWarning, match="same"):
        decisions = decide(model, tolerance=0.0)
    assert len(set(decisions)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(set(decide(model, tolerance=1.0))) == 2


@pytest.mark.parametrize("name", FAMILIES)
def test_three_groups_are_taken(name: str) -> None:
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b", "c"], len(TRAIN))
    model = make(name).fit(TRAIN.X, TRAIN.y, sensitive_features=groups)
    assert model.frontier_.groups == ("a", "b", "c")
    assert set(model.predict(TRAIN.X, sensitive_features=groups, tolerance=1.0)) <= {0, 1}


@pytest.mark.parametrize("name", FAMILIES)
def test_without_groups_it_is_a_plain_classifier(name: str) -> None:
    with pytest.warns(FairdialWarning, match="one group"):
        model = make(name).fit(TRAIN.X, TRAIN.y)
    assert model.score(TEST.X, TEST.y) > TEST.y.mean()
    assert (model.frontier_.gap == 0).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_calibration_without_labels_takes_the_least_constrained_within(name: str) -> None:
    model = fit(make(name))
    model.calibrate(TEST.X, sensitive_features=TEST.groups)
    frontier = model.frontier_
    assert frontier.accuracy is None
    assert (np.diff(frontier.setting) > 0).all()  # as they were given: loosest first
    first = frontier.setting[np.flatnonzero(frontier.gap <= 0.3)[0]]
    assert frontier.at(0.3).setting == first


@pytest.mark.parametrize("name", FAMILIES)
def test_confidence_chooses_among_what_was_fixed_beforehand(name: str) -> None:
    big = make_gaussian(30_000, random_state=1)
    model = fit(make(name, calibration=None, network=quick(epochs=25)), TRAIN)
    model.calibrate(big.X, big.y, sensitive_features=big.groups)
    point = model.frontier_.at(0.3, confidence=0.9)
    assert point.gap < 0.3
    assert point.certified_gap <= 0.3
    if name == "YOTO":
        grid = np.append(0.0, np.geomspace(1e-6, 10.0, 61))
        assert point.setting in grid
        assert len(model.frontier_) > len(grid)
    asked = {"sensitive_features": TEST.groups, "confidence": 0.9}
    same = model.predict(TEST.X, tolerance=np.full(len(TEST.X), 0.3), **asked)
    assert np.array_equal(same, model.predict(TEST.X, tolerance=0.3, **asked))
    mixed = np.where(TEST.groups == TEST.groups[0], 0.3, 0.5)  # a gap that nothing bounds
    with pytest.raises(InvalidInputError) as caught:
        model.predict(TEST.X, tolerance=mixed, **asked)
    assert caught.value.argument == "tolerance"
    small = TEST.subset(np.arange(80))
    model.set_params(min_count=1).calibrate(small.X, small.y, sensitive_features=small.groups)
    with pytest.raises(CannotCertifyError):
        model.frontier_.at(0.05, confidence=0.9)


@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_scored_by_scikit_learn(name: str) -> None:
    X = TRAIN.X.assign(group=TRAIN.groups)
    model = make(name, network=quick(epochs=15), sensitive_column="group", tolerance=0.9)
    scores = cross_val_score(model, X, TRAIN.y, cv=2, scoring=make_group_scorer())
    assert (scores > CONSTANT + 0.05).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_fitted_model_is_pickled_and_cloned(name: str) -> None:
    model = fit(make(name))
    text = pickle.dumps(model)
    again = pickle.loads(text)
    np.testing.assert_array_equal(decide(again, tolerance=0.3), decide(model, tolerance=0.3))
    assert len(text) < 2_000_000  # the training rows aren't in it
    assert not hasattr(clone(model), "frontier_")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_seed_gives_the_same_decisions(name: str) -> None:
    first, second, other = (fit(make(name, random_state=seed)) for seed in (3, 3, 4))
    for tolerance in (0.2, 1.0):
        np.testing.assert_array_equal(
            decide(first, tolerance=tolerance), decide(second, tolerance=tolerance)
        )
    assert not np.array_equal(first.history_["score"], other.history_["score"])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    "settings", [{"shared": False}, {"members": 2}, {"norm": True, "bare": True}, {"dropout": 0.2}]
)
def test_every_net_trains(name: str, settings: dict[str, Any]) -> None:
    model = fit(make(name, network=quick(epochs=15, **settings)))
    assert model.frontier_.accuracy.max() > CONSTANT + 0.05


class Tiny(nn.Module):
    """A user's trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(TRAIN.X.shape[1], 8)
        self.layer4 = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer4(torch.relu(self.stem(x))))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_users_trunk_is_taken(name: str) -> None:
    network = quick(trunk=Tiny, encoder=None, epochs=15)
    torch.manual_seed(0)
    model = make(name, network=network)
    model.fit(TRAIN.X.to_numpy(), TRAIN.y, sensitive_features=TRAIN.groups)
    decisions = model.predict(TEST.X.to_numpy(), sensitive_features=TEST.groups, tolerance=1.0)
    assert (decisions == TEST.y).mean() > CONSTANT + 0.05


def test_methods_share_initial_weights() -> None:
    seen: dict[str, dict[str, torch.Tensor]] = {}

    class Look:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_epoch_end(self, epoch: int, record: Any, net: DialNet) -> bool:  # noqa: ARG002
            weights = {k: p for k, p in net.named_parameters() if not k.startswith("film")}
            seen[self.name] = {k: p.detach()[:1].clone() for k, p in weights.items()}
            return True

    still = {"learning_rate": 1e-30, "average": None, "epochs": 1}
    for name in [*FAMILIES, "GFB", "FairBayes"]:
        network = quick(callbacks=[Look(name)], **still)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)
            if name == "FairBayes":
                fit(FairBayes(network, random_state=0))
            elif name == "GFB":
                fit(GFB(network=network, random_state=0))
            else:
                fit(make(name, network=network))
    for name in [*FAMILIES, "GFB"]:
        for key, weights in seen["FairBayes"].items():
            torch.testing.assert_close(seen[name][key], weights, rtol=0, atol=1e-20)


# ---- together and one by one -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["EPO", "FairBiNN"])
@pytest.mark.parametrize("n_jobs", [2, 3])
def test_processes_and_stacks_give_the_same_nets(name: str, n_jobs: int) -> None:
    network = quick(epochs=6, patience=2)
    together, apart = (fit(make(name, network=network, n_jobs=jobs)) for jobs in (1, n_jobs))
    assert len(together.nets_) == 1
    assert len(apart.nets_) == n_jobs
    assert together.best_epoch_ == apart.best_epoch_
    codes = np.searchsorted(np.array(together.frontier_.groups), TEST.groups)
    for setting in together.settings_:
        one, other = (
            model.scorer_.margins(model.scorer_.prepare(TEST.X, codes), codes, setting)
            for model in (together, apart)
        )
        # stacks of other sizes round otherwise, and EPO jumps between weights
        np.testing.assert_allclose(one, other, atol=5e-3 if name == "EPO" else 1e-4)


@pytest.mark.parametrize("name", ["EPO", "FairBiNN"])
def test_runs_stop_each_by_itself(name: str) -> None:
    model = fit(make(name, network=quick(epochs=40, patience=2)))
    last = model.history_.reset_index().groupby("setting")["epoch"].max()
    assert last.nunique() > 1
    for setting, kept in zip(model.settings_, model.best_epoch_, strict=True):
        scores = model.history_.loc[setting]["score"]
        assert scores.idxmax() == kept
        assert last[setting] in (kept + 2, 40)


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from test_families import fit, make, quick

class Kill:
    def on_epoch_end(self, epoch, record, net):
        if epoch == {epoch}:
            os.kill(os.getpid(), signal.SIGKILL)

network = quick(epochs=8, patience=2, checkpoint={checkpoint!r}, callbacks=[Kill()])
fit(make({name!r}, network=network))
"""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_killed_fit_resumes_to_the_same_decisions(name: str, tmp_path: Path) -> None:
    straight = fit(make(name, network=quick(epochs=8, patience=2)))
    longest = int(straight.history_.reset_index()["epoch"].max())
    for epoch in (2, longest - 1):
        text = KILLED.format(
            folder=str(Path(__file__).parent),
            epoch=epoch,
            checkpoint=str(tmp_path),
            name=name,
        )
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], check=False)
        assert done.returncode == -signal.SIGKILL
    network = quick(epochs=8, patience=2, checkpoint=str(tmp_path))
    again = fit(make(name, network=network))
    np.testing.assert_array_equal(again.frontier_.gap, straight.frontier_.gap)
    np.testing.assert_array_equal(again.frontier_.setting, straight.frontier_.setting)
    kept = ["score", "loss"]
    pd.testing.assert_frame_equal(again.history_[kept], straight.history_[kept])


# ---- EPO ---------------------------------------------------------------------------------------


def test_epo_moves_from_accuracy_to_the_gap() -> None:
    model = fit(EPO(5, network=quick(epochs=25), random_state=0))
    frame = model.frontier_.to_frame().sort_values("setting")
    inner = frame.iloc[1:]  # at the very axis the search needn't get anywhere
    assert inner["gap"].iloc[0] - inner["gap"].iloc[-1] > 0.15
    assert inner["accuracy"].iloc[0] > inner["accuracy"].iloc[-1]


@pytest.mark.parametrize(
    ("name", "value"), [("n_settings", 0), ("offset", 0.0), ("offset", 0.5), ("n_jobs", 0)]
)
def test_epo_refuses_invalid_settings(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        fit(make("EPO", **{name: value}))


# ---- FairBiNN ----------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["release", "bilevel"])
def test_a_larger_eta_means_a_smaller_gap(preset: str) -> None:
    model = FairBiNN(3, preset=preset, widen=0, network=quick(epochs=20), random_state=0)
    frame = fit(model).frontier_.to_frame().sort_values("setting")
    assert frame["gap"].iloc[-1] < 0.5 * frame["gap"].iloc[0]


def test_the_combination_in_which_eta_cannot_matter_warns_and_does_not_matter() -> None:
    model = make("FairBiNN", n_settings=3, accumulate=False, fair_optimizer="adam")
    with pytest.warns(TrainingWarning, match="eta"):
        fit(model)
    epochs = model.history_["loss"].unstack("setting")
    np.testing.assert_allclose(epochs.to_numpy(), epochs.to_numpy()[:, :1].repeat(3, 1), rtol=1e-3)


def test_a_wide_range_is_narrowed() -> None:
    model = FairBiNN(3, eta=(1e-5, 1e4), widen=3, network=quick(epochs=15), random_state=0)
    fit(model)
    high, seen = model.settings_[-1], model.spanned_.set_index("eta")["gap"]
    assert high < 1e4
    assert seen[high] <= 0.1 * seen[0.0]
    further = seen[seen.index < high * 0.5].drop([0.0, 1e-5])
    assert (further > 0.1 * seen[0.0]).all()  # the next decade would be too loose


def test_a_narrow_range_is_widened_by_decades() -> None:
    model = FairBiNN(3, eta=(1e-5, 1e-4), widen=6, network=quick(epochs=15), random_state=0)
    fit(model)
    low, high = model.settings_[[0, -1]]
    assert low == pytest.approx(1e-5)  # that end was loose enough
    decades = np.log10(high / 1e-4)
    assert decades == pytest.approx(round(decades))
    assert decades >= 1
    seen = model.spanned_
    plain = seen["gap"].iloc[0]
    assert seen["eta"].iloc[0] == 0
    assert seen["gap"].iloc[-1] <= 0.25 * plain
    assert (seen["gap"].iloc[2:-1] > 0.25 * plain).all()  # no decade too many


def test_a_range_that_cannot_be_widened_enough_warns() -> None:
    model = FairBiNN(2, eta=(1e-7, 1e-6), widen=1, network=quick(epochs=3), random_state=0)
    with pytest.warns(TrainingWarning, match="`widen`"):
        fit(model)
    assert model.settings_[-1] == pytest.approx(1e-5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("preset", "other"),
        ("eta", (1.0, 0.5)),
        ("eta", 3.0),
        ("eta", (0.0, 1.0)),
        ("fair_rate", -1.0),
        ("fair_optimizer", "lbfgs"),
        ("fairness", 7),
        ("fairness", "layer4"),
        ("widen", -1),
    ],
)
def test_fairbinn_refuses_invalid_settings(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        fit(make("FairBiNN", **{name: value}))


# ---- YOTO --------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["raw", "log"])
def test_one_net_covers_the_range(condition: str) -> None:
    model = fit(YOTO(condition=condition, network=quick(epochs=40), random_state=0))
    frame = model.frontier_.to_frame().sort_values("setting")
    assert frame["gap"].iloc[-1] < 0.5 * frame["gap"].iloc[0]
    search = model.search_
    assert list(search["target"]) == sorted(search["target"])
    reached = search[search["reached"]]
    assert (reached["gap"] <= reached["target"]).all()
    assert len(reached) >= 5
    for line in reached.itertuples():
        assert model.frontier_.at(line.target).accuracy >= 0.5


def test_targets_are_met_closely_where_the_gap_falls_slowly() -> None:
    model = fit(YOTO(condition="log", network=quick(epochs=40), random_state=0))
    search = model.search_[model.search_["reached"]].iloc[1:-1]
    grid = model.frontier_.gap[np.isin(model.frontier_.setting, search["setting"])]
    assert len(grid)
    assert (search["target"] - search["gap"] < 0.05).all()


@pytest.mark.parametrize("target", [0.19, 0.1, 0.05, 0.025])
def test_bisection_hits_a_falling_gap(target: float) -> None:
    weight, reached = bisect_weight(lambda w: 0.2 / (1.0 + w), target, 1e-6, 10.0)
    assert reached
    assert weight == pytest.approx(0.2 / target - 1.0, rel=1e-6)
    assert 0.2 / (1.0 + weight) <= target


def test_targets_out_of_reach_give_the_ends() -> None:
    assert bisect_weight(lambda w: 0.2 / (1.0 + w), 0.3, 1e-6, 10.0) == (1e-6, True)
    assert bisect_weight(lambda w: 0.2 / (1.0 + w), 0.001, 1e-6, 10.0) == (10.0, False)


def test_bisection_stops_where_it_is_good_enough() -> None:
    calls = []

    def gap_of(weight: float) -> float:
        calls.append(weight)
        return 0.2 / (1.0 + weight)

    weight, _ = bisect_weight(gap_of, 0.1, 1e-6, 10.0, within=0.01)
    assert 0.09 <= 0.2 / (1.0 + weight) <= 0.1
    assert len(calls) < 20


def test_conditions() -> None:
    raw, log = Condition("raw", 1e-6, 10.0), Condition("log", 1e-6, 10.0)
    assert raw(0.3) == 0.3
    assert raw(0.0) == 0.0
    assert (log(1e-6), log(10.0)) == pytest.approx((-1.0, 1.0))
    assert log(10.0**-2.5) == pytest.approx(0.0)
    assert log(0.0) == -1.0


def test_a_random_choice_of_the_epoch_is_repeatable() -> None:
    first, second = (fit(make("YOTO", selection="random")) for _ in range(2))
    pd.testing.assert_series_equal(first.history_["score"], second.history_["score"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bounds", (0.0, 1.0)),
        ("bounds", (1.0,)),
        ("bounds", "wide"),
        ("condition", "square"),
        ("film", (64,)),
        ("film", (0, 2)),
        ("selection", "best"),
        ("targets", -1),
        ("network", "deep"),
    ],
)
def test_yoto_refuses_invalid_settings(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        fit(make("YOTO", **{name: value}))


def test_a_trunk_with_a_linear_head_has_nothing_to_modulate() -> None:
    model = make("YOTO", network=quick(trunk=Tiny, encoder=None, head=0))
    with pytest.raises(InvalidInputError, match="head=0"):
        model.fit(TRAIN.X.to_numpy(), TRAIN.y, sensitive_features=TRAIN.groups)


# ---- the paper's settings ----------------------------------------------------------------------


@pytest.mark.parametrize(("method", "kind"), [("epo", EPO), ("fairbinn", FairBiNN), ("yoto", YOTO)])
@pytest.mark.parametrize("dataset", ["adult", "compas", "celeba", "utkface"])
def test_the_papers_settings_make_an_estimator(method: str, kind: Any, dataset: str) -> None:
    model = kind(**paper_settings(method, dataset, source="release"))
    assert model.network.epochs == 100
    assert model.network.patience == 10
    assert model.network.dropout == 0.0  # whatever the rows
    if method == "yoto":
        assert model.film == ((64, 2) if dataset in ("adult", "compas") else (256, 4))
    else:
        assert model.n_settings == 10


def test_the_papers_networks_are_scaled_to_the_encoder() -> None:
    wide = paper_settings("epo", "adult")["network"]
    narrow = paper_settings("epo", "adult", inputs=192)["network"]
    assert wide.hidden == (384, 192, 96, 48, 348)
    assert narrow.hidden == (96, 48, 24, 12, 87)
    assert narrow.head == 256
    with pytest.raises(InvalidInputError, match="`inputs`"):
        paper_settings("epo", "adult", inputs=0)
