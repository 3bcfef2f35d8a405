"""Saved models back as estimators: the reading side."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from safetensors import SafetensorError
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from fairdial._validation import check_one
from fairdial.criteria import criterion as find_criterion
from fairdial.encoders import TableEncoder
from fairdial.errors import (
    FairdialError,
    FairdialWarning,
    InvalidInputError,
    MissingExtraError,
    ModelFileError,
    warn,
)
from fairdial.methods.base import DialClassifier
from fairdial.methods.epo import EPO
from fairdial.methods.fairbayes import FairBayes, fitted_of
from fairdial.methods.fairbinn import FairBiNN
from fairdial.methods.families import FamilyClassifier
from fairdial.methods.gfb import GFB
from fairdial.methods.network import Network, torch_module
from fairdial.methods.pieces import features_from_data, platt_from_data
from fairdial.methods.saving import (
    ENCODER,
    FRAMES,
    OBJECTS,
    PICTURES,
    TABLES,
    WEIGHTS,
)
from fairdial.methods.thresholds import ThresholdClassifier
from fairdial.methods.yoto import YOTO, Condition
from fairdial.persistence.facts import claim, training_from_data
from fairdial.persistence.folder import Stored, read_folder
from fairdial.persistence.frontiers import FRONTIER, frontier_from_arrays
from fairdial.persistence.manifest import MANIFEST, Key
from fairdial.persistence.objects import read_objects
from fairdial.persistence.values import read_json, unpack, unpack_table
from fairdial.scorers import AveragedScorer, SklearnScorer, find_method

METHODS: dict[str, type[DialClassifier]] = {
    method.__name__: method for method in (EPO, FairBayes, FairBiNN, GFB, YOTO)
}
SCORERS = {"EPO": "runs", "FairBiNN": "runs", "YOTO": "film"}  # the others': one net
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
        What ``Network(trunk=...)`` took, where that is a module of your own: its weights are in
        the folder, its code is not.

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
        objects: dict[str, Any] = {}
        if OBJECTS in stored.files:
            objects = read_objects(stored.files[OBJECTS], OBJECTS, trusted)
        return _Reader(stored, objects, trunk).model()
    except (ModelFileError, MissingExtraError):
        raise
    except BROKEN as error:
        told = str(error) if isinstance(error, FairdialError) else repr(error)
        raise ModelFileError(
            f"`{MANIFEST}` must tell of a model that its files hold, got something else ({told})."
        ) from error


class _Reader:
    """A stored model that becomes an estimator; LookupError, TypeError, ...: it is none."""

    def __init__(self, stored: Stored, objects: dict[str, Any], trunk: Any) -> None:
        self.files, self.manifest = stored.files, stored.manifest
        self.hash, self.objects, self.trunk = stored.hash, objects, trunk

    def model(self) -> DialClassifier:
        """The estimator."""
        model: DialClassifier = self.unfitted()
        model.classes_ = unpack(self.manifest["classes"])
        labels = model.classes_
        two = isinstance(labels, np.ndarray) and len(set(labels.tolist())) == 2
        claim(two, "two labels")
        if self.manifest["label"] is not None:
            claim(isinstance(self.manifest["label"], str), "a name of the labels")
            model.label_name_ = self.manifest["label"]
        training = self.manifest.get("training")  # models of before don't have it
        if training is not None:
            model.training_ = training_from_data(training)
        for name, value in features_from_data(self.manifest["features"]).items():
            setattr(model, name, value)
        groups = unpack(self.manifest["groups"])
        claim(groups is None or type(groups) is tuple, "groups")
        if groups is not None or isinstance(model, FairBayes):
            model.trained_groups_ = groups
        self.scorer(model)
        self.frontier(model)
        for name, table in self.tables().items():
            setattr(model, name, table)
        model.model_hash_ = self.hash
        return model

    def unfitted(self) -> Any:
        """An estimator with the parameters of the saved one."""
        kind, packed = METHODS[self.manifest["method"]], self.manifest["parameters"]
        claim(set(packed) == set(kind().get_params(deep=False)), f"parameters of {kind.__name__}")
        found = kind(**{name: unpack(value, self.unpack) for name, value in packed.items()})
        check_one(found.tolerance)
        return found

    def unpack(self, data: dict[str, Any]) -> Any:
        """Parameters that aren't plain."""
        ((kind, content),) = data.items()
        makers: dict[str, Callable[[], Any]] = {
            "$criterion": lambda: find_criterion(content),
            "$network": lambda: Network(**{k: unpack(v, self.unpack) for k, v in content.items()}),
            "$object": lambda: self.objects[content],
            "$table_encoder": lambda: TableEncoder(**{k: unpack(v) for k, v in content.items()}),
            "$resnet_encoder": lambda: _resnet({k: unpack(v) for k, v in content.items()}),
        }
        return makers[kind]()

    # ---- what scores ---------------------------------------------------------------------------

    def scorer(self, model: Any) -> None:
        """Set what scores."""
        told = self.manifest["scorer"]
        if told["kind"] in ("estimators", "averaged"):
            claim(isinstance(model, FairBayes), "a scorer of the method's kind")
            self.parts(model, told)
            return
        wanted = SCORERS.get(self.manifest["method"], "net")
        claim(told["kind"] == wanted, "a scorer of the method's kind")
        nets, model.encoder_, encode = self.net_parts(model, _network(model), told, "")
        scoring = torch_module("scorer")
        model.best_epoch_ = unpack(told["best_epoch"])
        if wanted == "runs":
            model.nets_, model.settings_ = nets, unpack(told["settings"])
            claim(len(model.settings_) == sum(net.runs for net in nets), "a net for each setting")
            model.scorer_ = scoring.RunsScorer(nets, model.settings_, encode)
            return
        (model.net_,) = nets
        if wanted == "film":
            condition = Condition(**told["condition"])
            claim(condition.kind in ("raw", "log") and 0 < condition.low < condition.high, "range")
            model.scorer_ = scoring.FilmScorer(model.net_, condition, encode)
        else:
            model.scorer_ = scoring.NetScorer(model.net_, encode)

    def net_parts(
        self, model: Any, network: Network, told: dict[str, Any], prefix: str
    ) -> tuple[list[Any], Any, Any]:
        """Networks where they run, their encoder, and what makes rows their inputs."""
        nets = self.nets(network, told["nets"], prefix)
        encoder = self.encoder(network, told["encoder"], prefix)
        _check_nets(nets, model.trained_groups_, encoder, told["kind"])
        device = _device(network)
        encode = torch_module("fitting").Inputs(encoder, device)
        return [net.to(device) for net in nets], encoder, encode

    def nets(self, network: Network, told: list[dict[str, Any]], prefix: str) -> list[Any]:
        """The networks; the settings get their trunk back, if there is one."""
        saving = torch_module("saving")
        own = saving.needs_trunk(told)
        if own is None and self.trunk is not None:
            raise ModelFileError("`trunk` must be left out: the model's is the library's, got one.")
        if own is not None and self.trunk is None:
            raise ModelFileError(
                f"`{prefix}{WEIGHTS}` holds the weights of a trunk of your own, {own}, and files "
                "bring no "
                "code: load(..., trunk=...) takes what Network(trunk=...) took."
            )
        trunk = self.trunk or saving.library_trunk(told)
        if trunk is not None:
            network.trunk = trunk
        file = prefix + WEIGHTS
        return saving.nets_from_arrays(told, self.files[file], file, trunk)  # type: ignore[no-any-return]

    def parts(self, model: Any, told: dict[str, Any]) -> None:
        """Classifiers, one or one for each group; or several scorers whose logits are averaged."""
        if told["kind"] == "estimators":
            model.scorer_ = self.estimators(model, told, "")
            fitted = model.scorer_.estimators
            model.estimator_ = fitted if told["per_group"] else fitted[0]
            return
        claim(told["parts"], "scorers")
        networks = [part for part in model._parts() if isinstance(part, Network)] or [Network()]
        scorers: list[Any] = []
        for i, part in enumerate(told["parts"]):
            prefix = f"part{i}-"
            if part["kind"] == "estimators":
                scorers.append(self.estimators(model, part, prefix))
                continue
            claim(part["kind"] == "net", "classifiers and networks")
            place = sum(other["kind"] == "net" for other in told["parts"][:i])
            network = networks[place % len(networks)]  # the same in every fold
            (net,), _, encode = self.net_parts(model, network, part, prefix)
            scorers.append(torch_module("scorer").NetScorer(net, encode))
        model.scorer_, model.estimator_ = AveragedScorer(scorers), fitted_of(scorers)

    def estimators(self, model: Any, told: dict[str, Any], prefix: str) -> SklearnScorer:
        """A classifier of scikit-learn, or one for each group."""
        method, found = told["method"], self.objects[f"{prefix}fitted"]
        groups = model.trained_groups_ if told["per_group"] else (0,)
        claim(len(found) == len(groups), "one estimator, or one for each group")
        for estimator in found:
            find_method(estimator, method)
            if hasattr(estimator, "__sklearn_tags__"):
                check_is_fitted(estimator)
        return SklearnScorer(found, positive=model.classes_[1], method=method)

    def encoder(self, network: Network, kind: str | None, prefix: str) -> Any:
        """How rows become inputs."""
        if kind == "pictures":
            fresh, file = network.encoder, prefix + PICTURES
            claim(type(fresh).__name__ == "ResNetEncoder", "an encoder of pictures")
            try:
                return clone(fresh).put_bytes(self.files[file])
            except (*BROKEN, RuntimeError, SafetensorError) as error:
                raise ModelFileError(
                    f"`{file}` must hold an encoder of pictures, got something else "
                    f"({type(error).__name__}: {error})."
                ) from error
        if kind != "table":
            return None if kind is None else self.objects[f"{prefix}encoder"]
        file = prefix + ENCODER
        read_json(self.files[file], file)  # refuses what from_json may not
        try:
            return TableEncoder.from_json(self.files[file].decode())
        except InvalidInputError as error:
            raise ModelFileError(f"`{file}` must hold a table encoder: {error}") from error

    def tables(self) -> dict[str, Any]:
        """How training went."""
        if TABLES not in self.files:
            return {}
        found = read_json(self.files[TABLES], TABLES)
        try:
            claim(set(found) <= set(FRAMES), "known tables")
            return {k: None if v is None else unpack_table(v) for k, v in found.items()}
        except BROKEN as error:
            raise ModelFileError(f"`{TABLES}` must hold tables, got others ({error!r}).") from error

    # ---- the dial ------------------------------------------------------------------------------

    def frontier(self, model: Any) -> None:
        """Set the frontier, and recalibration, if the model was calibrated."""
        told, platt = self.manifest["frontier"], self.manifest["platt"]
        if isinstance(model, ThresholdClassifier):
            model.platt_ = None if platt is None else platt_from_data(platt)
        if told is None:
            return
        found = frontier_from_arrays(told, self.files[FRONTIER], FRONTIER)
        fits = found.measured == isinstance(model, FamilyClassifier)
        if getattr(model, "trained_groups_", None) is not None:
            fits &= len(found.groups) == len(model.trained_groups_)
        if hasattr(model, "settings_"):
            fits &= bool(np.isin(found.setting, model.settings_).all())
        if getattr(model, "platt_", None) is not None:
            fits &= model.platt_.names == found.groups
        if not fits:
            raise ModelFileError(f"`{FRONTIER}` must be the frontier of this model, got another's.")
        model.frontier_ = found


# ---- parts -------------------------------------------------------------------------------------


def _resnet(arguments: dict[str, Any]) -> Any:
    return torch_module("features").ResNetEncoder(**arguments)


def _network(model: Any) -> Network:
    """The network's settings; the default's where there are none, or none any more."""
    network = model.estimator if isinstance(model, FairBayes) else model.network
    return network if isinstance(network, Network) else Network()


def _device(network: Network) -> Any:
    """Where the network runs: where it was trained, if there is such a place here."""
    find = torch_module("fitting").find_device
    try:
        return find(network.device)
    except InvalidInputError:
        warn(
            f"the model was trained on the device {network.device!r}, which isn't here: it is "
            "loaded to the CPU",
            FairdialWarning,
        )
        return find("cpu")


def _check_nets(nets: list[Any], groups: tuple[Hashable, ...], encoder: Any, kind: str) -> None:
    """Nets for these groups, and for what the encoder gives."""
    for net in nets:
        claim(net.groups == len(groups), "nets for each group")
        claim((net.film is not None) == (kind == "film"), "nets of the method's kind")
        layers = getattr(net.trunk, "layers", None)
        if layers is not None and isinstance(encoder, TableEncoder):
            width = encoder.n_features_out_ + (net.groups if net.shared else 0) - net.trunk.marks
            claim(layers[0].weight.shape[1] == width, "as many features as the encoder gives")
