"""Unfitted estimators as JSON: their class, among known ones, and their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from fairdial.errors import InvalidInputError
from fairdial.forests.native import as_classifier
from fairdial.io.values import Json, claim, pack, unpack

HOMES = {  # where a class is imported from
    **dict.fromkeys(
        (
            "HistGradientBoostingClassifier",
            "GradientBoostingClassifier",
            "RandomForestClassifier",
            "ExtraTreesClassifier",
        ),
        "sklearn.ensemble",
    ),
    **dict.fromkeys(("DecisionTreeClassifier", "ExtraTreeClassifier"), "sklearn.tree"),
    **dict.fromkeys(
        ("LogisticRegression", "LogisticRegressionCV", "SGDClassifier", "RidgeClassifier"),
        "sklearn.linear_model",
    ),
    "LinearSVC": "sklearn.svm",
    "Pipeline": "sklearn.pipeline",
    "ColumnTransformer": "sklearn.compose",
    "SimpleImputer": "sklearn.impute",
    **dict.fromkeys(
        ("OneHotEncoder", "OrdinalEncoder", "StandardScaler", "FunctionTransformer"),
        "sklearn.preprocessing",
    ),
    "TableEncoder": "fairdial.tables.encoder",
    "FrequentEncoder": "fairdial.tables.frequent",
    "CategoryEncoder": "fairdial.tables.categories",
    "MeanEncoder": "fairdial.tables.means",
    "LGBMClassifier": "lightgbm",
    "XGBClassifier": "xgboost",
    "CatBoostClassifier": "catboost",
    "NativeBooster": "fairdial.forests.native",
}
FUNCTIONS = {"check_array": "sklearn.utils"}


@dataclass(frozen=True)
class EstimatorSettings:
    """A description of an unfitted estimator, which :meth:`make` builds.

    Attributes
    ----------
    data : JSON
        Class and parameters.
    """

    data: Json

    @property
    def steps(self) -> list[str]:
        """The classes of a pipeline's steps, or the class of an estimator."""
        name, params = self.data["$estimator"]
        if name != "Pipeline":
            return [name]
        steps = [step["$tuple"][1] for step in params["steps"]]
        return [step["$estimator"][0] for step in steps if isinstance(step, dict)]

    def make(self) -> Any:
        """Return the estimator; raise ModuleNotFoundError if its library isn't installed."""
        return _make(self.data)


def describe_estimator(value: Any) -> EstimatorSettings | None:
    """Return the description of an estimator; None if it has unknown parts."""
    if isinstance(value, EstimatorSettings):
        return value
    try:
        return EstimatorSettings(_describe(as_classifier(value)))
    except (InvalidInputError, TypeError, AttributeError):
        return None


def _describe(value: Any) -> Json:
    name = type(value).__name__
    if name in HOMES and hasattr(value, "get_params"):
        home = import_module(HOMES[name])
        if type(value) is getattr(home, name):
            params = value.get_params(deep=False)
            return {"$estimator": [name, {k: _describe(v) for k, v in params.items()}]}
    if type(value) is list:
        return [_describe(item) for item in value]
    if type(value) is tuple:
        return {"$tuple": [_describe(item) for item in value]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"$dict": {key: _describe(item) for key, item in value.items()}}
    if isinstance(value, type) and issubclass(value, np.number):
        return {"$type": np.dtype(value).name}
    for function, home_name in FUNCTIONS.items():
        if value is getattr(import_module(home_name), function):
            return {"$function": function}
    return pack(value)


def _make(data: Json) -> Any:
    if isinstance(data, list):
        return [_make(item) for item in data]
    if not isinstance(data, dict):
        return unpack(data)
    ((kind, content),) = data.items()
    if kind == "$estimator":
        name, params = content
        claim(name in HOMES and isinstance(params, Mapping), "a known estimator")
        return getattr(import_module(HOMES[name]), name)(**{k: _make(v) for k, v in params.items()})
    if kind == "$tuple":
        return tuple(_make(item) for item in content)
    if kind == "$dict":
        return {str(key): _make(item) for key, item in content.items()}
    if kind == "$type":
        found = np.dtype(str(content))
        claim(found.kind in "iuf", "a type of numbers")
        return found.type
    if kind == "$function":
        return getattr(import_module(FUNCTIONS[content]), content)
    return unpack(data)
