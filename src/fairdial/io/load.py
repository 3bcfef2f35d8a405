"""Saved models as estimators: the reading side of saved models."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.problem import (
    Budget,
    criterion_from_json,
    demand_from_json,
    objective_from_json,
)
from fairdial.errors import (
    FairdialError,
    FairdialWarning,
    InvalidInputError,
    MissingExtraError,
    ModelFileError,
    require_torch,
    warn,
)
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.blind import BlindScorer
from fairdial.estimators.fairbayes import FairBayes, fitted_estimators
from fairdial.estimators.families import FamilyClassifier
from fairdial.estimators.plain import PlainScorer
from fairdial.estimators.scorers import AveragedScorer, Scorer, SklearnScorer, find_method
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.forests.plain import PlainModel
from fairdial.io.folder import Stored, read_folder
from fairdial.io.frontiers import FRONTIER, frontier_from_arrays
from fairdial.io.manifest import MANIFEST, OBJECTS, Key, training_from_data
from fairdial.io.objects import read_objects
from fairdial.io.plain import plain_scorer, read_plain
from fairdial.io.save import ENCODER, FRAMES, PICTURES, TABLES, WEIGHTS, type_names
from fairdial.io.settings import EstimatorSettings
from fairdial.io.values import (
    Json,
    claim,
    read_json,
    unpack,
    unpack_features,
    unpack_platt,
    unpack_table,
)
from fairdial.nn.network import Network
from fairdial.paper.yoto import Condition
from fairdial.registry import Method, method_of
from fairdial.tables.encoder import Encoder, TableEncoder

if TYPE_CHECKING:
    from fairdial.io.networks import Trunk
    from fairdial.nn.data import InputEncoder
    from fairdial.nn.nets import DialNet

PARAMETERS_OF_3 = {"objective", "budget", "nested", "rising", "randomize"}  # new in version 3
MOST_CLASSES = 10_000  # of a model
PARAMETERS_OF_4 = {
    "groups",
    "unknown",
    "blind",
    "group_estimator",
    "limit_classes",
    "outer",
    "inner",
    "bias_correction",
    "schedules",
    "clip",
    "order",
}  # of GFB
BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)


def load(
    folder: str | os.PathLike[str],
    *,
    key: Key = None,
    trusted: Sequence[str] = (),
    trunk: Trunk | None = None,
) -> Any:
    """Return the estimator that ``save`` wrote to a folder.

    Every file is checked against its hash in the manifest before it is parsed, and no file can run
    code. With the same libraries, predictions are those of the saved model to the last bit.

    Parameters
    ----------
    folder : path
        The saved model.
    key : bytes or path, optional
        The model must be signed with this key. Without it, a signature is not checked.
    trusted : sequence of str
        Types in scikit-learn estimators to allow besides those on the library's list; the error
        names those that are missing.
    trunk : torch Module or callable, optional
        The argument of ``Network(trunk=...)``, if it is your own module: its weights are in the
        folder, its code is not.

    Returns
    -------
    estimator
        Fitted; ``model_hash_`` is the SHA-256 of the manifest, which identifies the model.

    Raises
    ------
    ModelFileError
        Something is missing, altered or not what it must be.

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
    model = load_to_decide(folder, key=key, trusted=trusted, trunk=trunk)
    if isinstance(model, FairBayes):
        several = isinstance(model.estimator, list)
        made = [_make(part) for part in (model.estimator if several else [model.estimator])]
        model.estimator = made if several else made[0]
    return model


def _make(part: Any) -> Any:
    """Build an unfitted estimator; if its library isn't installed, keep the description."""
    if not isinstance(part, EstimatorSettings):
        return part
    try:
        return part.make()
    except (ImportError, TypeError):  # not installed, or another version with other parameters
        return part
    except (LookupError, ValueError) as error:
        raise ModelFileError(f"`{MANIFEST}` must describe an estimator ({error}).") from error


def load_to_decide(
    folder: str | os.PathLike[str],
    *,
    key: Key = None,
    trusted: Sequence[str] = (),
    trunk: Trunk | None = None,
) -> Any:
    """Return a model that decides; its unfitted estimator stays a description, which is faster."""
    if isinstance(trusted, str) or not all(isinstance(name, str) for name in trusted):
        raise InvalidInputError("trusted", "be a list of type names", given=repr(trusted))
    stored = read_folder(folder, key=key)
    try:
        method = _method(stored.manifest["method"])
        objects: dict[str, Any] = {}
        if OBJECTS in stored.files:
            allowed = [*trusted, *type_names(method)]
            objects = read_objects(stored.files[OBJECTS], OBJECTS, allowed)
        return _Reader(stored, method, objects, trunk).model()
    except (ModelFileError, MissingExtraError):
        raise
    except BROKEN as error:
        if isinstance(error, InvalidInputError) and error.argument == "trunk":
            raise  # the caller's argument, not the file
        text = str(error) if isinstance(error, FairdialError) else repr(error)
        raise ModelFileError(
            f"`{MANIFEST}` must describe the model in its files ({text.removesuffix('.')})."
        ) from error


def _method(name: Json) -> Method:
    """Return the registered method of a class name."""
    method = method_of(name) if isinstance(name, str) else None
    if method is None or method.kind == "auto":
        raise ModelFileError(
            f"`{MANIFEST}` must name a registered method, got {name!r}. Import the module that "
            "registers it first (fairdial --plugin MODULE on the command line), or install the "
            "version of fairdial that saved the model."
        )
    return method


class _Reader:
    """Builds the estimator of a stored model; raises one of ``BROKEN`` if the data are wrong."""

    def __init__(
        self, stored: Stored, method: Method, objects: dict[str, Any], trunk: Trunk | None
    ) -> None:
        self.files, self.manifest, self.hash = stored.files, stored.manifest, stored.hash
        self.method, self.objects, self.trunk = method, objects, trunk
        self.plain_models: dict[str, PlainModel] = {}

    def model(self) -> DialClassifier:
        """Return the estimator."""
        model: Any = self.unfitted()
        model.classes_ = unpack(self.manifest["classes"])
        labels = model.classes_
        distinct = isinstance(labels, np.ndarray) and len(set(labels.tolist())) == len(labels)
        most = 2 if isinstance(model, FamilyClassifier) else MOST_CLASSES
        claim(distinct and 2 <= len(labels) <= most, "two labels, or more that fit the method")
        if self.manifest["label"] is not None:
            claim(isinstance(self.manifest["label"], str), "a name of the labels")
            model.label_name_ = self.manifest["label"]
        training = self.manifest.get("training")  # absent in models of the first versions
        if training is not None:
            model.training_ = training_from_data(training)
        for name, value in unpack_features(self.manifest["features"]).items():
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
        return cast(DialClassifier, model)

    def unfitted(self) -> DialClassifier:
        """Return an estimator with the parameters of the saved one."""
        kind, packed = self.method.load(), self.manifest["parameters"]
        known = set(kind().get_params(deep=False))
        newer = {3: PARAMETERS_OF_3, 4: PARAMETERS_OF_4}
        missing = [names for since, names in newer.items() if self.manifest["version"] < since]
        claim(known.difference(*missing) <= set(packed) <= known, f"parameters of {kind.__name__}")
        found = kind(**{name: unpack(value, self.unpack) for name, value in packed.items()})
        found._check_tolerance()
        find_criterion(found.criterion)
        return found

    def unpack(self, data: dict[str, Json]) -> Any:
        """Unpack a parameter that isn't plain."""
        ((kind, content),) = data.items()
        makers: dict[str, Callable[[], object]] = {
            "$estimator": lambda: EstimatorSettings(data),
            "$criterion": lambda: criterion_from_json(content),
            "$demand": lambda: demand_from_json(content),
            "$objective": lambda: objective_from_json(content),
            "$budget": lambda: Budget(*content),
            "$mapping": lambda: {unpack(k, self.unpack): unpack(v) for k, v in content},
            "$network": lambda: Network(**{k: unpack(v, self.unpack) for k, v in content.items()}),
            "$object": lambda: self.objects[content],
            "$table_encoder": lambda: TableEncoder(**{k: unpack(v) for k, v in content.items()}),
            "$resnet_encoder": lambda: _resnet({k: unpack(v) for k, v in content.items()}),
        }
        return makers[kind]()

    # ---- scorers -------------------------------------------------------------------------------

    def scorer(self, model: Any) -> None:
        """Set the scorer."""
        data = self.manifest["scorer"]
        kind = data["kind"]
        claim(kind in self.method.scorers, "a scorer of the method's kind")
        if kind == "object":
            model.scorer_ = self.objects["scorer"]
        elif kind == "plain":
            model.scorer_ = model.plain_ = self.plain(model, data, "")
            fitted = model.scorer_.models
            model.estimator_ = fitted if data["per_group"] else fitted[0]
        elif kind == "estimators":
            model.scorer_ = self.estimators(model, data, "")
            fitted = model.scorer_.estimators
            model.estimator_ = fitted if data["per_group"] else fitted[0]
        elif kind == "blind":
            scorers = self.averaged(model, data["parts"])
            fitted = fitted_estimators(scorers)
            model.estimator_ = fitted if len(fitted) > 1 else fitted[0]
            labels = scorers[0] if len(scorers) == 1 else AveragedScorer(scorers)
            model.scorer_ = BlindScorer(
                labels, self.group_classifier(model), len(model.trained_groups_)
            )
        elif kind == "averaged":
            scorers = self.averaged(model, data["parts"])
            model.scorer_, model.estimator_ = AveragedScorer(scorers), fitted_estimators(scorers)
            if not any(isinstance(part, SklearnScorer) for part in scorers):
                model.plain_ = model.scorer_
        else:
            self.net_scorer(model, data)

    def group_classifier(self, model: Any) -> Any:
        """Return the classifier of groups of a blind model."""
        found = self.objects["groups"]
        check_is_fitted(found)
        codes = np.asarray(found.classes_)
        claim(codes.dtype.kind in "iu" and hasattr(found, "predict_proba"), "probabilities")
        claim(set(codes.tolist()) <= set(range(len(model.trained_groups_))), "the model's groups")
        return found

    def net_scorer(self, model: Any, data: dict[str, Json]) -> None:
        """Set the scorer of a method that is one network, or a family of them."""
        require_torch()
        from fairdial.nn.scorer import FilmScorer, NetScorer, RunsScorer

        nets, model.encoder_, encode = self.net_parts(model, _network(model), data, "")
        model.best_epoch_ = unpack(data["best_epoch"])
        if data["kind"] == "runs":
            model.nets_, model.settings_ = nets, unpack(data["settings"])
            claim(len(model.settings_) == sum(net.runs for net in nets), "a net for each setting")
            model.scorer_ = RunsScorer(nets, model.settings_, encode)
            return
        (model.net_,) = nets
        if data["kind"] == "film":
            condition = Condition(**data["condition"])
            claim(condition.kind in ("raw", "log") and 0 < condition.low < condition.high, "range")
            model.scorer_ = FilmScorer(model.net_, condition, encode)
        else:
            model.scorer_ = NetScorer(model.net_, encode)

    def averaged(self, model: Any, parts: list[dict[str, Json]]) -> list[Scorer]:
        """Return the scorers whose logits are averaged."""
        claim(parts, "scorers")
        networks = [part for part in model._parts() if isinstance(part, Network)] or [Network()]
        scorers: list[Scorer] = []
        for i, part in enumerate(parts):
            prefix = f"part{i}-"
            if part["kind"] in ("estimators", "plain"):
                make = self.plain if part["kind"] == "plain" else self.estimators
                scorers.append(make(model, part, prefix))
                continue
            claim(part["kind"] == "net", "classifiers and networks")
            require_torch()
            from fairdial.nn.scorer import NetScorer

            place = sum(other["kind"] == "net" for other in parts[:i])
            network = networks[place % len(networks)]  # the same in every fold
            (net,), _, encode = self.net_parts(model, network, part, prefix)
            scorers.append(NetScorer(net, encode))
        return scorers

    def plain(self, model: Any, data: dict[str, Json], prefix: str) -> PlainScorer:
        """Return a plain scorer."""
        if not self.plain_models:
            self.plain_models = read_plain(self.files)
        groups = getattr(model, "trained_groups_", None)
        return plain_scorer(
            self.plain_models, data, prefix, None if groups is None else len(groups)
        )

    def estimators(self, model: Any, data: dict[str, Json], prefix: str) -> SklearnScorer:
        """Return a scikit-learn classifier, or one for each group, as a scorer."""
        method, found = data["method"], self.objects[f"{prefix}fitted"]
        groups = getattr(model, "trained_groups_", ()) if data["per_group"] else (0,)
        claim(len(found) == len(groups), "one estimator, or one for each group")
        for estimator in found:
            find_method(estimator, method)
            if hasattr(estimator, "__sklearn_tags__"):
                check_is_fitted(estimator)
        positive, classes = model.classes_[1], model.classes_.tolist()
        if len(classes) == 2:
            return SklearnScorer(found, positive=positive, method=method)
        known = {name for part in found for name in getattr(part, "classes_", classes)}
        if not known <= set(classes):  # a library that takes labels 0, 1, ... alone
            classes = list(range(len(classes)))
            claim(known <= set(classes), "the model's classes")
        return SklearnScorer(found, positive=positive, method=method, classes=classes)

    def net_parts(
        self, model: Any, network: Network, data: dict[str, Json], prefix: str
    ) -> tuple[list[DialNet], Encoder | None, InputEncoder]:
        """Return networks on their device, their encoder, and what turns rows into inputs."""
        require_torch()
        from fairdial.nn.data import InputEncoder

        nets = self.nets(network, data["nets"], prefix)
        encoder = self.encoder(network, data["encoder"], prefix)
        _check_nets(nets, model.trained_groups_, encoder, data["kind"])
        outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
        claim(all(net.head.outputs == outputs for net in nets), "nets for the model's classes")
        device = _device(network)
        return [net.to(device) for net in nets], encoder, InputEncoder(encoder, device)

    def nets(self, network: Network, data: list[dict[str, Json]], prefix: str) -> list[DialNet]:
        """Return the networks; the settings get their trunk back, if there is one."""
        from fairdial.io.networks import library_trunk, needs_trunk, nets_from_arrays

        own = needs_trunk(data)
        if own is None and self.trunk is not None:
            raise InvalidInputError(
                "trunk", "be left out", given="one, but the model has no trunk of your own"
            )
        if own is not None and self.trunk is None:
            raise ModelFileError(
                f"`{prefix}{WEIGHTS}` holds the weights of your own trunk, {own}, but not its "
                "code. Call load(..., trunk=...) with the argument of Network(trunk=...)."
            )
        trunk = self.trunk or library_trunk(data)
        if trunk is not None:
            network.trunk = trunk
        file = prefix + WEIGHTS
        return nets_from_arrays(data, self.files[file], file, trunk)

    def encoder(self, network: Network, kind: Json, prefix: str) -> Encoder | None:
        """Return the encoder that turns rows into inputs."""
        if kind == "pictures":
            fresh, file = network.encoder, prefix + PICTURES
            claim(type(fresh).__name__ == "ResNetEncoder", "an encoder of pictures")
            try:
                return cast(Encoder, clone(fresh).put_bytes(self.files[file]))
            except (*BROKEN, SafetensorError) as error:
                raise ModelFileError(
                    f"`{file}` must hold an encoder of pictures ({type(error).__name__}: {error})."
                ) from error
        if kind != "table":
            return None if kind is None else cast(Encoder, self.objects[f"{prefix}encoder"])
        file = prefix + ENCODER
        read_json(self.files[file], file)  # stricter than from_json
        try:
            return TableEncoder.from_json(self.files[file].decode())
        except InvalidInputError as error:
            raise ModelFileError(f"`{file}` must hold a table encoder: {error}") from error

    def tables(self) -> dict[str, pd.DataFrame | None]:
        """Return the tables on training."""
        if TABLES not in self.files:
            return {}
        found = read_json(self.files[TABLES], TABLES)
        try:
            claim(set(found) <= set(FRAMES), "known tables")
            return {k: None if v is None else unpack_table(v) for k, v in found.items()}
        except BROKEN as error:
            raise ModelFileError(f"`{TABLES}` must hold tables ({error!r}).") from error

    # ---- frontier ------------------------------------------------------------------------------

    def frontier(self, model: Any) -> None:
        """Set the frontier and the recalibration, if the model was calibrated."""
        data, platt = self.manifest["frontier"], self.manifest["platt"]
        if isinstance(model, ThresholdClassifier):
            model.platt_ = None if platt is None else unpack_platt(platt)
        if data is None:
            return
        found = frontier_from_arrays(data, self.files[FRONTIER], FRONTIER)
        fits = not found.is_blind or isinstance(model.scorer_, BlindScorer)
        fits &= found.is_family == isinstance(model, FamilyClassifier)
        classes = tuple(model.classes_.tolist()) if len(model.classes_) > 2 else None
        fits &= found.classes == classes
        if getattr(model, "trained_groups_", None) is not None:
            fits &= len(found.groups) == len(model.trained_groups_)
        if hasattr(model, "settings_"):
            fits &= bool(np.isin(found.setting, model.settings_).all())
        if getattr(model, "platt_", None) is not None:
            fits &= model.platt_.names == found.groups
        if not fits:
            raise ModelFileError(f"`{FRONTIER}` must hold the frontier of this model.")
        model.frontier_ = found


# ---- parts -------------------------------------------------------------------------------------


def _resnet(arguments: dict[str, Any]) -> object:
    require_torch()
    from fairdial.nn.features import ResNetEncoder

    return ResNetEncoder(**arguments)


def _network(model: Any) -> Network:
    """Return the network's settings; the default's if the model has none."""
    network = model.estimator if isinstance(model, FairBayes) else model.network
    return network if isinstance(network, Network) else Network()


def _device(network: Network) -> Any:
    """Return the device that the network was trained on, if there is one here."""
    from fairdial.nn.data import find_device

    try:
        return find_device(network.device)
    except InvalidInputError:
        warn(
            f"the model was trained on the device {network.device!r}, which is not available here; "
            "it is loaded to the CPU",
            FairdialWarning,
        )
        return find_device("cpu")


def _check_nets(
    nets: list[DialNet], groups: tuple[Hashable, ...], encoder: Encoder | None, kind: str
) -> None:
    """Raise unless the nets fit the groups and the encoder."""
    for net in nets:
        claim(net.groups == len(groups), "nets for each group")
        claim((net.film is not None) == (kind == "film"), "nets of the method's kind")
        trunk: Any = net.trunk
        layers = getattr(trunk, "layers", None)
        if layers is not None and isinstance(encoder, TableEncoder):
            width = encoder.n_features_out_ + (net.groups if net.shared else 0) - trunk.marks
            claim(layers[0].weight.shape[1] == width, "as many features as the encoder gives")
