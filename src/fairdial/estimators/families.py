"""Families of models: one model for each of several trade-offs, as in EPO, FairBiNN and YOTO.

Every setting's decisions on the calibration rows are counted. At a tolerance, the family decides by
the most accurate setting whose gap is within it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from fairdial._arrays import Codes, Counts, Floats, Mask, Weights
from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_rows, count_selected
from fairdial.core.frontier import Certificate
from fairdial.core.problem import Problem
from fairdial.core.sweep import measure_counts
from fairdial.errors import FairdialWarning, InvalidInputError, warn
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.rows import RowOptions, Sample


class Family(Protocol):
    """Gives margins at any of its settings."""

    def prepare(self, X: Any, groups: Codes) -> Any:
        """Return what all settings share, such as encoded rows."""

    def margins(self, rows: Any, groups: Codes, setting: float) -> Floats:
        """Return (n,) margins of prepared rows; above 0 a row gets the positive label."""


@dataclass(frozen=True)
class Measurement:
    """Counts of one setting's decisions on the calibration rows."""

    selected: Counts  # (C, K)
    counts: Counts  # (C, K) all rows
    criterion: Criterion

    @property
    def gap(self) -> float:
        """The smallest tolerance that allows these decisions."""
        return float(self.criterion.gap_of(self.selected, self.counts))

    @property
    def step(self) -> float:
        """How much one row can change the gap."""
        return float(1.0 / self.criterion.eligible_counts(self.counts).min())


class FamilyClassifier(DialClassifier):
    """A family of trained models; the tolerance chooses among its settings."""

    scorer_: Family

    @abstractmethod
    def _settings(self, measure: Callable[[float], Measurement]) -> tuple[Floats, Mask]:
        """Return (S,) settings, least constrained first, and which were fixed before calibration.

        A method that searches for settings can ``measure`` any setting on the calibration rows.
        """

    def _make_problem(self, n_rows: float) -> Problem:  # noqa: ARG002
        return Problem(find_criterion(self.criterion))

    def _read_options(
        self, X: Any, problem: Problem, more: RowOptions
    ) -> tuple[Weights | None, Criterion, Codes | None]:
        if more.get("control_features") is not None or problem.criterion.has_conditions:
            raise InvalidInputError(
                "control_features",
                f"be left out for {type(self).__name__}, and so must conditions of the criterion",
                hint="FairBayes takes them.",
            )
        return super()._read_options(X, problem, more)

    def _find_frontier(self, X: Any, sample: Sample) -> Self:
        kind, measured = sample.criterion, dict[float, Measurement]()
        shape = sample.kinds, len(sample.groups), sample.n_kinds, sample.weights
        counts = count_rows(sample.codes, *shape)
        rows = self.scorer_.prepare(X, sample.codes)

        def measure(setting: float) -> Measurement:
            if setting not in measured:
                margins = self.scorer_.margins(rows, sample.codes, setting)
                selected = count_selected(margins[None], sample.codes, *shape)[0]
                measured[setting] = Measurement(selected, counts, kind)
            return measured[setting]

        settings, declared = self._settings(measure)
        certificate: Certificate = "finite" if sample.weights is None else "weighted"
        self.frontier_ = measure_counts(
            settings,
            np.stack([measure(float(setting)).selected for setting in settings]),
            counts,
            kind,
            sample.groups,
            declared=declared,
            min_count=0,
            certificate="none" if sample.certificate == "none" else certificate,
        )
        return self

    def _margins(
        self, X: Any, codes: Codes, tolerances: Sequence[Floats], confidence: float | None
    ) -> list[Floats]:
        """Return the margins of the chosen settings; each setting is evaluated once."""
        rows = self.scorer_.prepare(X, codes)
        known: dict[float, Floats] = {}
        found = []
        for tolerance in tolerances:
            if tolerance.ndim == 0:
                point = self.frontier_.at(float(tolerance), confidence=confidence)
                settings, place = np.array([point.setting]), np.zeros(len(codes), np.intp)
            else:
                distinct, place = np.unique(tolerance, return_inverse=True)
                self.frontier_.check_mixture(len(distinct), confidence)
                points = self.frontier_.at(distinct, confidence=confidence, simultaneous=True)
                settings, back = np.unique(points.setting, return_inverse=True)
                place = back[place]
            self._warn_if_constant(settings)
            margin = np.empty(len(codes))
            for i, setting in enumerate(settings.tolist()):
                if setting not in known:
                    known[setting] = self.scorer_.margins(rows, codes, setting)
                margin[place == i] = known[setting][place == i]
            found.append(margin)
        return found

    def _warn_if_constant(self, settings: Floats) -> None:
        """Warn if a chosen setting gives every calibration row the same decision."""
        frontier = self.frontier_
        chosen = np.flatnonzero(np.isin(frontier.setting, settings))
        selected = frontier.points.read(chosen)[1].sum(axis=(1, 2))
        if np.isin(selected, (0, frontier.counts.sum())).any():
            warn(
                "the setting chosen at this tolerance gives every calibration row the same "
                "decision, which is why its gap is 0; FairBayes may be more accurate at this "
                "tolerance",
                FairdialWarning,
            )
