"""Classifiers for tables with sensible defaults: gradient boosting and logistic regression."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pandas as pd
from joblib import cpu_count
from pandas.api.types import is_numeric_dtype
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_array
from threadpoolctl import threadpool_limits

from fairdial.forests.forest import library_of
from fairdial.tables.categories import CategoryEncoder
from fairdial.tables.encoder import TableEncoder, wide_steps
from fairdial.tables.frequent import FrequentEncoder
from fairdial.tables.inputs import MOST_CODES
from fairdial.tables.means import MeanEncoder

MANY_ROWS = 100_000  # with fewer, a single thread grows the trees in seconds
AS_FLOATS = {"dtype": "float64", "ensure_all_finite": False}  # pandas' NA becomes NaN
MAX_ITER = 1000  # of logistic regression
WIDE_C = 1e-3  # regularization of logistic regression on embeddings
SMALL_TREES: dict[str, object] = {  # better than scikit-learn's on few rows, as good on many
    "learning_rate": 0.06,
    "max_iter": 300,
    "max_leaf_nodes": 15,
    "l2_regularization": 1.0,
    "early_stopping": True,
}


def text_columns(X: object) -> list[Any]:
    """Return the columns of a table that aren't numbers: text and pandas' categories."""
    if not isinstance(X, pd.DataFrame):
        return []
    return [name for name, kind in X.dtypes.items() if not is_numeric_dtype(kind)]


def boosting(
    texts: Sequence[Hashable],
    seed: int | None,
    *,
    trees: Mapping[str, object] = SMALL_TREES,
) -> BaseEstimator:
    """Return gradient boosting in which text columns are categories.

    Columns with many categories also become shares of positive labels
    (:class:`~fairdial.tables.means.MeanEncoder`). The trees are smaller than scikit-learn's
    default, unless other settings are given. Pandas' nullable columns become floats, with NaN for
    missing values.

    Examples
    --------
    >>> from fairdial.estimators.learners import boosting
    >>> type(boosting([], 0)).__name__
    'HistGradientBoostingClassifier'
    """
    if not texts:
        return HistGradientBoostingClassifier(random_state=seed, **trees)
    codes = FrequentEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        max_categories=MOST_CODES,
    )
    floats = FunctionTransformer(check_array, kw_args=AS_FLOATS)
    means = MeanEncoder(random_state=seed)
    columns = ColumnTransformer(
        [("texts", codes, list(texts)), ("means", means, list(texts))], remainder=floats
    )
    classifier = HistGradientBoostingClassifier(
        categorical_features=list(range(len(texts))), random_state=seed, **trees
    )
    return make_pipeline(columns, classifier)


def booster(library: str, seed: int | None) -> Pipeline:
    """Return the classifier of LightGBM, XGBoost or CatBoost with text columns as categories.

    Examples
    --------
    >>> from fairdial.estimators.learners import booster
    >>> [name for name, _ in booster("lightgbm", 0).steps]
    ['categoryencoder', 'lgbmclassifier']
    """
    if library == "lightgbm":
        from lightgbm import LGBMClassifier

        return _with_categories(LGBMClassifier(random_state=seed, verbose=-1))
    if library == "xgboost":
        from xgboost import XGBClassifier

        return _with_categories(XGBClassifier(random_state=seed))
    from catboost import CatBoostClassifier

    quiet = {"verbose": False, "allow_writing_files": False}
    return _with_categories(CatBoostClassifier(random_seed=seed, **quiet))


def _with_categories(model: Any) -> Pipeline:
    """Return a booster behind the encoder that makes categories of text columns."""
    library = library_of(model)
    if library == "xgboost":
        model = clone(model).set_params(enable_categorical=True)
    return make_pipeline(CategoryEncoder("one_hot" if library == "catboost" else "category"), model)


def for_table(model: Any, X: Any) -> Any:
    """Return a booster for a table: with an encoder, if there are columns that it can't read.

    Examples
    --------
    >>> import pandas as pd
    >>> from lightgbm import LGBMClassifier
    >>> from fairdial.estimators.learners import for_table
    >>> type(for_table(LGBMClassifier(), pd.DataFrame({"job": ["cook", "nurse"]}))).__name__
    'Pipeline'
    """
    library, texts = library_of(model), text_columns(X)
    if library is None or not texts or not hasattr(model, "get_params"):
        return model
    settings = model.get_params()
    if library == "catboost":
        handled = any(settings.get(f"{kind}_features") for kind in ("cat", "text", "embedding"))
        return model if handled else _with_categories(model)
    native = all(isinstance(X.dtypes[name], pd.CategoricalDtype) for name in texts)
    if native and (library == "lightgbm" or settings.get("enable_categorical")):
        return model
    return _with_categories(model)


def blend(
    texts: Sequence[Hashable], seed: int | None, *, wide: bool = False
) -> list[BaseEstimator]:
    """Return logistic regression and gradient boosting, to be averaged.

    Examples
    --------
    >>> from fairdial.estimators.learners import blend
    >>> len(blend([], 0))
    2
    """
    return [logistic(wide=wide), boosting(texts, seed)]


def logistic(*, wide: bool = False) -> Pipeline:
    """Return logistic regression on the features that networks see, without the group.

    Examples
    --------
    >>> from fairdial.estimators.learners import logistic
    >>> [name for name, _ in logistic().steps]
    ['tableencoder', 'logisticregression']
    """
    if wide:
        return make_pipeline(*wide_steps(), LogisticRegression(C=WIDE_C, max_iter=MAX_ITER))
    return make_pipeline(TableEncoder(dtype="float64"), LogisticRegression(max_iter=MAX_ITER))


@contextmanager
def limit_threads(n_rows: int, *, trees: bool) -> Iterator[None]:
    """Restrict OpenMP to one thread while trees are trained on few rows, and all to a container.

    On busy cores OpenMP's threads wait for each other: on Adult, boosting with two threads took
    many times as long as with one. A container that may use fewer cores than the machine has gets
    as many threads as cores, unless ``OMP_NUM_THREADS`` is set.

    Examples
    --------
    >>> from fairdial.estimators.learners import limit_threads
    >>> with limit_threads(5_000, trees=True):
    ...     pass  # train
    """
    usable = int(cpu_count())  # knows limits of containers, and affinity
    with ExitStack() as limits:
        if usable < (os.cpu_count() or 1) and "OMP_NUM_THREADS" not in os.environ:
            limits.enter_context(threadpool_limits(limits=usable))
        if trees and n_rows < MANY_ROWS:
            limits.enter_context(threadpool_limits(limits=1, user_api="openmp"))
        yield
