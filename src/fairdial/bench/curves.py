"""Turn the records of a study into curves: accuracy and gap of every operating point counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fairdial._arrays import Counts, Floats, Mask
from fairdial.bench import PLAN, RECORDS
from fairdial.bench.plan import Method, Plan
from fairdial.bench.statistics import RATIOS, SPLIT_RATIO
from fairdial.bench.store import Config, Record, Store, config_key
from fairdial.bench.tuned import read_study_plan
from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import accuracy_of_counts
from fairdial.errors import InvalidInputError

NAN = float("nan")
ROUNDING = 1e-12  # far below the effect of one row on a gap


def mean_of(values: ArrayLike) -> float:
    """Return the mean without NaN; NaN if nothing is left."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else NAN


def measure(selected: ArrayLike, rows: ArrayLike, criterion: Criterion) -> Floats:
    """Return accuracy and gap (n, 2) of operating points from the rows that they select.

    What is missing to a minimum or maximum rate counts as gap, so that every gap is finite.

    Parameters
    ----------
    selected : (n, L, K) array-like
        Rows that each operating point selects, by label and group.
    rows : (L, K) array-like
        All rows.

    Examples
    --------
    >>> from fairdial.bench.curves import measure
    >>> from fairdial.core.criteria import criterion
    >>> dp = criterion("demographic_parity")
    >>> measure([[[1, 0], [3, 4]]], [[5, 5], [5, 5]], dp).round(3).tolist()
    [[0.8, 0.0]]
    """
    chosen, everyone = np.asarray(selected, np.int64), np.asarray(rows, np.int64)
    eligible = criterion.eligible_counts(everyone)  # (K,)
    if not eligible.all():
        raise InvalidInputError(
            "rows",
            f"have eligible rows for {criterion.name} in every group",
            given=eligible.tolist(),
        )
    accuracy = accuracy_of_counts(chosen, everyone)
    always = tuple(d if d.scale else replace(d, scale=Fraction(1)) for d in criterion.demands)
    gap = replace(criterion, demands=always).gap_of(chosen, everyone)
    return np.column_stack((accuracy, gap))


# ---- one trial ---------------------------------------------------------------------------------


class Histogram(NamedTuple):
    """Calibration rows by score, between equally spaced edges; the outer bins are open."""

    groups: tuple[str, ...]
    edges: Floats  # (bins + 1,)
    counts: Counts  # (2, K, bins), by label and group
    fairest: Floats  # (K,), the thresholds of the strictest operating point


@dataclass(frozen=True, eq=False)
class Trial:
    """A study trial on test rows; points are (accuracy, gap), loosest first.

    Attributes
    ----------
    method : str
        Name of the method.
    seed, init : int
        Seed of the split, and which of the split's initializations.
    points : (n, 2) array
        The method's own operating points: the paper's ten.
    curve : (m, 2) array
        Operating points that some tolerance leads to.
    tolerances : (t,) array
        The common grid.
    grid : (t, 2) array
        The operating point chosen for each tolerance on calibration rows.
    feasible : (t,) array of bool
        Whether that point was within the tolerance on calibration rows.
    certified : (t, 2) array
        The point certified for each tolerance; NaN if there is none.
    seconds : dict
        Timing of the steps.
    epochs : float
        Mean number of epochs trained; NaN without epochs.
    validation : tuple of arrays
        Validation accuracy of each network by epoch; none in records from before version 0.4.
    histogram : Histogram, optional
        Scores of the calibration rows, for methods with one scorer.
    """

    method: str
    seed: int
    points: Floats
    curve: Floats
    tolerances: Floats
    grid: Floats
    feasible: Mask
    certified: Floats
    seconds: dict[str, float]
    epochs: float
    init: int = 0
    validation: tuple[Floats, ...] = ()
    histogram: Histogram | None = None

    def matched(self, gaps: ArrayLike) -> Floats:
        """Return the accuracy at which the dial reaches each gap; NaN if it never gets that low.

        The gap at a point is the smallest so far, and accuracy is interpolated between points.
        Above the loosest point's gap it is that point's.
        """
        wanted = np.asarray(gaps, np.float64)
        reached = np.minimum.accumulate(self.curve[:, 1])
        found = np.interp(wanted, reached[::-1], self.curve[::-1, 0])
        return np.where(wanted < reached[-1] - ROUNDING, np.nan, found)

    @property
    def held(self) -> Floats:
        """(t,) 1 if the test gap is within the tolerance, else 0; NaN if infeasible."""
        return np.where(self.feasible, _within(self.grid[:, 1], self.tolerances), np.nan)

    @property
    def certified_held(self) -> Floats:
        """(t,) the same for certified points; NaN if nothing could be certified."""
        gaps = self.certified[:, 1]
        return np.where(np.isnan(gaps), np.nan, _within(gaps, self.tolerances))


def _within(gaps: Floats, tolerances: Floats) -> Floats:
    return np.asarray(gaps <= tolerances + ROUNDING, np.float64)


def read_trial(record: Record) -> Trial:
    """Return the curves of a study record."""
    config, result = record["config"], record["result"]
    states = result["states"]
    place = {state: i for i, state in enumerate(states["state"])}
    measured = measure(
        np.moveaxis(np.asarray(states["test"], np.int64), -1, 0),  # (n, L, K)
        result["rows"]["test"],
        find_criterion(config["criterion"]),
    )

    def of(chosen: Sequence[int]) -> Floats:
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
        epochs=float(np.mean(epochs["trained"])) if epochs else NAN,
        init=config.get("init", 0),
        validation=tuple(map(np.array, epochs.get("accuracy", ()) if epochs else ())),
        histogram=_read_histogram(result),
    )


def _read_histogram(result: dict[str, Any]) -> Histogram | None:
    """Return the scores of the calibration rows; records from before version 0.4 have none."""
    stored = result.get("logits")
    if stored is None:
        return None
    counts = np.asarray(stored["counts"], np.int64)
    edges = np.linspace(stored["low"], stored["high"], counts.shape[-1] + 1)
    fairest = np.asarray(stored["fairest"], np.float64)
    return Histogram(tuple(result["groups"]), edges, counts, fairest)


# ---- one data set and criterion ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Panel:
    """All trials of one data set and criterion."""

    dataset: str
    criterion: str
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    trials: dict[tuple[str, int, int], Trial]  # by method, seed and initialization
    ratio: float = SPLIT_RATIO  # test rows per training row

    @property
    def title(self) -> str:
        """The heading of the panel."""
        return f"{self.dataset}, {self.criterion.replace('_', ' ')}"

    @property
    def compared(self) -> list[str]:
        """Methods with trials, without null methods."""
        return [m.name for m in self.methods if m.seed_offset == 0 and self.of(m.name)]

    @property
    def nulls(self) -> list[tuple[str, str]]:
        """Null methods with trials, each with the method that it repeats."""
        return [
            (m.name, twin)
            for m in self.methods
            if m.seed_offset != 0 and self.of(m.name) and (twin := _twin(m, self.methods))
        ]

    def of(self, method: str) -> list[Trial]:
        """Return the trials of a method, by seed and initialization."""
        places = {seed: i for i, seed in enumerate(self.seeds)}
        found = [key for key in self.trials if key[0] == method and key[1] in places]
        found.sort(key=lambda key: (places[key[1]], key[2]))
        return [self.trials[key] for key in found]

    def values(self, quantity: Callable[[Trial], float]) -> pd.DataFrame:
        """Return a quantity by seed (index) and method (columns).

        A value is the mean over the initializations that have one; NaN if none has.
        """
        found: dict[tuple[str, int], list[float]] = {}
        for (name, seed, _), trial in self.trials.items():
            found.setdefault((name, seed), []).append(quantity(trial))
        columns = {
            method.name: [mean_of(found.get((method.name, seed), [])) for seed in self.seeds]
            for method in self.methods
        }
        return pd.DataFrame(columns, pd.Index(self.seeds, name="seed"), dtype=np.float64)

    def differences(self, quantity: Callable[[Trial], float], a: str, b: str) -> pd.Series:
        """Return method a minus method b by seed, paired by initialization."""
        found: dict[int, list[float]] = {}
        for (name, seed, init), trial in self.trials.items():
            other = self.trials.get((b, seed, init))
            if name == a and other is not None:
                found.setdefault(seed, []).append(quantity(trial) - quantity(other))
        values = [mean_of(found.get(seed, [])) for seed in self.seeds]
        return pd.Series(values, pd.Index(self.seeds, name="seed"), dtype=np.float64)


def _twin(null: Method, methods: tuple[Method, ...]) -> str | None:
    """Return the method that a null method repeats."""
    same = (m.name for m in methods if m == replace(null, name=m.name, seed_offset=0))
    return next(same, None)


# ---- the whole study ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Study:
    """A plan and its records."""

    plan: Plan
    panels: tuple[Panel, ...]
    records: tuple[Record, ...]  # finished, in the plan's order
    missing: tuple[Config, ...]  # configurations without a record
    failed: tuple[tuple[Config, str], ...]  # configurations and errors
    ignored: int  # records that don't belong to the plan

    @property
    def complete(self) -> bool:
        """Whether every trial is finished."""
        return not self.missing and not self.failed

    def of_kind(self, kind: str, panel: Panel) -> list[Record]:
        """Return the finished records of a panel: of study trials or of cost trials."""
        place = (kind, panel.dataset, panel.criterion)
        return [
            record
            for record in self.records
            if tuple(record["config"][k] for k in ("kind", "dataset", "criterion")) == place
        ]


def read_study(plan: Plan, records: Iterable[Record]) -> Study:
    """Sort records into the trials of a plan: finished, missing and failed."""
    found: dict[str, Record] = {}
    for record in records:
        key = config_key(record["config"])
        if key not in found or ("error" in found[key] and "error" not in record):
            found[key] = record
    missing, failed, done = [], [], []
    panels: dict[tuple[str, str], dict[tuple[str, int, int], Trial]] = {}
    for config in plan.trials():
        trials = panels.setdefault((config["dataset"], config["criterion"]), {})
        match = found.pop(config_key(config), None)
        if match is None:
            missing.append(config)
        elif "error" in match:
            failed.append((config, match["error"]))
        elif config["kind"] == "cost":
            done.append(match)
        else:
            try:
                trial = read_trial(match)
            except InvalidInputError as error:  # such as a group without eligible test rows
                failed.append((config, str(error)))
            else:
                trials[trial.method, trial.seed, trial.init] = trial
                done.append(match)
    return Study(
        plan=plan,
        panels=tuple(
            Panel(*key, plan.methods, plan.seeds, t, RATIOS[plan.split])
            for key, t in panels.items()
        ),
        records=tuple(done),
        missing=tuple(missing),
        failed=tuple(failed),
        ignored=len(found),
    )


def open_study(place: Path) -> Study:
    """Return a study from its folder, or from a plan with its packed records beside it."""
    inside = place / PLAN
    store = Store(place / RECORDS) if place.is_dir() else Store(place.with_suffix(""))
    if not (inside.is_file() or (place.suffix == ".toml" and store.packed.is_file())):
        raise InvalidInputError(
            "study",
            "be the folder of a study, or a plan NAME.toml with NAME.jsonl.xz beside it",
            given=str(place),
        )
    plan = read_study_plan(inside if place.is_dir() else place)
    return read_study(plan, store.records(plan.trials()))
