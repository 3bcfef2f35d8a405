"""MA-SOBA for GFB: three directions from one forward and one backward pass.

With the trunk's weights ``theta_g``, the head's ``theta_z`` and the auxiliary variable ``w``
(``grad_g`` and ``grad_z``: gradients in these weights; ``H``: the head's Hessian of L_pred):

- inner: ``D_z = grad_z L_pred``;
- auxiliary: ``D_w = H w - grad_z L_gen``;
- outer: ``D_g = grad_g L_gen - grad_g <grad_z L_pred, w>``.

At the logits, ``u`` and ``c`` are the first and second derivative of L_pred and ``v`` the first of
L_gen, all in closed form. With the tangent ``zd`` of the logits along ``w``, the scalar
``S = <v - c zd, z> - <u, zd>`` (with ``u``, ``v`` and ``c zd`` held fixed) gives all three:
``dS/dtheta_g = D_g``, ``dS/dtheta_z = -D_w``, ``dS/dw = -D_z``. The trunk needs a first-order
backward pass only; the second-order terms are confined to the head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairdial._arrays import Floats
from fairdial.nn.equal_odds import STIFFNESS
from fairdial.nn.fairest import Compared, find_thresholds
from fairdial.nn.implicit import CLAMP
from fairdial.nn.losses import SHARPNESS, boundary_distance, focal
from fairdial.nn.nets import DialNet, Head, Tangent
from fairdial.nn.process_group import SINGLE_PROCESS, ProcessGroup


class Cotangents(NamedTuple):
    """Derivatives of both objectives in the logits, of the logits' shape if not said otherwise."""

    u: Tensor  # L_pred, first
    c: Tensor  # L_pred, second; for several classes, see `curved`
    v: Tensor  # L_gen, first
    v_distance: Tensor  # the part of v due to (1 - weight) L_dist
    distant: Tensor  # (M,): whether the joint batch has a distance loss that depends on the logits


class Bilevel(Protocol):
    """The two objectives of GFB as functions of the logits, (M, G, B) or (M, G, C, B)."""

    t: Floats | None  # where the search for the fairest rule starts

    def plain(self) -> Bilevel:
        """Return the objective of plain training."""

    def prediction(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first derivative of L_pred and its curvature."""

    def losses(self, logits: Tensor, y: Tensor, runs: int = 1) -> dict[str, Tensor]:
        """Return the losses, for the record."""

    def __call__(self, logits: Tensor, y: Tensor) -> Cotangents:
        """Return the derivatives of both objectives."""


def curved(c: Tensor, along: Tensor) -> Tensor:
    """Return the second derivative of L_pred times a tangent of the logits, (S, B) or (S, B, C).

    For one logit, c is the second derivative. For a logit of each class, c holds the class
    probabilities p times the scale s of the mean: the second derivative is ``s (diag(p) - p p')``.
    """
    if along.ndim == 2:
        return c * along
    product = c * along
    return product - c * (product.sum(-1, keepdim=True) / c.sum(-1, keepdim=True))


@dataclass
class Objective:
    """The two objectives of GFB as functions of the logits, means over the groups.

    Parameters
    ----------
    rate : Rate or (Rate, Rate)
        Rate of the criterion; the true and the false positive rate for equalized odds.
    shares : (G,) or (2, G) array
        P(group, eligible) of the training rows, or P(group, label).
    weight : float
        lambda of eq:l_gen; 1 is plain prediction loss.
    gamma : float
        Focusing exponent of the prediction loss.
    sharpness : float
        k of the sigmoids.
    clamp : float
        Distance that t keeps from the ends of its domain.
    hard : bool
        Use the root of the batch's hard disparity, as in the authors' code (two groups).
    accuracy : float
        Accuracy of the root.
    stiffness : float
        Price of a rate's distance from the mean; only for equalized odds.
    """

    rate: Compared
    shares: Floats
    weight: float = 0.95
    gamma: float = 0.0
    sharpness: float = SHARPNESS
    clamp: float = CLAMP
    hard: bool = False
    accuracy: float = 1e-8  # far below the noise of a batch
    stiffness: float = STIFFNESS
    t: Floats | None = field(default=None, repr=False)  # the last roots: the next start

    def plain(self) -> Objective:
        """Return the objective of plain training."""
        return replace(self, weight=1.0)

    def prediction(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and second derivative of L_pred (eq:l_pred) in the logits (M, G, B)."""
        _, first, second = focal(logits, y, self.gamma, value=False)
        scale = 1.0 / y.numel()  # mean of a group, then over groups
        return first.mul_(scale), second.mul_(scale)

    def losses(self, logits: Tensor, y: Tensor, runs: int = 1) -> dict[str, Tensor]:
        """Return L_pred and L_dist of one run, for the record."""
        assert runs == 1
        losses = {"loss": focal(logits, y, self.gamma).value.mean()}
        if self.weight < 1.0:
            losses["distance"] = torch.as_tensor(self._distance(logits, y)[0].mean())
        return losses

    def __call__(self, logits: Tensor, y: Tensor) -> Cotangents:
        """Return the derivatives, with those of L_gen (eq:l_gen), at logits (M, G, B)."""
        u, c = self.prediction(logits, y)
        if self.weight == 1.0:
            none = torch.zeros(len(u), dtype=torch.bool, device=u.device)
            return Cotangents(u, c, u, torch.zeros_like(u), none)
        part = like((1.0 - self.weight) * self._distance(logits, y)[1], logits)
        distant = part.flatten(1).any(dim=1)
        return Cotangents(u, c, torch.add(part, u, alpha=self.weight), part, distant)

    def _distance(self, logits: Tensor, y: Tensor) -> tuple[Floats, Floats]:
        """Return L_dist (M,), eq:L_dist, and its derivative in the logits.

        The derivative includes the thresholds, which follow t(Z) with gradient eq:nabla_t.
        """
        z = logits.cpu().numpy().astype(np.float64)
        found = find_thresholds(
            z,
            (y == 1).cpu().numpy(),
            self.rate,
            self.shares,
            sharpness=self.sharpness,
            start=self.t,
            clamp=self.clamp,
            hard=self.hard,
            accuracy=self.accuracy,
            stiffness=self.stiffness,
        )
        if found is None:  # no eligible row in a group: no threshold
            return np.zeros(len(z)), np.zeros_like(z)
        self.t = found.start
        d = boundary_distance(z, found.thresholds[:, :, None], self.sharpness)
        scale = 1.0 / y.numel()  # mean of a group, then over groups
        by_logit = d.by_logit + found.pull_back(d.by_threshold.sum(axis=-1))
        return d.value.mean(axis=(1, 2)), scale * by_logit


def like(array: NDArray[Any], tensor: Tensor) -> Tensor:
    """Return an array as a tensor of another's precision and device."""
    kind = np.float64 if tensor.dtype == torch.float64 else np.float32
    return torch.from_numpy(array.astype(kind, copy=False)).to(tensor)


class Directions(NamedTuple):
    """Directions of the three variables; the trunk's is left in its ``.grad``."""

    inner: list[Tensor]  # D_z
    auxiliary: list[Tensor]  # D_w
    cotangents: Cotangents  # of this process's rows
    features: Tensor  # (S, B', f) of this process's rows, detached
    logits: Tensor  # of the joint batch
    tangent: Tangent | None  # of the library's own head, along w


def directions(
    net: DialNet,
    x: Tensor,
    y: Tensor,
    w: Sequence[Tensor],
    objective: Bilevel,
    processes: ProcessGroup = SINGLE_PROCESS,
    move_head: Callable[[list[Tensor]], None] | None = None,
) -> Directions:
    """Compute D_g (in the trunk's ``.grad``), D_z and D_w: eq:d_ga, eq:d_za, eq:w.

    With several processes, x is this process's part of the joint batch and y holds all its labels.
    ``move_head(D_z)``, if given, moves the head before the other directions are computed, on the
    same features: the trunk has one forward and one backward pass either way. The logits are those
    before the move.
    """
    features = processes.forward(net.trunk, net.arrange(x))  # with graph
    fixed = features.detach()
    compute = _explicit if isinstance(net.head, Head) else _by_double_backward
    inner, auxiliary, df, cotangents, logits, tangent = compute(
        net, fixed, y, w, objective, processes
    )
    if move_head is not None:
        inner = processes.all_sum(inner)
        move_head(inner)
        _, auxiliary, df, cotangents, _, tangent = compute(net, fixed, y, w, objective, processes)
    if features.requires_grad:
        processes.backward(features, df)
    if move_head is not None:
        auxiliary = processes.all_sum(auxiliary, grads_of=net.trunk)
    else:
        both = processes.all_sum(inner + auxiliary, grads_of=net.trunk)
        inner, auxiliary = both[: len(inner)], both[len(inner) :]
    return Directions(inner, auxiliary, cotangents, fixed, logits, tangent)


def _at_logits(
    logits: Tensor, y: Tensor, objective: Bilevel, processes: ProcessGroup
) -> tuple[Cotangents, Tensor]:
    """Return derivatives in these rows' logits, and the joint batch's logits."""
    joint = processes.all_gather(logits, y.shape[-1])
    *rows, distant = objective(joint, y)
    u, c, v, v_distance = map(processes.local_rows, rows)
    return Cotangents(u, c, v, v_distance, distant), joint


def _own_head(net: DialNet) -> Head:
    """Return the net's head, which must be the library's own."""
    if not isinstance(net.head, Head):
        raise TypeError(f"the head must be a fairdial.nn.nets.Head, got {type(net.head).__name__}")
    return net.head


Parts = tuple[list[Tensor], list[Tensor], Tensor, Cotangents, Tensor, Tangent | None]


@torch.no_grad()
def _explicit(
    net: DialNet,
    features: Tensor,
    y: Tensor,
    w: Sequence[Tensor],
    objective: Bilevel,
    processes: ProcessGroup,
) -> Parts:
    head = _own_head(net)
    t = head.tangent(features, w)
    cot, logits = _at_logits(net.pairs(t.logits), y, objective, processes)
    if t.along.ndim == 2:
        minus_cz = torch.addcmul(-net.flat(cot.v), net.flat(cot.c), t.along)
    else:
        minus_cz = curved(net.flat(cot.c), t.along) - net.flat(cot.v)
    auxiliary, inner, minus_df = head.pullback(features, w, t, minus_cz, net.flat(cot.u))  # of -S
    return inner, auxiliary, minus_df.neg_(), cot, logits, t


def _by_double_backward(
    net: DialNet,
    features: Tensor,
    y: Tensor,
    w: Sequence[Tensor],
    objective: Bilevel,
    processes: ProcessGroup,
) -> Parts:
    """Compute the same for a user's own head: correct for every layer, at twice the cost."""
    params = list(net.head.parameters())
    source = features.clone().requires_grad_()
    logits = net.head(source)
    cot, joint = _at_logits(net.pairs(logits.detach()), y, objective, processes)
    dummy = torch.zeros_like(logits, requires_grad=True)  # J' is linear: <J' a, w> = <a, J w>
    pullback = torch.autograd.grad(logits, params, dummy, create_graph=True)
    product = torch.stack([(g * d).sum() for g, d in zip(pullback, w, strict=True)]).sum()
    (along,) = torch.autograd.grad(product, dummy, create_graph=True)  # zd
    u, c, v = (net.flat(part) for part in (cot.u, cot.c, cot.v))
    inner = torch.autograd.grad(logits, params, u, retain_graph=True)
    s = ((v - curved(c, along.detach())) * logits).sum() - (u * along).sum()
    *minus_auxiliary, df = torch.autograd.grad(s, [*params, source], materialize_grads=True)
    return list(inner), [-g for g in minus_auxiliary], df, cot, joint, None


# ---- the auxiliary system H w = grad_z L_gen ---------------------------------------------------


def dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """Return the inner products (S,), net by net."""
    return torch.stack([(p * q).flatten(1).sum(1) for p, q in zip(a, b, strict=True)]).sum(0)


def _expand(scalars: Tensor, like: Tensor) -> Tensor:
    return scalars.view(-1, *([1] * (like.ndim - 1)))


class GaussNewton:
    """The positive semi-definite part of the head's Hessian, ``J' c J + damping``.

    Products with it are sums over the joint batch; features and c belong to this process's rows.
    """

    def __init__(
        self,
        head: Head,
        features: Tensor,
        c: Tensor,
        damping: float,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self.head, self.features, self.c, self.damping = head, features, c, damping
        self.processes = processes

    def __call__(self, p: Sequence[Tensor], t: Tangent | None = None) -> list[Tensor]:
        """Return the product with ``p`` (``t``: the head's tangent along ``p``, if known)."""
        t = self.head.tangent(self.features, p) if t is None else t
        product = self.processes.all_sum(
            self.head.transpose(self.features, t, curved(self.c, t.along))
        )
        return [g.add_(d, alpha=self.damping) for g, d in zip(product, p, strict=True)]

    def residual(
        self, w: Sequence[Tensor], right: Tensor, t: Tangent | None = None
    ) -> list[Tensor]:
        """Return the residual of ``w`` for the right-hand side ``J' right``."""
        t = self.head.tangent(self.features, w) if t is None else t
        along = curved(self.c, t.along)
        rest = self.processes.all_sum(self.head.transpose(self.features, t, along - right))
        return [g.add_(d, alpha=self.damping) for g, d in zip(rest, w, strict=True)]

    def largest(self, p: list[Tensor], rounds: int = 1) -> tuple[Tensor, list[Tensor]]:
        """Estimate the largest curvature (S,) by power iteration; return ``p`` too."""
        size = dot(p, p).sqrt()
        for _ in range(rounds):
            p = self(p)
            size = dot(p, p).sqrt().clamp_min(1e-30)
            p = [g / _expand(size, g) for g in p]
        return size, p

    def solve(
        self, right: Tensor, w: Sequence[Tensor], rounds: int, t: Tangent | None = None
    ) -> list[Tensor]:
        """Solve for ``w`` with the right-hand side ``J' right``.

        Exact for a linear head with one logit; otherwise by conjugate gradients from the given
        ``w``, net by net.
        """
        if len(w) == 2 and right.ndim == 2:
            return self._solve_linear(right)
        rest = [r.neg_() for r in self.residual(w, right, t)]
        p = [r.clone() for r in rest]
        size = dot(rest, rest)
        w = [x.clone() for x in w]
        for _ in range(rounds):
            ap = self(p)
            step = size / dot(p, ap).clamp_min(1e-30)
            for x, d, r, a in zip(w, p, rest, ap, strict=True):
                x += _expand(step, x) * d
                r -= _expand(step, r) * a
            new = dot(rest, rest)
            p = [
                r + _expand(new / size.clamp_min(1e-30), d) * d
                for r, d in zip(rest, p, strict=True)
            ]
            size = new
        return w

    def _solve_linear(self, right: Tensor) -> list[Tensor]:
        f = torch.cat((self.features, torch.ones_like(self.features[..., :1])), dim=-1)
        matrix = torch.bmm(f.transpose(1, 2), self.c.unsqueeze(-1) * f)
        both = torch.bmm(f.transpose(1, 2), right.unsqueeze(-1))
        matrix, both = self.processes.all_sum([matrix, both])
        matrix.diagonal(dim1=1, dim2=2).add_(self.damping)
        found = torch.linalg.solve(matrix.double(), both.double())
        found = found.to(f.dtype)
        return [found[:, :-1].contiguous(), found[:, -1:].contiguous()]


@torch.no_grad()
def residual(
    net: DialNet,
    x: Tensor,
    y: Tensor,
    w: Sequence[Tensor],
    objective: Bilevel,
    *,
    damping: float = 0.0,
    processes: ProcessGroup = SINGLE_PROCESS,
) -> float:
    """Return how far ``w`` is from solving its system, ``|H w - g| / |g|``, averaged over nets.

    0 is solved, 1 is as good as ``w = 0``. H is the positive semi-definite part of the Hessian and
    g the gradient of the distance loss only: the gradient of the prediction loss is 0 at the inner
    optimum, but on a single batch its noise would hide whether ``w`` has any effect. NaN for
    batches without a distance loss.
    """
    features = processes.forward(net.trunk, net.arrange(x))
    head = _own_head(net)
    t = head.tangent(features, w)
    cot, _ = _at_logits(net.pairs(t.logits), y, objective, processes)
    system = GaussNewton(head, features, net.flat(cot.c), damping, processes)
    right = net.flat(cot.v_distance)
    rest = system.residual(w, right, t)
    whole = processes.all_sum(head.transpose(features, t, right))
    size = dot(whole, whole).sqrt().clamp_min(1e-30)
    return float(torch.where(size > 1e-30, dot(rest, rest).sqrt() / size, torch.nan).nanmean())
