"""The numbers of a report as frames: means, paired differences, costs, and what seeds support.

Everything is computed from one frame a figure, with a line a seed and a column a method; a paired
difference uses the seeds that both methods have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import t as student

from fairdial.bench.curves import Floats, Panel, Study
from fairdial.bench.reference import Volumes, volumes

LEVEL, POWER, MOST_SEEDS = 0.95, 0.80, 10_000
POINTS = 100.0  # of accuracy: percentage points
NAN = float("nan")


# ---- paired differences ------------------------------------------------------------------------


class Paired(NamedTuple):
    """Differences by seed, in short; NaN where there are too few seeds."""

    seeds: int = 0
    mean: float = NAN
    q1: float = NAN
    q2: float = NAN
    q3: float = NAN
    sd: float = NAN  # ddof 1
    error: float = NAN  # standard error of the mean
    low: float = NAN  # ends of the 95% t interval
    high: float = NAN
    p: float = NAN  # two-sided paired t test
    needed: float = NAN  # seeds for 80% power at this mean and sd; infinite: beyond MOST_SEEDS
    seen: float = NAN  # the difference that so many seeds see with 80% power at this sd


def paired(differences: ArrayLike) -> Paired:
    """Mean, quartiles (linear), standard error, t interval and power of paired differences.

    Examples
    --------
    >>> from fairdial.bench.tables import paired
    >>> found = paired([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> found.q1, found.q2, found.q3, found.needed
    (2.0, 3.0, 4.0, 5.0)
    """
    values = np.asarray(differences, np.float64)
    values = values[~np.isnan(values)]
    n = len(values)
    if n == 0:
        return Paired()
    mean = float(values.mean())
    q1, q2, q3 = np.percentile(values, [25, 50, 75]).tolist()
    if n == 1:
        return Paired(n, mean, q1, q2, q3)
    sd = float(values.std(ddof=1))
    error = sd / n**0.5
    half = float(student.ppf((1 + LEVEL) / 2, n - 1)) * error
    ratio = abs(mean) / error if error > 0 else (0.0 if mean == 0 else float("inf"))
    return Paired(
        n,
        mean,
        q1,
        q2,
        q3,
        sd,
        error,
        mean - half,
        mean + half,
        p=float(2 * student.sf(ratio, n - 1)),
        needed=seeds_needed(mean, sd),
        seen=float(_factors()[min(n, MOST_SEEDS) - 2] * sd),
    )


def seeds_needed(mean: float, sd: float) -> float:
    """Seeds with which a paired t test sees such a difference with 80% power, about."""
    if mean == 0:
        return float("inf")
    if sd == 0:
        return 2.0
    enough = np.flatnonzero(_factors() <= abs(mean) / sd)
    return float(enough[0] + 2) if len(enough) else float("inf")


@cache
def _factors() -> Floats:
    """(t_.975 + t_.8) / sqrt(n) for n = 2, 3, ...: the effect that n seeds see with 80% power."""
    n = np.arange(2, MOST_SEEDS + 1)
    quantiles = student.ppf((1 + LEVEL) / 2, n - 1) + student.ppf(POWER, n - 1)
    return np.asarray(quantiles / np.sqrt(n), np.float64)


def holm(p_values: ArrayLike) -> Floats:
    """Holm's adjusted p values; NaN stays, and doesn't count.

    Examples
    --------
    >>> from fairdial.bench.tables import holm
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def differences(values: pd.DataFrame, pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """A line for each pair (a, b): a minus b, paired by seed."""
    lines = [{"a": a, "b": b, **paired(values[a] - values[b])._asdict()} for a, b in pairs]
    return pd.DataFrame(lines, columns=["a", "b", *Paired._fields])


def main_pairs(panel: Panel, main: str) -> list[tuple[str, str]]:
    """Main minus each other method; then null rows minus what they repeat."""
    rivals = [(main, name) for name in panel.compared if name != main]
    return (rivals if main in panel.compared else []) + panel.nulls


# ---- accuracy at matched gaps, and at common tolerances ----------------------------------------


def matched(panel: Panel, gaps: Iterable[float]) -> dict[float, pd.DataFrame]:
    """Accuracy by gap: seeds by methods, NaN where the gap isn't reached."""
    return {
        gap: panel.values(lambda trial, gap=gap: float(trial.matched([gap])[0]))  # type: ignore[misc]
        for gap in gaps
    }


def mean_difference(by_gap: dict[float, pd.DataFrame], a: str, b: str) -> pd.Series:
    """By seed, in points: the mean of the differences at those gaps that both reached."""
    table = pd.DataFrame({gap: values[a] - values[b] for gap, values in by_gap.items()})
    return POINTS * table.mean(axis=1)


def at_tolerances(panel: Panel, column: int) -> dict[float, pd.DataFrame]:
    """By tolerance of the grid, accuracy (column 0) or gap (1): seeds by methods."""
    tolerances = next((t.tolerances for t in panel.trials.values()), np.empty(0))
    return {
        float(tolerance): panel.values(lambda trial, i=i: float(trial.grid[i, column]))  # type: ignore[misc]
        for i, tolerance in enumerate(tolerances)
    }


def reached(values: pd.DataFrame, panel: Panel, method: str) -> tuple[int, int]:
    """Seeds that reached a gap, of those that were run."""
    return int(values[method].notna().sum()), len(panel.of(method))


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
                "feasible": _mean(~np.isnan(plain)),
                "held": _mean(plain[~np.isnan(plain)]),
                "certified": _mean(~np.isnan(sure)),
                "certified_held": _mean(sure[~np.isnan(sure)]),
            }
        )
    columns = ["method", "wishes", "feasible", "held", "certified", "certified_held"]
    return pd.DataFrame(lines, columns=columns)


def _chosen(tolerances: Floats, only: Iterable[float] | None) -> Any:
    if only is None:
        return np.ones(len(tolerances), np.bool_)
    return np.isclose(tolerances[:, None], np.array([*only])[None]).any(axis=1)


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else NAN


# ---- cost --------------------------------------------------------------------------------------

STEPS = ("train_one", "train", "adapt_one", "adapt_many", "predict_one")


def cost(study: Study, panel: Panel) -> pd.DataFrame:
    """Mean seconds of each step, a line a method; where one training serves all, it is both."""
    lines: dict[str, list[dict[str, float]]] = {}
    for record in study.costs:
        config, seconds = record["config"], record["timing"]
        if (config["dataset"], config["criterion"]) == (panel.dataset, panel.criterion):
            once = {"train_one": seconds.get("train_one", seconds["train"])}
            lines.setdefault(config["method"]["name"], []).append(seconds | once)
    found = [
        {"method": name, "repeats": len(runs)}
        | {step: _mean([run[step] for run in runs]) for step in STEPS}
        for name, runs in lines.items()
    ]
    return pd.DataFrame(found, columns=["method", "repeats", *STEPS])


def fitting(panel: Panel) -> pd.DataFrame:
    """Processor seconds of fit and calibration, and epochs, of the study trials; means."""
    lines = []
    for name in panel.compared:
        trials = panel.of(name)
        lines.append(
            {
                "method": name,
                "seeds": len(trials),
                "fit": _mean([t.seconds.get("fit_cpu", NAN) for t in trials]),
                "calibrate": _mean([t.seconds.get("calibrate_cpu", NAN) for t in trials]),
                "epochs": _mean([t.epochs for t in trials]),
            }
        )
    return pd.DataFrame(lines, columns=["method", "seeds", "fit", "calibrate", "epochs"])


# ---- what the seeds support --------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A comparison of two methods on one figure, and the null row's difference beside it."""

    panel: str
    figure: str
    a: str
    b: str
    found: Paired
    lower_is_better: bool
    null: Paired | None  # of the null row that differs most
    adjusted: float = NAN  # Holm, over all claims of the report

    @property
    def excludes_zero(self) -> bool:
        """Whether the 95% interval does."""
        return self.found.low > 0 or self.found.high < 0

    @property
    def better(self) -> str:
        """The method that the mean speaks for."""
        return self.a if (self.found.mean < 0) == self.lower_is_better else self.b

    @property
    def within_null(self) -> bool:
        """Whether the null row differs as much."""
        return self.null is not None and abs(self.found.mean) <= abs(self.null.mean)


MATCHED, HV, INVERTED = FIGURES = ("mean accuracy at matched gaps", "HV", "inverted HV")


@dataclass(frozen=True, eq=False)
class Measured:
    """The key figures of a panel, by seed."""

    panel: Panel
    by_gap: dict[float, pd.DataFrame]
    volumes: Volumes

    def difference(self, figure: str, a: str, b: str) -> Paired:
        """Method a minus method b."""
        if figure == MATCHED:
            return paired(mean_difference(self.by_gap, a, b))
        values = self.volumes.hv if figure == HV else self.volumes.inverted
        return paired(values[a] - values[b])

    def null(self, figure: str) -> Paired | None:
        """The null row that differs most from what it repeats."""
        found = [self.difference(figure, *pair) for pair in self.panel.nulls]
        return max((null for null in found if null.seeds), key=lambda n: abs(n.mean), default=None)


def measured(study: Study) -> list[Measured]:
    """The key figures of those panels that have trials."""
    areas = [(panel, volumes(panel)) for panel in study.panels]
    return [Measured(p, matched(p, study.plan.gaps), v) for p, v in areas if v is not None]


def claim_pairs(panel: Panel, main: str, baseline: str) -> list[tuple[str, str]]:
    """Every method minus the baseline; then main minus the others."""
    names = panel.compared
    pairs = [(name, baseline) for name in names if name != baseline]
    if main != baseline:
        pairs += [(main, name) for name in names if name not in (main, baseline)]
    return [(a, b) for a, b in pairs if a in names and b in names]


def claims(study: Study) -> list[Claim]:
    """All comparisons on the key figures, with Holm's p values over all of them."""
    plan = study.plan
    found = [
        Claim(
            panel=part.panel.title,
            figure=figure,
            a=a,
            b=b,
            found=part.difference(figure, a, b),
            lower_is_better=figure == INVERTED,
            null=part.null(figure),
        )
        for part in measured(study)
        for a, b in claim_pairs(part.panel, plan.main, plan.baseline)
        for figure in FIGURES
    ]
    adjusted = holm([claim.found.p for claim in found])
    return [replace(claim, adjusted=float(p)) for claim, p in zip(found, adjusted, strict=True)]
