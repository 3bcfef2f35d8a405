"""Two real processes do what one does with the joint batch, and none waits for one that is gone.

Run by torchrun, this file is one of the two processes: it does everything that is to be looked at,
leaves what it found in a file, and in the end one of the two is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairdial import (
    EPO,
    GFB,
    YOTO,
    DistributedError,
    DivergedError,
    FairBayes,
    FairBiNN,
    FairdialError,
    InvalidInputError,
    Network,
)
from fairdial.core.criteria import DEMOGRAPHIC_PARITY, EQUAL_OPPORTUNITY
from fairdial.core.rates import SELECTION, TRUE_POSITIVE
from fairdial.datasets import Pictures as Table
from fairdial.errors import InterruptedWarning
from fairdial.nn.data import PairedBatches, TensorInputs
from fairdial.nn.distributed import _timeout, process_group, process_rank, training_processes
from fairdial.nn.masoba import Objective
from fairdial.nn.nets import DialNet, Film, Head, MLPTrunk, ModuleStack
from fairdial.nn.partition import fairness_names
from fairdial.nn.process_group import SINGLE_PROCESS, ProcessGroup, local_slice
from fairdial.nn.steps import BilevelStep, PlainStep, Step
from fairdial.nn.tradeoff import EPOStep, FairBiNNStep, Tradeoff, YOTOStep

RANKS = 2
STEPS = 12
BATCH = 7  # three rows and four
SHARES = np.array([0.6, 0.4])
PATIENT = 600.0  # seconds that the parent waits for both
LIMIT = 120.0  # seconds that they wait for each other
SOON = 30.0  # long before that

# ---- nets, steps and batches, the same in every process ----------------------------------------


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Pictures(nn.Module):
    """Convolutions with every kind of batch normalization, and a weight that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 3, 3, bias=False),  # a bias would have a gradient of rounding alone
            nn.BatchNorm2d(3, affine=False, momentum=None),
            nn.Flatten(),
            nn.BatchNorm1d(12, track_running_stats=False),
        )
        self.frozen = nn.BatchNorm1d(12).requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(2))

    def train(self, mode: bool = True) -> Pictures:
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.frozen(self.body(x.view(len(x), 2, 6, 6))))


class Checkpointed(Pictures):
    """Layers whose forward runs again in the backward, and torch's own function."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        first = self.body[:3](x.view(len(x), 2, 6, 6))
        if torch.is_grad_enabled():  # else there is no backward, and torch says so
            x = checkpoint(self.body[3:], first, use_reentrant=self.reentrant)
        else:
            x = self.body[3:](first)
        x = torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False)
        return torch.tanh(self.frozen(x))


class OwnHead(nn.Module):
    """A head that the library doesn't know."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 5, generator=draw(3)))

    def forward(self, features: Tensor) -> Tensor:
        return torch.tanh((features * self.weight[:, None, :]).sum(dim=-1))


WIDTH = 72
TRUNKS: dict[str, Callable[[], nn.Module]] = {
    "pictures": Pictures,
    "reentrant": partial(Checkpointed, True),
    "recomputed": partial(Checkpointed, False),
}


def make_net(kind: str, *, hidden: int = 4) -> DialNet:
    """Two members (of pictures one), for two groups."""
    torch.manual_seed(0)
    if kind == "shared":
        trunk = MLPTrunk(2, (WIDTH + 2, 6, 5), draw(), norm=True)
        return DialNet(trunk, Head(2, 5, hidden, draw(1)), members=2, groups=2, shared=True)
    if kind in TRUNKS:
        head = Head(2, 12, hidden, draw(1))
        return DialNet(ModuleStack.copies_of(TRUNKS[kind], 2), head, members=1, groups=2)
    head_ = OwnHead() if kind == "own head" else Head(4, 5, hidden, draw(1))
    return DialNet(MLPTrunk(4, (WIDTH, 6, 5), draw()), head_, members=2, groups=2)


def plain(net: DialNet) -> Step:
    return PlainStep(net, Objective(SELECTION, SHARES, gamma=1.0), rate=0.01, weight_decay=0.01)


def bilevel(net: DialNet, aux: str = "step", rate: Any = SELECTION, **settings: Any) -> Step:
    return BilevelStep(
        net,
        Objective(rate, SHARES, weight=0.7, accuracy=1e-13),
        outer_rate=0.005,
        inner_rate=0.01,
        aux=aux,
        aux_rate=0.5,
        theta=0.5,
        weight_decay=0.01,
        warm_steps=1,
        **settings,
    )


def epo(net: DialNet) -> Step:
    net.kept = list(range(net.members))  # each member is a run
    vectors = np.array([[0.6, 0.8], [0.9, 0.3]])[: net.members]
    return EPOStep(net, Tradeoff(EQUAL_OPPORTUNITY), vectors=vectors, rate=0.01)


def fairbinn(net: DialNet, accumulate: bool = True) -> Step:
    return FairBiNNStep(
        net,
        Tradeoff(DEMOGRAPHIC_PARITY),
        etas=np.array([2.0]),
        fairness=fairness_names(net),
        rate=0.01,
        fair_rate=0.005,
        accumulate=accumulate,
    )


def yoto(net: DialNet) -> Step:
    widths = [*getattr(net.trunk, "active_widths", []), *net.head.active_widths]
    net.film = Film(len(net.head.layers[0].weight), widths, draw(2), hidden=3, identity=False)
    net.double()
    objective = Tradeoff(DEMOGRAPHIC_PARITY)
    return YOTOStep(net, objective, bounds=(0.1, 9.0), condition=np.log, rate=0.01, seed=5)


CASES: dict[str, tuple[Callable[..., Step], str, int]] = {
    "plain, separate": (plain, "separate", 4),
    "plain, shared": (plain, "shared", 4),
    "plain, pictures": (plain, "pictures", 4),
    "step, separate": (bilevel, "separate", 4),
    "step, pictures": (bilevel, "pictures", 4),
    "step, own head": (bilevel, "own head", 4),
    "step, eligible rows": (partial(bilevel, rate=TRUE_POSITIVE), "separate", 4),
    "scaled, separate": (partial(bilevel, aux="scaled"), "separate", 4),
    "scaled, shared": (partial(bilevel, aux="scaled"), "shared", 4),
    "scaled, pictures": (partial(bilevel, aux="scaled"), "pictures", 4),
    "adam, pictures": (partial(bilevel, aux="adam", clip=0.01), "pictures", 4),
    "sequential": (partial(bilevel, sequential=True, clip=0.01), "separate", 4),
    "solve, shared": (partial(bilevel, aux="solve"), "shared", 4),
    "solve, linear head": (partial(bilevel, aux="solve"), "separate", 0),
    "solve, pictures": (partial(bilevel, aux="solve"), "pictures", 4),
    "plain, reentrant": (plain, "reentrant", 4),
    "step, reentrant": (bilevel, "reentrant", 4),
    "yoto, recomputed": (yoto, "recomputed", 4),
    "epo, separate": (epo, "separate", 4),
    "epo, pictures": (epo, "pictures", 4),
    "fairbinn, shared": (fairbinn, "shared", 4),
    "fairbinn, two parts": (partial(fairbinn, accumulate=False), "separate", 4),
    "fairbinn, pictures": (fairbinn, "pictures", 4),
    "yoto, separate": (yoto, "separate", 4),
    "yoto, pictures": (yoto, "pictures", 4),
}


def make_batches(processes: ProcessGroup) -> PairedBatches:
    rng = np.random.default_rng(0)
    y = rng.random(80) < np.repeat([0.3, 0.6], 40)
    x = torch.as_tensor(rng.standard_normal((80, WIDTH)) + 0.5 * y[:, None])
    labels, parts = torch.as_tensor(y, dtype=torch.float64), np.split(np.arange(80), 2)
    return PairedBatches(TensorInputs(x), labels, parts, size=BATCH, seed=1, processes=processes)


def take_steps(case: str, processes: ProcessGroup) -> dict[str, Any]:
    """Everything that some steps change, and what they tell."""
    make_step, kind, hidden = CASES[case]
    net = make_net(kind, hidden=hidden).double()
    step, batches = make_step(net), make_batches(processes)
    step.processes = processes
    diagnoses, logits = [], []
    net.train()
    for _ in range(STEPS // 2 if kind in TRUNKS else STEPS):  # of many messages each
        x, y = batches.next()
        logits.append(step(x, y))
        diagnoses.append(step.diagnose(x, y))
    moments = [
        value
        for optimizer in step.optimizers.values()
        for entries in optimizer.state.values()
        for name, value in entries.items()
        if name != "step"
    ]
    state = dict(net.state_dict())
    return {
        "net": state,
        "state": step.state(),
        "moments": [m for m in moments if m.abs().max() > 0],
        "logits": logits,
        "diagnoses": [{k: torch.as_tensor(v) for k, v in t.items()} for t in diagnoses],
    }


# ---- whole fits --------------------------------------------------------------------------------

RNG = np.random.default_rng(4)
GROUPS = RNG.random(500) < 0.4
LABELS = RNG.random(500) < np.where(GROUPS, 0.6, 0.35)
ROWS = RNG.standard_normal((500, 4)) + 0.8 * LABELS[:, None]


def network(**settings: Any) -> Network:
    base = {"members": 2, "hidden": (8,), "head": 4, "encoder": None, "learning_rate": 0.01}
    base |= {"epochs": 3, "epoch": "short", "batch_size": 25, "patience": None}
    return Network(**(base | settings))


def gfb(**settings: Any) -> GFB:
    return GFB(network=network(**settings), min_count=5, random_state=3, warm_epochs=0)


def family(kind: Any, **settings: Any) -> Any:
    return kind(min_count=5, random_state=3, network=network(members=1), **settings)


MODELS: dict[str, Callable[[], Any]] = {
    "FairBayes": lambda: FairBayes(network(shared=False), min_count=5, random_state=3),
    "GFB": gfb,
    "EPO": lambda: family(EPO, n_settings=3),
    "FairBiNN": lambda: family(FairBiNN, n_settings=2, widen=0),
    "YOTO": lambda: family(YOTO, targets=2),
}


def fitted(model: Any, X: Any = ROWS, y: Any = LABELS, groups: Any = GROUPS) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few epochs make no good scores
        return model.fit(X, y, sensitive_features=groups)


def given_by(model: Any) -> dict[str, Any]:
    """What a user has of a fit."""
    nets = model.nets_ if hasattr(model, "nets_") else [model.net_]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few epochs may leave a constant decision
        margins = model.decision_function(ROWS, sensitive_features=GROUPS, tolerance=0.2)
    return {
        "nets": [dict(net.state_dict()) for net in nets],
        "frontier": model.frontier_.to_json(),
        "history": model.history_.to_json(double_precision=15),
        "figures": model.history_.drop(columns="seconds").to_numpy(),
        "margins": margins,
        "best": model.best_epoch_,
    }


class Calls:
    """Counts epochs; may end the training, one way or another."""

    def __init__(self, after: int = 99, how: Any = True) -> None:
        self.after, self.how, self.seen = after, how, 0

    def on_epoch_end(self, epoch: int, record: Any, net: nn.Module) -> bool:  # noqa: ARG002
        self.seen += 1
        if epoch == self.after and isinstance(self.how, BaseException):
            raise self.how
        return epoch >= self.after and bool(self.how)


class Trap(nn.Module):
    """A trunk that does something when its copies have been called so often while training.

    A buffer holds what only its own process sees.
    """

    def __init__(self, call: int, action: Callable[[], Any]) -> None:
        super().__init__()
        self.layer, self.call, self.action = nn.Linear(ROWS.shape[1], 6), call, action
        self.register_buffer("seen", torch.zeros(()))
        self.calls: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen.copy_(x.mean())
            self.calls.append(1)
            if len(self.calls) == self.call:
                self.action()
        return torch.relu(self.layer(x))

    def __deepcopy__(self, memo: Any) -> Trap:
        copy = Trap(self.call, self.action)
        copy.load_state_dict(self.state_dict())
        copy.calls = self.calls  # they count together
        return copy


def nothing() -> None:
    pass


class OwnError(Exception):
    """A failure of this process alone."""


def fail() -> None:
    raise OwnError("the disk of this process is full")


HELD: list[BaseException] = []  # with all their frames, as an interactive session keeps them


def failing(model: Any, **rows: Any) -> dict[str, Any]:
    """How a fit fails, and how long that takes."""
    start = time.perf_counter()
    try:
        fitted(model, **rows)
    except (FairdialError, OwnError, KeyboardInterrupt) as error:
        HELD.append(error)
        return {
            "kind": type(error).__name__,
            "message": str(error),
            "seconds": time.perf_counter() - start,
        }
    return {"kind": "none"}


@dataclass
class Child:
    """One of the processes: what it looks at, in an order that both share."""

    rank: int
    folder: Path

    def everything(self) -> dict[str, Any]:
        found: dict[str, Any] = {"steps": {}, "fits": {}, "failures": {}}
        with training_processes() as processes:
            found["batch"] = make_batches(processes).next()
            for case in CASES:
                found["steps"][case] = take_steps(case, processes)
        for name, make in MODELS.items():
            found["fits"][name] = given_by(fitted(make()))
        found["differences"] = self.differences()
        found["failures"] = self.failures()
        found["callbacks"] = self.callbacks()
        found["checkpoints"] = self.checkpoints()
        found["interrupt"] = self.interrupt()
        found["draws"] = self.draws()
        torch.manual_seed(self.rank)  # another trunk in every process
        trunk = nn.Sequential(nn.Linear(ROWS.shape[1], 6), nn.BatchNorm1d(6))
        found["drawn trunk"] = given_by(fitted(gfb(trunk=trunk, members=1)))
        found["outside"] = self.outside()
        return found

    def differences(self) -> dict[str, Any]:
        """Rows and parameters that differ between the processes."""
        X, y, groups = ROWS.copy(), LABELS.copy(), GROUPS.copy()
        rank = self.rank
        X[7] += rank
        if rank:
            y[7], groups[7] = not y[7], not groups[7]
        fewer = slice(0, 500 - rank)
        pixels = np.random.default_rng(0).integers(0, 256, (500, 3, 2, 2), dtype=np.uint8)
        pixels[5] += np.uint8(rank)  # one picture of many
        wide = np.column_stack((ROWS, *[ROWS[:, 0]] * rank))
        return {
            "`X`": failing(gfb(), X=X),
            "`X` or the parameters": failing(gfb(trunk=nn.Flatten(), members=1), X=Table(pixels)),
            "`y`": failing(gfb(), y=y),
            "`sensitive_features`": failing(gfb(), groups=groups),
            "number of rows": failing(gfb(), X=ROWS[fewer], y=LABELS[fewer], groups=GROUPS[fewer]),
            "shape of the network": failing(gfb(), X=wide),
            "`random_state`": failing(gfb().set_params(random_state=rank)),
            "the parameters": failing(gfb(learning_rate=0.01 + 0.01 * rank)),
            "whole number": failing(gfb().set_params(random_state=None)),
            "`n_jobs`": failing(family(EPO, n_settings=2, n_jobs=2)),
            "`batch_size`": failing(gfb(batch_size=1)),
            "ScriptModule": failing(gfb(trunk=torch.jit.script(nn.Linear(4, 2)), members=1)),
        }

    def failures(self) -> dict[str, Any]:
        """Of one process or of both; after each, both fit again."""
        ends = [fail, nothing]
        return {
            "one": failing(gfb(trunk=Trap(9, ends[self.rank == 0]), members=1)),
            "main": failing(gfb(trunk=Trap(9, ends[self.rank == 1]), members=1)),
            "callback": failing(gfb(callbacks=[Calls(2, OwnError("no space"))])),
            "diverged": failing(gfb(learning_rate=1e9)),
        }

    def callbacks(self) -> dict[str, Any]:
        calls = Calls(2)
        model = fitted(gfb(callbacks=[calls], epochs=9))
        return {"seen": calls.seen, "epochs": len(model.history_)}

    def checkpoints(self) -> dict[str, Any]:
        """A run that is killed and resumed, beside one that isn't."""
        whole = given_by(fitted(gfb(dropout=0.3, epochs=4)))
        folder = self.folder / "checkpoint"
        settings = {"dropout": 0.3, "epochs": 4, "checkpoint": folder}
        broken = failing(gfb(callbacks=[Calls(3, OwnError("killed"))], **settings))
        again = given_by(fitted(gfb(**settings)))
        to_the_parent = {"epochs": 4, "checkpoint": self.folder / "handed over"}
        failing(gfb(callbacks=[Calls(3, OwnError("killed"))], **to_the_parent))
        return {"broken": broken, "whole": whole, "again": again}

    def interrupt(self) -> dict[str, Any]:
        """Ctrl-C in one process, in the fifth epoch."""
        presses = [nothing, partial(os.kill, os.getpid(), signal.SIGINT)]
        press = presses[self.rank]
        torch.manual_seed(0)
        model = gfb(trunk=Trap(51, press), members=1, epochs=9)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(ROWS, LABELS, sensitive_features=GROUPS)
        held = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        warned = any(issubclass(w.category, InterruptedWarning) for w in caught)
        return {
            "warned": warned,
            "held": held,
            "given": given_by(model),
            "n": len(model.history_),
            "late": failing(gfb(trunk=Trap(36, press), members=1)),  # in the last batch
            "twice": failing(gfb(trunk=Trap(20, lambda: (press(), press())), members=1)),
        }

    def draws(self) -> Tensor:
        """What dropout would be drawn from, at the first batch."""
        found: list[Tensor] = []
        fitted(gfb(trunk=Trap(1, lambda: found.append(torch.rand(3))), members=1, epochs=1))
        return found[0]

    def outside(self) -> dict[str, Any]:
        """The user's own group is as it was, and predicting needs nobody."""
        total = torch.ones(3)
        dist.all_reduce(total)
        limit = _timeout().total_seconds()
        return {"total": total.tolist(), "processes": tuple(process_rank()), "limit": limit}

    def die(self) -> None:
        (self.folder / "died").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)

    def killed(self) -> None:
        """One process ends without a word, in the middle of training."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the other notices without torchrun's help
        model = gfb(trunk=Trap(23, [nothing, self.die][self.rank]), members=1, epochs=99)
        try:
            model.fit(ROWS, LABELS, sensitive_features=GROUPS)
        finally:
            (self.folder / "noticed").write_text(str(time.time()))


def child(folder: Path) -> None:
    torch.set_num_threads(1)
    with process_group(timeout=LIMIT) as started:
        with process_group() as inner:  # there is one already
            assert inner == started == process_rank()
        me = Child(started.rank, folder)
        torch.save(me.everything(), folder / f"found{started.rank}.pt")
        me.killed()


# ---- what the parent makes of it ---------------------------------------------------------------


@dataclass
class Run:
    """What both processes found, and how they ended."""

    found: list[dict[str, Any]]
    code: int
    said: str
    folder: Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(RANKS)]
    with (folder / "said").open("w+") as log:
        torchrun = subprocess.Popen([*command, __file__, str(folder)], stdout=log, stderr=log)
        try:
            code = torchrun.wait(PATIENT)
        finally:
            torchrun.terminate()  # with all that it has started
            torchrun.wait()
    said = (folder / "said").read_text()
    files = [folder / f"found{rank}.pt" for rank in range(RANKS)]
    assert all(file.exists() for file in files), said
    return Run([torch.load(file, weights_only=False) for file in files], code, said, folder)


def leaves(thing: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in nested dicts and lists, by where it is."""
    if isinstance(thing, (dict, list)):
        items = thing.items() if isinstance(thing, dict) else enumerate(thing)
        for key, value in items:
            yield from leaves(value, f"{name}/{key}")
    else:
        yield name, thing


def assert_same_bits(one: Any, two: Any) -> None:
    pairs = zip(leaves(one), leaves(two), strict=True)
    for (name, a), (other, b) in pairs:
        assert name == other
        if isinstance(a, (np.ndarray, Tensor)):
            np.testing.assert_array_equal(a, b, err_msg=name)  # NaN is the same as NaN
        else:
            assert a == b, name


def test_every_process_reads_its_own_rows_of_the_joint_batch(run: Run) -> None:
    x, y = make_batches(SINGLE_PROCESS).next()
    parts = [found["batch"] for found in run.found]
    assert [part[0].shape[1] for part in parts] == [3, 4]
    assert torch.equal(torch.cat([part[0] for part in parts], dim=1), x)
    assert all(torch.equal(part[1], y) for part in parts)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_take_the_steps_of_one_with_the_joint_batch(run: Run, case: str) -> None:
    expected, (one, two) = (
        take_steps(case, SINGLE_PROCESS),
        (found["steps"][case] for found in run.found),
    )
    assert_same_bits(one, two)
    for (name, a), (other, b) in zip(leaves(one), leaves(expected), strict=True):
        assert name == other
        torch.testing.assert_close(
            a, b, rtol=1e-10, atol=1e-10, equal_nan=True, msg=lambda m, n=name: n + m
        )
    before = make_net(CASES[case][1], hidden=CASES[case][2]).state_dict()
    still = {name for name in before if "unused" in name or "frozen" in name}
    for name, value in before.items():  # a comparison that can fail: all else has moved
        assert torch.equal(value.double(), one["net"][name].double()) == (name in still), name


@pytest.mark.parametrize("name", MODELS)
def test_what_a_user_gets_is_the_same_in_every_process(run: Run, name: str) -> None:
    one, two = (found["fits"][name] for found in run.found)
    assert_same_bits(one, two)


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_of_two_processes_is_that_of_one(run: Run, name: str) -> None:
    found, expected = run.found[0]["fits"][name], given_by(fitted(MODELS[name]()))
    np.testing.assert_allclose(found["figures"], expected["figures"], rtol=0.01, atol=0.01)
    np.testing.assert_allclose(found["margins"], expected["margins"], atol=0.05)
    assert found["best"] == expected["best"]


def test_all_processes_start_with_the_main_processs_trunk(run: Run) -> None:
    one, two = (found["drawn trunk"] for found in run.found)
    assert_same_bits(one, two)
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(ROWS.shape[1], 6), nn.BatchNorm1d(6))
    alone = given_by(fitted(gfb(trunk=trunk, members=1)))
    np.testing.assert_allclose(one["margins"], alone["margins"], atol=0.05)


DIFFERENT = ("`X`", "`y`", "`sensitive_features`", "number of rows", "shape of the network")
DIFFERENT += (
    "`X` or the parameters",
    "`random_state`",
    "the parameters",
    "whole number",
    "`n_jobs`",
    "`batch_size`",
    "ScriptModule",
)


@pytest.mark.parametrize("what", DIFFERENT)
def test_differences_between_processes_are_named_in_all_of_them(run: Run, what: str) -> None:
    for found in run.found:
        failure = found["differences"][what]
        assert failure["kind"] == InvalidInputError.__name__
        assert what in failure["message"]
        assert failure["seconds"] < SOON


@pytest.mark.parametrize(("failure", "rank"), [("one", 1), ("main", 0), ("callback", 0)])
def test_a_failure_of_one_process_ends_the_others_at_once(
    run: Run, failure: str, rank: int
) -> None:
    own, other = (run.found[r]["failures"][failure] for r in (rank, 1 - rank))
    assert own["kind"] == OwnError.__name__
    assert other["kind"] == DistributedError.__name__
    assert max(own["seconds"], other["seconds"]) < SOON


def test_the_error_says_where_this_process_was_and_what_to_do(run: Run) -> None:
    message = run.found[0]["failures"]["one"]["message"]
    assert message.startswith("process 0 of 2 at epoch 1, batch 5")  # two nets: the ninth call
    assert "checkpoint" in message
    assert "OwnError: no space" in (run.found[1]["failures"]["callback"]["message"])


def test_divergence_is_raised_in_every_process(run: Run) -> None:
    kinds = [found["failures"]["diverged"]["kind"] for found in run.found]
    assert kinds == [DivergedError.__name__] * RANKS


def test_callbacks_are_called_in_the_main_process_and_stop_all(run: Run) -> None:
    assert [found["callbacks"] for found in run.found] == [
        {"seen": 2, "epochs": 2},
        {"seen": 0, "epochs": 2},
    ]


def test_a_resumed_run_has_the_same_bits(run: Run) -> None:
    kinds = [found["checkpoints"]["broken"]["kind"] for found in run.found]
    assert kinds == [OwnError.__name__, DistributedError.__name__]
    for found in run.found:
        again, whole = found["checkpoints"]["again"], found["checkpoints"]["whole"]
        del again["history"], whole["history"]  # with seconds
        assert_same_bits(again, whole)


def test_one_process_resumes_what_two_started(run: Run) -> None:
    model = gfb(epochs=4, checkpoint=run.folder / "handed over")
    found, expected = given_by(fitted(model)), given_by(fitted(gfb(epochs=4)))
    np.testing.assert_allclose(found["margins"], expected["margins"], atol=0.05)
    assert len(found["figures"]) == 4
    assert model.history_["seconds"].is_monotonic_increasing


def test_an_interrupt_of_one_process_stops_all_at_the_same_batch(run: Run) -> None:
    one, two = (found["interrupt"] for found in run.found)
    for found in (one, two):
        assert found["warned"]
        assert not found["held"]
        assert found["n"] == 5
    assert_same_bits(one["given"], two["given"])


def test_an_interrupt_after_the_last_batch_stays_in_its_process(run: Run) -> None:
    kinds = [found["interrupt"]["late"]["kind"] for found in run.found]
    assert kinds == ["none", KeyboardInterrupt.__name__]


def test_a_second_interrupt_is_not_waited_for(run: Run) -> None:
    other, own = (found["interrupt"]["twice"] for found in run.found)
    assert own["kind"] == KeyboardInterrupt.__name__
    assert other["kind"] == DistributedError.__name__
    assert other["seconds"] < SOON


def test_every_process_draws_its_own_dropout(run: Run) -> None:
    one, two = (found["draws"] for found in run.found)
    assert not torch.equal(one, two)


def test_a_training_leaves_the_users_process_group_as_it_was(run: Run) -> None:
    for rank, found in enumerate(run.found):
        kept = {"total": [2.0] * 3, "processes": (rank, RANKS), "limit": LIMIT}
        assert found["outside"] == kept


def test_a_killed_process_ends_the_other_within_seconds(run: Run) -> None:
    died, noticed = (float((run.folder / name).read_text()) for name in ("died", "noticed"))
    assert noticed - died < SOON
    assert "DistributedError: process 0 of 2 at epoch 2, batch 6: lost the other" in run.said
    assert set(re.findall(r"exitcode *: (-?\d+)", run.said)) == {str(-signal.SIGKILL), "1"}
    assert run.code != 0


# ---- one process -------------------------------------------------------------------------------


def test_a_process_that_was_started_alone_needs_no_group() -> None:
    with process_group() as started:
        assert tuple(started) == (0, 1)
        assert started.is_main
        assert not dist.is_initialized()
    with training_processes() as processes:
        assert processes is SINGLE_PROCESS


@pytest.mark.parametrize("size", ["", " ", "1"])
def test_an_environment_without_a_number_of_processes_means_one(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    with process_group() as started:
        assert started == (0, 1)


@pytest.mark.parametrize("size", ["two", "0", "-1", "1.5"])
def test_an_invalid_number_of_processes_is_refused(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(InvalidInputError, match=f"`WORLD_SIZE`.*got '{size}'"), process_group():
        pass


def test_half_of_torchruns_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidInputError, match=r"`WORLD_SIZE`.*RANK"), process_group():
        pass


@given(st.integers(1, 9), st.integers(0, 60))
def test_the_parts_of_a_batch_cover_it_evenly(size: int, n: int) -> None:
    parts = [list(range(n))[local_slice(n, rank, size)] for rank in range(size)]
    assert sum(parts, []) == list(range(n))  # noqa: RUF017
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


if __name__ == "__main__":
    child(Path(sys.argv[1]))
