"""Our Adam takes the steps of PyTorch's, to the last bit, without what PyTorch's imports."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from fairdial.nn.adam import Adam  # noqa: E402

SHAPES = [(3, 5), (5,), (7, 2, 2)]
FIT = """
import sys
import numpy as np
from fairdial import GFB, Network
rng = np.random.default_rng(0)
X, groups = rng.normal(size=(400, 3)), np.arange(400) % 2
model = GFB(network=Network(epochs=1), random_state=0)
model.fit(X, (X[:, 0] > 0).astype(int), sensitive_features=groups)
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def weights() -> list[torch.nn.Parameter]:
    rng = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, generator=rng)) for shape in SHAPES]


def groups(params):
    first = {"params": params[:2], "lr": 0.01, "weight_decay": 0.1, "name": "trunk"}
    return [first, {"params": params[2:], "lr": 0.003}]


def take_steps(params, optimizer, *, start: int = 0, stop: int = 20) -> None:
    for step in range(start, stop):
        rng = torch.Generator().manual_seed(step)
        for i, p in enumerate(params):
            grad = torch.randn(p.shape, generator=rng)
            p.grad = None if step % 5 == 2 and i == 1 else grad  # not in every step
        optimizer.step()


def test_steps_and_state_are_those_of_pytorch() -> None:
    ours, theirs = weights(), weights()
    own, other = Adam(groups(ours)), torch.optim.Adam(groups(theirs), fused=True)
    take_steps(ours, own)
    take_steps(theirs, other)
    for mine, their in zip(ours, theirs, strict=True):
        assert torch.equal(mine, their)
        assert own.state[mine].keys() == other.state[their].keys()
        for name, value in other.state[their].items():
            assert torch.equal(own.state[mine][name], value)
    assert own.state_dict()["state"].keys() == other.state_dict()["state"].keys()


def test_a_restored_optimizer_goes_on_as_if_it_had_not_stopped() -> None:
    whole, parts = weights(), weights()
    take_steps(whole, Adam(groups(whole)))
    first = Adam(groups(parts))
    take_steps(parts, first, stop=8)
    kept = copy.deepcopy(first.state_dict())
    second = Adam(groups(parts))
    second.load_state_dict(kept)
    take_steps(parts, second, start=8)
    assert all(map(torch.equal, whole, parts))


def test_gradients_are_dropped_or_set_to_zero() -> None:
    params = weights()
    optimizer = Adam(params)
    take_steps(params, optimizer, stop=1)
    optimizer.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in params)
    optimizer.zero_grad()
    assert [p.grad for p in params] == [None] * 3


def test_a_fit_does_not_import_the_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIT], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
