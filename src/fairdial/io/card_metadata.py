"""Metadata at the top of a model card, as Hugging Face and other registries read it."""

from __future__ import annotations

import json
import warnings

from fairdial.core.frontier import Frontier
from fairdial.errors import FairdialWarning
from fairdial.estimators.base import DialClassifier

LINE = "---"


def card_metadata(model: DialClassifier) -> str:
    """Return the metadata of a fitted estimator, as YAML between two lines of dashes.

    It has the library, the task and tags, and for a calibrated model what it reaches on its
    calibration rows at the default tolerance. Texts are quoted, so that no name can be taken for
    YAML.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.io.card_metadata import card_metadata
    >>> sample = make_gaussian(5000, random_state=0)
    >>> dial = FairBayes(LogisticRegression(), tolerance=0.1, random_state=0, per_group=True)
    >>> dial = dial.fit(sample.X, sample.y, sensitive_features=sample.groups)
    >>> print(card_metadata(dial).partition("model-index")[0].strip())
    ---
    library_name: fairdial
    pipeline_tag: tabular-classification
    tags:
    - fairness
    - "fairbayes"
    - "demographic_parity"
    """
    frontier: Frontier | None = getattr(model, "frontier_", None)
    name = type(model).__name__
    lines = [
        LINE,
        "library_name: fairdial",
        "pipeline_tag: tabular-classification",
        "tags:",
        "- fairness",
        f"- {json.dumps(name.lower())}",
    ]
    if frontier is not None:
        lines.append(f"- {json.dumps(frontier.criterion.name)}")
        lines += _results(frontier, name, float(model.default_tolerance))
    return "\n".join([*lines, LINE])


def _results(frontier: Frontier, name: str, tolerance: float) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        point = frontier.at(tolerance)
    found = [("accuracy", "accuracy on the calibration rows", point.accuracy)]
    found.append((f"{frontier.criterion.name}_gap", "gap on the calibration rows", point.gap))
    lines = [
        "model-index:",
        f"- name: {json.dumps(name)}",
        "  results:",
        "  - task:",
        "      type: tabular-classification",
        "    dataset:",
        "      name: calibration rows",
        "      type: calibration",
        "    metrics:",
    ]
    for kind, text, value in found:
        if value is not None:
            lines += [
                f"    - type: {json.dumps(kind)}",
                f"      name: {json.dumps(f'{text}, tolerance {tolerance:g}')}",
                f"      value: {float(value):.6f}",
            ]
    return lines
