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
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Floats, Indices
from fairdial.bench.clock import Clock
from fairdial.bench.decisions import study_decisions
from fairdial.bench.model import make_model, read_parts
from fairdial.bench.sources import join_rows
from fairdial.bench.store import Config, Record, environment, trial_code
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_rows, count_selected
from fairdial.core.frontier import Frontier
from fairdial.core.point import Point, Points
from fairdial.core.searched import SearchedPoints
from fairdial.core.sweep import sweep_encoded
from fairdial.datasets import Dataset
from fairdial.errors import (
    CannotCertifyError,
    ConstantDecisionsWarning,
    FairdialWarning,
    InfeasibleToleranceWarning,
    InterruptedWarning,
)
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.draws import draw_rows
from fairdial.estimators.families import FamilyClassifier, Measurement
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.nn.network import Network
from fairdial.paper.family import SettingsClassifier
from fairdial.paper.yoto import YOTO, bisect_weight

CURVE = 200  # operating points that are counted on test rows, at most
CURVE_DIGITS = 5  # of validation accuracies
SEARCHED = 41  # the same, where each tolerance is a search
BINS, TAILS = 64, (0.002, 0.998)  # of the histogram of scores; quantiles at its ends


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
    if config.get("curve") == "tolerances":
        result, timed = study_decisions(config, parts, model)
        return result, timed.seconds
    fit, held, calibration = parts.fit, parts.calibration, config["method"].get("calibration")
    clock = Clock()
    if calibration == "crossed":
        fit = join_rows(fit, held)
    model.fit(fit.X, fit.y, sensitive_features=fit.groups)
    clock.lap("fit")
    if calibration != "crossed":
        model.calibrate(held.X, held.y, sensitive_features=held.groups)
    clock.lap("calibrate")
    frontier = model.frontier_
    states = States(frontier)
    own = own_points(model, config["settings"], states)
    curve = curve_points(frontier, states)
    chosen = _choose(frontier, config["tolerances"])
    grid, feasible = states.add(chosen), chosen.feasible
    certified = [_certify(frontier, t, config["confidence"], states) for t in config["tolerances"]]
    clock.lap("choose")
    logits = None if calibration == "crossed" else logit_histogram(model, held)
    parts.test.release()
    counter = Counter(model, parts.test.open())
    points = sorted({*own, *curve, *grid, *(p for p in certified if p is not None)})
    on_calibration = np.stack([states[point].selected for point in points])  # (n, L, K)
    on_test = np.stack([counter.selected(states[point]) for point in points])
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
        "grid": grid,
        "feasible": feasible.tolist(),
        "certified": certified,
        "epochs": _epochs(model),
        "logits": logits,
    }
    return result, clock.seconds


class States:
    """The operating points that a trial chose, each once, with a number.

    A point of the frontier's own list keeps its place there; one that was searched for gets a
    number after them.
    """

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._numbers: dict[tuple[float, bytes], int] = {}
        self._points: dict[int, Point] = {}

    def __getitem__(self, number: int) -> Point:
        return self._points[number]

    def add(self, points: Points) -> list[int]:
        """Return the numbers of points, which may be new."""
        places = self._places(points)
        return [self._add(point, place) for point, place in zip(points, places, strict=True)]

    def _places(self, points: Points) -> list[int | None]:
        """Return the place of each point in the frontier's list; None for searched ones."""
        if points.indices is None or not len(points):
            return [None] * len(points)
        listed = self._frontier.points.read(points.indices)[0]
        same = (listed == points.thresholds).all(axis=1).tolist()
        indices = points.indices.tolist()
        return [i if equal else None for i, equal in zip(indices, same, strict=True)]

    def _add(self, point: Point, place: int | None) -> int:
        setting = point.setting if point.is_family else 0.0
        rule = point.thresholds if point.lottery is None else np.concatenate(point.lottery)
        key = setting, rule.tobytes()
        if place is None and key not in self._numbers:
            first = 0 if isinstance(self._frontier.points, SearchedPoints) else len(self._frontier)
            place = max([first, *(n + 1 for n in self._points)])
        number = self._numbers.setdefault(key, place) if place is not None else self._numbers[key]
        self._points.setdefault(number, point)
        return number


def _choose(frontier: Frontier, tolerances: ArrayLike) -> Points:
    """Return the points at tolerances; the record says which are infeasible, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        warnings.simplefilter("ignore", ConstantDecisionsWarning)
        return frontier.at(np.asarray(tolerances, np.float64))


class Counter:
    """Counts what the operating points of a model select among some rows."""

    def __init__(self, model: DialClassifier, rows: Dataset) -> None:
        self._scorer = model.scorer_
        self._codes = _codes(model, rows)
        self._positive = rows.y == 1
        self._n_groups = len(model.frontier_.groups)
        self._logits: Floats | None = None
        self._draws: Floats | None = None
        if isinstance(model, ThresholdClassifier):
            self._logits = model.logits(rows.X, sensitive_features=rows.groups)
            if model.problem.randomize is not None:
                self._draws = draw_rows(rows.X, self._logits)
        else:
            self._rows = model.scorer_.prepare(rows.X, self._codes)

    @property
    def counts(self) -> Counts:
        """(L, K) all rows by label and group."""
        return count_rows(self._codes, self._positive, self._n_groups)

    def selected(self, point: Point) -> Counts:
        """Return the rows (L, K) that an operating point selects."""
        if self._logits is None:
            margins = self._scorer.margins(self._rows, self._codes, point.setting)
        else:
            margins = self._logits - point.thresholds_of(self._codes, self._draws)
        counts = count_selected(margins[None], self._codes, self._positive, self._n_groups)
        return np.asarray(counts[0])


def _codes(model: DialClassifier, rows: Dataset) -> Indices:
    """Return the number of each row's group on the model's frontier."""
    names = np.array(model.frontier_.groups, dtype=object)
    return np.asarray(np.argmax(rows.groups[:, None] == names[None], axis=1))


def own_points(model: DialClassifier, count: int, states: States) -> list[int]:
    """Return the operating points that make a method's curve, loosest first: the paper's ten.

    For thresholds, those at evenly spaced tolerances from the unconstrained gap to 0. For one
    network per setting, all settings. For YOTO, the weights that bisection found for such
    tolerances.
    """
    frontier = model.frontier_
    if not isinstance(model, FamilyClassifier):
        return states.add(_choose(frontier, np.linspace(_largest(frontier), 0.0, count)))
    if isinstance(model, YOTO):
        settings = model.search_["setting"].to_numpy()[::-1]
    else:
        settings = model.settings_ if isinstance(model, SettingsClassifier) else frontier.setting
    places = {float(setting): i for i, setting in enumerate(frontier.setting)}
    table = frontier.points.tabulate(np.array([places[float(setting)] for setting in settings]))
    return states.add(frontier._points(table.gap, table, np.ones(len(table), np.bool_)))


def curve_points(frontier: Frontier, states: States) -> list[int]:
    """Return operating points that some tolerance leads to, at most ``CURVE``, loosest first."""
    if isinstance(frontier.points, SearchedPoints):  # each tolerance is a search
        grid = np.linspace(_largest(frontier), 0.0, SEARCHED)
    else:
        grid = np.linspace(_largest(frontier), frontier.gap.min(), CURVE)
    return list(dict.fromkeys(states.add(_choose(frontier, grid))))


def _largest(frontier: Frontier) -> float:
    """Return the gap of the least constrained point, at most 1."""
    points = frontier.points
    if isinstance(points, SearchedPoints) and points.problem.randomize is None:
        return min(points.gap_at(points.unconstrained), 1.0)
    return min(float(frontier.gap[0]), 1.0)


def _certify(frontier: Frontier, tolerance: float, confidence: float, states: States) -> int | None:
    try:
        return states.add(frontier.at([tolerance], confidence=confidence))[0]
    except CannotCertifyError:
        return None


def _epochs(model: DialClassifier) -> dict[str, Any] | None:
    """Return how many epochs each network was trained for, which was kept, and the accuracy.

    The accuracy is that of every epoch on validation rows: a list for each network.
    """
    history = getattr(model, "history_", None)
    if history is None:
        return None
    column = "accuracy" if "accuracy" in history else "accuracy_loose"
    values = history.reset_index()
    runs = values.groupby("setting") if "setting" in values else [(0, values)]
    curves = [run[column].round(CURVE_DIGITS).tolist() for _, run in runs]
    best = model.best_epoch_
    return {
        "trained": [len(curve) for curve in curves],
        "kept": best if isinstance(best, list) else [best],
        "accuracy": curves,
    }


def logit_histogram(model: DialClassifier, rows: Dataset) -> dict[str, Any] | None:
    """Return how the scores of rows are distributed, by label and group; None for a family.

    The outer bins hold the rows beyond ``low`` and ``high`` too.
    """
    if not isinstance(model, ThresholdClassifier):
        return None
    logits, frontier = model.logits(rows.X, sensitive_features=rows.groups), model.frontier_
    low, high = np.quantile(logits[np.isfinite(logits)], TAILS).round(4).tolist()
    place = np.clip(np.nan_to_num((logits - low) / max(high - low, 1e-6)), 0.0, 1.0)
    bins = np.minimum((BINS * place).astype(np.intp), BINS - 1)
    counts = np.zeros((2, len(frontier.groups), BINS), np.int64)
    np.add.at(counts, ((rows.y == 1).astype(np.intp), _codes(model, rows), bins), 1)
    if isinstance(frontier.points, SearchedPoints):
        fairest = _choose(frontier, [0.0]).thresholds[0]
    else:
        fairest = frontier.points.read(frontier.points.find(np.zeros(1))[0])[0][0]
    return {
        "low": low,
        "high": high,
        "counts": counts.tolist(),
        "fairest": np.clip(fairest, low, high).round(4).tolist(),
    }


# ---- cost --------------------------------------------------------------------------------------


def _cost(config: Config) -> tuple[dict[str, Any], dict[str, float]]:
    """Time training, another tolerance and decisions, for a fixed number of epochs.

    In processor time, which other work on the machine hardly changes. Everything runs once before
    it is timed.
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
        seconds["adapt_one"] = _adaptation(model, held, tolerances[:1])
        seconds["adapt_many"] = _adaptation(model, held, tolerances)
    parts.test.release()
    test = parts.test.open()

    def predict(chosen: Floats) -> None:
        for tolerance in chosen.tolist():
            model.predict(test.X, sensitive_features=test.groups, tolerance=tolerance)

    seconds["predict_one"] = _median(lambda: predict(tolerances[:1]))
    seconds["predict_many"] = _median(lambda: predict(tolerances))
    return {"rows": {"fit": len(fit), "test": len(test)}}, seconds


def _adaptation(model: DialClassifier, held: Dataset, tolerances: Floats) -> float:
    """Return the seconds to find thresholds, or YOTO's weights, given scores or prepared rows."""
    codes = _codes(model, held)
    if isinstance(model, ThresholdClassifier):
        logits = model.logits(held.X, sensitive_features=held.groups)
        problem, names = model.problem, tuple(range(len(model.frontier_.groups)))

        def find() -> None:
            frontier = sweep_encoded(logits, codes, held.y == 1, problem, names, min_count=1)
            _choose(frontier, tolerances)

        return _median(find)
    if not isinstance(model, YOTO):
        return _median(lambda: model.calibrate(held.X, held.y, sensitive_features=held.groups))
    rows, kind = model.scorer_.prepare(held.X, codes), find_criterion(model.criterion)
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
    start = time.process_time()
    call()
    return time.process_time() - start


def _median(call: Callable[[], object], repeats: int = 5) -> float:
    """Return the median processor time of some runs, after one that isn't timed."""
    call()
    return float(np.median([_timed(call) for _ in range(repeats)]))
