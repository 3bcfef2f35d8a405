"""HV and inverted HV of curves: normalization, reference points, and sensitivity to them.

This follows the paper's appendix ap:hv, with these choices where it is open. Equal points count
once. The affine map comes from the non-dominated points of all methods and seeds, and isn't
clipped. Inverted HV counts all points of a curve. If N or N' is 1 or less, 1/(N - 1) becomes 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import kendalltau

from fairdial._arrays import Floats
from fairdial.bench.curves import Panel
from fairdial.errors import InvalidInputError
from fairdial.metrics import hypervolume, pareto

SENSITIVITY = np.geomspace(2.0, 80.0, 30)  # values of N - 1 = N' - 1
AXES = ("accuracy", "gap")


def fronts(points: ArrayLike) -> tuple[Floats, Floats]:
    """Return the non-dominated and the dominated points, equal ones once: T and its rest.

    Examples
    --------
    >>> from fairdial.bench.hypervolume import fronts
    >>> [len(part) for part in fronts([(0.8, 0.1), (0.8, 0.1), (0.7, 0.1)])]
    [1, 1]
    """
    once = np.unique(np.asarray(points, np.float64), axis=0)
    best = pareto(once)
    return once[best], once[~best]


@dataclass(frozen=True)
class Reference:
    """An affine map of (accuracy, gap), and the two reference points in its coordinates.

    Attributes
    ----------
    low, span : (float, float)
        Accuracy and gap are mapped to (value - low) / span.
    n, n_dominated : int
        N and N': the largest numbers of non-dominated and of dominated points of a curve.
    notes : tuple of str
        Edge cases that occurred.
    """

    low: tuple[float, float]
    span: tuple[float, float]
    n: int
    n_dominated: int
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """N - 1, at least 1."""
        return max(self.n - 1, 1)

    @property
    def inverted_steps(self) -> int:
        """N' - 1, at least 1."""
        return max(self.n_dominated - 1, 1)

    def normalize(self, points: ArrayLike) -> Floats:
        """Return points in mapped coordinates."""
        return np.asarray((np.asarray(points, np.float64) - self.low) / self.span, np.float64)

    def hv(self, points: ArrayLike, steps: float | None = None) -> float:
        """Return the area up to (-1/(N-1), 1+1/(N-1)), eq:ref_point; higher is better."""
        shift = 1 / (steps or self.steps)
        return _area(self.normalize(points), np.array([-shift, 1 + shift]))

    def inverted_hv(self, points: ArrayLike, steps: float | None = None) -> float:
        """Return the area down to (1+1/(N'-1), -1/(N'-1)) of all points; lower is better."""
        shift = 1 / (steps or self.inverted_steps)
        return _area(-self.normalize(points), -np.array([1 + shift, -shift]))


def _area(points: Floats, reference: Floats) -> float:
    """Return the area; 0 if no point is on the right side of the reference (null methods)."""
    inside = points[(points[:, 0] > reference[0]) & (points[:, 1] < reference[1])]
    return hypervolume(inside, reference) if len(inside) else 0.0


def make_reference(curves: Iterable[ArrayLike]) -> Reference:
    """Return the map and the reference points of curves that are compared with each other.

    Examples
    --------
    >>> from fairdial.bench.hypervolume import make_reference
    >>> curve = [(0.8, 0.1), (0.78, 0.05), (0.7, 0.0)]
    >>> round(make_reference([curve]).hv(curve), 4)
    1.65
    """
    parts = [fronts(points) for points in curves]
    if not parts:
        raise InvalidInputError("curves", "hold at least one curve", given="none")
    best = np.concatenate([front for front, _ in parts])
    low, span, notes = best.min(axis=0), np.ptp(best, axis=0), []
    for i, name in enumerate(AXES):
        if span[i] == 0:
            notes.append(f"All non-dominated points have the same {name}: its span is set to 1.")
            span[i] = 1.0
    n, n_dominated = (max(len(part[k]) for part in parts) for k in (0, 1))
    if n == 1:
        notes.append("No curve has more than one non-dominated point: 1/(N-1) is set to 1.")
    if n_dominated <= 1:
        notes.append(
            f"No curve has more than {n_dominated} dominated points: 1/(N'-1) is set to 1."
        )
    return Reference(
        (float(low[0]), float(low[1])),
        (float(span[0]), float(span[1])),
        int(n),
        int(n_dominated),
        tuple(notes),
    )


@dataclass(frozen=True, eq=False)
class Volumes:
    """HV and inverted HV of every trial of a panel, by seed (index) and method (columns)."""

    reference: Reference
    hv: pd.DataFrame
    inverted: pd.DataFrame


def volumes(panel: Panel) -> Volumes | None:
    """Return the HV of all trials, null methods by the others' reference; None without trials."""
    if not panel.compared:
        return None
    curves = [trial.points for name in panel.compared for trial in panel.of(name)]
    reference = make_reference(curves)
    return Volumes(
        reference,
        panel.values(lambda trial: reference.hv(trial.points)),
        panel.values(lambda trial: reference.inverted_hv(trial.points)),
    )


def sensitivity(
    panel: Panel, reference: Reference, steps: ArrayLike = SENSITIVITY
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the mean HV and inverted HV of each method at each N - 1, with the same map."""
    values = np.asarray(steps, np.float64)
    found = []
    for area in (reference.hv, reference.inverted_hv):
        means = {
            name: [np.mean([area(t.points, step) for t in panel.of(name)]) for step in values]
            for name in panel.compared
        }
        found.append(pd.DataFrame(means, index=pd.Index(values, name="steps")))
    return found[0], found[1]


class Order(NamedTuple):
    """An order of the methods, best first, and the range of N - 1 in which it holds."""

    first: float
    last: float
    methods: tuple[str, ...]
    tau: float  # Kendall's, against the main order


def orders(means: pd.DataFrame, main: pd.Series, *, lower_is_better: bool) -> list[Order]:
    """Return how methods rank along N - 1, with one entry per stretch of the same order."""
    found: list[Order] = []
    for steps, line in means.iterrows():
        ranked = tuple(line.sort_values(ascending=lower_is_better, kind="stable").index)
        if found and found[-1].methods == ranked:
            found[-1] = found[-1]._replace(last=float(steps))
            continue
        tau = _tau(line, main[line.index])
        found.append(Order(float(steps), float(steps), ranked, tau))
    return found


def _tau(left: pd.Series, right: pd.Series) -> float:
    if len(left) < 2:
        return float("nan")
    return float(kendalltau(left.to_numpy(), right.to_numpy()).statistic)
