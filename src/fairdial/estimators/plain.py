"""Scorers of plain models, and the conversion of scorers into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fairdial._arrays import Codes, Floats, Scores
from fairdial.errors import InvalidInputError
from fairdial.estimators.scorers import AveragedScorer, Scorer, SklearnScorer
from fairdial.forests.forest import CannotConvertError
from fairdial.forests.plain import PlainModel

MOST_ROWS = 100_000  # calibration rows on which a conversion is verified


class PlainScorer:
    """Score rows by plain models.

    Parameters
    ----------
    models : sequence of PlainModel
        One for all rows, or one for each group code.
    records : bool
        Whether rows are records of JSON instead of tables.
    """

    def __init__(self, models: Sequence[PlainModel], *, records: bool = False) -> None:
        self.models, self.records = list(models), records

    def logits(self, X: Any, groups: Codes) -> Floats:
        """Return (n,) log-odds of the positive label."""
        if len(self.models) == 1:
            return self._one(self.models[0], X)
        scores = np.empty(len(groups))
        for code, model in enumerate(self.models):
            rows = np.flatnonzero(groups == code)
            if rows.size:
                scores[rows] = self._one(model, self._take(X, rows))
        return scores

    def _one(self, model: PlainModel, X: Any) -> Floats:
        if self.records:
            return model.record_logits(X)
        if not isinstance(X, (pd.DataFrame, np.ndarray)):
            X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != len(model.inputs.columns):
            raise InvalidInputError(
                "X", f"have {len(model.inputs.columns)} columns", given=f"the shape {X.shape}"
            )
        return model.logits(X)

    def _take(self, X: Any, rows: Any) -> Any:
        if self.records:
            return [X[i] for i in rows]
        return X.iloc[rows] if isinstance(X, pd.DataFrame) else np.asarray(X)[rows]


def convert_scorer(scorer: Scorer, model: Any) -> PlainScorer | AveragedScorer:
    """Return the scorer of a fitted model as a plain one; networks stay as they are.

    Raises
    ------
    CannotConvertError
        Some classifier can't be converted; the message names what isn't supported.
    """
    from fairdial.forests.convert import convert
    from fairdial.forests.steps import Columns

    if isinstance(scorer, PlainScorer):
        return scorer
    if isinstance(scorer, AveragedScorer):
        parts: list[Scorer] = [
            convert_scorer(part, model) if isinstance(part, SklearnScorer) else part
            for part in scorer.scorers
        ]
        return AveragedScorer(parts)
    if not isinstance(scorer, SklearnScorer) or not hasattr(model, "n_features_in_"):
        raise CannotConvertError(f"the scorer {type(scorer).__name__}")
    names = getattr(model, "feature_names_in_", None)
    columns = Columns(
        tuple(range(model.n_features_in_)) if names is None else tuple(names.tolist()),
        names is not None,
        getattr(model, "feature_dtypes_", {}) if names is not None else {},
    )
    return PlainScorer(
        [
            convert(estimator, columns, positive=scorer.positive, method=scorer.method)
            for estimator in scorer.estimators
        ]
    )


def verify(plain: Scorer, X: Any, codes: Codes, logits: Scores) -> None:
    """Raise CannotConvertError if a decision on these rows could differ.

    Thresholds lie in the middle between scores, so decisions are the same at every tolerance if no
    middle of two scores separates the plain score of a row from its own.
    """
    from fairdial.estimators.rows import take_rows

    if len(codes) > MOST_ROWS:
        rows = np.linspace(0, len(codes) - 1, MOST_ROWS).astype(np.intp)
        X, codes, logits = take_rows(X, rows), codes[rows], logits[rows]
    try:
        found = plain.logits(X, codes)
    except (InvalidInputError, ValueError, TypeError) as error:
        raise CannotConvertError(f"rows of this kind ({error})") from error
    wrong = np.flatnonzero(found != logits)
    for code in np.unique(codes[wrong]):
        scores = np.unique(logits[codes == code].astype(np.float64))
        with np.errstate(invalid="ignore"):
            middles = scores[:-1] + (scores[1:] - scores[:-1]) / 2
        rows = wrong[codes[wrong] == code]
        same = np.searchsorted(middles, found[rows]) == np.searchsorted(middles, logits[rows])
        if not same.all():
            raise CannotConvertError(
                f"scores of which {np.sum(~same):,} of {len(codes):,} calibration rows differ"
            )
