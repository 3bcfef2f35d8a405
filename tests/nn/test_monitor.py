"""The training monitor, on histories with known figures and on trainings that go well or badly."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from fairdial import (
    EPO,
    GFB,
    YOTO,
    FairBayes,
    FairBiNN,
    FairdialWarning,
    InvalidInputError,
    Network,
    TrainingWarning,
)
from fairdial.datasets import make_gaussian
from fairdial.nn.monitor import NOISE, ValidationRows, findings, oscillation, swing

ROWS = ValidationRows(2000.0, 0.4)
DATA = make_gaussian(1500, random_state=0)


def history_of(accuracy: Any, **more: Any) -> pd.DataFrame:
    return pd.DataFrame({"accuracy": accuracy} | more, range(1, len(accuracy) + 1))


def messages(
    history: pd.DataFrame, best: Any = 1, rows: ValidationRows = ROWS, **settings: Any
) -> str:
    return " ".join(findings(history, best, settings, rows))


# ---- oscillation -------------------------------------------------------------------------------


def test_oscillation_is_the_mean_over_epochs_and_then_over_runs() -> None:
    one, two = [0.5, 0.7, 0.6], [0.8, 0.8, 0.8, 0.5]
    assert np.isclose(oscillation(history_of(one)), 0.15)
    frame = pd.concat({0: history_of(one), 1: history_of(two)})
    assert np.isclose(oscillation(frame), (0.15 + 0.1) / 2)
    assert math.isnan(oscillation(history_of([0.5])))


def test_a_swing_is_what_the_next_epoch_takes_back() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, rise = rng.random(8), np.sort(rng.random(8))
        assert swing(rise) == swing(rise[::-1]) == 0.0
        assert 0.0 <= swing(a) <= np.abs(np.diff(a)).max()
        assert np.isclose(swing(3.0 * a + 1.0), 3.0 * swing(a))
    zigzag = np.tile([0.7, 0.8], 6)
    assert np.isclose(swing(zigzag), 0.1)
    assert np.isclose(swing(zigzag), oscillation(history_of(zigzag)))


def test_swings_are_compared_with_the_noise_of_the_validation_rows() -> None:
    history = history_of(np.tile([0.78, 0.82], 8))
    assert "`learning_rate`" in messages(history)
    assert messages(history, rows=ValidationRows(60, 0.4)) == ""
    assert messages(history_of(np.tile([0.798, 0.802], 8)), rows=ValidationRows(1e9, 0.4)) == ""


def test_the_noise_is_the_mean_swing_of_rows_drawn_anew_for_every_epoch() -> None:
    rng, n = np.random.default_rng(0), 400
    accuracy = rng.binomial(n, 0.8, size=200_000) / n
    assert np.isclose(swing(accuracy), NOISE * math.sqrt(0.8 * 0.2 / n), rtol=0.02)


@pytest.mark.parametrize("n", [50, 300, 5000])
def test_a_few_decisions_that_change_are_no_oscillation(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(50):
        sure = rng.random(n) < 0.8  # whether a row's usual decision is correct
        other = rng.random((20, n)) < 0.02  # rows decided otherwise in an epoch
        accuracy = (sure[None] ^ other).mean(axis=1)
        assert messages(history_of(accuracy), rows=ValidationRows(n, 0.4)) == ""


def test_the_advice_names_what_can_be_changed() -> None:
    history = history_of(np.tile([0.6, 0.8], 8))
    assert "`average_first" not in messages(history)
    for late in ({"average_first": False}, {"moving_average": 0.1}):
        assert "`moving_average=1` and `average_first=True`" in messages(history, **late)
    assert "`average`" in messages(history, average=None)
    assert "`average`" not in messages(history, average=3.0)
    assert messages(history, selection="random") == ""  # YOTO scores another weight every epoch


def test_most_runs_must_oscillate() -> None:
    calm, wild = history_of(np.full(12, 0.8)), history_of(np.tile([0.6, 0.8], 6))
    two_of_three = pd.concat({0: calm, 1: wild, 2: wild})
    assert "back and forth" in messages(two_of_three, [1, 1, 1])
    assert messages(pd.concat({0: calm, 1: calm, 2: wild}), [1, 1, 1]) == ""


def test_the_warm_start_and_short_trainings_are_not_judged() -> None:
    accuracy = np.r_[np.tile([0.6, 0.8], 4), np.full(9, 0.8)]
    warm = np.r_[np.ones(8), np.zeros(9)]
    assert messages(history_of(accuracy)) != ""
    assert messages(history_of(accuracy, warm=warm), 9) == ""
    assert messages(history_of([0.6, 0.8, 0.6, 0.8])) == ""


# ---- the auxiliary system and the dial ---------------------------------------------------------


@pytest.mark.parametrize(
    ("residuals", "median"),
    [
        ([np.nan, 0.4, 2.3, 0.6], None),  # the best epoch's batch was an unlucky one
        ([np.nan, 0.4, 1.2, 0.6], None),
        ([np.nan, 0.98, 1.0, 1.01], "1.00"),
        ([np.nan, 2.5, 1.8, 1.7], "1.80"),
    ],
)
def test_the_system_is_judged_by_all_epochs_after_the_warm_start(
    residuals: list[float], median: str | None
) -> None:
    history = history_of([0.8] * 4, warm=[1.0, 0.0, 0.0, 0.0], aux_residual=residuals, gap=0.2)
    found = findings(history, 3, {"weight": 0.9, "aux": "scaled"}, ROWS)
    assert len(found) == (median is not None)
    assert all(median in message for message in found if median)
    assert findings(history, 3, {"weight": 1.0, "aux": "scaled"}, ROWS) == []


def test_a_solved_system_isnt_advised_to_be_solved() -> None:
    history = history_of([0.8] * 3, warm=0.0, aux_residual=2.0, gap=0.2)
    assert "`aux_rate`" in messages(history, weight=0.9, aux="step")
    assert "`batch_size`" in messages(history, weight=0.9, aux="solve")
    assert "`aux_rate`" not in messages(history, weight=0.9, aux="solve")


def test_a_collapsed_gap_and_an_unfinished_warm_start_are_found() -> None:
    history = history_of([0.8] * 3, warm=[1.0, 0.0, 0.0], aux_residual=0.1, gap=[0.3, 0.2, 0.1])
    assert messages(history, 2, weight=0.9) == ""
    assert "`weight`" in messages(history, 3, weight=0.9)
    assert "`warm_epochs`" in messages(history, 1, weight=0.9)


def test_a_small_gap_that_changes_by_no_more_than_noise_has_not_collapsed() -> None:
    rng, n = np.random.default_rng(0), 400
    for rows in (n, 100 * n):
        gaps = np.abs(rng.binomial(rows // 2, 0.5, (200, 2, 2)) / (rows // 2) @ [1.0, -1.0])
        alarms = 0
        for gap in gaps:  # the groups don't differ
            history = history_of([0.8] * 2, warm=[1.0, 0.0], aux_residual=0.1, gap=gap)
            alarms += messages(history, 2, ValidationRows(rows, 0.4), weight=0.9) != ""
        assert alarms < 0.2 * len(gaps)
        halved = history_of([0.8] * 2, warm=[1.0, 0.0], aux_residual=0.1, gap=[0.3, 0.1])
        assert "`weight`" in messages(halved, 2, ValidationRows(rows, 0.4), weight=0.9)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_the_same_decision_for_everybody_is_found(rate: float) -> None:
    history = history_of([0.6] * 9, selection_rate=[0.4, rate, *[0.3] * 7])
    assert messages(history[:4], 2) == ""  # too early to say
    assert "same decision" in messages(history, 2)
    assert messages(history, 3) == ""
    assert messages(history, 2, ValidationRows(2000, 0.05)) == ""  # it may be the best decision
    assert messages(history, 2, ValidationRows(60, 0.4)) == ""
    one, all_ = pd.concat({0: history, 1: history}), [2, 3]
    assert messages(one, all_) == ""  # a strict setting may well be constant
    assert "same decision" in messages(one, [2, 2])


# ---- trainings ---------------------------------------------------------------------------------


def trained(model: Any, data: Any = DATA) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data.X, data.y, sensitive_features=data.groups)
    return model, [str(w.message) for w in caught if issubclass(w.category, TrainingWarning)]


SMALL = Network(members=1, epochs=5, hidden=(8,), head=4, batch_size=64)
METHODS = {
    "GFB": GFB(network=SMALL, random_state=0, warm_epochs=1, min_count=5),
    "FairBayes": FairBayes(SMALL, random_state=0, min_count=5),
    "EPO": EPO(n_settings=3, network=SMALL, random_state=0, min_count=5),
    "FairBiNN": FairBiNN(n_settings=3, network=SMALL, widen=0, random_state=0, min_count=5),
    "YOTO": YOTO(network=SMALL, random_state=0, min_count=5, targets=0),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_records_accuracy_and_draws_its_learning_curves(name: str) -> None:
    model, _ = trained(METHODS[name])
    history = model.history_
    assert 0.0 <= oscillation(history) < 0.5
    assert history["accuracy"].between(0.0, 1.0).all()
    figure = model.plot_history(title=name)
    titles = {ax.get_title() for ax in figure.axes if ax.get_visible()}
    assert {"training loss", "validation accuracy", "gap on validation rows"} <= titles
    assert ("auxiliary residual (1: no effect)" in titles) == (name == "GFB")
    (shown,) = (ax for ax in figure.axes if ax.get_title() == "validation accuracy")
    best = model.best_epoch_ if isinstance(model.best_epoch_, list) else [model.best_epoch_]
    runs = [history["accuracy"]]
    if len(best) > 1:
        runs = [history["accuracy"].loc[setting] for setting in model.settings_]
    drawn = [line.get_xydata() for line in shown.lines]
    for run, epoch in zip(runs, best, strict=True):
        curve = np.column_stack((run.index, run))
        assert any(np.array_equal(curve, data) for data in drawn)
        assert any(np.array_equal([[epoch, run.loc[epoch]]], data) for data in drawn)
    plt.close(figure)


@pytest.mark.parametrize("kind", [GFB, FairBayes])
def test_the_defaults_raise_no_alarm(kind: Any) -> None:
    data, network = make_gaussian(3000, random_state=0), Network(members=1)
    model = GFB(network=network) if kind is GFB else FairBayes(network)
    assert trained(model.set_params(random_state=0), data)[1] == []


def test_a_rate_that_is_far_too_high_is_found() -> None:
    data = make_gaussian(6000, random_state=0)
    network = Network(members=1, learning_rate=1.0, epochs=20, patience=None, average=None)
    _, found = trained(FairBayes(network, random_state=0, recalibrate="group"), data)
    assert found
    assert all("`learning_rate`" in message for message in found)


def test_curves_need_a_network() -> None:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        model = FairBayes(LogisticRegression(), random_state=0, min_count=5)
        model.fit(DATA.X, DATA.y, sensitive_features=DATA.groups)
    with pytest.raises(InvalidInputError, match="`estimator`"):
        model.plot_history()
