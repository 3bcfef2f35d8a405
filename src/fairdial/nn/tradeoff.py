"""Two losses, accuracy and disparity, and the steps of the comparison methods.

All three methods use the prediction loss and the smooth gap: the range over the groups of the
criterion's rate, with sigmoids for decisions (paper, appendix on the baselines). For several rates,
their gaps are added. EPO weights both gradients so that the losses keep a given proportion,
FairBiNN gives each loss its own layers, and YOTO adds them with a weight that the net takes as an
input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fairdial._arrays import Codes, Floats, Mask, Scores, Weights
from fairdial.core.criteria import Criterion
from fairdial.errors import InvalidInputError
from fairdial.nn.losses import SHARPNESS, focal
from fairdial.nn.nets import DialNet, take_runs
from fairdial.nn.pareto import epo_weights
from fairdial.nn.steps import (
    Step,
    inner_product,
    make_optimizer,
    match_strides,
    refuse_nonfinite,
    set_grads,
)


class LossPart(NamedTuple):
    """One loss of every member, and its derivative in the logits."""

    value: Tensor  # (M,)
    gradient: Tensor  # (M, G, B)


@dataclass(frozen=True)
class Tradeoff:
    """The two losses as functions of the logits.

    Parameters
    ----------
    criterion : Criterion
        Its demands limit differences of rates with fixed eligible rows. Their smooth gaps, divided
        by their scales, are added.
    gamma : float
        Focusing exponent of the prediction loss.
    sharpness : float
        k of the sigmoids that replace decisions.
    """

    criterion: Criterion
    gamma: float = 0.0
    sharpness: float = SHARPNESS

    def __post_init__(self) -> None:
        for demand in self.criterion.demands:
            smooth = demand.rate.fixed and demand.rate.event in ("selected", "rejected")
            everywhere = demand.where is None and demand.strata is None
            if demand.spread != "difference" or not (smooth and everywhere and demand.scale):
                raise InvalidInputError(
                    "criterion",
                    "limit differences of selection rates, true or false positive rates or their "
                    "opposites in all rows, to be trained for",
                    given=self.criterion.name,
                    hint="Train with another criterion, such as equalized_odds; then call "
                    "set_params(criterion=...) and calibrate.",
                )

    @cached_property
    def terms(self) -> tuple[tuple[int | None, float], ...]:
        """Label of the eligible rows (None: all rows) and factor of each smooth gap.

        Opposite rates, such as false negatives and true positives, have the same gap.
        """
        demands = self.criterion.demands
        return tuple((demand.rate.eligible, 1.0 / float(demand.scale)) for demand in demands)  # type: ignore[misc]

    def accuracy(self, logits: Tensor, y: Tensor) -> LossPart:
        """Return the prediction loss: the mean over groups of each group's mean."""
        value, first, _ = focal(logits, y, self.gamma)
        return LossPart(value.mean(dim=(1, 2)), first.div_(y.numel()))

    def disparity(self, logits: Tensor, y: Tensor) -> LossPart:
        """Return the smooth gap: highest minus lowest rate of the groups with eligible rows."""
        parts = []
        for label, factor in self.terms:
            weight = torch.ones_like(y) if label is None else (y == label).to(y.dtype)
            value, gradient = smooth_gap(logits, weight, self.sharpness)
            parts.append((value * factor, gradient * factor) if factor != 1 else (value, gradient))
        values, gradients = zip(*parts, strict=True)
        return LossPart(sum(values[1:], values[0]), sum(gradients[1:], gradients[0]))

    def losses(self, logits: Tensor, y: Tensor, runs: int = 1) -> dict[str, Tensor]:
        """Return both losses, for the record; by run if there are several."""
        losses = {
            "loss": self.accuracy(logits, y).value.view(runs, -1).mean(dim=1),
            "disparity": self.disparity(logits, y).value.view(runs, -1).mean(dim=1),
        }
        return losses if runs > 1 else {name: value[0] for name, value in losses.items()}

    def on_rows(
        self, logits: Scores, positive: Mask, codes: Codes, weights: Weights | None = None
    ) -> tuple[Floats, Floats]:
        """Return both losses (R,) of flat logits (R, n), with groups of any sizes."""
        z = torch.as_tensor(np.asarray(logits, np.float64))
        y = torch.as_tensor(positive, dtype=torch.float64)
        loss = focal(z, y, self.gamma).value.numpy()
        chosen = torch.sigmoid(self.sharpness * z).numpy()
        each = np.ones(len(codes)) if weights is None else weights.astype(np.float64)
        groups = [codes == a for a in np.unique(codes)]
        losses = [np.average(loss[:, rows], axis=1, weights=each[rows]) for rows in groups]
        spread = np.zeros(len(z))
        for label, factor in self.terms:
            eligible = [rows if label is None else rows & (positive == label) for rows in groups]
            rates = [
                np.average(chosen[:, rows], axis=1, weights=each[rows])
                for rows in eligible
                if rows.any()
            ]
            if rates:
                spread += factor * np.ptp(np.array(rates), axis=0)
        return np.asarray(np.mean(losses, axis=0)), spread


def smooth_gap(logits: Tensor, weight: Tensor, sharpness: float = SHARPNESS) -> LossPart:
    """Return the highest minus the lowest smooth rate of the groups, and its derivative.

    Parameters
    ----------
    logits : (M, G, B) Tensor
        Logits of paired rows.
    weight : (G, B) Tensor
        1 for eligible rows, 0 for others; groups without eligible rows are left out.
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
    return LossPart((sign * rates).sum(dim=1), slope * sign[:, :, None])


class EPOStep(Step):
    """Exact Pareto optimal search: a step along the weighted gradients of both losses.

    Both gradients are computed once; each member of the stack has its own reference vector.

    Parameters
    ----------
    net : DialNet
        The net.
    objective : Tradeoff
        The losses.
    vectors : (R, 2) array
        Reference vector of each run.
    rate : float
        Learning rate of Adam.
    weight_decay : float
        Weight decay of the head.
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
        self.optimizers = {"all": make_optimizer(_with_decay(net, rate, weight_decay), "adam")}

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute both gradients and their weights, and take one step of Adam."""
        logits = self.processes.forward(self.net, x)
        joint = self.processes.all_gather(logits.detach(), y.shape[-1])
        accuracy, gap = self.objective.accuracy(joint, y), self.objective.disparity(joint, y)
        first = _gradients(
            logits, self._params, self.processes.local_rows(accuracy.gradient), again=True
        )
        second = _gradients(logits, self._params, self.processes.local_rows(gap.gradient))
        both = self.processes.all_sum(first + second)
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
            own = scale[self._members(owner)]
            own = own.repeat_interleave(len(p) // len(own), dim=0) if owner is None else own
            shape = (2, -1, *[1] * (p.ndim - 1))
            left, right = own.T.reshape(shape if p.ndim else (2,))
            p.grad = (a * left).add_(b * right)  # a and b may share memory with others
        match_strides(self._params)
        self.optimizers["all"].step()
        return joint

    @staticmethod
    def _members(owner: int | None) -> slice:
        """Return the members that a parameter belongs to."""
        return slice(None) if owner is None else slice(owner, owner + 1)

    def _gram(self, first: Sequence[Tensor], second: Sequence[Tensor]) -> Floats:
        """Return the inner products (M, 2, 2) of each member's gradients."""
        members = self.net.members
        gram = torch.zeros(members, 3, dtype=torch.float64, device=first[0].device)
        for owner, a, b in zip(self._owners, first, second, strict=True):
            if owner is not None:
                gram[owner] += torch.stack(
                    [inner_product(*pair) for pair in ((a, a), (a, b), (b, b))]
                )
                continue
            u, v = (g.reshape(members, -1).double() for g in (a, b))
            gram += torch.stack(((u * u).sum(1), (u * v).sum(1), (v * v).sum(1)), dim=1)
        return gram[:, [0, 1, 1, 2]].view(members, 2, 2).cpu().numpy()

    def keep(self, runs: Sequence[int]) -> None:
        """Keep some of the net's runs only."""
        self.vectors = _take(self.vectors, self.net.runs, runs)
        super().keep(runs)


class FairBiNNStep(Step):
    """Fairness layers descend the gap, then the other layers the prediction loss.

    Parameters
    ----------
    net : DialNet
        The net.
    objective : Tradeoff
        The losses.
    etas : (R,) array
        Weight of the gap, for each run.
    fairness : sequence of str
        Names of the parameters that descend the gap; all others descend the prediction loss.
    rate, fair_rate : float
        Learning rates of the two parts.
    fair_optimizer : {"adam", "sgd"}
        Optimizer of the fairness part; the other's is Adam.
    accumulate : bool
        Whether the second part's step includes the gap's gradient.
    weight_decay : float
        Weight decay of the head.
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
        self.optimizers = {
            "fairness": make_optimizer([{"params": self.fair, "lr": fair_rate}], fair_optimizer),
            "accuracy": make_optimizer(parts, "adam"),
        }

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Step on the gap, then, at the new weights, on the prediction loss."""
        logits = self.processes.forward(self.net, x)
        joint = self.processes.all_gather(logits.detach(), y.shape[-1])
        cotangent = self.objective.disparity(joint, y).gradient * self.etas[:, None, None]
        wanted = self.fair + (self.rest if self.accumulate else [])
        found = self.processes.all_sum(
            _gradients(logits, wanted, self.processes.local_rows(cotangent))
        )
        set_grads(self.fair, found[: len(self.fair)])
        match_strides(self.fair)
        self.optimizers["fairness"].step()
        logits = self.processes.forward(self.net, x)
        cotangent = self.objective.accuracy(
            self.processes.all_gather(logits.detach(), y.shape[-1]), y
        ).gradient
        grads = self.processes.all_sum(
            _gradients(logits, self.rest, self.processes.local_rows(cotangent))
        )
        if self.accumulate:
            grads = list(torch._foreach_add(grads, found[len(self.fair) :]))
        set_grads(self.rest, grads)
        match_strides(self.rest)
        self.optimizers["accuracy"].step()
        return joint

    def check(self) -> None:
        """Raise if the state is no longer finite, naming the rate to lower."""
        refuse_nonfinite(self.fair, "the fairness part", "eta` or `fair_rate")
        refuse_nonfinite(self.rest, "the accuracy part", "eta` or `learning_rate")

    def keep(self, runs: Sequence[int]) -> None:
        """Keep some of the net's runs only."""
        self.etas = take_runs(self.etas, self.net.runs, runs)
        super().keep(runs)


class YOTOStep(Step):
    """A step on both losses, with a weight that is drawn for every batch and fed to the net.

    Parameters
    ----------
    net : DialNet
        Net with ``film``.
    objective : Tradeoff
        The losses.
    bounds : (float, float)
        Range of the weight, which is log-uniform.
    condition : callable
        Maps a weight to the number that the net gets.
    rate : float
        Learning rate of Adam.
    seed : int
        Seed of the weights that are drawn.
    weight_decay : float
        Weight decay of the head.
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
        self.optimizers = {"all": make_optimizer(_with_decay(net, rate, weight_decay), "adam")}

    def draw(self) -> list[float]:
        """Draw a weight for each member (M,), log-uniform between the bounds."""
        low, high = np.log(self._bounds)
        u = torch.rand(self.net.members, generator=self._generator, dtype=torch.float64)
        return [float(w) for w in np.exp(low + (high - low) * u.numpy())]

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Take one step at newly drawn weights."""
        weights = self.draw()
        self.optimizers["all"].zero_grad(set_to_none=True)
        condition = x.new_tensor([self._condition(w) for w in weights])
        logits = self.processes.forward(self.net, x, condition)
        joint = self.processes.all_gather(logits.detach(), y.shape[-1])
        scale = joint.new_tensor(weights)[:, None, None]
        cotangent = self.objective.accuracy(joint, y).gradient
        cotangent = cotangent + scale * self.objective.disparity(joint, y).gradient
        self.processes.backward(logits, self.processes.local_rows(cotangent))
        self.processes.all_sum([], grads_of=self.net)
        match_strides(self._params)
        self.optimizers["all"].step()
        return joint

    def state(self) -> dict[str, Tensor]:
        """Return the state of the random generator."""
        return {"draws": self._generator.get_state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from :meth:`state`."""
        self._generator.set_state(state["draws"])


def _trained(net: DialNet) -> dict[str, nn.Parameter]:
    """Return the parameters that aren't frozen, by name."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad}


def _with_decay(
    net: DialNet, rate: float, weight_decay: float, *, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return parameter groups for an optimizer, with weight decay on the head."""
    trained = {name: p for name, p in _trained(net).items() if name not in without}
    head = [p for name, p in trained.items() if name.startswith("head.")]
    others = [p for name, p in trained.items() if not name.startswith("head.")]
    parts = [
        {"params": others, "lr": rate},
        {"params": head, "lr": rate, "weight_decay": weight_decay},
    ]
    return [part for part in parts if part["params"]]


def _gradients(
    logits: Tensor, params: Sequence[nn.Parameter], cotangent: Tensor, *, again: bool = False
) -> list[Tensor]:
    """Return the parameters' gradients for a cotangent of the logits; 0 for unused ones."""
    found = torch.autograd.grad(logits, params, cotangent, retain_graph=again, allow_unused=True)
    return [g if g is not None else torch.zeros_like(p) for p, g in zip(params, found, strict=True)]


def _owner(net: DialNet, name: str) -> int | None:
    """Return the member that a parameter belongs to; None if its first axis covers all."""
    parts = name.split(".")
    if parts[:2] == ["trunk", "nets"]:
        return int(parts[2]) // net.copies
    return None


def _take(array: Floats, runs: int, kept: Sequence[int]) -> Floats:
    """Return some runs' part of an array whose first axis goes through all runs."""
    return array.reshape(runs, -1, *array.shape[1:])[list(kept)].reshape(-1, *array.shape[1:])
