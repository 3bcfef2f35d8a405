"""A model and rows that every engine decides on, calibrates on and evaluates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fairdial import FairBayes

TOLERANCES = [0.02, 0.05, 0.1]
FEATURES = ["age", "hours", "job"]


def make_people(n_rows, seed):
    """Rows with numbers, missing numbers, text, missing text, and columns that no model needs."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], n_rows, p=[0.4, 0.6])
    age = rng.integers(18, 80, n_rows)
    hours = rng.normal(35 + 6 * (sex == "M"), 9).round(2)
    score = 0.05 * (age - 45) + 0.08 * (hours - 38) + rng.logistic(size=n_rows)
    return pd.DataFrame(
        {
            "id": np.arange(n_rows),
            "note": rng.choice(["x", None], n_rows),
            "age": age,
            "hours": np.where(rng.random(n_rows) < 0.1, np.nan, hours),
            "job": rng.choice(["clerk", "nurse", "smith", None], n_rows),
            "sex": sex,
            "hired": np.where(score > 0.4, "yes", "no"),
            "weight": rng.integers(0, 4, n_rows),
            "region": rng.choice(["north", "south"], n_rows),
        }
    )


@pytest.fixture(scope="session")
def people():
    return make_people(20_000, 1)


@pytest.fixture(scope="session")
def boosted():
    """A model that sees text, and numbers with missing ones."""
    rows = make_people(4000, 0)
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job"]), remainder="passthrough"
    )
    scorer = make_pipeline(encoder, HistGradientBoostingClassifier(max_iter=20, random_state=0))
    model = FairBayes(scorer, sensitive_column="sex", random_state=0)
    return model.fit(rows[[*FEATURES, "sex"]], rows["hired"])


@pytest.fixture(scope="session")
def linear():
    """A model that is fast and has a different score for nearly every row."""
    rows = make_people(4000, 0).fillna({"hours": 38.0})
    model = FairBayes(LogisticRegression(max_iter=1000), sensitive_column="sex", random_state=0)
    return model.fit(rows[["age", "hours", "sex"]], rows["hired"])
