"""One trial: a method on one split, and everything that the report needs to know of it.

Positions of the dial are chosen on calibration rows; test rows are opened once, after that, and
only counted.
"""

from __future__ import annotations

import contextlib
import platform
import time
import traceback
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial.bench.estimators import ESTIMATORS
from fairdial.bench.sources import Parts, find_weights, join_rows, split, take
from fairdial.bench.store import code_version
from fairdial.criteria import criterion as find_criterion
from fairdial.datasets import Dataset, Pictures
from fairdial.encoders import TableEncoder
from fairdial.errors import (
    CannotCertifyError,
    FairdialWarning,
    InterruptedWarning,
    MissingExtraError,
)
from fairdial.methods.auto import AutoDial
from fairdial.methods.fairbayes import FairBayes
from fairdial.methods.families import FamilyClassifier, Measurement
from fairdial.methods.learners import SMALL_TREES, boosting, logistic, texts_of
from fairdial.methods.network import Network, need, torch_module
from fairdial.methods.presets import paper_settings
from fairdial.methods.yoto import bisect_weight
from fairdial.sweeping import count_cells, count_selected, sweep

CURVE = 200  # states of a swept dial that are counted on test rows
INIT_STEP = 100_003  # between the seeds of a split's initialisations
FOLDS = 5  # of cross-fitting
GROUP_COLUMN = "the group"  # where a scorer sees it
TREES: dict[str, dict[str, Any]] = {"gradient boosting": {}, "small trees": SMALL_TREES}
PACKAGES = ("fairdial", "numpy", "scipy", "scikit-learn", "pandas", "torch")
Indices = NDArray[np.intp]


def run_trial(config: dict[str, Any]) -> dict[str, Any]:
    """Run a trial; an error becomes part of the record.

    Parameters
    ----------
    config : dict
        As :meth:`fairdial.bench.plan.Plan.trials` gives it.

    Returns
    -------
    dict
        ``config``; ``result``, the same on every machine of a kind; ``timing``; ``environment``;
        or ``error``.
    """
    record: dict[str, Any] = {
        "config": config,
        "code": code_version(),  # of the process that does the work
        "environment": environment(),
    }
    _one_thread()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FairdialWarning)
        try:
            run = _study if config["kind"] == "study" else _cost
            record |= run(config)
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"
            record["traceback"] = traceback.format_exc()
    if any(issubclass(w.category, InterruptedWarning) for w in told):
        raise KeyboardInterrupt  # half a training is no result
    record["warnings"] = sorted({str(w.message) for w in told})
    return record


def environment() -> dict[str, str]:
    """Versions, and what kind of machine it was."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _one_thread() -> None:
    """Trials run side by side; and sums come out the same whoever runs them."""
    with contextlib.suppress(MissingExtraError):
        need("torch").set_num_threads(1)


# ---- the model ---------------------------------------------------------------------------------


def read_parts(config: dict[str, Any]) -> Parts:
    """The rows of a trial, as its method takes them."""
    parts = split(
        config["dataset"],
        config["seed"],
        config["rows"],
        train_rows=config.get("train_rows"),
        evaluate=config.get("evaluate", "test"),
    )
    if isinstance(parts.fit.X, Pictures):
        return encode_pictures(parts) if config["method"]["pictures"] == "frozen" else parts
    return show_group(parts) if config["method"].get("sees_group") else parts


def make_model(config: dict[str, Any], parts: Parts) -> Any:
    """The estimator of a trial; all methods of a seed share rows, weights and batch order."""
    method = config["method"]
    kind = ESTIMATORS[method["estimator"]]
    seed = config["seed"] + method["seed_offset"] + INIT_STEP * config.get("init", 0)
    arguments: dict[str, Any] = {}
    pictures = isinstance(parts.fit.X, Pictures)
    if kind is AutoDial:
        return AutoDial(
            criterion=config["criterion"],
            calibration=None,
            random_state=seed,
            **_tuples(method["arguments"]),
        )
    if method["scorer"] is not None:
        named = method["scorer"]
        scorers = [
            _scorer(name, method, seed, parts)
            for name in ([named] if isinstance(named, str) else named)
        ]
        arguments["estimator"] = scorers[0] if isinstance(named, str) else scorers
    else:
        place = "estimator" if issubclass(kind, FairBayes) else "network"
        network = kind._default_network() if issubclass(kind, FamilyClassifier) else Network()
        if method["settings"] == "paper":
            inputs = None if pictures else _inputs(parts)
            arguments = paper_settings(
                method["estimator"].lower(), config["dataset"], inputs=inputs
            )
            network = arguments[place]
        arguments[place] = _prepare(network, method, parts)
    if method.get("calibration") == "crossed":
        arguments["cv"] = FOLDS
        for part in _networks(arguments["estimator"]):  # drawn anew in every fold
            part.set_params(validation=float(parts.validation.mean()))
    if method["estimator"] in ("EPO", "FairBiNN"):
        arguments["n_settings"] = config["settings"]
    if method["estimator"] == "YOTO":
        arguments["targets"] = config["settings"]
    arguments |= _tuples(method["arguments"])
    return kind(criterion=config["criterion"], calibration=None, random_state=seed, **arguments)


def _networks(estimator: Any) -> list[Network]:
    parts = estimator if isinstance(estimator, list) else [estimator]
    return [part for part in parts if isinstance(part, Network)]


def _inputs(parts: Parts) -> int:
    """How many features a network sees."""
    if parts.encoded:
        return int(parts.fit.X.shape[1])
    return TableEncoder().fit(parts.fit.X).n_features_out_


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """TOML and JSON have lists only."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def _prepare(network: Network, method: dict[str, Any], parts: Parts) -> Network:
    """A network as the plan wants it."""
    if isinstance(parts.fit.X, Pictures):
        network.set_params(trunk=torch_module("resnet").ResNet18(find_weights()))
    elif parts.encoded:
        network.set_params(encoder=None)
    elif method.get("encoder"):
        network.set_params(encoder=TableEncoder(**method["encoder"]))
    network.set_params(validation=parts.validation, **_tuples(method["network"]))
    return network


def _scorer(name: str, method: dict[str, Any], seed: int, parts: Parts) -> Any:
    if name == "network":
        return _prepare(Network(), method, parts)
    if name in TREES:
        return boosting(texts_of(parts.fit.X), seed, trees=TREES[name])
    lines = logistic(wide=parts.encoded)
    own = {} if parts.encoded else method.get("encoder", {})  # features are no table
    return lines.set_params(**{f"tableencoder__{key}": value for key, value in own.items()})


def show_group(parts: Parts) -> Parts:
    """Tables with the group as one more column, for scorers that take what they are given."""

    def show(rows: Dataset) -> Dataset:
        groups = pd.Categorical(rows.groups.astype(str))
        table = pd.DataFrame(rows.X).assign(**{GROUP_COLUMN: groups})
        return Dataset(table, rows.y, rows.groups, name=rows.name)

    return parts._replace(
        fit=show(parts.fit), calibration=show(parts.calibration), test=parts.test.then(show)
    )


def encode_pictures(parts: Parts) -> Parts:
    """Pictures as features of a ResNet-18 that was adapted to the training pictures alone.

    All methods of a split have the same, from the cache; it takes no part of their time.
    """
    encoder = torch_module("features").ResNetEncoder(find_weights())
    encoder.fit(parts.fit.X[np.flatnonzero(~parts.validation)])

    def encode(rows: Dataset) -> Dataset:
        return Dataset(pd.DataFrame(encoder.transform(rows.X)), rows.y, rows.groups, name=rows.name)

    return Parts(
        encode(parts.fit),
        parts.validation,
        encode(parts.calibration),
        parts.test.then(encode),
        key=f"{parts.key}-{encoder.key_[:16]}",
        encoded=True,
    )


# ---- what is counted ---------------------------------------------------------------------------


class Counter:
    """Counts what positions of a model's dial select among some rows."""

    def __init__(self, model: Any, rows: Dataset) -> None:
        self.model = model
        names = np.array(model.frontier_.groups, dtype=object)
        self.codes = np.argmax(rows.groups[:, None] == names[None], axis=1)
        self.positive = rows.y == 1
        self._family = isinstance(model, FamilyClassifier)
        if self._family:
            self._rows = model.scorer_.prepare(rows.X, self.codes)
        else:
            self._logits = model.logits(rows.X, sensitive_features=rows.groups)

    @property
    def rows(self) -> list[list[int]]:
        """(L, K) all rows by label and group."""
        n_groups = len(self.model.frontier_.groups)
        return count_cells(self.codes, self.positive, n_groups).tolist()  # type: ignore[no-any-return]

    def selected(self, state: int) -> list[list[int]]:
        """(L, K) rows that a position selects."""
        frontier = self.model.frontier_
        if self._family:
            margins = self.model.scorer_.margins(
                self._rows, self.codes, float(frontier.setting[state])
            )
        else:
            thresholds = frontier.states.read(np.array([state]))[0][0]
            margins = self._logits - thresholds[self.codes]
        return self._count(margins[None])

    def _count(self, margins: Any) -> list[list[int]]:
        n_groups = len(self.model.frontier_.groups)
        counts = count_selected(margins, self.codes, self.positive, n_groups)
        return counts[0].tolist()  # type: ignore[no-any-return]


def _study(config: dict[str, Any]) -> dict[str, Any]:
    parts = read_parts(config)
    model = make_model(config, parts)
    fit, held, calibration = parts.fit, parts.calibration, config["method"].get("calibration")
    clock = Clock()
    if calibration == "crossed":
        fit = join_rows(fit, held)
    model.fit(fit.X, fit.y, sensitive_features=fit.groups)
    clock.lap("fit")
    if calibration == "pooled":
        held = join_rows(held, take(fit, model.validation_rows_))
    if calibration != "crossed":
        model.calibrate(held.X, held.y, sensitive_features=held.groups)
    clock.lap("calibrate")
    frontier = model.frontier_
    own = own_states(model, config["settings"])
    curve = curve_states(frontier)
    grid, feasible = frontier.states.first_within(np.array(config["tolerances"]))
    certified = [_certify(frontier, t, config["confidence"]) for t in config["tolerances"]]
    clock.lap("choose")
    parts.test.everything_is_chosen()
    test = parts.test.open()
    counter = Counter(model, test)
    states = sorted(
        {*own, *curve.tolist(), *grid.tolist(), *(s for s in certified if s is not None)}
    )
    here = frontier.states.read(np.array(states))[1]
    counted = {
        state: {
            "setting": float(frontier.setting[state]),
            "calibration": selected.tolist(),
            "test": counter.selected(state),
        }
        for state, selected in zip(states, here, strict=True)
    }
    clock.lap("evaluate")
    result = {
        "data": parts.key,
        "groups": [str(group) for group in frontier.groups],
        "rows": {
            "train": len(fit) - int(parts.validation.sum()),
            "calibration": frontier.rows.tolist(),
            "test": counter.rows,
        },
        "states": [counted[state] | {"state": int(state)} for state in states],
        "points": [int(state) for state in own],
        "curve": [int(state) for state in curve],
        "grid": [int(state) for state in grid],
        "feasible": [bool(flag) for flag in feasible],
        "certified": [None if state is None else int(state) for state in certified],
        "epochs": _epochs(model),
    }
    return {"result": result, "timing": clock.seconds}


def own_states(model: Any, count: int) -> list[int]:
    """The positions that make a method's curve, loosest first: the paper's ten.

    Thresholds: tolerances evenly spaced from the unconstrained gap to 0. One net a setting: all of
    them. YOTO: the weights that bisection found for such tolerances.
    """
    frontier = model.frontier_
    if not isinstance(model, FamilyClassifier):
        states, _ = frontier.states.first_within(np.linspace(frontier.gap[0], 0.0, count))
        return [int(state) for state in states]
    if hasattr(model, "search_"):
        settings = model.search_["setting"].to_numpy()[::-1]
    else:
        settings = model.settings_
    places = {float(setting): i for i, setting in enumerate(frontier.setting)}
    return [places[float(setting)] for setting in settings]


def curve_states(frontier: Any) -> Indices:
    """Positions that some tolerance leads to, at most so many, loosest first."""
    grid = np.linspace(frontier.gap[0], frontier.gap.min(), CURVE)
    states, _ = frontier.states.first_within(grid)
    return np.asarray(np.unique(states))


def _certify(frontier: Any, tolerance: float, confidence: float) -> int | None:
    try:
        points = frontier.at([tolerance], confidence=confidence)
    except CannotCertifyError:
        return None
    return int(points.states[0])


def _epochs(model: Any) -> Any:
    """How long training was: epochs, and the one that was kept."""
    history = getattr(model, "history_", None)
    if history is None:
        return None
    last = (
        history.reset_index().groupby("setting")["epoch"].max()
        if history.index.nlevels > 1
        else None
    )
    trained = [len(history)] if last is None else [int(n) for n in last]
    best = model.best_epoch_
    return {"trained": trained, "kept": best if isinstance(best, list) else [best]}


class Clock:
    """Wall-clock and processor seconds of the steps of a trial."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start()

    def _start(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def lap(self, name: str) -> None:
        """A step is over."""
        self.seconds[name] = time.perf_counter() - self._wall
        self.seconds[f"{name}_cpu"] = time.process_time() - self._cpu
        self._start()


# ---- cost --------------------------------------------------------------------------------------


def _cost(config: dict[str, Any]) -> dict[str, Any]:
    """What training, another tolerance and decisions cost, for a fixed number of epochs.

    Everything runs once before its time is taken.
    """
    parts = read_parts(config)
    fit, held = parts.fit, parts.calibration
    seconds = {}
    retrained = config["method"]["estimator"] in ("EPO", "FairBiNN")
    _fit(_timed_settings(make_model(config, parts), 1), fit, held)
    model = _timed_settings(make_model(config, parts), config["epochs"])
    if retrained:  # one more setting is one more training
        model.set_params(n_settings=1)
        seconds["train_one"] = _timed(lambda: _fit(model, fit, held))
        model.set_params(n_settings=config["settings"])
    seconds["train"] = _timed(lambda: _fit(model, fit, held))
    model.calibrate(held.X, held.y, sensitive_features=held.groups)
    wishes = np.linspace(0.2, 0.0, config["settings"])
    for name, chosen in (("one", wishes[:1]), ("many", wishes)):
        if retrained:
            seconds[f"adapt_{name}"] = seconds["train_one" if name == "one" else "train"]
        else:
            seconds[f"adapt_{name}"] = _adaptation(model, held, chosen, config["criterion"])
    parts.test.everything_is_chosen()
    test = parts.test.open()
    for name, chosen in (("one", wishes[:1]), ("many", wishes)):
        model.predict(test.X[:10], sensitive_features=test.groups[:10], tolerance=0.2)
        seconds[f"predict_{name}"] = _median(
            lambda chosen=chosen: [
                model.predict(test.X, sensitive_features=test.groups, tolerance=float(t))
                for t in chosen
            ]
        )
    return {"result": {"rows": {"fit": len(fit), "test": len(test)}}, "timing": seconds}


def _adaptation(model: Any, held: Dataset, wishes: NDArray[np.float64], criterion: str) -> float:
    """Seconds to find thresholds, or YOTO's weights by bisection, with scores or rows at hand."""
    codes = np.argmax(held.groups[:, None] == np.array(model.frontier_.groups)[None], axis=1)
    if not isinstance(model, FamilyClassifier):
        logits = model.logits(held.X, sensitive_features=held.groups)
        return _median(lambda: sweep(logits, codes, held.y, criterion=criterion).at(wishes))
    rows, kind = model.scorer_.prepare(held.X, codes), find_criterion(criterion)
    all_rows = count_cells(codes, held.y == 1, len(model.frontier_.groups))

    def gap_of(weight: float) -> float:
        margins = model.scorer_.margins(rows, codes, weight)[None]
        selected = count_selected(margins, codes, held.y == 1, all_rows.shape[1])[0]
        return Measurement(selected, all_rows, kind).gap

    def search() -> None:
        for wish in wishes.tolist():
            low, high = model.bounds
            bisect_weight(gap_of, wish, low, high, within=1.0 / all_rows.sum(axis=0).min())

    return _timed(search)


def _timed_settings(model: Any, epochs: int) -> Any:
    """A model that trains by its method for so many epochs, from the first step on."""
    params = model.get_params(deep=False)
    for name in ("network", "estimator"):
        if isinstance(params.get(name), Network):
            params[name].set_params(epochs=epochs, patience=None)
    fixed = {"widen": 0, "warm_epochs": 0}
    return model.set_params(**{k: v for k, v in fixed.items() if k in params})


def _fit(model: Any, fit: Dataset, held: Dataset) -> None:
    model.fit(fit.X, fit.y, sensitive_features=fit.groups)
    if not isinstance(model, FamilyClassifier):
        model.calibrate(held.X, held.y, sensitive_features=held.groups)


def _timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _median(call: Any, repeats: int = 5) -> float:
    """Of some runs, after one that isn't timed."""
    call()
    return float(np.median([_timed(call) for _ in range(repeats)]))
