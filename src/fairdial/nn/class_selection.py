"""The score on validation rows of a net for more than two classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairdial._arrays import Codes, Floats, Weights
from fairdial.core.decide import count_rows
from fairdial.nn.class_prices import equalize_classes, softmax
from fairdial.nn.data import TrainingData
from fairdial.nn.nets import DialNet
from fairdial.nn.process_group import SINGLE_PROCESS, ProcessGroup
from fairdial.nn.scorer import score_runs

STIFFNESS = 200.0  # so that the strictest rule has nearly no gap
PARTS = 24  # rules between the one without prices and the strictest


class RuleFigures(NamedTuple):
    """Accuracy and gap of rules, from the one without prices to the strictest."""

    accuracy: Floats
    gap: Floats  # largest difference of a class's share between groups


def score_classes(
    net: DialNet, data: TrainingData, processes: ProcessGroup = SINGLE_PROCESS
) -> dict[str, float]:
    """Return the score of a net for several classes on validation rows, with other figures.

    It is the area under the accuracy that prices deliver at tolerances from 0 to 1, with prices
    proportional to the fairest ones.
    """
    codes, places = data.codes[data.validation], data.validation
    logits = score_runs(net, data.inputs, codes, positions=places, processes=processes)[0]
    weights = data.weights_of(places)
    y = np.asarray(data.y, np.int64)[places]
    rules = rules_between(np.asarray(logits, np.float64), codes, y, data.shares(), weights)
    loosest = float(rules.gap[0])
    tolerances = np.linspace(0.0, loosest, PARTS + 1)
    within = rules.gap <= tolerances[:, None]
    best = np.where(within, rules.accuracy, -np.inf).max(axis=1)
    best = np.where(np.isfinite(best), best, rules.accuracy[rules.gap.argmin()])
    accuracy = float(rules.accuracy[0])
    return {
        "score": loosest * float(best.mean()) + (1.0 - loosest) * accuracy,
        "accuracy": accuracy,
        "gap": loosest,
        "fairest_gap": float(rules.gap.min()),
    }


def rules_between(
    logits: Floats, codes: Codes, y: Codes, shares: Floats, weights: Weights | None = None
) -> RuleFigures:
    """Return figures of the rules that pay a part of the fairest prices, from none to all."""
    n_groups, n_classes = len(shares), logits.shape[1]
    p = softmax(logits)
    counts = np.bincount(codes, minlength=n_groups)
    if (counts == 0).any():  # nothing to compare
        prices = np.zeros((n_groups, n_classes))
    else:
        paired = np.zeros((1, n_groups, int(counts.max()), n_classes))
        there = np.zeros(paired.shape[1:3])
        for a in range(n_groups):
            own = codes == a
            paired[0, a, : counts[a]] = p[own]
            there[a, : counts[a]] = 1.0 if weights is None else weights[own]
        prices = equalize_classes(paired, shares, there, stiffness=STIFFNESS, accuracy=1e-6).prices[
            0
        ]
    accuracies, gaps = [], []
    for part in np.linspace(0.0, 1.0, PARTS + 1):
        decisions = (p - part * prices[codes]).argmax(axis=1)
        accuracies.append(float(np.average(decisions == y, weights=weights)))
        taken = count_rows(codes, decisions, n_groups, n_classes, weights=weights)  # (C, K)
        rates = taken / np.maximum(taken.sum(axis=0), np.finfo(float).tiny)
        gaps.append(float((rates.max(axis=1) - rates.min(axis=1)).max()))
    return RuleFigures(np.array(accuracies), np.array(gaps))
