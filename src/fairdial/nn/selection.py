"""Which epoch is kept, by validation rows: the comparison methods' own losses there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial.nn.fitting import Held
from fairdial.nn.nets import DialNet, ModuleStack
from fairdial.nn.scorer import score_runs, trunk_features
from fairdial.nn.tradeoff import Tradeoff

Floats = NDArray[np.float64]


def score_weighted(
    net: DialNet, held: Held, *, objective: Tradeoff, weights: Floats
) -> dict[str, Any]:
    """Minus each run's weighted sum of the two losses; lists where there are several runs.

    Parameters
    ----------
    net : DialNet
        Its ``kept`` says which runs it holds.
    held : Held
        Validation rows.
    objective : Tradeoff
        The losses.
    weights : (R, 2) array
        Of prediction loss and gap, for every run of the training.
    """
    logits = score_runs(net, held.rows, held.codes, world=held.world)
    figures = tradeoff_figures(logits, held, objective)
    mine = weights[net.kept]
    figures["score"] = -(mine[:, 0] * figures["held_loss"] + mine[:, 1] * figures["held_disparity"])
    several = len(weights) > 1
    return {k: v.tolist() if several else float(v[0]) for k, v in figures.items()}


def score_conditions(
    net: DialNet,
    held: Held,
    *,
    objective: Tradeoff,
    weights: Sequence[float],
    conditions: Sequence[float],
) -> dict[str, Any]:
    """Minus the mean over some weights of prediction loss + weight * gap, each at its condition."""
    fixed = isinstance(net.trunk, ModuleStack)  # then its features are the same at all conditions
    rows = trunk_features(net, held.rows, held.codes) if fixed else held.rows
    logits = np.concatenate(
        [
            score_runs(net, rows, held.codes, condition=c, features=fixed, world=held.world)
            for c in conditions
        ]
    )
    figures = tradeoff_figures(logits, held, objective)
    total = figures["held_loss"] + np.asarray(weights) * figures["held_disparity"]
    return {
        "score": -float(total.mean()),
        **{f"{name}_loose": float(values[0]) for name, values in figures.items()},
        **{f"{name}_strict": float(values[-1]) for name, values in figures.items()},
    }


def tradeoff_figures(logits: NDArray[Any], held: Held, objective: Tradeoff) -> dict[str, Floats]:
    """(R,) both losses, accuracy and gap of logits (R, n) on validation rows."""
    loss, disparity = objective.on_rows(logits, held.positive, held.codes)
    chosen, rates = logits > 0, []
    label = objective.rate.counted
    counted = np.ones(len(held.codes), bool) if label is None else held.positive == bool(label)
    for a in range(held.n_groups):
        rows = counted & (held.codes == a)
        if rows.any():
            rates.append(chosen[:, rows].mean(axis=1))
    return {
        "held_loss": loss,
        "held_disparity": disparity,
        "accuracy": np.asarray((chosen == held.positive).mean(axis=1)),
        "gap": np.ptp(np.array(rates), axis=0) if rates else np.zeros(len(logits)),
    }
