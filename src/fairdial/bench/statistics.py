"""The numbers of a report: paired statistics, costs, and the claims that they support.

Figures come as one frame each, with a line a seed and a column a method; a paired difference uses
the seeds that both methods have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import t as student

from fairdial.bench.curves import (
    NAN,
    Floats,
    Panel,
    Study,
    Trial,
    matched,
    mean_difference,
    mean_of,
)
from fairdial.bench.reference import Volumes, volumes

LEVEL, POWER, MOST_SEEDS = 0.95, 0.80, 10_000
SPLIT_RATIO = 10 / 64.8  # test rows for each training row; where fewer are trained on, of the split


# ---- paired differences ------------------------------------------------------------------------


class Paired(NamedTuple):
    """Differences by seed, in short; NaN where there are too few seeds."""

    seeds: int = 0
    mean: float = NAN
    q1: float = NAN
    q2: float = NAN
    q3: float = NAN
    sd: float = NAN  # ddof 1
    error: float = NAN  # standard error of the mean; what follows is by it
    low: float = NAN  # ends of the 95% t interval
    high: float = NAN
    p: float = NAN  # two-sided paired t test
    needed: float = NAN  # seeds for 80% power at this mean and sd; infinite: beyond MOST_SEEDS
    seen: float = NAN  # the difference that so many seeds see with 80% power at this sd


def paired(differences: ArrayLike) -> Paired:
    """Mean, quartiles (linear), standard error, t interval and power of paired differences.

    Examples
    --------
    >>> from fairdial.bench.statistics import paired
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
    return corrected(Paired(n, mean, q1, q2, q3, float(values.std(ddof=1))), 0.0)


def corrected(found: Paired, ratio: float = SPLIT_RATIO) -> Paired:
    """The same with Nadeau and Bengio's (2003) standard error, for seeds that split the same rows.

    The plain one times sqrt((1/n + ratio) / (1/n)), with n seeds and ``ratio`` test rows for each
    training row; a ratio of 0 is the plain one.

    Examples
    --------
    >>> from fairdial.bench.statistics import corrected, paired
    >>> plain = paired([1.0, 2.0, 3.0, 4.0])
    >>> round(corrected(plain, 0.75).error / plain.error, 6)
    2.0
    """
    n, mean, sd = found.seeds, found.mean, found.sd
    if n < 2:
        return found
    error = sd / n**0.5 * (1 + n * ratio) ** 0.5
    half = float(student.ppf((1 + LEVEL) / 2, n - 1)) * error
    t = abs(mean) / error if error > 0 else (0.0 if mean == 0 else float("inf"))
    return found._replace(
        error=error,
        low=mean - half,
        high=mean + half,
        p=float(2 * student.sf(t, n - 1)),
        needed=seeds_needed(mean, sd, ratio),
        seen=float(_factors(ratio)[min(n, MOST_SEEDS) - 2] * sd),
    )


def seeds_needed(mean: float, sd: float, ratio: float = 0.0) -> float:
    """Seeds with which a paired t test sees such a difference with 80% power, about.

    With a ratio above 0 the error doesn't fall below sqrt(ratio) standard deviations, so that often
    no number of seeds is enough.
    """
    if mean == 0:
        return float("inf")
    if sd == 0:
        return 2.0
    enough = np.flatnonzero(_factors(ratio) <= abs(mean) / sd)
    return float(enough[0] + 2) if len(enough) else float("inf")


@cache
def _factors(ratio: float) -> Floats:
    """(t_.975 + t_.8) sqrt(1/n + ratio), n = 2, 3, ...: the effect n seeds see with 80% power."""
    n = np.arange(2, MOST_SEEDS + 1)
    quantiles = student.ppf((1 + LEVEL) / 2, n - 1) + student.ppf(POWER, n - 1)
    return np.asarray(quantiles / np.sqrt(n) * np.sqrt(1 + n * ratio), np.float64)


def holm(p_values: ArrayLike) -> Floats:
    """Holm's adjusted p values; NaN stays, and doesn't count.

    Examples
    --------
    >>> from fairdial.bench.statistics import holm
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


def main_pairs(panel: Panel, main: str) -> list[tuple[str, str]]:
    """Main minus each other method; then null rows minus what they repeat."""
    rivals = [(main, name) for name in panel.compared if name != main]
    return (rivals if main in panel.compared else []) + panel.nulls


# ---- what records tell of their rows -----------------------------------------------------------


def _records(study: Study, panel: Panel) -> Iterator[dict[str, Any]]:
    """The records of a panel's study trials."""
    place = ("study", panel.dataset, panel.criterion)
    for record in study.records:
        config = record["config"]
        if (config["kind"], config["dataset"], config["criterion"]) == place:
            yield record


def no_better_than_constant(study: Study, panel: Panel) -> pd.DataFrame:
    """How many of a trial's own positions don't beat the best constant classifier on test rows.

    A line a seed, a column a method; NaN where no record tells the rows.
    """
    constant = {}
    for record in _records(study, panel):
        labels = np.sum(record["result"]["rows"]["test"], axis=1)
        key = record["config"]["method"]["name"], record["config"]["seed"]
        constant[key] = float(labels.max() / labels.sum())

    def count(trial: Trial) -> float:
        best = constant.get((trial.method, trial.seed))
        return NAN if best is None else float((trial.points[:, 0] <= best).sum())

    return panel.values(count)


# ---- cost --------------------------------------------------------------------------------------

STEPS = ("train_one", "train", "adapt_one", "adapt_many", "predict_one", "predict_many")


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
        | {step: mean_of([run[step] for run in runs]) for step in STEPS}
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
                "fit": mean_of([t.seconds.get("fit_cpu", NAN) for t in trials]),
                "calibrate": mean_of([t.seconds.get("calibrate_cpu", NAN) for t in trials]),
                "epochs": mean_of([t.epochs for t in trials]),
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
    def corrected(self) -> Paired:
        """What was found, with the error that decides."""
        return corrected(self.found)

    @property
    def excludes_zero(self) -> bool:
        """Whether the corrected 95% interval does."""
        return self.corrected.low > 0 or self.corrected.high < 0

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
            return paired(mean_difference(self.panel, self.by_gap, a, b))
        values = self.volumes.hv if figure == HV else self.volumes.inverted
        return paired(values[a] - values[b])

    def null(self, figure: str) -> Paired | None:
        """The null row that differs most from what it repeats."""
        found = [self.difference(figure, *pair) for pair in self.panel.nulls]
        return max((null for null in found if null.seeds), key=lambda n: abs(n.mean), default=None)


def measured(study: Study) -> list[Measured]:
    """The key figures of those panels that have trials."""
    areas = [(panel, volumes(panel)) for panel in study.panels]
    return [
        Measured(panel, matched(panel, study.plan.gaps), area)
        for panel, area in areas
        if area is not None
    ]


def claim_pairs(panel: Panel, main: str, baseline: str) -> list[tuple[str, str]]:
    """Every method minus the baseline; then main minus the others."""
    names = panel.compared
    pairs = [(name, baseline) for name in names if name != baseline]
    if main != baseline:
        pairs += [(main, name) for name in names if name not in (main, baseline)]
    return [(a, b) for a, b in pairs if a in names and b in names]


def claims(study: Study) -> list[Claim]:
    """All comparisons on the key figures, with Holm's p values (corrected) over all of them."""
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
    adjusted = holm([claim.corrected.p for claim in found])
    return [replace(claim, adjusted=float(p)) for claim, p in zip(found, adjusted, strict=True)]
