"""Models in MLflow: log, load and serve them, with a tolerance for each request.

A logged model is the folder that ``model.save`` writes, and MLflow's generic ``python_function``
flavor around it, so nothing is pickled, and whatever serves MLflow models serves it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairdial._validation import check_one_tolerance
from fairdial._version import __version__
from fairdial.errors import InvalidInputError, require_extra
from fairdial.estimators.base import DialClassifier
from fairdial.io.load import load
from fairdial.io.manifest import OBJECTS
from fairdial.io.save import CARD

FOLDER, SETTINGS = "model", "fairdial.json"  # beside each other in what is logged
FLAVOR = "python_function"
TOLERANCE = "tolerance"


def log_model(
    model: DialClassifier,
    name: str = "model",
    *,
    group: str | None = None,
    input_example: pd.DataFrame | None = None,
    **options: Any,
) -> Any:
    """Log a calibrated model to MLflow; return MLflow's ``ModelInfo``.

    Parameters
    ----------
    model : DialClassifier
        Calibrated.
    name : str
        The model's name in MLflow.
    group : str, optional
        The column of the frames to predict on that has the group. It isn't a feature. By default
        ``model.sensitive_column``, which is one.
    input_example : DataFrame, optional
        Some rows; MLflow stores them, and checks the types of columns of later frames by them.
    **options
        For ``mlflow.pyfunc.log_model``: ``registered_model_name``, ``pip_requirements``, ``tags``.

    Raises
    ------
    InvalidInputError, ModelFileError
        If the model isn't calibrated, needs types that must be trusted, or has no group column.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.mlflow import log_model
    >>> sample = make_gaussian(4000, random_state=0)
    >>> model = FairBayes(LogisticRegression(), per_group=True, random_state=0)
    >>> model = model.fit(sample.X, sample.y, sensitive_features=sample.groups)
    >>> info = log_model(model, group="team")  # doctest: +SKIP
    """
    require_extra("mlflow", "Logging models to MLflow", "mlflow")
    import mlflow
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import ParamSchema, ParamSpec

    _check_group(model, group)
    default = float(model.default_tolerance)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "data")
        model.save(folder / FOLDER)
        load(folder / FOLDER)  # raises if loading needs trust, which MLflow can't ask for
        Path(folder, SETTINGS).write_text(json.dumps({"group": group}), "utf-8")
        extras = "[save]" if Path(folder, FOLDER, OBJECTS).exists() else ""
        if input_example is None:
            schema = ParamSchema([ParamSpec(TOLERANCE, "double", default)])
            signature = ModelSignature(params=schema)
        else:
            made = Predictor(model, group).predict(input_example)
            signature = infer_signature(input_example, made, params={TOLERANCE: default})
        info = mlflow.pyfunc.log_model(
            name=name,
            loader_module=__name__,
            data_path=str(folder),
            signature=signature,
            input_example=input_example,
            **{
                "pip_requirements": [f"fairdial{extras}=={__version__}"],
                "metadata": _metadata(model),
                **options,
            },
        )
        card = Path(folder, FOLDER, CARD).read_text("utf-8")
    if info.run_id is not None:
        mlflow.MlflowClient().log_text(info.run_id, card, CARD)
    return info


def load_model(uri: str) -> DialClassifier:
    """Return the estimator that :func:`log_model` logged, from its address in MLflow.

    Examples
    --------
    >>> from fairdial.mlflow import load_model
    >>> model = load_model("models:/loans@champion")  # doctest: +SKIP
    """
    require_extra("mlflow", "Loading models from MLflow", "mlflow")
    import mlflow
    from mlflow.models import Model

    path = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri))
    flavor: Mapping[str, str] = Model.load(str(path)).flavors.get(FLAVOR, {})
    if flavor.get("loader_module") != __name__:
        raise InvalidInputError("uri", "name a model logged by fairdial.mlflow", given=repr(uri))
    found: DialClassifier = load(path / flavor["data"] / FOLDER)
    return found


def _load_pyfunc(path: str | os.PathLike[str]) -> Predictor:
    """Return what MLflow calls; it finds this function by its name."""
    settings = json.loads(Path(path, SETTINGS).read_text("utf-8"))
    return Predictor(load(Path(path, FOLDER)), settings["group"])


class Predictor:
    """A model as MLflow calls it.

    Parameters
    ----------
    model : DialClassifier
        Calibrated.
    group : str, optional
        The column with the group, which isn't a feature.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.mlflow import Predictor
    >>> sample = make_gaussian(4000, random_state=0)
    >>> frame = sample.X.assign(team=sample.groups)
    >>> model = FairBayes(LogisticRegression(), per_group=True, random_state=0)
    >>> model = model.fit(sample.X, sample.y, sensitive_features=sample.groups)
    >>> Predictor(model, "team").predict(frame[:3], {"tolerance": 0.05}).shape
    (3,)
    """

    def __init__(self, model: DialClassifier, group: str | None) -> None:
        self.model, self.group = model, group

    def predict(
        self, frame: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        """Return the label of each row, at ``params["tolerance"]`` or the default tolerance."""
        given = dict(params or {})
        tolerance = given.pop(TOLERANCE, None)
        if given:
            raise InvalidInputError(
                "params", f"have no names but {TOLERANCE!r}", given=", ".join(map(repr, given))
            )
        if not isinstance(frame, pd.DataFrame):
            raise InvalidInputError(
                "model_input", "be a DataFrame", given=f"a {type(frame).__name__}"
            )
        groups = None
        if self.group is not None:
            if self.group not in frame:
                raise InvalidInputError(
                    "model_input", f"have the group column {self.group!r}", given=f"{[*frame]}"
                )
            groups, frame = frame[self.group], frame.drop(columns=self.group)
        names = getattr(self.model, "feature_names_in_", None)
        return self.model.predict(
            frame if names is not None else frame.to_numpy(),
            sensitive_features=groups,
            tolerance=None if tolerance is None else check_one_tolerance(tolerance),
        )


def _check_group(model: DialClassifier, group: str | None) -> None:
    if not hasattr(model, "frontier_"):
        raise InvalidInputError("model", "be calibrated", given="one that isn't")
    blind = bool(getattr(model, "blind", False))
    alone = blind or model.sensitive_column is not None or len(model.frontier_.groups) == 1
    if group is None and not alone:
        raise InvalidInputError(
            "group", "name the column that has the group: decisions depend on it", given="None"
        )
    if group is not None and model.sensitive_column is not None:
        raise InvalidInputError(
            "group", f"be left out: the model reads {model.sensitive_column!r}", given=repr(group)
        )


def _metadata(model: DialClassifier) -> dict[str, str]:
    return {
        "fairdial_method": type(model).__name__,
        "fairdial_criterion": str(model.frontier_.criterion.name),
        "fairdial_groups": ", ".join(map(str, model.frontier_.groups)),
    }
