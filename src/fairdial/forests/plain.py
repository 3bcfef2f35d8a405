"""Plain models: inputs, and a forest or a line, as data alone.

A plain model decides as the classifier that it was converted from, needs neither that library nor
scikit-learn, and runs on tables, on records and as an ONNX graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Features, Floats
from fairdial._onnx import Graph
from fairdial._special import expit, logit
from fairdial.errors import InvalidInputError
from fairdial.forests.evaluate import Evaluator
from fairdial.forests.forest import LINKS, Forest, Link, read_forest
from fairdial.forests.graph import add_forest, add_logits
from fairdial.tables.columns import Table
from fairdial.tables.inputs import Inputs
from fairdial.tables.plan import Json

SINGLE = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Line:
    """A linear score.

    Attributes
    ----------
    coef : (d,) float64
        Coefficients.
    intercept : float
        The score of a row of zeros.
    link, complement
        As of :class:`~fairdial.forests.forest.Forest`.
    """

    coef: Floats
    intercept: float
    link: Link = "logistic"
    complement: bool = False

    def logits(self, X: Features) -> Floats:
        """Return (n,) log-odds of rows."""
        score = (X @ self.coef[:, None] + self.intercept)[:, 0].astype(np.float64)
        if self.link == "raw":
            return np.asarray(-score if self.complement else score)
        p = expit(score)
        with np.errstate(divide="ignore"):
            return np.asarray(logit(1 - p if self.complement else p), np.float64)


@dataclass(frozen=True)
class PlainModel:
    """A classifier as data: what it reads, and how it scores.

    Attributes
    ----------
    inputs : Inputs
        What turns rows into features.
    scorer : Forest or Line
        What scores them.
    source : str
        Name of the class that it was converted from.
    """

    inputs: Inputs
    scorer: Forest | Line
    source: str

    @cached_property
    def _score(self) -> Any:
        return self.scorer if isinstance(self.scorer, Line) else Evaluator(self.scorer)

    def logits(self, X: Table) -> Floats:
        """Return (n,) log-odds of the positive label for the rows of a table."""
        return self._logits(self.inputs.transform(X))

    def record_logits(self, records: Sequence[Mapping[str, Json]]) -> Floats:
        """Return (n,) log-odds of the positive label for checked records."""
        return self._logits(self.inputs.transform_records(records))

    def _logits(self, features: Features) -> Floats:
        """Return log-odds of features; refuse those that scikit-learn's trees refuse."""
        strict = isinstance(self.scorer, Forest) and self.scorer.round_inputs
        if strict and self.inputs.missing != "any" and (np.abs(features) > SINGLE).any():
            raise InvalidInputError("X", "hold numbers that float32 can hold")
        found: Floats = self._score.logits(features)
        return found

    def add_nodes(self, graph: Graph) -> str:
        """Add the inputs and the score to an ONNX graph; return (n,) log-odds."""
        rows, scorer = self.inputs.add_nodes(graph), self.scorer
        if isinstance(scorer, Forest):
            return add_forest(graph, scorer, rows)
        score = graph.op("MatMul", rows, graph.constant(scorer.coef[:, None]))
        score = graph.op("Add", graph.squeeze(score, 1), graph.constant(scorer.intercept))
        return add_logits(graph, score, scorer.link, scorer.complement)

    # ---- data ----------------------------------------------------------------------------------

    def to_data(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the model as JSON data and arrays."""
        scorer = self.scorer
        data = {"source": self.source, "inputs": self.inputs.to_json()}
        if isinstance(scorer, Forest):
            return {**data, "forest": scorer.settings()}, scorer.to_arrays()
        line = {"intercept": scorer.intercept, "link": scorer.link, "complement": scorer.complement}
        return {**data, "line": line}, {"coef": scorer.coef}

    @classmethod
    def from_data(cls, data: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> PlainModel:
        """Return the model that :meth:`to_data` wrote; raise ValueError if it can't be right."""
        inputs = Inputs.from_json(data["inputs"])
        scorer: Forest | Line
        if "forest" in data:
            scorer = read_forest(arrays, data["forest"])
            width = scorer.n_features
        else:
            scorer = _read_line(data["line"], dict(arrays))
            width = len(scorer.coef)
        if inputs.width != width or not isinstance(data["source"], str):
            raise ValueError("inputs of another model")
        return cls(inputs, scorer, data["source"])


def _read_line(data: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Line:
    coef = arrays.pop("coef")
    intercept, link, complement = data["intercept"], data["link"], data["complement"]
    good = coef.dtype == np.float64 and coef.ndim == 1 and np.isfinite(coef).all()
    good &= type(intercept) is float and bool(np.isfinite(intercept)) and not arrays
    if not good or link not in LINKS[::2] or type(complement) is not bool:
        raise ValueError("coefficients that aren't finite numbers")
    return Line(coef, intercept, link, complement)
