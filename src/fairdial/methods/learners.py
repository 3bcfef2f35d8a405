"""Scorers for tables that need no choices: gradient boosting, logistic regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_array
from threadpoolctl import threadpool_limits

from fairdial.encoders import FrequentEncoder, TableEncoder, wide_steps

TREES = ("boosting", "blend")  # names of scorers that have some
SEVERAL_THREADS = 100_000  # rows; with fewer, one thread grows the trees in seconds
MOST_CATEGORIES = 254  # of a text column in gradient boosting; rarer ones are one category
AS_FLOATS = {"dtype": "float64", "ensure_all_finite": False}  # pandas' NA becomes NaN
STEPS = 1000  # at most, of logistic regression
WIDE_C = 1e-3  # regularisation of logistic regression on embeddings
SMALL_TREES: dict[str, Any] = {  # better than scikit-learn's on few rows, as good on many
    "learning_rate": 0.06,
    "max_iter": 300,
    "max_leaf_nodes": 15,
    "l2_regularization": 1.0,
    "early_stopping": True,
}


def texts_of(X: Any) -> list[Any]:
    """Columns of a table that aren't numbers: texts, and pandas' categories."""
    if not isinstance(X, pd.DataFrame):
        return []
    return [name for name, kind in X.dtypes.items() if not is_numeric_dtype(kind)]


def boosting(
    texts: Sequence[Any], seed: int | None, *, trees: Mapping[str, Any] = SMALL_TREES
) -> Any:
    """Gradient boosting in which text columns are categories.

    Its trees are smaller than scikit-learn's default, unless other settings are given. Pandas'
    nullable columns are taken as floats, NaN where a value is missing.

    Examples
    --------
    >>> from fairdial.methods.learners import boosting
    >>> type(boosting([], 0)).__name__
    'HistGradientBoostingClassifier'
    """
    if not texts:
        return HistGradientBoostingClassifier(random_state=seed, **trees)
    codes = FrequentEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        max_categories=MOST_CATEGORIES,
    )
    floats = FunctionTransformer(check_array, kw_args=AS_FLOATS)
    columns = ColumnTransformer([("texts", codes, list(texts))], remainder=floats)
    classifier = HistGradientBoostingClassifier(
        categorical_features=list(range(len(texts))), random_state=seed, **trees
    )
    return make_pipeline(columns, classifier)


def blend(texts: Sequence[Any], seed: int | None, *, wide: bool = False) -> list[Any]:
    """Logistic regression and gradient boosting, to be averaged.

    Examples
    --------
    >>> from fairdial.methods.learners import blend
    >>> len(blend([], 0))
    2
    """
    return [logistic(wide=wide), boosting(texts, seed)]


def logistic(*, wide: bool = False) -> Any:
    """Logistic regression on what networks see of a table: its columns, but not the group.

    Examples
    --------
    >>> from fairdial.methods.learners import logistic
    >>> [name for name, _ in logistic().steps]
    ['tableencoder', 'logisticregression']
    """
    if wide:
        return make_pipeline(*wide_steps(), LogisticRegression(C=WIDE_C, max_iter=STEPS))
    return make_pipeline(TableEncoder(dtype="float64"), LogisticRegression(max_iter=STEPS))


def limit_threads(name: str, n_rows: int) -> AbstractContextManager[Any]:
    """One thread of OpenMP while trees of few rows are trained.

    Where all cores are busy, threads of OpenMP wait for each other: with two of them boosting took
    many times as long as with one, also on Adult.

    Examples
    --------
    >>> from fairdial.methods.learners import limit_threads
    >>> with limit_threads("boosting", 5_000):
    ...     pass  # train
    """
    if name not in TREES or n_rows >= SEVERAL_THREADS:
        return nullcontext()
    one: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="openmp")
    return one
