"""Families of classifiers whose margins depend on the setting: EPO, FairBiNN and YOTO.

Their frontier is measured: every setting's decisions on the calibration rows are counted, and the
dial chooses the most accurate setting whose gap is within the tolerance.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fairdial.criteria import criterion as find_criterion
from fairdial.errors import FairdialWarning, warn
from fairdial.frontier import Certificate
from fairdial.methods.base import DialClassifier, Floats
from fairdial.methods.network import Network, chosen_network
from fairdial.methods.rows import Codes
from fairdial.paths import count_for
from fairdial.sweeping import check_counts, count_cells, count_selected, measure_counts


class Family(Protocol):
    """Gives margins at any of its settings."""

    def prepare(self, X: Any, groups: Codes) -> Any:
        """What all settings share."""

    def margins(self, rows: Any, groups: Codes, setting: float) -> Floats:
        """(n,) margins of prepared rows; above 0 the positive label is given."""


class FamilyClassifier(DialClassifier):
    """A family of trained classifiers, dialled by choosing among its settings."""

    network: Any
    scorer_: Family

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        encodes = self._network().encoder is not None
        tags.input_tags.allow_nan = tags.input_tags.string = encodes
        return tags

    def _network(self) -> Network:
        """The settings of what is trained."""
        return chosen_network(self.network, self._default_network())

    @staticmethod
    @abstractmethod
    def _default_network() -> Network:
        """Where none is given."""

    @abstractmethod
    def _settings(
        self, measure: Callable[[float], Measurement]
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """(S,) settings, least constrained first, and which were fixed before these rows.

        ``measure`` tells a setting's figures on the calibration rows, for a method that searches.
        """

    def _find_frontier(
        self,
        X: Any,
        codes: Codes,
        names: tuple[Hashable, ...],
        positive: NDArray[np.bool_] | None,
        certificate: Certificate,
    ) -> Self:
        kind, known = find_criterion(self.criterion), dict[float, Measurement]()
        least = self._least_count(names)
        all_rows = count_cells(codes, positive, len(names))
        check_counts(kind, all_rows, names, min_count=least, argument="sensitive_features")
        rows = self.scorer_.prepare(X, codes)

        def measure(setting: float) -> Measurement:
            if setting not in known:
                margins = self.scorer_.margins(rows, codes, setting)
                selected = count_selected(margins[None], codes, positive, len(names))[0]
                known[setting] = Measurement(selected, all_rows, kind)
            return known[setting]

        settings, declared = self._settings(measure)
        self.frontier_ = measure_counts(
            settings,
            np.stack([measure(float(setting)).selected for setting in settings]),
            all_rows,
            kind,
            names,
            declared=declared,
            min_count=least,
            argument="sensitive_features",
            certificate="none" if certificate == "none" else "finite",
        )
        return self

    def _margins(
        self, X: Any, codes: Codes, wishes: Sequence[Floats], confidence: float | None
    ) -> list[Floats]:
        """Margins of the settings that the wishes lead to; each is evaluated once."""
        rows = self.scorer_.prepare(X, codes)
        known: dict[float, Floats] = {}
        found = []
        for wish in wishes:
            if wish.ndim == 0:
                settings = np.array([self.frontier_.at(float(wish), confidence=confidence).setting])
                place = np.zeros(len(codes), np.intp)
            else:
                distinct, place = np.unique(wish, return_inverse=True)
                points = self.frontier_.at(distinct, confidence=confidence, simultaneous=True)
                settings, back = np.unique(points.setting, return_inverse=True)
                place = back[place]
            self._tell_if_constant(settings)
            margin = np.empty(len(codes))
            for i, setting in enumerate(settings.tolist()):
                if setting not in known:
                    known[setting] = self.scorer_.margins(rows, codes, setting)
                margin[place == i] = known[setting][place == i]
            found.append(margin)
        return found

    def _tell_if_constant(self, settings: Floats) -> None:
        """Say so where a chosen setting decides alike for everybody."""
        frontier = self.frontier_
        states = np.flatnonzero(np.isin(frontier.setting, settings))
        selected = frontier.states.read(states)[1].sum(axis=(1, 2))
        if np.isin(selected, (0, frontier.rows.sum())).any():
            warn(
                "a setting that this tolerance leads to decides the same for every calibration "
                "row: that is how its gap is 0; FairBayes on the same rows may keep more accuracy "
                "at this tolerance",
                FairdialWarning,
            )


class Measurement:
    """One setting on calibration rows."""

    def __init__(self, selected: NDArray[np.int64], rows: NDArray[np.int64], kind: Any) -> None:
        self.selected, self._rows, self._kind = selected, rows, kind

    @property
    def gap(self) -> float:
        """Highest minus lowest rate."""
        rates = count_for(self._kind, self.selected) / count_for(self._kind, self._rows)
        return float(self._kind.gap(rates))

    @property
    def step(self) -> float:
        """What one row can change of the gap."""
        return float(1.0 / count_for(self._kind, self._rows).min())
