"""Checked rows of one part: scores, and cells of groups, strata and labels."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairdial._arrays import Codes, Scores, Weights
from fairdial._validation import (
    check_labels,
    check_same_length,
    check_scores,
    check_weights,
    encode_groups,
    encode_strata,
    match_groups,
)

Names = tuple[Hashable, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows with a positive weight.

    Attributes
    ----------
    scores : (n,) float
        Scores, perhaps with NaN.
    groups, strata : tuple
        Names of the groups and strata that have rows; no strata without control features.
    group, stratum : (n,) integer
        Codes of each row's group and stratum.
    label : (n,) bool, optional
        Labels.
    weights : (n,), optional
        Weights; None if all are 1.
    """

    scores: Scores
    groups: Names
    strata: Names
    group: Codes
    stratum: Codes | None
    label: Codes | None
    weights: Weights | None

    def cells(self, groups: Names, strata: Names) -> Codes:
        """Return ``(group * strata + stratum) * labels + label`` of each row among these names."""
        n_cells = len(groups) * max(1, len(strata)) * (1 if self.label is None else 2)
        dtype = np.min_scalar_type(n_cells)
        cells = _translate(self.group, self.groups, groups, "groups").astype(dtype)
        if self.stratum is not None:
            stratum = _translate(self.stratum, self.strata, strata, "control_features")
            cells *= len(strata)
            cells += stratum.astype(dtype)
        if self.label is not None:
            cells *= 2
            cells += self.label
        return cells


def encode_rows(
    logits: Any,
    groups: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    control_features: Any = None,
) -> Rows:
    """Return checked rows without those of weight 0; the caller checks the scores for NaN."""
    scores = check_scores(logits, nan=False)
    group, names = encode_groups(groups)
    check_same_length(scores, group, ("logits", "groups"))
    label: Codes | None = None
    stratum: Codes | None = None
    strata: Names = ()
    if y is not None:
        label = check_labels(y).view(np.uint8)
        check_same_length(scores, label, ("logits", "y"))
    if control_features is not None:
        stratum, strata = encode_strata(control_features)
        check_same_length(scores, stratum, ("logits", "control_features"))
    weights = check_weights(sample_weight, len(scores))
    if weights is not None and not weights.all():
        keep = np.flatnonzero(weights)
        scores, weights = scores.take(keep), weights.take(keep)
        group, names = _present(group.take(keep), names)
        if stratum is not None:
            stratum, strata = _present(stratum.take(keep), strata)
        label = None if label is None else label.take(keep)
    return Rows(scores, names, strata, group, stratum, label, weights)


def _present(codes: Codes, names: Names) -> tuple[Codes, Names]:
    """Return the codes among the names that occur, and these names."""
    found, places = np.unique(codes, return_inverse=True)
    return places, tuple(names[code] for code in found.tolist())


def _translate(codes: Codes, names: Names, known: Names, argument: str) -> Codes:
    """Return codes among the known names, from codes among other names; raise on unknown ones."""
    if names == known:
        return codes
    listed = np.empty(len(names), object)
    listed[:] = names
    return match_groups(listed, known, argument).take(codes)
