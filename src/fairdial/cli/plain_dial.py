"""Models that decide by thresholds on plain scorers, read without scikit-learn.

Importing scikit-learn takes longer than deciding on a few rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairdial._arrays import Codes, Floats
from fairdial.cli.models import (
    default_tolerance,
    held_out_share,
    open_model,
    reading_manifest,
)
from fairdial.core.frontier import Frontier
from fairdial.estimators.plain import PlainScorer
from fairdial.estimators.scorers import PlattMap
from fairdial.io.folder import Stored, read_folder
from fairdial.io.frontiers import FRONTIER, frontier_from_arrays
from fairdial.io.manifest import training_from_data
from fairdial.io.plain import plain_scorer, read_plain
from fairdial.io.values import claim, unpack, unpack_features, unpack_platt

if TYPE_CHECKING:
    from fairdial.estimators.base import DialClassifier


@dataclass(frozen=True)
class PlainDial:
    """A calibrated FairBayes with a plain scorer; its attributes have the estimator's names."""

    classes_: Any
    frontier_: Frontier
    scorer_: PlainScorer
    platt_: PlattMap | None
    training_: Mapping[str, Any]
    trained_groups_: tuple[Any, ...] | None
    feature_names_in_: Any
    feature_dtypes_: dict[Any, Any]
    sensitive_column: Any
    default_tolerance: float
    held_out: float | None
    model_hash_: str
    group_columns_: tuple[Hashable, ...] | None

    def scores(self, X: Any, codes: Codes) -> Floats:
        """Return (n,) logits of rows with the columns of training, in their order."""
        logits = self.scorer_.logits(X[self.feature_names_in_], codes)
        return np.asarray(logits if self.platt_ is None else self.platt_(logits, codes), np.float64)


def open_to_predict(
    folder: Path, key: Path | None, trust: Sequence[str]
) -> DialClassifier | PlainDial:
    """Load a calibrated model, without scikit-learn if that is possible."""
    stored = read_folder(folder, key=key)
    with reading_manifest():
        found = _read(stored)
    return open_model(folder, key, trust) if found is None else found


def _read(stored: Stored) -> PlainDial | None:
    """Return a model; None if it isn't one of these."""
    manifest = stored.manifest
    data, entry = manifest["frontier"], manifest["scorer"]
    if manifest["method"] != "FairBayes" or entry["kind"] != "plain" or data is None:
        return None
    frontier = frontier_from_arrays(data, stored.files[FRONTIER], FRONTIER)
    features = unpack_features(manifest["features"])
    simple = frontier.problem.randomize is None and not frontier.is_blind
    if not simple or "feature_names_in_" not in features:
        return None
    classes, groups = unpack(manifest["classes"]), unpack(manifest["groups"])
    claim(isinstance(classes, np.ndarray) and len(set(classes.tolist())) == 2, "two labels")
    claim(groups is None or type(groups) is tuple, "groups")
    n_groups = None if groups is None else len(groups)
    claim(n_groups in (None, len(frontier.groups)), "the frontier of this model")
    platt = None if manifest["platt"] is None else unpack_platt(manifest["platt"])
    claim(platt is None or platt.names == frontier.groups, "the frontier of this model")
    parameters, training = manifest["parameters"], manifest.get("training")
    return PlainDial(
        classes_=classes,
        frontier_=frontier,
        scorer_=plain_scorer(read_plain(stored.files), entry, "", n_groups),
        platt_=platt,
        training_={} if training is None else training_from_data(training),
        trained_groups_=groups,
        feature_names_in_=features["feature_names_in_"],
        feature_dtypes_=features.get("feature_dtypes_", {}),
        sensitive_column=unpack(parameters["sensitive_column"]),
        default_tolerance=default_tolerance(parameters),
        held_out=held_out_share(parameters),
        model_hash_=stored.hash,
        group_columns_=features.get("group_columns_"),
    )
