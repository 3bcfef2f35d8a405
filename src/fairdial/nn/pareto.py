"""The search direction of Exact Pareto Optimal search (Mahapatra and Rajan, 2020).

From losses ``l``, the Gram matrix ``C = G G^T`` of their gradients and preferences ``r``, a small
linear program finds weights ``alpha``. A step along ``alpha^T G`` makes the ``r_i l_i`` more
equal (balance) or, once they are equal, lowers every loss (descent). Computed in NumPy float64, for
n independent problems of m losses at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from fairdial._arrays import Floats, Mask

UNIFORM = 1e-4  # descent starts at this non-uniformity
LEAST_LOSS = 1e-12
DEGENERATE = 1e-12  # c of this size, relative to C, is float noise
ROUNDING = 1e-6  # ends of a segment that cross by less do so by rounding, even in float32
EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)


def reference_vectors(n: int, *, offset: float = 1e-4) -> tuple[Floats, Floats]:
    """Return angles (n,) and preferences (n, 2), from accuracy (1, 0) to disparity (0, 1).

    Parameters
    ----------
    n : int
        How many, evenly spaced in angle; a single one is in the middle.
    offset : float
        Distance from the axes, where a preference is 0, as a share of the quarter circle.

    Examples
    --------
    >>> from fairdial.nn.pareto import reference_vectors
    >>> angles, vectors = reference_vectors(3)
    >>> vectors.round(4)
    array([[1.000e+00, 2.000e-04],
           [7.071e-01, 7.071e-01],
           [2.000e-04, 1.000e+00]])
    """
    shares = np.array([0.5]) if n == 1 else np.linspace(offset, 1.0 - offset, n)
    angles = shares * (np.pi / 2.0)
    return angles, np.column_stack((np.cos(angles), np.sin(angles)))


def non_uniformity(losses: Floats, preferences: Floats) -> tuple[Floats, Floats]:
    """Return how far the weighted losses are from being equal, and the gradient of that.

    Parameters
    ----------
    losses : (n, m) float64
        Losses; smaller ones count as 1e-12.
    preferences : (n, m) float64
        Nonnegative, and not all 0 in a row.

    Returns
    -------
    mu : (n,) float64
        Divergence of the shares of ``r * l`` from uniform: 0 where they are equal, at most log m.
    a : (n, m) float64
        The gradient of mu by the losses, times the sum of ``r * l``.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.nn.pareto import non_uniformity
    >>> mu, a = non_uniformity(np.array([[0.2, 0.4]]), np.array([[2.0, 1.0]]))
    >>> float(mu[0])
    0.0
    """
    weighted = _weighted(losses, preferences)
    share = weighted / weighted.sum(axis=1, keepdims=True)  # (n, m)
    log = np.log(share.shape[1] * np.maximum(share, TINY))
    mu = np.where(share > EPS, share * log, 0.0).sum(axis=1)
    return mu, preferences * (log - mu[:, None])


def epo_weights(
    losses: Floats, gram: Floats, preferences: Floats, *, restricted: bool = True
) -> Floats:
    """Return weights (n, m) of the gradients, each row in the simplex.

    The step is along ``m * alpha^T G``. In balance, a loss may rise.

    Parameters
    ----------
    losses : (n, m)
        Losses; smaller ones count as 1e-12.
    gram : (n, m, m)
        Inner products of the gradients. Their scale does not matter.
    preferences : (n, m)
        Nonnegative, and not all 0 in a row; a larger one asks for a smaller loss. Their scale
        matters in balance: use unit vectors.
    restricted : bool
        Whether descent must keep the weighted losses as equal as possible.

    Returns
    -------
    alpha : (n, m) float64
        Where the program has no solution, the preferences, scaled to sum to 1. This happens if
        gradients are all zero, numbers are not finite, or constraints contradict each other (only
        in restricted descent of more than two losses).

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.nn.pareto import epo_weights
    >>> gradients = np.array([[1.0, 0.0], [-0.5, 1.0]])
    >>> losses, preferences = np.array([[0.9, 0.1]]), np.array([[0.6, 0.8]])
    >>> epo_weights(losses, (gradients @ gradients.T)[None], preferences)  # the first is too large
    array([[1., 0.]])
    """
    losses, gram = np.asarray(losses, np.float64), np.asarray(gram, np.float64)
    preferences = np.asarray(preferences, np.float64)
    with np.errstate(all="ignore"):  # not finite, 0 / 0 included: the fallback
        trace = np.trace(gram, axis1=1, axis2=2)
        programs = _programs(losses, gram / trace[:, None, None], preferences, restricted)
        sound = np.isfinite(trace) & np.isfinite(programs.rows).all(axis=(1, 2))
        alpha = _ends(programs) if losses.shape[1] == 2 else _vertices(programs, sound)
    sound &= np.isfinite(alpha).all(axis=1)
    fallback = preferences / preferences.sum(axis=1, keepdims=True)
    return np.where(sound[:, None], alpha, fallback)


class _Programs(NamedTuple):
    """Maximize ``gain . alpha`` over the simplex, subject to ``rows @ alpha >= floors``."""

    gain: Floats  # (n, m)
    rows: Floats  # (n, m + 1, m): C, then c
    floors: Floats  # (n, m + 1): -inf where a row is no constraint


def _programs(losses: Floats, gram: Floats, preferences: Floats, restricted: bool) -> _Programs:
    """Return the linear programs, of balance or of descent, whichever applies."""
    mu, a = non_uniformity(losses, preferences)
    weighted = _weighted(losses, preferences)
    c = np.einsum("nij,nj->ni", gram, a)  # a step along g_i lowers mu at a rate of c_i
    helps = c > 0
    held = np.where(helps, -np.inf, c)
    held[weighted == weighted.max(axis=1, keepdims=True)] = 0.0
    held[~helps.any(axis=1)] = 0.0

    balance = mu > UNIFORM
    noise = np.abs(c).max(axis=1) <= DEGENERATE * np.abs(gram).max(axis=(1, 2))
    last = np.where(balance | noise | (not restricted), -np.inf, np.minimum(c.max(axis=1), 0.0))
    return _Programs(
        gain=np.where(balance[:, None], c, gram.sum(axis=1)),
        rows=np.concatenate((gram, c[:, None]), axis=1),
        floors=np.column_stack((np.where(balance[:, None], held, 0.0), last)),
    )


def _ends(programs: _Programs) -> Floats:
    """Solve for m = 2: ``alpha = (s, 1 - s)``, with s an end of the feasible segment.

    A row without slope holds for every s, since C is semi-definite. NaN where none is feasible.
    """
    first, second = programs.rows[..., 0], programs.rows[..., 1]  # (n, 3)
    slope = first - second
    crossing = (programs.floors - second) / slope
    low = np.where(slope > 0, crossing, 0.0).max(axis=1).clip(min=0.0)  # (n,)
    high = np.where(slope < 0, crossing, 1.0).min(axis=1).clip(max=1.0)
    s = np.where(programs.gain[:, 0] > programs.gain[:, 1], high, low)
    s[low - high > ROUNDING] = np.nan
    return np.column_stack((s, 1.0 - s))


def _vertices(programs: _Programs, sound: Mask) -> Floats:
    """Solve for any m by linear programming; NaN where not sound or not solved."""
    alpha = np.full_like(programs.gain, np.nan)
    for i in np.flatnonzero(sound):
        asked = np.isfinite(programs.floors[i])
        rows, floors = programs.rows[i, asked], programs.floors[i, asked, None]
        size = np.abs(rows).max(axis=1, keepdims=True)  # the solver's tolerances are absolute
        rows, floors = (part / np.where(size > 0, size, 1.0) for part in (rows, floors))
        gain = programs.gain[i] / max(np.abs(programs.gain[i]).max(), TINY)
        found = linprog(-gain, -rows, -floors, np.ones((1, len(gain))), 1.0, method="highs")
        if found.success:
            alpha[i] = found.x.clip(min=0.0) / found.x.clip(min=0.0).sum()
    return alpha


def _weighted(losses: Floats, preferences: Floats) -> Floats:
    """Return ``r * l``, with losses above 0."""
    return np.asarray(preferences * np.maximum(losses, LEAST_LOSS), np.float64)
