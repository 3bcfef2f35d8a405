"""The space that tuning searches, read from TOML: each method's parameters and their ranges."""

from __future__ import annotations

import inspect
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairdial._validation import check_count
from fairdial.bench.checks import check_choice, check_keys, check_type, suggest
from fairdial.bench.estimators import ESTIMATORS
from fairdial.bench.paper import SEEDS
from fairdial.bench.plan import Method, Plan
from fairdial.bench.store import Config, replace_file
from fairdial.datasets.registry import DATASETS
from fairdial.errors import InvalidInputError
from fairdial.paper.presets import METHODS, paper_settings

if TYPE_CHECKING:
    import optuna

SHIPPED = ("paper-tabular", "paper-images")
RANGE = ("low", "high")
KINDS = {"float": RANGE, "log": RANGE, "int": RANGE, "choice": ("choices",)}  # and their keys
NETWORK = "network."  # prefix of the network's arguments
OFF = ("network.average", "network.patience")  # false is None, which TOML doesn't have
TOLERANCES = (0.05,)  # of a trial's grid; the criterion of tuning doesn't use it

Values = dict[str, dict[str, Any]]  # "arguments" and "network" of a method


@dataclass(frozen=True)
class Parameter:
    """One parameter of a search, on one data set.

    Attributes
    ----------
    name : str
        An argument of the estimator; or of its network, with the prefix "network.".
    kind : {"float", "log", "int", "choice"}
        Uniform, log-uniform, an integer, or one of ``choices``.
    low, high : float
        The ends of the range, both included.
    choices : tuple
        The values; or tables of arguments, which are set together.
    """

    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    choices: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "choice":
            if not self.choices:
                raise InvalidInputError(self.name, "have `choices`", given="none")
            if len(set(map(json.dumps, self.choices))) < len(self.choices):
                raise InvalidInputError(self.name, "have different choices", given=self._range())
        elif not self.low < self.high < math.inf or (self.kind == "log" and self.low <= 0):
            least = "finite 0 < low < high" if self.kind == "log" else "finite low < high"
            raise InvalidInputError(self.name, f"have {least}", given=f"{self.low}, {self.high}")

    def suggest(self, trial: optuna.Trial) -> Any:
        """Return the value that a sampler proposes."""
        if self.kind == "choice":
            labels = [json.dumps(choice) for choice in self.choices]
            return json.loads(trial.suggest_categorical(self.name, labels))
        if self.kind == "int":
            return trial.suggest_int(self.name, int(self.low), int(self.high))
        return trial.suggest_float(self.name, self.low, self.high, log=self.kind == "log")

    def changes(self, value: Any) -> dict[str, Any]:
        """Return the arguments that a value sets."""
        return value if isinstance(value, dict) else {self.name: value}

    def preset(self, known: Mapping[str, Any]) -> Any:
        """Return the parameter, as a sampler sees it, that leaves the known arguments alone."""
        if self.kind != "choice":
            value = known[self.name]
            if value is not None and self.low <= value <= self.high:
                return value
            raise InvalidInputError(
                self.name, f"have the preset's value {value!r} in its range", given=self._range()
            )
        for choice in self.choices:
            if all(_same(known[name], value) for name, value in self.changes(choice).items()):
                return json.dumps(choice)
        raise InvalidInputError(
            self.name, "have the preset's value among its choices", given=self._range()
        )

    def _range(self) -> str:
        return repr(list(self.choices)) if self.kind == "choice" else f"{self.low} to {self.high}"


def _same(known: Any, value: Any) -> bool:
    """Return whether a value of TOML is an argument's value."""
    if known is None:
        return value is False
    return bool(known == (tuple(value) if isinstance(value, list) else value)) and (
        isinstance(known, bool) == isinstance(value, bool)
    )


@dataclass(frozen=True)
class Searched:
    """A method of the search: fixed arguments, and the declared parameters."""

    method: Method
    search: dict[str, dict[str, Any]]

    def parameters(self, dataset: str) -> list[Parameter]:
        """Return the parameters on a data set, for which entries may differ."""
        found = []
        for name, entry in self.search.items():
            values = {
                key: value[dataset] if isinstance(value, dict) else value
                for key, value in entry.items()
            }
            if "choices" in values:
                values["choices"] = tuple(values["choices"])
            found.append(Parameter(name, **values))
        return found

    def fixed_network(self, dataset: str) -> dict[str, Any]:
        """Return the network's arguments that the search doesn't vary, such as fewer epochs."""
        searched = {
            name
            for parameter in self.parameters(dataset)
            for value in parameter.choices or (parameter.low,)
            for name in parameter.changes(value)
        }
        return {k: v for k, v in self.method.network.items() if NETWORK + k not in searched}

    def known(self, dataset: str) -> dict[str, Any]:
        """Return the arguments of the first trial, those of the network with their prefix."""
        name, frozen = self.method.estimator, self.method.trained == "none"
        inputs = 1 if frozen and DATASETS[dataset].pictures else None
        settings = paper_settings(name.lower(), dataset, inputs=inputs, source="release")
        network = settings.pop("estimator" if name == "FairBayes" else "network")
        signature = inspect.signature(ESTIMATORS[name]).parameters
        defaults = {key: entry.default for key, entry in signature.items()}
        inner = network.get_params(deep=False) | self.method.network
        return defaults | settings | self.method.arguments | _prefixed(inner)

    def values(self, chosen: Mapping[str, Any]) -> Values:
        """Return all arguments that a trial sets, the fixed ones included."""
        found = self.method.arguments | _prefixed(self.method.network) | dict(chosen)
        found |= {name: None for name in OFF if found.get(name) is False}
        parts: Values = {"arguments": {}, "network": {}}
        for name, value in sorted(found.items()):
            inner = name.startswith(NETWORK)
            parts["network" if inner else "arguments"][name.removeprefix(NETWORK)] = value
        return parts


def _prefixed(network: Mapping[str, Any]) -> dict[str, Any]:
    return {NETWORK + name: value for name, value in network.items()}


@dataclass(frozen=True)
class Space:
    """What is searched, and how.

    Attributes
    ----------
    title, notes : str
        What it is for.
    datasets : tuple of str
        Names of data sets of the paper.
    methods : tuple of Searched
        The methods; all have the same number of trials.
    seeds : dict of str to tuple of int
        The splits of each data set, in the order in which a trial uses them. In TOML, one list
        serves all data sets.
    trials : int
        Number of trials of each method on each data set. The first one is the preset.
    criterion : str
        The fairness criterion.
    settings : int
        Operating points of a method's curve.
    reduction : int
        After 1, ``reduction``, ``reduction**2``, ... splits, about one in ``reduction`` trials
        goes on.
    seed : int
        Seed of the sampler.
    rows : int, optional
        Use a sample of this many rows; for tests.
    """

    title: str
    datasets: tuple[str, ...]
    methods: tuple[Searched, ...]
    seeds: dict[str, tuple[int, ...]]
    trials: int
    criterion: str = "demographic_parity"
    settings: int = 10
    reduction: int = 2
    seed: int = 0
    rows: int | None = None
    notes: str = ""

    def __post_init__(self) -> None:
        check_count(self.trials, "trials")
        check_count(self.reduction, "reduction", least=2)
        check_count(self.seed, "seed", least=0)
        known = [name for name, info in DATASETS.items() if info.in_paper]
        for name in (*self.datasets, *self.seeds):
            check_choice(name, "datasets", known)
        if not self.datasets or len(set(self.datasets)) < len(self.datasets):
            raise InvalidInputError("datasets", "hold different names", given=repr(self.datasets))
        for dataset in self.datasets:
            seeds = self.seeds.get(dataset, ())
            if not seeds or set(seeds) & set(SEEDS) or len(set(seeds)) < len(seeds):
                raise InvalidInputError(
                    "seeds",
                    f"name different splits for {dataset}, none of them the paper's",
                    given=repr(list(seeds)),
                )
            for searched in self.methods:
                self._check(dataset, searched)
        names = [searched.method.estimator for searched in self.methods]
        if not names or len(set(names)) < len(names):
            raise InvalidInputError("methods", "have different estimators", given=repr(names))

    def _check(self, dataset: str, searched: Searched) -> None:
        """Raise unless all parameters exist, and the preset is in the space."""
        for parameter in searched.parameters(dataset):
            for value in parameter.choices or (parameter.low, parameter.high):
                if parameter.kind == "int":
                    check_count(value, parameter.name, least=0)
                self.config(dataset, searched, parameter.changes(value), self.seeds[dataset][0])
        self.preset(dataset, searched)

    def preset(self, dataset: str, searched: Searched) -> dict[str, Any]:
        """Return the parameters of the first trial, as a sampler sees them."""
        known = searched.known(dataset)
        return {entry.name: entry.preset(known) for entry in searched.parameters(dataset)}

    def config(
        self, dataset: str, searched: Searched, chosen: Mapping[str, Any], seed: int
    ) -> Config:
        """Return the trial of a study with some arguments on one split, on validation rows."""
        given, values = searched.method, searched.values(chosen)
        method = replace(given, arguments=values["arguments"], network=values["network"])
        plan = Plan(
            title=self.title,
            datasets=(dataset,),
            methods=(method,),
            seeds=(seed,),
            criteria=(self.criterion,),
            settings=self.settings,
            evaluate="validation",
            tolerances=TOLERANCES,
            rows=self.rows,
        )
        return plan.trials()[0]

    def narrowed(
        self,
        *,
        datasets: Iterable[str] = (),
        methods: Iterable[str] = (),
        trials: int | None = None,
    ) -> Space:
        """Return the space with only some data sets and methods, or another number of trials."""
        names = [searched.method.estimator for searched in self.methods]
        for name in (chosen := tuple(datasets)):
            check_choice(name, "dataset", self.datasets)
        for name in (wanted := tuple(methods)):
            check_choice(name, "method", names)
        kept = [s for s in self.methods if not wanted or s.method.estimator in wanted]
        return replace(
            self,
            datasets=chosen or self.datasets,
            methods=tuple(kept),
            trials=self.trials if trials is None else trials,
        )


# ---- files -------------------------------------------------------------------------------------


def read_space(source: str | Path) -> Space:
    """Read a space from a TOML file, or one that comes with the library, by name.

    Examples
    --------
    >>> from fairdial.bench.space import read_space
    >>> [searched.method.name for searched in read_space("paper-tabular").methods]
    ['EPO', 'FairBiNN', 'YOTO', 'FairBayes', 'GFB']
    """
    try:
        data = tomllib.loads(space_text(source))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError("space", "be TOML", given=f"{source} ({error})") from error
    return make_space(data)


def space_text(source: str | Path) -> str:
    """Return the TOML of a space."""
    path = Path(source)
    if path.is_file():
        return path.read_text("utf-8")
    if str(source) not in SHIPPED:
        raise InvalidInputError(
            "space",
            f"be a TOML file or one of {', '.join(SHIPPED)}",
            given=repr(str(source)),
            hint=suggest(source, SHIPPED),
        )
    return files("fairdial.bench").joinpath("spaces", f"{source}.toml").read_text("utf-8")


def keep_space(text: str, path: Path) -> None:
    """Store a space's text beside its records; raise if another space is there.

    Title and notes may differ.
    """
    if not path.is_file():
        replace_file(path, text.encode())
        return
    stored, given = (
        replace(make_space(tomllib.loads(some)), title="", notes="")
        for some in (path.read_text("utf-8"), text)
    )
    if stored != given:
        raise InvalidInputError(
            "out",
            "be a new folder or one of this space",
            given=f"{path.parent} with another space in {path.name}",
        )


def make_space(data: dict[str, Any]) -> Space:
    """Make a space from plain data, as in TOML; ``search`` holds what all methods share."""
    check_keys(data, {f.name for f in fields(Space)} | {"search"}, "keys of a space")
    needed = ("title", "datasets", "methods", "seeds", "trials")
    missing = [name for name in needed if name not in data]
    if missing:
        raise InvalidInputError("space", f"have {', '.join(missing)}", given="none")
    for name, kind in (("datasets", list), ("methods", list), ("search", dict), ("notes", str)):
        check_type(data.get(name, kind()), kind, name)
    for name in data["datasets"]:
        check_type(name, str, "datasets")
    for item in data["methods"]:
        check_type(item, dict, "methods")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    shared = values.pop("search", {})
    seeds = values["seeds"]
    by_dataset = seeds if isinstance(seeds, dict) else dict.fromkeys(data["datasets"], seeds)
    for given in by_dataset.values():
        check_type(given, (list, tuple), "seeds")
    values["seeds"] = {name: tuple(given) for name, given in by_dataset.items()}
    values["methods"] = tuple(_searched(item, shared, data["datasets"]) for item in data["methods"])
    return Space(**values)


def _searched(item: dict[str, Any], shared: dict[str, Any], datasets: list[str]) -> Searched:
    check_keys(item, {"estimator", "arguments", "network", "trained", "search"}, "keys of a method")
    name = item.get("estimator")
    offered = [known for known in ESTIMATORS if known.lower() in METHODS]
    check_choice(name, "estimator", offered)
    fixed = {key: item[key] for key in ("arguments", "network", "trained") if key in item}
    own = item.get("search", {})
    check_type(own, dict, "search")
    search = shared | own
    for parameter, entry in search.items():
        check_type(entry, dict, parameter)
        kind = entry.get("kind")
        check_choice(kind, f"{parameter}.kind", KINDS)
        check_keys(entry, {"kind", *KINDS[kind]}, f"keys of `{parameter}` of kind {kind!r}")
        for key in KINDS[kind]:
            values = entry.get(key)
            absent = [d for d in datasets if isinstance(values, dict) and d not in values]
            if values is None or absent:
                place = f" for {', '.join(absent)}" if absent else ""
                raise InvalidInputError(parameter, f"have `{key}`{place}", given="none")
            for value in values.values() if isinstance(values, dict) else [values]:
                check_type(value, list if key == "choices" else (int, float), f"{parameter}.{key}")
    return Searched(Method(str(name), str(name), settings="release", **fixed), search)
