"""Fitting scikit-learn classifiers: what can be fitted, weights, and errors that say what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import sklearn
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from fairdial._arrays import Weights
from fairdial.errors import InvalidInputError, TrainingWarning, warn
from fairdial.estimators.learners import text_columns
from fairdial.forests.forest import library_of
from fairdial.forests.native import NativeBooster, is_native
from fairdial.nn.network import Network

NOT_A_NUMBER = "could not convert string to float"  # NumPy's message for text among numbers
TOO_FEW = ("least populated class", "test_size")  # scikit-learn's, if it can't hold rows out
TORCH_MODULE = "torch.nn.modules.module"  # home of torch's base class, known without importing it
WEIGHT = "sample_weight"


def check_estimator(estimator: object) -> None:
    """Raise unless it can be trained; a torch module has to be wrapped in a Network."""
    kind = type(estimator)
    if is_native(estimator):
        raise InvalidInputError(
            "estimator",
            "be a scikit-learn classifier or a Network",
            given=f"a {library_of(estimator)}.{kind.__name__}",
            hint="Calibrate a trained booster with `prefit=True`.",
        )
    trains = hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    if trains or isinstance(estimator, Network):
        return
    is_torch = any(base.__module__ == TORCH_MODULE for base in kind.__mro__)
    raise InvalidInputError(
        "estimator",
        "be a scikit-learn classifier or a Network",
        given=f"{kind.__name__}, a torch module" if is_torch else kind.__name__,
        hint="Wrap it: FairBayes(Network(trunk=...))." if is_torch else (),
    )


def check_trained_columns(estimator: Any, X: Any) -> None:
    """Raise if LightGBM, which reads columns by position, was trained on others."""
    booster = estimator.booster if isinstance(estimator, NativeBooster) else estimator
    if library_of(booster) != "lightgbm" or not isinstance(X, pd.DataFrame):
        return
    trained = getattr(booster, "booster_", booster).feature_name()
    given = [str(name).replace(" ", "_") for name in X.columns]  # as LightGBM writes them
    if trained != given and trained != [f"Column_{i}" for i in range(len(given))]:
        raise InvalidInputError(
            "X",
            f"have the columns that {type(booster).__name__} was trained on, in their order",
            given=", ".join(map(str, X.columns)),
            hint=f"Its columns are {', '.join(trained)}.",
        )


def weight_argument(estimator: Any) -> str | None:
    """Return the argument of ``fit`` that takes sample weights, or None if there is none.

    A pipeline gives them to its last step, unless scikit-learn's metadata routing is enabled and
    its steps request them.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from fairdial.estimators.fitting import weight_argument
    >>> weight_argument(make_pipeline(LogisticRegression()))
    'logisticregression__sample_weight'
    >>> weight_argument(KNeighborsClassifier()) is None
    True
    """
    if sklearn.get_config()["enable_metadata_routing"]:
        router = get_routing_for_object(estimator)
        if router.consumes("fit", [WEIGHT]):
            return WEIGHT
    if has_fit_parameter(estimator, WEIGHT):
        return WEIGHT
    if isinstance(estimator, Pipeline) and estimator.steps:
        name, last = estimator.steps[-1]
        inner = weight_argument(last)
        return None if inner is None else f"{name}__{inner}"
    return None


def warn_without_weights(estimator: Any) -> None:
    """Warn if an estimator can't be trained with sample weights."""
    if not isinstance(estimator, Network) and weight_argument(estimator) is None:
        warn(
            f"{type(estimator).__name__} takes no `sample_weight`, so it is trained without "
            "weights; only calibration uses them",
            TrainingWarning,
        )


def _fit(estimator: Any, X: Any, y: Any, weights: Weights | None) -> Any:
    """Fit an estimator, with weights if it takes them."""
    argument = None if weights is None else weight_argument(estimator)
    if argument is None:
        return estimator.fit(X, y)
    if argument == WEIGHT:
        return estimator.fit(X, y, sample_weight=weights)
    with sklearn.config_context(enable_metadata_routing=False):  # a step's name as prefix
        return estimator.fit(X, y, **{argument: weights})


def fit_clone(estimator: Any, X: Any, y: Any, weights: Weights | None = None) -> Any:
    """Return a fitted clone; the error explains if text, dates or too few rows are the cause."""
    name = type(estimator).__name__
    readable = f"hold what {name} can read"
    try:
        return _fit(clone(estimator), X, y, weights)
    except TypeError as error:  # such as NumPy's for dates among numbers
        kinds = X.dtypes.items() if isinstance(X, pd.DataFrame) else ()
        dates = [name for name, kind in kinds if pd.api.types.is_datetime64_any_dtype(kind)]
        if not dates:
            raise
        raise InvalidInputError(
            "X",
            readable,
            given=f"dates in the columns {', '.join(map(repr, dates))}",
            hint="Turn dates into numbers first, such as the number of days since some date.",
        ) from error
    except ValueError as error:
        if any(text in str(error) for text in TOO_FEW):
            labels, counts = np.unique(y, return_counts=True)
            found = [f"{n} with {v!r}" for v, n in zip(labels.tolist(), counts, strict=True)]
            raise InvalidInputError(
                "y",
                f"hold more training rows of each label for {name}, which holds some of them out",
                given=f"{' and '.join(found)} ({error})",
                hint="Add rows, or take an estimator that needs fewer, such as LogisticRegression.",
            ) from error
        empty = pd.DataFrame(X).isna().all() if isinstance(X, (pd.DataFrame, np.ndarray)) else None
        if empty is not None and empty.any():
            raise InvalidInputError(
                "X",
                f"hold at least one value in column {empty.idxmax()!r}",
                given=f"missing values only in the training rows ({error})",
                hint="Drop the column.",
            ) from error
        texts = unreadable_columns(X)
        if NOT_A_NUMBER not in str(error) or not texts:
            raise
        raise InvalidInputError(
            "X",
            readable,
            given=f"text in the columns {', '.join(map(repr, texts))} ({error})",
            hint="Put an encoder before it: make_pipeline(make_column_transformer((OneHotEncoder("
            f"handle_unknown='ignore'), {texts}), remainder='passthrough'), ...). "
            f"HistGradientBoostingClassifier also takes X.astype(dict.fromkeys({texts}, "
            "'category')) with categorical_features='from_dtype'.",
        ) from error


def unreadable_columns(X: Any) -> list[Any]:
    """Return the columns that aren't numbers: text, or pandas' categories if there is no text."""
    if isinstance(X, np.ndarray) and X.ndim == 2:
        X = pd.DataFrame(X).infer_objects()
    texts = text_columns(X)
    plain = [name for name in texts if not isinstance(X.dtypes[name], pd.CategoricalDtype)]
    return plain or texts
