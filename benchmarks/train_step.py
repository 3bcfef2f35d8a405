"""Time a step of GFB beside a step of plain training (ERM), on the same network.

Variants are interleaved in one process; times are median CPU times of one thread. The
straightforward variant follows the paper's equations: three separate gradients (two of second
order), and a bisection in Python for the fairest setting.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from common import at_least, at_most, machine, show_goals, table
from torch import Tensor, nn

from fairdial.core.rates import SELECTION
from fairdial.nn.losses import SHARPNESS, focal
from fairdial.nn.masoba import Objective
from fairdial.nn.nets import DialNet, Head, MLPTrunk, ModuleStack
from fairdial.nn.steps import BilevelStep, PlainStep

SHARES = np.array([0.33, 0.67])
ADULT_INPUTS, COMPAS_INPUTS = 300, 60  # of the default encoder, approximately
PAPER_INPUTS = 768  # of the paper's encoder


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.skip = nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of body and skip."""
        return torch.relu(self.body(x) + self.skip(x))


def small_resnet() -> nn.Module:
    """Return four residual blocks for 64 x 64 pictures, with 128 features."""
    blocks = [Block(3, 16, 2), Block(16, 32, 2), Block(32, 64, 2), Block(64, 128, 2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())


@dataclass
class Case:
    """A network and a batch."""

    name: str
    build: Callable[[], DialNet]
    shape: tuple[int, ...]
    gamma: float
    goal_ratio: float
    goal_gain: float | None

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return rows whose labels depend on the features."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, *self.shape, generator=generator)
        x[1] += 0.3
        score = x.flatten(2)[..., :8].sum(-1) / 3
        y = (torch.rand(score.shape, generator=generator) < torch.sigmoid(score)).float()
        return x, y


def mlp(
    n_in: int,
    hidden: tuple[int, ...],
    head: int,
    members: int = 1,
    *,
    shared: bool = False,
    **options: bool,
) -> DialNet:
    """Return one network per member, and per group unless shared."""
    generator = torch.Generator().manual_seed(0)
    nets, inputs = (members, n_in + 2) if shared else (2 * members, n_in)
    trunk = MLPTrunk(nets, (inputs, *hidden), generator, **options)
    head_ = Head(nets, hidden[-1], head, generator)
    return DialNet(trunk, head_, members=members, groups=2, shared=shared)


def pictures() -> DialNet:
    """Return a small ResNet per group."""
    torch.manual_seed(0)
    head = Head(2, 128, 128, torch.Generator().manual_seed(0))
    return DialNet(ModuleStack.copies_of(small_resnet, 2), head, members=1, groups=2)


PAPER = {"norm": True, "bare": True}
CASES = [
    Case(
        "default, 1 member, batch 256",
        lambda: mlp(ADULT_INPUTS, (64, 32), 32, shared=True),
        (256, ADULT_INPUTS),
        0.0,
        1.20,
        3.0,
    ),
    Case(
        "default, 3 members, batch 256",
        lambda: mlp(ADULT_INPUTS, (64, 32), 32, 3, shared=True),
        (256, ADULT_INPUTS),
        0.0,
        1.20,
        3.0,
    ),
    Case(
        "paper, Adult, batch 1024",
        lambda: mlp(PAPER_INPUTS, (384, 192, 96, 48, 348), 1024, **PAPER),
        (1024, PAPER_INPUTS),
        2.0,
        1.50,
        1.5,
    ),
    Case(
        "paper, COMPAS, batch 32",
        lambda: mlp(PAPER_INPUTS, (384, 192, 348), 1024, **PAPER),
        (32, PAPER_INPUTS),
        2.0,
        1.50,
        1.5,
    ),
    Case("small ResNet, 64 x 64, batch 64", pictures, (64, 3, 64, 64), 0.0, 1.10, None),
]


class StraightStep:
    """GFB written directly from the equations: eq:d_za, eq:w and eq:d_ga one by one."""

    def __init__(self, net: DialNet, gamma: float, weight: float) -> None:
        self.net, self.gamma, self.weight = net, gamma, weight
        self.trunk, self.head = list(net.trunk.parameters()), list(net.head.parameters())
        self.w = [torch.zeros_like(p) for p in self.head]
        self.outer = torch.optim.Adam(self.trunk, 1e-3, fused=True)
        self.inner = torch.optim.Adam(self.head, 1e-3, fused=True)

    def bisect(self, z: Tensor) -> float:
        """Return the setting at which the batch's hard disparity crosses 0, to 1e-5."""
        low, high = -float(SHARES.min()) + 1e-4, float(SHARES.min()) - 1e-4
        while high - low > 1e-5:
            t = (low + high) / 2
            tau = SELECTION.link(np.array([-t, t]) / SHARES)
            disparity = (z[1] > tau[1]).float().mean() - (z[0] > tau[0]).float().mean()
            low, high = (t, high) if disparity > 0 else (low, t)
        return (low + high) / 2

    def distance(self, z: Tensor) -> Tensor:
        """Return L_dist of one member, with its gradient through t."""
        t0 = self.bisect(z.detach())
        t = torch.tensor(t0, requires_grad=True)
        shares = torch.as_tensor(SHARES, dtype=torch.float32)
        signs = torch.tensor([-1.0, 1.0])
        tau = 2 * torch.atanh(signs * t / shares)
        phi = torch.sigmoid(SHARPNESS * (z - tau[:, None])).mean(1)
        by_t = torch.autograd.grad(phi[1] - phi[0], t, retain_graph=True)[0]
        root = t0 - (phi[1] - phi[0]) / torch.clamp(by_t, max=-1e-4).detach()
        tau = 2 * torch.atanh(signs * (t0 + root - root.detach()) / shares)
        side = torch.sign(tau).detach()[:, None]
        weight = torch.sigmoid(side * SHARPNESS * z)
        return (weight * torch.relu(side * (tau[:, None] - z))).mean()

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """Compute three gradients, and make three updates."""
        z = self.net(x)
        prediction = focal(z, y, self.gamma).value.mean(dim=(1, 2)).sum()
        distance = torch.stack([self.distance(member) for member in z]).sum()
        general = self.weight * prediction + (1 - self.weight) * distance
        inner = torch.autograd.grad(prediction, self.head, create_graph=True)
        along = torch.stack([(g * w).sum() for g, w in zip(inner, self.w, strict=True)]).sum()
        weights, n_trunk = self.trunk + self.head, len(self.trunk)
        second = torch.autograd.grad(along, weights, retain_graph=True, materialize_grads=True)
        first = torch.autograd.grad(general, weights)
        for p, g, c in zip(self.trunk, first, second, strict=False):
            p.grad = (g - c).contiguous()
        for p, d in zip(self.head, inner, strict=True):
            p.grad = d.detach().contiguous()
        self.outer.step()
        self.inner.step()
        for w, c, r in zip(self.w, second[n_trunk:], first[n_trunk:], strict=True):
            w -= 1e-3 * (c - r)


def measure(case: Case, repeats: int, straight: bool) -> dict[str, float]:
    """Return median CPU milliseconds of a step of each variant."""
    x, y = case.batch()
    objective = Objective(SELECTION, SHARES, weight=0.95, gamma=case.gamma)
    plain, bilevel = case.build(), case.build()
    steps: dict[str, Callable[[Tensor, Tensor], object]] = {
        "ERM": PlainStep(plain, objective, rate=1e-3),
        "GFB": BilevelStep(
            bilevel, objective, outer_rate=1e-3, inner_rate=1e-3, aux="step", aux_rate=1e-3
        ),
    }
    if straight:
        steps["straightforward"] = StraightStep(case.build(), case.gamma, 0.95)
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(repeats + 3):
        for name, step in steps.items():
            start = time.process_time()
            step(x, y)
            if round_ >= 3:
                taken[name].append(time.process_time() - start)
    return {name: 1e3 * float(np.median(times)) for name, times in taken.items()}


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few steps, to check that it works")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    print(machine(["fairdial", "torch"]), "\n")
    lines, goals, members = [], [], {}
    for case in CASES:
        if quick and not ("default" in case.name or "COMPAS" in case.name):
            continue
        big = "ResNet" in case.name
        repeats = 1 if quick else (15 if big else 300 if "default" in case.name else 60)
        ms = measure(case, repeats, case.goal_gain is not None)
        if "default" in case.name:
            members[case.name] = ms["GFB"], ms["ERM"]
        names = ("ERM", "GFB", "straightforward")
        lines.append([case.name, *(f"{ms[name]:.2f}" if name in ms else "-" for name in names)])
        ratio = ms["GFB"] / ms["ERM"]
        goals.append(at_most(f"{case.name}: GFB against ERM", ratio, case.goal_ratio))
        if case.goal_gain is not None:
            gain = ms["straightforward"] / ms["GFB"]
            goals.append(at_least("... against a straightforward step", gain, case.goal_gain))
    print(table(["network", "ERM ms", "GFB ms", "straightforward ms"], lines))
    one, three = members.values()
    for i, name in enumerate(("GFB", "ERM")):
        goals.append(at_most(f"three packed members against one, {name}", three[i] / one[i], 2.2))
    show_goals(goals)


if __name__ == "__main__":
    main()
