"""Native boosters as classifiers: lightgbm.Booster, xgboost.Booster and catboost.CatBoost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fairdial._arrays import Floats
from fairdial.errors import InvalidInputError
from fairdial.forests.forest import library_of

NATIVE = {"lightgbm": "Booster", "xgboost": "Booster", "catboost": "CatBoost"}


class NativeBooster:
    """The classifier of labels 0 and 1 that a booster with a logistic objective is.

    Parameters
    ----------
    library : {"lightgbm", "xgboost", "catboost"}
        Its library.
    booster : optional
        The booster; None if only its library is known, as after loading a model.
    """

    def __init__(self, library: str, booster: Any = None) -> None:
        self.library, self.booster = library, booster
        own = getattr(booster, "classes_", ())  # of CatBoost
        self.classes_ = np.asarray(own if len(own) else [0, 1])

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return what a saved model describes it by."""
        return {"library": self.library}

    def predict_proba(self, X: Any) -> Floats:
        """Return (n, 2) probabilities, which are those of the booster's own ``predict``."""
        if self.library == "catboost":
            return np.asarray(self.booster.predict(X, prediction_type="Probability"))
        if self.library == "xgboost":
            from xgboost import DMatrix

            if self.booster.feature_names is None and isinstance(X, pd.DataFrame):
                X = X.to_numpy()  # trained without names
            kinds = None if isinstance(X, pd.DataFrame) else self.booster.feature_types
            X = DMatrix(X, feature_types=kinds, enable_categorical=True)
        p = np.asarray(self.booster.predict(X))
        return np.stack([1 - p, p], axis=1)


def is_native(model: object) -> bool:
    """Return whether it is the booster of a library, not its classifier."""
    library = library_of(model)
    return library is not None and type(model).__name__ == NATIVE[library]


def as_classifier(model: Any) -> Any:
    """Return a native booster as a classifier, and everything else as it is.

    Raises
    ------
    InvalidInputError
        The booster's objective gives no probabilities of two classes.
    """
    library = library_of(model)
    if library is None or not is_native(model):
        return model
    objective, known = _objective(library, model)
    if objective not in known:
        raise InvalidInputError(
            "estimator",
            f"have the objective {' or '.join(known)}",
            given=f"a {library}.{NATIVE[library]} with {objective or 'a custom objective'}",
            hint="Turn other scores into log-odds and pass them to fairdial.sweep.",
        )
    return NativeBooster(library, model)


def _objective(library: str, model: Any) -> tuple[str, tuple[str, ...]]:
    """Return the objective of a native booster, and those that can be used."""
    if library == "lightgbm":
        from fairdial.forests import lightgbm_trees

        return lightgbm_trees.objective_of(model), lightgbm_trees.OBJECTIVES
    if library == "xgboost":
        from fairdial.forests import xgboost_trees

        return xgboost_trees.objective_of(model), xgboost_trees.OBJECTIVES
    from fairdial.forests import catboost_trees

    return catboost_trees.objective_of(model), catboost_trees.OBJECTIVES
