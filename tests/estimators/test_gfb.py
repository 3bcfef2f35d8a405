from __future__ import annotations

import copy
import pickle
import re
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairdial import (
    GFB,
    CheckpointError,
    DivergedError,
    FairBayes,
    FairdialWarning,
    InvalidInputError,
    Network,
    TrainingWarning,
    load,
)
from fairdial.datasets import make_gaussian

DATA = make_gaussian(1500, random_state=0)
CRITERIA = ["demographic_parity", "equal_opportunity", "predictive_equality"]


def quick(**settings: Any) -> Network:
    base = {"members": 1, "shared": False, "hidden": (8,), "head": 4, "epochs": 4}
    return Network(
        **(base | {"patience": None, "learning_rate": 0.02, "batch_size": 64} | settings)
    )


CHECKED = quick(epochs=20, learning_rate=0.05, average=None)


def gfb(network: Network | None = None, **settings: Any) -> GFB:
    base: dict[str, Any] = {"random_state": 0, "min_count": 5, "warm_epochs": 0, "aux": "solve"}
    return GFB(network=quick() if network is None else network, **(base | settings))


def fitted(model: Any, X: Any = DATA.X, y: Any = DATA.y, groups: Any = DATA.groups) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return model.fit(X, y, sensitive_features=groups)


def messages_of(model: GFB, data: Any = DATA) -> list[str]:
    """What the fit warns of in the method's own workings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data.X, data.y, sensitive_features=data.groups)
    return [str(w.message) for w in caught if issubclass(w.category, TrainingWarning)]


# rows are held out one by one: copies of a row may be separated, a row with a weight is not
HELD_OUT = dict.fromkeys(
    [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")],
    "rows are held out one by one",
)


@parametrize_with_checks(
    [GFB(network=CHECKED, random_state=0, min_count=1)],
    expected_failed_checks=lambda _: HELD_OUT,
)
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


# ---- training ----------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("aux", ["step", "scaled", "solve"])
@pytest.mark.parametrize("root", ["smooth", "hard"])
def test_every_setting_trains_a_dial(criterion: str, aux: str, root: str) -> None:
    model = fitted(
        gfb(criterion=criterion, aux=aux, root=root, aux_rate=0.1, warm_epochs=1),
    )
    assert model.frontier_.at(0.1).gap <= 0.1
    assert model.frontier_.at(1.0).accuracy > 0.6
    assert np.isfinite(model.history_.drop(columns="aux_residual").to_numpy(dtype=float)).all()
    assert np.isfinite(model.history_["aux_residual"][model.history_["warm"] == 0]).all()


OPTIONS: list[dict[str, Any]] = [
    {"outer": "sgd", "inner": "sgd", "aux": "step", "head_rate": 0.1},
    {"aux": "adam", "aux_rate": 0.01, "moving_average": 0.3, "bias_correction": True},
    {"schedules": {"outer": "cosine", "inner": "inverse_sqrt", "average": "inverse"}},
    {"schedules": {"outer": lambda k: 0.99**k}, "clip": 0.1, "aux": "scaled"},
    {"order": "sequential", "average_first": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options))
@pytest.mark.parametrize("own", [False, True], ids=["layers", "own trunk"])
def test_every_option_trains_a_dial(options: dict[str, Any], own: bool) -> None:
    trunk = {"trunk": torch.nn.Linear(1, 6), "encoder": None} if own else {"members": 2}
    model = fitted(gfb(quick(batch_size=16, **trunk), **options))
    plain = fitted(gfb(quick(batch_size=16, **trunk)))
    assert model.frontier_.at(1.0).accuracy > 0.6
    assert not np.array_equal(model.history_["loss"], plain.history_["loss"])  # it has an effect


def test_the_cosine_ends_with_the_last_epoch() -> None:
    seen: list[float] = []

    class Watch:
        def on_epoch_end(self, epoch: int, record: Any, net: Any) -> None:  # noqa: ARG002
            seen.append(float(sum(p.abs().sum() for p in net.trunk.parameters())))

    network = quick(epochs=30, average=None, callbacks=[Watch()])
    fitted(gfb(network, schedules={"outer": "cosine"}))
    moves = np.abs(np.diff(seen))
    assert moves[-1] < 0.05 * moves[:5].mean()
    assert moves[14] > moves[-1]


class Decay:
    """A schedule whose text holds its address."""

    def __init__(self, base: float) -> None:
        self.base = base

    def __call__(self, step: int) -> float:
        return self.base**step


@pytest.mark.parametrize(
    "make", [Decay, lambda base: partial(pow, base), lambda base: lambda step: base**step]
)
def test_functions_are_known_by_their_values(tmp_path: Any, make: Any) -> None:
    network = quick(epochs=2, checkpoint=tmp_path)
    fitted(gfb(network, schedules={"outer": make(0.99)}))
    fitted(gfb(network, schedules={"outer": make(0.99)}))
    with pytest.raises(CheckpointError, match="`checkpoint`"):
        fitted(gfb(network, schedules={"outer": make(0.98)}))


def test_options_resume(tmp_path: Any) -> None:
    options = {
        "aux": "adam",
        "inner": "sgd",
        "moving_average": 0.3,
        "bias_correction": True,
        "average_first": False,
        "schedules": {"outer": lambda k: 0.99**k, "aux": "inverse_sqrt", "average": "inverse"},
        "clip": 0.05,
        "order": "sequential",
    }

    class Quits:
        def on_epoch_end(self, epoch: int, record: Any, net: Any) -> None:  # noqa: ARG002
            if epoch == 2:
                raise RuntimeError

    network = {"members": 2, "epochs": 4}
    whole = fitted(gfb(quick(**network), **options))
    with pytest.raises(RuntimeError):
        fitted(gfb(quick(**network, checkpoint=tmp_path, callbacks=[Quits()]), **options))
    options["schedules"]["outer"] = copy.copy(options["schedules"]["outer"])
    again = fitted(gfb(quick(**network, checkpoint=tmp_path), **options))
    for name, value in whole.net_.state_dict().items():
        assert torch.equal(value, again.net_.state_dict()[name])


def test_schedules_are_saved_by_name_only(tmp_path: Any) -> None:
    model = fitted(gfb(quick(epochs=1), schedules={"outer": "cosine"}))
    model.save(tmp_path / "named")
    assert load(tmp_path / "named").schedules == {"outer": "cosine"}
    model.schedules = {"outer": lambda k: 1.0 / (k + 1)}
    with pytest.raises(InvalidInputError, match="`schedules`"):
        model.save(tmp_path / "function")
    assert not (tmp_path / "function").exists()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [0.001, 0.01])
def test_the_scaled_steps_stay_bounded_without_a_warm_start(seed: int, rate: float) -> None:
    data = make_gaussian(1000, random_state=seed)
    network = Network(members=1, learning_rate=rate, epochs=10, patience=None, batch_size=64)
    model = GFB(network=network, warm_epochs=0, random_state=seed, min_count=5)
    fitted(model, data.X, data.y, data.groups)
    assert model.history_["aux_residual"].max() < 10.0


@pytest.mark.parametrize("settings", [{"shared": True}, {"members": 3}, {"head": 0}, {"gamma": 2}])
def test_every_net_trains(settings: dict[str, Any]) -> None:
    model = fitted(gfb(quick(**settings), random_state=1))
    assert model.frontier_.at(1.0).accuracy > 0.65


def test_a_frozen_trunk_leaves_the_head_to_learn() -> None:
    trunk = torch.nn.Linear(1, 6)
    trunk.requires_grad_(False)
    for average in (1.0, 0.5):
        model = fitted(gfb(quick(trunk=trunk, encoder=None), moving_average=average))
        for net in model.net_.trunk.nets:
            torch.testing.assert_close(net.weight, trunk.weight)


def test_without_groups_it_is_a_plain_classifier() -> None:
    model = fitted(gfb(), groups=None)
    assert model.score(DATA.X, DATA.y) > 0.65


LARGER = make_gaussian(6000, random_state=0)
THREE = make_gaussian(6000, shares=(0.5, 0.3, 0.2), base_rates=(0.3, 0.5, 0.6),
                      separations=(1.2, 1.5, 1.3), random_state=0)  # fmt: skip


@pytest.mark.parametrize(
    ("criterion", "data"),
    [("equalized_odds", LARGER), *((name, THREE) for name in [*CRITERIA, "equalized_odds"])],
)
def test_any_number_of_groups_and_equalized_odds_train_a_dial(criterion: str, data: Any) -> None:
    settings = {"network": Network(members=1, epochs=15), "random_state": 0}
    model = fitted(GFB(criterion=criterion, **settings), data.X, data.y, data.groups)
    for tolerance in (0.05, 0.1):
        assert max(model.frontier_.at(tolerance).gaps.values()) <= tolerance
    history = model.history_
    assert (history["distance"] > 0).all()
    assert history["aux_residual"].median() < 0.95
    assert np.isfinite(history.drop(columns="aux_residual").to_numpy(dtype=float)).all()


def test_a_group_whose_batches_often_lack_a_label_trains_a_dial() -> None:
    y = DATA.y.copy()
    groups = np.arange(len(DATA)) % 3
    y[(groups == 2) & (np.arange(len(y)) % 60 != 2)] = 0
    network = quick(batch_size=16)
    for criterion in ("equal_opportunity", "equalized_odds"):
        model = fitted(gfb(network, criterion=criterion, min_count=1), y=y, groups=groups)
        assert np.isfinite(model.logits(DATA.X, sensitive_features=groups)).all()


@pytest.mark.parametrize(
    ("criterion", "data"), [("demographic_parity", THREE), ("equalized_odds", DATA)]
)
def test_the_hard_root_is_for_two_groups_and_one_rate(criterion: str, data: Any) -> None:
    with pytest.raises(InvalidInputError, match="`root`"):
        fitted(gfb(criterion=criterion, root="hard"), data.X, data.y, data.groups)


def test_the_history_describes_the_workings() -> None:
    model = fitted(gfb(quick(epochs=4, batch_size=16), warm_epochs=2))
    history = model.history_
    assert {"loss", "distance", "warm", "aux_residual", "score", "acc_dep"} <= set(history)
    warm = history["warm"].to_numpy()
    assert (np.diff(warm) <= 0).all()
    assert warm[0] == 1
    assert warm[-1] == 0
    assert np.array_equal(history["aux_residual"].isna(), warm == 1)  # nothing is solved yet


def test_a_warm_start_goes_on_from_the_last_weights() -> None:
    once = fitted(gfb(quick(epochs=1, learning_rate=1e-9, average=None), warm_start=True))
    trained = fitted(gfb(quick(epochs=8, average=None)))
    trained.set_params(warm_start=True, network__epochs=1, network__learning_rate=1e-9)
    before = copy.deepcopy(trained.net_.state_dict())
    fitted(trained)
    for name, value in trained.net_.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(
        next(once.net_.parameters()), next(trained.net_.parameters()), atol=1e-3
    )


def test_a_warm_start_from_another_net_says_so() -> None:
    model = fitted(gfb(warm_start=True))
    with pytest.raises(InvalidInputError, match="warm_start"):
        fitted(model.set_params(network__hidden=(5,)))
    other = fitted(gfb(warm_start=True))
    with pytest.raises(InvalidInputError, match=r"(warm_start|sensitive_features)"):
        fitted(other, groups=np.where(DATA.groups == "group 0", "zebra", "ape"))


def test_settings_are_tuned_as_scikit_learn_does() -> None:
    model = gfb(quick(epochs=2), sensitive_column="group")
    frame = DATA.X.assign(group=DATA.groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = GridSearchCV(
            model, {"weight": [0.9, 1.0], "network__gamma": [0.0]}, cv=2, error_score="raise"
        ).fit(frame, DATA.y)
    assert search.best_score_ > 0.5


# ---- warnings ----------------------------------------------------------------------------------


def test_an_inert_system_draws_a_warning() -> None:
    network = Network(members=1, epochs=4, patience=None)
    model = GFB(network=network, aux="step", aux_rate=1e-3, warm_epochs=0, random_state=0)
    assert any(
        "no better" in message
        for message in messages_of(model, make_gaussian(4000, random_state=0))
    )


def test_a_plain_weight_has_no_system_to_tell_of() -> None:
    assert messages_of(gfb(weight=1.0, aux="step", aux_rate=1e-3)) == []


@pytest.mark.parametrize("head", [0, 8])
def test_a_solved_system_is_not_called_inert(head: int) -> None:
    data = make_gaussian(4000, random_state=0)
    network = quick(head=head, epochs=6, hidden=(16,), batch_size=256)
    messages = messages_of(gfb(network, aux="solve", warm_epochs=1), data)
    assert not any("no better" in message for message in messages)


@pytest.mark.parametrize("seed", range(3))
def test_a_system_that_runs_away_is_not_called_inert(seed: int) -> None:
    data = make_gaussian(1000, random_state=seed)
    network = Network(members=1, learning_rate=0.01, epochs=12, patience=None, batch_size=64)
    model = GFB(network=network, warm_epochs=0, random_state=seed, min_count=5)
    try:
        messages = messages_of(model, data)
    except DivergedError:
        return
    residual = float(model.history_["aux_residual"].median())
    assert residual < 1.5 or not any("no better" in message for message in messages)


def test_a_collapsed_gap_draws_a_warning() -> None:
    network = Network(
        members=1,
        shared=False,
        hidden=(16,),
        head=8,
        epochs=2,
        patience=None,
        learning_rate=0.01,
        average=None,
        batch_size=32,
    )
    model = GFB(network=network, weight=0.5, aux="step", aux_rate=1e-3, random_state=0)
    assert any("collapsed" in message for message in messages_of(model, make_gaussian(4000)))


def test_the_epoch_that_is_kept_was_trained_by_the_method() -> None:
    train, _ = make_gaussian(4000, random_state=0).split(random_state=0)
    model = GFB(network=Network(members=1, learning_rate=0.01), random_state=0)
    fitted(model, train.X, train.y, train.groups)
    assert model.history_["warm"][model.best_epoch_] == 0


def test_a_net_that_never_left_the_warm_start_draws_a_warning() -> None:
    model = GFB(network=quick(epochs=2), random_state=0, min_count=5)
    messages = messages_of(model)
    assert model.history_["warm"].all()
    assert messages


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", 0.0),
        ("weight", 1.1),
        ("weight", "heavy"),
        ("weight", float("nan")),
        ("aux", "guess"),
        ("aux_rate", 0.0),
        ("aux_rate", -1.0),
        ("moving_average", 0.0),
        ("moving_average", 1.5),
        ("root", "square"),
        ("outer", "momentum"),
        ("inner", None),
        ("order", "random"),
        ("clip", 0.0),
        ("clip", "short"),
        ("average_first", "yes"),
        ("bias_correction", "yes"),
        ("schedules", {"outer": "linear"}),
        ("schedules", {"trunk": "cosine"}),
        ("schedules", {"aux": "inverse"}),  # with aux="solve"
        ("schedules", "cosine"),
        ("network", "big"),
        ("network", Network),
        ("criterion", "fair"),
        ("calibration", 1.0),
        ("head_rate", -1.0),
        ("head_rate", 0.0),
        ("head_rate", "fast"),
        ("warm_epochs", -1),
        ("warm_epochs", 0.5),
        ("tolerance", 1.5),
    ],
)
def test_a_bad_setting_is_named(name: str, value: Any) -> None:
    def fit_and_predict() -> None:  # a tolerance is read when predicting
        fitted(gfb(**{name: value})).predict(DATA.X, sensitive_features=DATA.groups)

    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        fit_and_predict()


def parameters_of(model: GFB) -> set[str]:
    return {name.rpartition("__")[2] for name in model.get_params()}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"network": quick(learning_rate=1e7)}, {"learning_rate", "head_rate"}),
        ({"network": quick(learning_rate=1e20)}, {"learning_rate", "head_rate"}),
        ({"head_rate": 1e8}, {"head_rate"}),
        ({"aux": "step", "aux_rate": 1e6}, {"aux_rate"}),
    ],
)
def test_divergence_names_a_rate_that_can_be_lowered(
    settings: dict[str, Any], expected: set[str]
) -> None:
    model = gfb(**settings)
    with pytest.raises(DivergedError) as failed:
        fitted(model)
    named = set(re.findall(r"`(\w+)`", str(failed.value)))
    assert named <= parameters_of(model)
    assert named & expected
    assert not hasattr(model, "frontier_")
    assert not hasattr(model, "net_")


# ---- values ------------------------------------------------------------------------------------


def test_a_fitted_model_is_pickled_and_cloned() -> None:
    model = fitted(gfb(quick(members=2)))
    again = pickle.loads(pickle.dumps(model))
    for tolerance in (0.05, 1.0):
        asked = {"sensitive_features": DATA.groups, "tolerance": tolerance}
        assert np.array_equal(model.predict(DATA.X, **asked), again.predict(DATA.X, **asked))
    fresh = clone(model)
    assert not hasattr(fresh, "frontier_")
    assert fresh.get_params()["network__members"] == 2


def test_it_is_calibrated_anew_without_training() -> None:
    model = fitted(gfb())
    before = pickle.dumps(model.net_.state_dict())
    fresh = make_gaussian(900, random_state=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        model.calibrate(fresh.X, fresh.y, sensitive_features=fresh.groups)
    assert model.frontier_.counts.sum() == 900
    assert pickle.dumps(model.net_.state_dict()) == before


def test_logits_are_drawn_with_their_fairest_thresholds() -> None:
    model = fitted(gfb())
    fig, ax = plt.subplots()
    same = model.plot_logits(DATA.X, sensitive_features=DATA.groups, ax=ax, label="a title")
    assert same is ax
    assert ax.get_title() == "a title"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["group 0", "group 1"]
    places = {round(float(line.get_xdata()[0]), 9) for line in ax.lines}
    frontier = model.frontier_
    fairest = frontier.points.read(np.array([int(np.argmin(frontier.gap))]))[0][0]
    assert {round(float(t), 9) for t in fairest} <= places
    plt.close(fig)
    own = model.plot_logits(DATA.X, sensitive_features=DATA.groups)
    assert own is not ax
    plt.close(own.figure)


def test_gfb_and_fairbayes_speak_alike() -> None:
    one, two = fitted(gfb()), fitted(FairBayes(quick(), random_state=0, min_count=5))
    assert one.frontier_.counts.tolist() == two.frontier_.counts.tolist()
    assert one.frontier_.groups == two.frontier_.groups
    assert set(two.history_) <= set(one.history_)


@pytest.mark.parametrize("estimator", [FairBayes, GFB])
def test_a_few_hundred_rows_are_enough_to_learn_from(estimator: Any) -> None:
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(800, 8)), rng.integers(0, 2, 800)
    y = (X @ np.arange(1, 9) / 5 + 0.5 * groups + 0.5 * rng.normal(size=800) > 0).astype(int)
    model = estimator(random_state=0, min_count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        model.fit(X[:400], y[:400], sensitive_features=groups[:400])
    assert model.score(X[400:], y[400:], sensitive_features=groups[400:], tolerance=1.0) > 0.85


def test_going_on_needs_a_seed_that_holds_the_same_rows_out(tmp_path: Any) -> None:
    model = fitted(gfb(warm_start=True, random_state=None))
    with pytest.raises(InvalidInputError, match="`random_state`"):
        fitted(model)
    with pytest.raises(InvalidInputError, match="`random_state`"):
        fitted(gfb(network=quick(checkpoint=tmp_path), random_state=None))


def test_a_device_that_is_not_there_and_a_bare_function_as_callback_are_refused() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(InvalidInputError, match="`device`"):
            fitted(gfb(network=quick(device="cuda")))
    with pytest.raises(InvalidInputError, match="`callbacks`"):
        fitted(gfb(network=quick(callbacks=[print])))
