"""Scorers for tables that need no choices: gradient boosting, logistic regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from fairdial.encoders import TableEncoder

MOST_CATEGORIES = 254  # of a text column in gradient boosting; rarer ones are one category
STEPS = 1000  # at most, of logistic regression
WIDE = 256  # numbers a row: from here on they are taken for an embedding
WIDE_C = 1e-3  # regularisation of logistic regression on embeddings


def texts_of(X: Any) -> list[Any]:
    """Columns of a table that aren't numbers."""
    if not isinstance(X, pd.DataFrame):
        return []
    return [name for name in X.columns if not pd.api.types.is_numeric_dtype(X[name].dtype)]


def is_wide(X: Any) -> bool:
    """Whether rows are many numbers each, such as features of a pretrained network."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return len(shape) == 2 and shape[1] >= WIDE and not texts_of(X)


def boosting(texts: Sequence[Any], seed: int | None) -> Any:
    """Gradient boosting in which text columns are categories.

    Examples
    --------
    >>> from fairdial.methods.learners import boosting
    >>> type(boosting([], 0)).__name__
    'HistGradientBoostingClassifier'
    """
    if not texts:
        return HistGradientBoostingClassifier(random_state=seed)
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        max_categories=MOST_CATEGORIES,
    )
    columns = ColumnTransformer([("texts", codes, list(texts))], remainder="passthrough")
    trees = HistGradientBoostingClassifier(
        categorical_features=list(range(len(texts))), random_state=seed
    )
    return make_pipeline(columns, trees)


def logistic(*, wide: bool = False) -> Any:
    """Logistic regression on the features that networks see.

    Examples
    --------
    >>> from fairdial.methods.learners import logistic
    >>> [name for name, _ in logistic().steps]
    ['tableencoder', 'logisticregression']
    """
    if wide:
        return make_pipeline(StandardScaler(), LogisticRegression(C=WIDE_C, max_iter=STEPS))
    return make_pipeline(TableEncoder(), LogisticRegression(max_iter=STEPS))
