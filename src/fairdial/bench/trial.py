"""Run one trial: a method on one split, and all that the report needs to know about it.

Operating points are chosen on calibration rows. Test rows are opened once, after that, and only
counted.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fairdial._arrays import Counts, Floats, Indices
from fairdial.bench.model import make_model, read_parts
from fairdial.bench.sources import join_rows, take
from fairdial.bench.store import Config, Record, environment, trial_code
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_rows, count_selected
from fairdial.core.frontier import Frontier
from fairdial.core.sweep import sweep
from fairdial.datasets import Dataset
from fairdial.errors import CannotCertifyError, FairdialWarning, InterruptedWarning
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.families import FamilyClassifier, Measurement
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.nn.network import Network
from fairdial.paper.family import SettingsClassifier
from fairdial.paper.yoto import YOTO, bisect_weight

CURVE = 200  # operating points that are counted on test rows, at most


def run_trial(config: Config) -> Record:
    """Run a trial; an error becomes part of the record.

    Parameters
    ----------
    config : Config
        One of :meth:`fairdial.bench.plan.Plan.trials`.

    Returns
    -------
    Record
        With ``result``, which is the same on every machine of a kind, and ``timing``; or with
        ``error``.
    """
    record: Record = {
        "config": config,
        "code": trial_code(config),  # of the process that does the work
        "environment": environment(),
        "warnings": [],
    }
    _use_one_thread()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FairdialWarning)
        try:
            run = _study if config["kind"] == "study" else _cost
            record["result"], record["timing"] = run(config)
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"
            record["traceback"] = traceback.format_exc()
    if any(issubclass(warning.category, InterruptedWarning) for warning in given):
        raise KeyboardInterrupt  # an interrupted training isn't a result
    record["warnings"] = sorted({str(warning.message) for warning in given})
    return record


def _use_one_thread() -> None:
    """Give torch one thread: trials run side by side, and sums don't depend on the machine."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


# ---- results -----------------------------------------------------------------------------------


def _study(config: Config) -> tuple[dict[str, Any], dict[str, float]]:
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
    own = own_points(model, config["settings"])
    curve = curve_points(frontier).tolist()
    grid, feasible = frontier.points.find(np.array(config["tolerances"]))
    certified = [_certify(frontier, t, config["confidence"]) for t in config["tolerances"]]
    clock.lap("choose")
    parts.test.release()
    counter = Counter(model, parts.test.open())
    points = sorted({*own, *curve, *grid.tolist(), *(p for p in certified if p is not None)})
    on_calibration = frontier.points.read(np.array(points))[1]  # (n, L, K)
    on_test = np.stack([counter.selected(point) for point in points])
    clock.lap("evaluate")
    result = {
        "data": parts.key,
        "groups": [str(group) for group in frontier.groups],
        "rows": {
            "train": len(fit) - int(parts.validation.sum()),
            "calibration": frontier.counts.tolist(),
            "test": counter.counts.tolist(),
        },
        "states": {  # operating points as columns: (n,), and counts by label and group (L, K, n)
            "state": points,
            "calibration": np.moveaxis(on_calibration, 0, -1).tolist(),
            "test": np.moveaxis(on_test, 0, -1).tolist(),
        },
        "points": own,
        "curve": curve,
        "grid": grid.tolist(),
        "feasible": feasible.tolist(),
        "certified": certified,
        "epochs": _epochs(model),
    }
    return result, clock.seconds


class Counter:
    """Counts what the operating points of a model select among some rows."""

    def __init__(self, model: DialClassifier, rows: Dataset) -> None:
        self._frontier, self._scorer = model.frontier_, model.scorer_
        self._codes = _codes(model, rows)
        self._positive = rows.y == 1
        self._n_groups = len(model.frontier_.groups)
        self._logits: Floats | None = None
        if isinstance(model, ThresholdClassifier):
            self._logits = model.logits(rows.X, sensitive_features=rows.groups)
        else:
            self._rows = model.scorer_.prepare(rows.X, self._codes)

    @property
    def counts(self) -> Counts:
        """(L, K) all rows by label and group."""
        return count_rows(self._codes, self._positive, self._n_groups)

    def selected(self, point: int) -> Counts:
        """Return the rows (L, K) that an operating point selects."""
        if self._logits is None:
            setting = float(self._frontier.setting[point])
            margins = self._scorer.margins(self._rows, self._codes, setting)
        else:
            thresholds = self._frontier.points.read(np.array([point]))[0][0]
            margins = self._logits - thresholds[self._codes]
        counts = count_selected(margins[None], self._codes, self._positive, self._n_groups)
        return np.asarray(counts[0])


def _codes(model: DialClassifier, rows: Dataset) -> Indices:
    """Return the number of each row's group on the model's frontier."""
    names = np.array(model.frontier_.groups, dtype=object)
    return np.asarray(np.argmax(rows.groups[:, None] == names[None], axis=1))


def own_points(model: DialClassifier, count: int) -> list[int]:
    """Return the operating points that make a method's curve, loosest first: the paper's ten.

    For thresholds, those at evenly spaced tolerances from the unconstrained gap to 0. For one
    network per setting, all settings. For YOTO, the weights that bisection found for such
    tolerances.
    """
    frontier = model.frontier_
    if not isinstance(model, FamilyClassifier):
        points, _ = frontier.points.find(np.linspace(frontier.gap[0], 0.0, count))
        return [int(point) for point in points]
    if isinstance(model, YOTO):
        settings = model.search_["setting"].to_numpy()[::-1]
    else:
        settings = model.settings_ if isinstance(model, SettingsClassifier) else frontier.setting
    places = {float(setting): i for i, setting in enumerate(frontier.setting)}
    return [places[float(setting)] for setting in settings]


def curve_points(frontier: Frontier) -> Indices:
    """Return operating points that some tolerance leads to, at most ``CURVE``, loosest first."""
    grid = np.linspace(frontier.gap[0], frontier.gap.min(), CURVE)
    points, _ = frontier.points.find(grid)
    return np.asarray(np.unique(points))


def _certify(frontier: Frontier, tolerance: float, confidence: float) -> int | None:
    try:
        points = frontier.at([tolerance], confidence=confidence)
    except CannotCertifyError:
        return None
    return int(points.indices[0])


def _epochs(model: DialClassifier) -> dict[str, list[int]] | None:
    """Return how many epochs each network was trained for, and which epoch was kept."""
    history = getattr(model, "history_", None)
    if history is None:
        return None
    trained = [len(history)]
    if history.index.nlevels > 1:
        last = history.reset_index().groupby("setting")["epoch"].max()
        trained = [int(n) for n in last]
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
        """End a step."""
        self.seconds[name] = time.perf_counter() - self._wall
        self.seconds[f"{name}_cpu"] = time.process_time() - self._cpu
        self._start()


# ---- cost --------------------------------------------------------------------------------------


def _cost(config: Config) -> tuple[dict[str, Any], dict[str, float]]:
    """Time training, another tolerance and decisions, for a fixed number of epochs.

    Everything runs once before it is timed.
    """
    parts = read_parts(config)
    fit, held = parts.fit, parts.calibration
    seconds: dict[str, float] = {}
    _fit(_fix_epochs(make_model(config, parts), 1), fit, held)
    model = _fix_epochs(make_model(config, parts), config["epochs"])
    retrains = isinstance(model, SettingsClassifier)  # another setting is another training
    if retrains:
        model.set_params(n_settings=1)
        seconds["train_one"] = _timed(lambda: _fit(model, fit, held))
        model.set_params(n_settings=config["settings"])
    seconds["train"] = _timed(lambda: _fit(model, fit, held))
    model.calibrate(held.X, held.y, sensitive_features=held.groups)
    tolerances = np.linspace(0.2, 0.0, config["settings"])
    if retrains:
        seconds |= {"adapt_one": seconds["train_one"], "adapt_many": seconds["train"]}
    else:
        seconds["adapt_one"] = _adaptation(model, held, tolerances[:1], config["criterion"])
        seconds["adapt_many"] = _adaptation(model, held, tolerances, config["criterion"])
    parts.test.release()
    test = parts.test.open()

    def predict(chosen: Floats) -> None:
        for tolerance in chosen.tolist():
            model.predict(test.X, sensitive_features=test.groups, tolerance=tolerance)

    seconds["predict_one"] = _median(lambda: predict(tolerances[:1]))
    seconds["predict_many"] = _median(lambda: predict(tolerances))
    return {"rows": {"fit": len(fit), "test": len(test)}}, seconds


def _adaptation(model: DialClassifier, held: Dataset, tolerances: Floats, criterion: str) -> float:
    """Return the seconds to find thresholds, or YOTO's weights, given scores or prepared rows."""
    codes = _codes(model, held)
    if isinstance(model, ThresholdClassifier):
        logits = model.logits(held.X, sensitive_features=held.groups)
        return _median(lambda: sweep(logits, codes, held.y, criterion=criterion).at(tolerances))
    if not isinstance(model, YOTO):
        return _median(lambda: model.calibrate(held.X, held.y, sensitive_features=held.groups))
    rows, kind = model.scorer_.prepare(held.X, codes), find_criterion(criterion)
    counts = count_rows(codes, held.y == 1, len(model.frontier_.groups))

    def gap_of(weight: float) -> float:
        margins = model.scorer_.margins(rows, codes, weight)[None]
        selected = count_selected(margins, codes, held.y == 1, counts.shape[1])[0]
        return Measurement(selected, counts, kind).gap

    def search() -> None:
        for tolerance in tolerances.tolist():
            low, high = model.bounds
            bisect_weight(gap_of, tolerance, low, high, within=1.0 / counts.sum(axis=0).min())

    return _timed(search)


def _fix_epochs(model: DialClassifier, epochs: int) -> DialClassifier:
    """Return a model that trains with its method from the first step, for this many epochs."""
    params = model.get_params(deep=False)
    for name in ("network", "estimator"):
        if isinstance(params.get(name), Network):
            params[name].set_params(epochs=epochs, patience=None)
    fixed = {"widen": 0, "warm_epochs": 0}
    model.set_params(**{k: v for k, v in fixed.items() if k in params})
    return model


def _fit(model: DialClassifier, fit: Dataset, held: Dataset) -> None:
    model.fit(fit.X, fit.y, sensitive_features=fit.groups)
    if isinstance(model, ThresholdClassifier):
        model.calibrate(held.X, held.y, sensitive_features=held.groups)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _median(call: Callable[[], object], repeats: int = 5) -> float:
    """Return the median time of some runs, after one that isn't timed."""
    call()
    return float(np.median([_timed(call) for _ in range(repeats)]))
