from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from fairdial import GFB, CheckpointError, FairBayes, FairdialWarning, Network
from fairdial.criteria import SELECTION
from fairdial.datasets import make_gaussian
from fairdial.nn.masoba import Objective
from fairdial.nn.nets import DialNet, Head, MLPTrunk
from fairdial.nn.rows import PairedBatches, TensorRows
from fairdial.nn.steps import BilevelStep, PlainStep
from fairdial.nn.training import CHECKPOINT, Averager, train

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
        TensorRows(x),
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


def test_patience_ends_after_so_many_epochs_without_a_better_score() -> None:
    scores = iter([0.1, 0.5, 0.5, 0.4, 0.3, 0.2])
    step, batches = parts()
    state = train(step, batches, lambda _: {"score": next(scores)}, epochs=6, patience=3)
    assert state.epoch == 5
    assert state.best_epoch == [2]


def test_without_a_score_the_last_epoch_is_kept() -> None:
    step, batches = parts()
    assert train(step, batches, no_score, epochs=3, patience=1).best_epoch == [3]


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

CASES: dict[str, dict[str, Any]] = {
    "bilevel": {},
    "plain": {"plain": True},
    "dropout": {"dropout": 0.3},
    "double": {"dtype": torch.float64},
}


@pytest.mark.parametrize("average", [None, 2.0])
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_gone_on_with_has_the_same_bits(
    case: str, average: float | None, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"epochs": 5, "average": average}
    whole, batches = parts(**CASES[case])
    expected = train(whole, batches, no_score, **settings)
    broken, batches = parts(**CASES[case])
    with pytest.raises(KilledError):
        train(
            broken,
            batches,
            no_score,
            callbacks=[Stops(3, KilledError())],
            checkpoint=tmp_path,
            **settings,
        )
    again, batches = parts(**CASES[case])
    torch.manual_seed(99)  # the state is the checkpoint's, not the process's
    found = train(again, batches, no_score, checkpoint=tmp_path, **settings)
    assert same(again.net, whole.net)
    assert found.epoch == expected.epoch
    for one, two in zip(found.history, expected.history, strict=True):
        assert {k: v for k, v in one.items() if k != "seconds"} == {
            k: v for k, v in two.items() if k != "seconds"
        }
    assert again.state().keys() == whole.state().keys()
    assert all(torch.equal(value, whole.state()[name]) for name, value in again.state().items())


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    step, batches = parts()
    train(step, batches, no_score, epochs=2, checkpoint=tmp_path)
    again, batches = parts()
    state = train(again, batches, no_score, epochs=2, checkpoint=tmp_path)
    assert state.epoch == 2
    assert same(step.net, again.net)


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "text"])
def test_a_damaged_checkpoint_is_refused(damage: str, tmp_path: Path) -> None:
    step, batches = parts()
    train(step, batches, no_score, epochs=1, checkpoint=tmp_path)
    file = tmp_path / CHECKPOINT
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
    with pytest.raises(CheckpointError, match="Delete it"):
        train(step, batches, no_score, epochs=2, checkpoint=tmp_path)


def test_somebody_elses_file_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weights": torch.zeros(3)}, tmp_path / CHECKPOINT)
    step, batches = parts()
    with pytest.raises(CheckpointError):
        train(step, batches, no_score, epochs=2, checkpoint=tmp_path)


def test_a_checkpoint_with_another_key_is_refused(tmp_path: Path) -> None:
    step, batches = parts()
    train(step, batches, no_score, epochs=1, checkpoint=tmp_path, key="a")
    step, batches = parts()
    with pytest.raises(CheckpointError, match="another run"):
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
def test_a_killed_fit_goes_on_to_the_same_bits(
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
    """Ends a fit after two epochs as a crash would, if it is told to."""

    def __init__(self, crash: bool) -> None:
        self.crash = crash

    def on_epoch_end(self, epoch: int, record: Any, net: nn.Module) -> None:  # noqa: ARG002
        if self.crash and epoch == 2:
            raise KilledError


@pytest.mark.parametrize("method", [FairBayes, GFB])
def test_how_a_run_is_watched_is_no_part_of_it(method: Any, tmp_path: Path) -> None:
    def model(**settings: Any) -> Any:
        chosen = {"estimator" if method is FairBayes else "network": quick(**settings)}
        return method(**chosen, random_state=0, min_count=5)

    with pytest.raises(KilledError):
        fitted(model(callbacks=[Quits(True)], checkpoint=tmp_path))
    again = fitted(model(callbacks=[Quits(False)], checkpoint=str(tmp_path)))
    assert same_fit(again, fitted(model()))


def test_other_parameters_are_another_run(tmp_path: Path) -> None:
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
        with pytest.raises(CheckpointError, match="another run"):
            fitted(other)


def test_other_rows_are_another_run(tmp_path: Path) -> None:
    model = FairBayes(quick(epochs=1, checkpoint=tmp_path), random_state=0, min_count=5)
    fitted(model)
    with pytest.raises(CheckpointError, match="another run"):
        model.fit(-2.0 * DATA.X, DATA.y, sensitive_features=DATA.groups)


def test_another_trunk_is_another_run(tmp_path: Path) -> None:
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
