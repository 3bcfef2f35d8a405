"""The numbers of a report: differences between methods, costs, and the claims they support.

Quantities come as frames by seed (index) and method (columns). A paired difference uses the seeds
that both methods have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fairdial.bench.curves import NAN, Panel, Study, Trial, mean_of
from fairdial.bench.hypervolume import Volumes, volumes
from fairdial.bench.plan import Plan
from fairdial.bench.statistics import Paired, corrected, holm, paired

POINTS = 100.0  # percentage points of accuracy


# ---- quantities by seed ------------------------------------------------------------------------


def matched(panel: Panel, gaps: Iterable[float]) -> dict[float, pd.DataFrame]:
    """Return the accuracy at each gap; NaN where the gap isn't reached."""
    return {
        gap: panel.values(lambda trial, gap=gap: float(trial.matched([gap])[0]))  # type: ignore[misc]
        for gap in gaps
    }


def matched_difference(panel: Panel, gap: float, a: str, b: str) -> pd.Series:
    """Return the difference in points at a gap, by seed."""
    return POINTS * panel.differences(lambda trial: float(trial.matched([gap])[0]), a, b)


def mean_difference(
    panel: Panel, gaps: Iterable[float], a: str, b: str, *, all_gaps: bool = False
) -> pd.Series:
    """Return the mean difference in points over the gaps that both reach, by seed.

    With ``all_gaps``, it is NaN for seeds in which one of the gaps isn't reached by both.
    """
    by_gap = pd.DataFrame({gap: matched_difference(panel, gap, a, b) for gap in gaps})
    return by_gap.mean(axis=1, skipna=not all_gaps)


def grid_difference(panel: Panel, a: str, b: str, column: int = 0) -> pd.Series:
    """Return the difference in points over the grid of tolerances, by seed.

    Column 0 is accuracy, 1 the gap.
    """
    return POINTS * panel.differences(lambda trial: float(trial.grid[:, column].mean()), a, b)


def at_tolerances(panel: Panel, column: int) -> dict[float, pd.DataFrame]:
    """Return accuracy (column 0) or gap (1) at each tolerance of the grid."""
    tolerances = next((t.tolerances for t in panel.trials.values()), np.empty(0))
    return {
        float(tolerance): panel.values(lambda trial, i=i: float(trial.grid[i, column]))  # type: ignore[misc]
        for i, tolerance in enumerate(tolerances)
    }


def reached(values: pd.DataFrame, panel: Panel, method: str) -> tuple[int, int]:
    """Return how many seeds reached a gap, and how many were run."""
    seeds = {key[1] for key in panel.trials if key[0] == method}
    return int(values[method].notna().sum()), len(seeds)


def no_better_than_constant(study: Study, panel: Panel) -> pd.DataFrame:
    """Return how many of a trial's own points don't beat the best constant classifier."""
    constant = {}
    for record in study.of_kind("study", panel):
        labels = np.sum(record["result"]["rows"]["test"], axis=1)
        key = record["config"]["method"]["name"], record["config"]["seed"]
        constant[key] = float(labels.max() / labels.sum())

    def count(trial: Trial) -> float:
        best = constant.get((trial.method, trial.seed))
        return NAN if best is None else float((trial.points[:, 0] <= best).sum())

    return panel.values(count)


def held(panel: Panel, only: Iterable[float] | None = None) -> pd.DataFrame:
    """Return how often tolerances held on test rows, plain and certified, by method.

    ``cases`` are seeds times tolerances; ``feasible`` and ``certified`` the shares of them that
    could be met; ``held`` and ``certified_held`` the shares of those that held on test rows.
    """
    columns = ["cases", "feasible", "held", "certified", "certified_held"]
    frame = pd.DataFrame(columns=columns, index=pd.Index([], name="method"), dtype=np.float64)
    for name in panel.compared:
        plain, sure = [], []
        for trial in panel.of(name):
            wanted = trial.tolerances if only is None else [*only]
            chosen = np.isclose(trial.tolerances[:, None], wanted).any(axis=1)
            plain.append(trial.held[chosen])
            sure.append(trial.certified_held[chosen])
        one, two = np.concatenate(plain), np.concatenate(sure)
        feasible, certified = mean_of(~np.isnan(one)), mean_of(~np.isnan(two))
        frame.loc[name] = [len(one), feasible, mean_of(one), certified, mean_of(two)]
    return frame


# ---- cost --------------------------------------------------------------------------------------

STEPS = ("train_one", "train", "adapt_one", "adapt_many", "predict_one", "predict_many")


def cost(study: Study, panel: Panel) -> pd.DataFrame:
    """Return the mean seconds of each step by method; one training may serve all settings."""
    runs: dict[str, list[dict[str, float]]] = {}
    for record in study.of_kind("cost", panel):
        seconds = record["timing"]
        one = {"train_one": seconds.get("train_one", seconds["train"])}
        runs.setdefault(record["config"]["method"]["name"], []).append(seconds | one)
    means = {
        name: [mean_of([s[step] for s in found]) for step in STEPS] for name, found in runs.items()
    }
    return pd.DataFrame.from_dict(means, orient="index", columns=[*STEPS])


def validation_change(panel: Panel, method: str) -> float:
    """Return the mean absolute change of validation accuracy from one epoch to the next."""
    curves = [curve for trial in panel.of(method) for curve in trial.validation if len(curve) > 1]
    return mean_of([float(np.abs(np.diff(curve)).mean()) for curve in curves])


def fitting(panel: Panel) -> pd.DataFrame:
    """Return seconds of fitting and calibration, epochs, and how steady they are, by method."""
    rows = {}
    for name in panel.compared:
        trials = panel.of(name)
        rows[name] = [
            len(trials),
            mean_of([trial.seconds.get("fit_cpu", NAN) for trial in trials]),
            mean_of([trial.seconds.get("calibrate_cpu", NAN) for trial in trials]),
            mean_of([trial.epochs for trial in trials]),
            validation_change(panel, name),
        ]
    columns = ["trials", "fit", "calibrate", "epochs", "change"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def training_ratio(panel: Panel, method: str, base: str) -> float:
    """Return the median ratio of processor times of training, paired by split."""
    ratios = [
        trial.seconds["fit_cpu"] / panel.trials[base, seed, init].seconds["fit_cpu"]
        for (name, seed, init), trial in panel.trials.items()
        if name == method and (base, seed, init) in panel.trials
    ]
    return float(np.median(ratios)) if ratios else NAN


# ---- what the seeds support --------------------------------------------------------------------

MATCHED, HV, INVERTED = QUANTITIES = ("mean accuracy at matched gaps", "HV", "inverted HV")


@dataclass(frozen=True, eq=False)
class KeyFigures:
    """The key quantities of a panel, by seed."""

    panel: Panel
    by_gap: dict[float, pd.DataFrame]
    volumes: Volumes

    def difference(self, quantity: str, a: str, b: str) -> Paired:
        """Return method a minus method b, paired by initialization."""
        if quantity == MATCHED:
            return paired(mean_difference(self.panel, self.by_gap, a, b), self.panel.ratio)
        reference = self.volumes.reference
        area = reference.hv if quantity == HV else reference.inverted_hv
        return paired(
            self.panel.differences(lambda trial: area(trial.points), a, b), self.panel.ratio
        )

    def null(self, quantity: str) -> Paired | None:
        """Return the difference of the null method that differs most from what it repeats."""
        found = [self.difference(quantity, *pair) for pair in self.panel.nulls]
        return max((null for null in found if null.seeds), key=lambda n: abs(n.mean), default=None)


def key_figures(study: Study) -> list[KeyFigures]:
    """Return the key quantities of the panels that have trials."""
    areas = [(panel, volumes(panel)) for panel in study.panels]
    return [
        KeyFigures(panel, matched(panel, study.plan.gaps), area)
        for panel, area in areas
        if area is not None
    ]


@dataclass(frozen=True)
class Claim:
    """A comparison of two methods on one quantity, and the null method's difference beside it."""

    panel: str
    quantity: str
    a: str
    b: str
    found: Paired
    lower_is_better: bool
    null: Paired | None  # of the null method that differs most
    adjusted: float = NAN  # Holm's p value over all claims of the report

    @property
    def corrected(self) -> Paired:
        """The difference with the corrected error."""
        return corrected(self.found)

    @property
    def excludes_zero(self) -> bool:
        """Whether the corrected 95% interval excludes 0."""
        return self.corrected.low > 0 or self.corrected.high < 0

    @property
    def better(self) -> str:
        """The method that the mean favors."""
        return self.a if (self.found.mean < 0) == self.lower_is_better else self.b

    @property
    def within_null(self) -> bool:
        """Whether the null method differs as much."""
        return self.null is not None and abs(self.found.mean) <= abs(self.null.mean)


def main_pairs(panel: Panel, main: str) -> list[tuple[str, str]]:
    """Return the pairs main minus each other method, then null methods minus what they repeat."""
    rivals = [(main, name) for name in panel.compared if name != main]
    return (rivals if main in panel.compared else []) + panel.nulls


def claim_pairs(panel: Panel, main: str, baseline: str) -> list[tuple[str, str]]:
    """Return the pairs every method minus the baseline, then main minus the others."""
    names = panel.compared
    pairs = [(name, baseline) for name in names if name != baseline]
    if main != baseline:
        pairs += [(main, name) for name in names if name not in (main, baseline)]
    return [(a, b) for a, b in pairs if a in names and b in names]


def claims(plan: Plan, parts: list[KeyFigures]) -> list[Claim]:
    """Return all comparisons on the key quantities, with Holm's p values over all of them."""
    found = [
        Claim(
            panel=part.panel.title,
            quantity=quantity,
            a=a,
            b=b,
            found=part.difference(quantity, a, b),
            lower_is_better=quantity == INVERTED,
            null=part.null(quantity),
        )
        for part in parts
        for a, b in claim_pairs(part.panel, plan.main, plan.baseline)
        for quantity in QUANTITIES
    ]
    adjusted = holm([claim.corrected.p for claim in found])
    return [replace(claim, adjusted=float(p)) for claim, p in zip(found, adjusted, strict=True)]
