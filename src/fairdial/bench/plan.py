"""The plan of a study, read from TOML: which methods, on which data sets, with which seeds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from fairdial._validation import did_you_mean
from fairdial.bench.estimators import ESTIMATORS
from fairdial.bench.model import parameters
from fairdial.bench.store import Config, replace_file
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.objectives import Costs, Objective, objective
from fairdial.datasets.registry import DATASETS
from fairdial.errors import InvalidInputError
from fairdial.estimators.fairbayes import FairBayes
from fairdial.nn.network import Network
from fairdial.registry import check_constructor, method_of, methods

SCORERS = ("gradient boosting", "small trees", "logistic regression", "network")
SETTINGS = ("default", "paper")
PICTURES = ("frozen", "tuned")
CALIBRATIONS = ("apart", "pooled", "crossed")
EVALUATED = ("test", "validation")
SHIPPED = ("quick", "paper-tabular", "paper-images", "paper-images-tuned", "confirm")
GRID = tuple(round(0.01 * i, 2) for i in range(21))
OF_STUDIES = {"checkpoint", "validation", "callbacks", "trunk", "verbose"}  # network arguments
OF_TRIALS = {"criterion", "tolerance", "random_state", "calibration", "network", "estimator"}


@dataclass(frozen=True)
class Method:
    """One method of the comparison.

    Attributes
    ----------
    name : str
        Its name in the tables.
    estimator : str
        A class of the library.
    settings : {"default", "paper"}
        Where the arguments come from; "paper" scales the networks to the encoder.
    scorer : str or list of str, optional
        What FairBayes uses instead of a network; several are averaged.
    pictures : {"frozen", "tuned"}
        For pictures, whether the features of a frozen ResNet-18 are the network's inputs, or the
        ResNet is its trunk and trained with it.
    calibration : {"apart", "pooled", "crossed"}
        Which rows the frontier is found on: the calibration rows; those and the rows of early
        stopping; or all rows, by cross-fitting.
    arguments, network, encoder : dict
        Arguments of the estimator, of its network and of the table encoder that differ.
    sees_group : bool
        Whether the ``scorer`` gets the group as a column; networks always see the group.
    seed_offset : int
        Added to the method's seed, but not to the split's: a null method, which repeats another
        one on the same rows with other initial weights and batches.
    """

    name: str
    estimator: str
    settings: str = "default"
    scorer: str | list[str] | None = None
    pictures: str = "frozen"
    calibration: str = "apart"
    arguments: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    encoder: dict[str, Any] = field(default_factory=dict)
    sees_group: bool = False
    seed_offset: int = 0

    def __post_init__(self) -> None:
        _check_type(self.name, str, "name")
        _check_integer(self.seed_offset, "seed_offset", least=0)
        for name in ("arguments", "network", "encoder"):
            _check_type(getattr(self, name), dict, name)
        if self.estimator not in ESTIMATORS:
            offered = dict.fromkeys(method.estimator for method in methods())
            _check_choice(self.estimator, "estimator", offered, f" in the method {self.name!r}")
        check_constructor(ESTIMATORS[self.estimator])
        _check_choice(self.settings, "settings", SETTINGS)
        _check_choice(self.pictures, "pictures", PICTURES)
        _check_choice(self.calibration, "calibration", CALIBRATIONS)
        for scorer in self.scorers:
            _check_choice(scorer, "scorer", SCORERS)
        _check_type(self.sees_group, bool, "sees_group")
        self._check_combinations()
        accepted = parameters(ESTIMATORS[self.estimator]) - OF_TRIALS
        _check_keys(self.arguments, accepted, f"arguments of {self.estimator}")
        _check_keys(self.network, parameters(Network) - OF_STUDIES, "arguments of Network")
        try:
            trunk = object if self.pictures == "tuned" else None  # stands in for a ResNet
            Network(**({"trunk": trunk} | self.network)).check()
        except InvalidInputError as error:
            allowed = f"be valid arguments of Network in the method {self.name!r}"
            raise InvalidInputError("network", allowed, hint=str(error)) from error

    def _check_combinations(self) -> None:
        fair_bayes = ESTIMATORS[self.estimator] is FairBayes
        if self.calibration == "crossed" and not fair_bayes:
            allowed = f"be 'apart' or 'pooled' for {self.estimator}"
            raise self._error("calibration", allowed)
        if self.calibration == "pooled" and self.scorers:
            raise self._error(
                "calibration",
                "be 'apart' or 'crossed' with a `scorer`, which has no early stopping",
            )
        if self.sees_group and (not self.scorers or "network" in self.scorers):
            raise self._error("sees_group", "go with a `scorer` other than a network")
        no_network = "network" not in self.scorers and self.network
        if self.scorers and (not fair_bayes or no_network or self.settings == "paper"):
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

    def as_config(self) -> dict[str, Any]:
        """Return plain data; fields added in later versions are left out at their defaults."""
        found = {f.name: _lists(getattr(self, f.name)) for f in fields(self)}
        later = {"calibration": "apart", "encoder": {}, "sees_group": False}
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
        _check_integer(self.epochs, "cost.epochs", least=2)
        _check_integer(self.repeats, "cost.repeats", least=1)


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
    train_rows : int, optional
        Use at most this many training and validation rows of each group.
    cost : Cost, optional
        Measure cost too.
    """

    title: str
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    criteria: tuple[str, ...] = ("demographic_parity",)
    objective: str | tuple[float, float] = "accuracy"
    inits: int = 1
    evaluate: str = "test"
    settings: int = 10
    baseline: str = ""
    main: str = ""
    tolerances: tuple[float, ...] = GRID
    gaps: tuple[float, ...] = (0.02, 0.05, 0.10, 0.15)
    confidence: float = 0.95
    rows: int | None = None
    train_rows: int | None = None
    notes: str = ""
    cost: Cost | None = None

    def __post_init__(self) -> None:
        for name in ("title", "notes", "baseline", "main"):
            _check_type(getattr(self, name), str, name)
        for name in ("datasets", "seeds", "criteria", "tolerances", "gaps"):
            _check_type(getattr(self, name), tuple, name)
        for name in self.datasets:
            _check_choice(name, "datasets", DATASETS, " in the plan")
        for name in self.criteria:
            find_criterion(name)
        self._check_problem()
        for seed in self.seeds:
            _check_integer(seed, "seeds", least=0)
        _check_integer(self.settings, "settings", least=2)
        _check_integer(self.inits, "inits", least=1)
        _check_choice(self.evaluate, "evaluate", EVALUATED)
        if self.rows is not None:
            _check_integer(self.rows, "rows", least=100)
        if self.train_rows is not None:
            _check_integer(self.train_rows, "train_rows", least=50)
        names = tuple(method.name for method in self.methods)
        for kind in ("datasets", "seeds", "criteria", "methods"):
            values = names if kind == "methods" else getattr(self, kind)
            if not values or len(set(values)) < len(values):
                raise InvalidInputError(kind, "hold different entries", given=repr(values))
        for kind in ("tolerances", "gaps"):
            values = getattr(self, kind)
            for value in values:
                _check_type(value, (int, float), kind)
            if not values or not np.all((np.array(values) >= 0) & (np.array(values) <= 1)):
                raise InvalidInputError(kind, "lie in [0, 1]", given=repr(values))
        _check_type(self.confidence, (int, float), "confidence")
        if not 0 < self.confidence < 1:
            raise InvalidInputError("confidence", "lie in (0, 1)", given=repr(self.confidence))
        self._choose_roles(names)
        for method in self.methods:
            unknown = [name for name in self.datasets if not DATASETS[name].in_paper]
            if method.settings == "paper" and unknown:
                raise InvalidInputError(
                    "settings",
                    f"be 'default' for {', '.join(unknown)}, which the paper doesn't have",
                    given=f"'paper' in the method {method.name!r}",
                )

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
            _check_choice(getattr(self, role), role, names)

    def trials(self) -> list[Config]:
        """Return the configuration of every trial.

        Methods alternate, so that other work on the machine affects all of them alike.
        """
        found: list[Config] = []
        for dataset, criterion in product(self.datasets, self.criteria):
            for seed, init, method in product(self.seeds, range(self.inits), self.methods):
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
            "method": method.as_config(),
            "settings": self.settings,
            "seed": seed,
        }
        if self.train_rows is not None:
            config["train_rows"] = self.train_rows
        if self.objective != "accuracy":
            config["objective"] = _lists(self.objective)  # type: ignore[typeddict-item]
        if self.evaluate != "test":
            config["evaluate"] = self.evaluate
        return config


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
            hint=_suggest(str(source), SHIPPED),
        )
    return files("fairdial.bench").joinpath("plans", f"{source}.toml").read_text("utf-8")


def narrow(text: str, only: Sequence[str]) -> str:
    """Return a plan's text with only some of its data sets."""
    plan = make_plan(tomllib.loads(text))
    for name in only:
        _check_choice(name, "only", plan.datasets)
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
    """Make a plan from plain data, as in TOML."""
    _check_keys(data, {f.name for f in fields(Plan)}, "keys of a plan")
    missing = [name for name in ("title", "datasets", "methods", "seeds") if name not in data]
    if missing:
        raise InvalidInputError("plan", f"have {', '.join(missing)}", given="none")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    _check_type(data["methods"], list, "methods")
    for item in data["methods"]:
        _check_type(item, dict, "methods")
    values["methods"] = tuple(_method(item, data["methods"]) for item in data["methods"])
    if "cost" in data:
        _check_type(data["cost"], dict, "cost")
        _check_keys(data["cost"], {f.name for f in fields(Cost)}, "keys of `cost`")
        values["cost"] = Cost(**data["cost"])
    return Plan(**values)


def _method(item: dict[str, Any], others: list[dict[str, Any]]) -> Method:
    """Make a method; ``same_as`` copies another method's entries."""
    _check_keys(item, {f.name for f in fields(Method)} | {"same_as"}, "keys of a method")
    item = dict(item)
    if "same_as" in item:
        model = item.pop("same_as")
        known = {str(other.get("name")): other for other in others}
        _check_choice(model, "same_as", known)
        item = {k: v for k, v in known[model].items() if k != "same_as"} | item
    if isinstance(item.get("network"), dict):  # TOML has no null
        off = {k: None for k in ("average", "patience") if item["network"].get(k) is False}
        item["network"] = item["network"] | off
    for name in ("name", "estimator"):
        if name not in item:
            raise InvalidInputError("methods", f"each have a {name}", given=repr(item))
    return Method(**item)


# ---- checks ------------------------------------------------------------------------------------


def _check_keys(given: Iterable[str], allowed: Iterable[str], what: str) -> None:
    names = sorted(allowed)
    for key in given:
        if key not in names:
            raise InvalidInputError(
                key, f"be one of the {what}: {', '.join(names)}", hint=_suggest(key, names)
            )


def _check_choice(value: object, name: str, allowed: Iterable[str], place: str = "") -> None:
    choices = list(allowed)
    if value not in choices:
        raise InvalidInputError(
            name,
            f"be one of {', '.join(map(repr, choices))}",
            given=f"{value!r}{place}",
            hint=_suggest(value, choices),
        )


def _suggest(given: object, allowed: Iterable[str]) -> str:
    return did_you_mean(given, allowed, 0.5).strip()


TYPES = {str: "text", dict: "a table", list: "a list", tuple: "a list", bool: "true or false"}


def _check_type(value: object, kind: type | tuple[type, ...], name: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        expected = TYPES.get(cast(type, kind), "a number")
        raise InvalidInputError(name, f"be {expected}", given=repr(value))


def _check_integer(value: object, name: str, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInputError(name, f"be an integer of at least {least}", given=repr(value))
