"""The plan of a study, read from TOML: which methods, on which data sets, with which seeds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fairdial._validation import check_count
from fairdial.bench.checks import check_choice, check_integer, check_keys, check_type, suggest
from fairdial.bench.estimators import ESTIMATORS, own_method
from fairdial.bench.model import TARTE, TRAINED, parameters
from fairdial.bench.peers import PEERS
from fairdial.bench.sources import SIDE
from fairdial.bench.store import Config, replace_file
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.objectives import Costs, Objective, objective
from fairdial.datasets.registry import DATASETS
from fairdial.errors import InvalidInputError
from fairdial.estimators.fairbayes import FairBayes
from fairdial.nn.network import Network
from fairdial.paper import presets
from fairdial.paper.presets import METHODS, as_tuples
from fairdial.registry import check_constructor, method_of, methods
from fairdial.tables.encoder import TableEncoder

SCORERS = ("gradient boosting", "small trees", "logistic regression", "network")
SETTINGS = ("default", "paper", "release")
MIN_SIZE = 32  # of pictures
CALIBRATIONS = ("apart", "crossed")
EVALUATED = ("test", "validation")
SPLITS, CURVES = ("paper", "35/35/30"), ("dial", "tolerances")
SHIPPED = (
    "quick",
    "paper-tabular",
    "paper-images",
    "images-frozen",
    "confirm",
    "published",
    "published-training",
)
GRID = tuple(round(0.01 * i, 2) for i in range(21))
OF_STUDIES = {"checkpoint", "validation", "callbacks", "trunk", "verbose"}  # network arguments
OF_TRIALS = {"criterion", "tolerance", "random_state", "calibration", "network", "estimator"}

Chosen = dict[str, dict[str, Any]]  # choices of tuning by data set and method


@dataclass(frozen=True)
class Method:
    """One method of the comparison.

    Attributes
    ----------
    name : str
        Its name in the tables.
    estimator : str
        A class of the library.
    settings : {"default", "paper", "release"}
        Where the arguments come from. "paper" and "release" are :func:`fairdial.paper_settings`,
        tuned and as released, with networks scaled to the encoder.
    scorer : str or list of str, optional
        What FairBayes uses instead of a network; several are averaged.
    trained : {"none", "layer4", "all"}
        For pictures, which layers of ResNet-18 are trained with the head, in one copy per group:
        none, whose averages are the network's inputs; the last of four stages, on maps that the
        others compute once; or all.
    calibration : {"apart", "crossed"}
        Which rows the frontier is found on: the calibration rows, or all rows, by cross-fitting.
    arguments, network : dict
        Arguments of the estimator and of its network that differ.
    encoder : dict or "tarte"
        Arguments of the table encoder that differ; or TARTE, from files in the data folder.
    sees_group : bool
        Whether the ``scorer`` gets the group as a column; networks always see the group.
    peer : str, optional
        Another library, which takes the place of the dial: it gets the scores of the ``scorer``, or
        the same features if it trains itself. It runs in an environment of its own
        (:mod:`fairdial.bench.peers`).
    seed_offset : int
        Added to the method's seed, but not to the split's: a null method, which repeats another
        one on the same rows with other initial weights and batches.
    """

    name: str
    estimator: str
    settings: str = "default"
    scorer: str | list[str] | None = None
    trained: str = "none"
    calibration: str = "apart"
    arguments: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    encoder: dict[str, Any] | str = field(default_factory=dict)
    sees_group: bool = False
    peer: str | None = None
    seed_offset: int = 0

    def __post_init__(self) -> None:
        for name in ("name", "estimator"):
            check_type(getattr(self, name), str, name)
        if self.scorer is not None:
            check_type(self.scorer, (str, list), "scorer")
        check_integer(self.seed_offset, "seed_offset", least=0)
        for name in ("arguments", "network"):
            check_type(getattr(self, name), dict, name)
        self._check_encoder()
        if self.estimator not in ESTIMATORS:
            offered = dict.fromkeys(method.estimator for method in methods())
            check_choice(self.estimator, "estimator", offered, f" in the method {self.name!r}")
        kind = ESTIMATORS[self.estimator]
        check_constructor(kind)
        check_choice(self.settings, "settings", SETTINGS)
        check_choice(self.trained, "trained", TRAINED)
        check_choice(self.calibration, "calibration", CALIBRATIONS)
        for scorer in self.scorers:
            check_choice(scorer, "scorer", SCORERS)
        check_type(self.sees_group, bool, "sees_group")
        self._check_combinations()
        check_keys(self.arguments, parameters(kind) - OF_TRIALS, f"arguments of {self.estimator}")
        check_keys(self.network, parameters(Network) - OF_STUDIES, "arguments of Network")
        trunk = None if self.trained == "none" else object  # stands in for a ResNet
        self._check_values("network", Network(**({"trunk": trunk} | self.network)).check)
        if own_method(self.estimator) is None:
            model = kind(**as_tuples(self.arguments))
            self._check_values("arguments", getattr(model, "_check_settings", lambda: None))
            least = self.arguments.get("min_count", 1)
            self._check_values("arguments", lambda: check_count(least, "min_count"))

    def _check_values(self, name: str, check: Callable[[], object]) -> None:
        try:
            check()
        except InvalidInputError as error:
            allowed = f"be valid in the method {self.name!r}"
            raise InvalidInputError(name, allowed, hint=str(error)) from error

    def _check_encoder(self) -> None:
        if isinstance(self.encoder, str):
            check_choice(self.encoder, "encoder", (TARTE,))
            if self.scorers:
                raise self._error("encoder", "be a table of arguments with a `scorer`")
            return
        check_type(self.encoder, dict, "encoder")
        check_keys(self.encoder, parameters(TableEncoder), "arguments of TableEncoder")

    def _check_combinations(self) -> None:
        fair_bayes = ESTIMATORS[self.estimator] is FairBayes
        if self.calibration == "crossed" and not fair_bayes:
            raise self._error("calibration", f"be 'apart' for {self.estimator}")
        trains = {"network", "estimator"} & parameters(ESTIMATORS[self.estimator])
        if self.encoder and (own_method(self.estimator) is not None or not trains):
            raise self._error("encoder", f"be left out for {self.estimator}, which has its own")
        if self.peer is not None:
            check_choice(self.peer, "peer", PEERS)
            if not self.scorers or "network" in self.scorers or self.calibration == "crossed":
                raise self._error("peer", "go with a `scorer` other than a network")
            if self.arguments.get("blind") and not PEERS[self.peer].blind:
                raise self._error("peer", "be able to decide without the groups")
        if self.sees_group and (not self.scorers or "network" in self.scorers):
            raise self._error("sees_group", "go with a `scorer` other than a network")
        if self.scorer is not None and not self.scorers:
            raise self._error("scorer", "name at least one scorer")
        if self.settings != "default" and self.estimator.lower() not in METHODS:
            raise self._error("settings", f"be 'default' for {self.estimator}")
        no_network = "network" not in self.scorers and self.network
        if self.scorers and (not fair_bayes or no_network or self.settings != "default"):
            raise self._error("scorer", "go with FairBayes, its default settings and no `network`")

    def _error(self, argument: str, allowed: str) -> InvalidInputError:
        given = f"{getattr(self, argument)!r} in the method {self.name!r}"
        return InvalidInputError(argument, allowed, given=given)

    @property
    def scorers(self) -> list[str]:
        """The scorers that FairBayes averages; none if it uses its network."""
        if self.scorer is None:
            return []
        return [self.scorer] if isinstance(self.scorer, str) else list(self.scorer)

    @property
    def needs_torch(self) -> bool:
        """Whether it trains a network; AutoDial skips networks that the plan doesn't name."""
        if self.scorers:
            return "network" in self.scorers
        method = method_of(self.estimator)
        if method is None or ESTIMATORS[self.estimator] is FairBayes:
            return True
        if method.kind != "auto":
            return method.needs_torch
        named = self.arguments.get("candidates") or ()
        return any(other.needs_torch and other.candidate in named for other in methods())

    def limits(self, criterion: str) -> bool:
        """Return whether a peer can limit a criterion; the library's methods take all."""
        return self.peer is None or find_criterion(criterion).name in PEERS[self.peer].criteria

    def tuned_key(self, dataset: str) -> tuple[str, str] | None:
        """Return the names of data set and method of the tuned values; None if it uses none."""
        if self.settings != "paper":
            return None
        info = DATASETS[dataset]
        features = not info.pictures or self.trained == "none"
        known = info.settings_of or dataset  # plans refuse others
        return presets.tuned_key(known, features=features), self.estimator.lower()

    def as_config(self, dataset: str, tuned: Chosen) -> dict[str, Any]:
        """Return plain data for trials on a data set.

        Fields added in later versions are left out at their defaults. The settings "paper" come
        with the tuned values, if there are any.
        """
        found = {f.name: _lists(getattr(self, f.name)) for f in fields(self)}
        key = self.tuned_key(dataset)
        values = None if key is None else tuned.get(key[0], {}).get(key[1])
        if values is not None:
            found["tuned"] = {name: values[name] for name in ("arguments", "network")}
        later = {"calibration": "apart", "encoder": {}, "sees_group": False, "peer": None}
        return {k: v for k, v in found.items() if k not in later or v != later[k]}


def _lists(value: object) -> object:
    """Return a value with lists for tuples, as in JSON."""
    if isinstance(value, dict):
        return {key: _lists(entry) for key, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Cost:
    """How cost is measured: epochs without early stopping, one training at a time."""

    epochs: int = 10
    repeats: int = 1

    def __post_init__(self) -> None:
        check_integer(self.epochs, "cost.epochs", least=2)
        check_integer(self.repeats, "cost.repeats", least=1)


@dataclass(frozen=True)
class Plan:
    """What is compared, and how it is reported.

    Attributes
    ----------
    title, notes : str
        Shown in the report.
    datasets : tuple of str
        Names of data sets.
    methods : tuple of Method
        The methods that are compared.
    seeds : tuple of int
        One split each; a method's weights and batches use the same seed.
    inits : int
        Trials per split, with different weights and batches; a method's result is their mean.
    split : {"paper", "35/35/30"}
        How rows are split: as in the paper, or 35% for training, 35% for calibration and 30% for
        testing.
    curve : {"dial", "tolerances"}
        Which operating points make a method's curve: those that its dial has, or those at the
        plan's tolerances alone, as for all methods in plans with a ``peer``.
    evaluate : {"test", "validation"}
        Which rows the results are measured on. Exploration uses validation rows and never reads
        the test rows of its splits.
    criteria : tuple of str
        Fairness criteria, as :func:`fairdial.criterion` reads them: names, or combinations such as
        "equalized_odds+true_positive_rate>=0.6".
    objective : str or (float, float)
        What thresholds maximize: "accuracy", "balanced_accuracy", "f1"; or the costs of a false
        positive and of a false negative. Families choose by accuracy.
    settings : int
        Operating points of a method's curve.
    baseline : str
        The method that the others are compared with; by default the first.
    main : str
        The method of the quartile tables; by default the first other than the baseline.
    tolerances, gaps : tuple of float
        The common grid of tolerances; the gaps at which accuracy is compared.
    confidence : float
        Confidence of certified operating points.
    rows : int, optional
        Use a sample of this many rows of every data set.
    size : int
        Height and width of pictures, in pixels.
    train_rows : int, optional
        Use at most this many training and validation rows of each group.
    cost : Cost, optional
        Measure cost too.
    tuned : dict, optional
        The tuned values of the settings "paper", which aren't part of the file; by default the
        library's current ones. See :mod:`fairdial.bench.tuned`.
    """

    title: str
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    criteria: tuple[str, ...] = ("demographic_parity",)
    objective: str | tuple[float, float] = "accuracy"
    inits: int = 1
    split: str = "paper"
    curve: str = "dial"
    evaluate: str = "test"
    settings: int = 10
    baseline: str = ""
    main: str = ""
    tolerances: tuple[float, ...] = GRID
    gaps: tuple[float, ...] = (0.02, 0.05, 0.10, 0.15)
    confidence: float = 0.95
    rows: int | None = None
    size: int = SIDE
    train_rows: int | None = None
    notes: str = ""
    cost: Cost | None = None
    tuned: Chosen | None = None

    def __post_init__(self) -> None:
        for name in ("title", "notes", "baseline", "main"):
            check_type(getattr(self, name), str, name)
        for name in ("datasets", "seeds", "criteria", "tolerances", "gaps"):
            check_type(getattr(self, name), tuple, name)
        for name in self.datasets:
            check_choice(name, "datasets", DATASETS, " in the plan")
        for name in self.criteria:
            find_criterion(name)
        self._check_problem()
        for seed in self.seeds:
            check_integer(seed, "seeds", least=0)
        check_integer(self.settings, "settings", least=2)
        check_integer(self.inits, "inits", least=1)
        check_choice(self.evaluate, "evaluate", EVALUATED)
        check_choice(self.split, "split", SPLITS)
        check_choice(self.curve, "curve", CURVES)
        self._check_peers()
        check_integer(self.size, "size", least=MIN_SIZE)
        if self.rows is not None:
            check_integer(self.rows, "rows", least=100)
        if self.train_rows is not None:
            check_integer(self.train_rows, "train_rows", least=50)
        names = tuple(method.name for method in self.methods)
        for kind in ("datasets", "seeds", "criteria", "methods"):
            values = names if kind == "methods" else getattr(self, kind)
            if not values or len(set(values)) < len(values):
                raise InvalidInputError(kind, "hold different entries", given=repr(values))
        for kind in ("tolerances", "gaps"):
            values = getattr(self, kind)
            for value in values:
                check_type(value, (int, float), kind)
            if not values or not np.all((np.array(values) >= 0) & (np.array(values) <= 1)):
                raise InvalidInputError(kind, "lie in [0, 1]", given=repr(values))
            if len(set(values)) < len(values):
                raise InvalidInputError(kind, "hold different entries", given=repr(values))
        check_type(self.confidence, (int, float), "confidence")
        if not 0 < self.confidence < 1:
            raise InvalidInputError("confidence", "lie in (0, 1)", given=repr(self.confidence))
        self._choose_roles(names)
        self._check_pictures()
        for method in self.methods:
            unknown = [name for name in self.datasets if DATASETS[name].settings_of is None]
            if method.settings != "default" and unknown:
                raise InvalidInputError(
                    "settings",
                    f"be 'default' for {', '.join(unknown)}, for which the paper has no settings",
                    given=f"{method.settings!r} in the method {method.name!r}",
                )

    def _check_pictures(self) -> None:
        """Refuse what no data set of the plan would use."""
        pictures = [DATASETS[name].pictures for name in self.datasets]
        if self.size != SIDE and not any(pictures):
            raise InvalidInputError("size", "go with data sets of pictures", given=self.size)
        for method in self.methods:
            if method.trained != "none" and not any(pictures):
                raise method._error("trained", "be 'none' without data sets of pictures")
            if method.encoder and all(pictures):
                raise method._error("encoder", "go with data sets of tables")

    def _check_peers(self) -> None:
        """Refuse splits and curves that don't go with the other settings."""
        if self.split != "paper" and (self.evaluate != "test" or self.train_rows is not None):
            raise InvalidInputError("split", "be 'paper' with `evaluate` or `train_rows`")
        for method in self.methods:
            if method.peer is not None and self.curve != "tolerances":
                raise method._error("peer", "go with `curve` = 'tolerances'")
            if self.curve == "tolerances" and ESTIMATORS[method.estimator] is not FairBayes:
                raise method._error("estimator", "be FairBayes with `curve` = 'tolerances'")
        if self.curve == "tolerances":
            for name, given in (("cost", self.cost is None), ("inits", self.inits == 1)):
                if not given:
                    raise InvalidInputError(name, "be left out with `curve` = 'tolerances'")

    def _check_problem(self) -> None:
        """Refuse objectives and criteria that a method can't handle."""
        find_objective(self.objective)
        for method in self.methods:
            accepted = parameters(ESTIMATORS[method.estimator])
            if self.objective != "accuracy" and "objective" not in accepted:
                raise InvalidInputError(
                    "objective",
                    f"be 'accuracy' for {method.estimator}, which has no thresholds",
                    given=f"{self.objective!r} in a plan with the method {method.name!r}",
                )

    def _choose_roles(self, names: tuple[str, ...]) -> None:
        if not self.baseline:
            object.__setattr__(self, "baseline", names[0])
        if not self.main:
            others = [m.name for m in self.methods if m.name != self.baseline and not m.seed_offset]
            object.__setattr__(self, "main", (others or [self.baseline])[0])
        for role in ("baseline", "main"):
            check_choice(getattr(self, role), role, names)

    def trials(self) -> list[Config]:
        """Return the configuration of every trial.

        Methods alternate, so that other work on the machine affects all of them alike.
        """
        found: list[Config] = []
        for dataset, criterion in product(self.datasets, self.criteria):
            for seed, init, method in product(self.seeds, range(self.inits), self.methods):
                if not method.limits(criterion):
                    continue
                config = self._config("study", dataset, criterion, method, seed)
                config["tolerances"] = list(self.tolerances)
                config["confidence"] = self.confidence
                if init:
                    config["init"] = init
                found.append(config)
            if self.cost is not None:
                timed = [method for method in self.methods if method.seed_offset == 0]
                for i, method in product(range(self.cost.repeats), timed):
                    config = self._config("cost", dataset, criterion, method, i)
                    config["epochs"] = self.cost.epochs
                    found.append(config)
        return found

    def _config(self, kind: str, dataset: str, criterion: str, method: Method, seed: int) -> Config:
        """Return what trials of both kinds have in common."""
        config: Config = {
            "kind": kind,
            "dataset": dataset,
            "rows": self.rows,
            "criterion": find_criterion(criterion).name,
            "method": method.as_config(dataset, self.chosen),
            "settings": self.settings,
            "seed": seed,
        }
        if self.train_rows is not None:
            config["train_rows"] = self.train_rows
        if self.size != SIDE:
            config["size"] = self.size
        if self.objective != "accuracy":
            config["objective"] = _lists(self.objective)  # type: ignore[typeddict-item]
        if self.evaluate != "test":
            config["evaluate"] = self.evaluate
        if self.split != "paper":
            config["split"] = self.split
        if self.curve != "dial":
            config["curve"] = self.curve
        return config

    @property
    def chosen(self) -> Chosen:
        """The tuned values that the settings "paper" are taken from."""
        return presets.read_chosen(presets.TUNED) if self.tuned is None else self.tuned

    def used_tuned(self) -> Chosen:
        """Return those of the tuned values that the plan uses."""
        found: Chosen = {}
        for name, given in product(self.datasets, self.methods):
            dataset, method = given.tuned_key(name) or ("", "")
            if method in self.chosen.get(dataset, {}):
                found.setdefault(dataset, {})[method] = self.chosen[dataset][method]
        return found


def find_objective(given: str | Sequence[float]) -> Objective:
    """Return the objective of a plan: a name, or two costs."""
    if isinstance(given, str):
        return objective(given)
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise InvalidInputError("objective", "be a name or two costs", given=repr(given))
    return Costs(*given)


# ---- files -------------------------------------------------------------------------------------


def read_plan(source: str | Path) -> Plan:
    """Read a plan from a TOML file, or one that comes with the library, by name.

    Examples
    --------
    >>> from fairdial.bench.plan import read_plan
    >>> len(read_plan("quick").methods)
    6
    """
    try:
        data = tomllib.loads(plan_text(source))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError("plan", "be TOML", given=f"{source} ({error})") from error
    return make_plan(data)


def plan_text(source: str | Path) -> str:
    """Return the TOML of a plan."""
    path = Path(source)
    if path.is_file():
        return path.read_text("utf-8")
    if str(source) not in SHIPPED:
        raise InvalidInputError(
            "plan",
            f"be a TOML file or one of {', '.join(SHIPPED)}",
            given=repr(str(source)),
            hint=suggest(str(source), SHIPPED),
        )
    return files("fairdial.bench").joinpath("plans", f"{source}.toml").read_text("utf-8")


def narrow(text: str, only: Sequence[str]) -> str:
    """Return a plan's text with only some of its data sets."""
    plan = make_plan(tomllib.loads(text))
    for name in only:
        check_choice(name, "only", plan.datasets)
    listed = ", ".join(f'"{name}"' for name in only)
    fewer = re.sub(r"(?m)^datasets = .*$", f"datasets = [{listed}]", text, count=1)
    try:
        narrowed = make_plan(tomllib.loads(fewer)) == replace(plan, datasets=tuple(only))
    except tomllib.TOMLDecodeError:
        narrowed = False
    if not narrowed:
        raise InvalidInputError("plan", "list its data sets in one line")
    return fewer


def keep_plan(text: str, path: Path) -> None:
    """Store a plan's text beside its records; raise if another plan is there."""
    if not path.is_file():
        replace_file(path, text.encode())
    elif make_plan(tomllib.loads(path.read_text("utf-8"))) != make_plan(tomllib.loads(text)):
        raise InvalidInputError(
            "out",
            "be a new folder or one of this plan",
            given=f"{path.parent} with another plan in {path.name}",
        )


def make_plan(data: dict[str, Any]) -> Plan:
    """Make a plan from plain data, as in TOML; ``defaults`` are keys of all its methods."""
    data = dict(data)
    defaults = data.pop("defaults", {})
    check_type(defaults, dict, "defaults")
    check_keys(defaults, {f.name for f in fields(Method)} - {"name"}, "keys of a method")
    keys = {f.name for f in fields(Plan)} - {"tuned"} | {"defaults"}
    check_keys(data, keys, "keys of a plan")
    missing = [name for name in ("title", "datasets", "methods", "seeds") if name not in data]
    if missing:
        raise InvalidInputError("plan", f"have {', '.join(missing)}", given="none")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    check_type(data["methods"], list, "methods")
    for item in data["methods"]:
        check_type(item, dict, "methods")
    values["methods"] = tuple(_method(item, data["methods"], defaults) for item in data["methods"])
    if "cost" in data:
        check_type(data["cost"], dict, "cost")
        check_keys(data["cost"], {f.name for f in fields(Cost)}, "keys of `cost`")
        values["cost"] = Cost(**data["cost"])
    return Plan(**values)


def _method(item: dict[str, Any], others: list[dict[str, Any]], defaults: dict[str, Any]) -> Method:
    """Make a method; ``same_as`` copies another method's entries, which replace the defaults."""
    check_keys(item, {f.name for f in fields(Method)} | {"same_as"}, "keys of a method")
    item = _merge(defaults, _inherit(item, {str(other.get("name")): other for other in others}))
    if isinstance(item.get("network"), dict):  # TOML has no null
        off = {k: None for k in ("average", "patience") if item["network"].get(k) is False}
        item["network"] = item["network"] | off
    for name in ("name", "estimator"):
        if name not in item:
            raise InvalidInputError("methods", f"each have a {name}", given=repr(item))
    return Method(**item)


def _inherit(
    item: dict[str, Any], known: dict[str, dict[str, Any]], seen: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return an item on top of the one that it is ``same_as``, which may itself be like another."""
    if "same_as" not in item:
        return item
    model = item["same_as"]
    check_choice(model, "same_as", known)
    if model in seen:
        raise InvalidInputError("same_as", "not lead back to itself", given=repr(model))
    own = {k: v for k, v in item.items() if k != "same_as"}
    return _inherit(known[model], known, (*seen, model)) | own


def _merge(defaults: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
    """Return an item on top of defaults; tables are merged entry by entry."""
    merged = defaults | item
    for name, value in defaults.items():
        if isinstance(value, dict) and isinstance(merged[name], dict):
            merged[name] = value | merged[name]
    return merged
