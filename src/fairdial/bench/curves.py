"""From records to curves: accuracy and gap of every position that a trial counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fairdial.bench.plan import Method, Plan
from fairdial.bench.store import config_key
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError

Floats = NDArray[np.float64]
NAN = float("nan")
POINTS = 100.0  # of accuracy: percentage points
ROUNDING = 1e-12  # far below what one row moves a gap by


def measure(selected: ArrayLike, rows: ArrayLike, criterion: Criterion) -> Floats:
    """Accuracy and gap of positions, from what they select.

    Parameters
    ----------
    selected : (n, L, K) array-like
        Rows that each position selects, by label and group.
    rows : (L, K) array-like
        All rows.

    Returns
    -------
    (n, 2) array

    Examples
    --------
    >>> from fairdial.bench.curves import measure
    >>> from fairdial.criteria import criterion
    >>> dp = criterion("demographic_parity")
    >>> measure([[[1, 0], [3, 4]]], [[5, 5], [5, 5]], dp).round(3).tolist()
    [[0.8, 0.0]]
    """
    chosen, everyone = np.asarray(selected, np.float64), np.asarray(rows, np.float64)
    counted = criterion.rates[0].counted
    part = chosen.sum(axis=1) if counted is None else chosen[:, counted]  # (n, K)
    base = everyone.sum(axis=0) if counted is None else everyone[counted]  # (K,)
    if not base.all():
        raise InvalidInputError(
            f"`rows` must have rows that count for {criterion.name} in every group, "
            f"got {base.astype(int).tolist()}."
        )
    right = chosen[:, 1].sum(axis=-1) + (everyone[0] - chosen[:, 0]).sum(axis=-1)
    return np.column_stack((right / everyone.sum(), criterion.gap(part / base)))


@dataclass(frozen=True, eq=False)
class Trial:
    """A study trial as its test rows have it; points are (accuracy, gap), loosest first.

    Attributes
    ----------
    method : str
        Name of the method.
    seed : int
        Of the split.
    init : int
        Which of the split's initialisations.
    points : (n, 2) array
        The method's own positions: the paper's ten.
    curve : (m, 2) array
        Positions that some tolerance leads to.
    tolerances : (t,) array
        The common grid.
    grid : (t, 2) array
        The position chosen for each tolerance on calibration rows.
    feasible : (t,) array of bool
        Whether that position was within the tolerance on calibration rows.
    certified : (t, 2) array
        The position certified for each tolerance; NaN where there is none.
    seconds : dict
        Timing of the steps.
    epochs : float
        Mean number of epochs trained; NaN where there are none.
    """

    method: str
    seed: int
    points: Floats
    curve: Floats
    tolerances: Floats
    grid: Floats
    feasible: NDArray[np.bool_]
    certified: Floats
    seconds: dict[str, float]
    epochs: float
    init: int = 0

    def matched(self, gaps: ArrayLike) -> Floats:
        """Accuracy where the dial brings the gap down to each of these; NaN: never that low.

        The gap is what the dial has reached so far, a running minimum, and accuracy is
        interpolated between positions. Above the loosest position's gap it is that position's.
        """
        wishes = np.asarray(gaps, np.float64)
        reached = np.minimum.accumulate(self.curve[:, 1])
        found = np.interp(wishes, reached[::-1], self.curve[::-1, 0])
        return np.where(wishes < reached[-1] - ROUNDING, np.nan, found)

    @property
    def held(self) -> Floats:
        """(t,) 1 where the test gap is within the tolerance, else 0; NaN: not feasible."""
        return np.where(self.feasible, _within(self.grid[:, 1], self.tolerances), np.nan)

    @property
    def certified_held(self) -> Floats:
        """(t,) the same of the certified positions; NaN: nothing could be certified."""
        gaps = self.certified[:, 1]
        return np.where(np.isnan(gaps), np.nan, _within(gaps, self.tolerances))


def _within(gaps: Floats, tolerances: Floats) -> Floats:
    return np.asarray(gaps <= tolerances + ROUNDING, np.float64)


def read_trial(record: dict[str, Any]) -> Trial:
    """A study record as curves."""
    config, result = record["config"], record["result"]
    states = result["states"]
    place = {entry["state"]: i for i, entry in enumerate(states)}
    measured = measure(
        [entry["test"] for entry in states],
        result["rows"]["test"],
        find_criterion(config["criterion"]),
    )

    def of(chosen: Iterable[int]) -> Floats:
        return measured[[place[state] for state in chosen]]

    certified = np.full((len(result["certified"]), 2), np.nan)
    for i, state in enumerate(result["certified"]):
        if state is not None:
            certified[i] = measured[place[state]]
    epochs = result.get("epochs")
    return Trial(
        method=config["method"]["name"],
        seed=config["seed"],
        points=of(result["points"]),
        curve=of(result["curve"]),
        tolerances=np.asarray(config["tolerances"], np.float64),
        grid=of(result["grid"]),
        feasible=np.asarray(result["feasible"], np.bool_),
        certified=certified,
        seconds=dict(record.get("timing", {})),
        epochs=float(np.mean(epochs["trained"])) if epochs else np.nan,
        init=config.get("init", 0),
    )


@dataclass(frozen=True, eq=False)
class Panel:
    """All trials of one data set and criterion."""

    dataset: str
    criterion: str
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    trials: dict[tuple[str, int, int], Trial]  # by method, seed and initialisation

    @property
    def title(self) -> str:
        """For headings."""
        return f"{self.dataset}, {self.criterion.replace('_', ' ')}"

    @property
    def compared(self) -> list[str]:
        """Methods with trials, without null rows."""
        return [m.name for m in self.methods if m.seed_offset == 0 and self.of(m.name)]

    @property
    def nulls(self) -> list[tuple[str, str]]:
        """Null rows with trials, each with the method that it repeats."""
        return [
            (m.name, twin)
            for m in self.methods
            if m.seed_offset != 0 and self.of(m.name) and (twin := _twin(m, self.methods))
        ]

    def of(self, method: str) -> list[Trial]:
        """The trials of a method, by seed and initialisation."""
        places = {seed: i for i, seed in enumerate(self.seeds)}
        found = [key for key in self.trials if key[0] == method and key[1] in places]
        found.sort(key=lambda key: (places[key[1]], key[2]))
        return [self.trials[key] for key in found]

    def values(self, figure: Callable[[Trial], float]) -> pd.DataFrame:
        """A figure of every split, the mean of its initialisations: lines seeds, columns methods.

        NaN where there is none; initialisations that have no such figure don't count.
        """
        found: dict[tuple[str, int], list[float]] = {}
        for (name, seed, _), trial in self.trials.items():
            found.setdefault((name, seed), []).append(figure(trial))
        return pd.DataFrame(
            {
                method.name: [_mean_known(found.get((method.name, s), [])) for s in self.seeds]
                for method in self.methods
            },
            index=pd.Index(self.seeds, name="seed"),
            dtype=np.float64,
        )


def _mean_known(values: list[float]) -> float:
    """The mean of those that are known; NaN of none."""
    return mean_of([value for value in values if not np.isnan(value)])


def _twin(null: Method, methods: tuple[Method, ...]) -> str | None:
    """The method that a null row repeats."""
    same = (m.name for m in methods if m == replace(null, name=m.name, seed_offset=0))
    return next(same, None)


@dataclass(frozen=True, eq=False)
class Study:
    """A plan and what there is of it."""

    plan: Plan
    panels: tuple[Panel, ...]
    records: tuple[dict[str, Any], ...]  # finished, in the plan's order
    missing: tuple[dict[str, Any], ...]  # configurations without a record
    failed: tuple[tuple[dict[str, Any], str], ...]  # configurations, and what went wrong
    ignored: int  # records that aren't of this plan

    @property
    def complete(self) -> bool:
        """Whether every trial is there."""
        return not self.missing and not self.failed

    @property
    def costs(self) -> list[dict[str, Any]]:
        """Records of cost trials."""
        return [record for record in self.records if record["config"]["kind"] == "cost"]


def read_study(plan: Plan, records: Iterable[dict[str, Any]]) -> Study:
    """Sort records into the plan: what is done, missing, failed."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        key = config_key(record["config"])
        if key not in found or ("error" in found[key] and "error" not in record):
            found[key] = record
    configs = plan.trials()
    missing, failed, done = [], [], []
    panels: dict[tuple[str, str], dict[tuple[str, int, int], Trial]] = {}
    for config in configs:
        trials = panels.setdefault((config["dataset"], config["criterion"]), {})
        record = found.pop(config_key(config), {})
        if not record:
            missing.append(config)
        elif "error" in record:
            failed.append((config, str(record["error"])))
        elif config["kind"] == "cost":
            done.append(record)
        else:
            try:
                trial = read_trial(record)
            except InvalidInputError as error:  # such as a group without counted test rows
                failed.append((config, str(error)))
            else:
                trials[trial.method, trial.seed, trial.init] = trial
                done.append(record)
    return Study(
        plan=plan,
        panels=tuple(Panel(*key, plan.methods, plan.seeds, t) for key, t in panels.items()),
        records=tuple(done),
        missing=tuple(missing),
        failed=tuple(failed),
        ignored=len(found),
    )


# ---- figures by seed ---------------------------------------------------------------------------


def matched(panel: Panel, gaps: Iterable[float]) -> dict[float, pd.DataFrame]:
    """Accuracy by gap: seeds by methods, NaN where the gap isn't reached."""
    return {
        gap: panel.values(lambda trial, gap=gap: float(trial.matched([gap])[0]))  # type: ignore[misc]
        for gap in gaps
    }


def differences(panel: Panel, figure: Callable[[Trial], float], a: str, b: str) -> pd.Series:
    """By seed, method a minus method b: the mean over initialisations in which both have it."""
    found: dict[int, list[float]] = {}
    for (name, seed, init), trial in panel.trials.items():
        other = panel.trials.get((b, seed, init))
        if name == a and other is not None:
            found.setdefault(seed, []).append(figure(trial) - figure(other))
    return pd.Series(
        [_mean_known(found.get(seed, [])) for seed in panel.seeds],
        index=pd.Index(panel.seeds, name="seed"),
        dtype=np.float64,
    )


def matched_difference(panel: Panel, gap: float, a: str, b: str) -> pd.Series:
    """By seed, in points: the difference at a gap, of initialisations that both reach it in."""
    return POINTS * differences(panel, lambda trial: float(trial.matched([gap])[0]), a, b)


def mean_difference(panel: Panel, gaps: Iterable[float], a: str, b: str) -> pd.Series:
    """By seed, in points: the mean of the differences at those gaps that both reached."""
    return _at_gaps(panel, gaps, a, b).mean(axis=1)


def complete_difference(panel: Panel, gaps: Iterable[float], a: str, b: str) -> pd.Series:
    """By seed, in points: the mean over all gaps; NaN where one of them isn't reached by both."""
    return _at_gaps(panel, gaps, a, b).mean(axis=1, skipna=False)


def _at_gaps(panel: Panel, gaps: Iterable[float], a: str, b: str) -> pd.DataFrame:
    return pd.DataFrame({gap: matched_difference(panel, gap, a, b) for gap in gaps})


def grid_difference(panel: Panel, a: str, b: str, column: int = 0) -> pd.Series:
    """By seed, in points: the difference of the means over the grid of tolerances.

    Of accuracies (column 0) or gaps (1).
    """
    return POINTS * differences(panel, lambda trial: float(trial.grid[:, column].mean()), a, b)


def at_tolerances(panel: Panel, column: int) -> dict[float, pd.DataFrame]:
    """By tolerance of the grid, accuracy (column 0) or gap (1): seeds by methods."""
    tolerances = next((t.tolerances for t in panel.trials.values()), np.empty(0))
    return {
        float(tolerance): panel.values(lambda trial, i=i: float(trial.grid[i, column]))  # type: ignore[misc]
        for i, tolerance in enumerate(tolerances)
    }


def reached(values: pd.DataFrame, panel: Panel, method: str) -> tuple[int, int]:
    """Seeds that reached a gap, of those that were run."""
    return int(values[method].notna().sum()), len(
        {key[1] for key in panel.trials if key[0] == method}
    )


# ---- whether tolerances held -------------------------------------------------------------------


def held(panel: Panel, only: Iterable[float] | None = None) -> pd.DataFrame:
    """A line a method: how often tolerances held on test rows, plain and certified.

    ``wishes`` are seeds times tolerances; ``feasible`` and ``certified`` the shares of them that
    could be met; ``held`` and ``certified_held`` the shares of those that held on test rows.
    """
    lines = []
    for name in panel.compared:
        trials = panel.of(name)
        chosen = [_chosen(trial.tolerances, only) for trial in trials]
        plain = np.concatenate([t.held[c] for t, c in zip(trials, chosen, strict=True)])
        sure = np.concatenate([t.certified_held[c] for t, c in zip(trials, chosen, strict=True)])
        lines.append(
            {
                "method": name,
                "wishes": len(plain),
                "feasible": mean_of(~np.isnan(plain)),
                "held": mean_of(plain[~np.isnan(plain)]),
                "certified": mean_of(~np.isnan(sure)),
                "certified_held": mean_of(sure[~np.isnan(sure)]),
            }
        )
    columns = ["method", "wishes", "feasible", "held", "certified", "certified_held"]
    return pd.DataFrame(lines, columns=columns)


def _chosen(tolerances: Floats, only: Iterable[float] | None) -> Any:
    if only is None:
        return np.ones(len(tolerances), np.bool_)
    return np.isclose(tolerances[:, None], np.array([*only])[None]).any(axis=1)


def mean_of(values: Any) -> float:
    """A mean; NaN of nothing."""
    return float(np.mean(values)) if len(values) else NAN
