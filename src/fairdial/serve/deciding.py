"""A model as the server uses it: records in, margins out, positions of the dial remembered."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from fairdial.encoders import TableEncoder
from fairdial.errors import FairdialWarning, InvalidInputError
from fairdial.frontier import Frontier
from fairdial.methods.base import DialClassifier
from fairdial.methods.families import FamilyClassifier
from fairdial.methods.network import torch_module
from fairdial.methods.rows import Codes
from fairdial.methods.thresholds import ThresholdClassifier
from fairdial.points import Point, Points
from fairdial.scorers import AveragedScorer, SklearnScorer
from fairdial.serve.records import (
    SHOWN,
    BadRowError,
    Layout,
    RecordEncoder,
    encoder_layout,
    make_table,
    row_name,
    table_layout,
)
from fairdial.states_json import plain_name

Floats = NDArray[np.float64]

REMEMBERED = 1024  # positions of the dial
_ONE = threading.Lock()  # warnings are everybody's


class Positions:
    """Where the dial stands for a tolerance: :meth:`fairdial.Frontier.at`, remembered."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._known: dict[tuple[float, float | None], Point] = {}

    def at(self, tolerance: float, confidence: float | None) -> Point:
        """One position; CannotCertifyError: there is none with this confidence."""
        key = tolerance, confidence
        point = self._known.get(key)
        if point is None:
            with _ONE, _quiet():
                point = self._frontier.at(tolerance, confidence=confidence)
                while len(self._known) >= REMEMBERED:
                    del self._known[next(iter(self._known))]
                self._known[key] = point
        return point

    def many(self, tolerances: Floats, confidence: float | None) -> Points:
        """Positions for different tolerances; statements are about the whole dial at once.

        So each position is its own tolerance's, whatever else is asked for.
        """
        with _ONE, _quiet():
            points: Points = self._frontier.at(tolerances, confidence=confidence, simultaneous=True)
        return points


def _quiet() -> Any:
    """Without our own warnings: what they say is in the answers."""
    return warnings.catch_warnings(action="ignore", category=FairdialWarning)


class Decider:
    """A calibrated model that takes rows of JSON.

    Parameters
    ----------
    model : estimator
        Calibrated, of rows in a table.

    Attributes
    ----------
    layout : Layout
        The columns of its rows.
    groups : tuple of str
        Names of the groups as text, in the order of their codes.
    labels : list
        The negative and the positive label.
    positions : Positions
        The dial.
    unnamed : name or None
        The group of rows without one: the only one, or that which training named for them.
    swept : bool
        Whether one score and thresholds decide; otherwise a family's margins do.
    """

    def __init__(self, model: DialClassifier) -> None:
        check_is_fitted(model, "frontier_")
        self.frontier: Frontier = model.frontier_
        self.labels: list[Any] = model.classes_.tolist()
        self.positions = Positions(model.frontier_)
        names = [plain_name(name) for name in self.frontier.groups]
        self.groups = tuple(map(str, names))
        if len(set(self.groups)) < len(names):
            raise InvalidInputError(
                "`model` must have groups whose names differ as text to be served, got two alike."
            )
        self._codes: dict[Hashable, int] = {}
        for code, name in enumerate(names):
            self._codes[type(name), name] = code  # true is not 1
            if type(name) is float and name.is_integer():
                self._codes[int, int(name)] = code  # as many write 1.0 in JSON
        column = model.sensitive_column
        self._sensitive = column if isinstance(column, (list, tuple)) else [column]
        told = getattr(model, "training_", {}).get("missing_group")
        alone = len(self._sensitive) == 1 and told in names
        self.unnamed: Any = told if alone else None
        if len(names) == 1:
            self.unnamed = names[0]
        self.layout, self._model, self._records = _for_records(model)
        self.swept = isinstance(model, ThresholdClassifier)

    def codes(self, groups: Sequence[Any], features: Sequence[Any] | None = None) -> Codes:
        """(n,) codes of groups as JSON names them; None is the group of rows without one.

        ``features`` are those that the groups stand beside, to say where one was looked for.
        """
        if self.unnamed is not None:
            groups = [self.unnamed if name is None else name for name in groups]
        try:
            return np.array([self._codes[type(name), name] for name in groups], np.intp)
        except (KeyError, TypeError):
            row = next(i for i, name in enumerate(groups) if not self._known(name))
            names = ", ".join(repr(plain_name(name)) for name in self.frontier.groups[:SHOWN])
            more = len(self.groups) - SHOWN
            got = "another"
            if groups[row] is None:
                got = "nothing" if features is None else self._missing(features[row])
            raise BadRowError(
                f"{row_name(row)}: `group` must be one of the model's groups, {names}"
                f"{f' and {more} more' if more > 0 else ''}, got {got}."
            ) from None

    def _missing(self, features: Any) -> str:
        """That a row has no group, and where it belongs."""
        there = [
            name for name in self._sensitive if isinstance(features, dict) and name in features
        ]
        misplaced = f", not in them as {', '.join(map(repr, there))}" if there else ""
        return f"nothing: it stands beside `features`{misplaced}"

    def _known(self, name: Any) -> bool:
        return isinstance(name, Hashable) and (type(name), name) in self._codes

    def rows(self, features: Sequence[Any]) -> Any:
        """Rows of JSON, checked, as what the scorer takes."""
        records = self.layout.records(features)
        return records if self._records else make_table(self.layout, records)

    def scores(self, rows: Any, codes: Codes) -> Floats:
        """(n,) logits on which the thresholds work."""
        model: Any = self._model
        try:
            return np.asarray(model._score(rows, codes), np.float64)
        except (TypeError, ValueError) as error:
            if self._records:
                raise
            raise _refused() from error

    def margins(
        self, rows: Any, codes: Codes, points: Sequence[Point], places: NDArray[np.intp]
    ) -> Floats:
        """(n,) margins of rows, each at its place among several positions."""
        if self.swept:
            logits = self.scores(rows, codes)
            if len(points) == 1:
                limits = points[0].thresholds[codes]
            else:
                limits = np.stack([point.thresholds for point in points])[places, codes]
            if np.isfinite(logits).all():
                return logits - limits
            with np.errstate(invalid="ignore"):
                margin = logits - limits
            return np.where(np.isnan(margin), 0.0, margin)  # inf over inf: not above
        scorer: Any = self._model.scorer_
        prepared = scorer.prepare(rows, codes)
        settings, back = np.unique([point.setting for point in points], return_inverse=True)
        chosen, margin = back[places], np.empty(len(codes))
        for i, setting in enumerate(settings.tolist()):
            margin[chosen == i] = scorer.margins(prepared, codes, setting)[chosen == i]
        return margin


def _refused() -> BadRowError:
    return BadRowError(
        "`features` must be what the model was trained on, got rows that it can't score; check "
        "the types of the columns and missing values."
    )


# ---- models that take records ------------------------------------------------------------------


def _for_records(model: DialClassifier) -> tuple[Layout, Any, bool]:
    """The rows' layout, and the model with a scorer that takes records, or tables if it must."""
    served: Any = copy.copy(model)
    scorer = served.scorer_
    if isinstance(scorer, (SklearnScorer, AveragedScorer)):
        parts: list[Any] = scorer.scorers if isinstance(scorer, AveragedScorer) else [scorer]
        if all(_encodes(e) for part in parts for e in getattr(part, "estimators", [None])):
            first = parts[0].estimators[0]
            for_records = [_record_scorer(part) for part in parts]
            averaged = isinstance(scorer, AveragedScorer)
            served.scorer_ = AveragedScorer(for_records) if averaged else for_records[0]
            return encoder_layout(first.steps[0][1]), served, True
        return _table_of(model), served, False
    if not isinstance(model, (ThresholdClassifier, FamilyClassifier)):
        raise InvalidInputError(f"`model` must be an estimator, got {type(model).__name__}.")
    encoder = getattr(served, "encoder_", None)
    if type(encoder) is TableEncoder:
        served.scorer_ = _record_net(scorer, RecordEncoder(encoder))
        return encoder_layout(encoder), served, True
    return _table_of(model), served, False


def _record_net(scorer: Any, encode: RecordEncoder) -> Any:
    """The scorer of a network that takes records."""
    quick = torch_module("quick").quick_scorer(scorer)
    if quick is not None:
        return _RecordNet(quick, encode)
    served = copy.copy(scorer)
    inputs = replace(scorer.encode, encoder=None)  # records are encoded here
    served.encode = lambda rows: inputs(encode(rows))
    return served


class _RecordNet:
    """A quick network that takes records."""

    def __init__(self, quick: Any, encode: RecordEncoder) -> None:
        self._quick, self._encode = quick, encode

    def logits(self, rows: Any, groups: Codes) -> Any:
        return self._quick.logits(self._encode(rows), groups)


def _table_of(model: Any) -> Layout:
    count = getattr(model, "n_features_in_", None)
    if count is None:
        raise InvalidInputError(
            "`model` must take rows of a table to be served, got one of pictures or tensors."
        )
    names = getattr(model, "feature_names_in_", None)
    dtypes = getattr(model, "feature_dtypes_", None)
    return table_layout(None if names is None else names.tolist(), int(count), dtypes)


def _encodes(estimator: Any) -> bool:
    """Whether it is a pipeline that starts with our encoder."""
    return (
        type(estimator) is Pipeline
        and len(estimator.steps) > 1
        and type(estimator.steps[0][1]) is TableEncoder
    )


def _record_scorer(scorer: SklearnScorer) -> SklearnScorer:
    estimators = [_RecordPipeline(estimator) for estimator in scorer.estimators]
    return SklearnScorer(estimators, positive=scorer.positive, method=scorer.method)


class _RecordPipeline:
    """A pipeline whose encoder takes records."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._encode, rest = RecordEncoder(pipeline.steps[0][1]), pipeline[1:]
        self._rest = rest.steps[0][1] if len(rest.steps) == 1 else rest
        self.classes_ = pipeline.classes_

    def predict_proba(self, rows: Any) -> Any:
        return self._rest.predict_proba(self._encode(rows))

    def decision_function(self, rows: Any) -> Any:
        return self._rest.decision_function(self._encode(rows))

    def predict(self, rows: Any) -> Any:
        return self._rest.predict(self._encode(rows))
