"""Two losses, accuracy and disparity, and how the comparison methods trade them off.

All three methods see the same pair: the prediction loss, and the smooth gap, the spread over the
groups of the criterion's rate with sigmoids for decisions (paper, appendix on the baselines). They
differ in the step: EPO weighs both gradients so that the losses keep a given proportion, FairBiNN
gives each its own layers, YOTO adds them with a weight that the net is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairdial.criteria import Rate
from fairdial.nn.losses import SHARPNESS, focal
from fairdial.nn.nets import DialNet, take_runs
from fairdial.nn.pareto import epo_weights
from fairdial.nn.steps import Step, make_optimizer, match_strides, refuse_nonfinite, set_grads

Floats = NDArray[np.float64]


class Part(NamedTuple):
    """One loss of every member, and its derivative by the logits."""

    value: Tensor  # (M,)
    gradient: Tensor  # (M, G, B)


@dataclass(frozen=True)
class Tradeoff:
    """The two losses at the level of logits.

    Parameters
    ----------
    rate : Rate
        Of the criterion.
    gamma : float
        Focusing exponent of the prediction loss.
    sharpness : float
        k of the sigmoids that stand for decisions.
    """

    rate: Rate
    gamma: float = 0.0
    sharpness: float = SHARPNESS

    def accuracy(self, logits: Tensor, y: Tensor) -> Part:
        """Prediction loss: mean of a group, then over groups."""
        value, first, _ = focal(logits, y, self.gamma)
        return Part(value.mean(dim=(1, 2)), first.div_(y.numel()))

    def disparity(self, logits: Tensor, y: Tensor) -> Part:
        """Smooth gap: highest minus lowest rate over the groups that have counted rows."""
        weight = torch.ones_like(y)
        if self.rate.counted is not None:
            weight = (y == self.rate.counted).to(y.dtype)
        return smooth_gap(logits, weight, self.sharpness)

    def losses(self, logits: Tensor, y: Tensor, runs: int = 1) -> dict[str, Tensor]:
        """Both, for the record; one figure a run where there are several."""
        told = {
            "loss": self.accuracy(logits, y).value.view(runs, -1).mean(dim=1),
            "disparity": self.disparity(logits, y).value.view(runs, -1).mean(dim=1),
        }
        return told if runs > 1 else {name: value[0] for name, value in told.items()}

    def on_rows(
        self, logits: NDArray[Any], positive: NDArray[np.bool_], codes: NDArray[Any]
    ) -> tuple[Floats, Floats]:
        """(R,) both losses of flat logits (R, n), with groups of any sizes."""
        z = torch.as_tensor(np.asarray(logits, np.float64))
        y = torch.as_tensor(positive, dtype=torch.float64)
        loss = focal(z, y, self.gamma).value
        chosen = torch.sigmoid(self.sharpness * z)
        label = self.rate.counted
        losses, rates = [], []
        for a in np.unique(codes):
            rows = torch.as_tensor(codes == a)
            losses.append(loss[:, rows].mean(dim=1))
            counted = rows if label is None else rows & (y == label)
            if bool(counted.any()):
                rates.append(chosen[:, counted].mean(dim=1))
        spread = torch.zeros(len(z), dtype=torch.float64)
        if rates:
            stacked = torch.stack(rates)
            spread = stacked.amax(dim=0) - stacked.amin(dim=0)
        return torch.stack(losses).mean(dim=0).numpy(), spread.numpy()


def smooth_gap(logits: Tensor, weight: Tensor, sharpness: float = SHARPNESS) -> Part:
    """Highest minus lowest smooth rate of the groups, and its derivative by the logits.

    Parameters
    ----------
    logits : (M, G, B) Tensor
        Of paired rows.
    weight : (G, B) Tensor
        1 for rows that count, 0 for others; groups without a row that counts are left out.
    sharpness : float
        k of the sigmoids.

    Examples
    --------
    >>> import torch
    >>> from fairdial.nn.tradeoff import smooth_gap
    >>> logits = torch.tensor([[[9.0, -9.0], [9.0, 9.0]]])
    >>> round(float(smooth_gap(logits, torch.ones(2, 2)).value[0]), 6)
    0.5
    """
    chosen = torch.sigmoid(sharpness * logits)
    counts = weight.sum(dim=1)  # (G,)
    share = weight / counts.clamp_min(1.0)[:, None]  # (G, B)
    rates = (chosen * share).sum(dim=2)  # (M, G)
    empty = counts == 0
    highest = rates.masked_fill(empty, -torch.inf).argmax(dim=1, keepdim=True)
    lowest = rates.masked_fill(empty, torch.inf).argmin(dim=1, keepdim=True)
    sign = torch.zeros_like(rates)
    if not bool(empty.all()):
        one = torch.ones_like(highest, dtype=rates.dtype)
        sign.scatter_add_(1, highest, one).scatter_add_(1, lowest, -one)
    slope = chosen * (1.0 - chosen) * (sharpness * share)
    return Part((sign * rates).sum(dim=1), slope * sign[:, :, None])


class EPOStep(Step):
    """Exact Pareto optimal search: a step along the weighted gradients of both losses.

    Both gradients are taken once; the members of the stack have a reference vector each.

    Parameters
    ----------
    net : DialNet
        What is trained.
    objective : Tradeoff
        The losses.
    vectors : (R, 2) array
        Reference vector of each run.
    rate : float
        Of Adam.
    weight_decay : float
        Of the head.
    restricted : bool
        Whether descent keeps the proportion of the losses.
    """

    objective: Tradeoff

    def __init__(
        self,
        net: DialNet,
        objective: Tradeoff,
        *,
        vectors: Floats,
        rate: float,
        weight_decay: float = 0.0,
        restricted: bool = True,
    ) -> None:
        self.net, self.objective, self._restricted = net, objective, restricted
        self.vectors = np.repeat(vectors, net.members // net.runs, axis=0)  # (M, 2)
        trained = _trained(net)
        self._params, self._owners = list(trained.values()), [_owner(net, n) for n in trained]
        self._optimizer = make_optimizer(_with_decay(net, rate, weight_decay), "adam")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """One forward, the two gradients, their weights, one step of Adam."""
        logits = self.world.run(self.net, x)
        joint = self.world.gather(logits.detach(), y.shape[-1])
        accuracy, gap = self.objective.accuracy(joint, y), self.objective.disparity(joint, y)
        first = _gradients(logits, self._params, self.world.mine(accuracy.gradient), again=True)
        second = _gradients(logits, self._params, self.world.mine(gap.gradient))
        both = self.world.sum(first + second)
        first, second = both[: len(first)], both[len(first) :]
        losses = torch.stack((accuracy.value, gap.value), dim=1)  # (M, 2)
        weights = epo_weights(
            losses.double().cpu().numpy(),
            self._gram(first, second),
            self.vectors,
            restricted=self._restricted,
        )
        scale = torch.as_tensor(2.0 * weights, dtype=joint.dtype, device=joint.device)
        for p, owner, a, b in zip(self._params, self._owners, first, second, strict=True):
            mine = scale[self._whole(owner)]
            mine = mine.repeat_interleave(len(p) // len(mine), dim=0) if owner is None else mine
            shape = (2, -1, *[1] * (p.ndim - 1))
            left, right = mine.T.reshape(shape if p.ndim else (2,))
            p.grad = (a * left).add_(b * right)  # a and b may share memory with others
        match_strides(self._params)
        self._optimizer.step()
        return joint

    @staticmethod
    def _whole(owner: int | None) -> slice:
        """The members that a parameter is a part of."""
        return slice(None) if owner is None else slice(owner, owner + 1)

    def _gram(self, first: Sequence[Tensor], second: Sequence[Tensor]) -> Floats:
        """(M, 2, 2) products of each member's gradients, over all its parameters."""
        members = self.net.members
        gram = torch.zeros(members, 3, dtype=torch.float64, device=first[0].device)
        for owner, a, b in zip(self._owners, first, second, strict=True):
            u, v = (g.reshape(members if owner is None else 1, -1).double() for g in (a, b))
            gram[self._whole(owner)] += torch.stack(
                ((u * u).sum(1), (u * v).sum(1), (v * v).sum(1)), dim=1
            )
        return gram[:, [0, 1, 1, 2]].view(members, 2, 2).cpu().numpy()

    def keep(self, runs: Sequence[int]) -> None:
        """Go on with some of the net's runs only."""
        self.vectors = _take(self.vectors, self.net.runs, runs)
        super().keep(runs)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """One for everything."""
        return {"all": self._optimizer}


class FairBiNNStep(Step):
    """Fairness layers descend the gap, then the other layers the prediction loss.

    Parameters
    ----------
    net : DialNet
        What is trained.
    objective : Tradeoff
        The losses.
    etas : (R,) array
        Scale of the gap, for each run.
    fairness : sequence of str
        Names of the parameters that descend the gap; all others descend the prediction loss.
    rate, fair_rate : float
        Of the two parts.
    fair_optimizer : {"adam", "sgd"}
        Of the fairness part; the other's is Adam.
    accumulate : bool
        Whether the second part's step also has the gap's gradient in it.
    weight_decay : float
        Of the head.
    """

    objective: Tradeoff

    def __init__(
        self,
        net: DialNet,
        objective: Tradeoff,
        *,
        etas: Floats,
        fairness: Sequence[str],
        rate: float,
        fair_rate: float,
        fair_optimizer: str = "adam",
        accumulate: bool = True,
        weight_decay: float = 0.0,
    ) -> None:
        self.net, self.objective = net, objective
        self.accumulate = accumulate
        first = next(net.parameters())
        self.etas = torch.as_tensor(etas, dtype=first.dtype, device=first.device)
        self.etas = self.etas.repeat_interleave(net.members // net.runs)  # (M,)
        trained, chosen = _trained(net), set(fairness)
        self.fair = [p for name, p in trained.items() if name in chosen]
        self.rest = [p for name, p in trained.items() if name not in chosen]
        assert len(self.fair) == len(chosen), "every parameter belongs to exactly one part"
        parts = _with_decay(net, rate, weight_decay, without=chosen)
        self._optimizers = {
            "fairness": make_optimizer([{"params": self.fair, "lr": fair_rate}], fair_optimizer),
            "accuracy": make_optimizer(parts, "adam"),
        }

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """The gap's step, then the prediction loss's at the weights that it left."""
        logits = self.world.run(self.net, x)
        joint = self.world.gather(logits.detach(), y.shape[-1])
        pull = self.objective.disparity(joint, y).gradient * self.etas[:, None, None]
        wanted = self.fair + (self.rest if self.accumulate else [])
        found = self.world.sum(_gradients(logits, wanted, self.world.mine(pull)))
        set_grads(self.fair, found[: len(self.fair)])
        match_strides(self.fair)
        self._optimizers["fairness"].step()
        logits = self.world.run(self.net, x)
        pull = self.objective.accuracy(self.world.gather(logits.detach(), y.shape[-1]), y).gradient
        grads = self.world.sum(_gradients(logits, self.rest, self.world.mine(pull)))
        if self.accumulate:
            grads = list(torch._foreach_add(grads, found[len(self.fair) :]))
        set_grads(self.rest, grads)
        match_strides(self.rest)
        self._optimizers["accuracy"].step()
        return joint

    def check(self) -> None:
        """Raise where the state has stopped being finite, naming the rate to lower."""
        refuse_nonfinite(self.fair, "the fairness part", "eta` or `fair_rate")
        refuse_nonfinite(self.rest, "the accuracy part", "eta` or `learning_rate")

    def keep(self, runs: Sequence[int]) -> None:
        """Go on with some of the net's runs only."""
        self.etas = take_runs(self.etas, self.net.runs, runs)
        super().keep(runs)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Of the two parts."""
        return self._optimizers


class YOTOStep(Step):
    """Both losses with a weight that is drawn anew for every batch, and that the net is told.

    Parameters
    ----------
    net : DialNet
        With ``film``.
    objective : Tradeoff
        The losses.
    bounds : (float, float)
        Of the weight, which is log-uniform.
    condition : callable
        The number that the net is given for a weight.
    rate : float
        Of Adam.
    seed : int
        Of the weights that are drawn.
    weight_decay : float
        Of the head.
    """

    objective: Tradeoff

    def __init__(
        self,
        net: DialNet,
        objective: Tradeoff,
        *,
        bounds: tuple[float, float],
        condition: Callable[[float], float],
        rate: float,
        seed: int,
        weight_decay: float = 0.0,
    ) -> None:
        self.net, self.objective = net, objective
        self._bounds, self._condition = bounds, condition
        self._generator = torch.Generator().manual_seed(seed)
        self._params = list(_trained(net).values())
        self._optimizer = make_optimizer(_with_decay(net, rate, weight_decay), "adam")

    def draw(self) -> list[float]:
        """(M,) a weight for each member: log-uniform between the bounds."""
        low, high = np.log(self._bounds)
        u = torch.rand(self.net.members, generator=self._generator, dtype=torch.float64)
        return [float(w) for w in np.exp(low + (high - low) * u.numpy())]

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """One step at freshly drawn weights."""
        weights = self.draw()
        self._optimizer.zero_grad(set_to_none=True)
        condition = x.new_tensor([self._condition(w) for w in weights])
        logits = self.world.run(self.net, x, condition)
        joint = self.world.gather(logits.detach(), y.shape[-1])
        scale = joint.new_tensor(weights)[:, None, None]
        pull = self.objective.accuracy(joint, y).gradient
        pull = pull + scale * self.objective.disparity(joint, y).gradient
        self.world.pull(logits, self.world.mine(pull))
        self.world.sum([], grads_of=self.net)
        match_strides(self._params)
        self._optimizer.step()
        return joint

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """One for everything."""
        return {"all": self._optimizer}

    def state(self) -> dict[str, Tensor]:
        """Where the draws are."""
        return {"draws": self._generator.get_state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from :meth:`state`."""
        self._generator.set_state(state["draws"])


def _trained(net: DialNet) -> dict[str, nn.Parameter]:
    """Parameters that aren't frozen, by name."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad}


def _with_decay(
    net: DialNet, rate: float, weight_decay: float, *, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Parameters for an optimiser, with weight decay on the head."""
    trained = {name: p for name, p in _trained(net).items() if name not in without}
    head = [p for name, p in trained.items() if name.startswith("head.")]
    others = [p for name, p in trained.items() if not name.startswith("head.")]
    parts = [
        {"params": others, "lr": rate},
        {"params": head, "lr": rate, "weight_decay": weight_decay},
    ]
    return [part for part in parts if part["params"]]


def _gradients(
    logits: Tensor, params: Sequence[nn.Parameter], pull: Tensor, *, again: bool = False
) -> list[Tensor]:
    """Of the parameters, for a cotangent of the logits; zero where they have no part."""
    found = torch.autograd.grad(logits, params, pull, retain_graph=again, allow_unused=True)
    return [g if g is not None else torch.zeros_like(p) for p, g in zip(params, found, strict=True)]


def _owner(net: DialNet, name: str) -> int | None:
    """The member that a parameter belongs to; None where its first axis goes through all."""
    parts = name.split(".")
    if parts[:2] == ["trunk", "nets"]:
        return int(parts[2]) // net.copies
    return None


def _take(array: Floats, runs: int, kept: Sequence[int]) -> Floats:
    """Some runs' part of an array whose first axis goes through all of them."""
    return array.reshape(runs, -1, *array.shape[1:])[list(kept)].reshape(-1, *array.shape[1:])
