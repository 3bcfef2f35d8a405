from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from fairdial import GFB, CheckpointError, FairBayes, FairdialWarning, Network
from fairdial.core.criteria import DEMOGRAPHIC_PARITY
from fairdial.core.rates import SELECTION
from fairdial.datasets import make_gaussian
from fairdial.nn.build import build_net
from fairdial.nn.checkpoint import FILE
from fairdial.nn.data import InputEncoder, PairedBatches, TensorInputs, TrainingData
from fairdial.nn.fit import Method, fit_network, history_frame
from fairdial.nn.loop import Averager, Progress, train
from fairdial.nn.masoba import Objective
from fairdial.nn.nets import DialNet, Head, MLPTrunk, take_runs
from fairdial.nn.partition import fairness_names
from fairdial.nn.scorer import score_runs
from fairdial.nn.selection import score_weighted
from fairdial.nn.steps import BilevelStep, PlainStep
from fairdial.nn.tradeoff import EPOStep, FairBiNNStep, Tradeoff, YOTOStep

DATA = make_gaussian(900, random_state=0)
SHARES = np.array([0.6, 0.4])


class KilledError(Exception):
    """Ends a run from inside."""


def parts(
    *, plain: bool = False, dropout: float = 0.0, dtype: torch.dtype = torch.float32
) -> tuple[Any, PairedBatches]:
    """A step and its batches, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    trunk = MLPTrunk(2, (3, 8), generator, dropout=dropout)
    net = DialNet(trunk, Head(2, 8, 4, generator), members=1, groups=2).to(dtype)
    rng = np.random.default_rng(0)
    y = rng.random(120) < np.repeat([0.3, 0.6], 60)
    x = torch.as_tensor(rng.standard_normal((120, 3)) + y[:, None]).to(dtype)
    batches = PairedBatches(
        TensorInputs(x),
        torch.as_tensor(y).to(dtype),
        [np.arange(60), np.arange(60, 120)],
        size=16,
        seed=1,
    )
    if plain:
        return PlainStep(net, Objective(SELECTION, SHARES, weight=1.0), rate=0.01), batches
    step = BilevelStep(
        net,
        Objective(SELECTION, SHARES, weight=0.7),
        outer_rate=0.01,
        inner_rate=0.01,
        aux="step",
        aux_rate=0.1,
        theta=0.5,
        warm_steps=2,
    )
    return step, batches


def no_score(_: DialNet) -> dict[str, Any]:
    return {}


def same(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(p, q) for p, q in pairs)


class Stops:
    """Ends the training after an epoch, one way or another."""

    def __init__(self, after: int, how: Any = True) -> None:
        self.after, self.how = after, how
        self.seen: list[int] = []

    def on_epoch_end(self, epoch: int, record: Any, net: nn.Module) -> bool | None:  # noqa: ARG002
        self.seen.append(epoch)
        if epoch < self.after:
            return None
        if isinstance(self.how, bool):
            return self.how
        raise self.how


# ---- best weights, patience, callbacks ---------------------------------------------------------


def test_the_best_epochs_weights_are_kept() -> None:
    scores = iter([0.1, 0.5, 0.3, 0.4])
    step, batches = parts()
    seen: list[dict[str, Tensor]] = []

    def score(net: DialNet) -> dict[str, Any]:
        seen.append(copy.deepcopy(net.state_dict()))
        return {"score": next(scores)}

    state = train(step, batches, score, epochs=4)
    assert state.best_epoch == [2]
    for name, value in step.net.state_dict().items():
        assert torch.equal(value, seen[1][name])


def test_training_stops_after_patience_epochs_without_a_better_score() -> None:
    scores = iter([0.1, 0.5, 0.5, 0.4, 0.3, 0.2])
    step, batches = parts()
    state = train(step, batches, lambda _: {"score": next(scores)}, epochs=6, patience=3)
    assert state.epoch == 5
    assert state.best_epoch == [2]


def test_a_callback_that_returns_true_ends_the_training() -> None:
    stop = Stops(2)
    step, batches = parts()
    state = train(step, batches, no_score, epochs=9, callbacks=[stop])
    assert state.epoch == 2
    assert stop.seen == [1, 2]


def test_an_interrupt_keeps_the_best_weights() -> None:
    scores = iter([0.5, 0.1, 0.2])
    step, batches = parts()
    state = train(
        step,
        batches,
        lambda _: {"score": next(scores)},
        epochs=9,
        callbacks=[Stops(3, KeyboardInterrupt())],
    )
    short, its_batches = parts()
    train(short, its_batches, no_score, epochs=1)
    assert state.best_epoch == [1]
    assert same(step.net, short.net)


def test_an_interrupt_before_anything_is_learned_is_passed_on() -> None:
    def score(_: DialNet) -> dict[str, Any]:
        raise KeyboardInterrupt

    step, batches = parts()
    with pytest.raises(KeyboardInterrupt):
        train(step, batches, score, epochs=2)


def test_another_error_of_a_callback_is_passed_on() -> None:
    step, batches = parts()
    with pytest.raises(KilledError):
        train(step, batches, no_score, epochs=2, callbacks=[Stops(1, KilledError())])


def test_every_epoch_trains_in_training_mode() -> None:
    step, batches = parts()
    modes = []

    class Looks(Stops):
        def on_epoch_end(self, epoch: int, record: Any, net: nn.Module) -> None:  # noqa: ARG002
            net.eval()  # as a score would leave it

    forward = step.net.trunk.register_forward_pre_hook(lambda m, _: modes.append(m.training))
    train(step, batches, no_score, epochs=3, callbacks=[Looks(0)])
    forward.remove()
    assert modes.count(True) >= 3 * batches.steps


# ---- the average of the weights ----------------------------------------------------------------


def test_the_average_of_constant_weights_is_that_constant() -> None:
    net = nn.Linear(3, 2, dtype=torch.float64)
    averager = Averager(net, 7.0)
    for _ in range(4):
        averager.update()
    before = [p.detach().clone() for p in net.parameters()]
    kept = averager.swap()
    for p, q in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), q, rtol=1e-14, atol=1e-15)
    averager.restore(kept)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("horizon", [0.2, 1.0, 5.0])
def test_the_average_is_the_weighted_mean_of_its_formula(horizon: float) -> None:
    net = nn.Linear(3, 2, dtype=torch.float64)
    averager = Averager(net, horizon)
    rate, history = 1.0 / max(horizon, 1.0), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(9):
        with torch.no_grad():
            net.weight += torch.randn(2, 3, generator=generator, dtype=torch.float64)
        history.append(net.weight.detach().clone())
        averager.update()
    shares = torch.tensor([rate * (1.0 - rate) ** (8 - i) for i in range(9)], dtype=torch.float64)
    expected = torch.einsum("i,ijk->jk", shares / shares.sum(), torch.stack(history))
    kept = averager.swap()
    torch.testing.assert_close(net.weight.detach(), expected, rtol=1e-12, atol=1e-13)
    averager.restore(kept)
    assert torch.equal(net.weight, history[-1])


def test_averaging_never_disturbs_the_path_of_the_weights() -> None:
    seen: dict[bool, list[Tensor]] = {True: [], False: []}
    for averaged in (True, False):
        step, batches = parts()

        class Looks(Stops):
            def __init__(self, into: list[Tensor]) -> None:
                self.into = into

            def on_epoch_end(self, epoch: int, record: Any, net: nn.Module) -> None:  # noqa: ARG002
                self.into.append(torch.cat([p.detach().flatten() for p in net.parameters()]))

        train(
            step,
            batches,
            no_score,
            epochs=3,
            average=2.0 if averaged else None,
            callbacks=[Looks(seen[averaged])],
        )
    assert all(torch.equal(a, b) for a, b in zip(seen[True], seen[False], strict=True))


# ---- checkpoints -------------------------------------------------------------------------------


def resumed(
    make: Callable[[], tuple[Any, PairedBatches]],
    killed: int,
    folder: Path,
    score_from: Callable[[int], Any] = lambda _: no_score,
    **asked: Any,
) -> tuple[Any, Progress]:
    """A training that was killed in this epoch and then resumed."""
    first, batches = make()
    kill = [Stops(killed, KilledError())]
    with pytest.raises(KilledError):
        train(first, batches, score_from(0), callbacks=kill, checkpoint=folder, **asked)
    again, batches = make()
    torch.manual_seed(99)  # the random state is the checkpoint's, not the process's
    return again, train(again, batches, score_from(killed - 1), checkpoint=folder, **asked)


CASES: dict[str, dict[str, Any]] = {
    "bilevel": {},
    "plain": {"plain": True},
    "dropout": {"dropout": 0.3},
    "double": {"dtype": torch.float64},
}


@pytest.mark.parametrize("average", [None, 2.0])
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_has_the_same_bits(case: str, average: float | None, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 5, "average": average}
    whole, batches = parts(**CASES[case])
    expected = train(whole, batches, no_score, **settings)
    again, found = resumed(lambda: parts(**CASES[case]), 3, tmp_path, **settings)
    assert same(again.net, whole.net)
    assert found.epoch == expected.epoch
    assert timeless(found.history) == timeless(expected.history)
    assert again.state().keys() == whole.state().keys()
    assert all(torch.equal(value, whole.state()[name]) for name, value in again.state().items())


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "text"])
def test_a_damaged_checkpoint_is_refused(damage: str, tmp_path: Path) -> None:
    step, batches = parts()
    train(step, batches, no_score, epochs=1, checkpoint=tmp_path)
    file = tmp_path / FILE
    whole = file.read_bytes()
    file.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "empty": b"",
            "noise": bytes(200) + whole[200:],
            "text": b"not a checkpoint at all",
        }[damage]
    )
    step, batches = parts()
    with pytest.raises(CheckpointError, match="`checkpoint`"):
        train(step, batches, no_score, epochs=2, checkpoint=tmp_path)


def test_a_checkpoint_with_any_bit_flipped_is_refused(tmp_path: Path) -> None:
    step, batches = parts()
    train(step, batches, no_score, epochs=1, checkpoint=tmp_path)
    file = tmp_path / FILE
    whole = file.read_bytes()
    step, batches = parts()
    for place in np.random.default_rng(0).integers(8 * len(whole), size=40).tolist():
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            train(step, batches, no_score, epochs=2, checkpoint=tmp_path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weights": torch.zeros(3)}, tmp_path / FILE)
    step, batches = parts()
    with pytest.raises(CheckpointError):
        train(step, batches, no_score, epochs=2, checkpoint=tmp_path)


def test_a_checkpoint_with_another_key_is_refused(tmp_path: Path) -> None:
    step, batches = parts()
    train(step, batches, no_score, epochs=1, checkpoint=tmp_path, key="a")
    step, batches = parts()
    with pytest.raises(CheckpointError, match="`checkpoint`"):
        train(step, batches, no_score, epochs=2, checkpoint=tmp_path, key="b")


# ---- whole fits --------------------------------------------------------------------------------


def quick(**settings: Any) -> Network:
    base = {"members": 2, "shared": False, "hidden": (8,), "head": 4, "epochs": 5}
    return Network(
        **(base | {"patience": None, "learning_rate": 0.01, "batch_size": 32} | settings)
    )


def bilevel(network: Network, **settings: Any) -> GFB:
    base: dict[str, Any] = {"aux": "step", "aux_rate": 0.1, "warm_epochs": 0, "random_state": 3}
    return GFB(network=network, min_count=5, **(base | settings))


def fitted(model: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)  # a few epochs make no good scores
        return model.fit(DATA.X, DATA.y, sensitive_features=DATA.groups)


def same_fit(one: Any, two: Any) -> bool:
    columns = [c for c in one.history_ if c != "seconds"]
    pd.testing.assert_frame_equal(one.history_[columns], two.history_[columns])
    return same(one.net_, two.net_) and one.frontier_.to_json() == two.frontier_.to_json()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_same_seed_gives_the_same_bits_whatever_the_process_did(dropout: float) -> None:
    model = bilevel(quick(dropout=dropout))
    torch.manual_seed(1)
    one = fitted(copy.deepcopy(model))
    torch.manual_seed(2)
    np.random.seed(5)  # noqa: NPY002
    two = fitted(copy.deepcopy(model))
    assert same_fit(one, two)


def test_another_seed_gives_another_net() -> None:
    one, two = (fitted(FairBayes(quick(), random_state=s, min_count=5)) for s in (0, 1))
    assert not same(one.net_, two.net_)


def test_fitting_leaves_the_global_generators_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    fitted(FairBayes(quick(dropout=0.3, epochs=1), random_state=0, min_count=5))
    assert torch.equal(torch.rand(3), expected)


CHILD = """
import os, signal, sys, warnings
import torch
torch.set_num_threads(1)
from fairdial import GFB, Network
from fairdial.datasets import make_gaussian

folder, dropout, average, early = sys.argv[1], float(sys.argv[2]), eval(sys.argv[3]), sys.argv[4]
data = make_gaussian(900, random_state=0)
replace, written = os.replace, []

def deadly(source, target):
    written.append(target)
    if len(written) == 3 and early == "early":  # the third is written, but not in its place
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
    if len(written) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = deadly
network = Network(members=2, shared=False, hidden=(8,), head=4, epochs=5, batch_size=32,
                  patience=None, learning_rate=0.01,
                  dropout=dropout, average=average, checkpoint=folder)
warnings.simplefilter("ignore")
model = GFB(network=network, aux="step", aux_rate=0.1, warm_epochs=0, moving_average=0.5,
            random_state=3, min_count=5)
model.fit(data.X, data.y, sensitive_features=data.groups)
"""


@pytest.mark.parametrize(
    ("dropout", "average", "early"), [(0.0, None, "late"), (0.3, 2.0, "early")]
)
def test_a_killed_fit_resumes_to_the_same_bits(
    dropout: float, average: float | None, early: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "run")
    child = subprocess.run(
        [sys.executable, "-c", CHILD, folder, str(dropout), str(average), early],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == -9, child.stderr
    settings: dict[str, Any] = {"dropout": dropout, "average": average}
    again = fitted(bilevel(quick(checkpoint=folder, **settings), moving_average=0.5))
    whole = fitted(bilevel(quick(**settings), moving_average=0.5))
    assert same_fit(again, whole)


class Quits:
    """Ends a fit after two epochs as a crash would."""

    def __init__(self, crash: bool) -> None:
        self.crash = crash

    def on_epoch_end(self, epoch: int, record: Any, net: nn.Module) -> None:  # noqa: ARG002
        if self.crash and epoch == 2:
            raise KilledError


@pytest.mark.parametrize("method", [FairBayes, GFB])
def test_callbacks_do_not_change_a_runs_key(method: Any, tmp_path: Path) -> None:
    def model(**settings: Any) -> Any:
        chosen = {"estimator" if method is FairBayes else "network": quick(**settings)}
        return method(**chosen, random_state=0, min_count=5)

    with pytest.raises(KilledError):
        fitted(model(callbacks=[Quits(True)], checkpoint=tmp_path))
    again = fitted(model(callbacks=[Quits(False)], checkpoint=str(tmp_path)))
    assert same_fit(again, fitted(model()))


def test_checkpoints_of_other_parameters_are_refused(tmp_path: Path) -> None:
    network = quick(epochs=1, checkpoint=tmp_path)
    fitted(bilevel(network))
    others = [
        bilevel(network, weight=0.9),
        bilevel(network, random_state=1),
        bilevel(network, criterion="equal_opportunity"),
        bilevel(quick(epochs=2, checkpoint=tmp_path)),
        FairBayes(network, random_state=0, min_count=5),
    ]
    for other in others:
        with pytest.raises(CheckpointError, match="`checkpoint`"):
            fitted(other)


def test_checkpoints_of_other_rows_are_refused(tmp_path: Path) -> None:
    model = FairBayes(quick(epochs=1, checkpoint=tmp_path), random_state=0, min_count=5)
    fitted(model)
    with pytest.raises(CheckpointError, match="`checkpoint`"):
        model.fit(-2.0 * DATA.X, DATA.y, sensitive_features=DATA.groups)


def test_checkpoints_of_another_trunk_are_refused(tmp_path: Path) -> None:
    for width, fails in ((5, False), (6, True)):
        network = quick(epochs=1, checkpoint=tmp_path, trunk=nn.Linear(1, width))
        model = FairBayes(network, random_state=0, min_count=5)
        x = torch.tensor(DATA.X.to_numpy().tolist())
        if fails:
            with pytest.raises(CheckpointError):
                model.fit(x, DATA.y, sensitive_features=DATA.groups)
        else:
            model.fit(x, DATA.y, sensitive_features=DATA.groups)


def test_a_warm_start_is_another_run_than_the_one_it_starts_from(tmp_path: Path) -> None:
    model = bilevel(quick(epochs=2, checkpoint=tmp_path), warm_start=True)
    before = copy.deepcopy(fitted(model).net_)
    try:
        fitted(model)
    except CheckpointError:
        return
    assert not same(before, model.net_)


# ---- several settings in one stack -------------------------------------------------------------

SCORES = np.array(  # of each run, epoch by epoch: they stop at different epochs
    [
        [0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
        [0.1, 0.2, 0.3, 0.4, 0.2, 0.3, 0.9, 0.9],
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
        [-0.1, 0.5, 0.5, 0.4, 0.9, 0.9, 0.9, 0.9],
    ]
)
RUNS, EPOCHS = SCORES.shape
PATIENCE, ENDS, BEST = 2, [3, 6, 8, 4], [1, 4, 8, 2]
ANGLES, ETAS = np.array([0.2, 0.7, 1.1, 1.4]), np.array([0.01, 1.0, 5.0, 100.0])
STEPS: dict[str, dict[str, Any]] = {
    "epo": {},
    "relaxed epo": {"restricted": False},
    "fairbinn": {},
    "bilevel fairbinn": {"accumulate": False, "fair_optimizer": "sgd"},
}
every_step = pytest.mark.parametrize("kind", STEPS)
averaged = pytest.mark.parametrize("average", [None, 2.0])


def table(n: int = 90) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Rows (n, 3), labels, groups: two groups of different sizes and base rates."""
    rng = np.random.default_rng(5)
    codes = np.repeat([0, 1], [n // 3, n - n // 3])
    y = rng.random(n) < np.array([0.3, 0.6])[codes]
    return torch.as_tensor(rng.standard_normal((n, 3)) + y[:, None]), y, codes


def training_data(
    x: Tensor, y: np.ndarray, codes: np.ndarray, n_validation: int = 0
) -> TrainingData:
    train, encode = np.arange(len(y)), InputEncoder(None, torch.device("cpu"))
    inputs, validation = TensorInputs(x), np.arange(n_validation)
    return TrainingData(inputs, y, codes, 2, train, validation, DEMOGRAPHIC_PARITY, encode)


def stacked(
    kind: str, runs: Any = range(RUNS), *, shared: bool = False, dropout: float = 0.0
) -> tuple[Any, PairedBatches]:
    """A step that trains these runs, and its batches."""
    x, y, codes = table()
    network = Network(hidden=(6, 5), head=4, members=2, shared=shared, dropout=dropout)
    torch.manual_seed(0)
    net = build_net(network, x[:2], 2, 0, runs=len(runs)).double()
    batches = PairedBatches(
        TensorInputs(x),
        torch.as_tensor(y).double(),
        [np.flatnonzero(codes == a) for a in (0, 1)],
        size=16,
        seed=1,
    )
    settings = {"rate": 0.02, "weight_decay": 0.05} | STEPS[kind]
    chosen, objective = list(runs), Tradeoff(DEMOGRAPHIC_PARITY)
    if "epo" in kind:
        vectors = np.column_stack((np.cos(ANGLES), np.sin(ANGLES)))[chosen]
        return EPOStep(net, objective, vectors=vectors, **settings), batches
    step = FairBiNNStep(
        net,
        objective,
        etas=ETAS[chosen],
        fairness=fairness_names(net),
        fair_rate=0.01,
        **settings,
    )
    return step, batches


class FixedScores:
    """Scores by the table, and a figure that depends on the weights."""

    def __init__(self, runs: Any = range(RUNS), *, epoch: int = 0) -> None:
        self.runs, self.epoch = list(runs), epoch

    def __call__(self, net: DialNet) -> dict[str, Any]:
        x, _, codes = table()
        self.epoch += 1
        mark = score_runs(net, TensorInputs(x), codes).std(axis=1)
        scores = SCORES[[self.runs[r] for r in net.kept], self.epoch - 1]
        if len(self.runs) == 1:
            return {"score": float(scores[0]), "mark": float(mark[0])}
        return {"score": scores.tolist(), "mark": mark.tolist()}


def figures(state: Progress, run: int) -> list[dict[str, float]]:
    """What the history of a stack says of one run."""
    return [
        {
            name: value[record["run"].index(run)] if isinstance(value, list) else value
            for name, value in record.items()
            if name not in ("run", "seconds")
        }
        for record in state.history
        if run in record["run"]
    ]


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def assert_run(net: DialNet, run: int, alone: DialNet, runs: int = RUNS) -> None:
    assert (net.runs, net.members) == (runs, runs * alone.members)
    for (name, p), q in zip(net.named_parameters(), alone.parameters(), strict=True):
        mine = take_runs(p.detach(), runs, [run])
        torch.testing.assert_close(mine, q.detach(), rtol=1e-8, atol=1e-10, msg=name)


@averaged
@pytest.mark.parametrize("shared", [False, True])
@every_step
def test_settings_train_side_by_side_as_they_would_alone(
    kind: str, shared: bool, average: float | None
) -> None:
    asked: dict[str, Any] = {"epochs": EPOCHS, "patience": PATIENCE, "average": average}
    step, batches = stacked(kind, shared=shared)
    together = train(step, batches, FixedScores(), **asked)
    assert together.best_epoch == BEST
    assert step.net.kept == list(range(RUNS))
    for r in range(RUNS):
        one, its_batches = stacked(kind, [r], shared=shared)
        alone = train(one, its_batches, FixedScores([r]), **asked)
        assert alone.epoch == ENDS[r]
        assert alone.best_epoch == [together.best_epoch[r]]
        assert alone.best_score == [together.best_score[r]]
        assert_run(step.net, r, one.net)
        mine = figures(together, r)
        assert len(mine) == ENDS[r]
        for found, expected in zip(mine, timeless(alone.history), strict=True):
            assert found == pytest.approx(expected, rel=1e-8, abs=1e-11)
    weights = [take_runs(next(step.net.parameters()), RUNS, [r]) for r in range(RUNS)]
    assert not any(torch.allclose(weights[0], w, rtol=1e-2) for w in weights[1:])


@every_step
def test_validation_rows_stop_the_runs_as_they_would_alone(kind: str) -> None:
    x, y, codes = table(60)
    data = training_data(x, y, codes, n_validation=len(y))
    weights = np.column_stack((np.cos(ANGLES), np.sin(ANGLES)))

    def score(runs: list[int]) -> Any:
        return lambda net: score_weighted(
            net, data, objective=Tradeoff(DEMOGRAPHIC_PARITY), weights=weights[runs]
        )

    step, batches = stacked(kind)
    together = train(step, batches, score([0, 1, 2, 3]), epochs=12, patience=1, average=2.0)
    assert len({len(figures(together, r)) for r in range(RUNS)}) > 1  # not all at once
    for r in range(RUNS):
        one, its_batches = stacked(kind, [r])
        alone = train(one, its_batches, score([r]), epochs=12, patience=1, average=2.0)
        assert alone.best_epoch == [together.best_epoch[r]]
        assert len(figures(together, r)) == alone.epoch
        assert_run(step.net, r, one.net)


def test_without_patience_no_run_leaves() -> None:
    step, batches = stacked("fairbinn")
    state = train(step, batches, FixedScores(), epochs=EPOCHS)
    assert [record["run"] for record in state.history] == [list(range(RUNS))] * EPOCHS
    assert state.best_epoch == [int(np.argmax(scores)) + 1 for scores in SCORES]


@averaged
def test_without_a_score_every_runs_last_epoch_is_kept(average: float | None) -> None:
    step, batches = stacked("epo")
    state = train(step, batches, no_score, epochs=3, patience=1, average=average)
    assert state.best_epoch == [3] * RUNS
    for r in range(RUNS):
        one, its_batches = stacked("epo", [r])
        train(one, its_batches, no_score, epochs=3, patience=1, average=average)
        assert_run(step.net, r, one.net)


def test_a_stopped_run_is_no_longer_trained_or_reported() -> None:
    seen: list[tuple[list[int], int, int]] = []

    class Looks(Stops):
        def on_epoch_end(self, epoch: int, record: Any, net: nn.Module) -> None:  # noqa: ARG002
            lengths = {len(v) for v in record.values() if isinstance(v, list)}
            assert lengths == {len(net.kept)}
            assert record["run"] == net.kept
            seen.append((list(net.kept), net.members, len(next(net.parameters()))))

    step, batches = stacked("epo")
    train(step, batches, FixedScores(), epochs=EPOCHS, patience=PATIENCE, callbacks=[Looks(0)])
    left = [[r for r in range(RUNS) if ENDS[r] >= epoch] for epoch in range(1, EPOCHS + 1)]
    assert seen == [(runs, 2 * len(runs), 4 * len(runs)) for runs in left]


def test_the_training_ends_with_its_last_run() -> None:
    runs = [0, 3]
    step, batches = stacked("fairbinn", runs)
    state = train(step, batches, FixedScores(runs), epochs=EPOCHS, patience=PATIENCE)
    assert state.epoch == 4
    assert state.best_epoch == [1, 2]
    assert step.net.kept == [0, 1]


def test_a_callback_ends_all_runs() -> None:
    step, batches = stacked("fairbinn")
    asked: dict[str, Any] = {"epochs": EPOCHS, "patience": PATIENCE}
    state = train(step, batches, FixedScores(), callbacks=[Stops(5)], **asked)
    assert state.epoch == 5
    assert state.best_epoch == [1, 4, 5, 2]
    short, batches = stacked("fairbinn")
    train(short, batches, FixedScores(), **(asked | {"epochs": 5}))
    assert same(step.net, short.net)


@averaged
@pytest.mark.parametrize("kind", ["epo", "fairbinn"])
@pytest.mark.parametrize("where", ["callback", "score"])
@pytest.mark.parametrize("after", [2, 5, 7])
def test_an_interrupt_keeps_every_runs_best_weights(
    kind: str, where: str, after: int, average: float | None
) -> None:
    asked: dict[str, Any] = {"patience": PATIENCE, "average": average}
    step, batches = stacked(kind)
    fixed = FixedScores()

    def score(net: DialNet) -> dict[str, Any]:
        if where == "score" and fixed.epoch == after:
            raise KeyboardInterrupt  # the average is in the net now
        return fixed(net)

    stops = [Stops(after, KeyboardInterrupt())] if where == "callback" else []
    state = train(step, batches, score, epochs=EPOCHS, callbacks=stops, **asked)
    short, batches = stacked(kind)
    expected = train(short, batches, FixedScores(), epochs=after, **asked)
    assert state.best_epoch == expected.best_epoch
    assert step.net.kept == list(range(RUNS))
    assert same(step.net, short.net)


def assert_same_training(one: Any, its_state: Progress, two: Any, other_state: Progress) -> None:
    assert same(one.net, two.net)
    assert timeless(its_state.history) == timeless(other_state.history)
    assert its_state.best_epoch == other_state.best_epoch
    assert its_state.best_score == other_state.best_score
    for name, optimizer in one.optimizers.items():
        own = optimizer.state_dict()["state"]
        other = two.optimizers[name].state_dict()["state"]
        assert own.keys() == other.keys()
        for place, entries in own.items():
            for entry, value in entries.items():
                if value is not None:  # plain gradient descent has nothing to remember
                    assert torch.equal(value, other[place][entry])


@averaged
@pytest.mark.parametrize("killed", [2, 4, 5, 7, 8])
@every_step
def test_resumed_runs_have_the_same_bits(
    kind: str, killed: int, average: float | None, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"epochs": EPOCHS, "patience": PATIENCE, "average": average}
    whole, batches = stacked(kind)
    expected = train(whole, batches, FixedScores(), **asked)
    again, found = resumed(
        lambda: stacked(kind), killed, tmp_path, lambda epoch: FixedScores(epoch=epoch), **asked
    )
    assert_same_training(again, found, whole, expected)


def test_finished_runs_are_not_trained_again(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"epochs": EPOCHS, "patience": PATIENCE, "checkpoint": tmp_path}
    for runs in ([0, 3], range(RUNS)):  # ended by patience, and by the number of epochs
        folder = asked | {"checkpoint": tmp_path / str(len(runs))}
        step, batches = stacked("fairbinn", runs)
        expected = train(step, batches, FixedScores(runs), **folder)
        again, batches = stacked("fairbinn", runs)

        def never(_: DialNet) -> dict[str, Any]:
            raise KilledError

        found = train(again, batches, never, **folder)
        assert found.epoch == expected.epoch
        assert same(again.net, step.net)


@averaged
def test_drawn_weights_resume_with_the_same_bits(average: float | None, tmp_path: Path) -> None:
    def parts() -> tuple[YOTOStep, PairedBatches]:
        batches = stacked("epo", [0])[1]
        network = Network(hidden=(6, 5), head=4, members=2)
        net = build_net(network, torch.zeros(2, 3), 2, 0, film={"hidden": 4}).double()
        bounds = (1e-3, 10.0)
        step = YOTOStep(
            net,
            Tradeoff(DEMOGRAPHIC_PARITY),
            bounds=bounds,
            condition=float,
            rate=0.02,
            seed=3,
        )
        return step, batches

    asked: dict[str, Any] = {"epochs": 5, "average": average}
    whole, batches = parts()
    expected = train(whole, batches, no_score, **asked)
    again, found = resumed(parts, 3, tmp_path, **asked)
    assert_same_training(again, found, whole, expected)
    assert again.draw() == whole.draw()


def test_the_history_of_runs_is_that_of_each_alone() -> None:
    asked: dict[str, Any] = {"epochs": EPOCHS, "patience": PATIENCE}
    step, batches = stacked("fairbinn")
    frame = history_frame(train(step, batches, FixedScores(), **asked)).drop(columns="seconds")
    assert frame.index.names == ["run", "epoch"]
    assert len(frame) == sum(ENDS)
    for r in range(RUNS):
        one, its_batches = stacked("fairbinn", [r])
        alone = history_frame(train(one, its_batches, FixedScores([r]), **asked))
        mine = frame.loc[r]
        pd.testing.assert_frame_equal(mine, alone[list(mine)], rtol=1e-8)


def test_settings_without_validation_rows_train_to_the_end() -> None:
    x, y, codes = table()
    network = quick(members=1, patience=1, epochs=4)
    data = training_data(x.float(), y, codes)
    objective = Tradeoff(DEMOGRAPHIC_PARITY)

    def fit(etas: np.ndarray) -> Any:
        method = Method(
            lambda net, _, __: FairBiNNStep(
                net, objective, etas=etas, fairness=fairness_names(net), rate=0.01, fair_rate=0.001
            ),
            lambda *_: {"score": float("nan")},  # is not asked
            runs=len(etas),
        )
        return fit_network(network, data, method, seed=0)

    together, alone = fit(ETAS), fit(ETAS[:1])
    assert alone.best_epoch == [4]
    assert together.best_epoch == [4] * RUNS
    for p, q in zip(together.net.parameters(), alone.net.parameters(), strict=True):
        torch.testing.assert_close(
            take_runs(p.detach(), RUNS, [0]), q.detach(), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("first", [float("nan"), 0.05])
def test_a_nan_score_is_never_the_best(first: float) -> None:
    step, batches = parts(plain=True)
    scores = iter([first, 0.1, 0.3, 0.2])
    state = train(step, batches, lambda _: {"score": next(scores)}, epochs=4)
    assert state.best_epoch == [3]
