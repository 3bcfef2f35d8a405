from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from fairdial import (
    GFB,
    YOTO,
    CannotCertifyError,
    DivergedError,
    FairBayes,
    FairdialWarning,
    InvalidInputError,
    Network,
    load,
)
from fairdial.datasets import GaussianLaw, load_compas, make_gaussian
from fairdial.estimators.network import part_seed
from fairdial.metrics import gap

LAW = GaussianLaw()
DATA = make_gaussian(1500, random_state=0)
CRITERIA = ["demographic_parity", "equal_opportunity", "predictive_equality"]


def quick(**settings: Any) -> Network:
    base = {"members": 1, "shared": False, "hidden": (8,), "head": 4, "epochs": 4}
    return Network(
        **(base | {"patience": None, "learning_rate": 0.02, "batch_size": 64} | settings)
    )


CHECKED = quick(hidden=(32,), epochs=20, learning_rate=0.05, average=None)


def fitted(model: Any, X: Any = DATA.X, y: Any = DATA.y, groups: Any = DATA.groups) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)  # a few epochs make no good scores
        return model.fit(X, y, sensitive_features=groups)


def plain(random_state: int | None = 0, **settings: Any) -> FairBayes:
    return FairBayes(quick(**settings), random_state=random_state, min_count=5)


def logits(model: Any, X: Any, groups: Any) -> np.ndarray:
    return model.decision_function(X, sensitive_features=groups, tolerance=1.0)


# rows are held out one by one: copies of a row may be separated, a row with a weight is not
HELD_OUT = dict.fromkeys(
    [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")],
    "rows are held out one by one",
)


@parametrize_with_checks(
    [
        FairBayes(CHECKED, random_state=0, min_count=1),
        FairBayes(clone(CHECKED).set_params(encoder=None), random_state=0, min_count=1),
    ],
    expected_failed_checks=lambda _: HELD_OUT,
)
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


# ---- rows of every kind ------------------------------------------------------------------------


class Pairs(torch.utils.data.Dataset):
    """Features and labels, as torch's datasets have them."""

    def __init__(self, X: Any, y: Any) -> None:
        self.X, self.y = torch.tensor(np.asarray(X).tolist()), list(y)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.X[i], self.y[i]


def test_numbers_get_the_same_scores_in_any_container() -> None:
    X = DATA.X.to_numpy()
    kinds: list[Any] = [
        DATA.X,
        X,
        torch.tensor(X.tolist()),
        Pairs(X, DATA.y),
        X.astype(np.float32).tolist(),
    ]
    scores = [logits(fitted(plain(encoder=None), rows), rows, DATA.groups) for rows in kinds]
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], rtol=1e-9, atol=1e-9)


def test_parts_of_a_torch_dataset_are_rows_too() -> None:
    rows = Pairs(DATA.X, DATA.y)
    model = fitted(plain(), rows)
    some = [5, 1, 700]
    part = torch.utils.data.Subset(rows, some)
    everything = logits(model, rows, DATA.groups)
    np.testing.assert_allclose(logits(model, part, DATA.groups[some]), everything[some], rtol=1e-12)


def test_tables_with_text_and_missing_values_are_encoded() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": np.where(rng.random(len(DATA)) < 0.1, np.nan, DATA.X["x"]),
            "word": rng.choice(["a", "b", "c"], len(DATA)),
        }
    )
    model = fitted(plain(), frame)
    assert model.encoder_ is not None
    strange = frame.assign(word="never seen")
    assert len(logits(model, strange, DATA.groups)) == len(frame)


@pytest.mark.parametrize(
    "classes",
    [("no", "yes"), (False, True), (-1, 1), (1.0, 2.0), (10, 20)],
    ids=lambda c: type(c[0]).__name__ + str(c[0]),
)
def test_labels_may_be_of_any_type(classes: tuple[Any, Any]) -> None:
    labels = np.array(classes)[DATA.y]
    model = fitted(plain(), y=labels)
    asked: dict[str, Any] = {"sensitive_features": DATA.groups, "tolerance": 0.3}
    assert set(model.predict(DATA.X, **asked)) <= set(classes)
    assert model.score(DATA.X, labels, **asked) > 0.6


def test_labels_and_groups_may_be_tensors() -> None:
    codes = torch.tensor([int(g[-1]) for g in DATA.groups])
    model = fitted(plain(), torch.tensor(DATA.X.to_numpy().tolist()), torch.tensor(DATA.y), codes)
    assert len(logits(model, DATA.X.to_numpy(), codes)) == len(DATA)


def test_any_number_of_groups_is_taken() -> None:
    data = make_gaussian(
        1800,
        shares=(0.5, 0.3, 0.2),
        base_rates=(0.3, 0.5, 0.6),
        separations=(1.2, 1.2, 1.2),
        random_state=0,
    )
    for shared in (False, True):
        model = fitted(plain(shared=shared, members=2), data.X, data.y, data.groups)
        held = model.frontier_.at(0.1)
        assert held.gap <= 0.1
        assert len(held.thresholds) == 3


def test_without_groups_it_is_a_plain_classifier() -> None:
    model = fitted(plain(), groups=None)
    assert model.score(DATA.X, DATA.y) > 0.65


def test_a_users_trunk_may_be_a_module_or_a_function() -> None:
    pictures = torch.randn(len(DATA), 1, 4, 4, generator=torch.Generator().manual_seed(0))
    pictures += torch.tensor(DATA.X.to_numpy().tolist())[:, :, None, None]

    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten())

    module = make()
    for trunk in (module, make):
        model = fitted(plain(trunk=trunk, members=2, epochs=6), pictures)
        assert model.score(pictures, DATA.y, sensitive_features=DATA.groups, tolerance=1.0) > 0.65
    assert int(module[1].num_batches_tracked) == 0  # the module itself is left alone


# ---- decisions ---------------------------------------------------------------------------------


def test_a_module_of_torchs_is_to_be_wrapped() -> None:
    module = nn.Sequential(nn.Linear(2, 4))
    for estimator in (module, [LogisticRegression(), module]):
        with pytest.raises(InvalidInputError, match=r"Network\(trunk=...\)"):
            FairBayes(estimator).fit(np.eye(4), [0, 1, 0, 1], sensitive_features=[0, 0, 1, 1])


def test_a_row_alone_has_the_score_that_it_has_among_others() -> None:
    model = fitted(plain(members=3))
    together = logits(model, DATA.X, DATA.groups)
    for i in range(0, len(DATA), 101):
        alone = logits(model, DATA.X.iloc[[i]], DATA.groups[[i]])
        np.testing.assert_allclose(alone[0], together[i], rtol=1e-12, atol=1e-13)


def test_one_tolerance_a_row_is_row_by_row() -> None:
    model = fitted(plain(epochs=8))
    wishes = np.linspace(0.02, 0.4, len(DATA))
    at_once = model.predict(DATA.X, sensitive_features=DATA.groups, tolerance=wishes)
    for i in range(0, len(DATA), 97):
        row = model.predict(
            DATA.X.iloc[[i]], sensitive_features=DATA.groups[[i]], tolerance=wishes[i]
        )
        assert row[0] == at_once[i]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_on_the_gaussian_law_the_net_reaches_the_best_there_is(criterion: str) -> None:
    train, test = make_gaussian(24_000, random_state=1).split(test_size=0.5, random_state=0)
    network = Network(members=1, hidden=(16,), head=8, epochs=6, patience=None, learning_rate=0.01)
    model = FairBayes(network, criterion=criterion, random_state=0)
    fitted(model, train.X, train.y, train.groups)
    for tolerance in (0.0, 0.05, 0.15, 1.0):
        best = LAW.at(criterion, tolerance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)  # 0 may be out of reach by a row
            chosen = model.predict(test.X, sensitive_features=test.groups, tolerance=tolerance)
        assert (chosen == test.y).mean() == pytest.approx(best.accuracy, abs=0.015)
        found = gap(test.y, chosen, sensitive_features=test.groups, criterion=criterion)
        assert found <= abs(best.disparity) + 0.05


def test_a_confident_tolerance_is_stricter() -> None:
    data = make_gaussian(12_000, random_state=2)
    model = fitted(plain(epochs=3), data.X, data.y, data.groups)
    bold, careful = model.frontier_.at(0.15), model.frontier_.at(0.15, confidence=0.9)
    assert careful.gap < bold.gap
    decisions = [
        model.predict(data.X, sensitive_features=data.groups, tolerance=0.15, confidence=c)
        for c in (None, 0.9)
    ]
    assert (decisions[0] != decisions[1]).any()


def test_a_fitted_model_is_pickled_whole() -> None:
    model = fitted(plain(members=2))
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(logits(again, DATA.X, DATA.groups), logits(model, DATA.X, DATA.groups))
    assert clone(model).get_params()["estimator__hidden"] == (8,)
    assert not hasattr(clone(model), "frontier_")


def test_compas_is_learned() -> None:
    train, test = load_compas().split(random_state=0)
    network = Network(members=1, epochs=6, patience=None, learning_rate=0.003)
    model = fitted(FairBayes(network, random_state=0), train.X, train.y, train.groups)
    free = model.score(test.X, test.y, sensitive_features=test.groups, tolerance=1.0)
    assert free > 0.64


# ---- history -----------------------------------------------------------------------------------


def test_the_history_has_every_epoch() -> None:
    model = fitted(plain(epochs=3))
    history = model.history_
    assert history.index.tolist() == [1, 2, 3]
    columns = {"loss", "score", "hypervolume", "accuracy", "gap", "acc_dep", "interval_share"}
    assert columns | {"seconds", "fairest_0", "fairest_1", "fairest_gap"} <= set(history)
    assert history["score"].idxmax() == model.best_epoch_
    assert (history["seconds"].diff().dropna() > 0).all()
    assert np.isfinite(history.to_numpy(dtype=float)).all()


def test_a_progress_bar_is_drawn_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    fitted(plain(epochs=1))
    assert capsys.readouterr() == ("", "")
    fitted(plain(epochs=1, verbose=True))
    shown = capsys.readouterr()
    assert "training" in shown.out + shown.err


class Interrupts:
    """Is a user at the keyboard."""

    def on_epoch_end(self, epoch: int, record: Any, net: Any) -> None:  # noqa: ARG002
        if epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["plain", "gfb"])
def test_an_interrupted_fit_is_calibrated_with_what_it_has(method: str) -> None:
    network = quick(epochs=50, callbacks=[Interrupts()])
    model: Any = FairBayes(network, random_state=0, min_count=5)
    if method == "gfb":
        model = GFB(network=network, random_state=0, min_count=5)
    fitted(model)
    assert len(model.history_) == 2
    assert len(logits(model, DATA.X, DATA.groups)) == len(DATA)


class Refuses(Interrupts):
    """Wants nothing that was interrupted."""

    def on_interrupt(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("method", [FairBayes, GFB, YOTO])
def test_a_callback_may_refuse_what_was_interrupted(method: Any) -> None:
    network = quick(epochs=50, callbacks=[Refuses()])
    given = {"estimator": network} if method is FairBayes else {"network": network}
    model = method(**given, random_state=0, min_count=5)
    with pytest.raises(KeyboardInterrupt):
        fitted(model)
    assert not hasattr(model, "scorer_")


# ---- the same start for every method -----------------------------------------------------------


class Remembers(nn.Module):
    """Keeps what it is shown while training, and its first weights."""

    seen: list[list[float]]
    started: list[list[float]]

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 3)
        type(self).started.append(self.linear.weight.detach().flatten().tolist())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            type(self).seen.append(x.flatten().tolist())
        return self.linear(x)


def test_methods_share_initial_weights_and_batches() -> None:
    met = []
    for make in (
        lambda network: FairBayes(network, random_state=7, min_count=5),
        lambda network: GFB(network=network, weight=1.0, random_state=7, min_count=5),
        lambda network: GFB(network=network, aux="step", aux_rate=0.1, random_state=7, min_count=5),
    ):
        kind = type("Kind", (Remembers,), {"seen": [], "started": []})
        fitted(make(quick(trunk=kind, epochs=2, average=None, encoder=None)))
        met.append((kind.started, kind.seen))
    steps = 2 * int(np.ceil((DATA.groups == "group 0").sum() * 0.8 * 0.9 / 64))  # nets x batches
    for started, seen in met[1:]:
        assert started == met[0][0]
        assert seen[:steps] == met[0][1][:steps]
    assert len(met[0][1]) >= steps


def test_a_plain_weight_with_a_solved_system_is_the_plain_method() -> None:
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 128}
    one = fitted(plain(7, **settings))
    two = fitted(
        GFB(
            network=quick(**settings),
            weight=1.0,
            aux="solve",
            warm_epochs=0,
            random_state=7,
            min_count=5,
        )
    )
    np.testing.assert_allclose(
        logits(one, DATA.X, DATA.groups), logits(two, DATA.X, DATA.groups), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_weight_decay_means_the_same_to_every_method(decay: float) -> None:
    settings: dict[str, Any] = {"epochs": 3, "weight_decay": decay, "batch_size": 128}
    one = fitted(plain(7, **settings))
    two = fitted(GFB(network=quick(**settings), weight=1.0, random_state=7, min_count=5))
    assert two.history_["warm"].all()  # the warm start is plain training
    np.testing.assert_allclose(
        logits(one, DATA.X, DATA.groups), logits(two, DATA.X, DATA.groups), rtol=1e-2, atol=1e-2
    )


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden", ()),
        ("hidden", (8, 0)),
        ("hidden", (8, 2.5)),
        ("hidden", 8),
        ("head", -1),
        ("head", 1.5),
        ("members", 0),
        ("batch_size", 0),
        ("epochs", 0),
        ("patience", 0),
        ("score", "best"),
        ("epoch", "medium"),
        ("validation", 1.0),
        ("validation", -0.1),
        ("learning_rate", 0.0),
        ("learning_rate", -1.0),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("learning_rate", "fast"),
        ("gamma", -1.0),
        ("weight_decay", -1.0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("dropout", True),
        ("dropout", None),
        ("dropout", "lots"),
        ("dropout", float("nan")),
        ("average", -1.0),
        ("average", 0.0),
        ("average", "long"),
        ("trunk", "resnet"),
        ("callbacks", 3),
        ("device", "abacus"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        fitted(plain(**{name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden", (np.int64(8),)),
        ("learning_rate", np.float32(0.01)),
        ("gamma", np.int64(2)),
        ("epochs", np.int64(2)),
    ],
)
def test_numbers_of_numpy_are_numbers(name: str, value: Any) -> None:
    fitted(plain(**{name: value}))


@pytest.mark.parametrize("value", ["lots", 1.0, -1, True])
def test_other_dropouts_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="`dropout`"):
        Network(dropout=value).check()


def test_a_shared_net_has_no_trunk_of_your_own() -> None:
    with pytest.raises(InvalidInputError, match="`shared`"):
        fitted(plain(shared=True, trunk=nn.Linear(1, 3)))


def test_a_cross_fitted_network_scores_rows_by_nets_that_did_not_see_them() -> None:
    dial = fitted(FairBayes(quick(), cv=3, random_state=0))
    assert len(dial.estimator_) == 3
    assert dial.frontier_.counts.sum() == len(DATA)
    with pytest.raises(CannotCertifyError, match="cross"):
        dial.frontier_.at(0.1, confidence=0.95)
    alone = [net.logits(DATA.X, np.zeros(len(DATA), int)) for net in dial.estimator_]
    groups = np.full(len(DATA), dial.frontier_.groups[0], object)
    assert np.array_equal(dial.logits(DATA.X, sensitive_features=groups), np.mean(alone, axis=0))


class Kills:
    """Ends the process, as it were, after the third epoch: in the second network."""

    calls = 0

    def on_epoch_end(self, epoch: int, record: Any, net: Any) -> None:  # noqa: ARG002
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("killed")


@pytest.mark.parametrize("networks", [1, 2])
def test_a_cross_fitted_network_goes_on_where_it_was(networks: int, tmp_path: Path) -> None:
    def make(**settings: Any) -> Any:
        network = [quick(epochs=2, average=None, **settings) for _ in range(networks)]
        return FairBayes(network if networks > 1 else network[0], cv=3, random_state=0)

    asked = {"sensitive_features": DATA.groups}
    whole = fitted(make()).logits(DATA.X, **asked)
    kept = tmp_path / "kept"
    with pytest.raises(RuntimeError, match="killed"):
        fitted(make(checkpoint=kept, callbacks=[Kills()]))
    before = {path: path.read_bytes() for path in kept.rglob("checkpoint.bin")}
    assert before
    for _ in range(2):  # goes on; then finds all of them finished
        assert np.array_equal(fitted(make(checkpoint=kept)).logits(DATA.X, **asked), whole)
    files = {path.relative_to(kept).parent.as_posix() for path in kept.rglob("checkpoint.bin")}
    places = {".", "fold-1", "fold-2"}
    assert files == places | ({f"{place}/part-1".removeprefix("./") for place in places}
                              if networks > 1 else set())  # fmt: skip


def test_several_estimators_are_trained_as_each_alone_and_their_logits_averaged() -> None:
    both = fitted(FairBayes([LogisticRegression(), quick()], random_state=0))
    alone = [fitted(FairBayes(e, random_state=0)) for e in (LogisticRegression(), quick())]
    asked = {"sensitive_features": DATA.groups}
    each = [model.logits(DATA.X, **asked) for model in alone]
    assert np.array_equal(both.logits(DATA.X, **asked), np.mean(each, axis=0))
    assert np.array_equal(both.frontier_.counts, alone[0].frontier_.counts)
    assert isinstance(both.estimator_[0], LogisticRegression)


def test_bfloat16_is_for_a_trunk_of_your_own() -> None:
    with pytest.raises(InvalidInputError, match="`precision`"):
        fitted(plain(precision="bfloat16"))


@pytest.mark.parametrize("seen", ["trunk", "head", "none"])
def test_a_network_sees_the_group_where_it_may(seen: str) -> None:
    settings = {"shared": True, "group_input": seen, "members": 2, "encoder": None}
    model = fitted(plain(**settings))
    one, other = (model.scorer_.logits(DATA.X, np.full(len(DATA), a)) for a in (0, 1))
    assert np.array_equal(one, other) == (seen == "none")
    features = [
        model.net_.features_of(torch.tensor([[0.3]]), a).detach()[..., : model.net_.groups]
        for a in (0, 1)
    ]
    assert torch.equal(*features) == (seen != "trunk")
    again = fitted(GFB(network=quick(**settings), random_state=0, min_count=5))
    assert again.net_.trunk.marks == (0 if seen == "trunk" else 2)


def test_only_a_shared_network_has_a_place_for_the_group() -> None:
    with pytest.raises(InvalidInputError, match="`group_input`"):
        fitted(plain(shared=False, group_input="none"))


def test_validation_rows_can_be_named() -> None:
    mask = np.zeros(len(DATA), bool)
    mask[::7] = True
    model = fitted(FairBayes(quick(validation=mask), calibration=None, random_state=0))
    assert np.array_equal(model.validation_rows_, np.flatnonzero(mask))
    part = fitted(FairBayes(quick(validation=mask), random_state=0, min_count=5))
    assert set(part.validation_rows_.tolist()) < set(np.flatnonzero(mask).tolist())
    with pytest.raises(InvalidInputError, match="`validation`"):
        fitted(FairBayes(quick(validation=mask[:5]), random_state=0))


@pytest.mark.parametrize(
    "named",
    [
        lambda of_one: np.zeros_like(of_one),
        lambda of_one: np.ones_like(of_one),
        lambda of_one: of_one & (np.arange(len(of_one)) % 5 == 0),
        lambda of_one: ~of_one | (np.arange(len(of_one)) % 5 == 0),
    ],
)
@pytest.mark.parametrize("calibration", [None, 0.2])
def test_named_validation_rows_are_some_of_every_group_and_not_all(
    named: Any, calibration: float | None
) -> None:
    one, other = sorted(map(str, set(DATA.groups)))
    mask = named(np.asarray(DATA.groups == one))
    model = FairBayes(quick(validation=mask), calibration=calibration, random_state=0)
    with pytest.raises(InvalidInputError, match="`validation`") as caught:
        fitted(model)
    assert repr(other) in str(caught.value)
    assert (repr(one) in str(caught.value)) == (mask.all() or not mask.any())


def test_equal_networks_of_a_list_differ_and_the_first_is_the_one_alone(tmp_path: Path) -> None:
    network = quick(checkpoint=tmp_path / "kept")
    two = fitted(FairBayes([network, clone(network)], random_state=0, min_count=5))
    alone = fitted(plain())
    first, second = (part.logits(DATA.X, np.zeros(len(DATA), int)) for part in two.estimator_)
    assert np.array_equal(first, alone.scorer_.logits(DATA.X, np.zeros(len(DATA), int)))
    assert np.abs(first - second).max() > 0.01
    asked = {"sensitive_features": DATA.groups}
    again = [fitted(clone(two)), fitted(clone(two).set_params(estimator=[quick(), quick()]))]
    two.save(tmp_path / "model")
    for other in (*again, load(tmp_path / "model")):
        assert np.array_equal(two.logits(DATA.X, **asked), other.logits(DATA.X, **asked))


def test_seeds_of_parts_are_all_different() -> None:
    seeds = {part_seed(seed, part) for seed in range(40) for part in range(40)}
    assert len(seeds) == 1600
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert [part_seed(seed, 0) for seed in (0, 7)] == [0, 7]


def test_the_rows_of_early_stopping_are_kept() -> None:
    model = fitted(FairBayes(quick(validation=0.25), calibration=None, random_state=0))
    held = model.validation_rows_
    assert len(set(held.tolist())) == len(held)
    assert 0.24 < len(held) / len(DATA) < 0.26


# ---- failures leave nothing behind -------------------------------------------------------------


def test_divergence_names_the_rate_and_fits_nothing() -> None:
    model = plain(learning_rate=1e7)
    with pytest.raises(DivergedError, match="Lower `learning_rate`"):
        fitted(model)
    assert not hasattr(model, "frontier_")
    assert not hasattr(model, "net_")


def test_features_that_are_no_numbers_are_not_a_matter_of_rates() -> None:
    x = torch.tensor(DATA.X.to_numpy().tolist())
    x[3] = float("nan")
    with pytest.raises(InvalidInputError, match="`X`"):
        fitted(plain(), x)


@pytest.mark.parametrize("method", ["plain", "gfb"])
def test_a_failed_fit_leaves_the_last_one_as_it_was(method: str) -> None:
    model: Any = FairBayes(quick(), recalibrate="group", random_state=0, min_count=5)
    rate = "estimator__learning_rate"
    if method == "gfb":
        model = GFB(network=quick(), recalibrate="group", random_state=0, min_count=5)
        rate = "network__learning_rate"
    fitted(model)
    before = model.decision_function(DATA.X, sensitive_features=DATA.groups, tolerance=0.1)
    model.set_params(**{rate: 1e7})
    with pytest.raises(DivergedError):
        fitted(model, y=np.array(["no", "yes"])[DATA.y])
    after = model.decision_function(DATA.X, sensitive_features=DATA.groups, tolerance=0.1)
    assert np.array_equal(before, after)
    assert model.classes_.tolist() == [0, 1]


def test_a_group_too_small_to_calibrate_leaves_the_last_fit_as_it_was() -> None:
    model = fitted(plain())
    before = logits(model, DATA.X, DATA.groups)
    tiny = np.where(np.arange(len(DATA)) < 12, "tiny", DATA.groups)
    with pytest.raises(InvalidInputError):
        fitted(model.set_params(min_count=30), groups=tiny)
    assert np.array_equal(logits(model, DATA.X, DATA.groups), before)


BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "{missing}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from fairdial import GFB, FairBayes, MissingExtraError, Network
from fairdial.datasets import make_gaussian
data = make_gaussian(400, random_state=0)
network = Network(epochs=1, members=1, checkpoint={checkpoint!r})
for model in (GFB(network=network), FairBayes(network)):
    try:
        model.fit(data.X, data.y, sensitive_features=data.groups)
    except MissingExtraError as error:
        assert ".[torch]" in str(error), error
    else:
        raise SystemExit("fitted without it")
"""


@pytest.mark.parametrize("missing", ["torch"])
def test_a_missing_package_is_named_with_its_remedy(missing: str, tmp_path: Any) -> None:
    code = BLOCKED.format(missing=missing, checkpoint=str(tmp_path / "run"))
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-500:]
