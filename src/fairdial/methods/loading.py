"""Saved models back as estimators: the reading side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairdial.criteria import criterion as find_criterion
from fairdial.encoders import TableEncoder
from fairdial.errors import FairdialError, InvalidInputError, MissingExtraError, ModelFileError
from fairdial.methods.base import DialClassifier
from fairdial.methods.epo import EPO
from fairdial.methods.fairbayes import FairBayes
from fairdial.methods.fairbinn import FairBiNN
from fairdial.methods.gfb import GFB
from fairdial.methods.network import Network, torch_module
from fairdial.methods.saving import ENCODER, FRONTIER, LEARNED, OBJECTS, TABLES, WEIGHTS
from fairdial.methods.yoto import YOTO, Condition
from fairdial.persistence.folder import MANIFEST, Key, Stored, read_folder
from fairdial.persistence.frontiers import frontier_from_arrays
from fairdial.persistence.objects import read_objects
from fairdial.persistence.values import read_json, unpack, unpack_table
from fairdial.scorers import AveragedScorer, PlattMap, SklearnScorer, find_method

METHODS: dict[str, type[DialClassifier]] = {
    method.__name__: method for method in (EPO, FairBayes, FairBiNN, GFB, YOTO)
}
BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)


def load(
    folder: str | os.PathLike[str],
    *,
    key: Key = None,
    trusted: Sequence[str] = (),
    trunk: Any = None,
) -> Any:
    """The estimator that ``save`` wrote to a folder.

    Every file is checked against the manifest's hash before it is parsed, and no file can run
    code. Predictions are those of the saved model, to the last bit with the same libraries.

    Parameters
    ----------
    folder : path
        Where the model lies.
    key : bytes or path, optional
        The model must be signed with it. Without, a signature is not looked at.
    trusted : sequence of str
        Types of a scikit-learn estimator that are allowed besides those on the library's list;
        the error names those that are missing.
    trunk : torch Module or callable, optional
        Makes the network's trunk, where that is a module of your own.

    Returns
    -------
    estimator
        Fitted; ``model_hash_`` is the SHA-256 of the manifest, which stands for the whole model.

    Raises
    ------
    ModelFileError
        Something is missing, altered or of another kind than it must be.

    Examples
    --------
    >>> import tempfile
    >>> import fairdial
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial.datasets import make_gaussian
    >>> sample = make_gaussian(5000, random_state=0)
    >>> dial = fairdial.FairBayes(LogisticRegression(), per_group=True, random_state=0)
    >>> dial = dial.fit(sample.X, sample.y, sensitive_features=sample.groups)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     saved = dial.save(f"{place}/dial")
    ...     again = fairdial.load(f"{place}/dial")
    >>> again.model_hash_ == saved
    True
    >>> again.thresholds(0.1) == dial.thresholds(0.1)
    True
    """
    if isinstance(trusted, str) or not all(isinstance(name, str) for name in trusted):
        raise InvalidInputError(f"`trusted` must be a list of type names, got {trusted!r}.")
    stored = read_folder(folder, key=key)
    try:
        return _Reader(stored, trusted, trunk).model()
    except (ModelFileError, MissingExtraError):
        raise
    except BROKEN as error:
        if isinstance(error, InvalidInputError) and str(error).startswith("`trunk`"):
            raise
        told = (
            str(error) if isinstance(error, FairdialError) else f"{type(error).__name__}: {error}"
        )
        raise ModelFileError(
            f"`{MANIFEST}` must tell of a model that its files hold, got something else ({told})."
        ) from error


class _Reader:
    """A stored model that becomes an estimator."""

    def __init__(self, stored: Stored, trusted: Sequence[str], trunk: Any) -> None:
        self.stored, self.manifest, self.trunk = stored, stored.manifest, trunk
        self.objects: dict[str, Any] = {}
        if OBJECTS in stored.files:
            self.objects = read_objects(stored.files[OBJECTS], OBJECTS, trusted)

    def model(self) -> DialClassifier:
        manifest = self.manifest
        kind = METHODS[manifest["method"]]
        packed = manifest["parameters"]
        if set(packed) != set(kind().get_params(deep=False)):
            raise ValueError(f"other parameters than {kind.__name__} has")
        model = kind(**{name: unpack(value, self.unpack) for name, value in packed.items()})
        model.classes_ = unpack(manifest["classes"])
        if not isinstance(model.classes_, np.ndarray) or len(set(model.classes_.tolist())) != 2:
            raise ValueError("labels that aren't two")
        model.label_name_ = manifest["label"]
        self.features(model)
        model.trained_groups_ = unpack(manifest["groups"])
        self.scorer(model)
        for name, value in manifest["learned"].items():
            if name not in LEARNED:
                raise ValueError(f"{name!r}, which no model learns")
            setattr(model, name, unpack(value))
        for name, table in self.json(TABLES).items() if TABLES in self.stored.files else ():
            setattr(model, name, None if table is None else unpack_table(table))
        self.frontier(model)
        model.model_hash_ = self.stored.hash
        return model

    def unpack(self, data: dict[str, Any]) -> Any:
        """Parameters that aren't plain."""
        ((kind, content),) = data.items()
        if kind == "$criterion":
            return find_criterion(content)
        if kind == "$table_encoder":
            return TableEncoder(**{name: unpack(value) for name, value in content.items()})
        if kind == "$object":
            return self.objects[content]
        if kind != "$network":
            raise ValueError(f"a value of unknown type {kind!r}")
        params = {name: unpack(value, self.unpack) for name, value in content.items()}
        return Network(**params)

    def json(self, name: str) -> Any:
        """What a file of JSON says."""
        return read_json(self.stored.files[name], name)

    def features(self, model: Any) -> None:
        """The columns that the model expects."""
        told = self.manifest["features"]
        count, names = told["count"], told["names"]
        if count is not None:
            model.n_features_in_ = int(count)
        if names is not None:
            model.feature_names_in_ = np.array(names, dtype=object)
            if len(names) != count:
                raise ValueError("another number of features than names")

    def scorer(self, model: Any) -> None:
        """What scores."""
        told = self.manifest["scorer"]
        if told["kind"] == "estimators":
            self.estimators(model, told)
            return
        network = self.network(model)
        nets = torch_module("saving").nets_from_arrays(
            told["nets"], self.stored.files[WEIGHTS], WEIGHTS, self.trunk
        )
        model.encoder_ = self.encoder(told["encoder"])
        fitting, scoring = torch_module("fitting"), torch_module("scorer")
        device = fitting.find_device(network.device)
        nets = [net.to(device) for net in nets]
        encode = fitting.Inputs(model.encoder_, device)
        if told["kind"] == "runs":
            model.nets_ = nets
            settings = unpack(self.manifest["learned"]["settings_"])
            model.scorer_ = scoring.RunsScorer(nets, settings, encode)
            return
        (model.net_,) = nets
        if told["kind"] == "film":
            condition = Condition(**told["condition"])
            model.scorer_ = scoring.FilmScorer(model.net_, condition, encode)
        else:
            model.scorer_ = scoring.NetScorer(model.net_, encode)

    def network(self, model: Any) -> Network:
        """The network's settings, with the trunk that was given."""
        network: Network | None = model.estimator if isinstance(model, FairBayes) else model.network
        if network is None:
            return Network()
        network.trunk = self.trunk
        return network

    def estimators(self, model: Any, told: dict[str, Any]) -> None:
        """Estimators of scikit-learn."""
        method = told["method"]
        parts = self.objects["fitted"]
        every = [estimator for part in parts for estimator in part]
        for estimator in every:
            find_method(estimator, method)
        scorers = [SklearnScorer(p, positive=model.classes_[1], method=method) for p in parts]
        if told["averaged"]:
            model.scorer_, model.estimator_ = AveragedScorer(scorers), every
        else:
            (model.scorer_,) = scorers
            model.estimator_ = model.scorer_.estimators if model.per_group else every[0]

    def encoder(self, kind: str | None) -> Any:
        """How rows become inputs."""
        if kind == "table":
            return TableEncoder.from_json(self.stored.files[ENCODER].decode())
        return None if kind is None else self.objects["encoder"]

    def frontier(self, model: Any) -> None:
        """The frontier, and recalibration, if the model was calibrated."""
        told, platt = self.manifest["frontier"], self.manifest["platt"]
        if told is not None:
            model.frontier_ = frontier_from_arrays(told, self.stored.files[FRONTIER], FRONTIER)
        if hasattr(model, "recalibrate"):
            model.platt_ = None
        if platt is not None:
            lines = unpack(platt["slope"]), unpack(platt["intercept"])
            model.platt_ = PlattMap(*lines, unpack(platt["groups"]))
