"""A plan: which methods, on which data sets, with which seeds. It is data, read from TOML."""

from __future__ import annotations

import difflib
import inspect
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fairdial.bench.estimators import ESTIMATORS
from fairdial.bench.sources import SOURCES
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError
from fairdial.methods.network import Network

SCORERS = ("gradient boosting", "small trees", "logistic regression", "network")
SETTINGS = ("default", "paper")
PICTURES = ("frozen", "tuned")
CALIBRATIONS = ("apart", "pooled", "crossed")
EVALUATED = ("test", "validation")
SHIPPED = ("quick", "paper-tabular", "paper-images", "paper-images-tuned", "confirm")
GRID = tuple(round(0.01 * i, 2) for i in range(21))


@dataclass(frozen=True)
class Method:
    """One row of the comparison.

    Attributes
    ----------
    name : str
        What the tables call it.
    estimator : str
        A class of the library.
    settings : {"default", "paper"}
        Where the arguments come from; "paper" scales the networks to the encoder.
    scorer : str or list of str, optional
        What FairBayes dials, instead of a network; the average of several.
    pictures : {"frozen", "tuned"}
        What a ResNet-18 does where rows are pictures: its features are the network's inputs, or
        it is the network's trunk and trained with it.
    calibration : {"apart", "pooled", "crossed"}
        Which rows find the frontier: the calibration rows; with them those that early stopping
        looked at; or all rows, by cross-fitting.
    arguments, network, encoder : dict
        Over those: arguments of the estimator, of its network, and of the encoder of tables.
    sees_group : bool
        Whether the group is one more column for the ``scorer``; networks see it by themselves.
    seed_offset : int
        Added to the method's seed, not to the split's (a null row): other initial weights and
        batches, the same rows.
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
        _kind(self.name, str, "name")
        _whole(self.seed_offset, "seed_offset", least=0)
        for name in ("arguments", "network", "encoder"):
            _kind(getattr(self, name), dict, name)
        _one_of(self.estimator, "estimator", tuple(ESTIMATORS))
        _one_of(self.settings, "settings", SETTINGS)
        _one_of(self.pictures, "pictures", PICTURES)
        _one_of(self.calibration, "calibration", CALIBRATIONS)
        if self.calibration == "crossed" and self.estimator != "FairBayes":
            raise InvalidInputError(
                f"`calibration` must be 'apart' or 'pooled' for {self.estimator}, got 'crossed' in "
                f"{self.name!r}."
            )
        for scorer in self.scorers:
            _one_of(scorer, "scorer", SCORERS)
        if self.calibration == "pooled" and self.scorers:
            raise InvalidInputError(
                f"`calibration` must be 'apart' or 'crossed' with a `scorer`, which has no rows of "
                f"early stopping to pool, got 'pooled' in {self.name!r}."
            )
        _kind(self.sees_group, bool, "sees_group")
        if self.sees_group and (not self.scorers or "network" in self.scorers):
            raise InvalidInputError(
                "`sees_group` must go with a `scorer` that isn't a network: networks see the group "
                f"by themselves, got it in {self.name!r}."
            )
        if self.scorers:
            bare = "network" not in self.scorers and self.network
            if self.estimator != "FairBayes" or bare or self.settings == "paper":
                raise InvalidInputError(
                    f"`scorer` must go with FairBayes and without a network, got it in "
                    f"{self.name!r}."
                )
        own = _arguments(ESTIMATORS[self.estimator])
        _known(self.arguments, own - RESERVED, f"arguments of {self.estimator}")
        _known(self.network, _arguments(Network) - OWN, "arguments of Network that a plan may set")
        try:
            trunk = object if self.pictures == "tuned" else None  # in the place of a ResNet
            Network(**({"trunk": trunk} | self.network)).check()
        except InvalidInputError as error:
            near = [_nearest(key, _arguments(Network) - {key}) for key in self.network]
            hint = next(
                (
                    text
                    for key, text in zip(self.network, near, strict=True)
                    if text and f"`{key}`" in str(error)
                ),
                "",
            )
            raise InvalidInputError(f"In the network of {self.name!r}: {error}{hint}") from error

    @property
    def scorers(self) -> list[str]:
        """The parts of what FairBayes dials; none: its network."""
        if self.scorer is None:
            return []
        return [self.scorer] if isinstance(self.scorer, str) else list(self.scorer)

    @property
    def needs_torch(self) -> bool:
        """Whether it trains a network; AutoDial leaves networks out where it may."""
        if self.estimator == "AutoDial":
            return bool({"network", "gfb"} & set(self.arguments.get("candidates") or ()))
        return not self.scorers or "network" in self.scorers


OWN = {"checkpoint", "validation", "callbacks", "trunk", "verbose"}  # of a network
RESERVED = {"criterion", "tolerance", "random_state", "calibration", "network", "estimator"}


@dataclass(frozen=True)
class Cost:
    """How cost is measured: so many epochs without early stopping, one training at a time."""

    epochs: int = 10
    repeats: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "repeats"):
            _whole(getattr(self, name), f"cost.{name}", least=1 if name == "repeats" else 2)


@dataclass(frozen=True)
class Plan:
    """What is compared, and how it is reported.

    Attributes
    ----------
    title, notes : str
        For the report.
    datasets : tuple of str
        Names of data sets.
    methods : tuple of Method
        Rows of the comparison.
    seeds : tuple of int
        Splits; a method's weights and batches follow the same seed.
    inits : int
        So many trials of every split, with other weights and batches; a method's figures are their
        means.
    evaluate : {"test", "validation"}
        Which rows the figures are from. Exploration is on validation rows: the test rows of its
        splits are then not even read.
    criteria : tuple of str
        What is equalised.
    settings : int
        Positions of the dial that make a method's curve.
    baseline : str
        The method that others are compared with.
    main : str
        The method whose quartile tables are made; by default the first besides the baseline.
    tolerances, gaps : tuple of float
        The common grid of tolerances; the gaps at which accuracy is matched.
    confidence : float
        Of the certified rows.
    rows : int, optional
        Use a sample of so many rows of every data set.
    train_rows : int, optional
        At most so many training and validation rows of each group; other rows stay.
    cost : Cost, optional
        Measure cost too.
    """

    title: str
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    criteria: tuple[str, ...] = ("demographic_parity",)
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
            _kind(getattr(self, name), str, name)
        for name in ("datasets", "seeds", "criteria", "tolerances", "gaps"):
            _kind(getattr(self, name), tuple, name)
        for name in ("tolerances", "gaps"):
            for value in getattr(self, name):
                _kind(value, (int, float), name)
        _kind(self.confidence, (int, float), "confidence")
        for name in self.datasets:
            _one_of(name, "datasets", tuple(SOURCES))
        for name in self.criteria:
            find_criterion(name)
        for seed in self.seeds:
            _whole(seed, "seeds", least=0)
        _whole(self.settings, "settings", least=2)
        _whole(self.inits, "inits", least=1)
        _one_of(self.evaluate, "evaluate", EVALUATED)
        if self.rows is not None:
            _whole(self.rows, "rows", least=100)
        if self.train_rows is not None:
            _whole(self.train_rows, "train_rows", least=50)
        for kind in ("datasets", "seeds", "criteria", "methods"):
            values = [m.name for m in self.methods] if kind == "methods" else getattr(self, kind)
            if not values or len(set(values)) < len(values):
                raise InvalidInputError(f"`{kind}` must hold different entries, got {values!r}.")
        names = tuple(method.name for method in self.methods)
        if not self.baseline:
            object.__setattr__(self, "baseline", names[0])
        if not self.main:
            others = [m.name for m in self.methods if m.name != self.baseline and not m.seed_offset]
            object.__setattr__(self, "main", (others or [self.baseline])[0])
        for role in ("baseline", "main"):
            _one_of(getattr(self, role), role, names)
        for kind, values in (("tolerances", self.tolerances), ("gaps", self.gaps)):
            if not values or not np.all((np.array(values) >= 0) & (np.array(values) <= 1)):
                raise InvalidInputError(f"`{kind}` must lie in [0, 1], got {values!r}.")
        if not 0 < self.confidence < 1:
            raise InvalidInputError(f"`confidence` must lie in (0, 1), got {self.confidence!r}.")
        for method in self.methods:
            if method.settings == "paper" and any(
                not SOURCES[name].paper for name in self.datasets
            ):
                raise InvalidInputError(
                    f"`settings` must be 'default' for data sets that the paper doesn't have, got "
                    f"'paper' in {method.name!r}."
                )

    def trials(self) -> list[dict[str, Any]]:
        """The configuration of every trial, as plain data.

        Methods take turns: what else a machine does while a study runs falls on all of them.
        """
        found: list[dict[str, Any]] = []
        for dataset, name in product(self.datasets, self.criteria):
            places = [
                {"seed": seed} | ({"init": init} if init else {})
                for seed, init in product(self.seeds, range(self.inits))
            ]
            study = {
                "kind": "study",
                "tolerances": list(self.tolerances),
                "confidence": self.confidence,
            }
            for place, method in product(places, self.methods):
                found.append(self._common(dataset, name, method) | study | place)
            if self.cost is not None:
                cost = {"kind": "cost", "epochs": self.cost.epochs}
                timed = [method for method in self.methods if method.seed_offset == 0]
                for i, method in product(range(self.cost.repeats), timed):
                    found.append(self._common(dataset, name, method) | cost | {"seed": i})
        return found

    def _common(self, dataset: str, criterion: str, method: Method) -> dict[str, Any]:
        """What a trial has whatever its kind."""
        common: dict[str, Any] = {
            "dataset": dataset,
            "rows": self.rows,
            "criterion": find_criterion(criterion).name,
            "method": _plain(method),
            "settings": self.settings,
        }
        if self.train_rows is not None:
            common["train_rows"] = self.train_rows
        if self.evaluate != "test":
            common["evaluate"] = self.evaluate
        return common


def read_plan(source: str | Path) -> Plan:
    """A plan from a TOML file, or one that is shipped, by name.

    Examples
    --------
    >>> from fairdial.bench.plan import read_plan
    >>> len(read_plan("quick").methods)
    6
    """
    try:
        data = tomllib.loads(plan_text(source))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"`plan` must be TOML, got {source} with: {error}.") from error
    return make_plan(data)


def plan_text(source: str | Path) -> str:
    """The TOML of a plan."""
    path = Path(source)
    if path.is_file():
        return path.read_text("utf-8")
    if str(source) not in SHIPPED:
        raise InvalidInputError(
            f"`plan` must be a TOML file or one of {', '.join(SHIPPED)}, got {str(source)!r}."
            + _nearest(str(source), SHIPPED)
        )
    return files("fairdial.bench").joinpath("plans", f"{source}.toml").read_text("utf-8")


def narrow(text: str, datasets: Sequence[str]) -> str:
    """A plan's text with some of its data sets only."""
    plan = make_plan(tomllib.loads(text))
    for name in datasets:
        _one_of(name, "datasets", plan.datasets)
    listed = ", ".join(f'"{name}"' for name in datasets)
    fewer = re.sub(r"(?m)^datasets = .*$", f"datasets = [{listed}]", text, count=1)
    try:
        good = make_plan(tomllib.loads(fewer)) == replace(plan, datasets=tuple(datasets))
    except tomllib.TOMLDecodeError:
        good = False
    if not good:
        raise InvalidInputError("`plan` must list its data sets in one line, got another form.")
    return fewer


def keep_plan(text: str, path: Path) -> None:
    """Keep a plan's text with its records; another plan there is refused."""
    if path.is_file():
        if make_plan(tomllib.loads(path.read_text("utf-8"))) != make_plan(tomllib.loads(text)):
            raise InvalidInputError(
                f"`out` must be a folder of this plan or a new one, got {path.parent} with another "
                f"plan in {path.name}."
            )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".part")
    half.write_text(text, "utf-8")
    os.replace(half, path)


def make_plan(data: dict[str, Any]) -> Plan:
    """A plan from plain data, as TOML has it."""
    _known(data, {f.name for f in fields(Plan)}, "keys of a plan")
    missing = [name for name in ("title", "datasets", "methods", "seeds") if name not in data]
    if missing:
        raise InvalidInputError(f"`plan` must have {', '.join(missing)}, got none.")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    _kind(data["methods"], list, "methods")
    for item in data["methods"]:
        _kind(item, dict, "methods")
    values["methods"] = tuple(_method(item, data["methods"]) for item in data["methods"])
    if "cost" in data:
        _kind(data["cost"], dict, "cost")
        _known(data["cost"], {f.name for f in fields(Cost)}, "keys of `cost`")
        values["cost"] = Cost(**data["cost"])
    return Plan(**values)


def _method(item: dict[str, Any], others: list[dict[str, Any]]) -> Method:
    """A method; ``same_as`` takes another's entries over."""
    names = {f.name for f in fields(Method)}
    _known(item, names | {"same_as"}, "keys of a method")
    item = dict(item)
    if "same_as" in item:
        model = item.pop("same_as")
        known = {str(other.get("name")): other for other in others}
        _one_of(model, "same_as", tuple(known))
        item = {k: v for k, v in known[model].items() if k != "same_as"} | item
    if isinstance(item.get("network"), dict):  # TOML has no word for none
        never = {k: None for k in ("average", "patience") if item["network"].get(k) is False}
        item["network"] = item["network"] | never
    for name in ("name", "estimator"):
        if name not in item:
            raise InvalidInputError(f"`methods` must each have a {name}, got {item!r}.")
    return Method(**item)


def _plain(method: Method) -> dict[str, Any]:
    """As JSON has it; what later versions added stands there only where it says something."""
    told = {f.name: _listed(getattr(method, f.name)) for f in fields(Method)}
    return {
        k: v
        for k, v in told.items()
        if (k, v) not in (("calibration", "apart"), ("encoder", {}), ("sees_group", False))
    }


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(entry) for key, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _arguments(kind: Any) -> set[str]:
    return set(inspect.signature(kind).parameters)


def _known(given: Iterable[str], allowed: Iterable[str], what: str) -> None:
    names = sorted(allowed)
    for key in given:
        if key not in names:
            raise InvalidInputError(
                f"`{key}` must be one of the {what}: {', '.join(names)}.{_nearest(key, names)}"
            )


def _one_of(value: Any, name: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInputError(
            f"`{name}` must be one of {', '.join(map(repr, allowed))}, got {value!r}."
            + _nearest(str(value), allowed)
        )


def _nearest(given: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def _kind(value: Any, kind: Any, name: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        words = {
            str: "text", dict: "a table", list: "a list", tuple: "a list", bool: "true or false"
        }  # fmt: skip
        raise InvalidInputError(f"`{name}` must be {words.get(kind, 'a number')}, got {value!r}.")


def _whole(value: Any, name: str, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInputError(f"`{name}` must be whole and at least {least}, got {value!r}.")
