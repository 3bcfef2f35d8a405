"""Scores on validation rows, by which training selects the epoch to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Codes, Floats, Scores, Weights
from fairdial.core.decide import (
    accuracy_of_counts,
    by_label,
    count_rows,
    count_selected,
    select,
)
from fairdial.core.problem import Problem
from fairdial.core.sweep import find_kinds, sweep_encoded
from fairdial.errors import InvalidInputError
from fairdial.metrics import given_back, hypervolume
from fairdial.nn.data import Inputs, TrainingData
from fairdial.nn.nets import DialNet, ModuleStack
from fairdial.nn.process_group import SINGLE_PROCESS, ProcessGroup
from fairdial.nn.scorer import score_runs, trunk_features
from fairdial.nn.tradeoff import Tradeoff

TOLERANCES = 50  # points of the curve whose hypervolume selects the epoch
FEW_TOLERANCES = 5  # where each one is searched for
REFERENCE = (0.0, 1.0)  # accuracy and gap at the hypervolume's reference point


# ---- one net with thresholds -------------------------------------------------------------------


def score_dial(
    net: DialNet, data: TrainingData, processes: ProcessGroup = SINGLE_PROCESS, by: str = "dial"
) -> dict[str, float]:
    """Return the score of a net's dial on validation rows, with other figures."""
    return dial_figures(_validation_logits(net, data, processes)[0], data, by)


def dial_figures(logits: Scores, data: TrainingData, by: str = "dial") -> dict[str, float]:
    """Return the score of the validation rows' frontier, with other figures of the dial.

    Figures of the fairest point are for simple criteria only: others search for it.

    "hypervolume" is the paper's: 50 tolerances, reference (0, 1). It doesn't notice a net that is
    less accurate at loose tolerances than at strict ones. "dial", the area under the accuracy that
    the dial delivers at tolerances from 0 to 1, equals it where accuracy rises with the gap.
    """
    codes, y = data.codes[data.validation], data.positive[data.validation]
    weights = data.weights_of(data.validation)
    try:
        frontier = sweep_encoded(
            logits,
            codes,
            y,
            Problem(data.criterion),
            tuple(range(data.n_groups)),
            strata=data.strata_of(data.validation),
            weights=weights,
            min_count=1,
        )
    except InvalidInputError:  # too few rows for a frontier: accuracy only
        accuracy = float(np.average(select(logits, 0.0) == y, weights=weights))
        return {"score": accuracy, "accuracy": accuracy}
    if data.criterion.is_simple:
        points, loosest = frontier.points, float(frontier.gap[0])
        tolerances = np.linspace(0.0, loosest, TOLERANCES)
        table = points.tabulate(points.find(tolerances)[0])
    else:  # every tolerance is searched for; 0 may be out of reach, which is hard to prove
        loosest = min(_unconstrained_gap(logits, data), 1.0)
        tolerances = np.linspace(0.0, loosest, FEW_TOLERANCES + 1)[1:]
        table, _ = frontier.points.choose(tolerances)
    thresholds, selected = table.read(np.arange(len(table)))
    accuracies = accuracy_of_counts(by_label(selected, 2), frontier.counts)
    area = hypervolume(np.column_stack((accuracies, table.gap)), REFERENCE)
    dial = float(loosest * accuracies.mean() + (1.0 - loosest) * accuracies[-1])
    figures = {
        "score": area if by == "hypervolume" else dial,
        "hypervolume": area,
        "accuracy": float(accuracies[-1]),
        "selection_rate": float(np.average(select(logits, 0.0), weights=weights)),
        "gap": loosest,
    }
    if not data.criterion.is_simple:  # the strictest of a few tolerances isn't the fairest point
        return figures
    figures["fairest_gap"] = float(frontier.gap.min())
    return figures | interval_figures(logits, codes, thresholds[0], weights)


def _unconstrained_gap(logits: Scores, data: TrainingData) -> float:
    """Return the criterion's gap on validation rows where the threshold is 0 in all groups."""
    return float(gaps_of(logits[None], data)[0])


def gaps_of(logits: Scores, data: TrainingData) -> Floats:
    """Return the criterion's gaps (R,) of logits (R, n) on validation rows, selected above 0."""
    places = data.validation
    kinds = find_kinds(data.positive[places], data.strata_of(places))
    rows = kinds, data.n_groups, 2 * data.criterion.n_strata, data.weights_of(places)
    selected = count_selected(logits, data.codes[places], *rows)
    return data.criterion.gap_of(selected, count_rows(data.codes[places], *rows))


def interval_figures(
    logits: Scores, codes: Codes, fairest: Floats, weights: Weights | None = None
) -> dict[str, float]:
    """Return the share of rows between 0 and the fairest thresholds, and what they are worth.

    The worth is eq:acc_dep at delta = 1. By thm:threshold_shift_error it is the accuracy that the
    strictest operating point costs, for rules of the form eq:f_thm; those of the path are of this
    form (cor:applicability).
    """
    share, worth = given_back(logits, codes, np.zeros_like(fairest), fairest, weights)
    return {
        "interval_share": share,
        "acc_dep": worth,
        **{f"fairest_{a}": float(value) for a, value in enumerate(fairest)},
    }


# ---- nets trained at several trade-offs --------------------------------------------------------


def score_weighted(
    net: DialNet,
    data: TrainingData,
    processes: ProcessGroup = SINGLE_PROCESS,
    *,
    objective: Tradeoff,
    weights: Floats,
) -> dict[str, Any]:
    """Return minus each run's weighted sum of the two losses; lists if there are several runs.

    Parameters
    ----------
    net : DialNet
        The net; ``net.kept`` names the runs that it still holds.
    data : TrainingData
        Its validation rows are scored.
    processes : ProcessGroup
        The processes that share the work.
    objective : Tradeoff
        The losses.
    weights : (R, 2) array
        Weights of prediction loss and gap, for every run of the training.
    """
    figures = tradeoff_figures(_validation_logits(net, data, processes), data, objective)
    kept = weights[net.kept]
    figures["score"] = -(kept[:, 0] * figures["held_loss"] + kept[:, 1] * figures["held_disparity"])
    several = len(weights) > 1
    return {k: v.tolist() if several else float(v[0]) for k, v in figures.items()}


def score_conditions(
    net: DialNet,
    data: TrainingData,
    processes: ProcessGroup = SINGLE_PROCESS,
    *,
    objective: Tradeoff,
    weights: Sequence[float] | Floats,
    conditions: Sequence[float],
) -> dict[str, float]:
    """Return minus the mean over weights of loss + weight * gap, each at its condition."""
    codes, validation = data.codes[data.validation], data.validation
    inputs: Inputs = data.inputs
    options: dict[str, Any] = {"positions": validation}
    if isinstance(net.trunk, ModuleStack):  # its features are the same at all conditions
        inputs = trunk_features(net, data.inputs, codes, positions=validation)
        options = {"features": True}
    logits = np.concatenate(
        [
            score_runs(net, inputs, codes, condition=c, processes=processes, **options)
            for c in conditions
        ]
    )
    figures = tradeoff_figures(logits, data, objective)
    total = figures["held_loss"] + np.asarray(weights) * figures["held_disparity"]
    return {
        "score": -float(total.mean()),
        "accuracy": float(figures["accuracy"].mean()),
        **{f"{name}_loose": float(values[0]) for name, values in figures.items()},
        **{f"{name}_strict": float(values[-1]) for name, values in figures.items()},
    }


def tradeoff_figures(logits: Scores, data: TrainingData, objective: Tradeoff) -> dict[str, Floats]:
    """Return both losses, accuracy and gap (R,) of logits (R, n) on validation rows."""
    codes, y = data.codes[data.validation], data.positive[data.validation]
    weights = data.weights_of(data.validation)
    loss, disparity = objective.on_rows(logits, y, codes, weights)
    selected = select(logits, 0.0)
    return {
        "held_loss": loss,
        "held_disparity": disparity,
        "accuracy": np.asarray(np.average(selected == y, axis=1, weights=weights)),
        "selection_rate": np.asarray(np.average(selected, axis=1, weights=weights)),
        "gap": gaps_of(logits, data),
    }


def _validation_logits(
    net: DialNet, data: TrainingData, processes: ProcessGroup
) -> NDArray[np.floating[Any]]:
    """Return each run's logits of the validation rows, (R, n)."""
    codes, positions = data.codes[data.validation], data.validation
    return score_runs(net, data.inputs, codes, positions=positions, processes=processes)
