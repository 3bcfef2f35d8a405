"""A model as the server uses it: records in, margins out, with a cache of operating points."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fairdial._arrays import Codes, Floats, Indices
from fairdial.core.frontier import Frontier, refuse_groupings, refuse_prices
from fairdial.core.point import Point, Points
from fairdial.core.searched import SearchedPoints
from fairdial.core.serialization import json_name
from fairdial.errors import FairdialWarning, InvalidInputError
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.families import Family, FamilyClassifier
from fairdial.estimators.plain import PlainScorer
from fairdial.estimators.scorers import AveragedScorer, SklearnScorer
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.io.save import plain_of
from fairdial.serve.record_encoders import RecordEncoder
from fairdial.serve.records import (
    BadRowError,
    Layout,
    blocks_layout,
    encoder_layout,
    make_table,
    shorten,
    table_layout,
)
from fairdial.tables.encoder import TableEncoder
from fairdial.tables.inputs import Number
from fairdial.tables.plan import Categorical, Numeric

CACHE_SIZE = 1024  # operating points
_LOCK = threading.Lock()  # warning filters belong to the process

Model = ThresholdClassifier | FamilyClassifier


class PointCache:
    """Operating points of a frontier (:meth:`fairdial.Frontier.at`), cached by tolerance."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._known: dict[tuple[float, float | None], Point] = {}

    def at(self, tolerance: float, confidence: float | None) -> Point:
        """Return the point for a tolerance that was declared; raise CannotCertifyError."""
        key = tolerance, confidence
        point = self._known.get(key)
        if point is None:
            with _LOCK, _no_warnings():
                point = self._frontier.at(tolerance, confidence=confidence)
                while len(self._known) >= CACHE_SIZE:
                    del self._known[next(iter(self._known))]
                self._known[key] = point
        return point

    def many(self, tolerances: Floats, confidence: float | None) -> Points:
        """Return points whose statements hold for all tolerances at once.

        So each point depends on its own tolerance only, whatever else is asked for. Searches for
        tolerances are cached by the frontier.
        """
        with _LOCK, _no_warnings():
            points: Points = self._frontier.at(tolerances, confidence=confidence, simultaneous=True)
        return points


def refuse_unserved(frontier: Frontier) -> None:
    """Raise if a lottery decides, or a blind dial.

    A lottery draws by a hash of the row as ``predict`` gets it, which a row of JSON need not equal.
    """
    refuse_prices(frontier, "served")
    refuse_groupings(frontier, "served")
    if frontier.problem.randomize is not None:
        raise InvalidInputError(
            "model",
            "decide by thresholds to be served",
            given="a lottery (`randomize='hash'`), whose draws depend on the table of the row",
            hint="Calibrate the model with `randomize=None`, or decide with predict.",
        )


def _no_warnings() -> warnings.catch_warnings[None]:
    """Ignore our own warnings: the answers say the same."""
    return warnings.catch_warnings(action="ignore", category=FairdialWarning)


class Decider:
    """A calibrated model that takes rows of JSON.

    Parameters
    ----------
    model : estimator
        Calibrated, for rows of a table.

    Attributes
    ----------
    layout : Layout
        The columns of its rows.
    groups : tuple of str
        Names of the groups as text, in the order of their codes.
    merged : tuple of str
        Names of small groups that training made part of another one.
    labels : list
        The negative and the positive label.
    points : PointCache
        The operating points.
    unnamed : name or None
        The group of rows without one: the only one, or the one that training named for them.
    swept : bool
        Whether thresholds on one score decide; otherwise the margins of a family do.
    searches : bool
        Whether every tolerance is a search of its own.
    """

    def __init__(self, model: DialClassifier) -> None:
        check_is_fitted(model, "frontier_")
        self.frontier: Frontier = model.frontier_
        refuse_unserved(self.frontier)
        self.searches = isinstance(self.frontier.points, SearchedPoints)
        self.labels: list[Any] = model.classes_.tolist()
        self.points = PointCache(model.frontier_)
        self._names = [json_name(name) for name in self.frontier.groups]
        self.groups = tuple(map(str, self._names))
        if len(set(self.groups)) < len(self.groups):
            raise InvalidInputError("model", "have groups whose names differ as text to be served")
        self._codes: dict[Hashable, int] = {}
        for code, name in enumerate(self._names):
            self._codes[type(name), name] = code  # true is not 1
            if type(name) is float and name.is_integer():
                self._codes[int, int(name)] = code  # many write 1.0 as 1 in JSON
        self.merged: tuple[str, ...] = ()
        training = getattr(model, "training_", {})
        merged = training.get("merged_groups", {"name": "", "values": []})
        for values in merged["values"]:  # each has the code of the group that it became part of
            joined, name = (" & ".join(part) for part in (values, [merged["name"]] * len(values)))
            if name in self.groups:
                self._codes.setdefault((str, joined), self.groups.index(name))
                self.merged += (joined,)
        column = model.sensitive_column
        self._sensitive = column if isinstance(column, (list, tuple)) else [column]
        self.unnamed: Any = None
        if len(self._names) == 1:
            self.unnamed = self._names[0]
        elif len(self._sensitive) == 1:
            missing = training.get("missing_group")
            self.unnamed = missing if missing in self._names else None
        if not isinstance(model, Model):
            given = type(model).__name__
            raise InvalidInputError("model", "be an estimator of fairdial", given=given)
        self.layout, self._model, self._takes_records = _for_records(model)
        self.swept = isinstance(model, ThresholdClassifier)

    def codes(self, groups: Sequence[Any], features: Sequence[Any] | None = None) -> Codes:
        """(n,) codes of groups as JSON names them; None is the group of rows without one.

        ``features`` of the same rows help to explain where a missing group belongs.
        """
        if self.unnamed is not None:
            groups = [self.unnamed if name is None else name for name in groups]
        try:
            return np.array([self._codes[type(name), name] for name in groups], np.intp)
        except (KeyError, TypeError):
            row = next(i for i, name in enumerate(groups) if not self._is_known(name))
            missing = groups[row] is None
            raise BadRowError(
                "group",
                f"be one of the model's groups, {shorten(self._names)}",
                given="nothing" if missing else "another value",
                hint=self._advice(features[row]) if missing and features is not None else "",
                row=row,
            ) from None

    def _is_known(self, name: Any) -> bool:
        return isinstance(name, Hashable) and (type(name), name) in self._codes

    def _advice(self, features: Any) -> str:
        """Return where the group of a row belongs, and where it was given instead."""
        record = features if isinstance(features, dict) else {}
        inside = ", ".join(repr(name) for name in self._sensitive if name in record)
        return f"Put it next to `features`{f', not into them as {inside}' if inside else ''}."

    def rows(self, features: Sequence[Any]) -> Any:
        """Return checked rows of JSON as what the scorer takes."""
        records = self.layout.check(features)
        return records if self._takes_records else make_table(self.layout, records)

    def scores(self, rows: Any, codes: Codes) -> Floats:
        """(n,) logits that the thresholds apply to."""
        assert isinstance(self._model, ThresholdClassifier)
        try:
            return np.asarray(self._model._score(rows, codes), np.float64)
        except (TypeError, ValueError) as error:
            if self._takes_records and not isinstance(error, InvalidInputError):
                raise
            raise BadRowError(
                "features",
                "be like the training rows",
                given="rows that the model can't score",
                hint="Check the types of the columns and missing values.",
            ) from error

    def margins(self, rows: Any, codes: Codes, points: Sequence[Point], places: Indices) -> Floats:
        """(n,) margins of rows, each at its place among several operating points."""
        if isinstance(self._model, ThresholdClassifier):
            logits = self.scores(rows, codes)
            if len(points) == 1:
                limits = points[0].thresholds[codes]
            else:
                limits = np.stack([point.thresholds for point in points])[places, codes]
            if np.isfinite(logits).all():
                return logits - limits
            with np.errstate(invalid="ignore"):
                margin = logits - limits
            return np.where(np.isnan(margin), 0.0, margin)  # inf - inf: not above the threshold
        scorer: Family = self._model.scorer_
        prepared = scorer.prepare(rows, codes)
        settings, back = np.unique([point.setting for point in points], return_inverse=True)
        chosen, margin = back[places], np.empty(len(codes))
        for i, setting in enumerate(settings.tolist()):
            margin[chosen == i] = scorer.margins(prepared, codes, setting)[chosen == i]
        return margin


# ---- models that take records ------------------------------------------------------------------


def _for_records(model: Model) -> tuple[Layout, Model, bool]:
    """Return the layout of rows, the model to score them, and whether it takes records.

    If so, the model is a copy whose encoders take records; otherwise rows must become tables.
    """
    scorer: Any = model.scorer_
    if isinstance(scorer, (PlainScorer, SklearnScorer, AveragedScorer)):
        layout, scorer = _for_plain(model)
    elif type(encoder := getattr(model, "encoder_", None)) is TableEncoder:
        from fairdial.nn.quick import replace_encoder  # needs torch, as the model does

        layout, scorer = encoder_layout(encoder), replace_encoder(scorer, RecordEncoder(encoder))
    else:
        layout, scorer = _table_layout(model), None
    if scorer is None:
        return layout, model, False
    served = copy.copy(model)
    served.scorer_ = scorer
    return layout, served, True


def _for_plain(model: Model) -> tuple[Layout, PlainScorer | AveragedScorer | None]:
    """Return the layout of rows, and a plain scorer that takes records; None if there is none."""
    plain = plain_of(model)
    parts: list[Any] = plain.scorers if isinstance(plain, AveragedScorer) else [plain]
    if not all(isinstance(part, PlainScorer) for part in parts):
        return _table_layout(model), None
    inputs = [one.inputs for part in parts for one in part.models]
    encoded = all(isinstance(b, (Numeric, Categorical)) for each in inputs for b in each.blocks)
    layout = blocks_layout(inputs[0]) if encoded else _table_layout(model)
    kinds = {column.name: column.kind for column in layout.columns}
    for block in (block for each in inputs for block in each.blocks):
        if isinstance(block, (Number, Numeric)) and kinds[block.name] != "number":
            return layout, None  # numbers in a column of objects
    scorers = [PlainScorer(part.models, records=True) for part in parts]
    return layout, AveragedScorer(scorers) if isinstance(plain, AveragedScorer) else scorers[0]


def _table_layout(model: Model) -> Layout:
    count = getattr(model, "n_features_in_", None)
    if count is None:
        raise InvalidInputError(
            "model", "take rows of a table to be served", given="one of pictures or tensors"
        )
    names = getattr(model, "feature_names_in_", None)
    dtypes = getattr(model, "feature_dtypes_", None)
    return table_layout(None if names is None else names.tolist(), int(count), dtypes)
