"""Class labels: which ones there are, and which one of two is positive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from fairdial._arrays import Codes, Mask
from fairdial._validation import describe_values, did_you_mean
from fairdial.core.criteria import Criterion
from fairdial.errors import FairdialWarning, InvalidInputError, warn

PLAIN = {"i": np.int64, "u": np.uint64, "b": np.bool_}  # NumPy types of pandas' nullable ones


def as_labels(y: Any, *, warn: bool = False) -> NDArray[Any]:
    """Return labels as one array; pandas' nullable integers and booleans keep their kind."""
    plain = PLAIN.get(getattr(getattr(y, "dtype", None), "kind", ""))
    if plain is not None and hasattr(y, "to_numpy") and not y.isna().any():
        y = y.to_numpy(dtype=plain)
    return np.asarray(column_or_1d(y, warn=warn))


def find_classes(
    y: Any, pos_label: Any, criterion: Criterion, *, two: str = ""
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the labels as an array, and two classes with the positive one last, or more.

    If ``two`` says why, there may be only two classes.

    Warns if the positive label was picked by alphabetical order and the criterion depends on it.
    """
    if y is None:
        raise InvalidInputError(
            "y", "be given: fit requires y to be passed, but the target y is None"
        )
    labels = as_labels(y, warn=True)
    if labels.dtype == object and pd.isna(labels).any():
        raise InvalidInputError(
            "y", "hold a label for every row", given=f"{int(pd.isna(labels).sum())} missing"
        )
    check_classification_targets(labels)
    kind = type_of_target(labels, input_name="y")
    classes = np.unique(labels)
    if len(classes) < 2:
        raise InvalidInputError("y", "hold two classes", given=f"one class only: {classes[0]!r}")
    if kind not in ("binary", "multiclass", "unknown") or (two and len(classes) > 2):
        raise InvalidInputError(
            "y",
            f"hold two classes {two}".strip(),
            given=describe_values(classes.tolist()),
            hint=f"Only binary classification is supported. The type of the target is {kind}.",
        )
    if len(classes) > 2:
        if pos_label is not None:
            raise InvalidInputError(
                "pos_label",
                "be None with more than two classes",
                given=repr(pos_label),
                hint="`limit_classes` names the classes that the criterion holds for.",
            )
        return labels, classes
    classes = positive_last(classes, pos_label)
    by_label = criterion.needs_labels
    if by_label and pos_label is None and isinstance(classes[1], str):
        warn(
            f"{str(classes[1])!r}, the last label in alphabetical order, is taken as the positive "
            f"label, and {criterion.name} depends on it; set `pos_label`",
            FairdialWarning,
        )
    return labels, classes


def positive_last(classes: NDArray[Any], pos_label: Any) -> NDArray[Any]:
    """Return two sorted classes with the positive one last: the second one by default."""
    if pos_label is None:
        return classes
    if pos_label not in classes.tolist():
        raise InvalidInputError(
            "pos_label",
            f"be one of {classes.tolist()}",
            given=repr(pos_label),
            hint=did_you_mean(pos_label, classes.tolist()).strip(),
        )
    return classes if classes[1] == pos_label else classes[::-1]


def encode_classes(y: Any, classes: NDArray[Any]) -> Codes:
    """Return the positions of labels among more than two classes; raise for other labels."""
    labels = as_labels(y)
    known = pd.Index(classes.tolist(), dtype=object)
    codes = known.get_indexer(pd.Index(labels.astype(object)))
    if np.any(codes < 0):
        raise InvalidInputError(
            "y", f"hold the classes {classes.tolist()}", given=repr(labels[codes < 0][0])
        )
    return np.asarray(codes)


def is_positive(y: Any, classes: NDArray[Any]) -> Mask:
    """Return which labels are the positive class; raise for labels of other classes."""
    labels = as_labels(y)
    positive = np.asarray(labels == classes[1])
    known = positive | (labels == classes[0])
    if not np.all(known):
        raise InvalidInputError(
            "y",
            f"hold the classes {classes[0]!r} and {classes[1]!r}",
            given=repr(labels[~known][0]),
        )
    return positive
