"""Convert fitted classifiers, and pipelines that end in one, into plain models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from fairdial.forests import sklearn_trees
from fairdial.forests.forest import CannotConvertError, Forest, library_of
from fairdial.forests.native import NativeBooster
from fairdial.forests.plain import Line, PlainModel
from fairdial.forests.steps import Columns, Part, apply_step, finish, start
from fairdial.tables.inputs import Code, Missing, Number

PROBABILITIES = (LogisticRegression, LogisticRegressionCV)
LINES = (*PROBABILITIES, SGDClassifier, RidgeClassifier, LinearSVC)


def convert(model: Any, columns: Columns, *, positive: object, method: str) -> PlainModel:
    """Return a fitted classifier as a plain model.

    Parameters
    ----------
    model : classifier
        Fitted on rows with these columns.
    columns : Columns
        The columns.
    positive : label
        The positive label.
    method : {"predict_proba", "decision_function"}
        The method whose scores the plain model must give.

    Raises
    ------
    CannotConvertError
        It has parts that plain models don't have; the message names the first.
    """
    parts, last = start(columns), model
    if type(model) is Pipeline:
        last = model.steps[-1][1]
        for _, step in model.steps[:-1]:
            parts = apply_step(step, parts)
    try:
        scorer, parts, missing = _convert_last(last, parts, columns, positive, method)
        inner = last.booster if isinstance(last, NativeBooster) else last
        return PlainModel(finish(parts, columns, missing=missing), scorer, type(inner).__name__)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CannotConvertError(f"{type(last).__name__} ({error})") from error


def _convert_last(
    model: Any, parts: list[Part], columns: Columns, positive: object, method: str
) -> tuple[Forest | Line, list[Part], Missing]:
    """Return the scorer of a classifier, its inputs, and which missing values it takes."""
    classes = list(getattr(model, "classes_", [0, 1]))
    if isinstance(model, NativeBooster):
        model = model.booster
    library = library_of(model)
    if library is None and not isinstance(model, (*sklearn_trees.KINDS, *LINES)):
        raise CannotConvertError(f"the classifier {type(model).__name__}")
    if len(classes) != 2 or positive not in classes:
        raise CannotConvertError("other than two classes")
    place = classes.index(positive)
    if isinstance(model, LINES):
        return _line(model, place, method), parts, "none"
    if library is None:
        found = sklearn_trees.convert_sklearn(model, place, method)
        if type(model) is HistGradientBoostingClassifier:
            if model._preprocessor is not None:
                parts = apply_step(model._preprocessor, parts)
            return found, parts, "any"
        return found, parts, "none" if type(model) is GradientBoostingClassifier else "nan"
    return (
        _boosted(library, model, place, method),
        _categories(library, model, parts, columns),
        "any",
    )


def _boosted(library: str, model: Any, place: int, method: str) -> Forest:
    if library == "lightgbm":
        from fairdial.forests.lightgbm_trees import convert_lightgbm

        return convert_lightgbm(model, place, method)
    if library == "xgboost":
        from fairdial.forests.xgboost_trees import convert_xgboost

        return convert_xgboost(model, place, method)
    from fairdial.forests.catboost_trees import convert_catboost

    return convert_catboost(model, place, method)


def _categories(library: str, model: Any, parts: list[Part], columns: Columns) -> list[Part]:
    """Return the inputs of a booster, which turns pandas' categories into codes itself."""
    of = {
        name: kind for name, kind in columns.dtypes.items() if isinstance(kind, pd.CategoricalDtype)
    }
    if library == "catboost" or not of:
        return parts
    known: dict[Any, Any] = {name: kind.categories.tolist() for name, kind in of.items()}
    if library == "lightgbm":
        from fairdial.forests.lightgbm_trees import pandas_categories

        stored = pandas_categories(model)
        if stored:  # of the training rows, in the order of their columns
            known = dict(zip(of, stored, strict=True))
    else:
        from fairdial.forests.xgboost_trees import categories_of

        for name, kept in zip(columns.names, categories_of(model), strict=False):
            if kept:
                known[name] = kept
    return [
        Part(Code(part.block.name, tuple(known[part.block.name]), _range(known[part.block.name])))
        if isinstance(part.block, Number) and part.is_column and part.block.name in known
        else part
        for part in parts
    ]


def _range(values: Any) -> tuple[float, ...]:
    return tuple(map(float, range(len(values))))


def _line(model: Any, place: int, method: str) -> Line:
    if method == "predict_proba" and type(model) not in PROBABILITIES:
        raise CannotConvertError(f"predict_proba of {type(model).__name__}")
    if method == "predict" or np.shape(model.coef_)[0] != 1 or np.ndim(model.coef_) != 2:
        raise CannotConvertError("scores by predict, or several classes")
    return Line(
        np.asarray(model.coef_[0], np.float64),
        float(np.ravel(model.intercept_)[0]),
        "raw" if method == "decision_function" else "logistic",
        place == 0,
    )
